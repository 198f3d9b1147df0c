/* Statistics of a tensor. They are the same bits for any number of threads and any instruction set.
 *
 * Sums run over blocks of 1024 elements in 32 float32 lanes (element i of a block goes to lane i mod 32, in order); a
 * block's lanes are added in float64 by halving (lane j + lane j+16, then +8, ...); blocks are added in index order to
 * their chunk of 65,536 elements, chunks in index order to the whole, in float64. A block whose largest magnitude is
 * above 2^60, or below 2^-50 and not 0, is summed in float64 throughout: squares there neither overflow nor vanish. */
#ifndef GW_CODEC_MEASURE_H
#define GW_CODEC_MEASURE_H

#include <gradwire/codec.h>

#define GW_STATS_BLOCK 1024
#define GW_STATS_LANES 32

struct gw_stats {
    uint32_t max_bits; /* max |g| as float bits; 0x7F800000 and above: not finite */
    double sum, sum_abs, sum_squares;
};

/* Statistics of g[0..n): n at most GW_STATS_BLOCK. */
struct gw_stats gw_stats_block(const float *g, uint32_t n);

/* Adds the statistics of the elements that follow. */
static inline void gw_stats_add(struct gw_stats *total, const struct gw_stats *next)
{
    total->max_bits = next->max_bits > total->max_bits ? next->max_bits : total->max_bits;
    total->sum += next->sum;
    total->sum_abs += next->sum_abs;
    total->sum_squares += next->sum_squares;
}

/* Of a run of any length, on the context's threads. */
struct gw_stats gw_stats_run(gw_context *context, const float *g, uint64_t n);

/* The same with another function for a chunk of n <= GW_CHUNK elements from `begin` on. */
struct gw_stats gw_stats_run_with(gw_context *context, uint64_t n,
                                  struct gw_stats (*of_chunk)(uint64_t begin, uint64_t n, void *user), void *user);

/* Turns statistics into what gw_measure says; g is read again only to find the first element that is not finite. */
void gw_measure_from_stats(const struct gw_stats *stats, const float *g, uint64_t n, gw_measure *info);

void gw_measure_tensor(gw_context *context, const float *g, uint64_t n, gw_measure *info);

/* Population standard deviation, variance clamped at 0. */
double gw_stats_sigma(const struct gw_stats *stats, uint64_t n);

#endif
