/* Measures a codec: how long it measures and encodes, and how long exchanges of groups of many sizes take with it.
 * fit.c makes costs of these times. */
#include "codec/state.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "exchange/state.h"
#include "probe/gradient.h"
#include "probe/probe.h"

#include <stdio.h>
#include <string.h>

/* A point is left out if a run of it would take longer, judged by the point before. */
#define LONGEST_RUN_S 2.0

/* Each run begins as a step does after another one: threads sleep, and caches hold other things. */
#define IDLE_S 0.01
#define OTHER_BYTES (16u << 20)

#define STAT "/proc/stat"

enum { WARM_UP = 3, SMALL = GW_PROBE_SMALL, LARGE = GW_PROBE_LARGE };

static const struct gw_probe_point points[] = {
    [GW_PROBE_ONE] = {.groups = 1, .tensors = 1, .size = SMALL},
    [GW_PROBE_FEW] = {.groups = 12, .tensors = 1, .size = 1024},
    [GW_PROBE_MORE] = {.groups = 48, .tensors = 1, .size = 1024},
    [GW_PROBE_MANY] = {.groups = 1, .tensors = GW_PROBE_MOST_TENSORS, .size = 1024},
    [GW_PROBE_N_SMALL] = {.groups = 1, .tensors = 1, .size = 1 << 16},
    {.groups = 16, .tensors = 1, .size = 1 << 16},
    {.groups = 1, .tensors = 1, .size = LARGE},
    {.groups = 4, .tensors = 1, .size = LARGE},
    {.groups = 1, .tensors = 1, .size = 4 << 20},
    {.groups = 1, .tensors = 1, .size = 16 << 20},
    {.whole = true, .groups = 1},
};
enum { N_POINTS = sizeof points / sizeof *points };

static uint64_t elements_of(const struct gw_probe *p, const struct gw_probe_point *point)
{
    uint64_t n = point->whole ? 0 : point->groups * point->tensors * point->size;
    for (uint32_t l = 0; point->whole && l < p->n_layers; l++)
        n += p->layers[l].n_elems;
    return n;
}

/* ---- the codec by itself ------------------------------------------------------------------------------- */

/* Times the codec on all members at once, because members may share processors. The results are milliseconds of the
 * slowest member. */
static gw_status time_codec(struct gw_probe_member *m, size_t k, uint64_t n, double *measure_ms, double *encode_ms)
{
    const struct gw_probe *p = m->probe;
    const gw_tensor tensor = {.n_elems = n};
    gw_encoder *encoder = NULL;
    double *times = gw_calloc(m->meeting.context, 2 * (size_t)p->runs, sizeof *times);
    float *gradient = gw_alloc(m->meeting.context, n, sizeof *gradient), *shared = NULL;
    float *turned = gw_alloc(m->meeting.context, n, sizeof *turned);
    void *frame = NULL;
    gw_status status = times && gradient && turned
                           ? gw_encoder_create(m->meeting.context, p->codecs[k], &tensor, &encoder)
                           : GW_ERR_MEMORY;
    const uint64_t n_shared = status >= 0 ? gw_encoder_traits_of(encoder).n_shared : 0;
    const size_t capacity = status >= 0 ? gw_encoder_bound(encoder, n) : 0;
    if (status >= 0) {
        shared = gw_calloc(m->meeting.context, n_shared + 1, sizeof *shared);
        frame = gw_alloc(m->meeting.context, capacity, 1);
        status = shared && frame ? GW_OK : GW_ERR_MEMORY;
        gw_draw_gradient(gradient, m->link.rank * n, n);
        gw_encoder_run_in(encoder, gradient, m->link.rank);
    }
    for (uint32_t i = 0; i < WARM_UP + p->runs && status >= 0; i++) {
        struct gw_report report, sum;
        gw_measure info;
        const gw_draw draw = {.seed = 1, .rank = m->link.rank, .step = i};
        size_t bytes;
        gw_turn_gradient(turned, gradient, n, i);
        status = gw_meet(&m->meeting, NULL, NULL);
        const double begin = gw_clock_seconds();
        bool together;
        if (status >= 0)
            status = gw_encoders_begin(&encoder, 1, &together);
        if (status >= 0)
            status = gw_encoder_measure(encoder, turned, shared, n_shared, &info);
        if (status >= 0 && together)
            status = gw_encoders_combine(&encoder, 1, NULL);
        const double measured = gw_clock_seconds();
        if (status >= 0)
            status = gw_encoder_encode(encoder, turned, n_shared ? shared : NULL, &draw, 0, n, frame, capacity, &bytes);
        const double encoded = gw_clock_seconds();
        if (status < 0)
            break;
        gw_ignore(gw_encoder_commit(encoder, true)); /* fails for NULL only */
        report = (struct gw_report){.seconds = measured - begin, .encode_seconds = encoded - measured};
        status = gw_meet(&m->meeting, &report, &sum);
        if (status >= 0 && i >= WARM_UP)
            times[i - WARM_UP] = sum.seconds, times[p->runs + i - WARM_UP] = sum.encode_seconds;
    }
    if (status >= 0) {
        *measure_ms = 1e3 * gw_median(times, p->runs);
        *encode_ms = 1e3 * gw_median(times + p->runs, p->runs);
    }
    gw_encoder_destroy(encoder);
    gw_free(m->meeting.context, frame);
    gw_free(m->meeting.context, shared);
    gw_free(m->meeting.context, turned);
    gw_free(m->meeting.context, gradient);
    gw_free(m->meeting.context, times);
    return status;
}

/* ---- exchanges ----------------------------------------------------------------------------------------- */

void gw_exchange_run_in(gw_exchange *ex, const float *gradients, const uint64_t *offsets)
{
    for (uint32_t t = 0; t < ex->n_tensors; t++)
        gw_encoder_run_in(ex->tensors[t].encoder, gradients + offsets[t], ex->rank);
}

struct gw_probe_busy gw_probe_busy(const char *stat)
{
    /* user, nice, system, idle, waiting for disks (which is idle, too), interrupts, soft interrupts, stolen by another
     * machine */
    double ticks[8];
    struct gw_probe_busy now = {0, 0};
    FILE *file = fopen(stat, "r");
    if (!file)
        return now;
    if (fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4],
               &ticks[5], &ticks[6], &ticks[7]) == 8) {
        for (int i = 0; i < 8; i++)
            now.all += ticks[i];
        now.worked = now.all - ticks[3] - ticks[4];
    }
    fclose(file);
    return now;
}

struct exchange_run {
    gw_tensor tensors[GW_PLAN_MAX_LAYERS];
    uint64_t offsets[GW_PLAN_MAX_LAYERS]; /* the tensors stand one behind the other */
    uint32_t group_of[GW_PLAN_MAX_LAYERS], n_tensors;
    float *gradient, *work;
    void *other;   /* what caches hold between two runs */
    double *times; /* of each run that counts */
    uint64_t n_elems;
    gw_exchange *exchange;
};

/* Does a step. It hands the tensors over with the last layer first. */
static gw_status one_step(struct exchange_run *r, uint32_t step, struct gw_report *report, struct gw_probe_busy *busy)
{
    const struct gw_probe_busy before = gw_probe_busy(STAT);
    gw_step_result result;
    gw_wire_report wire;
    const double begin = gw_clock_seconds();
    GW_TRY(gw_exchange_begin(r->exchange, step));
    for (uint32_t t = r->n_tensors; t-- > 0;)
        GW_TRY(gw_exchange_submit(r->exchange, t, r->work + r->offsets[t]));
    GW_TRY(gw_exchange_wait(r->exchange, &result));
    const double end = gw_clock_seconds();
    const struct gw_probe_busy after = gw_probe_busy(STAT);
    busy->worked += after.worked - before.worked;
    busy->all += after.all - before.all;
    GW_TRY(gw_exchange_stats(r->exchange, &(gw_stats){.wire = &wire}));
    *report = (struct gw_report){.seconds = end - begin,
                                 .bytes_up = result.bytes_up,
                                 .bytes_down = result.bytes_down,
                                 .settled = !wire.compares || wire.n_comparisons > 0};
    return GW_OK;
}

/* What a run of a point took. */
struct taken {
    double seconds, bytes_per_element;
    double busy; /* gw_probe_point.busy */
};

/* With fewer ticks the share says little. */
enum { LEAST_TICKS = 20 };

static gw_status run_point(struct gw_probe_member *m, struct exchange_run *r, struct taken *taken)
{
    const struct gw_probe *p = m->probe;
    enum { MOST_WARM_UP = 60 };
    bool settled = false;
    struct gw_probe_busy busy = {0, 0};
    struct gw_report sum;
    for (uint32_t i = 0, counted = 0; counted < p->runs; i++) {
        struct gw_report report;
        for (uint32_t t = 0; t < r->n_tensors; t++)
            gw_turn_gradient(r->work + r->offsets[t], r->gradient + r->offsets[t], r->tensors[t].n_elems, i);
        memset(r->other, (int)i, OTHER_BYTES);
        GW_TRY(gw_meet(&m->meeting, NULL, NULL));
        gw_clock_sleep_until(gw_clock_seconds() + IDLE_S);
        GW_TRY(one_step(r, i, &report, &busy));
        GW_TRY(gw_meet(&m->meeting, &report, &sum));
        if (i >= WARM_UP && settled)
            r->times[counted++] = sum.seconds;
        settled = sum.settled || i > MOST_WARM_UP;
        taken->bytes_per_element = (double)(sum.bytes_up + sum.bytes_down) / (double)m->link.size / (double)r->n_elems;
    }
    taken->seconds = gw_median(r->times, p->runs);
    struct gw_report own = {.busy = busy.all >= LEAST_TICKS ? busy.worked / busy.all : 0};
    GW_TRY(gw_meet(&m->meeting, &own, &sum));
    taken->busy = sum.busy;
    return GW_OK;
}

static void fill_tensors(const struct gw_probe *p, const struct gw_probe_point *point, struct exchange_run *r)
{
    r->n_tensors = point->whole ? p->n_layers : (uint32_t)(point->groups * point->tensors);
    for (uint32_t t = 0; t < r->n_tensors; t++) {
        r->offsets[t] = t ? r->offsets[t - 1] + r->tensors[t - 1].n_elems : 0;
        r->tensors[t] = (gw_tensor){.id = t, .n_elems = point->whole ? p->layers[t].n_elems : point->size};
        r->group_of[t] = point->whole ? 0 : (uint32_t)(point->groups - 1 - t / point->tensors);
    }
    r->n_elems = elements_of(p, point);
}

static gw_status time_exchange(struct gw_probe_member *m, size_t k, const struct gw_probe_point *point,
                               struct taken *taken)
{
    const struct gw_probe *p = m->probe;
    struct exchange_run *r = gw_calloc(m->meeting.context, 1, sizeof *r);
    if (!r)
        return GW_ERR_MEMORY;
    fill_tensors(p, point, r);
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = p->codecs[k],
                                         .tensors = r->tensors,
                                         .n_tensors = r->n_tensors,
                                         .group_of = r->group_of,
                                         .link = m->link,
                                         .seed = 1,
                                         .timeout_ms = m->meeting.timeout_ms};
    r->gradient = gw_alloc(m->meeting.context, r->n_elems, sizeof *r->gradient);
    r->work = gw_alloc(m->meeting.context, r->n_elems, sizeof *r->work);
    r->other = gw_alloc(m->meeting.context, OTHER_BYTES, 1);
    r->times = gw_calloc(m->meeting.context, p->runs, sizeof *r->times);
    gw_status status = r->gradient && r->work && r->other && r->times ? GW_OK : GW_ERR_MEMORY;
    if (status >= 0) {
        gw_draw_gradient(r->gradient, m->link.rank * r->n_elems, r->n_elems);
        status = gw_exchange_create(m->meeting.context, &options, &r->exchange);
    }
    if (status >= 0) {
        gw_exchange_run_in(r->exchange, r->gradient, r->offsets);
        status = run_point(m, r, taken);
    }
    gw_exchange_destroy(r->exchange);
    gw_free(m->meeting.context, r->times);
    gw_free(m->meeting.context, r->other);
    gw_free(m->meeting.context, r->work);
    gw_free(m->meeting.context, r->gradient);
    gw_free(m->meeting.context, r);
    GW_TRY(status);
    return gw_meet(&m->meeting, NULL, NULL); /* before the link gets another exchange, all are done with this one */
}

/* ---- all of it ----------------------------------------------------------------------------------------- */

gw_status gw_probe_codec(struct gw_probe_member *m, size_t k)
{
    struct gw_probe *p = m->probe;
    gw_profile_codec cost = {.spec = p->specs[k]};
    struct gw_probe_sweep sweep = {.n = 0};
    double small_measure = 0, small_encode = 0, large_measure = 0, large_encode = 0, per_element_s = 0;
    double busy_ms_per_element = 0; /* of the last point that was long enough: the network's, or a large one */
    gw_status status = time_codec(m, k, SMALL, &small_measure, &small_encode);
    if (status >= 0)
        status = time_codec(m, k, LARGE, &large_measure, &large_encode);
    gw_probe_line(small_measure, large_measure, &cost.measure_ms_fixed, &cost.measure_ms_per_element);
    gw_probe_line(small_encode, large_encode, &cost.compress_ms_fixed, &cost.compress_ms_per_element);
    for (size_t i = 0; i < N_POINTS && status >= 0; i++) {
        const double n = (double)elements_of(p, &points[i]);
        if (i > GW_PROBE_N_SMALL && per_element_s * n > LONGEST_RUN_S) /* all members know the same times, so all skip
                                                                        * the same points */
            continue;
        if (i > GW_PROBE_N_SMALL && !points[i].whole && p->most_elements && n > (double)p->most_elements)
            continue;
        struct taken taken = {0, 0, 0};
        status = time_exchange(m, k, &points[i], &taken);
        per_element_s = taken.seconds / n;
        if (i >= GW_PROBE_N_SMALL) /* headers weigh more in small groups; the network's own groups are the last ones */
            cost.bytes_per_element = taken.bytes_per_element;
        sweep.points[sweep.n] = points[i];
        sweep.points[sweep.n].busy = taken.busy;
        sweep.points[sweep.n++].measured_ms = 1e3 * taken.seconds;
        if (taken.busy > 0)
            busy_ms_per_element = taken.busy * 1e3 * taken.seconds / n;
    }
    if (status < 0 || m->link.rank != 0)
        return status;
    p->costs[k] = cost;
    p->sweeps[k] = sweep;
    gw_probe_fit(p, k);
    p->costs[k].busy_ms_per_element =
        busy_ms_per_element; /* all other costs are fitted to exchanges that do nothing else */
    return GW_OK;
}
