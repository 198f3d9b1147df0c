/* Names a client in the log. */
#include "pserver/server/log.h"

#include <stdio.h>

struct gw_ps_rank_text gw_ps_rank_text(uint32_t rank)
{
    struct gw_ps_rank_text out = {"rank=reader"};
    if (rank != GW_PS_READER)
        snprintf(out.text, sizeof out.text, "rank=%u", rank);
    return out;
}
