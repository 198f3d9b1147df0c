/* Tests whom a member names if nothing comes: members that are silent, and not those that say that they wait, too. */
#include "base/clock.h"
#include "exchange_stage.h"

#include <unistd.h>

/* Ranks that `waiting` holds say WAITING every 50 ms, and rank 0 waits for both ranks. It ends with `words`, and not
 * before `least_ms`. */
static void wait_beside(const bool waiting[3], bool as_relays, double least_ms, const char *words)
{
    static const uint32_t machines[] = {0, 4, 4};
    const struct message_header waits = {.type = MESSAGE_WAITING, .nth_step = 1, .step = STEP};
    uint8_t bytes[MESSAGE_HEADER];
    struct stage *s = stage_begin("none", 3, 300, as_relays ? machines : NULL);
    message_header_write(bytes, &waits);
    for (uint32_t r = 1; r < 3; r++) {
        say(s, r, bytes, sizeof bytes); /* of an exchange before this one */
        say(s, r, s->hello, s->hello_bytes);
    }
    const double begin = gw_clock_seconds();
    assert_int_equal(stage_submit(s), GW_OK);
    for (gw_status status = GW_OK; status == GW_OK;) {
        for (uint32_t r = 1; r < 3; r++)
            if (waiting[r])
                say(s, r, bytes, sizeof bytes);
        usleep(50000);
        pthread_mutex_lock(&s->ex->lock);
        status = s->ex->status;
        pthread_mutex_unlock(&s->ex->lock);
    }
    const double took_ms = 1000 * (gw_clock_seconds() - begin);
    CHECK(took_ms >= least_ms, "%s after %g ms", words, took_ms);
    stage_ends(s, GW_OK, GW_ERR_TIMEOUT, words);
}

static void who_waits_too_is_not_named(void **state)
{
    (void)state;
    wait_beside((bool[]){false, false, true}, false, 300, "no gradients of group 0 came from rank 1 within 300 ms");
    wait_beside((bool[]){false, false, true}, true, 300, "no gradients of group 0 came from rank 1 within 300 ms");
    /* If all say so for ever, the wait ends all the same. */
    wait_beside((bool[]){false, true, true}, false, 600, "no gradients of group 0 came from ranks 1 and 2 within");
}

/* Rank 0 says WAITING once it has handed over all its tensors. Before, others wait for it. */
static void a_member_that_owes_nothing_says_so(void **state)
{
    (void)state;
    for (int all = 0; all < 2; all++) {
        struct stage *s = stage_begin("none", 3, 400, NULL);
        gw_message message;
        for (uint32_t r = 1; r < 3; r++)
            say(s, r, s->hello, s->hello_bytes);
        assert_int_equal(gw_exchange_submit(s->ex, 1, s->gradients[1]), GW_OK);
        if (all)
            assert_int_equal(gw_exchange_submit(s->ex, 0, s->gradients[0]), GW_OK);
        assert_int_equal(hear(s, 1, MESSAGE_WAITING, &message), all);
        if (all) {
            assert_int_equal(message.n_bytes, MESSAGE_HEADER);
            gw_message_free(message.bytes);
        }
        stage_end(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_waits_too_is_not_named),
        cmocka_unit_test(a_member_that_owes_nothing_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
