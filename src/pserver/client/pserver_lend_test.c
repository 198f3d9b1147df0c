/* Tests large pushes, which are sent directly from the caller's memory: when the call has returned, the caller may use
 * the bytes again, whatever the result was. */
#define _GNU_SOURCE /* pipe2 */
#include "pserver/client/for_exchange.h"
#include "pserver/server/test_process.h"

#include <signal.h>
#include <sys/mman.h>

#define N_BYTES ((size_t)24 << 20) /* more than sockets hold */

static struct process server;
static gw_ps_client *client;

static void begin(void)
{
    process_begin(&server, &(gw_ps_server_options){.n_workers = 1, .mode = GW_PS_ASYNC, .timeout_ms = 600000}, 0);
    client = test_client(server.address, 0, false, LONG_MS);
    ok(test_init(client, "large", GW_PS_UINT8, N_BYTES, NULL, NULL));
}

static void end(void)
{
    gw_ps_client_destroy(client);
    process_end(&server);
}

/* Bytes that are no memory any more once they are given back: whoever reads them then fails loudly. */
static uint8_t *bytes_new(uint8_t fill)
{
    uint8_t *bytes = mmap(NULL, N_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(bytes != MAP_FAILED);
    memset(bytes, fill, N_BYTES);
    return bytes;
}

static void assert_latest(uint8_t fill)
{
    gw_ps_value value;
    ok(gw_ps_pull(client, "large", GW_PS_LATEST, NULL, &value));
    assert_int_equal(value.n_bytes, N_BYTES);
    const uint8_t *bytes = value.bytes;
    for (size_t i = 0; i < N_BYTES; i += 4093)
        assert_int_equal(bytes[i], fill);
    gw_ps_value_free(&value);
}

static void push(uint8_t fill)
{
    uint8_t *bytes = bytes_new(fill);
    ok(gw_ps_push(client, "large", bytes, N_BYTES));
    munmap(bytes, N_BYTES);
}

TEST(a_push_that_times_out)
{
    begin();
    push(1);
    uint8_t *bytes = bytes_new(2);
    process_stop(&server);
    client->timeout_ms = 2000;
    refused(gw_ps_push(client, "large", bytes, N_BYTES), GW_ERR_TIMEOUT, "");
    munmap(bytes, N_BYTES);
    kill(server.id, SIGCONT);
    client->timeout_ms = LONG_MS;
    push(3);
    assert_latest(3);
    end();
}

/* Other requests, lost with the connection that was cut, are sent again. */
TEST(a_push_that_is_dropped)
{
    uint64_t large, small;
    begin();
    const uint8_t one = 7;
    ok(test_init(client, "small", GW_PS_UINT8, 0, NULL, NULL));
    uint8_t *bytes = bytes_new(2);
    process_stop(&server);
    ok(test_begin(client, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "large", .bytes = bytes, .n_bytes = N_BYTES},
                  &large));
    ok(test_begin(client, (gw_ps_call){.kind = GW_PS_CALL_PUSH, .key = "small", .bytes = &one, .n_bytes = 1}, &small));
    gw_ps_client_drop(client, large);
    munmap(bytes, N_BYTES);
    kill(server.id, SIGCONT);
    ok(gw_ps_wait(client, small, GW_PS_NO_LIMIT, NULL));
    refused(gw_ps_wait(client, large, GW_PS_NO_LIMIT, NULL), GW_ERR_ORDER, "");
    push(3);
    assert_latest(3);
    end();
}

RUN_TESTS("pserver lend", NULL, NULL)
