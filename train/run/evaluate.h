/* Tells how many test samples a model gets right. The model must be made for evaluation. */
#ifndef GW_TRAIN_EVALUATE_H
#define GW_TRAIN_EVALUATE_H

#include "data/data.h"
#include "net/model.h"

enum { GW_EVAL_BATCH = 100 };

/* Writes n samples as floats: order[0..n), or, if order is NULL, first, first+1, ... With a pass these are samples for
 * training, transformed as pass->seed, step and first say; without one they are for a test. */
void gw_batch_load(const struct gw_data *data, const struct gw_pass *pass, const uint32_t *order, size_t first,
                   uint32_t n, float *input, uint8_t *labels);

/* Counts right answers among samples [begin, end) and adds up their losses. The model's batch is GW_EVAL_BATCH. */
gw_status gw_evaluate(struct gw_model *model, const struct gw_data *data, uint32_t begin, uint32_t end,
                      uint32_t *correct, double *loss);

#endif
