/* Cuts tensors into slices and deals them to owners, so that all owners have about the same number of elements. The
 * plan follows from the sizes alone, so every member finds the same one. */
#include "owner/slices.h"
#include "base/memory.h"
#include "wire/bytes.h"

#include <stdlib.h>

/* What an owner has got while slices are dealt out. */
struct load {
    uint64_t elems; /* how many elements it has got so far */
    uint32_t rank;
    uint64_t blocks; /* how many blocks it gets of the tensor that is dealt out now; a block is `align` elements */
};

static int by_rank(const void *a, const void *b)
{
    const struct load *x = a, *y = b;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

static int by_load(const void *a, const void *b)
{
    const struct load *x = a, *y = b;
    if (x->elems != y->elems)
        return x->elems < y->elems ? -1 : 1;
    return by_rank(a, b);
}

static int by_place(const void *a, const void *b)
{
    const struct gw_slice *x = a, *y = b;
    if (x->tensor != y->tensor)
        return x->tensor < y->tensor ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* How many owners share a tensor. */
static uint32_t pieces_of(uint64_t n_elems, uint64_t align, uint32_t n_owners)
{
    if (n_elems == 0)
        return 0;
    uint64_t shortest = gw_div_up(GW_SLICE_MIN, align) * align;
    uint64_t pieces = n_elems / shortest;
    return pieces < 1 ? 1 : pieces < n_owners ? (uint32_t)pieces : n_owners;
}

/* Deals the blocks in nearly equal parts to the `pieces` owners with the least load. `loads` is sorted by load. */
static void deal_equal(struct load *loads, uint32_t pieces, uint64_t n_blocks)
{
    for (uint32_t i = 0; i < pieces; i++)
        loads[i].blocks = n_blocks / pieces + (i < n_blocks % pieces);
}

/* Deals the blocks so that all owners come to the same level, as water fills a vessel. `loads` is sorted by load. */
static void deal_level(struct load *loads, uint32_t n_owners, uint64_t n_blocks, uint64_t align)
{
    unsigned __int128 sum = (unsigned __int128)n_blocks * align;
    uint64_t level = 0, left = n_blocks;
    uint32_t wet = 0;
    while (wet < n_owners && (wet == 0 || loads[wet].elems < level)) {
        sum += loads[wet++].elems;
        level = (uint64_t)(sum / wet);
    }
    for (uint32_t i = 0; i < wet; i++) {
        loads[i].blocks = (level - loads[i].elems) / align;
        loads[i].elems += loads[i].blocks * align;
        left -= loads[i].blocks;
    }
    /* Rounding down leaves fewer than `wet` blocks over. The lowest owners get one each. */
    qsort(loads, n_owners, sizeof *loads, by_load);
    for (uint32_t i = 0; i < n_owners; i++) {
        /* the caller counts again, with the exact size of the last, short block */
        loads[i].elems -= loads[i].blocks * align;
        loads[i].blocks += i < left;
    }
}

uint64_t gw_slice_most(uint64_t most, uint64_t align)
{
    return most < align ? align : most / align * align;
}

/* Turns blocks into slices in rank order, and adds them to the loads. */
static size_t cut(struct load *loads, uint32_t n_owners, uint32_t tensor, uint64_t n_elems, uint64_t align,
                  uint64_t most, struct gw_slice *slices)
{
    most = gw_slice_most(most, align);
    size_t n = 0;
    uint64_t begin = 0;
    qsort(loads, n_owners, sizeof *loads, by_rank);
    for (uint32_t i = 0; i < n_owners; i++) {
        uint64_t count = loads[i].blocks * align;
        loads[i].blocks = 0;
        if (count > n_elems - begin)
            count = n_elems - begin;
        loads[i].elems += count;
        while (count > 0) {
            uint64_t piece = count < most ? count : most;
            slices[n++] = (struct gw_slice){.tensor = tensor, .owner = loads[i].rank, .begin = begin, .count = piece};
            begin += piece;
            count -= piece;
        }
    }
    return n;
}

gw_status gw_slices_plan(gw_context *context, const uint64_t *n_elems, const uint64_t *align, uint32_t n_tensors,
                         uint32_t n_owners, uint64_t most, struct gw_slice **slices, size_t *n_slices)
{
    size_t room = 0, n = 0;
    for (uint32_t t = 0; t < n_tensors; t++) /* each owner's part may end with a shorter slice */
        room += pieces_of(n_elems[t], align[t], n_owners) + (size_t)(n_elems[t] / gw_slice_most(most, align[t]));
    struct load *loads = gw_calloc(context, n_owners, sizeof *loads);
    struct gw_slice *all = gw_alloc(context, room, sizeof *all);
    if (!loads || !all) {
        gw_free(context, all);
        gw_free(context, loads);
        return GW_ERR_MEMORY;
    }
    for (uint32_t i = 0; i < n_owners; i++)
        loads[i].rank = i;
    for (int full = 0; full < 2; full++) { /* first the short tensors, then those of which every owner has a part */
        for (uint32_t t = 0; t < n_tensors; t++) {
            uint32_t pieces = pieces_of(n_elems[t], align[t], n_owners);
            if (pieces == 0 || (pieces == n_owners) != full)
                continue;
            uint64_t n_blocks = gw_div_up(n_elems[t], align[t]);
            qsort(loads, n_owners, sizeof *loads, by_load);
            if (full)
                deal_level(loads, n_owners, n_blocks, align[t]);
            else
                deal_equal(loads, pieces, n_blocks);
            n += cut(loads, n_owners, t, n_elems[t], align[t], most, all + n);
        }
    }
    qsort(all, n, sizeof *all, by_place);
    gw_free(context, loads);
    *slices = all;
    *n_slices = n;
    return GW_OK;
}
