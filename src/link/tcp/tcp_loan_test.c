/* Tests the loans of the tcp link: messages that are sent from where they stand, and received where they belong. */
#define _GNU_SOURCE /* nftw */
#include "link/loan.h"
#include "link/tcp/test_world.h"
#include "net/test_keys.h"

enum { LONG = 64 << 20, SHORT = GW_LOAN_LEAST }; /* LONG: more than the kernel keeps */

static uint8_t *sent, *received;
static const struct gw_link_loans *loans;
static const char *keys; /* NULL: in the clear */

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 31 + i / 251);
}

/* A loan of rank 0 to rank 1, or of rank 1 from rank 0, of the message with this key. */
static struct gw_loan loan_of(uint32_t peer, uint8_t key, void *body, size_t n_bytes)
{
    struct gw_loan loan = {.peer = peer, .body = body, .n_bytes = n_bytes};
    memset(loan.head, key, GW_LOAN_KEY);
    for (size_t i = GW_LOAN_KEY; i < GW_LOAN_HEAD; i++)
        loan.head[i] = (uint8_t)(peer + i); /* the receiver does not know it before */
    return loan;
}

static void meet(void)
{
    world_begin(2, 1);
    members[0].options.keys = members[1].options.keys = keys;
    world_start(0, 2);
    world_join_all(2, GW_OK, NULL);
    loans = gw_link_loans_of(&members[0].links[0]);
    assert_true(loans && loans == gw_link_loans_of(&members[1].links[0]));
    sent = malloc(LONG);
    received = malloc(LONG);
    for (size_t i = 0; i < LONG; i++)
        sent[i] = byte_at(i);
    memset(received, 0, LONG);
}

static void part(void)
{
    world_end();
    free(sent);
    free(received);
}

static gw_link *of(uint32_t rank)
{
    return &members[rank].links[0];
}

static void lend(struct gw_loan *loan)
{
    ok(loans->send(of(0)->self, loan));
}

static void flush(void)
{
    ok(of(0)->ops->flush(of(0)->self, LINK_LONG_MS));
}

static void *flush_in_thread(void *unused)
{
    (void)unused;
    gw_ignore(of(0)->ops->flush(of(0)->self, LINK_LONG_MS));
    return NULL;
}

/* Rank 1 receives a message, while rank 0 sends what waits there. */
static gw_message hear(void)
{
    gw_message message;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, flush_in_thread, NULL), 0);
    ok(link_test_recv(of(1), LINK_LONG_MS, &message));
    pthread_join(thread, NULL);
    assert_int_equal(message.from, 0);
    return message;
}

/* The message has come as a whole. */
static void expect_whole(gw_message message, const struct gw_loan *loan)
{
    const uint8_t *bytes = message.bytes;
    assert_int_equal(message.n_bytes, GW_LOAN_HEAD + loan->n_bytes);
    assert_null(gw_message_loan(&message));
    assert_memory_equal(bytes, loan->head, GW_LOAN_HEAD);
    for (size_t i = 0; i < loan->n_bytes; i++)
        if (bytes[GW_LOAN_HEAD + i] != byte_at(i))
            fail_msg("byte %zu of %zu is another one", i, loan->n_bytes);
    gw_message_free(message.bytes);
}

/* The message has come into the loan. */
static void expect_placed(gw_message message, struct gw_loan *loan, const struct gw_loan *from)
{
    assert_int_equal(message.n_bytes, GW_LOAN_HEAD);
    assert_ptr_equal(gw_message_loan(&message), loan);
    assert_memory_equal(message.bytes, from->head, GW_LOAN_HEAD);
    assert_memory_equal(loan->body, from->body, from->n_bytes);
    assert_false(loan->lent);
    gw_message_free(message.bytes);
}

/* All that was lent may be overwritten and freed now. */
static void overwrite(uint8_t **memory)
{
    memset(*memory, 0xEE, LONG);
    free(*memory);
    *memory = NULL;
}

TEST(a_message_is_sent_from_where_it_stands)
{
    meet();
    const size_t lengths[] = {SHORT, SHORT + 1, 1000003, LONG};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct gw_loan loan = loan_of(1, (uint8_t)i, sent, lengths[i]);
        lend(&loan);
        assert_true(loan.lent || lengths[i] < LONG);
        expect_whole(hear(), &loan);
        flush();
        assert_false(loan.lent);
    }
    part();
}

TEST(a_message_is_received_where_it_belongs)
{
    meet();
    const size_t lengths[] = {SHORT, 1000003, LONG};
    for (size_t i = 0; i < 3; i++) {
        struct gw_loan from = loan_of(1, 7, sent, lengths[i]), into = loan_of(0, 7, received, lengths[i]);
        loans->expect(of(1)->self, &into);
        lend(&from);
        expect_placed(hear(), &into, &from);
    }
    /* And one that was sent from memory of the link */
    struct gw_loan into = loan_of(0, 1, received, 100000 - GW_LOAN_HEAD);
    uint8_t *bytes = gw_message_alloc(context, 100000);
    memset(bytes, 1, 100000);
    loans->expect(of(1)->self, &into);
    ok(of(0)->ops->send(of(0)->self, 1, bytes, 100000, LINK_LONG_MS));
    gw_message message = hear();
    assert_ptr_equal(gw_message_loan(&message), &into);
    assert_true(received[0] == 1 && memcmp(received, received + 1, 100000 - GW_LOAN_HEAD - 1) == 0);
    gw_message_free(message.bytes);
    part();
}

/* Several are expected, in another order. Others come whole: of another key, of another length, or forgotten. */
TEST(only_the_right_message_is_placed)
{
    meet();
    struct gw_loan from = loan_of(1, 1, sent, SHORT), first = loan_of(0, 1, received, SHORT);
    struct gw_loan second = loan_of(0, 2, received + SHORT, SHORT), other = loan_of(0, 3, received, SHORT);
    struct gw_loan shorter = loan_of(0, 4, received, SHORT - 1), longer = loan_of(0, 4, received, SHORT + 1);
    struct gw_loan *all[] = {&first, &second, &other, &shorter, &longer};
    for (size_t i = 0; i < 5; i++)
        loans->expect(of(1)->self, all[i]);
    for (uint8_t key = 2; key > 0; key--) {
        memset(from.head, key, GW_LOAN_KEY);
        lend(&from);
        expect_placed(hear(), key == 1 ? &first : &second, &from);
        lend(&from);
        expect_whole(hear(), &from); /* it is expected once */
    }
    memset(from.head, 4, GW_LOAN_KEY);
    lend(&from);
    expect_whole(hear(), &from);
    assert_true(other.lent && shorter.lent && longer.lent);
    loans->forget(of(1)->self, &other);
    loans->forget(of(1)->self, &other);
    assert_false(other.lent);
    memset(from.head, 3, GW_LOAN_KEY);
    lend(&from);
    expect_whole(hear(), &from);
    loans->take_back(of(1)->self);
    assert_false(shorter.lent || longer.lent);
    part();
}

/* Rank 0 sends a message whose first bytes are the header. What comes is the same, wherever the header ends. */
TEST(the_header_may_end_anywhere)
{
    meet();
    static const size_t heads[] = {0, 1, GW_LOAN_HEAD - 1, GW_LOAN_HEAD};
    static const size_t lengths[] = {GW_LOAN_HEAD, GW_NET_SMALL - 1, GW_NET_SMALL, GW_NET_SMALL + 1,
                                     SHORT + GW_LOAN_HEAD - 1};
    struct gw_tcp_endpoint *me = of(0)->self;
    struct gw_loan into = loan_of(0, 0, received, SHORT);
    memcpy(into.head, sent, GW_LOAN_KEY);
    loans->expect(of(1)->self, &into);
    for (size_t i = 0; i < 20; i++) {
        const size_t n_head = heads[i % 4], n_bytes = lengths[i / 4];
        ok(gw_net_send_with(&me->peers[1].c, GW_TCP_DATA, sent, n_head, sent + n_head, n_bytes - n_head, NULL, NULL));
        gw_message message = hear();
        assert_int_equal(message.n_bytes, n_bytes);
        assert_memory_equal(message.bytes, sent, n_bytes);
        gw_message_free(message.bytes);
    }
    assert_true(into.lent);
    gw_message message;
    ok(gw_net_send_with(&me->peers[1].c, GW_TCP_DATA, sent, GW_LOAN_HEAD + 1, sent, SHORT, NULL, NULL));
    refused(link_test_recv(of(1), LINK_LONG_MS, &message), GW_ERR_PEER, "sent what no member sends");
    loans->take_back(of(1)->self);
    part();
}

/* What was lent for sending is taken back in the midst of it. The receiver gets what stood there. */
TEST(what_is_sent_is_taken_back)
{
    meet();
    struct gw_loan loan = loan_of(1, 1, sent, LONG), next = loan_of(1, 2, sent, SHORT);
    lend(&loan);
    lend(&next);
    assert_true(loan.lent && next.lent);
    loans->take_back(of(0)->self);
    assert_false(loan.lent || next.lent);
    overwrite(&sent);
    expect_whole(hear(), &loan);
    expect_whole(hear(), &next);
    part();
}

/* There is no memory for what is still to be sent. Then the connection ends, and both sides hear of it. */
TEST(without_memory_the_connection_ends)
{
    meet();
    gw_message message;
    struct gw_loan loan = loan_of(1, 1, sent, LONG);
    lend(&loan);
    fail_nth(&link_test_memory, 1);
    loans->take_back(of(0)->self);
    fail_nth(&link_test_memory, 0);
    assert_false(loan.lent);
    overwrite(&sent);
    refused(link_test_recv(of(0), LINK_LONG_MS, &message), GW_ERR_PEER, "died or lost its connection to rank 0");
    refused(link_test_recv(of(1), LINK_LONG_MS, &message), GW_ERR_PEER, "died or lost its connection to rank 1");
    part();
}

/* What was lent for receiving is taken back in the midst of it, or when it is filled and nobody has received that. The
 * next message comes as ever. */
static void take_back_received(bool all)
{
    for (int filled = 0; filled < 2; filled++) {
        meet();
        const size_t n_bytes = filled ? SHORT : LONG;
        gw_message message;
        struct gw_loan from = loan_of(1, 1, sent, n_bytes), into = loan_of(0, 1, received, n_bytes);
        loans->expect(of(1)->self, &into);
        lend(&from);
        for (int i = 0; i < 1000 && (filled ? into.lent : !received[2]); i++) {
            struct gw_tcp_endpoint *me = of(1)->self; /* it reads, and nobody takes what it has */
            int n;
            pthread_mutex_lock(&me->lock);
            ok(gw_tcp_turn(me, 0.01, &n));
            pthread_mutex_unlock(&me->lock);
        }
        assert_int_equal(into.lent, !filled);
        assert_int_equal(received[2], byte_at(2));
        if (all)
            loans->take_back(of(1)->self);
        else
            loans->forget(of(1)->self, &into);
        assert_false(into.lent);
        overwrite(&received);
        struct gw_loan next = loan_of(1, 2, sent, SHORT);
        lend(&next);
        message = hear();
        expect_whole(message, &next);
        part();
    }
}

TEST(what_is_received_is_taken_back)
{
    take_back_received(true);
}

TEST(what_is_received_is_forgotten)
{
    take_back_received(false);
}

/* A member is gone while loans are under way in both directions. */
TEST(who_is_gone_needs_no_loans)
{
    meet();
    gw_message message;
    struct gw_loan push = loan_of(1, 1, sent, LONG), pull = loan_of(1, 2, received, LONG);
    lend(&push);
    loans->expect(of(0)->self, &pull);
    gw_link_destroy(of(1));
    refused(link_test_recv(of(0), LINK_LONG_MS, &message), GW_ERR_PEER, "died or lost its connection to rank 0");
    assert_false(push.lent);
    refused(loans->send(of(0)->self, &push), GW_ERR_PEER, "died or lost its connection");
    assert_false(push.lent);
    loans->take_back(of(0)->self);
    assert_false(pull.lent);
    part();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_is_sent_from_where_it_stands),
        cmocka_unit_test(a_message_is_received_where_it_belongs),
        cmocka_unit_test(only_the_right_message_is_placed),
        cmocka_unit_test(the_header_may_end_anywhere),
        cmocka_unit_test(what_is_sent_is_taken_back),
        cmocka_unit_test(without_memory_the_connection_ends),
        cmocka_unit_test(what_is_received_is_taken_back),
        cmocka_unit_test(what_is_received_is_forgotten),
        cmocka_unit_test(who_is_gone_needs_no_loans),
    };
    world_raise_file_limit();
    int failed = cmocka_run_group_tests_name("loans of the tcp link", tests, begin, NULL);
    keys = at("job");
    failed += cmocka_run_group_tests_name("the same with keys", tests, NULL, end);
    return failed;
}
