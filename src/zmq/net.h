/* What all sockets of one owner share (a tcp link's group, a parameter server, its client): a ZeroMQ context, the
 * options of sockets, keys, the gate and the watch. The owner fills the first fields, and calls open. */
#ifndef GW_ZMQ_NET_H
#define GW_ZMQ_NET_H

#include "zmq/address.h"
#include "zmq/gate.h"
#include "zmq/keys.h"
#include "zmq/log.h"
#include "zmq/watch.h"

struct gw_zmq_net {
    gw_context *context;
    uint32_t timeout_ms;   /* after which a silent other end is gone */
    uint32_t most_at_once; /* connections that may come at the same time: they wait to be accepted */
    struct gw_zmq_log log;

    void *zmq;
    struct gw_zmq_keys *keys;   /* NULL: not encrypted */
    struct gw_zmq_gate *gate;   /* NULL: this side lets nobody in by key */
    struct gw_zmq_watch *watch; /* NULL: no door yet */
};

/* Makes the ZeroMQ context. Errors: GW_ERR_SYSTEM. */
gw_status gw_zmq_net_open(struct gw_zmq_net *net);

/* Frees what there is; the sockets must be closed. Waits until ZeroMQ has given back all memory that it was lent. */
void gw_zmq_net_close(struct gw_zmq_net *net);

/* A socket with all options set: no limits on queues, nothing kept back on closing, heartbeats, keys. A server's
 * clients must hold an allowed key. NULL: gw_last_error() says why. */
void *gw_zmq_socket_new(struct gw_zmq_net *net, int type, bool server);

/* gw_zmq_door_open with the net's watch. The first door begins the watch. */
gw_status gw_zmq_net_door(struct gw_zmq_net *net, void *socket, const char *name, int news,
                          const struct gw_zmq_limits *limits, struct gw_zmq_door **out);

#endif
