/* Takes the place of the status page in a build without libmicrohttpd, or without the parameter server, and says so. */
#include "status/status.h"
#include "tool.h"

int tool_status_open(gw_ps_server *server, const char *listen, bool insecure, struct tool_status **out)
{
    (void)server, (void)listen, (void)insecure, (void)out;
    return tool_wrong_use(
        "this build has no status page: libmicrohttpd was not found when it was made; leave --metrics out");
}

const char *tool_status_url(const struct tool_status *status)
{
    (void)status;
    return "";
}

void tool_status_close(struct tool_status *status)
{
    (void)status;
}
