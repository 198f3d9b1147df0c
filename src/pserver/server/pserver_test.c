/* Tests the server and its clients over loopback: Paddle#6599's own lines, rounds, what is refused, and what may be
 * NULL or end early. */
#include "pserver/client/test_calls.h"

#include <gradwire/codec.h>

#include <math.h>

static gw_ps_client *w[3]; /* the workers of the test */

/* Serves, and meets n of the workers, who make this key. */
static void begin(const gw_ps_server_options *options, uint32_t n, const char *key)
{
    serve(1, options);
    memset(w, 0, sizeof w);
    for (uint32_t r = 0; r < n; r++)
        w[r] = come(r), init(w[r], key);
}

static void end(void)
{
    for (uint32_t r = 0; r < 3; r++)
        gw_ps_client_destroy(w[r]);
    end_serving();
}

TEST(snippet_of_the_issue)
{
    const float largest[2] = {0.5f, 2.0f};
    /* 00 = -1, 01 = 0, 10 = +1, lowest element in the lowest bits: rank 0 has + 0 - +, 0 0 0 -; rank 1 + + 0 -, 0 - 0 0
     */
    const uint8_t grads[2][2] = {{0x86 ^ 0x00, 0x15}, {0x1A, 0x51}};
    begin(&(gw_ps_server_options){.n_workers = 2}, 2, "max_abs_grad");
    for (uint32_t r = 0; r < 2; r++)
        ok(test_init(w[r], "quantized_grad", GW_PS_UINT8, 2, NULL, NULL));
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t r = 0; r < 2; r++) {
            push(w[r], "max_abs_grad", largest[r]);
            ok(gw_ps_push(w[r], "quantized_grad", grads[r], sizeof grads[r]));
        }
        for (uint32_t r = 0; r < 2; r++) {
            gw_ps_value value;
            ok(gw_ps_pull(w[r], "max_abs_grad", GW_PS_MAX, NULL, &value));
            assert_true(value.type == GW_PS_FLOAT32 && value.n_bytes == 4 && value.round == step);
            take_x(&value, 2, 2);
            ok(gw_ps_pull(w[r], "quantized_grad", GW_PS_DECODE_AVERAGE, "max_abs_grad", &value));
            assert_true(value.type == GW_PS_FLOAT32 && value.n_bytes == 32 && value.n_pushes == 2 &&
                        value.shape.dims[0] == 8);
            for (int e = 0; e < 8; e++) {
                int sum = 0;
                for (int i = 0; i < 2; i++)
                    sum += (grads[i][e / 4] >> 2 * (e % 4) & 3) - 1;
                assert_true(((const float *)value.bytes)[e] == (float)sum / 2 * 2.0f);
            }
            gw_ps_value_free(&value);
        }
    }
    end();
}

TEST(pulls_wait_for_all_pushes)
{
    uint64_t requests[3];
    gw_ps_value value;
    begin(&(gw_ps_server_options){.n_workers = 3}, 3, "x");
    for (uint32_t r = 0; r < 3; r++)
        push(w[r], "x", (float)(1 << r)), requests[r] = begin_sum(w[r], "x");
    for (uint32_t r = 0; r < 3; r++)
        ok(gw_ps_wait(w[r], requests[r], GW_PS_NO_LIMIT, &value)), take_x(&value, 7, 3);
    refused(wait_for(w[0], requests[0]), GW_ERR_ORDER, "");
    end();
}

TEST(one_that_is_missing_is_named)
{
    const float x = 1;
    gw_ps_value value;
    begin(&(gw_ps_server_options){.n_workers = 3}, 2, "x");
    push(w[0], "x", x);
    limit(w[0], 400);
    refused(gw_ps_pull(w[0], "x", GW_PS_MAX, NULL, &value), GW_ERR_TIMEOUT, "rank 1, rank 2 (not connected)");
    /* The next push of the same worker waits for the round, and the same push is tried again. */
    refused(gw_ps_push(w[0], "x", &x, 4), GW_ERR_TIMEOUT, "");
    limit(w[0], LONG_MS);
    w[2] = come(2), init(w[2], "x");
    push(w[1], "x", x), push(w[2], "x", x), push(w[0], "x", x);
    ok(gw_ps_pull(w[1], "x", GW_PS_SUM, NULL, &value));
    assert_int_equal(value.round, 1);
    take_x(&value, 3, 3);
    end();
}

/* Of many that are missing, eight are named. */
TEST(many_that_are_missing)
{
    gw_ps_value value;
    begin(&(gw_ps_server_options){.n_workers = 10}, 1, "x");
    push(w[0], "x", 1);
    limit(w[0], 100);
    refused(gw_ps_pull(w[0], "x", GW_PS_MAX, NULL, &value), GW_ERR_TIMEOUT, ", rank 8 (not connected) and 1 more");
    end();
}

static char lines[2000];

static void keep_line(const char *line, void *user)
{
    (void)user;
    strncat(strncat(lines, line, 300), "\n", 2);
}

/* The log names a key when it is made, and not each time that a worker initialises it. */
TEST(new_keys_are_logged)
{
    begin(&(gw_ps_server_options){.n_workers = 2, .log = keep_line}, 2, "x");
    end();
    const char *first = strstr(lines, "init key=\"x\" type=float32 shape=\"[1]\"");
    assert_non_null(first);
    assert_null(strstr(first + 1, "init key="));
}

TEST(what_cannot_be_is_refused)
{
    const float x[2] = {1, 2};
    const char *const key = "max_abs_grad";
    char longest[GW_PS_MOST_NAME + 2] = "";
    gw_ps_value value;
    memset(longest, 'x', GW_PS_MOST_NAME + 1);
    begin(&(gw_ps_server_options){.n_workers = 1}, 1, key);
    refused(test_init(w[0], longest, GW_PS_FLOAT32, 1, NULL, NULL), GW_ERR_ARGUMENT, "");
    init(w[0], longest + 1);
    refused(test_init(w[0], "", GW_PS_FLOAT32, 1, NULL, NULL), GW_ERR_ARGUMENT, "");
    refused(gw_ps_push(w[0], "max_abs_gard", x, 4), GW_ERR_ARGUMENT, "\"max_abs_grad\"");
    refused(gw_ps_pull(w[0], key, GW_PS_MAX, NULL, &value), GW_ERR_ORDER, "");
    refused(gw_ps_push(w[0], key, x, 8), GW_ERR_ARGUMENT, "");
    refused(test_init(w[0], key, GW_PS_FLOAT32, 2, NULL, NULL), GW_ERR_ARGUMENT, "float32 of shape [1]");
    push(w[0], key, 1);
    refused(gw_ps_pull(w[0], key, GW_PS_DECODE_SUM, NULL, &value), GW_ERR_ARGUMENT, "max, min, sum, mean, latest");
    ok(gw_ps_pull(w[0], key, GW_PS_MIN, NULL, &value)), take_x(&value, 1, 1);

    char twice[2 * sizeof served.places], open_end[sizeof served.places + 1];
    snprintf(twice, sizeof twice, "%s,%s", served.places, served.places);
    snprintf(open_end, sizeof open_end, "%s,", served.places);
    const struct {
        gw_ps_client_options options;
        gw_status status;
        const char *words;
    } newcomers[] = {
        {{.servers = served.places, .timeout_ms = 8000}, GW_ERR_PEER, "rank 0 is here already"},
        /* it waits longer for a dead one's place */
        {{.servers = served.places, .timeout_ms = 500}, GW_ERR_PEER, "rank 0 is here already"},
        {{.servers = served.places, .rank = 1, .timeout_ms = 8000}, GW_ERR_PEER, ""},
        {{.servers = twice}, GW_ERR_ARGUMENT, "is named twice"},
        {{.servers = open_end, .rank = 1}, GW_ERR_ARGUMENT, "with commas between"},
    };
    for (int i = 0; i < 5; i++) {
        gw_ps_client *second;
        refused(test_client_create(newcomers[i].options, &second), newcomers[i].status, newcomers[i].words);
    }
    gw_ps_client *reader = come(GW_PS_READER);
    for (int i = 0; i < 2; i++) { /* without the key, and with it */
        refused(gw_ps_push(reader, key, x, 4), GW_ERR_ARGUMENT, "comes from a reader");
        ok(gw_ps_pull(reader, key, GW_PS_LATEST, NULL, &value)), take_x(&value, 1, 1);
        init(reader, key);
    }
    gw_ps_client_destroy(reader);
    end();
}

TEST(numbers_that_cannot_be_are_refused)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    static const double bad_rates[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, -1, 1e39};
    const float x = 3;
    begin(&(gw_ps_server_options){.n_workers = 1}, 1, "x");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(test_init(w[0], "w", GW_PS_FLOAT32, 1, "sgd", &bad[i]), GW_ERR_NONFINITE, "");
    refused(test_init(w[0], "v", GW_PS_FLOAT32, 1, "sgdd", &x), GW_ERR_SPEC, "");
    ok(test_init(w[0], "w", GW_PS_FLOAT32, 1, "sgd", &x));
    for (size_t i = 0; i < sizeof bad_rates / sizeof *bad_rates; i++)
        refused(test_push_at(w[0], "w", &x, sizeof x, bad_rates[i]), GW_ERR_ARGUMENT, "");
    refused(gw_ps_put(w[0], "w", 1, &x, sizeof x), GW_ERR_ARGUMENT, ""); /* it has an optimizer */
    refused(wait_for(w[0], 12345), GW_ERR_ORDER, "");
    gw_ps_cancel(w[0], 12345);
    push(w[0], "w", x); /* all is well */
    end();
}

TEST(a_worker_comes_back)
{
    begin(&(gw_ps_server_options){.n_workers = 2}, 2, "x");
    for (uint32_t step = 1; step <= 3; step++) {
        push(w[0], "x", (float)step), push(w[1], "x", (float)step);
        gw_ps_client_destroy(w[1]);
        w[1] = come(1), init(w[1], "x");
        expect_sum(w[0], "x", 2 * (float)step, 2), expect_sum(w[1], "x", 2 * (float)step, 2);
    }
    end();
}

/* If one push ahead of the slowest worker is allowed, two are one too many. */
TEST(staleness_bounds_who_is_ahead)
{
    gw_ps_value value;
    begin(&(gw_ps_server_options){.n_workers = 2, .mode = GW_PS_STALE, .staleness = 1}, 2, "x");
    push(w[0], "x", 1), expect_sum(w[0], "x", 1, 1);
    push(w[0], "x", 10), limit(w[0], 600);
    refused(gw_ps_pull(w[0], "x", GW_PS_SUM, NULL, &value), GW_ERR_TIMEOUT, "");
    limit(w[0], LONG_MS);
    push(w[1], "x", 100), expect_sum(w[0], "x", 110, 2);
    end();
}

/* The least rank's rate moves a round, and clients know how pulls are answered. */
TEST(rates_come_with_pushes)
{
    static const struct {
        gw_ps_mode mode;
        uint32_t staleness;
        float w;
    } cases[] = {{GW_PS_SYNC, 0, 7.5f}, {GW_PS_STALE, 3, 6.75f}, {GW_PS_ASYNC, 0, 6.75f}};
    const float first = 8, x = 1;
    for (int c = 0; c < 3; c++) {
        gw_ps_value value;
        begin(&(gw_ps_server_options){.n_workers = 2, .mode = cases[c].mode, .staleness = 3}, 2, "x");
        const gw_ps_info info = gw_ps_client_info(w[1]);
        assert_true(info.n_workers == 2 && info.mode == cases[c].mode && info.staleness == cases[c].staleness);
        ok(test_init(w[0], "w", GW_PS_FLOAT32, 1, "sgd", &first));
        ok(test_init(w[1], "w", GW_PS_FLOAT32, 1, "sgd", NULL));
        ok(test_push_at(w[1], "w", &x, 4, 2)), ok(test_push_at(w[0], "w", &x, 4, 0.5));
        ok(gw_ps_pull(w[1], "w", GW_PS_PARAMETERS, NULL, &value));
        assert_true(value.type == GW_PS_FLOAT32 && *(const float *)value.bytes == cases[c].w);
        gw_ps_value_free(&value);
        end();
    }
}

/* Values that travel in one piece, in several, and in pieces that end where the value does. */
TEST(values_of_many_pieces)
{
    enum { PIECE = 8 << 20 };
    static const uint64_t sizes[] = {1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 3};
    static uint8_t bytes[3 * PIECE + 3];
    for (uint64_t b = 0; b < sizeof bytes; b++)
        bytes[b] = (uint8_t)(b * 131 + b / PIECE);
    begin(&(gw_ps_server_options){.n_workers = 1}, 1, "x");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const char key[] = {(char)('0' + i), 0};
        gw_ps_value value;
        ok(test_init(w[0], key, GW_PS_UINT8, sizes[i], NULL, NULL));
        ok(gw_ps_push(w[0], key, bytes, sizes[i])), ok(gw_ps_pull(w[0], key, GW_PS_LATEST, NULL, &value));
        assert_true(value.n_bytes == sizes[i] && memcmp(value.bytes, bytes, sizes[i]) == 0);
        gw_ps_value_free(&value);
    }
    end();
}

/* Options at their limits. The address is no address: what is good so far is told of that. */
TEST(options_at_their_limits)
{
    static const char *const good = "must be HOST:PORT";
    static const struct {
        gw_ps_server_options options;
        const char *words;
    } cases[] = {
        {{.n_workers = 0}, "a server for 0 workers; 1 to 32767 are possible"},
        {{.n_workers = 1}, good},
        {{.n_workers = GW_MAX_WORKERS}, good},
        {{.n_workers = GW_MAX_WORKERS + 1}, "a server for 32768 workers; 1 to 32767 are possible"},
        {{.n_workers = 2, .mode = GW_PS_ASYNC}, good},
        {{.n_workers = 2, .mode = GW_PS_ASYNC + 1}, "no such mode"},
        {{.n_workers = 2, .missing = GW_PS_MISSING_STOP}, good},
        {{.n_workers = 2, .missing = GW_PS_MISSING_STOP + 1}, "no such choice"},
        {{.n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .min_workers = 2}, good},
        {{.n_workers = 2, .missing = GW_PS_MISSING_CONTINUE, .min_workers = 3}, "is to have 3 of 2 workers"},
        {{.n_workers = 2, .missing = GW_PS_MISSING_STOP, .min_workers = 1}, "if the server continues"},
        {{.n_workers = 3, .backup = 2}, good},
        {{.n_workers = 3, .backup = 3}, "3 of 3 workers as backup"},
        {{.n_workers = 3, .backup = 1, .mode = GW_PS_ASYNC}, "whose rounds are synchronous"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_ps_server_options options = cases[i].options;
        gw_ps_server *server = NULL;
        options.struct_bytes = sizeof options;
        options.listen = "nowhere";
        refused(gw_ps_server_create(NULL, &options, &server), GW_ERR_ARGUMENT, cases[i].words);
        assert_null(server);
        options.struct_bytes--;
        refused(gw_ps_server_create(NULL, &options, &server), GW_ERR_ARGUMENT, "struct_bytes");
    }
}

/* NULL and an empty value can be destroyed; and a server that never ran, or was stopped before it ran. It may run
 * again, and be stopped again. While it is there its port is taken. */
TEST(what_may_end_early)
{
    const gw_ps_server_options o = {.struct_bytes = sizeof o, .listen = "127.0.0.1:0", .n_workers = 1};
    gw_ps_value empty = {0};
    gw_ps_server_destroy(NULL);
    gw_ps_client_destroy(NULL);
    gw_ps_value_free(NULL), gw_ps_value_free(&empty);
    assert_null(gw_ps_server_address(NULL));
    for (int runs = 0; runs < 3; runs++) {
        gw_ps_server *server = NULL, *other = NULL;
        ok(gw_ps_server_create(NULL, &o, &server));
        const gw_ps_server_options same = {.struct_bytes = sizeof same,
                                           .listen = gw_ps_server_address(server),
                                           .n_workers = 1};
        refused(gw_ps_server_create(NULL, &same, &other), GW_ERR_SYSTEM, "");
        assert_null(other);
        gw_ps_server_stop(server);
        for (int run = 0; run < runs; run++) {
            ok(gw_ps_server_run(server));
            gw_ps_server_stop(server);
        }
        gw_ps_server_destroy(server);
    }
}

RUN_TESTS("pserver", NULL, NULL)
