/* Tests every set of kernels that this machine has, the reference among them, against plain models of what
 * docs/wire-format.md says, bit for bit. The buffers end or begin at a page that must not be touched. */
#include "codec/kernels.h"
#include "base/philox.h"
#include "places.h"
#include "wire/bytes.h"
#include "checks.h"

#include <float.h>
#include <math.h>

/* ---- sets --------------------------------------------------------------------------------------------- */

static const struct gw_kernels *sets[5]; /* NULL-ended */

static void find_sets(void)
{
    enum gw_cpu best = gw_cpu_best();
    size_t n = 0;
    for (enum gw_cpu cpu = GW_CPU_SCALAR; cpu <= GW_CPU_NEON; cpu++)
        if (cpu == GW_CPU_SCALAR || cpu == best || (best != GW_CPU_NEON && cpu <= best))
            sets[n++] = gw_kernels_for(cpu);
}

#define FOR_EACH_SET(k) for (const struct gw_kernels **k##_at = sets, *k; (k = *k##_at); k##_at++)

static const float specials[] = {0,       -0.0f,    0x1p-149f, -0x1p-149f, 0x1p-127f, -0x1.fffffcp-127f,
                                 FLT_MIN, -FLT_MIN, 1e-20f,    1,          -1,        1.0000001f,
                                 65536,   -3e9f,    FLT_MAX,   -FLT_MAX};
#define N_SPECIALS (sizeof specials / sizeof *specials)

/* Gradients of several kinds; the kind is the seed's last digit. */
static void fill(float *g, uint64_t n, uint64_t seed)
{
    struct numbers numbers = numbers_from(seed);
    for (uint64_t i = 0; i < n; i++) {
        float x = numbers_bell(&numbers);
        switch (seed % 10) {
        case 0:
            x = specials[numbers_below(&numbers, N_SPECIALS)];
            break;
        case 1:
            x = -1.7f;
            break;
        case 2:
            x = 0;
            break;
        case 3:
            x *= 0x1p-130f; /* denormals */
            break;
        case 4:
            x *= 0x1p125f;
            break;
        case 5:
            x = numbers_below(&numbers, 50) ? x : specials[numbers_below(&numbers, N_SPECIALS)];
            break;
        case 6:
            x *= (float)(1u << numbers_below(&numbers, 30));
            break;
        }
        g[i] = x;
    }
}

/* ---- statistics -------------------------------------------------------------------------------------- */

/* docs/wire-format.md, section 9: 32 lanes in float32, added in float64 by halving. */
static struct gw_stats plain_stats(const float *g, uint32_t n)
{
    float lanes[3][32] = {{0}};
    struct gw_stats stats = {0};
    for (uint32_t i = 0; i < (n + 31) / 32 * 32; i++) {
        float x = i < n ? g[i] : 0;
        uint32_t bits = gw_float_bits(x) & 0x7FFFFFFFu;
        stats.max_bits = bits > stats.max_bits ? bits : stats.max_bits;
        lanes[0][i % 32] += x;
        lanes[1][i % 32] += fabsf(x);
        lanes[2][i % 32] += x * x;
    }
    double sums[3];
    for (int k = 0; k < 3; k++) {
        double wide[32];
        for (int i = 0; i < 32; i++)
            wide[i] = lanes[k][i];
        for (int half = 16; half; half /= 2)
            for (int i = 0; i < half; i++)
                wide[i] += wide[i + half];
        sums[k] = wide[0];
    }
    stats.sum = sums[0], stats.sum_abs = sums[1], stats.sum_squares = sums[2];
    return stats;
}

/* True if the bits are equal. For a NaN it is enough that both are one. */
static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

static void check_stats(const struct gw_kernels *k, const float *g, uint32_t n, const char *what, uint64_t seed)
{
    struct gw_stats got = k->stats_block(g, n), want = plain_stats(g, n);
    CHECK(got.max_bits == want.max_bits, "%s, %u elements, %s %llu: max %08x, not %08x", k->name, n, what,
          (unsigned long long)seed, got.max_bits, want.max_bits);
    if (want.max_bits >= 0x7F800000u) /* not finite, so nobody reads the sums */
        return;
    CHECK(same_double(got.sum, want.sum) && same_double(got.sum_abs, want.sum_abs) &&
              same_double(got.sum_squares, want.sum_squares),
          "%s, %u elements, %s %llu: %a %a %a, not %a %a %a", k->name, n, what, (unsigned long long)seed, got.sum,
          got.sum_abs, got.sum_squares, want.sum, want.sum_abs, want.sum_squares);
}

TEST(statistics_are_the_same)
{
    FOR_EACH_SET(k)
    for (uint32_t n = 0; n <= GW_STATS_BLOCK; n += n < 132 ? 1 : n < 1020 ? 59 : 1)
        for (uint64_t seed = 10 * n; seed < 10 * n + 7; seed++)
            for (enum side side = 0; side < N_SIDES; side++) {
                float *g = buffer(0, side, n, sizeof *g);
                fill(g, n, seed);
                check_stats(k, g, n, "seed", seed);
            }
}

TEST(what_is_not_finite_is_seen_anywhere)
{
    const uint32_t bad[] = {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFFFFFFFFu};
    const uint32_t lengths[] = {1, 31, 32, 33, 64, 1023, 1024};
    FOR_EACH_SET(k)
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (uint32_t at = 0; at < lengths[l]; at += at < 70 ? 1 : 13) {
            float *g = buffer(0, AT_END, lengths[l], sizeof *g);
            fill(g, lengths[l], 7);
            memcpy(g + at, &bad[at % 6], sizeof *g);
            check_stats(k, g, lengths[l], "bad value at", at);
            assert_true(k->stats_block(g, lengths[l]).max_bits >= 0x7F800000u);
        }
}

TEST(large_and_small_blocks_are_summed_in_float64)
{
    assert_false(gw_stats_needs_wide(0));
    assert_false(gw_stats_needs_wide(gw_float_bits(1)));
    assert_false(gw_stats_needs_wide(gw_float_bits(0x1p60f)));
    assert_true(gw_stats_needs_wide(gw_float_bits(0x1.000002p60f)));
    assert_true(gw_stats_needs_wide(gw_float_bits(FLT_MAX)));
    assert_false(gw_stats_needs_wide(0x7F800000u));
    assert_false(gw_stats_needs_wide(0x7FFFFFFFu));
    assert_false(gw_stats_needs_wide(gw_float_bits(0x1p-50f)));
    assert_true(gw_stats_needs_wide(gw_float_bits(0x1.fffffep-51f)));
    assert_true(gw_stats_needs_wide(1));

    const float g[] = {FLT_MAX, -FLT_MAX, FLT_MAX, 0x1p-149f};
    struct gw_stats stats = gw_stats_wide(g, 4);
    const double m = FLT_MAX;
    assert_int_equal(stats.max_bits, gw_float_bits(FLT_MAX));
    assert_true(stats.sum == m + 0x1p-149 && stats.sum_abs == 3 * m && stats.sum_squares == 3 * (m * m));
    const float small[] = {0x1p-149f, -0x1p-149f, 0x1p-149f};
    stats = gw_stats_wide(small, 3);
    assert_int_equal(stats.max_bits, 1);
    assert_true(stats.sum == 0x1p-149 && stats.sum_abs == 0x3p-149 && stats.sum_squares == 0x3p-298);
}

/* ---- the draw ---------------------------------------------------------------------------------------- */

/* Section 8: the 16 bits of element e, and 16 more for ties. */
static uint32_t random_bits(const struct gw_ternary_draw *draw, uint64_t e)
{
    const uint32_t counter[4] = {(uint32_t)(16 * (e / 128) + (e % 32) / 2), draw->at.step,
                                 (uint32_t)draw->purpose << 24 | draw->at.rank, draw->tensor_id};
    uint32_t words[4];
    gw_philox(counter, draw->at.seed, words);
    return words[(e % 128) / 32] >> (e % 2 ? 16 : 0) & 0xFFFFu;
}

static uint32_t tie_bits(const struct gw_ternary_draw *draw, uint64_t e)
{
    const uint32_t counter[4] = {(uint32_t)(e / 8), draw->at.step, (uint32_t)(draw->purpose + 1) << 24 | draw->at.rank,
                                 draw->tensor_id};
    uint32_t words[4];
    gw_philox(counter, draw->at.seed, words);
    return words[(e % 8) / 2] >> (e % 2 ? 16 : 0) & 0xFFFFu;
}

static bool plain_draw(const struct gw_ternary_draw *draw, uint64_t e, float g)
{
    float f = fabsf(g) < draw->clip ? fabsf(g) : draw->clip, product = f * draw->to_threshold;
    uint64_t t = product < 0x1p32f ? (uint64_t)product : 1ull << 32, h = t >> 16 < 65535 ? t >> 16 : 65535;
    uint32_t r = random_bits(draw, e);
    return r < h || (r == h && ((uint64_t)r << 16) + tie_bits(draw, e) < t);
}

#define MOST_GROUPS 8

/* Draws n_groups groups from g and compares each element with plain_draw. Returns how many are nonzero. */
static uint32_t check_draw(const struct gw_kernels *k, const struct gw_ternary_draw *draw, const float *g,
                           uint64_t group, uint64_t n_groups, const char *what, uint64_t seed)
{
    uint32_t count = 0;
    for (enum side side = 0; side < N_SIDES; side++) {
        float *at = buffer(0, side, n_groups * GW_DRAW_GROUP, sizeof *at);
        uint64_t *nonzero = buffer(1, side, 2 * n_groups, sizeof *nonzero),
                 *sign = buffer(2, side, 2 * n_groups, sizeof *sign);
        memcpy(at, g, n_groups * GW_DRAW_GROUP * sizeof *g);
        k->draw(draw, at, group, n_groups, nonzero, sign);
        for (uint64_t i = 0; i < n_groups * GW_DRAW_GROUP; i++) {
            bool expected = plain_draw(draw, group * GW_DRAW_GROUP + i, g[i]);
            bool on = nonzero[i / 64] >> (i % 64) & 1, negative = sign[i / 64] >> (i % 64) & 1;
            CHECK(on == expected && negative == (expected && signbit(g[i])),
                  "%s, %s %llu: element %llu of groups %llu + %llu, %a (clip %a, scale %a): drawn %d, negative %d",
                  k->name, what, (unsigned long long)seed, (unsigned long long)i, (unsigned long long)group,
                  (unsigned long long)n_groups, (double)g[i], (double)draw->clip, (double)draw->to_threshold, on,
                  negative);
            count += side == AT_END && on;
        }
        assert_true(is_clean_around(nonzero, side, 2 * n_groups, sizeof *nonzero));
        assert_true(is_clean_around(sign, side, 2 * n_groups, sizeof *sign));
    }
    return count;
}

static struct gw_ternary_draw some_draw(struct numbers *numbers)
{
    return (struct gw_ternary_draw){.clip = FLT_MAX,
                                    .to_threshold = 0x1p32f,
                                    .purpose = 1 + 2 * numbers_below(numbers, 3),
                                    .at = {.seed = (uint64_t)numbers_word(numbers) << 32 | numbers_word(numbers),
                                           .step = numbers_word(numbers),
                                           .rank = numbers_below(numbers, GW_MAX_WORKERS)},
                                    .tensor_id = numbers_word(numbers)};
}

TEST(draws_are_the_same)
{
    static float g[MOST_GROUPS * GW_DRAW_GROUP];
    const float clips[] = {FLT_MAX, 1, 2.5f, 0x1p-100f, 0x1p-149f, 1e30f};
    const float scales[] = {0x1p32f, 0x1p32f / 3, 0x1p32f / 70, 0x1p32f / FLT_MAX, 0x1p122f,
                            1,       0x1p-96f,    FLT_MAX,      12345.678f};
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct numbers numbers = numbers_from(seed);
        struct gw_ternary_draw draw = some_draw(&numbers);
        draw.clip = clips[numbers_below(&numbers, 6)];
        draw.to_threshold = scales[numbers_below(&numbers, 9)];
        uint64_t n_groups = numbers_below(&numbers, MOST_GROUPS + 1);
        uint64_t last = GW_MAX_ELEMENTS / GW_DRAW_GROUP - n_groups; /* the farthest that a tensor reaches */
        uint64_t group = seed % 3 == 0 ? 0 : seed % 3 == 1 ? last : numbers_below(&numbers, (uint32_t)last);
        fill(g, n_groups * GW_DRAW_GROUP, seed);
        check_draw(k, &draw, g, group, n_groups, "seed", seed);
    }
}

/* If s is the magnitude of the largest elements, these are drawn for certain. Zeros never are. */
TEST(the_ends_are_certain)
{
    static float g[MOST_GROUPS * GW_DRAW_GROUP];
    FOR_EACH_SET(k)
    {
        uint32_t drawn = 0, zeros = 0;
        for (uint64_t seed = 1; seed <= 200; seed++) {
            struct numbers numbers = numbers_from(seed);
            struct gw_ternary_draw draw = some_draw(&numbers);
            for (size_t i = 0; i < sizeof g / sizeof *g; i++)
                g[i] = i % 2 ? -0.0f : i % 4 ? -1 : 1;
            draw.to_threshold = seed % 2 ? 0x1p32f : 0x1p126f; /* the latter makes thresholds far beyond 2^32 */
            drawn += check_draw(k, &draw, g, seed, MOST_GROUPS, "seed", seed);
            zeros += MOST_GROUPS * GW_DRAW_GROUP / 2;
        }
        assert_int_equal(drawn, zeros); /* all ones were drawn, and half of the elements are ones */
    }
}

/* float_at_most is the largest float that is at most t. float_above is the next float that stands for another whole
 * number. Thresholds are floats with 24 bits. */
static float float_at_most(uint64_t t)
{
    float x = (float)t;
    return x > (double)t ? nextafterf(x, 0) : x;
}

static float float_above(float t)
{
    return t < 0x1p24f ? t + 1 : nextafterf(t, FLT_MAX);
}

/* Every element's threshold has the element's 16 random bits as its upper bits. So further bits decide, in both
 * ways. */
TEST(ties_are_broken_by_further_bits)
{
    static float g[MOST_GROUPS * GW_DRAW_GROUP];
    static bool expected[MOST_GROUPS * GW_DRAW_GROUP];
    FOR_EACH_SET(k)
    {
        uint32_t n_ties[2] = {0, 0};
        for (uint64_t seed = 1; seed <= 228; seed++) {
            struct numbers numbers = numbers_from(seed);
            struct gw_ternary_draw draw = some_draw(&numbers);
            uint64_t group = numbers_below(&numbers, 1u << 26);
            uint32_t drawn = 0;
            for (uint64_t i = 0; i < sizeof g / sizeof *g; i++) {
                uint64_t e = group * GW_DRAW_GROUP + i, r = random_bits(&draw, e);
                uint64_t all = r << 16 | tie_bits(&draw, e);
                /* An element is drawn if all < t. The threshold is just at or below `all`, or just above it. */
                float below = float_at_most(all), above = float_above(below);
                float t = (i + seed) % 2 ? below : above;
                if ((uint64_t)t >> 16 != r)
                    t = below;
                if ((uint64_t)t >> 16 == r) {
                    n_ties[t == above]++;
                    expected[i] = t == above;
                } else {
                    expected[i] = false; /* the threshold was rounded down past the tie; this is far rarer */
                }
                /* From seed 101 on, one element in a group ties, at any place. */
                if (seed > 100 && i % GW_DRAW_GROUP != seed % GW_DRAW_GROUP)
                    t = 0, expected[i] = false;
                drawn += expected[i];
                g[i] = (i % 3 ? t : -t) * 0x1p-32f;
                assert_int_equal(plain_draw(&draw, e, g[i]), expected[i]);
            }
            assert_int_equal(check_draw(k, &draw, g, group, MOST_GROUPS, "seed", seed), drawn);
        }
        CHECK(n_ties[0] > 40000 && n_ties[1] > 40000, "%u and %u ties", n_ties[0], n_ties[1]);
    }
}

/* The 16 bits are all ones, and so are those of the threshold. Whatever the threshold is from there to 2^32, and
 * beyond, the element ties. */
TEST(the_highest_tie_goes_to_the_threshold)
{
    static float g[GW_DRAW_GROUP];
    static const float thresholds[] = {0xFFFF0000p0f, 0xFFFF8000p0f, 0xFFFFFF00p0f, 0x1p32f, 0x1p33f, FLT_MAX};
    uint32_t found = 0;
    for (uint64_t seed = 1; found < 6 && seed < 20000; seed++) {
        struct numbers numbers = numbers_from(seed);
        struct gw_ternary_draw draw = some_draw(&numbers);
        draw.to_threshold = 1;
        for (uint32_t i = 0; i < GW_DRAW_GROUP; i++)
            if (random_bits(&draw, i) == 0xFFFF) {
                found++;
                for (size_t t = 0; t < 6; t++) {
                    for (uint32_t j = 0; j < GW_DRAW_GROUP; j++)
                        g[j] = thresholds[t];
                    FOR_EACH_SET(k)
                    check_draw(k, &draw, g, 0, 1, "seed", seed);
                    assert_true(t < 3 || plain_draw(&draw, i, g[i]));
                    assert_true(t > 0 || !plain_draw(&draw, i, g[i]));
                }
            }
    }
    assert_int_equal(found, 6);
}

/* All 32 bits of this element are ones (found by search). Only a threshold of 2^32 itself is above them. */
TEST(the_largest_element_is_drawn_even_then)
{
    static float g[GW_DRAW_GROUP];
    const uint64_t element = 1855559, group = element / GW_DRAW_GROUP, i = element % GW_DRAW_GROUP;
    struct gw_ternary_draw draw = {.clip = FLT_MAX,
                                   .to_threshold = 0x1p32f,
                                   .purpose = GW_PURPOSE_TERNARY,
                                   .at = {.seed = 193}};
    assert_int_equal(random_bits(&draw, element), 0xFFFF);
    assert_int_equal(tie_bits(&draw, element), 0xFFFF);
    FOR_EACH_SET(k)
    {
        g[i] = 1;
        assert_int_equal(check_draw(k, &draw, g, group, 1, "seed", 193), 1);
        g[i] = 0x1.fffffep-1f;
        assert_int_equal(check_draw(k, &draw, g, group, 1, "seed", 193), 0);
    }
}

/* ---- bitmaps ----------------------------------------------------------------------------------------- */

#define MOST_WORDS 40

/* Nonzeros of any density, with signs among them. Some words are full or empty. */
static void fill_bitmaps(uint64_t *nonzero, uint64_t *sign, uint64_t n_words, uint64_t seed)
{
    struct numbers numbers = numbers_from(seed);
    for (uint64_t w = 0; w < n_words; w++) {
        uint64_t a = (uint64_t)numbers_word(&numbers) << 32 | numbers_word(&numbers);
        uint64_t b = (uint64_t)numbers_word(&numbers) << 32 | numbers_word(&numbers);
        uint64_t c = (uint64_t)numbers_word(&numbers) << 32 | numbers_word(&numbers);
        switch (seed % 6 == 5 ? numbers_below(&numbers, 5) : seed % 6) {
        case 0:
            nonzero[w] = a;
            break;
        case 1:
            nonzero[w] = a & b & c & a >> 7;
            break;
        case 2:
            nonzero[w] = a | b | c;
            break;
        case 3:
            nonzero[w] = ~0ull;
            break;
        default:
            nonzero[w] = 0;
        }
        sign[w] = nonzero[w] & (b >> 3 | b << 61);
    }
}

TEST(signs_are_gathered_and_scattered)
{
    uint8_t expected[8 * MOST_WORDS];
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 1500; seed++) {
        uint64_t n_words = seed % (MOST_WORDS + 1), n_bits = 0;
        for (enum side side = 0; side < N_SIDES; side++) {
            uint64_t *nonzero = buffer(0, side, n_words, 8), *sign = buffer(1, side, n_words, 8);
            fill_bitmaps(nonzero, sign, n_words, seed);
            memset(expected, 0, sizeof expected);
            n_bits = 0;
            for (uint64_t i = 0; i < 64 * n_words; i++)
                if (nonzero[i / 64] >> (i % 64) & 1) {
                    expected[n_bits / 8] |= (uint8_t)((sign[i / 64] >> (i % 64) & 1) << (n_bits % 8));
                    n_bits++;
                }
            size_t n_bytes = (size_t)(n_bits + 7) / 8;
            uint8_t *packed = buffer(2, side, n_bytes, 1);
            CHECK(k->count(nonzero, n_words) == n_bits, "%s, seed %llu", k->name, (unsigned long long)seed);
            CHECK(k->gather_signs(nonzero, sign, n_words, packed, n_bytes) == n_bits, "%s, seed %llu", k->name,
                  (unsigned long long)seed);
            CHECK(memcmp(packed, expected, n_bytes) == 0, "%s, seed %llu", k->name, (unsigned long long)seed);
            assert_true(is_clean_around(packed, side, n_bytes, 1));

            uint64_t *back = buffer(3, side, n_words, 8);
            memset(back, 0xEE, 8 * n_words);
            CHECK(k->scatter_signs(nonzero, n_words, packed, n_bytes, back) == n_bits, "%s, seed %llu", k->name,
                  (unsigned long long)seed);
            CHECK(memcmp(back, sign, 8 * n_words) == 0, "%s, seed %llu", k->name, (unsigned long long)seed);
            assert_true(is_clean_around(back, side, n_words, 8));

            /* There are fewer bytes than the nonzeros take. Missing bits count as 0, and are not read. */
            size_t fewer = n_bytes ? seed / 7 % n_bytes : 0, bit = 0;
            uint8_t *cut = buffer(4, side, fewer, 1);
            memcpy(cut, expected, fewer);
            CHECK(k->scatter_signs(nonzero, n_words, cut, fewer, back) == n_bits, "%s, seed %llu", k->name,
                  (unsigned long long)seed);
            for (uint64_t i = 0; i < 64 * n_words; i++) {
                bool on = nonzero[i / 64] >> (i % 64) & 1,
                     want = on && bit < 8 * fewer && expected[bit / 8] >> (bit % 8) & 1;
                CHECK((back[i / 64] >> (i % 64) & 1) == want, "%s, seed %llu, %zu of %zu bytes: element %llu", k->name,
                      (unsigned long long)seed, fewer, n_bytes, (unsigned long long)i);
                bit += on;
            }
        }
    }
}

TEST(bitmaps_are_expanded)
{
    const float scalers[] = {1, 0.7f, 0x1p-149f, FLT_MAX, 0};
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 1200; seed++) {
        uint64_t n = seed < 400 ? seed : seed * 7 % (64 * MOST_WORDS), n_words = (n + 63) / 64;
        float s = scalers[seed / 2 % 5];
        for (enum side side = 0; side < N_SIDES; side++) {
            uint64_t *nonzero = buffer(0, side, n_words, 8), *sign = buffer(1, side, n_words, 8);
            fill_bitmaps(nonzero, sign, n_words, seed);
            float *out = buffer(2, side, n, sizeof *out);
            memset(out, 0xEE, n * sizeof *out);
            k->expand(nonzero, sign, n, s, seed % 2, out);
            for (uint64_t i = 0; i < n; i++) {
                bool on = nonzero[i / 64] >> (i % 64) & 1, negative = sign[i / 64] >> (i % 64) & 1;
                float expected = on ? negative ? -s : s : 0;
                CHECK(gw_float_bits(out[i]) == gw_float_bits(expected),
                      "%s, seed %llu, element %llu of %llu: %a, not %a", k->name, (unsigned long long)seed,
                      (unsigned long long)i, (unsigned long long)n, (double)out[i], (double)expected);
            }
            assert_true(is_clean_around(out, side, n, sizeof *out));
        }
    }
}

/* ---- planes ------------------------------------------------------------------------------------------ */

static uint32_t digit_at(const uint64_t *planes, uint32_t n_planes, uint64_t i)
{
    uint32_t digit = 0;
    for (uint32_t j = 0; j < n_planes; j++)
        digit |= (uint32_t)(planes[i / 64 * n_planes + j] >> (i % 64) & 1) << j;
    return digit;
}

TEST(digits_are_added)
{
    static uint64_t on[GW_ADD_FRAMES][MOST_WORDS], negative[GW_ADD_FRAMES][MOST_WORDS], before[16 * MOST_WORDS];
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 600; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint64_t n_words = seed % (MOST_WORDS + 1);
        uint32_t n_frames = 1 + numbers_below(&numbers, GW_ADD_FRAMES);
        uint32_t least = 33 - (uint32_t)__builtin_clz(2 * n_frames),
                 n_planes = least + numbers_below(&numbers, 17 - least);
        bool first = numbers_below(&numbers, 2);
        struct gw_bitmaps frames[GW_ADD_FRAMES];
        for (enum side side = 0; side < N_SIDES; side++) {
            for (uint32_t r = 0; r < n_frames; r++)
                fill_bitmaps(on[r], negative[r], n_words, seed + 1000 * r);
            /* The bitmaps of one frame stand at a guard page. */
            uint64_t *nonzero = buffer(0, side, n_words, 8), *sign = buffer(1, side, n_words, 8);
            memcpy(nonzero, on[0], 8 * n_words);
            memcpy(sign, negative[0], 8 * n_words);
            for (uint32_t r = 0; r < n_frames; r++)
                frames[r] = r ? (struct gw_bitmaps){on[r], negative[r]} : (struct gw_bitmaps){nonzero, sign};
            uint64_t *planes = buffer(2, side, n_planes * n_words, 8);
            for (uint64_t i = 0; i < n_planes * n_words; i++)
                before[i] = planes[i] = (uint64_t)numbers_word(&numbers) << 32 | numbers_word(&numbers);
            k->add_digits(frames, n_frames, n_words, first, (uint8_t *)planes, n_planes);
            for (uint64_t i = 0; i < 64 * n_words; i++) {
                uint32_t sum = first ? 0 : digit_at(before, n_planes, i);
                for (uint32_t r = 0; r < n_frames; r++)
                    sum += on[r][i / 64] >> (i % 64) & 1 ? negative[r][i / 64] >> (i % 64) & 1 ? 0 : 2 : 1;
                sum &= (1u << n_planes) - 1;
                CHECK(digit_at(planes, n_planes, i) == sum, "%s, seed %llu: %u frames, %u planes, element %llu of %llu",
                      k->name, (unsigned long long)seed, n_frames, n_planes, (unsigned long long)i,
                      (unsigned long long)(64 * n_words));
            }
            assert_true(is_clean_around(planes, side, n_planes * n_words, 8));
        }
    }
}

static uint32_t digit_of(const uint8_t *planes, uint32_t n_planes, uint64_t i)
{
    uint32_t digit = 0;
    for (uint32_t j = 0; j < n_planes; j++)
        digit |= (uint32_t)(planes[8 * (i / 64 * n_planes + j) + i % 64 / 8] >> (i % 8) & 1) << j;
    return digit;
}

TEST(digits_are_parted)
{
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct numbers numbers = numbers_from(seed);
        const uint32_t workers = 1 + numbers_below(&numbers, seed % 2 ? 9 : GW_MAX_WORKERS - 1),
                       n_planes = 32 - (uint32_t)__builtin_clz(2 * workers);
        const uint64_t n_words = numbers_below(&numbers, 20);
        for (enum side side = 0; side < N_SIDES; side++) {
            uint8_t *src = buffer(0, side, 8 * n_planes * n_words, 1);
            uint64_t *negative = buffer(1, side, n_words, sizeof *negative),
                     *magnitudes = buffer(2, side, n_planes * n_words, sizeof *magnitudes),
                     *marks = buffer(3, side, n_words, sizeof *marks);
            memset(src, 0, 8 * n_planes * n_words);
            for (uint64_t i = 0; i < 64 * n_words; i++) {
                const uint32_t digit = numbers_below(&numbers, 2 * workers + 1);
                for (uint32_t j = 0; j < n_planes; j++)
                    src[8 * (i / 64 * n_planes + j) + i % 64 / 8] |= (uint8_t)((digit >> j & 1) << i % 8);
            }
            const uint32_t center = seed % 3 ? workers : numbers_below(&numbers, 2 * workers + 1);
            k->part_digits(src, n_planes, n_words, center, negative, magnitudes);
            const uint32_t level = numbers_below(&numbers, 2 * workers);
            const uint64_t n_above = k->above(magnitudes, n_planes, n_words, level, marks);
            uint64_t expected = 0;
            for (uint64_t i = 0; i < 64 * n_words; i++) {
                const int64_t sum = (int64_t)digit_of(src, n_planes, i) - center;
                int64_t found = 0;
                for (uint32_t j = 0; j < n_planes; j++)
                    found |= (int64_t)(magnitudes[j * n_words + i / 64] >> (i % 64) & 1) << j;
                CHECK(found == (sum < 0 ? -sum : sum) && (negative[i / 64] >> (i % 64) & 1) == (sum < 0),
                      "%s, seed %llu, %u workers, element %llu", k->name, (unsigned long long)seed, workers,
                      (unsigned long long)i);
                CHECK((marks[i / 64] >> (i % 64) & 1) == (found > level), "%s, seed %llu: above %u", k->name,
                      (unsigned long long)seed, level);
                expected += found > level;
            }
            assert_int_equal(n_above, expected);
            assert_true(is_clean_around(magnitudes, side, n_planes * n_words, sizeof *magnitudes));
            assert_true(is_clean_around(marks, side, n_words, sizeof *marks));
        }
    }
}

TEST(planes_are_decoded)
{
    const float quanta[] = {1, 0.3f, -2, 0x1p-149f, FLT_MAX, 0};
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint64_t n_groups = numbers_below(&numbers, 12);
        uint32_t n_planes = 1 + numbers_below(&numbers, 16), offset = numbers_below(&numbers, 1u << n_planes);
        float q = quanta[numbers_below(&numbers, 6)];
        for (enum side side = 0; side < N_SIDES; side++) {
            uint8_t *src = buffer(0, side, 8 * n_planes * n_groups, 1);
            float *out = buffer(1, side, 64 * n_groups, sizeof *out);
            for (uint64_t i = 0; i < 8 * n_planes * n_groups; i++)
                src[i] = (uint8_t)(numbers_word(&numbers) >> 24);
            /* With signs, and with another center. */
            const int32_t center = seed % 5 ? 0 : -7;
            uint64_t *negative = seed % 3 ? buffer(2, side, n_groups, sizeof *negative) : NULL;
            for (uint64_t i = 0; i < 64 * n_groups && negative; i++) {
                const uint32_t sign = numbers_below(&numbers, 2);
                negative[i / 64] = (i % 64 ? negative[i / 64] : 0) | (uint64_t)sign << (i % 64);
            }
            uint32_t most = k->decode_planes(src, n_planes, n_groups, offset, negative, center, q, seed % 2, out),
                     largest = 0;
            for (uint64_t i = 0; i < 64 * n_groups; i++) {
                const uint32_t digit = digit_of(src, n_planes, i);
                largest = digit > largest ? digit : largest;
                const int32_t x = (int32_t)digit - (int32_t)offset;
                float expected = (float)(center + (negative && negative[i / 64] >> (i % 64) & 1 ? -x : x)) * q;
                CHECK(gw_float_bits(out[i]) == gw_float_bits(expected),
                      "%s, seed %llu: %u planes, element %llu: %a, not %a", k->name, (unsigned long long)seed, n_planes,
                      (unsigned long long)i, (double)out[i], (double)expected);
            }
            CHECK(most == largest, "%s, seed %llu: largest %u, not %u", k->name, (unsigned long long)seed, most,
                  largest);
            assert_true(is_clean_around(out, side, 64 * n_groups, sizeof *out));
        }
    }
}

/* ---- parting ------------------------------------------------------------------------------------------ */

/* Element i goes to lane i mod 32. The lanes are added in float64 by halving. */
static double plain_fold(const float lanes[32])
{
    double wide[32];
    for (int i = 0; i < 32; i++)
        wide[i] = lanes[i];
    for (int half = 16; half; half /= 2)
        for (int i = 0; i < half; i++)
            wide[i] += wide[i + half];
    return wide[0];
}

static void check_split(const struct gw_kernels *k, const float *g, uint32_t n, uint32_t low, uint32_t high,
                        float scale, enum side side, uint64_t seed)
{
    float lanes[2][32] = {{0}}, kept[GW_STATS_BLOCK];
    uint32_t n_below = 0, n_kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = gw_float_bits(g[i]) & 0x7FFFFFFFu;
        float x = gw_bits_float(bits) * scale;
        if (bits < low) {
            n_below++;
            lanes[0][i % 32] += x;
            lanes[1][i % 32] += x * x;
        } else if (bits < high) {
            kept[n_kept++] = gw_bits_float(bits);
        }
    }
    float *out = buffer(1, side, n + GW_SPLIT_SLACK, sizeof *out);
    struct gw_tail below;
    uint32_t got = k->split(g, n, low, high, scale, &below, out);
    CHECK(got == n_kept && memcmp(out, kept, n_kept * sizeof *out) == 0,
          "%s, %u elements, seed %llu, from %08x to %08x: %u kept, not %u, or others", k->name, n,
          (unsigned long long)seed, low, high, got, n_kept);
    CHECK(below.count == n_below && same_double(below.sum, plain_fold(lanes[0])) &&
              same_double(below.sum_squares, plain_fold(lanes[1])),
          "%s, %u elements, seed %llu, below %08x: %llu, %a, %a, not %u, %a, %a", k->name, n, (unsigned long long)seed,
          low, (unsigned long long)below.count, below.sum, below.sum_squares, n_below, plain_fold(lanes[0]),
          plain_fold(lanes[1]));
    assert_true(is_clean_around(out, side, n + GW_SPLIT_SLACK, sizeof *out));
}

TEST(magnitudes_are_parted)
{
    const float scales[] = {1, 0x1p-60f, 0x1p126f, 0x1p-126f};
    FOR_EACH_SET(k)
    for (uint32_t n = 0; n <= GW_STATS_BLOCK; n += n < 132 ? 1 : n < 1020 ? 59 : 1)
        for (uint64_t seed = 20 * n; seed < 20 * n + 20; seed++) {
            struct numbers numbers = numbers_from(seed);
            enum side side = numbers_below(&numbers, N_SIDES);
            float *g = buffer(0, side, n, sizeof *g);
            fill(g, n, seed);
            /* Each bound is an element, or just above one, or one of the ends of the range. */
            uint32_t bounds[2];
            for (int i = 0; i < 2; i++) {
                uint32_t kind = numbers_below(&numbers, 8);
                bounds[i] = kind == 0 || !n ? 1
                            : kind == 1     ? 0x7F800000u
                                            : (gw_float_bits(g[numbers_below(&numbers, n)]) & 0x7FFFFFFFu) + kind % 2;
                bounds[i] = bounds[i] ? bounds[i] : 1;
            }
            uint32_t low = bounds[0] < bounds[1] ? bounds[0] : bounds[1],
                     high = bounds[0] < bounds[1] ? bounds[1] : bounds[0];
            check_split(k, g, n, low, numbers_below(&numbers, 5) ? high : low, scales[seed % 4], side, seed);
        }
}

/* ---- rounding with a residual ------------------------------------------------------------------------------ */

static const float halves[] = {0x1p-126f, 1e-20f, 0.4f, 1.7f, 0x1p100f, FLT_MAX / 2};
#define N_HALVES (sizeof halves / sizeof *halves)

TEST(rounding_is_the_same)
{
    FOR_EACH_SET(k)
    for (uint64_t n_words = 0; n_words <= 9; n_words++)
        for (uint64_t seed = 0; seed < 7; seed++)
            for (size_t h = 0; h < N_HALVES; h++)
                for (enum side side = 0; side < N_SIDES; side++) {
                    float *a = buffer(0, side, 64 * n_words, sizeof *a);
                    uint64_t *nonzero = buffer(1, side, n_words, sizeof *nonzero),
                             *sign = buffer(2, side, n_words, sizeof *sign);
                    fill(a, 64 * n_words, seed + 10 * n_words);
                    if (n_words) /* the bound itself is not above the bound */
                        a[0] = halves[h], a[1] = -halves[h], a[2] = nextafterf(halves[h], INFINITY);
                    k->round(a, n_words, halves[h], nonzero, sign);
                    for (uint64_t i = 0; i < 64 * n_words; i++) {
                        const bool want = fabsf(a[i]) > halves[h];
                        CHECK((nonzero[i / 64] >> i % 64 & 1) == want &&
                                  (sign[i / 64] >> i % 64 & 1) == (want && a[i] < 0),
                              "%s, %llu words, element %llu, %a with %a", k->name, (unsigned long long)n_words,
                              (unsigned long long)i, (double)a[i], (double)halves[h]);
                    }
                    assert_true(is_clean_around(nonzero, side, n_words, 8) && is_clean_around(sign, side, n_words, 8));
                }
}

TEST(carrying_is_the_same)
{
    FOR_EACH_SET(k)
    for (uint64_t n = 0; n <= 200; n += n < 70 ? 1 : 13)
        for (uint64_t seed = 0; seed < 7; seed++)
            for (size_t h = 0; h < 2 * N_HALVES; h++)
                for (enum side side = 0; side < N_SIDES; side++) {
                    const float half = halves[h / 2];
                    float *before = buffer(0, side, n, sizeof *before), *x = buffer(1, side, n, sizeof *x),
                          *next = buffer(2, side, n, sizeof *next);
                    fill(before, n, seed + 10 * n);
                    fill(x, n, 10 * n + (seed + 3) % 7);
                    if (n && seed == 1)
                        x[n - 1] = NAN, x[n / 2] = INFINITY;
                    const uint32_t got = k->carry(before, half, x, n, h % 2, next);
                    uint32_t largest = 0;
                    for (uint64_t i = 0; i < n; i++) {
                        const float left = fabsf(before[i]) > half ? before[i] - copysignf(2 * half, before[i])
                                                                   : before[i],
                                    want = x[i] + left;
                        const uint32_t bits = gw_float_bits(next[i]) & 0x7FFFFFFFu;
                        largest = bits > largest ? bits : largest;
                        CHECK(gw_float_bits(next[i]) == gw_float_bits(want) || (isnan(next[i]) && isnan(want)),
                              "%s, element %llu of %llu: %a, not %a", k->name, (unsigned long long)i,
                              (unsigned long long)n, (double)next[i], (double)want);
                    }
                    CHECK(got == largest, "%s, %llu elements: the largest is %08x, not %08x", k->name,
                          (unsigned long long)n, got, largest);
                    assert_true(is_clean_around(next, side, n, sizeof *next));
                }
}

int main(void)
{
    find_sets();
    make_places();
    printf("kernels:");
    FOR_EACH_SET(k)
    printf(" %s", k->name);
    printf("\n");
    return run_noted_tests("kernels", NULL, NULL);
}
