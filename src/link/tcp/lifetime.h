/* The beginning and the end of one rank's endpoint. */
#ifndef GW_LINK_TCP_LIFETIME_H
#define GW_LINK_TCP_LIFETIME_H

#include "link/tcp/endpoint.h"

/* Makes the endpoint, and listens at `address`. endpoint gets the address with its port. */
gw_status gw_tcp_endpoint_open(struct gw_tcp_group *group, uint32_t nth, const struct gw_zmq_address *address,
                               char endpoint[GW_ZMQ_ENDPOINT_BYTES], struct gw_tcp_endpoint **out);

/* Connects to every peer and says HELLO. The table of addresses must have come. */
gw_status gw_tcp_endpoint_connect(struct gw_tcp_endpoint *me);

/* shut waits at most 2 s until all that was sent has left, and closes the sockets. free frees the memory. It must come
 * after the end of the ZeroMQ context. */
void gw_tcp_endpoint_shut(struct gw_tcp_endpoint *me);
void gw_tcp_endpoint_free(struct gw_tcp_endpoint *me);

#endif
