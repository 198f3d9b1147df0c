/* Tests large pushes, which are sent directly from the caller's memory: when the call has returned, the caller may use
 * the bytes again, whatever the result was. */
#include "base/clock.h"
#include "pserver/client/for_exchange.h"
#include "outcome.h"
#include "pserver/client/test_begin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define N_BYTES ((size_t)24 << 20) /* more than sockets hold */

/* A server as a process of its own, which can be stopped. */
struct world {
    pid_t server;
    gw_ps_client *client;
};

static pid_t start_server(char address[128])
{
    int told[2];
    assert_int_equal(pipe(told), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        gw_ps_server_options options = {.struct_bytes = sizeof options,
                                        .listen = "127.0.0.1:0",
                                        .n_workers = 1,
                                        .mode = GW_PS_ASYNC,
                                        .timeout_ms = 600000};
        gw_ps_server *server;
        if (gw_ps_server_create(NULL, &options, &server) < 0)
            _exit(1);
        snprintf(address, 128, "%s", gw_ps_server_address(server));
        if (write(told[1], address, 128) != 128)
            _exit(1);
        _exit(gw_ps_server_run(server) < 0);
    }
    close(told[1]);
    assert_int_equal(read(told[0], address, 128), 128);
    close(told[0]);
    return pid;
}

static void begin(struct world *world, uint32_t timeout_ms)
{
    char address[128];
    world->server = start_server(address);
    const gw_ps_client_options options = {.struct_bytes = sizeof options,
                                          .servers = address,
                                          .rank = 0,
                                          .timeout_ms = timeout_ms};
    ok(gw_ps_client_create(NULL, &options, &world->client));
    ok(test_init(world->client, "large", GW_PS_UINT8, N_BYTES, NULL, NULL));
}

static void end(struct world *world)
{
    gw_ps_client_destroy(world->client);
    kill(world->server, SIGKILL);
    waitpid(world->server, NULL, 0);
}

/* Bytes that are no memory any more once they are given back: whoever reads them then fails loudly. */
static uint8_t *bytes_new(uint8_t fill)
{
    uint8_t *bytes = mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(bytes != MAP_FAILED);
    memset(bytes, fill, N_BYTES);
    return bytes;
}

static void assert_latest(gw_ps_client *client, uint8_t fill)
{
    gw_ps_value value;
    ok(gw_ps_pull(client, "large", GW_PS_LATEST, NULL, &value));
    assert_int_equal(value.n_bytes, N_BYTES);
    const uint8_t *bytes = value.bytes;
    for (size_t i = 0; i < N_BYTES; i += 4093)
        assert_int_equal(bytes[i], fill);
    gw_ps_value_free(&value);
}

/* Until the server, which may be slow, has the next push. */
static void push_at_last(gw_ps_client *client, uint8_t fill)
{
    uint8_t *bytes = bytes_new(fill);
    const double deadline = gw_clock_seconds() + 60;
    gw_status status;
    do
        status = gw_ps_push(client, "large", bytes, N_BYTES);
    while (status < 0 && gw_clock_seconds() < deadline);
    ok(status);
    munmap(bytes, N_BYTES);
}

static void test_push_that_times_out(void **state)
{
    (void)state;
    struct world world;
    begin(&world, 2000);
    push_at_last(world.client, 1);
    uint8_t *bytes = bytes_new(2);
    kill(world.server, SIGSTOP);
    refused(gw_ps_push(world.client, "large", bytes, N_BYTES), GW_ERR_TIMEOUT, "");
    munmap(bytes, N_BYTES);
    kill(world.server, SIGCONT);
    push_at_last(world.client, 3);
    assert_latest(world.client, 3);
    end(&world);
}

/* Other requests, lost with the connection that was cut, are sent again. */
static void test_push_that_is_dropped(void **state)
{
    (void)state;
    struct world world;
    uint64_t large, small;
    begin(&world, 60000);
    const uint8_t one = 7;
    ok(test_init(world.client, "small", GW_PS_UINT8, 0, NULL, NULL));
    uint8_t *bytes = bytes_new(2);
    kill(world.server, SIGSTOP);
    ok(test_begin(world.client,
                  (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "large", .bytes = bytes, .n_bytes = N_BYTES}, &large));
    ok(test_begin(world.client, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "small", .bytes = &one, .n_bytes = 1},
                  &small));
    gw_ps_client_drop(world.client, large);
    munmap(bytes, N_BYTES);
    kill(world.server, SIGCONT);
    ok(gw_ps_wait(world.client, small, GW_PS_NO_LIMIT, NULL));
    refused(gw_ps_wait(world.client, large, GW_PS_NO_LIMIT, NULL), GW_ERR_ORDER, "");
    bytes = bytes_new(3);
    ok(gw_ps_push(world.client, "large", bytes, N_BYTES));
    munmap(bytes, N_BYTES);
    assert_latest(world.client, 3);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_push_that_times_out),
        cmocka_unit_test(test_push_that_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
