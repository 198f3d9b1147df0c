/* Tests the client: keys that it must know, values in parts on several servers, and values that belong to no round. */
#include "base/clock.h"
#include "pserver/client/for_exchange.h"
#include "pserver/client/state.h"
#include "pserver/client/test_calls.h"
#include "checks.h"

#include <string.h>

/* A client that did not initialise the key does not know how often its rank has pushed: no push of it is acknowledged
 * and not counted. */
static void a_push_to_a_key_not_initialised(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *reader = come_to(s, GW_PS_READER), *a = come_to(s, 0);
    init(reader, "x");
    uint32_t taken = 0;
    for (float x = 1; x <= 3; x++)
        taken += gw_ps_push(a, "x", &x, sizeof x) == GW_OK;
    init(a, "x");
    push(a, "x", 4);
    gw_ps_value value;
    expect_ok(gw_ps_pull(a, "x", GW_PS_SUM, NULL, &value));
    assert_int_equal(value.round, taken + 1);
    gw_ps_value_free(&value);
    gw_ps_client_destroy(a), gw_ps_client_destroy(reader);
}

/* What one puts there others get, once it is of the version they want; over two servers in parts. */
static void state_is_handed_over(void **state)
{
    (void)state;
    enum { N = 700001 };
    struct pair p;
    serve_two(&p, 1, GW_PS_MISSING_WAIT);
    const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
    gw_ps_client *a = test_client(p.places, GW_PS_READER, false, LONG_MS),
                 *b = test_client(p.places, GW_PS_READER, false, 300);
    float *x = calloc(N, sizeof *x);
    expect_ok(test_init(a, "state", GW_PS_FLOAT32, &shape, NULL, NULL));
    expect_ok(test_init(b, "state", GW_PS_FLOAT32, &shape, NULL, NULL));
    gw_ps_value value;
    static const char *const wrong[] = {"", "other", "state"};
    for (int i = 0; i < 3; i++) { /* what is not there is nothing, whatever was in its place */
        memset(&value, 9, sizeof value);
        assert_int_equal(gw_ps_get(b, wrong[i], 0, &value), i < 2 ? GW_ERR_ARGUMENT : GW_ERR_TIMEOUT);
        assert_true(!value.bytes && value.n_bytes == 0 && value.type == 0 && value.round == 0);
        gw_ps_value_free(&value);
    }
    assert_int_equal(gw_ps_get(b, "state", 0, &value), GW_ERR_TIMEOUT);
    assert_non_null(strstr(gw_last_error(), "for somebody to put a value of version 0 or higher"));
    for (uint64_t version = 3; version <= 5; version++) {
        for (size_t i = 0; i < N; i++)
            x[i] = (float)(version * i);
        expect_ok(gw_ps_put(a, "state", version, x, N * sizeof *x));
        assert_int_equal(gw_ps_get(b, "state", version + 1, &value), GW_ERR_TIMEOUT);
        expect_ok(gw_ps_get(b, "state", 2, &value));
        assert_true(value.round == version && value.n_bytes == N * sizeof *x && value.shape.dims[0] == N);
        assert_memory_equal(value.bytes, x, value.n_bytes);
        gw_ps_value_free(&value);
    }
    x[0] = 1;
    expect_ok(gw_ps_put(a, "state", 4, x, N * sizeof *x)); /* an older one */
    expect_ok(gw_ps_get(b, "state", 4, &value));
    assert_true(value.round == 5 && *(float *)value.bytes == 0);
    gw_ps_value_free(&value);
    assert_int_equal(gw_ps_put(a, "state", 6, x, 8), GW_ERR_ARGUMENT);
    assert_int_equal(gw_ps_put(a, "other", 6, x, 8), GW_ERR_ARGUMENT);
    free(x);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
    test_server_end(&p.servers[0]), test_server_end(&p.servers[1]);
}

/* A value in parts on two servers, of which one is a round ahead: a reader does not get half of one round and half of
 * the other. */
static void no_halves_of_two_rounds(void **state)
{
    (void)state;
    enum { N = 700000 };
    struct pair p;
    serve_two(&p, 1, GW_PS_MISSING_WAIT);
    const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
    gw_ps_client *reader = test_client(p.places, GW_PS_READER, false, LONG_MS),
                 *a = test_client(p.places, 0, false, LONG_MS);
    float *x = calloc(N, sizeof *x);
    gw_ps_value value;
    expect_ok(test_init(a, "x", GW_PS_FLOAT32, &shape, NULL, NULL));
    expect_ok(test_init(reader, "x", GW_PS_FLOAT32, &shape, NULL, NULL));
    expect_ok(gw_ps_push(a, "x", x, N * sizeof *x));
    expect_ok(gw_ps_pull(reader, "x", GW_PS_SUM, NULL, &value));
    gw_ps_value_free(&value);
    gw_ps_client_destroy(a);
    for (uint32_t s = 0; s < 2; s++) { /* the next round on one after the other */
        gw_ps_client *half = test_client(p.places, 0, false, LONG_MS);
        const gw_ps_shape its = {.n_dims = 1, .dims = {N / 2}};
        for (size_t i = 0; i < N / 2; i++)
            x[i] = 1;
        struct gw_ps_request make = gw_ps_request_of(GW_PS_INIT, "x");
        make.type = GW_PS_FLOAT32, make.shape = its;
        expect_ok(gw_ps_client_init(half, s, &make));
        expect_ok(gw_ps_push(half, "x", x, N / 2 * sizeof *x));
        gw_ps_client_destroy(half);
        const gw_status status = gw_ps_pull(reader, "x", GW_PS_SUM, NULL, &value);
        assert_int_equal(status, s == 0 ? GW_ERR_ORDER : GW_OK);
        if (status == GW_OK)
            assert_true(((float *)value.bytes)[0] == ((float *)value.bytes)[N - 1]);
        gw_ps_value_free(&value);
    }
    free(x);
    gw_ps_client_destroy(reader);
    test_server_end(&p.servers[0]), test_server_end(&p.servers[1]);
}

/* Who has not initialised a key that lies on several servers gets no part of it as if it were all; nor does a client
 * that lists other servers, or lists them in another order. */
static void no_part_for_the_whole(void **state)
{
    (void)state;
    enum { N = 700000 };
    struct pair p;
    char other_way[256];
    serve_two(&p, 1, GW_PS_MISSING_WAIT);
    const gw_ps_shape shape = {.n_dims = 1, .dims = {N}};
    gw_ps_client *a = test_client(p.places, 0, false, LONG_MS),
                 *b = test_client(p.places, GW_PS_READER, false, LONG_MS);
    float *x = calloc(N, sizeof *x);
    gw_ps_value value;
    expect_ok(test_init(a, "x", GW_PS_FLOAT32, &shape, NULL, NULL));
    expect_ok(gw_ps_push(a, "x", x, N * sizeof *x));
    expect_ok(gw_ps_put(a, "x", 1, x, N * sizeof *x));
    assert_int_equal(gw_ps_pull(b, "x", GW_PS_SUM, NULL, &value), GW_ERR_ORDER);
    assert_non_null(strstr(gw_last_error(), "lies in 2 parts"));
    assert_int_equal(gw_ps_get(b, "x", 0, &value), GW_ERR_ORDER);
    expect_ok(test_init(b, "x", GW_PS_FLOAT32, &shape, NULL, NULL));
    expect_ok(gw_ps_pull(b, "x", GW_PS_SUM, NULL, &value));
    assert_true(value.n_bytes == N * sizeof *x && value.shape.dims[0] == N);
    gw_ps_value_free(&value);
    snprintf(other_way, sizeof other_way, "%s,%s", gw_ps_server_address(p.servers[1].server),
             gw_ps_server_address(p.servers[0].server));
    const char *lists[] = {other_way, gw_ps_server_address(p.servers[0].server)};
    for (int i = 0; i < 2; i++) {
        const gw_ps_client_options options = {.struct_bytes = sizeof options,
                                              .servers = lists[i],
                                              .rank = GW_PS_READER,
                                              .timeout_ms = LONG_MS};
        gw_ps_client *c = NULL;
        assert_int_equal(gw_ps_client_create(NULL, &options, &c), GW_ERR_PEER);
        assert_non_null(strstr(gw_last_error(), "must list the same servers in the same order"));
    }
    free(x);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
    test_server_end(&p.servers[0]), test_server_end(&p.servers[1]);
}

enum { CODES = 1200000 };

/* Two rounds of two workers: codes and their scale. */
static void push_codes(gw_ps_client *const *w, const char *codes, const char *scale, uint32_t n_bytes,
                       const uint8_t *bytes)
{
    const gw_ps_shape shape = {.n_dims = 1, .dims = {n_bytes}}, one = {.n_dims = 0};
    for (uint32_t r = 0; r < 2; r++) {
        expect_ok(test_init(w[r], codes, GW_PS_UINT8, &shape, NULL, NULL));
        expect_ok(test_init(w[r], scale, GW_PS_FLOAT32, &one, NULL, NULL));
    }
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t r = 0; r < 2; r++) {
            expect_ok(gw_ps_push(w[r], codes, bytes + round + r, n_bytes));
            push(w[r], scale, 0.1f + (float)(3 * round + r));
        }
}

/* One server that has both multiplies; where they are apart, as some of so many are, or the codes are in parts, the
 * client does: the same bits. */
static void scales_live_anywhere(void **state)
{
    (void)state;
    struct pair p;
    struct test_server alone;
    serve_two(&p, 2, GW_PS_MISSING_WAIT);
    test_server_begin(&alone, &(gw_ps_server_options){.n_workers = 2});
    gw_ps_client *one[2] = {come_to(&alone, 0), come_to(&alone, 1)};
    gw_ps_client *two[2] = {test_client(p.places, 0, false, LONG_MS), test_client(p.places, 1, false, LONG_MS)};
    gw_ps_client *reader = test_client(p.places, GW_PS_READER, false, LONG_MS);
    uint8_t *bytes = malloc(CODES + 2);
    for (uint32_t i = 0; i < CODES + 2; i++)
        /* no 11 among the codes */
        bytes[i] = (uint8_t)(i % 3 | (i / 3 + i) % 3 << 2 | (i / 7) % 3 << 4 | (i / 5) % 3 << 6);
    gw_ps_value expected, value;
    uint32_t n_apart = 0;
    for (uint32_t i = 0; i < 9; i++) {
        char codes[16], scale[16];
        snprintf(codes, sizeof codes, "codes %u", i), snprintf(scale, sizeof scale, "scale %u", i);
        const uint32_t n_bytes = i == 8 ? CODES : 7;
        push_codes(one, codes, scale, n_bytes, bytes), push_codes(two, codes, scale, n_bytes, bytes);
        const gw_ps_method method = i % 2 ? GW_PS_DECODE_SUM : GW_PS_DECODE_AVERAGE;
        const gw_status apart = gw_ps_pull(reader, codes, method, scale, &value);
        gw_ps_value_free(&value);
        n_apart += apart == GW_ERR_ORDER && strstr(gw_last_error(), "live on several servers");
        expect_ok(gw_ps_pull(one[0], codes, method, scale, &expected));
        expect_ok(gw_ps_pull(two[1], codes, method, scale, &value));
        assert_true(value.n_bytes == expected.n_bytes && value.n_bytes == 4 * sizeof(float) * n_bytes &&
                    value.n_pushes == 2 && value.round == 2);
        assert_memory_equal(value.bytes, expected.bytes, value.n_bytes);
        gw_ps_value_free(&value), gw_ps_value_free(&expected);
    }
    CHECK_IN_RANGE(n_apart, 1, 8);
    push(two[0], "scale 8", 1), push(two[1], "scale 8", 1);
    assert_int_equal(gw_ps_pull(two[0], "codes 8", GW_PS_DECODE_SUM, "scale 8", &value), GW_ERR_ORDER);
    assert_non_null(strstr(gw_last_error(), "push to both equally often"));
    assert_int_equal(gw_ps_pull(two[0], "codes 8", GW_PS_MAX, "scale 8", &value), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "a scale_key goes with decode_sum and decode_average of uint8 only"));
    assert_int_equal(gw_ps_pull(two[0], "codes 8", GW_PS_DECODE_SUM, "codes 7", &value), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "it must be one float32"));
    free(bytes);
    gw_ps_client_destroy(reader);
    for (uint32_t r = 0; r < 2; r++)
        gw_ps_client_destroy(one[r]), gw_ps_client_destroy(two[r]);
    test_server_end(&alone), test_server_end(&p.servers[0]), test_server_end(&p.servers[1]);
}

/* A key is initialised again while a push of it waits: the next push is another, and not taken for that one. */
static void initialised_while_a_push_waits(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0), *b = come_to(s, 1);
    const float x[] = {1, 2, 3};
    uint64_t requests[3];
    init(a, "x"), init(b, "x");
    expect_ok(test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x[0], .n_bytes = sizeof *x},
                         &requests[0]));
    expect_ok(test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x[1], .n_bytes = sizeof *x},
                         &requests[1])); /* waits for b */
    init(a, "x");
    expect_ok(test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x[2], .n_bytes = sizeof *x},
                         &requests[2]));
    for (uint64_t nth = 1; nth <= 3; nth++) {
        push(b, "x", 10);
        expect_ok(gw_ps_wait(a, requests[nth - 1], GW_PS_NO_LIMIT, NULL));
        expect_sum(b, "x", 10 + x[nth - 1], 2);
    }
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* Nobody has to wait in a call: each can be begun, asked after, and given up. The server forgets requests that were
 * given up. */
static void calls_that_do_not_wait(void **state)
{
    const struct test_server *s = *state;
    const gw_ps_key_options one = {.struct_bytes = sizeof one,
                                   .type = GW_PS_FLOAT32,
                                   .shape = {.n_dims = 1, .dims = {1}}};
    const gw_ps_call init_x = {.kind = GW_PS_CALL_INIT, .key = "x", .options = &one};
    const float x = 3;
    gw_ps_client *b = come_to(s, 1), *a;
    gw_ps_client_options options = {.struct_bytes = sizeof options,
                                    .servers = gw_ps_server_address(s->server),
                                    .timeout_ms = LONG_MS,
                                    .no_wait = true};
    uint64_t request;
    gw_ps_value value;
    gw_status status;
    expect_ok(gw_ps_client_create(NULL, &options, &a));
    assert_int_equal(test_begin(a, init_x, &request), GW_ERR_ORDER);
    while ((status = gw_ps_client_meet(a, 1)) == GW_NOT_YET)
        ;
    expect_ok(status);
    expect_ok(gw_ps_client_meet(a, 0));
    expect_ok(test_begin(a, init_x, &request));
    uint64_t other;
    assert_int_equal(test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x, .n_bytes = sizeof x},
                                &other),
                     GW_ERR_ORDER);
    assert_non_null(strstr(gw_last_error(), "is being initialised"));
    expect_ok(gw_ps_wait(a, request, GW_PS_NO_LIMIT, NULL));
    init(b, "x");
    push(a, "x", 1);
    expect_ok(test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x, .n_bytes = sizeof x},
                         &request)); /* waits for b */
    assert_int_equal(gw_ps_wait(a, request, 20, NULL), GW_NOT_YET);
    gw_ps_cancel(a, request);
    assert_int_equal(gw_ps_wait(a, request, GW_PS_NO_LIMIT, NULL), GW_ERR_ORDER);
    expect_ok(
        test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_GET, .key = "x", .version = 0}, &request)); /* nobody puts one */
    assert_int_equal(gw_ps_wait(a, request, 20, &value), GW_NOT_YET);
    gw_ps_cancel(a, request);
    init(a, "x"); /* answered on the new connection */
    push(b, "x", 10);
    expect_sum(a, "x", 11, 2);
    expect_ok(
        test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "x", .bytes = &x, .n_bytes = sizeof x}, &request));
    push(b, "x", 20);
    expect_ok(gw_ps_wait(a, request, LONG_MS, NULL));
    expect_sum(a, "x", 23, 2);
    expect_ok(
        test_begin(a, (gw_ps_call){.kind = GW_PS_CALL_PUT, .key = "x", .version = 7, .bytes = &x, .n_bytes = sizeof x},
                   &request));
    expect_ok(gw_ps_wait(a, request, GW_PS_NO_LIMIT, NULL));
    expect_ok(test_begin(b, (gw_ps_call){.kind = GW_PS_CALL_GET, .key = "x", .version = 7}, &request));
    expect_ok(gw_ps_wait(b, request, LONG_MS, &value));
    assert_true(value.round == 7 && *(float *)value.bytes == 3);
    gw_ps_value_free(&value);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A closed port is told as such, long before the timeout. */
static void nobody_is_there(void **state)
{
    (void)state;
    struct test_server s;
    char place[64];
    test_server_begin(&s, &(gw_ps_server_options){.n_workers = 1});
    snprintf(place, sizeof place, "%s", gw_ps_server_address(s.server));
    test_server_end(&s);
    const double start = gw_clock_seconds();
    gw_ps_client_options options = {.struct_bytes = sizeof options,
                                    .servers = place,
                                    .timeout_ms = 600000,
                                    .connect_ms = 300};
    gw_ps_client *client;
    assert_int_equal(gw_ps_client_create(NULL, &options, &client), GW_ERR_TIMEOUT);
    assert_non_null(strstr(gw_last_error(), "no server is at"));
    assert_non_null(strstr(gw_last_error(), "Connection refused"));
    assert_true(gw_clock_seconds() - start < 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_SERVER(calls_that_do_not_wait, .n_workers = 2),
        cmocka_unit_test(nobody_is_there),
        ON_SERVER(a_push_to_a_key_not_initialised, .n_workers = 1),
        cmocka_unit_test(state_is_handed_over),
        cmocka_unit_test(no_halves_of_two_rounds),
        cmocka_unit_test(no_part_for_the_whole),
        cmocka_unit_test(scales_live_anywhere),
        ON_SERVER(initialised_while_a_push_waits, .n_workers = 2),
    };
    return cmocka_run_group_tests_name("pserver client", tests, NULL, NULL);
}
