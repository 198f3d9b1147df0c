/* The client's calls. Large values are cut into as many parts as there are servers, each with its own; other keys live on one. What is
 * under way: tickets.c. */
#include "base/clock.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "link/tcp/events.h"
#include "link/tcp/keys.h"
#include "pserver/client_state.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#define DEFAULT_TIMEOUT_MS 60000
#define SPLIT_BYTES (1u << 20) /* a value of a part for each server is larger */

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

/* Whether a push to the key is under way, or has not been waited for. */
static bool is_pushing(const struct gw_ps_client *client, const char *name)
{
    for (const struct ticket *t = client->tickets; t; t = t->next)
        if (t->operation == GW_PS_PUSH && strcmp(t->parts[0].request.key, name) == 0)
            return true;
    return false;
}

/* `key` says where it is to live; `codec` and `optimizer` "": none. */
static gw_status init(struct gw_ps_client *client, const char *name, struct key *key, const char *codec, const char *optimizer)
{
    struct ticket *ticket = gw_ps_ticket_new(client, GW_PS_INIT, key->first, key->n_parts);
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
    GW_TRY(gw_ps_ticket_send(client, ticket));
    gw_status status = gw_ps_ticket_wait(client, ticket);
    for (uint32_t p = 0; p < ticket->n_parts && status == GW_OK; p++) {
        uint64_t pushed = ticket->parts[p].reply.number;
        key->pushed = p == 0 || pushed < key->pushed ? pushed : key->pushed;
    }
    gw_ps_ticket_free(client, ticket);
    const uint64_t k = gw_ps_names_find(&client->names, name);
    if (k != GW_PS_NO_NAME && is_pushing(client, name)) /* the server has not counted those that wait */
        key->pushed = client->keys[k].pushed, key->uncertain = client->keys[k].uncertain;
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
        GW_TRY(gw_ps_client_pump(client, -1, gw_clock_seconds() + RETRY_SECONDS)); /* it knows whose run it is in a moment */
    return status;
}

/* ---- push and pull ----------------------------------------------------------------------------------------- */

/* After a push failed, which the server may have taken or not: asks how many it has. */
static gw_status settle(struct gw_ps_client *client, const char *name, const struct key *known)
{
    if (!known || !known->uncertain)
        return GW_OK;
    if (is_pushing(client, name))
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
    struct ticket *ticket = gw_ps_ticket_new(client, GW_PS_PUSH, key->first, key->n_parts);
    for (uint32_t p = 0; ticket && p < ticket->n_parts; p++) {
        ticket->parts[p].request.number = known ? key->pushed + 1 : 0; /* 0: only the server knows, and says what is wrong */
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
        ticket->parts[p].request.code = 1;
        ticket->parts[p].request.refusal = number;
    }
    *out = ticket->id;
    return gw_ps_ticket_send(client, ticket);
}

/* Asks for the same of each part of a key. */
static struct ticket *ask_for(struct gw_ps_client *client, enum gw_ps_operation operation, const char *name, const struct key *known)
{
    const struct key key = known ? *known : stranger(client, name);
    struct ticket *ticket = gw_ps_ticket_new(client, operation, key.first, key.n_parts);
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
    return gw_ps_ticket_send(client, ticket);
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
    GW_TRY(gw_ps_ticket_send(client, ticket));
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
    GW_TRY(gw_ps_ticket_send(client, ticket));
    return gw_ps_wait(client, id, out);
}

/* Begins to pull a scale key where the server that has the key has not the scale. *ticket 0: it has; it multiplies then. */
static gw_status pull_scale_begin(gw_ps_client *client, const char *name, gw_ps_method method, const char *scale_key, uint64_t *ticket)
{
    struct key *known, *scale;
    *ticket = 0;
    GW_TRY(find_key(client, name, &known));
    GW_TRY(find_key(client, scale_key, &scale));
    const struct key key = known ? *known : stranger(client, name), its = scale ? *scale : stranger(client, scale_key);
    if (key.n_parts == 1 && its.n_parts == 1 && key.first == its.first)
        return GW_OK;
    if (!known || !scale)
        return gw_fail(GW_ERR_ORDER, "\"%s\" and its scale_key \"%s\" live on several servers; init_parameter of both must come before a pull", name, scale_key);
    GW_TRY(gw_ps_check_scale(&(struct gw_ps_scaling){name, known->type, method, scale_key, scale->type, &scale->shape}));
    return gw_ps_pull_begin(client, scale_key, GW_PS_MAX, NULL, ticket);
}

static gw_status pull_begin(gw_ps_client *client, const char *name, gw_ps_method method, const char *scale_key, bool now, uint64_t *out)
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
    for (uint32_t p = 0; p < ticket->n_parts; p++) {
        struct gw_ps_request *request = &ticket->parts[p].request;
        request->code = (uint8_t)method;
        request->number = now;
        snprintf(request->scale_key, sizeof request->scale_key, "%s", scale_key && !scale ? scale_key : "");
    }
    *out = ticket->id;
    gw_status status = gw_ps_ticket_send(client, ticket);
    if (status < 0)
        gw_ps_client_drop(client, scale);
    return status;
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
    struct ticket *ticket = gw_ps_ticket_find(client, id);
    if (!ticket)
        return;
    doubt(client, ticket);
    gw_ps_client_drop(client, ticket->scale);
    gw_ps_ticket_drop(client, ticket);
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

bool gw_ps_is_in_memory_only(gw_ps_client *client)
{
    return atomic_exchange(&client->in_memory_only, false);
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

/* Whether all parts of its value must be of the same round, or version. Parameters are as they are on each server. */
static bool is_of_one_number(const gw_ps_client *client, const struct ticket *ticket)
{
    const bool of_a_round = ticket->operation == GW_PS_PULL && client->servers[0].mode == GW_PS_SYNC &&
                            ticket->parts[0].request.code != GW_PS_PARAMETERS;
    return of_a_round || ticket->operation == GW_PS_GET;
}

/* Multiplies what came by the scale that comes by that ticket; the same bits as a server's that has both. */
static gw_status scale_value(gw_ps_client *client, const char *name, uint64_t id, gw_ps_value *out)
{
    gw_ps_value scale;
    GW_TRY(gw_ps_wait(client, id, &scale));
    const bool alike = client->servers[0].mode != GW_PS_SYNC || scale.round == out->round;
    const float by = gw_get_float(scale.bytes);
    const uint64_t round = scale.round;
    gw_ps_value_free(&scale);
    if (!alike)
        return gw_fail(GW_ERR_ORDER, "round %" PRIu64 " of \"%s\" is pulled, and of its scale_key it is round %" PRIu64
                       "; both take part in every round: push to both equally often (a reader: try again)", out->round, name, round);
    const gw_float_env before = gw_float_enter();
    for (uint8_t *at = out->bytes, *end = at + out->n_bytes; at < end; at += sizeof(float))
        gw_put_float(at, gw_get_float(at) * by);
    gw_float_leave(before);
    return GW_OK;
}

gw_status gw_ps_wait(gw_ps_client *client, uint64_t id, gw_ps_value *out)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_wait: client is NULL");
    if (out)
        *out = (gw_ps_value){0};
    struct ticket *ticket = gw_ps_ticket_find(client, id);
    if (!ticket)
        return gw_fail(GW_ERR_ORDER, "there is no ticket %" PRIu64 ", or it has been waited for already", id);
    const bool brings = ticket->operation == GW_PS_PULL || ticket->operation == GW_PS_GET;
    if (brings && !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_wait: out is NULL for the ticket of a pull");
    gw_status status = gw_ps_ticket_wait(client, ticket);
    if (status < 0)
        doubt(client, ticket);
    for (uint32_t p = 1; status == GW_OK && is_of_one_number(client, ticket) && p < ticket->n_parts; p++)
        if (ticket->parts[p].reply.number != ticket->parts[0].reply.number)
            status = gw_fail(GW_ERR_ORDER, "\"%s\" was replaced while it was got: its parts are of %" PRIu64 " and %" PRIu64 "; try again",
                             ticket->parts[0].request.key, ticket->parts[0].reply.number, ticket->parts[p].reply.number);
    if (status == GW_OK && brings)
        status = take_value(client, ticket, out);
    if (status == GW_OK && ticket->scale)
        status = scale_value(client, ticket->parts[0].request.key, ticket->scale, out);
    if (status < 0 && out)
        gw_ps_value_free(out);
    gw_ps_client_drop(client, ticket->scale); /* gone by now, unless the value did not come */
    gw_ps_ticket_drop(client, ticket);
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
            gw_ps_send_request(&client->servers[s], &(struct gw_ps_request){.operation = GW_PS_BYE}, NULL);
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
        gw_ps_ticket_free(client, client->tickets);
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
