/* Tests the rates of a run, and the order of samples. */
#include "data/order.h"
#include "run/schedule.h"
#include "checks.h"

#include <math.h>
#include <string.h>

static double rate(const char *text, uint64_t t)
{
    struct gw_schedule s;
    assert_int_equal(gw_schedule_parse(text, &s), GW_OK);
    return gw_schedule_rate(&s, 0.8, t, 100, 10);
}

TEST(schedules_follow_their_formulas)
{
    assert_true(rate("const", 99) == 0.8);
    assert_true(rate("poly:0.5", 0) == 0.8);
    assert_true(fabs(rate("poly:0.5", 75) - 0.4) < 1e-15);
    assert_true(fabs(rate("poly:2", 50) - 0.2) < 1e-15);
    assert_true(rate("inverse:40", 0) == 0.8);
    assert_true(fabs(rate("inverse:40", 40) - 0.4) < 1e-15);
    assert_true(fabs(rate("inverse:0.5", 2) - 0.16) < 1e-15);
    assert_true(rate("step:3,5", 29) == 0.8);
    assert_true(fabs(rate("step:3,5", 30) - 0.08) < 1e-15);
    assert_true(fabs(rate("step:3,5", 50) - 0.008) < 1e-15);
}

TEST(refuses_other_words)
{
    static const char *const wrong[] = {"",           "poly",       "poly:",
                                        "poly:x",     "poly:0",     "poly:-1",
                                        "poly:1x",    "poly:inf",   "step:",
                                        "step:5,5",   "step:5,3",   "step:-1",
                                        "step:1,",    "step:1;2",   "cosine",
                                        "inverse",    "inverse:",   "inverse:0",
                                        "inverse:-1", "inverse:1x", "inverse:inf",
                                        "poly:0x1",   "inverse: 3", "step:1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"};
    struct gw_schedule s;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (gw_schedule_parse(wrong[i], &s) >= 0)
            fail_msg("the schedule \"%s\" was accepted", wrong[i]);
}

TEST(order_is_a_permutation_and_a_new_one_each_epoch)
{
    enum { n = 1000 };
    uint32_t a[n], b[n], again[n];
    uint8_t seen[n] = {0};
    gw_order_shuffle(7, 0, n, a);
    gw_order_shuffle(7, 1, n, b);
    gw_order_shuffle(7, 0, n, again);
    assert_memory_equal(a, again, sizeof a);
    assert_int_not_equal(memcmp(a, b, sizeof a), 0);
    uint32_t fixed = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(a[i] < n && !seen[a[i]]);
        seen[a[i]] = 1;
        fixed += a[i] == i;
    }
    assert_true(fixed < 10); /* Poisson with mean 1 */
}

TEST(shares_tile_the_batch)
{
    for (uint32_t workers = 1; workers <= 70; workers++) {
        uint32_t next = 0;
        for (uint32_t r = 0; r < workers; r++) {
            uint32_t begin, count;
            gw_order_share(70, workers, r, &begin, &count);
            assert_int_equal(begin, next);
            CHECK_IN_RANGE(count, 70 / workers, 70 / workers + (70 % workers > 0));
            next += count;
        }
        assert_int_equal(next, 70);
    }
}

RUN_TESTS("schedule", NULL, NULL)
