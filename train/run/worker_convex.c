/* What a worker does if the network is convex: gradients straight from sparse rows, full passes for the objective, and
 * SVRG (Johnson and Zhang, "Accelerating stochastic gradient descent using predictive variance reduction", 2013).
 *
 * F(w) = (1/n) * sum of losses + lambda * |w|^2. At the beginning of an epoch SVRG keeps the snapshot w~ = w, and the
 * workers average the full gradient there: each takes its share of all samples. The sum travels through an exchange of
 * its own in float32, and its bytes count. In a step every worker hands
 *
 *     g = grad loss_batch(w) - grad loss_batch(w~) + grad F(w~)
 *
 * to the codec as one vector, as in GSpar's experiments, and not only the difference of the first two: Q(g) has a
 * variance of the order of |g|^2 whatever g is made of, and g as a whole goes to 0 as w and w~ approach the minimum.
 * For that grad F(w~) must have the L2 term 2*lambda*w~ in it: the gradient of the losses alone does not go to 0. What
 * is left of the L2 term, 2*lambda*(w - w~), is added after averaging (gw_optimizer_svrg). The mean of g is the
 * gradient of F at w. */
#include "base/error.h"
#include "base/memory.h"
#include "data/order.h"
#include "run/histograms.h"

#include <string.h>

gw_status gw_convex_worker_set_up(struct gw_worker *w)
{
    const struct gw_team *team = w->team;
    const struct gw_network *net = &team->network;
    w->sum = gw_alloc(NULL, net->n_storage, sizeof *w->sum);
    if (!w->sum)
        return GW_ERR_MEMORY;
    if (team->rule.rule != GW_RULE_SVRG)
        return GW_OK;
    w->snapshot = gw_calloc(NULL, net->n_storage, sizeof *w->snapshot);
    w->full = gw_calloc(NULL, net->n_storage, sizeof *w->full);
    if (!w->snapshot || !w->full)
        return GW_ERR_MEMORY;
    return gw_worker_full_exchange(w, team->tensors, net->n_tensors);
}

/* If a run is resumed within an epoch, it keeps the snapshot that was saved. The full gradient at the snapshot is
 * computed again, but not counted again. */
gw_status gw_convex_worker_snapshot(struct gw_worker *w, uint64_t t, struct gw_step_record *record,
                                    gw_step_result *result)
{
    const struct gw_team *team = w->team;
    uint32_t n = team->data.train.n, begin, count, correct = 0;
    uint64_t epoch = t / team->steps_per_epoch;
    bool again = t % team->steps_per_epoch != 0;
    size_t n_weights = team->network.n_storage;
    double loss = 0;
    gw_order_share(n, team->options->workers, w->rank, &begin, &count);
    if (!again)
        memcpy(w->snapshot, w->params, n_weights * sizeof *w->snapshot);
    memset(w->sum, 0, n_weights * sizeof *w->sum);
    gw_convex_pass(team->network.convex, &team->data.train, NULL, begin, count, w->snapshot, &loss, &correct,
                   (double)team->options->workers / n, w->sum);
    for (size_t i = 0; i < n_weights; i++)
        w->full[i] = (float)w->sum[i];
    record->gradients += again ? 0 : count;

    GW_TRY(gw_exchange_begin(w->full_exchange, (uint32_t)epoch));
    GW_TRY(gw_exchange_submit(w->full_exchange, 0, w->full));
    GW_TRY(gw_worker_wait(w->full_exchange, result));
    if (again)
        result->bytes_up = result->bytes_down = result->dense_bytes = result->messages = 0;
    if (!result->committed)
        return gw_fail(GW_ERR_NONFINITE,
                       "the full gradient of epoch %llu holds a NaN or an infinity on worker %u, and "
                       "svrg cannot go on without it; a smaller --lr may help",
                       (unsigned long long)epoch, result->bad_rank);
    for (size_t i = 0; i < n_weights; i++)
        w->full[i] = (float)((double)w->full[i] + team->decay * (double)w->snapshot[i]);
    return GW_OK;
}

gw_status gw_convex_worker_gradient(struct gw_worker *w, const uint32_t *order, struct gw_step_record *record)
{
    const struct gw_team *team = w->team;
    const struct gw_network *net = &team->network;
    const struct gw_samples *train = &team->data.train;
    double scale = (double)team->options->workers / team->options->batch, unused_loss = 0;
    uint32_t unused_correct = 0;
    memset(w->sum, 0, net->n_storage * sizeof *w->sum);
    gw_convex_pass(net->convex, train, order, 0, w->count, w->params, &record->loss, &record->correct, scale, w->sum);
    record->gradients += w->count;
    if (w->snapshot) {
        gw_convex_pass(net->convex, train, order, 0, w->count, w->snapshot, &unused_loss, &unused_correct, -scale,
                       w->sum);
        record->gradients += w->count;
        for (size_t i = 0; i < net->n_storage; i++)
            w->sum[i] += (double)w->full[i];
    }
    for (size_t i = 0; i < net->n_storage; i++)
        w->grads[i] = (float)w->sum[i];
    gw_histograms_before(w, 0);
    return gw_exchange_submit(w->exchange, 0, w->grads);
}

void gw_convex_worker_evaluate(const struct gw_worker *w, struct gw_step_record *record)
{
    const struct gw_team *team = w->team;
    const struct gw_convex *problem = team->network.convex;
    const struct gw_data *data = &team->data;
    const float *shown = w->ema ? w->ema : w->params;
    uint32_t begin, count;
    double unused_loss = 0, norm2 = 0;
    gw_order_share(data->train.n, team->evaluators, gw_worker_place(w), &begin, &count);
    gw_convex_pass(problem, &data->train, NULL, begin, count, shown, &record->full_loss, &record->full_correct, 0,
                   NULL);
    for (size_t i = 0; i < team->network.n_storage; i++)
        norm2 += (double)shown[i] * shown[i];
    record->l2_term = team->decay / 2 * norm2;
    record->test_correct = record->full_correct;
    if (data->test_is_train)
        return;
    record->test_correct = 0;
    gw_order_share(data->test.n, team->evaluators, gw_worker_place(w), &begin, &count);
    gw_convex_pass(problem, &data->test, NULL, begin, count, shown, &unused_loss, &record->test_correct, 0, NULL);
}
