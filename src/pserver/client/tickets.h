/* Requests on their way. A ticket is one request to one or more servers. It lives until its caller has waited for it.
 * Every call of the client begins one, and then waits for it, now or later. */
#ifndef GW_PSERVER_CLIENT_TICKETS_H
#define GW_PSERVER_CLIENT_TICKETS_H

#include "pserver/client/state.h"

/* Begins a request: makes a ticket for it, and sends its parts. request: all but what belongs to a part (id, timeout,
 * n_parts, the number of a push). server: the one that is asked, or GW_PS_BY_KEY: those on which the key lives. body:
 * the value of a push or a BRING, the lines of an AGREE; of an INIT the first parameters, which follow once the key is
 * made; NULL: none. It stays the caller's, and must stay until the ticket is freed. Errors: as gw_ps_begin. */
#define GW_PS_BY_KEY UINT32_MAX
gw_status gw_ps_ticket_begin(struct gw_ps_client *client, uint32_t server, const struct gw_ps_request *request,
                             const void *body, size_t n_bytes, struct ticket **out);

/* Sends all parts again, with what their requests say now. */
gw_status gw_ps_ticket_send(struct gw_ps_client *client, struct ticket *ticket);

/* Waits until all parts have an answer, or the deadline has passed. GW_NOT_YET: the time `until` came first. Returns
 * the first error of the parts. */
gw_status gw_ps_ticket_wait(struct gw_ps_client *client, const struct ticket *ticket, double until);

/* Finds a ticket. NULL: there is none, or the caller has waited for it already. */
struct ticket *gw_ps_ticket_find(const struct gw_ps_client *client, uint64_t id);

/* A server may answer GW_ERR_ORDER, which says "not yet". If it still does so at the deadline, this turns it into
 * GW_ERR_TIMEOUT. The sentence says what the client waited for, and why the server could not do it. Another status is
 * returned as it is. */
gw_status gw_ps_too_late(const struct gw_ps_client *client, gw_status status, const char *what);

/* What the client knows about the answer to part p. */
struct gw_ps_asked gw_ps_asked_of(const struct gw_ps_client *client, const struct ticket *ticket, uint32_t p);

/* Frees a ticket, and its second one. From here on nothing reads the caller's bytes. If it is a push without a good
 * answer, the client asks the server before the next push how many pushes it has. */
void gw_ps_ticket_free(struct gw_ps_client *client, struct ticket *ticket);

#endif
