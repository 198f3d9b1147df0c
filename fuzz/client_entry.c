/* Feeds a client of the parameter server with answers of servers that lie. The client is the real one. In place of
 * TCP it has socket pairs within this process, so no address is bound.
 *
 * An input is a mode, and then calls. Each call says what is asked, and how many answers come. An answer is an honest
 * one whose bytes are altered (by exclusive or), or bytes as they stand. */
#include "entries.h"

#ifdef GW_HAVE_TCP
#include "base/error.h"
#include "base/memory.h"
#include "pserver/client/for_exchange.h"
#include "pserver/client/state.h"
#include "pserver/protocol/methods.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <gradwire/codec.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { MOST_LIARS = 3, WORKERS = 2, MOST_CALLS = 12, MOST_ANSWERS = 7, MOST_BODY = 8192, PUSHED = 64 };

/* bits of the mode, beside the number of servers */
enum { MODE_UNMET = 4, MODE_STALE = 8 };

/* bits of an answer */
enum {
    ANSWER_RAW = 1,        /* the bytes are the head; else they alter an honest head */
    ANSWER_LENGTH = 2,     /* the input gives the length of the body; else the length is honest */
    ANSWER_NO_BODY = 4,    /* there is no body, even if one belongs there */
    ANSWER_PIECES = 8,     /* the body comes in two pieces, and the client looks in between */
    ANSWER_FOR_SCALE = 16, /* this answers the pull of the scale */
    ANSWER_CUT = 32,       /* an honest head loses its last byte */
    ANSWER_KIND = 64,      /* the message is of a kind that no server sends */
};

enum call { MEET, INIT, PUSH, REFUSE, PULL, PULL_NOW, PULL_SCALED, GET, PUT, FIRST, AGREE, MEMBERS, ADMIT, CALLS };

static void promise(int kept)
{
    if (!kept)
        abort();
}

/* ---- the input --------------------------------------------------------------------------------------------- */

struct input {
    const uint8_t *at, *end;
};

static uint8_t take8(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static size_t take16(struct input *in)
{
    const size_t low = take8(in);
    return low | (size_t)take8(in) << 8;
}

/* ---- the connections: a socket pair for each server --------------------------------------------------------- */

static int theirs[MOST_LIARS];

static void connect_to_liar(struct server *server, uint32_t s)
{
    int ends[2];
    const int room = 1 << 20;
    promise(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    theirs[s] = ends[1];
    gw_net_init(&server->c, NULL);
    promise(gw_net_adopt(&server->c, ends[0], NULL, NULL, true) == GW_OK);
    promise(gw_net_establish(&server->c) == GW_OK);
}

/* If there is no room for all of it, the liar says nothing more, so that what comes are always whole messages. */
static void send_all(uint32_t s, const void *head, size_t n_head, const void *bytes, size_t n_bytes)
{
    struct iovec parts[2] = {{(void *)head, n_head}, {(void *)bytes, n_bytes}};
    const struct msghdr all = {.msg_iov = parts, .msg_iovlen = 2};
    if (sendmsg(theirs[s], &all, MSG_NOSIGNAL) != (ssize_t)(n_head + n_bytes))
        shutdown(theirs[s], SHUT_WR);
}

/* Sends a message. pieces: after half of its body the client looks. */
static void send_message(gw_ps_client *client, uint32_t s, uint16_t kind, const uint8_t *header, size_t n_header,
                         size_t n_body, bool pieces)
{
    static uint8_t body[2 * MOST_BODY];
    uint8_t head[GW_NET_HEAD + GW_PS_HEAD_BYTES];
    const size_t n_first = pieces ? n_body / 2 : n_body;
    gw_put64(head, n_header + n_body);
    gw_put16(head + 8, kind);
    gw_put16(head + 10, (uint16_t)n_header);
    memcpy(head + 12, "GWN1", 4);
    memcpy(head + GW_NET_HEAD, header, n_header);
    memset(body, 1, sizeof body);
    send_all(s, head, GW_NET_HEAD + n_header, body, n_first);
    if (pieces) {
        gw_ignore(gw_ps_client_pump(client, -1, 0));
        send_all(s, NULL, 0, body, n_body - n_first);
    }
}

/* ---- the client -------------------------------------------------------------------------------------------- */

static void know(gw_ps_client *client, const char *name, struct place place)
{
    struct key *key = NULL;
    promise(gw_ps_shape_elems(&place.shape, &place.n_elems) && gw_ps_key_add(client, name, &key) == GW_OK);
    key->place = place;
}

static const char *const names[] = {"row", "split", "codes", "scale", "one", "frames", "stranger"};

/* Makes the client know these keys, as if it had initialised them. Some have parts on all servers, others are on one.
 */
static void know_all(gw_ps_client *client)
{
    const uint32_t n = client->n_servers;
    know(client, "row",
         (struct place){.type = GW_PS_FLOAT32, .shape = {.n_dims = 2, .dims = {2, 3}}, .first = 0, .n_parts = 1});
    know(client, "split",
         (struct place){.type = GW_PS_BFLOAT16, .shape = {.n_dims = 1, .dims = {7}}, .first = 0, .n_parts = n});
    know(client, "codes",
         (struct place){.type = GW_PS_UINT8, .shape = {.n_dims = 2, .dims = {1, 5}}, .first = 0, .n_parts = n});
    know(client, "scale",
         (struct place){.type = GW_PS_FLOAT32, .shape = {.n_dims = 1, .dims = {1}}, .first = n - 1, .n_parts = 1});
    know(client, "one", (struct place){.type = GW_PS_INT64, .first = n - 1, .n_parts = 1});
    know(client, "frames",
         (struct place){.type = GW_PS_FRAME, .shape = {.n_dims = 1, .dims = {8}}, .first = n - 1, .n_parts = 1});
}

static gw_ps_client *make_client(uint8_t mode)
{
    gw_ps_client *client = gw_calloc(NULL, 1, sizeof *client);
    promise(client != NULL);
    client->made_in = gw_process_now();
    client->n_servers = 1 + (mode & 3) % MOST_LIARS;
    client->has_met = !(mode & MODE_UNMET);
    client->reach_by = client->meet_by = INFINITY;
    client->next_id = MOST_SERVERS;
    TAILQ_INIT(&client->open);
    TAILQ_INIT(&client->answered);
    client->most_bytes = MOST_BODY;
    for (uint32_t s = 0; s < client->n_servers; s++) {
        struct server *server = &client->servers[s];
        server->client = client;
        snprintf(server->host.addresses[0].place, sizeof server->host.addresses[0].place, "liar-%u", s);
        server->host.n_addresses = 1;
        connect_to_liar(server, s); /* later attempts fail, for no socket is of family 0 */
        server->welcome = server->was_welcome = client->has_met;
        server->hello.n_workers = client->has_met ? WORKERS : 0;
        server->hello.mode = client->has_met && mode & MODE_STALE ? GW_PS_STALE : GW_PS_SYNC;
        server->hello.timeout_ms = 1000;
        server->is_reached = true;
    }
    know_all(client);
    promise(gw_ps_client_check(client, "a call") == GW_OK); /* else no call would ask anything */
    return client;
}

static void free_client(gw_ps_client *client)
{
    for (struct request *request; (request = TAILQ_FIRST(&client->open)) || (request = TAILQ_FIRST(&client->answered));)
        gw_ps_request_free(client, request);
    for (uint32_t s = 0; s < client->n_servers; s++)
        gw_net_close(&client->servers[s].c), close(theirs[s]);
    gw_ps_keys_free(client);
    gw_free(NULL, client);
}

/* ---- answers ----------------------------------------------------------------------------------------------- */

/* The answer of an honest server to that part of a request. */
static struct gw_ps_answer honest(const struct gw_ps_asked *asked, uint64_t *n_bytes)
{
    const struct gw_ps_request *request = asked->request;
    struct gw_ps_answer answer = {.operation = request->operation,
                                  .id = request->id,
                                  .number = request->number ? request->number : 1,
                                  .n_workers = WORKERS,
                                  .timeout_ms = 1000};
    *n_bytes = request->operation == GW_PS_MEMBERS ? asked->n_workers : 0;
    if (request->operation != GW_PS_PULL && request->operation != GW_PS_GET)
        return answer;
    const bool computed = request->operation == GW_PS_PULL && asked->type;
    const gw_ps_type type = !asked->type ? GW_PS_FLOAT32
                            : !computed  ? asked->type
                            : request->code == GW_PS_PARAMETERS
                                ? GW_PS_FLOAT32
                                : gw_ps_result_type((gw_ps_method)request->code, asked->type);
    answer.code = (uint8_t)type;
    answer.shape = gw_ps_answer_shape(asked);
    answer.n_pushes = request->operation == GW_PS_PULL;
    uint64_t n_elems = 1;
    gw_ps_shape_elems(&answer.shape, &n_elems);
    *n_bytes = gw_ps_type_bytes(type) ? n_elems * gw_ps_type_bytes(type) : 40;
    return answer;
}

/* Writes the head, altered as the input says. Returns how many bytes it has. */
static size_t make_head(struct input *in, uint8_t kind, const struct gw_ps_answer *answer, uint8_t *head)
{
    const size_t asked = take16(in) % GW_PS_HEAD_BYTES, left = (size_t)(in->end - in->at),
                 n = asked < left ? asked : left;
    memset(head, 0, GW_PS_HEAD_BYTES);
    size_t n_head = kind & ANSWER_RAW ? n : gw_ps_answer_write(head, answer) - (kind & ANSWER_CUT ? 1 : 0);
    for (size_t i = 0; i < n; i++)
        head[i] ^= in->at[i];
    in->at += n;
    return n_head > n ? n_head : n;
}

static void answer(struct input *in, gw_ps_client *client, uint8_t kind, uint32_t s, const struct gw_ps_asked *asked)
{
    uint8_t head[GW_PS_HEAD_BYTES];
    uint64_t n_body = 0;
    struct gw_ps_answer answer = honest(asked, &n_body);
    const size_t n_head = make_head(in, kind, &answer, head);
    if (kind & ANSWER_LENGTH)
        n_body = take16(in) % (2 * MOST_BODY);
    n_body = kind & ANSWER_NO_BODY ? 0 : n_body < 2 * MOST_BODY ? n_body : 2 * MOST_BODY;
    promise(s < client->n_servers);
    send_message(client, s, kind & ANSWER_KIND ? 1 : GW_PS_MESSAGE, head, n_head, n_body, kind & ANSWER_PIECES);
    if (gw_ps_answer_read(head, n_head, &answer) == GW_OK && answer.operation == GW_PS_HELLO && answer.status < 0)
        gw_ignore(gw_ps_client_pump(client, -1, 0)); /* the client may end the connection now */
}

/* Sends answers to a request that is under way. */
static void answer_request(struct input *in, gw_ps_client *client, uint64_t id)
{
    for (uint32_t left = take8(in) % (MOST_ANSWERS + 1); left > 0; left--) {
        const uint8_t kind = take8(in), which = take8(in);
        const struct request *open = gw_ps_request_find(client, id);
        if (kind & ANSWER_FOR_SCALE && open->second)
            open = gw_ps_request_find(client, open->second);
        const uint32_t p = which % open->place.n_parts;
        const struct gw_ps_asked asked = gw_ps_asked_of(client, open, p);
        answer(in, client, kind, open->place.first + p, &asked);
    }
    gw_ps_client_pump(client, -1, 0);
}

/* Sends answers to the next request, before a call makes it and waits for it. A refusal comes last, so that the client
 * waits for nothing. false: the client has given a server up, or the connection to it, and might wait all the same. */
static bool answer_before(struct input *in, gw_ps_client *client, struct gw_ps_request request)
{
    request.id = client->next_id;
    for (uint32_t left = take8(in) % (MOST_ANSWERS + 1); left > 0; left--) {
        const uint8_t kind = take8(in);
        const uint32_t s = take8(in) % client->n_servers;
        const struct gw_ps_asked asked = {.request = &request, .n_workers = client->servers[s].hello.n_workers};
        answer(in, client, kind, s, &asked);
    }
    uint8_t head[GW_PS_HEAD_BYTES];
    const struct gw_ps_answer enough = {.operation = request.operation,
                                        .id = request.id,
                                        .status = GW_ERR_PEER,
                                        .sentence = "enough"};
    if (request.operation != GW_PS_HELLO)
        send_message(client, 0, GW_PS_MESSAGE, head, gw_ps_answer_write(head, &enough), 0, false);
    bool all = true;
    for (uint32_t s = 0; s < client->n_servers; s++)
        all = all && client->servers[s].c.fd >= 0 && !client->servers[s].refused;
    return all;
}

/* ---- what the client makes of them ------------------------------------------------------------------------- */

/* If the client took a value as good, the value must be as its type, shape and counts say. */
static void value_checked(const gw_ps_value *value, const struct gw_ps_asked *asked, uint32_t n_parts)
{
    const size_t width = gw_ps_type_bytes(value->type);
    const bool is_get = asked->request->operation == GW_PS_GET;
    const gw_ps_shape shape = gw_ps_answer_shape(asked);
    uint64_t n_elems;
    promise(gw_ps_type_name(value->type) != NULL && gw_ps_shape_elems(&value->shape, &n_elems));
    promise(value->bytes && (width ? value->n_bytes == n_elems * width
                                   : value->n_bytes > 0 && value->n_bytes <= (size_t)n_parts * MOST_BODY));
    promise(!asked->type || gw_ps_shapes_equal(&value->shape, &shape));
    promise(is_get ? value->n_pushes == 0 && value->round >= asked->request->number
                   : value->n_pushes <= asked->n_workers && value->round <= GW_PS_MOST_ROUNDS);
    gw_hash_now()->whole(value->bytes, value->n_bytes, 0); /* so that sanitizers see a byte that is missing */
}

/* Clears the doubt about pushes that failed. Else the next push would wait for what the servers say of them. */
static void settle_all(gw_ps_client *client)
{
    for (uint64_t k = 0; k < client->keys.n; k++)
        ((struct key *)client->keys.all[k])->uncertain = false;
}

static void end_request(gw_ps_client *client, uint64_t id)
{
    struct request *open = gw_ps_request_find(client, id);
    const uint32_t n_parts = open->place.n_parts;
    const struct gw_ps_request request = *open->asked;
    struct gw_ps_asked asked = gw_ps_asked_of(client, open, 0);
    asked.request = &request;
    asked.shape = open->place.shape;
    gw_ps_value value = {0};
    const gw_status status = gw_ps_wait(client, id, 0, &value);
    if (status == GW_NOT_YET) {
        gw_ps_client_drop(client, id);
        settle_all(client);
        return;
    }
    if (status < 0)
        promise(*gw_last_error() != 0 && !value.bytes && value.n_bytes == 0);
    else if (request.operation == GW_PS_PULL || request.operation == GW_PS_GET)
        value_checked(&value, &asked, n_parts);
    gw_ps_value_free(&value);
    settle_all(client);
}

static gw_status begin(struct input *in, gw_ps_client *client, enum call call, uint64_t *id)
{
    static const float values[PUSHED] = {1};
    const char *name = names[take8(in) % (sizeof names / sizeof *names)];
    const uint8_t code = take8(in), number = take8(in);
    const gw_ps_shape shape = {.n_dims = number % 3, .dims = {1 + number, 1 + code}};
    const struct place place = gw_ps_key_find(client, name);
    const size_t width = gw_ps_type_bytes(place.type),
                 n_bytes = width && place.n_elems * width <= sizeof values ? (size_t)place.n_elems * width : 8;
    const gw_ps_key_options options = {.struct_bytes = sizeof options,
                                       .type = (gw_ps_type)(code % 8),
                                       .shape = shape,
                                       .optimizer = number & 128 ? "sgd" : NULL,
                                       .values = (number & 192) == 192 && shape.n_dims == 0 ? values : NULL};
    gw_ps_call made = {.struct_bytes = sizeof made,
                       .kind = call == INIT   ? GW_PS_CALL_INIT
                               : call == PUSH ? GW_PS_CALL_PUSH
                               : call == GET  ? GW_PS_CALL_GET
                               : call == PUT  ? GW_PS_CALL_PUT
                                              : GW_PS_CALL_PULL,
                       .key = name,
                       .options = &options,
                       .bytes = values,
                       .n_bytes = n_bytes,
                       .version = number,
                       .method = (gw_ps_method)(code % (GW_PS_MEDIAN + 1))};
    struct gw_ps_request request = gw_ps_request_of(call == REFUSE     ? GW_PS_PUSH
                                                    : call == PULL_NOW ? GW_PS_PULL
                                                                       : GW_PS_PUT,
                                                    name);
    switch (call) {
    case REFUSE:
        request.push_kind = GW_PS_PUSH_REFUSED, request.refusal = number;
        return gw_ps_client_begin(client, GW_PS_BY_KEY, &request, NULL, 0, NULL, id);
    case PULL_NOW:
        request.method = GW_PS_PARAMETERS, request.as_it_is = 1;
        return gw_ps_client_begin(client, GW_PS_BY_KEY, &request, NULL, 0, NULL, id);
    case FIRST:
        return gw_ps_client_begin(client, GW_PS_BY_KEY, &request, values,
                                  place.n_elems <= PUSHED ? place.n_elems * sizeof *values : sizeof *values, NULL, id);
    case PULL_SCALED:
        made.key = "codes", made.scale_key = "scale";
        made.method = code % 2 ? GW_PS_DECODE_SUM : GW_PS_DECODE_AVERAGE;
        break;
    default:
        break;
    }
    return gw_ps_begin(client, &made, id);
}

static void members(struct input *in, gw_ps_client *client)
{
    if (!answer_before(in, client, (struct gw_ps_request){.operation = GW_PS_MEMBERS}))
        return;
    const uint32_t n = client->servers[0].hello.n_workers;
    gw_ps_presence *presence = malloc((n ? n : 1) * sizeof *presence);
    uint64_t round = 0;
    promise(presence != NULL);
    if (gw_ps_members(client, presence, n, &round) == GW_OK)
        for (uint32_t i = 0; i < n; i++)
            promise(presence[i] <= GW_PS_JOINING && round > 0);
    free(presence);
}

static void one_call(struct input *in, gw_ps_client *client)
{
    const enum call call = (enum call)(take8(in) % CALLS);
    const uint32_t n_servers = client->n_servers;
    const struct gw_ps_request agree = {.operation = GW_PS_AGREE};
    uint64_t id;
    switch (call) {
    case MEET:
        answer_before(in, client, (struct gw_ps_request){.operation = GW_PS_HELLO});
        gw_ps_client_pump(client, -1, 0);
        if (gw_ps_client_meet(client, 0) == GW_OK)
            promise(client->servers[0].hello.n_workers >= 1 && client->servers[0].hello.n_workers <= GW_MAX_WORKERS);
        break;
    case AGREE:
        if (answer_before(in, client, agree))
            gw_ignore(gw_ps_client_do(client, 0, &agree, "name = value\n", 13));
        break;
    case MEMBERS:
        members(in, client);
        break;
    case ADMIT:
        if (!answer_before(in, client, (struct gw_ps_request){.operation = GW_PS_ADMIT, .round = 3}))
            break;
        client->n_servers = 1; /* so the call makes one request only */
        gw_ignore(gw_ps_admit(client, 1, 3));
        client->n_servers = n_servers;
        break;
    default:
        if (begin(in, client, call, &id) < 0) {
            promise(*gw_last_error() != 0);
            break;
        }
        answer_request(in, client, id);
        end_request(client, id);
    }
}

int gw_fuzz_client(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct input in = {data + 1, data + size};
    gw_ps_client *client = make_client(data[0]);
    for (int i = 0; i < MOST_CALLS && in.at < in.end; i++)
        one_call(&in, client);
    free_client(client);
    return 0;
}
#else
int gw_fuzz_client(const uint8_t *data, size_t size)
{
    (void)data, (void)size;
    return 0;
}
#endif
