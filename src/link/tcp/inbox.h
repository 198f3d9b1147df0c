/* What comes to one rank's endpoint. */
#ifndef GW_LINK_TCP_INBOX_H
#define GW_LINK_TCP_INBOX_H

#include "link/tcp/endpoint.h"

/* Waits until every peer has said HELLO and has accepted our connection. */
gw_status gw_tcp_endpoint_await(struct gw_tcp_endpoint *me, double deadline);

/* The link's function. */
gw_status gw_tcp_recv(void *self, uint32_t timeout_ms, gw_message *message);

/* For shutting: takes what has come and drops it, and learns which members are gone. */
void gw_tcp_discard(struct gw_tcp_endpoint *me);

/* Closes the copy of the connection, in_kept. */
void gw_tcp_let_go(struct gw_tcp_peer *peer);

#endif
