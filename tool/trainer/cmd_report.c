/* gradwire report: writes one page about one run or several. The parts are in tool/report/. */
#include "base/quote.h"
#include "disk/folder.h"
#include "report/report.h"

#include <stdlib.h>
#include <time.h>

enum { MOST_RUNS = 256 };

static size_t within(size_t n, size_t least, size_t most)
{
    return n < least ? least : n > most ? most : n;
}

static json_t *collect(char *const *runs, size_t n_runs)
{
    /* A page of 20 runs stays below 2 MB. A page of more runs does not become much larger. */
    const report_limits limits = {.points = within(8000 / n_runs, 40, 400),
                                  .histograms = within(480 / n_runs, 6, 480),
                                  .layers = within(3000 / n_runs, 16, 3000)};
    json_t *all = json_array();
    if (!all)
        tool_fail("out of memory");
    for (size_t i = 0; all && i < n_runs; i++) {
        json_t *run = report_run(runs[i], &limits);
        if (!run) {
            json_decref(all);
            return NULL;
        }
        json_array_append_new(all, run);
    }
    return all;
}

/* What the page says of files that are missing, or cannot be used whole: "RUN: note". */
static json_t *notes_of(const json_t *runs)
{
    json_t *all = json_array();
    size_t r, n;
    const json_t *run, *note;
    json_array_foreach ((json_t *)runs, r, run)
        json_array_foreach (json_object_get(run, "notes"), n, note)
            json_array_append_new(all, json_sprintf("%s: %s", json_string_value(json_object_get(run, "path")),
                                                    json_string_value(note)));
    return all;
}

int tool_write_report(char *const *runs, size_t n_runs, const char *path, size_t *n_bytes, json_t **notes)
{
    char when[32];
    const time_t now = time(NULL);
    struct tm parts;
    json_t *all = collect(runs, n_runs);
    *notes = NULL;
    if (!all)
        return TOOL_FAILED;
    *notes = notes_of(all);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &parts));
    json_t *data = json_pack("{s:s, s:s, s:o}", "gradwire", gw_version(), "made", when, "runs", all);
    char *page = data ? report_page(data, n_bytes) : NULL;
    json_decref(data);
    int status = page ? tool_write_file(path, page, *n_bytes) : tool_fail("out of memory");
    free(page);
    return status;
}

int gw_cmd_report(int argc, char **argv)
{
    const char *out = NULL;
    bool json = false;
    const tool_option options[] = {
        {"-o", "FILE.html", "where to write the page", TOOL_OUTPUT, &out},
        {"--json", NULL, "one JSON object on standard output: path, runs, bytes, notes (which files were not whole)",
         TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "report RUN... -o FILE.html",
        .about = "Writes one page about the runs in these folders: what ran, accuracy and loss, bytes, where a step's "
                 "time goes, the tensors, histograms of gradients. A run may still be going, or may have been cut off: "
                 "the page then shows what there is, and notes what is missing.\nThe page is one file that needs "
                 "nothing else: it can be mailed, "
                 "printed, and read without a network.",
        .example = "gradwire report runs/float runs/ternary -o report.html",
        TOOL_OPTIONS(options),
        .min_args = 1,
        .max_args = MOST_RUNS,
        .args = "report takes folders that train --out made, 256 at most",
    };
    size_t n_bytes, n;
    json_t *notes;
    const json_t *note;
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (!out)
        return tool_wrong_use("-o FILE.html is missing: where to write the page");
    const size_t n_runs = (size_t)argc - 1;
    for (size_t i = 0; i < n_runs; i++)
        if (gw_folder_owns(argv[1 + i], out))
            return tool_wrong_use("-o is %s, a file of the run itself, which the page would replace; name another file",
                                  out);
    int status = tool_write_report(argv + 1, n_runs, out, &n_bytes, &notes);
    if (status == TOOL_DONE && json)
        return tool_print_json(json_pack("{s:o, s:I, s:I, s:o}", "path", gw_json_text(out), "runs", (json_int_t)n_runs,
                                         "bytes", (json_int_t)n_bytes, "notes", notes));
    if (status == TOOL_DONE) {
        tool_note("%s: %zu run%s, %.0f kB", out, n_runs, n_runs == 1 ? "" : "s", (double)n_bytes / 1e3);
        json_array_foreach (notes, n, note)
            tool_note("%s", gw_quote(json_string_value(note)).text);
    }
    json_decref(notes);
    return status;
}
