/* Keeps blocks of working memory in the context, and hands the smallest that fits out again. */
#include "base/scratch.h"
#include "base/context.h"
#include "base/memory.h"

#include <stdbool.h>
#include <string.h>

/* The size of a block stands in so many bytes in front of it. */
#define FRONT 64

static void *block_of(void *memory)
{
    return (char *)memory - FRONT;
}

static size_t bytes_of(const void *memory)
{
    size_t bytes;
    memcpy(&bytes, (const char *)memory - FRONT, sizeof bytes);
    return bytes;
}

/* Takes the smallest idle block of at least so many bytes, and of at most about twice as many. NULL: there is none. */
static void *find(struct gw_scratch *scratch, size_t bytes)
{
    uint32_t best = scratch->n;
    for (uint32_t i = 0; i < scratch->n; i++) {
        const size_t has = scratch->idle[i].bytes;
        if (has >= bytes && has / 2 <= bytes && (best == scratch->n || has < scratch->idle[best].bytes))
            best = i;
    }
    if (best == scratch->n)
        return NULL;
    void *memory = scratch->idle[best].memory;
    scratch->bytes -= scratch->idle[best].bytes;
    scratch->idle[best] = scratch->idle[--scratch->n];
    return memory;
}

void *gw_scratch_take(gw_context *context, size_t count, size_t size)
{
    size_t bytes, total;
    void *memory = NULL;
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, FRONT, &total))
        return gw_alloc(context, count, size); /* gw_alloc refuses such a size */
    if (context && bytes >= GW_SCRATCH_LEAST && gw_process_is(context->made_in)) {
        pthread_mutex_lock(&context->scratch.lock);
        memory = find(&context->scratch, bytes);
        pthread_mutex_unlock(&context->scratch.lock);
    }
    if (memory)
        return memory;
    char *block = gw_alloc(context, total, 1);
    if (!block)
        return NULL;
    memcpy(block, &bytes, sizeof bytes);
    return block + FRONT;
}

void gw_scratch_give(gw_context *context, void *memory)
{
    if (!memory)
        return;
    const size_t bytes = bytes_of(memory);
    bool kept = false;
    if (context && bytes >= GW_SCRATCH_LEAST && bytes <= GW_SCRATCH_MOST && gw_process_is(context->made_in)) {
        struct gw_scratch *scratch = &context->scratch;
        pthread_mutex_lock(&scratch->lock);
        kept = scratch->n < GW_SCRATCH_BLOCKS && scratch->bytes + bytes <= GW_SCRATCH_BYTES;
        if (kept) {
            scratch->idle[scratch->n++] = (struct gw_scratch_block){memory, bytes};
            scratch->bytes += bytes;
        }
        pthread_mutex_unlock(&scratch->lock);
    }
    if (!kept)
        gw_free(context, block_of(memory));
}

void gw_scratch_clear(gw_context *context)
{
    struct gw_scratch *scratch = &context->scratch;
    while (scratch->n)
        gw_free(context, block_of(scratch->idle[--scratch->n].memory));
    scratch->bytes = 0;
}
