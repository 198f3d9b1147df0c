/* Reads lines of text. Compares lines "name = value" and "name value" that must be the same on several members. */
#ifndef GW_BASE_LINES_H
#define GW_BASE_LINES_H

#include <stdbool.h>
#include <stddef.h>

#define GW_LINES_SHOWN 120 /* characters of a line that a sentence shows */

struct gw_lines_difference {
    char first[GW_LINES_SHOWN + 1], second[GW_LINES_SHOWN + 1]; /* the first line that differs, of either text */
};

/* How many bytes of mark a text begins with: editors on Windows put three there to say that it is UTF-8. */
size_t gw_lines_mark(const char *text, size_t n_bytes);

/* True if each line ends with a line feed, and no line holds control characters. */
bool gw_lines_are_good(const char *text, size_t n_bytes);

/* True if each line of a text that passed gw_lines_are_good is "name = value", with a name and "=". If two texts
 * differ, a line without a name would not help the reader. */
bool gw_lines_have_names(const char *text, size_t n_bytes);

/* True if two texts differ. Tells the first line that does. */
bool gw_lines_differ(const char *first, size_t n_first, const char *second, size_t n_second,
                     struct gw_lines_difference *out);

/* The length of the name that both lines of a difference begin with, up to the space behind it; 0: they have two. */
size_t gw_lines_name(const struct gw_lines_difference *difference);

#endif
