/* Tests members of the tcp link that come to the rendezvous and do not stay, or do not belong there: they die while
 * others meet, are started again, or are of another job. Also: the names under which rank 0 is found. */
#include "link/tcp/endpoint.h"
#include "link/tcp/test_world.h"
#include "wire/bytes.h"

#define SHORT_MS 2500u /* a deadline that is meant to pass */

/* ---- by hand: one side of the meeting without the link --------------------------------------------------- */

static void send_join(void *socket, const struct gw_tcp_join *join, uint16_t version, const char *endpoint)
{
    uint8_t bytes[GW_TCP_TEXT_MESSAGE_BYTES];
    size_t n_bytes = (size_t)(gw_tcp_write_endpoint(gw_tcp_join_write(bytes, join), endpoint) - bytes);
    gw_put16(bytes + 4, version);
    assert_int_equal(zmq_send(socket, bytes, n_bytes, 0), n_bytes);
}

/* What rank 0 answers. */
static enum gw_tcp_kind answer(void *socket, char text[GW_TCP_TEXT_BYTES])
{
    uint8_t bytes[GW_TCP_TEXT_MESSAGE_BYTES];
    uint16_t version;
    gw_status status = GW_ERR_PEER;
    int n = zmq_recv(socket, bytes, sizeof bytes, 0);
    assert_true(n > 0 && n <= (int)sizeof bytes);
    enum gw_tcp_kind kind = gw_tcp_kind_of(bytes, (size_t)n, &version);
    assert_true(kind == GW_TCP_WAIT ? gw_tcp_wait_read(bytes, (size_t)n, text)
                                    : gw_tcp_refuse_read(bytes, (size_t)n, &status, text));
    assert_int_equal(status, GW_ERR_PEER);
    return kind;
}

/* A rank 0 that says to the first that comes that rank 2 is missing, and nothing after that. */
static void *silent_host(void *zmq, const char *place)
{
    char endpoint[GW_ZMQ_ENDPOINT_BYTES];
    uint8_t id[16], bytes[GW_TCP_TEXT_MESSAGE_BYTES];
    const int linger = 5000;
    snprintf(endpoint, sizeof endpoint, "tcp://%s", place);
    void *socket = zmq_socket(zmq, ZMQ_ROUTER);
    assert_non_null(socket);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    assert_int_equal(zmq_bind(socket, endpoint), 0);
    int id_bytes = zmq_recv(socket, id, sizeof id, 0);
    assert_true(id_bytes > 0 && zmq_recv(socket, bytes, sizeof bytes, 0) > 0);
    assert_int_equal(zmq_send(socket, id, (size_t)id_bytes, ZMQ_SNDMORE), id_bytes);
    assert_true(zmq_send(socket, bytes, gw_tcp_wait_write(bytes, "rank 2"), 0) > 0);
    return socket;
}

/* ---- who is lost ----------------------------------------------------------------------------------------- */

/* Rank 0's connection ends, or rank 0 stops: the sentence names rank 0, and not the member for which it waited. */
static void rank_0_is_lost(void **state)
{
    (void)state;
    for (int stops = 0; stops < 2; stops++) {
        struct world_member members[2];
        char place[32], words[80];
        gw_context *context = link_test_context();
        void *zmq = zmq_ctx_new();
        world_prepare(context, 2, 1, members, place);
        members[1].options.size = 3;
        members[1].options.timeout_ms = stops ? 3000 : LINK_LONG_MS;
        world_start_one(&members[1]);
        void *socket = silent_host(zmq, place);
        if (!stops)
            zmq_close(socket);
        world_join(&members[1], 1);
        snprintf(words, sizeof words, stops ? "rank 0 (%s) answers no more" : "rank 0 (%s) died or lost its connection",
                 place);
        world_expect_all(&members[1], 1, GW_ERR_PEER, words);
        if (stops)
            zmq_close(socket);
        zmq_ctx_term(zmq);
        link_test_end(context, NULL, 0);
    }
}

/* The place of a lost member is free again, and the meeting waits for another process that takes it. */
static void a_member_is_lost_and_comes_again(void **state)
{
    (void)state;
    for (int comes_again = 0; comes_again < 2; comes_again++) {
        struct world_member members[3];
        char place[32], text[GW_TCP_TEXT_BYTES];
        gw_context *context = link_test_context();
        void *zmq = zmq_ctx_new();
        world_forget_lines();
        world_prepare(context, 3, 1, members, place);
        members[0].options.log = world_keep_line;
        members[0].options.timeout_ms = comes_again ? LINK_LONG_MS : SHORT_MS;
        world_start_one(&members[0]);
        void *socket = world_stranger_socket(zmq, place);
        send_join(socket, &(struct gw_tcp_join){.rank = 1, .size = 3, .n_links = 1}, GW_TCP_VERSION,
                  "tcp://127.0.0.1:1");
        assert_int_equal(answer(socket, text), GW_TCP_WAIT);
        assert_string_equal(text, "rank 2");
        zmq_close(socket);
        zmq_ctx_term(zmq);
        world_await_line("lost rank=1 address=127.0.0.1:1 ");
        if (comes_again) {
            world_start_one(&members[1]);
            world_start_one(&members[2]);
            world_join(members, 3);
            world_expect_all(members, 3, GW_OK, NULL);
            world_talk(context, members, 3, 0);
            world_end_links(members, 3);
        } else {
            world_join(members, 1);
            world_expect_all(members, 1, GW_ERR_TIMEOUT, "ranks 1, 2 did not come");
            world_expect_all(members, 1, GW_ERR_TIMEOUT, "; rank 1 (127.0.0.1:1) had come, and lost its connection");
        }
        link_test_end(context, NULL, 0);
    }
}

/* Rank 0 is kept from looking as long as this is so. */
static atomic_bool held_up;

static bool hold_up(void *user)
{
    (void)user;
    while (atomic_load(&held_up))
        link_test_pause(1);
    return false;
}

static void read_exactly(int fd, uint8_t *bytes, size_t n_bytes)
{
    assert_int_equal(recv(fd, bytes, n_bytes, MSG_WAITALL), n_bytes);
}

/* A connection to `place` that says JOIN and ends; comes back when the other side has noticed. In ZeroMQ's own bytes:
 * its sockets do not tell when that is. */
static void join_and_go(const char *place, const struct gw_tcp_join *join)
{
    enum { GREETING = 64 };
    static const char ready[] = "\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06"
                                "DEALER";
    uint8_t hello[GREETING + sizeof ready - 1] = {0xFF, 0, 0, 0, 0, 0, 0, 0, 1, 0x7F, 3, 0, 'N', 'U', 'L', 'L'},
                                            bytes[300] = {0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    address.sin_port = htons((uint16_t)atoi(strrchr(place, ':') + 1));
    memcpy(hello + GREETING, ready, sizeof ready - 1);
    int fd = -1;
    for (int i = 0; i < 3000 && fd < 0; i++) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
            close(fd);
            fd = -1;
            link_test_pause(10);
        }
    }
    assert_true(fd >= 0 && send(fd, hello, sizeof hello, MSG_NOSIGNAL) == (ssize_t)sizeof hello);
    read_exactly(fd, bytes, GREETING + 2); /* and the head of its READY */
    read_exactly(fd, bytes, bytes[GREETING + 1]);
    const uint8_t *end = gw_tcp_write_endpoint(gw_tcp_join_write(bytes + 2, join), "tcp://127.0.0.1:1");
    bytes[0] = 0;
    bytes[1] = (uint8_t)(end - bytes - 2);
    assert_int_equal(send(fd, bytes, (size_t)(end - bytes), MSG_NOSIGNAL), end - bytes);
    shutdown(fd, SHUT_WR);
    while (read(fd, bytes, sizeof bytes) > 0)
        ;
    close(fd);
}

/* It is dead before rank 0 has read that it came: its place stays free. */
static void a_member_is_lost_as_it_comes(void **state)
{
    (void)state;
    struct world_member members[2];
    char place[32];
    gw_context *context = link_test_context();
    world_prepare(context, 2, 1, members, place);
    members[0].options.stop = hold_up;
    atomic_store(&held_up, true);
    world_start_one(&members[0]);
    join_and_go(place, &(struct gw_tcp_join){.rank = 1, .size = 2, .n_links = 1});
    atomic_store(&held_up, false);
    world_start_one(&members[1]);
    world_join(members, 2);
    world_expect_all(members, 2, GW_OK, NULL);
    world_talk(context, members, 2, 0);
    world_end_links(members, 2);
    link_test_end(context, NULL, 0);
}

/* It asks again when all have met, as its table was lost with a connection: it gets it again, and not without end. */
static void a_member_asks_again(void **state)
{
    (void)state;
    enum { TIMES = 20 };
    struct world_member members[2];
    char place[32];
    uint8_t bytes[GW_TCP_TEXT_MESSAGE_BYTES];
    uint16_t version;
    struct gw_tcp_table table;
    const int patience_ms = 300;
    int n_tables = 0;
    gw_context *context = link_test_context();
    void *zmq = zmq_ctx_new();
    world_forget_lines();
    world_prepare(context, 2, 1, members, place);
    members[0].options.log = world_keep_line;
    world_start(members, 2);
    world_join(members, 2);
    world_expect_all(members, 2, GW_OK, NULL);
    const struct gw_tcp_endpoint *first = members[0].links[0].self;
    void *socket = world_stranger_socket(zmq, place);
    for (int i = 0; i < TIMES; i++)
        send_join(socket, &(struct gw_tcp_join){.rank = 1, .size = 2, .n_links = 1}, GW_TCP_VERSION,
                  first->peers[1].endpoint);
    for (int n = 1; n > 0; zmq_setsockopt(socket, ZMQ_RCVTIMEO, &patience_ms, sizeof patience_ms)) {
        n = zmq_recv(socket, bytes, sizeof bytes, 0);
        if (n <= 0)
            continue;
        assert_int_equal(gw_tcp_kind_of(bytes, (size_t)n, &version), GW_TCP_TABLE);
        assert_true(gw_tcp_table_read(bytes, (size_t)n, &table) && table.session == first->group->session);
        n_tables++;
    }
    assert_true(n_tables >= 1 && n_tables < TIMES);
    assert_int_equal(world_n_lines, 0);
    zmq_close(socket);
    zmq_ctx_term(zmq);
    world_talk(context, members, 2, 0);
    world_end_links(members, 2);
    link_test_end(context, NULL, 0);
}

/* ---- who does not belong --------------------------------------------------------------------------------- */

static void two_of_one_rank(struct world_member *stray)
{
    stray->options.rank = 1;
}

static void another_size(struct world_member *stray)
{
    stray->options.size = 5;
}

static void another_number_of_links(struct world_member *stray)
{
    stray->n_links = 2;
}

/* A stray is refused, hears why, and ends. Rank 0 logs it, and waits for its own members. */
static void strays_are_refused(void **state)
{
    (void)state;
    static const struct {
        void (*change)(struct world_member *stray);
        const char *words;
    } cases[] = {{two_of_one_rank, "two members say that they are rank 1: 127.0.0.1:"},
                 {another_size, "was told that there are 5 ranks, and rank 0 that there are 3"},
                 {another_number_of_links, "wants 2 links, and rank 0 wants 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct world_member members[3];
        char place[32];
        gw_context *context = link_test_context();
        world_forget_lines();
        world_prepare(context, 3, 1, members, place);
        members[0].options.log = world_keep_line;
        struct world_member stray = members[2];
        cases[i].change(&stray);
        world_start(members, 2);
        world_start_one(&stray);
        world_await_line(cases[i].words);
        world_start_one(&members[2]);
        /* Of two that say they are rank 1 the later one is refused, whichever that is. */
        world_join(&stray, 1);
        world_join(members, 3);
        if (members[1].status < 0) {
            struct world_member other = members[1];
            members[1] = stray;
            stray = other;
        }
        world_expect_all(&stray, 1, GW_ERR_PEER, cases[i].words);
        world_expect_all(members, 3, GW_OK, NULL);
        world_talk(context, members, 3, 0);
        world_end_links(members, 3);
        link_test_end(context, NULL, 0);
    }
}

/* The same, but nobody else comes: the process that was refused may be the one that is missing. */
static void refusals_are_told_at_the_deadline(void **state)
{
    (void)state;
    struct world_member members[2];
    char place[32];
    gw_context *context = link_test_context();
    world_prepare(context, 2, 1, members, place);
    members[0].options.timeout_ms = SHORT_MS;
    members[1].options.size = 5;
    world_start(members, 2);
    world_join(members, 2);
    world_expect_all(members, 1, GW_ERR_TIMEOUT, "rank 1 did not come");
    world_expect_all(members, 1, GW_ERR_TIMEOUT, "; refused: rank 1 (127.0.0.1:");
    world_expect_all(&members[1], 1, GW_ERR_PEER, "was told that there are 5 ranks");
    link_test_end(context, NULL, 0);
}

/* Members that no create of this version would make. */
static void impossible_members(void **state)
{
    (void)state;
    static const struct {
        struct gw_tcp_join join;
        uint16_t version;
        const char *words;
    } cases[] = {{{.rank = 2, .size = 3, .n_links = 1},
                  77,
                  "speaks version 77 of the tcp link, and rank 0 speaks version "},
                 {{.rank = 3, .size = 3, .n_links = 1}, GW_TCP_VERSION, "says that it is rank 3; ranks are 0 to 2"},
                 {{.rank = 0, .size = 3, .n_links = 1}, GW_TCP_VERSION, "two members say that they are rank 0"}};
    struct world_member members[3];
    char place[32], text[GW_TCP_TEXT_BYTES];
    gw_context *context = link_test_context();
    world_prepare(context, 3, 1, members, place);
    world_start_one(&members[0]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        void *zmq = zmq_ctx_new();
        void *socket = world_stranger_socket(zmq, place);
        send_join(socket, &cases[i].join, cases[i].version, "tcp://127.0.0.1:1");
        assert_int_equal(answer(socket, text), GW_TCP_REFUSE);
        assert_non_null(strstr(text, cases[i].words));
        zmq_close(socket);
        zmq_ctx_term(zmq);
    }
    world_start_one(&members[1]);
    world_start_one(&members[2]);
    world_join(members, 3);
    world_expect_all(members, 3, GW_OK, NULL);
    world_end_links(members, 3);
    link_test_end(context, NULL, 0);
}

/* ---- names ----------------------------------------------------------------------------------------------- */

static bool have_ipv6(void)
{
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    const struct sockaddr_in6 loopback = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    bool v6 = fd >= 0 && bind(fd, (const struct sockaddr *)&loopback, sizeof loopback) == 0;
    close(fd);
    return v6;
}

/* Members may call the loopback by different names. */
static void by_name_and_by_ipv6(void **state)
{
    (void)state;
    static const struct {
        const char *hosts[3], *advertise;
    } cases[] = {{{"localhost", "localhost", "127.0.0.1"}, "127.0.0.1"},
                 {{"[::1]", "[::1]", "[::1]"}, "[::1]"},
                 {{"localhost", "[::1]", "127.0.0.1"}, NULL},
                 {{"[::1]", "localhost", "127.0.0.1"}, NULL}};
    bool v6 = have_ipv6();
    if (!v6)
        print_message("no IPv6 here: only names are tried\n");
    for (int c = 0; c < (v6 ? 4 : 1); c++) {
        struct world_member members[3];
        char place[32], others[3][64];
        gw_context *context = link_test_context();
        world_prepare(context, 3, 1, members, place);
        for (uint32_t r = 0; r < 3; r++) {
            snprintf(others[r], sizeof others[r], "%s%s", cases[c].hosts[r], strchr(place, ':'));
            members[r].options.rendezvous = others[r];
        }
        members[1].options.advertise = cases[c].advertise;
        world_start(members, 3);
        world_join(members, 3);
        world_expect_all(members, 3, GW_OK, NULL);
        world_talk(context, members, 3, 0);
        world_end_links(members, 3);
        link_test_end(context, NULL, 0);
    }
}

int main(void)
{
    world_raise_file_limit();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rank_0_is_lost),
        cmocka_unit_test(a_member_is_lost_and_comes_again),
        cmocka_unit_test(a_member_is_lost_as_it_comes),
        cmocka_unit_test(a_member_asks_again),
        cmocka_unit_test(strays_are_refused),
        cmocka_unit_test(refusals_are_told_at_the_deadline),
        cmocka_unit_test(impossible_members),
        cmocka_unit_test(by_name_and_by_ipv6),
    };
    return cmocka_run_group_tests_name("tcp guests", tests, NULL, NULL);
}
