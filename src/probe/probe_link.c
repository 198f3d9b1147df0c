/* Measures a link by itself: how long messages of many sizes take if every member sends to every other one. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/calls.h"
#include "probe/gradient.h"
#include "probe/probe.h"

#include <math.h>
#include <string.h>

/* If a round takes longer, its size is the last one. */
#define LONGEST_ROUND_S 0.4

enum { WARM_UP = 2, MOST_BYTES = 16 << 20 };

double gw_probe_deviation(const struct gw_probe_sweep *sweep)
{
    double relative[GW_PROBE_MOST_POINTS];
    for (size_t i = 0; i < sweep->n; i++)
        relative[i] = fabs(sweep->points[i].fitted_ms / sweep->points[i].measured_ms - 1);
    return sweep->n ? gw_median(relative, sweep->n) : 0;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

double gw_probe_slope(const double *x, const double *t, size_t n)
{
    enum { LARGE = 3 };
    double slopes[LARGE * (LARGE - 1) / 2];
    size_t n_slopes = 0;
    for (size_t i = n > LARGE ? n - LARGE : 0; i < n; i++)
        for (size_t k = i + 1; k < n; k++)
            slopes[n_slopes++] = (t[k] - t[i]) / (x[k] - x[i]);
    const double slope = n_slopes ? gw_median(slopes, n_slopes) : 0;
    return slope > 0 || n == 0 ? slope : t[n - 1] / x[n - 1];
}

/* Takes a message of `bytes` from every other member. */
static gw_status take_all(const struct gw_probe_member *m, size_t bytes)
{
    const gw_link *link = &m->link;
    bool *came = gw_calloc(m->meeting.context, link->size, sizeof *came);
    gw_status status = came ? GW_OK : GW_ERR_MEMORY;
    for (uint32_t r = 0; status == GW_OK && r < link->size;) {
        gw_message message;
        if (r == link->rank || came[r]) {
            r++;
            continue;
        }
        status = gw_link_recv(link, m->meeting.timeout_ms, &message);
        if (status == GW_ERR_TIMEOUT)
            status = gw_fail(status, "no message of the measurement came from rank %u within %u ms", r,
                             m->meeting.timeout_ms);
        if (status != GW_OK)
            break;
        /* the last words of an exchange before this may come as well */
        if (message.n_bytes == bytes)
            came[message.from] = true;
        gw_message_free(message.bytes);
    }
    gw_free(m->meeting.context, came);
    return status;
}

/* Every member sends `bytes` to every other one, and takes what arrives. */
static gw_status one_round(struct gw_probe_member *m, size_t bytes, double *seconds)
{
    gw_link link = m->link;
    struct gw_report own = {0}, sum;
    GW_TRY(gw_meet(&m->meeting, NULL, NULL));
    const double begin = gw_clock_seconds();
    for (uint32_t i = 1; i < link.size; i++) {
        void *message = gw_message_alloc(m->meeting.context, bytes);
        if (!message)
            return GW_ERR_MEMORY;
        memset(message, 0x5A, bytes);
        const gw_status sent = gw_link_send(&link, (link.rank + i) % link.size, message, bytes, m->meeting.timeout_ms);
        GW_TRY(sent == GW_ERR_PEER ? gw_link_why(&link, NULL, NULL) : sent);
    }
    GW_TRY(take_all(m, bytes));
    /* The meeting that follows has a link of its own, so nobody receives here meanwhile. */
    GW_TRY(gw_link_flush(&link, m->meeting.timeout_ms));
    own.seconds = gw_clock_seconds() - begin;
    GW_TRY(gw_meet(&m->meeting, &own, &sum));
    *seconds = sum.seconds;
    return GW_OK;
}

static gw_status measure_size(struct gw_probe_member *m, size_t bytes, double *seconds)
{
    const struct gw_probe *p = m->probe;
    double *times = gw_calloc(m->meeting.context, WARM_UP + p->runs, sizeof *times);
    gw_status status = times ? GW_OK : GW_ERR_MEMORY;
    for (uint32_t i = 0; i < WARM_UP + p->runs && status >= 0; i++)
        status = one_round(m, bytes, &times[i]);
    if (status >= 0)
        *seconds = gw_median(times + WARM_UP, p->runs);
    gw_free(m->meeting.context, times);
    return status;
}

gw_status gw_probe_messages(struct gw_probe_member *m)
{
    struct gw_probe *p = m->probe;
    const uint32_t others = m->link.size - 1;
    struct gw_probe_sweep sweep = {.n = 0};
    double x[GW_PROBE_MOST_POINTS], t[GW_PROBE_MOST_POINTS];
    for (size_t bytes = 64; bytes <= MOST_BYTES && sweep.n < GW_PROBE_MOST_POINTS; bytes *= 4) {
        double seconds = 0;
        GW_TRY(measure_size(m, bytes, &seconds));
        x[sweep.n] = (double)others * (double)bytes;
        t[sweep.n] = 1e3 * seconds;
        sweep.points[sweep.n] = (struct gw_probe_point){.groups = 1,
                                                        .tensors = 1,
                                                        .size = (uint64_t)others * bytes,
                                                        .measured_ms = 1e3 * seconds};
        sweep.n++;
        if (seconds > LONGEST_ROUND_S || (p->most_elements && bytes / sizeof(float) > p->most_elements))
            break;
    }
    if (m->link.rank != 0)
        return GW_OK;
    p->link.members = others + 1;
    p->link.ms_per_byte = gw_probe_slope(x, t, sweep.n);
    p->link.alpha_ms = t[0]; /* exchanges will say more (probe_codec.c) */
    for (size_t i = 0; i < sweep.n; i++)
        sweep.points[i].fitted_ms = p->link.alpha_ms + p->link.ms_per_byte * x[i];
    p->messages = sweep;
    return GW_OK;
}
