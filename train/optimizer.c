/* Names the optimizers of a run, and has the rules that only the trainer needs: svrg and the moving average of
 * parameters. */
#include "optimizer.h"
#include "base/clones.h"
#include "base/error.h"

#include <string.h>

gw_status gw_optimizer_parse(const char *text, enum gw_optimizer_kind *kind)
{
    if (strcmp(text, "sgd") == 0)
        *kind = GW_OPTIMIZER_SGD;
    else if (strcmp(text, "momentum") == 0)
        *kind = GW_OPTIMIZER_MOMENTUM;
    else if (strcmp(text, "adam") == 0)
        *kind = GW_OPTIMIZER_ADAM;
    else if (strcmp(text, "svrg") == 0)
        *kind = GW_OPTIMIZER_SVRG;
    else
        return gw_fail(GW_ERR_ARGUMENT, "the optimizer \"%s\" is unknown; right are sgd, momentum, adam and svrg",
                       text);
    return GW_OK;
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
