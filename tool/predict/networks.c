/* The built-in networks: each is a function that walks through the layers from input to output. The walk keeps the size
 * of the picture and its channels. Each convolution or fully connected layer hands its tensors to add(). */
#include "base/append.h"
#include "base/nearest.h"
#include "networks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Where a walk through a network is: the picture that the next layer gets, and where the tensors are listed. */
struct gw_network_walk {
    uint32_t channels, side; /* of the next layer's input; pictures are square */
    gw_network_tensor *out;  /* NULL: tensors are only counted */
    gw_network_totals totals;
    bool last_layer;
};

/* ---- layers -------------------------------------------------------------------------------------------- */

static void add(struct gw_network_walk *w, const char *layer, const char *suffix, uint64_t n_elems,
                uint64_t multiply_adds)
{
    if (w->out) {
        gw_network_tensor *tensor = &w->out[w->totals.n_tensors];
        *tensor = (gw_network_tensor){.n_elems = n_elems, .multiply_adds = multiply_adds, .last_layer = w->last_layer};
        snprintf(tensor->name, sizeof tensor->name, "%.32s.%.12s", layer, suffix);
    }
    w->totals.n_tensors++;
    w->totals.n_params += n_elems;
    w->totals.multiply_adds += multiply_adds;
}

/* A layer's name made of parts, such as "layer3.0.conv1". It leaves room for ".weight". */
struct name {
    char text[GW_MAX_NETWORK_NAME - sizeof ".weight"];
};

__attribute__((format(printf, 1, 2))) static struct name name_of(const char *format, ...)
{
    struct name name;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name.text, sizeof name.text, format, arguments);
    va_end(arguments);
    return name;
}

/* A convolution of `kernel` x `kernel`, with padding on all sides. A channel of a group sees only channels of the same
 * group. If there is batch norm, its tensors are called `norm`, and the convolution has no bias. */
static void convolve(struct gw_network_walk *w, const char *name, uint32_t out, uint32_t kernel, uint32_t stride,
                     uint32_t padding, uint32_t groups, const char *norm)
{
    const uint64_t n_weights = (uint64_t)out * (w->channels / groups) * kernel * kernel;
    w->side = (w->side + 2 * padding - kernel) / stride + 1;
    w->channels = out;
    const uint64_t positions = (uint64_t)w->side * w->side;
    add(w, name, "weight", n_weights, n_weights * positions);
    if (norm) {
        add(w, norm, "weight", out, out * positions);
        add(w, norm, "bias", out, out * positions);
    } else {
        add(w, name, "bias", out, out * positions);
    }
}

/* A convolution with stride 1. The picture keeps its size. */
static void convolve_same(struct gw_network_walk *w, const char *name, uint32_t out, uint32_t kernel)
{
    convolve(w, name, out, kernel, 1, kernel / 2, 1, NULL);
}

/* A fully connected layer, which takes the picture as one vector. */
static void connect(struct gw_network_walk *w, const char *name, uint32_t out)
{
    const uint64_t n_weights = (uint64_t)w->channels * w->side * w->side * out;
    w->channels = out;
    w->side = 1;
    add(w, name, "weight", n_weights, n_weights);
    add(w, name, "bias", out, out);
}

/* The layer whose outputs are the classes. It ends a network. */
static void classify(struct gw_network_walk *w, const char *name, uint32_t classes)
{
    w->last_layer = true;
    connect(w, name, classes);
}

/* Pooling, which has no parameters. It makes a picture of `side`. */
static void pool(struct gw_network_walk *w, uint32_t side)
{
    w->side = side;
}

/* ---- networks ------------------------------------------------------------------------------------------ */

/* Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, NIPS 2012, as in Caffe's
 * bvlc_alexnet: one tower, and two groups in the second, fourth and fifth convolution as in the paper. */
static void alexnet(struct gw_network_walk *w)
{
    convolve(w, "conv1", 96, 11, 4, 0, 1, NULL);
    pool(w, 27);
    convolve(w, "conv2", 256, 5, 1, 2, 2, NULL);
    pool(w, 13);
    convolve(w, "conv3", 384, 3, 1, 1, 1, NULL);
    convolve(w, "conv4", 384, 3, 1, 1, 2, NULL);
    convolve(w, "conv5", 256, 3, 1, 1, 2, NULL);
    pool(w, 6);
    connect(w, "fc6", 4096);
    connect(w, "fc7", 4096);
    classify(w, "fc8", 1000);
}

/* channels: of the 1x1 branch, of the 3x3 branch (reduced, out), of the 5x5 branch (reduced, out), after the pool. */
static void inception(struct gw_network_walk *w, const char *name, const uint32_t channels[6])
{
    static const struct {
        const char *name;
        uint32_t kernel;
        bool of_input; /* true: it takes the block's input; false: the reduced channels of its branch */
    } branches[] = {{"1x1", 1, true},        {"3x3_reduce", 1, true}, {"3x3", 3, false},
                    {"5x5_reduce", 1, true}, {"5x5", 5, false},       {"pool_proj", 1, true}};
    const uint32_t in = w->channels;
    for (int i = 0; i < 6; i++) {
        if (branches[i].of_input)
            w->channels = in;
        convolve_same(w, name_of("inception_%s.%s", name, branches[i].name).text, channels[i], branches[i].kernel);
    }
    w->channels = channels[0] + channels[2] + channels[4] + channels[5]; /* the branches' outputs stand side by side */
}

/* Szegedy et al., Going Deeper with Convolutions, CVPR 2015, table 1. The two classifiers beside it are left out,
 * because only training uses them. */
static void googlenet(struct gw_network_walk *w)
{
    convolve(w, "conv1", 64, 7, 2, 3, 1, NULL);
    pool(w, 56);
    convolve_same(w, "conv2_reduce", 64, 1);
    convolve_same(w, "conv2", 192, 3);
    pool(w, 28);
    inception(w, "3a", (const uint32_t[]){64, 96, 128, 16, 32, 32});
    inception(w, "3b", (const uint32_t[]){128, 128, 192, 32, 96, 64});
    pool(w, 14);
    inception(w, "4a", (const uint32_t[]){192, 96, 208, 16, 48, 64});
    inception(w, "4b", (const uint32_t[]){160, 112, 224, 24, 64, 64});
    inception(w, "4c", (const uint32_t[]){128, 128, 256, 24, 64, 64});
    inception(w, "4d", (const uint32_t[]){112, 144, 288, 32, 64, 64});
    inception(w, "4e", (const uint32_t[]){256, 160, 320, 32, 128, 128});
    pool(w, 7);
    inception(w, "5a", (const uint32_t[]){256, 160, 320, 32, 128, 128});
    inception(w, "5b", (const uint32_t[]){384, 192, 384, 48, 128, 128});
    pool(w, 1);
    classify(w, "fc", 1000);
}

/* Simonyan and Zisserman, Very Deep Convolutional Networks, ICLR 2015, table 1: five stages of 3x3 convolutions. After
 * each stage a pool halves the picture. */
static void vgg_stages(struct gw_network_walk *w, const uint32_t n_layers[5])
{
    static const uint32_t channels[5] = {64, 128, 256, 512, 512};
    for (uint32_t stage = 0; stage < 5; stage++) {
        for (uint32_t i = 0; i < n_layers[stage]; i++)
            convolve_same(w, name_of("conv%u_%u", stage + 1, i + 1).text, channels[stage], 3);
        pool(w, w->side / 2);
    }
}

static void vgg_classifier(struct gw_network_walk *w)
{
    connect(w, "fc6", 4096);
    connect(w, "fc7", 4096);
    classify(w, "fc8", 1000);
}

/* Column A. */
static void vgg_a(struct gw_network_walk *w)
{
    vgg_stages(w, (const uint32_t[]){1, 1, 2, 2, 2});
    vgg_classifier(w);
}

/* Column D. */
static void vgg16_imagenet(struct gw_network_walk *w)
{
    vgg_stages(w, (const uint32_t[]){2, 2, 3, 3, 3});
    vgg_classifier(w);
}

/* Column D's convolutions, for CIFAR-10. */
static void vgg16(struct gw_network_walk *w)
{
    vgg_stages(w, (const uint32_t[]){2, 2, 3, 3, 3});
    classify(w, "fc", 10);
}

/* He et al., Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2: for CIFAR-10, with batch norm.
 * Shortcuts are of kind A: they have no parameters. */
static void resnet20(struct gw_network_walk *w)
{
    convolve(w, "conv1", 16, 3, 1, 1, 1, "bn1");
    for (uint32_t stage = 1; stage <= 3; stage++)
        for (uint32_t block = 0; block < 3; block++)
            for (uint32_t i = 1; i <= 2; i++)
                convolve(w, name_of("layer%u.%u.conv%u", stage, block, i).text, 8u << stage, 3,
                         stage > 1 && block == 0 && i == 1 ? 2 : 1, 1, 1,
                         name_of("layer%u.%u.bn%u", stage, block, i).text);
    pool(w, 1);
    classify(w, "fc", 10);
}

/* Three convolutions: 1x1, 3x3, 1x1. The first block of a stage has a convolution in its shortcut, too. The 3x3
 * convolution has the stride, as in torchvision. The paper gives the stride to the first one. */
static void bottleneck(struct gw_network_walk *w, uint32_t stage, uint32_t block)
{
    const uint32_t inner = 32u << stage, stride = stage > 1 && block == 0 ? 2 : 1;
    const struct gw_network_walk before = *w;
    for (uint32_t i = 1; i <= 3; i++)
        convolve(w, name_of("layer%u.%u.conv%u", stage, block, i).text, i == 3 ? 4 * inner : inner, i == 2 ? 3 : 1,
                 i == 2 ? stride : 1, i == 2, 1, name_of("layer%u.%u.bn%u", stage, block, i).text);
    if (block > 0)
        return;
    w->channels = before.channels;
    w->side = before.side;
    convolve(w, name_of("layer%u.0.downsample.0", stage).text, 4 * inner, 1, stride, 0, 1,
             name_of("layer%u.0.downsample.1", stage).text);
}

/* The same paper, table 1. */
static void resnet50(struct gw_network_walk *w)
{
    static const uint32_t n_blocks[] = {3, 4, 6, 3};
    convolve(w, "conv1", 64, 7, 2, 3, 1, "bn1");
    pool(w, 56);
    for (uint32_t stage = 1; stage <= 4; stage++)
        for (uint32_t block = 0; block < n_blocks[stage - 1]; block++)
            bottleneck(w, stage, block);
    pool(w, 1);
    classify(w, "fc", 1000);
}

static const gw_network_info networks[] = {
    {"alexnet", 227, alexnet},   {"googlenet", 224, googlenet},           {"vgg-a", 224, vgg_a},
    {"vgg16", 32, vgg16},        {"vgg16-imagenet", 224, vgg16_imagenet}, {"resnet20", 32, resnet20},
    {"resnet50", 224, resnet50},
};
enum { N_NETWORKS = sizeof networks / sizeof *networks };

/* ---- calls --------------------------------------------------------------------------------------------- */

gw_status gw_find_name(const char *what, const char *name, const char *const *names, size_t n, size_t *nth)
{
    char list[256] = "";
    for (*nth = 0; *nth < n; ++*nth) {
        if (strcmp(name, names[*nth]) == 0)
            return GW_OK;
        gw_append(list, sizeof list, "%s%s", *nth ? ", " : "", names[*nth]);
    }
    const char *nearest = gw_nearest(name, names, n, NULL);
    if (nearest)
        return gw_fail(GW_ERR_ARGUMENT, "there is no %s '%s'; did you mean '%s'? There are %s", what, name, nearest,
                       list);
    return gw_fail(GW_ERR_ARGUMENT, "there is no %s '%s'; there are %s", what, name, list);
}

gw_status gw_network_find(const char *name, const gw_network_info **out)
{
    const char *names[N_NETWORKS];
    size_t nth;
    for (size_t i = 0; i < N_NETWORKS; i++)
        names[i] = networks[i].name;
    const gw_status status = gw_find_name("network", name, names, N_NETWORKS, &nth);
    if (status == GW_OK)
        *out = &networks[nth];
    return status;
}

gw_network_totals gw_network_tensors(const gw_network_info *network, gw_network_tensor *out)
{
    struct gw_network_walk w = {.channels = 3, .side = network->side, .out = out};
    network->describe(&w);
    return w.totals;
}

void gw_network_describe_all(char *out, size_t capacity)
{
    for (size_t i = 0; i < N_NETWORKS; i++)
        gw_append(out, capacity, "%s%s (%.3g)", i ? ", " : "", networks[i].name,
                  1e-6 * (double)gw_network_tensors(&networks[i], NULL).n_params);
}

void gw_network_backward_ms(const gw_network_info *network, double images_per_second, uint32_t batch,
                            double out_ms[GW_MAX_NETWORK_TENSORS], double *forward_ms)
{
    gw_network_tensor tensors[GW_MAX_NETWORK_TENSORS];
    const gw_network_totals totals = gw_network_tensors(network, tensors);
    const double step_ms = 1e3 * batch / images_per_second, each = step_ms * (2.0 / 3) / (double)totals.multiply_adds;
    for (uint32_t t = 0; t < totals.n_tensors; t++)
        out_ms[t] = each * (double)tensors[t].multiply_adds;
    *forward_ms = step_ms / 3;
}
