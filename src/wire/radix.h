/* Digits 0..base-1 packed as little-endian numbers in that base: `digits` of them in `bytes` bytes, the first one the least
 * significant. */
#ifndef GW_WIRE_RADIX_H
#define GW_WIRE_RADIX_H

#include <gradwire/status.h>
#include <stddef.h>
#include <stdint.h>

struct gw_radix {
    uint32_t base;   /* 2 .. 65535 */
    uint32_t digits; /* per word */
    uint32_t bytes;  /* of a word, 1..36 */
};

/* The word of at most 16 bytes (36 for bases above 184) that wastes least, below 3 %; the shortest of those. Base 3 gives 5
 * digits in a byte (1.6 bits). */
struct gw_radix gw_radix_tight(uint32_t base);

/* As many digits as fit one byte, or one digit in two bytes for bases above 256: what an entropy stage likes, since each
 * byte then holds whole digits. */
struct gw_radix gw_radix_bytewise(uint32_t base);

/* Bytes for n digits; the last word is as short as its digits allow. */
size_t gw_radix_bytes(const struct gw_radix *radix, uint64_t n);

void gw_radix_write(const struct gw_radix *radix, const uint16_t *digits, uint64_t n, uint8_t *dst);

/* Reads n digits from exactly gw_radix_bytes() bytes; refuses words above base^digits - 1. */
gw_status gw_radix_read(const struct gw_radix *radix, const uint8_t *src, uint64_t n, uint16_t *digits);

#endif
