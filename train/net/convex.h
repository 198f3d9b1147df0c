/* Convex problems. There is one weight vector w, and no bias. The loss of a sample (x, y), y = -1 or 1, is a convex
 * function of its margin y * w.x. The gradient is computed from sparse rows. The optimizer adds the L2 term lambda *
 * |w|^2 (weight decay 2 * lambda), after the codec.
 *
 * Parameters are float32; products and sums are float64, so that objectives can be compared to 1e-8 and better. */
#ifndef GW_TRAIN_CONVEX_H
#define GW_TRAIN_CONVEX_H

#include "data/data.h"

struct gw_convex {
    const char *name;
    double (*loss)(double margin);
    double (*slope)(double margin); /* the derivative of the loss, or a subgradient if there is none */
};

/* logreg: ln(1 + exp(-margin)); GSpar's objective has log2, which is larger by 1/ln 2.
 * svm: the hinge loss max(0, 1 - margin), with slope 0 at margin 1. */
extern const struct gw_convex gw_convex_logreg, gw_convex_svm;

/* Goes over n samples: order[0..n), or, if order is NULL, first, first+1, ... The samples must be rows. Adds up their
 * losses, and counts those with the right sign (w.x > 0: class 1). If sum is not NULL, adds scale * (gradient of the
 * sum of losses) to it. The order of samples and features is always the same. */
void gw_convex_pass(const struct gw_convex *problem, const struct gw_samples *samples, const uint32_t *order,
                    uint32_t first, uint32_t n, const float *w, double *loss, uint32_t *correct, double scale,
                    double *sum);

#endif
