/* Tests whole runs: the same for any number of workers, the same again, and what is refused. */
#define _GNU_SOURCE /* nftw */
#include "disk/checkpoint.h"
#include "disk/folder.h"
#include "disk/rank_state.h"
#include "run/train.h"
#include "checks.h"
#include "own_folder.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static struct gw_train_summary run(struct gw_train_options o)
{
    static struct gw_train_summary summary;
    if (gw_train_run(&o, NULL, &summary) != GW_OK)
        fail_msg("the run failed: %s", gw_last_error());
    assert_true(summary.replicas_identical);
    return summary;
}

static struct gw_train_options small(void)
{
    struct gw_train_options o = GW_TRAIN_DEFAULTS;
    o.net = "mlp:784-32-10", o.steps = 60, o.batch = 50;
    return o;
}

/* The data of small() take longer to draw than such a run takes. */
static struct gw_train_options tiny(void)
{
    struct gw_train_options o = GW_TRAIN_DEFAULTS;
    o.net = "mlp:12-30-20-2", o.data = "uneven:n=200,d=12", o.steps = 30, o.batch = 9;
    return o;
}

/* Losses of all steps, from metrics.jsonl. */
static size_t losses_of(struct gw_train_options o, double *losses, size_t capacity)
{
    static const char *const files[] = {"metrics.jsonl", "summary.json", "parameters.gwp", "histograms.jsonl",
                                        "events.out.tfevents.0.gradwire"};
    assert_int_equal(make_folder(NULL), 0);
    o.out = folder;
    run(o);
    FILE *f = fopen(in("metrics.jsonl"), "r");
    assert_non_null(f);
    size_t n = 0;
    json_t *line;
    while (n < capacity && (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL))) {
        assert_int_equal(json_integer_value(json_object_get(line, "step")), n);
        losses[n++] = json_real_value(json_object_get(line, "loss"));
        json_decref(line);
    }
    fclose(f);
    assert_int_equal(remove_folder_of(files, sizeof files / sizeof *files), 0);
    return n;
}

/* Shares of 17, 17 and 16 samples: without the weights N*b_i/B the losses would drift apart in the second digit. */
TEST(workers_do_not_change_the_losses)
{
    static const char *const nets[] = {"mlp:784-32-10", "lenet"};
    for (int k = 0; k < 2; k++) {
        double one[60], three[60];
        struct gw_train_options o = small();
        o.net = nets[k];
        o.steps = k ? 15 : 60;
        assert_int_equal(losses_of(o, one, 60), o.steps);
        o.workers = 3;
        assert_int_equal(losses_of(o, three, 60), o.steps);
        for (uint64_t t = 0; t < o.steps; t++)
            if (!(fabs(one[t] - three[t]) < 1e-4 * one[t]))
                fail_msg("%s, step %llu: loss %.9g with one worker, %.9g with three", o.net, (unsigned long long)t,
                         one[t], three[t]);
    }
}

/* A checkpoint with a codec's state of another version, whose file is whole; then one that lacks what the codec keeps,
 * and says that it has none. That is no wrong use of an option. */
TEST(a_checkpoint_without_states_is_refused)
{
    static struct gw_train_summary summary;
    static struct gw_checkpoint c;
    char name[96];
    struct gw_train_options o = small();
    assert_int_equal(make_folder(NULL), 0);
    o.workers = 2, o.codec = "topk:ratio=0.05", o.steps = 2, o.checkpoint_every = 2, o.out = folder;
    run(o);
    snprintf(name, sizeof name, GW_CHECKPOINT_FILE, 2ull);
    assert_int_equal(gw_checkpoint_read(in(name), &c), GW_OK);
    assert_int_equal(c.n_state_files, 2);
    struct gw_rank_state s = {.identity = gw_checkpoint_identity(&c), .step = 2, .rank = 1, .workers = 2};
    assert_int_equal(gw_rank_state_read(folder, &s), GW_OK);
    ((uint8_t *)s.state)[4]++;
    assert_int_equal(gw_rank_state_write(folder, &s), GW_OK);
    gw_rank_state_free(&s);
    o.resume = folder, o.out = NULL, o.steps = 3;
    assert_int_equal(gw_train_run(&o, NULL, &summary), GW_ERR_SYSTEM);
    CHECK(strstr(gw_last_error(), name) && strstr(gw_last_error(), "reads version"), "%s", gw_last_error());
    c.n_state_files = 0;
    assert_int_equal(gw_checkpoint_write(folder, name, &c), GW_OK);
    gw_checkpoint_free(&c);
    assert_int_equal(gw_train_run(&o, NULL, &summary), GW_ERR_SYSTEM);
    CHECK(strstr(gw_last_error(), "after 2 steps has no state files"), "%s", gw_last_error());
    remove_folder(folder);
}

TEST(a_run_repeats_bit_for_bit)
{
    struct gw_train_options o = small();
    o.workers = 3, o.codec = "ternary";
    struct gw_train_summary a = run(o), b = run(o);
    assert_string_equal(a.parameter_hash, b.parameter_hash);
    assert_true(a.train_loss == b.train_loss && a.bytes_up == b.bytes_up);
    o.plan = "single";
    assert_string_equal(run(o).parameter_hash, a.parameter_hash);
    o.plan = "none", o.codec_threads = 2;
    assert_string_equal(run(o).parameter_hash, a.parameter_hash);
    o.seed = 2;
    assert_string_not_equal(run(o).parameter_hash, a.parameter_hash);
}

/* Plans change messages, never bits. */
TEST_BETWEEN(plans_change_no_bit, make_folder, clean_up)
{
    static const char *const codecs[] = {"ternary", "topk"};
    static char first[17];
    struct gw_train_options o = tiny();
    o.workers = 2, o.steps = 3;
    put_text("plan.json",
             "{\"groups\": [[\"fc3.bias\", \"fc3.weight\", \"fc2.bias\"], [\"fc1.weight\", \"fc2.weight\"], "
             "[\"fc1.bias\"]]}");
    const struct {
        const char *plan;
        uint32_t n_groups;
    } plans[] = {{"none", 3}, {"single", 1}, {"fixed:1", 6}, {"fixed:1K", 2}, {in("plan.json"), 3}};
    for (int c = 0; c < 2; c++)
        for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
            o.codec = codecs[c], o.plan = plans[i].plan;
            const struct gw_train_summary s = run(o);
            if (i == 0)
                strcpy(first, s.parameter_hash);
            CHECK(s.n_groups == plans[i].n_groups, "%s: %u groups", o.plan, s.n_groups);
            CHECK(strcmp(s.parameter_hash, first) == 0, "%s, %s", o.codec, o.plan);
        }
}

TEST_BETWEEN(plans_that_are_none_are_refused, make_folder, clean_up)
{
#define ALL "\"fc1.weight\", \"fc1.bias\", \"fc2.weight\", \"fc2.bias\", \"fc3.weight\", \"fc3.bias\""
    static const struct {
        const char *text, *says; /* text NULL: a method, and no file */
    } cases[] = {{"{}", "no \"groups\""},
                 {"{\"groups\": [[\"fc1.weight\"]]}", "says nothing of fc1.bias"},
                 {"{\"groups\": [[" ALL ", \"fc2.bias\"]]}", "has fc2.bias twice"},
                 {"{\"groups\": [[" ALL ", \"fc4.bias\"]]}", "\"fc4.bias\", which is no tensor of mlp"},
                 {"{\"groups\": [[" ALL "], []]}", "is empty"},
                 {"{\"groups\": [[" ALL "], 5]}", "no list of names"},
                 {"{\"groups\": [[7]]}", "no tensor of mlp"},
                 {"{", "a plan is what gradwire plan --json prints"},
                 {NULL, "best"},
                 {NULL, "fixed"},
                 {NULL, "fixed:0"},
                 {NULL, "fixed:x"},
                 {NULL, "exactly"},
                 {NULL, ""}};
    static struct gw_train_summary summary;
    struct gw_train_options o = tiny();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].text)
            put_text("plan.json", cases[i].text);
        o.plan = cases[i].text ? in("plan.json") : cases[i].says;
        CHECK(gw_train_run(&o, NULL, &summary) < 0, "case %zu", i);
        CHECK(strstr(gw_last_error(), cases[i].text ? cases[i].says : "--plan is"), "case %zu: %s", i, gw_last_error());
    }
}

/* Plans that are made, and made anew, while the run trains. They take a while. A run that is gone on with makes a plan
 * of its own steps. */
TEST_BETWEEN(plans_made_while_training_change_no_bit, make_folder, clean_up)
{
    static const struct {
        const char *codec, *plan;
        uint32_t replan, n_plans;
    } cases[] = {{"ternary", "paper", 0, 1}, {"topk:ratio=0.05,refresh=8", "exact", 17, 2}};
    struct gw_train_options o = tiny();
    o.workers = 3;
    for (int i = 0; i < 2; i++) {
        o.codec = cases[i].codec, o.plan = "none", o.replan = 0;
        const struct gw_train_summary none = run(o);
        assert_true(none.n_plans == 0 && none.n_groups == 3);
        o.plan = cases[i].plan, o.replan = cases[i].replan, o.out = i ? folder : NULL, o.checkpoint_every = i ? 30 : 0;
        const struct gw_train_summary live = run(o);
        CHECK(live.n_plans == cases[i].n_plans && strcmp(live.plan, o.plan) == 0, "%s: %u plans", o.plan, live.n_plans);
        CHECK_IN_RANGE(live.n_groups, 1, 6);
        assert_true(live.planned_ms > 0);
        assert_string_equal(live.parameter_hash, none.parameter_hash);
    }
    o.out = NULL, o.resume = folder, o.steps = 50;
    assert_int_equal(run(o).n_plans, 1);
}

/* There is no network between threads, so nothing may depend on time. */
TEST(the_wire_choice_among_threads)
{
    static const struct {
        gw_wire wire;
        uint32_t workers;
        const char *codec, *why;
    } cases[] = {{GW_WIRE_AUTO, 2, "ternary", "have no network"},
                 {GW_WIRE_FAST, 2, "ternary", "asked for"},
                 {GW_WIRE_AUTO, 2, "none", "one way to write"},
                 {GW_WIRE_AUTO, 1, "ternary", "one worker"}};
    struct gw_train_options o = tiny();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool fast = cases[i].wire == GW_WIRE_FAST;
        o.wire = cases[i].wire, o.workers = cases[i].workers, o.codec = cases[i].codec;
        const struct gw_train_summary s = run(o);
        CHECK(s.wire.asked == o.wire && s.wire.stands == (fast ? GW_WIRE_FAST : GW_WIRE_SMALL), "case %zu", i);
        CHECK(s.fast_steps == (fast ? s.steps : 0) && s.wire.n_comparisons == 0, "case %zu", i);
        CHECK(strstr(s.wire_why, cases[i].why), "case %zu: %s", i, s.wire_why);
    }
}

static uint32_t n_counts(const json_t *histogram, json_int_t elements, const char *codec)
{
    const json_t *counts = json_object_get(histogram, "counts"), *count;
    size_t i;
    uint32_t n = 0;
    json_int_t sum = 0;
    json_array_foreach ((json_t *)counts, i, count)
        sum += json_integer_value(count), n += json_integer_value(count) > 0;
    CHECK(!histogram || sum == elements, "%s: %d elements", codec, (int)sum);
    return n;
}

static double max_of(const json_t *line, const char *kind)
{
    return json_number_value(json_object_get(json_object_get(line, kind), "max"));
}

/* Twenty steps of a run have histograms of all weights. A codec with a residual draws no frames, and neither does a
 * codec that loses nothing. */
TEST(which_histograms_there_are)
{
    static const struct {
        const char *codec, *net;
        bool clipped, sent;
        int n_weights;
    } cases[] = {{"none", "mlp:12-30-20-2", false, false, 3},
                 {"none", "logreg", false, false, 1},
                 {"topk", "mlp:12-30-20-2", false, false, 3},
                 {"gspar", "mlp:12-30-20-2", false, true, 3},
                 {"ternary", "mlp:12-30-20-2", true, true, 3},
                 {"ternary:bucket=16", "mlp:12-30-20-2", false, true, 3},
                 {"ternary:scope=global", "mlp:12-30-20-2", false, false, 3}};
    struct gw_train_options o = tiny();
    o.workers = 2, o.out = folder;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n = 0;
        assert_int_equal(make_folder(NULL), 0);
        o.codec = cases[i].codec, o.net = cases[i].net;
        run(o);
        FILE *f = fopen(in("histograms.jsonl"), "r");
        assert_non_null(f);
        for (json_t *line; (line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); n++) {
            const json_t *clipped = json_object_get(line, "clipped"), *sent = json_object_get(line, "sent");
            const json_int_t elements = json_integer_value(json_object_get(line, "elements"));
            CHECK((clipped != NULL) == cases[i].clipped && (sent != NULL) == cases[i].sent, "case %zu", i);
            assert_true(n_counts(json_object_get(line, "raw"), elements, o.codec) > 0);
            n_counts(clipped, elements, o.codec);
            const uint32_t n_sent = n_counts(sent, elements, o.codec),
                           n_averaged = n_counts(json_object_get(line, "averaged"), elements, o.codec);
            assert_true(n_averaged > 0);
            if (clipped) /* three levels; two workers have five together */
                CHECK(n_sent <= 3 && n_averaged <= 5 && max_of(line, "sent") == max_of(line, "clipped") &&
                          max_of(line, "clipped") <= max_of(line, "raw"),
                      "%u and %u levels", n_sent, n_averaged);
            json_decref(line);
        }
        fclose(f);
        CHECK(n == 20 * cases[i].n_weights, "case %zu: %d lines", i, n);
        clean_up(NULL);
    }
}

TEST(summary_adds_up)
{
    struct gw_train_options o = small();
    o.workers = 2;
    struct gw_train_summary s = run(o);
    assert_int_equal(s.steps, 60);
    assert_int_equal(s.parameters, 784 * 32 + 32 + 32 * 10 + 10);
    /* Half of what each worker sends stays its own. */
    assert_int_equal(s.dense_bytes, 60 * s.parameters * 4);
    CHECK_IN_RANGE(s.bytes_up, s.dense_bytes, s.dense_bytes + s.dense_bytes / 20);
    CHECK_IN_RANGE(s.bytes_down, s.dense_bytes, s.dense_bytes + s.dense_bytes / 20);
    for (uint32_t t = 0; t < s.n_tensors; t++)
        assert_true(s.tensors[t].push_payload_bits == 32 && s.tensors[t].pull_payload_bits == 32);
}

TEST(digits_are_hard_for_a_line_and_easy_for_lenet)
{
    struct gw_train_options o = GW_TRAIN_DEFAULTS;
    o.epochs = 2, o.codec = "ternary", o.workers = 2;
    assert_true(run(o).test_accuracy > 0.95);
    o.net = "mlp:784-10", o.epochs = 10, o.codec = "none", o.workers = 1;
    assert_true(run(o).test_accuracy < 0.90);
}

/* With two means for a whole tensor this run ends at 41 %, and floats end at 93 %: pixels that are always white have no
 * gradient, but were sent as if they had one. */
TEST(the_defaults_of_onebit_train_a_perceptron)
{
    struct gw_train_options o = small();
    o.net = "mlp:784-256-10", o.codec = "onebit", o.workers = 4, o.batch = 64, o.steps = 300;
    o.lr = 0.1, o.schedule = "const", o.weight_decay = 0;
    struct gw_train_summary summary = run(o);
    if (!(summary.test_accuracy > 0.85))
        fail_msg("onebit ends at %.2f %%", 100 * summary.test_accuracy);
}

TEST(moving_average_is_what_is_evaluated)
{
    struct gw_train_options o = small();
    struct gw_train_summary plain = run(o);
    o.ema = 0.999;
    struct gw_train_summary average = run(o);
    assert_string_equal(plain.parameter_hash, average.parameter_hash);
    assert_true(plain.test_accuracy != average.test_accuracy);
}

TEST(a_step_that_is_not_finite_is_dropped_or_ends_the_run)
{
    struct gw_train_options o = small();
    o.lr = 1e30, o.schedule = "const", o.workers = 2, o.codec = "ternary";
    struct gw_train_summary s = run(o);
    assert_true(s.skipped_steps > 0 && s.skipped_steps < s.steps);
    o.stop_at_nonfinite = true;
    assert_int_equal(gw_train_run(&o, NULL, &s), GW_ERR_NONFINITE);
    assert_non_null(strstr(gw_last_error(), "on worker"));
    /* It counts steps as the summary of a run that ends there does. */
    unsigned done;
    assert_int_equal(sscanf(gw_last_error(), "after %u of 60 steps: ", &done), 1);
    o.stop_at_nonfinite = false, o.steps = done;
    assert_int_equal(run(o).skipped_steps, 0);
    o.steps = done + 1;
    assert_int_equal(run(o).skipped_steps, 1);
    o.steps = 60, o.stop_at_nonfinite = true;
    assert_int_equal(gw_train_run(&o, NULL, &s), GW_ERR_NONFINITE);
    assert_non_null(strstr(gw_last_error(), "fc"));
}

static void count_step(const struct gw_train_progress *progress, void *user)
{
    (void)progress;
    atomic_fetch_add((atomic_int *)user, 1);
}

/* The trainer counts steps a little later than it makes them. */
static bool stop_after_some(void *user)
{
    return atomic_load((atomic_int *)user) >= 3;
}

TEST(a_stop_leaves_no_final_name)
{
    atomic_int n_done = 0;
    struct gw_train_callbacks callbacks = {.progress = count_step, .stop = stop_after_some, .user = &n_done};
    struct gw_train_options o = small();
    struct gw_train_summary s;
    assert_int_equal(make_folder(NULL), 0);
    o.out = folder, o.workers = 3, o.steps = 600;
    assert_int_equal(gw_train_run(&o, &callbacks, &s), GW_ERR_CLOSED);
    unsigned done = 0;
    const char *after = strstr(gw_last_error(), "after ");
    CHECK(after && sscanf(after, "after %u of 600 steps", &done) == 1 && done > 3 && done < 600, "%s", gw_last_error());
    static const char *const files[] = {"metrics.jsonl.partial", "histograms.jsonl.partial",
                                        "events.out.tfevents.0.gradwire.partial"};
    assert_int_equal(remove_folder_of(files, 3), 0);
}

TEST(wrong_options_are_refused)
{
    struct {
        struct gw_train_options o;
        const char *word;
    } cases[20];
    int n = 0;
#define REFUSED(field, value, text) cases[n] = (typeof(cases[0])){small(), text}, cases[n++].o.field = value
    REFUSED(workers, 0, "--workers");
    REFUSED(workers, 51, "at least as large as the number of workers");
    REFUSED(batch, 30000, "20000 samples");
    REFUSED(net, "lenut", "lenet, cifarnet");
    REFUSED(net, "mlp:783-10", "783");
    REFUSED(codec, "ternery", "ternery");
    REFUSED(optimizer, "adamant", "momentum");
    REFUSED(schedule, "cosine", "poly:P");
    REFUSED(plan, "best", "single");
    REFUSED(lr, -1, "--lr");
    REFUSED(lr, 1e39, "--lr is 1e+39");
    REFUSED(momentum, 1, "--momentum");
    REFUSED(momentum, 0.99999999, "less than 1"); /* as a float it is 1 */
    REFUSED(weight_decay, NAN, "--weight-decay");
    REFUSED(weight_decay, 1e300, "--weight-decay");
    REFUSED(l2, 3e38, "--l2"); /* twice that is the weight decay */
    REFUSED(ema, 1, "--ema");
    REFUSED(checkpoint_every, 5, "--out");
    REFUSED(data, "/nowhere/at/all", "/nowhere/at/all");
    REFUSED(out, "/nowhere/at/all", "/nowhere/at/all");
    for (int i = 0; i < n; i++) {
        struct gw_train_summary s;
        gw_status status = gw_train_run(&cases[i].o, NULL, &s);
        if (status >= 0 || !strstr(gw_last_error(), cases[i].word))
            fail_msg("case %d (%s): status %d, \"%s\"", i, cases[i].word, (int)status, gw_last_error());
    }
}

RUN_TESTS("train", NULL, NULL)
