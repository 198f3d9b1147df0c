/* Computes losses and gradients of logistic regression and of support vector machines, straight from sparse rows. */
#include "net/convex.h"

#include <math.h>

/* Neither form overflows, because exp never gets a number above 0. */
static double logistic_loss(double margin)
{
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

static double logistic_slope(double margin)
{
    return margin > 0 ? -exp(-margin) / (1 + exp(-margin)) : -1 / (1 + exp(margin));
}

static double hinge_loss(double margin)
{
    return margin >= 1 ? 0 : 1 - margin;
}

static double hinge_slope(double margin)
{
    if (isnan(margin))
        return margin; /* so the step's verdict finds it */
    return margin >= 1 ? 0 : -1;
}

const struct gw_convex gw_convex_logreg = {.name = "logreg", .loss = logistic_loss, .slope = logistic_slope};
const struct gw_convex gw_convex_svm = {.name = "svm", .loss = hinge_loss, .slope = hinge_slope};

void gw_convex_pass(const struct gw_convex *problem, const struct gw_samples *samples, const uint32_t *order,
                    uint32_t first, uint32_t n, const float *w, double *loss, uint32_t *correct, double scale,
                    double *sum)
{
    const struct gw_rows *rows = &samples->rows;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = order ? order[i] : first + i;
        uint64_t begin = rows->begin[row], end = rows->begin[row + 1];
        double y = samples->labels[row] ? 1 : -1, product = 0;
        for (uint64_t k = begin; k < end; k++)
            product += (double)w[rows->index[k]] * rows->value[k];
        *loss += problem->loss(y * product);
        *correct += (product > 0) == (samples->labels[row] == 1);
        if (!sum)
            continue;
        double step = scale * problem->slope(y * product) * y;
        for (uint64_t k = begin; step != 0 && k < end; k++)
            sum[rows->index[k]] += step * rows->value[k];
    }
}
