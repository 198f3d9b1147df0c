/* Rectified linear units, in place and in whatever layout the values come (padding is 0 and stays 0). The layer before
 * does not need its output again. */
#include "base/error.h"
#include "network.h"

struct relu {
    struct gw_layer head;
    size_t n; /* floats of the layout, padding included */
    struct gw_primitive reorder_diff_dst;
};

static gw_status relu_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    (void)network;
    spec->out = spec->in;
    return GW_OK;
}

static gw_status relu_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b, const struct gw_blob *src)
{
    ((struct relu *)layer)->n = dnnl_memory_desc_get_size(&src->desc) / sizeof(float);
    return gw_blob_create(b->engine, &src->desc, src->data, &layer->dst);
}

static gw_status relu_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                     const struct gw_blob *diff_dst)
{
    struct relu *r = (struct relu *)layer;
    return gw_reorder_into(b->engine, diff_dst, &layer->dst.desc, &layer->diff_src, &r->reorder_diff_dst);
}

static gw_status relu_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    (void)pass;
    float *v = layer->dst.data;
    for (size_t i = 0, n = ((struct relu *)layer)->n; i < n; i++)
        v[i] = v[i] > 0 ? v[i] : v[i] < 0 ? 0 : v[i]; /* a NaN stays one */
    return GW_OK;
}

static gw_status relu_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct relu *r = (struct relu *)layer;
    (void)pass;
    GW_TRY(gw_primitive_run(&r->reorder_diff_dst, layer->stream));
    float *d = layer->diff_src.data;
    const float *v = layer->dst.data;
    for (size_t i = 0; i < r->n; i++)
        d[i] = v[i] == 0 ? 0 : d[i]; /* after forward v is above 0, 0, or NaN */
    return GW_OK;
}

static void relu_destroy(struct gw_layer *layer)
{
    gw_primitive_destroy(&((struct relu *)layer)->reorder_diff_dst);
}

const struct gw_layer_kind gw_layer_relu = {
    "relu",       sizeof(struct relu), relu_declare, relu_setup_forward, relu_setup_backward,
    relu_forward, relu_backward,       relu_destroy};
