/* Knows which workers take part: rounds wait for those that are present. */
#include "pserver/store/parameters.h"

/* The round to which the workers that have pushed most push next. */
static uint64_t open_round(const struct gw_ps_store *store, const struct gw_ps_key *key)
{
    return store->options.mode == GW_PS_SYNC ? key->open.number : key->foremost + 1;
}

static void enter_key(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t from)
{
    /* if it is not named, the worker goes on at the open round of the key, or after it */
    const bool named = from > 0 && gw_ps_is_of_exchange(key->name);
    const uint64_t first = named ? from : open_round(store, key);
    if (named && store->options.mode == GW_PS_SYNC && first <= key->open.number && key->pushed[rank] >= first) {
        gw_ps_key_take_out(store, key, rank); /* the worker pushed this before it left, and will push it again */
        key->pushed[rank] = key->taken[rank] = first - 1;
        store->pushes[rank]--;
    }
    if (key->pushed[rank] < first - 1) {
        store->skipped[rank] += first - 1 - key->pushed[rank];
        key->pushed[rank] = first - 1;
    }
    if (store->options.mode != GW_PS_SYNC)
        /* results were made without the worker's last push, which counts again */
        gw_ps_key_forget_results(store, key, &key->open);
    gw_ps_key_finish(store, key); /* this also counts again how many workers are due */
}

gw_status gw_ps_store_enter(struct gw_ps_store *store, uint32_t rank, uint64_t from)
{
    struct gw_ps_key *key;
    for (uint64_t k = 0; from > 0 && store->options.mode == GW_PS_SYNC && (key = gw_ps_store_key(store, k)); k++)
        if (gw_ps_is_of_exchange(key->name) && key->open.number > from)
            return gw_fail(GW_ERR_ORDER,
                           "rank %u is to take part from round %" PRIu64 " on, and \"%s\" is at round %" PRIu64
                           " already",
                           rank, from, key->name, key->open.number);
    store->info.n_present += !store->present[rank];
    store->present[rank] = true;
    for (uint64_t k = 0; (key = gw_ps_store_key(store, k)); k++)
        enter_key(store, key, rank, from);
    gw_ps_store_change(store);
    return GW_OK;
}

void gw_ps_store_leave(struct gw_ps_store *store, uint32_t rank)
{
    if (!store->present[rank])
        return;
    store->present[rank] = false;
    store->info.n_present--;
    struct gw_ps_key *key;
    for (uint64_t k = 0; (key = gw_ps_store_key(store, k)); k++) {
        if (store->options.mode != GW_PS_SYNC)
            gw_ps_key_forget_results(store, key, &key->open);
        gw_ps_key_finish(store, key);
        /* requests that wait may now wait for another worker, or for none */
        store->woken(store->user, key);
    }
    gw_ps_store_change(store);
}

bool gw_ps_store_keeps_parameters(const struct gw_ps_store *store)
{
    const struct gw_ps_key *key;
    for (uint64_t k = 0; (key = gw_ps_store_key(store, k)); k++)
        if (gw_ps_is_of_exchange(key->name) && key->parameters && key->parameters->values)
            return true;
    return false;
}

uint64_t gw_ps_store_next_round(const struct gw_ps_store *store, bool of_exchange)
{
    const struct gw_ps_key *key;
    uint64_t most = 1;
    for (uint64_t k = 0; (key = gw_ps_store_key(store, k)); k++)
        if (gw_ps_is_of_exchange(key->name) == of_exchange && open_round(store, key) > most)
            most = open_round(store, key);
    return most;
}

void gw_ps_store_skip_to(struct gw_ps_store *store, uint64_t number)
{
    struct gw_ps_key *key;
    store->info.has_begun = false;
    for (uint64_t k = 0; store->options.mode == GW_PS_SYNC && (key = gw_ps_store_key(store, k)); k++)
        if (gw_ps_is_of_exchange(key->name)) {
            gw_ps_round_clear(store, key, &key->open);
            key->open.number = number;
        }
    gw_ps_store_change(store);
}

/* All workers push to round `next` next. */
static void begin_key_anew(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t next)
{
    const bool sync = store->options.mode == GW_PS_SYNC;
    const uint64_t own = open_round(store, key);
    for (uint32_t r = 0; r < store->options.n_workers; r++) {
        const uint64_t pushed = key->pushed[r];
        const uint64_t dropped = key->taken[r] == pushed && pushed >= own ? pushed - (own - 1) : 0; /* do not count */
        if (sync)
            gw_ps_key_take_out(store, key, r);
        store->pushes[r] -= dropped;
        store->skipped[r] += next - 1 - (pushed - dropped);
        key->pushed[r] = next - 1;
        if (!sync || key->taken[r] > own - 1)
            key->taken[r] = sync ? own - 1 : 0;
    }
    store->foremost += next - 1 - key->foremost;
    key->foremost = key->began_after = next - 1;
    if (sync)
        key->open.number = next;
    else
        gw_ps_key_forget_results(store, key, &key->open);
    gw_ps_key_finish(store, key); /* this also counts again how many workers are due */
    gw_ps_key_change(store, key);
}

void gw_ps_store_begin_anew(struct gw_ps_store *store)
{
    const uint64_t next = gw_ps_store_next_round(store, false);
    struct gw_ps_key *key;
    for (uint64_t k = 0; (key = gw_ps_store_key(store, k)); k++)
        if (!gw_ps_is_of_exchange(key->name))
            begin_key_anew(store, key, next);
}

bool gw_ps_store_is_past(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank)
{
    return rank < store->options.n_workers && (key->pushed[rank] > key->taken[rank] || gw_ps_is_of_before(key, rank));
}

void gw_ps_store_skip(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t number)
{
    if (rank >= store->options.n_workers || number <= key->pushed[rank])
        return;
    store->skipped[rank] += number - key->pushed[rank];
    key->pushed[rank] = number;
    gw_ps_key_change(store, key);
    gw_ps_key_finish(store, key);
    store->woken(store->user, key); /* requests that wait may now wait for nobody */
}

void gw_ps_store_drop(struct gw_ps_store *store)
{
    struct gw_ps_key *key;
    uint64_t n = 0;
    for (uint64_t k = 0; (key = gw_ps_store_key(store, k)); k++) {
        if (gw_ps_is_of_exchange(key->name)) {
            gw_ps_key_free(store, key);
            continue;
        }
        /* a scale key that was used for these results may be gone */
        gw_ps_key_forget_results(store, key, &key->before);
        gw_ps_key_forget_results(store, key, &key->whole);
        gw_ps_key_forget_results(store, key, &key->open);
        store->names.all[n++] = key;
    }
    store->names.n = n;
    gw_ps_names_refresh(&store->names);
    store->info.has_begun = false;
    store->changed = store->dropped = true;
}
