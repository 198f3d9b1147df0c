/* What a frame's bits are spent on, for reports and tests. */
#ifndef GW_CODEC_PARTS_H
#define GW_CODEC_PARTS_H

#include <gradwire/codec.h>

typedef struct gw_frame_parts {
    /* true: the frame lists positions. false: the whole payload counts as values, and all elements as sent */
    bool sparse;
    /* true: some elements have a value of their own (gspar's part A); the others share one value and have a sign (part
     * B) */
    bool two_parts;
    uint64_t n_sent;        /* elements whose position is sent */
    uint64_t n_values;      /* those of them with a value of their own (gspar's part A) */
    uint64_t head_bits;     /* header, scalers, table, padding */
    uint64_t position_bits; /* which elements, and which part each belongs to */
    uint64_t sign_bits;     /* of elements without a value of their own; in averages, the sums of their signs */
    uint64_t value_bits;
    double position_entropy_bits; /* n * H(absent, without value, with value) */
    double value_entropy_bits;    /* n_values * (bits of sign and fraction + H(exponent)); 0 if not sparse */
} gw_frame_parts;

/* Tells what the bits of a frame are spent on. Reads the whole frame, and refuses what gw_decode refuses. Errors:
 * GW_ERR_FRAME_*, GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_MUST_CHECK gw_status gw_frame_read_parts(gw_context *context, const void *src, size_t src_bytes,
                                            gw_frame_parts *out);

#endif
