/* The inside of a context: its allocator, its threads, and memory that it keeps for them. */
#ifndef GW_BASE_CONTEXT_H
#define GW_BASE_CONTEXT_H

#include "base/process.h"
#include "base/scratch.h"

#include <gradwire/context.h>

struct gw_pool;

struct gw_context {
    gw_allocator allocator;
    gw_process made_in;   /* in another process, its threads and its scratch memory are not used */
    struct gw_pool *pool; /* NULL: the calling thread alone */
    struct gw_scratch scratch;
};

gw_status gw_pool_create(gw_context *context, uint32_t n_threads, struct gw_pool **out);
void gw_pool_destroy(gw_context *context, struct gw_pool *pool);

#endif
