/* The inside of the store: keys, their rounds, and the results that are kept of these. */
#ifndef GW_PSERVER_STORE_STATE_H
#define GW_PSERVER_STORE_STATE_H

#include "pserver/protocol/names.h"
#include "pserver/store/store.h"

#include <gradwire/codec.h>

#define GW_PS_NOT_REFUSED UINT64_MAX
/* Takes the place of a refusal: the push counts only when its verdict has come. */
#define GW_PS_PENDING (UINT64_MAX - 1)
#define GW_PS_MOST_CHANGES 1024
#define GW_PS_CACHED_RESULTS 4 /* how many results are kept of a round: workers mostly pull with one or two methods */

/* One result of a round. It is kept for the workers that ask later. */
struct gw_ps_cached {
    gw_ps_method method;
    const struct gw_ps_key *scale_key;
    uint64_t scale_round;
    struct gw_ps_pulled pulled; /* if its value is NULL, there is none */
};

/* A round: the pushes of all workers that are reduced together. */
struct gw_ps_round {
    uint64_t number; /* 0: none yet */
    uint32_t place;  /* of its pushes in the folder: 0 to 2. Each of a key's rounds has another one */
    double began;    /* the time when its first push came; 0: not known */
    uint32_t n_in;
    struct gw_ps_blob **pushes; /* the push of each rank; NULL: it has not come */
    /* for each rank: the number with which it refused to push. GW_PS_NOT_REFUSED: it did not refuse. GW_PS_PENDING: its
     * verdict has not come yet; this is only in the open round */
    uint64_t *refusals;
    struct gw_ps_cached results[GW_PS_CACHED_RESULTS];
    uint32_t n_results; /* how many were made so far. The next one takes the place of the oldest */
};

struct gw_ps_parameters;

/* A value that belongs to no round (put.c). */
struct gw_ps_versioned {
    uint64_t version;
    struct gw_ps_blob *value; /* NULL: none */
};

struct gw_ps_key {
    const char *name; /* belongs to the table of names; NULL: the key is not in the table yet */
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t n_elems;
    uint32_t n_parts;                    /* on how many servers the key lies, this one included; 1: only on this one */
    gw_codec *codec;                     /* NULL: the key has no codec */
    struct gw_ps_parameters *parameters; /* NULL: the key has no optimizer */
    /* for each rank: the number of its last push, or of the last round that went on without it */
    uint64_t *pushed;
    /* for each rank: the number of its last push that the server took. It is smaller than pushed[rank] if rounds went
     * on without this rank since then */
    uint64_t *taken;
    uint64_t foremost; /* the number of the foremost worker's last push */
    /* with GW_PS_SYNC, `whole` is the last whole round. In other modes `open` has the last push of each worker, and its
     * number counts how often these pushes have changed */
    struct gw_ps_round whole, open;
    /* the round before `whole`, for workers that are late. It is used only if there are backup workers */
    struct gw_ps_round before;
    uint32_t n_due;  /* GW_PS_SYNC: how many workers the open round still waits for */
    uint32_t latest; /* rank of the newest push */
    struct gw_ps_versioned put;
    uint64_t bytes; /* how many are kept for the key */
    void *waiting;  /* gw_ps_key_waiting */
    uint32_t row;   /* its number in the folder: higher than that of all keys before it */
    bool changed;   /* since gw_ps_store_unchange */
};

struct gw_ps_store {
    gw_context *context;
    struct gw_ps_store_options options;
    struct gw_ps_names names;
    struct gw_ps_key **keys; /* by the number of their name */
    uint64_t capacity;
    uint64_t bytes, rounds;
    struct gw_ps_times round_times;
    uint64_t *pushes;  /* for each rank: how often it has pushed to all keys */
    uint64_t *skipped; /* for each rank: how many pushes it missed while it was away */
    uint64_t foremost; /* the sum of `foremost` of all keys */
    bool *present;     /* for each rank: true if rounds wait for it */
    uint32_t n_present;
    bool begun; /* a round has been whole; or, without rounds, a push has been taken */
    /* What has changed since gw_ps_store_unchange: anything; the keys, of which there is a list as long as there are
     * few; and whether keys were dropped. */
    bool changed, dropped;
    struct gw_ps_key *changes[GW_PS_MOST_CHANGES];
    uint32_t n_changes; /* more than GW_PS_MOST_CHANGES: look at all keys */
    uint32_t last_row;
};

/* Notes that a key has changed, and with it the store. */
static inline void gw_ps_key_change(struct gw_ps_store *store, struct gw_ps_key *key)
{
    store->changed = true;
    if (key->changed)
        return;
    key->changed = true;
    if (store->n_changes < GW_PS_MOST_CHANGES)
        store->changes[store->n_changes] = key;
    store->n_changes += store->n_changes <= GW_PS_MOST_CHANGES;
}

/* The same for all keys. */
static inline void gw_ps_store_change(struct gw_ps_store *store)
{
    store->changed = true;
    for (uint64_t k = 0; k < store->names.n; k++)
        gw_ps_key_change(store, store->keys[k]);
}

/* True if there is a push of the worker whose verdict has not come. */
static inline bool gw_ps_is_pending(const struct gw_ps_key *key, uint32_t rank)
{
    return key->open.pushes[rank] && key->open.refusals[rank] == GW_PS_PENDING;
}

/* True if the key's open round still waits for the worker's push, or for its verdict. */
static inline bool gw_ps_is_due(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank)
{
    return store->present[rank] && (key->pushed[rank] < key->open.number || gw_ps_is_pending(key, rank));
}

/* True if the worker's push in that round counts in results. A push whose verdict has not come does not count. In modes
 * other than GW_PS_SYNC, a push of a run that is over does not count either. */
static inline bool gw_ps_counts(const struct gw_ps_store *store, const struct gw_ps_key *key,
                                const struct gw_ps_round *round, uint32_t rank)
{
    return round->pushes[rank] && round->refusals[rank] != GW_PS_PENDING &&
           (store->options.mode == GW_PS_SYNC || key->taken[rank] > 0);
}

/* True if the first round still waits for workers to come. */
static inline bool gw_ps_is_gathering(const struct gw_ps_store *store)
{
    return !store->begun &&
           store->n_present < (store->options.min_workers ? store->options.min_workers : store->options.n_workers);
}

/* Looks whether the key's open round has all pushes that it waits for. If so, the round is whole now, and the next one
 * opens. GW_ERR_MEMORY: the round could not move the key's parameters. It stays open until somebody calls this again.
 */
gw_status gw_ps_key_finish(struct gw_ps_store *store, struct gw_ps_key *key);

/* Counts again how many pushes and verdicts the open round waits for. */
void gw_ps_key_count_due(const struct gw_ps_store *store, struct gw_ps_key *key);

/* Gives up one push. If *push is NULL, there is none, and it does nothing. */
void gw_ps_push_drop(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_blob **push);

/* Empties a round: its pushes and its results. */
void gw_ps_round_clear(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round);

/* Takes a worker's push out of the open round. */
void gw_ps_key_take_out(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank);

/* Empties the open round, and gives it another number. */
void gw_ps_key_reopen(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t number);

/* Checks that a value fits the key: it has the right length; or it is frames of this worker that have as many elements
 * as the key. Errors: GW_ERR_ARGUMENT, GW_ERR_FRAME_*. */
gw_status gw_ps_key_check_value(const struct gw_ps_key *key, uint32_t rank, const struct gw_ps_blob *value);

/* Bytes that count against max_bytes. */
static inline uint64_t gw_ps_store_held(const struct gw_ps_store *store)
{
    return atomic_load_explicit(store->options.total, memory_order_relaxed);
}

static inline bool gw_ps_store_has_room(const struct gw_ps_store *store, uint64_t more)
{
    return more <= store->options.max_bytes && gw_ps_store_held(store) <= store->options.max_bytes - more;
}

/* Counts `more` bytes more, and `less` bytes less, for the key. */
static inline void gw_ps_key_count(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t more, uint64_t less)
{
    key->bytes = key->bytes + more - less;
    store->bytes = store->bytes + more - less;
}

/* Drops the results that are kept of a round. They can be made again. */
void gw_ps_key_forget_results(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round);

/* Forgets what was put there. */
void gw_ps_put_drop(struct gw_ps_store *store, struct gw_ps_key *key);

/* Frees a key and all that it holds. The caller takes it out of the store's tables. */
void gw_ps_key_free(struct gw_ps_store *store, struct gw_ps_key *key);

#endif
