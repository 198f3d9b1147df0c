/* The integers of a gspar average: how often more workers sent +q than -q of an element. They are coded as levels:
 * yes-or-no questions, one string of bits each (docs/wire-format.md, "Sparse frames"). */
#ifndef GW_CODEC_SPARSE_LEVELS_H
#define GW_CODEC_SPARSE_LEVELS_H

#include "codec/kernels.h"
#include "codec/marked.h"

/* With more workers, sums reach so many levels that the questions take too long. */
#define GW_SPARSE_LEVELS_MAX_WORKERS 1024

/* The sums of one chunk, and memory to code them. Only one thread may use it at a time. */
struct gw_sparse_levels {
    uint32_t workers, n_planes;
    uint32_t offset;      /* the sums in `planes` are larger than the true ones by this */
    uint8_t *planes;      /* as struct gw_kernels has them */
    uint64_t *magnitudes; /* of the sums, since they were marked: planes of max_words words, one after the other */
    uint64_t *bitmaps;    /* the memory of those that follow */
    uint64_t *farther;    /* sums beyond a level, on either side */
    uint64_t *marks[3];   /* sums beyond a level, above and below 0, and beyond the next one */
};
gw_status gw_sparse_levels_create(gw_context *context, uint32_t workers, uint32_t max_words,
                                  struct gw_sparse_levels **out);
void gw_sparse_levels_destroy(gw_context *context, struct gw_sparse_levels *levels);

/* Adds worker `i`'s signs to the sums, beginning with worker 0. */
void gw_sparse_levels_add(struct gw_sparse_levels *levels, uint32_t i, const uint64_t *nonzero,
                          const uint64_t *negative, uint32_t n_words);

/* The sum of element i. */
int32_t gw_sparse_levels_at(const struct gw_sparse_levels *levels, uint32_t i);

/* Marks the sums that are not 0, and which of them are negative. Elements of `without` are left out. */
void gw_sparse_levels_mark(struct gw_sparse_levels *levels, const uint64_t *without, uint32_t n_words,
                           uint64_t *nonzero, uint64_t *negative);

/* Adds strings to `writer`. For each element that was marked they say how far its sum is from 0. */
void gw_sparse_levels_put(struct gw_strings_writer *writer, struct gw_sparse_levels *levels, const uint64_t *nonzero,
                          const uint64_t *negative, uint32_t n_words);

/* Reads these strings back into sums. An element that is not marked has the sum 0. `string`: room for n_words words. */
gw_status gw_sparse_levels_get(struct gw_strings_reader *reader, struct gw_sparse_levels *levels,
                               const uint64_t *nonzero, const uint64_t *negative, uint32_t n_words, uint64_t *string);

/* out[i] = sum_i * unit for n elements. */
void gw_sparse_levels_expand(const struct gw_sparse_levels *levels, uint32_t n, float unit, float *out);

#endif
