/* Tests layers against a plain reference: forward in float64 with the obvious loops, and gradients as its
 * differences. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/memory.h"
#include "model.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the reference -------------------------------------------------------------------------- */

static void conv_ref(const struct gw_layer_spec *s, const double *x, const double *w, const double *b, double *y)
{
    for (uint32_t o = 0; o < s->out.channels; o++)
        for (uint32_t i = 0; i < s->out.height; i++)
            for (uint32_t j = 0; j < s->out.width; j++) {
                double sum = b[o];
                for (uint32_t c = 0; c < s->in.channels; c++)
                    for (uint32_t u = 0; u < s->kernel; u++)
                        for (uint32_t v = 0; v < s->kernel; v++)
                            sum += w[((o * s->in.channels + c) * s->kernel + u) * s->kernel + v] *
                                   x[(c * s->in.height + i * s->stride + u) * s->in.width + j * s->stride + v];
                y[(o * s->out.height + i) * s->out.width + j] = sum;
            }
}

static void pool_ref(const struct gw_layer_spec *s, const double *x, double *y)
{
    for (uint32_t c = 0; c < s->out.channels; c++)
        for (uint32_t i = 0; i < s->out.height; i++)
            for (uint32_t j = 0; j < s->out.width; j++) {
                double best = -INFINITY;
                for (uint32_t u = 0; u < s->kernel; u++)
                    for (uint32_t v = 0; v < s->kernel; v++)
                        best = fmax(best, x[(c * s->in.height + i * s->stride + u) * s->in.width + j * s->stride + v]);
                y[(c * s->out.height + i) * s->out.width + j] = best;
            }
}

/* Logits of one sample, and its loss. */
static double forward_ref(const struct gw_network *net, const double *params, const float *input, uint8_t label,
                          double *logits)
{
    enum { MOST = 32768 };
    static double x[MOST], y[MOST];
    for (uint64_t i = 0; i < gw_shape_count(net->in); i++)
        x[i] = input[i];
    for (uint32_t l = 0; l < net->n_layers; l++) {
        const struct gw_layer_spec *s = &net->layers[l];
        const double *w = params + net->tensors[s->first_tensor].offset,
                     *b = params + net->tensors[s->first_tensor + 1].offset;
        uint64_t n_in = gw_shape_count(s->in), n_out = gw_shape_count(s->out);
        assert_true(n_in <= MOST && n_out <= MOST);
        if (s->kind == &gw_layer_conv)
            conv_ref(s, x, w, b, y);
        else if (s->kind == &gw_layer_pool)
            pool_ref(s, x, y);
        else
            for (uint64_t o = 0; o < n_out; o++) {
                y[o] = s->kind == &gw_layer_fc ? b[o] : fmax(x[o], 0);
                for (uint64_t i = 0; s->kind == &gw_layer_fc && i < n_in; i++)
                    y[o] += w[o * n_in + i] * x[i];
            }
        memcpy(x, y, n_out * sizeof *x);
    }
    double sum = 0;
    for (uint32_t k = 0; k < net->classes; k++) {
        logits[k] = x[k];
        sum += exp(x[k]);
    }
    return log(sum) - x[label];
}

/* ---- a model beside it ---------------------------------------------------------------------- */

struct readiness {
    uint32_t order[GW_MAX_TENSORS], n;
};

static void note_ready(void *user, uint32_t tensor)
{
    struct readiness *r = user;
    r->order[r->n++] = tensor;
}

static void check_network(const char *name, uint32_t batch)
{
    static struct gw_network net;
    assert_int_equal(gw_network_create(name, &net), GW_OK);
    uint64_t n = net.n_storage, n_in = gw_shape_count(net.in);
    float *params = gw_calloc(NULL, n, sizeof *params), *grads = gw_calloc(NULL, n, sizeof *grads);
    double *reference = gw_calloc(NULL, n, sizeof *reference), logits[64];
    uint8_t labels[16];
    struct gw_random r = gw_random_open(3, GW_PURPOSE_DIGITS, batch, 1);
    gw_network_init(&net, 5, params);
    for (uint32_t t = 0; t < net.n_tensors; t++) /* biases, too, away from 0 */
        for (uint64_t i = 0; net.tensors[t].fan_in == 0 && i < net.tensors[t].n_elems; i++)
            params[net.tensors[t].offset + i] = gw_random_between(&r, -.1f, .1f);
    for (uint64_t i = 0; i < n; i++)
        reference[i] = params[i];

    dnnl_engine_t engine;
    struct gw_model *model;
    assert_int_equal(dnnl_engine_create(&engine, dnnl_cpu, 0), dnnl_success);
    assert_int_equal(gw_model_create(&net, engine, batch, params, grads, &model), GW_OK);
    float *input = gw_model_input(model);
    for (uint64_t i = 0; i < batch * n_in; i++)
        input[i] = gw_random_unit(&r);
    for (uint32_t i = 0; i < batch; i++)
        labels[i] = (uint8_t)gw_random_below(&r, net.classes);

    struct readiness ready = {.n = 0};
    struct gw_pass pass = {.version = 1, .ready = note_ready, .user = &ready};
    const float scale = 0.7f;
    double loss = 0, loss_ref = 0;
    uint32_t correct = 0;
    assert_int_equal(gw_model_forward(model, &pass), GW_OK);
    for (uint32_t i = 0; i < batch; i++) {
        loss_ref += forward_ref(&net, reference, input + i * n_in, labels[i], logits);
        for (uint32_t k = 0; k < net.classes; k++)
            if (!(fabs(gw_model_logits(model)[i * net.classes + k] - logits[k]) < 1e-4))
                fail_msg("%s, batch %u: logit %u of sample %u is %g, not %g", name, batch, k, i,
                         gw_model_logits(model)[i * net.classes + k], logits[k]);
    }
    gw_model_loss(model, labels, batch, scale, &loss, &correct);
    assert_true(fabs(loss - loss_ref) < 1e-4 * loss_ref);
    assert_int_equal(gw_model_backward(model, &pass), GW_OK);

    /* Every tensor once, the last layer's first. */
    assert_int_equal(ready.n, net.n_tensors);
    for (uint32_t i = 1; i < ready.n; i++)
        assert_true(net.tensors[ready.order[i - 1]].layer >= net.tensors[ready.order[i]].layer);
    assert_true(net.tensors[ready.order[0]].last_layer);

    for (uint32_t t = 0; t < net.n_tensors; t++) {
        const struct gw_param *p = &net.tensors[t];
        for (int probe = 0; probe < 6; probe++) {
            uint64_t at = p->offset + gw_random_below(&r, (uint32_t)p->n_elems);
            double kept = reference[at], h = 1e-5, up = 0, down = 0;
            for (uint32_t i = 0; i < batch; i++) {
                reference[at] = kept + h;
                up += forward_ref(&net, reference, input + i * n_in, labels[i], logits);
                reference[at] = kept - h;
                down += forward_ref(&net, reference, input + i * n_in, labels[i], logits);
            }
            reference[at] = kept;
            double want = scale * (up - down) / (2 * h);
            if (!(fabs(grads[at] - want) < 1e-4 * (1 + fabs(want))))
                fail_msg("%s, batch %u: gradient of %s[%llu] is %g, not %g", name, batch, p->name,
                         (unsigned long long)(at - p->offset), grads[at], want);
        }
    }
    gw_model_destroy(model);
    dnnl_engine_destroy(engine);
    gw_free(NULL, params);
    gw_free(NULL, grads);
    gw_free(NULL, reference);
}

static void lenet_matches_the_reference(void **state)
{
    (void)state;
    check_network("lenet", 1);
    check_network("lenet", 3);
}

static void mlp_matches_the_reference(void **state)
{
    (void)state;
    check_network("mlp:7-5", 1);
    check_network("mlp:30-17-9-4", 5);
    check_network("mlp:784-300-10", 2);
}

/* New parameters are used as soon as the version says so, by conv layers that keep reordered weights. */
static void version_brings_new_weights(void **state)
{
    (void)state;
    static struct gw_network net;
    assert_int_equal(gw_network_create("lenet", &net), GW_OK);
    float *params = gw_calloc(NULL, net.n_storage, sizeof *params);
    dnnl_engine_t engine;
    struct gw_model *model;
    assert_int_equal(dnnl_engine_create(&engine, dnnl_cpu, 0), dnnl_success);
    assert_int_equal(gw_model_create(&net, engine, 1, params, NULL, &model), GW_OK);
    for (int i = 0; i < 784; i++)
        gw_model_input(model)[i] = 1;
    struct gw_pass pass = {.version = 1};
    assert_int_equal(gw_model_forward(model, &pass), GW_OK);
    assert_true(gw_model_logits(model)[0] == 0);
    for (uint64_t i = 0; i < net.n_storage; i++)
        params[i] = 0.01f;
    pass.version = 2;
    assert_int_equal(gw_model_forward(model, &pass), GW_OK);
    /* conv1 0.26, conv2 0.26*500*0.01 + 0.01, fc1 *800*0.01 + 0.01, fc2 *500*0.01 + 0.01 */
    assert_true(fabs(gw_model_logits(model)[9] - (((0.26 * 5 + 0.01) * 8 + 0.01) * 5 + 0.01)) < 1e-3);
    gw_model_destroy(model);
    dnnl_engine_destroy(engine);
    gw_free(NULL, params);
}

static void networks_are_what_they_should_be(void **state)
{
    (void)state;
    static struct gw_network net;
    assert_int_equal(gw_network_create("lenet", &net), GW_OK);
    assert_int_equal(net.n_params, 431080);
    assert_int_equal(net.n_tensors, 8);
    assert_string_equal(net.tensors[0].name, "conv1.weight");
    assert_string_equal(net.tensors[7].name, "fc2.bias");
    assert_true(net.tensors[6].last_layer && net.tensors[7].last_layer && !net.tensors[5].last_layer);
    assert_int_equal(gw_network_fits(&net, (struct gw_shape){1, 28, 28}, 10), GW_OK);
    assert_true(gw_network_fits(&net, (struct gw_shape){1, 28, 27}, 10) < 0);
    assert_true(gw_network_fits(&net, (struct gw_shape){1, 28, 28}, 9) < 0);
    static const char *const wrong[] = {"",
                                        "lenet5",
                                        "mlp",
                                        "mlp:",
                                        "mlp:784",
                                        "mlp:784-",
                                        "mlp:784-0-10",
                                        "mlp:784-10x",
                                        "mlp:-784-10",
                                        "mlp:784-99999999-10",
                                        "mlp:1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1-1"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (gw_network_create(wrong[i], &net) >= 0)
            fail_msg("the network \"%s\" was accepted", wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lenet_matches_the_reference),
        cmocka_unit_test(mlp_matches_the_reference),
        cmocka_unit_test(version_brings_new_weights),
        cmocka_unit_test(networks_are_what_they_should_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
