/* Makes the sockets of one owner, all with the same options and keys, and ends what they share in the right order. */
#include "zmq/net.h"
#include "base/error.h"
#include "zmq/socket.h"

#include <errno.h>
#include <zmq.h>

#define HANDSHAKE_MS 30000 /* a connection must say who it is within this time at most */

gw_status gw_zmq_net_open(struct gw_zmq_net *net)
{
    net->zmq = zmq_ctx_new();
    return net->zmq ? GW_OK : gw_fail(GW_ERR_SYSTEM, "no ZeroMQ context: %s", zmq_strerror(zmq_errno()));
}

void gw_zmq_net_close(struct gw_zmq_net *net)
{
    gw_zmq_gate_close(net->gate);
    gw_zmq_watch_end(net->watch);
    if (net->zmq)
        while (zmq_ctx_term(net->zmq) != 0 && zmq_errno() == EINTR)
            ;
    gw_zmq_keys_free(net->context, net->keys);
}

static gw_status configure(struct gw_zmq_net *net, void *socket, bool server)
{
    const int timeout = (int)(net->timeout_ms < INT32_MAX ? net->timeout_ms : INT32_MAX);
    GW_TRY(gw_zmq_set_int(socket, ZMQ_SNDHWM, 0));
    GW_TRY(gw_zmq_set_int(socket, ZMQ_RCVHWM, 0));
    GW_TRY(gw_zmq_set_int(socket, ZMQ_LINGER, 0));
    GW_TRY(gw_zmq_set_int(socket, ZMQ_BACKLOG, (int)net->most_at_once + 128));
    /* If this is a server's socket, the watch closes the connection sooner, and writes a line into the log. */
    GW_TRY(gw_zmq_set_int(socket, ZMQ_HANDSHAKE_IVL, timeout < HANDSHAKE_MS && !server ? timeout : HANDSHAKE_MS));
    /* ZeroMQ asks after a quarter of the time, and waits three quarters of it for an answer. So a silent machine is
     * noticed in time. */
    GW_TRY(gw_zmq_set_int(socket, ZMQ_HEARTBEAT_IVL, timeout / 4 + 1));
    GW_TRY(gw_zmq_set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, timeout - timeout / 4));
    if (!net->keys)
        return GW_OK;
    if (server) {
        GW_TRY(gw_zmq_set_int(socket, ZMQ_CURVE_SERVER, 1));
        GW_TRY(gw_zmq_set_text(socket, ZMQ_ZAP_DOMAIN, "gradwire"));
    } else {
        GW_TRY(gw_zmq_set_text(socket, ZMQ_CURVE_PUBLICKEY, net->keys->public_key));
    }
    return gw_zmq_set_text(socket, ZMQ_CURVE_SECRETKEY, net->keys->secret_key);
}

void *gw_zmq_socket_new(struct gw_zmq_net *net, int type, bool server)
{
    void *socket = zmq_socket(net->zmq, type);
    if (!socket) {
        gw_fail(GW_ERR_SYSTEM, "no socket: %s", zmq_strerror(zmq_errno()));
        return NULL;
    }
    if (configure(net, socket, server) < 0) {
        zmq_close(socket);
        return NULL;
    }
    return socket;
}

gw_status gw_zmq_net_door(struct gw_zmq_net *net, void *socket, const char *name, int news,
                          const struct gw_zmq_limits *limits, struct gw_zmq_door **out)
{
    const struct gw_zmq_watch_options options = {.context = net->context,
                                                 .zmq = net->zmq,
                                                 .timeout_ms = net->timeout_ms,
                                                 .log = net->log.line,
                                                 .log_user = net->log.user};
    if (!net->watch)
        GW_TRY(gw_zmq_watch_begin(&options, &net->watch));
    return gw_zmq_door_open(net->watch, socket, name, news, limits, out);
}
