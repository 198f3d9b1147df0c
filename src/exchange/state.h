/* The inside of an exchange: what the caller's thread and the pipeline share, and what is the pipeline's own. */
#ifndef GW_EXCHANGE_STATE_H
#define GW_EXCHANGE_STATE_H

#include "exchange/buffers.h"
#include "exchange/chooser.h"
#include "exchange/message.h"
#include "link/message.h"
#include "owner/round.h"

#include <gradwire/exchange.h>

#include <pthread.h>

/* Whether all gradients looked at so far are finite, and if not, the lowest (tensor, rank). */
struct verdict {
    bool bad;
    uint32_t tensor, rank;
};

struct tensor {
    gw_encoder *encoder;
    uint64_t n_elems;
    bool summed;       /* its averages can be averaged again */
    uint64_t n_shared; /* its shared numbers, at shared_at of the group's */
    uint64_t shared_at;
    uint32_t group;
    bool has_wire_choice;
    float *gradient;    /* the caller's, from submit to the end of the step */
    double handed_over; /* clock */
};

/* Slices of one owner and group that travel together: one PUSH of each worker, one PULL. About GW_SLICE_MAX elements at
 * most. */
struct run {
    uint32_t index; /* in the group */
    uint32_t owner;
    size_t first, n;   /* in the group's slices */
    size_t push_bound; /* bytes of a PUSH, header included */
    uint64_t n_elems;

    /* As a worker. */
    bool pushed, pulled;

    /* As its owner, or as this machine's relay to another's owner, else NULL. */
    struct gw_round *round;
    /* for each slice: the owner's own part, which it adds without a frame; NULL: its frames come as others' do */
    struct gw_own *own;
    bool own_in;         /* this step */
    gw_message *pushes;  /* of each rank that sends here; bytes NULL: not there yet */
    uint32_t n_expected; /* workers: all, or those of this machine */
    uint32_t n_in;       /* of them */
    struct verdict push_verdict;
};

/* Where this member, as a worker, stands with a group. */
enum group_state { GROUP_MEASURING, GROUP_WAITS_SHARED, GROUP_WAITS_PULLS, GROUP_DONE };

struct group {
    uint32_t index;
    uint32_t n_tensors;
    uint32_t *tensors;       /* ascending */
    struct gw_slice *slices; /* by owner, tensor, begin */
    struct run *runs;        /* by owner, then as their slices; owners without a slice have none */
    uint32_t n_runs;
    uint32_t *order;   /* in which this member encodes them */
    uint64_t n_shared; /* numbers of all its tensors */
    uint64_t n_sent;   /* numbers in STATS and SHARED: n_shared, or 1 of a global codec */
    uint32_t coordinator;

    /* As a worker. */
    enum group_state state;
    uint32_t n_measured, n_pushed, n_pulled;
    struct verdict own_verdict; /* of this worker's gradients */
    struct verdict verdict;     /* of all workers', as far as others have said */
    float *numbers;             /* n_shared: this worker's own, as measured, then the shared ones */
    gw_group_moments moments;   /* of the clock; ready: not kept */

    /* As the coordinator, else NULL. */
    float *largest;   /* n_sent */
    bool *have_stats; /* of each rank */
    uint32_t n_stats;
    struct verdict stats_verdict;
};

/* The workers of one machine: n of ex->by_machine, from first on. */
struct machine {
    uint32_t first, n;
};

/* What the members do together between begin and wait: average gradients, or move parameters to and from servers. */
enum errand { ERRAND_STEP, ERRAND_PUT, ERRAND_GET };

/* What the pipeline has still to do, each by its number, first in, first out. A step puts each number there once. */
struct queue {
    uint32_t *numbers;
    uint32_t n, n_done;
};

struct gw_exchange {
    /* Fixed at create. */
    gw_context *context;
    const gw_codec *codec;
    gw_link link;
    uint64_t seed;
    uint32_t timeout_ms;
    uint64_t slice_max; /* elements of a slice, and of a run of several */
    bool global;        /* one decision for all tensors */
    char *optimizer;    /* the servers'; NULL: averages come back */
    uint32_t n_tensors, n_groups;
    struct tensor *tensors;
    struct group *groups;
    struct gw_slice *slices;
    char *hello;                /* what must be the same on all members: lines of text */
    uint32_t *by_machine;       /* ranks, machine by machine, ascending within one */
    struct machine *machine_of; /* of each rank; where nothing is said of machines, one of itself */
    uint64_t dense_bytes;       /* float32 of all slices that others own */
    pthread_t thread;

    /* The caller's own. */
    bool open;         /* between begin and wait */
    bool *handed_over; /* of each tensor, this step */
    uint32_t n_handed_over;
    bool account_next;
    double rate_next;
    gw_wire wire;               /* as asked */
    bool has_wire_choice;       /* some tensor's encoder has one, and there is somebody to send to */
    struct gw_chooser chooser;  /* of who compares */
    double began, first_submit; /* clock of this step's */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *wake; /* the one WAKE message; NULL while it is under way */
    bool stop;
    bool begun; /* a step was begun that the pipeline has not seen */
    bool begun_account;
    uint32_t begun_step;
    enum errand begun_errand;
    double begun_rate;
    gw_wire begun_push, begun_pull;
    uint32_t *submitted; /* tensors that the pipeline has not seen */
    uint32_t n_submitted;
    bool done; /* the step's result stands */
    struct verdict step_verdict;
    gw_wire told; /* what rank 0 asked averages of the last step to be: its own choice */
    gw_step_result result;
    gw_status status; /* below 0: the pipeline has ended, and why: */
    char sentence[512];
    gw_tensor_traffic *traffic;

    /* The pipeline's own. */
    uint32_t step;
    uint16_t nth_step;
    bool running;     /* the step is not done */
    bool others_know; /* the error that ends the pipeline is no news to them */
    bool account;
    bool *have_hello; /* of each rank */
    uint32_t n_hellos;
    enum errand errand;
    uint32_t n_measured;  /* tensors */
    uint32_t n_in_flight; /* groups that wait for other members */
    uint32_t n_done;
    struct gw_buffers buffers;
    struct gw_message_queue early; /* messages of a step that this member has not begun */
    struct queue to_measure;       /* tensors that were submitted */
    struct queue to_encode;        /* groups, the first of them perhaps in part */
    gw_encoder **encoders;         /* of a global codec, where they combine */
    struct verdict verdict;
    gw_wire heard; /* in this step; AUTO: nothing yet */
    gw_step_result tally;
    gw_tensor_traffic *counting;
};

/* gw_exchange_create with another GW_SLICE_MAX, for tests. */
gw_status gw_exchange_create_cut(gw_context *context, const gw_exchange_options *options, uint64_t slice_max,
                                 gw_exchange **out);

/* Works out machines, groups, slices, runs and what this member is to each of them (exchange/layout.c). The tensors'
 * encoders stand. What it has taken so far is freed by gw_layout_fini, after an error too. */
/* What the link says of machines, if adding up within them first saves something; else NULL. */
const uint32_t *gw_layout_machines(const gw_link *link);
gw_status gw_layout_init(struct gw_exchange *exchange, const uint32_t *group_of, const uint32_t *machine_of);
void gw_layout_fini(struct gw_exchange *exchange);

/* How many own slices: the members, or the servers behind them; and the rank of the nth, counted around. */
static inline uint32_t gw_n_owners(const struct gw_exchange *exchange)
{
    return exchange->link.n_owners ? exchange->link.n_owners : exchange->link.size;
}

static inline uint32_t gw_nth_owner(const struct gw_exchange *exchange, uint32_t nth)
{
    return (exchange->link.n_owners ? exchange->link.size : 0) + nth % gw_n_owners(exchange);
}

/* A server is on nobody's machine. */
static inline bool gw_same_machine(const struct gw_exchange *exchange, uint32_t a, uint32_t b)
{
    return a < exchange->link.size && b < exchange->link.size &&
           exchange->machine_of[a].first == exchange->machine_of[b].first;
}

/* Who sends a worker's part of a run to the owner, and takes the averages from it: one of the worker's machine, in
 * turn; on the owner's machine, and where a machine has one worker, each worker itself. */
static inline uint32_t gw_relay_of(const struct gw_exchange *exchange, const struct run *run, uint32_t worker)
{
    const struct machine *machine = &exchange->machine_of[worker];
    return gw_same_machine(exchange, worker, run->owner)
               ? worker
               : exchange->by_machine[machine->first + run->index % machine->n];
}

/* Whose work `from` sends for a run: itself's, or that of its whole machine. */
static inline const uint32_t *gw_sent_by(const struct gw_exchange *exchange, const struct run *run,
                                         const uint32_t *from, uint32_t *n)
{
    const struct machine *machine = &exchange->machine_of[*from];
    *n = 1;
    if (run->owner != exchange->link.rank || gw_same_machine(exchange, *from, run->owner))
        return from;
    *n = machine->n;
    return exchange->by_machine + machine->first;
}

/* Puts together what this member says first (exchange/hello.c), and checks what another said; the groups stand. */
gw_status gw_hello_init(struct gw_exchange *exchange, const gw_exchange_options *options);
gw_status gw_hello_check(struct gw_exchange *exchange, const gw_message *message);

/* The pipeline thread: runs until told to stop, or until an error, which it leaves in the exchange and tells the other
 * members. */
void *gw_pipeline_main(void *exchange);

/* Sends the WAKE message that was taken out of exchange->wake. */
gw_status gw_pipeline_wake(struct gw_exchange *exchange, void *wake);

/* Adds frames, one behind the other, to the accounts of their tensors (exchange/account.c). They are this worker's own
 * or were checked. */
gw_status gw_account_frames(struct gw_exchange *exchange, const char *at, size_t left);

/* Says whom the pipeline waits for: stores GW_ERR_TIMEOUT and its sentence, and returns true, where members are missing
 * that owe something themselves. Where all that is missing is owed by members who may be waiting in turn, it does so
 * only for `any`. */
bool gw_silent_members(const struct gw_exchange *exchange, bool any);

#endif
