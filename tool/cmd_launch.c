/* gradwire launch: starts the workers of a tcp run, here or on other machines by ssh, and sees them to their end. */
#define _GNU_SOURCE /* pipe2 */
#include "base/clock.h"
#include "base/child.h"
#include "base/quote.h"
#include "hosts.h"
#include "launcher.h"
#include "members/members.h"
#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* If the user asks for a stop, workers get so much more time, because a clean stop may write a checkpoint. */
enum { STOP_SECONDS = 25 };
/* If a worker has failed, the others get GRACE_SECONDS to end by themselves, and TERM_SECONDS more after they are told
 * to end. After WAKE_SECONDS those that are stopped go on. */
enum { WAKE_SECONDS = 1, GRACE_SECONDS = 5, TERM_SECONDS = 2 };

enum { SHELL_FAILED = 255 }; /* ssh ends with this if it fails itself */

/* Workers that SIGKILL does not end in LOST_SECONDS hang in the system. */
enum { LOST_SECONDS = 10 };

enum { MAX_LINE = 2000, MAX_SSH_WORDS = 60 };

struct launch {
    uint32_t n;
    struct tool_hosts hosts; /* none: all workers are on this machine */
    const char *ssh;
    char ssh_text[1024], *ssh_words[MAX_SSH_WORDS + 3]; /* its words; host, line and NULL go behind them */
    int n_ssh_words;
    char address[GW_HOST_BYTES], port[16];
    char program[4096], folder[4096];
    char **words; /* the workers' command line; it says which link */
    int n_words;
    struct worker *workers;
};

struct worker {
    pid_t pid;  /* 0: it has ended, or was never started */
    int output; /* the worker's output; -1: it is closed, or it is the terminal's own */
    int input;  /* of a worker on a host: the other end of its standard input; -1: let go, or the worker is on this
                 * machine */
    char line[MAX_LINE];
    size_t n_line;
};

static volatile sig_atomic_t interrupt_wanted;
static const struct launch *launched;

static void signal_all(const struct launch *launch, int number)
{
    for (uint32_t r = 0; r < launch->n; r++)
        if (launch->workers[r].pid > 0)
            kill(launch->workers[r].pid, number);
}

/* If the last signal is not heeded yet, this command waits for somebody who does not read what it says. */
static void on_interrupt(int signal_number)
{
    static volatile time_t first;
    if (interrupt_wanted && time(NULL) > first + 1) {
        signal_all(launched, SIGKILL);
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    if (!interrupt_wanted)
        first = time(NULL);
    interrupt_wanted = signal_number;
}

/* ---- where --------------------------------------------------------------------------------------------- */

/* Finds a port of the loopback that nobody uses, and holds it until this process ends, so that no other launch takes
 * it before rank 0 listens there. It is none of those that the kernel gives to connections (32768 and up). */
static int hold_port(char *port, size_t capacity)
{
    enum { FIRST = 20000, N_PORTS = 12000, TRIES = 100 };
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const unsigned begin = (unsigned)now.tv_nsec / 1000 + 7919u * (unsigned)getpid();
    bool found = false;
    for (unsigned i = 0; i < TRIES && !found; i++) {
        const uint16_t number = (uint16_t)(FIRST + (begin + 641 * i) % N_PORTS);
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr = {htonl(INADDR_LOOPBACK)},
                                      .sin_port = htons(number)};
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
        /* Bound without SO_REUSEADDR, it gets no port that another launch holds. With it afterwards, and as it does not
         * listen, it lets rank 0 listen there. */
        found = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
                setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0;
        if (fd >= 0 && !found)
            close(fd);
        snprintf(port, capacity, "%u", number);
    }
    return found ? TOOL_DONE : tool_fail("there is no free port on the loopback: %s", strerror(errno));
}

/* ---- starting ------------------------------------------------------------------------------------------ */

/* Adds a word to a command line for a shell, quoted. */
static void put_word(FILE *line, const char *word)
{
    fputs(" '", line);
    for (; *word; word++)
        fputs(*word == '\'' ? "'\\''" : (char[]){*word, 0}, line);
    fputc('\'', line);
}

/* Runs in the child. It becomes the worker, or the remote shell that starts the worker and reads `input`. Returns only
 * if that fails. */
static void become(struct launch *launch, uint32_t rank, int input)
{
    char rank_text[16], size_text[16];
    snprintf(rank_text, sizeof rank_text, "%u", rank);
    snprintf(size_text, sizeof size_text, "%u", launch->n);
    const struct {
        const char *name, *value;
    } settings[] = {{"RANK", rank_text},
                    {"WORLD_SIZE", size_text},
                    {"MASTER_ADDR", launch->address},
                    {"MASTER_PORT", launch->port},
                    {GW_LAUNCHER_VARIABLE, "1"}}; /* the last is for workers on hosts */
    enum { N_SETTINGS = sizeof settings / sizeof *settings };
    if (launch->hosts.n == 0) {
        for (int i = 0; i < N_SETTINGS - 1; i++)
            setenv(settings[i].name, settings[i].value, 1);
        execv(launch->program, launch->words);
        return;
    }
    /* ssh gives one line to a shell on the host. */
    tool_text text;
    FILE *out = tool_text_open(&text);
    if (!out)
        return;
    fputs("cd", out);
    put_word(out, launch->folder);
    fputs(" && exec env", out);
    for (int i = 0; i < N_SETTINGS; i++) {
        char assignment[512];
        snprintf(assignment, sizeof assignment, "%s=%s", settings[i].name, settings[i].value);
        put_word(out, assignment);
    }
    for (int i = 0; launch->words[i]; i++)
        put_word(out, launch->words[i]);
    char *line = tool_text_close(out, &text, NULL);
    if (!line) /* ssh without a line would wait for one */
        return;
    char **words = launch->ssh_words;
    words[launch->n_ssh_words] = (char *)(uintptr_t)tool_host_of(&launch->hosts, rank)->login;
    words[launch->n_ssh_words + 1] = line;
    dup2(input, STDIN_FILENO);
    /* A terminal sends these signals to the remote shell, too. The shell would end before its worker has said its last
     * words. */
    signal(SIGINT, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    execvp(words[0], words);
}

static void close_end(int fd)
{
    if (fd >= 0)
        close(fd);
}

/* Runs in the child, in which the signals are blocked since before the fork. This command's handler would swallow a
 * signal that comes before exec. */
static void put_signals_back(const sigset_t *mask)
{
    struct sigaction now;
    signal(SIGINT, SIG_DFL);
    if (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN)
        signal(SIGHUP, SIG_DFL);
    sigprocmask(SIG_SETMASK, mask, NULL);
}

static int start(struct launch *launch, uint32_t rank)
{
    struct worker *worker = &launch->workers[rank];
    int output[2] = {-1, -1}, input[2] = {-1, -1};
    worker->output = -1;
    /* Rank 0 shows progress and results as if it were alone, so it keeps the terminal. */
    const char byte = GW_LAUNCHER_BYTE;
    /* The pipes are closed by exec: a worker must not hold another worker's pipe. */
    bool ok = rank == 0 || pipe2(output, O_CLOEXEC) == 0;
    if (ok && launch->hosts.n > 0)
        ok = pipe2(input, O_CLOEXEC) == 0 && write(input[1], &byte, 1) == 1;
    const pid_t parent = getpid();
    sigset_t before;
    tool_block_stops(&before);
    const pid_t pid = ok ? fork() : -1;
    if (pid == 0) {
        gw_child_end_with(parent, SIGTERM);
        put_signals_back(&before);
        if (rank > 0) {
            dup2(output[1], STDOUT_FILENO);
            dup2(output[1], STDERR_FILENO);
        }
        become(launch, rank, input[0]);
        fprintf(stderr, "gradwire launch: %s could not be started: %s\n",
                launch->hosts.n ? launch->ssh : launch->program, strerror(errno));
        _exit(TOOL_FAILED);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    close_end(output[1]);
    close_end(input[0]);
    if (pid < 0) {
        close_end(output[0]);
        close_end(input[1]);
        return tool_fail("rank %u could not be started: %s", rank, strerror(errno));
    }
    worker->pid = pid;
    worker->output = output[0];
    worker->input = input[1];
    return TOOL_DONE;
}

/* ---- seeing them to their end -------------------------------------------------------------------------- */

/* Another machine may say anything, and the terminal must not obey it. Nothing that the tool prints to a pipe is meant
 * for a terminal to obey. */
static void say_line(struct worker *worker, uint32_t rank)
{
    char line[MAX_LINE + 1], shown[4 * MAX_LINE + 1];
    size_t n = 0;
    for (size_t i = 0; i < worker->n_line; i++) /* gw_show would end at a zero byte, and marks tabs */
        line[n++] = worker->line[i] == '\t' || !worker->line[i] ? ' ' : worker->line[i];
    n -= n > 0 && line[n - 1] == '\r'; /* ssh ends its lines so */
    line[n] = 0;
    gw_show(line, "", shown, sizeof shown);
    fprintf(stderr, "[rank %u] %s\n", rank, shown);
    worker->n_line = 0;
}

static void stop_listening(struct worker *worker, uint32_t rank)
{
    if (worker->n_line)
        say_line(worker, rank);
    close_end(worker->output);
    worker->output = -1;
}

/* Reads what a worker said, at most `most` bytes, and shows the whole lines of it. Returns how many bytes there were;
 * 0: none will come any more. */
static size_t listen_to(struct worker *worker, uint32_t rank, size_t most)
{
    char bytes[4096];
    ssize_t n;
    do
        n = read(worker->output, bytes, most < sizeof bytes ? most : sizeof bytes);
    while (n < 0 && errno == EINTR);
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] == '\n' || worker->n_line == sizeof worker->line)
            say_line(worker, rank);
        if (bytes[i] != '\n')
            worker->line[worker->n_line++] = bytes[i];
    }
    if (n <= 0)
        stop_listening(worker, rank);
    return n > 0 ? (size_t)n : 0;
}

/* Shows what a worker said before it ended. It does not wait for the end of the pipe: a remote shell may have left a
 * process that holds it. */
static void hear_last_words(struct worker *worker, uint32_t rank)
{
    int left = 0;
    if (worker->output < 0)
        return;
    ioctl(worker->output, FIONREAD, &left);
    for (size_t n = 1; left > 0 && n > 0; left -= (int)n)
        n = listen_to(worker, rank, (size_t)left);
    stop_listening(worker, rank);
}

/* Lets go of the workers on hosts. That ends them as SIGTERM does; a signal would end only the remote shells. Returns
 * false if there are none to let go of. */
static bool let_go(const struct launch *launch)
{
    bool any = false;
    for (uint32_t r = 0; launch->hosts.n && r < launch->n; r++) {
        struct worker *worker = &launch->workers[r];
        any |= worker->input >= 0;
        close_end(worker->input);
        worker->input = -1;
    }
    return any;
}

/* Asks all workers to end. If they were asked before, their remote shells are ended. A worker that is stopped goes on,
 * because it could not hear. */
static void ask_to_end(const struct launch *launch, int number)
{
    if (!let_go(launch))
        signal_all(launch, launch->hosts.n ? SIGTERM : number);
    signal_all(launch, SIGCONT);
}

static uint32_t count_living(const struct launch *launch)
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < launch->n; r++)
        n += launch->workers[r].pid > 0;
    return n;
}

/* Notes which workers have ended or were stopped. *failure becomes this command's own status, by the first that failed.
 * told: this command has sent them a signal. */
static void reap(struct launch *launch, bool told, int *failure)
{
    for (uint32_t r = 0; r < launch->n; r++) {
        struct worker *worker = &launch->workers[r];
        int how;
        if (worker->pid <= 0 || waitpid(worker->pid, &how, WNOHANG | WUNTRACED) != worker->pid)
            continue;
        if (WIFSTOPPED(how)) {
            tool_note("rank %u is stopped by signal %d (%s)", r, WSTOPSIG(how), strsignal(WSTOPSIG(how)));
            continue;
        }
        worker->pid = 0;
        hear_last_words(worker, r);
        if (WIFSIGNALED(how) && told)
            tool_note("rank %u had not ended by itself, and was ended", r);
        else if (WIFSIGNALED(how))
            tool_note("rank %u was ended by signal %d (%s)", r, WTERMSIG(how), strsignal(WTERMSIG(how)));
        int status = WIFEXITED(how) ? WEXITSTATUS(how) : TOOL_FAILED;
        if (status == SHELL_FAILED && launch->hosts.n)
            tool_note("rank %u: there was no connection to %s, it broke, or the worker was killed there", r,
                      tool_host_of(&launch->hosts, r)->login);
        else if (status > TOOL_WRONG_USE) /* the tool ends with none of these: a shell does, and may say nothing */
            tool_note("rank %u ended with status %d: the program was not found (127), was no program (126), or was "
                      "ended by a signal (128 and its number)",
                      r, status);
        if (status != TOOL_DONE && *failure == TOOL_DONE)
            *failure = status == TOOL_WRONG_USE ? TOOL_WRONG_USE : TOOL_FAILED;
    }
}

static int wait_for_all(struct launch *launch, int failure)
{
    struct pollfd *polls = calloc(launch->n, sizeof *polls);
    double failed_at = 0, asked_at = 0;
    int told = 0; /* the last signal that the other workers got after a failure */
    while (polls && count_living(launch) > 0) {
        for (uint32_t r = 0; r < launch->n; r++)
            polls[r] = (struct pollfd){.fd = launch->workers[r].output, .events = POLLIN};
        poll(polls, launch->n, 100);
        for (uint32_t r = 0; r < launch->n; r++)
            if (launch->workers[r].output >= 0 && polls[r].revents)
                listen_to(&launch->workers[r], r, SIZE_MAX);
        if (interrupt_wanted) { /* workers that cannot hear it must not keep this command waiting */
            double asked_before = asked_at;
            asked_at = gw_clock_seconds();
            /* Signals that follow within a second are the same wish (cmd_train.c). */
            if (!launch->hosts.n || asked_at > asked_before + 1)
                ask_to_end(launch, interrupt_wanted);
            interrupt_wanted = 0;
            failed_at = failed_at > 0 ? failed_at : asked_at + STOP_SECONDS;
        }
        reap(launch, told != 0, &failure);
        double now = gw_clock_seconds();
        if (failure != TOOL_DONE && failed_at <= 0)
            failed_at = now;
        /* The others have said by now what a worker that is stopped has done to them. It goes on, so that it can end.
         */
        if (failed_at > 0 && now > failed_at + WAKE_SECONDS)
            signal_all(launch, SIGCONT);
        /* The links have told the other workers, and they say what they know. The signals are for those that cannot. */
        if (failed_at > 0 && told == 0 && now > failed_at + GRACE_SECONDS)
            ask_to_end(launch, told = SIGTERM);
        if (told == SIGTERM && now > failed_at + GRACE_SECONDS + TERM_SECONDS)
            signal_all(launch, told = SIGKILL);
        if (told == SIGKILL && now > failed_at + GRACE_SECONDS + TERM_SECONDS + LOST_SECONDS) {
            failure = tool_fail("%u of the workers cannot be killed; they hang in the system", count_living(launch));
            break;
        }
    }
    free(polls);
    return failure;
}

static int run(struct launch *launch)
{
    launch->workers = calloc(launch->n, sizeof *launch->workers);
    if (!launch->workers)
        return tool_fail("out of memory");
    launched = launch;
    tool_catch_stops(on_interrupt, 0);
    int status = TOOL_DONE;
    for (uint32_t r = 0; r < launch->n; r++)
        launch->workers[r].output = launch->workers[r].input = -1;
    for (uint32_t r = 0; r < launch->n && status == TOOL_DONE; r++)
        status = start(launch, r);
    if (status != TOOL_DONE)
        ask_to_end(launch, SIGTERM);
    return wait_for_all(launch, status);
}

/* ---- the command --------------------------------------------------------------------------------------- */

/* The value of an option, from a word of the command line or the word after it. NULL: the word is something else. */
static const char *option_value(const char *option, const char *word, const char *next)
{
    size_t n = strlen(option);
    if (strncmp(word, option, n) != 0 || (word[n] && word[n] != '='))
        return NULL;
    return word[n] ? word + n + 1 : next;
}

/* Every worker is told its rank and where all meet. So the launcher can start members of the links that take both. */
enum { TOLD = GW_LINK_RANK | GW_LINK_RENDEZVOUS };

static bool can_start(const struct gw_link_scheme *scheme)
{
    return scheme && (scheme->takes & TOLD) == TOLD;
}

/* Makes the words of the workers' command line: the program and what was given. If no link was given, it adds --link
 * with the first link that can be started. */
static int command_of(struct launch *launch, int n_words, char **words)
{
    static char option[100];
    char links[100];
    /* This command itself says these to its workers. */
    static const char *const own[] = {"--workers", "--rank", "--rendezvous"};
    if (strcmp(words[0], "train") != 0 && strcmp(words[0], "probe") != 0 &&
        !(strcmp(words[0], "bench") == 0 && n_words > 1 && strcmp(words[1], "exchange") == 0))
        return tool_wrong_use("'%s' has no workers; what can be launched is train, probe and bench exchange%s",
                              words[0], strcmp(words[0], "gradwire") == 0 ? "; leave gradwire away" : "");
    bool says_link = false;
    const int n_names = strcmp(words[0], "bench") == 0 ? 2 : 1;
    launch->words = calloc((size_t)n_words + 3, sizeof *launch->words);
    if (!launch->words)
        return tool_fail("out of memory");
    launch->words[launch->n_words++] = launch->program;
    for (int i = 0; i < n_words; i++) {
        const char *value = option_value("--link", words[i], i + 1 < n_words ? words[i + 1] : "");
        if (value && !*value)
            return tool_wrong_use("--link needs a value");
        if (value && !can_start(gw_members_find(value)))
            return tool_wrong_use("launch starts workers that meet over %s, and --link is %s",
                                  gw_members_list(TOLD, false, " or ", links, sizeof links), value);
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            if (option_value(own[k], words[i], ""))
                return tool_wrong_use("launch tells every worker its %s, and the command has one too", own[k]);
        says_link |= value != NULL;
        launch->words[launch->n_words++] = words[i];
    }
    if (!says_link) {
        size_t first = 0;
        while (!can_start(gw_members_nth(first)))
            first++;
        snprintf(option, sizeof option, "--link=%s", gw_members_nth(first)->name);
        /* behind the command's names, because it would be no option behind a -- of the user's */
        char **behind = launch->words + 1 + n_names;
        memmove(behind + 1, behind, (size_t)(n_words - n_names) * sizeof *behind);
        *behind = option;
        launch->n_words++;
    }
    return TOOL_DONE;
}

/* Splits the command that starts a command line on a host. */
static int split_ssh(struct launch *launch)
{
    if (strlen(launch->ssh) >= sizeof launch->ssh_text)
        return tool_wrong_use("--ssh has more than %zu bytes", sizeof launch->ssh_text - 1);
    strcpy(launch->ssh_text, launch->ssh);
    for (char *word = strtok(launch->ssh_text, " "); word; word = strtok(NULL, " ")) {
        if (launch->n_ssh_words == MAX_SSH_WORDS)
            return tool_wrong_use("--ssh has more than %d words", MAX_SSH_WORDS);
        launch->ssh_words[launch->n_ssh_words++] = word;
    }
    return launch->n_ssh_words ? TOOL_DONE : tool_wrong_use("--ssh names no command");
}

static int prepare(struct launch *launch, uint32_t n, const char *hosts, uint32_t port)
{
    if (hosts)
        TOOL_TRY(tool_read_hosts(hosts, &launch->hosts));
    const uint32_t slots = launch->hosts.slots;
    launch->n = n ? n : slots;
    if (launch->n == 0)
        return tool_wrong_use("how many workers? -n N says it, or --hosts FILE");
    if (hosts && launch->n > slots)
        return tool_wrong_use("-n is %u, and %s has room for %u workers; a line \"HOST 4\" has room for 4", launch->n,
                              hosts, slots);
    snprintf(launch->address, sizeof launch->address, "%s", hosts ? launch->hosts.items[0].name : "127.0.0.1");
    snprintf(launch->port, sizeof launch->port, "%u", port ? port : 29500);
    if (!hosts && !port)
        TOOL_TRY(hold_port(launch->port, sizeof launch->port));
    ssize_t n_program = readlink("/proc/self/exe", launch->program, sizeof launch->program - 1);
    if (n_program < 0 || !getcwd(launch->folder, sizeof launch->folder))
        return tool_fail("this program's own path is not known: %s", strerror(errno));
    launch->program[n_program] = 0;
    return TOOL_DONE;
}

int gw_cmd_launch(int argc, char **argv)
{
    struct launch launch = {.ssh = "ssh -o BatchMode=yes"};
    const char *hosts = NULL;
    uint32_t n = 0, port = 0;
    const tool_option options[] = {
        {"-n", "N", "how many workers to start (default: as many as the hosts have room for)", TOOL_U32, &n, 1, 1024},
        {"--hosts", "FILE",
         "machines, a line \"HOST [workers]\" each; rank 0 is on the first (default: all workers are on this machine)",
         TOOL_TEXT, &hosts},
        {"--port", "P", "where rank 0 listens (default 29500; without hosts a free port)", TOOL_U32, &port, 1, 65535},
        {"--ssh", "COMMAND", "what starts a command line on a host: COMMAND HOST LINE (default: ssh -o BatchMode=yes)",
         TOOL_TEXT, &launch.ssh},
    };
    const tool_usage usage = {
        .synopsis = "launch -n N [--hosts FILE] -- COMMAND [options]",
        .about = "Starts the workers of a tcp run and sees them to their end. Each gets its rank, their number and the "
                 "place where they meet (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT). If COMMAND names no link, launch "
                 "adds --link tcp. Rank 0 prints as it is; lines of the others begin with their rank, and one of more "
                 "than 2,000 bytes becomes several. If one worker fails, the others end too.\nOn other machines the "
                 "program must be at the same path, and starts in the same folder. Training across machines without "
                 "--keys needs --insecure. Workers there end if this command does.",
        .example = "gradwire launch -n 4 -- train --net lenet --data digits --codec ternary --epochs 1",
        TOOL_OPTIONS(options),
        .unknown_hint = "put -- before the workers' command: gradwire launch -n N -- train ...",
        .min_args = 1,
        .max_args = -1,
        .args = "a command, after --",
    };
    TOOL_TRY(tool_parse(&usage, &argc, argv));
    TOOL_TRY(split_ssh(&launch));
    int status = prepare(&launch, n, hosts, port);
    if (status == TOOL_DONE)
        status = command_of(&launch, argc - 1, argv + 1);
    if (status == TOOL_DONE)
        status = run(&launch);
    free(launch.workers);
    free(launch.words);
    free(launch.hosts.items);
    return status;
}
