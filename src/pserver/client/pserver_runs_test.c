/* Tests when one run ends and the next begins on the same server, and the deadlines of requests that get the answer
 * "not yet". */
#define _GNU_SOURCE /* nftw */
#include "folders.h"
#include "net/test_place.h"
#include "pserver/client/state.h"
#include "pserver/client/test_calls.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* Ends a client as if its process had been killed: it does not say that it leaves. */
static void die(gw_ps_client *client)
{
    for (uint32_t s = 0; s < client->n_servers; s++)
        client->servers[s].welcome = false;
    gw_ps_client_destroy(client);
}

/* ---- the log ------------------------------------------------------------------------------------------------- */

static _Atomic int left_out_at, n_left_out; /* the round; and how many servers have said so */

static void find_round(const char *line, void *user)
{
    const char *at = strncmp(line, "left-out ", 9) == 0 ? strstr(line, "round=") : NULL;
    (void)user;
    if (!at)
        return;
    left_out_at = atoi(at + 6);
    n_left_out++;
}

/* Rank 0 has pushed to a round, and rank 1 has not; then both end. That push must not mix with the pushes of the next
 * two workers. */
TEST(a_leftover_push_does_not_mix)
{
    static void (*const ends[])(gw_ps_client *) = {gw_ps_client_destroy, die};
    for (int dies = 0; dies < 2; dies++) {
        serve(1, &(gw_ps_server_options){.n_workers = 2, .away_ms = 300});
        gw_ps_client *a = come(0), *b = come(1);
        init(a, "x"), init(b, "x");
        push(a, "x", 1), push(b, "x", 2);
        expect_sum(a, "x", 3, 2);
        push(a, "x", 1000);
        ends[dies](a), ends[dies](b);
        a = come(0), b = come(1);
        init(a, "x"), init(b, "x");
        for (float x = 10; x < 40; x += 10) {
            push(b, "x", x + 1), push(a, "x", x);
            expect_sum(b, "x", 2 * x + 1, 2);
            expect_sum(a, "x", 2 * x + 1, 2);
        }
        gw_ps_client_destroy(a), gw_ps_client_destroy(b);
        end_serving();
    }
}

/* The workers die in the middle of a step: one key's round is whole, and another's is not. The next workers' rounds are
 * the same in both keys, so one can be the other's scale. */
TEST(keys_begin_alike)
{
    static const uint8_t codes = 0x56; /* 1, 0, 0, 0 */
    gw_ps_value value;
    for (int run = 0; run < 3; run++) {
        gw_ps_client *a = come(0), *b = come(1);
        for (uint32_t r = 0; r < 2; r++) {
            init(r ? b : a, "scale");
            ok(test_init(r ? b : a, "codes", GW_PS_UINT8, 1, NULL, NULL));
            push(r ? b : a, "scale", (float)run + 1);
            ok(gw_ps_push(r ? b : a, "codes", &codes, 1));
        }
        for (uint32_t r = 0; r < 2; r++) {
            ok(gw_ps_pull(r ? b : a, "codes", GW_PS_DECODE_AVERAGE, "scale", &value));
            take_x(&value, (float)run + 1, 2);
        }
        push(a, "scale", 9), push(b, "scale", 9);
        ok(gw_ps_push(a, "codes", &codes, 1));
        gw_ps_client_destroy(a), gw_ps_client_destroy(b);
    }
}

/* ---- a key that lies on two servers ---- */

enum { LONG_KEY = 300000 }; /* elements */

static void init_long(gw_ps_client *client)
{
    ok(test_init(client, "long", GW_PS_FLOAT32, LONG_KEY, NULL, NULL));
}

static uint64_t begin_long(gw_ps_client *client, float x)
{
    static float floats[2][LONG_KEY]; /* two pushes may be under way */
    static int nth;
    nth = !nth;
    for (int i = 0; i < LONG_KEY; i++)
        floats[nth][i] = x;
    return begin_call(client, (gw_ps_call){.kind = GW_PS_CALL_PUSH,
                                           .key = "long",
                                           .bytes = floats[nth],
                                           .n_bytes = sizeof floats[nth]});
}

static void push_long(gw_ps_client *client, float x)
{
    ok(wait_for(client, begin_long(client, x)));
}

/* Pushes to that server only. The push to the other one is still to be sent. Returns the request. */
static uint64_t push_half(gw_ps_client *client, uint32_t server, float x)
{
    client->servers[!server].welcome = false;
    const uint64_t request = begin_long(client, x);
    while (!gw_ps_request_find(client, request)->parts[server].done)
        assert_int_equal(gw_ps_wait(client, request, 10, NULL), GW_NOT_YET);
    return request;
}

static void expect_long(gw_ps_client *client, float sum)
{
    gw_ps_value value;
    ok(gw_ps_pull(client, "long", GW_PS_SUM, NULL, &value));
    for (int i = 0; i < LONG_KEY; i++)
        CHECK(((const float *)value.bytes)[i] == sum, "element %d is %g, and not %g", i,
              (double)((const float *)value.bytes)[i], (double)sum);
    gw_ps_value_free(&value);
}

/* All workers die in the middle of a push: one server has the round, and the other has not. What the next workers pull
 * holds nothing of it. */
TEST(parts_begin_alike)
{
    for (int run = 0; run < 3; run++) {
        gw_ps_client *a = come(0), *b = come(1);
        init_long(a), init_long(b);
        for (float x = 1; x < 3; x++) {
            push_long(a, x), push_long(b, 10 * x);
            expect_long(a, 11 * x), expect_long(b, 11 * x);
        }
        push_half(a, run == 1, 1000), push_half(b, run == 1, 1000);
        die(a), die(b);
    }
}

/* Dies, and waits until both servers go on without it. */
static void die_for_long(gw_ps_client *client)
{
    n_left_out = 0;
    die(client);
    while (n_left_out < 2)
        usleep(1000);
}

/* Rank 1 dies in the middle of a push, and is left out: one part is of two pushes, and the other of one. The value does
 * not pass for one of two. */
TEST(parts_of_fewer_pushes)
{
    for (uint32_t server = 0; server < 2; server++) {
        gw_ps_client *a = come(0), *b = come(1);
        gw_ps_value value;
        init_long(a), init_long(b);
        push_long(a, 1), push_long(b, 2); /* the first round waits for all */
        push_half(b, server, 5);
        die_for_long(b);
        push_long(a, 1);
        ok(gw_ps_pull(a, "long", GW_PS_SUM, NULL, &value));
        const float *sums = value.bytes;
        CHECK(value.n_pushes == 1 && sums[0] == (server ? 1 : 6) && sums[LONG_KEY - 1] == (server ? 6 : 1),
              "server %u: %u pushes, sums %g and %g", server, value.n_pushes, (double)sums[0],
              (double)sums[LONG_KEY - 1]);
        gw_ps_value_free(&value);
        gw_ps_client_destroy(a);
    }
}

/* Rank 1 was left out. When it comes back, one server is a round ahead of the other. */
TEST(who_was_left_out_goes_on)
{
    gw_ps_client *a = come(0), *b = come(1);
    const bool sync = gw_ps_client_info(a).mode == GW_PS_SYNC;
    init_long(a), init_long(b);
    push_long(a, 1), push_long(b, 2);
    die_for_long(b);
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        const uint64_t half = push_half(a, ahead, 5);
        b = come(1);
        init_long(b);
        const uint64_t whole = begin_long(b, 6); /* it may wait until both servers are at its round */
        gw_ps_server_redial(&a->servers[!ahead]);
        ok(wait_for(a, half)), ok(wait_for(b, whole));
        if (sync) /* else results are over the last push of each */
            push_long(a, 7), expect_long(a, 13), expect_long(b, 13);
        die_for_long(b);
    }
    gw_ps_client_destroy(a);
}

/* In mode async the last push of each worker counts. But a push of the run before must not count in a sum. "latest"
 * must still give it. */
TEST(without_rounds_too)
{
    gw_ps_client *a = come(0), *b = come(1), *reader = come(GW_PS_READER);
    gw_ps_value value;
    init(a, "x"), init(b, "x");
    push(a, "x", 1000), push(b, "x", 2000);
    expect_sum(a, "x", 3000, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
    expect_sum(reader, "x", 3000, 2); /* no new run has begun yet */
    a = come(0);
    init(a, "x");
    ok(gw_ps_pull(a, "x", GW_PS_LATEST, NULL, &value)), take_x(&value, 2000, 1);
    refused(gw_ps_pull(a, "x", GW_PS_SUM, NULL, &value), GW_ERR_ORDER, "");
    push(a, "x", 1), expect_sum(a, "x", 1, 1);
    gw_ps_client_destroy(a), gw_ps_client_destroy(reader);
}

/* A worker dies and comes back while another one is there. The run goes on, and the worker's push must stay. */
TEST(who_comes_back_goes_on)
{
    gw_ps_client *a = come(0), *b = come(1);
    init(a, "x"), init(b, "x");
    push(a, "x", 5);
    die(a);
    a = come(0);
    init(a, "x");
    push(b, "x", 2);
    expect_sum(a, "x", 7, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A server is started again on its folder. Its workers come back by themselves. The server must not take them for a new
 * run. */
TEST(a_restart_is_no_new_run)
{
#ifndef GW_HAVE_SQLITE
    skip();
#endif
    char folder[] = "/tmp/gradwire-runs-XXXXXX", place[PLACE_BYTES];
    assert_non_null(mkdtemp(folder));
    find_place(place);
    const gw_ps_server_options options = {.listen = place, .n_workers = 2, .away_ms = 20000, .snapshot = folder};
    serve(1, &options);
    gw_ps_client *a = come(0), *b = come(1);
    init(a, "x"), init(b, "x"), push(a, "x", 5);
    die(a);
    end_serving();
    serve(1, &options);
    a = come(0);
    push(b, "x", 2); /* over a new connection */
    init(a, "x");
    expect_sum(b, "x", 7, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
    end_serving();
    remove_folder(folder);
}

/* The log names the round that goes on without a worker, also if the workers use no exchange. */
TEST(left_out_of_which_round)
{
    left_out_at = 0;
    gw_ps_client *a = come(0), *b = come(1);
    init(a, "x"), init(b, "x");
    for (int round = 1; round < 9; round++)
        push(a, "x", 1), push(b, "x", 1);
    die(b);
    while (left_out_at == 0)
        usleep(10000);
    assert_int_equal(left_out_at, 9);
    gw_ps_client_destroy(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leftover_push_does_not_mix),
        ON_SERVER(keys_begin_alike, .n_workers = 2, .away_ms = 300),
        ON_TWO(parts_begin_alike, .n_workers = 2, .away_ms = 300),
        ON_TWO(parts_of_fewer_pushes, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50,
               .log = find_round),
        ON_TWO(who_was_left_out_goes_on, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50,
               .log = find_round),
        ON_TWO(who_was_left_out_goes_on, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50,
               .log = find_round, .mode = GW_PS_ASYNC),
        ON_TWO(who_was_left_out_goes_on, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50,
               .log = find_round, .mode = GW_PS_STALE, .staleness = 3),
        ON_SERVER(without_rounds_too, .n_workers = 2, .mode = GW_PS_ASYNC),
        ON_SERVER(who_comes_back_goes_on, .n_workers = 2, .away_ms = 300),
        cmocka_unit_test(a_restart_is_no_new_run),
        ON_SERVER(left_out_of_which_round, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50,
                  .log = find_round),
    };
    return cmocka_run_group_tests_name("pserver runs", tests, NULL, NULL);
}
