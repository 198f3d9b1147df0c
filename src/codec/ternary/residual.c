/* Ternary values with error feedback. With a = x + residual, L the level and t = sign(a) if |a| > L/2, else 0, a step
 * sends t*L and leaves a - t*L. An element is rounded to the nearest, so what is left of it lies as often on either
 * side: it does not lag behind, as it does with topk. (1-bit SGD: Seide et al., 2014; 3LC: Lim, Andersen, Kaminsky,
 * MLSys 2019, whose L is the largest magnitude, level=max.)
 *
 * L depends on the rms of x and not on that of a. With that of a, level and residual would raise each other.
 *
 * One pass over memory measures, and writes a. What follows of it is known only when all workers have shared L. So a
 * stays in memory with its L, and the next step's pass takes out what was sent as it reads. */
#include "codec/ternary/ternary.h"

#include <float.h>
#include <math.h>

size_t ternary_sent_bytes(const gw_encoder *encoder)
{
    return (size_t)gw_n_buckets(ternary_bucket(encoder), encoder->tensor.n_elems) * sizeof(float);
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
    const struct gw_kernels *kernels = gw_kernels_now();
    struct gw_stats total = {0};
    for (uint64_t i = begin; i < begin + n; i += GW_STATS_BLOCK) {
        const uint64_t left = begin + n - i, m = left < GW_STATS_BLOCK ? left : GW_STATS_BLOCK;
        struct gw_stats block = gw_stats_block(a->x + i, (uint32_t)m);
        block.max_bits = kernels->carry(a->before + i, a->half, a->x + i, m, a->stream, a->next + i);
        gw_stats_add(&total, &block);
    }
    return total;
}

struct gw_stats ternary_feedback_measure(gw_context *context, const gw_encoder *encoder, const float *x, uint64_t b,
                                         uint64_t begin, uint64_t n)
{
    const float *levels = gw_residual_sent(&encoder->residual);
    struct adding a = {.before = gw_residual_now(&encoder->residual) + begin,
                       .x = x + begin,
                       .next = gw_residual_next(&encoder->residual) + begin,
                       .half = levels[b] / 2,
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

void ternary_feedback_set_levels(const gw_encoder *encoder, uint64_t b, uint64_t n, const float *levels)
{
    memcpy((float *)gw_residual_sent_next(&encoder->residual) + b, levels, n * sizeof *levels);
}

void ternary_feedback_round(const gw_encoder *encoder, float level, uint64_t begin, uint64_t end, uint64_t base,
                            struct ternary_bits *bits)
{
    const float *a = gw_residual_next(&encoder->residual);
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

void ternary_settle(const gw_encoder *encoder)
{
    float *now = gw_residual_now(&encoder->residual), *levels = gw_residual_sent(&encoder->residual);
    const uint64_t n_elems = encoder->tensor.n_elems, bucket = ternary_bucket(encoder),
                   elems = bucket ? bucket : n_elems;
    for (uint64_t b = 0; b < ((const struct ternary_state *)encoder->state)->n_scalers; b++) {
        const uint64_t left = n_elems - b * elems;
        for (uint64_t n = left < elems ? left : elems; n; n--, now++)
            *now = gw_left_of(*now, levels[b] / 2);
        levels[b] = 0;
    }
}

bool ternary_rest(gw_encoder *encoder)
{
    struct ternary_state *state = encoder->state;
    memset(gw_residual_next(&encoder->residual), 0, gw_residual_bytes(encoder->tensor.n_elems));
    memset(state->own, 0, state->n_scalers * sizeof *state->own);
    return true;
}
