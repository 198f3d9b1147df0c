/* Clients that are connected, by their connections. */
#ifndef GW_PSERVER_SERVER_CONNECTED_H
#define GW_PSERVER_SERVER_CONNECTED_H

#include "pserver/server/state.h"

struct gw_ps_member *gw_ps_member_find(const struct gw_ps_server *server, uint32_t route);

/* Marks a client that does not take its answers. It gets none from here on, and is removed at the next sweep. */
void gw_ps_member_lose(struct gw_ps_server *server, struct gw_ps_member *member);

/* The list (bucket) to which the connection belongs. */
struct gw_ps_member **gw_ps_member_bucket(const struct gw_ps_server *server, uint32_t route);

#endif
