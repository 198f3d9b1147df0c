/* Tests that two sockets never listen at one port, however their addresses overlap. A parameter server, the tcp link
 * and its rendezvous all listen by gw_zmq_bind. */
#include "zmq/socket.h"

#include "checks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

static bool has_ipv6(void)
{
    const int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct gw_net_address there;
    assert_int_equal(gw_net_address_of_host("::1", &there), GW_OK);
    const bool has = fd >= 0 && bind(fd, (struct sockaddr *)&there.socket, there.socket_bytes) == 0;
    if (fd >= 0)
        close(fd);
    return has;
}

static gw_status listen_at(void *socket, const char *host, const char *port, char endpoint[GW_NET_ENDPOINT_BYTES])
{
    char text[80];
    struct gw_net_address address;
    snprintf(text, sizeof text, "%s:%s", host, port);
    assert_int_equal(gw_net_address_parse("it", text, true, NULL, &address), GW_OK);
    return gw_zmq_bind(socket, &address, endpoint);
}

static void a_second_listener_is_refused(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {{"127.0.0.1", "127.0.0.1"}, {"0.0.0.0", "127.0.0.1"},
                                           {"127.0.0.1", "0.0.0.0"},   {"[::1]", "[::1]"},
                                           {"[::]", "[::1]"},          {"[::1]", "[::]"},
                                           {"[::]", "127.0.0.1"},      {"0.0.0.0", "[::]"}};
    const bool ipv6 = has_ipv6();
    void *zmq = zmq_ctx_new();
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (!ipv6 && (strchr(pairs[i][0], '[') || strchr(pairs[i][1], '[')))
            continue;
        char endpoint[GW_NET_ENDPOINT_BYTES], other[GW_NET_ENDPOINT_BYTES];
        void *first = zmq_socket(zmq, ZMQ_ROUTER), *second = zmq_socket(zmq, ZMQ_ROUTER);
        CHECK(listen_at(first, pairs[i][0], "0", endpoint) == GW_OK, "%s: %s", pairs[i][0], gw_last_error());
        const gw_status status = listen_at(second, pairs[i][1], strrchr(endpoint, ':') + 1, other);
        CHECK(status == GW_ERR_SYSTEM && errno == EADDRINUSE, "%s beside %s: %d", pairs[i][1], pairs[i][0], status);
        CHECK(strstr(gw_last_error(), "another program listens there") && strstr(gw_last_error(), pairs[i][1]), "%s",
              gw_last_error());
        zmq_close(first);
        zmq_close(second);
    }
    zmq_ctx_term(zmq);
    if (!ipv6)
        print_message("left out: this machine has no IPv6\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_listener_is_refused),
    };
    return cmocka_run_group_tests_name("zmq socket", tests, NULL, NULL);
}
