/* Reads whole numbers with units. */
#include "base/numbers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool gw_parse_number(const char *text, uint64_t *out)
{
    static const struct {
        const char *suffix;
        uint64_t factor;
    } units[] = {{"", 1},           {"K", 1000},        {"M", 1000000},
                 {"G", 1000000000}, {"Ki", 1ull << 10}, {"Mi", 1ull << 20},
                 {"Gi", 1ull << 30}};
    if (*text < '0' || *text > '9')
        return false;
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    if (errno)
        return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (strcmp(end, units[i].suffix) == 0)
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
