/* Tests the wire choice in the exchange: it changes bytes and no result, also where it changes from step to step and
 * differs between members; and the others follow rank 0. */
#include "exchange_world.h"

static const uint64_t sizes[] = {5000, 0, 1, 70001, 1024};
#define N_TENSORS (sizeof sizes / sizeof *sizes)
static const uint32_t two_machines[] = {0, 1, 1, 0};

static struct world world_of(const char *spec, gw_wire wire, enum flips flips)
{
    return (struct world){.spec = spec,
                          .n = 4,
                          .sizes = sizes,
                          .n_tensors = N_TENSORS,
                          .n_steps = 4,
                          .seed = 11,
                          .timeout_ms = 20000,
                          .wire = wire,
                          .flips = flips};
}

/* The averages are compared with those of small frames. */
TEST(no_result_depends_on_it)
{
    static const struct {
        gw_wire wire;
        enum flips flips;
    } ways[] = {{GW_WIRE_FAST, FLIP_NOBODY}, {GW_WIRE_AUTO, FLIP_LEADER}, {GW_WIRE_AUTO, FLIP_ALL}};
    for (size_t s = 0; example(s); s++)
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
            for (int machines = 0; machines < 2; machines++) {
                struct world w = world_of(example(s), ways[i].wire, ways[i].flips);
                w.machine_of = machines ? two_machines : NULL;
                w.chaos = true;
                world_run(&w);
                world_check_ok(&w);
                world_check_averages(&w);
                world_end(&w);
            }
}

/* Rank 0 changes its choice in every step; a member that follows has in a step the choice that rank 0 had in the step
 * before. */
TEST(the_others_follow_rank_0)
{
    static const char *const specs[] = {"ternary", "ternary:share=off", "ternary:code=mask,min=100",
                                        "ternary:pull=packed"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++)
        for (int machines = 0; machines < 2; machines++) {
            /* Its choice stays through step 1, which no average tells of. */
            static const struct poison poison = {1, 2, 3, 70000};
            struct world w = world_of(specs[s], GW_WIRE_AUTO, FLIP_LEADER);
            w.machine_of = machines ? two_machines : NULL;
            w.poisons = &poison, w.n_poisons = machines;
            w.group_of = (const uint32_t[N_TENSORS]){0};
            world_run(&w);
            for (uint32_t r = 0; r < w.n; r++) {
                assert_int_equal(w.members[r].status, GW_OK);
                gw_wire before = GW_WIRE_SMALL;
                for (uint32_t step = 0; step < w.n_steps; step++) {
                    gw_wire leader = step % 2 ? GW_WIRE_SMALL : GW_WIRE_FAST;
                    assert_int_equal(w.members[r].results[step].wire, r ? before : leader);
                    before = machines && step == 1 ? before : leader;
                }
                assert_int_equal(w.members[r].wire.asked, r ? GW_WIRE_AUTO : GW_WIRE_SMALL);
                assert_true(w.members[r].wire.has_choice && !w.members[r].wire.compares);
            }
            world_end(&w);
        }
}

/* Up and down of all members in the last step. */
static void count_bytes(const char *spec, gw_wire wire, uint64_t *up, uint64_t *down)
{
    struct world w = world_of(spec, wire, FLIP_NOBODY);
    *up = *down = 0;
    world_run(&w);
    world_check_ok(&w);
    for (uint32_t r = 0; r < w.n; r++) {
        *up += w.members[r].results[w.n_steps - 1].bytes_up;
        *down += w.members[r].results[w.n_steps - 1].bytes_down;
    }
    world_end(&w);
}

TEST(named_codes_are_respected)
{
    static const struct {
        const char *spec;
        bool up, down; /* there is a choice */
    } cases[] = {{"none", false, false},
                 {"ternary", true, true},
                 {"ternary:code=mask", false, true},
                 {"ternary:pull=packed", true, false},
                 {"ternary:code=2bit,pull=packed", false, false},
                 {"ternary:share=off", true, false},
                 {"topk:ratio=0.05", true, true},
                 {"topk:ratio=0.05,value=bf16", true, true},
                 {"uniform:density=0.05", true, true},
                 {"gspar:eps=0.5", true, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t up[2], down[2];
        count_bytes(cases[i].spec, GW_WIRE_SMALL, &up[0], &down[0]);
        count_bytes(cases[i].spec, GW_WIRE_FAST, &up[1], &down[1]);
        assert_true(cases[i].up ? up[0] < up[1] : up[0] == up[1]);
        assert_true(cases[i].down ? down[0] < down[1] : down[0] == down[1]);
    }
}

TEST(automatic_compares_both)
{
    struct world w = world_of("ternary", GW_WIRE_AUTO, FLIP_NOBODY);
    bool seen[3] = {false};
    w.n_steps = WORLD_MAX_STEPS;
    world_run(&w);
    world_check_ok(&w);
    world_check_averages(&w);
    for (uint32_t step = 0; step < w.n_steps; step++)
        seen[w.members[0].results[step].wire] = true;
    assert_true(seen[GW_WIRE_SMALL] && seen[GW_WIRE_FAST] && !seen[GW_WIRE_AUTO]);
    for (uint32_t r = 0; r < w.n; r++) {
        const gw_wire_report *report = &w.members[r].wire;
        assert_true(report->asked == GW_WIRE_AUTO && report->has_choice && report->compares == (r == 0));
        assert_int_equal(report->n_comparisons, r == 0);
        assert_true((report->small_seconds > 0 && report->fast_seconds > 0) == (r == 0));
        assert_int_equal(report->stands, r                            ? w.members[r].results[w.n_steps - 1].wire
                                         : report->n_changes % 2 == 1 ? GW_WIRE_FAST
                                                                      : GW_WIRE_SMALL);
    }
    world_end(&w);

    static const char *const without[] = {"none", "bf16", "ternary:code=mask,pull=packed"};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        w = world_of(without[i], GW_WIRE_AUTO, FLIP_NOBODY);
        world_run(&w);
        world_check_ok(&w);
        assert_false(w.members[0].wire.has_choice || w.members[0].wire.compares);
        assert_int_equal(w.members[0].wire.stands, GW_WIRE_SMALL);
        world_end(&w);
    }
    w = world_of("ternary", GW_WIRE_FAST, FLIP_NOBODY);
    w.n = 1;
    world_run(&w);
    assert_false(w.members[0].wire.has_choice);
    assert_int_equal(w.members[0].results[0].wire, GW_WIRE_SMALL);
    world_end(&w);
}

/* Which of the two times is whose. No step is made. */
TEST(the_report_has_what_was_compared)
{
    gw_context *context = world_context();
    gw_codec *codec;
    gw_link links[2];
    gw_exchange *ex;
    gw_wire_report report;
    const gw_tensor tensor = {.n_elems = 4};
    assert_int_equal(gw_codec_parse(context, "ternary", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(context, 2, links), GW_OK);
    const gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[0]};
    assert_int_equal(gw_exchange_create(context, &options, &ex), GW_OK);
    ex->chooser.compared[false] = 3, ex->chooser.compared[true] = 2;
    ex->chooser.n_probes = 5, ex->chooser.n_changes = 1, ex->chooser.fast = true;
    assert_int_equal(gw_exchange_stats(ex, &(gw_stats){.wire = &report}), GW_OK);
    assert_true(report.compares && report.small_seconds == 3 && report.fast_seconds == 2);
    assert_true(report.n_comparisons == 5 && report.n_changes == 1 && report.stands == GW_WIRE_FAST);
    gw_exchange_destroy(ex);
    for (int r = 0; r < 2; r++)
        gw_link_destroy(&links[r]);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
}

TEST(wrong_calls_are_refused)
{
    gw_context *context = world_context();
    gw_codec *codec;
    gw_link link;
    gw_exchange *ex;
    gw_wire_report report;
    float gradient[4] = {1, 2, 3, 4};
    const gw_tensor tensor = {.n_elems = 4};
    assert_int_equal(gw_codec_parse(context, "ternary", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(context, 1, &link), GW_OK);
    gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = link, .wire = 3};
    assert_int_equal(gw_exchange_create(context, &options, &ex), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "gw_exchange_options.wire is 3"));
    options.wire = GW_WIRE_AUTO;
    assert_int_equal(gw_exchange_create(context, &options, &ex), GW_OK);
    assert_int_equal(gw_exchange_set(NULL, GW_EXCHANGE_WIRE, GW_WIRE_FAST), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_set(ex, GW_EXCHANGE_WIRE, 3), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_set(ex, GW_EXCHANGE_WIRE, 0.5), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_set(ex, GW_EXCHANGE_ACCOUNT, 2), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_set(ex, (gw_exchange_setting)4, 0), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_stats(ex, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_stats(NULL, &(gw_stats){.wire = &report}), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_begin(ex, 0), GW_OK);
    assert_int_equal(gw_exchange_set(ex, GW_EXCHANGE_WIRE, GW_WIRE_FAST), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_submit(ex, 0, gradient), GW_OK);
    assert_int_equal(gw_exchange_wait(ex, NULL), GW_OK);
    assert_int_equal(gw_exchange_set(ex, GW_EXCHANGE_WIRE, GW_WIRE_FAST), GW_OK);
    gw_exchange_destroy(ex);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
}

RUN_TESTS("wire choice", NULL, NULL)
