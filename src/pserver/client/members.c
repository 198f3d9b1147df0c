/* The client's part in who takes part: it joins an exchange, and lets others in. */
#include "base/clock.h"
#include "base/error.h"
#include "pserver/client/for_exchange.h"
#include "pserver/client/tickets.h"

#include <string.h>

/* Asks one server something that is about workers. body: NULL, or room for a byte for each of its workers. */
static gw_status ask(struct gw_ps_client *client, uint32_t server, const struct gw_ps_request *question,
                     struct gw_ps_reply *reply, uint8_t *body)
{
    struct ticket *ticket = gw_ps_ticket_new(client, question->operation, server, 1);
    if (!ticket)
        return GW_ERR_MEMORY;
    struct part *part = &ticket->parts[0];
    part->request.number = question->number;
    part->request.rank = question->rank;
    GW_TRY(gw_ps_ticket_send(client, ticket));
    gw_status status = gw_ps_ticket_wait(client, ticket);
    if (status == GW_OK && body) /* checked when it came: a byte for each worker */
        memcpy(body, zmq_msg_data(&part->value), zmq_msg_size(&part->value));
    if (status == GW_OK && reply)
        *reply = part->reply;
    gw_ps_ticket_free(client, ticket);
    return status;
}

/* Where the servers after the first are: the foremost round, and what is so on any (flags of MEMBERS). */
static gw_status look_at_others(struct gw_ps_client *client, uint64_t *round, uint8_t *code)
{
    struct gw_ps_reply reply = {0};
    *round = 1;
    *code = 0;
    for (uint32_t s = 1; s < client->n_servers; s++) {
        GW_TRY(ask(client, s, &(struct gw_ps_request){.operation = GW_PS_MEMBERS}, &reply, NULL));
        *round = reply.number > *round ? reply.number : *round;
        *code |= reply.code;
    }
    return GW_OK;
}

/* Waits to be let in on the first server. code: what is so on the others. That a run has begun on them may be over in a
 * moment, if it was one whose workers have all died: then nobody has to admit this one any more, and the first
 * server is told so. */
static gw_status join_first(struct gw_ps_client *client, uint64_t least, uint8_t code, uint64_t *round)
{
    struct ticket *ticket = gw_ps_ticket_new(client, GW_PS_JOIN, 0, 1);
    if (!ticket)
        return GW_ERR_MEMORY;
    struct part *part = &ticket->parts[0];
    part->request.code = code & GW_PS_HAS_BEGUN;
    part->request.number = least;
    GW_TRY(gw_ps_ticket_send(client, ticket));
    gw_status status = GW_OK;
    while (status == GW_OK && part->request.code && !part->done && gw_clock_seconds() < ticket->deadline) {
        const double next_look = gw_clock_seconds() + RETRY_SECONDS;
        while (status == GW_OK && !part->done && gw_clock_seconds() < next_look)
            status = gw_ps_client_pump(client, -1, next_look);
        uint64_t others;
        if (status == GW_OK && !part->done)
            status = look_at_others(client, &others, &code);
        if (status < 0 || part->done || code & GW_PS_HAS_BEGUN)
            continue;
        part->request.code = 0;
        GW_TRY(gw_ps_ticket_send(client, ticket));
    }
    if (status == GW_OK)
        status = gw_ps_ticket_wait(client, ticket);
    *round = part->reply.number;
    gw_ps_ticket_free(client, ticket);
    return status;
}

/* Takes part on the servers after the first as well. GW_ERR_ORDER: one has gone on meanwhile. */
static gw_status join_others(struct gw_ps_client *client, uint64_t round)
{
    for (uint32_t s = 1; s < client->n_servers; s++)
        GW_TRY(ask(client, s, &(struct gw_ps_request){.operation = GW_PS_ADMIT, .number = round, .rank = client->rank},
                   NULL, NULL));
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
        uint8_t code;
        GW_TRY(look_at_others(client, &others, &code));
        if (*round > 0 && code & GW_PS_KEEPS_PARAMETERS) /* that server goes on from there; of others the run before is
                                                            over in a moment */
            least = others > *round ? others : *round + 1;
        GW_TRY(join_first(client, least, code, round));
        status = join_others(client, *round);
        if (status == GW_ERR_ORDER)
            GW_TRY(gw_ps_client_pump(client, -1, gw_clock_seconds() + RETRY_SECONDS));
    }
    return gw_ps_too_late(client, status, "taking part");
}

bool gw_ps_is_asked(gw_ps_client *client)
{
    return atomic_exchange(&client->asked, false);
}

uint32_t gw_ps_n_workers(const gw_ps_client *client)
{
    return client->servers[0].n_workers;
}

gw_status gw_ps_members(gw_ps_client *client, uint8_t *presence, uint32_t capacity, uint64_t *next_round)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_members: client is NULL");
    if (presence && capacity < client->servers[0].n_workers)
        return gw_fail(GW_ERR_CAPACITY, "gw_ps_members: room for %u workers; the servers are for %u", capacity,
                       client->servers[0].n_workers);
    struct gw_ps_reply reply = {0};
    GW_TRY(ask(client, 0, &(struct gw_ps_request){.operation = GW_PS_MEMBERS}, &reply, presence));
    for (uint32_t r = 0; presence && r < client->servers[0].n_workers; r++)
        if (presence[r] > GW_PS_JOINING)
            return gw_fail(GW_ERR_PEER, "the server at %s says %u of rank %u, which is none of what can be",
                           gw_zmq_place(client->servers[0].endpoint), presence[r], r);
    if (next_round)
        *next_round = reply.number;
    return GW_OK;
}

gw_status gw_ps_admit(gw_ps_client *client, uint32_t rank, uint64_t round)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_admit: client is NULL");
    for (uint32_t s = client->n_servers; s-- > 0;) /* the first last: it tells the worker */
        GW_TRY(ask(client, s, &(struct gw_ps_request){.operation = GW_PS_ADMIT, .number = round, .rank = rank}, NULL,
                   NULL));
    return GW_OK;
}
