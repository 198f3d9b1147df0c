/* The kernels of selection for AVX-512, which compresses and expands registers, 64 elements a word of the bitmap. On
 * some processors (Zen 4) compressing to memory is many times slower than to a register, so whole registers are stored
 * and overlap. */
#if defined(__x86_64__)
#include "codec/select_kernels.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,popcnt")))
#define INLINE TARGET static inline __attribute__((always_inline))

/* Rounds as wire/float16.h does, and converts back to float32. */
INLINE __m512 round_bf16(__m512 a)
{
    __m512i bits = _mm512_castps_si512(a), sign = _mm512_set1_epi32((int)0x80000000u);
    __m512i rounded = _mm512_andnot_si512(sign, bits);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    rounded = _mm512_add_epi32(_mm512_add_epi32(rounded, _mm512_set1_epi32(0x7FFF)), odd);
    rounded = _mm512_and_si512(rounded, _mm512_set1_epi32((int)0xFFFF0000u));
    rounded = _mm512_min_epu32(rounded, _mm512_set1_epi32(0x7F7F0000));
    return _mm512_castsi512_ps(_mm512_ternarylogic_epi32(rounded, bits, sign, 0xF8)); /* rounded | (bits & sign) */
}

INLINE __m512 round_f16(__m512 a)
{
    const __m512 most = _mm512_set1_ps(65504);
    __m512 limited = _mm512_max_ps(_mm512_min_ps(a, most), _mm512_sub_ps(_mm512_setzero_ps(), most));
    return _mm512_cvtph_ps(_mm512_cvtps_ph(limited, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* What is left of a residual: in the lanes that were sent, what sending changed. */
INLINE __m512 left_of(__m512 residual, __mmask16 sent, enum gw_value_type value, __m512 factor)
{
    __m512 much = _mm512_mul_ps(residual, factor);
    __m512 arrives = value == GW_VALUE_F32 ? much : value == GW_VALUE_BF16 ? round_bf16(much) : round_f16(much);
    return _mm512_mask_sub_ps(residual, sent, residual, arrives);
}

INLINE struct gw_select_counts select_run(const struct gw_select_run *run, float *values, bool with_residual,
                                          enum gw_value_type value)
{
    const __m512i threshold = _mm512_set1_epi32((int)run->threshold_bits), one = _mm512_set1_epi32(1);
    const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
    const __m512 factor = _mm512_set1_ps(1 + run->over);
    const float *g = run->g, *residual = run->residual;
    bool stream = run->stream && ((uintptr_t)run->next & 63) == 0;
    __m512i most = _mm512_setzero_si512(), equal = most;
    float *at = values;
    uint64_t i = 0;
    for (; i + 64 <= run->n; i += 64) {
        __mmask16 above[4];
        __m512 sums[4];
        uint64_t gone = with_residual ? run->sent[i / 64] : 0;
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++) {
            __m512 a = _mm512_loadu_ps(g + i + 16 * t);
            /* 4 KiB ahead: the hardware's own prefetch stops at page ends. */
            _mm_prefetch((const char *)(g + i + 16 * t) + 4096, _MM_HINT_T0);
            if (with_residual) {
                __m512 left = _mm512_loadu_ps(residual + i + 16 * t);
                a = _mm512_add_ps(a, left_of(left, (__mmask16)(gone >> (16 * t)), value, factor));
                _mm_prefetch((const char *)(residual + i + 16 * t) + 4096, _MM_HINT_T0);
            }
            __m512i bits = _mm512_and_si512(_mm512_castps_si512(a), magnitude);
            above[t] = _mm512_cmpgt_epu32_mask(bits, threshold);
            equal = _mm512_mask_add_epi32(equal, _mm512_cmpeq_epu32_mask(bits, threshold), equal, one);
            most = _mm512_max_epu32(most, bits);
            sums[t] = a;
            if (with_residual && stream)
                _mm512_stream_ps(run->next + i + 16 * t, a);
            else if (with_residual)
                _mm512_storeu_ps(run->next + i + 16 * t, a);
        }
        uint32_t low = above[0] | (uint32_t)above[1] << 16, high = above[2] | (uint32_t)above[3] << 16;
        run->kept[i / 64] = (uint64_t)high << 32 | low;
        if (low | high) {
#pragma GCC unroll 4
            for (int t = 0; t < 4; t++) {
                _mm512_storeu_ps(at, _mm512_maskz_compress_ps(above[t], sums[t]));
                at += __builtin_popcount(above[t]);
            }
        }
    }
    if (with_residual && stream)
        _mm_sfence();

    struct gw_select_counts counts = gw_select_rest(run, i, values, (uint64_t)(at - values));
    uint32_t max_bits = _mm512_reduce_max_epu32(most);
    counts.n_equal += (uint32_t)_mm512_reduce_add_epi32(equal);
    counts.max_bits = counts.max_bits > max_bits ? counts.max_bits : max_bits;
    return counts;
}

/* Puts the next values into the lanes of the bits in `mask`, and 0 into the others. Reads no values beyond `end`. */
INLINE __m512 take(const float **values, const float *end, __mmask16 mask)
{
    uint32_t n = (uint32_t)__builtin_popcount(mask);
    __m512 x =
        end - *values >= 16 ? _mm512_loadu_ps(*values) : _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), *values);
    *values += n;
    return _mm512_maskz_expand_ps(mask, x);
}

TARGET static void expand_avx512(const uint64_t *kept, uint64_t n, const float *values, uint64_t n_values, bool stream,
                                 float *out)
{
    const float *end = values + n_values;
    uint64_t i = 0;
    stream = stream && ((uintptr_t)out & 63) == 0;
    for (; i + 16 <= n; i += 16) {
        __m512 x = take(&values, end, (__mmask16)(kept[i / 64] >> (i % 64)));
        if (stream)
            _mm512_stream_ps(out + i, x);
        else
            _mm512_storeu_ps(out + i, x);
    }
    if (i < n) {
        __mmask16 inside = (__mmask16)((1u << (n - i)) - 1);
        _mm512_mask_storeu_ps(out + i, inside, take(&values, end, (__mmask16)(kept[i / 64] >> (i % 64)) & inside));
    }
    if (stream)
        _mm_sfence();
}

TARGET static void add_avx512(const uint64_t *kept, uint64_t n, const float *values, uint64_t n_values, float *sum)
{
    const float *end = values + n_values;
    for (uint64_t i = 0; i < n; i += 64) {
        uint64_t word = kept[i / 64];
        if (__builtin_popcountll(word) < 8) { /* with fewer than eight, one by one is faster */
            for (; word; word &= word - 1)
                sum[i + (uint64_t)__builtin_ctzll(word)] += *values++;
            continue;
        }
        for (uint64_t j = i; word; j += 16, word >>= 16) {
            __mmask16 mask = (__mmask16)word;
            __m512 x = take(&values, end, mask);
            _mm512_mask_storeu_ps(sum + j, mask, _mm512_add_ps(_mm512_maskz_loadu_ps(mask, sum + j), x));
        }
    }
}

TARGET static void below_avx512(const uint8_t *bytes, uint64_t n_words, uint8_t bound, uint64_t *out)
{
    const __m512i limit = _mm512_set1_epi8((char)bound);
    for (uint64_t w = 0; w < n_words; w++)
        out[w] = _mm512_cmplt_epu8_mask(_mm512_loadu_si512(bytes + 64 * w), limit);
}

TARGET static void lower_avx512(const uint64_t *bits, uint64_t n_words, uint8_t *bytes)
{
    for (uint64_t w = 0; w < n_words; w++) {
        __m512i x = _mm512_loadu_si512(bytes + 64 * w);
        _mm512_storeu_si512(bytes + 64 * w, _mm512_mask_sub_epi8(x, bits[w], x, _mm512_set1_epi8(1)));
    }
}

#define GW_SUFFIX(name) name##_avx512
#define GW_NAME "avx512"
#define GW_ADD add_avx512
#include "codec/select_kernels_set.h"
#endif
