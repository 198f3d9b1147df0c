/* Clients that come and leave, and workers that have been away too long. */
#ifndef GW_PSERVER_SERVER_MEMBERS_H
#define GW_PSERVER_SERVER_MEMBERS_H

#include "pserver/server/state.h"

/* Makes a member of a connection that has said who it is. The caller moves the connection to it. Errors: GW_ERR_PEER
 * (that rank is here already), GW_ERR_CAPACITY (there are too many clients), GW_ERR_ARGUMENT (there is no such rank, or
 * the certificate is not allowed any more), GW_ERR_MEMORY. */
gw_status gw_ps_member_join(struct gw_ps_server *server, const struct gw_net_newcomer *newcomer,
                            const struct gw_ps_request *hello, struct gw_ps_member **out);

/* Frees members that have left or are lost. Members are freed only here. Only the server's loop calls it, between two
 * messages. So a function that handles a request may keep a pointer to a member, whatever its answers cause. */
void gw_ps_members_sweep(struct gw_ps_server *server);

/* Ends the connection of a member, and forgets its requests. The sweep frees it. */
void gw_ps_member_leave(struct gw_ps_server *server, struct gw_ps_member *member);

/* Ends the connections of clients that are not allowed any more. */
void gw_ps_members_check_keys(struct gw_ps_server *server);

void gw_ps_members_free(struct gw_ps_server *server);

/* True if a worker is here that takes part in the run of plain keys. */
bool gw_ps_run_goes_on(const struct gw_ps_server *server);

/* Forgets a member that has said that it leaves. Rounds may go on without it. */
void gw_ps_member_goodbye(struct gw_ps_server *server, struct gw_ps_member *member);

/* Looks for workers that have been away too long. */
void gw_ps_members_look(struct gw_ps_server *server);

#endif
