/* What a codec with error feedback keeps of a tensor between steps: the residual, which is what earlier steps did not
 * send. A step adds it to the gradient, a = g + residual, and leaves a minus what was sent.
 *
 * Momentum (momentum.h) keeps its velocity and its average in the same way.
 *
 * There are two buffers. A step reads one and writes the residual that follows into the other; commit swaps them. So a
 * step that is dropped leaves no trace, and no copy is kept for it. */
#ifndef GW_CODEC_RESIDUAL_H
#define GW_CODEC_RESIDUAL_H

#include <gradwire/context.h>

struct gw_residual {
    uint64_t n;
    float *buffers[2]; /* n elements each */
    void *sent[2];     /* beside each buffer: what the codec notes of what was sent of it */
    int current;       /* which of the two buffers is the residual */
};

/* Makes a residual of zeros, and notes of sent_bytes zeros. Call gw_residual_fini after it, also after an error.
 * Errors: GW_ERR_MEMORY. */
gw_status gw_residual_init(gw_context *context, uint64_t n, size_t sent_bytes, struct gw_residual *residual);
void gw_residual_fini(gw_context *context, struct gw_residual *residual);

static inline float *gw_residual_now(const struct gw_residual *residual)
{
    return residual->buffers[residual->current];
}

/* The buffer that becomes the residual when the step is committed. Its contents are unspecified until a step has
 * written it. */
static inline float *gw_residual_next(const struct gw_residual *residual)
{
    return residual->buffers[!residual->current];
}

/* The notes beside the residual, and beside the buffer that follows. */
static inline void *gw_residual_sent(const struct gw_residual *residual)
{
    return residual->sent[residual->current];
}

static inline void *gw_residual_sent_next(const struct gw_residual *residual)
{
    return residual->sent[!residual->current];
}

static inline void gw_residual_commit(struct gw_residual *residual)
{
    residual->current = !residual->current;
}

/* The first element of g that is not finite; if there is none, the first of g + residual; 0 if there is none. */
uint64_t gw_residual_find_bad(const struct gw_residual *residual, const float *g);

/* |e|_2 */
double gw_residual_norm(const struct gw_residual *residual);

/* e = factor * e, or the nearest finite number: no smaller factor would mend an infinity. */
void gw_residual_scale(struct gw_residual *residual, float factor);

/* The residual as a part of a saved state, in float32. */
size_t gw_residual_bytes(uint64_t n);
void gw_residual_save(const struct gw_residual *residual, uint8_t *dst);

/* Refuses saved numbers that are not finite. `what` they are and the tensor's name are for the sentence. */
gw_status gw_residual_check(const uint8_t *src, uint64_t n, const char *what, const char *name);
/* Loads what has passed this check. */
void gw_residual_load(struct gw_residual *residual, const uint8_t *src);

/* Merges the saved residuals of N workers, which begin at offset `at`. The result is their mean (1/N) sum e_i. Each of
 * any other number of workers begins with it, so what the residuals add to the average stays the same. */
void gw_residual_merge(const void *const *states, uint32_t n_states, size_t at, uint64_t n, uint8_t *dst);

#endif
