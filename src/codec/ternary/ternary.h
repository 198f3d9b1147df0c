/* The ternary codec (TernGrad: Wen et al., "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning",
 * NIPS 2017). In reading order:
 *   ternary.c   options and the record
 *   encoder.c   clip, scaler, draw: a gradient becomes bitmaps "nonzero" and "sign"
 *   push.c      bitmaps <-> the codes 2bit, base3, mask, gaps
 *   average.c   sums of N workers <-> the codes packed, radix, levels
 *   levels.c    the last of these
 *   reduce.c    N pushes -> one average, and decoding of both
 */
#ifndef GW_CODEC_TERNARY_H
#define GW_CODEC_TERNARY_H

#include "codec/codec.h"
#include "codec/kernels.h"
#include "codec/strings.h"
#include "wire/bytes.h"
#include "wire/radix.h"

/* Codes on the wire; pushes use the first four, averages the three after. In a mixed frame every chunk has a code of its own:
 * what auto makes of slices of more than one chunk. */
enum ternary_code { CODE_2BIT, CODE_BASE3, CODE_MASK, CODE_GAPS, CODE_PACKED, CODE_RADIX, CODE_LEVELS, CODE_MIXED };
extern const char *const ternary_code_names[];

enum { SHARE_ON, SHARE_OFF };
enum { SCOPE_LAYER, SCOPE_GLOBAL };
enum { ENTROPY_AUTO, ENTROPY_ON, ENTROPY_OFF };
/* What code= and pull= stand for, auto being CODE_MIXED. */
extern const enum ternary_code ternary_push_codes[], ternary_pull_codes[];

struct ternary_options {
    double clip;
    int share;
    uint64_t bucket;
    int scope;
    char skip[GW_OPTION_TEXT_BYTES];
    uint64_t min;
    int code, pull, entropy;
};

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

/* One chunk's ternary values: bit i for element i, sign (1 = negative) only where nonzero. */
struct ternary_bits {
    uint64_t nonzero[CHUNK_WORDS + 8], sign[CHUNK_WORDS + 8]; /* a cache line more: powers of two would share cache sets */
};

/* ---- chunk tables ------------------------------------------------------------------------------ */

/* Where chunks differ in size a table of 32-bit entries stands before them: size in the low 28 bits, in mixed frames the
 * code in the next three, and the top bit says that zstd was used. */
#define ENTRY_SIZE(entry) ((entry) & 0x0FFFFFFFu)
#define ENTRY_CODE(entry) ((entry) >> 28 & 7u)
#define ENTRY_ZSTD 0x80000000u

static inline bool code_has_table(uint8_t code, uint8_t flags)
{
    return code == CODE_MASK || code == CODE_GAPS || code == CODE_LEVELS || code == CODE_MIXED || (flags & GW_FLAG_ENTROPY);
}

/* An entry as it is written: without its code where the header says it. */
static inline uint32_t ternary_entry(uint32_t entry, bool header_has_code)
{
    return header_has_code ? entry & ~(7u << 28) : entry;
}

/* Sets the frame's code and entropy flag once all chunks stand in the payload of n_bytes bytes, table first where there
 * may be one. A single chunk needs no mixing, and its code perhaps no table. Returns the payload's size. */
size_t ternary_settle(struct gw_frame *frame, enum ternary_code code, uint64_t n_chunks, uint32_t first_entry, bool any_zstd,
                      uint8_t *payload, size_t n_bytes);

/* auto tries the entropy stage only where the best plain code is more than this above the symbols' order-0 entropy, and takes
 * so many bytes: below, zstd's own tables take more than it saves. What it finds there are patterns: on LeNet's gradients pushes are
 * 4.5 % smaller than with 1.04, for half as much time again. */
#define ENTROPY_WORTH_TRYING 1.02
#define ENTROPY_LEAST_BYTES 128

static inline bool ternary_worth_trying(size_t best_bytes, double entropy_bytes)
{
    return best_bytes >= ENTROPY_LEAST_BYTES && (double)best_bytes > ENTROPY_WORTH_TRYING * entropy_bytes;
}

/* Order-0 entropy of symbols that occur so often, in bytes. */
double ternary_entropy_bytes(const uint32_t *counts, uint32_t n_symbols, uint32_t n);

/* ---- push.c ------------------------------------------------------------------------------------ */

/* The most bytes one chunk of n elements takes in any push code, entropy stage or not. */
size_t ternary_push_chunk_bound(uint32_t n);

/* What the entropy stage works in: zstd's own workspace, the plain bytes, and a second place for compressed ones. */
struct ternary_stage {
    void *workspace;
    size_t workspace_bytes;
    uint8_t *plain, *packed;
};
gw_status ternary_stage_init(gw_context *context, size_t plain_bytes, struct ternary_stage *stage);
void ternary_stage_fini(gw_context *context, struct ternary_stage *stage);

/* Compresses n bytes of stage->plain into dst. 0 where the result would not be below `limit` bytes. */
size_t ternary_stage_pack(const struct ternary_stage *stage, size_t n, size_t limit, uint8_t *dst);

/* Packs one chunk with `count` nonzeros. code CODE_MIXED: the smallest. `stage` is not used with ENTROPY_OFF. Returns the
 * entry, its code set. */
uint32_t ternary_push_pack(enum ternary_code code, int entropy, const struct ternary_bits *bits, uint32_t n, uint32_t count,
                           const struct ternary_stage *stage, uint8_t *dst);

/* Unpacks one chunk of src_bytes bytes. `stage` is needed where `zstd` is true. Where `view` is not NULL a bitmap of nonzeros
 * that stands whole in the chunk is not copied; *view says where both bitmaps are. */
gw_status ternary_push_unpack(enum ternary_code code, const uint8_t *src, size_t src_bytes, bool zstd, uint32_t n,
                              const struct ternary_stage *stage, struct ternary_bits *bits, struct gw_bitmaps *view);

uint32_t ternary_count(const uint64_t *words, uint32_t n);

/* ---- average.c --------------------------------------------------------------------------------- */

/* How sums of `workers` ternary values, digits 0..2*workers (value + workers), are packed. */
struct ternary_sums {
    uint32_t workers, n_planes;
    struct gw_radix tight, bytewise; /* base 2N+1 */
};
struct ternary_sums ternary_sums_of(uint32_t workers);

/* Bitmaps of the sums beyond one level, in both directions. */
struct ternary_level {
    uint64_t beyond[2][CHUNK_WORDS]; /* above it; below its negative */
    uint64_t any[CHUNK_WORDS + 8];   /* a cache line more, as in ternary_bits */
};

struct ternary_levels {
    struct ternary_level at[GW_ADD_FRAMES];
    uint64_t string[CHUNK_WORDS + 1];
};

/* Memory one thread needs to pack or unpack sums of a chunk. */
struct ternary_sum_scratch {
    uint16_t *digits;   /* GW_CHUNK */
    uint8_t *planes;    /* of the digits, as kernels add them up and as they stand in packed codes */
    uint32_t *counts;   /* 2 * workers + 1 */
    struct ternary_levels *levels;
    struct ternary_stage stage;
};
gw_status ternary_sum_scratch_init(gw_context *context, const struct ternary_sums *sums, struct ternary_sum_scratch *scratch);
void ternary_sum_scratch_fini(gw_context *context, struct ternary_sum_scratch *scratch);

size_t ternary_sum_chunk_bound(const struct ternary_sums *sums, uint32_t n);
/* Plain size where it follows from n alone (packed, radix). */
size_t ternary_sum_fixed_size(const struct ternary_sums *sums, enum ternary_code code, uint32_t n);

/* Where to add up the planes of a chunk that ternary_sum_pack will then write to dst: there already, where that is all. */
uint8_t *ternary_sum_planes(enum ternary_code code, int entropy, uint32_t n, struct ternary_sum_scratch *scratch, uint8_t *dst);

/* Packs the chunk of n sums in planes. code CODE_MIXED: the smallest. Returns the entry, its code set. */
uint32_t ternary_sum_pack(const struct ternary_sums *sums, enum ternary_code code, int entropy, const uint8_t *planes, uint32_t n,
                          struct ternary_sum_scratch *scratch, uint8_t *dst);

/* One chunk to digits in scratch->digits, all checked to be at most 2N. */
gw_status ternary_sum_unpack(const struct ternary_sums *sums, enum ternary_code code, const uint8_t *src, size_t src_bytes,
                             bool zstd, uint32_t n, struct ternary_sum_scratch *scratch);

/* ---- levels.c ---------------------------------------------------------------------------------- */

/* More workers' sums reach so many levels that codes by levels are slow and no smaller. */
#define LEVELS_MAX_WORKERS 1024

/* Packs the chunk of n sums in planes. Returns the size, also where it is above `limit`: the bytes at dst are then cut.
 * scratch->counts says how often each digit occurs. */
size_t ternary_levels_pack(const struct ternary_sums *sums, const uint8_t *planes, uint32_t n, size_t limit,
                           struct ternary_sum_scratch *scratch, uint8_t *dst);

/* To planes of sum + *n_levels, in scratch->planes. */
gw_status ternary_levels_unpack(const struct ternary_sums *sums, const uint8_t *src, size_t src_bytes, uint32_t n,
                                struct ternary_sum_scratch *scratch, uint32_t *n_levels);

/* ---- encoder.c --------------------------------------------------------------------------------- */

gw_status ternary_open(gw_encoder *encoder);
void ternary_close(gw_encoder *encoder);
uint64_t ternary_shared_count(const gw_encoder *encoder);
uint32_t ternary_bucket(const gw_encoder *encoder);
size_t ternary_payload_bound(const gw_encoder *encoder, uint64_t n_elems);
gw_status ternary_measure(gw_encoder *encoder, const float *g, float *shared, gw_measure *info);
gw_status ternary_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw, uint8_t *dst,
                         struct gw_frame *frame);
bool ternary_can_fuse(const gw_encoder *encoder);
gw_status ternary_measure_encode(gw_encoder *encoder, const float *g, const gw_draw *draw, uint8_t *dst,
                                 struct gw_frame *frame, gw_measure *info);

/* ---- reduce.c ---------------------------------------------------------------------------------- */

gw_status ternary_check_frame(const struct gw_frame *frame);
gw_status ternary_decode(gw_context *context, const struct gw_frame *frame, float *out);
gw_status ternary_symbols(gw_context *context, const struct gw_frame *frame, uint64_t *counts);
size_t ternary_reduce_bound(const struct gw_frame *first, uint32_t workers);
gw_status ternary_reduce(gw_context *context, const struct gw_frame *frames, uint32_t n, const void *options, uint8_t *dst,
                         struct gw_frame *average);

#endif
