/* Loads samples into a model's input, and counts over a range of test samples how many the model gets right. */
#include "run/evaluate.h"
#include "base/error.h"

#include <string.h>

void gw_batch_load(const struct gw_data *data, const struct gw_pass *pass, const uint32_t *order, size_t first,
                   uint32_t n, float *input, uint8_t *labels)
{
    const struct gw_samples *samples = pass ? &data->train : &data->test;
    const struct gw_rows *rows = &samples->rows;
    const size_t values = gw_data_sample_values(data), raw = gw_data_raw_values(data);
    for (uint32_t i = 0; i < n; i++, input += values) {
        const size_t row = order ? order[i] : first + i;
        if (!samples->pixels) {
            memset(input, 0, values * sizeof *input);
            for (uint64_t k = rows->begin[row]; k < rows->begin[row + 1]; k++)
                input[rows->index[k]] = rows->value[k];
        } else if (pass) {
            gw_transform_train(&data->transform, pass->seed, pass->step, pass->first + i, samples->pixels + row * raw,
                               input);
        } else {
            gw_transform_test(&data->transform, samples->pixels + row * raw, input);
        }
        labels[i] = samples->labels[row];
    }
}

gw_status gw_evaluate(struct gw_model *model, const struct gw_data *data, uint32_t begin, uint32_t end,
                      uint32_t *correct, double *loss)
{
    uint8_t labels[GW_EVAL_BATCH];
    for (uint32_t at = begin; at < end; at += GW_EVAL_BATCH) {
        uint32_t n = end - at < GW_EVAL_BATCH ? end - at : GW_EVAL_BATCH;
        gw_batch_load(data, NULL, NULL, at, n, gw_model_input(model), labels);
        GW_TRY(gw_model_forward(model, &(struct gw_pass){0}));
        gw_model_loss(model, labels, n, 0, loss, correct);
    }
    return GW_OK;
}
