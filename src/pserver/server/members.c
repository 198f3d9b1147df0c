/* Keeps the list of connected clients. It notes which clients come, leave, or lose their connection, and when a worker
 * has been away too long. */
#include "pserver/server/members.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/server/connected.h"
#include "pserver/server/joining.h"
#include "pserver/server/kept.h"
#include "pserver/server/log.h"
#include "pserver/server/waiting.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define TOLD_SECONDS 10.0

static struct gw_ps_member *member_of_fd(const struct gw_ps_server *server, uint32_t fd)
{
    for (uint32_t b = 0; b < server->n_buckets; b++)
        for (struct gw_ps_member *m = server->buckets[b]; m; m = m->next)
            if ((uint32_t)m->fd == fd)
                return m;
    return NULL;
}

/* Checks that all clients list the same servers in the same order, because keys are spread by this list. The first
 * client tells it. It holds as long as a client is connected or a key exists. */
static gw_status check_list(struct gw_ps_server *server, const struct gw_ps_request *hello)
{
    if (hello->n_servers == 0 || hello->place >= hello->n_servers)
        return gw_fail(GW_ERR_ARGUMENT, "this client says that the server is number %u of its %u", hello->place + 1,
                       hello->n_servers);
    const bool stands = server->n_members > 0 || gw_ps_store_info(server->store).n_keys > 0;
    if (server->n_servers && stands && (server->n_servers != hello->n_servers || server->place != hello->place))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "this client lists the server as number %u of %u, and others list it as number %u of %u; all "
            "clients must list the same servers in the same order (for another list, start the servers anew)",
            hello->place + 1, hello->n_servers, server->place + 1, server->n_servers);
    server->place = hello->place;
    server->n_servers = hello->n_servers;
    return GW_OK;
}

static gw_status may_join(struct gw_ps_server *server, const struct gw_ps_request *hello)
{
    uint64_t rank = hello->hello_rank;
    GW_TRY(check_list(server, hello));
    if (rank == GW_PS_READER)
        return GW_OK;
    if (rank >= server->options.n_workers)
        return gw_fail(GW_ERR_ARGUMENT, "this server is for %u workers, of ranks 0 to %u; a client came as rank %llu",
                       server->options.n_workers, server->options.n_workers - 1, (unsigned long long)rank);
    struct gw_ps_member *there = server->workers[rank].member;
    if (!there)
        return GW_OK;
    if (there->incarnation != hello->incarnation)
        return gw_fail(GW_ERR_PEER,
                       "rank %llu is here already, from %s; only when that one has left or is gone another can come",
                       (unsigned long long)rank, there->address);
    gw_ps_member_leave(server, there); /* it is the same client on a new connection */
    return GW_OK;
}

bool gw_ps_run_goes_on(const struct gw_ps_server *server)
{
    for (uint32_t r = 0; r < server->options.n_workers; r++) {
        const struct gw_ps_worker *worker = &server->workers[r];
        if (worker->came_as && worker->member && worker->member->incarnation == worker->came_as)
            return true;
    }
    return false;
}

/* Notes that a worker is here, perhaps again. */
static gw_status come(struct gw_ps_server *server, struct gw_ps_member *member)
{
    struct gw_ps_worker *worker = &server->workers[member->rank];
    worker->member = member;
    worker->away_since = 0;
    if (!member->joins && (member->was_here || gw_ps_run_goes_on(server)))
        worker->came_as = member->incarnation;
    if (member->joins && worker->joined_as != member->incarnation) /* another client took part under this rank */
        gw_ps_store_leave(server->store, member->rank);
    if (member->joins || gw_ps_store_is_present(server->store, member->rank))
        return GW_OK;
    return gw_ps_store_enter(server->store, member->rank, "", 0);
}

gw_status gw_ps_member_join(struct gw_ps_server *server, uint32_t route, int fd, const char *address, const char *key,
                            const struct gw_ps_request *hello)
{
    struct gw_zmq_keys *keys = server->net.keys;
    if (keys && !gw_zmq_keys_allow(keys, key ? key : "")) /* the key may have been allowed when the connection came */
        return gw_fail(GW_ERR_ARGUMENT, "the identity %s is not in the server's allowed/ any more",
                       key ? key : "(none)");
    if (gw_ps_member_find(server, route))
        return gw_fail(GW_ERR_ORDER, "this connection has said HELLO before");
    if (gw_zmq_has_ended(&server->ended, fd))
        return gw_fail(GW_ERR_CLOSED, "this connection has ended");
    struct gw_ps_member *before = member_of_fd(server, (uint32_t)fd);
    /* an earlier connection with this number said HELLO and ended, and this one came, before the server read any of
     * that */
    if (before)
        gw_ps_member_leave(server, before);
    GW_TRY(may_join(server, hello));
    if (server->n_members >= server->options.max_clients)
        return gw_fail(GW_ERR_CAPACITY, "this server has %u clients, as many as it takes (--max-clients)",
                       server->n_members);
    struct gw_ps_member *member = gw_calloc(server->context, 1, sizeof *member);
    if (!member)
        return GW_ERR_MEMORY;
    struct gw_ps_member **bucket = gw_ps_member_bucket(server, route);
    *member = (struct gw_ps_member){.next = *bucket,
                                    .route = route,
                                    .fd = fd,
                                    .rank = (uint32_t)hello->hello_rank,
                                    .incarnation = hello->incarnation,
                                    .joins = hello->hello_flags & GW_PS_HELLO_JOINS,
                                    .was_here = hello->hello_flags & GW_PS_HELLO_AGAIN,
                                    .since = time(NULL)};
    snprintf(member->address, sizeof member->address, "%s", address);
    snprintf(member->key, sizeof member->key, "%s", key ? key : "");
    *bucket = member;
    server->n_members++;
    return member->rank == GW_PS_READER ? GW_OK : come(server, member);
}

void gw_ps_member_leave(struct gw_ps_server *server, struct gw_ps_member *member)
{
    struct gw_ps_member **at = gw_ps_member_bucket(server, member->route);
    while (*at != member)
        at = &(*at)->next;
    *at = member->next;
    server->n_members--;
    gw_ps_join_forget(server, member);
    if (server->door) /* if not, the server is ending */
        gw_zmq_door_dismiss(server->door, member->fd);
    if (member->rank != GW_PS_READER && server->workers[member->rank].member == member) {
        server->workers[member->rank].member = NULL;
        server->workers[member->rank].away_since = gw_clock_seconds();
        server->workers[member->rank].gone_at = time(NULL);
    }
    for (struct gw_ps_parked *p = member->parked; p; p = p->member_next)
        p->member = NULL;
    server->n_lost -= member->lost;
    member->next = server->gone;
    server->gone = member;
}

static void leave_if_lost(struct gw_ps_server *server, struct gw_ps_member *first)
{
    for (struct gw_ps_member *next, *member = first; member; member = next) {
        next = member->next;
        if (!member->lost)
            continue;
        gw_ps_log(server, "dropped %s address=%s reason=\"it does not take its answers\"",
                  gw_ps_rank_text(member->rank).text, member->address);
        gw_ps_member_leave(server, member);
    }
}

void gw_ps_members_sweep(struct gw_ps_server *server)
{
    for (uint32_t b = 0; server->n_lost > 0 && b < server->n_buckets; b++)
        leave_if_lost(server, server->buckets[b]);
    while (server->gone) {
        struct gw_ps_member *member = server->gone;
        server->gone = member->next;
        gw_free(server->context, member);
    }
}

/* Handles a BYE. Rounds do not wait for a worker that had joined the exchange. For other workers they wait if `missing`
 * says so. */
void gw_ps_member_goodbye(struct gw_ps_server *server, struct gw_ps_member *member)
{
    const uint32_t rank = member->rank;
    const bool was_of_run = rank != GW_PS_READER && server->workers[rank].came_as == member->incarnation;
    const bool for_good = rank != GW_PS_READER && (member->joins || server->options.missing == GW_PS_MISSING_CONTINUE);
    gw_ps_member_leave(server, member);
    if (was_of_run)
        server->workers[rank].came_as = 0;
    if (rank != GW_PS_READER && server->workers[rank].agreed_as) { /* it will not come back to this run */
        server->workers[rank].agreed_as = 0;
        gw_ps_note_worker(server, rank);
    }
    if (!for_good)
        return;
    server->workers[rank].away_since = 0;
    gw_ps_store_leave(server->store, rank);
}

/* True if somebody would go on without the workers that are away, or waits to begin. If all workers are away, the
 * reason must be this server or its network. */
static bool somebody_goes_on(const struct gw_ps_server *server)
{
    for (uint32_t r = 0; r < server->options.n_workers; r++)
        if (server->workers[r].member)
            return true;
    return false;
}

void gw_ps_members_look(struct gw_ps_server *server)
{
    const double now = gw_clock_seconds(), limit = server->options.away_ms / 1000.0;
    if (!somebody_goes_on(server)) /* when the first one is back, the others get the full time again */
        for (uint32_t r = 0; r < server->options.n_workers; r++)
            server->workers[r].away_since = server->workers[r].away_since > 0 ? now : 0;
    for (uint32_t r = 0; server->options.missing != GW_PS_MISSING_WAIT && r < server->options.n_workers; r++) {
        struct gw_ps_worker *worker = &server->workers[r];
        if (worker->away_since == 0 || now - worker->away_since < limit || !gw_ps_store_is_present(server->store, r))
            continue;
        if (server->options.missing == GW_PS_MISSING_STOP) {
            gw_ps_waiting_refuse_for(server, r,
                                     gw_fail(GW_ERR_PEER, "rank %u is gone, and this server's word for that is to stop",
                                             r));
            continue;
        }
        worker->away_since = 0;
        gw_ps_store_leave(server->store, r);
        gw_ps_log(server, "left-out rank=%u away_ms=%u round=%llu workers=%u", r, server->options.away_ms,
                  (unsigned long long)gw_ps_store_next_round(server->store, ""), gw_ps_store_n_present(server->store));
    }
}

/* Why ZeroMQ did not let a connection in, before it said who it is. NULL: the event is about something else. If its key
 * is not allowed, the gate writes that into the log. */
static const char *why_unspoken(const struct gw_ps_server *server, const struct gw_zmq_event *event)
{
    /* a client that sees that the keys do not match ends the connection at once */
    if (event->what == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
        return server->options.keys ? "it went before it said who it is; a client without an identity does so (--keys)"
                                    : "it went before it said who it is; a client with an identity does so (--keys)";
    if (event->what != ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)
        return NULL;
    if (event->value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH)
        return server->options.keys ? "it has no identity, and this server takes only clients that have one (--keys)"
                                    : "it has an identity, and this server has none (--keys)";
    if (event->value == ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC)
        return "it takes this server for another: the identity that it expects is not this server's";
    return "it does not speak as clients do";
}

/* Clients try again and again. So for some seconds the same line is not written again for the same address. */
static void tell_unspoken(struct gw_ps_server *server, uint32_t fd)
{
    const char *address = gw_zmq_caller(&server->callers, (int)fd);
    const double now = gw_clock_seconds();
    if (server->told.why == server->unspoken && strcmp(server->told.address, address) == 0 &&
        now - server->told.at < TOLD_SECONDS)
        return;
    server->told.why = server->unspoken;
    server->told.at = now;
    snprintf(server->told.address, sizeof server->told.address, "%s", address);
    gw_ps_log(server, "refused address=%s reason=\"%s\"", address[0] ? address : "?", server->unspoken);
}

void gw_ps_connection_news(struct gw_ps_server *server, const struct gw_zmq_event *event)
{
    const char *why = why_unspoken(server, event);
    if (event->what == ZMQ_EVENT_ACCEPTED)
        gw_zmq_caller_note(&server->callers, (int)event->value);
    else if (event->what == ZMQ_EVENT_DISCONNECTED && server->unspoken)
        tell_unspoken(server, event->value);
    if (why || event->what == ZMQ_EVENT_DISCONNECTED)
        server->unspoken = why;
    /* if there is no memory for this, a client that leaves at once may be taken for one that stays */
    gw_zmq_ended_note(&server->ended, server->context, event);
    struct gw_ps_member *lost = event->what == ZMQ_EVENT_DISCONNECTED ? member_of_fd(server, event->value) : NULL;
    if (!lost)
        return;
    gw_ps_log(server, "lost %s address=%s", gw_ps_rank_text(lost->rank).text, lost->address);
    gw_ps_member_leave(server, lost);
}

void gw_ps_members_check_keys(struct gw_ps_server *server)
{
    struct gw_zmq_keys *keys = server->net.keys;
    const uint64_t nth = keys ? keys->nth : 0;
    if (nth == server->keys_nth)
        return;
    server->keys_nth = nth;
    for (uint32_t b = 0; b < server->n_buckets; b++)
        for (struct gw_ps_member *member = server->buckets[b], *next; member; member = next) {
            next = member->next;
            if (gw_zmq_keys_allow(keys, member->key))
                continue;
            gw_ps_log(server, "dropped %s address=%s reason=\"its identity %s is not allowed any more\"",
                      gw_ps_rank_text(member->rank).text, member->address, member->key);
            gw_ps_member_leave(server, member);
        }
}

void gw_ps_members_free(struct gw_ps_server *server)
{
    for (uint32_t b = 0; server->buckets && b < server->n_buckets; b++)
        while (server->buckets[b])
            gw_ps_member_leave(server, server->buckets[b]);
    gw_ps_members_sweep(server);
    gw_free(server->context, server->buckets);
    gw_free(server->context, server->workers);
    gw_zmq_ended_free(&server->ended, server->context);
}
