/* Names the status codes, and keeps the sentence about the last error of each thread. */
#include "base/error.h"
#include "base/quote.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

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

static bool within_character(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* A sentence that is too long loses its middle: it is long because it names a path, and the reason stands behind that.
 * No character of UTF-8 is cut. */
static void shorten(char *sentence)
{
    static const char gap[] = "[...]";
    const size_t n = strlen(sentence), room = sizeof last_error - 1;
    if (n <= room)
        return;
    size_t begin = room / 4, end = n - (room - begin - (sizeof gap - 1));
    while (begin > 0 && within_character(sentence[begin]))
        begin--;
    while (end < n && within_character(sentence[end]))
        end++;
    memcpy(sentence + begin, gap, sizeof gap - 1);
    memmove(sentence + begin + sizeof gap - 1, sentence + end, n - end + 1);
}

gw_status gw_fail(gw_status status, const char *format, ...)
{
    /* The arguments may point into last_error itself, if a sentence is built on that of a callee. They may hold what
     * others have written, and a terminal must not obey that. */
    char sentence[2 * 4096 + sizeof last_error]; /* room for two paths */
    char shown[4 * sizeof last_error];           /* a byte is shown by four at most */
    const int error = errno;                     /* it stays: the caller's caller may look at it */
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    shorten(sentence);
    gw_show(sentence, "", shown, sizeof shown);
    shorten(shown);
    memcpy(last_error, shown, strlen(shown) + 1);
    errno = error;
    return status;
}
