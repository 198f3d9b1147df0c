/* Frames for tests of the store, as workers encode them. */
#ifndef GW_PSERVER_STORE_TEST_FRAME_H
#define GW_PSERVER_STORE_TEST_FRAME_H

#include "outcome.h"

#include <gradwire/codec.h>

/* Encodes n elements of tensor `id`, and returns the frame's bytes. shared: each of the numbers that all ranks share,
 * if the codec wants any. */
static inline size_t frame_of(gw_context *context, const char *codec, uint32_t id, uint32_t rank, uint32_t step,
                              const float *gradient, uint64_t n, float shared, uint8_t *out, size_t capacity)
{
    const gw_tensor tensor = {.name = "t", .id = id, .n_elems = n};
    const gw_draw draw = {.seed = 5, .rank = rank, .step = step};
    float numbers[1024];
    gw_codec *parsed;
    gw_encoder *encoder;
    size_t n_bytes;
    ok(gw_codec_parse(context, codec, &parsed));
    ok(gw_encoder_create(context, parsed, &tensor, &encoder));
    ok(gw_encoder_measure(encoder, gradient, numbers, sizeof numbers / sizeof *numbers, NULL));
    const uint64_t n_shared = gw_encoder_traits_of(encoder).n_shared;
    for (uint64_t s = 0; s < n_shared; s++)
        numbers[s] = shared;
    ok(gw_encoder_encode(encoder, gradient, n_shared ? numbers : NULL, &draw, 0, n, out, capacity, &n_bytes));
    gw_encoder_destroy(encoder);
    gw_codec_destroy(parsed);
    return n_bytes;
}

#endif
