/* Tests an exchange of many tensors through one server, while another worker is late: more pulls wait than a server
 * lets wait for one client. */
#include "pserver/server/test_server.h"

#include <gradwire/exchange.h>

#include <string.h>
#include <time.h>

enum { WORKERS = 2, TENSORS = 1100, ELEMENTS = 8, STEPS = 2, TIMEOUT_MS = 60000 };
enum { LATE_NS = 300000000, PAUSE_NS = 50000 };

struct worker {
    gw_ps_client *client;
    gw_exchange *exchange;
    float values[TENSORS][ELEMENTS];
};

/* Each tensor is a group of its own. */
static void come(struct worker *w, const char *address, uint32_t rank, const gw_codec *codec, const char *optimizer)
{
    const uint32_t n = TENSORS;
    gw_tensor *tensors = calloc(n, sizeof *tensors);
    float **values = calloc(n, sizeof *values);
    for (uint32_t t = 0; t < n; t++) {
        tensors[t] = (gw_tensor){.id = t, .n_elems = ELEMENTS};
        values[t] = w->values[t];
    }
    w->client = test_client(address, rank, false, TIMEOUT_MS);
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = codec,
                                         .tensors = tensors,
                                         .n_tensors = n,
                                         .servers = w->client,
                                         .timeout_ms = TIMEOUT_MS,
                                         .server_optimizer = optimizer};
    ok(gw_exchange_create(NULL, &options, &w->exchange));
    if (optimizer)
        ok(gw_exchange_init_parameters(w->exchange, values));
    free(tensors), free(values);
}

/* The first worker hands all tensors over. When the server has all that this asks for, the second one hands them over
 * one by one. So the answers come one by one. */
static void make_step(struct worker *workers, uint32_t step)
{
    for (uint32_t r = 0; r < WORKERS; r++) {
        ok(gw_exchange_begin(workers[r].exchange, step));
        if (r > 0)
            nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
        for (uint32_t t = 0; t < TENSORS; t++) {
            for (int i = 0; i < ELEMENTS; i++)
                workers[r].values[t][i] = (float)(r + 1);
            ok(gw_exchange_submit(workers[r].exchange, t, workers[r].values[t]));
            if (r > 0)
                nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        }
    }
    for (uint32_t r = 0; r < WORKERS; r++) {
        gw_step_result result;
        ok(gw_exchange_wait(workers[r].exchange, &result));
        assert_true(result.committed);
    }
}

TEST(more_pulls_than_may_wait)
{
    static const char *const optimizers[] = {NULL, "sgd"};
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
        struct worker *workers = calloc(WORKERS, sizeof *workers);
        struct test_server server;
        gw_codec *codec;
        ok(gw_codec_parse(NULL, "ternary", &codec));
        test_server_begin(&server, &(gw_ps_server_options){.n_workers = WORKERS});
        for (uint32_t r = 0; r < WORKERS; r++)
            come(&workers[r], gw_ps_server_address(server.server), r, codec, optimizers[o]);
        for (uint32_t step = 0; step < STEPS; step++)
            make_step(workers, step);
        for (uint32_t r = 0; r < WORKERS; r++) {
            gw_exchange_destroy(workers[r].exchange);
            gw_ps_client_destroy(workers[r].client);
        }
        test_server_end(&server);
        gw_codec_destroy(codec);
        free(workers);
    }
}

RUN_TESTS("servers many", NULL, NULL)
