#include "owner/round.h"
#include "base/error.h"
#include "base/memory.h"

#include <inttypes.h>
#include <string.h>

struct gw_round {
    gw_context *context;
    const gw_codec *codec;
    uint32_t n_workers;
    size_t n_slices;
    struct gw_slice *slices;
    const void **frames; /* n_slices x n_workers: the frames of a slice stand together, in rank order */
    size_t *sizes;
};

gw_status gw_round_create(gw_context *context, const gw_codec *codec, const struct gw_slice *slices, size_t n_slices,
                          uint32_t n_workers, struct gw_round **out)
{
    struct gw_round *round = gw_calloc(context, 1, sizeof *round);
    if (!round)
        return GW_ERR_MEMORY;
    *round = (struct gw_round){.context = context, .codec = codec, .n_workers = n_workers, .n_slices = n_slices};
    round->slices = gw_alloc(context, n_slices, sizeof *round->slices);
    round->frames = gw_calloc(context, n_slices * n_workers, sizeof *round->frames);
    round->sizes = gw_calloc(context, n_slices * n_workers, sizeof *round->sizes);
    if (!round->slices || !round->frames || !round->sizes) {
        gw_round_destroy(round);
        return GW_ERR_MEMORY;
    }
    memcpy(round->slices, slices, n_slices * sizeof *slices);
    *out = round;
    return GW_OK;
}

void gw_round_destroy(struct gw_round *round)
{
    if (!round)
        return;
    gw_free(round->context, round->sizes);
    gw_free(round->context, round->frames);
    gw_free(round->context, round->slices);
    gw_free(round->context, round);
}

gw_status gw_slice_check(const struct gw_slice *slice, uint32_t step, uint32_t rank, uint32_t n_workers,
                         const void *bytes, size_t n_bytes, gw_frame_info *info)
{
    bool average = n_workers > 0;
    GW_TRY(gw_frame_parse(bytes, n_bytes, info));
    if (info->tensor_id != slice->tensor || info->begin != slice->begin || info->n_elems != slice->count)
        return gw_fail(GW_ERR_FRAME_MISMATCH,
                       "the frame holds tensor %u, %" PRIu64 " elements from %" PRIu64 ", and not tensor %u, %" PRIu64
                       " elements from %" PRIu64,
                       info->tensor_id, info->n_elems, info->begin, slice->tensor, slice->count, slice->begin);
    if (info->step != step)
        return gw_fail(GW_ERR_FRAME_MISMATCH, "the frame is of step %u, and not of step %u", info->step, step);
    if (info->average != average)
        return gw_fail(GW_ERR_FRAME_MISMATCH, average ? "the frame is one worker's, and not an average"
                                                      : "the frame is an average, and not one worker's");
    if (average && info->workers != n_workers)
        return gw_fail(GW_ERR_FRAME_MISMATCH, "the frame averages %u workers, and not %u", info->workers, n_workers);
    if (!average && info->rank != rank)
        return gw_fail(GW_ERR_FRAME_MISMATCH, "the frame was encoded by rank %u, and not by rank %u", info->rank, rank);
    return GW_OK;
}

gw_status gw_round_put(struct gw_round *round, uint32_t rank, uint32_t step, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    for (size_t s = 0; s < round->n_slices; s++) {
        gw_frame_info info;
        gw_status status = gw_slice_check(&round->slices[s], step, rank, 0, at, n_bytes, &info);
        if (status < 0)
            return gw_fail(status, "rank %u's push of tensor %u: %s", rank, round->slices[s].tensor, gw_last_error());
        round->frames[s * round->n_workers + rank] = at;
        round->sizes[s * round->n_workers + rank] = info.frame_bytes;
        at += info.frame_bytes;
        n_bytes -= info.frame_bytes;
    }
    if (n_bytes > 0)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's push has %zu bytes after its last frame", rank, n_bytes);
    return GW_OK;
}

static bool is_full(const struct gw_round *round)
{
    /* The frames of the last slice are noted last. */
    const void **last = round->frames + (round->n_slices - 1) * round->n_workers;
    for (uint32_t r = 0; r < round->n_workers; r++)
        if (!last[r])
            return false;
    return true;
}

size_t gw_round_bound(const struct gw_round *round)
{
    size_t bound = 0;
    if (!is_full(round))
        return 0;
    for (size_t s = 0; s < round->n_slices; s++)
        bound += gw_reduce_bound(round->frames + s * round->n_workers, round->sizes + s * round->n_workers,
                                 round->n_workers);
    return bound;
}

gw_status gw_round_reduce(struct gw_round *round, void *dst, size_t dst_capacity, size_t *dst_bytes)
{
    if (!is_full(round))
        return gw_fail(GW_ERR_ORDER, "a round is averaged before all %u workers' frames are in", round->n_workers);
    gw_reduce_options options = {.struct_bytes = sizeof options, .codec = round->codec};
    size_t used = 0;
    for (size_t s = 0; s < round->n_slices; s++) {
        size_t bytes;
        GW_TRY(gw_reduce(round->context, round->frames + s * round->n_workers, round->sizes + s * round->n_workers,
                         round->n_workers, &options, (char *)dst + used, dst_capacity - used, &bytes));
        used += bytes;
    }
    *dst_bytes = used;
    return GW_OK;
}

void gw_round_reset(struct gw_round *round)
{
    memset(round->frames, 0, round->n_slices * round->n_workers * sizeof *round->frames);
}
