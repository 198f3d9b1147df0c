/* Tests convex networks: losses and gradients against their formulas, the minimum against Newton's method, whole
 * runs. */
#define _GNU_SOURCE /* nftw */
#include "checks.h"
#include "own_folder.h"
#include "run/train.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The problem is small enough for Newton's method with plain elimination. */
enum { N = 200, D = 12 };
#define DATA "uneven:n=200,d=12"
#define LAMBDA 0.01

TEST(losses_follow_their_formulas)
{
    for (double m = -30; m <= 30; m += 0.37) {
        double e = exp(-m), logistic = log(1 + e);
        assert_true(fabs(gw_convex_logreg.loss(m) - logistic) < 1e-12 * (1 + logistic));
        assert_true(fabs(gw_convex_logreg.slope(m) + e / (1 + e)) < 1e-12);
        assert_true(gw_convex_svm.loss(m) == fmax(0, 1 - m));
        assert_true(gw_convex_svm.slope(m) == (m < 1 ? -1 : 0));
    }
    assert_true(gw_convex_logreg.loss(0) == log(2));
    assert_true(gw_convex_logreg.loss(-1e6) == 1e6 && gw_convex_logreg.loss(1e6) == 0);
    assert_true(gw_convex_logreg.slope(-1e6) == -1 && gw_convex_logreg.slope(1e6) == 0);
    assert_true(isnan(gw_convex_svm.slope(NAN)) && isnan(gw_convex_logreg.slope(NAN)));
}

static double loss_at(const struct gw_convex *problem, const struct gw_samples *s, const uint32_t *order, uint32_t n,
                      const float *w)
{
    double loss = 0;
    uint32_t correct = 0;
    gw_convex_pass(problem, s, order, 5, n, w, &loss, &correct, 0, NULL);
    return loss;
}

/* Weights are multiples of 2^-6, and differences of 2^-10 are exact in float32. The hinge's differences are exact if no
 * sample's margin crosses 1. A sample that crosses it adds less than |x| <= 5 times the difference. */
TEST(gradients_are_differences_of_the_loss)
{
    static const struct gw_convex *const problems[] = {&gw_convex_logreg, &gw_convex_svm};
    struct gw_data data;
    float w[D];
    uint32_t order[40];
    assert_int_equal(gw_data_load(DATA, NULL, &data), GW_OK);
    for (uint32_t i = 0; i < 40; i++)
        order[i] = (7 * i + 3) % N;
    for (int k = 0; k < D; k++)
        w[k] = (float)((k * 37 % 23) - 11) / 64;
    for (int p = 0; p < 2; p++)
        for (int ordered = 0; ordered < 2; ordered++) {
            double sum[D] = {0}, loss = 0;
            uint32_t correct = 0, n_right = 0;
            const uint32_t *o = ordered ? order : NULL;
            gw_convex_pass(problems[p], &data.train, o, 5, 40, w, &loss, &correct, 0.5, sum);
            for (uint32_t i = 0; i < 40; i++) {
                double z = 0;
                for (int k = 0; k < D; k++)
                    z += w[k] * data.train.rows.value[(o ? o[i] : 5 + i) * D + k];
                n_right += (z > 0) == data.train.labels[o ? o[i] : 5 + i];
            }
            assert_int_equal(correct, n_right);
            for (int k = 0; k < D; k++) {
                const float h = 0x1p-10f;
                float kept = w[k];
                w[k] = kept + h;
                double up = loss_at(problems[p], &data.train, o, 40, w);
                w[k] = kept - h;
                double down = loss_at(problems[p], &data.train, o, 40, w), slope = 0.5 * (up - down) / (2 * (double)h);
                w[k] = kept;
                if (!(fabs(sum[k] - slope) < (p ? 0.5 : 1e-5)))
                    fail_msg("%s, weight %d: %.9g, not %.9g", problems[p]->name, k, sum[k], slope);
            }
        }
    gw_data_free(&data);
}

/* ---- the minimum of the logistic objective -------------------------------------------------- */

static double objective(const struct gw_samples *s, const double *w)
{
    double sum = 0, norm2 = 0;
    for (uint32_t i = 0; i < N; i++) {
        double z = 0;
        for (int k = 0; k < D; k++)
            z += w[k] * s->rows.value[i * D + k];
        sum += log1p(exp(s->labels[i] ? -z : z));
    }
    for (int k = 0; k < D; k++)
        norm2 += w[k] * w[k];
    return sum / N + LAMBDA * norm2;
}

static double newton(double *w)
{
    struct gw_data data;
    assert_int_equal(gw_data_load(DATA, NULL, &data), GW_OK);
    memset(w, 0, D * sizeof *w);
    for (int iteration = 0; iteration < 30; iteration++) {
        double a[D][D + 1] = {{0}}; /* Hessian | gradient */
        for (uint32_t i = 0; i < N; i++) {
            const float *x = data.train.rows.value + i * D;
            double z = 0;
            for (int k = 0; k < D; k++)
                z += w[k] * x[k];
            double p = 1 / (1 + exp(-z));
            for (int j = 0; j < D; j++) {
                for (int k = 0; k < D; k++)
                    a[j][k] += p * (1 - p) * x[j] * x[k] / N;
                a[j][D] += (p - data.train.labels[i]) * x[j] / N;
            }
        }
        for (int j = 0; j < D; j++)
            a[j][j] += 2 * LAMBDA, a[j][D] += 2 * LAMBDA * w[j];
        for (int j = 0; j < D; j++) /* Gauss and Jordan; the matrix is positive definite, so no pivots are looked for */
            for (int r = 0; r < D; r++) {
                double f = r == j ? 0 : a[r][j] / a[j][j];
                for (int k = j; k <= D; k++)
                    a[r][k] -= f * a[j][k];
            }
        for (int j = 0; j < D; j++)
            w[j] -= a[j][D] / a[j][j];
    }
    double minimum = objective(&data.train, w);
    gw_data_free(&data);
    return minimum;
}

static struct gw_train_options convex(const char *net, const char *optimizer)
{
    struct gw_train_options o = GW_TRAIN_DEFAULTS;
    o.net = net, o.data = DATA, o.optimizer = optimizer, o.schedule = "const", o.l2 = LAMBDA, o.workers = 3,
    o.batch = 20;
    return o;
}

static struct gw_train_summary run(struct gw_train_options o)
{
    static struct gw_train_summary summary;
    if (gw_train_run(&o, NULL, &summary) != GW_OK)
        fail_msg("the run failed: %s", gw_last_error());
    assert_true(summary.replicas_identical);
    return summary;
}

/* With a constant rate SGD stays away from the minimum. SVRG comes nearer by a factor in each epoch, down to what
 * float32 weights can say. It does so with unbiased ternary gradients, too: their noise goes to 0 with what is sent. */
TEST(svrg_converges_linearly_to_newtons_minimum)
{
    static const char *const codecs[] = {"none", "ternary:clip=0"};
    double w[D], minimum = newton(w);
    for (int k = 0; k < 2; k++) {
        struct gw_train_options o = convex("logreg", "svrg");
        o.codec = codecs[k], o.lr = k ? 1 : 4;
        double gaps[4];
        for (int i = 0; i < 4; i++) {
            o.epochs = (k ? 12 : 4) * (uint64_t)(i + 1);
            gaps[i] = run(o).objective - minimum;
        }
        for (int i = 1; i < 4; i++)
            if (!(gaps[i] < gaps[i - 1] / 10 || gaps[i] < 1e-11))
                fail_msg("%s: after %d times the epochs the objective is %.3e above the minimum, and was %.3e",
                         codecs[k], i + 1, gaps[i], gaps[i - 1]);
        assert_true(gaps[3] < 1e-10 && gaps[3] > -1e-12);
        o.optimizer = "sgd";
        assert_true(run(o).objective - minimum > 1e-6);
    }
}

TEST(sgd_converges_with_a_falling_rate)
{
    double w[D], minimum = newton(w);
    struct gw_train_options o = convex("logreg", "sgd");
    o.lr = 1, o.schedule = "inverse:100", o.epochs = 20;
    double early = run(o).objective - minimum;
    o.epochs = 500;
    double late = run(o).objective - minimum;
    assert_true(late > 0 && late < 1e-5 && late < early / 10);
}

/* At the minimum of a convex function no direction leads down. The svm's minimum is found by hand in one dimension. The
 * samples (x = 1, y = 1), (x = 0.5, y = 1), (x = 0.25, y = -1) give max(0, 1-w) + max(0, 1-w/2) + max(0, 1+w/4), a
 * third of it, plus LAMBDA*w^2. Beyond w = 1 the slope is (-0.5+0.25)/3 + 2*LAMBDA*w, and below it is 1/3 less. With
 * LAMBDA = 0.01 the minimum is at w = 2: there the slope is (-0.25/3 + 0.04) < 0 before and (0.25/3 + 0.04) > 0 after.
 * The objective is (0 + 0 + 1.5)/3 + 0.04. */
TEST(svm_finds_the_minimum_known_by_hand)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/convex_test.XXXXXX", GW_BINARY_DIR);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    static const char text[] = "1 1:1\n1 1:0.5\n-1 1:0.25\n";
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    struct gw_train_options o = convex("svm", "sgd");
    o.data = path, o.workers = 1, o.batch = 3, o.lr = 1, o.schedule = "inverse:10", o.epochs = 20000;
    struct gw_train_summary s = run(o);
    assert_true(fabs(s.objective - 0.54) < 1e-4);
    assert_true(fabs(s.train_loss - 0.5) < 1e-3);
    assert_true(s.l2 == LAMBDA && s.parameters == 1);
    assert_true(fabs(s.train_accuracy - 2. / 3) < 1e-12);
    unlink(path);
}

/* The result is the same for any number of threads. For any number of workers it is the same but for the rounding of
 * gradients. */
TEST(runs_repeat_and_workers_do_not_matter)
{
    static const char *const optimizers[] = {"sgd", "svrg", "momentum"};
    for (int k = 0; k < 3; k++) {
        struct gw_train_options o = convex("logreg", optimizers[k]);
        o.epochs = 3, o.codec = "ternary", o.lr = 0.1;
        struct gw_train_summary a = run(o), b;
        o.codec_threads = 2;
        b = run(o);
        assert_string_equal(a.parameter_hash, b.parameter_hash);
        assert_true(a.objective == b.objective);
        o.seed = 2;
        assert_string_not_equal(run(o).parameter_hash, a.parameter_hash);
        o.seed = 1, o.codec = "none";
        a = run(o);
        o.workers = 1;
        b = run(o);
        assert_true(fabs(a.objective - b.objective) < 1e-6);
        assert_true(a.train_accuracy == b.train_accuracy);
    }
}

/* svrg computes three gradients for a sample and epoch, and sends one more message of all floats in each epoch. Every
 * line has the passes. */
TEST(passes_and_bytes_are_counted)
{
    struct gw_train_options o = convex("logreg", "sgd");
    o.epochs = 4;
    struct gw_train_summary sgd = run(o);
    o.optimizer = "svrg";
    struct gw_train_summary svrg = run(o);
    assert_true(sgd.passes == 4 && svrg.passes == 12);
    assert_int_equal(sgd.dense_bytes / 40, svrg.dense_bytes / 44); /* 40 steps; svrg has 4 full gradients besides */
    assert_int_equal(sgd.bytes_up / 40, svrg.bytes_up / 44);
    assert_true(sgd.test_accuracy == sgd.train_accuracy);
    o.steps = 15; /* the run ends within an epoch, so there are two full gradients */
    assert_true(run(o).passes == 2 + 15 * 2 * 20. / N);
}

/* The line of every epoch has the objective at its end. */
TEST(objective_is_written_each_epoch)
{
    static const char *const files[] = {"metrics.jsonl", "summary.json", "parameters.gwp", "histograms.jsonl",
                                        "events.out.tfevents.0.gradwire"};
    struct gw_train_options o = convex("logreg", "sgd");
    assert_int_equal(make_folder(NULL), 0);
    o.epochs = 3, o.out = folder;
    struct gw_train_summary s = run(o);
    FILE *f = fopen(in("metrics.jsonl"), "r");
    assert_non_null(f);
    for (uint64_t t = 0; t < 30; t++) {
        json_t *line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL), *value = json_object_get(line, "objective");
        assert_non_null(line);
        assert_true(fabs(json_number_value(json_object_get(line, "passes")) - (double)(t + 1) / 10) < 1e-12);
        assert_true((value != NULL) == ((t + 1) % 10 == 0));
        if (t == 29)
            assert_true(json_number_value(value) == s.objective);
        json_decref(line);
    }
    fclose(f);
    struct gw_eval_result result;
    struct gw_eval_options eval = {.net = "logreg", .data = DATA, .from = folder, .threads = 1};
    assert_int_equal(gw_train_eval(&eval, &result), GW_OK);
    assert_true(result.accuracy == s.train_accuracy && fabs(result.loss - s.train_loss) < 1e-12);
    assert_string_equal(result.net, "logreg:12");
    eval.net = "svm";
    assert_int_equal(gw_train_eval(&eval, &result), GW_ERR_ARGUMENT);
    eval.net = NULL, eval.data = "uneven:n=5,d=13";
    assert_int_equal(gw_train_eval(&eval, &result), GW_ERR_ARGUMENT);
    assert_int_equal(remove_folder_of(files, sizeof files / sizeof *files), 0);
}

/* The run is resumed within an epoch (of 10 steps), so svrg needs its snapshot. It computes the full gradient once
 * more, but does not count it again. */
TEST(a_resumed_run_is_the_same)
{
    static const char *const optimizers[] = {"sgd", "svrg", "momentum", "adam"};
    for (int k = 0; k < 4; k++) {
        struct gw_train_options o = convex("logreg", optimizers[k]);
        o.codec = "ternary", o.steps = 47;
        struct gw_train_summary whole = run(o);
        assert_int_equal(make_folder(NULL), 0);
        o.out = folder, o.steps = 25, o.checkpoint_every = 25;
        run(o);
        o.out = NULL, o.resume = folder, o.steps = 47;
        struct gw_train_summary resumed = run(o), other;
        assert_int_equal(resumed.resumed_from, 25);
        assert_string_equal(resumed.parameter_hash, whole.parameter_hash);
        assert_true(resumed.objective == whole.objective);
        assert_true(resumed.passes == whole.passes);
        assert_true(resumed.bytes_up == whole.bytes_up && resumed.bytes_down == whole.bytes_down);
        assert_true(resumed.dense_bytes == whole.dense_bytes);
        o.l2 = 2 * LAMBDA, o.steps = 60;
        assert_int_equal(gw_train_run(&o, NULL, &other), GW_ERR_ARGUMENT);
        assert_non_null(strstr(gw_last_error(), "weight-decay"));
        remove_folder(folder);
    }
}

/* Networks of layers take rows, too. A row that is spread out is its values. */
TEST(layers_learn_from_rows)
{
    struct gw_train_options o = convex("mlp:12-2", "sgd");
    o.lr = 0.5, o.epochs = 20;
    struct gw_train_summary s = run(o);
    assert_true(s.test_accuracy > 0.9 && !s.convex);
}

TEST(wrong_use_is_refused)
{
    struct {
        struct gw_train_options o;
        const char *says;
    } cases[9];
    int n = 0;
#define REFUSED(field, value, text)                                                                                    \
    cases[n] = (typeof(cases[0])){convex("logreg", "svrg"), text}, cases[n++].o.field = value
    REFUSED(net, "mlp:12-2", "svrg is for logreg and svm only");
    REFUSED(net, "logreg:", "logreg:FEATURES");
    REFUSED(net, "svm:12x", "svm:FEATURES");
    REFUSED(net, "svm:11", "svm:11 takes 11 values");
    REFUSED(data, "digits", "2 classes");
    REFUSED(l2, -1, "--l2");
    REFUSED(transform, "mirror", "for pictures");
    REFUSED(schedule, "inverse:0", "inverse:T0");
    REFUSED(test, "/nowhere", "--test");
    for (int i = 0; i < n; i++) {
        struct gw_train_summary s;
        gw_status status = gw_train_run(&cases[i].o, NULL, &s);
        if (status != GW_ERR_ARGUMENT || !strstr(gw_last_error(), cases[i].says))
            fail_msg("case %d (%s): status %d, \"%s\"", i, cases[i].says, (int)status, gw_last_error());
    }
    struct gw_train_summary s;
    struct gw_train_options o = convex("logreg", "svrg");
    o.lr = 1e38, o.epochs = 10; /* the weights overflow, so there is no gradient at the snapshot */
    assert_int_equal(gw_train_run(&o, NULL, &s), GW_ERR_NONFINITE);
    assert_non_null(strstr(gw_last_error(), "full gradient of epoch"));
}

RUN_TESTS("convex", NULL, NULL)
