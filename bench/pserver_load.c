/* Measures the parameter server under load, beside a bare ZeroMQ echo of the same bytes. `gradwire server` is a
 * process of its own, and so is each client. The echo is one process with one ROUTER socket and one thread; it answers
 * each message with as many messages and bytes as the parameter server does, and its clients are bare DEALER sockets.
 * Both run in turn, and the medians of several runs are printed. */
#include "base/numbers.h"
#include "base/child.h"

#include <gradwire/pserver.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#define MOST_CLIENTS 1024
#define MOST_RUNS 99
#define MOST_UNDER_WAY 1024
#define TIMEOUT_MS 600000  /* how long a client waits for an answer */
#define START_SECONDS 60.0 /* how long a server may take until it listens */
/* the echo copies a value with up to so many bytes, as the server does. It keeps longer ones as they came */
#define ECHO_COPIES 16384

/* How many bytes heads have (docs/pserver-protocol.md). For requests this is without the key's name. */
enum { PUSH_HEAD = 29, PUSH_ANSWER = 28, PULL_HEAD = 30, PULL_ANSWER = 41 };

/* One line of the table. */
struct row {
    const char *name, *mode;
    gw_ps_method method;
    bool one_key; /* all clients share a key; else each has its own */
    /* Each client does n_operations: half of them push, half pull. `way` of them are under way at a time. */
    uint32_t n_clients, n_operations, way;
    size_t n_bytes; /* bytes of a value */
};

/* The figures that one run of one side gives. */
enum { RATE, MB_RATE, P50_US, P99_US, SERVER_US, CLIENT_US, IDLE_KB, PEAK_MB, N_FIGURES };
static const char *const figure_names[N_FIGURES] = {
    "operations_per_second", "megabytes_per_second", "p50_us",        "p99_us", "server_cpu_us",
    "client_cpu_us",         "server_kb_per_client", "server_peak_mb"};

/* What clients tell. It lies in memory that all processes share. */
struct told {
    atomic_uint ready;
    struct {
        _Alignas(64) atomic_uint done; /* how many operations have ended */
        double ended, cpu;
    } clients[MOST_CLIENTS];
    float seconds[]; /* how long each operation took */
};

static struct {
    const char *gradwire;
    uint32_t runs;
    bool json;
    double began, share; /* began: when the program began; share: how much of all its work is done */
} app = {.runs = 3};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("\npserver_load: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    exit(1);
}

static void must(gw_status status)
{
    if (status < 0)
        die("%s", gw_last_error());
}

static void must_zmq(int result)
{
    if (result < 0)
        die("ZeroMQ: %s", zmq_strerror(zmq_errno()));
}

static void name_key(const struct row *row, uint32_t rank, char name[32])
{
    snprintf(name, 32, row->one_key ? "parameter" : "parameter-%u", rank);
}

/* ---- the echo ---------------------------------------------------------------------------------------------- */

/* The value that a client sent last. It is found by the number of the client's connection. These numbers count up. */
struct kept {
    uint32_t route;
    bool taken;
    zmq_msg_t value;
};

static struct kept *kept_for(struct kept *all, uint32_t route)
{
    uint32_t i = route % MOST_CLIENTS;
    while (all[i].taken && all[i].route != route)
        i = (i + 1) % MOST_CLIENTS;
    if (!all[i].taken) {
        all[i].taken = true;
        all[i].route = route;
        zmq_msg_init(&all[i].value);
    }
    return &all[i];
}

static void keep(zmq_msg_t *to, zmq_msg_t *value)
{
    size_t n = zmq_msg_size(value);
    if (n > ECHO_COPIES) {
        zmq_msg_move(to, value);
        return;
    }
    zmq_msg_close(to);
    must_zmq(zmq_msg_init_size(to, n));
    memcpy(zmq_msg_data(to), zmq_msg_data(value), n);
}

static void echo_one(void *socket, struct kept *all)
{
    static const uint8_t head[PULL_ANSWER];
    zmq_msg_t route, request, value;
    uint32_t number;
    zmq_msg_init(&route);
    zmq_msg_init(&request);
    zmq_msg_init(&value);
    must_zmq(zmq_msg_recv(&route, socket, 0));
    must_zmq(zmq_msg_recv(&request, socket, 0));
    memcpy(&number, (uint8_t *)zmq_msg_data(&route) + 1, sizeof number);
    struct kept *kept = kept_for(all, number);
    bool push = zmq_msg_more(&request);
    if (push) {
        must_zmq(zmq_msg_recv(&value, socket, 0));
        keep(&kept->value, &value);
    }
    must_zmq(zmq_msg_send(&route, socket, ZMQ_SNDMORE));
    must_zmq(zmq_send(socket, head, push ? PUSH_ANSWER : PULL_ANSWER, push ? 0 : ZMQ_SNDMORE));
    if (!push) {
        zmq_msg_copy(&value, &kept->value);
        must_zmq(zmq_msg_send(&value, socket, 0));
    }
    zmq_msg_close(&value);
    zmq_msg_close(&request);
    zmq_msg_close(&route);
}

/* The process of the echo. It runs until it is killed. */
__attribute__((noreturn)) static void echo_main(void)
{
    static struct kept all[MOST_CLIENTS];
    char endpoint[256];
    size_t n = sizeof endpoint;
    const int backlog = MOST_CLIENTS;
    void *zmq = zmq_ctx_new(), *socket = zmq_socket(zmq, ZMQ_ROUTER);
    must_zmq(zmq_setsockopt(socket, ZMQ_BACKLOG, &backlog, sizeof backlog));
    must_zmq(zmq_bind(socket, "tcp://127.0.0.1:*"));
    must_zmq(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &n));
    fprintf(stderr, "listening address=%s \n", endpoint + strlen("tcp://"));
    for (;;)
        echo_one(socket, all);
}

/* ---- clients ----------------------------------------------------------------------------------------------- */

/* One client, of the server or of the echo. */
struct client {
    const struct row *row;
    uint32_t rank;
    const float *value;
    char key[32];
    gw_ps_client *gradwire;
    void *zmq, *socket; /* for clients of the echo */
    uint64_t tickets[MOST_UNDER_WAY];
};

static void client_open(struct client *client, bool echo, const char *address)
{
    const struct row *row = client->row;
    name_key(row, client->rank, client->key);
    if (echo) {
        char endpoint[300];
        snprintf(endpoint, sizeof endpoint, "tcp://%s", address);
        client->zmq = zmq_ctx_new();
        client->socket = zmq_socket(client->zmq, ZMQ_DEALER);
        must_zmq(zmq_connect(client->socket, endpoint));
        return;
    }
    const gw_ps_client_options options = {.struct_bytes = sizeof options,
                                          .servers = address,
                                          .rank = client->rank,
                                          .timeout_ms = TIMEOUT_MS};
    must(gw_ps_client_create(NULL, &options, &client->gradwire));
    must(gw_ps_init_parameter(client->gradwire, client->key, GW_PS_FLOAT32,
                              &(gw_ps_shape){.n_dims = 1, .dims = {row->n_bytes / sizeof(float)}}));
}

static void left_alone(void *bytes, void *hint)
{
    (void)bytes, (void)hint;
}

/* Asks for the nth operation. Pushes and pulls take turns. */
static void client_begin(struct client *client, uint32_t nth)
{
    static const uint8_t head[PULL_HEAD + sizeof client->key];
    const size_t n_bytes = client->row->n_bytes, n_name = strlen(client->key);
    uint64_t *ticket = &client->tickets[nth % client->row->way];
    const bool push = nth % 2 == 0;
    if (client->gradwire && push) {
        must(gw_ps_push_begin(client->gradwire, client->key, client->value, n_bytes, ticket));
    } else if (client->gradwire) {
        must(gw_ps_pull_begin(client->gradwire, client->key, client->row->method, NULL, ticket));
    } else if (!push) {
        must_zmq(zmq_send(client->socket, head, PULL_HEAD + n_name, 0));
    } else {
        must_zmq(zmq_send(client->socket, head, PUSH_HEAD + n_name, ZMQ_SNDMORE));
        if (n_bytes <= ECHO_COPIES) {
            must_zmq(zmq_send(client->socket, client->value, n_bytes, 0));
        } else {
            zmq_msg_t value;
            must_zmq(zmq_msg_init_data(&value, (void *)client->value, n_bytes, left_alone, NULL));
            must_zmq(zmq_msg_send(&value, client->socket, 0));
        }
    }
}

/* Waits for the answer to the nth operation. */
static void client_end(struct client *client, uint32_t nth)
{
    const bool push = nth % 2 == 0;
    size_t n_bytes = 0;
    if (client->gradwire) {
        gw_ps_value value = {0};
        must(gw_ps_wait(client->gradwire, client->tickets[nth % client->row->way], push ? NULL : &value));
        n_bytes = value.n_bytes;
        gw_ps_value_free(&value);
    } else {
        int more = 1;
        while (more) {
            zmq_msg_t part;
            zmq_msg_init(&part);
            must_zmq(zmq_msg_recv(&part, client->socket, 0));
            n_bytes = zmq_msg_size(&part);
            more = zmq_msg_more(&part);
            zmq_msg_close(&part);
        }
    }
    if (!push && n_bytes != client->row->n_bytes)
        die("a pull gave %zu bytes, not %zu", n_bytes, client->row->n_bytes);
}

static double cpu_seconds(clockid_t clock)
{
    struct timespec t = {0};
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The process of one client. It connects, waits until all clients have connected, and asks. */
static void client_main(const struct row *row, uint32_t rank, bool echo, const char *address, const float *value,
                        int go, struct told *told)
{
    static struct client client;
    static double begun[MOST_UNDER_WAY];
    char end;
    client = (struct client){.row = row, .rank = rank, .value = value};
    client_open(&client, echo, address);
    atomic_fetch_add(&told->ready, 1);
    if (read(go, &end, 1) != 0)
        die("client %u was not started", rank);
    const double cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    float *seconds = told->seconds + (size_t)rank * row->n_operations;
    for (uint32_t i = 0, ended = 0; ended < row->n_operations;) {
        if (i < row->n_operations && i - ended < row->way) {
            begun[i % row->way] = now();
            client_begin(&client, i++);
            continue;
        }
        client_end(&client, ended);
        seconds[ended] = (float)(now() - begun[ended % row->way]);
        atomic_store_explicit(&told->clients[rank].done, ++ended, memory_order_relaxed);
    }
    told->clients[rank].ended = now();
    told->clients[rank].cpu = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    gw_ps_client_destroy(client.gradwire);
    fflush(NULL);
    _exit(0);
}

/* ---- one side of one run ----------------------------------------------------------------------------------- */

/* Starts a process that ends when this one ends. */
static pid_t fork_child(void)
{
    fflush(NULL);
    const pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        die("no process: %s", strerror(errno));
    if (pid == 0)
        gw_child_end_with(parent, SIGKILL);
    return pid;
}

/* Starts the server. What it says on standard error goes to `log`. */
static pid_t start_server(const struct row *row, bool echo, FILE *log)
{
    char workers[16];
    snprintf(workers, sizeof workers, "%u", row->n_clients);
    pid_t pid = fork_child();
    if (pid != 0)
        return pid;
    dup2(fileno(log), STDERR_FILENO);
    if (echo)
        execl("/proc/self/exe", "pserver_load", "echo", (char *)NULL);
    else
        execlp(app.gradwire, "gradwire", "server", "--workers", workers, "--mode", row->mode, "--listen", "127.0.0.1:0",
               "--timeout", "600", (char *)NULL);
    die("%s cannot be run: %s", echo ? "the echo" : app.gradwire, strerror(errno));
}

/* Waits until the server listens, and reads its address. */
static void read_address(pid_t server, FILE *log, char address[256])
{
    const double deadline = now() + START_SECONDS;
    char line[512];
    while (now() < deadline) {
        rewind(log);
        while (fgets(line, sizeof line, log)) {
            const char *at = strstr(line, "listening address=");
            if (at && strchr(line, '\n') && sscanf(at, "listening address=%255s", address) == 1)
                return;
        }
        if (waitpid(server, NULL, WNOHANG) != 0)
            die("the server ended: %s", line);
        poll(NULL, 0, 5);
    }
    die("the server did not listen within %g s", START_SECONDS);
}

/* The field "VmRSS" or "VmHWM" of a process, in KiB. */
static double memory_of(pid_t pid, const char *field)
{
    char name[64], line[256];
    double kib = 0;
    snprintf(name, sizeof name, "/proc/%d/status", (int)pid);
    FILE *file = fopen(name, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0)
            kib = atof(line + strlen(field) + 1);
    if (file)
        fclose(file);
    return kib;
}

static void show(const struct row *row, bool echo, uint32_t run, const struct told *told, double side_share)
{
    uint64_t done = 0, all = (uint64_t)row->n_clients * row->n_operations;
    for (uint32_t c = 0; c < row->n_clients; c++)
        done += atomic_load_explicit(&told->clients[c].done, memory_order_relaxed);
    double share = app.share + side_share * (double)done / (double)all, took = now() - app.began;
    fprintf(stderr, "\r%-6s %-6s run %u of %u: %3.0f %%; all: %3.0f %%, about %.0f s left    ", row->name,
            echo ? "echo" : "server", run + 1, app.runs, 100.0 * (double)done / (double)all, 100 * share,
            share > 0 ? took / share * (1 - share) : 0.0);
}

/* Waits until all clients have ended. */
static void wait_for_clients(const struct row *row, bool echo, uint32_t run, const struct told *told, pid_t server,
                             double side_share)
{
    const struct timespec while_ = {.tv_nsec = 100000000};
    for (uint32_t n = 0, looks = 0; n < row->n_clients; looks++) {
        int status;
        pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == server)
            die("the server has ended (status %d)", status);
        if (pid > 0 && status != 0)
            die("a client has failed (status %d)", status);
        n += pid > 0;
        if (pid == 0) {
            nanosleep(&while_, NULL);
            if (looks % 10 == 0)
                show(row, echo, run, told, side_share);
        }
    }
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void figure_out(const struct row *row, struct told *told, double began, double server_cpu,
                       double figures[N_FIGURES])
{
    const size_t n = (size_t)row->n_clients * row->n_operations;
    double ended = 0, cpu = 0;
    for (uint32_t c = 0; c < row->n_clients; c++) {
        ended = fmax(ended, told->clients[c].ended);
        cpu += told->clients[c].cpu;
    }
    qsort(told->seconds, n, sizeof *told->seconds, compare);
    figures[RATE] = (double)n / (ended - began);
    figures[MB_RATE] = figures[RATE] * (double)row->n_bytes / 1e6;
    figures[P50_US] = 1e6 * told->seconds[n / 2];
    figures[P99_US] = 1e6 * told->seconds[n - 1 - n / 100];
    figures[SERVER_US] = 1e6 * server_cpu / (double)n;
    figures[CLIENT_US] = 1e6 * cpu / (double)n;
}

static void run_side(const struct row *row, bool echo, uint32_t run, const float *value, double side_share,
                     double figures[N_FIGURES])
{
    const size_t told_bytes = sizeof(struct told) + sizeof(float) * row->n_clients * row->n_operations;
    struct told *told = mmap(NULL, told_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FILE *log = tmpfile();
    int go[2];
    char address[256];
    clockid_t clock;
    if (told == MAP_FAILED || !log)
        die("no memory or no file: %s", strerror(errno));
    pid_t server = start_server(row, echo, log);
    read_address(server, log, address);
    const double alone = memory_of(server, "VmRSS");
    if (pipe(go) != 0)
        die("no pipe: %s", strerror(errno));
    for (uint32_t c = 0; c < row->n_clients; c++)
        if (fork_child() == 0) {
            close(go[1]);
            client_main(row, c, echo, address, value, go[0], told);
        }
    while (atomic_load(&told->ready) < row->n_clients) {
        int status;
        if (waitpid(-1, &status, WNOHANG) > 0)
            die("a client or the server has failed (status %d)", status);
        poll(NULL, 0, 5);
    }
    figures[IDLE_KB] = (memory_of(server, "VmRSS") - alone) / row->n_clients;
    clock_getcpuclockid(server, &clock);
    const double cpu = cpu_seconds(clock), began = now();
    close(go[1]);
    wait_for_clients(row, echo, run, told, server, side_share);
    figure_out(row, told, began, cpu_seconds(clock) - cpu, figures);
    figures[PEAK_MB] = memory_of(server, "VmHWM") / 1e3 * 1.024;
    kill(server, echo ? SIGKILL : SIGTERM);
    waitpid(server, NULL, 0);
    close(go[0]);
    fclose(log);
    munmap(told, told_bytes);
}

/* ---- the table --------------------------------------------------------------------------------------------- */

static int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread {
    double least, median, most;
};

static struct spread spread_of(const double *numbers, uint32_t n)
{
    double sorted[MOST_RUNS];
    memcpy(sorted, numbers, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_double);
    return (struct spread){sorted[0], (sorted[(n - 1) / 2] + sorted[n / 2]) / 2, sorted[n - 1]};
}

/* All runs of one row: the figures of the server and of the echo, and the ratio of their rates in each run. */
struct measured {
    double figures[2][N_FIGURES][MOST_RUNS], ratio[MOST_RUNS];
};

static void measure(const struct row *row, const float *value, double row_share, struct measured *out)
{
    const double side_share = row_share / (2 * app.runs);
    for (uint32_t r = 0; r < app.runs; r++) {
        for (int i = 0; i < 2; i++) {
            const int echo = (i + (int)r) % 2 == 0; /* the two sides take turns to go first */
            double figures[N_FIGURES];
            run_side(row, echo, r, value, side_share, figures);
            for (int f = 0; f < N_FIGURES; f++)
                out->figures[echo][f][r] = figures[f];
            app.share += side_share;
        }
        out->ratio[r] = out->figures[0][RATE][r] / out->figures[1][RATE][r];
    }
}

static void print_row(const struct row *row, const struct measured *m)
{
    const struct spread ratio = spread_of(m->ratio, app.runs);
    fprintf(stderr, "\r%80s\r", "");
    printf("%s: %u clients, %u operations each on %zu bytes, %u under way; server --mode %s, pulls by %s%s\n",
           row->name, row->n_clients, row->n_operations, row->n_bytes, row->way, row->mode,
           gw_ps_method_name(row->method), row->one_key ? ", one key for all" : "");
    printf("          operations/s      MB/s      p50 us      p99 us   cpu us: server   clients   KB a client   peak "
           "MB\n");
    for (int echo = 0; echo < 2; echo++) {
        double f[N_FIGURES];
        for (int i = 0; i < N_FIGURES; i++)
            f[i] = spread_of(m->figures[echo][i], app.runs).median;
        printf("  %-6s %13.*f %9.1f %11.0f %11.0f %16.1f %9.1f %13.0f %9.1f\n", echo ? "echo" : "server",
               f[RATE] < 100 ? 2 : 0, f[RATE], f[MB_RATE], f[P50_US], f[P99_US], f[SERVER_US], f[CLIENT_US], f[IDLE_KB],
               f[PEAK_MB]);
    }
    printf("  server over echo, operations/s: %.2f (%.2f to %.2f)\n\n", ratio.median, ratio.least, ratio.most);
    fflush(stdout);
}

static void print_json(const struct row *row, const struct measured *m, bool first)
{
    printf("%s{\"name\":\"%s\",\"clients\":%u,\"operations\":%u,\"bytes\":%zu,\"under_way\":%u,\"mode\":\"%s\","
           "\"method\":\"%s\",\"one_key\":%s",
           first ? "[" : ",\n ", row->name, row->n_clients, row->n_operations, row->n_bytes, row->way, row->mode,
           gw_ps_method_name(row->method), row->one_key ? "true" : "false");
    for (int echo = 0; echo < 2; echo++) {
        printf(",\"%s\":{", echo ? "echo" : "server");
        for (int f = 0; f < N_FIGURES; f++) {
            printf("%s\"%s\":[", f ? "," : "", figure_names[f]);
            for (uint32_t r = 0; r < app.runs; r++)
                printf("%s%.6g", r ? "," : "", m->figures[echo][f][r]);
            printf("]");
        }
        printf("}");
    }
    printf(",\"ratio\":%.4f}", spread_of(m->ratio, app.runs).median);
}

/* ---- options ----------------------------------------------------------------------------------------------- */

static const char help[] =
    "usage: pserver_load [options]\n"
    "The parameter server under load, beside a bare ZeroMQ echo of the same bytes; both in turn.\n"
    "  --gradwire FILE      the tool (default: `gradwire` beside this program)\n"
    "  --rows LIST          of small, many, large, mean (default: all, with commas between)\n"
    "                       small: each client waits for each answer; many: it has several requests under way; both on "
    "keys of\n"
    "                       its own that the server stores and returns (--mode async, latest)\n"
    "                       large: the same with large keys, one request at a time; mean: all push to one large key "
    "and pull the\n"
    "                       mean (--mode sync), which the server computes once a round\n"
    "  --runs N             of each, medians are told (default 3)\n"
    "  --clients N          of small and many (default 200)\n"
    "  --operations N       of each client, half pushes, half pulls (default 5000)\n"
    "  --bytes N            of a small value (default 64)\n"
    "  --under-way N        requests of each client in `many` (default 16)\n"
    "  --large-clients N    (default 8)\n"
    "  --large-mib N        MiB of a large value (default 256)\n"
    "  --rounds N           pushes, and pulls, of each client of large values (default 3)\n"
    "  --json               all figures of all runs\n"
    "Columns: latency is from the request's call to its answer in the caller's hands; cpu is processor time for one "
    "operation, of the\n"
    "server and of the clients; KB a client is what the server's memory grew by when a client connected and made its "
    "key.\n";

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
    uint64_t n;
    if (!gw_parse_whole(text, most, &n) || n < least)
        die("\"%s\" is no number from %u to %u", text, least, most);
    return (uint32_t)n;
}

/* Reads the options into the rows. Returns the list of the rows that are wanted. */
static const char *parse(int argc, char **argv, struct row rows[4])
{
    enum { GRADWIRE, ROWS, RUNS, CLIENTS, OPERATIONS, BYTES, UNDER_WAY, LARGE_CLIENTS, LARGE_MIB, ROUNDS, JSON, HELP };
    static const struct option options[] = {{"gradwire", 1, 0, GRADWIRE},
                                            {"rows", 1, 0, ROWS},
                                            {"runs", 1, 0, RUNS},
                                            {"clients", 1, 0, CLIENTS},
                                            {"operations", 1, 0, OPERATIONS},
                                            {"bytes", 1, 0, BYTES},
                                            {"under-way", 1, 0, UNDER_WAY},
                                            {"large-clients", 1, 0, LARGE_CLIENTS},
                                            {"large-mib", 1, 0, LARGE_MIB},
                                            {"rounds", 1, 0, ROUNDS},
                                            {"json", 0, 0, JSON},
                                            {"help", 0, 0, HELP},
                                            {0}};
    const char *wanted = "small,many,large,mean";
    for (int o; (o = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (o) {
        case GRADWIRE:
            app.gradwire = optarg;
            break;
        case ROWS:
            wanted = optarg;
            break;
        case RUNS:
            app.runs = number(optarg, 1, MOST_RUNS);
            break;
        case CLIENTS:
            rows[0].n_clients = rows[1].n_clients = number(optarg, 1, MOST_CLIENTS);
            break;
        case OPERATIONS:
            rows[0].n_operations = rows[1].n_operations = number(optarg, 2, 10000000);
            break;
        case BYTES:
            rows[0].n_bytes = rows[1].n_bytes = number(optarg, 4, 1 << 20) & ~3u;
            break;
        case UNDER_WAY:
            rows[1].way = number(optarg, 1, MOST_UNDER_WAY);
            break;
        case LARGE_CLIENTS:
            rows[2].n_clients = rows[3].n_clients = number(optarg, 1, MOST_CLIENTS);
            break;
        case LARGE_MIB:
            rows[2].n_bytes = rows[3].n_bytes = (size_t)number(optarg, 1, 1024) << 20;
            break;
        case ROUNDS:
            rows[2].n_operations = rows[3].n_operations = 2 * number(optarg, 1, 100000);
            break;
        case JSON:
            app.json = true;
            break;
        case HELP:
            fputs(help, stdout);
            exit(0);
        default:
            die("--help tells what is right");
        }
    }
    return wanted;
}

static bool is_wanted(const char *list, const char *name)
{
    const size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ','))
            return true;
    return false;
}

/* Finds the tool beside this program. */
static void find_tool(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - sizeof "gradwire");
    if (app.gradwire || n < 0)
        return;
    path[n] = 0;
    strcpy(strrchr(path, '/') + 1, "gradwire");
    app.gradwire = path;
}

/* Makes the value that clients push. It is one for all clients, whose processes share its memory. */
static const float *make_value(const struct row rows[4])
{
    size_t n = 0;
    for (int i = 0; i < 4; i++)
        n = rows[i].n_bytes > n ? rows[i].n_bytes : n;
    float *value = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (value == MAP_FAILED)
        die("no memory for a value of %zu bytes", n);
    for (size_t i = 0; i < n / sizeof *value; i++)
        value[i] = (float)(i % 1000) * 1e-3f;
    return value;
}

int main(int argc, char **argv)
{
    static struct measured measured;
    struct row rows[4] = {{"small", "async", GW_PS_LATEST, false, 200, 5000, 1, 64},
                          {"many", "async", GW_PS_LATEST, false, 200, 5000, 16, 64},
                          {"large", "async", GW_PS_LATEST, false, 8, 6, 1, 256u << 20},
                          {"mean", "sync", GW_PS_MEAN, true, 8, 6, 1, 256u << 20}};
    if (argc == 2 && strcmp(argv[1], "echo") == 0)
        echo_main();
    const char *wanted = parse(argc, argv, rows);
    int n_wanted = 0, n = 0;
    find_tool();
    for (int i = 0; i < 4; i++) {
        if (is_wanted(wanted, rows[i].name))
            n_wanted++;
        else
            rows[i].n_bytes = 0;
    }
    if (n_wanted == 0)
        die("--rows names none of small, many, large, mean");
    const float *value = make_value(rows);
    app.began = now();
    for (int i = 0; i < 4; i++) {
        if (!rows[i].n_bytes)
            continue;
        measure(&rows[i], value, 1.0 / n_wanted, &measured);
        if (app.json)
            print_json(&rows[i], &measured, n == 0);
        else
            print_row(&rows[i], &measured);
        n++;
    }
    if (app.json)
        printf("]\n");
    fputs("\r", stderr);
    return 0;
}
