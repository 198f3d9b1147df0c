/* Notes what is over: a run, a group, a step. */
#include "base/error.h"
#include "base/clock.h"
#include "exchange/pipeline.h"

bool gw_waits_for_hellos(const struct gw_exchange *ex)
{
    return ex->running && ex->n_done == ex->n_groups && ex->n_hellos + 1 < ex->size;
}

bool gw_waits_for_others(const struct gw_exchange *ex)
{
    return ex->n_in_flight || gw_waits_for_hellos(ex);
}

void gw_finish_step(struct gw_exchange *ex)
{
    ex->running = false;
    ex->said_waiting_at = gw_clock_seconds();
    ex->tally.committed = !ex->verdict.bad;
    ex->tally.bad_tensor = ex->verdict.tensor;
    ex->tally.bad_rank = ex->verdict.rank;
    ex->tally.dense_bytes = ex->dense_bytes;
    for (uint32_t t = 0; ex->operation == OPERATION_STEP && t < ex->n_tensors; t++)
        gw_ignore(gw_encoder_commit(ex->tensors[t].encoder, ex->tally.committed)); /* fails for NULL only */
    pthread_mutex_lock(&ex->lock);
    if (ex->heard != GW_WIRE_AUTO)
        ex->told = ex->heard;
    ex->done = true;
    pthread_cond_signal(&ex->changed);
    pthread_mutex_unlock(&ex->lock);
}

void gw_finish_group(struct gw_exchange *ex, struct group *group)
{
    group->state = GROUP_DONE;
    group->moments.arrived = gw_clock_seconds();
    /* Averages may come during the last push, because the owner then has its own part already. */
    if (group->moments.encoding > 0 && group->moments.pushed == 0)
        group->moments.pushed = group->moments.arrived;
    gw_verdict_add(&ex->verdict, group->verdict);
    ex->n_in_flight--;
    if (++ex->n_done == ex->n_groups && !gw_waits_for_hellos(ex))
        gw_finish_step(ex);
}

void gw_pulled(struct gw_exchange *ex, struct group *group, struct run *run)
{
    run->pulled = true;
    if (++group->n_pulled == group->n_runs)
        gw_finish_group(ex, group);
}
