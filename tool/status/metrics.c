/* Writes the server's numbers in Prometheus' text format. */
#include "status/status.h"
#include "tool.h"

#include <gradwire/context.h>
#include <inttypes.h>
#include <stdio.h>

const char *tool_status_operation(int number)
{
    static const char *const names[GW_PS_OPERATIONS] = {
        [0] = "invalid",
        [GW_PS_HELLO] = "hello",
        [GW_PS_INIT] = "init",
        [GW_PS_PUSH] = "push",
        [GW_PS_PULL] = "pull",
        [GW_PS_BYE] = "bye",
        [GW_PS_AGREE] = "agree",
        [GW_PS_JOIN] = "join",
        [GW_PS_ADMIT] = "admit",
        [GW_PS_PUT] = "put",
        [GW_PS_MEMBERS] = "members",
        [GW_PS_GET] = "get",
        [GW_PS_VERDICT] = "verdict",
    };
    return names[number];
}

static void begin(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP gradwire_pserver_%s %s\n# TYPE gradwire_pserver_%s %s\n", name, help, name, type);
}

static void number(FILE *out, const char *name, const char *type, uint64_t value, const char *help)
{
    begin(out, name, type, help);
    fprintf(out, "gradwire_pserver_%s %" PRIu64 "\n", name, value);
}

/* A class counts all times that are not longer than its bound. So it contains the classes before it. */
static void histogram(FILE *out, const char *name, const struct gw_ps_times *times, const char *help)
{
    uint64_t n = 0;
    begin(out, name, "histogram", help);
    for (uint32_t i = 0; i < GW_PS_TIME_CLASSES; i++)
        fprintf(out, "gradwire_pserver_%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, gw_ps_time_bound(i),
                n += times->n[i]);
    n += times->n[GW_PS_TIME_CLASSES];
    fprintf(out, "gradwire_pserver_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, n);
    fprintf(out, "gradwire_pserver_%s_sum %.6f\ngradwire_pserver_%s_count %" PRIu64 "\n", name, times->sum, name, n);
}

/* True if the worker has been there. There may be very many workers that have never come. */
static bool worth_a_line(const struct gw_ps_worker_numbers *worker)
{
    return worker->connected || worker->pushes || worker->behind;
}

/* An IPv6 address may have a zone, and a zone any bytes. In a label three of them need a backslash. */
static void put_label(FILE *out, const char *text)
{
    for (; *text; text++)
        if (*text == '\n')
            fputs("\\n", out);
        else
            fprintf(out, "%s%c", *text == '"' || *text == '\\' ? "\\" : "", *text);
}

static void workers(FILE *out, const struct gw_ps_numbers *numbers)
{
    begin(out, "worker_pushes_total", "counter", "Pushes of a worker to all keys.");
    for (uint32_t r = 0; r < numbers->n_workers; r++)
        if (worth_a_line(&numbers->workers[r]))
            fprintf(out, "gradwire_pserver_worker_pushes_total{rank=\"%u\"} %" PRIu64 "\n", r,
                    numbers->workers[r].pushes);
    begin(out, "worker_missing_rounds", "gauge",
          "Rounds that others have pushed to and this worker has not, of all keys; the slowest has the most.");
    for (uint32_t r = 0; r < numbers->n_workers; r++)
        if (worth_a_line(&numbers->workers[r]))
            fprintf(out, "gradwire_pserver_worker_missing_rounds{rank=\"%u\"} %" PRIu64 "\n", r,
                    numbers->workers[r].behind);
    begin(out, "worker_connected", "gauge", "1: the worker is connected; 0: it was here, and is not now.");
    for (uint32_t r = 0; r < numbers->n_workers; r++)
        if (worth_a_line(&numbers->workers[r]))
            fprintf(out, "gradwire_pserver_worker_connected{rank=\"%u\"} %d\n", r, numbers->workers[r].connected);
    begin(out, "worker_connected_since_seconds", "gauge",
          "When the worker at this address connected, in seconds of Unix time; only of those that are connected.");
    for (uint32_t i = 0; i < numbers->n_members; i++)
        if (numbers->members[i].rank != GW_PS_READER) {
            fprintf(out, "gradwire_pserver_worker_connected_since_seconds{rank=\"%u\",address=\"",
                    numbers->members[i].rank);
            put_label(out, numbers->members[i].address);
            fprintf(out, "\"} %" PRId64 "\n", numbers->members[i].since);
        }
}

static void kept(FILE *out, const struct gw_ps_folder_info *kept)
{
    if (!kept->exists)
        return;
    number(out, "durable", "gauge", kept->durable,
           "1: what is acknowledged outlives the server's process; 0: it should, and is in memory only.");
    number(out, "snapshot_bytes", "gauge", kept->bytes, "Bytes of the files in the snapshot folder.");
    number(out, "commits_total", "counter", kept->commits, "Commits to the snapshot folder since the server began.");
    number(out, "commits_failed_total", "counter", kept->failed, "Commits that could not be written.");
}

char *tool_status_metrics(const struct gw_ps_numbers *numbers)
{
    tool_text text;
    FILE *out = tool_text_open(&text);
    if (!out)
        return NULL;
    fprintf(out,
            "# HELP gradwire_build_info The version that runs; always 1.\n# TYPE gradwire_build_info gauge\n"
            "gradwire_build_info{version=\"%s\"} 1\n",
            gw_version());
    begin(out, "info", "gauge", "Which server this is; always 1.");
    fprintf(out, "gradwire_pserver_info{address=\"");
    put_label(out, numbers->address);
    fprintf(out, "\",mode=\"%s\",staleness=\"%u\"} 1\n", gw_ps_mode_word(numbers->options->mode),
            numbers->options->staleness);
    begin(out, "seconds_since_start", "gauge", "Seconds since the server began.");
    fprintf(out, "gradwire_pserver_seconds_since_start %.3f\n", numbers->seconds);
    number(out, "clients", "gauge", numbers->clients, "Clients that are connected, workers and readers.");
    number(out, "readers", "gauge", numbers->clients - numbers->connected, "Readers that are connected.");
    number(out, "workers", "gauge", numbers->n_workers, "Workers that push to every key, connected or not.");
    number(out, "workers_connected", "gauge", numbers->connected, "Workers that are connected.");
    number(out, "workers_present", "gauge", numbers->store.n_present, "Workers that rounds wait for.");
    number(out, "keys", "gauge", numbers->keys, "Keys that are kept.");
    number(out, "kept_bytes", "gauge", numbers->store.bytes, "Bytes of all pushes and results that are kept.");
    number(out, "waiting_requests", "gauge", numbers->waiting, "Requests that wait for pushes of other workers.");
    number(out, "rounds_total", "counter", numbers->store.rounds,
           "Rounds that all workers have pushed to, of all keys.");
    number(out, "refused_total", "counter", numbers->counts.refused, "Requests that were answered with an error.");
    number(out, "bytes_in_total", "counter", numbers->counts.bytes_in, "Bytes of requests, before encryption.");
    number(out, "bytes_out_total", "counter", numbers->counts.bytes_out, "Bytes of answers, before encryption.");
    histogram(out, "push_seconds", &numbers->counts.pushes,
              "From a push's coming to its answer, of pushes that were done.");
    histogram(out, "pull_seconds", &numbers->counts.pulls,
              "From a pull's coming to its answer, of pulls that were done.");
    histogram(out, "round_seconds", &numbers->store.round_times,
              "From a round's first push until it is whole; rounds of --mode sync only.");
    kept(out, &numbers->folder);
    begin(out, "requests_total", "counter", "Requests that came in.");
    for (int i = 0; i < GW_PS_OPERATIONS; i++)
        if (tool_status_operation(i))
            fprintf(out, "gradwire_pserver_requests_total{operation=\"%s\"} %" PRIu64 "\n", tool_status_operation(i),
                    numbers->counts.requests[i]);
    /* What an operator compares other numbers with. */
    const gw_ps_server_options *o = numbers->options;
    number(out, "max_clients", "gauge", o->max_clients, "The most clients that may be connected (--max-clients).");
    number(out, "max_keys", "gauge", o->max_keys, "The most keys that may be kept (--max-keys).");
    number(out, "max_key_bytes", "gauge", o->max_key_bytes, "The most bytes of one value (--max-key-bytes).");
    number(out, "max_bytes", "gauge", o->max_bytes, "The most bytes of all that is kept (--max-bytes).");
    workers(out, numbers);
    tool_status_process(out);
    return tool_text_close(out, &text, NULL);
}
