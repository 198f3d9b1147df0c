/* Tests the wait for a peer's last words, on a link that tells them late, or never. */
#include "link/last_words.h"
#include "base/error.h"
#include "checks.h"

#include <time.h>

/* On a busy machine the tcp link took half a second until it was sure that a connection had broken. This is longer. */
#define LATE_MS 700u

static gw_status tells_late(void *self, uint32_t timeout_ms, gw_message *message)
{
    bool *told = self;
    (void)message;
    if (timeout_ms < LATE_MS)
        return gw_fail(GW_ERR_TIMEOUT, "nothing within %u ms", timeout_ms);
    nanosleep(&(struct timespec){.tv_nsec = LATE_MS * 1000000L}, NULL);
    *told = true;
    return gw_fail(GW_ERR_PEER, "rank 1 has lost its power");
}

static gw_status tells_nothing(void *self, uint32_t timeout_ms, gw_message *message)
{
    (void)self;
    (void)message;
    return gw_fail(GW_ERR_TIMEOUT, "nothing within %u ms", timeout_ms);
}

static void late_words_are_heard(void **state)
{
    bool told = false;
    const gw_link_ops ops = {.name = "late", .recv = tells_late};
    const gw_link link = {.ops = &ops, .self = &told};
    (void)state;
    gw_fail(GW_ERR_PEER, "rank 1 is not there");
    assert_true(gw_link_last_words(&link, NULL, NULL));
    assert_true(told);
    assert_string_equal(gw_last_error(), "rank 1 has lost its power");
}

static void without_words_the_sentence_stays(void **state)
{
    const gw_link_ops ops = {.name = "mute", .recv = tells_nothing};
    const gw_link link = {.ops = &ops};
    (void)state;
    gw_fail(GW_ERR_PEER, "rank 1 is not there");
    assert_false(gw_link_last_words(&link, NULL, NULL));
    assert_string_equal(gw_last_error(), "rank 1 is not there");
}

#define MANY 3000

/* Many messages wait; the link itself says nothing. */
static gw_status has_many(void *self, uint32_t timeout_ms, gw_message *message)
{
    uint32_t *n_taken = self;
    if (*n_taken == MANY)
        return tells_nothing(self, timeout_ms, message);
    message->from = ++*n_taken;
    message->bytes = gw_message_alloc(NULL, 1);
    message->n_bytes = 1;
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

static void a_message_may_have_the_words(void **state)
{
    const gw_link_ops ops = {.name = "many", .recv = has_many};
    uint32_t n_taken = 0;
    const gw_link link = {.ops = &ops, .self = &n_taken};
    struct listener listener = {.who_tells = MANY - 1};
    (void)state;
    gw_fail(GW_ERR_PEER, "rank 1 is not there");
    assert_true(gw_link_last_words(&link, look_for, &listener));
    assert_string_equal(gw_last_error(), "rank 2999 has gone home");
    assert_int_equal(listener.n_seen, MANY - 1);

    listener.who_tells = MANY + 1;
    gw_fail(GW_ERR_PEER, "rank 1 is not there");
    assert_false(gw_link_last_words(&link, look_for, &listener));
    assert_string_equal(gw_last_error(), "rank 1 is not there");
    assert_int_equal(listener.n_seen, MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_words_are_heard),
        cmocka_unit_test(without_words_the_sentence_stays),
        cmocka_unit_test(a_message_may_have_the_words),
    };
    return cmocka_run_group_tests_name("last words", tests, NULL, NULL);
}
