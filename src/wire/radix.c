#include "wire/radix.h"
#include "base/error.h"
#include "wire/bytes.h"

#include <stdbool.h>

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

/* Words of one byte, whole ones only. Returns digits written or read; they are what the entropy stage works on. */
static uint64_t write_bytes(const struct gw_radix *radix, const uint16_t *digits, uint64_t n, uint8_t *dst)
{
    uint32_t base = radix->base, d = radix->digits;
    uint64_t i = 0;
    if (d == 1)
        for (; i < n; i++)
            dst[i] = (uint8_t)digits[i];
    else if (d == 2)
        for (; i + 2 <= n; i += 2)
            dst[i / 2] = (uint8_t)(digits[i] + base * digits[i + 1]);
    else
        for (; i + d <= n; i += d) {
            uint32_t word = 0;
            for (uint32_t k = d; k-- > 0;)
                word = word * base + digits[i + k];
            *dst++ = (uint8_t)word;
        }
    return i;
}

/* UINT64_MAX: a byte is too large. */
static uint64_t read_bytes(const struct gw_radix *radix, const uint8_t *src, uint64_t n, uint16_t *digits)
{
    uint32_t base = radix->base, d = radix->digits, limit = 1;
    uint16_t table[256][8]; /* at most 8 digits: base 2 */
    for (uint32_t k = 0; k < d; k++)
        limit *= base;
    for (uint32_t byte = 0; byte < limit; byte++)
        for (uint32_t k = 0, rest = byte; k < d; k++, rest /= base)
            table[byte][k] = (uint16_t)(rest % base);
    uint64_t i = 0;
    for (; i + d <= n; i += d) {
        uint32_t byte = *src++;
        if (byte >= limit)
            return UINT64_MAX;
        for (uint32_t k = 0; k < d; k++)
            digits[i + k] = table[byte][k];
    }
    return i;
}

void gw_radix_write(const struct gw_radix *radix, const uint16_t *digits, uint64_t n, uint8_t *dst)
{
    uint32_t base = radix->base;
    if (radix->bytes == 1) {
        uint64_t done = write_bytes(radix, digits, n, dst);
        dst += done / radix->digits;
        digits += done;
        n -= done;
    }
    while (n) {
        uint32_t d = n < radix->digits ? (uint32_t)n : radix->digits;
        uint32_t bytes = d == radix->digits ? radix->bytes : bytes_for(base, d);
        wide word = 0;
        if (bytes <= 8) {
            uint64_t narrow = 0;
            for (uint32_t i = d; i-- > 0;)
                narrow = narrow * base + digits[i];
            word = narrow;
        } else {
            for (uint32_t i = d; i-- > 0;)
                word = word * base + digits[i];
        }
        for (uint32_t i = 0; i < bytes; i++)
            dst[i] = (uint8_t)(word >> 8 * i);
        dst += bytes;
        digits += d;
        n -= d;
    }
}

gw_status gw_radix_read(const struct gw_radix *radix, const uint8_t *src, uint64_t n, uint16_t *digits)
{
    uint32_t base = radix->base;
    bool fits = true;
    if (radix->bytes == 1 && n >= 512) { /* fewer do not pay for the table */
        uint64_t done = read_bytes(radix, src, n, digits);
        fits = done != UINT64_MAX;
        if (fits) {
            src += done / radix->digits;
            digits += done;
            n -= done;
        }
    }
    while (n && fits) {
        uint32_t d = n < radix->digits ? (uint32_t)n : radix->digits;
        uint32_t bytes = d == radix->digits ? radix->bytes : bytes_for(base, d);
        if (bytes <= 8) {
            uint64_t word = gw_get_partial(src, bytes);
            for (uint32_t i = 0; i < d; i++) {
                digits[i] = (uint16_t)(word % base);
                word /= base;
            }
            fits = word == 0;
        } else {
            wide word = 0;
            memcpy(&word, src, bytes);
            for (uint32_t i = 0; i < d; i++) {
                digits[i] = (uint16_t)(word % base);
                word /= base;
            }
            fits = word == 0;
        }
        src += bytes;
        digits += d;
        n -= d;
    }
    return fits ? GW_OK : gw_fail(GW_ERR_FRAME_PAYLOAD, "a packed number is too large for its digits of base %u", base);
}
