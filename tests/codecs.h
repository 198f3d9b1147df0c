/* Codecs in tests: contexts, encoders and whole frames in one call each, and a plain model of the ternary draw. */
#ifndef GW_TESTS_CODECS_H
#define GW_TESTS_CODECS_H

#include "codec/state.h"
#include "checks.h"
#include "examples.h"
#include "wire/bytes.h"

#include <gradwire/codec.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* malloc that does not fail. Blocks end where their content ends, so that a sanitizer sees bytes past it. */
static inline void *room_for(size_t n, size_t size)
{
    void *room = malloc(n && size ? n * size : 1);
    assert_non_null(room);
    return room;
}

static inline gw_context *context_of(uint32_t n_threads)
{
    const gw_context_options options = {.struct_bytes = sizeof options, .n_threads = n_threads};
    gw_context *context;
    assert_int_equal(gw_context_create(&options, &context), GW_OK);
    return context;
}

/* The context of helpers whose test names none. It keeps the codecs' working memory, which sanitizers are slow to take
 * and to give back. */
static inline gw_context *some_context(gw_context *context)
{
    static gw_context *kept;
    if (!context && !kept)
        kept = context_of(1);
    return context ? context : kept;
}

static inline gw_codec *codec_of(gw_context *context, const char *spec)
{
    gw_codec *codec;
    CHECK(gw_codec_parse(context, spec, &codec) == GW_OK, "%s: %s", spec, gw_last_error());
    return codec;
}

/* An encoder of tensor 7, "layer.weight". */
static inline gw_encoder *encoder_of(gw_context *context, const char *spec, uint64_t n)
{
    gw_codec *codec = codec_of(context, spec);
    const gw_tensor tensor = {.name = "layer.weight", .id = 7, .n_elems = n};
    gw_encoder *encoder;
    CHECK(gw_encoder_create(some_context(context), codec, &tensor, &encoder) == GW_OK, "%s: %s", spec, gw_last_error());
    gw_codec_destroy(codec); /* an encoder keeps what it needs */
    return encoder;
}

struct whole_frame {
    uint8_t *bytes; /* malloc */
    size_t size;
};

/* A copy of the frame in a block of exactly its size. */
static inline struct whole_frame frame_of(const uint8_t *bytes, size_t size)
{
    struct whole_frame frame = {room_for(size, 1), size};
    memcpy(frame.bytes, bytes, size);
    return frame;
}

/* Encodes elements [begin, begin + count) of what was measured last. */
static inline struct whole_frame encode_slice(gw_encoder *encoder, const float *g, const float *shared, gw_draw draw,
                                              uint64_t begin, uint64_t count)
{
    size_t bound = gw_encoder_bound(encoder, count), size = 0;
    uint8_t *bytes = room_for(bound, 1);
    gw_status status = gw_encoder_encode(encoder, g, shared, &draw, begin, count, bytes, bound, &size);
    CHECK(status == GW_OK, "encode: %s", gw_last_error());
    assert_true(size <= bound);
    struct whole_frame frame = frame_of(bytes, size);
    free(bytes);
    return frame;
}

/* Measures g as one worker. If `own` is not NULL, it gets the worker's own scalers. */
static inline void measure(gw_encoder *encoder, const float *g, float *own)
{
    uint64_t n = gw_encoder_traits_of(encoder).n_shared;
    float *shared = room_for(n, sizeof *shared);
    CHECK(gw_encoder_measure(encoder, g, shared, n, NULL) == GW_OK, "measure: %s", gw_last_error());
    if (own)
        memcpy(own, shared, n * sizeof *own);
    free(shared);
}

/* Measures and encodes all n elements of g. shared NULL: with the worker's own scalers. */
static inline struct whole_frame encode_whole(gw_encoder *encoder, const float *g, uint64_t n, const float *shared,
                                              gw_draw draw)
{
    measure(encoder, g, NULL);
    return encode_slice(encoder, g, shared, draw, 0, n);
}

/* The residual stands at the end of a saved state, before the checksum. */
static inline void residual_of(const gw_encoder *encoder, uint64_t n, float *residual)
{
    size_t n_bytes = gw_encoder_traits_of(encoder).state_bytes;
    uint8_t *state = room_for(n_bytes, 1);
    assert_int_equal(gw_encoder_save(encoder, state, n_bytes), GW_OK);
    memcpy(residual, state + n_bytes - 8 - 4 * n, 4 * n);
    free(state);
}

/* Any other number of workers begins with the mean residual of four workers' states. */
static inline void check_merged_states(const char *spec, uint64_t n)
{
    enum { STATES = 4 };
    void *states[STATES];
    float *g = room_for(n, sizeof *g), *residual = room_for(n, sizeof *residual);
    double *mean = room_for(n, sizeof *mean);
    gw_encoder *fresh = encoder_of(NULL, spec, n);
    const size_t n_bytes = gw_encoder_traits_of(fresh).state_bytes;
    memset(mean, 0, n * sizeof *mean);
    for (uint32_t w = 0; w < STATES; w++) {
        gw_encoder *worker = encoder_of(NULL, spec, n);
        states[w] = room_for(n_bytes, 1);
        numbers_fill_bell(w, g, n);
        free(encode_whole(worker, g, n, NULL, (gw_draw){.rank = w}).bytes);
        assert_int_equal(gw_encoder_commit(worker, true), GW_OK);
        assert_int_equal(gw_encoder_save(worker, states[w], n_bytes), GW_OK);
        residual_of(worker, n, residual);
        for (uint64_t i = 0; i < n; i++)
            mean[i] += (double)residual[i] / STATES;
        gw_encoder_destroy(worker);
    }
    void *merged = room_for(n_bytes, 1);
    assert_int_equal(gw_states_merge((const void *const *)states, STATES, n_bytes, merged), GW_OK);
    assert_int_equal(gw_encoder_load(fresh, merged, n_bytes), GW_OK);
    residual_of(fresh, n, residual);
    for (uint64_t i = 0; i < n; i++)
        assert_true(fabs((double)residual[i] - mean[i]) < 1e-6);
    for (uint32_t w = 0; w < STATES; w++)
        free(states[w]);
    free(merged);
    free(mean);
    free(residual);
    free(g);
    gw_encoder_destroy(fresh);
}

/* What is not finite is found wherever it is, is not sent, and leaves the residual as it was. */
static inline void check_not_finite(const char *spec)
{
    enum { N = 70000 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static float g[N], before[N], after[N];
    gw_encoder *encoder = encoder_of(NULL, spec, N);
    const uint64_t n_shared = gw_encoder_traits_of(encoder).n_shared;
    const size_t bound = gw_encoder_bound(encoder, N);
    float *shared = room_for(n_shared, sizeof *shared);
    uint8_t *room = room_for(bound, 1);
    numbers_fill_bell(5, g, N);
    free(encode_whole(encoder, g, N, NULL, (gw_draw){0}).bytes);
    assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
    residual_of(encoder, N, before);
    for (int k = 0; k < 3; k++)
        for (uint64_t at = 0; at < N; at += 23333) {
            float good = g[at];
            size_t size;
            gw_measure info;
            g[at] = bad[k];
            assert_int_equal(gw_encoder_measure(encoder, g, shared, n_shared, &info), GW_OK);
            assert_true(!info.finite && info.bad_index == at);
            assert_int_equal(gw_encoder_encode(encoder, g, NULL, &(gw_draw){0}, 0, N, room, bound, &size),
                             GW_ERR_NONFINITE);
            assert_non_null(strstr(gw_last_error(), "its residual added"));
            assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
            g[at] = good;
        }
    residual_of(encoder, N, after);
    assert_true(memcmp(before, after, sizeof before) == 0);
    free(room);
    free(shared);
    gw_encoder_destroy(encoder);
}

/* Decodes into out[0..n), and checks that nothing is written past it. */
static inline void decode_into(gw_context *context, struct whole_frame frame, float *out, uint64_t n)
{
    float *room = room_for(n + 1, sizeof *room);
    room[n] = 12345;
    CHECK(gw_decode(some_context(context), frame.bytes, frame.size, room, n) == GW_OK, "decode: %s", gw_last_error());
    assert_true(room[n] == 12345);
    memcpy(out, room, n * sizeof *out);
    free(room);
}

/* Averages pushes with the pull= and entropy= of spec (NULL: the defaults). */
static inline struct whole_frame reduce_frames(gw_context *context, const struct whole_frame *frames, uint32_t n,
                                               const char *spec)
{
    const void **bytes = room_for(n, sizeof *bytes);
    size_t *sizes = room_for(n, sizeof *sizes), size = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes[i] = frames[i].bytes;
        sizes[i] = frames[i].size;
    }
    gw_codec *codec = spec ? codec_of(context, spec) : NULL;
    const gw_reduce_options options = {sizeof options, codec};
    size_t bound = gw_reduce_bound(bytes, sizes, n);
    assert_true(bound > 0);
    uint8_t *out = room_for(bound, 1);
    CHECK(gw_reduce(some_context(context), bytes, sizes, n, spec ? &options : NULL, out, bound, &size) == GW_OK,
          "reduce: %s", gw_last_error());
    assert_true(size <= bound);
    struct whole_frame average = frame_of(out, size);
    gw_codec_destroy(codec);
    free(out);
    free(bytes);
    free(sizes);
    return average;
}

static inline bool same_frame(struct whole_frame a, struct whole_frame b)
{
    return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

static inline bool same_floats(const float *a, const float *b, uint64_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0; /* compares bits, so 0 differs from -0 */
}

/* ---- the ternary draw, from docs/wire-format.md, section 8 -------------------------------------------- */

static inline uint32_t model_bits(gw_draw draw, uint32_t tensor, uint32_t purpose, uint32_t block, uint32_t word,
                                  bool high)
{
    const uint32_t counter[4] = {block, draw.step, purpose << 24 | draw.rank, tensor};
    uint32_t words[4];
    gw_philox(counter, draw.seed, words);
    return high ? words[word] >> 16 : words[word] & 0xFFFFu;
}

/* The ternary value of element e. own: the worker's own scaler, which limits f(g). s: the shared scaler. */
static inline int model_ternary(float g, float own, float s, gw_draw draw, uint32_t tensor, uint64_t e)
{
    if (s == 0)
        return 0;
    float up = s < 0x1p-90f ? 0x1p64f : 1, f = fabsf(g) < own ? fabsf(g) : own, q = 0x1p32f / (s * up);
    if (s * up * q < 0x1p32f)
        q = nextafterf(q, INFINITY);
    float product = f * up * q;
    uint64_t t = product < 0x1p32f ? (uint64_t)product : 1ull << 32, h = t >> 16 < 65535 ? t >> 16 : 65535;
    uint64_t r = model_bits(draw, tensor, 1, (uint32_t)(16 * (e / 128) + e % 32 / 2), (uint32_t)(e % 128 / 32), e % 2);
    bool drawn = r < h;
    if (r == h)
        drawn = (r << 16 | model_bits(draw, tensor, 2, (uint32_t)(e / 8), (uint32_t)(e % 8 / 2), e % 2)) < t;
    return drawn ? g < 0 ? -1 : 1 : 0;
}

/* The ternary values of a whole tensor. There is a scaler for each bucket of `bucket` elements; bucket 0: one
 * scaler. */
static inline void model_tensor(const float *g, uint64_t n, uint64_t bucket, const float *own, const float *scalers,
                                gw_draw draw, uint32_t tensor, int8_t *t)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t b = bucket ? i / bucket : 0;
        t[i] = (int8_t)model_ternary(g[i], own[b], scalers[b], draw, tensor, i);
    }
}

#endif
