/* Tests what `gradwire report` reads from runs: from long ones, short ones, ones that still go on, and from files that
 * are broken or hostile. */
#define _GNU_SOURCE /* nftw */
#include "report.h"
#include "checks.h"
#include "own_folder.h"

#include <math.h>
#include <string.h>

static const report_limits limits = {.points = 400, .histograms = 24, .layers = 150};
static char *text; /* of the file that is written next */
static size_t n_text;

static FILE *write_text(void)
{
    FILE *file = open_memstream(&text, &n_text);
    assert_non_null(file);
    return file;
}

static void put_written(FILE *file, const char *name)
{
    assert_int_equal(fclose(file), 0);
    put(name, text, n_text);
    free(text);
}

static double step_ms(int t)
{
    return 10 + t * 7919 % 1000 / 100.0;
}

static void write_line(FILE *file, int64_t t, const char *more)
{
    fprintf(file, "{\"step\": %lld, \"loss\": %.17g, \"step_ms\": %.17g, \"bytes_up\": 1000, \"bytes_down\": 2000%s}\n",
            (long long)t, 3 / fmax(1 + (double)t, 1), step_ms((int)(t & 0xffff)), more);
}

/* Makes the folder of a run of so many steps. cut: a part of one more line. */
static void put_run(const char *name, int n_steps, bool finished, const char *cut)
{
    char path[100];
    FILE *file = write_text();
    for (int t = 0; t < n_steps; t++)
        write_line(file, t, ", \"wire\": \"small\"");
    fputs(cut, file);
    snprintf(path, sizeof path, "%s/metrics.jsonl%s", name, finished ? "" : ".partial");
    put_written(file, path);
    file = write_text();
    for (int s = 0; s < (n_steps < 20 ? n_steps : 20); s++)
        for (int k = 0; k < 64; k++) {
            fprintf(file, "{\"step\": %d, \"tensor\": \"conv%d.weight\", \"raw\": {\"max\": 0.5, \"counts\": [1",
                    s * (n_steps - 1) / 19, k);
            for (int bin = 1; bin < 64; bin++)
                fputs(", 12345", file);
            fputs("]}}\n", file);
        }
    snprintf(path, sizeof path, "%s/histograms.jsonl%s", name, finished ? "" : ".partial");
    put_written(file, path);
    file = write_text();
    fprintf(file, "{\"data\": \"20000+4000 samples\", \"options\": {\"net\": \"lenet\", \"steps\": %d}}", n_steps);
    snprintf(path, sizeof path, "%s/run.json", name);
    put_written(file, path);
    if (!finished)
        return;
    file = write_text();
    fprintf(file, "{\"net\": \"lenet\", \"steps\": %d, \"layers\": [", n_steps);
    for (int k = 0; k < 161; k++)
        fprintf(file, "%s{\"name\": \"layer.weight\", \"elements\": 123456, \"push_bits\": 1.23456}", k ? ", " : "");
    fputs("]}", file);
    snprintf(path, sizeof path, "%s/summary.json", name);
    put_written(file, path);
}

static json_t *read_run(const char *name)
{
    json_t *run = report_run(in(name), &limits);
    assert_non_null(run);
    return run;
}

static double number_at(const json_t *run, const char *column, size_t i)
{
    return json_number_value(json_array_get(json_object_get(json_object_get(run, "series"), column), i));
}

static size_t n_points(const json_t *run)
{
    return json_array_size(json_object_get(json_object_get(run, "series"), "steps"));
}

static json_int_t total_steps(const json_t *run)
{
    return json_integer_value(json_object_get(json_object_get(run, "totals"), "steps"));
}

/* There are so many notes, and one of them says this. */
static void check_notes(const json_t *run, size_t n, const char *says)
{
    const json_t *notes = json_object_get(run, "notes"), *note;
    size_t i;
    bool said = !says;
    CHECK(json_array_size(notes) == n, "%zu notes, the first is %s", json_array_size(notes),
          json_string_value(json_array_get(notes, 0)));
    json_array_foreach ((json_t *)notes, i, note)
        said = said || strstr(json_string_value(note), says);
    CHECK(said, "no note says \"%s\"; the first is %s", says, json_string_value(json_array_get(notes, 0)));
}

TEST_BETWEEN(long_runs_become_short, make_folder, clean_up)
{
    enum { N = 2000, RUNS = 20 };
    const char *const names[] = {"loss", "seconds", "bytes", "step_ms", "step_ms_min", "step_ms_max"};
    char *paths[RUNS];
    double seconds = 0, least = INFINITY, most = 0;
    size_t n_bytes;
    json_t *notes;
    put_run("long", N, true, "");
    json_t *run = read_run("long"), *histograms = json_object_get(run, "histograms");
    const size_t n = n_points(run);
    CHECK_IN_RANGE(n, 150, 402);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_int_equal(json_array_size(json_object_get(json_object_get(run, "series"), names[i])), n);
    assert_true(number_at(run, "steps", 0) == 1 && number_at(run, "steps", n - 1) == N);
    assert_true(number_at(run, "loss", 0) == 3 && fabs(number_at(run, "loss", n - 1) - 3.0 / N) < 1e-15);
    for (int t = 0; t < N; t++)
        seconds += step_ms(t) / 1e3;
    assert_true(fabs(number_at(run, "seconds", n - 1) - seconds) < 1e-6);
    assert_true(number_at(run, "bytes", n - 1) == 3000.0 * N);
    for (size_t i = 0; i < n; i++) {
        assert_true(number_at(run, "step_ms_min", i) <= number_at(run, "step_ms", i));
        assert_true(number_at(run, "step_ms", i) <= number_at(run, "step_ms_max", i));
        least = fmin(least, number_at(run, "step_ms_min", i)), most = fmax(most, number_at(run, "step_ms_max", i));
    }
    assert_true(least == 10 && most == 19.99);
    assert_int_equal(json_integer_value(json_object_get(histograms, "steps")), 20);
    assert_int_equal(json_integer_value(json_object_get(histograms, "tensors")), 64);
    const json_t *rows = json_object_get(histograms, "rows"), *last = json_array_get(rows, json_array_size(rows) - 1);
    CHECK_IN_RANGE(json_array_size(rows), 12, 24);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(rows, 0), "step")), 1);
    assert_int_equal(json_integer_value(json_object_get(last, "step")), N);
    assert_string_equal(json_string_value(json_object_get(last, "tensor")), "conv63.weight");
    assert_int_equal(json_array_size(json_object_get(run, "layers")), 150);
    check_notes(run, 0, NULL);
    json_decref(run);
    for (int i = 0; i < RUNS; i++)
        paths[i] = strdup(in("long"));
    assert_int_equal(tool_write_report(paths, RUNS, in("page"), &n_bytes, &notes), TOOL_DONE);
    CHECK(n_bytes < 2000000 && json_array_size(notes) == 0, "%zu bytes", n_bytes);
    json_decref(notes);
    for (int i = 0; i < RUNS; i++)
        free(paths[i]);
}

TEST_BETWEEN(short_and_unfinished_runs, make_folder, clean_up)
{
    static const char cut[] = "{\"step\": 50, \"loss\": 0.";
    for (int n = 1; n < 5; n++) {
        put_run("run", n, true, "");
        json_t *run = read_run("run");
        assert_true(n_points(run) == (size_t)n && number_at(run, "steps", (size_t)n - 1) == n);
        assert_int_equal(total_steps(run), n);
        json_decref(run);
    }
    for (int finished = 0; finished < 2; finished++) {
        put_run(finished ? "ended" : "going", 50, finished, cut);
        json_t *run = read_run(finished ? "ended" : "going");
        assert_int_equal(json_is_true(json_object_get(run, "finished")), finished);
        assert_int_equal(json_integer_value(json_object_get(run, "planned")), 50);
        assert_int_equal(total_steps(run), 50);
        assert_true(json_array_size(json_object_get(json_object_get(run, "histograms"), "rows")) > 0);
        check_notes(run, (size_t)finished, finished ? "metrics.jsonl: the last line is cut" : NULL);
        json_decref(run);
    }
    put_text("begun/run.json", "{\"options\": {\"steps\": 7}, \"data\": 3}");
    json_t *run = read_run("begun");
    assert_true(json_is_false(json_object_get(run, "finished")) && n_points(run) == 0);
    assert_int_equal(json_integer_value(json_object_get(run, "planned")), 7);
    json_decref(run);
}

/* Two good lines, and others. */
static void put_lines(const char *others, int64_t more, const char *fields)
{
    FILE *file = write_text();
    write_line(file, 0, fields);
    write_line(file, 5, fields);
    fputs(others, file);
    if (more)
        write_line(file, more, "");
    put_written(file, "run/metrics.jsonl");
}

TEST_BETWEEN(broken_lines, make_folder, clean_up)
{
    enum { LONG = 10000000, DEEP = 50000 };
    char *line = malloc(LONG + 100), *deep = malloc(DEEP + 2);
    memcpy(line, "{\"step\": 6, \"step_ms\": 1, \"x\": \"", 32);
    memset(line + 32, 'x', LONG);
    strcpy(line + 32 + LONG, "\"}\n");
    memset(deep, '[', DEEP);
    strcpy(deep + DEEP, "\n");
    const struct {
        const char *lines;
        int64_t step;
        const char *says;
    } cases[] = {{line, 0, "metrics.jsonl: 1 line cannot be used, the first is line 3"},
                 {deep, 0, "1 line cannot be used, the first is line 3"},
                 {"x\n[1]\n{\"loss\": 1}\n\n", 0, "4 lines cannot be used, the first is line 3"},
                 {"", 5, "1 line cannot be used, the first is line 3"},
                 {"", 3, "1 line cannot be used, the first is line 3"},
                 {"", -1, "1 line cannot be used, the first is line 3"},
                 {"", (int64_t)1 << 60, "1 line cannot be used, the first is line 3"},
                 {"", 0, "metrics.jsonl has 2 of the first 6 steps"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_lines(cases[i].lines, cases[i].step, "");
        json_t *run = read_run("run");
        check_notes(run, 1, cases[i].says);
        CHECK(n_points(run) == 2 && number_at(run, "steps", 1) == 6, "case %zu: %zu points", i, n_points(run));
        json_decref(run);
    }
    free(line);
    free(deep);
    put_lines("", 0, ", \"compute_ms\": 1e308"); /* together they are beyond all numbers */
    json_t *run = read_run("run");
    assert_true(json_is_null(json_object_get(json_object_get(run, "totals"), "compute_ms")));
    json_decref(run);
    put_lines("", 0, "");
    assert_int_equal(truncate(in("run/metrics.jsonl"), (off_t)1 << 42), 0);
    run = read_run("run");
    check_notes(run, 1, "metrics.jsonl: line 3 has no end, and what follows is left out");
    json_decref(run);
}

TEST_BETWEEN(broken_files, make_folder, clean_up)
{
    enum { LONG = 2000000 };
    static char blanks[LONG + 1];
    memset(blanks, ' ', LONG);
    const struct {
        const char *name, *text, *says;
    } cases[] = {{"run/run.json", "{", "run.json, line 1"},
                 {"run/run.json", "[]", "run.json holds no JSON object"},
                 {"run/run.json", blanks, "run.json has 2000000 bytes"},
                 {"run/summary.json", "nonsense", "summary.json, line 1"}};
    put_lines("", 0, "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text(cases[i].name, cases[i].text);
        json_t *run = read_run("run");
        check_notes(run, 2, cases[i].says); /* the other one: metrics.jsonl has 2 of the first 6 steps */
        assert_true(json_is_false(json_object_get(run, "finished")));
        json_decref(run);
        unlink(in(cases[i].name));
    }
    static const char *const bad[] = {"\"max\": 1, \"counts\": [%s", "\"max\": -1, \"counts\": [%s, 1",
                                      "\"max\": 1, \"counts\": [%s, \"1\"", "\"max\": 1, \"counts\": [%s, -1",
                                      "\"counts\": [%s, 1"};
    char most[200] = "1";
    for (int i = 1; i < 63; i++)
        strcat(most, ", 1");
    FILE *file = write_text();
    fprintf(file, "{\"step\": 0, \"tensor\": \"w\", \"raw\": {\"max\": 1, \"counts\": [%s, 1]}}\n", most);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fprintf(file, "{\"step\": %zu, \"tensor\": \"w\", \"raw\": {", i + 1);
        fprintf(file, bad[i], most);
        fputs("]}}\n", file);
    }
    fputs("{\"step\": 7, \"tensor\": \"w\", \"raw\": 7}\n{\"step\": -1, \"tensor\": \"w\"}\n", file);
    put_written(file, "run/histograms.jsonl");
    json_t *run = read_run("run");
    assert_int_equal(json_array_size(json_object_get(json_object_get(run, "histograms"), "rows")), 1);
    check_notes(run, 2, "histograms.jsonl: 7 lines cannot be used, the first is line 2");
    json_decref(run);
    unlink(in("run/histograms.jsonl"));
    assert_int_equal(mkdir(in("run/histograms.jsonl"), 0700), 0);
    unlink(in("run/metrics.jsonl"));
    assert_int_equal(mkfifo(in("run/metrics.jsonl"), 0600), 0); /* to open it would wait */
    run = read_run("run");
    check_notes(run, 2, "histograms.jsonl cannot be read; it is left out");
    check_notes(run, 2, "metrics.jsonl cannot be read; it is left out");
    json_decref(run);
}

/* Texts come back as they are, and are no markup in the page. */
TEST_BETWEEN(hostile_texts, make_folder, clean_up)
{
    static const char bad[] = "</script><script>alert(1)</script><!--<script>&amp;'";
    size_t n_bytes, n_scripts = 0;
    FILE *file = write_text();
    fprintf(file, "{\"data\": \"%s\", \"options\": {\"net\": \"%s\", \"%s\": \"", bad, bad, bad);
    for (int i = 0; i < 100; i++)
        fputs(bad, file);
    fputs("\", \"steps\": \"<b>\", \"batch\": -1}}", file);
    put_written(file, "<img>/run.json");
    file = write_text();
    fprintf(file, "{\"net\": \"%s\", \"layers\": [{\"name\": \"%s\", \"elements\": \"many\"}, 7, null]}", bad, bad);
    put_written(file, "<img>/summary.json");
    json_t *run = read_run("<img>"), *options = json_object_get(run, "options");
    assert_string_equal(json_string_value(json_object_get(options, "net")), bad);
    CHECK_IN_RANGE(strlen(json_string_value(json_object_get(options, bad))), 100, 400);
    assert_string_equal(json_string_value(json_array_get(json_array_get(json_object_get(run, "layers"), 0), 0)), bad);
    json_t *data = json_pack("{s:[o]}", "runs", run);
    char *page = report_page(data, &n_bytes);
    assert_non_null(page);
    for (const char *at = page; (at = strcasestr(at, "<script")); at++)
        n_scripts++;
    assert_int_equal(n_scripts, 2);
    assert_true(strstr(page, "alert(1)") && !strstr(page, "alert(1)<") && !strstr(page, "<img"));
    free(page);
    json_decref(data);
}

RUN_TESTS("report", NULL, NULL)
