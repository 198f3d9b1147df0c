/* Says which member owns which part of which tensor. */
#ifndef GW_OWNER_SLICES_H
#define GW_OWNER_SLICES_H

#include <gradwire/context.h>

#include <stdbool.h>

/* A run of elements of one tensor that one owner adds up. */
struct gw_slice {
    uint32_t tensor;
    uint32_t owner;
    uint64_t begin, count; /* count > 0 */
    bool summed;           /* its pushes hold integers, and may be added up on the way; the plan leaves it false */
};

/* A tensor is not cut into slices shorter than this: a frame's header (60 bytes with one scaler) would outweigh what
 * better balance saves. 8192 ternary elements take about 1.3 KiB, so headers stay under 5 %. */
#define GW_SLICE_MIN 8192u

/* Nor into longer ones: an owner's part of a long tensor is cut into slices of this many elements and a rest, so that
 * the first is added up while the next is still encoded. 1 Mi elements are 4 MiB of floats, which a link of 10 Gbit/s
 * moves in 3 ms: long beside what a message costs, short beside a step. A constant of the format: all members must cut
 * alike. */
#define GW_SLICE_MAX (1u << 20)

/* The most elements of a slice: `most`, down to a multiple of `align`, but one `align` at least. */
uint64_t gw_slice_most(uint64_t most, uint64_t align);

/* Cuts tensors 0..n_tensors-1 of n_elems[i] elements, at multiples of align[i], for owners 0..n_owners-1, into slices
 * of no more than `most` elements (gw_slice_most). A function of these numbers alone, so that every member finds the
 * same. *slices (to be freed with gw_free) is in the order of tensors and, within one, of elements; together they cover
 * every element once. A tensor without elements has no slice.
 *
 * Tensors too short for a slice per owner come first: each piece goes to the least loaded owner (elements so far, the
 * lowest rank on ties). The long ones follow; each is cut for all owners so that their loads come out level. Errors:
 * GW_ERR_MEMORY. */
gw_status gw_slices_plan(gw_context *context, const uint64_t *n_elems, const uint64_t *align, uint32_t n_tensors,
                         uint32_t n_owners, uint64_t most, struct gw_slice **slices, size_t *n_slices);

#endif
