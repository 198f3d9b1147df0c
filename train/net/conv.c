/* Convolution. oneDNN chooses the layouts of values and weights. Parameters and gradients stay plain
 * (out, in, height, width), so the 25,000 weights of a small layer are reordered in every pass. */
#include "base/error.h"
#include "net/network.h"

struct conv {
    struct gw_layer head;
    struct gw_blob params, bias, weights;
    struct gw_primitive reorder_weights;

    /* backward by weights, from the head's diff_dst */
    struct gw_blob grads, diff_bias, bw_src, diff_weights;
    struct gw_primitive bw_reorder_src, bw_run, bw_reorder_grads;

    /* backward by data */
    struct gw_blob bd_diff_dst, bd_weights;
    struct gw_primitive bd_reorder_diff_dst, bd_reorder_weights, bd_run;
};

static gw_status conv_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    const uint32_t height = spec->in.height + 2 * spec->padding, width = spec->in.width + 2 * spec->padding;
    if (height < spec->kernel || width < spec->kernel)
        return gw_fail(GW_ERR_ARGUMENT, "%s: a window of %u does not fit into %ux%u", spec->name, spec->kernel, height,
                       width);
    spec->out = (struct gw_shape){spec->units, (height - spec->kernel) / spec->stride + 1,
                                  (width - spec->kernel) / spec->stride + 1};
    uint64_t dims[4] = {spec->units, spec->in.channels, spec->kernel, spec->kernel};
    GW_TRY(gw_network_add_tensor(network, spec, "weight", 4, dims, spec->in.channels * spec->kernel * spec->kernel, 0));
    return spec->no_bias ? GW_OK : gw_network_add_tensor(network, spec, "bias", 1, dims, 0, spec->bias);
}

struct conv_dims {
    dnnl_dim_t src[4], weights[4], bias[1], dst[4];
    struct gw_window window;
};

static struct conv_dims dims_of(const struct gw_layer_spec *s, uint32_t batch)
{
    return (struct conv_dims){{batch, s->in.channels, s->in.height, s->in.width},
                              {s->units, s->in.channels, s->kernel, s->kernel},
                              {s->units},
                              {batch, s->units, s->out.height, s->out.width},
                              {.strides = {s->stride, s->stride},
                               .before = {s->padding, s->padding},
                               .behind = {(s->out.height - 1) * s->stride + s->kernel - s->in.height - s->padding,
                                          (s->out.width - 1) * s->stride + s->kernel - s->in.width - s->padding}}};
}

/* Makes the primitive of a pass. oneDNN chooses all layouts but the bias's. */
static gw_status create(struct conv *c, const struct gw_layer_build *b, dnnl_prop_kind_t prop, const char *what,
                        struct gw_primitive *primitive)
{
    const struct gw_layer_spec *s = c->head.spec;
    const struct conv_dims d = dims_of(s, b->batch);
    enum { SRC, WEIGHTS, BIAS, DST, N_LAYOUTS };
    const struct {
        int rank;
        const dnnl_dim_t *dims;
        dnnl_format_tag_t tag;
    } wanted[N_LAYOUTS] = {[SRC] = {4, d.src, dnnl_format_tag_any},
                           [WEIGHTS] = {4, d.weights, dnnl_format_tag_any},
                           [BIAS] = {1, d.bias, dnnl_a},
                           [DST] = {4, d.dst, dnnl_format_tag_any}};
    struct gw_made_layout made[N_LAYOUTS] = {0};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t described = dnnl_success;
    for (int i = 0; described == dnnl_success && i < N_LAYOUTS; i++)
        described = gw_layout_make(wanted[i].rank, wanted[i].dims, wanted[i].tag, &made[i]);
    if (described == dnnl_success)
        described = gw_describe_convolution(b->engine, prop, made[SRC].layout, made[WEIGHTS].layout,
                                            s->no_bias ? NULL : made[BIAS].layout, made[DST].layout, &d.window,
                                            c->head.run.handle ? gw_primitive_desc(&c->head.run) : NULL, &pd);
    for (int i = 0; i < N_LAYOUTS; i++)
        gw_layout_drop(&made[i]);
    return gw_primitive_create(described, &pd, what, primitive);
}

static gw_status conv_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                    const struct gw_blob *const *src)
{
    struct conv *c = (struct conv *)layer;
    const struct gw_param *tensors = &b->network->tensors[layer->spec->first_tensor];
    struct conv_dims d = dims_of(layer->spec, b->batch);
    GW_TRY(create(c, b, b->training ? dnnl_forward_training : dnnl_forward_inference, "a convolution", &layer->run));
    const gw_layout src_desc = gw_primitive_layout(&layer->run, dnnl_query_src_md),
                    weights_desc = gw_primitive_layout(&layer->run, dnnl_query_weights_md),
                    dst_desc = gw_primitive_layout(&layer->run, dnnl_query_dst_md);

    GW_TRY(gw_blob_plain(b->engine, 4, d.weights, b->params + tensors[0].offset, &c->params));
    if (!layer->spec->no_bias)
        GW_TRY(gw_blob_plain(b->engine, 1, d.bias, b->params + tensors[1].offset, &c->bias));
    GW_TRY(gw_reorder_into(b->engine, src[0], src_desc, &layer->src, &layer->reorder_src));
    GW_TRY(gw_reorder_into(b->engine, &c->params, weights_desc, &c->weights, &c->reorder_weights));
    GW_TRY(gw_blob_create(b->engine, dst_desc, NULL, &layer->dst));
    gw_primitive_arg(&layer->run, DNNL_ARG_SRC, &layer->src);
    gw_primitive_arg(&layer->run, DNNL_ARG_WEIGHTS, &c->weights);
    gw_primitive_arg(&layer->run, DNNL_ARG_BIAS, &c->bias);
    gw_primitive_arg(&layer->run, DNNL_ARG_DST, &layer->dst);
    return GW_OK;
}

static gw_status setup_backward_weights(struct conv *c, const struct gw_layer_build *b, const struct gw_blob *diff_dst)
{
    const struct gw_layer_spec *spec = c->head.spec;
    const struct gw_param *tensors = &b->network->tensors[spec->first_tensor];
    GW_TRY(create(c, b, dnnl_backward_weights, "a convolution's backward by weights", &c->bw_run));
    const gw_layout src_desc = gw_primitive_layout(&c->bw_run, dnnl_query_src_md),
                    diff_dst_desc = gw_primitive_layout(&c->bw_run, dnnl_query_diff_dst_md),
                    weights_desc = gw_primitive_layout(&c->bw_run, dnnl_query_diff_weights_md);

    GW_TRY(gw_blob_create(b->engine, c->params.desc, b->grads + tensors[0].offset, &c->grads));
    if (!spec->no_bias)
        GW_TRY(gw_blob_create(b->engine, c->bias.desc, b->grads + tensors[1].offset, &c->diff_bias));
    GW_TRY(gw_reorder_into(b->engine, &c->head.src, src_desc, &c->bw_src, &c->bw_reorder_src));
    GW_TRY(gw_reorder_into(b->engine, diff_dst, diff_dst_desc, &c->head.diff_dst, &c->head.reorder_diff_dst));
    GW_TRY(gw_reorder_out_of(b->engine, weights_desc, &c->grads, &c->diff_weights, &c->bw_reorder_grads));
    gw_primitive_arg(&c->bw_run, DNNL_ARG_SRC, &c->bw_src);
    gw_primitive_arg(&c->bw_run, DNNL_ARG_DIFF_DST, &c->head.diff_dst);
    gw_primitive_arg(&c->bw_run, DNNL_ARG_DIFF_WEIGHTS, &c->diff_weights);
    gw_primitive_arg(&c->bw_run, DNNL_ARG_DIFF_BIAS, &c->diff_bias);
    return GW_OK;
}

static gw_status setup_backward_data(struct conv *c, const struct gw_layer_build *b, const struct gw_blob *diff_dst)
{
    GW_TRY(create(c, b, dnnl_backward_data, "a convolution's backward by data", &c->bd_run));
    const gw_layout diff_src_desc = gw_primitive_layout(&c->bd_run, dnnl_query_diff_src_md),
                    diff_dst_desc = gw_primitive_layout(&c->bd_run, dnnl_query_diff_dst_md),
                    weights_desc = gw_primitive_layout(&c->bd_run, dnnl_query_weights_md);

    /* Backward by weights has usually made the layout that is wanted here. */
    const struct gw_blob *from =
        dnnl_memory_desc_equal(c->head.diff_dst.desc, diff_dst_desc) ? &c->head.diff_dst : diff_dst;
    GW_TRY(gw_reorder_into(b->engine, from, diff_dst_desc, &c->bd_diff_dst, &c->bd_reorder_diff_dst));
    GW_TRY(gw_reorder_into(b->engine, &c->params, weights_desc, &c->bd_weights, &c->bd_reorder_weights));
    GW_TRY(gw_blob_create(b->engine, diff_src_desc, NULL, &c->head.diff_src[0]));
    gw_primitive_arg(&c->bd_run, DNNL_ARG_DIFF_SRC, &c->head.diff_src[0]);
    gw_primitive_arg(&c->bd_run, DNNL_ARG_WEIGHTS, &c->bd_weights);
    gw_primitive_arg(&c->bd_run, DNNL_ARG_DIFF_DST, &c->bd_diff_dst);
    return GW_OK;
}

static gw_status conv_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                     const struct gw_blob *diff_dst)
{
    struct conv *c = (struct conv *)layer;
    GW_TRY(setup_backward_weights(c, b, diff_dst));
    return b->needs_diff[0] ? setup_backward_data(c, b, diff_dst) : GW_OK;
}

static gw_status conv_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct conv *c = (struct conv *)layer;
    (void)pass;
    GW_TRY(gw_primitive_run(&c->reorder_weights, layer->stream));
    return gw_primitive_run(&layer->run, layer->stream);
}

static gw_status conv_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct conv *c = (struct conv *)layer;
    GW_TRY(gw_primitive_run(&c->bw_reorder_src, layer->stream));
    GW_TRY(gw_primitive_run(&c->bw_run, layer->stream));
    GW_TRY(gw_primitive_run(&c->bw_reorder_grads, layer->stream));
    if (!layer->spec->no_bias)
        pass->ready(pass->user, layer->spec->first_tensor + 1);
    pass->ready(pass->user, layer->spec->first_tensor);
    GW_TRY(gw_primitive_run(&c->bd_reorder_diff_dst, layer->stream));
    GW_TRY(gw_primitive_run(&c->bd_reorder_weights, layer->stream));
    return gw_primitive_run(&c->bd_run, layer->stream);
}

static void conv_destroy(struct gw_layer *layer)
{
    struct conv *c = (struct conv *)layer;
    struct gw_primitive *primitives[] = {
        &c->reorder_weights,     &c->bw_reorder_src,     &c->bw_run, &c->bw_reorder_grads,
        &c->bd_reorder_diff_dst, &c->bd_reorder_weights, &c->bd_run};
    struct gw_blob *blobs[] = {&c->params, &c->bias,         &c->weights,     &c->grads,     &c->diff_bias,
                               &c->bw_src, &c->diff_weights, &c->bd_diff_dst, &c->bd_weights};
    for (size_t i = 0; i < sizeof primitives / sizeof *primitives; i++)
        gw_primitive_destroy(primitives[i]);
    for (size_t i = 0; i < sizeof blobs / sizeof *blobs; i++)
        gw_blob_destroy(blobs[i]);
}

const struct gw_layer_kind gw_layer_conv = {.instance_bytes = sizeof(struct conv),
                                            .declare = conv_declare,
                                            .setup_forward = conv_setup_forward,
                                            .setup_backward = conv_setup_backward,
                                            .forward = conv_forward,
                                            .backward = conv_backward,
                                            .destroy = conv_destroy};
