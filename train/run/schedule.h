/* Learning rate schedules: the rate of a step as a function of its number. */
#ifndef GW_TRAIN_SCHEDULE_H
#define GW_TRAIN_SCHEDULE_H

#include <gradwire/status.h>
#include <stdint.h>

#define GW_SCHEDULE_MAX_DROPS 16

enum gw_schedule_kind { GW_SCHEDULE_CONST, GW_SCHEDULE_POLY, GW_SCHEDULE_STEP, GW_SCHEDULE_INVERSE };

struct gw_schedule {
    enum gw_schedule_kind kind;
    double power;                          /* poly */
    double half_step;                      /* inverse: the step at which the rate is half of the first one */
    uint32_t drops[GW_SCHEDULE_MAX_DROPS]; /* step: epochs, ascending */
    uint32_t n_drops;
};

/* const | poly:P | step:E1,E2,... | inverse:T0 */
gw_status gw_schedule_parse(const char *text, struct gw_schedule *schedule);

/* The rate of step t of n_steps: base; base * (1 - t/n_steps)^P; base divided by 10 at each of the epochs; base / (1 +
 * t/T0), the 1/t that SGD needs to converge on convex problems. */
double gw_schedule_rate(const struct gw_schedule *schedule, double base, uint64_t t, uint64_t n_steps,
                        uint64_t steps_per_epoch);

#endif
