/* The gate of sockets with keys: a thread that ZeroMQ asks (ZAP, RFC 27) whether a connection's key is allowed. There
 * is one for each ZeroMQ context. If it refuses, it says so in the log. */
#ifndef GW_ZMQ_GATE_H
#define GW_ZMQ_GATE_H

#include "zmq/keys.h"
#include "zmq/log.h"

struct gw_zmq_gate;

/* Must come before the first socket with keys. Keys and log must outlive it. */
gw_status gw_zmq_gate_open(gw_context *context, void *zmq, struct gw_zmq_keys *keys, struct gw_zmq_log *log,
                           struct gw_zmq_gate **out);

/* NULL is allowed. Sockets that still stand let nobody in afterwards. */
void gw_zmq_gate_close(struct gw_zmq_gate *gate);

#endif
