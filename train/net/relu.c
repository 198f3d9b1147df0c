/* Rectified linear units, in whatever layout the values come (padding is 0 and stays 0), and in place if nobody else
 * reads them. */
#include "net/network.h"

struct relu {
    struct gw_layer head;
    size_t n; /* floats of the layout, with its padding */
    const float *src;
};

static gw_status relu_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                    const struct gw_blob *const *src)
{
    struct relu *r = (struct relu *)layer;
    r->n = dnnl_memory_desc_get_size(src[0]->desc) / sizeof(float);
    r->src = src[0]->data;
    return gw_blob_create(b->engine, src[0]->desc, b->may_overwrite ? src[0]->data : NULL, &layer->dst);
}

static gw_status relu_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    const struct relu *r = (const struct relu *)layer;
    (void)pass;
    float *to = layer->dst.data;
#pragma omp parallel for
    for (size_t i = 0; i < r->n; i++) {
        const float v = r->src[i];
        to[i] = v > 0 ? v : v < 0 ? 0 : v; /* a NaN stays a NaN */
    }
    return GW_OK;
}

static gw_status relu_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct relu *r = (struct relu *)layer;
    (void)pass;
    float *d = layer->diff_src[0].data;
    const float *v = layer->dst.data;
#pragma omp parallel for
    for (size_t i = 0; i < r->n; i++)
        d[i] = v[i] == 0 ? 0 : layer->diff_from[i]; /* forward left v above 0, 0 or NaN */
    return GW_OK;
}

const struct gw_layer_kind gw_layer_relu = {.name = "relu",
                                            .instance_bytes = sizeof(struct relu),
                                            .needs_dst = true,
                                            .declare = gw_layer_declare_same,
                                            .setup_forward = relu_setup_forward,
                                            .setup_backward = gw_layer_diff_beside,
                                            .forward = relu_forward,
                                            .backward = relu_backward};
