/* Tests the built-in networks against published figures, and their tensors, backward times and refusals. */
#include "networks.h"
#include "checks.h"

#include <math.h>
#include <string.h>

/* Torchvision's documentation of weights has these figures: "num_params" and "GFLOPS", which are multiply-adds. */
#define TORCHVISION "torchvision's table of weights"

static const struct published {
    const char *name;
    uint64_t n_params;
    const char *params_from;
    double multiply_adds, tolerance; /* the published numbers are rounded, and leave out biases and batch norm */
    const char *work_from;
    uint32_t n_tensors;
} published[] = {
    {"alexnet", 60965224, "Caffe's bvlc_alexnet; \"60 million parameters\" in the paper's abstract", 0.724e9, 0.01,
     "Caffe's bvlc_alexnet", 16},
    {"googlenet", 6998552, "Caffe's bvlc_googlenet; Open Model Zoo's googlenet-v1: 6.999 M", 1.583e9, 0.01,
     "Open Model Zoo's googlenet-v1: 3.266 G, with pools and norms, at two for a multiply-add; the paper: 1.5 G", 116},
    {"vgg-a", 132863336, TORCHVISION ", vgg11; \"133 million\" in the paper's table 2", 7.61e9, 0.01,
     TORCHVISION ", vgg11", 22},
    /* 13 convolutions of VGG16 and 512x10 weights: 138,357,544 - 123,642,856 + 5,130 */
    {"vgg16", 14719818, "VGG16's convolutions, 14,714,688, and 5,130", 0.313e9, 0.01,
     "VGG16's convolutions, 15.35 G, for a picture of 32x32 in place of 224x224", 28},
    {"vgg16-imagenet", 138357544, TORCHVISION ", vgg16; \"138 million\" in the paper's table 2", 15.47e9, 0.01,
     TORCHVISION ", vgg16", 32},
    {"resnet20", 269722, "\"0.27M\" in the paper's table 6; Idelbayev's resnet20 with shortcuts of kind A", 40.8e6,
     0.02, "Idelbayev's resnet20", 59},
    {"resnet50", 25557032, TORCHVISION ", resnet50", 4.09e9, 0.01, TORCHVISION ", resnet50", 161},
};
enum { N = sizeof published / sizeof *published };

static const gw_network_info *found(const char *name)
{
    const gw_network_info *network = NULL;
    CHECK(gw_network_find(name, &network) == GW_OK && network, "%s: %s", name, gw_last_error());
    return network;
}

TEST(totals_are_the_published_ones)
{
    for (size_t i = 0; i < N; i++) {
        const struct published *p = &published[i];
        const gw_network_totals totals = gw_network_tensors(found(p->name), NULL);
        CHECK(totals.n_params == p->n_params, "%s: %llu parameters; %s", p->name, (unsigned long long)totals.n_params,
              p->params_from);
        CHECK(fabs((double)totals.multiply_adds / p->multiply_adds - 1) <= p->tolerance, "%s: %.6g multiply-adds; %s",
              p->name, (double)totals.multiply_adds, p->work_from);
        CHECK(totals.n_tensors == p->n_tensors && totals.n_tensors <= GW_MAX_NETWORK_TENSORS, "%s: %u tensors", p->name,
              totals.n_tensors);
    }
}

TEST(the_listing_is_complete)
{
    char all[1024] = "";
    size_t n = 0;
    gw_network_describe_all(all, sizeof all);
    for (const char *at = all; (at = strchr(at, '(')); at++)
        n++;
    CHECK(n == N, "%zu networks, and the test has %d: %s", n, N, all);
    for (size_t i = 0; i < N; i++)
        CHECK(strstr(all, published[i].name), "%s is not in %s", published[i].name, all);
}

/* Names differ. Sums are those of the network. The last two tensors are the last layer, and no others are. */
TEST(tensors_make_the_network)
{
    static gw_network_tensor tensors[GW_MAX_NETWORK_TENSORS];
    for (size_t i = 0; i < N; i++) {
        const gw_network_info *network = found(published[i].name);
        const gw_network_totals totals = gw_network_tensors(network, NULL);
        uint64_t n_params = 0, work = 0;
        memset(tensors, 0xA5, sizeof tensors);
        const size_t n = gw_network_tensors(network, tensors).n_tensors;
        assert_int_equal(n, totals.n_tensors);
        for (size_t t = 0; t < n; t++) {
            n_params += tensors[t].n_elems, work += tensors[t].multiply_adds;
            CHECK(tensors[t].last_layer == (t + 2 >= n), "%s: %s", network->name, tensors[t].name);
            CHECK(tensors[t].n_elems > 0 && tensors[t].multiply_adds >= tensors[t].n_elems, "%s: %s", network->name,
                  tensors[t].name);
            const size_t length = strlen(tensors[t].name);
            CHECK(length > 5 && length + 1 < GW_MAX_NETWORK_NAME, "%s: %s", network->name, tensors[t].name);
            for (size_t other = 0; other < t; other++)
                CHECK(strcmp(tensors[t].name, tensors[other].name) != 0, "%s: twice %s", network->name,
                      tensors[t].name);
        }
        CHECK(n_params == totals.n_params && work == totals.multiply_adds, "%s", network->name);
    }
}

/* Single tensors, as they are in the papers and in the models of Caffe and torchvision. */
TEST(tensors_stand_where_they_should)
{
    static const struct {
        const char *network;
        size_t at;
        const char *name;
        uint64_t n_elems, multiply_adds;
    } cases[] = {
        {"alexnet", 0, "conv1.weight", 34848, 34848ull * 55 * 55},
        {"alexnet", 1, "conv1.bias", 96, 96ull * 55 * 55},
        {"alexnet", 2, "conv2.weight", 307200, 307200ull * 27 * 27}, /* the convolution has two groups */
        {"alexnet", 10, "fc6.weight", 37748736, 37748736},
        {"alexnet", 15, "fc8.bias", 1000, 1000},
        {"vgg16", 24, "conv5_3.weight", 2359296, 2359296ull * 2 * 2},
        {"vgg16", 26, "fc.weight", 5120, 5120},
        {"vgg-a", 16, "fc6.weight", 102760448, 102760448},
        {"googlenet", 0, "conv1.weight", 9408, 9408ull * 112 * 112},
        {"googlenet", 6, "inception_3a.1x1.weight", 192 * 64, 192ull * 64 * 28 * 28},
        {"googlenet", 16, "inception_3a.pool_proj.weight", 192 * 32, 192ull * 32 * 28 * 28},
        {"googlenet", 114, "fc.weight", 1024000, 1024000},
        {"resnet20", 1, "bn1.weight", 16, 16ull * 32 * 32},
        {"resnet20", 21, "layer2.0.conv1.weight", 4608, 4608ull * 16 * 16},
        {"resnet50", 12, "layer1.0.downsample.0.weight", 16384, 16384ull * 56 * 56},
        {"resnet50", 36, "layer2.0.conv2.weight", 147456, 147456ull * 28 * 28},
        {"resnet50", 160, "fc.bias", 1000, 1000},
    };
    static gw_network_tensor tensors[GW_MAX_NETWORK_TENSORS];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = gw_network_tensors(found(cases[i].network), tensors).n_tensors;
        const gw_network_tensor *tensor = &tensors[cases[i].at];
        CHECK(cases[i].at < n && strcmp(tensor->name, cases[i].name) == 0, "%s: %s stands where %s should",
              cases[i].network, tensor->name, cases[i].name);
        CHECK(tensor->n_elems == cases[i].n_elems && tensor->multiply_adds == cases[i].multiply_adds,
              "%s: %s: %llu elements, %llu multiply-adds", cases[i].network, tensor->name,
              (unsigned long long)tensor->n_elems, (unsigned long long)tensor->multiply_adds);
    }
}

/* Forward takes a third of the step. Backward takes the rest, in proportion to the work. */
TEST(backward_is_spread_by_work)
{
    static gw_network_tensor tensors[GW_MAX_NETWORK_TENSORS];
    double ms[GW_MAX_NETWORK_TENSORS];
    for (size_t i = 0; i < N; i++) {
        const gw_network_info *network = found(published[i].name);
        double forward_ms, sum = 0;
        const size_t n = gw_network_tensors(network, tensors).n_tensors;
        /* 48 images at 200 a second: 240 ms */
        gw_network_backward_ms(network, 200, 48, ms, &forward_ms);
        CHECK(forward_ms == 80, "%s: %.17g", network->name, forward_ms);
        for (size_t t = 0; t < n; t++) {
            sum += ms[t];
            const double share = (double)tensors[t].multiply_adds / (double)tensors[0].multiply_adds;
            CHECK(fabs(ms[t] / ms[0] / share - 1) < 1e-12, "%s: %s", network->name, tensors[t].name);
        }
        CHECK(fabs(sum / 160 - 1) < 1e-12, "%s: %.17g", network->name, sum);
    }
}

TEST(another_name_is_refused)
{
    const gw_network_info *network;
    assert_int_equal(gw_network_find("vgg", &network), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "there is no network 'vgg'"));
    assert_int_equal(gw_network_find("alexnett", &network), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "did you mean 'alexnet'?"));
    for (size_t i = 0; i < N; i++)
        assert_non_null(strstr(gw_last_error(), published[i].name));
}

RUN_TESTS("networks", NULL, NULL)
