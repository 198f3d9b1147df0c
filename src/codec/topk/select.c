/* Selects the largest magnitudes in one pass over memory. From a sample the exact selection guesses a magnitude
 * slightly below the k-th largest. It passes over the tensors with that guess as with any threshold, and finds the
 * k-th largest among what came out, which is little more than k values. What was selected too much loses its bit. The
 * tensor is looked at again only if the guess was wrong. */
#include "codec/topk/select.h"
#include "base/error.h"
#include "base/scratch.h"
#include "base/threads.h"
#include "codec/topk/rank.h"
#include "wire/frame.h"

#include <stdatomic.h>

/* From this length on, the kernel stores `next` around the cache. Nobody reads it before the next step, and by then the
 * network's other tensors have passed through the cache. */
#define STREAM_ELEMENTS (128u << 10)

/* What the pass found in one chunk, and what is selected of it. */
struct chunk {
    uint64_t at;  /* where its values are in job.above */
    uint64_t out; /* where its values go in job.values */
    uint32_t n_above, n_equal, max_bits;
    uint32_t n_ties, n_kept; /* what is selected in the end; n_ties: of those equal to job.final */
};

struct job {
    gw_context *context;
    struct gw_select_list list;
    struct gw_select_part *parts;
    uint64_t k;
    uint32_t n_slots;
    size_t slot_values; /* room of a slot in `scratch` */
    float *scratch;     /* of each slot: the values of the chunk at hand */
    float *room;        /* the memory that was taken for `above`; NULL: none */
    float *above;       /* values above `threshold`; chunks are in any order */
    uint64_t above_room;
    atomic_uint_fast64_t above_used; /* may pass above_room; then some were not stored */
    struct chunk *chunks;
    uint32_t threshold;        /* of the pass, as bits */
    uint64_t n_above, n_equal; /* what the pass found */
    uint32_t max_bits;
    uint32_t final;  /* the threshold of the selection; not below that of the pass */
    uint64_t n_ties; /* how many of those equal to `final` are selected */
    float *values;
};

static gw_status job_init(struct job *job, uint32_t n_parts)
{
    GW_TRY(gw_select_list_init(job->context, job->parts, n_parts, &job->list));
    job->n_slots = gw_select_list_slots(job->context, &job->list);
    size_t most = 0;
    for (uint32_t p = 0; p < n_parts; p++)
        most = job->parts[p].n > most ? (size_t)job->parts[p].n : most;
    job->slot_values = gw_div_up((most < GW_CHUNK ? most : GW_CHUNK) + GW_SELECT_SLACK, 16) * 16;
    job->scratch = gw_scratch_take(job->context, job->n_slots * job->slot_values, sizeof *job->scratch);
    job->chunks = gw_scratch_take(job->context, (size_t)job->list.n_chunks, sizeof *job->chunks);
    return job->scratch && job->chunks ? GW_OK : GW_ERR_MEMORY;
}

/* Takes room for values that wait until it is known which of them are selected. It frees the room of an earlier
 * pass. */
static gw_status take_room(struct job *job, uint64_t n)
{
    gw_scratch_give(job->context, job->room);
    job->room = job->above = gw_scratch_take(job->context, (size_t)n, sizeof *job->above);
    job->above_room = n;
    return job->room ? GW_OK : GW_ERR_MEMORY;
}

/* ---- the pass ---------------------------------------------------------------------------------------- */

static void pass_chunk(uint64_t i, uint32_t slot, void *user)
{
    struct job *job = user;
    struct gw_select_chunk place = gw_select_list_chunk(&job->list, i);
    const struct gw_select_part *part = &job->parts[place.part];
    const struct gw_select_run run = {
        .g = part->g + place.begin,
        .residual = part->residual + place.begin,
        .sent = part->sent + place.begin / 64,
        .n = place.n,
        .threshold_bits = job->threshold,
        .value = part->value,
        .over = part->over,
        .stream = part->n >= STREAM_ELEMENTS,
        .next = part->next + place.begin,
        .kept = part->kept + place.begin / 64,
    };
    float *values = job->scratch + slot * job->slot_values;
    struct gw_select_counts counts = gw_select_kernels_now()->select(&run, values);
    struct chunk *chunk = &job->chunks[i];
    *chunk = (struct chunk){.n_above = (uint32_t)counts.n_above,
                            .n_equal = (uint32_t)counts.n_equal,
                            .max_bits = counts.max_bits};
    chunk->at = atomic_fetch_add_explicit(&job->above_used, counts.n_above, memory_order_relaxed);
    if (counts.n_above && chunk->at + counts.n_above <= job->above_room)
        memcpy(job->above + chunk->at, values, counts.n_above * sizeof *values);
}

static void pass(struct job *job)
{
    atomic_store_explicit(&job->above_used, 0, memory_order_relaxed);
    gw_parallel_for(job->context, job->list.n_chunks, pass_chunk, job);
    job->n_above = job->n_equal = 0;
    job->max_bits = 0;
    for (uint32_t p = 0; p < job->list.n_parts; p++)
        job->parts[p].max_bits = 0;
    for (uint64_t i = 0; i < job->list.n_chunks; i++) {
        const struct chunk *chunk = &job->chunks[i];
        struct gw_select_part *part = &job->parts[gw_select_list_chunk(&job->list, i).part];
        part->max_bits = chunk->max_bits > part->max_bits ? chunk->max_bits : part->max_bits;
        job->n_above += chunk->n_above;
        job->n_equal += chunk->n_equal;
        job->max_bits = chunk->max_bits > job->max_bits ? chunk->max_bits : job->max_bits;
    }
}

static bool is_finite(const struct job *job)
{
    return job->max_bits < 0x7F800000u;
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

/* Selects everything above job->final, and the first n_ties that are equal to it. Says how much of each chunk that
 * is. */
static void share_out(struct job *job)
{
    bool again = job->final != job->threshold;
    if (again)
        gw_parallel_for(job->context, job->list.n_chunks, recount_chunk, job);
    for (uint32_t p = 0; p < job->list.n_parts; p++)
        job->parts[p].n_kept = 0;
    uint64_t out = 0, n_ties = job->n_ties;
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

/* Finds the elements of a word whose magnitude is `final` and that are not in `on`. Returns the bits of the first ones,
 * *left at most. */
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

/* Keeps those of a chunk's values that are selected. Clears the bits of the others. */
static void drop(const struct chunk *chunk, uint32_t final, uint64_t n, float *values, uint64_t *kept)
{
    const float *from = values;
    uint32_t left = chunk->n_ties;
    for (uint64_t w = 0; 64 * w < n; w++) {
        uint64_t gone = 0;
        /* no branches: the processor cannot foresee whether a value stays */
        for (uint64_t rest = kept[w]; rest; rest &= rest - 1) {
            float a = *from++;
            uint32_t bits = gw_float_bits(a) & 0x7FFFFFFFu, tie = (bits == final) & (left > 0),
                     stays = (bits > final) | tie;
            left -= tie;
            *values = a;
            values += stays;
            gone |= (rest & -rest) & ((uint64_t)stays - 1);
        }
        kept[w] ^= gone;
    }
}

/* Brings the values of a chunk to dst, together with the ties that are selected. The pass did not find the ties,
 * because they are not above its threshold. */
static void take_ties(const struct chunk *chunk, uint32_t final, uint64_t n, const float *values, const float *next,
                      uint64_t *kept, float *dst)
{
    uint32_t left = chunk->n_ties;
    for (uint64_t w = 0; 64 * w < n; w++, next += 64) {
        uint64_t on = kept[w], ties = left ? find_ties(next, n - 64 * w, on, final, &left) : 0;
        for (uint64_t rest = on | ties; rest; rest &= rest - 1) {
            unsigned j = (unsigned)__builtin_ctzll(rest);
            *dst++ = ties >> j & 1 ? next[j] : *values++;
        }
        kept[w] = on | ties;
    }
}

/* Brings a chunk from the pass's threshold to the final one: its values go to their place, as they are sent. */
static void finish_chunk(uint64_t i, uint32_t slot, void *user)
{
    (void)slot;
    const struct job *job = user;
    const struct chunk *chunk = &job->chunks[i];
    struct gw_select_chunk place = gw_select_list_chunk(&job->list, i);
    const struct gw_select_part *part = &job->parts[place.part];
    uint64_t *kept = part->kept + place.begin / 64;
    float *src = job->above + chunk->at, *dst = job->values + chunk->out;
    if (job->final != job->threshold)
        drop(chunk, job->final, place.n, src, kept);
    if (job->final == job->threshold && chunk->n_ties)
        take_ties(chunk, job->final, place.n, src, part->next + place.begin, kept, dst);
    else if (chunk->n_kept && dst != src)
        memcpy(dst, src, chunk->n_kept * sizeof *dst);
    const bool as_it_is = part->value == GW_VALUE_F32 && part->over == 0;
    for (uint32_t v = 0; v < chunk->n_kept && !as_it_is; v++)
        dst[v] = gw_select_sent(part->value, part->over, dst[v]);
}

/* Finds job->final and the number of ties, if the k-th largest is among what the pass found. */
static gw_status rank_above(struct job *job)
{
    const struct gw_select_part above = {.g = job->above, .n = job->n_above};
    struct gw_select_list list;
    GW_TRY(gw_select_list_init(job->context, &above, 1, &list));
    job->n_ties = job->k;
    return gw_rank_find(job->context, &list, &job->n_ties, job->threshold + 1, job->max_bits, &job->final);
}

/* Finds both among all elements, and passes over them again. */
static gw_status rank_all(struct job *job)
{
    job->n_ties = job->k;
    GW_TRY(gw_rank_find(job->context, &job->list, &job->n_ties, 0, job->max_bits, &job->final));
    job->threshold = job->final;
    pass(job);
    return GW_OK;
}

/* Passes over the tensors and finds the k largest. */
static gw_status find_exact(struct job *job)
{
    uint64_t most;
    GW_TRY(gw_rank_guess(job->context, &job->list, job->k, &job->threshold, &most));
    GW_TRY(take_room(job, most));
    pass(job);
    if (!is_finite(job))
        return GW_OK;
    if (job->n_above >= job->k && job->n_above <= job->above_room)
        return rank_above(job);
    /* Either the k-th largest is the guess itself, or the guess was wrong. */
    if (job->n_above >= job->k || job->n_above + job->n_equal < job->k)
        return rank_all(job);
    job->final = job->threshold;
    job->n_ties = job->k - job->n_above;
    return GW_OK;
}

/* Finds what is above `floor`. If this is more than k, it finds the k largest. */
static gw_status find_above(struct job *job, uint32_t floor, bool many)
{
    uint64_t most = job->k;
    if (many)
        GW_TRY(gw_rank_guess(job->context, &job->list, job->k, &job->threshold, &most));
    if (job->threshold < floor)
        job->threshold = floor;
    if (!many && job->n_slots == 1) { /* one thread finds the values in their order, so they can stay where they are */
        job->above = job->values;
        job->above_room = job->k;
    } else {
        GW_TRY(take_room(job, most));
    }
    pass(job);
    if (!is_finite(job))
        return GW_OK;
    if (job->threshold > floor && job->n_above < job->k) { /* the guess was wrong */
        job->threshold = floor;
        pass(job);
    }
    job->final = job->threshold;
    if (job->threshold == floor && job->n_above <= job->k)
        return GW_OK;
    if (job->n_above <= job->above_room)
        return rank_above(job);
    return many ? rank_all(job) : find_exact(job);
}

/* Brings what was found to its place, and gives the job's memory back. */
static gw_status finish(struct job *job, gw_status status)
{
    if (status == GW_OK && is_finite(job)) {
        share_out(job);
        gw_parallel_for(job->context, job->list.n_chunks, finish_chunk, job);
    }
    gw_scratch_give(job->context, job->room);
    gw_scratch_give(job->context, job->chunks);
    gw_scratch_give(job->context, job->scratch);
    gw_select_list_fini(job->context, &job->list);
    return status;
}

gw_status gw_select_above(gw_context *context, struct gw_select_part *parts, uint32_t n_parts, float threshold,
                          uint64_t k, bool many, float *values)
{
    struct job job = {.context = context, .parts = parts, .k = k, .values = values};
    gw_status status = job_init(&job, n_parts);
    if (status == GW_OK)
        status = find_above(&job, gw_float_bits(threshold) & 0x7FFFFFFFu, many);
    return finish(&job, status);
}

gw_status gw_select_exact(gw_context *context, struct gw_select_part *parts, uint32_t n_parts, uint64_t k,
                          float *values, float *threshold)
{
    struct job job = {.context = context, .parts = parts, .k = k, .values = values};
    gw_status status = job_init(&job, n_parts);
    if (status == GW_OK)
        status = find_exact(&job);
    if (status == GW_OK && is_finite(&job))
        *threshold = gw_bits_float(job.final);
    return finish(&job, status);
}
