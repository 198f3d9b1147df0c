/* The parts of `gradwire report`: they make long series short, turn a run's folder into JSON, and JSON into a page.
 *
 * Memory is limited, whatever a folder holds: there is a limit for the length of lines and for the points of a series.
 * What goes beyond a limit is left out, and the page has a note about it. */
#ifndef GRADWIRE_REPORT_H
#define GRADWIRE_REPORT_H

#include "tool.h"

#include <stdio.h>

/* How much of each run a page holds; the more runs, the less of each. */
typedef struct report_limits {
    size_t points;     /* of a series */
    size_t histograms; /* steps times tensors */
    size_t layers;     /* rows of the table of tensors */
} report_limits;

/* ---- short series: series.c ---- */

enum { REPORT_MOST_COLUMNS = 10 };

/* A column's name. band: its smallest and largest values are kept, too. */
typedef struct report_column {
    const char *name;
    bool band;
} report_column;

/* Rows of numbers that come one after another, of which there may be any number. Neighbours are put together in equal
 * numbers, so that `limit` points are left at most. The first row and the last are points of their own. */
typedef struct report_series {
    const report_column *columns;
    size_t n_columns, limit;
    struct report_bucket *buckets; /* [limit] */
    size_t n_buckets;
    uint64_t rows, width; /* rows so far; rows of a full bucket */
    double first[REPORT_MOST_COLUMNS], last[REPORT_MOST_COLUMNS];
} report_series;

/* Columns are borrowed. False: no memory. */
bool report_series_begin(report_series *series, const report_column *columns, size_t n_columns, size_t limit);

/* NAN stands for a value that is not there. */
void report_series_add(report_series *series, const double *row);

/* An object with an array for each column, and NAME_min and NAME_max for one with a band if rows were put together.
 * NULL: no memory. Numbers have five digits; those of the first row and of the last have fifteen. */
json_t *report_series_json(const report_series *series);
void report_series_end(report_series *series);

/* ---- files of a run: files.c ---- */

enum { REPORT_MOST_NOTES = 20 };

/* A run's folder while it is read, and notes about errors in it. */
typedef struct report_folder {
    const char *path;
    json_t *notes; /* an array of texts */
} report_folder;

void report_note(report_folder *folder, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Opens FOLDER/NAME, or FOLDER/NAME.partial if that is not there. *partial says which. NULL: neither is
 * there, or what is there cannot be read, which is noted. */
FILE *report_open(report_folder *folder, const char *name, bool *partial);

/* One JSON object from FOLDER/NAME, of most_bytes at most. NULL: it is not there, or a note says what is wrong. */
json_t *report_read_object(report_folder *folder, const char *name, size_t most_bytes);

/* Calls `take` for each line of `file` that holds one JSON object; false: the object is not what it should be. Notes
 * how many lines were no good. A last line without an end is left out; in a `partial` file that is as it should be. */
typedef bool (*report_take)(void *user, const json_t *line);
void report_read_lines(report_folder *folder, const char *name, FILE *file, bool partial, report_take take, void *user);

/* The same as gw_json_text, but a long text is cut. */
json_t *report_text(const char *text);

/* The number of that name, NAN if there is none. */
double report_number(const json_t *object, const char *name);

/* ---- histograms: histograms.c ---- */

/* What FOLDER/histograms.jsonl holds, some of it if it is more than `most`. NULL: no memory. */
json_t *report_histograms(report_folder *folder, size_t most);

/* ---- a run: run.c ---- */

/* All that the page says of one run, as an object. NULL with the message printed: the folder holds no run. */
json_t *report_run(const char *path, const report_limits *limits);

/* ---- the page: page.c, cmd_report.c ---- */

/* The page as text that the caller frees, with `data` in it. NULL: no memory. */
char *report_page(const json_t *data, size_t *n_bytes);

/* Writes a page about these runs. *n_bytes: how large it became. *notes: "RUN: note" for each file that is missing or
 * not whole; the caller drops it. */
int tool_write_report(char *const *runs, size_t n_runs, const char *path, size_t *n_bytes, json_t **notes);

#endif
