/* Counts how long things took, in classes as in the histograms of Prometheus. */
#ifndef GW_PSERVER_STORE_TIMES_H
#define GW_PSERVER_STORE_TIMES_H

#include <stdint.h>

#define GW_PS_TIME_CLASSES 16 /* with an end; one more has none */

struct gw_ps_times {
    uint64_t n[GW_PS_TIME_CLASSES + 1];
    double sum; /* seconds */
};

/* The most seconds of a class. */
static inline double gw_ps_time_bound(uint32_t nth)
{
    static const double bounds[GW_PS_TIME_CLASSES] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                      0.25,   0.5,   1,      2.5,   5,    10,    30,   60};
    return bounds[nth];
}

static inline void gw_ps_times_note(struct gw_ps_times *times, double seconds)
{
    uint32_t nth = 0;
    while (nth < GW_PS_TIME_CLASSES && seconds > gw_ps_time_bound(nth))
        nth++;
    times->n[nth]++;
    times->sum += seconds;
}

#endif
