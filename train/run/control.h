/* What workers tell each other besides gradients, over a link of their own: rank 0 leads, the others report to it.
 *
 *     JOIN    every other process to rank 0: the machine it runs on
 *     START   rank 0 to every other process: its options, the machines, and all that a resumed run goes on from
 *     STEP    rank 0 to every worker before a step: its learning rate, and whether the run is to end
 *     RECORD  worker to rank 0 after a step: what it knows of it
 *     STATE   worker to rank 0 at a checkpoint: what its codec keeps
 *     MEET    worker to rank 0 when it waits for all, and rank 0's answers: not yet, or all are there
 *     END     worker to rank 0 at the end: the hash of its parameters
 *
 * If workers meet in the exchange of every step, a worker is at most one step ahead of another. Else a worker is at
 * most `ahead` steps ahead of rank 0, and rank 0 at most `ahead` steps ahead of a worker. Messages that come early are
 * kept. Numbers are little-endian words of 8 bytes. Only one thread of a worker at a time calls these functions. */
#ifndef GW_TRAIN_CONTROL_H
#define GW_TRAIN_CONTROL_H

#include "disk/metrics.h"
#include "disk/resume.h"

/* Records and states of this many steps are kept, and those of 2 * `ahead` more steps. */
enum { GW_CONTROL_RING = 4 };

struct gw_control {
    gw_context *context;
    gw_link link; /* borrowed */
    uint32_t timeout_ms, ahead, ring;
    gw_status failure; /* below 0: the link's error, or a message that cannot be */
    char sentence[512];

    /* rank 0 */
    struct gw_step_record *records; /* [ring][size] */
    bool *reported;                 /* [ring][size]: the record is there */
    gw_message *states;             /* [ring][size]; bytes NULL: it has not come */
    bool *ended;                    /* [size] */
    uint64_t *hashes;               /* [size] */
    bool stop_wished;               /* another worker wants to end the run */
    bool *joined;                   /* [size] */
    uint64_t *machines;             /* [size] */
    bool *met;                      /* [size]: it waits for all */

    /* all other ranks */
    struct gw_control_step {
        uint64_t step;
        double lr;
    } * steps;        /* [ring] */
    uint64_t n_steps; /* STEPs that came */
    uint64_t stop_at; /* the step at which the run ends, as the last STEP said */
    bool all_met;
    gw_message start; /* bytes NULL: it has not come */
};

/* timeout_ms: if another worker is silent for this time, that is an error that names it. ahead: 0 if all workers meet
 * in every step. Errors: GW_ERR_MEMORY. */
gw_status gw_control_init(struct gw_control *control, gw_context *context, gw_link link, uint32_t timeout_ms,
                          uint32_t ahead);
void gw_control_fini(struct gw_control *control);

/* A worker has waited in vain, and `status` says so, with the last error. If another worker has told of a failure
 * meanwhile, or is gone, that is the cause, and this returns it as the error. Else `status` and the last error stay. */
gw_status gw_control_cause(struct gw_control *control, gw_status status);

/* What all processes begin with. */
struct gw_start {
    const char *options; /* the options of this process; they must be the same as those of rank 0 */
    uint64_t steps;      /* as `options` */
    uint64_t machine;    /* says which machine this is */
    size_t n_floats;     /* the length of each array of a checkpoint */
    uint32_t threads;    /* from here on: rank 0's values, which await sets */
    uint64_t checkpoint_every;
    bool stop_at_nonfinite;
    uint32_t *machine_of; /* [size]: the number of each rank's machine; both functions below set it */
};

/* send: rank 0 waits for the JOIN of the ranks from `first` on, and sends them START. The ranks before `first` are in
 * its own process. await: each other rank sends JOIN, waits for START, and checks that its options are those of rank 0.
 * It fills *resume; if the run is new, resume's arrays stay NULL. If the resumed run had as many workers, only this
 * rank's own state is in resume->states. Errors of await: those of the link, and GW_ERR_ARGUMENT (another option). */
gw_status gw_control_send_start(struct gw_control *control, uint32_t first, const struct gw_resume *resume,
                                struct gw_start *start);
gw_status gw_control_await_start(struct gw_control *control, struct gw_resume *resume, struct gw_start *start);

/* Rank 0 calls it before it submits a gradient of the step. No step from stop_at on is made. */
gw_status gw_control_lead(struct gw_control *control, uint64_t step, double lr, uint64_t stop_at);

/* The others call it after they waited for the step. With `ahead` above 0, *lr does not change. *stop_at is then what
 * this worker knows by now: at least what rank 0 had said `ahead` steps before. */
gw_status gw_control_follow(struct gw_control *control, uint64_t step, double *lr, uint64_t *stop_at);

/* Every worker calls it after a step. stop_wished: somebody has asked this worker's process to end the run. */
gw_status gw_control_report(struct gw_control *control, uint64_t step, const struct gw_step_record *record,
                            bool stop_wished);

/* Rank 0: waits for all records of a step. *records are in rank order. They are valid until records of the third step
 * after it come. gw_control_has tells whether collect would return at once. */
bool gw_control_has(struct gw_control *control, uint64_t step);
gw_status gw_control_collect(struct gw_control *control, uint64_t step, const struct gw_step_record **records);

/* A worker's codec state after `step` steps: new takes memory for it (NULL: there is none), send owns it, also if that
 * fails, and drop frees one that is not sent. */
void *gw_control_state_new(struct gw_control *control, size_t state_bytes);
void gw_control_state_drop(void *state);
gw_status gw_control_send_state(struct gw_control *control, uint64_t step, void *state, size_t state_bytes);

/* Rank 0: waits for the state of `rank` after `step` steps. *state is valid until gw_control_free_state. A worker may
 * send that of the next step before. */
gw_status gw_control_await_state(struct gw_control *control, uint64_t step, uint32_t rank, const void **state,
                                 size_t *state_bytes);
void gw_control_free_state(struct gw_control *control, uint64_t step, uint32_t rank);

/* Waits until all workers have called it. */
gw_status gw_control_meet(struct gw_control *control);

/* After the last step the others send the hash of their parameters. Rank 0 compares all of them with its own. */
gw_status gw_control_end(struct gw_control *control, uint64_t hash, bool *identical);

#endif
