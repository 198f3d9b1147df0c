/* Answers to clients.
 *
 * A reply never frees a member. A function that handles a request has pointers to members and to waiting requests, and
 * uses them after it has answered. So if a member does not take its answer, it is only marked. The server's loop frees
 * it between two messages (gw_ps_members_sweep). */
#ifndef GW_PSERVER_SERVER_REPLY_H
#define GW_PSERVER_SERVER_REPLY_H

#include "pserver/server/state.h"

/* Tells epoll what to watch of a member's connection. Call it after something was sent. */
void gw_ps_watch(struct gw_ps_member *member);

/* Sends an answer, unless the member is lost. If changes wait for their commit, the answer waits, too, until
 * gw_ps_replies_release: it may tell of them. GW_PS_IN_MEMORY is taken off if the commit was good. If too many of its
 * answers wait to be sent, it is lost from then on. value: the body; the caller keeps its hold. */
void gw_ps_reply(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_reply *reply,
                 struct gw_ps_blob *value);

void gw_ps_replies_release(struct gw_ps_server *server);

/* Answers a request that failed with `status`. The sentence is that of gw_last_error(). number: 0, or the number that
 * the operation's answer has. */
void gw_ps_reply_error(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                       gw_status status, uint64_t number);

/* The same to a connection that has not been let in. It ends when it has the answer. */
void gw_ps_refuse(struct gw_ps_server *server, struct gw_net_newcomer *newcomer, const struct gw_ps_request *request,
                  gw_status status);

/* To be called if there is no room for a request of `asker`. What the server sends counts for max_bytes until it has
 * left. If another client has more unread values than its share, this drops the one that has the most, and is true. A
 * share is half of max_bytes, divided by the number of clients. */
bool gw_ps_make_room(struct gw_ps_server *server, const struct gw_ps_member *asker);

#endif
