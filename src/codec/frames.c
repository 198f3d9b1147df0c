/* The public side of frames: parses, decodes, counts and reduces them with the wire codec that they name. */
#include "codec/parts.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "base/options.h"
#include "codec/codec.h"
#include "wire/bytes.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Reads and checks what is the same for all wire codecs. The caller then calls check_frame. */
static gw_status read_header(const void *src, size_t src_bytes, struct gw_frame *frame,
                             const struct gw_wire_codec **wire)
{
    *wire = NULL;
    if (!src)
        return gw_fail(GW_ERR_ARGUMENT, "the frame is NULL");
    GW_TRY(gw_frame_read_fields(src, src_bytes, frame));
    /* This comes first. Only the wire codec knows where the scalers of the frame end, and so what its checksum
     * covers. */
    *wire = gw_wire_codec_by_id(frame->codec);
    if (!*wire)
        return gw_fail(GW_ERR_FRAME_FIELD, "the frame's codec number %u is not known to this library", frame->codec);
    return gw_frame_place(src, src_bytes, (*wire)->n_scalers, frame);
}

gw_status gw_frame_read(const void *src, size_t src_bytes, struct gw_frame *frame)
{
    const struct gw_wire_codec *wire;
    GW_TRY(read_header(src, src_bytes, frame, &wire));
    return gw_frame_verify(frame);
}

static gw_status check_fields(const struct gw_frame *frame, const struct gw_wire_codec *wire)
{
    size_t n_codes = 0;
    while (wire->code_names[n_codes])
        n_codes++;
    if (frame->code >= n_codes)
        return gw_fail(GW_ERR_FRAME_FIELD, "the frame has code %u, which is not one of %s's %zu codes", frame->code,
                       wire->name, n_codes);
    GW_TRY(wire->check_frame(frame));
    for (uint64_t i = 0; i < frame->n_scalers; i++) {
        const float scaler = gw_get_float(frame->scalers + 4 * i);
        if (!(scaler >= 0) || !isfinite(scaler))
            return gw_fail(GW_ERR_FRAME_PAYLOAD, "scaler %llu of the frame is %g; it must be finite and not negative",
                           (unsigned long long)i, (double)scaler);
    }
    return GW_OK;
}

/* Finds what else may be wrong with a frame. later: the function that reads the payload compares its checksum. But if a
 * field is wrong, the checksum is compared here, because "it was altered" is the better answer. */
static gw_status check_frame(struct gw_frame *frame, const struct gw_wire_codec *wire, bool later)
{
    frame->unverified = later;
    if (!later)
        GW_TRY(gw_frame_verify(frame));
    gw_status status = check_fields(frame, wire);
    if (status < 0 && later)
        GW_TRY(gw_frame_verify(frame));
    return status;
}

static gw_status read_frame(const void *src, size_t src_bytes, struct gw_frame *frame,
                            const struct gw_wire_codec **wire)
{
    GW_TRY(read_header(src, src_bytes, frame, wire));
    return check_frame(frame, *wire, false);
}

static gw_frame_info describe(const struct gw_frame *frame, const struct gw_wire_codec *wire)
{
    return (gw_frame_info){.codec = wire->name,
                           .code = wire->code_names[frame->code],
                           .always_finite = wire->always_finite,
                           .average = frame->flags & GW_FLAG_AVERAGE,
                           .fast = frame->flags & GW_FLAG_FAST,
                           .workers = frame->workers,
                           .rank = frame->rank,
                           .tensor_id = frame->tensor_id,
                           .step = frame->step,
                           .begin = frame->begin,
                           .n_elems = frame->count,
                           .bucket = frame->bucket,
                           .n_scalers = frame->n_scalers,
                           .frame_bytes = frame->frame_bytes,
                           .payload_bytes = frame->payload_bytes};
}

static gw_status parse(const void *src, size_t src_bytes, bool later, gw_frame_info *info)
{
    struct gw_frame frame;
    const struct gw_wire_codec *wire;
    GW_TRY(read_header(src, src_bytes, &frame, &wire));
    GW_TRY(check_frame(&frame, wire, later));
    *info = describe(&frame, wire);
    return GW_OK;
}

gw_status gw_frame_parse_floats(const void *head, const float *values, uint64_t n_elems, gw_frame_info *info)
{
    const size_t n_bytes = (size_t)n_elems * sizeof *values;
    const struct gw_wire_codec *wire = gw_wire_codec_by_id(GW_WIRE_NONE);
    struct gw_frame frame;
    GW_TRY(gw_frame_read_fields(head, GW_HEADER_BYTES + n_bytes, &frame));
    if (frame.codec != wire->id)
        return gw_fail(GW_ERR_FRAME_FIELD, "the frame is of codec number %u, and must be of floats (%u)", frame.codec,
                       wire->id);
    GW_TRY(gw_frame_place(head, GW_HEADER_BYTES + n_bytes, wire->n_scalers, &frame));
    frame.payload = (const uint8_t *)values;
    GW_TRY(gw_frame_compare(&frame, gw_hash_now()->whole(values, n_bytes, GW_BODY_SEED)));
    GW_TRY(check_fields(&frame, wire));
    if (frame.payload_bytes != n_bytes)
        return gw_fail(GW_ERR_FRAME_PAYLOAD, "the frame has %zu payload bytes, not %zu", frame.payload_bytes, n_bytes);
    *info = describe(&frame, wire);
    return GW_OK;
}

gw_status gw_frame_parse(const void *src, size_t src_bytes, gw_frame_info *info)
{
    if (!info)
        return gw_fail(GW_ERR_ARGUMENT, "gw_frame_parse: info is NULL");
    return parse(src, src_bytes, false, info);
}

gw_status gw_frame_parse_unverified(const void *src, size_t src_bytes, gw_frame_info *info)
{
    return parse(src, src_bytes, true, info);
}

float gw_frame_scaler(const void *src, size_t src_bytes, uint64_t i)
{
    struct gw_frame frame;
    const struct gw_wire_codec *wire;
    if (read_header(src, src_bytes, &frame, &wire) < 0 || i >= frame.n_scalers)
        return 0;
    return gw_get_float(frame.scalers + 4 * i);
}

gw_status gw_decode(gw_context *context, const void *src, size_t src_bytes, float *out, uint64_t n_elems)
{
    struct gw_frame frame;
    const struct gw_wire_codec *wire;
    GW_TRY(read_header(src, src_bytes, &frame, &wire));
    GW_TRY(check_frame(&frame, wire, wire->decode_verifies));
    if (frame.count != n_elems || (!out && n_elems))
        return gw_fail(GW_ERR_ARGUMENT, "the frame holds %llu elements; room for %llu was given",
                       (unsigned long long)frame.count, (unsigned long long)(out ? n_elems : 0));
    gw_float_env env = gw_float_enter();
    gw_status status = wire->decode(context, &frame, out);
    gw_float_leave(env);
    return status;
}

/* The order-0 entropy of symbols that occur so often among n. */
static double symbols_entropy(const uint64_t *counts, uint64_t n_symbols, uint64_t n)
{
    double bits = 0;
    for (uint64_t i = 0; i < n_symbols; i++)
        if (counts[i])
            bits -= (double)counts[i] * log2((double)counts[i] / (double)n);
    return bits;
}

/* The parts of a frame. *sign_entropy_bits: the entropy of the signs (in an average, of the sums) of elements without a
 * value of their own. */
static gw_status read_parts(gw_context *context, const struct gw_frame *frame, const struct gw_wire_codec *wire,
                            gw_frame_parts *out, double *sign_entropy_bits)
{
    uint64_t n_sums = 2 * (uint64_t)frame->workers + 1, *sums = gw_calloc(context, n_sums, sizeof *sums);
    if (!sums)
        return GW_ERR_MEMORY;
    *out = (gw_frame_parts){.sparse = true};
    gw_status status = wire->parts(context, frame, out, sums);
    uint64_t without = out->n_sent - out->n_values;
    out->position_entropy_bits =
        symbols_entropy((uint64_t[]){frame->count - out->n_sent, without, out->n_values}, 3, frame->count);
    *sign_entropy_bits = symbols_entropy(sums, n_sums, without);
    gw_free(context, sums);
    return status;
}

/* Bits for an element of a frame, at the order-0 entropy of its symbols. */
static gw_status frame_entropy(gw_context *context, const struct gw_frame *frame, const struct gw_wire_codec *wire,
                               const uint64_t *counts, double *bits)
{
    gw_frame_parts parts;
    double sign_bits;
    *bits = 0;
    if (frame->count == 0)
        return GW_OK;
    if (wire->codes_symbols)
        *bits = symbols_entropy(counts, 2 * (uint64_t)frame->workers + 1, frame->count) / (double)frame->count;
    if (!wire->parts)
        return GW_OK;
    GW_TRY(read_parts(context, frame, wire, &parts, &sign_bits));
    *bits = (parts.position_entropy_bits + sign_bits) / (double)frame->count;
    return GW_OK;
}

gw_status gw_frame_symbols(gw_context *context, const void *src, size_t src_bytes, uint64_t *counts, size_t n_counts,
                           uint64_t *n_nonzero, double *entropy_bits)
{
    struct gw_frame frame;
    const struct gw_wire_codec *wire;
    GW_TRY(read_frame(src, src_bytes, &frame, &wire));
    uint64_t n_symbols = 2 * (uint64_t)frame.workers + 1;
    uint64_t *own = NULL;
    if (counts && n_counts < n_symbols)
        return gw_fail(GW_ERR_CAPACITY, "gw_frame_symbols: room for %zu counts; a frame of %u workers has %" PRIu64,
                       n_counts, frame.workers, n_symbols);
    if (!counts) {
        own = counts = gw_alloc(context, n_symbols, sizeof *counts);
        if (!own)
            return GW_ERR_MEMORY;
    }
    memset(counts, 0, n_symbols * sizeof *counts);
    gw_float_env env = gw_float_enter();
    gw_status status = wire->symbols(context, &frame, counts);
    if (status == GW_OK && entropy_bits)
        status = frame_entropy(context, &frame, wire, counts, entropy_bits);
    gw_float_leave(env);
    if (status == GW_OK && n_nonzero)
        *n_nonzero = frame.count - counts[frame.workers];
    gw_free(context, own);
    return status;
}

gw_status gw_frame_read_parts(gw_context *context, const void *src, size_t src_bytes, gw_frame_parts *out)
{
    struct gw_frame frame;
    const struct gw_wire_codec *wire;
    if (!out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_frame_read_parts: out is NULL");
    GW_TRY(read_frame(src, src_bytes, &frame, &wire));
    if (wire->parts) {
        double sign_entropy_bits;
        gw_float_env env = gw_float_enter();
        gw_status status = read_parts(context, &frame, wire, out, &sign_entropy_bits);
        gw_float_leave(env);
        GW_TRY(status);
    } else {
        GW_TRY(gw_frame_symbols(context, src, src_bytes, NULL, 0, NULL, NULL)); /* refuses what gw_decode refuses */
        *out = (gw_frame_parts){.n_sent = frame.count,
                                .n_values = frame.count,
                                .value_bits = 8 * (uint64_t)frame.payload_bytes};
    }
    out->head_bits = 8 * (uint64_t)frame.frame_bytes - out->position_bits - out->sign_bits - out->value_bits;
    return GW_OK;
}

size_t gw_reduce_bound(const void *const *frames, const size_t *frame_bytes, uint32_t n_frames)
{
    struct gw_frame frame, other;
    const struct gw_wire_codec *wire, *other_wire;
    if (!n_frames || !frames || !frame_bytes || read_header(frames[0], frame_bytes[0], &frame, &wire) < 0 ||
        check_frame(&frame, wire, true) < 0)
        return 0;
    uint64_t workers = frame.workers;
    for (uint32_t i = 1; i < n_frames; i++) {
        if (read_header(frames[i], frame_bytes[i], &other, &other_wire) < 0)
            return 0;
        workers += other.workers;
    }
    return workers <= GW_MAX_WORKERS ? wire->reduce_bound(&frame, (uint32_t)workers) : 0;
}

/* Pushes are added in rank order. Averages come after them, in any order, because they hold integers. */
static uint32_t place_of(const struct gw_frame *frame)
{
    return frame->flags & GW_FLAG_AVERAGE ? GW_MAX_WORKERS : frame->rank;
}

/* "the frames of ranks 5 and 9", for sentences about two frames. */
static const char *both(const struct gw_frame *a, const struct gw_frame *b, char *text, size_t capacity)
{
    if (b->flags & GW_FLAG_AVERAGE && a->flags & GW_FLAG_AVERAGE)
        snprintf(text, capacity, "the averages of %u and of %u workers", a->workers, b->workers);
    else if (b->flags & GW_FLAG_AVERAGE)
        snprintf(text, capacity, "the frame of rank %u and the average of %u workers", a->rank, b->workers);
    else
        snprintf(text, capacity, "the frames of ranks %u and %u", a->rank, b->rank);
    return text;
}

/* Checks what must be the same in all pushes of one slice. */
static gw_status check_agree(const struct gw_frame *a, const struct gw_frame *b)
{
    char text[96];
#define AGREE(field, what)                                                                                             \
    if (a->field != b->field)                                                                                          \
    return gw_fail(GW_ERR_FRAME_MISMATCH, "%s disagree in %s: %llu and %llu", both(a, b, text, sizeof text), what,     \
                   (unsigned long long)a->field, (unsigned long long)b->field)
    if (a->codec != b->codec)
        return gw_fail(GW_ERR_FRAME_MISMATCH, "%s disagree in codec: %s and %s", both(a, b, text, sizeof text),
                       gw_wire_codec_by_id(a->codec)->name, gw_wire_codec_by_id(b->codec)->name);
    AGREE(tensor_id, "tensor");
    AGREE(step, "step");
    AGREE(begin, "the slice's begin");
    AGREE(count, "the number of elements");
    AGREE(bucket, "bucket");
#undef AGREE
    const struct gw_wire_codec *wire = gw_wire_codec_by_id(a->codec);
    const char *disagreement = wire->disagreement ? wire->disagreement(a, b) : NULL;
    if (disagreement)
        return gw_fail(GW_ERR_FRAME_MISMATCH, "of %s %s", both(a, b, text, sizeof text), disagreement);
    if (a->rank == b->rank && !(b->flags & GW_FLAG_AVERAGE))
        return gw_fail(GW_ERR_FRAME_MISMATCH, "two frames come from the same rank, %u", a->rank);
    return GW_OK;
}

/* Puts a frame among n others, in the order of their places. Frames usually come in order. */
static void insert(struct gw_frame *sorted, uint32_t n, const struct gw_frame *frame)
{
    for (; n > 0 && place_of(&sorted[n - 1]) > place_of(frame); n--)
        sorted[n] = sorted[n - 1];
    sorted[n] = *frame;
}

gw_status gw_reduce(gw_context *context, const void *const *frames, const size_t *frame_bytes, uint32_t n_frames,
                    const gw_reduce_options *options, void *dst, size_t dst_capacity, size_t *dst_bytes)
{
    return gw_reduce_with(context, frames, frame_bytes, n_frames, NULL, options, dst, dst_capacity, dst_bytes);
}

gw_status gw_reduce_with(gw_context *context, const void *const *frames, const size_t *frame_bytes, uint32_t n_frames,
                         const struct gw_own *own, const gw_reduce_options *options, void *dst, size_t dst_capacity,
                         size_t *dst_bytes)
{
    if (!frames || !frame_bytes || !dst || !dst_bytes || n_frames < 1 || n_frames > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "gw_reduce: 1 to %u frames and an output are needed", GW_MAX_WORKERS);
    gw_reduce_options o = {.codec = NULL};
    if (options)
        GW_TRY(GW_TAKE_OPTIONS(gw_reduce_options, options, &o));
    const uint32_t n_all = n_frames + (own != NULL);
    struct gw_frame *sorted = gw_alloc(context, n_all, sizeof *sorted);
    if (!sorted)
        return GW_ERR_MEMORY;
    const struct gw_wire_codec *wire = NULL;
    gw_status status = GW_OK;
    uint64_t workers = 0;
    uint8_t fast = 0; /* one frame with the flag is enough: in an exchange rank 0 sets it, and the others follow one
                       * step later */
    for (uint32_t i = 0; i < n_frames && status == GW_OK; i++) {
        struct gw_frame frame;
        status = read_header(frames[i], frame_bytes[i], &frame, &wire);
        if (status == GW_OK)
            status = check_frame(&frame, wire, wire->reduce_verifies);
        if (status == GW_OK && frame.flags & GW_FLAG_AVERAGE && !wire->adds_averages)
            status = gw_fail(GW_ERR_FRAME_MISMATCH,
                             "frame %u of %u is an average already, and cannot be added up again", i + 1, n_frames);
        if (status == GW_OK) {
            insert(sorted, i, &frame);
            workers += frame.workers;
            fast |= frame.flags & GW_FLAG_FAST;
        }
    }
    if (status == GW_OK && own) { /* own takes part as a frame of the same slice and step as the others */
        struct gw_frame frame = sorted[0];
        frame.codec = own->wire->id;
        frame.rank = own->rank;
        frame.own = own->values;
        frame.unverified = false;
        insert(sorted, n_frames, &frame);
        workers++;
    }
    if (status == GW_OK && workers > GW_MAX_WORKERS)
        status = gw_fail(GW_ERR_FRAME_MISMATCH, "the frames hold %llu workers; at most %u can be averaged",
                         (unsigned long long)workers, GW_MAX_WORKERS);
    for (uint32_t i = 1; i < n_all && status == GW_OK; i++)
        status = check_agree(&sorted[i - 1], &sorted[i]);
    if (status == GW_OK && dst_capacity < wire->reduce_bound(&sorted[0], (uint32_t)workers))
        status = gw_fail(GW_ERR_CAPACITY, "the average may take %zu bytes; the buffer has %zu",
                         wire->reduce_bound(&sorted[0], (uint32_t)workers), dst_capacity);
    if (status == GW_OK) {
        struct gw_frame average = sorted[0];
        average.own = NULL;
        average.rank = 0;
        average.workers = (uint32_t)workers;
        average.flags = GW_FLAG_AVERAGE | fast;
        average.code = 0;
        const void *own_options = o.codec && o.codec->record->info.wire_id == wire->id ? o.codec->options : NULL;
        gw_float_env env = gw_float_enter();
        status = wire->reduce(context, sorted, n_all, own_options, dst, &average);
        gw_float_leave(env);
        if (status == GW_OK) {
            if (!average.sealed)
                gw_frame_seal(dst, &average);
            *dst_bytes = average.frame_bytes;
        }
    }
    /* Something went wrong, and some frames may not be verified yet. If one of them was altered, that is the better
     * answer. */
    for (uint32_t i = 0; i < n_frames && status < 0 && status != GW_ERR_MEMORY; i++) {
        struct gw_frame frame;
        if (read_header(frames[i], frame_bytes[i], &frame, &wire) < 0)
            break;
        const struct gw_kept_error kept = gw_error_keep();
        gw_status altered = gw_frame_read(frames[i], frame_bytes[i], &frame);
        if (altered < 0)
            status = altered;
        else
            gw_error_put_back(&kept);
    }
    gw_free(context, sorted);
    return status;
}
