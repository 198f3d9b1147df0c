/* Makes a sparse frame of a tensor, for codecs that choose the elements of a chunk without looking at other chunks
 * (gspar, uniform). Chunks are picked and written on the context's threads, with memory for only a few chunks. */
#ifndef GW_CODEC_SPARSE_ENCODE_H
#define GW_CODEC_SPARSE_ENCODE_H

#include "codec/sparse/sparse.h"
#include "codec/select_kernels.h"

/* What a chunk sends. All bitmaps are zeros at first. The function fills `kept` and the values in order; for gspar also
 * the other bitmaps. */
struct gw_sparse_picked {
    uint64_t kept[GW_SPARSE_WORDS], exact[GW_SPARSE_WORDS], negative[GW_SPARSE_WORDS];
    float *values; /* room for as many as the chunk has elements, and GW_SELECT_SLACK */
};

/* Picks from elements [begin, begin + n) of the tensor. May run on any thread. */
typedef void gw_sparse_pick(const void *user, uint64_t begin, uint32_t n, struct gw_sparse_picked *picked);

/* Memory that is kept from frame to frame. Begins as NULL and is taken at the first frame; a call that ran out of
 * memory can be repeated. */
struct gw_sparse_memory;
void gw_sparse_memory_destroy(gw_context *context, struct gw_sparse_memory *memory);

/* Writes the payload of frame->codec and frame->code behind the header and scalers at dst, and sets
 * frame->payload_bytes. */
gw_status gw_sparse_encode(gw_encoder *encoder, struct gw_sparse_memory **memory, gw_sparse_pick *pick,
                           const void *user, uint8_t *dst, struct gw_frame *frame);

#endif
