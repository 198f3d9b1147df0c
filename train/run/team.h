/* What the workers of a run share, and one worker. Only the trainer's loop includes it.
 *
 * A team is this process's workers, ranks first..first+count-1 of all; whether the others are threads of the same
 * process is the links' affair. Workers meet in the exchange, and tell each other by the control link (control.h) what
 * else there is to know: the rate of a step and the decision to stop come from rank 0, and rank 0 adds up the records
 * of step t once step t+1 is through. */
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
#include <stdatomic.h>

/* The links of a worker. */
enum {
    GW_TEAM_EXCHANGE,
    GW_TEAM_CONTROL,
    GW_TEAM_FULL, /* svrg's full gradients; batch norm's statistics */
    GW_TEAM_PLAN, /* meetings for a live plan */
    GW_TEAM_LINKS
};

/* With servers that do not wait for all, workers need not be at the same step; further than this from rank 0 they are
 * not. */
enum { GW_TEAM_AHEAD = 64 };

/* At most so many steps of a run have their frames counted symbol by symbol. */
enum { GW_TEAM_ACCOUNTED = 100 };

struct gw_team {
    /* gw_train_run's own; of other processes than rank 0's, what rank 0 decides is put there */
    struct gw_train_options *options;
    const struct gw_train_callbacks *callbacks;
    struct gw_network network;
    struct gw_data data;
    struct gw_schedule schedule;
    struct gw_optimizer rule;                 /* with this run's numbers */
    char server_optimizer[GW_OPTIMIZER_TEXT]; /* servers move the parameters by it; "": every worker moves its own */
    uint32_t threads;                         /* computing threads of each worker */
    double decay;                             /* weight decay; of an objective's lambda * |w|^2 it is 2 * lambda */
    dnnl_engine_t engine;
    gw_context *context;
    gw_codec *codec;
    bool draws;           /* it draws without bias: its frames have a variance */
    gw_codec *full_codec; /* none, for what goes by GW_TEAM_FULL; NULL: nothing does */
    gw_tensor tensors[GW_MAX_TENSORS];
    uint32_t group_of[GW_MAX_TENSORS]; /* at the beginning */
    struct gw_live_plan live;
    struct gw_members *members;
    bool alone;                /* its one worker meets the others at parameter servers only (elastic.h) */
    bool leads;                /* who adds up is here: rank 0, or who is alone */
    uint32_t *machine_of;      /* [members->size] */
    bool grouped;              /* what crosses between machines goes once for all workers of one */
    gw_link *links;            /* [n_links][members->count] */
    uint32_t n_links;          /* kinds of them; 0: not connected yet */
    struct gw_worker *workers; /* [members->count] */
    /* workers 0..evaluators-1 share the test set: as many as there are processors; all where convex */
    uint32_t evaluators;
    uint64_t begin, steps, steps_per_epoch; /* steps [begin, steps) are this run's */
    const char *out;                        /* the run's folder; NULL: none */
    char run_options[sizeof((struct gw_checkpoint *)0)->options];
    struct gw_resume resume;             /* until this process's workers have taken from it */
    struct gw_file pending;              /* rank 0's: a checkpoint that has no name yet, */
    struct gw_rank_state pending_states; /* and what its state files have in common */

    bool stopped;                                   /* by the user */
    bool identical;                                 /* all replicas, at the end; rank 0's */
    struct gw_metrics metrics;                      /* rank 0's */
    struct gw_train_tensor traffic[GW_MAX_TENSORS]; /* sums over accounted steps, rank 0's */
    uint32_t n_accounted;

    pthread_mutex_t failure_lock;
    gw_status failure; /* the first error that is not merely another worker's */
    char failure_text[1024];
};

/* Of a worker that is alone. */
struct gw_elastic {
    gw_ps_client_options options;
    gw_ps_client *client; /* the exchange's; NULL: not connected */
    gw_ps_client *side;   /* for all else, beside the exchange; NULL: not needed yet */
    bool unkept_noted;    /* that a server cannot write what it acknowledges */
    double last_step;     /* when a step was done, or training began */
    uint64_t reached;     /* steps that this worker has come to; to come to one again is no progress */
    uint32_t n_joins;
};

struct gw_worker {
    struct gw_team *team;
    uint32_t index, rank; /* in the team, and of all */
    pthread_t thread;
    bool started;
    struct gw_control control;
    gw_exchange *exchange;
    struct gw_elastic elastic;
    float *params, *grads, *ema;          /* flat; ema only where used */
    float *moments[GW_OPTIMIZER_MOMENTS]; /* the rule's; NULL if it has none */
    uint32_t group_of[GW_MAX_TENSORS];    /* as they are now */
    uint32_t *order;                      /* of this epoch */
    uint32_t begin, count;                /* its share of a batch */
    uint8_t *labels;                      /* of its share */
    struct gw_model *model, *test_model;
    uint64_t version;                 /* of the parameters */
    double *sum;                      /* convex: a gradient before it is rounded */
    float *snapshot, *full;           /* svrg: w~, and the full gradient there */
    float *statistics;                /* batch norm's, of this worker alone; those behind params are all workers' */
    gw_exchange *full_exchange;       /* over GW_TEAM_FULL */
    struct gw_histograms *histograms; /* of this step; NULL: it has none */
    gw_status submit_status;
    double lr;        /* of this step, from rank 0 */
    uint64_t stop_at; /* no step from this one on; from rank 0 */
    uint64_t steps_done;
    /* rank 0: steps whose records are added up, those of the runs before included */
    uint64_t n_collected;
    uint32_t n_comparisons; /* of the wire choice, so far */
    bool fetched;           /* params are the servers' last */
    uint64_t hash;          /* of the parameters at the end */
};

/* A worker's link of one kind. */
static inline gw_link gw_team_link(const struct gw_team *team, uint32_t kind, uint32_t index)
{
    return team->links[kind * team->members->count + index];
}

/* Threads of one process have no network between them. Small frames show what one would carry. */
static inline bool gw_team_has_network(const struct gw_team *team)
{
    return !team->members->scheme->is_one_process || team->members->servers.servers;
}

static inline gw_wire gw_team_wire(const struct gw_team *team)
{
    return team->options->wire == GW_WIRE_AUTO && !gw_team_has_network(team) ? GW_WIRE_SMALL : team->options->wire;
}

/* Tells the others that a worker failed; they would wait for it until their deadline. */
void gw_team_fail(const struct gw_team *team, uint32_t index, gw_status status, const char *text);

/* A worker's thread. */
void *gw_worker_main(void *worker);
void gw_worker_free(struct gw_worker *worker);

/* Parameters and all that belongs to them as a run begins: drawn, or those it was resumed from. */
void gw_worker_begin(struct gw_worker *worker);

/* With --parameters servers: those the servers have not got yet; then the worker has the servers'. */
gw_status gw_worker_init_parameters(struct gw_worker *worker);

/* With --parameters servers: those that the servers have. */
gw_status gw_worker_pull_parameters(struct gw_worker *worker);

/* Makes its exchange. servers: they own the slices; NULL: the members of its link do. */
gw_status gw_worker_exchange(struct gw_worker *worker, gw_ps_client *servers);

/* Its part where the network is convex (worker_convex.c). `snapshot` is for svrg, before the first step of an epoch and
 * of a resumed run; *result is what the full gradient took. `gradient` submits the gradient of samples order[0..count).
 */
gw_status gw_convex_worker_set_up(struct gw_worker *worker);
gw_status gw_convex_worker_snapshot(struct gw_worker *worker, uint64_t step, struct gw_step_record *record,
                                    gw_step_result *result);
gw_status gw_convex_worker_gradient(struct gw_worker *worker, const uint32_t *order, struct gw_step_record *record);
void gw_convex_worker_evaluate(const struct gw_worker *worker, struct gw_step_record *record);
void gw_convex_worker_free(struct gw_worker *worker);

#endif
