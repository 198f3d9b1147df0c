/* Reads and writes little-endian fields by copying their bytes, so that no struct is ever cast. It does not compile on
 * a big-endian machine. */
#ifndef GW_WIRE_BYTES_H
#define GW_WIRE_BYTES_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the kernels store words as they stand in registers: a little-endian machine is needed"
#endif

#define GW_DEFINE_FIELD(name, type)                                                                                    \
    static inline type gw_get##name(const void *at)                                                                    \
    {                                                                                                                  \
        type value;                                                                                                    \
        memcpy(&value, at, sizeof value);                                                                              \
        return value;                                                                                                  \
    }                                                                                                                  \
    static inline void gw_put##name(void *at, type value)                                                              \
    {                                                                                                                  \
        memcpy(at, &value, sizeof value);                                                                              \
    }
GW_DEFINE_FIELD(16, uint16_t)
GW_DEFINE_FIELD(32, uint32_t)
GW_DEFINE_FIELD(64, uint64_t)
GW_DEFINE_FIELD(_float, float)
#undef GW_DEFINE_FIELD

static inline uint32_t gw_float_bits(float value)
{
    return gw_get32(&value);
}

static inline float gw_bits_float(uint32_t bits)
{
    return gw_get_float(&bits);
}

/* Up to 8 bytes as a 64-bit word, missing ones 0. */
static inline uint64_t gw_get_partial(const void *at, size_t n_bytes)
{
    uint64_t value = 0;
    memcpy(&value, at, n_bytes < 8 ? n_bytes : 8);
    return value;
}

static inline uint64_t gw_div_up(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

#endif
