/* Measures a tensor: its sums, its largest magnitude and whether all elements are finite. The result is the same bits
 * on any number of threads. */
#include "codec/measure.h"
#include "base/threads.h"
#include "codec/kernels.h"
#include "wire/bytes.h"
#include "wire/frame.h"

#include <math.h>

struct gw_stats gw_stats_block(const float *g, uint32_t n)
{
    const struct gw_stats block = gw_kernels_now()->stats_block(g, n);
    return gw_stats_needs_wide(block.max_bits) ? gw_stats_wide(g, n) : block;
}

/* The chunks of a wave are measured in parallel, and added up in order. */
#define WAVE 64

struct wave {
    struct gw_stats (*of_chunk)(uint64_t begin, uint64_t n, void *user);
    void *user;
    uint64_t n, first;
    struct gw_stats chunk[WAVE];
};

static void measure_chunk(uint64_t i, uint32_t slot, void *user)
{
    (void)slot;
    struct wave *wave = user;
    uint64_t at = (wave->first + i) * GW_CHUNK;
    wave->chunk[i] = wave->of_chunk(at, wave->n - at < GW_CHUNK ? wave->n - at : GW_CHUNK, wave->user);
}

struct gw_stats gw_stats_run_with(gw_context *context, uint64_t n,
                                  struct gw_stats (*of_chunk)(uint64_t begin, uint64_t n, void *user), void *user)
{
    struct gw_stats total = {0};
    struct wave wave = {.of_chunk = of_chunk, .user = user, .n = n};
    uint64_t n_chunks = gw_div_up(n, GW_CHUNK);
    for (; wave.first < n_chunks; wave.first += WAVE) {
        uint64_t m = n_chunks - wave.first < WAVE ? n_chunks - wave.first : WAVE;
        gw_parallel_for(context, m, measure_chunk, &wave);
        for (uint64_t i = 0; i < m; i++)
            gw_stats_add(&total, &wave.chunk[i]);
    }
    return total;
}

static struct gw_stats stats_of_chunk(uint64_t begin, uint64_t n, void *user)
{
    const float *g = (const float *)user + begin;
    struct gw_stats total = {0};
    for (uint64_t i = 0; i < n; i += GW_STATS_BLOCK) {
        const struct gw_stats block =
            gw_stats_block(g + i, (uint32_t)(n - i < GW_STATS_BLOCK ? n - i : GW_STATS_BLOCK));
        gw_stats_add(&total, &block);
    }
    return total;
}

struct gw_stats gw_stats_run(gw_context *context, const float *g, uint64_t n)
{
    return gw_stats_run_with(context, n, stats_of_chunk, (void *)g); /* stats_of_chunk only reads it */
}

double gw_stats_sigma(const struct gw_stats *stats, uint64_t n)
{
    if (!n)
        return 0;
    double mean = stats->sum / (double)n, variance = stats->sum_squares / (double)n - mean * mean;
    return variance > 0 ? sqrt(variance) : 0;
}

void gw_measure_from_stats(const struct gw_stats *stats, const float *g, uint64_t n, gw_measure *info)
{
    *info = (gw_measure){.finite = stats->max_bits < 0x7F800000u};
    if (!info->finite) {
        while (info->bad_index < n && isfinite(g[info->bad_index]))
            info->bad_index++;
        return;
    }
    info->max_abs = gw_bits_float(stats->max_bits);
    info->mean = n ? stats->sum / (double)n : 0;
    info->sigma = gw_stats_sigma(stats, n);
    info->sum_abs_bound = stats->sum_squares > 0 ? info->max_abs * stats->sum_abs / stats->sum_squares : 0;
}

void gw_measure_tensor(gw_context *context, const float *g, uint64_t n, gw_measure *info)
{
    struct gw_stats stats = gw_stats_run(context, g, n);
    gw_measure_from_stats(&stats, g, n, info);
}
