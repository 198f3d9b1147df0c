/* Makes text that came from outside safe between quotes in a line of a log. */
#ifndef GW_BASE_QUOTE_H
#define GW_BASE_QUOTE_H

#define GW_QUOTE_BYTES 768

struct gw_quoted {
    char text[GW_QUOTE_BYTES];
};

/* Makes a text safe. UTF-8 stays as it is. A quote and a backslash get a backslash before them. Bytes that are not
 * UTF-8, and control characters, become \xNN. A text that is too long is cut, but never inside a character. Any thread
 * may call it. */
struct gw_quoted gw_quote(const char *text);

#endif
