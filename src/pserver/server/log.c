/* Writes the log of the server, and leaves lines out when they are too many. */
#include "pserver/server/log.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

/* how many lines may come at once, and then in each second, so that strangers cannot fill a disk */
#define LOG_ROOM 4096
#define LOG_A_SECOND 4

static bool may_log(struct gw_ps_server *server)
{
    const double now = gw_clock_seconds(), room = server->log_room + (now - server->log_at) * LOG_A_SECOND;
    server->log_room = room < LOG_ROOM ? room : LOG_ROOM;
    server->log_at = now;
    if (server->log_room < 1) {
        server->n_untold++;
        return false;
    }
    server->log_room--;
    if (server->n_untold > 0) {
        char line[64];
        snprintf(line, sizeof line, "untold lines=%" PRIu64, server->n_untold);
        server->n_untold = 0;
        server->options.log(line, server->options.log_user);
    }
    return true;
}

void gw_ps_log(struct gw_ps_server *server, const char *format, ...)
{
    if (!server->options.log || !may_log(server))
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    server->options.log(line, server->options.log_user);
}

struct gw_ps_rank_text gw_ps_rank_text(uint32_t rank)
{
    struct gw_ps_rank_text out = {"rank=reader"};
    if (rank != GW_PS_READER)
        snprintf(out.text, sizeof out.text, "rank=%u", rank);
    return out;
}
