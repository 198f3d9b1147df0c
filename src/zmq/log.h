/* Lines for whoever listens, about what strangers do. */
#ifndef GW_ZMQ_LOG_H
#define GW_ZMQ_LOG_H

#include <stdatomic.h>

struct gw_zmq_log {
    void (*line)(const char *line, void *user); /* NULL: nobody listens */
    void *user;
    atomic_uint n_told; /* 0 in the beginning */
};

/* One line; after some hundred of them no more: strangers shall not fill a disk. Any thread. */
void gw_zmq_log(struct gw_zmq_log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
