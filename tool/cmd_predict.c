/* gradwire predict: tells how fast a cluster would train a network, with and without a codec, by TernGrad's model.
 *
 * The folder predict has the model (predict/model.h), the networks and the clusters. This command measures what a codec
 * makes of a drawn gradient, fills in what is assumed, and says all of it. */
#include "base/error.h"
#include "base/nearest.h"
#include "base/numbers.h"
#include "codec_cost.h"
#include "predict/predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_GPUS_BY_DEFAULT 512u /* TernGrad's figure 5 ends there */

__attribute__((format(printf, 2, 3))) static void assume(struct prediction *p, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    json_array_append_new(p->assumptions, json_vsprintf(format, arguments));
    va_end(arguments);
}

/* ---- what the command line says ------------------------------------------------------------------------ */

static int parse_counts(const char *list, struct prediction *p)
{
    for (const char *at = list;;) {
        uint64_t count;
        if (!gw_read_whole(&at, GW_MAX_GPUS, &count) || count < 1 || (*at != ',' && *at))
            return tool_wrong_use("--gpus is '%s', and must be whole numbers from 1 to %u with commas between, such as "
                                  "1,2,4,8",
                                  list, GW_MAX_GPUS);
        if (p->n_counts == MOST_COUNTS)
            return tool_wrong_use("--gpus has more than %d numbers", MOST_COUNTS);
        p->counts[p->n_counts++] = (uint32_t)count;
        if (!*at++)
            return TOOL_DONE;
    }
}

/* Takes powers of two up to a full machine, and then doubles the machines: 1, 2, 4, 8 with four GPUs a machine. */
static void choose_counts(struct prediction *p)
{
    const uint32_t each = p->options.cluster.gpus_per_machine;
    for (uint32_t n = 1; n < each; n *= 2)
        p->counts[p->n_counts++] = n;
    for (uint32_t n = each; n == each || n <= MOST_GPUS_BY_DEFAULT; n *= 2)
        p->counts[p->n_counts++] = n;
}

static int parse_owners(const char *text, gw_predict_options *options)
{
    static const char *const names[] = {"paper", "server", "servers:S", "ring", "sharded"};
    static const gw_owners owners[] = {GW_OWNERS_PAPER, GW_OWNERS_SERVERS, GW_OWNERS_SERVERS, GW_OWNERS_RING,
                                       GW_OWNERS_SHARDED};
    for (int i = 0; i < 5; i++)
        if (strcmp(text, names[i]) == 0 && i != 2) {
            options->owners = owners[i];
            options->servers = owners[i] == GW_OWNERS_SERVERS ? 1 : 0;
            return TOOL_DONE;
        }
    if (strncmp(text, "servers:", 8) == 0) {
        const tool_option number = {"--owners servers", "S", "", TOOL_U32, &options->servers, 1, GW_MAX_GPUS};
        options->owners = GW_OWNERS_SERVERS;
        return tool_set_option(&number, text + 8);
    }
    const char *nearest = gw_nearest(text, names, 5, NULL);
    return tool_wrong_use("--owners is '%s', and must be paper, server, servers:S, ring or sharded%s%s%s", text,
                          nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}

/* Takes the network, or the bytes that the user gives in place of a network. */
static int choose_gradient(struct prediction *p)
{
    struct gradient *g = &p->gradient;
    if (p->net && p->gradient_bytes)
        return tool_wrong_use("--net and --gradient-bytes are both given; one of them says what is averaged");
    if (!p->net && !p->gradient_bytes)
        return tool_wrong_use("--net is missing; or give --gradient-bytes, --batch and --batch-seconds");
    if (!p->net) {
        if (!p->options.batch || p->options.batch_seconds == 0)
            return tool_wrong_use("with --gradient-bytes, --batch and --batch-seconds are needed, too");
        g->n_elems = (double)p->gradient_bytes / sizeof(float);
        p->options.gradient_bytes = (double)p->gradient_bytes;
        return TOOL_DONE;
    }
    if (gw_network_find(p->net, &g->network) < 0)
        return tool_wrong_use("%s", gw_last_error());
    const gw_network_totals totals = gw_network_tensors(g->network, g->tensors);
    g->n_tensors = totals.n_tensors;
    g->n_elems = (double)totals.n_params;
    p->options.gradient_bytes = sizeof(float) * g->n_elems;
    return TOOL_DONE;
}

/* Takes K and T(1,1,K) as given, or computes them from the known speed of a GPU. */
static int choose_batch(struct prediction *p)
{
    gw_predict_options *o = &p->options;
    const double copy = o->gradient_bytes / o->cluster.cpu_bandwidth;
    const gw_gpu_speed *speed;
    if (!p->gpu)
        p->gpu = p->cluster ? p->cluster->gpu : "gtx1080";
    if (strcmp(p->gpu, "gtx1080") != 0 && strcmp(p->gpu, "p100") != 0)
        return tool_wrong_use("--gpu is '%s', and must be gtx1080 or p100", p->gpu);
    if (o->batch == 0 || o->batch_seconds == 0) {
        if (gw_gpu_speed_find(p->net, p->gpu, &speed) < 0)
            return tool_wrong_use("%s; or give --batch and --batch-seconds", gw_last_error());
        if (o->batch == 0)
            o->batch = speed->batch;
        if (o->batch_seconds == 0) {
            o->batch_seconds = o->batch / speed->images_per_second + copy;
            assume(p,
                   "T(1,1,K) is %.6g s for K = %u: a %s trains %.4g images a second (%s), and copies the gradient to "
                   "the processor in %.3g s",
                   o->batch_seconds, o->batch, speed->gpu, speed->images_per_second, speed->source, copy);
        }
    }
    return TOOL_DONE;
}

static int choose_extras(struct prediction *p)
{
    gw_predict_options *o = &p->options;
    if (strcmp(p->scaling, "strong") == 0)
        o->scaling = GW_SCALING_STRONG;
    else if (strcmp(p->scaling, "weak") != 0)
        return tool_wrong_use("--scaling is '%s', and must be strong or weak", p->scaling);
    p->paper = *o;
    p->paper.overlap = p->paper.straggler_cv = 0;
    return parse_owners(p->owners, o);
}

static void say_what_is_assumed(struct prediction *p)
{
    const gw_predict_options *o = &p->options;
    const gw_cluster *c = &o->cluster;
    assume(p,
           "a machine has %u GPUs; %.4g GB/s between GPUs, %.4g GB/s to the processor, %.4g Gbit/s between "
           "machines, and %.4g us a message",
           c->gpus_per_machine, 1e-9 * c->gpu_bandwidth, 1e-9 * c->cpu_bandwidth, 8e-9 * c->network_bandwidth,
           1e6 * c->network_latency_s);
    if (p->cluster)
        assume(p, "of %s: %s", p->cluster->name, p->cluster->assumed);
    if (o->scaling == GW_SCALING_STRONG)
        assume(p, "strong scaling: all GPUs together share a batch of %u samples", o->batch);
    else
        assume(p, "weak scaling: each GPU has a batch of %u samples", o->batch);
    static const char *const owners[] = {
        [GW_OWNERS_PAPER] = "machines average in log2(j) rounds, as in the paper's equation 27",
        [GW_OWNERS_RING] = "machines average in a ring; a part of a sum takes no more bytes than a part of a push",
        [GW_OWNERS_SHARDED] = "each machine owns an equal share of the gradient"};
    if (o->owners == GW_OWNERS_SERVERS)
        assume(p, "%u server%s beside the workers; what all machines send passes their links", o->servers,
               o->servers == 1 ? "" : "s");
    else
        assume(p, "%s", owners[o->owners]);
    if (o->overlap > 0)
        assume(p, "%g of backward, which is two thirds of computing, hides network and codec", o->overlap);
    if (o->straggler_cv > 0)
        assume(p,
               "the GPUs' computing times are lognormal and independent, with a deviation of %g times their mean; "
               "all wait for the slowest",
               o->straggler_cv);
}

/* ---- codecs -------------------------------------------------------------------------------------------- */

static gw_status split_elements(const struct gradient *g, struct subject *s)
{
    gw_tensor tensors[GW_MAX_NETWORK_TENSORS];
    if (!g->network) {
        const gw_tensor tensor = {.name = "gradient", .n_elems = (uint64_t)fmin(g->n_elems, (double)GW_MAX_ELEMENTS)};
        s->float_elems = gw_codec_leaves_float(s->codec, &tensor) ? g->n_elems : 0;
    }
    for (size_t t = 0; t < g->n_tensors; t++) {
        tensors[t] = (gw_tensor){.name = g->tensors[t].name,
                                 .id = (uint32_t)t,
                                 .n_elems = g->tensors[t].n_elems,
                                 .last_layer = g->tensors[t].last_layer};
        s->float_elems += gw_codec_leaves_float(s->codec, &tensors[t]) ? (double)tensors[t].n_elems : 0;
    }
    s->coded_elems = g->n_elems - s->float_elems;
    return g->network ? gw_codec_check_skip(s->codec, tensors, (uint32_t)g->n_tensors) : GW_OK;
}

/* Measures the bytes for every number of machines. The same number of machines is measured once. */
static gw_status count_bytes(const struct prediction *p, struct subject *s)
{
    for (size_t i = 0; i < p->n_counts; i++) {
        size_t same = 0;
        const uint32_t machines = s->rows[i].machines;
        while (s->rows[same].machines != machines)
            same++;
        double up = 32, down = 32; /* bits of an element */
        if (p->ratio > 0)
            up = down = 32 / p->ratio;
        else if (same == i && machines > 1)
            GW_TRY(tool_codec_bits(p->context, s->codec, machines, &up, &down));
        s->costs[i] = same < i ? s->costs[same]
                               : (gw_predict_codec){.bytes_up = 4 * s->float_elems + up / 8 * s->coded_elems,
                                                    .bytes_down = 4 * s->float_elems + down / 8 * s->coded_elems,
                                                    .seconds = s->seconds};
    }
    return GW_OK;
}

/* Takes the nanoseconds for an element, as --codec-time says. */
static int choose_codec_time(struct prediction *p, struct subject *s)
{
    double ns;
    if (strcmp(p->codec_time, "none") == 0)
        return TOOL_DONE;
    if (strcmp(p->codec_time, "here") == 0) {
        double seconds;
        TOOL_TRY(tool_exit_status(tool_codec_seconds(p->context, s->codec, &seconds), s->spec));
        ns = 1e9 * seconds;
        assume(p,
               "%s: to encode a gradient and decode an average takes %.3g ns an element, as measured on this machine "
               "with %u threads",
               s->spec, ns, p->n_threads);
    } else {
        if (!gw_parse_decimal(p->codec_time, &ns) || ns < 0)
            return tool_wrong_use("--codec-time is '%s', and must be here, none, or nanoseconds an element: 0 or more",
                                  p->codec_time);
        assume(p, "%s: to encode a gradient and decode an average takes %.3g ns an element, as given", s->spec, ns);
    }
    s->seconds = 1e-9 * ns * s->coded_elems;
    return TOOL_DONE;
}

static int measure_codec(struct prediction *p, struct subject *s)
{
    TOOL_TRY(tool_exit_status(gw_codec_parse(p->context, s->spec, &s->codec), NULL));
    TOOL_TRY(tool_exit_status(split_elements(&p->gradient, s), NULL));
    TOOL_TRY(choose_codec_time(p, s));
    TOOL_TRY(tool_exit_status(count_bytes(p, s), s->spec));
    if (p->ratio > 0)
        assume(p, "%s: 1/%g of the bytes of float32, up and down, as given", s->spec, p->ratio);
    else
        assume(p,
               "%s: bits an element as measured on a drawn gradient (Gaussian, one element in a thousand 50 times "
               "larger), another for each machine",
               s->spec);
    for (size_t i = 0; i < p->n_counts && p->ratio == 0; i++)
        if (s->rows[i].machines > TOOL_MOST_PUSHES) {
            assume(p, "%s: averages of more than %u machines count as those of %u", s->spec, TOOL_MOST_PUSHES,
                   TOOL_MOST_PUSHES);
            break;
        }
    if (s->float_elems > 0)
        assume(p, "%s leaves %.0f of %.0f elements in float32", s->spec, s->float_elems, p->gradient.n_elems);
    if (strcmp(p->codec_time, "none") == 0)
        assume(p, "%s: its time is left out", s->spec);
    return TOOL_DONE;
}

/* ---- predictions --------------------------------------------------------------------------------------- */

static int predict_all(struct prediction *p, struct subject *s)
{
    for (size_t i = 0; i < p->n_counts; i++) {
        const gw_predict_codec *codec = s->codec ? &s->costs[i] : NULL;
        if (gw_predict(&p->options, codec, p->counts[i], &s->rows[i]) < 0 ||
            gw_predict(&p->paper, codec, p->counts[i], &s->paper[i]) < 0)
            return tool_wrong_use("%s", gw_last_error());
    }
    return TOOL_DONE;
}

static int work(struct prediction *p)
{
    const struct subject *none = &p->subjects[0];
    p->subjects[0].spec = "none";
    p->n_subjects = 1;
    TOOL_TRY(predict_all(p, &p->subjects[0])); /* this refuses bad numbers before anything is measured */
    for (size_t k = 0; k < p->specs.n; k++) {
        struct subject *s = &p->subjects[p->n_subjects];
        if (strcmp(p->specs.items[k], "none") == 0)
            continue;
        p->n_subjects++;
        s->spec = p->specs.items[k];
        memcpy(s->rows, none->rows, sizeof s->rows); /* copies the numbers of machines */
        TOOL_TRY(measure_codec(p, s));
        TOOL_TRY(predict_all(p, s));
    }
    return TOOL_DONE;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static int begin(struct prediction *p, const char *counts)
{
    const long n_online = sysconf(_SC_NPROCESSORS_ONLN);
    p->n_threads = n_online < 1 ? 1 : n_online > 256 ? 256 : (uint32_t)n_online;
    const gw_context_options options = {.struct_bytes = sizeof options, .n_threads = p->n_threads};
    p->assumptions = json_array();
    p->subjects = calloc(p->specs.n + 1, sizeof *p->subjects);
    gw_status made = gw_context_create(&options, &p->context);
    if (!p->assumptions || !p->subjects || made < 0)
        return made < 0 ? tool_exit_status(made, NULL) : tool_fail("out of memory");
    TOOL_TRY(tool_read_cluster(p->cluster_name, &p->options.cluster, &p->cluster));
    TOOL_TRY(choose_gradient(p));
    TOOL_TRY(choose_batch(p));
    TOOL_TRY(choose_extras(p));
    if (counts)
        return parse_counts(counts, p);
    choose_counts(p);
    return TOOL_DONE;
}

static int run(struct prediction *p, const char *counts, const char *chart, bool json)
{
    int status = begin(p, counts);
    if (status == TOOL_DONE)
        say_what_is_assumed(p);
    if (status == TOOL_DONE)
        status = work(p);
    if (status == TOOL_DONE && chart)
        status = tool_predict_draw(p, chart);
    if (status == TOOL_DONE)
        status = tool_predict_report(p, json);
    for (size_t k = 0; k < p->n_subjects; k++)
        gw_codec_destroy(p->subjects[k].codec);
    free(p->subjects);
    json_decref(p->assumptions);
    gw_context_destroy(p->context);
    return status;
}

int gw_cmd_predict(int argc, char **argv)
{
    static struct prediction p = {.scaling = "weak", .owners = "paper"};
    const char *counts = NULL, *chart = NULL;
    bool json = false;
    char nets[1024] = "the network, in millions of elements: ";
    gw_network_describe_all(nets, sizeof nets);
    const tool_option options[] = {
        {"--net", "NET", nets, TOOL_TEXT, &p.net},
        {"--cluster", "NAME|FILE",
         "eth-1g-gtx1080 or ib-100g-p100, or a JSON file with gpus_per_machine, gpu_bandwidth, cpu_bandwidth, "
         "network_latency_s and network_bandwidth (bytes a second, seconds)",
         TOOL_TEXT, &p.cluster_name},
        {"--gpus", "LIST", "numbers of GPUs (default 1,2,4,...,512)", TOOL_TEXT, &counts},
        {"--codec", "SPEC", "predict this codec beside none; may be given several times (default ternary)", TOOL_TEXTS,
         &p.specs},
        {"--ratio", "R", "do not measure the codec's bytes: a float has R times as many (16 for TernGrad's 2-bit code)",
         TOOL_DOUBLE, &p.ratio},
        {"--codec-time", "here|none|NS",
         "the codec's time, encode and decode together: measured on this machine (default), left out (default with "
         "--ratio), or so many nanoseconds an element",
         TOOL_TEXT, &p.codec_time},
        {"--scaling", "strong|weak", "the batch is of all GPUs together, or of each (default weak)", TOOL_TEXT,
         &p.scaling},
        {"--gpu", "gtx1080|p100", "whose speed is assumed (default the cluster's; gtx1080 for a file)", TOOL_TEXT,
         &p.gpu},
        {"--gradient-bytes", "B", "in place of a network: bytes of the gradient in float32", TOOL_U64,
         &p.gradient_bytes, 1, 1ull << 50},
        {"--batch", "K", "samples of a step (default TernGrad's: 128 alexnet, 64 googlenet, 32 vgg-a)", TOOL_U32,
         &p.options.batch, 1, 1u << 30},
        {"--batch-seconds", "T",
         "T(1,1,K): seconds of such a step on one GPU, with the copy of the gradient to the "
         "processor (default from published speeds)",
         TOOL_DOUBLE, &p.options.batch_seconds},
        {"--owners", "OWNERS",
         "how machines average: paper (default), server or servers:S (all bytes pass their links), ring, or sharded "
         "(each machine owns a share)",
         TOOL_TEXT, &p.owners},
        {"--overlap", "X", "the share of backward that hides network and codec, 0 to 1 (default 0)", TOOL_DOUBLE,
         &p.options.overlap},
        {"--stragglers", "CV", "the spread of computing times, deviation by mean; all wait for the slowest (default 0)",
         TOOL_DOUBLE, &p.options.straggler_cv},
        {"-o", "CHART.svg", "draw throughput over GPUs, as TernGrad's figure 5", TOOL_OUTPUT, &chart},
        {"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json},
    };
    bool given[sizeof options / sizeof *options] = {false};
    const tool_usage usage = {
        .synopsis = "predict --net NET --cluster NAME|FILE [--gpus LIST] [--codec SPEC]... [options]",
        .about = "Predicts how long a training step takes on a cluster, with and without a codec, by TernGrad's "
                 "performance model (equations 27 to 30). Everything that is assumed is printed. docs/plan.md "
                 "explains the model, with an example by hand.",
        .example = "gradwire predict --net alexnet --cluster eth-1g-gtx1080 --gpus 8,512 --ratio 16",
        TOOL_OPTIONS(options),
        .given = given,
        .args = "predict takes no files but --cluster's",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!p.cluster_name)
        return tool_wrong_use("--cluster is missing; there are eth-1g-gtx1080 and ib-100g-p100, or name a file");
    if (tool_given(&usage, "--ratio") && p.ratio <= 0)
        return tool_wrong_use("--ratio is %g, and must be above 0", p.ratio);
    if (tool_given(&usage, "--batch-seconds") && p.options.batch_seconds <= 0)
        return tool_wrong_use("--batch-seconds is %g, and must be above 0", p.options.batch_seconds);
    if (!p.codec_time)
        p.codec_time = p.ratio > 0 ? "none" : "here";
    if (p.specs.n == 0)
        p.specs.items[p.specs.n++] = "ternary";
    TOOL_TRY(tool_check_apart("-o", chart, "--cluster", p.cluster_name));
    return run(&p, counts, chart, json);
}
