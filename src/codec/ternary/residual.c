/* Ternary values with error feedback. With a = x + residual, L the level and t = sign(a) if |a| > L/2, else 0, a step
 * sends t*L and leaves a - t*L. An element is rounded to the nearest, so what is left of it lies as often on either
 * side: it does not lag behind, as it does with topk. (1-bit SGD: Seide et al., 2014; 3LC: Lim, Andersen, Kaminsky,
 * MLSys 2019, whose L is the largest magnitude, level=max.)
 *
 * L depends on the rms of x and not on that of a. With that of a, level and residual would raise each other.
 *
 * One pass over memory measures, and writes a. What follows of it is known only when all workers have shared L. So a
 * stays in memory with its L, and the next step's pass takes out what was sent as it reads. */
#include "base/error.h"
#include "base/memory.h"
#include "codec/ternary/ternary.h"

#include <float.h>
#include <math.h>

gw_status ternary_feedback_create(gw_context *context, uint64_t n_elems, uint64_t bucket, uint64_t n_levels,
                                  struct ternary_feedback **out)
{
    struct ternary_feedback *feedback = gw_calloc(context, 1, sizeof *feedback);
    *out = feedback;
    if (!feedback)
        return GW_ERR_MEMORY;
    feedback->n_levels = n_levels;
    feedback->bucket = bucket ? bucket : n_elems;
    for (int i = 0; i < 2; i++)
        feedback->levels[i] = gw_calloc(context, n_levels, sizeof(float));
    GW_TRY(gw_residual_init(context, n_elems, &feedback->residual));
    return feedback->levels[0] && feedback->levels[1] ? GW_OK : GW_ERR_MEMORY;
}

void ternary_feedback_destroy(gw_context *context, struct ternary_feedback *feedback)
{
    if (!feedback)
        return;
    gw_residual_fini(context, &feedback->residual);
    gw_free(context, feedback->levels[0]);
    gw_free(context, feedback->levels[1]);
    gw_free(context, feedback);
}

static float *levels_now(const struct ternary_feedback *feedback)
{
    return feedback->levels[feedback->residual.current];
}

static float *levels_next(const struct ternary_feedback *feedback)
{
    return feedback->levels[!feedback->residual.current];
}

/* From this length on, the kernel stores a around the cache. The tensor's encoding reads it once, and by then most of
 * it has left the cache. */
#define STREAM_ELEMENTS (1u << 20)

struct adding {
    const float *before, *x;
    float *next;
    float half; /* of the level of the step before */
    bool stream;
};

static struct gw_stats add_chunk(uint64_t begin, uint64_t n, void *user)
{
    const struct adding *a = user;
    struct gw_stats total = {0};
    uint32_t (*carry)(const float *, float, const float *, uint64_t, bool, float *) = gw_kernels_now()->carry;
    uint32_t largest = 0;
    for (uint64_t i = begin; i < begin + n; i += GW_STATS_BLOCK) {
        const uint64_t left = begin + n - i, m = left < GW_STATS_BLOCK ? left : GW_STATS_BLOCK;
        const struct gw_stats block = gw_stats_block(a->x + i, (uint32_t)m);
        const uint32_t magnitude = carry(a->before + i, a->half, a->x + i, m, a->stream, a->next + i);
        gw_stats_add(&total, &block);
        largest = magnitude > largest ? magnitude : largest;
    }
    total.max_bits = largest;
    return total;
}

struct gw_stats ternary_feedback_measure(gw_context *context, struct ternary_feedback *feedback, const float *x,
                                         uint64_t b, uint64_t begin, uint64_t n)
{
    struct adding a = {.before = gw_residual_now(&feedback->residual) + begin,
                       .x = x + begin,
                       .next = gw_residual_next(&feedback->residual) + begin,
                       .half = levels_now(feedback)[b] / 2,
                       .stream = n >= STREAM_ELEMENTS};
    return gw_stats_run_with(context, n, add_chunk, &a);
}

float ternary_feedback_level(double level, const struct gw_stats *stats, uint64_t n)
{
    const double largest = gw_bits_float(stats->max_bits);
    double l = largest;
    if (!isinf(level) && n > 0)
        l = fmax(level * sqrt(stats->sum_squares / (double)n), largest / 4);
    /* Half of a level must be exact. What is below that waits. */
    return l < 2 * FLT_MIN ? 0 : l < FLT_MAX ? (float)l : FLT_MAX;
}

void ternary_feedback_set_levels(struct ternary_feedback *feedback, uint64_t b, uint64_t n, const float *levels)
{
    memcpy(levels_next(feedback) + b, levels, n * sizeof *levels);
}

void ternary_feedback_round(const struct ternary_feedback *feedback, float level, uint64_t begin, uint64_t end,
                            uint64_t base, struct ternary_bits *bits)
{
    const float *a = gw_residual_next(&feedback->residual);
    const struct gw_kernels *kernels = gw_kernels_now();
    if (level == 0)
        return;
    while (begin < end) {
        const uint64_t w = (begin - base) / 64, at = (begin - base) % 64, left = end - begin;
        uint64_t n = left < 64 - at ? left : 64 - at;
        if (n == 64) {
            n = left / 64 * 64;
            kernels->round(a + begin, n / 64, level / 2, bits->nonzero + w, bits->sign + w);
        } else { /* a bucket or the tensor's end cuts the word */
            float copy[64] = {0};
            uint64_t nonzero, sign;
            memcpy(copy + at, a + begin, n * sizeof *copy);
            kernels->round(copy, 1, level / 2, &nonzero, &sign);
            bits->nonzero[w] |= nonzero;
            bits->sign[w] |= sign;
        }
        begin += n;
    }
}

/* ---- between steps --------------------------------------------------------------------------- */

static struct ternary_feedback *feedback_of(const gw_encoder *encoder)
{
    return ((const struct ternary_state *)encoder->state)->feedback;
}

/* Takes what was sent out of the residual. Only then it is what its name says. */
static void settle(const gw_encoder *encoder)
{
    const struct ternary_feedback *feedback = feedback_of(encoder);
    float *now = gw_residual_now(&feedback->residual), *levels = levels_now(feedback);
    for (uint64_t b = 0; b < feedback->n_levels; b++) {
        const uint64_t left = feedback->residual.n - b * feedback->bucket;
        for (uint64_t n = left < feedback->bucket ? left : feedback->bucket; n; n--, now++)
            *now = gw_left_of(*now, levels[b] / 2);
        levels[b] = 0;
    }
}

uint64_t ternary_find_bad(gw_encoder *encoder, const float *x)
{
    settle(encoder);
    return gw_residual_find_bad(&feedback_of(encoder)->residual, x);
}

void ternary_commit(gw_encoder *encoder, bool committed)
{
    if (committed && !encoder->rests)
        gw_residual_commit(&feedback_of(encoder)->residual);
}

bool ternary_rest(gw_encoder *encoder)
{
    struct ternary_state *state = encoder->state;
    struct ternary_feedback *feedback = state->feedback;
    memset(gw_residual_next(&feedback->residual), 0, gw_residual_bytes(feedback->residual.n));
    memset(state->own, 0, state->n_scalers * sizeof *state->own);
    memset(state->stats, 0, state->n_scalers * sizeof *state->stats);
    return true;
}

void ternary_scale(gw_encoder *encoder, float factor)
{
    settle(encoder);
    gw_residual_scale(&feedback_of(encoder)->residual, factor);
}

void ternary_save(const gw_encoder *encoder, uint8_t *dst)
{
    settle(encoder);
    gw_residual_save(&feedback_of(encoder)->residual, dst);
}

gw_status ternary_load(gw_encoder *encoder, const uint8_t *src)
{
    struct ternary_feedback *feedback = feedback_of(encoder);
    GW_TRY(gw_residual_load(&feedback->residual, src, encoder->shown));
    memset(levels_now(feedback), 0, feedback->n_levels * sizeof(float));
    return GW_OK;
}

void ternary_describe(const gw_encoder *encoder, gw_encoder_condition *condition)
{
    settle(encoder);
    condition->residual_norm = gw_residual_norm(&feedback_of(encoder)->residual);
}
