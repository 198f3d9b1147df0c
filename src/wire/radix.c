#include "wire/radix.h"
#include "base/error.h"
#include "wire/bytes.h"

#include <stdbool.h>

__extension__ typedef unsigned __int128 wide;

/* A word while it is put together or taken apart: limbs, lowest first, and room for one digit more than the longest has. */
struct word {
    uint64_t limb[5];
};
#define MOST_BYTES 36

static uint32_t limbs_of(uint32_t bytes)
{
    return (bytes + 7) / 8;
}

/* word = word * m + a */
static void multiply_add(struct word *word, uint32_t n_limbs, uint64_t m, uint64_t a)
{
    for (uint32_t i = 0; i < n_limbs; i++) {
        wide x = (wide)word->limb[i] * m + a;
        word->limb[i] = (uint64_t)x;
        a = (uint64_t)(x >> 64);
    }
}

/* word = word / m; returns the rest */
static uint64_t divide(struct word *word, uint32_t n_limbs, uint64_t m)
{
    uint64_t rest = 0;
    for (uint32_t i = n_limbs; i-- > 0;) {
        wide x = (wide)rest << 64 | word->limb[i];
        word->limb[i] = (uint64_t)(x / m);
        rest = (uint64_t)(x % m);
    }
    return rest;
}

/* Bytes of `largest`, which is base^digits - 1, once it is one digit longer. */
static uint32_t add_digit(struct word *largest, uint32_t base)
{
    multiply_add(largest, 5, base, base - 1);
    uint32_t i = 4;
    while (i && !largest->limb[i])
        i--;
    return 8 * i + (71 - (uint32_t)__builtin_clzll(largest->limb[i])) / 8;
}

static uint32_t bytes_for(uint32_t base, uint32_t digits)
{
    struct word largest = {{0}};
    uint32_t bytes = 0;
    for (uint32_t d = 0; d < digits; d++)
        bytes = add_digit(&largest, base);
    return bytes;
}

struct gw_radix gw_radix_tight(uint32_t base)
{
    struct gw_radix best = {.base = base};
    struct word largest = {{0}};
    /* 17 digits of bases above 184 just do not fit 16 bytes. */
    uint32_t most_bytes = base > 184 ? MOST_BYTES : 16;
    for (uint32_t digits = 1;; digits++) {
        uint32_t bytes = add_digit(&largest, base);
        if (bytes > most_bytes)
            return best;
        /* bytes/digits < best.bytes/best.digits, in integers */
        if (!best.digits || bytes * best.digits < best.bytes * digits) {
            best.digits = digits;
            best.bytes = bytes;
        }
    }
}

struct gw_radix gw_radix_bytewise(uint32_t base)
{
    struct gw_radix radix = {.base = base, .digits = 1, .bytes = bytes_for(base, 1)};
    while (bytes_for(base, radix.digits + 1) == 1)
        radix.digits++;
    return radix;
}

size_t gw_radix_bytes(const struct gw_radix *radix, uint64_t n)
{
    return (size_t)(n / radix->digits * radix->bytes) + bytes_for(radix->base, (uint32_t)(n % radix->digits));
}

/* Digits of long words are worked on some at a time: as many as fit seven bytes, so that `power`, base to that, fits a limb. */
static uint32_t digits_at_a_time(uint32_t base, uint64_t *power)
{
    uint32_t digits = 0;
    for (*power = 1; *power <= (1ull << 56) / base; *power *= base)
        digits++;
    return digits;
}

static void write_long(uint32_t base, const uint16_t *digits, uint32_t n, uint32_t bytes, uint8_t *dst)
{
    struct word word = {{0}};
    uint64_t power;
    uint32_t part = digits_at_a_time(base, &power), n_limbs = limbs_of(bytes);
    for (uint32_t begin = (n - 1) / part * part, end = n;; end = begin, begin -= part) {
        uint64_t narrow = 0;
        for (uint32_t i = end; i-- > begin;)
            narrow = narrow * base + digits[i];
        multiply_add(&word, n_limbs, power, narrow);
        if (!begin)
            break;
    }
    memcpy(dst, word.limb, bytes);
}

/* Returns whether the word is not too large. */
static bool read_long(uint32_t base, const uint8_t *src, uint32_t bytes, uint32_t n, uint16_t *digits)
{
    struct word word = {{0}};
    uint64_t power;
    uint32_t part = digits_at_a_time(base, &power), n_limbs = limbs_of(bytes);
    memcpy(word.limb, src, bytes);
    for (uint32_t begin = 0; begin < n; begin += part) {
        uint32_t end = n - begin < part ? n : begin + part;
        uint64_t narrow = divide(&word, n_limbs, power);
        for (uint32_t i = begin; i < end; i++) {
            digits[i] = (uint16_t)(narrow % base);
            narrow /= base;
        }
        if (narrow)
            return false;
    }
    for (uint32_t i = 0; i < n_limbs; i++)
        if (word.limb[i])
            return false;
    return true;
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
        if (bytes <= 8) {
            uint64_t word = 0;
            for (uint32_t i = d; i-- > 0;)
                word = word * base + digits[i];
            for (uint32_t i = 0; i < bytes; i++)
                dst[i] = (uint8_t)(word >> 8 * i);
        } else {
            write_long(base, digits, d, bytes, dst);
        }
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
            fits = read_long(base, src, bytes, d, digits);
        }
        src += bytes;
        digits += d;
        n -= d;
    }
    return fits ? GW_OK : gw_fail(GW_ERR_FRAME_PAYLOAD, "a packed number is too large for its digits of base %u", base);
}
