/* Plans a run while it trains (--plan exact and --plan paper).
 *
 * The run begins with a group for each layer. Backward is timed in every step. After some steps the workers stop for a
 * moment and measure their link and their codec (gradwire/probe.h). Then rank 0 plans, and tells all. The exchange is
 * made anew with these groups, and takes over what the codec keeps. So results are the same bits as under any plan. */
#ifndef GW_TRAIN_LIVE_PLAN_H
#define GW_TRAIN_LIVE_PLAN_H

#include "net/network.h"

#include <gradwire/probe.h>

struct gw_team;
struct gw_worker;
struct gw_train_summary;

/* Steps before the first plan, and how many of the last ones are timed: the first steps of a process are slow. */
enum { GW_LIVE_PLAN_FIRST = 12, GW_LIVE_PLAN_TIMED = 9 };

struct gw_live_plan {
    gw_merge method;              /* 0: the groups of the run's beginning stand */
    uint64_t every;               /* steps from a plan to the next; 0: there is one plan */
    gw_codec *floats, *codecs[2]; /* floats, and the run's own behind them if it is another */
    gw_probe_options probe;       /* without links */
    gw_profile_layer layers[GW_MAX_TENSORS];
    char identity[128]; /* must be the same on all members (gw_exchange_options.identity) */

    /* Rank 0's: of the last steps, forward and then each tensor, in milliseconds. */
    double times[GW_LIVE_PLAN_TIMED][1 + GW_MAX_TENSORS];
    double last; /* when the gradient before was there */
    uint64_t step;

    /* Rank 0's, for reports. */
    uint32_t n_plans, n_groups;
    double predicted_ms, seconds; /* of a step; that all planning took */
};

/* Whether --plan is such a method. */
bool gw_live_plan_is(const char *plan);

/* Reads --plan and --replan of the team's options, and refuses what cannot be planned. Team's codec, network and
 * members stand. Does nothing if --plan is no such method. */
gw_status gw_live_plan_init(struct gw_team *team);
void gw_live_plan_free(struct gw_team *team);

/* A worker's step: it begins; backward begins (forward: NULL), or a tensor's gradient is there. */
void gw_live_plan_begin(struct gw_worker *worker, uint64_t step);
void gw_live_plan_note(struct gw_worker *worker, const uint32_t *tensor);

/* After a step, and if another follows: plans anew if it is time. All workers call it. */
gw_status gw_live_plan_after(struct gw_worker *worker, uint64_t step);

#endif
