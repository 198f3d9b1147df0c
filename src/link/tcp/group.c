/* Asks the program that made a group whether its members are to go on meeting. */
#include "link/tcp/group.h"
#include "base/error.h"

gw_status gw_tcp_go_on(const struct gw_tcp_group *group)
{
    if (group->stop && group->stop(group->stop_user))
        return gw_fail(GW_ERR_CLOSED, "rank %u was stopped, as asked, before all members had met", group->rank);
    return GW_OK;
}
