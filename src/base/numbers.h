/* Whole numbers as people write them: 4096, 64Ki, 25M. */
#ifndef GW_BASE_NUMBERS_H
#define GW_BASE_NUMBERS_H

#include <stdbool.h>
#include <stdint.h>

/* Decimal digits and an optional K, M, G (thousands) or Ki, Mi, Gi (1024s). All of `text`; false if it is no such
 * number, or does not fit. */
bool gw_parse_number(const char *text, uint64_t *out);

/* The same, and a B may follow: 25MB, 25MiB. */
bool gw_parse_bytes(const char *text, uint64_t *out);

#endif
