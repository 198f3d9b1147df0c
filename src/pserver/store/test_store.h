/* A store for tests, whose memory may run out at one call, and which must give everything back. */
#ifndef GW_PSERVER_STORE_TEST_STORE_H
#define GW_PSERVER_STORE_TEST_STORE_H

#include "checks.h"
#include "pserver/store/store.h"
#include "shortage.h"

#include <string.h>

struct world {
    struct shortage shortage;
    gw_context *context;
    struct gw_ps_store *store;
    struct gw_ps_store_options options;
    atomic_uint_least64_t total;
    struct gw_ps_key *woken[64];
    int n_woken;
};

static inline void on_woken(void *user, struct gw_ps_key *key)
{
    struct world *world = user;
    if (world->n_woken < 64)
        world->woken[world->n_woken] = key;
    world->n_woken++;
}

/* options: those that matter; the limits may be 0. */
static inline void begin_store(struct world *world, struct gw_ps_store_options options)
{
    memset(world, 0, sizeof *world);
    const gw_allocator allocator = {short_alloc, short_free, &world->shortage};
    assert_int_equal(gw_context_create(&(gw_context_options){.struct_bytes = sizeof(gw_context_options),
                                                             .allocator = &allocator,
                                                             .n_threads = 1},
                                       &world->context),
                     GW_OK);
    options.max_keys = options.max_keys ? options.max_keys : 100;
    options.max_key_bytes = 1 << 20;
    options.max_bytes = options.max_bytes ? options.max_bytes : 1 << 24;
    options.total = &world->total;
    options.woken = on_woken;
    options.user = world;
    world->options = options;
    assert_int_equal(gw_ps_store_create(world->context, &options, &world->store), GW_OK);
}

/* Nothing is left over, of blocks or of bytes. */
static inline void end(struct world *world)
{
    gw_ps_store_destroy(world->store);
    CHECK(atomic_load(&world->total) == 0, "%llu bytes are still counted",
          (unsigned long long)atomic_load(&world->total));
    gw_context_destroy(world->context);
    CHECK(world->shortage.live == 0, "%d blocks are lost", world->shortage.live);
}

static inline struct gw_ps_blob *blob_of(struct world *world, const void *bytes, size_t n_bytes)
{
    return gw_ps_blob_copy(world->context, &world->total, bytes, n_bytes);
}

/* As the server does it: a push that is not admitted is not stored. pending: it waits for its verdict. */
static inline gw_status push_bytes(struct world *world, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                                   const void *bytes, size_t n_bytes, double rate, bool pending)
{
    struct gw_ps_blob *blob = blob_of(world, bytes, n_bytes);
    if (!blob)
        return GW_ERR_MEMORY;
    gw_status status = gw_ps_store_admit(world->store, key, rank, nth, blob);
    if (status == GW_OK)
        status = gw_ps_store_push(world->store, key, rank, nth, blob, rate, pending);
    gw_ps_blob_give(blob);
    return status;
}

static inline void refused(gw_status status, gw_status expected, const char *words)
{
    CHECK(status == expected && strstr(gw_last_error(), words), "%d instead of %d: \"%s\" and not \"%s\"", status,
          expected, gw_last_error(), words);
}

#endif
