/* Puts networks together: layers, the tensors that they train, and the first values of these. */
#include "net/network.h"
#include "base/error.h"
#include "base/memory.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Makes room for one more element. The array grows by doubling. */
static gw_status grow(void **array, uint32_t n, size_t element)
{
    if (n & (n - 1)) /* it grows only if n is a power of two, or 0 */
        return GW_OK;
    void *larger = gw_calloc(NULL, n ? 2 * (size_t)n : 1, element);
    if (!larger)
        return GW_ERR_MEMORY;
    if (n)
        memcpy(larger, *array, n * element);
    gw_free(NULL, *array);
    *array = larger;
    return GW_OK;
}

static gw_status add_param(struct gw_network *network, struct gw_param **params, uint32_t *n,
                           const struct gw_layer_spec *spec, const char *suffix, struct gw_param param)
{
    if (*n == GW_MAX_TENSORS)
        return gw_fail(GW_ERR_ARGUMENT, "%s has more than %d tensors", network->name, GW_MAX_TENSORS);
    GW_TRY(grow((void **)params, *n, sizeof **params));
    snprintf(param.name, sizeof param.name, "%s.%s", spec->name, suffix);
    param.n_elems = 1;
    for (int i = 0; i < param.rank; i++)
        param.n_elems *= param.dims[i];
    param.layer = network->n_trained_layers - 1;
    param.offset = network->n_storage;
    (*params)[(*n)++] = param;
    return GW_OK;
}

static uint64_t padded(uint64_t n_elems)
{
    return (n_elems + 15) / 16 * 16;
}

gw_status gw_network_add_tensor(struct gw_network *network, const struct gw_layer_spec *spec, const char *suffix,
                                int rank, const uint64_t *dims, uint32_t fan_in, float value)
{
    struct gw_param param = {.rank = rank, .first = GW_FIRST_SAME, .first_value = value};
    memcpy(param.dims, dims, (size_t)rank * sizeof *dims);
    if (fan_in) {
        const bool normal = spec->deviation > 0 || network->he;
        param.first = normal ? GW_FIRST_NORMAL : GW_FIRST_UNIFORM;
        param.first_value = spec->deviation > 0 ? spec->deviation
                            : network->he       ? sqrtf(2.f / (float)fan_in)
                                                : sqrtf(3.f / (float)fan_in);
    }
    GW_TRY(add_param(network, &network->tensors, &network->n_tensors, spec, suffix, param));
    const uint64_t n = network->tensors[network->n_tensors - 1].n_elems;
    network->n_storage += padded(n);
    network->n_params += n;
    return GW_OK;
}

gw_status gw_network_add_statistic(struct gw_network *network, const struct gw_layer_spec *spec, const char *suffix,
                                   uint64_t n, float value)
{
    return add_param(network, &network->statistics, &network->n_statistics, spec, suffix,
                     (struct gw_param){.rank = 1, .dims = {n}, .first = GW_FIRST_SAME, .first_value = value});
}

gw_status gw_network_add(struct gw_network *network, const struct gw_layer_spec *layer, uint32_t *number)
{
    const uint32_t n = network->n_layers, n_tensors = network->n_tensors;
    GW_TRY(grow((void **)&network->layers, n, sizeof *network->layers));
    struct gw_layer_spec *spec = &network->layers[n];
    *spec = *layer;
    spec->first_tensor = n_tensors;
    spec->first_statistic = network->n_statistics;
    for (uint32_t i = 0; i < spec->n_inputs; i++) {
        const uint32_t from = spec->inputs[i];
        const struct gw_shape shape = from == GW_SAMPLES ? network->in : network->layers[from].out;
        if (i > 0 && memcmp(&shape, &spec->in, sizeof shape) != 0)
            return gw_fail(GW_ERR_ARGUMENT, "%s: its inputs have different shapes", spec->name);
        spec->in = shape;
        if (from != GW_SAMPLES)
            network->layers[from].n_readers++;
    }
    network->n_layers++;
    network->n_trained_layers++; /* tensors carry the layer's number; it is taken back if the layer has no tensors */
    GW_TRY(spec->kind->declare(network, spec));
    if (network->n_tensors == n_tensors)
        network->n_trained_layers--;
    *number = n;
    return GW_OK;
}

void gw_network_free(struct gw_network *network)
{
    gw_free(NULL, network->layers);
    gw_free(NULL, network->tensors);
    gw_free(NULL, network->statistics);
    *network = (struct gw_network){0};
}

void gw_network_close(struct gw_network *network)
{
    network->n_trained = network->n_storage;
    for (uint32_t i = 0; i < network->n_statistics; i++) {
        network->statistics[i].offset = network->n_storage;
        network->n_storage += padded(network->statistics[i].n_elems);
    }
}

bool gw_network_is(const struct gw_network *network, const char *name)
{
    return strcmp(network->name, name) == 0 || (network->convex && strcmp(network->convex->name, name) == 0);
}

gw_status gw_network_fits(const struct gw_network *network, struct gw_shape in, uint32_t classes)
{
    bool flat = network->in.height == 1 && network->in.width == 1;
    bool same = in.channels == network->in.channels && in.height == network->in.height && in.width == network->in.width;
    if (network->convex)
        same = gw_shape_count(in) <= network->in.channels;
    else if (flat)
        same = gw_shape_count(in) == network->in.channels;
    if (!same)
        return gw_fail(GW_ERR_ARGUMENT, "%s takes %llu values (%ux%ux%u) a sample, and the data have %llu (%ux%ux%u)",
                       network->name, (unsigned long long)gw_shape_count(network->in), network->in.channels,
                       network->in.height, network->in.width, (unsigned long long)gw_shape_count(in), in.channels,
                       in.height, in.width);
    if (classes != network->classes)
        return gw_fail(GW_ERR_ARGUMENT, "%s tells %u classes apart, and the data have %u", network->name,
                       network->classes, classes);
    return GW_OK;
}

/* Draws from the normal distribution (Box and Muller). */
static float normal(struct gw_random *r)
{
    const float a = ((float)(gw_random_word(r) >> 8) + 0.5f) * 0x1p-24f, b = gw_random_unit(r);
    return sqrtf(-2 * logf(a)) * cosf(2 * 3.14159265f * b);
}

static void begin_with(const struct gw_param *p, struct gw_random r, float *values)
{
    const float value = p->first_value;
    for (uint64_t i = 0; i < p->n_elems; i++)
        values[i] = p->first == GW_FIRST_NORMAL    ? value * normal(&r)
                    : p->first == GW_FIRST_UNIFORM ? gw_random_between(&r, -value, value)
                                                   : value;
}

void gw_network_init(const struct gw_network *network, uint64_t seed, float *params)
{
    for (uint32_t t = 0; t < network->n_tensors; t++)
        begin_with(&network->tensors[t], gw_random_open(seed, GW_PURPOSE_INIT, 0, t),
                   params + network->tensors[t].offset);
    for (uint32_t i = 0; i < network->n_statistics; i++)
        begin_with(&network->statistics[i], gw_random_open(seed, GW_PURPOSE_INIT, 0, 0),
                   params + network->statistics[i].offset);
}
