/* XXH3 for every processor of the family, and the choice of the variant for this one. */
#define GW_HASH gw_hash_plain /* it uses SSE2 or NEON, which every processor of the family has */
#include "wire/hash_impl.h"

extern const struct gw_hash gw_hash_avx2, gw_hash_avx512;

const struct gw_hash *gw_hash_for(enum gw_cpu cpu)
{
#if defined(__x86_64__)
    if (cpu == GW_CPU_AVX2)
        return &gw_hash_avx2;
    if (cpu == GW_CPU_AVX512)
        return &gw_hash_avx512;
    return cpu == GW_CPU_SCALAR ? &gw_hash_plain : NULL;
#else
    return cpu == GW_CPU_SCALAR || cpu == GW_CPU_NEON ? &gw_hash_plain : NULL;
#endif
}

const struct gw_hash *gw_hash_now(void)
{
    return gw_hash_for(gw_cpu());
}
