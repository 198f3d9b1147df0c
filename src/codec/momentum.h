/* Momentum correction (DGC: Lin et al., "Deep Gradient Compression", ICLR 2018, section 3.1): a codec with a residual
 * codes the velocity u = M*u + g in place of g. What waits in the residual then has its momentum with it.
 *
 * All workers know the average s of the coded velocities. By default the optimizer gets d = s - M*s', with s' the
 * average of the step before. An optimizer with the same momentum M makes v = M*v + d = s of it. So it needs no change:
 * momentum, Nesterov's too, and weight decay stay where they are. With output=velocity it gets s, and must have no
 * momentum of its own.
 *
 * It stands between an encoder's public functions and the codec's record, and is the same for all codecs. */
#ifndef GW_CODEC_MOMENTUM_H
#define GW_CODEC_MOMENTUM_H

#include "codec/residual.h"

#include <stdbool.h>
#include <stddef.h>

enum gw_momentum_output { GW_OUTPUT_GRADIENT, GW_OUTPUT_VELOCITY };
extern const char *const gw_momentum_outputs[];

/* The options momentum= and output= of a codec. */
struct gw_momentum_options {
    double factor; /* M; 0: no momentum */
    int output;    /* enum gw_momentum_output */
};

/* The same two in a codec's lists of options and rules (codec.h). */
#define GW_MOMENTUM_OPTIONS                                                                                            \
    {"momentum", "0", "0 or more and below 1",                                                                         \
     "codes the velocity M*u + g in place of g, with this M; the optimizer's momentum must be the same"},              \
    {                                                                                                                  \
        "output", "gradient", "gradient|velocity",                                                                     \
            "with momentum=, what the optimizer gets; velocity: its own momentum must be 0"                            \
    }
#define GW_MOMENTUM_RULES(at)                                                                                          \
    {GW_OPTION_NUMBER, (at) + offsetof(struct gw_momentum_options, factor), 0, 0x1.fffffep-1, NULL},                   \
    {                                                                                                                  \
        GW_OPTION_WORD, (at) + offsetof(struct gw_momentum_options, output), 0, 0, gw_momentum_outputs                 \
    }

/* What it keeps of a tensor. Both have two buffers, so that a step that is dropped leaves no trace. */
struct gw_momentum {
    float factor;
    struct gw_residual velocity;
    struct gw_residual average; /* s; with output=velocity it has no elements */
    uint64_t n_delivered;       /* how many elements of `average` have come in this step */
};

/* has_average: output=gradient. Errors: GW_ERR_MEMORY. After an error *out is to be destroyed, too. */
gw_status gw_momentum_create(gw_context *context, float factor, bool has_average, uint64_t n, struct gw_momentum **out);
void gw_momentum_destroy(gw_context *context, struct gw_momentum *momentum);

/* Makes the next velocity, M*u + g, and returns it. */
const float *gw_momentum_add(gw_context *context, struct gw_momentum *momentum, const float *g);

/* Turns elements [begin, begin + count) of the average into what the optimizer gets. */
void gw_momentum_deliver(struct gw_momentum *momentum, float *average, uint64_t begin, uint64_t count);

/* Ends a step. */
void gw_momentum_commit(struct gw_momentum *momentum, bool committed);

/* True if all of the velocity is 0. */
bool gw_momentum_is_zero(const struct gw_momentum *momentum);

/* Takes the place of gw_momentum_add if velocity and gradient are 0. */
const float *gw_momentum_rest(struct gw_momentum *momentum);

void gw_momentum_scale(struct gw_momentum *momentum, float factor);

/* As a part of a saved state. */
size_t gw_momentum_bytes(const struct gw_momentum *momentum);
void gw_momentum_save(const struct gw_momentum *momentum, uint8_t *dst);
/* Refuses what is not finite. Then it can be loaded. */
gw_status gw_momentum_check(const struct gw_momentum *momentum, const uint8_t *src, const char *name);
void gw_momentum_load(struct gw_momentum *momentum, const uint8_t *src);

#endif
