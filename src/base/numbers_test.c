/* Tests how whole numbers with units are read. */
#include "base/numbers.h"
#include "checks.h"

#include <stdlib.h>

struct reading {
    const char *text;
    bool fits;
    uint64_t value;
};

TEST(test_numbers)
{
    static const struct reading cases[] = {
        {"0", true, 0},
        {"007", true, 7},
        {"9", true, 9},
        {"3K", true, 3000},
        {"3M", true, 3000000},
        {"3G", true, 3000000000},
        {"3Ki", true, 3072},
        {"3Mi", true, 3145728},
        {"3Gi", true, 3221225472},
        {"18446744073709551615", true, UINT64_MAX},
        {"17179869183Gi", true, UINT64_MAX - (1u << 30) + 1},
        {"18446744073709551616", false, 0},
        {"17179869184Gi", false, 0},
        {"", false, 0},
        {"K", false, 0},
        {"-1", false, 0},
        {"+1", false, 0},
        {" 1", false, 0},
        {"1 ", false, 0},
        {"1 K", false, 0},
        {"1k", false, 0},
        {"1KiK", false, 0},
        {"1B", false, 0},
        {"1.5K", false, 0},
        {"0x10", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t value = 0;
        const bool fits = gw_parse_number(cases[i].text, &value);
        CHECK(fits == cases[i].fits && (!fits || value == cases[i].value), "\"%s\" is %d, %llu", cases[i].text, fits,
              (unsigned long long)value);
    }
}

TEST(test_bytes)
{
    static const struct reading cases[] = {
        {"25", true, 25},
        {"25B", true, 25},
        {"25MB", true, 25000000},
        {"25MiB", true, 26214400},
        {"25Mi", true, 26214400},
        {"0000000000000000000000000000001", true, 1}, /* with its end, it just fills the place for the digits */
        {"0000000000000000000000000000001B", true, 1},
        {"00000000000000000000000000000001", false, 0},
        {"", false, 0},
        {"B", false, 0},
        {"25BB", false, 0},
        {"25b", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t value = 0;
        const bool fits = gw_parse_bytes(cases[i].text, &value);
        CHECK(fits == cases[i].fits && (!fits || value == cases[i].value), "\"%s\" is %d, %llu", cases[i].text, fits,
              (unsigned long long)value);
    }
}

TEST(test_strict_numbers)
{
    static const char *const no_numbers[] = {"",    "x",   " 1",    "1 ",  "0x10", "0x1p3",   "nan",
                                             "inf", "INF", "1e999", "1,5", "1..2", "1-2",     "--1",
                                             "e5",  "1e",  ".",     "-",   "1f",   "infinity"};
    double x = 7;
    uint64_t n = 7;
    for (size_t i = 0; i < sizeof no_numbers / sizeof *no_numbers; i++) {
        CHECK(!gw_parse_decimal(no_numbers[i], &x) && x == 7, "\"%s\" is %g", no_numbers[i], x);
        CHECK(!gw_parse_whole(no_numbers[i], UINT64_MAX, &n) && n == 7, "\"%s\"", no_numbers[i]);
    }
    CHECK(gw_parse_decimal("-1.5e-3", &x) && x == -1.5e-3, "%g", x);
    CHECK(gw_parse_decimal("+.5", &x) && x == .5, "%g", x);
    CHECK(gw_parse_decimal("5.", &x) && x == 5, "%g", x);
    CHECK(gw_parse_whole("18446744073709551615", UINT64_MAX, &n) && n == UINT64_MAX, "%llu", (unsigned long long)n);
    CHECK(!gw_parse_whole("18446744073709551616", UINT64_MAX, &n) && !gw_parse_whole("11", 10, &n) &&
              !gw_parse_whole("+1", 10, &n) && !gw_parse_whole("-1", 10, &n),
          "%llu", (unsigned long long)n);
    CHECK(gw_parse_whole("10", 10, &n) && n == 10, "%llu", (unsigned long long)n);
    /* Both readers stop behind the number, and move only if there is one. */
    const char *at = "12,3.5;x";
    CHECK(gw_read_whole(&at, 12, &n) && n == 12 && *at++ == ',', "%s", at);
    CHECK(gw_read_decimal(&at, &x) && x == 3.5 && *at++ == ';', "%s", at);
    CHECK(!gw_read_whole(&at, 12, &n) && !gw_read_decimal(&at, &x) && *at == 'x', "%s", at);
}

/* The text is short, and reads as the same number. */
TEST(test_shortest)
{
    static const struct {
        double x;
        const char *text;
    } rows[] = {{0, "0"},
                {0.9, "0.9"},
                {0.1 + 0.2, "0.30000000000000004"},
                {1e300, "1e+300"},
                {-2.5, "-2.5"},
                {1e-5, "1e-05"},
                {1.0 / 3, "0.3333333333333333"},
                {123456789012345678.0, "1.2345678901234568e+17"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(gw_decimal_of(rows[i].x).text, rows[i].text);
    for (double x = 5e-324; x < 1e300; x *= 1.7e7)
        assert_true(strtod(gw_decimal_of(x).text, NULL) == x);
}

RUN_TESTS("numbers", NULL, NULL)
