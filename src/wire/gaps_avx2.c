/* The coder of bit strings (gaps_impl.h), compiled for processors with AVX2, BMI2 and POPCNT. */
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)
#else
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif
#define GW_GAPS gw_gaps_avx2
#include "wire/gaps_impl.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
