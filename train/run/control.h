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
 * A worker is at most one step ahead of another where they meet in every step's exchange, else at most `ahead` steps
 * ahead of rank 0, and rank 0 of the others; messages are kept until they are asked for. Numbers are little-endian
 * words of 8 bytes. One thread of a worker at a time. */
#ifndef GW_TRAIN_CONTROL_H
#define GW_TRAIN_CONTROL_H

#include "disk/metrics.h"
#include "disk/resume.h"

/* Records of this many steps are kept, and of twice `ahead` more. */
enum { GW_CONTROL_RING = 4 };

struct gw_control {
    gw_context *context;
    gw_link link; /* borrowed */
    uint32_t timeout_ms, ahead, ring;

    /* rank 0 */
    struct gw_step_record *records; /* [ring][size] */
    bool *reported;                 /* [ring][size]: the record is there */
    gw_message *states;             /* [size]; bytes NULL: not there */
    bool *ended;                    /* [size] */
    uint64_t *hashes;               /* [size] */
    bool stop_wished;               /* by another worker */
    bool *joined;                   /* [size] */
    uint64_t *machines;             /* [size] */
    bool *met;                      /* [size]: it waits for all */

    /* the others */
    struct gw_control_step {
        uint64_t step;
        double lr;
    } * steps;        /* [ring] */
    uint64_t n_steps; /* STEPs that came */
    uint64_t stop_at; /* as the last of them said */
    bool all_met;
    gw_message start; /* bytes NULL: not there */
};

/* timeout_ms: how long another may be silent before it is an error that names it. ahead: 0 where all workers meet in
 * every step. Errors: GW_ERR_MEMORY. */
gw_status gw_control_init(struct gw_control *control, gw_context *context, gw_link link, uint32_t timeout_ms,
                          uint32_t ahead);
void gw_control_fini(struct gw_control *control);

/* What all processes begin with. */
struct gw_start {
    const char *options; /* of this process; must be rank 0's */
    uint64_t steps;      /* likewise */
    uint64_t machine;    /* says which machine this is */
    size_t n_floats;     /* of params, momentum, ema and variance */
    uint32_t threads;    /* rank 0's; await sets these */
    uint64_t checkpoint_every;
    bool stop_at_nonfinite;
    uint32_t *machine_of; /* [size]: numbers of the machines that ranks run on; both set it */
};

/* Rank 0 waits for JOIN of ranks from `first` on (those before are in its process) and sends them START; each of them
 * sends JOIN, waits for START, checks that its own options are rank 0's, and fills *resume (whose params stay NULL
 * where the run begins). Errors of await: GW_ERR_ARGUMENT (an option differs), and those of the link. */
gw_status gw_control_send_start(struct gw_control *control, uint32_t first, const struct gw_resume *resume,
                                struct gw_start *start);
gw_status gw_control_await_start(struct gw_control *control, struct gw_resume *resume, struct gw_start *start);

/* Rank 0, before it submits a gradient of the step. No step from stop_at on is made. */
gw_status gw_control_lead(struct gw_control *control, uint64_t step, double lr, uint64_t stop_at);

/* The others, after they waited for the step. With `ahead` *lr stays as it is, and *stop_at is what is known by now:
 * all that rank 0 has said until `ahead` steps before. */
gw_status gw_control_follow(struct gw_control *control, uint64_t step, double *lr, uint64_t *stop_at);

/* Every worker, after a step. stop_wished: this worker's process was asked to end the run. */
gw_status gw_control_report(struct gw_control *control, uint64_t step, const struct gw_step_record *record,
                            bool stop_wished);

/* Rank 0: waits for all records of a step, in rank order. They stand until the records of three steps later come in. */
bool gw_control_has(struct gw_control *control, uint64_t step); /* whether that would not wait */
gw_status gw_control_collect(struct gw_control *control, uint64_t step, const struct gw_step_record **records);

/* A worker's codec state after `step` steps; `state` was taken by gw_control_state_new (NULL: no memory), and is gone.
 */
void *gw_control_state_new(struct gw_control *control, size_t state_bytes);
void gw_control_state_drop(void *state);
gw_status gw_control_send_state(struct gw_control *control, uint64_t step, void *state, size_t state_bytes);

/* Rank 0: waits for the state of `rank` after `step` steps; *state stands until gw_control_free_state. */
gw_status gw_control_await_state(struct gw_control *control, uint64_t step, uint32_t rank, const void **state,
                                 size_t *state_bytes);
void gw_control_free_state(struct gw_control *control, uint32_t rank);

/* Waits until all workers have called it. */
gw_status gw_control_meet(struct gw_control *control);

/* The end, after the last step: the others send their hash; rank 0 waits for all, and finds whether they are its own.
 */
gw_status gw_control_end(struct gw_control *control, uint64_t hash, bool *identical);

#endif
