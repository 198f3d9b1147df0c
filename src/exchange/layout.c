/* Decides which tensors form which group and which owner gets what of it, and takes the memory for all of that. */
#define _GNU_SOURCE /* qsort_r */
#include "base/error.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "exchange/relay.h"

#include <stdlib.h>

static gw_status count_groups(struct gw_exchange *ex, const uint32_t *group_of)
{
    for (uint32_t t = 0; t < ex->n_tensors; t++) {
        uint32_t g = ex->one_group ? 0 : group_of ? group_of[t] : t;
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
    for (uint32_t t = 0; t < ex->n_tensors; t++) {
        struct tensor *tensor = &ex->tensors[t];
        struct group *group = &ex->groups[tensor->group];
        group->n_tensors++;
        tensor->shared_at = group->n_shared;
        group->n_shared += tensor->n_shared;
    }
    for (uint32_t g = 0; g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        if (group->n_tensors == 0)
            return gw_fail(GW_ERR_ARGUMENT, "group %u is empty; groups are numbered without gaps", g);
        group->index = g;
        group->coordinator = gw_nth_owner(ex, g % ex->n_owners + ex->turn);
        group->n_sent = ex->one_group && group->n_shared ? 1 : group->n_shared;
        group->numbers = gw_calloc(context, group->n_shared, sizeof *group->numbers);
        if (!group->numbers)
            return GW_ERR_MEMORY;
        if (group->n_sent && group->coordinator == ex->rank) {
            group->largest = gw_calloc(context, group->n_sent, sizeof *group->largest);
            group->have_stats = gw_calloc(context, ex->size, sizeof *group->have_stats);
            if (!group->largest || !group->have_stats)
                return GW_ERR_MEMORY;
        }
    }
    return GW_OK;
}

/* True if the slice is a run by itself, so that its floats can be sent from where they stand. */
static bool stands_alone(const struct gw_exchange *ex, const struct gw_slice *slice)
{
    return ex->owners->lend && slice->count >= GW_LOAN_LEAST / sizeof(float) &&
           gw_encoder_is_plain(ex->tensors[slice->tensor].encoder);
}

/* Sorts slices by group and then by owner. Those of an owner that stand alone come last, so that the others are not cut
 * into more runs. */
static int by_group(const void *a, const void *b, void *exchange)
{
    const struct gw_exchange *ex = exchange;
    const struct gw_slice *x = a, *y = b;
    const uint64_t keys[][2] = {{ex->tensors[x->tensor].group, ex->tensors[y->tensor].group},
                                {x->owner, y->owner},
                                {stands_alone(ex, x), stands_alone(ex, y)},
                                {x->tensor, y->tensor},
                                {x->begin, y->begin}};
    size_t k = 0;
    while (k + 1 < sizeof keys / sizeof *keys && keys[k][0] == keys[k][1])
        k++;
    return keys[k][0] < keys[k][1] ? -1 : keys[k][0] > keys[k][1];
}

/* True if the run takes one more slice. run NULL: there is no run yet. */
static bool run_takes(const struct gw_exchange *ex, const struct group *group, const struct run *run,
                      const struct gw_slice *slice)
{
    return run && run->owner == slice->owner && run->n_elems + slice->count <= ex->slice_max &&
           !stands_alone(ex, slice) && !stands_alone(ex, &group->slices[run->first]);
}

/* Takes the loans of a run that is sent from where it stands, and received there. If this member hands the averages on,
 * they come as a whole. */
static gw_status fill_loans(struct gw_exchange *ex, const struct group *group, struct run *run)
{
    if (!ex->loans || !stands_alone(ex, &group->slices[run->first]) || run->owner == ex->rank || gw_is_relay(ex, run))
        return GW_OK;
    run->loans = gw_calloc(ex->context, 1, sizeof *run->loans);
    return run->loans ? GW_OK : GW_ERR_MEMORY;
}

/* Gives a run the owner's own part without frames, if two things hold: the codec can add up the gradient itself, and
 * other members send frames, which say what they belong to. */
static gw_status fill_own(struct gw_exchange *ex, const struct group *group, struct run *run)
{
    if (run->owner != ex->rank || ex->size == 1)
        return GW_OK;
    for (size_t s = 0; s < run->n; s++) {
        const gw_encoder *encoder = ex->tensors[group->slices[run->first + s].tensor].encoder;
        if (!gw_encoder_wire(encoder)->reduces_own || encoder->momentum) /* it sends a velocity */
            return GW_OK;
    }
    run->own = gw_alloc(ex->context, run->n, sizeof *run->own);
    if (!run->own)
        return GW_ERR_MEMORY;
    for (size_t s = 0; s < run->n; s++)
        run->own[s] =
            (struct gw_own){.wire = gw_encoder_wire(ex->tensors[group->slices[run->first + s].tensor].encoder),
                            .rank = ex->rank};
    return GW_OK;
}

/* The place of an owner's nth run in the order in which this member encodes a group: the first run of every owner comes
 * first, then the second of each, and so on. So all owners have work early. Each time it begins with the owner after
 * this member, so that not all members push to the same owner at once. */
static uint64_t place_of(const struct gw_exchange *ex, uint32_t owner, uint32_t nth)
{
    return (uint64_t)nth << 32 | (owner - gw_nth_owner(ex, ex->rank) + ex->n_owners - 1) % ex->n_owners;
}

static int by_place(const void *a, const void *b, void *of_group)
{
    const struct run *runs = of_group, *x = &runs[*(const uint32_t *)a], *y = &runs[*(const uint32_t *)b];
    return x->place < y->place ? -1 : x->place > y->place;
}

static gw_status fill_runs(struct gw_exchange *ex, struct group *group, size_t n_slices)
{
    struct run *run = NULL;
    for (size_t s = 0; s < n_slices; s++) {
        const struct gw_slice *slice = &group->slices[s];
        if (!run_takes(ex, group, run, slice)) {
            const uint32_t nth = run && run->owner == slice->owner ? (uint32_t)(run->place >> 32) + 1 : 0;
            run = &group->runs[group->n_runs];
            *run = (struct run){.index = group->n_runs++,
                                .owner = slice->owner,
                                .place = place_of(ex, slice->owner, nth),
                                .first = s,
                                .push_bound = MESSAGE_HEADER};
        }
        run->n++;
        run->n_elems += slice->count;
        run->push_bound += gw_encoder_bound(ex->tensors[slice->tensor].encoder, slice->count);
    }
    for (uint32_t i = 0; i < group->n_runs; i++)
        group->order[i] = i;
    qsort_r(group->order, group->n_runs, sizeof *group->order, by_place, group->runs);
    for (uint32_t i = 0; i < group->n_runs; i++) {
        run = &group->runs[i];
        if (run->push_bound < MESSAGE_BAD_BYTES)
            run->push_bound = MESSAGE_BAD_BYTES;
        if (run->owner != ex->rank)
            ex->dense_bytes += 4 * run->n_elems;
        GW_TRY(fill_loans(ex, group, run));
        run->n_expected = run->owner == ex->rank ? ex->size : ex->machine_of[ex->rank].n;
        if (run->owner != ex->rank && !gw_is_relay(ex, run))
            continue;
        run->pushes = gw_calloc(ex->context, ex->size, sizeof *run->pushes);
        if (!run->pushes)
            return GW_ERR_MEMORY;
        GW_TRY(gw_round_create(ex->context, ex->codec, group->slices + run->first, run->n, ex->size, &run->round));
        GW_TRY(fill_own(ex, group, run));
    }
    return GW_OK;
}

static gw_status fill_machines(struct gw_exchange *ex, const uint32_t *machine_of)
{
    uint32_t n = ex->size, n_placed = 0;
    ex->by_machine = gw_alloc(ex->context, n, sizeof *ex->by_machine);
    ex->machine_of = gw_calloc(ex->context, n, sizeof *ex->machine_of);
    if (!ex->by_machine || !ex->machine_of)
        return GW_ERR_MEMORY;
    for (uint32_t r = 0; r < n; r++) {
        struct machine machine = {.first = n_placed};
        if (ex->machine_of[r].n > 0) /* a lower rank has already brought this machine */
            continue;
        for (uint32_t i = r; i < (machine_of ? n : r + 1); i++)
            if (!machine_of || machine_of[i] == machine_of[r])
                ex->by_machine[n_placed++] = i;
        machine.n = n_placed - machine.first;
        for (uint32_t i = machine.first; i < n_placed; i++)
            ex->machine_of[ex->by_machine[i]] = machine;
    }
    return GW_OK;
}

const uint32_t *gw_layout_machines(const gw_link *link)
{
    for (uint32_t r = 1; link->machine_of && r < link->size; r++)
        if (link->machine_of[r] != link->machine_of[0])
            return link->machine_of;
    return NULL;
}

gw_status gw_layout_init(struct gw_exchange *ex, const uint32_t *group_of, const uint32_t *machine_of)
{
    GW_TRY(fill_machines(ex, machine_of));
    GW_TRY(count_groups(ex, group_of));
    GW_TRY(fill_groups(ex));

    size_t n_slices = 0;
    uint64_t *n_elems = gw_alloc(ex->context, ex->n_tensors, sizeof *n_elems);
    uint64_t *align = gw_alloc(ex->context, ex->n_tensors, sizeof *align);
    gw_status status = n_elems && align ? GW_OK : GW_ERR_MEMORY;
    if (status == GW_OK) {
        for (uint32_t t = 0; t < ex->n_tensors; t++) {
            n_elems[t] = ex->tensors[t].n_elems;
            align[t] = gw_encoder_traits_of(ex->tensors[t].encoder).slice_align;
        }
        status = gw_slices_plan(ex->context, n_elems, align, ex->n_tensors, ex->n_owners, ex->slice_max, &ex->slices,
                                &n_slices);
    }
    gw_free(ex->context, align);
    gw_free(ex->context, n_elems);
    GW_TRY(status);

    for (size_t s = 0; s < n_slices; s++) {
        ex->slices[s].summed = ex->tensors[ex->slices[s].tensor].summed;
        ex->slices[s].owner = gw_nth_owner(ex, ex->slices[s].owner + ex->turn);
    }
    qsort_r(ex->slices, n_slices, sizeof *ex->slices, by_group, ex);

    ex->runs = gw_calloc(ex->context, n_slices, sizeof *ex->runs);
    ex->order = gw_alloc(ex->context, n_slices, sizeof *ex->order);
    if (!ex->runs || !ex->order)
        return GW_ERR_MEMORY;
    uint32_t most_runs = ex->n_owners;
    for (size_t g = 0, at = 0, n; g < ex->n_groups; g++, at += n) {
        ex->groups[g].slices = ex->slices + at;
        ex->groups[g].runs = ex->runs + at; /* it has as many slices as runs, or more */
        ex->groups[g].order = ex->order + at;
        for (n = 0; at + n < n_slices && ex->tensors[ex->slices[at + n].tensor].group == g;)
            n++;
        GW_TRY(fill_runs(ex, &ex->groups[g], n));
        if (ex->groups[g].n_runs > most_runs)
            most_runs = ex->groups[g].n_runs;
    }
    ex->buffers.most = 2 * most_runs; /* room for the pushes and pulls of one group */
    return GW_OK;
}

void gw_layout_fini(struct gw_exchange *ex)
{
    for (uint32_t g = 0; ex->groups && g < ex->n_groups; g++) {
        struct group *group = &ex->groups[g];
        for (uint32_t i = 0; i < group->n_runs; i++) {
            struct run *run = &group->runs[i];
            for (uint32_t r = 0; run->pushes && r < ex->size; r++)
                gw_message_free(run->pushes[r].bytes);
            gw_free(ex->context, run->pushes);
            gw_free(ex->context, run->own);
            gw_free(ex->context, run->loans);
            gw_round_destroy(run->round);
        }
        gw_free(ex->context, group->have_stats);
        gw_free(ex->context, group->largest);
        gw_free(ex->context, group->numbers);
    }
    gw_free(ex->context, ex->groups);
    gw_free(ex->context, ex->order);
    gw_free(ex->context, ex->runs);
    gw_free(ex->context, ex->slices);
    gw_free(ex->context, ex->machine_of);
    gw_free(ex->context, ex->by_machine);
}
