/* Tests that the watch closes a stranger that sends too much, even if the watch slept while the application read the
 * event of its coming. It also closes whichever member sends more of a message than it may, and no other. Bytes that
 * are still in the kernel do not count. */
#include "checks.h"
#include "flood.h"
#include "zmq/net.h"

#include <linux/sockios.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

static atomic_bool is_inside, may_leave;

/* Runs in the watch's thread and keeps it there until it may leave. Then the socket has no events. */
static bool hold(void *socket)
{
    int events;
    size_t n_bytes = sizeof events;
    atomic_store(&is_inside, true);
    while (!atomic_load(&may_leave))
        usleep(1000);
    zmq_getsockopt(socket, ZMQ_EVENTS, &events, &n_bytes);
    return false;
}

static void *open_door(struct gw_zmq_net *net, const char *name, struct gw_zmq_door **door, char endpoint[80])
{
    const struct gw_zmq_limits limits = {.most_strangers = 8, .silent_s = 600, .stranger_bytes = 4096};
    size_t n_bytes = 80;
    void *socket = zmq_socket(net->zmq, ZMQ_ROUTER);
    assert_non_null(socket);
    assert_int_equal(gw_zmq_net_door(net, socket, name, 0, &limits, door), GW_OK);
    assert_int_equal(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, endpoint, &n_bytes), 0);
    return socket;
}

static void the_application_reads_first(void **state)
{
    (void)state;
    struct gw_zmq_net net = {.timeout_ms = 60000};
    struct gw_zmq_door *other, *door;
    struct gw_zmq_event event;
    char endpoint[80];
    assert_int_equal(gw_zmq_net_open(&net), GW_OK);
    /* The watch looks at the door that was opened last before it serves the other. */
    void *served = open_door(&net, "served", &other, endpoint), *socket = open_door(&net, "door", &door, endpoint);
    usleep(50000);
    gw_zmq_door_serve(other, hold, served);
    while (!atomic_load(&is_inside))
        usleep(1000);
    void *stranger = flood_socket(net.zmq, endpoint, NULL, NULL, NULL);
    do {
        while (!gw_zmq_door_event(door, &event))
            usleep(1000);
    } while (event.what != ZMQ_EVENT_ACCEPTED);
    for (int i = 0; i < 50; i++) { /* until ZeroMQ's descriptor is no longer readable */
        while (gw_zmq_door_event(door, &event))
            ;
        usleep(1000);
    }
    atomic_store(&may_leave, true);
    usleep(50000);
    CHECK(flood_parts(net.zmq, stranger, 1024, 256), "the watch slept on while a stranger sent 256 KiB");
    zmq_close(stranger);
    gw_zmq_door_close(&socket, &door);
    gw_zmq_door_close(&served, &other);
    gw_zmq_net_close(&net);
}

/* ---- open files ------------------------------------------------------------------------------------------ */

/* Fills the lowest free descriptors, until one has the number `end` or none is free. Returns how many it took. */
static int fill(int *taken, int end)
{
    int n = 0;
    while (n < end && (taken[n] = dup(STDERR_FILENO)) >= 0 && taken[n] < end)
        n++;
    if (n < end && taken[n] >= 0)
        close(taken[n]);
    return n;
}

static bool so_many_stay(const int *strangers, int n, int expected)
{
    int open = n;
    for (int i = 0; i < 10000 && (open = flood_open(strangers, n)) > expected; i++)
        usleep(1000);
    usleep(100000);
    return open == expected && flood_open(strangers, n) == expected;
}

/* Strangers have descriptors of the reserve. As many may stay as lower ones are free. */
static void the_reserve_is_for_need(void **state)
{
    (void)state;
    enum { HIGH = 150, FILES = 128, N = 3, FREE = 2 };
    struct gw_zmq_net net = {.timeout_ms = 60000};
    struct gw_zmq_door *door;
    struct gw_zmq_event event;
    struct rlimit limit, few;
    char endpoint[80];
    int taken[HIGH], strangers[N];
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_true(limit.rlim_cur > 2 * HIGH);
    few = (struct rlimit){FILES, limit.rlim_max};
    assert_int_equal(gw_zmq_net_open(&net), GW_OK);
    void *socket = open_door(&net, "door", &door, endpoint);
    int n = fill(taken, HIGH);
    for (int i = 0; i < N; i++) {
        strangers[i] = flood_connect((uint16_t)atoi(strrchr(endpoint, ':') + 1));
        assert_true(strangers[i] >= HIGH);
        do {
            while (!gw_zmq_door_event(door, &event))
                usleep(1000);
        } while (event.what != ZMQ_EVENT_ACCEPTED);
        assert_true((int)event.value >= HIGH);
    }
    while (n > 0)
        close(taken[--n]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const bool all = so_many_stay(strangers, N, N);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    n = fill(taken, FILES);
    for (int i = 0; i < FREE; i++)
        close(taken[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    const bool some = so_many_stay(strangers, N, FREE);
    for (int i = 0; i < FREE; i++)
        taken[i] = dup(STDERR_FILENO);
    const bool none = so_many_stay(strangers, N, 0);
    while (n > 0)
        close(taken[--n]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    CHECK(all && some && none, "all stayed %d, some %d, none %d", all, some, none);
    for (int i = 0; i < N; i++)
        close(strangers[i]);
    gw_zmq_door_close(&socket, &door);
    gw_zmq_net_close(&net);
}

/* ---- members --------------------------------------------------------------------------------------------- */

enum { MEMBERS = 3, MEMBER_BYTES = 64 << 10 };

struct served {
    void *socket;
    struct gw_zmq_door *door;
    atomic_int n_admitted;
    atomic_bool is_busy; /* the application takes nothing */
    uint16_t port;
    int fds[MEMBERS];
};

/* In the watch's thread: whoever has sent a whole message is admitted. */
static bool take_all(void *user)
{
    struct served *s = user;
    zmq_msg_t part;
    if (atomic_load(&s->is_busy))
        return false;
    zmq_msg_init(&part);
    while (zmq_msg_recv(&part, s->socket, ZMQ_DONTWAIT) >= 0) {
        if (zmq_msg_more(&part)) /* whose it is */
            continue;
        struct gw_zmq_event event;
        while (gw_zmq_door_event(s->door, &event))
            ;
        const int fd = zmq_msg_get(&part, ZMQ_SRCFD);
        gw_zmq_door_took(s->door, fd, zmq_msg_size(&part), 1);
        gw_zmq_door_admit(s->door, fd);
        atomic_fetch_add(&s->n_admitted, 1);
    }
    zmq_msg_close(&part);
    gw_zmq_door_empty(s->door);
    return false;
}

/* A connection that speaks ZMTP 3.0 itself. A member has sent a message of one byte. */
static int connection_of(uint16_t port, bool member)
{
    static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                                "DEALER"
                                "\0\1x";
    char greeting[64] = "\xff\0\0\0\0\0\0\0\1\x7f\3\0NULL";
    const int fd = flood_connect(port);
    assert_true(fd >= 0);
    char theirs[64];
    assert_int_equal(send(fd, greeting, sizeof greeting, MSG_NOSIGNAL), sizeof greeting);
    assert_int_equal(recv(fd, theirs, sizeof theirs, MSG_WAITALL), sizeof theirs);
    const size_t n = sizeof ready - 1 - (member ? 0 : 3);
    assert_int_equal(send(fd, ready, n, MSG_NOSIGNAL), n);
    return fd;
}

/* So many bytes of a message that goes on, in parts of 200. */
static void begin_message(int fd, size_t n_bytes)
{
    char part[202] = {1, (char)200};
    for (size_t sent = 0; sent < n_bytes; sent += 200)
        for (size_t at = 0; at < sizeof part;) {
            const ssize_t n = send(fd, part + at, sizeof part - at, MSG_NOSIGNAL);
            if (n < 0)
                return; /* it was closed */
            at += (size_t)n;
        }
}

/* Listens, with room for `room` messages of a member in ZeroMQ (0: no limit), and admits all members. */
static void serve_members(struct served *s, struct gw_zmq_net *net, const struct gw_zmq_limits *limits, int room)
{
    const int kernel_bytes = 128 << 10; /* of each connection, whatever this machine gives it */
    char endpoint[80];
    size_t length = sizeof endpoint;
    assert_int_equal(gw_zmq_net_open(net), GW_OK);
    s->socket = zmq_socket(net->zmq, ZMQ_ROUTER);
    assert_non_null(s->socket);
    assert_int_equal(zmq_setsockopt(s->socket, ZMQ_RCVHWM, &room, sizeof room), 0);
    assert_int_equal(zmq_setsockopt(s->socket, ZMQ_RCVBUF, &kernel_bytes, sizeof kernel_bytes), 0);
    assert_int_equal(gw_zmq_net_door(net, s->socket, "members", 0, limits, &s->door), GW_OK);
    assert_int_equal(zmq_bind(s->socket, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(s->socket, ZMQ_LAST_ENDPOINT, endpoint, &length), 0);
    s->port = (uint16_t)atoi(strrchr(endpoint, ':') + 1);
    gw_zmq_door_serve(s->door, take_all, s);
    for (int m = 0; m < MEMBERS; m++) {
        s->fds[m] = connection_of(s->port, true);
        while (atomic_load(&s->n_admitted) <= m)
            usleep(1000);
    }
}

static void serve_no_more(struct served *s, struct gw_zmq_net *net)
{
    for (int m = 0; m < MEMBERS; m++)
        close(s->fds[m]);
    gw_zmq_door_close(&s->socket, &s->door);
    gw_zmq_net_close(net);
}

static void one_member_is_closed(const struct gw_zmq_limits *limits, int greedy, size_t n_bytes)
{
    /* A member may send heartbeats for as long as it is connected: some kilobytes a second with so short a timeout. */
    struct gw_zmq_net net = {.timeout_ms = 100};
    struct served s = {.n_admitted = 0};
    serve_members(&s, &net, limits, 0);
    int *fds = s.fds;
    for (int m = 0; m < MEMBERS; m++)
        if (m != greedy)
            begin_message(fds[m], MEMBER_BYTES / 2); /* what every member may, and a stranger may not */
    begin_message(fds[greedy], n_bytes);
    for (int i = 0; i < 60000 && flood_open(&fds[greedy], 1) == 1; i++)
        usleep(1000);
    CHECK(flood_open(&fds[greedy], 1) == 0, "member %d was let send %zu bytes of a message", greedy, n_bytes);
    CHECK(flood_open(fds, MEMBERS) == MEMBERS - 1, "others than member %d were closed", greedy);
    int stranger = connection_of(s.port, false); /* it comes after members, and may send less than they */
    begin_message(stranger, 2 * limits->stranger_bytes);
    for (int i = 0; i < 60000 && flood_open(&stranger, 1) == 1; i++)
        usleep(1000);
    CHECK(flood_open(&stranger, 1) == 0, "a stranger was let send %zu bytes", (size_t)(2 * limits->stranger_bytes));
    CHECK(flood_open(fds, MEMBERS) == MEMBERS - 1, "a member was closed for a stranger");
    close(stranger);
    serve_no_more(&s, &net);
}

/* By the limit of one message, and by that of all members together, who then has most of it. */
static void whichever_member_is_greedy(void **state)
{
    (void)state;
    const struct gw_zmq_limits each = {.most_strangers = 8,
                                       .silent_s = 600,
                                       .stranger_bytes = 4096,
                                       .member_bytes = MEMBER_BYTES};
    const struct gw_zmq_limits all = {.most_strangers = 8,
                                      .silent_s = 600,
                                      .stranger_bytes = 4096,
                                      .all_bytes = 2 * MEMBER_BYTES};
    for (int greedy = 0; greedy < MEMBERS; greedy++) {
        one_member_is_closed(&each, greedy, 8 * MEMBER_BYTES);
        one_member_is_closed(&all, greedy, 8 * MEMBER_BYTES);
    }
}

/* Sends messages of 4000 bytes until the kernel takes no more. *n_sent: how many bytes were sent so far. Returns how
 * many of them have come to the other side. */
static size_t send_until_full(int fd, size_t *n_sent)
{
    static const char message[9 + 4000] = {2, 0, 0, 0, 0, 0, 0, 4000 >> 8, (char)(4000 & 255)};
    for (int tries = 0; tries < 100;) {
        const size_t at = *n_sent % sizeof message;
        const ssize_t n = send(fd, message + at, sizeof message - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            *n_sent += (size_t)n;
            continue;
        }
        tries++;
        usleep(1000);
    }
    int n_unsent = 0;
    assert_int_equal(ioctl(fd, SIOCOUTQ, &n_unsent), 0);
    return *n_sent - (size_t)n_unsent;
}

static void what_the_kernel_holds_does_not_count(void **state)
{
    (void)state;
    const struct gw_zmq_limits limits = {.most_strangers = 8,
                                         .silent_s = 600,
                                         .stranger_bytes = 4096,
                                         .all_bytes = 2 * MEMBER_BYTES};
    struct gw_zmq_net net = {.timeout_ms = 60000};
    struct served s = {.n_admitted = 0};
    serve_members(&s, &net, &limits, 2);
    atomic_store(&s.is_busy, true);
    size_t n_come = 0, n_sent[MEMBERS] = {0};
    for (int m = 0; m < MEMBERS; m++)
        n_come += send_until_full(s.fds[m], &n_sent[m]);
    CHECK(n_come > limits.all_bytes, "only %zu bytes came", n_come);
    usleep(500000); /* the watch looks every 50 ms */
    CHECK(flood_open(s.fds, MEMBERS) == MEMBERS, "a member was closed for what the kernel holds");
    atomic_store(&s.is_busy, false);
    for (int m = 0; m < MEMBERS; m++)
        send_until_full(s.fds[m], &n_sent[m]);
    CHECK(flood_open(s.fds, MEMBERS) == MEMBERS, "a member was closed while its messages were taken");
    serve_no_more(&s, &net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_application_reads_first),
                                       cmocka_unit_test(the_reserve_is_for_need),
                                       cmocka_unit_test(whichever_member_is_greedy),
                                       cmocka_unit_test(what_the_kernel_holds_does_not_count)};
    return cmocka_run_group_tests_name("zmq watch", tests, NULL, NULL);
}
