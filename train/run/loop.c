/* Makes a run, from its options to its summary: it loads, checks, starts the workers, adds up and saves. */
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"
#include "disk/checkpoint.h"
#include "run/evaluate.h"
#include "disk/folder.h"
#include "data/order.h"
#include "disk/run_file.h"
#include "run/team.h"
#include "run/train.h"

#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <string.h>
#include <unistd.h>

/* ---- before --------------------------------------------------------------------------------- */

#define MOST_BELOW_1 (1 - FLT_EPSILON / 2)

/* Parameters are floats, and a number that moves them becomes one. So it is compared as one. */
static gw_status check_rate(const char *option, double value, float most)
{
    const float x = (float)value;
    return x >= 0 && x <= most ? GW_OK
                               : gw_fail(GW_ERR_ARGUMENT, "%s is %g, and must be 0 or more and %s", option, value,
                                         most < 1 ? "less than 1" : "a number that a float can hold");
}

static gw_status check_options(const struct gw_train_options *o, bool leads)
{
    if (o->workers == 0 || o->workers > 1024)
        return gw_fail(GW_ERR_ARGUMENT, "--workers is %u, and must be 1 to 1024", o->workers);
    if (o->batch < o->workers)
        return gw_fail(GW_ERR_ARGUMENT,
                       "--batch is %u and --workers %u: every worker needs a sample, so the batch must be at "
                       "least as large as the number of workers",
                       o->batch, o->workers);
    if (o->steps == 0 && o->epochs == 0)
        return gw_fail(GW_ERR_ARGUMENT, "--steps or --epochs must be 1 or more");
    GW_TRY(check_rate("--lr", o->lr, FLT_MAX));
    GW_TRY(check_rate("--momentum", o->momentum, MOST_BELOW_1));
    GW_TRY(check_rate("--weight-decay", o->weight_decay, FLT_MAX));
    GW_TRY(isnan(o->l2) ? GW_OK : check_rate("--l2", o->l2, FLT_MAX / 2));
    GW_TRY(check_rate("--ema", o->ema, MOST_BELOW_1));
    if (strcmp(o->parameters, "local") != 0 && strcmp(o->parameters, "servers") != 0)
        return gw_fail(GW_ERR_ARGUMENT, "--parameters is \"%s\", and must be local or servers", o->parameters);
    if (o->resume && o->overwrite)
        return gw_fail(GW_ERR_ARGUMENT,
                       "--resume goes on with a run and --overwrite removes it: only one can be given");
    if (o->checkpoint_every && leads && !o->out && !o->resume)
        return gw_fail(GW_ERR_ARGUMENT, "--checkpoint-every needs --out DIR, the folder checkpoints go to");
    if (o->overwrite && leads && !o->out)
        return gw_fail(GW_ERR_ARGUMENT, "--overwrite needs --out DIR, the folder whose earlier run is replaced");
    return GW_OK;
}

static gw_status declare_tensors(struct gw_team *team)
{
    for (uint32_t t = 0; t < team->network.n_tensors; t++) {
        const struct gw_param *p = &team->network.tensors[t];
        team->tensors[t] = (gw_tensor){.name = p->name,
                                       .id = t,
                                       .n_elems = p->n_elems,
                                       .last_layer = p->layer + 1 == team->network.n_trained_layers};
        memcpy(team->traffic[t].name, p->name, sizeof p->name);
        team->traffic[t].elements = p->n_elems;
    }
    GW_TRY(gw_codec_check_skip(team->codec, team->tensors, team->network.n_tensors));
    return gw_plan_read(&team->network, team->options->plan, team->group_of);
}

/* Sets the team up for servers that move the parameters. Only they have the state of the optimizer. */
static gw_status choose_servers(struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    if (strcmp(o->parameters, "servers") != 0)
        return GW_OK;
    if (!team->members->servers.servers)
        return gw_fail(GW_ERR_ARGUMENT, "--parameters is servers, and no --servers are named");
    if (team->rule.rule == GW_RULE_SVRG)
        return gw_fail(GW_ERR_ARGUMENT, "the optimizer svrg needs --parameters local: its snapshot is the workers'");
    if (o->ema > 0)
        return gw_fail(GW_ERR_ARGUMENT, "--ema needs --parameters local: it averages over every step's parameters");
    if (o->checkpoint_every || o->resume)
        return gw_fail(GW_ERR_ARGUMENT,
                       "%s needs --parameters local: a checkpoint would lack what the servers' optimizer keeps",
                       o->resume ? "--resume" : "--checkpoint-every");
    gw_optimizer_text(&team->rule, team->server_optimizer);
    return GW_OK;
}

/* A codec with momentum gives averages that fit one optimizer only (codec/momentum.h). */
static gw_status check_momentum(const struct gw_team *team)
{
    const gw_codec_traits traits = gw_codec_traits_of(team->codec);
    const double coded = traits.momentum;
    const struct gw_optimizer *rule = &team->rule;
    const double own = rule->rule == GW_RULE_MOMENTUM ? (double)rule->momentum : 0;
    if (!(coded > 0))
        return GW_OK;
    if (rule->rule != GW_RULE_SGD && rule->rule != GW_RULE_MOMENTUM)
        return gw_fail(GW_ERR_ARGUMENT,
                       "%s with momentum= needs --optimizer momentum, or sgd with output=velocity; "
                       "averaged velocities mean nothing to %s",
                       traits.name, team->options->optimizer);
    if (traits.velocity && own > 0)
        return gw_fail(GW_ERR_ARGUMENT,
                       "%s has output=velocity: averages have their momentum already; give --optimizer sgd",
                       traits.name);
    if (!traits.velocity && own != (double)(float)coded)
        return gw_fail(GW_ERR_ARGUMENT,
                       "%s has momentum=%g, and the optimizer has %g; they must be the same: give "
                       "--optimizer momentum --momentum %g",
                       traits.name, coded, own, coded);
    return GW_OK;
}

/* What a lossy codec sends has a larger mean square than the gradient, and Adam divides by the root of it. */
static void note_adam(const struct gw_team *team, const gw_codec_traits *traits)
{
    bool only_rounds = strcmp(traits->name, "bf16") == 0 || strcmp(traits->name, "f16") == 0;
    if (team->leads && team->rule.rule == GW_RULE_ADAM && traits->lossy && !only_rounds)
        gw_train_note(
            team->callbacks,
            "with adam, %s can train more slowly than floats at the same rate; 1.6 times the rate made up for that "
            "with ternary:residual=on; topk:ratio=0.1,refresh=1,over=0,value=bf16 lost less (docs/accuracy.md)",
            traits->name);
}

static gw_status choose_optimizer(struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    if (strchr(o->optimizer, ':'))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "--optimizer is \"%s\"; it takes a name alone, and --lr, --momentum and --weight-decay are options",
            o->optimizer);
    GW_TRY(gw_optimizer_parse(o->optimizer, &team->rule));
    GW_TRY(gw_schedule_parse(o->schedule, &team->schedule));
    team->decay = isnan(o->l2) ? o->weight_decay : 2 * o->l2; /* the gradient of lambda * |w|^2 is 2 * lambda * w */
    team->rule.lr = (float)o->lr;
    team->rule.momentum = (float)o->momentum;
    team->rule.decay = (float)team->decay;
    GW_TRY(check_momentum(team));
    GW_TRY(choose_servers(team));
    if (team->rule.rule == GW_RULE_SVRG && !team->network.convex)
        return gw_fail(GW_ERR_ARGUMENT, "the optimizer svrg is for logreg and svm only, and --net is %s", o->net);
    const bool shares = team->rule.rule == GW_RULE_SVRG || team->network.n_statistics;
    return shares ? gw_codec_parse(team->context, "none", &team->full_codec) : GW_OK;
}

/* How many steps workers may be apart (control.h). */
static uint32_t how_far_ahead(const struct gw_team *team)
{
    if (!*team->server_optimizer || team->alone)
        return 0;
    const gw_ps_info servers = gw_ps_client_info(team->members->clients[0]);
    switch (servers.mode) {
    case GW_PS_ASYNC:
        return GW_TEAM_AHEAD;
    case GW_PS_STALE:
        return servers.staleness < GW_TEAM_AHEAD ? servers.staleness : GW_TEAM_AHEAD;
    default:
        return 0;
    }
}

static gw_status check_alone(const struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    if (team->rule.rule == GW_RULE_SVRG)
        return gw_fail(GW_ERR_ARGUMENT, "the optimizer svrg needs all workers at the beginning of every epoch; with "
                                        "--link servers they come and go");
    if (team->network.n_statistics)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "%s has batch norm, whose statistics all workers average; with --link servers they come and go, so "
            "take --link tcp or mpi, with --servers if servers are to average",
            o->net);
    if (o->resume || o->checkpoint_every)
        return gw_fail(GW_ERR_ARGUMENT,
                       "--%s is not for --link servers: a worker that comes back takes up what the others have",
                       o->resume ? "resume" : "checkpoint-every");
    return GW_OK;
}

/* Joins the members. From here on a failure must be told to them. */
static gw_status connect_members(struct gw_team *team)
{
    struct gw_members *members = team->members;
    const uint32_t n_links = team->live.method ? GW_TEAM_LINKS : team->full_codec ? GW_TEAM_PLAN : GW_TEAM_FULL;
    team->links = gw_calloc(NULL, (size_t)n_links * members->count, sizeof *team->links);
    if (!team->links)
        return GW_ERR_MEMORY;
    GW_TRY(gw_members_connect(members, team->context, n_links, team->links));
    team->n_links = n_links;
    for (uint32_t i = 0; i < members->count; i++) {
        struct gw_worker *w = &team->workers[i];
        w->team = team, w->index = i, w->rank = members->first + i, w->stop_at = UINT64_MAX;
        GW_TRY(gw_control_init(&w->control, team->context, gw_team_link(team, GW_TEAM_CONTROL, i),
                               team->options->timeout_s * 1000, how_far_ahead(team)));
    }
    return GW_OK;
}

/* True if it saves something to add up within machines first: one of several machines has several workers. */
static bool worth_grouping(const uint32_t *machine_of, uint32_t size)
{
    uint32_t most = 0;
    for (uint32_t r = 0; r < size; r++)
        most = machine_of[r] > most ? machine_of[r] : most;
    return most > 0 && most + 1 < size;
}

/* Makes other processes begin where rank 0 begins, and waits until all have taken that. */
static gw_status agree(struct gw_team *team)
{
    struct gw_start start = {.options = team->run_options,
                             .steps = team->steps,
                             .machine = gw_members_machine(),
                             .n_floats = team->network.n_storage,
                             .threads = team->threads,
                             .checkpoint_every = team->options->checkpoint_every,
                             .stop_at_nonfinite = team->options->stop_at_nonfinite};
    struct gw_control *control = &team->workers[0].control;
    if (!(start.machine_of = team->machine_of = gw_calloc(NULL, team->members->size, sizeof *team->machine_of)))
        return GW_ERR_MEMORY;
    if (team->leads) {
        GW_TRY(gw_control_send_start(control, team->members->count, &team->resume, &start));
    } else {
        GW_TRY(gw_control_await_start(control, &team->resume, &start));
        if (!team->options->threads)
            team->threads = start.threads;
        team->begin = team->resume.checkpoint.step;
        team->options->checkpoint_every = start.checkpoint_every;
        team->options->stop_at_nonfinite = start.stop_at_nonfinite;
    }
    team->grouped = !team->options->flat && worth_grouping(start.machine_of, team->members->size);
    return team->members->count < team->members->size ? gw_control_meet(control) : GW_OK;
}

/* Tells the user in what the resumed run differs from the interrupted one. */
static void tell_changes(const struct gw_team *team)
{
    const struct gw_checkpoint *c = &team->resume.checkpoint;
    uint32_t workers = team->options->workers;
    const char *moved = "";
    if (c->n_state_files > 0)
        moved = c->n_state_files == 1
                    ? "each begins with what it kept, and "
                    : "each begins with the mean of what they kept (residuals, statistics), thresholds are taken "
                      "afresh, and ";
    gw_train_note(team->callbacks, "resumed after %llu of %llu steps, from %s", (unsigned long long)c->step,
                  (unsigned long long)team->steps, team->resume.path);
    if (c->steps != team->steps)
        gw_train_note(team->callbacks, "the run was to have %llu steps, and now has %llu%s",
                      (unsigned long long)c->steps, (unsigned long long)team->steps,
                      team->schedule.kind == GW_SCHEDULE_POLY
                          ? "; its learning rate falls by the new length from here on"
                          : "");
    if (c->workers != workers)
        gw_train_note(team->callbacks,
                      "the run had %u worker%s, and now has %u: %sfrom here on its results are not those it would "
                      "have had",
                      c->workers, c->workers == 1 ? "" : "s", workers, moved);
    if (c->threads != team->threads)
        gw_train_note(team->callbacks,
                      "the run had %u computing thread%s a worker, and now has %u: from here on its results are not "
                      "those it would have had; without --threads it keeps its own",
                      c->threads, c->threads == 1 ? "" : "s", team->threads);
}

/* Takes up the run in the folder: it goes on from its checkpoint. */
static gw_status take_up(struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    const struct gw_checkpoint *c = &team->resume.checkpoint;
    unsigned long long done = c->step, steps = team->steps;
    GW_TRY(gw_resume_check(&team->resume, team->run_options));
    const bool needed[GW_ARRAYS] = {[GW_PARAMS] = true,
                                    [GW_MOMENTUM] = team->rule.rule != GW_RULE_SGD,
                                    [GW_EMA] = o->ema > 0,
                                    [GW_VARIANCE] = team->rule.rule == GW_RULE_ADAM};
    bool same = strcmp(c->network.name, team->network.name) == 0;
    for (int k = 0; k < GW_ARRAYS; k++)
        same = same && needed[k] == (c->arrays[k] != NULL);
    if (!same)
        return gw_fail(GW_ERR_SYSTEM, "%s does not hold what its options say", team->resume.path);
    if (steps < done)
        return gw_fail(GW_ERR_ARGUMENT, "the run is to have %llu steps, and %s has made %llu; --steps can be larger",
                       steps, team->resume.path, done);
    if (steps == done && gw_folder_is_complete(team->metrics.lock))
        return gw_fail(GW_ERR_SYSTEM,
                       "%s holds a finished run of %llu steps: nothing is left to do; a larger --steps goes on "
                       "from there",
                       o->resume, steps);
    team->begin = c->step;
    tell_changes(team);
    return GW_OK;
}

static gw_status reopen_files(struct gw_team *team)
{
    const char *folder = team->options->resume;
    GW_TRY(gw_folder_clear(folder, team->metrics.lock, true));
    GW_TRY(gw_metrics_resume(&team->metrics, folder, team->begin));
    if (team->metrics.n_missing)
        gw_train_note(team->callbacks, "%s lacks %llu of those steps; sums do not count them", team->metrics.lines.path,
                      (unsigned long long)team->metrics.n_missing);
    if (team->metrics.events_missing)
        gw_train_note(team->callbacks, "%s lacks the last %llu of those steps, because it was damaged or cut",
                      team->metrics.events.path, (unsigned long long)team->metrics.events_missing);
    if (team->metrics.histograms_damaged)
        gw_train_note(team->callbacks, "%s was damaged; what followed the damage is dropped",
                      team->metrics.histograms.path);
    return GW_OK;
}

/* Rank 0: opens the folder of the run, which is new or that of an interrupted run. */
static gw_status open_folder(struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    if (!o->resume)
        return gw_metrics_open(&team->metrics, o->out, o->overwrite);
    GW_TRY(gw_folder_lock(o->resume, &team->metrics.lock));
    if (o->out && !gw_folder_is(team->metrics.lock, o->out))
        return gw_fail(GW_ERR_ARGUMENT,
                       "--resume is %s and --out %s: a run goes on in its own folder, so --out can be left away",
                       o->resume, o->out);
    return gw_resume_find(o->resume, team->metrics.lock, team->callbacks, &team->resume);
}

/* Writes run.json. A resumed run may have other options than at its beginning; the file has the last ones. */
static gw_status write_run_file(const struct gw_team *team)
{
    char about[GW_DATA_TEXT];
    if (!team->out || !team->options->record)
        return GW_OK;
    gw_data_describe(&team->data, about, sizeof about);
    return gw_run_file_write(team->out, team->options->record, about);
}

/* The user's transform, or the network's if the data are pictures. */
static const char *transform_of(const char *given, const struct gw_network *network, const struct gw_data *data)
{
    return given ? given : data->train.pixels ? network->transform : NULL;
}

/* The shape of a sample when it comes into the network. */
static struct gw_shape sample_of(const struct gw_data *data)
{
    const struct gw_transform *t = &data->transform;
    return data->train.pixels ? (struct gw_shape){data->channels, t->out_height, t->out_width}
                              : (struct gw_shape){data->channels, data->height, data->width};
}

/* Gradients are written in the middle of the run. So check now that their file name and their steps are good. */
static gw_status check_gradients(const struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    const uint64_t first = o->gradients_at[0], last = o->gradients_at[o->n_gradients_at - 1];
    if (last >= team->steps)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the run has %llu steps, counted from 0, and gradients of step %llu are to be saved; "
                       "--save-at names other steps",
                       (unsigned long long)team->steps, (unsigned long long)last);
    if (first < team->resume.checkpoint.step)
        return gw_fail(GW_ERR_ARGUMENT,
                       "the run goes on with step %llu, and --save-at has step %llu, which is over; leave it out",
                       (unsigned long long)team->resume.checkpoint.step, (unsigned long long)first);
    char folder[PATH_MAX];
    const char *slash = strrchr(o->gradients, '/'), *name = slash ? slash + 1 : o->gradients;
    if (!*name || strlen(name) > NAME_MAX - 64) /* leaves room for the step, the rank and the ending */
        return gw_fail(GW_ERR_ARGUMENT, "--save-gradients is \"%s\", and must end in a name of 1 to %d bytes",
                       o->gradients, NAME_MAX - 64);
    if ((size_t)snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - o->gradients) + 1 : 1,
                         slash ? o->gradients : ".") >= sizeof folder)
        return gw_fail(GW_ERR_ARGUMENT, "the path of --save-gradients is too long");
    if (access(folder, W_OK) != 0)
        return gw_fail(GW_ERR_SYSTEM, "--save-gradients: %s cannot be written to: %s", folder, strerror(errno));
    return GW_OK;
}

static gw_status load_data(struct gw_team *team)
{
    const struct gw_train_callbacks *callbacks = team->callbacks;
    gw_data_stop_if(callbacks ? callbacks->stop : NULL, callbacks ? callbacks->user : NULL);
    const gw_status status = gw_data_load(team->options->data, team->options->test, &team->data);
    gw_data_stop_if(NULL, NULL);
    return status;
}

/* Finds all errors in the options, and a folder that cannot be written, before data are read. */
static gw_status prepare(struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    GW_TRY(check_options(o, team->leads));
    GW_TRY(gw_network_create(o->net, &team->network));
    if (o->gradients && team->network.convex)
        return gw_fail(GW_ERR_ARGUMENT, "--save-gradients is for networks of layers, and --net is %s", o->net);
    gw_context_options context = {.struct_bytes = sizeof context, .n_threads = o->codec_threads};
    GW_TRY(gw_context_create(&context, &team->context));
    GW_TRY(gw_codec_parse(team->context, o->codec, &team->codec));
    const gw_codec_traits traits = gw_codec_traits_of(team->codec);
    team->draws = traits.lossy && traits.unbiased;
    GW_TRY(choose_optimizer(team));
    note_adam(team, &traits);
    if (team->alone)
        GW_TRY(check_alone(team));
    if (team->leads)
        GW_TRY(open_folder(team));

    uint32_t of_before = team->resume.checkpoint.threads;
    team->threads = o->threads ? o->threads : of_before ? of_before : 1;

    GW_TRY(load_data(team));
    GW_TRY(gw_data_transform(&team->data, transform_of(o->transform, &team->network, &team->data)));
    const struct gw_shape sample = sample_of(&team->data);
    GW_TRY(gw_network_adapt(&team->network, sample));
    GW_TRY(gw_network_fits(&team->network, sample, team->data.classes));
    GW_TRY(declare_tensors(team));
    GW_TRY(gw_live_plan_init(team));
    if (o->batch > team->data.train.n)
        return gw_fail(GW_ERR_ARGUMENT, "--batch is %u, and the training set has %u samples", o->batch,
                       team->data.train.n);
    team->steps_per_epoch = team->data.train.n / o->batch;
    team->steps = o->steps ? o->steps : o->epochs * team->steps_per_epoch;
    if (team->steps > GW_MAX_STEPS)
        return gw_fail(GW_ERR_ARGUMENT, "a run has at most %u steps", GW_MAX_STEPS);

    if (o->gradients)
        GW_TRY(check_gradients(team));

    GW_TRY(gw_resume_options(o, team->codec, &team->data, transform_of(o->transform, &team->network, &team->data),
                             team->run_options, sizeof team->run_options));

    GW_TRY(gw_dnn_engine(&team->engine));
    if (!team->network.convex && !gw_dnn_is_quick())
        gw_train_note(team->callbacks,
                      "this machine does not say how large its caches are, and oneDNN %d.%d then counts wrong with AVX "
                      "and later: it uses SSE 4.1, which is slower (docs/pytorch.md)",
                      dnnl_version()->major, dnnl_version()->minor);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    team->evaluators = processors > 0 && processors < o->workers ? (uint32_t)processors : o->workers;
    if (team->network.convex || team->members->count < o->workers)
        /* Each worker evaluates a share, so that none is idle. If the network is convex, this needs no memory for
         * models, and the sums of losses must not depend on how many processors this machine has. */
        team->evaluators = team->alone ? 1 : o->workers;
    uint64_t window = team->steps >= team->steps_per_epoch ? team->steps_per_epoch : 100;
    team->metrics.window_begin = team->steps > window ? team->steps - window : 0;
    team->metrics.steps = team->steps, team->metrics.steps_per_epoch = team->steps_per_epoch;
    uint32_t begin, count = o->batch;
    if (team->alone) /* this worker counts only its own share of the batch */
        gw_order_share(o->batch, o->workers, team->members->first, &begin, &count);
    team->metrics.batch = count, team->metrics.workers = team->alone ? 1 : o->workers,
    team->metrics.test_samples = team->data.test.n;
    team->metrics.train_samples = team->data.train.n, team->metrics.convex = team->network.convex != NULL;

    team->workers = gw_calloc(NULL, team->members->count, sizeof *team->workers);
    if (!team->workers)
        return GW_ERR_MEMORY;
    GW_TRY(connect_members(team));
    if (o->resume && team->leads)
        GW_TRY(take_up(team));
    GW_TRY(agree(team));
    /* This comes only after all other checks. A run that cannot begin must not remove an earlier one. */
    if (team->leads)
        GW_TRY(o->resume ? reopen_files(team) : gw_metrics_begin(&team->metrics, o->out));
    return write_run_file(team);
}

/* ---- during --------------------------------------------------------------------------------- */

static gw_status run_workers(struct gw_team *team)
{
    for (uint32_t i = 0; i < team->members->count; i++) {
        struct gw_worker *w = &team->workers[i];
        w->started = gw_thread_start(&w->thread, gw_worker_main, w) == 0;
        if (w->started)
            continue;
        gw_worker_fail(w, gw_fail(GW_ERR_SYSTEM, "the thread of worker %u could not be started", w->rank), false);
        break;
    }
    for (uint32_t i = 0; i < team->members->count; i++)
        if (team->workers[i].started)
            pthread_join(team->workers[i].thread, NULL);
    return team->failure == GW_OK ? GW_OK : gw_fail(team->failure, "%s", team->failure_text);
}

/* ---- after ---------------------------------------------------------------------------------- */

/* Says why the wire choice is what it is. */
static void say_why(const struct gw_team *team, const gw_wire_report *wire, char *text, size_t capacity)
{
    if (team->options->workers == 1)
        snprintf(text, capacity, "one worker sends nothing");
    else if (!wire->has_choice)
        snprintf(text, capacity, "the codec has one way to write frames");
    else if (team->options->wire != GW_WIRE_AUTO)
        snprintf(text, capacity, "asked for");
    else if (!gw_team_has_network(team))
        snprintf(text, capacity, "workers of one process have no network, and bytes show what one would carry");
    else if (!wire->compares)
        snprintf(text, capacity, "rank 0's choice");
    else if (wire->n_comparisons == 0)
        snprintf(text, capacity, "the run was too short to compare");
    else
        snprintf(text, capacity, "steps took %.2f ms with small, %.2f ms with fast", 1e3 * wire->small_seconds,
                 1e3 * wire->fast_seconds);
}

static void summarise(const struct gw_team *team, struct gw_train_summary *s)
{
    const struct gw_train_options *o = team->options;
    *s = (struct gw_train_summary){.workers = o->workers,
                                   .batch = o->batch,
                                   .seed = o->seed,
                                   .resumed_from = team->begin,
                                   .parameters = team->network.n_params,
                                   .replicas_identical = team->identical,
                                   .n_tensors = team->network.n_tensors,
                                   .n_groups = 1};
    snprintf(s->net, sizeof s->net, "%s", o->net);
    snprintf(s->codec, sizeof s->codec, "%s", o->codec);
    snprintf(s->data, sizeof s->data, "%s", o->data);
    snprintf(s->parameter_hash, sizeof s->parameter_hash, "%016llx", (unsigned long long)team->workers[0].hash);
    gw_metrics_summary(&team->metrics, s);
    s->wire.asked = o->wire;
    say_why(team, &s->wire, s->wire_why, sizeof s->wire_why);
    s->l2 = team->decay / 2;
    snprintf(s->plan, sizeof s->plan, "%s", o->plan);
    for (uint32_t t = 0; t < s->n_tensors && !gw_codec_traits_of(team->codec).one_group; t++)
        if (team->workers[0].group_of[t] >= s->n_groups)
            s->n_groups = team->workers[0].group_of[t] + 1;
    s->n_plans = team->live.n_plans;
    s->planned_ms = team->live.predicted_ms;
    s->planning_seconds = team->live.seconds;
    const double n = team->n_accounted; /* 0: no step was counted, and the means are NaN */
    for (uint32_t t = 0; t < s->n_tensors; t++) {
        struct gw_train_tensor *x = &s->tensors[t];
        *x = team->traffic[t];
        x->nonzero_share /= n;
        x->push_bits /= n, x->push_payload_bits /= n, x->push_entropy /= n;
        x->pull_bits /= n, x->pull_payload_bits /= n, x->pull_entropy /= n;
    }
}

static gw_status save(struct gw_team *team, const struct gw_train_summary *summary)
{
    const char *out = team->out;
    if (!out)
        return GW_OK;
    struct gw_checkpoint final = {.network = team->network,
                                  .step = team->steps,
                                  .arrays = {[GW_PARAMS] = team->workers[0].params, [GW_EMA] = team->workers[0].ema}};
    GW_TRY(gw_checkpoint_write(out, GW_PARAMETER_FILE, &final));
    GW_TRY(gw_metrics_commit(&team->metrics));
    /* the last file: a folder with a summary is complete */
    return gw_file_write_json(out, GW_SUMMARY_FILE, gw_train_summary_json(summary));
}

static gw_status say_stopped(const struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    if (!team->leads)
        return gw_fail(GW_ERR_CLOSED, "stopped after %llu of %llu steps, as asked; rank 0 says what was saved",
                       (unsigned long long)team->workers[0].steps_done, (unsigned long long)team->steps);
    char saved[128];
    if (o->checkpoint_every)
        snprintf(saved, sizeof saved, "--resume goes on from there: ");
    else if (o->resume)
        snprintf(saved, sizeof saved, "nothing was saved of the steps after %llu, from which --resume goes on: ",
                 (unsigned long long)team->begin);
    else if (*team->server_optimizer)
        snprintf(saved, sizeof saved, "the servers keep the parameters, and workers that are started again go on");
    else if (team->alone)
        snprintf(saved, sizeof saved, "if it is started again, it takes up what the others have");
    else
        snprintf(saved, sizeof saved, "no checkpoint was saved; --checkpoint-every K makes a run save them");
    return gw_fail(GW_ERR_CLOSED, "stopped after %llu of %llu steps, as asked; %s%s",
                   (unsigned long long)team->metrics.next, (unsigned long long)team->steps, saved,
                   o->checkpoint_every || o->resume ? team->out : "");
}

static void tear_down(struct gw_team *team)
{
    gw_metrics_abandon(&team->metrics);
    gw_file_discard(&team->pending, false);
    gw_resume_free(&team->resume);
    for (uint32_t i = 0; team->workers && i < team->members->count; i++)
        gw_worker_free(&team->workers[i]);
    for (uint32_t i = 0; i < team->n_links * team->members->count; i++)
        gw_link_destroy(&team->links[i]);
    gw_codec_destroy(team->live.codecs[0]);
    gw_codec_destroy(team->codec);
    gw_codec_destroy(team->full_codec);
    gw_context_destroy(team->context);
    if (team->engine)
        dnnl_engine_destroy(team->engine);
    gw_data_free(&team->data);
    gw_network_free(&team->network);
    gw_free(NULL, team->machine_of);
    gw_free(NULL, team->workers);
    gw_free(NULL, team->links);
    pthread_mutex_destroy(&team->failure_lock);
    gw_free(NULL, team);
}

gw_status gw_train_run(const struct gw_train_options *options, const struct gw_train_callbacks *callbacks,
                       struct gw_train_summary *summary)
{
    struct gw_train_options own = *options;
    struct gw_members threads = {.scheme = gw_members_find("local"),
                                 .size = own.workers,
                                 .count = own.workers,
                                 .request = {.size = own.workers}};
    struct gw_team *team = gw_calloc(NULL, 1, sizeof *team);
    if (!team)
        return GW_ERR_MEMORY;
    team->options = &own, team->callbacks = callbacks;
    team->members = own.members ? own.members : &threads;
    team->alone = gw_members_is_alone(team->members->scheme);
    team->leads = team->members->first == 0 || team->alone;
    own.workers = team->members->size;
    team->out = !team->leads ? NULL : own.resume ? own.resume : own.out;
    pthread_mutex_init(&team->failure_lock, NULL);

    gw_status status = prepare(team);
    if (status == GW_OK) {
        status = run_workers(team);
    } else {
        const struct gw_kept_error why = gw_error_keep();
        for (uint32_t i = 0; i < team->members->count; i++)
            gw_team_fail(team, i, status, why.sentence); /* if the members are joined already */
        gw_error_put_back(&why);
    }
    summary->workers = 0;
    summary->stopped = status == GW_OK && team->stopped;
    if (summary->stopped)
        status = say_stopped(team);
    if (status == GW_OK && team->leads) {
        summarise(team, summary);
        status = save(team, summary);
    }
    tear_down(team);
    return status;
}

/* ---- evaluation of saved parameters --------------------------------------------------------- */

static gw_status evaluate_layers(const struct gw_network *network, float *params, const struct gw_data *data,
                                 uint32_t *correct, double *loss)
{
    dnnl_engine_t engine;
    struct gw_model *model = NULL;
    GW_TRY(gw_dnn_engine(&engine));
    gw_status status =
        gw_model_create(network, engine, GW_EVAL_BATCH, params, NULL, params + network->n_trained, &model);
    if (status == GW_OK)
        status = gw_evaluate(model, data, 0, data->test.n, correct, loss);
    gw_model_destroy(model);
    dnnl_engine_destroy(engine);
    return status;
}

static gw_status evaluate_saved(const struct gw_checkpoint *c, const struct gw_data *data,
                                struct gw_eval_result *result)
{
    float *params = c->arrays[GW_EMA] ? c->arrays[GW_EMA] : c->arrays[GW_PARAMS];
    uint32_t correct = 0;
    double loss = 0;
    if (gw_network_fits(&c->network, sample_of(data), data->classes) != GW_OK)
        return gw_fail(GW_ERR_ARGUMENT, "%s; give the data of the run by --data", gw_last_error());
    if (c->network.convex)
        gw_convex_pass(c->network.convex, &data->test, NULL, 0, data->test.n, params, &loss, &correct, 0, NULL);
    else
        GW_TRY(evaluate_layers(&c->network, params, data, &correct, &loss));
    result->samples = data->test.n;
    result->accuracy = (double)correct / data->test.n;
    result->loss = loss / data->test.n;
    return GW_OK;
}

/* `options`: those of the run, if the file is a checkpoint; else "". The caller frees *data, also after an error. */
static gw_status load_for_eval(const struct gw_eval_options *o, const struct gw_network *network, const char *options,
                               struct gw_data *data)
{
    char about[GW_DATA_TEXT];
    GW_TRY(gw_data_load(o->data, o->test, data));
    gw_data_describe(data, about, sizeof about);
    if (o->data_are && strcmp(about, o->data_are) != 0)
        return gw_fail(GW_ERR_SYSTEM,
                       "%s holds other data than the run of %s had: %s, and the run had %s; name the run's data, or "
                       "any other data, with --data",
                       o->data, o->from, about, o->data_are);
    char of_run[GW_DATA_TEXT];
    const char *given = o->transform ? o->transform : gw_resume_transform(options, of_run, sizeof of_run);
    GW_TRY(gw_data_transform(data, transform_of(given, network, data)));
    if (o->training_set) {
        struct gw_samples train = data->train;
        data->train = data->test;
        data->test = train;
    }
    return GW_OK;
}

gw_status gw_train_eval(const struct gw_eval_options *o, struct gw_eval_result *result)
{
    struct gw_checkpoint c;
    struct gw_data data = {0};
    omp_set_num_threads((int)o->threads);
    GW_TRY(gw_checkpoint_read(o->from, &c));
    snprintf(result->net, sizeof result->net, "%s", c.network.name);
    result->step = c.step;
    gw_status status = o->net && !gw_network_is(&c.network, o->net)
                           ? gw_fail(GW_ERR_ARGUMENT, "--net is %s, and %s holds the parameters of %s", o->net, o->from,
                                     c.network.name)
                           : load_for_eval(o, &c.network, c.options, &data);
    if (status == GW_OK)
        status = evaluate_saved(&c, &data, result);
    gw_data_free(&data);
    gw_checkpoint_free(&c);
    return status;
}
