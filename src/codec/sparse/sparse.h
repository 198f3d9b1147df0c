/* Frames of tensors of which few elements are sent: docs/wire-format.md, "Sparse frames". What topk, uniform and gspar have in
 * common: which elements are sent stands in strings of bits near their entropy, then come values.
 *   sparse.c   slices to payloads and back
 *   values.c   the values of a chunk
 *   frames.c   the records of the two wire codecs: checks, decoding, and the owner's sum
 */
#ifndef GW_CODEC_SPARSE_H
#define GW_CODEC_SPARSE_H

#include "codec/codec.h"
#include "wire/float16.h"

/* Elements packed together. Larger than other codecs' chunks: of one in a thousand elements a chunk holds few enough. */
#define GW_SPARSE_CHUNK (1u << 18)
#define GW_SPARSE_WORDS (GW_SPARSE_CHUNK / 64)

/* What a slice sends, as bitmaps with bit i for its element i; bits past its end are 0. */
struct gw_sparse_source {
    const uint64_t *kept;
    const uint64_t *exact, *negative; /* gspar: which of the kept have a value of their own, which of the others are negative */
    const float *values;              /* of the kept elements (gspar: the exact ones) in order; of code BF16 and F16 already rounded */
};

/* Of the values in a frame of codec sparse or gspar. */
static inline enum gw_value_type gw_sparse_value_type(const struct gw_frame *frame)
{
    return frame->codec == GW_WIRE_SPARSE ? (enum gw_value_type)frame->code : GW_VALUE_F32;
}

/* The most bytes the payload of n elements takes. */
size_t gw_sparse_bound(uint8_t wire_id, uint64_t n);

/* Memory to read or write with; one thread at a time. */
struct gw_sparse_scratch;
gw_status gw_sparse_scratch_create(gw_context *context, struct gw_sparse_scratch **out);
void gw_sparse_scratch_destroy(gw_context *context, struct gw_sparse_scratch *scratch);

/* Writes the payload of frame->count elements behind the header and scalers at dst, of frame->codec (sparse or gspar) and
 * frame->code (sparse: a gw_value_type); sets frame->payload_bytes. */
void gw_sparse_write(const struct gw_sparse_source *source, struct gw_sparse_scratch *scratch, uint8_t *dst, struct gw_frame *frame);

/* One chunk as it was read into the scratch. */
struct gw_sparse_chunk {
    const uint64_t *kept, *exact, *negative; /* the latter two of gspar, else NULL */
    uint32_t n, n_kept, n_values;
    uint32_t position_bits, sign_bits; /* of the strings */
    uint64_t value_bits;               /* the rest but for padding */
    const float *values;
};

uint64_t gw_sparse_n_chunks(const struct gw_frame *frame);

/* Where chunk c stands, *at before being the end of chunk c - 1 (for c = 0 it is set here), after it the end of chunk c. */
size_t gw_sparse_chunk_begin(const struct gw_frame *frame, uint64_t c, size_t *at);

/* Reads chunk c, whose bytes begin at `begin` and end at `end` of the payload. Refuses what no encoder writes. */
gw_status gw_sparse_read(const struct gw_frame *frame, uint64_t c, size_t begin, size_t end, struct gw_sparse_scratch *scratch,
                         struct gw_sparse_chunk *chunk);

/* frames.c: wire codecs that no specification names; codecs whose frames are sparse point to these for everything but encoding. */
extern const struct gw_codec_record gw_frames_sparse, gw_frames_gspar;

#endif
