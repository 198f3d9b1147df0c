/* Fully connected layers: Y = X W^T + b. Weights stay in their plain layout (out, in): at these sizes one matrix
 * product on it costs less than reordering the weights of every step. B: batch, I: inputs, O: outputs. */
#include "base/error.h"
#include "net/network.h"

struct fc {
    struct gw_layer head;  /* src and diff_dst are plain: [B][I], [B][O] */
    const float *w, *bias; /* [O][I], [O] */
    float *dw, *dbias;
    dnnl_dim_t B, I, O;
};

static gw_status fc_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    uint64_t dims[2] = {spec->units, gw_shape_count(spec->in)};
    spec->out = (struct gw_shape){spec->units, 1, 1};
    GW_TRY(gw_network_add_tensor(network, spec, "weight", 2, dims, (uint32_t)dims[1], 0));
    return gw_network_add_tensor(network, spec, "bias", 1, dims, 0, spec->bias);
}

static gw_status fc_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                  const struct gw_blob *const *src)
{
    struct fc *f = (struct fc *)layer;
    const struct gw_param *tensors = &b->network->tensors[layer->spec->first_tensor];
    f->B = b->batch, f->I = (dnnl_dim_t)tensors[0].dims[1], f->O = (dnnl_dim_t)tensors[0].dims[0];
    f->w = b->params + tensors[0].offset;
    f->bias = b->params + tensors[1].offset;
    GW_TRY(gw_reorder_plain(b->engine, src[0], &layer->src, &layer->reorder_src));
    return gw_blob_plain(b->engine, 2, (dnnl_dim_t[]){f->B, f->O}, NULL, &layer->dst);
}

static gw_status fc_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                   const struct gw_blob *diff_dst)
{
    struct fc *f = (struct fc *)layer;
    const struct gw_param *tensors = &b->network->tensors[layer->spec->first_tensor];
    f->dw = b->grads + tensors[0].offset;
    f->dbias = b->grads + tensors[1].offset;
    return gw_layer_setup_backward(layer, b, diff_dst);
}

static gw_status fc_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct fc *f = (struct fc *)layer;
    (void)pass;
    float *y = layer->dst.data;
    for (dnnl_dim_t i = 0; i < f->B; i++)
        for (dnnl_dim_t o = 0; o < f->O; o++)
            y[i * f->O + o] = f->bias[o];
    return gw_dnn_check(dnnl_sgemm('N', 'T', f->B, f->O, f->I, 1, layer->src.data, f->I, f->w, f->I, 1, y, f->O),
                        "a matrix product");
}

static gw_status fc_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct fc *f = (struct fc *)layer;
    const float *dy = layer->diff_dst.data;
    for (dnnl_dim_t o = 0; o < f->O; o++)
        f->dbias[o] = dy[o];
    for (dnnl_dim_t i = 1; i < f->B; i++)
        for (dnnl_dim_t o = 0; o < f->O; o++)
            f->dbias[o] += dy[i * f->O + o];
    pass->ready(pass->user, layer->spec->first_tensor + 1);
    GW_TRY(gw_dnn_check(dnnl_sgemm('T', 'N', f->O, f->I, f->B, 1, dy, f->O, layer->src.data, f->I, 0, f->dw, f->I),
                        "a matrix product"));
    pass->ready(pass->user, layer->spec->first_tensor);
    if (!layer->diff_src[0].data)
        return GW_OK;
    return gw_dnn_check(dnnl_sgemm('N', 'N', f->B, f->I, f->O, 1, dy, f->O, f->w, f->I, 0, layer->diff_src[0].data,
                                   f->I),
                        "a matrix product");
}

const struct gw_layer_kind gw_layer_fc = {.instance_bytes = sizeof(struct fc),
                                          .declare = fc_declare,
                                          .setup_forward = fc_setup_forward,
                                          .setup_backward = fc_setup_backward,
                                          .forward = fc_forward,
                                          .backward = fc_backward};
