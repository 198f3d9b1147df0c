/* An allocator for tests that fails at one call, and counts what is not given back. */
#ifndef GW_TESTS_SHORTAGE_H
#define GW_TESTS_SHORTAGE_H

#include <gradwire/context.h>

#include <stdatomic.h>
#include <stdlib.h>

struct shortage {
    atomic_int calls, live;
    int fail_at; /* which call, from 1; 0: none */
};

static inline void *short_alloc(size_t bytes, void *user)
{
    struct shortage *shortage = user;
    if (atomic_fetch_add(&shortage->calls, 1) + 1 == shortage->fail_at)
        return NULL;
    atomic_fetch_add(&shortage->live, 1);
    return malloc(bytes);
}

static inline void short_free(void *memory, void *user)
{
    struct shortage *shortage = user;
    if (memory)
        atomic_fetch_sub(&shortage->live, 1);
    free(memory);
}

#endif
