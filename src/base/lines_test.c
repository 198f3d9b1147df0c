/* Tests lines of text that members must have alike: which texts are good, and where two differ first. */
#include "base/lines.h"
#include "checks.h"

#include <string.h>

TEST(no_control_characters)
{
    char text[] = "a b\n";
    for (int c = 0; c < 256; c++) {
        text[1] = (char)c;
        CHECK(gw_lines_are_good(text, 4) == (c == '\n' || (c >= ' ' && c != 127)), "character %d", c);
    }
    assert_true(gw_lines_are_good("", 0));
    assert_true(gw_lines_are_good("\n", 1));
    assert_false(gw_lines_are_good("a", 1));
    assert_false(gw_lines_are_good("a\nb", 3));
    assert_true(gw_lines_are_good("a\nb\n", 4));
}

TEST(lines_with_names)
{
    static const struct {
        const char *text;
        bool named;
    } cases[] = {{"", true},        {"a = 1\n", true}, {"a=\n", true}, {"  a = 1\n", true},   {"= 1\n", false},
                 {" = 1\n", false}, {"a 1\n", false},  {"\n", false},  {"a = 1\nb\n", false}, {"b\na = 1\n", false},
                 {"a\n=\n", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(gw_lines_have_names(cases[i].text, strlen(cases[i].text)) == cases[i].named, "\"%s\"", cases[i].text);
}

#define END "123456789012345678901234567890"
#define MANY "1234567890" END END END

TEST(the_first_difference)
{
    static const struct {
        const char *first, *second, *line, *other; /* NULL: they do not differ */
        size_t name;
    } cases[] = {
        {"", "", NULL, NULL, 0},
        {"a = 1\n", "a = 1\n", NULL, NULL, 0},
        {"a = 1\n", "a = 2\n", "a = 1", "a = 2", 1},
        {"a = 1\nbc = 1\n", "a = 1\nbc = 12\n", "bc = 1", "bc = 12", 2},
        {"a = 1\n", "b = 1\n", "a = 1", "b = 1", 0},
        {"a = 1\n", "ab = 1\n", "a = 1", "ab = 1", 0},
        {"a = 1\nb = 2\n", "a = 1\n", "b = 2", "nothing in its place", 0},
        {"a = 1\n", "a = 1\nb = 2\n", "nothing in its place", "b = 2", 0},
        {"ab\n", "ac\n", "ab", "ac", 0},
        {"codec = c:" MANY ",m=0,o=1\n", "codec = c:" MANY ",m=0.5,o=1\n", "codec ...m=0,o=1", "codec ...m=0.5,o=1", 5},
        {"data = /" MANY "\n", "data = /" MANY "x\n", "data ..." END, "data ..." END "x", 4},
        {MANY MANY "a\n", MANY MANY "b\n", " ..." END "a", " ..." END "b", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gw_lines_difference difference;
        const bool differ = gw_lines_differ(cases[i].first, strlen(cases[i].first), cases[i].second,
                                            strlen(cases[i].second), &difference);
        CHECK(differ == (cases[i].line != NULL), "case %zu", i);
        if (!differ)
            continue;
        assert_string_equal(difference.first, cases[i].line);
        assert_string_equal(difference.second, cases[i].other);
        assert_int_equal(gw_lines_name(&difference), cases[i].name);
    }
}

TEST(long_lines_are_cut)
{
    struct gw_lines_difference difference;
    char first[GW_LINES_SHOWN + 3], second[GW_LINES_SHOWN + 3];
    memset(first, 'a', sizeof first);
    memset(second, 'a', sizeof second);
    first[sizeof first - 1] = second[sizeof second - 1] = '\n';
    assert_false(gw_lines_differ(first, sizeof first, second, sizeof second, &difference));
    second[0] = 'b';
    assert_true(gw_lines_differ(first, sizeof first, second, sizeof second, &difference));
    assert_int_equal(strlen(difference.first), GW_LINES_SHOWN);
    assert_int_equal(strlen(difference.second), GW_LINES_SHOWN);
    assert_true(difference.first[0] == 'a' && difference.second[0] == 'b');
}

RUN_TESTS("lines", NULL, NULL)
