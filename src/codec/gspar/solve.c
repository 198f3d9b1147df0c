/* Finds the number q that decides how likely GSpar sends each element (solve.h has the mathematics). Newton's method
 * gets there without sorting; for a long tensor, bounds from a sample keep most elements out of its later steps. */
#include "codec/gspar/solve.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "codec/kernels.h"
#include "wire/bytes.h"
#include "wire/frame.h"

#include <float.h>
#include <math.h>

/* Up to this length every step passes over the whole tensor: it stays in the cache. */
#define SHORT 131072
/* How many elements are looked at to bound the root, and how many standard deviations of their sums the bounds are away
 * from it. */
#define SAMPLE 8192
#define DEVIATIONS 4
/* How many chunks are split in parallel before the results are put together. */
#define WAVE 64

struct problem {
    enum gspar_rule rule;
    uint64_t n;
    double budget; /* eps * sum g^2, or kappa * n */
    uint32_t max_bits;
};

/* ---- passes ---------------------------------------------------------------------------------- */

/* The bits of the smallest float above t. A magnitude is at most t if its bits are below these. */
static uint32_t bits_above(double t)
{
    if (t >= FLT_MAX)
        return 0x7F800000u;
    float x = (float)t;
    return gw_float_bits(x) + (x <= t);
}

/* A power of two that scales magnitudes below `bits` to 2^61 at most, and near that. There squares can be added up in
 * float32. If the scale makes a magnitude vanish, it is nothing beside the rest. */
static float scale_for(uint32_t bits)
{
    int exponent = 2 * 127 + 60 - (int)(bits >> 23);
    return gw_bits_float((uint32_t)(exponent < 1 ? 1 : exponent > 253 ? 253 : exponent) << 23);
}

struct pass {
    const float *g;
    uint64_t n, first; /* first: the chunk that a wave begins with */
    uint32_t low, high;
    float scale;
    float *to; /* what is kept of chunk first + i goes to: to + i * stride */
    uint64_t stride;
    struct gw_tail below[WAVE];
    uint32_t n_kept[WAVE];
};

static void tail_add(struct gw_tail *total, const struct gw_tail *next)
{
    total->count += next->count;
    total->sum += next->sum;
    total->sum_squares += next->sum_squares;
}

static void part_chunk(uint64_t i, uint32_t slot, void *user)
{
    (void)slot;
    struct pass *pass = user;
    const struct gw_kernels *kernels = gw_kernels_now();
    uint64_t at = (pass->first + i) * GW_CHUNK, end = pass->n - at < GW_CHUNK ? pass->n : at + GW_CHUNK;
    float *to = pass->low == pass->high ? NULL : pass->to + i * pass->stride;
    struct gw_tail total = {0};
    uint32_t n_kept = 0;
    for (; at < end; at += GW_STATS_BLOCK) {
        uint32_t m = (uint32_t)(end - at < GW_STATS_BLOCK ? end - at : GW_STATS_BLOCK);
        struct gw_tail block;
        n_kept += kernels->split(pass->g + at, m, pass->low, pass->high, pass->scale, &block, to ? to + n_kept : NULL);
        tail_add(&total, &block);
    }
    pass->below[i] = total;
    pass->n_kept[i] = n_kept;
}

/* Adds up the magnitudes that are at most `low`, and keeps those up to `high` in scratch->kept. If scratch is NULL, low
 * = high and none are kept. Returns how many it kept; UINT64_MAX if there was no room for them. */
static uint64_t part(gw_context *context, const struct problem *problem, const float *g, uint64_t n, double low,
                     double high, struct gspar_scratch *scratch, struct gw_tail *below)
{
    struct pass pass = {
        .g = g, .n = n, .low = bits_above(low), .high = bits_above(high), .stride = GW_CHUNK + GW_SPLIT_SLACK};
    pass.scale = scale_for(pass.low < problem->max_bits ? pass.low : problem->max_bits);
    bool direct = scratch && !scratch->wave;
    uint64_t n_chunks = gw_div_up(n, GW_CHUNK), wave = direct ? 1 : WAVE, n_kept = 0;
    *below = (struct gw_tail){0};
    for (; pass.first < n_chunks; pass.first += wave) {
        uint64_t m = n_chunks - pass.first < wave ? n_chunks - pass.first : wave;
        pass.to = direct ? scratch->kept + n_kept : scratch ? scratch->wave : NULL;
        gw_parallel_for(context, m, part_chunk, &pass);
        for (uint64_t i = 0; i < m; i++) {
            tail_add(below, &pass.below[i]);
            if (scratch && n_kept + pass.n_kept[i] > scratch->kept_limit)
                return UINT64_MAX;
            if (scratch && !direct)
                memcpy(scratch->kept + n_kept, scratch->wave + i * pass.stride, pass.n_kept[i] * sizeof *scratch->kept);
            n_kept += pass.n_kept[i];
        }
    }
    below->sum /= pass.scale;
    below->sum_squares /= (double)pass.scale * pass.scale;
    return n_kept;
}

/* ---- Newton's steps -------------------------------------------------------------------------- */

/* Newton's step from t, if `tail` is what is at most t: the root of the straight piece there. */
static double step(const struct problem *problem, const struct gw_tail *tail)
{
    if (problem->rule == GSPAR_EPS)
        return tail->sum > 0 ? (problem->budget + tail->sum_squares) / tail->sum : INFINITY;
    double room = problem->budget - (double)(problem->n - tail->count);
    return room > 0 ? tail->sum / room : INFINITY;
}

/* Goes from t to the root. The sums are `base` plus those of the list. *tail becomes what is at most the root. */
static double newton(gw_context *context, const struct problem *problem, const float *list, uint64_t n,
                     struct gw_tail base, double t, struct gw_tail *tail)
{
    uint64_t count = 0;
    for (bool first = true;; first = false) {
        part(context, problem, list, n, t, t, NULL, tail);
        tail_add(tail, &base);
        double next = step(problem, tail);
        /* Apart from rounding, only the first step can go up. */
        if (next == t || (!first && (tail->count == count || next > t)))
            return t;
        t = next;
        count = tail->count;
    }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

/* Takes one element, at any place, of each of SAMPLE runs of equal length (splitmix64). */
static void take_sample(const float *g, uint64_t n, float *sample)
{
    uint64_t run = n / SAMPLE;
    for (uint64_t i = 0; i < SAMPLE; i++) {
        uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        sample[i] = fabsf(g[i * run + (uint64_t)((unsigned __int128)(z ^ z >> 31) * run >> 64)]);
    }
}

/* Says on which side of t the root is, as far as a sample can tell: -1 left, +1 right, 0 not certain. */
static int side_of_root(const struct problem *problem, const float *sample, double t)
{
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < SAMPLE; i++) {
        double a = sample[i], x = problem->rule == GSPAR_EPS ? (a < t ? a * (t - a) : 0) : a < t ? a / t : 1;
        sum += x;
        squares += x * x;
    }
    double spread = squares - sum * sum / SAMPLE, most = problem->rule == GSPAR_EPS ? t * t / 4 : 1;
    /* The margin is some deviations of what was seen, and a few elements of the largest effect that the sample may have
     * missed. */
    double margin = DEVIATIONS * ((spread > 0 ? sqrt(spread) : 0) + most);
    double budget = problem->budget * SAMPLE / (double)problem->n;
    int over = sum - margin > budget, under = sum + margin < budget;
    return problem->rule == GSPAR_EPS ? under - over : over - under;
}

static void bound_root(gw_context *context, const struct problem *problem, const float *sample, double *low,
                       double *high)
{
    struct problem small = *problem;
    small.n = SAMPLE;
    small.budget *= SAMPLE / (double)problem->n;
    struct gw_tail tail;
    double t = newton(context, &small, sample, SAMPLE, (struct gw_tail){0}, INFINITY, &tail);
    *low = 0;
    *high = INFINITY;
    if (!isfinite(t)) /* the sample is all zeros */
        return;
    if (t == 0) /* in the sample, all nonzero elements are certain */
        t = FLT_TRUE_MIN;
    double factor = 1 + 1.0 / 64;
    for (; t / factor >= FLT_TRUE_MIN && !*low; factor *= factor)
        if (side_of_root(problem, sample, t / factor) > 0)
            *low = t / factor;
    /* The sample says nothing about magnitudes above its largest one. */
    for (factor = 1 + 1.0 / 64; *high > FLT_MAX && t * factor < FLT_MAX; factor *= factor)
        if (side_of_root(problem, sample, t * factor) < 0)
            *high = t * factor;
}

/* ---- all together ---------------------------------------------------------------------------- */

static gw_status take_scratch(gw_context *context, uint64_t n, struct gspar_scratch *scratch)
{
    uint64_t limit = n / 8;
    if (scratch->kept_limit < limit) {
        gw_free(context, scratch->kept);
        scratch->kept = gw_alloc(context, limit + GW_CHUNK + GW_SPLIT_SLACK, sizeof *scratch->kept);
        scratch->kept_limit = scratch->kept ? limit : 0;
        if (!scratch->kept)
            return GW_ERR_MEMORY;
    }
    if (!scratch->wave && gw_thread_count(context) > 1) {
        scratch->wave = gw_alloc(context, WAVE * (GW_CHUNK + GW_SPLIT_SLACK), sizeof *scratch->wave);
        if (!scratch->wave)
            return GW_ERR_MEMORY;
    }
    return GW_OK;
}

void gspar_scratch_fini(gw_context *context, struct gspar_scratch *scratch)
{
    gw_free(context, scratch->kept);
    gw_free(context, scratch->wave);
    *scratch = (struct gspar_scratch){0};
}

/* The root of a long tensor. It is greater than 0. */
static gw_status solve_long(gw_context *context, const struct problem *problem, const float *g,
                            struct gspar_scratch *scratch, double start, struct gw_tail *tail, double *root)
{
    double low, high;
    struct gw_tail below, all;
    GW_TRY(take_scratch(context, problem->n, scratch));
    take_sample(g, problem->n, scratch->kept);
    bound_root(context, problem, scratch->kept, &low, &high);
    const uint64_t n_kept = part(context, problem, g, problem->n, low, high, scratch, &below);
    if (n_kept != UINT64_MAX) {
        part(context, problem, scratch->kept, n_kept, INFINITY, INFINITY, NULL, &all);
        tail_add(&all, &below);
        const double from_low = step(problem, &below), from_high = step(problem, &all);
        if (from_low >= low && from_high <= high) {
            *root = newton(context, problem, scratch->kept, n_kept, below, from_high, tail);
            return GW_OK;
        }
        start = from_low < low ? from_low : from_high;
    }
    *root = newton(context, problem, g, problem->n, (struct gw_tail){0}, start, tail);
    return GW_OK;
}

gw_status gspar_solve(gw_context *context, const float *g, uint64_t n, const struct gw_stats *stats,
                      struct gspar_target target, struct gspar_scratch *scratch, struct gspar_solution *solution)
{
    *solution = (struct gspar_solution){0};
    if (!stats->max_bits)
        return GW_OK;
    double budget = target.rule == GSPAR_EPS ? target.value * stats->sum_squares : target.value * (double)n;
    struct problem problem = {target.rule, n, budget, stats->max_bits};
    struct gw_tail tail = {n, stats->sum_abs, stats->sum_squares};
    double root = step(&problem, &tail);
    if (target.rule == GSPAR_DENSITY && budget >= (double)n) {
        root = 0;
        part(context, &problem, g, n, 0, 0, NULL, &tail);
    } else if (root < gw_bits_float(stats->max_bits) && n <= SHORT) {
        root = newton(context, &problem, g, n, (struct gw_tail){0}, root, &tail);
    } else if (root < gw_bits_float(stats->max_bits)) {
        GW_TRY(solve_long(context, &problem, g, scratch, root, &tail, &root));
    }
    solution->n_certain = n - tail.count;
    solution->expected = (double)solution->n_certain + (root > 0 ? tail.sum / root : 0);
    solution->slope = root > FLT_MAX ? FLT_MAX : root < FLT_TRUE_MIN ? FLT_TRUE_MIN : (float)root;
    return GW_OK;
}
