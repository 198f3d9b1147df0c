/* Appends to a text in an array of fixed size, and lists ranks. */
#include "base/append.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void gw_append(char *text, size_t capacity, const char *format, ...)
{
    const size_t used = strnlen(text, capacity);
    if (used == capacity)
        return;
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(text + used, capacity - used, format, arguments);
    va_end(arguments);
    if (n >= 0 && (size_t)n >= capacity - used && capacity > 3)
        memcpy(text + capacity - 4, "...", 4);
}

struct gw_missing gw_missing_ranks(uint32_t size, bool (*is_there)(const void *all, uint32_t rank), const void *all)
{
    enum { LISTED = 8 };
    struct gw_missing out = {""};
    uint32_t n = 0, listed = 0;
    for (uint32_t r = 0; r < size; r++)
        n += !is_there(all, r);
    if (n > 0)
        gw_append(out.text, sizeof out.text, n == 1 ? "rank" : "ranks");
    for (uint32_t r = 0; r < size && listed < LISTED; r++)
        if (!is_there(all, r)) {
            listed++;
            gw_append(out.text, sizeof out.text, "%s %u", listed == 1 ? "" : listed == n ? " and" : ",", r);
        }
    if (n > LISTED)
        gw_append(out.text, sizeof out.text, " and %u more", n - LISTED);
    return out;
}
