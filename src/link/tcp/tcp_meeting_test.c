/* Tests how members of the tcp link meet, and what they are told if they do not. Newcomers come to the
 * rendezvous and to a member's own port. Members that are lost while others meet, and those of other jobs, are
 * in tcp_joiners_test.c. */
#include "base/clock.h"
#include "link/tcp/test_world.h"

#include <math.h>

#define SHORT_MS 2500u /* a deadline that is meant to pass */

/* ---- what the options must be -------------------------------------------------------------------------- */

TEST(options_are_checked)
{
    static const struct {
        const char *rendezvous, *advertise, *words;
        gw_status status;
        bool insecure;
    } cases[] = {
        {"127.0.0.1", NULL, "the rendezvous is \"127.0.0.1\", and must be HOST:PORT", GW_ERR_ARGUMENT},
        {"127.0.0.1:5000", "", "advertise", GW_ERR_ARGUMENT},
        {"127.0.0.1:5000", "192.0.2.7", "insecure", GW_ERR_ARGUMENT},
        {"192.0.2.7:5000", "127.0.0.1", "192.0.2.7:5000 is not a loopback address", GW_ERR_ARGUMENT},
        {"no..such.host:5000", NULL, "no..such.host", GW_ERR_SYSTEM},
        /* An address of documentation (RFC 5737), which no machine has: rank 0 cannot listen there. */
        {"192.0.2.7:5000", "127.0.0.1", "cannot listen at 192.0.2.7:5000", GW_ERR_SYSTEM, .insecure = true},
    };
    gw_link link;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct gw_link_request options = {.size = 1,
                                                .rendezvous = cases[i].rendezvous,
                                                .advertise = cases[i].advertise,
                                                .insecure = cases[i].insecure};
        refused(gw_tcp_open(NULL, &options, 1, &link), cases[i].status, cases[i].words);
    }
}

static void note_line(const char *line, void *user)
{
    snprintf(user, 400, "%s", line);
}

static bool stop_once_told(void *user)
{
    return *(const char *)user != 0;
}

/* It may be known later, so it is asked for again; the program hears that at once, and may end it. */
TEST(a_name_that_nobody_knows_yet)
{
    char line[400] = "";
    struct gw_link_request options = {.rank = 1,
                                      .size = 2,
                                      .rendezvous = "no..such.host:5000",
                                      .timeout_ms = 600,
                                      .log = note_line,
                                      .log_user = line};
    gw_link link;
    const double begin = gw_clock_seconds();
    refused(gw_tcp_open(NULL, &options, 1, &link), GW_ERR_SYSTEM, "the host no..such.host is not found");
    assert_true(gw_clock_seconds() - begin >= 0.6);
    assert_null(strstr(gw_last_error(), "no name server")); /* one has answered, if only that nobody knows the name */
    assert_non_null(strstr(line, "asking again for 1 s"));
    options.timeout_ms = 600000;
    options.stop = stop_once_told;
    options.stop_user = line;
    refused(gw_tcp_open(NULL, &options, 1, &link), GW_ERR_CLOSED, "");
}

/* ---- who comes ----------------------------------------------------------------------------------------- */

TEST(the_missing_are_named)
{
    world_begin(5, 1);
    members[0].options.timeout_ms = SHORT_MS;
    world_start(0, 3); /* 3 and 4 do not come; ranks 1 and 2 would wait for long */
    world_join_all(3, GW_ERR_TIMEOUT, "ranks 3 and 4 did not come to the rendezvous at 127.0.0.1:");
    world_end();
    /* Rank 1 by itself, where it is the first to give up. */
    world_begin(4, 1);
    members[0].options.timeout_ms = 3 * SHORT_MS;
    members[1].options.timeout_ms = SHORT_MS;
    world_start(0, 2);
    world_join_all(2, GW_ERR_TIMEOUT, "ranks 2 and 3 did not come");
    world_end();
}

/* Rank 2 joins, and says nothing more, or only HELLO to rank 0. Then rank 0 has all its connections, and rank 1 waits
 * for rank 2 as well. */
TEST(who_falls_silent_is_named)
{
    for (int says_hello = 0; says_hello < 2; says_hello++) {
        struct gw_tcp_member table[3];
        world_begin(3, 1);
        members[0].options.timeout_ms = 3000; /* rank 1 can say twice that it is there */
        world_start(0, 2);
        const int fd = world_say_join(2);
        const struct gw_tcp_hello hello = {world_hear_table(fd, table), 2, 0};
        const int second = says_hello ? world_say_hello(place, hello, GW_TCP_HELLO_BYTES) : -1;
        world_join_all(2, GW_ERR_TIMEOUT,
                       says_hello ? "rank 2 did not get connections to all other members"
                                  : "rank 0 did not get its connections to rank 2 within");
        close(fd);
        close(second);
        world_end();
    }
}

TEST(nobody_at_the_rendezvous)
{
    char words[80];
    world_begin(2, 1);
    members[1].options.timeout_ms = 300;
    world_come(&members[1]);
    snprintf(words, sizeof words, "rank 0 did not answer at %s within 300 ms", place);
    world_expect_all(&members[1], 1, GW_ERR_TIMEOUT, words);
    world_end();
}

/* The job has begun, and a rank is started a second time, or another job at the same place: each hears so at once, as
 * often as it comes. When the job has ended the place is free at once. */
TEST(a_second_one_comes_late)
{
    static const struct {
        uint32_t rank, size, n_links;
        gw_status status;
        const char *words[2];
    } cases[] = {
        {1, 2, 1, GW_ERR_PEER, {"the job at 127.0.0.1:", "is already running, with 2 workers, since 2"}},
        {1, 2, 1, GW_ERR_PEER, {"; rank 1 (127.", "wait until that job has ended, or give this one another port"}},
        {6, 7, 3, GW_ERR_PEER, {"is already running, with 2 workers", "; rank 6 (127.0.0.1:"}},
        {0, 2, 1, GW_ERR_SYSTEM, {"cannot listen at 127.0.0.1:", "a job is running at this rendezvous"}},
    };
    world_begin(2, 1);
    for (int round = 0; round < 2; round++) {
        world_forget_lines();
        world_start(0, 2);
        world_join_all(2, GW_OK, NULL);
        ((struct gw_tcp_endpoint *)members[0].links[0].self)->look_at = HUGE_VAL; /* who comes wakes it */
        world_attend(&members[0].links[0]);
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            struct world_member late = members[1];
            late.options.rank = cases[i].rank;
            late.options.size = cases[i].size;
            late.n_links = cases[i].n_links;
            world_come(&late);
            for (size_t w = 0; w < 2; w++)
                world_expect_all(&late, 1, cases[i].status, cases[i].words[w]);
        }
        world_await_line("refused reason=\"the job at 127.0.0.1:");
        world_attend_no_more();
        assert_int_equal(world_n_lines, 1); /* the others came too soon after it */
        world_talk(0);
        world_end_links();
    }
    world_end();
}

/* ---- newcomers ----------------------------------------------------------------------------------------- */

static void raw_bytes(const void *bytes, size_t n_bytes)
{
    const int fd = world_dial(place);
    assert_true(peer_pour(fd, bytes, n_bytes));
    close(fd);
}

/* Messages of the right form that are no member's: all kinds of bytes, cut JOINs, and longer ones. Each on a connection
 * of its own, because none gets a second chance. */
static void valid_frames(void)
{
    uint8_t bytes[GW_NET_SMALL];
    for (size_t n = 0; n < sizeof bytes; n++)
        bytes[n] = (uint8_t)(n * 37 + 11);
    const struct gw_tcp_join join = {.version = GW_TCP_VERSION, .rank = 1, .size = 2, .n_links = 1};
    uint8_t whole[GW_TCP_JOIN_BYTES];
    gw_tcp_join_write(whole, &join); /* its address is none */
    for (size_t n = 0; n < 40; n++) {
        const uint16_t kind = (uint16_t)(n % 16);
        int fds[2] = {world_dial(place), world_dial(place)};
        world_say(fds[0], kind, bytes, n * n * 2);
        world_say(fds[1], GW_TCP_JOIN, whole, n < sizeof whole ? n : sizeof whole);
        for (int i = 0; i < 2; i++) { /* to its end, so that no more than two newcomers are there at a time */
            assert_true(peer_is_out(fds[i]));
            close(fds[i]);
        }
    }
}

TEST(newcomers_at_the_rendezvous)
{
    world_begin(2, 1);
    world_start(0, 1);
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const uint8_t zeros[40000],
        hello_of_tls[] = {0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3, 9, 9, 9, 9, 9, 9, 9, 9};
    raw_bytes(http, sizeof http);
    raw_bytes(zeros, sizeof zeros);
    raw_bytes("", 0);
    raw_bytes(hello_of_tls, sizeof hello_of_tls);
    raw_bytes(hello_of_tls, 11);
    valid_frames();
    for (int i = 0; i < 3000 && world_n_lines < 60; i++)
        link_test_pause(10);
    assert_true(world_n_lines >= 60);
    assert_true(world_has_line("127.0.0.1"));
    world_start_one(&members[1]);
    world_meets_and_ends();
}

/* Sends bytes to rank 0 on the connection of another member. */
static void send_as(struct gw_tcp_endpoint *member, uint16_t kind, size_t n_bytes, const char *magic)
{
    uint8_t bytes[GW_NET_HEAD + 64] = {0};
    peer_head(bytes, kind, 0, n_bytes);
    memcpy(bytes + 12, magic, 4);
    const size_t n = GW_NET_HEAD + (n_bytes < 64 ? n_bytes : 64);
    assert_int_equal(send(member->peers[0].c.fd, bytes, n, MSG_NOSIGNAL), n);
}

/* Once all have met, nobody but rank 0 listens. */
TEST(nobody_listens_at_a_member)
{
    world_meet(3, 2);
    const struct gw_tcp_endpoint *first = members[0].links[0].self;
    for (uint32_t r = 1; r < 3; r++)
        assert_true(peer_try(first->group->members[r].address.place, 1) < 0);
    world_end();
}

/* A member that sends what no member sends is gone for who gets it, and the sentence says what it was. */
TEST(garbage_of_a_member)
{
    static const struct {
        uint16_t kind;
        size_t n_bytes;
        const char *magic, *words;
    } cases[] = {{77, 22, "GWN1", "kind 77 and 22 bytes"},
                 {GW_TCP_HELLO, GW_TCP_HELLO_BYTES, "GWN1", "kind 7 and 16 bytes"},
                 {GW_TCP_DATA + 1, 7, "GWN1", "kind 10 and 7 bytes"},
                 {GW_TCP_DATA, 5000, "GWN1", ""}, /* cut: it waits for the rest */
                 {GW_TCP_DATA, 1, "ZMTP", "it does not speak as Gradwire does"},
                 {GW_TCP_DATA, (size_t)1 << 40, "GWN1", "it sent a message of 1099511627776 bytes"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_meet(3, 1);
        gw_message message;
        send_as(members[1].links[0].self, cases[i].kind, cases[i].n_bytes, cases[i].magic);
        const gw_link *link = &members[0].links[0];
        const bool waits = cases[i].words[0] == 0;
        refused(link_test_recv(link, waits ? 100 : LINK_LONG_MS, &message), waits ? GW_ERR_TIMEOUT : GW_ERR_PEER,
                cases[i].words);
        assert_true(waits || strstr(gw_last_error(), "rank 1 (127.0.0.1:"));
        world_end();
    }
}

/* ---- several links ------------------------------------------------------------------------------------- */

TEST(links_are_independent)
{
    enum { LINKS = 3 };
    world_meet(3, LINKS);
    gw_message message;
    for (uint32_t l = 0; l < LINKS; l++)
        link_test_send(context, &members[0].links[l], 1, 8, l, 5);
    for (uint32_t l = LINKS; l-- > 0;)
        link_test_expect(&members[1].links[l], 0, 8, l, 5);
    gw_link_fail(&members[2].links[0], GW_ERR_SYSTEM, "only the first link");
    gw_link_destroy(&members[2].links[1]);
    refused(gw_link_recv(&members[0].links[0], LINK_LONG_MS, &message), GW_ERR_PEER, "only the first link");
    refused(gw_link_recv(&members[0].links[0], 400, &message), GW_ERR_TIMEOUT, "");
    assert_int_equal(link_test_recv(&members[0].links[1], LINK_LONG_MS, &message), GW_ERR_PEER);
    assert_int_equal(message.from, 2);
    world_talk(2);
    world_end();
}

int main(void)
{
    world_raise_file_limit();
    return run_noted_tests("tcp meeting", NULL, NULL);
}
