/* The gate of a group with keys: a thread that ZeroMQ asks (ZAP, RFC 27) whether a connection's key is allowed. There
 * is one for each ZeroMQ context. If it refuses, it says so in the group's log. */
#ifndef GW_LINK_TCP_GATE_H
#define GW_LINK_TCP_GATE_H

#include "link/tcp/group.h"

/* Must come before the first socket with keys. */
gw_status gw_tcp_gate_open(struct gw_tcp_group *group, struct gw_tcp_gate **out);

/* NULL is allowed. Sockets that still stand let nobody in afterwards. */
void gw_tcp_gate_close(struct gw_tcp_gate *gate);

#endif
