/* Tests topk from step to step: error feedback loses nothing, thresholds are taken and reused as prescribed, steps
 * that are dropped leave no trace, and a saved state goes on as if nothing had happened. */
#include "codec/state.h"
#include "codec/codec.h"
#include "codec/topk/select.h"
#include "codecs.h"
#include "wire/bytes.h"
#include "wire/hash.h"
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define N 3000

static float magnitudes[N];

static int descending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x < y) - (x > y);
}

/* The k-th largest |x|, by sorting. */
static float kth_largest(const float *x, uint64_t n, uint64_t k)
{
    for (uint64_t i = 0; i < n; i++)
        magnitudes[i] = fabsf(x[i]);
    qsort(magnitudes, n, sizeof *magnitudes, descending);
    return magnitudes[k - 1];
}

static gw_encoder_condition condition_of(const gw_encoder *encoder)
{
    gw_encoder_condition condition;
    gw_encoder_describe(encoder, &condition);
    return condition;
}

/* One step of one worker: it measures, encodes, decodes and commits. Returns how many elements were sent. */
static uint64_t step(gw_encoder *encoder, const float *g, uint64_t n, uint32_t t, bool committed, float *sent)
{
    gw_measure info;
    uint64_t nonzero;
    assert_int_equal(gw_encoder_measure(encoder, g, NULL, 0, &info), GW_OK);
    assert_true(info.finite);
    assert_int_equal(gw_encoders_combine(&encoder, 1, NULL), GW_OK);
    struct whole_frame frame = encode_slice(encoder, g, NULL, (gw_draw){.step = t}, 0, n);
    decode_into(NULL, frame, sent, n);
    assert_int_equal(gw_frame_symbols(NULL, frame.bytes, frame.size, NULL, 0, &nonzero, NULL), GW_OK);
    free(frame.bytes);
    assert_int_equal(gw_encoder_commit(encoder, committed), GW_OK);
    return nonzero;
}

/* Compares the codec with a reference in plain loops, which follows residual, threshold and its age. Gradients have
 * heavy tails, and magnitudes grow from step to step, so that thresholds get old. */
static void a_run_is_as_prescribed(const char *spec, double ratio, uint64_t refresh, double bound,
                                   enum gw_value_type value, float over)
{
    gw_encoder *encoder = encoder_of(NULL, spec, N);
    static float g[N], residual[N], a[N], sent[N];
    memset(residual, 0, sizeof residual);
    uint64_t k = (uint64_t)ceil(ratio * N), most = (uint64_t)fmin(ceil(bound * (double)k), N), age = 0;
    float threshold = 0;
    for (uint32_t t = 0; t < 40; t++) {
        numbers_fill_bell(100 + t, g, N);
        for (uint32_t i = 0; i < N; i++)
            a[i] = (g[i] = g[i] * g[i] * g[i] * (1 + 0.2f * (float)t)) + residual[i];
        bool dropped = t % 7 == 3;
        float before = threshold, limit;
        uint64_t age_before = age;
        if (t == 0 || age >= refresh) {
            limit = threshold = kth_largest(a, N, k);
            age = 1;
        } else {
            limit = nextafterf(threshold, INFINITY); /* elements must be above it, and not at it */
            age++;
            float cap = kth_largest(a, N, most);
            limit = cap > limit ? cap : limit;
        }
        uint64_t expected = 0, got = step(encoder, g, N, t, !dropped, sent);
        for (uint32_t i = 0; i < N; i++) {
            bool selected = fabsf(a[i]) >= limit;
            expected += selected;
            CHECK(sent[i] == (selected ? gw_select_round(value, a[i] * (1 + over)) : 0),
                  "%s, step %u, element %u: %a of %a sent, limit %a", spec, t, i, (double)sent[i], (double)a[i],
                  (double)limit);
            /* A value that is sent is at most twice and at least half of the element, so nothing gets lost here. */
            if (!dropped)
                residual[i] = a[i] - sent[i];
            if (value == GW_VALUE_F32)
                assert_true((double)(a[i] - sent[i]) == (double)a[i] - (double)sent[i]);
        }
        CHECK(got == expected && got <= most, "%s, step %u: %llu sent, not %llu", spec, t, (unsigned long long)got,
              (unsigned long long)expected);
        if (age == 1)
            assert_int_equal(got, k);
        if (dropped) {
            threshold = before;
            age = age_before;
        }
        gw_encoder_condition condition = condition_of(encoder);
        double norm = 0;
        for (uint32_t i = 0; i < N; i++)
            norm += (double)residual[i] * (double)residual[i];
        assert_true(fabs(condition.residual_norm - sqrt(norm)) <= 1e-9 * sqrt(norm));
        assert_int_equal(condition.threshold_age, age);
        assert_true(condition.threshold == (double)threshold);
    }
    gw_encoder_destroy(encoder);
}

TEST(runs_are_as_prescribed)
{
    a_run_is_as_prescribed("topk:ratio=0.01,refresh=1,scope=layer,over=0", 0.01, 1, 4, GW_VALUE_F32, 0);
    a_run_is_as_prescribed("topk:ratio=0.03,refresh=5,scope=layer,over=0", 0.03, 5, 4, GW_VALUE_F32, 0);
    a_run_is_as_prescribed("topk:ratio=0.1,refresh=1000,scope=layer,over=0", 0.1, 1000, 4, GW_VALUE_F32, 0);
    a_run_is_as_prescribed("topk:ratio=0.1,refresh=1000,scope=layer,over=0,bound=1.5", 0.1, 1000, 1.5, GW_VALUE_F32, 0);
    a_run_is_as_prescribed("topk:ratio=0.02,refresh=3,scope=layer,over=0,value=bf16", 0.02, 3, 4, GW_VALUE_BF16, 0);
    a_run_is_as_prescribed("topk:ratio=0.02,refresh=3,scope=layer,over=0,value=f16", 0.02, 3, 4, GW_VALUE_F16, 0);
    a_run_is_as_prescribed("topk:ratio=1,scope=layer,over=0", 1, 100, 4, GW_VALUE_F32, 0);
    a_run_is_as_prescribed("topk:ratio=0.03,refresh=5,scope=layer,over=0.5", 0.03, 5, 4, GW_VALUE_F32, 0.5f);
    a_run_is_as_prescribed("topk:ratio=0.1,refresh=1000,scope=layer,over=0.3", 0.1, 1000, 4, GW_VALUE_F32, 0.3f);
    a_run_is_as_prescribed("topk:ratio=0.02,refresh=3,scope=layer,value=bf16,over=0.75", 0.02, 3, 4, GW_VALUE_BF16,
                           0.75f);
    a_run_is_as_prescribed("topk:ratio=0.02,refresh=3,scope=layer,value=f16,over=0.5", 0.02, 3, 4, GW_VALUE_F16, 0.5f);
}

/* Slices in any order make up the whole. To encode does not change the state. */
TEST(slices_are_parts_of_the_whole)
{
    gw_encoder *encoder = encoder_of(NULL, "topk:ratio=0.05,scope=layer,over=0", 5000);
    static float g[5000], whole[5000], out[5000];
    numbers_fill_bell(4, g, 5000);
    gw_measure info;
    assert_int_equal(gw_encoder_measure(encoder, g, NULL, 0, &info), GW_OK);
    struct whole_frame frame = encode_slice(encoder, g, NULL, (gw_draw){.step = 1}, 0, 5000);
    decode_into(NULL, frame, whole, 5000);
    free(frame.bytes);
    const uint64_t begins[] = {2048, 0, 4096, 3072, 1024};
    for (int i = 0; i < 5; i++) {
        uint64_t count = 5000 - begins[i] < 1024 ? 5000 - begins[i] : 1024;
        frame = encode_slice(encoder, g, NULL, (gw_draw){.step = 1}, begins[i], count);
        decode_into(NULL, frame, out + begins[i], count);
        free(frame.bytes);
    }
    assert_memory_equal(out, whole, sizeof out);
    gw_encoder_destroy(encoder);
}

enum { PARTS = 5 };
static const uint64_t sizes[PARTS] = {700, 0, 5, 1295, 1000}, begins[PARTS] = {0, 700, 700, 705, 2000};

static void send_part(gw_encoder *encoder, int i, const float *g, uint32_t t, float *sent)
{
    struct whole_frame frame = encode_slice(encoder, g + begins[i], NULL, (gw_draw){.step = t}, 0, sizes[i]);
    decode_into(NULL, frame, sent + begins[i], sizes[i]);
    free(frame.bytes);
}

/* One step of a network whose tensors become ready one by one, the last one first. A tensor is encoded as soon as the
 * codec allows it. Part 4 rests in some steps. */
static void step_early(gw_encoder **parts, const float *g, uint32_t t, bool rests, float *sent)
{
    bool together;
    assert_int_equal(gw_encoders_begin(parts, PARTS, &together), GW_OK);
    for (int i = PARTS - 1; i >= 0; i--) {
        gw_measure info;
        if (i == 4 && rests)
            assert_true(gw_encoder_rest(parts[i]));
        else
            assert_int_equal(gw_encoder_measure(parts[i], g + begins[i], NULL, 0, &info), GW_OK);
        if (!together)
            send_part(parts[i], i, g, t, sent);
    }
    if (together)
        assert_int_equal(gw_encoders_combine(parts, PARTS, NULL), GW_OK);
    for (int i = 0; i < PARTS && together; i++)
        send_part(parts[i], i, g, t, sent);
}

/* With scope=global there is one threshold for several tensors, as if they were one. Whether they wait for each other
 * in steps that take no new threshold makes no difference. */
TEST(global_selection_is_that_of_one_tensor)
{
    static float g[N], joined[N], apart[N], early[N];
    const char *spec = "topk:ratio=0.02,refresh=4,scope=global,over=0.5";
    gw_encoder *one = encoder_of(NULL, spec, N), *many[PARTS], *ready[PARTS];
    for (int i = 0; i < PARTS; i++) {
        many[i] = encoder_of(NULL, spec, sizes[i]);
        ready[i] = encoder_of(NULL, spec, sizes[i]);
    }
    uint32_t n_followed = 0;
    float before = 0;
    for (uint32_t t = 0; t < 20; t++) {
        numbers_fill_bell(t, g, N);
        for (uint32_t i = 0; i < 700; i++)
            g[i] *= 3;
        step(one, g, N, t, t != 5, joined);
        gw_measure info;
        uint32_t bad;
        for (int i = 0; i < PARTS; i++)
            assert_int_equal(gw_encoder_measure(many[i], g + begins[i], NULL, 0, &info), GW_OK);
        static uint8_t dst[4096];
        size_t n_bytes;
        if (t == 0)
            assert_int_equal(gw_encoder_encode(many[2], g + begins[2], NULL, &(gw_draw){.step = t}, 0, sizes[2], dst,
                                               sizeof dst, &n_bytes),
                             GW_ERR_ORDER);
        assert_int_equal(gw_encoders_combine(many, PARTS, &bad), GW_OK);
        assert_int_equal(bad, PARTS);
        step_early(ready, g, t, false, early);
        for (int i = 0; i < PARTS; i++) {
            send_part(many[i], i, g, t, apart);
            assert_int_equal(gw_encoder_commit(many[i], t != 5), GW_OK);
            assert_int_equal(gw_encoder_commit(ready[i], t != 5), GW_OK);
        }
        assert_memory_equal(apart, joined, sizeof apart);
        assert_memory_equal(early, joined, sizeof early);
        const gw_encoder_condition condition = condition_of(many[3]);
        n_followed += condition.threshold_age > 1 && (float)condition.threshold != before;
        before = (float)condition.threshold;
    }
    assert_true(n_followed > 5);
    /* If all elements of a tensor's gradient are 0, it neither sends nor counts; its threshold goes on with the
     * others'. */
    for (uint32_t t = 20; t < 29; t++) {
        memset(early, 0, sizeof early);
        step_early(ready, g, t, true, early);
        for (int i = 0; i < PARTS; i++)
            assert_int_equal(gw_encoder_commit(ready[i], true), GW_OK);
        gw_encoder_condition condition = condition_of(ready[0]), rests = condition_of(ready[4]);
        assert_true(rests.threshold == condition.threshold && rests.threshold_age == condition.threshold_age);
        uint64_t n_sent = 0;
        for (uint32_t i = 0; i < N; i++)
            n_sent += early[i] != 0;
        assert_true(n_sent > 0 && (condition.threshold_age > 1 || n_sent == 40)); /* two percent of 2000 */
        if (t > 20 && condition.threshold_age == 2) /* the last step sent k, so the threshold stays */
            assert_true((float)condition.threshold == before);
        before = (float)condition.threshold;
        for (uint64_t i = begins[4]; i < N; i++)
            assert_true(early[i] == 0);
    }
    for (int i = 0; i < PARTS; i++)
        gw_encoder_destroy(ready[i]);
    /* The gradient is finite, but not once the residual is added. */
    static float huge[N];
    gw_measure info;
    uint32_t bad;
    for (int i = 0; i < PARTS; i++) {
        gw_encoder_destroy(many[i]);
        many[i] = encoder_of(NULL, "topk:ratio=0.02,refresh=1,over=0,scope=global", sizes[i]);
    }
    for (uint32_t i = 0; i < N; i++)
        huge[i] = i < 700 ? 0 : 3e38f;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) {
            assert_int_equal(gw_encoder_measure(many[i], huge + begins[i], NULL, 0, &info), GW_OK);
            assert_true(info.finite);
        }
        assert_int_equal(gw_encoders_combine(many, 5, &bad), GW_OK);
        assert_int_equal(bad, round ? 3 : 5); /* all five elements of tensor 2 were sent, because they came first */
        if (round) {                          /* the tensors are measured again, and the caller does not ask which is
                                               * bad */
            for (int i = 0; i < 5; i++)
                assert_int_equal(gw_encoder_measure(many[i], huge + begins[i], NULL, 0, &info), GW_OK);
            assert_int_equal(gw_encoders_combine(many, 5, NULL), GW_ERR_NONFINITE);
            assert_non_null(strstr(gw_last_error(), "its residual added, holds a NaN or an infinity"));
        }
        for (int i = 0; i < 5; i++)
            assert_int_equal(gw_encoder_commit(many[i], round == 0), GW_OK);
    }
    gw_encoder *hole[] = {many[0], NULL}, *twice[] = {many[0], many[0]};
    assert_int_equal(gw_encoder_measure(many[0], huge, NULL, 0, &info), GW_OK);
    assert_int_equal(gw_encoders_combine(hole, 2, &bad), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoders_combine(twice, 2, &bad), GW_ERR_ARGUMENT);
    bool together;
    assert_int_equal(gw_encoders_begin(hole, 2, &together), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoders_begin(NULL, 2, &together), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoders_begin(hole, 1, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoders_begin(NULL, 0, &together), GW_OK);
    assert_false(together);
    assert_true(gw_encoder_bound(NULL, 3) == 0 && gw_encoder_traits_of(NULL).n_shared == 0);
    gw_encoder_destroy(one);
    for (int i = 0; i < 5; i++)
        gw_encoder_destroy(many[i]);
}

/* How much of k a network of two tensors sends from step `from` to step `to`, on average. Elements walk at random, with
 * momentum M, and the gradient grows by `growth` in each step. *worst becomes the step that is farthest from k. */
static double share_of_k(const char *spec, double k, float momentum, float growth, uint32_t from, uint32_t to,
                         double *worst)
{
    enum { MANY = 32768 };
    static float g[MANY], u[MANY], sent[MANY];
    gw_encoder *parts[2] = {encoder_of(NULL, spec, MANY / 4), encoder_of(NULL, spec, MANY - MANY / 4)};
    double sum = 0;
    float unit = 1;
    memset(u, 0, sizeof u);
    *worst = 1;
    for (uint32_t t = 0; t < to; t++, unit *= growth) {
        uint64_t n_sent = 0;
        numbers_fill_bell(t, g, MANY);
        for (uint32_t i = 0; i < MANY; i++)
            u[i] = momentum * u[i] + unit * g[i] * (i < MANY / 4 ? 3 : 1);
        bool together;
        assert_int_equal(gw_encoders_begin(parts, 2, &together), GW_OK);
        for (uint32_t p = 0; p < 2; p++)
            assert_int_equal(gw_encoder_measure(parts[p], p ? u + MANY / 4 : u, NULL, 0, NULL), GW_OK);
        if (together)
            assert_int_equal(gw_encoders_combine(parts, 2, NULL), GW_OK);
        for (uint32_t p = 0; p < 2; p++) {
            const uint64_t n = p ? MANY - MANY / 4 : MANY / 4;
            struct whole_frame frame = encode_slice(parts[p], p ? u + MANY / 4 : u, NULL, (gw_draw){.step = t}, 0, n);
            decode_into(NULL, frame, sent, n);
            free(frame.bytes);
            for (uint64_t i = 0; i < n; i++)
                n_sent += sent[i] != 0;
            assert_int_equal(gw_encoder_commit(parts[p], true), GW_OK);
        }
        const double share = (double)n_sent / k;
        if (t < from)
            continue;
        sum += share / (to - from);
        if (fabs(log(share)) > fabs(log(*worst)))
            *worst = share;
    }
    gw_encoder_destroy(parts[0]);
    gw_encoder_destroy(parts[1]);
    return sum;
}

/* Between new thresholds, what a network sends stays near k: with and without momentum, with over-sending, and while
 * gradients grow or shrink. The threshold neither swings nor stays behind. */
TEST(a_global_threshold_follows_the_count)
{
    static const struct {
        const char *spec;
        double k;
        float momentum, growth;
        double mean_from, mean_to, least, most;
    } cases[] = {
        {"topk:ratio=0.01,over=0,scope=global,refresh=100000", 328, 0, 1, 0.95, 1.05, 0.75, 1.3},
        {"topk:ratio=0.1,over=0,scope=global,refresh=100000", 3277, 0, 1, 0.98, 1.02, 0.9, 1.1},
        {"topk:ratio=0.01,scope=global,refresh=100000,over=0.5", 328, 0.9f, 1, 0.95, 1.1, 0.7, 1.4},
        {"topk:ratio=0.01,over=0,scope=global,refresh=100000", 328, 0, 1.003f, 1, 1.2, 0.8, 1.5},
        {"topk:ratio=0.01,over=0,scope=global,refresh=100000", 328, 0, 0.997f, 0.8, 1, 0.6, 1.2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double worst,
            mean = share_of_k(cases[i].spec, cases[i].k, cases[i].momentum, cases[i].growth, 100, 200, &worst);
        CHECK(mean > cases[i].mean_from && mean < cases[i].mean_to && worst > cases[i].least && worst < cases[i].most,
              "case %zu: %.3f of k is sent, and %.3f in the worst step", i, mean, worst);
    }
    /* A threshold that lets through far too much is replaced in the next step. */
    static float g[N], sent[N];
    gw_encoder *encoder = encoder_of(NULL, "topk:ratio=0.01,over=0,scope=global", N);
    for (uint32_t t = 0; t < 62; t++) {
        numbers_fill_bell(t, g, N);
        for (uint32_t i = 0; t > 59 && i < N; i++)
            g[i] *= 1000;
        const uint64_t n_sent = step(encoder, g, N, t, true, sent), age = condition_of(encoder).threshold_age;
        assert_true(n_sent <= 120); /* four times k */
        if (t > 20)
            assert_true(t < 61 ? age > 1 : age == 1 && n_sent == 30);
    }
    gw_encoder_destroy(encoder);
}

TEST(dense_steps_come_first)
{
    gw_encoder *encoder = encoder_of(NULL, "topk:ratio=0.01,scope=layer,over=0,dense=3", N);
    static float g[N], sent[N];
    for (uint32_t t = 0; t < 6; t++) {
        numbers_fill_bell(t, g, N);
        uint64_t n_sent = step(encoder, g, N, t, t != 1, sent); /* the second step does not count */
        if (t < 4)
            assert_memory_equal(sent, g, sizeof g);
        else if (t == 4)
            assert_int_equal(n_sent, 30);
    }
    gw_encoder_destroy(encoder);
}

TEST(what_is_not_finite_is_found)
{
    const char *specs[] = {"topk:scope=layer,over=0", "topk:over=0,scope=global", "topk:scope=layer,over=0,dense=100"};
    const float bad[] = {NAN, INFINITY, -INFINITY};
    static float g[N], sent[N];
    for (int s = 0; s < 3; s++) {
        gw_encoder *encoder = encoder_of(NULL, specs[s], N);
        numbers_fill_bell(1, g, N);
        step(encoder, g, N, 0, true, sent);
        gw_encoder_condition before = condition_of(encoder), after;
        for (int b = 0; b < 3; b++) {
            gw_measure info;
            uint8_t dst[20000];
            size_t n_bytes;
            g[1234] = bad[b];
            assert_int_equal(gw_encoder_measure(encoder, g, NULL, 0, &info), GW_OK);
            assert_false(info.finite);
            assert_int_equal(info.bad_index, 1234);
            assert_int_equal(gw_encoder_encode(encoder, g, NULL, &(gw_draw){.step = 1}, 0, N, dst, sizeof dst,
                                               &n_bytes),
                             GW_ERR_NONFINITE);
            /* what is not finite is never kept, even if the caller says so */
            assert_int_equal(gw_encoder_commit(encoder, b == 0), GW_OK);
            after = condition_of(encoder);
            assert_memory_equal(&after, &before, sizeof after);
        }
        gw_encoder_destroy(encoder);
    }
    /* Gradient plus residual overflows. */
    gw_encoder *encoder = encoder_of(NULL, "topk:ratio=0.001,scope=layer,over=0", N);
    gw_measure info;
    for (uint32_t i = 0; i < N; i++)
        g[i] = 3e38f;
    step(encoder, g, N, 0, true, sent);
    assert_int_equal(gw_encoder_measure(encoder, g, NULL, 0, &info), GW_OK);
    assert_false(info.finite);
    assert_int_equal(info.bad_index, 3); /* the first three were sent */
    gw_encoder_destroy(encoder);
    /* The gradient is finite, and what would be sent is not. */
    static const char *const over[] = {"topk:scope=layer,over=0.5", "topk:scope=layer,over=0.5,value=bf16",
                                       "topk:over=0.5,scope=global"};
    memset(g, 0, sizeof g);
    g[2000] = 1;
    for (int s = 0; s < 3; s++)
        for (int fits = 0; fits < 2; fits++) {
            encoder = encoder_of(NULL, over[s], N);
            g[2001] = fits ? -0x1.555554p127f : -0x1.555556p127f; /* 2^128 / 1.5 lies between them */
            uint32_t n_bad;
            assert_int_equal(gw_encoder_measure(encoder, g, NULL, 0, &info), GW_OK);
            if (info.finite) {
                assert_int_equal(gw_encoders_combine(&encoder, 1, &n_bad), GW_OK);
                info = encoder->info;
            }
            assert_true(info.finite == fits);
            if (!fits) {
                assert_int_equal(info.bad_index, 2001);
                uint8_t dst[20000];
                size_t n_bytes;
                assert_int_equal(gw_encoder_encode(encoder, g, NULL, &(gw_draw){.step = 1}, 0, N, dst, sizeof dst,
                                                   &n_bytes),
                                 GW_ERR_NONFINITE);
                assert_non_null(strstr(gw_last_error(), "at element 2001"));
            }
            gw_encoder_destroy(encoder);
        }
}

TEST(a_saved_state_goes_on)
{
    const char *specs[] = {"topk:ratio=0.01,refresh=4,scope=layer,over=0",
                           "topk:ratio=0.01,refresh=1,scope=layer,over=0",
                           "topk:scope=layer,over=0,dense=9",
                           "topk:scope=layer,over=0,value=bf16,ratio=0.1",
                           "topk:scope=layer,over=0.5,ratio=0.1,refresh=3",
                           "topk:over=0,scope=global,ratio=0.1"};
    static float g[N], sent[N], again[N];
    for (int s = 0; s < 6; s++) {
        gw_encoder *a = encoder_of(NULL, specs[s], N), *b = encoder_of(NULL, specs[s], N);
        uint8_t *saved = room_for(gw_encoder_traits_of(a).state_bytes, 1);
        for (uint32_t t = 0; t < 20; t++) {
            numbers_fill_bell(t, g, N);
            if (t == 6) {
                assert_int_equal(gw_encoder_save(a, saved, gw_encoder_traits_of(a).state_bytes), GW_OK);
                assert_int_equal(gw_encoder_load(b, saved, gw_encoder_traits_of(a).state_bytes), GW_OK);
            }
            step(a, g, N, t, true, sent);
            if (t >= 6) {
                step(b, g, N, t, true, again);
                assert_memory_equal(sent, again, sizeof sent);
            }
        }
        /* Anything else is refused and changes nothing. */
        gw_encoder_condition before = condition_of(b), after;
        gw_encoder *other = encoder_of(NULL, specs[s], N + 1), *none = encoder_of(NULL, "none", N);
        assert_int_equal(gw_encoder_load(other, saved, gw_encoder_traits_of(a).state_bytes), GW_ERR_ARGUMENT);
        assert_int_equal(gw_encoder_load(none, saved, gw_encoder_traits_of(a).state_bytes), GW_ERR_ARGUMENT);
        assert_int_equal(gw_encoder_load(none, NULL, 0), GW_OK);
        assert_int_equal(gw_encoder_traits_of(none).state_bytes, 0);
        assert_int_equal(gw_encoder_save(a, saved, gw_encoder_traits_of(a).state_bytes - 1), GW_ERR_CAPACITY);
        for (size_t cut = 0; cut < 100; cut++)
            assert_int_equal(gw_encoder_load(b, saved, cut), GW_ERR_ARGUMENT);
        for (uint64_t seed = 0; seed < 300; seed++) {
            struct numbers numbers = numbers_from(seed);
            size_t at = numbers_below(&numbers, (uint32_t)gw_encoder_traits_of(b).state_bytes);
            saved[at] ^= 1;
            assert_int_equal(gw_encoder_load(b, saved, gw_encoder_traits_of(b).state_bytes), GW_ERR_ARGUMENT);
            saved[at] ^= 1;
        }
        const size_t n_bytes = gw_encoder_traits_of(b).state_bytes;
        saved[4]++; /* the version; the checksum is right */
        gw_put64(saved + n_bytes - 8, gw_hash_now()->whole(saved, n_bytes - 8, 0));
        assert_int_equal(gw_encoder_load(b, saved, n_bytes), GW_ERR_ARGUMENT);
        assert_non_null(strstr(gw_last_error(), "this library reads version"));
        after = condition_of(b);
        assert_memory_equal(&after, &before, sizeof after);
        free(saved);
        gw_encoder_destroy(a);
        gw_encoder_destroy(b);
        gw_encoder_destroy(other);
        gw_encoder_destroy(none);
    }
}

/* Four workers' states go to three workers and to eight. The average contribution (1/N) sum e_i stays the same, apart
 * from rounding. */
TEST(states_move_to_other_numbers_of_workers)
{
    static float g[N], sent[N];
    gw_encoder *workers[4], *fresh = encoder_of(NULL, "topk:ratio=0.01,refresh=1,scope=layer,over=0.5", N);
    size_t n_bytes = gw_encoder_traits_of(fresh).state_bytes;
    void *states[4];
    double mean[N] = {0}, scale[N] = {0};
    for (uint32_t w = 0; w < 4; w++) {
        workers[w] = encoder_of(NULL, "topk:ratio=0.01,refresh=1,scope=layer,over=0.5", N);
        states[w] = room_for(n_bytes, 1);
        for (uint32_t t = 0; t < 5; t++) {
            numbers_fill_bell(10 * w + t, g, N);
            step(workers[w], g, N, t, true, sent);
        }
        assert_int_equal(gw_encoder_save(workers[w], states[w], n_bytes), GW_OK);
        for (uint32_t i = 0; i < N; i++) {
            float e;
            memcpy(&e, (char *)states[w] + n_bytes - 8 - 4 * (N - i), 4);
            mean[i] += (double)e / 4;
            scale[i] += fabs((double)e);
        }
    }
    for (uint32_t m = 3; m <= 8; m += 5) {
        uint8_t *merged = room_for(n_bytes, 1);
        assert_int_equal(gw_states_merge((const void *const *)states, 4, n_bytes, merged), GW_OK);
        assert_int_equal(gw_encoder_load(fresh, merged, n_bytes), GW_OK);
        /* Each of m workers begins with the same state, so that is also their average. The test reads the residual from
         * the state. */
        gw_encoder_condition condition = condition_of(fresh);
        double norm = 0;
        for (uint32_t i = 0; i < N; i++) {
            float e;
            memcpy(&e, (char *)merged + n_bytes - 8 - 4 * (N - i), 4);
            assert_true(fabs((double)e - mean[i]) <= 0x1p-23 * scale[i]);
            norm += (double)e * (double)e;
        }
        assert_true(norm > 0 && fabs(condition.residual_norm - sqrt(norm)) < 1e-9 * sqrt(norm));
        assert_int_equal(condition.threshold_age, 0); /* the next step takes a new threshold */
        free(merged);
    }
    uint8_t *merged = room_for(n_bytes, 1);
#if defined(__x86_64__)
    uint8_t *same = room_for(n_bytes, 1);
    assert_int_equal(gw_states_merge((const void *const *)states, 3, n_bytes, merged), GW_OK);
    _mm_setcsr(0x9FC0 | 0x4000); /* the host's modes: flush to zero, denormals are zero, round up */
    gw_status in_other_modes = gw_states_merge((const void *const *)states, 3, n_bytes, same);
    _mm_setcsr(0x1F80);
    assert_int_equal(in_other_modes, GW_OK);
    assert_memory_equal(same, merged, n_bytes);
    free(same);
#endif
    ((uint8_t *)states[2])[60] ^= 1;
    assert_int_equal(gw_states_merge((const void *const *)states, 4, n_bytes, merged), GW_ERR_ARGUMENT);
    assert_int_equal(gw_states_merge((const void *const *)states, 0, n_bytes, merged), GW_ERR_ARGUMENT);
    const void *hole[] = {states[0], NULL};
    assert_int_equal(gw_states_merge(hole, 2, n_bytes, merged), GW_ERR_ARGUMENT);
    /* There are as many states as there can be workers, and they keep nothing. One more is refused. */
    gw_encoder *empty = encoder_of(NULL, "topk:ratio=0.01,scope=layer,over=0", 0);
    size_t empty_bytes = gw_encoder_traits_of(empty).state_bytes;
    uint8_t *nothing = room_for(empty_bytes, 1), *all = room_for(empty_bytes, 1);
    const void **many = room_for(GW_MAX_WORKERS + 1, sizeof *many);
    assert_int_equal(gw_encoder_save(empty, nothing, empty_bytes), GW_OK);
    for (uint32_t i = 0; i <= GW_MAX_WORKERS; i++)
        many[i] = nothing;
    assert_int_equal(gw_states_merge(many, GW_MAX_WORKERS, empty_bytes, all), GW_OK);
    assert_int_equal(gw_encoder_load(empty, all, empty_bytes), GW_OK);
    assert_int_equal(gw_states_merge(many, GW_MAX_WORKERS + 1, empty_bytes, all), GW_ERR_ARGUMENT);
    gw_encoder_destroy(empty);
    free(many);
    free(nothing);
    free(all);
    /* A state that claims more elements than a tensor can have. Modulo 2^64 its bytes are as many as those of N
     * elements. */
    gw_put64((uint8_t *)states[0] + 24, (1ull << 62) + N);
    gw_put64((uint8_t *)states[0] + n_bytes - 8, gw_hash_now()->whole(states[0], n_bytes - 8, 0));
    assert_int_equal(gw_states_merge((const void *const *)states, 1, n_bytes, merged), GW_ERR_ARGUMENT);
    free(merged);
    for (uint32_t w = 0; w < 4; w++) {
        free(states[w]);
        gw_encoder_destroy(workers[w]);
    }
    gw_encoder_destroy(fresh);
}

/* A fresh encoder that reuses its first threshold sends four times its share (its bound) for a long time. An encoder
 * that was run in sends its share from the first step on. The test sums 40 steps of 65,536 elements. For a share of
 * 0.01 the standard deviation of this sum is below 0.7 percent of it, and the formula for the threshold is right to a
 * few percent. */
TEST(what_was_run_in_sends_its_share)
{
    enum { MANY = 65536, STEPS = 40 };
    static float g[MANY], sent[MANY];
    const double shares[] = {0.003, 0.01, 0.1, 0.01, 0.01}, over[] = {0, 0, 0, 0.5, 0.75};
    for (int i = 0; i < 5; i++) {
        char spec[80];
        snprintf(spec, sizeof spec, "topk:ratio=%g,scope=layer,over=%g,refresh=100000", shares[i], over[i]);
        gw_encoder *fresh = encoder_of(NULL, spec, MANY), *used = encoder_of(NULL, spec, MANY);
        const double k = ceil(shares[i] * MANY);
        double from_fresh = 0, from_used = 0;
        numbers_fill_bell(1, g, MANY);
        gw_encoder_run_in(used, g, 3);
        for (uint32_t t = 0; t < STEPS; t++) {
            numbers_fill_bell(2 + t, g, MANY);
            from_fresh += (double)step(fresh, g, MANY, t, true, sent) / k / STEPS;
            from_used += (double)step(used, g, MANY, t, true, sent) / k / STEPS;
        }
        CHECK(fabs(from_used - 1) < 0.08, "%s sends %.3f of its share when run in", spec, from_used);
        CHECK(from_fresh > 1.4, "%s sends %.3f of its share when fresh", spec, from_fresh);
        gw_encoder_destroy(fresh);
        gw_encoder_destroy(used);
    }
    /* Zeros do not tell anything, and other codecs keep nothing. */
    memset(g, 0, sizeof g);
    const char *others[] = {"topk:scope=layer,over=0",
                            "topk:ratio=1,scope=layer,over=0",
                            "topk:scope=layer,over=0,dense=5",
                            "topk:over=0,scope=global",
                            "onebit",
                            "ternary"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        gw_encoder *encoder = encoder_of(NULL, others[i], 1);
        gw_encoder_run_in(encoder, g, 0);
        assert_true(isfinite(condition_of(encoder).residual_norm));
        gw_encoder_destroy(encoder);
    }
}

/* A loss scaling that changes multiplies the gradients, and so must the residual be multiplied. */
TEST(a_residual_is_scaled)
{
    static const float wrong[] = {0, -1, NAN, INFINITY};
    gw_encoder *encoder = encoder_of(NULL, "topk:ratio=0.01,scope=layer,over=0.5", N);
    float *g = calloc(N, sizeof *g), *sent = calloc(N, sizeof *sent);
    numbers_fill_bell(1, g, N);
    step(encoder, g, N, 0, true, sent);
    const gw_encoder_condition before = condition_of(encoder);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(gw_encoder_scale(encoder, wrong[i]), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_scale(NULL, 2), GW_ERR_ARGUMENT);
    assert_true(condition_of(encoder).residual_norm == before.residual_norm && before.residual_norm > 0);
    assert_int_equal(gw_encoder_scale(encoder, 4), GW_OK);
    assert_true(condition_of(encoder).residual_norm == 4 * before.residual_norm);
    gw_encoder_destroy(encoder);
    free(g);
    free(sent);
}

RUN_TESTS("topk", NULL, NULL)
