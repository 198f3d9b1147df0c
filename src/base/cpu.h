/* Tells which instruction set the kernels may use. */
#ifndef GW_BASE_CPU_H
#define GW_BASE_CPU_H

/* In rising order for one family of processors. */
enum gw_cpu {
    GW_CPU_SCALAR,
    GW_CPU_AVX2,   /* with BMI1, BMI2, POPCNT, F16C: Haswell, Zen and later */
    GW_CPU_AVX512, /* F, BW, DQ, VL besides: Skylake-SP, Zen 4 and later */
    GW_CPU_NEON,   /* every aarch64 */
};

/* The best this processor has, capped by GRADWIRE_CPU; chosen once per process. */
enum gw_cpu gw_cpu(void);

/* The instruction set that kernels use in this process: "scalar", "avx2", "avx512" or "neon". The environment variable
 * GRADWIRE_CPU may name a lower one than the best that the processor has. If it names a higher one, the best is used.
 * Any other word means "scalar". Static storage. */
const char *gw_cpu_level(void);

/* The same without the cap; for tests that run every kernel the machine has. */
enum gw_cpu gw_cpu_best(void);

#endif
