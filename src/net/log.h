/* A log of what strangers do: lines that go to a function of the program. */
#ifndef GW_NET_LOG_H
#define GW_NET_LOG_H

#include <stdatomic.h>

struct gw_net_log {
    void (*line)(const char *line, void *user); /* NULL: nobody listens */
    void *user;
    atomic_uint n_told; /* how many lines were written; 0 in the beginning */
};

/* Writes one line. After some hundred lines it writes no more, so that strangers cannot fill a disk. Any thread may
 * call it. */
void gw_net_log(struct gw_net_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
