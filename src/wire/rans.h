/* An entropy coder for bitmaps: interleaved range asymmetric numeral systems (Duda, "Asymmetric numeral systems",
 * arXiv:1311.2540, 2013; section 3). docs/wire-format.md, section 6, has the format.
 *
 * A symbol is a byte of eight bits. All bytes with the same number of ones have the same frequency, so that a table has
 * nine of them, and both ends make it from the share of ones. A lane's state is a number from 2^16 to 2^32 - 1, kept in
 * two halves; it gives and takes words of 16 bits. So all arithmetic is on 16-bit numbers, which suits SIMD. */
#ifndef GW_WIRE_RANS_H
#define GW_WIRE_RANS_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How many symbols a row has. Kernels code symbol i of a row in lane i. */
#define GW_RANS_LANES 32

/* As many strings are decoded at a time, if there are kernels for that. */
#define GW_RANS_TOGETHER 4

/* The bits whose share of ones a table is made from. */
#define GW_RANS_MAX_BITS (1u << 18)

/* By class, which is the number of ones in a byte: 0 to 8; entries after the last class of a table are not used. */
struct gw_rans_table {
    uint32_t last;                   /* classes above it do not occur */
    uint16_t first[16];              /* cumulative frequency where the class begins */
    uint16_t each[16];               /* frequency of each of its bytes */
    uint16_t origin[16];             /* first - each * (position of the class's first byte), modulo 2^16 */
    uint16_t reciprocal[16];         /* 65536 / each, rounded down, at most 65535 */
    uint16_t scale[16], inverse[16]; /* a power of 2 that makes `each` at least 2^15; (2^32 - 1) / that - 2^16 */
};

struct gw_rans_states {
    uint16_t low[GW_RANS_LANES], high[GW_RANS_LANES];
};

/* For strings of m <= GW_RANS_MAX_BITS bits, 1 <= ones <= m / 2 of which are set, at most `last` (1..8) in a byte. */
void gw_rans_table_make(struct gw_rans_table *table, uint32_t m, uint32_t ones, uint32_t last);

/* A string that is decoded: where its symbols go, and its words, which end at `words` and may begin at `begin`. All of
 * it moves on with what was decoded. */
struct gw_rans_source {
    const struct gw_rans_table *table;
    uint8_t *symbols;
    struct gw_rans_states *states;
    const uint8_t *begin, *words;
};

/* The encoder works from the last symbol to the first and appends words; the decoder works from the first to the last
 * and takes words from the end. */
struct gw_rans {
    /* Codes n_rows rows of symbols, whose classes the table has. Room at `words`: 2 bytes a symbol and 64. Returns
     * where the next word goes. */
    uint8_t *(*encode)(const struct gw_rans_table *table, const uint8_t *symbols, uint32_t n_rows,
                       struct gw_rans_states *states, uint8_t *words);

    /* Decodes up to n_rows rows; nothing before source->begin is read. Returns how many rows: fewer if the next one
     * might take words, or read bytes, from before it. */
    uint32_t (*decode)(struct gw_rans_source *source, uint32_t n_rows);

    /* Decodes n_sources (2 to GW_RANS_TOGETHER) sources by turns, so that a row waits only for the row before it in its
     * own source. Returns how many rows of each were decoded. NULL: this instruction set has no such kernel. */
    uint32_t (*decode_many)(struct gw_rans_source *sources, uint32_t n_sources, uint32_t n_rows);
};

/* The same of n symbols, one by one on n_lanes lanes, a power of 2: symbol i is coded in lane i mod n_lanes. decode:
 * false if there are too few words. */
uint8_t *gw_rans_encode(const struct gw_rans_table *table, const uint8_t *symbols, uint32_t n, uint32_t n_lanes,
                        struct gw_rans_states *states, uint8_t *words);
bool gw_rans_decode(struct gw_rans_source *source, uint32_t n, uint32_t n_lanes);

/* The kernels of one instruction set. NULL: there are none; use the functions above. */
const struct gw_rans *gw_rans_for(enum gw_cpu cpu);

/* ---- what kernels share ---------------------------------------------------------------------- */

/* The order of all bytes: by their number of ones, then by value. And tables for masks of eight lanes, which say what a
 * kernel does with the words (2 bytes each) of the lanes in the mask. */
struct gw_rans_order {
    _Alignas(64) uint8_t position[256]; /* the place of each byte in the order */
    _Alignas(64) uint8_t byte[256];     /* the byte at each place */
    /* Each lane takes a word of the last eight words. This is where its two bytes stand there; 0x80: it takes none. */
    _Alignas(64) uint8_t shuffle[256][16];
    /* The lanes' words are appended, the highest lane first. This is where each appended byte comes from; 0x80: none.
     */
    _Alignas(64) uint8_t pack[256][16];
    /* the class of each byte; the place at which each class begins */
    uint8_t class_of[256], class_begin[16];
};
const struct gw_rans_order *gw_rans_order(void);

#endif
