/* Tests memory that runs out at every single allocation of parsing, encoding, averaging and decoding, once and for
 * good. Each call then says GW_ERR_MEMORY, nothing is lost, and the same objects do the same work once there is memory
 * again. */
#include "checks.h"
#include "codecs.h"
#include "shortage.h"

#include <stdio.h>

/* Does a call. It must succeed, or fail for lack of memory and succeed when there is some. */
#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        int before_ = shortage->failed;                                                                                \
        gw_status status_ = (call);                                                                                    \
        CHECK((status_ == GW_ERR_MEMORY) == (shortage->failed > before_),                                              \
              "%s, allocation %d: %s gives %d after %d failures", spec, shortage->fail_at, #call, status_,             \
              shortage->failed - before_);                                                                             \
        if (status_ == GW_ERR_MEMORY) {                                                                                \
            CHECK(strstr(gw_last_error(), "no memory for"), "%s: \"%s\"", #call, gw_last_error());                     \
            shortage->fail_at = 0;                                                                                     \
            status_ = (call);                                                                                          \
        }                                                                                                              \
        CHECK(status_ == GW_OK, "%s: %s gives %d: %s", spec, #call, status_, gw_last_error());                         \
    } while (0)

/* LONG is more than one chunk of sparse frames, and gspar looks at a sample of it first. */
enum { N = 66000, LONG = 270000, WORKERS = 2 };

/* All that is made of a gradient: pushes, the push of a single call, the average, and its values. */
struct work {
    struct whole_frame pushes[WORKERS], fused, average;
    float out[LONG], push_out[LONG];
    uint64_t n_nonzero;
};

static void do_work(gw_context *context, struct shortage *shortage, const char *spec, const float *g, uint64_t n,
                    struct work *work)
{
    gw_codec *codec = NULL;
    STEP(gw_codec_parse(context, spec, &codec));
    size_t bound = 0, size = 0;
    uint8_t *bytes = NULL;
    for (uint32_t r = 0; r < WORKERS; r++) {
        gw_encoder *encoder = NULL;
        const gw_tensor tensor = {.name = "w", .id = 3, .n_elems = n};
        const gw_draw draw = {.seed = 5, .rank = r};
        STEP(gw_encoder_create(context, codec, &tensor, &encoder));
        uint64_t n_shared = gw_encoder_traits_of(encoder).n_shared;
        float *shared = room_for(n_shared, sizeof *shared);
        bound = gw_encoder_bound(encoder, n);
        bytes = room_for(bound, 1);
        STEP(gw_encoder_measure(encoder, g, shared, n_shared, NULL));
        STEP(gw_encoders_combine(&encoder, 1, NULL));
        STEP(gw_encoder_encode(encoder, g, NULL, &draw, 0, n, bytes, bound, &size));
        work->pushes[r] = frame_of(bytes, size);
        if (r == 0) {
            gw_encoder *other = NULL;
            STEP(gw_encoder_create(context, codec, &tensor, &other));
            STEP(gw_encoder_measure_encode(other, g, NULL, &draw, bytes, bound, &size, NULL));
            work->fused = frame_of(bytes, size);
            gw_encoder_destroy(other);
        }
        free(bytes);
        free(shared);
        gw_encoder_destroy(encoder);
    }
    const void *frames[WORKERS];
    size_t sizes[WORKERS];
    for (int r = 0; r < WORKERS; r++) {
        frames[r] = work->pushes[r].bytes;
        sizes[r] = work->pushes[r].size;
    }
    const gw_reduce_options options = {sizeof options, codec};
    bound = gw_reduce_bound(frames, sizes, WORKERS);
    bytes = room_for(bound, 1);
    STEP(gw_reduce(context, frames, sizes, WORKERS, &options, bytes, bound, &size));
    work->average = frame_of(bytes, size);
    free(bytes);
    STEP(gw_decode(context, frames[0], sizes[0], work->push_out, n));
    STEP(gw_decode(context, work->average.bytes, work->average.size, work->out, n));
    STEP(gw_frame_symbols(context, work->average.bytes, work->average.size, NULL, 0, &work->n_nonzero, NULL));
    gw_codec_destroy(codec);
}

static void free_work(struct work *work)
{
    for (int r = 0; r < WORKERS; r++)
        free(work->pushes[r].bytes);
    free(work->fused.bytes);
    free(work->average.bytes);
}

TEST(any_allocation_may_fail)
{
    static float g[LONG];
    static struct work expected, work;
    numbers_fill_bell(4, g, LONG);
    for (size_t k = 0; example(k); k++)
        /* Two threads take the memory of one, and a little for each chunk: one specification of three shows it. */
        for (uint32_t threads = 1; threads <= (k % 3 ? 1 : 2); threads++) {
            uint64_t n = example(k)[0] == 'g' || example(k)[0] == 'u' ? LONG : N;
            struct shortage none = {0};
            gw_context *context = context_short_of(&none, threads);
            do_work(context, &none, example(k), g, n, &expected);
            int n_calls = none.calls;
            gw_context_destroy(context);
            assert_int_equal(none.live, 0);
            assert_true(n_calls >= 9);
            for (int at = 1; at <= n_calls; at++)
                for (int for_good = 0; for_good < 2; for_good++) {
                    struct shortage shortage = {0};
                    context = context_short_of(&shortage, threads);
                    shortage.fail_at = at;
                    shortage.for_good = for_good;
                    do_work(context, &shortage, example(k), g, n, &work);
                    assert_true(shortage.failed >= 1);
                    for (int r = 0; r < WORKERS; r++)
                        CHECK(same_frame(work.pushes[r], expected.pushes[r]), "%s, %u threads, allocation %d",
                              example(k), threads, at);
                    CHECK(same_frame(work.fused, expected.fused), "%s, %u threads, allocation %d", example(k), threads,
                          at);
                    CHECK(same_frame(work.average, expected.average), "%s, %u threads, allocation %d", example(k),
                          threads, at);
                    CHECK(same_floats(work.out, expected.out, n) && same_floats(work.push_out, expected.push_out, n) &&
                              work.n_nonzero == expected.n_nonzero,
                          "%s, %u threads, allocation %d", example(k), threads, at);
                    free_work(&work);
                    gw_context_destroy(context);
                    CHECK(shortage.live == 0, "%s, %u threads, allocation %d: %d blocks are lost", example(k), threads,
                          at, shortage.live);
                }
            free_work(&expected);
        }
}

/* After an encoder has encoded once, the next steps take no memory. */
TEST(encoding_again_takes_no_memory)
{
    const char *specs[] = {"ternary", "ternary:entropy=on", "ternary:bucket=512", "none", "gspar", "uniform"};
    static float g[N];
    numbers_fill_bell(4, g, N);
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++)
        for (uint32_t threads = 1; threads <= 2; threads++) {
            struct shortage shortage = {0};
            gw_context *context = context_short_of(&shortage, threads);
            gw_encoder *encoder = encoder_of(context, specs[k], N);
            size_t bound = gw_encoder_bound(encoder, N), size;
            uint8_t *bytes = room_for(bound, 1);
            float shared[200];
            for (uint32_t step = 0; step < 5; step++) {
                const gw_draw draw = {.step = step};
                assert_int_equal(gw_encoder_measure(encoder, g, shared, 200, NULL), GW_OK);
                assert_int_equal(gw_encoder_encode(encoder, g, shared, &draw, 0, N, bytes, bound, &size), GW_OK);
                if (step == 0)
                    shortage.calls = 0;
            }
            CHECK(shortage.calls == 0, "%s on %u threads: %d allocations in four steps", specs[k], threads,
                  shortage.calls);
            free(bytes);
            gw_encoder_destroy(encoder);
            gw_context_destroy(context);
            assert_int_equal(shortage.live, 0);
        }
}

/* To parse a frame never takes memory. To parse a specification that is refused leaves no memory taken. */
TEST(refusals_leave_nothing)
{
    struct shortage shortage = {0};
    gw_context *context = context_short_of(&shortage, 1);
    const char *bad[] = {"ternary:clip=-1", "ternary:clip=2,clip=2", "ternary:scope=global,bucket=3", "nothing",
                         "none:x=1"};
    int live = shortage.live;
    for (size_t i = 0; i < 5; i++) {
        gw_codec *codec;
        assert_int_equal(gw_codec_parse(context, bad[i], &codec), GW_ERR_SPEC);
        assert_int_equal(shortage.live, live);
    }
    float g[10] = {1};
    gw_encoder *encoder = encoder_of(context, "ternary", 10);
    struct whole_frame frame = encode_whole(encoder, g, 10, NULL, (gw_draw){.seed = 1});
    int calls = shortage.calls;
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
    assert_int_equal(shortage.calls, calls);
    free(frame.bytes);
    gw_encoder_destroy(encoder);
    gw_context_destroy(context);
}

RUN_TESTS("memory", NULL, NULL)
