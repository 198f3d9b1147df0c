/* Frames of tensors of which few elements are sent: docs/wire-format.md, "Sparse frames". topk, uniform and gspar share
 * this code. Strings of bits say which elements are sent, at a size near their entropy; then come the values.
 *
 *   sparse.c   slices to payloads and back
 *   values.c   the values of a chunk
 *   levels.c   the integers of averages of gspar with a shared q
 *   frames.c   the two wire codecs: checks, decoding, and the owner's sum */
#ifndef GW_CODEC_SPARSE_H
#define GW_CODEC_SPARSE_H

#include "codec/codec.h"
#include "codec/sparse/levels.h"
#include "wire/float16.h"
#include "wire/rans.h"

/* How many elements are packed together. This is larger than the chunks of other codecs: if one element in a thousand
 * is sent, a chunk still sends only a few hundred. */
#define GW_SPARSE_CHUNK (1u << 18)
#define GW_SPARSE_WORDS (GW_SPARSE_CHUNK / 64)

/* What a slice sends, as bitmaps with bit i for its element i; bits past its end are 0. */
struct gw_sparse_source {
    const uint64_t *kept;
    /* gspar: which of the kept have a value of their own, which of the others are negative */
    const uint64_t *exact, *negative;
    const float *values; /* of the kept elements (gspar: of the exact ones), in order; already rounded to the code */
    bool fast;           /* values are written as they are */
};

/* The type of the values in a frame of codec sparse or gspar. */
static inline enum gw_value_type gw_sparse_value_type(const struct gw_frame *frame)
{
    return frame->codec == GW_WIRE_SPARSE ? (enum gw_value_type)frame->code : GW_VALUE_F32;
}

/* The most bytes the payload of n elements takes. */
size_t gw_sparse_bound(uint8_t wire_id, uint64_t n);
size_t gw_sparse_payload_bound(const gw_encoder *encoder, uint64_t n); /* the same, in records of codecs */

/* Memory for reading, and for writing too if `writes` is true. Only one thread may use it at a time. workers: the most
 * workers that a gspar average to read or write is made of; 0: there are no such averages. */
struct gw_sparse_scratch;
gw_status gw_sparse_scratch_create(gw_context *context, uint32_t workers, bool writes, struct gw_sparse_scratch **out);
void gw_sparse_scratch_destroy(gw_context *context, struct gw_sparse_scratch *scratch);

static inline uint64_t gw_sparse_n_chunks(const struct gw_frame *frame)
{
    return gw_div_up(frame->count, GW_SPARSE_CHUNK);
}

static inline uint32_t gw_sparse_chunk_elems(const struct gw_frame *frame, uint64_t c)
{
    const uint64_t left = frame->count - c * GW_SPARSE_CHUNK;
    return left < GW_SPARSE_CHUNK ? (uint32_t)left : GW_SPARSE_CHUNK;
}

/* If a frame has several chunks, a table of their sizes stands before them. */
static inline size_t gw_sparse_table_bytes(const struct gw_frame *frame)
{
    const uint64_t n_chunks = gw_sparse_n_chunks(frame);
    return n_chunks > 1 ? 4 * n_chunks : 0;
}

/* Writes one chunk of n elements, as frame->codec (sparse or gspar) and frame->code (sparse: a gw_value_type) say. at:
 * room for gw_sparse_bound of n. Returns how many bytes the chunk has. */
size_t gw_sparse_write_chunk(const struct gw_sparse_source *source, const struct gw_frame *frame, uint32_t n,
                             struct gw_sparse_scratch *scratch, uint8_t *at);

/* Writes all chunks of a frame behind the header and scalers at dst; sets frame->payload_bytes. */
void gw_sparse_write(const struct gw_sparse_source *source, struct gw_sparse_scratch *scratch, uint8_t *dst,
                     struct gw_frame *frame);

/* The sums of signs of a chunk. The caller fills them in before it writes the chunk of an average. */
struct gw_sparse_levels *gw_sparse_levels_of(struct gw_sparse_scratch *scratch);

/* Writes one chunk of a gspar average. Elements that are exact have values. For the others that are kept it writes the
 * sums of the scratch, in which the caller has marked them (gw_sparse_levels_mark). at: room for 4 * n bytes. Returns
 * how many bytes the chunk has. SIZE_MAX: it would have at least as many as n floats. */
size_t gw_sparse_write_sums(const struct gw_sparse_source *source, uint32_t n, struct gw_sparse_scratch *scratch,
                            uint8_t *at);

/* True: GW_WIRE_FAST writes values as they are, in pushes and averages. */
bool gw_sparse_has_wire_choice(const void *options);

/* One chunk as it was read into the scratch, until the next one is. */
struct gw_sparse_chunk {
    const uint64_t *kept, *exact, *negative; /* exact and negative only of gspar, else NULL */
    const uint64_t *rest;                    /* only of gspar, else NULL: the kept ones that are not exact */
    const struct gw_sparse_levels *levels;   /* of a gspar average, else NULL */
    uint32_t n, n_kept, n_values;
    uint32_t position_bits, sign_bits; /* sign_bits: of signs and levels */
    uint64_t value_bits;               /* the rest, with the coder's states and padding */
    const float *values;
};

/* Where each chunk of a frame begins in its payload, and where the last one ends. NULL: there is no memory. */
size_t *gw_sparse_offsets(gw_context *context, const struct gw_frame *frame);

/* Chunk c of a frame, and where it begins and ends in the payload. */
struct gw_sparse_place {
    const struct gw_frame *frame;
    uint64_t c;
    size_t begin, end;
};

/* Reads the positions of n <= GW_RANS_TOGETHER chunks: faster than those of one after the other. */
gw_status gw_sparse_begin(const struct gw_sparse_place *places, uint32_t n, struct gw_sparse_scratch *scratch);

/* Reads the rest of the i-th of them, once. Refuses what no encoder writes. */
gw_status gw_sparse_read(struct gw_sparse_scratch *scratch, uint32_t i, struct gw_sparse_chunk *chunk);

#endif
