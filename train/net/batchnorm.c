/* Batch norm (Ioffe and Szegedy, 2015): each map of a batch gets mean 0 and variance 1, then a scale and a shift that
 * are trained; if the layer says so, rectified linear units follow in the same pass. A training model uses the
 * statistics of its own share of the batch, and keeps a running mean of them. An evaluation model uses those. */
#include "base/error.h"
#include "net/network.h"

#define EPSILON 1e-5f
#define NEW_SHARE 0.1f /* a batch's share in the running statistics, as in PyTorch */

struct batchnorm {
    struct gw_layer head;
    float unbias;                           /* n / (n - 1), if a map has n values */
    float *running_mean, *running_variance; /* the model's statistics */
    struct gw_blob mean, variance;          /* of this batch; for evaluation, the running ones */
    struct gw_blob scale, shift, diff_scale, diff_shift;
};

static gw_status batchnorm_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    const uint64_t maps[1] = {spec->in.channels};
    spec->out = spec->in;
    GW_TRY(gw_network_add_tensor(network, spec, "weight", 1, maps, 0, 1));
    GW_TRY(gw_network_add_tensor(network, spec, "bias", 1, maps, 0, 0));
    GW_TRY(gw_network_add_statistic(network, spec, "running_mean", maps[0], 0));
    return gw_network_add_statistic(network, spec, "running_var", maps[0], 1);
}

static unsigned flags_of(const struct gw_layer_spec *s, bool training)
{
    return dnnl_use_scale | dnnl_use_shift | (s->relu ? dnnl_fuse_norm_relu : 0) |
           (training ? 0 : dnnl_use_global_stats);
}

static gw_status batchnorm_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                         const struct gw_blob *const *src)
{
    struct batchnorm *n = (struct batchnorm *)layer;
    const struct gw_layer_spec *s = layer->spec;
    const struct gw_param *tensors = &b->network->tensors[s->first_tensor],
                          *kept = &b->network->statistics[s->first_statistic];
    const uint64_t begin = b->network->n_trained; /* statistics stand behind the trained tensors */
    const double values = (double)b->batch * s->in.height * s->in.width;
    n->unbias = values > 1 ? (float)(values / (values - 1)) : 1;
    n->running_mean = b->statistics + (kept[0].offset - begin);
    n->running_variance = b->statistics + (kept[1].offset - begin);
    dnnl_primitive_desc_t pd;
    const dnnl_prop_kind_t pass = b->training ? dnnl_forward_training : dnnl_forward_inference;
    GW_TRY(gw_primitive_create(gw_describe_batchnorm(b->engine, pass, src[0]->desc, src[0]->desc, EPSILON,
                                                     flags_of(s, b->training), NULL, &pd),
                               &pd, "batch norm", &layer->run));
    const gw_layout dst_desc = gw_primitive_layout(&layer->run, dnnl_query_dst_md);
    const dnnl_dim_t per_map[1] = {s->in.channels};
    GW_TRY(gw_blob_create(b->engine, src[0]->desc, src[0]->data, &layer->src));
    GW_TRY(gw_blob_plain(b->engine, 1, per_map, b->training ? NULL : n->running_mean, &n->mean));
    GW_TRY(gw_blob_plain(b->engine, 1, per_map, b->training ? NULL : n->running_variance, &n->variance));
    GW_TRY(gw_blob_plain(b->engine, 1, per_map, b->params + tensors[0].offset, &n->scale));
    GW_TRY(gw_blob_plain(b->engine, 1, per_map, b->params + tensors[1].offset, &n->shift));
    GW_TRY(gw_blob_create(b->engine, dst_desc, !b->training && b->may_overwrite ? src[0]->data : NULL, &layer->dst));
    gw_primitive_arg(&layer->run, DNNL_ARG_SRC, &layer->src);
    gw_primitive_arg(&layer->run, DNNL_ARG_MEAN, &n->mean);
    gw_primitive_arg(&layer->run, DNNL_ARG_VARIANCE, &n->variance);
    gw_primitive_arg(&layer->run, DNNL_ARG_SCALE, &n->scale);
    gw_primitive_arg(&layer->run, DNNL_ARG_SHIFT, &n->shift);
    gw_primitive_arg(&layer->run, DNNL_ARG_DST, &layer->dst);
    return gw_layer_setup_workspace(layer, b);
}

static gw_status batchnorm_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                          const struct gw_blob *diff_dst)
{
    struct batchnorm *n = (struct batchnorm *)layer;
    const struct gw_layer_spec *s = layer->spec;
    const struct gw_param *tensors = &b->network->tensors[s->first_tensor];
    dnnl_primitive_desc_t pd;
    GW_TRY(gw_primitive_create(gw_describe_batchnorm(b->engine, dnnl_backward, layer->src.desc, layer->dst.desc,
                                                     EPSILON, flags_of(s, true), gw_primitive_desc(&layer->run), &pd),
                               &pd, "batch norm's backward", &layer->backward));
    GW_TRY(gw_reorder_into(b->engine, diff_dst, layer->dst.desc, &layer->diff_dst, &layer->reorder_diff_dst));
    GW_TRY(gw_blob_create(b->engine, n->scale.desc, b->grads + tensors[0].offset, &n->diff_scale));
    GW_TRY(gw_blob_create(b->engine, n->shift.desc, b->grads + tensors[1].offset, &n->diff_shift));
    GW_TRY(gw_blob_create(b->engine, layer->src.desc, NULL, &layer->diff_src[0]));
    gw_primitive_arg(&layer->backward, DNNL_ARG_SRC, &layer->src);
    gw_primitive_arg(&layer->backward, DNNL_ARG_MEAN, &n->mean);
    gw_primitive_arg(&layer->backward, DNNL_ARG_VARIANCE, &n->variance);
    gw_primitive_arg(&layer->backward, DNNL_ARG_SCALE, &n->scale);
    if (GW_BATCHNORM_BACKWARD_READS_SHIFT)
        gw_primitive_arg(&layer->backward, DNNL_ARG_SHIFT, &n->shift);
    gw_primitive_arg(&layer->backward, DNNL_ARG_DIFF_DST, &layer->diff_dst);
    gw_primitive_arg(&layer->backward, DNNL_ARG_DIFF_SRC, &layer->diff_src[0]);
    gw_primitive_arg(&layer->backward, DNNL_ARG_DIFF_SCALE, &n->diff_scale);
    gw_primitive_arg(&layer->backward, DNNL_ARG_DIFF_SHIFT, &n->diff_shift);
    gw_primitive_arg(&layer->backward, DNNL_ARG_WORKSPACE, &layer->workspace);
    return GW_OK;
}

static gw_status batchnorm_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    GW_TRY(gw_primitive_run(&layer->backward, layer->stream));
    pass->ready(pass->user, layer->spec->first_tensor + 1);
    pass->ready(pass->user, layer->spec->first_tensor);
    return GW_OK;
}

static void batchnorm_keep(struct gw_layer *layer)
{
    struct batchnorm *n = (struct batchnorm *)layer;
    const float *mean = n->mean.data, *variance = n->variance.data;
    for (uint32_t i = 0; i < layer->spec->in.channels; i++) {
        n->running_mean[i] = (1 - NEW_SHARE) * n->running_mean[i] + NEW_SHARE * mean[i];
        n->running_variance[i] = (1 - NEW_SHARE) * n->running_variance[i] + NEW_SHARE * (n->unbias * variance[i]);
    }
}

static void batchnorm_destroy(struct gw_layer *layer)
{
    struct batchnorm *n = (struct batchnorm *)layer;
    struct gw_blob *blobs[] = {&n->mean, &n->variance, &n->scale, &n->shift, &n->diff_scale, &n->diff_shift};
    for (size_t i = 0; i < sizeof blobs / sizeof *blobs; i++)
        gw_blob_destroy(blobs[i]);
}

const struct gw_layer_kind gw_layer_batchnorm = {.instance_bytes = sizeof(struct batchnorm),
                                                 .declare = batchnorm_declare,
                                                 .setup_forward = batchnorm_setup_forward,
                                                 .setup_backward = batchnorm_setup_backward,
                                                 .backward = batchnorm_backward,
                                                 .keep = batchnorm_keep,
                                                 .destroy = batchnorm_destroy};
