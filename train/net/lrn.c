/* Local response normalisation across maps (Krizhevsky et al., 2012), with TensorFlow's CIFAR-10 numbers: a value is
 * divided by (1 + ALPHA * the sum of the squares of the 9 maps around it)^0.75. */
#include "base/error.h"
#include "net/network.h"

#define WINDOW 9             /* maps, the middle one included */
#define ALPHA (0.001f / 9)   /* of one square; oneDNN divides its alpha by the window */
#define BETA 0.75f

struct lrn {
    struct gw_layer head;
    dnnl_primitive_desc_t hint;
    struct gw_blob src, workspace, diff_dst;
    struct gw_primitive run, reorder_diff_dst, backward;
};

static gw_status lrn_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    (void)network;
    spec->out = spec->in;
    return GW_OK;
}

static gw_status lrn_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                   const struct gw_blob *const *src)
{
    struct lrn *n = (struct lrn *)layer;
    dnnl_lrn_desc_t desc;
    GW_TRY(gw_dnn_check(dnnl_lrn_forward_desc_init(&desc, b->training ? dnnl_forward_training : dnnl_forward_inference,
                                                   dnnl_lrn_across_channels, &src[0]->desc, WINDOW, WINDOW * ALPHA,
                                                   BETA, 1),
                        "response normalisation"));
    dnnl_primitive_desc_t pd;
    GW_TRY(gw_primitive_desc_create(b->engine, &desc, NULL, "response normalisation", &pd));
    if (b->training)
        dnnl_primitive_desc_clone(&n->hint, pd);
    const dnnl_memory_desc_t dst_desc = *dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0);
    const dnnl_memory_desc_t *workspace_desc = dnnl_primitive_desc_query_md(pd, dnnl_query_workspace_md, 0);
    const bool remembers = b->training && workspace_desc && dnnl_memory_desc_get_size(workspace_desc) > 0;
    if (remembers)
        GW_TRY(gw_blob_create(b->engine, workspace_desc, NULL, &n->workspace));
    GW_TRY(gw_primitive_create(pd, "response normalisation", &n->run));
    GW_TRY(gw_blob_create(b->engine, &src[0]->desc, src[0]->data, &n->src));
    GW_TRY(gw_blob_create(b->engine, &dst_desc, NULL, &layer->dst));
    gw_primitive_arg(&n->run, DNNL_ARG_SRC, &n->src);
    gw_primitive_arg(&n->run, DNNL_ARG_DST, &layer->dst);
    if (remembers)
        gw_primitive_arg(&n->run, DNNL_ARG_WORKSPACE, &n->workspace);
    return GW_OK;
}

static gw_status lrn_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                    const struct gw_blob *diff_dst)
{
    struct lrn *n = (struct lrn *)layer;
    dnnl_lrn_desc_t desc;
    GW_TRY(gw_dnn_check(dnnl_lrn_backward_desc_init(&desc, dnnl_lrn_across_channels, &n->src.desc, &layer->dst.desc,
                                                    WINDOW, WINDOW * ALPHA, BETA, 1),
                        "response normalisation's backward"));
    dnnl_primitive_desc_t pd;
    GW_TRY(gw_primitive_desc_create(b->engine, &desc, n->hint, "response normalisation's backward", &pd));
    GW_TRY(gw_primitive_create(pd, "response normalisation's backward", &n->backward));
    GW_TRY(gw_reorder_into(b->engine, diff_dst, &layer->dst.desc, &n->diff_dst, &n->reorder_diff_dst));
    GW_TRY(gw_blob_create(b->engine, &n->src.desc, NULL, &layer->diff_src[0]));
    gw_primitive_arg(&n->backward, DNNL_ARG_SRC, &n->src);
    gw_primitive_arg(&n->backward, DNNL_ARG_DIFF_DST, &n->diff_dst);
    gw_primitive_arg(&n->backward, DNNL_ARG_DIFF_SRC, &layer->diff_src[0]);
    if (n->workspace.memory)
        gw_primitive_arg(&n->backward, DNNL_ARG_WORKSPACE, &n->workspace);
    return GW_OK;
}

static gw_status lrn_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    (void)pass;
    return gw_primitive_run(&((struct lrn *)layer)->run, layer->stream);
}

static gw_status lrn_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct lrn *n = (struct lrn *)layer;
    (void)pass;
    GW_TRY(gw_primitive_run(&n->reorder_diff_dst, layer->stream));
    return gw_primitive_run(&n->backward, layer->stream);
}

static void lrn_destroy(struct gw_layer *layer)
{
    struct lrn *n = (struct lrn *)layer;
    gw_primitive_destroy(&n->run);
    gw_primitive_destroy(&n->reorder_diff_dst);
    gw_primitive_destroy(&n->backward);
    gw_blob_destroy(&n->src);
    gw_blob_destroy(&n->workspace);
    gw_blob_destroy(&n->diff_dst);
    if (n->hint)
        dnnl_primitive_desc_destroy(n->hint);
}

const struct gw_layer_kind gw_layer_lrn = {.name = "response normalisation",
                                           .instance_bytes = sizeof(struct lrn),
                                           .declare = lrn_declare,
                                           .setup_forward = lrn_setup_forward,
                                           .setup_backward = lrn_setup_backward,
                                           .forward = lrn_forward,
                                           .backward = lrn_backward,
                                           .destroy = lrn_destroy};
