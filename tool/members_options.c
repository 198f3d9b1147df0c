/* Describes how members reach each other, for help. */
#include "members_options.h"
#include "base/append.h"
#include <stdio.h>

void tool_describe_links(bool alone, struct tool_links_help *help)
{
    const struct {
        char *text;
        unsigned takes;
        const char *about;
    } options[] = {
        {help->rank, GW_LINK_RANK, "which member this is, from 0 (default: what RANK or Slurm says)"},
        {help->rendezvous, GW_LINK_RENDEZVOUS, "where rank 0 listens and all meet (default: MASTER_ADDR:MASTER_PORT)"},
        {help->advertise, GW_LINK_ADVERTISE,
         "where the others reach this member (default: its address towards rank 0)"},
        {help->keys, GW_LINK_KEYS,
         "encrypt everything, and let in only members whose key is listed in this folder (gradwire keys)"},
        {help->insecure, GW_LINK_INSECURE, "without keys, let in anybody from other machines"},
        {help->spin, GW_LINK_SPIN,
         "look so many microseconds for messages before sleeping; for small models and cores to spare (default 0)"},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        char links[64];
        snprintf(options[i].text, sizeof help->rank, "%s: %s",
                 gw_members_list(options[i].takes, alone, ", ", links, sizeof links), options[i].about);
    }
    help->names[0] = 0;
    snprintf(help->text, sizeof help->text, "how members reach each other");
    const char *before = ". ";
    const struct gw_link_scheme *s;
    for (size_t i = 0; (s = gw_members_nth(i)); i++) {
        if (gw_members_is_alone(s) && !alone)
            continue;
        gw_append(help->names, sizeof help->names, "%s%s", help->names[0] ? "|" : "", s->name);
        gw_append(help->text, sizeof help->text, "%s%s: %s", before, s->name, s->help);
        before = "; ";
    }
}

void tool_show_log(const char *line, void *user)
{
    (void)user;
    tool_note("%s", line);
}

int tool_choose_members(struct gw_members_options *who)
{
    enum { THREADS = 4 };
    const int status = tool_exit_status_of_use(gw_members_choose_link(who));
    const struct gw_link_scheme *scheme = status == TOOL_DONE ? gw_members_find(who->link) : NULL;
    if (who->workers == 0 && scheme && scheme->ranks == GW_LINK_RANKS_HERE)
        who->workers = THREADS;
    return status;
}
