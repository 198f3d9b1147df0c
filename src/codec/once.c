/* Encodes a whole tensor in one call. */
#include "base/error.h"
#include "codec/codec.h"

static gw_status open_encoder(gw_context *context, const char *spec, uint64_t n_elems, gw_encoder **encoder)
{
    gw_codec *codec;
    const gw_tensor tensor = {.n_elems = n_elems};
    GW_TRY(gw_codec_parse(context, spec, &codec));
    gw_status status = gw_encoder_create(context, codec, &tensor, encoder);
    gw_codec_destroy(codec); /* the encoder has copied what it needs of it */
    return status;
}

size_t gw_encode_bound(gw_context *context, const char *spec, uint64_t n_elems)
{
    gw_encoder *encoder;
    if (open_encoder(context, spec, n_elems, &encoder) < 0)
        return 0;
    const size_t bound = gw_encoder_bound(encoder, n_elems);
    gw_encoder_destroy(encoder);
    return bound;
}

gw_status gw_encode_once(gw_context *context, const char *spec, const float *g, uint64_t n_elems, const gw_draw *draw,
                         void *dst, size_t dst_capacity, size_t *frame_bytes)
{
    static const gw_draw first = {0};
    gw_encoder *encoder;
    GW_TRY(open_encoder(context, spec, n_elems, &encoder));
    gw_status status =
        gw_encoder_measure_encode(encoder, g, NULL, draw ? draw : &first, dst, dst_capacity, frame_bytes, NULL);
    gw_encoder_destroy(encoder);
    return status;
}
