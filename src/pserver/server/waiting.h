/* Requests that wait: in the queue of a key, in the order in which they came. */
#ifndef GW_PSERVER_SERVER_WAITING_H
#define GW_PSERVER_SERVER_WAITING_H

#include "pserver/server/state.h"

/* Into a key's queue, at its place. */
void gw_ps_waiting_enqueue(struct gw_ps_key *queue, struct gw_ps_parked *parked);

/* Parks a request for `key` in the queue of `waits_for`; takes a hold of its own on `value`. Errors: GW_ERR_CAPACITY
 * (too many of this client wait), GW_ERR_MEMORY. */
gw_status gw_ps_waiting_park(struct gw_ps_server *server, struct gw_ps_member *member,
                             const struct gw_ps_request *request, struct gw_ps_blob *value, struct gw_ps_key *key,
                             struct gw_ps_key *waits_for);

/* Frees it; the next one in the queue takes its place. */
void gw_ps_waiting_unpark(struct gw_ps_server *server, struct gw_ps_parked **at, const struct gw_ps_key *queue);

/* Whether a request of the member for that key, older than the nth, still waits. */
bool gw_ps_waiting_before(const struct gw_ps_member *member, const struct gw_ps_key *key, uint64_t nth);

/* What one has waited for too long, at that key: GW_ERR_TIMEOUT. */
gw_status gw_ps_waiting_timed_out(const struct gw_ps_server *server, const struct gw_ps_key *key,
                                  const struct gw_ps_parked *parked);

/* The store says that requests that wait for a key may go on. */
void gw_ps_waiting_wake(void *server, struct gw_ps_key *key);

/* Answers all that wait at keys which begin with the prefix, or for a worker of that rank: the last error says why. */
void gw_ps_waiting_refuse(struct gw_ps_server *server, const char *prefix, gw_status status);
void gw_ps_waiting_refuse_for(struct gw_ps_server *server, uint32_t rank, gw_status status);

void gw_ps_waiting_free(struct gw_ps_server *server);

#endif
