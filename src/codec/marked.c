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
        room[n_marked / 64] = 0; /* gathering ends with the last byte */
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

bool gw_signs_are_coded(uint32_t n_nonzeros, uint32_t n_negative)
{
    /* k - k H(c/k) is about 3/4 (2c - k)^2 / k */
    const int64_t k = n_nonzeros, skew = 2 * (int64_t)n_negative - k;
    return 3 * skew * skew > 4 * k * (48 + k / 128);
}
