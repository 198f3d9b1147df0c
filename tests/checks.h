/* What tests share: how a file lists its tests, a check that names the case that failed, and numbers that look random
 * and are the same on every machine. */
#ifndef GW_TESTS_CHECKS_H
#define GW_TESTS_CHECKS_H

#include "base/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#undef stop /* cmocka 2 has a macro of this name, and here many a field has it */

enum { MOST_TESTS = 64 };

/* The tests of a file. Each notes itself before main begins. */
static struct CMUnitTest noted_tests[MOST_TESTS];
static int noted_lines[MOST_TESTS];
static size_t n_noted;

static inline void note_test(int line, struct CMUnitTest test)
{
    size_t at = n_noted++;
    if (at == MOST_TESTS)
        abort();
    for (; at > 0 && noted_lines[at - 1] > line; at--) {
        noted_lines[at] = noted_lines[at - 1];
        noted_tests[at] = noted_tests[at - 1];
    }
    noted_lines[at] = line;
    noted_tests[at] = test;
}

/* If a header has tests, those who include it list them. */
#define TEST_AS(name, ...)                                                                                             \
    static void name(void **state);                                                                                    \
    __attribute__((constructor)) static void note_##name(void)                                                         \
    {                                                                                                                  \
        if (strcmp(__FILE__, __BASE_FILE__) == 0)                                                                      \
            note_test(__LINE__, (struct CMUnitTest)__VA_ARGS__);                                                       \
    }                                                                                                                  \
    static void name(void **state __attribute__((unused)))

/* The head of a test. `state` is what cmocka set up for it; most need nothing of it. */
#define TEST(name) TEST_AS(name, cmocka_unit_test(name))

/* The same with a function before the test, and one after it. */
#define TEST_BETWEEN(name, before, after) TEST_AS(name, cmocka_unit_test_setup_teardown(name, before, after))

/* Runs the tests of the file in the order in which they stand there. `before` goes before the first one, `after` behind
 * the last one, and both may be NULL. Returns how many have failed. */
static inline int run_noted_tests(const char *group, CMFixtureFunction before, CMFixtureFunction after)
{
    if (n_noted == 0) /* another file includes this one, so that __BASE_FILE__ names that */
        abort();
    return _cmocka_run_group_tests(group, noted_tests, n_noted, before, after);
}

/* The main function of a file that prepares nothing. */
#define RUN_TESTS(group, before, after)                                                                                \
    int main(void)                                                                                                     \
    {                                                                                                                  \
        return run_noted_tests(group, before, after);                                                                  \
    }

/* Fails the test unless `condition` holds. The sentence says which case it was: sizes, options, seeds. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            print_error("not so: %s\n", #condition);                                                                   \
            fail_msg(__VA_ARGS__);                                                                                     \
        }                                                                                                              \
    } while (0)

/* Fails the test unless least <= value <= most: integers from 0 up. (cmocka 1 and 2 have no name in common for this.)
 */
#define CHECK_IN_RANGE(value, least, most)                                                                             \
    do {                                                                                                               \
        const uint64_t value_ = (uint64_t)(value), least_ = (uint64_t)(least), most_ = (uint64_t)(most);               \
        CHECK(value_ - least_ <= most_ - least_, "%llu; %llu to %llu are right", (unsigned long long)value_,           \
              (unsigned long long)least_, (unsigned long long)most_);                                                  \
    } while (0)

/* A stream of random numbers. The tests make of it only integers and exact float32 operations. So they see the same
 * input with any compiler and any mathematics library. */
struct numbers {
    uint64_t seed;
    uint32_t at;
    uint32_t words[4];
};

static inline struct numbers numbers_from(uint64_t seed)
{
    return (struct numbers){.seed = seed};
}

static inline uint32_t numbers_word(struct numbers *numbers)
{
    if (numbers->at % 4 == 0) {
        const uint32_t counter[4] = {numbers->at / 4, 0, 0, 0x7E57u};
        gw_philox(counter, numbers->seed, numbers->words);
    }
    return numbers->words[numbers->at++ % 4];
}

/* 0 .. n-1 */
static inline uint32_t numbers_below(struct numbers *numbers, uint32_t n)
{
    return (uint32_t)((uint64_t)numbers_word(numbers) * n >> 32);
}

/* [0, 1) */
static inline float numbers_unit(struct numbers *numbers)
{
    return (float)(numbers_word(numbers) >> 8) * 0x1p-24f;
}

/* Mean 0, deviation 1.02, in the form of a bell that ends at 5 deviations: the sum of eight uniform numbers. */
static inline float numbers_bell(struct numbers *numbers)
{
    int32_t sum = -4 * 65535;
    for (int i = 0; i < 4; i++) {
        uint32_t word = numbers_word(numbers);
        sum += (int32_t)(word & 0xFFFFu) + (int32_t)(word >> 16);
    }
    return (float)sum * 0x1.4p-16f;
}

static inline void numbers_fill_bell(uint64_t seed, float *out, uint64_t n)
{
    struct numbers numbers = numbers_from(seed);
    for (uint64_t i = 0; i < n; i++)
        out[i] = numbers_bell(&numbers);
}

#endif
