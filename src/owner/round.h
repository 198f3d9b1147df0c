/* A round: the frames that workers sent for some slices, and their averages. An owner has one round of all workers. If
 * machines have several workers, a relay on each machine has a round of that machine's workers. The relay joins what
 * they sent, and sends the result to the owner. */
#ifndef GW_OWNER_ROUND_H
#define GW_OWNER_ROUND_H

#include "owner/slices.h"

#include "codec/wire_codec.h"

/* Only one thread at a time may use a round. */
struct gw_round;

/* Makes a round of n_slices slices (at least one), of the workers 0..n_workers-1. The slices, and `codec`, which has
 * the options of gw_round_reduce, are borrowed. The call takes all memory that the round needs. Errors: GW_ERR_MEMORY.
 */
gw_status gw_round_create(gw_context *context, const gw_codec *codec, const struct gw_slice *slices, size_t n_slices,
                          uint32_t n_workers, struct gw_round **out);
void gw_round_destroy(struct gw_round *round);

/* Takes the bytes that the worker `from` sent. They hold the frames of n_ranks workers: of `from` itself, or of all
 * workers of its machine, in ascending order. For each slice in order there is a frame of each of these workers. But if
 * they are several and the slice is summed, there is one average of them. The frames lie back to back, and nothing
 * follows them. The bytes are borrowed until gw_round_reset. The call checks that each frame is whole, and of this
 * worker, step and slice. It does not check checksums: gw_round_reduce does, because it reads all bytes anyway. Errors:
 * the GW_ERR_FRAME_* family; the sentence names `from`. */
gw_status gw_round_put(struct gw_round *round, uint32_t from, const uint32_t *ranks, uint32_t n_ranks, uint32_t step,
                       const void *bytes, size_t n_bytes);

/* Takes the owner's own part: own[i] for slice i. `own` is borrowed until gw_round_reset. gw_round_reduce with join
 * false writes the averages over the values of `own`. */
void gw_round_put_own(struct gw_round *round, const struct gw_own *own);

/* The most bytes that gw_round_reduce can write. */
size_t gw_round_bound(struct gw_round *round, bool join);

/* Averages every slice over its workers in rank order. The frames of the averages lie back to back, in the order of the
 * slices. join true: if a slice is not summed, its frames are copied as they came. The result is then what gw_round_put
 * takes for all these workers. dst: room for gw_round_bound bytes. Errors: those of gw_reduce. If a frame was altered,
 * the sentence names the worker that sent it. */
gw_status gw_round_reduce(struct gw_round *round, bool join, void *dst, size_t dst_capacity, size_t *dst_bytes);

/* Forgets all frames. */
void gw_round_reset(struct gw_round *round);

/* Checks that the frame at the start of `bytes` is whole, and of this slice and step. It must be a push of worker
 * `rank`; or, if n_workers is above 0, an average of that many workers. Sets *info. It does not check the checksum:
 * gw_decode and gw_reduce do when they read the frame. Errors: the GW_ERR_FRAME_* family. */
gw_status gw_slice_check(const struct gw_slice *slice, uint32_t step, uint32_t rank, uint32_t n_workers,
                         const void *bytes, size_t n_bytes, gw_frame_info *info);
/* The same of a frame that was parsed. */
gw_status gw_slice_check_info(const struct gw_slice *slice, uint32_t step, uint32_t rank, uint32_t n_workers,
                              const gw_frame_info *info);

#endif
