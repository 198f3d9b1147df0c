/* gradwire report: writes one page about one run or several. The parts are in tool/report/. */
#include "disk/folder.h"
#include "report/report.h"

#include <stdlib.h>
#include <time.h>

enum { MOST_RUNS = 256 };

/* A page of 20 runs stays below 2 MB. A page of more runs does not become much larger. */
static report_limits limits_of(size_t n_runs)
{
    const size_t n = n_runs > 0 ? n_runs : 1;
    report_limits limits = {.points = 8000 / n, .histograms = 480 / n, .layers = 3000 / n};
    if (limits.points > 400)
        limits.points = 400;
    if (limits.points < 40)
        limits.points = 40;
    limits.histograms = limits.histograms < 6 ? 6 : limits.histograms;
    limits.layers = limits.layers < 16 ? 16 : limits.layers;
    return limits;
}

static json_t *collect(char *const *runs, size_t n_runs)
{
    const report_limits limits = limits_of(n_runs);
    json_t *all = json_array();
    for (size_t i = 0; i < n_runs; i++) {
        json_t *run = report_run(runs[i], &limits);
        if (!run) {
            json_decref(all);
            return NULL;
        }
        json_array_append_new(all, run);
    }
    return all;
}

static int write_page(const char *path, const char *page, size_t n_bytes)
{
    tool_output output;
    if (tool_output_open(&output, path) != 0 || tool_output_write(&output, page, n_bytes) != 0 ||
        tool_output_commit(&output) != 0)
        return TOOL_FAILED;
    return TOOL_DONE;
}

int tool_write_report(char *const *runs, size_t n_runs, const char *path, size_t *n_bytes)
{
    char when[32];
    const time_t now = time(NULL);
    struct tm parts;
    json_t *all = collect(runs, n_runs);
    if (!all)
        return TOOL_FAILED;
    strftime(when, sizeof when, "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &parts));
    json_t *data = json_pack("{s:s, s:s, s:o}", "gradwire", gw_version(), "made", when, "runs", all);
    char *page = data ? report_page(data, n_bytes) : NULL;
    json_decref(data);
    int status = page ? write_page(path, page, *n_bytes) : tool_fail("out of memory");
    free(page);
    return status;
}

int gw_cmd_report(int argc, char **argv)
{
    const char *out = NULL;
    bool json = false;
    const tool_option options[] = {
        {"-o", "FILE.html", "where to write the page", TOOL_OUTPUT, &out},
        {"--json", NULL, "one JSON object on standard output: path, runs, bytes", TOOL_FLAG, &json},
    };
    const tool_usage usage = {
        .synopsis = "report RUN... -o FILE.html",
        .about = "Writes one page about the runs in these folders: what ran, accuracy and loss, bytes, where a step's "
                 "time goes, the tensors, histograms of gradients. A run may still be going, or may have been cut off: "
                 "the page then shows what there is.\nThe page is one file that needs nothing else: it can be mailed, "
                 "printed, and read without a network.",
        .example = "gradwire report runs/float runs/ternary -o report.html",
        TOOL_OPTIONS(options),
        .min_args = 1,
        .max_args = MOST_RUNS,
        .args = "report takes folders that train --out made, 256 at most",
    };
    size_t n_bytes;
    int status = tool_parse(&usage, &argc, argv);
    if (status != TOOL_PARSED)
        return status;
    if (!out)
        return tool_wrong_use("-o FILE.html is missing: where to write the page");
    const size_t n_runs = (size_t)argc - 1;
    for (size_t i = 0; i < n_runs; i++)
        if (gw_folder_owns(argv[1 + i], out))
            return tool_wrong_use("-o is %s, a file of the run itself, which the page would replace; name another file",
                                  out);
    status = tool_write_report(argv + 1, n_runs, out, &n_bytes);
    if (status == TOOL_DONE && json)
        return tool_print_json(
            json_pack("{s:s, s:I, s:I}", "path", out, "runs", (json_int_t)n_runs, "bytes", (json_int_t)n_bytes));
    if (status == TOOL_DONE)
        tool_note("%s: %zu run%s, %.0f kB", out, n_runs, n_runs == 1 ? "" : "s", (double)n_bytes / 1e3);
    return status;
}
