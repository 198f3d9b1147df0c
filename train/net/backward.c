/* Times forward, and each gradient of backward, of a network. */
#include "net/backward.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/model.h"
#include "probe/gradient.h"

#include <omp.h>
#include <stdlib.h>

enum { WARM_UP = 2 };

/* How long the gradients of a step took. */
struct watch {
    double last; /* when the gradient before was ready, or when backward began */
    double ms[GW_MAX_TENSORS];
};

static void note_ready(void *user, uint32_t tensor)
{
    struct watch *watch = user;
    const double now = gw_clock_seconds();
    watch->ms[tensor] = 1e3 * (now - watch->last);
    watch->last = now;
}

/* times: `runs` numbers for forward, then `runs` numbers for each tensor. */
static gw_status time_steps(struct gw_model *model, uint32_t batch, uint32_t runs, const uint8_t *labels,
                            uint32_t n_tensors, double *times)
{
    for (uint32_t i = 0; i < WARM_UP + runs; i++) {
        struct watch watch = {.last = 0};
        const struct gw_pass pass = {.ready = note_ready, .user = &watch};
        double loss = 0;
        uint32_t correct = 0;
        const double begin = gw_clock_seconds();
        GW_TRY(gw_model_forward(model, &pass));
        gw_model_loss(model, labels, batch, 1 / (float)batch, &loss, &correct);
        watch.last = gw_clock_seconds();
        if (i >= WARM_UP)
            times[i - WARM_UP] = 1e3 * (watch.last - begin);
        GW_TRY(gw_model_backward(model, &pass));
        for (uint32_t t = 0; i >= WARM_UP && t < n_tensors; t++)
            times[(t + 1) * runs + i - WARM_UP] = watch.ms[t];
    }
    return GW_OK;
}

gw_status gw_backward_times(const struct gw_network *network, uint32_t batch, uint32_t runs, uint32_t threads,
                            double *forward_ms, double *backward_ms)
{
    if (network->convex)
        return gw_fail(GW_ERR_ARGUMENT, "%s has one tensor and no layers; there is nothing to plan", network->name);
    dnnl_engine_t engine = NULL;
    struct gw_model *model = NULL;
    omp_set_num_threads((int)threads);
    float *params = calloc(network->n_storage, sizeof *params), *grads = calloc(network->n_storage, sizeof *grads);
    uint8_t *labels = calloc(batch, 1);
    double *times = calloc((size_t)(network->n_tensors + 1) * runs, sizeof *times);
    gw_status status = params && grads && labels && times ? GW_OK : GW_ERR_MEMORY;
    if (status == GW_OK)
        status = gw_dnn_engine(&engine);
    if (status == GW_OK) {
        gw_network_init(network, 1, params);
        status = gw_model_create(network, engine, batch, params, grads, params + network->n_trained, &model);
    }
    if (status == GW_OK) {
        /* The values of samples do not change how long a layer takes. */
        gw_draw_gradient(gw_model_input(model), 0, gw_shape_count(network->in) * batch);
        status = time_steps(model, batch, runs, labels, network->n_tensors, times);
    }
    for (uint32_t t = 0; status == GW_OK && t <= network->n_tensors; t++)
        *(t == 0 ? forward_ms : &backward_ms[t - 1]) = gw_median(times + (size_t)t * runs, runs);
    gw_model_destroy(model);
    if (engine)
        dnnl_engine_destroy(engine);
    free(times);
    free(labels);
    free(grads);
    free(params);
    return status;
}
