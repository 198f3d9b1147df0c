/* Measures the parameter server under load, beside a bare echo of the same bytes over TCP. `gradwire server` is a
 * process of its own, and so is each client. The echo is one process with one thread, epoll, and one piece of memory
 * for each connection, where it receives values and from where it sends them back. It answers each message with as many
 * bytes as the parameter server does, and its clients are bare sockets. Both run in turn, and the medians of several
 * runs are printed. */
#include "base/numbers.h"
#include "base/child.h"

#include <gradwire/pserver.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_CLIENTS 1024
#define MOST_RUNS 99
#define MOST_UNDER_WAY 1024
#define TIMEOUT_MS 600000  /* how long a client waits for an answer */
#define START_SECONDS 60.0 /* how long a server may take until it listens */
#define AHEAD 16384        /* bytes that an end of the echo reads before it knows what they are */
#define AT_ONCE 64         /* answers that the echo sends at a time */

/* How many bytes heads have (docs/pserver-protocol.md). For requests this is without the key's name. */
enum { PUSH_HEAD = 37, PUSH_ANSWER = 28, PULL_HEAD = 34, PULL_ANSWER = 41, MOST_HEAD = 80 };

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

static void must_system(long result)
{
    if (result < 0)
        die("%s", strerror(errno));
}

static void name_key(const struct row *row, uint32_t rank, char name[32])
{
    snprintf(name, 32, row->one_key ? "parameter" : "parameter-%u", rank);
}

/* ---- the echo ---------------------------------------------------------------------------------------------- */

/* What begins a message. n_head bytes follow, and then the value. */
struct start {
    uint64_t n_head, n_value;
};

/* One end of a connection of the echo. All values that come to it have one length. */
struct end {
    int fd;
    uint8_t ahead[AHEAD]; /* bytes from `at` to n_ahead were read, and not used yet */
    size_t at, n_ahead;
    uint8_t *value; /* the value that came last, or is coming */
    size_t n_value, n_come;
    bool drained; /* the kernel has no more bytes now */
    /* At the server: what was asked, and which of it was answered. n_sent: bytes of the next answer that have left. */
    bool is_pull[MOST_UNDER_WAY];
    uint32_t asked, answered;
    size_t n_sent;
};

/* Reads until a message is whole. *has_value: `value` has come with it. false: no more has come (MSG_DONTWAIT), or the
 * other end has gone. */
static bool end_next(struct end *end, int flags, bool *has_value)
{
    for (;;) {
        const size_t n = end->n_ahead - end->at;
        struct start start = {0};
        memcpy(&start, end->ahead + end->at, n < sizeof start ? 0 : sizeof start);
        const bool in_value = end->n_come < end->n_value;
        if (!in_value && n >= sizeof start && n >= sizeof start + start.n_head) {
            end->at += sizeof start + start.n_head;
            *has_value = start.n_value > 0;
            if (!*has_value)
                return true;
            if (!end->value && !(end->value = malloc(start.n_value)))
                die("no memory for a value of %" PRIu64 " bytes", start.n_value);
            end->n_value = start.n_value;
            end->n_come = end->n_ahead - end->at < end->n_value ? end->n_ahead - end->at : end->n_value;
            memcpy(end->value, end->ahead + end->at, end->n_come);
            end->at += end->n_come;
            if (end->n_come == end->n_value)
                return true;
            continue;
        }
        if (!in_value) {
            memmove(end->ahead, end->ahead + end->at, n);
            end->at = 0;
            end->n_ahead = n;
        }
        if (end->drained && flags & MSG_DONTWAIT) {
            end->drained = false;
            return false;
        }
        const size_t room = in_value ? end->n_value - end->n_come : AHEAD - n;
        const ssize_t got = recv(end->fd, in_value ? end->value + end->n_come : end->ahead + n, room, flags);
        if (got <= 0)
            return false;
        end->drained = (size_t)got < room;
        *(in_value ? &end->n_come : &end->n_ahead) += (size_t)got;
        if (in_value && end->n_come == end->n_value)
            return *has_value = true;
    }
}

/* Sends a message, or as many of several as the kernel takes now. Returns the number of bytes. */
static size_t end_send(const struct end *end, struct iovec *parts, size_t n_parts, int flags)
{
    const ssize_t n = sendmsg(end->fd, &(struct msghdr){.msg_iov = parts, .msg_iovlen = n_parts}, flags | MSG_NOSIGNAL);
    return n < 0 ? 0 : (size_t)n;
}

/* Sends the answers that are due. */
static void echo_answer(struct end *end)
{
    static uint8_t heads[2][MOST_HEAD];
    const size_t n_heads[2] = {sizeof(struct start) + PUSH_ANSWER, sizeof(struct start) + PULL_ANSWER};
    memcpy(heads[0], &(struct start){PUSH_ANSWER, 0}, sizeof(struct start));
    memcpy(heads[1], &(struct start){PULL_ANSWER, end->n_value}, sizeof(struct start));
    while (end->answered != end->asked) {
        struct iovec parts[2 * AT_ONCE];
        size_t n_parts = 0, skip = end->n_sent;
        for (uint32_t i = end->answered; i != end->asked && n_parts < 2 * AT_ONCE; i++) {
            const bool pull = end->is_pull[i % MOST_UNDER_WAY];
            const size_t n_head = n_heads[pull], n_value = pull ? end->n_value : 0;
            const size_t in_head = skip < n_head ? skip : n_head, in_value = skip - in_head;
            parts[n_parts++] = (struct iovec){heads[pull] + in_head, n_head - in_head};
            parts[n_parts++] = (struct iovec){end->value + in_value, n_value - in_value};
            skip = 0;
        }
        size_t n = end_send(end, parts, n_parts, MSG_DONTWAIT);
        if (n == 0)
            return;
        for (n += end->n_sent; end->answered != end->asked; end->answered++) {
            const bool pull = end->is_pull[end->answered % MOST_UNDER_WAY];
            const size_t whole = n_heads[pull] + (pull ? end->n_value : 0);
            if (n < whole)
                break;
            n -= whole;
        }
        end->n_sent = n;
    }
}

/* The process of the echo. It runs until it is killed. epoll tells of each change once, so nothing is changed there. */
__attribute__((noreturn)) static void echo_main(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_own = sizeof own;
    const int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), yes = 1;
    struct epoll_event events[AT_ONCE], event = {.events = EPOLLIN};
    must_system(bind(listener, (struct sockaddr *)&own, sizeof own));
    must_system(listen(listener, MOST_CLIENTS));
    must_system(getsockname(listener, (struct sockaddr *)&own, &n_own));
    must_system(epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event));
    fprintf(stderr, "listening address=127.0.0.1:%u \n", ntohs(own.sin_port));
    for (;;) {
        const int n = epoll_wait(epoll, events, AT_ONCE, -1);
        for (int i = 0; i < n; i++) {
            struct end *end = events[i].data.ptr;
            bool push;
            if (!end) {
                must_system((end = calloc(1, sizeof *end)) ? 0 : -1);
                must_system(end->fd = accept(listener, NULL, NULL));
                setsockopt(end->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                event = (struct epoll_event){.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = end};
                must_system(epoll_ctl(epoll, EPOLL_CTL_ADD, end->fd, &event));
                continue;
            }
            while (end_next(end, MSG_DONTWAIT, &push))
                end->is_pull[end->asked++ % MOST_UNDER_WAY] = !push;
            echo_answer(end);
        }
    }
}

/* ---- clients ----------------------------------------------------------------------------------------------- */

/* One client, of the server or of the echo. */
struct client {
    const struct row *row;
    uint32_t rank;
    const float *value;
    char key[32];
    gw_ps_client *gradwire;
    struct end end; /* of clients of the echo */
    uint64_t under_way[MOST_UNDER_WAY];
};

static void client_open(struct client *client, bool echo, const char *address)
{
    const struct row *row = client->row;
    name_key(row, client->rank, client->key);
    if (echo) {
        const struct sockaddr_in to = {.sin_family = AF_INET,
                                       .sin_port = htons((uint16_t)atoi(strchr(address, ':') + 1)),
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        const int yes = 1;
        must_system(client->end.fd = socket(AF_INET, SOCK_STREAM, 0));
        must_system(connect(client->end.fd, (const struct sockaddr *)&to, sizeof to));
        setsockopt(client->end.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        return;
    }
    const gw_ps_client_options options = {.struct_bytes = sizeof options,
                                          .servers = address,
                                          .rank = client->rank,
                                          .timeout_ms = TIMEOUT_MS};
    must(gw_ps_client_create(NULL, &options, &client->gradwire));
    must(gw_ps_init(client->gradwire, client->key,
                    &(gw_ps_key_options){.struct_bytes = sizeof(gw_ps_key_options),
                                         .type = GW_PS_FLOAT32,
                                         .shape = {.n_dims = 1, .dims = {row->n_bytes / sizeof(float)}}}));
}

/* Asks for the nth operation. Pushes and pulls take turns. */
static void client_begin(struct client *client, uint32_t nth)
{
    const size_t n_bytes = client->row->n_bytes;
    uint64_t *id = &client->under_way[nth % client->row->way];
    const bool push = nth % 2 == 0;
    if (client->gradwire) {
        must(gw_ps_begin(client->gradwire,
                         &(gw_ps_call){.struct_bytes = sizeof(gw_ps_call),
                                       .kind = push ? GW_PS_CALL_PUSH : GW_PS_CALL_PULL,
                                       .key = client->key,
                                       .bytes = client->value,
                                       .n_bytes = n_bytes,
                                       .method = client->row->method},
                         id));
    } else {
        uint8_t head[MOST_HEAD] = {0};
        const struct start start = {(push ? PUSH_HEAD : PULL_HEAD) + strlen(client->key), push ? n_bytes : 0};
        struct iovec parts[2] = {{head, sizeof start + start.n_head}, {(void *)client->value, start.n_value}};
        memcpy(head, &start, sizeof start);
        if (end_send(&client->end, parts, 2, 0) != parts[0].iov_len + parts[1].iov_len)
            die("the echo has gone");
    }
}

/* Waits for the answer to the nth operation. */
static void client_end(struct client *client, uint32_t nth)
{
    const bool push = nth % 2 == 0;
    size_t n_bytes = 0;
    if (client->gradwire) {
        gw_ps_value value = {0};
        must(gw_ps_wait(client->gradwire, client->under_way[nth % client->row->way], GW_PS_NO_LIMIT,
                        push ? NULL : &value));
        n_bytes = value.n_bytes;
        gw_ps_value_free(&value);
    } else {
        bool has_value;
        if (!end_next(&client->end, 0, &has_value))
            die("the echo has gone");
        n_bytes = has_value ? client->end.n_value : 0;
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
    "The parameter server under load, beside a bare echo of the same bytes over TCP; both in turn.\n"
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
