/* What tests expect of a call of the library: that it succeeds, or that it is refused with a status and words. */
#ifndef GW_TESTS_OUTCOME_H
#define GW_TESTS_OUTCOME_H

#include "checks.h"

#include <gradwire/status.h>

#include <string.h>

static inline void outcome_is(gw_status status, gw_status expected, const char *words, const char *call,
                              const char *file, int line)
{
    if (status == expected && (status >= 0 || strstr(gw_last_error(), words)))
        return;
    print_error("%s gives %d \"%s\", and not %d \"%s\"\n", call, status, status < 0 ? gw_last_error() : "", expected,
                words);
    _fail(file, line);
}

/* These are expressions, so several stand in one line, as a sentence. */
#define ok(call) outcome_is(call, GW_OK, "", #call, __FILE__, __LINE__)
#define refused(call, status, words) outcome_is(call, status, words, #call, __FILE__, __LINE__)

#endif
