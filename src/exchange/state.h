/* The inside of an exchange: what the caller's thread and the pipeline share, and what is the pipeline's own. */
#ifndef GW_EXCHANGE_STATE_H
#define GW_EXCHANGE_STATE_H

#include "exchange/buffers.h"
#include "exchange/chooser.h"
#include "exchange/layout.h"
#include "exchange/message.h"
#include "exchange/owners.h"
#include "link/message.h"

#include <gradwire/exchange.h>

#include <pthread.h>

/* What the members do together between begin and wait: average gradients, or move parameters to and from servers. */
enum errand { ERRAND_STEP, ERRAND_INIT, ERRAND_PULL };

/* What the pipeline has still to do, each by its number, first in, first out. A step puts each number there once. */
struct queue {
    uint32_t *numbers;
    uint32_t n, n_done;
};

struct gw_exchange {
    /* Fixed at create. */
    gw_context *context;
    const gw_codec *codec;
    const struct gw_owners *owners;
    uint32_t rank, size;            /* of the workers */
    uint32_t n_owners, first_owner; /* their numbers are first_owner, first_owner + 1, ... */
    gw_link link;                   /* of peers; servers need none */
    struct servers *servers;        /* how far they are, if they are the owners (exchange/servers.c) */
    uint64_t seed;
    uint32_t timeout_ms;
    uint64_t slice_max; /* elements of a slice, and of a run of several */
    bool global;        /* one decision for all tensors */
    bool zero_rests;    /* gw_exchange_options.zero_rests */
    char *optimizer;    /* the servers'; NULL: averages come back */
    uint32_t n_tensors, n_groups;
    struct tensor *tensors;
    struct group *groups;
    struct gw_slice *slices;
    char *hello;                /* what must be the same on all members: lines of text */
    uint32_t *by_machine;       /* ranks, machine by machine, ascending within one */
    struct machine *machine_of; /* of each rank; a rank of which nothing is said is a machine of its own */
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
    void *wake; /* what calls the pipeline's attention, a WAKE message; NULL while it is under way */
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
    uint32_t n_in_flight; /* groups that wait for other members */
    uint32_t n_through;   /* with an optimizer: groups whose pushes have left, or that have none */
    uint32_t n_done;
    struct gw_buffers buffers;
    struct gw_message_queue early; /* messages of a step that this member has not begun */
    struct queue to_measure;       /* tensors that were submitted */
    struct queue to_encode;        /* groups, the first of them perhaps in part */
    gw_encoder **encoders;         /* of a global codec, while they combine */
    struct verdict verdict;
    gw_wire heard; /* in this step; AUTO: nothing yet */
    gw_step_result tally;
    gw_tensor_traffic *counting;
};

/* gw_exchange_create with another GW_SLICE_MAX, for tests. */
gw_status gw_exchange_create_cut(gw_context *context, const gw_exchange_options *options, uint64_t slice_max,
                                 gw_exchange **out);

/* The number of the nth owner, counted around. */
static inline uint32_t gw_nth_owner(const struct gw_exchange *exchange, uint32_t nth)
{
    return exchange->first_owner + nth % exchange->n_owners;
}

/* Puts together what this member says first (exchange/hello.c), and checks what another said; the groups stand. */
gw_status gw_hello_init(struct gw_exchange *exchange, const gw_exchange_options *options);
gw_status gw_hello_check(struct gw_exchange *exchange, const gw_message *message);

/* Adds frames, one behind the other, to the accounts of their tensors (exchange/account.c). They are this worker's own
 * or were checked. */
gw_status gw_account_frames(struct gw_exchange *exchange, const char *at, size_t left);

/* Finds the members that the pipeline waits for. If one of them has not sent what it owes, this stores GW_ERR_TIMEOUT
 * with a sentence that names it, and returns true. A member that may itself wait for another one is named only if `any`
 * is true. */
bool gw_silent_members(const struct gw_exchange *exchange, bool any);

#endif
