/* The entropy coder's kernel for AVX2: a row of 32 symbols is two registers of 16-bit numbers. */
#if defined(__x86_64__)
#include "wire/rans.h"

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,bmi,bmi2,popcnt")))

/* Low and high bytes of up to 16 numbers, as tables for shuffles of bytes. */
struct halves {
    __m256i low, high;
};

TARGET static inline struct halves halves_of(const uint16_t numbers[16])
{
    const __m256i all = _mm256_loadu_si256((const __m256i *)numbers);
    const __m256i low = _mm256_packus_epi16(_mm256_and_si256(all, _mm256_set1_epi16(255)), _mm256_setzero_si256());
    const __m256i high = _mm256_packus_epi16(_mm256_srli_epi16(all, 8), _mm256_setzero_si256());
    /* packus works within each half of the register, so it gives numbers 0..7, zeros, numbers 8..15, zeros */
    return (struct halves){_mm256_permute4x64_epi64(low, 0x88), _mm256_permute4x64_epi64(high, 0x88)};
}

/* Two registers of 16 numbers. They hold the lanes of a row in order. */
struct row {
    __m256i half[2];
};

/* `classes` are bytes in the order that unpacking needs: 0-7, 16-23, 8-15, 24-31. */
TARGET static inline struct row look_up(struct halves table, __m256i classes)
{
    const __m256i low = _mm256_shuffle_epi8(table.low, classes), high = _mm256_shuffle_epi8(table.high, classes);
    return (struct row){{_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high)}};
}

/* Looks up in a table of 256 bytes, 16 of them at a time. If an index is in these 16, the shuffle gives the byte. Else
 * it gives 0. */
TARGET static inline __m256i look_up_256(const uint8_t table[256], __m256i index)
{
    __m256i found = _mm256_setzero_si256();
    __m256i at = index; /* the index, less 16 for each part before */
#pragma GCC unroll 16
    for (int t = 0; t < 16; t++) {
        const __m256i part = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i *)(table + 16 * t)));
        /* To add with saturation keeps 0..15 below 0x80, and lifts all from 16 on to 0x80 and above. */
        const __m256i place = _mm256_adds_epu8(at, _mm256_set1_epi8(0x70));
        found = _mm256_or_si256(found, _mm256_shuffle_epi8(part, place));
        at = _mm256_sub_epi8(at, _mm256_set1_epi8(16));
    }
    return found;
}

TARGET static inline __m256i count_ones(__m256i bytes)
{
    const __m256i ones = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4));
    const __m256i nibble = _mm256_set1_epi8(15);
    return _mm256_add_epi8(_mm256_shuffle_epi8(ones, _mm256_and_si256(bytes, nibble)),
                           _mm256_shuffle_epi8(ones, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble)));
}

TARGET static inline __m256i at_least(__m256i a, __m256i b) /* unsigned, 16 bits */
{
    return _mm256_cmpeq_epi16(_mm256_max_epu16(a, b), a);
}

/* Which of a row's lanes are all ones, eight lanes in each byte. Their order is mended, because packing works within
 * halves of registers. */
struct masks {
    uint8_t of[4];
};

TARGET static inline struct masks masks_of(__m256i first, __m256i second)
{
    const uint32_t bits = (uint32_t)_mm256_movemask_epi8(_mm256_packs_epi16(first, second));
    return (struct masks){{(uint8_t)bits, (uint8_t)(bits >> 16), (uint8_t)(bits >> 8), (uint8_t)(bits >> 24)}};
}

TARGET static inline uint8_t *append(const struct gw_rans_order *order, __m128i low, uint32_t mask, uint8_t *words)
{
    const __m128i places = _mm_load_si128((const __m128i *)order->pack[mask]);
    _mm_storeu_si128((__m128i *)words, _mm_shuffle_epi8(low, places));
    return words + 2 * (uint32_t)_mm_popcnt_u32(mask);
}

TARGET static uint8_t *encode_avx2(const struct gw_rans_table *table, const uint8_t *symbols, uint32_t n_rows,
                                   struct gw_rans_states *states, uint8_t *words)
{
    const struct gw_rans_order *order = gw_rans_order();
    const struct halves each = halves_of(table->each), origin = halves_of(table->origin),
                        scale = halves_of(table->scale), inverse = halves_of(table->inverse);
    struct row low, high;
    for (int h = 0; h < 2; h++) {
        low.half[h] = _mm256_loadu_si256((const __m256i *)(states->low + 16 * h));
        high.half[h] = _mm256_loadu_si256((const __m256i *)(states->high + 16 * h));
    }
    for (uint32_t row = n_rows; row-- > 0;) {
        const __m256i bytes =
            _mm256_permute4x64_epi64(_mm256_loadu_si256((const __m256i *)(symbols + 32 * (size_t)row)), 0xD8);
        const __m256i classes = count_ones(bytes), positions = look_up_256(order->position, bytes);
        const struct row f = look_up(each, classes), o = look_up(origin, classes), s = look_up(scale, classes),
                         v = look_up(inverse, classes);
        const __m256i zero = _mm256_setzero_si256();
        const struct row p = {{_mm256_unpacklo_epi8(positions, zero), _mm256_unpackhi_epi8(positions, zero)}};
        const __m256i full[2] = {at_least(high.half[0], f.half[0]), at_least(high.half[1], f.half[1])};
        const struct masks mask = masks_of(full[0], full[1]);
        words = append(order, _mm256_extracti128_si256(low.half[1], 1), mask.of[3], words);
        words = append(order, _mm256_castsi256_si128(low.half[1]), mask.of[2], words);
        words = append(order, _mm256_extracti128_si256(low.half[0], 1), mask.of[1], words);
        words = append(order, _mm256_castsi256_si128(low.half[0]), mask.of[0], words);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i x0 = _mm256_blendv_epi8(low.half[h], high.half[h], full[h]),
                          x1 = _mm256_andnot_si256(full[h], high.half[h]);
            /* (x1, x0) / each: Moeller and Granlund, "Improved division by invariant integers", algorithm 4 */
            const __m256i u0 = _mm256_mullo_epi16(x0, s.half[h]), d = _mm256_mullo_epi16(f.half[h], s.half[h]);
            const __m256i u1 = _mm256_or_si256(_mm256_mullo_epi16(x1, s.half[h]), _mm256_mulhi_epu16(x0, s.half[h]));
            const __m256i q0 = _mm256_add_epi16(_mm256_mullo_epi16(v.half[h], u1), u0);
            __m256i q = _mm256_add_epi16(_mm256_mulhi_epu16(v.half[h], u1), u1);
            /* plus one, plus the carry */
            q = _mm256_add_epi16(_mm256_add_epi16(q, _mm256_set1_epi16(2)), at_least(q0, u0));
            __m256i r = _mm256_sub_epi16(u0, _mm256_mullo_epi16(q, d));
            const __m256i fits = at_least(q0, r);
            q = _mm256_sub_epi16(_mm256_sub_epi16(q, _mm256_set1_epi16(1)), fits);
            r = _mm256_add_epi16(r, _mm256_andnot_si256(fits, d));
            q = _mm256_sub_epi16(q, at_least(r, d));
            const __m256i slot = _mm256_add_epi16(o.half[h], _mm256_mullo_epi16(p.half[h], f.half[h]));
            low.half[h] = _mm256_add_epi16(slot, _mm256_sub_epi16(x0, _mm256_mullo_epi16(q, f.half[h])));
            high.half[h] = q;
        }
    }
    for (int h = 0; h < 2; h++) {
        _mm256_storeu_si256((__m256i *)(states->low + 16 * h), low.half[h]);
        _mm256_storeu_si256((__m256i *)(states->high + 16 * h), high.half[h]);
    }
    return words;
}

/* Takes the next words for the lanes in `mask`, and moves *words. Other lanes get 0. */
TARGET static inline __m128i take(const struct gw_rans_order *order, uint32_t mask, const uint8_t **words)
{
    const __m128i last = _mm_loadu_si128((const __m128i *)(*words - 16));
    *words -= 2 * (uint32_t)_mm_popcnt_u32(mask);
    return _mm_shuffle_epi8(last, _mm_load_si128((const __m128i *)order->shuffle[mask]));
}

TARGET static uint32_t decode_avx2(struct gw_rans_source *source, uint32_t n_rows)
{
    const struct gw_rans_table *table = source->table;
    struct gw_rans_states *states = source->states;
    uint8_t *symbols = source->symbols;
    const struct gw_rans_order *order = gw_rans_order();
    const struct halves each = halves_of(table->each), first = halves_of(table->first),
                        reciprocal = halves_of(table->reciprocal);
    const __m256i class_begin = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)order->class_begin));
    const __m256i sign = _mm256_set1_epi16((short)0x8000);
    const uint8_t *begin = source->begin, *at = source->words;
    __m256i bound[8]; /* first - 1 of the classes from 1 on, for signed comparison. For unused classes it is above all
                         slots */
    struct row low, high;
    for (uint32_t c = 1; c <= 8; c++)
        bound[c - 1] =
            c <= table->last ? _mm256_set1_epi16((short)((table->first[c] - 1) ^ 0x8000)) : _mm256_set1_epi16(0x7FFF);
    for (int h = 0; h < 2; h++) {
        low.half[h] = _mm256_loadu_si256((const __m256i *)(states->low + 16 * h));
        high.half[h] = _mm256_loadu_si256((const __m256i *)(states->high + 16 * h));
    }
    uint32_t row = 0;
    for (; row < n_rows && at - begin >= 2 * GW_RANS_LANES; row++) {
        struct row class;
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i slot = _mm256_xor_si256(low.half[h], sign);
            __m256i c0 = _mm256_add_epi16(_mm256_cmpgt_epi16(slot, bound[0]), _mm256_cmpgt_epi16(slot, bound[1]));
            __m256i c1 = _mm256_add_epi16(_mm256_cmpgt_epi16(slot, bound[2]), _mm256_cmpgt_epi16(slot, bound[3]));
            __m256i c2 = _mm256_add_epi16(_mm256_cmpgt_epi16(slot, bound[4]), _mm256_cmpgt_epi16(slot, bound[5]));
            __m256i c3 = _mm256_add_epi16(_mm256_cmpgt_epi16(slot, bound[6]), _mm256_cmpgt_epi16(slot, bound[7]));
            class.half[h] = _mm256_abs_epi16(_mm256_add_epi16(_mm256_add_epi16(c0, c1), _mm256_add_epi16(c2, c3)));
        }
        const __m256i classes = _mm256_packus_epi16(class.half[0], class.half[1]);
        const struct row f = look_up(each, classes), b = look_up(first, classes), v = look_up(reciprocal, classes);
        struct row index, need;
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i in_class = _mm256_sub_epi16(low.half[h], b.half[h]);
            const __m256i q = _mm256_mulhi_epu16(in_class, v.half[h]); /* the right index may be one more */
            __m256i r = _mm256_sub_epi16(in_class, _mm256_mullo_epi16(q, f.half[h]));
            const __m256i more = at_least(r, f.half[h]);
            index.half[h] = _mm256_sub_epi16(q, more);
            r = _mm256_sub_epi16(r, _mm256_and_si256(more, f.half[h]));
            const __m256i sum = _mm256_add_epi16(_mm256_mullo_epi16(f.half[h], high.half[h]), r);
            const __m256i no_carry = at_least(sum, r);
            high.half[h] = _mm256_add_epi16(_mm256_mulhi_epu16(f.half[h], high.half[h]),
                                            _mm256_add_epi16(no_carry, _mm256_set1_epi16(1)));
            low.half[h] = sum;
            need.half[h] = _mm256_cmpeq_epi16(high.half[h], _mm256_setzero_si256());
        }
        const struct masks mask = masks_of(need.half[0], need.half[1]);
        __m128i part[4];
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++)
            part[g] = take(order, mask.of[g], &at);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            const __m256i word = _mm256_inserti128_si256(_mm256_castsi128_si256(part[2 * h]), part[2 * h + 1], 1);
            high.half[h] = _mm256_blendv_epi8(high.half[h], low.half[h], need.half[h]);
            low.half[h] = _mm256_blendv_epi8(low.half[h], word, need.half[h]);
        }
        __m256i positions = _mm256_add_epi8(_mm256_packus_epi16(index.half[0], index.half[1]),
                                            _mm256_shuffle_epi8(class_begin, classes));
        positions = _mm256_permute4x64_epi64(positions, 0xD8);
        _mm256_storeu_si256((__m256i *)(symbols + 32 * (size_t)row), look_up_256(order->byte, positions));
    }
    for (int h = 0; h < 2; h++) {
        _mm256_storeu_si256((__m256i *)(states->low + 16 * h), low.half[h]);
        _mm256_storeu_si256((__m256i *)(states->high + 16 * h), high.half[h]);
    }
    source->symbols += GW_RANS_LANES * (size_t)row;
    source->words = at;
    return row;
}

const struct gw_rans gw_rans_avx2;
const struct gw_rans gw_rans_avx2 = {.encode = encode_avx2, .decode = decode_avx2, .decode_many = NULL};
#endif
