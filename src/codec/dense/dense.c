/* The codecs none, bf16 and f16 send every value, in 32 or 16 bits. All comparisons start from them.
 *
 * The owner adds in rank order in float32, divides by N once, and rounds the average to the codec's width. */
#include "base/clones.h"
#include "base/error.h"
#include "codec/codec.h"
#include "base/memory.h"
#include "wire/float16.h"
#include "wire/hash.h"

#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

/* So many elements are worked on at a time. They stay in the nearest cache while they are converted, added and
 * hashed. */
#define BLOCK 512

/* So many elements leave the cache before anybody reads them. So stores go around the cache. */
#define STREAM_ELEMENTS ((uint64_t)512 << 10)

/* Prefetches bytes that are read soon. They arrive while others are worked on. */
static void ask_for(const void *at, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i += 64)
        __builtin_prefetch((const char *)at + i);
}

static uint64_t block_at(uint64_t i, uint64_t n)
{
    return n - i < BLOCK ? n - i : BLOCK;
}

static size_t width(uint8_t codec)
{
    return codec == GW_WIRE_NONE ? 4 : 2;
}

/* ---- loops over one block ------------------------------------------------------------------------------ */

/* The loops of one form: values of `bytes` bytes, which `get` reads and `put` writes. */
#define LOOPS(form, bytes, get, put)                                                                                   \
    GW_CLONES static void pack_##form(const float *src, uint64_t n, uint8_t *dst)                                      \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            put(dst + (bytes)*i, src[i]);                                                                              \
    }                                                                                                                  \
    GW_CLONES static void unpack_##form(const uint8_t *src, uint64_t n, float *dst)                                    \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            dst[i] = get(src + (bytes)*i);                                                                             \
    }                                                                                                                  \
    GW_CLONES static void add_##form(const uint8_t *src, uint64_t n, float *sum)                                       \
    {                                                                                                                  \
        for (uint64_t i = 0; i < n; i++)                                                                               \
            sum[i] += get(src + (bytes)*i);                                                                            \
    }
#define GET_BF16(at) gw_from_bf16(gw_get16(at))
#define PUT_BF16(at, x) gw_put16(at, gw_to_bf16(x))
#define GET_F16(at) gw_from_f16(gw_get16(at))
#define PUT_F16(at, x) gw_put16(at, gw_to_f16(x))
LOOPS(f32, 4, gw_get_float, gw_put_float)
LOOPS(bf16, 2, GET_BF16, PUT_BF16)
LOOPS(f16, 2, GET_F16, PUT_F16)

/* Stores around the cache. dst stands at a multiple of 16 bytes. */
static void stream(const float *src, uint64_t n, float *dst)
{
    uint64_t i = 0;
#if defined(__x86_64__)
    for (; i + 4 <= n; i += 4)
        _mm_stream_ps(dst + i, _mm_load_ps(src + i));
#endif
    for (; i < n; i++)
        dst[i] = src[i];
}

/* From here on other threads see what was streamed. */
static void fence(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

GW_CLONES static void divide(float *sum, uint64_t n, float by)
{
    for (uint64_t i = 0; i < n; i++)
        sum[i] /= by;
}

/* Indexed by frame->codec. */
static const struct form {
    void (*pack)(const float *src, uint64_t n, uint8_t *dst);
    void (*unpack)(const uint8_t *src, uint64_t n, float *dst);
    void (*add)(const uint8_t *src, uint64_t n, float *sum);
} forms[] = {
    [GW_WIRE_NONE] = {pack_f32, unpack_f32, add_f32},
    [GW_WIRE_BF16] = {pack_bf16, unpack_bf16, add_bf16},
    [GW_WIRE_F16] = {pack_f16, unpack_f16, add_f16},
};

static size_t payload_bound(const gw_encoder *encoder, uint64_t n_elems)
{
    return width(encoder->record->info.wire_id) * (size_t)n_elems;
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
        const float *from = g + frame->begin + i;
        if (i + BLOCK < frame->count)
            ask_for(from + BLOCK, sizeof *from * block_at(i + BLOCK, frame->count));
        forms[frame->codec].pack(from, m, to);
        gw_hash_now()->add(&hash, to, bytes * m);
    }
    frame->payload_bytes = bytes * frame->count;
    gw_frame_seal_with(dst, frame, gw_hash_now()->end(&hash));
    return GW_OK;
}

static gw_status check_frame(const struct gw_frame *frame)
{
    if (frame->flags & ~(GW_FLAG_AVERAGE | GW_FLAG_FAST) || frame->bucket)
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
    const bool past = frame->count >= STREAM_ELEMENTS && (uintptr_t)out % 16 == 0;
    _Alignas(64) float block[BLOCK];
    struct gw_hash_state hash;
    gw_hash_now()->begin(&hash, GW_BODY_SEED);
    for (uint64_t i = 0; i < frame->count; i += BLOCK) {
        uint64_t m = block_at(i, frame->count);
        const uint8_t *from = frame->payload + bytes * i;
        if (i + BLOCK < frame->count)
            ask_for(from + bytes * BLOCK, bytes * block_at(i + BLOCK, frame->count));
        gw_hash_now()->add(&hash, from, bytes * m);
        forms[frame->codec].unpack(from, m, past ? block : out + i);
        if (past)
            stream(block, m, out + i);
    }
    if (past)
        fence();
    return gw_frame_compare(frame, gw_hash_now()->end(&hash));
}

static gw_status symbols(gw_context *context, const struct gw_frame *frame, uint64_t *counts)
{
    (void)context;
    float block[BLOCK];
    for (uint64_t i = 0; i < frame->count; i += BLOCK) {
        const uint64_t n = block_at(i, frame->count);
        forms[frame->codec].unpack(frame->payload + width(frame->codec) * i, n, block);
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

/* Prefetches a block of a frame, so that it arrives while two others are added. The processor itself would not foresee
 * it. The next block in memory is of the same frame, but the next block that is added is of another frame. */
static void prefetch(const struct gw_frame *frame, size_t bytes, uint64_t begin, uint64_t count)
{
    const char *from = frame->own ? (const char *)(frame->own + begin) : (const char *)frame->payload + bytes * begin;
    ask_for(from, (frame->own ? sizeof *frame->own : bytes) * count);
}

static gw_status reduce(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options,
                        uint8_t *dst, struct gw_frame *average)
{
    (void)options;
    const struct gw_hash *hash = gw_hash_now();
    struct gw_hash_state *hashes = gw_alloc(context, (size_t)n + 1, sizeof *hashes);
    if (!hashes)
        return GW_ERR_MEMORY;
    struct gw_hash_state *own = hashes + n;
    for (uint32_t r = 0; r <= n; r++)
        hash->begin(&hashes[r], GW_BODY_SEED);
    const struct form *form = &forms[average->codec];
    float sum[BLOCK], *own_values = NULL;
    uint8_t rounded[BLOCK * sizeof(float)]; /* the owner's own values, as if they had been sent */
    size_t bytes = width(average->codec);
    for (uint32_t r = 0; r < n; r++)
        own_values = frames[r].own ? frames[r].own : own_values;
    for (uint64_t i = 0; i < average->count; i += BLOCK) {
        uint64_t m = block_at(i, average->count);
        for (uint32_t r = 0; r < n; r++) {
            const uint8_t *from = rounded;
            if (r + 2 < n)
                prefetch(&frames[r + 2], bytes, i, m);
            else if (i + BLOCK < average->count)
                prefetch(&frames[(r + 2) % n], bytes, i + BLOCK, block_at(i + BLOCK, average->count));
            if (frames[r].own)
                form->pack(frames[r].own + i, m, rounded);
            else
                from = frames[r].payload + bytes * i;
            if (frames[r].unverified)
                hash->add(&hashes[r], from, bytes * m);
            if (r == 0)
                form->unpack(from, m, sum);
            else
                form->add(from, m, sum);
        }
        if (n > 1)
            divide(sum, m, (float)n);
        uint8_t *to = dst + GW_HEADER_BYTES + bytes * i;
        form->pack(sum, m, to);
        hash->add(own, to, bytes * m);
        if (own_values)
            form->unpack(to, m, own_values + i);
    }
    average->payload_bytes = bytes * (size_t)average->count;
    gw_frame_seal_with(dst, average, hash->end(own));
    gw_status status = GW_OK;
    for (uint32_t r = 0; r < n && status == GW_OK; r++)
        if (frames[r].unverified)
            status = gw_frame_compare(&frames[r], hash->end(&hashes[r]));
    gw_free(context, hashes);
    return status;
}

#define DENSE_RECORDS(variable, text, number, words, loses, code)                                                      \
    static const char *const variable##_examples[] = {text, NULL};                                                     \
    const struct gw_codec_record gw_codec_##variable = {.info = {.name = text,                                         \
                                                                 .summary = words,                                     \
                                                                 .source = "",                                         \
                                                                 .losses = gw_losses_##variable,                       \
                                                                 .examples = variable##_examples,                      \
                                                                 .wire_id = number,                                    \
                                                                 .lossy = loses,                                       \
                                                                 .unbiased = !(loses)},                                \
                                                        .payload_bound = payload_bound,                                \
                                                        .encode = encode};                                             \
    static const char *const variable##_codes[] = {code, NULL};                                                        \
    const struct gw_wire_codec gw_wire_##variable = {.name = text,                                                     \
                                                     .id = number,                                                     \
                                                     .code_names = variable##_codes,                                   \
                                                     .check_frame = check_frame,                                       \
                                                     .decode = decode,                                                 \
                                                     .symbols = symbols,                                               \
                                                     .reduce_bound = reduce_bound,                                     \
                                                     .reduce = reduce,                                                 \
                                                     .reduce_verifies = true,                                          \
                                                     .reduces_own = true,                                              \
                                                     .decode_verifies = true}

DENSE_RECORDS(none, "none", GW_WIRE_NONE, "float32 as it is: the baseline", false, "f32");
DENSE_RECORDS(bf16, "bf16", GW_WIRE_BF16, "rounded to bfloat16, 2 times smaller", true, "bf16");
DENSE_RECORDS(f16, "f16", GW_WIRE_F16, "rounded to IEEE half, 2 times smaller", true, "f16");
