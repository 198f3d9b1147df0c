/* Tests uniform's frames element by element against a plain model of docs/wire-format.md, and what its draw
 * promises. */
#include "checks.h"
#include "codecs.h"

#include <float.h>

/* An element that is not 0 is sent if its random number is below density * 2^32. Its value is divided by exactly that
 * probability. */
static float model(float g, double density, gw_draw draw, uint32_t tensor, uint64_t e)
{
    uint64_t t = (uint64_t)(float)(density * 0x1p32), h = t >> 16 < 65535 ? t >> 16 : 65535;
    uint64_t r = model_bits(draw, tensor, 5, (uint32_t)(16 * (e / 128) + e % 32 / 2), (uint32_t)(e % 128 / 32), e % 2);
    bool drawn = r < h;
    if (r == h)
        drawn = (r << 16 | model_bits(draw, tensor, 6, (uint32_t)(e / 8), (uint32_t)(e % 8 / 2), e % 2)) < t;
    double x = (double)g / ((double)t * 0x1p-32);
    return !drawn || g == 0 ? 0 : x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : (float)x;
}

static const struct {
    const char *spec;
    double density;
} kinds[] = {{"uniform", 0.01},
             {"uniform:density=0.3", 0.3},
             {"uniform:density=1", 1},
             {"uniform:density=0.000001", 1e-6}};
#define N_KINDS (sizeof kinds / sizeof *kinds)

TEST(frames_are_as_the_document_says)
{
    static const uint64_t lengths[] = {0, 1, 63, 129, 4097, 70000, 600001};
    uint64_t digest = 0;
    for (size_t s = 0; s < N_KINDS; s++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            uint64_t n = lengths[l];
            float *g = room_for(n, sizeof *g), *out = room_for(n, sizeof *out);
            numbers_fill_bell(s + l, g, n);
            for (uint64_t i = 0; i < n; i += 5)
                g[i] = i % 2 ? -0.0f : i % 3 ? 0x1p-149f : -FLT_MAX;
            const gw_draw draw = {.seed = 77, .rank = (uint32_t)l, .step = 5};
            struct whole_frame frames[2];
            for (uint32_t i = 0; i < 2; i++) {
                gw_context *context = context_of(1 + 2 * i);
                gw_encoder *encoder = encoder_of(context, kinds[s].spec, n);
                frames[i] = encode_whole(encoder, g, n, NULL, draw);
                gw_encoder_destroy(encoder);
                gw_context_destroy(context);
            }
            assert_true(same_frame(frames[0], frames[1]));
            for (size_t i = 0; i < frames[0].size; i++)
                digest = (digest ^ frames[0].bytes[i]) * 0x100000001B3ull;
            decode_into(NULL, frames[0], out, n);
            for (uint64_t i = 0; i < n; i++) {
                float want = model(g[i], kinds[s].density, draw, 7, i);
                CHECK(same_floats(&out[i], &want, 1), "%s, %llu elements: element %llu, %a, is %a, not %a",
                      kinds[s].spec, (unsigned long long)n, (unsigned long long)i, (double)g[i], (double)out[i],
                      (double)want);
            }
            free(frames[0].bytes);
            free(frames[1].bytes);
            free(g);
            free(out);
        }
    CHECK(digest == 0xf34982a80eb9bc01ull, "the frames' digest is %#llx", (unsigned long long)digest);
}

TEST(slices_are_parts_of_the_whole)
{
    enum { N = 300000, BEGIN = 5 * 1024, COUNT = 280 * 1024 };
    static float g[N], whole[N], part[COUNT];
    numbers_fill_bell(1, g, N);
    const gw_draw draw = {.seed = 3};
    gw_encoder *encoder = encoder_of(NULL, "uniform:density=0.1", N);
    struct whole_frame frame = encode_whole(encoder, g, N, NULL, draw),
                       slice = encode_slice(encoder, g, NULL, draw, BEGIN, COUNT);
    decode_into(NULL, frame, whole, N);
    decode_into(NULL, slice, part, COUNT);
    assert_true(same_floats(whole + BEGIN, part, COUNT));
    free(frame.bytes);
    free(slice.bytes);
    gw_encoder_destroy(encoder);
}

/* Of T draws an element comes k times, which is binomial with probability p. The squared error of one draw is g^2 (1/p
 * - 1) on average. Seeds are fixed, and the test allows five deviations. */
TEST(the_draw_has_no_bias_and_the_right_variance)
{
    enum { N = 1000, T = 3000 };
    static float g[N], out[N];
    static uint32_t k[N];
    const double p = (double)(float)(0.2 * 0x1p32) * 0x1p-32;
    numbers_fill_bell(2, g, N);
    gw_encoder *encoder = encoder_of(NULL, "uniform:density=0.2", N);
    measure(encoder, g, NULL);
    double errors = 0, mean = 0, variance = 0, chi = 0, sent = 0;
    for (uint32_t t = 0; t < T; t++) {
        struct whole_frame frame = encode_slice(encoder, g, NULL, (gw_draw){.seed = 6, .rank = t % 7, .step = t}, 0, N);
        decode_into(NULL, frame, out, N);
        for (int i = 0; i < N; i++) {
            double e = (double)out[i] - (double)g[i];
            k[i] += out[i] != 0;
            errors += e * e;
        }
        free(frame.bytes);
    }
    for (int i = 0; i < N; i++) {
        double square = (double)g[i] * (double)g[i], jump = (1 / p - 1) * (1 / p - 1) - 1,
               z = (k[i] - T * p) / sqrt(T * p * (1 - p));
        CHECK(g[i] == 0 || fabs(z) < 6, "element %d came %u times of %d", i, k[i], T);
        mean += T * square * (1 / p - 1);
        variance += T * p * (1 - p) * square * square * jump * jump;
        chi += z * z;
        sent += k[i];
    }
    CHECK(fabs(chi - N) < 5 * sqrt(2.0 * N), "chi-square %g of %d", chi, N);
    CHECK(fabs(sent - N * T * p) < 5 * sqrt(N * T * p * (1 - p)), "%g sent", sent);
    CHECK(fabs(errors - mean) < 5 * sqrt(variance), "squared error %g, not %g +- %g", errors, mean, sqrt(variance));
    gw_encoder_destroy(encoder);
}

RUN_TESTS("uniform", NULL, NULL)
