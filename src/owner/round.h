/* A round: the frames that workers sent for some slices, and their averages. An owner has one round of all workers. If
 * machines have several workers, each machine has a relay with a round of its own workers. The relay joins what they
 * sent, and the owner gets that in its place. */
#ifndef GW_OWNER_ROUND_H
#define GW_OWNER_ROUND_H

#include "owner/slices.h"

#include "codec/wire_codec.h"

/* One thread at a time. */
struct gw_round;

/* For n_slices slices (copied; at least one) and n_expected of the workers 0..n_workers-1; `codec` (borrowed) gives
 * reduce its options. All memory is taken here. Errors: GW_ERR_MEMORY. */
gw_status gw_round_create(gw_context *context, const gw_codec *codec, const struct gw_slice *slices, size_t n_slices,
                          uint32_t n_workers, uint32_t n_expected, struct gw_round **out);
void gw_round_destroy(struct gw_round *round);

/* Takes what `from` sent of n_ranks workers, itself or those of its machine, ascending: for every slice, in order, a
 * frame of each of them or, if there are several and the slice is summed, one average of them; back to back, and
 * nothing after that. The bytes are borrowed until gw_round_reset. Each frame is checked: whole, of this worker, step
 * and slice. Its checksum is left to gw_round_reduce, which reads all of it anyway. Errors: the GW_ERR_FRAME_* family;
 * the sentence names `from`. */
gw_status gw_round_put(struct gw_round *round, uint32_t from, const uint32_t *ranks, uint32_t n_ranks, uint32_t step,
                       const void *bytes, size_t n_bytes);

/* Takes the round's owner's own part: for every slice one of `own`, which is borrowed until gw_round_reset. Averages
 * take the place of its values, if the round is reduced with join false. */
void gw_round_put_own(struct gw_round *round, const struct gw_own *own);

/* True once the frames of all that are expected are in. */
bool gw_round_is_full(const struct gw_round *round);

/* The most bytes that gw_round_reduce can take; 0 if a worker's frames are missing. */
size_t gw_round_bound(struct gw_round *round, bool join);

/* Averages every slice, workers in rank order; the frames stand back to back in the order of the slices. join: where a
 * slice is not summed, its frames as they came, so that the result is what gw_round_put takes of all these workers.
 * Errors: GW_ERR_ORDER (a worker's frames are missing), and those of gw_reduce. The sentence names who sent a frame
 * that was altered. */
gw_status gw_round_reduce(struct gw_round *round, bool join, void *dst, size_t dst_capacity, size_t *dst_bytes);

/* Forgets all frames. */
void gw_round_reset(struct gw_round *round);

/* Checks that the frame at the start of `bytes` is whole and of this slice and step: a push of worker `rank`, or, if
 * n_workers is above 0, an average of that many. Sets info. The checksum is left to whoever reads the frame: gw_decode
 * or gw_reduce. Errors: the GW_ERR_FRAME_* family. */
gw_status gw_slice_check(const struct gw_slice *slice, uint32_t step, uint32_t rank, uint32_t n_workers,
                         const void *bytes, size_t n_bytes, gw_frame_info *info);

#endif
