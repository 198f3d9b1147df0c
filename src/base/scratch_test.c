/* Tests the memory that contexts keep from call to call: what is handed out again, how much is kept, and that threads
 * may ask at the same time. */
#include "base/scratch.h"
#include "base/threads.h"
#include "checks.h"
#include "shortage.h"

#include <stdlib.h>
#include <string.h>

static struct shortage counted; /* nothing fails; it counts */

/* Takes a block, writes all of it, and gives it back. */
static void *once(gw_context *context, size_t bytes)
{
    void *memory = gw_scratch_take(context, bytes, 1);
    assert_non_null(memory);
    assert_true((uintptr_t)memory % 64 == 0);
    memset(memory, 0xA5, bytes);
    gw_scratch_give(context, memory);
    return memory;
}

TEST(a_block_is_handed_out_again)
{
    gw_context *context = context_short_of(&counted, 1);
    const int before = counted.live;
    void *first = once(context, GW_SCRATCH_LEAST * 2);
    assert_int_equal(counted.live, before + 1);
    assert_ptr_equal(once(context, GW_SCRATCH_LEAST * 2), first);
    assert_ptr_equal(once(context, GW_SCRATCH_LEAST), first);
    assert_int_equal(counted.live, before + 1);
    once(context, GW_SCRATCH_LEAST * 2 + 1); /* the free block is too small for that */
    assert_int_equal(counted.live, before + 2);
    once(context, GW_SCRATCH_LEAST * 16);
    once(context, GW_SCRATCH_LEAST * 8 - 1); /* blocks of more than twice the size are not used for that */
    assert_int_equal(counted.live, before + 4);
    once(context, GW_SCRATCH_LEAST * 8 - 1);
    assert_int_equal(counted.live, before + 4);
    assert_ptr_equal(once(context, GW_SCRATCH_LEAST * 2), first); /* this takes the smallest block that fits */
    gw_scratch_clear(context);
    assert_int_equal(counted.live, before);
    gw_context_destroy(context);
    assert_int_equal(counted.live, 0);
}

TEST(what_is_kept_is_bounded)
{
    gw_context *context = context_short_of(&counted, 1);
    const int before = counted.live;
    once(context, GW_SCRATCH_LEAST - 1);
    once(context, GW_SCRATCH_MOST + 1);
    assert_int_equal(counted.live, before);
    void *blocks[GW_SCRATCH_BLOCKS + 1];
    for (int large = 0; large < 2; large++) {
        const uint32_t n = GW_SCRATCH_BLOCKS + 1;
        for (uint32_t i = 0; i < n; i++)
            assert_non_null(blocks[i] = gw_scratch_take(context, 1, large ? GW_SCRATCH_MOST : GW_SCRATCH_LEAST));
        for (uint32_t i = 0; i < n; i++)
            gw_scratch_give(context, blocks[i]);
        assert_int_equal(counted.live - before, large ? GW_SCRATCH_BYTES / GW_SCRATCH_MOST : GW_SCRATCH_BLOCKS);
        gw_scratch_clear(context);
    }
    gw_context_destroy(context);
    assert_int_equal(counted.live, 0);
}

TEST(without_a_context_nothing_is_kept)
{
    once(NULL, GW_SCRATCH_LEAST);
    gw_scratch_give(NULL, NULL);
    assert_null(gw_scratch_take(NULL, SIZE_MAX, 2));
    assert_null(gw_scratch_take(NULL, SIZE_MAX, 1));
}

static void use(uint64_t i, uint32_t slot, void *user)
{
    gw_context *context = user;
    const size_t n = GW_SCRATCH_LEAST + 1024 * (i % 7);
    unsigned char *memory = gw_scratch_take(context, n, 1);
    memset(memory, (int)slot, n);
    for (size_t k = 0; k < n; k++)
        if (memory[k] != slot)
            abort(); /* another thread has the same block */
    gw_scratch_give(context, memory);
}

TEST(threads_share_it)
{
    gw_context *context = context_short_of(&counted, 3);
    gw_parallel_for(context, 2000, use, context);
    gw_context_destroy(context);
    assert_int_equal(counted.live, 0);
}

RUN_TESTS("scratch", NULL, NULL)
