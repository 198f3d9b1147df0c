/* Sparse frames after the wire: checks, decoding, and the owner's sum. The owner adds float32 in rank order and
 * divides by N once; what gspar's workers send as +-q with a q that they share it adds up in integers. The average is
 * sparse, or dense if that is smaller. */
#include "codec/parts.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "base/threads.h"
#include "codec/kernels.h"
#include "codec/select_kernels.h"
#include "codec/sparse/sparse.h"
#include "codec/sparse/values.h"
#include "wire/bytes.h"

#include <math.h>

/* From this length on, decoded floats are stored around the cache. Nobody reads them soon: by then the network's other
 * tensors have passed through the cache. */
#define STREAM_ELEMENTS (128u << 10)

static gw_status check_frame(const struct gw_frame *frame)
{
    bool average = frame->flags & GW_FLAG_AVERAGE, gspar = frame->codec == GW_WIRE_GSPAR;
    const uint8_t own = gspar && !average ? GW_FLAG_PRIVATE : GW_FLAG_AVERAGE;
    if (frame->flags & ~(own | GW_FLAG_FAST) || frame->bucket)
        return gw_fail(GW_ERR_FRAME_FIELD, "a sparse frame has flags 0x%02x and bucket %u; it has neither",
                       frame->flags, frame->bucket);
    if (average && frame->code != GW_VALUE_F32)
        return gw_fail(GW_ERR_FRAME_FIELD, "an average has %s values; it has f32 values",
                       frame->code == GW_VALUE_BF16 ? "bf16" : "f16");
    if (average && gspar && frame->workers > GW_SPARSE_LEVELS_MAX_WORKERS)
        return gw_fail(GW_ERR_FRAME_FIELD, "a gspar average is of %u workers; at most %d are possible", frame->workers,
                       GW_SPARSE_LEVELS_MAX_WORKERS);
    uint64_t n_chunks = gw_sparse_n_chunks(frame), total = gw_sparse_table_bytes(frame);
    if (n_chunks > 1) {
        if (frame->payload_bytes / 4 < n_chunks)
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "the payload has %zu bytes; the sizes of %llu chunks alone take more",
                           frame->payload_bytes, (unsigned long long)n_chunks);
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

/* Runs body for every bit that is set in `words`. `i` is its number. */
#define FOR_EACH_BIT(words, n_words, i, body)                                                                          \
    do {                                                                                                               \
        for (uint32_t w_ = 0; w_ < (n_words); w_++)                                                                    \
            for (uint64_t bits_ = (words)[w_]; bits_; bits_ &= bits_ - 1) {                                            \
                uint32_t i = 64 * w_ + (uint32_t)__builtin_ctzll(bits_);                                               \
                body                                                                                                   \
            }                                                                                                          \
    } while (0)

/* ---- reading on the context's threads ---------------------------------------------------------------- */

struct readers {
    gw_context *context;
    const struct gw_frame *frames;
    uint32_t n_frames, n_slots;
    size_t **offsets;                   /* of each frame */
    struct gw_sparse_scratch **scratch; /* of each slot */
};

static void readers_fini(struct readers *readers)
{
    for (uint32_t i = 0; readers->offsets && i < readers->n_frames; i++)
        gw_free(readers->context, readers->offsets[i]);
    for (uint32_t i = 0; readers->scratch && i < readers->n_slots; i++)
        gw_sparse_scratch_destroy(readers->context, readers->scratch[i]);
    gw_free(readers->context, readers->offsets);
    gw_free(readers->context, readers->scratch);
}

/* True if the frame holds sums of signs. */
static bool has_levels(const struct gw_frame *frame)
{
    return frame->codec == GW_WIRE_GSPAR && frame->flags & GW_FLAG_AVERAGE;
}

/* sum_workers: how many workers the sums have that are read or written; 0: there are no sums. writes: averages are
 * written, too. Call readers_fini after it, also after an error. */
static gw_status readers_init(struct readers *readers, gw_context *context, const struct gw_frame *frames,
                              uint32_t n_frames, uint32_t sum_workers, bool writes)
{
    *readers = (struct readers){.context = context, .frames = frames, .n_frames = n_frames};
    readers->n_slots = gw_sparse_n_chunks(frames) > 1 ? gw_thread_count(context) : 1;
    readers->offsets = gw_calloc(context, n_frames, sizeof *readers->offsets);
    readers->scratch = gw_calloc(context, readers->n_slots, sizeof *readers->scratch);
    if (!readers->offsets || !readers->scratch)
        return GW_ERR_MEMORY;
    for (uint32_t i = 0; i < n_frames; i++) {
        readers->offsets[i] = gw_sparse_offsets(context, &frames[i]);
        if (!readers->offsets[i])
            return GW_ERR_MEMORY;
    }
    for (uint32_t i = 0; i < readers->n_slots; i++)
        GW_TRY(gw_sparse_scratch_create(context, sum_workers, writes, &readers->scratch[i]));
    return GW_OK;
}

static struct gw_sparse_place place_of(const struct readers *readers, uint32_t r, uint64_t c)
{
    return (struct gw_sparse_place){&readers->frames[r], c, readers->offsets[r][c], readers->offsets[r][c + 1]};
}

/* Reads chunk c of frame r. The caller must read chunk c of the frames in order, from frame 0 on. */
static gw_status read_chunk(const struct readers *readers, uint32_t r, uint64_t c, uint32_t slot,
                            struct gw_sparse_chunk *chunk)
{
    const uint32_t i = r % GW_RANS_TOGETHER, left = readers->n_frames - r;
    if (i == 0) {
        struct gw_sparse_place places[GW_RANS_TOGETHER];
        const uint32_t n = left < GW_RANS_TOGETHER ? left : GW_RANS_TOGETHER;
        for (uint32_t k = 0; k < n; k++)
            places[k] = place_of(readers, r + k, c);
        GW_TRY(gw_sparse_begin(places, n, readers->scratch[slot]));
    }
    return gw_sparse_read(readers->scratch[slot], i, chunk);
}

static float slope_of(const struct gw_frame *frame)
{
    return frame->codec == GW_WIRE_GSPAR ? fabsf(gw_get_float(frame->scalers)) : 0; /* -0 becomes 0 */
}

/* What a sum of signs is multiplied by. It is rounded once. */
static float unit_of(const struct gw_frame *average)
{
    return slope_of(average) / (float)average->workers;
}

struct decoding {
    struct readers readers;
    uint32_t together; /* how many chunks a thread reads at a time */
    float *out;
};

static void expand_chunk(const struct gw_frame *frame, const struct gw_sparse_chunk *chunk, float *out)
{
    if (!chunk->exact) {
        gw_select_kernels_now()->expand(chunk->kept, chunk->n, chunk->values, chunk->n_values,
                                        frame->count >= STREAM_ELEMENTS, out);
        return;
    }
    if (chunk->levels)
        gw_sparse_levels_expand(chunk->levels, chunk->n, unit_of(frame), out);
    else
        gw_kernels_now()->expand(chunk->kept, chunk->negative, chunk->n, slope_of(frame), false, out);
    const float *value = chunk->values;
    FOR_EACH_BIT(chunk->exact, (chunk->n + 63) / 64, i, out[i] = *value++;);
}

static gw_status decode_chunks(uint64_t item, uint32_t slot, void *user)
{
    struct decoding *decoding = user;
    const struct gw_frame *frame = decoding->readers.frames;
    struct gw_sparse_scratch *scratch = decoding->readers.scratch[slot];
    const uint64_t first = item * decoding->together, left = gw_sparse_n_chunks(frame) - first;
    const uint32_t n = left < decoding->together ? (uint32_t)left : decoding->together;
    struct gw_sparse_place places[GW_RANS_TOGETHER] = {{0}};
    for (uint32_t k = 0; k < n; k++)
        places[k] = place_of(&decoding->readers, 0, first + k);
    GW_TRY(gw_sparse_begin(places, n, scratch));
    for (uint32_t k = 0; k < n; k++) {
        struct gw_sparse_chunk chunk;
        GW_TRY(gw_sparse_read(scratch, k, &chunk));
        expand_chunk(frame, &chunk, decoding->out + (first + k) * GW_SPARSE_CHUNK);
    }
    return GW_OK;
}

static gw_status decode(gw_context *context, const struct gw_frame *frame, float *out)
{
    struct decoding decoding = {.out = out};
    gw_status status =
        readers_init(&decoding.readers, context, frame, 1, has_levels(frame) ? frame->workers : 0, false);
    if (status == GW_OK) {
        /* so that each thread gets some chunks */
        const uint64_t n_chunks = gw_sparse_n_chunks(frame), each = n_chunks / decoding.readers.n_slots;
        decoding.together = each < 1 ? 1 : each < GW_RANS_TOGETHER ? (uint32_t)each : GW_RANS_TOGETHER;
        status = gw_parallel_try(context, gw_div_up(n_chunks, decoding.together), decode_chunks, &decoding);
    }
    readers_fini(&decoding.readers);
    return status;
}

/* ---- reports ----------------------------------------------------------------------------------------- */

/* Reads all chunks in order, and calls show with each. */
static gw_status each_chunk(gw_context *context, const struct gw_frame *frame,
                            void (*show)(const struct gw_frame *, const struct gw_sparse_chunk *, void *user),
                            void *user)
{
    struct readers readers;
    gw_status status = readers_init(&readers, context, frame, 1, has_levels(frame) ? frame->workers : 0, false);
    for (uint64_t c = 0, n_chunks = gw_sparse_n_chunks(frame); c < n_chunks && status == GW_OK; c++) {
        struct gw_sparse_chunk chunk;
        status = read_chunk(&readers, 0, c, 0, &chunk);
        if (status == GW_OK)
            show(frame, &chunk, user);
    }
    readers_fini(&readers);
    return status;
}

static void count_signs(const struct gw_frame *frame, const struct gw_sparse_chunk *chunk, void *user)
{
    uint64_t *counts = (uint64_t *)user + frame->workers, signs[3] = {0, 0, 0};
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

struct spending {
    gw_frame_parts *out;
    uint64_t *sums;          /* how often each sum occurs; index: sum + workers */
    uint64_t exponents[256]; /* how often each exponent occurs */
};

static void count_sums(const struct gw_frame *frame, const struct gw_sparse_chunk *chunk, uint64_t *sums)
{
    if (!chunk->exact)
        return;
    if (chunk->levels) {
        FOR_EACH_BIT(chunk->rest, (chunk->n + 63) / 64, i,
                     sums[(int32_t)frame->workers + gw_sparse_levels_at(chunk->levels, i)]++;);
        return;
    }
    uint64_t negative = gw_kernels_now()->count(chunk->negative, (chunk->n + 63) / 64);
    sums[0] += negative;
    sums[2] += chunk->n_kept - chunk->n_values - negative;
}

static void add_parts(const struct gw_frame *frame, const struct gw_sparse_chunk *chunk, void *user)
{
    struct spending *spending = user;
    gw_frame_parts *out = spending->out;
    out->n_sent += chunk->n_kept;
    out->n_values += chunk->n_values;
    out->position_bits += chunk->position_bits;
    out->sign_bits += chunk->sign_bits;
    out->value_bits += chunk->value_bits;
    count_sums(frame, chunk, spending->sums);
    for (uint32_t i = 0; i < chunk->n_values; i++)
        spending->exponents[gw_value_exponent(gw_sparse_value_type(frame), chunk->values[i])]++;
}

static gw_status parts(gw_context *context, const struct gw_frame *frame, gw_frame_parts *out, uint64_t *sums)
{
    struct spending spending = {.out = out, .sums = sums};
    GW_TRY(each_chunk(context, frame, add_parts, &spending));
    out->two_parts = frame->codec == GW_WIRE_GSPAR;
    double n = (double)out->n_values;
    out->value_entropy_bits = n * gw_value_rest_bits(gw_sparse_value_type(frame));
    for (uint32_t e = 0; e < 256; e++)
        if (spending.exponents[e])
            out->value_entropy_bits += (double)spending.exponents[e] * log2(n / (double)spending.exponents[e]);
    return GW_OK;
}

/* ---- the owner's sum ------------------------------------------------------------------------- */

/* What one thread adds in. It has room for the largest chunk of the slice, and no more, because most tensors are
 * small. */
struct sum {
    float *sum;     /* it is 0 between chunks */
    uint64_t *kept; /* of the average */
    float *values;
    uint64_t *exact, *negative; /* of the average, if signs are added up; else NULL */
};

struct summing {
    struct readers readers;
    struct sum *sums; /* of each slot */
    const struct gw_frame *average;
    float q, unit;         /* if signs are added up: q of one worker, and unit of the average */
    uint64_t first;        /* the chunk that a wave begins with */
    size_t stride, *sizes; /* sizes: of a wave's chunks */
    uint8_t *wave, *to;    /* chunk first + i goes to: to + i * stride. wave: a wave's bytes, if a wave has several
                            * chunks */
};

static void add(const struct sum *s, const struct gw_frame *frame, const struct gw_sparse_chunk *chunk)
{
    uint32_t n_words = (chunk->n + 63) / 64;
    if (!chunk->exact) {
        gw_select_kernels_now()->add(chunk->kept, chunk->n, chunk->values, chunk->n_values, s->sum);
    } else {
        /* signs are random, so the processor would guess a branch wrong half of the time */
        uint32_t q = gw_float_bits(slope_of(frame));
        for (uint32_t w = 0; w < n_words; w++)
            for (uint64_t bits = chunk->kept[w] & ~chunk->exact[w], negative = chunk->negative[w]; bits;
                 bits &= bits - 1) {
                unsigned j = (unsigned)__builtin_ctzll(bits);
                s->sum[64 * w + j] += gw_bits_float(q | (uint32_t)(negative >> j & 1) << 31);
            }
        const float *value = chunk->values;
        FOR_EACH_BIT(chunk->exact, n_words, i, s->sum[i] += *value++;);
    }
    for (uint32_t w = 0; w < n_words; w++)
        s->kept[w] |= chunk->kept[w];
}

/* Averages the values of the elements of `of`, and takes out of `of` those whose average is 0. */
static void divide(const struct sum *s, uint64_t *of, uint32_t n_words, float divisor)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < n_words; w++) {
        uint64_t cancelled = 0; /* elements whose average is 0; they are not sent */
        for (uint64_t bits = of[w]; bits; bits &= bits - 1) {
            unsigned j = (unsigned)__builtin_ctzll(bits);
            float mean = s->sum[64 * w + j] / divisor;
            s->sum[64 * w + j] = 0;
            s->values[n] = mean;
            n += mean != 0;
            cancelled |= (uint64_t)(mean == 0) << j;
        }
        of[w] ^= cancelled;
    }
}

/* Adds up chunk c of frames that share q. If no worker has sent a value of an element, its signs are added up in
 * integers. Else the sum of its signs becomes a float by one product, and is added to the values. */
static gw_status add_chunk_of_signs(const struct summing *summing, uint64_t c, uint32_t slot)
{
    const struct readers *readers = &summing->readers;
    const struct sum *s = &summing->sums[slot];
    struct gw_sparse_levels *levels = gw_sparse_levels_of(readers->scratch[slot]);
    const uint32_t n_words = (gw_sparse_chunk_elems(summing->average, c) + 63) / 64;
    memset(s->exact, 0, n_words * sizeof *s->exact);
    for (uint32_t r = 0; r < readers->n_frames; r++) {
        struct gw_sparse_chunk chunk;
        GW_TRY(read_chunk(readers, r, c, slot, &chunk));
        gw_sparse_levels_add(levels, r, chunk.rest, chunk.negative, n_words);
        const float *value = chunk.values;
        FOR_EACH_BIT(chunk.exact, n_words, i, s->sum[i] += *value++;);
        for (uint32_t w = 0; w < n_words; w++)
            s->exact[w] |= chunk.exact[w];
    }
    gw_sparse_levels_mark(levels, s->exact, n_words, s->kept, s->negative);
    FOR_EACH_BIT(s->exact, n_words, i, s->sum[i] += (float)gw_sparse_levels_at(levels, i) * summing->q;);
    divide(s, s->exact, n_words, (float)readers->n_frames);
    for (uint32_t w = 0; w < n_words; w++)
        s->kept[w] |= s->exact[w];
    return GW_OK;
}

/* Averages chunk c. Makes the bitmap of the elements that are not 0, and their values. */
static gw_status average_chunk(const struct summing *summing, uint64_t c, uint32_t slot)
{
    const struct readers *readers = &summing->readers;
    const struct sum *s = &summing->sums[slot];
    gw_status status = GW_OK;
    const uint32_t n_words = (gw_sparse_chunk_elems(summing->average, c) + 63) / 64;
    memset(s->kept, 0, n_words * sizeof *s->kept);
    for (uint32_t r = 0; r < readers->n_frames && status == GW_OK; r++) {
        struct gw_sparse_chunk chunk;
        status = read_chunk(readers, r, c, slot, &chunk);
        if (status == GW_OK)
            add(s, &readers->frames[r], &chunk);
    }
    divide(s, s->kept, n_words, (float)readers->n_frames); /* x / 1 is x */
    return status;
}

static gw_status write_sparse_chunk(uint64_t i, uint32_t slot, void *user)
{
    const struct summing *summing = user;
    const struct sum *s = &summing->sums[slot];
    const struct gw_sparse_source source = {.kept = s->kept,
                                            .exact = s->exact,
                                            .negative = s->negative,
                                            .values = s->values,
                                            .fast = summing->average->flags & GW_FLAG_FAST};
    struct gw_sparse_scratch *scratch = summing->readers.scratch[slot];
    const uint64_t c = summing->first + i;
    const uint32_t n = gw_sparse_chunk_elems(summing->average, c);
    uint8_t *to = summing->to + i * summing->stride;
    if (s->exact) {
        GW_TRY(add_chunk_of_signs(summing, c, slot));
        summing->sizes[i] = gw_sparse_write_sums(&source, n, scratch, to);
    } else {
        GW_TRY(average_chunk(summing, c, slot));
        summing->sizes[i] = gw_sparse_write_chunk(&source, summing->average, n, scratch, to);
    }
    return GW_OK;
}

static gw_status write_dense_chunk(uint64_t c, uint32_t slot, void *user)
{
    const struct summing *summing = user;
    const size_t n = gw_sparse_chunk_elems(summing->average, c);
    uint8_t *out = summing->to + 4 * c * GW_SPARSE_CHUNK;
    uint32_t next = 0;
    const struct sum *s = &summing->sums[slot];
    if (s->exact) {
        const struct gw_sparse_levels *levels = gw_sparse_levels_of(summing->readers.scratch[slot]);
        GW_TRY(add_chunk_of_signs(summing, c, slot));
        gw_sparse_levels_expand(levels, (uint32_t)n, summing->unit, s->sum);
        FOR_EACH_BIT(s->exact, (n + 63) / 64, i, s->sum[i] = s->values[next++];);
        memcpy(out, s->sum, 4 * n);
        memset(s->sum, 0, 4 * n);
        return GW_OK;
    }
    GW_TRY(average_chunk(summing, c, slot));
    memset(out, 0, 4 * n);
    FOR_EACH_BIT(s->kept, (n + 63) / 64, i, gw_put_float(out + 4 * (size_t)i, s->values[next++]););
    return GW_OK;
}

/* *fits becomes false if sparse is not smaller than dense. */
static gw_status write_sparse(struct summing *s, uint8_t *payload, struct gw_frame *average, bool *fits)
{
    uint64_t n_chunks = gw_sparse_n_chunks(average);
    uint32_t per_wave = s->readers.n_slots;
    size_t at = gw_sparse_table_bytes(average), most = 4 * (size_t)average->count;
    for (s->first = 0; s->first < n_chunks; s->first += per_wave) {
        uint64_t n = n_chunks - s->first < per_wave ? n_chunks - s->first : per_wave;
        s->to = s->wave ? s->wave : payload + at;
        GW_TRY(gw_parallel_try(s->readers.context, n, write_sparse_chunk, s));
        for (uint64_t i = 0; i < n; i++) {
            *fits = s->sizes[i] < most && at < most - s->sizes[i];
            if (!*fits)
                return GW_OK;
            if (s->wave)
                memcpy(payload + at, s->to + i * s->stride, s->sizes[i]);
            if (n_chunks > 1)
                gw_put32(payload + 4 * (s->first + i), (uint32_t)s->sizes[i]);
            at += s->sizes[i];
        }
    }
    average->payload_bytes = at;
    return GW_OK;
}

static gw_status write_dense(struct summing *s, uint8_t *payload, struct gw_frame *average)
{
    s->to = payload;
    average->codec = GW_WIRE_NONE;
    average->n_scalers = 0;
    average->payload_bytes = 4 * (size_t)average->count;
    return gw_parallel_try(s->readers.context, gw_sparse_n_chunks(average), write_dense_chunk, s);
}

static gw_status summing_init(struct summing *s, gw_context *context, const struct gw_frame *frames, uint32_t n)
{
    bool signs = has_levels(s->average);
    GW_TRY(readers_init(&s->readers, context, frames, n, signs ? n : 0, true));
    uint32_t n_slots = s->readers.n_slots;
    uint64_t most = frames->count < GW_SPARSE_CHUNK ? frames->count : GW_SPARSE_CHUNK;
    s->sums = gw_calloc(context, n_slots, sizeof *s->sums);
    s->sizes = gw_alloc(context, n_slots, sizeof *s->sizes);
    if (!s->sums || !s->sizes)
        return GW_ERR_MEMORY;
    for (uint32_t i = 0; i < n_slots; i++) {
        struct sum *sum = &s->sums[i];
        sum->sum = gw_scratch_take(context, most, sizeof *sum->sum);
        sum->kept = gw_scratch_take(context, gw_div_up(most, 64), sizeof *sum->kept);
        sum->values = gw_scratch_take(context, most, sizeof *sum->values);
        sum->exact = signs ? gw_scratch_take(context, gw_div_up(most, 64), sizeof *sum->exact) : NULL;
        sum->negative = signs ? gw_scratch_take(context, gw_div_up(most, 64), sizeof *sum->negative) : NULL;
        if (!sum->sum || !sum->kept || !sum->values || (signs && (!sum->exact || !sum->negative)))
            return GW_ERR_MEMORY;
        memset(sum->sum, 0, most * sizeof *sum->sum);
    }
    if (n_slots > 1) {
        s->stride = gw_sparse_bound(GW_WIRE_SPARSE, GW_SPARSE_CHUNK);
        s->wave = gw_scratch_take(context, n_slots, s->stride);
    }
    return n_slots == 1 || s->wave ? GW_OK : GW_ERR_MEMORY;
}

static void summing_fini(struct summing *s)
{
    gw_context *context = s->readers.context;
    for (uint32_t i = 0; s->sums && i < s->readers.n_slots; i++) {
        gw_scratch_give(context, s->sums[i].sum);
        gw_scratch_give(context, s->sums[i].kept);
        gw_scratch_give(context, s->sums[i].values);
        gw_scratch_give(context, s->sums[i].exact);
        gw_scratch_give(context, s->sums[i].negative);
    }
    gw_free(context, s->sums);
    gw_free(context, s->sizes);
    gw_scratch_give(context, s->wave);
    readers_fini(&s->readers);
}

static size_t reduce_bound(const struct gw_frame *first, uint32_t n)
{
    const uint64_t chunk = first->count < GW_SPARSE_CHUNK ? first->count : GW_SPARSE_CHUNK;
    (void)n;
    /* The owner stops writing a sparse frame as soon as floats would take no more bytes. By then it may have written
     * one chunk past that. */
    return gw_frame_head_bytes(first->n_scalers) + 4 * (size_t)first->count + 4 * (size_t)gw_sparse_n_chunks(first) +
           gw_sparse_bound(GW_WIRE_SPARSE, chunk);
}

/* Workers that share q must have the same q. */
static const char *gspar_disagreement(const struct gw_frame *a, const struct gw_frame *b)
{
    if ((a->flags ^ b->flags) & GW_FLAG_PRIVATE)
        return "one has a shared q, the other its own";
    bool same = a->flags & GW_FLAG_PRIVATE || gw_get32(a->scalers) == gw_get32(b->scalers);
    return same ? NULL : "each has another shared q";
}

static gw_status reduce(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options,
                        uint8_t *dst, struct gw_frame *average)
{
    (void)options;
    /* True if signs are added up in integers. */
    const bool signs =
        frames->codec == GW_WIRE_GSPAR && !(frames->flags & GW_FLAG_PRIVATE) && n <= GW_SPARSE_LEVELS_MAX_WORKERS;
    average->codec = signs ? GW_WIRE_GSPAR : GW_WIRE_SPARSE;
    average->code = GW_VALUE_F32;
    average->n_scalers = signs;
    struct summing s = {.average = average};
    bool fits = true;
    if (signs) {
        memcpy(dst + GW_HEADER_BYTES, frames[0].scalers, 4);
        average->scalers = dst + GW_HEADER_BYTES;
        s.q = slope_of(average);
        s.unit = unit_of(average);
    }
    gw_status status = summing_init(&s, context, frames, n);
    if (status == GW_OK)
        status = write_sparse(&s, dst + gw_frame_head_bytes(average->n_scalers), average, &fits);
    if (status == GW_OK && !fits)
        status = write_dense(&s, dst + GW_HEADER_BYTES, average);
    summing_fini(&s);
    return status;
}

static const char *const sparse_codes[] = {"f32", "bf16", "f16", NULL}, *const gspar_codes[] = {"parts", NULL};

static uint64_t gspar_n_scalers(uint32_t bucket, uint64_t count)
{
    (void)bucket;
    (void)count;
    return 1;
}

#define SPARSE_RECORD(text, number, codes)                                                                             \
    .name = text, .id = number, .code_names = codes, .check_frame = check_frame, .decode = decode, .symbols = symbols, \
    .parts = parts, .reduce_bound = reduce_bound, .reduce = reduce

const struct gw_wire_codec gw_wire_sparse = {SPARSE_RECORD("sparse", GW_WIRE_SPARSE, sparse_codes)};
const struct gw_wire_codec gw_wire_gspar = {SPARSE_RECORD("gspar", GW_WIRE_GSPAR, gspar_codes),
                                            .n_scalers = gspar_n_scalers, .disagreement = gspar_disagreement};
