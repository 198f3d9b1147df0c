/* The networks that the trainer knows, one function and one line of a table each. */
#include "base/append.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "net/network.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct gw_layer_spec plain; /* a layer of which only the kind is to be said */

/* Appends a layer. It takes what layer *x makes (GW_SAMPLES: the samples). *x becomes the new layer's number. */
__attribute__((format(printf, 5, 6))) static gw_status add(struct gw_network *network, const struct gw_layer_kind *kind,
                                                           uint32_t *x, struct gw_layer_spec layer, const char *name,
                                                           ...)
{
    va_list args;
    va_start(args, name);
    vsnprintf(layer.name, sizeof layer.name, name, args);
    va_end(args);
    layer.kind = kind;
    layer.inputs[0] = *x;
    layer.n_inputs = layer.n_inputs ? layer.n_inputs : 1;
    return gw_network_add(network, &layer, x);
}

/* Caffe's examples/mnist/lenet_train_test.prototxt: 431,080 parameters. Biases learn at the rate of weights. */
static gw_status build_lenet(struct gw_network *n)
{
    const struct gw_layer_spec pool = {.kernel = 2, .stride = 2};
    uint32_t x = GW_SAMPLES;
    n->in = (struct gw_shape){1, 28, 28};
    n->classes = 10;
    GW_TRY(add(n, &gw_layer_conv, &x, (struct gw_layer_spec){.units = 20, .kernel = 5, .stride = 1}, "conv1"));
    GW_TRY(add(n, &gw_layer_pool, &x, pool, "pool1"));
    GW_TRY(add(n, &gw_layer_conv, &x, (struct gw_layer_spec){.units = 50, .kernel = 5, .stride = 1}, "conv2"));
    GW_TRY(add(n, &gw_layer_pool, &x, pool, "pool2"));
    GW_TRY(add(n, &gw_layer_fc, &x, (struct gw_layer_spec){.units = 500}, "fc1"));
    GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu1"));
    return add(n, &gw_layer_fc, &x, (struct gw_layer_spec){.units = 10}, "fc2");
}

/* TernGrad's CifarNet, which is that of TensorFlow's CIFAR-10 tutorial: 1,068,298 parameters, pictures of 24x24. The
 * standard deviations of first weights are the tutorial's. */
static gw_status build_cifarnet(struct gw_network *n)
{
    const struct gw_layer_spec pool = {.kernel = 3, .stride = 2, .partial = true};
    struct gw_layer_spec conv = {.units = 64, .kernel = 5, .stride = 1, .padding = 2, .deviation = 0.05f};
    uint32_t x = GW_SAMPLES;
    n->in = (struct gw_shape){3, 24, 24};
    n->classes = 10;
    n->transform = "crop=24,mirror,brightness=63,contrast=0.2:1.8,whiten";
    GW_TRY(add(n, &gw_layer_conv, &x, conv, "conv1"));
    GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu1"));
    GW_TRY(add(n, &gw_layer_pool, &x, pool, "pool1"));
    GW_TRY(add(n, &gw_layer_lrn, &x, plain, "norm1"));
    conv.bias = 0.1f;
    GW_TRY(add(n, &gw_layer_conv, &x, conv, "conv2"));
    GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu2"));
    GW_TRY(add(n, &gw_layer_lrn, &x, plain, "norm2"));
    GW_TRY(add(n, &gw_layer_pool, &x, pool, "pool2"));
    const struct gw_layer_spec hidden = {.units = 384, .deviation = 0.04f, .bias = 0.1f};
    GW_TRY(add(n, &gw_layer_fc, &x, hidden, "fc3"));
    GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu3"));
    const struct gw_layer_spec smaller = {.units = 192, .deviation = 0.04f, .bias = 0.1f};
    GW_TRY(add(n, &gw_layer_fc, &x, smaller, "fc4"));
    GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu4"));
    return add(n, &gw_layer_fc, &x, (struct gw_layer_spec){.units = 10, .deviation = 1.f / 192}, "softmax");
}

/* Adds a convolution without bias, then batch norm. If `relu`, negative values become 0. */
static gw_status add_normed(struct gw_network *n, uint32_t *x, uint32_t units, uint32_t stride, bool relu,
                            const char *suffix)
{
    const struct gw_layer_spec conv = {.units = units, .kernel = 3, .stride = stride, .padding = 1, .no_bias = true};
    GW_TRY(add(n, &gw_layer_conv, x, conv, "conv%s", suffix));
    return add(n, &gw_layer_batchnorm, x, (struct gw_layer_spec){.relu = relu}, "norm%s", suffix);
}

/* Reads the number behind a network's name, if there is one. It may have only digits and points, as people write
 * numbers: other spellings are legal numbers, but networks are compared by their names. what: what the number is. */
static gw_status read_argument(const struct gw_network *n, const char *name, double least, double most,
                               const char *what, double *value)
{
    const char *text = n->name + strlen(name);
    if (*text == 0)
        return GW_OK;
    if (text[1 + strspn(text + 1, "0123456789.")] == 0 && gw_parse_decimal(text + 1, value) && *value >= least &&
        *value <= most)
        return GW_OK;
    return gw_fail(GW_ERR_ARGUMENT, "the network \"%s\" is not valid: after %s: comes %s", n->name, name, what);
}

/* Networks for CIFAR-10's pictures. */
static void take_cifar(struct gw_network *n)
{
    n->in = (struct gw_shape){3, 32, 32};
    n->classes = 10;
    n->he = true;
    n->transform = "pad=4,crop=32,mirror,normalize";
}

/* He, Zhang, Ren, Sun, 2016, section 4.2, n = 3, shortcuts without parameters (option A): 269,722 parameters. */
static gw_status build_resnet20(struct gw_network *n)
{
    enum { STAGES = 3, BLOCKS = 3 };
    uint32_t x = GW_SAMPLES, units = 16;
    take_cifar(n);
    GW_TRY(add_normed(n, &x, units, 1, true, "1"));
    for (uint32_t stage = 2; stage < 2 + STAGES; stage++, units *= 2)
        for (uint32_t block = 1; block <= BLOCKS; block++) {
            const bool narrows = stage > 2 && block == 1;
            char suffix[16];
            uint32_t direct = x;
            snprintf(suffix, sizeof suffix, "%u.%u.1", stage, block);
            GW_TRY(add_normed(n, &x, units, narrows ? 2 : 1, true, suffix));
            snprintf(suffix, sizeof suffix, "%u.%u.2", stage, block);
            GW_TRY(add_normed(n, &x, units, 1, false, suffix));
            if (narrows)
                GW_TRY(add(n, &gw_layer_shortcut, &direct, (struct gw_layer_spec){.units = units, .stride = 2},
                           "shortcut%u.%u", stage, block));
            GW_TRY(add(n, &gw_layer_add, &x, (struct gw_layer_spec){.inputs = {0, direct}, .n_inputs = 2}, "add%u.%u",
                       stage, block));
            GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu%u.%u", stage, block));
        }
    GW_TRY(add(n, &gw_layer_pool, &x, (struct gw_layer_spec){.kernel = 8, .stride = 8, .average = true}, "pool"));
    return add(n, &gw_layer_fc, &x, (struct gw_layer_spec){.units = 10, .deviation = 0.01f}, "fc");
}

/* Simonyan and Zisserman's configuration D for pictures of 32x32, with batch norm and one fully connected layer:
 * 14,724,042 parameters. vgg16:WIDTH has this fraction of the maps. */
static gw_status build_vgg16(struct gw_network *n)
{
    static const uint32_t maps[] = {64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0};
    double width = 1;
    GW_TRY(read_argument(n, "vgg16", 1.0 / 64, 4, "the fraction of the maps, 0.015625 to 4, as in vgg16:0.25", &width));
    uint32_t x = GW_SAMPLES, stage = 1, in_stage = 0;
    take_cifar(n);
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        char suffix[16];
        if (maps[i] == 0) {
            GW_TRY(add(n, &gw_layer_pool, &x, (struct gw_layer_spec){.kernel = 2, .stride = 2}, "pool%u", stage++));
            in_stage = 0;
            continue;
        }
        snprintf(suffix, sizeof suffix, "%u.%u", stage, ++in_stage);
        GW_TRY(add_normed(n, &x, (uint32_t)(width * maps[i] + 0.5), 1, true, suffix));
    }
    return add(n, &gw_layer_fc, &x, (struct gw_layer_spec){.units = 10, .deviation = 0.01f}, "fc");
}

/* AlexNet's shape for pictures of 32x32: five convolutions, pooling that overlaps, two hidden layers with dropout.
 * alexnet-small:DROP drops another share than 0.5. */
static gw_status build_alexnet_small(struct gw_network *n)
{
    static const struct gw_layer_spec convs[] = {
        {.units = 32, .kernel = 5, .stride = 1, .padding = 2},  {.units = 96, .kernel = 5, .stride = 1, .padding = 2},
        {.units = 192, .kernel = 3, .stride = 1, .padding = 1}, {.units = 128, .kernel = 3, .stride = 1, .padding = 1},
        {.units = 128, .kernel = 3, .stride = 1, .padding = 1},
    };
    enum { N_CONVS = sizeof convs / sizeof *convs, HIDDEN = 1024 };
    double drop = 0.5;
    GW_TRY(read_argument(n, "alexnet-small", 0, 0.9, "the share that dropout takes, 0 to 0.9, as in alexnet-small:0.2",
                         &drop));
    uint32_t x = GW_SAMPLES;
    take_cifar(n);
    for (uint32_t i = 0; i < N_CONVS; i++) {
        GW_TRY(add(n, &gw_layer_conv, &x, convs[i], "conv%u", i + 1));
        GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu%u", i + 1));
        if (i < 2 || i + 1 == N_CONVS)
            GW_TRY(add(n, &gw_layer_pool, &x, (struct gw_layer_spec){.kernel = 3, .stride = 2, .partial = true},
                       "pool%u", i + 1));
    }
    for (uint32_t i = 6; i < 8; i++) {
        GW_TRY(add(n, &gw_layer_fc, &x, (struct gw_layer_spec){.units = HIDDEN}, "fc%u", i));
        GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu%u", i));
        if (drop > 0)
            GW_TRY(add(n, &gw_layer_dropout, &x, (struct gw_layer_spec){.drop = (float)drop}, "drop%u", i));
    }
    return add(n, &gw_layer_fc, &x, (struct gw_layer_spec){.units = 10, .deviation = 0.01f}, "fc8");
}

static gw_status build_mlp(struct gw_network *n)
{
    enum { MAX_WIDTHS = 32, MAX_WIDTH = 1 << 20 };
    uint32_t widths[MAX_WIDTHS], n_widths = 0;
    const char *at = n->name + strlen("mlp:") - 1;
    bool good;
    do {
        uint64_t width;
        at++;
        good = n_widths < MAX_WIDTHS && gw_read_whole(&at, MAX_WIDTH, &width) && width > 0;
        if (good)
            widths[n_widths++] = (uint32_t)width;
    } while (good && *at == '-');
    if (!good || *at || n_widths < 2)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the network \"%s\" is not valid: after mlp: come 2 to %d widths of 1 to %d, as in "
                       "mlp:784-300-10",
                       n->name, MAX_WIDTHS, MAX_WIDTH);
    n->in = (struct gw_shape){widths[0], 1, 1};
    n->classes = widths[n_widths - 1];
    uint32_t x = GW_SAMPLES;
    for (uint32_t i = 1; i < n_widths; i++) {
        GW_TRY(add(n, &gw_layer_fc, &x, (struct gw_layer_spec){.units = widths[i]}, "fc%u", i));
        if (i + 1 < n_widths)
            GW_TRY(add(n, &gw_layer_relu, &x, plain, "relu%u", i));
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
        return GW_OK; /* gw_network_adapt sets the width */
    uint64_t features;
    if (!gw_parse_whole(width + 1, MAX_FEATURES, &features) || features == 0)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the network \"%s\" is not valid; right are %s, which takes its width from the data, and "
                       "%s:FEATURES with 1 to %d features",
                       n->name, convex->name, convex->name, MAX_FEATURES);
    n->in.channels = (uint32_t)features;
    n->n_trained_layers = n->n_tensors = 1;
    n->n_params = features;
    n->n_storage = (features + 15) / 16 * 16;
    if (!(n->tensors = gw_calloc(NULL, 1, sizeof *n->tensors)))
        return GW_ERR_MEMORY;
    n->tensors[0] = (struct gw_param){.name = "weight", .rank = 1, .dims = {features}, .n_elems = features};
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

/* ---- the table ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *name, *about; /* behind a colon in the name stands what must follow */
    gw_status (*build)(struct gw_network *network);
} networks[] = {
    {"lenet", "LeNet for MNIST (Caffe's), 431,080 parameters", build_lenet},
    {"cifarnet", "TernGrad's CifarNet (TensorFlow's tutorial), 1,068,298 parameters", build_cifarnet},
    {"resnet20", "ResNet-20 for CIFAR-10, 269,722 parameters", build_resnet20},
    {"vgg16", "VGG16 with batch norm for CIFAR-10, 14,724,042 parameters", build_vgg16},
    {"vgg16:WIDTH", "the same with a fraction of the maps, as in vgg16:0.25", build_vgg16},
    {"alexnet-small", "an AlexNet for CIFAR-10 with dropout 0.5", build_alexnet_small},
    {"alexnet-small:DROP", "the same with another dropout, as in alexnet-small:0.2", build_alexnet_small},
    {"mlp:WIDTHS", "a perceptron: inputs, hidden layers, classes, as in mlp:784-300-10", build_mlp},
    {"logreg", "logistic regression on the features of the data", build_logreg},
    {"logreg:FEATURES", "the same with so many features", build_logreg},
    {"svm", "a support vector machine on the features of the data", build_svm},
    {"svm:FEATURES", "the same with so many features", build_svm},
};
enum { N_NETWORKS = sizeof networks / sizeof *networks };

bool gw_train_network_list(size_t n, const char **name, const char **about)
{
    if (n >= N_NETWORKS)
        return false;
    *name = networks[n].name;
    *about = networks[n].about;
    return true;
}

gw_status gw_network_create(const char *name, struct gw_network *network)
{
    *network = (struct gw_network){0};
    if (snprintf(network->name, sizeof network->name, "%s", name) >= (int)sizeof network->name)
        return gw_fail(GW_ERR_ARGUMENT, "the network name \"%s\" is longer than %zu bytes", name,
                       sizeof network->name - 1);
    for (size_t i = 0; i < N_NETWORKS; i++) {
        const char *colon = strchr(networks[i].name, ':');
        if (colon ? strncmp(name, networks[i].name, (size_t)(colon - networks[i].name) + 1)
                  : strcmp(name, networks[i].name))
            continue;
        GW_TRY(networks[i].build(network));
        gw_network_close(network);
        return GW_OK;
    }
    char names[256] = "";
    for (size_t i = 0; i < N_NETWORKS; i++)
        gw_append(names, sizeof names, "%s%s", i == 0 ? "" : i + 1 == N_NETWORKS ? " and " : ", ", networks[i].name);
    return gw_fail(GW_ERR_ARGUMENT, "the network \"%s\" is unknown; right are %s", name, names);
}

gw_status gw_network_adapt(struct gw_network *network, struct gw_shape in)
{
    if (!network->convex || network->in.channels > 0)
        return GW_OK;
    char name[sizeof network->name];
    snprintf(name, sizeof name, "%s:%llu", network->convex->name, (unsigned long long)gw_shape_count(in));
    gw_network_free(network);
    return gw_network_create(name, network);
}
