/* Tests the gate by asking it as ZeroMQ does (ZAP, RFC 27): only CURVE with an allowed key comes in. A key proves
 * nothing unless CURVE has proved that the client holds the secret half. */
#define _GNU_SOURCE /* nftw */
#include "checks.h"
#include "log_shape.h"
#include "zmq/net.h"
#include "zmq/test_keys.h"

#include <pthread.h>
#include <zmq.h>

/* True if the gate lets in the connection that the request describes. */
static bool comes_in(void *zmq, const char *version, const char *mechanism, const uint8_t *credentials, size_t n_bytes)
{
    const struct {
        const void *bytes;
        size_t n_bytes;
    } parts[] = {{version, strlen(version)}, {"7", 1}, {"gradwire", 8},
                 {"127.0.0.1", 9},           {"", 0},  {mechanism, strlen(mechanism)},
                 {credentials, n_bytes}};
    enum { N_PARTS = sizeof parts / sizeof parts[0] };
    char answer[6][128];
    int lengths[6];
    void *socket = zmq_socket(zmq, ZMQ_REQ);
    assert_non_null(socket);
    assert_int_equal(zmq_connect(socket, "inproc://zeromq.zap.01"), 0);
    for (int i = 0; i < N_PARTS; i++)
        assert_true(zmq_send(socket, parts[i].bytes, parts[i].n_bytes, i + 1 < N_PARTS ? ZMQ_SNDMORE : 0) >= 0);
    for (int i = 0; i < 6; i++) {
        lengths[i] = zmq_recv(socket, answer[i], sizeof answer[i], 0);
        CHECK_IN_RANGE(lengths[i], 0, sizeof answer[i]);
    }
    zmq_close(socket);
    assert_true(lengths[0] == 3 && memcmp(answer[0], "1.0", 3) == 0);
    assert_true(lengths[1] == 1 && answer[1][0] == '7');
    assert_int_equal(lengths[2], 3);
    const bool in = memcmp(answer[2], "200", 3) == 0;
    assert_true(in || memcmp(answer[2], "400", 3) == 0);
    assert_int_equal(lengths[4], in ? GW_ZMQ_KEY_CHARS : 0); /* who it is */
    return in;
}

static void only_curve_with_an_allowed_key(void **state)
{
    (void)state;
    struct gw_zmq_net net = {.context = NULL};
    char stranger[GW_ZMQ_KEY_CHARS + 1], secret[GW_ZMQ_KEY_CHARS + 1];
    uint8_t allowed[33] = {0}, other[32];
    assert_int_equal(gw_zmq_keys_load(NULL, at("job"), &net.keys), GW_OK);
    assert_int_equal(gw_zmq_net_open(&net), GW_OK);
    assert_true(net.keys->n_allowed > 0 && zmq_z85_decode(allowed, net.keys->allowed[0]));
    assert_int_equal(gw_zmq_gate_open(NULL, net.zmq, net.keys, &net.log, &net.gate), GW_OK);
    assert_true(zmq_curve_keypair(stranger, secret) == 0 && zmq_z85_decode(other, stranger));
    assert_true(comes_in(net.zmq, "1.0", "CURVE", allowed, 32));
    assert_false(comes_in(net.zmq, "1.0", "CURVE", other, 32));
    assert_false(comes_in(net.zmq, "1.0", "CURVE", allowed, 31));
    assert_false(comes_in(net.zmq, "1.0", "CURVE", allowed, 33));
    assert_false(comes_in(net.zmq, "1.0", "CURVE", allowed, 0));
    assert_false(comes_in(net.zmq, "2.0", "CURVE", allowed, 32));
    /* These 32 bytes are an allowed key, but nobody has proved that he holds its secret half. */
    static const char *const others[] = {"PLAIN", "NULL", "GSSAPI", "curve", "CURVE ", "CURV", ""};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (comes_in(net.zmq, "1.0", others[i], allowed, 32))
            fail_msg("a client of mechanism \"%s\" came in", others[i]);
    assert_true(comes_in(net.zmq, "1.0", "CURVE", allowed, 32)); /* none of that has broken the gate */
    gw_zmq_net_close(&net);
}

/* What the gate's thread has told. */
struct told {
    pthread_mutex_t lock;
    int n;
    char last[600];
};

static void count_line(const char *line, void *user)
{
    struct told *told = user;
    check_log_line(line);
    pthread_mutex_lock(&told->lock);
    snprintf(told->last, sizeof told->last, "%s", line);
    told->n++;
    pthread_mutex_unlock(&told->lock);
}

static void expect_told(struct told *told, int n, const char *words)
{
    pthread_mutex_lock(&told->lock);
    const bool good = told->n == n && strstr(told->last, words);
    CHECK(good, "%d lines in place of %d; the last is \"%s\"", told->n, n, told->last);
    pthread_mutex_unlock(&told->lock);
}

/* A list that cannot be read is told of once, however many come meanwhile: who may connect stays as it was. */
static void a_list_that_is_away_is_told_of_once(void **state)
{
    (void)state;
    struct told told = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct gw_zmq_net net = {.context = NULL, .log = {count_line, &told, 0}};
    uint8_t allowed[33] = {0};
    assert_int_equal(gw_zmq_keys_load(NULL, at("job"), &net.keys), GW_OK);
    assert_int_equal(gw_zmq_net_open(&net), GW_OK);
    assert_non_null(zmq_z85_decode(allowed, net.keys->allowed[0])); /* the gate's thread reads the list again */
    assert_int_equal(gw_zmq_gate_open(NULL, net.zmq, net.keys, &net.log, &net.gate), GW_OK);
    assert_true(comes_in(net.zmq, "1.0", "CURVE", allowed, 32));
    expect_told(&told, 0, "");
    for (int turn = 1; turn <= 2; turn++) {
        assert_int_equal(rename(at("job/allowed"), at("job/away")), 0);
        for (int i = 0; i < 3; i++) { /* the gate looks again each second */
            assert_true(comes_in(net.zmq, "1.0", "CURVE", allowed, 32));
            assert_true(comes_in(net.zmq, "1.0", "CURVE", allowed, 32));
            usleep(i < 2 ? 1200000 : 0);
        }
        expect_told(&told, turn, "allowed-stays reason=");
        assert_int_equal(rename(at("job/away"), at("job/allowed")), 0);
        assert_true(comes_in(net.zmq, "1.0", "CURVE", allowed, 32)); /* it was read, and nothing has changed */
        expect_told(&told, turn, "allowed-stays reason=");
    }
    gw_zmq_net_close(&net);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_curve_with_an_allowed_key),
                                       cmocka_unit_test(a_list_that_is_away_is_told_of_once)};
    return cmocka_run_group_tests_name("zmq gate", tests, begin, end);
}
