/* Tests GSpar's frames element by element against a plain model of docs/wire-format.md, what the paper promises of the
 * draw (statistically), and how many bits are sent. Seeds are fixed, so a test passes always or never. A right draw
 * with fresh seeds would break a bound less than once in a million runs of a check. */
#include "checks.h"
#include "codec/parts.h"
#include "codec/sparse/sparse.h"
#include "codecs.h"

#include <stdio.h>

static float slope_of(struct whole_frame frame)
{
    return gw_get_float(frame.bytes + GW_HEADER_BYTES);
}

/* A bell-shaped gradient. One element in `rare` is 50 times as large. */
static float *gradient(uint64_t n, uint64_t seed, float scale, uint32_t rare)
{
    float *g = room_for(n, sizeof *g);
    struct numbers numbers = numbers_from(seed);
    for (uint64_t i = 0; i < n; i++)
        g[i] = numbers_bell(&numbers) * (numbers_below(&numbers, rare) ? scale : 50 * scale);
    return g;
}

/* ---- the model --------------------------------------------------------------------------------------- */

static float model(float g, float q, gw_draw draw, uint32_t tensor, uint64_t e)
{
    float a = fabsf(g);
    if (a > q || q == 0)
        return q == 0 ? 0 : g;
    float up = q < 0x1p-90f ? 0x1p64f : 1, s = 0x1p32f / (q * up);
    if (q * up * s < 0x1p32f)
        s = nextafterf(s, INFINITY);
    float product = a * up * s;
    uint64_t t = product < 0x1p32f ? (uint64_t)product : 1ull << 32, h = t >> 16 < 65535 ? t >> 16 : 65535;
    uint64_t r = model_bits(draw, tensor, 3, (uint32_t)(16 * (e / 128) + e % 32 / 2), (uint32_t)(e % 128 / 32), e % 2);
    bool drawn = r < h;
    if (r == h)
        drawn = (r << 16 | model_bits(draw, tensor, 4, (uint32_t)(e / 8), (uint32_t)(e % 8 / 2), e % 2)) < t;
    return drawn ? g < 0 ? -q : q : 0;
}

static void check_frame(struct whole_frame frame, const float *g, gw_draw draw, uint64_t begin, uint64_t n,
                        const char *what)
{
    float *out = room_for(n, sizeof *out), q = slope_of(frame);
    decode_into(NULL, frame, out, n);
    for (uint64_t i = 0; i < n; i++) {
        float want = model(g[begin + i], q, draw, 7, begin + i);
        CHECK(same_floats(&out[i], &want, 1), "%s, %llu elements from %llu: element %llu, %a, is %a, not %a (q = %a)",
              what, (unsigned long long)n, (unsigned long long)begin, (unsigned long long)i, (double)g[begin + i],
              (double)out[i], (double)want, (double)q);
    }
    free(out);
}

static uint64_t digest;

static void note(struct whole_frame frame)
{
    for (size_t i = 0; i < frame.size; i++)
        digest = (digest ^ frame.bytes[i]) * 0x100000001B3ull;
}

static const char *const specs[] = {
    "gspar", "gspar:eps=0.01", "gspar:eps=1000", "gspar:density=0.02", "gspar:density=0.6", "gspar:density=1"};

TEST(frames_are_as_the_document_says)
{
    static const uint64_t lengths[] = {1, 2, 63, 127, 129, 1000, 2049, 66001};
    static const float scales[] = {1, 0x1p-130f, 0x1p119f};
    const gw_draw draw = {.seed = 0x123456789ABCDEFull, .rank = 3, .step = 77};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
            for (size_t k = 0; k < 3; k++) {
                uint64_t n = lengths[l];
                float *g = gradient(n, 10 * l + k, scales[k], 100);
                for (uint64_t i = 0; i < n; i += 7)
                    g[i] = i % 2 ? 0 : -0.0f;
                gw_encoder *encoder = encoder_of(NULL, specs[s], n);
                struct whole_frame frame = encode_whole(encoder, g, n, NULL, draw);
                check_frame(frame, g, draw, 0, n, specs[s]);
                note(frame);
                free(frame.bytes);
                gw_encoder_destroy(encoder);
                free(g);
            }
    CHECK(digest == 0xf4ba5a2537a43705ull, "the frames' digest is %#llx", (unsigned long long)digest);
}

/* Tests several chunks, with any number of threads, whole and in slices. */
TEST(threads_and_slices_change_nothing)
{
    enum { N = 800001 };
    float *g = gradient(N, 5, 1, 1000);
    const gw_draw draw = {.seed = 9, .rank = 0, .step = 1};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct whole_frame first = {0};
        for (uint32_t n_threads = 1; n_threads < 5; n_threads += 2) {
            gw_context *context = context_of(n_threads);
            gw_encoder *encoder = encoder_of(context, specs[s], N);
            struct whole_frame frame = encode_whole(encoder, g, N, NULL, draw);
            if (n_threads == 1) {
                check_frame(frame, g, draw, 0, N, specs[s]);
                first = frame;
            } else {
                assert_true(same_frame(frame, first));
                free(frame.bytes);
            }
            struct whole_frame slice = encode_slice(encoder, g, NULL, draw, 1024, 300032);
            check_frame(slice, g, draw, 1024, 300032, specs[s]);
            free(slice.bytes);
            gw_encoder_destroy(encoder);
            gw_context_destroy(context);
        }
        free(first.bytes);
    }
    free(g);
}

/* If there are signs alone, they fill the coder's states. These may take fewer bits in the end than the signs that went
 * in. */
TEST(parts_of_signs_alone_add_up)
{
    enum { N = 4096 };
    float g[N];
    struct numbers numbers = numbers_from(5);
    for (uint32_t step = 0; step < 50; step++) {
        for (uint32_t i = 0; i < N; i++)
            g[i] = numbers_below(&numbers, 2) ? 1.f : -1.f;
        gw_encoder *encoder = encoder_of(NULL, "gspar:density=0.3", N);
        struct whole_frame frame = encode_whole(encoder, g, N, NULL, (gw_draw){.seed = 9, .step = step});
        gw_frame_parts parts;
        assert_int_equal(gw_frame_read_parts(NULL, frame.bytes, frame.size, &parts), GW_OK);
        assert_int_equal(parts.head_bits + parts.position_bits + parts.sign_bits + parts.value_bits, 8 * frame.size);
        CHECK(parts.value_bits <= 8 * 64 && parts.sign_bits <= parts.n_sent + 2, "%llu bits of values, %llu of signs",
              (unsigned long long)parts.value_bits, (unsigned long long)parts.sign_bits);
        free(frame.bytes);
        gw_encoder_destroy(encoder);
    }
}

TEST(the_ends)
{
    const gw_draw draw = {.seed = 1};
    float zeros[300] = {0}, few[300] = {0}, out[300];
    few[3] = 2, few[17] = -1e-30f, few[299] = 1e30f;
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        gw_encoder *encoder = encoder_of(NULL, specs[s], 300);
        struct whole_frame frame = encode_whole(encoder, zeros, 300, NULL, draw);
        decode_into(NULL, frame, out, 300);
        assert_true(same_floats(out, zeros, 300) && frame.size < 70 && slope_of(frame) == 0);
        free(frame.bytes);
        gw_encoder_destroy(encoder);
    }
    /* There are no more than kappa n nonzeros. So all are sent, and exactly. */
    gw_encoder *encoder = encoder_of(NULL, "gspar:density=0.01", 300);
    struct whole_frame frame = encode_whole(encoder, few, 300, NULL, draw);
    decode_into(NULL, frame, out, 300);
    assert_true(same_floats(out, few, 300));
    free(frame.bytes);
    gw_encoder_destroy(encoder);
}

/* ---- statistics -------------------------------------------------------------------------------------- */

/* Part B of element a is q with probability p = a/q. Over T draws it is drawn k times, with mean Tp and variance
 * Tp(1-p). Its squared error has mean a(q-a) and variance p(1-p)(q(q-2a))^2. Part A has no error. */
static void check_expectation(const char *spec, double eps, float scale)
{
    enum { N = 1000, T = 3000 };
    static uint32_t k[N];
    static float out[N];
    float *g = gradient(N, 3, scale, 50);
    memset(k, 0, sizeof k);
    gw_encoder *encoder = encoder_of(NULL, spec, N);
    measure(encoder, g, NULL);
    double errors = 0, mean = 0, variance = 0, squares = 0, chi = 0, sent = 0, expected = 0, sent_variance = 0, q = 0;
    for (uint32_t t = 0; t < T; t++) {
        const gw_draw draw = {.seed = 42, .rank = t % 3, .step = t};
        struct whole_frame frame = encode_slice(encoder, g, NULL, draw, 0, N);
        decode_into(NULL, frame, out, N);
        q = (double)slope_of(frame);
        for (int i = 0; i < N; i++) {
            k[i] += out[i] != 0;
            errors += ((double)out[i] - (double)g[i]) / q * (((double)out[i] - (double)g[i]) / q);
        }
        free(frame.bytes);
    }
    int m = 0;
    for (int i = 0; i < N; i++) { /* all numbers are in units of q */
        double a = fabs((double)g[i]) / q, p = a < 1 ? a : 1, spread = T * p * (1 - p);
        squares += T * a * a;
        sent += k[i];
        expected += T * p;
        sent_variance += spread;
        if (p == 1 || p == 0) {
            CHECK(k[i] == (p == 1 ? T : 0), "%s: element %d of probability %g came %u times", spec, i, p, k[i]);
            continue;
        }
        mean += T * a * (1 - a);
        variance += spread * (1 - 2 * a) * (1 - 2 * a);
        double z = (k[i] - T * p) / sqrt(spread);
        if (spread > 5) { /* else the distribution is not nearly normal */
            CHECK(fabs(z) < 6, "%s: element %d of probability %g came %u times of %d, z = %g", spec, i, p, k[i], T, z);
            chi += z * z;
            m++;
        }
    }
    CHECK(m > N / 4 && fabs(chi - m) < 5 * sqrt(2.0 * m), "%s: chi-square %g of %d", spec, chi, m);
    CHECK(fabs(errors - mean) < 5 * sqrt(variance), "%s: squared error %g, not %g +- %g", spec, errors, mean,
          sqrt(variance));
    CHECK(fabs(sent - expected) < 5 * sqrt(sent_variance), "%s: %g sent, not %g +- %g", spec, sent, expected,
          sqrt(sent_variance));
    if (eps) /* E|Q|^2 = |g|^2 + E|Q - g|^2 <= (1 + eps) |g|^2 */
        CHECK(errors < eps * squares + 5 * sqrt(variance), "%s: squared error %g of %g", spec, errors, squares);
    gw_encoder_destroy(encoder);
    free(g);
}

TEST(the_draw_has_no_bias_and_the_variance_asked_for)
{
    check_expectation("gspar", 1, 1);
    check_expectation("gspar:eps=0.1", 0.1, 0x1p-30f);
    check_expectation("gspar:eps=0.1", 0.1, 0x1p-132f);
    check_expectation("gspar:eps=0.1", 0.1, 0x1p100f);
    check_expectation("gspar:density=0.2", 0, 1);
}

/* The elements of a draw are independent. So the number sent of n elements has the variance of n coins. */
TEST(as_many_are_sent_as_asked_for)
{
    enum { N = 1 << 18 };
    static float out[N];
    float *g = gradient(N, 8, 1, 1000);
    static const double densities[] = {0.001, 0.01, 0.1, 0.5};
    for (size_t d = 0; d < 4; d++) {
        char spec[40];
        snprintf(spec, sizeof spec, "gspar:density=%g", densities[d]);
        gw_encoder *encoder = encoder_of(NULL, spec, N);
        struct whole_frame frame = encode_whole(encoder, g, N, NULL, (gw_draw){.seed = d});
        decode_into(NULL, frame, out, N);
        double sent = 0, variance = 0, q = (double)slope_of(frame);
        for (int i = 0; i < N; i++) {
            double p = fabs((double)g[i]) < q ? fabs((double)g[i]) / q : 1;
            sent += out[i] != 0;
            variance += p * (1 - p);
        }
        CHECK(fabs(sent - densities[d] * N) < 5 * sqrt(variance), "%s: %g of %d are sent, not %g +- %g", spec, sent, N,
              densities[d] * N, sqrt(variance));
        free(frame.bytes);
        gw_encoder_destroy(encoder);
    }
    free(g);
}

/* ---- sizes ------------------------------------------------------------------------------------------- */

struct sizes {
    uint64_t n_exact, n_other; /* parts A and B */
    uint64_t sign_bits;        /* of part B's signs */
    uint64_t position_bits;    /* everything but signs and values */
};

static struct sizes sizes_of(struct whole_frame frame, uint64_t n)
{
    struct sizes sizes = {0};
    float *out = room_for(n, sizeof *out), q = slope_of(frame);
    decode_into(NULL, frame, out, n);
    uint64_t *signs = room_for(GW_SPARSE_WORDS + 1, sizeof *signs);
    for (uint64_t begin = 0; begin < n; begin += GW_SPARSE_CHUNK) {
        uint32_t m = 0, ones = 0;
        memset(signs, 0, GW_SPARSE_WORDS * sizeof *signs);
        for (uint64_t i = begin; i < n && i < begin + GW_SPARSE_CHUNK; i++) {
            if (fabsf(out[i]) == q && q > 0) {
                signs[m / 64] |= (uint64_t)(out[i] < 0) << (m % 64);
                m++;
                ones += out[i] < 0;
            } else {
                sizes.n_exact += out[i] != 0;
            }
        }
        assert_false(gw_signs_are_skewed(m, ones));
        sizes.sign_bits += m; /* signs are fair, so they are sent as they are */
        sizes.n_other += m;
    }
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
    sizes.position_bits = 8 * (frame.size - GW_HEADER_BYTES - 4) - 32 * sizes.n_exact - sizes.sign_bits;
    free(signs);
    free(out);
    return sizes;
}

static double entropy_bits(double n, double a, double b)
{
    double bits = 0, counts[] = {a, b, n - a - b};
    for (int i = 0; i < 3; i++)
        if (counts[i] > 0)
            bits -= counts[i] * log2(counts[i] / n);
    return bits;
}

TEST(positions_are_within_5_percent_of_their_entropy)
{
    static const uint64_t lengths[] = {1 << 16, 1 << 18, 1000003};
    static const char *const kappas[] = {"0.001", "0.01", "0.1"};
    double worst = 0;
    for (size_t l = 0; l < 3; l++)
        for (size_t k = 0; k < 3; k++)
            for (uint32_t rare = 10; rare <= 100000; rare *= 10) { /* from part A alone to part B alone */
                uint64_t n = lengths[l];
                char spec[40];
                snprintf(spec, sizeof spec, "gspar:density=%s", kappas[k]);
                float *g = gradient(n, l + k, 1, rare);
                for (uint64_t i = 0; i < n; i++)
                    g[i] *= fabsf(g[i]) > 10 ? 1000 : 1;
                gw_encoder *encoder = encoder_of(NULL, spec, n);
                struct whole_frame frame = encode_whole(encoder, g, n, NULL, (gw_draw){.seed = rare});
                struct sizes sizes = sizes_of(frame, n);
                double ratio =
                    (double)sizes.position_bits / entropy_bits((double)n, (double)sizes.n_exact, (double)sizes.n_other);
                /* With 65 elements among 65,536, the begin of the two strings alone takes 36 bits, which is 5 % of the
                 * entropy. */
                bool few = sizes.n_exact + sizes.n_other < 100;
                worst = ratio > worst && !few ? ratio : worst;
                CHECK(ratio < (few ? 1.08 : 1.05),
                      "%s, %llu elements, one in %u large: %llu of A, %llu of B, positions take %g times their entropy",
                      spec, (unsigned long long)n, rare, (unsigned long long)sizes.n_exact,
                      (unsigned long long)sizes.n_other, ratio);
                free(frame.bytes);
                gw_encoder_destroy(encoder);
                free(g);
            }
    printf("positions take at worst %.3f times their entropy\n", worst);
}

/* Theorem 4: let floats have b bits, and let the largest s elements have at least 1/rho of the sum of the others. Then
 * at eps = rho a message takes no more than s (b + log2 d) + min(rho s log2 d, d) + b bits on average. The theorem does
 * not count the signs of part B. Neither does this test, which counts what is really sent. */
TEST(messages_are_no_longer_than_theorem_4_says)
{
    enum { D = 20000, T = 20 };
    for (uint64_t seed = 0; seed < 4; seed++) {
        float *g = gradient(D, seed, 1, 10), *a = room_for(D, sizeof *a);
        struct numbers numbers = numbers_from(seed);
        if (seed % 2) /* heavy tails */
            for (int i = 0; i < D; i++)
                g[i] /= numbers_unit(&numbers) + 1e-4f;
        double total = 0;
        for (int i = 0; i < D; i++)
            total += fabs((double)g[i]);
        for (int i = 0; i < D; i++)
            a[i] = fabsf(g[i]);
        for (int width = D / 2; width; width /= 2) /* shell sort, in falling order */
            for (int i = width; i < D; i++) {
                float x = a[i];
                int j = i;
                for (; j >= width && a[j - width] < x; j -= width)
                    a[j] = a[j - width];
                a[j] = x;
            }
        double head = 0;
        for (int s = 1, next = 20; s < D; s++) {
            head += (double)a[s - 1];
            if (s != next)
                continue;
            next *= 3;
            double rho = (total - head) / head, bits = 0;
            char spec[64];
            snprintf(spec, sizeof spec, "gspar:eps=%.9g", rho);
            gw_encoder *encoder = encoder_of(NULL, spec, D);
            measure(encoder, g, NULL);
            for (uint32_t t = 0; t < T; t++) {
                struct whole_frame frame = encode_slice(encoder, g, NULL, (gw_draw){.seed = seed, .step = t}, 0, D);
                bits += 8.0 * (double)(frame.size - GW_HEADER_BYTES) - (double)sizes_of(frame, D).sign_bits;
                free(frame.bytes);
            }
            double bound = s * (32 + log2(D)) + fmin(rho * s * log2(D), D) + 32;
            CHECK(bits / T <= bound, "seed %llu, s = %d, rho = %g: %g bits of %g", (unsigned long long)seed, s, rho,
                  bits / T, bound);
            gw_encoder_destroy(encoder);
        }
        free(g);
        free(a);
    }
}

RUN_TESTS("gspar", NULL, NULL)
