/* Tests the tcp link against what every link must do. The other tcp_*_test.c files test what only the tcp link does. */
#include "link/tcp/test_world.h"

#include <fcntl.h>

static gw_status create(gw_context *of_all, uint32_t size, gw_link *endpoints)
{
    if (size == 0 || size > LINK_MAX_RANKS || !endpoints) {
        struct gw_link_request options = {.size = size, .rendezvous = "127.0.0.1:1"};
        return endpoints ? gw_tcp_open(of_all, &options, 1, endpoints)
                         : gw_link_open(of_all, "tcp://127.0.0.1:1?rank=0&size=2", NULL, 1, NULL);
    }
    world_prepare(of_all, size, 1);
    for (uint32_t r = 0; r < size; r++)
        members[r].by_address = true;
    world_start(0, size);
    world_join(members, size);
    for (uint32_t r = 0; r < size; r++) {
        if (members[r].status < 0)
            return gw_fail(members[r].status, "%s", members[r].sentence);
        endpoints[r] = members[r].links[0];
    }
    return GW_OK;
}

/* A member sends more than the kernel takes, and the other one does not come to its link. */
TEST(who_takes_nothing_is_named)
{
    world_meet(2, 1);
    link_test_send(context, &members[0].links[0], 1, 64 << 20, 0, 0);
    refused(members[0].links[0].ops->flush(members[0].links[0].self, 200), GW_ERR_TIMEOUT,
            "what was sent to rank 1 has not left within 200 ms");
    world_end();
}

/* The machine of a member has not answered. Who says so is in the sentence, because the others hear it as it is, and
 * that machine may answer them. */
TEST(who_is_silent_is_so_to_somebody)
{
    gw_message message;
    world_meet(3, 1);
    const struct gw_tcp_endpoint *silent = members[0].links[0].self, *me = members[2].links[0].self;
    me->group->timeout_ms = 100;
    peer_falls_silent(silent->peers[2].c.fd);
    link_test_send(context, &members[2].links[0], 0, 8, 0, 0);
    refused(gw_link_recv(&members[2].links[0], LINK_LONG_MS, &message), GW_ERR_PEER,
            ") is silent: its machine has not answered rank 2 for 100 ms");
    assert_int_equal(message.from, 0);
    world_end();
}

static int n_descriptors(void)
{
    int n = 0;
    for (int fd = 0; fd < 1000; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

/* Nor is one closed that belongs to somebody else; also if there is no memory for a link. */
TEST(no_descriptor_stays_open)
{
    const int before = n_descriptors();
    world_meet(2, 2);
    world_end();
    assert_int_equal(n_descriptors(), before);
    for (int n = 1; n == 1 || members[0].status < 0; n++) {
        world_begin(1, 2);
        fail_nth(&link_test_memory, n);
        world_come(&members[0]);
        fail_nth(&link_test_memory, 0);
        assert_true(members[0].status == GW_OK || members[0].status == GW_ERR_MEMORY);
        world_end();
        CHECK(n_descriptors() == before, "allocation %d: %d descriptors, and not %d", n, n_descriptors(), before);
    }
}

int main(void)
{
    world_raise_file_limit();
    static const struct link_factory factory = {.name = "tcp", .create = create, .news_travel = true};
    const struct CMUnitTest limits[] = {cmocka_unit_test(who_takes_nothing_is_named),
                                        cmocka_unit_test(who_is_silent_is_so_to_somebody),
                                        cmocka_unit_test(no_descriptor_stays_open)};
    const int failed = link_conformance(&factory);
    return cmocka_run_group_tests_name("tcp, at its limits", limits, NULL, NULL) + failed;
}
