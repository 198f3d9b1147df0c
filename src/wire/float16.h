/* Converts to bfloat16 and IEEE half and back. It rounds to nearest, ties to even. What is beyond the largest finite
 * number becomes that number, so that what is finite stays finite. */
#ifndef GW_WIRE_FLOAT16_H
#define GW_WIRE_FLOAT16_H

#include "wire/bytes.h"

/* What a value of a sparse frame is sent as; the codes of wire codec "sparse". */
enum gw_value_type { GW_VALUE_F32, GW_VALUE_BF16, GW_VALUE_F16 };

static inline uint16_t gw_to_bf16(float x)
{
    uint32_t bits = gw_float_bits(x), magnitude = bits & 0x7FFFFFFFu;
    uint32_t rounded = (magnitude + 0x7FFFu + (magnitude >> 16 & 1)) >> 16;
    if (rounded > 0x7F7F)
        rounded = 0x7F7F;
    return (uint16_t)(rounded | (bits >> 16 & 0x8000u));
}

static inline float gw_from_bf16(uint16_t x)
{
    return gw_bits_float((uint32_t)x << 16);
}

static inline uint16_t gw_to_f16(float x)
{
    uint32_t bits = gw_float_bits(x), magnitude = bits & 0x7FFFFFFFu, sign = bits >> 16 & 0x8000u;
    /* Denormal halves: adding 0.5 puts the half's last place at the float's; the addition itself rounds to even. */
    uint32_t small = gw_float_bits(gw_bits_float(magnitude) + 0.5f) - 0x3F000000u;
    /* Normal ones: move the exponent's bias (127 to 15), round the 13 bits that go. */
    uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + (magnitude >> 13 & 1)) >> 13;
    uint32_t half = magnitude < 0x38800000u ? small : normal;
    half = magnitude > 0x477FE000u ? 0x7BFFu : half; /* above 65504 */
    return (uint16_t)(half | sign);
}

static inline float gw_from_f16(uint16_t x)
{
    uint32_t magnitude = x & 0x7FFFu;
    /* Scaling by 2^112 re-biases the exponent and normalises denormals exactly. */
    float value = gw_bits_float(magnitude << 13) * 0x1p112f;
    value = magnitude >= 0x7C00u ? gw_bits_float(0x7F800000u | magnitude << 13) : value;
    return gw_bits_float(gw_float_bits(value) | (uint32_t)(x & 0x8000u) << 16);
}

#endif
