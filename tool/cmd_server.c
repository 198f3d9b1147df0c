/* gradwire server: runs the parameter server until SIGTERM, SIGHUP or Ctrl-C. */
#include "base/numbers.h"
#include "pserver/protocol/methods.h"
#include "base/append.h"
#include "status/status.h"
#include "tool.h"

#include <gradwire/pserver.h>

#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* of bytes or keys. No server has more, and a page in a browser shows such a number as it is. */
#define MOST (1ull << 50)

static gw_ps_server *_Atomic running;     /* NULL: its folder is still being read */
static volatile sig_atomic_t stop_signal; /* the signal that ends the server; 0: none has come */

static const struct {
    int number;
    const char *name;
} stops[] = {{SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}};
enum { N_STOPS = sizeof stops / sizeof *stops };

/* Ends the server in good order. If it still reads its folder, that may take minutes, nobody has been served, and the
 * folder stays as it is whenever the process ends. So it ends at once. */
static void on_stop(int signal_number)
{
    gw_ps_server *server = running;
    stop_signal = signal_number;
    if (!server)
        _exit(TOOL_DONE);
    gw_ps_server_stop(server);
}

/* What the command does. The list of methods comes from the library's table. */
static void describe(char *text, size_t n_bytes)
{
    snprintf(text, n_bytes,
             "Keeps tensors by key for N workers. The workers initialise keys, push values and "
             "pull one value made of all pushes. The pull names the reduce method:");
    const char *name;
    for (int m = 1; (name = gw_ps_method_name((gw_ps_method)m)); m++)
        gw_append(text, n_bytes, "%s %s (%s)", m > 1 ? "," : "", name, gw_ps_method_help((gw_ps_method)m));
    gw_append(text, n_bytes,
              ". C programs use gradwire/pserver.h, Python programs gradwire.pserver. The server logs what happens on "
              "standard error, a line each. It ends at SIGTERM, SIGHUP or Ctrl-C, and says so.");
}

/* If nobody reads the log, lines are left out: a pipe that is full, or a terminal that was stopped, must not stop those
 * whom the server serves. */
static void log_line(const char *line, void *user)
{
    (void)user;
    static atomic_ulong n_untold;
    struct timespec now;
    struct tm utc;
    char when[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
    const unsigned long untold = atomic_exchange(&n_untold, 0);
    if (poll(&(struct pollfd){.fd = STDERR_FILENO, .events = POLLOUT}, 1, 0) == 0) {
        atomic_fetch_add(&n_untold, untold + 1);
        return;
    }
    if (untold > 0)
        fprintf(stderr, "%s.%03ldZ untold lines=%lu\n", when, now.tv_nsec / 1000000, untold);
    fprintf(stderr, "%s.%03ldZ %s\n", when, now.tv_nsec / 1000000, line);
}

/* Reads "sync", "async" or "stale:S". */
static int parse_mode(const char *text, gw_ps_server_options *options)
{
    uint64_t staleness;
    if (strcmp(text, "sync") == 0) {
        options->mode = GW_PS_SYNC;
    } else if (strcmp(text, "async") == 0) {
        options->mode = GW_PS_ASYNC;
    } else if (strncmp(text, "stale:", 6) == 0 && gw_parse_whole(text + 6, 1000000, &staleness)) {
        options->mode = GW_PS_STALE;
        options->staleness = (uint32_t)staleness;
    } else {
        return tool_wrong_use(
            "--mode is \"%s\"; right are sync, async, and stale:S with S from 0 to 1000000, as in stale:4", text);
    }
    return TOOL_DONE;
}

static int parse_missing(const char *text, gw_ps_missing *missing)
{
    static const char *const words[] = {
        [GW_PS_MISSING_WAIT] = "wait", [GW_PS_MISSING_CONTINUE] = "continue", [GW_PS_MISSING_STOP] = "stop"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            *missing = (gw_ps_missing)i;
            return TOOL_DONE;
        }
    return tool_wrong_use("--missing is \"%s\"; right are wait, continue and stop", text);
}

static int serve(gw_ps_server *server, const gw_ps_server_options *o, const char *mode, const struct tool_status *page)
{
    char line[256];
    snprintf(line, sizeof line, "listening address=%s workers=%u mode=%s encrypted=%s", gw_ps_server_address(server),
             o->n_workers, mode, o->keys ? "yes" : "no");
    log_line(line, NULL);
    if (page) {
        snprintf(line, sizeof line, "showing status=%s", tool_status_url(page));
        log_line(line, NULL);
    }
    gw_status status = gw_ps_server_run(server);
    const char *why = NULL;
    for (int i = 0; i < N_STOPS; i++)
        why = stops[i].number == stop_signal ? stops[i].name : why;
    snprintf(line, sizeof line, "ended%s%s", why ? " signal=" : "", why ? why : "");
    log_line(line, NULL);
    return tool_exit_status(status, NULL);
}

int gw_cmd_server(int argc, char **argv)
{
    gw_ps_server_options o = {.struct_bytes = sizeof o, .listen = "127.0.0.1:29700", .log = log_line};
    const char *mode = "sync", *missing = "wait", *metrics = NULL;
    uint32_t timeout = 10;
    double away = NAN; /* not given */
    gw_context_options context = {.struct_bytes = sizeof context};
    gw_context *shared;
    const tool_option options[] = {
        {"--listen", "HOST:PORT",
         "where clients connect; with port 0 the log tells which free port it took (default 127.0.0.1:29700)",
         TOOL_TEXT, &o.listen},
        {"--workers", "N", "how many workers push to every key (required)", TOOL_U32, &o.n_workers, 1, GW_MAX_WORKERS},
        {"--mode", "MODE",
         "whose pushes a pull waits for. sync: those of all workers; async: nobody's; stale:S: those of workers that "
         "are more than S pushes behind (default sync)",
         TOOL_TEXT, &mode},
        {"--missing", "WHAT", "what the others do if a worker is gone: wait, continue or stop (default wait)",
         TOOL_TEXT, &missing},
        {"--away", "S", "seconds that a worker may be gone before the others continue or stop (default 2)", TOOL_DOUBLE,
         &away},
        {"--min-workers", "M",
         "with --missing continue: the first round waits for so many workers; others may join later (default: all)",
         TOOL_U32, &o.min_workers, 1, GW_MAX_WORKERS},
        {"--backup", "B", "with --mode sync: a round does not wait for the slowest B workers (default 0)", TOOL_U32,
         &o.backup, 0, GW_MAX_WORKERS},
        {"--threads", "K", "threads that reduce pushes (default 1)", TOOL_U32, &context.n_threads, 1, 256},
        {"--keys", "DIR",
         "the folder of the server's identity (gradwire keys): encrypt everything, and let in only clients whose "
         "identity is listed there",
         TOOL_TEXT, &o.keys},
        {"--insecure", NULL, "without --keys, let other machines connect; let them see the --metrics page", TOOL_FLAG,
         &o.insecure},
        {"--metrics", "HOST:PORT",
         "show a page for browsers, and /metrics for Prometheus; a port alone is one of 127.0.0.1 (default: no page)",
         TOOL_TEXT, &metrics},
        {"--snapshot", "DIR",
         "keep what was acknowledged in this folder, so that it is there after a crash and a restart (default: nothing "
         "is kept)",
         TOOL_TEXT, &o.snapshot},
        {"--timeout", "S", "a client's machine is gone if it has not answered for S seconds (default 10)", TOOL_U32,
         &timeout, 1, 86400},
        {"--max-keys", "K", "how many keys the server keeps at most (default 1Mi)", TOOL_U64, &o.max_keys, 1, MOST},
        {"--max-key-bytes", "B", "the most bytes of one value (default 1Gi)", TOOL_U64, &o.max_key_bytes, 1, MOST},
        {"--max-bytes", "B",
         "the most bytes of all that the server keeps (default: three quarters of this machine's memory)", TOOL_U64,
         &o.max_bytes, 1, MOST},
        {"--max-clients", "C", "how many clients may be connected at a time (default 1024 beside the workers)",
         TOOL_U32, &o.max_clients, 1, 1000000},
    };
    char about[2048];
    describe(about, sizeof about);
    const tool_usage usage = {
        .synopsis = "server --workers N [options]",
        .about = about,
        .example = "gradwire server --workers 2\n"
                   "  python3 -c 'import gradwire.pserver as ps; c = ps.Client(\"127.0.0.1:29700\", rank=0)'",
        TOOL_OPTIONS(options),
        .args = "no operands",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    if (o.n_workers == 0)
        return tool_wrong_use("how many workers push? --workers N says it");
    TOOL_TRY(parse_mode(mode, &o));
    TOOL_TRY(parse_missing(missing, &o.missing));
    if (!isnan(away) && !(away >= 0.001 && away <= 86400))
        return tool_wrong_use("--away is %g; it must be 0.001 to 86400 seconds", away);
    o.away_ms = isnan(away) ? 0 : (uint32_t)(away * 1000);
    if (o.away_ms && o.missing == GW_PS_MISSING_WAIT)
        return tool_wrong_use(
            "--away is for --missing continue and --missing stop; without them nobody goes on without who is gone");
    o.timeout_ms = timeout * 1000;
    gw_status made = gw_context_create(&context, &shared);
    if (made < 0)
        return tool_exit_status(made, NULL);
    tool_catch_stops(on_stop, SA_RESTART);
    signal(SIGPIPE, SIG_IGN); /* whoever reads the log may end before the server */
    gw_ps_server *server = NULL;
    made = gw_ps_server_create(shared, &o, &server);
    running = server;
    struct tool_status *page = NULL;
    int status = tool_exit_status_of_use(made); /* a service is not to try options that do not fit again and again */
    if (status == TOOL_DONE && metrics)
        status = tool_status_open(server, metrics, o.insecure, &page);
    if (status == TOOL_DONE)
        status = serve(server, &o, mode, page);
    tool_status_close(page);
    for (int i = 0; i < N_STOPS; i++)
        signal(stops[i].number, SIG_IGN); /* it ends already */
    gw_ps_server_destroy(server);
    gw_context_destroy(shared);
    return status;
}
