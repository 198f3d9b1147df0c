/* Tests how "HOST:PORT" becomes an address in numbers, and which texts are refused. */
#define _GNU_SOURCE /* unshare */
#include "net/address.h"

#include "base/error.h"

#include "outcome.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(good_ones_are_described)
{
    static const struct {
        const char *text, *place;
        bool any_port, loopback;
    } cases[] = {
        {"127.0.0.1:5000", "127.0.0.1:5000", false, true},
        {"127.255.0.9:1", "127.255.0.9:1", false, true},
        {"126.0.0.1:65535", "126.0.0.1:65535", false, false},
        {"128.0.0.1:80", "128.0.0.1:80", false, false},
        {"[::1]:5000", "[::1]:5000", false, true},
        {"[::2]:5000", "[::2]:5000", false, false},
        {"127.0.0.1:00080", "127.0.0.1:80", false, true},
        {"192.0.2.7:0", "192.0.2.7:*", true, false},
        {"[2001:db8::7]:0", "[2001:db8::7]:*", true, false},
        {"192.0.2.7:1", "192.0.2.7:1", true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gw_net_host host;
        ok(gw_net_host_parse("it", cases[i].text, cases[i].any_port, &(struct gw_net_patience){.ms = 60000}, &host));
        const struct gw_net_address address = host.addresses[0];
        assert_string_equal(address.place, cases[i].place);
        CHECK(address.loopback == cases[i].loopback && !host.unknown && host.n_addresses == 1, "%s", cases[i].text);
    }
}

/* A name may have several addresses: they are taken by turns, the IPv4 ones first. */
TEST(a_name_with_several)
{
    struct gw_net_host host;
    ok(gw_net_host_parse("it", "localhost:80", false, &(struct gw_net_patience){.ms = 60000}, &host));
    assert_true(host.n_addresses >= 1 && host.n_addresses <= GW_NET_MOST_ADDRESSES);
    for (uint32_t i = 0; i < host.n_addresses; i++) {
        CHECK(gw_net_host_nth(&host, i + host.n_addresses) == &host.addresses[i], "%u", i);
        CHECK(host.addresses[i].loopback, "%s", host.addresses[i].place);
        CHECK(i == 0 || host.addresses[i - 1].socket.any.sa_family == AF_INET ||
                  host.addresses[i].socket.any.sa_family == AF_INET6,
              "%u", i);
    }
    assert_string_equal(host.name, "localhost");
}

TEST(others_are_refused)
{
    static const char *const bad[] = {"",   ":",    "host",   ":5000",   "[]:5000",  "127.0.0.1:",      "127.0.0.1:5x",
                                      "::", "::1:", "::1:80", "1:2:3:4", "[::1]:x5", "127.0.0.1:123456"};
    static const char *const bad_ports[] = {"127.0.0.1:0", "127.0.0.1:65536", "[::1]:99999"};
    struct gw_net_address address;
    char text[400];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(gw_net_address_parse("the place", bad[i], false, &address), GW_ERR_ARGUMENT, "the place is \"");
    for (size_t i = 0; i < sizeof bad_ports / sizeof *bad_ports; i++)
        refused(gw_net_address_parse("the place", bad_ports[i], false, &address), GW_ERR_ARGUMENT,
                "ports are 1 to 65535");
    refused(gw_net_address_parse("it", "127.0.0.1:65536", true, &address), GW_ERR_ARGUMENT, "");
    /* A host of 255 characters fits, and is asked for; one more is refused before. */
    for (int n = 255; n <= 256; n++) {
        memset(text, '.', sizeof text);
        strcpy(text + n, ":5000");
        refused(gw_net_address_parse("it", text, false, &address), n > 255 ? GW_ERR_ARGUMENT : GW_ERR_SYSTEM, "");
    }
}

TEST(a_host_alone_means_any_port)
{
    static const char *const hosts[] = {"192.0.2.7", "[::1]", "::1"}, *const places[] = {"192.0.2.7:*", "[::1]:*",
                                                                                         "[::1]:*"};
    struct gw_net_address address;
    for (int i = 0; i < 3; i++) {
        ok(gw_net_address_of_host(hosts[i], &address));
        assert_string_equal(address.place, places[i]);
        assert_int_equal(address.loopback, i > 0);
    }
    refused(gw_net_address_of_host("", &address), GW_ERR_ARGUMENT, "");
    refused(gw_net_address_of_host("[]", &address), GW_ERR_ARGUMENT, "");
}

/* Each byte of an address takes each value: it is refused, or describes an address. */
TEST(written_and_read)
{
    uint8_t good[GW_NET_ADDRESS_BYTES], bytes[GW_NET_ADDRESS_BYTES];
    struct gw_net_address address, back;
    ok(gw_net_address_parse("it", "127.0.0.1:80", false, &address));
    gw_net_address_write(&address, good);
    assert_true(gw_net_address_read(good, &back) && back.loopback);
    for (size_t i = 0; i < sizeof good; i++)
        for (unsigned value = 0; value < 256; value++) {
            memcpy(bytes, good, sizeof good);
            bytes[i] = (uint8_t)value;
            const bool read = gw_net_address_read(bytes, &back);
            assert_true(i > 1 || read == (value == good[i] || (i == 0 && value == 6)));
            assert_true(!read || strlen(back.place) < sizeof back.place);
        }
    memset(good + 2, 0, 2); /* port 0 */
    assert_false(gw_net_address_read(good, &back));
}

/* In a network of its own, makes a name server that never answers, and the system asks it. False: not possible here. */
static bool only_a_silent_name_server(void)
{
    char path[] = "/tmp/gradwire-resolv-XXXXXX";
    static const char text[] = "nameserver 127.0.0.53\noptions timeout:30 attempts:2\n";
    const struct sockaddr_in place = {.sin_family = AF_INET,
                                      .sin_port = htons(53),
                                      .sin_addr.s_addr = htonl(0x7F000035)};
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    if (unshare(CLONE_NEWNS | CLONE_NEWNET) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) != 0)
        return false;
    const int file = mkstemp(path), server = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const bool done = file >= 0 && write(file, text, sizeof text - 1) == sizeof text - 1 && fchmod(file, 0644) == 0 &&
                      mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                      mount(path, "/etc/resolv.conf", NULL, MS_BIND, NULL) == 0 &&
                      ioctl(server, SIOCSIFFLAGS, &lo) == 0 &&
                      bind(server, (const struct sockaddr *)&place, sizeof place) == 0;
    unlink(path);
    return done;
}

static gw_status stop(const void *sentence)
{
    return gw_fail(GW_ERR_CLOSED, "%s", (const char *)sentence);
}

/* A name server that is silent holds nobody for longer than the caller waits, or until it is to stop. */
TEST(a_look_up_has_an_end)
{
    enum { ENDED, SKIPPED, WRONG };
    const pid_t child = fork();
    if (child == 0) {
        struct gw_net_host host;
        if (!only_a_silent_name_server())
            _exit(SKIPPED);
        alarm(20); /* the system by itself waits for two minutes */
        const char *const name = "gradwire.example.org:80";
        gw_status status = gw_net_host_parse("it", name, false, &(struct gw_net_patience){.ms = 300}, &host);
        bool right = status == GW_ERR_SYSTEM && host.unknown &&
                     strstr(gw_last_error(), "no name server has answered within 300 ms");
        const struct gw_net_patience stopped = {600000, stop, "enough"};
        status = right ? gw_net_host_parse("it", name, false, &stopped, &host) : GW_OK;
        right = status == GW_ERR_CLOSED && !host.unknown && strcmp(gw_last_error(), "enough") == 0;
        if (!right)
            fprintf(stderr, "%s\n", gw_last_error());
        _exit(right ? ENDED : WRONG);
    }
    int how = 0;
    assert_true(child > 0 && waitpid(child, &how, 0) == child);
    assert_true(WIFEXITED(how));
    if (WEXITSTATUS(how) == SKIPPED)
        skip();
    assert_int_equal(WEXITSTATUS(how), ENDED);
}

/* This machine reaches itself by the same address. */
TEST(the_way_to_itself)
{
    struct gw_net_address there, own;
    ok(gw_net_address_parse("it", "127.0.0.1:5000", false, &there));
    ok(gw_net_address_towards(&there, &own)); /* it sends nothing, so nobody has to be there */
    assert_string_equal(own.place, "127.0.0.1:*");
    assert_true(own.loopback);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_look_up_has_an_end), /* it forks before there are threads */
        cmocka_unit_test(good_ones_are_described), cmocka_unit_test(a_name_with_several),
        cmocka_unit_test(others_are_refused),      cmocka_unit_test(a_host_alone_means_any_port),
        cmocka_unit_test(the_way_to_itself),       cmocka_unit_test(written_and_read),
    };
    return cmocka_run_group_tests_name("net address", tests, NULL, NULL);
}
