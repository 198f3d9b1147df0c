/* Measures what a codec costs on drawn gradients: encodes them, reduces the frames, and counts bits and seconds. */
#include "codec/state.h"
#include "codec_cost.h"
#include "base/clock.h"
#include "base/error.h"
#include "probe/gradient.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_ELEMENTS = 256 << 10,
    LEAST_ELEMENTS = 32 << 10, /* with so many, a frame's header counts little */
    ALL_ELEMENTS = 16 << 20,   /* of all workers together */
    TIMED_ELEMENTS = 4 << 20,
    TIMED_RUNS = 5
};

/* The workers' gradients and frames. Workers encode one after another. Each has an encoder of its own, because a
 * codec's state belongs to one worker. */
struct workers {
    gw_context *context;
    const gw_codec *codec;
    uint32_t count;
    uint64_t n_elems;
    uint64_t n_shared;
    float *gradient, *own, *shared;
    void *push, *average;
    size_t push_capacity, average_capacity, average_bytes;
    void **frames;
    size_t *frame_bytes;
};

static gw_status open_encoder(const struct workers *w, gw_encoder **encoder)
{
    const gw_tensor tensor = {.name = "gradient", .n_elems = w->n_elems};
    return gw_encoder_create(w->context, w->codec, &tensor, encoder);
}

static gw_status measure(const struct workers *w, gw_encoder *encoder, float *shared)
{
    bool together;
    GW_TRY(gw_encoders_begin(&encoder, 1, &together));
    GW_TRY(gw_encoder_measure(encoder, w->gradient, shared, w->n_shared, NULL));
    return together ? gw_encoders_combine(&encoder, 1, NULL) : GW_OK;
}

static gw_status encode(struct workers *w, gw_encoder *encoder, uint32_t rank, size_t *bytes)
{
    const gw_draw draw = {.seed = 1, .rank = rank};
    GW_TRY(measure(w, encoder, w->own));
    return gw_encoder_encode(encoder, w->gradient, w->n_shared ? w->shared : NULL, &draw, 0, w->n_elems, w->push,
                             w->push_capacity, bytes);
}

/* Collects the shared numbers of all workers. */
static gw_status share(struct workers *w)
{
    for (uint32_t rank = 0; rank < w->count && w->n_shared; rank++) {
        gw_encoder *encoder;
        gw_draw_gradient(w->gradient, rank * w->n_elems, w->n_elems);
        GW_TRY(open_encoder(w, &encoder));
        gw_status status = measure(w, encoder, w->own);
        gw_encoder_destroy(encoder);
        GW_TRY(status);
        for (uint64_t i = 0; i < w->n_shared; i++)
            w->shared[i] = rank == 0 || w->own[i] > w->shared[i] ? w->own[i] : w->shared[i];
    }
    return GW_OK;
}

static gw_status prepare(struct workers *w)
{
    gw_encoder *encoder;
    GW_TRY(open_encoder(w, &encoder));
    w->n_shared = gw_encoder_traits_of(encoder).n_shared;
    w->push_capacity = gw_encoder_bound(encoder, w->n_elems);
    gw_encoder_destroy(encoder);
    w->gradient = calloc(w->n_elems, sizeof *w->gradient);
    w->own = calloc(w->n_shared + 1, sizeof *w->own);
    w->shared = calloc(w->n_shared + 1, sizeof *w->shared);
    w->push = malloc(w->push_capacity);
    w->frames = calloc(w->count, sizeof *w->frames);
    w->frame_bytes = calloc(w->count, sizeof *w->frame_bytes);
    if (!w->gradient || !w->own || !w->shared || !w->push || !w->frames || !w->frame_bytes)
        return gw_fail(GW_ERR_MEMORY, "out of memory for %u workers' gradients", w->count);
    return share(w);
}

static gw_status push_and_reduce(struct workers *w)
{
    for (uint32_t rank = 0; rank < w->count; rank++) {
        gw_encoder *encoder;
        gw_draw_gradient(w->gradient, rank * w->n_elems, w->n_elems);
        GW_TRY(open_encoder(w, &encoder));
        gw_status status = encode(w, encoder, rank, &w->frame_bytes[rank]);
        gw_encoder_destroy(encoder);
        GW_TRY(status);
        if (!(w->frames[rank] = malloc(w->frame_bytes[rank])))
            return gw_fail(GW_ERR_MEMORY, "out of memory for %u workers' frames", w->count);
        memcpy(w->frames[rank], w->push, w->frame_bytes[rank]);
    }
    const void *const *frames = (const void *const *)w->frames;
    const gw_reduce_options options = {.struct_bytes = sizeof options, .codec = w->codec};
    w->average_capacity = gw_reduce_bound(frames, w->frame_bytes, w->count);
    if (!(w->average = malloc(w->average_capacity)))
        return gw_fail(GW_ERR_MEMORY, "out of memory for an average");
    return gw_reduce(w->context, frames, w->frame_bytes, w->count, &options, w->average, w->average_capacity,
                     &w->average_bytes);
}

static void finish(struct workers *w)
{
    for (uint32_t rank = 0; w->frames && rank < w->count; rank++)
        free(w->frames[rank]);
    free(w->frames);
    free(w->frame_bytes);
    free(w->average);
    free(w->push);
    free(w->own);
    free(w->shared);
    free(w->gradient);
}

gw_status tool_codec_bits(gw_context *context, const gw_codec *codec, uint32_t machines, double *bits_up,
                          double *bits_down)
{
    struct workers w = {.context = context, .codec = codec};
    w.count = machines < TOOL_MOST_PUSHES ? machines : TOOL_MOST_PUSHES;
    w.n_elems = ALL_ELEMENTS / w.count;
    w.n_elems = w.n_elems < LEAST_ELEMENTS ? LEAST_ELEMENTS : w.n_elems > MOST_ELEMENTS ? MOST_ELEMENTS : w.n_elems;
    gw_status status = prepare(&w);
    if (status >= 0)
        status = push_and_reduce(&w);
    if (status >= 0) {
        double bytes = 0;
        for (uint32_t rank = 0; rank < w.count; rank++)
            bytes += (double)w.frame_bytes[rank];
        *bits_up = 8 * bytes / w.count / (double)w.n_elems;
        *bits_down = 8 * (double)w.average_bytes / (double)w.n_elems;
    }
    finish(&w);
    return status;
}

/* Runs each operation once. The gradient is that of the last worker. */
static gw_status time_once(struct workers *w, gw_encoder *encoder, float *out, double *encode_s, double *decode_s)
{
    size_t bytes;
    const double start = gw_clock_seconds();
    GW_TRY(encode(w, encoder, w->count - 1, &bytes));
    const double encoded = gw_clock_seconds();
    GW_TRY(gw_decode(w->context, w->average, w->average_bytes, out, w->n_elems));
    *encode_s = encoded - start;
    *decode_s = gw_clock_seconds() - encoded;
    return GW_OK;
}

gw_status tool_codec_seconds(gw_context *context, const gw_codec *codec, double *seconds_per_element)
{
    struct workers w = {.context = context, .codec = codec, .count = 2, .n_elems = TIMED_ELEMENTS};
    double encode_s[TIMED_RUNS], decode_s[TIMED_RUNS];
    gw_encoder *encoder = NULL;
    float *out = calloc(w.n_elems, sizeof *out);
    gw_status status = out ? prepare(&w) : gw_fail(GW_ERR_MEMORY, "out of memory for an average");
    if (status >= 0)
        status = push_and_reduce(&w);
    if (status >= 0)
        status = open_encoder(&w, &encoder);
    if (status >= 0) /* the first run touches memory for the first time, so it does not count */
        status = time_once(&w, encoder, out, &encode_s[0], &decode_s[0]);
    for (int run = 0; run < TIMED_RUNS && status >= 0; run++)
        status = time_once(&w, encoder, out, &encode_s[run], &decode_s[run]);
    if (status >= 0)
        *seconds_per_element = (gw_median(encode_s, TIMED_RUNS) + gw_median(decode_s, TIMED_RUNS)) / (double)w.n_elems;
    gw_encoder_destroy(encoder);
    free(out);
    finish(&w);
    return status;
}
