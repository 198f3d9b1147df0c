/* Names the status codes, and keeps the sentence about the last error of each thread. */
#include "base/error.h"
#include "base/quote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[GW_ERROR_BYTES];

const char *gw_status_text(gw_status status)
{
    switch (status) {
#define GW_STATUS_CASE(name, number, text)                                                                             \
    case name:                                                                                                         \
        return text;
        GW_STATUS_MAP(GW_STATUS_CASE)
#undef GW_STATUS_CASE
    }
    return "unknown status";
}

const char *gw_last_error(void)
{
    return last_error;
}

void gw_error_clear(void)
{
    last_error[0] = 0;
}

gw_status gw_fail(gw_status status, const char *format, ...)
{
    /* The arguments may point into last_error itself, if a sentence is built on that of a callee. They may hold what
     * others have written, and a terminal must not obey that. */
    char sentence[sizeof last_error];
    const int error = errno; /* it stays: the caller's caller may look at it */
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    gw_show(sentence, "", last_error, sizeof last_error);
    errno = error;
    return status;
}
