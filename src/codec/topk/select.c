/* Selection in one pass over memory. The exact one guesses from a sample a magnitude slightly below the k-th largest, passes over
 * the tensors with it as with any threshold, and finds the k-th largest among what came out: little more than k values. What was
 * selected too much is then put back. Only where the guess was wrong is the tensor looked at again. */
#include "codec/topk/select.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "codec/topk/rank.h"
#include "wire/frame.h"

#include <stdatomic.h>

/* From here on a new residual goes around the cache: it is not read before the next step. */
#define STREAM_ELEMENTS (4u << 20)

/* What the pass found in one chunk, and what becomes of it. */
struct chunk {
    uint64_t at;  /* its values in job.above */
    uint64_t out; /* its values in job.values */
    uint32_t n_above, n_equal, max_bits;
    uint32_t n_ties, n_kept; /* what is selected in the end: n_ties of those equal to job.final */
};

struct job {
    struct gw_select_list list;
    struct gw_select_part *parts;
    enum gw_value_type value;
    bool rounds_at_once;  /* the pass rounds; else finish_chunk does */
    uint32_t n_slots;
    size_t slot_values;   /* room of a slot in `scratch` */
    float *scratch;       /* a chunk's values as they are found, of each slot */
    float *above;         /* values above `threshold`, of chunks in any order */
    uint64_t above_room;
    atomic_uint_fast64_t above_used; /* may pass above_room; then some were not stored */
    struct chunk *chunks;
    uint32_t threshold; /* of the pass, as bits */
    uint32_t final;     /* the selection's, not below that of the pass */
    float *values;
};

static gw_status job_init(gw_context *context, struct gw_select_part *parts, uint32_t n_parts, struct job *job)
{
    job->parts = parts;
    GW_TRY(gw_select_list_init(context, parts, n_parts, &job->list));
    job->n_slots = gw_select_list_slots(context, &job->list);
    size_t most = 0;
    for (uint32_t p = 0; p < n_parts; p++)
        most = parts[p].n > most ? (size_t)parts[p].n : most;
    job->slot_values = gw_div_up((most < GW_CHUNK ? most : GW_CHUNK) + GW_SELECT_SLACK, 16) * 16;
    job->scratch = gw_alloc(context, job->n_slots * job->slot_values, sizeof *job->scratch);
    job->chunks = gw_alloc(context, (size_t)job->list.n_chunks, sizeof *job->chunks);
    return job->scratch && job->chunks ? GW_OK : GW_ERR_MEMORY;
}

static void job_fini(gw_context *context, struct job *job)
{
    gw_free(context, job->chunks);
    gw_free(context, job->scratch);
    gw_select_list_fini(context, &job->list);
}

void gw_select_room_free(gw_context *context, struct gw_select_room *room)
{
    gw_free(context, room->values);
    *room = (struct gw_select_room){0};
}

/* Room stays between calls because it alone is large: where the heap hands a block of its size back to the system, every step
 * pays for its pages anew. What job_init takes is smaller, and grows with the threads: kept by each of many tensors it would add up. */
static gw_status take_room(gw_context *context, struct gw_select_room *room, struct job *job, uint64_t n)
{
    if (!room->values || room->n < n) {
        gw_select_room_free(context, room);
        room->values = gw_alloc(context, (size_t)n, sizeof *room->values);
        if (!room->values)
            return GW_ERR_MEMORY;
        room->n = n;
    }
    job->above = room->values;
    job->above_room = n;
    return GW_OK;
}

/* ---- the pass ---------------------------------------------------------------------------------------- */

static void pass_chunk(uint64_t i, uint32_t slot, void *user)
{
    struct job *job = user;
    struct gw_select_chunk place = gw_select_list_chunk(&job->list, i);
    const struct gw_select_part *part = &job->parts[place.part];
    const struct gw_select_run run = {
        .g = part->g + place.begin,
        .residual = part->residual ? part->residual + place.begin : NULL,
        .n = place.n,
        .threshold_bits = job->threshold,
        .value = job->rounds_at_once ? job->value : GW_VALUE_F32,
        .stream = part->n >= STREAM_ELEMENTS,
        .next = part->next + place.begin,
        .kept = part->kept + place.begin / 64,
    };
    float *values = job->scratch + slot * job->slot_values;
    struct gw_select_counts counts = gw_select_kernels_now()->select(&run, values);
    struct chunk *chunk = &job->chunks[i];
    *chunk = (struct chunk){.n_above = (uint32_t)counts.n_above, .n_equal = (uint32_t)counts.n_equal, .max_bits = counts.max_bits};
    chunk->at = atomic_fetch_add_explicit(&job->above_used, counts.n_above, memory_order_relaxed);
    if (counts.n_above && chunk->at + counts.n_above <= job->above_room)
        memcpy(job->above + chunk->at, values, counts.n_above * sizeof *values);
}

struct totals {
    uint64_t n_above, n_equal;
    uint32_t max_bits;
};

static struct totals pass(gw_context *context, struct job *job)
{
    atomic_store_explicit(&job->above_used, 0, memory_order_relaxed);
    gw_parallel_for(context, job->list.n_chunks, pass_chunk, job);
    struct totals totals = {0};
    for (uint32_t p = 0; p < job->list.n_parts; p++)
        job->parts[p].max_bits = 0;
    for (uint64_t i = 0; i < job->list.n_chunks; i++) {
        const struct chunk *chunk = &job->chunks[i];
        struct gw_select_part *part = &job->parts[gw_select_list_chunk(&job->list, i).part];
        part->max_bits = chunk->max_bits > part->max_bits ? chunk->max_bits : part->max_bits;
        totals.n_above += chunk->n_above;
        totals.n_equal += chunk->n_equal;
        totals.max_bits = chunk->max_bits > totals.max_bits ? chunk->max_bits : totals.max_bits;
    }
    return totals;
}

/* ---- what is selected in the end --------------------------------------------------------------------- */

/* Counts the values of a chunk that are above job->final, and those equal to it. */
static void recount_chunk(uint64_t i, uint32_t slot, void *user)
{
    (void)slot;
    const struct job *job = user;
    struct chunk *chunk = &job->chunks[i];
    uint32_t n_above = 0, n_equal = 0;
    for (const float *a = job->above + chunk->at, *end = a + chunk->n_above; a < end; a++) {
        uint32_t bits = gw_float_bits(*a) & 0x7FFFFFFFu;
        n_above += bits > job->final;
        n_equal += bits == job->final;
    }
    chunk->n_kept = n_above;
    chunk->n_ties = n_equal;
}

/* Everything above job->final and the first n_ties equal to it: how much of each chunk that is. */
static void share_out(gw_context *context, struct job *job, uint64_t n_ties)
{
    bool again = job->final != job->threshold;
    if (again)
        gw_parallel_for(context, job->list.n_chunks, recount_chunk, job);
    for (uint32_t p = 0; p < job->list.n_parts; p++)
        job->parts[p].n_kept = 0;
    uint64_t out = 0;
    for (uint64_t i = 0; i < job->list.n_chunks; i++) {
        struct chunk *chunk = &job->chunks[i];
        struct gw_select_part *part = &job->parts[gw_select_list_chunk(&job->list, i).part];
        uint32_t equal = again ? chunk->n_ties : chunk->n_equal, above = again ? chunk->n_kept : chunk->n_above;
        chunk->n_ties = n_ties < equal ? (uint32_t)n_ties : equal;
        chunk->n_kept = above + chunk->n_ties;
        chunk->out = out;
        n_ties -= chunk->n_ties;
        out += chunk->n_kept;
        part->n_kept += chunk->n_kept;
    }
}

/* Bits of the first elements, at most *left, of a word whose magnitude is `final` and that are not in `on`. */
static uint64_t find_ties(const float *next, uint64_t n, uint64_t on, uint32_t final, uint32_t *left)
{
    uint64_t ties = 0;
    for (uint64_t j = 0; j < n && j < 64; j++)
        ties |= (uint64_t)((gw_float_bits(next[j]) & 0x7FFFFFFFu) == final) << j;
    ties &= ~on;
    uint64_t taken = 0;
    for (; ties && *left; ties &= ties - 1, --*left)
        taken |= ties & -ties;
    return taken;
}

/* Brings a chunk from the pass's threshold to the final one: values to their place, rounded; what is not selected after all goes
 * back to `next`; ties that the pass left there are taken. */
static void finish_chunk(uint64_t i, uint32_t slot, void *user)
{
    (void)slot;
    const struct job *job = user;
    const struct chunk *chunk = &job->chunks[i];
    struct gw_select_chunk place = gw_select_list_chunk(&job->list, i);
    const float *src = job->above + chunk->at;
    float *dst = job->values + chunk->out;
    bool dropping = job->final != job->threshold, rounding = job->value != GW_VALUE_F32 && !job->rounds_at_once;
    uint32_t left = chunk->n_ties;
    if (!dropping && !rounding && !left) {
        if (chunk->n_kept)
            memcpy(dst, src, chunk->n_kept * sizeof *dst);
        return;
    }
    uint64_t *kept = job->parts[place.part].kept + place.begin / 64;
    float *next = job->parts[place.part].next + place.begin;
    for (uint64_t w = 0; 64 * w < place.n; w++, next += 64) {
        uint64_t on = kept[w], ties = 0;
        if (!dropping && left)
            ties = find_ties(next, place.n - 64 * w, on, job->final, &left);
        for (uint64_t rest = on | ties; rest; rest &= rest - 1) {
            unsigned j = (unsigned)__builtin_ctzll(rest);
            bool tie = ties >> j & 1;
            float a = tie ? next[j] : *src++;
            if (dropping) {
                uint32_t bits = gw_float_bits(a) & 0x7FFFFFFFu;
                if (bits < job->final || (bits == job->final && !left)) {
                    next[j] = a;
                    on &= ~(rest & -rest);
                    continue;
                }
                left -= bits == job->final;
            }
            float sent = gw_select_round(job->value, a);
            *dst++ = sent;
            if (rounding || tie)
                next[j] = a - sent;
        }
        kept[w] = on | ties;
    }
}

gw_status gw_select_above(gw_context *context, struct gw_select_room *room, struct gw_select_part *part, float threshold,
                          enum gw_value_type value, float *values, uint64_t capacity)
{
    struct job job = {.value = value, .rounds_at_once = true, .values = values};
    job.threshold = job.final = gw_float_bits(threshold) & 0x7FFFFFFFu;
    gw_status status = job_init(context, part, 1, &job);
    if (status == GW_OK) {
        /* One thread finds values in their order. */
        bool in_place = job.n_slots == 1;
        if (in_place)
            job.above = values, job.above_room = capacity;
        else
            status = take_room(context, room, &job, capacity < part->n ? capacity : part->n);
        if (status == GW_OK) {
            struct totals totals = pass(context, &job);
            share_out(context, &job, 0);
            if (totals.max_bits < 0x7F800000u && part->n_kept <= capacity && !in_place)
                gw_parallel_for(context, job.list.n_chunks, finish_chunk, &job);
        }
    }
    job_fini(context, &job);
    return status;
}

/* Passes, and finds what is selected in the end. *n_ties: how many equal to job->final. */
static gw_status find(gw_context *context, struct gw_select_room *room, struct job *job, uint64_t k, bool *finite)
{
    uint64_t most, n_ties;
    GW_TRY(gw_rank_guess(context, &job->list, k, &job->threshold, &most));
    GW_TRY(take_room(context, room, job, most));
    struct totals totals = pass(context, job);
    *finite = totals.max_bits < 0x7F800000u;
    if (!*finite)
        return GW_OK;
    struct gw_rank rank;
    if (totals.n_above >= k && totals.n_above <= job->above_room) {
        const struct gw_select_part above = {.g = job->above, .n = totals.n_above};
        struct gw_select_list list;
        GW_TRY(gw_select_list_init(context, &above, 1, &list));
        GW_TRY(gw_rank_find(context, &list, k, job->threshold + 1, totals.max_bits, &rank));
        job->final = rank.bits;
        n_ties = rank.n_ties;
    } else {
        /* Either the k-th largest is the guess itself, or the guess was wrong. */
        if (totals.n_above >= k || totals.n_above + totals.n_equal < k) {
            GW_TRY(gw_rank_find(context, &job->list, k, 0, totals.max_bits, &rank));
            job->threshold = rank.bits;
            totals = pass(context, job);
        }
        job->final = job->threshold;
        n_ties = k - totals.n_above;
    }
    share_out(context, job, n_ties);
    return GW_OK;
}

gw_status gw_select_exact(gw_context *context, struct gw_select_room *room, struct gw_select_part *parts, uint32_t n_parts,
                          uint64_t k, enum gw_value_type value, float *values, float *threshold)
{
    struct job job = {.value = value, .values = values};
    bool finite = false;
    gw_status status = job_init(context, parts, n_parts, &job);
    if (status == GW_OK)
        status = find(context, room, &job, k, &finite);
    if (status == GW_OK && finite) {
        gw_parallel_for(context, job.list.n_chunks, finish_chunk, &job);
        if (threshold)
            *threshold = gw_bits_float(job.final);
    }
    job_fini(context, &job);
    return status;
}
