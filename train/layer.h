/* What a layer is: one record of functions for each kind, one description for each layer of a network, one instance for
 * each model (a worker's training model, its evaluation model).
 *
 * Values flow in blobs whose layout the layer that makes them chooses; the layer that takes them reorders if it must.
 * Forward is set up first layer to last, backward last to first. */
#ifndef GW_TRAIN_LAYER_H
#define GW_TRAIN_LAYER_H

#include "dnn.h"

#include <stdint.h>

struct gw_network;
struct gw_layer;

struct gw_shape {
    uint32_t channels, height, width;
};

static inline uint64_t gw_shape_count(struct gw_shape s)
{
    return (uint64_t)s.channels * s.height * s.width;
}

/* A layer's place in a network: immutable, shared by all models. */
struct gw_layer_spec {
    const struct gw_layer_kind *kind;
    char name[32];
    uint32_t units;          /* feature maps or hidden units made */
    uint32_t kernel, stride; /* of windows; 0 where there are none */
    struct gw_shape in, out;
    uint32_t first_tensor; /* its weight; the bias follows */
};

/* What an instance is built from. */
struct gw_layer_build {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    const struct gw_network *network;
    uint32_t batch;
    bool training;
    bool needs_diff_src;   /* false for the first layer: nobody wants the gradient of the pictures */
    float *params, *grads; /* flat arrays; grads NULL where not training */
};

/* One pass through a model. */
struct gw_pass {
    uint64_t version; /* changes whenever parameters do: layouts of weights are made again then */
    void (*ready)(void *user, uint32_t tensor); /* called as soon as a tensor's gradient is complete */
    void *user;
};

struct gw_layer_kind {
    const char *name;
    size_t instance_bytes;
    /* Sets spec->out and declares the layer's tensors. */
    gw_status (*declare)(struct gw_network *network, struct gw_layer_spec *spec);
    /* Sets layer->dst. */
    gw_status (*setup_forward)(struct gw_layer *layer, const struct gw_layer_build *build, const struct gw_blob *src);
    /* Sets layer->diff_src where build->needs_diff_src. */
    gw_status (*setup_backward)(struct gw_layer *layer, const struct gw_layer_build *build,
                                const struct gw_blob *diff_dst);
    gw_status (*forward)(struct gw_layer *layer, const struct gw_pass *pass);
    gw_status (*backward)(struct gw_layer *layer, const struct gw_pass *pass);
    /* Also after a setup that failed half way: what is not there is zero. */
    void (*destroy)(struct gw_layer *layer);
};

/* The head of every instance. */
struct gw_layer {
    const struct gw_layer_spec *spec;
    dnnl_stream_t stream;
    struct gw_blob dst, diff_src;
};

extern const struct gw_layer_kind gw_layer_conv, gw_layer_pool, gw_layer_fc, gw_layer_relu;

#endif
