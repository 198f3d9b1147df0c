/* Pooling layers, the largest value or the mean of each window, in whatever layout the values come. */
#include "base/error.h"
#include "net/network.h"

/* How many windows fit along a side. A partial window must begin inside the picture. */
static uint32_t windows(const struct gw_layer_spec *s, uint32_t side)
{
    const uint32_t whole = (side - s->kernel) / s->stride + 1, rest = (side - s->kernel) % s->stride;
    return whole + (s->partial && rest && whole * s->stride < side);
}

static gw_status pool_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    (void)network;
    const struct gw_shape in = spec->in;
    const bool fits = spec->kernel <= in.height && spec->kernel <= in.width;
    if (!fits ||
        (!spec->partial && ((in.height - spec->kernel) % spec->stride || (in.width - spec->kernel) % spec->stride)))
        return gw_fail(GW_ERR_ARGUMENT, "%s: windows of %u at every %u do not cover %ux%u", spec->name, spec->kernel,
                       spec->stride, in.height, in.width);
    spec->out = (struct gw_shape){in.channels, windows(spec, in.height), windows(spec, in.width)};
    return GW_OK;
}

static struct gw_window window_of(const struct gw_layer_spec *s)
{
    const uint32_t height = (s->out.height - 1) * s->stride + s->kernel,
                   width = (s->out.width - 1) * s->stride + s->kernel;
    return (struct gw_window){.strides = {s->stride, s->stride},
                              .kernel = {s->kernel, s->kernel},
                              /* how far the last windows reach beyond the edge */
                              .behind = {height > s->in.height ? height - s->in.height : 0,
                                         width > s->in.width ? width - s->in.width : 0}};
}

static dnnl_alg_kind_t kind_of(const struct gw_layer_spec *s)
{
    return s->average ? dnnl_pooling_avg_exclude_padding : dnnl_pooling_max;
}

static gw_status pool_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                    const struct gw_blob *const *src)
{
    const struct gw_layer_spec *s = layer->spec;
    dnnl_dim_t dst_dims[4] = {b->batch, s->out.channels, s->out.height, s->out.width};
    const struct gw_window window = window_of(s);
    struct gw_made_layout any;
    dnnl_primitive_desc_t pd;
    GW_TRY(gw_dnn_check(gw_layout_make(4, dst_dims, dnnl_format_tag_any, &any), "pooling"));
    const dnnl_status_t described =
        gw_describe_pooling(b->engine, b->training ? dnnl_forward_training : dnnl_forward_inference, kind_of(s),
                            src[0]->desc, any.layout, &window, NULL, &pd);
    gw_layout_drop(&any);
    GW_TRY(gw_primitive_create(described, &pd, "pooling", &layer->run));
    const gw_layout dst_desc = gw_primitive_layout(&layer->run, dnnl_query_dst_md);
    GW_TRY(gw_blob_create(b->engine, src[0]->desc, src[0]->data, &layer->src));
    GW_TRY(gw_blob_create(b->engine, dst_desc, NULL, &layer->dst));
    gw_primitive_arg(&layer->run, DNNL_ARG_SRC, &layer->src);
    gw_primitive_arg(&layer->run, DNNL_ARG_DST, &layer->dst);
    return gw_layer_setup_workspace(layer, b); /* which value of each window was the largest */
}

static gw_status pool_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                     const struct gw_blob *diff_dst)
{
    const struct gw_layer_spec *s = layer->spec;
    if (!b->needs_diff[0])
        return GW_OK;
    const struct gw_window window = window_of(s);
    dnnl_primitive_desc_t pd;
    GW_TRY(gw_primitive_create(gw_describe_pooling(b->engine, dnnl_backward_data, kind_of(s), layer->src.desc,
                                                   layer->dst.desc, &window, gw_primitive_desc(&layer->run), &pd),
                               &pd, "pooling's backward", &layer->backward));
    GW_TRY(gw_layer_setup_backward(layer, b, diff_dst));
    gw_primitive_arg(&layer->backward, DNNL_ARG_DIFF_DST, &layer->diff_dst);
    gw_primitive_arg(&layer->backward, DNNL_ARG_DIFF_SRC, &layer->diff_src[0]);
    gw_primitive_arg(&layer->backward, DNNL_ARG_WORKSPACE, &layer->workspace);
    return GW_OK;
}

const struct gw_layer_kind gw_layer_pool = {.instance_bytes = sizeof(struct gw_layer),
                                            .declare = pool_declare,
                                            .setup_forward = pool_setup_forward,
                                            .setup_backward = pool_setup_backward};
