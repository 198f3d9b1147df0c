/* The kernels for NEON, which every aarch64 has. 16 Philox blocks take four registers of four lanes. */
#if defined(__aarch64__)
#include "codec/kernels.h"
#include "base/philox.h"
#include "wire/bytes.h"

#include <arm_neon.h>

static inline double fold(const float32x4_t sums[8])
{
    float lanes[GW_STATS_LANES];
    for (int k = 0; k < 8; k++)
        vst1q_f32(lanes + 4 * k, sums[k]);
    return gw_stats_fold(lanes);
}

static struct gw_stats stats_block_neon(const float *g, uint32_t n)
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7FFFFFFFu);
    uint32x4_t most = vdupq_n_u32(0);
    float32x4_t sum[8], sum_abs[8], squares[8];
    for (int k = 0; k < 8; k++)
        sum[k] = sum_abs[k] = squares[k] = vdupq_n_f32(0);
    float last[GW_STATS_LANES];
    for (uint32_t i = 0; i < n; i += GW_STATS_LANES) {
        const float *row = gw_stats_row(g + i, n - i, last);
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            float32x4_t x = vld1q_f32(row + 4 * k);
            uint32x4_t m = vandq_u32(vreinterpretq_u32_f32(x), magnitude);
            most = vmaxq_u32(most, m);
            sum[k] = vaddq_f32(sum[k], x);
            sum_abs[k] = vaddq_f32(sum_abs[k], vreinterpretq_f32_u32(m));
            squares[k] = vaddq_f32(squares[k], vmulq_f32(x, x));
        }
    }
    return (struct gw_stats){vmaxvq_u32(most), fold(sum), fold(sum_abs), fold(squares)};
}

static uint32_t split_neon(const float *g, uint32_t n, uint32_t low, uint32_t high, float scale, struct gw_tail *below,
                           float *kept)
{
    const uint32x4_t magnitude = vdupq_n_u32(0x7FFFFFFFu), low4 = vdupq_n_u32(low), high4 = vdupq_n_u32(high);
    float32x4_t sum[8], squares[8];
    for (int k = 0; k < 8; k++)
        sum[k] = squares[k] = vdupq_n_f32(0);
    uint32x4_t n_below = vdupq_n_u32(0);
    uint32_t missing = 0;
    float last[GW_STATS_LANES], *to = kept;
    for (uint32_t i = 0; i < n; i += GW_STATS_LANES) {
        const float *row = gw_stats_row(g + i, n - i, last);
        if (n - i < GW_STATS_LANES) /* the missing elements are 0; they are below `low`, and do not count */
            missing = GW_STATS_LANES - (n - i);
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            uint32x4_t m = vandq_u32(vreinterpretq_u32_f32(vld1q_f32(row + 4 * k)), magnitude);
            uint32x4_t is_below = vcltq_u32(m, low4), between = vbicq_u32(vcltq_u32(m, high4), is_below);
            float32x4_t x = vmulq_n_f32(vreinterpretq_f32_u32(vandq_u32(m, is_below)), scale);
            sum[k] = vaddq_f32(sum[k], x);
            squares[k] = vaddq_f32(squares[k], vmulq_f32(x, x));
            n_below = vsubq_u32(n_below, is_below);
            if (vmaxvq_u32(between)) {
                uint32_t is_kept[4], bits[4];
                vst1q_u32(is_kept, between);
                vst1q_u32(bits, m);
                for (int j = 0; j < 4; j++)
                    if (is_kept[j])
                        *to++ = gw_bits_float(bits[j]);
            }
        }
    }
    *below = (struct gw_tail){vaddvq_u32(n_below) - missing, fold(sum), fold(squares)};
    return (uint32_t)(to - kept);
}

struct halves {
    uint32x4_t high, low;
};

static inline struct halves multiply(uint32x4_t a, uint32x4_t m)
{
    uint64x2_t first = vmull_u32(vget_low_u32(a), vget_low_u32(m)), second = vmull_high_u32(a, m);
    return (struct halves){vuzp2q_u32(vreinterpretq_u32_u64(first), vreinterpretq_u32_u64(second)), vmulq_u32(a, m)};
}

/* Four Philox blocks. Lane i has block first + i. */
static inline void philox(const struct gw_ternary_draw *draw, uint32_t first, uint32x4_t out[4])
{
    static const uint32_t lane[4] = {0, 1, 2, 3};
    const uint32x4_t m0 = vdupq_n_u32(GW_PHILOX_M0), m1 = vdupq_n_u32(GW_PHILOX_M1);
    uint32_t counter[4], k0 = (uint32_t)draw->at.seed, k1 = (uint32_t)(draw->at.seed >> 32);
    gw_philox_counter(counter, first, draw->at.step, draw->purpose, draw->at.rank, draw->tensor_id);
    uint32x4_t c0 = vaddq_u32(vdupq_n_u32(counter[0]), vld1q_u32(lane)), c1 = vdupq_n_u32(counter[1]);
    uint32x4_t c2 = vdupq_n_u32(counter[2]), c3 = vdupq_n_u32(counter[3]);
#pragma GCC unroll 10
    for (uint32_t r = 0; r < 10; r++) {
        struct halves a = multiply(c0, m0), b = multiply(c2, m1);
        c0 = veorq_u32(veorq_u32(b.high, c1), vdupq_n_u32(k0 + r * GW_PHILOX_W0));
        c1 = b.low;
        c2 = veorq_u32(veorq_u32(a.high, c3), vdupq_n_u32(k1 + r * GW_PHILOX_W1));
        c3 = a.low;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* The conversion truncates. It gives 0xFFFFFFFF for 2^32 and above, as the 512-bit one does. */
static inline uint32x4_t threshold(float32x4_t x, float32x4_t clip, float32x4_t scale)
{
    return vcvtq_u32_f32(vmulq_f32(vminq_f32(vabsq_f32(x), clip), scale));
}

static inline uint64_t mask_of(uint16x8_t lanes)
{
    static const uint16_t weight[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    return vaddvq_u16(vandq_u16(lanes, vld1q_u16(weight)));
}

static void draw_neon(const struct gw_ternary_draw *draw, const float *g, uint64_t group, uint64_t n_groups,
                      uint64_t *nonzero, uint64_t *sign)
{
    const float32x4_t clip = vdupq_n_f32(draw->clip), scale = vdupq_n_f32(draw->to_threshold);
    for (uint64_t i = 0; i < n_groups; i++, g += GW_DRAW_GROUP) {
        uint32x4_t words[4][4]; /* [block / 4][word] */
        for (uint32_t q = 0; q < 4; q++)
            philox(draw, (uint32_t)(16 * (group + i)) + 4 * q, words[q]);
        for (uint32_t half = 0; half < 2; half++) {
            uint64_t nz = 0, sg = 0;
            for (uint32_t octet = 0; octet < 8; octet++) {
                uint32_t e = 64 * half + 8 * octet; /* eight elements from here on */
                uint16x8_t drawn = vreinterpretq_u16_u32(words[octet % 4][e / 32]);
                float32x4_t x0 = vld1q_f32(g + e), x1 = vld1q_f32(g + e + 4);
                uint16x8_t upper =
                    vshrn_high_n_u32(vshrn_n_u32(threshold(x0, clip, scale), 16), threshold(x1, clip, scale), 16);
                uint64_t below = mask_of(vcltq_u16(drawn, upper)), ties = mask_of(vceqq_u16(drawn, upper));
                if (__builtin_expect(ties != 0, 0)) {
                    uint16_t bits[8];
                    vst1q_u16(bits, drawn);
                    below |= gw_draw_ties(draw, GW_DRAW_GROUP * (group + i) + e, g + e, bits, (uint32_t)ties);
                }
                int16x8_t negative = vcombine_s16(vmovn_s32(vshrq_n_s32(vreinterpretq_s32_f32(x0), 31)),
                                                  vmovn_s32(vshrq_n_s32(vreinterpretq_s32_f32(x1), 31)));
                nz |= below << 8 * octet;
                sg |= mask_of(vreinterpretq_u16_s16(negative)) << 8 * octet;
            }
            nonzero[2 * i + half] = nz;
            sign[2 * i + half] = sg & nz;
        }
    }
}

static void round_neon(const float *a, uint64_t n_words, float half, uint64_t *nonzero, uint64_t *sign)
{
    const float32x4_t above = vdupq_n_f32(half), below = vdupq_n_f32(-half);
    for (uint64_t w = 0; w < n_words; w++, a += 64) {
        uint64_t positive = 0, negative = 0;
        for (uint32_t octet = 0; octet < 8; octet++) {
            const float32x4_t x0 = vld1q_f32(a + 8 * octet), x1 = vld1q_f32(a + 8 * octet + 4);
            positive |= mask_of(vcombine_u16(vmovn_u32(vcgtq_f32(x0, above)), vmovn_u32(vcgtq_f32(x1, above))))
                        << 8 * octet;
            negative |= mask_of(vcombine_u16(vmovn_u32(vcltq_f32(x0, below)), vmovn_u32(vcltq_f32(x1, below))))
                        << 8 * octet;
        }
        nonzero[w] = positive | negative;
        sign[w] = negative;
    }
}

static uint32_t carry_neon(const float *before, float half, const float *x, uint64_t n, bool stream, float *next)
{
    const float32x4_t bound = vdupq_n_f32(half), level = vdupq_n_f32(2 * half);
    const uint32x4_t minus = vdupq_n_u32(0x80000000u);
    uint32x4_t most = vdupq_n_u32(0);
    uint64_t i = 0;
    (void)stream;
    for (; n - i >= 4; i += 4) {
        const float32x4_t b = vld1q_f32(before + i);
        const float32x4_t a =
            vaddq_f32(vld1q_f32(x + i), vbslq_f32(vcagtq_f32(b, bound), vsubq_f32(b, vbslq_f32(minus, b, level)), b));
        most = vmaxq_u32(most, vbicq_u32(vreinterpretq_u32_f32(a), minus));
        vst1q_f32(next + i, a);
    }
    const uint32_t largest = gw_kernels_ref.carry(before + i, half, x + i, n - i, false, next + i),
                   here = vmaxvq_u32(most);
    return here > largest ? here : largest;
}

/* Sets all bits of lane i if bit i of `bits` is set. */
static inline uint32x4_t lanes_of(uint64_t bits)
{
    static const uint32_t each[4] = {1, 2, 4, 8};
    return vtstq_u32(vdupq_n_u32((uint32_t)bits), vld1q_u32(each));
}

static void expand_neon(const uint64_t *nonzero, const uint64_t *sign, uint64_t n, float s, bool stream, float *out)
{
    (void)stream;
    const uint32x4_t plus = vreinterpretq_u32_f32(vdupq_n_f32(s)), minus_bit = vdupq_n_u32(0x80000000u);
    uint64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint32x4_t on = lanes_of(nonzero[i / 64] >> (i % 64)), negative = lanes_of(sign[i / 64] >> (i % 64));
        vst1q_f32(out + i, vreinterpretq_f32_u32(vandq_u32(on, veorq_u32(plus, vandq_u32(negative, minus_bit)))));
    }
    for (; i < n; i++)
        out[i] = gw_expand_element(nonzero, sign, i, s);
}

static uint32_t decode_planes_neon(const uint8_t *src, uint32_t n_planes, uint64_t n_groups, uint32_t offset,
                                   const uint64_t *negative, int32_t center, float q, bool stream, float *out)
{
    (void)stream;
    uint32x4_t largest = vdupq_n_u32(0);
    for (uint64_t w = 0; w < n_groups; w++, src += 8 * n_planes) {
        for (uint32_t t = 0; t < 16; t++) {
            uint32x4_t digit = vdupq_n_u32(0);
            for (uint32_t j = 0; j < n_planes; j++)
                digit =
                    vorrq_u32(digit, vandq_u32(lanes_of(src[8 * j + t / 2] >> (4 * (t % 2))), vdupq_n_u32(1u << j)));
            largest = vmaxq_u32(largest, digit);
            int32x4_t sum = vsubq_s32(vreinterpretq_s32_u32(digit), vdupq_n_s32((int32_t)offset));
            const int32x4_t turn =
                vreinterpretq_s32_u32(lanes_of(negative ? (uint32_t)(negative[w] >> 4 * t) & 15 : 0));
            sum = vaddq_s32(vsubq_s32(veorq_s32(sum, turn), turn), vdupq_n_s32(center));
            vst1q_f32(out + 64 * w + 4 * t, vmulq_f32(vcvtq_f32_s32(sum), vdupq_n_f32(q)));
        }
    }
    return vmaxvq_u32(largest);
}

#define GW_SUFFIX(name) name##_neon
#define GW_NAME "neon"
#define GW_TARGET
#define GW_GATHER(nonzero, sign) gw_gather_bits(nonzero, sign)
#define GW_SCATTER(bits, nonzero) gw_scatter_bits(bits, nonzero)
#include "codec/kernels_bits.h"
#endif
