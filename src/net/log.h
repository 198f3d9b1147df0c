/* A log: lines that go to a function of the program. If too many come at once, some are left out. */
#ifndef GW_NET_LOG_H
#define GW_NET_LOG_H

#include <stdint.h>

struct gw_net_log {
    void (*line)(const char *line, void *user); /* NULL: nobody listens */
    void *user;
    /* How many lines may come at once, and how many more in each second after that. So newcomers cannot fill a disk. */
    double most, a_second;
    double recent, at; /* how many lines count against `most` at the time `at` (gw_clock_seconds) */
    uint64_t n_untold; /* lines that were left out since the last one */
};

/* A log of what newcomers do: 200 lines, and then one in five seconds. */
#define GW_NET_LOG_OF_NEWCOMERS(function, of_user)                                                                     \
    {                                                                                                                  \
        .line = (function), .user = (of_user), .most = 200, .a_second = 0.2                                            \
    }

/* Writes one line, "event key=value ...". If lines were left out before it, it first writes how many. One thread at a
 * time may call it. */
void gw_net_log(struct gw_net_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
