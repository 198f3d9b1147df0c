/* Working memory: a call takes it and gives it back before it returns. The context keeps it for the next call. If
 * blocks of this size went back to the system and were taken again, each 4 KiB would cost a page fault. In the sum of
 * sparse frames that was a sixth of all time. */
#ifndef GW_BASE_SCRATCH_H
#define GW_BASE_SCRATCH_H

#include <gradwire/context.h>

#include <pthread.h>

#define GW_SCRATCH_BLOCKS 32u                  /* how many blocks a context keeps at most */
#define GW_SCRATCH_BYTES ((size_t)32 << 20)    /* how many bytes it keeps at most, in all blocks together */
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

/* Takes count * size bytes, aligned as by gw_alloc, not cleared. Any thread may call it. context NULL: nothing is kept.
 */
void *gw_scratch_take(gw_context *context, size_t count, size_t size);

/* Gives them back. NULL is allowed. */
void gw_scratch_give(gw_context *context, void *memory);

/* Frees all that is kept. */
void gw_scratch_clear(gw_context *context);

#endif
