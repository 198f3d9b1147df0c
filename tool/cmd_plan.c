/* gradwire plan: finds which layers of a profile should travel together, and shows the step that this gives. */
#include "plan/timeline.h"
#include "plan/profile.h"
#include "base/quote.h"
#include "plan_chart.h"
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct planned {
    uint32_t *group_of, n_groups;
    gw_group_times *times;
    double step_ms;
    double others[GW_MERGE_FIXED]; /* step times of the methods that take no bytes, by their numbers */
};

static gw_status make_plan(const tool_profile *p, uint32_t codec, gw_compress compress, gw_merge method, uint64_t bytes,
                           struct planned *out)
{
    gw_status status = GW_OK;
    for (gw_merge m = GW_MERGE_EXACT; m < GW_MERGE_FIXED && status == GW_OK; m++)
        status = gw_plan_merge(NULL, &p->profile, codec, compress, m, 0, out->group_of, NULL, &out->others[m]);
    if (status == GW_OK)
        status = gw_plan_merge(NULL, &p->profile, codec, compress, method, bytes, out->group_of, &out->n_groups,
                               &out->step_ms);
    if (status == GW_OK)
        status = gw_plan_timeline(&p->profile, codec, compress, out->group_of, out->times, p->profile.n_layers,
                                  &out->step_ms);
    return status;
}

/* If there is no --codec, takes the codec whose step is the shortest by this method. */
static gw_status choose_codec(const tool_profile *p, gw_compress compress, gw_merge method, uint64_t bytes,
                              uint32_t *group_of, uint32_t *codec)
{
    double best = 0;
    for (uint32_t c = 0; c < p->profile.n_codecs; c++) {
        double step_ms;
        gw_status status = gw_plan_merge(NULL, &p->profile, c, compress, method, bytes, group_of, NULL, &step_ms);
        if (status < 0)
            return status;
        if (c == 0 || step_ms < best) {
            best = step_ms;
            *codec = c;
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

static int print_json(const tool_profile *p, uint32_t codec, gw_compress compress, const char *method,
                      const struct planned *plan)
{
    return tool_print_json(json_pack("{s:s, s:s, s:s, s:o, s:f, s:f, s:f, s:f, s:f, s:o}", "method", method, "codec",
                                     p->codecs[codec].spec, "compress", gw_compress_name(compress), "groups",
                                     groups_json(&p->profile, plan), "step_ms", plan->step_ms, "step_ms_none",
                                     plan->others[GW_MERGE_NONE], "step_ms_single", plan->others[GW_MERGE_SINGLE],
                                     "step_ms_paper", plan->others[GW_MERGE_PAPER], "step_ms_exact",
                                     plan->others[GW_MERGE_EXACT], "timeline", timeline_json(plan)));
}

static int print_text(const tool_profile *p, uint32_t codec, gw_compress compress, const char *method,
                      const struct planned *plan)
{
    const gw_profile *profile = &p->profile;
    printf("%s, %u layers, %u members; compression runs %s\n\n%-12s %10s %10s\n", gw_quote(p->codecs[codec].spec).text,
           profile->n_layers, profile->link.members, compress == GW_COMPRESS_INLINE ? "inline" : "beside backward",
           "method", "step, ms", "to exact");
    const double exact = plan->others[GW_MERGE_EXACT];
    for (gw_merge m = GW_MERGE_EXACT; m < GW_MERGE_FIXED; m++)
        printf("%-12s %10.3f %9.1f%%\n", gw_merge_name(m), plan->others[m],
               exact > 0 ? 100 * (plan->others[m] / exact - 1) : 0);
    if (strncmp(method, "fixed", 5) == 0)
        printf("%-12s %10.3f %9.1f%%\n", method, plan->step_ms, exact > 0 ? 100 * (plan->step_ms / exact - 1) : 0);
    printf("\n%s, groups: %u; milliseconds from the step's begin\n%5s %6s %12s %10s %10s %10s %10s  %s\n", method,
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

/* Draws the plan. Below it come the plans of all methods that take no bytes. */
static int draw(const tool_profile *p, uint32_t codec, gw_compress compress, const char *method, gw_merge merge,
                const struct planned *plan, const char *path)
{
    const uint32_t n = p->profile.n_layers;
    tool_timeline steps[1 + GW_MERGE_FIXED] = {{method, plan->times, plan->n_groups, plan->step_ms}};
    gw_group_times *times = tool_alloc((uint64_t)GW_MERGE_FIXED * n, sizeof *times);
    size_t n_steps = 1;
    int status = times ? 0 : TOOL_FAILED;
    for (gw_merge m = GW_MERGE_EXACT; m < GW_MERGE_FIXED && status == 0; m++) {
        tool_timeline *step = &steps[n_steps];
        gw_group_times *own = times + (size_t)m * n;
        if (m == merge)
            continue;
        *step = (tool_timeline){.label = gw_merge_name(m), .times = own};
        gw_status made = gw_plan_merge(NULL, &p->profile, codec, compress, m, 0, plan->group_of, &step->n_groups, NULL);
        if (made == GW_OK)
            made = gw_plan_timeline(&p->profile, codec, compress, plan->group_of, own, n, &step->step_ms);
        status = made < 0 ? tool_fail_status(made, NULL) : 0;
        n_steps++;
    }
    char title[200];
    snprintf(title, sizeof title, "%s, %u layers, %u members", p->codecs[codec].spec, n, p->profile.link.members);
    if (status == 0)
        status = tool_plan_chart(&p->profile, compress, title, steps, n_steps, path);
    free(times);
    return status;
}

int gw_cmd_plan(int argc, char **argv)
{
    const char *path = NULL, *spec = NULL, *method_text = "exact", *compress_text = NULL, *chart = NULL;
    bool json = false;
    const tool_option options[] = {
        {"--profile", "FILE", "what was measured: a PROFILE.json of gradwire probe", TOOL_TEXT, &path},
        {"--codec", "SPEC", "one of the profile's codecs. Default: the one whose step is the shortest", TOOL_TEXT,
         &spec},
        {"--method", "METHOD",
         "exact: the shortest step there is; paper: DLGS, algorithm 2; none: a group for each layer; single: one "
         "group; "
         "fixed:BYTES: groups of so many bytes of float32, as buckets of PyTorch (25MiB) and Horovod (64MiB). Default: "
         "exact",
         TOOL_TEXT, &method_text},
        {"--compress", "HOW", TOOL_COMPRESS_HELP, TOOL_TEXT, &compress_text},
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
    int status = tool_parse(&usage, &argc, argv);
    if (status != TOOL_PARSED)
        return status;
    if (!path)
        return tool_wrong_use("--profile is missing; gradwire probe measures one");
    const tool_named_file files[] = {{"--profile", path, false}, {"-o", chart, true}};
    if ((status = tool_check_apart(files, 2)) != 0)
        return status;
    gw_merge method;
    gw_compress compress = 0;
    uint64_t bytes;
    if ((status = tool_parse_merge("--method", method_text, &method, &bytes)) != 0 ||
        (compress_text && (status = tool_parse_compress(compress_text, &compress)) != 0))
        return status;
    tool_profile profile;
    if (tool_profile_read(path, &profile) != 0)
        return TOOL_FAILED;
    if (!compress_text)
        compress = profile.compress;
    const uint32_t n_layers = profile.profile.n_layers;
    struct planned plan = {.group_of = tool_alloc(n_layers, sizeof *plan.group_of),
                           .times = tool_alloc(n_layers, sizeof *plan.times)};
    uint32_t codec = 0;
    status = plan.group_of && plan.times ? 0 : TOOL_FAILED;
    if (status == 0 && spec)
        status = tool_profile_codec(&profile, spec, &codec);
    if (status == 0) {
        gw_status made = spec ? GW_OK : choose_codec(&profile, compress, method, bytes, plan.group_of, &codec);
        if (made == GW_OK)
            made = make_plan(&profile, codec, compress, method, bytes, &plan);
        status = made < 0 ? tool_fail_status(made, path) : 0;
        if (status == 0)
            status = json ? print_json(&profile, codec, compress, method_text, &plan)
                          : print_text(&profile, codec, compress, method_text, &plan);
        if (status == 0 && chart)
            status = draw(&profile, codec, compress, method_text, method, &plan, chart);
    }
    free(plan.group_of);
    free(plan.times);
    tool_profile_free(&profile);
    return status;
}
