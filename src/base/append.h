/* Writes a text piece by piece into an array of fixed size, never past its end. */
#ifndef GW_BASE_APPEND_H
#define GW_BASE_APPEND_H

#include <stddef.h>

/* Appends to `text`, which ends with a 0 and lies in an array of `capacity` bytes. If there is no room for all of it,
 * the text is cut and ends with "...". More pieces then change nothing. format: as of printf. */
__attribute__((format(printf, 3, 4))) void gw_append(char *text, size_t capacity, const char *format, ...);

#endif
