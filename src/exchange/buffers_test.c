/* Tests kept messages: which are kept, how many, and that none is lost. */
#include "exchange/buffers.h"
#include "checks.h"

#include <stdlib.h>
#include <string.h>

static long live;

static void *counting_alloc(size_t bytes, void *user)
{
    (void)user;
    live++;
    return malloc(bytes);
}

static void counting_free(void *memory, void *user)
{
    (void)user;
    live -= memory != NULL;
    free(memory);
}

static gw_context *counting_context(void)
{
    gw_allocator allocator = {counting_alloc, counting_free, NULL};
    gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    gw_context *context;
    live = 0;
    assert_int_equal(gw_context_create(&options, &context), GW_OK);
    return context;
}

TEST(large_ones_are_used_again)
{
    gw_context *context = counting_context();
    struct gw_buffers buffers = {.context = context, .most = 2};
    for (size_t n_bytes = 20000; n_bytes < 64 << 20; n_bytes += n_bytes / 3) {
        char *first = gw_buffers_take(&buffers, n_bytes);
        assert_non_null(first);
        memset(first, 1, n_bytes);
        for (int again = 0; again < 5; again++) {
            gw_buffers_give(&buffers, first);
            assert_ptr_equal(gw_buffers_take(&buffers, n_bytes - 1), first);
        }
        CHECK_IN_RANGE(gw_message_node_of(first)->capacity, n_bytes, n_bytes + n_bytes / 4);
        gw_buffers_give(&buffers, first);
        void *other = gw_buffers_take(&buffers, 2 * n_bytes); /* kept by size */
        assert_ptr_not_equal(other, first);
        gw_message_free(other);
    }
    gw_buffers_clear(&buffers);
    gw_context_destroy(context);
    assert_int_equal(live, 0);
}

TEST(no_more_than_asked_are_kept)
{
    gw_context *context = counting_context();
    struct gw_buffers buffers = {.context = context, .most = 2};
    void *all[5];
    long before = live;
    for (int i = 0; i < 5; i++)
        all[i] = gw_buffers_take(&buffers, 100000);
    for (int i = 0; i < 5; i++)
        gw_buffers_give(&buffers, all[i]);
    assert_int_equal(live, before + 2);
    /* Small ones are not kept, nor those whose capacity is not one of ours, nor NULL. */
    gw_buffers_give(&buffers, gw_buffers_take(&buffers, 100));
    gw_buffers_give(&buffers, gw_buffers_take(&buffers, 0));
    gw_buffers_give(&buffers, gw_message_alloc(context, 123457));
    gw_buffers_give(&buffers, NULL);
    assert_int_equal(live, before + 2);
    gw_buffers_clear(&buffers);
    assert_int_equal(live, before);
    gw_context_destroy(context);
    assert_int_equal(live, 0);
}

TEST(impossible_sizes_are_refused)
{
    struct gw_buffers buffers = {.most = 2};
    assert_null(gw_buffers_take(&buffers, SIZE_MAX));
    assert_null(gw_buffers_take(&buffers, SIZE_MAX - 64));
}

RUN_TESTS("buffers", NULL, NULL)
