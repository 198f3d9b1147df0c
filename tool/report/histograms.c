/* Reads histograms.jsonl: which steps and tensors there are, and then those that the page has room for. */
#include "disk/folder.h"
#include "disk/histograms.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 256, MOST_TENSORS = 256, MOST_SHOWN_STEPS = 20 };

/* What the file has, and what of it is shown. */
struct contents {
    json_int_t steps[MOST_STEPS];
    char tensors[MOST_TENSORS][GW_MAX_NAME];
    size_t n_steps, n_tensors, shown_steps, shown_tensors;
    json_t *rows;
};

static size_t find_step(const struct contents *c, json_int_t step)
{
    size_t i = 0;
    while (i < c->n_steps && c->steps[i] != step)
        i++;
    return i;
}

static size_t find_tensor(const struct contents *c, const char *name)
{
    size_t i = 0;
    while (i < c->n_tensors && strcmp(c->tensors[i], name) != 0)
        i++;
    return i;
}

/* Makes [0.5, ...] of {"max": 0.5, "counts": [...]}. NULL: the value is something else. */
static json_t *counts_of(const json_t *histogram)
{
    const json_t *counts = json_object_get(histogram, "counts"), *count;
    const double max = report_number(histogram, "max");
    size_t i;
    if (json_array_size(counts) != GW_HISTOGRAM_BINS || !(max >= 0) || !isfinite(max))
        return NULL;
    json_t *out = json_pack("[f]", max);
    json_array_foreach (counts, i, count)
        if (!json_is_integer(count) || json_integer_value(count) < 0 ||
            json_array_append_new(out, json_integer(json_integer_value(count))) != 0) {
            json_decref(out);
            return NULL;
        }
    return out;
}

/* Reads a line's step and tensor. False: the line has none, or has a name that no run writes. */
static bool read_head(const json_t *line, json_int_t *step, const char **tensor)
{
    const json_t *number = json_object_get(line, "step");
    *step = json_integer_value(number);
    *tensor = json_string_value(json_object_get(line, "tensor"));
    return json_is_integer(number) && *step >= 0 && *step <= UINT32_MAX && *tensor && strlen(*tensor) < GW_MAX_NAME;
}

static bool note_contents(void *user, const json_t *line)
{
    struct contents *c = user;
    json_int_t step;
    const char *tensor;
    if (!read_head(line, &step, &tensor))
        return false;
    if (find_step(c, step) == c->n_steps && c->n_steps < MOST_STEPS)
        c->steps[c->n_steps++] = step;
    if (find_tensor(c, tensor) == c->n_tensors && c->n_tensors < MOST_TENSORS)
        strcpy(c->tensors[c->n_tensors++], tensor);
    return true;
}

static bool take_shown(void *user, const json_t *line)
{
    struct contents *c = user;
    json_int_t step;
    const char *tensor;
    if (!read_head(line, &step, &tensor))
        return false;
    if (!gw_is_spread(find_step(c, step), c->n_steps, c->shown_steps) ||
        !gw_is_spread(find_tensor(c, tensor), c->n_tensors, c->shown_tensors))
        return true;
    if (json_array_size(c->rows) >= c->shown_steps * c->shown_tensors) /* the file has a step of a tensor twice */
        return false;
    json_t *row = json_pack("{s:I, s:s}", "step", step + 1, "tensor", tensor);
    for (size_t k = 0; k < GW_HISTOGRAM_KINDS; k++) {
        json_t *counts = counts_of(json_object_get(line, gw_histogram_names[k]));
        if (counts)
            json_object_set_new(row, gw_histogram_names[k], counts);
    }
    const bool good = json_object_size(row) > 2;
    if (good)
        json_array_append(c->rows, row);
    json_decref(row);
    return good;
}

/* Chooses as many steps as are worth looking at, and then as many tensors as there is room for. */
static void choose(struct contents *c, size_t most)
{
    size_t steps = (size_t)(1.5 * sqrt((double)most));
    c->shown_steps = steps > MOST_SHOWN_STEPS ? MOST_SHOWN_STEPS : steps;
    if (c->shown_steps > c->n_steps)
        c->shown_steps = c->n_steps;
    c->shown_tensors = c->shown_steps ? most / c->shown_steps : 0;
    if (c->shown_tensors > c->n_tensors)
        c->shown_tensors = c->n_tensors;
}

json_t *report_histograms(report_folder *folder, size_t most)
{
    bool partial;
    json_t *out = NULL;
    FILE *file = report_open(folder, GW_HISTOGRAMS_FILE, &partial);
    if (!file)
        return json_null();
    struct contents *c = calloc(1, sizeof *c);
    if (c && (c->rows = json_array())) {
        /* The second pass notes what is wrong with the lines, so the first one does not. */
        report_folder quiet = {.path = folder->path};
        report_read_lines(&quiet, GW_HISTOGRAMS_FILE, file, partial, note_contents, c);
        choose(c, most);
        rewind(file);
        report_read_lines(folder, GW_HISTOGRAMS_FILE, file, partial, take_shown, c);
        out = json_pack("{s:I, s:I, s:o}", "steps", (json_int_t)c->n_steps, "tensors", (json_int_t)c->n_tensors, "rows",
                        c->rows);
    }
    free(c);
    fclose(file);
    return out;
}
