/* Finds connected clients by their connections, and marks those that take no answers. */
#include "pserver/server/connected.h"

struct gw_ps_member **gw_ps_member_bucket(const struct gw_ps_server *server, uint32_t route)
{
    /* a hash, because the numbers of connections begin anywhere and count up */
    return &server->buckets[route * 2654435761u >> 8 & (server->n_buckets - 1)];
}

struct gw_ps_member *gw_ps_member_find(const struct gw_ps_server *server, uint32_t route)
{
    struct gw_ps_member *member = *gw_ps_member_bucket(server, route);
    while (member && member->route != route)
        member = member->next;
    return member;
}

void gw_ps_member_lose(struct gw_ps_server *server, struct gw_ps_member *member)
{
    server->n_lost += !member->lost;
    member->lost = true;
}
