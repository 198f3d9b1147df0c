/* Dropout: while training, a share of the values becomes 0 and the others grow by as much, so that the mean stays.
 * Which values is drawn from seed, step, layer and the sample's place in the whole batch: a resumed run draws the same,
 * and so does another number of workers. */
#include "base/error.h"
#include "base/memory.h"
#include "net/network.h"
#include "random.h"

#include <math.h>
#include <string.h>

struct dropout {
    struct gw_layer head; /* src is plain */
    uint32_t values;      /* of each sample */
    uint32_t tensor;      /* each layer of the network draws from another stream, by this number */
    uint8_t *kept;        /* [head.batch * values]; NULL: the model does not train */
};

static gw_status dropout_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                       const struct gw_blob *const *src)
{
    struct dropout *d = (struct dropout *)layer;
    d->values = (uint32_t)gw_shape_count(layer->spec->in);
    d->tensor = (uint32_t)(layer->spec - b->network->layers);
    if (b->training && !(d->kept = gw_alloc(NULL, (size_t)d->head.batch * d->values, 1)))
        return GW_ERR_MEMORY;
    GW_TRY(gw_reorder_plain(b->engine, src[0], &layer->src, &layer->reorder_src));
    const bool own = layer->src.owns_data || b->may_overwrite; /* if `own`, no other layer reads the memory */
    return gw_blob_create(b->engine, layer->src.desc, own ? layer->src.data : NULL, &layer->dst);
}

/* Draws which values are kept. A word of 32 bits is for two values. */
static void draw(struct dropout *d, const struct gw_pass *pass)
{
    const uint32_t threshold = (uint32_t)lrintf(d->head.spec->drop * 65536);
    for (uint32_t i = 0; i < d->head.batch; i++) {
        uint8_t *kept = d->kept + (size_t)i * d->values;
        const uint64_t sample = pass->first + i;
        for (uint32_t v = 0; v < d->values; v += 8) {
            uint32_t counter[4], words[4];
            gw_philox_counter(counter, v / 8, (uint32_t)pass->step, (enum gw_purpose)GW_PURPOSE_DROPOUT,
                              (uint32_t)sample & 0xFFFFFF, d->tensor << 16 | (uint32_t)(pass->step >> 32 & 0xFFFF));
            gw_philox(counter, pass->seed, words);
            for (uint32_t k = 0; k < 8 && v + k < d->values; k++)
                kept[v + k] = (words[k / 2] >> 16 * (k % 2) & 0xFFFF) >= threshold;
        }
    }
}

static gw_status dropout_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct dropout *d = (struct dropout *)layer;
    const size_t n = (size_t)d->head.batch * d->values;
    const float grow = 1 / (1 - layer->spec->drop), *from = layer->src.data;
    float *to = layer->dst.data;
    if (!d->kept) {
        if (to != from)
            memcpy(to, from, n * sizeof *to);
        return GW_OK;
    }
    draw(d, pass);
    for (size_t i = 0; i < n; i++)
        to[i] = d->kept[i] ? grow * from[i] : 0 * from[i]; /* a NaN stays a NaN */
    return GW_OK;
}

static gw_status dropout_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    struct dropout *d = (struct dropout *)layer;
    const float grow = 1 / (1 - layer->spec->drop);
    (void)pass;
    float *to = layer->diff_src[0].data;
    for (size_t i = 0, n = (size_t)d->head.batch * d->values; to && i < n; i++)
        to[i] = d->kept[i] ? grow * layer->diff_dst.data[i] : 0;
    return GW_OK;
}

static void dropout_destroy(struct gw_layer *layer)
{
    gw_free(NULL, ((struct dropout *)layer)->kept);
}

const struct gw_layer_kind gw_layer_dropout = {.instance_bytes = sizeof(struct dropout),
                                               .declare = gw_layer_declare_same,
                                               .setup_forward = dropout_setup_forward,
                                               .setup_backward = gw_layer_setup_backward,
                                               .forward = dropout_forward,
                                               .backward = dropout_backward,
                                               .destroy = dropout_destroy};
