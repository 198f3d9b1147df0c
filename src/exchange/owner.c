/* What a member does as the owner of runs, and as a relay. An owner averages what the workers push, and sends the
 * averages to all. A relay joins what the workers of its machine push to an owner on another machine, and hands
 * averages on to them. */
#include "base/clock.h"
#include "base/error.h"
#include "exchange/pipeline.h"
#include "exchange/relay.h"

/* Sends a run's averages, or the message in their place, to the workers of this machine and to the relay of each other
 * machine. others_only: not to this member, which has them already. */
static gw_status send_pull(struct gw_exchange *ex, const struct run *run, void *bytes, size_t n_bytes, bool others_only)
{
    gw_status status = GW_OK;
    bool flat = true;
    for (uint32_t r = 0; r < ex->size; r++)
        flat = flat && gw_relay_of(ex, run, r) == r;
    if (flat || !bytes)
        return others_only ? gw_send_to_others(ex, bytes, n_bytes) : gw_send_to_all(ex, bytes, n_bytes);
    for (uint32_t i = 1; i < ex->size + !others_only && status == GW_OK; i++) {
        uint32_t to = (ex->rank + i) % ex->size;
        if (gw_relay_of(ex, run, to) == to)
            status = gw_send_copy(ex, to, bytes, n_bytes);
    }
    gw_buffers_give(&ex->buffers, bytes);
    return status;
}

/* All pushes of a run have come. An owner reduces them and sends averages to all. A relay joins them and sends them to
 * the owner. */
static gw_status send_reduced(struct gw_exchange *ex, struct group *group, struct run *run)
{
    const bool relay = run->owner != ex->rank, stands_here = run->own_in && !run->push_verdict.bad;
    enum message_type type = relay ? MESSAGE_PUSH : MESSAGE_PULL;
    size_t n_bytes = MESSAGE_BAD_BYTES;
    void *bytes;
    if (run->push_verdict.bad) {
        bytes = gw_message_bad(ex, type, group, run->index, run->push_verdict);
    } else {
        double start = gw_clock_seconds();
        size_t capacity = gw_round_bound(run->round, relay);
        bytes = gw_message_new(ex, type, group, run->index, MESSAGE_HEADER + capacity);
        gw_status status =
            bytes ? gw_round_reduce(run->round, relay, message_body(bytes), capacity, &n_bytes) : GW_ERR_MEMORY;
        ex->tally.encode_seconds += gw_clock_seconds() - start;
        if (status < 0) {
            gw_message_free(bytes);
            return status;
        }
        n_bytes += MESSAGE_HEADER;
    }
    if (relay) {
        gw_count_up(ex, run->owner, n_bytes);
        return gw_send_to(ex, run->owner, bytes, n_bytes);
    }
    GW_TRY(send_pull(ex, run, bytes, n_bytes, stands_here));
    if (stands_here)
        gw_pulled(ex, group, run);
    return GW_OK;
}

static gw_status reduce_if_full(struct gw_exchange *ex, struct group *group, struct run *run)
{
    if (run->n_in < run->n_expected)
        return GW_OK;
    gw_status status = send_reduced(ex, group, run);
    gw_round_reset(run->round);
    for (uint32_t r = 0; r < ex->size; r++) {
        gw_buffers_give(&ex->buffers, run->pushes[r].bytes);
        run->pushes[r].bytes = NULL;
    }
    return status;
}

/* The ranks whose frames the worker `from` sends for this run: its own rank alone, or all ranks of its machine. Returns
 * an array of *n ranks. */
static const uint32_t *sent_by(const struct gw_exchange *ex, const struct run *run, const uint32_t *from, uint32_t *n)
{
    const struct machine *machine = &ex->machine_of[*from];
    *n = 1;
    if (run->owner != ex->rank || gw_same_machine(ex, *from, run->owner))
        return from;
    *n = machine->n;
    return ex->by_machine + machine->first;
}

gw_status gw_take_push(struct gw_exchange *ex, struct group *group, struct run *run, const struct arrival *arrival,
                       gw_message *message)
{
    uint32_t from = arrival->from, n_ranks;
    const uint32_t *ranks = sent_by(ex, run, &from, &n_ranks);
    if (!run->round || !gw_pushes_here(ex, run, from) || run->pushes[from].bytes || run->n_in == run->n_expected)
        return gw_fail(GW_ERR_FRAME_FIELD, "rank %u pushed run %u of group %u out of turn", from, run->index,
                       group->index);
    gw_verdict_add(&run->push_verdict, arrival->verdict);
    if (!arrival->verdict.bad)
        GW_TRY(gw_round_put(run->round, from, ranks, n_ranks, ex->step, arrival->body, arrival->n_bytes));
    run->pushes[from] = *message;
    message->bytes = NULL;
    run->n_in += n_ranks;
    return reduce_if_full(ex, group, run);
}

gw_status gw_take_own(struct gw_exchange *ex, struct group *group, struct run *run)
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
