/* GSpar sends element i with probability p_i = min(|g_i| / q, 1), as g_i / p_i. If p_i = 1 that is g_i itself (part
 * A). Else it is q with g_i's sign (part B). q is one number of the frame. With share=on it is the smallest of all
 * workers' q, so that the variance stays below what each asked for, and owners add up part B in integers. */
#include "base/error.h"
#include "codec/draw.h"
#include "codec/gspar/solve.h"
#include "codec/sparse/encode.h"
#include "wire/bytes.h"

#include <float.h>
#include <stddef.h>

struct gspar_options {
    double eps, density;
    int share;
};

enum { SHARE_OFF, SHARE_ON };

struct gspar_state {
    struct gspar_scratch solving;
    struct gspar_solution solution;
    struct gw_sparse_memory *memory;
};

static void gspar_close(gw_encoder *encoder)
{
    struct gspar_state *state = encoder->state;
    gspar_scratch_fini(encoder->context, &state->solving);
    gw_sparse_memory_destroy(encoder->context, state->memory);
}

static bool shares(const gw_encoder *encoder)
{
    return ((const struct gspar_options *)encoder->options)->share == SHARE_ON;
}

static uint64_t gspar_shared_count(const gw_encoder *encoder)
{
    return shares(encoder);
}

/* Workers share the largest of their numbers, and it must be the number of the smallest q. So the number is q's mirror
 * image. The bits of positive floats are in the order of the floats. To subtract them from the bits of infinity maps
 * the finite positive floats onto themselves, in reverse order. The mirror image of the image is q again. 0, the
 * smallest number, says that there is no q: nothing is to be sent. */
static float mirror(float x)
{
    return x > 0 ? gw_bits_float(0x7F800000u - gw_float_bits(x)) : 0;
}

static gw_status gspar_measure(gw_encoder *encoder, const float *g, float *shared, gw_measure *info)
{
    struct gspar_state *state = encoder->state;
    const struct gspar_options *o = encoder->options;
    uint64_t n = encoder->tensor.n_elems;
    struct gspar_target target = {o->density > 0 ? GSPAR_DENSITY : GSPAR_EPS, o->density > 0 ? o->density : o->eps};
    struct gw_stats stats = gw_stats_run(encoder->context, g, n);
    gw_measure_from_stats(&stats, g, n, info);
    if (!info->finite)
        return GW_OK;
    GW_TRY(gspar_solve(encoder->context, g, n, &stats, target, &state->solving, &state->solution));
    if (shares(encoder))
        *shared = mirror(state->solution.slope);
    return GW_OK;
}

/* ---- encode ---------------------------------------------------------------------------------- */

struct picking {
    const float *g;
    float q;
    struct gw_ternary_draw draw;
};

/* How many elements are drawn at a time. Then those with values of their own are taken from these, while they are still
 * in the cache. */
#define PIECE 16384

static void pick(const void *user, uint64_t begin, uint32_t n, struct gw_sparse_picked *picked)
{
    const struct picking *p = user;
    struct gw_ternary_draw draw = p->draw;
    float *values = picked->values;
    draw.clip = p->q;
    for (uint32_t at = 0; p->q > 0 && at < n; at += PIECE) {
        uint32_t m = n - at < PIECE ? n - at : PIECE, w = at / 64;
        gw_draw_range(&draw, p->g, p->q, begin + at, begin + at + m, begin + at, picked->kept + w, picked->negative + w,
                      (m + 63) / 64);
        const struct gw_select_run above = {.g = p->g + begin + at,
                                            .n = m,
                                            .threshold_bits = gw_float_bits(p->q),
                                            .kept = picked->exact + w};
        values += gw_select_kernels_now()->select(&above, values).n_above;
    }
}

static gw_status gspar_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw,
                              uint8_t *dst, struct gw_frame *frame)
{
    struct gspar_state *state = encoder->state;
    float q = state->solution.slope;
    if (shares(encoder) && shared) {
        if (!(*shared >= mirror(q) && *shared <= FLT_MAX))
            return gw_fail(GW_ERR_ARGUMENT,
                           "tensor '%s': the given number is %g; it must be the maximum over workers, finite and at "
                           "least this worker's own, %g",
                           encoder->shown, (double)*shared, (double)mirror(q));
        q = mirror(*shared);
    }
    frame->flags |= shares(encoder) ? 0 : GW_FLAG_PRIVATE;
    struct picking p = {.g = g,
                        .q = q,
                        .draw = {.purpose = GW_PURPOSE_GSPAR, .at = *draw, .tensor_id = encoder->tensor.id}};
    gw_put_float(dst + GW_HEADER_BYTES, p.q);
    return gw_sparse_encode(encoder, &state->memory, pick, &p, dst, frame);
}

/* ---- options --------------------------------------------------------------------------------- */

static const gw_codec_option options[] = {
    {"eps", "1", "1e-9 to 1e9", "sends the fewest elements whose variance is at most 1 + eps times the gradient's own"},
    {"density", "0", "0 to 1; 0: eps decides",
     "sends this share of the elements on average (the greedy method), in place of eps"},
    {"share", "off", "on|off",
     "on: workers share the smallest q; they may send more elements, and averages take fewer bytes"},
};

static const char *const on_off[] = {"off", "on", NULL};

#define AT(field) offsetof(struct gspar_options, field)
static const struct gw_option_rule rules[] = {
    {GW_OPTION_NUMBER, AT(eps), 1e-9, 1e9, NULL},
    {GW_OPTION_NUMBER, AT(density), 0, 1, NULL},
    {GW_OPTION_WORD, AT(share), 0, 0, on_off},
};

static const char *const examples[] = {"gspar", "gspar:density=0.05", "gspar:eps=0.5,share=on", NULL};

const struct gw_codec_record gw_codec_gspar = {
    .info = {.name = "gspar",
             .summary = "the fewest elements for a given variance, drawn without bias",
             .source = "GSpar: Wangni et al., NeurIPS 2018",
             .options = options,
             .n_options = sizeof options / sizeof *options,
             .losses = gw_losses_gspar,
             .examples = examples,
             .wire_id = GW_WIRE_GSPAR,
             .lossy = true,
             .unbiased = true},
    .rules = rules,
    .has_wire_choice = gw_sparse_has_wire_choice,
    .options_bytes = sizeof(struct gspar_options),
    .state_bytes = sizeof(struct gspar_state),
    .close = gspar_close,
    .shared_count = gspar_shared_count,
    .payload_bound = gw_sparse_payload_bound,
    .measure = gspar_measure,
    .encode = gspar_encode,
};
