/* gradwire plan: finds which layers of a profile should travel together, and shows the step that this gives. */
#include "plan/timeline.h"
#include "plan/profile.h"
#include "base/error.h"
#include "base/quote.h"
#include "plan_chart.h"
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>

/* The plan of one method. */
struct planned {
    uint32_t n_groups;
    gw_group_times *times;
    double step_ms;
};

/* What the command has found out: the plans of all methods that take no bytes, and that of --method. */
struct plans {
    tool_profile profile;
    uint32_t codec;
    const char *name; /* --method as it was given */
    gw_merge method;
    uint64_t bytes;
    uint32_t *group_of; /* room for one plan */
    gw_group_times *times;
    struct planned of[GW_MERGE_FIXED + 1]; /* by the method's number */
};

static gw_status make_plans(struct plans *p)
{
    const gw_profile *profile = &p->profile.profile;
    for (gw_merge m = GW_MERGE_EXACT; m <= (p->method == GW_MERGE_FIXED ? GW_MERGE_FIXED : GW_MERGE_FIXED - 1); m++) {
        struct planned *plan = &p->of[m];
        plan->times = p->times + (size_t)m * profile->n_layers;
        GW_TRY(gw_plan_merge(NULL, profile, p->codec, p->profile.compress, m, m == GW_MERGE_FIXED ? p->bytes : 0,
                             p->group_of, &plan->n_groups, NULL));
        GW_TRY(gw_plan_timeline(profile, p->codec, p->profile.compress, p->group_of, plan->times, profile->n_layers,
                                &plan->step_ms));
    }
    return GW_OK;
}

/* If there is no --codec, takes the codec whose step is the shortest by this method. */
static gw_status choose_codec(struct plans *p)
{
    double best = 0;
    for (uint32_t c = 0; c < p->profile.profile.n_codecs; c++) {
        double step_ms;
        GW_TRY(gw_plan_merge(NULL, &p->profile.profile, c, p->profile.compress, p->method, p->bytes, p->group_of, NULL,
                             &step_ms));
        if (c == 0 || step_ms < best) {
            best = step_ms;
            p->codec = c;
        }
    }
    return GW_OK;
}

static json_t *groups_json(const gw_profile *p, const struct planned *plan)
{
    json_t *groups = json_array();
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        const gw_group_times *t = &plan->times[g];
        json_t *names = json_array();
        for (uint32_t l = t->first_layer + t->n_layers; l-- > t->first_layer;)
            json_array_append_new(names, json_string(p->layers[l].name));
        json_array_append_new(groups, names);
    }
    return groups;
}

static json_t *timeline_json(const struct planned *plan)
{
    json_t *timeline = json_array();
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        const gw_group_times *t = &plan->times[g];
        json_array_append_new(timeline, json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f}", "elements",
                                                  (json_int_t)t->n_elems, "ready_ms", t->ready, "encode_begin_ms",
                                                  t->encode_begin, "encode_end_ms", t->encode_end, "send_begin_ms",
                                                  t->send_begin, "send_end_ms", t->send_end, "arrived_ms", t->arrived));
    }
    return timeline;
}

static int print_json(const struct plans *p)
{
    const struct planned *plan = &p->of[p->method];
    return tool_print_json(json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:f, s:o}", "method", p->name, "codec",
                                     p->profile.codecs[p->codec].spec, "compress",
                                     gw_compress_name(p->profile.compress), "groups",
                                     groups_json(&p->profile.profile, plan), "step_ms", plan->step_ms, "step_ms_none",
                                     p->of[GW_MERGE_NONE].step_ms, "step_ms_single", p->of[GW_MERGE_SINGLE].step_ms,
                                     "step_ms_paper", p->of[GW_MERGE_PAPER].step_ms, "step_ms_exact",
                                     p->of[GW_MERGE_EXACT].step_ms, "timeline", timeline_json(plan)));
}

static int print_text(const struct plans *p)
{
    const gw_profile *profile = &p->profile.profile;
    const struct planned *plan = &p->of[p->method];
    printf("%s, %u layers, %u members; compression runs %s\n\n%-12s %10s %10s\n",
           gw_quote(p->profile.codecs[p->codec].spec).text, profile->n_layers, profile->link.members,
           p->profile.compress == GW_COMPRESS_INLINE ? "inline" : "beside backward", "method", "step, ms", "to exact");
    const double exact = p->of[GW_MERGE_EXACT].step_ms;
    for (gw_merge m = GW_MERGE_EXACT; m <= GW_MERGE_FIXED; m++)
        if (p->of[m].times)
            printf("%-12s %10.3f %9.1f%%\n", m == p->method ? p->name : gw_merge_name(m), p->of[m].step_ms,
                   exact > 0 ? 100 * (p->of[m].step_ms / exact - 1) : 0);
    printf("\n%s, groups: %u; milliseconds from the step's begin\n%5s %6s %12s %10s %10s %10s %10s  %s\n", p->name,
           plan->n_groups, "group", "layers", "elements", "ready", "encoded", "sent", "arrived", "from ... to");
    for (uint32_t g = 0; g < plan->n_groups; g++) {
        const gw_group_times *t = &plan->times[g];
        printf("%5u %6u %12llu %10.3f %10.3f %10.3f %10.3f  %s", g, t->n_layers, (unsigned long long)t->n_elems,
               t->ready, t->encode_end, t->send_end, t->arrived,
               gw_quote(profile->layers[t->first_layer + t->n_layers - 1].name).text);
        if (t->n_layers > 1)
            printf(" ... %s", gw_quote(profile->layers[t->first_layer].name).text);
        putchar('\n');
    }
    return tool_finish_output();
}

/* Draws the plan. Below it come the plans of all other methods. */
static int draw(const struct plans *p, const char *path)
{
    const gw_profile *profile = &p->profile.profile;
    tool_timeline steps[1 + GW_MERGE_FIXED];
    size_t n_steps = 0;
    for (gw_merge m = 0; m <= GW_MERGE_FIXED; m++) { /* 0: the plan itself, which comes first */
        const struct planned *plan = &p->of[m == 0 ? p->method : m];
        if (m != p->method && plan->times)
            steps[n_steps++] =
                (tool_timeline){m == 0 ? p->name : gw_merge_name(m), plan->times, plan->n_groups, plan->step_ms};
    }
    char title[200];
    snprintf(title, sizeof title, "%s, %u layers, %u members", p->profile.codecs[p->codec].spec, profile->n_layers,
             profile->link.members);
    return tool_plan_chart(profile, p->profile.compress, title, steps, n_steps, path);
}

int gw_cmd_plan(int argc, char **argv)
{
    struct plans p = {.name = "exact"};
    const char *path = NULL, *spec = NULL, *compress = NULL, *chart = NULL;
    bool json = false;
    const tool_option options[] = {
        {"--profile", "FILE", "what was measured: a PROFILE.json of gradwire probe", TOOL_TEXT, &path},
        {"--codec", "SPEC", "one of the profile's codecs. Default: the one whose step is the shortest", TOOL_TEXT,
         &spec},
        {"--method", "METHOD",
         "exact: the shortest step there is; paper: DLGS, algorithm 2; none: a group for each layer; single: one "
         "group; fixed:BYTES: groups of so many bytes of float32, as buckets of PyTorch (25MiB) and Horovod (64MiB). "
         "Default: exact",
         TOOL_TEXT, &p.name},
        {"--compress", "HOW", TOOL_COMPRESS_HELP, TOOL_TEXT, &compress},
        {"-o", "CHART.svg",
         "draws the step: backward, encoding and sending of each group, by this plan and by the other "
         "methods'",
         TOOL_OUTPUT, &chart},
        {"--json", NULL, "one JSON object on standard output", TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "plan --profile PROFILE.json [options]",
        .about = "Says which layers should travel together so that a step is short, and what each method of merging "
                 "gives. Nothing is measured here: gradwire probe does that.",
        .example = "gradwire plan --profile PROFILE.json --codec ternary --method exact",
        TOOL_OPTIONS(options),
        .args = "plan takes no files but --profile",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!path)
        return tool_wrong_use("--profile is missing; gradwire probe measures one");
    TOOL_TRY(tool_check_apart("-o", chart, "--profile", path));
    TOOL_TRY(tool_parse_merge("--method", p.name, &p.method, &p.bytes));
    TOOL_TRY(tool_profile_read(path, compress, &p.profile));
    p.group_of = tool_alloc(p.profile.profile.n_layers, sizeof *p.group_of);
    p.times = tool_alloc((uint64_t)(GW_MERGE_FIXED + 1) * p.profile.profile.n_layers, sizeof *p.times);
    int status = !p.group_of || !p.times ? TOOL_FAILED
                 : spec                  ? tool_profile_codec(&p.profile, spec, &p.codec)
                                         : tool_exit_status(choose_codec(&p), path);
    if (status == TOOL_DONE)
        status = tool_exit_status(make_plans(&p), path);
    if (status == TOOL_DONE)
        status = (json ? print_json : print_text)(&p);
    if (status == TOOL_DONE && chart)
        status = draw(&p, chart);
    free(p.group_of);
    free(p.times);
    tool_profile_free(&p.profile);
    return status;
}
