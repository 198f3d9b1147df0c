/* The inside of the store: keys, their rounds, and what is kept of these. */
#ifndef GW_PSERVER_STORE_STATE_H
#define GW_PSERVER_STORE_STATE_H

#include "pserver/protocol/names.h"
#include "pserver/store/store.h"

#include <gradwire/codec.h>

#define GW_PS_NOT_REFUSED UINT64_MAX
/* In the place of a refusal: the push counts once its verdict has come. */
#define GW_PS_PENDING (UINT64_MAX - 1)
#define GW_PS_KEPT_RESULTS 4 /* of one round: workers pull with the same method or two */

/* One result of a round, for the workers that ask later. */
struct gw_ps_kept {
    gw_ps_method method;
    const struct gw_ps_key *scale_key;
    uint64_t scale_round;
    struct gw_ps_answer answer; /* value NULL: none */
};

/* The pushes of all workers that count together. */
struct gw_ps_round {
    uint64_t number; /* 0: none yet */
    double began;    /* when its first push came; 0: not known */
    uint32_t n_in;
    struct gw_ps_blob **pushes; /* of each rank; NULL: not in */
    /* of each rank: why its push is empty; GW_PS_NOT_REFUSED: it is not; GW_PS_PENDING: nobody knows yet, and only in
     * the open round */
    uint64_t *refusals;
    struct gw_ps_kept results[GW_PS_KEPT_RESULTS];
    uint32_t n_results; /* made so far: the next one takes the place of the oldest */
};

struct gw_ps_parameters;

/* A value that is no round's (deposit.c). */
struct gw_ps_deposit {
    uint64_t version;
    struct gw_ps_blob *value; /* NULL: none */
};

struct gw_ps_key {
    const char *name; /* the table's; NULL: not there yet */
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t n_elems;
    uint32_t n_parts;                    /* servers that the key lies on, this one of them; 1: this one alone */
    gw_codec *codec;                     /* NULL: none was named */
    struct gw_ps_parameters *parameters; /* NULL: the key has no optimizer */
    /* of each rank the number of its last push, or of the last round that went on without it */
    uint64_t *pushed;
    /* of each rank the number of its last push that the server took. Smaller than pushed[rank] if rounds went on
     * without this rank meanwhile */
    uint64_t *taken;
    uint64_t foremost;              /* number of the foremost worker's last push */
    struct gw_ps_round whole, open; /* GW_PS_SYNC; otherwise all is in `open`, whose number counts changes */
    /* the one before `whole`, for workers that are late; only if there are backup workers */
    struct gw_ps_round before;
    uint32_t n_due;  /* GW_PS_SYNC: workers present that have not pushed to the open round */
    uint32_t latest; /* rank of the newest push */
    struct gw_ps_deposit deposit;
    uint64_t bytes;
    void *waiting;
};

struct gw_ps_store {
    gw_context *context;
    struct gw_ps_store_options options;
    struct gw_ps_names names;
    struct gw_ps_key **keys; /* by their names' numbers */
    uint64_t capacity;
    uint64_t bytes, rounds;
    struct gw_ps_times round_times;
    uint64_t *pushes;  /* by each rank, to all keys */
    uint64_t *skipped; /* of each rank: pushes that it was not there for */
    uint64_t foremost; /* of all keys, added up */
    bool *present;     /* of each rank: rounds wait for it */
    uint32_t n_present;
    bool begun; /* a round has been whole, or taken without waiting for others */
    void (*changed)(void *user, const struct gw_ps_change *change); /* NULL: nobody asked */
    void *changed_user;
};

/* Tells who watches. */
static inline void gw_ps_store_tell(const struct gw_ps_store *store, const struct gw_ps_change *change)
{
    if (store->changed)
        store->changed(store->changed_user, change);
}

/* Whether there is a push of the worker, and its verdict has not come. */
static inline bool gw_ps_is_pending(const struct gw_ps_key *key, uint32_t rank)
{
    return key->open.pushes[rank] && key->open.refusals[rank] == GW_PS_PENDING;
}

/* Whether the worker's push, or its verdict, is what the key's open round still waits for. */
static inline bool gw_ps_is_due(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank)
{
    return store->present[rank] && (key->pushed[rank] < key->open.number || gw_ps_is_pending(key, rank));
}

/* Whether the worker's push in that round counts in results: one without a verdict does not; nor, if not GW_PS_SYNC,
 * one of a run that is over. */
static inline bool gw_ps_counts(const struct gw_ps_store *store, const struct gw_ps_key *key,
                                const struct gw_ps_round *round, uint32_t rank)
{
    return round->pushes[rank] && round->refusals[rank] != GW_PS_PENDING &&
           (store->options.mode == GW_PS_SYNC || key->taken[rank] > 0);
}

/* Not all workers are there that the first round is to have. */
static inline bool gw_ps_is_gathering(const struct gw_ps_store *store)
{
    return !store->begun &&
           store->n_present < (store->options.min_workers ? store->options.min_workers : store->options.n_workers);
}

/* Where the key's open round has all pushes that it waits for, it is whole now and the next one opens. GW_ERR_MEMORY:
 * it could not move the key's parameters and stays open, until somebody asks again. */
gw_status gw_ps_key_finish(struct gw_ps_store *store, struct gw_ps_key *key);

/* How many pushes and verdicts the open round waits for is counted anew. */
void gw_ps_key_count_due(const struct gw_ps_store *store, struct gw_ps_key *key);

/* Gives up one push; NULL there: there is none. */
void gw_ps_push_drop(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_blob **push);

/* Empties a round: its pushes and its results. */
void gw_ps_round_clear(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round);

/* Takes a push back out of the open round. */
void gw_ps_key_take_out(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank);

/* Empties the open round, and gives it another number. */
void gw_ps_key_reopen(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t number);

/* Whether a value is one of the key's: of its length, or frames of the worker's own that have its elements. Errors:
 * GW_ERR_ARGUMENT, GW_ERR_FRAME_*. */
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

/* More or fewer bytes are kept for the key. */
static inline void gw_ps_key_count(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t more, uint64_t less)
{
    key->bytes = key->bytes + more - less;
    store->bytes = store->bytes + more - less;
}

/* Drops the results that are kept of a round; they can be made again. */
void gw_ps_key_forget_results(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round);

/* Forgets what was deposited there. */
void gw_ps_deposit_drop(struct gw_ps_store *store, struct gw_ps_key *key);

/* Frees a key and what it holds; the caller takes it out of the store's tables. */
void gw_ps_key_free(struct gw_ps_store *store, struct gw_ps_key *key);

#endif
