/* Counts what the frames of a step hold, tensor by tensor, if the caller asked for it. */
#include "base/error.h"
#include "base/memory.h"
#include "exchange/state.h"

/* Counts a frame for its tensor. */
static gw_status account_frame(struct gw_exchange *ex, const void *frame, const gw_frame_info *info)
{
    gw_tensor_traffic *traffic = &ex->traffic[info->tensor_id];
    uint64_t nonzeros;
    double entropy_bits;
    GW_TRY(gw_frame_symbols(ex->context, frame, info->frame_bytes, NULL, 0, &nonzeros, &entropy_bits));
    double share = (double)info->n_elems / (double)ex->tensors[info->tensor_id].n_elems;
    if (info->average) {
        traffic->pull_frame_bytes += info->frame_bytes;
        traffic->pull_payload_bytes += info->payload_bytes;
        traffic->pull_entropy_bits += share * entropy_bits;
    } else {
        traffic->push_frame_bytes += info->frame_bytes;
        traffic->push_payload_bytes += info->payload_bytes;
        traffic->push_entropy_bits += share * entropy_bits;
        traffic->nonzeros += nonzeros;
        ex->tally.nonzeros += nonzeros;
        ex->tally.elements += info->n_elems;
    }
    return GW_OK;
}

/* Sums the squares of what this worker's own frame holds, and of the gradient that it was made of. The caller's buffer
 * holds that gradient until averages arrive. */
static gw_status account_squares(struct gw_exchange *ex, const void *frame, const gw_frame_info *info)
{
    gw_tensor_traffic *traffic = &ex->traffic[info->tensor_id];
    const float *gradient = ex->tensors[info->tensor_id].gradient + info->begin;
    float *pushed = gw_alloc(ex->context, (size_t)info->n_elems, sizeof *pushed);
    if (!pushed)
        return GW_ERR_MEMORY;
    gw_status status = gw_decode(ex->context, frame, info->frame_bytes, pushed, info->n_elems);
    for (uint64_t i = 0; i < info->n_elems && status == GW_OK; i++) {
        traffic->gradient_squares += (double)gradient[i] * (double)gradient[i];
        traffic->push_squares += (double)pushed[i] * (double)pushed[i];
    }
    gw_free(ex->context, pushed);
    return status;
}

gw_status gw_account_frames(struct gw_exchange *ex, const char *at, size_t left)
{
    while (left > 0) {
        gw_frame_info info;
        GW_TRY(gw_frame_parse(at, left, &info));
        GW_TRY(account_frame(ex, at, &info));
        if (!info.average)
            GW_TRY(account_squares(ex, at, &info));
        at += info.frame_bytes;
        left -= info.frame_bytes;
    }
    return GW_OK;
}
