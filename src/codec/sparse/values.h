/* The values of a sparse frame's chunk: docs/wire-format.md, "Sparse frames". The exponents of what is sent are few
 * and near each other; signs and fractions are noise. So exponents are sent as levels below the largest, in strings of
 * bits near their entropy. */
#ifndef GW_CODEC_SPARSE_VALUES_H
#define GW_CODEC_SPARSE_VALUES_H

#include "wire/bits.h"
#include "wire/float16.h"

#include <gradwire/status.h>

#include <stddef.h>

/* Memory to write or read the values of one chunk with; all of it is overwritten. */
struct gw_sparse_exponents {
    uint64_t *string, *marks[2]; /* room for n bits and a word */
    uint8_t *exponents;          /* n, rounded up to a multiple of 64 */
};

/* Bits of one value of this type as it is. */
static inline unsigned gw_value_bits(enum gw_value_type type)
{
    return type == GW_VALUE_F32 ? 32 : 16;
}

/* The exponent field of a value as it is sent, and how many bits stand beside it: fraction and sign. */
uint32_t gw_value_exponent(enum gw_value_type type, float x);
unsigned gw_value_rest_bits(enum gw_value_type type);

/* Appends n values, already rounded to their type, and pads to a byte; returns where the next byte would stand. Takes
 * one bit more than the values as they are at the most, and no room before writer->end that those would not take. fast:
 * they are written as they are. */
uint8_t *gw_sparse_put_values(struct gw_bit_writer *writer, enum gw_value_type type, const float *values, uint32_t n,
                              bool fast, struct gw_sparse_exponents *memory);

/* Reads n values, which with their padding must end where the reader's bits end. *value_bits: what they took, padding
 * left out. */
gw_status gw_sparse_get_values(struct gw_bit_reader *reader, enum gw_value_type type, uint32_t n,
                               struct gw_sparse_exponents *memory, float *values, uint64_t *value_bits);

#endif
