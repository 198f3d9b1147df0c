/* Keys and their rounds, without any network: what the server's one thread works on. Nothing here waits. A request
 * that must wait is told so, and is asked again once `woken` names its key. */
#ifndef GW_PSERVER_STORE_STORE_H
#define GW_PSERVER_STORE_STORE_H

#include "pserver/store/times.h"
#include "pserver/store/blob.h"
#include "pserver/protocol/value.h"

/* A request is not done yet: ask again when the store says that its key has changed. */
#define GW_PS_WAIT ((gw_status)1)

struct gw_ps_store;
struct gw_ps_key;

struct gw_ps_store_options {
    uint32_t n_workers;
    gw_ps_mode mode;
    uint32_t staleness; /* GW_PS_STALE only */
    /* that must be present before the first round can be whole; 0: all are present from the beginning */
    uint32_t min_workers;
    uint32_t backup; /* GW_PS_SYNC: a round is whole when all workers present but so many have pushed */
    uint64_t max_keys;
    uint64_t max_key_bytes;       /* of one value */
    uint64_t max_bytes;           /* of *total */
    atomic_uint_least64_t *total; /* bytes of all that is kept, waits, or is on its way to a client */
    void (*woken)(void *user, struct gw_ps_key *key); /* requests that waited on the key may go on */
    void *user;
};

gw_status gw_ps_store_create(gw_context *context, const struct gw_ps_store_options *options, struct gw_ps_store **out);
void gw_ps_store_destroy(struct gw_ps_store *store);

/* From now on `changed` is told of every change right after it is done; NULL: nobody is. One at a time. */
struct gw_ps_change;
void gw_ps_store_watch(struct gw_ps_store *store, void (*changed)(void *user, const struct gw_ps_change *change),
                       void *user);

/* Makes the key, or, if it is there with the same type, shape, codec and optimizer, does nothing. codec: a
 * specification whose options averages of frames get; "": the defaults. optimizer: a specification
 * (optimizer/optimizer.h);
 * "": none, and the key has no parameters. Errors: GW_ERR_ARGUMENT (a name that cannot be, another type, shape, codec
 * or optimizer, a type that has none), GW_ERR_SPEC, GW_ERR_CAPACITY (a limit), GW_ERR_MEMORY. */
gw_status gw_ps_store_init(struct gw_ps_store *store, const char *name, gw_ps_type type, const gw_ps_shape *shape,
                           const char *codec, const char *optimizer);

/* The same of a part of a key that lies on so many servers; `shape` is the part's. */
gw_status gw_ps_store_init_part(struct gw_ps_store *store, const char *name, gw_ps_type type, const gw_ps_shape *shape,
                                uint32_t n_parts, const char *codec, const char *optimizer);

/* How many servers the key lies on. */
uint32_t gw_ps_key_parts(const struct gw_ps_key *key);

/* The key of that name. GW_ERR_ARGUMENT: there is none; the sentence says which existing name is nearest. */
gw_status gw_ps_store_find(struct gw_ps_store *store, const char *name, struct gw_ps_key **out);

/* Where requests that wait for the key are kept, by whoever asks. */
void **gw_ps_key_waiting(struct gw_ps_key *key);

/* Whether what worker `rank` pushes as its nth push may be stored, now or later: asked once, when it comes.
 * Errors: GW_ERR_ARGUMENT (no worker's rank; a length that is not the key's), GW_ERR_FRAME_* (no frame, or not of this
 * key or rank), GW_ERR_CAPACITY. */
gw_status gw_ps_store_admit(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                            const struct gw_ps_blob *value);

/* The first parameters of a key with an optimizer, float32 of its elements; if it has some already, these are not
 * looked at. Errors: GW_ERR_ARGUMENT (the key has no optimizer; another length), GW_ERR_CAPACITY, GW_ERR_MEMORY. */
gw_status gw_ps_store_bring_first(struct gw_ps_store *store, struct gw_ps_key *key, const struct gw_ps_blob *value);

/* Stores what worker `rank` pushed as its nth push to the key, from 1; takes a hold of its own on `value`. A push that
 * is there already (its acknowledgement was lost) changes nothing. GW_PS_WAIT: the worker's last push still waits for
 * its round, or the key's optimizer for parameters. The value was admitted. rate: an optimizer's, 0: the key's own.
 * Errors: GW_ERR_ORDER (pushes before the nth are missing), GW_ERR_ARGUMENT (no worker's rank), GW_ERR_PEER (the worker
 * was left out meanwhile: its round went on without it); without rounds also GW_ERR_MEMORY and GW_ERR_FRAME_* where it
 * cannot move the parameters. */
gw_status gw_ps_store_push(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                           struct gw_ps_blob *value, double rate);

/* The same of a push that counts only once its verdict has come (gw_ps_store_judge). For keys with an optimizer. Its
 * round waits for that. If the worker is left out before, or the round goes on without it, the push is dropped.
 * Further errors: GW_ERR_ARGUMENT (the key has no optimizer), GW_ERR_ORDER (without rounds: the verdict of the push
 * before is missing). */
gw_status gw_ps_store_push_pending(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                                   struct gw_ps_blob *value, double rate);

/* The verdict of worker `rank` on its nth push to the key. refusal UINT64_MAX: the push counts now; else it is as if it
 * had been refused with that number. If the push is there and is not pending, nothing changes: the verdict came before,
 * or the round has gone on. Errors: GW_ERR_ARGUMENT (no worker's rank), GW_ERR_PEER (the worker was left out),
 * GW_ERR_ORDER (the worker has not pushed so often, or a push of another number is pending), GW_ERR_MEMORY; without
 * rounds also GW_ERR_FRAME_* if the push cannot move the parameters. After an error nothing has changed. */
gw_status gw_ps_store_judge(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                            uint64_t refusal);

/* Whether a verdict on the worker's nth pushes can be given: what gw_ps_store_judge would say of a key of that prefix
 * with an optimizer. Also GW_ERR_ORDER if there is no such key. */
gw_status gw_ps_store_may_judge(const struct gw_ps_store *store, const char *prefix, uint32_t rank, uint64_t nth);

/* In place of a push: the worker has no value that can be used, and says why by a number. Pulls over the round answer
 * with GW_ERR_NONFINITE, and gw_ps_answer.round is the least such number of all workers; with GW_PS_STALE and
 * GW_PS_ASYNC only those of the worker itself, until it pushes again, and others' leave it out. */
gw_status gw_ps_store_refuse(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                             uint64_t number);

/* How often it has pushed; 0 for one that is no worker. */
uint64_t gw_ps_store_pushed(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t rank);

/* How often it has pushed to all keys; *behind: how often the foremost worker of each key has pushed and this one has
 * not, all keys together, which are the open rounds that wait for it. */
uint64_t gw_ps_store_pushes(const struct gw_ps_store *store, uint32_t rank, uint64_t *behind);

struct gw_ps_answer {
    gw_ps_type type;
    gw_ps_shape shape;
    /* in which the pushes were that it was made of; GW_PS_ASYNC and GW_PS_STALE: the asking worker's last */
    uint64_t round;
    uint32_t n_pushes;
    struct gw_ps_blob *value; /* one hold, the caller's */
};

/* GW_PS_PARAMETERS: what the pushes have made of the parameters; of a worker those up to its last, of one that has not
 * pushed, and of others, as they are now. Else reduces the pushes of the round that `rank` asks for; the scale key's
 * (NULL: none) are of the same round. Results are kept for the other workers. GW_PS_WAIT: pushes are missing;
 * *waits_for is the key to wait on. Errors: GW_ERR_ORDER (this worker has not pushed yet, or nobody; the scale key's
 * round is another), GW_ERR_ARGUMENT, GW_ERR_CAPACITY, GW_ERR_MEMORY and those of gw_ps_reduce. */
gw_status gw_ps_store_pull(struct gw_ps_store *store, struct gw_ps_key *key, uint32_t rank, gw_ps_method method,
                           struct gw_ps_key *scale_key, struct gw_ps_answer *out, struct gw_ps_key **waits_for);

/* Puts a value that is no round's, of the key's type and shape; takes a hold of its own. Where one of that version or a
 * higher one is there already nothing changes. Errors: GW_ERR_ARGUMENT (another length; a key of frames or with an
 * optimizer), GW_ERR_CAPACITY. */
gw_status gw_ps_store_deposit(struct gw_ps_store *store, struct gw_ps_key *key, uint64_t version,
                              struct gw_ps_blob *value);

/* The value deposited there; its version is out->round. GW_PS_WAIT: there is none of version `least` or higher. Errors:
 * GW_ERR_ARGUMENT. */
gw_status gw_ps_store_deposited(const struct gw_ps_key *key, uint64_t least, struct gw_ps_answer *out);

struct gw_ps_key_info {
    const char *name;
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t rounds;    /* that are whole */
    uint64_t bytes;     /* kept for it */
    bool unset;         /* it has an optimizer and no parameters yet */
    bool optimized;     /* it has an optimizer */
    uint32_t n_missing; /* workers that the open round waits for, once anybody has pushed to it */
};
struct gw_ps_key_info gw_ps_key_info(const struct gw_ps_store *store, const struct gw_ps_key *key);

/* Whether a request of worker `asker` that waits for the key waits for worker `rank`. */
bool gw_ps_key_misses(const struct gw_ps_store *store, const struct gw_ps_key *key, uint32_t asker, uint32_t rank);

struct gw_ps_store_info {
    uint64_t n_keys, bytes, rounds;
    struct gw_ps_times round_times; /* GW_PS_SYNC: from a round's first push until it is whole */
};
struct gw_ps_store_info gw_ps_store_info(const struct gw_ps_store *store);

/* ---- who takes part (presence.c) -------------------------------------------------------------------------- */

/* Rounds wait for worker `rank` from now on. Of keys whose names begin with `prefix` (""; all) it takes part from round
 * `from` on (0: the open one), of others from the open round on, or from the next where it has pushed to that; what it
 * has in round `from` already is taken out again. Errors: GW_ERR_ARGUMENT (no worker's rank), GW_ERR_ORDER (GW_PS_SYNC:
 * a key has gone on beyond round `from`; nothing has changed). */
gw_status gw_ps_store_enter(struct gw_ps_store *store, uint32_t rank, const char *prefix, uint64_t from);

/* Rounds do not wait for it any more. What it has pushed to open rounds stays in them. */
void gw_ps_store_leave(struct gw_ps_store *store, uint32_t rank);

bool gw_ps_store_is_present(const struct gw_ps_store *store, uint32_t rank);
uint32_t gw_ps_store_n_present(const struct gw_ps_store *store);

/* A round has been whole since the store was made or its keys were dropped. */
bool gw_ps_store_has_begun(const struct gw_ps_store *store);

/* Whether a key that begins with the prefix has an optimizer and parameters. */
bool gw_ps_store_keeps_parameters(const struct gw_ps_store *store, const char *prefix);

/* The largest number of an open round of keys that begin with the prefix (not GW_PS_SYNC: of a next push); 1 where
 * there are none. */
uint64_t gw_ps_store_next_round(const struct gw_ps_store *store, const char *prefix);

/* Keys that begin with the prefix have `number` as their open round, and it is empty: workers begin again after all
 * have left. The first round is to have min_workers again. */
void gw_ps_store_skip_to(struct gw_ps_store *store, const char *prefix, uint64_t number);

/* A run of keys that do not begin with the prefix is over, and the next one begins with new workers. What has been
 * pushed to their open rounds is dropped, and all workers push to that round next. Without rounds (not GW_PS_SYNC)
 * pushes so far count in no result any more but "latest". Whole rounds, deposits and parameters stay. */
void gw_ps_store_begin_anew(struct gw_ps_store *store, const char *except);

/* Drops all keys that begin with the prefix; nobody waits for them any more. GW_ERR_MEMORY: nothing has changed. */
gw_status gw_ps_store_drop(struct gw_ps_store *store, const char *prefix);

/* ----------------------------------------------------------------------------------------------------------- */

/* Every key, in the order of their making. NULL after the last. */
struct gw_ps_key *gw_ps_store_key(const struct gw_ps_store *store, uint64_t nth);

#endif
