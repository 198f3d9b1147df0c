/* Makes plans: the simple methods of merging layers, and the choice between methods. exact.c has the exact one. */
#include "plan/profile.h"
#include "base/error.h"
#include "base/options.h"
#include "plan/timeline.h"

/* A group ends with the layer that brings it to `most` bytes of float32. With 1 each layer is a group, and with
 * UINT64_MAX all are one. */
static void merge_by_bytes(const gw_profile *p, uint64_t most, uint32_t *group_of)
{
    uint64_t bytes = 0;
    uint32_t g = 0;
    for (uint32_t l = p->n_layers; l-- > 0;) {
        group_of[l] = g;
        bytes += 4 * p->layers[l].n_elems;
        if (bytes >= most) {
            bytes = 0;
            g++;
        }
    }
}

/* DLGS, algorithm 2. Layer l is merged into l - 1 if the whole step, with what was merged so far, gets shorter. */
static void merge_as_paper(const struct gw_model *model, uint32_t *group_of)
{
    const uint32_t n = model->profile->n_layers;
    merge_by_bytes(model->profile, 1, group_of);
    double step = gw_step_of(model, group_of, NULL);
    for (uint32_t l = n - 1; l > 0; l--) {
        for (uint32_t k = 0; k < l; k++)
            group_of[k]--;
        const double merged = gw_step_of(model, group_of, NULL);
        if (merged < step) {
            step = merged;
            continue;
        }
        for (uint32_t k = 0; k < l; k++)
            group_of[k]++;
    }
}

/* The better the plan that the search knows at its begin, the shorter is the search. The processors are busy for the
 * same time under all plans. So the plan that is best without that time is best with it, too. If many plans are best
 * with it, this one leaves the most to spare. */
static gw_status merge_exactly(gw_context *context, const struct gw_model *model, uint32_t *group_of)
{
    struct gw_model idle = *model;
    idle.busy_until = 0;
    merge_by_bytes(model->profile, UINT64_MAX, group_of);
    const double single = gw_step_of(&idle, group_of, NULL);
    merge_as_paper(&idle, group_of);
    const double paper = gw_step_of(&idle, group_of, NULL);
    return gw_merge_exactly(context, &idle, single < paper ? single : paper, group_of);
}

gw_status gw_plan_merge(gw_context *context, const gw_profile *profile, uint32_t codec, gw_compress compress,
                        gw_merge method, uint64_t fixed_bytes, uint32_t *group_of, uint32_t *n_groups, double *step_ms)
{
    struct gw_model model;
    gw_profile own;
    if (!profile || !group_of)
        return gw_fail(GW_ERR_ARGUMENT, "gw_plan_merge: profile or group_of is NULL");
    GW_TRY(GW_TAKE_OPTIONS(gw_profile, profile, &own));
    profile = &own;
    GW_TRY(gw_model_init(profile, codec, compress, &model));
    if (!gw_merge_name(method))
        return gw_fail(GW_ERR_ARGUMENT, "gw_plan_merge: there is no method %d", (int)method);
    if ((fixed_bytes > 0) != (method == GW_MERGE_FIXED))
        return gw_fail(GW_ERR_ARGUMENT, "gw_plan_merge: fixed_bytes is %s, and the method is %s",
                       fixed_bytes ? "given" : "0", gw_merge_name(method));
    if (method == GW_MERGE_EXACT)
        GW_TRY(merge_exactly(context, &model, group_of));
    else if (method == GW_MERGE_PAPER)
        merge_as_paper(&model, group_of);
    else
        merge_by_bytes(profile,
                       method == GW_MERGE_NONE     ? 1
                       : method == GW_MERGE_SINGLE ? UINT64_MAX
                                                   : fixed_bytes,
                       group_of);
    if (n_groups)
        *n_groups = group_of[0] + 1;
    if (step_ms)
        *step_ms = gw_step_of(&model, group_of, NULL);
    return GW_OK;
}

const char *gw_merge_name(gw_merge method)
{
    static const char *const names[] = {
        [GW_MERGE_EXACT] = "exact",   [GW_MERGE_PAPER] = "paper", [GW_MERGE_NONE] = "none",
        [GW_MERGE_SINGLE] = "single", [GW_MERGE_FIXED] = "fixed",
    };
    return (size_t)method < sizeof names / sizeof *names ? names[method] : NULL;
}
