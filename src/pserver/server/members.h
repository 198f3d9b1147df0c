/* Who comes and leaves, and who has been away too long. */
#ifndef GW_PSERVER_SERVER_MEMBERS_H
#define GW_PSERVER_SERVER_MEMBERS_H

#include "pserver/server/state.h"

/* A connection says who it is. key: its public key, NULL without keys. Errors: GW_ERR_PEER (that rank is here already),
 * GW_ERR_CAPACITY (too many), GW_ERR_ARGUMENT (no such rank, or the key is not allowed any more), GW_ERR_CLOSED (it has
 * ended), GW_ERR_MEMORY. */
gw_status gw_ps_member_join(struct gw_ps_server *server, uint32_t route, int fd, const char *address, const char *key,
                            const struct gw_ps_request *hello);

/* Only here members are freed, and only the loop calls it, between two messages. So whoever handles a request may hold
 * on to a member, whatever its answers do. */
void gw_ps_members_sweep(struct gw_ps_server *server);

/* Forgets it, and what it asked for. The sweep frees it. */
void gw_ps_member_leave(struct gw_ps_server *server, struct gw_ps_member *member);

/* A connection has come, or ended. What a connection said is read after both may have been told. */
void gw_ps_connection_news(struct gw_ps_server *server, const struct gw_zmq_event *event);

/* Clients whose keys are not allowed any more are lost. */
void gw_ps_members_check_keys(struct gw_ps_server *server);

void gw_ps_members_free(struct gw_ps_server *server);

/* Whether a worker is here that takes part in the run of plain keys. */
bool gw_ps_run_goes_on(const struct gw_ps_server *server);

/* Forgets it, which has said that it leaves: rounds may go on without it. */
void gw_ps_member_goodbye(struct gw_ps_server *server, struct gw_ps_member *member);

/* Looks for workers that have been away too long. */
void gw_ps_members_look(struct gw_ps_server *server);

#endif
