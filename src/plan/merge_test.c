/* Tests plans: the exact one against all plans there are, the others against what they are made of, and what is
 * refused. */
#include "plan/timeline.h"
#include "plan/profile.h"
#include "checks.h"
#include "shortage.h"

#include <gradwire/gradwire.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 16, PROFILES = 10000, MOST_OF_ALL_PLANS = 14 };

static const char *const names[MOST] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"};

/* A profile that has its own memory. */
struct drawn {
    gw_profile_layer layers[MOST];
    gw_profile_codec codec;
    gw_profile profile;
};

/* Most costs are of the size of real ones. Some are 0 and some are equal, so that plans tie. */
static double draw_cost(struct numbers *numbers, double most)
{
    const uint32_t kind = numbers_below(numbers, 6);
    return kind == 0 ? 0 : kind == 1 ? most / 2 : most * (double)numbers_unit(numbers);
}

static void draw_profile(struct numbers *numbers, bool measures, struct drawn *d)
{
    const uint32_t n = 1 + numbers_below(numbers, MOST_OF_ALL_PLANS);
    for (uint32_t l = 0; l < n; l++)
        d->layers[l] = (gw_profile_layer){.name = names[l],
                                          .n_elems = 1 + (numbers_word(numbers) >> (8 + numbers_below(numbers, 20))),
                                          .backward_ms = draw_cost(numbers, 2)};
    d->codec = (gw_profile_codec){.spec = "c",
                                  .compress_ms_fixed = draw_cost(numbers, 1),
                                  .compress_ms_per_element = draw_cost(numbers, 1e-6),
                                  .decompress_ms_per_element = draw_cost(numbers, 1e-6),
                                  .bytes_per_element = draw_cost(numbers, 8)};
    if (measures) {
        d->codec.measure_ms_fixed = draw_cost(numbers, 0.3);
        d->codec.measure_ms_per_element = draw_cost(numbers, 1e-6);
    }
    d->codec.busy_ms_per_element = numbers_below(numbers, 2) ? 0 : draw_cost(numbers, 4e-6);
    d->profile = (gw_profile){.struct_bytes = sizeof d->profile,
                              .forward_ms = draw_cost(numbers, 5),
                              .layers = d->layers,
                              .n_layers = n,
                              .link = {.alpha_ms = draw_cost(numbers, 2),
                                       .ms_per_byte = draw_cost(numbers, 1e-6),
                                       .latency_ms = draw_cost(numbers, 1),
                                       .run_elements = numbers_below(numbers, 3) ? 0 : 1 << numbers_below(numbers, 20),
                                       .members = 4},
                              .codecs = &d->codec,
                              .n_codecs = 1};
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The length of a plan's step, computed from the words of the model alone. Bit l of `ends`: a group ends with layer
 * l. */
static double step_by_words(const gw_profile *p, uint32_t ends, bool beside)
{
    const gw_profile_codec *c = p->codecs;
    double backward = p->forward_ms; /* when backward is done with the layer */
    double encoder = p->forward_ms, link = 0, n_elems = 0;
    double done = p->forward_ms, work = 0; /* done: when backward is done if nothing holds it up; work: when the
                                            * processors are done */
    for (uint32_t l = p->n_layers; l-- > 0;) {
        const double n = (double)p->layers[l].n_elems;
        if (!beside)
            backward = encoder; /* backward waits for the encoder */
        backward += p->layers[l].backward_ms;
        done += p->layers[l].backward_ms;
        work = larger(work, done) + c->busy_ms_per_element * n;
        encoder = larger(encoder, backward) + (c->measure_ms_fixed + c->measure_ms_per_element * n);
        n_elems += n;
        if (l > 0 && !(ends >> l & 1))
            continue;
        encoder += c->compress_ms_fixed + c->compress_ms_per_element * n_elems;
        const double measured = encoder - (c->compress_ms_fixed + c->compress_ms_per_element * n_elems);
        const double run = (double)p->link.run_elements;
        const double send = p->link.ms_per_byte * c->bytes_per_element + c->decompress_ms_per_element;
        const bool runs = run > 0 && run < n_elems;
        const double first = runs ? measured + c->compress_ms_fixed + c->compress_ms_per_element * run : encoder;
        link = larger(link, first) + p->link.alpha_ms + send * n_elems;
        if (runs) /* the last run is sent after it is encoded */
            link = larger(link, encoder + send * run);
        n_elems = 0;
    }
    return larger(link + p->link.latency_ms, c->busy_ms_per_element > 0 ? work : 0);
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * larger(fabs(a), fabs(b));
}

static uint32_t ends_of(const uint32_t *group_of, uint32_t n)
{
    uint32_t ends = 1;
    for (uint32_t l = 1; l < n; l++)
        ends |= (uint32_t)(group_of[l - 1] != group_of[l]) << l;
    return ends;
}

/* Makes a plan. Checks that its groups, its number of groups and its step belong together. */
static double merge(const gw_profile *p, gw_compress compress, gw_merge method, uint64_t bytes, uint32_t *group_of)
{
    double step, again;
    uint32_t n_groups;
    gw_group_times times[MOST];
    gw_status status = gw_plan_merge(NULL, p, 0, compress, method, bytes, group_of, &n_groups, &step);
    CHECK(status == GW_OK, "%s: %s", gw_merge_name(method), gw_last_error());
    assert_int_equal(group_of[p->n_layers - 1], 0);
    assert_int_equal(group_of[0] + 1, n_groups);
    assert_int_equal(gw_plan_timeline(p, 0, compress, group_of, times, n_groups, &again), GW_OK);
    assert_true(step == again && step == times[n_groups - 1].arrived);
    uint32_t l = p->n_layers;
    for (uint32_t g = 0; g < n_groups; g++) {
        const gw_group_times *t = &times[g];
        uint64_t n_elems = 0;
        assert_int_equal(t->first_layer + t->n_layers, l);
        while (l > t->first_layer)
            n_elems += p->layers[--l].n_elems;
        assert_int_equal(t->n_elems, n_elems);
        assert_true(t->ready <= t->encode_begin && t->encode_begin <= t->encode_end &&
                    t->encode_begin <= t->send_begin);
        assert_true(p->link.run_elements > 0 || t->encode_end <= t->send_begin);
        assert_true(t->encode_end <= t->send_end && t->send_begin <= t->send_end && t->send_end <= t->arrived);
        assert_true(g == 0 || t->send_begin >= times[g - 1].send_end);
    }
    assert_int_equal(l, 0);
    return step;
}

TEST(exact_is_the_best_of_all_plans)
{
    struct numbers numbers = numbers_from(20261123);
    struct drawn d;
    uint32_t group_of[MOST];
    for (uint32_t i = 0; i < PROFILES; i++) {
        draw_profile(&numbers, i % 2, &d);
        for (int beside = 0; beside < 2; beside++) {
            const gw_compress compress = beside ? GW_COMPRESS_BESIDE : GW_COMPRESS_INLINE;
            const double step = merge(&d.profile, compress, GW_MERGE_EXACT, 0, group_of);
            double best = INFINITY;
            for (uint32_t ends = 1; ends < 1u << d.profile.n_layers; ends += 2) {
                const double one = step_by_words(&d.profile, ends, beside);
                best = one < best ? one : best;
            }
            CHECK(near(step, best), "profile %u, %s: %.17g, and the best of all plans takes %.17g", i,
                  gw_compress_name(compress), step, best);
            CHECK(near(step, step_by_words(&d.profile, ends_of(group_of, d.profile.n_layers), beside)),
                  "profile %u: the step is not its plan's", i);
            for (gw_merge method = GW_MERGE_PAPER; method <= GW_MERGE_SINGLE; method++)
                CHECK(merge(&d.profile, compress, method, 0, group_of) >= step, "profile %u: %s is better", i,
                      gw_merge_name(method));
        }
    }
}

/* Algorithm 2, by the words of the model. From the last layer down, a layer joins the one before it if the whole step,
 * with what was decided so far, gets shorter. If both steps are equal but for a rounding, either is right. */
static void check_paper(const gw_profile *p, bool beside, uint32_t decided, uint32_t profile)
{
    uint32_t ends = (1u << p->n_layers) - 1;
    for (uint32_t l = p->n_layers - 1; l > 0; l--) {
        const bool joins = !(decided >> l & 1);
        const double joined = step_by_words(p, ends & ~(1u << l), beside), apart = step_by_words(p, ends, beside);
        CHECK(near(joined, apart) || joins == (joined < apart), "profile %u, layer %u: %.17g joined, %.17g apart",
              profile, l, joined, apart);
        if (joins)
            ends &= ~(1u << l);
    }
}

TEST(paper_follows_algorithm_2)
{
    struct numbers numbers = numbers_from(2024);
    struct drawn d;
    uint32_t group_of[MOST];
    for (uint32_t i = 0; i < 2000; i++) {
        draw_profile(&numbers, i % 2, &d);
        for (int beside = 0; beside < 2; beside++) {
            const double step =
                merge(&d.profile, beside ? GW_COMPRESS_BESIDE : GW_COMPRESS_INLINE, GW_MERGE_PAPER, 0, group_of);
            const uint32_t decided = ends_of(group_of, d.profile.n_layers);
            check_paper(&d.profile, beside, decided, i);
            assert_true(near(step, step_by_words(&d.profile, decided, beside)));
        }
    }
}

/* The worked example of docs/plan.md. The test checks every number of it. */
static const gw_profile_layer example_layers[] = {{"conv1", 1000, 3},
                                                  {"conv2", 2000, 2},
                                                  {"fc1", 8000, 1},
                                                  {"fc2", 1000, 1}};
static const gw_profile_codec example_codec = {.spec = "example",
                                               .compress_ms_fixed = 0.5,
                                               .compress_ms_per_element = 0.00025,
                                               .decompress_ms_per_element = 0.000125,
                                               .bytes_per_element = 2};
static const gw_profile example = {.struct_bytes = sizeof example,
                                   .forward_ms = 4,
                                   .layers = example_layers,
                                   .n_layers = 4,
                                   .link = {.alpha_ms = 1, .ms_per_byte = 0.0001875, .members = 4},
                                   .codecs = &example_codec,
                                   .n_codecs = 1};

TEST(the_example_of_the_docs)
{
    static const struct {
        gw_merge method;
        gw_compress compress;
        uint32_t group_of[4];
        double step_ms;
    } expected[] = {
        {GW_MERGE_NONE, GW_COMPRESS_INLINE, {3, 2, 1, 0}, 17.75},
        {GW_MERGE_NONE, GW_COMPRESS_BESIDE, {3, 2, 1, 0}, 17},
        {GW_MERGE_SINGLE, GW_COMPRESS_INLINE, {0, 0, 0, 0}, 21.5},
        {GW_MERGE_SINGLE, GW_COMPRESS_BESIDE, {0, 0, 0, 0}, 21.5},
        {GW_MERGE_PAPER, GW_COMPRESS_INLINE, {3, 2, 1, 0}, 17.75},
        {GW_MERGE_PAPER, GW_COMPRESS_BESIDE, {2, 2, 1, 0}, 16},
        {GW_MERGE_EXACT, GW_COMPRESS_INLINE, {1, 1, 0, 0}, 17.5},
        {GW_MERGE_EXACT, GW_COMPRESS_BESIDE, {2, 2, 1, 0}, 16},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        uint32_t group_of[4];
        const double step = merge(&example, expected[i].compress, expected[i].method, 0, group_of);
        CHECK(near(step, expected[i].step_ms), "row %zu: %.17g", i, step);
        CHECK(memcmp(group_of, expected[i].group_of, sizeof group_of) == 0, "row %zu: %u %u %u %u", i, group_of[0],
              group_of[1], group_of[2], group_of[3]);
    }
}

TEST(buckets_end_where_they_are_full)
{
    uint32_t group_of[4];
    static const struct {
        uint64_t bytes;
        uint32_t group_of[4];
    } expected[] = {
        {1, {3, 2, 1, 0}},     {4000, {3, 2, 1, 0}},  {4001, {2, 1, 0, 0}},       {8000, {2, 1, 0, 0}},
        {8001, {1, 1, 0, 0}},  {36000, {1, 1, 0, 0}}, {36001, {1, 0, 0, 0}},      {44000, {1, 0, 0, 0}},
        {44001, {0, 0, 0, 0}}, {48001, {0, 0, 0, 0}}, {UINT64_MAX, {0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        merge(&example, GW_COMPRESS_BESIDE, GW_MERGE_FIXED, expected[i].bytes, group_of);
        for (uint32_t l = 0; l < 4; l++)
            CHECK(group_of[l] == expected[i].group_of[l], "%llu bytes, layer %u: group %u",
                  (unsigned long long)expected[i].bytes, l, group_of[l]);
    }
}

/* As many layers as there may be. The test of all plans does not reach so many. */
TEST(many_layers)
{
    static gw_profile_layer layers[GW_PLAN_MAX_LAYERS];
    static char texts[GW_PLAN_MAX_LAYERS][16];
    static uint32_t group_of[GW_PLAN_MAX_LAYERS];
    struct numbers numbers = numbers_from(500);
    for (uint32_t l = 0; l < GW_PLAN_MAX_LAYERS; l++) {
        snprintf(texts[l], sizeof texts[l], "layer-%u", l);
        layers[l] = (gw_profile_layer){texts[l], 1 + (numbers_word(&numbers) >> (12 + numbers_below(&numbers, 12))),
                                       (double)numbers_unit(&numbers)};
    }
    const gw_profile_codec codec = {"c", 0.05, 1e-6, 1e-6, 0.5, 0.01, 1e-6, 1e-6};
    static const uint32_t sizes[] = {500, GW_PLAN_MAX_LAYERS};
    for (size_t i = 0; i < 2; i++)
        for (gw_compress compress = GW_COMPRESS_INLINE; compress <= GW_COMPRESS_BESIDE; compress++) {
            const gw_profile p = {.struct_bytes = sizeof p,
                                  .forward_ms = 50,
                                  .layers = layers,
                                  .n_layers = sizes[i],
                                  .link = {.alpha_ms = 0.5, .ms_per_byte = 8e-6, .members = 4},
                                  .codecs = &codec,
                                  .n_codecs = 1};
            double exact, step;
            assert_int_equal(gw_plan_merge(NULL, &p, 0, compress, GW_MERGE_EXACT, 0, group_of, NULL, &exact), GW_OK);
            for (gw_merge method = GW_MERGE_PAPER; method <= GW_MERGE_FIXED; method++) {
                const uint64_t bytes = method == GW_MERGE_FIXED ? 25 << 20 : 0;
                assert_int_equal(gw_plan_merge(NULL, &p, 0, compress, method, bytes, group_of, NULL, &step), GW_OK);
                CHECK(step >= exact, "%u layers, %s: %.17g is better than %.17g", sizes[i], gw_merge_name(method), step,
                      exact);
            }
        }
}

static void refused(const gw_profile *p, const char *says)
{
    uint32_t group_of[MOST];
    CHECK(gw_plan_merge(NULL, p, 0, GW_COMPRESS_BESIDE, GW_MERGE_EXACT, 0, group_of, NULL, NULL) == GW_ERR_ARGUMENT,
          "%s", says);
    CHECK(strstr(gw_last_error(), says), "\"%s\" does not say \"%s\"", gw_last_error(), says);
    assert_int_equal(gw_profile_check(p), GW_ERR_ARGUMENT);
}

TEST(odd_profiles_are_refused)
{
    static const double odd[] = {-1, NAN, INFINITY, -INFINITY, -1e-300};
    gw_profile_layer layers[4];
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        gw_profile_codec codec = example_codec;
        gw_profile p = example;
        p.codecs = &codec;
        p.layers = layers;
        double *const places[] = {&p.forward_ms,
                                  &p.link.alpha_ms,
                                  &p.link.ms_per_byte,
                                  &p.link.latency_ms,
                                  &codec.compress_ms_fixed,
                                  &codec.compress_ms_per_element,
                                  &codec.decompress_ms_per_element,
                                  &codec.bytes_per_element,
                                  &codec.measure_ms_fixed,
                                  &codec.measure_ms_per_element,
                                  &codec.busy_ms_per_element,
                                  &layers[2].backward_ms};
        static const char *const says[] = {"forward_ms",
                                           "alpha_ms",
                                           "ms_per_byte",
                                           "latency_ms",
                                           "compress_ms_fixed",
                                           "compress_ms_per_element",
                                           "decompress_ms_per_element",
                                           "bytes_per_element",
                                           "measure_ms_fixed",
                                           "measure_ms_per_element",
                                           "busy_ms_per_element",
                                           "fc1: backward_ms"};
        for (size_t k = 0; k < sizeof places / sizeof *places; k++) {
            memcpy(layers, example_layers, sizeof layers);
            const double kept = *places[k];
            *places[k] = odd[i];
            refused(&p, says[k]);
            *places[k] = kept;
        }
    }
    gw_profile p = example;
    p.n_layers = 0;
    refused(&p, "0 layers");
    p.n_layers = 100000;
    refused(&p, "100000 layers, and must have 1 to 2048");
    p = example;
    p.n_codecs = 0;
    refused(&p, "0 codecs");
    p.n_codecs = GW_PLAN_MAX_CODECS + 1;
    refused(&p, "65 codecs");
    p = example;
    p.link.members = 0;
    refused(&p, "0 members");
    p = example;
    p.layers = layers;
    memcpy(layers, example_layers, sizeof layers);
    layers[3].name = "conv1";
    refused(&p, "two layers have the name \"conv1\"");
    layers[3].name = "";
    refused(&p, "layer 3 of the profile has no name");
    layers[3] = (gw_profile_layer){.name = "x", .n_elems = 0};
    refused(&p, "\"x\" has 0 elements");
    layers[3].n_elems = GW_MAX_ELEMENTS + 1;
    refused(&p, "\"x\" has 17179869185 elements");
    const gw_profile_codec twice[] = {example_codec, example_codec};
    p = example;
    p.codecs = twice;
    p.n_codecs = 2;
    refused(&p, "two codecs have the name \"example\"");
    assert_int_equal(gw_profile_check(NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_profile_check(&example), GW_OK);
}

/* Times that are finite, with a sum that is not. The test takes any two of them. */
TEST(times_beyond_all_numbers_are_refused)
{
    enum { N = 9 };
    uint32_t group_of[4];
    for (int a = 0; a < N; a++)
        for (int b = 0; b <= a; b++) {
            gw_profile_codec codec = example_codec;
            gw_profile p = example;
            gw_profile_layer layers[4];
            memcpy(layers, example_layers, sizeof layers);
            p.codecs = &codec;
            p.layers = layers;
            const struct {
                double *place, much;
            } times[N] = {{&p.forward_ms, 6e307},
                          {&p.link.latency_ms, 6e307},
                          {&layers[1].backward_ms, 6e307},
                          {&p.link.alpha_ms, 1.5e307}, /* four layers, one after the other */
                          {&codec.measure_ms_fixed, 1.5e307},
                          {&codec.compress_ms_fixed, 1.5e307},
                          {&codec.measure_ms_per_element, 5e303}, /* 12,000 elements */
                          {&codec.compress_ms_per_element, 5e303},
                          {&codec.decompress_ms_per_element, 5e303}};
            *times[a].place = times[a].much;
            *times[b].place = times[b].much;
            const gw_status status =
                gw_plan_merge(NULL, &p, 0, GW_COMPRESS_INLINE, GW_MERGE_SINGLE, 0, group_of, NULL, NULL);
            CHECK(status == (a == b ? GW_OK : GW_ERR_ARGUMENT), "times %d and %d: %d", a, b, status);
            CHECK(a == b || strstr(gw_last_error(), "more milliseconds than a number can hold"), "times %d and %d: %s",
                  a, b, gw_last_error());
        }
}

TEST(odd_plans_are_refused)
{
    static const uint32_t odd[][4] = {{0, 0, 0, 1}, {2, 0, 0, 0}, {0, 1, 0, 0}, {3, 2, 1, 1}, {4, 3, 1, 0}};
    static const uint32_t plan[4] = {1, 1, 0, 0};
    gw_group_times times[4];
    uint32_t group_of[4];
    double step;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        CHECK(gw_plan_timeline(&example, 0, GW_COMPRESS_INLINE, odd[i], NULL, 0, &step) == GW_ERR_ARGUMENT, "plan %zu",
              i);
    assert_int_equal(gw_plan_timeline(&example, 0, GW_COMPRESS_INLINE, plan, times, 1, &step), GW_ERR_CAPACITY);
    assert_int_equal(gw_plan_timeline(&example, 0, GW_COMPRESS_INLINE, plan, times, 2, &step), GW_OK);
    assert_int_equal(gw_plan_timeline(&example, 1, GW_COMPRESS_INLINE, plan, NULL, 0, &step), GW_ERR_ARGUMENT);
    assert_int_equal(gw_plan_timeline(&example, 0, (gw_compress)3, plan, NULL, 0, &step), GW_ERR_ARGUMENT);
    assert_int_equal(gw_plan_timeline(&example, 0, GW_COMPRESS_INLINE, NULL, NULL, 0, &step), GW_ERR_ARGUMENT);
    assert_int_equal(gw_plan_timeline(&example, 0, GW_COMPRESS_INLINE, plan, NULL, 0, NULL), GW_ERR_ARGUMENT);
    for (int method = 0; method <= 6; method += 6)
        assert_int_equal(gw_plan_merge(NULL, &example, 0, GW_COMPRESS_INLINE, (gw_merge)method, 0, group_of, NULL,
                                       NULL),
                         GW_ERR_ARGUMENT);
    assert_int_equal(gw_plan_merge(NULL, &example, 0, GW_COMPRESS_INLINE, GW_MERGE_FIXED, 0, group_of, NULL, NULL),
                     GW_ERR_ARGUMENT);
    assert_int_equal(gw_plan_merge(NULL, &example, 0, GW_COMPRESS_INLINE, GW_MERGE_EXACT, 1, group_of, NULL, NULL),
                     GW_ERR_ARGUMENT);
    assert_int_equal(gw_plan_merge(NULL, &example, 0, GW_COMPRESS_INLINE, GW_MERGE_EXACT, 0, NULL, NULL, NULL),
                     GW_ERR_ARGUMENT);
}

TEST(a_shortage_leaves_nothing_behind)
{
    struct numbers numbers = numbers_from(7);
    struct drawn d;
    uint32_t group_of[MOST];
    gw_status status = GW_ERR_MEMORY;
    do
        draw_profile(&numbers, true, &d);
    while (d.profile.n_layers < 12);
    for (int fail_at = 1; status != GW_OK; fail_at++) {
        struct shortage shortage = {0};
        gw_context *context = context_short_of(&shortage, 1);
        const int before = shortage.live;
        fail_nth(&shortage, fail_at);
        status = gw_plan_merge(context, &d.profile, 0, GW_COMPRESS_BESIDE, GW_MERGE_EXACT, 0, group_of, NULL, NULL);
        CHECK(status == GW_OK || status == GW_ERR_MEMORY, "call %d: %s", fail_at, gw_status_text(status));
        assert_int_equal(shortage.live, before);
        assert_true(fail_at < 1000);
        gw_context_destroy(context);
    }
}

RUN_TESTS("merge", NULL, NULL)
