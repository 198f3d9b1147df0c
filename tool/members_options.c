/* Describes how members reach each other, for help. */
#include "members_options.h"
#include <stdio.h>
#include <string.h>

void tool_describe_links(bool alone, struct tool_links_help *help)
{
    size_t n = 0, t = (size_t)snprintf(help->text, sizeof help->text, "how members reach each other");
    const char *before = ". ";
    for (size_t i = 0; gw_members_schemes[i]; i++) {
        const struct gw_members_scheme *s = gw_members_schemes[i];
        if (s->is_alone && !alone)
            continue;
        if (n < sizeof help->names)
            n += (size_t)snprintf(help->names + n, sizeof help->names - n, "%s%s", n ? "|" : "", s->name);
        if (t < sizeof help->text)
            t += (size_t)snprintf(help->text + t, sizeof help->text - t, "%s%s: %s", before, s->name, s->help);
        before = "; ";
    }
}

void tool_default_members(struct gw_members_options *who)
{
    enum { THREADS = 4 };
    if (strcmp(who->link, gw_members_local.name) == 0 && who->workers == 0)
        who->workers = THREADS;
}
