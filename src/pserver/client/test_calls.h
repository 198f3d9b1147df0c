/* What tests of clients and servers share: one server or two, and calls that must succeed, on keys of one float32. */
#ifndef GW_PSERVER_CLIENT_TEST_CALLS_H
#define GW_PSERVER_CLIENT_TEST_CALLS_H

#include "pserver/server/test_server.h"

/* ---- servers: those of the test -------------------------------------------------------------------------------- */

static struct {
    struct test_server all[2];
    uint32_t n;
    char places[256]; /* their addresses, as clients take them */
} served;

static inline const char *place_of(uint32_t server)
{
    return gw_ps_server_address(served.all[server].server);
}

static inline void serve(uint32_t n, const gw_ps_server_options *options)
{
    served.n = n, served.places[0] = 0;
    for (uint32_t s = 0; s < n; s++) {
        const size_t used = strlen(served.places);
        test_server_begin(&served.all[s], options);
        snprintf(served.places + used, sizeof served.places - used, "%s%s", s ? "," : "", place_of(s));
    }
}

static inline void end_serving(void)
{
    for (uint32_t s = 0; s < served.n; s++)
        test_server_end(&served.all[s]);
}

static inline int set_up(void **options)
{
    serve(1, *options);
    return 0;
}

static inline int set_up_two(void **options)
{
    serve(2, *options);
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    end_serving();
    return 0;
}

/* A test, and the options of the server, or of the two servers, that it finds. */
#define ON_SERVER(test, ...)                                                                                           \
    cmocka_unit_test_prestate_setup_teardown(test, set_up, tear_down, (&(gw_ps_server_options){__VA_ARGS__}))
#define ON_TWO(test, ...)                                                                                              \
    cmocka_unit_test_prestate_setup_teardown(test, set_up_two, tear_down, (&(gw_ps_server_options){__VA_ARGS__}))

/* ---- clients of all of them ------------------------------------------------------------------------------------- */

static inline gw_ps_client *come(uint32_t rank)
{
    return test_client(served.places, rank, false, LONG_MS);
}

/* Its calls wait at most so long from now on. A call that must succeed needs LONG_MS. */
static inline void limit(gw_ps_client *client, uint32_t timeout_ms)
{
    client->timeout_ms = timeout_ms;
}

/* It takes part once it joins. */
static inline gw_ps_client *come_to_join(uint32_t rank)
{
    return test_client(served.places, rank, true, LONG_MS);
}

static inline void init(gw_ps_client *client, const char *key)
{
    ok(test_init(client, key, GW_PS_FLOAT32, 1, NULL, NULL));
}

static inline void push(gw_ps_client *client, const char *key, float x)
{
    ok(gw_ps_push(client, key, &x, sizeof x));
}

/* Begins a call, and gives its request. */
static inline uint64_t begin_call(gw_ps_client *client, gw_ps_call call)
{
    uint64_t request = 0;
    ok(test_begin(client, call, &request));
    return request;
}

static inline uint64_t begin_push(gw_ps_client *client, const char *key, const float *x)
{
    return begin_call(client, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = key, .bytes = x, .n_bytes = sizeof *x});
}

static inline uint64_t begin_sum(gw_ps_client *client, const char *key)
{
    return begin_call(client, (gw_ps_call){.kind = GW_PS_CALL_PULL, .key = key, .method = GW_PS_SUM});
}

static inline gw_status wait_for(gw_ps_client *client, uint64_t request)
{
    return gw_ps_wait(client, request, GW_PS_NO_LIMIT, NULL);
}

/* A value is this one float32, of that many pushes. It is given back. */
static inline void take_x(gw_ps_value *value, float x, uint32_t n_pushes)
{
    CHECK(*(const float *)value->bytes == x && value->n_pushes == n_pushes, "%g of %u pushes, and not %g of %u",
          (double)*(const float *)value->bytes, value->n_pushes, (double)x, n_pushes);
    gw_ps_value_free(value);
}

/* The sum of a round of so many pushes. */
static inline void expect_sum(gw_ps_client *client, const char *key, float sum, uint32_t n_pushes)
{
    gw_ps_value value = {.bytes = NULL};
    ok(gw_ps_pull(client, key, GW_PS_SUM, NULL, &value));
    take_x(&value, sum, n_pushes);
}

#endif
