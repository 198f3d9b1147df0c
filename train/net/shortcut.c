/* A shortcut without parameters past a block that narrows pictures and widens maps (He et al., 2016, option A): every
 * stride-th pixel of each map, and maps of zeros behind them. */
#include "base/error.h"
#include "net/network.h"

#include <string.h>

/* Values stand in blocks of maps: [batch][maps / block][height][width][block]. A plain layout has blocks of one map. */
struct shortcut {
    struct gw_layer head;
    uint32_t block;
};

static gw_status shortcut_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    (void)network;
    if (spec->units < spec->in.channels || spec->stride == 0)
        return gw_fail(GW_ERR_ARGUMENT, "%s: a shortcut cannot drop maps", spec->name);
    spec->out = (struct gw_shape){spec->units, (spec->in.height - 1) / spec->stride + 1,
                                  (spec->in.width - 1) / spec->stride + 1};
    return GW_OK;
}

/* The block of this layout, if it has no gaps and both sides can have it; else 1. */
static uint32_t block_of(const struct gw_blob *src, const struct gw_layer_spec *s)
{
    struct gw_maps maps;
    if (!gw_maps_of(src->desc, &maps) || (maps.block != 16 && maps.block != 8))
        return 1;
    const bool dense = maps.maps % maps.block == 0 && maps.pixel_stride == maps.block &&
                       maps.block_stride == maps.pixels * maps.block && maps.sample_stride == maps.pixels * maps.maps;
    return dense && s->in.channels % maps.block == 0 && s->out.channels % maps.block == 0 ? maps.block : 1;
}

static gw_status shortcut_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                        const struct gw_blob *const *src)
{
    struct shortcut *c = (struct shortcut *)layer;
    c->block = block_of(src[0], layer->spec);
    if (c->block > 1)
        GW_TRY(gw_reorder_into(b->engine, src[0], src[0]->desc, &layer->src, &layer->reorder_src));
    else
        GW_TRY(gw_reorder_plain(b->engine, src[0], &layer->src, &layer->reorder_src));
    const struct gw_shape out = layer->spec->out;
    const dnnl_dims_t dims = {c->head.batch, out.channels, out.height, out.width};
    const dnnl_format_tag_t tag = c->block == 16 ? dnnl_nChw16c : c->block == 8 ? dnnl_nChw8c : dnnl_nchw;
    return gw_blob_tagged(b->engine, 4, dims, tag, NULL, &layer->dst);
}

/* Copies the pixels that both sides have. wide: the side that has all pixels, and fewer maps. */
static void move(const struct shortcut *c, float *wide, float *narrow, bool forward)
{
    const struct gw_layer_spec *s = c->head.spec;
    const size_t row = (size_t)s->in.width * c->block, blocks = s->in.channels / c->block,
                 all_blocks = s->out.channels / c->block;
    for (size_t i = 0; i < c->head.batch; i++)
        for (size_t m = 0; m < blocks; m++)
            for (size_t y = 0; y < s->out.height; y++) {
                float *from = wide + ((i * blocks + m) * s->in.height + y * s->stride) * row;
                float *to = narrow + ((i * all_blocks + m) * s->out.height + y) * s->out.width * c->block;
                for (size_t x = 0; x < s->out.width; x++, from += s->stride * c->block, to += c->block)
                    for (size_t k = 0; k < c->block; k++)
                        if (forward)
                            to[k] = from[k];
                        else
                            from[k] = to[k];
            }
}

static gw_status shortcut_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct shortcut *c = (struct shortcut *)layer;
    (void)pass;
    memset(layer->dst.data, 0, dnnl_memory_desc_get_size(layer->dst.desc));
    move(c, layer->src.data, layer->dst.data, true);
    return GW_OK;
}

static gw_status shortcut_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct shortcut *c = (struct shortcut *)layer;
    (void)pass;
    if (!layer->diff_src[0].data)
        return GW_OK;
    memset(layer->diff_src[0].data, 0, dnnl_memory_desc_get_size(layer->diff_src[0].desc));
    move(c, layer->diff_src[0].data, layer->diff_dst.data, false);
    return GW_OK;
}

const struct gw_layer_kind gw_layer_shortcut = {.instance_bytes = sizeof(struct shortcut),
                                                .declare = shortcut_declare,
                                                .setup_forward = shortcut_setup_forward,
                                                .setup_backward = gw_layer_setup_backward,
                                                .forward = shortcut_forward,
                                                .backward = shortcut_backward};
