/* The kernels for AVX-512 (F, BW, DQ, VL and BMI2: Skylake-SP, Zen 4 and later). The draw is 16 Philox blocks in the
 * 16 lanes of a register. Each of the four output words then holds the 16-bit numbers of 32 elements in their order,
 * without a shuffle. */
#if defined(__x86_64__)
#include "codec/kernels.h"
#include "base/philox.h"
#include "wire/bytes.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,popcnt")))

/* Adds up lanes 0..15 and 16..31 in float64, by halving. */
TARGET static inline double fold(__m512 low, __m512 high)
{
    __m512d a =
        _mm512_add_pd(_mm512_cvtps_pd(_mm512_castps512_ps256(low)), _mm512_cvtps_pd(_mm512_castps512_ps256(high)));
    __m512d b = _mm512_add_pd(_mm512_cvtps_pd(_mm512_extractf32x8_ps(low, 1)),
                              _mm512_cvtps_pd(_mm512_extractf32x8_ps(high, 1)));
    a = _mm512_add_pd(a, b);
    __m256d c = _mm256_add_pd(_mm512_castpd512_pd256(a), _mm512_extractf64x4_pd(a, 1));
    __m128d d = _mm_add_pd(_mm256_castpd256_pd128(c), _mm256_extractf128_pd(c, 1));
    return _mm_cvtsd_f64(_mm_add_sd(d, _mm_unpackhi_pd(d, d)));
}

TARGET static struct gw_stats stats_block_avx512(const float *g, uint32_t n)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    __m512i max0 = _mm512_setzero_si512(), max1 = max0;
    __m512 sum0 = _mm512_setzero_ps(), sum1 = sum0, abs0 = sum0, abs1 = sum0, sq0 = sum0, sq1 = sum0;
    for (uint32_t i = 0; i < n; i += 32) {
        __m512 x0, x1;
        if (n - i >= 32) {
            x0 = _mm512_loadu_ps(g + i);
            x1 = _mm512_loadu_ps(g + i + 16);
        } else {
            uint32_t mask = (1u << (n - i)) - 1;
            x0 = _mm512_maskz_loadu_ps((__mmask16)mask, g + i);
            x1 = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), g + i + 16);
        }
        /* 4 KiB ahead: the hardware's own prefetch stops at page ends. */
        _mm_prefetch((const char *)(g + i) + 4096, _MM_HINT_T0);
        _mm_prefetch((const char *)(g + i) + 4160, _MM_HINT_T0);
        __m512i m0 = _mm512_and_si512(_mm512_castps_si512(x0), magnitude);
        __m512i m1 = _mm512_and_si512(_mm512_castps_si512(x1), magnitude);
        max0 = _mm512_max_epu32(max0, m0);
        max1 = _mm512_max_epu32(max1, m1);
        sum0 = _mm512_add_ps(sum0, x0);
        sum1 = _mm512_add_ps(sum1, x1);
        abs0 = _mm512_add_ps(abs0, _mm512_castsi512_ps(m0));
        abs1 = _mm512_add_ps(abs1, _mm512_castsi512_ps(m1));
        sq0 = _mm512_add_ps(sq0, _mm512_mul_ps(x0, x0));
        sq1 = _mm512_add_ps(sq1, _mm512_mul_ps(x1, x1));
    }
    return (struct gw_stats){_mm512_reduce_max_epu32(_mm512_max_epu32(max0, max1)), fold(sum0, sum1), fold(abs0, abs1),
                             fold(sq0, sq1)};
}

TARGET static void round_avx512(const float *a, uint64_t n_words, float half, uint64_t *nonzero, uint64_t *sign)
{
    const __m512 above = _mm512_set1_ps(half), below = _mm512_set1_ps(-half);
    for (uint64_t w = 0; w < n_words; w++, a += 64) {
        uint64_t positive = 0, negative = 0;
#pragma GCC unroll 4
        for (uint32_t q = 0; q < 4; q++) {
            const __m512 x = _mm512_loadu_ps(a + 16 * q);
            positive |= (uint64_t)_mm512_cmp_ps_mask(x, above, _CMP_GT_OQ) << 16 * q;
            negative |= (uint64_t)_mm512_cmp_ps_mask(x, below, _CMP_LT_OQ) << 16 * q;
            _mm_prefetch((const char *)(a + 16 * q) + 4096, _MM_HINT_T0);
        }
        nonzero[w] = positive | negative;
        sign[w] = negative;
    }
}

TARGET static uint32_t carry_avx512(const float *before, float half, const float *x, uint64_t n, bool stream,
                                    float *next)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    const __m512 bound = _mm512_set1_ps(half), level = _mm512_set1_ps(2 * half);
    const bool around = stream && (uintptr_t)next % 64 == 0;
    __m512i largest = _mm512_setzero_si512();
    for (uint64_t i = 0; i < n; i += 16) {
        const __mmask16 here = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xFFFF;
        const __m512 b = _mm512_maskz_loadu_ps(here, before + i), g = _mm512_maskz_loadu_ps(here, x + i);
        const __mmask16 sent = _mm512_cmp_ps_mask(_mm512_abs_ps(b), bound, _CMP_GT_OQ);
        const __m512 value = _mm512_castsi512_ps(/* the level with the sign of b */
                                                 _mm512_ternarylogic_epi32(magnitude, _mm512_castps_si512(level),
                                                                           _mm512_castps_si512(b), 0xCA));
        const __m512 a = _mm512_add_ps(g, _mm512_mask_sub_ps(b, sent, b, value));
        largest = _mm512_max_epu32(largest, _mm512_maskz_and_epi32(here, _mm512_castps_si512(a), magnitude));
        _mm_prefetch((const char *)(before + i) + 2048, _MM_HINT_T0);
        _mm_prefetch((const char *)(x + i) + 2048, _MM_HINT_T0);
        if (around && here == 0xFFFF)
            _mm512_stream_ps(next + i, a);
        else
            _mm512_mask_storeu_ps(next + i, here, a);
    }
    if (around)
        _mm_sfence();
    return _mm512_reduce_max_epu32(largest);
}

TARGET static uint32_t split_avx512(const float *g, uint32_t n, uint32_t low, uint32_t high, float scale,
                                    struct gw_tail *below, float *kept)
{
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    const __m512i low16 = _mm512_set1_epi32((int)low), high16 = _mm512_set1_epi32((int)high);
    const __m512 scale16 = _mm512_set1_ps(scale);
    __m512 sum[2], squares[2];
    sum[0] = sum[1] = squares[0] = squares[1] = _mm512_setzero_ps();
    float *to = kept;
    uint32_t n_below = 0;
    for (uint32_t i = 0; i < n; i += 32) {
        uint32_t inside = n - i >= 32 ? 0xFFFFFFFFu : (1u << (n - i)) - 1, is_below = 0;
        _mm_prefetch((const char *)(g + i) + 4096, _MM_HINT_T0);
        _mm_prefetch((const char *)(g + i) + 4160, _MM_HINT_T0);
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++) {
            __m512i m =
                _mm512_and_si512(_mm512_maskz_loadu_epi32((__mmask16)(inside >> 16 * k), g + i + 16 * k), magnitude);
            __mmask16 under = _mm512_cmplt_epu32_mask(m, low16);
            __m512 x = _mm512_maskz_mul_ps(under, _mm512_castsi512_ps(m), scale16);
            sum[k] = _mm512_add_ps(sum[k], x);
            squares[k] = _mm512_add_ps(squares[k], _mm512_mul_ps(x, x));
            is_below |= (uint32_t)under << 16 * k;
            if (low != high) {
                __mmask16 between = _mm512_mask_cmplt_epu32_mask(_knot_mask16(under), m, high16);
                /* Through a register, because stores of some lanes take a hundred cycles on Zen 4. */
                _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(between, m));
                to += _mm_popcnt_u32(between);
            }
        }
        n_below += (uint32_t)_mm_popcnt_u32(is_below & inside);
    }
    *below = (struct gw_tail){n_below, fold(sum[0], sum[1]), fold(squares[0], squares[1])};
    return (uint32_t)(to - kept);
}

struct halves {
    __m512i high, low;
};

/* 16 products of 32 x 32 bits. */
TARGET static inline struct halves multiply(__m512i a, __m512i m)
{
    __m512i even = _mm512_mul_epu32(a, m);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), m);
    return (struct halves){_mm512_mask_shuffle_epi32(odd, 0x5555, even, 0xF5),
                           _mm512_mask_shuffle_epi32(even, 0xAAAA, odd, 0xA0)};
}

#define XOR3(a, b, c) _mm512_ternarylogic_epi32(a, b, c, 0x96)

TARGET static void draw_avx512(const struct gw_ternary_draw *draw, const float *g, uint64_t group, uint64_t n_groups,
                               uint64_t *nonzero, uint64_t *sign)
{
    const __m512i m0 = _mm512_set1_epi32((int)GW_PHILOX_M0), m1 = _mm512_set1_epi32((int)GW_PHILOX_M1);
    __m512i key0[10], key1[10];
    uint32_t k0 = (uint32_t)draw->at.seed, k1 = (uint32_t)(draw->at.seed >> 32);
    for (int r = 0; r < 10; r++) {
        key0[r] = _mm512_set1_epi32((int)(k0 + (uint32_t)r * GW_PHILOX_W0));
        key1[r] = _mm512_set1_epi32((int)(k1 + (uint32_t)r * GW_PHILOX_W1));
    }
    /* Only the first word of the counter differs between lanes. So half of rounds 1 and 2 is the same for the whole
     * tensor. */
    uint32_t counter[4];
    gw_philox_counter(counter, 0, draw->at.step, draw->purpose, draw->at.rank, draw->tensor_id);
    uint64_t p1 = (uint64_t)GW_PHILOX_M1 * counter[2];
    uint32_t c0_1 = (uint32_t)(p1 >> 32) ^ counter[1] ^ k0, c1_1 = (uint32_t)p1;
    uint64_t p2 = (uint64_t)GW_PHILOX_M0 * c0_1;
    const __m512i round1_c2 = _mm512_set1_epi32((int)(counter[3] ^ k1));
    const __m512i round2_c0 = _mm512_set1_epi32((int)(c1_1 ^ (k0 + GW_PHILOX_W0)));
    const __m512i round2_c2 = _mm512_set1_epi32((int)((uint32_t)(p2 >> 32) ^ (k1 + GW_PHILOX_W1)));
    const __m512i round2_c3 = _mm512_set1_epi32((int)(uint32_t)p2);

    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 clip = _mm512_set1_ps(draw->clip), scale = _mm512_set1_ps(draw->to_threshold);
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    uint16_t odd_halves[32];
    for (int i = 0; i < 32; i++)
        odd_halves[i] = (uint16_t)(2 * i + 1);
    const __m512i upper_halves = _mm512_loadu_si512(odd_halves);

    for (uint64_t i = 0; i < n_groups; i++, g += GW_DRAW_GROUP) {
        __m512i c0 = _mm512_add_epi32(lane, _mm512_set1_epi32((int)(uint32_t)(16 * (group + i))));
        struct halves h = multiply(c0, m0); /* round 1 */
        __m512i c2 = _mm512_xor_si512(h.high, round1_c2), c3 = h.low;
        h = multiply(c2, m1); /* round 2 */
        c0 = _mm512_xor_si512(h.high, round2_c0);
        __m512i c1 = h.low;
        c2 = _mm512_xor_si512(c3, round2_c2);
        c3 = round2_c3;
#pragma GCC unroll 8
        for (int r = 2; r < 10; r++) {
            struct halves a = multiply(c0, m0), b = multiply(c2, m1);
            c0 = XOR3(b.high, c1, key0[r]);
            c1 = b.low;
            c2 = XOR3(a.high, c3, key1[r]);
            c3 = a.low;
        }
        __m512i words[4] = {c0, c1, c2, c3};
        uint32_t nz[4], sg[4], ties[4];
#pragma GCC unroll 4
        for (int w = 0; w < 4; w++) {
            __m512i x0 = _mm512_loadu_si512(g + 32 * w), x1 = _mm512_loadu_si512(g + 32 * w + 16);
            _mm_prefetch((const char *)(g + 32 * w) + 2048, _MM_HINT_T0);
            _mm_prefetch((const char *)(g + 32 * w) + 2112, _MM_HINT_T0);
            __m512 a0 = _mm512_castsi512_ps(_mm512_and_si512(x0, magnitude));
            __m512 a1 = _mm512_castsi512_ps(_mm512_and_si512(x1, magnitude));
            /* Conversion to unsigned gives 0xFFFFFFFF for 2^32 and above. Such an element is drawn or ties. A tie with
             * a threshold of 2^32 is drawn, too. */
            __m512i t0 = _mm512_cvttps_epu32(_mm512_mul_ps(_mm512_min_ps(a0, clip), scale));
            __m512i t1 = _mm512_cvttps_epu32(_mm512_mul_ps(_mm512_min_ps(a1, clip), scale));
            __m512i upper = _mm512_permutex2var_epi16(t0, upper_halves, t1);
            nz[w] = _mm512_cmplt_epu16_mask(words[w], upper);
            ties[w] = _mm512_cmpeq_epu16_mask(words[w], upper);
            sg[w] = (uint32_t)_mm512_movepi32_mask(x0) | (uint32_t)_mm512_movepi32_mask(x1) << 16;
        }
        if (__builtin_expect((ties[0] | ties[1] | ties[2] | ties[3]) != 0, 0)) {
            uint16_t drawn[32];
            for (uint32_t w = 0; w < 4; w++) {
                _mm512_storeu_si512(drawn, words[w]);
                nz[w] |= gw_draw_ties(draw, GW_DRAW_GROUP * (group + i) + 32 * w, g + 32 * w, drawn, ties[w]);
            }
        }
        nonzero[2 * i] = (uint64_t)nz[1] << 32 | nz[0];
        nonzero[2 * i + 1] = (uint64_t)nz[3] << 32 | nz[2];
        sign[2 * i] = nonzero[2 * i] & ((uint64_t)sg[1] << 32 | sg[0]);
        sign[2 * i + 1] = nonzero[2 * i + 1] & ((uint64_t)sg[3] << 32 | sg[2]);
    }
}

TARGET static void expand_avx512(const uint64_t *nonzero, const uint64_t *sign, uint64_t n, float s, bool stream,
                                 float *out)
{
    const __m512 plus = _mm512_set1_ps(s);
    const __m512 minus = _mm512_set1_ps(-s);
    stream = stream && ((uintptr_t)out & 63) == 0;
    uint64_t i = 0;
    for (; i + 64 <= n; i += 64) {
        uint64_t on = nonzero[i / 64], negative = sign[i / 64];
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512 x = _mm512_maskz_mov_ps((__mmask16)(on >> 16 * t), plus);
            x = _mm512_mask_mov_ps(x, (__mmask16)(negative >> 16 * t), minus);
            if (stream)
                _mm512_stream_ps(out + i + 16 * t, x);
            else
                _mm512_storeu_ps(out + i + 16 * t, x);
        }
    }
    for (; i < n; i++)
        out[i] = gw_expand_element(nonzero, sign, i, s);
    if (stream)
        _mm_sfence();
}

TARGET static uint32_t decode_planes_avx512(const uint8_t *src, uint32_t n_planes, uint64_t n_groups, uint32_t offset,
                                            const uint64_t *negative, int32_t center, float q, bool stream, float *out)
{
    const __m512 scale = _mm512_set1_ps(q);
    const __m512i middle = _mm512_set1_epi32(center), zero = _mm512_setzero_si512();
    const __m512i zero_digit = _mm512_set1_epi32((int)offset);
    __m512i largest = _mm512_setzero_si512();
    stream = stream && ((uintptr_t)out & 63) == 0;
    for (uint64_t w = 0; w < n_groups; w++, src += 8 * n_planes) {
        __m512i digit[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                            _mm512_setzero_si512()};
        for (uint32_t j = 0; j < n_planes; j++) {
            uint64_t plane = gw_get64(src + 8 * j);
            __m512i weight = _mm512_set1_epi32(1 << j);
#pragma GCC unroll 4
            for (int t = 0; t < 4; t++)
                digit[t] = _mm512_mask_or_epi32(digit[t], (__mmask16)(plane >> 16 * t), digit[t], weight);
        }
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            largest = _mm512_max_epu32(largest, digit[t]);
            __m512i sum = _mm512_sub_epi32(digit[t], zero_digit);
            if (negative)
                sum = _mm512_mask_sub_epi32(sum, (__mmask16)(negative[w] >> 16 * t), zero, sum);
            const __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(sum, middle)), scale);
            if (stream)
                _mm512_stream_ps(out + 64 * w + 16 * t, x);
            else
                _mm512_storeu_ps(out + 64 * w + 16 * t, x);
        }
    }
    if (stream)
        _mm_sfence();
    return _mm512_reduce_max_epu32(largest);
}

#define GW_SUFFIX(name) name##_avx512
#define GW_NAME "avx512"
#define GW_XOR3(a, b, c) ((words8_avx512)_mm512_ternarylogic_epi64((__m512i)(a), (__m512i)(b), (__m512i)(c), 0x96))
#define GW_MAJORITY(a, b, c) ((words8_avx512)_mm512_ternarylogic_epi64((__m512i)(a), (__m512i)(b), (__m512i)(c), 0xE8))
#define GW_TARGET TARGET
#define GW_GATHER(nonzero, sign) _pext_u64(sign, nonzero)
#define GW_SCATTER(bits, nonzero) _pdep_u64(bits, nonzero)
#include "codec/kernels_bits.h"
#endif
