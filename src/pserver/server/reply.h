/* Answers to clients.
 *
 * A reply never frees. Whoever handles a request holds pointers to members and to requests that wait, and goes on with
 * them after it has answered. So a member that does not take its answer is only marked (gw_ps_member_lose); it is freed
 * in the server's loop, between two messages (gw_ps_members_sweep). */
#ifndef GW_PSERVER_SERVER_REPLY_H
#define GW_PSERVER_SERVER_REPLY_H

#include "pserver/server/state.h"

/* Sends an answer, unless it is for a member that is lost. A member whose queue is full is lost from then on. value (no
 * hold is taken from the caller) is its body. */
void gw_ps_reply(struct gw_ps_server *server, uint32_t route, const struct gw_ps_reply *reply,
                 struct gw_ps_blob *value);

/* The answer to a request that failed with that status: gw_last_error() is its sentence. number: 0, or what the
 * operation says. */
void gw_ps_reply_error(struct gw_ps_server *server, uint32_t route, const struct gw_ps_request *request,
                       gw_status status, uint64_t number);

#endif
