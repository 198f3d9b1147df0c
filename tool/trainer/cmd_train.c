/* gradwire train: reads the options, shows progress, prints the summary. The training itself is train/. */
#include "codec/wire_choice.h"
#include "base/append.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "data/data.h"
#include "disk/checkpoint.h"
#include "disk/folder.h"
#include "run/live_plan.h"
#include "members_options.h"
#include "recipes.h"
#include "report/report.h"
#include "run_options.h"
#include "tool.h"
#include "disk/metrics.h"
#include "run/train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static struct timespec first_interrupt;

/* The first Ctrl-C asks for a clean stop, and a second one ends the program at once. Signals that follow within a
 * second are the same wish. For example, timeout sends a signal to the process, and again to its group. */
static void on_interrupt(int signal_number)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!interrupted) {
        first_interrupt = now;
        interrupted = 1;
    } else if (now.tv_sec - first_interrupt.tv_sec > 1) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
}

static bool stop_wanted(void *user)
{
    (void)user;
    return interrupted;
}

static void show_note(const char *text, void *user)
{
    (void)user;
    if (!tool_quiet)
        tool_note("%s", text);
}

/* ---- progress ------------------------------------------------------------------------------- */

struct display {
    bool terminal;
    double last; /* when the last line was shown; -INFINITY: there was none yet */
};

static void time_text(double seconds, char *text, size_t capacity)
{
    unsigned long s = (unsigned long)(seconds + 0.5);
    if (s < 3600)
        snprintf(text, capacity, "%lu:%02lu", s / 60, s % 60);
    else
        snprintf(text, capacity, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
}

/* Joins the parts of a line that fit in `most` columns. The step and the time that is left come first in importance,
 * the last ones of the others go first. */
static void join_parts(const char *const *parts, size_t n_parts, size_t most, char *line, size_t capacity)
{
    size_t n = n_parts, length = SIZE_MAX;
    for (; n >= 2 && length > most; n--) {
        size_t used = 0;
        length = 0;
        for (size_t i = 1; i <= n; i++) { /* part 0, the time, stands at the end */
            const char *part = parts[i % n];
            length += *part ? strlen(part) + (length ? 2 : 0) : 0;
            if (*part && used < capacity)
                used += (size_t)snprintf(line + used, capacity - used, "%s%s", used ? "  " : "", part);
        }
    }
}

/* A terminal shows one line that is rewritten. Elsewhere there is a line at first, and then one every ten seconds. */
static void show_progress(const struct gw_train_progress *p, void *user)
{
    struct display *d = user;
    double now = gw_clock_seconds(), pause = d->terminal ? 0.1 : 10;
    bool last = p->step == p->steps;
    if (tool_quiet)
        return;
    if (now - d->last < pause && !last)
        return;
    d->last = now;
    char left[40], step[48], loss[32], accuracy[32], rate[32], saved[48] = "", dropped[48] = "", line[300];
    time_text(p->seconds_left, left, sizeof left - 6);
    strcat(left, " left");
    snprintf(step, sizeof step, "step %llu/%llu", (unsigned long long)p->step, (unsigned long long)p->steps);
    snprintf(loss, sizeof loss, "loss %.4f", p->loss);
    snprintf(accuracy, sizeof accuracy, "%s %.2f %%", p->accuracy_is_test ? "test" : "train", 100 * p->accuracy);
    snprintf(rate, sizeof rate, "%.0f images/s", p->images_per_second);
    if (p->times_smaller_up > 0) /* the share of float32's bytes in each direction */
        snprintf(saved, sizeof saved, "up 1/%.1f down 1/%.1f", p->times_smaller_up, p->times_smaller_down);
    if (p->skipped_steps)
        snprintf(dropped, sizeof dropped, "%llu step%s dropped", (unsigned long long)p->skipped_steps,
                 p->skipped_steps == 1 ? "" : "s");
    const char *const parts[] = {left, step, loss, accuracy, dropped, rate, saved};
    join_parts(parts, sizeof parts / sizeof *parts, tool_columns(STDERR_FILENO, sizeof line) - 1, line, sizeof line);
    if (!d->terminal)
        tool_note("%s", line);
    else
        tool_progress("%s", line);
    if (last)
        tool_progress_keep();
}

/* ---- the end -------------------------------------------------------------------------------- */

static void size_text(uint64_t bytes, char *text, size_t capacity)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    int unit = 0;
    for (; value >= 1000 && unit < 5; unit++)
        value /= 1000;
    snprintf(text, capacity, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
}

/* Says how many times larger or smaller, or that it is the same. "1.0 times larger" would tell nothing. */
static void ratio_text(uint64_t bytes, uint64_t dense, char *text, size_t capacity)
{
    const double times = (double)dense / (double)bytes;
    if (times > 0.95 && times < 1.05)
        snprintf(text, capacity, "about as large as");
    else
        snprintf(text, capacity, "%.2f times %s than", times < 1 ? 1 / times : times, times < 1 ? "larger" : "smaller");
}

static void print_layers(const struct gw_train_summary *s)
{
    if (isnan(s->tensors[0].push_bits))
        return; /* no step was counted */
    tool_note("%-16s %10s %9s   %-24s   %s", "", "", "", "push, bits/element", "pull, bits/element");
    tool_note("%-16s %10s %9s   %7s %8s %7s   %7s %8s %7s", "tensor", "elements", "nonzero", "frame", "payload",
              "entropy", "frame", "payload", "entropy");
    for (uint32_t t = 0; t < s->n_tensors; t++) {
        const struct gw_train_tensor *x = &s->tensors[t];
        tool_note("%-16s %10llu %8.2f%%   %7.3f %8.3f %7.3f   %7.3f %8.3f %7.3f", x->name,
                  (unsigned long long)x->elements, 100 * x->nonzero_share, x->push_bits, x->push_payload_bits,
                  x->push_entropy, x->pull_bits, x->pull_payload_bits, x->pull_entropy);
    }
}

static void print_summary(const struct gw_train_summary *s, const char *out)
{
    char up[32], down[32], dense[32], up_times[48], down_times[48];
    bool diverged = s->convex && !isfinite(s->objective);
    size_text(s->bytes_up, up, sizeof up);
    size_text(s->bytes_down, down, sizeof down);
    size_text(s->dense_bytes, dense, sizeof dense);
    ratio_text(s->bytes_up, s->dense_bytes, up_times, sizeof up_times);
    ratio_text(s->bytes_down, s->dense_bytes, down_times, sizeof down_times);
    tool_note("%s, %s, %u worker%s, batch %u, %llu steps in %.1f s: %.0f images/s, %.2f ms a step (compute %.2f, "
              "then waiting %.2f; codec %.2f beside both)",
              s->net, s->codec, s->workers, s->workers == 1 ? "" : "s", s->batch, (unsigned long long)s->steps,
              s->seconds, s->images_per_second, s->step_ms, s->compute_ms, s->wait_ms, s->encode_ms);
    if (diverged)
        tool_note("the run diverged: after %.1f passes over the data its objective is no finite number; a smaller --lr "
                  "may help",
                  s->passes);
    else if (isnan(s->train_loss))
        tool_note("test accuracy %.2f %%; every one of the last steps was dropped", 100 * s->test_accuracy);
    else
        tool_note("test accuracy %.2f %%, train accuracy %.2f %%, train loss %.4f", 100 * s->test_accuracy,
                  100 * s->train_accuracy, s->train_loss);
    if (s->convex && !diverged)
        tool_note("objective %.10f after %.1f passes over the data (all of them in train loss; lambda %g)",
                  s->objective, s->passes, s->l2);
    if (s->skipped_steps)
        tool_note("%llu steps were dropped: a gradient held a NaN or an infinity; a smaller --lr may help",
                  (unsigned long long)s->skipped_steps);
    if (s->missing_steps)
        tool_note("these figures do not count %llu of the %llu steps: this worker took no part in them, or their lines "
                  "were lost before the run was resumed",
                  (unsigned long long)s->missing_steps, (unsigned long long)s->steps);
    if (s->bytes_up)
        tool_note("up %s (%s float32's %s), down %s (%s that)", up, up_times, dense, down, down_times);
    if (s->wire.has_choice)
        tool_note("wire: %s (%s); %llu steps were fast", gw_wire_name(s->wire.stands), s->wire_why,
                  (unsigned long long)s->fast_steps);
    if (gw_live_plan_is(s->plan) && s->workers > 1 && s->n_plans == 0)
        tool_note("plan %s: the run was too short; it plans after step %d", s->plan, GW_LIVE_PLAN_FIRST);
    if (s->n_plans)
        tool_note("plan %s: %u group%s at the end, %.2f ms a step predicted; %u plan%s took %.1f s", s->plan,
                  s->n_groups, s->n_groups == 1 ? "" : "s", s->planned_ms, s->n_plans, s->n_plans == 1 ? "" : "s",
                  s->planning_seconds);
    if (s->variance_factor >= 0)
        tool_note("%.3f %% of the elements were sent, variance factor %.3f", 100 * s->nonzero_share,
                  s->variance_factor);
    if (s->residual_norm >= 0)
        tool_note("%.3f %% of the elements were sent, residual norm %.4g", 100 * s->nonzero_share, s->residual_norm);
    if (s->residual_norm >= 0 && s->threshold_age > 1)
        tool_note("that share is not just ratio=, because the oldest threshold was %.0f steps old; refresh=1 sends "
                  "exactly ratio=",
                  s->threshold_age);
    tool_note("parameters %s: %s", s->parameter_hash,
              s->workers == 1         ? "one replica"
              : s->replicas_identical ? "all replicas identical"
                                      : "THE REPLICAS DIFFER");
    if (out)
        tool_note("written to %s", out);
}

/* OUT/report.html, a page about this run alone. */
static int write_report(const char *out)
{
    char path[4096], *runs[] = {(char *)out};
    size_t n_bytes;
    json_t *notes;
    if (snprintf(path, sizeof path, "%s/" GW_REPORT_FILE, out) >= (int)sizeof path)
        return tool_fail("the path %.40s... is too long for a report", out);
    int status = tool_write_report(runs, 1, path, &n_bytes, &notes);
    json_decref(notes); /* they are about files that this run has just written */
    if (status == TOOL_DONE)
        tool_note("report: %s", path);
    return status;
}

/* What the user said on the command line. */
struct words {
    struct gw_train_options o;
    struct gw_members_options who;
    const char *nonfinite, *wire, *recipe, *save_at;
    double lr, momentum, weight_decay, scale; /* NAN: not given; epochs and batch_each 0: not given */
    uint64_t epochs;
    uint32_t batch_each;
    bool json, verbose, report;
};

/* Runs, shows progress, and then the results. *stopped: the user has ended the run, and no member has failed. */
static int run(const struct words *w, bool *stopped)
{
    const struct gw_train_options *o = &w->o;
    struct display display = {.terminal = tool_has_terminal(), .last = -INFINITY};
    const struct gw_train_callbacks callbacks = {.progress = show_progress,
                                                 .note = show_note,
                                                 .stop = stop_wanted,
                                                 .user = &display};
    static struct gw_train_summary summary;
    gw_status ran = gw_train_run(o, &callbacks, &summary);
    *stopped = summary.stopped;
    tool_progress_keep();
    TOOL_TRY(tool_exit_status_of_use(ran));
    if (summary.workers == 0) /* rank 0, in another process, shows the results */
        return TOOL_DONE;
    bool dense = strcmp(o->codec, "none") == 0 || strcmp(o->codec, "bf16") == 0 || strcmp(o->codec, "f16") == 0;
    if (w->verbose || !dense)
        print_layers(&summary);
    const char *out = o->resume ? o->resume : o->out;
    print_summary(&summary, out);
    if (w->report)
        TOOL_TRY(write_report(out));
    if (w->json)
        TOOL_TRY(tool_print_json(gw_train_summary_json(&summary)));
    return summary.replicas_identical ? TOOL_DONE
                                      : tool_fail("the replicas differ at the end; this is a bug, please report it");
}

/* ---- going on with a run ---------------------------------------------------------------------- */

/* Drops options that the run had but that this start of it cannot have. */
static void drop_what_does_not_apply(const tool_usage *usage, struct words *w)
{
    const struct gw_link_scheme *scheme = gw_members_find(w->who.link);
    const unsigned takes = scheme ? scheme->takes : 0;
    if (scheme && scheme->ranks != GW_LINK_RANKS_HERE && !gw_members_is_alone(scheme) &&
        !tool_given(usage, "--workers"))
        w->who.workers = 0; /* what started the workers knows how many there are */
    if (!(takes & GW_LINK_KEYS) && !w->who.servers && !tool_given(usage, "--keys"))
        w->who.request.keys = NULL;
    if (!(takes & GW_LINK_INSECURE) && !tool_given(usage, "--insecure"))
        w->who.request.insecure = false;
    if (strcmp(w->o.optimizer, "momentum") != 0 && !tool_given(usage, "--momentum"))
        w->momentum = NAN;
}

/* Takes the options that the command line does not give from the folder of the run. */
static int take_run(const tool_usage *usage, struct words *w, tool_run *of)
{
    int status = tool_run_open(of->from, of);
    if (status == TOOL_DONE && !of->json)
        status = tool_fail("%s holds nothing to resume: there is no " GW_RUN_FILE
                           " in it; --resume names the folder of a run with --out and --checkpoint-every",
                           of->from);
    if (status == TOOL_DONE)
        status = tool_run_knows(usage, of);
    if (status == TOOL_DONE)
        status = tool_run_take(usage, of);
    drop_what_does_not_apply(usage, w);
    return status == TOOL_DONE ? tool_run_find_data(usage, of) : status;
}

/* ---- the command ---------------------------------------------------------------------------- */

static int take_recipe(const tool_usage *usage, const struct words *w)
{
    if (tool_given(usage, "--batch") && tool_given(usage, "--batch-per-worker"))
        return tool_wrong_use("--batch and --batch-per-worker both say how large a step is: only one can be given");
    if (!w->recipe)
        return isnan(w->scale) ? TOOL_DONE : tool_wrong_use("--scale shortens a recipe; name one with --recipe");
    if (w->o.resume)
        return tool_wrong_use(
            "--recipe is for a new run, and --resume takes the options of the run that it goes on with");
    return tool_recipe_take(usage, w->recipe, isnan(w->scale) ? 1 : w->scale);
}

/* Reads "0,100,1000". The numbers must ascend. */
static int read_save_at(const char *text, struct gw_train_options *o)
{
    o->n_gradients_at = 0;
    for (const char *at = text;; at++) {
        uint64_t step;
        const uint32_t n = o->n_gradients_at;
        if (!gw_read_whole(&at, UINT32_MAX, &step) || (*at && *at != ',') || n == GW_MAX_SAVED_STEPS ||
            (n > 0 && step <= o->gradients_at[n - 1]))
            return tool_wrong_use("--save-at is \"%s\", and must be 1 to %d ascending steps, as in 0,100,1000", text,
                                  GW_MAX_SAVED_STEPS);
        o->gradients_at[o->n_gradients_at++] = step;
        if (!*at)
            return TOOL_DONE;
    }
}

static int settle(struct words *w)
{
    struct gw_train_options *o = &w->o;
    if (strcmp(w->nonfinite, "skip") != 0 && strcmp(w->nonfinite, "stop") != 0)
        return tool_wrong_use("--nonfinite is \"%s\", and must be skip or stop", w->nonfinite);
    if (gw_wire_parse(w->wire, &o->wire) < 0)
        return tool_wrong_use("--wire is \"%s\", and must be small, fast or auto", w->wire);
    if (o->steps && w->epochs)
        return tool_wrong_use("--steps and --epochs both say how long the run is: only one can be given");
    if (w->save_at && !o->gradients)
        return tool_wrong_use(
            "--save-at says when gradients are saved; say under which name with --save-gradients NAME");
    if (w->save_at)
        TOOL_TRY(read_save_at(w->save_at, o));
    if (!isnan(o->l2) && !isnan(w->weight_decay))
        return tool_wrong_use("--l2 is a weight decay in the place of --weight-decay: only one can be given");
    if (!isnan(w->momentum) && strcmp(o->optimizer, "momentum") != 0)
        return tool_wrong_use("--momentum is for the optimizer momentum, and --optimizer is %s", o->optimizer);
    if (strcmp(o->codec, "auto") == 0)
        return tool_wrong_use(
            "--codec is auto, which only PyTorch's attach knows; gradwire probe measures this machine "
            "and link, and gradwire advise then says which codec to take");
    if (w->report && !o->out && !o->resume)
        return tool_wrong_use("--report needs --out DIR, the folder that the page goes to");
    o->epochs = w->epochs ? w->epochs : o->epochs;
    o->momentum = isnan(w->momentum) ? o->momentum : w->momentum;
    /* with momentum 0.9, a gradient moves the parameters ten times its step in the end; these two have none */
    const bool plain = strcmp(o->optimizer, "sgd") == 0 || strcmp(o->optimizer, "svrg") == 0;
    o->lr = !isnan(w->lr) ? w->lr : plain ? 10 * o->lr : o->lr;
    o->weight_decay = isnan(w->weight_decay) ? o->weight_decay : w->weight_decay;
    o->stop_at_nonfinite = strcmp(w->nonfinite, "stop") == 0;
    w->who.request.timeout_ms = o->timeout_s * 1000;
    return TOOL_DONE;
}

/* The options that the run's folder keeps. Defaults are among them, because a later version may have other defaults. */
static int make_record(const tool_usage *usage, struct words *w, uint32_t workers)
{
    if (!w->o.out && !w->o.resume)
        return TOOL_DONE;
    w->who.workers = workers;
    w->epochs = w->o.steps ? 0 : w->o.epochs;
    w->lr = w->o.lr;
    w->momentum = strcmp(w->o.optimizer, "momentum") == 0 ? w->o.momentum : NAN;
    w->weight_decay = isnan(w->o.l2) ? w->o.weight_decay : NAN;
    return tool_run_record(usage, &w->o.record);
}

static int train(const tool_usage *usage, struct words *w, const tool_run *of)
{
    struct gw_members members;
    tool_catch_stops(on_interrupt, SA_RESTART);
    int exit_status = tool_exit_status_of_use(gw_members_begin(&w->who, &members));
    bool stopped = false;
    if (exit_status == TOOL_DONE && w->batch_each)
        w->o.batch = w->batch_each * members.size;
    if (exit_status == TOOL_DONE)
        exit_status = make_record(usage, w, members.size);
    if (exit_status == TOOL_DONE) {
        if (members.first == 0)
            tool_run_tell(of);
        w->o.members = &members;
        exit_status = run(w, &stopped);
    }
    json_decref(w->o.record);
    gw_members_end(&members, exit_status != TOOL_DONE && !stopped);
    return exit_status;
}

/* Writes a list for help: a line "NAME: sentence" each. */
static void describe(bool (*list)(size_t n, const char **name, const char **about), char *text, size_t capacity)
{
    const char *name, *about;
    *text = 0;
    for (size_t i = 0; list(i, &name, &about); i++)
        gw_append(text, capacity, "%s%s: %s", i ? "\n" : "", name, about);
}

int gw_cmd_train(int argc, char **argv)
{
    struct words w = {.o = GW_TRAIN_DEFAULTS,
                      .who = {.rank = GW_LAUNCHER_NO_RANK, .request = {.log = tool_show_log, .stop = stop_wanted}},
                      .nonfinite = "skip",
                      .wire = "auto",
                      .lr = NAN,
                      .momentum = NAN,
                      .weight_decay = NAN,
                      .scale = NAN};
    struct tool_links_help links;
    char nets[2048], sources[512], recipes[512];
    tool_describe_links(true, &links);
    describe(gw_train_network_list, nets, sizeof nets);
    describe(gw_data_list, sources, sizeof sources);
    describe(tool_recipe_list, recipes, sizeof recipes);
    const tool_option options[] = {
        {"--net", "NET", nets, TOOL_TEXT, &w.o.net, .run = TOOL_RUN_DECIDES},
        {"--data", "SOURCE", sources, TOOL_TEXT, &w.o.data, .run = TOOL_RUN_SOURCE},
        {"--test", "FILE", "test samples, a LIBSVM file; without it the accuracy is that of the training set",
         TOOL_TEXT, &w.o.test, .run = TOOL_RUN_SOURCE},
        {"--recipe", "NAME", recipes, TOOL_TEXT, &w.recipe},
        {"--scale", "X", "with --recipe: a part of its length, above 0 and at most 1; rates drop earlier alike",
         TOOL_DOUBLE, &w.scale},
        {"--transform", "SPEC",
         "what is done to pictures (default: the network's): scale, or some of pad=PIXELS, crop=SIDE, mirror, "
         "brightness=X, contrast=LOW:HIGH, whiten, normalize, joined by commas",
         TOOL_TEXT, &w.o.transform, .run = TOOL_RUN_DECIDES},
        {"--workers", "N",
         "workers, each with its own replica (default 1; with mpi and tcp the launcher says how many)", TOOL_U32,
         &w.who.workers, 1, 1024, .run = TOOL_RUN_KEEPS},
        {"--codec", "SPEC", "how gradients travel ('gradwire codecs' lists the codecs)", TOOL_TEXT, &w.o.codec,
         .run = TOOL_RUN_DECIDES},
        {"--batch", "TOTAL", "samples of a step, all workers together", TOOL_U32, &w.o.batch, 1, UINT32_MAX,
         .run = TOOL_RUN_DECIDES},
        {"--batch-per-worker", "K", "samples of a step and worker, in place of --batch", TOOL_U32, &w.batch_each, 1,
         1 << 20},
        {"--steps", "K", "how many steps the run has", TOOL_U64, &w.o.steps, 1, UINT32_MAX, .run = TOOL_RUN_KEEPS,
         .rival = "--epochs"},
        {"--epochs", "K", "how many epochs the run has", TOOL_U64, &w.epochs, 1, 1000000, .run = TOOL_RUN_KEEPS,
         .rival = "--steps"},
        {"--optimizer", "O", "sgd, momentum, adam (beta1=0.9, beta2=0.999, epsilon=1e-8), or svrg (for logreg and svm)",
         TOOL_TEXT, &w.o.optimizer, .run = TOOL_RUN_DECIDES},
        {"--lr", "X", "learning rate of the first step (default 0.01; sgd and svrg, which have no momentum, 0.1)",
         TOOL_DOUBLE, &w.lr, .run = TOOL_RUN_DECIDES},
        {"--momentum", "X", "momentum", TOOL_DOUBLE, &w.momentum, .run = TOOL_RUN_DECIDES},
        {"--schedule", "S",
         "how the rate changes: const, poly:P, step:E1,E2,... or inverse:T0, which is rate / (1 + t/T0)", TOOL_TEXT,
         &w.o.schedule, .run = TOOL_RUN_DECIDES},
        {"--weight-decay", "X", "added to the average gradient, also to that of biases", TOOL_DOUBLE, &w.weight_decay,
         .run = TOOL_RUN_DECIDES, .rival = "--l2"},
        {"--l2", "LAMBDA",
         "adds LAMBDA * |w|^2 to the objective. This is a weight decay of 2 * LAMBDA, and replaces --weight-decay",
         TOOL_DOUBLE, &w.o.l2, .run = TOOL_RUN_DECIDES, .rival = "--weight-decay"},
        {"--ema", "D", "evaluate a moving average of the parameters; its decay is min(D, (1+t)/(10+t))", TOOL_DOUBLE,
         &w.o.ema, .run = TOOL_RUN_DECIDES},
        {"--seed", "S", "decides the first parameters, the order of samples and the draws", TOOL_U64, &w.o.seed, 0,
         INT64_MAX, .run = TOOL_RUN_DECIDES},
        {"--plan", "PLAN",
         "which tensors travel together, which changes no result. none: those of a layer; single: all; fixed:BYTES: "
         "so many bytes of float32 (fixed:25MiB); exact: the shortest step, by what is measured in the first steps; "
         "paper: the same by DLGS's algorithm 2; or a file that gradwire plan --json wrote",
         TOOL_TEXT, &w.o.plan, .run = TOOL_RUN_KEEPS},
        {"--replan", "K", "with --plan exact and paper: measure and plan again every K steps", TOOL_U64, &w.o.replan, 1,
         UINT32_MAX, .run = TOOL_RUN_KEEPS},
        {"--wire", "small|fast|auto",
         "how frames are written, which changes no result. small: the fewest bytes; fast: the fewest processor cycles; "
         "auto: what makes the steps shorter, compared now and then; among threads of one process small",
         TOOL_TEXT, &w.wire, .run = TOOL_RUN_KEEPS},
        {"--nonfinite", "skip|stop", "if a gradient holds a NaN or an infinity: skip the step, or stop the run",
         TOOL_TEXT, &w.nonfinite, .run = TOOL_RUN_KEEPS},
        {"--threads", "K", "computing threads of each worker (default 1; with --resume as many as that run had)",
         TOOL_U32, &w.o.threads, 1, GW_MAX_TRAIN_THREADS, .run = TOOL_RUN_KEEPS},
        {"--codec-threads", "K", "codec threads", TOOL_U32, &w.o.codec_threads, 1, 256, .run = TOOL_RUN_KEEPS},
        {"--timeout", "S", "seconds that a worker may be silent", TOOL_U32, &w.o.timeout_s, 1, 86400,
         .run = TOOL_RUN_KEEPS},
        TOOL_MEMBERS_OPTIONS(&w.who, &links),
        {"--flat", NULL,
         "do not add up the workers of one machine before their sums travel to others; the results are the same",
         TOOL_FLAG, &w.o.flat, .run = TOOL_RUN_KEEPS},
        {"--servers", "LIST",
         "parameter servers HOST:PORT,... (gradwire server) average the gradients, in place of the workers", TOOL_TEXT,
         &w.who.servers, .run = TOOL_RUN_KEEPS},
        {"--parameters", "local|servers",
         "who moves the parameters. local: every worker moves its own by the average gradient; servers: the parameter "
         "servers move them and workers fetch them. The servers may then also be --mode async or stale:S",
         TOOL_TEXT, &w.o.parameters, .run = TOOL_RUN_KEEPS},
        {"--out", "DIR", "folder for metrics, summary, TensorBoard events and parameters", TOOL_OUTPUT, &w.o.out},
        {"--overwrite", NULL,
         "remove the files of an earlier run from that folder; without this a folder with such files is refused",
         TOOL_FLAG, &w.o.overwrite},
        {"--resume", "DIR",
         "go on with the interrupted run in that folder, from its newest checkpoint and with its options", TOOL_TEXT,
         &w.o.resume},
        {"--checkpoint-every", "K", "save all that --resume needs every K steps and at the end (with --out)", TOOL_U64,
         &w.o.checkpoint_every, 1, 0, .run = TOOL_RUN_KEEPS},
        {"--save-gradients", "NAME",
         "each worker writes its gradient of one step to NAME.rank-R.gwp, for bench exchange", TOOL_TEXT,
         &w.o.gradients},
        {"--save-at", "STEP[,STEP...]",
         "which steps --save-gradients writes, from 0 (default 100); several go to NAME.step-STEP.rank-R.gwp",
         TOOL_TEXT, &w.save_at},
        {"--report", NULL, "at the end write DIR/report.html, a page about the run (gradwire report); with --out",
         TOOL_FLAG, &w.report},
        {"--verbose", NULL, "at the end print a table of all tensors, for every codec", TOOL_FLAG, &w.verbose},
        {"--json", NULL, "print the summary as one JSON object on standard output", TOOL_FLAG, &w.json},
    };
    bool given[sizeof options / sizeof *options] = {false};
    const tool_usage usage = {
        .synopsis = "train [--net NET] [--data SOURCE] [options]",
        .about =
            "Trains a network on several workers whose gradients travel through a codec. Every worker takes its "
            "share of each batch. The batch of a step is the same for any number of workers. A batch that is not "
            "full at an epoch's end is dropped.\nDefaults: lenet on drawn digits, 1 worker, codec none, batch 64, "
            "5 epochs, momentum 0.9 at rate 0.01, schedule poly:0.5, weight decay 0.0005, seed 1. Nothing is "
            "written without --out.\nData files may be plain, .gz, .xz or .bz2. logreg and svm take LIBSVM text or "
            "uneven[:n=1024,d=2048,c1=0.6,c2=0.25], drawn features of uneven magnitude. Every epoch they report "
            "the objective over the whole training set.",
        .example = "gradwire train --net lenet --data digits --workers 4 --codec ternary --epochs 3\n"
                   "  gradwire train --net logreg --data a9a.xz --test a9a.t.xz --l2 1e-4 --optimizer svrg --lr 1 "
                   "--schedule const",
        TOOL_OPTIONS(options),
        .given = given,
        .is_long = true,
        .args = "train takes options only",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    TOOL_TRY(take_recipe(&usage, &w));
    tool_run of = {.from = w.o.resume};
    TOOL_TRY(tool_exit_status_of_use(gw_members_choose_link(&w.who)));
    int exit_status = w.o.resume ? take_run(&usage, &w, &of) : TOOL_DONE;
    if (exit_status == TOOL_DONE)
        exit_status = settle(&w);
    if (exit_status == TOOL_DONE)
        exit_status = train(&usage, &w, &of);
    tool_run_close(&of);
    return exit_status;
}
