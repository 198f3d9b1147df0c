/* Tests the exchange through parameter servers: it gives the same bits as the codecs' own functions, and so as any
 * a link between members. Also: gradients that are not finite, and workers that do not agree. */
#include "base/optimizer.h"
#include "exchange_world.h"

static const uint64_t mixed_sizes[] = {5000, 0, 1, 33001, 7, 70001, 1024};
static const uint32_t one_group[] = {0, 0, 0, 0, 0, 0, 0};
static const uint32_t three_groups[] = {2, 0, 1, 1, 0, 2, 2};

#define N_MIXED (sizeof mixed_sizes / sizeof mixed_sizes[0])

static const char *const specs[] = {
    "none",
    "bf16",
    "ternary",
    "ternary:code=2bit,pull=packed,entropy=off",
    "ternary:share=off",
    "ternary:scope=global",
    "ternary:bucket=2048",
    "topk:ratio=0.05,refresh=2",
    "onebit",
    "gspar:eps=0.5",
    "gspar:eps=0.5,share=on",
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

/* Rank 0's choice comes back with averages, a step later. Servers that keep parameters send none: then each compares
 * for itself. */
static void the_wire_choice_changes_no_result(void **state)
{
    (void)state;
    static const char *const some[] = {"ternary", "ternary:share=off", "ternary:bucket=2048"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++)
        for (enum flips flips = FLIP_LEADER; flips <= FLIP_ALL; flips++) {
            struct world world = {.spec = some[s],
                                  .n = 3,
                                  .sizes = mixed_sizes,
                                  .n_tensors = N_MIXED,
                                  .n_steps = 4,
                                  .seed = 21,
                                  .n_servers = 2,
                                  .timeout_ms = 20000,
                                  .flips = flips};
            world_run(&world);
            world_check_ok(&world);
            world_check_averages(&world);
            for (uint32_t r = 0; r < world.n; r++)
                for (uint32_t step = r > 0; step < world.n_steps && flips == FLIP_LEADER; step++)
                    assert_int_equal(world.members[r].results[step].wire,
                                     (step - (r > 0)) % 2 ? GW_WIRE_SMALL : GW_WIRE_FAST);
            world_end(&world);
        }
    uint64_t hashes[2][WORLD_MAX_STEPS];
    for (int automatic = 0; automatic < 2; automatic++) {
        struct world world = {.spec = "ternary",
                              .n = 3,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = WORLD_MAX_STEPS,
                              .seed = 22,
                              .n_servers = 2,
                              .timeout_ms = 20000,
                              .server_optimizer = "sgd",
                              .wire = automatic ? GW_WIRE_AUTO : GW_WIRE_SMALL};
        world_run(&world);
        world_check_ok(&world);
        for (uint32_t r = 0; r < world.n; r++) {
            assert_int_equal(world.members[r].wire.compares, automatic);
            assert_int_equal(world.members[r].wire.n_comparisons, automatic);
        }
        memcpy(hashes[automatic], world.members[0].hash, sizeof hashes[automatic]);
        world_end(&world);
    }
    assert_memory_equal(hashes[0], hashes[1], sizeof hashes[0]);
}

/* The lowest tensor and rank are told to everybody, and the next step goes on. */
static void what_is_not_finite_drops_the_step(void **state)
{
    (void)state;
    static const struct poison poisons[] = {{1, 2, 5, 70000}, {1, 1, 3, 7}, {2, 0, 0, 0}};
    static const char *const some[] = {"none", "ternary", "topk:ratio=0.05"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        struct world world = {.spec = some[s],
                              .n = 3,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = 4,
                              .seed = 3,
                              .n_servers = 2,
                              .timeout_ms = 20000,
                              .poisons = poisons,
                              .n_poisons = sizeof poisons / sizeof poisons[0]};
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

/* ---- parameters on servers ------------------------------------------------------------------------------- */

/* Runs it to its end, and copies what rank 0 got in each step, all tensors one behind the other. */
static void run_and_keep(struct world *w, float **kept, gw_step_result *results)
{
    world_run(w);
    for (uint32_t r = 0; r < w->n; r++)
        if (w->members[r].status != GW_OK)
            fail_msg("rank %u: %s", r, w->members[r].sentence);
    for (uint32_t step = 0; step < w->n_steps; step++) {
        results[step] = w->members[0].results[step];
        size_t at = 0;
        for (uint32_t t = 0; t < w->n_tensors && results[step].committed; at += w->sizes[t++])
            if (w->sizes[t])
                memcpy(kept[step] + at, w->members[0].average[step][t], w->sizes[t] * sizeof **kept);
        for (uint32_t r = 1; r < w->n; r++)
            assert_true(w->members[r].hash[step] == w->members[0].hash[step] &&
                        w->members[r].results[step].bad_tensor == results[step].bad_tensor);
    }
    world_end(w);
}

/* The same steps with averages, and the rule applied to them: the servers' parameters have the same bits. */
static void check_parameters(const struct world *asked, const char *optimizer)
{
    struct world plain = *asked, with = *asked;
    struct gw_optimizer rule;
    gw_step_result results[WORLD_MAX_STEPS], again[WORLD_MAX_STEPS];
    float *averages[WORLD_MAX_STEPS], *parameters[WORLD_MAX_STEPS];
    size_t n = 0, at = 0;
    for (uint32_t t = 0; t < asked->n_tensors; t++)
        n += asked->sizes[t];
    for (uint32_t step = 0; step < WORLD_MAX_STEPS; step++)
        averages[step] = calloc(n, sizeof **averages), parameters[step] = calloc(n, sizeof **parameters);
    run_and_keep(&plain, averages, results);
    with.server_optimizer = optimizer;
    run_and_keep(&with, parameters, again);

    float *w = calloc(n, sizeof *w), *moments[] = {calloc(n, sizeof *w), calloc(n, sizeof *w)};
    assert_int_equal(gw_optimizer_parse_spec(optimizer, &rule), GW_OK);
    for (uint32_t t = 0; t < asked->n_tensors; at += asked->sizes[t++])
        for (size_t i = 0; i < asked->sizes[t]; i++)
            w[at + i] = world_first(asked, t, i);
    for (uint32_t step = 0; step < asked->n_steps; step++) {
        assert_true(results[step].committed == again[step].committed &&
                    results[step].committed == !world_poisoned(asked, step));
        assert_true(results[step].bad_tensor == again[step].bad_tensor &&
                    results[step].bad_rank == again[step].bad_rank);
        if (!results[step].committed)
            continue;
        gw_optimizer_update(&rule, n, w, moments, averages[step], (float)world_rate(&with, 0, step), step + 1);
        if (memcmp(w, parameters[step], n * sizeof *w) != 0)
            fail_msg("%s, %s, %u workers, %u servers, step %u: other parameters", asked->spec, optimizer, asked->n,
                     asked->n_servers, step);
    }
    for (uint32_t step = 0; step < WORLD_MAX_STEPS; step++)
        free(averages[step]), free(parameters[step]);
    free(w), free(moments[0]), free(moments[1]);
}

static void servers_keep_the_parameters_that_members_would(void **state)
{
    (void)state;
    static const char *const optimizers[] = {"momentum:weight-decay=0.01", "sgd", "adam"};
    static const uint32_t *const groupings[] = {NULL, one_group, three_groups};
    uint32_t turn = 0;
    for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++, turn++) {
        struct world world = {.spec = specs[s],
                              .n = 1 + turn % 3,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = 3,
                              .seed = 31 + turn,
                              .group_of = groupings[turn % 3],
                              .slice_max = turn % 3 == 1 ? 4096 : 0,
                              .n_servers = 1 + turn % WORLD_MAX_SERVERS,
                              .timeout_ms = 20000,
                              .shuffle = turn % 2,
                              .account = turn % 2};
        check_parameters(&world, optimizers[turn % 3]);
    }
}

/* One tensor of one worker: no key of the step moves, whatever the group and whether it has shared numbers. */
static void what_is_not_finite_moves_no_parameter(void **state)
{
    (void)state;
    static const struct poison poisons[] = {{1, 2, 5, 70000}, {1, 1, 3, 7}, {2, 0, 0, 0}};
    static const char *const some[] = {"none", "ternary", "topk:ratio=0.05", "ternary:scope=global"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        struct world world = {.spec = some[s],
                              .n = 3,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = 5,
                              .seed = 3,
                              .n_servers = 2,
                              .timeout_ms = 20000,
                              .poisons = poisons,
                              .n_poisons = sizeof poisons / sizeof poisons[0]};
        check_parameters(&world, "momentum");
    }
}

/* Nobody waits for the others' gradients; a gradient that is not finite is its worker's own affair. */
static void without_rounds_each_goes_its_way(void **state)
{
    (void)state;
    static const struct poison poisons[] = {{1, 1, 3, 7}};
    static const char *const some[] = {"none", "ternary", "topk:ratio=0.05"};
    static const gw_ps_mode modes[] = {GW_PS_ASYNC, GW_PS_STALE};
    for (size_t s = 0; s < 6; s++) {
        struct world world = {.spec = some[s % 3],
                              .n = 3,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = 5,
                              .seed = 3,
                              .n_servers = 1 + s % 2,
                              .timeout_ms = 20000,
                              .poisons = poisons,
                              .n_poisons = 1,
                              .server_optimizer = "sgd",
                              .mode = modes[s / 3],
                              .dawdle = true};
        world_run(&world);
        for (uint32_t r = 0; r < world.n; r++) {
            if (world.members[r].status != GW_OK)
                fail_msg("rank %u: %s", r, world.members[r].sentence);
            for (uint32_t step = 0; step < 5; step++)
                assert_true(world.members[r].results[step].committed == !(r == 1 && step == 1));
            assert_true(r != 1 ||
                        (world.members[r].results[1].bad_tensor == 3 && world.members[r].results[1].bad_rank == 1));
        }
        world_end(&world);
    }
}

/* Averages over whoever has pushed would differ between workers. */
static void averages_need_rounds(void **state)
{
    (void)state;
    struct world world = {.spec = "none",
                          .n = 2,
                          .sizes = mixed_sizes,
                          .n_tensors = N_MIXED,
                          .n_steps = 1,
                          .seed = 3,
                          .n_servers = 1,
                          .timeout_ms = 20000,
                          .mode = GW_PS_ASYNC};
    world_run(&world);
    for (uint32_t r = 0; r < world.n; r++) {
        assert_true(world.members[r].status < 0);
        assert_non_null(strstr(world.members[r].sentence, "--mode is not sync"));
    }
    world_end(&world);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    gw_context *context = world_context();
    gw_codec *codec;
    gw_link link;
    gw_exchange *ex;
    float x = 1, *const values[] = {&x};
    const gw_tensor tensor = {.name = "x", .n_elems = 1};
    assert_int_equal(gw_codec_parse(context, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(context, 1, &link), GW_OK);
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = codec,
                                   .tensors = &tensor,
                                   .n_tensors = 1,
                                   .link = link,
                                   .server_optimizer = "sgd"};
    assert_int_equal(gw_exchange_create(context, &options, &ex), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "options.servers is NULL"));
    options.server_optimizer = NULL;
    assert_int_equal(gw_exchange_create(context, &options, &ex), GW_OK);
    assert_int_equal(gw_exchange_put_parameters(ex, values), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_get_parameters(ex, values), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_set_rate(ex, 1), GW_ERR_ARGUMENT);
    gw_exchange_destroy(ex);
    link.ops->destroy(link.self);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
}

/* An exchange has a link or servers, and servers' clients are workers. */
static void who_owns_the_slices_is_clear(void **state)
{
    (void)state;
    struct world world = {.spec = "none", .n = 1, .n_servers = 1, .timeout_ms = 20000};
    char addresses[64 * WORLD_MAX_SERVERS];
    gw_ps_client *reader;
    gw_link link;
    gw_exchange *ex;
    const gw_tensor tensor = {.name = "x", .n_elems = 1};
    world.context = world_context();
    assert_int_equal(gw_codec_parse(world.context, world.spec, &world.codec), GW_OK);
    assert_int_equal(gw_link_local_create(world.context, 1, &link), GW_OK);
    world_start_servers(&world, addresses, sizeof addresses);
    gw_ps_client_options who = {.struct_bytes = sizeof who, .servers = addresses, .rank = GW_PS_READER};
    assert_int_equal(gw_ps_client_create(world.context, &who, &reader), GW_OK);
    gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = world.codec, .tensors = &tensor, .n_tensors = 1, .servers = reader};
    assert_int_equal(gw_exchange_create(world.context, &options, &ex), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "a reader has no gradients"));
    options.link = link;
    assert_int_equal(gw_exchange_create(world.context, &options, &ex), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "has a link and servers"));
    gw_ps_client_destroy(reader);
    link.ops->destroy(link.self);
    world_stop_servers(&world);
    gw_codec_destroy(world.codec);
    gw_context_destroy(world.context);
}

/* One goes without a word: the others learn who was waited for. */
static void one_that_leaves_is_named(void **state)
{
    (void)state;
    struct world world = {.spec = "ternary",
                          .n = 3,
                          .sizes = mixed_sizes,
                          .n_tensors = N_MIXED,
                          .n_steps = 4,
                          .seed = 3,
                          .n_servers = 1,
                          .timeout_ms = 1000,
                          .quits = QUIT_DESTROY,
                          .quitter = 1,
                          .quits_step = 2,
                          .quits_after = 3};
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
        cmocka_unit_test(the_wire_choice_changes_no_result),
        cmocka_unit_test(what_is_not_finite_drops_the_step),
        cmocka_unit_test(servers_keep_the_parameters_that_members_would),
        cmocka_unit_test(what_is_not_finite_moves_no_parameter),
        cmocka_unit_test(without_rounds_each_goes_its_way),
        cmocka_unit_test(averages_need_rounds),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(who_owns_the_slices_is_clear),
        cmocka_unit_test(one_that_leaves_is_named),
    };
    return cmocka_run_group_tests_name("servers", tests, NULL, NULL);
}
