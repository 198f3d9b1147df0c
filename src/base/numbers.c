/* Reads numbers: whole ones with and without units, and decimal ones. */
#include "base/numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool gw_read_whole(const char **at, uint64_t most, uint64_t *out)
{
    const char *text = *at;
    uint64_t value = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value) || value > most)
            return false;
    if (text == *at)
        return false;
    *at = text;
    *out = value;
    return true;
}

bool gw_parse_whole(const char *text, uint64_t most, uint64_t *out)
{
    uint64_t value;
    if (!gw_read_whole(&text, most, &value) || *text)
        return false;
    *out = value;
    return true;
}

bool gw_read_decimal(const char **at, double *out)
{
    char *end;
    const size_t length = strspn(*at, "0123456789.+-eE");
    const double value = length ? strtod(*at, &end) : 0;
    if (length == 0 || end != *at + length || !isfinite(value))
        return false;
    *at = end;
    *out = value;
    return true;
}

bool gw_parse_decimal(const char *text, double *out)
{
    double value;
    if (!gw_read_decimal(&text, &value) || *text)
        return false;
    *out = value;
    return true;
}

bool gw_parse_number(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = {{"", 1},           {"K", 1000},        {"M", 1000000},
                 {"G", 1000000000}, {"Ki", 1ull << 10}, {"Mi", 1ull << 20},
                 {"Gi", 1ull << 30}};
    uint64_t value;
    if (!gw_read_whole(&text, UINT64_MAX, &value))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(text, units[i].suffix) == 0)
            return !__builtin_mul_overflow(value, units[i].factor, out);
    return false;
}

bool gw_parse_bytes(const char *text, uint64_t *out)
{
    char number[32];
    const size_t length = strlen(text), kept = length - (length > 1 && text[length - 1] == 'B');
    if (kept >= sizeof number)
        return false;
    memcpy(number, text, kept);
    number[kept] = 0;
    return gw_parse_number(number, out);
}

struct gw_decimal gw_decimal_of(double x)
{
    struct gw_decimal decimal;
    double again = 0;
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(decimal.text, sizeof decimal.text, "%.*g", digits, x);
        if (gw_parse_decimal(decimal.text, &again) && again == x)
            break;
    }
    return decimal;
}
