/* Tests the search for a reason after a send has failed, on a link that has many messages, or says who is gone. */
#include "checks.h"

#include <gradwire/link.h>

#define MANY 3000u

/* Messages from MANY ranks wait, one from each. In between the link says of every tenth that it is gone. */
static gw_status has_many(void *self, uint32_t timeout_ms, gw_message *message)
{
    uint32_t *n_taken = self;
    assert_int_equal(timeout_ms, 0);
    if (*n_taken == MANY)
        return gw_fail(GW_ERR_TIMEOUT, "nothing more");
    message->from = (*n_taken)++;
    if (message->from % 10 == 0)
        return gw_fail(GW_ERR_PEER, "rank %u has lost its power", message->from);
    message->bytes = gw_message_alloc(NULL, message->n_bytes = 1);
    return GW_OK;
}

struct listener {
    uint32_t who_tells, n_seen;
};

static gw_status look_for(void *user, const gw_message *message)
{
    struct listener *listener = user;
    listener->n_seen++;
    if (message->from != listener->who_tells)
        return gw_fail(GW_ERR_FRAME_FIELD, "nonsense");
    return gw_fail(GW_ERR_PEER, "rank %u has gone home", message->from);
}

static void a_message_may_say_why(void **state)
{
    const gw_link_ops ops = {.name = "many", .recv = has_many};
    (void)state;
    for (int says = 0; says < 2; says++) {
        uint32_t n_taken = 0;
        const gw_link link = {.ops = &ops, .self = &n_taken, .size = MANY};
        struct listener listener = {.who_tells = says ? MANY - 1 : MANY};
        gw_fail(GW_ERR_PEER, "rank 1 is not there");
        assert_int_equal(gw_link_why(&link, look_for, &listener), GW_ERR_PEER);
        assert_string_equal(gw_last_error(), says ? "rank 2999 has gone home" : "rank 1 is not there");
        assert_int_equal(listener.n_seen, MANY - MANY / 10);
    }
}

static void what_a_member_said_is_found(void **state)
{
    gw_link links[2];
    (void)state;
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    links[1].ops->send(links[1].self, 0, gw_message_alloc(NULL, 20), 20, 0);
    gw_link_fail(&links[1], GW_ERR_MEMORY, "no memory");
    links[1].ops->close(links[1].self);
    assert_int_equal(links[0].ops->send(links[0].self, 1, gw_message_alloc(NULL, 20), 20, 0), GW_ERR_PEER);
    assert_int_equal(gw_link_why(&links[0], NULL, NULL), GW_ERR_PEER);
    assert_string_equal(gw_last_error(), "rank 1 failed: no memory");
    for (int r = 0; r < 2; r++)
        gw_link_destroy(&links[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_may_say_why),
        cmocka_unit_test(what_a_member_said_is_found),
    };
    return cmocka_run_group_tests_name("farewell", tests, NULL, NULL);
}
