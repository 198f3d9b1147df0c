/* Tests the grammar of options: what is read, what is refused, and in which words. */
#include "base/spec.h"
#include "checks.h"

#include <locale.h>
#include <stdio.h>
#include <string.h>

struct taken {
    char text[200];
};

static const char *const keys[] = {"size", "ratio", "fast"};

static gw_status take(void *user, size_t key, const char *value)
{
    struct taken *t = user;
    size_t n = strlen(t->text);
    snprintf(t->text + n, sizeof t->text - n, "%s=%s;", keys[key], value ? value : "-");
    return GW_OK;
}

static struct gw_spec spec_of(struct taken *t, bool has_words)
{
    t->text[0] = 0;
    return (struct gw_spec){
        .what = "the thing", .keys = keys, .n_keys = 3, .has_words = has_words, .take = take, .user = t};
}

TEST(options_come_in_their_order)
{
    static const struct {
        const char *text, *taken;
        bool has_words;
    } cases[] = {{NULL, "", false},
                 {"", "", false},
                 {"ratio=2,size=x", "ratio=2;size=x;", false},
                 {"ratio=", "ratio=;", false},
                 {"ratio=a=b", "ratio=a=b;", false},
                 {"fast,size=1", "fast=-;size=1;", true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct taken t;
        struct gw_spec spec = spec_of(&t, cases[i].has_words);
        CHECK(gw_spec_parse(&spec, cases[i].text) == GW_OK && strcmp(t.text, cases[i].taken) == 0, "case %zu: %s", i,
              t.text);
    }
}

TEST(wrong_options_are_named)
{
    char longest[2113];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    const struct {
        const char *text, *says;
    } cases[] = {{",", "an option is empty"},
                 {"size=1,", "an option is empty"},
                 {"size=1,,ratio=2", "an option is empty"},
                 {"fast", "option 'fast' has no value"},
                 {"ration=1", "the thing has no option 'ration'; it has size, ratio, fast; did you mean 'ratio'?"},
                 {"=1", "has no option ''"},
                 {"size=1,ratio=2,size=3", "option 'size' is given twice"},
                 {longest, "2112 characters is too long; 2111 are possible"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct taken t;
        struct gw_spec spec = spec_of(&t, false);
        CHECK(gw_spec_parse(&spec, cases[i].text) == GW_ERR_SPEC && strstr(gw_last_error(), cases[i].says),
              "case %zu: %s", i, gw_last_error());
    }
}

TEST(numbers_are_decimal)
{
    static const char *const wrong[] = {"", "x", "1x", "0x10", "nan", "inf", "1e999", " ", "1,5", "11", "-1"};
    double x = 7;
    uint64_t n = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK(!gw_spec_number(wrong[i], 0, 10, &x) && x == 7, "number %s", wrong[i]);
        CHECK(!gw_spec_count(wrong[i], 0, 10, &n) && n == 7, "count %s", wrong[i]);
    }
    CHECK(gw_spec_number("1.5e0", 0, 10, &x) && x == 1.5, "%g", x);
    CHECK(!gw_spec_count("1.5", 0, 10, &n) && !gw_spec_count("+1", 0, 10, &n) && n == 7, "%u", (unsigned)n);
    CHECK(gw_spec_count("010", 0, 10, &n) && n == 10, "%u", (unsigned)n);
    CHECK(gw_spec_count("9", 0, 10, &n) && n == 9 && gw_spec_count("0", 0, 10, &n) && n == 0, "%u", (unsigned)n);
    CHECK(!gw_spec_count(":", 0, 10, &n) && !gw_spec_count("/", 0, 10, &n), "%u", (unsigned)n);
    /* Both limits are legal. */
    CHECK(gw_spec_count("3", 3, 10, &n) && n == 3 && !gw_spec_count("2", 3, 10, &n), "%u", (unsigned)n);
    CHECK(gw_spec_number("10", 3, 10, &x) && x == 10 && !gw_spec_number("10.1", 3, 10, &x), "%g", x);
    CHECK(gw_spec_number("3", 3, 10, &x) && x == 3 && !gw_spec_number("2.9", 3, 10, &x), "%g", x);
}

RUN_TESTS("spec", NULL, NULL)
