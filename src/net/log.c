/* Writes lines about strangers, and stops when they are too many. */
#include "net/log.h"

#include <stdarg.h>
#include <stdio.h>

void gw_net_log(struct gw_net_log *log, const char *format, ...)
{
    enum { MOST_LINES = 200 };
    unsigned nth = log->line ? atomic_fetch_add(&log->n_told, 1) : MOST_LINES;
    if (nth == MOST_LINES - 1)
        log->line("untold reason=\"much was refused or dropped; from here on nothing of the kind is told\"", log->user);
    if (nth >= MOST_LINES - 1)
        return;
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log->line(line, log->user);
}
