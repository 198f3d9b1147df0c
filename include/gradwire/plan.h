/* Plans: which tensors travel together, and how long a step then takes. `gradwire advise` compares codecs by them.
 *
 *     gw_profile profile = {.struct_bytes = sizeof profile, ...};       // measured: gradwire probe
 *     gw_plan_merge(ctx, &profile, 0, GW_COMPRESS_BESIDE, GW_MERGE_EXACT, 0, group_of, &n_groups, &step_ms);
 *
 * Programs look at the status of the call. The model of a step (DLGS, equations 2-8; docs/plan.md works it through).
 * Backward goes from the last layer to the first. A layer is measured when its gradient is ready. A group is encoded
 * when its last layer is measured. It is sent when the link is free. The step ends when the last group has arrived, and
 * the processors have done all work. A group is made of neighbours only.
 *
 * All functions here only compute. Any thread may call them at any time. This header is experimental: a new MINOR
 * version may change it (docs/abi.md). */
#ifndef GRADWIRE_PLAN_H
#define GRADWIRE_PLAN_H

#include <gradwire/context.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GW_PLAN_MAX_LAYERS 2048u
#define GW_PLAN_MAX_CODECS 64u

/* ---- what was measured ---------------------------------------------------------------------- */

/* A layer. It may also be a single tensor, if you measure each tensor for itself. */
typedef struct gw_profile_layer {
    const char *name; /* not NULL, not "", and not twice in a profile */
    uint64_t n_elems; /* 1 to GW_MAX_ELEMENTS of codec.h */
    double backward_ms;
} gw_profile_layer;

/* What a codec costs. All numbers are 0 or more, and finite. */
typedef struct gw_profile_codec {
    const char *spec; /* its specification, for example "ternary". Not NULL, and not twice in a profile */
    double compress_ms_fixed, compress_ms_per_element; /* to encode a group */
    double decompress_ms_per_element;                  /* the model counts it as time of the link */
    double bytes_per_element;                          /* up plus down */
    double measure_ms_fixed, measure_ms_per_element;   /* to measure a layer, before its group is encoded */
    /* Members may share processors. This is how long these processors work on one element, for all members together. No
     * plan makes this work less. The work on a layer begins when its gradient is there, and a step does not end before
     * all work is done. 0: there are enough processors. */
    double busy_ms_per_element;
} gw_profile_codec;

/* What a link costs. A group of n elements keeps the link busy for alpha_ms + (ms_per_byte * bytes_per_element +
 * decompress_ms_per_element) * n. Its averages are there latency_ms later. The next group need not wait for that.
 *
 * run_elements: the exchange sends a large group in runs of this many elements. Then sending begins when the first run
 * is encoded. The last run can only be sent when the whole group is encoded. So sending ends no earlier than that
 * moment plus the time to send one run. 0: a group is encoded whole before it is sent, as in DLGS. */
typedef struct gw_profile_link {
    double alpha_ms, ms_per_byte, latency_ms;
    uint64_t run_elements;
    uint32_t members; /* 1 or more */
} gw_profile_link;

/* What was measured: the input of all plans. The caller owns all that it points to. Functions take no copy. */
typedef struct gw_profile {
    size_t struct_bytes; /* sizeof(gw_profile) */
    double forward_ms;
    const gw_profile_layer *layers; /* the first layer first */
    uint32_t n_layers;              /* 1 to GW_PLAN_MAX_LAYERS */
    gw_profile_link link;
    const gw_profile_codec *codecs;
    uint32_t n_codecs; /* 1 to GW_PLAN_MAX_CODECS */
} gw_profile;

/* ---- a step's timeline ---------------------------------------------------------------------- */

/* Who measures and encodes: the thread of backward itself, and backward waits meanwhile (DLGS's timeline), or a thread
 * beside it. */
typedef enum gw_compress { GW_COMPRESS_INLINE = 1, GW_COMPRESS_BESIDE } gw_compress;

/* ---- merging layers to groups ---------------------------------------------------------------- */

typedef enum gw_merge {
    GW_MERGE_EXACT = 1, /* the plan with the shortest step of all. If several are equal, fewer groups are preferred */
    GW_MERGE_PAPER,     /* DLGS, algorithm 2: from the last layer on, a layer is merged into the one before it if that
                           makes the step shorter */
    GW_MERGE_NONE,      /* a group for each layer */
    GW_MERGE_SINGLE,    /* one group */
    GW_MERGE_FIXED      /* a group takes layers until it has fixed_bytes bytes of float32 or more, like the
                           buckets of PyTorch (25 MiB) and Horovod (64 MiB) */
} gw_merge;

/* Makes a plan. fixed_bytes: 1 or more with GW_MERGE_FIXED; 0 with all other methods. group_of: has room for n_layers
 * numbers, and gets the group of each layer, numbered in the order in which backward finishes them: the last layer is
 * in group 0, and each layer before it in the same group as its successor or in the next one. n_groups and step_ms
 * may be NULL. The same profile gives the same plan on every machine with the same floating point. Errors:
 * GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API GW_MUST_CHECK gw_status gw_plan_merge(gw_context *context, const gw_profile *profile, uint32_t codec,
                                             gw_compress compress, gw_merge method, uint64_t fixed_bytes,
                                             uint32_t *group_of, uint32_t *n_groups, double *step_ms);

#ifdef __cplusplus
}
#endif
#endif
