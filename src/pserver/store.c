/* Keeps the keys and their rounds: it takes pushes, decides when a round is whole, and answers pulls. It knows neither
 * sockets nor files. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "pserver/changes.h"
#include "pserver/message.h"
#include "pserver/parameters.h"
#include "pserver/reduce.h"
#include "pserver/store_state.h"

#include <gradwire/codec.h>

#include <inttypes.h>
#include <string.h>

#define FIRST_KEYS 16
/* steps of a search for the nearest name: a wrong name shall not keep the server busy */
#define NEAREST_WORK (1u << 20)

/* ---- names ---------------------------------------------------------------------------------------------- */

/* How many letters must be put, taken or changed to make one of the other; names are short. */
static uint32_t distance(const char *a, const char *b)
{
    uint32_t row[GW_PS_MAX_NAME + 1];
    size_t n = strlen(b);
    for (size_t j = 0; j <= n; j++)
        row[j] = (uint32_t)j;
    for (size_t i = 0; a[i]; i++) {
        uint32_t diagonal = row[0];
        row[0] = (uint32_t)i + 1;
        for (size_t j = 0; j < n; j++) {
            uint32_t change = diagonal + (a[i] != b[j]);
            diagonal = row[j + 1];
            uint32_t other = (row[j] < row[j + 1] ? row[j] : row[j + 1]) + 1;
            row[j + 1] = change < other ? change : other;
        }
    }
    return row[n];
}

gw_status gw_ps_store_find(struct gw_ps_store *store, const char *name, struct gw_ps_key **out)
{
    uint64_t k = gw_ps_names_find(&store->names, name);
    if (k != GW_PS_NO_NAME) {
        *out = store->keys[k];
        return GW_OK;
    }
    if (strncmp(name, GW_PS_EXCHANGE, strlen(GW_PS_EXCHANGE)) == 0)
        return gw_fail(GW_ERR_ARGUMENT,
                       "this server has no \"%s\": it was started anew while its workers trained, and kept nothing "
                       "(--snapshot DIR "
                       "keeps a run)",
                       name);
    if (store->names.n == 0)
        return gw_fail(GW_ERR_ARGUMENT, "there is no key \"%s\", nor any other: init_parameter makes one", name);
    const char *nearest = NULL;
    uint32_t least = UINT32_MAX;
    size_t n = strlen(name), work = 0;
    for (k = 0; k < store->names.n && work < NEAREST_WORK; k++) {
        work += n * strlen(store->names.names[k]);
        uint32_t d = distance(name, store->names.names[k]);
        if (d < least) {
            least = d;
            nearest = store->names.names[k];
        }
    }
    return gw_fail(GW_ERR_ARGUMENT, "there is no key \"%s\": init_parameter makes one; the nearest there is is \"%s\"",
                   name, nearest);
}

/* Names are shown in sentences, logs and pages: no control characters. */
static gw_status check_name(const char *name)
{
    size_t length = strlen(name);
    if (length == 0 || length > GW_PS_MAX_NAME)
        return gw_fail(GW_ERR_ARGUMENT, "a key's name has %zu bytes; 1 to %d are possible", length, GW_PS_MAX_NAME);
    for (size_t i = 0; i < length; i++)
        if ((uint8_t)name[i] < ' ' || name[i] == 0x7F)
            return gw_fail(GW_ERR_ARGUMENT, "a key's name holds the control character 0x%02x", (uint8_t)name[i]);
    return GW_OK;
}

static gw_status make_room(struct gw_ps_store *store)
{
    if (store->names.n < store->capacity)
        return GW_OK;
    uint64_t capacity = store->capacity ? 2 * store->capacity : FIRST_KEYS;
    struct gw_ps_key **keys = gw_alloc(store->context, capacity, sizeof *keys);
    if (!keys)
        return GW_ERR_MEMORY;
    if (store->names.n)
        memcpy(keys, store->keys, store->names.n * sizeof *keys);
    gw_free(store->context, store->keys);
    store->keys = keys;
    store->capacity = capacity;
    return GW_OK;
}

/* ---- bytes ----------------------------------------------------------------------------------------------- */

static uint64_t held(const struct gw_ps_store *store)
{
    return atomic_load_explicit(store->options.total, memory_order_relaxed);
}

static bool has_room(const struct gw_ps_store *store, uint64_t more)
{
    return more <= store->options.max_bytes && held(store) <= store->options.max_bytes - more;
}

/* ---- rounds --------------------------------------------------------------------------------------------- */

void gw_ps_key_forget_results(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round)
{
    for (uint32_t i = 0; i < GW_PS_KEPT_RESULTS; i++)
        if (round->results[i].answer.value) {
            gw_ps_key_count(store, key, 0, round->results[i].answer.value->n_bytes);
            gw_ps_blob_give(round->results[i].answer.value);
            round->results[i].answer.value = NULL;
        }
    round->n_results = 0;
}

static void drop_push(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_blob **push)
{
    if (*push) {
        gw_ps_key_count(store, key, 0, (*push)->n_bytes);
        gw_ps_blob_give(*push);
        *push = NULL;
    }
}

static void clear_round(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round)
{
    for (uint32_t r = 0; round->pushes && round->refusals && r < store->options.n_workers; r++) {
        drop_push(store, key, &round->pushes[r]);
        round->refusals[r] = GW_PS_NOT_REFUSED;
    }
    gw_ps_key_forget_results(store, key, round);
    round->n_in = 0;
}

static void count_due(const struct gw_ps_store *store, struct gw_ps_key *key)
{
    key->n_due = 0;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        key->n_due += gw_ps_is_due(store, key, r);
}

/* Backup workers may be late, but not by more than one round: the pulls of that one can still be answered. */
static bool has_all(const struct gw_ps_store *store, const struct gw_ps_key *key)
{
    if (key->open.n_in == 0 || gw_ps_is_gathering(store) || key->n_due > store->options.backup)
        return false;
    uint32_t n_pending = 0;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        n_pending += gw_ps_is_pending(key, r);
    if (n_pending == key->open.n_in)
        return false;
    for (uint32_t r = 0; key->n_due > 0 && r < store->options.n_workers; r++)
        if (store->present[r] && key->pushed[r] + 1 < key->open.number)
            return false;
    return true;
}

gw_status gw_ps_key_finish(struct gw_ps_store *store, struct gw_ps_key *key)
{
    if (store->options.mode != GW_PS_SYNC)
        return GW_OK;
    count_due(store, key);
    if (!has_all(store, key))
        return GW_OK;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        if (gw_ps_is_pending(key, r)) /* of who has left, or is late */
            gw_ps_key_take_out(store, key, r);
    gw_status status = key->parameters ? gw_ps_parameters_finish(store, key) : GW_OK;
    if (status < 0) { /* no memory now: pulls try again, and tell who asked */
        store->options.woken(store->options.user, key);
        return status;
    }
    struct gw_ps_round *oldest = store->options.backup ? &key->before : &key->whole;
    clear_round(store, key, oldest);
    const struct gw_ps_round emptied = *oldest;
    if (store->options.backup)
        key->before = key->whole;
    key->whole = key->open;
    key->open = emptied;
    key->open.number = key->whole.number + 1;
    store->begun = true;
    store->rounds++;
    if (key->whole.began > 0)
        gw_ps_times_note(&store->round_times, gw_clock_seconds() - key->whole.began);
    key->open.began = 0;
    count_due(store, key);
    store->options.woken(store->options.user, key);
    return GW_OK;
}

void gw_ps_key_take_out(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank)
{
    if (!key->open.pushes[rank])
        return;
    drop_push(store, key, &key->open.pushes[rank]);
    key->open.refusals[rank] = GW_PS_NOT_REFUSED;
    key->open.n_in--;
}

void gw_ps_key_reopen(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t number)
{
    clear_round(store, key, &key->open);
    key->open.number = number;
}

/* ---- keys ----------------------------------------------------------------------------------------------- */

/* What a key takes before anything is pushed to it. */
static uint64_t empty_bytes(const struct gw_ps_store *store, const char *name)
{
    return sizeof(struct gw_ps_key) + strlen(name) +
           (store->options.backup ? 8ull : 6ull) * store->options.n_workers * sizeof(uint64_t);
}

void gw_ps_key_free(struct gw_ps_store *store, struct gw_ps_key *key)
{
    struct gw_ps_round *rounds[] = {&key->open, &key->whole, &key->before};
    if (key->name)
        atomic_fetch_sub(store->options.total, empty_bytes(store, key->name) + gw_ps_parameters_own_bytes(store, key));
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        clear_round(store, key, rounds[i]);
        gw_free(store->context, rounds[i]->pushes);
        gw_free(store->context, rounds[i]->refusals);
    }
    gw_codec_destroy(key->codec);
    if (key->name)
        gw_ps_key_count(store, key, 0, gw_ps_parameters_bytes(store, key));
    gw_ps_parameters_free(store, key);
    gw_ps_deposit_drop(store, key);
    gw_free(store->context, key->pushed);
    gw_free(store->context, key->taken);
    gw_free(store->context, key);
}

static gw_status new_round(struct gw_ps_store *store, struct gw_ps_round *round)
{
    uint32_t n = store->options.n_workers;
    round->pushes = gw_calloc(store->context, n, sizeof *round->pushes);
    round->refusals = gw_alloc(store->context, n, sizeof *round->refusals);
    if (!round->pushes || !round->refusals)
        return GW_ERR_MEMORY;
    for (uint32_t r = 0; r < n; r++)
        round->refusals[r] = GW_PS_NOT_REFUSED;
    return GW_OK;
}

static gw_status fill_key(struct gw_ps_store *store, struct gw_ps_key *key, const char *name, const char *codec,
                          const char *optimizer)
{
    GW_TRY(new_round(store, &key->open));
    GW_TRY(new_round(store, &key->whole));
    if (store->options.backup)
        GW_TRY(new_round(store, &key->before));
    key->open.number = 1;
    key->pushed = gw_calloc(store->context, store->options.n_workers, sizeof *key->pushed);
    key->taken = gw_calloc(store->context, store->options.n_workers, sizeof *key->taken);
    if (!key->pushed || !key->taken)
        return GW_ERR_MEMORY;
    count_due(store, key);
    if (codec[0])
        GW_TRY(gw_codec_parse(store->context, codec, &key->codec));
    return optimizer[0] ? gw_ps_parameters_init(store, key, name, optimizer) : GW_OK;
}

static gw_status new_key(struct gw_ps_store *store, const char *name, gw_ps_type type, const gw_ps_shape *shape,
                         uint64_t n_elems, const char *codec, const char *optimizer, struct gw_ps_key **out)
{
    struct gw_ps_key *key = gw_calloc(store->context, 1, sizeof *key);
    if (!key)
        return GW_ERR_MEMORY;
    key->type = type;
    key->shape = *shape;
    key->n_elems = n_elems;
    gw_status status = fill_key(store, key, name, codec, optimizer);
    if (status < 0)
        gw_ps_key_free(store, key);
    else
        *out = key;
    return status;
}

/* Whether it is the key that is there already. */
static gw_status compare_key(const struct gw_ps_key *key, gw_ps_type type, const gw_ps_shape *shape, const char *codec,
                             const char *optimizer)
{
    const char *own = key->codec ? gw_codec_canonical(key->codec) : "";
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
                           const char *codec, const char *optimizer)
{
    return gw_ps_store_init_part(store, name, type, shape, 1, codec, optimizer);
}

uint32_t gw_ps_key_parts(const struct gw_ps_key *key)
{
    return key->n_parts;
}

gw_status gw_ps_store_init_part(struct gw_ps_store *store, const char *name, gw_ps_type type, const gw_ps_shape *shape,
                                uint32_t n_parts, const char *codec, const char *optimizer)
{
    uint64_t n_elems;
    GW_TRY(check_name(name));
    if (!gw_ps_type_name(type))
        return gw_fail(GW_ERR_ARGUMENT, "the key \"%s\" is to have type number %u, which is none", name,
                       (unsigned)type);
    if (!gw_ps_shape_elems(shape, &n_elems))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the key \"%s\" is to have the shape %s; every dimension must be at least 1, and all together at most 2^48",
            name, gw_ps_shape_text(shape).text);
    uint64_t k = gw_ps_names_find(&store->names, name);
    if (k != GW_PS_NO_NAME)
        return compare_key(store->keys[k], type, shape, codec, optimizer);
    /* frames: as much as their floats */
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
    if (!has_room(store, empty_bytes(store, name)))
        return gw_fail(GW_ERR_CAPACITY,
                       "the key \"%s\" would take %" PRIu64 " bytes by itself, and the server holds %" PRIu64
                       " of at most %" PRIu64 " already (--max-bytes)",
                       name, empty_bytes(store, name), held(store), store->options.max_bytes);
    GW_TRY(make_room(store));
    struct gw_ps_key *key;
    GW_TRY(new_key(store, name, type, shape, n_elems, codec, optimizer, &key));
    gw_status status = gw_ps_names_add(&store->names, name);
    if (status < 0) {
        gw_ps_key_free(store, key);
        return status;
    }
    key->name = store->names.names[store->names.n - 1];
    key->n_parts = n_parts;
    store->keys[store->names.n - 1] = key;
    atomic_fetch_add(store->options.total, empty_bytes(store, name) + gw_ps_parameters_own_bytes(store, key));
    gw_ps_key_count(store, key, gw_ps_parameters_bytes(store, key), 0);
    gw_ps_store_tell(store, &(struct gw_ps_change){.kind = GW_PS_CHANGE_INIT,
                                                   .name = name,
                                                   .type = type,
                                                   .shape = shape,
                                                   .n_parts = n_parts,
                                                   .codec = codec,
                                                   .optimizer = optimizer});
    return GW_OK;
}

/* ---- push ------------------------------------------------------------------------------------------------ */

/* Frames of the worker's own, back to back, that have the key's elements. */
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
    if (rank == GW_PS_READER)
        return gw_fail(GW_ERR_ARGUMENT, "a push to \"%s\" comes from a reader, which is no worker: it may pull only",
                       key->name);
    if (rank >= store->options.n_workers)
        return gw_fail(GW_ERR_ARGUMENT, "a push to \"%s\" comes from rank %u; workers have the ranks 0 to %u",
                       key->name, rank, store->options.n_workers - 1);
    return GW_OK;
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
        nth > 0) /* it was taken; or its worker joins anew while it waits, and it is stored after all */
        return GW_OK;
    /* goes when this one is stored */
    const struct gw_ps_blob *before = store->options.mode == GW_PS_SYNC ? NULL : key->open.pushes[rank];
    const uint64_t gone = before ? before->n_bytes : 0;
    if (held(store) - gone > store->options.max_bytes) {   /* this value is part of what is held */
        gw_ps_key_forget_results(store, key, &key->whole); /* they can be made again */
        gw_ps_key_forget_results(store, key, &key->open);
    }
    if (held(store) - gone > store->options.max_bytes)
        return gw_fail(GW_ERR_CAPACITY,
                       "rank %u's push to \"%s\" has %zu bytes, and with them the server holds %" PRIu64
                       " of at most %" PRIu64 " (--max-bytes)",
                       rank, key->name, value->n_bytes, held(store), store->options.max_bytes);
    return GW_OK;
}

/* Whether the worker's nth push can be taken: GW_OK, GW_PS_WAIT; *taken: it was before. */
static gw_status may_push(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                          bool *taken)
{
    GW_TRY(check_rank(store, key, rank));
    *taken = nth <= key->taken[rank] && nth > 0;
    if (*taken)
        return GW_OK;
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
    const bool unset = key->parameters && !key->parameters->values;
    return unset || (store->options.mode == GW_PS_SYNC && nth > key->open.number) ? GW_PS_WAIT : GW_OK;
}

/* The value becomes the worker's in the open round. */
static void keep_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, struct gw_ps_blob *value,
                      uint64_t refusal)
{
    if (key->open.pushes[rank]) /* not GW_PS_SYNC: its last */
        gw_ps_key_take_out(store, key, rank);
    if (key->open.n_in++ == 0)
        key->open.began = gw_clock_seconds();
    key->open.pushes[rank] = gw_ps_blob_hold(value);
    key->open.refusals[rank] = refusal;
    gw_ps_key_count(store, key, value->n_bytes, 0);
    if (refusal != GW_PS_PENDING)
        key->latest = rank;
}

/* Not GW_PS_SYNC: something that counts was pushed. */
static void note_change(struct gw_ps_store *store, struct gw_ps_key *key)
{
    store->begun = store->begun || !gw_ps_is_gathering(store);
    gw_ps_key_forget_results(store, key, &key->open);
    key->open.number++;
    store->options.woken(store->options.user, key);
}

static gw_status put_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, struct gw_ps_blob *value,
                          double rate, uint64_t refusal)
{
    const bool sync = store->options.mode == GW_PS_SYNC, late = sync && key->pushed[rank] + 1 < key->open.number;
    if (key->parameters && !sync && refusal == GW_PS_NOT_REFUSED)
        GW_TRY(gw_ps_parameters_push(store, key, value, rate));
    if (!late) { /* a backup worker's round may have gone on without it */
        keep_push(store, key, rank, value, refusal);
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
        gw_ps_key_forget_results(store, key, &key->open); /* the push before is gone */
    else
        note_change(store, key);
    return GW_OK;
}

/* pending: GW_PS_PENDING or GW_PS_NOT_REFUSED. */
static gw_status take_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                           struct gw_ps_blob *value, double rate, uint64_t pending)
{
    bool taken;
    gw_status status = may_push(store, key, rank, nth, &taken);
    if (status != GW_OK || taken)
        return status;
    GW_TRY(put_push(store, key, rank, value, rate, pending));
    gw_ps_store_tell(store, &(struct gw_ps_change){.kind = GW_PS_CHANGE_PUSH,
                                                   .name = key->name,
                                                   .rank = rank,
                                                   .number = nth,
                                                   .refusal = pending == GW_PS_PENDING ? pending : 0,
                                                   .rate = rate,
                                                   .value = value});
    return GW_OK;
}

gw_status gw_ps_store_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                           struct gw_ps_blob *value, double rate)
{
    return take_push(store, key, rank, nth, value, rate, GW_PS_NOT_REFUSED);
}

gw_status gw_ps_store_push_pending(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                                   struct gw_ps_blob *value, double rate)
{
    if (!key->parameters)
        return gw_fail(GW_ERR_ARGUMENT, "a push to \"%s\" is to wait for a verdict, and the key has no optimizer",
                       key->name);
    return take_push(store, key, rank, nth, value, rate, GW_PS_PENDING);
}

/* The largest numbers have meanings of their own. */
static uint64_t refusal_of(uint64_t number)
{
    return number < GW_PS_PENDING ? number : GW_PS_PENDING - 1;
}

gw_status gw_ps_store_refuse(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                             uint64_t number)
{
    bool taken;
    gw_status status = may_push(store, key, rank, nth, &taken);
    if (status != GW_OK || taken)
        return status;
    struct gw_ps_blob *nothing = gw_ps_blob_new(store->context, store->options.total, NULL, 0);
    if (!nothing)
        return GW_ERR_MEMORY;
    status = put_push(store, key, rank, nothing, 0, refusal_of(number));
    gw_ps_blob_give(nothing);
    GW_TRY(status);
    gw_ps_store_tell(store, &(struct gw_ps_change){.kind = GW_PS_CHANGE_REFUSE,
                                                   .name = key->name,
                                                   .rank = rank,
                                                   .number = nth,
                                                   .refusal = number});
    return GW_OK;
}

/* Whether the key can take the verdict; *pending: it changes something. */
static gw_status check_verdict(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank,
                               uint64_t nth, bool *pending)
{
    GW_TRY(check_rank(store, key, rank));
    *pending = gw_ps_is_pending(key, rank);
    if (!store->present[rank])
        return gw_fail(GW_ERR_PEER, "rank %u was away too long: round %" PRIu64 " of \"%s\" goes on without it", rank,
                       nth, key->name);
    if (nth == 0 || key->pushed[rank] < nth || (*pending && key->pushed[rank] != nth))
        return gw_fail(GW_ERR_ORDER,
                       "rank %u gives the verdict on its push number %" PRIu64
                       " to \"%s\"; its last one is number %" PRIu64,
                       rank, nth, key->name, key->pushed[rank]);
    return GW_OK;
}

/* The push that the worker has pushed moves what it would have moved when it came, or nothing. */
static gw_status end_pending(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t refusal)
{
    struct gw_ps_blob **push = &key->open.pushes[rank];
    if (refusal != GW_PS_NOT_REFUSED) {
        struct gw_ps_blob *nothing = gw_ps_blob_new(store->context, store->options.total, NULL, 0);
        if (!nothing)
            return GW_ERR_MEMORY;
        drop_push(store, key, push);
        *push = nothing;
    } else if (store->options.mode != GW_PS_SYNC) {
        GW_TRY(gw_ps_parameters_push(store, key, *push, key->parameters->rates[rank]));
    }
    key->open.refusals[rank] = refusal == GW_PS_NOT_REFUSED ? refusal : refusal_of(refusal);
    key->latest = rank;
    if (store->options.mode == GW_PS_SYNC)
        gw_ps_key_finish(store, key);
    else
        note_change(store, key);
    return GW_OK;
}

gw_status gw_ps_store_judge(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                            uint64_t refusal)
{
    bool pending;
    GW_TRY(check_verdict(store, key, rank, nth, &pending));
    if (!pending)
        return GW_OK;
    GW_TRY(end_pending(store, key, rank, refusal));
    gw_ps_store_tell(store, &(struct gw_ps_change){.kind = GW_PS_CHANGE_VERDICT,
                                                   .name = key->name,
                                                   .rank = rank,
                                                   .number = nth,
                                                   .refusal = refusal});
    return GW_OK;
}

gw_status gw_ps_store_may_judge(const struct gw_ps_store *store, const char *prefix, uint32_t rank, uint64_t nth)
{
    bool pending, any = false;
    for (uint64_t k = 0; k < store->names.n; k++) {
        const struct gw_ps_key *key = store->keys[k];
        if (!key->parameters || strncmp(key->name, prefix, strlen(prefix)) != 0)
            continue;
        GW_TRY(check_verdict(store, key, rank, nth, &pending));
        any = true;
    }
    return any ? GW_OK
               : gw_fail(GW_ERR_ORDER,
                         "rank %u gives a verdict, and there is no key with an optimizer whose name begins with \"%s\"",
                         rank, prefix);
}

gw_status gw_ps_store_put(struct gw_ps_store *store, struct gw_ps_key *key, const struct gw_ps_blob *value)
{
    struct gw_ps_parameters *p = key->parameters;
    if (!p)
        return gw_fail(GW_ERR_ARGUMENT, "\"%s\" has no optimizer, and so no parameters to begin with", key->name);
    if (value->n_bytes != key->n_elems * sizeof(float))
        return gw_fail(GW_ERR_ARGUMENT, "parameters of \"%s\" have %zu bytes; float32 of shape %s takes %" PRIu64,
                       key->name, value->n_bytes, gw_ps_shape_text(&key->shape).text, key->n_elems * sizeof(float));
    if (p->values)
        return GW_OK;
    GW_TRY(gw_ps_parameters_admit_first(key, value));
    if (!has_room(store, 0)) /* these are part of what is held, and will be gone when their copy stays */
        return gw_fail(GW_ERR_CAPACITY,
                       "the parameters of \"%s\" have %zu bytes, and with them the server holds %" PRIu64
                       " of at most %" PRIu64 " (--max-bytes)",
                       key->name, value->n_bytes, held(store), store->options.max_bytes);
    void *copy = gw_alloc(store->context, value->n_bytes, 1); /* aligned, and nobody else's */
    if (!copy)
        return GW_ERR_MEMORY;
    memcpy(copy, value->bytes, value->n_bytes);
    p->values = gw_ps_blob_new(store->context, store->options.total, copy, value->n_bytes);
    if (!p->values)
        return GW_ERR_MEMORY;
    gw_ps_key_count(store, key, value->n_bytes, 0);
    store->options.woken(store->options.user, key);
    gw_ps_store_tell(store, &(struct gw_ps_change){.kind = GW_PS_CHANGE_PUT, .name = key->name, .value = value});
    return GW_OK;
}

uint64_t gw_ps_store_pushed(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank)
{
    return rank < store->options.n_workers ? key->pushed[rank] : 0;
}

uint64_t gw_ps_store_pushes(const struct gw_ps_store *store, uint32_t rank, uint64_t *behind)
{
    const uint64_t done = store->pushes[rank] + store->skipped[rank];
    *behind = store->present[rank] && store->foremost > done ? store->foremost - done : 0;
    return store->pushes[rank];
}

/* ---- pull ------------------------------------------------------------------------------------------------ */

static uint64_t fewest_pushes(const struct gw_ps_store *store, const struct gw_ps_key *key)
{
    uint64_t least = UINT64_MAX;
    if (gw_ps_is_gathering(store))
        return 0;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        if (store->present[r] && key->pushed[r] < least)
            least = key->pushed[r];
    return least;
}

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
    if (worker && gw_ps_is_pending(key, rank))
        return GW_PS_WAIT;
    if (worker && store->options.mode == GW_PS_STALE && fewest_pushes(store, key) + store->options.staleness < pushed)
        return GW_PS_WAIT;
    return GW_OK;
}

static gw_status make_result(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round,
                             gw_ps_method method, const float *scale, struct gw_ps_answer *answer)
{
    struct gw_ps_push *pushes = gw_alloc(store->context, round->n_in, sizeof *pushes);
    if (!pushes)
        return GW_ERR_MEMORY;
    uint32_t n = 0;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        if (gw_ps_counts(store, key, round, r) && round->refusals[r] == GW_PS_NOT_REFUSED &&
            (store->options.mode == GW_PS_SYNC || store->present[r]))
            pushes[n++] = (struct gw_ps_push){r, round->pushes[r]->bytes, round->pushes[r]->n_bytes};
    if (n == 0) {
        gw_free(store->context, pushes);
        return gw_fail(GW_ERR_ORDER, "all workers that have pushed to \"%s\" have left", key->name);
    }
    struct gw_ps_result result;
    gw_status status =
        gw_ps_reduce(store->context, method, key->type, &key->shape, pushes, n, key->codec, scale, &result);
    gw_free(store->context, pushes);
    if (status < 0)
        return status;
    *answer = (struct gw_ps_answer){.type = result.type, .shape = result.shape, .n_pushes = n};
    answer->value = gw_ps_blob_new(store->context, store->options.total, result.bytes, result.n_bytes);
    return answer->value ? GW_OK : GW_ERR_MEMORY;
}

static uint64_t least_refusal(const struct gw_ps_store *store, const struct gw_ps_key *key,
                              const struct gw_ps_round *round)
{
    uint64_t least = GW_PS_NOT_REFUSED;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        if (gw_ps_counts(store, key, round, r) && round->refusals[r] < least)
            least = round->refusals[r];
    return least;
}

/* Whether a round can be used: with GW_PS_SYNC every push, else one of them, and the asking worker's own. *number: why
 * not. */
static gw_status check_refusals(const struct gw_ps_store *store, const struct gw_ps_key *key,
                                const struct gw_ps_round *round, uint32_t rank, uint64_t *number)
{
    bool usable = false;
    for (uint32_t r = 0; r < store->options.n_workers; r++)
        usable = usable || (gw_ps_counts(store, key, round, r) && round->refusals[r] == GW_PS_NOT_REFUSED);
    *number = GW_PS_NOT_REFUSED;
    if (store->options.mode == GW_PS_SYNC || !usable)
        *number = least_refusal(store, key, round);
    else if (rank < store->options.n_workers)
        *number = round->refusals[rank];
    return *number == GW_PS_NOT_REFUSED
               ? GW_OK
               : gw_fail(GW_ERR_NONFINITE,
                         "a worker's push to \"%s\" in this round was empty: its value could not be used", key->name);
}

/* The result of a round that all its pushes are in for, from those that were made before where it is there. */
static gw_status result_of(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round,
                           gw_ps_method method, const struct gw_ps_key *scale_key, uint64_t scale_round,
                           const float *scale, struct gw_ps_answer *out)
{
    for (uint32_t i = 0; i < GW_PS_KEPT_RESULTS; i++) {
        struct gw_ps_kept *kept = &round->results[i];
        if (kept->answer.value && kept->method == method && kept->scale_key == scale_key &&
            kept->scale_round == scale_round) {
            *out = kept->answer;
            gw_ps_blob_hold(out->value);
            return GW_OK;
        }
    }
    const uint64_t needed = gw_ps_result_bytes(method, key->type, key->n_elems);
    if (!has_room(store, needed)) {
        gw_ps_key_forget_results(store, key, round); /* they can be made again */
        if (!has_room(store, needed))
            return gw_fail(GW_ERR_CAPACITY,
                           "the %s of \"%s\" takes %" PRIu64 " bytes, and the server holds %" PRIu64
                           " of at most %" PRIu64 " already (--max-bytes)",
                           gw_ps_method_name(method), key->name, needed, held(store), store->options.max_bytes);
    }
    GW_TRY(make_result(store, key, round, method, scale, out));
    struct gw_ps_kept *place = &round->results[round->n_results++ % GW_PS_KEPT_RESULTS];
    if (place->answer.value)
        gw_ps_key_count(store, key, 0, place->answer.value->n_bytes);
    gw_ps_blob_give(place->answer.value);
    *place = (struct gw_ps_kept){method, scale_key, scale_round, *out};
    gw_ps_blob_hold(out->value);
    gw_ps_key_count(store, key, out->value->n_bytes, 0);
    return GW_OK;
}

static gw_status latest_of(const struct gw_ps_key *key, struct gw_ps_answer *out)
{
    /* Where the newest push made its round whole, it is there and the open one is empty. */
    const bool in_open = key->open.pushes[key->latest] && !gw_ps_is_pending(key, key->latest);
    const struct gw_ps_round *round = in_open ? &key->open : &key->whole;
    struct gw_ps_blob *value = round->pushes[key->latest];
    if (value && round->refusals[key->latest] != GW_PS_NOT_REFUSED)
        return gw_fail(GW_ERR_NONFINITE, "the last push to \"%s\" was empty: rank %u's value could not be used",
                       key->name, key->latest);
    if (!value)
        return gw_fail(GW_ERR_ORDER, "nobody has pushed to \"%s\" yet", key->name);
    *out = (struct gw_ps_answer){.type = key->type,
                                 .shape = key->shape,
                                 .round = key->pushed[key->latest],
                                 .n_pushes = 1,
                                 .value = gw_ps_blob_hold(value)};
    return GW_OK;
}

static gw_status parameters_of(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank,
                               struct gw_ps_answer *out)
{
    struct gw_ps_round *round = store->options.mode == GW_PS_SYNC ? &key->whole : &key->open;
    uint64_t number = round->number;
    if (!key->parameters)
        return gw_fail(GW_ERR_ARGUMENT, "\"%s\" has no optimizer, and so no parameters that could be pulled",
                       key->name);
    if (!key->parameters->values)
        return GW_PS_WAIT;
    GW_TRY(gw_ps_key_finish(store, key)); /* that there was no memory for before */
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
    *out = (struct gw_ps_answer){.type = GW_PS_FLOAT32,
                                 .shape = key->shape,
                                 .round = number,
                                 .n_pushes = round->n_in,
                                 .value = gw_ps_blob_hold(key->parameters->values)};
    return GW_OK;
}

/* The scale key's round that goes with the key's round `number`. GW_PS_WAIT: *waits_for is behind. */
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

/* Rounds that went on without the worker are not its own: the open one is, once it has pushed again. */
static gw_status check_own_round(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank)
{
    if (store->options.mode != GW_PS_SYNC || rank >= store->options.n_workers || key->taken[rank] == 0 ||
        key->taken[rank] == key->pushed[rank])
        return GW_OK;
    return gw_fail(GW_ERR_PEER,
                   "rank %u was away too long: \"%s\" is beyond round %" PRIu64 ", which it last pushed to", rank,
                   key->name, key->taken[rank]);
}

gw_status gw_ps_store_pull(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, gw_ps_method method,
                           struct gw_ps_key *scale_key, struct gw_ps_answer *out, struct gw_ps_key **waits_for)
{
    struct gw_ps_round *round, *scale_round;
    uint64_t number, scale_number = 0;
    float scale = 1;
    *waits_for = key;
    if (method == GW_PS_PARAMETERS && !scale_key)
        return parameters_of(store, key, rank, out);
    GW_TRY(gw_ps_method_check(method, key->type));
    if (scale_key)
        GW_TRY(gw_ps_check_scale(&(struct gw_ps_scaling){key->name, key->type, method, scale_key->name, scale_key->type,
                                                         &scale_key->shape}));
    if (method == GW_PS_LATEST)
        return latest_of(key, out);
    GW_TRY(check_own_round(store, key, rank));
    gw_status status = round_for(store, key, rank, &round, &number);
    if (status == GW_OK && scale_key) {
        status = scale_round_for(store, key, number, rank, scale_key, &scale_round, waits_for);
        if (status == GW_OK) {
            struct gw_ps_answer answer;
            GW_TRY(check_refusals(store, scale_key, scale_round, rank, &out->round));
            GW_TRY(result_of(store, scale_key, scale_round, GW_PS_MAX, NULL, 0, NULL, &answer));
            memcpy(&scale, answer.value->bytes, sizeof scale);
            gw_ps_blob_give(answer.value);
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

/* ---- the store -------------------------------------------------------------------------------------------- */

gw_status gw_ps_store_create(gw_context *context, const struct gw_ps_store_options *options, struct gw_ps_store **out)
{
    if (options->n_workers == 0 || options->n_workers > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "a server for %u workers; 1 to %u are possible", options->n_workers,
                       (unsigned)GW_MAX_WORKERS);
    struct gw_ps_store *store = gw_calloc(context, 1, sizeof *store);
    if (!store)
        return GW_ERR_MEMORY;
    store->context = context;
    store->options = *options;
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
        gw_ps_key_free(store, store->keys[k]);
    gw_free(store->context, store->keys);
    gw_free(store->context, store->pushes);
    gw_free(store->context, store->skipped);
    gw_free(store->context, store->present);
    gw_ps_names_fini(&store->names);
    gw_free(store->context, store);
}

void gw_ps_store_watch(struct gw_ps_store *store, void (*changed)(void *user, const struct gw_ps_change *change),
                       void *user)
{
    store->changed = changed;
    store->changed_user = user;
}

void **gw_ps_key_waiting(struct gw_ps_key *key)
{
    return &key->waiting;
}

struct gw_ps_key_info gw_ps_key_info(const struct gw_ps_store *store, const struct gw_ps_key *key)
{
    struct gw_ps_key_info info = {
        .name = key->name, .type = key->type, .shape = key->shape, .rounds = key->whole.number, .bytes = key->bytes};
    info.optimized = key->parameters != NULL;
    info.unset = key->parameters && !key->parameters->values;
    info.n_missing = store->options.mode == GW_PS_SYNC && key->open.n_in ? key->n_due : 0;
    return info;
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
                                     .round_times = store->round_times};
}

struct gw_ps_key *gw_ps_store_key(const struct gw_ps_store *store, uint64_t nth)
{
    return nth < store->names.n ? store->keys[nth] : NULL;
}
