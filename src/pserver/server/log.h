/* The log of the server: lines that go to the function `log` of its options. */
#ifndef GW_PSERVER_SERVER_LOG_H
#define GW_PSERVER_SERVER_LOG_H

#include "pserver/server/state.h"

/* Writes one line to the log: "event key=value ...". */
void gw_ps_log(struct gw_ps_server *server, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "rank=3" or "reader", for the log. */
struct gw_ps_rank_text {
    char text[16];
};
struct gw_ps_rank_text gw_ps_rank_text(uint32_t rank);

#endif
