/* Measures what a plan needs to know: a link, and what codecs cost over it. The members that are to exchange gradients
 * measure it together.
 *
 *     gw_profile profile = {...};                            // your layers, and how long backward takes for each
 *     gw_probe_measure(ctx, &options, &profile.link, costs); // on every member at the same time
 *     gw_plan_merge(ctx, &profile, ...);                     // plan.h
 *
 * Programs look at the status of both calls. `gradwire probe` does this from the command line. The trainer's --plan
 * exact does it between two steps. This header is experimental, as plan.h is. */
#ifndef GRADWIRE_PROBE_H
#define GRADWIRE_PROBE_H

#include <gradwire/codec.h>
#include <gradwire/link.h>
#include <gradwire/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What to measure. It must be the same on every member, except that each member has its own end of the two links. */
typedef struct gw_probe_options {
    size_t struct_bytes; /* sizeof(gw_probe_options) */
    /* two links between the same members, which are 2 or more. Nobody else may use them during the call; if it
     * succeeds or is stopped, both are free again after it. The first one carries what is measured, so it should be of
     * the kind that gradients will travel over */
    gw_link exchange, meeting;
    gw_codec *const *codecs; /* 1 to GW_PLAN_MAX_CODECS. The first must be "none": the link is measured with floats */
    uint32_t n_codecs;
    const gw_profile_layer *layers; /* of the network that is to be planned; times may be 0 */
    uint32_t n_layers;              /* 1 to GW_PLAN_MAX_LAYERS */
    uint32_t runs;                  /* how often each point is measured, 1 to 1000; the median counts; 0: 3 */
    uint64_t most_elements;         /* no group with more elements is measured, except the whole network; 0: 2^20 */
    uint32_t timeout_ms;            /* a member that is silent for so many milliseconds counts as failed; 0: 60,000 */
    /* Asked now and then. True ends the measurement of all members with GW_ERR_CLOSED; NULL: it is not stopped. It may
     * differ from member to member. */
    bool (*stop)(void *user);
    void *stop_user;
} gw_probe_options;

/* Measures the link and the codecs. All members call it at the same time. For each codec it takes about a second on a
 * fast link, and the time of some ten exchanges of the network on a slow one. *link gets what was measured of the link.
 * costs[] gets what was measured of each codec; it has room for n_codecs. The figures are the same on every member. The
 * `spec` of a cost is the codec's canonical specification, and lives as long as the codec. The calling thread does the
 * work. Errors: GW_ERR_ARGUMENT (also for a codec of one_group, and for layers with no elements or too many),
 * GW_ERR_MEMORY, GW_ERR_TIMEOUT, GW_ERR_PEER, GW_ERR_CLOSED, GW_ERR_SYSTEM. The other members hear of all but
 * GW_ERR_ARGUMENT. After that call again, or gw_link_fail. */
GW_API GW_MUST_CHECK gw_status gw_probe_measure(gw_context *context, const gw_probe_options *options,
                                                gw_profile_link *link, gw_profile_codec *costs);

#ifdef __cplusplus
}
#endif
#endif
