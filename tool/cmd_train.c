/* gradwire train: reads the options, shows progress, prints the summary. The training itself is train/. */
#include "base/clock.h"
#include "members.h"
#include "tool.h"
#include "train.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;
static struct timespec first_interrupt;

/* The first Ctrl-C asks for a clean stop, a second one ends the program at once. Signals that follow within a second are
 * the same wish, sent to the process and again to its group (timeout does so). */
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

static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

static bool stop_wanted(void *user)
{
    (void)user;
    return interrupted;
}

static void show_note(const char *text, void *user)
{
    (void)user;
    tool_note("%s", text);
}

static void show_log(const char *line, void *user)
{
    (void)user;
    tool_note("%s", line);
}

/* ---- progress ------------------------------------------------------------------------------- */

struct display {
    bool terminal;
    double last, first; /* times of the last line and of the first step */
    bool shown;
};

static void time_text(double seconds, char *text, size_t capacity)
{
    unsigned long s = (unsigned long)(seconds + 0.5);
    if (s < 3600)
        snprintf(text, capacity, "%lu:%02lu", s / 60, s % 60);
    else
        snprintf(text, capacity, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
}

/* On a terminal one line that is rewritten; elsewhere a line at first and then every ten seconds. */
static void show_progress(const struct gw_train_progress *p, void *user)
{
    struct display *d = user;
    double now = gw_clock_seconds(), pause = d->terminal ? 0.1 : 10;
    bool last = p->step == p->steps;
    if (d->shown && now - d->last < pause && !last)
        return;
    d->shown = true;
    d->last = now;
    char left[32], saved[48] = "", dropped[48] = "";
    double times = p->times_smaller;
    time_text(p->seconds_left, left, sizeof left);
    if (times > 0)
        snprintf(saved, sizeof saved, "  bytes %.1f times %s", times < 1 ? 1 / times : times, times < 1 ? "more" : "fewer");
    if (p->skipped_steps)
        snprintf(dropped, sizeof dropped, "  %llu steps dropped", (unsigned long long)p->skipped_steps);
    fprintf(stderr, "%sstep %llu/%llu  loss %.4f  %s %.2f %%  %.0f images/s%s%s  %s left%s", d->terminal ? "\r" : "",
            (unsigned long long)p->step, (unsigned long long)p->steps, p->loss, p->accuracy_is_test ? "test" : "train",
            100 * p->accuracy, p->images_per_second, saved, dropped,
            left, d->terminal && !last ? "\033[K" : d->terminal ? "\033[K\n" : "\n");
    fflush(stderr);
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

static void ratio_text(uint64_t bytes, uint64_t dense, char *text, size_t capacity)
{
    double times = (double)dense / (double)bytes;
    snprintf(text, capacity, "%.2f times %s", times < 1 ? 1 / times : times, times < 1 ? "larger" : "smaller");
}

static void print_layers(const struct gw_train_summary *s)
{
    tool_note("%-16s %10s %9s   %-24s   %s", "", "", "", "push, bits/element", "pull, bits/element");
    tool_note("%-16s %10s %9s   %7s %8s %7s   %7s %8s %7s", "tensor", "elements", "nonzero", "frame", "payload", "entropy",
              "frame", "payload", "entropy");
    for (uint32_t t = 0; t < s->n_tensors; t++) {
        const struct gw_train_tensor *x = &s->tensors[t];
        tool_note("%-16s %10llu %8.2f%%   %7.3f %8.3f %7.3f   %7.3f %8.3f %7.3f", x->name, (unsigned long long)x->elements,
                  100 * x->nonzero_share, x->push_bits, x->push_payload_bits, x->push_entropy, x->pull_bits,
                  x->pull_payload_bits, x->pull_entropy);
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
    tool_note("%s, %s, %u worker%s, batch %u, %llu steps in %.1f s: %.0f images/s, %.2f ms a step (compute %.2f, codec %.2f, "
              "waiting %.2f)", s->net, s->codec, s->workers, s->workers == 1 ? "" : "s", s->batch,
              (unsigned long long)s->steps, s->seconds, s->images_per_second, s->step_ms, s->compute_ms, s->encode_ms,
              s->wait_ms);
    if (diverged)
        tool_note("the run diverged: after %.1f passes over the data its objective is no finite number; a smaller --lr may help", s->passes);
    else if (isnan(s->train_loss))
        tool_note("test accuracy %.2f %%; every one of the last steps was dropped", 100 * s->test_accuracy);
    else
        tool_note("test accuracy %.2f %%, train accuracy %.2f %%, train loss %.4f", 100 * s->test_accuracy,
                  100 * s->train_accuracy, s->train_loss);
    if (s->convex && !diverged)
        tool_note("objective %.10f after %.1f passes over the data (all of them in train loss; lambda %g)", s->objective, s->passes,
                  s->l2);
    if (s->skipped_steps)
        tool_note("%llu steps were dropped: a gradient held a NaN or an infinity; a smaller --lr may help", (unsigned long long)s->skipped_steps);
    if (s->bytes_up)
        tool_note("up %s (%s than float32's %s), down %s (%s)", up, up_times, dense, down, down_times);
    if (s->variance_factor >= 0)
        tool_note("%.3f %% of the elements were sent, variance factor %.3f", 100 * s->nonzero_share, s->variance_factor);
    if (s->residual_norm >= 0)
        tool_note("%.3f %% of the elements were sent, residual norm %.4g, age of the oldest threshold %.0f", 100 * s->nonzero_share,
                  s->residual_norm, s->threshold_age);
    tool_note("parameters %s: %s", s->parameter_hash, s->workers == 1      ? "one replica"
                                                      : s->replicas_identical ? "all replicas identical"
                                                                              : "THE REPLICAS DIFFER");
    if (out)
        tool_note("written to %s", out);
}

/* The run itself: progress, and what it came to. */
static int run(const struct gw_train_options *o, bool verbose, bool json)
{
    struct display display = {.terminal = isatty(STDERR_FILENO)};
    const struct gw_train_callbacks callbacks = {.progress = show_progress, .note = show_note, .stop = stop_wanted, .user = &display};
    static struct gw_train_summary summary;
    gw_status status = gw_train_run(o, &callbacks, &summary);
    if (status != GW_OK && display.shown && display.terminal)
        fputc('\n', stderr);
    if (status == GW_ERR_ARGUMENT)
        return tool_wrong_use("%s", gw_last_error());
    if (status != GW_OK)
        return tool_fail_status(status, NULL);
    if (summary.workers == 0) /* rank 0, in another process, tells */
        return TOOL_DONE;
    bool dense = strcmp(o->codec, "none") == 0 || strcmp(o->codec, "bf16") == 0 || strcmp(o->codec, "f16") == 0;
    if (verbose || !dense)
        print_layers(&summary);
    print_summary(&summary, o->resume ? o->resume : o->out);
    int printed = json ? tool_print_json(gw_train_summary_json(&summary)) : TOOL_DONE;
    if (printed != TOOL_DONE)
        return printed;
    return summary.replicas_identical ? TOOL_DONE : tool_fail("the replicas differ at the end; this is a bug, please report it");
}

/* ---- the command ---------------------------------------------------------------------------- */

int gw_cmd_train(int argc, char **argv)
{
    struct gw_train_options o = GW_TRAIN_DEFAULTS;
    struct gw_members_options who = {.link = "local", .rank = GW_MEMBERS_NO_RANK, .log = show_log, .stop = stop_wanted};
    const char *nonfinite = "skip";
    double momentum = NAN, weight_decay = NAN; /* NAN, and epochs 0: not given */
    uint64_t epochs = 0;
    bool json = false, verbose = false;
    const tool_option options[] = {
        {"--net", "NET", "lenet; mlp:784-300-10 with any widths; logreg or svm: convex, L2-regularised", TOOL_TEXT, &o.net, 0, 0},
        {"--data", "SOURCE", "folder with MNIST's files; file of LIBSVM text; digits or uneven: drawn", TOOL_TEXT, &o.data, 0, 0},
        {"--test", "FILE", "test samples of a LIBSVM file; without it accuracy is that of the training set", TOOL_TEXT, &o.test, 0, 0},
        {"--workers", "N", "workers, each with its own replica (default 1; mpi and tcp know it from what started them)", TOOL_U32,
         &who.workers, 1, 1024},
        {"--codec", "SPEC", "how gradients travel (gradwire codecs)", TOOL_TEXT, &o.codec, 0, 0},
        {"--batch", "TOTAL", "samples of a step, all workers together", TOOL_U32, &o.batch, 1, UINT32_MAX},
        {"--steps", "K", "length in steps", TOOL_U64, &o.steps, 1, UINT32_MAX},
        {"--epochs", "K", "length in epochs", TOOL_U64, &epochs, 1, 1000000},
        {"--optimizer", "O", "sgd, momentum or adam (beta1=0.9, beta2=0.999, epsilon=1e-8); svrg: for logreg and svm", TOOL_TEXT, &o.optimizer, 0, 0},
        {"--lr", "X", "learning rate of the first step", TOOL_DOUBLE, &o.lr, 0, 0},
        {"--momentum", "X", "momentum", TOOL_DOUBLE, &momentum, 0, 0},
        {"--schedule", "S", "const, poly:P, step:E1,E2,... or inverse:T0, rate / (1 + t/T0)", TOOL_TEXT, &o.schedule, 0, 0},
        {"--weight-decay", "X", "added to the average gradient, biases included", TOOL_DOUBLE, &weight_decay, 0, 0},
        {"--l2", "LAMBDA", "LAMBDA * |w|^2 in the objective: a weight decay of 2 * LAMBDA, in its place", TOOL_DOUBLE, &o.l2, 0, 0},
        {"--ema", "D", "evaluate a moving average of the parameters, decay min(D, (1+t)/(10+t))", TOOL_DOUBLE, &o.ema, 0, 0},
        {"--seed", "S", "first parameters, order of samples, draws", TOOL_U64, &o.seed, 0, INT64_MAX},
        {"--plan", "PLAN", "none: a group of tensors per layer; single: one group", TOOL_TEXT, &o.plan, 0, 0},
        {"--nonfinite", "skip|stop", "at a NaN or infinity: drop the step, or end the run", TOOL_TEXT, &nonfinite, 0, 0},
        {"--threads", "K", "computing threads of each worker (default 1; with --resume those of that run)", TOOL_U32, &o.threads, 1, 256},
        {"--codec-threads", "K", "codec threads", TOOL_U32, &o.codec_threads, 1, 256},
        {"--timeout", "S", "seconds a worker may be silent", TOOL_U32, &o.timeout_s, 1, 86400},
        {"--link", "local|mpi|tcp|servers", "how workers reach each other: threads of this process; ranks under mpirun or srun; processes "
         "that meet over TCP (gradwire launch starts them); at parameter servers only, so that they come and go", TOOL_TEXT, &who.link, 0, 0},
        {"--rank", "R", "tcp, servers: which worker this is, from 0 (default: RANK, or Slurm's)", TOOL_U32, &who.rank, 0, 1023},
        {"--rendezvous", "HOST:PORT", "tcp: where rank 0 listens and all meet (default: MASTER_ADDR:MASTER_PORT)", TOOL_TEXT,
         &who.rendezvous, 0, 0},
        {"--advertise", "HOST", "tcp: where the others reach this worker (default: its address towards rank 0)", TOOL_TEXT,
         &who.advertise, 0, 0},
        {"--flat", NULL, "do not add up the workers of one machine before what crosses to others; results are the same", TOOL_FLAG, &o.flat, 0, 0},
        {"--keys", "DIR", "tcp: encrypt, and let in only whose key is listed there (gradwire keys)", TOOL_TEXT, &who.keys, 0, 0},
        {"--servers", "LIST", "parameter servers HOST:PORT,... (gradwire server) average the gradients, in place of the workers themselves", TOOL_TEXT, &who.servers, 0, 0},
        {"--parameters", "local|servers", "who moves the parameters: every worker its own by the average gradient, or the parameter servers, from "
         "which workers fetch them; then servers may also be --mode async or stale:S", TOOL_TEXT, &o.parameters, 0, 0},
        {"--insecure", NULL, "tcp: without keys, let in anybody from other machines", TOOL_FLAG, &who.insecure, 0, 0},
        {"--out", "DIR", "folder for metrics, summary, TensorBoard events, parameters", TOOL_OUTPUT, &o.out, 0, 0},
        {"--overwrite", NULL, "remove the files of an earlier run from that folder; without it such a folder is refused",
         TOOL_FLAG, &o.overwrite, 0, 0},
        {"--resume", "DIR", "go on with the interrupted run in that folder from its newest checkpoint, with the same options",
         TOOL_TEXT, &o.resume, 0, 0},
        {"--checkpoint-every", "K", "save all that --resume needs every K steps and at the end (with --out)", TOOL_U64, &o.checkpoint_every, 1, 0},
        {"--save-gradients", "NAME", "each worker writes its gradient to NAME.rank-R.gwp, for bench exchange", TOOL_TEXT, &o.gradients, 0, 0},
        {"--save-at", "STEP", "that of this step, from 0 (default 100)", TOOL_U64, &o.gradients_at, 0, 0},
        {"--verbose", NULL, "a table per tensor at the end, for every codec", TOOL_FLAG, &verbose, 0, 0},
        {"--json", NULL, "the summary as one JSON object on standard output", TOOL_FLAG, &json, 0, 0},
    };
    const tool_usage usage = {
        .synopsis = "train [--net NET] [--data SOURCE] [options]",
        .about = "Trains a network on several workers whose gradients travel through a codec. Every worker takes its share of\n"
                 "each batch; the batch of a step is the same for any number of workers. Batches left over at an epoch's end\n"
                 "are dropped. Defaults: lenet on drawn digits, 1 worker, codec none, batch 64, 5 epochs, momentum 0.9 at rate\n"
                 "0.01, schedule poly:0.5, weight decay 0.0005, seed 1. Nothing is written without --out.\n"
                 "Data files may be plain, .gz or .xz. logreg and svm take LIBSVM text or uneven[:n=1024,d=2048,c1=0.6,c2=0.25],\n"
                 "drawn features of uneven magnitude; every epoch they report the objective over the whole training set.",
        .example = "gradwire train --net lenet --data digits --workers 4 --codec ternary --epochs 3\n"
                   "  gradwire train --net logreg --data a9a.xz --test a9a.t.xz --l2 1e-4 --optimizer svrg --lr 1 --schedule const",
        .options = options,
        .n_options = sizeof options / sizeof *options,
        .args = "train takes options only",
    };
    int exit_status = tool_parse(&usage, &argc, argv);
    if (exit_status != TOOL_PARSED)
        return exit_status;
    if (strcmp(nonfinite, "skip") != 0 && strcmp(nonfinite, "stop") != 0)
        return tool_wrong_use("--nonfinite is \"%s\", and must be skip or stop", nonfinite);
    if (o.steps && epochs)
        return tool_wrong_use("--steps and --epochs both say how long the run is: only one can be given");
    if (!isnan(o.l2) && !isnan(weight_decay))
        return tool_wrong_use("--l2 is a weight decay in the place of --weight-decay: only one can be given");
    if (!isnan(momentum) && strcmp(o.optimizer, "momentum") != 0)
        return tool_wrong_use("--momentum is for the optimizer momentum, and --optimizer is %s", o.optimizer);
    o.epochs = epochs ? epochs : o.epochs;
    o.momentum = isnan(momentum) ? o.momentum : momentum;
    o.weight_decay = isnan(weight_decay) ? o.weight_decay : weight_decay;
    o.stop_at_nonfinite = strcmp(nonfinite, "stop") == 0;

    struct gw_members members;
    catch_interrupts();
    who.timeout_ms = o.timeout_s * 1000;
    gw_status status = gw_members_begin(&who, &members);
    o.members = &members;
    if (status == GW_OK) {
        exit_status = run(&o, verbose, json);
        gw_members_end(&members, exit_status != TOOL_DONE);
        return exit_status;
    }
    exit_status = status == GW_ERR_ARGUMENT ? tool_wrong_use("%s", gw_last_error()) : tool_fail_status(status, NULL);
    gw_members_end(&members, true);
    return exit_status;
}
