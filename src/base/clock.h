/* Monotonic time. */
#ifndef GW_BASE_CLOCK_H
#define GW_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Seconds since some fixed point, never going back. */
static inline double gw_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The point in time `milliseconds` from now on CLOCK_MONOTONIC, for timed waits. */
static inline struct timespec gw_clock_deadline(uint32_t milliseconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += milliseconds / 1000;
    at.tv_nsec += (long)(milliseconds % 1000) * 1000000L;
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

#endif
