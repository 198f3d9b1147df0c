/* The table of a client's keys. A large key is cut into as many parts as there are servers, and each server has its own
 * part. Other keys live on one server. */
#include "pserver/client/state.h"
#include "base/error.h"
#include "base/memory.h"
#include "wire/hash.h"

#include <string.h>

#define SPLIT_BYTES (1u << 20) /* a larger value is cut into a part for each server */

static uint32_t home_of(const struct gw_ps_client *client, const char *name)
{
    return (uint32_t)(gw_hash_now()->whole(name, strlen(name), 0) % client->n_servers);
}

struct place gw_ps_key_find(const struct gw_ps_client *client, const char *name)
{
    const struct key *key = gw_ps_names_find(&client->keys, name);
    return key && key->place.type ? key->place : (struct place){.first = home_of(client, name), .n_parts = 1};
}

static void free_key(struct gw_ps_client *client, struct key *key)
{
    gw_free(client->context, key->name);
    gw_free(client->context, key->codec);
    gw_free(client->context, key->optimizer);
    gw_free(client->context, key);
}

gw_status gw_ps_key_add(struct gw_ps_client *client, const char *name, struct key **out)
{
    *out = gw_ps_names_find(&client->keys, name);
    if (*out)
        return GW_OK;
    struct key *key = gw_calloc(client->context, 1, sizeof *key);
    if (!key)
        return GW_ERR_MEMORY;
    key->name = gw_strdup(client->context, name);
    if (!key->name || gw_ps_names_add(&client->keys, key) < 0) {
        free_key(client, key);
        return GW_ERR_MEMORY;
    }
    *out = key;
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
    struct key *key = request->key;
    uint64_t pushed = UINT64_MAX;
    for (uint32_t p = 0; p < request->place.n_parts; p++)
        if (request->parts[p].answer.n_pushed < pushed)
            pushed = request->parts[p].answer.n_pushed;
    if (key->n_pushes == 0) { /* else the server has not counted the pushes that wait */
        key->pushed = pushed;
        key->uncertain = false;
    }
    key->place = request->place;
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
    for (uint64_t k = 0; k < client->keys.n; k++)
        free_key(client, client->keys.all[k]);
    gw_ps_names_fini(&client->keys);
}
