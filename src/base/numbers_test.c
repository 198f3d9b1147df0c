/* Tests how whole numbers with units are read. */
#include "base/numbers.h"
#include "checks.h"

struct reading {
    const char *text;
    bool fits;
    uint64_t value;
};

static void test_numbers(void **state)
{
    (void)state;
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

static void test_bytes(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_numbers), cmocka_unit_test(test_bytes)};
    return cmocka_run_group_tests_name("numbers", tests, NULL, NULL);
}
