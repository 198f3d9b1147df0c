/* What the workers of a run share, and one worker. Only files of this folder include it.
 *
 * A team is the workers of this process: ranks first..first+count-1 of all. Workers meet in the exchange. All else they
 * tell each other over the control link (control.h). Rank 0 says the rate of each step, and when to stop, and adds up
 * the records of step t when step t+1 is done. */
#ifndef GW_TRAIN_TEAM_H
#define GW_TRAIN_TEAM_H

#include "run/control.h"
#include "data/data.h"
#include "run/live_plan.h"
#include "members/members.h"
#include "disk/metrics.h"
#include "net/model.h"
#include "optimizer/optimizer.h"
#include "disk/resume.h"
#include "run/schedule.h"

#include <pthread.h>

/* The links of a worker. */
enum {
    GW_TEAM_EXCHANGE,
    GW_TEAM_CONTROL,
    GW_TEAM_FULL, /* for svrg's full gradients, and batch norm's statistics */
    GW_TEAM_PLAN, /* for the meetings of a live plan */
    GW_TEAM_LINKS
};

/* With servers that do not wait for all workers, workers are never further than so many steps from rank 0. */
enum { GW_TEAM_AHEAD = 64 };

/* The most steps of a run in which frames are counted symbol by symbol. */
enum { GW_TEAM_ACCOUNTED = 100 };

struct gw_team {
    /* a copy of gw_train_run's options. If rank 0 is in another process, its decisions are copied into them */
    struct gw_train_options *options;
    const struct gw_train_callbacks *callbacks;
    struct gw_network network;
    struct gw_data data;
    struct gw_schedule schedule;
    struct gw_optimizer rule; /* the optimizer, with this run's numbers */
    /* the rule by which servers move the parameters; "": every worker moves its own */
    char server_optimizer[GW_OPTIMIZER_TEXT];
    uint32_t threads; /* computing threads of each worker */
    double decay;     /* weight decay; for an objective's lambda * |w|^2 it is 2 * lambda */
    dnnl_engine_t engine;
    gw_context *context;
    gw_codec *codec;
    bool draws;           /* the codec draws without bias, so its frames have a variance */
    gw_codec *full_codec; /* the codec "none", for the exchange over GW_TEAM_FULL; NULL: there is no such exchange */
    gw_tensor tensors[GW_MAX_TENSORS];
    uint32_t group_of[GW_MAX_TENSORS]; /* the groups at the beginning */
    struct gw_live_plan live;
    struct gw_members *members;
    bool alone;                /* its one worker meets the others only at parameter servers (elastic.h) */
    bool leads;                /* the worker that adds up is here: rank 0, or the one that is alone */
    uint32_t *machine_of;      /* [members->size] */
    bool grouped;              /* workers of one machine send to other machines together */
    gw_link *links;            /* [n_links][members->count] */
    uint32_t n_links;          /* how many kinds of links there are; 0: not connected yet */
    struct gw_worker *workers; /* [members->count] */
    /* workers 0..evaluators-1 share the test set: as many as processors, or all if the network is convex */
    uint32_t evaluators;
    uint64_t begin, steps, steps_per_epoch; /* this run makes steps [begin, steps) */
    const char *out;                        /* the run's folder; NULL: none */
    char run_options[sizeof((struct gw_checkpoint *)0)->options];
    struct gw_resume resume;             /* used until this process's workers have taken their parts from it */
    struct gw_file pending;              /* rank 0's: a checkpoint that has no name yet */
    struct gw_rank_state pending_states; /* what the state files of that checkpoint have in common */

    bool stopped;                                   /* the user has ended the run */
    bool identical;                                 /* rank 0's: all replicas are the same at the end */
    struct gw_metrics metrics;                      /* rank 0's */
    struct gw_train_tensor traffic[GW_MAX_TENSORS]; /* rank 0's: sums over the steps that were counted */
    uint32_t n_accounted;

    pthread_mutex_t failure_lock;
    gw_status failure; /* the first error that is this process's own, and not that of another worker */
    char failure_text[1024];
};

/* What a worker has that is alone. */
struct gw_elastic {
    gw_ps_client_options options;
    gw_ps_client *client; /* the client of the exchange; NULL: not connected */
    gw_ps_client *side;   /* a second client, for all else; NULL: not needed yet */
    bool unkept_noted;    /* it was noted that a server cannot write what it acknowledges */
    double last_step;     /* when the last step was done, or training began */
    uint64_t reached;     /* the most steps that this worker has reached; only a step beyond them is progress */
    uint32_t n_joins;
};

struct gw_worker {
    struct gw_team *team;
    uint32_t index, rank; /* number in the team, and rank among all workers */
    pthread_t thread;
    bool started;
    struct gw_control control;
    gw_exchange *exchange;
    struct gw_elastic elastic;
    float *params, *grads, *ema;          /* flat arrays; ema NULL if it is not used */
    float *moments[GW_OPTIMIZER_MOMENTS]; /* of the optimizer; NULL if it has none */
    uint32_t group_of[GW_MAX_TENSORS];    /* the groups as they are now */
    uint32_t *order;                      /* the order of samples in this epoch */
    uint32_t begin, count;                /* its share of a batch */
    uint8_t *labels;                      /* the labels of its share */
    struct gw_model *model, *test_model;
    double *sum;            /* convex networks: a gradient before it is rounded */
    float *snapshot, *full; /* svrg: the snapshot w~, and the full gradient there */
    /* batch norm's statistics of this worker alone. Those of all workers lie behind params */
    float *statistics;
    gw_exchange *full_exchange;       /* over GW_TEAM_FULL */
    struct gw_histograms *histograms; /* histograms of this step; NULL: it has none */
    gw_status submit_status;
    double lr;        /* the rate of this step, from rank 0 */
    uint64_t stop_at; /* no step from this one on; from rank 0 */
    uint64_t steps_done;
    /* rank 0: how many steps' records are added up, with those of earlier runs */
    uint64_t n_collected;
    uint32_t n_comparisons; /* comparisons of the wire choice so far */
    bool fetched;           /* the servers' last parameters have been fetched into params */
    uint64_t hash;          /* of the parameters at the end */
};

/* The worker's number among those whose records are added up and that share the samples of an evaluation. It is not its
 * rank if members never meet (--link servers): then each counts for itself. */
static inline uint32_t gw_worker_place(const struct gw_worker *w)
{
    return w->control.link.rank;
}

static inline gw_link gw_team_link(const struct gw_team *team, uint32_t kind, uint32_t index)
{
    return team->links[kind * team->members->count + index];
}

/* True if there is a network between the workers. Threads of one process have none. For them GW_WIRE_AUTO is small, so
 * that bytes are those that a network would carry. */
static inline bool gw_team_has_network(const struct gw_team *team)
{
    return team->members->scheme->ranks != GW_LINK_RANKS_HERE || team->members->servers.servers;
}

static inline gw_wire gw_team_wire(const struct gw_team *team)
{
    return team->options->wire == GW_WIRE_AUTO && !gw_team_has_network(team) ? GW_WIRE_SMALL : team->options->wire;
}

static inline bool gw_team_may_stop(const struct gw_team *team)
{
    return team->callbacks && team->callbacks->stop && team->callbacks->stop(team->callbacks->user);
}

/* How many numbers batch norm's statistics are. They lie behind the trained parameters. */
static inline size_t gw_team_n_statistics(const struct gw_team *team)
{
    return (size_t)(team->network.n_storage - team->network.n_trained);
}

/* A worker's thread (training.c). */
void *gw_worker_main(void *worker);
void gw_worker_free(struct gw_worker *worker);

/* Keeps the sentence of the first real error (gw_last_error), and tells the others (gw_team_fail). training: the
 * sentence also says after how many steps the error came, counted as in the progress. */
void gw_worker_fail(struct gw_worker *worker, gw_status status, bool training);

/* ---- worker.c ---- */

/* Tells the others that a worker failed. Else they would wait for it until their deadline. */
void gw_team_fail(const struct gw_team *team, uint32_t index, gw_status status, const char *text);

/* Sets parameters, and all that belongs to them, for the begin of a run: drawn, or those of the resumed run. */
void gw_worker_begin(struct gw_worker *worker);

/* What the worker keeps of the network. An array that it does not need is NULL. */
void gw_worker_arrays(const struct gw_worker *worker, float *arrays[GW_ARRAYS]);

/* With --parameters servers: gets the parameters of the servers. move: gw_exchange_init_parameters, which brings the
 * first ones before (a server keeps those that reach it first), or gw_exchange_pull_parameters. */
gw_status gw_worker_parameters(struct gw_worker *worker, gw_status (*move)(gw_exchange *, float *const *));

/* Makes the exchange over GW_TEAM_FULL, which averages these tensors of all workers as floats. */
gw_status gw_worker_full_exchange(struct gw_worker *worker, const gw_tensor *tensors, uint32_t n_tensors);

/* Makes the worker's exchange. servers: the servers that own the slices; NULL: the members of its link own them. */
gw_status gw_worker_exchange(struct gw_worker *worker, gw_ps_client *servers);

/* Waits for the end of a step. If the step is dropped, that is no error here: result->committed says it. */
gw_status gw_worker_wait(gw_exchange *exchange, gw_step_result *result);

/* What a worker does if the network is convex (worker_convex.c). snapshot: for svrg, before the first step of an epoch
 * and of a resumed run; *result is what the exchange of the full gradient took. gradient: submits the gradient of
 * samples order[0..count). */
gw_status gw_convex_worker_set_up(struct gw_worker *worker);
gw_status gw_convex_worker_snapshot(struct gw_worker *worker, uint64_t step, struct gw_step_record *record,
                                    gw_step_result *result);
gw_status gw_convex_worker_gradient(struct gw_worker *worker, const uint32_t *order, struct gw_step_record *record);
void gw_convex_worker_evaluate(const struct gw_worker *worker, struct gw_step_record *record);

#endif
