/* Runs a server in a thread of its own, for tests. */
#ifndef GW_PSERVER_SERVER_TEST_SERVER_H
#define GW_PSERVER_SERVER_TEST_SERVER_H

#include "log_shape.h"
#include "outcome.h"
#include "pserver/client/test_begin.h"

#include <gradwire/pserver.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

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

/* Makes a client, which the servers must accept. servers: the address of one or several, with commas between. */
static inline gw_ps_client *test_client(const char *servers, uint32_t rank, bool joins, uint32_t timeout_ms)
{
    gw_ps_client_options options = {
        .struct_bytes = sizeof options, .servers = servers, .rank = rank, .joins = joins, .timeout_ms = timeout_ms};
    gw_ps_client *client = NULL;
    ok(gw_ps_client_create(NULL, &options, &client));
    return client;
}

#endif
