/* Sparse frames after the wire: checks, decoding, and the owner's sum: float32 in rank order, divided by N once. The average is
 * sparse too, or dense where that is smaller. */
#include "base/error.h"
#include "base/memory.h"
#include "codec/kernels.h"
#include "codec/select_kernels.h"
#include "codec/sparse/sparse.h"
#include "wire/bytes.h"

#include <math.h>

static gw_status check_frame(const struct gw_frame *frame)
{
    bool average = frame->flags & GW_FLAG_AVERAGE, gspar = frame->codec == GW_WIRE_GSPAR;
    if (frame->flags & ~GW_FLAG_AVERAGE || frame->bucket)
        return gw_fail(GW_ERR_FRAME_FIELD, "a sparse frame has flags 0x%02x and bucket %u; it has neither", frame->flags, frame->bucket);
    if (average && (gspar || frame->code != GW_VALUE_F32))
        return gw_fail(GW_ERR_FRAME_FIELD, "an average has %s values; it has f32 values of codec sparse",
                       gspar ? "gspar's" : frame->code == GW_VALUE_BF16 ? "bf16" : "f16");
    if (gspar) {
        float q = gw_get_float(frame->scalers);
        if (!(q >= 0) || !isfinite(q))
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "the slope of a gspar frame is %g; it must be finite and not negative", (double)q);
    }
    uint64_t n_chunks = gw_sparse_n_chunks(frame), total = 0;
    if (n_chunks > 1) {
        if (frame->payload_bytes / 4 < n_chunks)
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "the payload has %zu bytes; the sizes of %llu chunks alone take more",
                           frame->payload_bytes, (unsigned long long)n_chunks);
        total = 4 * n_chunks;
        for (uint64_t c = 0; c < n_chunks; c++)
            total += gw_get32(frame->payload + 4 * c);
    } else {
        total = n_chunks ? frame->payload_bytes : 0;
    }
    if (total != frame->payload_bytes)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "the payload has %zu bytes; its chunks take %llu", frame->payload_bytes,
                       (unsigned long long)total);
    return GW_OK;
}

/* Calls body for every bit of `words`, with its number in `i`. */
#define FOR_EACH_BIT(words, n_words, i, body)                                                   \
    do {                                                                                        \
        for (uint32_t w_ = 0; w_ < (n_words); w_++)                                             \
            for (uint64_t bits_ = (words)[w_]; bits_; bits_ &= bits_ - 1) {                     \
                uint32_t i = 64 * w_ + (uint32_t)__builtin_ctzll(bits_);                        \
                body                                                                            \
            }                                                                                   \
    } while (0)

/* Reads all chunks in order and shows each. */
static gw_status each_chunk(gw_context *context, const struct gw_frame *frame,
                            void (*show)(const struct gw_frame *, uint64_t c, const struct gw_sparse_chunk *, void *user), void *user)
{
    struct gw_sparse_scratch *scratch;
    GW_TRY(gw_sparse_scratch_create(context, &scratch));
    gw_status status = GW_OK;
    size_t at = 0;
    for (uint64_t c = 0, n_chunks = gw_sparse_n_chunks(frame); c < n_chunks && status == GW_OK; c++) {
        struct gw_sparse_chunk chunk;
        size_t begin = gw_sparse_chunk_begin(frame, c, &at);
        status = gw_sparse_read(frame, c, begin, at, scratch, &chunk);
        if (status == GW_OK)
            show(frame, c, &chunk, user);
    }
    gw_sparse_scratch_destroy(context, scratch);
    return status;
}

static float slope_of(const struct gw_frame *frame)
{
    return frame->codec == GW_WIRE_GSPAR ? gw_get_float(frame->scalers) : 0;
}

static void expand(const struct gw_frame *frame, uint64_t c, const struct gw_sparse_chunk *chunk, void *user)
{
    float *out = (float *)user + c * GW_SPARSE_CHUNK;
    if (!chunk->exact) {
        gw_select_kernels_now()->expand(chunk->kept, chunk->n, chunk->values, chunk->n_values, false, out);
        return;
    }
    gw_kernels_now()->expand(chunk->kept, chunk->negative, chunk->n, slope_of(frame), false, out);
    const float *value = chunk->values;
    FOR_EACH_BIT(chunk->exact, (chunk->n + 63) / 64, i, out[i] = *value++;);
}

static gw_status decode(gw_context *context, const struct gw_frame *frame, float *out)
{
    return each_chunk(context, frame, expand, out);
}

static void count_signs(const struct gw_frame *frame, uint64_t c, const struct gw_sparse_chunk *chunk, void *user)
{
    uint64_t *counts = (uint64_t *)user + frame->workers, signs[3] = {0, 0, 0};
    (void)c;
    for (uint32_t i = 0; i < chunk->n_values; i++) {
        float x = chunk->values[i];
        signs[1 + (x > 0) - (x < 0)]++;
    }
    if (chunk->exact && slope_of(frame) > 0) {
        uint64_t negative = gw_kernels_now()->count(chunk->negative, (chunk->n + 63) / 64);
        signs[0] += negative;
        signs[2] += chunk->n_kept - chunk->n_values - negative;
    }
    counts[-1] += signs[0];
    counts[0] += chunk->n - signs[0] - signs[2];
    counts[1] += signs[2];
}

static gw_status symbols(gw_context *context, const struct gw_frame *frame, uint64_t *counts)
{
    return each_chunk(context, frame, count_signs, counts);
}

static void add_parts(const struct gw_frame *frame, uint64_t c, const struct gw_sparse_chunk *chunk, void *user)
{
    gw_frame_parts *out = user;
    (void)frame;
    (void)c;
    out->n_sent += chunk->n_kept;
    out->n_values += chunk->n_values;
    out->position_bits += chunk->position_bits;
    out->sign_bits += chunk->sign_bits;
    out->value_bits += 8 * (uint64_t)chunk->value_bytes;
}

static gw_status parts(gw_context *context, const struct gw_frame *frame, gw_frame_parts *out)
{
    return each_chunk(context, frame, add_parts, out);
}

/* ---- the owner's sum ------------------------------------------------------------------------- */

struct summing {
    const struct gw_frame *frames;
    uint32_t n_frames;
    size_t *ends;                          /* where the last chunk of each frame ended */
    struct gw_sparse_scratch *scratch;
    float sum[GW_SPARSE_CHUNK];            /* 0 between chunks */
    uint64_t kept[GW_SPARSE_WORDS];        /* of the average */
    float values[GW_SPARSE_CHUNK];
};

static void add(struct summing *s, const struct gw_frame *frame, const struct gw_sparse_chunk *chunk)
{
    uint32_t n_words = (chunk->n + 63) / 64;
    if (!chunk->exact) {
        gw_select_kernels_now()->add(chunk->kept, chunk->n, chunk->values, chunk->n_values, s->sum);
    } else {
        float q = slope_of(frame);
        const float *value = chunk->values;
        FOR_EACH_BIT(chunk->kept, n_words, i, {
            uint64_t bit = 1ull << (i % 64);
            s->sum[i] += chunk->exact[i / 64] & bit ? *value++ : chunk->negative[i / 64] & bit ? -q : q;
        });
    }
    for (uint32_t w = 0; w < n_words; w++)
        s->kept[w] |= chunk->kept[w];
}

/* Averages chunk c: the bitmap of elements that are not 0, and their values. Returns how many. */
static gw_status average_chunk(struct summing *s, uint64_t c, uint32_t *n_kept)
{
    struct gw_sparse_chunk chunk = {.n = 0};
    memset(s->kept, 0, sizeof s->kept);
    gw_status status = GW_OK;
    for (uint32_t r = 0; r < s->n_frames && status == GW_OK; r++) {
        const struct gw_frame *frame = &s->frames[r];
        size_t begin = gw_sparse_chunk_begin(frame, c, &s->ends[r]);
        status = gw_sparse_read(frame, c, begin, s->ends[r], s->scratch, &chunk);
        if (status == GW_OK)
            add(s, frame, &chunk);
    }
    uint32_t n = 0;
    float divisor = (float)s->n_frames;
    FOR_EACH_BIT(s->kept, GW_SPARSE_WORDS, i, {
        float mean = s->n_frames > 1 ? s->sum[i] / divisor : s->sum[i];
        s->sum[i] = 0;
        s->values[n] = mean;
        n += mean != 0; /* what cancelled is not sent */
        s->kept[i / 64] ^= (uint64_t)(mean == 0) << (i % 64);
    });
    *n_kept = n;
    return status;
}

/* One chunk's average after the other: dense where `dense`, else sparse. *fits false: sparse is not smaller than dense. */
static gw_status write_average(struct summing *s, bool dense, uint8_t *dst, struct gw_frame *average, bool *fits)
{
    uint64_t n_chunks = gw_sparse_n_chunks(average);
    uint8_t *payload = dst + GW_HEADER_BYTES;
    size_t at = n_chunks > 1 ? 4 * n_chunks : 0, most = 4 * (size_t)average->count;
    *fits = true;
    for (uint64_t c = 0; c < n_chunks; c++) {
        uint32_t n_kept;
        GW_TRY(average_chunk(s, c, &n_kept));
        uint64_t left = average->count - c * GW_SPARSE_CHUNK, n = left < GW_SPARSE_CHUNK ? left : GW_SPARSE_CHUNK;
        if (dense) {
            uint8_t *out = payload + 4 * c * GW_SPARSE_CHUNK;
            uint32_t next = 0;
            memset(out, 0, 4 * n);
            FOR_EACH_BIT(s->kept, GW_SPARSE_WORDS, i, gw_put_float(out + 4 * (size_t)i, s->values[next++]););
            continue;
        }
        /* Written as a frame of this chunk alone, in a place that may be larger than what is left: the bound has a chunk more. */
        struct gw_frame one = {.codec = GW_WIRE_SPARSE, .code = GW_VALUE_F32, .count = n};
        if (at + 4 * (size_t)n_kept >= most) {
            *fits = false;
            return GW_OK;
        }
        gw_sparse_write(&(struct gw_sparse_source){.kept = s->kept, .values = s->values}, s->scratch,
                        payload + at - GW_HEADER_BYTES, &one);
        if (n_chunks > 1)
            gw_put32(payload + 4 * c, (uint32_t)one.payload_bytes);
        at += one.payload_bytes;
        if (at >= most) {
            *fits = false;
            return GW_OK;
        }
    }
    average->payload_bytes = dense ? most : at;
    return GW_OK;
}

static size_t reduce_bound(const struct gw_frame *first, uint32_t n)
{
    (void)n;
    uint64_t chunk = first->count < GW_SPARSE_CHUNK ? first->count : GW_SPARSE_CHUNK;
    return GW_HEADER_BYTES + 4 * (size_t)first->count + 4 * (size_t)gw_sparse_n_chunks(first) + gw_sparse_bound(GW_WIRE_SPARSE, chunk);
}

static gw_status reduce(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options, uint8_t *dst,
                        struct gw_frame *average)
{
    (void)options;
    struct summing *s = gw_calloc(context, 1, sizeof *s);
    if (!s)
        return GW_ERR_MEMORY;
    *average = (struct gw_frame){.codec = GW_WIRE_SPARSE, .code = GW_VALUE_F32, .flags = GW_FLAG_AVERAGE, .workers = n,
                                 .tensor_id = average->tensor_id, .step = average->step, .begin = average->begin,
                                 .count = average->count};
    s->frames = frames;
    s->n_frames = n;
    s->ends = gw_alloc(context, n, sizeof *s->ends);
    gw_status status = s->ends ? gw_sparse_scratch_create(context, &s->scratch) : GW_ERR_MEMORY;
    bool fits = true;
    if (status == GW_OK)
        status = write_average(s, false, dst, average, &fits);
    if (status == GW_OK && !fits) {
        average->codec = GW_WIRE_NONE;
        status = write_average(s, true, dst, average, &fits);
    }
    gw_sparse_scratch_destroy(context, s->scratch);
    gw_free(context, s->ends);
    gw_free(context, s);
    return status;
}

static const char *const sparse_codes[] = {"f32", "bf16", "f16", NULL}, *const gspar_codes[] = {"parts", NULL};

#define SPARSE_RECORD(variable, text, number, codes)                                                                      \
    const struct gw_codec_record variable = {.info = {.name = text, .wire_id = number, .lossy = true}, .code_names = codes, \
                                             .check_frame = check_frame, .decode = decode, .symbols = symbols, .parts = parts, \
                                             .reduce_bound = reduce_bound, .reduce = reduce}

SPARSE_RECORD(gw_frames_sparse, "sparse", GW_WIRE_SPARSE, sparse_codes);
SPARSE_RECORD(gw_frames_gspar, "gspar", GW_WIRE_GSPAR, gspar_codes);
