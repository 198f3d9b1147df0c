/* Compares lines of text that several members must have alike, and finds the first line that differs. It also refuses
 * text with control characters. */
#include "base/lines.h"

#include <stdio.h>
#include <string.h>

size_t gw_lines_mark(const char *text, size_t n_bytes)
{
    return n_bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

bool gw_lines_are_good(const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char c = (unsigned char)text[i];
        if ((c < 32 && c != '\n') || c == 127)
            return false;
    }
    return n_bytes == 0 || text[n_bytes - 1] == '\n';
}

/* Takes a line off the front of a text, without its line feed. */
static bool next_line(const char **text, size_t *n_bytes, const char **line, int *length)
{
    const char *end = *n_bytes ? memchr(*text, '\n', *n_bytes) : NULL;
    *line = "nothing in its place";
    *length = (int)strlen(*line);
    if (!end)
        return false;
    *line = *text;
    *length = (int)(end - *text);
    *n_bytes -= (size_t)(end + 1 - *text);
    *text = end + 1;
    return true;
}

bool gw_lines_have_names(const char *text, size_t n_bytes)
{
    const char *line, *equals;
    int length;
    while (next_line(&text, &n_bytes, &line, &length)) {
        size_t name = strspn(line, " ");
        equals = memchr(line, '=', (size_t)length);
        if (!equals || (size_t)(equals - line) <= name)
            return false;
    }
    return true;
}

/* Where two lines begin that a sentence is to show so that it shows what differs: with the option that differs, if they
 * are long and begin alike. */
static int begin_of(const char *a, int a_length, const char *b, int b_length)
{
    int same = 0, from;
    while (same < a_length && same < b_length && a[same] == b[same])
        same++;
    for (from = same; from > 0 && a[from - 1] != ',';)
        from--;
    return same < GW_LINES_SHOWN / 2 ? 0 : from > 0 ? from : same - GW_LINES_SHOWN / 4;
}

/* Shows a line from there on, behind its name. */
static void show(char out[GW_LINES_SHOWN + 1], const char *line, int length, int from)
{
    const char *space = memchr(line, ' ', (size_t)from);
    snprintf(out, GW_LINES_SHOWN + 1, "%.*s%s%.*s", space ? (int)(space - line) : 0, line, from ? " ..." : "",
             length - from, line + from);
}

bool gw_lines_differ(const char *first, size_t n_first, const char *second, size_t n_second,
                     struct gw_lines_difference *out)
{
    for (;;) {
        const char *a, *b;
        int a_length, b_length;
        bool more = next_line(&first, &n_first, &a, &a_length);
        more |= next_line(&second, &n_second, &b, &b_length);
        if (!more)
            return false;
        if (a_length != b_length || memcmp(a, b, (size_t)a_length) != 0) {
            const int from = begin_of(a, a_length, b, b_length);
            show(out->first, a, a_length, from);
            show(out->second, b, b_length, from);
            return true;
        }
    }
}

size_t gw_lines_name(const struct gw_lines_difference *difference)
{
    const size_t n = strcspn(difference->first, " ");
    return difference->first[n] && strncmp(difference->first, difference->second, n + 1) == 0 ? n : 0;
}
