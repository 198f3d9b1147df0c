/* A worker's thread: it makes the replica of the parameters, and then the steps, with its share of every batch. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "disk/checkpoint.h"
#include "run/elastic.h"
#include "run/evaluate.h"
#include "run/histograms.h"
#include "disk/folder.h"
#include "data/order.h"
#include "run/team.h"

#include <math.h>
#include <omp.h>
#include <string.h>
#include <xxhash.h>

static bool leads(const struct gw_worker *w)
{
    return gw_worker_place(w) == 0;
}

static bool evaluates(const struct gw_worker *w)
{
    return gw_worker_place(w) < w->team->evaluators;
}

/* Loads a worker's own state of a resumed run: first the codec's state, then its statistics. If the earlier run had
 * another number of workers, the codec's states are merged. The statistics then stay as they are: the average. */
static gw_status load_state(struct gw_worker *w)
{
    const struct gw_resume *r = &w->team->resume;
    uint32_t n = r->checkpoint.n_state_files;
    bool same = n == w->team->options->workers;
    const size_t own_bytes = gw_team_n_statistics(w->team) * sizeof(float);
    if (!r->states) {
        size_t kept_bytes = 0;
        if (w->team->begin > 0)
            GW_TRY(gw_exchange_save(w->exchange, NULL, 0, &kept_bytes));
        return w->team->begin == 0 || kept_bytes + own_bytes == 0
                   ? GW_OK
                   : gw_fail(GW_ERR_SYSTEM, "the checkpoint after %llu steps has no state files, and %s keeps states",
                             (unsigned long long)w->team->begin, kept_bytes ? w->team->options->codec : "batch norm");
    }
    const size_t all_bytes = r->states[same ? w->rank : 0].state_bytes;
    if (all_bytes < own_bytes)
        return gw_fail(GW_ERR_SYSTEM, "the state files of %s are too short for batch norm's statistics", r->path);
    const size_t codec_bytes = all_bytes - own_bytes;
    if (same && own_bytes)
        memcpy(w->statistics, (const char *)r->states[w->rank].state + codec_bytes, own_bytes);
    const void **states = gw_alloc(NULL, n, sizeof *states);
    if (!states)
        return GW_ERR_MEMORY;
    for (uint32_t i = 0; i < n; i++)
        states[i] = r->states[i].state;
    gw_status status = gw_exchange_load(w->exchange, same ? states + w->rank : states, same ? 1 : n, codec_bytes);
    gw_free(NULL, states);
    if (status == GW_ERR_ARGUMENT) /* the file is to blame, and not what the user asked for */
        return gw_fail(GW_ERR_SYSTEM, "the state files of %s: %s", r->path, gw_last_error());
    return status;
}

/* Gets the servers' parameters as they are after the last push of every worker. */
static gw_status fetch_last(struct gw_worker *w)
{
    if (!*w->team->server_optimizer || w->fetched)
        return GW_OK;
    if (w->team->alone && w->steps_done == w->team->steps)
        GW_TRY(gw_elastic_meet(w));
    GW_TRY(gw_control_meet(&w->control));
    w->fetched = true;
    return gw_worker_parameters(w, gw_exchange_pull_parameters);
}

/* Gives all workers the average of their statistics, behind their parameters, for evaluation, checkpoints and the end.
 * Each trains on with its own, so it does not matter when this is done. An average that is not finite is dropped. */
static gw_status share_statistics(struct gw_worker *w, uint64_t t, gw_step_result *result)
{
    const struct gw_network *net = &w->team->network;
    const size_t n = gw_team_n_statistics(w->team);
    if (n == 0)
        return GW_OK;
    float *average = w->grads + net->n_trained; /* gradients have no statistics, so their room is free */
    memcpy(average, w->statistics, n * sizeof(float));
    GW_TRY(gw_exchange_begin(w->full_exchange, (uint32_t)t));
    GW_TRY(gw_exchange_submit(w->full_exchange, 0, average));
    GW_TRY(gw_worker_wait(w->full_exchange, result));
    if (!result->committed)
        return GW_OK;
    memcpy(w->params + net->n_trained, average, n * sizeof(float));
    if (w->ema)
        memcpy(w->ema + net->n_trained, average, n * sizeof(float));
    return GW_OK;
}

static gw_status set_up(struct gw_worker *w)
{
    struct gw_team *team = w->team;
    const struct gw_train_options *o = team->options;
    const struct gw_network *net = &team->network;
    gw_order_share(o->batch, o->workers, w->rank, &w->begin, &w->count);
    memcpy(w->group_of, team->group_of, sizeof w->group_of);
    w->params = gw_calloc(NULL, net->n_storage, sizeof(float));
    w->grads = gw_calloc(NULL, net->n_storage, sizeof(float));
    w->order = gw_alloc(NULL, team->data.train.n, sizeof(uint32_t));
    w->labels = gw_alloc(NULL, w->count, 1);
    if (!w->params || !w->grads || !w->order || !w->labels)
        return GW_ERR_MEMORY;
    if (net->convex)
        GW_TRY(gw_convex_worker_set_up(w));
    for (uint32_t m = 0; !*team->server_optimizer && m < gw_optimizer_moments(&team->rule); m++)
        if (!(w->moments[m] = gw_calloc(NULL, net->n_storage, sizeof(float))))
            return GW_ERR_MEMORY;
    float *shown = w->params; /* evaluation uses these parameters */
    if (evaluates(w) && o->ema > 0 && !(shown = w->ema = gw_alloc(NULL, net->n_storage, sizeof(float))))
        return GW_ERR_MEMORY;
    if (net->n_statistics && !(w->statistics = gw_calloc(NULL, gw_team_n_statistics(w->team), sizeof(float))))
        return GW_ERR_MEMORY;
    gw_worker_begin(w);
    if (!net->convex)
        GW_TRY(gw_model_create(net, team->engine, w->count, w->params, w->grads, w->statistics, &w->model));
    if (!net->convex && evaluates(w))
        GW_TRY(gw_model_create(net, team->engine, GW_EVAL_BATCH, shown, NULL, shown + net->n_trained, &w->test_model));
    const gw_tensor statistics = {.name = "statistics", .n_elems = gw_team_n_statistics(team)};
    if (net->n_statistics)
        GW_TRY(gw_worker_full_exchange(w, &statistics, 1));

    if (team->alone) /* such a worker joins the others first */
        return GW_OK;
    GW_TRY(gw_worker_exchange(w, team->members->clients ? team->members->clients[w->index] : NULL));
    if (*team->server_optimizer)
        GW_TRY(gw_worker_parameters(w, gw_exchange_init_parameters));
    return load_state(w);
}

/* Backward has finished a tensor's gradient. This hands it over. */
static void submit(void *user, uint32_t tensor)
{
    struct gw_worker *w = user;
    gw_live_plan_note(w, &tensor);
    gw_histograms_before(w, tensor);
    if (w->submit_status == GW_OK)
        w->submit_status = gw_exchange_submit(w->exchange, tensor, w->grads + w->team->network.tensors[tensor].offset);
}

static bool saves_gradient(const struct gw_worker *w, uint64_t t)
{
    const struct gw_train_options *o = w->team->options;
    bool saves = false;
    for (uint32_t i = 0; o->gradients && i < o->n_gradients_at; i++)
        saves |= o->gradients_at[i] == t;
    return saves;
}

/* Writes the gradient of this step to NAME.rank-R.gwp (train.h), in the form of a parameter file. Then it submits all
 * tensors, the last one first. */
static gw_status save_gradient(struct gw_worker *w, uint64_t t)
{
    const struct gw_network *net = &w->team->network;
    const char *path = w->team->options->gradients, *slash = strrchr(path, '/');
    struct gw_checkpoint gradient = {.network = *net, .step = t, .arrays = {[GW_PARAMS] = w->grads}};
    char folder[4096], name[512], step[32] = "";
    if (w->team->options->n_gradients_at > 1)
        snprintf(step, sizeof step, ".step-%llu", (unsigned long long)t);
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    snprintf(name, sizeof name, "%s%s.rank-%u.gwp", slash ? slash + 1 : path, step, w->rank);
    GW_TRY(gw_checkpoint_write(folder, name, &gradient));
    for (uint32_t i = net->n_tensors; i-- > 0;)
        submit(w, i);
    return w->submit_status;
}

static void hold_back(void *user, uint32_t tensor)
{
    (void)user, (void)tensor;
}

static gw_status compute(struct gw_worker *w, uint64_t t, struct gw_step_record *record)
{
    struct gw_team *team = w->team;
    const struct gw_train_options *o = team->options;
    bool saves = saves_gradient(w, t);
    const struct gw_pass pass = {
        .seed = o->seed, .step = t, .first = w->begin, .ready = saves ? hold_back : submit, .user = w};
    uint64_t in_epoch = t % team->steps_per_epoch;
    if (in_epoch == 0 || t == team->begin)
        gw_order_shuffle(o->seed, t / team->steps_per_epoch, team->data.train.n, w->order);
    const uint32_t *share = w->order + in_epoch * o->batch + w->begin;
    if (team->network.convex)
        return gw_convex_worker_gradient(w, share, record);
    gw_batch_load(&team->data, &pass, share, 0, w->count, gw_model_input(w->model), w->labels);
    GW_TRY(gw_model_forward(w->model, &pass));
    /* The exchange gives the mean over N workers. That must be the gradient of the whole batch of B samples. So a
     * worker with b_i samples scales its sum of gradients by N/B, that is, its mean gradient by N*b_i/B. */
    record->gradients += w->count;
    gw_model_loss(w->model, w->labels, w->count, (float)o->workers / (float)o->batch, &record->loss, &record->correct);
    w->submit_status = GW_OK;
    gw_live_plan_note(w, NULL);
    GW_TRY(gw_model_backward(w->model, &pass));
    return saves ? save_gradient(w, t) : w->submit_status;
}

static void update(struct gw_worker *w, uint64_t t, double lr)
{
    const struct gw_team *team = w->team;
    const struct gw_train_options *o = team->options;
    size_t n = team->network.n_trained;
    if (w->model)
        gw_model_keep(w->model);
    if (*team->server_optimizer)
        memcpy(w->params, w->grads, n * sizeof *w->params); /* the servers' parameters */
    else if (team->rule.rule == GW_RULE_SVRG)
        gw_optimizer_svrg(n, w->params, w->snapshot, w->grads, (float)lr, (float)team->decay);
    else
        gw_optimizer_update(&team->rule, n, w->params, w->moments, w->grads, (float)lr, t + 1);
    if (w->ema)
        gw_optimizer_ema(n, w->ema, w->params, o->ema, t);
}

static gw_status evaluate(struct gw_worker *w, struct gw_step_record *record)
{
    const struct gw_team *team = w->team;
    uint32_t begin, count;
    double loss = 0;
    if (team->network.convex) {
        gw_convex_worker_evaluate(w, record);
        return GW_OK;
    }
    gw_order_share(team->data.test.n, team->evaluators, gw_worker_place(w), &begin, &count);
    return gw_evaluate(w->test_model, &team->data, begin, begin + count, &record->test_correct, &loss);
}

/* Rank 0, after a step that was counted: adds up what each tensor's frames took, and says what the codec keeps. */
static gw_status account(struct gw_worker *w, struct gw_codec_report *report)
{
    struct gw_team *team = w->team;
    double squares = 0, push_squares = 0, residual_squares = 0, oldest = 0;
    for (uint32_t i = 0; i < team->network.n_tensors; i++) {
        struct gw_train_tensor *sum = &team->traffic[i];
        gw_tensor_traffic x;
        gw_encoder_condition kept;
        GW_TRY(gw_exchange_stats(w->exchange, &(gw_stats){.tensor = i, .traffic = &x, .condition = &kept}));
        double n = (double)team->network.tensors[i].n_elems;
        sum->nonzero_share += (double)x.nonzeros / n;
        sum->push_bits += 8 * (double)x.push_frame_bytes / n;
        sum->push_payload_bits += 8 * (double)x.push_payload_bytes / n;
        sum->push_entropy += x.push_entropy_bits;
        sum->pull_bits += 8 * (double)x.pull_frame_bytes / n;
        sum->pull_payload_bits += 8 * (double)x.pull_payload_bytes / n;
        sum->pull_entropy += x.pull_entropy_bits;
        residual_squares += kept.residual_norm * kept.residual_norm;
        oldest = fmax(oldest, (double)kept.threshold_age);
        squares += x.gradient_squares, push_squares += x.push_squares;
    }
    size_t state_bytes;
    GW_TRY(gw_exchange_save(w->exchange, NULL, 0, &state_bytes));
    const bool keeps = state_bytes > 0;
    *report = (struct gw_codec_report){.residual_norm = keeps ? sqrt(residual_squares) : -1,
                                       .threshold_age = keeps ? oldest : -1,
                                       .variance_factor = team->draws && squares > 0 ? push_squares / squares : -1,
                                       .gradient_norm = sqrt(squares)};
    team->n_accounted++;
    return GW_OK;
}

/* Sends the codec's state, and behind it the worker's statistics (load_state). */
static gw_status send_state(struct gw_worker *w, uint64_t steps_done, size_t state_bytes)
{
    const size_t own_bytes = gw_team_n_statistics(w->team) * sizeof(float);
    void *state = gw_control_state_new(&w->control, state_bytes);
    if (!state)
        return GW_ERR_MEMORY;
    size_t saved_bytes;
    gw_status status = gw_exchange_save(w->exchange, state, state_bytes - own_bytes, &saved_bytes);
    if (own_bytes)
        memcpy((char *)state + state_bytes - own_bytes, w->statistics, own_bytes);
    if (status < 0) {
        gw_control_state_drop(state);
        return status;
    }
    return gw_control_send_state(&w->control, steps_done, state, state_bytes);
}

/* Every worker sends rank 0 the state that only it has. Rank 0 takes all of them before its next step. Else a worker
 * whose state is larger than what the system keeps of a connection could not begin that step, for which rank 0 would
 * wait. It writes the part that all workers have in common, and their states when it commits the checkpoint. */
static gw_status save_checkpoint(struct gw_worker *w, uint64_t steps_done)
{
    struct gw_team *team = w->team;
    size_t state_bytes;
    GW_TRY(gw_exchange_save(w->exchange, NULL, 0, &state_bytes));
    state_bytes += gw_team_n_statistics(team) * sizeof(float);
    uint32_t workers = team->options->workers;
    if (state_bytes)
        GW_TRY(send_state(w, steps_done, state_bytes));
    if (w->rank > 0)
        return GW_OK;
    for (uint32_t r = 0; state_bytes && r < workers; r++) {
        const void *state;
        size_t n_bytes;
        GW_TRY(gw_control_await_state(&w->control, steps_done, r, &state, &n_bytes));
    }
    struct gw_checkpoint c = {.network = team->network,
                              .step = steps_done,
                              .steps = team->steps,
                              .workers = workers,
                              .n_state_files = state_bytes ? workers : 0,
                              .threads = team->threads};
    gw_worker_arrays(w, c.arrays);
    memcpy(c.options, team->run_options, sizeof c.options);
    char name[64];
    snprintf(name, sizeof name, GW_CHECKPOINT_FILE, (unsigned long long)steps_done);
    GW_TRY(gw_checkpoint_begin(team->out, name, &c, &team->pending));
    team->pending_states =
        (struct gw_rank_state){.identity = gw_checkpoint_identity(&c), .step = steps_done, .workers = c.n_state_files};
    return GW_OK;
}

/* Gives the pending checkpoint its name, when all state files and the lines of metrics before it are on disk. */
static gw_status commit_checkpoint(struct gw_worker *w)
{
    struct gw_team *team = w->team;
    if (!team->pending.stream)
        return GW_OK;
    struct gw_rank_state s = team->pending_states;
    for (; s.rank < s.workers; s.rank++) {
        GW_TRY(gw_control_await_state(&w->control, s.step, s.rank, &s.state, &s.state_bytes));
        GW_TRY(gw_rank_state_write(team->out, &s));
        gw_control_free_state(&w->control, s.step, s.rank);
    }
    GW_TRY(gw_metrics_sync(&team->metrics));
    return gw_file_commit(&team->pending);
}

/* Rank 0: adds up step t, shows progress, and commits the checkpoint of that step, if there is one. */
static gw_status collect(struct gw_worker *w, uint64_t t)
{
    struct gw_team *team = w->team;
    const struct gw_step_record *records;
    GW_TRY(gw_control_collect(&w->control, t, &records));
    GW_TRY(gw_metrics_step(&team->metrics, t, records));
    if (team->callbacks && team->callbacks->progress) {
        struct gw_train_progress progress;
        gw_metrics_progress(&team->metrics, &progress);
        team->callbacks->progress(&progress, team->callbacks->user);
    }
    return commit_checkpoint(w);
}

/* Rank 0: adds up the steps before `step` that all workers have done. It waits only if a worker is too far behind. */
static gw_status collect_before(struct gw_worker *w, uint64_t step)
{
    for (; w->n_collected < step; w->n_collected++) {
        const bool may_wait = step - w->n_collected > w->control.ahead;
        if (!may_wait && !gw_control_has(&w->control, w->n_collected))
            return GW_OK;
        GW_TRY(collect(w, w->n_collected));
    }
    return GW_OK;
}

/* Before a step, rank 0 tells its rate, and whether it is the last one. */
static gw_status lead(struct gw_worker *w, uint64_t t)
{
    struct gw_team *team = w->team;
    if (!team->stopped && (w->control.stop_wished || gw_team_may_stop(team))) {
        team->stopped = true;
        w->stop_at = t + 1;
    }
    return gw_control_lead(&w->control, t, w->lr, w->stop_at);
}

/* Adds what the full gradient took before a step to what the step itself took. */
static void add_result(gw_step_result *sum, const gw_step_result *more)
{
    sum->bytes_up += more->bytes_up;
    sum->bytes_down += more->bytes_down;
    sum->messages += more->messages;
    sum->dense_bytes += more->dense_bytes;
    sum->encode_seconds += more->encode_seconds;
    sum->wait_seconds += more->wait_seconds;
}

/* True for some steps that are spread over the run, with the last one. They are few enough that counting does not take
 * much of a short run's time. */
static bool is_accounted(uint64_t t, uint64_t steps)
{
    uint64_t n = steps / 10 < 1 ? 1 : steps / 10 > GW_TEAM_ACCOUNTED ? GW_TEAM_ACCOUNTED : steps / 10;
    return t * n / steps != (t + 1) * n / steps;
}

static gw_status step(struct gw_worker *w, uint64_t t)
{
    struct gw_team *team = w->team;
    const struct gw_train_options *o = team->options;
    struct gw_step_record *record = &(struct gw_step_record){.report = GW_CODEC_REPORT_NONE};
    record->accounted = leads(w) && is_accounted(t, team->steps);
    gw_step_result full = {0};
    double begin = gw_clock_seconds();

    w->lr =
        gw_schedule_rate(&team->schedule, o->lr, t, team->steps, team->steps_per_epoch); /* until rank 0 tells its */
    if (leads(w))
        GW_TRY(lead(w, t));
    if (*team->server_optimizer)
        GW_TRY(gw_exchange_set(w->exchange, GW_EXCHANGE_RATE, w->lr));
    if (team->rule.rule == GW_RULE_SVRG && (t % team->steps_per_epoch == 0 || t == team->begin))
        GW_TRY(gw_convex_worker_snapshot(w, t, record, &full));
    if (record->accounted)
        GW_TRY(gw_exchange_set(w->exchange, GW_EXCHANGE_ACCOUNT, true));
    GW_TRY(gw_exchange_begin(w->exchange, (uint32_t)t));
    gw_live_plan_begin(w, t);
    gw_histograms_begin(w, t);
    GW_TRY(compute(w, t, record));
    record->compute_seconds = gw_clock_seconds() - begin - full.wait_seconds;
    GW_TRY(gw_worker_wait(w->exchange, &record->result));
    gw_histograms_after(w, record->result.committed);
    if (leads(w)) {
        GW_TRY(gw_exchange_stats(w->exchange, &(gw_stats){.wire = &record->wire}));
        record->wire_compared = record->wire.n_comparisons > w->n_comparisons;
        w->n_comparisons = record->wire.n_comparisons;
    }
    add_result(&record->result, &full);
    if (!leads(w))
        GW_TRY(gw_control_follow(&w->control, t, &w->lr, &w->stop_at));
    if (w->index == 0 && t == team->begin)
        gw_resume_free(&team->resume); /* all workers have taken their parts */
    record->lr = w->lr;
    if (record->result.committed)
        update(w, t, record->lr);
    else if (o->stop_at_nonfinite)
        return gw_fail(GW_ERR_NONFINITE,
                       "the gradient of %s on worker %u holds a NaN or an infinity; a smaller --lr may help, "
                       "and --nonfinite skip drops such steps",
                       team->network.tensors[record->result.bad_tensor].name, record->result.bad_rank);
    w->steps_done = t + 1;
    record->step_seconds = gw_clock_seconds() - begin;

    if (record->accounted) {
        if (record->result.committed)
            GW_TRY(account(w, &record->report));
        else
            record->accounted = false; /* a step that was dropped has no frames to count */
        GW_TRY(gw_exchange_set(w->exchange, GW_EXCHANGE_ACCOUNT, false));
    }
    const bool last = t + 1 == team->steps || t + 1 == w->stop_at;
    const bool saves = o->checkpoint_every && (last || (t + 1) % o->checkpoint_every == 0);
    const bool shows = (t + 1) % team->steps_per_epoch == 0 || t + 1 == team->steps;
    if (last || saves || shows) {
        gw_step_result shared = {0};
        GW_TRY(share_statistics(w, t, &shared));
        add_result(&record->result, &shared);
    }
    if (shows) {
        record->evaluated = true;
        if (t + 1 == team->steps)
            GW_TRY(fetch_last(w));
        if (evaluates(w))
            GW_TRY(evaluate(w, record));
    }
    bool wish = !leads(w) && w->index == 0 && gw_team_may_stop(team);
    GW_TRY(gw_control_report(&w->control, t, record, wish));
    if (team->alone)
        GW_TRY(collect(w, t));
    else if (leads(w))
        GW_TRY(collect_before(w, t));
    if (saves)
        GW_TRY(save_checkpoint(w, t + 1));
    return last ? GW_OK : gw_live_plan_after(w, t);
}

/* XXH3 of every tensor in declared order, and of the statistics after them. Each hash is seeded with the one before. */
static uint64_t hash_parameters(const struct gw_worker *w)
{
    const struct gw_network *net = &w->team->network;
    uint64_t hash = 0;
    for (uint32_t t = 0; t < gw_array_tensors(net, GW_PARAMS); t++) {
        const struct gw_param *p = gw_array_tensor(net, t);
        hash = XXH3_64bits_withSeed(w->params + p->offset, p->n_elems * sizeof(float), hash);
    }
    return hash;
}

/* After the last step. Rank 0 adds up that step, too. It learns whether all replicas are equal to its own. */
static gw_status finish(struct gw_worker *w)
{
    struct gw_team *team = w->team;
    bool identical;
    GW_TRY(fetch_last(w));
    w->hash = hash_parameters(w);
    for (; leads(w) && !team->alone && w->n_collected < w->steps_done; w->n_collected++)
        GW_TRY(collect(w, w->n_collected));
    if (team->alone && w->steps_done == team->steps)
        GW_TRY(gw_elastic_compare(w, &identical));
    else
        GW_TRY(gw_control_end(&w->control, w->hash, &identical));
    if (leads(w))
        team->identical = identical;
    if (w->index == 0)
        team->stopped = w->stop_at <= team->steps;
    return GW_OK;
}

void gw_worker_fail(struct gw_worker *w, gw_status status, bool training)
{
    struct gw_team *team = w->team;
    char text[sizeof team->failure_text], when[64] = "";
    if (training && status == GW_ERR_TIMEOUT && !team->alone) /* a worker that waits for servers hears of no failure */
        status = gw_control_cause(&w->control, status);
    if (training && status != GW_ERR_PEER) /* a peer's sentence has its own number of steps */
        snprintf(when, sizeof when, "after %llu of %llu steps: ", (unsigned long long)w->steps_done,
                 (unsigned long long)team->steps);
    snprintf(text, sizeof text, "%s%s", when, *gw_last_error() ? gw_last_error() : gw_status_text(status));
    if (status == GW_ERR_ARGUMENT && w->steps_done > team->begin)
        status = GW_ERR_SYSTEM; /* a run that has made steps was not started wrongly */
    pthread_mutex_lock(&team->failure_lock);
    bool had_cause = team->failure != GW_OK && team->failure != GW_ERR_PEER && team->failure != GW_ERR_CLOSED;
    if (!had_cause && (team->failure == GW_OK || status != GW_ERR_PEER)) {
        team->failure = status;
        memcpy(team->failure_text, text, sizeof text);
    }
    pthread_mutex_unlock(&team->failure_lock);
    /* Also if another worker is the cause: a worker may wait at a link over which it has not heard of that. A step that
     * is not finite all workers find by themselves, and stop; with a server's optimizer they may not. */
    if (status != GW_ERR_NONFINITE || *team->server_optimizer)
        gw_team_fail(team, w->index, status, text);
}

/* Makes the worker's steps, from step `from` on. */
static gw_status train(struct gw_worker *w, uint64_t from)
{
    gw_status status = GW_OK;
    w->steps_done = w->n_collected = from;
    for (uint64_t t = from; status == GW_OK && t < w->team->steps && t < w->stop_at; t++) {
        if (w->team->alone)
            status = gw_elastic_admit(w, t);
        if (status == GW_OK)
            status = step(w, t);
    }
    return status == GW_OK ? finish(w) : status;
}

static gw_status join_and_train(struct gw_worker *w)
{
    gw_status status;
    uint64_t from = 0;
    w->elastic.last_step = gw_clock_seconds();
    do {
        status = gw_elastic_join(w, &from);
        if (status == GW_OK)
            status = train(w, from);
        const bool again = status < 0 && gw_elastic_goes_on(w, status);
        gw_elastic_leave(w);
        if (!again)
            return status;
    } while (true);
}

void *gw_worker_main(void *user)
{
    struct gw_worker *w = user;
    struct gw_team *team = w->team;
    omp_set_num_threads((int)team->threads); /* libgomp keeps this number separately for each thread */
    gw_status status = set_up(w);
    bool training = status == GW_OK;
    w->steps_done = team->begin;
    if (status == GW_OK)
        status = team->alone ? join_and_train(w) : train(w, team->begin);
    if (status != GW_OK)
        gw_worker_fail(w, status, training);

    /* oneDNN's scratch memory belongs to the thread that made a primitive, so free the models in this thread. */
    gw_model_destroy(w->model);
    gw_model_destroy(w->test_model);
    return NULL;
}

void gw_worker_free(struct gw_worker *w)
{
    gw_elastic_leave(w);
    gw_exchange_destroy(w->full_exchange);
    gw_control_fini(&w->control);
    for (uint32_t m = 0; m < GW_OPTIMIZER_MOMENTS; m++)
        gw_free(NULL, w->moments[m]);
    void *const arrays[] = {w->params,   w->grads, w->ema,   w->statistics, w->sum,
                            w->snapshot, w->full,  w->order, w->labels,     w->histograms};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        gw_free(NULL, arrays[i]);
}
