/* Tests what a run tells of its steps: how the workers' records add up to lines and sums, and that a run that is gone
 * on with has the sums of one that was not interrupted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "checks.h"
#include "disk/folder.h"
#include "disk/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 2, STEPS = 3 };

static char folder[200];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/metrics_test.XXXXXX", GW_BINARY_DIR);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    static const char *const files[] = {GW_METRICS_FILE, GW_HISTOGRAMS_FILE, GW_EVENTS_FILE};
    for (int i = 0; i < 3; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        if (unlink(path) != 0)
            return -1;
    }
    return rmdir(folder);
}

static struct gw_metrics a_run(bool convex)
{
    return (struct gw_metrics){.steps = STEPS,
                               .steps_per_epoch = 2,
                               .window_begin = 1,
                               .batch = 8,
                               .workers = WORKERS,
                               .train_samples = 16,
                               .test_samples = 4,
                               .convex = convex};
}

/* The test set is looked at after each step but the first. All numbers are exact in binary and in milliseconds. */
static const struct gw_step_record *records_of(uint64_t step)
{
    static struct gw_step_record records[WORKERS];
    for (uint32_t r = 0; r < WORKERS; r++)
        records[r] = (struct gw_step_record){.loss = 4 * (r + 1.0),
                                             .correct = 2 + r,
                                             .gradients = 4,
                                             .step_seconds = 2,
                                             .compute_seconds = 1 + r,
                                             .result = {.committed = true,
                                                        .bytes_up = 100 + r,
                                                        .bytes_down = 200 + r,
                                                        .dense_bytes = 400,
                                                        .messages = 3,
                                                        .nonzeros = 1,
                                                        .elements = 4,
                                                        .wire = step == 1 ? GW_WIRE_FAST : GW_WIRE_SMALL},
                                             .lr = 0.5,
                                             .accounted = step == 0,
                                             .report = GW_CODEC_REPORT_NONE,
                                             .evaluated = step > 0,
                                             .test_correct = step > 0 ? 1 + r : 0,
                                             .full_loss = 4,
                                             .full_correct = 3 + r,
                                             .l2_term = 0.25};
    return records;
}

/* The n-th line of the file. The caller releases it. */
static json_t *line_of(int n)
{
    char path[400];
    json_t *line = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, GW_METRICS_FILE);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (int i = 0; i <= n; i++) {
        json_decref(line);
        line = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL);
        assert_non_null(line);
    }
    fclose(f);
    return line;
}

static void write_run(bool convex)
{
    struct gw_metrics m = a_run(convex);
    assert_int_equal(gw_metrics_open(&m, folder, true), GW_OK);
    for (uint64_t step = 0; step < STEPS; step++)
        assert_int_equal(gw_metrics_step(&m, step, records_of(step)), GW_OK);
    assert_int_equal(gw_metrics_commit(&m), GW_OK);
    gw_metrics_abandon(&m);
}

/* A line has the workers' numbers together. What was not looked at in this step is not in it. */
static void a_line_has_the_sums_of_all_workers(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        double value;
        bool evaluated, convex; /* lines of other steps and networks do not have it */
    } fields[] = {{"loss", 1.5, false, false},        {"accuracy", 0.625, false, false},
                  {"lr", 0.5, false, false},          {"step_ms", 2000, false, false},
                  {"compute_ms", 1500, false, false}, {"bytes_up", 201, false, false},
                  {"bytes_down", 401, false, false},  {"dense_bytes", 800, false, false},
                  {"messages", 6, false, false},      {"test_accuracy", 0.75, true, false},
                  {"train_loss", 0.5, true, true},    {"train_accuracy", 0.4375, true, true},
                  {"objective", 0.75, true, true}};
    for (int convex = 0; convex < 2; convex++) {
        write_run(convex);
        for (int step = 0; step < STEPS; step++) {
            json_t *line = line_of(step);
            for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
                const json_t *field = json_object_get(line, fields[i].key);
                const bool has = (step > 0 || !fields[i].evaluated) && (convex || !fields[i].convex);
                CHECK(has ? field && json_number_value(field) == fields[i].value : !field, "%s, step %d, convex %d",
                      fields[i].key, step, convex);
            }
            assert_true(json_number_value(json_object_get(line, "passes")) == (step + 1) / 2.0);
            json_decref(line);
        }
    }
}

/* Wherever the run was interrupted. The files have lines of later steps, which are dropped. */
static void a_run_that_is_gone_on_with_has_the_same_sums(void **state)
{
    (void)state;
    for (int convex = 0; convex < 2; convex++)
        for (uint64_t first = 0; first <= STEPS; first++) {
            static struct gw_train_summary want, got;
            struct gw_metrics m = a_run(convex), again = a_run(convex);
            assert_int_equal(gw_metrics_open(&m, NULL, false), GW_OK); /* nothing is written */
            for (uint64_t step = 0; step < STEPS; step++)
                assert_int_equal(gw_metrics_step(&m, step, records_of(step)), GW_OK);
            write_run(convex);
            assert_int_equal(gw_metrics_resume(&again, folder, first), GW_OK);
            CHECK(again.n_steps == first && again.next == first, "first %llu", (unsigned long long)first);
            for (uint64_t step = first; step < STEPS; step++)
                assert_int_equal(gw_metrics_step(&again, step, records_of(step)), GW_OK);
            gw_metrics_summary(&m, &want);
            gw_metrics_summary(&again, &got);
            CHECK(want.steps == got.steps && want.bytes_up == got.bytes_up && want.bytes_down == got.bytes_down &&
                      want.dense_bytes == got.dense_bytes && want.fast_steps == got.fast_steps &&
                      want.passes == got.passes && want.train_loss == got.train_loss &&
                      want.train_accuracy == got.train_accuracy && want.test_accuracy == got.test_accuracy &&
                      want.nonzero_share == got.nonzero_share && want.seconds == got.seconds &&
                      want.compute_ms == got.compute_ms && (!convex || want.objective == got.objective),
                  "first %llu, convex %d", (unsigned long long)first, convex);
            assert_int_equal(gw_metrics_commit(&again), GW_OK);
            gw_metrics_abandon(&again);
            json_decref(line_of(STEPS - 1));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_has_the_sums_of_all_workers, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_run_that_is_gone_on_with_has_the_same_sums, make_folder, remove_folder),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
