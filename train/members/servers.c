/* Members that meet at parameter servers only, and may come and go. */
#include "base/error.h"
#include "members/launcher.h"
#include "members/members.h"

/* The servers say how many workers there are. */
gw_status gw_members_begin_alone(const struct gw_members_options *o, struct gw_members *m)
{
    uint32_t rank = o->rank, size = o->workers;
    gw_ps_client *client;
    GW_TRY(gw_launcher_place(&size, &rank));
    if (!o->servers || rank == GW_LAUNCHER_NO_RANK)
        return gw_fail(GW_ERR_ARGUMENT, "the link servers needs %s",
                       o->servers ? "--rank R (or RANK)" : "--servers HOST:PORT,...");
    m->size = o->workers;
    if (m->size == 0) {
        m->servers.rank = GW_PS_READER;
        GW_TRY(gw_members_client(m, &m->servers, &client));
        m->size = gw_ps_client_info(client).n_workers;
        gw_ps_client_destroy(client);
    }
    if (rank >= m->size)
        return gw_fail(GW_ERR_ARGUMENT, "rank %u of %u workers is invalid; ranks are 0 to %u", rank, m->size,
                       m->size - 1);
    m->first = rank, m->count = 1;
    return GW_OK;
}

/* A worker joins by itself, and may do so more than once. So its links have this rank alone. */
static gw_status open_links(gw_context *context, const struct gw_link_request *request, uint32_t n_links,
                            gw_link *links)
{
    (void)request;
    for (uint32_t k = 1; k < n_links; k++)
        GW_TRY(gw_link_local_create(context, 1, &links[k]));
    return GW_OK;
}

const struct gw_link_scheme gw_members_servers = {
    .name = "servers",
    .help = "they meet at parameter servers only, and may come and go",
    .ranks = GW_LINK_RANKS_TOLD,
    .takes = GW_LINK_RANK | GW_LINK_KEYS,
    .version = gw_tcp_version,
    .open = open_links,
};
