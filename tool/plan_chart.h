/* The chart of a step's timeline, as DLGS draws it (figures 3 and 4). */
#ifndef GRADWIRE_PLAN_CHART_H
#define GRADWIRE_PLAN_CHART_H

#include "plan/timeline.h"
#include <gradwire/plan.h>
#include <stddef.h>

/* One plan's step. The caller owns all that it points to. */
typedef struct tool_timeline {
    const char *label; /* "exact" */
    const gw_group_times *times;
    uint32_t n_groups;
    double step_ms;
} tool_timeline;

/* Draws the steps one under the other, on one scale: backward, encoding, sending and arrival, a colour for each group
 * in turn. Writes the chart to `path`. */
int tool_plan_chart(const gw_profile *profile, gw_compress compress, const char *title, const tool_timeline *steps,
                    size_t n_steps, const char *path);

#endif
