/* Tests members of the tcp link that come to the rendezvous and do not stay, or do not belong there: they die while
 * others meet, are started again, or are of another job. Also: the names under which rank 0 is found. */
#include "link/tcp/test_world.h"

#include <fcntl.h>

#define SHORT_MS 2500u /* a deadline that is meant to pass */

/* ---- by hand: one side of the meeting without the link --------------------------------------------------- */

/* Ends a connection in order, or resets it. */
static void end(int fd, bool resets)
{
    if (resets)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(fd);
}

/* A text of rank 0. */
static void hear_words(int fd, uint16_t kind, const char *words)
{
    char text[GW_TCP_TEXT_BYTES];
    const struct peer_message m = world_hear(fd, kind);
    gw_status status;
    assert_true(kind == GW_TCP_REFUSE ? gw_tcp_refuse_read(m.body, m.n_bytes, &status, text)
                                      : gw_tcp_text_read(m.body, m.n_bytes, text));
    if (!strstr(text, words))
        fail_msg("heard \"%s\"; wanted \"%s\"", text, words);
}

static void hear_end(int fd)
{
    world_hear(fd, 0);
    close(fd);
}

/* ---- who is lost ----------------------------------------------------------------------------------------- */

enum moment { BEFORE_JOIN, IN_JOIN, AFTER_JOIN, AFTER_TABLE, AFTER_READY, N_MOMENTS };

/* Rank 0's connection ends, or rank 0 stops: the sentence names rank 0, and not the member for which it waited. If rank
 * 0 has said nothing yet, it may be another process, and the member comes again. */
TEST(rank_0_is_lost)
{
    for (int i = 0; i < 2 * N_MOMENTS; i++) {
        const enum moment moment = (enum moment)(i / 2);
        const bool resets = i % 2, stops = moment == IN_JOIN && resets;
        struct gw_tcp_member table[2] = {0};
        char words[80];
        uint8_t bytes[GW_TCP_TABLE_HEAD + 2 * GW_TCP_CONTACT_BYTES];
        world_begin(2, 1);
        members[1].options.timeout_ms = stops ? 3000 : LINK_LONG_MS;
        const int listening = peer_listen(place);
        world_start_one(&members[1]);
        int fd = accept(listening, NULL, NULL), peer = -1;
        if (moment == BEFORE_JOIN) {
            end(fd, resets);
            fd = accept(listening, NULL, NULL);
        }
        world_hear(fd, GW_TCP_JOIN);
        if (moment < AFTER_TABLE) {
            assert_true(world_say(fd, GW_TCP_WAIT, "rank 2", 6));
        } else {
            for (int r = 0; r < 2; r++)
                ok(gw_net_address_parse("it", place, false, &table[r].address));
            gw_tcp_table_write(bytes, 7, 2, 1, table);
            assert_true(world_say(fd, GW_TCP_TABLE, bytes, sizeof bytes));
            peer = accept(listening, NULL, NULL);
            world_hear(peer, GW_TCP_HELLO);
        }
        if (moment == AFTER_READY) {
            assert_true(world_say(peer, GW_TCP_WELCOME, NULL, 0));
            world_hear(fd, GW_TCP_READY);
        }
        if (!stops)
            end(fd, resets);
        world_join(&members[1], 1);
        snprintf(words, sizeof words, stops ? "rank 0 (%s) answers no more" : "rank 0 (%s) died or lost its connection",
                 place);
        world_expect_all(&members[1], 1, GW_ERR_PEER, words);
        if (stops)
            close(fd);
        close(peer);
        close(listening);
        world_end();
    }
}

/* Its place is free again, and the meeting waits for another process that takes it. */
TEST(a_member_is_lost_and_comes_again)
{
    for (int i = 0; i < 8; i++) {
        const enum moment moment = i < 6 ? (enum moment)(i / 2) : AFTER_JOIN;
        const bool resets = i % 2, comes_again = i < 6;
        world_begin(3, 1);
        members[0].options.timeout_ms = comes_again ? LINK_LONG_MS : SHORT_MS;
        world_start_one(&members[0]);
        const int fd = moment == AFTER_JOIN ? world_say_join(1) : world_dial(place);
        if (moment == IN_JOIN)
            assert_int_equal(send(fd, "\x24\0\0\0\0\0\0\0\1\0\0\0GWN1\6", 17, 0), 17);
        if (moment == AFTER_JOIN)
            hear_words(fd, GW_TCP_WAIT, "rank 2");
        end(fd, resets);
        if (moment == AFTER_JOIN)
            world_await_line("lost rank=1 address=127.0.0.1:1 ");
        if (comes_again) {
            world_start(1, 2);
            world_meets_and_ends();
        } else {
            world_join_all(1, GW_ERR_TIMEOUT, "rank 2 did not come");
            world_expect_all(members, 1, GW_ERR_TIMEOUT, "; rank 1 (127.0.0.1:1) had come, and went again");
            world_end();
        }
        assert_int_equal(world_n_lines, moment == AFTER_JOIN);
    }
}

/* All hear who is lost, or lies. Before the table a liar only loses its place. */
TEST(a_member_is_lost_after_the_table)
{
    static const char *const words[] = {"rank 1 (127.0.0.1:1) died or lost its connection before all members had met",
                                        "rank 1 (127.0.0.1:1) sent what no member sends: a message of kind 5"};
    for (int i = 0; i < 5; i++) {
        const bool ready = i >= 2, twice = i == 4;
        struct gw_tcp_member table[3];
        world_begin(3, 1);
        world_start_one(&members[0]);
        int fd = world_say_join(1);
        assert_true(world_say(fd, i % 2 ? GW_TCP_WAIT : GW_TCP_READY, NULL, 0)); /* too early */
        hear_end(fd);
        fd = world_say_join(1);
        const int witness = world_say_join(2);
        world_hear_table(witness, table);
        const struct gw_tcp_hello hello = {world_hear_table(fd, table), 1, 0};
        const int peer = world_say_hello(place, hello, GW_TCP_HELLO_BYTES);
        world_hear(peer, GW_TCP_WELCOME);
        for (int n = 0; n < ready + twice; n++)
            assert_true(world_say(fd, GW_TCP_READY, NULL, 0));
        if (!twice)
            end(fd, i % 2);
        hear_words(witness, GW_TCP_REFUSE, words[twice]);
        world_join_all(1, GW_ERR_PEER, words[twice]);
        if (twice)
            close(fd);
        close(peer);
        close(witness);
        world_end();
    }
}

/* Rank 0 is kept from looking as long as this is so. */
static atomic_bool held_up, is_held;

static bool hold_up(void *user)
{
    (void)user;
    while (atomic_load(&held_up)) {
        atomic_store(&is_held, true);
        link_test_pause(1);
    }
    return false;
}

/* Rank 0 sees at once that a process came, that it is dead, and that the next one came in its place. */
TEST(a_member_is_lost_as_it_comes)
{
    for (int i = 0; i < 4; i++) {
        const bool resets = i % 2, is_known = i / 2;
        const uint32_t n = is_known ? 3 : 2;
        world_begin(n, 1);
        members[0].options.stop = hold_up;
        atomic_store(&is_held, false);
        atomic_store(&held_up, !is_known);
        world_start_one(&members[0]);
        const int fd = world_say_join(1);
        if (is_known)
            hear_words(fd, GW_TCP_WAIT, "rank 2");
        atomic_store(&held_up, true);
        while (!atomic_load(&is_held))
            link_test_pause(1);
        end(fd, resets);
        world_start(1, n - 1);
        link_test_pause(200);
        atomic_store(&held_up, false);
        world_meets_and_ends();
    }
}

/* Rank 0 learns in the turn of the deadline that all are ready. Then they have met. */
TEST(the_last_one_is_ready_at_the_deadline)
{
    enum { TIMEOUT_MS = 5000 };
    struct gw_tcp_member table[2];
    world_begin(2, 1);
    members[0].options.timeout_ms = TIMEOUT_MS;
    members[0].options.stop = hold_up;
    world_start_one(&members[0]);
    const int fd = world_say_join(1);
    const struct gw_tcp_hello hello = {world_hear_table(fd, table), 1, 0};
    const int peer = world_say_hello(place, hello, GW_TCP_HELLO_BYTES);
    world_hear(peer, GW_TCP_WELCOME);
    atomic_store(&is_held, false);
    atomic_store(&held_up, true);
    while (!atomic_load(&is_held))
        link_test_pause(1);
    assert_true(world_say(fd, GW_TCP_READY, NULL, 0));
    link_test_pause(TIMEOUT_MS);
    atomic_store(&held_up, false);
    world_hear(fd, GW_TCP_GO);
    world_join_all(1, GW_OK, NULL);
    close(peer);
    close(fd);
    world_end();
}

static void *receive_one(void *link)
{
    link_test_expect(link, 1, 100, 1, 0);
    return NULL;
}

/* All have met, and many newcomers say nothing, or what no member says. A member that comes again hears each time that
 * the job runs, as long as any link exists. That takes no memory in the end, and the log gets a line now and then. */
TEST(a_member_asks_again)
{
    enum { TIMES = 20, SILENT = 80, SECONDS_OF_A_LINE = 5 };
    int fds[SILENT];
    world_meet(2, 2);
    gw_link_destroy(&members[0].links[0]);
    const int live = link_test_memory.live;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, receive_one, &members[0].links[1]), 0);
    const time_t begin = time(NULL);
    for (int i = 0; i < SILENT; i++) /* no address may have all the room */
        fds[i] = peer_try(place, (uint8_t)(1 + i % 3));
    for (int i = 0; i < TIMES; i++) {
        const int fd = world_say_join(1);
        hear_words(fd, GW_TCP_REFUSE, "is already running, with 2 workers, since ");
        close(fd);
    }
    /* about those who come late, and about those who made room */
    assert_true(world_n_lines >= 1 && world_n_lines <= 2 * (1 + (time(NULL) - begin) / SECONDS_OF_A_LINE));
    hear_end(world_say_hello(place, (struct gw_tcp_hello){0, 1, 0}, GW_TCP_HELLO_BYTES));
    world_await_line("this is no message of a member");
    world_await_line("too many connections have not said who they are");
    for (int i = 0; i < SILENT; i++)
        close(fds[i]);
    for (int i = 0; i < 500 && link_test_memory.live > live; i++)
        link_test_pause(10);
    assert_int_equal(link_test_memory.live, live);
    link_test_send(context, &members[1].links[1], 0, 100, 1, 0);
    pthread_join(thread, NULL);
    world_talk(1);
    world_end();
}

/* ---- who does not belong --------------------------------------------------------------------------------- */

/* Nobody else comes: the process that was refused may be the one that is missing. */
TEST(refusals_are_told_at_the_deadline)
{
    world_begin(2, 1);
    members[0].options.timeout_ms = SHORT_MS;
    members[1].options.size = 5;
    world_start(0, 2);
    world_join(members, 2);
    world_expect_all(members, 1, GW_ERR_TIMEOUT, "rank 1 did not come");
    world_expect_all(members, 1, GW_ERR_TIMEOUT, "; refused: rank 1 (127.0.0.1:");
    world_expect_all(&members[1], 1, GW_ERR_PEER, "was told that there are 5 ranks");
    world_end();
}

/* Somebody came, and rank 0 had no descriptor for the connection. */
TEST(rank_0_has_no_descriptor)
{
    struct rlimit before;
    world_begin(2, 1);
    members[0].options.timeout_ms = SHORT_MS;
    members[0].options.stop = hold_up;
    atomic_store(&is_held, false);
    atomic_store(&held_up, true);
    world_start_one(&members[0]);
    while (!atomic_load(&is_held))
        link_test_pause(1);
    const int fd = world_dial(place), lowest = fcntl(0, F_DUPFD_CLOEXEC, 0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)lowest, before.rlim_max}), 0);
    atomic_store(&held_up, false);
    world_join(members, 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    world_expect_all(members, 1, GW_ERR_TIMEOUT, "rank 0 can take no connection: Too many open files");
    close(fd);
    world_end();
}

/* Who is no member is refused, and hears why. Rank 0 logs it, and waits for its own members. */
TEST(strays_are_refused)
{
    static const struct {
        struct gw_tcp_join join;
        const char *words;
    } cases[] = {{{77, .rank = 2, .size = 3, .n_links = 1},
                  "speaks version 77 of the tcp link, and rank 0 speaks version "},
                 {{GW_TCP_VERSION, .rank = 2, .size = 5, .n_links = 1},
                  "was told that there are 5 ranks, and rank 0 that there are 3"},
                 {{GW_TCP_VERSION, .rank = 3, .size = 3, .n_links = 1}, "says that it is rank 3; ranks are 0 to 2"},
                 {{GW_TCP_VERSION, .rank = 2, .size = 3, .n_links = 2}, "wants 2 links, and rank 0 wants 1"},
                 {{GW_TCP_VERSION, .rank = 0, .size = 3, .n_links = 1}, "two members say that they are rank 0"},
                 {{GW_TCP_VERSION, .rank = 2, .size = 3, .n_links = 1},
                  "two members say that they are rank 2: 127.0.0.1:1 and 127.0.0.1:1"}};
    /* The session is XORed with the true one. The last HELLO is too short. */
    static const struct gw_tcp_hello hellos[] = {{1, 2, 0}, {0, 0, 0}, {0, 3, 0}, {0, 2, 1}, {0, 2, 0}};
    enum { N_HELLOS = sizeof hellos / sizeof hellos[0] };
    struct gw_tcp_member table[3];
    world_begin(3, 1);
    members[0].options.log = members[1].options.log = world_keep_line;
    world_start_one(&members[0]);
    const int fd = world_say_join(2);
    hear_words(fd, GW_TCP_WAIT, "rank 1");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int stray = world_join_as(cases[i].join);
        hear_words(stray, GW_TCP_REFUSE, cases[i].words);
        world_await_line(cases[i].words);
        close(stray);
    }
    hear_end(world_say_hello(place, (struct gw_tcp_hello){0, 2, 0}, GW_TCP_HELLO_BYTES)); /* there is no table yet */
    world_start_one(&members[1]);
    const uint64_t session = world_hear_table(fd, table);
    int peers[4]; /* a member may come to another one twice */
    world_forget_lines();
    for (int r = 0; r < 2; r++) {
        const char *there = table[r].address.place;
        for (const struct gw_tcp_hello *h = hellos; h < hellos + N_HELLOS; h++)
            hear_end(world_say_hello(there, (struct gw_tcp_hello){h->session ^ session, h->rank, h->link},
                                     GW_TCP_HELLO_BYTES - (h == hellos + 4)));
        for (int i = r; i < 4; i += 2) {
            peers[i] = world_say_hello(there, (struct gw_tcp_hello){session, 2, 0}, GW_TCP_HELLO_BYTES);
            world_hear(peers[i], GW_TCP_WELCOME);
        }
    }
    assert_int_equal(world_n_lines, 2 * N_HELLOS);
    assert_true(world_say(fd, GW_TCP_READY, NULL, 0));
    world_hear(fd, GW_TCP_GO);
    world_join_all(2, GW_OK, NULL);
    for (int i = 0; i < 4; i++)
        close(peers[i]);
    close(fd);
    world_end();
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
TEST(by_name_and_by_ipv6)
{
    static const struct {
        const char *hosts[3], *advertise;
    } cases[] = {{{"localhost", "localhost", "127.0.0.1"}, "127.0.0.1"}, {{"[::1]", "[::1]", "[::1]"}, "[::1]"}};
    bool v6 = have_ipv6();
    if (!v6)
        print_message("no IPv6 here: only names are tried\n");
    for (int c = 0; c < (v6 ? 2 : 1); c++) {
        char others[3][64];
        world_begin(3, 1);
        for (uint32_t r = 0; r < 3; r++) {
            snprintf(others[r], sizeof others[r], "%s%s", cases[c].hosts[r], strchr(place, ':'));
            members[r].options.rendezvous = others[r];
        }
        members[1].options.advertise = cases[c].advertise;
        world_start(0, 3);
        world_meets_and_ends();
    }
}

int main(void)
{
    world_raise_file_limit();
    return run_noted_tests("tcp joiners", NULL, NULL);
}
