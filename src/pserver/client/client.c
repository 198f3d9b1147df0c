/* The client's calls. A large value is cut into as many parts as there are servers, and each server has its own part.
 * Other keys live on one server. tickets.c sends the requests. */
#include "base/clock.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "pserver/client/connect.h"
#include "pserver/client/for_exchange.h"
#include "pserver/client/tickets.h"
#include "pserver/client/values.h"
#include "pserver/protocol/methods.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define DEFAULT_TIMEOUT_MS 60000
#define DEFAULT_CONNECT_MS 3000
#define BYE_SECONDS 1.0 /* the longest that a client waits at its end */
#define POLL_MS 100
#define SPLIT_BYTES (1u << 20) /* a larger value is cut into a part for each server */

/* ---- keys -------------------------------------------------------------------------------------------------- */

static gw_status find_key(struct gw_ps_client *client, const char *name, struct key **out)
{
    uint64_t k = name ? gw_ps_names_find(&client->names, name) : GW_PS_NO_NAME;
    *out = k == GW_PS_NO_NAME ? NULL : &client->keys[k];
    if (!name || !name[0])
        return gw_fail(GW_ERR_ARGUMENT, "a key has no name; it must have 1 to %d bytes", GW_PS_MOST_NAME);
    if (strlen(name) > GW_PS_MOST_NAME)
        return gw_fail(GW_ERR_ARGUMENT, "the key \"%.40s...\" has a name of %zu bytes; 1 to %d are possible", name,
                       strlen(name), GW_PS_MOST_NAME);
    return GW_OK;
}

static uint32_t home_of(const struct gw_ps_client *client, const char *name)
{
    return (uint32_t)(gw_hash_now()->whole(name, strlen(name), 0) % client->n_servers);
}

/* How many elements of a key are before its part p. */
static uint64_t part_begin(const struct key *key, uint32_t p)
{
    uint64_t each = key->n_elems / key->n_parts, more = key->n_elems % key->n_parts;
    return each * p + (p < more ? p : more);
}

/* The shape of a part. If a key has several parts, each is a row. */
static gw_ps_shape shape_of_part(const struct key *key, uint32_t p)
{
    return key->n_parts == 1 ? key->shape
                             : (gw_ps_shape){.n_dims = 1, .dims = {part_begin(key, p + 1) - part_begin(key, p)}};
}

/* The place of a key that this client has not initialised. */
static struct key stranger(const struct gw_ps_client *client, const char *name)
{
    return (struct key){.first = home_of(client, name), .n_parts = 1};
}

/* Keeps a specification with which the key was initialised. It keeps the first one only; "" is none. */
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

/* Keeps both specifications in the table's entry. Other copies of a key point to these texts. */
static gw_status remember_texts(struct gw_ps_client *client, const char *name, const char *codec, const char *optimizer)
{
    struct key *key = &client->keys[gw_ps_names_find(&client->names, name)];
    GW_TRY(keep_text(client, &key->codec, codec));
    return keep_text(client, &key->optimizer, optimizer);
}

/* True if such a request for the key is under way, or the caller has not waited for it yet. */
static bool is_under_way(const struct gw_ps_client *client, enum gw_ps_operation operation, const char *name)
{
    for (const struct ticket *t = client->tickets; t; t = t->next)
        if (t->operation == operation && strcmp(t->parts[0].request.key, name) == 0)
            return true;
    return false;
}

/* Begins to make a key. `key` has its place. codec and optimizer "": none. */
static gw_status init_begin(struct gw_ps_client *client, const char *name, const struct key *key, const char *codec,
                            const char *optimizer, uint64_t *out)
{
    struct ticket *ticket = gw_ps_ticket_new(client, GW_PS_INIT, key->first, key->n_parts);
    if (!ticket)
        return GW_ERR_MEMORY;
    ticket->key = *key;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct gw_ps_request *request = &ticket->parts[p].request;
        request->type = (uint8_t)key->type;
        snprintf(request->key, sizeof request->key, "%s", name);
        snprintf(request->codec, sizeof request->codec, "%s", codec);
        snprintf(request->optimizer, sizeof request->optimizer, "%s", optimizer);
        request->shape = shape_of_part(key, p);
        request->n_parts = key->n_parts;
    }
    *out = ticket->id;
    return gw_ps_ticket_send(client, ticket);
}

/* The servers have the key, so the client notes it. */
static gw_status init_end(struct gw_ps_client *client, const struct ticket *ticket)
{
    struct key key = ticket->key;
    const struct gw_ps_request *request = &ticket->parts[0].request;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        uint64_t pushed = ticket->parts[p].reply.n_pushed;
        key.pushed = p == 0 || pushed < key.pushed ? pushed : key.pushed;
    }
    const uint64_t k = gw_ps_names_find(&client->names, request->key);
    if (k != GW_PS_NO_NAME) {
        key.codec = client->keys[k].codec, key.optimizer = client->keys[k].optimizer;
        if (is_under_way(client, GW_PS_PUSH, request->key)) /* the server has not counted the pushes that wait */
            key.pushed = client->keys[k].pushed, key.uncertain = client->keys[k].uncertain;
    }
    GW_TRY(remember(client, request->key, &key));
    return remember_texts(client, request->key, request->codec, request->optimizer);
}

static gw_status init(struct gw_ps_client *client, const char *name, const struct key *key, const char *codec,
                      const char *optimizer)
{
    uint64_t ticket;
    GW_TRY(init_begin(client, name, key, codec, optimizer, &ticket));
    return gw_ps_wait(client, ticket, NULL);
}

gw_status gw_ps_init_begin(gw_ps_client *client, const char *name, gw_ps_type type, const gw_ps_shape *shape,
                           const char *optimizer, uint64_t *ticket)
{
    struct key *known;
    if (!client || !shape || !ticket)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_init_begin: %s is NULL", client ? shape ? "ticket" : "shape" : "client");
    if (optimizer && (!optimizer[0] || strlen(optimizer) > GW_PS_MOST_NAME))
        return gw_fail(GW_ERR_ARGUMENT, "the optimizer of \"%s\" must be a specification of 1 to %d bytes",
                       name ? name : "", GW_PS_MOST_NAME);
    GW_TRY(find_key(client, name, &known));
    struct key key = stranger(client, name);
    if (shape->n_dims > GW_PS_MOST_DIMS)
        return gw_fail(GW_ERR_ARGUMENT, "the key \"%s\" is to have %u dimensions; %d are possible", name, shape->n_dims,
                       GW_PS_MOST_DIMS);
    key.type = type;
    key.shape = *shape;
    bool plain = gw_ps_shape_elems(shape, &key.n_elems) && gw_ps_type_bytes(type); /* the server says what is wrong */
    if (plain && key.n_elems * gw_ps_type_bytes(type) > SPLIT_BYTES && key.n_elems >= client->n_servers) {
        key.first = 0;
        key.n_parts = client->n_servers;
    }
    return init_begin(client, name, &key, "", optimizer ? optimizer : "", ticket);
}

gw_status gw_ps_init_parameter(gw_ps_client *client, const char *name, gw_ps_type type, const gw_ps_shape *shape)
{
    uint64_t ticket;
    GW_TRY(gw_ps_init_begin(client, name, type, shape, NULL, &ticket));
    return gw_ps_wait(client, ticket, NULL);
}

gw_status gw_ps_init_optimized(gw_ps_client *client, const char *name, gw_ps_type type, const gw_ps_shape *shape,
                               const char *optimizer, const float *values)
{
    uint64_t ticket, n_elems;
    GW_TRY(gw_ps_init_begin(client, name, type, shape, optimizer ? optimizer : "", &ticket));
    GW_TRY(gw_ps_wait(client, ticket, NULL));
    if (!values)
        return GW_OK;
    gw_ps_shape_elems(shape, &n_elems);
    GW_TRY(gw_ps_first_begin(client, name, values, n_elems, &ticket));
    return gw_ps_wait(client, ticket, NULL);
}

gw_status gw_ps_init_on(gw_ps_client *client, uint32_t server, const char *name, gw_ps_type type,
                        const gw_ps_shape *shape, const char *codec, const char *optimizer)
{
    struct key *known, key = {.type = type, .shape = *shape, .first = server, .n_parts = 1};
    GW_TRY(find_key(client, name, &known));
    gw_ps_shape_elems(shape, &key.n_elems);
    return init(client, name, &key, codec, optimizer);
}

static gw_status agree_once(gw_ps_client *client, uint32_t server, const char *lines)
{
    struct ticket *ticket = gw_ps_ticket_new(client, GW_PS_AGREE, server, 1);
    if (!ticket)
        return GW_ERR_MEMORY;
    ticket->parts[0].body = lines;
    ticket->parts[0].n_bytes = strlen(lines);
    GW_TRY(gw_ps_ticket_send(client, ticket));
    gw_status status = gw_ps_ticket_wait(client, ticket);
    gw_ps_ticket_free(client, ticket);
    return status;
}

gw_status gw_ps_agree_on(gw_ps_client *client, uint32_t server, const char *lines)
{
    const double deadline = gw_clock_seconds() + client->timeout_ms / 1000.0;
    gw_status status;
    while ((status = agree_once(client, server, lines)) == GW_ERR_ORDER && gw_clock_seconds() < deadline)
        /* in a moment the server will know whose run it is */
        GW_TRY(gw_ps_client_pump(client, -1, gw_clock_seconds() + RETRY_SECONDS));
    return gw_ps_too_late(client, status, "agreeing with the other workers");
}

/* ---- push and pull ----------------------------------------------------------------------------------------- */

/* Called after a push failed. The server may have taken it or not. So this asks the server how many pushes it has. */
static gw_status settle(struct gw_ps_client *client, const char *name, const struct key *known)
{
    if (!known || !known->uncertain)
        return GW_OK;
    if (is_under_way(client, GW_PS_PUSH, name))
        return gw_fail(GW_ERR_ORDER,
                       "a push to \"%s\" failed; those of it that are under way must be waited for before the next",
                       name);
    struct key key = *known;
    key.uncertain = false;
    return init(client, name, &key, key.codec ? key.codec : "", key.optimizer ? key.optimizer : "");
}

/* Notes that the server may have taken a push or not. */
static void doubt(struct gw_ps_client *client, const struct ticket *ticket)
{
    struct key *key;
    if (ticket->operation == GW_PS_PUSH && find_key(client, ticket->parts[0].request.key, &key) == GW_OK && key)
        key->uncertain = true;
}

/* Makes a ticket for the next push to a key. NULL: there is no memory. *key gets the key's place. If the key is known
 * here, its pushes are counted up. */
static struct ticket *next_push(struct gw_ps_client *client, const char *name, struct key *known, struct key *key)
{
    *key = known ? *known : stranger(client, name);
    struct ticket *ticket = gw_ps_ticket_new(client, GW_PS_PUSH, key->first, key->n_parts);
    for (uint32_t p = 0; ticket && p < ticket->n_parts; p++) {
        /* 0: the key is not known here; the server says what is wrong */
        ticket->parts[p].request.nth = known ? key->pushed + 1 : 0;
        ticket->parts[p].request.rate = client->rate;
        snprintf(ticket->parts[p].request.key, sizeof ticket->parts[p].request.key, "%s", name);
    }
    if (ticket && known)
        known->pushed++;
    return ticket;
}

static gw_status push_begin(gw_ps_client *client, const char *name, const void *bytes, size_t n_bytes, uint8_t kind,
                            uint64_t *out)
{
    struct key *known, key;
    if (!client || !out || (!bytes && n_bytes))
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_push_begin: %s is NULL", client ? out ? "bytes" : "ticket" : "client");
    GW_TRY(find_key(client, name, &known));
    if (is_under_way(client, GW_PS_INIT, name))
        return gw_fail(GW_ERR_ORDER, "\"%s\" is being initialised; that must be waited for before a push", name);
    size_t width = known ? gw_ps_type_bytes(known->type) : 0;
    if (width && n_bytes != known->n_elems * width)
        return gw_fail(GW_ERR_ARGUMENT, "a push to \"%s\" has %zu bytes; %s of shape %s takes %" PRIu64, name, n_bytes,
                       gw_ps_type_name(known->type), gw_ps_shape_text(&known->shape).text, known->n_elems * width);
    GW_TRY(settle(client, name, known));
    struct ticket *ticket = next_push(client, name, known, &key);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        size_t begin = p ? (size_t)part_begin(&key, p) * width : 0,
               end = p + 1 < key.n_parts ? (size_t)part_begin(&key, p + 1) * width : n_bytes;
        ticket->parts[p].request.push_kind = kind;
        ticket->parts[p].body = (const char *)bytes + begin;
        ticket->parts[p].n_bytes = end - begin;
    }
    *out = ticket->id;
    return gw_ps_ticket_send(client, ticket);
}

gw_status gw_ps_push_begin(gw_ps_client *client, const char *name, const void *bytes, size_t n_bytes, uint64_t *out)
{
    return push_begin(client, name, bytes, n_bytes, GW_PS_PUSH_PLAIN, out);
}

gw_status gw_ps_push_pending_begin(gw_ps_client *client, const char *name, const void *bytes, size_t n_bytes,
                                   uint64_t *out)
{
    return push_begin(client, name, bytes, n_bytes, GW_PS_PUSH_PENDING, out);
}

gw_status gw_ps_judge_begin(gw_ps_client *client, const char *name, uint64_t refusal, uint64_t *out)
{
    struct key *known;
    GW_TRY(find_key(client, name, &known));
    struct ticket *ticket = gw_ps_ticket_new(client, GW_PS_VERDICT, known ? known->first : 0, 1);
    if (!ticket)
        return GW_ERR_MEMORY;
    ticket->parts[0].request.nth = known ? known->pushed : 0; /* 0: the server says what is wrong */
    ticket->parts[0].request.refusal = refusal;
    *out = ticket->id;
    return gw_ps_ticket_send(client, ticket);
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
        ticket->parts[p].request.push_kind = GW_PS_PUSH_REFUSED;
        ticket->parts[p].request.refusal = number;
    }
    *out = ticket->id;
    return gw_ps_ticket_send(client, ticket);
}

/* Makes a ticket with the same request to each part of a key. */
static struct ticket *ask_for(struct gw_ps_client *client, enum gw_ps_operation operation, const char *name,
                              const struct key *known)
{
    const struct key key = known ? *known : stranger(client, name);
    struct ticket *ticket = gw_ps_ticket_new(client, operation, key.first, key.n_parts);
    for (uint32_t p = 0; ticket && p < ticket->n_parts; p++) {
        struct part *part = &ticket->parts[p];
        snprintf(part->request.key, sizeof part->request.key, "%s", name);
        part->type = key.type;
        part->shape = shape_of_part(&key, p);
        part->request.n_parts = key.n_parts;
    }
    if (ticket)
        ticket->shape = key.shape;
    return ticket;
}

gw_status gw_ps_first_begin(gw_ps_client *client, const char *name, const float *values, uint64_t n, uint64_t *out)
{
    struct key *known;
    if (!client || !values || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_first_begin: %s is NULL",
                       client ? values ? "ticket" : "values" : "client");
    GW_TRY(find_key(client, name, &known));
    if (!known || known->n_elems != n)
        return gw_fail(GW_ERR_ARGUMENT,
                       "%" PRIu64 " parameters of \"%s\", which was not initialised here with as many elements", n,
                       name);
    struct ticket *ticket = ask_for(client, GW_PS_BRING, name, known);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        ticket->parts[p].body = values + part_begin(known, p);
        ticket->parts[p].n_bytes = (size_t)(part_begin(known, p + 1) - part_begin(known, p)) * sizeof *values;
    }
    *out = ticket->id;
    return gw_ps_ticket_send(client, ticket);
}

gw_status gw_ps_deposit_begin(gw_ps_client *client, const char *name, uint64_t version, const void *bytes,
                              size_t n_bytes, uint64_t *out)
{
    struct key *known;
    if (!client || !bytes || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_deposit_begin: %s is NULL",
                       client ? bytes ? "ticket" : "bytes" : "client");
    GW_TRY(find_key(client, name, &known));
    const size_t width = known ? gw_ps_type_bytes(known->type) : 0;
    if (!known || known->n_elems * width != n_bytes)
        return gw_fail(GW_ERR_ARGUMENT,
                       "%zu bytes are to be deposited at \"%s\", which was not initialised here with as many", n_bytes,
                       name);
    struct ticket *ticket = ask_for(client, GW_PS_BRING, name, known);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct part *part = &ticket->parts[p];
        part->request.bring_kind = GW_PS_BRING_DEPOSIT;
        part->request.version = version;
        part->body = (const char *)bytes + part_begin(known, p) * width;
        part->n_bytes = (size_t)(part_begin(known, p + 1) - part_begin(known, p)) * width;
    }
    *out = ticket->id;
    return gw_ps_ticket_send(client, ticket);
}

gw_status gw_ps_deposit(gw_ps_client *client, const char *name, uint64_t version, const void *bytes, size_t n_bytes)
{
    uint64_t ticket;
    GW_TRY(gw_ps_deposit_begin(client, name, version, bytes, n_bytes, &ticket));
    return gw_ps_wait(client, ticket, NULL);
}

gw_status gw_ps_fetch_begin(gw_ps_client *client, const char *name, uint64_t least, uint64_t *out)
{
    struct key *known;
    if (!client || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_fetch_begin: %s is NULL", client ? "ticket" : "client");
    GW_TRY(find_key(client, name, &known));
    struct ticket *ticket = ask_for(client, GW_PS_FETCH, name, known);
    if (!ticket)
        return GW_ERR_MEMORY;
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        ticket->parts[p].request.version = least;
    *out = ticket->id;
    return gw_ps_ticket_send(client, ticket);
}

gw_status gw_ps_fetch(gw_ps_client *client, const char *name, uint64_t least, gw_ps_value *out)
{
    uint64_t ticket;
    if (!out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_fetch: out is NULL");
    *out = (gw_ps_value){0};
    GW_TRY(gw_ps_fetch_begin(client, name, least, &ticket));
    return gw_ps_wait(client, ticket, out);
}

/* Begins to pull a scale key, if it lives on another server than the key. *ticket 0: one server has both, and that
 * server multiplies. */
static gw_status pull_scale_begin(gw_ps_client *client, const char *name, gw_ps_method method, const char *scale_key,
                                  uint64_t *ticket)
{
    struct key *known, *scale;
    *ticket = 0;
    GW_TRY(find_key(client, name, &known));
    GW_TRY(find_key(client, scale_key, &scale));
    const struct key key = known ? *known : stranger(client, name), its = scale ? *scale : stranger(client, scale_key);
    if (key.n_parts == 1 && its.n_parts == 1 && key.first == its.first)
        return GW_OK;
    if (!known || !scale)
        return gw_fail(
            GW_ERR_ORDER,
            "\"%s\" and its scale_key \"%s\" live on several servers; init_parameter of both must come before a pull",
            name, scale_key);
    GW_TRY(
        gw_ps_check_scale(&(struct gw_ps_scaling){name, known->type, method, scale_key, scale->type, &scale->shape}));
    return gw_ps_pull_begin(client, scale_key, GW_PS_MAX, NULL, ticket);
}

static gw_status pull_begin(gw_ps_client *client, const char *name, gw_ps_method method, const char *scale_key,
                            bool now, uint64_t *out)
{
    struct key *known;
    uint64_t scale = 0;
    if (!client || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_pull_begin: %s is NULL", client ? "ticket" : "client");
    GW_TRY(find_key(client, name, &known));
    if (scale_key)
        GW_TRY(pull_scale_begin(client, name, method, scale_key, &scale));
    struct ticket *ticket = ask_for(client, GW_PS_PULL, name, known);
    if (!ticket) {
        gw_ps_client_drop(client, scale);
        return GW_ERR_MEMORY;
    }
    ticket->scale = scale;
    ticket->averages = scale && method == GW_PS_DECODE_AVERAGE; /* S * (s/N) needs S */
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct gw_ps_request *request = &ticket->parts[p].request;
        request->method = (uint8_t)(ticket->averages ? GW_PS_DECODE_SUM : method);
        request->as_it_is = now;
        snprintf(request->scale_key, sizeof request->scale_key, "%s", scale_key && !scale ? scale_key : "");
    }
    *out = ticket->id;
    gw_status status = gw_ps_ticket_send(client, ticket);
    if (status < 0)
        gw_ps_client_drop(client, scale);
    return status;
}

gw_status gw_ps_pull_begin(gw_ps_client *client, const char *name, gw_ps_method method, const char *scale_key,
                           uint64_t *out)
{
    return pull_begin(client, name, method, scale_key, false, out);
}

gw_status gw_ps_pull_now_begin(gw_ps_client *client, const char *name, uint64_t *out)
{
    return pull_begin(client, name, GW_PS_PARAMETERS, NULL, true, out);
}

/* ---- for an exchange through servers ------------------------------------------------------------------------- */

void gw_ps_client_drop(gw_ps_client *client, uint64_t id)
{
    struct ticket *ticket = gw_ps_ticket_find(client, id);
    if (!ticket)
        return;
    doubt(client, ticket);
    gw_ps_client_drop(client, ticket->scale);
    gw_ps_ticket_free(client, ticket);
}

bool gw_ps_client_has(const gw_ps_client *client, uint64_t id)
{
    const struct ticket *ticket = gw_ps_ticket_find(client, id);
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

const char *gw_ps_client_place(const gw_ps_client *client, uint32_t server)
{
    return gw_ps_place(&client->servers[server]);
}

uint64_t gw_ps_refusal(const gw_ps_client *client)
{
    return client->refusal;
}

/* ---- how it pushes and pulls ------------------------------------------------------------------------------- */

gw_status gw_ps_set_rate(gw_ps_client *client, double rate)
{
    GW_TRY(gw_ps_client_check(client, "gw_ps_set_rate"));
    if (!(rate >= 0 && rate <= (double)FLT_MAX))
        return gw_fail(GW_ERR_ARGUMENT, "the learning rate of pushes is to be %g; it must be a finite number from 0 up",
                       rate);
    client->rate = rate;
    return GW_OK;
}

bool gw_ps_take_in_memory_notice(gw_ps_client *client)
{
    return atomic_exchange(&client->in_memory_only, false);
}

gw_ps_mode gw_ps_client_mode(const gw_ps_client *client, uint32_t *staleness)
{
    if (staleness)
        *staleness = client->servers[0].staleness;
    return client->servers[0].mode;
}

/* ---- waiting ----------------------------------------------------------------------------------------------- */

/* True if all parts of the value must be of the same round or version. Parts of parameters need not be. */
static bool is_of_one_number(const gw_ps_client *client, const struct ticket *ticket)
{
    const bool of_a_round = ticket->operation == GW_PS_PULL && client->servers[0].mode == GW_PS_SYNC &&
                            ticket->parts[0].request.method != GW_PS_PARAMETERS;
    return of_a_round || ticket->operation == GW_PS_FETCH;
}

/* Waits until the ticket and the ticket of its scale have their answers. GW_NOT_YET: the time `until` came first. */
static gw_status wait_until(gw_ps_client *client, const struct ticket *ticket, double until)
{
    gw_status status = GW_OK;
    while (status == GW_OK && !(gw_ps_client_has(client, ticket->id) && gw_ps_client_has(client, ticket->scale))) {
        if (gw_clock_seconds() >= until)
            return GW_NOT_YET;
        status = gw_ps_client_pump(client, -1, until < ticket->deadline ? until : ticket->deadline);
    }
    return status;
}

static gw_status multiply_by_scale(gw_ps_client *client, const struct ticket *ticket, gw_ps_value *out)
{
    gw_ps_value scale;
    GW_TRY(gw_ps_wait(client, ticket->scale, &scale));
    const gw_status status = gw_ps_scale_value(client, ticket, &scale, out);
    gw_ps_value_free(&scale);
    return status;
}

static gw_status wait(gw_ps_client *client, uint64_t id, double until, gw_ps_value *out)
{
    if (out)
        *out = (gw_ps_value){0};
    GW_TRY(gw_ps_client_check(client, "gw_ps_wait"));
    struct ticket *ticket = gw_ps_ticket_find(client, id);
    if (!ticket)
        return gw_fail(GW_ERR_ORDER, "there is no ticket %" PRIu64 ", or it has been waited for already", id);
    const bool brings = ticket->operation == GW_PS_PULL || ticket->operation == GW_PS_FETCH;
    if (brings && !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_wait: out is NULL for the ticket of a pull");
    gw_status status = wait_until(client, ticket, until);
    if (status == GW_NOT_YET)
        return status;
    if (status == GW_OK)
        status = gw_ps_ticket_wait(client, ticket);
    if (status < 0)
        doubt(client, ticket);
    for (uint32_t p = 1; status == GW_OK && is_of_one_number(client, ticket) && p < ticket->n_parts; p++)
        if (ticket->parts[p].reply.round != ticket->parts[0].reply.round)
            status = gw_fail(GW_ERR_ORDER,
                             "\"%s\" was replaced while it was fetched: its parts are of %" PRIu64 " and %" PRIu64
                             "; try again",
                             ticket->parts[0].request.key, ticket->parts[0].reply.round, ticket->parts[p].reply.round);
    if (status == GW_OK && ticket->operation == GW_PS_INIT)
        status = init_end(client, ticket);
    if (status == GW_OK && brings)
        gw_ps_take_value(client, ticket, out);
    if (status == GW_OK && ticket->scale)
        status = multiply_by_scale(client, ticket, out);
    if (status < 0 && out)
        gw_ps_value_free(out);
    gw_ps_client_drop(client, ticket->scale); /* its answer is here already, unless the value did not come */
    gw_ps_ticket_free(client, ticket);
    return status;
}

gw_status gw_ps_wait(gw_ps_client *client, uint64_t ticket, gw_ps_value *out)
{
    return wait(client, ticket, INFINITY, out);
}

gw_status gw_ps_wait_for(gw_ps_client *client, uint64_t ticket, uint32_t ms, gw_ps_value *out)
{
    return wait(client, ticket, gw_clock_seconds() + ms / 1000.0, out);
}

void gw_ps_cancel(gw_ps_client *client, uint64_t id)
{
    struct ticket *ticket = client && gw_process_is(client->made_in) ? gw_ps_ticket_find(client, id) : NULL;
    if (!ticket)
        return;
    gw_ps_cancel(client, ticket->scale);
    /* When a connection ends, the server forgets its requests. Else the server would do this request later, and take
     * it for the next one. */
    for (uint32_t p = 0; p < ticket->n_parts; p++)
        if (!ticket->parts[p].done)
            gw_ps_server_redial(&client->servers[ticket->first + p]);
    gw_ps_client_drop(client, id);
}

gw_status gw_ps_push_parameter(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes)
{
    uint64_t ticket;
    GW_TRY(gw_ps_push_begin(client, key, bytes, n_bytes, &ticket));
    return gw_ps_wait(client, ticket, NULL);
}

gw_status gw_ps_pull_parameter(gw_ps_client *client, const char *key, gw_ps_method method, const char *scale_key,
                               gw_ps_value *out)
{
    uint64_t ticket;
    if (!out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_pull_parameter: out is NULL");
    *out = (gw_ps_value){0};
    GW_TRY(gw_ps_pull_begin(client, key, method, scale_key, &ticket));
    return gw_ps_wait(client, ticket, out);
}

/* ---- beginning and end ------------------------------------------------------------------------------------- */

static gw_status set_up(struct gw_ps_client *client, const gw_ps_client_options *options)
{
    GW_TRY(gw_ps_client_name_servers(client, options->servers));
    if (getrandom(&client->incarnation, sizeof client->incarnation, 0) != sizeof client->incarnation)
        return gw_fail(GW_ERR_SYSTEM, "no random number from the system: %s", strerror(errno));
    if (options->keys)
        GW_TRY(gw_net_keys_load(client->context, options->keys, GW_NET_CLIENT, NULL, &client->identity));
    for (uint32_t n = 0; n < client->n_servers; n++) {
        GW_TRY(gw_net_init(&client->servers[n].c, client->context));
        gw_ps_server_connect(&client->servers[n]);
    }
    return options->no_wait ? GW_OK : gw_ps_client_meet(client, UINT32_MAX);
}

/* Says BYE to the servers, and waits a moment until they have ended the connections. Then the ranks of this client are
 * free. If a BYE does not arrive, the servers notice the end of the connection. */
static void say_goodbye(struct gw_ps_client *client)
{
    const double deadline = gw_clock_seconds() + BYE_SECONDS;
    for (uint32_t s = 0; s < client->n_servers; s++)
        if (client->servers[s].welcome)
            gw_ignore(
                gw_ps_server_send(&client->servers[s], &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL, NULL));
    for (uint32_t s = 0; s < client->n_servers; s++) {
        struct server *server = &client->servers[s];
        struct gw_net_message message;
        while (server->welcome && gw_clock_seconds() < deadline) {
            struct pollfd fd = {server->c.fd, (short)(server->c.first ? POLLIN | POLLOUT : POLLIN), 0};
            poll(&fd, 1, POLL_MS);
            gw_ignore(gw_net_flush(&server->c));
            gw_status status;
            while ((status = gw_net_next(&server->c, &message)) == GW_OK)
                gw_net_consume(&server->c);
            server->welcome = status == GW_NOT_YET;
        }
    }
}

gw_status gw_ps_client_create(gw_context *context, const gw_ps_client_options *options, gw_ps_client **out)
{
    if (out)
        *out = NULL;
    if (!options || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_client_create: %s is NULL", options ? "out" : "options");
    if (options->struct_bytes != sizeof *options)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_client_options.struct_bytes is %zu, and must be %zu",
                       options->struct_bytes, sizeof *options);
    if (!options->servers)
        return gw_fail(GW_ERR_ARGUMENT, "no server is named; it must be HOST:PORT");
    struct gw_ps_client *client = gw_calloc(context, 1, sizeof *client);
    if (!client)
        return GW_ERR_MEMORY;
    client->context = context;
    client->made_in = gw_process_now();
    client->rank = options->rank;
    client->joins = options->joins;
    client->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    const uint32_t connect_ms = options->connect_ms ? options->connect_ms : DEFAULT_CONNECT_MS;
    client->meet_by = gw_clock_seconds() + client->timeout_ms / 1000.0;
    client->reach_by =
        gw_clock_seconds() + (connect_ms < client->timeout_ms ? connect_ms : client->timeout_ms) / 1000.0;
    client->next_id = 1;
    client->most_bytes = gw_machine_bytes() / 4 * 3;
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
    if (!client || !gw_process_is(client->made_in))
        return;
    say_goodbye(client);
    for (uint32_t s = 0; s < client->n_servers; s++)
        gw_net_free(&client->servers[s].c);
    while (client->tickets)
        gw_ps_ticket_free(client, client->tickets);
    gw_net_keys_free(client->identity);
    for (uint64_t k = 0; k < client->names.n; k++) {
        gw_free(client->context, client->keys[k].codec);
        gw_free(client->context, client->keys[k].optimizer);
    }
    gw_ps_names_fini(&client->names);
    gw_free(client->context, client->keys);
    gw_free(client->context, client);
}
