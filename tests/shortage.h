/* An allocator for tests that fails at one call, or from one on, and counts what is not given back. */
#ifndef GW_TESTS_SHORTAGE_H
#define GW_TESTS_SHORTAGE_H

#include "checks.h"

#include <gradwire/context.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct shortage {
    atomic_int calls, live, failed;
    atomic_int fail_at;   /* which call, from 1; 0: none */
    atomic_bool for_good; /* all later ones, too */
};

static inline void *short_alloc(size_t bytes, void *user)
{
    struct shortage *shortage = user;
    const int call = ++shortage->calls, fail_at = shortage->fail_at;
    if (fail_at && (call == fail_at || (call > fail_at && shortage->for_good))) {
        shortage->failed++;
        return NULL;
    }
    shortage->live++;
    return malloc(bytes);
}

static inline void short_free(void *memory, void *user)
{
    struct shortage *shortage = user;
    if (memory)
        shortage->live--;
    free(memory);
}

static inline gw_context *context_short_of(struct shortage *shortage, uint32_t n_threads)
{
    const gw_allocator allocator = {short_alloc, short_free, shortage};
    const gw_context_options options = {.struct_bytes = sizeof options,
                                        .allocator = &allocator,
                                        .n_threads = n_threads};
    gw_context *context;
    assert_int_equal(gw_context_create(&options, &context), GW_OK);
    shortage->calls = 0;
    return context;
}

/* The nth call from now on fails. 0: none does. */
static inline void fail_nth(struct shortage *shortage, int nth)
{
    shortage->calls = 0;
    shortage->fail_at = nth;
}

#endif
