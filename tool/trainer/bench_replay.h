/* What `bench exchange --profile` adds: it makes plans of a profile, replays backward by sleeping, and computes how
 * much of the exchange was hidden behind backward. */
#ifndef GRADWIRE_BENCH_REPLAY_H
#define GRADWIRE_BENCH_REPLAY_H

#include "plan/timeline.h"
#include "profile.h"

/* One plan of one codec. */
struct bench_plan {
    const char *name; /* as --plan takes it */
    uint32_t group_of[GW_PLAN_MAX_LAYERS];
    uint32_t n_groups;
    double predicted_ms;       /* of a step; NAN: the profile does not have the codec */
    gw_group_times *predicted; /* the predicted times of each group; NULL: the profile does not have the codec */
    gw_group_times *measured;  /* rank 0's last run */
    double measured_ms;        /* that run's step, on rank 0 */
    double ready_ms;           /* when the first group's last gradient is there, in a step that nothing holds up */
    double last_share;         /* the last group's share of all elements */
};

/* Makes the plan that `name` (METHOD or fixed:BYTES) means for a codec. exact and paper need the codec's costs: the
 * profile must have them. */
int bench_plan_make(const tool_profile *profile, const char *spec, const char *name, struct bench_plan *out);

void bench_plan_free(struct bench_plan *plan);

/* Keeps the times of each group in the last step. */
gw_status bench_plan_note(const gw_profile *profile, struct bench_plan *plan, const gw_exchange *exchange,
                          double step_ms);

/* Forward and backward, without any exchange. */
double bench_compute_ms(const gw_profile *profile);

/* Sleeps until gw_clock_seconds() is `due`, but not if that is less than 0.1 ms away: many short sleeps of many members
 * would keep the processors busy. */
void bench_sleep_until(double due);

/* How much of the exchange backward has hidden, as a share of what it could hide. NAN: it could hide nothing. `after`:
 * seconds of a step in which all gradients are handed over at the end of backward. So after - compute is the exchange
 * by itself. Backward can hide no more than what follows the first group, and not the exchange of the last group, which
 * begins when backward ends. */
double bench_hidden_share(const struct bench_plan *plan, double compute, double after, double overlapped);

#endif
