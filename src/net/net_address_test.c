/* Tests how "HOST:PORT" becomes an address in numbers, and which texts are refused. */
#include "net/address.h"

#include "base/error.h"

#include "checks.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void good_ones_are_described(void **state)
{
    (void)state;
    static const struct {
        const char *text, *endpoint;
        bool any_port, loopback;
    } cases[] = {
        {"127.0.0.1:5000", "tcp://127.0.0.1:5000", false, true},
        {"127.255.0.9:1", "tcp://127.255.0.9:1", false, true},
        {"126.0.0.1:65535", "tcp://126.0.0.1:65535", false, false},
        {"128.0.0.1:80", "tcp://128.0.0.1:80", false, false},
        {"[::1]:5000", "tcp://[::1]:5000", false, true},
        {"[::2]:5000", "tcp://[::2]:5000", false, false},
        {"127.0.0.1:00080", "tcp://127.0.0.1:80", false, true},
        {"192.0.2.7:0", "tcp://192.0.2.7:*", true, false},
        {"[2001:db8::7]:0", "tcp://[2001:db8::7]:*", true, false},
        {"192.0.2.7:1", "tcp://192.0.2.7:1", true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gw_net_host host;
        bool unknown = true;
        const gw_status status = gw_net_host_parse("it", cases[i].text, cases[i].any_port, &unknown, &host);
        const struct gw_net_address address = host.addresses[0];
        CHECK(status == GW_OK, "%s: %s", cases[i].text, gw_last_error());
        CHECK(strcmp(address.endpoint, cases[i].endpoint) == 0, "%s: %s", cases[i].text, address.endpoint);
        CHECK(address.loopback == cases[i].loopback && !unknown && host.n_addresses == 1, "%s", cases[i].text);
        assert_string_equal(gw_net_place(address.endpoint), cases[i].endpoint + 6);
    }
}

/* A name may have several addresses: they are taken by turns, the IPv4 ones first. */
static void a_name_with_several(void **state)
{
    (void)state;
    struct gw_net_host host;
    assert_int_equal(gw_net_host_parse("it", "localhost:80", false, NULL, &host), GW_OK);
    assert_true(host.n_addresses >= 1 && host.n_addresses <= GW_NET_MOST_ADDRESSES);
    for (uint32_t i = 0; i < host.n_addresses; i++) {
        CHECK(gw_net_host_nth(&host, i + host.n_addresses) == &host.addresses[i], "%u", i);
        CHECK(host.addresses[i].loopback, "%s", host.addresses[i].endpoint);
        CHECK(i == 0 || host.addresses[i - 1].socket.ss_family == AF_INET ||
                  host.addresses[i].socket.ss_family == AF_INET6,
              "%u", i);
    }
    assert_string_equal(host.name, "localhost");
}

static void others_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"",   ":",    "host",   ":5000",   "[]:5000",  "127.0.0.1:",      "127.0.0.1:5x",
                                      "::", "::1:", "::1:80", "1:2:3:4", "[::1]:x5", "127.0.0.1:123456"};
    static const char *const bad_ports[] = {"127.0.0.1:0", "127.0.0.1:65536", "[::1]:99999"};
    struct gw_net_address address;
    char text[400];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(gw_net_address_parse("the place", bad[i], false, &address) == GW_ERR_ARGUMENT, "\"%s\"", bad[i]);
        CHECK(strstr(gw_last_error(), "the place is \""), "%s", gw_last_error());
    }
    for (size_t i = 0; i < sizeof bad_ports / sizeof *bad_ports; i++) {
        CHECK(gw_net_address_parse("the place", bad_ports[i], false, &address) == GW_ERR_ARGUMENT, "%s", bad_ports[i]);
        CHECK(strstr(gw_last_error(), "ports are 1 to 65535"), "%s", gw_last_error());
    }
    assert_int_equal(gw_net_address_parse("it", "127.0.0.1:65536", true, &address), GW_ERR_ARGUMENT);
    /* A host of 255 characters fits, and is asked for; one more is refused before. */
    memset(text, '.', sizeof text);
    strcpy(text + 255, ":5000");
    assert_int_equal(gw_net_address_parse("it", text, false, &address), GW_ERR_SYSTEM);
    memset(text, '.', sizeof text);
    strcpy(text + 256, ":5000");
    assert_int_equal(gw_net_address_parse("it", text, false, &address), GW_ERR_ARGUMENT);
}

static void a_host_alone_means_any_port(void **state)
{
    (void)state;
    struct gw_net_address address;
    assert_int_equal(gw_net_address_of_host("192.0.2.7", &address), GW_OK);
    assert_string_equal(address.endpoint, "tcp://192.0.2.7:*");
    assert_int_equal(gw_net_address_of_host("[::1]", &address), GW_OK);
    assert_string_equal(address.endpoint, "tcp://[::1]:*");
    assert_true(address.loopback);
    assert_int_equal(gw_net_address_of_host("::1", &address), GW_OK);
    assert_string_equal(address.endpoint, "tcp://[::1]:*");
    assert_int_equal(gw_net_address_of_host("", &address), GW_ERR_ARGUMENT);
    assert_int_equal(gw_net_address_of_host("[]", &address), GW_ERR_ARGUMENT);
}

/* This machine reaches itself by the same address. */
static void the_way_to_itself(void **state)
{
    (void)state;
    struct gw_net_address there, own;
    struct sockaddr_in bound = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof bound;
    char text[40];
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(listener >= 0 && bind(listener, (struct sockaddr *)&bound, sizeof bound) == 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&bound, &n_bytes), 0);
    snprintf(text, sizeof text, "127.0.0.1:%d", ntohs(bound.sin_port));
    assert_int_equal(gw_net_address_parse("it", text, false, &there), GW_OK);
    assert_int_equal(gw_net_address_towards(&there, &own), GW_OK);
    assert_string_equal(own.endpoint, "tcp://127.0.0.1:*");
    assert_true(own.loopback);
    close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_ones_are_described), cmocka_unit_test(a_name_with_several),
        cmocka_unit_test(others_are_refused),      cmocka_unit_test(a_host_alone_means_any_port),
        cmocka_unit_test(the_way_to_itself),
    };
    return cmocka_run_group_tests_name("net address", tests, NULL, NULL);
}
