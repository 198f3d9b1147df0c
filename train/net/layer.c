/* Functions that several kinds of layers share. */
#include "net/layer.h"
#include "base/error.h"

gw_status gw_layer_diff_beside(struct gw_layer *layer, const struct gw_layer_build *b, const struct gw_blob *diff_dst,
                               const float **from, struct gw_primitive *reorder)
{
    *reorder = (struct gw_primitive){0};
    *from = diff_dst->data;
    if (dnnl_memory_desc_equal(diff_dst->desc, layer->dst.desc))
        return gw_blob_create(b->engine, diff_dst->desc, b->may_overwrite ? diff_dst->data : NULL, &layer->diff_src[0]);
    GW_TRY(gw_reorder_into(b->engine, diff_dst, layer->dst.desc, &layer->diff_src[0], reorder));
    *from = layer->diff_src[0].data;
    return GW_OK;
}
