/* Sends requests to servers and takes in their answers. Requests of all tickets are sent as they come. While a caller
 * waits for one, it takes in the answers to others as well. If a connection was lost and is there again, the client has
 * said HELLO once more. Then it sends all requests again that have no answer yet. A push has a number, so the server
 * takes it only once. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/client/tickets.h"
#include "pserver/client/connect.h"
#include "pserver/client/for_exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define GRACE_SECONDS 2.0 /* after the deadline, for the server to say for whom it waited */
#define PLACE_SECONDS 3.0 /* how long the rank of a client that died may still look taken */
#define LOOK_SECONDS 0.5  /* between looks whether a server's machine answers */
/* answers that are taken before the client looks at deadlines: a server may send answers without end */
#define AT_ONCE 256

/* ---- sending ----------------------------------------------------------------------------------------------- */

static void sent(void *part)
{
    ((struct part *)part)->waits = false;
}

/* Sends the request of a part. If the server has not said welcome, it is sent when it does. The connection reads the
 * caller's own bytes, until `sent` is called. */
static gw_status send_part(struct gw_ps_client *client, uint32_t s, struct part *part)
{
    struct server *server = &client->servers[s];
    if (!server->welcome)
        return GW_OK;
    if (!gw_ps_request_has_value(&part->request))
        return gw_ps_server_send(server, &part->request, NULL, NULL);
    part->waits = true;
    return gw_ps_server_send(server, &part->request, part, sent);
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

static gw_status hello_answered(struct gw_ps_client *client, uint32_t s, const struct gw_ps_reply *reply)
{
    struct server *server = &client->servers[s];
    const double now = gw_clock_seconds();
    if (reply->status == GW_OK && server->welcome)
        return GW_OK; /* it has answered already */
    if (reply->status == GW_OK && check_hello(server, reply) < 0) {
        give_up(server, GW_ERR_PEER);
    } else if (reply->status == GW_OK) {
        server->n_workers = reply->n_workers;
        server->mode = (gw_ps_mode)reply->mode;
        server->staleness = reply->staleness;
        server->backup = reply->backup;
        server->timeout_ms = reply->timeout_ms;
        server->welcome = server->was_welcome = true;
        server->first_refused = 0;
        server->n_failed = server->n_ended = server->n_mismatched = 0;
        return send_again(client, s);
    } else if (reply->status == GW_ERR_PEER &&
               (server->first_refused == 0 || now - server->first_refused < PLACE_SECONDS)) {
        server->first_refused = server->first_refused == 0 ? now : server->first_refused;
        snprintf(server->why, sizeof server->why, "%s", reply->sentence);
        gw_ps_server_redial(server);
        server->dial_at = now + RETRY_SECONDS;
    } else {
        server->refused = GW_ERR_PEER;
        snprintf(server->why, sizeof server->why, "refused this client: %.*s", GW_PS_SENTENCE - 64, reply->sentence);
    }
    return GW_OK;
}

static struct part *part_of(struct gw_ps_client *client, uint32_t s, uint64_t id, struct ticket **ticket)
{
    for (struct ticket *t = client->tickets; t; t = t->next)
        if (s >= t->first && s < t->first + t->n_parts && t->id + (s - t->first) == id &&
            !t->parts[s - t->first].done) {
            *ticket = t;
            return &t->parts[s - t->first];
        }
    return NULL;
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

/* Where a part's value is in the value of the ticket. The lengths of the parts are known if there are several. *total:
 * the length of all. */
static size_t value_at(const struct gw_ps_client *client, const struct ticket *ticket, const struct part *part,
                       size_t n_bytes, size_t *total)
{
    size_t at = 0;
    *total = ticket->n_parts == 1 ? n_bytes : 0;
    for (uint32_t p = 0; ticket->n_parts > 1 && p < ticket->n_parts; p++) {
        const struct gw_ps_asked asked = gw_ps_asked_of(client, ticket->first + p, &ticket->parts[p]);
        if (&ticket->parts[p] == part)
            at = *total;
        *total += (size_t)gw_ps_answer_most(&asked);
    }
    return at;
}

/* Makes room for the value of an answer, which was checked. NULL: there is no memory. */
static void *make_room(struct gw_ps_client *client, struct ticket *ticket, const struct part *part, size_t n_bytes)
{
    size_t total;
    const size_t at = value_at(client, ticket, part, n_bytes, &total);
    if (ticket->value && ticket->n_bytes != total) { /* from an earlier connection */
        gw_free(client->context, ticket->value);
        ticket->value = NULL;
    }
    if (!ticket->value)
        ticket->value = gw_alloc(client->context, total, 1);
    ticket->n_bytes = total;
    return ticket->value ? ticket->value + at : NULL;
}

/* Where a long value is received. What cannot be right is dropped as it comes. */
static void *place(void *user, const struct gw_net_message *message)
{
    struct server *server = user;
    struct gw_ps_client *client = server->client;
    const uint32_t s = (uint32_t)(server - client->servers);
    struct gw_ps_reply reply;
    struct ticket *ticket;
    if (message->kind != GW_PS_MESSAGE || gw_ps_reply_read(message->header, message->n_header, &reply) < 0)
        return gw_net_nowhere;
    struct part *part = part_of(client, s, reply.id, &ticket);
    if (!part)
        return gw_net_nowhere;
    const struct gw_ps_asked asked = gw_ps_asked_of(client, s, part);
    void *room = gw_ps_answer_check(&asked, &reply, true, message->n_bytes) == GW_OK && reply.status == GW_OK
                     ? make_room(client, ticket, part, message->n_bytes)
                     : NULL;
    return room ? room : gw_net_nowhere;
}

/* Takes the value of an answer that was checked. */
static gw_status take_value(struct gw_ps_client *client, struct ticket *ticket, struct part *part,
                            const struct gw_net_message *message)
{
    if (message->n_bytes && message->is_small) {
        void *room = make_room(client, ticket, part, message->n_bytes);
        if (!room)
            return gw_fail(GW_ERR_MEMORY, "no memory for the value of \"%s\"", part->request.key);
        memcpy(room, message->bytes, message->n_bytes);
    }
    return message->bytes == gw_net_nowhere
               ? gw_fail(GW_ERR_MEMORY, "no memory for the value of \"%s\"", part->request.key)
               : GW_OK;
}

/* Takes an answer, and checks it before it uses anything of it. If the answer cannot be right, or there is no memory
 * for it, it becomes an error. */
static void take_answer(struct gw_ps_client *client, uint32_t s, struct ticket *ticket, struct part *part,
                        const struct gw_ps_reply *reply, const struct gw_net_message *message)
{
    const struct gw_ps_asked asked = gw_ps_asked_of(client, s, part);
    gw_status status = gw_ps_answer_check(&asked, reply, message->n_bytes > 0, message->n_bytes);
    if (status == GW_OK)
        status = take_value(client, ticket, part, message);
    part->reply = *reply;
    if (status == GW_OK && reply->operation == GW_PS_INIT && reply->status == GW_ERR_ORDER) {
        part->again_at = gw_clock_seconds() + RETRY_SECONDS; /* in a moment the server will know whose run it is */
        return;
    }
    part->done = true;
    if (status < 0) {
        part->reply = (struct gw_ps_reply){.operation = part->request.operation, .id = reply->id, .status = status};
        snprintf(part->reply.sentence, sizeof part->reply.sentence, "the server at %s: %.*s",
                 gw_ps_place(&client->servers[s]), GW_PS_SENTENCE - 128, gw_last_error());
        return;
    }
    if (reply->flags & GW_PS_IN_MEMORY)
        atomic_store(&client->in_memory_only, true);
}

/* Takes one message of a server. */
static gw_status take(struct gw_ps_client *client, uint32_t s, const struct gw_net_message *message)
{
    struct server *server = &client->servers[s];
    struct gw_ps_reply reply;
    struct ticket *ticket;
    const gw_status status =
        message->kind == GW_PS_MESSAGE
            ? gw_ps_reply_read(message->header, message->n_header, &reply)
            : gw_fail(GW_ERR_FRAME_MAGIC, "it sent a message of kind %u, which no server sends", message->kind);
    if (status < 0) {
        give_up(server, GW_ERR_PEER);
        return GW_OK;
    }
    if (reply.status < 0 && !reply.sentence[0]) /* every error must have a sentence */
        snprintf(reply.sentence, sizeof reply.sentence, "the server gives no reason (%s)",
                 gw_status_text(reply.status));
    if (reply.operation == GW_PS_HELLO)
        return hello_answered(client, s, &reply);
    if (reply.operation == GW_PS_ASK)
        atomic_store(&client->asked, true);
    else if (reply.operation == GW_PS_WHO) /* the server cannot read the client's messages */
        give_up(server, gw_fail(GW_ERR_PEER, "%s", reply.sentence));
    else {
        struct part *part = part_of(client, s, reply.id, &ticket);
        if (part)
            take_answer(client, s, ticket, part, &reply, message);
    }
    return GW_OK;
}

/* Goes on with all that can go on with one server. *n counts what it has sent. */
static gw_status turn(struct gw_ps_client *client, uint32_t s, uint32_t *n)
{
    struct server *server = &client->servers[s];
    struct gw_net_message message;
    gw_status status = GW_NOT_YET;
    server->c.most_header = GW_PS_HEAD_BYTES;
    server->c.most_bytes = UINT64_MAX; /* what is too long is dropped as it comes */
    server->c.place = place;
    server->c.place_user = server;
    if (gw_ps_server_connect(server)) {
        gw_ignore(gw_net_flush(&server->c)); /* if that fails, reading says why */
        server->has_more = true;             /* else poll knows. An answer may end the connection */
        for (int i = 0; i < AT_ONCE && server->has_more && server->c.fd >= 0 &&
                        (status = gw_net_next(&server->c, &message)) == GW_OK;
             i++, ++*n) {
            status = take(client, s, &message);
            gw_net_consume(&server->c);
            if (status < 0)
                return status;
            server->has_more = gw_net_has_more(&server->c);
        }
        server->has_more = server->has_more && status == GW_OK; /* not if it is half a message */
        const double now = gw_clock_seconds();
        if (status >= 0 && server->welcome && now >= server->look_at) {
            server->look_at = now + LOOK_SECONDS;
            if (gw_net_is_silent(&server->c, server->timeout_ms))
                status = GW_ERR_PEER;
        }
        if (status == GW_ERR_PEER && server->c.fd >= 0)
            gw_ps_server_lost(server);
    }
    return gw_ps_server_check(server);
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

/* Waits until a server has sent something, or can be sent something, or `fd` can be read. */
static gw_status wait_for_servers(struct gw_ps_client *client, int fd, double deadline)
{
    struct pollfd fds[MOST_SERVERS + 1];
    if (!client->has_met && client->reach_by < deadline && gw_clock_seconds() < client->reach_by)
        deadline = client->reach_by;
    for (uint32_t s = 0; s < client->n_servers; s++) {
        const struct server *server = &client->servers[s];
        const uint32_t events = server->c.fd >= 0 ? gw_net_events(&server->c) : 0;
        const int of_poll = (events & EPOLLIN ? POLLIN : 0) | (events & EPOLLOUT ? POLLOUT : 0);
        fds[s] = (struct pollfd){server->c.fd, (short)of_poll, 0};
        const double at = server->c.fd < 0 ? server->dial_at : gw_clock_seconds() + LOOK_SECONDS;
        deadline = at < deadline ? at : deadline;
        if (server->c.fd >= 0 && server->has_more)
            deadline = 0;
    }
    fds[client->n_servers] = (struct pollfd){fd, POLLIN, 0};
    const double left = deadline - gw_clock_seconds();
    if (poll(fds, client->n_servers + 1, left > 0 ? (int)(left * 1000) + 1 : 0) < 0 && errno != EINTR)
        return gw_fail(GW_ERR_SYSTEM, "a client cannot wait for its servers: %s", strerror(errno));
    return GW_OK;
}

gw_status gw_ps_client_pump(gw_ps_client *client, int fd, double deadline)
{
    uint32_t n = 0;
    GW_TRY(ask_again(client, &deadline));
    for (uint32_t s = 0; s < client->n_servers; s++)
        if (!client->servers[s].c.connected || !client->servers[s].welcome || client->servers[s].refused)
            GW_TRY(turn(client, s, &n)); /* with others, poll knows of all that there is to do */
    if (n > 0)
        return GW_OK;
    GW_TRY(wait_for_servers(client, fd, deadline));
    for (uint32_t s = 0; s < client->n_servers; s++)
        GW_TRY(turn(client, s, &n));
    return GW_OK;
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
    /* No connection may read the caller's bytes any more. An answer says that all was sent, unless the server lies or
     * the ticket is given up. On the new connection, requests without an answer are sent again. */
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        ticket->parts[p].done = true;
        if (ticket->parts[p].waits)
            gw_ps_server_redial(&client->servers[ticket->first + p]);
    }
    /* nor write into the value */
    for (uint32_t p = 0; p < ticket->n_parts && ticket->value; p++) {
        struct server *server = &client->servers[ticket->first + p];
        if (server->c.body >= ticket->value && server->c.body < ticket->value + ticket->n_bytes)
            gw_ps_server_redial(server);
    }
    gw_free(client->context, ticket->value);
    gw_free(client->context, ticket);
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
        gw_ps_ticket_free(client, ticket);
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
                                            gw_ps_place(&client->servers[ticket->first + p]));
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
