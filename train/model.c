/* Builds a network's layers on oneDNN for one batch size, and runs forward, loss and backward. */
#include "model.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>

struct gw_model {
    const struct gw_network *network;
    dnnl_stream_t stream;
    uint32_t batch;
    struct gw_blob input, diff_logits;
    struct gw_layer *layers[GW_MAX_LAYERS];
};

static gw_status build(struct gw_model *m, struct gw_layer_build *b)
{
    const struct gw_network *net = m->network;
    bool flat = net->in.height == 1 && net->in.width == 1;
    dnnl_memory_desc_t desc;
    gw_desc_plain(&desc, flat ? 2 : 4, (dnnl_dim_t[]){b->batch, net->in.channels, net->in.height, net->in.width});
    GW_TRY(gw_blob_create(b->engine, &desc, NULL, &m->input));

    const struct gw_blob *value = &m->input;
    for (uint32_t i = 0; i < net->n_layers; i++) {
        const struct gw_layer_spec *spec = &net->layers[i];
        struct gw_layer *layer = m->layers[i] = gw_calloc(NULL, 1, spec->kind->instance_bytes);
        if (!layer)
            return GW_ERR_MEMORY;
        layer->spec = spec;
        layer->stream = m->stream;
        GW_TRY(spec->kind->setup_forward(layer, b, value));
        value = &layer->dst;
    }
    if (!b->training)
        return GW_OK;

    GW_TRY(gw_blob_create(b->engine, &value->desc, NULL, &m->diff_logits));
    const struct gw_blob *diff = &m->diff_logits;
    for (uint32_t i = net->n_layers; i-- > 0;) {
        struct gw_layer *layer = m->layers[i];
        b->needs_diff_src = i > 0;
        GW_TRY(layer->spec->kind->setup_backward(layer, b, diff));
        diff = &layer->diff_src;
    }
    return GW_OK;
}

gw_status gw_model_create(const struct gw_network *network, dnnl_engine_t engine, uint32_t batch, float *params,
                          float *grads, struct gw_model **out)
{
    struct gw_model *m = gw_calloc(NULL, 1, sizeof *m);
    if (!m)
        return GW_ERR_MEMORY;
    m->network = network;
    m->batch = batch;
    struct gw_layer_build b = {.engine = engine,
                               .network = network,
                               .batch = batch,
                               .training = grads != NULL,
                               .params = params,
                               .grads = grads};
    gw_status status = gw_dnn_check(dnnl_stream_create(&m->stream, engine, dnnl_stream_default_flags), "a stream");
    if (status == GW_OK)
        status = build(m, &b);
    if (status != GW_OK) {
        gw_model_destroy(m);
        return status;
    }
    *out = m;
    return GW_OK;
}

void gw_model_destroy(struct gw_model *m)
{
    if (!m)
        return;
    for (uint32_t i = 0; i < m->network->n_layers; i++) {
        struct gw_layer *layer = m->layers[i];
        if (!layer)
            continue;
        layer->spec->kind->destroy(layer);
        gw_blob_destroy(&layer->dst);
        gw_blob_destroy(&layer->diff_src);
        gw_free(NULL, layer);
    }
    gw_blob_destroy(&m->input);
    gw_blob_destroy(&m->diff_logits);
    if (m->stream)
        dnnl_stream_destroy(m->stream);
    gw_free(NULL, m);
}

float *gw_model_input(struct gw_model *m)
{
    return m->input.data;
}

const float *gw_model_logits(const struct gw_model *m)
{
    return m->layers[m->network->n_layers - 1]->dst.data;
}

gw_status gw_model_forward(struct gw_model *m, const struct gw_pass *pass)
{
    for (uint32_t i = 0; i < m->network->n_layers; i++)
        GW_TRY(m->layers[i]->spec->kind->forward(m->layers[i], pass));
    return GW_OK;
}

gw_status gw_model_backward(struct gw_model *m, const struct gw_pass *pass)
{
    for (uint32_t i = m->network->n_layers; i-- > 0;)
        GW_TRY(m->layers[i]->spec->kind->backward(m->layers[i], pass));
    return GW_OK;
}

void gw_model_loss(struct gw_model *m, const uint8_t *labels, uint32_t n, float scale, double *loss, uint32_t *correct)
{
    uint32_t classes = m->network->classes;
    const float *z = gw_model_logits(m);
    float *d = m->diff_logits.data;
    for (uint32_t i = 0; i < n; i++, z += classes) {
        uint32_t best = 0;
        for (uint32_t k = 1; k < classes; k++)
            if (z[k] > z[best])
                best = k;
        *correct += best == labels[i];
        float sum = 0;
        for (uint32_t k = 0; k < classes; k++)
            sum += expf(z[k] - z[best]);
        *loss += logf(sum) - (z[labels[i]] - z[best]);
        if (!d)
            continue;
        for (uint32_t k = 0; k < classes; k++)
            d[k] = scale * (expf(z[k] - z[best]) / sum - (k == labels[i] ? 1.f : 0.f));
        d += classes;
    }
}
