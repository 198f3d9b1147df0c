/* Looks at rank 0's gradients before and after they are averaged, in a few steps of a run. */
#include "run/histograms.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

/* True for weights. Nobody needs histograms of biases and the like. */
static bool is_weight(const struct gw_param *p)
{
    static const char ending[] = "weight";
    const size_t n = strlen(p->name), m = sizeof ending - 1;
    return n >= m && strcmp(p->name + n - m, ending) == 0;
}

/* Chooses tensors. If the network has more weights than there is room for, they are spread over the network. */
static uint32_t choose_tensors(const struct gw_network *net, uint32_t chosen[GW_HISTOGRAM_TENSORS])
{
    uint32_t n_weights = 0, n = 0, at = 0;
    for (uint32_t i = 0; i < net->n_tensors; i++)
        n_weights += is_weight(&net->tensors[i]);
    for (uint32_t i = 0; i < net->n_tensors; i++)
        if (is_weight(&net->tensors[i]) && gw_is_spread(at++, n_weights, GW_HISTOGRAM_TENSORS))
            chosen[n++] = i;
    return n;
}

void gw_histograms_begin(struct gw_worker *w, uint64_t t)
{
    const struct gw_team *team = w->team;
    uint32_t chosen[GW_HISTOGRAM_TENSORS];
    if (w->control.link.rank > 0 || !team->metrics.histograms.stream ||
        !gw_is_spread(t, team->steps, GW_HISTOGRAM_STEPS))
        return;
    const uint32_t n = choose_tensors(&team->network, chosen);
    gw_free(NULL, w->histograms); /* it may be left from a step that did not end */
    w->histograms = gw_calloc(NULL, 1, sizeof *w->histograms + n * sizeof *w->histograms->rows);
    if (!w->histograms)
        return;
    w->histograms->step = t;
    w->histograms->n = n;
    for (uint32_t i = 0; i < n; i++) {
        const struct gw_param *p = &team->network.tensors[chosen[i]];
        struct gw_histogram_row *row = &w->histograms->rows[i];
        memcpy(row->tensor, p->name, sizeof row->tensor);
        row->number = chosen[i];
        row->elements = p->n_elems;
    }
}

/* Counts what a draw makes of the gradient; for ternary also the clipped gradient. It uses an encoder of its own, with
 * rank 0's own scaler. The scaler of all workers may be larger, but only the exchange knows it. */
static gw_status count_drawn(const struct gw_worker *w, const float *g, gw_encoder *encoder,
                             struct gw_histogram_row *row)
{
    const struct gw_team *team = w->team;
    const gw_draw draw = {.seed = team->options->seed, .rank = w->rank, .step = (uint32_t)w->histograms->step};
    const size_t capacity = gw_encoder_bound(encoder, row->elements);
    size_t n_bytes;
    gw_frame_info info;
    void *frame = gw_alloc(NULL, capacity, 1);
    float *values = gw_alloc(NULL, row->elements, sizeof *values);
    gw_status status = frame && values ? GW_OK : GW_ERR_MEMORY;
    if (status == GW_OK)
        status = gw_encoder_measure_encode(encoder, g, NULL, &draw, frame, capacity, &n_bytes, NULL);
    if (status == GW_OK)
        status = gw_frame_parse(frame, n_bytes, &info);
    if (status == GW_OK)
        status = gw_decode(team->context, frame, n_bytes, values, row->elements);
    if (status == GW_OK)
        gw_histogram_count(&row->kinds[GW_HISTOGRAM_SENT], values, row->elements);
    if (status == GW_OK && strcmp(info.codec, "ternary") == 0 && info.n_scalers == 1) {
        const float most = gw_frame_scaler(frame, n_bytes, 0);
        for (uint64_t i = 0; i < row->elements; i++)
            values[i] = fmaxf(-most, fminf(most, g[i]));
        gw_histogram_count(&row->kinds[GW_HISTOGRAM_CLIPPED], values, row->elements);
    }
    gw_free(NULL, values);
    gw_free(NULL, frame);
    return status;
}

/* Draws again, for codecs that draw without bias. They keep nothing. With a codec that has a residual, this encoder
 * would not have the residual of the run. */
static void draw_again(const struct gw_worker *w, const float *g, struct gw_histogram_row *row)
{
    const struct gw_team *team = w->team;
    const gw_tensor *tensor = &team->tensors[row->number];
    gw_encoder *encoder;
    if (!team->draws || gw_codec_traits_of(team->codec).global || gw_codec_leaves_float(team->codec, tensor) ||
        gw_encoder_create(team->context, team->codec, tensor, &encoder) != GW_OK)
        return;
    if (count_drawn(w, g, encoder, row) != GW_OK)
        row->kinds[GW_HISTOGRAM_SENT].n = row->kinds[GW_HISTOGRAM_CLIPPED].n = 0;
    gw_encoder_destroy(encoder);
}

void gw_histograms_before(struct gw_worker *w, uint32_t tensor)
{
    for (uint32_t i = 0; w->histograms && i < w->histograms->n; i++) {
        struct gw_histogram_row *row = &w->histograms->rows[i];
        const float *g = w->grads + w->team->network.tensors[tensor].offset;
        if (row->number != tensor)
            continue;
        gw_histogram_count(&row->kinds[GW_HISTOGRAM_RAW], g, row->elements);
        if (row->kinds[GW_HISTOGRAM_RAW].n > 0)
            draw_again(w, g, row);
    }
}

void gw_histograms_after(struct gw_worker *w, bool committed)
{
    struct gw_team *team = w->team;
    if (!w->histograms)
        return;
    /* If servers move the parameters, the exchange gives parameters, and no averages. */
    for (uint32_t i = 0; committed && !*team->server_optimizer && i < w->histograms->n; i++) {
        struct gw_histogram_row *row = &w->histograms->rows[i];
        gw_histogram_count(&row->kinds[GW_HISTOGRAM_AVERAGED], w->grads + team->network.tensors[row->number].offset,
                           row->elements);
    }
    if (committed)
        gw_metrics_take_histograms(&team->metrics, w->histograms);
    else
        gw_free(NULL, w->histograms);
    w->histograms = NULL;
}
