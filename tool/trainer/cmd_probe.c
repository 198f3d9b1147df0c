/* gradwire probe: measures this machine and the link between the members, for plans and advice. */
#include "base/cpu.h"
#include "net/backward.h"
#include "base/clock.h"
#include "bench_team.h"
#include "members_options.h"
#include "probe/probe.h"
#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the command keeps beside the measurement. */
struct probe {
    struct bench_team team; /* one link for messages and exchanges, and one for meetings */
    struct gw_probe work;
    tool_texts specs;
    double began;
    size_t n_parts, n_done; /* of the whole measurement, for progress */
};

/* The network whose gradients are exchanged, and how long backward takes for them. */
struct subject {
    const char *net, *layers_path;
    uint32_t batch, threads;
    double images_per_second; /* 0: not given */
    double forward_ms;
    gw_profile_layer layers[GW_PLAN_MAX_LAYERS];
    uint32_t n_layers;
    const char *how; /* in a few words, for the file */

    /* The names above point into these. */
    tool_profile table;
    gw_network_tensor tensors[GW_MAX_NETWORK_TENSORS];
    struct gw_network network;
};

/* Says what is measured now, and how long the rest may take. */
static void show_progress(void *user, const char *what)
{
    struct probe *p = user;
    const double spent = gw_clock_seconds() - p->began;
    char left[48] = "";
    if (p->n_done > 0)
        snprintf(left, sizeof left, ", about %.0f s left",
                 spent / (double)p->n_done * (double)(p->n_parts - p->n_done));
    tool_progress("%zu of %zu: %s%s", p->n_done + 1, p->n_parts, what, left);
    p->n_done++;
}

/* ---- layers ------------------------------------------------------------------------------------------ */

/* Reads a table of somebody else's network: {"forward_ms", "layers"}, as in a profile. */
static int layers_of_file(struct subject *s)
{
    TOOL_TRY(tool_profile_read_layers(s->layers_path, &s->table));
    s->forward_ms = s->table.profile.forward_ms;
    s->n_layers = s->table.profile.n_layers;
    memcpy(s->layers, s->table.layers, s->n_layers * sizeof *s->layers);
    s->how = "a file";
    return 0;
}

static void layers_of_table(struct subject *s, const gw_network_info *network)
{
    double backward_ms[GW_MAX_NETWORK_TENSORS];
    s->n_layers = gw_network_tensors(network, s->tensors).n_tensors;
    gw_network_backward_ms(network, s->images_per_second, s->batch, backward_ms, &s->forward_ms);
    for (uint32_t t = 0; t < s->n_layers; t++)
        s->layers[t] = (gw_profile_layer){s->tensors[t].name, s->tensors[t].n_elems, backward_ms[t]};
    s->how = "computed from multiply-adds";
}

static int layers_of_trainer(struct subject *s, uint32_t runs)
{
    double backward_ms[GW_MAX_TENSORS];
    TOOL_TRY(tool_exit_status_of_use(
        gw_backward_times(&s->network, s->batch, runs, s->threads, &s->forward_ms, backward_ms)));
    for (uint32_t t = 0; t < s->network.n_tensors; t++)
        s->layers[t] = (gw_profile_layer){s->network.tensors[t].name, s->network.tensors[t].n_elems, backward_ms[t]};
    s->n_layers = s->network.n_tensors;
    s->how = "measured";
    return 0;
}

static int find_layers(struct subject *s, uint32_t runs)
{
    const gw_network_info *network;
    if (s->layers_path)
        return layers_of_file(s);
    if (s->images_per_second > 0) {
        if (gw_network_find(s->net, &network) < 0)
            return tool_wrong_use("%s (these have --images-per-second)", gw_last_error());
        layers_of_table(s, network);
        return 0;
    }
    const bool in_table = gw_network_find(s->net, &network) >= 0; /* resnet20 and vgg16 are networks of both */
    const gw_status made = gw_network_create(s->net, &s->network);
    if (made < 0 && in_table)
        return tool_wrong_use("the trainer cannot run %s; say how fast a machine trains it: --images-per-second",
                              s->net);
    TOOL_TRY(tool_exit_status_of_use(made));
    return layers_of_trainer(s, runs);
}

/* ---- the report -------------------------------------------------------------------------------------- */

static json_t *sweep_json(const struct gw_probe_sweep *sweep, const char *size)
{
    json_t *list = json_array();
    for (size_t i = 0; i < sweep->n; i++) {
        const struct gw_probe_point *point = &sweep->points[i];
        json_array_append_new(list, json_pack("{s:I, s:I, s:I, s:b, s:f, s:f, s:f}", "groups",
                                              (json_int_t)point->groups, "tensors", (json_int_t)point->tensors, size,
                                              (json_int_t)point->size, "network", point->whole, "measured_ms",
                                              point->measured_ms, "fitted_ms", point->fitted_ms, "busy", point->busy));
    }
    return list;
}

static json_t *profile_json(const struct probe *p, const struct subject *s)
{
    json_t *layers = json_array(), *codecs = json_array(), *sweeps = json_object();
    for (uint32_t l = 0; l < s->n_layers; l++)
        json_array_append_new(layers,
                              json_pack("{s:s, s:I, s:f}", "name", s->layers[l].name, "elements",
                                        (json_int_t)s->layers[l].n_elems, "backward_ms", s->layers[l].backward_ms));
    for (size_t k = 0; k < p->specs.n; k++) {
        const gw_profile_codec *c = &p->work.costs[k];
        json_array_append_new(codecs,
                              json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "spec", c->spec,
                                        "compress_ms_fixed", c->compress_ms_fixed, "compress_ms_per_element",
                                        c->compress_ms_per_element, "decompress_ms_per_element",
                                        c->decompress_ms_per_element, "bytes_per_element", c->bytes_per_element,
                                        "measure_ms_fixed", c->measure_ms_fixed, "measure_ms_per_element",
                                        c->measure_ms_per_element, "busy_ms_per_element", c->busy_ms_per_element,
                                        "off_by", gw_probe_deviation(&p->work.sweeps[k])));
        json_object_set_new(sweeps, c->spec, sweep_json(&p->work.sweeps[k], "elements"));
    }
    json_t *about =
        json_pack("{s:s, s:s, s:s?, s:i, s:s, s:i, s:o, s:o, s:s}", "gradwire", gw_version(), "cpu", gw_cpu_level(),
                  "net", s->net, "batch", (int)s->batch, "backward", s->how, "runs", (int)p->work.runs, "messages",
                  sweep_json(&p->work.messages, "bytes"), "exchanges", sweeps, "link", p->team.members.scheme->name);
    return json_pack("{s:f, s:o, s:{s:f, s:f, s:f, s:I, s:I}, s:o, s:s, s:o}", "forward_ms", s->forward_ms, "layers",
                     layers, "link", "alpha_ms", p->work.link.alpha_ms, "ms_per_byte", p->work.link.ms_per_byte,
                     "latency_ms", p->work.link.latency_ms, "run_elements", (json_int_t)p->work.link.run_elements,
                     "members", (json_int_t)p->work.link.members, "codecs", codecs, "compress", "beside", "about",
                     about);
}

static void print_report(const struct probe *p, const struct subject *s)
{
    double backward = 0;
    for (uint32_t l = 0; l < s->n_layers; l++)
        backward += s->layers[l].backward_ms;
    tool_note("%u layers: forward %.3f ms, backward %.3f ms (%s)", s->n_layers, s->forward_ms, backward, s->how);
    tool_note("link: %u members, %.3f ms a group, %.3f ms until it is back, %.4g Mbit/s; messages are off the fit by "
              "%.1f %%",
              p->work.link.members, p->work.link.alpha_ms, p->work.link.latency_ms,
              p->work.link.ms_per_byte > 0 ? 8e-3 / p->work.link.ms_per_byte : 0,
              100 * gw_probe_deviation(&p->work.messages));
    tool_note("%-28s %12s %14s %14s %14s %12s %8s", "codec", "bytes/elem.", "measure, ms/M", "encode, ms/M",
              "decode, ms/M", "a group, ms", "off by");
    for (size_t k = 0; k < p->specs.n; k++) {
        const gw_profile_codec *c = &p->work.costs[k];
        tool_note("%-28s %12.3f %14.3f %14.3f %14.3f %12.3f %7.1f%%", c->spec, c->bytes_per_element,
                  1e6 * c->measure_ms_per_element, 1e6 * c->compress_ms_per_element, 1e6 * c->decompress_ms_per_element,
                  c->compress_ms_fixed, 100 * gw_probe_deviation(&p->work.sweeps[k]));
    }
    tool_note("\"off by\": the median by which exchanges, of 4 Ki to 16 Mi elements and of the network's tensors, "
              "differ from what the model says of them");
}

/* ---- the command ------------------------------------------------------------------------------------- */

/* The times of backward may differ between members. Each machine measures its own, and those of rank 0 count. */
static gw_status member_work(struct bench_member *m)
{
    struct probe *p = m->user;
    struct gw_probe_member member = {.probe = &p->work,
                                     .link = bench_link(&p->team, 0, m->index),
                                     .meeting = m->meeting};
    return gw_probe_all(&member);
}

static int parse_codecs(struct probe *p)
{
    bench_default_codecs(&p->specs);
    /* Floats come first, because the link is measured with them and advice compares with them. */
    size_t none = 0;
    while (none < p->specs.n && strcmp(p->specs.items[none], "none") != 0)
        none++;
    if (none == TOOL_MAX_TEXTS || (none == p->specs.n && p->specs.n == GW_PLAN_MAX_CODECS))
        return tool_wrong_use("--codec is given %zu times; %u codecs are the most, none included", p->specs.n,
                              GW_PLAN_MAX_CODECS);
    if (none == p->specs.n)
        p->specs.n++;
    memmove(p->specs.items + 1, p->specs.items, none * sizeof *p->specs.items);
    p->specs.items[0] = "none";
    for (size_t k = 0; k < p->specs.n; k++) {
        for (size_t i = 0; i < k; i++)
            if (strcmp(p->specs.items[i], p->specs.items[k]) == 0)
                return tool_wrong_use("--codec %s is given twice", p->specs.items[k]);
        TOOL_TRY(tool_exit_status(gw_codec_parse(NULL, p->specs.items[k], &p->work.codecs[k]), "--codec"));
        if (gw_codec_traits_of(p->work.codecs[k]).one_group)
            return tool_wrong_use(
                "%s decides for all tensors at once: they are one group, and there is nothing to plan",
                p->specs.items[k]);
        p->work.specs[k] = p->specs.items[k];
    }
    p->work.n_codecs = p->specs.n;
    return 0;
}

/* Nothing is coded here that skip= names, so the last tensor may stand for the last layer. */
static int check_skips(const struct probe *p, const struct subject *s)
{
    static gw_tensor tensors[GW_PLAN_MAX_LAYERS];
    for (uint32_t t = 0; t < s->n_layers; t++)
        tensors[t] = (gw_tensor){.name = s->layers[t].name, .last_layer = t + 1 == s->n_layers};
    for (size_t k = 0; k < p->specs.n; k++)
        if (gw_codec_check_skip(p->work.codecs[k], tensors, s->n_layers) < 0)
            return tool_wrong_use("--codec %s: %s", p->specs.items[k], gw_last_error());
    return 0;
}

static int write_profile(const struct probe *p, const struct subject *s, tool_output *output)
{
    json_t *profile = profile_json(p, s);
    char *text = profile ? tool_json_without_markup(profile, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    int status = text ? tool_output_write(output, text, strlen(text)) : tool_fail("out of memory");
    if (status == TOOL_DONE)
        status = tool_output_write(output, "\n", 1);
    if (status == TOOL_DONE)
        status = tool_output_commit(output);
    free(text);
    json_decref(profile);
    return status;
}

static int measure(struct probe *p, const struct subject *s, const char *path)
{
    tool_output output = TOOL_OUTPUT_CLOSED; /* is opened before minutes of measuring, and not after */
    const bool writes = p->team.members.first == 0;
    if (p->team.members.size < 2)
        return tool_wrong_use("a link joins two members or more; this is the only one");
    if (writes)
        TOOL_TRY(tool_output_open(&output, path));
    p->began = gw_clock_seconds();
    gw_status status = bench_work(&p->team, 1, member_work, p);
    tool_progress_clear();
    int exit_status = tool_exit_status_of_use(status);
    if (exit_status == TOOL_DONE && writes) {
        print_report(p, s);
        exit_status = write_profile(p, s, &output);
    }
    tool_output_discard(&output);
    return exit_status;
}

int gw_cmd_probe(int argc, char **argv)
{
    static struct probe p = {.work = {.runs = 7, .link = {.run_elements = GW_PROBE_RUN_ELEMENTS}},
                             .team = {.n_links = 1}};
    static struct subject s = {.net = "lenet", .batch = 64, .threads = 1};
    struct gw_members_options who = {.rank = GW_LAUNCHER_NO_RANK, .must_meet = true, .request.log = tool_show_log};
    struct tool_links_help links;
    tool_describe_links(false, &links);
    uint32_t timeout_s = 120;
    const char *out = NULL;
    char networks[512] = "", net_help[1024];
    gw_network_describe_all(networks, sizeof networks);
    snprintf(net_help, sizeof net_help,
             "whose gradients: a network of the trainer (lenet, mlp:784-300-10), which is run here (default lenet); or "
             "with --images-per-second one of, in millions of elements: %s",
             networks);
    const tool_option options[] = {
        {"-o", "PROFILE.json", "where to write", TOOL_OUTPUT, &out},
        {"--net", "NET", net_help, TOOL_TEXT, &s.net},
        {"--batch", "K", "samples of one worker's step (default 64)", TOOL_U32, &s.batch, 1, 1 << 20},
        {"--images-per-second", "X", "how fast one worker's machine trains the network, without exchange", TOOL_DOUBLE,
         &s.images_per_second},
        {"--layers", "FILE",
         "times measured elsewhere, for example of a PyTorch model: {\"forward_ms\": F, \"layers\": [{\"name\", "
         "\"elements\", \"backward_ms\"}, ...]}, the first layer first",
         TOOL_TEXT, &s.layers_path},
        {"--codec", "SPEC", "measure this codec, beside none; may be given several times (default: one of each kind)",
         TOOL_TEXTS, &p.specs},
        {"--runs", "R", "runs of each point; the median counts (default 7)", TOOL_U32, &p.work.runs, 1, 1000},
        {"--threads", "T", "threads of forward and backward (default 1)", TOOL_U32, &s.threads, 1, 256},
        {"--timeout", "S", "seconds that a member may be silent (default 120)", TOOL_U32, &timeout_s, 1, 86400},
        {"--workers", "N", "members (default 4; with mpi and tcp the launcher says how many)", TOOL_U32, &who.workers,
         2, 1024},
        TOOL_MEMBERS_OPTIONS(&who, &links),
    };
    bool given[sizeof options / sizeof *options] = {false};
    const tool_usage usage = {
        .synopsis = "probe [options] -o PROFILE.json",
        .about = "Measures how long backward takes for each tensor, what each codec costs, and how long messages take "
                 "between the members. gradwire plan, advise and bench exchange --profile read the file. Every member "
                 "runs the same command; rank 0 writes.",
        .example = "gradwire probe --net lenet -o profile.json\n"
                   "  gradwire launch --hosts hosts -- probe --net resnet50 --images-per-second 300 -o profile.json",
        TOOL_OPTIONS(options),
        .given = given,
        .args = "probe takes no files but -o and --layers",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!out)
        return tool_wrong_use("-o is missing: where to write the profile");
    if (tool_given(&usage, "--images-per-second") && !(s.images_per_second > 0))
        return tool_wrong_use("--images-per-second is %g, and must be above 0", s.images_per_second);
    if (s.layers_path && (tool_given(&usage, "--net") || tool_given(&usage, "--images-per-second")))
        return tool_wrong_use("--layers says how long backward takes; --net and --images-per-second do, too");
    TOOL_TRY(tool_check_apart("-o", out, "--layers", s.layers_path));
    TOOL_TRY(tool_choose_members(&who));
    who.request.timeout_ms = p.team.timeout_ms = timeout_s * 1000;
    if (s.layers_path)
        s.net = NULL;
    int status = parse_codecs(&p);
    p.n_parts = p.specs.n + 1;
    if (status == 0)
        status = find_layers(&s, p.work.runs);
    if (status == 0)
        status = check_skips(&p, &s);
    if (status == 0) {
        status = tool_exit_status_of_use(gw_members_begin(&who, &p.team.members));
        p.work.next = p.team.members.first == 0 ? show_progress : NULL;
        p.work.user = &p;
        p.work.layers = s.layers;
        p.work.n_layers = s.n_layers;
        if (status == TOOL_DONE)
            status = measure(&p, &s, out);
        gw_members_end(&p.team.members, status != TOOL_DONE);
    }
    for (size_t k = 0; k < p.specs.n; k++)
        gw_codec_destroy(p.work.codecs[k]);
    tool_profile_free(&s.table);
    gw_network_free(&s.network);
    return status;
}
