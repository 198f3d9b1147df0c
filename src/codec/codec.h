/* The inside of codecs: the record that every codec fills, and the objects that the public calls hand to it. Frames are
 * read by wire codecs (wire_codec.h), which have records of their own. */
#ifndef GW_CODEC_CODEC_H
#define GW_CODEC_CODEC_H

#include "codec/wire_codec.h"

#include <gradwire/codec.h>

/* ---- options -------------------------------------------------------------------------------- */

enum gw_option_kind { GW_OPTION_NUMBER, GW_OPTION_COUNT, GW_OPTION_WORD, GW_OPTION_TEXT };

/* How one option is read into a codec's options struct. `info` is what listings show. */
struct gw_option_rule {
    enum gw_option_kind kind;
    size_t offset;            /* in the options struct: double, uint64_t, int or char[GW_OPTION_TEXT_BYTES] */
    double min, max;          /* NUMBER, COUNT */
    const char *const *words; /* WORD: NULL-ended; the index is stored */
};
#define GW_OPTION_TEXT_BYTES 96

/* ---- the record ----------------------------------------------------------------------------- */

struct gw_codec_record {
    gw_codec_info info;                 /* wire_id: of the frames that encode writes, unless it says otherwise there */
    const struct gw_option_rule *rules; /* info.n_options of them, in the same order */
    size_t options_bytes;

    /* Refuses combinations of options. NULL: all are legal. */
    gw_status (*check_options)(const void *options);
    /* True if this tensor is left in float (skip=, min=). NULL: never. */
    bool (*leaves_float)(const void *options, const gw_tensor *tensor);
    bool (*is_global)(const void *options); /* NULL: never */
    /* True if GW_WIRE_FAST makes other bytes, of pushes or of averages, than GW_WIRE_SMALL. NULL: never. encode
     * looks at encoder->push_wire, reduce at GW_FLAG_FAST of the average. */
    bool (*has_wire_choice)(const void *options);

    /* Encoder: see the public functions of the same names. */
    gw_status (*open)(gw_encoder *encoder);
    void (*close)(gw_encoder *encoder);
    uint64_t (*shared_count)(const gw_encoder *encoder);
    uint32_t (*bucket)(const gw_encoder *encoder);
    size_t (*payload_bound)(const gw_encoder *encoder, uint64_t n_elems);
    gw_status (*measure)(gw_encoder *encoder, const float *g, float *shared, gw_measure *info);
    /* What all tensors of the network decide together once they are measured. NULL: nothing. */
    gw_status (*combine)(gw_encoder *const *encoders, uint32_t n, uint32_t *bad);
    /* Fills the payload (and scalers) behind the header at dst and the fields of *frame that are the codec's own. dst
     * has room for the bound. A codec that hashes what it writes may seal the frame; else that is done after it. */
    gw_status (*encode)(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw, uint8_t *dst,
                        struct gw_frame *frame);
    /* Measure and encode of a whole tensor with its own numbers, in one pass; the same bytes as one after the other.
     * can_fuse NULL, or false for this encoder: they are done one after the other. */
    bool (*can_fuse)(const gw_encoder *encoder);
    gw_status (*measure_encode)(gw_encoder *encoder, const float *g, const gw_draw *draw, uint8_t *dst,
                                struct gw_frame *frame, gw_measure *info);

    /* What is kept between steps. All NULL if nothing is kept. save and load have state_bytes bytes; the latter
     * changes nothing if it fails. merge gets n_states states of one tensor of n_elems elements, state_bytes each,
     * that begin `at` bytes on. */
    void (*commit)(gw_encoder *encoder, bool committed);
    /* See gw_encoder_rest; commit then sees encoder->rests. False: not in this step, and nothing has changed. */
    bool (*rest)(gw_encoder *encoder);
    void (*scale)(gw_encoder *encoder, float factor); /* multiplies all that is in the gradient's unit */
    size_t (*state_bytes)(uint64_t n_elems);
    void (*save)(const gw_encoder *encoder, uint8_t *dst);
    gw_status (*load)(gw_encoder *encoder, const uint8_t *src);
    void (*merge)(const void *const *states, uint32_t n_states, size_t at, uint64_t n_elems, uint8_t *dst);
    void (*describe)(const gw_encoder *encoder, gw_encoder_condition *condition);
    void (*run_in)(gw_encoder *encoder, const float *g, uint32_t rank); /* see gw_encoder_run_in. NULL: nothing */
};

/* All codecs, NULL-ended. A new codec is one folder and one line there. */
extern const struct gw_codec_record *const gw_codec_records[];
extern const struct gw_codec_record gw_codec_none; /* for tensors that are left in float */

/* True if averages of this tensor's frames can be averaged again, which holds for integers with a shared unit. */
bool gw_encoder_adds_on_the_way(const gw_encoder *encoder);

/* For measurements. Makes what a new encoder keeps between steps as if many steps had gone before, each with a gradient
 * whose elements are drawn like g's. Without it the first hundreds of steps of topk send up to four times as much as
 * the later ones. rank: each worker has another residual. */
void gw_encoder_run_in(gw_encoder *encoder, const float *g, uint32_t rank);

/* In place of gw_encoder_measure, for a gradient that is zero throughout: nothing is sent of the tensor in this step,
 * and what is kept between steps stays as it is, whatever commit says. False: this codec keeps nothing, or sends all;
 * then measure. */
bool gw_encoder_rest(gw_encoder *encoder);

/* What reads the frames that the encoder writes. */
const struct gw_wire_codec *gw_encoder_wire(const gw_encoder *encoder);

struct gw_codec {
    gw_context *context;
    const struct gw_codec_record *record;
    void *options;
    char *canonical;
};

struct gw_encoder {
    gw_context *context;
    const struct gw_codec_record *record; /* `none` for tensors left in float */
    const void *options;                  /* the codec's; NULL if record is not the codec's */
    void *own_options;
    gw_tensor tensor;
    char name[GW_MAX_NAME];
    bool measured, finite, rests;
    gw_wire push_wire, pull_wire; /* AUTO or SMALL unless has_wire_choice */
    gw_measure info;
    void *state; /* the record's */
};

/* Reads options (parse.c). Fills record->options_bytes bytes with defaults, then with `text` ("k=v,k=v" or NULL). */
gw_status gw_options_parse(const struct gw_codec_record *record, const char *text, void *options);
/* "name:key=value,..." with every option; a NULL dst counts. Returns the length without the closing 0. */
size_t gw_options_print(const struct gw_codec_record *record, const void *options, char *dst, size_t capacity);

/* True if `pattern` matches the tensor: "last", or a glob with * and ?; several are joined by '+'. */
bool gw_pattern_matches(const char *pattern, const gw_tensor *tensor);

#endif
