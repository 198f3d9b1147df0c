/* The store: keys and their rounds, without any network. Only the server's one thread works on it. Nothing here waits.
 * If a request must wait, the call returns GW_PS_WAIT. The caller asks again when `woken` names the key. */
#ifndef GW_PSERVER_STORE_STORE_H
#define GW_PSERVER_STORE_STORE_H

#include "pserver/store/times.h"
#include "pserver/store/blob.h"
#include "pserver/protocol/value.h"

/* The request is not done yet: ask again when the store says that the key has changed. */
#define GW_PS_WAIT ((gw_status)1)

struct gw_ps_store;
struct gw_ps_key;

struct gw_ps_store_options {
    uint32_t n_workers;
    gw_ps_mode mode;
    uint32_t staleness; /* GW_PS_STALE only */
    /* how many workers must be present before the first round can be whole. 0: all must, and all count as present from
     * the beginning */
    uint32_t min_workers;
    uint32_t backup; /* GW_PS_SYNC: a round is whole when all present workers except this many have pushed */
    uint64_t max_keys;
    uint64_t max_key_bytes; /* the most bytes of one value */
    uint64_t max_bytes;     /* the most bytes in *total */
    /* counts the bytes of all values: those that are kept, that wait, and that are on their way to a client */
    atomic_uint_least64_t *total;
    void (*woken)(void *user, struct gw_ps_key *key); /* requests that waited for the key may go on */
    void *user;
};

gw_status gw_ps_store_create(gw_context *context, const struct gw_ps_store_options *options, struct gw_ps_store **out);
void gw_ps_store_destroy(struct gw_ps_store *store);

/* True if anything has changed since the last gw_ps_store_unchange. */
bool gw_ps_store_has_changed(const struct gw_ps_store *store);
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

/* A pointer that the store keeps for the caller: the queue of requests that wait for the key. */
void **gw_ps_key_waiting(struct gw_ps_key *key);

/* Checks the nth push of worker `rank`: may it be stored, now or later? The server asks once, when the push comes.
 * Errors: GW_ERR_ARGUMENT (it is no worker's rank; the length is not that of the key), GW_ERR_FRAME_* (it is no frame,
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
 * GW_ERR_ARGUMENT (it is no worker's rank), GW_ERR_PEER (the worker was left out meanwhile: its round went on without
 * it). In modes without rounds also GW_ERR_MEMORY and GW_ERR_FRAME_*, if the push cannot move the parameters.
 *
 * pending: the push counts only when its verdict has come (gw_ps_store_judge), and the round waits for that. If the
 * worker is left out before, or the round goes on without it, the push is dropped. Further errors: GW_ERR_ARGUMENT (the
 * key has no optimizer), GW_ERR_ORDER (without rounds: the verdict of the push before is missing). */
gw_status gw_ps_store_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                           struct gw_ps_blob *value, double rate, bool pending);

/* Takes the verdict of worker `rank` on its nth push to the key. refusal UINT64_MAX: the push counts now. Another
 * number: the worker refuses with that number, and the push does not count. If the push is there and is not pending,
 * nothing changes: the verdict came before, or the round has gone on. Errors: GW_ERR_ARGUMENT (it is no worker's rank),
 * GW_ERR_PEER (the worker was left out), GW_ERR_ORDER (the worker has not pushed so often, or a push with another
 * number is pending), GW_ERR_MEMORY. In modes without rounds also GW_ERR_FRAME_*, if the push cannot move the
 * parameters. After an error nothing has changed. */
gw_status gw_ps_store_judge(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                            uint64_t refusal);

/* Checks that the worker can give its verdict on its nth push to all keys that begin with the prefix and have an
 * optimizer. It returns what gw_ps_store_judge would return for them. GW_ERR_ORDER also if there is no such key. */
gw_status gw_ps_store_may_judge(const struct gw_ps_store *store, const char *prefix, uint32_t rank, uint64_t nth);

/* Takes the place of a push: the worker refuses. It has no value that can be used, and says why by a number. Pulls over
 * the round then fail with GW_ERR_NONFINITE, and gw_ps_pulled.round is the least such number of all workers. With
 * GW_PS_STALE and GW_PS_ASYNC only pulls of the worker itself fail, until it pushes again. Pulls of other workers leave
 * it out. */
gw_status gw_ps_store_refuse(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                             uint64_t number);

/* How often the worker has pushed to the key; 0 if it is no worker. */
uint64_t gw_ps_store_pushed(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank);

/* How often the worker has pushed to all keys. *behind: how many pushes it is behind the foremost worker of each key,
 * summed over all keys. */
uint64_t gw_ps_store_pushes(const struct gw_ps_store *store, uint32_t rank, uint64_t *behind);

struct gw_ps_pulled {
    gw_ps_type type;
    gw_ps_shape shape;
    /* the round of the pushes that the value was made of. GW_PS_ASYNC and GW_PS_STALE: the number of the asking
     * worker's last push */
    uint64_t round;
    uint32_t n_pushes;
    struct gw_ps_blob *value; /* the caller has one hold */
};

/* Answers a pull of `rank`. With GW_PS_PARAMETERS the answer is the parameters. A worker gets them as its last push's
 * round has made them. A worker that has not pushed, and a reader, get them as they are now. With other methods it
 * reduces the pushes of one round: that of the worker's last push, or for a reader the last whole round. (Without
 * rounds it reduces the last push of each worker.) The pushes of scale_key (NULL: none) are of the same round. The
 * store keeps results for the other workers. GW_PS_WAIT: pushes are missing; *waits_for is the key to wait for. Errors:
 * GW_ERR_ORDER (this worker has not pushed yet, or nobody has; the scale key is in another round), GW_ERR_ARGUMENT,
 * GW_ERR_CAPACITY, GW_ERR_MEMORY and those of gw_ps_reduce. */
gw_status gw_ps_store_pull(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, gw_ps_method method,
                           struct gw_ps_key *scale_key, struct gw_ps_pulled *out, struct gw_ps_key **waits_for);

/* Puts a value that belongs to no round. It has the key's type and shape. The store takes a hold of its own. If a value
 * of this version or a higher one is there already, nothing changes. Errors: GW_ERR_ARGUMENT (another length; a key of
 * frames or with an optimizer), GW_ERR_CAPACITY. */
gw_status gw_ps_store_put(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t version, struct gw_ps_blob *value);

/* The value that was put there; its version is out->round. GW_PS_WAIT: there is none of version `least` or higher.
 * Errors: GW_ERR_ARGUMENT. */
gw_status gw_ps_store_get(const struct gw_ps_key *key, uint64_t least, struct gw_ps_pulled *out);

struct gw_ps_key_info {
    const char *name;
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t n_elems;
    uint32_t n_parts;   /* on how many servers the key lies */
    uint64_t rounds;    /* how many rounds have been whole */
    uint64_t bytes;     /* how many bytes are kept for it */
    bool unset;         /* it has an optimizer and no parameters yet */
    bool optimized;     /* it has an optimizer */
    uint32_t n_missing; /* how many workers the open round waits for; 0 until somebody has pushed to it */
};
struct gw_ps_key_info gw_ps_key_info(const struct gw_ps_store *store, const struct gw_ps_key *key);

/* A request of worker `asker` waits for the key. True if worker `rank` is one of those that it waits for. */
bool gw_ps_key_misses(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t asker, uint32_t rank);

struct gw_ps_store_info {
    uint64_t n_keys, bytes, rounds;
    uint32_t n_present; /* how many workers rounds wait for */
    bool has_begun;     /* a round has been whole since the store was made, or since its keys were dropped */
    struct gw_ps_times round_times; /* GW_PS_SYNC: from a round's first push until it is whole */
};
struct gw_ps_store_info gw_ps_store_info(const struct gw_ps_store *store);

/* ---- who takes part (presence.c) -------------------------------------------------------------------------- */

/* Rounds wait for worker `rank` from now on. In keys whose names begin with `prefix` ("": all keys) it takes part from
 * round `from` on (0: the open one). If it has a push in round `from` already, that is taken out. In other keys it
 * takes part from the open round on, or from the next one if it has pushed to the open one. Errors: GW_ERR_ARGUMENT (it
 * is no worker's rank), GW_ERR_ORDER (GW_PS_SYNC: a key has gone on beyond round `from`; nothing has changed). */
gw_status gw_ps_store_enter(struct gw_ps_store *store, uint32_t rank, const char *prefix, uint64_t from);

/* Rounds do not wait for the worker any more. Its pushes in open rounds stay there. */
void gw_ps_store_leave(struct gw_ps_store *store, uint32_t rank);

bool gw_ps_store_is_present(const struct gw_ps_store *store, uint32_t rank);

/* True if a key that begins with the prefix has an optimizer and parameters. */
bool gw_ps_store_keeps_parameters(const struct gw_ps_store *store, const char *prefix);

/* The largest number of an open round of keys that begin with the prefix; 1 if there are none. In modes other than
 * GW_PS_SYNC: the largest number of a next push. */
uint64_t gw_ps_store_next_round(const struct gw_ps_store *store, const char *prefix);

/* Empties the open round of all keys that begin with the prefix, and gives it the number `number`. Call it after all
 * workers have left: the next ones begin with that round. It waits for min_workers, as the first one did. */
void gw_ps_store_skip_to(struct gw_ps_store *store, const char *prefix, uint64_t number);

/* Ends the run of all keys that do not begin with the prefix. The next run begins with new workers. Pushes in open
 * rounds are dropped. Every worker's next push to a key then goes to the key's open round. In modes without rounds,
 * earlier pushes count in no result except "latest". Whole rounds, values that were put, and parameters stay. */
void gw_ps_store_begin_anew(struct gw_ps_store *store, const char *except);

/* Drops all keys that begin with the prefix. No request may wait for them. GW_ERR_MEMORY: nothing has changed. */
gw_status gw_ps_store_drop(struct gw_ps_store *store, const char *prefix);

/* ----------------------------------------------------------------------------------------------------------- */

/* The nth key, in the order in which keys were made, from 0. NULL after the last. */
struct gw_ps_key *gw_ps_store_key(const struct gw_ps_store *store, uint64_t nth);

#endif
