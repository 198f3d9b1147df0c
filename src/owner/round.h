/* One owner's round: the frames that N workers sent for its slices, and their averages. */
#ifndef GW_OWNER_ROUND_H
#define GW_OWNER_ROUND_H

#include "owner/slices.h"

#include <gradwire/codec.h>

/* One thread at a time. */
struct gw_round;

/* For n_slices slices (copied; at least one) and workers 0..n_workers-1; `codec` (borrowed) gives reduce its options. All memory
 * is taken here. Errors: GW_ERR_MEMORY. */
gw_status gw_round_create(gw_context *context, const gw_codec *codec, const struct gw_slice *slices, size_t n_slices,
                          uint32_t n_workers, struct gw_round **out);
void gw_round_destroy(struct gw_round *round);

/* Takes what worker `rank` sent: one frame for every slice, back to back, in the order of the slices and nothing after them.
 * The bytes are borrowed until gw_round_reset. Each frame is checked: whole, of this worker, step and slice.
 * Errors: the GW_ERR_FRAME_* family; the sentence names the worker. */
gw_status gw_round_put(struct gw_round *round, uint32_t rank, uint32_t step, const void *bytes, size_t n_bytes);

/* The most bytes the averages of all slices can take; 0 where a worker's frames are missing. */
size_t gw_round_bound(const struct gw_round *round);

/* Averages every slice, workers in rank order; the frames stand back to back in the order of the slices.
 * Errors: GW_ERR_ORDER (a worker's frames are missing), and those of gw_reduce. */
gw_status gw_round_reduce(struct gw_round *round, void *dst, size_t dst_capacity, size_t *dst_bytes);

/* Forgets all frames. */
void gw_round_reset(struct gw_round *round);

/* Checks that the frame at the start of `bytes` is whole and of this slice and step: a push of worker `rank`, or, where n_workers
 * is above 0, an average of that many. Sets info. Errors: the GW_ERR_FRAME_* family. */
gw_status gw_slice_check(const struct gw_slice *slice, uint32_t step, uint32_t rank, uint32_t n_workers,
                         const void *bytes, size_t n_bytes, gw_frame_info *info);

#endif
