/* Checks profiles and plans, and works out when each group of a step is ready, encoded, sent and there. */
#include "plan/profile.h"
#include "plan/timeline.h"

#include "base/error.h"

#include <gradwire/codec.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- checks -------------------------------------------------------------------------------------------- */

static gw_status check_cost(const char *of, const char *what, double value)
{
    if (isfinite(value) && value >= 0)
        return GW_OK;
    return gw_fail(GW_ERR_ARGUMENT, "%s: %s is %g, and must be 0 or more, and finite", of, what, value);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* names: room for n of them. The function sorts them. */
static gw_status check_names(const char **names, uint32_t n, const char *what)
{
    qsort(names, n, sizeof *names, compare_names);
    for (uint32_t i = 1; i < n; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            return gw_fail(GW_ERR_ARGUMENT, "two %s have the name \"%s\"; each name stands for one", what, names[i]);
    return GW_OK;
}

static gw_status check_layers(const gw_profile *p)
{
    const char *names[GW_PLAN_MAX_LAYERS];
    if (p->n_layers == 0 || p->n_layers > GW_PLAN_MAX_LAYERS || !p->layers)
        return gw_fail(GW_ERR_ARGUMENT, "the profile has %u layers, and must have 1 to %u", p->layers ? p->n_layers : 0,
                       GW_PLAN_MAX_LAYERS);
    for (uint32_t l = 0; l < p->n_layers; l++) {
        const gw_profile_layer *layer = &p->layers[l];
        if (!layer->name || !*layer->name)
            return gw_fail(GW_ERR_ARGUMENT, "layer %u of the profile has no name", l);
        if (layer->n_elems == 0 || layer->n_elems > GW_MAX_ELEMENTS)
            return gw_fail(GW_ERR_ARGUMENT, "layer \"%s\" has %" PRIu64 " elements, and must have 1 to %" PRIu64,
                           layer->name, layer->n_elems, (uint64_t)GW_MAX_ELEMENTS);
        GW_TRY(check_cost(layer->name, "backward_ms", layer->backward_ms));
        names[l] = layer->name;
    }
    return check_names(names, p->n_layers, "layers");
}

static gw_status check_codecs(const gw_profile *p)
{
    const char *names[GW_PLAN_MAX_CODECS];
    if (p->n_codecs == 0 || p->n_codecs > GW_PLAN_MAX_CODECS || !p->codecs)
        return gw_fail(GW_ERR_ARGUMENT, "the profile has %u codecs, and must have 1 to %u", p->codecs ? p->n_codecs : 0,
                       GW_PLAN_MAX_CODECS);
    for (uint32_t c = 0; c < p->n_codecs; c++) {
        const gw_profile_codec *codec = &p->codecs[c];
        if (!codec->spec || !*codec->spec)
            return gw_fail(GW_ERR_ARGUMENT, "codec %u of the profile has no specification", c);
        GW_TRY(check_cost(codec->spec, "compress_ms_fixed", codec->compress_ms_fixed));
        GW_TRY(check_cost(codec->spec, "compress_ms_per_element", codec->compress_ms_per_element));
        GW_TRY(check_cost(codec->spec, "decompress_ms_per_element", codec->decompress_ms_per_element));
        GW_TRY(check_cost(codec->spec, "bytes_per_element", codec->bytes_per_element));
        GW_TRY(check_cost(codec->spec, "measure_ms_fixed", codec->measure_ms_fixed));
        GW_TRY(check_cost(codec->spec, "measure_ms_per_element", codec->measure_ms_per_element));
        GW_TRY(check_cost(codec->spec, "busy_ms_per_element", codec->busy_ms_per_element));
        names[c] = codec->spec;
    }
    return check_names(names, p->n_codecs, "codecs");
}

gw_status gw_profile_check(const gw_profile *p)
{
    if (!p)
        return gw_fail(GW_ERR_ARGUMENT, "the profile is NULL");
    GW_TRY(check_cost("the profile", "forward_ms", p->forward_ms));
    GW_TRY(check_layers(p));
    GW_TRY(check_cost("the link", "alpha_ms", p->link.alpha_ms));
    GW_TRY(check_cost("the link", "ms_per_byte", p->link.ms_per_byte));
    GW_TRY(check_cost("the link", "latency_ms", p->link.latency_ms));
    if (p->link.members == 0)
        return gw_fail(GW_ERR_ARGUMENT, "the link has 0 members, and must have 1 or more");
    return check_codecs(p);
}

/* When the processors are done with all work. A layer's work begins when its gradient is there and all earlier work is
 * done. */
static double busy_until(const gw_profile *p, const gw_profile_codec *codec)
{
    double backward = p->forward_ms, busy = 0;
    if (codec->busy_ms_per_element == 0)
        return 0;
    for (uint32_t l = p->n_layers; l-- > 0;) {
        backward += p->layers[l].backward_ms;
        busy = gw_later(busy, backward) + codec->busy_ms_per_element * (double)p->layers[l].n_elems;
    }
    return busy;
}

/* Each number is finite, but their sum may be too large. The sum is all work of all layers, one after the other, with a
 * group for each layer. No plan's step is longer. */
static gw_status check_length(const struct gw_model *model)
{
    const gw_profile *p = model->profile;
    const gw_profile_codec *c = model->codec;
    double ms = p->forward_ms + p->link.latency_ms + model->busy_until;
    for (uint32_t l = 0; l < p->n_layers; l++)
        ms += p->layers[l].backward_ms + c->measure_ms_fixed + c->compress_ms_fixed + p->link.alpha_ms +
              (c->measure_ms_per_element + c->compress_ms_per_element + model->send_ms_per_element) *
                  (double)p->layers[l].n_elems;
    if (isfinite(2 * ms)) /* the factor 2 is for sums in another order, which round differently */
        return GW_OK;
    return gw_fail(GW_ERR_ARGUMENT,
                   "with codec %s the times of the profile add up to more milliseconds than a number can hold",
                   c->spec);
}

gw_status gw_model_init(const gw_profile *profile, uint32_t codec, gw_compress compress, struct gw_model *out)
{
    GW_TRY(gw_profile_check(profile));
    if (codec >= profile->n_codecs)
        return gw_fail(GW_ERR_ARGUMENT, "the profile has no codec number %u; it has %u", codec, profile->n_codecs);
    if (!gw_compress_name(compress))
        return gw_fail(GW_ERR_ARGUMENT, "compress is %d, and must be inline or beside", (int)compress);
    const gw_profile_codec *cost = &profile->codecs[codec];
    *out = (struct gw_model){.profile = profile,
                             .codec = cost,
                             .beside = compress == GW_COMPRESS_BESIDE,
                             .send_ms_per_element =
                                 profile->link.ms_per_byte * cost->bytes_per_element + cost->decompress_ms_per_element,
                             .busy_until = busy_until(profile, cost)};
    return check_length(out);
}

/* ---- the timeline -------------------------------------------------------------------------------------- */

double gw_step_of(const struct gw_model *model, const uint32_t *group_of, gw_group_times *times)
{
    const gw_profile *p = model->profile;
    struct gw_progress now = {.lane = model->beside ? 0 : p->forward_ms, .link = 0};
    double backward = p->forward_ms, n_elems = 0;
    uint32_t end = p->n_layers; /* the layers of a group end before this one */
    for (uint32_t l = p->n_layers; l-- > 0;) {
        const double before = now.lane;
        backward += p->layers[l].backward_ms;
        now.lane = gw_lane_measured(model, now.lane, l, backward);
        n_elems += (double)p->layers[l].n_elems;
        if (l > 0 && group_of[l - 1] == group_of[l])
            continue;
        const double measured = now.lane, link = now.link;
        now.lane = gw_lane_encoded(model, now.lane, n_elems);
        now.link = gw_link_sent(model, link, measured, now.lane, n_elems);
        if (times)
            *times++ =
                (gw_group_times){.first_layer = l,
                                 .n_layers = end - l,
                                 .n_elems = (uint64_t)n_elems,
                                 .ready = model->beside ? backward : before + p->layers[l].backward_ms,
                                 .encode_begin = measured,
                                 .encode_end = now.lane,
                                 .send_begin = gw_send_begin(model, link, measured, now.lane, n_elems),
                                 .send_end = now.link,
                                 .arrived = l == 0 ? gw_step_end(model, now.link) : now.link + p->link.latency_ms};
        n_elems = 0;
        end = l;
    }
    return gw_step_end(model, now.link);
}

/* Checks a plan, and counts its groups. */
static gw_status check_groups(const gw_profile *p, const uint32_t *group_of, uint32_t *n_groups)
{
    uint32_t last = 0;
    for (uint32_t l = p->n_layers; l-- > 0;) {
        if (group_of[l] != last && (l + 1 == p->n_layers || group_of[l] != last + 1))
            return gw_fail(GW_ERR_ARGUMENT,
                           "layer \"%s\" is in group %u, and must be in group %u%s; the last layer is in group 0, and "
                           "groups are neighbours",
                           p->layers[l].name, group_of[l], last, l + 1 == p->n_layers ? "" : " or the next");
        last = group_of[l];
    }
    *n_groups = last + 1;
    return GW_OK;
}

gw_status gw_plan_timeline(const gw_profile *profile, uint32_t codec, gw_compress compress, const uint32_t *group_of,
                           gw_group_times *times, uint32_t capacity, double *step_ms)
{
    struct gw_model model;
    uint32_t n_groups = 0; /* gcc does not see that it is set */
    if (!group_of || !step_ms)
        return gw_fail(GW_ERR_ARGUMENT, "gw_plan_timeline: %s is NULL", group_of ? "step_ms" : "group_of");
    GW_TRY(gw_model_init(profile, codec, compress, &model));
    GW_TRY(check_groups(profile, group_of, &n_groups));
    if (times && capacity < n_groups)
        return gw_fail(GW_ERR_CAPACITY, "the plan has %u groups, and there is room for the times of %u", n_groups,
                       capacity);
    *step_ms = gw_step_of(&model, group_of, times);
    return GW_OK;
}

const char *gw_compress_name(gw_compress compress)
{
    return compress == GW_COMPRESS_INLINE ? "inline" : compress == GW_COMPRESS_BESIDE ? "beside" : NULL;
}
