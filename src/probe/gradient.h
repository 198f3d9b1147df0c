/* What measurements share: a drawn gradient, and medians. */
#ifndef GW_PROBE_GRADIENT_H
#define GW_PROBE_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

/* Draws elements [first, first + n) of an endless sequence. It is Gaussian with standard deviation 1e-3, and one
 * element in a thousand is 50 times larger. It is the same on every machine whose libm rounds in the same way. */
void gw_draw_gradient(float *out, uint64_t first, uint64_t n);

/* Makes the gradient of another step: the n elements of `from`, rotated by a number of places that depends on the step.
 * So each element has another value in each step, as in training, and residuals do not all grow in one direction. */
void gw_turn_gradient(float *out, const float *from, uint64_t n, uint64_t step);

/* Sorts the values. n is 1 or more. */
double gw_median(double *values, size_t n);

#endif
