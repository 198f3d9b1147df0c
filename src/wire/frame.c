/* Writes, reads and checks the header of a frame, and computes its checksum. The codec writes and reads what is behind
 * the header. */
#include "wire/frame.h"
#include "base/error.h"
#include "wire/bytes.h"
#include "wire/hash.h"

/* XXH3-64 (seed 0) of the header before it, xor XXH3-64 (seed 1) of everything after the header. */
static uint64_t checksum(const uint8_t *src, uint64_t body_hash)
{
    return gw_hash_now()->whole(src, 48, 0) ^ body_hash;
}

static uint64_t body_hash_of(const uint8_t *src, size_t frame_bytes)
{
    return gw_hash_now()->whole(src + GW_HEADER_BYTES, frame_bytes - GW_HEADER_BYTES, GW_BODY_SEED);
}

gw_status gw_frame_compare(const struct gw_frame *frame, uint64_t body_hash)
{
    const uint8_t *h = frame->scalers - GW_HEADER_BYTES;
    if (gw_get64(h + 48) != checksum(h, body_hash))
        return gw_fail(GW_ERR_FRAME_CHECKSUM, "the frame was altered: its checksum does not match its %zu bytes",
                       frame->frame_bytes);
    return GW_OK;
}

gw_status gw_frame_verify(const struct gw_frame *frame)
{
    return gw_frame_compare(frame, body_hash_of(frame->scalers - GW_HEADER_BYTES, frame->frame_bytes));
}

void gw_frame_reseal(void *dst, size_t frame_bytes)
{
    gw_put64((uint8_t *)dst + 48, checksum(dst, body_hash_of(dst, frame_bytes)));
}

static void put_header(void *dst, struct gw_frame *frame)
{
    uint8_t *h = dst;
    h[0] = 'G';
    h[1] = 'W';
    h[2] = GW_FRAME_VERSION;
    h[3] = frame->codec;
    h[4] = frame->code;
    h[5] = frame->flags;
    gw_put16(h + 6, (uint16_t)frame->workers);
    gw_put32(h + 8, frame->rank);
    gw_put32(h + 12, frame->tensor_id);
    gw_put32(h + 16, frame->step);
    gw_put32(h + 20, frame->bucket);
    gw_put64(h + 24, frame->begin);
    gw_put64(h + 32, frame->count);
    gw_put64(h + 40, frame->payload_bytes);
    frame->frame_bytes = gw_frame_head_bytes(frame->n_scalers) + frame->payload_bytes;
    frame->sealed = true;
}

void gw_frame_seal(void *dst, struct gw_frame *frame)
{
    put_header(dst, frame);
    gw_frame_reseal(dst, frame->frame_bytes);
}

void gw_frame_seal_with(void *dst, struct gw_frame *frame, uint64_t body_hash)
{
    put_header(dst, frame);
    gw_put64((uint8_t *)dst + 48, checksum(dst, body_hash));
}

gw_status gw_frame_read_fields(const void *src, size_t src_bytes, struct gw_frame *frame)
{
    const uint8_t *h = src;
    if (src_bytes >= 2 && (h[0] != 'G' || h[1] != 'W'))
        return gw_fail(GW_ERR_FRAME_MAGIC, "not a Gradwire frame: it begins with bytes %02x %02x, not \"GW\"", h[0],
                       h[1]);
    if (src_bytes >= 3 && h[2] != GW_FRAME_VERSION)
        return gw_fail(GW_ERR_FRAME_VERSION, "the frame is of version %u; this library reads version %d", h[2],
                       GW_FRAME_VERSION);
    if (src_bytes < GW_HEADER_BYTES)
        return gw_fail(GW_ERR_FRAME_CUT, "the frame is cut: %zu bytes, and its header alone takes %d", src_bytes,
                       GW_HEADER_BYTES);
    *frame = (struct gw_frame){.codec = h[3],
                               .code = h[4],
                               .flags = h[5],
                               .workers = gw_get16(h + 6),
                               .rank = gw_get32(h + 8),
                               .tensor_id = gw_get32(h + 12),
                               .step = gw_get32(h + 16),
                               .bucket = gw_get32(h + 20),
                               .begin = gw_get64(h + 24),
                               .count = gw_get64(h + 32)};
    return GW_OK;
}

gw_status gw_frame_place(const void *src, size_t src_bytes, uint64_t (*n_scalers)(uint32_t bucket, uint64_t count),
                         struct gw_frame *frame)
{
    const uint8_t *h = src;
    uint64_t payload_bytes = gw_get64(h + 40);
    if (frame->flags & ~GW_FLAGS_KNOWN)
        return gw_fail(GW_ERR_FRAME_FIELD, "the frame has unknown flags 0x%02x", frame->flags);
    if (frame->workers < 1 || frame->workers > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_FRAME_FIELD, "the frame claims %u workers; 1 to %u are possible", frame->workers,
                       GW_MAX_WORKERS);
    if (frame->rank >= GW_MAX_WORKERS)
        return gw_fail(GW_ERR_FRAME_FIELD, "the frame claims rank %u; the highest possible is %u", frame->rank,
                       GW_MAX_WORKERS - 1);
    if (frame->count > GW_MAX_ELEMENTS || frame->begin > GW_MAX_ELEMENTS - frame->count)
        return gw_fail(GW_ERR_FRAME_FIELD, "the frame claims elements %llu + %llu; a tensor has at most %llu",
                       (unsigned long long)frame->begin, (unsigned long long)frame->count, GW_MAX_ELEMENTS);
    if (frame->begin % GW_SLICE_ALIGN || (frame->bucket && frame->begin % frame->bucket))
        return gw_fail(GW_ERR_FRAME_FIELD,
                       "the frame's slice begins at element %llu, not at a multiple of %u and of its bucket",
                       (unsigned long long)frame->begin, GW_SLICE_ALIGN);
    if (!(frame->flags & GW_FLAG_AVERAGE) && frame->workers != 1)
        return gw_fail(GW_ERR_FRAME_FIELD, "a push frame claims %u workers; it always holds one", frame->workers);
    /* The head has at most a few times `count` bytes, and count <= 2^34. So these sums cannot wrap, once it is known
     * that the payload is not longer than src_bytes. */
    frame->n_scalers = n_scalers ? n_scalers(frame->bucket, frame->count) : 0;
    size_t head = gw_frame_head_bytes(frame->n_scalers);
    if (payload_bytes > src_bytes || head > src_bytes - payload_bytes)
        return gw_fail(GW_ERR_FRAME_CUT, "the frame is cut: %zu bytes, and its head takes %zu and its payload %llu",
                       src_bytes, head, (unsigned long long)payload_bytes);
    frame->payload_bytes = (size_t)payload_bytes;
    frame->frame_bytes = head + frame->payload_bytes;
    frame->scalers = h + GW_HEADER_BYTES;
    frame->payload = h + head;
    return GW_OK;
}
