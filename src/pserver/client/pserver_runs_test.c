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

static void leave(gw_ps_client *client, bool dies)
{
    if (dies)
        die(client);
    else
        gw_ps_client_destroy(client);
}

/* Rank 0 has pushed to a round, and rank 1 has not; then both end. That push must not mix with the pushes of the next
 * two workers. */
static void a_leftover_push_does_not_mix(void **state)
{
    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        struct test_server s;
        test_server_begin(&s, &(gw_ps_server_options){.n_workers = 2, .away_ms = 300});
        gw_ps_client *a = come_to(&s, 0), *b = come_to(&s, 1);
        init(a, "x"), init(b, "x");
        push(a, "x", 1), push(b, "x", 2);
        expect_sum(a, "x", 3, 2);
        push(a, "x", 1000);
        leave(a, dies), leave(b, dies);
        a = come_to(&s, 0), b = come_to(&s, 1);
        init(a, "x"), init(b, "x");
        for (float x = 10; x < 40; x += 10) {
            push(b, "x", x + 1), push(a, "x", x);
            expect_sum(b, "x", 2 * x + 1, 2);
            expect_sum(a, "x", 2 * x + 1, 2);
        }
        gw_ps_client_destroy(a), gw_ps_client_destroy(b);
        test_server_end(&s);
    }
}

/* In mode async the last push of each worker counts. But a push of the run before must not count in a sum. "latest"
 * must still give it. */
static void without_rounds_too(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0), *b = come_to(s, 1), *reader = come_to(s, GW_PS_READER);
    gw_ps_value value;
    init(a, "x"), init(b, "x");
    push(a, "x", 1000), push(b, "x", 2000);
    expect_sum(a, "x", 3000, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
    expect_sum(reader, "x", 3000, 2); /* no new run has begun yet */
    a = come_to(s, 0);
    init(a, "x");
    expect_ok(gw_ps_pull(a, "x", GW_PS_LATEST, NULL, &value));
    assert_true(*(float *)value.bytes == 2000);
    gw_ps_value_free(&value);
    assert_int_equal(gw_ps_pull(a, "x", GW_PS_SUM, NULL, &value), GW_ERR_ORDER);
    push(a, "x", 1);
    expect_sum(a, "x", 1, 1);
    gw_ps_client_destroy(a), gw_ps_client_destroy(reader);
}

/* A worker dies and comes back while another one is there. The run goes on, and the worker's push must stay. */
static void who_comes_back_goes_on(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0), *b = come_to(s, 1);
    init(a, "x"), init(b, "x");
    push(a, "x", 5);
    die(a);
    a = come_to(s, 0);
    init(a, "x");
    push(b, "x", 2);
    expect_sum(a, "x", 7, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
}

/* A server is started again on its folder. Its workers come back by themselves. The server must not take them for a new
 * run. */
static void a_restart_is_no_new_run(void **state)
{
    (void)state;
#ifndef GW_HAVE_SQLITE
    skip();
#endif
    char folder[] = "/tmp/gradwire-runs-XXXXXX", place[64];
    struct test_server s;
    assert_non_null(mkdtemp(folder));
    gw_ps_server_options options = {.n_workers = 2, .away_ms = 20000, .snapshot = folder};
    test_server_begin(&s, &options);
    snprintf(place, sizeof place, "%s", gw_ps_server_address(s.server));
    gw_ps_client *a = come_to(&s, 0), *b = come_to(&s, 1);
    init(a, "x"), init(b, "x");
    push(a, "x", 5);
    die(a);
    test_server_end(&s);
    options.struct_bytes = sizeof options, options.listen = place;
    assert_int_equal(gw_ps_server_create(NULL, &options, &s.server), GW_OK);
    assert_int_equal(pthread_create(&s.thread, NULL, test_server_run, s.server), 0);
    a = come_to(&s, 0);
    push(b, "x", 2); /* over a new connection */
    init(a, "x");
    expect_sum(b, "x", 7, 2);
    gw_ps_client_destroy(a), gw_ps_client_destroy(b);
    test_server_end(&s);
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
static void left_out_of_which_round(void **state)
{
    const struct test_server *s = *state;
    gw_ps_client *a = come_to(s, 0), *b = come_to(s, 1);
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
