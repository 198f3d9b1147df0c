/* Describes the networks by name: their layers, their tensors, and the first values of their parameters. */
#include "network.h"
#include "base/error.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gw_status gw_network_add_tensor(struct gw_network *network, const struct gw_layer_spec *spec, const char *suffix,
                                int rank, const uint64_t *dims, uint32_t fan_in)
{
    if (network->n_tensors == GW_MAX_TENSORS)
        return gw_fail(GW_ERR_ARGUMENT, "%s has more than %d tensors", network->name, GW_MAX_TENSORS);
    struct gw_param *p = &network->tensors[network->n_tensors++];
    snprintf(p->name, sizeof p->name, "%s.%s", spec->name, suffix);
    p->rank = rank;
    p->n_elems = 1;
    for (int i = 0; i < rank; i++) {
        p->dims[i] = dims[i];
        p->n_elems *= dims[i];
    }
    p->fan_in = fan_in;
    p->layer = network->n_trained_layers - 1;
    p->offset = network->n_storage;
    network->n_storage += (p->n_elems + 15) / 16 * 16;
    network->n_params += p->n_elems;
    return GW_OK;
}

/* Appends a layer behind the last one. */
static gw_status add(struct gw_network *network, const struct gw_layer_kind *kind, const char *name, uint32_t units,
                     uint32_t kernel, uint32_t stride)
{
    if (network->n_layers == GW_MAX_LAYERS)
        return gw_fail(GW_ERR_ARGUMENT, "%s has more than %d layers", network->name, GW_MAX_LAYERS);
    struct gw_layer_spec *spec = &network->layers[network->n_layers];
    *spec = (struct gw_layer_spec){
        .kind = kind, .units = units, .kernel = kernel, .stride = stride, .first_tensor = network->n_tensors};
    snprintf(spec->name, sizeof spec->name, "%s", name);
    spec->in = network->n_layers ? network->layers[network->n_layers - 1].out : network->in;
    network->n_layers++;
    uint32_t before = network->n_tensors;
    network->n_trained_layers++; /* tensors carry the layer's number; taken back where there are none */
    GW_TRY(kind->declare(network, spec));
    if (network->n_tensors == before)
        network->n_trained_layers--;
    return GW_OK;
}

/* Caffe's examples/mnist/lenet_train_test.prototxt: 431,080 parameters. Biases learn at the rate of weights. */
static gw_status build_lenet(struct gw_network *n)
{
    n->in = (struct gw_shape){1, 28, 28};
    n->classes = 10;
    GW_TRY(add(n, &gw_layer_conv, "conv1", 20, 5, 1));
    GW_TRY(add(n, &gw_layer_pool, "pool1", 0, 2, 2));
    GW_TRY(add(n, &gw_layer_conv, "conv2", 50, 5, 1));
    GW_TRY(add(n, &gw_layer_pool, "pool2", 0, 2, 2));
    GW_TRY(add(n, &gw_layer_fc, "fc1", 500, 0, 0));
    GW_TRY(add(n, &gw_layer_relu, "relu1", 0, 0, 0));
    return add(n, &gw_layer_fc, "fc2", 10, 0, 0);
}

static gw_status build_mlp(struct gw_network *n)
{
    enum { MAX_WIDTHS = GW_MAX_LAYERS / 2, MAX_WIDTH = 1 << 20 };
    uint32_t widths[MAX_WIDTHS], n_widths = 0;
    const char *at = n->name + strlen("mlp:") - 1;
    do {
        char *end;
        at++;
        unsigned long width = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || width == 0 || width > MAX_WIDTH || n_widths == MAX_WIDTHS)
            return gw_fail(GW_ERR_ARGUMENT,
                           "the network \"%s\" is not valid: after mlp: come 2 to %d widths of 1 to %d, as in "
                           "mlp:784-300-10",
                           n->name, MAX_WIDTHS, MAX_WIDTH);
        widths[n_widths++] = (uint32_t)width;
        at = end;
    } while (*at == '-');
    if (*at || n_widths < 2)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the network \"%s\" is not valid: after mlp: come 2 to %d widths, as in mlp:784-300-10", n->name,
                       MAX_WIDTHS);
    n->in = (struct gw_shape){widths[0], 1, 1};
    n->classes = widths[n_widths - 1];
    for (uint32_t i = 1; i < n_widths; i++) {
        char name[32];
        snprintf(name, sizeof name, "fc%u", i);
        GW_TRY(add(n, &gw_layer_fc, name, widths[i], 0, 0));
        snprintf(name, sizeof name, "relu%u", i);
        if (i + 1 < n_widths)
            GW_TRY(add(n, &gw_layer_relu, name, 0, 0, 0));
    }
    return GW_OK;
}

/* The whole network is one vector that starts at 0. */
static gw_status build_convex(struct gw_network *n, const struct gw_convex *convex)
{
    enum { MAX_FEATURES = 1 << 26 };
    const char *width = n->name + strlen(convex->name);
    n->convex = convex;
    n->in = (struct gw_shape){0, 1, 1};
    n->classes = 2;
    if (*width == 0)
        return GW_OK; /* gw_network_adapt knows the width */
    char *end;
    unsigned long features = strtoul(width + 1, &end, 10);
    if (width[1] < '0' || width[1] > '9' || *end || features == 0 || features > MAX_FEATURES)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the network \"%s\" is not valid; right are %s, which takes its width from the data, and "
                       "%s:FEATURES with 1 to %d features",
                       n->name, convex->name, convex->name, MAX_FEATURES);
    n->in.channels = (uint32_t)features;
    n->n_trained_layers = n->n_tensors = 1;
    n->tensors[0] = (struct gw_param){.name = "weight", .rank = 1, .dims = {features}, .n_elems = features};
    n->n_params = features;
    n->n_storage = (features + 15) / 16 * 16;
    return GW_OK;
}

static gw_status build_logreg(struct gw_network *n)
{
    return build_convex(n, &gw_convex_logreg);
}

static gw_status build_svm(struct gw_network *n)
{
    return build_convex(n, &gw_convex_svm);
}

static const struct {
    const char *name; /* a name, or a prefix that ends in ':' */
    gw_status (*build)(struct gw_network *network);
} networks[] = {
    {"lenet", build_lenet},    {"mlp:", build_mlp}, {"logreg", build_logreg},
    {"logreg:", build_logreg}, {"svm", build_svm},  {"svm:", build_svm},
};

gw_status gw_network_create(const char *name, struct gw_network *network)
{
    *network = (struct gw_network){0};
    if (snprintf(network->name, sizeof network->name, "%s", name) >= (int)sizeof network->name)
        return gw_fail(GW_ERR_ARGUMENT, "the network name \"%s\" is longer than %zu bytes", name,
                       sizeof network->name - 1);
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        size_t length = strlen(networks[i].name);
        bool prefix = networks[i].name[length - 1] == ':';
        if (prefix ? strncmp(name, networks[i].name, length) : strcmp(name, networks[i].name))
            continue;
        GW_TRY(networks[i].build(network));
        for (uint32_t t = 0; t < network->n_tensors; t++)
            network->tensors[t].last_layer = network->tensors[t].layer + 1 == network->n_trained_layers;
        return GW_OK;
    }
    return gw_fail(GW_ERR_ARGUMENT,
                   "the network \"%s\" is unknown; right are lenet, mlp:WIDTHS (mlp:784-300-10), logreg "
                   "and svm",
                   name);
}

gw_status gw_network_adapt(struct gw_network *network, struct gw_shape in)
{
    if (!network->convex || network->in.channels > 0)
        return GW_OK;
    char name[sizeof network->name];
    snprintf(name, sizeof name, "%s:%llu", network->convex->name, (unsigned long long)gw_shape_count(in));
    return gw_network_create(name, network);
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

void gw_network_init(const struct gw_network *network, uint64_t seed, float *params)
{
    for (uint32_t t = 0; t < network->n_tensors; t++) {
        const struct gw_param *p = &network->tensors[t];
        if (p->fan_in == 0)
            continue; /* flat arrays begin as zeros */
        struct gw_random r = gw_random_open(seed, GW_PURPOSE_INIT, 0, t);
        float scale = sqrtf(3.f / (float)p->fan_in);
        for (uint64_t i = 0; i < p->n_elems; i++)
            params[p->offset + i] = gw_random_between(&r, -scale, scale);
    }
}
