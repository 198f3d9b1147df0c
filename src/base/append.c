/* Appends to a text in an array of fixed size. */
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
