/* Strings of bits (wire/strings.h) with one bit for each place that a bitmap marks. They say which of the nonzeros are
 * negative, or which of the kept elements have a value of their own. */
#ifndef GW_CODEC_MARKED_H
#define GW_CODEC_MARKED_H

#include "wire/strings.h"

/* Adds the bits of `bits` at the n_marked places that `marks` has, `ones` of which are set. */
void gw_marked_put(struct gw_strings_writer *writer, const uint64_t *marks, uint32_t n_marked, const uint64_t *bits,
                   uint32_t n_words, uint32_t ones);

/* The reverse; other bits of `bits` become 0. `string`: room for n_words words. */
gw_status gw_marked_get(struct gw_strings_reader *reader, const uint64_t *marks, uint32_t n_marked, uint32_t n_words,
                        uint64_t *string, uint64_t *bits, uint32_t *ones);

/* True if coding n_negative of n_nonzeros signs near their entropy saves more than it costs. Signs that are sent as
 * they are fill the coder's states, and take no time. */
bool gw_signs_are_coded(uint32_t n_nonzeros, uint32_t n_negative);

#endif
