/* What tests share: a check that names the case that failed, and numbers that look random and are the same on every
 * machine. */
#ifndef GW_TESTS_CHECKS_H
#define GW_TESTS_CHECKS_H

#include "base/philox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <stdint.h>

#undef stop /* cmocka 2 has a macro of this name, and here many a field has it */

/* The head of a test that needs nothing of what cmocka set up for it. */
#define TEST(name) static void name(void **state __attribute__((unused)))

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
