/* Times backward, measures link and codec between two steps, and makes the exchange anew with the plan's groups. */
#include "plan/profile.h"
#include "run/live_plan.h"
#include "base/append.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "probe/gradient.h"
#include "probe/meeting.h"
#include "run/team.h"

#include <string.h>

enum { LEAST_ELEMENTS = 1 << 20 };

static bool is(const char *plan, gw_merge method)
{
    return strcmp(plan, gw_merge_name(method)) == 0;
}

bool gw_live_plan_is(const char *plan)
{
    return is(plan, GW_MERGE_EXACT) || is(plan, GW_MERGE_PAPER);
}

/* ---- before the run ------------------------------------------------------------------------- */

static gw_status check(const struct gw_team *team)
{
    const struct gw_train_options *o = team->options;
    const char *advice = "; make a plan beforehand (gradwire probe, gradwire plan --json) and give its file";
    if (team->network.convex)
        return gw_fail(GW_ERR_ARGUMENT, "--plan is %s, and %s has one tensor: there is nothing to plan", o->plan,
                       o->net);
    if (gw_codec_traits_of(team->codec).one_group)
        return gw_fail(GW_ERR_ARGUMENT, "--plan is %s, and %s decides for all tensors at once: they are one group",
                       o->plan, o->codec);
    if (team->members->servers.servers)
        return gw_fail(GW_ERR_ARGUMENT, "--plan is %s, and parameter servers keep the groups of a run's beginning%s",
                       o->plan, advice);
    return GW_OK;
}

gw_status gw_live_plan_init(struct gw_team *team)
{
    struct gw_live_plan *live = &team->live;
    const struct gw_train_options *o = team->options;
    if (!gw_live_plan_is(o->plan))
        return o->replan
                   ? gw_fail(GW_ERR_ARGUMENT,
                             "--replan is for --plan exact and --plan paper, which measure; --plan is %s", o->plan)
                   : GW_OK;
    GW_TRY(check(team));
    if (o->workers == 1) {
        gw_train_note(team->callbacks, "--plan %s plans nothing: one worker has nobody to exchange with", o->plan);
        return GW_OK;
    }
    live->method = is(o->plan, GW_MERGE_EXACT) ? GW_MERGE_EXACT : GW_MERGE_PAPER;
    snprintf(live->identity, sizeof live->identity, "plan = %s\nreplan = %llu\n", o->plan,
             (unsigned long long)o->replan);
    uint64_t n = 0;
    for (uint32_t t = 0; t < team->network.n_tensors; t++) {
        live->layers[t] = (gw_profile_layer){team->network.tensors[t].name, team->network.tensors[t].n_elems, 0};
        n += live->layers[t].n_elems;
    }
    /* Measures only a few times, and no groups much larger than the network. All workers wait meanwhile. */
    live->probe = (gw_probe_options){.struct_bytes = sizeof live->probe,
                                     .codecs = live->codecs,
                                     .layers = live->layers,
                                     .n_layers = team->network.n_tensors,
                                     .most_elements = n > LEAST_ELEMENTS ? n : LEAST_ELEMENTS,
                                     .timeout_ms = o->timeout_s * 1000};
    GW_TRY(gw_codec_parse(team->context, "none", &live->codecs[live->probe.n_codecs++]));
    if (strcmp(gw_codec_traits_of(team->codec).name, "none") != 0)
        live->codecs[live->probe.n_codecs++] = team->codec;
    return GW_OK;
}

/* ---- in every step -------------------------------------------------------------------------- */

void gw_live_plan_begin(struct gw_worker *w, uint64_t step)
{
    struct gw_live_plan *live = &w->team->live;
    if (!live->method || w->rank > 0)
        return;
    live->step = step;
    live->last = gw_clock_seconds();
}

void gw_live_plan_note(struct gw_worker *w, const uint32_t *tensor)
{
    struct gw_live_plan *live = &w->team->live;
    if (!live->method || w->rank > 0)
        return;
    const double now = gw_clock_seconds();
    live->times[live->step % GW_LIVE_PLAN_TIMED][tensor ? 1 + *tensor : 0] = 1e3 * (now - live->last);
    live->last = now;
}

/* ---- planning ------------------------------------------------------------------------------- */

/* The median over the timed steps: of forward (which 0), or of a tensor. */
static double typical_ms(const struct gw_live_plan *live, uint32_t which)
{
    double ms[GW_LIVE_PLAN_TIMED];
    for (int i = 0; i < GW_LIVE_PLAN_TIMED; i++)
        ms[i] = live->times[i][which];
    return gw_median(ms, GW_LIVE_PLAN_TIMED);
}

/* Rank 0: makes the plan, and notes the time of a step that it predicts. */
static gw_status make_plan(struct gw_worker *w, const gw_profile_link *link, const gw_profile_codec *costs,
                           uint32_t *group_of)
{
    struct gw_live_plan *live = &w->team->live;
    const uint32_t n = w->team->network.n_tensors, codec = live->probe.n_codecs - 1;
    gw_profile_layer layers[GW_MAX_TENSORS];
    for (uint32_t t = 0; t < n; t++)
        layers[t] = (gw_profile_layer){live->layers[t].name, live->layers[t].n_elems, typical_ms(live, 1 + t)};
    const gw_profile profile = {.struct_bytes = sizeof profile,
                                .forward_ms = typical_ms(live, 0),
                                .layers = layers,
                                .n_layers = n,
                                .link = *link,
                                .codecs = costs,
                                .n_codecs = live->probe.n_codecs};
    return gw_plan_merge(w->team->context, &profile, codec, GW_COMPRESS_BESIDE, live->method, 0, group_of,
                         &live->n_groups, &live->predicted_ms);
}

/* Checks the groups, because the other end may have any version: they must be 0, 1, ..., and none may be empty. */
static gw_status check_groups(const struct gw_worker *w, const uint32_t *group_of)
{
    const uint32_t n = w->team->network.n_tensors;
    uint32_t group = 0;
    for (uint32_t t = n; t-- > 0; group = group_of[t])
        if (t + 1 == n ? group_of[t] != 0 : group_of[t] != group && group_of[t] != group + 1)
            return gw_fail(GW_ERR_PEER, "rank 0 sent groups that are no plan: it is another version");
    return GW_OK;
}

/* All workers measure together. Nothing else is on the exchange's link. If one is asked to stop, no plan is made: the
 * groups stay, and the run ends at the next step. */
static gw_status measure(struct gw_worker *w)
{
    const struct gw_team *team = w->team;
    gw_probe_options options = team->live.probe;
    options.exchange = gw_team_link(team, GW_TEAM_EXCHANGE, w->index);
    options.exchange.machine_of = team->grouped ? team->machine_of : NULL; /* as in the run's exchange */
    options.meeting = gw_team_link(team, GW_TEAM_PLAN, w->index);
    const struct gw_meeting meeting = {.context = team->context,
                                       .link = options.meeting,
                                       .timeout_ms = options.timeout_ms};
    gw_profile_link link;
    gw_profile_codec costs[2];
    if (team->callbacks && w->index == 0)
        options.stop = team->callbacks->stop, options.stop_user = team->callbacks->user;
    GW_TRY(gw_probe_measure(team->context, &options, &link, costs));
    if (w->rank == 0) /* only rank 0's times of backward count */
        GW_TRY(make_plan(w, &link, costs, w->group_of));
    GW_TRY(gw_meeting_tell(&meeting, w->group_of, team->network.n_tensors * sizeof *w->group_of));
    return check_groups(w, w->group_of);
}

static void tell(struct gw_worker *w, uint64_t steps, double seconds)
{
    const struct gw_team *team = w->team;
    struct gw_live_plan *live = &w->team->live;
    char text[400] = "";
    const char *between = "";
    live->n_plans++;
    live->seconds += seconds;
    for (uint32_t t = team->network.n_tensors; t-- > 0;) {
        gw_append(text, sizeof text, "%s%s", between, team->network.tensors[t].name);
        between = t > 0 && w->group_of[t - 1] == w->group_of[t] ? "+" : ", ";
    }
    gw_train_note(team->callbacks,
                  "planned after %llu steps (%s): %u group%s, %.2f ms a step predicted; took %.1f s: %s",
                  (unsigned long long)steps, team->options->plan, live->n_groups, live->n_groups == 1 ? "" : "s",
                  live->predicted_ms, seconds, text);
}

static gw_status plan_anew(struct gw_worker *w, uint64_t steps)
{
    const double begin = gw_clock_seconds();
    bool stopped = false;
    size_t n_bytes;
    GW_TRY(gw_exchange_save(w->exchange, NULL, 0, &n_bytes));
    void *state = gw_alloc(NULL, n_bytes, 1);
    gw_status status = state ? gw_exchange_save(w->exchange, state, n_bytes, &n_bytes) : GW_ERR_MEMORY;
    if (status == GW_OK) {
        gw_exchange_destroy(w->exchange);
        w->exchange = NULL;
        status = measure(w);
        stopped = status == GW_ERR_CLOSED; /* if the link is closed, it makes no exchange either */
    }
    if (status == GW_OK || stopped)
        status = gw_worker_exchange(w, NULL);
    const void *const states[] = {state};
    if (status == GW_OK && n_bytes > 0)
        status = gw_exchange_load(w->exchange, states, 1, n_bytes);
    gw_free(NULL, state);
    w->n_comparisons = 0;
    if (status == GW_OK && !stopped && w->rank == 0)
        tell(w, steps, gw_clock_seconds() - begin);
    return status;
}

gw_status gw_live_plan_after(struct gw_worker *w, uint64_t step)
{
    const uint64_t made = step + 1 - w->team->begin, every = w->team->options->replan;
    if (!w->team->live.method || made < GW_LIVE_PLAN_FIRST)
        return GW_OK;
    const bool due = every ? (made - GW_LIVE_PLAN_FIRST) % every == 0 : made == GW_LIVE_PLAN_FIRST;
    return due ? plan_anew(w, step + 1) : GW_OK;
}
