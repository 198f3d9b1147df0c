/* Functions that several kinds of layers share. */
#include "net/network.h"
#include "base/error.h"

gw_status gw_layer_declare_same(struct gw_network *network, struct gw_layer_spec *spec)
{
    (void)network;
    spec->out = spec->in;
    return GW_OK;
}

gw_status gw_layer_setup_workspace(struct gw_layer *layer, const struct gw_layer_build *b)
{
    const gw_layout layout = gw_primitive_layout(&layer->run, dnnl_query_workspace_md);
    if (!b->training || !layout || dnnl_memory_desc_get_size(layout) == 0)
        return GW_OK;
    GW_TRY(gw_blob_create(b->engine, layout, NULL, &layer->workspace));
    gw_primitive_arg(&layer->run, DNNL_ARG_WORKSPACE, &layer->workspace);
    return GW_OK;
}

gw_status gw_layer_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                  const struct gw_blob *diff_dst)
{
    GW_TRY(gw_reorder_into(b->engine, diff_dst, layer->dst.desc, &layer->diff_dst, &layer->reorder_diff_dst));
    return b->needs_diff[0] ? gw_blob_create(b->engine, layer->src.desc, NULL, &layer->diff_src[0]) : GW_OK;
}
