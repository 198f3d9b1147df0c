/* Requests on their way: a ticket is one request to one or more servers, until all have answered. */
#ifndef GW_PSERVER_CLIENT_TICKETS_H
#define GW_PSERVER_CLIENT_TICKETS_H

#include "pserver/client/state.h"

/* A ticket of parts first .. first+n-1; what each asks for is filled in by the caller, who then sends it. NULL: no
 * memory. */
struct ticket *gw_ps_ticket_new(struct gw_ps_client *client, enum gw_ps_operation operation, uint32_t first,
                                uint32_t n);

/* Sends all parts; after an error the ticket is gone. */
gw_status gw_ps_ticket_send(struct gw_ps_client *client, struct ticket *ticket);

/* Until all parts have an answer, or the deadline has passed: the first error of any. */
gw_status gw_ps_ticket_wait(struct gw_ps_client *client, const struct ticket *ticket);

/* NULL: there is none, or it has been waited for. */
struct ticket *gw_ps_ticket_find(const struct gw_ps_client *client, uint64_t id);

/* What is left of GW_ERR_ORDER, which says "not yet", once it has been asked for in vain until the deadline:
 * GW_ERR_TIMEOUT, and the sentence says for what, and why not yet. */
gw_status gw_ps_too_late(const struct gw_ps_client *client, gw_status status, const char *what);

/* What the client knows of the answer to a part. */
struct gw_ps_asked gw_ps_asked_of(const struct gw_ps_client *client, uint32_t server, const struct part *part);

/* Frees it; drop first takes back what was lent of the caller's bytes. */
void gw_ps_ticket_free(struct gw_ps_client *client, struct ticket *ticket);
void gw_ps_ticket_drop(struct gw_ps_client *client, struct ticket *ticket);

/* Where there is no connection it is not sent. part NULL: no body. A small body is copied; a large one is lent. */
gw_status gw_ps_send_request(struct server *server, const struct gw_ps_request *request, const struct part *part);

#endif
