/* What tests of clients and servers share: calls that must succeed, on keys of one float32, and two servers. */
#ifndef GW_PSERVER_CLIENT_TEST_CALLS_H
#define GW_PSERVER_CLIENT_TEST_CALLS_H

#include "pserver/server/test_server.h"

#define LONG_MS 20000

static inline gw_ps_client *come_to(const struct test_server *s, uint32_t rank)
{
    return test_client(gw_ps_server_address(s->server), rank, false, LONG_MS);
}

static inline void expect_ok(gw_status status)
{
    if (status < 0)
        print_error("%s\n", gw_last_error());
    assert_int_equal(status, GW_OK);
}

static inline void init(gw_ps_client *client, const char *key)
{
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
    expect_ok(test_init(client, key, GW_PS_FLOAT32, &one, NULL, NULL));
}

static inline void push(gw_ps_client *client, const char *key, float x)
{
    expect_ok(gw_ps_push(client, key, &x, sizeof x));
}

/* The sum of a round of so many pushes. */
static inline void expect_sum(gw_ps_client *client, const char *key, float sum, uint32_t n_pushes)
{
    gw_ps_value value;
    expect_ok(gw_ps_pull(client, key, GW_PS_SUM, NULL, &value));
    assert_int_equal(value.n_pushes, n_pushes);
    assert_true(*(float *)value.bytes == sum);
    gw_ps_value_free(&value);
}

struct pair {
    struct test_server servers[2];
    char places[256];
};

static inline void serve_two(struct pair *p, uint32_t n_workers, gw_ps_missing missing)
{
    for (int i = 0; i < 2; i++)
        test_server_begin(&p->servers[i],
                          &(gw_ps_server_options){.n_workers = n_workers, .missing = missing, .away_ms = 50});
    snprintf(p->places, sizeof p->places, "%s,%s", gw_ps_server_address(p->servers[0].server),
             gw_ps_server_address(p->servers[1].server));
}

#endif
