/* Sends requests to servers and takes in their answers. Requests of all tickets are sent as they come. While a caller
 * waits for one, it takes in the answers to others as well. If a connection was lost and is there again, the client
 * says HELLO once more. Then it sends all requests again that have no answer yet. A push has a number, so the server
 * takes it only once. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/client/tickets.h"
#include "pserver/client/connect.h"
#include "pserver/client/for_exchange.h"
#include "zmq/body.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GRACE_SECONDS 2.0      /* after the deadline, for the server to say for whom it waited */
#define PLACE_SECONDS 3.0      /* how long the rank of a client that died may still look taken */
#define LEND_BYTES (64u << 10) /* a push of this size or more is sent from the caller's memory */
/* A value goes in one piece if that takes no more than this share of the smaller timeout. The other end gives up a
 * connection that is silent for twice that time. So it does not give up one that is only busy. */
#define WHOLE_SHARE 0.375
/* a value in one piece may have broken a connection. After that, values go in pieces for so long */
#define PIECES_SECONDS 60.0
/* answers that are taken before the client looks at deadlines: a server may send answers without end */
#define AT_ONCE 256
#define LEND_SECONDS 1.0 /* how long a push may still be under way after its answer, because it was sent twice */

/* ---- sending ----------------------------------------------------------------------------------------------- */

static void loan_give(struct loan *loan)
{
    if (loan && atomic_fetch_sub_explicit(&loan->holds, 1, memory_order_acq_rel) == 1)
        gw_free(loan->context, loan);
}

/* ZeroMQ is done with a body. ZeroMQ's own thread calls this. */
static void body_left(void *bytes, void *loan)
{
    (void)bytes;
    loan_give(loan);
}

static bool is_lent(const struct part *part)
{
    return part->loan && atomic_load_explicit(&part->loan->holds, memory_order_acquire) > 1;
}

static void hold_loan(void *owner)
{
    struct loan *loan = owner;
    atomic_fetch_add_explicit(&loan->holds, 1, memory_order_relaxed);
}

static gw_status make_loan(struct gw_ps_client *client, struct part *part)
{
    if (part->loan)
        return GW_OK;
    part->loan = gw_alloc(client->context, 1, sizeof *part->loan);
    if (!part->loan)
        return GW_ERR_MEMORY;
    part->loan->context = client->context;
    atomic_init(&part->loan->holds, 1);
    return GW_OK;
}

/* Sends bytes in one piece. */
static bool send_bytes(struct server *server, const void *bytes, size_t n_bytes, int flags)
{
    int sent;
    do
        sent = zmq_send(server->socket, bytes, n_bytes, flags | ZMQ_DONTWAIT);
    while (sent < 0 && zmq_errno() == EINTR);
    return sent >= 0;
}

/* True if a large value may go in one piece. The other end then still gets a sign of life in time. */
static bool goes_whole(const struct server *server, const struct part *part)
{
    const double seconds = server->seconds_a_byte * (double)part->n_bytes;
    const uint32_t own = part->request.timeout_ms, least_ms = own < server->timeout_ms ? own : server->timeout_ms;
    return part->n_bytes > GW_ZMQ_PIECE && seconds > 0 && seconds < WHOLE_SHARE * least_ms / 1000 &&
           gw_clock_seconds() >= server->whole_after;
}

/* Measures how fast the connection is, by a push. If the push waited for other workers, that time counts too, and the
 * connection looks slower. */
static void measure(struct server *server, const struct part *part)
{
    if (part->n_bytes > GW_ZMQ_PIECE && part->reply.status == GW_OK)
        server->seconds_a_byte = (gw_clock_seconds() - part->sent_at) / (double)part->n_bytes;
}

/* Forgets the speed: this is another connection. */
static void forget_speed(struct server *server)
{
    if (server->sent_whole)
        server->whole_after = gw_clock_seconds() + PIECES_SECONDS;
    server->sent_whole = false;
    server->seconds_a_byte = 0;
}

/* Sends a request. If there is no connection, it is not sent now, but on the next connection. part NULL: it has no
 * body. A small body is copied. A large one is lent to ZeroMQ; take_back gets it back. */
gw_status gw_ps_send_request(struct server *server, const struct gw_ps_request *request, const struct part *part)
{
    uint8_t head[GW_PS_HEAD_BYTES];
    const bool whole = part && goes_whole(server, part);
    server->sent_whole |= whole;
    bool sent = send_bytes(server, head, gw_ps_request_write(head, request), part ? ZMQ_SNDMORE : 0);
    if (!sent && zmq_errno() == EAGAIN)
        return GW_OK;
    if (sent && part)
        sent = part->loan ? gw_zmq_body_send(server->socket, (void *)(uintptr_t)part->body, part->n_bytes, whole,
                                             hold_loan, body_left, part->loan)
                          : send_bytes(server, part->body, part->n_bytes, 0);
    return sent ? GW_OK
                : gw_fail(GW_ERR_SYSTEM, "a request to the server at %s cannot be sent: %s",
                          gw_net_place(server->endpoint), zmq_strerror(zmq_errno()));
}

static gw_status say_hello(struct gw_ps_client *client, struct server *server)
{
    server->hello_again = 0;
    return gw_ps_send_request(server,
                              &(struct gw_ps_request){.operation = GW_PS_HELLO,
                                                      .hello_flags = (client->joins ? GW_PS_HELLO_JOINS : 0) |
                                                                     (server->was_welcome ? GW_PS_HELLO_AGAIN : 0),
                                                      .hello_rank = client->rank,
                                                      .incarnation = client->incarnation,
                                                      .place = (uint32_t)(server - client->servers),
                                                      .n_servers = client->n_servers},
                              NULL);
}

static gw_status send_part(struct gw_ps_client *client, uint32_t s, struct part *part)
{
    const struct gw_ps_request *request = &part->request;
    const bool with_body = gw_ps_request_has_value(request);
    if (with_body && part->n_bytes >= LEND_BYTES)
        GW_TRY(make_loan(client, part));
    part->sent_at = gw_clock_seconds();
    struct server *server = &client->servers[s];
    if (with_body && part->n_bytes >= LEND_BYTES && gw_ps_server_news(server)) {
        /* The server would end a connection that begins with so many bytes, so say HELLO first. */
        server->welcome = false;
        forget_speed(server);
        GW_TRY(say_hello(client, server));
    }
    if (!server->welcome) /* it is sent when the answer to HELLO comes */
        return GW_OK;
    return gw_ps_send_request(server, request, with_body ? part : NULL);
}

static gw_status send_again(struct gw_ps_client *client, uint32_t s)
{
    for (struct ticket *t = client->tickets; t; t = t->next)
        if (s >= t->first && s < t->first + t->n_parts && !t->parts[s - t->first].done)
            GW_TRY(send_part(client, s, &t->parts[s - t->first]));
    return GW_OK;
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

/* Gives a server up. The last error says what is wrong with it. The client trusts nothing more that it says. */
static void give_up(struct server *server, gw_status status)
{
    server->refused = status;
    snprintf(server->why, sizeof server->why, "is not to be believed: %.*s", GW_PS_SENTENCE - 64, gw_last_error());
}

/* Checks that a server that was met before has the same numbers as then. Arrays that have the size of these numbers
 * stay right. */
static gw_status check_hello(const struct server *server, const struct gw_ps_reply *reply)
{
    GW_TRY(gw_ps_answer_check_hello(reply));
    if (server->was_welcome && (server->n_workers != reply->n_workers || server->mode != (gw_ps_mode)reply->mode ||
                                server->staleness != reply->staleness || server->backup != reply->backup))
        return gw_fail(
            GW_ERR_PEER,
            "it was for %u workers and is for %u now, or its --mode or --backup is another; this client must "
            "be made anew",
            server->n_workers, reply->n_workers);
    return GW_OK;
}

static void hello_answered(struct gw_ps_client *client, uint32_t s, const struct gw_ps_reply *reply)
{
    struct server *server = &client->servers[s];
    double now = gw_clock_seconds();
    if (reply->status == GW_OK && server->welcome)
        return; /* HELLO was said twice */
    if (reply->status == GW_OK && check_hello(server, reply) < 0) {
        give_up(server, GW_ERR_PEER);
    } else if (reply->status == GW_OK) {
        server->n_workers = reply->n_workers;
        server->mode = (gw_ps_mode)reply->mode;
        server->staleness = reply->staleness;
        server->backup = reply->backup;
        server->timeout_ms = reply->timeout_ms;
        server->welcome = true;
        if (server->was_welcome)
            send_again(client, s);
        server->was_welcome = true;
        server->first_refused = 0;
    } else if (reply->status == GW_ERR_PEER &&
               (server->first_refused == 0 || now - server->first_refused < PLACE_SECONDS)) {
        server->first_refused = server->first_refused == 0 ? now : server->first_refused;
        server->hello_again = now + RETRY_SECONDS;
        snprintf(server->why, sizeof server->why, "%s", reply->sentence);
    } else if (reply->status != GW_ERR_ORDER) { /* GW_ERR_ORDER: HELLO was said twice, which does no harm */
        server->refused = GW_ERR_PEER;
        snprintf(server->why, sizeof server->why, "refused this client: %.*s", GW_PS_SENTENCE - 64, reply->sentence);
    }
}

static struct part *part_of(struct gw_ps_client *client, uint32_t s, uint64_t id)
{
    for (struct ticket *t = client->tickets; t; t = t->next)
        if (s >= t->first && s < t->first + t->n_parts && t->id + (s - t->first) == id && !t->parts[s - t->first].done)
            return &t->parts[s - t->first];
    return NULL;
}

/* The server says that this connection has not said HELLO. The connection may be new, and its event not read yet. If
 * the client knows that it is new, its HELLO is on its way. */
static void who_asked(struct gw_ps_client *client, struct server *server)
{
    bool anew = gw_ps_server_news(server);
    if (anew)
        forget_speed(server);
    if (anew || server->welcome)
        say_hello(client, server);
    server->welcome = false;
}

gw_status gw_ps_too_late(const struct gw_ps_client *client, gw_status status, const char *what)
{
    char why[GW_PS_SENTENCE];
    if (status != GW_ERR_ORDER)
        return status;
    snprintf(why, sizeof why, "%s", gw_last_error());
    return gw_fail(GW_ERR_TIMEOUT, "%s was not possible within %u ms: %s", what, client->timeout_ms, why);
}

struct gw_ps_asked gw_ps_asked_of(const struct gw_ps_client *client, uint32_t server, const struct part *part)
{
    return (struct gw_ps_asked){.request = &part->request,
                                .type = part->type,
                                .shape = part->shape,
                                .n_workers = client->servers[server].n_workers,
                                .most = client->most_bytes};
}

/* Puts the body of an answer into the part, in one message. */
static gw_status take_body(struct gw_ps_client *client, struct part *part, struct gw_zmq_body *body)
{
    if (body->only) {
        zmq_msg_move(&part->value, body->only);
        return GW_OK;
    }
    if (body->n_bytes == 0)
        return GW_OK;
    zmq_msg_close(&part->value);
    if (zmq_msg_init_size(&part->value, body->n_bytes) != 0) {
        zmq_msg_init(&part->value);
        return gw_fail(GW_ERR_MEMORY, "no memory for the value of \"%s\"", part->request.key);
    }
    gw_zmq_body_copy(client->context, body, zmq_msg_data(&part->value));
    return GW_OK;
}

/* Takes an answer, and checks it before it uses anything of it. If the answer cannot be right, or there is no memory
 * for it, it becomes an error. has_body: the answer has a body, and `body` is the part of it that came. unfit: why the
 * body could not be taken. */
static void take_answer(struct gw_ps_client *client, uint32_t s, struct part *part, const struct gw_ps_reply *reply,
                        bool has_body, struct gw_zmq_body *body, gw_status unfit)
{
    const struct gw_ps_asked asked = gw_ps_asked_of(client, s, part);
    gw_status status = unfit;
    if (unfit == GW_ERR_CAPACITY)
        status = gw_fail(GW_ERR_PEER, "\"%s\" was answered with more than the %llu bytes that can be",
                         part->request.key, (unsigned long long)gw_ps_answer_most(&asked));
    if (status == GW_OK)
        status = gw_ps_answer_check(&asked, reply, has_body, body->n_bytes);
    if (status == GW_OK)
        status = take_body(client, part, body);
    part->reply = *reply;
    if (status == GW_OK && reply->operation == GW_PS_INIT && reply->status == GW_ERR_ORDER) {
        part->again_at = gw_clock_seconds() + RETRY_SECONDS; /* in a moment the server will know whose run it is */
        return;
    }
    part->done = true;
    if (status < 0) {
        part->reply = (struct gw_ps_reply){.operation = part->request.operation, .id = reply->id, .status = status};
        snprintf(part->reply.sentence, sizeof part->reply.sentence, "the server at %s: %.*s",
                 gw_net_place(client->servers[s].endpoint), GW_PS_SENTENCE - 128, gw_last_error());
        return;
    }
    measure(&client->servers[s], part);
    if (reply->flags & GW_PS_IN_MEMORY)
        atomic_store(&client->in_memory_only, true);
}

/* Takes one answer: [head] or [head, body]. flags: ZMQ_DONTWAIT, or 0 to wait LOOK_MS. false: there is none. */
static bool receive(struct gw_ps_client *client, uint32_t s, int flags)
{
    struct server *server = &client->servers[s];
    zmq_msg_t head;
    struct gw_zmq_body body = {0};
    struct gw_ps_reply reply;
    struct part *part = NULL;
    gw_status unfit = GW_OK;
    zmq_msg_init(&head);
    if (zmq_msg_recv(&head, server->socket, flags) < 0) {
        zmq_msg_close(&head);
        return false;
    }
    const bool has_body = zmq_msg_more(&head);
    const gw_status status = gw_ps_reply_read(zmq_msg_data(&head), zmq_msg_size(&head), &reply);
    if (reply.status < 0 && !reply.sentence[0]) /* every error must have a sentence */
        snprintf(reply.sentence, sizeof reply.sentence, "the server gives no reason (%s)",
                 gw_status_text(reply.status));
    if (status < 0)
        give_up(server, GW_ERR_PEER);
    else if (reply.operation != GW_PS_HELLO && reply.operation != GW_PS_ASK && reply.operation != GW_PS_WHO)
        part = part_of(client, s, reply.id);
    if (has_body) {
        const struct gw_ps_asked asked = part ? gw_ps_asked_of(client, s, part) : (struct gw_ps_asked){.request = NULL};
        unfit = gw_zmq_body_take(client->context, server->socket, part ? gw_ps_answer_most(&asked) : 0, &body);
    }
    if (status == GW_OK && reply.operation == GW_PS_HELLO)
        hello_answered(client, s, &reply);
    else if (status == GW_OK && reply.operation == GW_PS_ASK)
        atomic_store(&client->asked, true);
    else if (status == GW_OK && reply.operation == GW_PS_WHO &&
             reply.status < 0) /* the server cannot read the client's messages */
        give_up(server, gw_fail(GW_ERR_PEER, "%s", reply.sentence));
    else if (status == GW_OK && reply.operation == GW_PS_WHO)
        who_asked(client, server);
    else if (part)
        take_answer(client, s, part, &reply, has_body, &body, unfit);
    gw_zmq_body_free(client->context, &body);
    zmq_msg_close(&head);
    return true;
}

/* Says HELLO if it must be said. If the server has refused for good, returns that error. */
static gw_status look_after(struct gw_ps_client *client, struct server *server, bool news)
{
    if (news && gw_ps_server_news(server)) {
        server->welcome = false;
        forget_speed(server);
        GW_TRY(say_hello(client, server));
    }
    if (server->hello_again != 0 && gw_clock_seconds() >= server->hello_again)
        GW_TRY(say_hello(client, server));
    GW_TRY(gw_ps_server_look(client, server));
    return server->refused
               ? gw_fail(server->refused, "the server at %s %s", gw_net_place(server->endpoint), server->why)
               : GW_OK;
}

/* Sends requests again that a server could not do yet. *next: set to the time when the next one must be sent again, if
 * that is earlier. */
static gw_status ask_again(struct gw_ps_client *client, double *next)
{
    const double now = gw_clock_seconds();
    for (struct ticket *t = client->tickets; t; t = t->next)
        for (uint32_t p = 0; p < t->n_parts; p++) {
            struct part *part = &t->parts[p];
            if (part->done || part->again_at == 0)
                continue;
            if (part->again_at <= now) {
                part->again_at = 0;
                GW_TRY(send_part(client, t->first + p, part));
            } else if (part->again_at < *next) {
                *next = part->again_at;
            }
        }
    return GW_OK;
}

/* Waits with a poll, for all servers and `fd`. */
static gw_status pump_polling(struct gw_ps_client *client, int fd, double deadline)
{
    zmq_pollitem_t items[2 * MOST_SERVERS + 1];
    if (!client->has_met && client->reach_by < deadline && gw_clock_seconds() < client->reach_by)
        deadline = client->reach_by;
    for (uint32_t s = 0; s < client->n_servers; s++) {
        items[2 * s] = (zmq_pollitem_t){client->servers[s].socket, 0, ZMQ_POLLIN, 0};
        items[2 * s + 1] = (zmq_pollitem_t){client->servers[s].events, 0, ZMQ_POLLIN, 0};
        if (client->servers[s].hello_again != 0 && client->servers[s].hello_again < deadline)
            deadline = client->servers[s].hello_again;
        if (client->servers[s].dial_again != 0 && client->servers[s].dial_again < deadline)
            deadline = client->servers[s].dial_again;
    }
    items[2 * client->n_servers] = (zmq_pollitem_t){NULL, fd, ZMQ_POLLIN, 0};
    double left = deadline - gw_clock_seconds();
    if (zmq_poll(items, (int)(2 * client->n_servers + (fd >= 0)), left > 0 ? (long)(left * 1000) + 1 : 0) < 0 &&
        zmq_errno() != EINTR)
        return gw_fail(GW_ERR_SYSTEM, "a client cannot wait for its servers: %s", zmq_strerror(zmq_errno()));
    for (uint32_t s = 0; s < client->n_servers; s++) {
        GW_TRY(look_after(client, &client->servers[s], items[2 * s + 1].revents));
        for (int i = 0; i < AT_ONCE && items[2 * s].revents && receive(client, s, ZMQ_DONTWAIT); i++)
            ;
        GW_TRY(look_after(client, &client->servers[s], false));
    }
    return GW_OK;
}

gw_status gw_ps_client_pump(gw_ps_client *client, int fd, double deadline)
{
    struct server *only = &client->servers[0];
    GW_TRY(ask_again(client, &deadline));
    /* If there is only one server to wait for, wait in receive: a poll takes four times as many system calls. */
    if (client->n_servers > 1 || fd >= 0 || !only->welcome || only->hello_again != 0 || only->dial_again != 0 ||
        deadline - gw_clock_seconds() < LOOK_MS / 1000.0)
        return pump_polling(client, fd, deadline);
    bool got = receive(client, 0, 0);
    for (int i = 0; i < AT_ONCE && got && client->tickets && client->tickets->next; i++)
        if (!receive(client, 0, ZMQ_DONTWAIT))
            break;
    return look_after(client, only, !got);
}

/* ---- tickets ----------------------------------------------------------------------------------------------- */

void gw_ps_ticket_free(struct gw_ps_client *client, struct ticket *ticket)
{
    struct ticket **at = &client->tickets;
    while (*at != ticket)
        at = &(*at)->next;
    *at = ticket->next;
    if (client->end == &ticket->next)
        client->end = at;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        zmq_msg_close(&ticket->parts[p].value);
        loan_give(ticket->parts[p].loan);
    }
    gw_free(client->context, ticket);
}

/* Returns when ZeroMQ reads none of the ticket's bytes any more. If a push has an answer, ZeroMQ has read it to its
 * end, unless it was sent twice. If it has none, it may wait to be sent for as long as there is no server. */
static void take_back(struct gw_ps_client *client, struct ticket *ticket)
{
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct part *part = &ticket->parts[p];
        struct server *server = &client->servers[ticket->first + p];
        double patience = is_lent(part) ? gw_clock_seconds() + (part->done ? LEND_SECONDS : 0) : 0;
        part->done = true; /* so that it is not sent again */
        for (bool is_cut = false; is_lent(part);) {
            zmq_pollitem_t item = {server->socket, 0, 0, 0};
            if (!is_cut && gw_clock_seconds() >= patience) {
                /* on the new connection, requests without an answer are sent again */
                gw_ps_server_redial(client, server);
                is_cut = true;
            }
            zmq_poll(&item, 1, 1); /* wait a moment; ZeroMQ also does its work in this call */
        }
    }
}

void gw_ps_ticket_drop(struct gw_ps_client *client, struct ticket *ticket)
{
    take_back(client, ticket);
    gw_ps_ticket_free(client, ticket);
}

struct ticket *gw_ps_ticket_find(const struct gw_ps_client *client, uint64_t id)
{
    struct ticket *ticket = client->tickets;
    while (ticket && ticket->id != id)
        ticket = ticket->next;
    return ticket;
}

struct ticket *gw_ps_ticket_new(struct gw_ps_client *client, enum gw_ps_operation operation, uint32_t first, uint32_t n)
{
    struct ticket *ticket = gw_calloc(client->context, 1, sizeof *ticket + n * sizeof ticket->parts[0]);
    if (!ticket)
        return NULL;
    ticket->id = client->next_id;
    ticket->operation = operation;
    ticket->deadline = gw_clock_seconds() + client->timeout_ms / 1000.0 + GRACE_SECONDS;
    ticket->first = first;
    ticket->n_parts = n;
    client->next_id += n;
    for (uint32_t p = 0; p < n; p++) {
        zmq_msg_init(&ticket->parts[p].value);
        ticket->parts[p].request =
            (struct gw_ps_request){.operation = operation, .id = ticket->id + p, .timeout_ms = client->timeout_ms};
    }
    *client->end = ticket;
    client->end = &ticket->next;
    return ticket;
}

gw_status gw_ps_ticket_send(struct gw_ps_client *client, struct ticket *ticket)
{
    gw_status status = gw_ps_client_check(client, "a request");
    if (status == GW_OK && !client->has_met)
        status = gw_fail(GW_ERR_ORDER, "the servers have not answered this client yet; gw_ps_client_meet must come "
                                       "before other calls");
    for (uint32_t p = 0; p < ticket->n_parts && status == GW_OK; p++)
        status = send_part(client, ticket->first + p, &ticket->parts[p]);
    if (status < 0)
        gw_ps_ticket_drop(client, ticket);
    return status;
}

gw_status gw_ps_ticket_wait(struct gw_ps_client *client, const struct ticket *ticket)
{
    client->refusal = UINT64_MAX;
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        while (!ticket->parts[p].done) {
            const struct gw_ps_reply *reply = &ticket->parts[p].reply;
            /* an INIT that the server still cannot do */
            if (gw_clock_seconds() >= ticket->deadline && reply->status == GW_ERR_ORDER)
                return gw_ps_too_late(client, gw_fail(GW_ERR_ORDER, "%s", reply->sentence), "making a key");
            if (gw_clock_seconds() >= ticket->deadline)
                return gw_ps_answer_missing(&ticket->parts[p].request,
                                            gw_net_place(client->servers[ticket->first + p].endpoint));
            GW_TRY(gw_ps_client_pump(client, -1, ticket->deadline));
        }
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        if (ticket->parts[p].reply.status == GW_ERR_NONFINITE && ticket->parts[p].reply.refusal < client->refusal)
            client->refusal = ticket->parts[p].reply.refusal;
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        if (ticket->parts[p].reply.status < 0)
            return gw_fail(ticket->parts[p].reply.status, "%s", ticket->parts[p].reply.sentence);
    return GW_OK;
}
