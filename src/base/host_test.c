/* Tests how hosts and ports are taken apart and put together. */
#include "base/host.h"
#include "base/error.h"
#include "checks.h"

#include <string.h>

TEST(hosts_lose_their_brackets)
{
    static const struct {
        const char *text, *host; /* NULL: it is refused */
    } cases[] = {
        {"node7", "node7"},
        {"10.0.0.1", "10.0.0.1"},
        {"::1", "::1"},
        {"[::1]", "::1"},
        {"fe80::1%eth0", "fe80::1%eth0"},
        {"[fe80::1%eth0]", "fe80::1%eth0"},
        {"", NULL},
        {"[]", NULL},
        {"[::1", NULL},
        {"::1]", NULL},
        {"[[::1]]", NULL},
        {"[node7]", NULL},
        {"a b", NULL},
        {"a\r", NULL},
        {"you@node7", NULL},
        {"http://node7", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char host[GW_HOST_BYTES];
        const bool good = gw_host_copy(cases[i].text, strlen(cases[i].text), host);
        CHECK(good == (cases[i].host != NULL) && (!good || strcmp(host, cases[i].host) == 0), "\"%s\"", cases[i].text);
    }
    char longest[GW_HOST_BYTES + 1], host[GW_HOST_BYTES];
    memset(longest, 'a', sizeof longest);
    assert_true(gw_host_copy(longest, GW_HOST_BYTES - 1, host));
    assert_int_equal(strlen(host), GW_HOST_BYTES - 1);
    assert_false(gw_host_copy(longest, GW_HOST_BYTES, host));
}

TEST(hosts_and_ports_are_split)
{
    static const struct {
        const char *text, *host;
        uint32_t port;
    } good[] = {{"node7:80", "node7", 80},
                {"[::1]:5000", "::1", 5000},
                {"127.0.0.1:00080", "127.0.0.1", 80},
                {"a:99999", "a", 99999}};
    static const char *const bad[] = {"",          ":",         "node7",  ":80",      "node7:",  "node7:8x",
                                      "node7: 80", "node7:+80", "::1:80", "[::1]",    "[::1]80", "[]:80",
                                      "[a]:80",    "a:123456",  "a:-1",   "[::1]]:80"};
    char host[GW_HOST_BYTES];
    uint32_t port;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(gw_host_split(good[i].text, host, &port));
        assert_string_equal(host, good[i].host);
        assert_int_equal(port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!gw_host_split(bad[i], host, &port), "\"%s\"", bad[i]);
}

TEST(hosts_and_ports_are_joined)
{
    static const char *const cases[][2] = {{"node7", "node7:80"},
                                           {"::1", "[::1]:80"},
                                           {"[::1]", "[::1]:80"},
                                           {"10.0.0.1", "10.0.0.1:80"}};
    char text[40];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(gw_host_join("it", cases[i][0], 80, text, sizeof text), GW_OK);
        assert_string_equal(text, cases[i][1]);
    }
    assert_int_equal(gw_host_join("MASTER_ADDR", "a b", 80, text, sizeof text), GW_ERR_ARGUMENT);
    CHECK(strstr(gw_last_error(), "MASTER_ADDR is \"a b\""), "%s", gw_last_error());
    assert_int_equal(gw_host_join("it", "node7", 80, text, strlen("node7:80")), GW_ERR_ARGUMENT);
    assert_int_equal(gw_host_join("it", "node7", 80, text, strlen("node7:80") + 1), GW_OK);
}

RUN_TESTS("host", NULL, NULL)
