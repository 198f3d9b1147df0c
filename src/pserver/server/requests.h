/* The requests of clients. */
#ifndef GW_PSERVER_SERVER_REQUESTS_H
#define GW_PSERVER_SERVER_REQUESTS_H

#include "pserver/server/state.h"

/* Does what a request asks for, and answers it, now or later. value: the body of a push, else NULL. The function takes
 * over the caller's hold. */
void gw_ps_request_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                      struct gw_ps_blob *value);

/* Asks all requests of woken keys again. */
void gw_ps_requests_go_on(struct gw_ps_server *server);

/* Answers requests whose deadline has passed with an error. It names the workers that they waited for. */
void gw_ps_requests_expire(struct gw_ps_server *server);

#endif
