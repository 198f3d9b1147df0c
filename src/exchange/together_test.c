/* Tests when groups wait for each other: with topk's scope=global, in the steps that take a new threshold, and in no
 * others. */
#include "exchange_stage.h"

#define SPEC "topk:ratio=0.05,scope=global,refresh=3"

/* One step of an exchange of one member. The state that it saves then has a threshold. */
static void *state_after_a_step(const struct stage *s, size_t *n_bytes)
{
    gw_link link;
    gw_exchange *ex;
    gw_step_result result;
    gw_group_moments moments[2];
    static float gradients[2][ELEMS];
    assert_int_equal(gw_link_local_create(NULL, 1, &link), GW_OK);
    const gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = s->codec, .tensors = s->tensors, .n_tensors = 2, .link = link};
    memcpy(gradients, s->gradients, sizeof gradients);
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_OK);
    assert_int_equal(gw_exchange_begin(ex, 0), GW_OK);
    for (uint32_t t = 2; t-- > 0;)
        assert_int_equal(gw_exchange_submit(ex, t, gradients[t]), GW_OK);
    assert_int_equal(gw_exchange_wait(ex, &result), GW_OK);
    assert_true(result.committed);
    for (uint32_t g = 0; g < 2; g++)
        assert_int_equal(gw_exchange_stats(ex, &(gw_stats){.group = g, .moments = &moments[g]}), GW_OK);
    assert_true(moments[1].encoding >= moments[0].ready);
    assert_int_equal(gw_exchange_save(ex, NULL, 0, n_bytes), GW_OK);
    void *state = malloc(*n_bytes);
    assert_int_equal(gw_exchange_save(ex, state, *n_bytes, n_bytes), GW_OK);
    gw_exchange_destroy(ex);
    gw_link_destroy(&link);
    return state;
}

/* Rank 1 gets its group while rank 0's program still works on the gradient of the other one. */
TEST(a_group_goes_before_the_last_gradient_is_there)
{
    struct stage *s = stage_open(SPEC, 2);
    gw_message message;
    size_t n_bytes;
    void *saved = state_after_a_step(s, &n_bytes);
    stage_create(s, 10000, NULL);
    stage_meet(s);
    assert_int_equal(gw_exchange_load(s->ex, (const void *const *)&saved, 1, n_bytes), GW_OK);
    free(saved);
    assert_int_equal(gw_exchange_begin(s->ex, STEP), GW_OK);
    assert_int_equal(gw_exchange_submit(s->ex, 1, s->gradients[1]), GW_OK);
    assert_true(hear(s, 1, MESSAGE_PUSH, &message));
    assert_int_equal(message_header_read(message.bytes).group, 1);
    gw_message_free(message.bytes);
    stage_end(s);
}

RUN_TESTS("together", NULL, NULL)
