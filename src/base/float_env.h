/* Keeps denormals on and rounding to nearest while the library computes. The host program may have switched
 * flush-to-zero on, which would change sums. Its modes are saved at the library's doors and put back on the way out. */
#ifndef GW_BASE_FLOAT_ENV_H
#define GW_BASE_FLOAT_ENV_H

#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

typedef uint64_t gw_float_env;

static inline gw_float_env gw_float_enter(void)
{
#if defined(__x86_64__)
    gw_float_env old = _mm_getcsr();
    if ((old & 0xFFC0) != 0x1F80) /* exceptions masked, nearest, no FTZ, no DAZ */
        _mm_setcsr(0x1F80);
    return old;
#elif defined(__aarch64__)
    uint64_t old;
    __asm__ volatile("mrs %0, fpcr" : "=r"(old));
    if (old)
        __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)0));
    return old;
#else
    return 0;
#endif
}

static inline void gw_float_leave(gw_float_env old)
{
#if defined(__x86_64__)
    if ((old & 0xFFC0) != 0x1F80)
        _mm_setcsr((unsigned)old);
#elif defined(__aarch64__)
    if (old)
        __asm__ volatile("msr fpcr, %0" : : "r"(old));
#else
    (void)old;
#endif
}

#endif
