/* The pipeline: one thread of each member that turns what arrives into what is sent.
 *
 * The caller submits a tensor, and the pipeline measures it. Once all tensors of a group are measured, the group goes
 * its way through four messages: STATS, SHARED, PUSH, PULL (docs/design.md, "Exchange"). In some steps of some codecs,
 * it waits until all tensors of the network are measured.
 *
 * Each member is a worker (worker.c). If the workers own the slices, it is also coordinator of some groups
 * (coordinator.c) and owner of some runs (owner.c). What it sends to itself travels through the link as well. There is
 * one exception: floats that an owner can add without a frame (run->own).
 *
 * A handler never waits: the only place where the thread sleeps is the owners' `receive`. The thread first handles what
 * has arrived, because others wait for the result. Then it measures one tensor or encodes one run, and looks again. */
#include "codec/state.h"
#include "codec/wire_choice.h"
#include "exchange/pipeline.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/float_env.h"
#include "codec/codec.h"

#include <string.h>

/* How often a pipeline with nothing to do looks whether its caller left something without a message. */
#define IDLE_MS 1000

/* How many elements the thread works on between two looks at the link, and how many a tensor or run counts beside its
 * own: some 10 us of work in all. */
#define WORK_ELEMENTS 16384
#define WORK_ONCE 512

/* ---- the caller's word --------------------------------------------------------------------------------- */

static gw_status begin_step(struct gw_exchange *ex, const struct beginning *b)
{
    ex->step = b->step;
    ex->operation = b->operation;
    ex->nth_step++;
    ex->running = true;
    ex->rate = b->rate;
    ex->account = b->account;
    ex->n_in_flight = ex->n_done = ex->n_through = ex->n_measured = 0;
    ex->together = false;
    if (b->operation == OPERATION_STEP)
        GW_TRY(gw_encoders_begin(ex->encoders, ex->n_tensors, &ex->together));
    ex->to_measure.n = ex->to_measure.n_done = ex->to_encode.n = ex->to_encode.n_done = 0;
    ex->verdict = (struct verdict){.bad = false};
    ex->tally = (gw_step_result){.committed = false, .wire = b->push};
    ex->heard = GW_WIRE_AUTO;
    for (uint32_t t = 0; t < ex->n_tensors; t++)
        gw_encoder_choose_wire(ex->tensors[t].encoder, b->push, b->pull);
    if (b->account) {
        memset(ex->traffic, 0, ex->n_tensors * sizeof *ex->traffic);
        for (uint32_t t = 0; t < ex->n_tensors; t++)
            ex->traffic[t].elements = ex->tensors[t].n_elems;
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
            memset(group->have_stats, 0, ex->size * sizeof *group->have_stats);
        }
    }
    if (ex->owners->begin)
        GW_TRY(ex->owners->begin(ex));
    return b->operation == OPERATION_STEP ? GW_OK : gw_begin_parameters(ex);
}

gw_status gw_pipeline_look(struct gw_exchange *ex, void *wake, bool *stop)
{
    pthread_mutex_lock(&ex->lock);
    if (!ex->wake) {
        ex->wake = wake;
        wake = NULL;
    }
    *stop = ex->stop;
    const bool leaves = ex->leaves;
    const bool begun = ex->begun;
    const struct beginning beginning = ex->beginning;
    const uint32_t n = ex->n_handed_over;
    ex->begun = ex->leaves = false;
    pthread_mutex_unlock(&ex->lock);

    gw_message_free(wake); /* this wake belongs to an earlier exchange on this link, which stopped before it came */
    if (leaves && ex->owners->leave)
        ex->owners->leave(ex);
    if (*stop)
        return GW_OK;
    if (begun)
        GW_TRY(begin_step(ex, &beginning));
    ex->to_measure.n = n;
    return GW_OK;
}

/* ---- the loop ------------------------------------------------------------------------------------------ */

static bool queue_has(const struct queue *queue)
{
    return queue->n_done < queue->n;
}

static bool is_busy(const struct gw_exchange *ex)
{
    return queue_has(&ex->to_measure) || queue_has(&ex->to_encode);
}

/* True if the next work is to measure a tensor. Measuring comes first if the group has statistics: they still have the
 * longest way to go. Else a tensor is encoded right after it was measured, while it is still in a cache. */
static bool measures_next(const struct gw_exchange *ex)
{
    if (!queue_has(&ex->to_measure) || !queue_has(&ex->to_encode))
        return queue_has(&ex->to_measure);
    const struct tensor *tensor = &ex->tensors[ex->to_measure.numbers[ex->to_measure.n_done]];
    return ex->groups[tensor->group].n_sent > 0;
}

/* Measures one tensor, or encodes one run. *n_elems: how many elements it had. */
static gw_status work_once(struct gw_exchange *ex, uint64_t *n_elems)
{
    if (measures_next(ex)) {
        uint32_t t = ex->to_measure.numbers[ex->to_measure.n_done++];
        *n_elems = ex->tensors[t].n_elems;
        return gw_take_gradient(ex, t);
    }
    struct group *group = &ex->groups[ex->to_encode.numbers[ex->to_encode.n_done]];
    struct run *run = &group->runs[group->order[group->n_pushed++]];
    const bool last = group->n_pushed == group->n_runs;
    ex->to_encode.n_done += last;
    *n_elems = run->n_elems;
    gw_status status = gw_push_run(ex, group, run);
    if (last && group->moments.pushed == 0)
        group->moments.pushed = gw_clock_seconds();
    return status;
}

/* Does some of the work. A look at the link takes system calls, so it does enough work to be worth one, or all that
 * there is. */
static gw_status work(struct gw_exchange *ex)
{
    uint64_t n_elems, n_done = 0;
    gw_status status = GW_OK;
    for (; status == GW_OK && n_done < WORK_ELEMENTS && is_busy(ex); n_done += n_elems + WORK_ONCE)
        status = work_once(ex, &n_elems);
    return status;
}

/* Handles the next message. If none has come, does some of the work that is left. */
static gw_status turn(struct gw_exchange *ex, bool *stop)
{
    double since = 0;
    for (;;) {
        const bool busy = is_busy(ex), waits = gw_waits_for_others(ex);
        if (!busy && waits && since == 0)
            since = gw_clock_seconds();
        const gw_status status = ex->owners->receive(ex, busy ? 0 : waits ? ex->timeout_ms : IDLE_MS, stop);
        if (status != GW_NOT_YET)
            return status;
        if (busy)
            return work(ex);
        /* The pipeline waits for no member. A wake may have been lost (if two exchanges share a link). The caller must
         * not wait for ever then. */
        if (!waits)
            return gw_pipeline_look(ex, NULL, stop);
        if (ex->owners->silent(ex, since))
            return GW_ERR_TIMEOUT;
    }
}

/* From here on the gradients are the caller's. */
static void take_back(struct gw_exchange *ex)
{
    if (ex->loans)
        ex->loans->take_back(ex->link.self);
}

/* Leaves the error for the caller and tells the other members. */
static void end_with(struct gw_exchange *ex, gw_status status)
{
    const struct gw_kept_error error = gw_error_keep();
    if (!ex->others_know && ex->owners->fail)
        ex->owners->fail(ex, status, error.sentence);
    take_back(ex);
    pthread_mutex_lock(&ex->lock);
    ex->status = status;
    ex->error = error;
    pthread_cond_signal(&ex->changed);
    pthread_mutex_unlock(&ex->lock);
}

void *gw_pipeline_main(void *exchange)
{
    struct gw_exchange *ex = exchange;
    bool stop = false;
    gw_float_enter(); /* this thread is the library's own, so nobody needs the old state back */
    gw_status status = ex->owners->declare(ex);
    while (status == GW_OK && !stop)
        status = turn(ex, &stop);
    if (status == GW_OK && ex->done && ex->owners->flush)
        gw_ignore(ex->owners->flush(ex)); /* a member that misses something says so itself */
    if (status < 0)
        end_with(ex, status);
    else if (ex->running)
        take_back(ex);
    return NULL;
}

void gw_pipeline_run_step(struct gw_exchange *ex)
{
    bool stop = false;
    const gw_float_env old = gw_float_enter();
    gw_status status = ex->owners->declare(ex);
    if (status == GW_OK)
        status = gw_pipeline_look(ex, NULL, &stop); /* the step has begun, and all its tensors are there */
    while (status == GW_OK && !ex->done)
        status = turn(ex, &stop);
    if (status == GW_OK && ex->owners->flush)
        status = ex->owners->flush(ex);
    if (status < 0)
        end_with(ex, status);
    gw_float_leave(old);
}
