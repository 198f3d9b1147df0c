/* Adds up the workers' records of each step, and writes metrics.jsonl, TensorBoard events and the summary. A resumed
 * run reads its sums back from the lines before. */
#include "codec/wire_choice.h"
#include "disk/metrics.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "disk/folder.h"
#include "disk/tensorboard.h"
#include "json_values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double wall_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

gw_status gw_metrics_open(struct gw_metrics *m, const char *out, bool overwrite)
{
    m->test_accuracy = -1;
    m->residual_norm = -1;
    if (!out)
        return GW_OK;
    GW_TRY(gw_folder_create(out));
    GW_TRY(gw_folder_lock(out, &m->lock));
    if (access(out, W_OK) != 0)
        return gw_fail(GW_ERR_SYSTEM, "the folder %s cannot be written to: %s", out, strerror(errno));
    return overwrite ? GW_OK : gw_folder_check(out, m->lock);
}

gw_status gw_metrics_begin(struct gw_metrics *m, const char *out)
{
    if (!out)
        return GW_OK;
    GW_TRY(gw_folder_clear(out, m->lock, false));
    GW_TRY(gw_file_open(out, GW_METRICS_FILE, false, &m->lines));
    GW_TRY(gw_file_open(out, GW_HISTOGRAMS_FILE, false, &m->histograms));
    GW_TRY(gw_file_open(out, GW_EVENTS_FILE, false, &m->events));
    gw_tensorboard_begin(m->events.stream, wall_time());
    return GW_OK;
}

/* JSON has no NaN and no infinity. */
static void put(FILE *file, const char *key, double value)
{
    if (isfinite(value))
        fprintf(file, ", \"%s\": %.17g", key, value);
    else
        fprintf(file, ", \"%s\": null", key);
}

/* The numbers of one step, for all workers together. */
struct totals {
    double loss, accuracy, step_seconds, compute_seconds, encode_seconds, wait_seconds, bound_gap;
    double test_accuracy; /* below 0: the test samples were not tried */
    double full_accuracy; /* below 0: there was no full pass */
    double full_loss, objective;
    double nonzero_share; /* below 0: nobody counted the frames */
    struct gw_codec_report report;
    uint64_t bytes_up, bytes_down, dense_bytes, messages, gradients;
    bool committed, fast;
};

static struct totals add_up(const struct gw_metrics *m, const struct gw_step_record *records)
{
    struct totals s = {.step_seconds = records[0].step_seconds,
                       .committed = records[0].result.committed,
                       .fast = records[0].result.wire == GW_WIRE_FAST};
    uint32_t workers = m->workers, correct = 0, test_correct = 0, full_correct = 0;
    for (uint32_t i = 0; i < workers; i++) {
        const struct gw_step_record *r = &records[i];
        s.committed = s.committed && r->result.committed;
        s.loss += r->loss;
        correct += r->correct;
        test_correct += r->test_correct;
        full_correct += r->full_correct;
        s.full_loss += r->full_loss;
        s.gradients += r->gradients;
        s.compute_seconds += r->compute_seconds / workers;
        s.encode_seconds += r->result.encode_seconds / workers;
        s.wait_seconds += r->result.wait_seconds / workers;
        s.bytes_up += r->result.bytes_up;
        s.bytes_down += r->result.bytes_down;
        s.messages += r->result.messages;
        s.dense_bytes += r->result.dense_bytes;
        s.bound_gap = fmax(s.bound_gap, r->result.bound_gap);
    }
    s.loss /= m->batch;
    s.accuracy = (double)correct / m->batch;
    s.test_accuracy = records[0].evaluated ? (double)test_correct / m->test_samples : -1;
    bool full = records[0].evaluated && m->convex;
    s.full_loss /= m->train_samples;
    s.full_accuracy = full ? (double)full_correct / m->train_samples : -1;
    s.objective = s.full_loss + records[0].l2_term;
    s.nonzero_share =
        records[0].accounted ? (double)records[0].result.nonzeros / (double)records[0].result.elements : -1;
    s.report = records[0].report;
    return s;
}

static void write_line(struct gw_metrics *m, uint64_t step, const struct totals *s, const struct gw_step_record *first)
{
    FILE *f = m->lines.stream;
    fprintf(f, "{\"step\": %llu, \"epoch\": %llu", (unsigned long long)step,
            (unsigned long long)(step / m->steps_per_epoch));
    put(f, "loss", s->loss);
    put(f, "accuracy", s->accuracy);
    put(f, "lr", first->lr);
    put(f, "step_ms", 1e3 * s->step_seconds);
    put(f, "compute_ms", 1e3 * s->compute_seconds);
    put(f, "encode_ms", 1e3 * s->encode_seconds);
    put(f, "wait_ms", 1e3 * s->wait_seconds);
    fprintf(f, ", \"bytes_up\": %llu, \"bytes_down\": %llu, \"dense_bytes\": %llu, \"messages\": %llu",
            (unsigned long long)s->bytes_up, (unsigned long long)s->bytes_down, (unsigned long long)s->dense_bytes,
            (unsigned long long)s->messages);
    put(f, "nonzero_share", s->nonzero_share >= 0 ? s->nonzero_share : NAN);
    put(f, "bound_gap", s->bound_gap);
    fprintf(f, ", \"committed\": %s", s->committed ? "true" : "false");
    fprintf(f, ", \"wire\": \"%s\"", gw_wire_name(first->result.wire));
    if (first->wire_compared) {
        fprintf(f, ", \"wire_stands\": \"%s\"", gw_wire_name(first->wire.stands));
        put(f, "wire_small_ms", 1e3 * first->wire.small_seconds);
        put(f, "wire_fast_ms", 1e3 * first->wire.fast_seconds);
    }
    put(f, "passes", (double)m->gradients / m->train_samples);
    if (s->report.variance_factor >= 0) {
        put(f, "variance_factor", s->report.variance_factor);
        put(f, "gradient_norm", s->report.gradient_norm);
    }
    if (s->report.residual_norm >= 0) {
        put(f, "residual_norm", s->report.residual_norm);
        put(f, "threshold_age", s->report.threshold_age);
    }
    if (s->test_accuracy >= 0)
        put(f, "test_accuracy", s->test_accuracy);
    if (s->full_accuracy >= 0) {
        put(f, "train_accuracy", s->full_accuracy);
        put(f, "train_loss", s->full_loss);
        put(f, "objective", s->objective);
    }
    fputs("}\n", f);
}

static void write_events(struct gw_metrics *m, uint64_t step, const struct totals *s,
                         const struct gw_step_record *first)
{
    FILE *f = m->events.stream;
    double now = wall_time();
    gw_tensorboard_scalar(f, now, step, "loss", (float)s->loss);
    gw_tensorboard_scalar(f, now, step, "lr", (float)first->lr);
    gw_tensorboard_scalar(f, now, step, "accuracy/train", (float)s->accuracy);
    gw_tensorboard_scalar(f, now, step, "bytes/up", (float)s->bytes_up);
    gw_tensorboard_scalar(f, now, step, "bytes/down", (float)s->bytes_down);
    if (s->test_accuracy >= 0)
        gw_tensorboard_scalar(f, now, step, "accuracy/test", (float)s->test_accuracy);
    if (s->full_accuracy >= 0)
        gw_tensorboard_scalar(f, now, step, "objective", (float)s->objective);
    if (s->nonzero_share >= 0)
        gw_tensorboard_scalar(f, now, step, "codec/nonzero_share", (float)s->nonzero_share);
    if (s->report.variance_factor >= 0)
        gw_tensorboard_scalar(f, now, step, "codec/variance_factor", (float)s->report.variance_factor);
    if (s->report.residual_norm >= 0) {
        gw_tensorboard_scalar(f, now, step, "codec/residual_norm", (float)s->report.residual_norm);
        gw_tensorboard_scalar(f, now, step, "codec/threshold_age", (float)s->report.threshold_age);
    }
}

void gw_metrics_take_histograms(struct gw_metrics *m, struct gw_histograms *histograms)
{
    struct gw_histograms **end = &m->pending;
    while (*end)
        end = &(*end)->next;
    *end = histograms;
}

static void drop_first_histograms(struct gw_metrics *m)
{
    struct gw_histograms *first = m->pending;
    m->pending = first->next;
    gw_free(NULL, first);
}

/* Writes the histograms of all steps up to this one. */
static void write_histograms(struct gw_metrics *m, uint64_t step)
{
    for (; m->pending && m->pending->step <= step; drop_first_histograms(m)) {
        const double now = wall_time();
        gw_histograms_write(m->histograms.stream, m->pending);
        for (uint32_t i = 0; i < m->pending->n; i++)
            for (int k = 0; k < GW_HISTOGRAM_KINDS; k++)
                gw_tensorboard_histogram(m->events.stream, now, m->pending->step, m->pending->rows[i].tensor,
                                         gw_histogram_names[k], &m->pending->rows[i].kinds[k]);
    }
}

static void count(struct gw_metrics *m, uint64_t step, const struct totals *s)
{
    m->n_missing += step > m->next ? step - m->next : 0; /* a worker that joins again may make a step twice */
    m->next = step + 1;
    m->n_steps++;
    m->bytes_up += s->bytes_up, m->bytes_down += s->bytes_down, m->dense_bytes += s->dense_bytes;
    m->gradients += s->gradients;
    m->step_seconds += s->step_seconds;
    m->fast_steps += s->fast;
    m->compute_seconds += s->compute_seconds, m->encode_seconds += s->encode_seconds,
        m->wait_seconds += s->wait_seconds;
    if (!s->committed)
        m->n_skipped++;
    else {
        /* At first this is the mean of all steps. Later it is about the mean of the last 50. */
        double take = fmax(0.02, 1.0 / (double)(m->n_steps - m->n_skipped));
        m->running_loss += take * (s->loss - m->running_loss);
        m->running_accuracy += take * (s->accuracy - m->running_accuracy);
        if (step >= m->window_begin) {
            m->window_loss += s->loss, m->window_accuracy += s->accuracy;
            m->window_steps++;
        }
    }
    if (s->test_accuracy >= 0)
        m->test_accuracy = s->test_accuracy;
    if (s->full_accuracy >= 0)
        m->full_loss = s->full_loss, m->full_accuracy = s->full_accuracy, m->objective = s->objective;
    if (s->nonzero_share >= 0)
        m->nonzero_shares += s->nonzero_share, m->n_nonzero_shares++;
    if (s->report.variance_factor >= 0) {
        const double squares = s->report.gradient_norm * s->report.gradient_norm;
        m->sent_squares += s->report.variance_factor * squares;
        m->gradient_squares += squares;
    }
    if (s->report.residual_norm >= 0)
        m->residual_norm = s->report.residual_norm, m->threshold_age = s->report.threshold_age;
}

gw_status gw_metrics_step(struct gw_metrics *m, uint64_t step, const struct gw_step_record *records)
{
    const struct gw_step_record *first = &records[0];
    struct totals s = add_up(m, records);
    count(m, step, &s);
    m->wire = first->wire;
    if (!m->lines.stream)
        return GW_OK;
    write_line(m, step, &s, first);
    write_events(m, step, &s, first);
    write_histograms(m, step);
    double now = gw_clock_seconds();
    if (now - m->last_flush > 1) { /* so that others can watch the run */
        fflush(m->lines.stream);
        fflush(m->events.stream);
        fflush(m->histograms.stream);
        m->last_flush = now;
    }
    GW_TRY(gw_file_check(&m->lines));
    GW_TRY(gw_file_check(&m->histograms));
    return gw_file_check(&m->events);
}

/* ---- going on ------------------------------------------------------------------------------- */

static bool read_real(const json_t *line, const char *key, double scale, double *value)
{
    const json_t *field = json_object_get(line, key);
    *value = json_is_number(field) ? json_number_value(field) / scale : NAN;
    return field != NULL;
}

static bool read_count(const json_t *line, const char *key, uint64_t *value)
{
    const json_t *field = json_object_get(line, key);
    *value = (uint64_t)json_integer_value(field);
    return json_is_integer(field) && json_integer_value(field) >= 0;
}

/* Reads a line that write_line wrote. False: the line is not whole. */
static bool read_line(const struct gw_metrics *m, const char *text, uint64_t *step, struct totals *s)
{
    double passes;
    *s = (struct totals){0};
    json_t *line = json_loads(text, 0, NULL);
    const json_t *committed = json_object_get(line, "committed");
    bool whole = read_count(line, "step", step) && read_real(line, "loss", 1, &s->loss) &&
                 read_real(line, "accuracy", 1, &s->accuracy) && read_real(line, "step_ms", 1e3, &s->step_seconds) &&
                 read_real(line, "compute_ms", 1e3, &s->compute_seconds) &&
                 read_real(line, "encode_ms", 1e3, &s->encode_seconds) &&
                 read_real(line, "wait_ms", 1e3, &s->wait_seconds) && read_count(line, "bytes_up", &s->bytes_up) &&
                 read_count(line, "bytes_down", &s->bytes_down) && read_count(line, "dense_bytes", &s->dense_bytes) &&
                 read_real(line, "passes", 1, &passes) && passes >= 0 && json_is_boolean(committed);
    s->committed = json_is_true(committed);
    const char *wire = json_string_value(json_object_get(line, "wire"));
    s->fast = wire && strcmp(wire, gw_wire_name(GW_WIRE_FAST)) == 0;
    /* What the line does not have is NAN, which is not 0 or more either. */
    read_real(line, "test_accuracy", 1, &s->test_accuracy);
    read_real(line, "nonzero_share", 1, &s->nonzero_share);
    if (!read_real(line, "train_accuracy", 1, &s->full_accuracy) || !read_real(line, "train_loss", 1, &s->full_loss) ||
        !read_real(line, "objective", 1, &s->objective))
        s->full_accuracy = NAN;
    if (!read_real(line, "variance_factor", 1, &s->report.variance_factor) ||
        !read_real(line, "gradient_norm", 1, &s->report.gradient_norm))
        s->report.variance_factor = -1;
    if (!read_real(line, "residual_norm", 1, &s->report.residual_norm) ||
        !read_real(line, "threshold_age", 1, &s->report.threshold_age))
        s->report.residual_norm = -1;
    /* A line has the passes of all steps up to its own. */
    s->gradients = whole ? (uint64_t)llround(passes * m->train_samples) - m->gradients : 0;
    json_decref(line);
    return whole;
}

/* Adds up the lines of steps before `first`; *end: where they end. */
static gw_status read_lines(struct gw_metrics *m, uint64_t first, long *end)
{
    char text[GW_FILE_LINE];
    uint64_t step;
    struct totals s;
    *end = 0;
    while (gw_file_line(m->lines.stream, text) && read_line(m, text, &step, &s) && step >= m->next && step < first) {
        count(m, step, &s);
        *end += (long)strlen(text);
    }
    return ferror(m->lines.stream) ? gw_fail(GW_ERR_SYSTEM, "%s cannot be read", m->lines.partial) : GW_OK;
}

gw_status gw_metrics_resume(struct gw_metrics *m, const char *out, uint64_t first)
{
    long end;
    uint64_t next;
    m->resumed = true;
    m->test_accuracy = -1;
    m->residual_norm = -1;
    GW_TRY(gw_file_open(out, GW_METRICS_FILE, true, &m->lines));
    GW_TRY(gw_file_open(out, GW_HISTOGRAMS_FILE, true, &m->histograms));
    GW_TRY(gw_file_open(out, GW_EVENTS_FILE, true, &m->events));
    GW_TRY(read_lines(m, first, &end));
    GW_TRY(gw_file_cut(&m->lines, end));
    end = gw_histograms_end_before(m->histograms.stream, first, &m->histograms_damaged);
    GW_TRY(gw_file_cut(&m->histograms, end));
    end = gw_tensorboard_end_before(m->events.stream, first, &next);
    m->events_missing = next < first ? first - next : 0;
    GW_TRY(gw_file_cut(&m->events, end));
    if (end == 0)
        gw_tensorboard_begin(m->events.stream, wall_time());
    m->n_missing += first - m->next;
    m->next = first;
    return GW_OK;
}

gw_status gw_metrics_sync(struct gw_metrics *m)
{
    GW_TRY(gw_file_sync(&m->lines));
    GW_TRY(gw_file_sync(&m->histograms));
    return gw_file_sync(&m->events);
}

/* ---- reports -------------------------------------------------------------------------------- */

void gw_metrics_progress(const struct gw_metrics *m, struct gw_train_progress *p)
{
    *p = (struct gw_train_progress){.step = m->next, .steps = m->steps, .loss = m->running_loss};
    p->accuracy_is_test = m->test_accuracy >= 0;
    p->accuracy = p->accuracy_is_test ? m->test_accuracy : m->running_accuracy;
    p->images_per_second = (double)m->n_steps * m->batch / m->step_seconds;
    p->seconds_left = m->step_seconds / (double)m->n_steps * (double)(m->steps - m->next);
    p->skipped_steps = m->n_skipped;
    p->times_smaller_up = m->bytes_up ? (double)m->dense_bytes / (double)m->bytes_up : 0;
    p->times_smaller_down = m->bytes_down ? (double)m->dense_bytes / (double)m->bytes_down : 0;
}

void gw_metrics_summary(const struct gw_metrics *m, struct gw_train_summary *s)
{
    double n = (double)m->n_steps, window = (double)m->window_steps;
    s->steps = m->next;
    s->missing_steps = m->n_missing;
    s->skipped_steps = m->n_skipped;
    s->train_loss = m->window_loss / window; /* NaN if every step of the window was dropped */
    s->train_accuracy = m->window_accuracy / window;
    s->test_accuracy = m->test_accuracy;
    s->passes = (double)m->gradients / m->train_samples;
    s->convex = m->convex;
    if (m->convex)
        s->train_loss = m->full_loss, s->train_accuracy = m->full_accuracy, s->objective = m->objective;
    s->bytes_up = m->bytes_up, s->bytes_down = m->bytes_down, s->dense_bytes = m->dense_bytes;
    s->nonzero_share = m->nonzero_shares / (double)m->n_nonzero_shares;
    s->variance_factor = m->gradient_squares > 0 ? m->sent_squares / m->gradient_squares : -1;
    s->residual_norm = m->residual_norm, s->threshold_age = m->threshold_age;
    s->wire = m->wire, s->fast_steps = m->fast_steps;
    s->images_per_second = n * m->batch / m->step_seconds;
    s->seconds = m->step_seconds;
    s->step_ms = 1e3 * m->step_seconds / n;
    s->compute_ms = 1e3 * m->compute_seconds / n;
    s->encode_ms = 1e3 * m->encode_seconds / n;
    s->wait_ms = 1e3 * m->wait_seconds / n;
}

gw_status gw_metrics_commit(struct gw_metrics *m)
{
    if (!m->lines.stream)
        return GW_OK;
    GW_TRY(gw_file_commit(&m->lines));
    GW_TRY(gw_file_commit(&m->histograms));
    return gw_file_commit(&m->events);
}

void gw_metrics_abandon(struct gw_metrics *m)
{
    bool keep = m->n_steps > 0 || m->resumed;
    gw_file_discard(&m->lines, keep);
    gw_file_discard(&m->histograms, keep);
    gw_file_discard(&m->events, keep);
    while (m->pending)
        drop_first_histograms(m);
    if (m->lock)
        closedir(m->lock);
    m->lock = NULL;
}

json_t *gw_train_summary_json(const struct gw_train_summary *s)
{
    json_t *o = json_pack(
        "{s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:b, s:s, s:o}",
        "net", s->net, "codec", gw_json_text(s->codec), "data", gw_json_text(s->data), "workers",
        (json_int_t)s->workers, "batch", (json_int_t)s->batch, "steps", (json_int_t)s->steps, "resumed_from",
        (json_int_t)s->resumed_from, "missing_steps", (json_int_t)s->missing_steps, "skipped_steps",
        (json_int_t)s->skipped_steps, "seed", (json_int_t)s->seed, "parameters", (json_int_t)s->parameters,
        "test_accuracy", gw_json_real(s->test_accuracy), "train_accuracy", gw_json_real(s->train_accuracy),
        "train_loss", gw_json_real(s->train_loss), "bytes_up", (json_int_t)s->bytes_up, "bytes_down",
        (json_int_t)s->bytes_down, "dense_bytes", (json_int_t)s->dense_bytes, "images_per_second",
        gw_json_real(s->images_per_second), "seconds", gw_json_real(s->seconds), "step_ms", gw_json_real(s->step_ms),
        "compute_ms", gw_json_real(s->compute_ms), "encode_ms", gw_json_real(s->encode_ms), "wait_ms",
        gw_json_real(s->wait_ms), "replicas_identical", s->replicas_identical, "parameter_hash", s->parameter_hash,
        "passes", gw_json_real(s->passes));
    int failed = 0;
    if (s->convex)
        failed =
            json_object_update_new(o, json_pack("{s:o, s:f}", "objective", gw_json_real(s->objective), "l2", s->l2));
    failed |= json_object_set_new(o, "nonzero_share", gw_json_real(s->nonzero_share));
    if (s->variance_factor >= 0)
        failed |= json_object_set_new(o, "variance_factor", json_real(s->variance_factor));
    if (s->residual_norm >= 0)
        failed |= json_object_update_new(o, json_pack("{s:o, s:I}", "residual_norm", gw_json_real(s->residual_norm),
                                                      "threshold_age", (json_int_t)s->threshold_age));
    const gw_wire_report *w = &s->wire;
    failed |= json_object_set_new(o, "wire",
                                  json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:I, s:I}", "asked", gw_wire_name(w->asked),
                                            "stands", gw_wire_name(w->stands), "why", s->wire_why, "small_ms",
                                            gw_json_real(w->small_seconds > 0 ? 1e3 * w->small_seconds : NAN),
                                            "fast_ms", gw_json_real(w->fast_seconds > 0 ? 1e3 * w->fast_seconds : NAN),
                                            "comparisons", (json_int_t)w->n_comparisons, "changes",
                                            (json_int_t)w->n_changes, "fast_steps", (json_int_t)s->fast_steps));
    failed |=
        json_object_set_new(o, "plan",
                            json_pack("{s:o, s:I, s:I, s:o, s:f}", "asked", gw_json_text(s->plan), "groups",
                                      (json_int_t)s->n_groups, "plans", (json_int_t)s->n_plans, "predicted_ms",
                                      gw_json_real(s->n_plans ? s->planned_ms : NAN), "seconds", s->planning_seconds));
    json_t *layers = json_array();
    for (uint32_t t = 0; t < s->n_tensors; t++) {
        const struct gw_train_tensor *x = &s->tensors[t];
        failed |= json_array_append_new(
            layers, json_pack("{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", x->name, "elements",
                              (json_int_t)x->elements, "nonzero_share", gw_json_real(x->nonzero_share), "push_bits",
                              gw_json_real(x->push_bits), "push_payload_bits", gw_json_real(x->push_payload_bits),
                              "push_entropy_bits", gw_json_real(x->push_entropy), "pull_bits",
                              gw_json_real(x->pull_bits), "pull_payload_bits", gw_json_real(x->pull_payload_bits),
                              "pull_entropy_bits", gw_json_real(x->pull_entropy)));
    }
    failed |= json_object_set_new(o, "layers", layers);
    if (failed) {
        json_decref(o);
        return NULL;
    }
    return o;
}
