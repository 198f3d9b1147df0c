/* Replays a profile: makes its plans, sleeps through its backward, and works out what of the exchange was hidden. */
#include "bench_replay.h"
#include "base/clock.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

double bench_compute_ms(const gw_profile *profile)
{
    double ms = profile->forward_ms;
    for (uint32_t l = profile->n_layers; l-- > 0;)
        ms += profile->layers[l].backward_ms;
    return ms;
}

static void describe(const gw_profile *p, struct bench_plan *plan)
{
    double ready = p->forward_ms, all = 0, last = 0;
    for (uint32_t l = p->n_layers; l-- > 0;) {
        const double n = (double)p->layers[l].n_elems;
        all += n;
        last += plan->group_of[l] == plan->n_groups - 1 ? n : 0;
        if (plan->group_of[l] == 0)
            ready += p->layers[l].backward_ms;
    }
    plan->ready_ms = ready;
    plan->last_share = last / all;
}

int bench_plan_make(const tool_profile *profile, const char *spec, const char *name, struct bench_plan *out)
{
    gw_merge method;
    uint64_t bytes;
    uint32_t codec = 0;
    *out = (struct bench_plan){.name = name}; /* bench_plan_free can take it from here on, whatever fails */
    TOOL_TRY(tool_parse_merge("--plan", name, &method, &bytes));
    const bool needs_costs = method == GW_MERGE_EXACT || method == GW_MERGE_PAPER;
    const bool has_codec = tool_profile_has_codec(profile, spec, &codec);
    if (needs_costs && !has_codec)
        return tool_profile_codec(profile, spec, &codec);
    gw_status made = gw_plan_merge(NULL, &profile->profile, has_codec ? codec : 0, profile->compress, method, bytes,
                                   out->group_of, &out->n_groups, &out->predicted_ms);
    const uint32_t n = profile->profile.n_layers;
    if (made == GW_OK) {
        out->measured = tool_alloc(n, sizeof *out->measured);
        out->predicted = has_codec ? tool_alloc(n, sizeof *out->predicted) : NULL;
        if (!out->measured || (has_codec && !out->predicted))
            return TOOL_FAILED;
        if (has_codec)
            made = gw_plan_timeline(&profile->profile, codec, profile->compress, out->group_of, out->predicted, n,
                                    &out->predicted_ms);
        else
            out->predicted_ms = NAN;
    }
    if (made < 0)
        return tool_exit_status(made, NULL);
    describe(&profile->profile, out);
    return 0;
}

void bench_plan_free(struct bench_plan *plan)
{
    if (!plan)
        return;
    free(plan->measured);
    free(plan->predicted);
    free(plan);
}

gw_status bench_plan_note(const gw_profile *profile, struct bench_plan *plan, const gw_exchange *exchange,
                          double step_ms)
{
    uint32_t end = profile->n_layers;
    plan->measured_ms = step_ms;
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        gw_group_moments m;
        GW_TRY(gw_exchange_stats(exchange, &(gw_stats){.group = g, .moments = &m}));
        uint32_t first = end;
        while (first > 0 && plan->group_of[first - 1] == g)
            first--;
        plan->measured[g] = (gw_group_times){.first_layer = first,
                                             .n_layers = end - first,
                                             .ready = 1e3 * m.ready,
                                             .encode_begin = 1e3 * m.encoding,
                                             .encode_end = 1e3 * m.pushed,
                                             .send_begin = 1e3 * m.pushed,
                                             .send_end = 1e3 * m.arrived,
                                             .arrived = 1e3 * m.arrived};
        end = first;
    }
    return GW_OK;
}

#define SHORTEST_SLEEP_S 1e-4

void bench_sleep_until(double due)
{
    if (due >= gw_clock_seconds() + SHORTEST_SLEEP_S)
        gw_clock_sleep_until(due);
}

double bench_hidden_share(const struct bench_plan *plan, double compute, double after, double overlapped)
{
    const double exchange = after - compute;
    const double possible = fmin(exchange * (1 - plan->last_share), compute - 1e-3 * plan->ready_ms);
    return possible > 0 ? (after - overlapped) / possible : NAN;
}
