/* Codes one bit for each place that a bitmap marks, and decodes it again. The coding of the bits themselves is in
 * wire/gaps.c. */
#include "codec/strings.h"
#include "base/error.h"
#include "codec/kernels.h"

uint64_t gw_string_put(struct gw_bit_writer *writer, const uint64_t *marks, uint32_t n_marked, const uint64_t *bits,
                       uint32_t n_words, uint64_t *string, uint32_t *ones)
{
    string[n_marked / 64] = 0; /* gathering ends with the last byte */
    gw_kernels_now()->gather_signs(marks, bits, n_words, (uint8_t *)string, 8 * ((size_t)n_marked / 64 + 1));
    *ones = (uint32_t)gw_kernels_now()->count(string, (n_marked + 63) / 64);
    return gw_gaps_put(writer, string, n_marked, *ones);
}

gw_status gw_string_get(struct gw_bit_reader *reader, const uint64_t *marks, uint32_t n_marked, uint32_t n_words,
                        uint64_t *string, uint64_t *bits, uint32_t *ones)
{
    GW_TRY(gw_gaps_get(reader, n_marked, string, ones));
    gw_kernels_now()->scatter_signs(marks, n_words, (const uint8_t *)string, (n_marked + 7) / 8, bits);
    return GW_OK;
}
