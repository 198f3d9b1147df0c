/* Codes one bit for each place that a bitmap marks, and decodes it again. The coding of the bits themselves is in
 * wire/strings.c. */
#include "codec/marked.h"
#include "base/error.h"
#include "codec/kernels.h"

void gw_marked_put(struct gw_strings_writer *writer, const uint64_t *marks, uint32_t n_marked, const uint64_t *bits,
                   uint32_t n_words, uint32_t ones)
{
    if (ones && ones < n_marked) {
        uint64_t *room = gw_strings_room(writer, n_marked);
        if (!room)
            return;
        room[n_marked / 64] = 0; /* the kernel writes only up to the last byte of the bits */
        gw_kernels_now()->gather_signs(marks, bits, n_words, (uint8_t *)room, 8 * ((size_t)n_marked / 64 + 1));
    }
    gw_strings_add(writer, n_marked, ones);
}

gw_status gw_marked_get(struct gw_strings_reader *reader, const uint64_t *marks, uint32_t n_marked, uint32_t n_words,
                        uint64_t *string, uint64_t *bits, uint32_t *ones)
{
    GW_TRY(gw_strings_get(reader, n_marked, string, ones));
    gw_kernels_now()->scatter_signs(marks, n_words, (const uint8_t *)string, (n_marked + 7) / 8, bits);
    return GW_OK;
}

bool gw_signs_are_skewed(uint32_t k, uint32_t n_negative)
{
    /* k - k H(c/k) is about 3/4 (2c - k)^2 / k */
    const int64_t n = k, skew = 2 * (int64_t)n_negative - n;
    return 3 * skew * skew > 4 * n * (48 + n / 128);
}

uint64_t gw_signs_loss(uint32_t k, uint32_t n_negative)
{
    const int64_t n = k, skew = 2 * (int64_t)n_negative - n, first = k < GW_SIGNS_FIRST ? n : GW_SIGNS_FIRST;
    return k ? (uint64_t)(3 * first * skew * skew / (4 * n * n)) : 0;
}

enum gw_signs gw_signs_choose(uint32_t k, uint32_t n_negative, uint64_t position_bits)
{
    if (!gw_signs_are_skewed(k, n_negative))
        return GW_SIGNS_RAW;
    const bool costs_little = GW_SIGNS_WORTH * gw_signs_loss(k, n_negative) <= position_bits + k;
    return k > GW_SIGNS_FIRST && costs_little ? GW_SIGNS_MIXED : GW_SIGNS_CODED;
}

static uint32_t n_raw_of(enum gw_signs how, uint32_t k)
{
    return how == GW_SIGNS_RAW ? k : how == GW_SIGNS_MIXED ? GW_SIGNS_FIRST : 0;
}

uint32_t gw_signs_put(struct gw_strings_writer *writer, enum gw_signs how, const uint64_t *marks, uint32_t k,
                      const uint64_t *negative, uint32_t n_words, uint64_t *signs)
{
    const uint32_t n_raw = n_raw_of(how, k), n_coded = k - n_raw;
    gw_strings_field(writer, how, 2);
    signs[k / 64] = 0; /* the kernel writes only up to the last byte of the bits */
    gw_kernels_now()->gather_signs(marks, negative, n_words, (uint8_t *)signs, 8 * ((size_t)k / 64 + 1));
    if (how == GW_SIGNS_RAW)
        return n_raw;
    const uint64_t *string = signs + n_raw / 64;
    gw_strings_put(writer, string, n_coded, (uint32_t)gw_kernels_now()->count(string, (n_coded + 63) / 64));
    return n_raw;
}

gw_status gw_signs_get(struct gw_strings_reader *reader, uint32_t k, uint64_t *signs, enum gw_signs *how,
                       uint32_t *n_raw)
{
    const uint32_t number = gw_strings_number(reader, 2);
    uint32_t n_negative;
    if (number > GW_SIGNS_MIXED || (number == GW_SIGNS_MIXED && k <= GW_SIGNS_FIRST))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a chunk sends %u signs in way %u; there is no such way", k, number);
    *how = (enum gw_signs)number;
    *n_raw = n_raw_of(*how, k);
    return *how == GW_SIGNS_RAW ? GW_OK : gw_strings_get(reader, k - *n_raw, signs + *n_raw / 64, &n_negative);
}
