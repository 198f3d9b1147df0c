/* onebit sends one sign bit an element and two means, with error feedback (1-bit SGD: Seide et al., "1-Bit Stochastic
 * Gradient Descent and its Application to Data-Parallel Distributed Training of Speech DNNs", Interspeech 2014).
 *
 * a = g + residual. A bucket's non-negative elements are sent as their mean p, its negative ones as their mean -m: the
 * two values with the least squared error for these bits. What was not sent stays in the residual. The paper has two
 * means for each column of a matrix. A codec knows no columns, so a bucket is a run of elements; docs/design.md has
 * what its length costs.
 *
 * One pass over memory measures. The residual that follows needs the means of all of a bucket. So it is not written
 * then: a is, the means are kept beside it, and the next step subtracts what its sign says was sent. */
#include "base/clones.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "codec/codec.h"
#include "codec/measure.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <stddef.h>

struct onebit_options {
    uint64_t bucket;
    struct gw_momentum_options momentum;
};

/* The two values of a bucket's elements as they are sent. */
struct pair {
    float positive, negative; /* p; -m */
};

/* Sums over the elements of a run, as in measure.h. `positive` is of the non-negative elements, `negative` of the
 * negative ones; the others count as 0. */
struct sums {
    struct gw_stats positive, negative;
    uint64_t n_negative;
};

/* The residual still contains what was sent; settle takes that out. Its notes are a pair for each bucket. */
struct onebit_state {
    struct sums *runs;          /* while measuring */
    uint64_t n_buckets, n_runs; /* n_runs: of one bucket */
};

static uint32_t bucket_of(const gw_encoder *encoder)
{
    return (uint32_t)((const struct onebit_options *)encoder->options)->bucket;
}

static uint64_t bucket_elems(const gw_encoder *encoder)
{
    uint32_t bucket = bucket_of(encoder);
    return bucket ? bucket : encoder->tensor.n_elems;
}

static void onebit_close(gw_encoder *encoder)
{
    struct onebit_state *s = encoder->state;
    gw_free(encoder->context, s->runs);
}

static gw_status onebit_open(gw_encoder *encoder)
{
    struct onebit_state *s = encoder->state;
    s->n_buckets = gw_n_buckets(bucket_of(encoder), encoder->tensor.n_elems);
    s->n_runs = gw_div_up(bucket_elems(encoder), GW_CHUNK);
    s->runs = gw_alloc(encoder->context, s->n_buckets * s->n_runs, sizeof *s->runs);
    return s->runs ? GW_OK : GW_ERR_MEMORY;
}

static size_t onebit_sent_bytes(const gw_encoder *encoder)
{
    return gw_n_buckets(bucket_of(encoder), encoder->tensor.n_elems) * sizeof(struct pair);
}

/* ---- measure --------------------------------------------------------------------------------- */

/* The elements of a block, split by their signs. */
struct split {
    float positive[GW_STATS_BLOCK], negative[GW_STATS_BLOCK];
    uint32_t n_negative;
};

/* What is left of an element after the step before. */
static inline float left_of(float before, struct pair sent)
{
    return before - (before < 0 ? sent.negative : sent.positive);
}

GW_CLONES static void split_block(const float *restrict before, struct pair sent, const float *restrict g, uint64_t n,
                                  float *restrict next, struct split *restrict out)
{
    uint32_t n_negative = 0;
    for (uint64_t i = 0; i < n; i++) {
        float a = g[i] + left_of(before[i], sent);
        next[i] = a;
        out->positive[i] = a < 0 ? 0 : a;
        out->negative[i] = a < 0 ? a : 0;
        n_negative += a < 0;
    }
    out->n_negative = n_negative;
}

static struct sums measure_run(const float *before, struct pair sent, const float *g, uint64_t n, float *next)
{
    struct sums sums = {0};
    for (uint64_t i = 0; i < n; i += GW_STATS_BLOCK) {
        uint32_t m = n - i < GW_STATS_BLOCK ? (uint32_t)(n - i) : GW_STATS_BLOCK;
        struct split split;
        split_block(before + i, sent, g + i, m, next + i, &split);
        struct gw_stats positive = gw_stats_block(split.positive, m), negative = gw_stats_block(split.negative, m);
        gw_stats_add(&sums.positive, &positive);
        gw_stats_add(&sums.negative, &negative);
        sums.n_negative += split.n_negative;
    }
    return sums;
}

struct measuring {
    const gw_encoder *encoder;
    const float *g;
    uint64_t n_together; /* how many runs one call measures */
};

/* A run is at most GW_CHUNK elements of one bucket, counted from the bucket's begin. One call measures several short
 * runs. */
static void measure_runs(uint64_t i, uint32_t slot, void *user)
{
    (void)slot;
    const struct measuring *m = user;
    struct onebit_state *s = m->encoder->state;
    const struct gw_residual *residual = &m->encoder->residual;
    const struct pair *sent = gw_residual_sent(residual);
    uint64_t n = m->encoder->tensor.n_elems, elems = bucket_elems(m->encoder), n_all = s->n_buckets * s->n_runs,
             last = n_all - i * m->n_together < m->n_together ? n_all : (i + 1) * m->n_together;
    for (uint64_t run = i * m->n_together; run < last; run++) {
        uint64_t b = run / s->n_runs, begin = b * elems + run % s->n_runs * GW_CHUNK, end = (b + 1) * elems;
        end = end < n ? end : n;
        end = end < begin ? begin : end; /* a short last bucket may not have this run */
        s->runs[run] = measure_run(gw_residual_now(residual) + begin, sent[b], m->g + begin,
                                   end - begin < GW_CHUNK ? end - begin : GW_CHUNK, gw_residual_next(residual) + begin);
    }
}

/* Subtracts from the residual what was sent. Only then it is what its name says. */
static void settle(const gw_encoder *encoder)
{
    const struct onebit_state *s = encoder->state;
    float *now = gw_residual_now(&encoder->residual);
    struct pair *sent = gw_residual_sent(&encoder->residual);
    uint64_t elems = bucket_elems(encoder), n = encoder->tensor.n_elems;
    for (uint64_t b = 0; b < s->n_buckets; b++) {
        for (uint64_t i = b * elems; i < n && i < (b + 1) * elems; i++)
            now[i] = left_of(now[i], sent[b]);
        sent[b] = (struct pair){0, 0};
    }
}

static gw_status onebit_measure(gw_encoder *encoder, const float *g, float *shared, gw_measure *info)
{
    struct onebit_state *s = encoder->state;
    uint64_t elems = bucket_elems(encoder), n = encoder->tensor.n_elems;
    (void)shared;
    struct measuring m = {.encoder = encoder, .g = g, .n_together = elems && elems < GW_CHUNK ? GW_CHUNK / elems : 1};
    gw_parallel_for(encoder->context, gw_div_up(s->n_buckets * s->n_runs, m.n_together), measure_runs, &m);
    uint32_t max_bits = 0;
    for (uint64_t b = 0; b < s->n_buckets; b++) {
        struct sums total = {0};
        for (uint64_t r = b * s->n_runs; r < (b + 1) * s->n_runs; r++) {
            gw_stats_add(&total.positive, &s->runs[r].positive);
            gw_stats_add(&total.negative, &s->runs[r].negative);
            total.n_negative += s->runs[r].n_negative;
        }
        uint64_t n_here = n - b * elems < elems ? n - b * elems : elems, n_positive = n_here - total.n_negative;
        struct pair *sent = (struct pair *)gw_residual_sent_next(&encoder->residual) + b;
        sent->positive = n_positive ? (float)(total.positive.sum / (double)n_positive) : 0;
        sent->negative = total.n_negative ? (float)(total.negative.sum / (double)total.n_negative) : -0.0f;
        max_bits = total.positive.max_bits > max_bits ? total.positive.max_bits : max_bits;
        max_bits = total.negative.max_bits > max_bits ? total.negative.max_bits : max_bits;
    }
    if (max_bits < 0x7F800000u) {
        info->max_abs = (double)gw_bits_float(max_bits);
    } else {
        settle(encoder);
        *info = (gw_measure){.finite = false, .bad_index = gw_residual_find_bad(&encoder->residual, g)};
    }
    return GW_OK;
}

/* ---- encode ---------------------------------------------------------------------------------- */

static size_t payload_bytes(uint64_t n)
{
    return (size_t)gw_div_up(n, 8);
}

static size_t payload_bound(const gw_encoder *encoder, uint64_t n_elems)
{
    (void)encoder;
    return payload_bytes(n_elems);
}

GW_CLONES static void put_signs(const float *a, uint64_t n, uint8_t *dst)
{
    uint64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        uint32_t word = 0;
        for (uint32_t j = 0; j < 32; j++)
            word |= a[i + j] < 0 ? 1u << j : 0;
        gw_put32(dst + i / 8, word);
    }
    for (; i < n; i++) {
        if (i % 8 == 0)
            dst[i / 8] = 0;
        dst[i / 8] |= (uint8_t)((a[i] < 0) << i % 8);
    }
}

struct encoding {
    const float *a; /* a = g + residual, of the slice */
    uint64_t n;
    uint8_t *payload;
};

static void encode_chunk(uint64_t c, uint32_t slot, void *user)
{
    (void)slot;
    const struct encoding *e = user;
    uint64_t at = c * GW_CHUNK;
    put_signs(e->a + at, e->n - at < GW_CHUNK ? e->n - at : GW_CHUNK, e->payload + at / 8);
}

static gw_status onebit_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw,
                               uint8_t *dst, struct gw_frame *frame)
{
    (void)g;
    (void)shared;
    (void)draw;
    const struct pair *sent = gw_residual_sent_next(&encoder->residual);
    sent += frame->bucket ? frame->begin / frame->bucket : 0;
    for (uint64_t b = 0; b < frame->n_scalers / 2; b++) {
        gw_put_float(dst + GW_HEADER_BYTES + 8 * b, sent[b].positive);
        gw_put_float(dst + GW_HEADER_BYTES + 8 * b + 4, -sent[b].negative);
    }
    struct encoding e = {.a = gw_residual_next(&encoder->residual) + frame->begin,
                         .n = frame->count,
                         .payload = dst + gw_frame_head_bytes(frame->n_scalers)};
    gw_parallel_for(encoder->context, gw_div_up(e.n, GW_CHUNK), encode_chunk, &e);
    frame->payload_bytes = payload_bytes(e.n);
    return GW_OK;
}

/* ---- between steps --------------------------------------------------------------------------- */

static bool onebit_rest(gw_encoder *encoder)
{
    const struct onebit_state *s = encoder->state;
    struct pair *sent = gw_residual_sent_next(&encoder->residual);
    memset(gw_residual_next(&encoder->residual), 0, encoder->tensor.n_elems * sizeof(float));
    for (uint64_t b = 0; b < s->n_buckets; b++)
        sent[b] = (struct pair){0, -0.0f};
    return true;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static uint64_t n_scalers(uint32_t bucket, uint64_t count)
{
    return 2 * gw_n_buckets(bucket, count);
}

static gw_status check_frame(const struct gw_frame *frame)
{
    if (frame->flags & ~GW_FLAG_FAST)
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "a onebit frame has flags 0x%02x; it may have 0x%02x only, and its average is of codec none",
                       frame->flags, GW_FLAG_FAST);
    if (frame->payload_bytes != payload_bytes(frame->count))
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a onebit frame of %llu elements has %zu payload bytes, not %zu",
                       (unsigned long long)frame->count, frame->payload_bytes, payload_bytes(frame->count));
    if (frame->count % 8 && frame->payload[frame->payload_bytes - 1] >> frame->count % 8)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "the padding of a onebit frame is not 0");
    return GW_OK;
}

static bool is_negative(const uint8_t *bits, uint64_t i)
{
    return bits[i / 8] >> i % 8 & 1;
}

GW_CLONES static void set_words(const uint8_t *bits, uint64_t n_words, struct pair pair, float *out)
{
    for (uint64_t w = 0; w < n_words; w++) {
        uint32_t word = gw_get32(bits + 4 * w);
        for (uint32_t j = 0; j < 32; j++)
            out[32 * w + j] = word & 1u << j ? pair.negative : pair.positive;
    }
}

GW_CLONES static void add_words(const uint8_t *bits, uint64_t n_words, struct pair pair, float *out)
{
    for (uint64_t w = 0; w < n_words; w++) {
        uint32_t word = gw_get32(bits + 4 * w);
        for (uint32_t j = 0; j < 32; j++)
            out[32 * w + j] += word & 1u << j ? pair.negative : pair.positive;
    }
}

/* Sets out[0..n) to the values of elements begin.. of one bucket, or adds them. */
static void expand_piece(const uint8_t *bits, uint64_t begin, uint64_t n, struct pair pair, bool add, float *out)
{
    uint64_t i = 0, whole;
    for (; i < n && (begin + i) % 32; i++)
        out[i] = (add ? out[i] : -0.0f) + (is_negative(bits, begin + i) ? pair.negative : pair.positive);
    whole = (n - i) / 32;
    (add ? add_words : set_words)(bits + (begin + i) / 8, whole, pair, out + i);
    for (i += 32 * whole; i < n; i++)
        out[i] = (add ? out[i] : -0.0f) + (is_negative(bits, begin + i) ? pair.negative : pair.positive);
}

static struct pair pair_of(const struct gw_frame *frame, uint64_t b)
{
    return (struct pair){gw_get_float(frame->scalers + 8 * b), -gw_get_float(frame->scalers + 8 * b + 4)};
}

/* How many of the n elements from `begin` on are in the bucket of the first. */
static uint64_t piece_elems(const struct gw_frame *frame, uint64_t begin, uint64_t n)
{
    uint64_t left = frame->bucket ? frame->bucket - begin % frame->bucket : n;
    return left < n ? left : n;
}

static void expand(const struct gw_frame *frame, uint64_t begin, uint64_t n, bool add, float *out)
{
    for (uint64_t end = begin + n; begin < end;) {
        uint64_t m = piece_elems(frame, begin, end - begin);
        expand_piece(frame->payload, begin, m, pair_of(frame, frame->bucket ? begin / frame->bucket : 0), add, out);
        begin += m;
        out += m;
    }
}

static gw_status decode(gw_context *context, const struct gw_frame *frame, float *out)
{
    (void)context;
    expand(frame, 0, frame->count, false, out);
    return GW_OK;
}

static gw_status symbols(gw_context *context, const struct gw_frame *frame, uint64_t *counts)
{
    (void)context;
    for (uint64_t i = 0; i < frame->count;) {
        uint64_t m = piece_elems(frame, i, frame->count - i), n_negative = 0;
        struct pair pair = pair_of(frame, frame->bucket ? i / frame->bucket : 0);
        for (uint64_t end = i + m; i < end; i++)
            n_negative += is_negative(frame->payload, i);
        counts[frame->workers - (pair.negative < 0)] += n_negative;
        counts[frame->workers + (pair.positive > 0)] += m - n_negative;
    }
    return GW_OK;
}

static size_t reduce_bound(const struct gw_frame *first, uint32_t workers)
{
    (void)workers;
    return GW_HEADER_BYTES + 4 * (size_t)first->count;
}

/* So many elements are added at a time. They stay in the nearest cache. */
#define BLOCK 1024

static gw_status reduce(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options,
                        uint8_t *dst, struct gw_frame *average)
{
    (void)context;
    (void)options;
    float sum[BLOCK];
    struct gw_hash_state hash;
    gw_hash_now()->begin(&hash, GW_BODY_SEED);
    for (uint64_t i = 0; i < average->count; i += BLOCK) {
        uint64_t m = average->count - i < BLOCK ? average->count - i : BLOCK;
        for (uint32_t r = 0; r < n; r++)
            expand(&frames[r], i, m, r > 0, sum);
        for (uint64_t j = 0; n > 1 && j < m; j++)
            sum[j] /= (float)n;
        memcpy(dst + GW_HEADER_BYTES + 4 * i, sum, 4 * m);
        gw_hash_now()->add(&hash, (const uint8_t *)sum, 4 * m);
    }
    average->codec = GW_WIRE_NONE;
    average->bucket = 0;
    average->n_scalers = 0;
    average->payload_bytes = 4 * (size_t)average->count;
    gw_frame_seal_with(dst, average, gw_hash_now()->end(&hash));
    return GW_OK;
}

/* ---- options --------------------------------------------------------------------------------- */

static const gw_codec_option options[] = {
    {"bucket", "512", "0 to 2^30; 0: the whole tensor", "elements that share their two means"},
    GW_MOMENTUM_OPTIONS,
};

static const struct gw_option_rule rules[] = {
    {GW_OPTION_COUNT, offsetof(struct onebit_options, bucket), 0, 1 << 30, NULL},
    GW_MOMENTUM_RULES(offsetof(struct onebit_options, momentum)),
};

static const char *const examples[] = {"onebit", "onebit:bucket=0", "onebit:bucket=100,momentum=0.9,output=velocity",
                                       NULL};

const struct gw_codec_record gw_codec_onebit = {
    .info = {.name = "onebit",
             .summary = "a sign bit for each element and two means; the rest waits in a residual",
             .source = "1-bit SGD: Seide et al., Interspeech 2014",
             .options = options,
             .n_options = sizeof options / sizeof *options,
             .losses = gw_losses_onebit,
             .examples = examples,
             .wire_id = GW_WIRE_ONEBIT,
             .lossy = true},
    .rules = rules,
    .options_bytes = sizeof(struct onebit_options),
    .momentum_at = offsetof(struct onebit_options, momentum),
    .state_bytes = sizeof(struct onebit_state),
    .open = onebit_open,
    .close = onebit_close,
    .bucket = bucket_of,
    .payload_bound = payload_bound,
    .measure = onebit_measure,
    .encode = onebit_encode,
    .settle = settle,
    .sent_bytes = onebit_sent_bytes,
    .rest = onebit_rest,
};

static const char *const code_names[] = {"signs", NULL};

const struct gw_wire_codec gw_wire_onebit = {
    .name = "onebit",
    .id = GW_WIRE_ONEBIT,
    .code_names = code_names,
    .n_scalers = n_scalers,
    .check_frame = check_frame,
    .decode = decode,
    .symbols = symbols,
    .reduce_bound = reduce_bound,
    .reduce = reduce,
    .codes_symbols = true,
    .always_finite = true,
};
