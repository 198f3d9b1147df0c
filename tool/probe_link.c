/* Measures a link by itself: how long messages of many sizes take if every member sends to every other one. */
#include "base/clock.h"
#include "bench_gradient.h"
#include "probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A size is the last one if a round of it takes longer. */
#define LONGEST_ROUND_S 0.4

enum { WARM_UP = 2, MOST_BYTES = 16 << 20 };

/* ---- the fit ------------------------------------------------------------------------------------------- */

/* Weighted least squares of two parameters, each 0 or more. */
static void solve(const double *x, const double *t, const double *w, size_t n, double *alpha, double *beta)
{
    double s = 0, sx = 0, st = 0, sxx = 0, sxt = 0;
    for (size_t i = 0; i < n; i++) {
        s += w[i];
        sx += w[i] * x[i];
        st += w[i] * t[i];
        sxx += w[i] * x[i] * x[i];
        sxt += w[i] * x[i] * t[i];
    }
    const double determinant = s * sxx - sx * sx;
    *alpha = determinant > 0 ? (st * sxx - sx * sxt) / determinant : st / s;
    *beta = determinant > 0 ? (s * sxt - sx * st) / determinant : 0;
    if (*beta < 0)
        *beta = 0, *alpha = st / s;
    if (*alpha < 0)
        *alpha = 0, *beta = sxt / sxx;
}

void probe_fit(const double *x, const double *t, size_t n, double *alpha, double *beta)
{
    enum { ROUNDS = 50 };
    double w[PROBE_MOST_POINTS];
    for (size_t i = 0; i < n; i++)
        w[i] = 1 / (t[i] * t[i]);
    for (int round = 0; round < ROUNDS; round++) {
        solve(x, t, w, n, alpha, beta);
        for (size_t i = 0; i < n; i++) {
            const double relative = fabs(*alpha + *beta * x[i] - t[i]) / t[i];
            w[i] = 1 / (t[i] * t[i] * fmax(relative, 0.01));
        }
    }
}

double probe_deviation(const struct probe_sweep *sweep)
{
    double relative[PROBE_MOST_POINTS];
    for (size_t i = 0; i < sweep->n; i++)
        relative[i] = fabs(sweep->points[i].fitted_ms / sweep->points[i].measured_ms - 1);
    return sweep->n ? bench_median(relative, sweep->n) : 0;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* Every member sends `bytes` to every other one, and takes what comes. */
static gw_status one_round(struct probe *p, struct bench_member *m, size_t bytes, double *seconds)
{
    gw_link link = bench_link(&p->team, 0, m->index);
    struct bench_report none = {0}, sum;
    gw_status status = bench_meet(m, &none, &sum);
    const double begin = gw_clock_seconds();
    for (uint32_t i = 1; i < link.size && status >= 0; i++) {
        void *message = gw_message_alloc(p->team.context, bytes);
        if (!message)
            return GW_ERR_MEMORY;
        memset(message, 0x5A, bytes);
        status = link.ops->send(link.self, (link.rank + i) % link.size, message, bytes, p->team.timeout_ms);
    }
    for (uint32_t i = 1; i < link.size && status >= 0; i++) {
        gw_message message;
        status = link.ops->recv(link.self, p->team.timeout_ms, &message);
        if (status >= 0)
            gw_message_free(message.bytes);
    }
    if (status < 0)
        return status;
    none.seconds = gw_clock_seconds() - begin;
    status = bench_meet(m, &none, &sum);
    *seconds = sum.seconds;
    return status;
}

static gw_status measure_size(struct probe *p, struct bench_member *m, size_t bytes, double *seconds)
{
    double *times = calloc(p->runs, sizeof *times), unused;
    gw_status status = times ? GW_OK : GW_ERR_MEMORY;
    for (uint32_t i = 0; i < WARM_UP && status >= 0; i++)
        status = one_round(p, m, bytes, &unused);
    for (uint32_t i = 0; i < p->runs && status >= 0; i++)
        status = one_round(p, m, bytes, &times[i]);
    if (status >= 0)
        *seconds = bench_median(times, p->runs);
    free(times);
    return status;
}

gw_status probe_messages(struct probe *p, struct bench_member *m)
{
    const uint32_t others = bench_link(&p->team, 0, m->index).size - 1;
    struct probe_sweep sweep = {.n = 0};
    double x[PROBE_MOST_POINTS], t[PROBE_MOST_POINTS];
    probe_progress(p, m, "messages");
    for (size_t bytes = 64; bytes <= MOST_BYTES && sweep.n < PROBE_MOST_POINTS; bytes *= 4) {
        double seconds = 0;
        gw_status status = measure_size(p, m, bytes, &seconds);
        if (status < 0)
            return status;
        x[sweep.n] = (double)others * (double)bytes;
        t[sweep.n] = 1e3 * seconds;
        sweep.points[sweep.n] = (struct probe_point){.groups = 1,
                                                     .tensors = 1,
                                                     .size = (uint64_t)others * bytes,
                                                     .measured_ms = 1e3 * seconds};
        sweep.n++;
        if (seconds > LONGEST_ROUND_S)
            break;
    }
    if (m->rank != 0)
        return GW_OK;
    p->link.members = others + 1;
    probe_fit(x, t, sweep.n, &p->link.alpha_ms, &p->link.ms_per_byte);
    for (size_t i = 0; i < sweep.n; i++)
        sweep.points[i].fitted_ms = p->link.alpha_ms + p->link.ms_per_byte * x[i];
    p->messages = sweep;
    return GW_OK;
}
