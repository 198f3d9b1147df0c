/* Tests whom a member names if nothing comes: members that are silent, and not those that say that they wait, too. */
#include "base/clock.h"
#include "exchange_stage.h"

#include <unistd.h>

enum { SAY_MS = 50 };

static gw_status status_of(struct stage *s)
{
    pthread_mutex_lock(&s->ex->lock);
    const gw_status status = s->ex->status;
    pthread_mutex_unlock(&s->ex->lock);
    return status;
}

/* Rank 0 waits for ranks 1 and 2. Those that `waiting` holds say WAITING every 50 ms. Rank 0 ends with `words`. */
static void wait_beside(const bool waiting[3], bool as_relays, uint32_t timeout_ms, const char *words)
{
    static const uint32_t machines[] = {0, 4, 4};
    uint8_t bytes[MESSAGE_HEADER];
    struct stage *s;
    double most;
    message_header_write(bytes, &(struct message_header){.type = MESSAGE_WAITING, .nth_step = 1, .step = STEP});
    do { /* again, if this thread itself was silent for too long */
        double said = gw_clock_seconds();
        most = 0;
        s = stage_begin("none", 3, timeout_ms, as_relays ? machines : NULL);
        for (uint32_t r = 1; r < 3; r++) {
            say(s, r, bytes, sizeof bytes); /* of an exchange before this one */
            say(s, r, s->hello, s->hello_bytes);
        }
        assert_int_equal(stage_submit(s), GW_OK);
        while (status_of(s) == GW_OK) {
            for (uint32_t r = 1; r < 3; r++)
                if (waiting[r])
                    say(s, r, bytes, sizeof bytes);
            const double now = gw_clock_seconds();
            most = now - said > most ? now - said : most;
            said = now;
            usleep(1000 * SAY_MS);
        }
        if (most >= timeout_ms / 2000.0)
            stage_end(s);
    } while (most >= timeout_ms / 2000.0);
    stage_ends(s, GW_OK, GW_ERR_TIMEOUT, words);
}

TEST(who_waits_too_is_not_named)
{
    wait_beside((bool[]){false, false, true}, false, 1000, "no gradients of group 0 came from rank 1 within 1000 ms");
    wait_beside((bool[]){false, false, true}, true, 1000, "no gradients of group 0 came from rank 1 within 1000 ms");
    /* If all say so for ever, the wait ends all the same. */
    wait_beside((bool[]){false, true, true}, false, 400, "no gradients of group 0 came from ranks 1 and 2 within");
}

/* Who has not said anything yet may come as late as the timeout lets it. */
TEST(strangers_have_all_the_time)
{
    struct stage *s = stage_begin("none", 3, 1000, NULL);
    const double begin = gw_clock_seconds();
    stage_ends(s, stage_submit(s), GW_ERR_TIMEOUT,
               "nothing has come from ranks 1 and 2 yet, and this rank has waited for 1000 ms");
    assert_true(gw_clock_seconds() - begin >= 1);
}

/* Rank 0 says WAITING once it has handed over all its tensors, however often something else comes. Before, others wait
 * for it. */
TEST(a_member_that_owes_nothing_says_so)
{
    for (int all = 0; all < 2; all++) {
        struct stage *s = stage_begin("none", 3, all ? 60000 : 400, NULL);
        gw_message message = {.bytes = NULL};
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

/* Rank 0's caller hands over its tensors late. Ranks that it sends nothing to hear at once that it is there. One quick
 * answer of many is enough: this machine may be slow. */
TEST(a_late_member_says_so_at_once)
{
    bool quick = false;
    for (int i = 0; i < 10 && !quick; i++) {
        struct stage *s = stage_begin("none", 3, 2000, NULL); /* WAITING comes twice a second */
        gw_message message;
        for (uint32_t r = 1; r < 3; r++)
            say(s, r, s->hello, s->hello_bytes);
        usleep(600000);
        const double begin = gw_clock_seconds();
        assert_int_equal(stage_submit(s), GW_OK);
        if (hear(s, 2, MESSAGE_WAITING, &message))
            gw_message_free(message.bytes);
        quick = gw_clock_seconds() - begin < 0.25;
        stage_end(s);
    }
    assert_true(quick);
}

/* Rank 1 is a step ahead. What it sends every 0.1 s is news, and rank 0 can do nothing with it. */
TEST(news_does_not_put_it_off)
{
    struct stage *s = stage_begin("none", 3, 60000, NULL);
    const double end = gw_clock_seconds() + 30;
    gw_message message;
    bool said = false;
    for (uint32_t r = 1; r < 3; r++)
        say(s, r, s->hello, s->hello_bytes);
    assert_int_equal(stage_submit(s), GW_OK);
    while (!said && gw_clock_seconds() < end) {
        uint8_t bytes[MESSAGE_BAD_BYTES] = {0};
        message_header_write(bytes, &(struct message_header){MESSAGE_PUSH, MESSAGE_FLAG_BAD, 2, 0, 0, STEP + 1});
        say(s, 1, bytes, sizeof bytes);
        usleep(100000);
        while (!said && gw_link_recv(&s->links[2], 0, &message) == GW_OK) {
            said = message_header_read(message.bytes).type == MESSAGE_WAITING;
            gw_message_free(message.bytes);
        }
    }
    assert_true(said);
    stage_end(s);
}

RUN_TESTS("silent", NULL, NULL)
