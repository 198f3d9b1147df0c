/* Networks: layers by name, and the tensors they train. */
#ifndef GW_TRAIN_NETWORK_H
#define GW_TRAIN_NETWORK_H

#include "net/convex.h"
#include "net/layer.h"

#define GW_MAX_TENSORS 1024
#define GW_MAX_TENSOR_RANK 4

/* What a tensor begins with: the same in all its elements, or drawn. */
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
    uint32_t layer;    /* number among the layers that have tensors */
    bool last_layer;
};

struct gw_network {
    char name[64];
    const struct gw_convex *convex; /* one tensor, "weight", and no layers; NULL: layers */
    struct gw_shape in;
    uint32_t classes;
    bool he;               /* first weights are normal, as He et al. 2015 have it; else uniform, as Caffe's "xavier" */
    const char *transform; /* of pictures before they come in (data/transform.h) unless the user says another */
    uint32_t n_layers, n_tensors, n_trained_layers;
    uint32_t n_statistics;        /* what batch norm keeps of its values */
    struct gw_layer_spec *layers; /* these three grow as layers are added */
    struct gw_param *tensors, *statistics;
    uint64_t n_params;  /* elements of all trained tensors */
    uint64_t n_trained; /* floats of a flat array of them, the gaps included */
    uint64_t n_storage; /* with the statistics, which come last */
};

/* By a name of the table in networks.c; `logreg` and `svm` have no tensor before gw_network_adapt. Errors name what is
 * unknown or does not fit. Whatever is returned, gw_network_free frees what it holds. */
gw_status gw_network_create(const char *name, struct gw_network *network);
void gw_network_free(struct gw_network *network);

/* The nth network of the table: its name, with the word that follows in capitals, and a sentence about it. False behind
 * the last. */
bool gw_network_entry(size_t n, char *name, size_t capacity, const char **about);

/* All of them in a line: "lenet, cifarnet, ... and svm:FEATURES". */
void gw_network_names(char *text, size_t capacity);

/* Gives `logreg` and `svm` the width of the data; they are named logreg:FEATURES, svm:FEATURES from then on. */
gw_status gw_network_adapt(struct gw_network *network, struct gw_shape in);

/* Is the network made for samples of this shape and this many classes? Convex ones take fewer features, too. */
gw_status gw_network_fits(const struct gw_network *network, struct gw_shape in, uint32_t classes);

/* Does the user's `name` mean this network? `logreg` is any logreg:FEATURES. */
bool gw_network_is(const struct gw_network *network, const char *name);

/* First parameters, and statistics. params: network->n_storage floats. */
void gw_network_init(const struct gw_network *network, uint64_t seed, float *params);

/* For networks.c. Appends a layer, whose inputs must be there already; *number is its place. */
gw_status gw_network_add(struct gw_network *network, const struct gw_layer_spec *layer, uint32_t *number);

/* For networks.c, when the last layer is there: finds the places of what lies behind the trained tensors. */
void gw_network_close(struct gw_network *network);

/* For layers: declares one trained tensor. fan_in: inputs of one output; 0: it begins with `value` everywhere. */
gw_status gw_network_add_tensor(struct gw_network *network, const struct gw_layer_spec *spec, const char *suffix,
                                int rank, const uint64_t *dims, uint32_t fan_in, float value);

/* For layers: declares n numbers that are not trained, which begin with `value`. */
gw_status gw_network_add_statistic(struct gw_network *network, const struct gw_layer_spec *spec, const char *suffix,
                                   uint64_t n, float value);

#endif
