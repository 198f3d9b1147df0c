/* Tests when one run ends and the next begins on the same server, and the deadlines of requests that get the answer
 * "not yet". */
#define _GNU_SOURCE /* nftw */
#include "folders.h"
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
    char folder[] = "/tmp/gradwire-runs-XXXXXX", place[64];
    assert_non_null(mkdtemp(folder));
    gw_ps_server_options options = {.n_workers = 2, .away_ms = 20000, .snapshot = folder};
    serve(1, &options);
    snprintf(place, sizeof place, "%s", place_of(0));
    gw_ps_client *a = come(0), *b = come(1);
    init(a, "x"), init(b, "x"), push(a, "x", 5);
    die(a);
    end_serving();
    options.listen = place;
    serve(1, &options);
    a = come(0);
    push(b, "x", 2); /* over a new connection */
    init(a, "x");
    expect_sum(b, "x", 7, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
    end_serving();
    remove_folder(folder);
}

/* ---- the log ------------------------------------------------------------------------------------------------- */

static _Atomic int left_out_at;

static void find_round(const char *line, void *user)
{
    const char *at = strncmp(line, "left-out ", 9) == 0 ? strstr(line, "round=") : NULL;
    (void)user;
    if (at)
        left_out_at = atoi(at + 6);
}

/* The log names the round that goes on without a worker, also if the workers use no exchange. */
TEST(left_out_of_which_round)
{
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
        ON_SERVER(without_rounds_too, .n_workers = 2, .mode = GW_PS_ASYNC),
        ON_SERVER(who_comes_back_goes_on, .n_workers = 2, .away_ms = 300),
        cmocka_unit_test(a_restart_is_no_new_run),
        ON_SERVER(left_out_of_which_round, .n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .away_ms = 50,
                  .log = find_round),
    };
    return cmocka_run_group_tests_name("pserver runs", tests, NULL, NULL);
}
