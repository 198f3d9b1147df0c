/* Measures what a codec costs on drawn gradients: encodes them, reduces the frames, and counts bits and seconds. */
#include "codec_cost.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "probe/gradient.h"
#include "pushes.h"

enum {
    MOST_ELEMENTS = 256 << 10,
    LEAST_ELEMENTS = 32 << 10, /* with so many, a frame's header counts little */
    ALL_ELEMENTS = 16 << 20,   /* of all workers together */
    TIMED_ELEMENTS = 4 << 20,
    TIMED_RUNS = 5
};

/* The gradient of one worker: all of them together would take much memory. */
struct drawn {
    float *gradient;
    uint64_t n_elems;
    uint32_t worker;
};

static const float *draw(void *user, uint32_t worker)
{
    struct drawn *d = user;
    if (worker != d->worker)
        gw_draw_gradient(d->gradient, worker * d->n_elems, d->n_elems);
    d->worker = worker;
    return d->gradient;
}

/* Makes the pushes of all workers and their average. The caller ends both, also after an error. */
static gw_status prepare(struct tool_pushes *p, struct drawn *drawn)
{
    *drawn = (struct drawn){gw_alloc(NULL, p->n_elems, sizeof(float)), p->n_elems, UINT32_MAX};
    p->gradient_of = draw;
    p->user = drawn;
    if (!drawn->gradient)
        return GW_ERR_MEMORY;
    GW_TRY(tool_pushes_begin(p));
    GW_TRY(tool_pushes_make(p));
    return tool_pushes_reduce(p);
}

gw_status tool_codec_bits(gw_context *context, const gw_codec *codec, uint32_t machines, double *bits_up,
                          double *bits_down)
{
    struct drawn drawn;
    struct tool_pushes p = {.context = context, .codec = codec};
    p.n_workers = machines < TOOL_MOST_PUSHES ? machines : TOOL_MOST_PUSHES;
    p.n_elems = ALL_ELEMENTS / p.n_workers;
    p.n_elems = p.n_elems < LEAST_ELEMENTS ? LEAST_ELEMENTS : p.n_elems > MOST_ELEMENTS ? MOST_ELEMENTS : p.n_elems;
    gw_status status = prepare(&p, &drawn);
    if (status >= 0) {
        double bytes = 0;
        for (uint32_t w = 0; w < p.n_workers; w++)
            bytes += (double)p.frame_bytes[w];
        *bits_up = 8 * bytes / p.n_workers / (double)p.n_elems;
        *bits_down = 8 * (double)p.average_bytes / (double)p.n_elems;
    }
    tool_pushes_end(&p);
    gw_free(NULL, drawn.gradient);
    return status;
}

/* Runs each operation once. The gradient is that of the last worker. */
static gw_status time_once(struct tool_pushes *p, float *out, double *encode_s, double *decode_s)
{
    const double start = gw_clock_seconds();
    GW_TRY(tool_pushes_encode(p, p->n_workers - 1));
    const double encoded = gw_clock_seconds();
    GW_TRY(gw_decode(p->context, p->average, p->average_bytes, out, p->n_elems));
    *encode_s = encoded - start;
    *decode_s = gw_clock_seconds() - encoded;
    return GW_OK;
}

gw_status tool_codec_seconds(gw_context *context, const gw_codec *codec, double *seconds_per_element)
{
    struct drawn drawn;
    struct tool_pushes p = {.context = context, .codec = codec, .n_workers = 2, .n_elems = TIMED_ELEMENTS};
    double encode_s[TIMED_RUNS], decode_s[TIMED_RUNS];
    float *out = gw_calloc(NULL, p.n_elems, sizeof *out);
    gw_status status = prepare(&p, &drawn);
    if (status >= 0 && !out)
        status = GW_ERR_MEMORY;
    if (status >= 0) /* the first run touches memory for the first time, so it does not count */
        status = time_once(&p, out, &encode_s[0], &decode_s[0]);
    for (int run = 0; run < TIMED_RUNS && status >= 0; run++)
        status = time_once(&p, out, &encode_s[run], &decode_s[run]);
    if (status >= 0)
        *seconds_per_element = (gw_median(encode_s, TIMED_RUNS) + gw_median(decode_s, TIMED_RUNS)) / (double)p.n_elems;
    tool_pushes_end(&p);
    gw_free(NULL, out);
    gw_free(NULL, drawn.gradient);
    return status;
}
