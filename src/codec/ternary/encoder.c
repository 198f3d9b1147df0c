/* Turns a gradient into a push frame: clip, scaler, draw (or round: residual.c), pack (TernGrad, equations 1 to 4 and
 * 21; docs/design.md). */
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "codec/draw.h"
#include "codec/ternary/ternary.h"
#include "wire/bytes.h"

#include <float.h>
#include <math.h>

/* If more than one thread works, so many chunks are encoded in parallel before they are joined. */
#define WAVE 64

static bool shares(const gw_encoder *encoder)
{
    return ((const struct ternary_options *)encoder->options)->share == SHARE_ON;
}

uint64_t ternary_shared_count(const gw_encoder *encoder)
{
    return shares(encoder) ? gw_n_buckets(ternary_bucket(encoder), encoder->tensor.n_elems) : 0;
}

size_t ternary_payload_bound(const gw_encoder *encoder, uint64_t n_elems)
{
    (void)encoder;
    uint64_t whole = n_elems / GW_CHUNK;
    uint32_t rest = n_elems % GW_CHUNK;
    return (size_t)whole * (ENTRY_BYTES + ternary_push_chunk_bound(GW_CHUNK)) +
           (rest ? ENTRY_BYTES + ternary_push_chunk_bound(rest) : 0);
}

gw_status ternary_open(gw_encoder *encoder)
{
    struct ternary_state *state = encoder->state;
    state->n_scalers = gw_n_buckets(ternary_bucket(encoder), encoder->tensor.n_elems);
    state->clip = gw_alloc(encoder->context, state->n_scalers, sizeof *state->clip);
    state->own = gw_alloc(encoder->context, state->n_scalers, sizeof *state->own);
    state->stats = gw_alloc(encoder->context, state->n_scalers, sizeof *state->stats);
    return state->clip && state->own && state->stats ? GW_OK : GW_ERR_MEMORY;
}

void ternary_close(gw_encoder *encoder)
{
    struct ternary_state *state = encoder->state;
    for (uint32_t i = 0; i < state->n_slots; i++)
        gw_strings_writer_fini(encoder->context, &state->slots[i].writer);
    gw_free(encoder->context, state->slots);
    gw_free(encoder->context, state->wave);
    gw_free(encoder->context, state->stats);
    gw_free(encoder->context, state->own);
    gw_free(encoder->context, state->clip);
}

/* ---- clip and scaler ------------------------------------------------------------------------- */

/* For bucket b of n elements: f(g) limits g to c * sigma (eq. 21), and s = max |f(g)| (eq. 2). If all elements are
 * equal, sigma is about 0, and clipping would leave nothing. So a bucket with c * sigma < |mean| is not clipped. */
static void set_scaler(struct ternary_state *state, double c, uint64_t b, uint64_t n)
{
    const struct gw_stats *stats = &state->stats[b];
    float max_abs = gw_bits_float(stats->max_bits), clip = FLT_MAX;
    double limit = c * gw_stats_sigma(stats, n);
    if (c > 0 && n && limit >= fabs(stats->sum / (double)n) && limit < FLT_MAX && (float)limit > 0)
        clip = (float)limit;
    state->clip[b] = clip;
    state->own[b] = max_abs < clip ? max_abs : clip;
}

/* context NULL: in this thread alone */
static void measure_bucket(gw_context *context, gw_encoder *encoder, const float *g, uint64_t b)
{
    struct ternary_state *state = encoder->state;
    const struct ternary_options *o = encoder->options;
    const uint64_t begin = b * o->bucket, left = encoder->tensor.n_elems - begin,
                   n = o->bucket && o->bucket < left ? o->bucket : left;
    if (!gw_encoder_keeps_state(encoder)) {
        state->stats[b] = gw_stats_run(context, g + begin, n);
        set_scaler(state, o->clip, b, n);
        return;
    }
    state->stats[b] = ternary_feedback_measure(context, encoder, g, b, begin, n);
    state->own[b] = ternary_feedback_level(o->level, &state->stats[b], n);
    ternary_feedback_set_levels(encoder, b, 1, &state->own[b]);
}

struct measuring {
    gw_encoder *encoder;
    const float *g;
};

/* The threads already share out the buckets. */
static void measure_one_bucket(uint64_t b, uint32_t slot, void *user)
{
    (void)slot;
    const struct measuring *m = user;
    measure_bucket(NULL, m->encoder, m->g, b);
}

static void sum_up(gw_encoder *encoder, const float *g, gw_measure *info)
{
    const struct ternary_state *state = encoder->state;
    struct gw_stats total = {0};
    for (uint64_t b = 0; b < state->n_scalers; b++)
        gw_stats_add(&total, &state->stats[b]);
    gw_measure_from_stats(&total, g, encoder->tensor.n_elems, info);
    if (!gw_encoder_keeps_state(encoder))
        return;
    info->sum_abs_bound = 0; /* TernGrad's; here the largest magnitude is that of another sum */
    if (info->finite)
        return;
    ternary_settle(encoder);
    info->bad_index = gw_residual_find_bad(&encoder->residual, g);
}

gw_status ternary_measure(gw_encoder *encoder, const float *g, float *shared, gw_measure *info)
{
    struct ternary_state *state = encoder->state;
    if (ternary_bucket(encoder)) {
        struct measuring m = {encoder, g};
        gw_parallel_for(encoder->context, state->n_scalers, measure_one_bucket, &m);
    } else {
        measure_bucket(encoder->context, encoder, g, 0);
    }
    sum_up(encoder, g, info);
    uint64_t n_shared = ternary_shared_count(encoder);
    if (info->finite && n_shared)
        memcpy(shared, state->own, n_shared * sizeof *shared);
    return GW_OK;
}

/* ---- encode ---------------------------------------------------------------------------------- */

struct encoding {
    gw_encoder *encoder;
    const float *g;
    const float *scalers; /* of the whole tensor, one for each bucket */
    const gw_draw *draw;
    const struct gw_frame *frame;
    enum ternary_code code;
    int entropy;
    uint64_t first; /* the chunk of the slice that a wave begins with */
    uint32_t entries[WAVE];
    uint8_t *to; /* chunk first + i of a wave goes to: to + i * stride */
    size_t stride;
};

static void encode_chunk(uint64_t i, uint32_t index, void *user)
{
    struct encoding *e = user;
    struct ternary_state *state = e->encoder->state;
    struct ternary_bits *bits = &state->slots[index].bits;
    uint64_t c = e->first + i, begin = e->frame->begin + c * GW_CHUNK, n = chunk_elems(e->frame, c), end = begin + n;
    uint64_t bucket = ternary_bucket(e->encoder), n_words = (n + 63) / 64;
    memset(bits->nonzero, 0, n_words * 8);
    memset(bits->sign, 0, n_words * 8);
    struct gw_ternary_draw draw = {.purpose = GW_PURPOSE_TERNARY, .at = *e->draw, .tensor_id = e->encoder->tensor.id};
    for (uint64_t at = begin; at < end;) {
        uint64_t b = bucket ? at / bucket : 0;
        uint64_t stop = bucket && (b + 1) * bucket < end ? (b + 1) * bucket : end;
        if (gw_encoder_keeps_state(e->encoder)) {
            ternary_feedback_round(e->encoder, e->scalers[b], at, stop, begin, bits);
        } else {
            draw.clip = state->clip[b];
            gw_draw_range(&draw, e->g, e->scalers[b], at, stop, begin, bits->nonzero, bits->sign, CHUNK_WORDS);
        }
        at = stop;
    }
    uint32_t count = ternary_count(bits->nonzero, (uint32_t)n);
    e->entries[i] = ternary_push_pack(e->code, e->entropy, bits, (uint32_t)n, count, &state->slots[index].writer,
                                      e->to + i * e->stride);
}

/* Takes the memory at the first call. The caller can repeat a call that ran out of memory. */
static gw_status take_scratch(gw_encoder *encoder)
{
    struct ternary_state *state = encoder->state;
    const struct ternary_options *o = encoder->options;
    uint64_t n = encoder->tensor.n_elems;
    uint32_t n_threads = n > GW_CHUNK ? gw_thread_count(encoder->context) : 1;
    const uint32_t most_elems = n < GW_CHUNK ? (uint32_t)n : GW_CHUNK;
    /* also with GW_WIRE_FAST: the wire may be small later */
    const bool writer = ternary_push_code(&o->packing) == CODE_MIXED && o->packing.entropy != ENTROPY_OFF;
    if (!state->slots)
        state->slots = gw_calloc(encoder->context, n_threads, sizeof *state->slots);
    if (!state->slots)
        return GW_ERR_MEMORY;
    for (; state->n_slots < n_threads; state->n_slots++)
        if (writer)
            GW_TRY(
                gw_strings_writer_init(encoder->context, 2 * most_elems, 2, 2, &state->slots[state->n_slots].writer));
    if (n_threads > 1 && !state->wave) {
        state->wave_stride = ternary_push_chunk_bound(most_elems);
        state->wave = gw_alloc(encoder->context, WAVE, state->wave_stride);
        if (!state->wave)
            return GW_ERR_MEMORY;
    }
    return GW_OK;
}

gw_status ternary_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw, uint8_t *dst,
                         struct gw_frame *frame)
{
    const struct ternary_options *o = encoder->options;
    const struct ternary_packing packing = encoder->push_wire == GW_WIRE_FAST ? ternary_fast(o->packing) : o->packing;
    struct ternary_state *state = encoder->state;
    const float *scalers = shared && shares(encoder) ? shared : state->own;
    uint64_t b0 = frame->bucket ? frame->begin / frame->bucket : 0;
    for (uint64_t b = b0; b < b0 + frame->n_scalers && b < state->n_scalers; b++)
        if (!(scalers[b] >= state->own[b]) || !isfinite(scalers[b]))
            return gw_fail(
                GW_ERR_ARGUMENT,
                "tensor '%s': the given scaler is %g; it must be the maximum over workers, finite and at least this "
                "worker's own, %g",
                encoder->shown, (double)scalers[b], (double)state->own[b]);
    if (gw_encoder_keeps_state(encoder) && b0 < state->n_scalers)
        ternary_feedback_set_levels(encoder, b0, frame->n_scalers, scalers + b0);
    GW_TRY(take_scratch(encoder));
    uint64_t n_chunks = n_chunks_of(frame), wave = state->wave ? WAVE : 1;
    struct encoding e = {.encoder = encoder,
                         .g = g,
                         .scalers = scalers,
                         .draw = draw,
                         .frame = frame,
                         .code = ternary_push_code(&packing),
                         .entropy = packing.entropy,
                         .stride = state->wave_stride};
    uint8_t *payload = dst + gw_frame_head_bytes(frame->n_scalers);
    const bool table = ternary_has_table(e.code, n_chunks);
    size_t at = table ? ENTRY_BYTES * n_chunks : 0;
    for (; e.first < n_chunks; e.first += wave) {
        uint64_t n = n_chunks - e.first < wave ? n_chunks - e.first : wave;
        e.to = wave == 1 ? payload + at : state->wave;
        gw_parallel_for(encoder->context, n, encode_chunk, &e);
        for (uint64_t i = 0; i < n; i++) {
            size_t bytes = ENTRY_SIZE(e.entries[i]);
            if (wave != 1)
                memcpy(payload + at, state->wave + i * e.stride, bytes);
            at += bytes;
            if (table)
                ternary_put_entry(payload, e.first + i, e.entries[i], e.code);
        }
    }
    frame->code = (uint8_t)ternary_frame_code(e.code, false, n_chunks, e.entries[0]);
    frame->payload_bytes = at;
    frame->flags |= shares(encoder) ? 0 : GW_FLAG_PRIVATE;
    if (frame->n_scalers)
        memcpy(dst + GW_HEADER_BYTES, scalers + b0, 4 * frame->n_scalers);
    return GW_OK;
}
