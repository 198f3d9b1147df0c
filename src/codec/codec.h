/* The inside of codecs: the record that every codec fills, and the objects that the public functions give it. Wire
 * codecs (wire_codec.h) read frames; they have records of their own. */
#ifndef GW_CODEC_CODEC_H
#define GW_CODEC_CODEC_H

#include "codec/momentum.h"
#include "codec/wire_codec.h"

#include <gradwire/codec.h>

/* ---- options -------------------------------------------------------------------------------- */

enum gw_option_kind { GW_OPTION_NUMBER, GW_OPTION_COUNT, GW_OPTION_WORD, GW_OPTION_TEXT };

/* How one option is read into a codec's options struct. `info` is what listings show. */
struct gw_option_rule {
    enum gw_option_kind kind;
    size_t offset;   /* in the options struct: double, uint64_t, int or char[GW_OPTION_TEXT_BYTES] */
    double min, max; /* NUMBER, COUNT */
    /* WORD: NULL-ended; the index is stored. NUMBER: one word that stands for infinity; NULL: there is none */
    const char *const *words;
};
#define GW_OPTION_TEXT_BYTES 2048

/* A number as the text of a default. */
#define GW_TEXT_(number) #number
#define GW_TEXT(number) GW_TEXT_(number)

/* ---- the record ----------------------------------------------------------------------------- */

/* What trainings lost with a codec (losses.c). */
extern const gw_codec_loss gw_losses_none[], gw_losses_bf16[], gw_losses_f16[], gw_losses_ternary[], gw_losses_gspar[],
    gw_losses_uniform[], gw_losses_topk[], gw_losses_onebit[];

struct gw_codec_record {
    gw_codec_info info;                 /* wire_id: of the frames that encode writes, unless encode sets another one */
    const struct gw_option_rule *rules; /* info.n_options rules, in the same order */
    size_t options_bytes;

    /* Refuses combinations of options. NULL: all are legal. */
    gw_status (*check_options)(const void *options);
    /* True if this tensor is left in float (skip=, min=). NULL: never. */
    bool (*leaves_float)(const void *options, const gw_tensor *tensor);
    bool (*is_global)(const void *options);    /* NULL: never */
    bool (*is_one_group)(const void *options); /* NULL: never */
    bool (*keeps_state)(const void *options);  /* NULL: if there is settle */
    size_t momentum_at; /* where a struct gw_momentum_options stands in the options; 0: it has no momentum= */
    size_t skip_at;     /* where the names and patterns of skip= stand, joined by +; 0: it has no skip= */
    /* True if pushes or averages have other bytes with GW_WIRE_FAST than with GW_WIRE_SMALL. NULL: never. encode
     * follows encoder->push_wire. reduce follows GW_FLAG_FAST of the average. */
    bool (*has_wire_choice)(const void *options);

    /* Encoder: see the public functions of the same names. */
    size_t state_bytes; /* of encoder->state, which is zeros before open. The encoder takes it and frees it */
    gw_status (*open)(gw_encoder *encoder); /* close is called after it, also after an error. NULL: nothing is done */
    void (*close)(gw_encoder *encoder);
    uint64_t (*shared_count)(const gw_encoder *encoder);
    uint32_t (*bucket)(const gw_encoder *encoder);
    size_t (*payload_bound)(const gw_encoder *encoder, uint64_t n_elems);
    /* NULL: the tensor is measured (measure.h), and nothing is done besides. */
    gw_status (*measure)(gw_encoder *encoder, const float *g, float *shared, gw_measure *info);
    /* Decides at the beginning of a step whether tensors wait for each other in it. NULL: they never do. */
    bool (*decide)(gw_encoder *const *encoders, uint32_t n);
    /* Makes the decision for all tensors of the network, after they are measured. *bad: the first one that is not
     * finite after all, and its info says so; n: there is none. NULL: there is no decision. */
    gw_status (*combine)(gw_encoder *const *encoders, uint32_t n, uint32_t *bad);
    /* Fills payload and scalers behind the header at dst, and the codec's own fields of *frame. dst has room for the
     * bound. If the codec hashes what it writes, it may seal the frame. Else the caller seals it. */
    gw_status (*encode)(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw, uint8_t *dst,
                        struct gw_frame *frame);

    /* The state that a codec keeps between steps is encoder->residual, and what stands before it in a saved state (its
     * head). The functions are called only if the codec keeps a state with its options.
     *
     * What was sent need not be taken out of the residual at once. settle takes it out, and clears the notes beside the
     * residual, of sent_bytes bytes. NULL: the codec never keeps a state. */
    void (*settle)(const gw_encoder *encoder);
    size_t (*sent_bytes)(const gw_encoder *encoder);
    /* Ends a step. True: the buffer that was written becomes the residual. NULL: it does if `committed` is true. */
    bool (*commit)(gw_encoder *encoder, bool committed);
    /* See gw_encoder_rest. commit then sees encoder->rests. False: the tensor cannot rest in this step, and nothing has
     * changed. */
    bool (*rest)(gw_encoder *encoder);
    /* These do what is to be done besides for the residual. NULL: nothing, and head_bytes is 0. scale multiplies all
     * numbers that have the unit of the gradient. If load fails, it changes nothing. merge gets the head of one of the
     * states. */
    size_t head_bytes;
    void (*scale)(gw_encoder *encoder, float factor);
    void (*save)(const gw_encoder *encoder, uint8_t *dst);
    gw_status (*load)(gw_encoder *encoder, const uint8_t *src);
    void (*merge)(const uint8_t *one, uint8_t *dst);
    void (*describe)(const gw_encoder *encoder, gw_encoder_condition *condition);
    void (*run_in)(gw_encoder *encoder, const float *g, uint32_t rank); /* see gw_encoder_run_in. NULL: nothing */
};

/* All codecs, NULL-ended. A new codec is one folder and one line there. */
extern const struct gw_codec_record *const gw_codec_records[];
extern const struct gw_codec_record gw_codec_none; /* the codec of tensors that are left in float */

/* True if averages of this tensor's frames can be averaged again. That holds for integers with a shared unit. */
bool gw_encoder_adds_on_the_way(const gw_encoder *encoder);

/* For measurements. Gives a new encoder a state as if many steps had gone before, each with a gradient whose elements
 * are distributed like those of g. Without it the first hundreds of steps of topk send up to four times as much as
 * later ones. rank: each worker gets another residual. */
void gw_encoder_run_in(gw_encoder *encoder, const float *g, uint32_t rank);

/* Takes the place of gw_encoder_measure if all elements of the gradient are zero. Then nothing of the tensor is sent in
 * this step, and the codec's state does not change, whatever commit says. False: the codec keeps no state, or sends all
 * elements; then call gw_encoder_measure. */
bool gw_encoder_rest(gw_encoder *encoder);
/* True if the encoder's frames hold the gradient's own bytes, so that they may be sent from where it stands. */
bool gw_encoder_is_plain(const gw_encoder *encoder);
/* Writes the header of such a frame: gw_encoder_encode without a copy of the gradient. `head` has room for
 * GW_HEADER_BYTES. */
gw_status gw_encoder_encode_head(gw_encoder *encoder, const float *g, const gw_draw *draw, uint64_t begin,
                                 uint64_t count, void *head);
/* gw_encoder_traits.state_bytes; 0 for NULL. */
size_t gw_encoder_state_bytes(const gw_encoder *encoder);

/* The wire codec that reads the frames of this encoder. */
const struct gw_wire_codec *gw_encoder_wire(const gw_encoder *encoder);

struct gw_codec {
    gw_context *context;
    const struct gw_codec_record *record;
    void *options;
    char *canonical;
};

struct gw_encoder {
    gw_context *context;
    const struct gw_codec_record *record; /* the record of `none` for tensors that are left in float */
    void *options;                        /* a copy of the codec's; NULL if record is that of `none` instead */
    gw_tensor tensor;
    char *name;      /* a copy, to which tensor.name points */
    char shown[128]; /* the name for sentences: its beginning and its end if it is long */
    uint32_t nth;    /* its place in the last gw_encoders_combine: none may be there twice */
    bool measured, rests;
    gw_wire push_wire, pull_wire; /* AUTO or SMALL, unless has_wire_choice is true */
    gw_measure info;
    void *state;                  /* belongs to the record */
    struct gw_residual residual;  /* if the codec keeps a state */
    struct gw_momentum *momentum; /* NULL: gradients are coded as they are */
    const float *coded;           /* what was measured: the gradient, or the velocity that momentum made of it */
};

/* True if the record keeps a state with these options. */
static inline bool gw_record_keeps_state(const struct gw_codec_record *record, const void *options)
{
    return record->settle && (!record->keeps_state || record->keeps_state(options));
}

static inline bool gw_encoder_keeps_state(const gw_encoder *encoder)
{
    return gw_record_keeps_state(encoder->record, encoder->options);
}

/* True if `pattern` matches the tensor: "last", or a glob with * and ?; several are joined by '+'. */
bool gw_pattern_matches(const char *pattern, const gw_tensor *tensor);

#endif
