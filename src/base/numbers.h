/* Numbers as people write them: 4096, 64Ki, 25M, 0.5, 1e-3. Everything that reads numbers from text calls these. The C
 * library's functions alone take too much: blanks, signs, hexadecimal numbers, "nan", and numbers that do not fit. */
#ifndef GW_BASE_NUMBERS_H
#define GW_BASE_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Reads the decimal digits at *at, and moves *at behind them. No sign, no blanks. False: there is no digit, or the
 * number is above `most`; nothing has changed then. */
bool gw_read_whole(const char **at, uint64_t most, uint64_t *out);

/* The same for all of `text`. */
bool gw_parse_whole(const char *text, uint64_t most, uint64_t *out);

/* Reads the decimal number at *at, such as -1.5e3, and moves *at behind it. False: there is none, or it is not finite;
 * nothing has changed then. */
bool gw_read_decimal(const char **at, double *out);

/* The same for all of `text`. */
bool gw_parse_decimal(const char *text, double *out);

/* The shortest decimal number that reads as x again: 0.9, and not 0.90000000000000002. x is finite. */
struct gw_decimal {
    char text[32];
};
struct gw_decimal gw_decimal_of(double x);

/* Decimal digits and an optional K, M, G (thousands) or Ki, Mi, Gi (1024s). All of `text`; false if it is no such
 * number, or does not fit. */
bool gw_parse_number(const char *text, uint64_t *out);

/* The same, and a B may follow: 25MB, 25MiB. */
bool gw_parse_bytes(const char *text, uint64_t *out);

#endif
