/* The pipeline: one thread of each member that turns messages into messages.
 *
 * A tensor goes SUBMIT -> measured; a group whose tensors are all measured goes STATS -> (coordinator) SHARED ->
 * encoded, PUSH -> (owners) reduced, PULL -> decoded, done; a group without shared numbers goes straight to PUSH. A
 * large group has many runs, and each goes its way from PUSH to PULL by itself. Each member is worker, coordinator of
 * some groups and owner of some runs at once; what it sends to itself travels through the link as well, but for the
 * floats that an owner can add without a frame (run->own).
 *
 * A handler never waits: the only place where the thread sleeps is the link's recv. What has arrived goes first, since
 * others wait for what comes of it; then one tensor is measured, or one run encoded, and the thread looks again. */
#include "base/clock.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "exchange/state.h"
#include "link/last_words.h"

#include <float.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* How often a pipeline with nothing to do looks whether its caller left something without a message. */
#define IDLE_MS 1000

/* What is worked on between two looks at the link, in elements, and what a tensor or run costs besides its own: some 10
 * us in all. */
#define WORK_ELEMENTS 16384
#define WORK_ONCE 512

/* ---- verdicts ---------------------------------------------------------------------------------------- */

static void verdict_add(struct verdict *sum, struct verdict one)
{
    if (one.bad && (!sum->bad || one.tensor < sum->tensor || (one.tensor == sum->tensor && one.rank < sum->rank)))
        *sum = one;
}

static gw_status verdict_read(const struct gw_exchange *ex, const gw_message *message, struct verdict *verdict)
{
    *verdict = (struct verdict){.bad = false};
    if (!(message_header_read(message->bytes).flags & MESSAGE_FLAG_BAD))
        return GW_OK;
    const char *body = message_body(message->bytes);
    if (message->n_bytes != MESSAGE_BAD_BYTES)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's verdict takes %zu bytes, and must take %d", message->from,
                       message->n_bytes, MESSAGE_BAD_BYTES);
    *verdict = (struct verdict){.bad = true, .tensor = gw_get32(body), .rank = gw_get32(body + 4)};
    if (verdict->tensor >= ex->n_tensors || verdict->rank >= ex->link.size)
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u says that tensor %u of rank %u is not finite; there are %u tensors and %u ranks",
                       message->from, verdict->tensor, verdict->rank, ex->n_tensors, ex->link.size);
    return GW_OK;
}

/* ---- sending ----------------------------------------------------------------------------------------- */

/* run: number of the run within the group, 0 where the message is of the whole group. */
static void *message_new(struct gw_exchange *ex, enum message_type type, const struct group *group, uint32_t run,
                         size_t n_bytes)
{
    void *bytes = gw_buffers_take(&ex->buffers, n_bytes);
    if (bytes)
        message_header_write(bytes, &(struct message_header){.type = (uint8_t)type,
                                                             .nth_step = ex->nth_step,
                                                             .group = group->index,
                                                             .run = run,
                                                             .step = ex->step});
    return bytes;
}

/* A message that says what is not finite in place of its ordinary body. */
static void *message_bad(struct gw_exchange *ex, enum message_type type, const struct group *group, uint32_t run,
                         struct verdict verdict)
{
    uint8_t *bytes = message_new(ex, type, group, run, MESSAGE_BAD_BYTES);
    if (bytes) {
        bytes[1] = MESSAGE_FLAG_BAD;
        gw_put32(bytes + MESSAGE_HEADER, verdict.tensor);
        gw_put32(bytes + MESSAGE_HEADER + 4, verdict.rank);
    }
    return bytes;
}

/* Sends bytes, which may be NULL for want of memory. */
static gw_status send_to(struct gw_exchange *ex, uint32_t to, void *bytes, size_t n_bytes)
{
    return bytes ? ex->link.ops->send(ex->link.self, to, bytes, n_bytes, ex->timeout_ms) : GW_ERR_MEMORY;
}

static gw_status send_as_worker(struct gw_exchange *ex, uint32_t to, void *bytes, size_t n_bytes)
{
    if (to != ex->link.rank)
        ex->tally.bytes_up += n_bytes;
    if (!gw_same_machine(ex, to, ex->link.rank))
        ex->tally.bytes_between_machines_up += n_bytes;
    return send_to(ex, to, bytes, n_bytes);
}

static gw_status send_copy(struct gw_exchange *ex, uint32_t to, const void *bytes, size_t n_bytes)
{
    void *copy = gw_buffers_take(&ex->buffers, n_bytes);
    if (copy)
        memcpy(copy, bytes, n_bytes);
    return send_to(ex, to, copy, n_bytes);
}

/* Sends the same to every other member. Where the link has no way of its own those after this one come first, so that
 * not all members send to rank 0 at once. */
static gw_status send_to_others(struct gw_exchange *ex, void *bytes, size_t n_bytes)
{
    if (!bytes)
        return GW_ERR_MEMORY;
    const gw_link *link = &ex->link;
    gw_status status = GW_OK;
    if (link->ops->send_all && link->size > 1)
        return link->ops->send_all(link->self, bytes, n_bytes, ex->timeout_ms);
    for (uint32_t i = 1; i + 1 < link->size && status == GW_OK; i++)
        status = send_copy(ex, (link->rank + i) % link->size, bytes, n_bytes);
    if (status == GW_OK && link->size > 1)
        return send_to(ex, (link->rank + link->size - 1) % link->size, bytes, n_bytes);
    gw_buffers_give(&ex->buffers, bytes);
    return status;
}

static gw_status send_to_all(struct gw_exchange *ex, void *bytes, size_t n_bytes)
{
    if (!bytes)
        return GW_ERR_MEMORY;
    if (ex->link.size == 1)
        return send_to(ex, ex->link.rank, bytes, n_bytes);
    gw_status status = send_copy(ex, ex->link.rank, bytes, n_bytes);
    if (status == GW_OK)
        return send_to_others(ex, bytes, n_bytes);
    gw_message_free(bytes);
    return status;
}

static void *hello_new(struct gw_exchange *ex, size_t length)
{
    void *bytes = gw_buffers_take(&ex->buffers, MESSAGE_HEADER + length);
    if (bytes) {
        message_header_write(bytes, &(struct message_header){.type = MESSAGE_HELLO, .nth_step = MESSAGE_VERSION});
        memcpy(message_body(bytes), ex->hello, length);
    }
    return bytes;
}

static gw_status declare(struct gw_exchange *ex, uint32_t to, const struct group *group, uint32_t run, uint64_t n,
                         const char *codec, const char *optimizer)
{
    size_t codec_bytes = strlen(codec), optimizer_bytes = optimizer ? 1 + strlen(optimizer) : 0;
    size_t n_bytes = MESSAGE_HEADER + sizeof n + codec_bytes + optimizer_bytes;
    char *bytes = message_new(ex, MESSAGE_DECLARE, group, run, n_bytes);
    if (bytes) {
        gw_put64(message_body(bytes), n);
        memcpy(bytes + MESSAGE_HEADER + sizeof n, codec, codec_bytes);
        if (optimizer) {
            bytes[MESSAGE_HEADER + sizeof n + codec_bytes] = 0;
            memcpy(bytes + MESSAGE_HEADER + sizeof n + codec_bytes + 1, optimizer, optimizer_bytes - 1);
        }
    }
    return send_to(ex, to, bytes, n_bytes);
}

/* Servers compare what members would have compared among themselves, and learn what they will get. */
static gw_status greet_servers(struct gw_exchange *ex)
{
    size_t length = strlen(ex->hello);
    for (uint32_t s = 0; s < ex->link.n_owners; s++)
        GW_TRY(send_to(ex, gw_nth_owner(ex, s), hello_new(ex, length), MESSAGE_HEADER + length));
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        const struct group *group = &ex->groups[g];
        if (group->n_sent)
            GW_TRY(declare(ex, group->coordinator, group, MESSAGE_STATS_RUN, group->n_sent, "", NULL));
        for (uint32_t r = 0; r < group->n_runs; r++)
            GW_TRY(declare(ex, group->runs[r].owner, group, r, group->runs[r].n_elems, gw_codec_canonical(ex->codec),
                           ex->optimizer));
    }
    ex->n_hellos = ex->link.size - 1; /* nobody else says anything */
    return GW_OK;
}

static gw_status send_hello(struct gw_exchange *ex)
{
    size_t length = strlen(ex->hello);
    if (ex->link.n_owners)
        return greet_servers(ex);
    return send_to_others(ex, hello_new(ex, length), MESSAGE_HEADER + length);
}

gw_status gw_pipeline_wake(struct gw_exchange *ex, void *wake)
{
    return ex->link.ops->send(ex->link.self, ex->link.rank, wake, MESSAGE_HEADER, ex->timeout_ms);
}

/* ---- worker ------------------------------------------------------------------------------------------ */

/* All groups are done; of members that sent nothing else the first message may still be under way. */
static bool waits_for_hellos(const struct gw_exchange *ex)
{
    return ex->running && ex->n_done == ex->n_groups && ex->n_hellos + 1 < ex->link.size;
}

static void finish_step(struct gw_exchange *ex)
{
    ex->running = false;
    ex->tally.committed = !ex->verdict.bad;
    ex->tally.bad_tensor = ex->verdict.tensor;
    ex->tally.bad_rank = ex->verdict.rank;
    ex->tally.dense_bytes = ex->dense_bytes;
    for (uint32_t t = 0; ex->errand == ERRAND_STEP && t < ex->n_tensors; t++)
        gw_encoder_commit(ex->tensors[t].encoder, ex->tally.committed);
    pthread_mutex_lock(&ex->lock);
    if (ex->heard != GW_WIRE_AUTO)
        ex->told = ex->heard;
    ex->result = ex->tally;
    if (ex->account)
        memcpy(ex->traffic, ex->counting, ex->n_tensors * sizeof *ex->traffic);
    ex->done = true;
    pthread_cond_signal(&ex->changed);
    pthread_mutex_unlock(&ex->lock);
}

static void finish_group(struct gw_exchange *ex, struct group *group)
{
    group->state = GROUP_DONE;
    group->moments.arrived = gw_clock_seconds();
    if (group->moments.encoding > 0 && group->moments.pushed == 0) /* within the last push: an owner's own */
        group->moments.pushed = group->moments.arrived;
    verdict_add(&ex->verdict, group->verdict);
    ex->n_in_flight--;
    if (++ex->n_done == ex->n_groups && !waits_for_hellos(ex))
        finish_step(ex);
}

/* The run's averages stand in the gradients, or never will. */
static void pulled(struct gw_exchange *ex, struct group *group, struct run *run)
{
    run->pulled = true;
    if (++group->n_pulled == group->n_runs)
        finish_group(ex, group);
}

/* Encodes the slices of a run behind the header in `bytes`. */
static gw_status encode_run(struct gw_exchange *ex, const struct group *group, const struct run *run, char *bytes,
                            size_t *n_bytes)
{
    gw_draw draw = {.seed = ex->seed, .rank = ex->link.rank, .step = ex->step};
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

static gw_status reduce_if_full(struct gw_exchange *ex, struct group *group, struct run *run);

/* An owner's own part of a run goes nowhere: the gradient itself is added up. */
static gw_status push_to_self(struct gw_exchange *ex, struct group *group, struct run *run)
{
    for (size_t s = 0; s < run->n; s++) {
        const struct gw_slice *slice = &group->slices[run->first + s];
        run->own[s].values = ex->tensors[slice->tensor].gradient + slice->begin;
    }
    gw_round_put_own(run->round, run->own);
    run->own_in = true;
    run->n_in++;
    return reduce_if_full(ex, group, run);
}

/* Sends this worker's frames of a run, or its verdict where that is bad, to the run's owner or its machine's relay. */
static gw_status push_run(struct gw_exchange *ex, struct group *group, struct run *run)
{
    uint32_t relay = gw_relay_of(ex, run, ex->link.rank),
             to = relay == ex->link.rank && !run->round ? run->owner : relay;
    run->pushed = true;
    if (group->own_verdict.bad) {
        void *bad = message_bad(ex, MESSAGE_PUSH, group, run->index, group->own_verdict);
        return send_as_worker(ex, to, bad, MESSAGE_BAD_BYTES);
    }
    if (run->own && !ex->account) /* accounts are of frames */
        return push_to_self(ex, group, run);
    size_t n_bytes;
    void *bytes = message_new(ex, MESSAGE_PUSH, group, run->index, run->push_bound);
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
    return send_as_worker(ex, to, bytes, n_bytes);
}

/* The group has all that encoding needs: its runs are encoded in turn. */
static void push_group(struct gw_exchange *ex, struct group *group)
{
    group->state = GROUP_WAITS_PULLS;
    group->moments.encoding = gw_clock_seconds();
    if (group->n_runs == 0)
        finish_group(ex, group);
    else
        ex->to_encode.numbers[ex->to_encode.n++] = group->index;
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
    if (group->own_verdict.bad)
        return send_as_worker(ex, group->coordinator, message_bad(ex, MESSAGE_STATS, group, 0, group->own_verdict),
                              MESSAGE_BAD_BYTES);
    size_t n_bytes = MESSAGE_HEADER + (size_t)group->n_sent * sizeof(float);
    void *bytes = message_new(ex, MESSAGE_STATS, group, 0, n_bytes);
    if (!bytes)
        return GW_ERR_MEMORY;
    if (ex->global)
        gw_put_float(message_body(bytes), largest_of(group->numbers, group->n_shared));
    else
        memcpy(message_body(bytes), group->numbers, (size_t)group->n_sent * sizeof(float));
    return send_as_worker(ex, group->coordinator, bytes, n_bytes);
}

/* All tensors are measured: a codec with one decision for all of them takes it. */
static gw_status combine(struct gw_exchange *ex, struct group *group)
{
    uint32_t bad;
    double start = gw_clock_seconds();
    gw_status status = gw_encoders_combine(ex->encoders, ex->n_tensors, &bad);
    ex->tally.encode_seconds += gw_clock_seconds() - start;
    if (status == GW_OK && bad < ex->n_tensors)
        verdict_add(&group->own_verdict, (struct verdict){.bad = true, .tensor = bad, .rank = ex->link.rank});
    return status;
}

/* All that the group needs is measured. */
static gw_status send_group(struct gw_exchange *ex, struct group *group)
{
    ex->n_in_flight++;
    if (ex->global && !group->own_verdict.bad)
        GW_TRY(combine(ex, group));
    if (group->n_sent)
        return send_stats(ex, group);
    push_group(ex, group);
    return GW_OK;
}

/* Servers move parameters key by key: where one tensor is not finite, all groups are refused, so that no key's round is
 * applied. Last layers first, as they came. */
static gw_status send_groups_together(struct gw_exchange *ex)
{
    struct verdict own = {.bad = false};
    for (uint32_t g = 0; g < ex->n_groups; g++)
        verdict_add(&own, ex->groups[g].own_verdict);
    for (uint32_t g = ex->n_groups; g-- > 0;) {
        ex->groups[g].own_verdict = own;
        GW_TRY(send_group(ex, &ex->groups[g]));
    }
    return GW_OK;
}

static gw_status measure(struct gw_exchange *ex, uint32_t t)
{
    struct tensor *tensor = &ex->tensors[t];
    struct group *group = &ex->groups[tensor->group];
    gw_measure info;
    double start = gw_clock_seconds();
    gw_status status = gw_encoder_measure(tensor->encoder, tensor->gradient, group->numbers + tensor->shared_at,
                                          tensor->n_shared, &info);
    ex->tally.encode_seconds += gw_clock_seconds() - start;
    GW_TRY(status);
    if (!info.finite)
        verdict_add(&group->own_verdict, (struct verdict){.bad = true, .tensor = t, .rank = ex->link.rank});
    else if (info.sum_abs_bound > ex->tally.bound_gap)
        ex->tally.bound_gap = info.sum_abs_bound;
    if (++group->n_measured == group->n_tensors)
        group->moments.measured = gw_clock_seconds();
    ex->n_measured++;
    if (ex->optimizer)
        return ex->n_measured == ex->n_tensors ? send_groups_together(ex) : GW_OK;
    return group->n_measured == group->n_tensors ? send_group(ex, group) : GW_OK;
}

static void count_down(struct gw_exchange *ex, const gw_message *message)
{
    if (message->from != ex->link.rank)
        ex->tally.bytes_down += message->n_bytes;
    if (!gw_same_machine(ex, message->from, ex->link.rank))
        ex->tally.bytes_between_machines_down += message->n_bytes;
}

static gw_status handle_shared(struct gw_exchange *ex, struct group *group, const gw_message *message)
{
    if (message->from != group->coordinator || group->state != GROUP_WAITS_SHARED)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent shared numbers of group %u out of turn", message->from,
                       group->index);
    struct verdict verdict;
    GW_TRY(verdict_read(ex, message, &verdict));
    count_down(ex, message);
    if (verdict.bad) {
        group->verdict = group->own_verdict = verdict;
        if (ex->optimizer) /* every key's rounds are the steps: they are refused too */
            push_group(ex, group);
        else
            finish_group(ex, group);
        return GW_OK;
    }
    if (message->n_bytes != MESSAGE_HEADER + group->n_sent * sizeof(float))
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u's shared numbers of group %u take %zu bytes, and must take %" PRIu64, message->from,
                       group->index, message->n_bytes, MESSAGE_HEADER + group->n_sent * sizeof(float));
    const float *shared = message_body(message->bytes);
    for (uint64_t i = 0; i < group->n_sent; i++) {
        float own = ex->global ? largest_of(group->numbers, group->n_shared) : group->numbers[i];
        if (!(shared[i] >= own && shared[i] <= FLT_MAX))
            return gw_fail(
                GW_ERR_FRAME_FIELD,
                "rank %u's shared numbers of group %u hold %g where this rank has %g; they are the largest of all",
                message->from, group->index, (double)shared[i], (double)own);
    }
    if (ex->global) {
        for (uint64_t i = 0; i < group->n_shared; i++)
            group->numbers[i] = shared[0];
    } else {
        memcpy(group->numbers, shared, (size_t)group->n_shared * sizeof *shared);
    }
    push_group(ex, group);
    return GW_OK;
}

/* How many workers an average is to be of. Servers may have gone on without some. */
static uint32_t averaged(const struct gw_exchange *ex, const void *frame, size_t n_bytes)
{
    gw_frame_info info;
    const bool fewer = ex->link.n_owners && gw_frame_parse_unverified(frame, n_bytes, &info) == GW_OK && info.average &&
                       info.workers > 0 && info.workers < ex->link.size;
    return fewer ? info.workers : ex->link.size;
}

static gw_status decode_run(struct gw_exchange *ex, const struct group *group, const struct run *run,
                            const gw_message *message)
{
    const char *at = message_body(message->bytes);
    size_t left = message->n_bytes - MESSAGE_HEADER;
    for (size_t s = run->first; s < run->first + run->n; s++) {
        const struct gw_slice *slice = &group->slices[s];
        gw_frame_info info;
        gw_status status = gw_slice_check(slice, ex->step, 0, averaged(ex, at, left), at, left, &info);
        if (status == GW_OK)
            status = gw_decode(ex->context, at, info.frame_bytes, ex->tensors[slice->tensor].gradient + slice->begin,
                               slice->count);
        if (status < 0)
            return gw_fail(status, "rank %u's average of tensor %u: %s", message->from, slice->tensor, gw_last_error());
        if (ex->tensors[slice->tensor].has_wire_choice)
            ex->heard = info.fast ? GW_WIRE_FAST : GW_WIRE_SMALL;
        at += info.frame_bytes;
        left -= info.frame_bytes;
    }
    if (left > 0)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's averages of group %u have %zu bytes after the last frame",
                       message->from, group->index, left);
    return GW_OK;
}

/* A relay gives averages to the other workers of its machine. */
static gw_status hand_on(struct gw_exchange *ex, const struct run *run, const gw_message *message)
{
    uint32_t me = ex->link.rank;
    const struct machine *machine = &ex->machine_of[me];
    if (gw_same_machine(ex, run->owner, me) || gw_relay_of(ex, run, me) != me)
        return GW_OK;
    for (uint32_t i = 0; i < machine->n; i++)
        if (ex->by_machine[machine->first + i] != me)
            GW_TRY(send_copy(ex, ex->by_machine[machine->first + i], message->bytes, message->n_bytes));
    return GW_OK;
}

static gw_status handle_pull(struct gw_exchange *ex, struct group *group, struct run *run, const gw_message *message)
{
    uint32_t relay = gw_relay_of(ex, run, ex->link.rank), from = relay == ex->link.rank ? run->owner : relay;
    if (message->from != from || !run->pushed || run->pulled)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent averages of run %u of group %u out of turn", message->from,
                       run->index, group->index);
    struct verdict verdict;
    GW_TRY(verdict_read(ex, message, &verdict));
    count_down(ex, message);
    GW_TRY(hand_on(ex, run, message));
    if (!verdict.bad) {
        double start = gw_clock_seconds();
        gw_status status = decode_run(ex, group, run, message);
        ex->tally.encode_seconds += gw_clock_seconds() - start;
        if (status == GW_OK && ex->account)
            status = gw_account_frames(ex, message_body(message->bytes), message->n_bytes - MESSAGE_HEADER);
        GW_TRY(status);
    }
    verdict_add(&group->verdict, verdict);
    pulled(ex, group, run);
    return GW_OK;
}

/* ---- parameters on servers --------------------------------------------------------------------------- */

/* Puts parameters into the buffers of a run's tensors, or takes them from there. */
static void copy_parameters(struct gw_exchange *ex, const struct group *group, const struct run *run, char *at,
                            bool out)
{
    for (size_t s = run->first; s < run->first + run->n; s++) {
        const struct gw_slice *slice = &group->slices[s];
        float *values = ex->tensors[slice->tensor].gradient + slice->begin;
        size_t n_bytes = (size_t)slice->count * sizeof *values;
        if (out)
            memcpy(at, values, n_bytes);
        else
            memcpy(values, at, n_bytes);
        at += n_bytes;
    }
}

/* Asks for all parameters, with the first ones where they are put. */
static gw_status begin_errand(struct gw_exchange *ex)
{
    bool puts = ex->errand == ERRAND_PUT;
    ex->n_in_flight = ex->n_groups;
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        group->state = GROUP_WAITS_PULLS;
        for (uint32_t i = 0; i < group->n_runs; i++) {
            struct run *run = &group->runs[i];
            size_t n_bytes = MESSAGE_HEADER + (puts ? (size_t)run->n_elems * sizeof(float) : 0);
            void *bytes = message_new(ex, puts ? MESSAGE_PUT : MESSAGE_GET, group, i, n_bytes);
            if (bytes && puts)
                copy_parameters(ex, group, run, message_body(bytes), true);
            run->pushed = true;
            GW_TRY(send_to(ex, run->owner, bytes, n_bytes));
        }
        if (group->n_runs == 0)
            finish_group(ex, group);
    }
    return GW_OK;
}

/* The rate of this step's pushes: the link keeps it for all servers. */
static gw_status send_rate(struct gw_exchange *ex, double rate)
{
    uint64_t bits;
    void *bytes = message_new(ex, MESSAGE_RATE, &ex->groups[0], 0, MESSAGE_HEADER + sizeof bits);
    memcpy(&bits, &rate, sizeof bits);
    if (bytes)
        gw_put64(message_body(bytes), bits);
    return send_to(ex, gw_nth_owner(ex, 0), bytes, MESSAGE_HEADER + sizeof bits);
}

static gw_status handle_parameters(struct gw_exchange *ex, struct group *group, struct run *run,
                                   const gw_message *message)
{
    struct verdict verdict;
    if (message->from != run->owner || !ex->optimizer || !run->pushed || run->pulled)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent parameters of run %u of group %u out of turn", message->from,
                       run->index, group->index);
    GW_TRY(verdict_read(ex, message, &verdict));
    count_down(ex, message);
    if (!verdict.bad) {
        if (message->n_bytes != MESSAGE_HEADER + run->n_elems * sizeof(float))
            return gw_fail(GW_ERR_FRAME_FIELD,
                           "rank %u's parameters of run %u of group %u take %zu bytes, and must take %" PRIu64,
                           message->from, run->index, group->index, message->n_bytes,
                           MESSAGE_HEADER + run->n_elems * sizeof(float));
        copy_parameters(ex, group, run, message_body(message->bytes), false);
        for (size_t s = run->first; ex->account && s < run->first + run->n; s++) {
            gw_tensor_traffic *traffic = &ex->counting[group->slices[s].tensor];
            traffic->pull_frame_bytes += group->slices[s].count * sizeof(float);
            traffic->pull_payload_bytes += group->slices[s].count * sizeof(float);
        }
    }
    verdict_add(&group->verdict, verdict);
    pulled(ex, group, run);
    return GW_OK;
}

/* ---- coordinator ------------------------------------------------------------------------------------- */

static gw_status handle_stats(struct gw_exchange *ex, struct group *group, const gw_message *message)
{
    if (!group->largest || group->have_stats[message->from])
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent statistics of group %u out of turn", message->from,
                       group->index);
    struct verdict verdict;
    GW_TRY(verdict_read(ex, message, &verdict));
    verdict_add(&group->stats_verdict, verdict);
    if (!verdict.bad) {
        size_t n_bytes = MESSAGE_HEADER + (size_t)group->n_sent * sizeof(float);
        if (message->n_bytes != n_bytes)
            return gw_fail(GW_ERR_FRAME_FIELD, "rank %u's statistics of group %u take %zu bytes, and must take %zu",
                           message->from, group->index, message->n_bytes, n_bytes);
        const float *numbers = message_body(message->bytes);
        for (uint64_t i = 0; i < group->n_sent; i++) {
            if (!(numbers[i] >= 0 && numbers[i] <= FLT_MAX))
                return gw_fail(GW_ERR_FRAME_FIELD,
                               "rank %u's statistics of group %u hold %g; finite numbers from 0 up are possible",
                               message->from, group->index, (double)numbers[i]);
            if (numbers[i] > group->largest[i])
                group->largest[i] = numbers[i];
        }
    }
    group->have_stats[message->from] = true;
    if (++group->n_stats < ex->link.size)
        return GW_OK;
    if (group->stats_verdict.bad)
        return send_to_all(ex, message_bad(ex, MESSAGE_SHARED, group, 0, group->stats_verdict), MESSAGE_BAD_BYTES);
    size_t n_bytes = MESSAGE_HEADER + (size_t)group->n_sent * sizeof(float);
    void *bytes = message_new(ex, MESSAGE_SHARED, group, 0, n_bytes);
    if (bytes)
        memcpy(message_body(bytes), group->largest, (size_t)group->n_sent * sizeof(float));
    return send_to_all(ex, bytes, n_bytes);
}

/* ---- owner ------------------------------------------------------------------------------------------- */

/* A run's averages, or what stands in their place, to every member: workers of this machine, and one of each other.
 * others_only: this one has them. */
static gw_status send_pull(struct gw_exchange *ex, const struct run *run, void *bytes, size_t n_bytes, bool others_only)
{
    const gw_link *link = &ex->link;
    gw_status status = GW_OK;
    bool flat = true;
    for (uint32_t r = 0; r < link->size; r++)
        flat = flat && gw_relay_of(ex, run, r) == r;
    if (flat || !bytes)
        return others_only ? send_to_others(ex, bytes, n_bytes) : send_to_all(ex, bytes, n_bytes);
    for (uint32_t i = 1; i < link->size + !others_only && status == GW_OK; i++) {
        uint32_t to = (link->rank + i) % link->size;
        if (gw_relay_of(ex, run, to) == to)
            status = send_copy(ex, to, bytes, n_bytes);
    }
    gw_buffers_give(&ex->buffers, bytes);
    return status;
}

/* All pushes are in: an owner sends averages to all, a relay what its machine's workers sent to the owner. */
static gw_status send_reduced(struct gw_exchange *ex, struct group *group, struct run *run)
{
    const bool relay = run->owner != ex->link.rank, stands_here = run->own_in && !run->push_verdict.bad;
    enum message_type type = relay ? MESSAGE_PUSH : MESSAGE_PULL;
    size_t n_bytes = MESSAGE_BAD_BYTES;
    void *bytes;
    if (run->push_verdict.bad) {
        bytes = message_bad(ex, type, group, run->index, run->push_verdict);
    } else {
        double start = gw_clock_seconds();
        size_t capacity = gw_round_bound(run->round, relay);
        bytes = message_new(ex, type, group, run->index, MESSAGE_HEADER + capacity);
        gw_status status =
            bytes ? gw_round_reduce(run->round, relay, message_body(bytes), capacity, &n_bytes) : GW_ERR_MEMORY;
        ex->tally.encode_seconds += gw_clock_seconds() - start;
        if (status < 0) {
            gw_message_free(bytes);
            return status;
        }
        n_bytes += MESSAGE_HEADER;
    }
    if (relay)
        return send_as_worker(ex, run->owner, bytes, n_bytes);
    GW_TRY(send_pull(ex, run, bytes, n_bytes, stands_here));
    if (stands_here)
        pulled(ex, group, run);
    return GW_OK;
}

static gw_status reduce_if_full(struct gw_exchange *ex, struct group *group, struct run *run)
{
    if (run->n_in < run->n_expected)
        return GW_OK;
    gw_status status = send_reduced(ex, group, run);
    gw_round_reset(run->round);
    for (uint32_t r = 0; r < ex->link.size; r++) {
        gw_buffers_give(&ex->buffers, run->pushes[r].bytes);
        run->pushes[r].bytes = NULL;
    }
    return status;
}

/* Keeps message->bytes, and sets it NULL, where all is well. */
static gw_status handle_push(struct gw_exchange *ex, struct group *group, struct run *run, gw_message *message)
{
    uint32_t from = message->from, n_ranks;
    const uint32_t *ranks = gw_sent_by(ex, run, &from, &n_ranks);
    bool sends_here = run->round && (run->owner == ex->link.rank ? gw_relay_of(ex, run, from) == from
                                                                 : gw_same_machine(ex, from, ex->link.rank));
    if (!sends_here || run->pushes[from].bytes || run->n_in == run->n_expected)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u pushed run %u of group %u out of turn", from, run->index,
                       group->index);
    struct verdict verdict;
    GW_TRY(verdict_read(ex, message, &verdict));
    verdict_add(&run->push_verdict, verdict);
    if (!verdict.bad)
        GW_TRY(gw_round_put(run->round, from, ranks, n_ranks, ex->step, message_body(message->bytes),
                            message->n_bytes - MESSAGE_HEADER));
    run->pushes[from] = *message;
    message->bytes = NULL;
    run->n_in += n_ranks;
    return reduce_if_full(ex, group, run);
}

/* ---- the loop ---------------------------------------------------------------------------------------- */

static gw_status handle(struct gw_exchange *ex, gw_message *message);

/* What the caller left for the pipeline when it began. */
struct beginning {
    uint32_t step;
    bool account;
    enum errand errand;
    double rate;
    gw_wire push, pull;
};

static gw_status begin_step(struct gw_exchange *ex, const struct beginning *b)
{
    const bool account = b->account;
    ex->step = b->step;
    ex->errand = b->errand;
    ex->n_measured = 0;
    ex->nth_step++;
    ex->running = true;
    ex->account = account;
    ex->n_in_flight = ex->n_done = 0;
    ex->to_measure.n = ex->to_measure.n_done = ex->to_encode.n = ex->to_encode.n_done = 0;
    ex->verdict = (struct verdict){.bad = false};
    ex->tally = (gw_step_result){.committed = false, .wire = b->push};
    ex->heard = GW_WIRE_AUTO;
    for (uint32_t t = 0; t < ex->n_tensors; t++)
        gw_encoder_choose_wire(ex->tensors[t].encoder, b->push, b->pull);
    if (account) {
        memset(ex->counting, 0, ex->n_tensors * sizeof *ex->counting);
        for (uint32_t t = 0; t < ex->n_tensors; t++)
            ex->counting[t].elements = ex->tensors[t].n_elems;
    }
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        group->state = GROUP_MEASURING;
        group->moments = (gw_group_moments){.ready = 0};
        group->n_measured = group->n_pushed = group->n_pulled = group->n_stats = 0;
        group->own_verdict = group->verdict = group->stats_verdict = (struct verdict){.bad = false};
        for (uint32_t i = 0; i < group->n_runs; i++) {
            struct run *run = &group->runs[i];
            run->pushed = run->pulled = run->own_in = false;
            run->n_in = 0;
            run->push_verdict = (struct verdict){.bad = false};
        }
        if (group->largest) {
            memset(group->largest, 0, (size_t)group->n_sent * sizeof *group->largest);
            memset(group->have_stats, 0, ex->link.size * sizeof *group->have_stats);
        }
    }
    struct gw_message_queue early = ex->early;
    ex->early = (struct gw_message_queue){NULL, NULL};
    gw_status status = GW_OK;
    gw_message message;
    while (status == GW_OK && gw_message_queue_take(&early, &message)) {
        status = handle(ex, &message);
        gw_buffers_give(&ex->buffers, message.bytes);
    }
    gw_message_queue_clear(&early);
    GW_TRY(status);
    if (b->errand != ERRAND_STEP)
        return begin_errand(ex);
    return ex->optimizer ? send_rate(ex, b->rate) : GW_OK;
}

/* Looks at what the caller left. wake: the message that said so, which is kept for the next time; NULL where none came.
 */
static gw_status look(struct gw_exchange *ex, void *wake, bool *stop)
{
    pthread_mutex_lock(&ex->lock);
    if (!ex->wake) {
        ex->wake = wake;
        wake = NULL;
    }
    *stop = ex->stop;
    const bool begun = ex->begun;
    const struct beginning beginning = {.step = ex->begun_step,
                                        .account = ex->begun_account,
                                        .errand = ex->begun_errand,
                                        .rate = ex->begun_rate,
                                        .push = ex->begun_push,
                                        .pull = ex->begun_pull};
    const uint32_t n = ex->n_submitted;
    memcpy(ex->to_measure.numbers + (begun ? 0 : ex->to_measure.n), ex->submitted, n * sizeof *ex->submitted);
    ex->n_submitted = 0;
    ex->begun = false;
    pthread_mutex_unlock(&ex->lock);

    gw_message_free(wake); /* of an exchange on this link before, which saw by itself that it was to stop */
    if (*stop)
        return GW_OK;
    if (begun)
        GW_TRY(begin_step(ex, &beginning));
    ex->to_measure.n += n;
    return GW_OK;
}

/* A message of another member's pipeline, or of this one's to itself. Sets message->bytes NULL where it keeps them. */
static gw_status handle(struct gw_exchange *ex, gw_message *message)
{
    uint32_t from = message->from;
    if (from >= ex->link.size + ex->link.n_owners)
        return gw_fail(GW_ERR_FRAME_FIELD, "a message came from rank %u; ranks are 0 to %u", from,
                       ex->link.size + ex->link.n_owners - 1);
    if (message->n_bytes < MESSAGE_HEADER)
        return gw_fail(GW_ERR_FRAME_CUT, "rank %u sent a message of %zu bytes; the header alone takes %d", from,
                       message->n_bytes, MESSAGE_HEADER);
    struct message_header h = message_header_read(message->bytes);
    if (h.type == MESSAGE_HELLO && from < ex->link.size) {
        bool waited = waits_for_hellos(ex);
        GW_TRY(gw_hello_check(ex, message));
        if (waited && !waits_for_hellos(ex))
            finish_step(ex);
        return GW_OK;
    }
    if (from < ex->link.size && from != ex->link.rank && !ex->have_hello[from])
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u sent a message of type %u before it said what it is part of", from,
                       h.type);
    bool of_run = h.type == MESSAGE_PUSH || h.type == MESSAGE_PULL || h.type == MESSAGE_PARAMETERS;
    if (h.type < MESSAGE_STATS || (h.type > MESSAGE_PULL && h.type != MESSAGE_PARAMETERS) ||
        h.flags > MESSAGE_FLAG_BAD || h.group >= ex->n_groups || h.run >= (of_run ? ex->groups[h.group].n_runs : 1))
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u sent a message of type %u, flags %u, group %u, run %u, which cannot be", from, h.type,
                       h.flags, h.group, h.run);
    if (h.nth_step == (uint16_t)(ex->nth_step + 1)) { /* a member that is done here may be one step ahead */
        gw_message_queue_put(&ex->early, message);
        message->bytes = NULL;
        return GW_OK;
    }
    if (h.nth_step != ex->nth_step || !ex->running)
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "rank %u sent a message of step number %u of the exchange; this member has begun %u", from,
                       h.nth_step, ex->nth_step);
    if (h.step != ex->step)
        return gw_fail(GW_ERR_ORDER,
                       "rank %u has begun step %u, and this member step %u; all members must begin the same", from,
                       h.step, ex->step);
    struct group *group = &ex->groups[h.group];
    ex->tally.messages += from != ex->link.rank;
    switch (h.type) {
    case MESSAGE_STATS:
        return handle_stats(ex, group, message);
    case MESSAGE_SHARED:
        return handle_shared(ex, group, message);
    case MESSAGE_PUSH:
        return handle_push(ex, group, &group->runs[h.run], message);
    case MESSAGE_PARAMETERS:
        return handle_parameters(ex, group, &group->runs[h.run], message);
    default:
        return handle_pull(ex, group, &group->runs[h.run], message);
    }
}

static bool queue_has(const struct queue *queue)
{
    return queue->n_done < queue->n;
}

static bool is_busy(const struct gw_exchange *ex)
{
    return queue_has(&ex->to_measure) || queue_has(&ex->to_encode);
}

/* Measuring comes first if statistics are sent: they have the longest way before them. Else what is measured is encoded
 * at once, while it is still in a cache. */
static bool measures_next(const struct gw_exchange *ex)
{
    if (!queue_has(&ex->to_measure) || !queue_has(&ex->to_encode))
        return queue_has(&ex->to_measure);
    const struct tensor *tensor = &ex->tensors[ex->to_measure.numbers[ex->to_measure.n_done]];
    return ex->groups[tensor->group].n_sent > 0;
}

/* Measures one tensor, or encodes one run; n_elems: of how many elements. */
static gw_status work_once(struct gw_exchange *ex, uint64_t *n_elems)
{
    if (measures_next(ex)) {
        uint32_t t = ex->to_measure.numbers[ex->to_measure.n_done++];
        *n_elems = ex->tensors[t].n_elems;
        return measure(ex, t);
    }
    struct group *group = &ex->groups[ex->to_encode.numbers[ex->to_encode.n_done]];
    struct run *run = &group->runs[group->order[group->n_pushed++]];
    const bool last = group->n_pushed == group->n_runs;
    ex->to_encode.n_done += last;
    *n_elems = run->n_elems;
    gw_status status = push_run(ex, group, run);
    if (last && group->moments.pushed == 0)
        group->moments.pushed = gw_clock_seconds();
    return status;
}

/* A piece of work that is worth a look at the link, which takes system calls, or all that there is. */
static gw_status work(struct gw_exchange *ex)
{
    uint64_t n_elems, n_done = 0;
    gw_status status = GW_OK;
    for (; status == GW_OK && n_done < WORK_ELEMENTS && is_busy(ex); n_done += n_elems + WORK_ONCE)
        status = work_once(ex, &n_elems);
    return status;
}

static bool is_wake(const struct gw_exchange *ex, const gw_message *message)
{
    return message->from == ex->link.rank && message->n_bytes == MESSAGE_HEADER &&
           message_header_read(message->bytes).type == MESSAGE_WAKE;
}

/* Receives and handles one message; where none has arrived, does one piece of the work that is left. */
static gw_status turn(struct gw_exchange *ex, bool *stop)
{
    gw_message message;
    gw_status status;
    bool waited = false; /* one deadline has passed in silence */
    for (;;) {
        bool busy = is_busy(ex);
        bool waits = ex->n_in_flight || waits_for_hellos(ex);
        uint32_t timeout_ms = busy ? 0 : waits ? ex->timeout_ms : IDLE_MS;
        status = ex->link.ops->recv(ex->link.self, timeout_ms, &message);
        if (status != GW_ERR_TIMEOUT)
            break;
        if (busy)
            return work(ex);
        /* Nothing is due. A wake that went astray (two exchanges on one link) must not leave the caller waiting for
         * ever. */
        if (!waits)
            return look(ex, NULL, stop);
        /* A member that owes something itself is named at the first deadline. One that may be waiting for another in
         * turn gets a second one, in which whoever waits for the silent member directly will have told us its name. */
        if (gw_silent_members(ex, waited))
            return GW_ERR_TIMEOUT;
        waited = true;
    }
    if (status < 0) {
        ex->others_know = status == GW_ERR_PEER; /* a member that failed has told everybody */
        return status;
    }
    if (is_wake(ex, &message))
        return look(ex, message.bytes, stop);
    status = handle(ex, &message);
    gw_buffers_give(&ex->buffers, message.bytes);
    return status;
}

/* Leaves the error for the caller and tells the other members. */
static void end_with(struct gw_exchange *ex, gw_status status)
{
    char sentence[sizeof ex->sentence];
    if (status == GW_ERR_PEER && !ex->others_know) /* a send has failed */
        ex->others_know = gw_link_last_words(&ex->link);
    snprintf(sentence, sizeof sentence, "%s", gw_last_error());
    if (!ex->others_know)
        ex->link.ops->fail(ex->link.self, status, sentence);
    pthread_mutex_lock(&ex->lock);
    ex->status = status;
    memcpy(ex->sentence, sentence, sizeof sentence);
    pthread_cond_signal(&ex->changed);
    pthread_mutex_unlock(&ex->lock);
}

void *gw_pipeline_main(void *exchange)
{
    struct gw_exchange *ex = exchange;
    bool stop = false;
    gw_float_enter(); /* this thread is the library's own: nothing to put back */
    gw_status status = send_hello(ex);
    while (status == GW_OK && !stop)
        status = turn(ex, &stop);
    if (status < 0)
        end_with(ex, status);
    return NULL;
}
