/* Relays: one worker of a machine sends and gets for the other workers there. It is another worker for each run. */
#ifndef GW_EXCHANGE_RELAY_H
#define GW_EXCHANGE_RELAY_H

#include "exchange/state.h"

/* True if two members are on the same machine. A server is on no worker's machine. */
static inline bool gw_same_machine(const struct gw_exchange *exchange, uint32_t a, uint32_t b)
{
    return a < exchange->size && b < exchange->size && exchange->machine_of[a].first == exchange->machine_of[b].first;
}

/* The rank that sends a worker's part of a run to the owner, and gets the averages from it. The workers of a machine
 * take turns, run by run. A worker on the owner's own machine sends for itself. */
static inline uint32_t gw_relay_of(const struct gw_exchange *exchange, const struct run *run, uint32_t worker)
{
    const struct machine *machine = &exchange->machine_of[worker];
    return gw_same_machine(exchange, worker, run->owner)
               ? worker
               : exchange->by_machine[machine->first + run->index % machine->n];
}

/* True if this member is a relay for the run: it stands between the owner and other workers of its machine. */
static inline bool gw_is_relay(const struct gw_exchange *exchange, const struct run *run)
{
    const uint32_t me = exchange->rank;
    return exchange->machine_of[me].n > 1 && !gw_same_machine(exchange, run->owner, me) &&
           gw_relay_of(exchange, run, me) == me;
}

/* The rank that sends this member the averages of a run. */
static inline uint32_t gw_averages_from(const struct gw_exchange *exchange, const struct run *run)
{
    const uint32_t relay = gw_relay_of(exchange, run, exchange->rank);
    return relay == exchange->rank ? run->owner : relay;
}

/* True if a worker's push of this run comes to this member, which is the run's owner or a relay. */
static inline bool gw_pushes_here(const struct gw_exchange *exchange, const struct run *run, uint32_t worker)
{
    return run->owner == exchange->rank ? gw_relay_of(exchange, run, worker) == worker
                                        : gw_same_machine(exchange, worker, exchange->rank);
}

#endif
