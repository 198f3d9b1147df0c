/* Forwarding a callee's error; gw_fail() of status.h makes one. */
#ifndef GW_BASE_ERROR_H
#define GW_BASE_ERROR_H

#include <gradwire/status.h>

/* Forwards an error of a callee. The sentence stays the callee's. */
#define GW_TRY(call)                        \
    do {                                    \
        gw_status gw_try_status_ = (call);  \
        if (gw_try_status_ < 0)             \
            return gw_try_status_;          \
    } while (0)

#endif
