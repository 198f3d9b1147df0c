/* What `gradwire probe` measures, and how its parts share it. */
#ifndef GRADWIRE_PROBE_H
#define GRADWIRE_PROBE_H

#include "bench_team.h"
#include "profile.h"

enum { PROBE_MOST_POINTS = 24 };

/* One measured point: a message size, or groups of tensors of a size through a codec. */
struct probe_point {
    uint64_t groups, tensors; /* tensors of each group; both 1 for a message */
    uint64_t size;            /* bytes that a member sends, or elements of each tensor */
    bool whole;               /* the network's own tensors, all at once; size 0 */
    double measured_ms;       /* the median of the slowest member's times */
    double fitted_ms;
};

struct probe_sweep {
    struct probe_point points[PROBE_MOST_POINTS];
    size_t n;
};

struct probe {
    struct bench_team team; /* two links: for messages and exchanges, and one that is spare */
    uint32_t runs;
    tool_texts specs;
    gw_codec *codecs[TOOL_MAX_TEXTS];
    bool terminal;
    double began;
    size_t n_parts, n_done;         /* of the whole measurement, for progress */
    const gw_profile_layer *layers; /* the network's */
    uint32_t n_layers;

    /* Results, rank 0's. */
    gw_profile_link link;
    struct probe_sweep messages;
    gw_profile_codec costs[TOOL_MAX_TEXTS];
    struct probe_sweep sweeps[TOOL_MAX_TEXTS];
};

/* Says what is measured now, and how long the rest may take. */
void probe_progress(struct probe *probe, const struct bench_member *member, const char *what);

/* Measures how long messages take, of every size, when all members send to all; sets link and messages (probe_link.c).
 */
gw_status probe_messages(struct probe *probe, struct bench_member *member);

/* Measures one codec by itself and in exchanges, and sets its costs and its sweep; with codec "none" first, it also
 * sets the link's alpha and latency (probe_codec.c). */
gw_status probe_codec(struct probe *probe, struct bench_member *member, size_t k);

/* Fits alpha + beta * x to t, both 0 or more. Relative deviations count, and a wild point little: the sum of
 * |deviation| / t is made small. */
void probe_fit(const double *x, const double *t, size_t n, double *alpha, double *beta);

/* The median of |fitted / measured - 1|. */
double probe_deviation(const struct probe_sweep *sweep);

#endif
