/* Records histograms of gradients (disk/histograms.h): in a few steps of a run, by rank 0, of all weights. */
#ifndef GW_TRAIN_RUN_HISTOGRAMS_H
#define GW_TRAIN_RUN_HISTOGRAMS_H

#include "run/team.h"

/* Called before a step. Only the worker that writes the run's folder makes histograms, and only in some steps. Else
 * this and the other two functions do nothing. If memory is short, the step has no histograms, and the run goes on. */
void gw_histograms_begin(struct gw_worker *worker, uint64_t step);

/* Called when the gradient of a tensor is there, before it is submitted. */
void gw_histograms_before(struct gw_worker *worker, uint32_t tensor);

/* Called when all gradients are averaged. A step that was dropped has no histograms. */
void gw_histograms_after(struct gw_worker *worker, bool committed);

#endif
