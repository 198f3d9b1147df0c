/* Decides when a round is whole, and empties rounds. */
#include "base/clock.h"
#include "pserver/store/parameters.h"

void gw_ps_key_forget_results(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round)
{
    for (uint32_t i = 0; i < GW_PS_CACHED_RESULTS; i++)
        gw_ps_value_drop(store, key, &round->results[i].pulled.value);
    round->n_results = 0;
}

void gw_ps_round_clear(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round)
{
    for (uint32_t r = 0; round->pushes && r < store->options.n_workers; r++) {
        gw_ps_value_drop(store, key, &round->pushes[r]);
        round->refusals[r] = GW_PS_NOT_REFUSED;
    }
    gw_ps_key_forget_results(store, key, round);
    round->n_in = 0;
}

void gw_ps_key_count_due(const struct gw_ps_store *store, struct gw_ps_key *key)
{
    key->n_due = 0;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        key->n_due += gw_ps_is_due(store, key, r);
}

/* True if the open round has all pushes that it needs. Backup workers may be late by one round, but not more. So pulls
 * of the round before can still be answered. */
static bool has_all(const struct gw_ps_store *store, const struct gw_ps_key *key)
{
    if (key->open.n_in == 0 || gw_ps_is_gathering(store) || key->n_due > store->options.backup)
        return false;
    uint32_t n_pending = 0;
    for (uint32_t r = 0; r < store->options.n_workers; r++) {
        n_pending += gw_ps_is_pending(key, r);
        if (store->present[r] && key->pushed[r] + 1 < key->open.number)
            return false;
    }
    return n_pending < key->open.n_in;
}

uint64_t gw_ps_fewest_pushes(const struct gw_ps_store *store, const struct gw_ps_key *key)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        if (store->present[r] && key->pushed[r] < least)
            least = key->pushed[r];
    return least;
}

gw_status gw_ps_key_finish(struct gw_ps_store *store, struct gw_ps_key *key)
{
    if (store->options.mode != GW_PS_SYNC)
        return GW_OK;
    /* If no worker pushes to the open round any more (gw_ps_store_skip), it stays empty, and the next one opens to
     * which one pushes. */
    const uint64_t least = key->open.n_in ? UINT64_MAX : gw_ps_fewest_pushes(store, key);
    if (least >= key->open.number && least < UINT64_MAX)
        key->open.number = least + 1;
    gw_ps_key_count_due(store, key);
    if (!has_all(store, key))
        return GW_OK;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        if (gw_ps_is_pending(key, r)) /* a pending push of a worker that has left, or is late */
            gw_ps_key_take_out(store, key, r);
    gw_status status = key->parameters ? gw_ps_parameters_finish(store, key) : GW_OK;
    if (status < 0) { /* there is no memory now. A pull tries again, and tells its client if that fails */
        store->woken(store->user, key);
        return status;
    }
    struct gw_ps_round *oldest = store->options.backup ? &key->before : &key->whole;
    gw_ps_key_change(store, key);
    gw_ps_round_clear(store, key, oldest);
    const struct gw_ps_round emptied = *oldest;
    if (store->options.backup)
        key->before = key->whole;
    key->whole = key->open;
    key->open = emptied;
    key->open.number = key->whole.number + 1;
    store->info.has_begun = true;
    store->info.rounds++;
    if (key->whole.began > 0)
        gw_ps_times_note(&store->info.round_times, gw_clock_seconds() - key->whole.began);
    key->open.began = 0;
    gw_ps_key_count_due(store, key);
    store->woken(store->user, key);
    return GW_OK;
}

void gw_ps_key_take_out(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank)
{
    if (!key->open.pushes[rank])
        return;
    gw_ps_value_drop(store, key, &key->open.pushes[rank]);
    key->open.refusals[rank] = GW_PS_NOT_REFUSED;
    key->open.n_in--;
    gw_ps_key_change(store, key);
}
