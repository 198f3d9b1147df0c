/* Strings of bits, coded as they are or as Golomb-Rice gaps between their rarer bits, whichever is shorter:
 * docs/wire-format.md, section 6. Between independent bits of probability p gaps are geometric. The best k takes at
 * most 4.3 % more than the bits' entropy (p < 0.4; above that, the bits as they are take at most 4.2 % more). */
#ifndef GW_WIRE_GAPS_H
#define GW_WIRE_GAPS_H

#include "base/cpu.h"
#include "wire/bits.h"

#include <gradwire/status.h>

#define GW_GAPS_MAX_BITS (1u << 18) /* of one string */

/* Appends a string of m <= GW_GAPS_MAX_BITS bits, `ones` of which are set. Returns how many bits that takes, also where
 * the writer had no room for them. Bits past m in the last word are 0. */
uint64_t gw_gaps_put(struct gw_bit_writer *writer, const uint64_t *string, uint32_t m, uint32_t ones);

/* Reads a string of m <= GW_GAPS_MAX_BITS bits; sets all ceil(m/64) words, and how many bits are ones. Refuses what no
 * writer can have written: another k, positions past m, an early end. */
gw_status gw_gaps_get(struct gw_bit_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones);

/* The same, built once per instruction set; all write and accept the same bits. */
struct gw_gaps {
    uint64_t (*put)(struct gw_bit_writer *writer, const uint64_t *string, uint32_t m, uint32_t ones);
    gw_status (*get)(struct gw_bit_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones);
};

/* What the next GW_GAPS_LOOK bits of a string coded with k hold, as far as gaps lie whole in them: bits 0..49 the
 * string's bits that they make, 50..53 how many gaps, 54..59 how many bits of the string, 60..63 of the coded one: 0
 * where not one gap is whole, or long. */
#define GW_GAPS_LOOK 10
#define GW_GAPS_MARKS ((1ull << 50) - 1)

/* Indexed by those bits. NULL for a k with which one look seldom holds two gaps. */
const uint64_t *gw_gaps_table(uint32_t k);

extern const struct gw_gaps gw_gaps_plain, gw_gaps_avx2;

/* The one for that instruction set; of two that do not differ here, either. */
const struct gw_gaps *gw_gaps_for(enum gw_cpu cpu);

#endif
