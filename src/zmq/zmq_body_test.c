/* Tests values of messages, whole and in pieces: one as long as is allowed is taken, a longer one is dropped whole, and
 * so is one in pieces that cannot be. What comes after it is not touched. */
#include "zmq/body.h"

#include "base/error.h"

#include "checks.h"
#include "shortage.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct ends {
    void *zmq, *from, *to;
};

static struct ends begin(void)
{
    struct ends ends = {.zmq = zmq_ctx_new()};
    ends.from = zmq_socket(ends.zmq, ZMQ_PAIR);
    ends.to = zmq_socket(ends.zmq, ZMQ_PAIR);
    assert_true(ends.from && ends.to);
    assert_int_equal(zmq_bind(ends.to, "inproc://body"), 0);
    assert_int_equal(zmq_connect(ends.from, "inproc://body"), 0);
    return ends;
}

static void end(struct ends *ends)
{
    zmq_close(ends->from);
    zmq_close(ends->to);
    zmq_ctx_term(ends->zmq);
}

static void send_parts(const struct ends *ends, const uint8_t *bytes, const size_t *sizes, int n)
{
    for (int i = 0; i < n; bytes += sizes[i++])
        assert_int_equal(zmq_send(ends->from, bytes, sizes[i], i + 1 < n ? ZMQ_SNDMORE : 0), sizes[i]);
}

/* The next message at the socket is this one, and no other was left. */
static void expect_word(const struct ends *ends, const char *word)
{
    char text[16] = "";
    assert_int_equal(zmq_recv(ends->to, text, sizeof text, ZMQ_DONTWAIT), strlen(word));
    assert_string_equal(text, word);
}

static void lengths_and_pieces(void **state)
{
    (void)state;
    enum { PIECE = GW_ZMQ_PIECE };
    static const struct {
        size_t sizes[4];
        int n;
        size_t most;
        bool good;
    } cases[] = {
        {{0}, 1, 0, true},
        {{1}, 1, 0, false},
        {{100}, 1, 100, true},
        {{101}, 1, 100, false},
        {{PIECE}, 1, PIECE, true},
        {{PIECE + 1}, 1, PIECE + 1, true}, /* whole: the sender's line is fast enough */
        {{PIECE, 0}, 2, PIECE, true},
        {{PIECE, 5}, 2, PIECE + 5, true},
        {{PIECE, 6}, 2, PIECE + 5, false},
        {{PIECE, 5, 1}, 3, 4 * PIECE, false},
        {{PIECE - 1, 1}, 2, PIECE, false},
        {{PIECE + 1, 1}, 2, 4 * PIECE, false},
        {{1, 1, 1, 1}, 4, 4, false},
    };
    uint8_t *bytes = malloc(2 * GW_ZMQ_PIECE), *copy = malloc(2 * GW_ZMQ_PIECE);
    assert_true(bytes && copy);
    for (size_t i = 0; i < 2 * GW_ZMQ_PIECE; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 13));
    struct ends ends = begin();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct gw_zmq_body body;
        size_t all = 0;
        for (int i = 0; i < cases[c].n; i++)
            all += cases[c].sizes[i];
        send_parts(&ends, bytes, cases[c].sizes, cases[c].n);
        assert_int_equal(zmq_send(ends.from, "next", 4, 0), 4);
        const gw_status status = gw_zmq_body_take(NULL, ends.to, cases[c].most, &body);
        CHECK(status == (cases[c].good ? GW_OK : GW_ERR_CAPACITY), "case %zu: %d", c, status);
        CHECK(body.n_came == all && body.n_parts == (uint32_t)cases[c].n, "case %zu: %llu bytes in %u parts came", c,
              (unsigned long long)body.n_came, body.n_parts);
        if (cases[c].good) {
            CHECK(body.n_bytes == all && !body.only == (cases[c].n > 1), "case %zu", c);
            memset(copy, 0, all);
            gw_zmq_body_copy(NULL, &body, copy);
            CHECK(memcmp(copy, bytes, all) == 0 && !body.first && !body.only, "case %zu", c);
        } else {
            CHECK(!body.first && !body.only && body.n_bytes == 0, "case %zu: something is kept", c);
        }
        gw_zmq_body_free(NULL, &body);
        expect_word(&ends, "next");
    }
    end(&ends);
    free(bytes);
    free(copy);
}

static atomic_int n_held;

static void hold(void *owner)
{
    atomic_fetch_add((atomic_int *)owner, 1);
}

static void give(void *bytes, void *owner)
{
    (void)bytes;
    atomic_fetch_sub((atomic_int *)owner, 1);
}

/* What is sent comes in so many parts; all holds are given up in the end. */
static void sent_whole_and_in_pieces(void **state)
{
    (void)state;
    static const struct {
        size_t n_bytes;
        bool whole;
        uint32_t n_parts;
    } cases[] = {{0, false, 1},
                 {5, false, 1},
                 {GW_ZMQ_PIECE - 1, false, 1},
                 {GW_ZMQ_PIECE, false, 1},
                 {GW_ZMQ_PIECE + 1, false, 2},
                 {2 * GW_ZMQ_PIECE, false, 2},
                 {2 * GW_ZMQ_PIECE, true, 1}};
    uint8_t *bytes = calloc(2, GW_ZMQ_PIECE), *copy = malloc(2 * GW_ZMQ_PIECE);
    assert_true(bytes && copy);
    for (size_t i = 0; i < 2 * GW_ZMQ_PIECE; i += 1001)
        bytes[i] = (uint8_t)(1 + i);
    struct ends ends = begin();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct gw_zmq_body body;
        assert_true(gw_zmq_body_send(ends.from, bytes, cases[c].n_bytes, cases[c].whole, hold, give, &n_held));
        assert_true(zmq_send(ends.from, "next", 4, 0) == 4);
        assert_int_equal(gw_zmq_body_take(NULL, ends.to, cases[c].n_bytes, &body), GW_OK);
        CHECK(body.n_parts == cases[c].n_parts && body.n_bytes == cases[c].n_bytes, "case %zu: %u parts", c,
              body.n_parts);
        gw_zmq_body_copy(NULL, &body, copy);
        CHECK(memcmp(copy, bytes, cases[c].n_bytes) == 0, "case %zu", c);
        expect_word(&ends, "next");
    }
    end(&ends);
    assert_int_equal(atomic_load(&n_held), 0);
    free(bytes);
    free(copy);
}

/* Without memory for a piece, all of the message is dropped. */
static void memory_runs_out(void **state)
{
    (void)state;
    static const size_t sizes[] = {GW_ZMQ_PIECE, GW_ZMQ_PIECE, 3};
    struct shortage shortage = {0};
    const gw_allocator allocator = {short_alloc, short_free, &shortage};
    const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator, .n_threads = 1};
    gw_context *context;
    assert_int_equal(gw_context_create(&options, &context), GW_OK);
    uint8_t *bytes = calloc(3, GW_ZMQ_PIECE);
    assert_non_null(bytes);
    const int before = shortage.calls;
    struct ends ends = begin();
    for (int nth = 1; nth <= 3; nth++) {
        struct gw_zmq_body body;
        send_parts(&ends, bytes, sizes, 3);
        assert_int_equal(zmq_send(ends.from, "next", 4, 0), 4);
        shortage.calls = before;
        shortage.fail_at = before + nth;
        assert_int_equal(gw_zmq_body_take(context, ends.to, 3 * GW_ZMQ_PIECE, &body), GW_ERR_MEMORY);
        assert_int_equal(body.n_came, 2 * GW_ZMQ_PIECE + 3);
        assert_int_equal(body.n_parts, 3);
        expect_word(&ends, "next");
    }
    end(&ends);
    free(bytes);
    gw_context_destroy(context);
    assert_int_equal(shortage.live, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lengths_and_pieces),
        cmocka_unit_test(sent_whole_and_in_pieces),
        cmocka_unit_test(memory_runs_out),
    };
    return cmocka_run_group_tests_name("zmq body", tests, NULL, NULL);
}
