/* The public side of encoders. Arguments are checked here, once for all codecs. */
#include "codec/wire_choice.h"
#include "base/error.h"
#include "base/float_env.h"
#include "base/memory.h"
#include "codec/codec.h"
#include "codec/measure.h"
#include "codec/state.h"
#include "wire/hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool gw_codec_leaves_float(const gw_codec *codec, const gw_tensor *tensor)
{
    return codec && tensor && codec->record->leaves_float && codec->record->leaves_float(codec->options, tensor);
}

/* A sentence has no room for a long name, and must still say what is wrong. */
static void show(gw_encoder *encoder)
{
    enum { END = 60 };
    const size_t length = strlen(encoder->name);
    if (length < sizeof encoder->shown)
        memcpy(encoder->shown, encoder->name, length + 1);
    else
        snprintf(encoder->shown, sizeof encoder->shown, "%.*s...%s", END, encoder->name, encoder->name + length - END);
}

/* With output=gradient the momentum of a tensor in float would change nothing: what comes out is what went in. */
static gw_status open_momentum(gw_encoder *encoder, const gw_codec *codec)
{
    const gw_codec_traits traits = gw_codec_traits_of(codec);
    if (!(traits.momentum > 0) || (encoder->record != codec->record && !traits.velocity))
        return GW_OK;
    return gw_momentum_create(encoder->context, (float)traits.momentum, !traits.velocity, encoder->tensor.n_elems,
                              &encoder->momentum);
}

/* Takes what the encoder owns. */
static gw_status open_encoder(gw_encoder *encoder, const gw_codec *codec, const char *name)
{
    const struct gw_codec_record *record = encoder->record;
    encoder->tensor.name = encoder->name = gw_strdup(encoder->context, name);
    if (!encoder->name)
        return GW_ERR_MEMORY;
    show(encoder);
    if (record == codec->record) {
        encoder->options = gw_alloc(encoder->context, 1, record->options_bytes);
        if (!encoder->options)
            return GW_ERR_MEMORY;
        memcpy(encoder->options, codec->options, record->options_bytes);
    }
    if (gw_encoder_keeps_state(encoder))
        GW_TRY(gw_residual_init(encoder->context, encoder->tensor.n_elems, record->sent_bytes(encoder),
                                &encoder->residual));
    encoder->state = gw_calloc(encoder->context, 1, record->state_bytes);
    if (!encoder->state)
        return GW_ERR_MEMORY;
    if (record->open)
        GW_TRY(record->open(encoder));
    return open_momentum(encoder, codec);
}

gw_status gw_encoder_create(gw_context *context, const gw_codec *codec, const gw_tensor *tensor, gw_encoder **out)
{
    if (out)
        *out = NULL;
    if (!codec || !tensor || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoder_create: codec, tensor or out is NULL");
    const char *name = tensor->name ? tensor->name : "";
    if (strlen(name) >= GW_MAX_NAME)
        return gw_fail(GW_ERR_ARGUMENT, "tensor %u, '%.40s...', has a name of %zu bytes; at most %u are possible",
                       tensor->id, name, strlen(name), GW_MAX_NAME - 1);
    if (tensor->n_elems > GW_MAX_ELEMENTS)
        return gw_fail(GW_ERR_ARGUMENT, "tensor %u, '%.40s', has %llu elements; at most %llu are possible", tensor->id,
                       name, (unsigned long long)tensor->n_elems, GW_MAX_ELEMENTS);
    gw_encoder *encoder = gw_calloc(context, 1, sizeof *encoder);
    if (!encoder)
        return GW_ERR_MEMORY;
    encoder->context = context;
    encoder->tensor = *tensor;
    encoder->record = gw_codec_leaves_float(codec, tensor) ? &gw_codec_none : codec->record;
    gw_status status = open_encoder(encoder, codec, name);
    if (status < 0) {
        gw_encoder_destroy(encoder);
        return status;
    }
    *out = encoder;
    return GW_OK;
}

void gw_encoder_destroy(gw_encoder *encoder)
{
    if (!encoder)
        return;
    if (encoder->state && encoder->record->close)
        encoder->record->close(encoder);
    gw_free(encoder->context, encoder->state);
    gw_momentum_destroy(encoder->context, encoder->momentum);
    gw_residual_fini(encoder->context, &encoder->residual);
    gw_free(encoder->context, encoder->options);
    gw_free(encoder->context, encoder->name);
    gw_free(encoder->context, encoder);
}

static uint64_t shared_count(const gw_encoder *encoder)
{
    return encoder->record->shared_count ? encoder->record->shared_count(encoder) : 0;
}

bool gw_encoder_adds_on_the_way(const gw_encoder *encoder)
{
    return shared_count(encoder) && gw_encoder_wire(encoder)->adds_averages;
}

const struct gw_wire_codec *gw_encoder_wire(const gw_encoder *encoder)
{
    return gw_wire_codec_by_id(encoder->record->info.wire_id);
}

void gw_encoder_run_in(gw_encoder *encoder, const float *g, uint32_t rank)
{
    if (encoder->record->run_in && encoder->tensor.n_elems)
        encoder->record->run_in(encoder, g, rank);
}

static uint32_t bucket_of(const gw_encoder *encoder)
{
    return encoder->record->bucket ? encoder->record->bucket(encoder) : 0;
}

static uint64_t slice_align(const gw_encoder *encoder)
{
    const uint64_t bucket = bucket_of(encoder), twos = bucket & -bucket;
    _Static_assert((GW_SLICE_ALIGN & (GW_SLICE_ALIGN - 1)) == 0,
                   "so the least common multiple needs no more than this");
    return !bucket ? GW_SLICE_ALIGN : twos < GW_SLICE_ALIGN ? GW_SLICE_ALIGN / twos * bucket : bucket;
}

gw_encoder_traits gw_encoder_traits_of(const gw_encoder *encoder)
{
    if (!encoder)
        return (gw_encoder_traits){0};
    return (gw_encoder_traits){.n_shared = shared_count(encoder),
                               .slice_align = slice_align(encoder),
                               .state_bytes = gw_encoder_state_bytes(encoder)};
}

size_t gw_encoder_bound(const gw_encoder *encoder, uint64_t n_elems)
{
    if (!encoder)
        return 0;
    uint64_t scalers = gw_frame_n_scalers(encoder->record->info.wire_id, bucket_of(encoder), n_elems);
    return gw_frame_head_bytes(scalers) + encoder->record->payload_bound(encoder, n_elems);
}

static const char *const wires[] = {[GW_WIRE_AUTO] = "auto", [GW_WIRE_SMALL] = "small", [GW_WIRE_FAST] = "fast"};
enum { N_WIRES = sizeof wires / sizeof *wires };

const char *gw_wire_name(gw_wire wire)
{
    return (unsigned)wire < N_WIRES ? wires[wire] : NULL;
}

gw_status gw_wire_parse(const char *name, gw_wire *out)
{
    if (!name || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_wire_parse: name or out is NULL");
    for (int i = 0; i < N_WIRES; i++)
        if (strcmp(name, wires[i]) == 0) {
            *out = (gw_wire)i;
            return GW_OK;
        }
    return gw_fail(GW_ERR_SPEC, "the wire choice is \"%s\", and must be auto, small or fast", name);
}

bool gw_encoder_has_wire_choice(const gw_encoder *encoder)
{
    return encoder && encoder->record->has_wire_choice && encoder->record->has_wire_choice(encoder->options);
}

void gw_encoder_choose_wire(gw_encoder *encoder, gw_wire push, gw_wire pull)
{
    if (gw_encoder_has_wire_choice(encoder)) {
        encoder->push_wire = push;
        encoder->pull_wire = pull;
    }
}

/* A tensor without elements may have no gradient, but C adds no number to NULL, not even 0. */
static const float *some_gradient(const float *g)
{
    static const float nothing;
    return g ? g : &nothing;
}

gw_status gw_encoder_measure(gw_encoder *encoder, const float *g, float *shared, size_t n_shared, gw_measure *info)
{
    if (!encoder || (!g && encoder->tensor.n_elems) || (!shared && shared_count(encoder)))
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoder_measure: encoder, g or shared is NULL");
    if (n_shared < shared_count(encoder))
        return gw_fail(GW_ERR_CAPACITY, "gw_encoder_measure: room for %zu shared numbers; tensor '%s' has %" PRIu64,
                       n_shared, encoder->shown, shared_count(encoder));
    gw_float_env env = gw_float_enter();
    encoder->measured = encoder->rests = false;
    encoder->info = (gw_measure){.finite = true};
    encoder->coded = encoder->momentum ? gw_momentum_add(encoder->context, encoder->momentum, g) : some_gradient(g);
    gw_status status = GW_OK;
    if (encoder->record->measure)
        status = encoder->record->measure(encoder, encoder->coded, shared, &encoder->info);
    else
        gw_measure_tensor(encoder->context, encoder->coded, encoder->tensor.n_elems, &encoder->info);
    gw_float_leave(env);
    GW_TRY(status);
    encoder->measured = true;
    if (info)
        *info = encoder->info;
    return GW_OK;
}

/* Fills the fields that are common to all codecs. */
static void begin_frame(const gw_encoder *encoder, const gw_draw *draw, uint64_t begin, uint64_t count,
                        struct gw_frame *frame)
{
    *frame = (struct gw_frame){.codec = encoder->record->info.wire_id,
                               .flags = encoder->pull_wire == GW_WIRE_FAST ? GW_FLAG_FAST : 0,
                               .workers = 1,
                               .rank = draw->rank,
                               .tensor_id = encoder->tensor.id,
                               .step = draw->step,
                               .bucket = bucket_of(encoder),
                               .begin = begin,
                               .count = count};
    frame->n_scalers = gw_frame_n_scalers(frame->codec, frame->bucket, count);
}

static gw_status end_frame(void *dst, struct gw_frame *frame, size_t *frame_bytes)
{
    if (!frame->sealed)
        gw_frame_seal(dst, frame);
    *frame_bytes = frame->frame_bytes;
    return GW_OK;
}

static gw_status check_encode(const gw_encoder *encoder, const float *g, const gw_draw *draw, uint64_t begin,
                              uint64_t count, const void *dst, size_t dst_capacity, const size_t *frame_bytes)
{
    if (!encoder || !draw || !dst || !frame_bytes || (!g && encoder->tensor.n_elems))
        return gw_fail(GW_ERR_ARGUMENT, "encoding: encoder, g, draw, dst or frame_bytes is NULL");
    if (draw->rank >= GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "rank is %u, and must be below %u", draw->rank, GW_MAX_WORKERS);
    uint64_t n = encoder->tensor.n_elems;
    if (begin > n || count > n - begin || begin % slice_align(encoder) ||
        (begin + count != n && count % slice_align(encoder)))
        return gw_fail(GW_ERR_ARGUMENT,
                       "slice [%llu, %llu) of tensor '%s' must begin and end at multiples of %llu or at its end, %llu",
                       (unsigned long long)begin, (unsigned long long)(begin + count), encoder->shown,
                       (unsigned long long)slice_align(encoder), (unsigned long long)n);
    size_t bound = gw_encoder_bound(encoder, count);
    if (dst_capacity < bound)
        return gw_fail(GW_ERR_CAPACITY, "a frame of %llu elements may take %zu bytes; the buffer has %zu",
                       (unsigned long long)count, bound, dst_capacity);
    return GW_OK;
}

static gw_status not_finite(const gw_encoder *encoder)
{
    return gw_fail(GW_ERR_NONFINITE, "tensor '%s'%s holds a NaN or an infinity at element %llu", encoder->shown,
                   gw_encoder_keeps_state(encoder) ? ", its residual added," : "",
                   (unsigned long long)encoder->info.bad_index);
}

/* Checks that all are there, and that what they decide together is for one codec. */
static gw_status check_network(gw_encoder *const *encoders, uint32_t n, const char *call)
{
    if (!encoders && n)
        return gw_fail(GW_ERR_ARGUMENT, "%s: encoders is NULL", call);
    for (uint32_t i = 0; i < n; i++) {
        if (!encoders[i])
            return gw_fail(GW_ERR_ARGUMENT, "%s: encoder %u of %u is NULL", call, i, n);
        if (encoders[0]->record->combine && encoders[i]->record != encoders[0]->record)
            return gw_fail(GW_ERR_ARGUMENT, "tensors '%s' and '%s' have different codecs", encoders[0]->shown,
                           encoders[i]->shown);
        encoders[i]->nth = i;
    }
    for (uint32_t i = 0; i < n; i++)
        if (encoders[i]->nth != i)
            return gw_fail(GW_ERR_ARGUMENT, "%s: tensor '%s' is there twice, as number %u and %u", call,
                           encoders[i]->shown, i, encoders[i]->nth);
    return GW_OK;
}

gw_status gw_encoders_begin(gw_encoder *const *encoders, uint32_t n, bool *together)
{
    if (!together)
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoders_begin: together is NULL");
    GW_TRY(check_network(encoders, n, "gw_encoders_begin"));
    gw_float_env env = gw_float_enter();
    *together = n > 0 && encoders[0]->record->decide && encoders[0]->record->decide(encoders, n);
    gw_float_leave(env);
    return GW_OK;
}

gw_status gw_encoders_combine(gw_encoder *const *encoders, uint32_t n, uint32_t *bad)
{
    uint32_t found = n;
    GW_TRY(check_network(encoders, n, "gw_encoders_combine"));
    for (uint32_t i = 0; i < n; i++) {
        if (!encoders[i]->measured)
            return gw_fail(GW_ERR_ORDER, "tensor '%s' was not measured; call gw_encoder_measure first",
                           encoders[i]->shown);
        if (!encoders[i]->info.finite)
            return not_finite(encoders[i]);
    }
    if (n && encoders[0]->record->combine) {
        gw_float_env env = gw_float_enter();
        gw_status status = encoders[0]->record->combine(encoders, n, &found);
        gw_float_leave(env);
        GW_TRY(status);
    }
    if (!bad)
        return found < n ? not_finite(encoders[found]) : GW_OK;
    *bad = found;
    return GW_OK;
}

static gw_status begin_encode(const gw_encoder *encoder, const float *g, const gw_draw *draw, uint64_t begin,
                              uint64_t count, const void *dst, size_t dst_capacity, const size_t *frame_bytes,
                              struct gw_frame *frame)
{
    GW_TRY(check_encode(encoder, g, draw, begin, count, dst, dst_capacity, frame_bytes));
    if (!encoder->measured)
        return gw_fail(GW_ERR_ORDER, "tensor '%s' was not measured; call gw_encoder_measure first", encoder->shown);
    if (!encoder->info.finite)
        return not_finite(encoder);
    begin_frame(encoder, draw, begin, count, frame);
    return GW_OK;
}

gw_status gw_encoder_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw,
                            uint64_t begin, uint64_t count, void *dst, size_t dst_capacity, size_t *frame_bytes)
{
    struct gw_frame frame;
    GW_TRY(begin_encode(encoder, g, draw, begin, count, dst, dst_capacity, frame_bytes, &frame));
    gw_float_env env = gw_float_enter();
    gw_status status = encoder->record->encode(encoder, encoder->momentum ? encoder->coded : some_gradient(g), shared,
                                               draw, dst, &frame);
    gw_float_leave(env);
    GW_TRY(status);
    return end_frame(dst, &frame, frame_bytes);
}

bool gw_encoder_is_plain(const gw_encoder *encoder)
{
    return encoder->record == &gw_codec_none && !encoder->momentum;
}

gw_status gw_encoder_encode_head(gw_encoder *encoder, const float *g, const gw_draw *draw, uint64_t begin,
                                 uint64_t count, void *head)
{
    struct gw_frame frame = {.codec = 0};
    GW_TRY(begin_encode(encoder, g, draw, begin, count, head, SIZE_MAX, &frame.frame_bytes, &frame));
    frame.payload_bytes = count * sizeof *g;
    gw_frame_seal_with(head, &frame, gw_hash_now()->whole(g + begin, frame.payload_bytes, GW_BODY_SEED));
    return GW_OK;
}

gw_status gw_encoder_measure_encode(gw_encoder *encoder, const float *g, const float *shared, const gw_draw *draw,
                                    void *dst, size_t dst_capacity, size_t *frame_bytes, gw_measure *info)
{
    uint64_t n = encoder ? encoder->tensor.n_elems : 0;
    GW_TRY(check_encode(encoder, g, draw, 0, n, dst, dst_capacity, frame_bytes));
    const uint64_t n_shared = shared_count(encoder);
    float *own = gw_alloc(encoder->context, n_shared, sizeof *own);
    if (!own)
        return GW_ERR_MEMORY;
    gw_status status = gw_encoder_measure(encoder, g, own, n_shared, info);
    if (status == GW_OK)
        status = gw_encoders_combine(&encoder, 1, NULL);
    if (status == GW_OK)
        status = gw_encoder_encode(encoder, g, shared, draw, 0, n, dst, dst_capacity, frame_bytes);
    gw_free(encoder->context, own);
    return status;
}

gw_status gw_encoder_deliver(gw_encoder *encoder, float *average, uint64_t begin, uint64_t count)
{
    if (!encoder || (!average && count))
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoder_deliver: encoder or average is NULL");
    const uint64_t n = encoder->tensor.n_elems;
    if (begin > n || count > n - begin)
        return gw_fail(GW_ERR_ARGUMENT, "gw_encoder_deliver: elements [%llu, %llu) of tensor '%s', which has %llu",
                       (unsigned long long)begin, (unsigned long long)(begin + count), encoder->shown,
                       (unsigned long long)n);
    if (!encoder->momentum)
        return GW_OK;
    if (!encoder->measured)
        return gw_fail(GW_ERR_ORDER, "gw_encoder_deliver: tensor '%s' was not measured in this step", encoder->shown);
    gw_float_env env = gw_float_enter();
    gw_momentum_deliver(encoder->momentum, average, begin, count);
    gw_float_leave(env);
    return GW_OK;
}
