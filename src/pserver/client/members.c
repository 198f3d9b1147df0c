/* The client's part of joining: a worker joins an exchange, and admits others. */
#include "base/clock.h"
#include "base/error.h"
#include "pserver/client/state.h"
#include "pserver/client/for_exchange.h"

#include <math.h>

/* Takes the body of the answer to MEMBERS. The body has a byte for each worker, which was checked before. If one byte
 * is wrong, nothing is written. */
static gw_status take_presence(const struct gw_ps_client *client, const struct request *request,
                               gw_ps_presence *presence)
{
    const uint8_t *bytes = request->value;
    const size_t n = request->n_bytes;
    for (size_t r = 0; r < n; r++)
        if (bytes[r] > GW_PS_JOINING)
            return gw_fail(GW_ERR_PEER, "the server at %s sent an invalid state of rank %zu: %u",
                           gw_ps_place(&client->servers[0]), r, bytes[r]);
    for (size_t r = 0; r < n; r++)
        presence[r] = (gw_ps_presence)bytes[r];
    return GW_OK;
}

/* Asks one server who takes part. presence: NULL, or room for all of its workers. */
static gw_status look(struct gw_ps_client *client, uint32_t server, struct gw_ps_answer *answer,
                      gw_ps_presence *presence)
{
    struct request *request;
    GW_TRY(gw_ps_request_begin(client, server, &(struct gw_ps_request){.operation = GW_PS_MEMBERS}, NULL, 0, &request));
    gw_status status = gw_ps_request_wait(client, request, INFINITY);
    if (status == GW_OK && presence)
        status = take_presence(client, request, presence);
    *answer = request->parts[0].answer;
    gw_ps_request_free(client, request);
    return status;
}

/* Asks all servers except the first. *round: the foremost round of all. *run_flags: the flags that any of them has. */
static gw_status look_at_others(struct gw_ps_client *client, uint64_t *round, uint8_t *run_flags)
{
    struct gw_ps_answer answer;
    *round = 1;
    *run_flags = 0;
    for (uint32_t s = 1; s < client->n_servers; s++) {
        GW_TRY(look(client, s, &answer, NULL));
        *round = answer.round > *round ? answer.round : *round;
        *run_flags |= answer.run_flags;
    }
    return GW_OK;
}

/* Waits until the first server lets this worker in. run_flags: the flags of the other servers. If a run has begun
 * there, a worker must admit this one. But if all workers of that run have died, the run ends in a moment. Then nobody
 * has to admit this worker any more, and this function tells the first server so. */
static gw_status join_first(struct gw_ps_client *client, uint64_t least, uint8_t run_flags, uint64_t *round)
{
    const struct gw_ps_request join = {.operation = GW_PS_JOIN,
                                       .others_have_begun = run_flags & GW_PS_HAS_BEGUN,
                                       .round = least};
    struct request *request;
    GW_TRY(gw_ps_request_begin(client, 0, &join, NULL, 0, &request));
    struct part *part = &request->parts[0];
    gw_status status;
    for (;;) {
        uint64_t others;
        const double next_look = part->head.others_have_begun ? gw_clock_seconds() + RETRY_SECONDS : INFINITY;
        status = gw_ps_request_wait(client, request, next_look);
        if (status != GW_NOT_YET || (status = look_at_others(client, &others, &run_flags)) < 0)
            break;
        part->head.others_have_begun = run_flags & GW_PS_HAS_BEGUN;
        if (!part->head.others_have_begun && !part->done && (status = gw_ps_request_send(client, request)) < 0)
            break;
    }
    *round = part->answer.round;
    gw_ps_request_free(client, request);
    return status;
}

/* Lets worker `rank` take part from `round` on, on all servers from number `first` on. The first server comes last,
 * because it tells the worker. GW_ERR_ORDER: a server has gone on meanwhile. */
static gw_status admit(struct gw_ps_client *client, uint32_t first, uint32_t rank, uint64_t round)
{
    const struct gw_ps_request question = {.operation = GW_PS_ADMIT, .round = round, .rank = rank};
    for (uint32_t s = client->n_servers; s-- > first;)
        GW_TRY(gw_ps_client_do(client, s, &question, NULL, 0));
    return GW_OK;
}

gw_status gw_ps_join(gw_ps_client *client, uint64_t *round)
{
    if (!client || !round)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_join: %s is NULL", client ? "round" : "client");
    if (!client->joins)
        return gw_fail(GW_ERR_ORDER, "gw_ps_join is for clients whose options say that they join");
    const double deadline = gw_clock_seconds() + client->timeout_ms / 1000.0;
    gw_status status = GW_ERR_ORDER;
    *round = 0;
    while (status == GW_ERR_ORDER && gw_clock_seconds() < deadline) {
        uint64_t others, least = 1;
        uint8_t run_flags;
        GW_TRY(look_at_others(client, &others, &run_flags));
        if (*round > 0 && run_flags & GW_PS_KEEPS_PARAMETERS) /* a server with parameters goes on from that round. On
                                                            other servers the earlier run ends in a moment */
            least = others > *round ? others : *round + 1;
        GW_TRY(join_first(client, least, run_flags, round));
        status = admit(client, 1, client->rank, *round);
        if (status == GW_ERR_ORDER)
            GW_TRY(gw_ps_client_pump(client, -1, gw_clock_seconds() + RETRY_SECONDS));
    }
    return gw_ps_too_late(client, status, "taking part");
}

gw_status gw_ps_members(gw_ps_client *client, gw_ps_presence *presence, uint32_t capacity, uint64_t *next_round)
{
    GW_TRY(gw_ps_client_check(client, "gw_ps_members"));
    if (presence && capacity < client->servers[0].hello.n_workers)
        return gw_fail(GW_ERR_CAPACITY, "gw_ps_members: room for %u workers; the servers are for %u", capacity,
                       client->servers[0].hello.n_workers);
    struct gw_ps_answer answer;
    GW_TRY(look(client, 0, &answer, presence));
    if (next_round)
        *next_round = answer.round;
    return GW_OK;
}

gw_status gw_ps_admit(gw_ps_client *client, uint32_t rank, uint64_t round)
{
    GW_TRY(gw_ps_client_check(client, "gw_ps_admit"));
    return admit(client, 0, rank, round);
}
