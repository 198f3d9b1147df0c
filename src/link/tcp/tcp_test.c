/* Tests the tcp link against what every link must do. The other tcp_*_test.c files test what only the tcp link does. */
#include "link/tcp/test_world.h"

static gw_status create(gw_context *context, uint32_t size, gw_link *endpoints)
{
    if (size == 0 || size > LINK_MAX_RANKS || !endpoints) {
        gw_tcp_options options = {.struct_bytes = sizeof options, .size = size, .rendezvous = "127.0.0.1:1"};
        return gw_link_tcp_create(context, &options, 1, endpoints);
    }
    struct world_member members[LINK_MAX_RANKS];
    world_meet(context, size, 1, members, NULL);
    for (uint32_t r = 0; r < size; r++) {
        if (members[r].status < 0)
            return gw_fail(members[r].status, "%s", members[r].sentence);
        endpoints[r] = members[r].links[0];
    }
    return GW_OK;
}

int main(void)
{
    world_raise_file_limit();
    static const struct link_factory factory = {.name = "tcp", .create = create, .news_travel = true};
    return link_conformance(&factory);
}
