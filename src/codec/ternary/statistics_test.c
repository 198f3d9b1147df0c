/* Tests the draw statistically against TernGrad's paper: P(t_i = sign(g_i)) = |f(g_i)| / s (eq. 3), so E[s t] = f(g),
 * and all draws are independent. Seeds are fixed, so a test passes always or never. With fresh seeds a right draw would
 * break a bound less than once in a million runs of a check. So the bounds are five deviations, or six if the worst of
 * hundreds counts. */
#include "checks.h"
#include "codecs.h"

#include <stdio.h>

/* Draws the tensor for one place in a run. *t gets its nonzeros as +1 and -1. */
static void draw_tensor(gw_encoder *encoder, const float *g, uint64_t n, const float *shared, gw_draw draw, int8_t *t)
{
    float *out = room_for(n, sizeof *out);
    struct whole_frame frame = encode_slice(encoder, g, shared, draw, 0, n);
    decode_into(NULL, frame, out, n);
    for (uint64_t i = 0; i < n; i++)
        t[i] = (int8_t)((out[i] > 0) - (out[i] < 0));
    free(frame.bytes);
    free(out);
}

/* A run of `draws` draws of every element, over steps, ranks, seeds or tensors. */
enum over { STEPS, RANKS, SEEDS, TENSORS, N_OVERS };
static const char *const over_names[] = {"steps", "ranks", "seeds", "tensors"};

static gw_encoder *tensor_encoder(const char *spec, uint32_t id, uint64_t n)
{
    gw_codec *codec = codec_of(NULL, spec);
    const gw_tensor tensor = {.name = "w", .id = id, .n_elems = n};
    gw_encoder *encoder;
    assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_OK);
    gw_codec_destroy(codec);
    return encoder;
}

/* Counts k of T draws are binomial: (k - Tp) / sqrt(T p (1-p)) is nearly normal. The squares of m of them add up to a
 * chi-square of mean m and variance 2m. The squared error of all, sum of (t - f/s)^2, has mean T sum p (1-p), which is
 * the variance |f| (s - |f|) over s^2. It has variance T sum p (1-p) (1-2p)^2. */
static void check_expectation(const char *spec, float scale, float room, enum over over)
{
    enum { N = 500, T = 3000 };
    static float g[N];
    static int8_t t[N];
    static uint32_t k[N];
    numbers_fill_bell(17, g, N);
    for (int i = 0; i < N; i++)
        g[i] *= scale;
    memset(k, 0, sizeof k);
    gw_encoder *encoder = tensor_encoder(spec, 5, N);
    float own;
    measure(encoder, g, &own);
    const float s = own * room;
    double squares = 0;
    for (uint32_t at = 0; at < T; at++) {
        gw_draw draw = {.seed = 1234567, .rank = 2, .step = 10};
        if (over == STEPS)
            draw.step = at;
        if (over == RANKS)
            draw.rank = at;
        if (over == SEEDS)
            draw.seed = at * 0x9E3779B97F4A7C15ull;
        if (over == TENSORS) {
            gw_encoder_destroy(encoder);
            encoder = tensor_encoder(spec, at, N);
            measure(encoder, g, NULL);
        }
        draw_tensor(encoder, g, N, &s, draw, t);
        for (int i = 0; i < N; i++) {
            double f = fabs((double)g[i]) < own ? fabs((double)g[i]) : own, p = f / s;
            CHECK(t[i] == 0 || (t[i] > 0) == (g[i] > 0), "%s over %s: element %d has the wrong sign", spec,
                  over_names[over], i);
            k[i] += t[i] != 0;
            squares += (fabs((double)t[i]) - p) * (fabs((double)t[i]) - p);
        }
    }
    double chi = 0, mean = 0, variance = 0;
    int m = 0;
    for (int i = 0; i < N; i++) {
        double f = fabs((double)g[i]) < own ? fabs((double)g[i]) : own, p = f / s, spread = T * p * (1 - p);
        mean += spread;
        variance += spread * (1 - 2 * p) * (1 - 2 * p);
        if (p == 0 || p == 1) {
            CHECK(k[i] == (p == 1 ? T : 0), "%s over %s: element %d of probability %g came %u times", spec,
                  over_names[over], i, p, k[i]);
            continue;
        }
        double z = (k[i] - T * p) / sqrt(spread);
        if (spread > 5) /* else the distribution is not nearly normal */
            CHECK(fabs(z) < 6, "%s, scale %g, over %s: element %d of probability %g came %u times of %d, z = %g", spec,
                  scale, over_names[over], i, p, k[i], T, z);
        if (spread > 5) {
            chi += z * z;
            m++;
        }
    }
    CHECK(m > N / 2 && fabs(chi - m) < 5 * sqrt(2.0 * m), "%s, scale %g, over %s: chi-square %g of %d", spec, scale,
          over_names[over], chi, m);
    CHECK(fabs(squares - mean) < 5 * sqrt(variance), "%s, scale %g, over %s: squared error %g, not %g +- %g", spec,
          scale, over_names[over], squares, mean, sqrt(variance));
    gw_encoder_destroy(encoder);
}

TEST(the_draw_has_no_bias_and_the_right_variance)
{
    for (enum over over = 0; over < N_OVERS; over++)
        check_expectation("ternary", 1, 1, over);
    check_expectation("ternary", 0x1p-20f, 3, STEPS);
    check_expectation("ternary:clip=1", 1, 1, STEPS);
    check_expectation("ternary:clip=0", 1, 1, STEPS);
    check_expectation("ternary", 0x1p-135f, 1, STEPS); /* denormals */
    check_expectation("ternary", 0x1p125f, 1, STEPS);
}

/* ---- independence ------------------------------------------------------------------------------------ */

enum { LONG = 1 << 20 };
static const double share = 0.3;

/* All elements have probability 0.3, apart from the first one, which is as large as the scaler. */
static int8_t *equal_draws(uint64_t seed, uint32_t rank, uint32_t step, uint32_t tensor)
{
    float *g = room_for(LONG, sizeof *g);
    for (int i = 0; i < LONG; i++)
        g[i] = i ? 0.3f : 1;
    int8_t *t = room_for(LONG, 1);
    gw_encoder *encoder = tensor_encoder("ternary:clip=0,code=mask", tensor, LONG);
    measure(encoder, g, NULL);
    draw_tensor(encoder, g, LONG, NULL, (gw_draw){seed, rank, step}, t);
    gw_encoder_destroy(encoder);
    free(g);
    return t;
}

/* If draws are independent, the sum of (x-p)(y-p) over n pairs has mean 0 and deviation p (1-p) sqrt(n). */
static double correlation(const int8_t *x, const int8_t *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += (x[i] - share) * (y[i] - share);
    return sum / (share * (1 - share) * sqrt(n));
}

TEST(draws_are_independent_of_each_other)
{
    const struct {
        const char *what;
        uint64_t seed;
        uint32_t rank, step, tensor;
    } places[] = {{"first", 42, 1, 2, 3},
                  {"next seed", 43, 1, 2, 3},
                  {"seed's upper half", 42 | 1ull << 32, 1, 2, 3},
                  {"next rank", 42, 2, 2, 3},
                  {"next step", 42, 1, 3, 3},
                  {"next tensor", 42, 1, 2, 4},
                  {"rank and step swapped", 42, 2, 1, 3},
                  {"step and tensor swapped", 42, 1, 3, 2},
                  {"far step", 42, 1, 2 | 1u << 24, 3},
                  {"far rank", 42, 1 | 1u << 14, 2, 3}};
    enum { N_PLACES = sizeof places / sizeof *places };
    int8_t *draws[N_PLACES];
    for (int a = 0; a < N_PLACES; a++) {
        draws[a] = equal_draws(places[a].seed, places[a].rank, places[a].step, places[a].tensor);
        for (int b = 0; b < a; b++) {
            double z = correlation(draws[a] + 1, draws[b] + 1, LONG - 1);
            CHECK(fabs(z) < 5, "%s and %s: z = %g", places[a].what, places[b].what, z);
        }
    }
    /* Compares elements of one draw: neighbours, halves of a word, words of a block, blocks of a group, groups,
     * chunks. */
    const int lags[] = {1, 2, 3, 4, 8, 15, 16, 17, 31, 32, 33, 64, 96, 127, 128, 129, 256, 1024, 65536};
    for (size_t l = 0; l < sizeof lags / sizeof *lags; l++) {
        double z = correlation(draws[0] + 1, draws[0] + 1 + lags[l], LONG - 1 - lags[l]);
        CHECK(fabs(z) < 5, "elements %d apart: z = %g", lags[l], z);
        /* Then the same, one step later. */
        z = correlation(draws[0] + 1, draws[4] + 1 + lags[l], LONG - 1 - lags[l]);
        CHECK(fabs(z) < 5, "elements %d apart, one step later: z = %g", lags[l], z);
    }
    /* Each place in a group of 128 must have its share of 8192 draws. */
    for (int place = 0; place < 128; place++) {
        int count = 0;
        for (int i = place; i < LONG; i += 128)
            count += draws[0][i];
        double z = (count - 8192 * share) / sqrt(8192 * share * (1 - share));
        CHECK(fabs(z) < 6, "place %d in a group: %d of 8192, z = %g", place, count, z);
    }
    for (int a = 0; a < N_PLACES; a++)
        free(draws[a]);
}

/* ---- small probabilities ----------------------------------------------------------------------------- */

/* With 16 random bits alone, 2^-17 would be rounded to 0 or to 2^-16. Of 2^23 draws 64 are expected, with a deviation
 * of 8. The test allows five deviations. */
TEST(probabilities_are_finer_than_sixteen_bits)
{
    const uint64_t n = 1 << 23;
    float *g = room_for(n, sizeof *g);
    int8_t *t = room_for(n, 1);
    for (int rare = 0; rare < 2; rare++) {
        for (uint64_t i = 0; i < n; i++)
            g[i] = i == 0 ? 1 : rare ? 0x1p-17f : 1 - 0x1p-17f;
        gw_encoder *encoder = tensor_encoder("ternary:clip=0,code=mask", 1, n);
        measure(encoder, g, NULL);
        draw_tensor(encoder, g, n, NULL, (gw_draw){.seed = 99}, t);
        uint64_t count = 0;
        for (uint64_t i = 1; i < n; i++)
            count += (t[i] != 0) == rare;
        CHECK(count >= 24 && count <= 104, "%llu of 64 expected", (unsigned long long)count);
        gw_encoder_destroy(encoder);
    }
    free(g);
    free(t);
}

/* ---- the share of nonzeros --------------------------------------------------------------------------- */

TEST(nonzeros_are_as_many_as_expected)
{
    const uint64_t n = 1 << 20;
    float *g = room_for(n, sizeof *g);
    for (uint64_t seed = 1; seed <= 5; seed++) {
        numbers_fill_bell(seed, g, n);
        gw_encoder *encoder = tensor_encoder(seed % 2 ? "ternary" : "ternary:clip=0", (uint32_t)seed, n);
        float own, s;
        measure(encoder, g, &own);
        s = own * (float)seed;
        struct whole_frame frame = encode_slice(encoder, g, &s, (gw_draw){.seed = seed}, 0, n);
        uint64_t count;
        assert_int_equal(gw_frame_symbols(NULL, frame.bytes, frame.size, NULL, 0, &count, NULL), GW_OK);
        double mean = 0, variance = 0;
        for (uint64_t i = 0; i < n; i++) {
            double p = (fabs((double)g[i]) < own ? fabs((double)g[i]) : own) / s;
            mean += p;
            variance += p * (1 - p);
        }
        CHECK(fabs((double)count - mean) < 5 * sqrt(variance), "seed %llu: %llu nonzeros, not %g +- %g",
              (unsigned long long)seed, (unsigned long long)count, mean, sqrt(variance));
        free(frame.bytes);
        gw_encoder_destroy(encoder);
    }
    free(g);
}

RUN_TESTS("statistics", NULL, NULL)
