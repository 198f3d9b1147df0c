/* The entropy coder's kernel for AVX-512 with VBMI and VBMI2 (Ice Lake, Zen 4 and later): a row of 32 symbols is one
 * register of 16-bit numbers. */
#if defined(__x86_64__)
#include "wire/rans.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,bmi,bmi2,popcnt")))

TARGET static inline __m512i numbers_of(const uint16_t numbers[16])
{
    return _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)numbers));
}

struct bytes256 {
    __m512i part[4];
};

TARGET static inline struct bytes256 bytes_of(const uint8_t table[256])
{
    struct bytes256 all;
    for (int i = 0; i < 4; i++)
        all.part[i] = _mm512_load_si512(table + 64 * i);
    return all;
}

TARGET static inline __m256i look_up_256(const struct bytes256 *table, __m256i index)
{
    const __m512i at = _mm512_castsi256_si512(index);
    const __m512i low = _mm512_permutex2var_epi8(table->part[0], at, table->part[1]),
                  high = _mm512_permutex2var_epi8(table->part[2], at, table->part[3]);
    return _mm512_castsi512_si256(_mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
}

TARGET static inline __m256i count_ones(__m256i bytes)
{
    const __m256i ones = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i nibble = _mm256_set1_epi8(15);
    return _mm256_add_epi8(_mm256_shuffle_epi8(ones, _mm256_and_si256(bytes, nibble)),
                           _mm256_shuffle_epi8(ones, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble)));
}

/* The numbers in the opposite order, because words are appended from the highest lane down. */
TARGET static inline __m512i reversed(__m512i x)
{
    const __m512i down = _mm512_set_epi16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                                          22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
    return _mm512_permutexvar_epi16(down, x);
}

TARGET static inline uint32_t reversed_bits(uint32_t mask)
{
    mask = (mask >> 1 & 0x55555555u) | (mask & 0x55555555u) << 1;
    mask = (mask >> 2 & 0x33333333u) | (mask & 0x33333333u) << 2;
    mask = (mask >> 4 & 0x0F0F0F0Fu) | (mask & 0x0F0F0F0Fu) << 4;
    return __builtin_bswap32(mask);
}

TARGET static uint8_t *encode_avx512(const struct gw_rans_table *table, const uint8_t *symbols, uint32_t n_rows,
                                     struct gw_rans_states *states, uint8_t *words)
{
    const struct bytes256 position = bytes_of(gw_rans_order()->position);
    const __m512i each = numbers_of(table->each), origin = numbers_of(table->origin), scale = numbers_of(table->scale),
                  inverse = numbers_of(table->inverse), one = _mm512_set1_epi16(1);
    __m512i low = _mm512_loadu_si512(states->low), high = _mm512_loadu_si512(states->high);
    for (uint32_t row = n_rows; row-- > 0;) {
        const __m256i bytes = _mm256_loadu_si256((const __m256i *)(symbols + 32 * (size_t)row));
        const __m512i class = _mm512_cvtepu8_epi16(count_ones(bytes)),
                      p = _mm512_cvtepu8_epi16(look_up_256(&position, bytes));
        const __m512i f = _mm512_permutexvar_epi16(class, each), o = _mm512_permutexvar_epi16(class, origin),
                      s = _mm512_permutexvar_epi16(class, scale), v = _mm512_permutexvar_epi16(class, inverse);
        const __mmask32 full = _mm512_cmpge_epu16_mask(high, f);
        _mm512_storeu_si512(words, _mm512_maskz_compress_epi16(reversed_bits(full), reversed(low)));
        words += 2 * (uint32_t)_mm_popcnt_u32(full);
        const __m512i x0 = _mm512_mask_mov_epi16(low, full, high), x1 = _mm512_maskz_mov_epi16(~full, high);
        /* (x1, x0) / each: Moeller and Granlund, "Improved division by invariant integers", algorithm 4 */
        const __m512i u0 = _mm512_mullo_epi16(x0, s), d = _mm512_mullo_epi16(f, s);
        const __m512i u1 = _mm512_or_si512(_mm512_mullo_epi16(x1, s), _mm512_mulhi_epu16(x0, s));
        const __m512i q0 = _mm512_add_epi16(_mm512_mullo_epi16(v, u1), u0);
        __m512i q = _mm512_add_epi16(_mm512_add_epi16(_mm512_mulhi_epu16(v, u1), u1), one);
        q = _mm512_mask_add_epi16(q, _mm512_cmplt_epu16_mask(q0, u0), q, one);
        __m512i r = _mm512_sub_epi16(u0, _mm512_mullo_epi16(q, d));
        const __mmask32 over = _mm512_cmpgt_epu16_mask(r, q0);
        q = _mm512_mask_sub_epi16(q, over, q, one);
        r = _mm512_mask_add_epi16(r, over, r, d);
        q = _mm512_mask_add_epi16(q, _mm512_cmpge_epu16_mask(r, d), q, one);
        low = _mm512_add_epi16(_mm512_add_epi16(o, _mm512_mullo_epi16(p, f)),
                               _mm512_sub_epi16(x0, _mm512_mullo_epi16(q, f)));
        high = q;
    }
    _mm512_storeu_si512(states->low, low);
    _mm512_storeu_si512(states->high, high);
    return words;
}

/* What the decoder of a string looks at in each row. */
struct plan {
    __m512i each, first, reciprocal, bound[8]; /* bound: `first` of the classes from 1 on */
    __mmask32 occurs[8];
};

struct lanes {
    __m512i low, high;
    const uint8_t *at; /* words end here */
};

TARGET static inline void begin_lanes(const struct gw_rans_source *source, struct plan *plan, struct lanes *lanes)
{
    const struct gw_rans_table *table = source->table;
    *plan = (struct plan){.each = numbers_of(table->each),
                          .first = numbers_of(table->first),
                          .reciprocal = numbers_of(table->reciprocal)};
    for (uint32_t c = 1; c <= 8; c++) {
        plan->bound[c - 1] = _mm512_set1_epi16((short)table->first[c]);
        plan->occurs[c - 1] = c <= table->last ? 0xFFFFFFFFu : 0;
    }
    *lanes = (struct lanes){_mm512_loadu_si512(source->states->low), _mm512_loadu_si512(source->states->high),
                            source->words};
}

TARGET static inline void end_lanes(const struct lanes *lanes, uint32_t n_rows, struct gw_rans_source *source)
{
    _mm512_storeu_si512(source->states->low, lanes->low);
    _mm512_storeu_si512(source->states->high, lanes->high);
    source->symbols += GW_RANS_LANES * (size_t)n_rows;
    source->words = lanes->at;
}

static inline bool has_words(const struct lanes *lanes, const uint8_t *begin)
{
    return lanes->at - begin >= 2 * GW_RANS_LANES;
}

TARGET static inline __attribute__((always_inline)) void
decode_row(const struct plan *plan, const struct bytes256 *byte, __m512i class_begin, struct lanes *lanes, uint8_t *dst)
{
    const __m512i one = _mm512_set1_epi16(1);
    __m512i low = lanes->low, high = lanes->high, part[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        part[i] =
            _mm512_maskz_mov_epi16(_mm512_mask_cmpge_epu16_mask(plan->occurs[2 * i], low, plan->bound[2 * i]), one);
        part[i] =
            _mm512_mask_add_epi16(part[i],
                                  _mm512_mask_cmpge_epu16_mask(plan->occurs[2 * i + 1], low, plan->bound[2 * i + 1]),
                                  part[i], one);
    }
    const __m512i class = _mm512_add_epi16(_mm512_add_epi16(part[0], part[1]), _mm512_add_epi16(part[2], part[3]));
    const __m512i f = _mm512_permutexvar_epi16(class, plan->each), b = _mm512_permutexvar_epi16(class, plan->first),
                  v = _mm512_permutexvar_epi16(class, plan->reciprocal),
                  c = _mm512_permutexvar_epi16(class, class_begin);
    const __m512i in_class = _mm512_sub_epi16(low, b);
    __m512i q = _mm512_mulhi_epu16(in_class, v); /* the right index may be one more */
    __m512i r = _mm512_sub_epi16(in_class, _mm512_mullo_epi16(q, f));
    const __mmask32 more = _mm512_cmpge_epu16_mask(r, f);
    q = _mm512_mask_add_epi16(q, more, q, one);
    r = _mm512_mask_sub_epi16(r, more, r, f);
    const __m512i sum = _mm512_add_epi16(_mm512_mullo_epi16(f, high), r);
    high = _mm512_mulhi_epu16(f, high);
    high = _mm512_mask_add_epi16(high, _mm512_cmplt_epu16_mask(sum, r), high, one);
    const __mmask32 need = _mm512_testn_epi16_mask(high, high);
    const __m512i last = reversed(_mm512_loadu_si512(lanes->at - 2 * GW_RANS_LANES));
    lanes->at -= 2 * (uint32_t)_mm_popcnt_u32(need);
    lanes->high = _mm512_mask_mov_epi16(high, need, sum);
    lanes->low = _mm512_mask_expand_epi16(sum, need, last);
    const __m256i positions = _mm512_cvtepi16_epi8(_mm512_add_epi16(q, c));
    _mm256_storeu_si256((__m256i *)dst, look_up_256(byte, positions));
}

TARGET static inline __m512i class_begins(const struct gw_rans_order *order)
{
    return _mm512_cvtepu8_epi16(
        _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)order->class_begin)));
}

TARGET static uint32_t decode_avx512(struct gw_rans_source *source, uint32_t n_rows)
{
    const struct gw_rans_order *order = gw_rans_order();
    const struct bytes256 byte = bytes_of(order->byte);
    const __m512i class_begin = class_begins(order);
    struct plan plan;
    struct lanes lanes;
    uint32_t row = 0;
    begin_lanes(source, &plan, &lanes);
    for (; row < n_rows && has_words(&lanes, source->begin); row++)
        decode_row(&plan, &byte, class_begin, &lanes, source->symbols + GW_RANS_LANES * (size_t)row);
    end_lanes(&lanes, row, source);
    return row;
}

TARGET static inline __attribute__((always_inline)) uint32_t decode_by_turns(struct gw_rans_source *sources,
                                                                             uint32_t n_sources, uint32_t n_rows)
{
    const struct gw_rans_order *order = gw_rans_order();
    const struct bytes256 byte = bytes_of(order->byte);
    const __m512i class_begin = class_begins(order);
    struct plan plan[GW_RANS_TOGETHER];
    struct lanes lanes[GW_RANS_TOGETHER];
    uint32_t row = 0;
    for (uint32_t i = 0; i < n_sources; i++)
        begin_lanes(&sources[i], &plan[i], &lanes[i]);
    for (; row < n_rows; row++) {
        bool go_on = true;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < n_sources; i++)
            go_on = go_on && has_words(&lanes[i], sources[i].begin);
        if (!go_on)
            break;
#pragma GCC unroll 4
        for (uint32_t i = 0; i < n_sources; i++)
            decode_row(&plan[i], &byte, class_begin, &lanes[i], sources[i].symbols + GW_RANS_LANES * (size_t)row);
    }
    for (uint32_t i = 0; i < n_sources; i++)
        end_lanes(&lanes[i], row, &sources[i]);
    return row;
}

/* A row takes a hundred cycles from the states before it to those after it, but only about twenty cycles of the
 * processor's time. So rows of several strings go by turns. */
TARGET static uint32_t decode_many_avx512(struct gw_rans_source *sources, uint32_t n_sources, uint32_t n_rows)
{
    switch (n_sources) {
    case 2:
        return decode_by_turns(sources, 2, n_rows);
    case 3:
        return decode_by_turns(sources, 3, n_rows);
    case 4:
        return decode_by_turns(sources, 4, n_rows);
    default:
        return 0;
    }
}

const struct gw_rans gw_rans_avx512;
const struct gw_rans gw_rans_avx512 = {.encode = encode_avx512,
                                       .decode = decode_avx512,
                                       .decode_many = decode_many_avx512};
#endif
