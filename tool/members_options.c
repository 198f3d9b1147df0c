/* Describes how members reach each other, for help. */
#include "members_options.h"
#include "base/append.h"
#include <stdio.h>
#include <string.h>

void tool_describe_links(bool alone, struct tool_links_help *help)
{
    const struct {
        char *text;
        size_t capacity;
        unsigned takes;
        const char *about;
    } options[] = {
        {help->rank, sizeof help->rank, GW_MEMBERS_TAKES_RANK,
         "which member this is, from 0 (default: what RANK or Slurm says)"},
        {help->rendezvous, sizeof help->rendezvous, GW_MEMBERS_TAKES_RENDEZVOUS,
         "where rank 0 listens and all meet (default: MASTER_ADDR:MASTER_PORT)"},
        {help->advertise, sizeof help->advertise, GW_MEMBERS_TAKES_ADVERTISE,
         "where the others reach this member (default: its address towards rank 0)"},
        {help->keys, sizeof help->keys, GW_MEMBERS_TAKES_KEYS,
         "encrypt everything, and let in only members whose key is listed in this folder (gradwire keys)"},
        {help->insecure, sizeof help->insecure, GW_MEMBERS_TAKES_INSECURE,
         "without keys, let in anybody from other machines"},
        {help->spin, sizeof help->spin, GW_MEMBERS_TAKES_SPIN,
         "look so many microseconds for messages before sleeping; for small models and cores to spare (default 0)"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char links[64];
        snprintf(options[i].text, options[i].capacity, "%s: %s",
                 gw_members_list(options[i].takes, alone, ", ", links, sizeof links), options[i].about);
    }
    help->names[0] = 0;
    snprintf(help->text, sizeof help->text, "how members reach each other");
    const char *before = ". ";
    for (size_t i = 0; gw_members_schemes[i]; i++) {
        const struct gw_members_scheme *s = gw_members_schemes[i];
        if (s->is_alone && !alone)
            continue;
        gw_append(help->names, sizeof help->names, "%s%s", help->names[0] ? "|" : "", s->name);
        gw_append(help->text, sizeof help->text, "%s%s: %s", before, s->name, s->help);
        before = "; ";
    }
}

void tool_default_members(struct gw_members_options *who)
{
    enum { THREADS = 4 };
    if (strcmp(who->link, gw_members_local.name) == 0 && who->workers == 0)
        who->workers = THREADS;
}
