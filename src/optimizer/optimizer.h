/* Update rules: the averaged gradient moves the parameters. They work element by element on flat arrays of float32,
 * with the same bits on every instruction set. The trainer's workers and the parameter server call the same rules. */
#ifndef GW_OPTIMIZER_OPTIMIZER_H
#define GW_OPTIMIZER_OPTIMIZER_H

#include <gradwire/status.h>
#include <stddef.h>
#include <stdint.h>

/* SVRG's step. g has the L2 term of the snapshot w~ in it already: w -= lr * (g + decay*(w - w~)). */
void gw_optimizer_svrg(size_t n, float *w, const float *snapshot, const float *g, float lr, float decay);

/* The moving average of parameters that evaluation uses: e = d*e + (1-d)*w with d = min(decay, (1+t)/(10+t)). */
void gw_optimizer_ema(size_t n, float *e, const float *w, double decay, uint64_t t);

/* ---- a rule by its specification ---------------------------------------------------------------------------- */

enum gw_optimizer_rule { GW_RULE_SGD, GW_RULE_MOMENTUM, GW_RULE_ADAM, GW_RULE_SVRG };

#define GW_OPTIMIZER_MOMENTS 2 /* at most */
#define GW_OPTIMIZER_TEXT 128  /* bytes of a specification that gw_optimizer_text writes, its end included */

struct gw_optimizer {
    enum gw_optimizer_rule rule;
    float lr, decay;
    float momentum; /* momentum */
    struct {
        float beta1, beta2, epsilon;
    } adam; /* adam */
};

/* NAME[:key=value,...]: sgd (lr=0.01, weight-decay=0), momentum (and momentum=0.9), adam (lr=0.001, weight-decay=0,
 * beta1=0.9, beta2=0.999, epsilon=1e-8), svrg (lr, weight-decay as sgd); these are the defaults. Errors: GW_ERR_SPEC,
 * and the sentence says what would be right. */
gw_status gw_optimizer_parse(const char *text, struct gw_optimizer *out);

/* Writes the specification with every option in a fixed order. Two that mean the same have the same text. */
void gw_optimizer_text(const struct gw_optimizer *optimizer, char text[GW_OPTIMIZER_TEXT]);

/* How many arrays of n floats the optimizer keeps: momentum 1, adam 2, the others none. They are 0 at first. */
uint32_t gw_optimizer_moments(const struct gw_optimizer *optimizer);

/* Makes one update with the rate lr, and not its own rate. step: counted from 1. It reads only as many moments as the
 * optimizer has. It is not for svrg, which needs a snapshot: gw_optimizer_svrg. */
void gw_optimizer_update(const struct gw_optimizer *optimizer, size_t n, float *w,
                         float *const moments[GW_OPTIMIZER_MOMENTS], const float *g, float lr, uint64_t step);

#endif
