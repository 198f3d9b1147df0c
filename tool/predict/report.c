/* Reports predictions as a table, as JSON, and as a chart. It also compares them with TernGrad's figure 5. */
#include "predict.h"
#include "svg.h"
#include "base/quote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What can be read from TernGrad's figure 5, with the 2-bit code, weak scaling and the paper's batches. */
static const struct reading {
    const char *cluster, *net;
    uint32_t batch, gpus;
    double gain;
} readings[] = {{"eth-1g-gtx1080", "alexnet", 128, 8, 3.04}, {"ib-100g-p100", "vgg-a", 32, 512, 2}};

static const double readings_ratio = 16;

/* Compares with a reading of the paper. It gives the predicted gain, and the T(1,1,K) that the paper's gain implies. */
static json_t *compare_with_reading(const struct prediction *p)
{
    for (size_t i = 0; i < sizeof readings / sizeof *readings; i++) {
        const struct reading *r = &readings[i];
        if (!p->cluster || !p->net || strcmp(p->cluster->name, r->cluster) != 0 || strcmp(p->net, r->net) != 0 ||
            p->options.scaling != GW_SCALING_WEAK || p->options.batch != r->batch)
            continue;
        const double bytes = p->options.gradient_bytes / readings_ratio;
        const gw_predict_codec codec = {.bytes_up = bytes, .bytes_down = bytes};
        gw_prediction plain, coded;
        double implied;
        if (gw_predict(&p->paper, NULL, r->gpus, &plain) < 0 || gw_predict(&p->paper, &codec, r->gpus, &coded) < 0 ||
            gw_predict_implied(&p->paper, &codec, r->gpus, r->gain, &implied) < 0)
            return NULL;
        return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f}", "gpus", (json_int_t)r->gpus, "ratio", readings_ratio, "gain",
                         r->gain, "predicted_gain", plain.seconds / coded.seconds, "implied_batch_seconds", implied,
                         "assumed_batch_seconds", p->options.batch_seconds);
    }
    return NULL;
}

static json_t *row_json(const struct prediction *p, const struct subject *s, size_t i)
{
    const gw_prediction *row = &s->rows[i], *plain = &p->subjects[0].rows[i];
    const double g = p->options.gradient_bytes;
    return json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "codec",
                     s->spec, "gpus", (json_int_t)row->gpus, "machines", (json_int_t)row->machines, "seconds",
                     row->seconds, "samples_per_second", row->samples_per_second, "speedup",
                     plain->seconds / row->seconds, "paper_seconds", s->paper[i].seconds, "bytes_up",
                     s->codec ? s->costs[i].bytes_up : g, "bytes_down", s->codec ? s->costs[i].bytes_down : g,
                     "compute_seconds", row->compute_seconds, "gpu_seconds", row->gpu_seconds, "cpu_seconds",
                     row->cpu_seconds, "network_seconds", row->network_seconds, "codec_seconds", row->codec_seconds,
                     "waiting_seconds", row->waiting_seconds, "hidden_seconds", row->hidden_seconds);
}

static int print_json(const struct prediction *p, json_t *reading)
{
    const gw_predict_options *o = &p->options;
    const gw_cluster *c = &o->cluster;
    json_t *rows = json_array();
    for (size_t i = 0; i < p->n_counts; i++)
        for (size_t s = 0; s < p->n_subjects; s++)
            json_array_append_new(rows, row_json(p, &p->subjects[s], i));
    json_t *cluster = json_pack("{s:I, s:f, s:f, s:f, s:f}", "gpus_per_machine", (json_int_t)c->gpus_per_machine,
                                "gpu_bandwidth", c->gpu_bandwidth, "cpu_bandwidth", c->cpu_bandwidth,
                                "network_latency_s", c->network_latency_s, "network_bandwidth", c->network_bandwidth);
    json_t *root =
        json_pack("{s:s?, s:o, s:o, s:s, s:s, s:f, s:f, s:I, s:f, s:f, s:O, s:o}", "net", p->net, "cluster_name",
                  gw_json_text(p->cluster_name), "cluster", cluster, "scaling", p->scaling, "owners", p->owners,
                  "overlap", o->overlap, "stragglers", o->straggler_cv, "batch", (json_int_t)o->batch, "batch_seconds",
                  o->batch_seconds, "gradient_bytes", o->gradient_bytes, "assumptions", p->assumptions, "rows", rows);
    if (root && p->ratio > 0)
        json_object_set_new(root, "ratio", json_real(p->ratio));
    if (root && reading)
        json_object_set(root, "figure_5", reading);
    return tool_print_json(root);
}

static void describe(const struct prediction *p, char *out, size_t capacity)
{
    char what[128];
    snprintf(what, sizeof what, "a gradient of %.4g MB", 1e-6 * p->options.gradient_bytes);
    snprintf(out, capacity, "%s on %s", p->net ? p->net : what, p->cluster_name);
}

/* A number as text: with four digits, or with all digits before the point. */
struct number {
    char text[32];
};

static struct number number_of(double value)
{
    struct number number;
    snprintf(number.text, sizeof number.text, value < 1000 ? "%.4g" : "%.0f", value);
    return number;
}

static void print_table(const struct prediction *p)
{
    const gw_predict_options *o = &p->options;
    const bool beyond = o->owners != GW_OWNERS_PAPER || o->overlap > 0 || o->straggler_cv > 0; /* the paper's model */
    printf("%-30s %6s %8s %11s %11s %7s%s\n", "codec", "GPUs", "machines", "s a step", "samples/s", "x none",
           beyond ? "     paper, s" : "");
    for (size_t i = 0; i < p->n_counts; i++)
        for (size_t k = 0; k < p->n_subjects; k++) {
            const struct subject *s = &p->subjects[k];
            const gw_prediction *row = &s->rows[i];
            printf("%-30s %6u %8u %11s %11s %7.2f", s->spec, row->gpus, row->machines, number_of(row->seconds).text,
                   number_of(row->samples_per_second).text, p->subjects[0].rows[i].seconds / row->seconds);
            if (beyond)
                printf(" %12s", number_of(s->paper[i].seconds).text);
            printf("\n");
        }
}

static int print_text(const struct prediction *p, const json_t *reading)
{
    char title[256], shown[4 * sizeof title];
    describe(p, title, sizeof title);
    gw_show(title, "", shown, sizeof shown);
    printf("%s: predicted, not measured\n\n", shown);
    print_table(p);
    printf("\nAssumed:\n");
    size_t i;
    json_t *sentence;
    json_array_foreach (p->assumptions, i, sentence)
        printf("- %s\n", json_string_value(sentence));
    if (reading)
        printf("\nTernGrad's figure 5 shows a gain of %.3g on %lld GPUs. With a ratio of %g and the T(1,1,K) of %.4g s "
               "assumed here, the model gives %.3g. The figure's gain implies a T(1,1,K) of %.4g s.\n",
               json_real_value(json_object_get(reading, "gain")),
               (long long)json_integer_value(json_object_get(reading, "gpus")), readings_ratio,
               p->options.batch_seconds, json_real_value(json_object_get(reading, "predicted_gain")),
               json_real_value(json_object_get(reading, "implied_batch_seconds")));
    return tool_finish_output();
}

/* Orders the numbers of GPUs from the least to the most. `order` has positions in p->counts. */
static void order_counts(const struct prediction *p, size_t order[MOST_COUNTS])
{
    for (size_t i = 0; i < p->n_counts; i++) {
        size_t k = i;
        for (; k > 0 && p->counts[order[k - 1]] > p->counts[i]; k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
}

int tool_predict_draw(const struct prediction *p, const char *path)
{
    tool_svg_series series[TOOL_MAX_TEXTS + 1];
    double x[MOST_COUNTS];
    size_t order[MOST_COUNTS];
    double *y = tool_alloc(p->n_subjects * p->n_counts, sizeof *y);
    char title[320], about[280];
    if (!y)
        return TOOL_FAILED;
    order_counts(p, order);
    for (size_t i = 0; i < p->n_counts; i++)
        x[i] = p->counts[order[i]];
    for (size_t k = 0; k < p->n_subjects; k++) {
        for (size_t i = 0; i < p->n_counts; i++)
            y[k * p->n_counts + i] = p->subjects[k].rows[order[i]].samples_per_second;
        series[k] = (tool_svg_series){.label = k ? p->subjects[k].spec : "none (float32)",
                                      .x = x,
                                      .y = y + k * p->n_counts,
                                      .n = p->n_counts};
    }
    describe(p, about, sizeof about);
    snprintf(title, sizeof title, "%s: predicted throughput", about);
    snprintf(about, sizeof about, "%s scaling, batch %u, T(1,1,K) = %.4g s, owners: %s%s", p->scaling, p->options.batch,
             p->options.batch_seconds, p->owners,
             p->ratio > 0 ? ", ratio forced" : ", bytes as measured on a drawn gradient");
    const tool_svg_plot plot = {.title = title,
                                .subtitle = about,
                                .x_label = "GPUs",
                                .y_label = "samples per second",
                                .series = series,
                                .n_series = p->n_subjects};
    int status = tool_svg_plot_logarithmic(&plot, path);
    free(y);
    return status;
}

int tool_predict_report(const struct prediction *p, bool json)
{
    json_t *reading = compare_with_reading(p);
    int status = json ? print_json(p, reading) : print_text(p, reading);
    json_decref(reading);
    return status;
}
