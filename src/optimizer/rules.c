/* Moves parameters by an averaged gradient: sgd, momentum, adam and svrg. It also keeps the moving average of
 * parameters. */
#include "base/clones.h"
#include "optimizer/optimizer.h"

#include <math.h>

/* w -= lr * (g + decay*w). Weight decay is added here, after averaging, outside the codec, and to every parameter,
 * biases too, as Caffe does. */
GW_CLONES
static void sgd(size_t n, float *restrict w, const float *restrict g, float lr, float decay)
{
    for (size_t i = 0; i < n; i++)
        w[i] -= lr * (g[i] + decay * w[i]);
}

/* Caffe's momentum: v = momentum*v + lr * (g + decay*w); w -= v. */
GW_CLONES
static void momentum(size_t n, float *restrict w, float *restrict v, const float *restrict g, float lr, float factor,
                     float decay)
{
    for (size_t i = 0; i < n; i++) {
        v[i] = factor * v[i] + lr * (g[i] + decay * w[i]);
        w[i] -= v[i];
    }
}

/* beta^n, by squares. So the bits do not depend on the mathematical library. */
static double power(double beta, uint64_t n)
{
    double result = 1;
    for (; n; n >>= 1, beta *= beta)
        if (n & 1)
            result *= beta;
    return result;
}

/* Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015, algorithm 1, with a = g + decay*w:
 * m = beta1*m + (1-beta1)*a; v = beta2*v + (1-beta2)*a^2; w -= lr * (m / (1-beta1^step)) / (sqrt(v / (1-beta2^step)) +
 * epsilon). correct: 1-beta^step. */
GW_CLONES
static void adam(size_t n, float *restrict w, float *restrict m, float *restrict v, const float *restrict g, float lr,
                 float beta1, float beta2, float epsilon, float decay, float correct1, float correct2)
{
    const float take1 = 1 - beta1, take2 = 1 - beta2;
    for (size_t i = 0; i < n; i++) {
        float a = g[i] + decay * w[i];
        m[i] = beta1 * m[i] + take1 * a;
        v[i] = beta2 * v[i] + take2 * (a * a);
        w[i] -= lr * (m[i] / correct1) / (sqrtf(v[i] / correct2) + epsilon);
    }
}

GW_CLONES
void gw_optimizer_svrg(size_t n, float *restrict w, const float *restrict snapshot, const float *restrict g, float lr,
                       float decay)
{
    for (size_t i = 0; i < n; i++)
        w[i] -= lr * (g[i] + decay * (w[i] - snapshot[i]));
}

GW_CLONES
static void blend(size_t n, float *restrict e, const float *restrict w, float keep, float take)
{
    for (size_t i = 0; i < n; i++)
        e[i] = keep * e[i] + take * w[i];
}

void gw_optimizer_ema(size_t n, float *e, const float *w, double decay, uint64_t t)
{
    double warm = (1 + (double)t) / (10 + (double)t), d = warm < decay ? warm : decay;
    blend(n, e, w, (float)d, (float)(1 - d));
}

void gw_optimizer_update(const struct gw_optimizer *o, size_t n, float *w, float *const moments[GW_OPTIMIZER_MOMENTS],
                         const float *g, float lr, uint64_t step)
{
    switch (o->rule) {
    case GW_RULE_SGD:
        sgd(n, w, g, lr, o->decay);
        break;
    case GW_RULE_MOMENTUM:
        momentum(n, w, moments[0], g, lr, o->momentum, o->decay);
        break;
    case GW_RULE_ADAM:
        adam(n, w, moments[0], moments[1], g, lr, o->adam.beta1, o->adam.beta2, o->adam.epsilon, o->decay,
             (float)(1 - power((double)o->adam.beta1, step)), (float)(1 - power((double)o->adam.beta2, step)));
        break;
    case GW_RULE_SVRG:
        break;
    }
}
