/* Decides who takes part in the exchange (docs/pserver-protocol.md). Before the first round is whole, and after all
 * have left, workers that JOIN are let in at once. While others train, one of them must ADMIT the new worker, from the
 * round on that it is about to begin. No server can be beyond that round, because it needs the push of the worker that
 * was asked. In modes without rounds nobody has to be asked. */
#include "pserver/server/state.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"

/* Returns GW_OK. */
static gw_status answer_number(struct gw_ps_server *server, struct gw_ps_member *member, enum gw_ps_operation operation,
                               uint64_t id, uint64_t number)
{
    gw_ps_answer_send(server, member, &(struct gw_ps_answer){.operation = operation, .id = id, .number = number}, NULL);
    return GW_OK;
}

void gw_ps_run_end(struct gw_ps_server *server)
{
    gw_fail(GW_ERR_PEER, "the run that this server served is over: another has begun");
    gw_ps_waiting_refuse(server, GW_ERR_PEER);
    gw_ps_store_drop(server->store);
    gw_free(server->context, server->agreed);
    server->agreed = NULL;
    server->first_round = 1;
    for (uint32_t r = 0; r < server->options.n_workers; r++)
        server->workers[r].agreed_as = 0;
    gw_ps_folder_note(server->folder);
    gw_ps_log(server, "run-ended");
}

/* Lets a worker take part from `round` on. If its JOIN waits, it is answered. */
static gw_status let_in(struct gw_ps_server *server, struct gw_ps_member *member, uint64_t round)
{
    GW_TRY(gw_ps_store_enter(server->store, member->rank, round));
    struct gw_ps_worker *worker = &server->workers[member->rank];
    worker->joined_as = member->incarnation;
    worker->joined_from = round;
    const bool waits = member->join_by > 0;
    worker->joined_by = waits ? member->join.id : 0;
    gw_ps_folder_note(server->folder);
    gw_ps_log(server, "takes-part rank=%u round=%llu workers=%u", member->rank, (unsigned long long)round,
              server->store->info.n_present);
    member->join_by = 0;
    return waits ? answer_number(server, member, GW_PS_JOIN, member->join.id, round) : GW_OK;
}

/* The member of that rank whose JOIN waits. NULL: there is none. */
static struct gw_ps_member *joiner(const struct gw_ps_server *server, uint32_t rank)
{
    struct gw_ps_member *member = server->workers[rank].member;
    return member && member->join_by > 0 ? member : NULL;
}

/* Workers begin with that round, and not with an earlier one. */
static void begin_with(struct gw_ps_server *server, uint64_t round)
{
    gw_ps_store_skip_to(server->store, round);
    server->first_round = round;
    gw_ps_folder_note(server->folder);
}

/* True if a worker takes part. One that has never come does not count, though rounds wait for it (if `missing` is wait
 * or stop). */
static bool takes_part(const struct gw_ps_server *server, uint32_t rank, const void *user)
{
    (void)user;
    return server->store->present[rank] && (server->workers[rank].member || server->workers[rank].away_since > 0);
}

static bool nobody_takes_part(const struct gw_ps_server *server)
{
    return !gw_ps_name_workers(server, takes_part, NULL).text[0];
}

/* All workers that took part have left, so the next ones begin. */
static void begin_again(struct gw_ps_server *server)
{
    const bool untouched = !server->store->info.has_begun && !server->agreed && server->first_round == 1;
    if (untouched || !nobody_takes_part(server))
        return;
    if (!gw_ps_store_keeps_parameters(server->store)) {
        gw_ps_run_end(server);
        return;
    }
    const uint64_t next = gw_ps_store_next_round(server->store, true);
    if (server->store->info.has_begun || next > server->first_round)
        begin_with(server, next > server->first_round ? next : server->first_round);
}

/* Lets in all workers that wait, if nobody has to be asked. */
static void let_all_in(struct gw_ps_server *server)
{
    for (uint32_t r = 0; r < server->options.n_workers; r++)
        if (joiner(server, r))
            let_in(server, joiner(server, r), server->first_round);
}

gw_status gw_ps_join_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request)
{
    if (member->rank == GW_PS_READER || !member->joins)
        return gw_fail(GW_ERR_ORDER, "only a worker that has said so at its first word joins the exchange");
    struct gw_ps_worker *worker = &server->workers[member->rank];
    bool present = server->store->present[member->rank];
    /* if it has joined already, the answer was lost */
    if (present && worker->joined_as == member->incarnation && worker->joined_by == request->id)
        return answer_number(server, member, GW_PS_JOIN, request->id, worker->joined_from);
    gw_ps_store_leave(server->store, member->rank); /* it asks again */
    begin_again(server);
    member->join = *request;
    member->join_by = gw_clock_seconds() + request->timeout_ms / 1000.0;
    const bool begun = server->store->info.has_begun || request->others_have_begun;
    if (server->options.mode != GW_PS_SYNC) {
        const uint64_t next = gw_ps_store_next_round(server->store, true);
        return let_in(server, member, next > request->round ? next : request->round);
    }
    if (begun && !nobody_takes_part(server)) {
        gw_ps_log(server, "wants-to-join rank=%u", member->rank);
        return GW_OK;
    }
    if (request->round > server->first_round) /* another server has come to that round */
        begin_with(server, request->round);
    let_all_in(server);
    return GW_OK;
}

gw_status gw_ps_admit_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request)
{
    struct gw_ps_member *other =
        request->rank < server->options.n_workers ? server->workers[request->rank].member : NULL;
    if (!other || !other->joins)
        return gw_fail(GW_ERR_PEER, "rank %u is to be admitted, and is not connected, or has not said that it joins",
                       request->rank);
    if (request->round == 0)
        return gw_fail(GW_ERR_ARGUMENT, "rank %u is to be admitted from round 0 on; rounds count from 1",
                       request->rank);
    begin_again(server);
    if (!server->store->info.has_begun && request->round > server->first_round)
        begin_with(server, request->round);
    /* If it was let in from that round on already, and the round still waits, the answer was lost, or two workers were
     * asked: its pushes stay. A worker that joins has pushed nothing since then. */
    const struct gw_ps_worker *worker = &server->workers[other->rank];
    const bool is_in = server->store->present[other->rank] && worker->joined_as == other->incarnation &&
                       worker->joined_from == request->round &&
                       gw_ps_store_next_round(server->store, true) <= request->round;
    if (other == member || !is_in)
        GW_TRY(let_in(server, other, request->round));
    return answer_number(server, member, GW_PS_ADMIT, request->id, request->round);
}

gw_ps_presence gw_ps_presence_of(const struct gw_ps_server *server, uint32_t rank)
{
    struct gw_ps_member *member = server->workers[rank].member;
    if (server->store->present[rank])
        return member ? GW_PS_PRESENT : GW_PS_AWAY;
    return joiner(server, rank) ? GW_PS_JOINING : GW_PS_ABSENT;
}

gw_status gw_ps_members_do(struct gw_ps_server *server, struct gw_ps_member *member,
                           const struct gw_ps_request *request)
{
    const uint32_t n = server->options.n_workers;
    uint8_t *bytes = gw_alloc(server->context, n, 1);
    for (uint32_t r = 0; bytes && r < n; r++)
        bytes[r] = (uint8_t)gw_ps_presence_of(server, r);
    struct gw_ps_blob *body = gw_ps_blob_new(server->context, &server->bytes, bytes, n);
    if (!body)
        return GW_ERR_MEMORY;
    struct gw_ps_answer answer = {.operation = GW_PS_MEMBERS,
                                  .id = request->id,
                                  .round = gw_ps_store_next_round(server->store, true)};
    if (server->store->info.has_begun)
        answer.run_flags |= GW_PS_HAS_BEGUN;
    if (gw_ps_store_keeps_parameters(server->store))
        answer.run_flags |= GW_PS_KEEPS_PARAMETERS;
    gw_ps_answer_send(server, member, &answer, body);
    gw_ps_blob_give(body);
    return GW_OK;
}

/* Answers a JOIN that waits with the last error. */
static void refuse(struct gw_ps_server *server, struct gw_ps_member *member, gw_status status)
{
    member->join_by = 0;
    gw_ps_answer_error(server, member, &member->join, status, 0);
}

void gw_ps_joins_refuse(struct gw_ps_server *server, gw_status status)
{
    for (uint32_t r = 0; r < server->options.n_workers; r++)
        if (joiner(server, r))
            refuse(server, joiner(server, r), status);
}

void gw_ps_joins_look(struct gw_ps_server *server)
{
    const double now = gw_clock_seconds();
    bool any = false;
    for (uint32_t r = 0; r < server->options.n_workers; r++) {
        struct gw_ps_member *member = joiner(server, r);
        if (member && member->join_by <= now)
            refuse(server, member,
                   gw_fail(GW_ERR_TIMEOUT, "rank %u has waited %u ms to be let in by one of those that take part: %s",
                           r, member->join.timeout_ms, gw_ps_name_workers(server, takes_part, NULL).text));
        any = any || joiner(server, r);
    }
    if (!any)
        return;
    if (nobody_takes_part(server)) { /* the workers for which they waited have been left out */
        begin_again(server);
        let_all_in(server);
        return;
    }
    /* one worker that takes part and is connected is asked to let them in */
    for (uint32_t r = 0; r < server->options.n_workers; r++)
        if (server->workers[r].member && server->workers[r].member->joins && server->store->present[r]) {
            answer_number(server, server->workers[r].member, GW_PS_ASK, 0, 0);
            return;
        }
}
