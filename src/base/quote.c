/* Makes text that came from outside safe for a line of a log: it escapes quotes, control characters, and bytes that are
 * not UTF-8. */
#include "base/quote.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

size_t gw_shown_bytes(const char *text)
{
    const uint8_t *at = (const uint8_t *)text;
    if (at[0] < 0x80)
        return at[0] >= ' ' && at[0] != 0x7F;
    const size_t n = at[0] >= 0xF0 ? 4 : at[0] >= 0xE0 ? 3 : 2;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (at[0] < 0xC2 || at[0] > 0xF4)
        return 0;
    uint32_t character = at[0] & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((at[i] & 0xC0) != 0x80)
            return 0;
        character = character << 6 | (at[i] & 0x3F);
    }
    /* U+0080 to U+009F are controls. U+2028 and U+2029 end a line. U+202A to U+202E and U+2066 to U+2069 change the
     * direction of a line. */
    const bool acts = character < 0xA0 || (character >= 0x2028 && character <= 0x202E) ||
                      (character >= 0x2066 && character <= 0x2069);
    const bool wrong = character < least[n] || (character >= 0xD800 && character <= 0xDFFF) || character > 0x10FFFF ||
                       character == 0xFFFE || character == 0xFFFF;
    return acts || wrong ? 0 : n;
}

/* True for \xNN, as gw_show writes a byte. Another backslash before it would hide that. */
static bool is_shown_byte(const char *at)
{
    return at[0] == '\\' && at[1] == 'x' && isxdigit((uint8_t)at[2]) && isxdigit((uint8_t)at[3]);
}

void gw_show(const char *text, const char *marked, char *out, size_t capacity)
{
    size_t used = 0;
    for (const char *at = text; *at;) {
        char piece[8];
        size_t n = gw_shown_bytes(at), taken = n ? n : 1, length = n;
        if (n == 0)
            length = (size_t)snprintf(piece, sizeof piece, "\\x%02x", (unsigned)(uint8_t)*at);
        else if (strchr(marked, *at) && !is_shown_byte(at))
            length = (size_t)snprintf(piece, sizeof piece, "\\%c", *at);
        else
            memcpy(piece, at, n);
        if (used + length >= capacity)
            break;
        memcpy(out + used, piece, length);
        used += length;
        at += taken;
    }
    out[used] = 0;
}

struct gw_quoted gw_quote(const char *text)
{
    struct gw_quoted out;
    gw_show(text, "\"\\", out.text, sizeof out.text);
    return out;
}
