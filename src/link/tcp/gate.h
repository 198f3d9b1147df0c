/* The gate: with keys, the thread that ZeroMQ asks (ZAP, RFC 27) whether a connection's key is allowed. One for each ZeroMQ context.
 * It says so to the group's log where it refuses. */
#ifndef GW_LINK_TCP_GATE_H
#define GW_LINK_TCP_GATE_H

#include "link/tcp/group.h"

/* Must come before the first socket with keys. */
gw_status gw_tcp_gate_open(struct gw_tcp_group *group, struct gw_tcp_gate **out);

/* NULL is allowed. Sockets that still stand let nobody in afterwards. */
void gw_tcp_gate_close(struct gw_tcp_gate *gate);

#endif
