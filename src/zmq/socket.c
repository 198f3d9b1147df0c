/* Sets options of sockets, and binds and connects them. */
#include "zmq/socket.h"
#include "base/error.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

gw_status gw_zmq_set_int(void *socket, int option, int value)
{
    if (zmq_setsockopt(socket, option, &value, sizeof value) == 0)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "ZeroMQ refuses the value %d for its option %d: %s", value, option,
                   zmq_strerror(zmq_errno()));
}

gw_status gw_zmq_set_text(void *socket, int option, const char *text)
{
    if (zmq_setsockopt(socket, option, text, strlen(text)) == 0)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "ZeroMQ refuses a key or a name: %s", zmq_strerror(zmq_errno()));
}

gw_status gw_zmq_bind(void *socket, const struct gw_net_address *address, char endpoint[GW_NET_ENDPOINT_BYTES])
{
    GW_TRY(gw_zmq_set_int(socket, ZMQ_IPV6, address->socket.ss_family == AF_INET6));
    size_t bytes = GW_NET_ENDPOINT_BYTES;
    if (zmq_bind(socket, address->endpoint) == 0 && zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &bytes) == 0)
        return GW_OK;
    const int why = zmq_errno();
    gw_fail(GW_ERR_SYSTEM, "this machine cannot listen at %s: %s", gw_net_place(address->endpoint),
            why == EADDRINUSE ? "another program listens there; end it, or take another port" : zmq_strerror(why));
    errno = why;
    return GW_ERR_SYSTEM;
}

gw_status gw_zmq_connect(void *socket, const char *endpoint, const char *server_key)
{
    GW_TRY(gw_zmq_set_int(socket, ZMQ_IPV6, strchr(endpoint, '[') != NULL));
    if (server_key)
        GW_TRY(gw_zmq_set_text(socket, ZMQ_CURVE_SERVERKEY, server_key));
    if (zmq_connect(socket, endpoint) != 0)
        return gw_fail(GW_ERR_SYSTEM, "the address %s cannot be connected to: %s", gw_net_place(endpoint),
                       zmq_strerror(zmq_errno()));
    return GW_OK;
}
