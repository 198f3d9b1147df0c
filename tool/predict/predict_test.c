/* Tests the performance model: the example of docs/plan.md to the last digit, other cases computed with fractions,
 * the slowest of N, what a gain implies, the built-in clusters, and refusals. */
#include "model.h"
#include "networks.h"
#include "checks.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* True if two numbers differ by a few roundings of doubles at most. */
static bool same(double value, double expected)
{
    return fabs(value - expected) <= 4 * DBL_EPSILON * fabs(expected);
}

/* ---- the example --------------------------------------------------------------------------------------- */

/* docs/plan.md computes this example by hand. It has two machines with four GPUs each, and 60 million parameters. */
static gw_predict_options example(void)
{
    return (gw_predict_options){.cluster = {.gpus_per_machine = 4,
                                            .gpu_bandwidth = 12e9,
                                            .cpu_bandwidth = 6e9,
                                            .network_latency_s = 0.0005,
                                            .network_bandwidth = 125e6},
                                .gradient_bytes = 240e6,
                                .batch = 128,
                                .batch_seconds = 0.5};
}

static const gw_predict_codec sixteenth = {.bytes_up = 15e6, .bytes_down = 15e6};

static gw_prediction predicted(const gw_predict_options *options, const gw_predict_codec *codec, uint32_t gpus)
{
    gw_prediction p;
    CHECK(gw_predict(options, codec, gpus, &p) == GW_OK, "%u GPUs: %s", gpus, gw_last_error());
    return p;
}

/* Compares all 15 digits that a double promises. */
static void check_digits(const char *what, double value, const char *expected)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", value);
    CHECK(strcmp(text, expected) == 0, "%s is %s, and by hand %s", what, text, expected);
}

TEST(the_example_by_hand)
{
    gw_predict_options options = example();
    gw_prediction p = predicted(&options, NULL, 8);
    assert_true(p.gpus == 8 && p.machines == 2 && p.gpus_each == 4);
    check_digits("|g|/C_gwd * log2(i)", p.gpu_seconds, "0.04");
    check_digits("|g|/C_cwd", p.cpu_seconds, "0.04");
    check_digits("the network", p.network_seconds, "1.9205");
    check_digits("computing", p.compute_seconds, "0.46");
    assert_true(p.codec_seconds == 0 && p.waiting_seconds == 0 && p.hidden_seconds == 0);
    check_digits("weak, float32", p.seconds, "2.4605");
    check_digits("weak, float32, samples a second", p.samples_per_second, "416.175574070311");
    p = predicted(&options, &sixteenth, 8);
    check_digits("the network with a ratio of 16", p.network_seconds, "0.1205");
    check_digits("weak, a ratio of 16", p.seconds, "0.6605");
    check_digits("weak, a ratio of 16, samples a second", p.samples_per_second, "1550.34065102195");

    options.scaling = GW_SCALING_STRONG, options.batch = 1024, options.batch_seconds = 4;
    p = predicted(&options, NULL, 8);
    check_digits("computing, an eighth of it", p.compute_seconds, "0.495");
    check_digits("strong, float32", p.seconds, "2.4955");
    check_digits("strong, float32, samples a second", p.samples_per_second, "410.338609497095");
    p = predicted(&options, &sixteenth, 8);
    check_digits("strong, a ratio of 16", p.seconds, "0.6955");
    check_digits("strong, a ratio of 16, samples a second", p.samples_per_second, "1472.32207045291");
}

/* If there are no other GPUs, a step is the one that was measured, with any codec and any owners. */
TEST(one_gpu_is_what_was_measured)
{
    gw_predict_options options = example();
    const gw_predict_codec slow = {.bytes_up = 1e6, .bytes_down = 1e6, .seconds = 3};
    for (int owners = GW_OWNERS_PAPER; owners <= GW_OWNERS_SHARDED; owners++)
        for (int scaling = GW_SCALING_WEAK; scaling <= GW_SCALING_STRONG; scaling++) {
            options.owners = (gw_owners)owners, options.scaling = (gw_scaling)scaling;
            options.overlap = 0.5, options.straggler_cv = 0.5;
            const gw_prediction p = predicted(&options, &slow, 1);
            CHECK(same(p.seconds, 0.5) && same(p.samples_per_second, 256), "owners %d, scaling %d: %.17g", owners,
                  scaling, p.seconds);
        }
}

/* ---- other cases --------------------------------------------------------------------------------------- */

/* These cases are drawn. The expected numbers were computed from the formulas in predict.h, with Python's fractions,
 * and with log2 to 60 digits. All inputs are exact doubles. */
static const struct computed {
    gw_cluster cluster;
    struct {
        double gradient_bytes;
        uint32_t batch;
        double batch_seconds;
        gw_scaling scaling;
        gw_owners owners;
        uint32_t servers;
        double overlap;
    } options;
    gw_predict_codec codec;
    struct {
        uint32_t gpus, machines;
        double network_seconds, seconds, samples_per_second;
    } p;
} computed[] = {
    {{4, 88595099918, 9797323216, 0x1.2a60000000000p-11, 4709252753},
     {162973069, 476, 0x1.43c0000000000p+2, GW_SCALING_STRONG, GW_OWNERS_RING, 0, 0.0},
     {11535643, 58202939, 0x1.ac00000000000p-3},
     {1, 1, 0.0, 5.05859375, 94.0972972972973}},
    {{4, 59201304782, 16313507023, 0x1.2a78000000000p-11, 4079265501},
     {98402358, 507, 0x1.6770000000000p+2, GW_SCALING_WEAK, GW_OWNERS_SERVERS, 50, 0.25},
     {6655765, 29673101, 0x1.7c00000000000p-6},
     {3, 1, 0.0, 5.618845407263578, 270.6961821789539}},
    {{4, 74634014884, 78815325120, 0x1.7220000000000p-13, 9924853944},
     {451047120, 845, 0x1.69c0000000000p+2, GW_SCALING_WEAK, GW_OWNERS_RING, 0, 1.0},
     {25215623, 49982353, 0x1.8e00000000000p-5},
     {4, 1, 0.0, 5.664430654897211, 596.7060426589924}},
    {{4, 78579087927, 82860363700, 0x1.1038000000000p-11, 5189553247},
     {765623112, 3503, 0x1.cdf0000000000p+2, GW_SCALING_STRONG, GW_OWNERS_SHARDED, 0, 0.5},
     {78592783, 60825378, 0x1.7200000000000p-3},
     {512, 128, 0.027693704749446404, 0.24647048705249333, 14212.65499935467}},
    {{1, 25886670375, 10638321147, 0x1.0ce0000000000p-11, 6772098351},
     {267746013, 4056, 0x1.dfa0000000000p+1, GW_SCALING_WEAK, GW_OWNERS_PAPER, 0, 0.0},
     {38646353, 81733096, 0x1.2a00000000000p-5},
     {16, 16, 0.03760294847305977, 3.82105021409806, 16983.81239811013}},
    {{8, 59033309628, 19648987694, 0x1.afd0000000000p-12, 8313332322},
     {127772164, 322, 0x1.9620000000000p+2, GW_SCALING_STRONG, GW_OWNERS_SERVERS, 3, 0.5},
     {74903660, 76910240, 0x1.4100000000000p-3},
     {100000, 12500, 76.09039782932184, 76.26017433092751, 4.222387410271263}},
    {{6, 80442613323, 64552167133, 0x1.0a00000000000p-14, 5464347649},
     {639199795, 498, 0x1.b650000000000p+2, GW_SCALING_WEAK, GW_OWNERS_RING, 0, 0.5},
     {86856165, 77570630, 0x1.c800000000000p-3},
     {18, 3, 0.020314235439243947, 6.86917301417034, 1304.960579899249}},
    {{3, 51116481822, 50227606418, 0x1.df80000000000p-14, 9321696870},
     {770473236, 4045, 0x1.7880000000000p+0, GW_SCALING_STRONG, GW_OWNERS_SHARDED, 0, 0.75},
     {38578461, 17359751, 0x1.fb00000000000p-4},
     {99999, 33333, 0.006229324904532565, 0.16924550480036377, 23900.191646279436}},
    {{2, 11722414652, 61844079898, 0x1.a940000000000p-12, 6668142303},
     {420779047, 2940, 0x1.9d80000000000p+2, GW_SCALING_WEAK, GW_OWNERS_PAPER, 0, 0.0},
     {30970944, 20256262, 0x1.5200000000000p-5},
     {2, 1, 0.0, 6.49683275362236, 905.0563902420854}},
    {{4, 31714592701, 33893078665, 0x1.2da0000000000p-11, 4356777758},
     {190212348, 1494, 0x1.8d00000000000p+1, GW_SCALING_STRONG, GW_OWNERS_SERVERS, 50, 1.0},
     {19552355, 56230048, 0x1.7a00000000000p-3},
     {8, 2, 0.018544748229946124, 0.40460118303415515, 3692.5250410695935}},
    {{4, 22273393600, 89551886580, 0x1.1e58000000000p-11, 4536864997},
     {343106685, 3215, 0x1.0bc0000000000p+2, GW_SCALING_STRONG, GW_OWNERS_RING, 0, 0.0},
     {13896514, 64628899, 0x1.9a00000000000p-3},
     {64, 16, 0.03261125051746938, 0.33275538139239763, 9661.752085111288}},
    {{1, 62026173194, 14581988773, 0x1.8000000000000p-23, 235810525},
     {205665439, 4644, 0x1.1ae0000000000p+1, GW_SCALING_WEAK, GW_OWNERS_SHARDED, 0, 0.0},
     {48802898, 82374422, 0x1.a000000000000p-7},
     {7, 7, 0.4768141167132312, 2.699470366713231, 12042.36223551528}},
    {{5, 83497528604, 19795761994, 0x1.63b0000000000p-12, 7029735687},
     {939807245, 4934, 0x1.f4e0000000000p+1, GW_SCALING_STRONG, GW_OWNERS_PAPER, 0, 0.0},
     {15482487, 65507386, 0x1.dd00000000000p-3},
     {25, 5, 0.014163135685372351, 0.4753073807159324, 10380.650922289815}},
};

TEST(cases_computed_with_fractions)
{
    for (size_t i = 0; i < sizeof computed / sizeof *computed; i++) {
        const struct computed *c = &computed[i];
        const gw_predict_options options = {.cluster = c->cluster,
                                            .gradient_bytes = c->options.gradient_bytes,
                                            .batch = c->options.batch,
                                            .batch_seconds = c->options.batch_seconds,
                                            .scaling = c->options.scaling,
                                            .owners = c->options.owners,
                                            .servers = c->options.servers,
                                            .overlap = c->options.overlap};
        const gw_prediction p = predicted(&options, &c->codec, c->p.gpus);
        CHECK(p.gpus == c->p.gpus && p.machines == c->p.machines, "case %zu: %u machines", i, p.machines);
        CHECK(same(p.network_seconds, c->p.network_seconds), "case %zu: network %.17g", i, p.network_seconds);
        CHECK(same(p.seconds, c->p.seconds), "case %zu: %.17g seconds", i, p.seconds);
        CHECK(same(p.samples_per_second, c->p.samples_per_second), "case %zu: %.17g a second", i, p.samples_per_second);
    }
}

/* Computed by hand, beside the example's 2.4605 seconds. C is 0.46, and the network moves |g| in 1.92 s. */
TEST(what_the_paper_leaves_out)
{
    gw_predict_options options = example();
    const double rest = 0.46 + 0.08;
    options.owners = GW_OWNERS_SERVERS; /* one server's link carries 4 x 1.92 each way for four machines */
    assert_true(same(predicted(&options, NULL, 16).seconds, rest + 0.001 + 8 * 1.92));
    options.servers = 2;
    assert_true(same(predicted(&options, NULL, 16).seconds, rest + 0.001 + 4 * 1.92));
    options.servers = 100; /* then a worker's own link is the narrowest */
    assert_true(same(predicted(&options, NULL, 16).seconds, rest + 0.001 + 2 * 1.92));
    options.servers = 0;
    options.owners = GW_OWNERS_RING;
    assert_true(same(predicted(&options, NULL, 16).seconds, rest + 6 * 0.0005 + 1.5 * 1.92));
    options.owners = GW_OWNERS_SHARDED;
    assert_true(same(predicted(&options, NULL, 16).seconds, rest + 0.001 + 1.5 * 1.92));

    options.owners = GW_OWNERS_PAPER;
    options.overlap = 0.75; /* of 0.46 * 2/3 */
    assert_true(same(predicted(&options, NULL, 8).seconds, 2.4605 - 0.23));
    const gw_predict_codec coded = {.bytes_up = 10e6, .bytes_down = 20e6, .seconds = 0.1};
    assert_true(same(predicted(&options, &coded, 8).hidden_seconds, 0.2205)); /* all of the network and the codec */
    assert_true(same(predicted(&options, &coded, 8).seconds, rest));
    options.overlap = 0;
    assert_true(same(predicted(&options, &coded, 8).seconds, 0.6605 + 0.1));

    options.straggler_cv = 0.1; /* the next test has this number for two: 1.0562... */
    assert_true(fabs(predicted(&options, NULL, 2).waiting_seconds / (0.46 * 0.056232038717599) - 1) < 1e-9);
}

/* For two there is a closed form. The others were integrated in Python in another way: over 1 - F(x)^n. */
TEST(the_slowest_of_many)
{
    static const struct {
        double cv;
        uint32_t gpus;
        double slowest_by_mean;
    } cases[] = {{0.1, 2, 1.056232038717599},
                 {0.1, 512, 1.3489745096216086},
                 {0.05, 100000, 1.24349176206097},
                 {1.0, 8, 2.656499053206328},
                 {3.0, 100, 18.234594524503557},
                 {10, 2, 1.8712540122678616},
                 {0.5, 2, 2 * 0.6308191307112413},
                 {0, 512, 1},
                 {0.7, 1, 1}};
    gw_predict_options options = example();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        options.straggler_cv = cases[i].cv;
        const gw_prediction p = predicted(&options, NULL, cases[i].gpus);
        const double slowest = 1 + p.waiting_seconds / p.compute_seconds;
        CHECK(fabs(slowest / cases[i].slowest_by_mean - 1) < 1e-9, "cv %g, %u GPUs: %.17g", cases[i].cv, cases[i].gpus,
              slowest);
    }
    for (options.straggler_cv = 1e-320; options.straggler_cv < 1e-3; options.straggler_cv *= 1e4) /* it rounds */
        for (uint32_t gpus = 4; gpus < 600; gpus += 96)
            CHECK(predicted(&options, NULL, gpus).waiting_seconds >= 0, "cv %g", options.straggler_cv);
}

/* ---- what a gain implies ------------------------------------------------------------------------------- */

TEST(a_gain_implies_a_time)
{
    gw_predict_options options = example();
    double seconds;
    assert_int_equal(gw_predict_implied(&options, &sixteenth, 8, 2.4605 / 0.6605, &seconds), GW_OK);
    CHECK(fabs(seconds / 0.5 - 1) < 1e-12, "%.17g", seconds);
    for (int scaling = GW_SCALING_WEAK; scaling <= GW_SCALING_STRONG; scaling++)
        for (uint32_t gpus = 8; gpus <= 512; gpus *= 4) {
            options.scaling = (gw_scaling)scaling, options.straggler_cv = scaling ? 0.2 : 0;
            const double gain = 3.04;
            assert_int_equal(gw_predict_implied(&options, &sixteenth, gpus, gain, &seconds), GW_OK);
            gw_predict_options implied = options;
            implied.batch_seconds = seconds;
            const double ratio =
                predicted(&implied, NULL, gpus).seconds / predicted(&implied, &sixteenth, gpus).seconds;
            CHECK(fabs(ratio / gain - 1) < 1e-12, "%u GPUs, scaling %d: %.17g", gpus, scaling, ratio);
        }
    /* This codec takes time itself. */
    gw_predict_codec slow = sixteenth;
    slow.seconds = 0.03;
    options = example();
    assert_int_equal(gw_predict_implied(&options, &slow, 8, 1.7, &seconds), GW_OK);
    options.batch_seconds = seconds;
    const double ratio = predicted(&options, NULL, 8).seconds / predicted(&options, &slow, 8).seconds;
    CHECK(fabs(ratio / 1.7 - 1) < 1e-12, "%.17g", ratio);
    options = example();
    for (int i = 0; i < 5; i++)
        CHECK(gw_predict_implied(&options, &sixteenth, 8, (const double[]){1, 0.5, 11, NAN, INFINITY}[i], &seconds) ==
                  GW_ERR_ARGUMENT,
              "case %d", i);
    assert_int_equal(gw_predict_implied(&options, &sixteenth, 4, 2, &seconds), GW_ERR_ARGUMENT); /* there is nothing
                                                                                                  * to gain */
    assert_int_equal(gw_predict_implied(&options, &sixteenth, 9, 2, &seconds), GW_ERR_ARGUMENT);
    options.overlap = 0.5;
    assert_int_equal(gw_predict_implied(&options, &sixteenth, 8, 2, &seconds), GW_ERR_ARGUMENT);
}

/* ---- clusters and speeds ------------------------------------------------------------------------------- */

/* Every built-in cluster predicts every network whose speed on its GPU is known. */
TEST(what_is_built_in_works)
{
    static const char *const clusters[] = {"eth-1g-gtx1080", "ib-100g-p100"};
    const gw_cluster_info *cluster, *found;
    static const char *const networks[] = {"alexnet", "googlenet", "vgg-a", "vgg16-imagenet", "resnet50"};
    const gw_gpu_speed *speed;
    const gw_network_info *network;
    size_t n_figure_5 = 0;
    for (size_t n = 0; n < sizeof clusters / sizeof *clusters; n++) {
        assert_int_equal(gw_cluster_find(clusters[n], &cluster), GW_OK);
        assert_non_null(strstr(cluster->assumed, "assumed"));
        assert_int_equal(cluster->cluster.gpus_per_machine, 4);
        for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
            assert_int_equal(gw_network_find(networks[i], &network), GW_OK);
            const gw_network_totals totals = gw_network_tensors(network, NULL);
            assert_int_equal(gw_gpu_speed_find(networks[i], cluster->gpu, &speed), GW_OK);
            assert_true(strlen(speed->source) > 5);
            gw_predict_options options = {.cluster = cluster->cluster,
                                          .gradient_bytes = 4.0 * (double)totals.n_params,
                                          .batch = speed->batch};
            options.batch_seconds =
                speed->batch / speed->images_per_second + options.gradient_bytes / cluster->cluster.cpu_bandwidth;
            const gw_predict_codec coded = {.bytes_up = options.gradient_bytes / 16,
                                            .bytes_down = options.gradient_bytes / 16};
            CHECK(predicted(&options, NULL, 512).seconds > predicted(&options, &coded, 512).seconds, "%s on %s",
                  speed->network, cluster->name);
            const uint32_t batch = strcmp(speed->network, "alexnet") == 0     ? 128
                                   : strcmp(speed->network, "googlenet") == 0 ? 64
                                   : strcmp(speed->network, "vgg-a") == 0     ? 32
                                                                              : 0;
            n_figure_5 += batch && speed->batch == batch;
        }
    }
    assert_int_equal(n_figure_5, 6);
    assert_int_equal(gw_cluster_find("eth-1g", &found), GW_ERR_ARGUMENT);
    assert_int_equal(gw_cluster_find("ib-100g-p10", &found), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "did you mean 'ib-100g-p100'? There are eth-1g-gtx1080, ib-100g-p100"));
    assert_int_equal(gw_gpu_speed_find("vgg16", "p100", &speed), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "resnet50 on p100"));
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

#define REFUSED(change, says)                                                                                          \
    do {                                                                                                               \
        gw_predict_options options = example();                                                                        \
        gw_predict_codec codec = sixteenth;                                                                            \
        uint32_t gpus = 8;                                                                                             \
        change;                                                                                                        \
        CHECK(gw_predict(&options, &codec, gpus, &p) == GW_ERR_ARGUMENT, #change);                                     \
        CHECK(strstr(gw_last_error(), says), "%s: %s", #change, gw_last_error());                                      \
    } while (0)

TEST(what_is_not_legal_is_refused)
{
    gw_prediction p;
    REFUSED(gpus = 0, "from 1 to 100000");
    REFUSED(gpus = GW_MAX_GPUS + 4, "from 1 to 100000");
    REFUSED(gpus = 6, "6 GPUs do not fill machines of 4");
    REFUSED(options.cluster.gpus_per_machine = 0, "gpus_per_machine is 0");
    REFUSED(options.cluster.gpus_per_machine = GW_MAX_GPUS_PER_MACHINE + 1, "gpus_per_machine is 1025");
    for (int i = 0; i < 4; i++) {
        const double bad = (const double[]){0, -1, NAN, INFINITY}[i];
        REFUSED(options.cluster.gpu_bandwidth = bad, "gpu_bandwidth");
        REFUSED(options.cluster.cpu_bandwidth = bad, "cpu_bandwidth");
        REFUSED(options.cluster.network_bandwidth = bad, "network_bandwidth");
        REFUSED(options.gradient_bytes = bad, "gradient_bytes");
        REFUSED(options.batch_seconds = bad, "batch_seconds");
        if (i == 0)
            continue;
        REFUSED(options.cluster.network_latency_s = bad, "network_latency_s");
        REFUSED(options.overlap = bad, "overlap");
        REFUSED(options.straggler_cv = bad, "--stragglers");
        REFUSED(codec.bytes_up = bad, "bytes_up");
        REFUSED(codec.bytes_down = bad, "bytes_down");
        REFUSED(codec.seconds = bad, "the codec's time");
    }
    REFUSED(options.overlap = 1.5, "from 0 to 1");
    REFUSED(options.straggler_cv = 1.05 * GW_MAX_STRAGGLER_CV, "from 0 to 10");
    REFUSED(options.batch = 0, "batch");
    REFUSED(options.batch_seconds = 0.039, "to copy the gradient to the processor alone takes 0.04");
    const gw_predict_options options = example();
    assert_int_equal(gw_predict(&options, NULL, GW_MAX_GPUS, &p), GW_OK);
}

RUN_TESTS("predict", NULL, NULL)
