/* Tests the reduce methods beside a plain loop over elements, on every type, with odd lengths and several numbers of
 * pushes. */
#include "pserver/store/reduce.h"
#include "base/memory.h"
#include "pserver/store/test_frame.h"
#include "wire/float16.h"

#include <math.h>
#include <stdlib.h>

#define MOST 9u

enum { MANY = 9000 }; /* pushes, or elements of one */

static struct numbers random_numbers;

static uint32_t below(uint32_t n)
{
    return numbers_below(&random_numbers, n);
}

/* A value of the type at `at`, drawn; now and then something special. */
static void draw(gw_ps_type type, uint8_t *at)
{
    static const uint32_t specials[][2] = {[GW_PS_FLOAT32] = {0x7FC00000, 0x7F800000},
                                           [GW_PS_FLOAT16] = {0x7E00, 0xFC00},
                                           [GW_PS_BFLOAT16] = {0x7FC0, 0x7F80},
                                           [GW_PS_INT32] = {0x80000000u, 0x7FFFFFFF}};
    const float x = ((float)below(20001) - 10000) / (float)(1 + below(97));
    const uint64_t word = numbers_word(&random_numbers);
    uint64_t bits = type == GW_PS_FLOAT32    ? gw_float_bits(x)
                    : type == GW_PS_FLOAT16  ? gw_to_f16(x)
                    : type == GW_PS_BFLOAT16 ? gw_to_bf16(x)
                    : type == GW_PS_INT64    ? (uint64_t)((int64_t)(word << 32 | below(UINT32_MAX)) / 1024)
                                             : word;
    if (type <= GW_PS_INT32 && below(50) == 0)
        bits = specials[type][below(2)];
    for (size_t b = 0; b < gw_ps_type_bytes(type); b++)
        at[b] = (uint8_t)(bits >> 8 * b);
}

static int64_t as_integer(gw_ps_type type, const uint8_t *at)
{
    return type == GW_PS_INT64 ? (int64_t)gw_get64(at) : type == GW_PS_INT32 ? (int32_t)gw_get32(at) : *at;
}

static double as_double(gw_ps_type type, const uint8_t *at)
{
    return type == GW_PS_FLOAT32    ? (double)gw_get_float(at)
           : type == GW_PS_FLOAT16  ? (double)gw_from_f16(gw_get16(at))
           : type == GW_PS_BFLOAT16 ? (double)gw_from_bf16(gw_get16(at))
                                    : (double)as_integer(type, at);
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

/* Of a type of floats. */
static bool result_is(gw_ps_type type, const uint8_t *at, double expected)
{
    if (expected != expected)
        return isnan(as_double(type, at));
    return type == GW_PS_FLOAT32   ? gw_get32(at) == gw_float_bits((float)expected)
           : type == GW_PS_FLOAT16 ? gw_get16(at) == nearest_16(expected, from_f16, 0x7C00)
                                   : gw_get16(at) == nearest_16(expected, from_bf16, 0x7F80);
}

/* ---- calls --------------------------------------------------------------------------------------------------- */

/* Reduces pushes of n elements each, which stand one after the other. */
static gw_status try_reduce(gw_context *context, gw_ps_method method, gw_ps_type type, const void *values, uint64_t n,
                            uint32_t n_pushes, const float *scale, struct gw_ps_result *out)
{
    static struct gw_ps_push pushes[MANY];
    const size_t n_bytes = n * gw_ps_type_bytes(type);
    for (uint32_t p = 0; p < n_pushes; p++)
        pushes[p] = (struct gw_ps_push){p, (const uint8_t *)values + p * n_bytes, n_bytes};
    const gw_ps_shape shape = {.n_dims = 2, .dims = {1, n}};
    return gw_ps_reduce(context, method, type, &shape, pushes, n_pushes, NULL, scale, out);
}

static struct gw_ps_result reduce(gw_context *context, gw_ps_method method, gw_ps_type type, const void *values,
                                  uint64_t n, uint32_t n_pushes, const float *scale)
{
    struct gw_ps_result result = {.bytes = NULL};
    ok(try_reduce(context, method, type, values, n, n_pushes, scale, &result));
    return result;
}

/* One element of each push. Gives the bits of the result, which has the pushes' type. */
static uint32_t reduce_one(gw_ps_method method, gw_ps_type type, const void *values, uint32_t n_pushes)
{
    struct gw_ps_result result = reduce(NULL, method, type, values, 1, n_pushes, NULL);
    assert_true(result.type == type && result.n_bytes == gw_ps_type_bytes(type));
    const uint32_t bits = result.n_bytes == 4 ? gw_get32(result.bytes) : gw_get16(result.bytes);
    gw_free(NULL, result.bytes);
    return bits;
}

/* ---- numbers -------------------------------------------------------------------------------------------------- */

static void compare(gw_context *context, gw_ps_type type, uint64_t n, uint32_t n_pushes)
{
    const size_t width = gw_ps_type_bytes(type);
    const bool floats = gw_ps_is_float(type);
    uint8_t *bytes = malloc(n_pushes * n * width);
    assert_non_null(bytes);
    for (uint64_t i = 0; i < n_pushes * n; i++)
        draw(type, bytes + i * width);
    for (gw_ps_method method = GW_PS_MAX; method <= GW_PS_MEAN; method++) {
        struct gw_ps_result result = reduce(context, method, type, bytes, n, n_pushes, NULL);
        const gw_ps_type expected_type = floats || method < GW_PS_SUM ? type
                                         : method == GW_PS_SUM        ? GW_PS_INT64
                                                                      : GW_PS_FLOAT32;
        const size_t result_width = gw_ps_type_bytes(expected_type);
        assert_true(result.type == expected_type && result.n_bytes == n * result_width);
        for (uint64_t i = 0; i < n; i++) {
            const uint8_t *at = bytes + i * width;
            double all = as_double(type, at);
            int64_t exact = floats ? 0 : as_integer(type, at);
            for (uint32_t p = 1; p < n_pushes; p++) {
                at += n * width;
                const double one = as_double(type, at);
                const int64_t whole = floats ? 0 : as_integer(type, at);
                if (method == GW_PS_MAX)
                    all = isnan(all) || isnan(one) ? NAN : one > all ? one : all, exact = whole > exact ? whole : exact;
                else if (method == GW_PS_MIN)
                    all = isnan(all) || isnan(one) ? NAN : one < all ? one : all, exact = whole < exact ? whole : exact;
                else
                    all += one, exact += whole;
            }
            if (method == GW_PS_MEAN)
                all = (floats ? all : (double)exact) / n_pushes;
            const uint8_t *got = (const uint8_t *)result.bytes + i * result_width;
            CHECK(gw_ps_is_float(expected_type) ? result_is(expected_type, got, all)
                                                : as_integer(expected_type, got) == exact,
                  "type %d, method %d, element %llu of %llu: %.17g became %.17g", (int)type, (int)method,
                  (unsigned long long)i, (unsigned long long)n, all, as_double(expected_type, got));
        }
        gw_free(context, result.bytes);
    }
    free(bytes);
}

TEST(plain_types_are_reduced_exactly)
{
    static const uint64_t lengths[] = {1, 2, 7, 1000, 4095, 4096, 4097, 12289};
    const gw_context_options three = {.struct_bytes = sizeof three, .n_threads = 3};
    gw_context *context;
    ok(gw_context_create(&three, &context));
    random_numbers = numbers_from(1);
    for (gw_ps_type type = GW_PS_FLOAT32; type <= GW_PS_UINT8; type++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (uint32_t n = 1; n <= MOST; n += n < 3 ? 1 : 3)
                compare(n % 2 ? context : NULL, type, lengths[l], n);
    gw_context_destroy(context);
}

/* Sums whose float64 value lies next to the middle between two halves: rounding twice would go to the wrong one. */
TEST(halves_are_rounded_once)
{
    for (uint32_t bits = 0x3C00; bits < 0x3C20; bits++)
        for (int side = -1; side <= 1; side++) {
            double middle = ((double)gw_from_f16((uint16_t)bits) + (double)gw_from_f16((uint16_t)(bits + 1))) / 2;
            /* In float32 the middle plus this is the middle again. */
            double x = middle + side * 0x1p-40;
            const float parts[] = {(float)x, (float)(x - (double)(float)x)};
            assert_int_equal(reduce_one(GW_PS_SUM, GW_PS_FLOAT32, parts, 2), gw_float_bits((float)x));
        }
    /* The mean of three halves: a third is never exact. */
    random_numbers = numbers_from(7);
    for (int i = 0; i < 20000; i++) {
        uint16_t half[3];
        double sum = 0;
        for (uint32_t p = 0; p < 3; p++) {
            half[p] = (uint16_t)(below(0x7C00));
            sum += (double)gw_from_f16(half[p]);
        }
        assert_int_equal(reduce_one(GW_PS_MEAN, GW_PS_FLOAT16, half, 3), nearest_16(sum / 3, from_f16, 0x7C00));
    }
}

/* A sum beyond int64 is refused. Only the result must fit; sums on the way may be larger; and a mean is that of the
 * exact sum, rounded once. */
TEST(sums_of_integers_are_exact)
{
    /* 2^24 + 1 is a tie between two float32: a third more is above it, and no float64 tells them apart once they are
     * large. -1/3 and -2/3 are of the last bits of a float32. */
    const int64_t big = INT64_C(1) << 62, tie = (INT64_C(1) << 24) + 1;
    const struct {
        int64_t values[3];
        bool fits;
        int64_t sum;
        float mean;
    } cases[] = {
        {{big, big, -big}, true, big, 0x1p62f / 3},
        {{INT64_MIN, INT64_MIN, INT64_MAX}, false, 0, -3074457345618258603.0f},
        {{big, big, big - 1}, false, 0, 0x1.8p63f / 3},
        {{3 * tie, 0, 1}, true, 3 * tie + 1, 0x1p24f + 2},
        {{1, 0, 0}, true, 1, 1.0f / 3},
        {{-2, 0, 0}, true, -2, -2.0f / 3},
        {{INT64_MAX, 1, 0}, false, 0, 0x1p63f / 3},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        /* The case is element 1 of two. */
        const int64_t *v = cases[c].values, values[3][2] = {{0, v[0]}, {0, v[1]}, {0, v[2]}};
        struct gw_ps_result result;
        refused(try_reduce(NULL, GW_PS_SUM, GW_PS_INT64, values, 2, 3, NULL, &result),
                cases[c].fits ? GW_OK : GW_ERR_ARGUMENT, "element 1 does not fit");
        if (cases[c].fits) {
            assert_true((int64_t)gw_get64((uint8_t *)result.bytes + 8) == cases[c].sum);
            gw_free(NULL, result.bytes);
        }
        result = reduce(NULL, GW_PS_MEAN, GW_PS_INT64, values, 2, 3, NULL);
        assert_true(gw_get_float(result.bytes) == 0 && gw_get_float((uint8_t *)result.bytes + 4) == cases[c].mean);
        gw_free(NULL, result.bytes);
    }
}

/* ---- codes and frames ------------------------------------------------------------------------------------------ */

/* Codes of a shared scale, and frames that hold the same: the averages have the same bits. */
TEST(averages_of_codes_have_the_bits_of_frames)
{
    enum { N = 1024 };
    static uint8_t frames[MOST][1 << 16], codes[MOST][N / 4], average[1 << 16];
    const void *views[MOST];
    size_t sizes[MOST], n_bytes;
    random_numbers = numbers_from(17);
    for (uint32_t workers = 1; workers <= MOST; workers++)
        for (int draw_of = 0; draw_of < 20; draw_of++) {
            const float scale = (float)(1 + below(100000)) / 77777;
            memset(codes, 0, sizeof codes);
            for (uint32_t r = 0; r < workers; r++) {
                float gradient[N];
                for (uint32_t i = 0; i < N; i++) { /* -s, 0 and s are sent as they are */
                    const uint32_t code = below(3);
                    gradient[i] = ((float)code - 1) * scale;
                    codes[r][i / 4] |= (uint8_t)(code << 2 * (i % 4));
                }
                sizes[r] = frame_of(NULL, "ternary:clip=0", 0, r, 0, gradient, N, scale, frames[r], sizeof frames[r]);
                views[r] = frames[r];
            }
            float expected[N];
            ok(gw_reduce(NULL, views, sizes, workers, NULL, average, sizeof average, &n_bytes));
            ok(gw_decode(NULL, average, n_bytes, expected, N));
            struct gw_ps_result result = reduce(NULL, GW_PS_DECODE_AVERAGE, GW_PS_UINT8, codes, N / 4, workers, &scale);
            assert_memory_equal(result.bytes, expected, sizeof expected);
            gw_free(NULL, result.bytes);
        }
}

TEST(codes_are_added_up)
{
    static const uint64_t lengths[] = {1, 3, 1023, 1024, 1025, 5000};
    static uint8_t bytes[7 * 5000];
    const float scale = 0.3f;
    random_numbers = numbers_from(3);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (uint32_t n = 1; n <= 7; n += 3) {
            const uint64_t length = lengths[l];
            struct gw_ps_result result;
            for (uint64_t i = 0; i < n * length; i++)
                bytes[i] = (uint8_t)(below(3) | below(3) << 2 | below(3) << 4 | below(3) << 6);
            for (gw_ps_method method = GW_PS_DECODE_SUM; method <= GW_PS_DECODE_AVERAGE; method++) {
                result = reduce(NULL, method, GW_PS_UINT8, bytes, length, n, &scale);
                assert_true(result.type == GW_PS_FLOAT32 && result.shape.n_dims == 2 && result.shape.dims[0] == 1 &&
                            result.shape.dims[1] == 4 * length && result.n_bytes == 16 * length);
                for (uint64_t e = 0; e < 4 * length; e++) {
                    int sum = 0;
                    for (uint32_t p = 0; p < n; p++)
                        sum += (bytes[p * length + e / 4] >> 2 * (e % 4) & 3) - 1;
                    float expected = method == GW_PS_DECODE_SUM ? (float)sum * scale : (float)sum * (scale / (float)n);
                    assert_true(((const float *)result.bytes)[e] == expected);
                }
                gw_free(NULL, result.bytes);
            }
            bytes[n * length - 1] |= 0x30;
            refused(try_reduce(NULL, GW_PS_DECODE_SUM, GW_PS_UINT8, bytes, length, n, NULL, &result), GW_ERR_ARGUMENT,
                    "holds the code 11");
        }
}

/* Frames are averaged as an owner averages them. decode_sum is the sum of their values. */
TEST(frames_are_averaged_in_their_own_domain)
{
    enum { N = 1000, WORKERS = 3 };
    static uint8_t frames[WORKERS][1 << 13], average[1 << 15];
    const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
    const void *views[WORKERS];
    size_t sizes[WORKERS], n_bytes;
    struct gw_ps_push pushes[WORKERS];
    struct gw_ps_result result;
    float gradient[N], decoded[N];
    double sum[N] = {0};
    random_numbers = numbers_from(11);
    for (uint32_t r = 0; r < WORKERS; r++) {
        for (int i = 0; i < N; i++)
            gradient[i] = (float)((double)(below(2001)) - 1000) / 1000;
        sizes[r] = frame_of(NULL, "ternary", 0, r, 0, gradient, N, 1, frames[r], sizeof frames[r]);
        ok(gw_decode(NULL, frames[r], sizes[r], decoded, N));
        for (int i = 0; i < N; i++)
            sum[i] += (double)decoded[i];
        views[r] = frames[r];
        pushes[r] = (struct gw_ps_push){r, frames[r], sizes[r]};
    }
    ok(gw_reduce(NULL, views, sizes, WORKERS, NULL, average, sizeof average, &n_bytes));
    ok(gw_ps_reduce(NULL, GW_PS_DECODE_AVERAGE, GW_PS_FRAME, &shape, pushes, WORKERS, NULL, NULL, &result));
    assert_true(result.type == GW_PS_FRAME && result.n_bytes == n_bytes && memcmp(result.bytes, average, n_bytes) == 0);
    gw_free(NULL, result.bytes);
    ok(gw_ps_reduce(NULL, GW_PS_DECODE_SUM, GW_PS_FRAME, &shape, pushes, WORKERS, NULL, NULL, &result));
    for (int i = 0; i < N; i++)
        assert_true(((const float *)result.bytes)[i] == (float)sum[i]);
    gw_free(NULL, result.bytes);
}

/* ---- median ---------------------------------------------------------------------------------------------- */

/* Every order of the values has the same bits. */
static void expect_median(float *values, uint32_t n, uint32_t fixed, float expected)
{
    if (fixed == n) {
        const uint32_t bits = reduce_one(GW_PS_MEDIAN, GW_PS_FLOAT32, values, n);
        CHECK(isnan(expected) ? bits == 0x7FC00000 : bits == gw_float_bits(expected),
              "the median of %u values is %08x, and must be %g", n, bits, (double)expected);
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

TEST(medians_are_exact_in_every_order)
{
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
    const uint16_t halves[] = {gw_to_f16(1), gw_to_f16(2), gw_to_f16(60000)};
    assert_int_equal(reduce_one(GW_PS_MEDIAN, GW_PS_FLOAT16, halves, 3), halves[1]);
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Compares the medians of n pushes of `width` floats with those of sorting. values: NaNs, and multiples of 1/8, so that
 * the mean of two is exact. */
static void expect_medians_of_sorting(gw_context *context, const float *values, uint32_t n, uint32_t width)
{
    static float sorted[MANY];
    struct gw_ps_result result = reduce(context, GW_PS_MEDIAN, GW_PS_FLOAT32, values, width, n, NULL);
    for (uint32_t i = 0; i < width; i++) {
        uint32_t there = 0;
        for (uint32_t p = 0; p < n; p++)
            if (!isnan(values[(size_t)p * width + i]))
                sorted[there++] = values[(size_t)p * width + i];
        qsort(sorted, there, sizeof *sorted, compare_floats);
        const float x = gw_get_float((const uint8_t *)result.bytes + i * sizeof x);
        CHECK(there ? x == (sorted[(there - 1) / 2] + sorted[there / 2]) / 2 : isnan(x),
              "element %u of %u pushes is %g", i, n, (double)x);
    }
    gw_free(context, result.bytes);
}

/* More than a block of elements; and so many pushes that the elements of a block no longer fit beside each other, down
 * to one at a time. Many values are equal. */
TEST(medians_are_those_of_sorting)
{
    enum { WIDTH = 7, FEW = MOST + 70 };
    static const uint32_t beyond[] = {511, 1024, 1171, 4096, 8191, 8192, 8193, MANY};
    static float values[MOST * MANY];
    gw_context *context;
    ok(gw_context_create(NULL, &context));
    for (uint32_t k = 0; k < FEW + sizeof beyond / sizeof *beyond; k++) {
        const uint32_t n = k < MOST ? k + 1 : k < FEW ? k + 1 - MOST : beyond[k - FEW], width = k < MOST ? MANY : WIDTH;
        for (uint32_t i = 0; i < n * width; i++)
            values[i] = below(6) ? (float)((int)(below(k < MOST ? 41 : 1000)) - 20) / 8 : i % 2 ? NAN : -NAN;
        expect_medians_of_sorting(context, values, n, width);
    }
    gw_context_destroy(context);
}

/* ---- what the header says of special numbers -------------------------------------------------------------------- */

/* A NaN wins in every method but median, and the NaN of a result has one form of bits. A sum beyond the largest number
 * of the type is infinity. Whichever of the two comes first. */
TEST(special_numbers)
{
    static const struct {
        gw_ps_type type;
        uint32_t values[2];
        uint32_t n_methods; /* the first ones of the list */
        uint32_t bits;
    } cases[] = {
        {GW_PS_FLOAT32, {0x3F800000, 0x7FC00000}, 4, 0x7FC00000}, /* 1 and a NaN */
        {GW_PS_FLOAT32, {0x3F800000, 0xFFC12345}, 4, 0x7FC00000}, /* 1 and a NaN with a sign and more bits */
        {GW_PS_FLOAT32, {0xFFC12345, 0x7F800000}, 4, 0x7FC00000}, /* that one and infinity */
        {GW_PS_FLOAT32, {0x7F800000, 0xFF800000}, 2, 0x7FC00000}, /* both infinities have no sum */
        {GW_PS_FLOAT32, {0x7F7FFFFF, 0x7F7FFFFF}, 1, 0x7F800000},
        {GW_PS_FLOAT16, {0x7BFF, 0x7BFF}, 1, 0x7C00},
        {GW_PS_BFLOAT16, {0x7F7F, 0x7F7F}, 1, 0x7F80},
    };
    static const gw_ps_method methods[] = {GW_PS_SUM, GW_PS_MEAN, GW_PS_MAX, GW_PS_MIN};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (uint32_t m = 0; m < cases[c].n_methods; m++)
            for (uint32_t first = 0; first < 2; first++) {
                const size_t width = gw_ps_type_bytes(cases[c].type);
                uint8_t bytes[8];
                for (uint32_t i = 0; i < 2; i++) {
                    const uint32_t value = cases[c].values[i ^ first];
                    if (width == 4)
                        gw_put32(bytes + 4 * i, value);
                    else
                        gw_put16(bytes + 2 * i, (uint16_t)value);
                }
                const uint32_t bits = reduce_one(methods[m], cases[c].type, bytes, 2);
                CHECK(bits == cases[c].bits, "case %zu, method %d, first %u: %08x", c, (int)methods[m], first, bits);
            }
}

RUN_TESTS("pserver_reduce", NULL, NULL)
