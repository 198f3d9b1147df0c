/* Positions of the nonzero elements of a chunk, coded as Golomb-Rice gaps: the number of zeros before each nonzero,
 * q = gap >> k in unary (q zeros, a one), then the k low bits. For elements that are nonzero independently with
 * probability p gaps are geometric, and the best k takes at most 4.3 % more than the positions' entropy (p < 0.4). */
#ifndef GW_WIRE_GAPS_H
#define GW_WIRE_GAPS_H

#include <gradwire/status.h>
#include <stddef.h>
#include <stdint.h>

#define GW_GAPS_HEAD 4 /* bytes before the bits: k, then the number of nonzeros in 24 bits */
#define GW_GAPS_MAX_K 16

/* The parameter and exact size of the positions in nz[0..ceil(n/64)) (n <= GW_CHUNK elements; bits past n are 0). */
struct gw_gaps_plan {
    uint32_t count; /* nonzeros */
    uint8_t k;
    size_t bytes;   /* head and bits */
};
struct gw_gaps_plan gw_gaps_measure(const uint64_t *nz, uint32_t n, uint32_t count);

/* Writes plan->bytes bytes. */
void gw_gaps_write(const struct gw_gaps_plan *plan, const uint64_t *nz, uint32_t n, uint8_t *dst);

/* Reads positions of n elements into nz (all ceil(n/64) words set). *used: bytes taken. Refuses what a writer cannot have
 * written: positions past n, a k above GW_GAPS_MAX_K, padding that is not 0. */
gw_status gw_gaps_read(const uint8_t *src, size_t src_bytes, uint32_t n, uint64_t *nz, uint32_t *count, size_t *used);

#endif
