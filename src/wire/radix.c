#include "wire/radix.h"
#include "base/error.h"
#include "wire/bytes.h"

__extension__ typedef unsigned __int128 wide; /* a word of up to 16 bytes */

/* The most digits that fit `bytes` bytes: the largest d with base^d <= 256^bytes. */
static uint32_t digits_in(uint32_t base, uint32_t bytes)
{
    uint32_t digits = 0;
    /* base^d <= 256^bytes  <=>  the largest number, base^d - 1, is at most 256^bytes - 1. */
    wide limit = bytes == 16 ? ~(wide)0 : ((wide)1 << 8 * bytes) - 1;
    wide largest = 0; /* base^digits - 1 */
    for (;;) {
        if (limit < base - 1 || largest > (limit - (base - 1)) / base) /* largest * base + base - 1 > limit */
            return digits;
        largest = largest * base + (base - 1);
        digits++;
    }
}

static uint32_t bytes_for(uint32_t base, uint32_t digits)
{
    uint32_t bytes = 0;
    while (digits_in(base, bytes) < digits)
        bytes++;
    return bytes;
}

struct gw_radix gw_radix_tight(uint32_t base)
{
    struct gw_radix best = {.base = base};
    for (uint32_t bytes = 1; bytes <= 16; bytes++) {
        uint32_t digits = digits_in(base, bytes);
        /* bytes/digits < best.bytes/best.digits, in integers */
        if (digits && (!best.digits || bytes * best.digits < best.bytes * digits)) {
            best.digits = digits;
            best.bytes = bytes;
        }
    }
    return best;
}

struct gw_radix gw_radix_bytewise(uint32_t base)
{
    struct gw_radix radix = {.base = base, .digits = digits_in(base, 1), .bytes = 1};
    if (!radix.digits) {
        radix.digits = 1;
        radix.bytes = 2;
    }
    return radix;
}

size_t gw_radix_bytes(const struct gw_radix *radix, uint64_t n)
{
    return (size_t)(n / radix->digits * radix->bytes) + bytes_for(radix->base, (uint32_t)(n % radix->digits));
}

void gw_radix_write(const struct gw_radix *radix, const uint16_t *digits, uint64_t n, uint8_t *dst)
{
    uint32_t base = radix->base;
    while (n) {
        uint32_t d = n < radix->digits ? (uint32_t)n : radix->digits;
        uint32_t bytes = d == radix->digits ? radix->bytes : bytes_for(base, d);
        if (bytes <= 8) {
            uint64_t word = 0;
            for (uint32_t i = d; i-- > 0;)
                word = word * base + digits[i];
            memcpy(dst, &word, bytes);
        } else {
            wide word = 0;
            for (uint32_t i = d; i-- > 0;)
                word = word * base + digits[i];
            memcpy(dst, &word, bytes);
        }
        dst += bytes;
        digits += d;
        n -= d;
    }
}

gw_status gw_radix_read(const struct gw_radix *radix, const uint8_t *src, uint64_t n, uint16_t *digits)
{
    uint32_t base = radix->base;
    while (n) {
        uint32_t d = n < radix->digits ? (uint32_t)n : radix->digits;
        uint32_t bytes = d == radix->digits ? radix->bytes : bytes_for(base, d);
        wide rest;
        if (bytes <= 8) {
            uint64_t word = gw_get_partial(src, bytes);
            for (uint32_t i = 0; i < d; i++) {
                digits[i] = (uint16_t)(word % base);
                word /= base;
            }
            rest = word;
        } else {
            wide word = 0;
            memcpy(&word, src, bytes);
            for (uint32_t i = 0; i < d; i++) {
                digits[i] = (uint16_t)(word % base);
                word /= base;
            }
            rest = word;
        }
        if (rest)
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "a packed number is too large for %u digits of base %u", d, base);
        src += bytes;
        digits += d;
        n -= d;
    }
    return GW_OK;
}
