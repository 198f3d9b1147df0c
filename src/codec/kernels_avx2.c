/* The kernels for AVX2 with BMI2 (Haswell, Zen 3 and later; on Zen 1 and 2 pext and pdep are slow but right). 16
 * Philox blocks take two registers of eight lanes. */
#if defined(__x86_64__)
#include "codec/kernels.h"
#include "base/philox.h"
#include "wire/bytes.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,bmi,bmi2,popcnt")))

TARGET static inline double fold(const __m256 lanes[4])
{
    __m256d wide[8]; /* lanes 4i .. 4i+3 */
    for (int i = 0; i < 4; i++) {
        wide[2 * i] = _mm256_cvtps_pd(_mm256_castps256_ps128(lanes[i]));
        wide[2 * i + 1] = _mm256_cvtps_pd(_mm256_extractf128_ps(lanes[i], 1));
    }
    for (int half = 4; half; half /= 2)
        for (int i = 0; i < half; i++)
            wide[i] = _mm256_add_pd(wide[i], wide[i + half]);
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(wide[0]), _mm256_extractf128_pd(wide[0], 1));
    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}

TARGET static inline uint32_t largest_lane(__m256i x)
{
    uint32_t lanes[8], largest = 0;
    _mm256_storeu_si256((__m256i *)lanes, x);
    for (int i = 0; i < 8; i++)
        largest = lanes[i] > largest ? lanes[i] : largest;
    return largest;
}

TARGET static struct gw_stats stats_block_avx2(const float *g, uint32_t n)
{
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    __m256i most = _mm256_setzero_si256();
    __m256 sum[4], sum_abs[4], squares[4];
    for (int k = 0; k < 4; k++)
        sum[k] = sum_abs[k] = squares[k] = _mm256_setzero_ps();
    float last[GW_STATS_LANES];
    for (uint32_t i = 0; i < n; i += GW_STATS_LANES) {
        const float *row = gw_stats_row(g + i, n - i, last);
        _mm_prefetch((const char *)(g + i) + 4096, _MM_HINT_T0);
        _mm_prefetch((const char *)(g + i) + 4160, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            __m256 x = _mm256_loadu_ps(row + 8 * k);
            __m256i m = _mm256_and_si256(_mm256_castps_si256(x), magnitude);
            most = _mm256_max_epu32(most, m);
            sum[k] = _mm256_add_ps(sum[k], x);
            sum_abs[k] = _mm256_add_ps(sum_abs[k], _mm256_castsi256_ps(m));
            squares[k] = _mm256_add_ps(squares[k], _mm256_mul_ps(x, x));
        }
    }
    return (struct gw_stats){largest_lane(most), fold(sum), fold(sum_abs), fold(squares)};
}

TARGET static uint32_t split_avx2(const float *g, uint32_t n, uint32_t low, uint32_t high, float scale,
                                  struct gw_tail *below, float *kept)
{
    /* The top bit of magnitudes is 0, so signed comparisons are right. */
    const __m256i magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    const __m256i low8 = _mm256_set1_epi32((int)low), high8 = _mm256_set1_epi32((int)high);
    const __m256 scale8 = _mm256_set1_ps(scale);
    __m256 sum[4], squares[4];
    for (int k = 0; k < 4; k++)
        sum[k] = squares[k] = _mm256_setzero_ps();
    float last[GW_STATS_LANES], *to = kept;
    uint32_t n_below = 0;
    for (uint32_t i = 0; i < n; i += GW_STATS_LANES) {
        const float *row = gw_stats_row(g + i, n - i, last);
        if (n - i < GW_STATS_LANES) /* the missing elements are 0; they are below `low`, and do not count */
            n_below -= GW_STATS_LANES - (n - i);
        _mm_prefetch((const char *)(g + i) + 4096, _MM_HINT_T0);
        _mm_prefetch((const char *)(g + i) + 4160, _MM_HINT_T0);
        uint32_t n_bits = 0, between = 0;
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            __m256i m = _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(row + 8 * k)), magnitude);
            __m256i is_below = _mm256_cmpgt_epi32(low8, m), is_lower = _mm256_cmpgt_epi32(high8, m);
            __m256 x = _mm256_mul_ps(_mm256_castsi256_ps(_mm256_and_si256(m, is_below)), scale8);
            sum[k] = _mm256_add_ps(sum[k], x);
            squares[k] = _mm256_add_ps(squares[k], _mm256_mul_ps(x, x));
            n_bits |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_below)) << 8 * k;
            between |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(is_lower)) << 8 * k;
        }
        n_below += (uint32_t)_mm_popcnt_u32(n_bits);
        for (between &= ~n_bits; between; between &= between - 1)
            *to++ = gw_bits_float(gw_float_bits(row[_tzcnt_u32(between)]) & 0x7FFFFFFFu);
    }
    *below = (struct gw_tail){n_below, fold(sum), fold(squares)};
    return (uint32_t)(to - kept);
}

struct halves {
    __m256i high, low;
};

TARGET static inline struct halves multiply(__m256i a, __m256i m)
{
    __m256i even = _mm256_mul_epu32(a, m);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
    return (struct halves){_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA),
                           _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA)};
}

/* Eight Philox blocks. Lane i has block first + i. */
TARGET static inline void philox(const struct gw_ternary_draw *draw, uint32_t first, __m256i out[4])
{
    const __m256i m0 = _mm256_set1_epi32((int)GW_PHILOX_M0), m1 = _mm256_set1_epi32((int)GW_PHILOX_M1);
    uint32_t counter[4], k0 = (uint32_t)draw->at.seed, k1 = (uint32_t)(draw->at.seed >> 32);
    gw_philox_counter(counter, first, draw->at.step, draw->purpose, draw->at.rank, draw->tensor_id);
    __m256i c0 = _mm256_add_epi32(_mm256_set1_epi32((int)counter[0]), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i c1 = _mm256_set1_epi32((int)counter[1]), c2 = _mm256_set1_epi32((int)counter[2]);
    __m256i c3 = _mm256_set1_epi32((int)counter[3]);
#pragma GCC unroll 10
    for (int r = 0; r < 10; r++) {
        struct halves a = multiply(c0, m0), b = multiply(c2, m1);
        c0 = _mm256_xor_si256(_mm256_xor_si256(b.high, c1), _mm256_set1_epi32((int)(k0 + (uint32_t)r * GW_PHILOX_W0)));
        c1 = b.low;
        c2 = _mm256_xor_si256(_mm256_xor_si256(a.high, c3), _mm256_set1_epi32((int)(k1 + (uint32_t)r * GW_PHILOX_W1)));
        c3 = a.low;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Upper 16 bits of eight thresholds, in 32-bit lanes. AVX2 converts only to signed integers. So 2^31 is taken off
 * before and put back after, both exactly. 2^32 and above become 0xFFFFFFFF, as in the 512-bit conversion. */
TARGET static inline __m256i upper_threshold(__m256 x, __m256 clip, __m256 scale)
{
    const __m256 half = _mm256_set1_ps(0x1p31f);
    __m256 t = _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF)));
    t = _mm256_mul_ps(_mm256_min_ps(t, clip), scale);
    __m256 big = _mm256_cmp_ps(t, half, _CMP_GE_OQ);
    __m256i whole = _mm256_cvttps_epi32(_mm256_sub_ps(t, _mm256_and_ps(big, half)));
    whole = _mm256_xor_si256(whole, _mm256_and_si256(_mm256_castps_si256(big), _mm256_set1_epi32((int)0x80000000u)));
    whole = _mm256_or_si256(whole, _mm256_castps_si256(_mm256_cmp_ps(t, _mm256_set1_ps(0x1p32f), _CMP_GE_OQ)));
    return _mm256_srli_epi32(whole, 16);
}

TARGET static void round_avx2(const float *a, uint64_t n_words, float half, uint64_t *nonzero, uint64_t *sign)
{
    const __m256 above = _mm256_set1_ps(half), below = _mm256_set1_ps(-half);
    for (uint64_t w = 0; w < n_words; w++, a += 64) {
        uint64_t positive = 0, negative = 0;
#pragma GCC unroll 8
        for (uint32_t q = 0; q < 8; q++) {
            const __m256 x = _mm256_loadu_ps(a + 8 * q);
            positive |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x, above, _CMP_GT_OQ)) << 8 * q;
            negative |= (uint64_t)(uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(x, below, _CMP_LT_OQ)) << 8 * q;
        }
        _mm_prefetch((const char *)a + 4096, _MM_HINT_T0);
        _mm_prefetch((const char *)a + 4160, _MM_HINT_T0);
        _mm_prefetch((const char *)a + 4224, _MM_HINT_T0);
        _mm_prefetch((const char *)a + 4288, _MM_HINT_T0);
        nonzero[w] = positive | negative;
        sign[w] = negative;
    }
}

TARGET static uint32_t carry_avx2(const float *before, float half, const float *x, uint64_t n, bool stream, float *next)
{
    const __m256 bound = _mm256_set1_ps(half), level = _mm256_set1_ps(2 * half), minus = _mm256_set1_ps(-0.0f);
    const bool around = stream && (uintptr_t)next % 32 == 0;
    __m256i most = _mm256_setzero_si256();
    uint64_t i = 0;
    for (; n - i >= 8; i += 8) {
        const __m256 b = _mm256_loadu_ps(before + i), g = _mm256_loadu_ps(x + i);
        const __m256 sent = _mm256_cmp_ps(_mm256_andnot_ps(minus, b), bound, _CMP_GT_OQ);
        const __m256 value = _mm256_or_ps(level, _mm256_and_ps(minus, b)); /* the level with the sign of b */
        const __m256 a = _mm256_add_ps(g, _mm256_blendv_ps(b, _mm256_sub_ps(b, value), sent));
        most = _mm256_max_epu32(most, _mm256_castps_si256(_mm256_andnot_ps(minus, a)));
        _mm_prefetch((const char *)(before + i) + 2048, _MM_HINT_T0);
        _mm_prefetch((const char *)(x + i) + 2048, _MM_HINT_T0);
        if (around)
            _mm256_stream_ps(next + i, a);
        else
            _mm256_storeu_ps(next + i, a);
    }
    if (around)
        _mm_sfence();
    const uint32_t largest = gw_kernels_ref.carry(before + i, half, x + i, n - i, false, next + i),
                   here = largest_lane(most);
    return here > largest ? here : largest;
}

TARGET static void draw_avx2(const struct gw_ternary_draw *draw, const float *g, uint64_t group, uint64_t n_groups,
                             uint64_t *nonzero, uint64_t *sign)
{
    const __m256 clip = _mm256_set1_ps(draw->clip), scale = _mm256_set1_ps(draw->to_threshold);
    for (uint64_t i = 0; i < n_groups; i++, g += GW_DRAW_GROUP) {
        __m256i words[2][4];
        philox(draw, (uint32_t)(16 * (group + i)), words[0]);
        philox(draw, (uint32_t)(16 * (group + i) + 8), words[1]);
        uint32_t nz[4], sg[4];
#pragma GCC unroll 4
        for (uint32_t w = 0; w < 4; w++) {
            __m256i below[2], equal[2];
            sg[w] = 0;
            for (int h = 0; h < 2; h++) { /* 16 elements each */
                const float *at = g + 32 * w + 16 * h;
                __m256 x0 = _mm256_loadu_ps(at), x1 = _mm256_loadu_ps(at + 8);
                _mm_prefetch((const char *)at + 2048, _MM_HINT_T0);
                __m256i upper = _mm256_packus_epi32(upper_threshold(x0, clip, scale), upper_threshold(x1, clip, scale));
                upper = _mm256_permute4x64_epi64(upper, 0xD8);
                __m256i short_by = _mm256_subs_epu16(upper, words[h][w]); /* 0 if drawn >= upper */
                below[h] = _mm256_cmpeq_epi16(short_by, _mm256_setzero_si256());
                equal[h] = _mm256_cmpeq_epi16(upper, words[h][w]);
                sg[w] |= ((uint32_t)_mm256_movemask_ps(x0) | (uint32_t)_mm256_movemask_ps(x1) << 8) << (16 * h);
            }
            __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(below[0], below[1]), 0xD8);
            nz[w] = ~(uint32_t)_mm256_movemask_epi8(bytes);
            bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(equal[0], equal[1]), 0xD8);
            uint32_t ties = (uint32_t)_mm256_movemask_epi8(bytes);
            if (__builtin_expect(ties != 0, 0)) {
                uint16_t drawn[32];
                _mm256_storeu_si256((__m256i *)drawn, words[0][w]);
                _mm256_storeu_si256((__m256i *)(drawn + 16), words[1][w]);
                nz[w] |= gw_draw_ties(draw, GW_DRAW_GROUP * (group + i) + 32 * w, g + 32 * w, drawn, ties);
            }
        }
        nonzero[2 * i] = (uint64_t)nz[1] << 32 | nz[0];
        nonzero[2 * i + 1] = (uint64_t)nz[3] << 32 | nz[2];
        sign[2 * i] = nonzero[2 * i] & ((uint64_t)sg[1] << 32 | sg[0]);
        sign[2 * i + 1] = nonzero[2 * i + 1] & ((uint64_t)sg[3] << 32 | sg[2]);
    }
}

/* Sets all bits of lane i if bit i of `bits` is set. */
TARGET static inline __m256i lanes_of(uint32_t bits)
{
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)bits), each), each);
}

TARGET static void expand_avx2(const uint64_t *nonzero, const uint64_t *sign, uint64_t n, float s, bool stream,
                               float *out)
{
    const __m256i plus = _mm256_castps_si256(_mm256_set1_ps(s)), minus_bit = _mm256_set1_epi32((int)0x80000000u);
    stream = stream && ((uintptr_t)out & 31) == 0;
    uint64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint32_t on = (uint32_t)(nonzero[i / 64] >> (i % 64)) & 255,
                 negative = (uint32_t)(sign[i / 64] >> (i % 64)) & 255;
        __m256i x =
            _mm256_and_si256(lanes_of(on), _mm256_xor_si256(plus, _mm256_and_si256(lanes_of(negative), minus_bit)));
        if (stream)
            _mm256_stream_ps(out + i, _mm256_castsi256_ps(x));
        else
            _mm256_storeu_ps(out + i, _mm256_castsi256_ps(x));
    }
    for (; i < n; i++)
        out[i] = gw_expand_element(nonzero, sign, i, s);
    if (stream)
        _mm_sfence();
}

/* Makes a byte of each of 32 bits. All bits of the byte are ones if the bit is set. */
TARGET static inline __m256i bytes_of_bits(uint32_t bits)
{
    const __m256i eighth = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3,
                                            3, 3, 3, 3, 3, 3, 3);
    const __m256i each = _mm256_set1_epi64x((long long)0x8040201008040201ull);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32((int)bits), eighth);
    return _mm256_cmpeq_epi8(_mm256_and_si256(spread, each), each);
}

/* Makes bytes of 32 elements: the first n_planes bits of each, eight at most. */
TARGET static inline __m256i digit_bytes(const uint8_t *src, uint32_t n_planes)
{
    __m256i digits = _mm256_setzero_si256();
    for (uint32_t j = 0; j < n_planes; j++)
        digits = _mm256_or_si256(digits, _mm256_and_si256(bytes_of_bits((uint32_t)gw_get32(src + 8 * j)),
                                                          _mm256_set1_epi8((char)(1 << j))));
    return digits;
}

TARGET static uint32_t decode_planes_avx2(const uint8_t *src, uint32_t n_planes, uint64_t n_groups, uint32_t offset,
                                          const uint64_t *negative, int32_t center, float q, bool stream, float *out)
{
    const __m256 scale = _mm256_set1_ps(q);
    const __m256i zero_digit = _mm256_set1_epi32((int)offset), middle = _mm256_set1_epi32(center);
    const uint32_t n_low = n_planes < 8 ? n_planes : 8;
    __m256i largest = _mm256_setzero_si256();
    stream = stream && ((uintptr_t)out & 31) == 0;
    for (uint64_t w = 0; w < n_groups; w++, src += 8 * n_planes)
        for (uint32_t half = 0; half < 2; half++) {
            uint8_t low[32], high[32], minus[32];
            _mm256_storeu_si256((__m256i *)low, digit_bytes(src + 4 * half, n_low));
            if (n_planes > 8)
                _mm256_storeu_si256((__m256i *)high, digit_bytes(src + 4 * half + 64, n_planes - 8));
            if (negative)
                _mm256_storeu_si256((__m256i *)minus, bytes_of_bits((uint32_t)(negative[w] >> (32 * half))));
#pragma GCC unroll 4
            for (uint32_t t = 0; t < 4; t++) {
                __m256i digit = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(low + 8 * t)));
                if (n_planes > 8)
                    digit = _mm256_or_si256(digit, _mm256_slli_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64(
                                                                         (const __m128i *)(high + 8 * t))),
                                                                     8));
                largest = _mm256_max_epu32(largest, digit);
                __m256i sum = _mm256_sub_epi32(digit, zero_digit);
                if (negative) {
                    const __m256i turn = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(minus + 8 * t)));
                    sum = _mm256_sub_epi32(_mm256_xor_si256(sum, turn), turn);
                }
                const __m256 x = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_add_epi32(sum, middle)), scale);
                if (stream)
                    _mm256_stream_ps(out + 64 * w + 32 * half + 8 * t, x);
                else
                    _mm256_storeu_ps(out + 64 * w + 32 * half + 8 * t, x);
            }
        }
    if (stream)
        _mm_sfence();
    return largest_lane(largest);
}

#define GW_SUFFIX(name) name##_avx2
#define GW_NAME "avx2"
#define GW_TARGET TARGET
#define GW_GATHER(nonzero, sign) _pext_u64(sign, nonzero)
#define GW_SCATTER(bits, nonzero) _pdep_u64(bits, nonzero)
#include "codec/kernels_bits.h"
#endif
