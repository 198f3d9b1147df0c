/* XXH3 (hash_impl.h), compiled for processors with AVX-512. */
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx2"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx2")
#endif
#define XXH_VECTOR XXH_AVX512
#define GW_HASH gw_hash_avx512
#include "wire/hash_impl.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
