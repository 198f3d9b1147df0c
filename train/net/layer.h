/* What a layer is: one record of functions for each kind, one description for each layer of a network, one instance for
 * each model (a worker's training model, its evaluation model).
 *
 * A network is a graph: each layer names the layers whose values it takes, all of which come before it. Values flow in
 * blobs. The layer that makes a blob chooses its layout; the layer that takes it reorders if it must. Forward is set up
 * first layer to last, backward last to first. */
#ifndef GW_TRAIN_LAYER_H
#define GW_TRAIN_LAYER_H

#include "net/dnn.h"

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

#define GW_MAX_INPUTS 2
#define GW_SAMPLES UINT32_MAX /* as the number of an input: the samples themselves */

/* A layer in a network, which all models share. A caller that adds a layer sets the fields that its kind needs. */
struct gw_layer_spec {
    const struct gw_layer_kind *kind;
    char name[32];
    uint32_t inputs[GW_MAX_INPUTS]; /* numbers of layers before it, or GW_SAMPLES */
    uint32_t n_inputs;
    uint32_t n_readers;               /* how many layers take its output */
    uint32_t units;                   /* feature maps or hidden units of the output */
    uint32_t kernel, stride, padding; /* of windows; 0 if there are none */
    bool partial;                     /* pooling: the last window may reach over the edge */
    bool average;                     /* pooling: the mean in place of the largest */
    bool no_bias;                     /* convolution */
    bool relu;                        /* batch norm: negative values become 0 */
    float drop;                       /* dropout: the share of values that become 0 */
    /* the standard deviation of first weights, which are normal; 0: the network's rule */
    float deviation;
    float bias;               /* first values of biases */
    struct gw_shape in, out;  /* in: of the first input; all have the same */
    uint32_t first_tensor;    /* the number of its weight; the bias follows */
    uint32_t first_statistic; /* batch norm: the running mean; the variance follows */
};

/* What a layer's instance is built from. */
struct gw_layer_build {
    dnnl_engine_t engine;
    const struct gw_network *network;
    uint32_t batch;
    bool training;
    bool may_overwrite;             /* no other layer reads src */
    bool needs_diff[GW_MAX_INPUTS]; /* false for the samples: the gradient of the pictures is not needed */
    float *params, *grads;          /* flat arrays; grads NULL if not training */
    float *statistics;              /* flat; a training model changes its own */
};

/* One pass through a model. */
struct gw_pass {
    /* training: random numbers depend only on these. first: the first sample's place in the batch of all workers */
    uint64_t seed, step;
    uint32_t first;
    void (*ready)(void *user, uint32_t tensor); /* called as soon as a tensor's gradient is complete */
    void *user;
};

struct gw_layer_kind {
    size_t instance_bytes;
    bool needs_dst; /* backward reads dst again */
    /* Sets spec->out and declares the layer's tensors. */
    gw_status (*declare)(struct gw_network *network, struct gw_layer_spec *spec);
    /* Sets layer->dst. */
    gw_status (*setup_forward)(struct gw_layer *layer, const struct gw_layer_build *build,
                               const struct gw_blob *const *src);
    /* Sets layer->diff_src[k] if build->needs_diff[k]. */
    gw_status (*setup_backward)(struct gw_layer *layer, const struct gw_layer_build *build,
                                const struct gw_blob *diff_dst);
    /* NULL: layer->run is all that forward does, and layer->backward all that backward does. */
    gw_status (*forward)(struct gw_layer *layer, const struct gw_pass *pass);
    gw_status (*backward)(struct gw_layer *layer, const struct gw_pass *pass);
    /* Called if the step counts: the layer keeps what it learnt of its values (batch norm). NULL: it keeps nothing. */
    void (*keep)(struct gw_layer *layer);
    /* Frees what the kind adds to the head. NULL: nothing. After a setup that failed, fields may be zero. */
    void (*destroy)(struct gw_layer *layer);
};

/* The head of every instance. */
struct gw_layer {
    const struct gw_layer_spec *spec;
    dnnl_stream_t stream;
    uint32_t batch;
    struct gw_blob dst, diff_src[GW_MAX_INPUTS];
    /* For kinds that need values, or gradients, in a layout of their own. The model runs reorder_src before forward,
     * and reorder_diff_dst before backward: they fill src and diff_dst, if these have memory of their own. */
    struct gw_blob src, diff_dst;
    struct gw_primitive reorder_src, reorder_diff_dst;
    struct gw_primitive run, backward; /* oneDNN's own, if it has the layer */
    struct gw_blob workspace;          /* what forward leaves for backward */
};

/* For layers that change no shape and have no tensors. */
gw_status gw_layer_declare_same(struct gw_network *network, struct gw_layer_spec *spec);

/* For layers with a layer->run: makes the workspace if run leaves one. The other arguments of run come before. */
gw_status gw_layer_setup_workspace(struct gw_layer *layer, const struct gw_layer_build *build);

/* For layers that read gradients in the layout of layer->dst. Makes layer->diff_dst so, and layer->diff_src[0] in the
 * layout of layer->src if it is needed. */
gw_status gw_layer_setup_backward(struct gw_layer *layer, const struct gw_layer_build *build,
                                  const struct gw_blob *diff_dst);

extern const struct gw_layer_kind gw_layer_conv, gw_layer_pool, gw_layer_fc, gw_layer_relu, gw_layer_batchnorm,
    gw_layer_lrn, gw_layer_dropout, gw_layer_add, gw_layer_shortcut;

#endif
