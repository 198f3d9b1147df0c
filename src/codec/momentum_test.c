/* Tests momentum= of every codec that has it. What is coded is the velocity: an encoder without momentum that gets
 * plainly made velocities makes the same frames. What is delivered is as the header says, and an optimizer with the
 * same momentum makes the averaged velocity of it. */
#include "checks.h"
#include "codec/state.h"
#include "codecs.h"
#include "wire/frame.h"

#include <float.h>
#include <stdio.h>

enum { N = 5000, WORKERS = 3, STEPS = 12 };
#define M 0.9f

static const char *const codecs[] = {"topk:ratio=0.05,scope=layer,over=0",
                                     "topk:ratio=0.05,over=0,scope=global",
                                     "topk:ratio=0.05,scope=layer,value=bf16,over=0.5",
                                     "topk:ratio=1,scope=layer,over=0",
                                     "topk:ratio=0.05,scope=layer,over=0,dense=3",
                                     "onebit:bucket=512",
                                     "ternary:residual=on",
                                     "ternary:residual=on,level=max,bucket=1024",
                                     "ternary:residual=on,share=off,bucket=64"};
#define N_CODECS (sizeof codecs / sizeof *codecs)

static const char *with(const char *codec, const char *more)
{
    static char spec[160];
    snprintf(spec, sizeof spec, "%s,%s", codec, more);
    return spec;
}

/* The frames of all workers, and their decoded average. g: N floats of each worker. */
static void exchange(gw_encoder *const *encoders, const float *g, uint32_t step, struct whole_frame *frames,
                     float *average)
{
    const uint64_t n_shared = gw_encoder_traits_of(encoders[0]).n_shared;
    float *shared = room_for(n_shared, sizeof *shared), *own = room_for(n_shared, sizeof *own);
    memset(shared, 0, n_shared * sizeof *shared);
    for (uint32_t w = 0; w < WORKERS; w++) {
        measure(encoders[w], g + w * N, own);
        for (uint64_t i = 0; i < n_shared; i++)
            shared[i] = own[i] > shared[i] ? own[i] : shared[i];
        assert_int_equal(gw_encoders_combine(&encoders[w], 1, NULL), GW_OK);
    }
    for (uint32_t w = 0; w < WORKERS; w++)
        frames[w] =
            encode_slice(encoders[w], g + w * N, n_shared ? shared : NULL, (gw_draw){.rank = w, .step = step}, 0, N);
    struct whole_frame frame = reduce_frames(NULL, frames, WORKERS, NULL);
    decode_into(NULL, frame, average, N);
    free(frame.bytes);
    free(shared);
    free(own);
}

static void end_step(gw_encoder *const *encoders, struct whole_frame *frames, bool committed)
{
    for (uint32_t w = 0; w < WORKERS; w++) {
        free(frames[w].bytes);
        assert_int_equal(gw_encoder_commit(encoders[w], committed), GW_OK);
    }
}

TEST(velocities_are_coded)
{
    static float g[WORKERS * N], u[WORKERS * N], next[WORKERS * N], s[N], d[N], before[N], v[N];
    for (size_t c = 0; c < N_CODECS; c++) {
        gw_context *contexts[] = {context_of(1), context_of(3)};
        gw_encoder *coded[WORKERS], *plain[WORKERS];
        for (uint32_t w = 0; w < WORKERS; w++) {
            coded[w] = encoder_of(contexts[1], with(codecs[c], "momentum=0.9"), N);
            plain[w] = encoder_of(contexts[0], codecs[c], N);
        }
        memset(u, 0, sizeof u);
        memset(before, 0, sizeof before);
        memset(v, 0, sizeof v);
        for (uint32_t t = 0; t < STEPS; t++) {
            struct whole_frame frames[2][WORKERS];
            const bool committed = t != 4; /* somebody drops this step */
            for (uint32_t w = 0; w < WORKERS; w++) {
                numbers_fill_bell(WORKERS * t + w, g + w * N, N);
                for (int i = 0; i < N; i++)
                    next[w * N + i] = M * u[w * N + i] + g[w * N + i];
            }
            exchange(coded, g, t, frames[0], d);
            exchange(plain, next, t, frames[1], s);
            for (uint32_t w = 0; w < WORKERS; w++)
                CHECK(same_frame(frames[0][w], frames[1][w]), "%s, step %u: worker %u codes another velocity",
                      codecs[c], t, w);
            assert_true(same_floats(d, s, N));
            for (uint32_t w = WORKERS; w-- > 0;) { /* all workers get the same; in two parts, the second first */
                memcpy(d, s, sizeof d);
                assert_int_equal(gw_encoder_deliver(coded[w], d + 2048, 2048, N - 2048), GW_OK);
                assert_int_equal(gw_encoder_deliver(coded[w], d, 0, 2048), GW_OK);
                for (int i = 0; i < N; i++) {
                    const float want = s[i] - M * before[i];
                    CHECK(same_floats(&d[i], &want, 1), "%s, step %u, element %d: %a, not %a", codecs[c], t, i,
                          (double)d[i], (double)want);
                }
            }
            end_step(coded, frames[0], committed);
            end_step(plain, frames[1], committed);
            if (!committed)
                continue;
            memcpy(u, next, sizeof u);
            memcpy(before, s, sizeof before);
            /* An optimizer with the same momentum. Each step's rounding is at most a few units of the last place, and
             * the sum of what is left of all steps is at most 1 / (1 - M) of it. */
            for (int i = 0; i < N; i++) {
                v[i] = M * v[i] + d[i];
                CHECK(fabsf(v[i] - s[i]) <= 100 * FLT_EPSILON * (fabsf(s[i]) + 10), "%s, step %u: %g, not %g",
                      codecs[c], t, (double)v[i], (double)s[i]);
            }
        }
        for (uint32_t w = 0; w < WORKERS; w++) {
            gw_encoder_destroy(coded[w]);
            gw_encoder_destroy(plain[w]);
        }
        gw_context_destroy(contexts[0]);
        gw_context_destroy(contexts[1]);
    }
}

/* If everything is sent, momentum changes nothing but the last places. */
TEST(floats_come_out_as_they_went_in)
{
    static float g[WORKERS * N], d[N];
    gw_encoder *encoders[WORKERS];
    for (uint32_t w = 0; w < WORKERS; w++)
        encoders[w] = encoder_of(NULL, "topk:ratio=1,refresh=1,scope=layer,over=0,momentum=0.9", N);
    for (uint32_t t = 0; t < STEPS; t++) {
        struct whole_frame frames[WORKERS];
        for (uint32_t w = 0; w < WORKERS; w++)
            numbers_fill_bell(WORKERS * t + w, g + w * N, N);
        exchange(encoders, g, t, frames, d);
        for (uint32_t w = 0; w < WORKERS; w++) {
            float copy[N];
            memcpy(copy, d, sizeof copy);
            assert_int_equal(gw_encoder_deliver(encoders[w], copy, 0, N), GW_OK);
            for (int i = 0; i < N && w == 0; i++) {
                const float mean = (g[i] + g[N + i] + g[2 * N + i]) / 3;
                CHECK(fabsf(copy[i] - mean) < 1e-5f, "step %u, element %d: %g, not %g", t, i, (double)copy[i],
                      (double)mean);
            }
        }
        end_step(encoders, frames, true);
    }
    for (uint32_t w = 0; w < WORKERS; w++)
        gw_encoder_destroy(encoders[w]);
}

/* With output=velocity the average comes out as it is, and less is kept. A tensor in float has a velocity then, too. */
TEST(velocities_are_delivered_if_asked_for)
{
    static float g[N], s[N], out[N], u[N];
    const char *const specs[] = {"topk:ratio=0.05,scope=layer,over=0,momentum=0.9,output=velocity",
                                 "ternary:residual=on,min=100000,momentum=0.9,output=velocity"};
    for (size_t c = 0; c < 2; c++) {
        gw_encoder *encoder = encoder_of(NULL, specs[c], N);
        memset(u, 0, sizeof u);
        for (uint32_t t = 0; t < 4; t++) {
            numbers_fill_bell(t, g, N);
            struct whole_frame frame = encode_whole(encoder, g, N, NULL, (gw_draw){.step = t});
            decode_into(NULL, frame, s, N);
            memcpy(out, s, sizeof out);
            assert_int_equal(gw_encoder_deliver(encoder, out, 0, N), GW_OK);
            assert_true(same_floats(out, s, N));
            for (int i = 0; i < N; i++)
                u[i] = M * u[i] + g[i];
            if (c == 1)
                assert_true(same_floats(s, u, N));
            free(frame.bytes);
            assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
        }
        gw_encoder_destroy(encoder);
    }
    gw_encoder *floats = encoder_of(NULL, "ternary:residual=on,min=100000,momentum=0.9", N),
               *velocity = encoder_of(NULL, specs[0], N),
               *both = encoder_of(NULL, "topk:ratio=0.05,scope=layer,over=0,momentum=0.9", N),
               *none = encoder_of(NULL, "topk:ratio=0.05,scope=layer,over=0", N);
    assert_int_equal(gw_encoder_traits_of(floats).state_bytes, 0); /* its momentum would change nothing */
    assert_int_equal(gw_encoder_traits_of(velocity).state_bytes, gw_encoder_traits_of(none).state_bytes + 4 * N);
    assert_int_equal(gw_encoder_traits_of(both).state_bytes, gw_encoder_traits_of(none).state_bytes + 8 * N);
    gw_encoder_destroy(floats);
    gw_encoder_destroy(velocity);
    gw_encoder_destroy(both);
    gw_encoder_destroy(none);
}

TEST(a_saved_state_goes_on)
{
    static float g[N], s[2][N];
    for (size_t c = 0; c < N_CODECS; c++) {
        gw_encoder *a = encoder_of(NULL, with(codecs[c], "momentum=0.9"), N),
                   *b = encoder_of(NULL, with(codecs[c], "momentum=0.9"), N),
                   *velocity = encoder_of(NULL, with(codecs[c], "momentum=0.9,output=velocity"), N),
                   *none = encoder_of(NULL, codecs[c], N);
        const size_t n_bytes = gw_encoder_traits_of(a).state_bytes;
        uint8_t *saved = room_for(n_bytes, 1), *again = room_for(n_bytes, 1);
        for (uint32_t t = 0; t < 5; t++) {
            numbers_fill_bell(t, g, N);
            measure(a, g, NULL);
            assert_int_equal(gw_encoders_combine(&a, 1, NULL), GW_OK);
            struct whole_frame frame = encode_slice(a, g, NULL, (gw_draw){.step = t}, 0, N);
            decode_into(NULL, frame, s[0], N);
            assert_int_equal(gw_encoder_deliver(a, s[0], 0, N), GW_OK);
            free(frame.bytes);
            assert_int_equal(gw_encoder_commit(a, true), GW_OK);
        }
        assert_int_equal(gw_encoder_save(a, saved, n_bytes), GW_OK);
        assert_int_equal(gw_encoder_load(velocity, saved, n_bytes), GW_ERR_ARGUMENT);
        assert_non_null(strstr(gw_last_error(), "momentum= and output= must be as they were"));
        assert_int_equal(gw_encoder_load(none, saved, n_bytes), GW_ERR_ARGUMENT);
        assert_int_equal(gw_encoder_load(b, saved, n_bytes), GW_OK);
        assert_int_equal(gw_encoder_save(b, again, n_bytes), GW_OK);
        assert_memory_equal(saved, again, n_bytes);
        numbers_fill_bell(99, g, N);
        gw_encoder *both[] = {a, b};
        struct whole_frame frames[2];
        for (int i = 0; i < 2; i++) {
            measure(both[i], g, NULL);
            assert_int_equal(gw_encoders_combine(&both[i], 1, NULL), GW_OK);
            frames[i] = encode_slice(both[i], g, NULL, (gw_draw){0}, 0, N);
            decode_into(NULL, frames[i], s[i], N);
            assert_int_equal(gw_encoder_deliver(both[i], s[i], 0, N), GW_OK);
        }
        assert_true(same_frame(frames[0], frames[1]) && same_floats(s[0], s[1], N));
        free(frames[0].bytes);
        free(frames[1].bytes);
        assert_int_equal(gw_encoder_commit(a, true), GW_OK);

        /* Twice the unit: twice of all that is kept. Velocity and average stand at the end. */
        assert_int_equal(gw_encoder_save(a, saved, n_bytes), GW_OK);
        assert_int_equal(gw_encoder_scale(a, 2), GW_OK);
        assert_int_equal(gw_encoder_save(a, again, n_bytes), GW_OK);
        for (uint64_t i = 1; i <= 2 * N; i++)
            assert_true(gw_get_float(again + n_bytes - 8 - 4 * i) == 2 * gw_get_float(saved + n_bytes - 8 - 4 * i));

        /* Merged with itself, only the threshold of topk is lost. With the doubled one, the mean is 1.5 times. */
        const void *const two[] = {saved, again};
        uint8_t *merged = room_for(n_bytes, 1);
        assert_int_equal(gw_states_merge(two, 2, n_bytes, merged), GW_OK);
        for (uint64_t i = 1; i <= 2 * N; i++) {
            const float x = gw_get_float(saved + n_bytes - 8 - 4 * i);
            assert_true(fabsf(gw_get_float(merged + n_bytes - 8 - 4 * i) - 1.5f * x) <= 1e-6f * fabsf(x));
        }
        assert_int_equal(gw_encoder_load(b, merged, n_bytes), GW_OK);
        assert_int_equal(gw_states_merge(two, 2, n_bytes - 4, merged), GW_ERR_ARGUMENT);
        free(merged);
        free(saved);
        free(again);
        gw_encoder_destroy(a);
        gw_encoder_destroy(b);
        gw_encoder_destroy(velocity);
        gw_encoder_destroy(none);
    }
}

TEST(wrong_calls_are_refused)
{
    static float g[N], s[N], bad[N];
    gw_encoder *encoder = encoder_of(NULL, "topk:ratio=0.05,scope=layer,over=0,momentum=0.9", N);
    numbers_fill_bell(1, g, N);
    assert_int_equal(gw_encoder_deliver(NULL, s, 0, N), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_deliver(encoder, NULL, 0, N), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_deliver(encoder, s, 0, N), GW_ERR_ORDER);
    struct whole_frame frame = encode_whole(encoder, g, N, NULL, (gw_draw){0});
    assert_int_equal(gw_encoder_deliver(encoder, s, 1, N), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_deliver(encoder, s, N + 1, 0), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_deliver(encoder, s, UINT64_MAX, 2), GW_ERR_ARGUMENT);

    /* Elements were left out: the average of the step before counts on. */
    decode_into(NULL, frame, s, N);
    assert_int_equal(gw_encoder_deliver(encoder, s, 0, N - 1), GW_OK);
    assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
    assert_int_equal(gw_encoder_deliver(encoder, s, 0, N), GW_ERR_ORDER);
    free(frame.bytes);
    measure(encoder, g, NULL);
    for (int i = 0; i < N; i++)
        s[i] = 1;
    assert_int_equal(gw_encoder_deliver(encoder, s, 0, N), GW_OK);
    for (int i = 0; i < N; i++)
        assert_true(s[i] == 1);
    assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);

    /* A gradient that is not finite leaves no trace. */
    const size_t n_bytes = gw_encoder_traits_of(encoder).state_bytes;
    uint8_t *before = room_for(n_bytes, 1), *after = room_for(n_bytes, 1);
    assert_int_equal(gw_encoder_save(encoder, before, n_bytes), GW_OK);
    memcpy(bad, g, sizeof bad);
    bad[4321] = NAN;
    gw_measure info;
    assert_int_equal(gw_encoder_measure(encoder, bad, NULL, 0, &info), GW_OK);
    assert_true(!info.finite && info.bad_index == 4321);
    assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
    assert_int_equal(gw_encoder_save(encoder, after, n_bytes), GW_OK);
    assert_memory_equal(before, after, n_bytes);
    free(before);
    free(after);
    gw_encoder_destroy(encoder);
}

/* A GradScaler raises its factor until something overflows, and lowers it then. Nothing infinite may stay: no lower
 * factor would mend it. */
TEST(an_overflow_does_not_stay)
{
    static float g[N], s[N];
    for (size_t c = 0; c < N_CODECS; c++) {
        gw_encoder *encoder = encoder_of(NULL, with(codecs[c], "momentum=0.9"), N);
        const size_t n_bytes = gw_encoder_traits_of(encoder).state_bytes;
        uint8_t *saved = room_for(n_bytes, 1);
        for (uint32_t t = 0; t < 6; t++) {
            numbers_fill_bell(t, g, N);
            for (int i = 0; i < N; i++)
                g[i] *= t < 5 ? 1e36f : 0;
            measure(encoder, g, NULL);
            assert_int_equal(gw_encoders_combine(&encoder, 1, NULL), GW_OK);
            struct whole_frame frame = encode_slice(encoder, g, NULL, (gw_draw){.step = t}, 0, N);
            decode_into(NULL, frame, s, N);
            if (t == 3)
                s[17] = INFINITY; /* the sum over workers */
            assert_int_equal(gw_encoder_deliver(encoder, s, 0, N), GW_OK);
            free(frame.bytes);
            assert_true((t == 3) == !isfinite(s[17]));
            assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
            if (t == 4) {
                assert_int_equal(gw_encoder_scale(encoder, 1e5f), GW_OK);
                assert_int_equal(gw_encoder_scale(encoder, 1e-5f), GW_OK);
            }
        }
        assert_int_equal(gw_encoder_save(encoder, saved, n_bytes), GW_OK);
        assert_int_equal(gw_encoder_load(encoder, saved, n_bytes), GW_OK);
        free(saved);
        gw_encoder_destroy(encoder);
    }
}

RUN_TESTS("momentum", NULL, NULL)
