/* The gate of sockets with keys. It is a thread that ZeroMQ asks (ZAP, RFC 27) whether a connection's key is allowed.
 * Each ZeroMQ context has one. If the gate refuses a key, it writes a line into the log. */
#ifndef GW_ZMQ_GATE_H
#define GW_ZMQ_GATE_H

#include "zmq/keys.h"
#include "net/log.h"

struct gw_zmq_gate;

/* Opens the gate. This must come before the first socket with keys. Keys and log must outlive the gate. */
gw_status gw_zmq_gate_open(gw_context *context, void *zmq, struct gw_zmq_keys *keys, struct gw_net_log *log,
                           struct gw_zmq_gate **out);

/* Closes the gate. After that, sockets that are still open let nobody in. NULL is allowed. */
void gw_zmq_gate_close(struct gw_zmq_gate *gate);

#endif
