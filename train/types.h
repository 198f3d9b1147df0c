/* What a run of the trainer is told, and what it tells: options, progress, summary, callbacks. */
#ifndef GW_TRAIN_TYPES_H
#define GW_TRAIN_TYPES_H

#include "net/network.h"

#include <gradwire/gradwire.h>
#include <jansson.h>
#include <math.h>

struct gw_members;

#define GW_MAX_SAVED_STEPS 64

struct gw_train_options {
    struct gw_members *members; /* who trains together (members.h); NULL: `workers` threads of this process */
    const char *net;            /* network.h */
    const char *data, *test;    /* data.h; test NULL: not given */
    const char *transform;      /* data/transform.h; NULL: the network's */
    const char *codec;          /* a codec specification */
    const char *optimizer;      /* sgd | momentum | adam | svrg */
    const char *schedule;       /* schedule.h */
    /* local: every worker moves its own parameters. servers: those of `members` move them, without svrg and ema */
    const char *parameters;
    const char *plan; /* live_plan.h: none, single, fixed:BYTES, a file, exact, paper */
    uint64_t replan;  /* exact, paper: steps from one plan to the next; 0: there is only one plan */
    const char *out;  /* the run's folder, which only rank 0 writes; NULL: nothing is written */
    /* the folder of an interrupted run, which goes on; `out` must be NULL or the same folder. NULL: a new run */
    const char *resume;
    bool overwrite;          /* true: an earlier run in that folder is removed. false: it is an error */
    uint32_t workers, batch; /* batch: of all workers together. workers: not used if `members` is given */
    uint64_t steps, epochs;  /* how long; steps 0: epochs */
    double lr, momentum, weight_decay;
    /* lambda of an objective's lambda * |w|^2, which is a weight decay of 2 * lambda; NAN: weight_decay is used */
    double l2;
    double ema; /* decay of the parameters' moving average; 0: none */
    uint64_t seed;
    /* computing threads of each worker; 0: as in the interrupted run, else 1. Sums depend on their number */
    uint32_t threads;
    uint32_t codec_threads;
    uint32_t timeout_s; /* how long a worker may be silent */
    /* gw_exchange_options.wire; without a network, among threads of one process, GW_WIRE_AUTO means small */
    gw_wire wire;
    bool flat;                 /* true: the workers of one machine are not added up first. Results are the same */
    uint64_t checkpoint_every; /* steps between checkpoints; there is one more at the end; 0: never */
    bool stop_at_nonfinite;    /* true: a gradient that is not finite ends the run; false: the step is dropped */
    /* NAME: each worker writes its gradient of the step gradients_at[0], counted from 0, before it is averaged, to
     * NAME.rank-R.gwp. If there are several steps (ascending), to NAME.step-T.rank-R.gwp. NULL: none is written */
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

/* The frames of one tensor on rank 0: means over some steps that are spread over the run. In a resumed run they are
 * steps of its own, and NaN if it counted none. */
struct gw_train_tensor {
    char name[sizeof((struct gw_param *)0)->name];
    uint64_t elements;
    double nonzero_share;
    double push_bits, push_entropy; /* bits per element: of whole frames, and the order-0 entropy of the symbols */
    double pull_bits, pull_entropy;
    double push_payload_bits, pull_payload_bits; /* without headers and scalers */
};

struct gw_train_summary {
    char net[64], codec[512], data[4096], parameter_hash[17];
    uint32_t workers, batch; /* workers 0: rank 0 of another process has the summary, or there is none */
    bool stopped;            /* the user has ended the run: all members have ended after the same step */
    uint64_t resumed_from;   /* steps that earlier runs had done; 0: none */
    uint64_t steps, skipped_steps, seed, parameters;
    /* steps that are in no sum: the worker took no part in them, or their lines were lost before the run was resumed */
    uint64_t missing_steps;
    double test_accuracy, train_accuracy, train_loss; /* accuracies in [0, 1] */
    /* how many gradients of samples were computed, divided by the number of samples. svrg computes more than one for
     * each sample in an epoch */
    double passes;
    /* true: train_* come from a full pass at the end, test_accuracy too without a test set; the next two are set */
    bool convex;
    double objective, l2; /* objective: train_loss + l2 * |w|^2. l2: lambda, or half the weight decay */
    uint64_t bytes_up, bytes_down, dense_bytes;
    double nonzero_share; /* of all tensors together; a mean over the steps that were counted; NaN: there are none */
    /* as in metrics.h. variance_factor: of the sums over the same steps; the other two: of the last such step */
    double variance_factor, residual_norm, threshold_age;
    double images_per_second, seconds;
    /* means over steps; all except step_ms are also means over workers */
    double step_ms, compute_ms, encode_ms, wait_ms;
    /* rank 0's wire choice at the end with what it compared, and why. fast_steps: how many steps had fast frames */
    gw_wire_report wire;
    char wire_why[128];
    /* n_groups: groups at the end. n_plans: plans that were made while training. planned_ms: how long a step takes by
     * the last plan. planning_seconds: the time that all planning took */
    char plan[4096];
    uint32_t n_groups, n_plans;
    double planned_ms, planning_seconds;
    uint64_t fast_steps;
    bool replicas_identical;
    uint32_t n_tensors;
    struct gw_train_tensor tensors[GW_MAX_TENSORS];
};

struct gw_train_progress {
    uint64_t step, steps; /* steps that are done, and steps in all */
    double loss;          /* running mean */
    double accuracy;      /* of the test set, if it was evaluated; else of the last training batches */
    bool accuracy_is_test;
    double images_per_second, seconds_left;
    uint64_t skipped_steps;
    double times_smaller_up, times_smaller_down; /* dense bytes over bytes up, and over bytes down; 0 with one worker */
};

struct gw_train_callbacks {
    /* called after every step, from a worker's thread */
    void (*progress)(const struct gw_train_progress *progress, void *user);
    void (*note)(const char *text, void *user); /* gets a sentence for people: what a resumed run found */
    /* called before every step: if it returns true, the run ends at the next step. Also while data are loaded: if it
     * returns true then, the run ends without a step */
    bool (*stop)(void *user);
    void *user;
};

#endif
