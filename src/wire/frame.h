/* The frame's header: docs/wire-format.md, section "Header". */
#ifndef GW_WIRE_FRAME_H
#define GW_WIRE_FRAME_H

#include <gradwire/codec.h>

#define GW_FRAME_VERSION 3
#define GW_HEADER_BYTES 56
#define GW_CHUNK 65536u /* elements packed together; the last chunk of a slice may be shorter */

/* Codec ids on the wire: 1..63 built in, 64..191 kept for the project, 192..255 private experiments. Never reused. */
enum gw_wire_id {
    GW_WIRE_NONE = 1,
    GW_WIRE_BF16 = 2,
    GW_WIRE_F16 = 3,
    GW_WIRE_TERNARY = 4,
    GW_WIRE_SPARSE = 5, /* topk, uniform, and averages of sparse codecs */
    GW_WIRE_GSPAR = 6,
    GW_WIRE_ONEBIT = 7,
};

enum gw_frame_flag {
    GW_FLAG_AVERAGE = 2, /* an owner's answer */
    GW_FLAG_PRIVATE = 4, /* ternary: scalers are this worker's own (share=off) */
    GW_FLAG_FAST = 8,    /* a push: its average is to be written as GW_WIRE_FAST; an average: a push said so */
    GW_FLAGS_KNOWN = 14
};

struct gw_frame {
    uint8_t codec, code, flags;
    uint32_t workers; /* 1..GW_MAX_WORKERS */
    uint32_t rank, tensor_id, step;
    uint32_t bucket;
    uint64_t begin, count;
    uint64_t n_scalers;
    const uint8_t *scalers; /* n_scalers float32 */
    const uint8_t *payload;
    size_t payload_bytes;
    size_t frame_bytes;
    /* in place of a payload: the floats that it would be made of. reduce writes their average there, too */
    float *own;
    bool unverified; /* the checksum was not compared yet: the function that reads the payload compares it */
    bool sealed;     /* header and checksum were written */
};

static inline size_t gw_frame_head_bytes(uint64_t n_scalers)
{
    return GW_HEADER_BYTES + 4 * (size_t)n_scalers;
}

/* dst holds scalers (frame->n_scalers of them) and payload already. Writes the header before them, and the checksum of
 * all. Sets frame->frame_bytes. The pointers of `frame` are not used. */
void gw_frame_seal(void *dst, struct gw_frame *frame);

/* The same if the hash of everything behind the header is known already: hash.h, begun with GW_BODY_SEED. */
#define GW_BODY_SEED 1
void gw_frame_seal_with(void *dst, struct gw_frame *frame, uint64_t body_hash);

/* Compares a frame's checksum with its header and the hash of what is behind it. */
gw_status gw_frame_compare(const struct gw_frame *frame, uint64_t body_hash);

/* The same, hashing it now. */
gw_status gw_frame_verify(const struct gw_frame *frame);

/* Recomputes the checksum of a frame whose other bytes were changed; for tests and fuzzers. */
void gw_frame_reseal(void *dst, size_t frame_bytes);

/* Reads the fields of the header of a frame of this version. They may claim anything. */
gw_status gw_frame_read_fields(const void *src, size_t src_bytes, struct gw_frame *frame);

/* Checks these fields: flags, limits, the frame's length. Then it finds scalers and payload in src. n_scalers is the
 * wire codec's; NULL: no scalers. */
gw_status gw_frame_place(const void *src, size_t src_bytes, uint64_t (*n_scalers)(uint32_t bucket, uint64_t count),
                         struct gw_frame *frame);

#endif
