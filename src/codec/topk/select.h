/* Selection of the largest magnitudes with error feedback: what topk does to a tensor before anything is packed.
 *
 * a = g + residual, element by element in float32. For selected elements (1 + over) * a is sent, rounded to a type of
 * values. The residual of an element is a minus what was sent. Selection leaves a of all elements in memory, and a
 * bitmap says which were sent. So to send an element or not changes one bit, and needs no store into a large tensor.
 * Magnitudes are compared as integers (the bits without the sign), which is exact for denormals too. Everything is the
 * same bits for any number of threads and any instruction set.
 *
 *   select.c           whole tensors and lists of tensors, on the context's threads
 *   rank.c             the k-th largest magnitude, found exactly
 *   select_kernels.h   the loops that run once per element */
#ifndef GW_CODEC_TOPK_SELECT_H
#define GW_CODEC_TOPK_SELECT_H

#include "codec/select_kernels.h"

#include <gradwire/context.h>

/* One tensor. Of any length, 0 among them. */
struct gw_select_part {
    const float *g;
    const float *residual; /* what `next` was after the step before */
    const uint64_t *sent;  /* what `kept` was after that step */
    uint64_t n;
    enum gw_value_type value; /* the same in all parts and steps, as `over` is */
    float over;               /* from 0 to less than 1 */
    float *next;              /* a, n elements; not g, not residual. Faster if aligned to 64 bytes */
    uint64_t *kept;           /* bit i for element i, gw_div_up(n, 64) words; bits past the end become 0 */
    /* Set by the calls below. */
    uint64_t n_kept; /* elements selected */
    /* max |a| as float bits; 0x7F800000 and above: not finite, and nothing else that was set has a meaning */
    uint32_t max_bits;
};

/* Selects |a| > threshold (not negative) of all parts together. If these are more than k, it selects k as
 * gw_select_exact does. `values` has room for k; it gets what is sent of part after part. many: the caller
 * thinks that they are more; right or wrong, only the time depends on it. Errors: GW_ERR_MEMORY. */
gw_status gw_select_above(gw_context *context, struct gw_select_part *parts, uint32_t n_parts, float threshold,
                          uint64_t k, bool many, float *values);

/* Selects exactly k (1 .. the sum of n) of the largest |a| of all parts together; ties go to the first part, and there
 * to the lowest index. `values` has room for k; it gets those of part after part. *threshold becomes the k-th largest
 * |a|. Errors: GW_ERR_MEMORY. */
gw_status gw_select_exact(gw_context *context, struct gw_select_part *parts, uint32_t n_parts, uint64_t k,
                          float *values, float *threshold);

#endif
