/* The meeting: all members come to rank 0's address, say where they listen, and get the table of everybody. */
#ifndef GW_LINK_TCP_MEETING_H
#define GW_LINK_TCP_MEETING_H

#include "link/tcp/group.h"

/* endpoints: where this rank listens, one for each link. Fills the peers' endpoints of group->endpoints, group->keys_of and
 * group->session. */
gw_status gw_tcp_meet(struct gw_tcp_group *group, const struct gw_tcp_address *rendezvous,
                      char (*endpoints)[GW_TCP_ENDPOINT_BYTES], double deadline);

/* "rank 3" or "ranks 1, 2, 5 and 37 more": those for whom there(r) is false. */
struct gw_tcp_missing {
    char text[160];
};
struct gw_tcp_missing gw_tcp_missing_ranks(uint32_t size, bool (*is_there)(const void *all, uint32_t rank), const void *all);

#endif
