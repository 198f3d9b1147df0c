/* The store: keys and their rounds, without any network. Only the server's one thread works on it. Nothing here waits.
 * If a request must wait, the call returns GW_PS_WAIT. The caller asks again when `woken` names the key. */
#ifndef GW_PSERVER_STORE_STORE_H
#define GW_PSERVER_STORE_STORE_H

#include "pserver/protocol/message.h"
#include "pserver/protocol/names.h"
#include "pserver/store/blob.h"
#include "pserver/store/reduce.h"
#include "pserver/store/times.h"

#include <gradwire/codec.h>

#include <inttypes.h>
#include <sys/queue.h>

/* The request is not done yet: ask again when the store says that the key has changed. */
#define GW_PS_WAIT ((gw_status)1)

struct gw_ps_key;
struct gw_ps_parameters;
struct gw_ps_waiting;

/* ---- what it holds ------------------------------------------------------------------------------------------ */

/* Takes the place of a refusal: the push counts only when its verdict has come. */
#define GW_PS_PENDING (UINT64_MAX - 1)
#define GW_PS_CACHED_RESULTS 4 /* how many results are kept of a round: workers mostly pull with one or two methods */

struct gw_ps_pulled {
    gw_ps_type type;
    gw_ps_shape shape;
    /* the round of the pushes that the value was made of. GW_PS_ASYNC and GW_PS_STALE: the number of the asking
     * worker's last push */
    uint64_t round;
    uint32_t n_pushes;
    struct gw_ps_blob *value; /* the caller has one hold */
};

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

struct gw_ps_key {
    char *name; /* comes first, for the table of names */
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
    uint64_t foremost;    /* the number of the foremost worker's last push */
    uint64_t began_after; /* pushes up to this number belong to earlier runs */
    /* with GW_PS_SYNC, `whole` is the last whole round. In other modes `open` has the last push of each worker, and its
     * number counts how often these pushes have changed */
    struct gw_ps_round whole, open;
    /* the round before `whole`, for workers that are late. It is used only if there are backup workers */
    struct gw_ps_round before;
    uint32_t n_due;         /* GW_PS_SYNC: how many workers the open round still waits for */
    uint32_t latest;        /* rank of the newest push */
    struct gw_ps_blob *put; /* a value that belongs to no round (put.c); NULL: none */
    uint64_t put_version;
    uint64_t bytes;                     /* how many are kept for the key */
    LIST_HEAD(, gw_ps_waiting) waiting; /* the server's: the queue of requests that wait for the key */
    bool is_woken;                      /* the server's: these requests are to be tried again */
    LIST_ENTRY(gw_ps_key) woken;        /* if so */
    /* its number in the folder: higher than that of all keys before it. 0: the key is not in the table yet */
    uint32_t row;
    bool is_changed;               /* since gw_ps_store_unchange */
    LIST_ENTRY(gw_ps_key) changed; /* if so */
};

/* What others are shown of a store. */
struct gw_ps_store_info {
    uint64_t bytes, rounds;
    uint32_t n_present; /* how many workers rounds wait for */
    /* a round has been whole; or, without rounds, a push has been taken: since the store was made, or since its keys
     * were dropped */
    bool has_begun;
    struct gw_ps_times round_times; /* GW_PS_SYNC: from a round's first push until it is whole */
};

struct gw_ps_store {
    gw_context *context;
    gw_ps_server_options options;
    /* counts the bytes of all values: those that are kept, that wait, and that are on their way to a client. At most
     * max_bytes */
    uint64_t *total;
    void (*woken)(void *user, struct gw_ps_key *key); /* requests that waited for the key may go on */
    void *user;
    struct gw_ps_names names; /* of its keys */
    struct gw_ps_store_info info;
    /* for each rank, in one block: how often it has pushed to all keys; how many pushes it missed while it was away;
     * true if rounds wait for it */
    uint64_t *pushes, *skipped;
    bool *present;
    uint64_t foremost;     /* the sum of `foremost` of all keys */
    bool changed, dropped; /* since gw_ps_store_unchange: anything has changed; keys were dropped */
    LIST_HEAD(, gw_ps_key) changed_keys;
    uint32_t last_row;
};

/* The nth key, in the order in which keys were made, from 0. NULL after the last. */
static inline struct gw_ps_key *gw_ps_store_key(const struct gw_ps_store *store, uint64_t nth)
{
    return nth < store->names.n ? store->names.all[nth] : NULL;
}

/* ---- what the server does with it ---------------------------------------------------------------------------- */

/* Makes a store. options: those of its server, with their defaults filled in. If min_workers is 0, all workers count as
 * present from the beginning. */
gw_status gw_ps_store_create(gw_context *context, const gw_ps_server_options *options, uint64_t *total,
                             void (*woken)(void *user, struct gw_ps_key *key), void *user, struct gw_ps_store **out);
void gw_ps_store_destroy(struct gw_ps_store *store);

/* Forgets what has changed so far. */
void gw_ps_store_unchange(struct gw_ps_store *store);

/* Makes a key, or this server's part of a key that lies on n_parts servers; `shape` is that of the part. If the key
 * exists with the same type, shape, codec and optimizer, it does nothing. codec: a specification; averages of frames
 * follow its options; "": the defaults. optimizer: a specification (optimizer/optimizer.h); "": none, and the key has
 * no parameters. Errors: GW_ERR_ARGUMENT (the name is not legal; type, shape, codec or optimizer differ; the type
 * allows no optimizer), GW_ERR_SPEC, GW_ERR_CAPACITY (a limit), GW_ERR_MEMORY. */
gw_status gw_ps_store_init(struct gw_ps_store *store, const char *name, gw_ps_type type, const gw_ps_shape *shape,
                           uint32_t n_parts, const char *codec, const char *optimizer);

/* The key of that name. GW_ERR_ARGUMENT: there is none; the sentence says which existing name is nearest. */
gw_status gw_ps_store_find(struct gw_ps_store *store, const char *name, struct gw_ps_key **out);

/* Checks the nth push of worker `rank`: may it be stored, now or later? The server asks once, when the push comes.
 * Errors: GW_ERR_ARGUMENT (a reader's; the length is not that of the key), GW_ERR_FRAME_* (it is no frame,
 * or not of this key or rank), GW_ERR_CAPACITY. */
gw_status gw_ps_store_admit(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                            const struct gw_ps_blob *value);

/* Puts the first parameters of a key with an optimizer: a float32 for each element. If the key has parameters already,
 * the call does nothing. Errors: GW_ERR_ARGUMENT (the key has no optimizer; another length), GW_ERR_CAPACITY,
 * GW_ERR_MEMORY. */
gw_status gw_ps_store_put_first(struct gw_ps_store *store, struct gw_ps_key *key, const struct gw_ps_blob *value);

/* Stores the nth push of worker `rank` to the key, counted from 1. gw_ps_store_admit must have accepted the value. The
 * store takes a hold of its own on `value`. If the push is there already (its acknowledgement was lost), nothing
 * changes. rate: the learning rate of an optimizer; 0: the key's own. GW_PS_WAIT: the worker's last push still waits
 * for its round, or the optimizer waits for parameters. Errors: GW_ERR_ORDER (pushes before the nth are missing),
 * GW_ERR_ARGUMENT (a reader's), GW_ERR_PEER (the worker was left out meanwhile: its round went on without
 * it). In modes without rounds also GW_ERR_MEMORY and GW_ERR_FRAME_*, if the push cannot move the parameters.
 *
 * refusal GW_PS_PENDING: the push counts only when its verdict has come (gw_ps_store_take_verdict), and the round waits
 * for that. If the worker is left out before, or the round goes on without it, the push is dropped. Further errors:
 * GW_ERR_ARGUMENT (the key gets no verdicts), GW_ERR_ORDER (without rounds: the verdict of the push before is missing).
 *
 * value NULL: the worker has no value that can be used, and says why by the number `refusal`. Pulls over the round then
 * fail with GW_ERR_NONFINITE, and gw_ps_pulled.round is the least such number of all workers. Without rounds only pulls
 * of the worker itself fail, until it pushes again. Pulls of other workers leave it out. */
gw_status gw_ps_store_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                           struct gw_ps_blob *value, double rate, uint64_t refusal);

/* Takes the verdict of worker `rank` on its nth push to each key of exchanges that has an optimizer. refusal
 * GW_PS_NOT_REFUSED: the pushes count now. Another number: the worker refuses with that number, and they do not count.
 * Where the push is there and is not pending, nothing changes: the verdict came before, or the round has gone on.
 * Errors: GW_ERR_ARGUMENT (a reader's), GW_ERR_PEER (the worker was left out), GW_ERR_ORDER (there is no such key, the
 * worker has not pushed so often, or a push with another number is pending): no key has the verdict. GW_ERR_MEMORY, and
 * in modes without rounds GW_ERR_FRAME_*, if a push cannot move the parameters: some keys may have it. If it comes
 * again, the others get it. */
gw_status gw_ps_store_take_verdict(struct gw_ps_store *store, uint32_t rank, uint64_t nth, uint64_t refusal);

/* How often the worker has pushed to the key; 0 if it is no worker. */
uint64_t gw_ps_store_pushed(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank);

/* True if the worker cannot push again with the number that gw_ps_store_pushed gives: that round went on without it, or
 * belongs to an earlier run. */
bool gw_ps_store_is_past(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank);

/* The worker's next push has a number above `number`: on another server, on which the key also lies, it cannot have a
 * lower one. So rounds up to that number go on without it. */
void gw_ps_store_skip(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t number);

/* How many pushes the worker is behind the foremost worker of each key, summed over all keys. */
uint64_t gw_ps_store_behind(const struct gw_ps_store *store, uint32_t rank);

/* Answers a pull of `rank`. With GW_PS_PARAMETERS a worker gets them as its last push's round has made them. A worker
 * that has not pushed, and a reader, get them as they are now. Other methods reduce the round of the worker's last
 * push, or for a reader the last whole round. (Without rounds they reduce the last push of each worker.) The pushes of
 * scale_key (NULL: none) are of the same round. GW_PS_WAIT: pushes are missing; *waits_for is the key to wait for.
 * Errors: GW_ERR_ORDER (this worker has not pushed yet, or nobody has; the scale key is in another round),
 * GW_ERR_ARGUMENT, GW_ERR_CAPACITY, GW_ERR_MEMORY and those of gw_ps_reduce. */
gw_status gw_ps_store_pull(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, gw_ps_method method,
                           struct gw_ps_key *scale_key, struct gw_ps_pulled *out, struct gw_ps_key **waits_for);

/* Puts a value that belongs to no round. It has the key's type and shape. The store takes a hold of its own. If a value
 * of this version or a higher one is there already, nothing changes. Errors: GW_ERR_ARGUMENT (another length; a key of
 * frames or with an optimizer), GW_ERR_CAPACITY. */
gw_status gw_ps_store_put(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t version, struct gw_ps_blob *value);

/* The value that was put there; its version is out->round. GW_PS_WAIT: there is none of version `least` or higher.
 * Errors: GW_ERR_ARGUMENT. */
gw_status gw_ps_store_get(const struct gw_ps_key *key, uint64_t least, struct gw_ps_pulled *out);

/* A request of worker `asker` waits for the key. True if worker `rank` is one of those that it waits for. */
bool gw_ps_key_misses(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t asker, uint32_t rank);

/* ---- who takes part (presence.c) -------------------------------------------------------------------------- */

/* Rounds wait for worker `rank` from now on. In keys of exchanges it takes part from round `from` on (0: as in other
 * keys). If it has a push in round `from` already, that is taken out. In other keys it takes part from the open round
 * on, or from the next one if it has pushed to the open one. Errors: GW_ERR_ORDER (GW_PS_SYNC: a key has gone on beyond
 * round `from`; nothing has changed). */
gw_status gw_ps_store_enter(struct gw_ps_store *store, uint32_t rank, uint64_t from);

/* Rounds do not wait for the worker any more. Its pushes in open rounds stay there. */
void gw_ps_store_leave(struct gw_ps_store *store, uint32_t rank);

/* True if a key of an exchange has an optimizer and parameters. */
bool gw_ps_store_keeps_parameters(const struct gw_ps_store *store);

/* The largest number of an open round of keys of exchanges, or of all others; 1 if there are none. In modes other than
 * GW_PS_SYNC: the largest number of a next push. */
uint64_t gw_ps_store_next_round(const struct gw_ps_store *store, bool of_exchange);

/* Empties the open round of all keys of exchanges, and gives it the number `number`. Call it after all workers have
 * left: the next ones begin with that round. It waits for min_workers, as the first one did. */
void gw_ps_store_skip_to(struct gw_ps_store *store, uint64_t number);

/* Ends the run of all keys that are of no exchange. The next run begins with new workers. Pushes in open rounds are
 * dropped. Every worker's next push to a key then goes to the key's open round, which has the same number in all keys.
 * In modes without rounds, earlier pushes count in no result except "latest". Whole rounds, values that were put, and
 * parameters stay. */
void gw_ps_store_begin_anew(struct gw_ps_store *store);

/* Drops all keys of exchanges. No request may wait for them. */
void gw_ps_store_drop(struct gw_ps_store *store);

/* ---- what its files share ------------------------------------------------------------------------------------ */

/* Notes that a key has changed, and with it the store. */
static inline void gw_ps_key_change(struct gw_ps_store *store, struct gw_ps_key *key)
{
    store->changed = true;
    if (!key->is_changed)
        LIST_INSERT_HEAD(&store->changed_keys, key, changed);
    key->is_changed = true;
}

/* The same for all keys. */
static inline void gw_ps_store_change(struct gw_ps_store *store)
{
    store->changed = true;
    for (uint64_t k = 0; k < store->names.n; k++)
        gw_ps_key_change(store, gw_ps_store_key(store, k));
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

/* True if the worker has pushed to the key in an earlier run, and not in this one. */
static inline bool gw_ps_is_of_before(const struct gw_ps_key *key, uint32_t rank)
{
    return key->taken[rank] > 0 && key->taken[rank] <= key->began_after;
}

/* How many workers the open round waits for; 0 until somebody has pushed to it. */
static inline uint32_t gw_ps_n_missing(const struct gw_ps_store *store, const struct gw_ps_key *key)
{
    return store->options.mode == GW_PS_SYNC && key->open.n_in ? key->n_due : 0;
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
    return !store->info.has_begun &&
           store->info.n_present < (store->options.min_workers ? store->options.min_workers : store->options.n_workers);
}

/* Looks whether the key's open round has all pushes that it waits for. If so, the round is whole now, and the next one
 * opens. GW_ERR_MEMORY: the round could not move the key's parameters. It stays open until this is called again. */
gw_status gw_ps_key_finish(struct gw_ps_store *store, struct gw_ps_key *key);

/* The fewest pushes of a worker that takes part. UINT64_MAX: none does. */
uint64_t gw_ps_fewest_pushes(const struct gw_ps_store *store, const struct gw_ps_key *key);

/* Counts again how many pushes and verdicts the open round waits for. */
void gw_ps_key_count_due(const struct gw_ps_store *store, struct gw_ps_key *key);

/* Reduces the pushes of a round that count; without rounds, those of workers that take part. *n_pushes: how many these
 * are. Errors: GW_ERR_ORDER (none is left), GW_ERR_MEMORY, and those of gw_ps_reduce. */
gw_status gw_ps_round_reduce(const struct gw_ps_store *store, const struct gw_ps_key *key,
                             const struct gw_ps_round *round, gw_ps_method method, const float *scale,
                             struct gw_ps_result *out, uint32_t *n_pushes);

/* Empties a round: its pushes and its results. */
void gw_ps_round_clear(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round);

/* Takes a worker's push out of the open round. */
void gw_ps_key_take_out(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank);

/* Checks that a value fits the key: it has the right length; or it is frames of this worker that have as many elements
 * as the key. Errors: GW_ERR_ARGUMENT, GW_ERR_FRAME_*. */
gw_status gw_ps_key_check_value(const struct gw_ps_key *key, uint32_t rank, const struct gw_ps_blob *value);

static inline bool gw_ps_store_has_room(const struct gw_ps_store *store, uint64_t more)
{
    return more <= store->options.max_bytes && *store->total <= store->options.max_bytes - more;
}

/* Makes the error that there is none for so many bytes; they may be counted already. what: as in "a push to". */
static inline gw_status gw_ps_no_room(const struct gw_ps_store *store, const char *what, const char *key,
                                      uint64_t n_bytes)
{
    return gw_fail(GW_ERR_CAPACITY,
                   "there is no room for %s \"%s\" of %" PRIu64 " bytes: the server holds %" PRIu64
                   " of at most %" PRIu64 " (--max-bytes)",
                   what, key, n_bytes, *store->total, store->options.max_bytes);
}

/* Counts `more` bytes more, and `less` bytes less, for the key. */
static inline void gw_ps_key_count(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t more, uint64_t less)
{
    key->bytes = key->bytes + more - less;
    store->info.bytes = store->info.bytes + more - less;
}

/* Gives up one of a key's values. If *value is NULL, there is none, and it does nothing. */
static inline void gw_ps_value_drop(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_blob **value)
{
    gw_ps_key_count(store, key, 0, *value ? (*value)->n_bytes : 0);
    gw_ps_blob_give(*value);
    *value = NULL;
}

/* Drops the results that are kept of a round. They can be made again. */
void gw_ps_key_forget_results(struct gw_ps_store *store, struct gw_ps_key *key, struct gw_ps_round *round);

/* Frees a key and all that it holds. The caller takes it out of the store's tables. */
void gw_ps_key_free(struct gw_ps_store *store, struct gw_ps_key *key);

#endif
