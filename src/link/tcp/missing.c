/* Lists the ranks that are missing, for sentences. */
#include "link/tcp/state.h"
#include "base/append.h"

#define LISTED 8 /* the most ranks in a sentence */

struct gw_tcp_missing gw_tcp_missing_ranks(uint32_t size, bool (*is_there)(const void *all, uint32_t rank),
                                           const void *all)
{
    struct gw_tcp_missing list = {""};
    uint32_t n = 0;
    for (uint32_t r = 0; r < size; r++)
        n += !is_there(all, r);
    gw_append(list.text, sizeof list.text, n == 1 ? "rank" : "ranks");
    for (uint32_t r = 0, listed = 0; r < size && listed < LISTED; r++)
        if (!is_there(all, r))
            gw_append(list.text, sizeof list.text, "%s %u", listed++ ? "," : "", r);
    if (n > LISTED)
        gw_append(list.text, sizeof list.text, " and %u more", n - LISTED);
    return list;
}
