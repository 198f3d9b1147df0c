/* Reads --plan: which tensors of a network travel together. Plans a run while it trains (--plan exact and --plan
 * paper).
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
    gw_merge method;        /* 0: the groups of the beginning stay */
    gw_codec *codecs[2];    /* floats, its own; then the run's codec if it is another one */
    gw_probe_options probe; /* the options of the probe, without links */
    gw_profile_layer layers[GW_MAX_TENSORS];
    char identity[128]; /* must be the same on all members (gw_exchange_options.identity) */

    /* Rank 0's: times of the last steps in milliseconds, of forward and then of each tensor. */
    double times[GW_LIVE_PLAN_TIMED][1 + GW_MAX_TENSORS];
    double last; /* when the gradient before this one was there */
    uint64_t step;

    /* Rank 0's, for reports. */
    uint32_t n_plans, n_groups;
    double predicted_ms, seconds; /* predicted time of a step; seconds that all planning took */
};

/* Finds the groups at the beginning (plan.c), for `plan`: none (a group for each layer), single (one group),
 * fixed:BYTES (a group ends with the tensor that brings it to so many bytes of float32, last layer first), or a file
 * that `gradwire plan --json` wrote for this network; exact and paper begin as none. Errors: GW_ERR_ARGUMENT (no such
 * plan, or the file's groups are not of this network's tensors), GW_ERR_SYSTEM (the file cannot be read). */
gw_status gw_plan_read(const struct gw_network *network, const char *plan, uint32_t *group_of);

/* True if --plan is exact or paper. */
bool gw_live_plan_is(const char *plan);

/* Reads --plan and --replan of the team's options, and refuses what cannot be planned. The team's codec, network and
 * members must be set. It does nothing if --plan is no such method. */
gw_status gw_live_plan_init(struct gw_team *team);

/* begin: a worker's step begins. note: backward begins (tensor NULL), or the gradient of a tensor is there. */
void gw_live_plan_begin(struct gw_worker *worker, uint64_t step);
void gw_live_plan_note(struct gw_worker *worker, const uint32_t *tensor);

/* All workers call it after a step, if another step follows. It makes a new plan if it is time for one. */
gw_status gw_live_plan_after(struct gw_worker *worker, uint64_t step);

#endif
