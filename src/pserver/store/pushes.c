/* Takes pushes, refusals and verdicts for the open round. */
#include "base/clock.h"
#include "base/error.h"
#include "pserver/store/parameters.h"

/* Checks that a value is frames of this worker, back to back, with as many elements as the key. */
static gw_status check_frames(const struct gw_ps_key *key, uint32_t rank, const struct gw_ps_blob *value)
{
    const char *at = value->bytes;
    uint64_t n_elems = 0;
    for (size_t left = value->n_bytes; left > 0;) {
        gw_frame_info info;
        gw_status status = gw_frame_parse(at, left, &info);
        if (status < 0)
            return gw_fail(status, "rank %u's push to \"%s\": %s", rank, key->name, gw_last_error());
        if (info.average || info.rank != rank)
            return gw_fail(GW_ERR_FRAME_MISMATCH,
                           "rank %u's push to \"%s\" holds %s of rank %u; it must be frames of its own gradient", rank,
                           key->name, info.average ? "an average, and not a frame" : "a frame", info.rank);
        if (info.n_elems > key->n_elems - n_elems) {
            n_elems = UINT64_MAX;
            break;
        }
        n_elems += info.n_elems;
        at += info.frame_bytes;
        left -= info.frame_bytes;
    }
    return n_elems == key->n_elems
               ? GW_OK
               : gw_fail(GW_ERR_FRAME_MISMATCH,
                         "rank %u's push to \"%s\" holds frames of %s than the key's %" PRIu64 " elements", rank,
                         key->name, n_elems < key->n_elems ? "fewer" : "more", key->n_elems);
}

static gw_status check_rank(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank)
{
    return rank < store->options.n_workers
               ? GW_OK
               : gw_fail(GW_ERR_ARGUMENT, "a push to \"%s\" comes from a reader, which is no worker: it may pull only",
                         key->name);
}

gw_status gw_ps_key_check_value(const struct gw_ps_key *key, uint32_t rank, const struct gw_ps_blob *value)
{
    if (key->type == GW_PS_FRAME)
        return check_frames(key, rank, value);
    return value->n_bytes == key->n_elems * gw_ps_type_bytes(key->type)
               ? GW_OK
               : gw_fail(GW_ERR_ARGUMENT, "rank %u's push to \"%s\" has %zu bytes; %s of shape %s takes %" PRIu64, rank,
                         key->name, value->n_bytes, gw_ps_type_name(key->type), gw_ps_shape_text(&key->shape).text,
                         key->n_elems * gw_ps_type_bytes(key->type));
}

gw_status gw_ps_store_admit(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                            const struct gw_ps_blob *value)
{
    GW_TRY(check_rank(store, key, rank));
    GW_TRY(gw_ps_key_check_value(key, rank, value));
    GW_TRY(gw_ps_parameters_admit(key, rank, value));
    if (nth <= key->pushed[rank] &&
        /* the push was taken already. Or its worker joins again while the push waits; then it is stored after all */
        nth > 0)
        return GW_OK;
    /* this push will be dropped when the new one is stored */
    const struct gw_ps_blob *before = store->options.mode == GW_PS_SYNC ? NULL : key->open.pushes[rank];
    const uint64_t gone = before ? before->n_bytes : 0;
    if (*store->total - gone > store->options.max_bytes) { /* this value is counted already */
        gw_ps_key_forget_results(store, key, &key->whole); /* they can be made again */
        gw_ps_key_forget_results(store, key, &key->open);
    }
    if (*store->total - gone > store->options.max_bytes)
        return gw_ps_no_room(store, "a push to", key->name, value->n_bytes);
    return GW_OK;
}

/* Checks whether the worker's nth push, which was not taken before, can be taken now: GW_OK, or GW_PS_WAIT. */
static gw_status may_push(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank, uint64_t nth)
{
    if (!store->present[rank] || (nth <= key->pushed[rank] && nth > 0))
        return gw_fail(GW_ERR_PEER, "rank %u was away too long: round %" PRIu64 " of \"%s\" %s without it", rank, nth,
                       key->name, nth < key->open.number ? "went on" : "goes on");
    if (nth == 0)
        return gw_fail(GW_ERR_ORDER,
                       "rank %u pushes to \"%s\", which it has not initialised: init_parameter tells it how often its "
                       "rank has pushed",
                       rank, key->name);
    if (nth != key->pushed[rank] + 1)
        return gw_fail(GW_ERR_ORDER, "rank %u's push number %" PRIu64 " to \"%s\" comes after its number %" PRIu64,
                       rank, nth, key->name, key->pushed[rank]);
    if (store->options.mode != GW_PS_SYNC && gw_ps_is_pending(key, rank))
        return gw_fail(GW_ERR_ORDER,
                       "rank %u's push number %" PRIu64 " to \"%s\" comes before the verdict on its number %" PRIu64,
                       rank, nth, key->name, key->pushed[rank]);
    return gw_ps_is_unset(key) || (store->options.mode == GW_PS_SYNC && nth > key->open.number) ? GW_PS_WAIT : GW_OK;
}

/* Notes that a push that counts has come, in modes other than GW_PS_SYNC. */
static void note_change(struct gw_ps_store *store, struct gw_ps_key *key)
{
    store->info.has_begun = store->info.has_begun || !gw_ps_is_gathering(store);
    gw_ps_key_forget_results(store, key, &key->open);
    key->open.number++;
    store->woken(store->user, key);
}

static gw_status put_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, struct gw_ps_blob *value,
                          double rate, uint64_t refusal)
{
    const bool sync = store->options.mode == GW_PS_SYNC, late = sync && key->pushed[rank] + 1 < key->open.number;
    if (key->parameters && !sync && refusal == GW_PS_NOT_REFUSED)
        GW_TRY(gw_ps_parameters_push(store, key, value, rate));
    gw_ps_key_change(store, key);
    if (!late) { /* if a backup worker is late, its round has gone on without it, and its push is not kept */
        gw_ps_key_take_out(store, key, rank); /* in modes other than GW_PS_SYNC: the worker's push before */
        if (key->open.n_in++ == 0)
            key->open.began = gw_clock_seconds();
        key->open.pushes[rank] = gw_ps_blob_hold(value);
        key->open.refusals[rank] = refusal;
        gw_ps_key_count(store, key, value->n_bytes, 0);
        if (refusal != GW_PS_PENDING)
            key->latest = rank;
        if (key->parameters)
            key->parameters->rates[rank] = rate;
    }
    store->pushes[rank]++;
    key->taken[rank] = ++key->pushed[rank];
    if (key->pushed[rank] > key->foremost) {
        store->foremost += key->pushed[rank] - key->foremost;
        key->foremost = key->pushed[rank];
    }
    if (sync) {
        key->n_due -= !late && refusal != GW_PS_PENDING;
        if (key->n_due <= store->options.backup)
            gw_ps_key_finish(store, key);
        return GW_OK;
    }
    if (refusal == GW_PS_PENDING)
        gw_ps_key_forget_results(store, key, &key->open); /* the push before is not there any more */
    else
        note_change(store, key);
    return GW_OK;
}

/* A verdict is about all of these keys. */
static bool has_verdicts(const struct gw_ps_key *key)
{
    return key->parameters && gw_ps_is_of_exchange(key->name);
}

/* The largest numbers have meanings of their own. */
static uint64_t refusal_of(uint64_t number)
{
    return number < GW_PS_PENDING ? number : GW_PS_PENDING - 1;
}

gw_status gw_ps_store_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                           struct gw_ps_blob *value, double rate, uint64_t refusal)
{
    GW_TRY(check_rank(store, key, rank));
    if (value && refusal == GW_PS_PENDING && !has_verdicts(key))
        return gw_fail(GW_ERR_ARGUMENT,
                       "a push to \"%s\" is to wait for a verdict; the key must have an optimizer, and a name that "
                       "begins with \"%s\"",
                       key->name, GW_PS_EXCHANGE);
    if (nth <= key->taken[rank] && nth > key->began_after) /* it was taken before */
        return GW_OK;
    gw_status status = may_push(store, key, rank, nth);
    if (status != GW_OK)
        return status;
    if (value)
        return put_push(store, key, rank, value, rate, refusal);
    struct gw_ps_blob *nothing = gw_ps_blob_new(store->context, store->total, NULL, 0);
    status = nothing ? put_push(store, key, rank, nothing, rate, refusal_of(refusal)) : GW_ERR_MEMORY;
    gw_ps_blob_give(nothing);
    return status;
}

static gw_status check_verdict(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank,
                               uint64_t nth)
{
    GW_TRY(check_rank(store, key, rank));
    if (!store->present[rank])
        return gw_fail(GW_ERR_PEER, "rank %u was away too long: round %" PRIu64 " of \"%s\" goes on without it", rank,
                       nth, key->name);
    if (nth == 0 || key->pushed[rank] < nth || (gw_ps_is_pending(key, rank) && key->pushed[rank] != nth))
        return gw_fail(GW_ERR_ORDER,
                       "rank %u gives the verdict on its push number %" PRIu64
                       " to \"%s\"; its last one is number %" PRIu64,
                       rank, nth, key->name, key->pushed[rank]);
    return GW_OK;
}

/* If a pending push counts, it moves the parameters now. If not, it moves nothing. */
static gw_status take_verdict(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t refusal)
{
    struct gw_ps_blob **push = &key->open.pushes[rank];
    if (refusal != GW_PS_NOT_REFUSED) {
        struct gw_ps_blob *nothing = gw_ps_blob_new(store->context, store->total, NULL, 0);
        if (!nothing)
            return GW_ERR_MEMORY;
        gw_ps_value_drop(store, key, push);
        *push = nothing;
    } else if (store->options.mode != GW_PS_SYNC) {
        GW_TRY(gw_ps_parameters_push(store, key, *push, key->parameters->rates[rank]));
    }
    gw_ps_key_change(store, key);
    key->open.refusals[rank] = refusal == GW_PS_NOT_REFUSED ? refusal : refusal_of(refusal);
    key->latest = rank;
    if (store->options.mode == GW_PS_SYNC)
        gw_ps_key_finish(store, key);
    else
        note_change(store, key);
    return GW_OK;
}

gw_status gw_ps_store_take_verdict(struct gw_ps_store *store, uint32_t rank, uint64_t nth, uint64_t refusal)
{
    bool any = false;
    struct gw_ps_key *key;
    for (uint64_t k = 0; (key = gw_ps_store_key(store, k)); k++)
        if (has_verdicts(key)) {
            GW_TRY(check_verdict(store, key, rank, nth));
            any = true;
        }
    if (!any)
        return gw_fail(GW_ERR_ORDER,
                       "rank %u gives a verdict, and there is no key with an optimizer whose name begins with \"%s\"",
                       rank, GW_PS_EXCHANGE);
    for (uint64_t k = 0; (key = gw_ps_store_key(store, k)); k++)
        if (has_verdicts(key) && gw_ps_is_pending(key, rank))
            GW_TRY(take_verdict(store, key, rank, refusal));
    return GW_OK;
}

uint64_t gw_ps_store_pushed(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank)
{
    return rank < store->options.n_workers ? key->pushed[rank] : 0;
}

uint64_t gw_ps_store_behind(const struct gw_ps_store *store, uint32_t rank)
{
    const uint64_t done = store->pushes[rank] + store->skipped[rank];
    return store->present[rank] && store->foremost > done ? store->foremost - done : 0;
}
