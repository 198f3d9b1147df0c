/* Strings of bits (wire/strings.h) with one bit for each place that a bitmap marks. They say which of the nonzeros are
 * negative, or which of the kept elements have a value of their own. */
#ifndef GW_CODEC_MARKED_H
#define GW_CODEC_MARKED_H

#include "wire/strings.h"

/* What is marked next takes the place of what is marked now, and the other way round. */
static inline void gw_marks_swap(uint64_t **marks, uint64_t **next)
{
    uint64_t *free = *marks;
    *marks = *next;
    *next = free;
}

/* Adds the bits of `bits` at the n_marked places of `marks`. `ones` of these bits are set. */
void gw_marked_put(struct gw_strings_writer *writer, const uint64_t *marks, uint32_t n_marked, const uint64_t *bits,
                   uint32_t n_words, uint32_t ones);

/* Reads what gw_marked_put has added. Bits of `bits` at other places become 0. `string`: room for n_words words. */
gw_status gw_marked_get(struct gw_strings_reader *reader, const uint64_t *marks, uint32_t n_marked, uint32_t n_words,
                        uint64_t *string, uint64_t *bits, uint32_t *ones);

/* How the signs of k elements are sent. RAW: as they are, which takes no time. CODED: as a string, near their entropy.
 * MIXED: the first GW_SIGNS_FIRST as they are, because so many bits fill the states of all lanes; the others as a
 * string. */
enum gw_signs { GW_SIGNS_RAW, GW_SIGNS_CODED, GW_SIGNS_MIXED };
#define GW_SIGNS_FIRST 896u
/* An encoder chooses MIXED if that costs at most one bit in GW_SIGNS_WORTH. */
#define GW_SIGNS_WORTH 256u

/* True if coding n_negative of k signs near their entropy saves more than it costs. */
bool gw_signs_are_skewed(uint32_t k, uint32_t n_negative);

/* How many bits are lost if the first GW_SIGNS_FIRST signs are sent as they are. */
uint64_t gw_signs_loss(uint32_t k, uint32_t n_negative);

/* How an encoder sends the signs. position_bits: what gw_strings_estimate says about the string of positions. */
enum gw_signs gw_signs_choose(uint32_t k, uint32_t n_negative, uint64_t position_bits);

/* Collects the signs that `negative` has at the k places of `marks`. They go to `signs`, which has room for k / 64 + 1
 * words. If `how` has a string, this adds it. Returns how many signs, from the first on, the caller must send as they
 * are. */
uint32_t gw_signs_put(struct gw_strings_writer *writer, enum gw_signs how, const uint64_t *marks, uint32_t k,
                      const uint64_t *negative, uint32_t n_words, uint64_t *signs);

/* Reads how k signs are sent. If there is a string, its signs go to their places in `signs`, which has room for
 * k / 64 + 1 words. *n_raw: how many signs, the first ones, follow as they are. */
gw_status gw_signs_get(struct gw_strings_reader *reader, uint32_t k, uint64_t *signs, enum gw_signs *how,
                       uint32_t *n_raw);

#endif
