/* Tests the short history that a server keeps for its status page. */
#include "pserver/server/numbers.h"

#include "checks.h"

#include <string.h>

#define STEP GW_PS_HISTORY_SECONDS

TEST(steps_are_counted)
{
    struct gw_ps_history history = {0};
    assert_int_equal(gw_ps_history_ago(&history, 0), 0);
    gw_ps_history_note(&history, 0.1, 3);
    gw_ps_history_note(&history, STEP - 0.1, 4);
    assert_int_equal(gw_ps_history_ago(&history, 0), 0); /* this step is not over */
    gw_ps_history_note(&history, STEP, 5);
    assert_int_equal(gw_ps_history_ago(&history, 0), 7);
    gw_ps_history_note(&history, 4 * STEP + 0.5, 0); /* nobody noted anything for two steps */
    const uint32_t expected[] = {0, 0, 5, 7, 0};
    for (uint32_t ago = 0; ago < 5; ago++)
        CHECK(gw_ps_history_ago(&history, ago) == expected[ago], "%u steps ago", ago);
}

/* What is older than the history is gone, and steps without rounds hold none of what was there before them. */
TEST(old_steps_are_forgotten)
{
    struct gw_ps_history history = {0};
    const uint32_t n = GW_PS_HISTORY_STEPS;
    for (uint32_t s = 0; s <= 2 * n; s++)
        gw_ps_history_note(&history, s * STEP, s + 1);
    for (uint32_t ago = 0; ago < n + 5; ago++)
        CHECK(gw_ps_history_ago(&history, ago) == (ago < n - 1 ? 2 * n - ago : 0), "%u steps ago", ago);
    gw_ps_history_note(&history, (2 * n + 3) * STEP, 1);
    assert_int_equal(gw_ps_history_ago(&history, 0) + gw_ps_history_ago(&history, 1), 0);
    assert_int_equal(gw_ps_history_ago(&history, 2), 2 * n + 1);
    gw_ps_history_note(&history, 1e9, 6); /* as if the machine had slept */
    for (uint32_t ago = 0; ago < n; ago++)
        assert_int_equal(gw_ps_history_ago(&history, ago), 0);
    gw_ps_history_note(&history, 1e9 + STEP, 0);
    assert_int_equal(gw_ps_history_ago(&history, 0), 6);
}

RUN_TESTS("pserver numbers", NULL, NULL)
