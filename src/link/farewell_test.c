/* Tests the search for a reason after a send has failed, on a link that has many messages, or says who is gone. And
 * tests links that answer as no link may. */
#include "checks.h"

#include <gradwire/gradwire.h>
#include <string.h>

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

TEST(a_message_may_say_why)
{
    const gw_link_ops ops = {.name = "many", .recv = has_many};
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

TEST(what_a_member_said_is_found)
{
    gw_link links[2];
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

/* ---- links that lie ------------------------------------------------------------------------------------------ */

/* Says of rank 1 that it is gone, again and again. */
static gw_status has_no_end(void *self, uint32_t timeout_ms, gw_message *message)
{
    (void)self, (void)timeout_ms;
    message->from = 1;
    return gw_fail(GW_ERR_PEER, "rank 1 is gone");
}

TEST(a_search_ends)
{
    const gw_link_ops ops = {.name = "endless", .recv = has_no_end};
    const gw_link link = {.ops = &ops, .size = 2};
    gw_fail(GW_ERR_PEER, "rank 1 is not there");
    assert_int_equal(gw_link_why(&link, NULL, NULL), GW_ERR_PEER);
    assert_string_equal(gw_last_error(), "rank 1 is not there");
}

struct answer {
    gw_status status;
    gw_message message;
    gw_status want;
    const char *words;
};

static gw_status recv_answers(void *self, uint32_t timeout_ms, gw_message *message)
{
    const struct answer *answer = self;
    (void)timeout_ms;
    if (answer->status != GW_ERR_PEER) /* a link that forgets who it is about */
        *message = answer->message;
    return answer->status;
}

TEST(an_answer_that_cannot_be_is_refused)
{
    static const struct answer answers[] = {
        {GW_NOT_YET, {.from = 1}, GW_ERR_ARGUMENT, "the link's recv returned 1"},
        {(gw_status)7, {.from = 1}, GW_ERR_ARGUMENT, "the link's recv returned 7"},
        {GW_OK, {.from = 2}, GW_ERR_ARGUMENT, "0 bytes at NULL from rank 2; ranks are 0 to 1"},
        {GW_OK, {.from = 1, .n_bytes = 100}, GW_ERR_ARGUMENT, "100 bytes at NULL"},
        {GW_OK, {.from = 1}, GW_OK, ""},
        {GW_ERR_PEER, {.from = 0}, GW_ERR_PEER, "the link's recv failed: another member failed or left"},
        {(gw_status)-999, {.from = 0}, (gw_status)-999, "the link's recv failed: unknown status"},
    };
    const gw_link_ops ops = {.name = "liar", .recv = recv_answers};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        const gw_link link = {.ops = &ops, .self = (void *)&answers[i], .size = 2};
        gw_message message;
        gw_fail(GW_ERR_PEER, "a sentence of another call");
        const gw_status status = gw_link_recv(&link, 0, &message);
        CHECK(status == answers[i].want && strcmp(gw_last_error(), "a sentence of another call") != 0 &&
                  strstr(gw_last_error(), answers[i].words),
              "answer %zu: %d, %s", i, status, gw_last_error());
        if (status == GW_ERR_PEER)
            assert_int_equal(message.from, link.size);
    }
}

static gw_link under; /* what the liar's messages really travel over */

static gw_status send_says_not_yet(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    if (to != 0)
        return under.ops->send(self, to, bytes, n_bytes, timeout_ms);
    gw_message_free(bytes);
    return GW_NOT_YET;
}

static gw_status recv_under(void *self, uint32_t timeout_ms, gw_message *message)
{
    return under.ops->recv(self, timeout_ms, message);
}

static void close_under(void *self)
{
    under.ops->close(self);
}

/* The exchange ends in time, and so does its caller. */
TEST(a_send_that_says_not_yet_ends_the_exchange)
{
    const gw_link_ops ops = {
        .name = "liar", .send = send_says_not_yet, .recv = recv_under, .close = close_under, .destroy = close_under};
    const gw_tensor tensor = {.n_elems = 1};
    gw_link links[2];
    gw_codec *codec;
    gw_exchange *exchange;
    float value = 1;
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    under = links[1];
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = codec,
                                         .tensors = &tensor,
                                         .n_tensors = 1,
                                         .link = {.ops = &ops, .self = under.self, .rank = 1, .size = 2}};
    assert_int_equal(gw_exchange_create(NULL, &options, &exchange), GW_OK);
    gw_status status = gw_exchange_begin(exchange, 0);
    if (status == GW_OK)
        status = gw_exchange_submit(exchange, 0, &value);
    if (status == GW_OK)
        status = gw_exchange_wait(exchange, NULL);
    assert_int_equal(status, GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "the link's send returned 1"));
    gw_exchange_destroy(exchange);
    gw_codec_destroy(codec);
    for (int r = 0; r < 2; r++)
        gw_link_destroy(&links[r]);
}

RUN_TESTS("farewell", NULL, NULL)
