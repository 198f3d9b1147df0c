/* Runs a server in a thread of its own, for tests; makes clients, and calls of a client in one line. */
#ifndef GW_PSERVER_SERVER_TEST_SERVER_H
#define GW_PSERVER_SERVER_TEST_SERVER_H

#include "log_shape.h"
#include "outcome.h"
#include "pserver/client/state.h"

#include <gradwire/pserver.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LONG_MS 60000 /* for what must succeed, also on a busy machine */

struct test_server {
    gw_ps_server *server;
    pthread_t thread;
};

/* GW_TEST_LOG=1 shows what the server says. */
static inline void test_server_log(const char *line, void *user)
{
    (void)user;
    check_log_line(line);
    if (getenv("GW_TEST_LOG"))
        fprintf(stderr, "%s\n", line);
}

static inline void *test_server_run(void *server)
{
    return (void *)(intptr_t)gw_ps_server_run(server);
}

/* Starts a server with these options: at a free port, if they name no address. */
static inline void test_server_begin_in(gw_context *context, struct test_server *s, const gw_ps_server_options *chosen)
{
    gw_ps_server_options options = *chosen;
    options.struct_bytes = sizeof options;
    options.listen = chosen->listen ? chosen->listen : "127.0.0.1:0";
    options.log = chosen->log ? chosen->log : test_server_log;
    ok(gw_ps_server_create(context, &options, &s->server));
    assert_int_equal(pthread_create(&s->thread, NULL, test_server_run, s->server), 0);
}

static inline void test_server_begin(struct test_server *s, const gw_ps_server_options *chosen)
{
    test_server_begin_in(NULL, s, chosen);
}

static inline void test_server_end(struct test_server *s)
{
    void *status;
    gw_ps_server_stop(s->server);
    pthread_join(s->thread, &status);
    assert_int_equal((intptr_t)status, GW_OK);
    gw_ps_server_destroy(s->server);
}

static inline gw_status test_client_create(gw_ps_client_options options, gw_ps_client **client)
{
    options.struct_bytes = sizeof options;
    return gw_ps_client_create(NULL, &options, client);
}

/* Makes a client, which the servers must accept. Its calls wait for timeout_ms. servers: the address of one or several,
 * with commas between. */
static inline gw_ps_client *test_client(const char *servers, uint32_t rank, bool joins, uint32_t timeout_ms)
{
    gw_ps_client *client;
    ok(test_client_create(
        (gw_ps_client_options){.servers = servers, .rank = rank, .joins = joins, .timeout_ms = LONG_MS}, &client));
    client->timeout_ms = timeout_ms;
    return client;
}

/* ---- calls: they fill in the options of a key, and the size of a call ---- */

/* A key of n elements in a row. 0: a scalar. */
static inline gw_status test_init(gw_ps_client *client, const char *key, gw_ps_type type, uint64_t n,
                                  const char *optimizer, const float *values)
{
    return gw_ps_init(client, key,
                      &(gw_ps_key_options){.struct_bytes = sizeof(gw_ps_key_options),
                                           .type = type,
                                           .shape = {.n_dims = n > 0, .dims = {n}},
                                           .optimizer = optimizer,
                                           .values = values});
}

static inline gw_status test_begin(gw_ps_client *client, gw_ps_call call, uint64_t *request)
{
    call.struct_bytes = sizeof call;
    return gw_ps_begin(client, &call, request);
}

/* A push with a learning rate, to a key with an optimizer. */
static inline gw_status test_push_at(gw_ps_client *client, const char *key, const void *bytes, size_t n_bytes,
                                     double rate)
{
    uint64_t request;
    const gw_status status =
        test_begin(client,
                   (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = key, .bytes = bytes, .n_bytes = n_bytes, .rate = rate},
                   &request);
    return status < 0 ? status : gw_ps_wait(client, request, GW_PS_NO_LIMIT, NULL);
}

#endif
