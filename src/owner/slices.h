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
    bool summed;           /* its pushes hold integers, so a relay may add them up; gw_slices_plan leaves it false */
};

/* The least elements of a slice, if a tensor is cut. With shorter ones, the frames' headers (60 bytes with one scaler)
 * would cost more than better balance saves. 8192 ternary elements take about 1.3 KiB, so headers stay under 5 %. */
#define GW_SLICE_MIN 8192u

/* The most elements of a slice. An owner's part of a long tensor is cut into slices of this many elements and a rest.
 * So the owner adds up the first slice while workers still encode the next. 1 Mi elements are 4 MiB of floats, which a
 * link of 10 Gbit/s moves in 3 ms. That is long compared with the cost of a message, and short compared with a step.
 * This is a constant of the format: all members must cut tensors in the same way. */
#define GW_SLICE_MAX (1u << 20)

/* The most elements of a slice: `most`, rounded down to a multiple of `align`, but at least one `align`. */
uint64_t gw_slice_most(uint64_t most, uint64_t align);

/* Cuts tensors into slices for owners 0..n_owners-1. Tensor i has n_elems[i] elements, and is cut at multiples of
 * align[i]. No slice has more than `most` elements (gw_slice_most). The plan depends on these numbers alone, so every
 * member finds the same one. *slices is in the order of tensors and, within one, of elements. The slices cover every
 * element once. A tensor without elements has no slice. The caller frees *slices with gw_free.
 *
 * The plan begins with tensors that are too short for a slice for each owner. Each piece of them goes to the owner with
 * the fewest elements so far (the lowest rank if several are equal). Then each long tensor is cut for all owners, so
 * that all have about the same number of elements. Errors: GW_ERR_MEMORY. */
gw_status gw_slices_plan(gw_context *context, const uint64_t *n_elems, const uint64_t *align, uint32_t n_tensors,
                         uint32_t n_owners, uint64_t most, struct gw_slice **slices, size_t *n_slices);

#endif
