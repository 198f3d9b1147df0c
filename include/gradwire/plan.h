/* Plans: which tensors travel together, how long a step then takes, and whether compression pays at all.
 *
 *     gw_profile profile = {.struct_bytes = sizeof profile, ...};       // measured: gradwire probe
 *     gw_plan_merge(ctx, &profile, 0, GW_COMPRESS_BESIDE, GW_MERGE_EXACT, 0, group_of, &n_groups, &step_ms);
 *     gw_advise(ctx, &profile, GW_COMPRESS_BESIDE, &advice);            // what to take
 *
 * The model of a step (DLGS, equations 2-8; docs/plan.md works it through). Backward goes from the last layer to the
 * first. A layer is measured when its gradient is ready. A group is encoded when its last layer is measured. It is sent
 * when the link is free. The step ends when the last group has arrived. A group is made of neighbours only.
 *
 * All functions here only compute. Any thread may call them at any time. */
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

/* A layer, or a tensor if each is told apart. */
typedef struct gw_profile_layer {
    const char *name; /* not NULL, not "", and not twice in a profile */
    uint64_t n_elems; /* 1 to GW_MAX_ELEMENTS of codec.h */
    double backward_ms;
} gw_profile_layer;

/* What a codec costs. All are 0 or more and finite. */
typedef struct gw_profile_codec {
    const char *spec; /* its specification, for example "ternary"; not NULL, and not twice in a profile */
    double compress_ms_fixed, compress_ms_per_element; /* of a group */
    double decompress_ms_per_element;                  /* the link is busy with it */
    double bytes_per_element;                          /* up plus down */
    double measure_ms_fixed, measure_ms_per_element;   /* of each layer, before its group is encoded */
} gw_profile_codec;

/* A group of n elements keeps the link busy for alpha_ms + (ms_per_byte * bytes_per_element +
 * decompress_ms_per_element) * n. Its averages are there latency_ms after that; the next group need not wait for it.
 *
 * run_elements: large groups travel in runs of so many elements, as the exchange sends them. Then sending begins when
 * the first run is encoded, and ends no earlier than the last run's time after the group is encoded. 0: a group is
 * encoded whole before it is sent, as in DLGS. */
typedef struct gw_profile_link {
    double alpha_ms, ms_per_byte, latency_ms;
    uint64_t run_elements;
    uint32_t members; /* 1 or more */
} gw_profile_link;

/* The caller owns all that it points to. Functions take no copy. */
typedef struct gw_profile {
    size_t struct_bytes; /* sizeof(gw_profile) */
    double forward_ms;
    const gw_profile_layer *layers; /* the first layer first */
    uint32_t n_layers;              /* 1 to GW_PLAN_MAX_LAYERS */
    gw_profile_link link;
    const gw_profile_codec *codecs;
    uint32_t n_codecs; /* 1 to GW_PLAN_MAX_CODECS */
} gw_profile;

/* Says what is wrong with a profile: a time that is negative or not finite, no layers or too many, names that are
 * missing or stand there twice. Errors: GW_ERR_ARGUMENT. Every function below does the same first. */
GW_API gw_status gw_profile_check(const gw_profile *profile);

/* ---- a step's timeline ---------------------------------------------------------------------- */

/* Who measures and encodes: backward itself, which waits meanwhile (DLGS's timeline), or a thread beside it. */
typedef enum gw_compress { GW_COMPRESS_INLINE = 1, GW_COMPRESS_BESIDE } gw_compress;

/* "inline", "beside"; NULL for a number that is neither. Static storage. */
GW_API const char *gw_compress_name(gw_compress compress);

/* One group of a step, in milliseconds from the step's begin. */
typedef struct gw_group_times {
    uint32_t first_layer, n_layers; /* of the group, the first layer of the network first */
    uint64_t n_elems;
    double ready;                    /* its last gradient is there */
    double encode_begin, encode_end; /* without measuring */
    double send_begin, send_end;     /* the link is busy with it */
    double arrived;                  /* its averages are there */
} gw_group_times;

/* Works out the step that a plan gives. group_of: the group of each of n_layers layers. Groups are numbered in the
 * order in which backward finishes them: the last layer is in group 0, and each layer before it in the same group as
 * its successor or in the next one. times: room for `capacity` groups, filled in that order; NULL with capacity 0 if
 * nobody wants them. *step_ms: forward_ms included. Errors: GW_ERR_ARGUMENT (the profile, a codec number out of range,
 * groups that are no such plan), GW_ERR_CAPACITY. */
GW_API gw_status gw_plan_timeline(const gw_profile *profile, uint32_t codec, gw_compress compress,
                                  const uint32_t *group_of, gw_group_times *times, uint32_t capacity, double *step_ms);

/* ---- merging layers to groups ---------------------------------------------------------------- */

typedef enum gw_merge {
    GW_MERGE_EXACT = 1, /* the shortest step of all plans; of equal ones, one with few groups */
    GW_MERGE_PAPER,     /* DLGS, algorithm 2: from the last layer on, a layer is merged into the one before it if that
                           makes the step shorter */
    GW_MERGE_NONE,      /* a group for each layer */
    GW_MERGE_SINGLE,    /* one group */
    GW_MERGE_FIXED      /* a group ends with the layer that brings it to so many bytes of float32, as buckets of
                           PyTorch (25 MiB) and Horovod (64 MiB) do */
} gw_merge;

/* "exact", "paper", "none", "single", "fixed"; NULL past the last one. Static storage. */
GW_API const char *gw_merge_name(gw_merge method);

/* Makes a plan. fixed_bytes: for GW_MERGE_FIXED, 1 or more; 0 with all other methods. group_of: room for n_layers
 * numbers (gw_plan_timeline says which). n_groups and step_ms may be NULL. The same profile gives the same plan on
 * every machine with the same floating point. Errors: GW_ERR_ARGUMENT, GW_ERR_MEMORY. */
GW_API gw_status gw_plan_merge(gw_context *context, const gw_profile *profile, uint32_t codec, gw_compress compress,
                               gw_merge method, uint64_t fixed_bytes, uint32_t *group_of, uint32_t *n_groups,
                               double *step_ms);

/* ---- advice ---------------------------------------------------------------------------------- */

/* A codec of the profile with its best plan. */
typedef struct gw_codec_advice {
    uint32_t codec; /* its number in the profile; n_codecs: floats, which the profile does not have */
    double step_ms; /* with the exact plan */
    uint32_t n_groups;
    double bytes;   /* of all groups, up plus down */
    double speedup; /* the step with floats over this one, each with its best plan */
    /* The codec's step is shorter than that with floats on every link of at least this many milliseconds a byte that
     * was looked at (from a thousandth to a million times the profile's), all else equal. 0: also on the fastest.
     * INFINITY: on none of them. */
    double pays_from_ms_per_byte;
} gw_codec_advice;

typedef struct gw_advice {
    gw_codec_advice codecs[GW_PLAN_MAX_CODECS + 1]; /* the shortest step first */
    uint32_t n_codecs;
    gw_codec_advice floats; /* codec "none", which stands in the list too */
    /* The profile has no codec "none". Then floats are taken to cost no time, and 8 (members - 1) / members bytes an
     * element: each member's share goes to every owner and comes back. */
    bool assumed_floats;
    bool pays; /* codecs[0] is not floats, and its step is shorter by more than a thousandth */
} gw_advice;

/* Compares all codecs of a profile, each with its exact plan. link.ms_per_byte may not be 0. Errors: GW_ERR_ARGUMENT,
 * GW_ERR_MEMORY. */
GW_API gw_status gw_advise(gw_context *context, const gw_profile *profile, gw_compress compress, gw_advice *out);

#ifdef __cplusplus
}
#endif
#endif
