/* Workers that join an exchange, and those that admit them. */
#ifndef GW_PSERVER_SERVER_JOINING_H
#define GW_PSERVER_SERVER_JOINING_H

#include "pserver/server/state.h"

/* These functions answer the request, now or later. If one returns an error, the caller answers. */
gw_status gw_ps_join_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request);
gw_status gw_ps_admit_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request);
gw_status gw_ps_members_do(struct gw_ps_server *server, struct gw_ps_member *member,
                           const struct gw_ps_request *request);

/* Forgets the JOIN of a client that has gone. */
void gw_ps_join_forget(struct gw_ps_server *server, struct gw_ps_member *member);

/* Answers all JOINs that wait with the last error. */
void gw_ps_joins_refuse(struct gw_ps_server *server, gw_status status);

/* Answers JOINs whose deadline has passed, and asks a worker to admit the others. */
void gw_ps_joins_look(struct gw_ps_server *server);

gw_ps_presence gw_ps_presence_of(const struct gw_ps_server *server, uint32_t rank);

/* Ends the run and drops its keys. The next run begins with round 1. */
gw_status gw_ps_run_end(struct gw_ps_server *server);

#endif
