/* The log of the server: lines that go to the function `log` of its options. */
#ifndef GW_PSERVER_SERVER_LOG_H
#define GW_PSERVER_SERVER_LOG_H

#include "pserver/server/state.h"

/* Writes one line to the log of what the server does: "event key=value ...". */
#define gw_ps_log(server, ...) gw_net_log(&(server)->log, __VA_ARGS__)

/* "rank=3" or "reader", for the log. */
struct gw_ps_rank_text {
    char text[16];
};
struct gw_ps_rank_text gw_ps_rank_text(uint32_t rank);

#endif
