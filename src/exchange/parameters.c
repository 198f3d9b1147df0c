/* Parameters that servers keep. The worker sends them the first parameters, and later gets the servers' parameters into
 * the caller's buffers. When the worker has given its verdict on a step, the servers move the parameters by the step's
 * pushes. */
#include "base/error.h"
#include "exchange/pipeline.h"

#include <inttypes.h>
#include <string.h>

/* Copies the parameters of a run from the buffers of its tensors to `out`, or from `in` to these buffers. One of them
 * is NULL. */
static void copy(const struct gw_exchange *ex, const struct group *group, const struct run *run, char *out,
                 const char *in)
{
    size_t at = 0;
    for (size_t s = run->first; s < run->first + run->n; s++) {
        const struct gw_slice *slice = &group->slices[s];
        const size_t n_bytes = (size_t)slice->count * sizeof(float);
        float *values = ex->tensors[slice->tensor].gradient + slice->begin;
        if (out)
            memcpy(out + at, values, n_bytes);
        else
            memcpy(values, in + at, n_bytes);
        at += n_bytes;
    }
}

/* Servers move parameters key by key. If a tensor of any group is not finite, no key may move in this step. Some pushes
 * have left already: the verdict then says that they do not count. A key that got no push gets a refusal in its place.
 */
static gw_status give_verdict(struct gw_exchange *ex)
{
    struct verdict own = {.bad = false};
    for (uint32_t g = 0; g < ex->n_groups; g++)
        gw_verdict_add(&own, ex->groups[g].own_verdict);
    for (uint32_t g = 0; g < ex->n_groups; g++)
        for (uint32_t i = 0; ex->groups[g].own_verdict.bad && i < ex->groups[g].n_runs; i++)
            GW_TRY(ex->owners->refuse(ex, &ex->groups[g], &ex->groups[g].runs[i], own));
    return ex->owners->give_verdict(ex, own);
}

gw_status gw_group_all_pushed(struct gw_exchange *ex)
{
    if (++ex->n_through < ex->n_groups)
        return GW_OK;
    GW_TRY(give_verdict(ex));
    ex->n_in_flight = ex->n_groups;
    /* The last layers come first, in the order in which backward finished them. */
    for (uint32_t g = ex->n_groups; g-- > 0;) {
        struct group *group = &ex->groups[g];
        for (uint32_t i = 0; i < group->n_runs; i++)
            GW_TRY(ex->owners->pull(ex, group, &group->runs[i]));
        if (group->n_runs == 0)
            gw_finish_group(ex, group);
    }
    return GW_OK;
}

gw_status gw_begin_parameters(struct gw_exchange *ex)
{
    ex->n_in_flight = ex->n_groups;
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        group->state = GROUP_WAITS_PULLS;
        for (uint32_t i = 0; i < group->n_runs; i++) {
            struct run *run = &group->runs[i];
            run->pushed = true;
            if (ex->operation == OPERATION_INIT) {
                void *values = gw_buffers_take(&ex->buffers, (size_t)run->n_elems * sizeof(float));
                if (!values)
                    return GW_ERR_MEMORY;
                copy(ex, group, run, values, NULL);
                GW_TRY(ex->owners->put(ex, group, run, values));
            }
            GW_TRY(ex->owners->pull(ex, group, run));
        }
        if (group->n_runs == 0)
            gw_finish_group(ex, group);
    }
    return GW_OK;
}

gw_status gw_take_parameters(struct gw_exchange *ex, struct group *group, struct run *run,
                             const struct arrival *arrival)
{
    if (!arrival->verdict.bad) {
        if (arrival->n_bytes != run->n_elems * sizeof(float))
            return gw_fail(GW_ERR_FRAME_FIELD,
                           "parameters of run %u of group %u take %zu bytes, and must take %" PRIu64, run->index,
                           group->index, arrival->n_bytes, run->n_elems * sizeof(float));
        copy(ex, group, run, NULL, arrival->body);
        for (size_t s = run->first; ex->account && s < run->first + run->n; s++) {
            gw_tensor_traffic *traffic = &ex->traffic[group->slices[s].tensor];
            traffic->pull_frame_bytes += group->slices[s].count * sizeof(float);
            traffic->pull_payload_bytes += group->slices[s].count * sizeof(float);
        }
    }
    gw_verdict_add(&group->verdict, arrival->verdict);
    gw_pulled(ex, group, run);
    return GW_OK;
}
