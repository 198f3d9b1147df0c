/* The readable kernels, the helpers that all kernels share, and the choice of the set for this machine. */
#include "codec/kernels.h"
#include "base/philox.h"
#include "wire/bytes.h"

#include <math.h>

/* ---- shared helpers --------------------------------------------------------------------------- */

bool gw_stats_needs_wide(uint32_t max_bits)
{
    /* 2^60 squared, times 1024, is far below FLT_MAX. 2^-50 squared is far above what float32 loses. */
    return (max_bits > 0x5D800000u || (max_bits < 0x26800000u && max_bits)) && max_bits < 0x7F800000u;
}

struct gw_stats gw_stats_wide(const float *g, uint32_t n)
{
    struct gw_stats stats = {0};
    for (uint32_t i = 0; i < n; i++) {
        double x = g[i];
        uint32_t bits = gw_float_bits(g[i]) & 0x7FFFFFFFu;
        stats.max_bits = bits > stats.max_bits ? bits : stats.max_bits;
        stats.sum += x;
        stats.sum_abs += fabs(x);
        stats.sum_squares += x * x;
    }
    return stats;
}

double gw_stats_fold(const float lanes[GW_STATS_LANES])
{
    double wide[GW_STATS_LANES];
    for (int i = 0; i < GW_STATS_LANES; i++)
        wide[i] = lanes[i];
    for (int half = GW_STATS_LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            wide[i] += wide[i + half];
    return wide[0];
}

/* The threshold as an integer in [0, 2^32]. Scaling by 2^32/s costs one float32 product; truncation is exact. */
static uint64_t threshold(const struct gw_ternary_draw *draw, float g)
{
    float magnitude = fabsf(g);
    float clipped = magnitude < draw->clip ? magnitude : draw->clip;
    float x = clipped * draw->to_threshold;
    return x >= 0x1p32f ? 1ull << 32 : (uint64_t)x;
}

/* The tie-break: the first 16 random bits equal the threshold's upper 16. */
static bool draw_tie(const struct gw_ternary_draw *draw, uint64_t element, float g, uint32_t drawn)
{
    /* docs/wire-format.md, "Random numbers": tie bits. */
    uint32_t counter[4], words[4];
    gw_philox_counter(counter, (uint32_t)(element / 8), draw->at.step, draw->purpose + 1, draw->at.rank,
                      draw->tensor_id);
    gw_philox(counter, draw->at.seed, words);
    uint32_t more = words[element % 8 / 2] >> (16 * (element % 2)) & 0xFFFFu;
    return ((uint64_t)drawn << 16 | more) < threshold(draw, g);
}

uint32_t gw_draw_ties(const struct gw_ternary_draw *draw, uint64_t element, const float *g, const uint16_t *drawn,
                      uint32_t ties)
{
    uint32_t won = 0;
    for (; ties; ties &= ties - 1) {
        const uint32_t e = (uint32_t)__builtin_ctz(ties);
        won |= (uint32_t)draw_tie(draw, element + e, g[e], drawn[e]) << e;
    }
    return won;
}

const struct gw_kernels *gw_kernels_for(enum gw_cpu cpu)
{
    static const struct gw_kernels *const sets[] = {
        [GW_CPU_SCALAR] = &gw_kernels_ref,
#if defined(__x86_64__)
        [GW_CPU_AVX2] = &gw_kernels_avx2,
        [GW_CPU_AVX512] = &gw_kernels_avx512,
#elif defined(__aarch64__)
        [GW_CPU_NEON] = &gw_kernels_neon,
#endif
    };
    return cpu < sizeof sets / sizeof *sets ? sets[cpu] : NULL;
}

const struct gw_kernels *gw_kernels_now(void)
{
    return gw_kernels_for(gw_cpu());
}

uint32_t gw_decode_planes(const uint8_t *src, uint32_t n_planes, uint32_t n, uint32_t offset, const uint64_t *negative,
                          int32_t center, float q, bool stream, float *out)
{
    const struct gw_kernels *kernels = gw_kernels_now();
    const uint32_t whole = n / 64;
    float last[64];
    const uint32_t most = kernels->decode_planes(src, n_planes, whole, offset, negative, center, q, stream, out);
    if (n % 64 == 0)
        return most;
    const uint32_t here = kernels->decode_planes(src + 8 * (size_t)whole * n_planes, n_planes, 1, offset,
                                                 negative ? negative + whole : NULL, center, q, false, last);
    memcpy(out + 64 * (size_t)whole, last, n % 64 * sizeof *out);
    return here > most ? here : most;
}

/* ---- the reference ---------------------------------------------------------------------------- */

static struct gw_stats stats_block_ref(const float *g, uint32_t n)
{
    float sum[GW_STATS_LANES] = {0}, sum_abs[GW_STATS_LANES] = {0}, squares[GW_STATS_LANES] = {0};
    struct gw_stats stats = {0};
    for (uint32_t row = 0; row < n; row += GW_STATS_LANES) {
        for (uint32_t lane = 0; lane < GW_STATS_LANES; lane++) {
            float x = row + lane < n ? g[row + lane] : 0;
            uint32_t bits = gw_float_bits(x) & 0x7FFFFFFFu;
            stats.max_bits = bits > stats.max_bits ? bits : stats.max_bits;
            sum[lane] += x;
            sum_abs[lane] += gw_bits_float(bits);
            squares[lane] += x * x;
        }
    }
    stats.sum = gw_stats_fold(sum);
    stats.sum_abs = gw_stats_fold(sum_abs);
    stats.sum_squares = gw_stats_fold(squares);
    return stats;
}

static uint32_t split_ref(const float *g, uint32_t n, uint32_t low, uint32_t high, float scale, struct gw_tail *below,
                          float *kept)
{
    float sum[GW_STATS_LANES] = {0}, squares[GW_STATS_LANES] = {0};
    uint32_t n_below = 0, n_kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t bits = gw_float_bits(g[i]) & 0x7FFFFFFFu;
        if (bits < low) {
            float x = gw_bits_float(bits) * scale;
            n_below++;
            sum[i % GW_STATS_LANES] += x;
            squares[i % GW_STATS_LANES] += x * x;
        } else if (bits < high) {
            kept[n_kept++] = gw_bits_float(bits);
        }
    }
    *below = (struct gw_tail){n_below, gw_stats_fold(sum), gw_stats_fold(squares)};
    return n_kept;
}

static bool draw_element(const struct gw_ternary_draw *draw, uint64_t element, float g)
{
    uint32_t counter[4], words[4];
    uint32_t block = (uint32_t)(16 * (element / 128) + element % 32 / 2);
    gw_philox_counter(counter, block, draw->at.step, draw->purpose, draw->at.rank, draw->tensor_id);
    gw_philox(counter, draw->at.seed, words);
    uint32_t drawn = words[element % 128 / 32] >> (16 * (element % 2)) & 0xFFFFu;
    uint64_t t = threshold(draw, g);
    uint32_t upper = t >> 16 > 0xFFFFu ? 0xFFFFu : (uint32_t)(t >> 16);
    return drawn == upper ? draw_tie(draw, element, g, drawn) : drawn < upper;
}

static void draw_ref(const struct gw_ternary_draw *draw, const float *g, uint64_t group, uint64_t n_groups,
                     uint64_t *nonzero, uint64_t *sign)
{
    for (uint64_t w = 0; w < 2 * n_groups; w++) {
        nonzero[w] = sign[w] = 0;
        for (uint64_t i = 0; i < 64; i++) {
            float x = g[64 * w + i];
            bool drawn = draw_element(draw, GW_DRAW_GROUP * group + 64 * w + i, x);
            nonzero[w] |= (uint64_t)drawn << i;
            sign[w] |= (uint64_t)(drawn && gw_float_bits(x) >> 31) << i;
        }
    }
}

static void round_ref(const float *a, uint64_t n_words, float half, uint64_t *nonzero, uint64_t *sign)
{
    for (uint64_t w = 0; w < n_words; w++) {
        nonzero[w] = sign[w] = 0;
        for (uint32_t i = 0; i < 64; i++) {
            nonzero[w] |= (uint64_t)(fabsf(a[64 * w + i]) > half) << i;
            sign[w] |= (uint64_t)(a[64 * w + i] < -half) << i;
        }
    }
}

static uint32_t carry_ref(const float *before, float half, const float *x, uint64_t n, bool stream, float *next)
{
    (void)stream;
    uint32_t largest = 0;
    for (uint64_t i = 0; i < n; i++) {
        next[i] = x[i] + gw_left_of(before[i], half);
        const uint32_t bits = gw_float_bits(next[i]) & 0x7FFFFFFFu;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static void expand_ref(const uint64_t *nonzero, const uint64_t *sign, uint64_t n, float s, bool stream, float *out)
{
    (void)stream;
    for (uint64_t i = 0; i < n; i++)
        out[i] = gw_expand_element(nonzero, sign, i, s);
}

static uint32_t decode_planes_ref(const uint8_t *src, uint32_t n_planes, uint64_t n_groups, uint32_t offset,
                                  const uint64_t *negative, int32_t center, float q, bool stream, float *out)
{
    (void)stream;
    uint32_t largest = 0;
    for (uint64_t w = 0; w < n_groups; w++) {
        for (uint32_t i = 0; i < 64; i++) {
            uint32_t digit = 0;
            for (uint32_t j = 0; j < n_planes; j++)
                digit |= (uint32_t)(gw_get64(src + 8 * (w * n_planes + j)) >> i & 1) << j;
            largest = digit > largest ? digit : largest;
            const int32_t x = (int32_t)digit - (int32_t)offset;
            out[64 * w + i] = (float)(center + (negative && negative[w] >> i & 1 ? -x : x)) * q;
        }
    }
    return largest;
}

#define GW_SUFFIX(name) name##_ref
#define GW_NAME "scalar"
#define GW_TARGET
#define GW_GATHER(nonzero, sign) gw_gather_bits(nonzero, sign)
#define GW_SCATTER(bits, nonzero) gw_scatter_bits(bits, nonzero)
#include "codec/kernels_bits.h"
