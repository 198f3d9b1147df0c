/* XXH3 (hash_impl.h), compiled for processors with AVX2. */
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif
#define XXH_VECTOR XXH_AVX2
#define GW_HASH gw_hash_avx2
#include "wire/hash_impl.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
