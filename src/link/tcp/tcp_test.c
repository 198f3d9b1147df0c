/* Tests the tcp link against what every link must do. The other tcp_*_test.c files test what only the tcp link does. */
#include "link/tcp/test_world.h"

#include <errno.h>

static void by_addresses(struct world_member *members)
{
    for (uint32_t r = 0; r < members[0].options.size; r++)
        members[r].by_address = true;
}

static gw_status create(gw_context *context, uint32_t size, gw_link *endpoints)
{
    if (size == 0 || size > LINK_MAX_RANKS || !endpoints) {
        struct gw_link_request options = {.size = size, .rendezvous = "127.0.0.1:1"};
        return endpoints ? gw_tcp_open(context, &options, 1, endpoints)
                         : gw_link_open(context, "tcp://127.0.0.1:1?rank=0&size=2", NULL, 1, NULL);
    }
    struct world_member members[LINK_MAX_RANKS];
    world_meet(context, size, 1, members, by_addresses);
    for (uint32_t r = 0; r < size; r++) {
        if (members[r].status < 0)
            return gw_fail(members[r].status, "%s", members[r].sentence);
        endpoints[r] = members[r].links[0];
    }
    return GW_OK;
}

/* Numbers at their limits, which are looked at before anybody is met: what is wrong is said of the next thing. */
TEST(limits_are_checked)
{
    static const struct {
        uint32_t size, rank, n_links;
        const char *words;
    } cases[] = {
        {GW_MAX_WORKERS + 1, 0, 1, "a link of 32768 members asked for; 1 to 32767 are possible"},
        {GW_MAX_WORKERS, GW_MAX_WORKERS, 1, "the rank is 32767; ranks are 0 to 32766"},
        {GW_MAX_WORKERS, GW_MAX_WORKERS - 1, GW_TCP_MAX_LINKS + 1, "65 links asked for; 1 to 64 are possible"},
        {GW_MAX_WORKERS, GW_MAX_WORKERS - 1, GW_TCP_MAX_LINKS, "no rendezvous is named"},
        {1, 0, 0, "0 links asked for; 1 to 64 are possible"},
        {1, 0, 1, "no rendezvous is named"},
    };
    gw_link links[GW_TCP_MAX_LINKS + 1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct gw_link_request options = {.size = cases[i].size, .rank = cases[i].rank, .rendezvous = NULL};
        refused(gw_tcp_open(NULL, &options, cases[i].n_links, links), GW_ERR_ARGUMENT, cases[i].words);
    }
}

/* A member sends more than the kernel takes, and the other one does not come to its link. */
TEST(who_takes_nothing_is_named)
{
    struct world_member members[2];
    gw_context *context = link_test_context();
    world_meet(context, 2, 1, members, NULL);
    world_expect_all(members, 2, GW_OK, NULL);
    link_test_send(context, &members[0].links[0], 1, 64 << 20, 0, 0);
    refused(members[0].links[0].ops->flush(members[0].links[0].self, 200), GW_ERR_TIMEOUT,
            "what was sent to rank 1 has not left within 200 ms");
    world_end(context, members, 2);
}

/* The machine of a member has not answered. Who says so is in the sentence, because the others hear it as it is, and
 * that machine may answer them. */
TEST(who_is_silent_is_so_to_somebody)
{
    struct world_member members[3];
    gw_context *context = link_test_context();
    gw_message message;
    world_meet(context, 3, 1, members, NULL);
    world_expect_all(members, 3, GW_OK, NULL);
    struct gw_tcp_endpoint *me = members[2].links[0].self;
    me->peers[1].c.error = ETIMEDOUT;
    gw_tcp_lose(me, 1);
    refused(gw_link_recv(&members[2].links[0], LINK_LONG_MS, &message), GW_ERR_PEER,
            ") is silent: its machine has not answered rank 2 for 60000 ms");
    assert_int_equal(message.from, 1);
    world_end(context, members, 3);
}

int main(void)
{
    world_raise_file_limit();
    static const struct link_factory factory = {.name = "tcp", .create = create, .news_travel = true};
    const struct CMUnitTest limits[] = {cmocka_unit_test(limits_are_checked),
                                        cmocka_unit_test(who_takes_nothing_is_named),
                                        cmocka_unit_test(who_is_silent_is_so_to_somebody)};
    const int failed = link_conformance(&factory);
    return cmocka_run_group_tests_name("tcp, at its limits", limits, NULL, NULL) + failed;
}
