/* none, bf16 and f16: every value is sent, in 32 or 16 bits. The baselines of all comparisons.
 *
 * The owner adds in rank order in float32, divides by N once, and rounds the average to the codec's width. */
#include "base/error.h"
#include "codec/codec.h"
#include "codec/measure.h"
#include "base/memory.h"
#include "wire/float16.h"
#include "wire/hash.h"

#include <math.h>
#include <string.h>

/* Elements worked on at a time: they are in the nearest cache while they are converted, added and hashed. */
#define BLOCK 512

static uint64_t block_at(uint64_t i, uint64_t n)
{
    return n - i < BLOCK ? n - i : BLOCK;
}

static size_t width(uint8_t codec)
{
    return codec == GW_WIRE_NONE ? 4 : 2;
}

static void pack(uint8_t codec, const float *src, uint64_t n, uint8_t *dst)
{
    if (codec == GW_WIRE_NONE) {
        if (n)
            memcpy(dst, src, 4 * n);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        gw_put16(dst + 2 * i, codec == GW_WIRE_BF16 ? gw_to_bf16(src[i]) : gw_to_f16(src[i]));
}

static void unpack(uint8_t codec, const uint8_t *src, uint64_t n, float *dst)
{
    if (codec == GW_WIRE_NONE) {
        if (n)
            memcpy(dst, src, 4 * n);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        dst[i] = codec == GW_WIRE_BF16 ? gw_from_bf16(gw_get16(src + 2 * i)) : gw_from_f16(gw_get16(src + 2 * i));
}

/* Hashing comes second, when the bytes are in the nearest cache; and a copy of them is aligned better. */
static void unpack_hash(uint8_t codec, const uint8_t *src, uint64_t n, float *dst, struct gw_hash_state *hash)
{
    unpack(codec, src, n, dst);
    gw_hash_now()->add(hash, codec == GW_WIRE_NONE ? (const uint8_t *)dst : src, width(codec) * n);
}

static size_t payload_bound(const gw_encoder *encoder, uint64_t n_elems)
{
    return width(encoder->record->info.wire_id) * (size_t)n_elems;
}

static gw_status measure(gw_encoder *encoder, const float *g, float *shared, gw_measure *info)
{
    (void)shared;
    gw_measure_tensor(encoder->context, g, encoder->tensor.n_elems, info);
    return GW_OK;
}

static gw_status encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw, uint8_t *dst,
                        struct gw_frame *frame)
{
    (void)encoder;
    (void)shared;
    (void)draw;
    size_t bytes = width(frame->codec);
    struct gw_hash_state hash;
    gw_hash_now()->begin(&hash, GW_BODY_SEED);
    for (uint64_t i = 0; i < frame->count; i += BLOCK) {
        uint64_t m = block_at(i, frame->count);
        uint8_t *to = dst + GW_HEADER_BYTES + bytes * i;
        pack(frame->codec, g + frame->begin + i, m, to);
        gw_hash_now()->add(&hash, to, bytes * m);
    }
    frame->payload_bytes = bytes * frame->count;
    gw_frame_seal_with(dst, frame, gw_hash_now()->end(&hash));
    return GW_OK;
}

static gw_status check_frame(const struct gw_frame *frame)
{
    if (frame->flags & ~GW_FLAG_AVERAGE || frame->bucket)
        return gw_fail(GW_ERR_FRAME_FIELD, "a float frame has flags 0x%02x and bucket %u; it has neither", frame->flags,
                       frame->bucket);
    if (frame->payload_bytes != width(frame->codec) * frame->count)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "a float frame of %llu elements has %zu payload bytes, not %llu",
                       (unsigned long long)frame->count, frame->payload_bytes,
                       (unsigned long long)(width(frame->codec) * frame->count));
    return GW_OK;
}

static gw_status decode(gw_context *context, const struct gw_frame *frame, float *out)
{
    (void)context;
    size_t bytes = width(frame->codec);
    struct gw_hash_state hash;
    gw_hash_now()->begin(&hash, GW_BODY_SEED);
    for (uint64_t i = 0; i < frame->count; i += BLOCK) {
        uint64_t m = block_at(i, frame->count);
        unpack_hash(frame->codec, frame->payload + bytes * i, m, out + i, &hash);
    }
    return gw_frame_compare(frame, gw_hash_now()->end(&hash));
}

static gw_status symbols(gw_context *context, const struct gw_frame *frame, uint64_t *counts)
{
    (void)context;
    float block[256];
    for (uint64_t i = 0; i < frame->count; i += 256) {
        uint64_t n = frame->count - i < 256 ? frame->count - i : 256;
        unpack(frame->codec, frame->payload + width(frame->codec) * i, n, block);
        for (uint64_t j = 0; j < n; j++)
            counts[frame->workers + (block[j] > 0) - (block[j] < 0)]++;
    }
    return GW_OK;
}

static size_t reduce_bound(const struct gw_frame *first, uint32_t n)
{
    (void)n;
    return GW_HEADER_BYTES + width(first->codec) * (size_t)first->count;
}

static gw_status reduce(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options, uint8_t *dst,
                        struct gw_frame *average)
{
    (void)options;
    const struct gw_hash *hash = gw_hash_now();
    struct gw_hash_state *hashes = gw_alloc(context, (size_t)n + 1, sizeof *hashes), *own = hashes + n;
    if (!hashes)
        return GW_ERR_MEMORY;
    for (uint32_t r = 0; r <= n; r++)
        hash->begin(&hashes[r], GW_BODY_SEED);
    float sum[BLOCK], one[BLOCK];
    size_t bytes = width(average->codec);
    for (uint64_t i = 0; i < average->count; i += BLOCK) {
        uint64_t m = block_at(i, average->count);
        for (uint32_t r = 0; r < n; r++) {
            unpack_hash(average->codec, frames[r].payload + bytes * i, m, r ? one : sum, &hashes[r]);
            for (uint64_t j = 0; r && j < m; j++)
                sum[j] += one[j];
        }
        if (n > 1)
            for (uint64_t j = 0; j < m; j++)
                sum[j] /= (float)n;
        uint8_t *to = dst + GW_HEADER_BYTES + bytes * i;
        pack(average->codec, sum, m, to);
        hash->add(own, to, bytes * m);
    }
    average->payload_bytes = bytes * (size_t)average->count;
    gw_frame_seal_with(dst, average, hash->end(own));
    gw_status status = GW_OK;
    for (uint32_t r = 0; r < n && status == GW_OK; r++)
        status = gw_frame_compare(&frames[r], hash->end(&hashes[r]));
    gw_free(context, hashes);
    return status;
}

#define DENSE_RECORD(variable, text, number, words, loses, code)                                                        \
    static const char *const variable##_codes[] = {code, NULL};                                                         \
    const struct gw_codec_record variable = {                                                                           \
        .info = {.name = text, .summary = words, .source = "", .wire_id = number, .lossy = loses, .unbiased = !(loses)}, \
        .code_names = variable##_codes, .payload_bound = payload_bound,           \
        .measure = measure, .encode = encode, .check_frame = check_frame, .decode = decode, .symbols = symbols,         \
        .reduce_bound = reduce_bound, .reduce = reduce, .reduce_verifies = true, .decode_verifies = true}

DENSE_RECORD(gw_codec_none, "none", GW_WIRE_NONE, "float32 as it is: the baseline", false, "f32");
DENSE_RECORD(gw_codec_bf16, "bf16", GW_WIRE_BF16, "rounded to bfloat16, 2 times smaller", true, "bf16");
DENSE_RECORD(gw_codec_f16, "f16", GW_WIRE_F16, "rounded to IEEE half, 2 times smaller", true, "f16");
