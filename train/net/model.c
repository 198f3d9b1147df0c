/* Builds a network's layers on oneDNN for one batch size, and runs forward, loss and backward. */
#include "net/model.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>

/* The gradient that comes back to a layer from all layers that read it. */
struct returned {
    struct gw_blob sum; /* the sum, if several layers read it */
    struct gw_primitive add;
    const struct gw_blob *diff;
};

struct gw_model {
    const struct gw_network *network;
    dnnl_stream_t stream;
    struct gw_blob input, diff_logits;
    struct gw_layer **layers;  /* [network->n_layers] */
    struct returned *returned; /* [network->n_layers]; NULL: the model does not train */
};

static gw_status build_forward(struct gw_model *m, struct gw_layer_build *b)
{
    const struct gw_network *net = m->network;
    for (uint32_t i = 0; i < net->n_layers; i++) {
        const struct gw_layer_spec *spec = &net->layers[i];
        const struct gw_blob *src[GW_MAX_INPUTS];
        struct gw_layer *layer = m->layers[i] = gw_calloc(NULL, 1, spec->kind->instance_bytes);
        if (!layer)
            return GW_ERR_MEMORY;
        layer->spec = spec;
        layer->stream = m->stream;
        layer->batch = b->batch;
        for (uint32_t k = 0; k < spec->n_inputs; k++)
            src[k] = spec->inputs[k] == GW_SAMPLES ? &m->input : &m->layers[spec->inputs[k]]->dst;
        const struct gw_layer_spec *from = spec->inputs[0] == GW_SAMPLES ? NULL : &net->layers[spec->inputs[0]];
        b->may_overwrite = from && from->n_readers == 1 && !(b->training && from->kind->needs_dst);
        GW_TRY(spec->kind->setup_forward(layer, b, src));
    }
    return GW_OK;
}

/* Finds where the gradient that comes back to layer i will be. All layers that read layer i must be set up. */
static gw_status gather(struct gw_model *m, const struct gw_layer_build *b, uint32_t i)
{
    const struct gw_network *net = m->network;
    struct returned *r = &m->returned[i];
    if (i + 1 == net->n_layers) {
        r->diff = &m->diff_logits;
        return GW_OK;
    }
    const uint32_t n = net->layers[i].n_readers;
    if (n == 0 || n >= GW_MAX_ARGS)
        return gw_fail(GW_ERR_ARGUMENT, "%s is read by %u layers; 1 to %d are possible", net->layers[i].name, n,
                       GW_MAX_ARGS - 1);
    const struct gw_blob *parts[GW_MAX_ARGS];
    gw_layout descs[GW_MAX_ARGS];
    float ones[GW_MAX_ARGS];
    uint32_t found = 0;
    for (uint32_t l = net->n_layers; l-- > i + 1;)
        for (uint32_t k = 0; k < net->layers[l].n_inputs; k++)
            if (net->layers[l].inputs[k] == i) {
                parts[found] = &m->layers[l]->diff_src[k];
                descs[found] = parts[found]->desc;
                ones[found++] = 1;
            }
    r->diff = parts[0];
    if (n == 1)
        return GW_OK;
    dnnl_primitive_desc_t pd = NULL;
    const gw_layout sum = m->layers[i]->dst.desc;
    GW_TRY(gw_primitive_create(gw_describe_sum(b->engine, sum, (int)n, descs, ones, &pd), &pd, "a sum", &r->add));
    GW_TRY(gw_blob_create(b->engine, sum, NULL, &r->sum));
    for (uint32_t k = 0; k < n; k++)
        gw_primitive_arg(&r->add, DNNL_ARG_MULTIPLE_SRC + (int)k, parts[k]);
    gw_primitive_arg(&r->add, DNNL_ARG_DST, &r->sum);
    r->diff = &r->sum;
    return GW_OK;
}

static gw_status build(struct gw_model *m, struct gw_layer_build *b)
{
    const struct gw_network *net = m->network;
    bool flat = net->in.height == 1 && net->in.width == 1;
    GW_TRY(gw_blob_plain(b->engine, flat ? 2 : 4,
                         (dnnl_dim_t[]){b->batch, net->in.channels, net->in.height, net->in.width}, NULL, &m->input));
    if (!(m->layers = gw_calloc(NULL, net->n_layers, sizeof *m->layers)))
        return GW_ERR_MEMORY;
    GW_TRY(build_forward(m, b));
    if (!b->training)
        return GW_OK;

    GW_TRY(gw_blob_create(b->engine, m->layers[net->n_layers - 1]->dst.desc, NULL, &m->diff_logits));
    if (!(m->returned = gw_calloc(NULL, net->n_layers, sizeof *m->returned)))
        return GW_ERR_MEMORY;
    for (uint32_t i = net->n_layers; i-- > 0;) {
        const struct gw_layer_spec *spec = &net->layers[i];
        GW_TRY(gather(m, b, i));
        for (uint32_t k = 0; k < spec->n_inputs; k++)
            b->needs_diff[k] = spec->inputs[k] != GW_SAMPLES;
        GW_TRY(spec->kind->setup_backward(m->layers[i], b, m->returned[i].diff));
    }
    return GW_OK;
}

gw_status gw_model_create(const struct gw_network *network, dnnl_engine_t engine, uint32_t batch, float *params,
                          float *grads, float *statistics, struct gw_model **out)
{
    struct gw_model *m = gw_calloc(NULL, 1, sizeof *m);
    if (!m)
        return GW_ERR_MEMORY;
    m->network = network;
    struct gw_layer_build b = {.engine = engine,
                               .network = network,
                               .batch = batch,
                               .training = grads != NULL,
                               .params = params,
                               .grads = grads,
                               .statistics = statistics};
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
        struct gw_layer *layer = m->layers ? m->layers[i] : NULL;
        if (!layer)
            continue;
        if (layer->spec->kind->destroy)
            layer->spec->kind->destroy(layer);
        gw_primitive_destroy(&layer->reorder_src);
        gw_primitive_destroy(&layer->reorder_diff_dst);
        gw_primitive_destroy(&layer->run);
        gw_primitive_destroy(&layer->backward);
        gw_blob_destroy(&layer->workspace);
        gw_blob_destroy(&layer->src);
        gw_blob_destroy(&layer->diff_dst);
        gw_blob_destroy(&layer->dst);
        for (uint32_t k = 0; k < GW_MAX_INPUTS; k++)
            gw_blob_destroy(&layer->diff_src[k]);
        gw_free(NULL, layer);
    }
    for (uint32_t i = 0; i < m->network->n_layers && m->returned; i++) {
        gw_primitive_destroy(&m->returned[i].add);
        gw_blob_destroy(&m->returned[i].sum);
    }
    gw_free(NULL, m->layers);
    gw_free(NULL, m->returned);
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
    for (uint32_t i = 0; i < m->network->n_layers; i++) {
        struct gw_layer *layer = m->layers[i];
        GW_TRY(gw_primitive_run(&layer->reorder_src, m->stream));
        GW_TRY(layer->spec->kind->forward ? layer->spec->kind->forward(layer, pass)
                                          : gw_primitive_run(&layer->run, m->stream));
    }
    return GW_OK;
}

gw_status gw_model_backward(struct gw_model *m, const struct gw_pass *pass)
{
    for (uint32_t i = m->network->n_layers; i-- > 0;) {
        struct gw_layer *layer = m->layers[i];
        GW_TRY(gw_primitive_run(&m->returned[i].add, m->stream));
        GW_TRY(gw_primitive_run(&layer->reorder_diff_dst, m->stream));
        GW_TRY(layer->spec->kind->backward ? layer->spec->kind->backward(layer, pass)
                                           : gw_primitive_run(&layer->backward, m->stream));
    }
    return GW_OK;
}

void gw_model_keep(struct gw_model *m)
{
    for (uint32_t i = 0; i < m->network->n_layers; i++)
        if (m->layers[i]->spec->kind->keep)
            m->layers[i]->spec->kind->keep(m->layers[i]);
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
