/* From a gradient to a push frame: clip, scaler, draw, pack (DESIGN 4.1, steps 1-3 and 6). */
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "codec/ternary/ternary.h"
#include "wire/bytes.h"

#include <float.h>
#include <math.h>

/* Chunks drawn in parallel before they are packed, where more than one thread works. */
#define WAVE 64

/* One drawn chunk on its way into the frame. */
struct drawn {
    uint32_t count;               /* nonzeros */
    uint32_t gaps_bytes;          /* exact size as gaps; auto only */
    uint32_t entry;               /* table entry: size and flag */
    size_t at;                    /* in the payload */
};

struct ternary_state {
    uint64_t n_scalers;
    float *clip;            /* c * sigma of each bucket; FLT_MAX: not clipped */
    float *own;             /* s of each bucket, this worker's */
    struct gw_stats *stats; /* of each bucket, while measuring */
    /* Scratch, grown when first needed and kept. */
    struct ternary_bits *bits; /* n_bits chunks */
    struct drawn *drawn;
    uint64_t n_bits;
    struct ternary_stage *stages; /* one a thread */
    uint8_t **packed;             /* one chunk a thread: where auto tries the entropy stage */
    uint32_t n_stages;
};

static const struct ternary_options *options_of(const gw_encoder *encoder)
{
    return encoder->options;
}

uint32_t ternary_bucket(const gw_encoder *encoder)
{
    return (uint32_t)options_of(encoder)->bucket;
}

uint64_t ternary_shared_count(const gw_encoder *encoder)
{
    if (options_of(encoder)->share == SHARE_OFF)
        return 0;
    return gw_frame_n_scalers(GW_WIRE_TERNARY, ternary_bucket(encoder), encoder->tensor.n_elems);
}

size_t ternary_payload_bound(const gw_encoder *encoder, uint64_t n_elems)
{
    (void)encoder;
    uint64_t whole = n_elems / GW_CHUNK;
    uint32_t rest = n_elems % GW_CHUNK;
    return (size_t)whole * (4 + ternary_push_chunk_bound(GW_CHUNK)) + (rest ? 4 + ternary_push_chunk_bound(rest) : 0);
}

gw_status ternary_open(gw_encoder *encoder)
{
    struct ternary_state *state = gw_calloc(encoder->context, 1, sizeof *state);
    if (!state)
        return GW_ERR_MEMORY;
    encoder->state = state;
    state->n_scalers = gw_frame_n_scalers(GW_WIRE_TERNARY, ternary_bucket(encoder), encoder->tensor.n_elems);
    state->clip = gw_alloc(encoder->context, state->n_scalers, sizeof *state->clip);
    state->own = gw_alloc(encoder->context, state->n_scalers, sizeof *state->own);
    state->stats = gw_alloc(encoder->context, state->n_scalers, sizeof *state->stats);
    return state->clip && state->own && state->stats ? GW_OK : GW_ERR_MEMORY;
}

void ternary_close(gw_encoder *encoder)
{
    struct ternary_state *state = encoder->state;
    if (!state)
        return;
    for (uint32_t i = 0; i < state->n_stages; i++) {
        ternary_stage_fini(encoder->context, &state->stages[i]);
        gw_free(encoder->context, state->packed[i]);
    }
    gw_free(encoder->context, state->stages);
    gw_free(encoder->context, state->packed);
    gw_free(encoder->context, state->bits);
    gw_free(encoder->context, state->drawn);
    gw_free(encoder->context, state->stats);
    gw_free(encoder->context, state->own);
    gw_free(encoder->context, state->clip);
    gw_free(encoder->context, state);
    encoder->state = NULL;
}

/* ---- clip and scaler ------------------------------------------------------------------------- */

/* Bucket `b` of n elements: f(g) limits g to c * sigma (eq. 21), s = max |f(g)| (eq. 2). Elements that are all alike have no
 * sigma to speak of and would be clipped to nothing: a bucket with c * sigma < |mean| is not clipped. */
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

static uint64_t bucket_begin(const gw_encoder *encoder, uint64_t b)
{
    return b * ternary_bucket(encoder);
}

static uint64_t bucket_count(const gw_encoder *encoder, uint64_t b)
{
    uint64_t n = encoder->tensor.n_elems, bucket = ternary_bucket(encoder);
    return !bucket ? n : n - b * bucket < bucket ? n - b * bucket : bucket;
}

struct measuring {
    gw_encoder *encoder;
    const float *g;
};

static void measure_bucket(uint64_t b, uint32_t slot, void *user)
{
    (void)slot;
    struct measuring *m = user;
    struct ternary_state *state = m->encoder->state;
    /* NULL: buckets are spread over the threads already. */
    state->stats[b] = gw_stats_run(NULL, m->g + bucket_begin(m->encoder, b), bucket_count(m->encoder, b));
    if (state->stats[b].max_bits < 0x7F800000u)
        set_scaler(state, options_of(m->encoder)->clip, b, bucket_count(m->encoder, b));
}

static void sum_up(const gw_encoder *encoder, const float *g, gw_measure *info)
{
    const struct ternary_state *state = encoder->state;
    struct gw_stats total = {0};
    for (uint64_t b = 0; b < state->n_scalers; b++)
        gw_stats_add(&total, &state->stats[b]);
    gw_measure_from_stats(&total, g, encoder->tensor.n_elems, info);
}

gw_status ternary_measure(gw_encoder *encoder, const float *g, float *shared, gw_measure *info)
{
    struct ternary_state *state = encoder->state;
    if (ternary_bucket(encoder)) {
        struct measuring m = {encoder, g};
        gw_parallel_for(encoder->context, state->n_scalers, measure_bucket, &m);
    } else {
        state->stats[0] = gw_stats_run(encoder->context, g, encoder->tensor.n_elems);
        if (state->stats[0].max_bits < 0x7F800000u)
            set_scaler(state, options_of(encoder)->clip, 0, encoder->tensor.n_elems);
    }
    sum_up(encoder, g, info);
    uint64_t n_shared = ternary_shared_count(encoder);
    if (info->finite && n_shared)
        memcpy(shared, state->own, n_shared * sizeof *shared);
    return GW_OK;
}

/* ---- draw ------------------------------------------------------------------------------------ */

/* The least s whose 2^32/s is far from overflow; smaller tensors are scaled up by 2^64 first, which is exact. */
#define TINY_SCALER 0x1p-90f

/* Draws elements [begin, end) of the tensor into bitmaps that begin at element `base`. Whole groups go straight to the
 * kernel; groups cut by a bucket or the tensor's end go through a copy with zeros around, which are never drawn. */
static void draw_range(struct gw_ternary_draw *draw, const float *g, float s, uint64_t begin, uint64_t end, uint64_t base,
                       struct ternary_bits *bits)
{
    const struct gw_kernels *kernels = gw_kernels_now();
    float clip = draw->clip, up = 1;
    if (s == 0)
        return;
    if (s < TINY_SCALER) {
        up = 0x1p64f;
        s *= up;
        draw->clip = clip < 1 ? clip * up : FLT_MAX;
    }
    draw->to_threshold = 0x1p32f / s;
    if (s * draw->to_threshold < 0x1p32f) /* the largest element is drawn for certain */
        draw->to_threshold = nextafterf(draw->to_threshold, FLT_MAX);
    while (begin < end) {
        uint64_t group = begin / GW_DRAW_GROUP, group_begin = group * GW_DRAW_GROUP, w = (group_begin - base) / 64;
        if (begin == group_begin && end - begin >= GW_DRAW_GROUP && up == 1) {
            uint64_t n_groups = (end - begin) / GW_DRAW_GROUP;
            kernels->draw(draw, g + begin, group, n_groups, bits->nonzero + w, bits->sign + w);
            begin += n_groups * GW_DRAW_GROUP;
            continue;
        }
        float copy[GW_DRAW_GROUP] = {0};
        uint64_t stop = end < group_begin + GW_DRAW_GROUP ? end : group_begin + GW_DRAW_GROUP, nonzero[2], sign[2];
        for (uint64_t e = begin; e < stop; e++)
            copy[e - group_begin] = g[e] * up;
        kernels->draw(draw, copy, group, 1, nonzero, sign);
        /* The last word of a chunk may be the last there is. */
        for (uint64_t half = 0; half < 2 && w + half < CHUNK_WORDS; half++) {
            bits->nonzero[w + half] |= nonzero[half];
            bits->sign[w + half] |= sign[half];
        }
        begin = stop;
    }
    draw->clip = clip;
}

struct encoding {
    gw_encoder *encoder;
    const float *g;
    const float *scalers; /* of the whole tensor, a bucket each */
    const gw_draw *draw;
    const struct gw_frame *frame;
    uint8_t *payload;
    uint64_t first;       /* chunk of the slice that bits[0] holds */
    bool measure;         /* buckets of a chunk are measured just before it is drawn */
    bool want_gaps;
};

static uint32_t chunk_elems(const struct gw_frame *frame, uint64_t c)
{
    uint64_t left = frame->count - c * GW_CHUNK;
    return (uint32_t)(left < GW_CHUNK ? left : GW_CHUNK);
}

static void draw_chunk(uint64_t i, uint32_t slot, void *user)
{
    (void)slot;
    struct encoding *e = user;
    struct ternary_state *state = e->encoder->state;
    struct ternary_bits *bits = &state->bits[i];
    uint64_t c = e->first + i, begin = e->frame->begin + c * GW_CHUNK, n = chunk_elems(e->frame, c), end = begin + n;
    uint64_t bucket = ternary_bucket(e->encoder), n_words = (n + 63) / 64;
    memset(bits->nonzero, 0, n_words * 8);
    memset(bits->sign, 0, n_words * 8);
    struct gw_ternary_draw draw = {.seed = e->draw->seed, .step = e->draw->step, .rank = e->draw->rank,
                                   .tensor_id = e->encoder->tensor.id};
    for (uint64_t at = begin; at < end;) {
        uint64_t b = bucket ? at / bucket : 0;
        uint64_t stop = bucket && (b + 1) * bucket < end ? (b + 1) * bucket : end;
        if (e->measure) {
            struct measuring m = {e->encoder, e->g};
            measure_bucket(b, slot, &m);
            if (state->stats[b].max_bits >= 0x7F800000u) { /* found out after the whole pass */
                at = stop;
                continue;
            }
        }
        draw.clip = state->clip[b];
        draw_range(&draw, e->g, e->scalers[b], at, stop, begin, bits);
        at = stop;
    }
    struct drawn *drawn = &state->drawn[i];
    drawn->count = ternary_count(bits->nonzero, (uint32_t)n);
    drawn->gaps_bytes = e->want_gaps ? (uint32_t)ternary_push_size(CODE_GAPS, bits, (uint32_t)n, drawn->count) : 0;
}

/* ---- pack ------------------------------------------------------------------------------------ */

static gw_status grow_bits(gw_encoder *encoder, uint64_t n)
{
    struct ternary_state *state = encoder->state;
    if (n <= state->n_bits)
        return GW_OK;
    gw_free(encoder->context, state->bits);
    gw_free(encoder->context, state->drawn);
    state->n_bits = 0;
    state->bits = gw_alloc(encoder->context, n, sizeof *state->bits);
    state->drawn = gw_alloc(encoder->context, n, sizeof *state->drawn);
    if (!state->bits || !state->drawn)
        return GW_ERR_MEMORY;
    state->n_bits = n;
    return GW_OK;
}

static gw_status grow_stages(gw_encoder *encoder, uint64_t n_elems)
{
    struct ternary_state *state = encoder->state;
    uint32_t n = gw_thread_count(encoder->context);
    size_t most = ternary_push_chunk_bound((uint32_t)(n_elems < GW_CHUNK ? n_elems : GW_CHUNK));
    if (state->n_stages)
        return GW_OK;
    /* A slice of this tensor may be longer next time: room for a whole chunk, or the whole tensor. */
    uint64_t whole = encoder->tensor.n_elems < GW_CHUNK ? encoder->tensor.n_elems : GW_CHUNK;
    most = ternary_push_chunk_bound((uint32_t)whole);
    if (!state->stages)
        state->stages = gw_calloc(encoder->context, n, sizeof *state->stages);
    if (!state->packed)
        state->packed = gw_calloc(encoder->context, n, sizeof *state->packed);
    if (!state->stages || !state->packed)
        return GW_ERR_MEMORY;
    for (; state->n_stages < n; state->n_stages++) {
        struct ternary_stage *stage = &state->stages[state->n_stages];
        uint8_t **packed = &state->packed[state->n_stages];
        *packed = gw_alloc(encoder->context, most, 1);
        if (!*packed)
            return GW_ERR_MEMORY;
        gw_status status = ternary_stage_init(encoder->context, most, stage);
        if (status < 0) {
            gw_free(encoder->context, *packed);
            *packed = NULL;
            return status;
        }
    }
    return GW_OK;
}

/* Packs one drawn chunk where its size says. With an entropy stage sizes are found by size_chunk before. */
static void pack_chunk(uint64_t i, uint32_t slot, void *user)
{
    struct encoding *e = user;
    struct ternary_state *state = e->encoder->state;
    struct drawn *drawn = &state->drawn[i];
    bool entropy = e->frame->flags & GW_FLAG_ENTROPY;
    drawn->entry = ternary_push_pack(e->frame->code, &state->bits[i], chunk_elems(e->frame, e->first + i), drawn->count,
                                     entropy ? &state->stages[slot] : NULL, e->payload + drawn->at);
}

static void size_chunk(uint64_t i, uint32_t slot, void *user)
{
    struct encoding *e = user;
    struct ternary_state *state = e->encoder->state;
    struct drawn *drawn = &state->drawn[i];
    uint32_t n = chunk_elems(e->frame, e->first + i);
    if (e->frame->flags & GW_FLAG_ENTROPY)
        drawn->entry = ternary_push_pack(e->frame->code, &state->bits[i], n, drawn->count, &state->stages[slot],
                                         state->packed[slot]);
    else if (e->frame->code == CODE_GAPS && e->want_gaps)
        drawn->entry = drawn->gaps_bytes;
    else
        drawn->entry = (uint32_t)ternary_push_size(e->frame->code, &state->bits[i], n, drawn->count);
}

/* Order-0 entropy of the values drawn, in bytes. */
static double entropy_bytes(uint64_t n, uint64_t zeros, uint64_t negatives)
{
    double counts[3] = {(double)zeros, (double)negatives, (double)(n - zeros - negatives)}, bits = 0;
    for (int i = 0; i < 3; i++)
        if (counts[i] > 0)
            bits -= counts[i] * log2(counts[i] / (double)n);
    return bits / 8;
}

/* code=auto: the smallest for this slice, from exact sizes; the entropy stage (over 2bit) is tried where the best plain code
 * is not near the entropy already. Every chunk is drawn. */
static void choose_code(struct encoding *e, struct gw_frame *frame, uint64_t n_chunks, int entropy)
{
    struct ternary_state *state = e->encoder->state;
    uint64_t n_nonzero = 0, negatives = 0, table = 4 * n_chunks;
    uint64_t size[4] = {0, 0, table, table};
    for (uint64_t c = 0; c < n_chunks; c++) {
        const struct drawn *drawn = &state->drawn[c];
        uint32_t n = chunk_elems(frame, c);
        n_nonzero += drawn->count;
        for (uint32_t w = 0; w < (n + 63) / 64; w++)
            negatives += (uint64_t)__builtin_popcountll(state->bits[c].nonzero[w] & state->bits[c].sign[w]);
        size[CODE_2BIT] += gw_div_up(n, 4);
        size[CODE_BASE3] += gw_div_up(n, 5);
        size[CODE_MASK] += gw_div_up(n, 8) + gw_div_up(drawn->count, 8);
        size[CODE_GAPS] += drawn->gaps_bytes;
    }
    uint8_t best = CODE_2BIT;
    for (uint8_t code = CODE_BASE3; code <= CODE_GAPS; code++)
        best = size[code] < size[best] ? code : best;
    double least = entropy_bytes(frame->count, frame->count - n_nonzero, negatives);
    frame->code = best;
    if (entropy == ENTROPY_OFF || (entropy == ENTROPY_AUTO && (double)size[best] <= ENTROPY_WORTH_TRYING * least + (double)table))
        return;
    frame->code = CODE_2BIT;
    frame->flags |= GW_FLAG_ENTROPY;
    gw_parallel_for(e->encoder->context, n_chunks, size_chunk, e);
    uint64_t staged = table;
    for (uint64_t c = 0; c < n_chunks; c++)
        staged += state->drawn[c].entry & ~CHUNK_ZSTD;
    if (entropy == ENTROPY_AUTO && size[best] <= staged) {
        frame->code = best;
        frame->flags &= (uint8_t)~GW_FLAG_ENTROPY;
    }
}

static gw_status encode(gw_encoder *encoder, const float *g, const float *scalers, const gw_draw *where, bool fused, uint8_t *dst,
                        struct gw_frame *frame)
{
    const struct ternary_options *o = options_of(encoder);
    struct ternary_state *state = encoder->state;
    uint64_t n_chunks = gw_div_up(frame->count, GW_CHUNK);
    uint64_t wave = o->code == 0 ? n_chunks : gw_thread_count(encoder->context) > 1 ? WAVE : 1;
    wave = wave < n_chunks ? wave : n_chunks;
    GW_TRY(grow_bits(encoder, wave));
    if (o->entropy != ENTROPY_OFF && (o->entropy == ENTROPY_ON || o->code == 0))
        GW_TRY(grow_stages(encoder, frame->count));
    if (o->share == SHARE_OFF)
        frame->flags |= GW_FLAG_PRIVATE;
    uint8_t *scalers_at = dst + GW_HEADER_BYTES;
    struct encoding e = {.encoder = encoder, .g = g, .scalers = scalers, .draw = where, .frame = frame, .measure = fused,
                         .payload = dst + gw_frame_head_bytes(frame->n_scalers), .want_gaps = o->code == 0};
    if (o->code) {
        frame->code = (uint8_t)(o->code - 1);
        /* With a code named, auto leaves the entropy stage to the codes it was measured to help. */
        if (o->entropy == ENTROPY_ON)
            frame->flags |= GW_FLAG_ENTROPY;
    }
    bool serial = wave == 1 && o->code;
    size_t at = 0;
    for (; e.first < n_chunks; e.first += wave) {
        uint64_t n = n_chunks - e.first < wave ? n_chunks - e.first : wave;
        gw_parallel_for(encoder->context, n, draw_chunk, &e);
        if (!o->code)
            choose_code(&e, frame, n_chunks, o->entropy);
        bool table = code_has_table(frame->code, frame->flags);
        if (e.first == 0 && table)
            at = 4 * n_chunks;
        if (!serial) {
            gw_parallel_for(encoder->context, n, size_chunk, &e);
            for (uint64_t i = 0; i < n; i++) {
                state->drawn[i].at = at;
                at += state->drawn[i].entry & ~CHUNK_ZSTD;
            }
        } else {
            state->drawn[0].at = at;
        }
        gw_parallel_for(encoder->context, n, pack_chunk, &e);
        if (serial)
            at += state->drawn[0].entry & ~CHUNK_ZSTD;
        for (uint64_t i = 0; i < n && table; i++)
            gw_put32(e.payload + 4 * (e.first + i), state->drawn[i].entry);
    }
    uint64_t b0 = frame->bucket ? frame->begin / frame->bucket : 0;
    if (frame->n_scalers)
        memcpy(scalers_at, scalers + b0, 4 * frame->n_scalers);
    frame->payload_bytes = at;
    return GW_OK;
}

gw_status ternary_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw, uint8_t *dst,
                         struct gw_frame *frame)
{
    const struct ternary_state *state = encoder->state;
    const float *scalers = shared && options_of(encoder)->share == SHARE_ON ? shared : state->own;
    uint64_t b0 = frame->bucket ? frame->begin / frame->bucket : 0;
    for (uint64_t b = b0; b < b0 + frame->n_scalers && b < state->n_scalers; b++)
        if (!(scalers[b] >= state->own[b]) || !isfinite(scalers[b]))
            return gw_fail(GW_ERR_ARGUMENT, "tensor '%s': the given scaler %g is below this worker's own, %g; it must be the maximum over workers",
                           encoder->name, (double)scalers[b], (double)state->own[b]);
    return encode(encoder, g, scalers, draw, false, dst, frame);
}

bool ternary_can_fuse(const gw_encoder *encoder)
{
    uint32_t bucket = ternary_bucket(encoder);
    return bucket && GW_CHUNK % bucket == 0;
}

gw_status ternary_measure_encode(gw_encoder *encoder, const float *g, const gw_draw *draw, uint8_t *dst,
                                 struct gw_frame *frame, gw_measure *info)
{
    struct ternary_state *state = encoder->state;
    GW_TRY(encode(encoder, g, state->own, draw, true, dst, frame));
    sum_up(encoder, g, info);
    return GW_OK;
}
