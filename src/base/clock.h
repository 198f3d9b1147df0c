/* Reads a clock that only goes forward; the system's date may jump. */
#ifndef GW_BASE_CLOCK_H
#define GW_BASE_CLOCK_H

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* Seconds since some fixed point, never going back. */
static inline double gw_clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The point in time `seconds` from now on CLOCK_MONOTONIC, for timed waits. */
static inline struct timespec gw_clock_after(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    time_t whole = (time_t)seconds;
    at.tv_sec += whole;
    at.tv_nsec += (long)((seconds - (double)whole) * 1e9);
    if (at.tv_nsec >= 1000000000L) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000L;
    }
    return at;
}

/* Makes a condition whose timed waits take such points in time. With these attributes it cannot fail here. */
static inline void gw_clock_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

/* Sleeps until gw_clock_seconds() is `due`. */
static inline void gw_clock_sleep_until(double due)
{
    const struct timespec at = {.tv_sec = (time_t)due, .tv_nsec = (long)((due - (double)(time_t)due) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

#endif
