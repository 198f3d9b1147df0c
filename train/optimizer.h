/* Optimizers: the averaged gradient moves the parameters. Element-wise over flat arrays. */
#ifndef GW_TRAIN_OPTIMIZER_H
#define GW_TRAIN_OPTIMIZER_H

#include <gradwire/status.h>
#include <stddef.h>
#include <stdint.h>

enum gw_optimizer_kind { GW_OPTIMIZER_SGD, GW_OPTIMIZER_MOMENTUM, GW_OPTIMIZER_SVRG };

/* sgd | momentum | svrg */
gw_status gw_optimizer_parse(const char *text, enum gw_optimizer_kind *kind);

/* w -= lr * (g + decay*w). Weight decay is added here, after averaging, outside the codec, and to every parameter, biases
 * too, as Caffe does. */
void gw_optimizer_sgd(size_t n, float *w, const float *g, float lr, float decay);

/* Caffe's momentum: v = momentum*v + lr * (g + decay*w); w -= v. */
void gw_optimizer_momentum(size_t n, float *w, float *v, const float *g, float lr, float momentum, float decay);

/* SVRG's step (worker_convex.c), where g has the L2 term of the snapshot w~ in it already: w -= lr * (g + decay*(w - w~)). */
void gw_optimizer_svrg(size_t n, float *w, const float *snapshot, const float *g, float lr, float decay);

/* The moving average of parameters that evaluation uses: e = d*e + (1-d)*w with d = min(decay, (1+t)/(10+t)). */
void gw_optimizer_ema(size_t n, float *e, const float *w, double decay, uint64_t t);

#endif
