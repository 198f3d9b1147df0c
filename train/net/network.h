/* Networks: layers by name, and the tensors they train. */
#ifndef GW_TRAIN_NETWORK_H
#define GW_TRAIN_NETWORK_H

#include "net/convex.h"
#include "net/layer.h"

#define GW_MAX_TENSORS 1024
#define GW_MAX_TENSOR_RANK 4

/* The first values of a tensor: the same in all elements, or drawn. */
enum gw_first { GW_FIRST_SAME, GW_FIRST_UNIFORM, GW_FIRST_NORMAL };

/* One trained tensor, or running statistics. Parameters and gradients of a worker are flat arrays; tensors begin at
 * multiples of 16 floats. */
struct gw_param {
    char name[48]; /* "conv1.weight" */
    int rank;
    uint64_t dims[GW_MAX_TENSOR_RANK];
    uint64_t n_elems, offset;
    enum gw_first first;
    float first_value; /* the value; half the range; or the standard deviation */
    uint32_t layer;    /* the layer's number among those that have tensors */
};

struct gw_network {
    char name[64];
    const struct gw_convex *convex; /* one tensor, "weight", and no layers; NULL: layers */
    struct gw_shape in;
    uint32_t classes;
    bool he;               /* true: first weights are normal, as in He et al. 2015; else uniform, as Caffe's "xavier" */
    const char *transform; /* the transform of pictures (data/transform.h), unless the user names another one */
    uint32_t n_layers, n_tensors, n_trained_layers;
    uint32_t n_statistics;        /* how many running statistics there are (batch norm) */
    struct gw_layer_spec *layers; /* these three grow as layers are added */
    struct gw_param *tensors, *statistics;
    uint64_t n_params;  /* elements of all trained tensors */
    uint64_t n_trained; /* floats of a flat array of these tensors, with the gaps */
    uint64_t n_storage; /* the same with the statistics, which come last */
};

/* Makes a network by a name of the table in networks.c. `logreg` and `svm` have no tensor before gw_network_adapt.
 * Errors name what is unknown or does not fit. gw_network_free frees it, also after an error. */
gw_status gw_network_create(const char *name, struct gw_network *network);
void gw_network_free(struct gw_network *network);

/* The nth network of the table: its name, with an argument in capitals, and a sentence. False behind the last one. */
bool gw_train_network_list(size_t n, const char **name, const char **about);

/* Gives `logreg` and `svm` the width of the data; they are named logreg:FEATURES, svm:FEATURES from then on. */
gw_status gw_network_adapt(struct gw_network *network, struct gw_shape in);

/* Checks that the network takes samples of this shape, and this many classes. Convex ones take fewer features, too. */
gw_status gw_network_fits(const struct gw_network *network, struct gw_shape in, uint32_t classes);

/* True if the user's `name` means this network. `logreg` means any logreg:FEATURES. */
bool gw_network_is(const struct gw_network *network, const char *name);

/* Sets the first parameters and statistics. params: network->n_storage floats. */
void gw_network_init(const struct gw_network *network, uint64_t seed, float *params);

/* For networks.c. Appends a layer, whose inputs must be there already; *number is its place. */
gw_status gw_network_add(struct gw_network *network, const struct gw_layer_spec *layer, uint32_t *number);

/* For networks.c, when the last layer is there: finds the places of the statistics behind the trained tensors. */
void gw_network_close(struct gw_network *network);

/* For layers: declares one trained tensor. fan_in: inputs of one output; 0: it begins with `value` everywhere. */
gw_status gw_network_add_tensor(struct gw_network *network, const struct gw_layer_spec *spec, const char *suffix,
                                int rank, const uint64_t *dims, uint32_t fan_in, float value);

/* For layers: declares n numbers that are not trained, which begin with `value`. */
gw_status gw_network_add_statistic(struct gw_network *network, const struct gw_layer_spec *spec, const char *suffix,
                                   uint64_t n, float value);

#endif
