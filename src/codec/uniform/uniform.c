/* uniform sends every element with the same probability p, as g_i / p. GSpar is compared with it. */
#include "codec/kernels.h"
#include "codec/sparse/encode.h"

#include <float.h>
#include <stddef.h>

struct uniform_options {
    double density;
};

/* So many elements are drawn at once. All of them are drawn with the same probability, so the kernel gets an array of
 * ones. */
#define PIECE 4096
static const float ones[PIECE] = {[0 ... PIECE - 1] = 1};

struct uniform_state {
    struct gw_sparse_memory *memory;
};

static void uniform_close(gw_encoder *encoder)
{
    struct uniform_state *state = encoder->state;
    gw_sparse_memory_destroy(encoder->context, state->memory);
}

/* ---- encode ---------------------------------------------------------------------------------- */

struct picking {
    const float *g;
    double p; /* the probability of the draw */
    struct gw_ternary_draw draw;
};

/* If the quotient would round to infinity, this gives the largest float. */
static float rescale(float g, double p)
{
    double x = (double)g / p;
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

static void pick(const void *user, uint64_t begin, uint32_t n, struct gw_sparse_picked *picked)
{
    const struct picking *p = user;
    float *values = picked->values;
    for (uint32_t at = 0; at < n; at += PIECE) {
        uint32_t m = n - at < PIECE ? n - at : PIECE, n_groups = (m + GW_DRAW_GROUP - 1) / GW_DRAW_GROUP;
        uint64_t drawn[PIECE / 64], negative[PIECE / 64];
        gw_kernels_now()->draw(&p->draw, ones, (begin + at) / GW_DRAW_GROUP, n_groups, drawn, negative);
        for (uint32_t w = 0; w < (m + 63) / 64; w++) {
            const float *g = p->g + begin + at + 64 * w;
            uint64_t kept = 0, bits = m - 64 * w < 64 ? drawn[w] & ((1ull << (m - 64 * w)) - 1) : drawn[w];
            for (; bits; bits &= bits - 1) {
                uint32_t e = (uint32_t)__builtin_ctzll(bits);
                bool sent = g[e] != 0; /* zeros need not be sent */
                *values = rescale(g[e], p->p);
                values += sent;
                kept |= (uint64_t)sent << e;
            }
            picked->kept[at / 64 + w] = kept;
        }
    }
}

static gw_status uniform_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw,
                                uint8_t *dst, struct gw_frame *frame)
{
    struct uniform_state *state = encoder->state;
    const struct uniform_options *o = encoder->options;
    (void)shared;
    /* The draw compares with a whole number, so its probability differs a little from `density`. Values are divided by
     * the probability of the draw. */
    float threshold = (float)(uint64_t)(float)(o->density * 0x1p32);
    struct picking p = {.g = g,
                        .p = (double)threshold * 0x1p-32,
                        .draw = {.clip = 1,
                                 .to_threshold = threshold,
                                 .purpose = GW_PURPOSE_UNIFORM,
                                 .at = *draw,
                                 .tensor_id = encoder->tensor.id}};
    return gw_sparse_encode(encoder, &state->memory, pick, &p, dst, frame);
}

/* ---- options --------------------------------------------------------------------------------- */

static const gw_codec_option options[] = {
    {"density", "0.01", "1e-6 to 1", "the probability with which every element is sent"},
};

static const struct gw_option_rule rules[] = {
    {GW_OPTION_NUMBER, offsetof(struct uniform_options, density), 1e-6, 1, NULL},
};

static const char *const examples[] = {"uniform", "uniform:density=0.2", NULL};

const struct gw_codec_record gw_codec_uniform = {
    .info = {.name = "uniform",
             .summary = "every element with the same probability, drawn without bias",
             .source = "what GSpar is compared with: Wangni et al., NeurIPS 2018",
             .options = options,
             .n_options = sizeof options / sizeof *options,
             .losses = gw_losses_uniform,
             .examples = examples,
             .wire_id = GW_WIRE_SPARSE,
             .lossy = true,
             .unbiased = true},
    .rules = rules,
    .has_wire_choice = gw_sparse_has_wire_choice,
    .options_bytes = sizeof(struct uniform_options),
    .state_bytes = sizeof(struct uniform_state),
    .close = uniform_close,
    .payload_bound = gw_sparse_payload_bound,
    .encode = uniform_encode,
};
