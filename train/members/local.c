/* Members as threads of this process. */
#include "members/launcher.h"
#include "members/members.h"

static bool version(char *text, size_t capacity)
{
    (void)capacity;
    *text = '\0';
    return true;
}

static gw_status begin(const struct gw_members_options *o, struct gw_members *m)
{
    m->size = m->count = o->workers ? o->workers : 1;
    const struct gw_launcher by = gw_launcher_find();
    if (by.size > 1)
        gw_members_say(
            o, &by,
            "%s started %u ranks, and --link is local: each trains by itself, and needs an --out of its own; "
            "without --link they are joined",
            by.name, by.size);
    return GW_OK;
}

static gw_status connect_one(struct gw_members *m, gw_context *context, gw_link *links)
{
    return gw_link_local_create(context, m->size, links);
}

static gw_status connect_links(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links)
{
    return gw_members_connect_each(m, context, n_links, links, connect_one);
}

const struct gw_members_scheme gw_members_local = {
    .name = "local",
    .help = "they are threads of this process",
    .is_one_process = true,
    .version = version,
    .begin = begin,
    .connect = connect_links,
};
