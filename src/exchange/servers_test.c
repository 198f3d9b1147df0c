/* The exchange through parameter servers: the same bits as the codecs' own functions give, and so as over any other link; what is not
 * finite; and workers that do not agree. */
#include "exchange_world.h"

static const uint64_t mixed_sizes[] = {5000, 0, 1, 33001, 7, 70001, 1024};
static const uint32_t one_group[] = {0, 0, 0, 0, 0, 0, 0};
static const uint32_t three_groups[] = {2, 0, 1, 1, 0, 2, 2};

#define N_MIXED (sizeof mixed_sizes / sizeof mixed_sizes[0])

static const char *const specs[] = {
    "none", "bf16", "ternary", "ternary:code=2bit,pull=packed,entropy=off", "ternary:share=off", "ternary:scope=global", "ternary:bucket=2048",
    "topk:ratio=0.05,refresh=2", "gspar:eps=0.5",
};

static void averages_equal_the_codecs_own(void **state)
{
    (void)state;
    static const uint32_t *const groupings[] = {NULL, one_group, three_groups};
    uint32_t turn = 0;
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++)
        for (uint32_t n = 1; n <= 4; n++, turn++) {
            struct world world = {.spec = specs[s],
                                  .n = n,
                                  .sizes = mixed_sizes,
                                  .n_tensors = N_MIXED,
                                  .n_steps = 3,
                                  .group_of = groupings[turn % 3],
                                  .seed = 177 + turn,
                                  .slice_max = turn % 3 == 1 ? 4096 : 0,
                                  .n_servers = 1 + turn % WORLD_MAX_SERVERS,
                                  .timeout_ms = 20000,
                                  .dawdle = turn % 4 == 3,
                                  .shuffle = turn % 2};
            world_run(&world);
            world_check_ok(&world);
            world_check_averages(&world);
            world_end(&world);
        }
}

/* The lowest tensor and rank are told to everybody, and the next step goes on. */
static void what_is_not_finite_drops_the_step(void **state)
{
    (void)state;
    static const struct poison poisons[] = {{1, 2, 5, 70000}, {1, 1, 3, 7}, {2, 0, 0, 0}};
    static const char *const some[] = {"none", "ternary", "topk:ratio=0.05"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        struct world world = {.spec = some[s], .n = 3, .sizes = mixed_sizes, .n_tensors = N_MIXED, .n_steps = 4, .seed = 3, .n_servers = 2,
                              .timeout_ms = 20000, .poisons = poisons, .n_poisons = sizeof poisons / sizeof poisons[0]};
        world_run(&world);
        for (uint32_t r = 0; r < world.n; r++) {
            assert_int_equal(world.members[r].status, GW_OK);
            const gw_step_result *results = world.members[r].results;
            assert_true(results[0].committed && !results[1].committed && !results[2].committed && results[3].committed);
            assert_true(results[1].bad_tensor == 3 && results[1].bad_rank == 1);
            assert_true(results[2].bad_tensor == 0 && results[2].bad_rank == 0);
        }
        world_check_averages(&world);
        world_end(&world);
    }
}

/* One goes without a word: the others learn who was waited for. */
static void one_that_leaves_is_named(void **state)
{
    (void)state;
    struct world world = {.spec = "ternary", .n = 3, .sizes = mixed_sizes, .n_tensors = N_MIXED, .n_steps = 4, .seed = 3, .n_servers = 1,
                          .timeout_ms = 1000, .quits = QUIT_DESTROY, .quitter = 1, .quits_step = 2, .quits_after = 3};
    world_run(&world);
    for (uint32_t r = 0; r < world.n; r += 2) {
        assert_true(world.members[r].status == GW_ERR_PEER && world.members[r].steps_done == 2);
        assert_non_null(strstr(world.members[r].sentence, "rank 1"));
    }
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(averages_equal_the_codecs_own),
        cmocka_unit_test(what_is_not_finite_drops_the_step),
        cmocka_unit_test(one_that_leaves_is_named),
    };
    return cmocka_run_group_tests_name("servers", tests, NULL, NULL);
}
