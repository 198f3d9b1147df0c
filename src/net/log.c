/* Writes a log, and leaves lines out when they are too many. */
#include "net/log.h"
#include "base/clock.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

void gw_net_log(struct gw_net_log *log, const char *format, ...)
{
    char line[1024];
    if (!log->line)
        return;
    const double now = gw_clock_seconds(), recent = log->recent - (now - log->at) * log->a_second;
    log->recent = recent > 0 ? recent : 0;
    log->at = now;
    if (log->recent > log->most - 1) {
        log->n_untold++;
        return;
    }
    log->recent++;
    if (log->n_untold > 0) {
        snprintf(line, sizeof line, "untold lines=%" PRIu64, log->n_untold);
        log->n_untold = 0;
        log->line(line, log->user);
    }
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log->line(line, log->user);
}
