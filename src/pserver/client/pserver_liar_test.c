/* Tests a client with servers that lie, over real sockets. Whatever they answer, the client refuses it in time, with a
 * sentence, and uses none of it. */
#include "base/clock.h"
#include "net/test_place.h"
#include "pserver/client/for_exchange.h"
#include "pserver/client/test_calls.h"
#include "pserver/client/test_liar.h"

#include <gradwire/codec.h>

/* LARGE: elements. If there are several servers, so many float32 are divided into parts. */
enum { LARGE = 1 << 19, MOST_LIARS = 3 };

/* One client with n servers, which lie, and at once. */
static struct {
    struct liar liars[MOST_LIARS];
    uint32_t n;
    gw_ps_client *client;
    double since;
} scene;

/* Only server `which` tells the lie. n: all do. */
static void meet(uint32_t n, uint32_t which, const struct lie *lie, bool joins, uint32_t timeout_ms)
{
    char places[4 * sizeof scene.liars[0].place * MOST_LIARS] = "";
    scene.n = n;
    for (uint32_t i = 0; i < n; i++) {
        liar_begin(&scene.liars[i], which == n || which == i ? lie : NULL);
        snprintf(places + strlen(places), sizeof places - strlen(places), "%s%s", i ? "," : "", scene.liars[i].place);
    }
    scene.client = test_client(places, 0, joins, timeout_ms);
    scene.since = gw_clock_seconds();
}

static void part(void)
{
    gw_ps_client_destroy(scene.client);
    for (uint32_t i = 0; i < scene.n; i++)
        liar_end(&scene.liars[i]);
}

/* The client itself must have refused the answer, and at once: not because a deadline has passed. */
#define refused_at_once(call, words)                                                                                   \
    do {                                                                                                               \
        refused(call, GW_ERR_PEER, words);                                                                             \
        assert_true(gw_clock_seconds() - scene.since < LONG_MS / 1000.0);                                              \
    } while (0)

#define ROW(n)                                                                                                         \
    {                                                                                                                  \
        .n_dims = 1, .dims = { n }                                                                                     \
    }

/* An answer with a value: its code (the type), number, pushes, bytes, and shape. */
#define VALUE(operation, type, nth, pushes, bytes, ...)                                                                \
    {                                                                                                                  \
        operation, NULL, {.code = type, .number = nth, .shape = __VA_ARGS__, .n_pushes = pushes}, bytes, 0             \
    }

/* The client pulls a float32 key of 1 element or of LARGE elements, and the answer is a lie. */
TEST(pulls_that_lie)
{
    static const struct {
        struct lie lie;
        uint64_t n_elems; /* of the key; 0: it is not initialised here */
        uint32_t n_servers;
        const char *words;
    } cases[] = {
        /* numbers of no type, and another type than the key's: from one server, and in parts from two */
        {VALUE(GW_PS_PULL, 0, 1, 1, 4, ROW(1)), 1, 1, "type number 0"},
        {VALUE(GW_PS_PULL, 0, 1, 1, 2 * LARGE, ROW(LARGE / 2)), LARGE, 2, "type number 0"},
        {VALUE(GW_PS_PULL, 7, 1, 1, 2 * LARGE, ROW(LARGE / 2)), LARGE, 2, "type number 7"},
        {VALUE(GW_PS_PULL, 99, 1, 1, 2 * LARGE, ROW(LARGE / 2)), LARGE, 2, "type number 99"},
        {VALUE(GW_PS_PULL, 99, 1, 1, 4, ROW(1)), 0, 1, "type number 99"},
        {VALUE(GW_PS_PULL, GW_PS_INT64, 1, 1, 8, ROW(1)), 1, 1, "type number 5"},
        /* lengths */
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 16, ROW(1 << 20)), 0, 1, "16 bytes as the value"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 16, ROW(1ull << 63)), 0, 1, "the invalid shape"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 16, {.n_dims = 2, .dims = {1ull << 32, 1ull << 32}}), 0, 1,
         "the invalid shape"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 16, ROW(4)), 1, 1, "the shape [4]"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 3, ROW(1)), 1, 1, "3 bytes as the value"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 16, ROW(LARGE / 2)), LARGE, 2, "16 bytes as the value"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 4, ROW(2)), 1, 1, "the shape [2]"},
        /* no value */
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 0, ROW(1)), 1, 1, "without a value"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 1, 0, ROW(1)), 0, 1, "without a value"},
        /* counts */
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 3, 4, ROW(1)), 1, 1, "3 pushes"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, 1, 0, 4, ROW(1)), 1, 1, "0 pushes"},
        {VALUE(GW_PS_PULL, GW_PS_FLOAT32, UINT64_MAX, 1, 4, ROW(1)), 1, 1, "at most 2^62"},
        /* the answer to another operation, and bytes that are no answer */
        {{GW_PS_PULL, NULL, {.operation = GW_PS_MEMBERS, .number = 1}, 2, 0}, 1, 1, "answered with a MEMBERS"},
        {{GW_PS_PULL, NULL, {.number = 1}, 100, .raw = true}, 1, 1, "sent an invalid answer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_ps_value value;
        meet(cases[i].n_servers, cases[i].n_servers, &cases[i].lie, false, LONG_MS);
        if (cases[i].n_elems)
            ok(test_init(scene.client, "x", GW_PS_FLOAT32, cases[i].n_elems, NULL, NULL));
        refused_at_once(gw_ps_pull(scene.client, "x", GW_PS_MAX, NULL, &value), cases[i].words);
        assert_true(value.bytes == NULL && value.n_bytes == 0);
        part();
    }
}

/* The client pulls codes, and their scale from another key. An answer has a length that no value can have, such as
 * 100,001 bytes. The client must refuse it, and read and write nothing beyond its end. */
TEST(a_scaled_pull_of_an_odd_length)
{
    static const struct lie lies[] = {
        {GW_PS_PULL, "codes", {.code = GW_PS_FLOAT32, .number = 1, .shape = ROW(LARGE), .n_pushes = 1}, 100001, 0},
        {GW_PS_PULL, "scale", {.code = GW_PS_FLOAT32, .number = 1, .shape = ROW(1), .n_pushes = 1}, 1, 0},
        {GW_PS_PULL, "scale", {.code = GW_PS_INT64, .number = 1, .shape = ROW(1), .n_pushes = 1}, 0, 0},
    };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        gw_ps_value value;
        meet(2, 2, &lies[i], false, LONG_MS);
        ok(test_init(scene.client, "codes", GW_PS_UINT8, 4 * LARGE, NULL, NULL));
        init(scene.client, "scale");
        refused_at_once(gw_ps_pull(scene.client, "codes", GW_PS_DECODE_SUM, "scale", &value), "answered");
        assert_null(value.bytes);
        part();
    }
}

/* The client sends other requests than pulls, and gets answers that cannot be true. */
TEST(other_lies)
{
    enum { INIT, PUSH, GET, MEMBERS, JOIN };
    static const struct {
        struct lie lie;
        int call;
        const char *words;
    } cases[] = {
        {{GW_PS_INIT, NULL, {.number = UINT64_MAX}, 0, 0}, INIT, "at most 2^62"},
        {{GW_PS_INIT, NULL, {.number = 0}, 50, 0}, INIT, "with a value"},
        {{GW_PS_INIT, NULL, {.status = GW_ERR_PEER}, 0, 0}, INIT, "the server gives no reason"},
        {{GW_PS_PUSH, NULL, {.number = 7}, 0, 0}, PUSH, "it must be 2"},
        {{GW_PS_GET, NULL, {.code = GW_PS_FLOAT32, .number = 4, .shape = ROW(1)}, 4, 0}, GET, "with version 4"},
        {VALUE(GW_PS_GET, GW_PS_FLOAT32, 5, 1, 4, ROW(1)), GET, "1 pushes"},
        {{GW_PS_MEMBERS, NULL, {.number = 1}, 1000, 0}, MEMBERS, "told of 1000 workers"},
        {{GW_PS_MEMBERS, NULL, {.number = 1}, 1, 0}, MEMBERS, "told of 1 workers"},
        {{GW_PS_MEMBERS, NULL, {.number = 0}, 2, 0}, MEMBERS, "the round 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_ps_value value;
        gw_status status;
        gw_ps_presence presence[4] = {9, 9, 9, 9};
        const float x = 1;
        meet(1, 0, &cases[i].lie, false, LONG_MS);
        status = test_init(scene.client, "x", GW_PS_FLOAT32, 1, NULL, NULL);
        if (cases[i].call == PUSH)
            status = gw_ps_push(scene.client, "x", &x, sizeof x);
        else if (cases[i].call == GET)
            status = gw_ps_get(scene.client, "x", 5, &value);
        else if (cases[i].call == MEMBERS)
            status = gw_ps_members(scene.client, presence, sizeof presence / sizeof *presence, NULL);
        refused_at_once(status, cases[i].words);
        assert_true(presence[2] == 9 && presence[3] == 9);
        part();
    }
}

/* A server's welcome says what no server can be. The client must not accept that server. */
TEST(no_such_server)
{
    static const struct {
        struct lie lie;
        const char *words;
    } cases[] = {
        {{GW_PS_HELLO, NULL, {.n_workers = 0}, 0, 0}, "for 0 workers"},
        {{GW_PS_HELLO, NULL, {.n_workers = 1u << 31}, 0, 0}, "for 2147483648 workers"},
        {{GW_PS_HELLO, NULL, {.n_workers = GW_MAX_WORKERS + 1}, 0, 0}, "for 32768 workers"},
        {{GW_PS_HELLO, NULL, {.n_workers = GW_MAX_WORKERS, .backup = GW_MAX_WORKERS}, 0, 0}, "32767 of its 32767"},
        {{GW_PS_HELLO, NULL, {.n_workers = 2, .backup = 2}, 0, 0}, "2 of its 2 workers"},
        {{GW_PS_HELLO, NULL, {.n_workers = 2}, 28, .raw = true}, "sent an invalid answer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct liar liar;
        gw_ps_client *client = NULL;
        liar_begin(&liar, &cases[i].lie);
        const gw_ps_client_options options = {.servers = liar.place, .timeout_ms = LONG_MS};
        scene.since = gw_clock_seconds();
        refused_at_once(test_client_create(options, &client), cases[i].words);
        assert_null(client);
        liar_end(&liar);
    }
}

/* What a server says at length loses its middle here, not its end: the reason stands there. */
TEST(a_long_sentence_keeps_its_end)
{
    struct lie lie = {GW_PS_HELLO, NULL, {.status = GW_ERR_ARGUMENT}, 0, 0};
    struct liar liar;
    gw_ps_client *client;
    memset(lie.answer.sentence, 'x', GW_PS_SENTENCE - 1);
    memcpy(lie.answer.sentence + GW_PS_SENTENCE - 8, "the end", 7);
    liar_begin(&liar, &lie);
    const gw_ps_client_options options = {.servers = liar.place, .timeout_ms = LONG_MS};
    refused(test_client_create(options, &client), GW_ERR_PEER, "the end");
    assert_non_null(strstr(gw_last_error(), "refused this client: xxx"));
    liar_end(&liar);
}

/* gw_ps_members never writes beyond the caller's buffer. If the buffer is too small, nothing is written. */
TEST(members_stay_in_their_room)
{
    gw_ps_presence presence[8] = {9, 9, 9, 9, 9, 9, 9, 9};
    gw_ps_client *client = come(0);
    refused(gw_ps_members(client, presence, 4, NULL), GW_ERR_CAPACITY, "room for 4 workers; the servers are for 5");
    assert_int_equal(presence[0], 9);
    ok(gw_ps_members(client, presence, 5, NULL));
    assert_true(presence[0] == GW_PS_PRESENT && presence[5] == 9);
    gw_ps_client_destroy(client);
}

/* A server is started again at the same address, for more workers. The client must notice it, and must not write
 * beyond the caller's buffer. */
TEST(another_number_of_workers)
{
    char place[PLACE_BYTES];
    gw_ps_presence presence[1000];
    find_place(place);
    serve(1, &(gw_ps_server_options){.n_workers = 2, .listen = place});
    gw_ps_client *client = come(0);
    end_serving();
    serve(1, &(gw_ps_server_options){.n_workers = 1000, .listen = place});
    scene.since = gw_clock_seconds();
    refused_at_once(gw_ps_members(client, presence, 1000, NULL), "for 2 workers and is for 1000 now");
    assert_int_equal(gw_ps_client_info(client).n_workers, 2);
    gw_ps_client_destroy(client);
    end_serving();
}

/* Servers answer "not yet" until the client's deadline has passed. The client must return GW_ERR_TIMEOUT. If a value is
 * in two parts on two servers, it must wait for both. */
TEST(not_yet_until_it_is_too_late)
{
    static const struct {
        struct lie lie;
        uint64_t n_elems; /* of the key */
        uint32_t who;     /* lies; 2: both */
    } cases[] = {
        {{GW_PS_ADMIT, NULL, {.status = GW_ERR_ORDER, .sentence = "beyond that round"}, 0, 0}, 1, 2},
        {{GW_PS_AGREE, NULL, {.status = GW_ERR_ORDER, .sentence = "may be back in a moment"}, 0, 0}, 1, 2},
        {{GW_PS_INIT, NULL, {.status = GW_ERR_ORDER, .sentence = "may be back soon"}, 0, 0}, 1, 2},
        {{GW_PS_INIT, NULL, {.status = GW_ERR_ORDER, .sentence = "may be back soon"}, 0, 0}, LARGE, 0},
        {{GW_PS_INIT, NULL, {.status = GW_ERR_ORDER, .sentence = "may be back soon"}, 0, 0}, LARGE, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t round;
        meet(2, cases[i].who, &cases[i].lie, true, 400);
        const gw_status status =
            cases[i].lie.to == GW_PS_ADMIT ? gw_ps_join(scene.client, &round)
            : cases[i].lie.to == GW_PS_AGREE
                ? gw_ps_client_do(scene.client, 0, &(struct gw_ps_request){.operation = GW_PS_AGREE}, "a = 1\n", 6)
                : test_init(scene.client, "x", GW_PS_FLOAT32, cases[i].n_elems, NULL, NULL);
        refused(status, GW_ERR_TIMEOUT, "not possible within 400 ms");
        assert_non_null(strstr(gw_last_error(), cases[i].lie.answer.sentence));
        part();
    }
}

/* A key is in two parts on two servers, and one of them can make its part only when it is asked again. */
TEST(one_part_comes_later)
{
    static const struct lie lie = {.to = GW_PS_INIT,
                                   .answer = {.status = GW_ERR_ORDER, .sentence = "may be back soon"}};
    for (uint32_t late = 0; late < 2; late++) {
        meet(2, late, &lie, false, LONG_MS);
        scene.liars[late].n_lies = 1;
        ok(test_init(scene.client, "x", GW_PS_FLOAT32, LARGE, NULL, NULL));
        part();
    }
}

static double processor_seconds(void)
{
    struct timespec time;
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A client that has half a message waits for the rest. It does not look for it again and again. */
TEST(half_a_message_takes_no_processor)
{
    static const struct lie lie = {.to = GW_PS_INIT, .raw = LIAR_HALF};
    const gw_ps_key_options one = {.struct_bytes = sizeof one, .type = GW_PS_FLOAT32, .shape = ROW(1)};
    meet(1, 0, &lie, false, 5000);
    const uint64_t request =
        begin_call(scene.client, (gw_ps_call){.kind = GW_PS_CALL_INIT, .key = "x", .options = &one});
    const double before = processor_seconds();
    assert_int_equal(gw_ps_wait(scene.client, request, 1000, NULL), GW_NOT_YET);
    assert_true(processor_seconds() - before < 0.05);
    part();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pulls_that_lie),
        cmocka_unit_test(a_scaled_pull_of_an_odd_length),
        cmocka_unit_test(other_lies),
        cmocka_unit_test(no_such_server),
        cmocka_unit_test(a_long_sentence_keeps_its_end),
        ON_SERVER(members_stay_in_their_room, .n_workers = 5),
        cmocka_unit_test(another_number_of_workers),
        cmocka_unit_test(not_yet_until_it_is_too_late),
        cmocka_unit_test(one_part_comes_later),
        cmocka_unit_test(half_a_message_takes_no_processor),
    };
    return cmocka_run_group_tests_name("pserver liar", tests, NULL, NULL);
}
