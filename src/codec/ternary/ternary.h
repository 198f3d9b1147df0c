/* The ternary codec (TernGrad: Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep
 * Learning", NIPS 2017). Its files in reading order:
 *
 *   ternary.c   options and the record
 *   encoder.c   clip, scaler, draw: a gradient becomes bitmaps "nonzero" and "sign"
 *   residual.c  residual=on: the same by rounding, and what is left waits
 *   push.c      bitmaps <-> the codes 2bit, base3, mask, rans
 *   average.c   sums of N workers <-> the codes packed, rans
 *   levels.c    the last of these
 *   reduce.c    N pushes -> one average, and decoding of both */
#ifndef GW_CODEC_TERNARY_H
#define GW_CODEC_TERNARY_H

#include "codec/codec.h"
#include "codec/kernels.h"
#include "codec/marked.h"
#include "wire/bytes.h"

/* Codes on the wire; pushes use the first three and rans, averages packed and rans. In a mixed frame every chunk has a
 * code of its own: what auto makes of slices of more than one chunk. */
enum ternary_code { CODE_2BIT, CODE_BASE3, CODE_MASK, CODE_PACKED, CODE_RANS, CODE_MIXED };
extern const char *const ternary_code_names[];

enum { SHARE_ON, SHARE_OFF };
enum { SCOPE_LAYER, SCOPE_GLOBAL };
/* code=, pull=, entropy= */
enum { PUSH_AUTO, PUSH_2BIT, PUSH_BASE3, PUSH_MASK };
enum { PULL_AUTO, PULL_PACKED };
enum { ENTROPY_AUTO, ENTROPY_ON, ENTROPY_OFF };
enum { RESIDUAL_OFF, RESIDUAL_ON };
struct ternary_packing {
    int code, pull, entropy;
};
struct ternary_options {
    double clip;
    int share;
    uint64_t bucket;
    int scope;
    char skip[GW_OPTION_TEXT_BYTES];
    uint64_t min;
    struct ternary_packing packing;
    int residual;
    double level; /* infinity: the largest magnitude */
    struct gw_momentum_options momentum;
};

/* What takes its place with GW_WIRE_FAST. If an option is auto, it becomes the code that costs the fewest cycles: mask
 * or packed, without an entropy stage. */
struct ternary_packing ternary_fast(struct ternary_packing packing);

/* True if frames with GW_WIRE_FAST differ from those with GW_WIRE_SMALL. */
bool ternary_has_wire_choice(const void *options);

#define CHUNK_WORDS (GW_CHUNK / 64)

static inline uint64_t n_chunks_of(const struct gw_frame *frame)
{
    return gw_div_up(frame->count, GW_CHUNK);
}

static inline uint32_t chunk_elems(const struct gw_frame *frame, uint64_t c)
{
    uint64_t left = frame->count - c * GW_CHUNK;
    return (uint32_t)(left < GW_CHUNK ? left : GW_CHUNK);
}

/* One chunk's ternary values: bit i for element i, sign (1 = negative) only if nonzero. */
struct ternary_bits {
    /* a cache line more: powers of two would share cache sets */
    uint64_t nonzero[CHUNK_WORDS + 8], sign[CHUNK_WORDS + 8];
};

/* ---- chunk tables ------------------------------------------------------------------------------ */

/* If there are several chunks, and they differ in size, a table of entries of 24 bits stands before them: size in the
 * low 20, and in mixed frames the code in the others. */
#define ENTRY_BYTES 3
#define ENTRY(code, size) ((uint32_t)(code) << 20 | (uint32_t)(size))
#define ENTRY_SIZE(entry) ((entry)&0xFFFFFu)
#define ENTRY_CODE(entry) ((entry) >> 20)

static inline bool ternary_sizes_differ(enum ternary_code code)
{
    return code == CODE_MASK || code == CODE_RANS || code == CODE_MIXED;
}

static inline bool ternary_has_table(enum ternary_code code, uint64_t n_chunks)
{
    return n_chunks > 1 && ternary_sizes_differ(code);
}

/* The frame's code if `code` was asked for. A frame of a single chunk is not mixed. A frame without chunks has a code,
 * too. */
enum ternary_code ternary_frame_code(enum ternary_code code, bool average, uint64_t n_chunks, uint32_t first_entry);

/* Entry c of a table, which in a frame of a named code has none of its own. */
static inline uint32_t ternary_get_entry(const uint8_t *table, uint64_t c)
{
    const uint8_t *at = table + ENTRY_BYTES * c;
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16;
}

static inline void ternary_put_entry(uint8_t *table, uint64_t c, uint32_t entry, enum ternary_code frame_code)
{
    uint8_t *at = table + ENTRY_BYTES * c;
    entry = frame_code == CODE_MIXED ? entry : ENTRY_SIZE(entry);
    at[0] = (uint8_t)entry;
    at[1] = (uint8_t)(entry >> 8);
    at[2] = (uint8_t)(entry >> 16);
}

/* A chunk of n elements in a payload. */
struct ternary_piece {
    enum ternary_code code;
    const uint8_t *src;
    size_t n_bytes;
    uint32_t n;
};

/* ---- push.c ------------------------------------------------------------------------------------ */

/* The most bytes one chunk of n elements takes in any push code. */
size_t ternary_push_chunk_bound(uint32_t n);

/* How many bytes a chunk takes in 2bit, base3 or mask. It has n elements, and `count` of them are not 0. */
size_t ternary_plain_bytes(enum ternary_code code, uint32_t n, uint32_t count);

/* The code of pushes, by the options. */
enum ternary_code ternary_push_code(const struct ternary_packing *packing);

/* Packs one chunk with `count` nonzeros. With CODE_MIXED, `entropy` chooses the code. ENTROPY_AUTO: the smallest.
 * ENTROPY_OFF: the smallest except rans. ENTROPY_ON: rans, unless it takes more than the bound. `writer` is used only
 * with CODE_MIXED. Returns the entry, with its code. */
uint32_t ternary_push_pack(enum ternary_code code, int entropy, const struct ternary_bits *bits, uint32_t n,
                           uint32_t count, struct gw_strings_writer *writer, uint8_t *dst);

/* Unpacks one chunk. If `view` is not NULL and the chunk holds the bitmap of nonzeros as it is, that bitmap is not
 * copied. *view says where both bitmaps are. */
gw_status ternary_push_unpack(const struct ternary_piece *piece, struct ternary_bits *bits, struct gw_bitmaps *view);

/* The same of n_pieces <= GW_RANS_TOGETHER chunks, chunk i to bits[i]. If all are of code rans, that is faster than one
 * after the other. views: NULL, or as many as there are chunks. */
gw_status ternary_push_unpack_many(const struct ternary_piece *pieces, uint32_t n_pieces, struct ternary_bits *bits,
                                   struct gw_bitmaps *views);

uint32_t ternary_count(const uint64_t *words, uint32_t n);

/* ---- average.c --------------------------------------------------------------------------------- */

/* How sums of `workers` ternary values, digits 0..2*workers (value + workers), are packed. */
struct ternary_sums {
    uint32_t workers, n_planes;
};
struct ternary_sums ternary_sums_of(uint32_t workers);

/* The code of averages, by the options. */
enum ternary_code ternary_pull_code(const struct ternary_packing *packing);

/* A bitmap of a chunk, and a cache line more: powers of two would share cache sets. */
struct ternary_bitmap {
    uint64_t words[CHUNK_WORDS + 8];
};

struct ternary_sum_bitmaps {
    struct ternary_bitmap above[GW_ADD_FRAMES]; /* which sums are above a level */
    struct ternary_bitmap nonzero, negative;
    struct ternary_bitmap parted[2]; /* what is above a level on either side of the center */
    struct ternary_bitmap string;    /* one bit for each place that a bitmap marks */
};

/* Memory one thread needs to pack or unpack sums of a chunk of n_elems elements, or of GW_CHUNK if those are fewer. */
struct ternary_sum_scratch {
    uint8_t *planes;      /* of the digits, as kernels add them up and as they stand in packed codes;
                           * one more for levels */
    uint64_t *magnitudes; /* planes of the sums' magnitudes, one after the other */
    struct ternary_sum_bitmaps *bits;
    struct gw_strings_writer writer;
};
/* Call ternary_sum_scratch_fini after it, also after an error. */
gw_status ternary_sum_scratch_init(gw_context *context, const struct ternary_sums *sums, uint64_t n_elems,
                                   struct ternary_sum_scratch *scratch);
void ternary_sum_scratch_fini(gw_context *context, struct ternary_sum_scratch *scratch);

/* The size of a packed chunk of n sums, which no other code exceeds. */
size_t ternary_packed_size(const struct ternary_sums *sums, uint32_t n);

/* Packs the chunk of n sums in planes. code CODE_MIXED: the smaller of packed and rans. With CODE_PACKED, the planes of
 * whole groups of 64 sums may stand at dst already. Returns the entry, its code set. */
uint32_t ternary_sum_pack(const struct ternary_sums *sums, enum ternary_code code, const uint8_t *planes, uint32_t n,
                          struct ternary_sum_scratch *scratch, uint8_t *dst);

/* Makes q times the sums of a chunk, and checks that no sum is beyond what the workers reach. `stream`: as of kernels.
 */
gw_status ternary_sum_decode(const struct ternary_sums *sums, const struct ternary_piece *piece,
                             struct ternary_sum_scratch *scratch, float q, bool stream, float *out);

/* ---- levels.c ---------------------------------------------------------------------------------- */

/* With more workers, sums reach so many levels that codes by levels are slow. */
#define LEVELS_MAX_WORKERS 1024

/* Packs the chunk of n sums in planes. Returns the size, also if it is above `limit`: then nothing is written. */
size_t ternary_levels_pack(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, size_t limit,
                           struct ternary_sum_scratch *scratch, uint8_t *dst);

/* How n_planes planes and signs stand for digits: center + or - (number in the planes - n_levels). */
struct ternary_levels {
    uint32_t n_levels, center, n_planes;
};

/* To planes in scratch->planes and signs in scratch->bits->negative. */
gw_status ternary_levels_unpack(const struct ternary_sums *sums, const struct ternary_piece *piece,
                                struct ternary_sum_scratch *scratch, struct ternary_levels *levels);

/* ---- encoder.c --------------------------------------------------------------------------------- */

/* The memory in which one thread encodes a chunk. */
struct ternary_slot {
    struct ternary_bits bits;
    struct gw_strings_writer writer; /* set if the options can need a writer */
};

struct ternary_state {
    uint64_t n_scalers;
    float *clip;                /* c * sigma of each bucket; FLT_MAX: the bucket is not clipped */
    float *own;                 /* this worker's s of each bucket */
    struct gw_stats *stats;     /* of each bucket, for measuring */
    struct ternary_slot *slots; /* one for each thread; taken at the first encode, and kept */
    uint32_t n_slots;
    uint8_t *wave; /* bytes of a wave's chunks, if there is more than one thread */
    size_t wave_stride;
};

static inline uint32_t ternary_bucket(const gw_encoder *encoder)
{
    return (uint32_t)((const struct ternary_options *)encoder->options)->bucket;
}

gw_status ternary_open(gw_encoder *encoder);
void ternary_close(gw_encoder *encoder);
uint64_t ternary_shared_count(const gw_encoder *encoder);
size_t ternary_payload_bound(const gw_encoder *encoder, uint64_t n_elems);
gw_status ternary_measure(gw_encoder *encoder, const float *g, float *shared, gw_measure *info);
gw_status ternary_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw, uint8_t *dst,
                         struct gw_frame *frame);

/* ---- residual.c -------------------------------------------------------------------------------- */

/* With residual=on, the encoder's residual still contains what was sent. Its notes are L of each bucket. */

/* Adds the residual to bucket b of x, and measures it. context NULL: in this thread alone. The statistics are those of
 * x, except max_bits, which is that of the sum. */
struct gw_stats ternary_feedback_measure(gw_context *context, const gw_encoder *encoder, const float *x, uint64_t b,
                                         uint64_t begin, uint64_t n);

/* L = max(level * rms(x), max|a| / 4); level infinite: max|a|. */
float ternary_feedback_level(double level, const struct gw_stats *stats, uint64_t n);

/* Notes L of n buckets from b on, for the next step to know what was sent. */
void ternary_feedback_set_levels(const gw_encoder *encoder, uint64_t b, uint64_t n, const float *levels);

/* Rounds elements [begin, end), which have the level L. Bit 0 of the words is element `base`. */
void ternary_feedback_round(const gw_encoder *encoder, float level, uint64_t begin, uint64_t end, uint64_t base,
                            struct ternary_bits *bits);

/* The parts of the record. */
void ternary_settle(const gw_encoder *encoder);
size_t ternary_sent_bytes(const gw_encoder *encoder);
bool ternary_rest(gw_encoder *encoder);

/* ---- reduce.c ---------------------------------------------------------------------------------- */

gw_status ternary_check_frame(const struct gw_frame *frame);
gw_status ternary_decode(gw_context *context, const struct gw_frame *frame, float *out);
gw_status ternary_symbols(gw_context *context, const struct gw_frame *frame, uint64_t *counts);
const char *ternary_disagreement(const struct gw_frame *a, const struct gw_frame *b);
size_t ternary_reduce_bound(const struct gw_frame *first, uint32_t workers);
gw_status ternary_reduce(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options,
                         uint8_t *dst, struct gw_frame *average);

#endif
