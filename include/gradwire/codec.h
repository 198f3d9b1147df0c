/* Codecs: turn a tensor's gradient into frames and back, and add frames up.
 *
 * A frame in one call, and back:
 *
 *     size_t capacity = gw_encode_bound(NULL, "ternary", n), bytes;
 *     void *frame = malloc(capacity);
 *     gw_encode_once(NULL, "ternary", g, n, NULL, frame, capacity, &bytes); // some 20 times fewer than 4 * n
 *     gw_decode(NULL, frame, bytes, values, n);                             // -s, 0 or s each
 *
 * What follows is for many steps and many workers. A codec works in phases. Every worker MEASURES its tensor: that
 * gives statistics, and the few numbers that workers share. The shared numbers are combined over workers (element-wise
 * maximum). Every worker ENCODES slices with them. The owner of a slice REDUCES the N frames of all workers to one.
 * Every worker DECODES that one.
 *
 *     gw_codec_parse(ctx, "ternary", &codec);
 *     gw_encoder_create(ctx, codec, &tensor, &enc);
 *     gw_encoder_measure(enc, g, shared, n_shared, &info); // shared: n_shared floats
 *     ... shared[i] = max over workers ...
 *     gw_encoder_encode(enc, g, shared, &where, begin, count, frame, capacity, &frame_bytes);
 *     gw_reduce(ctx, frames, sizes, N, NULL, out, capacity, &out_bytes);
 *     gw_decode(ctx, out, out_bytes, average, count);
 *
 * Programs look at the status of each of these calls. The bytes of a frame depend on the gradient, the slice, the
 * shared numbers, what the codec keeps between steps, the seed, rank, step, tensor id, the codec's options and the wire
 * choice. They depend on nothing else: not on threads, not on the instruction set, and not on how other tensors are
 * sliced. Frames are specified byte by byte in docs/wire-format.md. */
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
#define GW_SLICE_ALIGN 1024u         /* slices begin at multiples of this, and of the codec's bucket */
#define GW_MAX_NAME 1024u            /* bytes of a tensor's name, with the closing 0 */

/* ---- specifications ------------------------------------------------------------------------- */

/* A parsed specification `NAME[:key=value,...]`. It never changes, and threads may share it. */
typedef struct gw_codec gw_codec;

/* Parses a specification. The caller destroys *out with gw_codec_destroy. Any thread may call it. Errors: GW_ERR_SPEC
 * (an unknown name, an unknown key, a key given twice, or a value out of range; gw_last_error() names it and says what
 * would be right), GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_codec_parse(gw_context *context, const char *spec, gw_codec **out);

/* Destroys a codec. Encoders made of it stay valid; an exchange that uses it must have been destroyed before. NULL is
 * allowed. */
GW_API void gw_codec_destroy(gw_codec *codec);

/* What a codec is, and what it does with its options. Both texts live as long as the codec. */
typedef struct gw_codec_traits {
    const char *name; /* for example "ternary" */
    /* The specification with every option spelled out in a fixed order. Two codecs with equal canonical text behave
     * alike. */
    const char *canonical;
    bool lossy;
    bool unbiased; /* what it sends is right on average */
    /* It makes one decision for all tensors of the network (scope=global). Then measure all tensors, and call
     * gw_encoders_combine, before you encode one. Shared numbers (ternary's) are combined over tensors as well as over
     * workers. */
    bool global;
    /* An exchange makes all tensors one group, whatever its options say, because every step waits for all of them: with
     * scope=global, unless topk has refresh= above 1. */
    bool one_group;
    /* The momentum M with which it codes velocities (momentum=); 0: it codes gradients. An optimizer that is not linear
     * in the gradients, such as Adam, fits no M above 0. */
    double momentum;
    /* If momentum is above 0: what averages become (gw_encoder_deliver). false: gradients, for an optimizer with the
     * momentum M (output=gradient). true: velocities, for an optimizer without momentum. */
    bool velocity;
} gw_codec_traits;

/* Says what a codec is, and what it does with its options. All 0 for NULL. Any thread may call it. */
GW_API gw_codec_traits gw_codec_traits_of(const gw_codec *codec);

/* One option of a codec, for listings. */
typedef struct gw_codec_option {
    const char *key;
    const char *default_value;
    const char *values; /* legal values in words, for example "0 or more; 0 switches clipping off" */
    const char *help;   /* one line */
} gw_codec_option;

/* What a codec lost in a training of experiments/, against floats with the same seeds. */
typedef struct gw_codec_loss {
    const char *spec; /* the codec; NULL ends a list */
    const char *network;
    double points;             /* of test accuracy in percent; below 0: it ended better than floats */
    double bits_up, bits_down; /* of an element: pushes from the workers, averages back to them */
    uint32_t n_seeds;
} gw_codec_loss;

/* One codec, for listings. All strings are static. */
typedef struct gw_codec_info {
    const char *name;
    const char *summary; /* one line */
    const char *source;  /* paper */
    const gw_codec_option *options;
    size_t n_options;
    uint8_t wire_id;
    bool lossy;
    bool unbiased;               /* with its default options */
    const gw_codec_loss *losses; /* its last one has no spec; NULL: no training is known */
    /* specifications that together use all that the codec can do, NULL-ended. The first is its name alone */
    const char *const *examples;
} gw_codec_info;

/* The i-th codec of this library, from 0; NULL past the last one. Static storage. Any thread may call it. */
GW_API const gw_codec_info *gw_codec_list(size_t i);

/* ---- encoding ------------------------------------------------------------------------------- */

/* What a codec needs to know of a tensor. */
typedef struct gw_tensor {
    const char *name; /* for example "conv1.weight"; copied; shorter than GW_MAX_NAME; NULL is "" */
    uint32_t id;      /* position in the declared order of all tensors */
    uint64_t n_elems; /* 0 .. GW_MAX_ELEMENTS */
    bool last_layer;  /* it belongs to the last classification layer; the option skip=last leaves it in float */
} gw_tensor;

/* True if the codec's options leave this tensor in float (ternary's skip= and min=): its frames are those of `none`.
 * The answer depends on the tensor's name, size and last_layer, and not on its id. False for NULL. */
GW_API bool gw_codec_leaves_float(const gw_codec *codec, const gw_tensor *tensor);

/* Checks that every name and pattern of skip= fits one of these tensors, which are all that the codec will see. A name
 * that fits none is a mistake: a tensor would be coded that was to be left in float. Errors: GW_ERR_SPEC (the sentence
 * says which name fits none), GW_ERR_ARGUMENT (a NULL). Any thread may call it. */
GW_API GW_MUST_CHECK gw_status gw_codec_check_skip(const gw_codec *codec, const gw_tensor *tensors, uint32_t n_tensors);

/* How frames are written, if that is a choice. It changes their bytes and what they cost, and never what they decode
 * to. */
typedef enum gw_wire {
    GW_WIRE_AUTO,  /* an exchange measures both and takes the faster one; outside an exchange: GW_WIRE_SMALL */
    GW_WIRE_SMALL, /* the fewest bytes */
    GW_WIRE_FAST   /* the fewest processor cycles */
} gw_wire;

/* What the random numbers of an encoder depend on, besides the tensor's id. */
typedef struct gw_draw {
    uint64_t seed;
    uint32_t rank; /* below GW_MAX_WORKERS */
    uint32_t step;
} gw_draw;

typedef struct gw_measure {
    bool finite;        /* false: a NaN or Inf was found, the shared numbers are not set */
    uint64_t bad_index; /* if finite is false: the first element that is not finite */
    double max_abs;     /* max |g_i|; if there is a residual, of the gradient plus the residual */
    /* topk and onebit, which do not use these, may leave them 0. With momentum=, all are of the velocity. */
    double sum_abs_bound; /* TernGrad's bound gap: max|g| * |g|_1 / |g|_2^2; 0 for zeros, and with residual=on */
    double mean, sigma;   /* population mean and standard deviation of the whole tensor (no buckets) */
} gw_measure;

/* What one worker keeps for one tensor: the codec (or float, if skip= or min= say so), scratch memory, and the codec's
 * state between steps. Only one thread at a time may use an encoder. */
typedef struct gw_encoder gw_encoder;

/* Creates an encoder of one tensor. It keeps copies, so the codec may be destroyed after the call. The caller destroys
 * *out with gw_encoder_destroy. Errors: GW_ERR_ARGUMENT (a NULL, too many elements, a name that is too long),
 * GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_encoder_create(gw_context *context, const gw_codec *codec, const gw_tensor *tensor,
                                                 gw_encoder **out);

/* Destroys an encoder. NULL is allowed. */
GW_API void gw_encoder_destroy(gw_encoder *encoder);

/* What a caller must know of an encoder. It does not change. */
typedef struct gw_encoder_traits {
    /* How many float32 numbers of this tensor the workers share (element-wise maximum). ternary shares 1, or one per
     * bucket. gspar with share=on shares 1. Float codecs, and codecs whose workers do not share scalers, share 0. */
    uint64_t n_shared;
    /* Slices of this tensor must begin and end at multiples of this many elements. The last one may also end at the
     * tensor's end. It is a multiple of GW_SLICE_ALIGN. */
    uint64_t slice_align;
    size_t state_bytes; /* how many bytes gw_encoder_save writes; 0 if this tensor's codec has no state */
} gw_encoder_traits;

/* Says what a caller must know of an encoder. All 0 for NULL. */
GW_API gw_encoder_traits gw_encoder_traits_of(const gw_encoder *encoder);

/* The most bytes that a frame of a slice can take, of n_elems elements, at most the tensor's. gw_encoder_encode needs a
 * buffer of at least this size. 0 for NULL. */
GW_API size_t gw_encoder_bound(const gw_encoder *encoder, uint64_t n_elems);

/* Measures g[0..n_elems). Writes this worker's shared numbers, and *info if info is not NULL. `shared` has room for
 * n_shared numbers: as many as gw_encoder_traits says, at least. It may be NULL if the count is 0. The encoder keeps
 * what gw_encoder_encode needs (clip values, scalers that are not shared). A gradient that is not finite is no error
 * here: *info says so, and gw_encoder_encode then refuses it. The call reads g only once if the codec allows that.
 * Errors: GW_ERR_CAPACITY (n_shared is too small; nothing is written then), GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_encoder_measure(gw_encoder *encoder, const float *g, float *shared, size_t n_shared,
                                                  gw_measure *info);

/* If the codec is global (gw_codec_traits): lets the n encoders of all tensors of the network decide together. topk
 * with scope=global selects: every refresh= steps from all tensors together, with a new threshold, and in other steps
 * from each tensor with the threshold that follows from the last one and from how much that let through. Give them in
 * declared order. All must be of one codec, and have been measured in this step as finite. Their gradients must still
 * be where they were measured. With other codecs the call only checks that. *bad: the first tensor whose gradient plus
 * residual turns out not to be finite; n if there is none. If bad is NULL, such a tensor is GW_ERR_NONFINITE. The first
 * encoder holds the decision. So do not destroy it before the others have encoded. Errors: GW_ERR_ORDER (one is not
 * measured), GW_ERR_NONFINITE (one was measured as not finite), GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_encoders_combine(gw_encoder *const *encoders, uint32_t n, uint32_t *bad);

/* Encodes elements [begin, begin+count) of a tensor into one frame. g points to the WHOLE tensor, the one that was
 * measured last. `shared` holds the combined numbers of the whole tensor; NULL: this worker's own. Errors: GW_ERR_ORDER
 * (not measured), GW_ERR_NONFINITE, GW_ERR_ARGUMENT (begin or count is not aligned, or out of range; a shared number is
 * below this worker's own, or not finite), GW_ERR_CAPACITY (dst_capacity is below gw_encoder_bound), GW_ERR_MEMORY.
 * After an error dst holds nothing useful. */
GW_API GW_MUST_CHECK gw_status gw_encoder_encode(gw_encoder *encoder, const float *g, const float *shared,
                                                 const gw_draw *draw, uint64_t begin, uint64_t count, void *dst,
                                                 size_t dst_capacity, size_t *frame_bytes);

/* If the codec has momentum=: turns the average s of elements [begin, begin+count), which gw_decode gave, into what the
 * optimizer gets: s - M*s' with the average s' of the step before, or s if output=velocity (DGC: Lin et al., ICLR 2018,
 * section 3.1; docs/design.md). Without momentum= it changes nothing. `average` points to element `begin`. Call it once
 * for every element, between encode and commit. If elements are left out, the step's average is forgotten, and s' stays
 * as it was. Errors: GW_ERR_ARGUMENT (a NULL, elements that are not there), GW_ERR_ORDER (not measured in this
 * step). */
GW_API GW_MUST_CHECK gw_status gw_encoder_deliver(gw_encoder *encoder, float *average, uint64_t begin, uint64_t count);

/* Measures and encodes a whole tensor with this worker's own numbers (or `shared`). The bytes are the same as those of
 * the two calls. `info` may be NULL. Errors: GW_ERR_NONFINITE (the tensor is not finite), and those of the two
 * calls. */
GW_API GW_MUST_CHECK gw_status gw_encoder_measure_encode(gw_encoder *encoder, const float *g, const float *shared,
                                                         const gw_draw *draw, void *dst, size_t dst_capacity,
                                                         size_t *frame_bytes, gw_measure *info);

/* ---- what stays between steps ---------------------------------------------------------------- */

/* Ends a step. A codec with state (topk: residual and threshold; onebit and ternary with residual=on: residual; with
 * momentum=, velocity and average too) changes it only here. committed true: what was measured last counts as sent.
 * committed false: the state is as it was before the measurement. Say false if the step is dropped, because a gradient
 * of some worker was not finite. If you measure again without this call, the step is dropped too. A codec without state
 * does nothing. Encode any number of slices before the call, and none after it. Errors: GW_ERR_ARGUMENT (NULL). */
GW_API GW_MUST_CHECK gw_status gw_encoder_commit(gw_encoder *encoder, bool committed);

/* Writes the codec's state, as bytes that any machine can read, with a checksum. Call it between two steps. It writes
 * nothing if the codec has no state. Errors: GW_ERR_CAPACITY, GW_ERR_ARGUMENT. */
GW_API GW_MUST_CHECK gw_status gw_encoder_save(const gw_encoder *encoder, void *dst, size_t dst_capacity);

/* Puts a saved state back. The next step is then the one that would have followed the save. The codec's options may
 * differ from those at the save, but it must keep the same: so residual= and output= must be as they were, and there is
 * momentum= now if there was then. Errors: GW_ERR_ARGUMENT (the state is of a tensor with another number of elements,
 * is of another codec, or was altered). Then nothing has changed. */
GW_API GW_MUST_CHECK gw_status gw_encoder_load(gw_encoder *encoder, const void *src, size_t src_bytes);

/* What an encoder keeps between steps, for reports. All fields are 0 if there is no state. */
typedef struct gw_encoder_condition {
    double residual_norm;   /* |e|_2 */
    double threshold;       /* the threshold that is kept */
    uint64_t threshold_age; /* steps since the threshold was taken, that step included */
} gw_encoder_condition;

/* ---- frames --------------------------------------------------------------------------------- */

/* What a frame says of itself. gw_frame_parse has checked all of it against the frame's length and checksum. */
typedef struct gw_frame_info {
    const char *codec; /* name, static */
    const char *code;  /* how values are packed: "f32", "2bit", "packed", ...; static */
    bool average;      /* true: an owner's answer; false: one worker's push */
    /* a push: its worker asks for an average written as GW_WIRE_FAST. An average: a worker has asked for that */
    bool fast;
    bool always_finite; /* true: every such frame decodes to finite numbers. false: it may hold an infinity or a NaN */
    uint32_t workers;   /* how many workers' frames are added up in it; 1 for a push */
    uint32_t rank;      /* who encoded it; 0 for an average */
    uint32_t tensor_id;
    uint32_t step;
    uint64_t begin, n_elems; /* the slice */
    uint64_t bucket;         /* elements per scaler; 0: the frame has one scaler */
    uint64_t n_scalers;      /* ternary, onebit: scalers in the frame; gspar: 1, its q; else 0 */
    size_t frame_bytes;      /* header + scalers + payload */
    size_t payload_bytes;    /* packed symbols only */
} gw_frame_info;

/* Parses the frame at the start of src, and checks it with its checksum. src may hold more bytes after the frame. Takes
 * no memory. Any thread may call it. Errors: the GW_ERR_FRAME_* family. */
GW_API GW_MUST_CHECK gw_status gw_frame_parse(const void *src, size_t src_bytes, gw_frame_info *info);

/* The i-th scaler of a frame that gw_frame_parse has accepted, from 0. For gspar it is q (1/lambda). 0 if there is
 * none. */
GW_API float gw_frame_scaler(const void *src, size_t src_bytes, uint64_t i);

/* Counts the symbols of a frame: the values -1, 0 and 1 of a ternary push, or the integer sums of an average. For other
 * codecs it counts signs. `counts` has room for n_counts entries. The call sets the first 2*workers+1 of them: the
 * entry of a symbol is number symbol+workers. The frame itself says how many `workers` it has (gw_frame_info). So check
 * that number if you do not trust the frame. counts NULL: only the two results below are set. *n_nonzero: how many
 * elements are not zero. *entropy_bits: order-0 entropy in bits per element. Each of the two may be NULL. The entropy
 * of sparse and gspar frames is the sum of two entropies. The first says which elements are absent, which are there
 * without a value of their own, and which are there with one. The second is of the signs of elements without a value of
 * their own; in gspar averages, of the sums of these signs. The entropy of float frames is 0. Errors: GW_ERR_CAPACITY
 * (n_counts is too small; nothing is written then), GW_ERR_FRAME_*, GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_frame_symbols(gw_context *context, const void *src, size_t src_bytes,
                                                uint64_t *counts, size_t n_counts, uint64_t *n_nonzero,
                                                double *entropy_bits);

/* Decodes one frame into out[0..n_elems). n_elems must be the frame's. The call writes nothing outside `out`. After an
 * error the contents of `out` are unspecified. Errors: GW_ERR_FRAME_*, GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_decode(gw_context *context, const void *src, size_t src_bytes, float *out,
                                         uint64_t n_elems);

typedef struct gw_reduce_options {
    size_t struct_bytes; /* sizeof(gw_reduce_options) */
    /* for ternary frames: gw_reduce follows its options pull= and entropy=. NULL, or another codec: their defaults */
    const gw_codec *codec;
} gw_reduce_options;

/* The most bytes that the average of these frames can take. 0: a frame is not valid. It does not check checksums;
 * gw_reduce does. */
GW_API size_t gw_reduce_bound(const void *const *frames, const size_t *frame_bytes, uint32_t n_frames);

/* Adds n_frames pushes of one slice, and writes one frame that holds their average. The owner of a slice does this. The
 * frames may come in any order: they are added in rank order. ternary with shared scalers adds integers. Floats are
 * added in float32. gspar with share=on does both. Averages of ternary codecs hold exact sums, so they can be added
 * like pushes. The result is then the average over all workers in them, with the same bits as if all pushes had been
 * added at once. options: NULL means the defaults. Errors: GW_ERR_FRAME_MISMATCH (frames of different slices, codecs,
 * steps or scalers, or two frames of one rank; the sentence names both), other GW_ERR_FRAME_*, GW_ERR_CAPACITY,
 * GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_reduce(gw_context *context, const void *const *frames, const size_t *frame_bytes,
                                         uint32_t n_frames, const gw_reduce_options *options, void *dst,
                                         size_t dst_capacity, size_t *dst_bytes);

/* ---- in one call -------------------------------------------------------------------------------------------------
 *
 * For a first try, and for programs that keep frames in files. Nothing is kept between calls: a codec with a residual
 * begins with an empty one. Workers whose frames are to be averaged must share their numbers first (gw_encoder_measure)
 * or name a codec that shares none, such as ternary:share=off or none. */

/* The most bytes that the frame of gw_encode_once can take. spec: a specification. 0: the specification is not valid,
 * there are too many elements, or memory is short; gw_last_error() says which. Any thread may call it. */
GW_API size_t gw_encode_bound(gw_context *context, const char *spec, uint64_t n_elems);

/* Encodes the whole array g[0..n_elems), as one worker would push it, with its own numbers. draw: where random numbers
 * are drawn; NULL: seed, rank and step 0. dst has room for dst_capacity bytes, at least gw_encode_bound. The frame's
 * tensor is number 0 and has no name. Any thread may call it. Errors: GW_ERR_SPEC, GW_ERR_NONFINITE, GW_ERR_CAPACITY,
 * GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_encode_once(gw_context *context, const char *spec, const float *g, uint64_t n_elems,
                                              const gw_draw *draw, void *dst, size_t dst_capacity, size_t *frame_bytes);

/* ---- bare codes -------------------------------------------------------------------------------------------------
 *
 * Ternary values without a frame, two bits each, as the parameter server's uint8 keys hold them: four to a byte, the
 * first in the lowest bits, 00 = -1, 01 = 0, 10 = +1. A last byte that is not full is padded with 01. There is no
 * scaler in them: send it in another way. Any thread may call these. */

/* Packs values[0..n_elems), each -1, 0 or 1, into (n_elems + 3) / 4 bytes. Errors: GW_ERR_CAPACITY,
 * GW_ERR_ARGUMENT (the sentence names the first value that is none of these; codes are unspecified then). */
GW_API GW_MUST_CHECK gw_status gw_codes_pack(const int8_t *values, uint64_t n_elems, uint8_t *codes,
                                             size_t codes_capacity);

/* Unpacks n_elems values. codes_bytes must be (n_elems + 3) / 4. Errors: GW_ERR_ARGUMENT: another length, the
 * code 11, or padding that is not 01; values are unspecified then. */
GW_API GW_MUST_CHECK gw_status gw_codes_unpack(const uint8_t *codes, size_t codes_bytes, int8_t *values,
                                               uint64_t n_elems);

#ifdef __cplusplus
}
#endif
#endif
