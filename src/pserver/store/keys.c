/* Makes and frees a store and its keys, finds keys, and tells what there is. It knows neither sockets nor files. */
#include "base/error.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "pserver/store/parameters.h"

#include <limits.h>
#include <string.h>

/* the most steps of a search for the nearest name, so that a wrong name cannot keep the server busy */
#define NEAREST_WORK (1u << 20)

gw_status gw_ps_store_find(struct gw_ps_store *store, const char *name, struct gw_ps_key **out)
{
    *out = gw_ps_names_find(&store->names, name);
    if (*out)
        return GW_OK;
    if (gw_ps_is_of_exchange(name))
        return gw_fail(GW_ERR_ARGUMENT,
                       "this server has no \"%s\": it was started anew while its workers trained, and kept nothing "
                       "(--snapshot DIR keeps a run)",
                       name);
    if (store->names.n == 0)
        return gw_fail(GW_ERR_ARGUMENT, "there is no key \"%s\", nor any other: init_parameter makes one", name);
    const char *nearest = NULL;
    const struct gw_ps_key *key;
    unsigned least = UINT_MAX;
    size_t n = strlen(name), work = 0;
    for (uint64_t k = 0; work < NEAREST_WORK && (key = gw_ps_store_key(store, k)); k++) {
        work += n * strlen(key->name);
        const unsigned d = gw_edit_distance(name, key->name);
        if (d < least) {
            least = d;
            nearest = key->name;
        }
    }
    return gw_fail(GW_ERR_ARGUMENT, "there is no key \"%s\": init_parameter makes one; the nearest name is \"%s\"",
                   name, nearest);
}

/* ---- keys ----------------------------------------------------------------------------------------------- */

/* How many bytes a key takes before the first push. */
static uint64_t empty_bytes(const struct gw_ps_store *store, const char *name)
{
    return sizeof(struct gw_ps_key) + strlen(name) +
           (store->options.backup ? 8ull : 6ull) * store->options.n_workers * sizeof(uint64_t);
}

void gw_ps_key_free(struct gw_ps_store *store, struct gw_ps_key *key)
{
    struct gw_ps_round *rounds[] = {&key->open, &key->whole, &key->before};
    const uint64_t own = gw_ps_parameters_own_bytes(store, key);
    if (key->row) {
        *store->total -= empty_bytes(store, key->name) + own;
        gw_ps_key_count(store, key, 0, own);
    }
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++)
        gw_ps_round_clear(store, key, rounds[i]);
    if (key->is_changed)
        LIST_REMOVE(key, changed);
    if (key->is_woken)
        LIST_REMOVE(key, woken);
    gw_codec_destroy(key->codec);
    gw_ps_parameters_free(store, key);
    gw_ps_value_drop(store, key, &key->put);
    gw_free(store->context, key->name);
    gw_free(store->context, key->pushed);
    gw_free(store->context, key);
}

/* Takes one block, at key->pushed, for all that a key has of each rank. */
static gw_status take_ranks(const struct gw_ps_store *store, struct gw_ps_key *key)
{
    struct gw_ps_round *rounds[] = {&key->open, &key->whole, &key->before};
    const size_t n = store->options.n_workers, n_rounds = store->options.backup ? 3 : 2;
    uint64_t *numbers = gw_calloc(store->context, (2 + 2 * n_rounds) * n, sizeof *numbers);
    if (!numbers)
        return GW_ERR_MEMORY;
    key->pushed = numbers;
    key->taken = numbers + n;
    for (size_t i = 0; i < n_rounds; i++) {
        rounds[i]->refusals = numbers + (2 + 2 * i) * n;
        rounds[i]->pushes = (struct gw_ps_blob **)(rounds[i]->refusals + n); /* a pointer is no longer than a number */
        for (size_t r = 0; r < n; r++)
            rounds[i]->refusals[r] = GW_PS_NOT_REFUSED;
    }
    return GW_OK;
}

/* Fills a new key, and adds it to the table. */
static gw_status fill_key(struct gw_ps_store *store, struct gw_ps_key *key, const char *name, const char *codec,
                          const char *optimizer)
{
    key->name = gw_strdup(store->context, name);
    if (!key->name)
        return GW_ERR_MEMORY;
    GW_TRY(take_ranks(store, key));
    key->open.number = 1;
    key->whole.place = 1;
    key->before.place = 2;
    gw_ps_key_count_due(store, key);
    if (codec[0])
        GW_TRY(gw_codec_parse(store->context, codec, &key->codec));
    if (optimizer[0])
        GW_TRY(gw_ps_parameters_init(store, key, optimizer));
    return gw_ps_names_add(&store->names, key);
}

/* Checks that the key that exists has this type, shape, codec and optimizer. */
static gw_status compare_key(const struct gw_ps_key *key, gw_ps_type type, const gw_ps_shape *shape, const char *codec,
                             const char *optimizer)
{
    const char *own = key->codec ? gw_codec_traits_of(key->codec).canonical : "";
    if (key->type != type || !gw_ps_shapes_equal(&key->shape, shape))
        return gw_fail(GW_ERR_ARGUMENT,
                       "the key \"%s\" is there as %s of shape %s; it cannot be initialised as %s of shape %s",
                       key->name, gw_ps_type_name(key->type), gw_ps_shape_text(&key->shape).text, gw_ps_type_name(type),
                       gw_ps_shape_text(shape).text);
    if (strcmp(own, codec) != 0)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the key \"%s\" is there with the codec \"%s\"; it cannot be initialised with \"%s\"", key->name,
                       own, codec);
    return gw_ps_parameters_compare(key, optimizer);
}

gw_status gw_ps_store_init(struct gw_ps_store *store, const char *name, gw_ps_type type, const gw_ps_shape *shape,
                           uint32_t n_parts, const char *codec, const char *optimizer)
{
    uint64_t n_elems;
    GW_TRY(gw_ps_check_name(name));
    if (!gw_ps_type_name(type))
        return gw_fail(GW_ERR_ARGUMENT, "the key \"%s\" is to have type number %u; there is no such type", name,
                       (unsigned)type);
    if (!gw_ps_shape_elems(shape, &n_elems))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the key \"%s\" is to have the shape %s; every dimension must be at least 1, and all together at most 2^48",
            name, gw_ps_shape_text(shape).text);
    struct gw_ps_key *key = gw_ps_names_find(&store->names, name);
    if (key)
        return compare_key(key, type, shape, codec, optimizer);
    /* for frames: as many bytes as floats would take */
    size_t width = gw_ps_type_bytes(type) ? gw_ps_type_bytes(type) : sizeof(float);
    if (n_elems * width > store->options.max_key_bytes)
        return gw_fail(GW_ERR_CAPACITY,
                       "the key \"%s\" is to take %" PRIu64 " bytes; this server takes %" PRIu64
                       " at most (--max-key-bytes)",
                       name, n_elems * width, store->options.max_key_bytes);
    if (store->names.n >= store->options.max_keys)
        return gw_fail(GW_ERR_CAPACITY,
                       "the key \"%s\" would be one too many: this server keeps %" PRIu64 " (--max-keys)", name,
                       store->options.max_keys);
    if (!gw_ps_store_has_room(store, empty_bytes(store, name)))
        return gw_ps_no_room(store, "the key", name, empty_bytes(store, name));
    key = gw_calloc(store->context, 1, sizeof *key);
    if (!key)
        return GW_ERR_MEMORY;
    key->type = type;
    key->shape = *shape;
    key->n_elems = n_elems;
    key->n_parts = n_parts;
    gw_status status = fill_key(store, key, name, codec, optimizer);
    if (status < 0) {
        gw_ps_key_free(store, key);
        return status;
    }
    key->row = ++store->last_row;
    const uint64_t own = gw_ps_parameters_own_bytes(store, key);
    *store->total += empty_bytes(store, name) + own;
    gw_ps_key_count(store, key, own, 0);
    gw_ps_key_change(store, key);
    return GW_OK;
}

/* ---- the store ------------------------------------------------------------------------------------------ */

gw_status gw_ps_store_create(gw_context *context, const gw_ps_server_options *options, uint64_t *total,
                             void (*woken)(void *user, struct gw_ps_key *key), void *user, struct gw_ps_store **out)
{
    struct gw_ps_store *store = gw_calloc(context, 1, sizeof *store);
    if (!store)
        return GW_ERR_MEMORY;
    store->context = context;
    store->options = *options;
    store->total = total;
    store->woken = woken;
    store->user = user;
    store->names.context = context;
    store->pushes = gw_calloc(context, options->n_workers, 2 * sizeof(uint64_t) + sizeof(bool));
    if (!store->pushes) {
        gw_free(context, store);
        return GW_ERR_MEMORY;
    }
    store->skipped = store->pushes + options->n_workers;
    store->present = (bool *)(store->skipped + options->n_workers);
    if (options->min_workers == 0) {
        memset(store->present, true, options->n_workers);
        store->info.n_present = options->n_workers;
    }
    *out = store;
    return GW_OK;
}

void gw_ps_store_destroy(struct gw_ps_store *store)
{
    if (!store)
        return;
    for (uint64_t k = 0; k < store->names.n; k++)
        gw_ps_key_free(store, gw_ps_store_key(store, k));
    gw_free(store->context, store->pushes);
    gw_ps_names_fini(&store->names);
    gw_free(store->context, store);
}

void gw_ps_store_unchange(struct gw_ps_store *store)
{
    for (struct gw_ps_key *key = LIST_FIRST(&store->changed_keys); key; key = LIST_NEXT(key, changed))
        key->is_changed = false;
    LIST_INIT(&store->changed_keys);
    store->changed = store->dropped = false;
}

bool gw_ps_key_misses(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t asker, uint32_t rank)
{
    if (gw_ps_is_gathering(store) && !store->present[rank])
        return true;
    if (store->options.mode == GW_PS_STALE)
        return store->present[rank] &&
               key->pushed[rank] + store->options.staleness < gw_ps_store_pushed(store, key, asker);
    return key->open.n_in && gw_ps_is_due(store, key, rank);
}
