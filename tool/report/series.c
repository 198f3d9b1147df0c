/* Makes long series short: neighbouring rows are put together, two and two, whenever there are too many points. */
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Some rows, joined. */
struct report_bucket {
    struct cell {
        uint64_t n; /* how many rows have a value */
        double sum, min, max;
    } cells[REPORT_MOST_COLUMNS];
    uint64_t rows;
};

bool report_series_begin(report_series *s, const report_column *columns, size_t n_columns, size_t limit)
{
    *s = (report_series){.columns = columns, .n_columns = n_columns, .limit = limit, .width = 1};
    s->buckets = calloc(limit, sizeof *s->buckets);
    return s->buckets != NULL;
}

void report_series_end(report_series *s)
{
    free(s->buckets);
    s->buckets = NULL;
}

static void merge(struct report_bucket *into, const struct report_bucket *from, size_t n_columns)
{
    for (size_t c = 0; c < n_columns; c++) {
        struct cell *a = &into->cells[c];
        const struct cell *b = &from->cells[c];
        if (b->n == 0)
            continue;
        a->min = a->n ? fmin(a->min, b->min) : b->min;
        a->max = a->n ? fmax(a->max, b->max) : b->max;
        a->sum += b->sum;
        a->n += b->n;
    }
    into->rows += from->rows;
}

/* Halves the number of buckets. Each becomes twice as wide. */
static void halve(report_series *s)
{
    size_t half = 0;
    for (size_t i = 0; i < s->n_buckets; i += 2, half++) {
        struct report_bucket pair = s->buckets[i];
        if (i + 1 < s->n_buckets)
            merge(&pair, &s->buckets[i + 1], s->n_columns);
        s->buckets[half] = pair;
    }
    s->n_buckets = half;
    s->width *= 2;
}

static void put_together(report_series *s, const double *row)
{
    struct report_bucket one = {.rows = 1};
    for (size_t c = 0; c < s->n_columns; c++)
        if (isfinite(row[c]))
            one.cells[c] = (struct cell){.n = 1, .sum = row[c], .min = row[c], .max = row[c]};
    bool full = s->n_buckets == 0 || s->buckets[s->n_buckets - 1].rows == s->width;
    if (full && s->n_buckets == s->limit) {
        halve(s);
        full = s->buckets[s->n_buckets - 1].rows == s->width;
    }
    if (full)
        s->buckets[s->n_buckets++] = one;
    else
        merge(&s->buckets[s->n_buckets - 1], &one, s->n_columns);
}

void report_series_add(report_series *s, const double *row)
{
    const size_t bytes = s->n_columns * sizeof *row;
    if (s->rows == 0)
        memcpy(s->first, row, bytes);
    if (s->rows > 1) /* the row that was last until now, unless it was also the first */
        put_together(s, s->last);
    memcpy(s->last, row, bytes);
    s->rows++;
}

static double rounded(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.5g", value);
    return strtod(text, NULL);
}

enum which { MEAN, MIN, MAX };

static json_t *column_json(const report_series *s, size_t c, enum which which)
{
    json_t *array = json_array();
    if (s->rows > 0)
        json_array_append_new(array, gw_json_real(s->first[c]));
    for (size_t i = 0; i < s->n_buckets; i++) {
        const struct cell *cell = &s->buckets[i].cells[c];
        double value = which == MIN ? cell->min : which == MAX ? cell->max : cell->sum / (double)cell->n;
        json_array_append_new(array, cell->n ? gw_json_real(rounded(value)) : json_null());
    }
    if (s->rows > 1)
        json_array_append_new(array, gw_json_real(s->last[c]));
    return array;
}

json_t *report_series_json(const report_series *s)
{
    static const char *const endings[] = {[MEAN] = "", [MIN] = "_min", [MAX] = "_max"};
    json_t *object = json_object();
    for (size_t c = 0; c < s->n_columns; c++)
        for (enum which w = MEAN; w <= (s->columns[c].band && s->width > 1 ? MAX : MEAN); w++) {
            char name[64];
            snprintf(name, sizeof name, "%s%s", s->columns[c].name, endings[w]);
            json_object_set_new(object, name, column_json(s, c, w));
        }
    return object;
}
