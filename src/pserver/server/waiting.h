/* Requests that wait. They are in the queue of a key, in the order in which they came. */
#ifndef GW_PSERVER_SERVER_WAITING_H
#define GW_PSERVER_SERVER_WAITING_H

#include "pserver/server/state.h"

/* Puts a request into a key's queue, at its place in the order. */
void gw_ps_waiting_enqueue(struct gw_ps_key *queue, struct gw_ps_parked *parked);

/* Parks a request for `key` in the queue of `waits_for`; takes a hold of its own on `value`. Errors: GW_ERR_CAPACITY
 * (too many of this client wait), GW_ERR_MEMORY. */
gw_status gw_ps_waiting_park(struct gw_ps_server *server, struct gw_ps_member *member,
                             const struct gw_ps_request *request, struct gw_ps_blob *value, struct gw_ps_key *key,
                             struct gw_ps_key *waits_for);

/* Frees the request *at. Then *at is the next one in the queue. */
void gw_ps_waiting_unpark(struct gw_ps_server *server, struct gw_ps_parked **at, const struct gw_ps_key *queue);

/* True if an older request of the member for that key still waits. Older means that it came before the nth. */
bool gw_ps_waiting_before(const struct gw_ps_member *member, const struct gw_ps_key *key, uint64_t nth);

/* Returns GW_ERR_TIMEOUT, with a sentence that says for whom the request has waited too long at that key. */
gw_status gw_ps_waiting_timed_out(const struct gw_ps_server *server, const struct gw_ps_key *key,
                                  const struct gw_ps_parked *parked);

/* Notes that requests that wait for a key may go on. The store calls this. */
void gw_ps_waiting_wake(void *server, struct gw_ps_key *key);

/* refuse answers all requests that wait for keys which begin with the prefix. refuse_for answers all that wait for the
 * worker `rank`. The answers are `status`, with the sentence of the last error. */
void gw_ps_waiting_refuse(struct gw_ps_server *server, const char *prefix, gw_status status);
void gw_ps_waiting_refuse_for(struct gw_ps_server *server, uint32_t rank, gw_status status);

void gw_ps_waiting_free(struct gw_ps_server *server);

#endif
