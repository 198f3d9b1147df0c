/* Tests gspar:share=on: which q workers share, that every worker's variance stays within its bound, averages element by
 * element against docs/wire-format.md, and how many bits they take. Seeds are fixed; a right draw with fresh ones would
 * break a bound less than once in a million runs of a check. */
#include "checks.h"
#include "codec/parts.h"
#include "codec/sparse/sparse.h"
#include "codecs.h"

#include <float.h>
#include <stdio.h>

#define MOST_WORKERS 64

/* Workers that have measured, and the number that they share. */
struct team {
    uint32_t n_workers;
    uint64_t n;
    gw_encoder *encoders[MOST_WORKERS];
    float *g[MOST_WORKERS];
    float own[MOST_WORKERS], shared;
    struct whole_frame pushes[MOST_WORKERS];
};

static float slope_of(struct whole_frame frame)
{
    return gw_get_float(frame.bytes + GW_HEADER_BYTES);
}

/* The q that stands for a shared number: docs/wire-format.md, section 10. */
static float mirror(float x)
{
    return x > 0 ? gw_bits_float(0x7F800000u - gw_float_bits(x)) : 0;
}

/* Worker w's gradient is bell-shaped. Its width is `scale` times (1 + w/8), and one element in `rare` is 50 times as
 * large. */
static struct team team_of(const char *spec, uint32_t n_workers, uint64_t n, uint64_t seed, float scale, uint32_t rare)
{
    struct team team = {.n_workers = n_workers, .n = n};
    for (uint32_t w = 0; w < n_workers; w++) {
        struct numbers numbers = numbers_from(100 * seed + w);
        team.g[w] = room_for(n, sizeof(float));
        for (uint64_t i = 0; i < n; i++)
            team.g[w][i] =
                numbers_bell(&numbers) * (1 + (float)w / 8) * scale * (numbers_below(&numbers, rare) ? 1 : 50);
        team.encoders[w] = encoder_of(NULL, spec, n);
        assert_int_equal(gw_encoder_traits_of(team.encoders[w]).n_shared, 1);
        measure(team.encoders[w], team.g[w], &team.own[w]);
        team.shared = team.own[w] > team.shared ? team.own[w] : team.shared;
    }
    return team;
}

static void team_pushes(struct team *team, gw_draw draw)
{
    for (uint32_t w = 0; w < team->n_workers; w++) {
        free(team->pushes[w].bytes);
        draw.rank = w;
        team->pushes[w] = encode_slice(team->encoders[w], team->g[w], &team->shared, draw, 0, team->n);
    }
}

static void team_free(struct team *team)
{
    for (uint32_t w = 0; w < team->n_workers; w++) {
        gw_encoder_destroy(team->encoders[w]);
        free(team->g[w]);
        free(team->pushes[w].bytes);
    }
}

/* ---- q ----------------------------------------------------------------------------------------------- */

TEST(workers_share_the_smallest_q)
{
    enum { N = 3000 };
    static const float scales[] = {1, 0x1p-133f, 0x1p-140f, 0x1p110f};
    for (size_t s = 0; s < sizeof scales / sizeof *scales; s++) {
        struct team team = team_of("gspar:share=on", 4, N, s, scales[s], 100);
        float smallest = FLT_MAX;
        for (uint32_t w = 0; w < 4; w++) {
            struct whole_frame alone = encode_slice(team.encoders[w], team.g[w], NULL, (gw_draw){.seed = 1}, 0, N);
            float q = slope_of(alone);
            assert_true(team.own[w] == mirror(q) && mirror(team.own[w]) == q);
            smallest = q < smallest ? q : smallest;
            free(alone.bytes);
        }
        team_pushes(&team, (gw_draw){.seed = 1});
        for (uint32_t w = 0; w < 4; w++)
            assert_true(slope_of(team.pushes[w]) == smallest);
        team_free(&team);
    }
    /* The largest and the smallest floats, and no q at all. */
    static const float ends[] = {0, FLT_TRUE_MIN, FLT_MIN, 1, FLT_MAX};
    for (size_t i = 0; i < 5; i++) {
        assert_true(mirror(mirror(ends[i])) == ends[i] && mirror(ends[i]) <= FLT_MAX);
        assert_true(i < 2 || mirror(ends[i]) < mirror(ends[i - 1]));
    }
}

TEST(a_worker_of_zeros_sends_nothing_and_bounds_nothing)
{
    enum { N = 1000 };
    struct team team = team_of("gspar:share=on", 2, N, 7, 1, 100);
    float out[N], sent[N];
    memset(team.g[1], 0, N * sizeof(float));
    float own = 5, shared = team.own[0];
    measure(team.encoders[1], team.g[1], &own);
    assert_true(own == 0);
    team.shared = shared;
    team_pushes(&team, (gw_draw){.seed = 1});
    decode_into(NULL, team.pushes[1], out, N);
    for (int i = 0; i < N; i++)
        assert_true(out[i] == 0);
    struct whole_frame average = reduce_frames(NULL, team.pushes, 2, NULL);
    decode_into(NULL, average, out, N);
    decode_into(NULL, team.pushes[0], sent, N);
    for (int i = 0; i < N; i++)
        assert_true(out[i] == sent[i] / 2);
    free(average.bytes);
    /* A tensor of zeros. */
    memset(team.g[0], 0, N * sizeof(float));
    measure(team.encoders[0], team.g[0], &team.own[0]);
    team.shared = 0;
    team_pushes(&team, (gw_draw){.seed = 1});
    average = reduce_frames(NULL, team.pushes, 2, NULL);
    decode_into(NULL, average, out, N);
    for (int i = 0; i < N; i++)
        assert_true(out[i] == 0 && !signbit(out[i]));
    free(average.bytes);
    team_free(&team);
}

TEST(numbers_that_cannot_be_are_refused)
{
    enum { N = 500 };
    struct team team = team_of("gspar:share=on", 1, N, 3, 1, 100);
    size_t bound = gw_encoder_bound(team.encoders[0], N), size;
    uint8_t *bytes = room_for(bound, 1);
    const float bad[] = {nextafterf(team.shared, 0), 0, -1, INFINITY, NAN};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(gw_encoder_encode(team.encoders[0], team.g[0], &bad[i], &(gw_draw){.seed = 1}, 0, N, bytes,
                                           bound, &size),
                         GW_ERR_ARGUMENT);
    free(bytes);
    team_free(&team);
}

/* ---- the draw ---------------------------------------------------------------------------------------- */

/* Worker w's element a (in units of q) is sent as q with probability p = a, if a is below 1. Over T draws its squared
 * error has mean a(1-a) and variance p(1-p)(1-2a)^2. The sum of the average's values has mean T a and variance T
 * a(1-a), summed over workers. */
TEST(every_workers_variance_is_within_its_bound)
{
    enum { N = 1000, T = 2000, W = 3 };
    static float out[N];
    static double sum[N];
    static const double epsilons[] = {1, 0.1};
    for (size_t e = 0; e < 2; e++) {
        char spec[40];
        snprintf(spec, sizeof spec, "gspar:eps=%g,share=on", epsilons[e]);
        struct team team = team_of(spec, W, N, 5 + e, 1, 50);
        double errors[W] = {0}, q = (double)mirror(team.shared);
        memset(sum, 0, sizeof sum);
        for (uint32_t t = 0; t < T; t++) {
            team_pushes(&team, (gw_draw){.seed = 11, .step = t});
            for (uint32_t w = 0; w < W; w++) {
                decode_into(NULL, team.pushes[w], out, N);
                for (int i = 0; i < N; i++) {
                    double error = ((double)out[i] - (double)team.g[w][i]) / q;
                    errors[w] += error * error;
                }
            }
            struct whole_frame average = reduce_frames(NULL, team.pushes, W, NULL);
            decode_into(NULL, average, out, N);
            for (int i = 0; i < N; i++)
                sum[i] += W * (double)out[i] / q;
            free(average.bytes);
        }
        for (uint32_t w = 0; w < W; w++) {
            double squares = 0, variance = 0;
            for (int i = 0; i < N; i++) {
                double a = fabs((double)team.g[w][i]) / q;
                squares += T * a * a;
                variance += a < 1 ? T * a * (1 - a) * (1 - 2 * a) * (1 - 2 * a) : 0;
            }
            CHECK(errors[w] < epsilons[e] * squares + 5 * sqrt(variance), "%s, worker %u: squared error %g of %g", spec,
                  w, errors[w], squares);
            /* The worker with the smallest q has just the variance that it asked for. The others have less. */
            bool smallest = team.own[w] == team.shared;
            CHECK(smallest == (errors[w] > epsilons[e] * squares - 5 * sqrt(variance)), "%s, worker %u: %g of %g", spec,
                  w, errors[w], squares);
        }
        double chi = 0;
        int m = 0;
        for (int i = 0; i < N; i++) {
            double mean = 0, variance = 0;
            for (uint32_t w = 0; w < W; w++) {
                double g = (double)team.g[w][i] / q;
                mean += T * g;
                variance += fabs(g) < 1 ? T * fabs(g) * (1 - fabs(g)) : 0;
            }
            /* Averages are rounded a few times. The error of each draw is below 2^-22 of what is sent. */
            double slack = 1e-6 * (fabs(mean) + 3 * T), off = fabs(sum[i] - mean);
            CHECK(off < 6 * sqrt(variance) + slack, "%s: element %d adds up to %g, not %g +- %g", spec, i, sum[i], mean,
                  sqrt(variance));
            if (variance > 5) {
                chi += off * off / variance;
                m++;
            }
        }
        CHECK(m > N / 4 && fabs(chi - m) < 5 * sqrt(2.0 * m), "%s: chi-square %g of %d", spec, chi, m);
        team_free(&team);
    }
}

/* ---- averages ---------------------------------------------------------------------------------------- */

/* The mean that the document gives for an element that workers sent as x[w]. own: whether x[w] is a value of its
 * own. */
static float model_mean(const float *x, const bool *own, uint32_t n_workers, float q)
{
    int32_t sum = 0;
    bool any = false;
    float value = 0;
    for (uint32_t w = 0; w < n_workers; w++) {
        any = any || own[w];
        if (own[w])
            value += x[w];
        else
            sum += (x[w] > 0) - (x[w] < 0);
    }
    if (!any)
        return sum ? (float)sum * (q / (float)n_workers) : 0;
    value += (float)sum * q;
    value /= (float)n_workers;
    return value == 0 ? 0 : value;
}

static uint32_t n_in_sums, n_dense;

static void check_average(const struct team *team, gw_context *contexts[2])
{
    uint64_t n = team->n;
    float q = mirror(team->shared), *out = room_for(n, sizeof *out), *sent[MOST_WORKERS];
    struct whole_frame average = reduce_frames(NULL, team->pushes, team->n_workers, NULL);
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(average.bytes, average.size, &info), GW_OK);
    assert_true(info.average && info.workers == team->n_workers && info.tensor_id == 7 && info.n_elems == n);
    bool dense = strcmp(info.codec, "none") == 0;
    assert_true(info.payload_bytes < 4 * n || dense || n == 0);
    assert_true(dense || strcmp(info.codec, "gspar") == 0);
    n_in_sums += !dense;
    n_dense += dense;
    decode_into(NULL, average, out, n);
    for (uint32_t w = 0; w < team->n_workers; w++) {
        sent[w] = room_for(n, sizeof(float));
        decode_into(NULL, team->pushes[w], sent[w], n);
    }
    uint64_t signs[3] = {0, 0, 0}, n_values = 0;
    for (uint64_t i = 0; i < n; i++) {
        float x[MOST_WORKERS];
        bool own[MOST_WORKERS], any = false;
        for (uint32_t w = 0; w < team->n_workers; w++) {
            x[w] = sent[w][i];
            own[w] = fabsf(x[w]) > q;
            any = any || own[w];
        }
        float want = model_mean(x, own, team->n_workers, q);
        CHECK(same_floats(&out[i], &want, 1), "%u workers, element %llu of %llu is %a, not %a (q = %a)",
              team->n_workers, (unsigned long long)i, (unsigned long long)n, (double)out[i], (double)want, (double)q);
        signs[1 + (want > 0) - (want < 0)]++;
        n_values += any && want != 0;
    }
    uint64_t counts[2 * MOST_WORKERS + 1], nonzero;
    double entropy;
    assert_int_equal(gw_frame_symbols(NULL, average.bytes, average.size, counts, 2 * MOST_WORKERS + 1, &nonzero,
                                      &entropy),
                     GW_OK);
    assert_memory_equal(counts + team->n_workers - 1, signs, sizeof signs);
    gw_frame_parts parts;
    assert_int_equal(gw_frame_read_parts(NULL, average.bytes, average.size, &parts), GW_OK);
    assert_true(dense || (parts.n_values == n_values && parts.n_sent == signs[0] + signs[2]));
    for (int c = 0; c < 2; c++) { /* more threads give the same */
        struct whole_frame same = reduce_frames(contexts[c], team->pushes, team->n_workers, NULL);
        float *again = room_for(n, sizeof *again);
        assert_true(same_frame(same, average));
        decode_into(contexts[c], average, again, n);
        assert_true(same_floats(again, out, n));
        free(again);
        free(same.bytes);
    }
    for (uint32_t w = 0; w < team->n_workers; w++)
        free(sent[w]);
    free(average.bytes);
    free(out);
}

TEST(averages_are_as_the_document_says)
{
    static const uint64_t lengths[] = {0, 1, 2, 63, 64, 65, 1000, 5003, 262144, 600001};
    static const uint32_t teams[] = {1, 2, 3, 8, 9, 64};
    static const char *const specs[] = {"gspar:share=on", "gspar:eps=0.01,share=on", "gspar:density=0.01,share=on",
                                        "gspar:density=1,share=on"};
    gw_context *contexts[2] = {context_of(2), context_of(3)};
    for (size_t s = 0; s < 4; s++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (size_t t = 0; t < sizeof teams / sizeof *teams; t++) {
                if (lengths[l] * teams[t] > 2000000)
                    continue;
                struct team team = team_of(specs[s], teams[t], lengths[l], 10 * l + t, l % 2 ? 1 : 0x1p-128f, 100);
                team_pushes(&team, (gw_draw){.seed = 9, .step = 4});
                check_average(&team, contexts);
                team_free(&team);
            }
    CHECK(n_in_sums > 100 && n_dense > 20, "%u averages in sums, %u dense", n_in_sums, n_dense);
    gw_context_destroy(contexts[0]);
    gw_context_destroy(contexts[1]);
}

TEST(an_average_of_eight_takes_six_bits_an_element)
{
    enum { N = 1 << 20, W = 8 };
    struct team team = {.n_workers = W, .n = N};
    for (uint32_t w = 0; w < W; w++) {
        struct numbers numbers = numbers_from(w + 1);
        team.g[w] = room_for(N, sizeof(float));
        for (int i = 0; i < N; i++) /* Gaussian, with its tails (Box and Muller) */
            team.g[w][i] = sqrtf(-2 * logf(((float)numbers_word(&numbers) + 1) * 0x1p-32f)) *
                           cosf(0x1.921fb6p+2f * numbers_unit(&numbers));
        team.encoders[w] = encoder_of(NULL, "gspar:eps=1,share=on", N);
        measure(team.encoders[w], team.g[w], &team.own[w]);
        team.shared = team.own[w] > team.shared ? team.own[w] : team.shared;
    }
    team_pushes(&team, (gw_draw){.seed = 1});
    struct whole_frame average = reduce_frames(NULL, team.pushes, W, NULL);
    gw_frame_parts parts;
    assert_int_equal(gw_frame_read_parts(NULL, average.bytes, average.size, &parts), GW_OK);
    double bits = 8 * (double)average.size / N, entropy;
    assert_int_equal(gw_frame_symbols(NULL, average.bytes, average.size, NULL, 0, NULL, &entropy), GW_OK);
    CHECK(bits <= 6, "%g bits an element", bits);
    /* The strings come near the entropy of presence and of the sums. */
    double strings = (double)(parts.position_bits + parts.sign_bits) / N;
    CHECK(strings > entropy && strings < 1.05 * entropy, "%g bits of strings, entropy %g", strings, entropy);
    printf("%.3f bits an element: strings %.3f (entropy %.3f), values %.3f\n", bits, strings, entropy,
           (double)parts.value_bits / N);
    free(average.bytes);
    team_free(&team);
}

static gw_status reduce_two(struct whole_frame a, struct whole_frame b)
{
    const void *frames[] = {a.bytes, b.bytes};
    const size_t sizes[] = {a.size, b.size};
    static uint8_t dst[100000];
    size_t n_bytes;
    return gw_reduce(NULL, frames, sizes, 2, NULL, dst, sizeof dst, &n_bytes);
}

TEST(frames_that_do_not_add_up_are_refused)
{
    enum { N = 1000 };
    struct team team = team_of("gspar:share=on", 2, N, 3, 1, 100);
    team_pushes(&team, (gw_draw){.seed = 1});
    assert_int_equal(reduce_two(team.pushes[0], team.pushes[1]), GW_OK);
    struct whole_frame average = reduce_frames(NULL, team.pushes, 2, NULL);
    assert_int_equal(reduce_two(average, team.pushes[1]), GW_ERR_FRAME_MISMATCH);
    assert_int_equal(reduce_two(team.pushes[1], average), GW_ERR_FRAME_MISMATCH);
    free(average.bytes);
    float more = 2 * team.shared;
    struct whole_frame other = encode_slice(team.encoders[1], team.g[1], &more, (gw_draw){.rank = 1}, 0, N);
    assert_int_equal(reduce_two(team.pushes[0], other), GW_ERR_FRAME_MISMATCH); /* another q */
    free(other.bytes);
    gw_encoder *private = encoder_of(NULL, "gspar", N);
    assert_int_equal(gw_encoder_traits_of(private).n_shared, 0);
    other = encode_whole(private, team.g[1], N, NULL, (gw_draw){.rank = 1});
    assert_int_equal(reduce_two(team.pushes[0], other), GW_ERR_FRAME_MISMATCH); /* a q of its own */
    free(other.bytes);
    gw_encoder_destroy(private);
    team_free(&team);
}

/* There are more workers than integers are summed for. So floats are added in rank order, as if each worker had its own
 * q. */
TEST(very_many_workers_are_averaged_in_floats)
{
    enum { N = 70 };
    struct team team = team_of("gspar:share=on", 1, N, 3, 1, 100);
    float out[N], sent[N], sum[N] = {0};
    for (uint32_t n_workers = 1024; n_workers < 1026; n_workers++) {
        struct whole_frame *frames = room_for(n_workers, sizeof *frames);
        for (uint32_t w = 0; w < n_workers; w++)
            frames[w] = encode_slice(team.encoders[0], team.g[0], &team.shared, (gw_draw){.seed = 5, .rank = w}, 0, N);
        struct whole_frame average = reduce_frames(NULL, frames, n_workers, NULL);
        gw_frame_info info;
        assert_int_equal(gw_frame_parse(average.bytes, average.size, &info), GW_OK);
        decode_into(NULL, average, out, N);
        memset(sum, 0, sizeof sum);
        for (uint32_t w = 0; w < n_workers; w++) {
            decode_into(NULL, frames[w], sent, N);
            for (int i = 0; i < N; i++)
                sum[i] += sent[i];
            free(frames[w].bytes);
        }
        for (int i = 0; i < N; i++) {
            float want = sum[i] / (float)n_workers;
            CHECK(n_workers > 1024 ? out[i] == want : fabsf(out[i] - want) <= 1e-4f, "%u workers: %a, not %a",
                  n_workers, (double)out[i], (double)want);
        }
        free(average.bytes);
        free(frames);
    }
    team_free(&team);
}

/* Averages with a few altered bits are refused or read. Nothing is written outside of the buffers. */
TEST(altered_averages_do_no_harm)
{
    enum { N = 300 };
    struct team team = team_of("gspar:share=on", 3, N, 3, 1, 30);
    team_pushes(&team, (gw_draw){.seed = 1});
    struct whole_frame average = reduce_frames(NULL, team.pushes, 3, NULL);
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(average.bytes, average.size, &info), GW_OK);
    assert_string_equal(info.codec, "gspar");
    uint32_t tally[2] = {0, 0};
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        struct numbers numbers = numbers_from(seed);
        struct whole_frame altered = frame_of(average.bytes, average.size);
        uint32_t span = (uint32_t)average.size - 60, near = span < 200 ? span : 200;
        for (uint32_t j = numbers_below(&numbers, 2) + 1; j; j--)
            altered.bytes[60 + numbers_below(&numbers, near)] ^= (uint8_t)(1u << numbers_below(&numbers, 8));
        if (seed % 9 == 0)
            altered.bytes[6] = (uint8_t)numbers_below(&numbers, 256);
        gw_frame_reseal(altered.bytes, altered.size);
        float *out = room_for(N, sizeof *out);
        gw_status status = gw_decode(NULL, altered.bytes, altered.size, out, N);
        assert_int_equal(gw_frame_symbols(NULL, altered.bytes, altered.size, NULL, 0, NULL, NULL), status);
        CHECK(status == GW_OK || status == GW_ERR_FRAME_PAYLOAD || status == GW_ERR_FRAME_FIELD, "seed %llu: %d",
              (unsigned long long)seed, status);
        tally[status == GW_OK]++;
        free(out);
        free(altered.bytes);
    }
    CHECK(tally[0] > 500 && tally[1] > 500, "%u refused, %u accepted", tally[0], tally[1]);
    free(average.bytes);
    team_free(&team);
}

RUN_TESTS("share", NULL, NULL)
