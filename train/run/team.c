/* What a team's workers and its loop both do. */
#include "run/team.h"

void gw_team_fail(const struct gw_team *team, uint32_t index, gw_status status, const char *text)
{
    for (uint32_t kind = 0; kind < team->n_links; kind++) {
        gw_link link = gw_team_link(team, kind, index);
        if (link.ops)
            gw_link_fail(&link, status, text);
    }
}
