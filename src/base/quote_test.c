/* Tests text from outside in a line of a log: what it becomes, byte by byte. */
#include "base/quote.h"
#include "checks.h"

#include <string.h>

TEST(each_kind)
{
    static const struct {
        const char *in, *out;
    } cases[] = {{"", ""},
                 {"plain name/1", "plain name/1"},
                 {"a\"b", "a\\\"b"},
                 {"a\\b", "a\\\\b"},
                 {"\\x1b \\x1 \\", "\\x1b \\\\x1 \\\\"}, /* an error's sentence has been through gw_show before */
                 {"a\nb\r\t\x1b[31m\x7f", "a\\x0ab\\x0d\\x09\\x1b[31m\\x7f"},
                 {"\xc3\xa4 \xe4\xbd\xa0 \xf0\x9f\x98\x80", "\xc3\xa4 \xe4\xbd\xa0 \xf0\x9f\x98\x80"},
                 {"\xc2\xa0 \xf4\x8f\xbf\xbf", "\xc2\xa0 \xf4\x8f\xbf\xbf"}, /* the first and the last of many bytes */
                 {"\xff\xfe", "\\xff\\xfe"},
                 {"\xef\xbf\xbe", "\\xef\\xbf\\xbe"}, /* U+FFFE is no character */
                 {"\xc3", "\\xc3"},                   /* a character that is cut */
                 {"\xe4\xbd", "\\xe4\\xbd"},
                 {"\xf0\x9f\x98", "\\xf0\\x9f\\x98"},
                 {"\xc0\xaf", "\\xc0\\xaf"}, /* this is not the shortest form */
                 {"\xe0\x80\xaf", "\\xe0\\x80\\xaf"},
                 {"\xed\xa0\x80", "\\xed\\xa0\\x80"},          /* a surrogate */
                 {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond U+10FFFF */
                 {"\xc2\x9b"
                  "31m",
                  "\\xc2\\x9b"
                  "31m"},                              /* a control character of two bytes */
                 {"\xe2\x80\xae", "\\xe2\\x80\\xae"},  /* this turns the direction of writing */
                 {"\xe2\x80\xa8", "\\xe2\\x80\\xa8"}}; /* this ends a line */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        CHECK(strcmp(gw_quote(cases[i].in).text, cases[i].out) == 0, "case %zu: %s", i, gw_quote(cases[i].in).text);
    char shown[16];
    gw_show("a\n\"\xff", "", shown, sizeof shown);
    assert_string_equal(shown, "a\\x0a\"\\xff");
}

/* The text ends within its room, and not within a character. */
TEST(long_text_is_cut)
{
    char text[4 * GW_QUOTE_BYTES + 1];
    static const char *const units[] = {"x", "\"", "\xff", "\xc3\xa4", "\xf0\x9f\x98\x80"};
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        const size_t n = strlen(units[u]), each = strlen(gw_quote(units[u]).text);
        for (size_t i = 0; i + n < sizeof text; i += n)
            memcpy(text + i, units[u], n + 1);
        const struct gw_quoted out = gw_quote(text);
        CHECK(strlen(out.text) == (GW_QUOTE_BYTES - 1) / each * each, "unit %zu: %zu bytes", u, strlen(out.text));
    }
}

RUN_TESTS("quote", NULL, NULL)
