/* Tests what a run tells of its steps: how the workers' records add up to lines and sums, and that a run that is gone
 * on with has the sums of one that was not interrupted. */
#define _GNU_SOURCE /* nftw */
#include "checks.h"
#include "disk/folder.h"
#include "disk/metrics.h"
#include "own_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORKERS = 2, STEPS = 4 };

static const char *const files[] = {GW_METRICS_FILE, GW_HISTOGRAMS_FILE, GW_EVENTS_FILE};

static int remove_run(void **state)
{
    (void)state;
    return remove_folder_of(files, 3);
}

/* Two more steps are planned than are made. */
static struct gw_metrics a_run(bool convex)
{
    return (struct gw_metrics){.steps = STEPS + 2,
                               .steps_per_epoch = 2,
                               .window_begin = 1,
                               .batch = 8,
                               .workers = WORKERS,
                               .train_samples = 16,
                               .test_samples = 4,
                               .convex = convex};
}

/* Step 2 is dropped for worker 1's sake. The test set is looked at after steps 1 and 3, the second time with no success
 * at all. Frames are counted in steps 0 and 3. What rank 0 alone tells is something else on the other. All numbers are
 * exact in binary and in milliseconds. */
static const struct gw_step_record *records_of(uint64_t step)
{
    static struct gw_step_record records[WORKERS];
    const bool last = step == 3, evaluated = step == 1 || last, accounted = step == 0 || last;
    for (uint32_t r = 0; r < WORKERS; r++)
        records[r] = (struct gw_step_record){
            .loss = (double)(4 * (r + 1) * (step + 1)),
            .correct = (uint32_t)step + r,
            .gradients = 4,
            .step_seconds = 2 + r,
            .compute_seconds = 1 + r,
            .result = {.committed = step != 2 || r == 0,
                       .bytes_up = 100 + r,
                       .bytes_down = 200 + r,
                       .dense_bytes = 400,
                       .messages = 3,
                       .nonzeros = r      ? 7
                                   : last ? 0
                                          : 2,
                       .elements = r ? 7 : 4,
                       .encode_seconds = 0.5 + r,
                       .wait_seconds = 0.25 + 0.5 * r,
                       .bound_gap = (double)(step + r),
                       .wire = step == 1 || r ? GW_WIRE_FAST : GW_WIRE_SMALL},
            .wire = {.stands = r ? GW_WIRE_SMALL : GW_WIRE_FAST, .small_seconds = 0.5, .fast_seconds = 0.25 + r},
            .wire_compared = step == 1,
            .lr = 0.5,
            .accounted = accounted,
            .report = accounted ? (struct gw_codec_report){.variance_factor = r + 3.0 * !last,
                                                           .gradient_norm = last ? 4 : 2,
                                                           .residual_norm = r + 3.0 * !last,
                                                           .threshold_age = r + 5.0 + (double)step}
                                : GW_CODEC_REPORT_NONE,
            .evaluated = evaluated,
            .test_correct = step == 1 ? 1 + r : 0,
            .full_loss = step == 1 ? 4
                         : last    ? 8
                                   : 0,
            .full_correct = step == 1 ? 3 + r : 0,
            .l2_term = 0.25 + 9 * r};
    return records;
}

/* The n-th line of the file. The caller releases it. */
static json_t *line_of(int n)
{
    json_t *line = NULL;
    FILE *f = fopen(in(GW_METRICS_FILE), "r");
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
    assert_int_equal(gw_metrics_begin(&m, folder), GW_OK);
    for (uint64_t step = 0; step < STEPS; step++)
        assert_int_equal(gw_metrics_step(&m, step, records_of(step)), GW_OK);
    assert_int_equal(gw_metrics_commit(&m), GW_OK);
    gw_metrics_abandon(&m);
}

#define NOT -1 /* the line has no such field */

/* A line has the workers' numbers together. What was not looked at in this step is not in it. */
TEST_BETWEEN(a_line_has_the_sums_of_all_workers, make_folder, remove_run)
{
    static const struct {
        const char *key;
        double at[STEPS];
        bool convex; /* lines of other networks do not have it */
    } fields[] = {{"step", {0, 1, 2, 3}, false},
                  {"epoch", {0, 0, 1, 1}, false},
                  {"loss", {1.5, 3, 4.5, 6}, false},
                  {"accuracy", {0.125, 0.375, 0.625, 0.875}, false},
                  {"lr", {0.5, 0.5, 0.5, 0.5}, false},
                  {"step_ms", {2000, 2000, 2000, 2000}, false},
                  {"compute_ms", {1500, 1500, 1500, 1500}, false},
                  {"encode_ms", {1000, 1000, 1000, 1000}, false},
                  {"wait_ms", {500, 500, 500, 500}, false},
                  {"bytes_up", {201, 201, 201, 201}, false},
                  {"bytes_down", {401, 401, 401, 401}, false},
                  {"dense_bytes", {800, 800, 800, 800}, false},
                  {"messages", {6, 6, 6, 6}, false},
                  {"nonzero_share", {0.5, NAN, NAN, 0}, false}, /* null: its frames were not counted */
                  {"bound_gap", {1, 2, 3, 4}, false},
                  {"wire_small_ms", {NOT, 500, NOT, NOT}, false},
                  {"wire_fast_ms", {NOT, 250, NOT, NOT}, false},
                  {"passes", {0.5, 1, 1.5, 2}, false},
                  {"variance_factor", {3, NOT, NOT, 0}, false},
                  {"gradient_norm", {2, NOT, NOT, 4}, false},
                  {"residual_norm", {3, NOT, NOT, 0}, false},
                  {"threshold_age", {5, NOT, NOT, 8}, false},
                  {"test_accuracy", {NOT, 0.75, NOT, 0}, false},
                  {"train_loss", {NOT, 0.5, NOT, 1}, true},
                  {"train_accuracy", {NOT, 0.4375, NOT, 0}, true},
                  {"objective", {NOT, 0.75, NOT, 1.25}, true}};
    for (int convex = 0; convex < 2; convex++) {
        write_run(convex);
        for (int step = 0; step < STEPS; step++) {
            json_t *line = line_of(step);
            for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
                const json_t *field = json_object_get(line, fields[i].key);
                const double want = fields[i].convex && !convex ? NOT : fields[i].at[step];
                CHECK(want == NOT   ? !field
                      : isnan(want) ? json_is_null(field)
                                    : json_is_number(field) && json_number_value(field) == want,
                      "%s, step %d, convex %d", fields[i].key, step, convex);
            }
            assert_int_equal(json_is_true(json_object_get(line, "committed")), step != 2);
            assert_string_equal(json_string_value(json_object_get(line, "wire")), step == 1 ? "fast" : "small");
            const char *stands = json_string_value(json_object_get(line, "wire_stands"));
            assert_true(step == 1 ? stands && strcmp(stands, "fast") == 0 : !stands);
            json_decref(line);
        }
    }
}

/* What all four steps add up to. Means of steps leave out the dropped one. The variance factor is (3 * 2^2 + 0 * 4^2) /
 * (2^2 + 4^2). */
static void check_sums(const struct gw_metrics *m, uint64_t first)
{
    static struct gw_train_summary s;
    struct gw_train_progress p;
    gw_metrics_summary(m, &s);
    CHECK(s.steps == 4 && s.missing_steps == 0 && s.skipped_steps == 1 && s.fast_steps == 1 && s.passes == 2,
          "from step %d on", (int)first);
    CHECK(s.bytes_up == 804 && s.bytes_down == 1604 && s.dense_bytes == 3200, "from step %d on", (int)first);
    CHECK(s.seconds == 8 && s.step_ms == 2000 && s.compute_ms == 1500 && s.encode_ms == 1000 && s.wait_ms == 500 &&
              s.images_per_second == 4,
          "from step %d on", (int)first);
    CHECK(s.nonzero_share == 0.25 && s.variance_factor == 0.6 && s.residual_norm == 0 && s.threshold_age == 8,
          "from step %d on", (int)first);
    CHECK(s.test_accuracy == 0 && s.convex == m->convex, "from step %d on", (int)first);
    if (m->convex)
        CHECK(s.train_loss == 1 && s.train_accuracy == 0 && s.objective == 1.25, "from step %d on", (int)first);
    else
        CHECK(s.train_loss == 4.5 && s.train_accuracy == 0.625, "from step %d on", (int)first);
    gw_metrics_progress(m, &p);
    CHECK(p.step == 4 && p.steps == 6 && p.skipped_steps == 1 && p.images_per_second == 4 && p.seconds_left == 4,
          "from step %d on", (int)first);
    CHECK(fabs(p.loss - 3.5) < 1e-14 && fabs(m->running_accuracy - 1.375 / 3) < 1e-15, "from step %d on", (int)first);
    CHECK(p.accuracy_is_test && p.accuracy == 0, "from step %d on", (int)first);
    CHECK(p.times_smaller_up == 3200.0 / 804 && p.times_smaller_down == 3200.0 / 1604, "from step %d on", (int)first);
}

/* Wherever the run was interrupted. The files have lines of later steps, which are dropped. */
TEST_BETWEEN(a_run_that_is_gone_on_with_has_the_same_sums, make_folder, remove_run)
{
    for (int convex = 0; convex < 2; convex++) {
        struct gw_metrics m = a_run(convex);
        assert_int_equal(gw_metrics_open(&m, NULL, false), GW_OK); /* nothing is written */
        for (uint64_t step = 0; step < STEPS; step++)
            assert_int_equal(gw_metrics_step(&m, step, records_of(step)), GW_OK);
        check_sums(&m, 0);
        for (uint64_t first = 0; first <= STEPS; first++) {
            m = a_run(convex);
            write_run(convex);
            assert_int_equal(gw_metrics_resume(&m, folder, first), GW_OK);
            CHECK(m.n_steps == first && m.next == first, "from step %d on", (int)first);
            CHECK((m.test_accuracy < 0) == (first < 2) && (m.residual_norm < 0) == (first < 1), "from step %d on",
                  (int)first);
            for (uint64_t step = first; step < STEPS; step++)
                assert_int_equal(gw_metrics_step(&m, step, records_of(step)), GW_OK);
            check_sums(&m, first);
            assert_int_equal(gw_metrics_commit(&m), GW_OK);
            gw_metrics_abandon(&m);
            json_decref(line_of(STEPS - 1));
        }
    }
}

/* The events of a file, a line "step tag value" for each. */
static void read_events(char *text, size_t capacity)
{
    uint8_t head[12], event[200];
    FILE *f = fopen(in(GW_EVENTS_FILE), "rb");
    assert_non_null(f);
    for (int i = 0; fread(head, 1, sizeof head, f) == sizeof head; i++) {
        assert_int_equal(fread(event, 1, head[0] + 4u, f), head[0] + 4u);
        if (i == 0) /* the name of the format */
            continue;
        float value; /* behind time and step, whose sizes checkpoint_test checks, and three lengths */
        const uint8_t *tag = event + 17;
        memcpy(&value, tag + event[16] + 1, sizeof value);
        const size_t n = strlen(text);
        snprintf(text + n, capacity - n, "%u %.*s %g\n", event[10], event[16], (const char *)tag, (double)value);
    }
    fclose(f);
}

/* An event of a step says what a line says. What a step does not have, it does not say. */
TEST_BETWEEN(events_say_what_there_is, make_folder, remove_run)
{
    static const char *const right[] = {
        ("0 loss 1.5\n0 lr 0.5\n0 accuracy/train 0.125\n0 bytes/up 201\n0 bytes/down 401\n0 codec/nonzero_share 0.5\n"
         "0 codec/variance_factor 3\n0 codec/residual_norm 3\n0 codec/threshold_age 5\n"
         "1 loss 3\n1 lr 0.5\n1 accuracy/train 0.375\n1 bytes/up 201\n1 bytes/down 401\n1 accuracy/test 0.75\n"),
        "1 objective 0.75\n",
        ("2 loss 4.5\n2 lr 0.5\n2 accuracy/train 0.625\n2 bytes/up 201\n2 bytes/down 401\n"
         "3 loss 6\n3 lr 0.5\n3 accuracy/train 0.875\n3 bytes/up 201\n3 bytes/down 401\n3 accuracy/test 0\n"),
        "3 objective 1.25\n",
        "3 codec/nonzero_share 0\n3 codec/variance_factor 0\n3 codec/residual_norm 0\n3 codec/threshold_age 8\n"};
    for (int convex = 0; convex < 2; convex++) {
        char found[2000] = "", want[2000] = "";
        for (int i = 0; i < 5; i++)
            if (convex || i % 2 == 0)
                strcat(want, right[i]);
        write_run(convex);
        read_events(found, sizeof found);
        assert_string_equal(found, want);
    }
}

/* A run that ends early leaves its files without their names. A run that made no step leaves nothing. */
TEST_BETWEEN(a_run_that_ends_early, make_folder, remove_empty_folder)
{
    for (int n_steps = 0; n_steps < 2; n_steps++) {
        struct gw_metrics m = a_run(false);
        assert_int_equal(gw_metrics_open(&m, folder, true), GW_OK);
        assert_int_equal(gw_metrics_begin(&m, folder), GW_OK);
        if (n_steps)
            assert_int_equal(gw_metrics_step(&m, 0, records_of(0)), GW_OK);
        gw_metrics_abandon(&m);
        for (int i = 0; i < 3; i++) {
            char partial[4220];
            snprintf(partial, sizeof partial, "%s" GW_PARTIAL, in(files[i]));
            assert_int_equal(access(in(files[i]), F_OK), -1);
            assert_int_equal(access(partial, F_OK), n_steps ? 0 : -1);
            if (n_steps)
                assert_int_equal(unlink(partial), 0);
        }
    }
}

/* A number that a summary has. -1: the field is null. */
static double number_of(const json_t *object, const char *field)
{
    const json_t *value = json_object_get(object, field);
    assert_true(json_is_number(value) || json_is_null(value));
    return json_is_null(value) ? -1 : json_number_value(value);
}

/* A summary has an objective if the network is convex, and a row for each tensor. What there is not is null, or is not
 * there. */
TEST(a_summary_says_what_there_is)
{
    static struct gw_train_summary summary;
    for (int convex = 0; convex < 2; convex++)
        for (uint32_t n_tensors = 0; n_tensors < 3; n_tensors++) {
            summary = (struct gw_train_summary){.net = "logreg",
                                                .codec = "none",
                                                .convex = convex,
                                                .objective = 0.25,
                                                .l2 = 0.5,
                                                .test_accuracy = NAN,
                                                .train_accuracy = 0.75,
                                                .nonzero_share = NAN,
                                                .variance_factor = convex ? 2 : -1,
                                                .residual_norm = convex ? 3 : -1,
                                                .threshold_age = 4,
                                                .n_tensors = n_tensors};
            for (uint32_t t = 0; t < GW_MAX_TENSORS; t++)
                summary.tensors[t] = (struct gw_train_tensor){.name = "w", .elements = 10 + t, .push_bits = 1.5};
            json_t *o = gw_train_summary_json(&summary);
            assert_non_null(o);
            assert_string_equal(json_string_value(json_object_get(o, "net")), "logreg");
            assert_true(number_of(o, "test_accuracy") == -1 && number_of(o, "train_accuracy") == 0.75);
            assert_true(number_of(o, "nonzero_share") == -1);
            static const char *const fields[] = {"objective", "l2", "variance_factor", "residual_norm",
                                                 "threshold_age"};
            static const double values[] = {0.25, 0.5, 2, 3, 4};
            for (int i = 0; i < 5; i++)
                if (convex)
                    assert_true(number_of(o, fields[i]) == values[i]);
                else
                    assert_null(json_object_get(o, fields[i]));
            const json_t *layers = json_object_get(o, "layers");
            assert_int_equal(json_array_size(layers), n_tensors);
            for (uint32_t t = 0; t < n_tensors; t++)
                assert_true(number_of(json_array_get(layers, t), "elements") == 10 + t);
            json_decref(o);
        }
}

/* Lines are read up to the first one that no run wrote. That one and all after it are dropped. */
TEST_BETWEEN(a_damaged_line_ends_what_is_read, make_folder, remove_run)
{
    static const struct {
        const char *from, *to; /* in the line of step 2 */
    } cases[] = {{"\"step\": 2", "\"step\": -2"},
                 {"\"step\": 2", "\"step\": 1"},
                 {"\"loss\"", "\"lost\""},
                 {"\"passes\": 1.5", "\"passes\": -1.5"},
                 {"\"committed\": false", "\"committed\": 0"},
                 {"\"bytes_up\": 201", "\"bytes_up\": 0.5"},
                 {"\"bytes_up\": 201", "\"bytes_up\": -1"},
                 {"}", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char lines[STEPS][2000];
        struct gw_metrics m = a_run(true);
        write_run(true);
        FILE *f = fopen(in(GW_METRICS_FILE), "r+");
        assert_non_null(f);
        for (int step = 0; step < STEPS; step++)
            assert_non_null(fgets(lines[step], sizeof lines[step], f));
        rewind(f);
        for (int step = 0; step < STEPS; step++) {
            const char *at = step == 2 ? strstr(lines[step], cases[i].from) : NULL;
            assert_true(at || step != 2);
            if (at)
                fprintf(f, "%.*s%s%s", (int)(at - lines[step]), lines[step], cases[i].to, at + strlen(cases[i].from));
            else
                fputs(lines[step], f);
        }
        assert_int_equal(fclose(f), 0);
        assert_int_equal(gw_metrics_resume(&m, folder, STEPS), GW_OK);
        CHECK(m.n_steps == 2 && m.next == STEPS && m.bytes_up == 402, "%s: %d steps", cases[i].to, (int)m.n_steps);
        assert_int_equal(ftell(m.lines.stream), strlen(lines[0]) + strlen(lines[1]));
        assert_int_equal(gw_metrics_commit(&m), GW_OK);
        gw_metrics_abandon(&m);
    }
}

/* Who goes on with a run reads no more of a file than a run can have written: here a hole of 1 TB. */
TEST_BETWEEN(a_line_without_an_end_is_not_read, make_folder, remove_run)
{
    struct gw_metrics m = a_run(false);
    write_run(false);
    assert_int_equal(truncate(in(GW_METRICS_FILE), 0), 0);
    assert_int_equal(truncate(in(GW_METRICS_FILE), (off_t)1 << 40), 0);
    assert_int_equal(truncate(in(GW_HISTOGRAMS_FILE), 0), 0);
    assert_int_equal(truncate(in(GW_HISTOGRAMS_FILE), (off_t)1 << 40), 0);
    assert_int_equal(gw_metrics_resume(&m, folder, STEPS), GW_OK);
    assert_int_equal(m.n_steps, 0);
    assert_int_equal(ftell(m.lines.stream), 0);
    assert_int_equal(gw_metrics_commit(&m), GW_OK);
    gw_metrics_abandon(&m);
}

/* A worker at parameter servers may come late, be left out for a while, or make steps again. */
TEST(steps_without_records_are_missing)
{
    static const struct {
        uint64_t n, steps[6], missing;
    } cases[] = {{2, {2, 3}, 2}, {2, {1, 3}, 2}, {6, {0, 1, 2, 3, 2, 3}, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct gw_metrics m = a_run(false);
        static struct gw_train_summary s;
        for (uint64_t i = 0; i < cases[c].n; i++)
            assert_int_equal(gw_metrics_step(&m, cases[c].steps[i], records_of(cases[c].steps[i])), GW_OK);
        gw_metrics_summary(&m, &s);
        CHECK(s.steps == 4 && s.missing_steps == cases[c].missing, "case %zu: %d", c, (int)s.missing_steps);
    }
}

/* Events that no run wrote are dropped. The first event names the format, and it stands there once: after whole events,
 * and after damaged ones. */
TEST_BETWEEN(damaged_events_begin_anew, make_folder, remove_run)
{
    char bytes[2000];
    for (int damaged = 0; damaged < 2; damaged++) {
        struct gw_metrics m = a_run(false);
        write_run(false);
        if (damaged)
            assert_int_equal(truncate(in(GW_EVENTS_FILE), 5), 0);
        assert_int_equal(gw_metrics_resume(&m, folder, STEPS), GW_OK);
        assert_int_equal(gw_metrics_commit(&m), GW_OK);
        gw_metrics_abandon(&m);
        const size_t n = get(GW_EVENTS_FILE, bytes, sizeof bytes);
        int times = 0;
        for (size_t at = 0; at + 11 <= n; at++)
            times += memcmp(bytes + at, "brain.Event", 11) == 0;
        CHECK(times == 1 && (n < 100) == damaged, "damaged %d: %d times in %zu bytes", damaged, times, n);
    }
}

RUN_TESTS("metrics", NULL, NULL)
