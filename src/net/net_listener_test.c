/* Tests the listener as strangers meet it: what comes first, how many may be there, who makes room for whom, how long
 * they may stay, and what the log says of them. */
#define _GNU_SOURCE /* closefrom */
#include "net/listener.h"
#include "base/clock.h"
#include "net/test_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { MOST = 4, HALF = 2, KIND = 7 };

static struct gw_net_listener listener;
static char place[GW_NET_PLACE_BYTES];
static char lines[8][700];
static unsigned n_lines;

static void keep_line(const char *line, void *user)
{
    (void)user;
    if (n_lines < 8)
        snprintf(lines[n_lines], sizeof lines[0], "%s", line);
    n_lines++;
}

static struct gw_net_log net_log;

static void open_listener(uint32_t spare_files)
{
    const struct gw_net_listener_options options = {.log = &net_log,
                                                    .of = "server",
                                                    .most = MOST,
                                                    .spare_files = spare_files,
                                                    .timeout_ms = 60000,
                                                    .most_header = 16};
    struct gw_net_address address, own;
    const int lowest = dup(STDERR_FILENO);
    close(lowest);
    CHECK(lowest == STDERR_FILENO + 1, "the test before has left descriptor %d open", lowest - 1);
    net_log = (struct gw_net_log)GW_NET_LOG_OF_NEWCOMERS(keep_line, NULL);
    n_lines = 0;
    ok(gw_net_listener_open(&listener, &options));
    ok(gw_net_address_parse("it", "127.0.0.1:0", true, &address));
    ok(gw_net_listen(&listener, &address, &own));
    snprintf(place, sizeof place, "%s", own.place);
}

/* Connects from 127.0.0.host. */
static int come_from(uint8_t host)
{
    const int fd = peer_try(place, host);
    assert_true(fd >= 0);
    return fd;
}

static unsigned n_there(void)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < MOST; i++)
        n += listener.newcomers[i].since != 0;
    return n;
}

/* Lets the listener work until somebody has sent a first message, or so many newcomers are there (then NULL). */
static struct gw_net_newcomer *work_until(unsigned n_wanted, struct gw_net_message *message)
{
    const double end = gw_clock_seconds() + PEER_SECONDS;
    while (gw_clock_seconds() < end) {
        struct gw_net_newcomer *newcomer = gw_net_listener_next(&listener, message);
        if (newcomer || n_there() == n_wanted)
            return newcomer;
        struct pollfd events = {listener.epoll, POLLIN, 0};
        poll(&events, 1, 10);
    }
    fail_msg("what is waited for does not come");
    return NULL;
}

static struct gw_net_newcomer *work_until_a_message(struct gw_net_message *message)
{
    return work_until(MOST + 1, message);
}

/* True if the listener has closed it. */
static bool is_closed(int fd)
{
    char byte;
    const ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

static unsigned n_closed(const int *fds, unsigned n)
{
    unsigned closed = 0;
    for (unsigned i = 0; i < n; i++)
        closed += is_closed(fds[i]);
    return closed;
}

static void close_all(const int *fds, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
}

/* Whoever is let in takes along what came behind the first message, and its slot is free again. */
TEST(let_in)
{
    struct gw_net_connection to = {.fd = -1};
    struct gw_net_message m;
    open_listener(0);
    const int fd = come_from(1);
    assert_true(peer_send(fd, KIND, "head", 4, "first", 5) && peer_send(fd, KIND + 1, NULL, 0, "second", 6));
    struct gw_net_newcomer *newcomer = work_until_a_message(&m);
    assert_true(m.kind == KIND && m.n_header == 4 && m.n_bytes == 5 && memcmp(m.bytes, "first", 5) == 0);
    assert_string_equal(newcomer->c.peer.host, "127.0.0.1");
    gw_net_init(&to, NULL);
    gw_net_let_in(&listener, newcomer, &to);
    assert_true(n_there() == 0 && to.fd >= 0 && to.watched == 0);
    ok(gw_net_next(&to, &m));
    assert_true(m.kind == KIND + 1 && m.n_bytes == 6 && memcmp(m.bytes, "second", 6) == 0);
    gw_net_listener_close(&listener); /* whoever was let in stays */
    assert_false(is_closed(fd));
    gw_net_close(&to);
    assert_true(peer_is_out(fd));
    close(fd);
}

/* Who is refused hears why, then the end. More words of its own change nothing. */
TEST(refused_with_a_message)
{
    struct gw_net_message m;
    struct peer_message heard;
    open_listener(0);
    const int fd = come_from(1);
    assert_true(peer_send(fd, KIND, NULL, 0, "let me in", 9));
    gw_net_refuse(&listener, work_until_a_message(&m), 9, "no", 2, "because", 7);
    for (int i = 0; i < 100; i++)
        send(fd, "and more, which nobody reads as a message", 41, MSG_NOSIGNAL);
    assert_null(work_until(0, &m));
    assert_true(peer_hear(fd, &heard) && heard.kind == 9 && heard.n_header == 2 && heard.n_bytes == 7);
    assert_memory_equal(heard.body, "because", 7);
    assert_true(peer_is_out(fd));
    close(fd);

    const int other = come_from(1); /* it is turned out without a word */
    assert_true(peer_send(other, KIND, NULL, 0, "", 0));
    gw_net_turn_out(work_until_a_message(&m));
    assert_true(n_there() == 0 && peer_is_out(other));
    close(other);
    assert_int_equal(n_lines, 0);
    gw_net_listener_close(&listener);
}

/* One host gets half of the room, rounded up, and pushes out its own. Another one comes in at once, in spite of all
 * that it sends, and stays, though it is older. */
TEST(half_of_the_room)
{
    enum { N = 40 };
    struct gw_net_message m;
    int fds[N];
    open_listener(0);
    const int old = come_from(4);
    assert_null(work_until(1, &m));
    for (unsigned i = 0; i < N; i++)
        fds[i] = come_from(2);
    assert_null(work_until(HALF + 1, &m));
    for (uint32_t i = 0; i < MOST; i++) /* all have had their chance */
        listener.newcomers[i].since -= listener.newcomers[i].since > 0 ? 1 : 0;
    const int late = come_from(2);
    const uint64_t n_pushed_out = listener.n_pushed_out;
    for (const double end = gw_clock_seconds() + PEER_SECONDS; listener.n_pushed_out == n_pushed_out;) {
        assert_true(gw_clock_seconds() < end);
        assert_null(gw_net_listener_next(&listener, &m));
    }
    assert_true(!is_closed(old) && !is_closed(late) && n_there() == HALF + 1);
    const int fd = come_from(3);
    assert_true(peer_send(fd, KIND, NULL, 0, "it is me", 8));
    struct gw_net_newcomer *newcomer = work_until_a_message(&m);
    assert_string_equal(newcomer->c.peer.host, "127.0.0.3");
    CHECK(n_there() == HALF + 2, "%u newcomers", n_there());
    gw_net_turn_out(newcomer);
    close(fd), close(late), close(old);
    close_all(fds, N);
    gw_net_listener_close(&listener);
}

/* If all room is taken, whoever comes next waits until the oldest has had its chance. That one makes room, and no
 * other. */
TEST(the_oldest_makes_room)
{
    enum { OLDEST = 2 };
    const double chance = 0.25;
    struct gw_net_message m;
    int fds[MOST + 1];
    open_listener(0);
    for (uint8_t i = 0; i < MOST; i++)
        fds[i] = come_from((uint8_t)(10 + i));
    assert_null(work_until(MOST, &m));
    const double now = gw_clock_seconds();
    for (uint32_t i = 0; i < MOST; i++) { /* all are young, and one is a little older */
        const uint8_t *address = (const uint8_t *)&listener.newcomers[i].c.peer.socket.v4.sin_addr;
        listener.newcomers[i].since = now - (address[3] == 10 + OLDEST ? chance / 2 : 0);
    }
    fds[MOST] = come_from(20);
    assert_true(peer_send(fds[MOST], KIND, NULL, 0, "", 0));
    struct gw_net_newcomer *newcomer = work_until_a_message(&m);
    assert_string_equal(newcomer->c.peer.host, "127.0.0.20");
    assert_true(gw_clock_seconds() >= now + chance / 2);
    assert_true(is_closed(fds[OLDEST]) && n_closed(fds, MOST + 1) == 1);
    assert_true(listener.n_pushed_out == 1 && n_lines <= 1);
    close_all(fds, MOST + 1);
    gw_net_listener_close(&listener);
}

/* Whoever does not say in time who it is has to go, also if it says something now and then. */
TEST(time_is_up)
{
    struct gw_net_message m;
    int fds[2];
    open_listener(0);
    for (int i = 0; i < 2; i++)
        fds[i] = come_from((uint8_t)(1 + i));
    assert_true(peer_pour(fds[0], "\1", 1));
    while (n_there() < 2)
        assert_null(gw_net_listener_next(&listener, &m));
    for (uint32_t i = 0; i < MOST; i++)
        if (listener.newcomers[i].since != 0)
            listener.newcomers[i].since -= GW_NET_INTRODUCTION_SECONDS;
    assert_null(gw_net_listener_next(&listener, &m));
    assert_true(n_there() == 0 && peer_is_out(fds[0]) && peer_is_out(fds[1]));
    assert_int_equal(n_lines, 1); /* one line for both */
    assert_non_null(strstr(lines[0], "refused n=2 reason=\"too many connections have not said who they are"));
    close_all(fds, 2);
    gw_net_listener_close(&listener);
}

/* What speaks another language is told in the log once, not each time that it comes. */
TEST(other_languages)
{
    static const struct {
        const char *bytes, *answer;
        size_t n_bytes, n_answer;
        uint8_t host;
        unsigned n_lines;
    } cases[] = {{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", 27, 0, 1, 1},
                 {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", 27, 0, 1, 1},
                 {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "", 27, 0, 2, 2},
                 /* A hello of TLS: it hears an alert of TLS. */
                 {"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00 and some more", "\x15\x03\x03\0\x02\x02\x28", 24, 7, 3, 3},
                 /* a message that is longer than a newcomer's may be: 2^32 bytes */
                 {"\0\0\0\0\1\0\0\0\7\0\0\0GWN1", "", 16, 0, 4, 4}};
    struct gw_net_message m;
    open_listener(0);
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t answer[16];
        ssize_t n = 0, got;
        const int fd = come_from(cases[i].host);
        assert_true(peer_pour(fd, cases[i].bytes, cases[i].n_bytes));
        for (struct pollfd heard = {fd, POLLIN, 0}; poll(&heard, 1, 10) == 0;)
            assert_null(gw_net_listener_next(&listener, &m));
        assert_int_equal(n_there(), 0);
        while ((got = recv(fd, answer + n, sizeof answer - (size_t)n, 0)) > 0)
            n += got;
        CHECK(n == (ssize_t)cases[i].n_answer && memcmp(answer, cases[i].answer, (size_t)n) == 0, "case %u: %zd bytes",
              i, n);
        CHECK(n_lines == cases[i].n_lines, "case %u: %u lines", i, n_lines);
        close(fd);
    }
    assert_non_null(strstr(lines[0], "refused address=127.0.0.1 reason=\"it does not speak as this server does"));
    assert_non_null(strstr(lines[1], "refused address=127.0.0.2 "));
    gw_net_listener_close(&listener);
}

/* Connections leave some descriptors to the rest of the program. */
TEST(spare_files)
{
    enum { SPARE = 4, N = 3 * MOST, FAR = 200 };
    struct gw_net_message m;
    struct rlimit before, low;
    int fds[N], files[SPARE];
    open_listener(SPARE);
    for (unsigned i = 0; i < N; i++) { /* this test's own ends do not count: they stand above the limit */
        const int fd = come_from((uint8_t)(1 + i));
        fds[i] = fcntl(fd, F_DUPFD_CLOEXEC, FAR);
        close(fd);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const int lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);
    close(lowest);
    low = (struct rlimit){(rlim_t)lowest + SPARE + 2, before.rlim_max}; /* two may come in */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    assert_null(work_until(2, &m));
    const uint64_t n_pushed_out = listener.n_pushed_out; /* all had come before */
    for (int i = 0; i < SPARE; i++)
        CHECK((files[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0, "file %d: %s", i, strerror(errno));
    close_all(files, SPARE);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(n_pushed_out, N - 2);
    close_all(fds, N);
    gw_net_listener_close(&listener);
}

/* A port that is taken is an error, with errno. The listener goes on where it listens already. */
TEST(addresses)
{
    struct gw_net_address address, own;
    struct gw_net_message m;
    open_listener(0);
    ok(gw_net_address_parse("it", place, false, &address));
    refused(gw_net_listen(&listener, &address, &own), GW_ERR_SYSTEM, "this machine cannot listen at 127.0.0.1:");
    assert_int_equal(errno, EADDRINUSE);
    const int fd = come_from(1);
    assert_true(peer_send(fd, KIND, NULL, 0, "", 0));
    gw_net_turn_out(work_until_a_message(&m));
    close(fd);
    gw_net_listener_close(&listener);
}

static atomic_bool nobody_comes;

/* Connections come and go while the listener works. */
static void *come_and_go(void *nothing)
{
    struct gw_net_connection c = {0};
    struct gw_net_address address;
    struct gw_net_message m;
    ok(gw_net_address_parse("it", place, false, &address));
    while (!atomic_load(&nobody_comes)) {
        gw_net_init(&c, NULL);
        ok(gw_net_dial(&c, &address, NULL, NULL, 60000));
        assert_null(work_until(1, &m));
        gw_net_close(&c);
        assert_null(work_until(0, &m));
    }
    return nothing;
}

/* At whatever moment a process forks, its child has none of the connections. */
TEST(forks)
{
    enum { N_FORKS = 300, MOST_FILES = 64 };
    pthread_t thread;
    unsigned n_with = 0;
    open_listener(0);
    atomic_store(&nobody_comes, false);
    assert_int_equal(pthread_create(&thread, NULL, come_and_go, NULL), 0);
    for (int i = 0; i < N_FORKS; i++) {
        const pid_t child = fork();
        int status = 0;
        if (child == 0) {
            struct stat about;
            int n = 0;
            for (int fd = STDERR_FILENO + 1; fd < MOST_FILES; fd++)
                n += fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode);
            _exit(n > 0);
        }
        assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
        n_with += WEXITSTATUS(status) != 0;
    }
    atomic_store(&nobody_comes, true);
    pthread_join(thread, NULL);
    gw_net_listener_close(&listener);
    CHECK(n_with == 0, "%u of %d children have a connection", n_with, N_FORKS);
}

int main(void)
{
    closefrom(STDERR_FILENO + 1); /* so the tests know which descriptors are free */
    return run_noted_tests("net listener", NULL, NULL);
}
