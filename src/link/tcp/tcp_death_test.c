/* Tests members of the tcp link that are processes and die. The parent forks before it has threads. */
#include "link/message.h"
#include "link/tcp/test_world.h"

#include <gradwire/exchange.h>
#include <signal.h>
#include <sys/wait.h>

enum death { KILLED, KILLED_AFTER_SENDING, IN_GOOD_ORDER };

#define N_SENT 20
#define SENT_BYTES 200000

/* Rank 2, in a process of its own. */
static void be_the_third(const char *place, enum death death)
{
    const gw_tcp_options options = {
        .struct_bytes = sizeof options, .rank = 2, .size = 3, .rendezvous = place, .timeout_ms = LINK_LONG_MS};
    gw_link link;
    gw_message message;
    if (gw_link_tcp_create(NULL, &options, 1, &link) < 0)
        _exit(2);
    for (uint32_t i = 0; i < N_SENT && death != KILLED; i++) {
        void *bytes = link_test_message(NULL, SENT_BYTES, 2, i);
        if (!bytes || link.ops->send_all(link.self, bytes, SENT_BYTES, LINK_LONG_MS) < 0)
            _exit(3);
    }
    if (death == IN_GOOD_ORDER) {
        link.ops->destroy(link.self);
        _exit(0); /* what was sent has left, though nobody asked for it yet */
    }
    link.ops->recv(link.self, LINK_LONG_MS, &message); /* the parent's word, at which it would be time to die */
    if (death == KILLED_AFTER_SENDING) {
        gw_ignore(link.ops->flush(link.self, LINK_LONG_MS)); /* all is in the kernel's hands */
        raise(SIGKILL);
    }
    link.ops->recv(link.self, LINK_LONG_MS, &message);
    _exit(4);
}

static void expect_sent(gw_link *link)
{
    for (uint32_t i = 0; i < N_SENT; i++) {
        gw_message message;
        gw_status status = link->ops->recv(link->self, LINK_LONG_MS, &message);
        if (status < 0)
            fail_msg("message %u: %d, %s", i, status, gw_last_error());
        assert_true(message.from == 2 && link_test_message_is(&message, SENT_BYTES, 2, i));
        gw_message_free(message.bytes);
    }
}

static void die(enum death death)
{
    struct world_member members[2];
    char place[32];
    gw_context *context = link_test_context();
    world_prepare(context, 2, 1, members, place);
    for (uint32_t r = 0; r < 2; r++) {
        members[r].options.size = 3;
    }
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_the_third(place, death);
    world_start(members, 2);
    world_join(members, 2);
    for (uint32_t r = 0; r < 2; r++)
        if (members[r].status < 0)
            fail_msg("rank %u: %s", r, members[r].sentence);
    gw_message message;
    int how;
    if (death == KILLED)
        kill(child, SIGKILL);
    if (death == KILLED_AFTER_SENDING)
        link_test_send(context, &members[0].links[0], 2, 8, 0, 0);
    for (uint32_t r = 0; r < 2 && death != KILLED; r++)
        expect_sent(&members[r].links[0]);
    for (uint32_t r = 0; r < 2; r++) {
        gw_link *link = &members[r].links[0];
        if (death == IN_GOOD_ORDER) {
            assert_int_equal(link->ops->recv(link->self, 500, &message), GW_ERR_TIMEOUT);
            assert_int_equal(link->ops->send(link->self, 2, gw_message_alloc(context, 8), 8, LINK_LONG_MS),
                             GW_ERR_PEER);
            assert_non_null(strstr(gw_last_error(), "rank 2 left"));
            continue;
        }
        assert_int_equal(link->ops->recv(link->self, LINK_LONG_MS, &message), GW_ERR_PEER);
        assert_non_null(strstr(gw_last_error(), "rank 2 (127.0.0.1:"));
        if (!strstr(gw_last_error(), "died or lost its connection"))
            fail_msg("rank %u: %s", r, gw_last_error());
        assert_int_equal(link->ops->send(link->self, 2, gw_message_alloc(context, 8), 8, LINK_LONG_MS), GW_ERR_PEER);
        assert_non_null(strstr(gw_last_error(), "rank 2 (127.0.0.1:"));
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    if (death == IN_GOOD_ORDER)
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    else
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
    /* The living go on. */
    link_test_send(context, &members[0].links[0], 1, 8, 4, 4);
    assert_int_equal(link_test_recv_underway(&members[1].links[0], &message), GW_OK);
    assert_true(message.from == 0 && link_test_message_is(&message, 8, 4, 4));
    gw_message_free(message.bytes);
    for (uint32_t r = 0; r < 2; r++)
        members[r].links[0].ops->destroy(members[r].links[0].self);
    link_test_end(context, NULL, 0);
}

static void killed(void **state)
{
    (void)state;
    die(KILLED);
}

static void killed_after_sending(void **state)
{
    (void)state;
    die(KILLED_AFTER_SENDING);
}

static void in_good_order(void **state)
{
    (void)state;
    die(IN_GOOD_ORDER);
}

static gw_context *meet_three(struct world_member members[3], gw_link *links[3])
{
    gw_context *context = link_test_context();
    world_meet(context, 3, 1, members, NULL);
    world_expect_all(members, 3, GW_OK, NULL);
    for (uint32_t r = 0; r < 3; r++)
        links[r] = &members[r].links[0];
    return context;
}

/* Tests a member that leaves before it has received all messages. The sender of such a message hears that at once, and
 * tells the others. */
static void left_with_messages_unread(void **state)
{
    (void)state;
    struct world_member members[3];
    gw_link *links[3];
    gw_context *context = meet_three(members, links);
    link_test_send(context, links[0], 2, 8, 1, 1);
    link_test_expect(links[2], 0, 8, 1, 1);
    link_test_send(context, links[1], 2, 8, 1, 1); /* not received */
    link_test_send(context, links[2], 0, 8, 3, 3);
    links[2]->ops->destroy(links[2]->self);
    link_test_expect(links[0], 2, 8, 3, 3);
    gw_message message;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(links[1 - i]->ops->recv(links[1 - i]->self, LINK_LONG_MS, &message), GW_ERR_PEER);
        assert_non_null(strstr(gw_last_error(), "rank 2 (127.0.0.1:"));
        assert_non_null(strstr(gw_last_error(), "left the link before it had received all that rank 1 sent it"));
    }
    for (uint32_t r = 0; r < 2; r++)
        links[r]->ops->destroy(links[r]->self);
    link_test_end(context, NULL, 0);
}

/* Receives, and gets nothing, until a rank has left. */
static void expect_to_leave(gw_link *link, uint32_t rank)
{
    const struct gw_tcp_endpoint *endpoint = link->self;
    gw_message message;
    while (endpoint->peers[rank].state != GW_TCP_LEFT)
        assert_int_equal(link->ops->recv(link->self, 10, &message), GW_ERR_TIMEOUT);
}

/* Rank 2 leaves because rank 0 failed. Rank 1 has not heard that yet, and hears it from rank 2: while it receives if
 * rank 2 has not taken all its messages, else when it sends to rank 2. */
static void leave_because_another_failed(bool unread)
{
    struct world_member members[3];
    gw_link *links[3];
    gw_context *context = meet_three(members, links);
    if (unread)
        link_test_send(context, links[1], 2, 8, 1, 1);
    struct gw_tcp_endpoint *third = links[2]->self;
    third->failed_peer = 0;
    snprintf(third->why, sizeof third->why, "rank 0 failed: it is out of paper");
    links[2]->ops->destroy(links[2]->self);
    gw_message message;
    if (unread) {
        assert_int_equal(links[1]->ops->recv(links[1]->self, LINK_LONG_MS, &message), GW_ERR_PEER);
    } else {
        expect_to_leave(links[1], 2);
        assert_int_equal(links[1]->ops->send(links[1]->self, 2, gw_message_alloc(context, 8), 8, LINK_LONG_MS),
                         GW_ERR_PEER);
    }
    assert_string_equal(gw_last_error(), "rank 0 failed: it is out of paper");
    /* rank 0 itself leaves in good order */
    links[0]->ops->destroy(links[0]->self);
    if (!unread) {
        expect_to_leave(links[1], 0);
        assert_int_equal(links[1]->ops->send(links[1]->self, 0, gw_message_alloc(context, 8), 8, LINK_LONG_MS),
                         GW_ERR_PEER);
        assert_string_equal(gw_last_error(), "rank 0 left the link");
    }
    links[1]->ops->destroy(links[1]->self);
    link_test_end(context, NULL, 0);
}

static void left_because_another_failed(void **state)
{
    (void)state;
    leave_because_another_failed(true);
    leave_because_another_failed(false);
}

static atomic_bool refuses;

static void *refusing_alloc(size_t bytes, void *user)
{
    return atomic_load(&refuses) ? NULL : link_test_alloc(bytes, user);
}

/* A member that has no memory left ends in good order all the same. */
static void in_good_order_without_memory(void **state)
{
    (void)state;
    const gw_allocator allocator = {refusing_alloc, link_test_free, NULL};
    const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator};
    struct world_member members[3];
    char place[32];
    gw_message message;
    gw_context *context = link_test_context(), *scarce;
    atomic_store(&refuses, false);
    assert_int_equal(gw_context_create(&options, &scarce), GW_OK);
    world_prepare(context, 3, 1, members, place);
    members[1].context = scarce;
    world_start(members, 3);
    world_join(members, 3);
    world_expect_all(members, 3, GW_OK, NULL);
    atomic_store(&refuses, true);
    members[1].links[0].ops->destroy(members[1].links[0].self);
    gw_context_destroy(scarce);
    assert_int_equal(members[0].links[0].ops->recv(members[0].links[0].self, 1500, &message), GW_ERR_TIMEOUT);
    assert_int_equal(link_test_send_to_the_gone(context, &members[0].links[0], 1), GW_ERR_PEER);
    assert_string_equal(gw_last_error(), "rank 1 left the link");
    members[0].links[0].ops->destroy(members[0].links[0].self);
    members[2].links[0].ops->destroy(members[2].links[0].self);
    link_test_end(context, NULL, 0);
}

static void send_farewell(gw_context *context, gw_link *link, uint32_t to)
{
    void *farewell = gw_message_alloc(context, 8);
    assert_non_null(farewell);
    gw_message_node_of(farewell)->farewell = true;
    assert_int_equal(link->ops->send(link->self, to, farewell, 8, LINK_LONG_MS), GW_OK);
}

/* A farewell is another thing: nobody misses it. */
static void left_with_a_farewell_unread(void **state)
{
    (void)state;
    struct world_member members[3];
    gw_link *links[3];
    gw_context *context = meet_three(members, links);
    send_farewell(context, links[1], 2);
    link_test_send(context, links[2], 1, 8, 3, 3);
    links[2]->ops->destroy(links[2]->self);
    link_test_expect(links[1], 2, 8, 3, 3);
    gw_message message;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(links[1 - i]->ops->recv(links[1 - i]->self, 300, &message), GW_ERR_TIMEOUT);
    for (uint32_t r = 0; r < 2; r++)
        links[r]->ops->destroy(links[r]->self);
    link_test_end(context, NULL, 0);
}

/* A farewell that was received does not stand for a message that was not. */
static void left_with_a_message_behind_a_farewell_unread(void **state)
{
    (void)state;
    struct world_member members[3];
    gw_link *links[3];
    gw_context *context = meet_three(members, links);
    gw_message message;
    send_farewell(context, links[1], 2);
    assert_int_equal(links[2]->ops->recv(links[2]->self, LINK_LONG_MS, &message), GW_OK);
    gw_message_free(message.bytes);
    link_test_send(context, links[1], 2, 8, 1, 1);
    links[2]->ops->destroy(links[2]->self);
    assert_int_equal(links[1]->ops->recv(links[1]->self, LINK_LONG_MS, &message), GW_ERR_PEER);
    assert_non_null(strstr(gw_last_error(), "left the link before it had received all that rank 1 sent it"));
    for (uint32_t r = 0; r < 2; r++)
        links[r]->ops->destroy(links[r]->self);
    link_test_end(context, NULL, 0);
}

/* Rank 2 left before it had received all. Rank 1 hears of that only when it leaves itself. So nothing of rank 1 has
 * failed, and rank 0 goes on. */
static void who_leaves_has_not_failed(void **state)
{
    (void)state;
    struct world_member members[3];
    gw_link *links[3];
    gw_context *context = meet_three(members, links);
    gw_message message;
    link_test_send(context, links[1], 2, 8, 1, 1); /* not received */
    links[2]->ops->destroy(links[2]->self);
    expect_to_leave(links[0], 2);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL); /* rank 1 has the farewell by now, too */
    links[1]->ops->destroy(links[1]->self);
    expect_to_leave(links[0], 1);
    assert_int_equal(links[0]->ops->recv(links[0]->self, 100, &message), GW_ERR_TIMEOUT);
    links[0]->ops->destroy(links[0]->self);
    link_test_end(context, NULL, 0);
}

/* An exchange hears it, too, if one member does not take part in a step. */
static void left_under_a_step(void **state)
{
    (void)state;
    struct world_member members[2];
    gw_context *context = link_test_context();
    world_meet(context, 2, 1, members, NULL);
    world_expect_all(members, 2, GW_OK, NULL);
    gw_link *first = &members[0].links[0], *second = &members[1].links[0];
    float gradients[2][1000] = {{0}};
    const gw_tensor tensors[2] = {{.name = "a", .id = 0, .n_elems = 1000}, {.name = "b", .id = 1, .n_elems = 1000}};
    gw_codec *codec;
    assert_int_equal(gw_codec_parse(context, "none", &codec), GW_OK);
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .link = *first,
                                         .codec = codec,
                                         .tensors = tensors,
                                         .n_tensors = 2,
                                         .timeout_ms = LINK_LONG_MS};
    gw_exchange *exchange;
    assert_int_equal(gw_exchange_create(context, &options, &exchange), GW_OK);
    assert_int_equal(gw_exchange_begin(exchange, 0), GW_OK);
    for (uint32_t t = 0; t < 2; t++)
        assert_int_equal(gw_exchange_submit(exchange, t, gradients[t]), GW_OK);
    second->ops->destroy(second->self);
    assert_int_equal(gw_exchange_wait(exchange, NULL), GW_ERR_PEER);
    assert_non_null(strstr(gw_last_error(), "rank 1"));
    assert_non_null(strstr(gw_last_error(), "left the link"));
    gw_exchange_destroy(exchange);
    gw_codec_destroy(codec);
    first->ops->destroy(first->self);
    link_test_end(context, NULL, 0);
}

/* ---- before all have met ------------------------------------------------------------------------------- */

#define N_MEMBERS 6u /* rank 0, and others in another process */
#define N_LINKS 2u
#define N_STRANGERS 8

static void come_and_go(const char *place)
{
    int strangers[N_STRANGERS];
    char byte;
    for (int i = 0; i < N_STRANGERS; i++)
        strangers[i] = world_dial(place);
    for (int i = 0; i < N_STRANGERS; i++) /* to its end: then rank 0 has closed its side, and the number is free */
        for (shutdown(strangers[i], SHUT_WR); read(strangers[i], &byte, 1) > 0;)
            ;
    for (int i = 0; i < N_STRANGERS; i++)
        close(strangers[i]);
}

/* All but rank 0, in a process of their own, so that its descriptors are rank 0's alone. */
static void be_the_others(struct world_member *members, int word)
{
    gw_message message;
    char byte;
    if (read(word, &byte, 1) != 1)
        _exit(2);
    world_start(members + 1, N_MEMBERS - 1);
    world_join(members + 1, N_MEMBERS - 1);
    for (uint32_t r = 1; r < N_MEMBERS; r++)
        for (uint32_t l = 0; l < N_LINKS; l++)
            if (members[r].status < 0 ||
                members[r].links[l].ops->recv(members[r].links[l].self, LINK_LONG_MS, &message) < 0)
                _exit(3);
    _exit(0);
}

/* Connections that come and go while members meet leave nothing behind, though members' own get the same numbers. */
static void strangers_go_before_members_come(void **state)
{
    (void)state;
    struct world_member members[N_MEMBERS];
    char place[32];
    int word[2], how;
    gw_context *context = link_test_context();
    world_prepare(context, N_MEMBERS, N_LINKS, members, place);
    assert_int_equal(pipe(word), 0);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        be_the_others(members, word[0]);
    world_start_one(&members[0]);
    come_and_go(place);
    assert_int_equal(write(word[1], "", 1), 1);
    world_join(members, 1);
    world_expect_all(members, 1, GW_OK, NULL);
    for (uint32_t l = 0; l < N_LINKS; l++) { /* long enough for the end of a connection to become final */
        gw_message message;
        gw_status status = members[0].links[l].ops->recv(members[0].links[l].self, 1000, &message);
        if (status != GW_ERR_TIMEOUT)
            fail_msg("link %u: %d, %s", l, status, gw_last_error());
    }
    for (uint32_t l = 0; l < N_LINKS; l++)
        for (uint32_t r = 1; r < N_MEMBERS; r++)
            link_test_send(context, &members[0].links[l], r, 8, 0, 1);
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    world_end_links(members, 1);
    close(word[0]);
    close(word[1]);
    link_test_end(context, NULL, 0);
}

int main(void)
{
    static const struct link_factory factory = {.name = "tcp", .news_travel = true};
    link_test_factory = &factory;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_go_before_members_come),
        cmocka_unit_test(killed),
        cmocka_unit_test(killed_after_sending),
        cmocka_unit_test(in_good_order),
        cmocka_unit_test(in_good_order_without_memory),
        cmocka_unit_test(left_with_messages_unread),
        cmocka_unit_test(left_because_another_failed),
        cmocka_unit_test(left_with_a_farewell_unread),
        cmocka_unit_test(left_with_a_message_behind_a_farewell_unread),
        cmocka_unit_test(who_leaves_has_not_failed),
        cmocka_unit_test(left_under_a_step),
    };
    return cmocka_run_group_tests_name("tcp death", tests, NULL, NULL);
}
