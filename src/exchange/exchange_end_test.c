/* Tests what ends an exchange over the local link: members that go, leave, fall silent, begin another step, or have no
 * memory, and messages that were altered. */
#include "checks.h"
#include "forks.h"
#include "exchange_world.h"

TEST(a_member_that_goes_is_named)
{
    static const char *const some[] = {"none", "ternary"};
    for (int s = 0; s < 2; s++) {
        for (uint32_t after = 0; after < N_MIXED; after += 3) { /* tensors submitted before it goes */
            struct world world = {.spec = some[s],
                                  .n = 4,
                                  .sizes = mixed_sizes,
                                  .n_tensors = N_MIXED,
                                  .n_steps = 3,
                                  .seed = 6,
                                  .quitter = 2,
                                  .quits_step = 1,
                                  .quits_after = after,
                                  .quits = QUIT_DESTROY};
            world_run(&world);
            for (uint32_t r = 0; r < world.n; r++) {
                if (r == 2)
                    continue;
                assert_int_equal(world.members[r].status, GW_ERR_PEER);
                assert_non_null(strstr(world.members[r].sentence, "rank 2"));
                /* When rank 2 goes, another member may still wait for a third member's part of the step before. */
                CHECK_IN_RANGE(world.members[r].steps_done, 0, 1);
                assert_int_equal(world.members[r].again, GW_ERR_PEER);
            }
            world_end(&world);
        }
    }
}

/* No member waits until its timeout. No member is disturbed while it ends the step before. */
TEST(a_member_that_leaves_is_named)
{
    static const char *const some[] = {"none", "ternary"};
    for (int s = 0; s < 2; s++)
        for (uint32_t step = 0; step < 3; step++) {
            struct world world = {.spec = some[s],
                                  .n = 4,
                                  .sizes = mixed_sizes,
                                  .n_tensors = N_MIXED,
                                  .n_steps = 4,
                                  .seed = 6 + step,
                                  .dawdle = step == 1,
                                  .timeout_ms = 1000000,
                                  .quitter = 2,
                                  .quits_step = step,
                                  .quits = QUIT_LEAVE};
            world_run(&world);
            for (uint32_t r = 0; r < world.n; r++) {
                const struct member *member = &world.members[r];
                const gw_status want = r == 2 ? GW_OK : GW_ERR_PEER;
                CHECK(member->steps_done == step && member->status == want, "rank %u, step %u: %d after %u steps: %s",
                      r, step, member->status, member->steps_done, member->sentence);
                if (r != 2)
                    CHECK(member->again == GW_ERR_PEER && strstr(member->sentence, "rank 2 has ended its exchange"),
                          "rank %u: %s", r, member->sentence);
            }
            world_end(&world);
        }
}

/* If nothing is sent, a member may be steps ahead when it leaves. */
TEST(members_with_nothing_to_send_may_leave_early)
{
    static const uint64_t sizes[] = {0, 0};
    struct world world = {.spec = "none",
                          .n = 3,
                          .sizes = sizes,
                          .n_tensors = 2,
                          .n_steps = 4,
                          .leaves = true,
                          .quits_step = 1,
                          .late_us = 100000};
    world_run(&world);
    world_check_ok(&world);
    world_check_averages(&world);
    world_end(&world);
}

static const uint32_t machines_3[] = {0, 1, 1}, one_group[N_MIXED];

TEST(a_silent_member_is_named)
{
    static const struct {
        const char *spec;
        uint32_t quitter, after;
        const uint32_t *group_of;
        long late_us;
        const uint32_t *machine_of;
    } cases[] = {
        {"none", 2, 0, NULL, 0, NULL}, /* the others wait for rank 2's gradients */
        /* If rank 2 is a run's relay, it waits for rank 1's gradients, and rank 0 waits for rank 2. Else both wait for
         * rank 1. */
        {"none", 1, 0, NULL, 0, machines_3},
        {"none", 2, 0, NULL, 0, machines_3},
        {"ternary", 2, 3, NULL, 0, machines_3},
        {"ternary", 1, 4, NULL, 0, NULL}, /* the others wait for rank 1's statistics */
        {"ternary", 1, 0, one_group,
         /* rank 2 waits for the coordinator long before the coordinator waits for rank 1 */
         400000, NULL},
        {"ternary", 0, 0, one_group, 0, NULL}, /* rank 0 is the only coordinator */
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct world world = {.spec = cases[c].spec,
                              .n = 3,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = 2,
                              .seed = 6,
                              .quitter = cases[c].quitter,
                              .quits_step = 1,
                              .quits_after = cases[c].after,
                              .quits = QUIT_SILENT,
                              .group_of = cases[c].group_of,
                              .machine_of = cases[c].machine_of,
                              .timeout_ms = 2000,
                              .late_us = cases[c].late_us};
        char name[32];
        snprintf(name, sizeof name, "rank %u", cases[c].quitter);
        world_run(&world);
        for (uint32_t r = 0; r < world.n; r++) {
            const struct member *member = &world.members[r];
            assert_true(member->status == GW_ERR_PEER || (member->status == GW_ERR_TIMEOUT && r != world.quitter));
            if (r != world.quitter)
                assert_non_null(strstr(member->sentence, name));
            if (member->status == GW_ERR_TIMEOUT) { /* the caller puts the step before it */
                assert_non_null(strstr(member->sentence, "of group "));
                assert_null(strstr(member->sentence, "step"));
                snprintf(name, sizeof name, "rank %u within", cases[c].quitter); /* and nobody beside it */
                assert_non_null(strstr(member->sentence, name));
            }
        }
        world_end(&world);
    }
}

/* Rank 1 falls silent after it has sent its averages to rank 2, and before those to rank 0. So rank 2 begins the next
 * step, and rank 0 cannot. Rank 2 waits for both, and must not take rank 0 for silent. */
TEST(a_chain_of_waits_names_its_end)
{
    static const char *const some[] = {"none", "ternary"};
    for (size_t i = 0; i < 2; i++) {
        struct world world = {.spec = some[i],
                              .n = 3,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = 3,
                              .seed = 6,
                              .quitter = 1,
                              .quits_step = 1,
                              .quits = QUIT_SILENT,
                              .drops_averages = true,
                              .timeout_ms = 2000};
        world_run(&world);
        assert_int_equal(world.members[0].steps_done, 0);
        assert_int_equal(world.members[2].steps_done, 1);
        for (uint32_t r = 0; r < 3; r += 2) {
            const struct member *m = &world.members[r];
            CHECK(strstr(m->sentence, " came from rank 1 within 2000 ms"), "rank %u: %s", r, m->sentence);
        }
        world_end(&world);
    }
}

/* Members that begin different steps say so. */
TEST(different_steps_are_an_error)
{
    struct world world = {.spec = "ternary",
                          .n = 3,
                          .sizes = mixed_sizes,
                          .n_tensors = N_MIXED,
                          .n_steps = 2,
                          .seed = 6,
                          .quitter = 1,
                          .quits_step = 1,
                          .quits = QUIT_WRONG_STEP};
    world_run(&world);
    bool said = false;
    for (uint32_t r = 0; r < world.n; r++) {
        assert_true(world.members[r].status < 0);
        said = said || (world.members[r].status == GW_ERR_ORDER && strstr(world.members[r].sentence, "step 1001"));
    }
    assert_true(said);
    world_end(&world);
}

/* ---- a message that was altered ------------------------------------------------------------------------- */

/* One message is altered, in each turn another one. Each member must end with a status. If all go on, they must agree.
 */
TEST(an_altered_message_does_no_harm)
{
    static const uint64_t sizes[] = {20000, 300};
    static const char *const some[] = {"none", "ternary", "ternary:bucket=1024,share=off"};
    uint32_t refused = 0, turns = 0;
    for (uint64_t seed = 0; seed < 40; seed++) {
        for (size_t s = 0; s < sizeof some / sizeof some[0]; s++, turns++) {
            struct world world = {.spec = some[s],
                                  .n = 3,
                                  .sizes = sizes,
                                  .n_tensors = 2,
                                  .n_steps = 2,
                                  .seed = 6,
                                  .order_seed = 1000 * s + seed,
                                  .spoils_at = 1 + (uint32_t)seed % 10,
                                  .timeout_ms = 400};
            world_run(&world);
            bool ended = false;
            for (uint32_t r = 0; r < world.n; r++)
                ended = ended || world.members[r].status < 0;
            for (uint32_t r = 1; r < world.n && !ended; r++)
                assert_int_equal(world.members[r].hash[1], world.members[0].hash[1]);
            refused += ended;
            world_end(&world);
        }
    }
    assert_true(refused > turns / 2);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

TEST(every_allocation_may_fail)
{
    static const uint64_t sizes[] = {20000, 300};
    static const char *const some[] = {"none", "ternary", "ternary:bucket=1024,share=off"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        for (uint32_t victim = 0; victim < 2; victim++) {
            bool survived = false;
            for (long k = 1; !survived; k++) {
                struct world world = {.spec = some[s],
                                      .n = 3,
                                      .sizes = sizes,
                                      .n_tensors = 2,
                                      .n_steps = 1,
                                      .seed = 6,
                                      .account = true,
                                      .machine_of = victim ? machines_3 : NULL,
                                      .victim = victim,
                                      .fails_at = k};
                world_run(&world);
                survived = atomic_load(&world.members[victim].failing.left) > 0;
                for (uint32_t r = 0; r < world.n; r++) {
                    const struct member *member = &world.members[r];
                    if (survived)
                        assert_int_equal(member->status, GW_OK);
                    else if (r == victim && member->steps_done == 0) /* else it was its farewell */
                        assert_int_equal(member->status, GW_ERR_MEMORY);
                    else
                        assert_true(member->status == GW_OK || member->status == GW_ERR_PEER);
                }
                world_end(&world); /* asserts that nothing leaks */
                assert_true(k < 2000);
            }
        }
    }
}

static void *state_now(const gw_exchange *ex, size_t *n_bytes)
{
    assert_int_equal(gw_exchange_save(ex, NULL, 0, n_bytes), GW_OK);
    void *state = malloc(*n_bytes);
    assert_int_equal(gw_exchange_save(ex, state, *n_bytes, n_bytes), GW_OK);
    return state;
}

static void is_still(const gw_exchange *ex, const void *state)
{
    size_t n_bytes;
    void *now = state_now(ex, &n_bytes);
    assert_memory_equal(now, state, n_bytes);
    free(now);
}

/* The first tensor's part is as it was saved, so it must not stay loaded when the last tensor's is refused. */
TEST(a_refused_state_changes_nothing)
{
    struct failing failing = {0};
    gw_context *context = world_context_of(&failing);
    gw_link link;
    gw_codec *codec;
    gw_exchange *ex;
    const gw_tensor tensors[2] = {{.name = "a", .id = 0, .n_elems = 5}, {.name = "b", .id = 1, .n_elems = 3}};
    void *states[3];
    size_t n_bytes;
    assert_int_equal(gw_link_open(context, "local:", NULL, 1, &link), GW_OK);
    assert_int_equal(gw_codec_parse(context, "topk:ratio=0.3", &codec), GW_OK);
    const gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = tensors, .n_tensors = 2, .link = link};
    assert_int_equal(gw_exchange_create(context, &options, &ex), GW_OK);
    for (uint32_t step = 0; step < 2; step++) {
        float a[5] = {1, 2, 3, 4, 5}, b[3] = {1, 2, 3}, *gradients[2] = {a, b};
        assert_int_equal(gw_exchange_begin(ex, step), GW_OK);
        assert_int_equal(gw_exchange_submit_many(ex, 2, (uint32_t[]){0, 1}, gradients), GW_OK);
        assert_int_equal(gw_exchange_wait(ex, NULL), GW_OK);
        states[step] = state_now(ex, &n_bytes);
    }
    assert_memory_not_equal(states[0], states[1], n_bytes);
    states[2] = memcpy(malloc(n_bytes), states[0], n_bytes);
    ((char *)states[2])[n_bytes - 1] ^= 1;
    const void *const altered[2] = {states[2], states[2]}, *const first[2] = {states[0], states[2]};
    const void *const good[2] = {states[0], states[0]};
    assert_int_equal(gw_exchange_load(ex, altered, 1, n_bytes), GW_ERR_ARGUMENT);
    is_still(ex, states[1]);
    assert_int_equal(gw_exchange_load(ex, first, 2, n_bytes), GW_ERR_ARGUMENT);
    is_still(ex, states[1]);
    for (uint32_t n_states = 1; n_states <= 2; n_states++) {
        gw_status status = GW_ERR_MEMORY;
        for (long k = 1; status == GW_ERR_MEMORY; k++) {
            is_still(ex, states[n_states == 1]);
            atomic_store(&failing.left, k);
            status = gw_exchange_load(ex, good, n_states, n_bytes);
            if (atomic_exchange(&failing.left, 0) <= 0)
                assert_int_equal(status, GW_ERR_MEMORY);
        }
        assert_int_equal(status, GW_OK);
    }
    for (int i = 0; i < 3; i++)
        free(states[i]);
    gw_exchange_destroy(ex);
    gw_codec_destroy(codec);
    gw_link_destroy(&link);
    gw_context_destroy(context);
    assert_int_equal(atomic_load(&world_live), 0);
}

static bool exchange_forked(void *argument)
{
    gw_exchange *ex = argument;
    const char *const object = "this exchange";
    float gradient[1] = {1}, *values[1] = {gradient};
    uint64_t state[1] = {0};
    size_t n_bytes;
    const void *const states[1] = {state};
    gw_wire_report wire;
    const gw_status refused[] = {
        gw_exchange_begin(ex, 0),
        gw_exchange_submit(ex, 0, gradient),
        gw_exchange_wait(ex, NULL),
        gw_exchange_leave(ex),
        gw_exchange_init_parameters(ex, values),
        gw_exchange_pull_parameters(ex, values),
        gw_exchange_set(ex, GW_EXCHANGE_RATE, 1),
        gw_exchange_save(ex, state, sizeof state, &n_bytes),
        gw_exchange_load(ex, states, 1, 0),
        gw_exchange_set(ex, GW_EXCHANGE_RESCALE, 2),
        gw_exchange_stats(ex, &(gw_stats){.wire = &wire}),
        gw_exchange_set(ex, GW_EXCHANGE_WIRE, GW_WIRE_FAST),
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!is_of_another_process(refused[i], object)) /* all calls leave the same sentence */
            return false;
    gw_exchange_destroy(ex);
    return true;
}

/* In a forked process the exchange refuses every call, and its end does nothing. The process that forked goes on. */
TEST(an_exchange_belongs_to_its_process)
{
    gw_link links[2];
    gw_codec *codec;
    gw_exchange *members[2];
    const gw_tensor tensor = {.name = "one", .n_elems = 1};
    float gradients[2] = {1, 3};
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    for (int r = 0; r < 2; r++) {
        const gw_exchange_options options = {
            .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[r]};
        assert_int_equal(gw_exchange_create(NULL, &options, &members[r]), GW_OK);
        assert_int_equal(gw_exchange_begin(members[r], 0), GW_OK);
        assert_int_equal(gw_exchange_submit(members[r], 0, &gradients[r]), GW_OK);
    }
    expect_in_a_fork(exchange_forked, members[0]);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(gw_exchange_wait(members[r], NULL), GW_OK);
        assert_true(gradients[r] == 2);
    }
    for (int r = 0; r < 2; r++) {
        gw_exchange_destroy(members[r]);
        gw_link_destroy(&links[r]);
    }
    gw_codec_destroy(codec);
}

RUN_TESTS("exchange's end", NULL, NULL)
