/* Tests ternary pushes: clip and scaler, every code and size there and back, the same bytes whatever the threads and
 * slices, and what is refused. Averages are in reduce_test.c, statistics in statistics_test.c, sizes in size_test.c. */
#include "codec/ternary/ternary.h"
#include "base/float_env.h"
#include "codecs.h"
#include "wire/frame.h"
#include "checks.h"

#include <float.h>
#include <stdio.h>
#include <xxhash.h>

static const gw_draw at_step = {.seed = 0x0123456789ABCDEFull, .rank = 3, .step = 41};

/* ---- clip and scaler (TernGrad eq. 21, 2) ------------------------------------------------------------ */

static float own_scaler(const char *spec, const float *g, uint64_t n)
{
    gw_encoder *encoder = encoder_of(NULL, spec, n);
    assert_int_equal(gw_encoder_traits_of(encoder).n_shared, 1);
    float s;
    measure(encoder, g, &s);
    gw_encoder_destroy(encoder);
    return s;
}

/* Nine zeros and a ten have mean 1, variance (9 * 1 + 81) / 10 = 9, and sigma 3. */
TEST(scalers_by_hand)
{
    float g[10] = {0, 0, 0, 0, 10};
    assert_true(own_scaler("ternary", g, 10) == 7.5f); /* 2.5 sigma */
    assert_true(own_scaler("ternary:clip=1", g, 10) == 3);
    assert_true(own_scaler("ternary:clip=0", g, 10) == 10);
    assert_true(own_scaler("ternary:clip=3.25", g, 10) == 9.75f);
    assert_true(own_scaler("ternary:clip=3.5", g, 10) == 10); /* 10.5 is above all elements */
    assert_true(own_scaler("ternary:clip=1e30", g, 10) == 10);
    /* 0.34 sigma = 1.02 is just above the mean. 0.33 sigma = 0.99 is below it, so nothing is clipped. */
    assert_true(own_scaler("ternary:clip=0.34", g, 10) == 1.02f);
    assert_true(own_scaler("ternary:clip=0.33", g, 10) == 10);
    for (int i = 0; i < 10; i++)
        g[i] = -g[i]; /* |mean| counts */
    assert_true(own_scaler("ternary:clip=0.34", g, 10) == 1.02f);
    assert_true(own_scaler("ternary:clip=0.33", g, 10) == 10);

    /* If float32 cannot hold the limit, clipping does not make everything 0. */
    const float least[4] = {0x1p-149f, -0x1p-149f, 0x1p-149f, -0x1p-149f};
    assert_true(own_scaler("ternary:clip=0.001", least, 4) == 0x1p-149f);

    /* The clipped element is drawn for certain, as 7.5. */
    float out[10];
    gw_encoder *encoder = encoder_of(NULL, "ternary", 10);
    struct whole_frame frame = encode_whole(encoder, g, 10, NULL, at_step);
    decode_into(NULL, frame, out, 10);
    for (int i = 0; i < 10; i++)
        assert_true(out[i] == (i == 4 ? -7.5f : 0));
    free(frame.bytes);
    gw_encoder_destroy(encoder);
}

TEST(measures_by_hand)
{
    const float g[10] = {0, 0, 0, 0, -10};
    gw_encoder *encoder = encoder_of(NULL, "ternary", 10);
    float s;
    gw_measure info;
    assert_int_equal(gw_encoder_measure(encoder, g, &s, 1, &info), GW_OK);
    assert_true(info.finite);
    assert_true(info.max_abs == 10 && info.mean == -1 && info.sigma == 3);
    assert_true(info.sum_abs_bound == 1); /* 10 * 10 / 100 */
    const float zeros[10] = {0};
    assert_int_equal(gw_encoder_measure(encoder, zeros, &s, 1, &info), GW_OK);
    assert_true(info.finite && info.max_abs == 0 && info.mean == 0 && info.sigma == 0 && info.sum_abs_bound == 0 &&
                s == 0);
    gw_encoder_destroy(encoder);
}

/* Compares with sums in float64, over lengths that fill blocks and that do not. */
TEST(scalers_of_random_tensors)
{
    const uint64_t lengths[] = {2, 7, 31, 33, 1000, 1024, 1025, 5000, 65536, 65537, 200003};
    for (uint64_t seed = 1; seed <= 61; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint64_t n = seed == 61 ? 66 * 65536 + 5 : lengths[seed % 11]; /* the longest takes two waves of chunks */
        float *g = room_for(n, sizeof *g), scale = seed % 3 == 0 ? 0x1p-70f : seed % 3 == 1 ? 1 : 0x1p90f;
        float shift = (float)numbers_below(&numbers, 4);
        double sum = 0, squares = 0, most = 0;
        for (uint64_t i = 0; i < n; i++) {
            g[i] = (numbers_bell(&numbers) * (i < 100000 ? 1 : 1.5f) + shift) * scale;
            sum += g[i];
            squares += (double)g[i] * g[i];
            most = fabs((double)g[i]) > most ? fabs((double)g[i]) : most;
        }
        double mean = sum / (double)n, variance = squares / (double)n - mean * mean;
        double limit = 2.5 * sqrt(variance > 0 ? variance : 0),
               expected = limit >= fabs(mean) && limit < most ? limit : most;
        double s = own_scaler("ternary", g, n);
        /* Near the edge of the rule, rounding decides. No seed comes within 1 % of it. */
        assert_true(fabs(limit - fabs(mean)) > 0.01 * limit);
        CHECK(fabs(s - expected) <= 1e-5 * expected, "seed %llu, %llu elements: %g, not %g", (unsigned long long)seed,
              (unsigned long long)n, s, expected);
        free(g);
    }
}

static void check_exact(const char *spec, float value, uint64_t n)
{
    float *g = room_for(n, sizeof *g), *out = room_for(n, sizeof *out);
    for (uint64_t i = 0; i < n; i++)
        g[i] = value;
    gw_encoder *encoder = encoder_of(NULL, spec, n);
    struct whole_frame frame = encode_whole(encoder, g, n, NULL, at_step);
    decode_into(NULL, frame, out, n);
    for (uint64_t i = 0; i < n; i++)
        CHECK(out[i] == value, "%s: %llu times %a: element %llu comes back as %a", spec, (unsigned long long)n,
              (double)value, (unsigned long long)i, (double)out[i]);
    free(frame.bytes);
    gw_encoder_destroy(encoder);
    free(g);
    free(out);
}

/* c * sigma < |mean|, so clipping would take the gradient away. This departs from the paper on purpose. */
TEST(equal_elements_and_single_ones_come_back_exactly)
{
    const float values[] = {1,       -3.7f,     1e-30f,           1e30f,    FLT_MAX, -FLT_MAX,
                            FLT_MIN, 0x1p-149f, -0x1.23456p-130f, 0x1p-90f, 0};
    const uint64_t lengths[] = {1, 2, 63, 1000, 70000};
    for (size_t v = 0; v < sizeof values / sizeof *values; v++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            check_exact("ternary", values[v], lengths[l]);
            check_exact("ternary:clip=0.001,bucket=100", values[v], lengths[l]);
        }
}

/* Under this seed all 32 random bits of element 1,855,559 are ones (found by search). Here s * (2^32 / s) rounds to
 * less than 2^32. So that element is kept only because the quotient is raised. */
TEST(the_largest_element_is_always_drawn)
{
    const uint64_t n = 1855560;
    float s = 1;
    while (s * (0x1p32f / s) >= 0x1p32f)
        s = nextafterf(s, 2);
    float *g = room_for(n, sizeof *g);
    for (uint64_t i = 0; i < n; i++)
        g[i] = s;
    gw_codec *codec = codec_of(NULL, "ternary");
    const gw_tensor tensor = {.n_elems = n};
    gw_encoder *encoder;
    assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_OK);
    struct whole_frame frame = encode_whole(encoder, g, n, NULL, (gw_draw){.seed = 193});
    uint64_t n_nonzero;
    assert_int_equal(gw_frame_symbols(NULL, frame.bytes, frame.size, NULL, 0, &n_nonzero, NULL), GW_OK);
    assert_int_equal(n_nonzero, n);
    free(frame.bytes);
    free(g);
    gw_encoder_destroy(encoder);
    gw_codec_destroy(codec);
}

TEST(zeros_give_zeros)
{
    for (uint64_t n = 1; n < 100000; n *= 17) {
        float *g = room_for(n, sizeof *g), *out = room_for(n, sizeof *out);
        for (uint64_t i = 0; i < n; i++)
            g[i] = i % 2 ? -0.0f : 0;
        gw_encoder *encoder = encoder_of(NULL, "ternary", n);
        /* Also if the scaler of the other workers is not 0. */
        for (float s = 0; s < 2; s++) {
            struct whole_frame frame = encode_whole(encoder, g, n, &s, at_step);
            decode_into(NULL, frame, out, n);
            for (uint64_t i = 0; i < n; i++)
                assert_int_equal(gw_float_bits(out[i]), 0); /* +0 */
            assert_true(gw_frame_scaler(frame.bytes, frame.size, 0) == s);
            free(frame.bytes);
        }
        gw_encoder_destroy(encoder);
        free(g);
        free(out);
    }
}

/* ---- there and back ---------------------------------------------------------------------------------- */

static const char *const codes[] = {"auto", "2bit", "base3", "mask"};
static const char *const entropies[] = {"auto", "on", "off"};

struct gradient {
    uint64_t n, bucket, n_scalers;
    float *g, *own, *shared; /* shared: a little above own at some places */
    int8_t *t;               /* the model's ternary values */
    float *values;           /* the floats that these stand for */
};

/* A gradient of any scale, its scalers, and what a worker must send for it. */
static struct gradient make_gradient(uint64_t seed, uint64_t n, uint64_t bucket, const char *more, float scale)
{
    struct gradient x = {.n = n,
                         .bucket = bucket,
                         .n_scalers = gw_frame_n_scalers(GW_WIRE_TERNARY, (uint32_t)bucket, n)};
    x.g = room_for(n, sizeof *x.g);
    x.own = room_for(x.n_scalers, sizeof *x.own);
    x.shared = room_for(x.n_scalers, sizeof *x.shared);
    x.t = room_for(n, 1);
    x.values = room_for(n, sizeof *x.values);
    numbers_fill_bell(seed, x.g, n);
    for (uint64_t i = 0; i < n; i++)
        x.g[i] *= scale;
    char spec[160];
    snprintf(spec, sizeof spec, "ternary:bucket=%llu%s", (unsigned long long)bucket, more);
    gw_encoder *encoder = encoder_of(NULL, spec, n);
    measure(encoder, x.g, x.own);
    gw_encoder_destroy(encoder);
    for (uint64_t b = 0; b < x.n_scalers; b++) {
        float up = x.own[b] * (1 + (float)(b % 3) * 0.5f);
        x.shared[b] = up < FLT_MAX ? up : x.own[b];
    }
    model_tensor(x.g, n, bucket, x.own, x.shared, at_step, 7, x.t);
    for (uint64_t i = 0; i < n; i++) {
        float s = x.shared[bucket ? i / bucket : 0];
        x.values[i] = x.t[i] ? x.t[i] < 0 ? -s : s : 0;
    }
    return x;
}

static void free_gradient(struct gradient x)
{
    free(x.g);
    free(x.own);
    free(x.shared);
    free(x.t);
    free(x.values);
}

static void check_round_trip(gw_context *context, const struct gradient *x, const char *more)
{
    char spec[160];
    snprintf(spec, sizeof spec, "ternary:bucket=%llu%s", (unsigned long long)x->bucket, more);
    gw_encoder *encoder = encoder_of(context, spec, x->n);
    struct whole_frame frame = encode_whole(encoder, x->g, x->n, x->shared, at_step);
    gw_frame_info info;
    CHECK(gw_frame_parse(frame.bytes, frame.size, &info) == GW_OK, "%s, %llu elements: %s", spec,
          (unsigned long long)x->n, gw_last_error());
    assert_string_equal(info.codec, "ternary");
    assert_false(info.average);
    assert_int_equal(info.workers, 1);
    assert_int_equal(info.rank, 3);
    assert_int_equal(info.tensor_id, 7);
    assert_int_equal(info.step, 41);
    assert_int_equal(info.begin, 0);
    assert_int_equal(info.n_elems, x->n);
    assert_int_equal(info.bucket, x->bucket);
    assert_int_equal(info.n_scalers, x->n_scalers);
    assert_int_equal(info.frame_bytes, frame.size);
    assert_int_equal(info.payload_bytes, frame.size - 56 - 4 * x->n_scalers);
    for (uint64_t b = 0; b < x->n_scalers; b++)
        assert_true(gw_frame_scaler(frame.bytes, frame.size, b) == x->shared[b]);
    assert_true(gw_frame_scaler(frame.bytes, frame.size, x->n_scalers) == 0);

    float *out = room_for(x->n, sizeof *out);
    decode_into(context, frame, out, x->n);
    for (uint64_t i = 0; i < x->n; i++)
        CHECK(gw_float_bits(out[i]) == gw_float_bits(x->values[i]), "%s, %llu elements: element %llu is %a, not %a",
              spec, (unsigned long long)x->n, (unsigned long long)i, (double)out[i], (double)x->values[i]);

    uint64_t counts[3], expected[3] = {0}, n_nonzero;
    double bits, entropy = 0;
    assert_int_equal(gw_frame_symbols(context, frame.bytes, frame.size, counts, 3, &n_nonzero, &bits), GW_OK);
    for (uint64_t i = 0; i < x->n; i++)
        expected[x->t[i] + 1]++;
    assert_memory_equal(counts, expected, sizeof counts);
    assert_int_equal(n_nonzero, expected[0] + expected[2]);
    for (int k = 0; k < 3; k++)
        entropy -= expected[k] ? (double)expected[k] / (double)x->n * log2((double)expected[k] / (double)x->n) : 0;
    assert_true(fabs(bits - entropy) < 1e-9);
    free(out);
    free(frame.bytes);
    gw_encoder_destroy(encoder);
}

static const uint64_t sizes[] = {0, 1, 2, 5, 63, 64, 65, 127, 128, 129, 1000, 1023, 1025, 65535, 65536, 65537, 200003};
static const uint64_t buckets[] = {0, 128, 512, 1000, 65536, 100000};

TEST(every_code_size_and_bucket_comes_back)
{
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++)
        for (size_t b = 0; b < sizeof buckets / sizeof *buckets; b++) {
            struct gradient x = make_gradient(sizes[n] + 31 * buckets[b], sizes[n], buckets[b], "", 0.01f);
            for (size_t c = 0; c < 4; c++)
                for (size_t e = 0; e < 3; e++) {
                    char more[64];
                    snprintf(more, sizeof more, ",code=%s,entropy=%s", codes[c], entropies[e]);
                    check_round_trip(NULL, &x, more);
                }
            free_gradient(x);
        }
}

/* Tests scalers from denormal to FLT_MAX, with and without clipping. */
TEST(every_scale_comes_back)
{
    const float scales[] = {0x1p-149f, 0x1p-140f, 0x1p-126f, 0x1p-92f, 0x1p-90f,  0x1p-89f,
                            0x1p-60f,  1,         0x1p60f,   0x1p120f, 0x1.8p125f};
    const char *clips[] = {"", ",clip=0", ",clip=0.5"};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++)
        for (size_t c = 0; c < 3; c++)
            for (uint64_t bucket = 0; bucket <= 1000; bucket += 500) {
                struct gradient x = make_gradient(s + 100, 5000, bucket, clips[c], scales[s]);
                check_round_trip(NULL, &x, clips[c]);
                free_gradient(x);
            }
}

/* The codes that are named are the codes that are used. The choice of auto is not larger than any of them. entropy=on
 * uses the entropy coder, whatever code is named. */
TEST(codes_are_what_was_asked_for)
{
    const float shares[] = {0.001f, 0.05f, 0.3f, 0.9f};
    for (size_t p = 0; p < 3; p++)
        for (uint64_t n = 70000; n >= 70; n /= 10) {
            struct numbers numbers = numbers_from(p + n);
            float *g = room_for(n, sizeof *g);
            for (uint64_t i = 0; i < n; i++)
                g[i] = numbers_unit(&numbers) < shares[p] || i == 0 ? 1 : 0;
            size_t least = SIZE_MAX;
            for (size_t e = 3; e-- > 0;)
                for (size_t c = 4; c-- > 0;) {
                    char spec[80];
                    snprintf(spec, sizeof spec, "ternary:clip=0,code=%s,entropy=%s", codes[c], entropies[e]);
                    gw_encoder *encoder = encoder_of(NULL, spec, n);
                    struct whole_frame frame = encode_whole(encoder, g, n, NULL, at_step);
                    gw_frame_info info;
                    assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
                    if (c > 0 && e != 1)
                        assert_string_equal(info.code, codes[c]);
                    if (e == 1)
                        assert_string_equal(info.code, n > 65536 ? "mixed" : "rans");
                    if (c > 0 && info.payload_bytes < least && e == 2)
                        least = info.payload_bytes;
                    if (c == 0 && e == 0) /* auto may have table entries besides */
                        CHECK(info.payload_bytes <= least + 4 * (n / 65536 + 1),
                              "%s, %llu elements: %zu bytes, %zu are possible", spec, (unsigned long long)n,
                              info.payload_bytes, least);
                    free(frame.bytes);
                    gw_encoder_destroy(encoder);
                }
            free(g);
        }
}

/* ---- the same bytes ---------------------------------------------------------------------------------- */

static const char *const kinds[] = {"ternary",
                                    "ternary:entropy=on",
                                    "ternary:code=mask",
                                    "ternary:code=base3",
                                    "ternary:code=2bit",
                                    "ternary:bucket=512",
                                    "ternary:bucket=1000,code=2bit",
                                    "ternary:bucket=65536,share=off",
                                    "ternary:share=off,bucket=100"};
#define N_KINDS (sizeof kinds / sizeof *kinds)

TEST(threads_change_nothing)
{
    const uint64_t lengths[] = {1025, 65537, 200003, 66 * 65536 + 5}; /* the last takes two waves of chunks */
    const uint32_t threads[] = {1, 2, 5};
    for (size_t l = 0; l < 4; l++) {
        uint64_t n = lengths[l];
        float *g = room_for(n, sizeof *g), *out = room_for(n, sizeof *out), *first_out = room_for(n, sizeof *out);
        numbers_fill_bell(l + 1, g, n);
        for (size_t k = 0; k < (n > 1000000 ? 2 : N_KINDS); k++) {
            struct whole_frame first = {NULL, 0};
            for (size_t t = 0; t < 3; t++) {
                gw_context *context = context_of(threads[t]);
                gw_encoder *encoder = encoder_of(context, kinds[k], n);
                struct whole_frame frame = encode_whole(encoder, g, n, NULL, at_step);
                if (!first.bytes)
                    first = frame_of(frame.bytes, frame.size);
                CHECK(same_frame(first, frame), "%s, %llu elements on %u threads", kinds[k], (unsigned long long)n,
                      threads[t]);
                decode_into(context, frame, t ? out : first_out, n);
                CHECK(t == 0 || same_floats(out, first_out, n), "%s, %llu elements on %u threads", kinds[k],
                      (unsigned long long)n, threads[t]);
                free(frame.bytes);
                gw_encoder_destroy(encoder);
                gw_context_destroy(context);
            }
            free(first.bytes);
        }
        free(g);
        free(out);
        free(first_out);
    }
}

/* Elements are drawn by their place in the tensor, whatever the slice. So slices side by side decode to the whole. */
TEST(slices_equal_the_whole)
{
    const uint64_t n = 200003;
    float *g = room_for(n, sizeof *g), *out = room_for(n, sizeof *out), *sliced = room_for(n, sizeof *out);
    numbers_fill_bell(77, g, n);
    for (size_t k = 0; k < N_KINDS; k++) {
        gw_encoder *encoder = encoder_of(NULL, kinds[k], n);
        struct whole_frame whole = encode_whole(encoder, g, n, NULL, at_step);
        decode_into(NULL, whole, out, n);
        uint64_t align = gw_encoder_traits_of(encoder).slice_align;
        assert_int_equal(align % GW_SLICE_ALIGN, 0);
        for (uint64_t step = 1; step <= 67; step += 33) {
            for (uint64_t begin = 0, count; begin < n; begin += count) {
                count = n - begin < step * align ? n - begin : step * align;
                struct whole_frame slice = encode_slice(encoder, g, NULL, at_step, begin, count);
                gw_frame_info info;
                assert_int_equal(gw_frame_parse(slice.bytes, slice.size, &info), GW_OK);
                assert_int_equal(info.begin, begin);
                assert_int_equal(info.n_elems, count);
                decode_into(NULL, slice, sliced + begin, count);
                free(slice.bytes);
            }
            CHECK(same_floats(out, sliced, n), "%s in slices of %llu", kinds[k], (unsigned long long)(step * align));
        }
        /* An empty slice, at the begin of the tensor. */
        struct whole_frame empty = encode_slice(encoder, g, NULL, at_step, 0, 0);
        decode_into(NULL, empty, sliced, 0);
        free(empty.bytes);
        free(whole.bytes);
        gw_encoder_destroy(encoder);
    }
    free(g);
    free(out);
    free(sliced);
}

TEST(slices_that_are_not_aligned_are_refused)
{
    static float g[10000];
    numbers_fill_bell(1, g, 10000);
    static uint8_t room[10000];
    size_t size;
    const struct {
        const char *spec;
        uint64_t align;
    } kind[] = {{"ternary", 1024},
                {"ternary:bucket=512", 1024},
                {"ternary:bucket=3", 3072},
                {"ternary:bucket=1536", 3072},
                {"none", 1024}};
    for (size_t k = 0; k < 5; k++) {
        gw_encoder *encoder = encoder_of(NULL, kind[k].spec, 10000);
        uint64_t align = kind[k].align;
        assert_int_equal(gw_encoder_traits_of(encoder).slice_align, align);
        measure(encoder, g, NULL);
        const uint64_t bad[][2] = {{1, align},     {align - 1, align},      {0, 1},
                                   {0, align + 1}, {align, 10000},          {10000, 1},
                                   {20000, 0},     {align, UINT64_MAX - 5}, {UINT64_MAX - 1023, 1024},
                                   {512, 9488}};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
            CHECK(gw_encoder_encode(encoder, g, NULL, &at_step, bad[i][0], bad[i][1], room, sizeof room, &size) ==
                      GW_ERR_ARGUMENT,
                  "%s: [%llu, + %llu)", kind[k].spec, (unsigned long long)bad[i][0], (unsigned long long)bad[i][1]);
        assert_non_null(strstr(gw_last_error(), "'layer.weight'"));
        char multiple[40];
        snprintf(multiple, sizeof multiple, "multiples of %llu", (unsigned long long)align);
        assert_non_null(strstr(gw_last_error(), multiple));
        gw_encoder_destroy(encoder);
    }
}

TEST(measure_encode_is_measure_and_encode)
{
    const uint64_t lengths[] = {0, 1, 100, 512, 65536, 65537, 200003};
    for (uint32_t threads = 1; threads <= 3; threads += 2)
        for (size_t l = 0; l < 7; l++)
            for (size_t k = 0; k < N_KINDS; k++)
                for (int given = 0; given < 2; given++) {
                    uint64_t n = lengths[l];
                    float *g = room_for(n, sizeof *g);
                    numbers_fill_bell(l + 10, g, n);
                    gw_context *context = context_of(threads);
                    gw_encoder *encoder = encoder_of(context, kinds[k], n), *fused = encoder_of(context, kinds[k], n);
                    uint64_t n_shared = gw_encoder_traits_of(encoder).n_shared;
                    float *shared = room_for(n_shared, sizeof *shared);
                    gw_measure info, fused_info;
                    assert_int_equal(gw_encoder_measure(encoder, g, shared, n_shared, &info), GW_OK);
                    for (uint64_t b = 0; b < n_shared && given; b++)
                        shared[b] *= 1.5f;
                    struct whole_frame frame = encode_slice(encoder, g, given ? shared : NULL, at_step, 0, n);
                    size_t bound = gw_encoder_bound(fused, n), size;
                    uint8_t *bytes = room_for(bound, 1);
                    assert_int_equal(gw_encoder_measure_encode(fused, g, given ? shared : NULL, &at_step, bytes, bound,
                                                               &size, given ? NULL : &fused_info),
                                     GW_OK);
                    CHECK(same_frame(frame, (struct whole_frame){bytes, size}),
                          "%s, %llu elements, %u threads, given %d", kinds[k], (unsigned long long)n, threads, given);
                    if (!given)
                        assert_true(info.finite == fused_info.finite && info.max_abs == fused_info.max_abs &&
                                    info.mean == fused_info.mean && info.sigma == fused_info.sigma &&
                                    info.sum_abs_bound == fused_info.sum_abs_bound);
                    /* Slices can be encoded after it, too. */
                    struct whole_frame again = encode_slice(fused, g, given ? shared : NULL, at_step, 0, n);
                    assert_true(same_frame(frame, again));
                    free(again.bytes);
                    free(frame.bytes);
                    free(bytes);
                    free(shared);
                    free(g);
                    gw_encoder_destroy(encoder);
                    gw_encoder_destroy(fused);
                    gw_context_destroy(context);
                }
}

/* Seed, rank, step and tensor all change the draw. Each step draws anew, and an encoder remembers nothing. */
TEST(every_place_in_a_run_draws_its_own)
{
    static float g[2000];
    numbers_fill_bell(5, g, 2000);
    const gw_draw draws[] = {at_step,
                             {at_step.seed + 1, 3, 41},
                             {at_step.seed ^ 1ull << 40, 3, 41},
                             {at_step.seed, 4, 41},
                             {at_step.seed, 3, 42}};
    struct whole_frame frames[6];
    gw_encoder *encoder = encoder_of(NULL, "ternary:code=2bit", 2000);
    for (int i = 0; i < 5; i++)
        frames[i] = encode_whole(encoder, g, 2000, NULL, draws[i]);
    struct whole_frame again = encode_whole(encoder, g, 2000, NULL, at_step);
    assert_true(same_frame(again, frames[0]));
    free(again.bytes);
    gw_encoder_destroy(encoder);
    gw_codec *codec = codec_of(NULL, "ternary:code=2bit");
    const gw_tensor other = {.name = "layer.weight", .id = 8, .n_elems = 2000};
    assert_int_equal(gw_encoder_create(NULL, codec, &other, &encoder), GW_OK);
    frames[5] = encode_whole(encoder, g, 2000, NULL, at_step);
    gw_encoder_destroy(encoder);
    gw_codec_destroy(codec);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++)
            CHECK(memcmp(frames[i].bytes + 60, frames[j].bytes + 60, 500) != 0, "draws %d and %d", i, j);
    for (int i = 0; i < 6; i++)
        free(frames[i].bytes);
}

/* ---- known bytes --------------------------------------------------------------------------------------- */

/* A hash of many frames. It is the same on every machine and instruction set, and in every version with the same wire
 * format. If somebody changes the format on purpose, this number changes, too. */
TEST(frames_are_known_to_the_byte)
{
    const char *pushes[] = {"ternary:entropy=off", "ternary:code=2bit", "ternary:code=base3",
                            "ternary:code=mask",   "ternary",           "ternary:bucket=100,clip=1.5"};
    const char *pulls[] = {"ternary:pull=packed", "ternary:entropy=on", "ternary"};
    const uint64_t lengths[] = {1, 1000, 70001};
    const float scales[] = {1, 0x1p-133f, 0x1p124f};
    XXH3_state_t *hash = XXH3_createState();
    XXH3_64bits_reset(hash);
    for (size_t l = 0; l < 3; l++)
        for (size_t k = 0; k < 6; k++) {
            uint64_t n = lengths[l];
            gw_encoder *encoder = encoder_of(NULL, pushes[k], n);
            uint64_t n_scalers = gw_encoder_traits_of(encoder).n_shared;
            float *g = room_for(n, sizeof *g), *own = room_for(n_scalers, sizeof *own),
                  *shared = room_for(n_scalers, sizeof *shared);
            memset(shared, 0, n_scalers * sizeof *shared);
            struct whole_frame frames[5];
            for (int pass = 0; pass < 2; pass++)
                for (uint32_t r = 0; r < 5; r++) {
                    numbers_fill_bell(r + 1, g, n);
                    for (uint64_t i = 0; i < n; i++)
                        g[i] *= scales[k % 3];
                    measure(encoder, g, own);
                    for (uint64_t b = 0; b < n_scalers; b++)
                        shared[b] = own[b] > shared[b] ? own[b] : shared[b];
                    if (pass) {
                        frames[r] =
                            encode_slice(encoder, g, shared, (gw_draw){.seed = 20261121, .rank = r, .step = 77}, 0, n);
                        XXH3_64bits_update(hash, frames[r].bytes, frames[r].size);
                    }
                }
            for (size_t p = 0; p < 3; p++) {
                struct whole_frame average = reduce_frames(NULL, frames, 5, pulls[p]);
                float *out = room_for(n, sizeof *out);
                decode_into(NULL, average, out, n);
                XXH3_64bits_update(hash, average.bytes, average.size);
                XXH3_64bits_update(hash, out, n * sizeof *out);
                free(out);
                free(average.bytes);
            }
            for (uint32_t r = 0; r < 5; r++)
                free(frames[r].bytes);
            free(g);
            free(own);
            free(shared);
            gw_encoder_destroy(encoder);
        }
    uint64_t digest = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    CHECK(digest == 0x7a90ec4037c1f125ull, "the frames hash to 0x%016llx", (unsigned long long)digest);
}

/* ---- flush-to-zero ----------------------------------------------------------------------------------- */

TEST(the_hosts_float_modes_change_nothing)
{
#if defined(__x86_64__)
    const uint64_t n = 70000;
    const unsigned host = 0x9FC0 | 0x4000; /* flush to zero, denormals are zero, round up */
    float *g = room_for(n, sizeof *g), *out[2] = {room_for(n, sizeof(float)), room_for(n, sizeof(float))};
    for (int round = 0; round < 4; round++) {
        numbers_fill_bell(6, g, n);
        for (uint64_t i = 0; i < n; i++)
            g[i] *= round % 2 ? 0x1p-133f : 0.3f;
        struct whole_frame frames[2], averages[2], fused[2];
        gw_measure infos[2];
        double bits[2];
        uint64_t counts[2][3];
        for (int hostile = 0; hostile < 2; hostile++) {
            size_t bound, size;
            float s;
            unsigned left[8];
            int calls = 0;
            if (hostile)
                _mm_setcsr(host);
            gw_context *context = context_of(round < 2 ? 1 : 3);
            gw_encoder *encoder = encoder_of(context, "ternary", n),
                       *bucketed = encoder_of(context, "ternary:share=off,bucket=512", n);
            uint8_t *bytes = room_for(bound = gw_encoder_bound(encoder, n), 1);
            gw_status ok[6];
            ok[0] = gw_encoder_measure(encoder, g, &s, 1, &infos[hostile]);
            left[calls++] = _mm_getcsr();
            ok[1] = gw_encoder_encode(encoder, g, NULL, &at_step, 0, n, bytes, bound, &size);
            left[calls++] = _mm_getcsr();
            frames[hostile] = frame_of(bytes, size);
            free(bytes);
            const void *push = frames[hostile].bytes;
            bytes = room_for(bound = gw_reduce_bound(&push, &frames[hostile].size, 1), 1);
            ok[2] = gw_reduce(context, &push, &frames[hostile].size, 1, NULL, bytes, bound, &size);
            left[calls++] = _mm_getcsr();
            averages[hostile] = frame_of(bytes, size);
            free(bytes);
            ok[3] = gw_decode(context, averages[hostile].bytes, averages[hostile].size, out[hostile], n);
            left[calls++] = _mm_getcsr();
            ok[4] = gw_frame_symbols(context, push, frames[hostile].size, counts[hostile], 3, NULL, &bits[hostile]);
            left[calls++] = _mm_getcsr();
            bytes = room_for(bound = gw_encoder_bound(bucketed, n), 1);
            ok[5] = gw_encoder_measure_encode(bucketed, g, NULL, &at_step, bytes, bound, &size, NULL);
            left[calls++] = _mm_getcsr();
            fused[hostile] = frame_of(bytes, size);
            free(bytes);
            _mm_setcsr(0x1F80);
            for (int i = 0; i < calls; i++) {
                assert_int_equal(ok[i], GW_OK);
                if (hostile)
                    CHECK((left[i] & 0xFFC0) == (host & 0xFFC0), "call %d leaves modes 0x%04x", i, left[i]);
            }
            gw_encoder_destroy(encoder);
            gw_encoder_destroy(bucketed);
            gw_context_destroy(context);
        }
        assert_true(same_frame(frames[0], frames[1]));
        assert_true(same_frame(averages[0], averages[1]));
        assert_true(same_frame(fused[0], fused[1]));
        assert_true(same_floats(out[0], out[1], n));
        assert_memory_equal(&infos[0].max_abs, &infos[1].max_abs, sizeof infos[0] - offsetof(gw_measure, max_abs));
        assert_memory_equal(counts[0], counts[1], sizeof counts[0]);
        assert_true(bits[0] == bits[1]);
        for (int i = 0; i < 2; i++) {
            free(frames[i].bytes);
            free(averages[i].bytes);
            free(fused[i].bytes);
        }
    }
    free(g);
    free(out[0]);
    free(out[1]);
#else
    skip();
#endif
}

/* ---- what is not finite ------------------------------------------------------------------------------ */

TEST(nan_and_infinity_are_found_and_refused)
{
    const uint64_t n = 70000;
    const uint64_t places[] = {0, 1, 31, 32, 1023, 1024, 1025, 65535, 65536, 65537, 69999};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    const char *specs[] = {"ternary",           "ternary:bucket=512",           "ternary:bucket=1000",
                           "ternary:share=off", "ternary:share=off,bucket=512", "none"};
    float *g = room_for(n, sizeof *g);
    numbers_fill_bell(9, g, n);
    for (size_t k = 0; k < 6; k++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            gw_context *context = context_of(threads);
            gw_encoder *encoder = encoder_of(context, specs[k], n);
            uint64_t n_shared = gw_encoder_traits_of(encoder).n_shared;
            float *shared = room_for(n_shared, sizeof *shared);
            size_t bound = gw_encoder_bound(encoder, n), size;
            uint8_t *bytes = room_for(bound, 1);
            for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
                float kept = g[places[p]], kept_last = g[n - 1];
                g[n - 1] = NAN; /* the first bad element is named */
                g[places[p]] = bad[p % 4];
                for (uint64_t b = 0; b < n_shared; b++)
                    shared[b] = -7;
                gw_measure info;
                assert_int_equal(gw_encoder_measure(encoder, g, shared, n_shared, &info), GW_OK);
                CHECK(!info.finite && info.bad_index == places[p], "%s: %llu, not %llu", specs[k],
                      (unsigned long long)info.bad_index, (unsigned long long)places[p]);
                for (uint64_t b = 0; b < n_shared; b++)
                    assert_true(shared[b] == -7); /* the numbers are not set */
                assert_int_equal(gw_encoder_encode(encoder, g, NULL, &at_step, 0, n, bytes, bound, &size),
                                 GW_ERR_NONFINITE);
                char where[80];
                snprintf(where, sizeof where, "'layer.weight' holds a NaN or an infinity at element %llu",
                         (unsigned long long)places[p]);
                assert_non_null(strstr(gw_last_error(), where));
                info = (gw_measure){.finite = true};
                assert_int_equal(gw_encoder_measure_encode(encoder, g, NULL, &at_step, bytes, bound, &size, &info),
                                 GW_ERR_NONFINITE);
                assert_non_null(strstr(gw_last_error(), where));
                assert_true(!info.finite && info.bad_index == places[p]);
                g[places[p]] = kept;
                g[n - 1] = kept_last;
                /* The next gradient can be encoded. */
                assert_int_equal(gw_encoder_measure_encode(encoder, g, NULL, &at_step, bytes, bound, &size, &info),
                                 GW_OK);
                assert_true(info.finite);
            }
            free(bytes);
            free(shared);
            gw_encoder_destroy(encoder);
            gw_context_destroy(context);
        }
    free(g);
}

/* ---- wrong use --------------------------------------------------------------------------------------- */

TEST(scalers_below_ones_own_are_refused)
{
    static float g[3000];
    static uint8_t bytes[8000];
    size_t size;
    numbers_fill_bell(3, g, 3000);
    for (uint64_t bucket = 0; bucket <= 1000; bucket += 1000) {
        gw_encoder *encoder = encoder_of(NULL, bucket ? "ternary:bucket=1000" : "ternary", 3000);
        uint64_t n = gw_encoder_traits_of(encoder).n_shared;
        assert_int_equal(n, bucket ? 3 : 1);
        float own[3], given[3];
        measure(encoder, g, own);
        const float bad[] = {nextafterf(own[n - 1], 0), 0, -1, NAN, INFINITY};
        for (size_t i = 0; i < 5; i++) {
            memcpy(given, own, sizeof given);
            given[n - 1] = bad[i];
            CHECK(gw_encoder_encode(encoder, g, given, &at_step, 0, 3000, bytes, sizeof bytes, &size) ==
                      GW_ERR_ARGUMENT,
                  "%g", (double)bad[i]);
            assert_non_null(strstr(gw_last_error(), "tensor 'layer.weight': the given scaler"));
        }
        memcpy(given, own, sizeof given);
        assert_int_equal(gw_encoder_encode(encoder, g, given, &at_step, 0, 3000, bytes, sizeof bytes, &size), GW_OK);
        given[n - 1] = FLT_MAX;
        assert_int_equal(gw_encoder_encode(encoder, g, given, &at_step, 0, 3000, bytes, sizeof bytes, &size), GW_OK);
        gw_encoder_destroy(encoder);
    }
}

TEST(wrong_calls_are_refused)
{
    static float g[100];
    static uint8_t bytes[1000];
    size_t size;
    float s;
    gw_encoder *encoder, *none = NULL;
    gw_codec *codec = codec_of(NULL, "ternary");
    gw_tensor tensor = {.name = "w", .n_elems = GW_MAX_ELEMENTS + 1};
    encoder = (gw_encoder *)&codec;
    assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_ERR_ARGUMENT);
    assert_null(encoder);
    assert_non_null(strstr(gw_last_error(), "17179869185 elements; at most 17179869184"));
    char name[GW_MAX_NAME + 1];
    memset(name, 'n', sizeof name);
    name[GW_MAX_NAME] = 0;
    tensor = (gw_tensor){.name = name, .n_elems = 100};
    tensor.id = 7;
    assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "tensor 7, 'nnn"));
    assert_non_null(strstr(gw_last_error(), "a name of 1024 bytes; at most 1023"));
    name[GW_MAX_NAME - 1] = 0;
    assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_OK);
    name[0] = 'x'; /* the name was copied */
    assert_int_equal(gw_encoder_create(NULL, NULL, &tensor, &none), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_create(NULL, codec, NULL, &none), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_create(NULL, codec, &tensor, NULL), GW_ERR_ARGUMENT);

    assert_int_equal(gw_encoder_encode(encoder, g, NULL, &at_step, 0, 100, bytes, sizeof bytes, &size), GW_ERR_ORDER);
    assert_non_null(strstr(gw_last_error(), "'nnn"));
    assert_non_null(strstr(gw_last_error(), "was not measured"));
    assert_int_equal(gw_encoder_measure(NULL, g, &s, 1, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_measure(encoder, NULL, &s, 1, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_measure(encoder, g, NULL, 1, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_measure(encoder, g, &s, 0, NULL), GW_ERR_CAPACITY);
    assert_non_null(strstr(gw_last_error(), "room for 0 shared numbers; tensor 'nnn"));
    assert_non_null(strstr(gw_last_error(), "has 1"));
    assert_int_equal(gw_encoder_measure(encoder, g, &s, 1, NULL), GW_OK);
    assert_int_equal(gw_encoder_encode(NULL, g, NULL, &at_step, 0, 100, bytes, sizeof bytes, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_encode(encoder, NULL, NULL, &at_step, 0, 100, bytes, sizeof bytes, &size),
                     GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_encode(encoder, g, NULL, NULL, 0, 100, bytes, sizeof bytes, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_encode(encoder, g, NULL, &at_step, 0, 100, NULL, sizeof bytes, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_encode(encoder, g, NULL, &at_step, 0, 100, bytes, sizeof bytes, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_measure_encode(NULL, g, NULL, &at_step, bytes, sizeof bytes, &size, NULL),
                     GW_ERR_ARGUMENT);
    const gw_draw beyond = {.rank = GW_MAX_WORKERS};
    assert_int_equal(gw_encoder_encode(encoder, g, NULL, &beyond, 0, 100, bytes, sizeof bytes, &size), GW_ERR_ARGUMENT);
    const gw_draw highest = {.rank = GW_MAX_WORKERS - 1};
    assert_int_equal(gw_encoder_encode(encoder, g, NULL, &highest, 0, 100, bytes, sizeof bytes, &size), GW_OK);

    size_t bound = gw_encoder_bound(encoder, 100);
    memset(bytes, 0xEE, sizeof bytes);
    assert_int_equal(gw_encoder_encode(encoder, g, NULL, &at_step, 0, 100, bytes, bound - 1, &size), GW_ERR_CAPACITY);
    assert_int_equal(gw_encoder_measure_encode(encoder, g, NULL, &at_step, bytes, bound - 1, &size, NULL),
                     GW_ERR_CAPACITY);
    assert_int_equal(bytes[0], 0xEE);
    assert_int_equal(gw_encoder_encode(encoder, g, NULL, &at_step, 0, 100, bytes, bound, &size), GW_OK);
    assert_int_equal(bytes[bound], 0xEE);

    float out[101];
    assert_int_equal(gw_decode(NULL, bytes, size, out, 99), GW_ERR_ARGUMENT);
    assert_int_equal(gw_decode(NULL, bytes, size, out, 101), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "100 elements; room for 101"));
    assert_int_equal(gw_decode(NULL, bytes, size, NULL, 100), GW_ERR_ARGUMENT);
    assert_int_equal(gw_decode(NULL, NULL, size, out, 100), GW_ERR_ARGUMENT);
    assert_int_equal(gw_decode(NULL, bytes, size - 1, out, 100), GW_ERR_FRAME_CUT);
    assert_int_equal(gw_frame_parse(bytes, size, NULL), GW_ERR_ARGUMENT);
    assert_true(gw_frame_scaler(bytes, 10, 0) == 0);
    gw_encoder_destroy(encoder);
    gw_encoder_destroy(NULL);
    gw_codec_destroy(codec);
}

/* With skip= and min= the tensor is float32, and nothing is shared. parse_test.c tests which tensors these are. */
TEST(tensors_left_in_float_come_back_exactly)
{
    static float g[500], out[500];
    numbers_fill_bell(11, g, 500);
    const char *specs[] = {"ternary:skip=layer*", "ternary:min=501", "ternary:skip=*.weight,bucket=7,share=off"};
    for (size_t k = 0; k < 3; k++) {
        gw_encoder *encoder = encoder_of(NULL, specs[k], 500);
        assert_int_equal(gw_encoder_traits_of(encoder).n_shared, 0);
        assert_int_equal(gw_encoder_traits_of(encoder).slice_align, GW_SLICE_ALIGN);
        struct whole_frame frame = encode_whole(encoder, g, 500, NULL, at_step);
        gw_frame_info info;
        assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
        assert_string_equal(info.codec, "none");
        decode_into(NULL, frame, out, 500);
        assert_true(same_floats(g, out, 500));
        free(frame.bytes);
        gw_encoder_destroy(encoder);
    }
}

RUN_TESTS("ternary", NULL, NULL)
