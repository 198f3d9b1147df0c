/* Tests that NULL can take the place of a context: encoding, averaging, decoding and the exchange do the same work, and
 * give the same bytes, as with a context. */
#include "checks.h"
#include "codec/parts.h"
#include <gradwire/gradwire.h>

#include <stdlib.h>
#include <string.h>

enum { N = 3000 };

static float gradient[N];

/* What one worker does with one tensor, and what an owner does with its frame. */
static size_t encode(gw_context *context, const char *spec, uint8_t **frame, float *decoded)
{
    gw_codec *codec;
    gw_encoder *encoder;
    gw_frame_info info;
    gw_frame_parts parts;
    const gw_tensor tensor = {.name = "weights", .n_elems = N};
    const gw_draw draw = {.seed = 3, .step = 1};
    uint64_t n_nonzero;
    double bits;
    size_t size, average_size;
    assert_int_equal(gw_codec_parse(context, spec, &codec), GW_OK);
    assert_int_equal(gw_encoder_create(context, codec, &tensor, &encoder), GW_OK);
    const size_t bound = gw_encoder_bound(encoder, N);
    *frame = malloc(bound);
    assert_non_null(*frame);
    assert_int_equal(gw_encoder_measure_encode(encoder, gradient, NULL, &draw, *frame, bound, &size, NULL), GW_OK);
    assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
    assert_int_equal(gw_frame_parse(*frame, size, &info), GW_OK);
    assert_int_equal(gw_frame_symbols(context, *frame, size, NULL, 0, &n_nonzero, &bits), GW_OK);
    assert_int_equal(gw_frame_read_parts(context, *frame, size, &parts), GW_OK);
    const void *frames[] = {*frame};
    const size_t capacity = gw_reduce_bound(frames, &size, 1);
    uint8_t *average = malloc(capacity);
    assert_non_null(average);
    assert_int_equal(gw_reduce(context, frames, &size, 1, NULL, average, capacity, &average_size), GW_OK);
    assert_int_equal(gw_decode(context, average, average_size, decoded, N), GW_OK);
    free(average);
    gw_encoder_destroy(encoder);
    gw_codec_destroy(codec);
    return size;
}

TEST(frames_are_the_same)
{
    static float with[N], without[N];
    gw_context *context;
    assert_int_equal(gw_context_create(NULL, &context), GW_OK);
    const gw_codec_info *info;
    for (size_t i = 0; (info = gw_codec_list(i)); i++) {
        uint8_t *a, *b;
        size_t n = encode(context, info->name, &a, with), m = encode(NULL, info->name, &b, without);
        if (n != m || memcmp(a, b, n) != 0 || memcmp(with, without, sizeof with) != 0)
            fail_msg("%s: other bytes without a context", info->name);
        free(a);
        free(b);
    }
    gw_context_destroy(context);
}

TEST(the_exchange_takes_it)
{
    gw_codec *codec;
    gw_link link;
    gw_exchange *exchange;
    gw_step_result result;
    static float values[N];
    memcpy(values, gradient, sizeof values);
    const gw_tensor tensor = {.name = "weights", .n_elems = N};
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 1, &link), GW_OK);
    const gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = link};
    assert_int_equal(gw_exchange_create(NULL, &options, &exchange), GW_OK);
    assert_int_equal(gw_exchange_begin(exchange, 0), GW_OK);
    assert_int_equal(gw_exchange_submit(exchange, 0, values), GW_OK);
    assert_int_equal(gw_exchange_wait(exchange, &result), GW_OK);
    assert_memory_equal(values, gradient, sizeof values);
    gw_exchange_destroy(exchange);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
    void *message = gw_message_alloc(NULL, 10);
    assert_non_null(message);
    gw_message_free(message);
    gw_context_destroy(NULL);
}

int main(void)
{
    for (int i = 0; i < N; i++)
        gradient[i] = (float)(i % 17 - 8) * 0.01f;
    const struct CMUnitTest tests[] = {cmocka_unit_test(frames_are_the_same), cmocka_unit_test(the_exchange_takes_it)};
    return cmocka_run_group_tests_name("no context", tests, NULL, NULL);
}
