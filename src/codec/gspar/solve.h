/* Decides which elements GSpar sends (Wangni, Wang, Liu, Zhang: "Gradient Sparsification for Communication-Efficient
 * Distributed Optimization", NeurIPS 2018). Element i is sent with probability p_i = min(|g_i| / q, 1), so the decision
 * is one number, q.
 *
 * Both of the paper's methods ask for the root of a function of t. The function is made of straight pieces and bends
 * one way. At t it follows from three numbers: how many magnitudes are at most t, their sum S1(t), and the sum of their
 * squares S2(t).
 *
 *   exact (algorithm 2): q S1(q) - S2(q) = eps * sum g^2.
 *     With |g| sorted descending, k is the least with |g_(k+1)| S1 - S2 <= eps * sum g^2, sums over i > k. The left
 *     side does not fall with |g_(k+1)|. So k is the number of elements above the root, and the root is
 *     (eps * sum g^2 + S2) / S1 = 1 / lambda.
 *   greedy (algorithm 3): sum of min(|g_i| / q, 1) = kappa n.
 *     One round of the paper, p_I = min(c p_I, 1), is q / c with q / c = S1(q) / (kappa n - elements above q). That is
 *     Newton's step. Rounds stop when c = 1, at the root.
 *
 * Newton's step lands at the root or right of it from anywhere. From there it goes only down, until a step passes no
 * element. So nothing is sorted: steps are passes over the tensor. For long tensors a sample gives bounds of the root.
 * One pass adds up what is below them and keeps what is between, and the steps go on in there. Bounds that turn out
 * wrong cost time only. */
#ifndef GW_CODEC_GSPAR_SOLVE_H
#define GW_CODEC_GSPAR_SOLVE_H

#include "codec/measure.h"

struct gspar_target {
    enum gspar_rule { GSPAR_EPS, GSPAR_DENSITY } rule;
    double value; /* eps > 0, or kappa in (0, 1] */
};

struct gspar_solution {
    /* q; 0: the tensor has no nonzeros, or no elements. If all nonzeros are sent with certainty, it is FLT_TRUE_MIN,
     * which is not above any of them. */
    float slope;
    uint64_t n_certain; /* elements above q before it is rounded to float32 */
    double expected;    /* sum of p_i, before q is rounded */
};

/* Memory between calls; begins as {0}. One thread at a time. */
struct gspar_scratch {
    float *kept, *wave;
    uint64_t kept_limit;
};
void gspar_scratch_fini(gw_context *context, struct gspar_scratch *scratch);

/* q of the finite tensor g[0..n), whose statistics are `stats` (gw_stats_run). The same for any number of threads and
 * any instruction set. */
gw_status gspar_solve(gw_context *context, const float *g, uint64_t n, const struct gw_stats *stats,
                      struct gspar_target target, struct gspar_scratch *scratch, struct gspar_solution *solution);

#endif
