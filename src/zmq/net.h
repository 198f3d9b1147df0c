/* What all sockets of one owner share: a ZeroMQ context, the options of sockets, keys, the gate and the watch. An owner
 * is the group of a tcp link, a parameter server, or a client. The owner fills the first fields, and calls
 * gw_zmq_net_open. */
#ifndef GW_ZMQ_NET_H
#define GW_ZMQ_NET_H

#include "net/address.h"
#include "zmq/gate.h"
#include "zmq/keys.h"
#include "net/log.h"
#include "zmq/watch.h"

struct gw_zmq_net {
    gw_context *context;
    uint32_t timeout_ms;   /* if the other end is silent for so many milliseconds, it counts as gone */
    uint32_t most_at_once; /* how many connections may wait to be accepted at the same time */
    struct gw_net_log log;

    void *zmq;
    struct gw_zmq_keys *keys;   /* NULL: not encrypted */
    struct gw_zmq_gate *gate;   /* NULL: no keys are checked here: there are none, or nobody connects to this side */
    struct gw_zmq_watch *watch; /* NULL: it looks at no socket yet (gw_zmq_net_door) */
};

/* Makes the ZeroMQ context. Errors: GW_ERR_SYSTEM. */
gw_status gw_zmq_net_open(struct gw_zmq_net *net);

/* Frees all of it. The sockets must be closed. It waits until ZeroMQ has given back all memory that was lent to it. */
void gw_zmq_net_close(struct gw_zmq_net *net);

/* Makes a socket with all options set: no limits on queues, no wait at closing, heartbeats, keys. server: connections
 * to this socket must have an allowed key. NULL: gw_last_error() says why. */
void *gw_zmq_socket_new(struct gw_zmq_net *net, int type, bool server);

/* Lets the net's watch look at a socket: opens a door for it (gw_zmq_door_open). The first door begins the watch. */
gw_status gw_zmq_net_door(struct gw_zmq_net *net, void *socket, const char *name, int news,
                          const struct gw_zmq_limits *limits, struct gw_zmq_door **out);

#endif
