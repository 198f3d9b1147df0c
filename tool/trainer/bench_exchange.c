/* gradwire bench exchange: measures how long all members together take to average one step's gradients, over any
 * link.
 *
 * Each rank's gradient is drawn (probe/gradient.h), another part of the sequence for each, or read from files that a
 * training run saved. A drawn one is turned round by some places in each run, so that no residual grows one way; what a
 * codec keeps begins as it is after many steps. A run: all members wait for each other; then each member hands over
 * every tensor, the last layer first, as backward would, and waits for the averages. Its time is that of the slowest
 * member; the first runs warm up and do not count.
 *
 * With a profile a run is a whole step. Forward and backward are sleeps of the profile's length, and each tensor is
 * handed over when its sleep ends; codec and exchange are real. All plans and codecs are measured by turns, so that
 * what else happens on the machine meets all of them; before each step goes one that does not count. After it follows
 * one in which all tensors are handed over at the end of backward: the difference is what backward hid. */
#include "base/cpu.h"
#include "codec/wire_choice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "probe/gradient.h"
#include "probe/probe.h"
#include "bench_replay.h"
#include "bench_team.h"
#include "members_options.h"
#include "plan_chart.h"
#include "disk/checkpoint.h"
#include "tool.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { WARM_UP = 2, WARM_UP_MOST = 60 /* with --wire auto, until it has compared */ };

/* The tensors are those of a built-in network, of a trained one, or of a profile. */
#define MOST_TENSORS GW_PLAN_MAX_LAYERS
_Static_assert(MOST_TENSORS >= GW_MAX_TENSORS && MOST_TENSORS >= GW_MAX_NETWORK_TENSORS, "all have room");

/* What is measured and shown in one line: a codec, and with a profile one of the plans. */
struct row {
    size_t spec;
    struct bench_plan *plan; /* NULL: each tensor is a group */
};

struct bench {
    struct bench_team team; /* a link for each row */
    uint32_t runs;
    tool_texts specs;
    const char *net, *saved, *profile_path, *chart;
    tool_profile profile; /* root NULL: there is none */
    tool_texts plans;
    struct row rows[TOOL_MAX_TEXTS];
    size_t n_rows;
    gw_wire wire;
    uint64_t n_elems;                /* elements of the one tensor, if no net is named */
    gw_tensor tensors[MOST_TENSORS]; /* their names are those of the network, of the profile or of saved_names */
    char saved_names[MOST_TENSORS][sizeof((struct gw_param *)0)->name];
    uint64_t offsets[MOST_TENSORS]; /* each tensor begins at a multiple of 64 bytes, as in the trainer and in PyTorch */
    uint32_t n_tensors;
    uint64_t total, stored; /* total: elements; stored: elements with the gaps between tensors */
    gw_codec *codecs[TOOL_MAX_TEXTS];
    json_t *results; /* rank 0 has them */
};

struct member {
    struct bench_member *self;
    struct bench *bench;
    float *gradient, *work; /* gradient: as drawn; work: the exchange gets this */
};

/* A profile does not say what parameter servers take. */
static bool has_servers(const struct bench *b)
{
    return b->team.members.servers.servers != NULL;
}

/* ---- a member ------------------------------------------------------------------------------------------ */

/* How a run hands its tensors over. */
enum pace { AT_ONCE, AS_BACKWARD, AFTER_BACKWARD };

static gw_status hand_over(struct member *m, gw_exchange *exchange, enum pace pace, double begin)
{
    const struct bench *b = m->bench;
    const gw_profile *profile = &b->profile.profile;
    double due = begin + 1e-3 * profile->forward_ms;
    if (pace == AFTER_BACKWARD)
        bench_sleep_until(begin + 1e-3 * bench_compute_ms(profile));
    for (uint32_t t = b->n_tensors; t-- > 0;) {
        if (pace == AS_BACKWARD)
            bench_sleep_until(due += 1e-3 * profile->layers[t].backward_ms);
        GW_TRY(gw_exchange_submit(exchange, t, m->work + b->offsets[t]));
    }
    return GW_OK;
}

static gw_status one_run(struct member *m, gw_exchange *exchange, enum pace pace, uint32_t step,
                         struct gw_report *report)
{
    struct bench *b = m->bench;
    gw_step_result result;
    gw_wire_report wire;
    /* A saved gradient has its large elements where they are, so it is not turned. */
    for (uint32_t t = 0; t < b->n_tensors; t++)
        gw_turn_gradient(m->work + b->offsets[t], m->gradient + b->offsets[t], b->tensors[t].n_elems,
                         b->saved ? 0 : step);
    GW_TRY(gw_meet(&m->self->meeting, NULL, NULL));
    const double begin = gw_clock_seconds();
    GW_TRY(gw_exchange_begin(exchange, step));
    GW_TRY(hand_over(m, exchange, pace, begin));
    GW_TRY(gw_exchange_wait(exchange, &result));
    const double end = gw_clock_seconds();
    GW_TRY(gw_exchange_stats(exchange, &(gw_stats){.wire = &wire}));
    struct gw_report own = {.seconds = end - begin,
                            .settled = !wire.compares || wire.n_comparisons > 0,
                            .encode_seconds = result.encode_seconds,
                            .bytes_up = result.bytes_up,
                            .bytes_down = result.bytes_down,
                            .messages = result.messages,
                            .hash = XXH3_64bits(m->work, b->stored * sizeof *m->work)};
    return gw_meet(&m->self->meeting, &own, report);
}

/* What was measured of a row so far, on rank 0. The others keep it, too. */
struct times {
    double *seconds, *encode, *after; /* of each run; after: with tensors that are handed over after backward */
    struct gw_report last;
    uint32_t warm_up;
};

static void note_replay(const struct bench *b, const struct bench_plan *plan, const struct times *times, json_t *row)
{
    const double compute = 1e-3 * bench_compute_ms(&b->profile.profile);
    const double after = gw_median(times->after, b->runs), seconds = gw_median(times->seconds, b->runs);
    const double hidden = bench_hidden_share(plan, compute, after, seconds);
    json_object_update_new(row, json_pack("{s:o, s:i, s:f, s:f, s:f, s:o, s:o}", "plan", gw_json_text(plan->name),
                                          "groups", (int)plan->n_groups, "compute_seconds", compute, "after_seconds",
                                          after, "hidden_seconds", after - seconds, "hidden_share",
                                          gw_json_real(hidden), "predicted_seconds",
                                          gw_json_real(has_servers(b) ? NAN : 1e-3 * plan->predicted_ms)));
}

static void note_result(struct bench *b, const struct row *of, struct times *times, const gw_wire_report *wire)
{
    char hash[17];
    const struct gw_report *last = &times->last;
    double least = times->seconds[0], most = times->seconds[0];
    for (uint32_t i = 1; i < b->runs; i++) {
        least = times->seconds[i] < least ? times->seconds[i] : least;
        most = times->seconds[i] > most ? times->seconds[i] : most;
    }
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)last->hash);
    json_t *row =
        json_pack("{s:s, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:s, s:b}", "codec", b->specs.items[of->spec],
                  "seconds", gw_median(times->seconds, b->runs), "seconds_min", least, "seconds_max", most,
                  "codec_seconds", gw_median(times->encode, b->runs), "bytes_up", (json_int_t)last->bytes_up,
                  "bytes_down", (json_int_t)last->bytes_down, "messages", (json_int_t)last->messages, "dense_bytes",
                  (json_int_t)(4 * b->total * (b->team.members.size - 1)), "average_hash", hash, "averages_identical",
                  last->hash != 0);
    json_object_update_new(row,
                           json_pack("{s:s, s:b, s:s, s:f, s:f, s:I}", "wire", gw_wire_name(b->wire), "wire_has_choice",
                                     wire->has_choice, "wire_stands", gw_wire_name(wire->stands), "wire_small_seconds",
                                     wire->small_seconds, "wire_fast_seconds", wire->fast_seconds, "warm_up",
                                     (json_int_t)times->warm_up));
    if (of->plan)
        note_replay(b, of->plan, times, row);
    json_array_append_new(b->results, row);
}

static gw_status warm_up(struct member *m, gw_exchange *exchange, enum pace pace, struct times *times)
{
    for (bool warm = false; !warm; times->warm_up++) {
        /* The runs that count use the same step numbers, so they give the same averages. */
        uint32_t step = times->warm_up < WARM_UP ? times->warm_up : 3 * m->bench->runs + times->warm_up;
        GW_TRY(one_run(m, exchange, pace, step, &times->last));
        warm = times->warm_up + 1 >= WARM_UP_MOST || (times->warm_up + 1 >= WARM_UP && times->last.settled);
    }
    return GW_OK;
}

static gw_status timed_run(struct member *m, gw_exchange *exchange, const struct row *row, uint32_t nth,
                           struct times *times)
{
    const struct bench *b = m->bench;
    struct gw_report after;
    if (m->self->rank == 0)
        tool_progress("%zu of %zu: %s%s%s, run %u of %u", (size_t)(row - b->rows) + 1, b->n_rows,
                      b->specs.items[row->spec], row->plan ? ", plan " : "", row->plan ? row->plan->name : "", nth + 1,
                      b->runs);
    /* While other rows had their turns, connections went back to a slow start, and caches filled with other data. In
     * training, one step follows the other. So a run that does not count goes first. */
    if (row->plan && b->n_rows > 1)
        GW_TRY(one_run(m, exchange, AS_BACKWARD, WARM_UP + 2 * b->runs + nth, NULL));
    GW_TRY(one_run(m, exchange, row->plan ? AS_BACKWARD : AT_ONCE, WARM_UP + nth, &times->last));
    times->seconds[nth] = times->last.seconds;
    times->encode[nth] = times->last.encode_seconds;
    if (!row->plan)
        return GW_OK;
    if (m->self->rank == 0)
        GW_TRY(bench_plan_note(&m->bench->profile.profile, row->plan, exchange, 1e3 * times->last.seconds));
    GW_TRY(one_run(m, exchange, AFTER_BACKWARD, WARM_UP + b->runs + nth, &after));
    times->after[nth] = after.seconds;
    return GW_OK;
}

static gw_status measure(struct member *m, const struct row *rows, size_t n)
{
    struct bench *b = m->bench;
    gw_exchange *exchanges[TOOL_MAX_TEXTS] = {NULL};
    struct times times[TOOL_MAX_TEXTS] = {{NULL, NULL, NULL, {0}, 0}};
    double *numbers = calloc(3 * n * b->runs, sizeof *numbers);
    gw_status status = numbers ? GW_OK : GW_ERR_MEMORY;
    for (size_t i = 0; i < n && status >= 0; i++) {
        const gw_exchange_options options = {.struct_bytes = sizeof options,
                                             .codec = b->codecs[rows[i].spec],
                                             .tensors = b->tensors,
                                             .n_tensors = b->n_tensors,
                                             .group_of = rows[i].plan ? rows[i].plan->group_of : NULL,
                                             .link = bench_link(&b->team, (size_t)(rows - b->rows) + i, m->self->index),
                                             .servers = b->team.members.clients
                                                            ? b->team.members.clients[m->self->index]
                                                            : NULL,
                                             .seed = 1,
                                             .timeout_ms = b->team.timeout_ms,
                                             .wire = b->wire};
        times[i].seconds = numbers + 3 * i * b->runs;
        times[i].encode = times[i].seconds + b->runs;
        times[i].after = times[i].encode + b->runs;
        status = gw_exchange_create(b->team.context, &options, &exchanges[i]);
        if (status >= 0) {
            gw_exchange_run_in(exchanges[i], m->gradient, b->offsets);
            status = warm_up(m, exchanges[i], rows[i].plan ? AS_BACKWARD : AT_ONCE, &times[i]);
        }
    }
    for (uint32_t run = 0; run < b->runs; run++)
        for (size_t i = 0; i < n && status >= 0; i++)
            status = timed_run(m, exchanges[i], &rows[i], run, &times[i]);
    for (size_t i = 0; i < n && status >= 0 && m->self->rank == 0; i++) {
        gw_wire_report wire;
        status = gw_exchange_stats(exchanges[i], &(gw_stats){.wire = &wire});
        if (status >= 0)
            note_result(b, &rows[i], &times[i], &wire);
    }
    for (size_t i = 0; i < n; i++)
        gw_exchange_destroy(exchanges[i]);
    free(numbers);
    return status;
}

/* Reads the gradient that a training run saved of a rank. */
static gw_status read_saved(const struct bench *b, uint32_t rank, struct gw_checkpoint *out)
{
    char path[4200];
    snprintf(path, sizeof path, "%s.rank-%u.gwp", b->saved, rank);
    return gw_checkpoint_read(path, out);
}

static gw_status get_gradient(struct member *m)
{
    struct bench *b = m->bench;
    m->gradient = gw_calloc(NULL, b->stored, sizeof *m->gradient);
    m->work = gw_calloc(NULL, b->stored, sizeof *m->work);
    if (!m->gradient || !m->work)
        return GW_ERR_MEMORY;
    uint64_t drawn = m->self->rank * b->total;
    for (uint32_t t = 0; t < b->n_tensors && !b->saved; drawn += b->tensors[t++].n_elems)
        gw_draw_gradient(m->gradient + b->offsets[t], drawn, b->tensors[t].n_elems);
    if (!b->saved)
        return GW_OK;
    struct gw_checkpoint c;
    gw_status status = read_saved(b, m->self->rank, &c);
    bool same = status >= 0 && c.network.n_tensors == b->n_tensors;
    for (uint32_t t = 0; same && t < b->n_tensors; t++)
        same = c.network.tensors[t].n_elems == b->tensors[t].n_elems;
    if (status >= 0 && !same)
        status = gw_fail(GW_ERR_SYSTEM, "%s.rank-%u.gwp holds the gradient of another network than rank 0's", b->saved,
                         m->self->rank);
    for (uint32_t t = 0; status >= 0 && t < b->n_tensors; t++)
        memcpy(m->gradient + b->offsets[t], c.arrays[GW_PARAMS] + c.network.tensors[t].offset,
               b->tensors[t].n_elems * sizeof(float));
    gw_checkpoint_free(&c);
    return status;
}

__attribute__((format(printf, 2, 3))) static void add_setting(uint64_t *settings, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    *settings = XXH3_64bits_withSeed(text, strlen(text) + 1, *settings);
}

/* What must be the same on all members, as one number. */
static uint64_t settings_of(const struct bench *b)
{
    uint64_t settings = 0;
    add_setting(&settings, "%u runs, %u tensors, forward %.17g ms", b->runs, b->n_tensors,
                b->profile.profile.forward_ms);
    for (uint32_t l = 0; l < b->profile.profile.n_layers; l++)
        add_setting(&settings, "%llu elements, %.17g ms", (unsigned long long)b->profile.layers[l].n_elems,
                    b->profile.layers[l].backward_ms);
    for (size_t i = 0; i < b->n_rows; i++)
        add_setting(&settings, "%u groups: %s", b->rows[i].plan ? b->rows[i].plan->n_groups : 0,
                    b->specs.items[b->rows[i].spec]);
    return settings;
}

/* Meets, and fails if the settings of another member differ from rank 0's. */
static gw_status agree(struct bench_member *m, uint64_t settings)
{
    const struct gw_report own = {.hash = settings | 1}; /* 0 means that members differ */
    struct gw_report sum;
    GW_TRY(gw_meet(&m->meeting, &own, &sum));
    return sum.hash ? GW_OK
                    : gw_fail(GW_ERR_ARGUMENT, "the members were not all started with the same options and files; give "
                                               "every rank the same command line");
}

static gw_status member_work(struct bench_member *self)
{
    struct bench *b = self->user;
    struct member m = {.self = self, .bench = b};
    gw_status status = agree(self, settings_of(b));
    if (status >= 0)
        status = get_gradient(&m);
    /* Rows are measured in turn only with a profile, because exchanges of large networks hold much memory. */
    const size_t together = b->profile.root ? b->n_rows : 1;
    for (size_t k = 0; k < b->n_rows && status >= 0; k += together)
        status = measure(&m, &b->rows[k], together);
    gw_free(NULL, m.gradient);
    gw_free(NULL, m.work);
    return status;
}

/* ---- the command --------------------------------------------------------------------------------------- */

static gw_status saved_shape(struct bench *b)
{
    struct gw_checkpoint c;
    GW_TRY(read_saved(b, b->team.members.first, &c));
    for (uint32_t t = 0; t < c.network.n_tensors; t++) {
        memcpy(b->saved_names[t], c.network.tensors[t].name, sizeof b->saved_names[t]);
        b->tensors[b->n_tensors++] = (gw_tensor){.name = b->saved_names[t], .n_elems = c.network.tensors[t].n_elems};
    }
    gw_checkpoint_free(&c);
    return GW_OK;
}

static void network_shape(struct bench *b, const gw_network_info *network)
{
    static gw_network_tensor tensors[GW_MAX_NETWORK_TENSORS];
    const uint32_t n = gw_network_tensors(network, tensors).n_tensors;
    for (uint32_t t = 0; t < n; t++)
        b->tensors[b->n_tensors++] = (gw_tensor){.name = tensors[t].name, .n_elems = tensors[t].n_elems};
}

static gw_status choose_shape(struct bench *b)
{
    const gw_network_info *network = NULL;
    if (b->net)
        GW_TRY(gw_network_find(b->net, &network));
    if (b->profile.root)
        while (b->n_tensors < b->profile.profile.n_layers) {
            const gw_profile_layer *layer = &b->profile.layers[b->n_tensors];
            b->tensors[b->n_tensors++] = (gw_tensor){.name = layer->name, .n_elems = layer->n_elems};
        }
    else if (b->saved)
        GW_TRY(saved_shape(b));
    else if (network)
        network_shape(b, network);
    else
        b->tensors[b->n_tensors++].n_elems = b->n_elems;
    for (uint32_t t = 0; t < b->n_tensors; t++) {
        b->tensors[t].id = t;
        b->tensors[t].last_layer = t + 2 >= b->n_tensors;
        b->offsets[t] = b->stored;
        b->stored += (b->tensors[t].n_elems + 15) / 16 * 16;
        b->total += b->tensors[t].n_elems;
    }
    return GW_OK;
}

static double real_of(const json_t *row, const char *name)
{
    return json_real_value(json_object_get(row, name));
}

static void print_row(const json_t *row, double plain)
{
    char times[32] = "";
    const double seconds = real_of(row, "seconds");
    if (plain > 0)
        snprintf(times, sizeof times, "%.2f", plain / seconds);
    const bool choice = json_is_true(json_object_get(row, "wire_has_choice"));
    tool_note("%-28s %-6s %10.2f %10.2f %10.2f %12.3f %12.3f %9lld %7s",
              json_string_value(json_object_get(row, "codec")),
              choice ? json_string_value(json_object_get(row, "wire_stands")) : "", 1e3 * seconds,
              1e3 * real_of(row, "seconds_min"), 1e3 * real_of(row, "codec_seconds"),
              1e-6 * (double)json_integer_value(json_object_get(row, "bytes_up")),
              1e-6 * (double)json_integer_value(json_object_get(row, "bytes_down")),
              (long long)json_integer_value(json_object_get(row, "messages")), times);
}

static void print_replayed_row(const json_t *row)
{
    char predicted[32] = "", hidden[32] = "";
    const json_t *ms = json_object_get(row, "predicted_seconds"), *share = json_object_get(row, "hidden_share");
    const double seconds = real_of(row, "seconds");
    if (json_is_real(ms))
        snprintf(predicted, sizeof predicted, "%.2f %+6.1f%%", 1e3 * json_real_value(ms),
                 100 * (json_real_value(ms) / seconds - 1));
    if (json_is_real(share))
        snprintf(hidden, sizeof hidden, "%.0f%%", 100 * json_real_value(share));
    tool_note("%-28s %-12s %6lld %10.2f %10.2f %18s %10.2f %7s", json_string_value(json_object_get(row, "codec")),
              json_string_value(json_object_get(row, "plan")),
              (long long)json_integer_value(json_object_get(row, "groups")), 1e3 * seconds,
              1e3 * real_of(row, "seconds_min"), predicted, 1e3 * real_of(row, "after_seconds"), hidden);
}

static void print_table(const struct bench *b)
{
    size_t i;
    json_t *row;
    double plain = 0;
    tool_note("%u members, link %s, %u tensors, %.3g M elements, medians of %u", b->team.members.size,
              has_servers(b) ? "to parameter servers" : b->team.members.scheme->name, b->n_tensors,
              1e-6 * (double)b->total, b->runs);
    if (b->profile.root) {
        tool_note(
            "steps with forward and backward, %.2f ms as sleeps; \"after\": nothing is sent before backward ends; "
            "\"hidden\": of what backward could hide of the exchange",
            bench_compute_ms(&b->profile.profile));
        tool_note("%-28s %-12s %6s %10s %10s %18s %10s %7s", "codec", "plan", "groups", "step, ms", "least",
                  "predicted", "after", "hidden");
        json_array_foreach (b->results, i, row)
            print_replayed_row(row);
        return;
    }
    tool_note("%-28s %-6s %10s %10s %10s %12s %12s %9s %7s", "codec", "wire", "ms", "least", "codec ms", "up, MB",
              "down, MB", "messages", "x none");
    json_array_foreach (b->results, i, row) /* wherever it stands among the rows */
        if (strcmp(json_string_value(json_object_get(row, "codec")), "none") == 0)
            plain = real_of(row, "seconds");
    json_array_foreach (b->results, i, row)
        print_row(row, plain);
}

/* True if a codec's averages have the same bits under every plan. They do if the same steps went before, because topk's
 * residual depends on these. */
static bool averages_agree(const struct bench *b)
{
    size_t i, k;
    json_t *row, *other;
    json_array_foreach (b->results, i, row) {
        if (!json_is_true(json_object_get(row, "averages_identical")))
            return false;
        json_array_foreach (b->results, k, other)
            if (json_equal(json_object_get(row, "codec"), json_object_get(other, "codec")) &&
                json_equal(json_object_get(row, "warm_up"), json_object_get(other, "warm_up")) &&
                !json_equal(json_object_get(row, "average_hash"), json_object_get(other, "average_hash")))
                return false;
    }
    return true;
}

/* Draws every row as predicted, and below it as measured. */
static int draw_rows(const struct bench *b)
{
    tool_timeline steps[2 * TOOL_MAX_TEXTS];
    char labels[2 * TOOL_MAX_TEXTS][128], title[200];
    size_t n = 0;
    for (size_t i = 0; i < b->n_rows; i++) {
        const struct bench_plan *plan = b->rows[i].plan;
        const char *spec = b->specs.items[b->rows[i].spec];
        for (int measured = plan->predicted == NULL || has_servers(b); measured < 2; measured++, n++) {
            snprintf(labels[n], sizeof labels[n], "%s, %s, %s", spec, plan->name, measured ? "measured" : "predicted");
            steps[n] = (tool_timeline){.label = labels[n],
                                       .times = measured ? plan->measured : plan->predicted,
                                       .n_groups = plan->n_groups,
                                       .step_ms = measured ? plan->measured_ms : plan->predicted_ms};
        }
    }
    snprintf(title, sizeof title, "A step of %u layers, %u members; measured: the last run of rank 0",
             b->profile.profile.n_layers, b->team.members.size);
    return tool_plan_chart(&b->profile.profile, b->profile.compress, title, steps, n, b->chart);
}

static int print_report(const struct bench *b, bool json)
{
    print_table(b);
    if (b->chart)
        TOOL_TRY(draw_rows(b));
    if (!averages_agree(b))
        return tool_fail("the averages differ between members, or between plans; this is a bug, please report it");
    if (!json)
        return TOOL_DONE;
    return tool_print_json(json_pack("{s:s, s:b, s:I, s:s, s:I, s:I, s:I, s:O}", "link", b->team.members.scheme->name,
                                     "servers", has_servers(b), "workers", (json_int_t)b->team.members.size, "cpu",
                                     gw_cpu_level(), "tensors", (json_int_t)b->n_tensors, "elements",
                                     (json_int_t)b->total, "runs", (json_int_t)b->runs, "results", b->results));
}

/* Makes a row for each codec, or with a profile for each codec and plan. */
static int make_rows(struct bench *b)
{
    const size_t n_plans = b->profile.root ? b->plans.n : 1;
    if (b->specs.n * n_plans > TOOL_MAX_TEXTS)
        return tool_wrong_use("%zu codecs and %zu plans are more than %d rows", b->specs.n, n_plans, TOOL_MAX_TEXTS);
    for (size_t k = 0; k < b->specs.n; k++)
        for (size_t p = 0; p < n_plans; p++) {
            struct row *row = &b->rows[b->n_rows++];
            *row = (struct row){.spec = k};
            if (!b->profile.root)
                continue;
            row->plan = tool_alloc(1, sizeof *row->plan);
            if (!row->plan)
                return TOOL_FAILED;
            TOOL_TRY(bench_plan_make(&b->profile, b->specs.items[k], b->plans.items[p], row->plan));
            if (gw_codec_traits_of(b->codecs[k]).one_group && row->plan->n_groups > 1)
                return tool_wrong_use("%s decides for all tensors at once, so that all are one group; --plan single",
                                      b->specs.items[k]);
        }
    return 0;
}

static int run(struct bench *b, uint32_t threads, bool json)
{
    b->results = json_array();
    gw_status status = b->results ? choose_shape(b) : GW_ERR_MEMORY;
    for (size_t k = 0; k < b->specs.n && status >= 0; k++)
        status = gw_codec_check_skip(b->codecs[k], b->tensors, b->n_tensors);
    b->team.n_links = b->n_rows;
    if (status >= 0)
        status = bench_work(&b->team, threads, member_work, b);
    tool_progress_clear();
    int exit_status = tool_exit_status_of_use(status);
    if (exit_status == TOOL_DONE && b->team.members.first == 0)
        exit_status = print_report(b, json);
    json_decref(b->results);
    return exit_status;
}

static int prepare(struct bench *b)
{
    if (b->profile_path)
        TOOL_TRY(tool_profile_read(b->profile_path, NULL, &b->profile));
    /* A member that sleeps is silent. */
    if (b->profile.root && bench_compute_ms(&b->profile.profile) > b->team.timeout_ms)
        return tool_wrong_use("a step of %s computes for %g s, and --timeout lets a member be silent for %g",
                              b->profile_path, 1e-3 * bench_compute_ms(&b->profile.profile), 1e-3 * b->team.timeout_ms);
    if (b->specs.n == 0 && b->profile.root)
        for (uint32_t i = 0; i < b->profile.profile.n_codecs; i++)
            b->specs.items[b->specs.n++] = b->profile.codecs[i].spec;
    bench_default_codecs(&b->specs);
    if (b->plans.n == 0)
        b->plans.items[b->plans.n++] = "exact";
    for (size_t k = 0; k < b->specs.n; k++)
        TOOL_TRY(tool_exit_status(gw_codec_parse(NULL, b->specs.items[k], &b->codecs[k]), NULL));
    return make_rows(b);
}

static void forget(struct bench *b)
{
    for (size_t i = 0; i < b->n_rows; i++)
        bench_plan_free(b->rows[i].plan);
    for (size_t k = 0; k < b->specs.n; k++)
        gw_codec_destroy(b->codecs[k]);
    tool_profile_free(&b->profile);
}

int tool_bench_exchange(int argc, char **argv)
{
    static struct bench b = {.runs = 7};
    struct gw_members_options who = {.rank = GW_LAUNCHER_NO_RANK, .must_meet = true, .request.log = tool_show_log};
    struct tool_links_help links;
    tool_describe_links(false, &links);
    uint32_t threads = 1, timeout_s = 120;
    const char *wire = "auto";
    bool json = false;
    char nets[1024] = "gradients of the sizes of a network, in millions of elements: ";
    gw_network_describe_all(nets, sizeof nets);
    const tool_option options[] = {
        {"--codec", "SPEC", "measure this codec; may be given several times (default: one of each kind)", TOOL_TEXTS,
         &b.specs},
        {"--net", "NET", nets, TOOL_TEXT, &b.net},
        {"--elements", "N", "one tensor of so many elements (default 16Mi)", TOOL_U64, &b.n_elems, 1, GW_MAX_ELEMENTS},
        {"--gradients", "NAME", "gradients that train --save-gradients wrote: rank R reads NAME.rank-R.gwp", TOOL_TEXT,
         &b.saved},
        {"--profile", "FILE",
         "replay whole steps of a PROFILE.json: forward and backward are sleeps, codec and exchange are real. The "
         "default codecs are the profile's",
         TOOL_TEXT, &b.profile_path},
        {"--plan", "METHOD",
         "with --profile, which layers travel together: exact, paper, none, single or fixed:BYTES, as for gradwire "
         "plan; may be given several times: they are measured by turns (default exact)",
         TOOL_TEXTS, &b.plans},
        {"-o", "CHART.svg", "with --profile, draws the step of each row: as predicted, and under it as measured",
         TOOL_OUTPUT, &b.chart},
        {"--wire", "small|fast|auto",
         "how frames are written: the fewest bytes, the fewest processor cycles, or what makes the runs shorter; auto "
         "warms up until it has compared",
         TOOL_TEXT, &wire},
        {"--runs", "R", "how many runs; the median counts (default 7)", TOOL_U32, &b.runs, 1, 10000},
        {"--threads", "T", "codec threads of each member's machine (default 1)", TOOL_U32, &threads, 1, 256},
        {"--timeout", "S", "seconds that a member may be silent (default 120)", TOOL_U32, &timeout_s, 1, 86400},
        {"--workers", "N", "members (default 4; with mpi and tcp the launcher says how many)", TOOL_U32, &who.workers,
         1, 1024},
        TOOL_MEMBERS_OPTIONS(&who, &links),
        {"--servers", "LIST",
         "parameter servers HOST:PORT,... (gradwire server) average, in place of the members. They serve one exchange: "
         "one codec, and one plan. --keys is for them, too",
         TOOL_TEXT, &who.servers},
        {"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "bench exchange [--codec SPEC]... [options]",
        .about =
            "Measures how long all members together take to average one step's gradients, codec and link included. The "
            "time of a run is that of the slowest member. Bytes are what crosses between all members in one run.",
        .example = "gradwire bench exchange --workers 4 --net vgg16\n"
                   "  gradwire launch -n 4 -- bench exchange --net alexnet --codec none --codec ternary",
        TOOL_OPTIONS(options),
        .is_long = true,
        .args = "bench exchange takes no files",
    };
    tool_set_command("bench exchange");
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (gw_wire_parse(wire, &b.wire) < 0)
        return tool_wrong_use("--wire is \"%s\", and must be small, fast or auto", wire);
    if ((b.profile_path != NULL) + (b.net != NULL) + (b.saved != NULL) + (b.n_elems > 0) > 1)
        return tool_wrong_use(
            "--profile, --net, --gradients and --elements each say what is averaged; give one of them");
    b.n_elems = b.n_elems ? b.n_elems : 16 << 20;
    if ((b.plans.n > 0 || b.chart) && !b.profile_path)
        return tool_wrong_use("%s needs a --profile, which says how long backward takes (gradwire probe)",
                              b.chart ? "-o" : "--plan");
    TOOL_TRY(tool_check_apart("-o", b.chart, "--profile", b.profile_path));
    TOOL_TRY(tool_choose_members(&who));
    who.request.timeout_ms = b.team.timeout_ms = timeout_s * 1000;
    int status = prepare(&b);
    if (status == TOOL_DONE && who.servers && b.n_rows > 1)
        status = tool_wrong_use("parameter servers serve one exchange: give one --codec and one --plan, and start the "
                                "servers anew for the next");
    if (status == TOOL_DONE)
        status = tool_exit_status_of_use(gw_members_begin(&who, &b.team.members));
    if (status == TOOL_DONE)
        status = run(&b, threads, json);
    gw_members_end(&b.team.members, status != TOOL_DONE);
    forget(&b);
    return status;
}
