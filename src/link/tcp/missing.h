/* Names the ranks that are missing. */
#ifndef GW_LINK_TCP_MISSING_H
#define GW_LINK_TCP_MISSING_H

#include <stdbool.h>
#include <stdint.h>

/* A list like "rank 3" or "ranks 1, 2, 5 and 37 more" of the ranks r for which there(r) is false. */
struct gw_tcp_missing {
    char text[160];
};
struct gw_tcp_missing gw_tcp_missing_ranks(uint32_t size, bool (*is_there)(const void *all, uint32_t rank),
                                           const void *all);

#endif
