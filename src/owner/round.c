/* Collects the frames that workers sent for some slices and checks each against its slice. When all have come, it
 * reduces them. */
#include "owner/round.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/codec.h"

#include <inttypes.h>
#include <string.h>

/* All arrays lie behind it, in the same block. */
struct gw_round {
    gw_context *context;
    const gw_codec *codec;
    uint32_t n_workers;
    size_t n_slices;
    const struct gw_slice *slices;
    /* n_slices x n_workers frames, in rank order. The average of a machine is at the machine's first rank. NULL: there
     * is no frame */
    const void **frames;
    size_t *sizes;
    uint32_t *from;           /* for each worker: the rank that sent its frames */
    const struct gw_own *own; /* the owner's own part, for every slice; NULL: it has none */
    const void **row;         /* n_workers: one slice's frames without the gaps */
    size_t *row_sizes;
};

gw_status gw_round_create(gw_context *context, const gw_codec *codec, const struct gw_slice *slices, size_t n_slices,
                          uint32_t n_workers, struct gw_round **out)
{
    const size_t cells = (n_slices + 1) * n_workers; /* the frames, and one row */
    struct gw_round *round = gw_calloc(context, 1,
                                       sizeof *round + cells * (sizeof *round->frames + sizeof *round->sizes) +
                                           n_workers * sizeof *round->from);
    if (!round)
        return GW_ERR_MEMORY;
    *round = (struct gw_round){
        .context = context, .codec = codec, .n_workers = n_workers, .n_slices = n_slices, .slices = slices};
    round->frames = (const void **)(round + 1);
    round->sizes = (size_t *)(round->frames + cells);
    round->from = (uint32_t *)(round->sizes + cells);
    round->row = round->frames + n_slices * n_workers;
    round->row_sizes = round->sizes + n_slices * n_workers;
    *out = round;
    return GW_OK;
}

void gw_round_destroy(struct gw_round *round)
{
    if (round)
        gw_free(round->context, round);
}

gw_status gw_slice_check_info(const struct gw_slice *slice, uint32_t step, uint32_t rank, uint32_t n_workers,
                              const gw_frame_info *info)
{
    bool average = n_workers > 0;
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

gw_status gw_slice_check(const struct gw_slice *slice, uint32_t step, uint32_t rank, uint32_t n_workers,
                         const void *bytes, size_t n_bytes, gw_frame_info *info)
{
    gw_status status = gw_frame_parse_unverified(bytes, n_bytes, info);
    if (status == GW_OK)
        status = gw_slice_check_info(slice, step, rank, n_workers, info);
    if (status == GW_OK)
        return GW_OK;
    gw_frame_info unused;
    GW_TRY(gw_frame_parse(bytes, n_bytes, &unused)); /* if the checksum is wrong, too, that is the better error */
    return gw_slice_check_info(slice, step, rank, n_workers, info);
}

static gw_status push_refused(gw_status status, uint32_t from, const struct gw_slice *slice)
{
    return gw_fail(status, "rank %u's push of tensor %u: %s", from, slice->tensor, gw_last_error());
}

gw_status gw_round_put(struct gw_round *round, uint32_t from, const uint32_t *ranks, uint32_t n_ranks, uint32_t step,
                       const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    for (size_t s = 0; s < round->n_slices; s++) {
        const struct gw_slice *slice = &round->slices[s];
        bool sum = slice->summed && n_ranks > 1;
        for (uint32_t i = 0; i < (sum ? 1 : n_ranks); i++) {
            gw_frame_info info;
            gw_status status = gw_slice_check(slice, step, ranks[i], sum ? n_ranks : 0, at, n_bytes, &info);
            if (status < 0)
                return push_refused(status, from, slice);
            round->frames[s * round->n_workers + ranks[i]] = at;
            round->sizes[s * round->n_workers + ranks[i]] = info.frame_bytes;
            at += info.frame_bytes;
            n_bytes -= info.frame_bytes;
        }
    }
    if (n_bytes > 0)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's push has %zu bytes after its last frame", from, n_bytes);
    for (uint32_t i = 0; i < n_ranks; i++)
        round->from[ranks[i]] = from;
    return GW_OK;
}

void gw_round_put_own(struct gw_round *round, const struct gw_own *own)
{
    round->own = own;
}

/* Puts the frames of a slice side by side. Returns how many there are. */
static uint32_t fill_row(struct gw_round *round, size_t slice)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < round->n_workers; r++) {
        if (!round->frames[slice * round->n_workers + r])
            continue;
        round->row[n] = round->frames[slice * round->n_workers + r];
        round->row_sizes[n++] = round->sizes[slice * round->n_workers + r];
    }
    return n;
}

size_t gw_round_bound(struct gw_round *round, bool join)
{
    size_t bound = 0;
    for (size_t s = 0; s < round->n_slices; s++) {
        uint32_t n = fill_row(round, s);
        if (!join || round->slices[s].summed)
            bound += gw_reduce_bound(round->row, round->row_sizes, n);
        else
            for (uint32_t i = 0; i < n; i++)
                bound += round->row_sizes[i];
    }
    return bound;
}

/* Compares the checksums of a slice's frames. */
static gw_status verify(const struct gw_round *round, size_t slice)
{
    for (uint32_t r = 0; r < round->n_workers; r++) {
        size_t at = slice * round->n_workers + r;
        gw_frame_info info;
        gw_status status = round->frames[at] ? gw_frame_parse(round->frames[at], round->sizes[at], &info) : GW_OK;
        if (status < 0)
            return push_refused(status, round->from[r], &round->slices[slice]);
    }
    return GW_OK;
}

gw_status gw_round_reduce(struct gw_round *round, bool join, void *dst, size_t dst_capacity, size_t *dst_bytes)
{
    gw_reduce_options options = {.struct_bytes = sizeof options, .codec = round->codec};
    size_t used = 0, bytes;
    for (size_t s = 0; s < round->n_slices; s++) {
        uint32_t n = fill_row(round, s);
        if (!join || round->slices[s].summed) {
            gw_status status =
                gw_reduce_with(round->context, round->row, round->row_sizes, n, round->own ? &round->own[s] : NULL,
                               &options, (char *)dst + used, dst_capacity - used, &bytes);
            if (status == GW_ERR_FRAME_CHECKSUM)
                GW_TRY(verify(round, s)); /* this error names the sender; that of gw_reduce does not */
            GW_TRY(status);
            used += bytes;
            continue;
        }
        GW_TRY(verify(round, s));
        for (uint32_t i = 0; i < n; i++) {
            memcpy((char *)dst + used, round->row[i], round->row_sizes[i]);
            used += round->row_sizes[i];
        }
    }
    *dst_bytes = used;
    return GW_OK;
}

void gw_round_reset(struct gw_round *round)
{
    memset(round->frames, 0, round->n_slices * round->n_workers * sizeof *round->frames);
    round->own = NULL;
}
