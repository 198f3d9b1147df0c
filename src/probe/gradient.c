/* Draws the gradient that measurements take: normal numbers with a few large ones among them, the same on every
 * machine. It also finds medians. */
#include "probe/gradient.h"
#include "base/philox.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIGMA 1e-3 /* the standard deviation of the ordinary elements */
#define OUTLIER 50.0f
#define OUTLIER_BLOCK 1000u /* one outlier in so many elements */
#define STREAM 31u          /* the trainer's purposes are 64..95; this is the last of them */

/* Four standard normal numbers from one block of random words (Box and Muller). */
static void gaussians(uint64_t block, float out[4])
{
    uint32_t counter[4], words[4];
    gw_philox_counter(counter, (uint32_t)block, (uint32_t)(block >> 32), GW_PURPOSE_TRAINER + STREAM, 0, 0);
    gw_philox(counter, 0, words);
    for (int i = 0; i < 4; i += 2) {
        float radius = sqrtf(-2.0f * logf(((float)(words[i] >> 8) + 0.5f) * 0x1p-24f));
        float angle = (float)words[i + 1] * (float)(2.0 * 3.14159265358979323846 * 0x1p-32);
        out[i] = radius * cosf(angle) * (float)SIGMA;
        out[i + 1] = radius * sinf(angle) * (float)SIGMA;
    }
}

void gw_draw_gradient(float *out, uint64_t first, uint64_t n)
{
    uint64_t end = first + n;
    float four[4];
    for (uint64_t i = first; i < end; i++) {
        if (i == first || i % 4 == 0)
            gaussians(i / 4, four);
        out[i - first] = four[i % 4];
    }
    for (uint64_t block = first / OUTLIER_BLOCK; block * OUTLIER_BLOCK < end; block++) {
        uint32_t counter[4], words[4];
        gw_philox_counter(counter, (uint32_t)block, 0, GW_PURPOSE_TRAINER + STREAM, 0, 1);
        gw_philox(counter, 0, words);
        uint64_t i = block * OUTLIER_BLOCK + words[0] % OUTLIER_BLOCK;
        if (i >= first && i < end)
            out[i - first] *= OUTLIER;
    }
}

void gw_turn_gradient(float *out, const float *from, uint64_t n, uint64_t step)
{
    enum { PLACES = 7919 }; /* a prime, so that steps do not come back to the same places soon */
    const uint64_t first = n ? step * PLACES % n : 0;
    memcpy(out, from + first, (n - first) * sizeof *out);
    memcpy(out + n - first, from, first * sizeof *out);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double gw_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}
