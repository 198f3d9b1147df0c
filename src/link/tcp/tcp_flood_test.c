/* Tests strangers that send without end, or nothing at all, while members of a tcp link meet: memory stays limited, and
 * the members meet. So they do if a member has no free descriptor for a while. Each member is a process of its own, and
 * the test measures its memory from outside. */
#define _GNU_SOURCE /* pipe2 */
#include "flood.h"
#include "link/tcp/test_world.h"

#include <fcntl.h>
#include <sys/wait.h>

enum { MEMBERS = 3, MOST_MIB = 96, PARTS_OF_A_BYTE = 6 << 20, LARGE_PARTS = 400, FEW_FILES = 128 };

struct process {
    pid_t id;
    int go; /* it comes when a byte can be read, and ends when this is closed */
};

/* Takes all descriptors that are free, before the last member comes, and gives them back after a while. */
static void *hog(void *argument)
{
    int taken[FEW_FILES], n = 0;
    (void)argument;
    link_test_pause(300);
    while (n < FEW_FILES && (taken[n] = dup(STDERR_FILENO)) >= 0)
        n++;
    link_test_pause(2500);
    while (n > 0)
        close(taken[--n]);
    return NULL;
}

static void be_a_member(struct world_member *member, unsigned most_files, bool hogs, int go)
{
    const struct rlimit limit = {most_files, most_files};
    pthread_t thread;
    char byte;
    if (most_files && setrlimit(RLIMIT_NOFILE, &limit) != 0)
        _exit(2);
    if (read(go, &byte, 1) != 1)
        _exit(3);
    if (hogs && pthread_create(&thread, NULL, hog, NULL) != 0)
        _exit(6);
    world_come(member);
    if (member->status < 0) {
        fprintf(stderr, "rank %u: %s\n", member->options.rank, member->sentence);
        _exit(4);
    }
    /* All have come: each hears from each. */
    for (uint32_t to = 0; to < MEMBERS; to++)
        link_test_send(member->context, &member->links[0], to, 100, member->options.rank, to);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        gw_message message;
        if (member->links[0].ops->recv(member->links[0].self, LINK_LONG_MS, &message) != GW_OK)
            _exit(5);
        gw_message_free(message.bytes);
    }
    while (read(go, &byte, 1) < 0)
        ;
    if (hogs)
        pthread_join(thread, NULL);
    member->links[0].ops->destroy(member->links[0].self);
    gw_context_destroy(member->context);
    _exit(0);
}

static void go(const struct process *process)
{
    assert_int_equal(write(process->go, "", 1), 1);
}

/* The first two are there and wait for the third, which comes when it is told. */
static void begin(struct process *processes, unsigned most_files, uint32_t hog_rank, char *place)
{
    struct world_member members[MEMBERS];
    world_prepare(NULL, MEMBERS, 1, members, place);
    fflush(NULL);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        int ends[2];
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        processes[r].id = fork();
        assert_true(processes[r].id >= 0);
        if (processes[r].id == 0) {
            for (uint32_t before = 0; before < r; before++)
                close(processes[before].go);
            close(ends[1]);
            members[r].context = link_test_context();
            be_a_member(&members[r], most_files, r == hog_rank, ends[0]);
        }
        close(ends[0]);
        processes[r].go = ends[1];
    }
    go(&processes[0]);
    go(&processes[1]);
}

static void end(const struct process *processes)
{
    for (uint32_t r = 0; r < MEMBERS; r++)
        close(processes[r].go);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        int how;
        assert_int_equal(waitpid(processes[r].id, &how, 0), processes[r].id);
        if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
            fail_msg("rank %u ended with %d", r, how);
    }
}

static bool has_socket(pid_t process, unsigned long inode)
{
    char path[64], to[64], name[64];
    snprintf(name, sizeof name, "socket:[%lu]", inode);
    for (int fd = 0; fd < 256; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process, fd);
        const ssize_t n = readlink(path, to, sizeof to - 1);
        if (n > 0 && (size_t)n == strlen(name) && memcmp(to, name, (size_t)n) == 0)
            return true;
    }
    return false;
}

/* Waits until the process listens at a port other than `except`, and returns that port. */
static uint16_t port_of(pid_t process, uint16_t except)
{
    for (int i = 0; i < 3000; i++) {
        char line[512];
        unsigned port, state;
        unsigned long inode;
        FILE *file = fopen("/proc/net/tcp", "re");
        assert_non_null(file);
        uint16_t found = 0;
        while (!found && fgets(line, sizeof line, file))
            if (sscanf(line, " %*d: %*8[0-9A-F]:%x %*8[0-9A-F]:%*x %x %*s %*s %*s %*s %*s %lu", &port, &state,
                       &inode) == 3 &&
                state == 0x0A && port != except && has_socket(process, inode))
                found = (uint16_t)port;
        fclose(file);
        if (found)
            return found;
        link_test_pause(10);
    }
    fail_msg("process %d listens nowhere", (int)process);
    return 0;
}

static void parts_without_end(void **state)
{
    (void)state;
    struct process processes[MEMBERS];
    char place[32], endpoint[64];
    begin(processes, 0, MEMBERS, place);
    const uint16_t rendezvous = (uint16_t)atoi(strrchr(place, ':') + 1);
    uint16_t ports[3];
    pid_t owners[3] = {processes[0].id, processes[0].id, processes[1].id};
    double before[3];
    ports[1] = port_of(processes[0].id, rendezvous);
    ports[2] = port_of(processes[1].id, rendezvous);
    ports[0] = rendezvous;
    for (int fd = -1; fd < 0;) { /* rank 0 listens there, too */
        fd = flood_connect(rendezvous);
        if (fd >= 0)
            close(fd);
        else
            link_test_pause(10);
    }
    void *zmq = zmq_ctx_new();
    for (int i = 0; i < 3; i++)
        before[i] = flood_memory(owners[i], "VmHWM:");
    for (int i = 0; i < 3; i++)
        for (int small = 0; small < 2; small++) {
            snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%u", ports[i]);
            void *socket = flood_socket(zmq, endpoint, NULL, NULL, NULL);
            assert_non_null(socket);
            const bool ended = flood_parts(zmq, socket, small ? 1 : 1 << 20, small ? PARTS_OF_A_BYTE : LARGE_PARTS);
            const double grew = flood_memory(owners[i], "VmHWM:") - before[i];
            zmq_close(socket);
            if (getenv("GW_TEST_LOG"))
                fprintf(stderr, "port %d, %s parts: grew by %.1f MiB\n", i, small ? "small" : "large", grew);
            if (!ended || (FLOOD_MEMORY_IS_TOLD && grew > MOST_MIB))
                fail_msg("port %d, %s parts: %s, and grew by %.0f MiB", i, small ? "small" : "large",
                         ended ? "ended" : "went on", grew);
        }
    zmq_ctx_term(zmq);
    go(&processes[2]);
    end(processes);
}

/* Before the last member comes, each port gets more connections than a member has descriptors. They send nothing. They
 * stay until the members close them. */
static void silent_connections(void **state)
{
    (void)state;
    enum { N = 400 };
    struct process processes[MEMBERS];
    char place[32];
    int fds[3 * N];
    world_raise_file_limit();
    begin(processes, FEW_FILES, MEMBERS, place);
    const uint16_t rendezvous = (uint16_t)atoi(strrchr(place, ':') + 1);
    const uint16_t ports[3] = {rendezvous, port_of(processes[0].id, rendezvous), port_of(processes[1].id, rendezvous)};
    for (int i = 0; i < 3 * N; i++) {
        for (int t = 0; t < 3000 && (fds[i] = flood_connect(ports[i % 3])) < 0; t++)
            link_test_pause(10);
        if (fds[i] < 0)
            fail_msg("connection %d, to port %u (%d of rendezvous, rank 0, rank 1): %s", i, ports[i % 3], i % 3,
                     strerror(errno));
    }
    go(&processes[2]);
    end(processes);
    for (int i = 0; i < 3 * N; i++)
        close(fds[i]);
}

/* A member has no descriptor left when it is to connect to the others. ZeroMQ drops such an attempt without a word. */
static void no_descriptor_for_a_while(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct process processes[MEMBERS];
        char place[32];
        begin(processes, FEW_FILES, rank, place);
        link_test_pause(1000);
        go(&processes[2]);
        end(processes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_without_end), cmocka_unit_test(silent_connections),
                                       cmocka_unit_test(no_descriptor_for_a_while)};
    return cmocka_run_group_tests_name("tcp flood", tests, NULL, NULL);
}
