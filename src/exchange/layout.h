/* What an exchange consists of: tensors, runs of slices, groups, machines (exchange/layout.c works them out), and how
 * far each has come in a step. */
#ifndef GW_EXCHANGE_LAYOUT_H
#define GW_EXCHANGE_LAYOUT_H

#include "exchange/verdict.h"
#include "link/loan.h"
#include "owner/round.h"

#include <gradwire/exchange.h>
#include <gradwire/link.h>

struct gw_exchange;

struct tensor {
    gw_encoder *encoder;
    uint64_t n_elems;
    bool summed;       /* averages of it can be averaged again, so a relay may add up its machine's pushes */
    uint64_t n_shared; /* how many shared numbers it has; they begin at shared_at among the group's */
    uint64_t shared_at;
    size_t state_at, state_bytes; /* where its encoder's state is in the exchange's */
    uint32_t group;
    bool has_wire_choice;
    float *gradient;    /* the caller's, from submit to the end of the step */
    double handed_over; /* the clock's time when the caller submitted it in this step; 0: not yet */
};

/* With these the gradient is sent from where it stands, and the averages are received there. */
struct run_loans {
    struct gw_loan push, pull;
};

/* Slices of one owner and one group that travel together. Each worker sends a run in one PUSH, and gets its averages in
 * one PULL. A run has at most about GW_SLICE_MAX elements. */
struct run {
    uint32_t index; /* in the group */
    uint32_t owner;
    uint64_t place;    /* in the order in which this member encodes the runs of the group */
    size_t first, n;   /* slices first .. first + n - 1 of the group */
    size_t push_bound; /* bytes of a PUSH, header included */
    uint64_t n_elems;

    /* What this member knows of it as a worker. */
    bool pushed, pulled;

    /* What this member knows of it as its owner, or as the relay of its machine (relay.h). Else round is NULL. */
    struct gw_round *round;
    /* for each slice: the owner's own gradient, which it adds without a frame. NULL: the owner sends frames to itself,
     * as to others */
    struct gw_own *own;
    bool own_in;             /* the owner's own part of this step is in */
    struct run_loans *loans; /* NULL: its floats are copied */
    gw_message *pushes;      /* the PUSH of each rank that sends here; bytes NULL: it has not come yet */
    uint32_t n_expected;     /* how many workers' parts must come: those of all, or those of this machine */
    uint32_t n_in;           /* how many of these have come */
    struct verdict push_verdict;
};

/* How far this member, as a worker, has come with a group. */
enum group_state { GROUP_MEASURING, GROUP_WAITS_SHARED, GROUP_WAITS_PULLS, GROUP_DONE };

struct group {
    uint32_t index;
    uint32_t n_tensors;
    struct gw_slice *slices; /* by owner, tensor, begin; those of an owner that stand alone come last */
    struct run *runs;        /* by owner, and then in the order of their slices. An owner without a slice has no run */
    uint32_t n_runs;
    uint32_t *order;   /* the order in which this member encodes the runs */
    uint64_t n_shared; /* how many shared numbers all its tensors have */
    uint64_t n_sent;   /* how many numbers STATS and SHARED carry: n_shared, or 1 if the codec is global */
    uint32_t coordinator;

    /* What this member knows of it as a worker. */
    enum group_state state;
    uint32_t n_measured, n_pushed, n_pulled;
    struct verdict own_verdict; /* of this worker's gradients */
    struct verdict verdict;     /* of all workers' gradients, as far as others have said */
    float *numbers;             /* n_shared numbers: first this worker's own, as measured; later the shared ones */
    gw_group_moments moments;   /* clock times, not seconds since begin */

    /* What this member knows of it as the coordinator. If it is not, the pointers are NULL. */
    float *largest;   /* n_sent numbers: the largest so far */
    bool *have_stats; /* for each rank: its STATS have come */
    uint32_t n_stats;
    struct verdict stats_verdict;
};

/* The workers of one machine: ranks by_machine[first] .. by_machine[first + n - 1] of the exchange. */
struct machine {
    uint32_t first, n;
};

/* Works out machines, groups, slices and runs, and whether this member owns, coordinates or relays each of them. The
 * tensors' encoders must exist, and the owners must be known. machine_of: the machine of every rank; NULL: each rank is
 * a machine of its own. gw_layout_fini frees what the call has taken, also after an error. */
gw_status gw_layout_init(struct gw_exchange *exchange, const uint32_t *group_of, const uint32_t *machine_of);
void gw_layout_fini(struct gw_exchange *exchange);

/* The link's machine_of if there are several machines. Else NULL: to add up within machines first would save nothing.
 */
const uint32_t *gw_layout_machines(const gw_link *link);

#endif
