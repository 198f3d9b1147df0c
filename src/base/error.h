/* The last error of a thread: a status and the sentence that explains it. */
#ifndef GW_BASE_ERROR_H
#define GW_BASE_ERROR_H

#include <gradwire/status.h>

/* Stores a sentence for gw_last_error() and hands the status through:
 *     return gw_fail(GW_ERR_ARGUMENT, "clip is %g, and must be 0 or more", clip); */
gw_status gw_fail(gw_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Forwards an error of a callee. The sentence stays the callee's. */
#define GW_TRY(call)                        \
    do {                                    \
        gw_status gw_try_status_ = (call);  \
        if (gw_try_status_ < 0)             \
            return gw_try_status_;          \
    } while (0)

#endif
