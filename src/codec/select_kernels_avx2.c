/* The kernels of selection for AVX2 with BMI2 and F16C. They work on eight lanes; pdep and pext turn a mask into the
 * permutation that compresses or expands them. */
#if defined(__x86_64__)
#include "codec/select_kernels.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,bmi,bmi2,popcnt,f16c")))
#define INLINE TARGET static inline __attribute__((always_inline))

/* Lists the numbers of the bits that are set in `mask`, from lane 0 on. */
INLINE __m256i lanes_set(uint32_t mask)
{
    uint64_t bytes = _pdep_u64(mask, 0x0101010101010101u) * 255;
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)_pext_u64(0x0706050403020100u, bytes)));
}

/* For each bit that is set in `mask`: its lane gets the number of set bits below it. */
INLINE __m256i places_of(uint32_t mask)
{
    uint64_t bytes = _pdep_u64(mask, 0x0101010101010101u) * 255;
    return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)_pdep_u64(0x0706050403020100u, bytes)));
}

/* Sets all bits of lane i if bit i of `mask` is set. */
INLINE __m256i lanes_of(uint32_t mask)
{
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int)mask), each), each);
}

/* Rounds as wire/float16.h does, and converts back to float32. */
INLINE __m256 round_bf16(__m256 a)
{
    __m256i bits = _mm256_castps_si256(a), sign = _mm256_set1_epi32((int)0x80000000u);
    __m256i rounded = _mm256_andnot_si256(sign, bits);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    rounded = _mm256_add_epi32(_mm256_add_epi32(rounded, _mm256_set1_epi32(0x7FFF)), odd);
    rounded = _mm256_and_si256(rounded, _mm256_set1_epi32((int)0xFFFF0000u));
    rounded = _mm256_min_epu32(rounded, _mm256_set1_epi32(0x7F7F0000));
    return _mm256_castsi256_ps(_mm256_or_si256(rounded, _mm256_and_si256(bits, sign)));
}

INLINE __m256 round_f16(__m256 a)
{
    __m256 limited = _mm256_max_ps(_mm256_min_ps(a, _mm256_set1_ps(65504)), _mm256_set1_ps(-65504));
    return _mm256_cvtph_ps(_mm256_cvtps_ph(limited, _MM_FROUND_TO_NEAREST_INT));
}

/* What is left of a residual: in the lanes that were sent, what sending changed. */
INLINE __m256 left_of(__m256 residual, uint32_t sent, enum gw_value_type value, __m256 factor)
{
    __m256 lanes = _mm256_castsi256_ps(lanes_of(sent)), much = _mm256_mul_ps(residual, factor);
    __m256 arrives = value == GW_VALUE_F32 ? much : value == GW_VALUE_BF16 ? round_bf16(much) : round_f16(much);
    return _mm256_sub_ps(residual, _mm256_and_ps(arrives, lanes));
}

INLINE struct gw_select_counts select_run(const struct gw_select_run *run, float *values, bool with_residual,
                                          enum gw_value_type value)
{
    const __m256i threshold = _mm256_set1_epi32((int)run->threshold_bits), magnitude = _mm256_set1_epi32(0x7FFFFFFF);
    const __m256 factor = _mm256_set1_ps(1 + run->over);
    const float *g = run->g, *residual = run->residual;
    bool stream = run->stream && ((uintptr_t)run->next & 31) == 0;
    __m256i most = _mm256_setzero_si256(), equal = most;
    float *at = values;
    uint64_t i = 0;
    for (; i + 64 <= run->n; i += 64) {
        uint64_t word = 0, gone = with_residual ? run->sent[i / 64] : 0;
#pragma GCC unroll 8
        for (int t = 0; t < 8; t++) {
            const float *from = g + i + 8 * t;
            __m256 a = _mm256_loadu_ps(from);
            if (t % 2 == 0)
                _mm_prefetch((const char *)from + 4096, _MM_HINT_T0);
            if (with_residual) {
                __m256 left = _mm256_loadu_ps(residual + i + 8 * t);
                a = _mm256_add_ps(a, left_of(left, (uint32_t)(gone >> (8 * t)) & 255, value, factor));
                if (t % 2 == 0)
                    _mm_prefetch((const char *)(residual + i + 8 * t) + 4096, _MM_HINT_T0);
            }
            /* The sign bit of magnitudes is 0, so signed comparisons are right. */
            __m256i bits = _mm256_and_si256(_mm256_castps_si256(a), magnitude);
            __m256i above = _mm256_cmpgt_epi32(bits, threshold);
            equal = _mm256_sub_epi32(equal, _mm256_cmpeq_epi32(bits, threshold));
            most = _mm256_max_epu32(most, bits);
            if (with_residual && stream)
                _mm256_stream_ps(run->next + i + 8 * t, a);
            else if (with_residual)
                _mm256_storeu_ps(run->next + i + 8 * t, a);
            uint32_t mask = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(above));
            if (mask) {
                _mm256_storeu_ps(at, _mm256_permutevar8x32_ps(a, lanes_set(mask)));
                at += __builtin_popcount(mask);
                word |= (uint64_t)mask << (8 * t);
            }
        }
        run->kept[i / 64] = word;
    }
    if (with_residual && stream)
        _mm_sfence();

    struct gw_select_counts counts = gw_select_rest(run, i, values, (uint64_t)(at - values));
    uint32_t largest[8], equals[8];
    _mm256_storeu_si256((__m256i *)largest, most);
    _mm256_storeu_si256((__m256i *)equals, equal);
    for (int lane = 0; lane < 8; lane++) {
        counts.max_bits = largest[lane] > counts.max_bits ? largest[lane] : counts.max_bits;
        counts.n_equal += equals[lane];
    }
    return counts;
}

/* Puts the next values into the lanes of the bits in `mask`, and 0 into the others. Reads no values beyond `end`. */
INLINE __m256 take(const float **values, const float *end, uint32_t mask)
{
    uint32_t n = (uint32_t)__builtin_popcount(mask);
    __m256 x = end - *values >= 8 ? _mm256_loadu_ps(*values) : _mm256_maskload_ps(*values, lanes_of((1u << n) - 1));
    *values += n;
    return _mm256_and_ps(_mm256_permutevar8x32_ps(x, places_of(mask)), _mm256_castsi256_ps(lanes_of(mask)));
}

TARGET static void expand_avx2(const uint64_t *kept, uint64_t n, const float *values, uint64_t n_values, bool stream,
                               float *out)
{
    const float *end = values + n_values;
    uint64_t i = 0;
    stream = stream && ((uintptr_t)out & 31) == 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = take(&values, end, (uint32_t)(kept[i / 64] >> (i % 64)) & 255);
        if (stream)
            _mm256_stream_ps(out + i, x);
        else
            _mm256_storeu_ps(out + i, x);
    }
    if (i < n) {
        uint32_t inside = (1u << (n - i)) - 1;
        _mm256_maskstore_ps(out + i, lanes_of(inside),
                            take(&values, end, (uint32_t)(kept[i / 64] >> (i % 64)) & inside));
    }
    if (stream)
        _mm_sfence();
}

/* `add` has no kernel here: masked loads and stores made it two to eight times slower than the plain loop (Zen 4). */

TARGET static void below_avx2(const uint8_t *bytes, uint64_t n_words, uint8_t bound, uint64_t *out)
{
    const __m256i limit = _mm256_set1_epi8((char)bound);
    for (uint64_t w = 0; w < n_words; w++) {
        uint32_t half[2]; /* bytes that are not below */
        for (unsigned h = 0; h < 2; h++) {
            __m256i x = _mm256_loadu_si256((const __m256i *)(bytes + 64 * w + 32 * h));
            half[h] = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(x, limit), x));
        }
        out[w] = ~(half[0] | (uint64_t)half[1] << 32);
    }
}

TARGET static void lower_avx2(const uint64_t *bits, uint64_t n_words, uint8_t *bytes)
{
    /* Byte i of a lane gets byte i / 8 of the 32 bits. Its own bit is bit i % 8 of that. */
    const __m256i which = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i each = _mm256_set1_epi64x((long long)0x8040201008040201u);
    for (uint64_t w = 0; w < n_words; w++)
        for (unsigned h = 0; h < 2; h++) {
            __m256i *at = (__m256i *)(bytes + 64 * w + 32 * h);
            __m256i mask = _mm256_shuffle_epi8(_mm256_set1_epi32((int)(uint32_t)(bits[w] >> (32 * h))), which);
            __m256i ones = _mm256_cmpeq_epi8(_mm256_and_si256(mask, each), each); /* -1 if the bit is set */
            _mm256_storeu_si256(at, _mm256_add_epi8(_mm256_loadu_si256(at), ones));
        }
}

/* Takes eight values at a time, which are 24 bytes. Loads and stores are of 32 bytes, so the last few values are left
 * to the plain loop. */
TARGET void gw_select_join_avx2(const uint8_t *rests, const uint8_t *exponents, uint64_t n, float *out)
{
    /* Half a register gets twelve bytes, then each lane gets three of these. */
    const __m256i halves = _mm256_setr_epi32(0, 1, 2, 0, 3, 4, 5, 0);
    const __m256i threes =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, -128, 3, 4, 5, -128, 6, 7, 8, -128, 9, 10, 11, -128));
    uint64_t i = 0;
    for (; i + 11 <= n; i += 8) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(rests + 3 * i));
        x = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(x, halves), threes);
        __m256i exponent = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(exponents + i)));
        __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(x, 23), 31);
        x = _mm256_and_si256(x, _mm256_set1_epi32(0x7FFFFF));
        x = _mm256_or_si256(_mm256_or_si256(x, sign), _mm256_slli_epi32(exponent, 23));
        _mm256_storeu_ps(out + i, _mm256_castsi256_ps(x));
    }
    gw_select_join_ref(rests + 3 * i, exponents + i, n - i, out + i);
}

TARGET void gw_select_rests_avx2(const float *values, uint64_t n, uint8_t *out)
{
    const __m256i threes =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -128, -128, -128, -128));
    const __m256i together = _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 3, 7);
    uint64_t i = 0;
    for (; i + 11 <= n; i += 8) {
        __m256i x = _mm256_loadu_si256((const __m256i *)(values + i));
        __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(x, 31), 23);
        x = _mm256_or_si256(_mm256_and_si256(x, _mm256_set1_epi32(0x7FFFFF)), sign);
        x = _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(x, threes), together);
        _mm256_storeu_si256((__m256i *)(out + 3 * i), x);
    }
    gw_select_rests_ref(values + i, n - i, out + 3 * i);
}

#define GW_SUFFIX(name) name##_avx2
#define GW_NAME "avx2"
#define GW_ADD gw_select_add_ref
#include "codec/select_kernels_set.h"
#endif
