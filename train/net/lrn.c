/* Local response normalisation across maps (Krizhevsky et al., 2012), with TensorFlow's CIFAR-10 numbers: a value is
 * divided by (1 + ALPHA * the sum of the squares of the 9 maps around it)^0.75.
 *
 * oneDNN has fast code for windows of 5 only. Its reference took 16 ms forward and 170 ms backward where a convolution
 * of CifarNet takes 13, so this is our own: pixel by pixel, all maps of a pixel in one small array. */
#include "base/clones.h"
#include "base/error.h"
#include "net/network.h"

#include <math.h>

#define SIDE 4             /* how many maps on either side */
#define ALPHA (0.001f / 9) /* the factor of one square */
#define BETA 0.75f
#define MOST_MAPS 1024

struct lrn {
    struct gw_layer head;
    struct gw_maps src_maps; /* where the values lie; dst and the other blobs have the same layout */
};

static gw_status lrn_declare(struct gw_network *network, struct gw_layer_spec *spec)
{
    (void)network;
    spec->out = spec->in;
    return spec->in.channels <= MOST_MAPS
               ? GW_OK
               : gw_fail(GW_ERR_ARGUMENT, "%s: at most %d maps are possible", spec->name, MOST_MAPS);
}

static gw_status lrn_setup_forward(struct gw_layer *layer, const struct gw_layer_build *b,
                                   const struct gw_blob *const *src)
{
    struct lrn *n = (struct lrn *)layer;
    if (gw_maps_of(src[0]->desc, &n->src_maps))
        GW_TRY(gw_reorder_into(b->engine, src[0], src[0]->desc, &layer->src, &layer->reorder_src));
    else {
        GW_TRY(gw_reorder_plain(b->engine, src[0], &layer->src, &layer->reorder_src));
        gw_maps_of(layer->src.desc, &n->src_maps);
    }
    GW_TRY(gw_blob_create(b->engine, layer->src.desc, NULL, &layer->dst));
    /* Forward leaves 1 + ALPHA * squares for backward. */
    return b->training ? gw_blob_create(b->engine, layer->src.desc, NULL, &layer->workspace) : GW_OK;
}

/* ---- one pixel -------------------------------------------------------------------------------------------------- */

/* The maps of a pixel. There is room for the window beyond both ends, where values are 0. */
struct pixel {
    float beyond[2 * SIDE + MOST_MAPS];
};

static void load(const struct gw_maps *m, const float *from, float *to)
{
    for (uint32_t c = 0; c < m->maps; c += m->block, from += m->block_stride)
        for (uint32_t k = 0; k < m->block && c + k < m->maps; k++)
            to[c + k] = from[k];
}

static void store(const struct gw_maps *m, const float *from, float *to)
{
    for (uint32_t c = 0; c < m->maps; c += m->block, to += m->block_stride)
        for (uint32_t k = 0; k < m->block && c + k < m->maps; k++)
            to[k] = from[c + k];
}

/* sums[c] = the sum of values[c - SIDE .. c + SIDE]. The caller has SIDE more values on either side of the n values. */
static void add_windows(uint32_t n, const float *restrict values, float *restrict sums)
{
    for (uint32_t c = 0; c < n; c++) {
        float sum = 0;
        for (int d = -SIDE; d <= SIDE; d++)
            sum += values[(int)c + d];
        sums[c] = sum;
    }
}

/* x^-0.75 */
static inline float shrink(float x)
{
    const float root = sqrtf(x);
    return 1 / (root * sqrtf(root));
}

GW_CLONES
static void forward_pixel(const struct gw_maps *m, const float *src, float *dst, float *base, struct pixel *squares)
{
    float x[MOST_MAPS], sums[MOST_MAPS], *inside = squares->beyond + SIDE;
    load(m, src, x);
    for (uint32_t c = 0; c < m->maps; c++)
        inside[c] = x[c] * x[c];
    add_windows(m->maps, inside, sums);
    for (uint32_t c = 0; c < m->maps; c++) {
        sums[c] = 1 + ALPHA * sums[c];
        x[c] *= shrink(sums[c]);
    }
    store(m, x, dst);
    if (base)
        store(m, sums, base);
}

/* d_c = g_c * base_c^-0.75 - 2 * ALPHA * BETA * x_c * (the window's sum of g * x * base^-1.75) */
GW_CLONES
static void backward_pixel(const struct gw_maps *m, const float *src, const float *base, const float *diff_dst,
                           float *diff_src, struct pixel *products)
{
    float x[MOST_MAPS], g[MOST_MAPS], b[MOST_MAPS], sums[MOST_MAPS], *inside = products->beyond + SIDE;
    load(m, src, x);
    load(m, diff_dst, g);
    load(m, base, b);
    for (uint32_t c = 0; c < m->maps; c++) {
        g[c] *= shrink(b[c]);
        inside[c] = g[c] * x[c] / b[c];
    }
    add_windows(m->maps, inside, sums);
    for (uint32_t c = 0; c < m->maps; c++)
        g[c] -= 2 * ALPHA * BETA * x[c] * sums[c];
    store(m, g, diff_src);
}

/* ---- all pixels ------------------------------------------------------------------------------------------------- */

static gw_status lrn_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    const struct gw_maps *m = &((struct lrn *)layer)->src_maps;
    float *base = layer->workspace.data;
    (void)pass;
#pragma omp parallel for
    for (uint32_t i = 0; i < layer->batch; i++) {
        struct pixel squares = {{0}};
        for (uint64_t p = 0; p < m->pixels; p++) {
            const uint64_t at = i * m->sample_stride + p * m->pixel_stride;
            forward_pixel(m, layer->src.data + at, layer->dst.data + at, base ? base + at : NULL, &squares);
        }
    }
    return GW_OK;
}

static gw_status lrn_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    const struct gw_maps *m = &((struct lrn *)layer)->src_maps;
    (void)pass;
    if (!layer->diff_src[0].data)
        return GW_OK;
#pragma omp parallel for
    for (uint32_t i = 0; i < layer->batch; i++) {
        struct pixel products = {{0}};
        for (uint64_t p = 0; p < m->pixels; p++) {
            const uint64_t at = i * m->sample_stride + p * m->pixel_stride;
            backward_pixel(m, layer->src.data + at, layer->workspace.data + at, layer->diff_dst.data + at,
                           layer->diff_src[0].data + at, &products);
        }
    }
    return GW_OK;
}

const struct gw_layer_kind gw_layer_lrn = {.instance_bytes = sizeof(struct lrn),
                                           .declare = lrn_declare,
                                           .setup_forward = lrn_setup_forward,
                                           .setup_backward = gw_layer_setup_backward,
                                           .forward = lrn_forward,
                                           .backward = lrn_backward};
