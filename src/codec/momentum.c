/* Makes velocities of gradients before they are coded, and gradients of averaged velocities. */
#include "codec/momentum.h"
#include "base/clones.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "wire/bytes.h"
#include "wire/frame.h"

#include <math.h>
#include <string.h>

const char *const gw_momentum_outputs[] = {"gradient", "velocity", NULL};

gw_status gw_momentum_create(gw_context *context, float factor, bool has_average, uint64_t n, struct gw_momentum **out)
{
    struct gw_momentum *momentum = gw_calloc(context, 1, sizeof *momentum);
    *out = momentum;
    if (!momentum)
        return GW_ERR_MEMORY;
    momentum->factor = factor;
    GW_TRY(gw_residual_init(context, n, 0, &momentum->velocity));
    return gw_residual_init(context, has_average ? n : 0, 0, &momentum->average);
}

void gw_momentum_destroy(gw_context *context, struct gw_momentum *momentum)
{
    if (!momentum)
        return;
    gw_residual_fini(context, &momentum->velocity);
    gw_residual_fini(context, &momentum->average);
    gw_free(context, momentum);
}

GW_CLONES static void add(float factor, const float *restrict before, const float *restrict g, uint64_t n,
                          float *restrict next)
{
    for (uint64_t i = 0; i < n; i++)
        next[i] = factor * before[i] + g[i];
}

struct adding {
    const struct gw_momentum *momentum;
    const float *g;
};

static void add_chunk(uint64_t i, uint32_t slot, void *user)
{
    (void)slot;
    const struct adding *a = user;
    const struct gw_residual *velocity = &a->momentum->velocity;
    const uint64_t at = i * GW_CHUNK, left = velocity->n - at;
    add(a->momentum->factor, gw_residual_now(velocity) + at, a->g + at, left < GW_CHUNK ? left : GW_CHUNK,
        gw_residual_next(velocity) + at);
}

const float *gw_momentum_add(gw_context *context, struct gw_momentum *momentum, const float *g)
{
    struct adding a = {momentum, g};
    momentum->n_delivered = 0;
    gw_parallel_for(context, gw_div_up(momentum->velocity.n, GW_CHUNK), add_chunk, &a);
    return gw_residual_next(&momentum->velocity);
}

GW_CLONES static void deliver(float factor, const float *restrict before, uint64_t n, float *restrict average,
                              float *restrict next)
{
    for (uint64_t i = 0; i < n; i++) {
        const float s = average[i];
        next[i] = isfinite(s) ? s : before[i]; /* an infinity would stay for ever */
        average[i] = s - factor * before[i];
    }
}

void gw_momentum_deliver(struct gw_momentum *momentum, float *average, uint64_t begin, uint64_t count)
{
    if (!momentum->average.n)
        return;
    deliver(momentum->factor, gw_residual_now(&momentum->average) + begin, count, average,
            gw_residual_next(&momentum->average) + begin);
    momentum->n_delivered += count;
}

void gw_momentum_commit(struct gw_momentum *momentum, bool committed)
{
    if (committed)
        gw_residual_commit(&momentum->velocity);
    if (committed && momentum->n_delivered == momentum->average.n)
        gw_residual_commit(&momentum->average);
    momentum->n_delivered = 0;
}

bool gw_momentum_is_zero(const struct gw_momentum *momentum)
{
    const float *velocity = gw_residual_now(&momentum->velocity);
    for (uint64_t i = 0; i < momentum->velocity.n; i++)
        if (velocity[i] != 0)
            return false;
    return true;
}

const float *gw_momentum_rest(struct gw_momentum *momentum)
{
    momentum->n_delivered = 0;
    return memset(gw_residual_next(&momentum->velocity), 0, gw_residual_bytes(momentum->velocity.n));
}

void gw_momentum_scale(struct gw_momentum *momentum, float factor)
{
    gw_residual_scale(&momentum->velocity, factor);
    gw_residual_scale(&momentum->average, factor);
}

size_t gw_momentum_bytes(const struct gw_momentum *momentum)
{
    return momentum ? gw_residual_bytes(momentum->velocity.n + momentum->average.n) : 0;
}

void gw_momentum_save(const struct gw_momentum *momentum, uint8_t *dst)
{
    gw_residual_save(&momentum->velocity, dst);
    gw_residual_save(&momentum->average, dst + gw_residual_bytes(momentum->velocity.n));
}

gw_status gw_momentum_check(const struct gw_momentum *momentum, const uint8_t *src, const char *name)
{
    const uint64_t n = momentum->velocity.n;
    GW_TRY(gw_residual_check(src, n, "velocity", name));
    return gw_residual_check(src + gw_residual_bytes(n), momentum->average.n, "average", name);
}

void gw_momentum_load(struct gw_momentum *momentum, const uint8_t *src)
{
    gw_residual_load(&momentum->velocity, src);
    gw_residual_load(&momentum->average, src + gw_residual_bytes(momentum->velocity.n));
    momentum->n_delivered = 0;
}
