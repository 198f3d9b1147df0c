/* Finds the best instruction set of this processor that the library has kernels for. GRADWIRE_CPU can cap the choice,
 * which is made once for the process. */
#include "base/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <stdbool.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"scalar", "avx2", "avx512", "neon"};

#if defined(__x86_64__)
/* clang 14's run-time check does not know F16C. F16C needs no more of the operating system than AVX2, and the caller
 * asks for AVX2, too. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

enum gw_cpu gw_cpu_best(void)
{
#if defined(__x86_64__)
    /* The compiler's run-time check also asks the operating system whether it saves the wide registers. */
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
          __builtin_cpu_supports("popcnt") && has_f16c()))
        return GW_CPU_SCALAR;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
        return GW_CPU_AVX2;
    return GW_CPU_AVX512;
#elif defined(__aarch64__)
    return GW_CPU_NEON;
#else
    return GW_CPU_SCALAR;
#endif
}

static enum gw_cpu chosen;

static void choose(void)
{
    const enum gw_cpu best = gw_cpu_best();
    const char *cap = getenv("GRADWIRE_CPU");
    chosen = cap && *cap ? GW_CPU_SCALAR : best;
    for (enum gw_cpu level = GW_CPU_AVX2; cap && level <= GW_CPU_NEON; level++)
        if (strcmp(cap, names[level]) == 0 && (level == GW_CPU_NEON) == (best == GW_CPU_NEON))
            chosen = level < best ? level : best; /* a cap above what the processor has is none */
}

enum gw_cpu gw_cpu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen;
}

const char *gw_cpu_level(void)
{
    return names[gw_cpu()];
}
