/* Writes a text piece by piece into an array of fixed size, never past its end. */
#ifndef GW_BASE_APPEND_H
#define GW_BASE_APPEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Appends to `text`, which ends with a 0 and lies in an array of `capacity` bytes. If there is no room for all of it,
 * the text is cut and ends with "...". More pieces then change nothing. format: as of printf. */
__attribute__((format(printf, 3, 4))) void gw_append(char *text, size_t capacity, const char *format, ...);

/* Names the ranks below `size` for which is_there is false: "rank 3", "ranks 1 and 4", or the first eight and "and 37
 * more". "": there are none. */
#define GW_MISSING_BYTES 320
struct gw_missing {
    char text[GW_MISSING_BYTES];
};
struct gw_missing gw_missing_ranks(uint32_t size, bool (*is_there)(const void *all, uint32_t rank), const void *all);

#endif
