/* Tests that an evaluation looks at the samples of its range, and at no others. */
#include "base/memory.h"
#include "run/evaluate.h"
#include "checks.h"

#include <math.h>

/* Any two parts of the test set have together what the whole has. The parts end within a batch of the model. */
TEST(parts_add_up)
{
    enum { N = 2 * GW_EVAL_BATCH + 30 };
    static const uint32_t cuts[] = {0, 1, 7, GW_EVAL_BATCH - 1, GW_EVAL_BATCH, GW_EVAL_BATCH + 1, N - 1, N};
    struct gw_data data;
    struct gw_network net;
    struct gw_model *model;
    dnnl_engine_t engine;
    double whole_loss = 0;
    uint32_t whole_correct = 0;
    assert_int_equal(gw_data_load("digits", NULL, &data), GW_OK);
    assert_int_equal(gw_data_transform(&data, NULL), GW_OK);
    assert_true(data.test.n > N);
    assert_int_equal(gw_network_create("mlp:784-16-10", &net), GW_OK);
    float *params = gw_calloc(NULL, net.n_storage, sizeof *params);
    gw_network_init(&net, 5, params);
    assert_int_equal(gw_dnn_engine(&engine), GW_OK);
    assert_int_equal(gw_model_create(&net, engine, GW_EVAL_BATCH, params, NULL, NULL, &model), GW_OK);
    assert_int_equal(gw_evaluate(model, &data, 0, N, &whole_correct, &whole_loss), GW_OK);
    CHECK_IN_RANGE(whole_correct, 1, N - 1);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        double loss = 0;
        uint32_t correct = 0;
        assert_int_equal(gw_evaluate(model, &data, 0, cuts[i], &correct, &loss), GW_OK);
        assert_int_equal(gw_evaluate(model, &data, cuts[i], N, &correct, &loss), GW_OK);
        assert_int_equal(correct, whole_correct);
        assert_true(fabs(loss - whole_loss) < 1e-9 * whole_loss);
    }
    gw_model_destroy(model);
    dnnl_engine_destroy(engine);
    gw_network_free(&net);
    gw_data_free(&data);
    gw_free(NULL, params);
}

RUN_TESTS("evaluate", NULL, NULL)
