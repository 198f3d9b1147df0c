/* Takes structs of options of other versions. */
#include "base/options.h"
#include "base/error.h"

#include <string.h>

#define MOST_BYTES 4096u /* no struct of options will be longer, so a larger number is none */

gw_status gw_take_options(const char *type, size_t first_bytes, const void *given, void *own, size_t own_bytes)
{
    size_t n_bytes;
    memcpy(&n_bytes, given, sizeof n_bytes);
    if (n_bytes < first_bytes || n_bytes > MOST_BYTES)
        return gw_fail(GW_ERR_ARGUMENT, "%s.struct_bytes is %zu, and must be sizeof(%s) = %zu", type, n_bytes, type,
                       own_bytes);
    for (size_t i = own_bytes; i < n_bytes; i++)
        if (((const unsigned char *)given)[i])
            return gw_fail(GW_ERR_ARGUMENT,
                           "%s has %zu bytes, and this library knows %zu of them; what is set behind them needs a "
                           "later version of the library",
                           type, n_bytes, own_bytes);
    memset(own, 0, own_bytes);
    memcpy(own, given, n_bytes < own_bytes ? n_bytes : own_bytes);
    return GW_OK;
}
