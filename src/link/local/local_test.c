/* Tests the local link against what every link must do. And with as many members as there can be, which other links
 * have no room for on one machine. */
#include "link_conformance.h"

TEST(as_many_members_as_there_can_be)
{
    gw_link *links = calloc(GW_MAX_WORKERS, sizeof *links);
    assert_non_null(links);
    gw_context *context = link_test_begin(links, GW_MAX_WORKERS);
    gw_link *last = &links[GW_MAX_WORKERS - 1];
    link_test_send(context, last, 0, 9, 1, 2);
    link_test_expect(&links[0], GW_MAX_WORKERS - 1, 9, 1, 2);
    link_test_send(context, &links[0], GW_MAX_WORKERS - 1, 9, 3, 4);
    link_test_expect(last, 0, 9, 3, 4);
    link_test_end(context, links, GW_MAX_WORKERS);
    free(links);
}

int main(void)
{
    static const struct link_factory factory = {.name = "local", .create = gw_link_local_create};
    const struct CMUnitTest most[] = {cmocka_unit_test(as_many_members_as_there_can_be)};
    const int failed = link_conformance(&factory);
    return cmocka_run_group_tests_name("local, at its limit", most, NULL, NULL) + failed;
}
