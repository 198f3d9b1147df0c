/* A shortcut without parameters past a block that narrows pictures and widens maps (He et al., 2016, option A): every
 * stride-th pixel of each map, and maps of zeros behind them. */
#include "base/error.h"
#include "net/network.h"

#include <string.h>

static gw_status shortcut_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    (void)network;
    if (spec->units < spec->in.channels || spec->stride == 0)
        return gw_fail(GW_ERR_ARGUMENT, "%s: a shortcut cannot drop maps", spec->name);
    spec->out = (struct gw_shape){spec->units, (spec->in.height - 1) / spec->stride + 1,
                                  (spec->in.width - 1) / spec->stride + 1};
    return GW_OK;
}

static gw_status shortcut_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                        const struct gw_blob *const *src)
{
    const struct gw_shape out = layer->spec->out;
    const dnnl_dims_t dims = {layer->batch, out.channels, out.height, out.width};
    GW_TRY(gw_reorder_plain(b->engine, src[0], &layer->src, &layer->reorder_src));
    return gw_blob_plain(b->engine, 4, dims, NULL, &layer->dst);
}

/* Copies the pixels that both sides have. wide: the side that has all pixels, and fewer maps. */
static void move(const struct gw_layer *layer, float *wide, float *narrow, bool forward)
{
    const struct gw_layer_spec *s = layer->spec;
    const struct gw_shape in = s->in, out = s->out;
    for (size_t i = 0; i < layer->batch; i++)
        for (size_t m = 0; m < in.channels; m++)
            for (size_t y = 0; y < out.height; y++) {
                float *from = wide + ((i * in.channels + m) * in.height + y * s->stride) * in.width;
                float *to = narrow + ((i * out.channels + m) * out.height + y) * out.width;
                for (size_t x = 0; x < out.width; x++)
                    if (forward)
                        to[x] = from[x * s->stride];
                    else
                        from[x * s->stride] = to[x];
            }
}

static gw_status shortcut_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    (void)pass;
    memset(layer->dst.data, 0, dnnl_memory_desc_get_size(layer->dst.desc));
    move(layer, layer->src.data, layer->dst.data, true);
    return GW_OK;
}

static gw_status shortcut_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    (void)pass;
    if (!layer->diff_src[0].data)
        return GW_OK;
    memset(layer->diff_src[0].data, 0, dnnl_memory_desc_get_size(layer->diff_src[0].desc));
    move(layer, layer->diff_src[0].data, layer->diff_dst.data, false);
    return GW_OK;
}

const struct gw_layer_kind gw_layer_shortcut = {.instance_bytes = sizeof(struct gw_layer),
                                                .declare = shortcut_declare,
                                                .setup_forward = shortcut_setup_forward,
                                                .setup_backward = gw_layer_setup_backward,
                                                .forward = shortcut_forward,
                                                .backward = shortcut_backward};
