/* Rectified linear units, in whatever layout the values come (padding stays 0), in place if nobody else reads them. */
#include "base/error.h"
#include "net/network.h"

static gw_status relu_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                    const struct gw_blob *const *src)
{
    GW_TRY(gw_blob_create(b->engine, src[0]->desc, src[0]->data, &layer->src));
    return gw_blob_create(b->engine, src[0]->desc, b->may_overwrite ? src[0]->data : NULL, &layer->dst);
}

static gw_status relu_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    const size_t n = gw_blob_floats(&layer->dst);
    const float *from = layer->src.data;
    float *to = layer->dst.data;
    (void)pass;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        const float v = from[i];
        to[i] = v > 0 ? v : v < 0 ? 0 : v; /* a NaN stays a NaN */
    }
    return GW_OK;
}

static gw_status relu_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    const size_t n = gw_blob_floats(&layer->dst);
    float *to = layer->diff_src[0].data;
    const float *v = layer->dst.data, *from = layer->diff_dst.data;
    (void)pass;
    if (!to)
        return GW_OK;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++)
        to[i] = v[i] == 0 ? 0 : from[i]; /* forward left v above 0, 0 or NaN */
    return GW_OK;
}

const struct gw_layer_kind gw_layer_relu = {.instance_bytes = sizeof(struct gw_layer),
                                            .needs_dst = true,
                                            .declare = gw_layer_declare_same,
                                            .setup_forward = relu_setup_forward,
                                            .setup_backward = gw_layer_setup_backward,
                                            .forward = relu_forward,
                                            .backward = relu_backward};
