/* Makes the frames of a step from drawn gradients, one worker after the other. */
#include "pushes.h"
#include "base/error.h"
#include "base/memory.h"
#include "codec/state.h"

#include <string.h>

gw_status tool_pushes_begin(struct tool_pushes *p)
{
    const gw_tensor tensor = {.name = "gradient", .n_elems = p->n_elems};
    GW_TRY(gw_encoder_create(p->context, p->codec, &tensor, &p->encoder));
    p->n_shared = gw_encoder_traits_of(p->encoder).n_shared;
    p->push_capacity = gw_encoder_bound(p->encoder, p->n_elems);
    p->own = gw_calloc(NULL, p->n_shared + 1, sizeof *p->own);
    p->shared = gw_calloc(NULL, p->n_shared + 1, sizeof *p->shared);
    p->push = gw_alloc(NULL, p->push_capacity, 1);
    p->frames = gw_calloc(NULL, p->n_workers, sizeof *p->frames);
    p->frame_bytes = gw_calloc(NULL, p->n_workers, sizeof *p->frame_bytes);
    return p->own && p->shared && p->push && p->frames && p->frame_bytes ? GW_OK : GW_ERR_MEMORY;
}

static gw_status measure(struct tool_pushes *p, const float *g)
{
    bool together;
    GW_TRY(gw_encoders_begin(&p->encoder, 1, &together));
    GW_TRY(gw_encoder_measure(p->encoder, g, p->own, p->n_shared, NULL));
    return together ? gw_encoders_combine(&p->encoder, 1, NULL) : GW_OK;
}

gw_status tool_pushes_encode(struct tool_pushes *p, uint32_t worker)
{
    const gw_draw draw = {.seed = 1, .rank = worker};
    const float *g = p->gradient_of(p->user, worker);
    if (p->n_shared == 0 && !gw_codec_traits_of(p->codec).global)
        return gw_encoder_measure_encode(p->encoder, g, NULL, &draw, p->push, p->push_capacity, &p->push_bytes, NULL);
    GW_TRY(measure(p, g));
    return gw_encoder_encode(p->encoder, g, p->n_shared ? p->shared : NULL, &draw, 0, p->n_elems, p->push,
                             p->push_capacity, &p->push_bytes);
}

gw_status tool_pushes_make(struct tool_pushes *p)
{
    for (uint32_t w = 0; w < p->n_workers && p->n_shared > 0; w++) {
        GW_TRY(measure(p, p->gradient_of(p->user, w)));
        for (uint64_t i = 0; i < p->n_shared; i++)
            p->shared[i] = w == 0 || p->own[i] > p->shared[i] ? p->own[i] : p->shared[i];
    }
    for (uint32_t w = 0; w < p->n_workers; w++) {
        GW_TRY(tool_pushes_encode(p, w));
        if (!(p->frames[w] = gw_alloc(NULL, p->push_bytes, 1)))
            return GW_ERR_MEMORY;
        memcpy(p->frames[w], p->push, p->push_bytes);
        p->frame_bytes[w] = p->push_bytes;
    }
    p->average_capacity = gw_reduce_bound((const void *const *)p->frames, p->frame_bytes, p->n_workers);
    return (p->average = gw_alloc(NULL, p->average_capacity, 1)) ? GW_OK : GW_ERR_MEMORY;
}

gw_status tool_pushes_reduce(struct tool_pushes *p)
{
    const gw_reduce_options options = {.struct_bytes = sizeof options, .codec = p->codec};
    return gw_reduce(p->context, (const void *const *)p->frames, p->frame_bytes, p->n_workers, &options, p->average,
                     p->average_capacity, &p->average_bytes);
}

void tool_pushes_end(struct tool_pushes *p)
{
    for (uint32_t w = 0; p->frames && w < p->n_workers; w++)
        gw_free(NULL, p->frames[w]);
    gw_free(NULL, p->frames);
    gw_free(NULL, p->frame_bytes);
    gw_free(NULL, p->average);
    gw_free(NULL, p->push);
    gw_free(NULL, p->own);
    gw_free(NULL, p->shared);
    gw_encoder_destroy(p->encoder);
}
