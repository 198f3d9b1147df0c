/* The values of a sparse frame's chunk: docs/wire-format.md, "Sparse frames". The exponents of what is sent are few
 * and near each other; signs and fractions are noise. So exponents are sent as levels below the largest, in strings of
 * bits near their entropy, and the rest as it is. */
#ifndef GW_CODEC_SPARSE_VALUES_H
#define GW_CODEC_SPARSE_VALUES_H

#include "wire/float16.h"
#include "wire/strings.h"

/* Memory to write or read the values of one chunk with; all of it is overwritten. */
struct gw_sparse_exponents {
    uint64_t *string, *marks[2]; /* room for n bits and a word */
    uint8_t *exponents;          /* n, rounded up to a multiple of 64 */
};

/* The exponent field of x as a value of this type. */
uint32_t gw_value_exponent(enum gw_value_type type, float x);

/* How many bits of a value are not its exponent: the bits of its fraction, and its sign. */
unsigned gw_value_rest_bits(enum gw_value_type type);

/* Writes n values of a chunk. They are already rounded to their type. What strings say of them goes to `writer`. What
 * is sent as it is goes to `raw`, which has room for 4 * n + 8 bytes. Returns how many bits the latter has; unused bits
 * of its last byte are 0. as_they_are: exponents are not sent apart from the rest. */
uint64_t gw_sparse_put_values(struct gw_strings_writer *writer, enum gw_value_type type, const float *values,
                              uint32_t n, bool as_they_are, struct gw_sparse_exponents *memory, uint8_t *raw);

/* What the strings said of n values. */
struct gw_sparse_coming {
    enum gw_value_type type;
    uint32_t n, n_small;   /* n_small: how many values `small` marks */
    uint32_t last;         /* the largest exponent that these may have */
    bool apart;            /* exponents are sent apart from the rest */
    const uint64_t *small; /* marks the values whose exponents are sent as they are */
    uint8_t *exponents;
};

/* Reads what the strings say. *n_raw: how many bits are sent as they are. */
gw_status gw_sparse_get_exponents(struct gw_strings_reader *reader, enum gw_value_type type, uint32_t n,
                                  struct gw_sparse_exponents *memory, struct gw_sparse_coming *coming, uint64_t *n_raw);

/* Reads the values from those bits. */
gw_status gw_sparse_get_values(const struct gw_sparse_coming *coming, const uint8_t *raw, uint64_t n_raw,
                               float *values);

#endif
