/* The table of a client's keys. A large key is cut into as many parts as there are servers, and each server has its own
 * part. Other keys live on one server. */
#include "pserver/client/state.h"
#include "base/error.h"
#include "base/memory.h"
#include "wire/hash.h"

#include <string.h>

#define SPLIT_BYTES (1u << 20) /* a larger value is cut into a part for each server */
#define FIRST_KEYS 16

static uint32_t home_of(const struct gw_ps_client *client, const char *name)
{
    return (uint32_t)(gw_hash_now()->whole(name, strlen(name), 0) % client->n_servers);
}

void gw_ps_key_find(const struct gw_ps_client *client, const char *name, uint64_t *number, struct place *place)
{
    *number = gw_ps_names_find(&client->names, name);
    *place = *number != GW_PS_NO_NAME && client->keys[*number].known
                 ? client->keys[*number].place
                 : (struct place){.first = home_of(client, name), .n_parts = 1};
}

gw_status gw_ps_key_add(struct gw_ps_client *client, const char *name, uint64_t *number)
{
    if (*number != GW_PS_NO_NAME)
        return GW_OK;
    if (client->names.n == client->capacity) {
        uint64_t capacity = client->capacity ? 2 * client->capacity : FIRST_KEYS;
        struct key *keys = gw_calloc(client->context, capacity, sizeof *keys);
        if (!keys)
            return GW_ERR_MEMORY;
        if (client->capacity)
            memcpy(keys, client->keys, client->capacity * sizeof *keys);
        gw_free(client->context, client->keys);
        client->keys = keys;
        client->capacity = capacity;
    }
    GW_TRY(gw_ps_names_add(&client->names, name));
    *number = client->names.n - 1;
    return GW_OK;
}

gw_status gw_ps_key_place(const struct gw_ps_client *client, const char *name, gw_ps_type type,
                          const gw_ps_shape *shape, struct place *place)
{
    if (shape->n_dims > GW_PS_MOST_DIMS)
        return gw_fail(GW_ERR_ARGUMENT, "the key \"%s\" is to have %u dimensions; %d are possible", name, shape->n_dims,
                       GW_PS_MOST_DIMS);
    *place = (struct place){.type = type, .shape = *shape, .first = home_of(client, name), .n_parts = 1};
    const bool plain =
        gw_ps_shape_elems(shape, &place->n_elems) && gw_ps_type_bytes(type); /* else the server says it */
    if (plain && place->n_elems * gw_ps_type_bytes(type) > SPLIT_BYTES && place->n_elems >= client->n_servers) {
        place->first = 0;
        place->n_parts = client->n_servers;
    }
    return GW_OK;
}

/* Keeps a specification with which the key was initialised. It keeps the first one only; "" is none. */
static gw_status keep_text(struct gw_ps_client *client, char **kept, const char *text)
{
    if (!text[0] || *kept)
        return GW_OK;
    *kept = gw_strdup(client->context, text);
    return *kept ? GW_OK : GW_ERR_MEMORY;
}

gw_status gw_ps_key_made(struct gw_ps_client *client, const struct request *request)
{
    struct key *key = &client->keys[request->key];
    uint64_t pushed = UINT64_MAX;
    for (uint32_t p = 0; p < request->n_parts; p++)
        if (request->parts[p].answer.n_pushed < pushed)
            pushed = request->parts[p].answer.n_pushed;
    if (key->n_pushes == 0) { /* else the server has not counted the pushes that wait */
        key->pushed = pushed;
        key->uncertain = false;
    }
    key->place = request->place;
    key->known = true;
    GW_TRY(keep_text(client, &key->codec, request->asked->codec));
    return keep_text(client, &key->optimizer, request->asked->optimizer);
}

uint64_t gw_ps_part_begin(const struct place *place, uint32_t p)
{
    uint64_t each = place->n_elems / place->n_parts, more = place->n_elems % place->n_parts;
    return each * p + (p < more ? p : more);
}

gw_ps_shape gw_ps_part_shape(const struct place *place, uint32_t p)
{
    return place->n_parts == 1
               ? place->shape
               : (gw_ps_shape){.n_dims = 1, .dims = {gw_ps_part_begin(place, p + 1) - gw_ps_part_begin(place, p)}};
}

void gw_ps_keys_free(struct gw_ps_client *client)
{
    for (uint64_t k = 0; k < client->names.n; k++) {
        gw_free(client->context, client->keys[k].codec);
        gw_free(client->context, client->keys[k].optimizer);
    }
    gw_ps_names_fini(&client->names);
    gw_free(client->context, client->keys);
}
