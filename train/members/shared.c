/* What several ways to bring members together share: they connect link by link, and tell the user something. */
#include "members/members.h"
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

void gw_members_say(const struct gw_members_options *o, const struct gw_launcher *by, const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (!o->log || by->rank != 0)
        return;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    o->log(line, o->user);
}

gw_status gw_members_connect_each(struct gw_members *m, gw_context *context, uint32_t n_links, gw_link *links,
                                  gw_status (*one)(struct gw_members *, gw_context *, gw_link *))
{
    for (uint32_t k = 0; k < n_links; k++) {
        gw_status status = one(m, context, links + (size_t)k * m->count);
        for (uint32_t i = 0; status < 0 && i < k * m->count; i++)
            links[i].ops->destroy(links[i].self);
        GW_TRY(status);
    }
    return GW_OK;
}
