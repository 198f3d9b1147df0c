/* What `bench exchange --profile` adds: plans of a profile, backward as sleeps, and what of the exchange was hidden
 * behind it. */
#ifndef GRADWIRE_BENCH_REPLAY_H
#define GRADWIRE_BENCH_REPLAY_H

#include "profile.h"

/* One plan of one codec. */
struct bench_plan {
    const char *name; /* as --plan has it */
    uint32_t group_of[GW_PLAN_MAX_LAYERS];
    uint32_t n_groups;
    double predicted_ms;       /* of a step; NAN: the profile does not have the codec */
    gw_group_times *predicted; /* of each group; NULL likewise */
    gw_group_times *measured;  /* rank 0's last run */
    double measured_ms;        /* that run's step, on rank 0 */
    double ready_ms;           /* the first group's last gradient is there, in a step that nothing holds up */
    double last_share;         /* of all elements, those of the last group */
};

/* Makes the plan that `name` (METHOD or fixed:BYTES) means for a codec. Returns 0, or an exit status with the message
 * printed. exact and paper need the codec's costs: the profile must have them. */
int bench_plan_make(const tool_profile *profile, const char *spec, const char *name, struct bench_plan *out);

void bench_plan_free(struct bench_plan *plan);

/* Keeps when each group of the last step went which way. */
gw_status bench_plan_note(const gw_profile *profile, struct bench_plan *plan, const gw_exchange *exchange,
                          double step_ms);

/* Forward and backward, without any exchange. */
double bench_compute_ms(const gw_profile *profile);

/* Sleeps until gw_clock_seconds() is `due`; not if that is less than 0.1 ms away, since many short sleeps of many
 * members would keep the processors busy. */
void bench_sleep_until(double due);

/* The share of the exchange that backward hid, of what it could have hidden; NAN if that is nothing.
 *
 * `after`: seconds of a step in which all gradients are handed over at the end of backward. So after - compute is the
 * exchange by itself, X. Hidden is after - overlapped. Backward can hide no more than what follows the first group, and
 * not the last group's exchange, which begins when backward ends: the last group's share of X, by its elements. */
double bench_hidden_share(const struct bench_plan *plan, double compute, double after, double overlapped);

#endif
