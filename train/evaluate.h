/* Tells how many test samples a model gets right. The model is one made for evaluation. */
#ifndef GW_TRAIN_EVALUATE_H
#define GW_TRAIN_EVALUATE_H

#include "data.h"
#include "model.h"

enum { GW_EVAL_BATCH = 100 };

/* Writes samples order[0..n) (NULL: first, first+1, ...) as floats. */
void gw_batch_load(const struct gw_samples *samples, size_t sample_values, const uint32_t *order, uint32_t first,
                   uint32_t n, float *input, uint8_t *labels);

/* Counts right answers among samples [begin, end) and adds up their losses. The model's batch is GW_EVAL_BATCH. */
gw_status gw_evaluate(struct gw_model *model, const struct gw_pass *pass, const struct gw_data *data, uint32_t begin,
                      uint32_t end, uint32_t *correct, double *loss);

#endif
