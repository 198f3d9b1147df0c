/* Which optimizer a run has, and what only the trainer does to parameters. The rules of sgd, momentum and adam are in
 * base/optimizer.h. */
#ifndef GW_TRAIN_OPTIMIZER_H
#define GW_TRAIN_OPTIMIZER_H

#include "base/optimizer.h"

enum gw_optimizer_kind { GW_OPTIMIZER_SGD, GW_OPTIMIZER_MOMENTUM, GW_OPTIMIZER_ADAM, GW_OPTIMIZER_SVRG };

/* sgd | momentum | adam | svrg */
gw_status gw_optimizer_parse(const char *text, enum gw_optimizer_kind *kind);

/* SVRG's step (worker_convex.c), where g has the L2 term of the snapshot w~ in it already: w -= lr * (g + decay*(w -
 * w~)). */
void gw_optimizer_svrg(size_t n, float *w, const float *snapshot, const float *g, float lr, float decay);

/* The moving average of parameters that evaluation uses: e = d*e + (1-d)*w with d = min(decay, (1+t)/(10+t)). */
void gw_optimizer_ema(size_t n, float *e, const float *w, double decay, uint64_t t);

#endif
