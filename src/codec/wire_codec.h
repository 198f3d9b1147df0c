/* Wire codecs: what checks, decodes and adds up frames. A specification names a codec (codec.h); a frame names a wire
 * codec by its number. Several codecs may write frames of one wire codec. */
#ifndef GW_CODEC_WIRE_CODEC_H
#define GW_CODEC_WIRE_CODEC_H

#include "codec/parts.h"
#include "wire/bytes.h"
#include "wire/frame.h"

struct gw_wire_codec {
    const char *name;
    uint8_t id;                    /* enum gw_wire_id */
    const char *const *code_names; /* NULL-ended; index = the frame's code */

    /* How many scalers a frame must have, whatever it claims. NULL: none. */
    uint64_t (*n_scalers)(uint32_t bucket, uint64_t count);

    /* Checks the rest of the header. The checks that are the same for all frames (wire/frame.h) have passed, also that
     * of the code. */
    gw_status (*check_frame)(const struct gw_frame *frame);

    /* These get frames that have passed check_frame. */
    gw_status (*decode)(gw_context *context, const struct gw_frame *frame, float *out);
    gw_status (*symbols)(gw_context *context, const struct gw_frame *frame, uint64_t *counts);
    /* Fills all fields except head_bits and position_entropy_bits; they are 0 before. It also adds to `sums`, which has
     * an entry for each of -workers..workers, how often elements without a value of their own have this sum. NULL: the
     * codec has no such parts. */
    gw_status (*parts)(gw_context *context, const struct gw_frame *frame, gw_frame_parts *out, uint64_t *sums);

    /* Says in what two frames differ that must be added up, as the end of a sentence that begins "of the frames of
     * ranks 5 and 9". NULL: they do not differ. If the callback is NULL, only the checks for all codecs are made. */
    const char *(*disagreement)(const struct gw_frame *a, const struct gw_frame *b);
    /* workers: of all frames together; for pushes, how many there are. */
    size_t (*reduce_bound)(const struct gw_frame *first, uint32_t workers);
    /* Reduces n frames of the same slice, codec and step. They are sorted by rank, with averages last. average->workers
     * is set. average->n_scalers is that of the frames. options: those of the codec that gw_reduce got, if it writes
     * such frames. It may seal the average. */
    gw_status (*reduce)(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options,
                        uint8_t *dst, struct gw_frame *average);

    /* True if reduce or decode takes frames whose checksum was not compared, and compares it while it reads them. Else
     * that is done before. If such a frame was altered, another error in it may be found first. */
    bool reduce_verifies, decode_verifies;
    /* reduce takes a frame without a payload (frame.h, `own`). */
    bool reduces_own;
    /* reduce adds averages like pushes: they hold exact sums. */
    bool adds_averages;
    /* A frame's order-0 entropy is that of what `symbols` counts. */
    bool codes_symbols;
    /* A frame that passes check_frame always decodes to finite numbers. */
    bool always_finite;
};

/* How many buckets `count` elements have. bucket 0: they are one bucket. */
static inline uint64_t gw_n_buckets(uint32_t bucket, uint64_t count)
{
    return bucket ? gw_div_up(count, bucket) : 1;
}

/* All wire codecs, NULL-ended. */
extern const struct gw_wire_codec *const gw_wire_codecs[];

/* Finds a wire codec. NULL: this library does not know it. */
const struct gw_wire_codec *gw_wire_codec_by_id(uint8_t id);

/* How many scalers such a frame has; 0 if the wire codec is not known. */
uint64_t gw_frame_n_scalers(uint8_t wire_id, uint32_t bucket, uint64_t count);

/* Reads a frame up to its wire codec's own checks, and compares the checksum. */
gw_status gw_frame_read(const void *src, size_t src_bytes, struct gw_frame *frame);

/* The owner's own part: a slice that the owner itself averages with those of others. It needs no frame. */
struct gw_own {
    const struct gw_wire_codec *wire; /* which reduces_own */
    uint32_t rank;
    float *values; /* the floats of the slice; the average replaces them */
};

/* gw_reduce with one more worker, which has no frame. own NULL: there is no such worker. After an error own->values are
 * unspecified. */
gw_status gw_reduce_with(gw_context *context, const void *const *frames, const size_t *frame_bytes, uint32_t n_frames,
                         const struct gw_own *own, const gw_reduce_options *options, void *dst, size_t dst_capacity,
                         size_t *dst_bytes);

/* gw_frame_parse without the checksum, for callers that give the frame to gw_decode or gw_reduce. These compare it;
 * once is enough. */
gw_status gw_frame_parse_unverified(const void *src, size_t src_bytes, gw_frame_info *info);

/* gw_frame_parse of a frame of floats whose payload stands apart from its header. Then these are its values. */
gw_status gw_frame_parse_floats(const void *head, const float *values, uint64_t n_elems, gw_frame_info *info);

#endif
