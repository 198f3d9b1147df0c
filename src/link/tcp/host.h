/* Rank 0's side of the meeting. */
#ifndef GW_LINK_TCP_HOST_H
#define GW_LINK_TCP_HOST_H

#include "link/tcp/group.h"

/* Lets the other members come. endpoints: where this rank listens, one for each link. Fills the peers of
 * group->endpoints, group->keys_of, group->session and group->host. */
gw_status gw_tcp_receive_guests(struct gw_tcp_group *group, const struct gw_zmq_address *rendezvous,
                                char (*endpoints)[GW_ZMQ_ENDPOINT_BYTES], double deadline);

/* Closes the door at which rank 0 answers. NULL is allowed. */
void gw_tcp_host_end(struct gw_tcp_host *host);

#endif
