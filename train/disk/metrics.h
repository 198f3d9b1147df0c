/* What a run tells about itself: a line for each step, TensorBoard scalars, and the sums for the summary. */
#ifndef GW_TRAIN_METRICS_H
#define GW_TRAIN_METRICS_H

#include "disk/file.h"
#include "disk/histograms.h"
#include "types.h"

#include <dirent.h>

/* Numbers of rank 0's codec, for all tensors together. Below 0: the codec has no such number. */
struct gw_codec_report {
    /* of a codec that draws without bias: the sum of Q^2 of its frames divided by the sum of g^2 */
    double variance_factor;
    double gradient_norm; /* |g|_2, if there is a variance factor */
    double residual_norm; /* |e|_2 after the step */
    double threshold_age; /* steps since the oldest threshold was taken, that step included; 0: none was taken */
};
#define GW_CODEC_REPORT_NONE ((struct gw_codec_report){.variance_factor = -1, .residual_norm = -1, .threshold_age = -1})

/* One worker's numbers of one step. */
struct gw_step_record {
    double loss; /* sum over its samples */
    uint32_t correct;
    uint64_t gradients; /* how many gradients of single samples were computed in this step */
    double step_seconds, compute_seconds;
    gw_step_result result;
    gw_wire_report wire; /* rank 0's, after the step */
    bool wire_compared;  /* this step ended a comparison */
    double lr;
    bool accounted;                /* its frames were counted symbol by symbol (rank 0, some steps) */
    struct gw_codec_report report; /* not set if the step is not accounted */
    bool evaluated;                /* its share of the test set was evaluated after this step */
    uint32_t test_correct;
    double full_loss; /* convex and evaluated: the sum over its share of the training set */
    uint32_t full_correct;
    double l2_term; /* lambda * |w|^2 */
};

struct gw_metrics {
    struct gw_file lines, events, histograms;
    struct gw_histograms *pending; /* histograms of steps that are not added up yet, by step */
    DIR *lock;                     /* the lock of the run's folder; NULL: nothing is written */
    double last_flush;
    uint64_t steps, steps_per_epoch; /* planned */
    uint64_t window_begin;           /* train_loss and train_accuracy are means from this step on */
    uint32_t batch, workers, train_samples, test_samples;
    bool convex;

    uint64_t next; /* the step whose records come next */
    bool resumed;  /* the files are those of an interrupted run */

    /* sums so far; in a resumed run they include the steps before it */
    uint64_t n_steps, n_skipped;
    uint64_t n_missing; /* steps before `next` of which no records came */
    /* a resumed run: what other files had lost */
    bool histograms_damaged;
    uint64_t events_missing;
    uint64_t bytes_up, bytes_down, dense_bytes, gradients;
    double step_seconds, compute_seconds, encode_seconds, wait_seconds;
    uint64_t fast_steps; /* how many steps' frames rank 0 wrote as GW_WIRE_FAST */
    gw_wire_report wire; /* of the last step since this process started */
    double window_loss, window_accuracy;
    uint64_t window_steps;
    double running_loss, running_accuracy;
    double test_accuracy;                /* of the last evaluation; below 0: none yet */
    double residual_norm, threshold_age; /* of the last step that has them; below 0: none yet */
    double nonzero_shares;               /* of steps that have them */
    uint64_t n_nonzero_shares;
    double sent_squares, gradient_squares;      /* of steps that have a variance factor */
    double full_loss, full_accuracy, objective; /* convex: of the last full pass */
};

/* If out is not NULL, locks the folder. If it holds an earlier run, that is an error, unless `overwrite`. */
gw_status gw_metrics_open(struct gw_metrics *metrics, const char *out, bool overwrite);

/* Removes an earlier run from the folder, and opens the files. */
gw_status gw_metrics_begin(struct gw_metrics *metrics, const char *out);

/* Goes on with the files of an interrupted run from step `first` on, in a folder that is locked. Lines of later steps,
 * and a line that is cut, are dropped. Lines of earlier steps are added up again. n_missing tells how many are missing,
 * histograms_damaged and events_missing whether the other files lack some. */
gw_status gw_metrics_resume(struct gw_metrics *metrics, const char *out, uint64_t first);

gw_status gw_metrics_sync(struct gw_metrics *metrics);

/* Adds up one step's records, worker by worker, and writes its line. */
gw_status gw_metrics_step(struct gw_metrics *metrics, uint64_t step, const struct gw_step_record *records);

/* Takes over histograms. They are written and freed when their step is added up, so that the files have steps in order.
 */
void gw_metrics_take_histograms(struct gw_metrics *metrics, struct gw_histograms *histograms);

void gw_metrics_progress(const struct gw_metrics *metrics, struct gw_train_progress *progress);
void gw_metrics_summary(const struct gw_metrics *metrics, struct gw_train_summary *summary);

/* commit gives the files their final names. abandon leaves them as .partial, if a run ended early. */
gw_status gw_metrics_commit(struct gw_metrics *metrics);
void gw_metrics_abandon(struct gw_metrics *metrics);

/* The summary in the form of the run's summary.json. NULL: there is no memory. */
json_t *gw_train_summary_json(const struct gw_train_summary *summary);

#endif
