/* Tests selection against a plain model that sorts, and the kernels of every instruction set against the same model,
 * in buffers at guard pages. */
#include "base/scratch.h"
#include "checks.h"
#include "codec/topk/rank.h"
#include "codecs.h"
#include "places.h"
#include "shortage.h"

#include <float.h>
#include <math.h>

/* ---- tensors ----------------------------------------------------------------------------------------- */

enum kind {
    BELL,
    EQUAL,
    ZERO,
    DENORMAL,
    HEAVY_TAIL,
    RISING,
    FALLING,
    FEW_NONZERO,
    FEW_LEVELS,
    PERIODIC,
    SPECIALS,
    SAMPLE_LARGE, /* only the elements of a guess's sample are large */
    SAMPLE_SMALL, /* all elements but those are large */
    N_KINDS
};

static const float specials[] = {0,       -0.0f,    0x1p-149f, -0x1p-149f, 0x1p-127f,   -0x1.fffffcp-127f,
                                 FLT_MIN, -FLT_MIN, 1e-20f,    1,          -1,          1.0000001f,
                                 65504,   -65520,   65536,     -3e9f,      0x1.fep126f, -0x1.fffffep126f};
#define N_SPECIALS (sizeof specials / sizeof *specials)

static float gradient(enum kind kind, struct numbers *numbers, uint64_t i, uint64_t n)
{
    float x = numbers_bell(numbers);
    switch (kind) {
    case EQUAL:
        return numbers_below(numbers, 2) ? -1.7f : 1.7f;
    case ZERO:
        return numbers_below(numbers, 2) ? -0.0f : 0;
    case DENORMAL:
        return x * 0x1p-135f;
    case HEAVY_TAIL:
        return x * (float)(1u << numbers_below(numbers, 30));
    case RISING:
        return (float)i;
    case FALLING:
        return -(float)(n - i);
    case FEW_NONZERO:
        return numbers_below(numbers, 500) ? 0 : x;
    case FEW_LEVELS:
        return (float)(int)(2 * x);
    case PERIODIC:
        return i % 64 == 5 ? 100 + x : x;
    case SPECIALS:
        return specials[numbers_below(numbers, N_SPECIALS)];
    case SAMPLE_LARGE:
        return x;
    case SAMPLE_SMALL:
        return 100 + x;
    default:
        return x;
    }
}

/* Fills g and a residual. Their sum is of the kind, too. */
static void fill(float *g, float *residual, uint64_t n, enum kind kind, uint64_t seed)
{
    struct numbers numbers = numbers_from(seed);
    for (uint64_t i = 0; i < n; i++) {
        g[i] = gradient(kind, &numbers, i, n);
        residual[i] = kind == BELL || kind == DENORMAL ? gradient(kind, &numbers, i, n) : 0;
    }
    if (kind == SAMPLE_LARGE || kind == SAMPLE_SMALL)
        for (uint64_t s = 0; n > gw_rank_sample_size(n) && s < gw_rank_sample_size(n); s++) {
            uint64_t at = gw_rank_sample_place(n, s);
            g[at] = kind == SAMPLE_LARGE ? g[at] + 100 : g[at] - 100;
        }
}

static uint32_t magnitude(float x)
{
    return gw_float_bits(x) & 0x7FFFFFFFu;
}

/* The value after it was sent, from its definition: the nearest of the two neighbours, and of two that are equally near
 * the even one. */
static float rounded(enum gw_value_type value, float x)
{
    if (value == GW_VALUE_F32)
        return x;
    double most = value == GW_VALUE_BF16 ? 0x1.FEp127 : 65504, least = value == GW_VALUE_BF16 ? 0x1p-133 : 0x1p-24;
    int digits = value == GW_VALUE_BF16 ? 8 : 11, exponent;
    frexp(x, &exponent);
    double unit = ldexp(1, exponent - digits);
    unit = unit < least ? least : unit;
    double r = nearbyint(fabs(x) / unit) * unit;
    return copysignf((float)(r > most ? most : r), x);
}

/* What is left of an element of which 1 + over times its value was sent. */
static float left_after(enum gw_value_type value, float over, float a)
{
    return a - rounded(value, a * (1 + over));
}

static const float overs[] = {0, 0.5f, 0.75f, 0.3f};

/* ---- kernels ----------------------------------------------------------------------------------------- */

static const struct gw_select_kernels *sets[5]; /* NULL-ended */

static void find_sets(void)
{
    enum gw_cpu best = gw_cpu_best();
    size_t n = 0;
    for (enum gw_cpu cpu = GW_CPU_SCALAR; cpu <= GW_CPU_NEON; cpu++)
        if (cpu == GW_CPU_SCALAR || cpu == best || (best != GW_CPU_NEON && cpu <= best))
            sets[n++] = gw_select_kernels_for(cpu);
}

#define FOR_EACH_SET(k) for (const struct gw_select_kernels **k##_at = sets, *k; (k = *k##_at); k##_at++)

#define MOST 2112 /* elements of a buffer in the tests of kernels */

static uint64_t some_length(uint64_t seed)
{
    return seed < 300 ? seed : seed < 350 ? 1024 - 25 + (seed - 300) : (seed * 769) % (MOST + 1);
}

/* A threshold. Some elements are above it and some are equal to it; sometimes all are above it, or none is. */
static uint32_t some_threshold(struct numbers *numbers, const float *g, const float *residual, uint64_t n)
{
    uint32_t pick = numbers_below(numbers, 8);
    if (pick == 0 || n == 0)
        return 0;
    if (pick == 1)
        return 0x7F7FFFFFu;
    uint64_t i = numbers_below(numbers, (uint32_t)n);
    return magnitude(g[i] + residual[i]);
}

TEST(elements_are_selected)
{
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 2400; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint64_t n = some_length(seed % 800), n_words = gw_div_up(n, 64);
        enum side side = seed % N_SIDES;
        enum gw_value_type value = numbers_below(&numbers, 3);
        float over = overs[numbers_below(&numbers, 4)];
        const bool with_residual = numbers_below(&numbers, 4), with_sent = numbers_below(&numbers, 3);
        float *g = buffer(0, side, n, 4), *residual = buffer(1, side, n, 4), *next = buffer(2, side, n, 4);
        uint64_t *kept = buffer(3, side, n_words, 8);
        float *values = buffer(4, side, n + GW_SELECT_SLACK, 4);
        fill(g, residual, n, numbers_below(&numbers, N_KINDS), seed);
        uint64_t *sent = buffer(5, side, n_words, 8);
        uint32_t share = 1 + numbers_below(&numbers, 30);
        memset(sent, 0, 8 * n_words);
        for (uint64_t i = 0; with_sent && i < n; i++)
            sent[i / 64] |= (uint64_t)(numbers_below(&numbers, share) == 0) << (i % 64);
        float left[MOST];
        for (uint64_t i = 0; i < n; i++)
            left[i] = !with_residual                 ? -0.0f
                      : sent[i / 64] >> (i % 64) & 1 ? left_after(value, over, residual[i])
                                                     : residual[i];
        uint32_t threshold = some_threshold(&numbers, g, left, n);
        const struct gw_select_run run = {
            .g = g,
            .residual = with_residual ? residual : NULL,
            .sent = with_residual ? sent : NULL,
            .n = n,
            .threshold_bits = threshold,
            .value = value,
            .over = over,
            .stream = numbers_below(&numbers, 2),
            .next = with_residual ? next : NULL,
            .kept = kept,
        };
        struct gw_select_counts counts = k->select(&run, values);
        uint64_t n_above = 0, n_equal = 0;
        uint32_t most = 0;
        for (uint64_t i = 0; i < n; i++) {
            float a = g[i] + left[i];
            bool above = magnitude(a) > threshold;
            if (above) {
                CHECK(gw_float_bits(values[n_above]) == gw_float_bits(a), "%s, seed %llu: value %llu is %a, not %a",
                      k->name, (unsigned long long)seed, (unsigned long long)n_above, (double)values[n_above],
                      (double)a);
                n_above++;
            }
            n_equal += magnitude(a) == threshold;
            most = magnitude(a) > most ? magnitude(a) : most;
            CHECK((kept[i / 64] >> (i % 64) & 1) == above, "%s, seed %llu: element %llu of %llu: %a is marked wrongly",
                  k->name, (unsigned long long)seed, (unsigned long long)i, (unsigned long long)n, (double)a);
            CHECK(!with_residual || gw_float_bits(next[i]) == gw_float_bits(a),
                  "%s, seed %llu: element %llu of %llu: next is %a, not %a", k->name, (unsigned long long)seed,
                  (unsigned long long)i, (unsigned long long)n, (double)next[i], (double)a);
        }
        CHECK(counts.n_above == n_above && counts.n_equal == n_equal && counts.max_bits == most,
              "%s, seed %llu, %llu elements: %llu above, not %llu; %llu equal, not %llu; maximum %x, not %x", k->name,
              (unsigned long long)seed, (unsigned long long)n, (unsigned long long)counts.n_above,
              (unsigned long long)n_above, (unsigned long long)counts.n_equal, (unsigned long long)n_equal,
              counts.max_bits, most);
        if (n % 64)
            assert_int_equal(kept[n / 64] >> (n % 64), 0);
        assert_true(is_clean_around(next, side, n, 4) && is_clean_around(kept, side, n_words, 8));
        assert_true(is_clean_around(values, side, n + GW_SELECT_SLACK, 4));
    }
}

/* Tests all 2^16 upper halves of floats, with lower halves near ties. That is every rounding of what was sent. */
TEST(what_rounding_lost_is_left)
{
    static const uint32_t lower[] = {0,      1,      0x0FFF, 0x1000, 0x1001, 0x2FFF,
                                     0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001, 0xFFFF};
    FOR_EACH_SET(k)
    for (int more = 0; more < 2; more++)
        for (enum gw_value_type value = GW_VALUE_F32; value <= GW_VALUE_F16; value++)
            for (uint32_t upper = 0; upper < 0x10000u; upper += 0x80) {
                const size_t o = more ? 1 + (upper / 0x80 + value) % 3 : 0;
                float g[0x80 * 12], zeros[0x80 * 12] = {0}, next[0x80 * 12], values[0x80 * 12 + GW_SELECT_SLACK];
                uint64_t kept[24], sent[24], n = 0;
                memset(sent, 0xFF, sizeof sent);
                for (uint32_t i = 0; i < 0x80 * 12; i++) {
                    uint32_t bits = (upper + i / 12) << 16 | lower[i % 12];
                    if ((bits & 0x7FFFFFFFu) && isfinite(gw_bits_float(bits) * (1 + overs[o])))
                        g[n++] = gw_bits_float(bits);
                }
                const struct gw_select_run run = {.g = zeros,
                                                  .residual = g,
                                                  .sent = sent,
                                                  .n = n,
                                                  .value = value,
                                                  .over = overs[o],
                                                  .next = next,
                                                  .kept = kept};
                k->select(&run, values);
                for (uint64_t i = 0; i < n; i++) {
                    float left = 0 + left_after(value, overs[o], g[i]);
                    CHECK(gw_float_bits(next[i]) == gw_float_bits(left), "%s: over %g: of %a %a is left, not %a",
                          k->name, (double)overs[o], (double)g[i], (double)next[i], (double)left);
                }
            }
}

TEST(what_is_not_finite_is_seen_anywhere)
{
    static const float bad[][2] = {{INFINITY, 0}, {-INFINITY, 1},     {NAN, 0},
                                   {0, NAN},      {FLT_MAX, FLT_MAX}, {INFINITY, -INFINITY}};
    FOR_EACH_SET(k)
    for (uint64_t n = 1; n < 200; n++)
        for (uint64_t at = 0; at < n; at++)
            for (size_t b = 0; b < 6; b++) {
                float g[200] = {0}, residual[200] = {0}, next[200], values[200 + GW_SELECT_SLACK];
                uint64_t sent[4] = {0}, kept[4];
                g[at] = bad[b][0];
                residual[at] = bad[b][1];
                const struct gw_select_run run = {.g = g,
                                                  .residual = residual,
                                                  .sent = sent,
                                                  .n = n,
                                                  .threshold_bits = 0x3F800000u,
                                                  .value = at % 3,
                                                  .next = next,
                                                  .kept = kept};
                assert_true(k->select(&run, values).max_bits >= 0x7F800000u);
            }
}

TEST(values_are_expanded_and_added)
{
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 2400; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint64_t n = some_length(seed % 800), n_words = gw_div_up(n, 64), n_values = 0;
        enum side side = seed % N_SIDES;
        uint32_t share = 1u << numbers_below(&numbers, 10);
        uint64_t *kept = buffer(0, side, n_words, 8);
        memset(kept, 0, 8 * n_words);
        for (uint64_t i = 0; i < n; i++)
            kept[i / 64] |= (uint64_t)(numbers_below(&numbers, share) == 0) << (i % 64);
        for (uint64_t w = 0; w < n_words; w++)
            n_values += (uint64_t)__builtin_popcountll(kept[w]);
        float *values = buffer(1, side, n_values, 4), *out = buffer(2, side, n, 4), *sum = buffer(3, side, n, 4);
        float before[MOST];
        for (uint64_t i = 0; i < n_values; i++)
            values[i] = gradient(seed % 2 ? BELL : SPECIALS, &numbers, i, n);
        for (uint64_t i = 0; i < n; i++)
            before[i] = sum[i] = gradient(SPECIALS, &numbers, i, n);
        k->expand(kept, n, values, n_values, seed % 5 == 0, out);
        k->add(kept, n, values, n_values, sum);
        for (uint64_t i = 0, v = 0; i < n; i++) {
            bool on = kept[i / 64] >> (i % 64) & 1;
            float value = on ? values[v++] : 0, total = on ? before[i] + value : before[i];
            CHECK(gw_float_bits(out[i]) == gw_float_bits(value) && gw_float_bits(sum[i]) == gw_float_bits(total),
                  "%s, seed %llu: element %llu of %llu: %a, not %a; sum %a, not %a", k->name, (unsigned long long)seed,
                  (unsigned long long)i, (unsigned long long)n, (double)out[i], (double)value, (double)sum[i],
                  (double)total);
        }
        assert_true(is_clean_around(out, side, n, 4) && is_clean_around(sum, side, n, 4));
    }
}

TEST(bytes_are_compared_and_lowered)
{
    FOR_EACH_SET(k)
    for (uint64_t seed = 0; seed < 1500; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint64_t n_words = seed % 34, n = 64 * n_words;
        enum side side = seed % N_SIDES;
        uint8_t before[MOST + 64], bound = seed % 5 ? (uint8_t)numbers_below(&numbers, 256) : seed % 2 ? 255 : 0;
        uint64_t *out = buffer(0, side, n_words, 8);
        uint8_t *bytes = buffer(1, side, n, 1);
        for (uint64_t i = 0; i < n; i++)
            before[i] = bytes[i] =
                (uint8_t)(seed % 3 ? numbers_below(&numbers, 256) : bound + numbers_below(&numbers, 3) - 1);
        k->below(bytes, n_words, bound, out);
        for (uint64_t i = 0; i < n; i++)
            CHECK((out[i / 64] >> (i % 64) & 1) == (before[i] < bound), "%s, seed %llu: byte %llu is %u, bound %u",
                  k->name, (unsigned long long)seed, (unsigned long long)i, before[i], bound);
        k->lower(out, n_words, bytes);
        for (uint64_t i = 0; i < n; i++)
            CHECK(bytes[i] == (uint8_t)(before[i] - (before[i] < bound)), "%s, seed %llu: byte %llu was %u and is %u",
                  k->name, (unsigned long long)seed, (unsigned long long)i, before[i], bytes[i]);
        assert_true(is_clean_around(out, side, n_words, 8) && is_clean_around(bytes, side, n, 1));
    }
}

/* Tests every exponent, and the bits beside it. */
TEST(floats_are_cut_and_joined)
{
    FOR_EACH_SET(k)
    for (uint64_t n = 0; n < 600; n++) {
        struct numbers numbers = numbers_from(n);
        enum side side = n % N_SIDES;
        float *values = buffer(0, side, n, 4), *out = buffer(1, side, n, 4);
        uint8_t *rests = buffer(2, side, 3 * n, 1), *exponents = buffer(3, side, n, 1);
        for (uint64_t i = 0; i < n; i++) {
            uint32_t bits = numbers_word(&numbers);
            values[i] = gw_bits_float(bits);
            exponents[i] = (uint8_t)(bits >> 23);
        }
        k->rests(values, n, rests);
        for (uint64_t i = 0; i < n; i++) {
            uint32_t bits = gw_float_bits(values[i]);
            assert_int_equal(rests[3 * i], bits & 255);
            assert_int_equal(rests[3 * i + 1], bits >> 8 & 255);
            assert_int_equal(rests[3 * i + 2], (bits >> 16 & 127) | bits >> 31 << 7);
        }
        k->join(rests, exponents, n, out);
        assert_memory_equal(out, values, 4 * n);
        assert_true(is_clean_around(out, side, n, 4) && is_clean_around(rests, side, 3 * n, 1));
    }
}

/* ---- whole tensors ----------------------------------------------------------------------------------- */

static gw_context *contexts[3]; /* of 1, 2 and 3 threads */

/* A tensor with room for what is selected, and what the model says of it. */
struct tensor {
    struct gw_select_part part;
    float *g, *residual;
    uint64_t *sent;
    bool *selected;
    uint64_t n_kept;
};

static struct tensor tensor_of(uint64_t n, enum kind kind, uint64_t seed)
{
    struct tensor t = {.g = room_for(n, 4),
                       .residual = room_for(n, 4),
                       .sent = room_for(gw_div_up(n, 64), 8),
                       .selected = room_for(n, 1)};
    fill(t.g, t.residual, n, kind, seed);
    t.part = (struct gw_select_part){.g = t.g,
                                     .residual = t.residual,
                                     .sent = t.sent,
                                     .n = n,
                                     .value = seed % 3,
                                     .over = overs[(seed & 1023) / 3 % 4],
                                     .next = room_for(n, 4),
                                     .kept = room_for(gw_div_up(n, 64), 8)};
    /* Of some tensors, one element in nine was sent in the step before. */
    memset(t.sent, 0, 8 * gw_div_up(n, 64));
    for (uint64_t i = seed % 9; i < n && kind <= DENORMAL && seed % 4; i += 9)
        t.sent[i / 64] |= 1ull << (i % 64);
    return t;
}

static void tensor_free(struct tensor *t)
{
    free(t->g);
    free(t->residual);
    free(t->sent);
    free(t->selected);
    free(t->part.next);
    free(t->part.kept);
}

static float sum_at(const struct tensor *t, uint64_t i)
{
    float left = t->residual[i];
    if (t->sent[i / 64] >> (i % 64) & 1)
        left = left_after(t->part.value, t->part.over, left);
    return t->g[i] + left;
}

struct ranked {
    uint32_t bits, part;
    uint64_t at;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->bits != y->bits)
        return x->bits < y->bits ? 1 : -1;
    if (x->part != y->part)
        return x->part < y->part ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Sorts, and marks the first k. Returns the k-th magnitude. */
static float model_exact(struct tensor *t, uint32_t n_parts, uint64_t k)
{
    uint64_t n = 0, at = 0;
    for (uint32_t p = 0; p < n_parts; p++)
        n += t[p].part.n;
    struct ranked *ranked = room_for(n, sizeof *ranked);
    for (uint32_t p = 0; p < n_parts; p++) {
        memset(t[p].selected, 0, t[p].part.n);
        t[p].n_kept = 0;
        for (uint64_t i = 0; i < t[p].part.n; i++)
            ranked[at++] = (struct ranked){magnitude(sum_at(&t[p], i)), p, i};
    }
    qsort(ranked, n, sizeof *ranked, by_rank);
    uint32_t last = ranked[k - 1].bits;
    for (uint64_t i = 0; i < k; i++) {
        struct tensor *of = &t[ranked[i].part];
        of->selected[ranked[i].at] = true;
        of->n_kept++;
    }
    free(ranked);
    return gw_bits_float(last);
}

static void model_above(struct tensor *t, float threshold)
{
    t->n_kept = 0;
    for (uint64_t i = 0; i < t->part.n; i++) {
        t->selected[i] = fabsf(sum_at(t, i)) > threshold;
        t->n_kept += t->selected[i];
    }
}

/* Checks that bitmap, values, residual and counts are the model's. Returns where the values end. */
static const float *check_written(const char *what, const struct tensor *t, const float *values)
{
    uint32_t most = 0;
    CHECK(t->part.n_kept == t->n_kept, "%s: %llu kept, not %llu", what, (unsigned long long)t->part.n_kept,
          (unsigned long long)t->n_kept);
    for (uint64_t i = 0; i < t->part.n; i++) {
        float a = sum_at(t, i);
        most = magnitude(a) > most ? magnitude(a) : most;
        if (t->selected[i]) {
            float sent = rounded(t->part.value, a * (1 + t->part.over));
            CHECK(gw_float_bits(*values) == gw_float_bits(sent), "%s: value of element %llu is %a, not %a", what,
                  (unsigned long long)i, (double)*values, (double)sent);
            values++;
        }
        CHECK((t->part.kept[i / 64] >> (i % 64) & 1) == t->selected[i], "%s: element %llu is %sselected", what,
              (unsigned long long)i, t->selected[i] ? "not " : "");
        CHECK(gw_float_bits(t->part.next[i]) == gw_float_bits(a), "%s: next of element %llu is %a, not %a", what,
              (unsigned long long)i, (double)t->part.next[i], (double)a);
    }
    if (t->part.n % 64)
        assert_int_equal(t->part.kept[t->part.n / 64] >> (t->part.n % 64), 0);
    CHECK(t->part.max_bits == most, "%s: maximum %x, not %x", what, t->part.max_bits, most);
    return values;
}

/* Tests all of selection on one list of tensors, with every number of threads. */
static void check_list(const char *what, struct tensor *t, uint32_t n_parts, uint64_t k)
{
    struct gw_select_part parts[8];
    float threshold = model_exact(t, n_parts, k), found;
    float *values = room_for(k, 4);
    for (int c = 0; c < 3; c++) {
        for (uint32_t p = 0; p < n_parts; p++)
            parts[p] = t[p].part;
        found = -1;
        assert_int_equal(gw_select_exact(contexts[c], parts, n_parts, k, values, &found), GW_OK);
        CHECK(gw_float_bits(found) == gw_float_bits(threshold), "%s: threshold %a, not %a", what, (double)found,
              (double)threshold);
        const float *end = values;
        for (uint32_t p = 0; p < n_parts; p++) {
            t[p].part = parts[p];
            end = check_written(what, &t[p], end);
        }
        assert_true(end == values + k);
        /* The same result by a threshold that too many are above, expected or not. */
        for (int many = 0; many < 2 && threshold > 0; many++) {
            for (uint32_t p = 0; p < n_parts; p++)
                parts[p] = t[p].part;
            float lower = many ? threshold / 2 : nextafterf(threshold, 0);
            assert_int_equal(gw_select_above(contexts[c], parts, n_parts, lower, k, many, values), GW_OK);
            end = values;
            for (uint32_t p = 0; p < n_parts; p++) {
                t[p].part = parts[p];
                end = check_written(what, &t[p], end);
            }
            assert_true(end == values + k);
        }
    }
    free(values);
}

static void check_tensor(uint64_t n, enum kind kind, uint64_t seed, uint64_t k)
{
    char what[200];
    snprintf(what, sizeof what, "%llu elements of kind %d, seed %llu, k %llu", (unsigned long long)n, kind,
             (unsigned long long)seed, (unsigned long long)k);
    struct tensor t = tensor_of(n, kind, seed);
    check_list(what, &t, 1, k);
    tensor_free(&t);
}

TEST(the_largest_are_selected)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint64_t n = 1 + (seed % 10 ? numbers_below(&numbers, 200) : numbers_below(&numbers, 6000));
        uint64_t k = 1 + numbers_below(&numbers, (uint32_t)n);
        k = seed % 7 == 0 ? n : seed % 7 == 1 ? 1 : seed % 7 == 2 ? gw_div_up(n, 100) : k;
        check_tensor(n, seed % N_KINDS, seed, k);
    }
}

TEST(the_largest_are_selected_around_chunks)
{
    static const uint64_t lengths[] = {1023, 1024, 1025, 4095, 4096, 4097, 65535, 65536, 65537, 131071, 131073, 196700};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (enum kind kind = 0; kind < N_KINDS; kind++) {
            struct numbers numbers = numbers_from(l * N_KINDS + kind);
            uint64_t n = lengths[l], pick = numbers_below(&numbers, 5);
            uint64_t k = pick == 0   ? n
                         : pick == 1 ? 1 + numbers_below(&numbers, (uint32_t)n)
                         : pick == 2 ? n / 1000 + 1
                                     : gw_div_up(n, 100);
            check_tensor(n, kind, l + kind, k);
        }
    check_tensor(1500001, BELL, 1, 15001); /* long enough for all threads to wake up */
}

/* Samples of these tensors do not tell what the rest is like. Too many elements, or too few, are above the guess. */
TEST(a_wrong_guess_is_put_right)
{
    uint64_t n = 150000;
    struct tensor t = tensor_of(n, SAMPLE_LARGE, 1);
    struct gw_select_list list;
    uint32_t guess, above = 0;
    uint64_t most;
    assert_int_equal(gw_select_list_init(contexts[0], &t.part, 1, &list), GW_OK);
    assert_int_equal(gw_rank_guess(contexts[0], &list, 8000, &guess, &most), GW_OK);
    for (uint64_t i = 0; i < n; i++)
        above += magnitude(sum_at(&t, i)) >= guess;
    assert_true(above < 8000);
    tensor_free(&t);

    t = tensor_of(n, SAMPLE_SMALL, 1);
    assert_int_equal(gw_rank_guess(contexts[0], &list, 100, &guess, &most), GW_OK);
    above = 0;
    for (uint64_t i = 0; i < n; i++)
        above += magnitude(sum_at(&t, i)) > guess;
    assert_true(above > most);
    tensor_free(&t);

    for (uint64_t seed = 0; seed < 3; seed++) { /* each seed has another type of values */
        check_tensor(n, SAMPLE_LARGE, seed, 8000);
        check_tensor(n, SAMPLE_SMALL, seed, 100);
    }
}

TEST(the_largest_of_a_list_are_selected)
{
    for (uint64_t seed = 0; seed < 400; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint32_t n_parts = 1 + numbers_below(&numbers, 8);
        struct tensor t[8];
        uint64_t n = 0;
        for (uint32_t p = 0; p < n_parts; p++) {
            uint64_t length = numbers_below(&numbers, 4) ? numbers_below(&numbers, 300) : 0;
            if (seed % 20 == 0 && p < 3)
                length = 60000 + numbers_below(&numbers, 12000);
            t[p] = tensor_of(length, seed % 2 ? seed / 2 % N_KINDS : numbers_below(&numbers, N_KINDS), seed + 1000 * p);
            if (numbers_below(&numbers, 3) == 0)
                memset(t[p].residual, 0, length * sizeof *t[p].residual);
            n += length;
        }
        if (n) {
            char what[100];
            snprintf(what, sizeof what, "%u parts, seed %llu", n_parts, (unsigned long long)seed);
            check_list(what, t, n_parts, seed % 5 == 0 ? gw_div_up(n, 100) : 1 + numbers_below(&numbers, (uint32_t)n));
        }
        for (uint32_t p = 0; p < n_parts; p++)
            tensor_free(&t[p]);
    }
}

TEST(what_is_above_is_selected)
{
    for (uint64_t seed = 0; seed < 600; seed++) {
        struct numbers numbers = numbers_from(seed);
        /* There are enough chunks that threads wake up before all is done, and find values in another order. */
        uint64_t n = seed == 13       ? 3000001
                     : seed % 50 == 0 ? 60000 + numbers_below(&numbers, 150000)
                                      : numbers_below(&numbers, 3000);
        struct tensor t = tensor_of(n, seed % N_KINDS, seed);
        float threshold = gw_bits_float(some_threshold(&numbers, t.g, t.residual, n));
        model_above(&t, threshold);
        char what[100];
        snprintf(what, sizeof what, "%llu elements, seed %llu", (unsigned long long)n, (unsigned long long)seed);
        for (int c = 0; c < 3; c++)
            for (int many = 0; many < 2; many++) {
                /* Blocks end where their content ends. So a sanitizer, or the heap's own checks, see an access past the
                 * end. */
                uint64_t k = t.n_kept ? t.n_kept : 1;
                float *values = room_for(t.n_kept, 4);
                t.part.n_kept = 99;
                assert_int_equal(gw_select_above(contexts[c], &t.part, 1, threshold, k, many, values), GW_OK);
                assert_true(check_written(what, &t, values) == values + t.n_kept);
                free(values);
            }
        tensor_free(&t);
    }
}

TEST(what_is_not_finite_is_reported)
{
    static const uint64_t lengths[] = {1, 63, 500, 5000, 70000, 140000};
    for (size_t l = 0; l < 6; l++)
        for (int where = 0; where < 3; where++)
            for (int c = 0; c < 3; c++) {
                uint64_t n = lengths[l], at = where == 0 ? 0 : where == 1 ? n / 2 : n - 1;
                struct tensor t[2] = {tensor_of(100, BELL, 5), tensor_of(n, BELL, l)};
                t[1].g[at] = where == 1 ? NAN : INFINITY;
                struct gw_select_part parts[2] = {t[0].part, t[1].part};
                float *values = room_for(n + 100, 4), found;
                assert_int_equal(gw_select_above(contexts[c], &parts[1], 1, 0.5f, n, where == 2, values), GW_OK);
                assert_true(parts[1].max_bits >= 0x7F800000u);
                parts[1].max_bits = 0;
                assert_int_equal(gw_select_exact(contexts[c], parts, 2, gw_div_up(n, 3), values, &found), GW_OK);
                assert_true(parts[1].max_bits >= 0x7F800000u && parts[0].max_bits < 0x7F800000u);
                free(values);
                tensor_free(&t[0]);
                tensor_free(&t[1]);
            }
}

TEST(memory_may_run_out_anywhere)
{
    struct shortage shortage = {.for_good = true};
    gw_context *context = context_short_of(&shortage, 2);
    /* For a tensor of the second kind the guess is wrong, and everything is ranked. */
    static const enum kind kinds[] = {BELL, SAMPLE_LARGE};
    for (int which = 0; which < 2; which++) {
        struct tensor t[2] = {tensor_of(200, BELL, 1), tensor_of(150000, kinds[which], 2)};
        struct gw_select_part parts[2] = {t[0].part, t[1].part};
        uint64_t k = 8000;
        float *values = room_for(150000, 4), threshold;
        for (int call = 0; call < 2; call++) {
            int before = shortage.live, n_refused = 0;
            gw_status status = GW_ERR_MEMORY;
            for (; status == GW_ERR_MEMORY; n_refused++) {
                fail_nth(&shortage, n_refused + 1);
                status = call == 0 ? gw_select_exact(context, parts, 2, k, values, &threshold)
                                   : gw_select_above(context, &parts[1], 1, 0, 150000, false, values);
                gw_scratch_clear(context);
                assert_int_equal(shortage.live, before);
            }
            assert_int_equal(status, GW_OK);
            assert_true(n_refused > (call == 1 ? 2 : 5));
        }
        free(values);
        tensor_free(&t[0]);
        tensor_free(&t[1]);
    }
    gw_context_destroy(context);
    assert_int_equal(shortage.live, 0);
}

int main(void)
{
    find_sets();
    make_places();
    for (uint32_t c = 0; c < 3; c++)
        contexts[c] = context_of(c + 1);
    int failed = run_noted_tests("select", NULL, NULL);
    for (uint32_t c = 0; c < 3; c++)
        gw_context_destroy(contexts[c]);
    return failed;
}
