/* Codecs: turn a tensor's gradient into frames and back, and add frames up.
 *
 * A frame in one call, and back:
 *
 *     size_t capacity = gw_encode_bound(NULL, "ternary", n), bytes;
 *     void *frame = malloc(capacity);
 *     gw_encode_once(NULL, "ternary", g, n, NULL, frame, capacity, &bytes); // some 20 times fewer than 4 * n
 *     gw_decode(NULL, frame, bytes, values, n);                             // -s, 0 or s each
 *
 * What follows is for many steps and many workers. A codec works in phases. Every worker MEASURES its tensor
 * (statistics, and the few numbers that workers share), the shared numbers are combined over workers (element-wise
 * maximum), every worker ENCODES slices with them, the slice's owner REDUCES N frames to one, every worker DECODES that
 * one.
 *
 *     gw_codec_parse(ctx, "ternary", &codec);
 *     gw_encoder_create(ctx, codec, &tensor, &enc);
 *     gw_encoder_measure(enc, g, shared, n_shared, &info); // shared: gw_encoder_shared_count() floats
 *     ... shared[i] = max over workers ...
 *     gw_encoder_encode(enc, g, shared, &where, begin, count, frame, capacity, &frame_bytes);
 *     gw_reduce(ctx, frames, sizes, N, NULL, out, capacity, &out_bytes);
 *     gw_decode(ctx, out, out_bytes, average, count);
 *
 * The bytes of a frame depend on the gradient, the seed, rank, step, tensor id, the codec's
 * options and the wire choice, and on nothing else: not on threads, instruction set or slicing of other tensors.
 * Frames are specified byte by byte in docs/wire-format.md. */
#ifndef GRADWIRE_CODEC_H
#define GRADWIRE_CODEC_H

#include <gradwire/context.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Limits of the wire format. */
#define GW_MAX_WORKERS 32767u        /* sums of ternary values fit 16 bits */
#define GW_MAX_ELEMENTS (1ull << 34) /* elements of one tensor: the random counter's range */
#define GW_SLICE_ALIGN 1024u         /* slices begin at multiples of this, and of the bucket */
#define GW_MAX_NAME 128u             /* bytes of a tensor's name, with the closing 0 */

/* ---- specifications ------------------------------------------------------------------------- */

/* A parsed specification `NAME[:key=value,...]`: immutable, may be shared between threads. */
typedef struct gw_codec gw_codec;

/* Parses a specification. Unknown names, unknown keys, keys given twice and values out of range are
 * GW_ERR_SPEC, and gw_last_error() names the offender and what would be right. */
GW_API gw_status gw_codec_parse(gw_context *context, const char *spec, gw_codec **out);
GW_API void gw_codec_destroy(gw_codec *codec);

/* The codec's name ("ternary"), and its specification with every option spelled out in a fixed order;
 * two codecs with equal canonical text behave alike. Owned by the codec. */
GW_API const char *gw_codec_name(const gw_codec *codec);
GW_API const char *gw_codec_canonical(const gw_codec *codec);

/* True if one decision encodes all tensors of the network (scope=global). Then all of them must be measured, and
 * gw_encoders_combine called, before any is encoded. Shared numbers (ternary's) are combined over tensors as well as
 * workers. */
GW_API bool gw_codec_is_global(const gw_codec *codec);

/* One option of a codec, for listings. */
typedef struct gw_codec_option {
    const char *key;
    const char *default_value;
    const char *values; /* legal values in words, e.g. "0 or more; 0 switches clipping off" */
    const char *help;   /* one line */
} gw_codec_option;

/* One codec, for listings. All strings are static. */
typedef struct gw_codec_info {
    const char *name;
    const char *summary; /* one line */
    const char *source;  /* paper */
    const gw_codec_option *options;
    size_t n_options;
    uint8_t wire_id;
    bool lossy;
    bool unbiased;
} gw_codec_info;

/* The i-th codec of this library, NULL past the last one. Static storage, any thread. */
GW_API const gw_codec_info *gw_codec_list(size_t i);

/* ---- encoding ------------------------------------------------------------------------------- */

/* What a codec needs to know of a tensor. */
typedef struct gw_tensor {
    const char *name; /* e.g. "conv1.weight"; copied; shorter than GW_MAX_NAME; NULL is "" */
    uint32_t id;      /* position in the declared order of all tensors */
    uint64_t n_elems; /* 0 .. GW_MAX_ELEMENTS */
    bool last_layer;  /* belongs to the last classification layer: what skip=last leaves in float */
} gw_tensor;

/* True if the codec's options leave this tensor in float (ternary's skip= and min=): its frames are those of `none`.
 * Names, sizes and last_layer count; the id does not. False for NULL. */
GW_API bool gw_codec_leaves_float(const gw_codec *codec, const gw_tensor *tensor);

/* How frames are written, if that is a choice. It changes their bytes and what they cost, and never what they decode
 * to. */
typedef enum gw_wire {
    GW_WIRE_AUTO,  /* an exchange takes the faster of both, as measured; elsewhere as GW_WIRE_SMALL */
    GW_WIRE_SMALL, /* the fewest bytes */
    GW_WIRE_FAST   /* the fewest processor cycles */
} gw_wire;

/* "auto", "small", "fast": static. NULL: it is none of these. */
GW_API const char *gw_wire_name(gw_wire wire);
/* Errors: GW_ERR_SPEC, with the words that would be right. */
GW_API gw_status gw_wire_parse(const char *name, gw_wire *out);

/* Where in the run a draw happens: what random numbers depend on besides the tensor. */
typedef struct gw_draw {
    uint64_t seed;
    uint32_t rank; /* 0 .. GW_MAX_WORKERS-1 */
    uint32_t step;
} gw_draw;

typedef struct gw_measure {
    bool finite;        /* false: a NaN or Inf was found, the shared numbers are not set */
    uint64_t bad_index; /* if finite is false: the first element that is not finite */
    double max_abs;     /* max |g_i|; of topk and onebit: of gradient plus residual */
    /* topk with scope=layer and onebit have no use for these and leave them 0. */
    double sum_abs_bound; /* TernGrad's bound gap: max|g| * |g|_1 / |g|_2^2; 0 for an all-zero tensor */
    double mean, sigma;   /* population mean and standard deviation of the whole tensor (no buckets) */
} gw_measure;

/* What one worker keeps for one tensor: the codec (or float, if skip= or min= say so), scratch memory, and the codec's
 * state between steps. One thread at a time. */
typedef struct gw_encoder gw_encoder;

/* Errors: GW_ERR_ARGUMENT (sizes, name), GW_ERR_MEMORY. */
GW_API gw_status gw_encoder_create(gw_context *context, const gw_codec *codec, const gw_tensor *tensor,
                                   gw_encoder **out);
GW_API void gw_encoder_destroy(gw_encoder *encoder);

/* How many float32 numbers of this tensor workers share (element-wise maximum): 0 for float codecs and
 * unshared scalers, and for NULL; 1, or one per bucket, for ternary; 1 for gspar with share=on. */
GW_API uint64_t gw_encoder_shared_count(const gw_encoder *encoder);

/* Slices of this tensor must begin at multiples of this many elements (and any slice may end at the
 * tensor's end). A multiple of GW_SLICE_ALIGN. */
GW_API uint64_t gw_encoder_slice_align(const gw_encoder *encoder);

/* The most bytes a frame of a slice of n_elems elements can take; encoding into that many bytes never
 * fails for space. 0 for NULL. */
GW_API size_t gw_encoder_bound(const gw_encoder *encoder, uint64_t n_elems);

/* True if the codec's options leave a choice: GW_WIRE_FAST then gives pushes or averages of this tensor other bytes
 * than GW_WIRE_SMALL. An option that names a code is respected either way. False for NULL. */
GW_API bool gw_encoder_has_wire_choice(const gw_encoder *encoder);

/* Says how this encoder writes its frames from here on, and how gw_reduce is to write averages that they are in. An
 * average is written as GW_WIRE_FAST if one of its frames asks for it. At first both are GW_WIRE_SMALL. An encoder
 * without a choice ignores it. */
GW_API void gw_encoder_choose_wire(gw_encoder *encoder, gw_wire push, gw_wire pull);

/* Measures g[0..n_elems). Writes this worker's shared numbers, and *info if info is not NULL. `shared` has room for
 * n_shared numbers: gw_encoder_shared_count at least. It may be NULL if the count is 0. Keeps what encode needs (clip
 * values, unshared scalers). A gradient that is not finite is no error here: info says so, and encode then refuses.
 * Reads g once if it can. Errors: GW_ERR_CAPACITY (n_shared is too small; nothing is written then), GW_ERR_ARGUMENT,
 * GW_ERR_MEMORY. */
GW_API gw_status gw_encoder_measure(gw_encoder *encoder, const float *g, float *shared, size_t n_shared,
                                    gw_measure *info);

/* If gw_codec_is_global: lets the n encoders of all tensors of the network decide together (topk with scope=global
 * selects). They come in declared order, all measured in this step, and their gradients must still be where they were
 * measured. Other codecs: does nothing. *bad: the first tensor that turned out not to be finite after all (gradient
 * plus residual overflow), n if none did; with a NULL bad that is GW_ERR_NONFINITE. The decision stands in the first
 * encoder, which must not be destroyed before the others are encoded. Encoders must be of one codec. Errors:
 * GW_ERR_ORDER (one is not measured), GW_ERR_NONFINITE (one is not finite), GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API gw_status gw_encoders_combine(gw_encoder *const *encoders, uint32_t n, uint32_t *bad);

/* Encodes elements [begin, begin+count) of the tensor g (pointer to the WHOLE tensor) that was measured
 * last into one frame. `shared` holds the combined numbers of the whole tensor; NULL: this worker's own.
 * A shared number below this worker's own is GW_ERR_ARGUMENT.
 * Errors: GW_ERR_ORDER (not measured), GW_ERR_NONFINITE, GW_ERR_ARGUMENT (begin not aligned, range),
 * GW_ERR_CAPACITY, GW_ERR_MEMORY. On error nothing useful is in dst. */
GW_API gw_status gw_encoder_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw,
                                   uint64_t begin, uint64_t count, void *dst, size_t dst_capacity, size_t *frame_bytes);

/* Measures and encodes a whole tensor with this worker's own numbers (or `shared`), in one pass over blocks if the
 * codec allows it (bucketed, unshared scalers). Same bytes as the two calls. `info` may be NULL. GW_ERR_NONFINITE: the
 * tensor is not finite. */
GW_API gw_status gw_encoder_measure_encode(gw_encoder *encoder, const float *g, const float *shared,
                                           const gw_draw *draw, void *dst, size_t dst_capacity, size_t *frame_bytes,
                                           gw_measure *info);

/* ---- what stays between steps ---------------------------------------------------------------- */

/* Ends a step. Codecs with state (topk: residual, threshold; onebit: residual) change it only here. committed true:
 * what was measured last counts as sent. false (a gradient of some worker was not finite, so the step is dropped):
 * everything is as before measure. Measuring again without this call drops the step too. Codecs without state: does
 * nothing. Any number of slices may be encoded before the call; none after. */
GW_API gw_status gw_encoder_commit(gw_encoder *encoder, bool committed);

/* Multiplies what is kept by `factor`, above 0: for gradients that come in another unit from here on (loss scaling).
 * Between two steps. Errors: GW_ERR_ARGUMENT. */
GW_API gw_status gw_encoder_scale(gw_encoder *encoder, float factor);

/* Bytes that gw_encoder_save writes; 0: this tensor's codec has no state. */
GW_API size_t gw_encoder_state_bytes(const gw_encoder *encoder);

/* Writes the state between two steps: portable bytes with a checksum. Errors: GW_ERR_CAPACITY, GW_ERR_ARGUMENT. */
GW_API gw_status gw_encoder_save(const gw_encoder *encoder, void *dst, size_t dst_capacity);

/* Puts a saved state back; the next step is then the one that would have followed. GW_ERR_ARGUMENT: the state is of a
 * tensor with another number of elements, of another codec, or was altered; nothing has changed then. Options may
 * differ. */
GW_API gw_status gw_encoder_load(gw_encoder *encoder, const void *src, size_t src_bytes);

/* Merges one tensor's states of n_states workers into one state, with which each of any other number of workers begins.
 * It keeps the average contribution (1/N) sum e_i of the residuals; thresholds are taken afresh. All states and dst
 * have state_bytes bytes. Errors: GW_ERR_ARGUMENT (they are not states of one tensor and codec). */
GW_API gw_status gw_states_merge(const void *const *states, uint32_t n_states, size_t state_bytes, void *dst);

/* For reports; all 0 if there is no state. Reads the whole residual. */
typedef struct gw_encoder_condition {
    double residual_norm;   /* |e|_2 */
    double threshold;       /* the stored one */
    uint64_t threshold_age; /* steps since it was taken, that one included */
} gw_encoder_condition;
GW_API void gw_encoder_describe(const gw_encoder *encoder, gw_encoder_condition *condition);

/* ---- frames --------------------------------------------------------------------------------- */

/* What a frame says of itself; all of it checked against the frame's length and checksum. */
typedef struct gw_frame_info {
    const char *codec;  /* name, static */
    const char *code;   /* how values are packed: "f32", "2bit", "packed", ...; static */
    bool average;       /* true: an owner's answer; false: one worker's push */
    bool fast;          /* a push: asks for an average written as GW_WIRE_FAST; an average: one was asked for */
    bool always_finite; /* decodes to finite numbers, whatever the payload; else it may hold an infinity or a NaN */
    uint32_t workers;   /* frames added up in it; 1 for a push */
    uint32_t rank;      /* who encoded it; 0 for an average */
    uint32_t tensor_id;
    uint32_t step;
    uint64_t begin, n_elems; /* the slice */
    uint64_t bucket;         /* elements per scaler, 0: one scaler */
    uint64_t n_scalers;      /* ternary, onebit: scalers in the frame; gspar: 1, its q; else 0 */
    size_t frame_bytes;      /* header + scalers + payload */
    size_t payload_bytes;    /* packed symbols only */
} gw_frame_info;

/* Parses and checks the frame at the start of src (its checksum too); src may hold more after it.
 * Errors: the GW_ERR_FRAME_* family. Takes no memory. */
GW_API gw_status gw_frame_parse(const void *src, size_t src_bytes, gw_frame_info *info);

/* The i-th scaler of a checked frame, for gspar its q (1/lambda), 0 if there is none. */
GW_API float gw_frame_scaler(const void *src, size_t src_bytes, uint64_t i);

/* Counts the symbols of a frame (values -1,0,1 of a push, integer sums of an average). `counts` has room for n_counts
 * entries, and the frame must need no more: the first 2*workers+1 are set, index symbol+workers. `workers` is what the
 * frame says (gw_frame_info), so do not take it for known. counts NULL: only *n_nonzero and *entropy_bits (order-0
 * entropy, bits per element) are set, each unless it is NULL. Others: counts are of signs. The entropy of sparse and
 * gspar frames is that of each element's presence (absent, without or with a value of its own) and of the signs of
 * those without (of gspar averages: their sums); of float frames it is 0. Errors: GW_ERR_CAPACITY (n_counts is too
 * small; nothing is written then), GW_ERR_FRAME_*, GW_ERR_MEMORY. */
GW_API gw_status gw_frame_symbols(gw_context *context, const void *src, size_t src_bytes, uint64_t *counts,
                                  size_t n_counts, uint64_t *n_nonzero, double *entropy_bits);

/* What a frame's bits are spent on. */
typedef struct gw_frame_parts {
    /* positions are told apart; else the payload counts as values, and all elements as sent */
    bool sparse;
    /* some elements have a value of their own (gspar's part A), the others one value and a sign (part B) */
    bool two_parts;
    uint64_t n_sent;        /* elements whose position is sent */
    uint64_t n_values;      /* those of them with a value of their own (gspar's part A) */
    uint64_t head_bits;     /* header, scalers, table, padding */
    uint64_t position_bits; /* which elements, and which part each belongs to */
    uint64_t sign_bits;     /* of elements without a value of their own; of averages their sums */
    uint64_t value_bits;
    double position_entropy_bits; /* n * H(absent, without value, with value) */
    double value_entropy_bits;    /* n_values * (bits of sign and fraction + H(exponent)); not sparse: 0 */
} gw_frame_parts;
/* Tells what the bits of a frame are spent on. Reads the whole frame, and refuses what gw_decode refuses. Errors:
 * GW_ERR_FRAME_*, GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API gw_status gw_frame_read_parts(gw_context *context, const void *src, size_t src_bytes, gw_frame_parts *out);

/* Decodes one frame into out[0..n_elems). n_elems must be the frame's. Nothing is written outside out; on error
 * its contents are unspecified. Errors: GW_ERR_FRAME_*, GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API gw_status gw_decode(gw_context *context, const void *src, size_t src_bytes, float *out, uint64_t n_elems);

typedef struct gw_reduce_options {
    size_t struct_bytes;   /* sizeof(gw_reduce_options) */
    const gw_codec *codec; /* takes its pull= and entropy=; NULL: the defaults */
} gw_reduce_options;

/* The most bytes that the average of these frames can take. 0: a frame is not valid; checksums are left to gw_reduce.
 */
GW_API size_t gw_reduce_bound(const void *const *frames, const size_t *frame_bytes, uint32_t n_frames);

/* What an owner does: adds n_frames pushes of one slice (any order; they are added in rank order) into one frame that
 * holds the average. Ternary with shared scalers stays in integers; floats are added in float32; gspar with share=on
 * does both. Averages of ternary codecs hold exact sums, and can be added like pushes: the average is that of all
 * workers in them, bit for bit. Frames of different slices, codecs, steps, scalers, or twice the same rank are
 * GW_ERR_FRAME_MISMATCH, and the sentence names both. Errors further: GW_ERR_FRAME_*, GW_ERR_CAPACITY, GW_ERR_MEMORY.
 */
GW_API gw_status gw_reduce(gw_context *context, const void *const *frames, const size_t *frame_bytes, uint32_t n_frames,
                           const gw_reduce_options *options, void *dst, size_t dst_capacity, size_t *dst_bytes);

/* ---- in one call -------------------------------------------------------------------------------------------------
 *
 * For a first try, and for programs that keep frames in files. Nothing is kept between calls: a codec with a residual
 * begins with an empty one. Workers whose frames are to be averaged must share their numbers first (gw_encoder_measure)
 * or name a codec that shares none, such as ternary:share=off or none. */

/* The most bytes that gw_encode_once's frame can take. spec: a specification. 0: it is not valid, or memory is short;
 * gw_last_error() says which. Any thread. */
GW_API size_t gw_encode_bound(gw_context *context, const char *spec, uint64_t n_elems);

/* Encodes the whole array g[0..n_elems), as one worker would push it, with its own numbers. draw: what random numbers
 * depend on; NULL: seed, rank and step 0. dst has room for dst_capacity bytes, gw_encode_bound at least. The frame's
 * tensor is number 0 and has no name. Any thread. Errors: GW_ERR_SPEC, GW_ERR_NONFINITE, GW_ERR_CAPACITY,
 * GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API gw_status gw_encode_once(gw_context *context, const char *spec, const float *g, uint64_t n_elems,
                                const gw_draw *draw, void *dst, size_t dst_capacity, size_t *frame_bytes);

/* ---- bare codes -------------------------------------------------------------------------------------------------
 *
 * Ternary values without a frame, two bits each, as the parameter server's uint8 keys hold them: four to a byte, the
 * first in the lowest bits, 00 = -1, 01 = 0, 10 = +1. A last byte that is not full is padded with 01. There is no
 * scaler: who packs sends it in another way. Any thread may call these. */

/* The bytes that n_elems codes take: n_elems / 4, rounded up. */
GW_API size_t gw_codes_bytes(uint64_t n_elems);

/* Packs values[0..n_elems), each -1, 0 or 1, into gw_codes_bytes(n_elems) bytes. Errors: GW_ERR_CAPACITY,
 * GW_ERR_ARGUMENT (the sentence names the first value that is none of these; codes are unspecified then). */
GW_API gw_status gw_codes_pack(const int8_t *values, uint64_t n_elems, uint8_t *codes, size_t codes_capacity);

/* Unpacks n_elems values. codes_bytes must be gw_codes_bytes(n_elems). Errors: GW_ERR_ARGUMENT: another length, the
 * code 11, or padding that is not 01; values are unspecified then. */
GW_API gw_status gw_codes_unpack(const uint8_t *codes, size_t codes_bytes, int8_t *values, uint64_t n_elems);

#ifdef __cplusplus
}
#endif
#endif
