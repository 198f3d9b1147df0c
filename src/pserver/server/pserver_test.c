/* Tests the server and its clients over loopback: Paddle#6599's own lines, rounds, and what is refused. */
#include "base/clock.h"
#include "pserver/server/test_server.h"

#include <gradwire/codec.h>

#include <string.h>

#define MOST 4

struct served {
    struct test_server server;
    gw_ps_client *clients[MOST];
    uint32_t n_clients;
};

static void serve(struct served *s, uint32_t n_workers, gw_ps_mode mode, uint32_t staleness)
{
    memset(s, 0, sizeof *s);
    test_server_begin(&s->server,
                      &(gw_ps_server_options){.n_workers = n_workers, .mode = mode, .staleness = staleness});
}

static gw_ps_client *client_of(const struct served *s, uint32_t rank, uint32_t timeout_ms)
{
    return test_client(gw_ps_server_address(s->server.server), rank, false, timeout_ms);
}

static void connect_all(struct served *s, uint32_t n, uint32_t timeout_ms)
{
    for (uint32_t r = 0; r < n; r++)
        s->clients[r] = client_of(s, r, timeout_ms);
    s->n_clients = n;
}

static void end(struct served *s)
{
    for (uint32_t r = 0; r < s->n_clients; r++)
        gw_ps_client_destroy(s->clients[r]);
    test_server_end(&s->server);
}

static const gw_ps_shape one_element = {.n_dims = 1, .dims = {1}};

static void init_on_all(struct served *s, const char *key, gw_ps_type type, const gw_ps_shape *shape)
{
    for (uint32_t r = 0; r < s->n_clients; r++)
        assert_int_equal(test_init(s->clients[r], key, type, shape, NULL, NULL), GW_OK);
}

static void snippet_of_the_issue(void **state)
{
    (void)state;
    struct served s;
    serve(&s, 2, GW_PS_SYNC, 0);
    connect_all(&s, 2, 5000);
    const gw_ps_shape codes = {.n_dims = 1, .dims = {2}};
    init_on_all(&s, "max_abs_grad", GW_PS_FLOAT32, &one_element);
    init_on_all(&s, "quantized_grad", GW_PS_UINT8, &codes);
    const float largest[2] = {0.5f, 2.0f};
    /* 00 = -1, 01 = 0, 10 = +1, lowest element in the lowest bits: rank 0 has + 0 - +, 0 0 0 -; rank 1 + + 0 -, 0 - 0 0
     */
    const uint8_t grads[2][2] = {{0x86 ^ 0x00, 0x15}, {0x1A, 0x51}};
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(gw_ps_push(s.clients[r], "max_abs_grad", &largest[r], sizeof largest[r]), GW_OK);
            assert_int_equal(gw_ps_push(s.clients[r], "quantized_grad", grads[r], sizeof grads[r]), GW_OK);
        }
        for (uint32_t r = 0; r < 2; r++) {
            gw_ps_value value;
            assert_int_equal(gw_ps_pull(s.clients[r], "max_abs_grad", GW_PS_MAX, NULL, &value), GW_OK);
            assert_true(value.type == GW_PS_FLOAT32 && value.n_bytes == 4 && value.round == step &&
                        *(const float *)value.bytes == 2.0f);
            gw_ps_value_free(&value);
            assert_int_equal(gw_ps_pull(s.clients[r], "quantized_grad", GW_PS_DECODE_AVERAGE, "max_abs_grad", &value),
                             GW_OK);
            assert_true(value.type == GW_PS_FLOAT32 && value.n_bytes == 32 && value.n_pushes == 2 &&
                        value.shape.dims[0] == 8);
            const float *got = value.bytes;
            for (int e = 0; e < 8; e++) {
                int sum = 0;
                for (int w = 0; w < 2; w++)
                    sum += (grads[w][e / 4] >> 2 * (e % 4) & 3) - 1;
                assert_true(got[e] == (float)sum / 2 * 2.0f);
            }
            gw_ps_value_free(&value);
        }
    }
    end(&s);
}

static void pulls_wait_for_all_pushes(void **state)
{
    (void)state;
    struct served s;
    serve(&s, 3, GW_PS_SYNC, 0);
    connect_all(&s, 3, 5000);
    init_on_all(&s, "x", GW_PS_FLOAT32, &one_element);
    const float x[3] = {1, 2, 4};
    uint64_t requests[3];
    gw_ps_value value;
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(gw_ps_push(s.clients[r], "x", &x[r], 4), GW_OK);
        assert_int_equal(test_begin(s.clients[r],
                                    (gw_ps_call){.kind = GW_PS_CALL_PULL, .key = "x", .method = GW_PS_SUM},
                                    &requests[r]),
                         GW_OK);
    }
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(gw_ps_wait(s.clients[r], requests[r], GW_PS_NO_LIMIT, &value), GW_OK);
        assert_true(*(const float *)value.bytes == 7);
        gw_ps_value_free(&value);
    }
    assert_int_equal(gw_ps_wait(s.clients[0], requests[0], GW_PS_NO_LIMIT, &value), GW_ERR_ORDER);
    end(&s);
}

static void one_that_is_missing_is_named(void **state)
{
    (void)state;
    struct served s;
    serve(&s, 3, GW_PS_SYNC, 0);
    connect_all(&s, 2, 400);
    init_on_all(&s, "x", GW_PS_FLOAT32, &one_element);
    const float x = 1;
    gw_ps_value value;
    assert_int_equal(gw_ps_push(s.clients[0], "x", &x, 4), GW_OK);
    assert_int_equal(gw_ps_pull(s.clients[0], "x", GW_PS_MAX, NULL, &value), GW_ERR_TIMEOUT);
    assert_non_null(strstr(gw_last_error(), "rank 1, rank 2 (not connected)"));
    /* The next push of the same worker waits for the round, and the same push is tried again. */
    assert_int_equal(gw_ps_push(s.clients[0], "x", &x, 4), GW_ERR_TIMEOUT);
    s.clients[2] = client_of(&s, 2, 400);
    s.n_clients = 3;
    assert_int_equal(test_init(s.clients[2], "x", GW_PS_FLOAT32, &one_element, NULL, NULL), GW_OK);
    assert_int_equal(gw_ps_push(s.clients[1], "x", &x, 4), GW_OK);
    assert_int_equal(gw_ps_push(s.clients[2], "x", &x, 4), GW_OK);
    assert_int_equal(gw_ps_push(s.clients[0], "x", &x, 4), GW_OK);
    assert_int_equal(gw_ps_pull(s.clients[1], "x", GW_PS_SUM, NULL, &value), GW_OK);
    assert_true(*(const float *)value.bytes == 3 && value.round == 1);
    gw_ps_value_free(&value);
    end(&s);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct served s;
    serve(&s, 1, GW_PS_SYNC, 0);
    connect_all(&s, 1, 3000);
    const gw_ps_shape two = {.n_dims = 1, .dims = {2}};
    const float x[2] = {1, 2};
    gw_ps_value value;
    init_on_all(&s, "max_abs_grad", GW_PS_FLOAT32, &one_element);
    assert_int_equal(gw_ps_push(s.clients[0], "max_abs_gard", x, 4), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "\"max_abs_grad\""));
    assert_int_equal(gw_ps_pull(s.clients[0], "max_abs_grad", GW_PS_MAX, NULL, &value), GW_ERR_ORDER);
    assert_int_equal(gw_ps_push(s.clients[0], "max_abs_grad", x, 8), GW_ERR_ARGUMENT);
    assert_int_equal(test_init(s.clients[0], "max_abs_grad", GW_PS_FLOAT32, &two, NULL, NULL), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "float32 of shape [1]"));
    assert_int_equal(gw_ps_push(s.clients[0], "max_abs_grad", x, 4), GW_OK);
    assert_int_equal(gw_ps_pull(s.clients[0], "max_abs_grad", GW_PS_DECODE_SUM, NULL, &value), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "max, min, sum, mean, latest"));
    assert_int_equal(gw_ps_pull(s.clients[0], "max_abs_grad", GW_PS_MIN, NULL, &value), GW_OK);
    gw_ps_value_free(&value);
    /* A second one of the same rank, while the first is there. */
    gw_ps_client_options options = {.struct_bytes = sizeof options,
                                    .servers = gw_ps_server_address(s.server.server),
                                    .rank = 0,
                                    .timeout_ms = 8000};
    gw_ps_client *second;
    assert_int_equal(gw_ps_client_create(NULL, &options, &second), GW_ERR_PEER);
    assert_non_null(strstr(gw_last_error(), "rank 0 is here already"));
    options.timeout_ms = 500; /* a client waits longer than this for the place of a dead one */
    assert_int_equal(gw_ps_client_create(NULL, &options, &second), GW_ERR_PEER);
    assert_non_null(strstr(gw_last_error(), "rank 0 is here already"));
    options.timeout_ms = 8000;
    char twice[256];
    snprintf(twice, sizeof twice, "%s,%s", options.servers, options.servers);
    options.servers = twice;
    assert_int_equal(gw_ps_client_create(NULL, &options, &second), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "is named twice"));
    options.servers = gw_ps_server_address(s.server.server);
    options.rank = 1;
    assert_int_equal(gw_ps_client_create(NULL, &options, &second), GW_ERR_PEER);
    options.rank = GW_PS_READER;
    assert_int_equal(gw_ps_client_create(NULL, &options, &second), GW_OK);
    assert_int_equal(gw_ps_push(second, "max_abs_grad", x, 4), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "comes from a reader"));
    assert_int_equal(gw_ps_pull(second, "max_abs_grad", GW_PS_LATEST, NULL, &value), GW_OK);
    assert_true(*(const float *)value.bytes == 1);
    gw_ps_value_free(&value);
    assert_int_equal(gw_ps_push(second, "max_abs_grad", x, 4), GW_ERR_ARGUMENT);
    gw_ps_client_destroy(second);
    end(&s);
}

static void a_worker_comes_back(void **state)
{
    (void)state;
    struct served s;
    serve(&s, 2, GW_PS_SYNC, 0);
    connect_all(&s, 2, 3000);
    init_on_all(&s, "x", GW_PS_FLOAT32, &one_element);
    for (uint32_t step = 1; step <= 3; step++) {
        float x = (float)step;
        gw_ps_value value;
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(gw_ps_push(s.clients[r], "x", &x, 4), GW_OK);
        gw_ps_client_destroy(s.clients[1]);
        s.clients[1] = client_of(&s, 1, 3000);
        assert_int_equal(test_init(s.clients[1], "x", GW_PS_FLOAT32, &one_element, NULL, NULL), GW_OK);
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(gw_ps_pull(s.clients[r], "x", GW_PS_SUM, NULL, &value), GW_OK);
            assert_true(*(const float *)value.bytes == 2 * x && value.round == step);
            gw_ps_value_free(&value);
        }
    }
    end(&s);
}

/* If one push ahead of the slowest worker is allowed, two are one too many. */
static void staleness_bounds_who_is_ahead(void **state)
{
    (void)state;
    struct served s;
    serve(&s, 2, GW_PS_STALE, 1);
    connect_all(&s, 2, 600);
    init_on_all(&s, "x", GW_PS_FLOAT32, &one_element);
    float x = 1;
    gw_ps_value value;
    assert_int_equal(gw_ps_push(s.clients[0], "x", &x, 4), GW_OK);
    assert_int_equal(gw_ps_pull(s.clients[0], "x", GW_PS_SUM, NULL, &value), GW_OK);
    assert_true(*(const float *)value.bytes == 1 && value.n_pushes == 1);
    gw_ps_value_free(&value);
    x = 10;
    assert_int_equal(gw_ps_push(s.clients[0], "x", &x, 4), GW_OK);
    assert_int_equal(gw_ps_pull(s.clients[0], "x", GW_PS_SUM, NULL, &value), GW_ERR_TIMEOUT);
    uint64_t id;
    assert_int_equal(test_begin(s.clients[0], (gw_ps_call){.kind = GW_PS_CALL_PULL, .key = "x", .method = GW_PS_SUM},
                                &id),
                     GW_OK);
    x = 100;
    assert_int_equal(gw_ps_push(s.clients[1], "x", &x, 4), GW_OK);
    assert_int_equal(gw_ps_wait(s.clients[0], id, GW_PS_NO_LIMIT, &value), GW_OK);
    assert_true(*(const float *)value.bytes == 110 && value.n_pushes == 2);
    gw_ps_value_free(&value);
    end(&s);
}

/* The least rank's rate moves a round, and clients know how pulls are answered. */
static void rates_come_with_pushes(void **state)
{
    (void)state;
    static const gw_ps_mode modes[] = {GW_PS_SYNC, GW_PS_STALE, GW_PS_ASYNC};
    for (int m = 0; m < 3; m++) {
        struct served s;
        serve(&s, 2, modes[m], 3);
        connect_all(&s, 2, 5000);
        const gw_ps_info info = gw_ps_client_info(s.clients[1]);
        gw_ps_value value;
        float first = 8, x = 1;
        assert_true(info.n_workers == 2 && info.mode == modes[m]);
        assert_int_equal(info.staleness, modes[m] == GW_PS_STALE ? 3 : 0);
        assert_int_equal(test_init(s.clients[0], "w", GW_PS_FLOAT32, &one_element, "sgd", &first), GW_OK);
        assert_int_equal(test_init(s.clients[1], "w", GW_PS_FLOAT32, &one_element, "sgd", NULL), GW_OK);
        assert_int_equal(test_push_at(s.clients[0], "w", &x, 4, -1), GW_ERR_ARGUMENT);
        for (uint32_t r = 2; r-- > 0;)
            assert_int_equal(test_push_at(s.clients[r], "w", &x, 4, r ? 2 : 0.5), GW_OK);
        assert_int_equal(gw_ps_pull(s.clients[1], "w", GW_PS_PARAMETERS, NULL, &value), GW_OK);
        assert_true(value.type == GW_PS_FLOAT32 &&
                    *(const float *)value.bytes == (modes[m] == GW_PS_SYNC ? 7.5f : 8 - 1 - 0.25f));
        gw_ps_value_free(&value);
        end(&s);
    }
}

/* Values that travel in one piece, in several, and in pieces that end where the value does. */
static void values_of_many_pieces(void **state)
{
    (void)state;
    enum { PIECE = 8 << 20 };
    static const uint64_t sizes[] = {1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 3};
    struct served s;
    serve(&s, 1, GW_PS_SYNC, 0);
    connect_all(&s, 1, 20000);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char key[16];
        const gw_ps_shape shape = {.n_dims = 1, .dims = {sizes[i]}};
        uint8_t *bytes = malloc(sizes[i]);
        gw_ps_value value;
        assert_non_null(bytes);
        for (uint64_t b = 0; b < sizes[i]; b++)
            bytes[b] = (uint8_t)(b * 131 + b / PIECE);
        snprintf(key, sizeof key, "%zu", i);
        assert_int_equal(test_init(s.clients[0], key, GW_PS_UINT8, &shape, NULL, NULL), GW_OK);
        assert_int_equal(gw_ps_push(s.clients[0], key, bytes, sizes[i]), GW_OK);
        assert_int_equal(gw_ps_pull(s.clients[0], key, GW_PS_LATEST, NULL, &value), GW_OK);
        assert_true(value.n_bytes == sizes[i] && memcmp(value.bytes, bytes, sizes[i]) == 0);
        gw_ps_value_free(&value);
        free(bytes);
    }
    end(&s);
}

/* Options at their limits. The address is no address: what is good so far is told of that. */
static void options_at_their_limits(void **state)
{
    (void)state;
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
        {{.n_workers = 2, .missing = GW_PS_MISSING_STOP, .min_workers = 1}, "servers that continue without some"},
        {{.n_workers = 3, .backup = 2}, good},
        {{.n_workers = 3, .backup = 3}, "3 of 3 workers as backup"},
        {{.n_workers = 3, .backup = 1, .mode = GW_PS_ASYNC}, "whose rounds are synchronous"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_ps_server_options options = cases[i].options;
        gw_ps_server *server = NULL;
        options.struct_bytes = sizeof options;
        options.listen = "nowhere";
        const gw_status status = gw_ps_server_create(NULL, &options, &server);
        if (status != GW_ERR_ARGUMENT || server || !strstr(gw_last_error(), cases[i].words))
            fail_msg("case %zu: %d, \"%s\"", i, status, gw_last_error());
        options.struct_bytes--;
        assert_int_equal(gw_ps_server_create(NULL, &options, &server), GW_ERR_ARGUMENT);
        assert_non_null(strstr(gw_last_error(), "struct_bytes"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snippet_of_the_issue),          cmocka_unit_test(values_of_many_pieces),
        cmocka_unit_test(pulls_wait_for_all_pushes),     cmocka_unit_test(one_that_is_missing_is_named),
        cmocka_unit_test(what_cannot_be_is_refused),     cmocka_unit_test(a_worker_comes_back),
        cmocka_unit_test(staleness_bounds_who_is_ahead), cmocka_unit_test(rates_come_with_pushes),
        cmocka_unit_test(options_at_their_limits),
    };
    return cmocka_run_group_tests_name("pserver", tests, NULL, NULL);
}
