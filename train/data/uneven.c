/* Draws data whose features have uneven magnitudes, as in GSpar's section 5.1 (Wangni et al., "Gradient Sparsification
 * for Communication-Efficient Distributed Optimization", 2018). x_i ~ N(0, I) and w ~ N(0, I) in R^d; magnitudes B are
 * uniform in [0, 1]^d, and those up to C2 are multiplied by C1. Sample i is x_i * B (element by element) with the
 * label sign(x_i . w). The smaller C1 and the larger C2, the more of the gradient sits in few elements. */
#include "base/error.h"
#include "base/memory.h"
#include "base/spec.h"
#include "data/data.h"
#include "random.h"

#include <math.h>

/* The same options give the same data set, whatever the run's seed is. */
enum { SEED = 1 };
enum stream { ROWS, MAGNITUDES, WEIGHTS };

#define MAX_VALUES (1u << 27) /* 1 GiB as sparse rows */

struct uneven {
    double n, d, c1, c2;
};

static const char *const keys[] = {"n", "d", "c1", "c2"};

static gw_status take(void *user, size_t key, const char *value)
{
    struct uneven *u = user;
    double *const targets[] = {&u->n, &u->d, &u->c1, &u->c2};
    const bool is_count = key < 2;
    double x;
    if (!gw_spec_number(value, is_count, is_count ? MAX_VALUES : 1, &x) || (is_count && x != floor(x)))
        return gw_fail(
            GW_ERR_SPEC,
            "--data uneven: %s=%s is not legal; n and d take whole numbers from 1, c1 and c2 take 0 to 1, as "
            "in uneven:n=1024,d=2048,c1=0.6,c2=0.25",
            keys[key], value);
    *targets[key] = x;
    return GW_OK;
}

/* Box and Muller's method, with the cosine alone. */
static double normal(struct gw_random *r)
{
    double radius = sqrt(-2 * log(1 - (double)gw_random_unit(r)));
    return radius * cos(2 * M_PI * (double)gw_random_unit(r));
}

static gw_status draw(const struct uneven *u, float *magnitude, float *weight, struct gw_samples *samples)
{
    uint32_t n = samples->n, d = (uint32_t)u->d;
    struct gw_random r = gw_random_open(SEED, GW_PURPOSE_UNEVEN, 0, MAGNITUDES);
    for (uint32_t k = 0; k < d; k++) {
        magnitude[k] = gw_random_unit(&r);
        if (magnitude[k] <= u->c2)
            magnitude[k] *= (float)u->c1;
    }
    r = gw_random_open(SEED, GW_PURPOSE_UNEVEN, 0, WEIGHTS);
    for (uint32_t k = 0; k < d; k++)
        weight[k] = (float)normal(&r);

    struct gw_rows *rows = &samples->rows;
    for (uint32_t i = 0; i < n; i++) {
        double product = 0;
        GW_TRY(gw_data_go_on());
        r = gw_random_open(SEED, GW_PURPOSE_UNEVEN, i, ROWS);
        for (uint32_t k = 0; k < d; k++) {
            size_t at = (size_t)i * d + k;
            float x = (float)normal(&r);
            product += (double)x * weight[k];
            rows->index[at] = k;
            rows->value[at] = x * magnitude[k];
        }
        rows->begin[i + 1] = (uint64_t)(i + 1) * d;
        samples->labels[i] = product > 0;
    }
    return GW_OK;
}

gw_status gw_data_uneven(const char *options, struct gw_samples *samples, uint32_t *n_features)
{
    struct uneven u = {.n = 1024, .d = 2048, .c1 = 0.6, .c2 = 0.25};
    const struct gw_spec spec = {
        .what = "--data uneven", .keys = keys, .n_keys = sizeof keys / sizeof *keys, .take = take, .user = &u};
    GW_TRY(gw_spec_parse(&spec, options));
    if (u.n * u.d > MAX_VALUES)
        return gw_fail(GW_ERR_SPEC, "--data uneven: %.0f samples of %.0f features are %.0f values, and %u are the most",
                       u.n, u.d, u.n * u.d, MAX_VALUES);
    uint32_t d = *n_features = (uint32_t)u.d;
    GW_TRY(gw_samples_alloc_rows((uint32_t)u.n, (uint64_t)u.n * d, samples));
    float *magnitude = gw_alloc(NULL, d, sizeof *magnitude), *weight = gw_alloc(NULL, d, sizeof *weight);
    const gw_status status = magnitude && weight ? draw(&u, magnitude, weight, samples) : GW_ERR_MEMORY;
    if (status != GW_OK)
        gw_samples_free(samples);
    gw_free(NULL, magnitude);
    gw_free(NULL, weight);
    return status;
}
