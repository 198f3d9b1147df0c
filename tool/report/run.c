/* Turns a run's folder into what the page says of it. A run that is still going, or was cut off, has its files under
 * names that end in .partial. */
#include "disk/folder.h"
#include "report.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_RUN_FILE = 1 << 20, MOST_SUMMARY = 1 << 22, MOST_FIELDS = 64, MOST_CHANGES = 100 };

/* ---- metrics.jsonl -------------------------------------------------------------------------- */

/* Every series begins with the columns steps, seconds and bytes. Then come its own. true: with a band. */
enum { N_PLACES = 3 };
static const report_column of_steps[] = {{"steps"},      {"seconds"},   {"bytes"},
                                         {"loss", true}, {"accuracy"},  {"step_ms", true},
                                         {"compute_ms"}, {"encode_ms"}, {"wait_ms", true}};
static const report_column of_tests[] = {
    {"steps"}, {"seconds"}, {"bytes"}, {"test_accuracy", true}, {"objective", true}};
static const report_column of_counts[] = {
    {"steps"}, {"seconds"}, {"bytes"}, {"nonzero_share", true}, {"variance_factor", true}, {"residual_norm", true}};

/* These are summed over all lines. The page has the means of those before BYTES_UP. */
enum { STEP_MS, BYTES_UP = 4, BYTES_DOWN, N_SUMS = 7 };
static const char *const summed[N_SUMS] = {"step_ms",  "compute_ms", "encode_ms",  "wait_ms",
                                           "bytes_up", "bytes_down", "dense_bytes"};

struct metrics {
    report_series steps, tests, counted;
    json_int_t next; /* the least step number that the next line may have */
    json_int_t n_lines, n_dropped;
    double sums[N_SUMS];
    double places[N_PLACES]; /* steps, seconds and bytes after the last line */
    json_t *wires;           /* [[steps, "small"], ...]: where the choice changed */
    char wire[16];
    size_t n_changes;
};

static double or_zero(const json_t *line, const char *name)
{
    const double value = report_number(line, name);
    return isfinite(value) && value > 0 ? value : 0;
}

/* Adds a row if the line has some of the series' own columns. */
static void add_row(struct metrics *m, report_series *series, const json_t *line)
{
    double row[REPORT_MOST_COLUMNS];
    bool any = false;
    memcpy(row, m->places, sizeof m->places);
    for (size_t c = N_PLACES; c < series->n_columns; c++) {
        row[c] = report_number(line, series->columns[c].name);
        any = any || isfinite(row[c]);
    }
    if (any)
        report_series_add(series, row);
}

static void take_wire(struct metrics *m, const json_t *line)
{
    const char *wire = json_string_value(json_object_get(line, "wire"));
    if (!wire || strncmp(m->wire, wire, sizeof m->wire - 1) == 0)
        return;
    snprintf(m->wire, sizeof m->wire, "%s", wire);
    if (m->n_changes++ < MOST_CHANGES)
        json_array_append_new(m->wires, json_pack("[I, o]", m->next, report_text(m->wire)));
}

static bool take_step(void *user, const json_t *line)
{
    struct metrics *m = user;
    const json_t *step = json_object_get(line, "step");
    if (!json_is_integer(step) || json_integer_value(step) < m->next || json_integer_value(step) > UINT32_MAX ||
        isnan(report_number(line, "step_ms")))
        return false;
    m->next = json_integer_value(step) + 1;
    m->n_lines++;
    m->n_dropped += json_is_false(json_object_get(line, "committed"));
    for (size_t i = 0; i < N_SUMS; i++)
        m->sums[i] += or_zero(line, summed[i]);
    const double places[] = {(double)m->next, m->sums[STEP_MS] / 1e3, m->sums[BYTES_UP] + m->sums[BYTES_DOWN]};
    memcpy(m->places, places, sizeof places);
    add_row(m, &m->steps, line);
    add_row(m, &m->tests, line);
    add_row(m, &m->counted, line);
    take_wire(m, line);
    return true;
}

/* Makes JSON of sums over all lines, and of means over them. */
static json_t *totals_json(const struct metrics *m)
{
    const double n = m->n_lines ? (double)m->n_lines : 1;
    json_t *out = json_pack("{s:I, s:I, s:I, s:o}", "steps", m->next, "lines", m->n_lines, "dropped", m->n_dropped,
                            "seconds", gw_json_real(m->sums[STEP_MS] / 1e3));
    for (size_t i = 0; i < N_SUMS; i++)
        json_object_set_new(out, summed[i], gw_json_real(i < BYTES_UP ? m->sums[i] / n : m->sums[i]));
    return out;
}

static bool begin(struct metrics *m, size_t points)
{
    *m = (struct metrics){.wires = json_array()};
    return m->wires && report_series_begin(&m->steps, of_steps, sizeof of_steps / sizeof *of_steps, points) &&
           report_series_begin(&m->tests, of_tests, sizeof of_tests / sizeof *of_tests, points) &&
           report_series_begin(&m->counted, of_counts, sizeof of_counts / sizeof *of_counts, points);
}

static void end(struct metrics *m)
{
    report_series_end(&m->steps);
    report_series_end(&m->tests);
    report_series_end(&m->counted);
    json_decref(m->wires);
}

/* ---- run.json and summary.json -------------------------------------------------------------- */

/* Copies the texts, numbers and booleans of an object. */
static json_t *plain_fields(const json_t *object)
{
    const char *name;
    json_t *value, *out = json_object();
    json_object_foreach ((json_t *)object, name, value) {
        if (json_object_size(out) == MOST_FIELDS || strlen(name) >= GW_MAX_NAME)
            continue;
        if (json_is_string(value))
            json_object_set_new(out, name, report_text(json_string_value(value)));
        else if (json_is_number(value) || json_is_boolean(value))
            json_object_set(out, name, value);
    }
    return out;
}

static json_t *layer_row(const json_t *layer)
{
    static const char *const numbers[] = {"elements",          "nonzero_share", "push_bits",
                                          "push_entropy_bits", "pull_bits",     "pull_entropy_bits"};
    const char *name = json_string_value(json_object_get(layer, "name"));
    json_t *row = json_pack("[o]", report_text(name ? name : "?"));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        json_array_append_new(row, gw_json_real(report_number(layer, numbers[i])));
    return row;
}

static json_t *layers_json(const json_t *summary, size_t most)
{
    size_t i;
    json_t *layer, *out = json_array();
    json_array_foreach (json_object_get(summary, "layers"), i, layer)
        if (i < most)
            json_array_append_new(out, layer_row(layer));
    return out;
}

/* How many steps an epoch has; 0 if that is not known. run.json says "20000+4000 samples of 784 values". */
static json_int_t steps_per_epoch(const json_t *run)
{
    unsigned samples;
    const char *data = json_string_value(json_object_get(run, "data"));
    const json_int_t batch = json_integer_value(json_object_get(json_object_get(run, "options"), "batch"));
    return data && batch > 0 && sscanf(data, "%9u+", &samples) == 1 ? samples / batch : 0;
}

/* How many steps the run is to have; 0 if that is not known. */
static json_int_t planned_steps(const json_t *run, json_int_t epoch)
{
    const json_t *options = json_object_get(run, "options");
    const json_int_t steps = json_integer_value(json_object_get(options, "steps")),
                     epochs = json_integer_value(json_object_get(options, "epochs"));
    return steps > 0 ? steps : epochs > 0 && epochs <= 1000000 ? epochs * epoch : 0;
}

/* ---- together ------------------------------------------------------------------------------- */

static json_t *describe(report_folder *folder, const json_t *run, const json_t *summary, bool finished,
                        struct metrics *m, const report_limits *limits)
{
    const json_int_t epoch = steps_per_epoch(run);
    const char *data = json_string_value(json_object_get(run, "data"));
    json_t *out =
        json_pack("{s:o, s:b, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:O, s:I, s:o}", "path",
                  report_text(folder->path), "finished", finished, "planned", planned_steps(run, epoch), "epoch", epoch,
                  "data", report_text(data ? data : ""), "options", plain_fields(json_object_get(run, "options")),
                  "summary", plain_fields(summary), "wire", plain_fields(json_object_get(summary, "wire")), "plan",
                  plain_fields(json_object_get(summary, "plan")), "layers", layers_json(summary, limits->layers),
                  "tensors", (json_int_t)json_array_size(json_object_get(summary, "layers")), "totals", totals_json(m),
                  "series", report_series_json(&m->steps), "tests", report_series_json(&m->tests), "counted",
                  report_series_json(&m->counted), "wires", m->wires, "wire_changes", (json_int_t)m->n_changes,
                  "histograms", report_histograms(folder, limits->histograms));
    json_object_set(out, "notes", folder->notes); /* this comes last, because notes may be added until here */
    return out;
}

/* Notes it if the lines do not cover all steps. */
static void note_missing(report_folder *folder, const json_t *summary, const struct metrics *m, bool whole)
{
    const json_int_t steps = summary && whole ? json_integer_value(json_object_get(summary, "steps")) : m->next;
    if (summary && !whole)
        report_note(folder, "%s is missing or not whole", GW_METRICS_FILE);
    else if (m->n_lines < steps)
        report_note(folder, "%s has %lld of the first %lld steps", GW_METRICS_FILE, (long long)m->n_lines,
                    (long long)steps);
}

static json_t *read_run(report_folder *folder, const report_limits *limits)
{
    bool partial = true;
    struct metrics m;
    json_t *run = report_read_object(folder, GW_RUN_FILE, MOST_RUN_FILE);
    json_t *summary = report_read_object(folder, GW_SUMMARY_FILE, MOST_SUMMARY);
    json_t *out = NULL;
    FILE *lines = report_open(folder, GW_METRICS_FILE, &partial);
    const bool memory = begin(&m, limits->points);
    const size_t n_notes = json_array_size(folder->notes);
    if (memory && lines)
        report_read_lines(folder, GW_METRICS_FILE, lines, partial, take_step, &m);
    if (memory && folder->notes && json_array_size(folder->notes) == n_notes)
        note_missing(folder, summary, &m, lines && !partial);
    if (!memory || !folder->notes)
        tool_fail("out of memory");
    else if (!run && !summary && !lines && json_array_size(folder->notes) == 0)
        tool_fail("%s holds no run; name the folder that train --out made", folder->path);
    else if (!(out = describe(folder, run, summary, summary && !partial, &m, limits)))
        tool_fail("out of memory");
    if (lines)
        fclose(lines);
    end(&m);
    json_decref(run);
    json_decref(summary);
    return out;
}

json_t *report_run(const char *path, const report_limits *limits)
{
    struct stat about;
    if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
        tool_fail("%s is no folder; name the folder that train --out made", path);
        return NULL;
    }
    report_folder folder = {.path = path, .notes = json_array()};
    json_t *out = read_run(&folder, limits);
    json_decref(folder.notes);
    return out;
}
