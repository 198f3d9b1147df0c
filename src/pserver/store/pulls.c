/* Answers pulls: finds the round of the asking worker, reduces it, and keeps results for the workers that ask next. */
#include "base/error.h"
#include "pserver/store/parameters.h"

#include <string.h>

/* The round that a pull of `rank` asks for: GW_OK, GW_PS_WAIT, or GW_ERR_ORDER. */
static gw_status round_for(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, struct gw_ps_round **round,
                           uint64_t *number)
{
    bool worker = rank < store->options.n_workers;
    uint64_t pushed = worker ? key->pushed[rank] : 0;
    if (worker && key->taken[rank] == 0)
        return gw_fail(GW_ERR_ORDER,
                       "rank %u pulls \"%s\" before it has pushed to it; only \"latest\" can be pulled then", rank,
                       key->name);
    if (store->options.mode == GW_PS_SYNC) {
        worker = worker && !gw_ps_is_of_before(key, rank); /* whole rounds of earlier runs stay */
        *round = store->options.backup && worker && pushed == key->before.number ? &key->before : &key->whole;
        *number = worker ? pushed : key->whole.number;
        if (!worker && key->whole.number == 0)
            return gw_fail(GW_ERR_ORDER, "\"%s\" has no whole round yet: not all workers have pushed to it", key->name);
        if (worker && pushed < (*round)->number)
            return gw_fail(GW_ERR_PEER,
                           "rank %u was away too long: \"%s\" is beyond round %" PRIu64 ", which it last pushed to",
                           rank, key->name, pushed);
        return worker && pushed > key->whole.number ? GW_PS_WAIT : GW_OK;
    }
    *round = &key->open;
    *number = pushed;
    if (key->open.n_in == 0)
        return gw_fail(GW_ERR_ORDER, "nobody has pushed to \"%s\" yet", key->name);
    if (!worker)
        return GW_OK;
    const bool is_ahead =
        store->options.mode == GW_PS_STALE &&
        (gw_ps_is_gathering(store) ? 0 : gw_ps_fewest_pushes(store, key)) + store->options.staleness < pushed;
    return is_ahead || gw_ps_is_pending(key, rank) ? GW_PS_WAIT : GW_OK;
}

/* Checks that a round can be used. With GW_PS_SYNC no worker may have refused. In other modes at least one push must be
 * usable, and so must that of the asking worker. *number: the number of a refusal. */
static gw_status check_refusals(const struct gw_ps_store *store, const struct gw_ps_key *key,
                                const struct gw_ps_round *round, uint32_t rank, uint64_t *number)
{
    bool usable = false;
    uint64_t least = GW_PS_NOT_REFUSED;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        if (gw_ps_counts(store, key, round, r)) {
            usable = usable || round->refusals[r] == GW_PS_NOT_REFUSED;
            least = round->refusals[r] < least ? round->refusals[r] : least;
        }
    *number = GW_PS_NOT_REFUSED;
    if (store->options.mode == GW_PS_SYNC || !usable)
        *number = least;
    else if (rank < store->options.n_workers)
        *number = round->refusals[rank];
    return *number == GW_PS_NOT_REFUSED
               ? GW_OK
               : gw_fail(GW_ERR_NONFINITE,
                         "a worker's push to \"%s\" in this round was empty: its value could not be used", key->name);
}

/* The result of a round that has all its pushes. If it was made before and is kept, it is not made again. */
static gw_status result_of(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round,
                           gw_ps_method method, const struct gw_ps_key *scale_key, uint64_t scale_round,
                           const float *scale, struct gw_ps_pulled *out)
{
    for (uint32_t i = 0; i < GW_PS_CACHED_RESULTS; i++) {
        struct gw_ps_cached *kept = &round->results[i];
        if (kept->pulled.value && kept->method == method && kept->scale_key == scale_key &&
            kept->scale_round == scale_round) {
            *out = kept->pulled;
            gw_ps_blob_hold(out->value);
            return GW_OK;
        }
    }
    const uint64_t needed = gw_ps_result_bytes(method, key->type, key->n_elems);
    if (!gw_ps_store_has_room(store, needed))
        gw_ps_key_forget_results(store, key, round); /* results can be made again, so they make room */
    if (!gw_ps_store_has_room(store, needed))
        return gw_ps_no_room(store, "a result of", key->name, needed);
    struct gw_ps_result result;
    uint32_t n_pushes;
    GW_TRY(gw_ps_round_reduce(store, key, round, method, scale, &result, &n_pushes));
    *out = (struct gw_ps_pulled){.type = result.type, .shape = result.shape, .n_pushes = n_pushes};
    out->value = gw_ps_blob_new(store->context, store->total, result.bytes, result.n_bytes);
    if (!out->value)
        return GW_ERR_MEMORY;
    struct gw_ps_cached *place = &round->results[round->n_results++ % GW_PS_CACHED_RESULTS];
    gw_ps_value_drop(store, key, &place->pulled.value);
    *place = (struct gw_ps_cached){method, scale_key, scale_round, *out};
    gw_ps_blob_hold(out->value);
    gw_ps_key_count(store, key, out->value->n_bytes, 0);
    return GW_OK;
}

static gw_status latest_of(const struct gw_ps_key *key, struct gw_ps_pulled *out)
{
    /* If the newest push made its round whole, it is in the whole round. Else it is in the open one. */
    const bool in_open = key->open.pushes[key->latest] && !gw_ps_is_pending(key, key->latest);
    const struct gw_ps_round *round = in_open ? &key->open : &key->whole;
    struct gw_ps_blob *value = round->pushes[key->latest];
    if (value && round->refusals[key->latest] != GW_PS_NOT_REFUSED)
        return gw_fail(GW_ERR_NONFINITE, "the last push to \"%s\" was empty: rank %u's value could not be used",
                       key->name, key->latest);
    if (!value)
        return gw_fail(GW_ERR_ORDER, "nobody has pushed to \"%s\" yet", key->name);
    *out = (struct gw_ps_pulled){.type = key->type,
                                 .shape = key->shape,
                                 .round = key->pushed[key->latest],
                                 .n_pushes = 1,
                                 .value = gw_ps_blob_hold(value)};
    return GW_OK;
}

static gw_status parameters_of(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank,
                               struct gw_ps_pulled *out)
{
    struct gw_ps_round *round = store->options.mode == GW_PS_SYNC ? &key->whole : &key->open;
    uint64_t number = round->number;
    if (!key->parameters)
        return gw_fail(GW_ERR_ARGUMENT, "\"%s\" has no optimizer, and so no parameters that could be pulled",
                       key->name);
    if (!key->parameters->values)
        return GW_PS_WAIT;
    GW_TRY(gw_ps_key_finish(store, key)); /* if there was no memory to finish the round, try again */
    if (rank < store->options.n_workers && key->taken[rank] > 0) {
        gw_status status = round_for(store, key, rank, &round, &number);
        if (status != GW_OK)
            return status;
        GW_TRY(check_refusals(store, key, round, rank, &out->round));
        if (number == key->parameters->unusable)
            return gw_fail(GW_ERR_FRAME_MISMATCH,
                           "the pushes of round %" PRIu64
                           " to \"%s\" have no average, and have not moved its parameters",
                           number, key->name);
    }
    *out = (struct gw_ps_pulled){.type = GW_PS_FLOAT32,
                                 .shape = key->shape,
                                 .round = number,
                                 .n_pushes = round->n_in,
                                 .value = gw_ps_blob_hold(key->parameters->values)};
    return GW_OK;
}

/* Finds the round of the scale key that belongs to the key's round `number`. GW_PS_WAIT: one of the two keys is behind,
 * and *waits_for is that key. */
static gw_status scale_round_for(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t number, uint32_t rank,
                                 struct gw_ps_key *scale_key, struct gw_ps_round **round, struct gw_ps_key **waits_for)
{
    uint64_t unused;
    *waits_for = scale_key;
    if (store->options.mode != GW_PS_SYNC)
        return round_for(store, scale_key, rank, round, &unused);
    const bool worker = rank < store->options.n_workers;
    *round = store->options.backup && scale_key->before.number == number ? &scale_key->before : &scale_key->whole;
    if ((*round)->number == number)
        return GW_OK;
    if (worker && (scale_key->whole.number > number || scale_key->pushed[rank] < number))
        return gw_fail(GW_ERR_ORDER,
                       "rank %u pulls round %" PRIu64 " of \"%s\" and has pushed %" PRIu64
                       " times to its scale_key \"%s\"; both take part "
                       "in one round",
                       rank, number, key->name, scale_key->pushed[rank], scale_key->name);
    if (scale_key->whole.number > number)
        *waits_for = key;
    return GW_PS_WAIT;
}

/* Fails if the key's rounds went on without the worker: they are not the worker's rounds. Once it has pushed again, the
 * open round is its own. */
static gw_status check_own_round(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank)
{
    if (store->options.mode != GW_PS_SYNC || rank >= store->options.n_workers || key->taken[rank] == 0 ||
        key->taken[rank] == key->pushed[rank] || gw_ps_is_of_before(key, rank))
        return GW_OK;
    return gw_fail(GW_ERR_PEER,
                   "rank %u was away too long: \"%s\" is beyond round %" PRIu64 ", which it last pushed to", rank,
                   key->name, key->taken[rank]);
}

gw_status gw_ps_store_pull(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, gw_ps_method method,
                           struct gw_ps_key *scale_key, struct gw_ps_pulled *out, struct gw_ps_key **waits_for)
{
    struct gw_ps_round *round, *scale_round;
    uint64_t number, scale_number = 0;
    float scale = 1;
    *waits_for = key;
    if (method == GW_PS_PARAMETERS && !scale_key)
        return parameters_of(store, key, rank, out);
    GW_TRY(gw_ps_method_check(method, key->type));
    if (scale_key)
        GW_TRY(gw_ps_check_scale(key->name, key->type, method, scale_key->name, scale_key->type, &scale_key->shape));
    if (method == GW_PS_LATEST)
        return latest_of(key, out);
    GW_TRY(check_own_round(store, key, rank));
    gw_status status = round_for(store, key, rank, &round, &number);
    if (status == GW_OK && scale_key) {
        status = scale_round_for(store, key, number, rank, scale_key, &scale_round, waits_for);
        if (status == GW_OK) {
            struct gw_ps_pulled pulled;
            GW_TRY(check_refusals(store, scale_key, scale_round, rank, &out->round));
            GW_TRY(result_of(store, scale_key, scale_round, GW_PS_MAX, NULL, 0, NULL, &pulled));
            memcpy(&scale, pulled.value->bytes, sizeof scale);
            gw_ps_blob_give(pulled.value);
            scale_number = scale_round->number;
        }
    }
    if (status != GW_OK)
        return status;
    GW_TRY(check_refusals(store, key, round, rank, &out->round));
    GW_TRY(result_of(store, key, round, method, scale_key, scale_number, scale_key ? &scale : NULL, out));
    out->round = number;
    return GW_OK;
}
