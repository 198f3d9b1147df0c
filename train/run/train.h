/* The reference trainer: real training on oneDNN, gradients averaged through Gradwire's exchange.
 *
 *     struct gw_train_options options = GW_TRAIN_DEFAULTS;
 *     options.workers = 4, options.codec = "ternary";
 *     status = gw_train_run(&options, &callbacks, &summary);
 *
 * Every worker is a thread with its own replica of the parameters, here or in other processes; only gradients travel.
 * Errors are a status and a sentence in gw_last_error(), as in the library: GW_ERR_ARGUMENT and GW_ERR_SPEC are wrong
 * use; a file that is missing, cut or malformed is GW_ERR_SYSTEM. */
#ifndef GW_TRAIN_TRAIN_H
#define GW_TRAIN_TRAIN_H

#include "net/network.h"

#include <gradwire/gradwire.h>
#include <jansson.h>
#include <math.h>

struct gw_members;

#define GW_MAX_SAVED_STEPS 64

struct gw_train_options {
    struct gw_members *members; /* who trains together (members.h); NULL: `workers` threads of this process */
    const char *net;            /* network.h */
    const char *data, *test;    /* data.h; test NULL: none given */
    const char *transform;      /* data/transform.h; NULL: the network's */
    const char *codec;          /* a codec specification */
    const char *optimizer;      /* sgd | momentum | adam | svrg */
    const char *schedule;       /* schedule.h */
    /* local: every worker moves its own; servers: the parameter servers of `members` do (svrg and ema do not go) */
    const char *parameters;
    const char *plan; /* plan.h: none, single, fixed:BYTES, or a file; live_plan.h: exact, paper */
    uint64_t replan;  /* exact, paper: steps from a plan to the next; 0: one plan stands */
    const char *out;  /* the run's folder, written by rank 0 alone; NULL: nothing is written */
    /* the folder of an interrupted run that is gone on with, there; `out` NULL or the same; NULL: none */
    const char *resume;
    bool overwrite;          /* an earlier run in that folder is removed; else it is an error */
    uint32_t workers, batch; /* batch: of all workers together. workers: those of `members` where they are given */
    uint64_t steps, epochs;  /* how long; steps 0: epochs */
    double lr, momentum, weight_decay;
    /* lambda of an objective's lambda * |w|^2: a weight decay of 2 * lambda; NAN: weight_decay holds */
    double l2;
    double ema; /* decay of the parameters' moving average; 0: none */
    uint64_t seed;
    /* computing threads of each worker; 0: those of the interrupted run, else 1. Sums depend on them */
    uint32_t threads;
    uint32_t codec_threads;
    uint32_t timeout_s; /* how long a worker may be silent */
    /* gw_exchange_options.wire; workers that are threads of one process have no network, and GW_WIRE_AUTO is small
     * there
     */
    gw_wire wire;
    bool flat;                 /* workers of one machine are not added up first; results are the same */
    uint64_t checkpoint_every; /* steps; and one at the end; 0: never */
    bool stop_at_nonfinite;    /* else the step is dropped */
    /* each worker writes its gradient of this step, from 0, before it is averaged, to NAME.rank-R.gwp; of several
     * steps, ascending, to NAME.step-T.rank-R.gwp; NULL: none does */
    const char *gradients;
    uint64_t gradients_at[GW_MAX_SAVED_STEPS];
    uint32_t n_gradients_at;
    json_t *record; /* an object, borrowed: the options that rank 0 writes to OUT/run.json; NULL: none */
};

#define GW_TRAIN_DEFAULTS                                                                                              \
    ((struct gw_train_options){.net = "lenet",                                                                         \
                               .data = "digits",                                                                       \
                               .codec = "none",                                                                        \
                               .optimizer = "momentum",                                                                \
                               .schedule = "poly:0.5",                                                                 \
                               .parameters = "local",                                                                  \
                               .plan = "none",                                                                         \
                               .workers = 1,                                                                           \
                               .batch = 64,                                                                            \
                               .epochs = 5,                                                                            \
                               .lr = 0.01,                                                                             \
                               .momentum = 0.9,                                                                        \
                               .weight_decay = 0.0005,                                                                 \
                               .l2 = NAN,                                                                              \
                               .seed = 1,                                                                              \
                               .codec_threads = 1,                                                                     \
                               .timeout_s = 60,                                                                        \
                               .gradients_at = {100},                                                                  \
                               .n_gradients_at = 1})

/* One tensor's frames on rank 0, the mean over some steps spread over the run (of a resumed run, over its own steps).
 */
struct gw_train_tensor {
    char name[sizeof((struct gw_param *)0)->name];
    uint64_t elements;
    double nonzero_share;
    double push_bits, push_entropy; /* bits per element; frames whole, and the symbols' order-0 entropy */
    double pull_bits, pull_entropy;
    double push_payload_bits, pull_payload_bits; /* without headers and scalers */
};

struct gw_train_summary {
    char net[64], codec[512], data[256], parameter_hash[17];
    uint32_t workers, batch;
    uint64_t resumed_from; /* steps done by the runs before; 0: none */
    uint64_t steps, epochs_begun, skipped_steps, seed, parameters;
    double test_accuracy, train_accuracy, train_loss; /* accuracies in [0, 1] */
    /* gradients of samples computed, over samples: svrg computes more than one a sample and epoch */
    double passes;
    /* then train_* are of a full pass at the end, without a test set test_accuracy is train's, and: */
    bool convex;
    double objective, l2; /* train_loss + l2 * |w|^2; l2 is lambda, or half the weight decay */
    uint64_t bytes_up, bytes_down, dense_bytes;
    double nonzero_share; /* of all tensors together, a mean over the steps that were counted; NaN: there are none */
    /* as in metrics.h; a mean likewise, and those of the last such step */
    double variance_factor, residual_norm, threshold_age;
    double images_per_second, seconds;
    double step_ms, compute_ms, encode_ms, wait_ms; /* means over steps; all but step_ms over workers too */
    /* rank 0's choice at the end, why it stands, and what it had compared; fast_steps: whose frames were fast */
    gw_wire_report wire;
    char wire_why[128];
    /* groups at the end; plans that were made while training, how long a step takes by the last one, and all that
     * planning took */
    char plan[256];
    uint32_t n_groups, n_plans;
    double planned_ms, planning_seconds;
    uint64_t fast_steps;
    bool replicas_identical;
    uint32_t n_tensors;
    struct gw_train_tensor tensors[GW_MAX_TENSORS];
};

struct gw_train_progress {
    uint64_t step, steps; /* done, of how many */
    double loss;          /* running mean */
    double accuracy;      /* of the test set where it was looked at, else of the last training batches */
    bool accuracy_is_test;
    double images_per_second, seconds_left;
    uint64_t skipped_steps;
    double times_smaller; /* dense bytes over bytes up; 0 with one worker */
};

struct gw_train_callbacks {
    /* after every step; from a worker's thread */
    void (*progress)(const struct gw_train_progress *progress, void *user);
    void (*note)(const char *text, void *user); /* a sentence for people: what a resumed run found */
    bool (*stop)(void *user);                   /* asked before every step: true ends the run at the next one */
    void *user;
};

/* GW_OK; or an error. A run that `stop` ended is GW_ERR_CLOSED. callbacks NULL: none. Of several processes the one with
 * rank 0 shows progress and has the summary; in the others its `workers` is 0 and nothing else of it is set. */
gw_status gw_train_run(const struct gw_train_options *options, const struct gw_train_callbacks *callbacks,
                       struct gw_train_summary *summary);

/* The summary as the run's summary.json has it; NULL if there is no memory. */
json_t *gw_train_summary_json(const struct gw_train_summary *summary);

/* Share of the test set, or of the training set, that saved parameters get right (the moving average's where it was
 * saved). */
struct gw_eval_options {
    const char *net;         /* NULL: the file's network */
    const char *data, *test; /* data.h; test NULL: none given */
    const char *transform;   /* data/transform.h; NULL: the network's */
    const char *from;        /* a run's folder, or a parameter file */
    const char *data_are;    /* the data must be these (gw_data_describe); NULL: any */
    bool training_set;
    uint32_t threads;
};
struct gw_eval_result {
    char net[64];
    uint64_t step;
    uint32_t samples;
    double accuracy, loss;
};
gw_status gw_train_eval(const struct gw_eval_options *options, struct gw_eval_result *result);

#endif
