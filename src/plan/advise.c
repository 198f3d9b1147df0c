/* Compares the codecs of a profile, each with its exact plan: which is the fastest, and which pays. */
#include "plan/advise.h"
#include "plan/profile.h"
#include "base/error.h"
#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The links that are compared: a byte takes from a thousandth of the profile's time to a million times as much. */
enum { STEPS_PER_DECADE = 8, DECADES_BELOW = 3, DECADES_ABOVE = 6, BISECTIONS = 40 };
enum { N_LINKS = (DECADES_BELOW + DECADES_ABOVE) * STEPS_PER_DECADE + 1 };

/* Shortens the list: measurements cannot tell such plans apart. */
#define WORTH_TAKING 0.999

struct comparison {
    gw_context *context;
    gw_profile profile; /* its link varies */
    gw_profile floats;  /* with codec "none" alone */
    gw_compress compress;
    uint32_t *group_of; /* room for one plan */
    double floats_ms[N_LINKS];
};

static gw_status step_ms(struct comparison *c, const gw_profile *profile, uint32_t codec, double ms_per_byte,
                         double *out, uint32_t *n_groups)
{
    gw_profile varied = *profile;
    varied.link.ms_per_byte = ms_per_byte;
    return gw_plan_merge(c->context, &varied, codec, c->compress, GW_MERGE_EXACT, 0, c->group_of, n_groups, out);
}

static double nth_link(const struct comparison *c, int nth)
{
    return c->profile.link.ms_per_byte * pow(10, (double)nth / STEPS_PER_DECADE - DECADES_BELOW);
}

/* Finds the link on which the codec begins to pay, between one on which it does not pay and a slower one on which it
 * does. */
static gw_status halve(struct comparison *c, uint32_t codec, double fast, double slow, double *out)
{
    for (int i = 0; i < BISECTIONS && slow / fast > 1 + 1e-9; i++) {
        const double middle = sqrt(fast * slow);
        double floats_ms, codec_ms;
        GW_TRY(step_ms(c, &c->floats, 0, middle, &floats_ms, NULL));
        GW_TRY(step_ms(c, &c->profile, codec, middle, &codec_ms, NULL));
        if (codec_ms < floats_ms)
            slow = middle;
        else
            fast = middle;
    }
    *out = slow;
    return GW_OK;
}

static gw_status find_break_even(struct comparison *c, uint32_t codec, double *out)
{
    int pays_from = N_LINKS;
    for (; pays_from > 0; pays_from--) { /* begins with the slowest link, to find where the codec stops to pay */
        double codec_ms;
        GW_TRY(step_ms(c, &c->profile, codec, nth_link(c, pays_from - 1), &codec_ms, NULL));
        if (codec_ms >= c->floats_ms[pays_from - 1])
            break;
    }
    *out = pays_from == 0 ? 0 : INFINITY;
    if (pays_from == 0 || pays_from == N_LINKS)
        return GW_OK;
    return halve(c, codec, nth_link(c, pays_from - 1), nth_link(c, pays_from), out);
}

static double bytes_of(const gw_profile *p, uint32_t codec)
{
    double n_elems = 0;
    for (uint32_t l = 0; l < p->n_layers; l++)
        n_elems += (double)p->layers[l].n_elems;
    return n_elems * p->codecs[codec].bytes_per_element;
}

static int shorter_first(const void *a, const void *b)
{
    const gw_codec_advice *one = a, *other = b;
    if (one->step_ms != other->step_ms)
        return one->step_ms < other->step_ms ? -1 : 1;
    return one->bytes != other->bytes ? (one->bytes < other->bytes ? -1 : 1) : one->codec < other->codec ? -1 : 1;
}

static gw_status compare(struct comparison *c, uint32_t floats, gw_advice *out)
{
    const gw_profile *p = &c->profile;
    const double here = p->link.ms_per_byte;
    out->floats = (gw_codec_advice){.codec = floats, .bytes = bytes_of(&c->floats, 0), .speedup = 1};
    out->floats.pays_from_ms_per_byte = INFINITY;
    GW_TRY(step_ms(c, &c->floats, 0, here, &out->floats.step_ms, &out->floats.n_groups));
    for (int i = 0; i < N_LINKS; i++)
        GW_TRY(step_ms(c, &c->floats, 0, nth_link(c, i), &c->floats_ms[i], NULL));
    out->codecs[out->n_codecs++] = out->floats;
    for (uint32_t k = 0; k < p->n_codecs; k++) {
        gw_codec_advice *one = &out->codecs[out->n_codecs];
        if (k == floats)
            continue;
        *one = (gw_codec_advice){.codec = k, .bytes = bytes_of(p, k)};
        GW_TRY(step_ms(c, p, k, here, &one->step_ms, &one->n_groups));
        one->speedup = one->step_ms > 0 ? out->floats.step_ms / one->step_ms : 1;
        one->pays = one->step_ms < WORTH_TAKING * out->floats.step_ms;
        GW_TRY(find_break_even(c, k, &one->pays_from_ms_per_byte));
        out->n_codecs++;
    }
    qsort(out->codecs, out->n_codecs, sizeof *out->codecs, shorter_first);
    return GW_OK;
}

gw_status gw_advise(gw_context *context, const gw_profile *profile, gw_compress compress, gw_advice *out)
{
    if (!out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_advise: out is NULL");
    GW_TRY(gw_profile_check(profile));
    if (!gw_compress_name(compress))
        return gw_fail(GW_ERR_ARGUMENT, "gw_advise: compress is %d, and must be inline or beside", (int)compress);
    if (profile->link.ms_per_byte == 0)
        return gw_fail(GW_ERR_ARGUMENT, "the link's ms_per_byte is 0; advice needs a link that takes time for a byte");
    uint32_t floats = 0;
    while (floats < profile->n_codecs && strcmp(profile->codecs[floats].spec, "none") != 0)
        floats++;
    const double members = profile->link.members;
    const gw_profile_codec assumed = {.spec = "none", .bytes_per_element = 8 * (members - 1) / members};
    struct comparison c = {.context = context, .profile = *profile, .floats = *profile, .compress = compress};
    c.floats.codecs = floats < profile->n_codecs ? &profile->codecs[floats] : &assumed;
    c.floats.n_codecs = 1;
    c.group_of = gw_alloc(context, profile->n_layers, sizeof *c.group_of);
    if (!c.group_of)
        return GW_ERR_MEMORY;
    *out = (gw_advice){.n_codecs = 0, .assumed_floats = floats == profile->n_codecs};
    gw_status status = compare(&c, floats, out);
    gw_free(context, c.group_of);
    return status;
}
