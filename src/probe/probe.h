/* Measures the numbers of a link and of codecs for a profile (gradwire/plan.h). The members that are to exchange
 * gradients measure together.
 *
 *     struct gw_probe probe = {...};                                         // one for all members of a process
 *     struct gw_probe_member member = {.probe = &probe, .link = ..., .meeting = ...};   // each member's
 *     gw_meeting_begin(&member.meeting);
 *     gw_probe_all(&member);
 *
 * All members make the same calls, with the same numbers in their gw_probe. Rank 0's gw_probe has the results. The
 * link is free for others again when a call has returned on this member and all have met. */
#ifndef GW_PROBE_PROBE_H
#define GW_PROBE_PROBE_H

#include "probe/meeting.h"

#include <gradwire/codec.h>
#include <gradwire/exchange.h>
#include <gradwire/plan.h>

enum { GW_PROBE_MOST_POINTS = 24 };

/* The most elements of a run: the exchange cuts large groups into runs (docs/design.md, "Runs"). */
#define GW_PROBE_RUN_ELEMENTS (1 << 20)

/* One measured point: messages of one size, or exchanges of groups whose tensors have one size. */
struct gw_probe_point {
    uint64_t groups, tensors; /* tensors of each group; both 1 for a message */
    uint64_t size;            /* bytes that a member sends, or elements of each tensor */
    bool whole;               /* the network's own tensors, all at once; size 0 */
    double measured_ms;       /* the median of the slowest member's times */
    double fitted_ms;
    double busy; /* the share of that time in which the processors of the busiest machine worked */
};

/* A codec's sweep begins with small exchanges. FEW and MORE groups show what one group costs, and how long it takes
 * while others are under way. MANY tensors in a group show what one tensor costs. The last point has the network's own
 * tensors, if they do not take too long: how well they fill an exchange depends on their sizes. */
enum { GW_PROBE_ONE, GW_PROBE_FEW, GW_PROBE_MORE, GW_PROBE_MANY, GW_PROBE_N_SMALL };
enum { GW_PROBE_MOST_TENSORS = 64 }; /* of a point other than the network */

struct gw_probe_sweep {
    struct gw_probe_point points[GW_PROBE_MOST_POINTS];
    size_t n;
};

struct gw_probe {
    uint32_t runs;          /* of each point; the median counts */
    uint64_t most_elements; /* points with more elements are left out, except the network itself; 0: none is left out */
    size_t n_codecs;        /* GW_PLAN_MAX_CODECS at most */
    const char *specs[GW_PLAN_MAX_CODECS];
    gw_codec *codecs[GW_PLAN_MAX_CODECS];
    const gw_profile_layer *layers; /* the network's */
    uint32_t n_layers;

    /* Rank 0 says what is measured next; NULL: nobody asks. */
    void (*next)(void *user, const char *what);
    void *user;

    /* Results. The caller sets link.run_elements. */
    gw_profile_link link;
    struct gw_probe_sweep messages;
    gw_profile_codec costs[GW_PLAN_MAX_CODECS];
    struct gw_probe_sweep sweeps[GW_PLAN_MAX_CODECS];
};

/* A member's thread. */
struct gw_probe_member {
    struct gw_probe *probe;
    gw_link link; /* for messages and exchanges; nobody else uses it meanwhile */
    struct gw_meeting meeting;
};

/* Checks that all members are about to measure the same, and measures the messages and all codecs (measure.c). */
gw_status gw_probe_all(struct gw_probe_member *member);

/* Measures how long messages take, of every size, when all members send to all; sets link and messages (probe_link.c).
 */
gw_status gw_probe_messages(struct gw_probe_member *member);

/* The time for a byte, if x[i] bytes take t[i]; x rises. Networks let small bursts pass faster than what follows. So
 * this is the slope of the three largest: the median of the slopes between any two of them. On a busy machine chance
 * may hide it. Then, and if n is 1, this is the time of the last over its bytes, which is not less than the truth. n 0:
 * 0. */
double gw_probe_slope(const double *x, const double *t, size_t n);

/* Measures one codec by itself and in exchanges, and sets its costs and its sweep; with codec "none" first, it also
 * sets the link's alpha and latency (probe_codec.c). */
gw_status gw_probe_codec(struct gw_probe_member *member, size_t codec);

/* The two lengths at which a codec is timed by itself, in elements. */
enum { GW_PROBE_SMALL = 4096, GW_PROBE_LARGE = 1 << 20 };

/* The line fixed + per_element * n through the times of these lengths. Neither is below 0. */
void gw_probe_line(double small_ms, double large_ms, double *fixed, double *per_element);

/* Makes costs[codec] fit sweeps[codec] (fit.c). Its bytes, and what measuring and encoding cost by themselves, are
 * there. If floats (codec 0) have the same cost for a group, that cost belongs to the link. The rest belongs to the
 * codec, because shared numbers go round before a group is encoded. */
void gw_probe_fit(struct gw_probe *probe, size_t codec);

/* Gives the codec of an exchange a state as if many steps with gradients like these had gone before
 * (gw_encoder_run_in). Tensor t's gradient begins at gradients + offsets[t]. Call it before the first step. */
void gw_exchange_run_in(gw_exchange *exchange, const float *gradients, const uint64_t *offsets);

/* Ticks of all processors of the machine since it began: those in which they worked, and all. Both are 0 if the file,
 * which is /proc/stat, does not tell them. A tick is a hundredth of a second, so only long times can be measured. */
struct gw_probe_busy {
    double worked, all;
};
struct gw_probe_busy gw_probe_busy(const char *stat);

/* The median of |fitted / measured - 1|. */
double gw_probe_deviation(const struct gw_probe_sweep *sweep);

#endif
