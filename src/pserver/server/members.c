/* Keeps the list of connected clients. It notes which clients come, leave, or lose their connection, and when a worker
 * has been away too long. */
#include "pserver/server/state.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

#include <stdio.h>
#include <time.h>

struct gw_ps_member_text gw_ps_member_text(const struct gw_ps_member *member)
{
    struct gw_ps_member_text out;
    char rank[16] = "reader";
    if (member->rank != GW_PS_READER)
        snprintf(rank, sizeof rank, "%u", member->rank);
    snprintf(out.text, sizeof out.text, "rank=%s address=%s", rank, member->c.peer.host);
    return out;
}

/* Checks that all clients list the same servers in the same order, because keys are spread by this list. The first
 * client tells it. It holds as long as a client is connected or a key exists. */
static gw_status check_list(struct gw_ps_server *server, const struct gw_ps_request *hello)
{
    if (hello->n_servers == 0 || hello->place >= hello->n_servers)
        return gw_fail(GW_ERR_ARGUMENT, "this client says that the server is number %u of its %u", hello->place + 1,
                       hello->n_servers);
    const bool stands = server->n_members > 0 || server->store->names.n > 0;
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
                       (unsigned long long)rank, there->c.peer.host);
    gw_ps_member_leave(server, there); /* it is the same client on a new connection */
    return GW_OK;
}

gw_status gw_ps_run_look(const struct gw_ps_server *server, bool of_exchange, bool *is_over)
{
    bool may_go_on = false;
    *is_over = false;
    for (uint32_t r = 0; r < server->options.n_workers; r++) {
        const struct gw_ps_worker *worker = &server->workers[r];
        const uint64_t client = of_exchange ? worker->agreed_as : worker->came_as;
        if (client && worker->member && worker->member->incarnation == client)
            return GW_OK;
        /* no other client has its rank, and it has not been away long enough to be gone */
        if (client && !worker->member && worker->away_since > 0 &&
            gw_clock_seconds() - worker->away_since < server->options.away_ms / 1000.0)
            may_go_on = true;
    }
    *is_over = true;
    return may_go_on
               ? gw_fail(GW_ERR_ORDER, "workers of this server's run are not connected, and may be back in a moment")
               : GW_OK;
}

/* Notes that a worker is here, perhaps again. */
static gw_status come(struct gw_ps_server *server, struct gw_ps_member *member)
{
    struct gw_ps_worker *worker = &server->workers[member->rank];
    bool is_over;
    worker->member = member;
    worker->away_since = 0;
    gw_ignore(gw_ps_run_look(server, false, &is_over));
    if (!member->joins && (member->was_here || !is_over))
        worker->came_as = member->incarnation;
    if (member->joins && worker->joined_as != member->incarnation) /* another client took part under this rank */
        gw_ps_store_leave(server->store, member->rank);
    if (member->joins || server->store->present[member->rank])
        return GW_OK;
    return gw_ps_store_enter(server->store, member->rank, 0);
}

gw_status gw_ps_member_join(struct gw_ps_server *server, const struct gw_net_newcomer *newcomer,
                            const struct gw_ps_request *hello, struct gw_ps_member **out)
{
    const struct gw_net_identity *identity = server->keys ? &newcomer->c.tls->peer : NULL;
    if (identity && !gw_net_keys_allow(server->keys, identity)) /* it may have been allowed when the connection came */
        return gw_fail(GW_ERR_ARGUMENT, "the certificate %s is not in the server's allowed/ any more",
                       gw_net_identity_write(identity).text);
    GW_TRY(may_join(server, hello));
    if (server->n_members >= server->options.max_clients)
        return gw_fail(GW_ERR_CAPACITY, "this server has %u clients, as many as it takes (--max-clients)",
                       server->n_members);
    struct gw_ps_member *member = gw_calloc(server->context, 1, sizeof *member);
    if (!member)
        return GW_ERR_MEMORY;
    *member = (struct gw_ps_member){.server = server,
                                    .c = {.fd = -1, .peer = newcomer->c.peer},
                                    .rank = (uint32_t)hello->hello_rank,
                                    .incarnation = hello->incarnation,
                                    .joins = hello->hello_flags & GW_PS_HELLO_JOINS,
                                    .was_here = hello->hello_flags & GW_PS_HELLO_AGAIN,
                                    .since = time(NULL)};
    LIST_INSERT_HEAD(&server->members, member, link);
    server->n_members++;
    *out = member;
    gw_status status = member->rank == GW_PS_READER ? GW_OK : come(server, member);
    if (status < 0)
        gw_ps_member_leave(server, member);
    return status;
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

/* The run stopped because a worker was gone, and now all have gone. So that worker takes no part in the next run
 * either, unless it joins it. */
static void end_stopped_run(struct gw_ps_server *server)
{
    if (!server->stopped || somebody_goes_on(server))
        return;
    for (uint32_t r = 0; r < server->options.n_workers; r++)
        if (server->workers[r].joined_as)
            gw_ps_store_leave(server->store, r);
    server->stopped = false;
}

void gw_ps_member_leave(struct gw_ps_server *server, struct gw_ps_member *member)
{
    LIST_REMOVE(member, link);
    LIST_INSERT_HEAD(&server->gone, member, link);
    server->n_members--;
    server->n_more -= member->has_more;
    member->has_more = false;
    server->receiving -= member->receiving;
    if (member->receiving)
        gw_free(server->context, member->c.body); /* what has come of a value */
    member->receiving = 0;
    gw_net_close(&member->c);
    if (member->rank != GW_PS_READER && server->workers[member->rank].member == member) {
        server->workers[member->rank].member = NULL;
        server->workers[member->rank].away_since = gw_clock_seconds();
        server->workers[member->rank].gone_at = time(NULL);
    }
    while (!LIST_EMPTY(&member->waiting))
        gw_ps_waiting_remove(server, LIST_FIRST(&member->waiting));
    server->n_lost -= member->lost;
    member->lost = true; /* nothing is sent to it any more */
    end_stopped_run(server);
}

void gw_ps_members_sweep(struct gw_ps_server *server)
{
    for (struct gw_ps_member *member = LIST_FIRST(&server->members), *next; member && server->n_lost; member = next) {
        next = LIST_NEXT(member, link);
        if (!member->lost)
            continue;
        gw_ps_log(server, "dropped %s reason=\"it does not take its answers\"", gw_ps_member_text(member).text);
        gw_ps_member_leave(server, member);
    }
    for (struct gw_ps_member *member; (member = LIST_FIRST(&server->gone));) {
        LIST_REMOVE(member, link);
        gw_free(server->context, member);
    }
}

/* Handles a BYE. Rounds do not wait for a worker that had joined the exchange. For other workers they wait if `missing`
 * says so. */
void gw_ps_member_goodbye(struct gw_ps_server *server, struct gw_ps_member *member)
{
    gw_ps_member_leave(server, member);
    if (member->rank == GW_PS_READER)
        return;
    struct gw_ps_worker *worker = &server->workers[member->rank];
    if (worker->came_as == member->incarnation)
        worker->came_as = 0;
    if (worker->agreed_as) { /* it will not come back to this run */
        worker->agreed_as = 0;
        gw_ps_folder_note(server->folder);
    }
    if (!member->joins && server->options.missing != GW_PS_MISSING_CONTINUE)
        return;
    worker->away_since = 0;
    gw_ps_store_leave(server->store, member->rank);
}

void gw_ps_members_look(struct gw_ps_server *server)
{
    const double now = gw_clock_seconds(), limit = server->options.away_ms / 1000.0;
    if (!somebody_goes_on(server)) /* when the first one is back, the others get the full time again */
        for (uint32_t r = 0; r < server->options.n_workers; r++)
            server->workers[r].away_since = server->workers[r].away_since > 0 ? now : 0;
    for (uint32_t r = 0; server->options.missing != GW_PS_MISSING_WAIT && r < server->options.n_workers; r++) {
        struct gw_ps_worker *worker = &server->workers[r];
        if (worker->away_since == 0 || now - worker->away_since < limit || !server->store->present[r])
            continue;
        if (server->options.missing == GW_PS_MISSING_STOP) {
            server->stopped = true;
            gw_fail(GW_ERR_CLOSED, "rank %u is gone, and this server runs with --missing stop", r);
            gw_ps_waiting_refuse_for(server, r, GW_ERR_CLOSED);
            gw_ps_joins_refuse(server, GW_ERR_CLOSED);
            continue;
        }
        worker->away_since = 0;
        gw_ps_store_leave(server->store, r);
        const uint64_t of_exchange = gw_ps_store_next_round(server->store, true),
                       of_others = gw_ps_store_next_round(server->store, false);
        gw_ps_log(server, "left-out rank=%u away_ms=%u round=%llu workers=%u", r, server->options.away_ms,
                  (unsigned long long)(of_exchange > of_others ? of_exchange : of_others),
                  server->store->info.n_present);
    }
}

void gw_ps_members_check_keys(struct gw_ps_server *server)
{
    if (!server->keys)
        return;
    gw_ignore(gw_net_keys_look(server->keys)); /* if the folder cannot be read, the last list counts */
    if (server->keys->n_changes == server->keys_changes)
        return;
    server->keys_changes = server->keys->n_changes;
    for (struct gw_ps_member *member = LIST_FIRST(&server->members), *next; member; member = next) {
        const struct gw_net_identity *identity = &member->c.tls->peer;
        next = LIST_NEXT(member, link);
        if (gw_net_keys_allow(server->keys, identity))
            continue;
        gw_ps_log(server, "dropped %s reason=\"its certificate %s is not allowed any more\"",
                  gw_ps_member_text(member).text, gw_net_identity_write(identity).text);
        gw_ps_member_leave(server, member);
    }
}
