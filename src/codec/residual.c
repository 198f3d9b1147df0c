/* Error feedback: takes, saves, checks and merges the residuals that codecs keep between steps. */
#include "codec/residual.h"
#include "base/error.h"
#include "base/memory.h"
#include "wire/bytes.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

gw_status gw_residual_init(gw_context *context, uint64_t n, size_t sent_bytes, struct gw_residual *residual)
{
    bool whole = true;
    *residual = (struct gw_residual){.n = n};
    for (int i = 0; i < 2; i++) {
        residual->buffers[i] = gw_calloc(context, n, sizeof(float));
        residual->sent[i] = gw_calloc(context, sent_bytes, 1);
        whole = whole && residual->buffers[i] && residual->sent[i];
    }
    return whole ? GW_OK : GW_ERR_MEMORY;
}

void gw_residual_fini(gw_context *context, struct gw_residual *residual)
{
    for (int i = 0; i < 2; i++) {
        gw_free(context, residual->buffers[i]);
        gw_free(context, residual->sent[i]);
    }
}

uint64_t gw_residual_find_bad(const struct gw_residual *residual, const float *g)
{
    const float *now = gw_residual_now(residual);
    for (uint64_t i = 0; i < residual->n; i++)
        if (!isfinite(g[i]))
            return i;
    for (uint64_t i = 0; i < residual->n; i++)
        if (!isfinite(g[i] + now[i]))
            return i;
    return 0;
}

double gw_residual_norm(const struct gw_residual *residual)
{
    const float *now = gw_residual_now(residual);
    double sum = 0;
    for (uint64_t i = 0; i < residual->n; i++)
        sum += (double)now[i] * (double)now[i];
    return sqrt(sum);
}

void gw_residual_scale(struct gw_residual *residual, float factor)
{
    float *now = gw_residual_now(residual);
    for (uint64_t i = 0; i < residual->n; i++)
        now[i] = fminf(fmaxf(now[i] * factor, -FLT_MAX), FLT_MAX);
}

size_t gw_residual_bytes(uint64_t n)
{
    return 4 * (size_t)n;
}

void gw_residual_save(const struct gw_residual *residual, uint8_t *dst)
{
    memcpy(dst, gw_residual_now(residual), gw_residual_bytes(residual->n));
}

gw_status gw_residual_check(const uint8_t *src, uint64_t n, const char *what, const char *name)
{
    for (uint64_t i = 0; i < n; i++)
        if (!isfinite(gw_get_float(src + 4 * i)))
            return gw_fail(GW_ERR_ARGUMENT, "the saved %s of tensor '%s' is not finite at element %llu", what, name,
                           (unsigned long long)i);
    return GW_OK;
}

void gw_residual_load(struct gw_residual *residual, const uint8_t *src)
{
    memcpy(gw_residual_now(residual), src, gw_residual_bytes(residual->n));
}

void gw_residual_merge(const void *const *states, uint32_t n_states, size_t at, uint64_t n, uint8_t *dst)
{
    for (uint64_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint32_t w = 0; w < n_states; w++)
            sum += (double)gw_get_float((const uint8_t *)states[w] + at + 4 * i);
        gw_put_float(dst + 4 * i, (float)(sum / n_states));
    }
}
