/* Networks: layers by name, and the tensors they train. */
#ifndef GW_TRAIN_NETWORK_H
#define GW_TRAIN_NETWORK_H

#include "convex.h"
#include "layer.h"

#define GW_MAX_LAYERS 64
#define GW_MAX_TENSORS 128
#define GW_MAX_TENSOR_RANK 4

/* One trained tensor. Parameters and gradients of a worker are flat arrays; tensors begin at multiples of 16 floats. */
struct gw_param {
    char name[48]; /* "conv1.weight" */
    int rank;
    uint64_t dims[GW_MAX_TENSOR_RANK];
    uint64_t n_elems, offset;
    uint32_t fan_in; /* inputs of one output; 0: a bias */
    uint32_t layer;  /* number among the layers that have tensors */
    bool last_layer;
};

struct gw_network {
    char name[64];
    const struct gw_convex *convex; /* one tensor, "weight", and no layers; NULL: layers */
    struct gw_shape in;
    uint32_t classes;
    uint32_t n_layers, n_tensors;
    uint32_t n_trained_layers;
    struct gw_layer_spec layers[GW_MAX_LAYERS];
    struct gw_param tensors[GW_MAX_TENSORS];
    uint64_t n_params;  /* elements of all tensors */
    uint64_t n_storage; /* floats of a flat array, the gaps included */
};

/* `lenet`; `mlp:INPUTS-HIDDEN-...-CLASSES`; `logreg` or `svm`, which have no tensor before gw_network_adapt, or
 * `logreg:FEATURES`, `svm:FEATURES`. Errors name what is unknown or does not fit. */
gw_status gw_network_create(const char *name, struct gw_network *network);

/* Gives `logreg` and `svm` the width of the data; they are named logreg:FEATURES, svm:FEATURES from then on. */
gw_status gw_network_adapt(struct gw_network *network, struct gw_shape in);

/* Is the network made for samples of this shape and this many classes? Convex ones take fewer features, too. */
gw_status gw_network_fits(const struct gw_network *network, struct gw_shape in, uint32_t classes);

/* Does the user's `name` mean this network? `logreg` is any logreg:FEATURES. */
bool gw_network_is(const struct gw_network *network, const char *name);

/* First parameters, as Caffe's "xavier" filler: weights uniform in +-sqrt(3 / fan_in), biases 0. */
void gw_network_init(const struct gw_network *network, uint64_t seed, float *params);

/* For layers: declares one trained tensor. */
gw_status gw_network_add_tensor(struct gw_network *network, const struct gw_layer_spec *spec, const char *suffix,
                                int rank, const uint64_t *dims, uint32_t fan_in);

#endif
