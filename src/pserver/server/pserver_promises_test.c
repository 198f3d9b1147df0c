/* Holds sentences of gradwire/pserver.h and docs/pserver.md that no other test does: what may be NULL, which names are
 * legal, what a reader may do, and which numbers are refused. */
#include "pserver/server/test_server.h"

#include "checks.h"

#include <math.h>
#include <string.h>

static const gw_ps_shape one_float = {.n_dims = 1, .dims = {1}};

static void nothing_can_be_destroyed(void **state)
{
    (void)state;
    gw_ps_value empty = {0};
    gw_ps_server_destroy(NULL);
    gw_ps_client_destroy(NULL);
    gw_ps_value_free(NULL);
    gw_ps_value_free(&empty);
}

/* A server that never ran, and one that was stopped before it ran. */
static void a_server_may_end_before_it_runs(void **state)
{
    (void)state;
    const gw_ps_server_options o = {.struct_bytes = sizeof o, .listen = "127.0.0.1:0", .n_workers = 1};
    for (int runs = 0; runs < 2; runs++) {
        gw_ps_server *server;
        assert_int_equal(gw_ps_server_create(NULL, &o, &server), GW_OK);
        gw_ps_server_stop(server);
        if (runs)
            assert_int_equal(gw_ps_server_run(server), GW_OK);
        gw_ps_server_destroy(server);
    }
}

static gw_status make(gw_ps_client *client, const char *name)
{
    return test_init(client, name, GW_PS_FLOAT32, &one_float, NULL, NULL);
}

static void names_are_of_1_to_255_bytes(void **state)
{
    (void)state;
    struct test_server s;
    test_server_begin(&s, &(gw_ps_server_options){.n_workers = 1});
    gw_ps_client *client = test_client(gw_ps_server_address(s.server), 0, false, 10000);
    char longest[GW_PS_MOST_NAME + 2];
    memset(longest, 'x', sizeof longest);
    longest[GW_PS_MOST_NAME + 1] = 0;
    assert_int_equal(make(client, longest), GW_ERR_ARGUMENT);
    longest[GW_PS_MOST_NAME] = 0;
    assert_int_equal(make(client, longest), GW_OK);
    assert_int_equal(make(client, "x"), GW_OK);
    assert_int_equal(make(client, ""), GW_ERR_ARGUMENT);
    for (int c = 1; c < 128; c++) {
        const char name[] = {'a', (char)c, 0};
        const bool legal = c >= ' ' && c != 127;
        CHECK(make(client, name) == (legal ? GW_OK : GW_ERR_ARGUMENT), "byte %d: %s", c, gw_last_error());
    }
    gw_ps_client_destroy(client);
    test_server_end(&s);
}

static void a_reader_may_do_all_but_push(void **state)
{
    (void)state;
    const float x = 3;
    struct test_server s;
    gw_ps_value value;
    test_server_begin(&s, &(gw_ps_server_options){.n_workers = 1});
    gw_ps_client *reader = test_client(gw_ps_server_address(s.server), GW_PS_READER, false, 10000),
                 *worker = test_client(gw_ps_server_address(s.server), 0, false, 10000);
    assert_int_equal(make(reader, "x"), GW_OK);
    assert_int_equal(gw_ps_push(reader, "x", &x, sizeof x), GW_ERR_ARGUMENT);
    assert_int_equal(gw_ps_put(reader, "x", 1, &x, sizeof x), GW_OK);
    assert_int_equal(gw_ps_get(reader, "x", 1, &value), GW_OK);
    gw_ps_value_free(&value);
    assert_int_equal(make(worker, "x"), GW_OK);
    assert_int_equal(gw_ps_push(worker, "x", &x, sizeof x), GW_OK);
    assert_int_equal(gw_ps_pull(reader, "x", GW_PS_LATEST, NULL, &value), GW_OK);
    gw_ps_value_free(&value);
    gw_ps_client_destroy(worker);
    gw_ps_client_destroy(reader);
    test_server_end(&s);
}

static void numbers_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const double bad_rates[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -1, 1e39};
    const float x = 3;
    struct test_server s;
    test_server_begin(&s, &(gw_ps_server_options){.n_workers = 1});
    gw_ps_client *c = test_client(gw_ps_server_address(s.server), 0, false, 10000);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(test_init(c, "w", GW_PS_FLOAT32, &one_float, "sgd", &bad[i]), GW_ERR_NONFINITE);
    assert_int_equal(test_init(c, "v", GW_PS_FLOAT32, &one_float, "sgdd", &x), GW_ERR_SPEC);
    assert_int_equal(test_init(c, "w", GW_PS_FLOAT32, &one_float, "sgd", &x), GW_OK);
    for (size_t i = 0; i < sizeof bad_rates / sizeof *bad_rates; i++)
        CHECK(test_push_at(c, "w", &x, sizeof x, bad_rates[i]) == GW_ERR_ARGUMENT, "%g", bad_rates[i]);
    assert_int_equal(gw_ps_put(c, "w", 1, &x, sizeof x), GW_ERR_ARGUMENT); /* it has an optimizer */
    assert_int_equal(gw_ps_wait(c, 12345, GW_PS_NO_LIMIT, NULL), GW_ERR_ORDER);
    gw_ps_cancel(c, 12345);
    assert_int_equal(gw_ps_push(c, "w", &x, sizeof x), GW_OK); /* all is well */
    gw_ps_client_destroy(c);
    test_server_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_can_be_destroyed),           cmocka_unit_test(a_server_may_end_before_it_runs),
        cmocka_unit_test(names_are_of_1_to_255_bytes),        cmocka_unit_test(a_reader_may_do_all_but_push),
        cmocka_unit_test(numbers_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("pserver promises", tests, NULL, NULL);
}
