/* Tests the slope against the paper's two algorithms as printed, in long double with everything sorted. It also checks
 * the conditions of the optimum, and that every instruction set gives the same bits. Seeds are fixed. */
#include "checks.h"
#include "codec/gspar/solve.h"
#include "codecs.h"

#include <float.h>
#include <stdio.h>

/* ---- tensors ----------------------------------------------------------------------------------------- */

enum kind { BELL, CAUCHY, POWERS, SPARSE, LEVELS, EQUAL, TINY, HUGE_, OUTLIER, FLAT, N_KINDS };
static const char *const kind_names[] = {"bell",  "cauchy", "powers", "sparse",  "levels",
                                         "equal", "tiny",   "huge",   "outlier", "flat"};

static void fill(float *g, uint64_t n, enum kind kind, uint64_t seed)
{
    struct numbers numbers = numbers_from(seed);
    for (uint64_t i = 0; i < n; i++) {
        float x = numbers_bell(&numbers);
        switch (kind) {
        case CAUCHY: /* no mean, no deviation */
            x /= numbers_unit(&numbers) + 0x1p-24f;
            break;
        case POWERS:
            x = ldexpf(x, -(int)numbers_below(&numbers, 60));
            break;
        case SPARSE:
            x = numbers_below(&numbers, 10) ? 0 : x;
            break;
        case LEVELS:
            x = (float)((int)numbers_below(&numbers, 9) - 4);
            break;
        case EQUAL:
            x = i % 2 ? 0.7f : -0.7f;
            break;
        case TINY: /* most of them are denormal */
            x *= 0x1p-128f;
            break;
        case HUGE_:
            x *= 0x1p124f;
            break;
        case OUTLIER:
            x *= numbers_below(&numbers, 1000) ? 1 : 50;
            break;
        case FLAT: /* all equal but for the last bits */
            x = 1 + x * 0x1p-18f;
            break;
        default:
            break;
        }
        g[i] = x;
    }
}

/* ---- the paper's algorithms -------------------------------------------------------------------------- */

struct reference {
    uint64_t n_nonzero;
    long double slope;    /* 0: all nonzeros are certain */
    const long double *a; /* magnitudes, in falling order */
};

static int falling(const void *a, const void *b)
{
    long double x = *(const long double *)a, y = *(const long double *)b;
    return (x < y) - (x > y);
}

/* Algorithm 2. */
static long double exact_slope(const long double *a, uint64_t n, double eps)
{
    long double budget = 0, s1 = 0, s2 = 0;
    long double *sum = room_for(n + 1, sizeof *sum), *squares = room_for(n + 1, sizeof *squares);
    sum[n] = squares[n] = 0;
    for (uint64_t i = n; i-- > 0;) {
        sum[i] = s1 += a[i];
        squares[i] = s2 += a[i] * a[i];
    }
    budget = (long double)eps * s2;
    uint64_t k = 0;
    while (k + 1 < n && a[k] * sum[k] > budget + squares[k])
        k++;
    long double slope = (budget + squares[k]) / sum[k];
    free(sum);
    free(squares);
    return slope;
}

/* Algorithm 3. It follows p_i / |g_i| of those below 1: all of them have the same. */
static long double greedy_slope(const long double *a, uint64_t n, uint64_t n_nonzero, double kappa)
{
    long double room = (double)(kappa * (double)n), sum = 0;
    if ((long double)n_nonzero <= room)
        return 0;
    for (uint64_t i = n; i-- > 0;)
        sum += a[i];
    long double *p = room_for(n, sizeof *p), slope = sum / room;
    for (uint64_t i = 0; i < n; i++)
        p[i] = fminl(room * a[i] / sum, 1);
    for (;;) {
        uint64_t free_ones = 0;
        long double sum_p = 0;
        for (uint64_t i = n; i-- > 0;)
            if (p[i] < 1) {
                free_ones++;
                sum_p += p[i];
            }
        long double c = (room - (long double)n + (long double)free_ones) / sum_p;
        if (!(c > 1 + 1e-15L))
            break;
        slope /= c;
        for (uint64_t i = 0; i < n; i++)
            if (p[i] < 1)
                p[i] = fminl(c * p[i], 1);
    }
    free(p);
    return slope;
}

/* ---- one case ---------------------------------------------------------------------------------------- */

static uint64_t digest = 0; /* a hash of all slopes and counts, in order */
static uint32_t n_cases, n_same;

static void note(const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        digest = (digest ^ ((const uint8_t *)bytes)[i]) * 0x100000001B3ull;
}

static struct gspar_solution solve(gw_context *context, const float *g, uint64_t n, struct gspar_target target)
{
    struct gspar_scratch scratch = {0};
    struct gspar_solution solution;
    struct gw_stats stats = gw_stats_run(context, g, n);
    CHECK(gspar_solve(context, g, n, &stats, target, &scratch, &solution) == GW_OK, "%s", gw_last_error());
    gspar_scratch_fini(context, &scratch);
    return solution;
}

/* The conditions of the optimum for min sum p_i under sum g_i^2 / p_i <= (1 + eps) sum g_i^2, 0 < p_i <= 1. With p_i =
 * min(|g_i|/q, 1) one multiplier serves all elements. So only one condition is left: the variance reaches its limit. */
static void check_optimum(const long double *a, uint64_t n, double eps, float slope, const char *what)
{
    long double variance = 0, squares = 0, q = slope;
    for (uint64_t i = n; i-- > 0;) {
        variance += a[i] * fmaxl(a[i], q);
        squares += a[i] * a[i];
    }
    CHECK(fabsl(variance / ((1 + (long double)eps) * squares) - 1) < 1e-6L, "%s: variance %Lg of %Lg", what, variance,
          (1 + (long double)eps) * squares);
}

/* Lemma 3: let all elements but the s largest sum up to at most rho times the sum of these. Then at eps = rho no more
 * than (1 + rho) s are sent on average. */
static void check_sparse_vectors(const float *g, const long double *a, uint64_t n, const char *what)
{
    for (uint64_t s = 1; s < n; s += 1 + s) {
        long double head = 0, rest = 0;
        for (uint64_t i = 0; i < n; i++)
            *(i < s ? &head : &rest) += a[i];
        if (!rest)
            break;
        double rho = (double)(rest / head);
        struct gspar_solution solution = solve(NULL, g, n, (struct gspar_target){GSPAR_EPS, rho});
        CHECK(solution.expected <= (1 + rho) * (double)s * (1 + 1e-6), "%s: lemma 3 at s = %llu, rho = %g: %g are sent",
              what, (unsigned long long)s, rho, solution.expected);
    }
}

static void check_case(gw_context *context, const float *g, uint64_t n, enum kind kind, uint64_t seed,
                       struct gspar_target target, bool lemma)
{
    char what[128];
    snprintf(what, sizeof what, "%s, %llu elements, seed %llu, %s=%g", kind_names[kind], (unsigned long long)n,
             (unsigned long long)seed, target.rule == GSPAR_EPS ? "eps" : "density", target.value);
    struct gspar_solution got = solve(context, g, n, target);
    note(&got.slope, sizeof got.slope);
    note(&got.n_certain, sizeof got.n_certain);
    long double *a = room_for(n, sizeof *a);
    uint64_t n_nonzero = 0;
    for (uint64_t i = 0; i < n; i++) {
        a[i] = fabsl((long double)g[i]);
        n_nonzero += g[i] != 0;
    }
    qsort(a, n, sizeof *a, falling);
    if (!n_nonzero) {
        CHECK(got.slope == 0 && got.n_certain == 0 && got.expected == 0, "%s: slope %g of zeros", what,
              (double)got.slope);
        free(a);
        return;
    }
    long double want =
        target.rule == GSPAR_EPS ? exact_slope(a, n, target.value) : greedy_slope(a, n, n_nonzero, target.value);
    if (want == 0) {
        CHECK(got.slope <= a[n_nonzero - 1] && got.n_certain == n_nonzero && got.expected == (double)n_nonzero,
              "%s: slope %g, %llu certain; all %llu nonzeros are", what, (double)got.slope,
              (unsigned long long)got.n_certain, (unsigned long long)n_nonzero);
        free(a);
        return;
    }
    /* float32 is off by half a unit of the last place, which is the same for all denormals. Sums in lanes of 32
     * elements are rounded, too. If elements are equal, this rounding goes the same way every time. */
    long double rounding = kind == EQUAL ? 1e-6L : 4e-7L, room = want * rounding + 0x1p-150L;
    long double most = want < FLT_MAX ? want : FLT_MAX;
    CHECK(fabsl((long double)got.slope - most) <= room, "%s: slope %.9g, not %.9Lg", what, (double)got.slope, want);
    /* Elements that are equal to the slope within rounding may count or not. */
    uint64_t least = 0, most_certain = 0, exactly = 0;
    long double expected = 0;
    for (uint64_t i = 0; i < n; i++) {
        least += a[i] > want * (1 + rounding);
        most_certain += a[i] > want * (1 - rounding);
        exactly += a[i] > want;
        expected += fminl(a[i] / want, 1);
    }
    CHECK(got.n_certain >= least && got.n_certain <= most_certain, "%s: %llu certain, not %llu", what,
          (unsigned long long)got.n_certain, (unsigned long long)exactly);
    CHECK(fabsl(got.expected / expected - 1) < 1e-6L, "%s: %g sent, not %Lg", what, got.expected, expected);
    n_cases++;
    n_same += got.n_certain == exactly;
    if (target.rule == GSPAR_EPS && got.slope >= FLT_MIN && want < FLT_MAX)
        check_optimum(a, n, target.value, got.slope, what);
    if (lemma)
        check_sparse_vectors(g, a, n, what);
    free(a);
}

static const struct gspar_target targets[] = {{GSPAR_EPS, 1},        {GSPAR_EPS, 0.1},       {GSPAR_EPS, 0.003},
                                              {GSPAR_EPS, 1e-9},     {GSPAR_EPS, 30},        {GSPAR_EPS, 1e9},
                                              {GSPAR_DENSITY, 0.01}, {GSPAR_DENSITY, 0.1},   {GSPAR_DENSITY, 0.37},
                                              {GSPAR_DENSITY, 0.75}, {GSPAR_DENSITY, 0.001}, {GSPAR_DENSITY, 1}};
#define N_TARGETS (sizeof targets / sizeof *targets)

/* ---- tests ------------------------------------------------------------------------------------------- */

TEST(short_tensors_are_as_the_paper_says)
{
    static float g[70001];
    for (uint64_t seed = 0; seed < 3000; seed++) {
        uint64_t n = seed < 600 ? 1 + seed % 200 : seed % 300 ? 1 + seed * 7919 % 2500 : 60001 + seed;
        enum kind kind = seed % N_KINDS;
        fill(g, n, kind, seed);
        check_case(NULL, g, n, kind, seed, targets[seed / N_KINDS % N_TARGETS], seed % 7 == 0 && n < 1000);
    }
}

/* The solver takes a sample of these first. */
TEST(long_tensors_are_as_the_paper_says)
{
    gw_context *context = context_of(3);
    for (uint64_t seed = 0; seed < N_KINDS * N_TARGETS; seed++) {
        uint64_t n = 131073 + seed * 211;
        enum kind kind = seed % N_KINDS;
        float *g = room_for(n, sizeof *g);
        fill(g, n, kind, seed);
        if (seed % 4 == 3) /* a sample of runs may miss this: nearly everything is in one place */
            for (uint64_t i = 0; i + 300 < n; i++)
                g[i] *= 0x1p-20f;
        check_case(seed % 2 ? context : NULL, g, n, kind, seed, targets[seed / N_KINDS], false);
        free(g);
    }
    gw_context_destroy(context);
}

TEST(most_counts_are_exact_and_all_bits_the_same)
{
    CHECK(n_same * 100ull >= n_cases * 97ull, "%u of %u counts are exact", n_same, n_cases);
    CHECK(digest == 0x17e154474f5c30bcull, "the slopes' digest is %#llx", (unsigned long long)digest);
}

TEST(threads_change_nothing)
{
    enum { N = 500009 };
    float *g = room_for(N, sizeof *g);
    gw_context *contexts[] = {context_of(1), context_of(2), context_of(5)};
    for (uint64_t seed = 0; seed < 2 * N_KINDS; seed++) {
        fill(g, N, seed % N_KINDS, seed);
        struct gspar_target target = targets[seed % N_TARGETS];
        struct gspar_solution one = solve(NULL, g, N, target);
        for (int i = 0; i < 3; i++) {
            struct gspar_solution other = solve(contexts[i], g, N, target);
            CHECK(one.slope == other.slope && one.n_certain == other.n_certain && one.expected == other.expected,
                  "%s, seed %llu: %a and %a", kind_names[seed % N_KINDS], (unsigned long long)seed, (double)one.slope,
                  (double)other.slope);
        }
    }
    for (int i = 0; i < 3; i++)
        gw_context_destroy(contexts[i]);
    free(g);
}

TEST(the_simplest_tensors)
{
    const struct gspar_target eps = {GSPAR_EPS, 1}, half = {GSPAR_DENSITY, 0.5};
    float g[4] = {0, -0.0f, 0, 0};
    assert_true(solve(NULL, g, 0, eps).slope == 0 && solve(NULL, g, 0, half).slope == 0);
    assert_true(solve(NULL, g, 4, eps).slope == 0 && solve(NULL, g, 4, half).slope == 0);
    g[2] = -3;
    /* A single element may have twice its square. So it is sent half of the time, as 6. */
    struct gspar_solution one = solve(NULL, g, 4, eps);
    assert_true(one.slope == 6 && one.n_certain == 0 && one.expected == 0.5);
    one = solve(NULL, g, 4, half);
    assert_true(one.slope <= 3 && one.n_certain == 1 && one.expected == 1);
    /* The largest float. Twice that cannot be written. */
    g[2] = FLT_MAX;
    assert_true(solve(NULL, g, 4, eps).slope == FLT_MAX);
    /* 4 and three ones at density 0.5: 4 is certain, and the ones share what is left. */
    const float four[] = {1, -4, 1, -1};
    one = solve(NULL, four, 4, half);
    assert_true(one.slope == 3 && one.n_certain == 1 && one.expected == 2);
}

RUN_TESTS("solve", NULL, NULL)
