/* What an exchange consists of: tensors, runs of slices, groups, machines (exchange/layout.c works them out), and how
 * far each has come in a step. */
#ifndef GW_EXCHANGE_LAYOUT_H
#define GW_EXCHANGE_LAYOUT_H

#include "exchange/verdict.h"
#include "owner/round.h"

#include <gradwire/exchange.h>
#include <gradwire/link.h>

struct gw_exchange;
struct gw_exchange_options;

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

/* Works out machines, groups, slices, runs and what this member is to each of them. The tensors' encoders stand, and
 * the owners are known. machine_of: of every rank; NULL: each is a machine of its own. What it has taken so far is
 * freed by gw_layout_fini, after an error too. */
gw_status gw_layout_init(struct gw_exchange *exchange, const uint32_t *group_of, const uint32_t *machine_of);
void gw_layout_fini(struct gw_exchange *exchange);

/* What the link says of machines, if adding up within them first saves something; else NULL. */
const uint32_t *gw_layout_machines(const gw_link *link);

#endif
