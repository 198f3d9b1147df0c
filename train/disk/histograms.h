/* Histograms of gradients, as a run records them now and then: a line of histograms.jsonl for each step and tensor. */
#ifndef GW_TRAIN_HISTOGRAMS_H
#define GW_TRAIN_HISTOGRAMS_H

#include "net/network.h"

#include <stdbool.h>
#include <stdio.h>

/* A run has at most so many steps with histograms, and each of them histograms of at most so many tensors. */
enum { GW_HISTOGRAM_STEPS = 20, GW_HISTOGRAM_TENSORS = 64, GW_HISTOGRAM_BINS = 64 };

/* Counts in equal bins between -max and max. */
struct gw_histogram {
    uint64_t n; /* values; 0: there is no such histogram */
    double max; /* the largest magnitude */
    double least, largest, sum, squares;
    uint64_t counts[GW_HISTOGRAM_BINS];
};

/* What is counted: rank 0's gradient, this gradient clipped, this gradient as the codec sends it, and the average of
 * all workers. */
enum gw_histogram_kind {
    GW_HISTOGRAM_RAW,
    GW_HISTOGRAM_CLIPPED,
    GW_HISTOGRAM_SENT,
    GW_HISTOGRAM_AVERAGED,
    GW_HISTOGRAM_KINDS
};
extern const char *const gw_histogram_names[GW_HISTOGRAM_KINDS];

/* The histograms of one step. */
struct gw_histograms {
    uint64_t step;
    struct gw_histograms *next; /* histograms of a later step, if somebody keeps a list */
    uint32_t n;
    struct gw_histogram_row {
        char tensor[sizeof((struct gw_param *)0)->name];
        uint32_t number; /* the tensor's number */
        uint64_t elements;
        struct gw_histogram kinds[GW_HISTOGRAM_KINDS];
    } rows[];
};

/* Counts `values`; *h stays empty if one of them is no finite number. */
void gw_histogram_count(struct gw_histogram *h, const float *values, uint64_t n);

/* True if the i-th of n belongs to `some` of them that are spread evenly, with the first and the last among them; to
 * the first alone if `some` is 1. */
bool gw_is_spread(uint64_t i, uint64_t n, uint64_t some);

/* The upper limit of a bin. */
double gw_histogram_limit(const struct gw_histogram *h, uint32_t bin);

/* Writes the lines of one step. Write errors stay in the stream's error mark. */
void gw_histograms_write(FILE *file, const struct gw_histograms *histograms);

/* Reads such a file from its start, and returns where its whole lines of steps before `step` end. *damaged: a line
 * there is none that was written so. A last line that is cut is no damage: the run was writing it. */
long gw_histograms_end_before(FILE *file, uint64_t step, bool *damaged);

#endif
