/* Writes and reads a stream of bits, lowest bit of the lowest byte first. */
#ifndef GW_WIRE_BITS_H
#define GW_WIRE_BITS_H

#include "wire/bytes.h"

struct gw_bit_writer {
    uint8_t *at, *end; /* the caller makes the buffer large enough; what does not fit before `end` is dropped */
    uint64_t word;
    unsigned fill; /* bits in `word`, below 8 between calls of gw_bits_put */
};

/* Appends the low `n` bits of `bits` (n <= 56, higher bits 0). */
static inline void gw_bits_put(struct gw_bit_writer *w, uint64_t bits, unsigned n)
{
    w->word |= bits << w->fill;
    w->fill += n;
    if (w->end - w->at >= 8) {
        gw_put64(w->at, w->word);
        unsigned whole = w->fill >> 3;
        w->at += whole;
        w->word = whole < 8 ? w->word >> (8 * whole) : 0;
        w->fill &= 7;
        return;
    }
    for (; w->fill >= 8; w->fill -= 8, w->word >>= 8)
        if (w->at < w->end)
            *w->at++ = (uint8_t)w->word;
}

/* Pads the last byte with zeros; returns where the next byte would stand. */
static inline uint8_t *gw_bits_finish(struct gw_bit_writer *w)
{
    while (w->fill && w->at < w->end) {
        *w->at++ = (uint8_t)w->word;
        w->word >>= 8;
        w->fill = w->fill > 8 ? w->fill - 8 : 0;
    }
    return w->at;
}

struct gw_bit_reader {
    const uint8_t *src;
    uint64_t n_bits, at;
};

/* At least the next 57 bits, zeros after the end. */
static inline uint64_t gw_bits_peek(const struct gw_bit_reader *r)
{
    uint64_t byte = r->at >> 3, n_bytes = r->n_bits >> 3;
    uint64_t word = n_bytes >= byte + 8 ? gw_get64(r->src + byte)
                    : byte < n_bytes    ? gw_get_partial(r->src + byte, (size_t)(n_bytes - byte))
                                        : 0;
    return word >> (r->at & 7);
}

#endif
