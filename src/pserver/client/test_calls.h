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

static inline int set_up(void **options)
{
    struct test_server *s = malloc(sizeof *s);
    test_server_begin(s, *options);
    *options = s;
    return 0;
}

static inline int tear_down(void **state)
{
    test_server_end(*state);
    free(*state);
    return 0;
}

static inline int set_up_two(void **options)
{
    const gw_ps_server_options *o = *options;
    struct pair *p = malloc(sizeof *p);
    serve_two(p, o->n_workers, o->missing);
    *options = p;
    return 0;
}

static inline int tear_down_two(void **state)
{
    struct pair *p = *state;
    test_server_end(&p->servers[0]), test_server_end(&p->servers[1]);
    free(p);
    return 0;
}

/* A test, and the options of the server, or of the two servers, that it finds in its state. */
#define ON_SERVER(test, ...)                                                                                           \
    {                                                                                                                  \
#test, test, set_up, tear_down, &(gw_ps_server_options)                                                        \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define ON_TWO(test, ...)                                                                                              \
    {                                                                                                                  \
#test, test, set_up_two, tear_down_two, &(gw_ps_server_options)                                                \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

#endif
