/* Memory that a call works in and gives back when it returns, kept by the context from call to call. Blocks of such a
 * size that go back to the system and are taken again cost a page fault for every 4 KiB: in the sum of sparse frames a
 * sixth of all time. */
#ifndef GW_BASE_SCRATCH_H
#define GW_BASE_SCRATCH_H

#include <gradwire/context.h>

#include <pthread.h>

#define GW_SCRATCH_BLOCKS 32u                  /* that a context keeps at most */
#define GW_SCRATCH_BYTES ((size_t)32 << 20)    /* likewise, all blocks together */
#define GW_SCRATCH_LEAST ((size_t)32 << 10)    /* smaller blocks are left to the allocator */
#define GW_SCRATCH_MOST (GW_SCRATCH_BYTES / 4) /* and so are larger ones */

struct gw_scratch_block {
    void *memory;
    size_t bytes;
};

/* What a context keeps. */
struct gw_scratch {
    pthread_mutex_t lock;
    uint32_t n;
    size_t bytes;
    struct gw_scratch_block idle[GW_SCRATCH_BLOCKS];
};

/* count * size bytes as gw_alloc gives them, not cleared. From any thread. context NULL: keeps nothing. */
void *gw_scratch_take(gw_context *context, size_t count, size_t size);

/* Gives them back. NULL is allowed. */
void gw_scratch_give(gw_context *context, void *memory);

/* Frees all that is kept. */
void gw_scratch_clear(gw_context *context);

#endif
