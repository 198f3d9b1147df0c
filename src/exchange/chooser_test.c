/* Tests the comparison of step times on made-up ones: it finds the shorter choice through noise and outliers, notices
 * when the network changes, and costs little. */
#include "exchange/chooser.h"
#include "checks.h"

#include <stdio.h>

/* A made-up network: how long a step takes with each choice, how far steps scatter, and how many are outliers. */
struct steps {
    double small, fast, noise;
    uint32_t outliers; /* one in so many takes five times as long; 0: none */
    uint64_t state;
};

static double uniform(struct steps *s)
{
    s->state = s->state * 6364136223846793005u + 1442695040888963407u;
    return (double)(s->state >> 11) / 9007199254740992.0;
}

static double step(struct steps *s, bool fast)
{
    double sum = uniform(s) + uniform(s) + uniform(s) + uniform(s) - 2; /* of deviation 0.58 */
    double seconds = (fast ? s->fast : s->small) * (1 + s->noise * sum / 0.58);
    return s->outliers && uniform(s) * s->outliers < 1 ? 5 * seconds : seconds;
}

/* Makes n steps. Returns their time, divided by the time of n steps with the better choice. Neither counts outliers. */
static double run(struct gw_chooser *c, struct steps *s, uint32_t n)
{
    double best = s->small < s->fast ? s->small : s->fast, spent = 0;
    bool before = gw_chooser_next(c);
    for (uint32_t i = 0; i < n; i++) {
        bool fast = gw_chooser_next(c);
        /* If the choice changes, the others follow a step later. So this step takes as long as the slower choice. */
        struct steps mixed = *s;
        if (fast != before)
            mixed.small = mixed.fast = s->small > s->fast ? s->small : s->fast;
        spent += fast ? mixed.fast : mixed.small;
        gw_chooser_note(c, step(&mixed, fast));
        s->state = mixed.state;
        before = fast;
    }
    return spent / (best * n);
}

TEST(finds_the_shorter_one_at_little_cost)
{
    static const double ratios[] = {0.3, 0.5, 0.7, 0.85, 0.93, 0.97, 1, 1.03, 1.08, 1.2, 1.5, 2, 4};
    for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++)
        for (int noisy = 0; noisy < 2; noisy++) {
            double worst = 0;
            const int n_seeds = 50;
            for (int seed = 0; seed < n_seeds; seed++) {
                struct gw_chooser c;
                struct steps s = {1, ratios[r], noisy ? 0.08 : 0.01, noisy ? 15 : 0, (uint64_t)seed + 1};
                gw_chooser_init(&c);
                run(&c, &s, 400);
                double cost = run(&c, &s, 2000);
                worst = cost > worst ? cost : worst;
                assert_true(c.n_probes >= 1);
            }
            print_message("fast/small %.2f%s: worst %.4f\n", ratios[r], noisy ? ", noisy" : "", worst);
            assert_true(worst < 1.03);
        }
}

TEST(the_first_steps_cost_little)
{
    static const double ratios[] = {0.5, 0.8, 1.25, 2};
    for (size_t r = 0; r < sizeof ratios / sizeof *ratios; r++) {
        struct gw_chooser c;
        struct steps s = {1, ratios[r], 0.01, 0, 1};
        gw_chooser_init(&c);
        double cost = run(&c, &s, 300);
        print_message("fast/small %.2f: %.4f over 300 steps, stands %s after %u probes\n", ratios[r], cost,
                      c.fast ? "fast" : "small", c.n_probes);
        assert_true(cost < 1.03);
        assert_int_equal(c.fast, ratios[r] < 1);
    }
}

TEST(follows_a_network_that_changes)
{
    struct gw_chooser c;
    struct steps s = {1, 0.6, 0.05, 20, 7};
    gw_chooser_init(&c);
    for (int turn = 0; turn < 6; turn++) {
        run(&c, &s, 600);
        assert_int_equal(c.fast, s.fast < s.small);
        double other = s.small;
        s.small = s.fast, s.fast = other;
    }
    assert_int_equal(c.n_changes, 6);
}

/* Something else delays one step, whichever it is. That must decide nothing. */
TEST(one_outlier_decides_nothing)
{
    for (uint32_t at = 0; at < 40; at++)
        for (int better = 0; better < 2; better++) {
            struct gw_chooser c;
            gw_chooser_init(&c);
            for (uint32_t i = 0; i < 40; i++)
                gw_chooser_note(&c, (gw_chooser_next(&c) == better ? 0.9 : 1.0) * (i == at ? 100 : 1));
            assert_int_equal(c.fast, better);
        }
}

RUN_TESTS("chooser", NULL, NULL)
