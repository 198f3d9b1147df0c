/* Says which codec makes the shortest step. */
#ifndef GW_PLAN_ADVISE_H
#define GW_PLAN_ADVISE_H

#include <gradwire/plan.h>

/* A codec of the profile with its best plan. */
typedef struct gw_codec_advice {
    uint32_t codec; /* its number in the profile; n_codecs stands for floats if the profile does not have them */
    double step_ms; /* with the exact plan */
    uint32_t n_groups;
    double bytes;   /* of all groups, up plus down */
    double speedup; /* the step with floats divided by this step, each with its best plan */
    /* From this many milliseconds a byte on, the codec's step is shorter than that with floats, if all else is equal.
     * gw_advise looks at links from a thousandth to a million times the profile's ms_per_byte. 0: it is shorter on all
     * of these links. INFINITY: it is shorter on none of them. */
    double pays_from_ms_per_byte;
    bool pays; /* here its step is shorter than that with floats, by more than a thousandth */
} gw_codec_advice;

typedef struct gw_advice {
    gw_codec_advice codecs[GW_PLAN_MAX_CODECS + 1]; /* the shortest step first */
    uint32_t n_codecs;
    gw_codec_advice floats; /* codec "none"; it is in the list too */
    /* True if the profile has no codec "none". Then gw_advise assumes that floats take no time, and 8 (members - 1) /
     * members bytes an element: all of a gradient but the member's own share goes to the owners and comes back. */
    bool assumed_floats;
} gw_advice;

/* Compares the time of all codecs of a profile, each with its exact plan. What they cost in accuracy, gw_codec_lost
 * says. link.ms_per_byte may not be 0. Errors: GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_MUST_CHECK gw_status gw_advise(gw_context *context, const gw_profile *profile, gw_compress compress, gw_advice *out);

#endif
