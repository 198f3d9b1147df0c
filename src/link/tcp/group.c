/* Makes the sockets of a group's links, all with the same options and keys, and writes the group's log. */
#include "link/tcp/group.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/endpoint.h"
#include "link/tcp/gate.h"
#include "link/tcp/keys.h"
#include "link/tcp/meeting.h"
#include "link/tcp/watch.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#define HANDSHAKE_MS 30000 /* at most, for a connection to say who it is */

void gw_tcp_group_free(struct gw_tcp_group *group)
{
    if (!group)
        return;
    gw_tcp_host_end(group->host);
    gw_tcp_gate_close(group->gate);
    gw_tcp_watch_end(group->watch);
    if (group->zmq)
        while (zmq_ctx_term(group->zmq) != 0 && zmq_errno() == EINTR)
            ;
    for (uint32_t l = 0; group->endpoints && l < group->n_links; l++)
        gw_tcp_endpoint_free(group->endpoints[l]);
    gw_tcp_keys_free(group->context, group->keys);
    gw_free(group->context, group->endpoints);
    gw_free(group->context, group->keys_of);
    gw_free(group->context, group);
}

gw_status gw_tcp_go_on(const struct gw_tcp_group *group)
{
    if (group->stop && group->stop(group->stop_user))
        return gw_fail(GW_ERR_CLOSED, "rank %u was stopped, as asked, before all members had met", group->rank);
    return GW_OK;
}

void gw_tcp_log(struct gw_tcp_group *group, const char *format, ...)
{
    enum { MOST_LINES = 200 };
    unsigned nth = group->log ? atomic_fetch_add(&group->n_logged, 1) : MOST_LINES;
    if (nth == MOST_LINES - 1)
        group->log("much was refused or dropped; from here on nothing of the kind is told", group->log_user);
    if (nth >= MOST_LINES - 1)
        return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    group->log(line, group->log_user);
}

gw_status gw_tcp_set_int(void *socket, int option, int value)
{
    if (zmq_setsockopt(socket, option, &value, sizeof value) == 0)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "ZeroMQ refuses the value %d for its option %d: %s", value, option,
                   zmq_strerror(zmq_errno()));
}

static gw_status set_text(void *socket, int option, const char *text)
{
    if (zmq_setsockopt(socket, option, text, strlen(text)) == 0)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "ZeroMQ refuses a key or a name: %s", zmq_strerror(zmq_errno()));
}

static gw_status configure(struct gw_tcp_group *group, void *socket, bool server)
{
    const int timeout = (int)(group->timeout_ms < INT32_MAX ? group->timeout_ms : INT32_MAX);
    GW_TRY(gw_tcp_set_int(socket, ZMQ_SNDHWM, 0));
    GW_TRY(gw_tcp_set_int(socket, ZMQ_RCVHWM, 0));
    GW_TRY(gw_tcp_set_int(socket, ZMQ_LINGER, 0));
    GW_TRY(gw_tcp_set_int(socket, ZMQ_BACKLOG, (int)group->size + 128));
    /* At a socket of ours the watch is sooner, and says so. */
    GW_TRY(gw_tcp_set_int(socket, ZMQ_HANDSHAKE_IVL, timeout < HANDSHAKE_MS && !server ? timeout : HANDSHAKE_MS));
    /* A machine gone silent is found out by the next question, a quarter of the time later, and no answer for the rest
     * of it. */
    GW_TRY(gw_tcp_set_int(socket, ZMQ_HEARTBEAT_IVL, timeout / 4 + 1));
    GW_TRY(gw_tcp_set_int(socket, ZMQ_HEARTBEAT_TIMEOUT, timeout - timeout / 4));
    if (!group->keys)
        return GW_OK;
    if (server) {
        GW_TRY(gw_tcp_set_int(socket, ZMQ_CURVE_SERVER, 1));
        GW_TRY(set_text(socket, ZMQ_ZAP_DOMAIN, "gradwire"));
    } else {
        GW_TRY(set_text(socket, ZMQ_CURVE_PUBLICKEY, group->keys->public_key));
    }
    return set_text(socket, ZMQ_CURVE_SECRETKEY, group->keys->secret_key);
}

void *gw_tcp_socket_new(struct gw_tcp_group *group, int type, bool server)
{
    void *socket = zmq_socket(group->zmq, type);
    if (!socket) {
        gw_fail(GW_ERR_SYSTEM, "no socket: %s", zmq_strerror(zmq_errno()));
        return NULL;
    }
    if (configure(group, socket, server) < 0) {
        zmq_close(socket);
        return NULL;
    }
    return socket;
}

gw_status gw_tcp_bind(void *socket, const struct gw_tcp_address *address, char endpoint[GW_TCP_ENDPOINT_BYTES])
{
    GW_TRY(gw_tcp_set_int(socket, ZMQ_IPV6, address->socket.ss_family == AF_INET6));
    size_t bytes = GW_TCP_ENDPOINT_BYTES;
    if (zmq_bind(socket, address->endpoint) == 0 && zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &bytes) == 0)
        return GW_OK;
    const int why = zmq_errno();
    gw_fail(GW_ERR_SYSTEM, "this machine cannot listen at %s: %s", gw_tcp_place(address->endpoint), zmq_strerror(why));
    errno = why;
    return GW_ERR_SYSTEM;
}

gw_status gw_tcp_connect(void *socket, const char *endpoint, const char *server_key)
{
    GW_TRY(gw_tcp_set_int(socket, ZMQ_IPV6, strchr(endpoint, '[') != NULL));
    if (server_key)
        GW_TRY(set_text(socket, ZMQ_CURVE_SERVERKEY, server_key));
    if (zmq_connect(socket, endpoint) != 0)
        return gw_fail(GW_ERR_SYSTEM, "the address %s cannot be connected to: %s", gw_tcp_place(endpoint),
                       zmq_strerror(zmq_errno()));
    return GW_OK;
}
