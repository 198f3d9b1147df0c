/* Adds the values of two layers: where a shortcut meets its block again. */
#include "base/error.h"
#include "net/network.h"

struct add {
    struct gw_layer head; /* its src: the second input, in the layout of the first */
    const float *first;
};

static gw_status add_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    (void)network;
    spec->out = spec->in;
    return spec->n_inputs == 2 ? GW_OK : gw_fail(GW_ERR_ARGUMENT, "%s: an addition has two inputs", spec->name);
}

static gw_status add_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                   const struct gw_blob *const *src)
{
    ((struct add *)layer)->first = src[0]->data;
    GW_TRY(gw_reorder_into(b->engine, src[1], src[0]->desc, &layer->src, &layer->reorder_src));
    return gw_blob_create(b->engine, src[0]->desc, b->may_overwrite ? src[0]->data : NULL, &layer->dst);
}

/* Both inputs get the same gradient. */
static gw_status add_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                    const struct gw_blob *diff_dst)
{
    for (uint32_t k = 0; k < 2; k++)
        if (b->needs_diff[k])
            GW_TRY(gw_blob_create(b->engine, diff_dst->desc, diff_dst->data, &layer->diff_src[k]));
    return GW_OK;
}

static gw_status add_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    const float *first = ((struct add *)layer)->first, *second = layer->src.data;
    const size_t n = gw_blob_floats(&layer->dst);
    float *to = layer->dst.data;
    (void)pass;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++)
        to[i] = first[i] + second[i];
    return GW_OK;
}

const struct gw_layer_kind gw_layer_add = {.instance_bytes = sizeof(struct add),
                                           .declare = add_declare,
                                           .setup_forward = add_setup_forward,
                                           .setup_backward = add_setup_backward,
                                           .forward = add_forward};
