/* Tests onebit from step to step against a plain model of docs/wire-format.md: frames, residuals and averages, bit for
 * bit. What is not sent waits, dropped steps leave no trace, and a saved state goes on, also on other numbers of
 * workers. */
#include "checks.h"
#include "codec/state.h"
#include "codecs.h"
#include "wire/frame.h"

#include <float.h>
#include <stdio.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/* ---- a model ----------------------------------------------------------------------------------------- */

/* docs/wire-format.md, section 9: the sum of up to 1024 elements. */
static double model_block(const float *x, uint64_t n)
{
    float lanes[32] = {0}, largest = 0;
    double wide[32], sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
        lanes[i % 32] += x[i];
        sum += (double)x[i];
    }
    if (largest > 0x1p60f || (largest > 0 && largest < 0x1p-50f))
        return sum;
    for (int i = 0; i < 32; i++)
        wide[i] = (double)lanes[i];
    for (int half = 16; half; half /= 2)
        for (int i = 0; i < half; i++)
            wide[i] += wide[i + half];
    return wide[0];
}

static double model_sum(const float *x, uint64_t n)
{
    double total = 0;
    for (uint64_t run = 0; run < n; run += 65536) {
        double of_run = 0;
        for (uint64_t i = run; i < n && i < run + 65536; i += 1024)
            of_run += model_block(x + i, n - i < 1024 ? n - i : 1024);
        total += of_run;
    }
    return total;
}

struct model {
    uint64_t n, bucket, n_buckets;
    float *residual, *next, *sent, *means; /* means: two of each bucket, neither is negative */
};

static struct model model_of(uint64_t n, uint64_t bucket)
{
    struct model m = {.n = n, .bucket = bucket ? bucket : n, .n_buckets = bucket ? gw_div_up(n, bucket) : 1};
    m.residual = room_for(n, sizeof(float));
    m.next = room_for(n, sizeof(float));
    m.sent = room_for(n, sizeof(float));
    m.means = room_for(2 * m.n_buckets, sizeof(float));
    memset(m.residual, 0, n * sizeof(float));
    return m;
}

static void model_free(struct model m)
{
    free(m.residual);
    free(m.next);
    free(m.sent);
    free(m.means);
}

/* What is sent of g, and the residual that is left. */
static void model_step(struct model *m, const float *g)
{
    float *part = room_for(m->n, sizeof *part);
    for (uint64_t b = 0; b < m->n_buckets; b++) {
        uint64_t begin = b * m->bucket, n = m->n - begin < m->bucket ? m->n - begin : m->bucket;
        for (int negative = 0; negative < 2; negative++) {
            uint64_t count = 0;
            for (uint64_t i = 0; i < n; i++) {
                float a = g[begin + i] + m->residual[begin + i];
                part[i] = (a < 0) == negative ? a : 0;
                count += (a < 0) == negative;
            }
            m->means[2 * b + negative] = count ? fabsf((float)(model_sum(part, n) / (double)count)) : 0;
        }
        for (uint64_t i = begin; i < begin + n; i++) {
            float a = g[i] + m->residual[i];
            m->sent[i] = a < 0 ? -m->means[2 * b + 1] : m->means[2 * b];
            m->next[i] = a - m->sent[i];
        }
    }
    free(part);
}

static void model_commit(struct model *m)
{
    memcpy(m->residual, m->next, m->n * sizeof(float));
}

/* ---- frames ------------------------------------------------------------------------------------------ */

static void check_frame(const struct model *m, struct whole_frame frame, const char *what)
{
    const uint8_t *scalers = frame.bytes + GW_HEADER_BYTES, *bits = scalers + 8 * m->n_buckets;
    CHECK(frame.size == GW_HEADER_BYTES + 8 * m->n_buckets + (m->n + 7) / 8, "%s: %zu bytes", what, frame.size);
    CHECK(memcmp(scalers, m->means, 8 * m->n_buckets) == 0, "%s: the first means are %a and %a, not %a and %a", what,
          (double)gw_get_float(scalers), (double)gw_get_float(scalers + 4), (double)m->means[0], (double)m->means[1]);
    float *out = room_for(m->n, sizeof *out);
    decode_into(NULL, frame, out, m->n);
    for (uint64_t i = 0; i < m->n; i++)
        CHECK(same_floats(&out[i], &m->sent[i], 1), "%s: element %llu is %a, not %a", what, (unsigned long long)i,
              (double)out[i], (double)m->sent[i]);
    for (uint64_t i = 0; i < m->n; i++)
        assert_int_equal(bits[i / 8] >> i % 8 & 1, signbit(m->sent[i]) != 0);
    free(out);
}

enum scale { BELL, TINY, LARGE, MIXED, N_SCALES };

static void fill(uint64_t seed, enum scale scale, float *g, uint64_t n)
{
    static const float factors[] = {1, 0x1p-140f, 0x1p100f, 1};
    numbers_fill_bell(seed, g, n);
    for (uint64_t i = 0; i < n; i++) {
        g[i] = scale == MIXED && i % 7 == 0 ? (i % 2 ? -0.0f : 0x1p-149f) : g[i] * factors[scale];
        g[i] += scale == MIXED ? 2 : 0;
    }
}

TEST(runs_are_as_the_document_says)
{
    static const uint64_t lengths[] = {0, 1, 31, 33, 1024, 1025, 5000, 65536, 200001},
                          buckets[] = {0, 1, 7, 64, 1024, 1500, 65536, 70000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t b = 0; b < sizeof buckets / sizeof *buckets; b++)
            for (enum scale scale = 0; scale < N_SCALES; scale++) {
                uint64_t n = lengths[l];
                if (n > 5000 && (scale != BELL || (buckets[b] > 0 && buckets[b] < 1500)))
                    continue; /* the model is slow */
                char spec[64];
                snprintf(spec, sizeof spec, "onebit:bucket=%llu", (unsigned long long)buckets[b]);
                struct model m = model_of(n, buckets[b]);
                gw_context *contexts[] = {context_of(1), context_of(3)};
                gw_encoder *encoders[] = {encoder_of(contexts[0], spec, n), encoder_of(contexts[1], spec, n)};
                float *g = room_for(n, sizeof *g), *residual = room_for(n, sizeof *residual);
                for (uint32_t t = 0; t < 4; t++) {
                    const gw_draw draw = {.rank = 3, .step = t};
                    fill(10 * l + t, scale, g, n);
                    model_step(&m, g);
                    struct whole_frame frames[] = {encode_whole(encoders[0], g, n, NULL, draw),
                                                   encode_whole(encoders[1], g, n, NULL, draw)};
                    char what[128];
                    snprintf(what, sizeof what, "%s, %llu elements, scale %d, step %u", spec, (unsigned long long)n,
                             (int)scale, t);
                    CHECK(same_frame(frames[0], frames[1]), "%s: threads matter", what);
                    check_frame(&m, frames[0], what);
                    bool committed = t != 1; /* somebody drops this step */
                    for (int i = 0; i < 2; i++) {
                        assert_int_equal(gw_encoder_commit(encoders[i], committed), GW_OK);
                        free(frames[i].bytes);
                    }
                    if (committed)
                        model_commit(&m);
                    if (t == 2) /* from here on, the first encoder goes on from what a save has settled */
                        residual_of(encoders[0], n, residual);
                    if (t == 2)
                        CHECK(same_floats(residual, m.residual, n), "%s: another residual", what);
                }
                for (int i = 0; i < 2; i++) {
                    residual_of(encoders[i], n, residual);
                    CHECK(same_floats(residual, m.residual, n), "%s, %llu elements: another residual", spec,
                          (unsigned long long)n);
                    gw_encoder_destroy(encoders[i]);
                    gw_context_destroy(contexts[i]);
                }
                free(residual);
                free(g);
                model_free(m);
            }
}

TEST(slices_are_parts_of_the_whole)
{
    enum { N = 200001, ALIGN = 384000, BEGIN = 6 * 2048, COUNT = N - BEGIN };
    static float g[N], whole[N], part[COUNT];
    static const char *const specs[] = {"onebit:bucket=0", "onebit:bucket=2048", "onebit:bucket=64"};
    numbers_fill_bell(1, g, N);
    gw_encoder *encoder = encoder_of(NULL, "onebit:bucket=1500", N);
    assert_int_equal(gw_encoder_traits_of(encoder).slice_align, ALIGN);
    gw_encoder_destroy(encoder);
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        encoder = encoder_of(NULL, specs[s], N);
        struct whole_frame frame = encode_whole(encoder, g, N, NULL, (gw_draw){0}),
                           slice = encode_slice(encoder, g, NULL, (gw_draw){0}, BEGIN, COUNT),
                           again = encode_slice(encoder, g, NULL, (gw_draw){0}, BEGIN, COUNT),
                           first = encode_slice(encoder, g, NULL, (gw_draw){0}, 0, BEGIN);
        decode_into(NULL, frame, whole, N);
        decode_into(NULL, slice, part, COUNT);
        assert_true(same_floats(whole + BEGIN, part, COUNT) && same_frame(slice, again));
        decode_into(NULL, first, part, BEGIN);
        assert_true(same_floats(whole, part, BEGIN));
        free(frame.bytes);
        free(slice.bytes);
        free(again.bytes);
        free(first.bytes);
        gw_encoder_destroy(encoder);
    }
}

/* The average is the float32 sum of the decoded pushes in rank order, divided once. */
TEST(averages_are_of_floats)
{
    static const uint64_t buckets[] = {0, 5, 100, 4096};
    enum { N = 5001, MOST = 9 };
    static float g[N], out[N], want[N];
    for (size_t b = 0; b < 4; b++)
        for (uint32_t workers = 1; workers <= MOST; workers += 4) {
            char spec[64];
            snprintf(spec, sizeof spec, "onebit:bucket=%llu", (unsigned long long)buckets[b]);
            struct whole_frame frames[MOST];
            for (uint32_t w = 0; w < workers; w++) {
                gw_encoder *encoder = encoder_of(NULL, spec, N);
                numbers_fill_bell(w, g, N);
                /* The frames are given in another order than the one in which they are added. */
                frames[workers - 1 - w] = encode_whole(encoder, g, N, NULL, (gw_draw){.rank = w});
                decode_into(NULL, frames[workers - 1 - w], out, N);
                for (int i = 0; i < N; i++)
                    want[i] = w ? want[i] + out[i] : out[i];
                gw_encoder_destroy(encoder);
            }
            for (int i = 0; i < N && workers > 1; i++)
                want[i] /= (float)workers;
            struct whole_frame average = reduce_frames(NULL, frames, workers, spec);
            gw_frame_info info;
            assert_int_equal(gw_frame_parse(average.bytes, average.size, &info), GW_OK);
            assert_string_equal(info.codec, "none");
            assert_true(info.average && info.workers == workers && info.n_scalers == 0 && info.bucket == 0);
            decode_into(NULL, average, out, N);
            CHECK(same_floats(out, want, N), "%s: another average of %u", spec, workers);
            for (uint32_t w = 0; w < workers; w++)
                free(frames[w].bytes);
            free(average.bytes);
        }
}

TEST(reports_are_of_the_signs)
{
    const float g[] = {1, 3, -2, 0, -0.0f, -4, 1, 1, 1, 5};
    gw_encoder *encoder = encoder_of(NULL, "onebit", 10);
    struct whole_frame frame = encode_whole(encoder, g, 10, NULL, (gw_draw){0});
    uint64_t counts[3], nonzeros;
    double entropy;
    assert_int_equal(gw_frame_symbols(NULL, frame.bytes, frame.size, counts, 3, &nonzeros, &entropy), GW_OK);
    assert_true(counts[0] == 2 && counts[1] == 0 && counts[2] == 8 && nonzeros == 10);
    assert_true(fabs(entropy - (0.2 * log2(5) + 0.8 * log2(1.25))) < 1e-12);
    assert_true(gw_frame_scaler(frame.bytes, frame.size, 0) == 1.5f &&
                gw_frame_scaler(frame.bytes, frame.size, 1) == 3);
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
    assert_true(info.always_finite && info.n_scalers == 2 && info.payload_bytes == 2);
    assert_string_equal(info.code, "signs");
    free(frame.bytes);
    /* Of zeros only zeros are sent. */
    const float zeros[10] = {0};
    assert_int_equal(gw_encoder_commit(encoder, false), GW_OK);
    frame = encode_whole(encoder, zeros, 10, NULL, (gw_draw){0});
    assert_int_equal(gw_frame_symbols(NULL, frame.bytes, frame.size, counts, 3, &nonzeros, NULL), GW_OK);
    assert_true(counts[1] == 10 && nonzeros == 0);
    free(frame.bytes);
    gw_encoder_destroy(encoder);
}

/* ---- between steps ----------------------------------------------------------------------------------- */

/* Error feedback: what was sent up to now is what came in, less a residual that stays bounded. So the mean of what was
 * sent goes to the mean of what came in, as 1/T. */
TEST(what_is_not_sent_waits)
{
    enum { N = 2000, T = 400 };
    static float g[N], out[N], residual[N];
    static double came[N], went[N];
    gw_encoder *encoder = encoder_of(NULL, "onebit:bucket=500", N);
    double norm[2] = {0};
    for (uint32_t t = 0; t < T; t++) {
        numbers_fill_bell(t, g, N);
        struct whole_frame frame = encode_whole(encoder, g, N, NULL, (gw_draw){.step = t});
        decode_into(NULL, frame, out, N);
        free(frame.bytes);
        assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
        for (int i = 0; i < N; i++) {
            came[i] += (double)g[i];
            went[i] += (double)out[i];
        }
        if (t == T / 4 || t == T - 1) {
            residual_of(encoder, N, residual);
            gw_encoder_condition condition;
            gw_encoder_describe(encoder, &condition);
            double squares = 0;
            for (int i = 0; i < N; i++) {
                CHECK(fabs(came[i] - went[i] - (double)residual[i]) < 1e-3, "element %d: %g came, %g went, %g waits", i,
                      came[i], went[i], (double)residual[i]);
                squares += (double)residual[i] * (double)residual[i];
            }
            norm[t == T - 1] = condition.residual_norm;
            assert_true(fabs(condition.residual_norm - sqrt(squares)) <= 1e-12 * sqrt(squares));
            assert_true(condition.threshold == 0 && condition.threshold_age == 0);
        }
    }
    /* |e| of one step is about 0.6 |g|. It does not grow with the number of steps. */
    CHECK(norm[1] < 2 * norm[0] && norm[1] < 5 * sqrt(N), "the residual grows: %g, then %g", norm[0], norm[1]);
    gw_encoder_destroy(encoder);
}

/* Elements that never have a gradient are sent as zeros, beside others that have one: most of a picture's margin is
 * white in all pictures. */
TEST(the_default_keeps_zeros_apart)
{
    enum { N = 4096, ZEROS = 1536 };
    static float g[N], out[N];
    gw_encoder *encoder = encoder_of(NULL, "onebit", N);
    for (uint32_t t = 0; t < 3; t++) {
        numbers_fill_bell(t, g, N);
        memset(g, 0, ZEROS * sizeof *g);
        struct whole_frame frame = encode_whole(encoder, g, N, NULL, (gw_draw){.step = t});
        decode_into(NULL, frame, out, N);
        free(frame.bytes);
        assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
        for (int i = 0; i < N; i++)
            CHECK((out[i] == 0) == (i < ZEROS), "step %u, element %d: %g", t, i, (double)out[i]);
    }
    gw_encoder_destroy(encoder);
}

TEST(what_is_not_finite_is_found)
{
    check_not_finite("onebit");

    /* Gradient plus residual overflows, though both are finite. The first two elements are sent as they are and leave
     * nothing. Half of the third waits. */
    float large[] = {FLT_MAX, FLT_MAX, FLT_MAX, 0};
    gw_measure info;
    gw_encoder *encoder = encoder_of(NULL, "onebit:bucket=2", 4);
    struct whole_frame frame = encode_whole(encoder, large, 4, NULL, (gw_draw){0});
    free(frame.bytes);
    assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
    assert_int_equal(gw_encoder_measure(encoder, large, NULL, 0, &info), GW_OK);
    assert_true(!info.finite && info.bad_index == 2);
    gw_encoder_destroy(encoder);
}

TEST(a_saved_state_goes_on)
{
    enum { N = 3000 };
    static float g[N];
    gw_encoder *a = encoder_of(NULL, "onebit:bucket=700", N), *b = encoder_of(NULL, "onebit", N),
               *c = encoder_of(NULL, "onebit:bucket=700", N), *other = encoder_of(NULL, "topk", N);
    size_t n_bytes = gw_encoder_traits_of(a).state_bytes;
    assert_int_equal(gw_encoder_traits_of(b).state_bytes, n_bytes);
    uint8_t *saved = room_for(n_bytes, 1), *same = room_for(n_bytes, 1);
    for (uint32_t t = 0; t < 3; t++) {
        numbers_fill_bell(t, g, N);
        for (int i = 0; i < N; i++)
            g[i] *= 0x1p-130f; /* what is left becomes denormal */
        free(encode_whole(a, g, N, NULL, (gw_draw){0}).bytes);
        assert_int_equal(gw_encoder_commit(a, true), GW_OK);
    }
#if defined(__x86_64__)
    _mm_setcsr(0x9FC0 | 0x4000); /* the host's modes: flush to zero, denormals are zero, round up */
    gw_status in_other_modes = gw_encoder_save(a, same, n_bytes);
    _mm_setcsr(0x1F80);
    assert_int_equal(in_other_modes, GW_OK);
#endif
    assert_int_equal(gw_encoder_save(a, saved, n_bytes), GW_OK);
#if defined(__x86_64__)
    assert_memory_equal(saved, same, n_bytes);
    bool any = false;
    for (uint64_t i = 0; i < N; i++)
        any = any || fpclassify(gw_get_float(saved + n_bytes - 8 - 4 * (i + 1))) == FP_SUBNORMAL;
    assert_true(any);
#endif
    /* The state is loaded into an encoder that has made other steps, and whose bucket differs. Options may differ. */
    free(encode_whole(b, g, N, NULL, (gw_draw){0}).bytes);
    assert_int_equal(gw_encoder_commit(b, true), GW_OK);
    assert_int_equal(gw_encoder_load(b, saved, n_bytes), GW_OK);
    assert_int_equal(gw_encoder_save(b, same, n_bytes), GW_OK);
    assert_memory_equal(saved, same, n_bytes);
    assert_int_equal(gw_encoder_load(c, saved, n_bytes), GW_OK);
    struct whole_frame frames[] = {encode_whole(a, g, N, NULL, (gw_draw){0}),
                                   encode_whole(c, g, N, NULL, (gw_draw){0})};
    assert_true(same_frame(frames[0], frames[1]));
    free(frames[0].bytes);
    free(frames[1].bytes);
    assert_int_equal(gw_encoder_load(other, saved, n_bytes), GW_ERR_ARGUMENT);
    free(saved);
    free(same);
    gw_encoder_destroy(a);
    gw_encoder_destroy(b);
    gw_encoder_destroy(c);
    gw_encoder_destroy(other);
}

TEST(states_move_to_other_numbers_of_workers)
{
    check_merged_states("onebit", 1000);
}

RUN_TESTS("onebit", NULL, NULL)
