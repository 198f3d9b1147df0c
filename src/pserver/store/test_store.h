/* A store for tests, whose memory may run out at one call, and which must give everything back. A test has one at a
 * time. */
#ifndef GW_PSERVER_STORE_TEST_STORE_H
#define GW_PSERVER_STORE_TEST_STORE_H

#include "outcome.h"
#include "pserver/store/store.h"
#include "shortage.h"

static struct {
    struct shortage shortage;
    gw_context *context;
    struct gw_ps_store *store;
    uint64_t total;
    struct gw_ps_key *woken; /* the last one */
    int n_woken;
    bool failed; /* the allocation that was to fail has failed */
} world;

static inline void on_woken(void *user, struct gw_ps_key *key)
{
    (void)user;
    world.woken = key;
    world.n_woken++;
}

/* options: those that matter; the limits may be 0. */
static inline void begin_store(gw_ps_server_options options)
{
    memset(&world, 0, sizeof world);
    world.context = context_short_of(&world.shortage, 1);
    options.max_keys = 100;
    options.max_key_bytes = 1 << 20;
    options.max_bytes = options.max_bytes ? options.max_bytes : 1 << 24;
    ok(gw_ps_store_create(world.context, &options, &world.total, on_woken, NULL, &world.store));
}

static inline uint64_t total_bytes(void)
{
    return world.total;
}

/* Nothing is left over, of blocks or of bytes. */
static inline void end(void)
{
    gw_ps_store_destroy(world.store);
    CHECK(total_bytes() == 0, "%llu bytes are still counted", (unsigned long long)total_bytes());
    gw_context_destroy(world.context);
    CHECK(world.shortage.live == 0, "%d blocks are lost", world.shortage.live);
}

/* One row of n elements, which the store has now. */
static inline struct gw_ps_key *key_with(const char *name, gw_ps_type type, uint64_t n, const char *codec,
                                         const char *optimizer)
{
    struct gw_ps_key *key;
    ok(gw_ps_store_init(world.store, name, type, &(gw_ps_shape){.n_dims = 1, .dims = {n}}, 1, codec, optimizer));
    ok(gw_ps_store_find(world.store, name, &key));
    return key;
}

static inline struct gw_ps_blob *blob_of(const void *bytes, size_t n_bytes)
{
    return gw_ps_blob_copy(world.context, &world.total, bytes, n_bytes);
}

/* As the server does it: a push that is not admitted is not stored. pending: it waits for its verdict. */
static inline gw_status push_bytes(struct gw_ps_key *key, uint32_t rank, uint64_t nth, const void *bytes,
                                   size_t n_bytes, double rate, bool pending)
{
    struct gw_ps_blob *blob = blob_of(bytes, n_bytes);
    if (!blob)
        return GW_ERR_MEMORY;
    gw_status status = gw_ps_store_admit(world.store, key, rank, nth, blob);
    if (status == GW_OK)
        status = gw_ps_store_push(world.store, key, rank, nth, blob, rate, pending ? GW_PS_PENDING : GW_PS_NOT_REFUSED);
    gw_ps_blob_give(blob);
    return status;
}

/* The call has not succeeded yet: its request waits. */
#define waits(call) outcome_is(call, GW_PS_WAIT, "", #call, __FILE__, __LINE__)

/* From now on the allocation of this number fails, once. 0: none does. */
static inline void let_fail(int fail_at)
{
    fail_nth(&world.shortage, fail_at);
    world.failed = fail_at == 0;
}

/* Makes a call. If it fails for want of memory, as it was let, makes it again. */
#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        gw_status status_ = (call);                                                                                    \
        if (status_ == GW_ERR_MEMORY) {                                                                                \
            CHECK(!world.failed && world.shortage.calls >= world.shortage.fail_at, "%s fails without a cause", #call); \
            CHECK(strstr(gw_last_error(), "no memory"), "%s: \"%s\"", #call, gw_last_error());                         \
            world.failed = true;                                                                                       \
            status_ = (call);                                                                                          \
        }                                                                                                              \
        CHECK(status_ == GW_OK, "allocation %d: %s gives %d: %s", world.shortage.fail_at, #call, status_,              \
              gw_last_error());                                                                                        \
    } while (0)

#endif
