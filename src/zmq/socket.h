/* What is done to one socket: set its options, listen, connect. */
#ifndef GW_ZMQ_SOCKET_H
#define GW_ZMQ_SOCKET_H

#include "net/address.h"

gw_status gw_zmq_set_int(void *socket, int option, int value);
gw_status gw_zmq_set_text(void *socket, int option, const char *text);

/* Binds to the address, and fills `endpoint` with it. If the address has no port, any free port is taken. If it fails,
 * errno says why as well. */
gw_status gw_zmq_bind(void *socket, const struct gw_net_address *address, char endpoint[GW_NET_ENDPOINT_BYTES]);

/* Connects to an endpoint whose server has that public key (NULL without keys). */
gw_status gw_zmq_connect(void *socket, const char *endpoint, const char *server_key);

#endif
