/* Tests that programs compiled with an earlier or later header can hand over their structs of options. */
#include "base/options.h"
#include "checks.h"

#include <gradwire/gradwire.h>
#include <string.h>

struct newer {
    size_t struct_bytes;
    uint64_t first, added;
};
enum { FIRST = 16 }; /* bytes of the struct before `added` came */

TEST(an_earlier_struct_has_zeros_behind_it)
{
    const struct newer given = {FIRST, 5, 7};
    struct newer own = {1, 1, 1};
    assert_int_equal(gw_take_options("newer", FIRST, &given, &own, sizeof own), GW_OK);
    assert_true(own.struct_bytes == FIRST && own.first == 5 && own.added == 0);
}

TEST(a_later_struct_may_add_zeros_only)
{
    struct newer given = {sizeof given, 5, 0};
    uint64_t own[2] = {0, 0};
    assert_int_equal(gw_take_options("newer", FIRST, &given, own, sizeof own), GW_OK);
    assert_int_equal(own[1], 5);
    ((unsigned char *)&given)[sizeof given - 1] = 1;
    assert_int_equal(gw_take_options("newer", FIRST, &given, own, sizeof own), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "newer has 24 bytes, and this library knows 16 of them"));
}

TEST(what_is_no_size_is_refused)
{
    static const size_t sizes[] = {0, 1, FIRST - 1, 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct newer given = {sizes[i], 5, 7};
        struct newer own;
        assert_int_equal(gw_take_options("newer", FIRST, &given, &own, sizeof own), GW_ERR_ARGUMENT);
        assert_non_null(strstr(gw_last_error(), "newer.struct_bytes is "));
    }
}

/* A field that goes, or comes anywhere but at the end, would break programs that are compiled already. */
#define HOLDS(type) assert_true(sizeof(type) >= GW_FIRST_##type)

TEST(no_struct_becomes_shorter)
{
    HOLDS(gw_context_options);
    HOLDS(gw_reduce_options);
    HOLDS(gw_exchange_options);
    HOLDS(gw_link_options);
    HOLDS(gw_probe_options);
    HOLDS(gw_profile);
    HOLDS(gw_ps_key_options);
    HOLDS(gw_ps_call);
    HOLDS(gw_ps_client_options);
    HOLDS(gw_ps_server_options);
}

TEST(a_program_of_another_version_gets_its_context)
{
    struct {
        gw_context_options known;
        uint64_t later;
    } options = {{.struct_bytes = sizeof options, .n_threads = 2}, 0};
    gw_context *context;
    assert_int_equal(gw_context_create(&options.known, &context), GW_OK);
    gw_context_destroy(context);
    options.later = 1;
    assert_int_equal(gw_context_create(&options.known, &context), GW_ERR_ARGUMENT);
    assert_null(context);
}

TEST(a_program_of_another_version_gets_its_plan)
{
    const gw_profile_layer layer = {.name = "layer", .n_elems = 1};
    const gw_profile_codec codec = {.spec = "none"};
    struct {
        gw_profile known;
        uint64_t later;
    } profile = {{.struct_bytes = sizeof profile,
                  .layers = &layer,
                  .n_layers = 1,
                  .link = {.members = 1},
                  .codecs = &codec,
                  .n_codecs = 1},
                 0};
    uint32_t group;
    for (; profile.later < 2; profile.later++)
        assert_int_equal(gw_plan_merge(NULL, &profile.known, 0, GW_COMPRESS_BESIDE, GW_MERGE_EXACT, 0, &group, NULL,
                                       NULL),
                         profile.later ? GW_ERR_ARGUMENT : GW_OK);
}

RUN_TESTS("options", NULL, NULL)
