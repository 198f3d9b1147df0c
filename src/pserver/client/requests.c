/* Sends requests to servers and takes in their answers. While a caller waits for one, it takes in the answers to others
 * as well. If a connection was lost and is there again, the client sends all requests again that have no answer yet. A
 * push has a number, so the server takes it only once. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/client/state.h"
#include "pserver/client/for_exchange.h"

#include <gradwire/codec.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#define GRACE_SECONDS 2.0 /* after the deadline, for a server that is there to say for whom it waited */
#define PLACE_SECONDS 3.0 /* how long the rank of a client that died may still look taken */
#define LOOK_SECONDS 0.5  /* between looks whether a server's machine answers */
/* answers that are taken before the client looks at deadlines: a server may send answers without end */
#define AT_ONCE 256

/* ---- sending ----------------------------------------------------------------------------------------------- */

/* Sends the request of a part. If the server has not said welcome, it is sent when it does. The connection reads the
 * caller's own bytes as long as the part waits. */
static gw_status send_part(struct gw_ps_client *client, uint32_t s, struct part *part)
{
    struct server *server = &client->servers[s];
    return server->welcome ? gw_ps_server_send(server, &part->head, gw_ps_request_has_value(&part->head) ? part : NULL)
                           : GW_OK;
}

static gw_status send_again(struct gw_ps_client *client, uint32_t s)
{
    for (struct request *t = TAILQ_FIRST(&client->open); t; t = TAILQ_NEXT(t, link))
        if (s >= t->place.first && s < t->place.first + t->place.n_parts && !t->parts[s - t->place.first].done)
            GW_TRY(send_part(client, s, &t->parts[s - t->place.first]));
    return GW_OK;
}

/* ---- receiving --------------------------------------------------------------------------------------------- */

/* Gives a server up. The last error says what is wrong with it. The client trusts nothing more that it says. */
static void give_up(struct server *server)
{
    server->refused = true;
    gw_fail(GW_ERR_PEER, "sent an invalid answer: %s", gw_last_error());
    snprintf(server->why, sizeof server->why, "%s", gw_last_error());
}

/* Checks that an answer to HELLO can come from a server; and that one that was met before has the same numbers as then.
 * Arrays that have the size of these numbers stay right. */
static gw_status check_hello(const struct server *server, const struct gw_ps_answer *answer)
{
    const struct gw_ps_answer *before = &server->hello;
    if (answer->n_workers == 0 || answer->n_workers > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_PEER, "the server says that it is for %u workers; it must be 1 to %u", answer->n_workers,
                       (unsigned)GW_MAX_WORKERS);
    if (answer->backup >= answer->n_workers)
        return gw_fail(GW_ERR_PEER, "the server says that %u of its %u workers are backup; it must be fewer than all",
                       answer->backup, answer->n_workers);
    if (server->was_welcome && (before->n_workers != answer->n_workers || before->mode != answer->mode ||
                                before->staleness != answer->staleness || before->backup != answer->backup))
        return gw_fail(
            GW_ERR_PEER,
            "it was for %u workers and is for %u now, or its --mode or --backup is another; this client must "
            "be made anew",
            before->n_workers, answer->n_workers);
    return GW_OK;
}

static gw_status hello_answered(struct gw_ps_client *client, uint32_t s, const struct gw_ps_answer *answer)
{
    struct server *server = &client->servers[s];
    const double now = gw_clock_seconds();
    if (answer->status == GW_OK && server->welcome)
        return GW_OK; /* it has answered already */
    if (answer->status == GW_OK && check_hello(server, answer) < 0) {
        give_up(server);
    } else if (answer->status == GW_OK) {
        server->hello = *answer;
        server->welcome = server->was_welcome = true;
        server->first_refused = 0;
        server->n_failed = server->n_ended = server->n_mismatched = 0;
        return send_again(client, s);
    } else if (answer->status == GW_ERR_PEER &&
               (server->first_refused == 0 || now - server->first_refused < PLACE_SECONDS)) {
        server->first_refused = server->first_refused == 0 ? now : server->first_refused;
        snprintf(server->why, sizeof server->why, "%s", answer->sentence);
        gw_ps_server_redial(server);
        server->dial_at = now + RETRY_SECONDS;
    } else {
        server->refused = true;
        gw_fail(answer->status, "refused this client: %s", answer->sentence);
        snprintf(server->why, sizeof server->why, "%s", gw_last_error());
    }
    return GW_OK;
}

/* Finds the part that waits for an answer of server s with that id. NULL: none does. */
static struct part *part_of(struct gw_ps_client *client, uint32_t s, uint64_t id, struct request **request)
{
    const uint64_t p = id % MOST_SERVERS;
    *request = gw_ps_request_find(client, id - p);
    return *request && p < (*request)->place.n_parts && s == (*request)->place.first + p && !(*request)->parts[p].done
               ? &(*request)->parts[p]
               : NULL;
}

gw_status gw_ps_too_late(const struct gw_ps_client *client, gw_status status, const char *what)
{
    return status == GW_ERR_ORDER ? gw_fail(GW_ERR_TIMEOUT, "%s was not possible within %u ms: %s", what,
                                            client->timeout_ms, gw_last_error())
                                  : status;
}

struct gw_ps_asked gw_ps_asked_of(const struct gw_ps_client *client, const struct request *request, uint32_t p)
{
    return (struct gw_ps_asked){.request = &request->parts[p].head,
                                .type = request->place.type,
                                .shape = gw_ps_part_shape(&request->place, p),
                                .n_workers = client->servers[request->place.first + p].hello.n_workers,
                                .most = client->most_bytes};
}

/* Where part p of a value of n_bytes begins. Each element takes as many bytes; the length of one part alone may be
 * anything. */
static size_t offset_of(const struct place *place, uint32_t p, size_t n_bytes)
{
    return place->n_parts > 1 ? n_bytes / (size_t)place->n_elems * (size_t)gw_ps_part_begin(place, p) : p * n_bytes;
}

/* Makes room for the value of an answer, which was checked. The lengths of the parts are known if there are several.
 * NULL: there is no memory. */
static void *make_room(struct gw_ps_client *client, struct request *request, const struct part *part, size_t n_bytes)
{
    const struct place *place = &request->place;
    const uint32_t p = (uint32_t)(part - request->parts);
    const uint64_t n_elems = gw_ps_part_begin(place, p + 1) - gw_ps_part_begin(place, p);
    const size_t total = place->n_parts > 1 ? n_bytes / (size_t)n_elems * (size_t)place->n_elems : n_bytes;
    if (request->value && request->n_bytes != total) { /* from an earlier connection */
        gw_free(client->context, request->value);
        request->value = NULL;
    }
    if (!request->value)
        request->value = gw_alloc(client->context, total, 1);
    request->n_bytes = total;
    return request->value ? request->value + offset_of(place, p, total) : NULL;
}

/* Where a long value is received. What cannot be right is dropped as it comes. */
static void *place(void *user, const struct gw_net_message *message)
{
    struct server *server = user;
    struct gw_ps_client *client = server->client;
    const uint32_t s = (uint32_t)(server - client->servers);
    struct gw_ps_answer answer;
    struct request *request;
    if (message->kind != GW_PS_MESSAGE || gw_ps_answer_read(message->header, message->n_header, &answer) < 0)
        return gw_net_nowhere;
    struct part *part = part_of(client, s, answer.id, &request);
    if (!part)
        return gw_net_nowhere;
    const struct gw_ps_asked asked = gw_ps_asked_of(client, request, s - request->place.first);
    void *room = gw_ps_answer_check(&asked, &answer, message->n_bytes) == GW_OK && answer.status == GW_OK
                     ? make_room(client, request, part, message->n_bytes)
                     : NULL;
    return room ? room : gw_net_nowhere;
}

/* Takes the value of an answer that was checked. */
static gw_status take_value(struct gw_ps_client *client, struct request *request, struct part *part,
                            const struct gw_net_message *message)
{
    const bool is_copied = message->n_bytes && message->is_small;
    void *room = is_copied ? make_room(client, request, part, message->n_bytes) : message->bytes;
    if (!room || room == gw_net_nowhere)
        return gw_fail(GW_ERR_MEMORY, "no memory for the value of \"%s\"", part->head.key);
    if (is_copied)
        memcpy(room, message->bytes, message->n_bytes);
    return GW_OK;
}

/* Sends a part again at that time. */
static void send_later(struct gw_ps_client *client, struct part *part, double at)
{
    part->again_at = at;
    client->again_at = fmin(client->again_at, at);
}

/* The parts of a key are pushed with one number. If one of its servers cannot take a number any more, the others must
 * not wait for it. So this sends the INIT to them again, with that number. Returns whether it has sent any. */
static bool tell_skipped(struct gw_ps_client *client, struct request *request)
{
    uint64_t past = 0;
    for (uint32_t p = 0; p < request->place.n_parts; p++) {
        const struct gw_ps_answer *answer = &request->parts[p].answer;
        if (answer->operation != GW_PS_INIT || answer->status < 0)
            return false;
        if (answer->flags & GW_PS_IS_PAST && answer->n_pushed > past)
            past = answer->n_pushed;
    }
    for (uint32_t p = 0; p < request->place.n_parts; p++) {
        struct part *part = &request->parts[p];
        if (part->answer.n_pushed >= past || part->head.skipped >= past)
            continue;
        part->head.skipped = past;
        part->done = false;
        send_later(client, part, gw_clock_seconds());
        request->n_left++;
    }
    return request->n_left > 0;
}

/* Takes an answer, and checks it before it uses anything of it. If the answer cannot be right, or there is no memory
 * for it, it becomes an error. */
static void take_answer(struct gw_ps_client *client, uint32_t s, struct request *request, struct part *part,
                        const struct gw_ps_answer *answer, const struct gw_net_message *message)
{
    const struct gw_ps_asked asked = gw_ps_asked_of(client, request, s - request->place.first);
    gw_status status = gw_ps_answer_check(&asked, answer, message->n_bytes);
    if (status == GW_OK)
        status = take_value(client, request, part, message);
    part->answer = *answer;
    if (status == GW_OK && (answer->operation == GW_PS_INIT || answer->operation == GW_PS_AGREE) &&
        answer->status == GW_ERR_ORDER) {
        send_later(client, part, gw_clock_seconds() + RETRY_SECONDS); /* then the server knows whose run it is */
        return;
    }
    if (status < 0) {
        part->answer = (struct gw_ps_answer){.operation = part->head.operation, .id = answer->id, .status = status};
        gw_fail(status, "the server at %s: %s", gw_ps_place(&client->servers[s]), gw_last_error());
        snprintf(part->answer.sentence, sizeof part->answer.sentence, "%s", gw_last_error());
    } else if (answer->flags & GW_PS_IN_MEMORY) {
        atomic_store(&client->in_memory, true);
    }
    part->again_at = 0; /* if this answers an earlier sending of it */
    part->done = true;
    if (--request->n_left == 0 && !tell_skipped(client, request)) {
        TAILQ_REMOVE(&client->open, request, link);
        TAILQ_INSERT_TAIL(&client->answered, request, link);
    }
}

/* Takes one message of a server. */
static gw_status take(struct gw_ps_client *client, uint32_t s, const struct gw_net_message *message)
{
    struct server *server = &client->servers[s];
    struct gw_ps_answer answer;
    struct request *request;
    const gw_status status =
        message->kind == GW_PS_MESSAGE
            ? gw_ps_answer_read(message->header, message->n_header, &answer)
            : gw_fail(GW_ERR_FRAME_MAGIC, "it sent a message of kind %u, which no server sends", message->kind);
    if (status < 0) {
        give_up(server);
        return GW_OK;
    }
    if (answer.status < 0 && !answer.sentence[0]) /* every error must have a sentence */
        snprintf(answer.sentence, sizeof answer.sentence, "the server gives no reason (%s)",
                 gw_status_text(answer.status));
    if (answer.operation == GW_PS_HELLO)
        return hello_answered(client, s, &answer);
    if (answer.operation == GW_PS_ASK) {
        atomic_store(&client->join, true);
    } else if (answer.operation == GW_PS_WHO) { /* the server cannot read the client's messages */
        gw_fail(GW_ERR_PEER, "%s", answer.sentence);
        give_up(server);
    } else {
        struct part *part = part_of(client, s, answer.id, &request);
        if (part)
            take_answer(client, s, request, part, &answer, message);
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
            GW_TRY(status);
            server->has_more = gw_net_has_more(&server->c);
        }
        server->has_more = server->has_more && status == GW_OK; /* not if it is half a message */
        const double now = gw_clock_seconds();
        if (status >= 0 && server->welcome && now >= server->look_at) {
            server->look_at = now + LOOK_SECONDS;
            if (gw_net_is_silent(&server->c, server->hello.timeout_ms))
                status = GW_ERR_PEER;
        }
        if (status == GW_ERR_PEER && server->c.fd >= 0)
            gw_ps_server_lost(server);
    }
    return gw_ps_server_check(server);
}

/* Sends requests again that a server could not do yet, if it is time. */
static gw_status ask_again(struct gw_ps_client *client)
{
    const double now = gw_clock_seconds();
    if (now < client->again_at)
        return GW_OK;
    double next = INFINITY;
    for (struct request *t = TAILQ_FIRST(&client->open); t; t = TAILQ_NEXT(t, link))
        for (uint32_t p = 0; p < t->place.n_parts; p++) {
            struct part *part = &t->parts[p];
            if (part->again_at > now) {
                next = fmin(next, part->again_at);
            } else if (part->again_at > 0) {
                GW_TRY(send_part(client, t->place.first + p, part));
                part->again_at = 0;
            }
        }
    client->again_at = next;
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
        deadline = fmin(at, deadline);
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
    GW_TRY(ask_again(client));
    for (uint32_t s = 0; s < client->n_servers; s++)
        if (!client->servers[s].c.connected || !client->servers[s].welcome || client->servers[s].refused)
            GW_TRY(turn(client, s, &n)); /* with others, poll knows of all that there is to do */
    if (n > 0)
        return GW_OK;
    GW_TRY(wait_for_servers(client, fd, fmin(deadline, client->again_at)));
    for (uint32_t s = 0; s < client->n_servers; s++)
        GW_TRY(turn(client, s, &n));
    return GW_OK;
}

/* ---- requests ----------------------------------------------------------------------------------------------- */

struct request *gw_ps_request_find(const struct gw_ps_client *client, uint64_t id)
{
    const struct bucket *bucket = &client->buckets[id / MOST_SERVERS % REQUEST_BUCKETS];
    for (struct request *request = LIST_FIRST(bucket); request; request = LIST_NEXT(request, same_bucket))
        if (request->id == id)
            return request;
    return NULL;
}

void gw_ps_request_free(struct gw_ps_client *client, struct request *request)
{
    struct key *key = request->key;
    gw_ps_client_drop(client, request->second);
    LIST_REMOVE(request, same_bucket);
    TAILQ_REMOVE(request->n_left ? &client->open : &client->answered, request, link);
    for (uint32_t p = 0; p < request->place.n_parts; p++) {
        const struct part *part = &request->parts[p];
        struct server *server = &client->servers[request->place.first + p];
        if (key && request->asked->operation == GW_PS_PUSH && (!part->done || part->answer.status < 0))
            key->uncertain = true;
        /* No connection may read the caller's bytes any more, nor write into the value. An answer says that all was
         * sent, unless the server lies or the request is given up. On the new connection, requests without an answer
         * are sent again. */
        if (part->waits ||
            (request->value && server->c.body >= request->value && server->c.body < request->value + request->n_bytes))
            gw_ps_server_redial(server);
    }
    if (key) {
        key->n_pushes -= request->asked->operation == GW_PS_PUSH;
        key->n_inits -= request->asked->operation == GW_PS_INIT;
    }
    gw_free(client->context, request->value);
    gw_free(client->context, request);
}

void gw_ps_client_drop(gw_ps_client *client, uint64_t id)
{
    struct request *request = gw_ps_request_find(client, id);
    if (request)
        gw_ps_request_free(client, request);
}

/* Makes a request to the servers of `place`. NULL: there is no memory. */
static struct request *new_request(struct gw_ps_client *client, const struct gw_ps_request *head, struct key *key,
                                   const struct place *place, const void *body, size_t n_bytes)
{
    struct request *request =
        gw_calloc(client->context, 1, sizeof *request + place->n_parts * sizeof request->parts[0]);
    if (!request)
        return NULL;
    const bool has_value = gw_ps_request_has_value(head);
    request->id = client->next_id;
    request->asked = &request->parts[0].head;
    request->deadline = gw_clock_seconds() + client->timeout_ms / 1000.0;
    request->n_left = place->n_parts;
    request->key = key;
    request->place = *place;
    request->body = body;
    client->next_id += MOST_SERVERS;
    for (uint32_t p = 0; p < request->place.n_parts; p++) {
        struct part *part = &request->parts[p];
        const size_t begin = offset_of(place, p, n_bytes), end = offset_of(place, p + 1, n_bytes);
        part->head = *head;
        part->head.id = request->id + p;
        part->head.timeout_ms = client->timeout_ms;
        part->head.n_parts = place->n_parts;
        part->head.shape = gw_ps_part_shape(place, p);
        part->body = has_value ? (const char *)body + begin : NULL;
        part->n_bytes = has_value ? end - begin : 0;
    }
    LIST_INSERT_HEAD(&client->buckets[request->id / MOST_SERVERS % REQUEST_BUCKETS], request, same_bucket);
    TAILQ_INSERT_TAIL(&client->open, request, link);
    if (key) {
        key->n_pushes += head->operation == GW_PS_PUSH;
        key->n_inits += head->operation == GW_PS_INIT;
    }
    return request;
}

/* After a push failed, the server may have taken it or not. So this asks the server how many pushes it has. */
static gw_status settle(struct gw_ps_client *client, const struct key *key)
{
    if (!key->uncertain)
        return GW_OK;
    if (key->n_pushes)
        return gw_fail(GW_ERR_ORDER,
                       "a push to \"%s\" failed; those of it that are under way must be waited for before the next",
                       key->name);
    struct gw_ps_request init = gw_ps_request_of(GW_PS_INIT, key->name);
    struct request *request;
    init.type = (uint8_t)key->place.type;
    init.shape = key->place.shape;
    snprintf(init.codec, sizeof init.codec, "%s", key->codec ? key->codec : "");
    snprintf(init.optimizer, sizeof init.optimizer, "%s", key->optimizer ? key->optimizer : "");
    GW_TRY(gw_ps_request_begin(client, key->place.n_parts > 1 ? GW_PS_BY_KEY : key->place.first, &init, NULL, 0,
                               &request));
    gw_status status = gw_ps_request_wait(client, request, INFINITY);
    if (status == GW_OK)
        status = gw_ps_key_made(client, request);
    gw_ps_request_free(client, request);
    return status;
}

/* Checks what is pushed or put, and says how it is counted. */
static gw_status prepare(struct gw_ps_client *client, struct gw_ps_request *head, const struct key *key,
                         const struct place *place, size_t n_bytes)
{
    const bool pushes = head->operation == GW_PS_PUSH, puts = head->operation == GW_PS_PUT;
    const size_t width = puts && head->put_kind == GW_PS_PUT_FIRST ? sizeof(float) : gw_ps_type_bytes(place->type);
    if (puts && place->type == 0)
        return gw_fail(GW_ERR_ORDER,
                       "a put to \"%s\", which this client has not initialised; init_parameter comes first", head->key);
    if (head->operation == GW_PS_VERDICT && place->type) /* else it is 0, and the server says what is wrong */
        head->nth = key->pushed;
    if (pushes && key && key->n_inits)
        return gw_fail(GW_ERR_ORDER, "\"%s\" is being initialised; that must be waited for before a push", head->key);
    if (gw_ps_request_has_value(head) && width && n_bytes != place->n_elems * width)
        return gw_fail(GW_ERR_ARGUMENT, "a %s to \"%s\" has %zu bytes; %s of shape %s takes %" PRIu64,
                       puts ? "put" : "push", head->key, n_bytes, gw_ps_type_name(place->type),
                       gw_ps_shape_text(&place->shape).text, place->n_elems * width);
    if (pushes && place->type) {
        GW_TRY(settle(client, key));
        head->nth = key->pushed + 1;
    }
    return GW_OK;
}

gw_status gw_ps_client_ready(const gw_ps_client *client)
{
    GW_TRY(gw_ps_client_check(client, "a request"));
    return client->has_met ? GW_OK
                           : gw_fail(GW_ERR_ORDER, "the servers have not answered this client yet; gw_ps_client_meet "
                                                   "must come before other calls");
}

gw_status gw_ps_request_begin(struct gw_ps_client *client, uint32_t server, const struct gw_ps_request *asked,
                              const void *body, size_t n_bytes, struct request **out)
{
    struct gw_ps_request head = *asked;
    struct place place = {.n_parts = 1};
    struct key *key = NULL;
    *out = NULL;
    head.rate += 0.0; /* makes 0 of -0, which is legal for callers and not on the wire */
    GW_TRY(gw_ps_client_ready(client));
    if (head.key[0]) {
        key = gw_ps_names_find(&client->keys, head.key);
        place = gw_ps_key_find(client, head.key);
    }
    if (head.operation == GW_PS_INIT) {
        GW_TRY(gw_ps_key_place(client, head.key, (gw_ps_type)head.type, &head.shape, &place));
        GW_TRY(gw_ps_key_add(client, head.key, &key));
    }
    if (server != GW_PS_BY_KEY)
        place.first = server, place.n_parts = 1;
    GW_TRY(prepare(client, &head, key, &place, n_bytes));
    const bool counts = head.operation == GW_PS_INIT || (head.operation == GW_PS_PUSH && place.type);
    struct request *request = new_request(client, &head, counts ? key : NULL, &place, body, n_bytes);
    if (!request)
        return GW_ERR_MEMORY;
    if (head.operation == GW_PS_PUSH && counts)
        key->pushed++;
    gw_status status = gw_ps_request_send(client, request);
    if (status < 0)
        gw_ps_request_free(client, request);
    else
        *out = request;
    return status;
}

gw_status gw_ps_request_send(struct gw_ps_client *client, struct request *request)
{
    for (uint32_t p = 0; p < request->place.n_parts; p++)
        GW_TRY(send_part(client, request->place.first + p, &request->parts[p]));
    return GW_OK;
}

/* The first part without an answer. There must be one. */
static uint32_t first_open(const struct request *request)
{
    uint32_t p = 0;
    while (request->parts[p].done)
        p++;
    return p;
}

double gw_ps_request_end(const struct gw_ps_client *client, const struct request *request)
{
    const bool is_there = client->servers[request->place.first + first_open(request)].welcome;
    return request->deadline + (is_there ? GRACE_SECONDS : 0);
}

gw_status gw_ps_request_wait(struct gw_ps_client *client, const struct request *request, double until)
{
    client->refusal = UINT64_MAX;
    while (request->n_left > 0) {
        const uint32_t p = first_open(request);
        const struct gw_ps_answer *answer = &request->parts[p].answer;
        const double now = gw_clock_seconds(), end = gw_ps_request_end(client, request);
        /* what the server still cannot do */
        if (now >= end && answer->status == GW_ERR_ORDER)
            return gw_ps_too_late(client, gw_fail(GW_ERR_ORDER, "%s", answer->sentence),
                                  answer->operation == GW_PS_INIT ? "making a key" : "agreeing with the other workers");
        if (now >= end)
            return gw_ps_answer_missing(&request->parts[p].head,
                                        gw_ps_place(&client->servers[request->place.first + p]));
        GW_TRY(gw_ps_client_pump(client, -1, until < end ? until : end));
        if (now >= until && request->n_left > 0)
            return GW_NOT_YET;
    }
    for (uint32_t p = 0; p < request->place.n_parts; p++)
        if (request->parts[p].answer.status == GW_ERR_NONFINITE && request->parts[p].answer.refusal < client->refusal)
            client->refusal = request->parts[p].answer.refusal;
    for (uint32_t p = 0; p < request->place.n_parts; p++)
        if (request->parts[p].answer.status < 0)
            return gw_fail(request->parts[p].answer.status, "%s", request->parts[p].answer.sentence);
    return GW_OK;
}
