/* Tests the exchange through parameter servers: it gives the same bits as the codecs' own functions, and so as a link
 * between members. Also: pushes that leave while backward runs, gradients that are not finite, and workers that do not
 * agree. */
#define _GNU_SOURCE /* nftw */
#include "optimizer/optimizer.h"
#include "exchange_world.h"
#include "outcome.h"
#include "folders.h"
#include "net/test_place.h"
#include "pserver/server/numbers.h"

static struct world mixed_world(const char *spec, uint32_t n, uint32_t n_steps, uint32_t n_servers)
{
    return (struct world){.spec = spec,
                          .n = n,
                          .sizes = mixed_sizes,
                          .n_tensors = N_MIXED,
                          .n_steps = n_steps,
                          .seed = 3,
                          .n_servers = n_servers,
                          .timeout_ms = 20000};
}

TEST(averages_equal_the_codecs_own)
{
    static const uint32_t *const groupings[] = {NULL, one_group, three_groups};
    uint32_t turn = 0;
    for (size_t s = 0; example(s); s++)
        for (uint32_t n = 1 + s % 2; n <= 4; n += 2, turn++) {
            struct world world = mixed_world(example(s), n, 3, 1 + turn % WORLD_MAX_SERVERS);
            world.group_of = groupings[turn % 3];
            world.seed = 177 + turn;
            world.slice_max = turn % 3 == 1 ? 4096 : 0;
            if (turn == 1)
                world.timeout_ms = UINT32_MAX - 1499; /* so long that no sum of it may be a uint32_t */
            world.dawdle = turn % 4 == 3;
            world.shuffle = turn % 2;
            world_run(&world);
            world_check_ok(&world);
            world_check_averages(&world);
            world_end(&world);
        }
}

/* Rank 0's choice comes back with averages, a step later. Servers that keep parameters send none: then each compares
 * for itself. */
TEST(the_wire_choice_changes_no_result)
{
    static const char *const some[] = {"ternary", "ternary:share=off", "ternary:bucket=2048"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++)
        for (enum flips flips = FLIP_LEADER; flips <= FLIP_ALL; flips++) {
            struct world world = mixed_world(some[s], 3, 4, 2);
            world.flips = flips;
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
        struct world world = mixed_world("ternary", 3, WORLD_MAX_STEPS, 2);
        world.server_optimizer = "sgd";
        world.wire = automatic ? GW_WIRE_AUTO : GW_WIRE_SMALL;
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

/* ---- parameters on servers ------------------------------------------------------------------------------- */

/* Runs it to its end, and copies what rank 0 got in each step, all tensors one behind the other. */
static void run_and_keep(struct world *w, float **kept, gw_step_result *results)
{
    world_run(w);
    for (uint32_t r = 0; r < w->n; r++)
        if (w->members[r].status != GW_OK)
            fail_msg("rank %u: %s", r, w->members[r].sentence);
    if (w->n_poisons && !w->server_optimizer)
        world_check_averages(w);
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
    for (uint32_t t = 0; w->account && w->server_optimizer && t < w->n_tensors; t++) { /* floats come back */
        const gw_tensor_traffic *traffic = &w->members[0].traffic[t];
        assert_int_equal(traffic->pull_frame_bytes, w->sizes[t] * sizeof(float));
        assert_int_equal(traffic->pull_payload_bytes, traffic->pull_frame_bytes);
    }
    world_end(w);
}

/* Of a step's poisons, the one in the lowest tensor, of the lowest rank. */
static const struct poison *lowest_poison(const struct world *w, uint32_t step)
{
    const struct poison *lowest = NULL;
    for (size_t i = 0; i < w->n_poisons; i++) {
        const struct poison *p = &w->poisons[i];
        if (p->step == step &&
            (!lowest || p->tensor < lowest->tensor || (p->tensor == lowest->tensor && p->rank < lowest->rank)))
            lowest = p;
    }
    return lowest;
}

/* The same steps with averages, and the rule applied to them: the servers' parameters have the same bits. Of a step
 * that was not finite both say the lowest tensor, and its lowest rank. */
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
    assert_int_equal(gw_optimizer_parse(optimizer, &rule), GW_OK);
    for (uint32_t t = 0; t < asked->n_tensors; at += asked->sizes[t++])
        for (size_t i = 0; i < asked->sizes[t]; i++)
            w[at + i] = world_first(asked, t, i);
    for (uint32_t step = 0; step < asked->n_steps; step++) {
        assert_true(results[step].committed == again[step].committed &&
                    results[step].committed == !world_poisoned(asked, step));
        const struct poison *lowest = lowest_poison(asked, step);
        const gw_step_result *both[] = {&results[step], &again[step]};
        for (int i = 0; i < 2 && lowest; i++)
            assert_true(both[i]->bad_tensor == lowest->tensor && both[i]->bad_rank == lowest->rank);
        if (lowest)
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

TEST(servers_keep_the_parameters_that_members_would)
{
    static const char *const optimizers[] = {"momentum:weight-decay=0.01", "sgd", "adam"};
    static const uint32_t *const groupings[] = {NULL, one_group, three_groups};
    uint32_t turn = 0;
    for (size_t s = 0; example(s); s++, turn++) {
        const bool codes_velocity = strstr(example(s), "momentum="), velocity = strstr(example(s), "output=velocity");
        if (codes_velocity && !velocity)
            continue; /* the servers' optimizer would take the averages for gradients; that is refused */
        struct world world = mixed_world(example(s), 1 + turn % 3, 3, 1 + turn % WORLD_MAX_SERVERS);
        world.seed = 31 + turn;
        world.group_of = groupings[turn % 3];
        world.slice_max = turn % 3 == 1 ? 4096 : 0;
        world.shuffle = world.account = turn % 2;
        check_parameters(&world, velocity ? "sgd" : optimizers[turn % 3]);
    }
}

/* One tensor of one worker: the step is dropped, and no key of it moves, whatever the group and whether it has shared
 * numbers. The next step goes on. */
TEST(what_is_not_finite_moves_no_parameter)
{
    static const struct poison poisons[] = {{1, 2, 5, 70000}, {1, 1, 3, 7}, {2, 0, 0, 0}};
    static const char *const some[] = {"none", "ternary", "topk:ratio=0.05,scope=layer,over=0", "ternary:scope=global"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        struct world world = mixed_world(some[s], 3, 5, 2);
        world.poisons = poisons;
        world.n_poisons = sizeof poisons / sizeof poisons[0];
        check_parameters(&world, "momentum");
    }
}

/* Nobody waits for the others' gradients; a gradient that is not finite is its worker's own affair. */
TEST(without_rounds_each_goes_its_way)
{
    static const struct poison poisons[] = {{1, 1, 3, 7}};
    static const char *const some[] = {"none", "ternary", "topk:ratio=0.05,scope=layer,over=0"};
    static const gw_ps_mode modes[] = {GW_PS_ASYNC, GW_PS_STALE};
    for (size_t s = 0; s < 6; s++) {
        struct world world = mixed_world(some[s % 3], 3, 5, 1 + s % 2);
        world.poisons = poisons;
        world.n_poisons = 1;
        world.server_optimizer = "sgd";
        world.mode = modes[s / 3];
        world.dawdle = true;
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

/* ---- pushes that leave while backward runs ------------------------------------------------------------------ */

enum { STAGE_WORKERS = 2, STAGE_SERVERS = 2, STAGE_TENSORS = 4, STAGE_ELEMENTS = 64 };

/* Two workers and two servers, driven by the test itself, step by step. */
struct stage {
    gw_context *context;
    gw_codec *codec;
    gw_tensor tensors[STAGE_TENSORS];
    gw_ps_server_options options;
    char folders[STAGE_SERVERS][64], addresses[STAGE_SERVERS][PLACE_BYTES];
    gw_ps_server *servers[STAGE_SERVERS];
    pthread_t threads[STAGE_SERVERS];
    gw_ps_client *clients[STAGE_WORKERS];
    gw_exchange *exchanges[STAGE_WORKERS];
    float gradients[STAGE_WORKERS][STAGE_TENSORS][STAGE_ELEMENTS];
    float parameters[STAGE_TENSORS][STAGE_ELEMENTS];
};

static void stage_serve(struct stage *stage, int s)
{
    gw_ps_server_options options = stage->options;
    options.struct_bytes = sizeof options;
    options.listen = stage->addresses[s];
    options.n_workers = STAGE_WORKERS;
    options.snapshot = stage->folders[s][0] ? stage->folders[s] : NULL;
    assert_int_equal(gw_ps_server_create(stage->context, &options, &stage->servers[s]), GW_OK);
    assert_int_equal(gw_ps_numbers_begin(stage->servers[s]), GW_OK);
    assert_int_equal(pthread_create(&stage->threads[s], NULL, world_serve, stage->servers[s]), 0);
}

static void stage_stop(struct stage *stage, int s)
{
    gw_ps_server_stop(stage->servers[s]);
    pthread_join(stage->threads[s], NULL);
    gw_ps_server_destroy(stage->servers[s]);
}

/* Of whole numbers, so that averages and steps of 1/2 are exact. */
static float stage_element(uint32_t worker, uint32_t step, uint32_t tensor, uint32_t i)
{
    return (float)((int)((worker * 7 + step * 5 + tensor * 3 + i * 11) % 31) - 15) * 4;
}

static void stage_begin(struct stage *stage, const char *spec, const gw_ps_server_options *options, bool keeps)
{
    char places[STAGE_SERVERS * 64];
    *stage = (struct stage){.options = *options, .context = world_context()};
    assert_int_equal(gw_codec_parse(stage->context, spec, &stage->codec), GW_OK);
    for (int s = 0; s < STAGE_SERVERS; s++) {
        snprintf(stage->folders[s], sizeof stage->folders[s], "%s", keeps ? "/tmp/gw-servers-test-XXXXXX" : "");
        assert_true(!keeps || mkdtemp(stage->folders[s]));
        find_place(stage->addresses[s]);
        stage_serve(stage, s);
    }
    snprintf(places, sizeof places, "%s,%s", stage->addresses[0], stage->addresses[1]);
    for (uint32_t t = 0; t < STAGE_TENSORS; t++)
        stage->tensors[t] = (gw_tensor){.id = t, .n_elems = STAGE_ELEMENTS};
    for (uint32_t r = 0; r < STAGE_WORKERS; r++) {
        float first[STAGE_TENSORS][STAGE_ELEMENTS] = {{0}}, *values[STAGE_TENSORS];
        const gw_ps_client_options who = {.struct_bytes = sizeof who,
                                          .servers = places,
                                          .rank = r,
                                          .timeout_ms = 20000};
        ok(gw_ps_client_create(stage->context, &who, &stage->clients[r]));
        const gw_exchange_options exchange = {.struct_bytes = sizeof exchange,
                                              .codec = stage->codec,
                                              .tensors = stage->tensors,
                                              .n_tensors = STAGE_TENSORS,
                                              .servers = stage->clients[r],
                                              .timeout_ms = 20000,
                                              .server_optimizer = "sgd:lr=0.5"};
        ok(gw_exchange_create(stage->context, &exchange, &stage->exchanges[r]));
        for (uint32_t t = 0; t < STAGE_TENSORS; t++)
            values[t] = first[t];
        ok(gw_exchange_init_parameters(stage->exchanges[r], values));
    }
}

static void stage_leave(struct stage *stage, uint32_t r)
{
    gw_exchange_destroy(stage->exchanges[r]);
    gw_ps_client_destroy(stage->clients[r]);
    stage->exchanges[r] = NULL;
    stage->clients[r] = NULL;
}

static void stage_end(struct stage *stage)
{
    for (uint32_t r = 0; r < STAGE_WORKERS; r++)
        stage_leave(stage, r);
    for (int s = 0; s < STAGE_SERVERS; s++) {
        stage_stop(stage, s);
        if (stage->folders[s][0])
            remove_folder(stage->folders[s]);
    }
    gw_codec_destroy(stage->codec);
    gw_context_destroy(stage->context);
}

/* A worker hands over the gradients of tensors [first, end). */
static void stage_submit(struct stage *stage, uint32_t r, uint32_t step, uint32_t first, uint32_t end)
{
    for (uint32_t t = end; t-- > first;) {
        for (uint32_t i = 0; i < STAGE_ELEMENTS; i++)
            stage->gradients[r][t][i] = stage_element(r, step, t, i);
        ok(gw_exchange_submit(stage->exchanges[r], t, stage->gradients[r][t]));
    }
}

/* How many requests of that kind the servers have had. */
static uint64_t stage_requests(struct stage *stage, enum gw_ps_operation operation)
{
    uint64_t n = 0;
    for (int s = 0; s < STAGE_SERVERS; s++) {
        struct gw_ps_numbers *numbers = gw_ps_numbers_take(stage->servers[s]);
        assert_non_null(numbers);
        n += numbers->counts.requests[operation];
        gw_ps_numbers_free(stage->servers[s], numbers);
    }
    return n;
}

/* Waits until so many pushes have come. */
static void stage_await_pushes(struct stage *stage, uint64_t n)
{
    for (int i = 0; i < 2000 && stage_requests(stage, GW_PS_PUSH) < n; i++)
        world_pause(10000);
    assert_int_equal(stage_requests(stage, GW_PS_PUSH), n);
}

/* What the servers have. Asked between steps, or by who is in none. */
static void stage_fetch(struct stage *stage, uint32_t r, float out[STAGE_TENSORS][STAGE_ELEMENTS])
{
    float *values[STAGE_TENSORS];
    for (uint32_t t = 0; t < STAGE_TENSORS; t++)
        values[t] = out[t];
    ok(gw_exchange_pull_parameters(stage->exchanges[r], values));
}

/* The step's end of a worker; its parameters are those of the workers that count (a mask), or as before. */
static void stage_wait(struct stage *stage, uint32_t r, uint32_t step, uint32_t counts, gw_step_result *result)
{
    const gw_status status = gw_exchange_wait(stage->exchanges[r], result);
    assert_true(result->committed == (counts != 0) && status == (counts ? GW_OK : GW_ERR_NONFINITE));
    for (uint32_t t = 0; t < STAGE_TENSORS && counts; t++)
        for (uint32_t i = 0; i < STAGE_ELEMENTS; i++) {
            float sum = 0;
            for (uint32_t w = 0; w < STAGE_WORKERS; w++)
                sum += counts >> w & 1 ? stage_element(w, step, t, i) : 0;
            const float expected = stage->parameters[t][i] - sum / (float)(counts == 3 ? 2 : 1) * 0.5f;
            if (stage->gradients[r][t][i] != expected)
                fail_msg("step %u, rank %u, tensor %u, element %u: %g and not %g", step, r, t, i,
                         (double)stage->gradients[r][t][i], (double)expected);
        }
}

/* The next step begins with what this one has left. */
static void stage_step_is_over(struct stage *stage, uint32_t r)
{
    memcpy(stage->parameters, stage->gradients[r], sizeof stage->parameters);
}

/* A whole step of both, all plain. Needs a codec that sends all as it is. */
static void stage_step(struct stage *stage, uint32_t step)
{
    gw_step_result result;
    for (uint32_t r = 0; r < STAGE_WORKERS; r++) {
        ok(gw_exchange_begin(stage->exchanges[r], step));
        stage_submit(stage, r, step, 0, STAGE_TENSORS);
    }
    for (uint32_t r = 0; r < STAGE_WORKERS; r++)
        stage_wait(stage, r, step, 3, &result);
    stage_step_is_over(stage, 0);
}

/* The servers have pushes of tensors while others are not submitted yet, and move nothing before both verdicts. */
TEST(pushes_leave_before_all_is_submitted)
{
    struct stage stage;
    gw_step_result result;
    float now[STAGE_TENSORS][STAGE_ELEMENTS];
    stage_begin(&stage, "none", &(gw_ps_server_options){.n_workers = STAGE_WORKERS}, false);
    stage_step(&stage, 0);
    ok(gw_exchange_begin(stage.exchanges[0], 1));
    stage_submit(&stage, 0, 1, 1, STAGE_TENSORS);
    stage_await_pushes(&stage, 2 * STAGE_TENSORS + 3);
    assert_int_equal(stage_requests(&stage, GW_PS_VERDICT), 2 * 2);
    stage_fetch(&stage, 1, now);
    assert_memory_equal(now, stage.parameters, sizeof now);
    stage_submit(&stage, 0, 1, 0, 1);
    stage_await_pushes(&stage, 3 * STAGE_TENSORS);

    ok(gw_exchange_begin(stage.exchanges[1], 1));
    stage_submit(&stage, 1, 1, 1, STAGE_TENSORS);
    stage_await_pushes(&stage, 4 * STAGE_TENSORS - 1);
    stage_submit(&stage, 1, 1, 0, 1);
    for (uint32_t r = 0; r < STAGE_WORKERS; r++)
        stage_wait(&stage, r, 1, 3, &result);
    stage_step_is_over(&stage, 0);
    stage_step(&stage, 2);
    stage_end(&stage);
}

/* A NaN in the tensor that comes last: the pushes that have left move no parameter on any server, and what the codec
 * keeps stays as it was. */
TEST(a_late_nan_takes_early_pushes_back)
{
    static const char *const some[] = {"topk:ratio=0.25,scope=layer,over=0", "onebit", "ternary"};
    for (size_t c = 0; c < sizeof some / sizeof some[0]; c++) {
        struct stage stage;
        gw_step_result result;
        float before[STAGE_TENSORS][STAGE_ELEMENTS], after[STAGE_TENSORS][STAGE_ELEMENTS];
        char kept[STAGE_WORKERS][16384], still[16384];
        stage_begin(&stage, some[c], &(gw_ps_server_options){.n_workers = STAGE_WORKERS}, false);
        size_t n_kept;
        ok(gw_exchange_save(stage.exchanges[0], NULL, 0, &n_kept));
        assert_true(n_kept <= sizeof still);
        uint64_t n_pushes = 0;
        for (uint32_t step = 0; step < 4; step++) {
            const bool bad = step % 2; /* one is good in between */
            stage_fetch(&stage, 0, before);
            for (uint32_t r = 0; r < STAGE_WORKERS; r++) {
                ok(gw_exchange_save(stage.exchanges[r], kept[r], sizeof kept[r], &n_kept));
                ok(gw_exchange_begin(stage.exchanges[r], step));
            }
            stage_submit(&stage, 1, step, 0, STAGE_TENSORS);
            stage_submit(&stage, 0, step, 1, STAGE_TENSORS);
            /* ternary: tensor 0 waits for the scaler of both; its statistics have been pushed */
            const bool shares = c == 2;
            n_pushes += shares ? 2 * STAGE_TENSORS - 1 + 2 * STAGE_TENSORS - 2 : 2 * STAGE_TENSORS - 1;
            stage_await_pushes(&stage, n_pushes);
            for (uint32_t i = 0; i < STAGE_ELEMENTS; i++)
                stage.gradients[0][0][i] = bad && i == 63 ? NAN : stage_element(0, step, 0, i);
            ok(gw_exchange_submit(stage.exchanges[0], 0, stage.gradients[0][0]));
            n_pushes += shares ? 3 : 1;
            for (uint32_t r = 0; r < STAGE_WORKERS; r++) {
                assert_int_equal(gw_exchange_wait(stage.exchanges[r], &result), bad ? GW_ERR_NONFINITE : GW_OK);
                assert_true(result.committed == !bad && result.bad_tensor == 0 && result.bad_rank == 0);
                ok(gw_exchange_save(stage.exchanges[r], still, sizeof still, &n_kept));
                assert_true(!bad || memcmp(still, kept[r], n_kept) == 0);
            }
            stage_fetch(&stage, 1, after);
            assert_int_equal(memcmp(before, after, sizeof after) == 0, bad);
        }
        stage_end(&stage);
    }
}

/* One goes when some of its pushes are there and its verdict is not: none of them counts. */
TEST(who_leaves_before_its_verdict_does_not_count)
{
    struct stage stage;
    gw_step_result result;
    stage_begin(&stage, "none", &(gw_ps_server_options){.missing = GW_PS_MISSING_CONTINUE, .away_ms = 50}, false);
    stage_step(&stage, 0);
    for (uint32_t r = 0; r < STAGE_WORKERS; r++)
        ok(gw_exchange_begin(stage.exchanges[r], 1));
    stage_submit(&stage, 0, 1, 0, STAGE_TENSORS);
    stage_submit(&stage, 1, 1, 1, STAGE_TENSORS);
    stage_await_pushes(&stage, 4 * STAGE_TENSORS - 1);
    stage_leave(&stage, 1);
    stage_wait(&stage, 0, 1, 1, &result);
    stage_end(&stage);
}

/* The servers go down between a worker's pushes and its verdict, and come again from their folders: the pushes are
 * there, and still wait. Twice, and the second verdict is bad. */
TEST(servers_come_again_before_the_verdict)
{
#ifndef GW_HAVE_SQLITE
    skip();
#endif
    struct stage stage;
    gw_step_result result;
    float now[STAGE_TENSORS][STAGE_ELEMENTS];
    stage_begin(&stage, "none", &(gw_ps_server_options){.away_ms = 20000}, true);
    stage_step(&stage, 0);
    for (uint32_t step = 1; step < 3; step++) {
        for (uint32_t r = 0; r < STAGE_WORKERS; r++)
            ok(gw_exchange_begin(stage.exchanges[r], step));
        stage_submit(&stage, 0, step, 0, STAGE_TENSORS);
        stage_submit(&stage, 1, step, 1, STAGE_TENSORS);
        stage_await_pushes(&stage, step == 1 ? 4 * STAGE_TENSORS - 1 : 2 * STAGE_TENSORS);
        for (int s = 0; s < STAGE_SERVERS; s++) {
            stage_stop(&stage, s);
            stage_serve(&stage, s);
        }
        if (step == 1) {
            stage_submit(&stage, 1, step, 0, 1);
        } else {
            stage.gradients[1][0][7] = NAN;
            ok(gw_exchange_submit(stage.exchanges[1], 0, stage.gradients[1][0]));
        }
        for (uint32_t r = 0; r < STAGE_WORKERS; r++)
            stage_wait(&stage, r, step, step == 1 ? 3 : 0, &result);
        if (step == 1)
            stage_step_is_over(&stage, 0);
    }
    stage_fetch(&stage, 0, now);
    assert_memory_equal(now, stage.parameters, sizeof now);
    stage_step(&stage, 3);
    stage_end(&stage);
}

/* ---- what is refused ---------------------------------------------------------------------------------------- */

/* If averages were made of the workers that have pushed so far, workers would get different ones. */
TEST(averages_need_rounds)
{
    struct world world = mixed_world("none", 2, 1, 1);
    world.mode = GW_PS_ASYNC;
    world_run(&world);
    for (uint32_t r = 0; r < world.n; r++) {
        assert_true(world.members[r].status < 0);
        assert_non_null(strstr(world.members[r].sentence, "--mode is not sync"));
    }
    world_end(&world);
}

TEST(wrong_calls_are_refused)
{
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
    assert_int_equal(gw_exchange_init_parameters(ex, values), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_pull_parameters(ex, values), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_set(ex, GW_EXCHANGE_RATE, 1), GW_ERR_ARGUMENT);
    gw_exchange_destroy(ex);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
}

/* An exchange has a link or servers, and servers' clients are workers. */
TEST(who_owns_the_slices_is_clear)
{
    struct world world = {.spec = "none", .n = 1, .n_servers = 1, .timeout_ms = 20000};
    char addresses[64 * WORLD_MAX_SERVERS];
    gw_ps_client *reader, *not_met;
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
    who.rank = 0, who.no_wait = true;
    assert_int_equal(gw_ps_client_create(world.context, &who, &not_met), GW_OK);
    options.servers = not_met;
    assert_int_equal(gw_exchange_create(world.context, &options, &ex), GW_ERR_ORDER);
    assert_non_null(strstr(gw_last_error(), "gw_ps_client_meet must come before"));
    gw_ps_client_destroy(not_met);
    options.servers = reader;
    options.link = link;
    assert_int_equal(gw_exchange_create(world.context, &options, &ex), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "has a link and servers"));
    /* The servers' optimizer gets averaged velocities. Only sgd without momentum takes them. */
    static const char *const pairs[][2] = {{"topk:momentum=0.9", "sgd"},
                                           {"topk:momentum=0.9,output=velocity", "momentum"},
                                           {"topk:momentum=0.9,output=velocity", "sgdx"},
                                           {"ternary:residual=on,momentum=0.9,output=velocity", "adam:lr=1"}};
    options.link = (gw_link){0};
    for (size_t i = 0; i < 4; i++) {
        gw_codec *codec;
        assert_int_equal(gw_codec_parse(world.context, pairs[i][0], &codec), GW_OK);
        options.codec = codec;
        options.server_optimizer = pairs[i][1];
        assert_int_equal(gw_exchange_create(world.context, &options, &ex), GW_ERR_SPEC);
        assert_non_null(strstr(gw_last_error(), "let the servers' optimizer be sgd"));
        gw_codec_destroy(codec);
    }
    gw_ps_client_destroy(reader);
    gw_link_destroy(&link);
    world_stop_servers(&world);
    gw_codec_destroy(world.codec);
    gw_context_destroy(world.context);
}

/* The second one has another seed. It hears so from the first server, also if there is no other. */
TEST(workers_that_differ_are_refused)
{
    for (uint32_t n_servers = 1; n_servers <= 2; n_servers++) {
        struct world world = {.spec = "none", .n = 2, .n_servers = n_servers, .timeout_ms = 20000};
        char addresses[64 * WORLD_MAX_SERVERS];
        gw_ps_client *clients[2];
        gw_exchange *exchanges[2];
        float first = 1, *const values[] = {&first};
        const gw_tensor tensor = {.name = "x", .n_elems = 1};
        world.context = world_context();
        assert_int_equal(gw_codec_parse(world.context, world.spec, &world.codec), GW_OK);
        world_start_servers(&world, addresses, sizeof addresses);
        for (uint32_t r = 0; r < 2; r++) {
            const gw_ps_client_options who = {.struct_bytes = sizeof who,
                                              .servers = addresses,
                                              .rank = r,
                                              .timeout_ms = 20000};
            assert_int_equal(gw_ps_client_create(world.context, &who, &clients[r]), GW_OK);
            const gw_exchange_options options = {.struct_bytes = sizeof options,
                                                 .codec = world.codec,
                                                 .tensors = &tensor,
                                                 .n_tensors = 1,
                                                 .servers = clients[r],
                                                 .seed = 7 + r,
                                                 .timeout_ms = 20000,
                                                 .server_optimizer = "sgd"};
            assert_int_equal(gw_exchange_create(world.context, &options, &exchanges[r]), GW_OK);
            assert_int_equal(gw_exchange_init_parameters(exchanges[r], values), r ? GW_ERR_ARGUMENT : GW_OK);
        }
        assert_non_null(strstr(gw_last_error(), "rank 1 has seed = 8, and rank 0"));
        for (uint32_t r = 0; r < 2; r++) {
            gw_exchange_destroy(exchanges[r]);
            gw_ps_client_destroy(clients[r]);
        }
        world_stop_servers(&world);
        gw_codec_destroy(world.codec);
        gw_context_destroy(world.context);
    }
}

/* One goes without a word: the others learn for whom they waited. */
TEST(one_that_leaves_is_named)
{
    struct world world = mixed_world("ternary", 3, 4, 1);
    world.timeout_ms = 1000;
    world.quits = QUIT_DESTROY;
    world.quitter = 1, world.quits_step = 2, world.quits_after = 3;
    world_run(&world);
    for (uint32_t r = 0; r < world.n; r += 2) {
        assert_true(world.members[r].status == GW_ERR_TIMEOUT && world.members[r].steps_done == 2);
        assert_non_null(strstr(world.members[r].sentence, "rank 1"));
    }
    world_end(&world);
}

RUN_TESTS("servers", NULL, NULL)
