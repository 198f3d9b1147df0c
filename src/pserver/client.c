/* The client. Requests of all tickets are sent as they come; whoever waits for one takes in whatever answers come meanwhile. After a
 * connection was lost and is there again, it says HELLO once more and sends again what has no answer yet: a push has a number, so the
 * server takes it once. Large values are cut into as many parts as there are servers, each with its own; other keys live on one. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/events.h"
#include "link/tcp/group.h"
#include "link/tcp/keys.h"
#include "pserver/body.h"
#include "pserver/client.h"
#include "pserver/message.h"
#include "pserver/names.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <zmq.h>

#define MOST_SERVERS 64
#define DEFAULT_TIMEOUT_MS 60000
#define GRACE_SECONDS 2.0      /* beyond its deadline, for the server to say whom it waited for */
#define PLACE_SECONDS 3.0      /* that the place of one who died may still look taken */
#define RETRY_SECONDS 0.25
#define SPLIT_BYTES (1u << 20) /* a value of a part for each server is larger */
#define LEND_BYTES (64u << 10) /* a push from here on is sent from where it stands */
#define LEND_SECONDS 1.0       /* that a push may still be under way after its answer: it was sent twice */
#define LOOK_MS 100            /* between looks for a new connection, where answers are waited for without a poll */

/* The bytes of a large push while ZeroMQ sends them from where they stand: one hold is the ticket's, one each message's. */
struct loan {
    gw_context *context;
    atomic_uint holds;
};

/* What one server is asked for one ticket. */
struct part {
    struct gw_ps_request request;
    const void *body; /* of a push */
    size_t n_bytes;
    struct loan *loan; /* NULL: the body was copied, or is not sent yet */
    bool done;
    struct gw_ps_reply reply;
    zmq_msg_t value; /* of a pull, once done */
};

struct ticket {
    struct ticket *next;
    uint64_t id; /* of its first part; those of the others follow */
    enum gw_ps_operation operation;
    double deadline;
    uint32_t first, n_parts; /* servers */
    struct part parts[];
};

struct key {
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t n_elems;
    uint32_t first, n_parts; /* servers */
    uint64_t pushed;
    bool uncertain; /* a push failed: only the server knows how many it has */
    char *codec, *optimizer; /* as it was initialised with; NULL: none */
};

struct server {
    char endpoint[GW_TCP_ENDPOINT_BYTES];
    void *socket, *events;
    bool welcome, was_welcome; /* HELLO was answered on this connection; ever */
    uint32_t n_workers;
    gw_ps_mode mode;
    uint32_t staleness, backup;
    double hello_again; /* 0: not */
    double first_refused;
    gw_status refused; /* for good, and why: */
    char why[GW_PS_SENTENCE];
};

struct gw_ps_client {
    gw_context *context;
    struct gw_tcp_group *group;
    uint32_t rank, n_servers, timeout_ms;
    bool joins;
    atomic_bool asked; /* to admit a worker, since somebody looked */
    uint64_t incarnation, next_id;
    struct server servers[MOST_SERVERS];
    struct ticket *tickets, **end;
    struct gw_ps_names names;
    struct key *keys; /* by their names' numbers */
    uint64_t capacity;
    uint64_t refusal;
    double rate; /* of pushes */
};

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

/* Queued until there is a connection. part NULL: no body. A small body is copied; a large one is lent, and its caller gets it back by
 * take_back. */
static gw_status send_request(struct server *server, const struct gw_ps_request *request, const struct part *part)
{
    uint8_t head[GW_PS_HEAD_BYTES];
    bool sent = send_bytes(server, head, gw_ps_request_write(head, request), part ? ZMQ_SNDMORE : 0);
    if (sent && part)
        sent = part->loan ? gw_ps_body_send(server->socket, (void *)(uintptr_t)part->body, part->n_bytes, hold_loan, body_left, part->loan)
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
    return send_request(&client->servers[s], request, with_body ? part : NULL);
}

static gw_status say_hello(struct gw_ps_client *client, struct server *server)
{
    server->hello_again = 0;
    return send_request(server, &(struct gw_ps_request){.operation = GW_PS_HELLO, .code = client->joins, .number = client->rank,
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

static void ticket_free(struct gw_ps_client *client, struct ticket *ticket)
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

static void drop(struct gw_ps_client *client, struct ticket *ticket)
{
    take_back(client, ticket);
    ticket_free(client, ticket);
}

/* NULL: there is none, or it has been waited for. */
static struct ticket *find_ticket(const struct gw_ps_client *client, uint64_t id)
{
    struct ticket *ticket = client->tickets;
    while (ticket && ticket->id != id)
        ticket = ticket->next;
    return ticket;
}

/* Of parts first .. first+n-1; what each asks for is filled in by the caller, who then sends it. */
static struct ticket *ticket_new(struct gw_ps_client *client, enum gw_ps_operation operation, uint32_t first, uint32_t n)
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

static gw_status ticket_send(struct gw_ps_client *client, struct ticket *ticket)
{
    gw_status status = GW_OK;
    for (uint32_t p = 0; p < ticket->n_parts && status == GW_OK; p++)
        status = send_part(client, ticket->first + p, &ticket->parts[p]);
    if (status < 0)
        drop(client, ticket);
    return status;
}

static gw_status ticket_wait(struct gw_ps_client *client, const struct ticket *ticket)
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

/* ---- keys -------------------------------------------------------------------------------------------------- */

static gw_status find_key(struct gw_ps_client *client, const char *name, struct key **out)
{
    uint64_t k = name ? gw_ps_names_find(&client->names, name) : GW_PS_NO_NAME;
    *out = k == GW_PS_NO_NAME ? NULL : &client->keys[k];
    if (!name || !name[0] || strlen(name) > GW_PS_MAX_NAME)
        return gw_fail(GW_ERR_ARGUMENT, "a key's name must have 1 to %d bytes", GW_PS_MAX_NAME);
    return GW_OK;
}

static uint32_t home_of(const struct gw_ps_client *client, const char *name)
{
    return (uint32_t)(gw_hash_now()->whole(name, strlen(name), 0) % client->n_servers);
}

/* Elements before part p of a key. */
static uint64_t part_begin(const struct key *key, uint32_t p)
{
    uint64_t each = key->n_elems / key->n_parts, more = key->n_elems % key->n_parts;
    return each * p + (p < more ? p : more);
}

/* Where a key lives that was not initialised here. */
static struct key stranger(const struct gw_ps_client *client, const char *name)
{
    return (struct key){.first = home_of(client, name), .n_parts = 1};
}

/* As a key was initialised, a specification that it keeps; "" and NULL are none. */
static gw_status keep_text(struct gw_ps_client *client, char **kept, const char *text)
{
    if (!text[0] || *kept)
        return GW_OK;
    *kept = gw_strdup(client->context, text);
    return *kept ? GW_OK : GW_ERR_MEMORY;
}

static gw_status remember(struct gw_ps_client *client, const char *name, const struct key *key)
{
    uint64_t k = gw_ps_names_find(&client->names, name);
    if (k != GW_PS_NO_NAME) {
        client->keys[k] = *key;
        return GW_OK;
    }
    if (client->names.n == client->capacity) {
        uint64_t capacity = client->capacity ? 2 * client->capacity : 16;
        struct key *keys = gw_alloc(client->context, capacity, sizeof *keys);
        if (!keys)
            return GW_ERR_MEMORY;
        if (client->capacity)
            memcpy(keys, client->keys, client->capacity * sizeof *keys);
        gw_free(client->context, client->keys);
        client->keys = keys;
        client->capacity = capacity;
    }
    GW_TRY(gw_ps_names_add(&client->names, name));
    client->keys[client->names.n - 1] = *key;
    return GW_OK;
}

/* Copies are made of the table's entry, which keeps the texts. */
static gw_status remember_texts(struct gw_ps_client *client, const char *name, const char *codec, const char *optimizer)
{
    struct key *key = &client->keys[gw_ps_names_find(&client->names, name)];
    GW_TRY(keep_text(client, &key->codec, codec));
    return keep_text(client, &key->optimizer, optimizer);
}

/* `key` says where it is to live; `codec` and `optimizer` "": none. */
static gw_status init(struct gw_ps_client *client, const char *name, struct key *key, const char *codec, const char *optimizer)
{
    struct ticket *ticket = ticket_new(client, GW_PS_INIT, key->first, key->n_parts);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct gw_ps_request *request = &ticket->parts[p].request;
        request->code = (uint8_t)key->type;
        snprintf(request->key, sizeof request->key, "%s", name);
        snprintf(request->codec, sizeof request->codec, "%s", codec);
        snprintf(request->optimizer, sizeof request->optimizer, "%s", optimizer);
        request->shape = key->shape;
        if (key->n_parts > 1)
            request->shape = (gw_ps_shape){.n_dims = 1, .dims = {part_begin(key, p + 1) - part_begin(key, p)}};
    }
    GW_TRY(ticket_send(client, ticket));
    gw_status status = ticket_wait(client, ticket);
    for (uint32_t p = 0; p < ticket->n_parts && status == GW_OK; p++) {
        uint64_t pushed = ticket->parts[p].reply.number;
        key->pushed = p == 0 || pushed < key->pushed ? pushed : key->pushed;
    }
    ticket_free(client, ticket);
    if (status == GW_OK)
        status = remember(client, name, key);
    return status == GW_OK ? remember_texts(client, name, codec, optimizer) : status;
}

/* Of a key that lives where its name and its size say. */
static gw_status init_anywhere(gw_ps_client *client, const char *name, gw_ps_type type, const gw_ps_shape *shape, const char *optimizer)
{
    struct key *known;
    if (!client || !shape)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_init_parameter: %s is NULL", client ? "shape" : "client");
    GW_TRY(find_key(client, name, &known));
    struct key key = stranger(client, name);
    if (shape->n_dims > GW_PS_MAX_DIMS)
        return gw_fail(GW_ERR_ARGUMENT, "the key \"%s\" is to have %u dimensions; %d are possible", name, shape->n_dims, GW_PS_MAX_DIMS);
    key.type = type;
    key.shape = *shape;
    bool plain = gw_ps_shape_elems(shape, &key.n_elems) && gw_ps_type_bytes(type); /* the server says what is wrong */
    if (plain && key.n_elems * gw_ps_type_bytes(type) > SPLIT_BYTES && key.n_elems >= client->n_servers) {
        key.first = 0;
        key.n_parts = client->n_servers;
    }
    if (known)
        key.codec = known->codec, key.optimizer = known->optimizer;
    return init(client, name, &key, "", optimizer);
}

gw_status gw_ps_init_parameter(gw_ps_client *client, const char *name, gw_ps_type type, const gw_ps_shape *shape)
{
    return init_anywhere(client, name, type, shape, "");
}

gw_status gw_ps_init_optimized(gw_ps_client *client, const char *name, gw_ps_type type, const gw_ps_shape *shape, const char *optimizer,
                               const float *values)
{
    uint64_t ticket, n_elems;
    if (!optimizer || !optimizer[0] || strlen(optimizer) > GW_PS_MAX_NAME)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_init_optimized: the optimizer must be a specification of 1 to %d bytes", GW_PS_MAX_NAME);
    GW_TRY(init_anywhere(client, name, type, shape, optimizer));
    if (!values)
        return GW_OK;
    gw_ps_shape_elems(shape, &n_elems);
    GW_TRY(gw_ps_put_begin(client, name, values, n_elems, &ticket));
    return gw_ps_wait(client, ticket, NULL);
}

gw_status gw_ps_init_on(gw_ps_client *client, uint32_t server, const char *name, gw_ps_type type, const gw_ps_shape *shape, const char *codec,
                        const char *optimizer)
{
    struct key *known, key = {.type = type, .shape = *shape, .first = server, .n_parts = 1};
    GW_TRY(find_key(client, name, &known));
    gw_ps_shape_elems(shape, &key.n_elems);
    if (known)
        key.codec = known->codec, key.optimizer = known->optimizer;
    return init(client, name, &key, codec, optimizer);
}

gw_status gw_ps_agree_on(gw_ps_client *client, uint32_t server, const char *lines)
{
    struct ticket *ticket = ticket_new(client, GW_PS_AGREE, server, 1);
    if (!ticket)
        return GW_ERR_MEMORY;
    ticket->parts[0].body = lines;
    ticket->parts[0].n_bytes = strlen(lines);
    GW_TRY(ticket_send(client, ticket));
    gw_status status = ticket_wait(client, ticket);
    ticket_free(client, ticket);
    return status;
}

/* ---- who takes part ---------------------------------------------------------------------------------------- */

/* Asks one server something that is about workers. body: NULL, or room for the n_bytes of the answer's. */
static gw_status ask(struct gw_ps_client *client, uint32_t server, const struct gw_ps_request *question, struct gw_ps_reply *reply, void *body,
                     size_t n_bytes)
{
    struct ticket *ticket = ticket_new(client, question->operation, server, 1);
    if (!ticket)
        return GW_ERR_MEMORY;
    struct part *part = &ticket->parts[0];
    part->request.code = question->code;
    part->request.number = question->number;
    part->request.rank = question->rank;
    GW_TRY(ticket_send(client, ticket));
    gw_status status = ticket_wait(client, ticket);
    if (status == GW_OK && body && zmq_msg_size(&part->value) != n_bytes)
        status = gw_fail(GW_ERR_FRAME_FIELD, "the server at %s told of %zu workers, and is for %zu", gw_tcp_place(client->servers[server].endpoint),
                         zmq_msg_size(&part->value), n_bytes);
    if (status == GW_OK && body)
        memcpy(body, zmq_msg_data(&part->value), n_bytes);
    if (status == GW_OK && reply)
        *reply = part->reply;
    ticket_free(client, ticket);
    return status;
}

/* Where the servers after the first are: the foremost round, and what is so on any (flags of MEMBERS). */
static gw_status look_at_others(struct gw_ps_client *client, uint64_t *round, uint8_t *code)
{
    struct gw_ps_reply reply = {0};
    *round = 1;
    *code = 0;
    for (uint32_t s = 1; s < client->n_servers; s++) {
        GW_TRY(ask(client, s, &(struct gw_ps_request){.operation = GW_PS_MEMBERS}, &reply, NULL, 0));
        *round = reply.number > *round ? reply.number : *round;
        *code |= reply.code;
    }
    return GW_OK;
}

/* Takes part on the servers after the first as well. GW_ERR_ORDER: one has gone on meanwhile. */
static gw_status join_others(struct gw_ps_client *client, uint64_t round)
{
    for (uint32_t s = 1; s < client->n_servers; s++)
        GW_TRY(ask(client, s, &(struct gw_ps_request){.operation = GW_PS_ADMIT, .number = round, .rank = client->rank}, NULL, NULL, 0));
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
        struct gw_ps_reply reply = {0};
        GW_TRY(look_at_others(client, &others, &code));
        if (*round > 0 && code & GW_PS_KEEPS_PARAMETERS) /* that server goes on from there; of others the run before is over in a moment */
            least = others > *round ? others : *round + 1;
        GW_TRY(ask(client, 0, &(struct gw_ps_request){.operation = GW_PS_JOIN, .code = code & GW_PS_HAS_BEGUN, .number = least}, &reply, NULL, 0));
        *round = reply.number;
        status = join_others(client, *round);
        if (status == GW_ERR_ORDER)
            GW_TRY(gw_ps_client_pump(client, -1, gw_clock_seconds() + RETRY_SECONDS));
    }
    return status;
}

bool gw_ps_is_asked(gw_ps_client *client)
{
    return atomic_exchange(&client->asked, false);
}

uint32_t gw_ps_n_workers(const gw_ps_client *client)
{
    return client->servers[0].n_workers;
}

gw_status gw_ps_members(gw_ps_client *client, uint8_t *presence, uint64_t *next_round)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_members: client is NULL");
    struct gw_ps_reply reply = {0};
    GW_TRY(ask(client, 0, &(struct gw_ps_request){.operation = GW_PS_MEMBERS}, &reply, presence, client->servers[0].n_workers));
    if (next_round)
        *next_round = reply.number;
    return GW_OK;
}

gw_status gw_ps_admit(gw_ps_client *client, uint32_t rank, uint64_t round)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_admit: client is NULL");
    for (uint32_t s = client->n_servers; s-- > 0;) /* the first last: it tells the worker */
        GW_TRY(ask(client, s, &(struct gw_ps_request){.operation = GW_PS_ADMIT, .number = round, .rank = rank}, NULL, NULL, 0));
    return GW_OK;
}

/* ---- push and pull ----------------------------------------------------------------------------------------- */

/* After a push failed, which the server may have taken or not: asks how many it has. */
static gw_status settle(struct gw_ps_client *client, const char *name, const struct key *known)
{
    if (!known || !known->uncertain)
        return GW_OK;
    for (const struct ticket *t = client->tickets; t; t = t->next)
        if (t->operation == GW_PS_PUSH && strcmp(t->parts[0].request.key, name) == 0)
            return gw_fail(GW_ERR_ORDER, "a push to \"%s\" failed; those of it that are under way must be waited for before the next", name);
    struct key key = *known;
    key.uncertain = false;
    return init(client, name, &key, key.codec ? key.codec : "", key.optimizer ? key.optimizer : "");
}

/* A push that the server may have taken or not. */
static void doubt(struct gw_ps_client *client, const struct ticket *ticket)
{
    struct key *key;
    if (ticket->operation == GW_PS_PUSH && find_key(client, ticket->parts[0].request.key, &key) == GW_OK && key)
        key->uncertain = true;
}

/* A ticket for the next push of a key, NULL: no memory; `key` is where it lives, counted up where it is known. */
static struct ticket *next_push(struct gw_ps_client *client, const char *name, struct key *known, struct key *key)
{
    *key = known ? *known : stranger(client, name);
    struct ticket *ticket = ticket_new(client, GW_PS_PUSH, key->first, key->n_parts);
    for (uint32_t p = 0; ticket && p < ticket->n_parts; p++) {
        ticket->parts[p].request.number = key->pushed + 1;
        ticket->parts[p].request.rate = client->rate;
        snprintf(ticket->parts[p].request.key, sizeof ticket->parts[p].request.key, "%s", name);
    }
    if (ticket && known)
        known->pushed++;
    return ticket;
}

gw_status gw_ps_push_begin(gw_ps_client *client, const char *name, const void *bytes, size_t n_bytes, uint64_t *out)
{
    struct key *known, key;
    if (!client || !out || (!bytes && n_bytes))
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_push_begin: %s is NULL", client ? out ? "bytes" : "ticket" : "client");
    GW_TRY(find_key(client, name, &known));
    size_t width = known ? gw_ps_type_bytes(known->type) : 0;
    if (width && n_bytes != known->n_elems * width)
        return gw_fail(GW_ERR_ARGUMENT, "a push to \"%s\" has %zu bytes; %s of shape %s takes %" PRIu64, name, n_bytes, gw_ps_type_name(known->type),
                       gw_ps_shape_text(&known->shape).text, known->n_elems * width);
    GW_TRY(settle(client, name, known));
    struct ticket *ticket = next_push(client, name, known, &key);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        size_t begin = p ? (size_t)part_begin(&key, p) * width : 0, end = p + 1 < key.n_parts ? (size_t)part_begin(&key, p + 1) * width : n_bytes;
        ticket->parts[p].body = (const char *)bytes + begin;
        ticket->parts[p].n_bytes = end - begin;
    }
    *out = ticket->id;
    return ticket_send(client, ticket);
}

gw_status gw_ps_refuse_begin(gw_ps_client *client, const char *name, uint64_t number, uint64_t *out)
{
    struct key *known, key;
    GW_TRY(find_key(client, name, &known));
    GW_TRY(settle(client, name, known));
    struct ticket *ticket = next_push(client, name, known, &key);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        ticket->parts[p].request.code = 1;
        ticket->parts[p].request.refusal = number;
    }
    *out = ticket->id;
    return ticket_send(client, ticket);
}

/* Asks for the same of each part of a key. */
static struct ticket *ask_for(struct gw_ps_client *client, enum gw_ps_operation operation, const char *name, const struct key *known)
{
    const struct key key = known ? *known : stranger(client, name);
    struct ticket *ticket = ticket_new(client, operation, key.first, key.n_parts);
    for (uint32_t p = 0; ticket && p < ticket->n_parts; p++)
        snprintf(ticket->parts[p].request.key, sizeof ticket->parts[p].request.key, "%s", name);
    return ticket;
}

gw_status gw_ps_put_begin(gw_ps_client *client, const char *name, const float *values, uint64_t n, uint64_t *out)
{
    struct key *known;
    GW_TRY(find_key(client, name, &known));
    if (!known || known->n_elems != n)
        return gw_fail(GW_ERR_ARGUMENT, "%" PRIu64 " parameters of \"%s\", which was not initialised here with as many elements", n, name);
    struct ticket *ticket = ask_for(client, GW_PS_PUT, name, known);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        ticket->parts[p].body = values + part_begin(known, p);
        ticket->parts[p].n_bytes = (size_t)(part_begin(known, p + 1) - part_begin(known, p)) * sizeof *values;
    }
    *out = ticket->id;
    return ticket_send(client, ticket);
}

gw_status gw_ps_put_parameter(gw_ps_client *client, const char *name, uint64_t version, const void *bytes, size_t n_bytes)
{
    struct key *known;
    if (!client || !bytes)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_put_parameter: %s is NULL", client ? "bytes" : "client");
    GW_TRY(find_key(client, name, &known));
    const size_t width = known ? gw_ps_type_bytes(known->type) : 0;
    if (!known || known->n_elems * width != n_bytes)
        return gw_fail(GW_ERR_ARGUMENT, "%zu bytes are put at \"%s\", which was not initialised here with as many", n_bytes, name);
    struct ticket *ticket = ask_for(client, GW_PS_PUT, name, known);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct part *part = &ticket->parts[p];
        part->request.code = 1;
        part->request.number = version;
        part->body = (const char *)bytes + part_begin(known, p) * width;
        part->n_bytes = (size_t)(part_begin(known, p + 1) - part_begin(known, p)) * width;
    }
    const uint64_t id = ticket->id;
    GW_TRY(ticket_send(client, ticket));
    return gw_ps_wait(client, id, NULL);
}

gw_status gw_ps_get_parameter(gw_ps_client *client, const char *name, uint64_t least, gw_ps_value *out)
{
    struct key *known;
    if (!client || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_get_parameter: %s is NULL", client ? "out" : "client");
    *out = (gw_ps_value){0};
    GW_TRY(find_key(client, name, &known));
    struct ticket *ticket = ask_for(client, GW_PS_GET, name, known);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        ticket->parts[p].request.number = least;
    const uint64_t id = ticket->id;
    GW_TRY(ticket_send(client, ticket));
    return gw_ps_wait(client, id, out);
}

static gw_status pull_begin(gw_ps_client *client, const char *name, gw_ps_method method, const char *scale_key, bool now, uint64_t *out)
{
    struct key *known, *scale = NULL;
    if (!client || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_pull_begin: %s is NULL", client ? "ticket" : "client");
    GW_TRY(find_key(client, name, &known));
    if (scale_key)
        GW_TRY(find_key(client, scale_key, &scale));
    struct ticket *ticket = ask_for(client, GW_PS_PULL, name, known);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct gw_ps_request *request = &ticket->parts[p].request;
        request->code = (uint8_t)method;
        request->number = now;
        snprintf(request->scale_key, sizeof request->scale_key, "%s", scale_key ? scale_key : "");
    }
    *out = ticket->id;
    return ticket_send(client, ticket);
}

gw_status gw_ps_pull_begin(gw_ps_client *client, const char *name, gw_ps_method method, const char *scale_key, uint64_t *out)
{
    return pull_begin(client, name, method, scale_key, false, out);
}

gw_status gw_ps_pull_now_begin(gw_ps_client *client, const char *name, uint64_t *out)
{
    return pull_begin(client, name, GW_PS_PARAMETERS, NULL, true, out);
}

/* ---- for the link to servers ------------------------------------------------------------------------------- */

void gw_ps_client_drop(gw_ps_client *client, uint64_t id)
{
    struct ticket *ticket = find_ticket(client, id);
    if (!ticket)
        return;
    doubt(client, ticket);
    drop(client, ticket);
}

bool gw_ps_client_has(const gw_ps_client *client, uint64_t id)
{
    const struct ticket *ticket = find_ticket(client, id);
    for (uint32_t p = 0; ticket && p < ticket->n_parts; p++)
        if (!ticket->parts[p].done)
            return gw_clock_seconds() >= ticket->deadline;
    return true;
}

uint32_t gw_ps_client_rank(const gw_ps_client *client)
{
    return client->rank;
}

uint32_t gw_ps_client_backup(const gw_ps_client *client)
{
    uint32_t most = 0;
    for (uint32_t s = 0; s < client->n_servers; s++)
        most = client->servers[s].backup > most ? client->servers[s].backup : most;
    return most;
}

uint32_t gw_ps_client_servers(const gw_ps_client *client)
{
    return client->n_servers;
}

uint64_t gw_ps_refusal(const gw_ps_client *client)
{
    return client->refusal;
}

/* ---- how it pushes and pulls ------------------------------------------------------------------------------- */

gw_status gw_ps_set_rate(gw_ps_client *client, double rate)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_set_rate: client is NULL");
    if (!(rate >= 0 && rate <= (double)FLT_MAX))
        return gw_fail(GW_ERR_ARGUMENT, "the learning rate of pushes is to be %g; it must be a finite number from 0 up", rate);
    client->rate = rate;
    return GW_OK;
}

gw_ps_mode gw_ps_client_mode(const gw_ps_client *client, uint32_t *staleness)
{
    if (staleness)
        *staleness = client->servers[0].staleness;
    return client->servers[0].mode;
}

/* ---- values ------------------------------------------------------------------------------------------------ */

struct hold {
    gw_context *context;
    bool whole;        /* the message's bytes as they came */
    zmq_msg_t message;
};

/* The shape of a value that came in parts: its key's, or where it has other elements (codes) a row. */
static gw_ps_shape whole_shape(const struct gw_ps_client *client, const struct ticket *ticket, const gw_ps_value *value)
{
    uint64_t n = value->n_bytes / gw_ps_type_bytes(value->type), k = gw_ps_names_find(&client->names, ticket->parts[0].request.key);
    if (k != GW_PS_NO_NAME && client->keys[k].n_elems == n)
        return client->keys[k].shape;
    return (gw_ps_shape){.n_dims = 1, .dims = {n}};
}

/* Puts the parts together; a value of one part stays where it came. */
static gw_status take_value(struct gw_ps_client *client, struct ticket *ticket, gw_ps_value *out)
{
    const struct gw_ps_reply *reply = &ticket->parts[0].reply;
    *out = (gw_ps_value){.type = (gw_ps_type)reply->code, .shape = reply->shape, .round = reply->number, .n_pushes = reply->n_pushes};
    struct hold *hold = gw_alloc(client->context, 1, sizeof *hold);
    if (!hold)
        return GW_ERR_MEMORY;
    hold->context = client->context;
    hold->whole = ticket->n_parts == 1;
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        out->n_bytes += zmq_msg_size(&ticket->parts[p].value);
    if (hold->whole) {
        zmq_msg_init(&hold->message);
        zmq_msg_move(&hold->message, &ticket->parts[0].value);
        out->bytes = zmq_msg_data(&hold->message);
        out->hold = hold;
        return GW_OK;
    }
    out->shape = whole_shape(client, ticket, out);
    char *at = out->bytes = gw_alloc(client->context, out->n_bytes, 1);
    if (!at) {
        gw_free(client->context, hold);
        return GW_ERR_MEMORY;
    }
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        memcpy(at, zmq_msg_data(&ticket->parts[p].value), zmq_msg_size(&ticket->parts[p].value));
        at += zmq_msg_size(&ticket->parts[p].value);
    }
    out->hold = hold;
    return GW_OK;
}

gw_status gw_ps_wait(gw_ps_client *client, uint64_t id, gw_ps_value *out)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_wait: client is NULL");
    if (out)
        *out = (gw_ps_value){0};
    struct ticket *ticket = find_ticket(client, id);
    if (!ticket)
        return gw_fail(GW_ERR_ORDER, "there is no ticket %" PRIu64 ", or it has been waited for already", id);
    const bool brings = ticket->operation == GW_PS_PULL || ticket->operation == GW_PS_GET;
    if (brings && !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_wait: out is NULL for the ticket of a pull");
    gw_status status = ticket_wait(client, ticket);
    if (status < 0)
        doubt(client, ticket);
    for (uint32_t p = 1; status == GW_OK && ticket->operation == GW_PS_GET && p < ticket->n_parts; p++)
        if (ticket->parts[p].reply.number != ticket->parts[0].reply.number)
            status = gw_fail(GW_ERR_ORDER, "\"%s\" was replaced while it was got: try again", ticket->parts[0].request.key);
    if (status == GW_OK && brings)
        status = take_value(client, ticket, out);
    drop(client, ticket);
    return status;
}

gw_status gw_ps_push_parameter(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes)
{
    uint64_t ticket;
    GW_TRY(gw_ps_push_begin(client, key, bytes, n_bytes, &ticket));
    return gw_ps_wait(client, ticket, NULL);
}

gw_status gw_ps_pull_parameter(gw_ps_client *client, const char *key, gw_ps_method method, const char *scale_key, gw_ps_value *out)
{
    uint64_t ticket;
    if (!out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_pull_parameter: out is NULL");
    *out = (gw_ps_value){0};
    GW_TRY(gw_ps_pull_begin(client, key, method, scale_key, &ticket));
    return gw_ps_wait(client, ticket, out);
}

void gw_ps_value_free(gw_ps_value *value)
{
    struct hold *hold = value ? value->hold : NULL;
    if (!hold)
        return;
    if (hold->whole)
        zmq_msg_close(&hold->message);
    else
        gw_free(hold->context, value->bytes);
    gw_free(hold->context, hold);
    *value = (gw_ps_value){0};
}

/* ---- beginning and end ------------------------------------------------------------------------------------- */

static gw_status parse_servers(struct gw_ps_client *client, const char *text)
{
    while (*text) {
        char place[512];
        size_t length = strcspn(text, ",");
        struct gw_tcp_address address;
        if (client->n_servers == MOST_SERVERS)
            return gw_fail(GW_ERR_ARGUMENT, "more than %d servers are named", MOST_SERVERS);
        if (length == 0 || length >= sizeof place)
            return gw_fail(GW_ERR_ARGUMENT, "the servers are \"%s\"; they must be HOST:PORT, with commas between", text);
        memcpy(place, text, length);
        place[length] = 0;
        GW_TRY(gw_tcp_address_parse("a server", place, false, &address));
        for (uint32_t s = 0; s < client->n_servers; s++)
            if (strcmp(client->servers[s].endpoint, address.endpoint) == 0)
                return gw_fail(GW_ERR_ARGUMENT, "the server %s is named twice; each one is named once", place);
        memcpy(client->servers[client->n_servers++].endpoint, address.endpoint, sizeof address.endpoint);
        text += length + (text[length] == ',');
    }
    return client->n_servers ? GW_OK : gw_fail(GW_ERR_ARGUMENT, "no server is named; it must be HOST:PORT");
}

static gw_status connect_to(struct gw_ps_client *client, uint32_t s)
{
    struct server *server = &client->servers[s];
    char news[32];
    snprintf(news, sizeof news, "news-%u", s);
    server->socket = gw_tcp_socket_new(client->group, ZMQ_DEALER, false);
    if (!server->socket)
        return GW_ERR_SYSTEM;
    GW_TRY(gw_tcp_set_int(server->socket, ZMQ_RECONNECT_IVL, 100));
    GW_TRY(gw_tcp_set_int(server->socket, ZMQ_RECONNECT_IVL_MAX, 2000));
    GW_TRY(gw_tcp_watch(client->group, server->socket, news, ZMQ_EVENT_HANDSHAKE_SUCCEEDED, &server->events));
    GW_TRY(gw_tcp_set_int(server->socket, ZMQ_RCVTIMEO, LOOK_MS));
    return gw_tcp_connect(server->socket, server->endpoint, client->group->keys ? client->group->keys->rendezvous : NULL);
}

/* Why there was no welcome. */
static gw_status not_met(const struct gw_ps_client *client, const struct server *server)
{
    if (server->first_refused != 0)
        return gw_fail(GW_ERR_PEER, "the server at %s refused this client: %s", gw_tcp_place(server->endpoint), server->why);
    return gw_fail(GW_ERR_TIMEOUT, "the server at %s did not answer within %u ms: it is not there, or it refuses this client's key%s",
                   gw_tcp_place(server->endpoint), client->timeout_ms, client->group->keys ? "" : " (this client has none)");
}

static gw_status meet(struct gw_ps_client *client)
{
    double deadline = gw_clock_seconds() + client->timeout_ms / 1000.0;
    for (uint32_t s = 0; s < client->n_servers; s++)
        GW_TRY(connect_to(client, s));
    for (uint32_t s = 0; s < client->n_servers; s++)
        while (!client->servers[s].welcome) {
            if (gw_clock_seconds() >= deadline)
                return not_met(client, &client->servers[s]);
            GW_TRY(gw_ps_client_pump(client, -1, deadline));
        }
    for (uint32_t s = 1; s < client->n_servers; s++)
        if (client->servers[s].mode != client->servers[0].mode || client->servers[s].staleness != client->servers[0].staleness)
            return gw_fail(GW_ERR_PEER, "the servers at %s and at %s have not the same --mode", gw_tcp_place(client->servers[0].endpoint),
                           gw_tcp_place(client->servers[s].endpoint));
    for (uint32_t s = 1; s < client->n_servers; s++)
        if (client->servers[s].n_workers != client->servers[0].n_workers)
            return gw_fail(GW_ERR_PEER, "the server at %s is for %u workers, and that at %s for %u", gw_tcp_place(client->servers[0].endpoint),
                           client->servers[0].n_workers, gw_tcp_place(client->servers[s].endpoint), client->servers[s].n_workers);
    return GW_OK;
}

static gw_status set_up(struct gw_ps_client *client, const gw_ps_client_options *options)
{
    struct gw_tcp_group *group = client->group = gw_calloc(client->context, 1, sizeof *group);
    if (!group)
        return GW_ERR_MEMORY;
    group->context = client->context;
    group->timeout_ms = client->timeout_ms;
    group->size = 1;
    GW_TRY(parse_servers(client, options->servers));
    if (getrandom(&client->incarnation, sizeof client->incarnation, 0) != sizeof client->incarnation)
        return gw_fail(GW_ERR_SYSTEM, "no random number from the system: %s", strerror(errno));
    group->zmq = zmq_ctx_new();
    if (!group->zmq)
        return gw_fail(GW_ERR_SYSTEM, "no ZeroMQ context: %s", zmq_strerror(zmq_errno()));
    if (options->keys)
        GW_TRY(gw_tcp_keys_load(client->context, options->keys, &group->keys));
    return meet(client);
}

/* What was sent gets a moment to leave; the server finds out in any case. */
static void say_goodbye(struct gw_ps_client *client)
{
    for (uint32_t s = 0; s < client->n_servers; s++)
        if (client->servers[s].socket && client->servers[s].welcome) {
            gw_tcp_set_int(client->servers[s].socket, ZMQ_LINGER, 1000);
            send_request(&client->servers[s], &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL);
        }
}

gw_status gw_ps_client_create(gw_context *context, const gw_ps_client_options *options, gw_ps_client **out)
{
    if (!options || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_client_create: %s is NULL", options ? "out" : "options");
    if (options->struct_bytes != sizeof *options)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_client_options.struct_bytes is %zu, and must be %zu", options->struct_bytes, sizeof *options);
    if (!options->servers)
        return gw_fail(GW_ERR_ARGUMENT, "no server is named; it must be HOST:PORT");
    struct gw_ps_client *client = gw_calloc(context, 1, sizeof *client);
    if (!client)
        return GW_ERR_MEMORY;
    client->context = context;
    client->rank = options->rank;
    client->joins = options->joins;
    client->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    client->next_id = 1;
    client->end = &client->tickets;
    client->names.context = context;
    gw_status status = set_up(client, options);
    if (status < 0) {
        gw_ps_client_destroy(client);
        return status;
    }
    *out = client;
    return GW_OK;
}

void gw_ps_client_destroy(gw_ps_client *client)
{
    if (!client)
        return;
    say_goodbye(client);
    while (client->tickets)
        ticket_free(client, client->tickets);
    for (uint32_t s = 0; s < client->n_servers; s++)
        gw_tcp_close_watched(&client->servers[s].socket, &client->servers[s].events);
    gw_tcp_group_free(client->group);
    for (uint64_t k = 0; k < client->names.n; k++) {
        gw_free(client->context, client->keys[k].codec);
        gw_free(client->context, client->keys[k].optimizer);
    }
    gw_ps_names_fini(&client->names);
    gw_free(client->context, client->keys);
    gw_free(client->context, client);
}
