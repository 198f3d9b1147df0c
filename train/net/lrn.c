/* Local response normalisation across maps (Krizhevsky et al., 2012), with TensorFlow's CIFAR-10 numbers: a value is
 * divided by (1 + ALPHA * the sum of the squares of the 9 maps around it)^0.75.
 *
 * oneDNN has fast code for windows of 5 only. Its reference took 16 ms forward and 170 ms backward where a convolution
 * of CifarNet takes 13, so this is our own: pixel by pixel. The maps come last, so those of a pixel stand side by side.
 */
#include "base/clones.h"
#include "base/error.h"
#include "net/network.h"

#include <math.h>
#include <string.h>

#define SIDE 4             /* how many maps on either side */
#define ALPHA (0.001f / 9) /* the factor of one square */
#define BETA 0.75f
#define MOST_MAPS 1024

struct lrn {
    struct gw_layer head; /* its src and diff_dst have the maps last */
    struct gw_blob out;   /* dst, with the maps last; layer->run takes it to dst */
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
    GW_TRY(gw_reorder_tagged(b->engine, src[0], dnnl_nhwc, &layer->src, &layer->reorder_src));
    GW_TRY(gw_blob_create(b->engine, layer->src.desc, NULL, &n->out));
    GW_TRY(gw_reorder_into(b->engine, &n->out, src[0]->desc, &layer->dst, &layer->run));
    /* Forward leaves 1 + ALPHA * squares for backward. */
    return b->training ? gw_blob_create(b->engine, layer->src.desc, NULL, &layer->workspace) : GW_OK;
}

static gw_status lrn_setup_backward(struct gw_layer *layer, const struct gw_layer_build *b,
                                    const struct gw_blob *diff_dst)
{
    GW_TRY(gw_reorder_into(b->engine, diff_dst, layer->src.desc, &layer->diff_dst, &layer->reorder_diff_dst));
    return b->needs_diff[0] ? gw_blob_create(b->engine, layer->src.desc, NULL, &layer->diff_src[0]) : GW_OK;
}

/* ---- one pixel -------------------------------------------------------------------------------------------------- */

/* The maps of a pixel. There is room for the window beyond both ends, where values are 0. */
struct pixel {
    float beyond[2 * SIDE + MOST_MAPS];
};

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
static void forward_pixel(uint32_t n, const float *restrict x, float *restrict dst, float *restrict base,
                          struct pixel *restrict squares)
{
    float sums[MOST_MAPS], *inside = squares->beyond + SIDE;
    for (uint32_t c = 0; c < n; c++)
        inside[c] = x[c] * x[c];
    add_windows(n, inside, sums);
    for (uint32_t c = 0; c < n; c++) {
        sums[c] = 1 + ALPHA * sums[c];
        dst[c] = x[c] * shrink(sums[c]);
    }
    if (base)
        memcpy(base, sums, n * sizeof *base);
}

/* d_c = g_c * base_c^-0.75 - 2 * ALPHA * BETA * x_c * (the window's sum of g * x * base^-1.75) */
GW_CLONES
static void backward_pixel(uint32_t n, const float *restrict x, const float *restrict base, const float *restrict g,
                           float *restrict d, struct pixel *restrict products)
{
    float sums[MOST_MAPS], *inside = products->beyond + SIDE;
    for (uint32_t c = 0; c < n; c++) {
        d[c] = g[c] * shrink(base[c]);
        inside[c] = d[c] * x[c] / base[c];
    }
    add_windows(n, inside, sums);
    for (uint32_t c = 0; c < n; c++)
        d[c] -= 2 * ALPHA * BETA * x[c] * sums[c];
}

/* ---- all pixels ------------------------------------------------------------------------------------------------- */

static gw_status lrn_forward(struct gw_layer *layer, const struct gw_pass *pass)
{
    const uint32_t maps = layer->spec->in.channels;
    const size_t floats = gw_shape_count(layer->spec->in);
    float *base = layer->workspace.data, *out = ((struct lrn *)layer)->out.data;
    (void)pass;
#pragma omp parallel for
    for (uint32_t i = 0; i < layer->batch; i++) {
        struct pixel squares = {{0}};
        for (size_t at = i * floats; at < (i + 1) * floats; at += maps)
            forward_pixel(maps, layer->src.data + at, out + at, base ? base + at : NULL, &squares);
    }
    return gw_primitive_run(&layer->run, layer->stream);
}

static gw_status lrn_backward(struct gw_layer *layer, const struct gw_pass *pass)
{
    const uint32_t maps = layer->spec->in.channels;
    const size_t floats = gw_shape_count(layer->spec->in);
    (void)pass;
    if (!layer->diff_src[0].data)
        return GW_OK;
#pragma omp parallel for
    for (uint32_t i = 0; i < layer->batch; i++) {
        struct pixel products = {{0}};
        for (size_t at = i * floats; at < (i + 1) * floats; at += maps)
            backward_pixel(maps, layer->src.data + at, layer->workspace.data + at, layer->diff_dst.data + at,
                           layer->diff_src[0].data + at, &products);
    }
    return GW_OK;
}

static void lrn_destroy(struct gw_layer *layer)
{
    gw_blob_destroy(&((struct lrn *)layer)->out);
}

const struct gw_layer_kind gw_layer_lrn = {.instance_bytes = sizeof(struct lrn),
                                           .declare = lrn_declare,
                                           .setup_forward = lrn_setup_forward,
                                           .setup_backward = lrn_setup_backward,
                                           .forward = lrn_forward,
                                           .backward = lrn_backward,
                                           .destroy = lrn_destroy};
