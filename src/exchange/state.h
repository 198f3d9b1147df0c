/* The inside of an exchange: what the caller's thread and the pipeline share, and what is the pipeline's own. */
#ifndef GW_EXCHANGE_STATE_H
#define GW_EXCHANGE_STATE_H

#include "base/error.h"
#include "base/process.h"
#include "exchange/buffers.h"
#include "exchange/chooser.h"
#include "exchange/layout.h"
#include "exchange/message.h"
#include "exchange/owners.h"
#include "link/loan.h"

#include <gradwire/exchange.h>

#include <pthread.h>

/* What the members do together between begin and wait: average gradients, or move parameters to and from servers. */
enum operation { OPERATION_STEP, OPERATION_INIT, OPERATION_PULL };

/* How the caller begins a step or another operation. */
struct beginning {
    uint32_t step;
    bool account;
    enum operation operation;
    double rate;
    gw_wire push, pull;
};

/* The numbers of tensors or groups that the pipeline has still to work on, first in, first out. A step puts each number
 * there once. */
struct queue {
    uint32_t *numbers;
    uint32_t n, n_done;
};

struct gw_exchange {
    /* Fixed at create. */
    gw_context *context;
    gw_process made_in;
    const gw_codec *codec;
    const struct gw_owners *owners;
    uint32_t rank, size;               /* this worker's, and how many workers there are */
    uint32_t n_owners, first_owner;    /* owners have the numbers first_owner, first_owner + 1, ... */
    uint32_t turn;                     /* gw_exchange_options.first_owner: the owners are dealt from this one on */
    gw_link link;                      /* if the workers own the slices; not used with servers */
    const struct gw_link_loans *loans; /* what the link has; NULL: nothing, or there is no link */
    /* if servers own the slices: the requests to them that are under way (exchange/servers.c); else NULL */
    struct servers *servers;
    uint64_t seed;
    uint32_t timeout_ms;
    uint64_t slice_max;       /* the most elements of a slice; also of a run that has several slices */
    bool one_group;           /* all tensors are one group, and share one number if they share any */
    bool skip_zero_gradients; /* gw_exchange_options.skip_zero_gradients */
    char *optimizer;          /* the servers' optimizer; NULL: averages come back */
    uint32_t n_tensors, n_groups;
    size_t state_bytes; /* of the states of all encoders */
    struct tensor *tensors;
    struct group *groups;
    struct gw_slice *slices; /* those of all groups; so are the runs */
    struct run *runs;
    uint32_t *order;
    char *hello;                /* what must be the same on all members: lines of text */
    uint32_t *by_machine;       /* ranks, machine by machine, ascending within one */
    struct machine *machine_of; /* the machine of each rank. By default, a rank is a machine of its own */
    uint64_t dense_bytes;       /* what pushes to the other owners would take in float32 */
    bool in_caller;             /* gw_exchange_wait runs the pipeline, so that all happens in the caller's thread */
    pthread_t thread;           /* the pipeline's, unless in_caller is set */

    /* Only the caller's thread uses these. */
    bool open; /* true between begin and wait. A second thread in gw_exchange_wait reads it under the lock */
    bool left; /* gw_exchange_leave was called */
    bool account_next;
    double rate_next;
    gw_wire wire;               /* as the options or gw_exchange_set say */
    bool has_wire_choice;       /* some tensor's encoder has a choice, and there is somebody to send to */
    struct gw_chooser chooser;  /* used if this member compares step times */
    double began, first_submit; /* clock: when this step began, and when its first tensor was submitted */

    /* Both threads use these, under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void *wake; /* a WAKE message, with which the caller wakes the pipeline; NULL while it is on its way */
    bool stop;
    bool leaves; /* the caller begins no more steps, and the pipeline has not told the others yet */
    bool begun;  /* the caller has begun a step that the pipeline has not seen yet */
    struct beginning beginning;
    uint32_t n_handed_over; /* tensors that the caller submitted in this step: those in to_measure */
    bool done;              /* the step has ended, and its result is complete */
    bool waiting;           /* a thread is in gw_exchange_wait */
    gw_wire told;           /* how rank 0 wanted the last step's averages, as these tell: that is what it has chosen */
    gw_status status;       /* below 0: the pipeline has ended; `error` says why */
    struct gw_kept_error error;

    /* Only the pipeline's thread uses these. */
    uint32_t step;
    /* counts operations, modulo 2^16. The messages of a step have this number */
    uint16_t nth_step;
    double rate;      /* the learning rate of the step's pushes, for owners that keep parameters */
    bool running;     /* a step has begun and is not done */
    bool others_know; /* the other members know already of the error that ends the pipeline */
    bool account;
    struct {
        bool said_hello;
        bool left;        /* the last thing that came from it was a farewell */
        double waited_at; /* the clock's time when it last said WAITING; 0: never */
    } * members;          /* by rank */
    uint32_t n_hellos;
    uint32_t leaver;        /* the rank that left first; `size`: none has */
    uint16_t leaver_step;   /* its nth_step */
    double said_waiting_at; /* the clock's time when it last said WAITING, ended a step, or was made */
    enum operation operation;
    bool together;        /* in this step, no tensor is encoded before all are measured */
    uint32_t n_measured;  /* groups of which all tensors are measured */
    uint32_t n_in_flight; /* groups that wait for other members */
    uint32_t n_through;   /* with an optimizer: how many groups have no push left to send in this step */
    uint32_t n_done;
    struct gw_buffers buffers;
    struct gw_message_queue early; /* messages of a step that this member has not begun */
    struct queue to_measure;       /* tensors that were submitted; the caller adds them, beyond what `n` says */
    struct queue to_encode;        /* groups; some runs of the first one may be encoded already */
    gw_encoder **encoders;         /* the encoders of all tensors, for gw_encoders_combine of a global codec */
    struct verdict verdict;
    gw_wire heard;        /* rank 0's choice, as this step's averages tell it; AUTO: none has come yet */
    gw_step_result tally; /* the caller reads it, and `traffic`, between steps */
    gw_tensor_traffic *traffic;
};

/* gw_exchange_create, with another GW_SLICE_MAX for tests. in_caller: it is for one step, which the caller's thread
 * makes by itself: gw_exchange_wait runs the pipeline. */
gw_status gw_exchange_create_as(gw_context *context, const gw_exchange_options *options, uint64_t slice_max,
                                bool in_caller, gw_exchange **out);

/* The number of the nth owner. After the last owner comes the first one again. */
static inline uint32_t gw_nth_owner(const struct gw_exchange *exchange, uint32_t nth)
{
    return exchange->first_owner + nth % exchange->n_owners;
}

/* init writes this member's first message, HELLO (exchange/hello.c); the groups must exist. check compares the HELLO of
 * another member with it. */
gw_status gw_hello_init(struct gw_exchange *exchange, const gw_exchange_options *options);
gw_status gw_hello_check(struct gw_exchange *exchange, const gw_message *message);

/* Counts frames, each for its tensor (exchange/account.c). The frames lie back to back in at[0..left). They must be
 * this worker's own, or have been checked. */
gw_status gw_account_frames(struct gw_exchange *exchange, const char *at, size_t left);

/* Finds the members that owe something to this one and have been silent for the timeout. If there are any, it stores
 * GW_ERR_TIMEOUT with a sentence that names them, and returns true. since: the clock's time when something last came
 * from anybody but WAITING, or when this member last worked. */
bool gw_silent_members(const struct gw_exchange *exchange, double since);

#endif
