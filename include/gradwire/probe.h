/* Measures what a plan is made of: a link, and what codecs cost over it, by the members that are to exchange gradients.
 *
 *     gw_profile profile = {...};                            // your layers, and how long backward takes for each
 *     gw_probe_measure(ctx, &options, &profile.link, costs); // on every member at the same time
 *     gw_advise(ctx, &profile, GW_COMPRESS_BESIDE, &advice); // plan.h
 *
 * `gradwire probe` does it from the command line, and the trainer's --plan exact between two steps. */
#ifndef GRADWIRE_PROBE_H
#define GRADWIRE_PROBE_H

#include <gradwire/codec.h>
#include <gradwire/link.h>
#include <gradwire/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The same on every member, but for the links' ends. */
typedef struct gw_probe_options {
    size_t struct_bytes; /* sizeof(gw_probe_options) */
    /* Two links between the same 2 or more members. Nobody else uses them meanwhile; both are free again after it. The
     * first carries what is measured, and should be of the kind that gradients will travel over. */
    gw_link exchange, meeting;
    gw_codec *const *codecs; /* 1 to GW_PLAN_MAX_CODECS. The first one is none: the link is measured with floats */
    uint32_t n_codecs;
    const gw_profile_layer *layers; /* of the network that is to be planned; times may be 0 */
    uint32_t n_layers;              /* 1 to GW_PLAN_MAX_LAYERS */
    uint32_t runs;                  /* of each measured point, whose median counts; 1 to 1000; 0: 3 */
    uint64_t most_elements;         /* larger groups are left out, but for the network itself; 0: 2^20 */
    uint32_t timeout_ms;            /* a member that is silent for so long has failed; 0: 60,000 */
} gw_probe_options;

/* All members call it. It takes about a second for each codec on a fast link, and some ten exchanges of the network on
 * a slow one. *link, and costs[] with room for n_codecs, get the same figures on every member. A cost's `spec` is the
 * codec's canonical specification and lives as long as the codec. The calling thread does the work.
 * Errors: GW_ERR_ARGUMENT (also for a codec that decides for all tensors at once, and for layers with no elements or
 * too many), GW_ERR_MEMORY, GW_ERR_TIMEOUT, GW_ERR_PEER, GW_ERR_CLOSED, GW_ERR_SYSTEM. */
GW_API gw_status gw_probe_measure(gw_context *context, const gw_probe_options *options, gw_profile_link *link,
                                  gw_profile_codec *costs);

#ifdef __cplusplus
}
#endif
#endif
