/* Tests addresses of links: what is read, and what is refused in which words. tcp_test.c opens links by them. */
#include "checks.h"
#include "link/scheme.h"

#include <stdio.h>
#include <string.h>

static bool same(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

TEST(good_addresses_are_read)
{
    static const struct {
        const char *address, *scheme;
        struct gw_link_request request;
    } cases[] = {
        {"local:", "local", {.rank = 0}},
        {"mpi:", "mpi", {.rank = 0}},
        {"mpi:?size=4&rank=3", "mpi", {.rank = 3, .size = 4}},
        {"tcp://node7:29500?rank=2&size=4", "tcp", {.rank = 2, .size = 4, .rendezvous = "node7:29500"}},
        {"tcp://[::1]:1?rank=0&size=1", "tcp", {.size = 1, .rendezvous = "[::1]:1"}},
        {"tcp://[fe80::1%eth0]:65535?rank=0&size=1", "tcp", {.size = 1, .rendezvous = "[fe80::1%eth0]:65535"}},
        {"tcp://h:1?rank=32766&size=32767", "tcp", {.rank = 32766, .size = 32767, .rendezvous = "h:1"}},
        {"tcp://h:1?advertise=10.0.0.2&spin_us=1000000&timeout_ms=4294967295&insecure=1&rank=1&size=2",
         "tcp",
         {.rank = 1,
          .size = 2,
          .rendezvous = "h:1",
          .advertise = "10.0.0.2",
          .insecure = true,
          .timeout_ms = UINT32_MAX,
          .spin_us = 1000000}},
        {"tcp://h:1?rank=0&size=1&keys=/a%20b/%26%25%3f%C3%a9=c&insecure=0",
         "tcp",
         {.size = 1, .rendezvous = "h:1", .keys = "/a b/&%?\xc3\xa9=c"}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct gw_link_request *want = &cases[i].request;
        const struct gw_link_scheme *scheme;
        struct gw_link_request got;
        char text[GW_LINK_ADDRESS_BYTES];
        const gw_status status = gw_link_read_address(cases[i].address, text, &scheme, &got);
        CHECK(status == GW_OK, "%s: %s", cases[i].address, gw_last_error());
        CHECK(same(scheme->name, cases[i].scheme) && got.rank == want->rank && got.size == want->size &&
                  same(got.rendezvous, want->rendezvous) && same(got.advertise, want->advertise) &&
                  same(got.keys, want->keys) && got.insecure == want->insecure && got.timeout_ms == want->timeout_ms &&
                  got.spin_us == want->spin_us,
              "%s: rank %u of %u at %s, keys %s", cases[i].address, got.rank, got.size, got.rendezvous, got.keys);
    }
}

static char long_address[GW_LINK_ADDRESS_BYTES + 1], long_key[3000], long_host[400];

TEST(bad_addresses_are_refused)
{
    static const struct {
        const char *address, *words;
    } cases[] = {
        {"", "it must begin with local:, tcp: or mpi:"},
        {"tcp", "it must begin with"},
        {"pigeon://h:1", "\"pigeon://h:1\" names no link"},
        {"TCP://h:1?rank=0&size=1", "names no link"},
        {" tcp://h:1?rank=0&size=1", "names no link"},
        {"node7:29500", "names no link"},
        {"local:4", "the local address has no host or name; write local: alone"},
        {"local:?size=4", "the local address has no option 'size'; it has none"},
        {"mpi://h:1", "the mpi address has no host"},
        {"mpi:?rank=0", "does not say size=; write both"},
        {"mpi:?size=2", "does not say rank=; write both"},
        {"mpi:?rank=0&size=1&keys=a", "has no option 'keys'"},
        {"tcp:h:1?rank=0&size=1", "must go on with //HOST:PORT"},
        {"tcp:/h:1?rank=0&size=1", "must go on with"},
        {"tcp://?rank=0&size=1", "must go on with"},
        {"tcp://h?rank=0&size=1", "must go on with"},
        {"tcp://h:?rank=0&size=1", "must go on with"},
        {"tcp://:1?rank=0&size=1", "must go on with"},
        {"tcp://h:0?rank=0&size=1", "a port from 1 to 65535"},
        {"tcp://h:65536?rank=0&size=1", "a port from 1 to 65535"},
        {"tcp://h:+1?rank=0&size=1", "must go on with"},
        {"tcp://h:1/?rank=0&size=1", "must go on with"},
        {"tcp://h:1/a?rank=0&size=1", "must go on with"},
        {"tcp://me@h:1?rank=0&size=1", "must go on with"},
        {"tcp://::1:5?rank=0&size=1", "must go on with"},
        {"tcp://[::1:5?rank=0&size=1", "must go on with"},
        {"tcp://h h:5?rank=0&size=1", "must go on with"},
        {"tcp://h:1&rank=0&size=1", "must go on with"},
        {"tcp://h:1", "does not say rank=; write ?rank=R&size=N"},
        {"tcp://h:1?", "nothing stands behind the question mark"},
        {"tcp://h:1?rank=0", "does not say size="},
        {"tcp://h:1?size=1", "does not say rank="},
        {"tcp://h:1?rank=0&size=1&", "an option is empty; write key=value&key=value, with & between"},
        {"tcp://h:1?&rank=0&size=1", "an option is empty"},
        {"tcp://h:1?rank=0,size=1", "rank is \"0,size=1\", and must be a whole number from 0 to 32766"},
        {"tcp://h:1?rank=0&rank=0&size=1", "option 'rank' is given twice"},
        {"tcp://h:1?rank=0&size=1&size=2", "option 'size' is given twice"},
        {"tcp://h:1?rank=0&size=1&key=a", "has no option 'key'; it has rank, size, keys"},
        {"tcp://h:1?rank=0&size=1&Keys=a", "has no option 'Keys'"},
        {"tcp://h:1?rank=0&size=1&insecure", "option 'insecure' has no value"},
        {"tcp://h:1?rank=0&size=1&insecure=yes", "insecure is \"yes\", and must be a whole number from 0 to 1"},
        {"tcp://h:1?rank=0&size=1&insecure=2", "from 0 to 1"},
        {"tcp://h:1?rank=&size=1", "rank is \"\""},
        {"tcp://h:1?rank=-1&size=1", "rank is \"-1\""},
        {"tcp://h:1?rank=%30&size=1", "rank is \"%30\""},
        {"tcp://h:1?rank=0x1&size=2", "rank is \"0x1\""},
        {"tcp://h:1?rank=2&size=2", "rank is 2 and size is 2; ranks are 0 to 1"},
        {"tcp://h:1?rank=0&size=0", "size is \"0\", and must be a whole number from 1 to 32767"},
        {"tcp://h:1?rank=0&size=32768", "from 1 to 32767"},
        {"tcp://h:1?rank=4294967296&size=1", "rank is \"4294967296\""},
        {"tcp://h:1?rank=0&size=1&timeout_ms=0", "from 1 to 4294967295"},
        {"tcp://h:1?rank=0&size=1&timeout_ms=4294967296", "from 1 to 4294967295"},
        {"tcp://h:1?rank=0&size=1&spin_us=1000001", "from 0 to 1000000"},
        {"tcp://h:1?rank=0&size=1&keys=", "keys is empty"},
        {"tcp://h:1?rank=0&size=1&advertise=", "advertise is empty"},
        {"tcp://h:1?rank=0&size=1&keys=a%", "a % itself is written %25"},
        {"tcp://h:1?rank=0&size=1&keys=a%2", "a % itself is written %25"},
        {"tcp://h:1?rank=0&size=1&keys=a%2g", "a % itself is written %25"},
        {"tcp://h:1?rank=0&size=1&keys=a%00", "a % itself is written %25"},
        {"tcp://h:1?rank=0&size=1&keys=a b", "\" b\"; write its first sign as %20"},
        {"tcp://h:1?rank=0&size=1&keys=a?b", "write its first sign as %3F"},
        {"tcp://h:1?rank=0&size=1#a", "size is \"1#a\""},
        {long_address, "an address has at most 4095 bytes, and this one has 4096"},
        {long_key, "is too long"},
        {long_host, "must go on with"},
    };
    memset(long_address, 'x', sizeof long_address - 1);
    snprintf(long_key, sizeof long_key, "tcp://h:1?rank=0&size=1&keys=%02500d", 0);
    snprintf(long_host, sizeof long_host, "tcp://%0256d:1?rank=0&size=1", 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_link links[2];
        memset(links, 0x55, sizeof links);
        const gw_status status = gw_link_open(NULL, cases[i].address, NULL, 2, links);
        CHECK(status == GW_ERR_SPEC && strstr(gw_last_error(), cases[i].words), "%s: %d, %s", cases[i].address, status,
              gw_last_error());
        CHECK(!links[0].ops && !links[1].ops, "%s", cases[i].address);
    }
}

/* How many links may be asked for, and what else is no part of the address. */
TEST(arguments_are_checked)
{
    gw_link links[GW_LINK_MOST];
    assert_int_equal(gw_link_open(NULL, "local:", NULL, 0, links), GW_ERR_ARGUMENT);
    assert_int_equal(gw_link_open(NULL, "local:", NULL, GW_LINK_MOST + 1, links), GW_ERR_ARGUMENT);
    assert_int_equal(gw_link_open(NULL, NULL, NULL, 1, links), GW_ERR_ARGUMENT);
    assert_int_equal(gw_link_open(NULL, "local:", NULL, 1, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_link_open(NULL, "local:", NULL, GW_LINK_MOST, links), GW_OK);
    for (uint32_t l = 0; l < GW_LINK_MOST; l++) {
        assert_true(links[l].rank == 0 && links[l].size == 1);
        gw_link_destroy(&links[l]);
    }
}

RUN_TESTS("addresses of links", NULL, NULL)
