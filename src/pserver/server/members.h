/* Clients that come and leave, and workers that have been away too long. */
#ifndef GW_PSERVER_SERVER_MEMBERS_H
#define GW_PSERVER_SERVER_MEMBERS_H

#include "pserver/server/state.h"

/* Makes a connection a member: it has said who it is. key: its public key; NULL without keys. Errors: GW_ERR_PEER (that
 * rank is here already), GW_ERR_CAPACITY (there are too many clients), GW_ERR_ARGUMENT (there is no such rank, or the
 * key is not allowed any more), GW_ERR_CLOSED (the connection has ended), GW_ERR_MEMORY. */
gw_status gw_ps_member_join(struct gw_ps_server *server, uint32_t route, int fd, const char *address, const char *key,
                            const struct gw_ps_request *hello);

/* Frees members that have left or are lost. Members are freed only here. Only the server's loop calls it, between two
 * messages. So a function that handles a request may keep a pointer to a member, whatever its answers cause. */
void gw_ps_members_sweep(struct gw_ps_server *server);

/* Forgets a member and its requests. The sweep frees it. */
void gw_ps_member_leave(struct gw_ps_server *server, struct gw_ps_member *member);

/* Handles an event: a connection has come or ended. All events are read before a message of the connection is handled.
 */
void gw_ps_connection_news(struct gw_ps_server *server, const struct gw_zmq_event *event);

/* Marks clients as lost whose keys are not allowed any more. */
void gw_ps_members_check_keys(struct gw_ps_server *server);

void gw_ps_members_free(struct gw_ps_server *server);

/* True if a worker is here that takes part in the run of plain keys. */
bool gw_ps_run_goes_on(const struct gw_ps_server *server);

/* Forgets a member that has said that it leaves. Rounds may go on without it. */
void gw_ps_member_goodbye(struct gw_ps_server *server, struct gw_ps_member *member);

/* Looks for workers that have been away too long. */
void gw_ps_members_look(struct gw_ps_server *server);

#endif
