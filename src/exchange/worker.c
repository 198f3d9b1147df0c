/* What a member does as a worker. It measures tensors, encodes and pushes runs, and decodes what comes back, until all
 * its groups are done. Then the step is done. */
#include "base/clock.h"
#include "base/error.h"
#include "codec/codec.h"
#include "exchange/pipeline.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Encodes the slices of a run behind the header in `bytes`. */
static gw_status encode_run(struct gw_exchange *ex, const struct group *group, const struct run *run, char *bytes,
                            size_t *n_bytes)
{
    gw_draw draw = {.seed = ex->seed, .rank = ex->rank, .step = ex->step};
    size_t used = MESSAGE_HEADER;
    for (size_t s = run->first; s < run->first + run->n; s++) {
        const struct gw_slice *slice = &group->slices[s];
        struct tensor *tensor = &ex->tensors[slice->tensor];
        const float *numbers = tensor->n_shared ? group->numbers + tensor->shared_at : NULL;
        size_t frame_bytes;
        GW_TRY(gw_encoder_encode(tensor->encoder, tensor->gradient, numbers, &draw, slice->begin, slice->count,
                                 bytes + used, run->push_bound - used, &frame_bytes));
        used += frame_bytes;
    }
    *n_bytes = used;
    return GW_OK;
}

_Static_assert(GW_LOAN_KEY == MESSAGE_HEADER && GW_LOAN_HEAD == MESSAGE_HEADER + GW_HEADER_BYTES,
               "the head of a loan is the message's header and that of a frame without scalers");

/* Sends a run from where its gradient stands. */
static gw_status lend_run(struct gw_exchange *ex, struct group *group, struct run *run)
{
    const struct gw_slice *slice = &group->slices[run->first];
    const struct tensor *tensor = &ex->tensors[slice->tensor];
    struct gw_loan *push = &run->loans->push;
    const double start = gw_clock_seconds();
    push->body = tensor->gradient + slice->begin;
    push->n_bytes = (size_t)slice->count * sizeof(float);
    GW_TRY(gw_encoder_encode_head(tensor->encoder, tensor->gradient,
                                  &(gw_draw){.seed = ex->seed, .rank = ex->rank, .step = ex->step}, slice->begin,
                                  slice->count, push->head + MESSAGE_HEADER));
    ex->tally.encode_seconds += gw_clock_seconds() - start;
    return ex->owners->lend(ex, group, run);
}

/* Sends this worker's frames of a run, or its verdict if that is bad. */
gw_status gw_push_run(struct gw_exchange *ex, struct group *group, struct run *run)
{
    run->pushed = true;
    if (group->own_verdict.bad) {
        GW_TRY(ex->owners->refuse(ex, group, run, group->own_verdict));
        return ex->owners->pull(ex, group, run);
    }
    if (run->own && !ex->account) /* only frames can be counted */
        return gw_take_own(ex, group, run);
    if (run->loans && !ex->account)
        return lend_run(ex, group, run);
    size_t n_bytes;
    void *bytes = gw_message_new(ex, MESSAGE_PUSH, group, run->index, run->push_bound);
    if (!bytes)
        return GW_ERR_MEMORY;
    double start = gw_clock_seconds();
    gw_status status = encode_run(ex, group, run, bytes, &n_bytes);
    ex->tally.encode_seconds += gw_clock_seconds() - start;
    if (status == GW_OK && ex->account)
        status = gw_account_frames(ex, message_body(bytes), n_bytes - MESSAGE_HEADER);
    if (status < 0) {
        gw_message_free(bytes);
        return status;
    }
    GW_TRY(ex->owners->push(ex, group, run, bytes, n_bytes));
    if (!ex->optimizer)
        return ex->owners->pull(ex, group, run);
    return group->n_pushed == group->n_runs ? gw_group_all_pushed(ex) : GW_OK;
}

/* The group has all that encoding needs. This puts its runs into the queue. */
static gw_status push_group(struct gw_exchange *ex, struct group *group)
{
    group->state = GROUP_WAITS_PULLS;
    group->moments.encoding = gw_clock_seconds();
    if (ex->optimizer) {
        ex->n_in_flight--; /* until the verdict the group waits for no other member */
        if (group->n_runs == 0 || group->own_verdict.bad)
            return gw_group_all_pushed(ex);
    }
    if (group->n_runs == 0)
        gw_finish_group(ex, group);
    else
        ex->to_encode.numbers[ex->to_encode.n++] = group->index;
    return GW_OK;
}

/* The largest of n numbers. */
static float largest_of(const float *numbers, uint64_t n)
{
    float largest = 0;
    for (uint64_t i = 0; i < n; i++)
        if (numbers[i] > largest)
            largest = numbers[i];
    return largest;
}

static gw_status send_stats(struct gw_exchange *ex, struct group *group)
{
    group->state = GROUP_WAITS_SHARED;
    if (group->own_verdict.bad) {
        GW_TRY(ex->owners->refuse(ex, group, NULL, group->own_verdict));
        return ex->owners->pull(ex, group, NULL);
    }
    size_t n_bytes = MESSAGE_HEADER + (size_t)group->n_sent * sizeof(float);
    void *bytes = gw_message_new(ex, MESSAGE_STATS, group, 0, n_bytes);
    if (!bytes)
        return GW_ERR_MEMORY;
    if (ex->one_group)
        gw_put_float(message_body(bytes), largest_of(group->numbers, group->n_shared));
    else
        memcpy(message_body(bytes), group->numbers, (size_t)group->n_sent * sizeof(float));
    GW_TRY(ex->owners->push(ex, group, NULL, bytes, n_bytes));
    return ex->owners->pull(ex, group, NULL);
}

/* All tensors are measured, and the codec makes one decision for all of them. If it cannot, no group can be encoded. */
static gw_status combine(struct gw_exchange *ex)
{
    uint32_t bad;
    double start = gw_clock_seconds();
    gw_status status = gw_encoders_combine(ex->encoders, ex->n_tensors, &bad);
    ex->tally.encode_seconds += gw_clock_seconds() - start;
    for (uint32_t g = 0; status == GW_OK && bad < ex->n_tensors && g < ex->n_groups; g++)
        gw_verdict_add(&ex->groups[g].own_verdict, (struct verdict){.bad = true, .tensor = bad, .rank = ex->rank});
    return status;
}

/* All tensors of the group are measured. Sends its statistics, or begins to encode it. */
static gw_status send_group(struct gw_exchange *ex, struct group *group)
{
    ex->n_in_flight++;
    return group->n_sent ? send_stats(ex, group) : push_group(ex, group);
}

/* The same for all groups, once the last of them is measured. */
static gw_status send_together(struct gw_exchange *ex)
{
    if (++ex->n_measured < ex->n_groups)
        return GW_OK;
    GW_TRY(combine(ex));
    for (uint32_t g = 0; g < ex->n_groups; g++)
        GW_TRY(send_group(ex, &ex->groups[g]));
    return GW_OK;
}

/* True if all elements are zero. It stops at the first element that is not zero. In most gradients that is one of the
 * first. */
static bool is_zero(const float *g, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (g[i] != 0)
            return false;
    return true;
}

gw_status gw_take_gradient(struct gw_exchange *ex, uint32_t t)
{
    struct tensor *tensor = &ex->tensors[t];
    struct group *group = &ex->groups[tensor->group];
    group->moments.ready = fmax(group->moments.ready, tensor->handed_over);
    gw_measure info = {.finite = true};
    gw_status status = GW_OK;
    double start = gw_clock_seconds();
    if (ex->skip_zero_gradients && is_zero(tensor->gradient, tensor->n_elems) && gw_encoder_rest(tensor->encoder))
        memset(group->numbers + tensor->shared_at, 0, (size_t)tensor->n_shared * sizeof(float));
    else
        status = gw_encoder_measure(tensor->encoder, tensor->gradient, group->numbers + tensor->shared_at,
                                    tensor->n_shared, &info);
    ex->tally.encode_seconds += gw_clock_seconds() - start;
    GW_TRY(status);
    if (!info.finite)
        gw_verdict_add(&group->own_verdict, (struct verdict){.bad = true, .tensor = t, .rank = ex->rank});
    else if (info.sum_abs_bound > ex->tally.bound_gap)
        ex->tally.bound_gap = info.sum_abs_bound;
    if (++group->n_measured < group->n_tensors)
        return GW_OK;
    group->moments.measured = gw_clock_seconds();
    return ex->together ? send_together(ex) : send_group(ex, group);
}

/* ---- from the owners --------------------------------------------------------------------------------- */

gw_status gw_take_shared(struct gw_exchange *ex, struct group *group, const struct arrival *arrival)
{
    if (arrival->verdict.bad) {
        group->verdict = group->own_verdict = arrival->verdict;
        if (ex->optimizer) /* each key has a round in each step, so every run of the group gets a refusal */
            return push_group(ex, group);
        gw_finish_group(ex, group);
        return GW_OK;
    }
    if (arrival->n_bytes != group->n_sent * sizeof(float))
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u's shared numbers of group %u take %zu bytes, and must take %" PRIu64, arrival->from,
                       group->index, MESSAGE_HEADER + arrival->n_bytes, MESSAGE_HEADER + group->n_sent * sizeof(float));
    const char *at = arrival->body;
    for (uint64_t i = 0; i < group->n_sent; i++) {
        const float shared = gw_get_float(at + i * sizeof shared);
        const float own = ex->one_group ? largest_of(group->numbers, group->n_shared) : group->numbers[i];
        if (!(shared >= own && shared <= FLT_MAX))
            return gw_fail(
                GW_ERR_FRAME_FIELD,
                "rank %u's shared numbers of group %u hold %g where this rank has %g; they are the largest of all",
                arrival->from, group->index, (double)shared, (double)own);
    }
    if (ex->one_group) {
        for (uint64_t i = 0; i < group->n_shared; i++)
            group->numbers[i] = gw_get_float(at);
    } else {
        memcpy(group->numbers, at, (size_t)group->n_shared * sizeof(float));
    }
    return push_group(ex, group);
}

/* How many workers an average must be made of. Servers may leave out workers, and the frame itself says how many. */
static uint32_t averaged(const struct gw_exchange *ex, const void *frame, size_t n_bytes)
{
    gw_frame_info info;
    const bool fewer = ex->servers && gw_frame_parse_unverified(frame, n_bytes, &info) == GW_OK && info.average &&
                       info.workers > 0 && info.workers < ex->size;
    return fewer ? info.workers : ex->size;
}

/* Checks averages that were received into the gradient. */
static gw_status check_run(struct gw_exchange *ex, const struct group *group, const struct run *run,
                           const struct arrival *arrival)
{
    const struct gw_slice *slice = &group->slices[run->first];
    gw_frame_info info;
    gw_status status =
        gw_frame_parse_floats(arrival->body, ex->tensors[slice->tensor].gradient + slice->begin, slice->count, &info);
    if (status == GW_OK)
        status = gw_slice_check_info(slice, ex->step, 0, ex->size, &info);
    if (status < 0)
        return gw_fail(status, "rank %u's average of tensor %u: %s", arrival->from, slice->tensor, gw_last_error());
    return GW_OK;
}

static gw_status decode_run(struct gw_exchange *ex, const struct group *group, const struct run *run,
                            const struct arrival *arrival)
{
    if (arrival->in_place)
        return check_run(ex, group, run, arrival);
    const char *at = arrival->body;
    size_t left = arrival->n_bytes;
    for (size_t s = run->first; s < run->first + run->n; s++) {
        const struct gw_slice *slice = &group->slices[s];
        gw_frame_info info;
        gw_status status = gw_slice_check(slice, ex->step, 0, averaged(ex, at, left), at, left, &info);
        if (status == GW_OK)
            status = gw_decode(ex->context, at, info.frame_bytes, ex->tensors[slice->tensor].gradient + slice->begin,
                               slice->count);
        if (status == GW_OK)
            status = gw_encoder_deliver(ex->tensors[slice->tensor].encoder,
                                        ex->tensors[slice->tensor].gradient + slice->begin, slice->begin, slice->count);
        if (status < 0)
            return gw_fail(status, "rank %u's average of tensor %u: %s", arrival->from, slice->tensor, gw_last_error());
        if (ex->tensors[slice->tensor].has_wire_choice)
            ex->heard = info.fast ? GW_WIRE_FAST : GW_WIRE_SMALL;
        at += info.frame_bytes;
        left -= info.frame_bytes;
    }
    if (left > 0)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's averages of group %u have %zu bytes after the last frame",
                       arrival->from, group->index, left);
    return GW_OK;
}

gw_status gw_take_averages(struct gw_exchange *ex, struct group *group, struct run *run, const struct arrival *arrival)
{
    if (!arrival->verdict.bad) {
        double start = gw_clock_seconds();
        gw_status status = decode_run(ex, group, run, arrival);
        ex->tally.encode_seconds += gw_clock_seconds() - start;
        if (status == GW_OK && ex->account)
            status = gw_account_frames(ex, arrival->body, arrival->n_bytes);
        GW_TRY(status);
    }
    gw_verdict_add(&group->verdict, arrival->verdict);
    gw_pulled(ex, group, run);
    return GW_OK;
}
