/* Requests on their way to servers, and their answers. Requests of all tickets are sent as they come; whoever waits for one takes in whatever
 * answers come meanwhile. After a connection was lost and is there again, the client says HELLO once more and sends again what has no answer
 * yet: a push has a number, so the server takes it once. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/events.h"
#include "link/tcp/keys.h"
#include "pserver/body.h"
#include "pserver/client_state.h"

#include <stdio.h>
#include <string.h>

#define GRACE_SECONDS 2.0      /* beyond its deadline, for the server to say whom it waited for */
#define PLACE_SECONDS 3.0      /* that the place of one who died may still look taken */
#define LEND_BYTES (64u << 10) /* a push from here on is sent from where it stands */
#define WHOLE_SHARE 0.375      /* of the lesser timeout that a value may take and still go in one piece: half of what is waited for a sign of life */
#define PIECES_SECONDS 60.0    /* that values go in pieces after one that did not may have broken the connection */
#define LEND_SECONDS 1.0       /* that a push may still be under way after its answer: it was sent twice */

/* ---- sending ----------------------------------------------------------------------------------------------- */

static void loan_give(struct loan *loan)
{
    if (loan && atomic_fetch_sub_explicit(&loan->holds, 1, memory_order_acq_rel) == 1)
        gw_free(loan->context, loan);
}

/* ZeroMQ is done with a body. From its own thread. */
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

/* As much as is sent now, in one piece. */
static bool send_bytes(struct server *server, const void *bytes, size_t n_bytes, int flags)
{
    int sent;
    do
        sent = zmq_send(server->socket, bytes, n_bytes, flags | ZMQ_DONTWAIT);
    while (sent < 0 && zmq_errno() == EINTR);
    return sent >= 0;
}

/* Whether the other end would hear of a large value in time that comes in one piece. */
static bool goes_whole(const struct server *server, const struct part *part)
{
    const double seconds = server->seconds_a_byte * (double)part->n_bytes;
    const uint32_t own = part->request.timeout_ms, least_ms = own < server->timeout_ms ? own : server->timeout_ms;
    return part->n_bytes > GW_PS_PIECE && seconds > 0 && seconds < WHOLE_SHARE * least_ms / 1000 && gw_clock_seconds() >= server->whole_after;
}

/* How fast the connection is, by a push in pieces or not; what it waited for others counts as slowness. */
static void measure(struct server *server, const struct part *part)
{
    if (part->n_bytes > GW_PS_PIECE && part->reply.status == GW_OK)
        server->seconds_a_byte = (gw_clock_seconds() - part->sent_at) / (double)part->n_bytes;
}

/* The connection is another: nothing is known of it. */
static void forget_speed(struct server *server)
{
    if (server->sent_whole)
        server->whole_after = gw_clock_seconds() + PIECES_SECONDS;
    server->sent_whole = false;
    server->seconds_a_byte = 0;
}

/* Queued until there is a connection. part NULL: no body. A small body is copied; a large one is lent, and its caller gets it back by
 * take_back. */
gw_status gw_ps_send_request(struct server *server, const struct gw_ps_request *request, const struct part *part)
{
    uint8_t head[GW_PS_HEAD_BYTES];
    const bool whole = part && goes_whole(server, part);
    server->sent_whole |= whole;
    bool sent = send_bytes(server, head, gw_ps_request_write(head, request), part ? ZMQ_SNDMORE : 0);
    if (sent && part)
        sent = part->loan ? gw_ps_body_send(server->socket, (void *)(uintptr_t)part->body, part->n_bytes, whole, hold_loan, body_left, part->loan)
                          : send_bytes(server, part->body, part->n_bytes, 0);
    return sent ? GW_OK
                : gw_fail(GW_ERR_SYSTEM, "a request to the server at %s cannot be sent: %s", gw_tcp_place(server->endpoint), zmq_strerror(zmq_errno()));
}

static gw_status send_part(struct gw_ps_client *client, uint32_t s, struct part *part)
{
    const struct gw_ps_request *request = &part->request;
    const bool with_body = (request->operation == GW_PS_PUSH && request->code == 0) || request->operation == GW_PS_AGREE ||
                           request->operation == GW_PS_PUT;
    if (with_body && part->n_bytes >= LEND_BYTES)
        GW_TRY(make_loan(client, part));
    part->sent_at = gw_clock_seconds();
    return gw_ps_send_request(&client->servers[s], request, with_body ? part : NULL);
}

static gw_status say_hello(struct gw_ps_client *client, struct server *server)
{
    server->hello_again = 0;
    return gw_ps_send_request(server, &(struct gw_ps_request){.operation = GW_PS_HELLO, .code = client->joins, .number = client->rank,
                                                        .incarnation = client->incarnation}, NULL);
}

static gw_status send_again(struct gw_ps_client *client, uint32_t s)
{
    for (struct ticket *t = client->tickets; t; t = t->next)
        if (s >= t->first && s < t->first + t->n_parts && !t->parts[s - t->first].done)
            GW_TRY(send_part(client, s, &t->parts[s - t->first]));
    return GW_OK;
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

static void hello_answered(struct gw_ps_client *client, uint32_t s, const struct gw_ps_reply *reply)
{
    struct server *server = &client->servers[s];
    double now = gw_clock_seconds();
    if (reply->status == GW_OK) {
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
    } else if (reply->status == GW_ERR_PEER && (server->first_refused == 0 || now - server->first_refused < PLACE_SECONDS)) {
        server->first_refused = server->first_refused == 0 ? now : server->first_refused;
        server->hello_again = now + RETRY_SECONDS;
        snprintf(server->why, sizeof server->why, "%s", reply->sentence);
    } else if (reply->status != GW_ERR_ORDER) { /* that one: said twice, no harm */
        server->refused = GW_ERR_PEER;
        snprintf(server->why, sizeof server->why, "%s", reply->sentence);
    }
}

static struct part *part_of(struct gw_ps_client *client, uint32_t s, uint64_t id)
{
    for (struct ticket *t = client->tickets; t; t = t->next)
        if (s >= t->first && s < t->first + t->n_parts && t->id + (s - t->first) == id && !t->parts[s - t->first].done)
            return &t->parts[s - t->first];
    return NULL;
}

/* Whether a connection is new: then it does not know us. */
static bool connected_anew(struct server *server)
{
    struct gw_tcp_event event;
    bool anew = false;
    while (gw_tcp_next_event(server->events, &event))
        anew = true;
    return anew;
}

/* This connection has not said HELLO. It may be new, and its news not looked at yet; if it is known to be, its HELLO is on its way. */
static void who_asked(struct gw_ps_client *client, struct server *server)
{
    bool anew = connected_anew(server);
    if (anew)
        forget_speed(server);
    if (anew || server->welcome)
        say_hello(client, server);
    server->welcome = false;
}

/* What came with an answer becomes the part's, in one; where that cannot be, this is the answer. */
static void take_body(struct gw_ps_client *client, struct part *part, struct gw_ps_body *body, gw_status unfit)
{
    if (body->only) {
        zmq_msg_move(&part->value, body->only);
    } else if (unfit == GW_OK && body->n_bytes > 0 && zmq_msg_close(&part->value) == 0 && zmq_msg_init_size(&part->value, body->n_bytes) == 0) {
        gw_ps_body_copy(client->context, body, zmq_msg_data(&part->value));
    } else if (unfit < 0 || body->n_bytes > 0) {
        zmq_msg_init(&part->value);
        part->reply.status = GW_ERR_MEMORY;
        snprintf(part->reply.sentence, sizeof part->reply.sentence, "no memory for the value of \"%s\"", part->request.key);
    }
}

/* One answer: [head] or [head, body]. flags: ZMQ_DONTWAIT, or 0 to wait LOOK_MS. false: there is none. */
static bool receive(struct gw_ps_client *client, uint32_t s, int flags)
{
    struct server *server = &client->servers[s];
    zmq_msg_t head;
    struct gw_ps_body body = {0};
    gw_status unfit = GW_OK;
    zmq_msg_init(&head);
    if (zmq_msg_recv(&head, server->socket, flags) < 0) {
        zmq_msg_close(&head);
        return false;
    }
    if (zmq_msg_more(&head))
        unfit = gw_ps_body_take(client->context, server->socket, UINT64_MAX, &body);
    struct gw_ps_reply reply;
    if (gw_ps_reply_read(zmq_msg_data(&head), zmq_msg_size(&head), &reply) == GW_OK) {
        struct part *part = reply.operation == GW_PS_WHO ? NULL : part_of(client, s, reply.id);
        if (reply.operation == GW_PS_HELLO) {
            hello_answered(client, s, &reply);
        } else if (reply.operation == GW_PS_ASK) {
            atomic_store(&client->asked, true);
        } else if (reply.operation == GW_PS_WHO) {
            who_asked(client, server);
        } else if (part && part->request.operation == reply.operation) {
            part->reply = reply;
            part->done = true;
            measure(server, part);
            if (reply.flags & GW_PS_IN_MEMORY)
                atomic_store(&client->in_memory_only, true);
            take_body(client, part, &body, unfit);
        }
    }
    gw_ps_body_free(client->context, &body);
    zmq_msg_close(&head);
    return true;
}

/* Where it must be said, HELLO; what a server has refused for good. */
static gw_status look_after(struct gw_ps_client *client, struct server *server, bool news)
{
    if (news && connected_anew(server)) {
        server->welcome = false;
        forget_speed(server);
        GW_TRY(say_hello(client, server));
    }
    if (server->hello_again != 0 && gw_clock_seconds() >= server->hello_again)
        GW_TRY(say_hello(client, server));
    return server->refused ? gw_fail(server->refused, "the server at %s refused this client: %s", gw_tcp_place(server->endpoint), server->why) : GW_OK;
}

/* Waits by a poll, for all there is to look at. */
static gw_status pump_polling(struct gw_ps_client *client, int fd, double deadline)
{
    zmq_pollitem_t items[2 * MOST_SERVERS + 1];
    for (uint32_t s = 0; s < client->n_servers; s++) {
        items[2 * s] = (zmq_pollitem_t){client->servers[s].socket, 0, ZMQ_POLLIN, 0};
        items[2 * s + 1] = (zmq_pollitem_t){client->servers[s].events, 0, ZMQ_POLLIN, 0};
        if (client->servers[s].hello_again != 0 && client->servers[s].hello_again < deadline)
            deadline = client->servers[s].hello_again;
    }
    items[2 * client->n_servers] = (zmq_pollitem_t){NULL, fd, ZMQ_POLLIN, 0};
    double left = deadline - gw_clock_seconds();
    if (zmq_poll(items, (int)(2 * client->n_servers + (fd >= 0)), left > 0 ? (long)(left * 1000) + 1 : 0) < 0 && zmq_errno() != EINTR)
        return gw_fail(GW_ERR_SYSTEM, "a client cannot wait for its servers: %s", zmq_strerror(zmq_errno()));
    for (uint32_t s = 0; s < client->n_servers; s++) {
        GW_TRY(look_after(client, &client->servers[s], items[2 * s + 1].revents));
        while (items[2 * s].revents && receive(client, s, ZMQ_DONTWAIT))
            ;
        GW_TRY(look_after(client, &client->servers[s], false));
    }
    return GW_OK;
}

gw_status gw_ps_client_pump(gw_ps_client *client, int fd, double deadline)
{
    struct server *only = &client->servers[0];
    /* A poll takes four times as many system calls as a receive that waits. */
    if (client->n_servers > 1 || fd >= 0 || !only->welcome || only->hello_again != 0 || deadline - gw_clock_seconds() < LOOK_MS / 1000.0)
        return pump_polling(client, fd, deadline);
    bool got = receive(client, 0, 0);
    while (got && client->tickets && client->tickets->next && receive(client, 0, ZMQ_DONTWAIT))
        ;
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

/* Ends the connection, and what is queued for it is sent no more; on the next one requests that have no answer are sent again. */
static void cut(const struct gw_ps_client *client, struct server *server)
{
    server->welcome = false;
    zmq_disconnect(server->socket, server->endpoint);
    gw_tcp_connect(server->socket, server->endpoint, client->group->keys ? client->group->keys->rendezvous : NULL);
}

/* Returns once ZeroMQ reads none of the ticket's bytes any more. A push with an answer has been read to its end, unless it was sent
 * twice; one without may wait to be sent for as long as there is no server. */
static void take_back(struct gw_ps_client *client, struct ticket *ticket)
{
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct part *part = &ticket->parts[p];
        struct server *server = &client->servers[ticket->first + p];
        double patience = is_lent(part) ? gw_clock_seconds() + (part->done ? LEND_SECONDS : 0) : 0;
        part->done = true; /* not to be sent again */
        for (bool is_cut = false; is_lent(part);) {
            zmq_pollitem_t item = {server->socket, 0, 0, 0};
            if (!is_cut && gw_clock_seconds() >= patience) {
                cut(client, server);
                is_cut = true;
            }
            zmq_poll(&item, 1, 1); /* a moment, in which ZeroMQ also does what it was told */
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
        ticket->parts[p].request = (struct gw_ps_request){.operation = operation, .id = ticket->id + p, .timeout_ms = client->timeout_ms};
    }
    *client->end = ticket;
    client->end = &ticket->next;
    return ticket;
}

gw_status gw_ps_ticket_send(struct gw_ps_client *client, struct ticket *ticket)
{
    gw_status status = GW_OK;
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
            if (gw_clock_seconds() >= ticket->deadline)
                return gw_fail(GW_ERR_TIMEOUT, "the server at %s does not answer", gw_tcp_place(client->servers[ticket->first + p].endpoint));
            GW_TRY(gw_ps_client_pump(client, -1, ticket->deadline));
        }
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        if (ticket->parts[p].reply.status == GW_ERR_NONFINITE && ticket->parts[p].reply.number < client->refusal)
            client->refusal = ticket->parts[p].reply.number;
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        if (ticket->parts[p].reply.status < 0)
            return gw_fail(ticket->parts[p].reply.status, "%s", ticket->parts[p].reply.sentence);
    return GW_OK;
}
