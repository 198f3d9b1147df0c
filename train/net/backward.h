/* Measures a network of the trainer on this machine: how long forward takes, and backward for each tensor. */
#ifndef GW_TRAIN_BACKWARD_H
#define GW_TRAIN_BACKWARD_H

#include "net/network.h"

/* Makes `runs` steps (1 or more) on drawn samples, with `threads` threads, after two that warm up, and stores medians.
 * backward_ms has room for GW_MAX_TENSORS numbers, in the network's order of tensors. Each is the time from the
 * gradient that backward made before it to this one. If two tensors are ready together, one has 0. The network must
 * have layers: logreg and svm are refused. */
gw_status gw_backward_times(const struct gw_network *network, uint32_t batch, uint32_t runs, uint32_t threads,
                            double *forward_ms, double *backward_ms);

#endif
