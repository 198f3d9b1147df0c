/* What measurements share: a drawn gradient, and medians. */
#ifndef GW_PROBE_GRADIENT_H
#define GW_PROBE_GRADIENT_H

#include <stddef.h>
#include <stdint.h>

/* Elements [first, first + n) of an endless sequence: Gaussian with standard deviation 1e-3, one element in a thousand
 * 50 times larger. The same on every machine whose libm rounds alike. */
void gw_draw_gradient(float *out, uint64_t first, uint64_t n);

/* The gradient of another step: the n elements of `from`, turned round by as many places as the step says. So each
 * element has another value in each step, as in training, and residuals do not all grow one way. */
void gw_turn_gradient(float *out, const float *from, uint64_t n, uint64_t step);

/* Sorts the values. n is 1 or more. */
double gw_median(double *values, size_t n);

#endif
