/* Makes text that came from outside safe between quotes in a line of a log. */
#ifndef GW_BASE_QUOTE_H
#define GW_BASE_QUOTE_H

#include <stddef.h>

#define GW_QUOTE_BYTES 768

struct gw_quoted {
    char text[GW_QUOTE_BYTES];
};

/* Writes a text to `out`, of `capacity` bytes, as a terminal may show it, in one line. Bytes that are not UTF-8, and
 * control characters, become \xNN. Bytes in `marked` get a backslash before them. A text that is too long is cut, but
 * never inside a character. Any thread may call it. */
void gw_show(const char *text, const char *marked, char *out, size_t capacity);

/* The same for a text between quotes: a quote and a backslash get a backslash before them, but not the backslash of
 * \xNN, which stands for a byte already. */
struct gw_quoted gw_quote(const char *text);

/* How many bytes the UTF-8 character at `text` has (RFC 3629: the shortest form, no surrogates, up to U+10FFFF). 0: no
 * character is there that may be shown; XML allows all others. A byte is read only if the bytes before it fit, so the
 * end of the text is never passed. Any thread may call it. */
size_t gw_shown_bytes(const char *text);

#endif
