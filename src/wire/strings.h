/* The bitmaps of one chunk, coded together near their entropy: docs/wire-format.md, section 6. A chunk's strings share
 * one set of the coder's states (wire/rans.h); of a string with few ones, or few zeros, the places are sent. Some bits,
 * such as signs, cannot be made smaller. The states carry these bits, so the states themselves cost almost nothing.
 *
 * The writer collects strings and codes them all at the end, from the last to the first; the reader reads one at a
 * time, from the first on. */
#ifndef GW_WIRE_STRINGS_H
#define GW_WIRE_STRINGS_H

#include "wire/bits.h"
#include "wire/rans.h"

#include <gradwire/context.h>

/* ---- writing ---------------------------------------------------------------------------------------- */

struct gw_string_note {
    size_t at; /* among the symbols */
    uint32_t m, rarer, last;
};

struct gw_strings_writer {
    uint8_t *symbols, *words, *head; /* of the collected strings; words in the making; fields and counts */
    size_t capacity, used, head_bytes;
    struct gw_string_note *notes;
    uint32_t n_notes, max_notes;
    struct gw_bit_writer fields;
    uint64_t n_field_bits, n_estimated; /* n_estimated: about how many bits the strings take */
    bool overfull;
};

/* Takes memory for chunks of at most max_strings strings that are neither all 0 nor all 1, of max_bits bits together,
 * and fields of max_field_bits. */
gw_status gw_strings_writer_init(gw_context *context, uint64_t max_bits, uint32_t max_strings, uint64_t max_field_bits,
                                 struct gw_strings_writer *writer);
void gw_strings_writer_fini(gw_context *context, struct gw_strings_writer *writer);

/* Begins a chunk. */
void gw_strings_begin(struct gw_strings_writer *writer);

/* A number of n_bits <= 32 bits, as it is. */
void gw_strings_field(struct gw_strings_writer *writer, uint32_t number, unsigned n_bits);

/* Where the next string of m bits may be written: room for ceil(m / 64) + 1 words. NULL: there is no room. */
uint64_t *gw_strings_room(struct gw_strings_writer *writer, uint32_t m);

/* Adds the string that was written there. It has m <= GW_RANS_MAX_BITS bits, and `ones` of them are set; bits past m
 * are 0. If ones is 0 or m, nothing needs to be written. */
void gw_strings_add(struct gw_strings_writer *writer, uint32_t m, uint32_t ones);

/* Adds a string from another place. */
void gw_strings_put(struct gw_strings_writer *writer, const uint64_t *string, uint32_t m, uint32_t ones);

/* Writes the chunk to dst if that takes at most `limit` bytes, with n_raw bits at `raw` that are sent as they are;
 * padding of raw's last byte is 0. Returns its size, also if that is above the limit; SIZE_MAX: the strings were more
 * than the writer has memory for. */
size_t gw_strings_finish(struct gw_strings_writer *writer, const void *raw, uint64_t n_raw, uint8_t *dst, size_t limit);

/* About how many bits a string takes that has m bits, `ones` of them set. The choice of lanes uses this number. */
uint64_t gw_strings_estimate(uint32_t m, uint32_t ones);

/* ---- reading ---------------------------------------------------------------------------------------- */

struct gw_strings_reader {
    struct gw_bit_reader fields;
    const uint8_t *begin, *end, *words; /* words are taken downwards from the end */
    uint32_t n_lanes;
    struct gw_rans_states states;
};

/* Begins to read a chunk of n_bytes bytes, which stay where they are until it is read. */
void gw_strings_open(struct gw_strings_reader *reader, const uint8_t *src, size_t n_bytes);

/* A number of n_bits <= 32 bits. Past the chunk's end it is 0; gw_strings_close tells. */
uint32_t gw_strings_number(struct gw_strings_reader *reader, unsigned n_bits);

/* Reads a string of m <= GW_RANS_MAX_BITS bits; sets all ceil(m / 64) words, and how many bits are ones. */
gw_status gw_strings_get(struct gw_strings_reader *reader, uint32_t m, uint64_t *string, uint32_t *ones);

/* Reads the next string of each of n <= GW_RANS_TOGETHER chunks. This is faster than one after the other. */
gw_status gw_strings_get_many(struct gw_strings_reader *readers, uint32_t n, const uint32_t *m,
                              uint64_t *const *strings, uint32_t *ones);

/* Bits of fields and words that have been read so far, those of the states included. */
uint64_t gw_strings_used(const struct gw_strings_reader *reader);

/* Ends a chunk: reads the n_raw bits that are sent as they are, and refuses bytes that are no end of a chunk. raw:
 * ceil(n_raw / 64) words. */
gw_status gw_strings_close(struct gw_strings_reader *reader, uint64_t n_raw, uint64_t *raw);

#endif
