/* Strings of bits (wire/strings.h) with one bit for each place that a bitmap marks. They say which of the nonzeros are
 * negative, or which of the kept elements have a value of their own. */
#ifndef GW_CODEC_MARKED_H
#define GW_CODEC_MARKED_H

#include "wire/strings.h"

/* Adds the bits of `bits` at the n_marked places of `marks`. `ones` of these bits are set. */
void gw_marked_put(struct gw_strings_writer *writer, const uint64_t *marks, uint32_t n_marked, const uint64_t *bits,
                   uint32_t n_words, uint32_t ones);

/* The reverse; other bits of `bits` become 0. `string`: room for n_words words. */
gw_status gw_marked_get(struct gw_strings_reader *reader, const uint64_t *marks, uint32_t n_marked, uint32_t n_words,
                        uint64_t *string, uint64_t *bits, uint32_t *ones);

/* How the signs of k elements are sent. MIXED: the first GW_SIGNS_FIRST signs are sent as they are, and a string has
 * the others. That number fills the states of all lanes. Signs that are sent as they are take no time. */
enum gw_signs { GW_SIGNS_RAW, GW_SIGNS_CODED, GW_SIGNS_MIXED };
#define GW_SIGNS_FIRST 896u
/* To save time, one bit in so many may be lost. */
#define GW_SIGNS_WORTH 256u

/* True if coding n_negative of k signs near their entropy saves more than it costs. */
bool gw_signs_are_skewed(uint32_t k, uint32_t n_negative);

/* How many bits are lost if the first GW_SIGNS_FIRST signs are sent as they are. */
uint64_t gw_signs_loss(uint32_t k, uint32_t n_negative);

/* The choice of encoders. position_bits: what gw_strings_estimate says about the string of positions. */
enum gw_signs gw_signs_choose(uint32_t k, uint32_t n_negative, uint64_t position_bits);

/* Collects the signs that `negative` has at the k places of `marks` in `signs`, which has room for k / 64 + 1 words,
 * and adds the string, if there is one. Returns how many of them, the first, are to be sent as they are. */
uint32_t gw_signs_put(struct gw_strings_writer *writer, enum gw_signs how, const uint64_t *marks, uint32_t k,
                      const uint64_t *negative, uint32_t n_words, uint64_t *signs);

/* Reads how k signs are sent, and the string to its place in `signs`: room for k / 64 + 1 words. *n_raw: how many
 * follow as they are, for the first places. */
gw_status gw_signs_get(struct gw_strings_reader *reader, uint32_t k, uint64_t *signs, enum gw_signs *how,
                       uint32_t *n_raw);

#endif
