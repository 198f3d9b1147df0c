/* Tests the update rules beside their formulas in float64, and optimizer specifications there and back. */
#include "optimizer/optimizer.h"
#include "checks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 37 }; /* no multiple of any vector's width */

static const struct gw_optimizer of_rule[] = {
    [GW_RULE_SGD] = {.rule = GW_RULE_SGD, .decay = 0.01f},
    [GW_RULE_MOMENTUM] = {.rule = GW_RULE_MOMENTUM, .decay = 0.01f, .momentum = 0.9f},
    [GW_RULE_ADAM] = {.rule = GW_RULE_ADAM, .decay = 0.1f, .adam = {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-8f}},
};

static void fill(float *w, float *v, float *g)
{
    for (int i = 0; i < N; i++)
        w[i] = 0.1f * (float)(i - 18), v[i] = 0.03f * (float)(i % 5), g[i] = 0.2f * (float)(7 - i % 13);
}

TEST(sgd_follows_its_formula)
{
    float w[N], v[N], g[N], before[N];
    fill(w, v, g);
    memcpy(before, w, sizeof w);
    gw_optimizer_update(&of_rule[GW_RULE_SGD], N, w, NULL, g, 0.1f, 1);
    for (int i = 0; i < N; i++)
        assert_true(fabs(w[i] - (before[i] - 0.1 * (g[i] + 0.01 * before[i]))) < 1e-6);
}

TEST(momentum_follows_its_formula)
{
    float w[N], v[N], g[N];
    double w2[N], v2[N];
    fill(w, v, g);
    for (int i = 0; i < N; i++)
        w2[i] = w[i], v2[i] = v[i];
    for (int t = 0; t < 3; t++) {
        gw_optimizer_update(&of_rule[GW_RULE_MOMENTUM], N, w, (float *const[]){v, NULL}, g, 0.1f, 1);
        for (int i = 0; i < N; i++) {
            v2[i] = 0.9 * v2[i] + 0.1 * (g[i] + 0.01 * w2[i]);
            w2[i] -= v2[i];
            assert_true(fabs(w[i] - w2[i]) < 1e-5);
            assert_true(fabs(v[i] - v2[i]) < 1e-5);
        }
    }
}

TEST(adam_follows_its_formula)
{
    float w[N], m[N] = {0}, v[N] = {0}, g[N], unused[N];
    double w2[N], m2[N] = {0}, v2[N] = {0};
    fill(w, unused, g);
    for (int i = 0; i < N; i++)
        w2[i] = w[i];
    for (int t = 1; t <= 5; t++) {
        for (int i = 0; i < N; i++)
            g[i] += 0.01f * (float)(t * (i % 3));
        gw_optimizer_update(&of_rule[GW_RULE_ADAM], N, w, (float *const[]){m, v}, g, 0.01f, (uint64_t)t);
        for (int i = 0; i < N; i++) {
            double a = g[i] + 0.1 * w2[i];
            m2[i] = 0.9 * m2[i] + 0.1 * a;
            v2[i] = 0.999 * v2[i] + 0.001 * a * a;
            w2[i] -= 0.01 * (m2[i] / (1 - pow(0.9, t))) / (sqrt(v2[i] / (1 - pow(0.999, t))) + 1e-8);
            CHECK(fabs(w[i] - w2[i]) < 2e-5, "step %d, element %d: %.9g and not %.9g", t, i, (double)w[i], w2[i]);
        }
    }
}

/* The bits are known: numpy computes the same. So every instruction set, compiler and library must give them. */
TEST(svrg_follows_its_formula)
{
    float w[N], snapshot[N], g[N], before[N];
    fill(w, snapshot, g);
    memcpy(before, w, sizeof w);
    gw_optimizer_svrg(N, w, snapshot, g, 0.1f, 0.01f);
    for (int i = 0; i < N; i++)
        assert_true(fabs(w[i] - (before[i] - 0.1 * (g[i] + 0.01 * (before[i] - snapshot[i])))) < 1e-6);
}

TEST(average_warms_up)
{
    float e = 1, w = 3;
    gw_optimizer_ema(1, &e, &w, 0.99, 0); /* d = 0.1 */
    assert_true(fabs(e - (0.1 * 1 + 0.9 * 3)) < 1e-6);
    e = 1;
    gw_optimizer_ema(1, &e, &w, 0.5, 1000000); /* d = 0.5, as given */
    assert_true(fabs(e - 2) < 1e-6);
}

/* The numbers behind the last element stay, for any length. */
TEST(nothing_is_written_behind_the_end)
{
    for (size_t n = 0; n < N; n++)
        for (int rule = 0; rule < 5; rule++) {
            float w[N], first[N], second[N], g[N], unused[N], before[3 * N];
            fill(w, first, g);
            fill(unused, second, unused);
            memcpy(before, w + n, (N - n) * sizeof *w);
            memcpy(before + N, first + n, (N - n) * sizeof *w);
            memcpy(before + 2 * N, second + n, (N - n) * sizeof *w);
            if (rule <= GW_RULE_ADAM)
                gw_optimizer_update(&of_rule[rule], n, w, (float *const[]){first, second}, g, 0.1f, 1);
            else if (rule == GW_RULE_SVRG)
                gw_optimizer_svrg(n, w, first, g, 0.1f, 0.01f);
            else
                gw_optimizer_ema(n, w, g, 0.5, 100);
            assert_memory_equal(before, w + n, (N - n) * sizeof *w);
            assert_memory_equal(before + N, first + n, (N - n) * sizeof *w);
            assert_memory_equal(before + 2 * N, second + n, (N - n) * sizeof *w);
        }
}

TEST(bits_are_known)
{
    static const char *const specs[] = {"sgd:lr=0.1,weight-decay=0.01", "momentum:lr=0.1,weight-decay=0.01",
                                        "adam:lr=0.1,weight-decay=0.01"};
    static const uint32_t known[] = {0xf09afd82, 0x1a4aea41, 0xb075f731};
    for (size_t s = 0; s < 3; s++) {
        struct gw_optimizer o;
        float w[N], g[N], first[N] = {0}, second[N] = {0}, unused[N], *const moments[] = {first, second};
        uint32_t sum = 0, bits;
        assert_int_equal(gw_optimizer_parse(specs[s], &o), GW_OK);
        fill(w, unused, g);
        for (uint64_t t = 1; t <= 7; t++)
            gw_optimizer_update(&o, N, w, moments, g, o.lr, t);
        for (int i = 0; i < N; i++) {
            memcpy(&bits, &w[i], sizeof bits);
            sum = sum * 31 + bits;
        }
        CHECK(sum == known[s], "%s: 0x%08x", specs[s], sum);
    }
}

TEST(specifications_go_there_and_back)
{
    static const struct {
        const char *text, *canonical;
        uint32_t moments;
    } cases[] = {
        {"sgd", "sgd:lr=0.00999999978,weight-decay=0", 0},
        {"momentum", "momentum:lr=0.00999999978,weight-decay=0,momentum=0.899999976", 1},
        {"momentum:momentum=0.5,weight-decay=0.0005,lr=0.1",
         "momentum:lr=0.100000001,weight-decay=0.000500000024,momentum=0.5", 1},
        {"adam:epsilon=1,beta1=0,beta2=0.5", "adam:lr=0.00100000005,weight-decay=0,beta1=0,beta2=0.5,epsilon=1", 2},
        {"sgd:lr=0", "sgd:lr=0,weight-decay=0", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gw_optimizer one, two;
        char text[GW_OPTIMIZER_TEXT], again[GW_OPTIMIZER_TEXT];
        CHECK(gw_optimizer_parse(cases[i].text, &one) == GW_OK, "%s", gw_last_error());
        gw_optimizer_text(&one, text);
        assert_string_equal(text, cases[i].canonical);
        assert_int_equal(gw_optimizer_moments(&one), cases[i].moments);
        assert_int_equal(gw_optimizer_parse(text, &two), GW_OK);
        gw_optimizer_text(&two, again);
        assert_string_equal(again, text);
    }
}

TEST(longest_specification_has_room)
{
    struct gw_optimizer o;
    char text[GW_OPTIMIZER_TEXT];
    assert_int_equal(gw_optimizer_parse(
                         "adam:lr=1.17549435e-38,weight-decay=1.17549435e-38,beta1=1.17549435e-38,beta2=1.17549435e-38,"
                         "epsilon=1.17549435e-38",
                         &o),
                     GW_OK);
    gw_optimizer_text(&o, text);
    assert_non_null(strstr(text, "epsilon=1.17549435e-38"));
}

TEST(refuses_other_words)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {
        {"", "right are sgd, momentum, adam and svrg"},
        {"adamant", "right are sgd, momentum, adam and svrg"},
        {"sg", "unknown"},
        {"a name that goes on for longer than a sentence has room for it", "...\" is unknown; right are sgd"},
        {"sgd:,", "an option is empty"},
        {"sgd:momentum=0.9", "has no option 'momentum'; it has lr, weight-decay"},
        {"momentum:momentum=1", "below 1"},
        {"momentum:momentum=-0.1", "from 0 up"},
        {"adam:beta1=1", "below 1"},
        {"adam:beta2=1", "below 1"},
        {"adam:epsilon=0", "epsilon takes a number from 1.17549e-38 up"}, /* a gradient of 0 would give 0/0 */
        {"adam:epsilon=1e-50", "epsilon takes a number from"},
        {"adam:beta1=x", "takes a number"},
        {"adam:beta1=", "takes a number"},
        {"adam:lr", "has no value"},
        {"sgd:lr=inf", "takes a number"},
        {"sgd:lr=nan", "takes a number"},
        {"sgd:lr=1e39", "from 0 up that a float holds"},
        {"sgd:lr=1,", "an option is empty"},
        {"sgd:lr=1,lr=1", "given twice"},
        {"adam:beta3=1", "did you mean 'beta1'"},
        {"sgd:lr=1x", "takes a number"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct gw_optimizer o;
        CHECK(gw_optimizer_parse(wrong[i].text, &o) == GW_ERR_SPEC && strstr(gw_last_error(), wrong[i].words),
              "\"%s\": %s", wrong[i].text, gw_last_error());
    }
}

RUN_TESTS("optimizer", NULL, NULL)
