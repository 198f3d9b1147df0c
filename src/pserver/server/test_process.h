/* Runs a server in a process of its own, for tests that stop it, or measure it from outside. It ends with its test. */
#ifndef GW_PSERVER_SERVER_TEST_PROCESS_H
#define GW_PSERVER_SERVER_TEST_PROCESS_H

#include "base/child.h"
#include "pserver/server/test_server.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

struct process {
    pid_t id;
    int end; /* the server ends when this is closed */
    char address[64];
};

static inline void process_run(const gw_ps_server_options *chosen, unsigned most_files, int end, int address)
{
    const struct rlimit limit = {most_files, most_files};
    gw_ps_server_options options = *chosen;
    gw_ps_server *server;
    pthread_t thread;
    void *status;
    char byte;
    options.struct_bytes = sizeof options;
    options.listen = "127.0.0.1:0";
    if ((most_files && setrlimit(RLIMIT_NOFILE, &limit) != 0) || gw_ps_server_create(NULL, &options, &server) < 0 ||
        pthread_create(&thread, NULL, test_server_run, server) != 0)
        _exit(2);
    const char *place = gw_ps_server_address(server);
    if (write(address, place, strlen(place) + 1) < 0)
        _exit(3);
    while (read(end, &byte, 1) < 0)
        ;
    gw_ps_server_stop(server);
    pthread_join(thread, &status);
    gw_ps_server_destroy(server);
    _exit((intptr_t)status == GW_OK ? 0 : 4);
}

/* most_files: the descriptors that it may have. 0: as this process. */
static inline void process_begin(struct process *process, const gw_ps_server_options *options, unsigned most_files)
{
    int end[2], address[2];
    CHECK(pipe2(end, O_CLOEXEC) == 0 && pipe2(address, O_CLOEXEC) == 0, "no pipes");
    fflush(NULL);
    const pid_t parent = getpid();
    process->id = fork();
    CHECK(process->id >= 0, "no process");
    if (process->id == 0) {
        gw_child_end_with(parent, SIGKILL); /* a process that is stopped does not see the end of `end` */
        close(end[1]);
        process_run(options, most_files, end[0], address[1]);
    }
    close(end[0]);
    close(address[1]);
    CHECK(read(address[0], process->address, sizeof process->address) > 0, "no server");
    close(address[0]);
    process->end = end[1];
}

/* Stops it. Its threads stand still when the call returns: without waitpid they go on for a while on a busy machine. */
static inline void process_stop(const struct process *process)
{
    int how;
    kill(process->id, SIGSTOP);
    CHECK(waitpid(process->id, &how, WUNTRACED) == process->id && WIFSTOPPED(how), "the server does not stop");
}

static inline void process_end(const struct process *process)
{
    int how;
    close(process->end);
    CHECK(waitpid(process->id, &how, 0) == process->id && WIFEXITED(how) && WEXITSTATUS(how) == 0,
          "the server ended with %d", how);
}

#endif
