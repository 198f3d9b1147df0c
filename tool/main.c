/* The gradwire tool: finds the command and runs it. Each command is one file, cmd_NAME.c. */
#include "base/cpu.h"
#include "base/nearest.h"
#include "launcher.h"
#include "members/members.h"
#include "tool.h"
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#ifdef GW_HAVE_TRAIN
#include <dnnl.h>
#endif
#ifdef GW_HAVE_SQLITE
#include <sqlite3.h>
#endif

typedef struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} command;

static const command commands[] = {
#ifdef GW_HAVE_TRAIN
    {"train", gw_cmd_train, "train a network on several workers with coded gradients"},
    {"eval", gw_cmd_eval, "tell the accuracy of a finished run"},
    {"export", gw_cmd_export, "write a finished run's parameters as .npy files"},
    {"report", gw_cmd_report, "write one page about runs: accuracy, bytes, times, histograms"},
    {"probe", gw_cmd_probe, "measure this machine and link: what plan, advise and replays start from"},
#endif
    {"codecs", gw_cmd_codecs, "list the codecs, their options and defaults, and the kernels that run here"},
    {"encode", gw_cmd_encode, "turn a tensor into a frame"},
    {"decode", gw_cmd_decode, "turn a frame into a tensor"},
    {"scaler", gw_cmd_scaler, "find the scaler that several workers share"},
    {"reduce", gw_cmd_reduce, "make one frame of the average from the frames of workers"},
    {"inspect", gw_cmd_inspect, "show what a frame holds"},
    {"launch", gw_cmd_launch, "start the workers of a tcp run, on one machine or several"},
    {"server", gw_cmd_server, "run a parameter server: it keeps tensors by key; workers push and pull them"},
    {"keys", gw_cmd_keys, "make keys for runs across machines"},
    {"plan", gw_cmd_plan, "find which layers should travel together, by a measured profile"},
    {"advise", gw_cmd_advise, "say which codec and plan make the shortest step, by a measured profile"},
    {"predict", gw_cmd_predict, "tell how fast a cluster would train, with and without a codec"},
    {"bench", gw_cmd_bench, "measure speed beside memcpy, and wire size beside the entropy"},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_links(void)
{
    const char *before = "links     ";
    for (size_t i = 0; i < gw_link_n_schemes; i++) {
        const struct gw_link_scheme *s = &gw_link_schemes[i];
        char library[200];
        if (!s->version(library, sizeof library))
            continue;
        printf(library[0] ? "%s%s (%s)" : "%s%s", before, s->name, library);
        before = ", ";
    }
    printf("\n");
}

static int print_version(void)
{
    printf("gradwire %s\n", gw_version());
    printf("compiler  %s %s\n",
#ifdef __clang__
           "clang", __clang_version__
#else
           "gcc", __VERSION__
#endif
    );
    printf("kernels   %s\n", gw_cpu_level());
    print_links();
#ifdef GW_HAVE_TRAIN
    const dnnl_version_t *dnnl = dnnl_version();
    printf("oneDNN    %d.%d.%d\n", dnnl->major, dnnl->minor, dnnl->patch);
#else
    printf("oneDNN    none: built without the trainer\n");
#endif
#ifdef GW_HAVE_SQLITE
    printf("SQLite    %s\n", sqlite3_libversion());
#else
    printf("SQLite    none: built without it, so a server keeps nothing\n");
#endif
    return tool_finish_output();
}

static int print_help(void)
{
    printf("Usage: gradwire COMMAND [options]\n\n"
           "Makes the gradients of distributed training small on the wire.\n\nCommands:\n");
    for (int i = 0; i < N_COMMANDS; i++)
        printf("  %-9s %s\n", commands[i].name, commands[i].summary);
    printf("  %-9s this list, or the help of one command\n\n"
           "gradwire COMMAND --help   options and an example\n"
           "gradwire --version        version, compiler, kernels, libraries\n\n"
           "Exit status: 0 done, 1 failed, 2 wrong use.\n",
           "help");
    return tool_finish_output();
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS + 1];
    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    names[N_COMMANDS] = "help";
    const char *nearest = gw_nearest(name, names, N_COMMANDS + 1, NULL);
    if (nearest)
        return tool_wrong_use("there is no command '%s'; did you mean '%s'?", name, nearest);
    return tool_wrong_use("there is no command '%s'", name);
}

/* Every step takes and frees messages of megabytes. If memory goes back to the system each time, the system clears it
 * again for the next message. So the program keeps it. */
static void keep_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 32 << 20);
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

/* Every client of a server, and every member of a run, takes descriptors. Shells commonly allow 1,024 at first, and a
 * program may ask for more. */
static void allow_many_files(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* If the caller has closed a stream, a file must not get its number: what is printed would go into the file. */
static void fill_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0)
            _exit(TOOL_FAILED);
}

int main(int argc, char **argv)
{
    fill_streams();
    signal(SIGXFSZ, SIG_IGN); /* then a file that grows beyond ulimit -f is an error of the write */
    keep_memory();
    allow_many_files();
    gw_exit_with_launcher();
    tool_json_begin();
    if (argc < 2)
        return tool_wrong_use("a command is missing");
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0)
        return print_version();
    bool help = strcmp(name, "help") == 0;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 ||
        (help && (argc == 2 || strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "help") == 0)))
        return print_help();
    if (help && argc > 3)
        return tool_wrong_use("'%s' is one word too many: help takes the name of one command", argv[3]);
    if (help)
        name = argv[2];
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(name, commands[i].name) != 0)
            continue;
        tool_set_command(commands[i].name);
        char *for_help[] = {argv[2], (char[]){"--help"}, NULL};
        const int status = help ? commands[i].run(2, for_help) : commands[i].run(argc - 1, argv + 1);
        return status == TOOL_HELPED ? TOOL_DONE : status;
    }
    return unknown_command(name);
}
