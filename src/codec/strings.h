/* Strings of bits (wire/gaps.h) with one bit for each place that a bitmap marks. They say which of the nonzeros are
 * negative, or which of the kept elements have a value of their own. */
#ifndef GW_CODEC_STRINGS_H
#define GW_CODEC_STRINGS_H

#include "wire/gaps.h"

/* Appends the bits of `bits` at the n_marked places that `marks` has. `string`: room for n_words + 1 words. *ones: how
 * many of them are set. Returns how many bits it took. */
uint64_t gw_string_put(struct gw_bit_writer *writer, const uint64_t *marks, uint32_t n_marked, const uint64_t *bits,
                       uint32_t n_words, uint64_t *string, uint32_t *ones);

/* The reverse; other bits of `bits` become 0. `string`: room for n_words words. */
gw_status gw_string_get(struct gw_bit_reader *reader, const uint64_t *marks, uint32_t n_marked, uint32_t n_words,
                        uint64_t *string, uint64_t *bits, uint32_t *ones);

#endif
