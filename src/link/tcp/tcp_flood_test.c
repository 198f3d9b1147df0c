/* Tests newcomers that send without end, or nothing at all, while members of a tcp link meet: memory stays limited, and
 * the members meet. So they do if a member has no free descriptor for a while. Each member is a process of its own, and
 * the test measures its memory from outside. */
#include "flood.h"
#include "link/tcp/test_world.h"

enum { MEMBERS = 3, MOST_MIB = 8, FEW_FILES = 128, POURERS = 8 };

struct process {
    pid_t id;
    int go; /* it comes when a byte can be read, and ends when this is closed */
};

/* Takes all free descriptors before the last member comes, and gives them back after a while. */
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

/* Is asked in the meeting whether it is to stop, and tells where this process listens. */
static bool tell_place(void *go)
{
    static bool told;
    struct gw_net_address own;
    for (int fd = 3; fd < FEW_FILES && !told; fd++) {
        int listens = 0;
        socklen_t n_bytes = sizeof listens;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n_bytes) == 0 && listens &&
            gw_net_address_of_socket(fd, false, &own) == GW_OK && own.socket.any.sa_family == AF_INET)
            told = send(*(int *)go, own.place, sizeof own.place, MSG_NOSIGNAL) == sizeof own.place;
    }
    return false;
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
    member->options.stop = tell_place;
    member->options.stop_user = &go;
    world_come(member);
    if (member->status < 0) {
        fprintf(stderr, "rank %u: %s\n", member->options.rank, member->sentence);
        _exit(4);
    }
    /* All have come: each hears from each. */
    for (uint32_t to = 0; to < MEMBERS; to++)
        link_test_send(member->context, &member->links[0], to, 100, member->options.rank, to);
    for (uint32_t i = 0; i < MEMBERS;) {
        gw_message message;
        const gw_status status = link_test_recv(&member->links[0], LINK_LONG_MS, &message);
        if (status == GW_ERR_PEER) /* one that has heard from all has gone */
            continue;
        if (status != GW_OK)
            _exit(5);
        gw_message_free(message.bytes);
        i++;
    }
    while (read(go, &byte, 1) < 0)
        ;
    if (hogs)
        pthread_join(thread, NULL);
    gw_link_destroy(&member->links[0]);
    gw_context_destroy(member->context);
    _exit(0);
}

static void go(const struct process *process)
{
    assert_int_equal(write(process->go, "", 1), 1);
}

/* The first two are there and wait for the third, which comes when it is told. */
static void begin(struct process *processes, unsigned most_files, uint32_t hog_rank)
{
    world_prepare(NULL, MEMBERS, 1);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        processes[r].id = world_fork();
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
    for (uint32_t r = 0; r < MEMBERS; r++)
        world_expect_end(processes[r].id, 0);
}

static void read_place(const struct process *process, char at[GW_NET_PLACE_BYTES])
{
    assert_int_equal(read(process->go, at, GW_NET_PLACE_BYTES), GW_NET_PLACE_BYTES);
}

/* What a newcomer says without end. */
enum words { LONG_MESSAGE, SMALL_MESSAGES, HUGE_MESSAGE, JOIN_OF_ANOTHER_JOB, N_WORDS };

static size_t write_words(enum words words, uint8_t out[GW_NET_HEAD + GW_TCP_JOIN_BYTES])
{
    static const uint64_t body_bytes[N_WORDS] = {4000, 0, (uint64_t)1 << 60, GW_TCP_JOIN_BYTES};
    const struct gw_tcp_join join = {.version = GW_TCP_VERSION, .rank = 1, .size = MEMBERS + 1, .n_links = 1};
    peer_head(out, GW_TCP_JOIN, 0, body_bytes[words]);
    world_write_join(out + GW_NET_HEAD, join);
    return GW_NET_HEAD + (words == JOIN_OF_ANOTHER_JOB ? GW_TCP_JOIN_BYTES : 0);
}

/* Returns true if the other side ends the connection, and false if it reads no more, or reads on for a minute. */
static bool pour(const char *there, enum words words)
{
    uint8_t bytes[64 << 10];
    const time_t end = time(NULL) + PEER_SECONDS;
    const size_t n_words = write_words(words, bytes);
    ssize_t n = 1;
    for (size_t i = n_words; i < sizeof bytes; i++)
        bytes[i] = bytes[i - n_words];
    const int fd = peer_try(there, 1);
    while (fd >= 0 && n > 0 && time(NULL) < end)
        n = send(fd, bytes, sizeof bytes - sizeof bytes % n_words, MSG_NOSIGNAL);
    const bool ended = fd < 0 || (n < 0 && errno != EAGAIN);
    close(fd);
    return ended;
}

static atomic_bool pouring;

static void *pour_on(void *there)
{
    for (int i = 0; atomic_load(&pouring); i++)
        pour(there, (enum words)(i % N_WORDS));
    return NULL;
}

/* Newcomers at each port send without end, and one sends a byte a second. Others still pour as the last member comes.
 */
TEST(bytes_without_end)
{
    struct process processes[MEMBERS];
    begin(processes, 0, MEMBERS);
    pthread_t threads[POURERS];
    char places[2][GW_NET_PLACE_BYTES];
    int slow[2];
    for (int i = 0; i < 2; i++) {
        read_place(&processes[i], places[i]);
        slow[i] = peer_connect(places[i]);
        uint8_t head[GW_NET_HEAD + GW_TCP_JOIN_BYTES];
        write_words(LONG_MESSAGE, head);
        assert_int_equal(send(slow[i], head, GW_NET_HEAD, MSG_NOSIGNAL), GW_NET_HEAD);
        const double before = flood_memory(processes[i].id, "VmHWM:");
        for (int words = 0; words < N_WORDS; words++) {
            const bool ended = pour(places[i], (enum words)words);
            const double grew = flood_memory(processes[i].id, "VmHWM:") - before;
            if (!ended || (FLOOD_MEMORY_IS_TOLD && grew > MOST_MIB))
                fail_msg("rank %d, words %d: %s, and grew by %.0f MiB", i, words, ended ? "ended" : "went on", grew);
        }
    }
    for (int s = 0; flood_open(slow, 2) > 0; s++) {
        assert_true(s < 30);
        for (int i = 0; i < 2; i++)
            send(slow[i], "", 1, MSG_NOSIGNAL);
        link_test_pause(1000);
    }
    atomic_store(&pouring, true);
    for (int i = 0; i < POURERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, pour_on, places[i % 2]), 0);
    go(&processes[2]);
    end(processes);
    atomic_store(&pouring, false);
    for (int i = 0; i < POURERS; i++)
        pthread_join(threads[i], NULL);
    close(slow[0]);
    close(slow[1]);
}

/* Before the last member comes, each port gets more connections than a member has descriptors. They send nothing. They
 * stay until the members close them. */
TEST(silent_connections)
{
    enum { N = 400 };
    struct process processes[MEMBERS];
    int fds[2 * N];
    world_raise_file_limit();
    begin(processes, FEW_FILES, MEMBERS);
    char places[2][GW_NET_PLACE_BYTES];
    for (int i = 0; i < 2; i++)
        read_place(&processes[i], places[i]);
    for (int i = 0; i < 2 * N; i++)
        fds[i] = world_dial(places[i % 2]);
    go(&processes[2]);
    end(processes);
    for (int i = 0; i < 2 * N; i++)
        close(fds[i]);
}

/* A member has no descriptor left when it is to connect to the others. */
TEST(no_descriptor_for_a_while)
{
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct process processes[MEMBERS];
        begin(processes, FEW_FILES, rank);
        link_test_pause(1000);
        go(&processes[2]);
        end(processes);
    }
}

RUN_TESTS("tcp flood", NULL, NULL)
