/* Tests the reduce methods beside a plain loop over elements, on every type, with odd lengths and several numbers of
 * pushes. */
#include "pserver/store/reduce.h"
#include "base/memory.h"
#include "wire/float16.h"

#include <gradwire/codec.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 9u

static uint64_t state_of_numbers;

static uint64_t number(void)
{
    state_of_numbers = state_of_numbers * 6364136223846793005ull + 1442695040888963407ull;
    return state_of_numbers >> 11 ^ state_of_numbers >> 43;
}

/* A value of the type at `at`, drawn; now and then something special. */
static void draw(gw_ps_type type, uint8_t *at)
{
    double x = ((double)(int64_t)(number() % 20001) - 10000) / (double)(1 + number() % 97);
    bool special = number() % 50 == 0;
    switch (type) {
    case GW_PS_FLOAT32:
        gw_put_float(at, special ? (number() % 2 ? NAN : INFINITY) : (float)x);
        return;
    case GW_PS_FLOAT16:
        gw_put16(at, special ? (number() % 2 ? 0x7E00 : 0xFC00) : gw_to_f16((float)x));
        return;
    case GW_PS_BFLOAT16:
        gw_put16(at, special ? (number() % 2 ? 0x7FC0 : 0x7F80) : gw_to_bf16((float)x));
        return;
    case GW_PS_INT32:
        gw_put32(at, special ? 0x80000000u : (uint32_t)number());
        return;
    case GW_PS_INT64:
        gw_put64(at, (uint64_t)((int64_t)number() / 1024));
        return;
    default:
        *at = (uint8_t)number();
    }
}

static double as_double(gw_ps_type type, const uint8_t *at)
{
    switch (type) {
    case GW_PS_FLOAT32:
        return (double)gw_get_float(at);
    case GW_PS_FLOAT16:
        return (double)gw_from_f16(gw_get16(at));
    case GW_PS_BFLOAT16:
        return (double)gw_from_bf16(gw_get16(at));
    case GW_PS_INT32:
        return (int32_t)gw_get32(at);
    case GW_PS_INT64:
        return (double)(int64_t)gw_get64(at);
    default:
        return *at;
    }
}

/* To nearest, ties to even, found by trying all halves: nothing of the code under test is used. */
static uint16_t nearest_16(double x, float (*from)(uint16_t), uint16_t infinity)
{
    if (x != x)
        return 0xFFFF;
    uint16_t sign = signbit(x) ? 0x8000 : 0, low = 0, high = infinity;
    double magnitude = fabs(x);
    while (low + 1 < high) { /* low <= magnitude < high */
        uint16_t middle = (uint16_t)((low + high) / 2);
        if ((double)from(middle) <= magnitude)
            low = middle;
        else
            high = middle;
    }
    /* The place where infinity stands is the next power of two: one more step than the largest number. */
    double below = (double)from(low),
           above = high == infinity ? 2 * below - (double)from((uint16_t)(low - 1)) : (double)from(high);
    if (isinf(x))
        return sign | infinity;
    bool up = magnitude - below > above - magnitude || (magnitude - below == above - magnitude && low % 2);
    return sign | (up ? high : low);
}

static float from_f16(uint16_t x)
{
    return gw_from_f16(x);
}

static float from_bf16(uint16_t x)
{
    return gw_from_bf16(x);
}

static bool result_is(gw_ps_type type, const uint8_t *at, double expected)
{
    if (expected != expected)
        return as_double(type, at) != as_double(type, at);
    switch (type) {
    case GW_PS_FLOAT32:
        return gw_get32(at) == gw_float_bits((float)expected);
    case GW_PS_FLOAT16:
        return gw_get16(at) == nearest_16(expected, from_f16, 0x7C00);
    case GW_PS_BFLOAT16:
        return gw_get16(at) == nearest_16(expected, from_bf16, 0x7F80);
    default:
        return as_double(type, at) == expected;
    }
}

static void compare(gw_context *context, gw_ps_type type, uint64_t n, uint32_t n_pushes)
{
    size_t width = gw_ps_type_bytes(type);
    uint8_t *bytes[MOST];
    struct gw_ps_push pushes[MOST];
    for (uint32_t p = 0; p < n_pushes; p++) {
        bytes[p] = malloc(n * width);
        assert_non_null(bytes[p]);
        for (uint64_t i = 0; i < n; i++)
            draw(type, bytes[p] + i * width);
        pushes[p] = (struct gw_ps_push){.rank = 2 * p, .bytes = bytes[p], .n_bytes = n * width};
    }
    const gw_ps_shape shape = {.n_dims = 1, .dims = {n}};
    bool floats = type == GW_PS_FLOAT32 || type == GW_PS_FLOAT16 || type == GW_PS_BFLOAT16;
    for (gw_ps_method method = GW_PS_MAX; method <= GW_PS_MEAN; method++) {
        struct gw_ps_result result;
        assert_int_equal(gw_ps_reduce(context, method, type, &shape, pushes, n_pushes, NULL, NULL, &result), GW_OK);
        size_t result_width = gw_ps_type_bytes(result.type);
        assert_int_equal(result.n_bytes, n * result_width);
        for (uint64_t i = 0; i < n; i++) {
            double all = as_double(type, bytes[0] + i * width);
            int64_t exact = floats ? 0 : (int64_t)all;
            if (type == GW_PS_INT64)
                exact = (int64_t)gw_get64(bytes[0] + i * width);
            for (uint32_t p = 1; p < n_pushes; p++) {
                double one = as_double(type, bytes[p] + i * width);
                int64_t whole = type == GW_PS_INT64 ? (int64_t)gw_get64(bytes[p] + i * width)
                                : floats            ? 0
                                                    : (int64_t)one;
                if (method == GW_PS_MAX)
                    all = isnan(all) || isnan(one) ? NAN : one > all ? one : all, exact = whole > exact ? whole : exact;
                else if (method == GW_PS_MIN)
                    all = isnan(all) || isnan(one) ? NAN : one < all ? one : all, exact = whole < exact ? whole : exact;
                else
                    all += one, exact += whole;
            }
            const uint8_t *at = (const uint8_t *)result.bytes + i * result_width;
            if (!floats && method != GW_PS_MEAN) {
                assert_int_equal(result.type, method == GW_PS_SUM ? GW_PS_INT64 : type);
                assert_true(as_double(result.type, at) == (double)exact);
                if (result.type == GW_PS_INT64)
                    assert_true((int64_t)gw_get64(at) == exact);
                continue;
            }
            if (method == GW_PS_MEAN)
                all = (floats ? all : (double)exact) / n_pushes;
            assert_int_equal(result.type, floats ? type : GW_PS_FLOAT32);
            if (!result_is(result.type, at, all))
                fail_msg("type %d, method %d, element %llu of %llu: %.17g became %.17g", (int)type, (int)method,
                         (unsigned long long)i, (unsigned long long)n, all, as_double(result.type, at));
        }
        gw_free(context, result.bytes);
    }
    for (uint32_t p = 0; p < n_pushes; p++)
        free(bytes[p]);
}

static void plain_types_are_reduced_exactly(void **state)
{
    (void)state;
    const gw_context_options three = {.struct_bytes = sizeof three, .n_threads = 3};
    gw_context *context;
    assert_int_equal(gw_context_create(&three, &context), GW_OK);
    const uint64_t lengths[] = {1, 2, 7, 1000, 4095, 4096, 4097, 12289};
    state_of_numbers = 1;
    for (gw_ps_type type = GW_PS_FLOAT32; type <= GW_PS_UINT8; type++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (uint32_t n = 1; n <= MOST; n += n < 3 ? 1 : 3)
                compare(n % 2 ? context : NULL, type, lengths[l], n);
    gw_context_destroy(context);
}

/* Sums whose float64 value lies next to the middle between two halves: rounding twice would go to the wrong one. */
static void halves_are_rounded_once(void **state)
{
    (void)state;
    const gw_ps_shape shape = {.n_dims = 1, .dims = {1}};
    for (uint32_t bits = 0x3C00; bits < 0x3C20; bits++)
        for (int side = -1; side <= 1; side++) {
            double middle = ((double)gw_from_f16((uint16_t)bits) + (double)gw_from_f16((uint16_t)(bits + 1))) / 2;
            /* In float32 the middle plus this is the middle again. */
            double x = middle + side * 0x1p-40;
            float high = (float)x, low = (float)(x - (double)high);
            const struct gw_ps_push pushes[] = {{0, &high, 4}, {1, &low, 4}};
            struct gw_ps_result result;
            assert_int_equal(gw_ps_reduce(NULL, GW_PS_SUM, GW_PS_FLOAT32, &shape, pushes, 2, NULL, NULL, &result),
                             GW_OK);
            assert_true(gw_get_float(result.bytes) == (float)x);
            gw_free(NULL, result.bytes);
        }
    /* The mean of three halves: a third is never exact. */
    state_of_numbers = 7;
    for (int i = 0; i < 20000; i++) {
        uint16_t half[3];
        struct gw_ps_push pushes[3];
        double sum = 0;
        for (uint32_t p = 0; p < 3; p++) {
            half[p] = (uint16_t)(number() % 0x7C00);
            sum += (double)gw_from_f16(half[p]);
            pushes[p] = (struct gw_ps_push){p, &half[p], 2};
        }
        struct gw_ps_result result;
        assert_int_equal(gw_ps_reduce(NULL, GW_PS_MEAN, GW_PS_FLOAT16, &shape, pushes, 3, NULL, NULL, &result), GW_OK);
        assert_int_equal(gw_get16(result.bytes), nearest_16(sum / 3, from_f16, 0x7C00));
        gw_free(NULL, result.bytes);
    }
}

static void integers_that_overflow_are_refused(void **state)
{
    (void)state;
    const gw_ps_shape shape = {.n_dims = 1, .dims = {3}};
    const int64_t a[3] = {0, INT64_MAX, 1}, b[3] = {0, 1, 1};
    const struct gw_ps_push pushes[] = {{0, a, sizeof a}, {1, b, sizeof b}};
    struct gw_ps_result result;
    assert_int_equal(gw_ps_reduce(NULL, GW_PS_SUM, GW_PS_INT64, &shape, pushes, 2, NULL, NULL, &result),
                     GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "element 1"));
    assert_int_equal(gw_ps_reduce(NULL, GW_PS_MEAN, GW_PS_INT64, &shape, pushes, 2, NULL, NULL, &result), GW_OK);
    assert_true(gw_get_float(result.bytes) == 0 && gw_get_float((uint8_t *)result.bytes + 4) == 0x1p62f &&
                gw_get_float((uint8_t *)result.bytes + 8) == 1);
    gw_free(NULL, result.bytes);
    assert_int_equal(gw_ps_reduce(NULL, GW_PS_MAX, GW_PS_INT64, &shape, pushes, 2, NULL, NULL, &result), GW_OK);
    gw_free(NULL, result.bytes);
}

/* Only the result of a sum must fit; sums on the way may be larger; and a mean is that of the exact sum, rounded once.
 */
static void sums_of_integers_are_exact(void **state)
{
    (void)state;
    enum { N = 6 };
    const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
    const int64_t big = INT64_C(1) << 62, tie = (INT64_C(1) << 24) + 1,
                  values[3][N] = {
                      {big, INT64_MIN, big, 3 * tie, 1, -2},
                      {big, INT64_MIN, big, 0, 0, 0},
                      {-big, INT64_MAX, big - 1, 1, 0, 0},
                  };
    const int64_t sums[N] = {big, 0, 0, 3 * tie + 1, 1, -2};
    /* 2^24 + 1 is a tie between two float32: a third more is above it, and no float64 tells them apart once they are
     * large. -1/3 and -2/3 are of the last bits of a float32. */
    const float means[N] = {0x1p62f / 3, -3074457345618258603.0f, 0x1.8p63f / 3, 0x1p24f + 2, 1.0f / 3, -2.0f / 3};
    struct gw_ps_push pushes[3];
    struct gw_ps_result result;
    for (uint32_t p = 0; p < 3; p++)
        pushes[p] = (struct gw_ps_push){p, values[p], sizeof values[p]};
    assert_int_equal(gw_ps_reduce(NULL, GW_PS_SUM, GW_PS_INT64, &shape, pushes, 3, NULL, NULL, &result),
                     GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "element 1 does not fit"));
    assert_int_equal(gw_ps_reduce(NULL, GW_PS_MEAN, GW_PS_INT64, &shape, pushes, 3, NULL, NULL, &result), GW_OK);
    for (int i = 0; i < N; i++)
        assert_true(gw_get_float((uint8_t *)result.bytes + 4 * i) == means[i]);
    gw_free(NULL, result.bytes);
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
    for (int i = 0; i < N; i++) {
        if (i == 1 || i == 2) /* beyond int64 */
            continue;
        for (uint32_t p = 0; p < 3; p++)
            pushes[p] = (struct gw_ps_push){p, &values[p][i], sizeof values[p][i]};
        assert_int_equal(gw_ps_reduce(NULL, GW_PS_SUM, GW_PS_INT64, &one, pushes, 3, NULL, NULL, &result), GW_OK);
        assert_true((int64_t)gw_get64(result.bytes) == sums[i]);
        gw_free(NULL, result.bytes);
    }
}

/* Codes of a shared scale, and frames that hold the same: the averages have the same bits. */
static void averages_of_codes_have_the_bits_of_frames(void **state)
{
    (void)state;
    enum { N = 1024 };
    gw_codec *codec;
    assert_int_equal(gw_codec_parse(NULL, "ternary:clip=0", &codec), GW_OK);
    state_of_numbers = 17;
    for (uint32_t workers = 1; workers <= MOST; workers++)
        for (int draw_of = 0; draw_of < 20; draw_of++) {
            const gw_tensor tensor = {.id = 0, .n_elems = N};
            const float scale = (float)(1 + number() % 100000) / 77777;
            static uint8_t frames[MOST][1 << 16], codes[MOST][N / 4], average[1 << 16];
            const void *views[MOST];
            size_t sizes[MOST], n_bytes;
            struct gw_ps_push pushes[MOST];
            for (uint32_t r = 0; r < workers; r++) {
                gw_encoder *encoder;
                float gradient[N], own[1];
                memset(codes[r], 0, sizeof codes[r]);
                for (uint32_t i = 0; i < N; i++) { /* -s, 0 and s are sent as they are */
                    const uint32_t code = (uint32_t)(number() % 3);
                    gradient[i] = ((float)code - 1) * scale;
                    codes[r][i / 4] |= (uint8_t)(code << 2 * (i % 4));
                }
                assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_OK);
                assert_int_equal(gw_encoder_measure(encoder, gradient, own, 1, NULL), GW_OK);
                const gw_draw draws = {.seed = 5, .rank = r, .step = 0};
                assert_int_equal(gw_encoder_encode(encoder, gradient, &scale, &draws, 0, N, frames[r], sizeof frames[r],
                                                   &sizes[r]),
                                 GW_OK);
                views[r] = frames[r];
                pushes[r] = (struct gw_ps_push){r, codes[r], sizeof codes[r]};
                gw_encoder_destroy(encoder);
            }
            float expected[N];
            struct gw_ps_result result;
            const gw_ps_shape shape = {.n_dims = 1, .dims = {N / 4}};
            assert_int_equal(gw_reduce(NULL, views, sizes, workers, NULL, average, sizeof average, &n_bytes), GW_OK);
            assert_int_equal(gw_decode(NULL, average, n_bytes, expected, N), GW_OK);
            assert_int_equal(gw_ps_reduce(NULL, GW_PS_DECODE_AVERAGE, GW_PS_UINT8, &shape, pushes, workers, NULL,
                                          &scale, &result),
                             GW_OK);
            assert_memory_equal(result.bytes, expected, sizeof expected);
            gw_free(NULL, result.bytes);
        }
    gw_codec_destroy(codec);
}

static void codes_are_added_up(void **state)
{
    (void)state;
    state_of_numbers = 3;
    const uint64_t lengths[] = {1, 3, 1023, 1024, 1025, 5000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (uint32_t n = 1; n <= 7; n += 3) {
            uint8_t *bytes[MOST];
            struct gw_ps_push pushes[MOST];
            for (uint32_t p = 0; p < n; p++) {
                bytes[p] = malloc(lengths[l]);
                for (uint64_t i = 0; i < lengths[l]; i++)
                    bytes[p][i] = (uint8_t)(number() % 3 | number() % 3 << 2 | number() % 3 << 4 | number() % 3 << 6);
                pushes[p] = (struct gw_ps_push){p, bytes[p], lengths[l]};
            }
            const gw_ps_shape shape = {.n_dims = 2, .dims = {1, lengths[l]}};
            const float scale = 0.3f;
            for (gw_ps_method method = GW_PS_DECODE_SUM; method <= GW_PS_DECODE_AVERAGE; method++) {
                struct gw_ps_result result;
                assert_int_equal(gw_ps_reduce(NULL, method, GW_PS_UINT8, &shape, pushes, n, NULL, &scale, &result),
                                 GW_OK);
                assert_true(result.type == GW_PS_FLOAT32 && result.shape.n_dims == 2 && result.shape.dims[0] == 1 &&
                            result.shape.dims[1] == 4 * lengths[l]);
                assert_int_equal(result.n_bytes, 16 * lengths[l]);
                for (uint64_t e = 0; e < 4 * lengths[l]; e++) {
                    int sum = 0;
                    for (uint32_t p = 0; p < n; p++)
                        sum += (bytes[p][e / 4] >> 2 * (e % 4) & 3) - 1;
                    float expected = method == GW_PS_DECODE_SUM ? (float)sum * scale : (float)sum * (scale / (float)n);
                    assert_true(((const float *)result.bytes)[e] == expected);
                }
                gw_free(NULL, result.bytes);
            }
            bytes[n - 1][lengths[l] - 1] |= 0x30;
            struct gw_ps_result result;
            assert_int_equal(gw_ps_reduce(NULL, GW_PS_DECODE_SUM, GW_PS_UINT8, &shape, pushes, n, NULL, NULL, &result),
                             GW_ERR_ARGUMENT);
            assert_non_null(strstr(gw_last_error(), "holds the code 11"));
            for (uint32_t p = 0; p < n; p++)
                free(bytes[p]);
        }
}

/* Frames are averaged as an owner averages them. decode_sum is the sum of their values. */
static void frames_are_averaged_in_their_own_domain(void **state)
{
    (void)state;
    enum { N = 1000, WORKERS = 3 };
    gw_codec *codec;
    gw_context *context;
    uint8_t *frames[WORKERS];
    const void *views[WORKERS];
    size_t sizes[WORKERS];
    struct gw_ps_push pushes[WORKERS];
    float gradient[N];
    double sum[N] = {0};
    assert_int_equal(gw_context_create(NULL, &context), GW_OK);
    assert_int_equal(gw_codec_parse(context, "ternary", &codec), GW_OK);
    const gw_tensor tensor = {.id = 0, .n_elems = N};
    state_of_numbers = 11;
    for (uint32_t r = 0; r < WORKERS; r++) {
        gw_encoder *encoder;
        gw_measure info;
        float shared[1], decoded[N];
        assert_int_equal(gw_encoder_create(context, codec, &tensor, &encoder), GW_OK);
        for (int i = 0; i < N; i++)
            gradient[i] = (float)((double)(number() % 2001) - 1000) / 1000;
        gradient[0] = 1; /* one scaler for all */
        assert_int_equal(gw_encoder_measure(encoder, gradient, shared, 1, &info), GW_OK);
        shared[0] = 1;
        size_t capacity = gw_encoder_bound(encoder, N);
        frames[r] = malloc(capacity);
        const gw_draw draws = {.seed = 5, .rank = r, .step = 0};
        assert_int_equal(gw_encoder_encode(encoder, gradient, shared, &draws, 0, N, frames[r], capacity, &sizes[r]),
                         GW_OK);
        assert_int_equal(gw_decode(context, frames[r], sizes[r], decoded, N), GW_OK);
        for (int i = 0; i < N; i++)
            sum[i] += (double)decoded[i];
        views[r] = frames[r];
        pushes[r] = (struct gw_ps_push){r, frames[r], sizes[r]};
        gw_encoder_destroy(encoder);
    }
    size_t capacity = gw_reduce_bound(views, sizes, WORKERS), average_bytes;
    uint8_t *average = malloc(capacity);
    assert_int_equal(gw_reduce(context, views, sizes, WORKERS, NULL, average, capacity, &average_bytes), GW_OK);
    const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
    struct gw_ps_result result;
    assert_int_equal(gw_ps_reduce(context, GW_PS_DECODE_AVERAGE, GW_PS_FRAME, &shape, pushes, WORKERS, NULL, NULL,
                                  &result),
                     GW_OK);
    assert_true(result.type == GW_PS_FRAME && result.n_bytes == average_bytes &&
                memcmp(result.bytes, average, average_bytes) == 0);
    gw_free(context, result.bytes);
    assert_int_equal(gw_ps_reduce(context, GW_PS_DECODE_SUM, GW_PS_FRAME, &shape, pushes, WORKERS, NULL, NULL, &result),
                     GW_OK);
    for (int i = 0; i < N; i++)
        assert_true(((const float *)result.bytes)[i] == (float)sum[i]);
    gw_free(context, result.bytes);
    free(average);
    for (uint32_t r = 0; r < WORKERS; r++)
        free(frames[r]);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
}

static void methods_have_types(void **state)
{
    (void)state;
    assert_null(gw_ps_type_name((gw_ps_type)8));
    assert_int_equal(gw_ps_method_check(GW_PS_MAX, GW_PS_FRAME), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "with latest, decode_sum, decode_average they can"));
    assert_int_equal(gw_ps_method_check((gw_ps_method)200, GW_PS_UINT8), GW_ERR_ARGUMENT);
    assert_int_equal(gw_ps_method_check(GW_PS_DECODE_SUM, GW_PS_INT32), GW_ERR_ARGUMENT);
}

/* ---- median ---------------------------------------------------------------------------------------------- */

/* The median of one float32 of each of n pushes. */
static float median_of(const float *values, uint32_t n)
{
    const gw_ps_shape shape = {.n_dims = 1, .dims = {1}};
    struct gw_ps_push pushes[MOST];
    struct gw_ps_result result;
    for (uint32_t p = 0; p < n; p++)
        pushes[p] = (struct gw_ps_push){p, &values[p], sizeof values[p]};
    assert_int_equal(gw_ps_reduce(NULL, GW_PS_MEDIAN, GW_PS_FLOAT32, &shape, pushes, n, NULL, NULL, &result), GW_OK);
    assert_true(result.type == GW_PS_FLOAT32 && result.n_bytes == sizeof(float));
    const float x = gw_get_float(result.bytes);
    gw_free(NULL, result.bytes);
    return x;
}

/* Every order of the values has the same bits. */
static void expect_median(float *values, uint32_t n, uint32_t fixed, float expected)
{
    if (fixed == n) {
        const float x = median_of(values, n);
        if (expected != expected ? x == x : gw_float_bits(x) != gw_float_bits(expected))
            fail_msg("the median of %u values is %g, and must be %g", n, (double)x, (double)expected);
        return;
    }
    for (uint32_t i = fixed; i < n; i++) {
        const float before = values[fixed];
        values[fixed] = values[i];
        values[i] = before;
        expect_median(values, n, fixed + 1, expected);
        values[i] = values[fixed];
        values[fixed] = before;
    }
}

static void medians_are_exact_in_every_order(void **state)
{
    (void)state;
    const float inf = INFINITY, tiny = 0x1p-149f, most = 0x1.fffffep127f;
    const struct {
        float values[6];
        uint32_t n;
        float median;
    } cases[] = {
        {{7}, 1, 7},
        {{-0.0f}, 1, -0.0f},
        {{1, 2}, 2, 1.5f},
        {{3, 1, 2}, 3, 2},
        {{-4, -1, -9, -2, -3}, 5, -3},
        {{4, 1, 9, 2}, 4, 3},
        {{5, 5, 5, 5}, 4, 5}, /* ties */
        {{1, 5, 5, 9}, 4, 5},
        {{1, 1, 2}, 3, 1},
        {{1, 1, 2, 2}, 4, 1.5f},
        {{-0.0f, 0.0f, 0.0f}, 3, 0.0f},
        {{-0.0f, -0.0f, 0.0f}, 3, -0.0f},
        {{-0.0f, 0.0f}, 2, 0.0f},
        {{1, 2, 1e30f}, 3, 2}, /* a wrong one among honest ones */
        {{1, 2, 3, 1e30f}, 4, 2.5f},
        {{1, 2, 3, -1e30f, 1e30f}, 5, 2},
        {{1, 2, 3, 4, 1e30f, 1e30f}, 6, 3.5f},
        {{inf, 1, 2}, 3, 2},
        {{-inf, 1, 2, 3}, 4, 1.5f},
        {{inf, inf, 1}, 3, inf},
        {{1, inf}, 2, inf},
        {{-inf, -inf, 1, 2}, 4, -inf},
        {{-inf, inf}, 2, NAN},
        {{1, NAN, 2}, 3, 1.5f}, /* a NaN counts as missing */
        {{1, 2, 3, 4, NAN}, 5, 2.5f},
        {{1, 2, 3, -NAN, 1e30f}, 5, 2.5f},
        {{1, NAN, NAN, 1e30f, 2, 3}, 6, 2.5f},
        {{NAN, -NAN, -0.0f}, 3, -0.0f},
        {{NAN, 1}, 2, 1},
        {{NAN, inf, 1}, 3, inf},
        {{NAN}, 1, NAN}, /* no push is finite */
        {{NAN, -NAN, NAN}, 3, NAN},
        {{inf, inf}, 2, NAN},
        {{-inf, NAN}, 2, NAN},
        {{-inf, -inf, inf, inf}, 4, NAN},
        {{most, most, most, -most}, 4, most}, /* their sum is too large */
        {{most, 0x1p127f}, 2, 0x1.7fffffp127f},
        {{-most, -0x1p127f}, 2, -0x1.7fffffp127f},
        {{tiny, 2 * tiny}, 2, 2 * tiny}, /* rounded once, ties to even */
        {{0, tiny}, 2, 0},
        {{1, 1 + 0x1p-23f}, 2, 1},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float values[6];
        memcpy(values, cases[c].values, sizeof values);
        expect_median(values, cases[c].n, 0, cases[c].median);
    }
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

enum { MANY = 9000 }; /* pushes, or elements of one */

/* Compares the medians of n pushes of `width` floats with those of sorting. values: push after push; NaNs, and
 * multiples of 1/8, so that the mean of two is exact. */
static void expect_medians_of_sorting(gw_context *context, const float *values, uint32_t n, uint32_t width)
{
    static struct gw_ps_push pushes[MANY];
    static float sorted[MANY];
    const gw_ps_shape shape = {.n_dims = 1, .dims = {width}};
    struct gw_ps_result result;
    for (uint32_t p = 0; p < n; p++)
        pushes[p] = (struct gw_ps_push){p, values + (size_t)p * width, width * sizeof *values};
    assert_int_equal(gw_ps_reduce(context, GW_PS_MEDIAN, GW_PS_FLOAT32, &shape, pushes, n, NULL, NULL, &result), GW_OK);
    for (uint32_t i = 0; i < width; i++) {
        uint32_t there = 0;
        for (uint32_t p = 0; p < n; p++)
            if (!isnan(values[(size_t)p * width + i]))
                sorted[there++] = values[(size_t)p * width + i];
        qsort(sorted, there, sizeof *sorted, compare_floats);
        const float x = gw_get_float((const uint8_t *)result.bytes + i * sizeof x);
        if (there ? x != (sorted[(there - 1) / 2] + sorted[there / 2]) / 2 : !isnan(x))
            fail_msg("element %u of %u pushes is %g", i, n, (double)x);
    }
    gw_free(context, result.bytes);
}

/* More than a block of elements, with values that are drawn so that many are equal. */
static void medians_are_those_of_sorting(void **state)
{
    (void)state;
    static float values[MOST * MANY];
    gw_context *context;
    assert_int_equal(gw_context_create(NULL, &context), GW_OK);
    for (uint32_t n = 1; n <= MOST; n++) {
        for (uint32_t i = 0; i < n * MANY; i++)
            values[i] = number() % 7 ? (float)((int)(number() % 41) - 20) / 8 : NAN;
        expect_medians_of_sorting(context, values, n, MANY);
    }
    gw_context_destroy(context);
}

/* So many pushes that the elements of a block no longer fit beside each other, down to one at a time. */
static void medians_of_many_pushes(void **state)
{
    (void)state;
    enum { WIDTH = 7, FEW = 70 };
    static const uint32_t beyond[] = {511, 1024, 1171, 4096, 8191, 8192, 8193, MANY};
    static float values[MANY * WIDTH];
    for (uint32_t k = 0; k < FEW + sizeof beyond / sizeof *beyond; k++) {
        const uint32_t n = k < FEW ? k + 1 : beyond[k - FEW];
        for (uint32_t i = 0; i < n * WIDTH; i++)
            values[i] = number() % 5 ? (float)((int)(number() % 1000) - 500) / 8 : -NAN;
        expect_medians_of_sorting(NULL, values, n, WIDTH);
    }
}

/* What the header says of a NaN: it wins in every method but median, and the NaN of a result has one form of bits. */
static void a_nan_wins_in_other_methods(void **state)
{
    (void)state;
    static const struct {
        uint32_t values[2], n_methods;
    } cases[] = {{{0x3F800000, 0x7FC00000}, 4},  /* 1 and a NaN */
                 {{0x3F800000, 0xFFC12345}, 4},  /* 1 and a NaN with a sign and more bits */
                 {{0xFFC12345, 0x7F800000}, 4},  /* that one and infinity */
                 {{0x7F800000, 0xFF800000}, 2}}; /* both infinities have no sum */
    static const gw_ps_method methods[] = {GW_PS_SUM, GW_PS_MEAN, GW_PS_MAX, GW_PS_MIN};
    const gw_ps_shape shape = {.n_dims = 1, .dims = {1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (uint32_t m = 0; m < cases[c].n_methods; m++)
            for (uint32_t first = 0; first < 2; first++) {
                uint8_t bytes[2][4];
                struct gw_ps_result result;
                gw_put32(bytes[first], cases[c].values[0]);
                gw_put32(bytes[1 - first], cases[c].values[1]);
                const struct gw_ps_push pushes[] = {{0, bytes[0], 4}, {1, bytes[1], 4}};
                assert_int_equal(gw_ps_reduce(NULL, methods[m], GW_PS_FLOAT32, &shape, pushes, 2, NULL, NULL, &result),
                                 GW_OK);
                if (gw_get32(result.bytes) != 0x7FC00000)
                    fail_msg("case %zu, method %d, first %u: %08x", c, (int)methods[m], first, gw_get32(result.bytes));
                gw_free(NULL, result.bytes);
            }
}

/* A float sum beyond the largest number of the type is infinity. */
static void a_sum_that_is_too_large_is_infinite(void **state)
{
    (void)state;
    static const struct {
        gw_ps_type type;
        uint32_t largest, infinity;
    } cases[] = {{GW_PS_FLOAT32, 0x7F7FFFFF, 0x7F800000},
                 {GW_PS_FLOAT16, 0x7BFF, 0x7C00},
                 {GW_PS_BFLOAT16, 0x7F7F, 0x7F80}};
    const gw_ps_shape shape = {.n_dims = 1, .dims = {1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        uint8_t bytes[4];
        struct gw_ps_result result;
        gw_put32(bytes, cases[c].largest);
        const size_t n_bytes = gw_ps_type_bytes(cases[c].type);
        const struct gw_ps_push pushes[] = {{0, bytes, n_bytes}, {1, bytes, n_bytes}};
        assert_int_equal(gw_ps_reduce(NULL, GW_PS_SUM, cases[c].type, &shape, pushes, 2, NULL, NULL, &result), GW_OK);
        const uint32_t bits = n_bytes == 4 ? gw_get32(result.bytes) : gw_get16(result.bytes);
        if (bits != cases[c].infinity)
            fail_msg("type %d: %08x", (int)cases[c].type, bits);
        gw_free(NULL, result.bytes);
    }
}

static void medians_have_the_types_of_floats(void **state)
{
    (void)state;
    const gw_ps_shape shape = {.n_dims = 1, .dims = {1}};
    const uint16_t halves[] = {gw_to_f16(1), gw_to_f16(2), gw_to_f16(60000)};
    struct gw_ps_push pushes[3];
    struct gw_ps_result result;
    for (uint32_t p = 0; p < 3; p++)
        pushes[p] = (struct gw_ps_push){p, &halves[p], sizeof halves[p]};
    assert_int_equal(gw_ps_reduce(NULL, GW_PS_MEDIAN, GW_PS_FLOAT16, &shape, pushes, 3, NULL, NULL, &result), GW_OK);
    assert_true(result.type == GW_PS_FLOAT16 && gw_get16(result.bytes) == halves[1]);
    gw_free(NULL, result.bytes);
    for (gw_ps_type type = GW_PS_INT32; type <= GW_PS_FRAME; type++) {
        assert_int_equal(gw_ps_method_check(GW_PS_MEDIAN, type), GW_ERR_ARGUMENT);
        assert_null(strstr(gw_last_error(), ", median"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_types_are_reduced_exactly),
        cmocka_unit_test(halves_are_rounded_once),
        cmocka_unit_test(integers_that_overflow_are_refused),
        cmocka_unit_test(codes_are_added_up),
        cmocka_unit_test(sums_of_integers_are_exact),
        cmocka_unit_test(averages_of_codes_have_the_bits_of_frames),
        cmocka_unit_test(frames_are_averaged_in_their_own_domain),
        cmocka_unit_test(methods_have_types),
        cmocka_unit_test(medians_are_exact_in_every_order),
        cmocka_unit_test(medians_are_those_of_sorting),
        cmocka_unit_test(medians_of_many_pushes),
        cmocka_unit_test(a_nan_wins_in_other_methods),
        cmocka_unit_test(a_sum_that_is_too_large_is_infinite),
        cmocka_unit_test(medians_have_the_types_of_floats),
    };
    return cmocka_run_group_tests_name("ps_reduce", tests, NULL, NULL);
}
