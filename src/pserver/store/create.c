/* Makes and destroys a store, and tells what it holds. It knows neither sockets nor files. */
#include "base/error.h"
#include "base/memory.h"
#include "pserver/store/parameters.h"

#include <gradwire/codec.h>

#include <string.h>

gw_status gw_ps_store_create(gw_context *context, const gw_ps_server_options *options, atomic_uint_least64_t *total,
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
    store->pushes = gw_calloc(context, options->n_workers, sizeof *store->pushes);
    store->skipped = gw_calloc(context, options->n_workers, sizeof *store->skipped);
    store->present = gw_calloc(context, options->n_workers, sizeof *store->present);
    if (!store->pushes || !store->skipped || !store->present) {
        gw_ps_store_destroy(store);
        return GW_ERR_MEMORY;
    }
    if (options->min_workers == 0) {
        memset(store->present, true, options->n_workers);
        store->n_present = options->n_workers;
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
    gw_free(store->context, store->skipped);
    gw_free(store->context, store->present);
    gw_ps_names_fini(&store->names);
    gw_free(store->context, store);
}

void gw_ps_store_unchange(struct gw_ps_store *store)
{
    for (struct gw_ps_key *key = store->first_changed; key; key = key->next_changed)
        key->changed = false;
    store->first_changed = NULL;
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

struct gw_ps_store_info gw_ps_store_info(const struct gw_ps_store *store)
{
    return (struct gw_ps_store_info){.n_keys = store->names.n,
                                     .bytes = store->bytes,
                                     .rounds = store->rounds,
                                     .round_times = store->round_times,
                                     .n_present = store->n_present,
                                     .has_begun = store->begun};
}
