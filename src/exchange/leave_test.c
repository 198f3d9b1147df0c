/* Tests farewells of an exchange: who is named if members leave, in whatever order the others hear of it. */
#include "base/error.h"
#include "exchange_stage.h"

#include <sched.h>

/* A member that leaves and stays on the link repeats nothing and sends nothing more. */
TEST(a_farewell_is_the_last_word)
{
    uint8_t push[MESSAGE_HEADER];
    gw_message message;
    struct stage *s = stage_begin("none", 3, 0, NULL);
    for (uint32_t r = 1; r < 3; r++)
        say(s, r, s->hello, s->hello_bytes);
    message_header_write(push, &(struct message_header){.type = MESSAGE_PUSH, .nth_step = 2, .step = STEP + 1});
    say_leave(s, 1, 1, 1);
    say(s, 1, push, sizeof push);
    stage_ends(s, stage_submit(s), GW_ERR_FRAME_FIELD, "rank 1 sent a message of type 3 after its farewell");

    gw_link links[2];
    gw_codec *codec;
    gw_exchange *ex;
    const gw_tensor tensor = {.id = 0};
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    const gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[0]};
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_OK);
    assert_int_equal(gw_exchange_leave(ex), GW_OK);
    for (int nth = 0; nth < 2; nth++) { /* HELLO comes first */
        assert_int_equal(links[1].ops->recv(links[1].self, 10000, &message), GW_OK);
        CHECK(message_header_read(message.bytes).type == (nth ? MESSAGE_LEAVE : MESSAGE_HELLO), "message %d", nth);
        if (nth == 0) /* it says the same */
            assert_int_equal(links[1].ops->send(links[1].self, 0, message.bytes, message.n_bytes, 0), GW_OK);
        else
            gw_message_free(message.bytes);
    }
    void *answer = gw_message_alloc(NULL, MESSAGE_LEAVE_BYTES);
    message_header_write(answer, &(struct message_header){.type = MESSAGE_LEAVE, .nth_step = 1});
    memset(message_body(answer), 0, MESSAGE_LEAVE_BYTES - MESSAGE_HEADER); /* it leaves because rank 0 did */
    assert_int_equal(links[1].ops->send(links[1].self, 0, answer, MESSAGE_LEAVE_BYTES, 0), GW_OK);
    CHECK(links[1].ops->recv(links[1].self, 200, &message) == GW_ERR_TIMEOUT, "rank 1 hears: %s", gw_last_error());
    gw_exchange_destroy(ex);
    gw_link_destroy(&links[0]);
    gw_link_destroy(&links[1]);
    gw_codec_destroy(codec);
}

/* Rank 1 leaves before the step. So rank 0's exchange ends. Rank 2 may still be busy with the step before, so rank 0
 * does not tell it of a failure. Rank 0 leaves, too, and says that rank 1 was the first. If a farewell comes before
 * rank 1's first message (stale), it was meant for an earlier exchange, and rank 0 passes over it. */
TEST(a_farewell_is_passed_on_as_a_farewell)
{
    for (int stale = 0; stale < 2; stale++) {
        gw_message message;
        gw_status status;
        uint32_t farewells = 0;
        struct stage *s = stage_begin("none", 3, 200, NULL);
        if (stale)
            say_leave(s, 1, 1, 0);
        say(s, 1, s->hello, s->hello_bytes);
        say(s, 2, s->hello, s->hello_bytes);
        if (!stale)
            say_leave(s, 1, 1, 0);
        status = stage_finish_step(s);
        CHECK(status == (stale ? GW_ERR_TIMEOUT : GW_ERR_PEER), "stale %d: %d, %s", stale, status, gw_last_error());
        CHECK((strstr(gw_last_error(), "rank 1 has ended its exchange") != NULL) == !stale, "%s", gw_last_error());
        assert_int_equal(gw_exchange_leave(s->ex), status); /* the error that ended it */
        while ((status = gw_link_recv(&s->links[2], 1, &message)) == GW_OK) {
            const struct message_header h = message_header_read(message.bytes);
            if (h.type == MESSAGE_LEAVE) {
                const uint8_t *body = message_body(message.bytes);
                farewells++;
                assert_int_equal(message.n_bytes, MESSAGE_LEAVE_BYTES);
                assert_int_equal(h.nth_step, 1);
                assert_int_equal(gw_get32(body), 1);
                assert_int_equal(gw_get32(body + 4), 0);
            }
            gw_message_free(message.bytes);
        }
        CHECK(status == (stale ? GW_ERR_PEER : GW_ERR_TIMEOUT), "rank 2 hears: %s", gw_last_error());
        assert_int_equal(farewells, stale ? 0 : 1);
        stage_end(s);
    }
}

/* Rank 2 heard of rank 1's end, and ended itself. Rank 0 hears of it from rank 2 first. */
TEST(a_farewell_names_who_left_first)
{
    static const struct {
        uint32_t first, its_step;
        gw_status status;
        const char *words;
    } cases[] = {
        {1, 0, GW_ERR_PEER, "rank 1 has ended its exchange"},
        {1, 0xffff, GW_ERR_PEER,
         "rank 1 has ended its exchange"}, /* the number's low 16 bits; this is the step before 0 */
        {2, 0, GW_ERR_PEER, "rank 2 has ended its exchange"},
        {1, 1, GW_ERR_TIMEOUT, "came from ranks 1 and 2"}, /* it has made this step */
        {3, 0, GW_ERR_FRAME_FIELD, "rank 2 says that rank 3 left first, after step number 0, which is invalid"},
        {0, 0, GW_ERR_FRAME_FIELD, "rank 2 says that rank 0 left first"}, /* rank 0 knows better */
        {1, 0x10000, GW_ERR_FRAME_FIELD, "after step number 65536"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct stage *s = stage_begin("none", 3, 200, NULL);
        for (uint32_t r = 1; r < 3; r++)
            say(s, r, s->hello, s->hello_bytes);
        say_leave(s, 2, cases[c].first, cases[c].its_step);
        gw_status status = stage_finish_step(s);
        CHECK(status == cases[c].status && strstr(gw_last_error(), cases[c].words), "case %zu: %d, %s", c, status,
              gw_last_error());
        stage_end(s);
    }
}

/* Rank 1's farewell has come, but rank 0 sends to it before it reads that. A farewell before it comes from a rank that
 * there is not (strange). */
TEST(a_send_that_fails_finds_the_farewell)
{
    for (int strange = 0; strange < 2; strange++) {
        gw_message message;
        struct stage *s = stage_begin("none", 3, 0, NULL);
        say(s, 1, s->hello, s->hello_bytes);
        if (!strange)
            say(s, 2, s->hello, s->hello_bytes);
        atomic_store(&s->is_strange, strange);
        atomic_store(&s->breaks, true);
        gw_status status = stage_finish_step(s);
        CHECK(status == GW_ERR_PEER && strstr(gw_last_error(), "rank 1 has ended its exchange"), "%d, %s", status,
              gw_last_error());
        assert_true(hear(s, 2, MESSAGE_LEAVE, &message)); /* not a failure */
        assert_int_equal(gw_get32(message_body(message.bytes)), 1);
        gw_message_free(message.bytes);
        stage_end(s);
    }
}

/* Rank 1 has left before rank 0 could even say what it is part of. */
TEST(a_first_message_that_cannot_be_sent_finds_the_farewell)
{
    struct stage *first = stage_begin("none", 3, 0, NULL), *s = stage_open("none", 3);
    s->hello = first->hello;
    s->hello_bytes = first->hello_bytes;
    first->hello = NULL;
    stage_end(first);
    atomic_store(&s->breaks, true);
    stage_create(s, 0, NULL);
    gw_status status = gw_exchange_begin(s->ex, STEP);
    status = status == GW_OK ? stage_finish_step(s) : status;
    CHECK(status == GW_ERR_PEER && strstr(gw_last_error(), "rank 1 has ended its exchange"), "%d, %s", status,
          gw_last_error());
    stage_end(s);
}

/* Rank 2 fails between steps. Ranks 1 and 3 had left before, so no step could have followed. */
TEST(a_failure_between_steps_is_not_the_only_reason)
{
    for (int left = 0; left < 2; left++) {
        struct stage *s = stage_open("none", 4);
        stage_create(s, 0, NULL);
        stage_meet(s);
        for (uint32_t r = 1; r < 4; r += 2) {
            say(s, r, s->hello, s->hello_bytes);
            if (left)
                say_leave(s, r, r, 0);
        }
        gw_link_fail(&s->links[2], GW_ERR_MEMORY, "no memory");
        gw_status status;
        while ((status = gw_exchange_leave(s->ex)) == GW_OK) /* until the pipeline has heard of it */
            sched_yield();
        assert_int_equal(status, GW_ERR_PEER);
        assert_string_equal(gw_last_error(),
                            left ? "rank 2 failed: no memory; before that, rank 1 had ended its exchange"
                                 : "rank 2 failed: no memory");
        stage_end(s);
    }
}

static atomic_bool is_short;

static void *alloc_if_any(size_t bytes, void *user)
{
    (void)user;
    return atomic_load(&is_short) ? NULL : malloc(bytes);
}

static void free_any(void *memory, void *user)
{
    (void)user;
    free(memory);
}

/* Rank 1 leaves when it has no more memory. Rank 0, which has begun one step more, hears of it at once. */
TEST(who_has_no_memory_says_farewell_too)
{
    const gw_allocator allocator = {alloc_if_any, free_any, NULL};
    const gw_context_options of_context = {.struct_bytes = sizeof of_context, .allocator = &allocator};
    const gw_tensor tensor = {.n_elems = 1};
    gw_context *context;
    gw_link links[2];
    gw_codec *codec;
    gw_exchange *members[2];
    float values[2] = {1, 3};
    assert_int_equal(gw_context_create(&of_context, &context), GW_OK);
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    for (int r = 0; r < 2; r++) {
        const gw_exchange_options options = {
            .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[r]};
        assert_int_equal(gw_exchange_create(r ? context : NULL, &options, &members[r]), GW_OK);
        assert_int_equal(gw_exchange_begin(members[r], 0), GW_OK);
        assert_int_equal(gw_exchange_submit(members[r], 0, &values[r]), GW_OK);
    }
    for (int r = 0; r < 2; r++)
        assert_int_equal(gw_exchange_wait(members[r], NULL), GW_OK);
    atomic_store(&is_short, true);
    gw_exchange_destroy(members[1]);
    gw_status status = gw_exchange_begin(members[0], 1);
    if (status == GW_OK)
        status = gw_exchange_submit(members[0], 0, values);
    if (status == GW_OK)
        status = gw_exchange_wait(members[0], NULL);
    CHECK(status == GW_ERR_PEER && strstr(gw_last_error(), "rank 1 has ended its exchange"), "%d, %s", status,
          gw_last_error());
    gw_exchange_destroy(members[0]);
    for (int r = 0; r < 2; r++)
        gw_link_destroy(&links[r]);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
}

RUN_TESTS("farewells", NULL, NULL)
