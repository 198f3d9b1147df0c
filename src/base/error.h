/* Passes a callee's error on to the caller. gw_fail() of status.h makes an error. */
#ifndef GW_BASE_ERROR_H
#define GW_BASE_ERROR_H

#include <gradwire/status.h>

/* Forwards an error of a callee. The sentence stays the callee's. */
#define GW_TRY(call)                                                                                                   \
    do {                                                                                                               \
        gw_status gw_try_status_ = (call);                                                                             \
        if (gw_try_status_ < 0)                                                                                        \
            return gw_try_status_;                                                                                     \
    } while (0)

/* Says that a call cannot fail here, or that its failure changes nothing. */
static inline void gw_ignore(gw_status status)
{
    (void)status;
}

#endif
