/* Which tensors form which group, which owner gets what of it, and the memory for all of that. */
#include "base/error.h"
#include "base/memory.h"
#include "exchange/state.h"

#include <string.h>

static gw_status count_groups(struct gw_exchange *ex, const uint32_t *group_of)
{
    ex->n_groups = ex->global ? 1 : group_of ? 0 : ex->n_tensors;
    for (uint32_t t = 0; t < ex->n_tensors; t++) {
        uint32_t g = ex->global ? 0 : group_of ? group_of[t] : t;
        if (g >= ex->n_tensors)
            return gw_fail(GW_ERR_ARGUMENT, "tensor %u is in group %u; %u tensors have at most groups 0 to %u", t, g,
                           ex->n_tensors, ex->n_tensors - 1);
        ex->tensors[t].group = g;
        if (g >= ex->n_groups)
            ex->n_groups = g + 1;
    }
    return GW_OK;
}

static gw_status fill_groups(struct gw_exchange *ex)
{
    gw_context *context = ex->context;
    ex->groups = gw_calloc(context, ex->n_groups, sizeof *ex->groups);
    if (!ex->groups)
        return GW_ERR_MEMORY;
    for (uint32_t t = 0; t < ex->n_tensors; t++)
        ex->groups[ex->tensors[t].group].n_tensors++;
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        group->index = g;
        group->coordinator = g % ex->link.size;
        if (group->n_tensors == 0)
            return gw_fail(GW_ERR_ARGUMENT, "group %u is empty; groups are numbered without gaps", g);
        group->tensors = gw_alloc(context, group->n_tensors, sizeof *group->tensors);
        if (!group->tensors)
            return GW_ERR_MEMORY;
        group->n_tensors = 0;
    }
    for (uint32_t t = 0; t < ex->n_tensors; t++) {
        struct tensor *tensor = &ex->tensors[t];
        struct group *group = &ex->groups[tensor->group];
        group->tensors[group->n_tensors++] = t;
        tensor->shared_at = group->n_shared;
        group->n_shared += tensor->n_shared;
    }
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        group->n_sent = ex->global && group->n_shared ? 1 : group->n_shared;
        group->own = gw_calloc(context, group->n_shared, sizeof *group->own);
        if (!group->own)
            return GW_ERR_MEMORY;
        if (group->n_sent && group->coordinator == ex->link.rank) {
            group->largest = gw_calloc(context, group->n_sent, sizeof *group->largest);
            group->have_stats = gw_calloc(context, ex->link.size, sizeof *group->have_stats);
            if (!group->largest || !group->have_stats)
                return GW_ERR_MEMORY;
        }
    }
    return GW_OK;
}

/* Moves the slices of every group together, and by owner within it; `planned` is in the order of tensors, `place` has room for a
 * number per owner. */
static void sort_slices(struct gw_exchange *ex, const struct gw_slice *planned, size_t n_slices, size_t *place)
{
    size_t used = 0;
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        group->slices = ex->slices + used;
        memset(place, 0, (size_t)ex->link.size * sizeof *place);
        for (size_t s = 0; s < n_slices; s++)
            if (ex->tensors[planned[s].tensor].group == g)
                place[planned[s].owner]++;
        for (uint32_t r = 0; r < ex->link.size; r++) {
            size_t n = place[r];
            place[r] = used;
            used += n;
            group->n_runs += n > 0;
        }
        for (size_t s = 0; s < n_slices; s++)
            if (ex->tensors[planned[s].tensor].group == g)
                ex->slices[place[planned[s].owner]++] = planned[s];
    }
}

static gw_status fill_runs(struct gw_exchange *ex, struct group *group, size_t n_slices)
{
    if (group->n_runs == 0)
        return GW_OK;
    group->runs = gw_calloc(ex->context, group->n_runs, sizeof *group->runs);
    if (!group->runs)
        return GW_ERR_MEMORY;
    struct run *run = NULL;
    for (size_t s = 0; s < n_slices; s++) {
        const struct gw_slice *slice = &group->slices[s];
        if (!run || run->owner != slice->owner) {
            run = run ? run + 1 : group->runs;
            *run = (struct run){.owner = slice->owner, .first = s, .push_bound = MESSAGE_HEADER};
        }
        run->n++;
        run->n_elems += slice->count;
        run->push_bound += gw_encoder_bound(ex->tensors[slice->tensor].encoder, slice->count);
    }
    for (uint32_t i = 0; i < group->n_runs; i++) {
        run = &group->runs[i];
        if (run->push_bound < MESSAGE_BAD_BYTES)
            run->push_bound = MESSAGE_BAD_BYTES;
        if (run->owner != ex->link.rank) {
            ex->dense_bytes += 4 * run->n_elems;
            continue;
        }
        group->pushes = gw_calloc(ex->context, ex->link.size, sizeof *group->pushes);
        if (!group->pushes)
            return GW_ERR_MEMORY;
        GW_TRY(
            gw_round_create(ex->context, ex->codec, group->slices + run->first, run->n, ex->link.size, &group->round));
    }
    return GW_OK;
}

gw_status gw_layout_init(struct gw_exchange *ex, const uint32_t *group_of)
{
    GW_TRY(count_groups(ex, group_of));
    GW_TRY(fill_groups(ex));

    size_t n_slices = 0;
    struct gw_slice *planned = NULL;
    uint64_t *n_elems = gw_alloc(ex->context, ex->n_tensors, sizeof *n_elems);
    uint64_t *align = gw_alloc(ex->context, ex->n_tensors, sizeof *align);
    size_t *place = gw_alloc(ex->context, ex->link.size, sizeof *place);
    gw_status status = n_elems && align && place ? GW_OK : GW_ERR_MEMORY;
    if (status == GW_OK) {
        for (uint32_t t = 0; t < ex->n_tensors; t++) {
            n_elems[t] = ex->tensors[t].n_elems;
            align[t] = gw_encoder_slice_align(ex->tensors[t].encoder);
        }
        status = gw_slices_plan(ex->context, n_elems, align, ex->n_tensors, ex->link.size, &planned, &n_slices);
    }
    if (status == GW_OK) {
        ex->slices = gw_alloc(ex->context, n_slices, sizeof *ex->slices);
        status = ex->slices ? GW_OK : GW_ERR_MEMORY;
    }
    if (status == GW_OK)
        sort_slices(ex, planned, n_slices, place);
    gw_free(ex->context, place);
    gw_free(ex->context, planned);
    gw_free(ex->context, align);
    gw_free(ex->context, n_elems);
    GW_TRY(status);

    for (uint32_t g = 0; g < ex->n_groups; g++) {
        const struct gw_slice *end = g + 1 < ex->n_groups ? ex->groups[g + 1].slices : ex->slices + n_slices;
        GW_TRY(fill_runs(ex, &ex->groups[g], (size_t)(end - ex->groups[g].slices)));
    }
    return GW_OK;
}

void gw_layout_fini(struct gw_exchange *ex)
{
    for (uint32_t g = 0; ex->groups && g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        for (uint32_t r = 0; group->pushes && r < ex->link.size; r++)
            gw_message_free(group->pushes[r].bytes);
        gw_free(ex->context, group->pushes);
        gw_round_destroy(group->round);
        gw_free(ex->context, group->have_stats);
        gw_free(ex->context, group->largest);
        gw_free(ex->context, group->own);
        gw_free(ex->context, group->runs);
        gw_free(ex->context, group->tensors);
    }
    gw_free(ex->context, ex->groups);
    gw_free(ex->context, ex->slices);
}
