/* Requests on their way. A ticket is one request to one or more servers. It lives until all have answered. */
#ifndef GW_PSERVER_CLIENT_TICKETS_H
#define GW_PSERVER_CLIENT_TICKETS_H

#include "pserver/client/state.h"

/* Makes a ticket with a part for each of the servers first .. first+n-1. The caller fills in the requests of the parts,
 * and then sends the ticket. NULL: there is no memory. */
struct ticket *gw_ps_ticket_new(struct gw_ps_client *client, enum gw_ps_operation operation, uint32_t first,
                                uint32_t n);

/* Sends all parts. After an error the ticket is freed. */
gw_status gw_ps_ticket_send(struct gw_ps_client *client, struct ticket *ticket);

/* Waits until all parts have an answer, or the deadline has passed. Returns the first error of the parts. */
gw_status gw_ps_ticket_wait(struct gw_ps_client *client, const struct ticket *ticket);

/* Finds a ticket. NULL: there is none, or the caller has waited for it already. */
struct ticket *gw_ps_ticket_find(const struct gw_ps_client *client, uint64_t id);

/* A server may answer GW_ERR_ORDER, which says "not yet". If it still does so at the deadline, this turns it into
 * GW_ERR_TIMEOUT. The sentence says what the client waited for, and why the server could not do it. Another status is
 * returned as it is. */
gw_status gw_ps_too_late(const struct gw_ps_client *client, gw_status status, const char *what);

/* What the client knows about the answer to a part. */
struct gw_ps_asked gw_ps_asked_of(const struct gw_ps_client *client, uint32_t server, const struct part *part);

/* Frees a ticket. From here on nothing reads the caller's bytes. */
void gw_ps_ticket_free(struct gw_ps_client *client, struct ticket *ticket);

#endif
