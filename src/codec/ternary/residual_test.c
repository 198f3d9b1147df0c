/* Tests ternary with residual=on from step to step against a plain model of docs/wire-format.md: levels, values and
 * residuals, bit for bit. What is not sent waits, dropped steps leave no trace, and a saved state goes on. */
#include "checks.h"
#include "codec/state.h"
#include "codecs.h"
#include "wire/frame.h"

#include <float.h>
#include <stdio.h>

/* ---- a model ----------------------------------------------------------------------------------------- */

struct model {
    uint64_t n, bucket, n_buckets;
    double level; /* infinity: max */
    float *residual, *a, *own;
};

static struct model model_of(uint64_t n, uint64_t bucket, double level)
{
    struct model m = {.n = n, .bucket = bucket ? bucket : n, .n_buckets = bucket ? gw_div_up(n, bucket) : 1};
    m.level = level;
    m.residual = room_for(n, sizeof(float));
    m.a = room_for(n, sizeof(float));
    m.own = room_for(m.n_buckets, sizeof(float));
    memset(m.residual, 0, n * sizeof(float));
    return m;
}

static void model_free(struct model m)
{
    free(m.residual);
    free(m.a);
    free(m.own);
}

/* Adds the residual, and finds this worker's levels. Sums are in float64, so a level may differ in its last bits. */
static void model_measure(struct model *m, const float *g)
{
    for (uint64_t b = 0; b < m->n_buckets; b++) {
        const uint64_t begin = b * m->bucket, end = begin + m->bucket < m->n ? begin + m->bucket : m->n;
        double squares = 0, largest = 0;
        for (uint64_t i = begin; i < end; i++) {
            m->a[i] = g[i] + m->residual[i];
            squares += (double)g[i] * (double)g[i];
            largest = fmax(largest, fabs((double)m->a[i]));
        }
        double l = largest;
        if (!isinf(m->level) && end > begin)
            l = fmax(m->level * sqrt(squares / (double)(end - begin)), largest / 4);
        m->own[b] = l < 0x1p-125 ? 0 : l < (double)FLT_MAX ? (float)l : FLT_MAX;
    }
}

/* Rounds with the levels that all workers share. */
static int model_value(const struct model *m, const float *levels, uint64_t i)
{
    const float l = levels[i / m->bucket], a = m->a[i];
    return l > 0 && fabsf(a) > l / 2 ? a < 0 ? -1 : 1 : 0;
}

static void model_commit(struct model *m, const float *levels)
{
    for (uint64_t i = 0; i < m->n; i++)
        m->residual[i] = m->a[i] - (float)model_value(m, levels, i) * levels[i / m->bucket];
}

enum scale { BELL, TINY, LARGE, MIXED, N_SCALES };

static void fill(uint64_t seed, enum scale scale, float *g, uint64_t n)
{
    static const float factors[] = {1, 0x1p-130f, 0x1p100f, 1};
    numbers_fill_bell(seed, g, n);
    for (uint64_t i = 0; i < n; i++)
        g[i] = scale == MIXED ? (i % 7 ? g[i] : i % 5 ? -0.0f : 30 * g[i]) : g[i] * factors[scale];
}

/* One step of an encoder: measures, compares its levels with the model's, shares levels that are a little higher (as
 * those of another worker may be) and compares what is sent. Returns the frame. */
static struct whole_frame check_step(gw_encoder *encoder, struct model *m, const float *g, float *levels, bool shares,
                                     const char *what)
{
    const uint64_t n_shared = gw_encoder_traits_of(encoder).n_shared;
    float *own = room_for(n_shared, sizeof *own), *out = room_for(m->n, sizeof *out);
    assert_int_equal(n_shared, shares ? m->n_buckets : 0);
    measure(encoder, g, own);
    model_measure(m, g);
    struct whole_frame frame;
    if (shares) {
        for (uint64_t b = 0; b < n_shared; b++) {
            CHECK(fabs((double)own[b] - (double)m->own[b]) <= 1e-6 * (double)m->own[b], "%s: level %llu is %a, not %a",
                  what, (unsigned long long)b, (double)own[b], (double)m->own[b]);
            levels[b] = b % 3 ? own[b] : own[b] * 1.25f;
        }
        frame = encode_slice(encoder, g, levels, (gw_draw){0}, 0, m->n);
    } else {
        frame = encode_slice(encoder, g, NULL, (gw_draw){0}, 0, m->n);
        for (uint64_t b = 0; b < m->n_buckets; b++)
            levels[b] = gw_frame_scaler(frame.bytes, frame.size, b);
    }
    decode_into(NULL, frame, out, m->n);
    for (uint64_t i = 0; i < m->n; i++) {
        const float sent = (float)model_value(m, levels, i) * levels[i / m->bucket];
        CHECK(out[i] == sent, "%s: element %llu is %a, not %a (a is %a)", what, (unsigned long long)i, (double)out[i],
              (double)sent, (double)m->a[i]);
    }
    free(out);
    free(own);
    return frame;
}

TEST(steps_are_as_the_document_says)
{
    static const uint64_t lengths[] = {0, 1, 63, 65, 1024, 1100, 5000, 65536, 140001},
                          buckets[] = {0, 1, 7, 64, 1024, 1500, 65536};
    static const char *const rests[] = {"", ",level=max", ",level=1.5,share=off", ",level=0"};
    static const double levels_of[] = {3, INFINITY, 1.5, 0};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t b = 0; b < sizeof buckets / sizeof *buckets; b++)
            for (size_t r = 0; r < 4; r++)
                for (enum scale scale = 0; scale < N_SCALES; scale++) {
                    const uint64_t n = lengths[l];
                    if (n > 1024 && (scale != BELL || (buckets[b] > 0 && buckets[b] < 1500)))
                        continue; /* the model is slow */
                    char spec[96], what[160];
                    snprintf(spec, sizeof spec, "ternary:residual=on,bucket=%llu%s", (unsigned long long)buckets[b],
                             rests[r]);
                    struct model m = model_of(n, buckets[b], levels_of[r]);
                    gw_context *contexts[] = {context_of(1), context_of(3)};
                    gw_encoder *encoders[] = {encoder_of(contexts[0], spec, n), encoder_of(contexts[1], spec, n)};
                    float *g = room_for(n, sizeof *g), *residual = room_for(n, sizeof *residual),
                          *levels = room_for(m.n_buckets, sizeof *levels);
                    for (uint32_t t = 0; t < 5; t++) {
                        const bool committed = t != 1; /* somebody drops this step */
                        snprintf(what, sizeof what, "%s, %llu elements, scale %d, step %u", spec, (unsigned long long)n,
                                 (int)scale, t);
                        fill(10 * l + t, scale, g, n);
                        struct whole_frame frames[2];
                        for (int i = 0; i < 2; i++)
                            frames[i] = check_step(encoders[i], &m, g, levels, r != 2, what);
                        CHECK(same_frame(frames[0], frames[1]), "%s: threads matter", what);
                        for (int i = 0; i < 2; i++) {
                            assert_int_equal(gw_encoder_commit(encoders[i], committed), GW_OK);
                            free(frames[i].bytes);
                        }
                        if (committed)
                            model_commit(&m, levels);
                        /* From here on, the first encoder goes on from what a save has settled. */
                        residual_of(encoders[0], n, residual);
                        if (t == 2)
                            CHECK(same_floats(residual, m.residual, n), "%s: another residual", what);
                    }
                    for (int i = 0; i < 2; i++) {
                        residual_of(encoders[i], n, residual);
                        CHECK(same_floats(residual, m.residual, n), "%s: another residual of %d", what, i);
                        gw_encoder_destroy(encoders[i]);
                        gw_context_destroy(contexts[i]);
                    }
                    free(levels);
                    free(residual);
                    free(g);
                    model_free(m);
                }
}

/* With whole words and without, in one call or two: a slice holds what the whole holds. */
TEST(slices_are_parts_of_the_whole)
{
    enum { N = 200001, BEGIN = 6 * 2048, COUNT = N - BEGIN };
    static float g[N], whole[N], part[COUNT];
    static const char *const specs[] = {"ternary:residual=on", "ternary:residual=on,bucket=2048",
                                        "ternary:residual=on,share=off,bucket=64"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        gw_encoder *encoder = encoder_of(NULL, specs[s], N), *fused = encoder_of(NULL, specs[s], N);
        const size_t bound = gw_encoder_bound(encoder, N);
        uint8_t *bytes = room_for(bound, 1);
        for (uint32_t t = 0; t < 3; t++) {
            numbers_fill_bell(t, g, N);
            struct whole_frame frame = encode_whole(encoder, g, N, NULL, (gw_draw){0}),
                               slice = encode_slice(encoder, g, NULL, (gw_draw){0}, BEGIN, COUNT),
                               first = encode_slice(encoder, g, NULL, (gw_draw){0}, 0, BEGIN);
            size_t size;
            assert_int_equal(gw_encoder_measure_encode(fused, g, NULL, &(gw_draw){0}, bytes, bound, &size, NULL),
                             GW_OK);
            assert_true(same_frame(frame, (struct whole_frame){bytes, size}));
            decode_into(NULL, frame, whole, N);
            decode_into(NULL, slice, part, COUNT);
            assert_true(same_floats(whole + BEGIN, part, COUNT));
            decode_into(NULL, first, part, BEGIN);
            assert_true(same_floats(whole, part, BEGIN));
            free(frame.bytes);
            free(slice.bytes);
            free(first.bytes);
            assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
            assert_int_equal(gw_encoder_commit(fused, true), GW_OK);
        }
        free(bytes);
        gw_encoder_destroy(encoder);
        gw_encoder_destroy(fused);
    }
}

/* Three workers share their levels, so that sums are integers. All that came in went out or waits, and what waits does
 * not grow. */
TEST(what_is_not_sent_waits)
{
    enum { N = 3000, T = 400, WORKERS = 3 };
    static const char *const specs[] = {"ternary:residual=on", "ternary:residual=on,level=max"};
    static float g[N], out[N], residual[N];
    for (size_t s = 0; s < 2; s++) {
        static double came[N], went[N], waits[N];
        memset(came, 0, sizeof came);
        memset(went, 0, sizeof went);
        memset(waits, 0, sizeof waits);
        gw_encoder *encoders[WORKERS];
        double norms[2] = {0};
        for (uint32_t w = 0; w < WORKERS; w++)
            encoders[w] = encoder_of(NULL, specs[s], N);
        for (uint32_t t = 0; t < T; t++) {
            float shared = 0;
            struct whole_frame frames[WORKERS];
            for (uint32_t w = 0; w < WORKERS; w++) {
                float own;
                numbers_fill_bell(WORKERS * t + w, g, N);
                measure(encoders[w], g, &own);
                shared = own > shared ? own : shared;
            }
            for (uint32_t w = 0; w < WORKERS; w++) {
                numbers_fill_bell(WORKERS * t + w, g, N);
                frames[w] = encode_slice(encoders[w], g, &shared, (gw_draw){.rank = w, .step = t}, 0, N);
                for (int i = 0; i < N; i++)
                    came[i] += (double)g[i] / WORKERS;
            }
            struct whole_frame average = reduce_frames(NULL, frames, WORKERS, specs[s]);
            decode_into(NULL, average, out, N);
            free(average.bytes);
            for (uint32_t w = 0; w < WORKERS; w++) {
                free(frames[w].bytes);
                assert_int_equal(gw_encoder_commit(encoders[w], true), GW_OK);
            }
            for (int i = 0; i < N; i++)
                went[i] += (double)out[i];
            if (t == T / 4 || t == T - 1) {
                gw_encoder_condition condition;
                gw_encoder_describe(encoders[0], &condition);
                norms[t == T - 1] = condition.residual_norm;
            }
        }
        double largest = 0;
        for (uint32_t w = 0; w < WORKERS; w++) {
            residual_of(encoders[w], N, residual);
            for (int i = 0; i < N; i++) {
                waits[i] += (double)residual[i] / WORKERS;
                largest = fmax(largest, fabs((double)residual[i]));
            }
            gw_encoder_destroy(encoders[w]);
        }
        for (int i = 0; i < N; i++)
            CHECK(fabs(came[i] - went[i] - waits[i]) < 1e-3, "%s, element %d: %g came, %g went, %g waits", specs[s], i,
                  came[i], went[i], waits[i]);
        CHECK(norms[1] < 1.5 * norms[0] && largest < 4, "%s: the residual grows: %g, then %g; the largest is %g",
              specs[s], norms[0], norms[1], largest);
    }
}

TEST(what_is_not_finite_is_found)
{
    check_not_finite("ternary:residual=on");

    /* Gradient plus residual overflows, though both are finite. */
    float large[100] = {[30] = FLT_MAX, [31] = FLT_MAX / 2}, shared;
    gw_measure info;
    gw_encoder *encoder = encoder_of(NULL, "ternary:residual=on,level=max", 100);
    free(encode_whole(encoder, large, 100, NULL, (gw_draw){0}).bytes); /* half of the largest is not sent */
    assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
    large[31] = FLT_MAX;
    assert_int_equal(gw_encoder_measure(encoder, large, &shared, 1, &info), GW_OK);
    assert_true(!info.finite && info.bad_index == 31);
    gw_encoder_destroy(encoder);
}

/* A scaler of another unit, a saved state, other options, and other numbers of workers. */
TEST(a_saved_state_goes_on)
{
    enum { N = 3000 };
    static const char spec[] = "ternary:residual=on,bucket=700";
    static float g[N], residual[N], doubled[N];
    gw_encoder *a = encoder_of(NULL, spec, N), *b = encoder_of(NULL, "ternary:residual=on,level=max", N),
               *c = encoder_of(NULL, spec, N), *drawn = encoder_of(NULL, "ternary", N),
               *onebit = encoder_of(NULL, "onebit", N);
    const size_t n_bytes = gw_encoder_traits_of(a).state_bytes;
    assert_true(gw_encoder_traits_of(b).state_bytes == n_bytes && gw_encoder_traits_of(drawn).state_bytes == 0);
    uint8_t *saved = room_for(n_bytes, 1), *same = room_for(n_bytes, 1);
    for (uint32_t t = 0; t < 3; t++) {
        numbers_fill_bell(t, g, N);
        free(encode_whole(a, g, N, NULL, (gw_draw){0}).bytes);
        free(encode_whole(b, g, N, NULL, (gw_draw){0}).bytes);
        assert_true(gw_encoder_commit(a, true) == GW_OK && gw_encoder_commit(b, true) == GW_OK);
    }
    assert_int_equal(gw_encoder_save(a, saved, n_bytes), GW_OK);
    assert_int_equal(gw_encoder_load(b, saved, n_bytes), GW_OK);
    assert_int_equal(gw_encoder_save(b, same, n_bytes), GW_OK);
    assert_memory_equal(saved, same, n_bytes);
    assert_int_equal(gw_encoder_load(c, saved, n_bytes), GW_OK);
    struct whole_frame frames[] = {encode_whole(a, g, N, NULL, (gw_draw){0}),
                                   encode_whole(c, g, N, NULL, (gw_draw){0})};
    assert_true(same_frame(frames[0], frames[1]));
    free(frames[0].bytes);
    free(frames[1].bytes);
    assert_int_equal(gw_encoder_load(onebit, saved, n_bytes), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encoder_load(drawn, saved, n_bytes), GW_ERR_ARGUMENT);
    memset(saved + n_bytes - 12, 0xFF, 4);
    assert_int_equal(gw_encoder_load(c, saved, n_bytes), GW_ERR_ARGUMENT); /* the checksum does not fit */

    assert_int_equal(gw_encoder_commit(a, true), GW_OK);
    residual_of(a, N, residual);
    assert_int_equal(gw_encoder_scale(a, 2), GW_OK);
    residual_of(a, N, doubled);
    for (int i = 0; i < N; i++)
        assert_true(doubled[i] == 2 * residual[i]);

    check_merged_states(spec, N);
    free(saved);
    free(same);
    gw_encoder_destroy(a);
    gw_encoder_destroy(b);
    gw_encoder_destroy(c);
    gw_encoder_destroy(drawn);
    gw_encoder_destroy(onebit);
}

RUN_TESTS("residual", NULL, NULL)
