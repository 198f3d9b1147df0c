/* Tests the exchange over the local link against the codec's own functions on whole tensors, in any order of
 * submission and arrival and with any grouping. Also: gradients that are not finite. */
#include "codec/state.h"
#include "base/clock.h"
#include "exchange_world.h"

#include <sched.h>

/* ---- results ----------------------------------------------------------------------------------------- */

TEST(averages_equal_the_codecs_own)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 7};
    static const uint32_t *const groupings[] = {NULL, one_group, three_groups};
    uint32_t turn = 0;
    for (size_t s = 0; example(s); s++) {
        for (size_t n = 0; n < sizeof sizes / sizeof sizes[0]; n++, turn++) {
            struct world world = {.spec = example(s),
                                  .n = sizes[n],
                                  .sizes = mixed_sizes,
                                  .n_tensors = N_MIXED,
                                  .n_steps = 3,
                                  .group_of = groupings[turn % 3],
                                  .seed = 77 + turn,
                                  .slice_max = turn % 3 == 1 ? 4096 : 0,
                                  .send_all = turn % 5 > 2,
                                  .shuffle = turn % 2,
                                  .chaos = turn % 4 == 3};
            world_run(&world);
            world_check_ok(&world);
            world_check_averages(&world);
            world_end(&world);
        }
    }
}

/* The reference above rests on gw_reduce; this one on nothing. */
TEST(floats_are_the_mean)
{
    struct world world = {.spec = "none", .n = 3, .sizes = mixed_sizes, .n_tensors = N_MIXED, .n_steps = 1, .seed = 5};
    world_run(&world);
    world_check_ok(&world);
    for (uint32_t t = 0; t < world.n_tensors; t++) {
        for (uint64_t i = 0; i < world.sizes[t]; i++) {
            double mean = 0;
            for (uint32_t r = 0; r < world.n; r++)
                mean += world_gradient(&world, r, 0, t, i) / 3.0;
            assert_true(fabs(world.members[0].average[0][t][i] - mean) <= 1e-6 * (1 + fabs(mean)));
        }
    }
    world_end(&world);
}

/* Same bits in every order of submission and arrival and with every grouping, with members that dawdle. */
TEST(bits_do_not_depend_on_order_or_groups)
{
    static const uint32_t *const groupings[] = {NULL, one_group, three_groups};
    for (uint32_t turn = 0; turn < 12; turn++) {
        struct world world = {.spec = turn / 3 % 2 ? "ternary" : "topk:ratio=0.05,refresh=3,over=0,scope=global",
                              .n = 4,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = 4,
                              .group_of = groupings[turn % 3],
                              .seed = 11,
                              .slice_max = turn / 6 % 2 ? 5000 : 0,
                              .send_all = turn % 5 > 2,
                              .order_seed = turn,
                              .shuffle = true,
                              .dawdle = true,
                              .chaos = turn % 2};
        world_run(&world);
        world_check_ok(&world);
        world_check_averages(&world);
        world_end(&world);
    }
}

static const uint32_t machines_4[] = {0, 0, 1, 0}, machines_6[] = {5, 9, 5, 9, 9, 5},
                      machines_7[] = {1, 2, 3, 3, 1, 3, 3}, one_machine[] = {0, 0, 0, 0, 0, 0, 0};

/* What goes by way of relays gives the same bits: sums of integers, unsummed floats, and both in one run. */
TEST(machines_change_nothing)
{
    static const uint32_t *const groupings[] = {NULL, one_group, three_groups};
    static const uint32_t sizes[] = {4, 6, 7, 4}, *const machines[] = {machines_4, machines_6, machines_7, one_machine};
    uint32_t turn = 0;
    for (size_t s = 0; example(s); s++) {
        for (size_t n = s % 2; n < 4; n += 2, turn++) { /* its neighbour meets the others */
            struct world world = {.spec = example(s),
                                  .n = sizes[n],
                                  .sizes = mixed_sizes,
                                  .n_tensors = N_MIXED,
                                  .n_steps = 2,
                                  .group_of = groupings[turn % 3],
                                  .machine_of = machines[n],
                                  .slice_max = turn % 5 ? 4096 : 0,
                                  .send_all = turn % 2,
                                  .seed = 177 + turn,
                                  .shuffle = true,
                                  .chaos = turn % 4 == 1};
            world_run(&world);
            world_check_ok(&world);
            world_check_averages(&world);
            for (uint32_t r = 0; r < world.n;
                 r++) { /* all that crosses does so between machines, or stays within the one */
                const gw_step_result *result = &world.members[r].results[1];
                assert_true(result->bytes_between_machines_up <= result->bytes_up);
                assert_true(result->bytes_between_machines_down <= result->bytes_down);
                assert_true(n < 3 || result->bytes_between_machines_up + result->bytes_between_machines_down == 0);
            }
            world_end(&world);
        }
    }
}

/* Bytes of one step between machines: two of three workers each, or six of one. The exchange's options say so, or the
 * link, or neither. */
enum said { BY_NOBODY, BY_OPTIONS, BY_LINK };

static uint64_t bytes_between(const char *spec, enum said machines)
{
    static const uint64_t sizes[] = {600000};
    static const uint32_t two[] = {0, 0, 0, 3, 3, 3};
    uint64_t bytes = 0;
    struct world world = {.spec = spec,
                          .n = 6,
                          .sizes = sizes,
                          .n_tensors = 1,
                          .n_steps = 1,
                          .machine_of = machines == BY_OPTIONS ? two : NULL,
                          .link_machines = machines == BY_LINK ? two : NULL,
                          .seed = 5};
    world_run(&world);
    world_check_ok(&world);
    for (uint32_t r = 0; r < 6; r++)
        bytes += world.members[r].results[0].bytes_between_machines_up +
                 world.members[r].results[0].bytes_between_machines_down;
    world_end(&world);
    return bytes;
}

TEST(machines_save_bytes)
{
    /* If the options do not name machines, five pushes of each element and five averages cross. With two machines three
     * pushes do, or the sum of three, and one average. */
    double floats = (double)bytes_between("none", BY_OPTIONS) / (double)bytes_between("none", BY_NOBODY);
    double ternary = (double)bytes_between("ternary", BY_OPTIONS) / (double)bytes_between("ternary", BY_NOBODY);
    assert_int_equal(bytes_between("ternary", BY_LINK), bytes_between("ternary", BY_OPTIONS));
    assert_true(floats > 0.39 && floats < 0.41); /* (3 + 1) / (5 + 5) */
    assert_true(ternary < 0.25);
}

/* A link that knows of one machine changes nothing. */
TEST(links_machines_are_taken_if_that_saves)
{
    static const uint32_t one[] = {0, 0, 0}, two[] = {0, 1, 1};
    const gw_link links[] = {{.size = 3}, {.size = 3, .machine_of = one}, {.size = 3, .machine_of = two}};
    for (int i = 0; i < 2; i++)
        assert_null(gw_layout_machines(&links[i]));
    assert_ptr_equal(gw_layout_machines(&links[2]), two);
}

/* Parts of owners longer than the format's longest slice. */
TEST(large_tensors_are_cut)
{
    static const uint64_t sizes[] = {300, (5u << 20) / 2 + 77}; /* for two owners */
    static const char *const some[] = {"none", "ternary:bucket=3000"};
    for (int s = 0; s < 2; s++) {
        struct world world = {.spec = some[s], .n = 2, .sizes = sizes, .n_tensors = 2, .n_steps = 1, .seed = 21};
        world_run(&world);
        world_check_ok(&world);
        world_check_averages(&world);
        assert_true(atomic_load(&world.largest) < (4u << 20) + 1024 &&
                    atomic_load(&world.largest) > (s ? 100000 : 4000000));
        world_end(&world);
    }
}

/* Runs are encoded owner by owner, from the owner after this member on. */
TEST(owners_have_work_early)
{
    gw_link links[3];
    gw_codec *codec;
    gw_exchange *ex;
    gw_tensor tensor = {.id = 0, .n_elems = 3 * 20480 + 9000};
    static const uint32_t owners[] = {2, 0, 1, 2, 0, 1, 2, 0, 1};
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 3, links), GW_OK);
    gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[1]};
    assert_int_equal(gw_exchange_create_as(NULL, &options, 8192, false, &ex), GW_OK);
    const struct group *group = &ex->groups[0];
    assert_int_equal(group->n_runs, 9);
    for (uint32_t i = 0; i < group->n_runs; i++) {
        assert_int_equal(group->runs[group->order[i]].owner, owners[i]);
        assert_true(i < 3 || group->order[i] == group->order[i - 3] + 1);
    }
    gw_exchange_destroy(ex);
    for (int r = 0; r < 3; r++)
        gw_link_destroy(&links[r]);
    gw_codec_destroy(codec);
}

/* A short tensor has one owner, the member that the program names. That member also leads the group. */
TEST(the_first_owner_is_the_one_that_is_named)
{
    gw_link links[3];
    gw_codec *codec;
    gw_exchange *ex;
    gw_tensor tensor = {.id = 0, .n_elems = 100};
    assert_int_equal(gw_codec_parse(NULL, "ternary", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 3, links), GW_OK);
    gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[1]};
    for (options.first_owner = 0; options.first_owner < 3; options.first_owner++) {
        assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_OK);
        assert_int_equal(ex->groups[0].n_runs, 1);
        assert_int_equal(ex->groups[0].runs[0].owner, options.first_owner);
        assert_int_equal(ex->groups[0].coordinator, options.first_owner);
        gw_exchange_destroy(ex);
    }
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_ERR_ARGUMENT);
    for (int r = 0; r < 3; r++)
        gw_link_destroy(&links[r]);
    gw_codec_destroy(codec);
}

/* Messages carry 16 bits of the count of steps: it goes on past them, also where a member is one step ahead. */
TEST(steps_are_counted_past_16_bits)
{
    gw_link links[2];
    gw_codec *codec;
    gw_exchange *ex[2];
    gw_tensor tensor = {.id = 0, .n_elems = 3};
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    for (int r = 0; r < 2; r++) {
        gw_exchange_options options = {
            .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[r]};
        assert_int_equal(gw_exchange_create(NULL, &options, &ex[r]), GW_OK);
    }
    for (int r = 0; r < 2; r++)
        ex[r]->nth_step = UINT16_MAX - 3;
    for (uint32_t step = 0; step < 8; step++) {
        float gradients[2][3] = {{1, 2, 3}, {3, 4, (float)step}};
        for (int r = 1; r >= 0; r--) { /* rank 0 owns the tensor: what rank 1 pushes comes before it has begun */
            assert_int_equal(gw_exchange_begin(ex[r], step), GW_OK);
            assert_int_equal(gw_exchange_submit(ex[r], 0, gradients[r]), GW_OK);
            world_pause(1000); /* most likely it has arrived by then; right either way */
        }
        for (int r = 0; r < 2; r++) {
            assert_int_equal(gw_exchange_wait(ex[r], NULL), GW_OK);
            assert_true(gradients[r][0] == 2 && gradients[r][1] == 3 && gradients[r][2] == (3 + (float)step) / 2);
        }
    }
    for (int r = 0; r < 2; r++)
        gw_exchange_destroy(ex[r]);
    for (int r = 0; r < 2; r++)
        gw_link_destroy(&links[r]);
    gw_codec_destroy(codec);
}

TEST(many_members)
{
    static const uint64_t sizes[] = {500, 20, 25000, 50, 400000, 500, 5000, 10}; /* lenet */
    struct world world = {.spec = "ternary", .n = 64, .sizes = sizes, .n_tensors = 8, .n_steps = 2, .seed = 3};
    world_run(&world);
    world_check_ok(&world);
    world_check_averages(&world);
    world_end(&world);
}

TEST(nothing_but_empty_tensors)
{
    static const uint64_t sizes[] = {0, 0};
    static const char *const some[] = {"none", "ternary"};
    for (int s = 0; s < 2; s++) {
        struct world world = {.spec = some[s], .n = 3, .sizes = sizes, .n_tensors = 2, .n_steps = 3};
        world_run(&world);
        world_check_ok(&world);
        world_end(&world);
    }
}

/* ---- not finite -------------------------------------------------------------------------------------- */

TEST(a_step_with_nan_is_dropped_by_all)
{
    static const struct poison poisons[] = {{1, 2, 5, 60000}, {1, 1, 5, 3}, {1, 0, 6, 0}, {3, 3, 2, 0}};
    for (size_t s = 0; example(s); s++) {
        for (int grouped = 0; grouped < 2; grouped++) {
            struct world world = {.spec = example(s),
                                  .n = 4,
                                  .sizes = mixed_sizes,
                                  .n_tensors = N_MIXED,
                                  .n_steps = 5,
                                  .seed = 8,
                                  .slice_max = grouped ? 0 : 4096,
                                  .machine_of = (grouped + s) % 2 ? machines_4 : NULL,
                                  .group_of = grouped ? three_groups : NULL,
                                  .poisons = poisons,
                                  .n_poisons = 4,
                                  .shuffle = true};
            world_run(&world);
            for (uint32_t r = 0; r < world.n; r++) {
                assert_int_equal(world.members[r].status, GW_OK);
                for (uint32_t step = 0; step < world.n_steps; step++)
                    assert_int_equal(world.members[r].results[step].committed, step != 1 && step != 3);
                /* The lowest tensor first, then the lowest rank. */
                assert_int_equal(world.members[r].results[1].bad_tensor, 5);
                assert_int_equal(world.members[r].results[1].bad_rank, 1);
                assert_int_equal(world.members[r].results[3].bad_tensor, 2);
                assert_int_equal(world.members[r].results[3].bad_rank, 3);
            }
            world_check_averages(&world);
            world_end(&world);
        }
    }
}

/* ---- accounts ---------------------------------------------------------------------------------------- */

TEST(bytes_are_what_crossed)
{
    static const char *const some[] = {"none", "ternary", "ternary:share=off"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        for (int account = 0; account < 2; account++) {
            struct world world = {.spec = some[s],
                                  .n = 3,
                                  .sizes = mixed_sizes,
                                  .n_tensors = N_MIXED,
                                  .n_steps = 3,
                                  .seed = 2,
                                  .slice_max = account ? 2048 : 0,
                                  .send_all = account,
                                  .machine_of = account ? machines_4 : NULL,
                                  .account = account};
            world_run(&world);
            world_check_ok(&world);
            uint64_t counted = 0, dense = 0, elements = 0;
            for (uint32_t r = 0; r < world.n; r++) {
                for (uint32_t step = 0; step < world.n_steps; step++) {
                    const gw_step_result *result = &world.members[r].results[step];
                    counted += result->bytes_up + result->bytes_down;
                    dense += result->dense_bytes;
                    elements += result->elements;
                    assert_true(account ? result->nonzeros > 0 : result->nonzeros == 0);
                    assert_true(result->bound_gap > 1);
                    assert_true(result->encode_seconds >= 0 && result->wait_seconds >= 0);
                }
            }
            uint64_t all = 0;
            for (uint32_t t = 0; t < world.n_tensors; t++)
                all += world.sizes[t];
            assert_int_equal(counted, atomic_load(&world.crossed));
            /* Every element has one owner, and N - 1 others send it there. */
            assert_int_equal(dense, 4 * all * (world.n - 1) * world.n_steps);
            assert_int_equal(elements, account ? all * world.n * world.n_steps : 0);
            for (uint32_t r = 0; r < world.n && account; r++) {
                uint64_t nonzeros = 0;
                for (uint32_t t = 0; t < world.n_tensors; t++) {
                    const gw_tensor_traffic *traffic = &world.members[r].traffic[t];
                    assert_int_equal(traffic->elements, world.sizes[t]);
                    nonzeros += traffic->nonzeros;
                    if (!traffic->elements)
                        continue;
                    assert_true(traffic->push_frame_bytes > traffic->push_payload_bytes);
                    assert_true(traffic->pull_frame_bytes > traffic->pull_payload_bytes);
                    assert_true(traffic->push_payload_bytes * 8.0 >=
                                traffic->push_entropy_bits * 0.99 * (double)traffic->elements);
                    assert_true(traffic->elements < 10000 || s == 0 || traffic->push_entropy_bits > 0.1);
                    assert_true(traffic->elements < 10000 || s != 1 || traffic->pull_entropy_bits > 0.1);
                    if (s == 0)
                        assert_int_equal(traffic->push_payload_bytes, 4 * traffic->elements);
                }
                assert_int_equal(nonzeros, world.members[r].results[2].nonzeros);
            }
            world_end(&world);
        }
    }
}

/* What one worker's frame of tensor t holds in step 0, and what its codec keeps then, by the codec's own functions. */
static double squares_of_a_frame(const struct world *w, uint32_t rank, uint32_t t, double *of_gradient,
                                 gw_encoder_condition *condition)
{
    uint64_t n = w->sizes[t];
    float *g = malloc((n + 1) * sizeof *g), *sent = malloc((n + 1) * sizeof *sent);
    gw_encoder *encoder;
    gw_draw draw = {.seed = w->seed, .rank = rank};
    assert_int_equal(gw_encoder_create(w->context, w->codec, &w->tensors[t], &encoder), GW_OK);
    size_t used, capacity = gw_encoder_bound(encoder, n);
    void *frame = malloc(capacity);
    world_fill(w, rank, 0, t, g);
    assert_int_equal(gw_encoder_measure_encode(encoder, g, NULL, &draw, frame, capacity, &used, NULL), GW_OK);
    assert_int_equal(gw_decode(w->context, frame, used, sent, n), GW_OK);
    assert_int_equal(gw_encoder_commit(encoder, true), GW_OK);
    gw_encoder_describe(encoder, condition);
    double sum = 0;
    *of_gradient = 0;
    for (uint64_t i = 0; i < n; i++) {
        sum += (double)sent[i] * (double)sent[i];
        *of_gradient += (double)g[i] * (double)g[i];
    }
    gw_encoder_destroy(encoder);
    free(frame);
    free(sent);
    free(g);
    return sum;
}

TEST(accounts_tell_what_frames_hold_and_codecs_keep)
{
    static const char *const some[] = {"none", "ternary:share=off", "gspar:eps=0.5",
                                       "topk:ratio=0.1,scope=layer,over=0"};
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        struct world world = {.spec = some[s],
                              .n = 3,
                              .sizes = mixed_sizes,
                              .n_tensors = N_MIXED,
                              .n_steps = 1,
                              .seed = 9,
                              .account = true};
        world_run(&world);
        world_check_ok(&world);
        for (uint32_t r = 0; r < world.n; r++) {
            for (uint32_t t = 0; t < world.n_tensors; t++) {
                const gw_tensor_traffic *got = &world.members[r].traffic[t];
                gw_encoder_condition condition;
                double gradient, sent = squares_of_a_frame(&world, r, t, &gradient, &condition);
                assert_true(fabs(got->push_squares - sent) <= 1e-12 * sent); /* they may be added in another order */
                assert_true(fabs(got->gradient_squares - gradient) <= 1e-12 * gradient);
                assert_memory_equal(&world.members[r].conditions[t], &condition, sizeof condition);
                if (world.sizes[t] >= 5000) {
                    assert_true(s == 0 ? sent == gradient : s == 3 ? sent < gradient : sent > gradient);
                    assert_true(s == 3 ? condition.residual_norm > 0 && condition.threshold_age == 1
                                       : condition.residual_norm == 0);
                }
            }
        }
        world_end(&world);
    }
}

/* ---- wrong use --------------------------------------------------------------------------------------- */

/* Moments of a group stand in their order, also if its tensors are handed over one by one, and are of this step. */
TEST(moments_stand_in_their_order)
{
    gw_link link;
    gw_codec *codec;
    assert_int_equal(gw_codec_parse(NULL, "ternary", &codec), GW_OK);
    const gw_tensor tensors[] = {{.id = 0, .n_elems = 70000}, {.id = 1, .n_elems = 3000}, {.id = 2, .n_elems = 1}};
    const uint32_t group_of[] = {1, 1, 0};
    static float gradients[3][70000];
    assert_int_equal(gw_link_local_create(NULL, 1, &link), GW_OK);
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = codec,
                                         .tensors = tensors,
                                         .n_tensors = 3,
                                         .group_of = group_of,
                                         .link = link,
                                         .timeout_ms = 60000};
    gw_exchange *ex;
    gw_group_moments m[2];
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_OK);
    for (uint32_t step = 0; step < 4; step++) {
        const bool bad = step == 2;
        gw_step_result result;
        const double begin = gw_clock_seconds();
        assert_int_equal(gw_exchange_begin(ex, step), GW_OK);
        assert_int_equal(gw_exchange_stats(ex, &(gw_stats){.group = 0, .moments = m}), GW_ERR_ORDER);
        for (uint32_t t = 3; t-- > 0;) {
            for (uint64_t i = 0; i < tensors[t].n_elems; i++)
                gradients[t][i] = bad ? NAN : (float)i - 100;
            assert_int_equal(gw_exchange_submit(ex, t, gradients[t]), GW_OK);
        }
        const gw_status status = gw_exchange_wait(ex, &result);
        const double took = gw_clock_seconds() - begin;
        assert_true(status == (bad ? GW_ERR_NONFINITE : GW_OK) && result.committed == !bad);
        assert_true(!bad ||
                    strstr(gw_last_error(), " on rank 0 holds a NaN or an infinity, so this step has no averages"));
        for (uint32_t g = 0; g < 2; g++) {
            assert_int_equal(gw_exchange_stats(ex, &(gw_stats){.group = g, .moments = &m[g]}), GW_OK);
            assert_true(m[g].ready > 0 && m[g].ready <= m[g].measured && m[g].measured <= m[g].arrived);
            assert_true(m[g].arrived <= took);
            if (bad)
                assert_true(m[g].encoding == 0 && m[g].pushed == 0);
            else
                assert_true(m[g].measured <= m[g].encoding && m[g].encoding <= m[g].pushed &&
                            m[g].pushed <= m[g].arrived);
        }
        assert_true(m[0].ready < m[1].ready);
    }
    assert_int_equal(gw_exchange_stats(ex, &(gw_stats){.group = 2, .moments = m}), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_stats(NULL, &(gw_stats){.group = 0, .moments = m}), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_stats(ex, NULL), GW_ERR_ARGUMENT);
    gw_exchange_destroy(ex);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
}

TEST(options_are_checked)
{
    gw_link link;
    gw_codec *codec;
    gw_exchange *ex;
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 1, &link), GW_OK);
    gw_tensor tensors[] = {{.id = 0, .n_elems = 5}, {.id = 1, .n_elems = 5}};
    uint32_t gap[] = {0, 2}, hole[] = {1, 1};
    const gw_exchange_options good = {
        .struct_bytes = sizeof good, .codec = codec, .tensors = tensors, .n_tensors = 2, .link = link};
    enum { N_BAD = 10 };
    gw_exchange_options bad[N_BAD];
    gw_link_ops deaf = *link.ops;
    for (int i = 0; i < N_BAD; i++)
        bad[i] = good;
    deaf.recv = NULL;
    gw_tensor swapped[] = {{.id = 1}, {.id = 0}};
    bad[0].struct_bytes--;
    bad[1].codec = NULL;
    bad[2].tensors = NULL;
    bad[3].n_tensors = 0;
    bad[4].tensors = swapped;
    bad[5].group_of = gap;
    bad[6].group_of = hole;
    bad[7].link.rank = 1;
    bad[8].link.ops = NULL;
    bad[9].link.ops = &deaf;
    for (int i = 0; i < N_BAD; i++) {
        ex = (gw_exchange *)&ex;
        assert_int_equal(gw_exchange_create(NULL, &bad[i], &ex), GW_ERR_ARGUMENT);
        assert_null(ex);
    }
    assert_int_equal(gw_exchange_create(NULL, NULL, &ex), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_create(NULL, &good, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_average_once(NULL, "none", &bad[9].link, 0, NULL, 0, NULL), GW_ERR_ARGUMENT);

    /* Wrong order is refused and does no harm. */
    float a[5] = {1, 2, 3, 4, 5}, b[5] = {0};
    gw_tensor_traffic traffic;
    gw_encoder_condition condition;
    assert_int_equal(gw_exchange_create(NULL, &good, &ex), GW_OK);
    assert_int_equal(gw_exchange_submit(ex, 0, a), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_wait(ex, NULL), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_begin(ex, 9), GW_OK);
    assert_int_equal(gw_exchange_begin(ex, 10), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_submit(ex, 2, a), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_submit(ex, 0, NULL), GW_ERR_ARGUMENT);
    /* Of several all are taken, or none. */
    const uint32_t both[] = {0, 1}, twice[] = {1, 1}, beyond[] = {1, 2};
    float *const two[] = {a, b}, *const no_second[] = {a, NULL};
    assert_int_equal(gw_exchange_submit_many(ex, 2, twice, two), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_submit_many(ex, 2, beyond, two), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_submit_many(ex, 2, both, no_second), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_submit_many(ex, 2, NULL, two), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_submit_many(ex, 2, both, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_submit_many(NULL, 2, both, two), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_submit_many(ex, 0, NULL, NULL), GW_OK);
    assert_int_equal(gw_exchange_set(ex, GW_EXCHANGE_RESCALE, 2), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_submit(ex, 0, a), GW_OK);
    assert_int_equal(gw_exchange_submit(ex, 0, a), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_wait(ex, NULL), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_stats(ex, &(gw_stats){.tensor = 0, .condition = &condition}), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_submit(ex, 1, b), GW_OK);
    assert_int_equal(gw_exchange_wait(ex, NULL), GW_OK);
    assert_true(a[0] == 1 && a[4] == 5 && b[0] == 0);
    assert_int_equal(gw_exchange_begin(ex, 10), GW_OK);
    assert_int_equal(gw_exchange_submit_many(ex, 2, both, two), GW_OK);
    assert_int_equal(gw_exchange_wait(ex, NULL), GW_OK);
    assert_true(a[0] == 1 && a[4] == 5 && b[0] == 0);
    const double wrong_factors[] = {0, -1, NAN, INFINITY, 1e300, 1e-300};
    for (size_t i = 0; i < sizeof wrong_factors / sizeof *wrong_factors; i++)
        assert_int_equal(gw_exchange_set(ex, GW_EXCHANGE_RESCALE, wrong_factors[i]), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_set(NULL, GW_EXCHANGE_RESCALE, 2), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_wait(ex, NULL), GW_ERR_ORDER);
    assert_int_equal(gw_exchange_stats(ex, &(gw_stats){.tensor = 2, .traffic = &traffic}), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_stats(ex, &(gw_stats){.tensor = 2, .condition = &condition}), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_stats(NULL, &(gw_stats){.tensor = 0, .condition = &condition}), GW_ERR_ARGUMENT);
    gw_exchange_destroy(ex);
    gw_exchange_destroy(NULL);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
}

/* ---- residuals that wait, or change their unit --------------------------------------------------------- */

/* A member alone, with two tensors, and what it keeps. */
struct alone {
    gw_link link;
    gw_codec *codec;
    gw_exchange *ex;
    uint32_t step;
    float g[2][3000];
    uint8_t state[1 << 15];
    size_t state_bytes;
};

static void alone_open(struct alone *a, const char *spec, bool skip_zero_gradients)
{
    const gw_tensor tensors[] = {{.name = "a", .id = 0, .n_elems = 3000}, {.name = "b", .id = 1, .n_elems = 3000}};
    memset(a, 0, sizeof *a);
    assert_int_equal(gw_codec_parse(NULL, spec, &a->codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 1, &a->link), GW_OK);
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = a->codec,
                                         .tensors = tensors,
                                         .n_tensors = 2,
                                         .link = a->link,
                                         .skip_zero_gradients = skip_zero_gradients};
    assert_int_equal(gw_exchange_create(NULL, &options, &a->ex), GW_OK);
}

/* Tensor a's gradient is `factor` times some numbers; with `rests` tensor b's is 0. */
static void alone_step(struct alone *a, float factor, bool rests)
{
    for (uint32_t t = 0; t < 2; t++)
        for (uint32_t i = 0; i < 3000; i++)
            a->g[t][i] =
                rests && t == 1 ? 0 : factor * (float)((i * 7919 + a->step * 104729 + t) % 1999) - factor * 900;
    assert_int_equal(gw_exchange_begin(a->ex, a->step++), GW_OK);
    for (uint32_t t = 0; t < 2; t++)
        assert_int_equal(gw_exchange_submit(a->ex, t, a->g[t]), GW_OK);
    assert_int_equal(gw_exchange_wait(a->ex, NULL), GW_OK);
    assert_int_equal(gw_exchange_save(a->ex, NULL, 0, &a->state_bytes), GW_OK);
    assert_int_equal(gw_exchange_save(a->ex, a->state, sizeof a->state, &a->state_bytes), GW_OK);
}

static void alone_close(struct alone *a)
{
    gw_exchange_destroy(a->ex);
    gw_link_destroy(&a->link);
    gw_codec_destroy(a->codec);
}

static const char *const with_residuals[] = {"topk:ratio=0.1,refresh=1,scope=layer,over=0",
                                             "topk:ratio=0.1,refresh=1,over=0,scope=global",
                                             "onebit",
                                             "onebit:bucket=0",
                                             "ternary:residual=on",
                                             "ternary:residual=on,bucket=1024"};

TEST(a_gradient_of_zeros_rests_if_asked)
{
    static struct alone a, same;
    for (size_t i = 0; i < sizeof with_residuals / sizeof *with_residuals; i++)
        for (int skip_zero_gradients = 0; skip_zero_gradients < 2; skip_zero_gradients++) {
            float sent = 0;
            uint8_t before[sizeof a.state];
            alone_open(&a, with_residuals[i], skip_zero_gradients);
            alone_open(&same, with_residuals[i], !skip_zero_gradients);
            alone_step(&a, 1, false);
            alone_step(&same, 1, false);
            assert_memory_equal(a.state, same.state, a.state_bytes); /* without zeros it makes no difference */
            memcpy(before, a.state, a.state_bytes);
            alone_step(&a, 1, true);
            for (uint32_t e = 0; e < 3000; e++)
                sent += fabsf(a.g[1][e]);
            /* The last floats before the checksum are tensor b's residual. */
            const size_t from = a.state_bytes - 8 - 4 * 3000;
            assert_int_equal(memcmp(before + from, a.state + from, 4 * 3000) == 0, skip_zero_gradients);
            assert_int_equal(sent == 0, skip_zero_gradients);
            alone_step(&a, 1, false); /* and it goes on */
            sent = 0;
            for (uint32_t e = 0; e < 3000; e++)
                sent += fabsf(a.g[1][e]);
            assert_true(sent > 0);
            alone_close(&a);
            alone_close(&same);
        }
    /* All workers count dense steps together, so no tensor rests in them. */
    alone_open(&a, "topk:ratio=0.1,scope=layer,over=0,dense=2", true);
    for (int step = 0; step < 3; step++)
        alone_step(&a, 1, step == 0);
    uint32_t n_sent = 0;
    for (uint32_t e = 0; e < 3000; e++)
        n_sent += a.g[1][e] != 0;
    assert_int_equal(n_sent, 300);
    alone_close(&a);
    /* A codec that keeps nothing sends zeros as ever. */
    alone_open(&a, "ternary", true);
    alone_step(&a, 1, true);
    for (uint32_t e = 0; e < 3000; e++)
        assert_true(a.g[1][e] == 0);
    alone_close(&a);
}

TEST(residuals_follow_the_unit_of_gradients)
{
    static struct alone a, scaled;
    for (size_t i = 0; i < sizeof with_residuals / sizeof *with_residuals; i++) {
        alone_open(&a, with_residuals[i], false);
        alone_open(&scaled, with_residuals[i], false);
        for (int step = 0; step < 3; step++) {
            alone_step(&a, 1, false);
            alone_step(&scaled, 1, false);
        }
        assert_int_equal(gw_exchange_set(scaled.ex, GW_EXCHANGE_RESCALE, 4), GW_OK);
        for (int step = 0; step < 3; step++) {
            alone_step(&a, 1, false);
            alone_step(&scaled, 4, false);
            for (uint32_t e = 0; e < 3000; e++)
                assert_true(scaled.g[0][e] == 4 * a.g[0][e] && scaled.g[1][e] == 4 * a.g[1][e]);
        }
        alone_close(&a);
        alone_close(&scaled);
    }
}

/* A second exchange on the same links finds them clean. */
TEST(links_serve_again)
{
    struct world world = {
        .spec = "ternary", .n = 3, .sizes = mixed_sizes, .n_tensors = N_MIXED, .n_steps = 3, .seed = 4, .rounds = 3};
    for (int leaves = 0; leaves < 2; leaves++) { /* a farewell may reach the exchange that follows */
        world.leaves = leaves;
        world_run(&world);
        world_check_ok(&world);
        world_check_averages(&world);
        world_end(&world);
    }
}

/* An exchange that saw by itself that it was to end leaves the message that would have told it so to the one that
 * follows. */
TEST(a_call_left_behind_does_no_harm)
{
    gw_link link;
    gw_codec *codec;
    gw_exchange *ex;
    float gradient[5] = {1, 2, 3, 4, 5};
    atomic_store(&world_live, 0);
    gw_context *context = world_context();
    const gw_tensor tensor = {.n_elems = 5};
    assert_int_equal(gw_codec_parse(context, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(context, 1, &link), GW_OK);
    void *wake = gw_message_alloc(context, MESSAGE_HEADER);
    message_header_write(wake, &(struct message_header){.type = MESSAGE_WAKE});
    assert_int_equal(link.ops->send(link.self, 0, wake, MESSAGE_HEADER, 0), GW_OK);
    const gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = link};
    assert_int_equal(gw_exchange_create(context, &options, &ex), GW_OK);
    assert_int_equal(gw_exchange_begin(ex, 0), GW_OK);
    assert_int_equal(gw_exchange_submit(ex, 0, gradient), GW_OK);
    assert_int_equal(gw_exchange_wait(ex, NULL), GW_OK);
    assert_true(gradient[4] == 5);
    gw_exchange_destroy(ex);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
    gw_context_destroy(context);
    assert_int_equal(atomic_load(&world_live), 0);
}

/* The order of calls around gw_exchange_leave. */
TEST(who_has_left_begins_no_step)
{
    struct alone a;
    alone_open(&a, "none", false);
    assert_int_equal(gw_exchange_leave(NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_exchange_begin(a.ex, 0), GW_OK);
    assert_int_equal(gw_exchange_leave(a.ex), GW_ERR_ORDER);
    alone_close(&a);
    alone_open(&a, "none", false);
    assert_int_equal(gw_exchange_leave(a.ex), GW_OK);
    assert_int_equal(gw_exchange_leave(a.ex), GW_OK);
    assert_int_equal(gw_exchange_begin(a.ex, 0), GW_ERR_ORDER);
    assert_non_null(strstr(gw_last_error(), "after gw_exchange_leave"));
    alone_close(&a);
}

struct waiter {
    gw_exchange *ex;
    atomic_uint *n_refused;
    gw_status status;
};

static void *waiter_run(void *user)
{
    struct waiter *w = user;
    w->status = gw_exchange_wait(w->ex, NULL);
    if (w->status == GW_ERR_ORDER && strstr(gw_last_error(), "another thread"))
        atomic_fetch_add(w->n_refused, 1);
    return NULL;
}

/* The second of two threads does not wait for ever. It learns at once that the first is there. */
TEST(one_thread_waits)
{
    gw_link links[2];
    gw_codec *codec;
    gw_exchange *ex[2];
    float gradients[2][5] = {{1, 2, 3, 4, 5}, {3, 4, 5, 6, 7}};
    const gw_tensor tensor = {.n_elems = 5};
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    for (int r = 0; r < 2; r++) {
        const gw_exchange_options options = {
            .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[r]};
        assert_int_equal(gw_exchange_create(NULL, &options, &ex[r]), GW_OK);
        assert_int_equal(gw_exchange_begin(ex[r], 0), GW_OK);
    }
    assert_int_equal(gw_exchange_submit(ex[0], 0, gradients[0]), GW_OK);
    atomic_uint n_refused = 0;
    struct waiter waiters[2] = {{ex[0], &n_refused, GW_OK}, {ex[0], &n_refused, GW_OK}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, waiter_run, &waiters[i]), 0);
    for (const double end = gw_clock_seconds() + 60; atomic_load(&n_refused) == 0 && gw_clock_seconds() < end;)
        sched_yield();
    assert_int_equal(gw_exchange_submit(ex[1], 0, gradients[1]), GW_OK);
    assert_int_equal(gw_exchange_wait(ex[1], NULL), GW_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&n_refused), 1);
    const gw_status other = waiters[0].status == GW_OK ? waiters[1].status : waiters[0].status;
    assert_true(other == GW_ERR_ORDER && gradients[0][0] == 2);
    for (int r = 0; r < 2; r++)
        gw_exchange_destroy(ex[r]);
    for (int r = 0; r < 2; r++)
        gw_link_destroy(&links[r]);
    gw_codec_destroy(codec);
}

RUN_TESTS("exchange", NULL, NULL)
