/* Tests the table of links: how it is listed and searched, which options each link takes and misses, and which link is
 * chosen if none is given. */
#include "checks.h"
#include "members/members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TEST(lists)
{
    static const struct {
        unsigned takes;
        bool alone;
        const char *words;
    } cases[] = {{0, true, "local, tcp, mpi and servers"},         {0, false, "local, tcp and mpi"},
                 {GW_LINK_RANK, true, "tcp and servers"},          {GW_LINK_RANK, false, "tcp"},
                 {GW_LINK_RANK | GW_LINK_RENDEZVOUS, true, "tcp"}, {1u << 20, true, ""}};
    char text[100];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(gw_members_list(cases[i].takes, cases[i].alone, " and ", text, sizeof text),
                            cases[i].words);
    for (size_t room = 1; room < 20; room++) { /* what does not fit is cut */
        memset(text, 'x', sizeof text);
        gw_members_list(0, true, " and ", text, room);
        CHECK(strlen(text) < room && text[room] == 'x', "%zu bytes", room);
    }
}

TEST(every_link_is_found)
{
    const struct gw_link_scheme *scheme;
    for (size_t i = 0; (scheme = gw_members_nth(i)); i++)
        assert_ptr_equal(gw_members_find(scheme->name), scheme);
    assert_ptr_equal(gw_members_find("servers"), &gw_members_servers);
    assert_null(gw_members_find("local2"));
    assert_null(gw_members_find(""));
}

#define NO GW_LAUNCHER_NO_RANK

/* What begin says of options. words NULL: it takes them, and then `first`, `count` and `size` are known. */
TEST(options_fit_their_link)
{
    static const struct {
        struct gw_members_options options;
        const char *words;
        uint32_t size, first, count;
    } cases[] = {
        {{.link = "local", .workers = 3, .rank = NO}, NULL, 3, 0, 3},
        {{.link = "local", .rank = 0}, "--rank is for --link tcp and servers, and --link is local", 0, 0, 0},
        {{.link = "local", .rank = 0, .must_meet = true}, "--rank is for --link tcp, and --link is local", 0, 0, 0},
        {{.link = "local", .rank = NO, .request.insecure = true}, "--insecure is for --link tcp,", 0, 0, 0},
        {{.link = "local", .rank = NO, .request.keys = "k"}, "--keys is for --link tcp and servers,", 0, 0, 0},
        {{.link = "pigeon", .rank = NO}, "there are local, tcp, mpi and servers", 0, 0, 0},
        {{.link = "servers", .workers = 2, .rank = 1, .servers = "h:1", .must_meet = true}, "never meet", 0, 0, 0},
        {{.link = "tcp", .rank = NO}, "tcp needs --workers N", 0, 0, 0},
        {{.link = "tcp", .workers = 2, .rank = NO}, "tcp needs --rank R", 0, 0, 0},
        {{.link = "tcp", .workers = 2, .rank = 1}, "tcp needs --rendezvous HOST:PORT", 0, 0, 0},
        {{.link = "tcp", .workers = 2, .rank = 2, .request.rendezvous = "h:1"}, "ranks are 0 to 1", 0, 0, 0},
        {{.link = "tcp", .workers = 2, .rank = 1, .request.rendezvous = "h:1"}, NULL, 2, 1, 1},
        {{.link = "servers", .workers = 2, .rank = 1}, "needs --servers HOST:PORT", 0, 0, 0},
        {{.link = "servers", .workers = 2, .rank = NO, .servers = "h:1"}, "needs --rank R", 0, 0, 0},
        {{.link = "servers", .workers = 2, .rank = 2, .servers = "h:1"}, "ranks are 0 to 1", 0, 0, 0},
        {{.link = "servers", .workers = 2, .rank = 1, .servers = "h:1"}, NULL, 2, 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct gw_members members;
        char version[200];
        const struct gw_link_scheme *scheme = gw_members_find(cases[i].options.link);
        if (scheme && !scheme->version(version, sizeof version))
            continue; /* this build does not have that link */
        const gw_status status = gw_members_begin(&cases[i].options, &members);
        if (cases[i].words) {
            CHECK(status == GW_ERR_ARGUMENT && strstr(gw_last_error(), cases[i].words), "case %zu: %d, %s", i, status,
                  gw_last_error());
            continue;
        }
        CHECK(status == GW_OK, "case %zu: %s", i, gw_last_error());
        CHECK(members.size == cases[i].size && members.first == cases[i].first && members.count == cases[i].count,
              "case %zu: rank %u and %u more of %u", i, members.first, members.count - 1, members.size);
        gw_members_end(&members, false);
    }
}

static char logged[600];

static void keep(const char *line, void *user)
{
    (void)user;
    snprintf(logged, sizeof logged, "%s", line);
}

static bool stop_after_five(void *user)
{
    (void)user;
    static int asked;
    return ++asked >= 5;
}

/* Who waits for servers says so, and stops when asked. */
TEST(waiting_for_servers_is_told)
{
    const struct gw_members_options options = {.link = "servers",
                                               .workers = 2,
                                               .rank = 1,
                                               .servers = "127.0.0.1:9", /* nobody is there */
                                               .request.timeout_ms = 60000,
                                               .request.log = keep,
                                               .request.stop = stop_after_five};
    struct gw_members m;
    gw_ps_client *client;
    logged[0] = 0;
    const gw_status status = gw_members_begin(&options, &m);
    if (status == GW_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(status, GW_OK);
    assert_int_equal(gw_members_client(&m, &m.servers, &client), GW_ERR_CLOSED);
    assert_null(client);
    assert_string_equal(logged, "waiting for the parameter servers 127.0.0.1:9, for at most 60 s");
    gw_members_end(&m, true);
}

/* Without a launcher, members are threads. torchrun says where they meet, so tcp joins them, and rank 0 says so. */
TEST(a_link_is_chosen)
{
    struct gw_members_options options = {.rank = NO, .request.log = keep};
    assert_int_equal(gw_members_choose_link(&options), GW_OK);
    assert_string_equal(options.link, "local");
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "h", 1);
    setenv("MASTER_PORT", "1", 1);
    setenv("TORCHELASTIC_RUN_ID", "x", 1);
    for (int rank = 1; rank >= 0; rank--) {
        options.link = NULL;
        logged[0] = 0;
        setenv("RANK", rank ? "1" : "0", 1);
        assert_int_equal(gw_members_choose_link(&options), GW_OK);
        assert_string_equal(options.link, "tcp");
        assert_int_equal(logged[0] != 0, rank == 0);
    }
    assert_non_null(strstr(logged, "started 2 ranks: they are joined by --link tcp"));
    options = (struct gw_members_options){.link = "local", .rank = NO}; /* what is given stays */
    assert_int_equal(gw_members_choose_link(&options), GW_OK);
    assert_string_equal(options.link, "local");
    clearenv();
}

int main(void)
{
    clearenv(); /* a launcher of this test does not matter */
    return run_noted_tests("members", NULL, NULL);
}
