/* Records histograms of gradients (disk/histograms.h): in a few steps of a run, by rank 0, of all weights. */
#ifndef GW_TRAIN_RUN_HISTOGRAMS_H
#define GW_TRAIN_RUN_HISTOGRAMS_H

#include "run/team.h"

/* Before a step. In steps without histograms, and on all workers but the one that writes the run's folder, this does
 * nothing, and neither do the other two. If memory is short, the step has no histograms: they are not worth a run. */
void gw_histograms_begin(struct gw_worker *worker, uint64_t step);

/* When the gradient of a tensor is there, and before it is submitted. */
void gw_histograms_before(struct gw_worker *worker, uint32_t tensor);

/* When all are averaged. A step that was dropped has no histograms. */
void gw_histograms_after(struct gw_worker *worker, bool committed);

#endif
