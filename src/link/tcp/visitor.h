/* The meeting's side of all ranks but rank 0. */
#ifndef GW_LINK_TCP_VISITOR_H
#define GW_LINK_TCP_VISITOR_H

#include "link/tcp/group.h"

/* Comes to rank 0. endpoints: where this rank listens, one for each link. Fills the peers of group->endpoints,
 * group->keys_of and group->session. */
gw_status gw_tcp_visit(struct gw_tcp_group *group, const struct gw_zmq_address *rendezvous,
                       char (*endpoints)[GW_ZMQ_ENDPOINT_BYTES], double deadline);

#endif
