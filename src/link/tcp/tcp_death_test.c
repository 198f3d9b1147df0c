/* Tests members of the tcp link that are processes and die, and connections that are reset while both members live on.
 * The parent forks before it has threads. */
#include "link/message.h"
#include "link/tcp/test_world.h"

#include <gradwire/exchange.h>
#include <signal.h>

/* KILLED_AFTER_SENDING: a child that it has forked lives on. UNHEARD: in good order, and nobody has asked for what it
 * sent when they send to it. */
enum death { KILLED, KILLED_AFTER_SENDING, IN_GOOD_ORDER, UNHEARD };

#define N_SENT 8

static int child_lives[2]; /* a pipe: until this process closes its end */

/* The kernel keeps all that is UNHEARD. A message is longer than what the link reads at once. */
static size_t sent_bytes(enum death death)
{
    return death == UNHEARD ? 5000 : 500000;
}

/* Rank 2, in a process of its own. */
static void be_the_third(enum death death)
{
    const struct gw_link_request options = {.rank = 2, .size = 3, .rendezvous = place, .timeout_ms = LINK_LONG_MS};
    gw_link link;
    gw_message message;
    if (gw_tcp_open(NULL, &options, 1, &link) < 0)
        _exit(2);
    for (uint32_t i = 0; i < N_SENT && death != KILLED; i++) {
        void *bytes = link_test_message(NULL, sent_bytes(death), 2, i);
        if (!bytes || link.ops->send_all(link.self, bytes, sent_bytes(death), LINK_LONG_MS) < 0)
            _exit(3);
    }
    if (death >= IN_GOOD_ORDER) {
        gw_link_destroy(&link);
        _exit(0); /* what was sent has left, though nobody asked for it yet */
    }
    link_test_recv(&link, LINK_LONG_MS, &message); /* the parent's word, at which it would be time to die */
    if (death == KILLED_AFTER_SENDING) {
        gw_ignore(link.ops->flush(link.self, LINK_LONG_MS)); /* all is in the kernel's hands */
        if (fork() == 0) {
            char byte;
            close(child_lives[1]);
            _exit(read(child_lives[0], &byte, 1) != 0);
        }
        raise(SIGKILL);
    }
    link_test_recv(&link, LINK_LONG_MS, &message);
    _exit(4);
}

static void expect_sent(gw_link *link, enum death death)
{
    for (uint32_t i = 0; i < N_SENT; i++) {
        gw_message message;
        ok(link_test_recv(link, LINK_LONG_MS, &message));
        assert_true(message.from == 2 && link_test_message_is(&message, sent_bytes(death), 2, i));
        gw_message_free(message.bytes);
    }
}

/* The first may go out: its answer, a reset, says that nobody is there. */
static void send_until_it_is_gone(gw_link *link)
{
    gw_status status = GW_OK;
    for (unsigned i = 0; status == GW_OK && i < LINK_LONG_MS; i++) {
        status = link->ops->send(link->self, 2, gw_message_alloc(context, 8), 8, LINK_LONG_MS);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(status, GW_ERR_PEER);
}

static void die(enum death death)
{
    world_begin(3, 1);
    n_members = 2;
    assert_int_equal(pipe(child_lives), 0);
    const pid_t child = world_fork();
    if (child == 0)
        be_the_third(death);
    world_start(0, 2);
    world_join_all(2, GW_OK, NULL);
    gw_message message;
    if (death == KILLED)
        kill(child, SIGKILL);
    if (death == KILLED_AFTER_SENDING)
        link_test_send(context, &members[0].links[0], 2, 8, 0, 0);
    if (death == UNHEARD) {
        world_expect_end(child, 0);
        for (uint32_t r = 0; r < 2; r++)
            send_until_it_is_gone(&members[r].links[0]);
    }
    for (uint32_t r = 0; r < 2 && death != KILLED; r++)
        expect_sent(&members[r].links[0], death);
    for (uint32_t r = 0; r < 2; r++) {
        gw_link *link = &members[r].links[0];
        refused(link_test_recv(link, LINK_LONG_MS, &message), GW_ERR_PEER, "rank 2 (127.0.0.1:");
        CHECK(strstr(gw_last_error(), "died or lost its connection"), "rank %u: %s", r, gw_last_error());
        refused(link->ops->send(link->self, 2, gw_message_alloc(context, 8), 8, LINK_LONG_MS), GW_ERR_PEER,
                "rank 2 (127.0.0.1:");
    }
    if (death != UNHEARD)
        world_expect_end(child, death == IN_GOOD_ORDER ? 0 : SIGKILL);
    /* The living go on. */
    link_test_send(context, &members[0].links[0], 1, 8, 4, 4);
    link_test_expect(&members[1].links[0], 0, 8, 4, 4);
    close(child_lives[0]);
    close(child_lives[1]);
    world_end();
}

TEST(killed_or_in_good_order)
{
    for (enum death death = KILLED; death <= UNHEARD; death++)
        die(death);
}

/* A member that has no memory left ends in good order all the same. */
TEST(in_good_order_without_memory)
{
    gw_message message;
    world_begin(3, 1);
    struct shortage shortage = {.for_good = true};
    gw_context *scarce = members[1].context = context_short_of(&shortage, 1);
    world_start(0, 3);
    world_join_all(3, GW_OK, NULL);
    fail_nth(&shortage, 1);
    gw_link_destroy(&members[1].links[0]);
    gw_context_destroy(scarce);
    assert_int_equal(shortage.live, 0);
    assert_int_equal(link_test_recv(&members[0].links[0], LINK_LONG_MS, &message), GW_ERR_PEER);
    assert_int_equal(message.from, 1);
    assert_int_equal(link_test_send_to_the_gone(context, &members[0].links[0], 1), GW_ERR_PEER);
    world_end();
}

/* ---- both live on ---------------------------------------------------------------------------------------- */

/* What a member must hear of the connection between ranks 0 and 1, from either of its ends. */
static bool is_the_cause(const char *sentence)
{
    const char *of_1 = strstr(sentence, "rank 1 (127.0.0.1:"), *of_0 = strstr(sentence, "rank 0 (127.0.0.1:");
    return !strstr(sentence, "rank 2") && !strstr(sentence, "failed") && !strstr(sentence, "left the link") &&
           ((of_1 && strstr(of_1, "lost its connection to rank 0")) ||
            (of_0 && strstr(of_0, "lost its connection to rank 1")));
}

static uint32_t reset_in_step;

/* Steps until it hears that a connection is gone. */
static void *take_steps(void *argument)
{
    struct world_member *m = argument;
    const gw_link *link = &m->links[0];
    const struct gw_tcp_endpoint *me = link->self;
    const gw_tensor tensor = {.name = "a", .n_elems = 1000};
    const struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    const int line = link->rank == 1 ? dup(me->peers[0].c.fd) : -1; /* once the exchange runs, `me` is its thread's */
    float gradient[1000] = {0};
    gw_codec *codec = NULL;
    gw_exchange *exchange = NULL;
    m->status = gw_codec_parse(NULL, "ternary", &codec);
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .link = *link,
                                         .codec = codec,
                                         .tensors = &tensor,
                                         .n_tensors = 1,
                                         .timeout_ms = 20000};
    if (m->status == GW_OK)
        m->status = gw_exchange_create(NULL, &options, &exchange);
    for (uint32_t t = 0; m->status == GW_OK; t++) {
        if (link->rank == 1 && t == reset_in_step) /* as a machine between the two would: both sides see a reset */
            connect(line, &nowhere, sizeof nowhere);
        m->status = gw_exchange_begin(exchange, t);
        if (m->status == GW_OK)
            m->status = gw_exchange_submit(exchange, 0, gradient);
        if (m->status == GW_OK)
            m->status = gw_exchange_wait(exchange, NULL);
    }
    snprintf(m->sentence, sizeof m->sentence, "%s", gw_last_error());
    gw_exchange_destroy(exchange);
    gw_codec_destroy(codec);
    if (line >= 0)
        close(line);
    return NULL;
}

/* A connection between two members is reset. All hear of it, with the same cause. Who only passes the news on is not
 * named as the one that failed. */
TEST(reset_under_steps)
{
    for (reset_in_step = 0; reset_in_step < 2; reset_in_step++) {
        world_meet(3, 1);
        for (uint32_t r = 0; r < 3; r++)
            assert_int_equal(pthread_create(&members[r].thread, NULL, take_steps, &members[r]), 0);
        world_join(members, 3);
        for (uint32_t r = 0; r < 3; r++) {
            CHECK(members[r].status == GW_ERR_PEER && is_the_cause(members[r].sentence), "rank %u: %d, %s", r,
                  members[r].status, members[r].sentence);
            members[r].status = GW_OK; /* its link is there */
        }
        world_end();
    }
}

/* ---- before all have met ------------------------------------------------------------------------------- */

#define N_MEMBERS 6u /* rank 0, and others in another process */
#define N_LINKS 2u
#define N_NEWCOMERS 8

static void come_and_go(void)
{
    int newcomers[N_NEWCOMERS];
    for (int i = 0; i < N_NEWCOMERS; i++)
        newcomers[i] = world_dial(place);
    for (int i = 0; i < N_NEWCOMERS; i++) /* to its end: then rank 0 has closed its side, and the number is free */
        assert_true(shutdown(newcomers[i], SHUT_WR) == 0 && peer_is_out(newcomers[i]));
    for (int i = 0; i < N_NEWCOMERS; i++)
        close(newcomers[i]);
}

/* All but rank 0, in a process of their own, so that its descriptors are rank 0's alone. */
static void be_the_others(int word)
{
    gw_message message;
    char byte;
    if (read(word, &byte, 1) != 1)
        _exit(2);
    world_start(1, N_MEMBERS - 1);
    world_join(members + 1, N_MEMBERS - 1);
    for (uint32_t r = 1; r < N_MEMBERS; r++)
        for (uint32_t l = 0; l < N_LINKS; l++)
            if (members[r].status < 0 || link_test_recv(&members[r].links[l], LINK_LONG_MS, &message) < 0)
                _exit(3);
    _exit(0);
}

/* Connections that come and go while members meet leave nothing behind, though members' own get the same numbers. */
TEST(newcomers_go_before_members_come)
{
    int word[2];
    world_begin(N_MEMBERS, N_LINKS);
    assert_int_equal(pipe(word), 0);
    const pid_t child = world_fork();
    if (child == 0)
        be_the_others(word[0]);
    world_start_one(&members[0]);
    come_and_go();
    assert_int_equal(write(word[1], "", 1), 1);
    world_join_all(1, GW_OK, NULL);
    for (uint32_t l = 0; l < N_LINKS; l++) { /* long enough for the end of a connection to become final */
        gw_message message;
        refused(link_test_recv(&members[0].links[l], 1000, &message), GW_ERR_TIMEOUT, "");
    }
    for (uint32_t l = 0; l < N_LINKS; l++)
        for (uint32_t r = 1; r < N_MEMBERS; r++)
            link_test_send(context, &members[0].links[l], r, 8, 0, 1);
    world_expect_end(child, 0);
    close(word[0]);
    close(word[1]);
    world_end();
}

int main(void)
{
    static const struct link_factory factory = {.name = "tcp", .news_travel = true};
    link_test_factory = &factory;
    return run_noted_tests("tcp death", NULL, NULL);
}
