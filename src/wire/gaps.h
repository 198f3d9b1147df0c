/* Strings of bits, coded as they are or as Golomb-Rice gaps between their rarer bits, whichever is shorter: docs/wire-format.md,
 * section 6. Between independent bits of probability p gaps are geometric, and the best k takes at most 4.3 % more than the
 * bits' entropy (p < 0.4; above, the bits as they are take at most 4.2 % more). */
#ifndef GW_WIRE_GAPS_H
#define GW_WIRE_GAPS_H

#include "wire/bits.h"

#include <gradwire/status.h>

#define GW_GAPS_MAX_BITS (1u << 18) /* of one string */

/* Appends a string of m <= GW_GAPS_MAX_BITS bits, `ones` of which are set. Returns how many bits that takes, also where the
 * writer had no room for them. Bits past m in the last word are 0. */
uint64_t gw_gaps_put(struct gw_bit_writer *writer, const uint64_t *string, uint32_t m, uint32_t ones);

/* Reads a string of m <= GW_GAPS_MAX_BITS bits; sets all ceil(m/64) words, and how many bits are ones. Refuses what no writer
 * can have written: another k, positions past m, an early end. */
gw_status gw_gaps_get(struct gw_bit_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones);

#endif
