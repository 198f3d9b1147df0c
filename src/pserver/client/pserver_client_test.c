/* Tests the client: keys that it must know, values in parts on several servers, and values that belong to no round. */
#include "base/clock.h"
#include "net/test_peer.h"
#include "net/test_place.h"
#include "pserver/client/for_exchange.h"
#include "pserver/client/state.h"
#include "pserver/client/test_calls.h"

#include <math.h>

/* So many float32 are divided into parts. */
enum { N = 700000, N_BYTES = N * sizeof(float) };

/* A client that did not initialise the key does not know how often its rank has pushed: no push of it is acknowledged
 * and not counted. */
TEST(a_push_to_a_key_not_initialised)
{
    gw_ps_client *reader = come(GW_PS_READER), *a = come(0);
    uint32_t taken = 0;
    gw_ps_value value;
    init(reader, "x");
    for (float x = 1; x <= 3; x++)
        taken += gw_ps_push(a, "x", &x, sizeof x) == GW_OK;
    init(a, "x"), push(a, "x", 4);
    ok(gw_ps_pull(a, "x", GW_PS_SUM, NULL, &value));
    assert_int_equal(value.round, taken + 1);
    take_x(&value, 4, 1);
    gw_ps_client_destroy(a), gw_ps_client_destroy(reader);
}

/* What one puts there others get, once it is of the version they want; over two servers in parts. */
TEST(state_is_handed_over)
{
    enum { ODD = N + 1, ODD_BYTES = ODD * sizeof(float) };
    static const struct {
        const char *key;
        gw_status status;
        const char *words;
    } nothing[] = {{"", GW_ERR_ARGUMENT, ""},
                   {"other", GW_ERR_ARGUMENT, ""},
                   {"state", GW_ERR_TIMEOUT, "for somebody to put a value of version 0 or higher"}};
    static float x[ODD];
    gw_ps_client *a = come(GW_PS_READER), *b = come(GW_PS_READER);
    gw_ps_value value;
    ok(test_init(a, "state", GW_PS_FLOAT32, ODD, NULL, NULL));
    ok(test_init(b, "state", GW_PS_FLOAT32, ODD, NULL, NULL));
    limit(b, 300);
    for (int i = 0; i < 3; i++) { /* what is not there is nothing, whatever was in its place */
        memset(&value, 9, sizeof value);
        refused(gw_ps_get(b, nothing[i].key, 0, &value), nothing[i].status, nothing[i].words);
        assert_true(!value.bytes && value.n_bytes == 0 && value.type == 0 && value.round == 0);
        gw_ps_value_free(&value);
    }
    for (uint64_t version = 3; version <= 5; version++) {
        for (size_t i = 0; i < ODD; i++)
            x[i] = (float)(version * i);
        ok(gw_ps_put(a, "state", version, x, ODD_BYTES));
        limit(b, 300);
        refused(gw_ps_get(b, "state", version + 1, &value), GW_ERR_TIMEOUT, "");
        limit(b, LONG_MS);
        ok(gw_ps_get(b, "state", 2, &value));
        assert_true(value.round == version && value.n_bytes == ODD_BYTES && value.shape.dims[0] == ODD);
        assert_memory_equal(value.bytes, x, value.n_bytes);
        gw_ps_value_free(&value);
    }
    x[0] = 1;
    ok(gw_ps_put(a, "state", 4, x, ODD_BYTES)); /* an older one */
    ok(gw_ps_get(b, "state", 4, &value));
    assert_int_equal(value.round, 5);
    take_x(&value, 0, 0);
    refused(gw_ps_put(a, "state", 6, x, 8), GW_ERR_ARGUMENT, "a put to \"state\" has 8 bytes; float32 of shape");
    refused(gw_ps_put(a, "other", 6, x, 8), GW_ERR_ORDER, "\"other\", which this client has not initialised");
    ok(test_init(a, "frames", GW_PS_FRAME, 2, NULL, NULL));
    refused(gw_ps_put(a, "frames", 6, x, 8), GW_ERR_ARGUMENT, "is of frames; only what is pushed there");
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A value in parts on two servers, of which one is a round ahead: a reader does not get half of one round and half of
 * the other. */
TEST(no_halves_of_two_rounds)
{
    static float x[N];
    gw_ps_client *reader = come(GW_PS_READER), *a = come(0);
    gw_ps_value value;
    ok(test_init(a, "x", GW_PS_FLOAT32, N, NULL, NULL)), ok(test_init(reader, "x", GW_PS_FLOAT32, N, NULL, NULL));
    ok(gw_ps_push(a, "x", x, N_BYTES));
    ok(gw_ps_pull(reader, "x", GW_PS_SUM, NULL, &value));
    take_x(&value, 0, 1);
    gw_ps_client_destroy(a);
    for (uint32_t s = 0; s < 2; s++) { /* the next round on one after the other */
        gw_ps_client *half = come(0);
        struct gw_ps_request make = gw_ps_request_of(GW_PS_INIT, "x");
        make.type = GW_PS_FLOAT32, make.shape = (gw_ps_shape){.n_dims = 1, .dims = {N / 2}};
        for (size_t i = 0; i < N / 2; i++)
            x[i] = 1;
        ok(gw_ps_client_do(half, s, &make, NULL, 0));
        ok(gw_ps_push(half, "x", x, N_BYTES / 2));
        gw_ps_client_destroy(half);
        refused(gw_ps_pull(reader, "x", GW_PS_SUM, NULL, &value), s == 0 ? GW_ERR_ORDER : GW_OK, "");
    }
    assert_true(((float *)value.bytes)[N - 1] == 1);
    take_x(&value, 1, 1);
    gw_ps_client_destroy(reader);
}

/* Who has not initialised a key that lies on several servers gets no part of it as if it were all; nor does a client
 * that lists other servers, or lists them in another order. */
TEST(no_part_for_the_whole)
{
    static float x[N];
    char other_way[256];
    gw_ps_client *a = come(0), *b = come(GW_PS_READER);
    gw_ps_value value;
    ok(test_init(a, "x", GW_PS_FLOAT32, N, NULL, NULL));
    ok(gw_ps_push(a, "x", x, N_BYTES)), ok(gw_ps_put(a, "x", 1, x, N_BYTES));
    refused(gw_ps_pull(b, "x", GW_PS_SUM, NULL, &value), GW_ERR_ORDER, "lies in 2 parts");
    refused(gw_ps_get(b, "x", 0, &value), GW_ERR_ORDER, "");
    ok(test_init(b, "x", GW_PS_FLOAT32, N, NULL, NULL));
    ok(gw_ps_pull(b, "x", GW_PS_SUM, NULL, &value));
    assert_true(value.n_bytes == N_BYTES && value.shape.dims[0] == N);
    take_x(&value, 0, 1);
    snprintf(other_way, sizeof other_way, "%s,%s", place_of(1), place_of(0));
    for (int i = 0; i < 2; i++) {
        const gw_ps_client_options options = {.servers = i ? other_way : place_of(0), .rank = GW_PS_READER};
        gw_ps_client *c;
        refused(test_client_create(options, &c), GW_ERR_PEER, "must list the same servers in the same order");
    }
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

enum { CODES = 1200000 };

/* Two rounds of two workers: codes and their scale. */
static void push_codes(gw_ps_client *const *w, const char *codes, const char *scale, uint32_t n_bytes,
                       const uint8_t *bytes)
{
    for (uint32_t r = 0; r < 2; r++) {
        ok(test_init(w[r], codes, GW_PS_UINT8, n_bytes, NULL, NULL));
        ok(test_init(w[r], scale, GW_PS_FLOAT32, 0, NULL, NULL));
    }
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t r = 0; r < 2; r++) {
            ok(gw_ps_push(w[r], codes, bytes + round + r, n_bytes));
            push(w[r], scale, 0.1f + (float)(3 * round + r));
        }
}

/* One server that has both multiplies; where they are apart, as some of so many are, or the codes are in parts, the
 * client does: the same bits. */
TEST(scales_live_anywhere)
{
    static uint8_t bytes[CODES + 2];
    struct test_server alone;
    gw_ps_client *one[2], *two[] = {come(0), come(1)}, *reader = come(GW_PS_READER);
    gw_ps_value expected, value;
    uint32_t n_apart = 0;
    test_server_begin(&alone, &(gw_ps_server_options){.n_workers = 2});
    for (uint32_t r = 0; r < 2; r++)
        one[r] = test_client(gw_ps_server_address(alone.server), r, false, LONG_MS);
    for (uint32_t i = 0; i < CODES + 2; i++)
        /* no 11 among the codes */
        bytes[i] = (uint8_t)(i % 3 | (i / 3 + i) % 3 << 2 | (i / 7) % 3 << 4 | (i / 5) % 3 << 6);
    for (uint32_t i = 0; i < 9; i++) {
        char codes[16], scale[16];
        snprintf(codes, sizeof codes, "codes %u", i), snprintf(scale, sizeof scale, "scale %u", i);
        const uint32_t n_bytes = i == 8 ? CODES : 7;
        push_codes(one, codes, scale, n_bytes, bytes), push_codes(two, codes, scale, n_bytes, bytes);
        const gw_ps_method method = i % 2 ? GW_PS_DECODE_SUM : GW_PS_DECODE_AVERAGE;
        const gw_status apart = gw_ps_pull(reader, codes, method, scale, &value);
        gw_ps_value_free(&value);
        n_apart += apart == GW_ERR_ORDER && strstr(gw_last_error(), "live on several servers");
        ok(gw_ps_pull(one[0], codes, method, scale, &expected)), ok(gw_ps_pull(two[1], codes, method, scale, &value));
        assert_true(value.n_bytes == expected.n_bytes && value.n_bytes == 4 * sizeof(float) * n_bytes &&
                    value.n_pushes == 2 && value.round == 2);
        assert_memory_equal(value.bytes, expected.bytes, value.n_bytes);
        gw_ps_value_free(&value), gw_ps_value_free(&expected);
    }
    CHECK_IN_RANGE(n_apart, 1, 8);
    push(two[0], "scale 8", 1), push(two[1], "scale 8", 1);
    refused(gw_ps_pull(two[0], "codes 8", GW_PS_DECODE_SUM, "scale 8", &value), GW_ERR_ORDER,
            "push to both equally often");
    refused(gw_ps_pull(two[0], "codes 8", GW_PS_MAX, "scale 8", &value), GW_ERR_ARGUMENT,
            "a scale_key goes with decode_sum and decode_average of uint8 only");
    refused(gw_ps_pull(two[0], "codes 8", GW_PS_DECODE_SUM, "codes 7", &value), GW_ERR_ARGUMENT,
            "it must be one float32");
    gw_ps_client_destroy(reader);
    for (uint32_t r = 0; r < 2; r++)
        gw_ps_client_destroy(one[r]), gw_ps_client_destroy(two[r]);
    test_server_end(&alone);
}

/* A key is initialised again while a push of it waits: the next push is another, and not taken for that one. */
TEST(initialised_while_a_push_waits)
{
    gw_ps_client *a = come(0), *b = come(1);
    const float x[] = {1, 2, 3};
    init(a, "x"), init(b, "x");
    uint64_t requests[] = {begin_push(a, "x", &x[0]), begin_push(a, "x", &x[1]), 0}; /* the second waits for b */
    init(a, "x");
    requests[2] = begin_push(a, "x", &x[2]);
    for (uint64_t nth = 1; nth <= 3; nth++) {
        push(b, "x", 10), ok(wait_for(a, requests[nth - 1]));
        expect_sum(b, "x", 10 + x[nth - 1], 2);
    }
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* Nobody has to wait in a call: each can be begun, asked after, and given up. The server forgets requests that were
 * given up. */
TEST(calls_that_do_not_wait)
{
    const gw_ps_key_options one = {.struct_bytes = sizeof one,
                                   .type = GW_PS_FLOAT32,
                                   .shape = {.n_dims = 1, .dims = {1}}};
    const float x = 3;
    const gw_ps_call init_x = {.kind = GW_PS_CALL_INIT, .key = "x", .options = &one},
                     push_x = {.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x, .n_bytes = sizeof x},
                     put_x = {.kind = GW_PS_CALL_PUT, .key = "x", .version = 7, .bytes = &x, .n_bytes = sizeof x};
    gw_ps_client *b = come(1), *a;
    uint64_t request, other;
    gw_ps_value value;
    gw_status status;
    ok(test_client_create((gw_ps_client_options){.servers = served.places, .timeout_ms = LONG_MS, .no_wait = true},
                          &a));
    refused(test_begin(a, init_x, &request), GW_ERR_ORDER, "");
    while ((status = gw_ps_client_meet(a, 1)) == GW_NOT_YET)
        ;
    ok(status), ok(gw_ps_client_meet(a, 0));
    request = begin_call(a, init_x);
    refused(test_begin(a, push_x, &other), GW_ERR_ORDER, "is being initialised");
    ok(wait_for(a, request));
    init(b, "x"), push(a, "x", 1);
    request = begin_call(a, push_x); /* waits for b */
    assert_int_equal(gw_ps_wait(a, request, 20, NULL), GW_NOT_YET);
    gw_ps_cancel(a, request);
    refused(wait_for(a, request), GW_ERR_ORDER, "");
    request = begin_call(a, (gw_ps_call){.kind = GW_PS_CALL_GET, .key = "x", .version = 0}); /* nobody puts one */
    assert_int_equal(gw_ps_wait(a, request, 20, &value), GW_NOT_YET);
    gw_ps_cancel(a, request);
    init(a, "x"); /* answered on the new connection */
    push(b, "x", 10);
    expect_sum(a, "x", 11, 2);
    request = begin_call(a, push_x), push(b, "x", 20);
    ok(gw_ps_wait(a, request, LONG_MS, NULL));
    expect_sum(a, "x", 23, 2);
    ok(wait_for(a, begin_call(a, put_x)));
    request = begin_call(b, (gw_ps_call){.kind = GW_PS_CALL_GET, .key = "x", .version = 7});
    ok(gw_ps_wait(b, request, LONG_MS, &value));
    assert_int_equal(value.round, 7);
    take_x(&value, 3, 0);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A worker that gave a request up is there all the same, before it makes another call. */
TEST(who_gives_up_stays)
{
    gw_ps_value value;
    gw_ps_client *a = come(0), *b;
    init(a, "x"), push(a, "x", 1);
    const uint64_t request =
        begin_call(a, (gw_ps_call){.kind = GW_PS_CALL_PULL, .key = "x", .method = GW_PS_SUM}); /* waits for b */
    assert_int_equal(gw_ps_wait(a, request, 20, &value), GW_NOT_YET);
    gw_ps_cancel(a, request);
    b = come(1);
    init(b, "x"), push(b, "x", 10);
    expect_sum(b, "x", 11, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A closed port is told as such, long before the timeout. */
TEST(nobody_is_there)
{
    char place[PLACE_BYTES];
    find_place(place);
    const double start = gw_clock_seconds();
    const gw_ps_client_options options = {.servers = place, .timeout_ms = 600000, .connect_ms = 300};
    gw_ps_client *client;
    refused(test_client_create(options, &client), GW_ERR_TIMEOUT, "no server is at");
    assert_non_null(strstr(gw_last_error(), "Connection refused"));
    assert_true(gw_clock_seconds() - start < 300);
}

/* One of two servers takes the connection and says nothing. The client then says farewell to the other one, and the
 * sentence still names the silent one. */
TEST(the_silent_one_of_two_is_named)
{
    char place[32] = "127.0.0.1:0", places[sizeof served.places + 34];
    const int mute = peer_listen(place);
    snprintf(places, sizeof places, "%s,%s", served.places, place);
    gw_ps_client *client;
    refused(test_client_create((gw_ps_client_options){.servers = places, .timeout_ms = 300}, &client), GW_ERR_TIMEOUT,
            "it took the connection and said nothing");
    assert_non_null(strstr(gw_last_error(), place));
    close(mute);
    client = come(0);
    gw_fail(GW_ERR_PEER, "kept");
    gw_ps_client_destroy(client);
    assert_string_equal(gw_last_error(), "kept");
}

/* What is too large for a byte of a message is refused, and not taken for what its lowest bits say. A rate of -0 is one
 * of 0. Options that are too short are refused before they are read. */
TEST(no_call_becomes_another_one)
{
    gw_ps_client *a = come(0);
    gw_ps_value value;
    const float x = 3;
    size_t *short_one = malloc(sizeof *short_one); /* with nothing behind it */
    assert_non_null(short_one);
    *short_one = sizeof *short_one;
    refused(test_init(a, "large", (gw_ps_type)(256 + GW_PS_FLOAT32), 1, NULL, NULL), GW_ERR_ARGUMENT,
            "type number 257");
    refused(gw_ps_init(a, "short", (const gw_ps_key_options *)short_one), GW_ERR_ARGUMENT, "struct_bytes is 8");
    free(short_one);
    const gw_ps_key_options deep = {.struct_bytes = sizeof deep,
                                    .type = GW_PS_FLOAT32,
                                    .shape = {.n_dims = GW_PS_MOST_DIMS, .dims = {1, 1, 1, 1, 1, 1, 1, 1}}};
    ok(gw_ps_init(a, "deep", &deep));
    init(a, "x");
    ok(wait_for(
        a,
        begin_call(a,
                   (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x, .n_bytes = sizeof x, .rate = -0.0})));
    refused(gw_ps_pull(a, "x", (gw_ps_method)(256 + GW_PS_SUM), NULL, &value), GW_ERR_ARGUMENT, "method number 259");
    expect_sum(a, "x", 3, 1);
    gw_ps_client_destroy(a);
}

/* A push that the server does not take is not counted: the next one has its number. */
TEST(a_refused_push_does_not_count)
{
    gw_ps_client *a = come(0);
    const float first = 8, bad = NAN;
    ok(test_init(a, "w", GW_PS_FLOAT32, 1, "sgd", &first));
    refused(gw_ps_push(a, "w", &bad, sizeof bad), GW_ERR_NONFINITE, "");
    push(a, "w", 1);
    gw_ps_client_destroy(a);
}

/* All servers must have the same number of workers and the same mode. */
TEST(servers_that_differ)
{
    static const gw_ps_server_options others[] = {{.n_workers = 3}, {.n_workers = 2, .mode = GW_PS_ASYNC}};
    for (int i = 0; i < 2; i++) {
        char places[2 * sizeof served.places];
        struct test_server other;
        gw_ps_client *client;
        test_server_begin(&other, &others[i]);
        snprintf(places, sizeof places, "%s,%s", served.places, gw_ps_server_address(other.server));
        refused(test_client_create((gw_ps_client_options){.servers = places, .timeout_ms = LONG_MS}, &client),
                GW_ERR_PEER, "have not the same --mode and --workers");
        test_server_end(&other);
    }
}

/* A worker that joins is let in. To let it in once more changes nothing. */
TEST(who_joins_is_let_in)
{
    gw_ps_client *a = test_client(served.places, 0, true, LONG_MS);
    uint64_t round;
    ok(gw_ps_join(a, &round));
    assert_int_equal(round, 1);
    ok(gw_ps_admit(a, 0, round));
    gw_ps_client_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SERVER(calls_that_do_not_wait, .n_workers = 2),
        ON_SERVER(who_gives_up_stays, .n_workers = 2, .away_ms = 1),
        cmocka_unit_test(nobody_is_there),
        ON_SERVER(the_silent_one_of_two_is_named, .n_workers = 1),
        ON_SERVER(no_call_becomes_another_one, .n_workers = 1),
        ON_SERVER(a_refused_push_does_not_count, .n_workers = 1),
        ON_SERVER(servers_that_differ, .n_workers = 2),
        ON_TWO(who_joins_is_let_in, .n_workers = 2),
        ON_SERVER(a_push_to_a_key_not_initialised, .n_workers = 1),
        ON_TWO(state_is_handed_over, .n_workers = 1),
        ON_TWO(no_halves_of_two_rounds, .n_workers = 1),
        ON_TWO(no_part_for_the_whole, .n_workers = 1),
        ON_TWO(scales_live_anywhere, .n_workers = 2),
        ON_SERVER(initialised_while_a_push_waits, .n_workers = 2),
    };
    return cmocka_run_group_tests_name("pserver client", tests, NULL, NULL);
}
