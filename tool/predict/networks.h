/* Networks whose layers are built in: the sizes of their gradients, and the work that each gradient costs. Predictions
 * and benchmarks need the shape of a network and not its code. Nothing here trains. */
#ifndef GRADWIRE_TOOL_PREDICT_NETWORKS_H
#define GRADWIRE_TOOL_PREDICT_NETWORKS_H

#include <gradwire/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_MAX_NETWORK_TENSORS 256u /* no built-in network has more tensors */
#define GW_MAX_NETWORK_NAME 48u     /* bytes of a tensor's name, with the closing 0 */

struct gw_network_walk; /* networks.c */

/* One built-in network. Its description walks through the layers. */
typedef struct gw_network_info {
    const char *name; /* "resnet50"; static */
    uint32_t side;    /* of the pictures that it takes, which are square and have three channels */
    void (*describe)(struct gw_network_walk *walk);
} gw_network_info;

/* One tensor of a network. Weights and biases of a layer are separate tensors. */
typedef struct gw_network_tensor {
    char name[GW_MAX_NETWORK_NAME]; /* "conv1.weight"; no two tensors of a network have the same */
    uint64_t n_elems;
    /* what forward computes with this tensor, for one sample. A weight: one multiply-add for each product of a weight
     * and an input. A bias, and each of batch norm's two tensors: one for each output of the layer */
    uint64_t multiply_adds;
    bool last_layer; /* it belongs to the last classification layer; the option skip=last leaves it in float */
} gw_network_tensor;

/* A network in three numbers. */
typedef struct gw_network_totals {
    uint32_t n_tensors;
    /* elements of all tensors. Batch norm's running statistics are not learned, so they are not counted */
    uint64_t n_params;
    uint64_t multiply_adds; /* of forward, for one sample */
} gw_network_totals;

/* Finds a name in a list of `what`s: a network, a cluster. Errors: GW_ERR_ARGUMENT (it is not there; the sentence lists
 * the names, and says which is nearest). */
GW_MUST_CHECK gw_status gw_find_name(const char *what, const char *name, const char *const *names, size_t n,
                                     size_t *nth);

/* Appends all networks and their sizes, in millions of elements, for help: "alexnet (61), googlenet (7), ...".
 * gw_append cuts what does not fit. */
void gw_network_describe_all(char *out, size_t capacity);

/* Finds a network by its name. Errors: as gw_find_name. */
GW_MUST_CHECK gw_status gw_network_find(const char *name, const gw_network_info **out);

/* Adds up the tensors of a network. Writes them to out[GW_MAX_NETWORK_TENSORS], unless that is NULL, in declared order:
 * the first layer first, a layer's weight before its bias. */
gw_network_totals gw_network_tensors(const gw_network_info *network, gw_network_tensor *out);

/* Estimates how long forward takes, and backward for each tensor in declared order, on a machine that trains
 * images_per_second with this network when nothing is exchanged, in steps of `batch` samples. Both are above 0. Forward
 * is one third of a step, because backward computes twice as many products: for the gradient of the weights, and for
 * that of the inputs. Backward is spread over the tensors in proportion to their multiply_adds. */
void gw_network_backward_ms(const gw_network_info *network, double images_per_second, uint32_t batch,
                            double out_ms[GW_MAX_NETWORK_TENSORS], double *forward_ms);

#endif
