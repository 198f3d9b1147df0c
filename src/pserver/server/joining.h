/* Who takes part in the exchange. */
#ifndef GW_PSERVER_SERVER_JOINING_H
#define GW_PSERVER_SERVER_JOINING_H

#include "pserver/server/state.h"

/* These answer, now or later. Errors: left to the caller to answer. */
gw_status gw_ps_join_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request);
gw_status gw_ps_admit_do(struct gw_ps_server *server, const struct gw_ps_member *member,
                         const struct gw_ps_request *request);
gw_status gw_ps_members_do(struct gw_ps_server *server, const struct gw_ps_member *member,
                           const struct gw_ps_request *request);

/* A JOIN does not wait any more: its client has gone. */
void gw_ps_join_forget(struct gw_ps_server *server, struct gw_ps_member *member);

/* Answers JOINs whose time is over, and asks for the others. */
void gw_ps_joins_look(struct gw_ps_server *server);

gw_ps_presence gw_ps_presence_of(const struct gw_ps_server *server, uint32_t rank);

/* The run is over, its keys go, and another begins with round 1. */
gw_status gw_ps_run_end(struct gw_ps_server *server);

#endif
