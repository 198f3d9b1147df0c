/* Loads samples into a model's input, and counts over a range of test samples how many the model gets right. */
#include "evaluate.h"
#include "base/error.h"

#include <string.h>

static void load_pixels(const uint8_t *restrict from, size_t n, float *restrict to)
{
    for (size_t k = 0; k < n; k++)
        to[k] = (float)from[k] * GW_PIXEL_SCALE;
}

static void load_row(const struct gw_rows *rows, size_t row, size_t n, float *to)
{
    memset(to, 0, n * sizeof *to);
    for (uint64_t k = rows->begin[row]; k < rows->begin[row + 1]; k++)
        to[rows->index[k]] = rows->value[k];
}

void gw_batch_load(const struct gw_samples *samples, size_t sample_values, const uint32_t *order, uint32_t first,
                   uint32_t n, float *input, uint8_t *labels)
{
    for (uint32_t i = 0; i < n; i++) {
        size_t sample = order ? order[i] : first + i;
        float *to = input + i * sample_values;
        if (samples->pixels)
            load_pixels(samples->pixels + sample * sample_values, sample_values, to);
        else
            load_row(&samples->rows, sample, sample_values, to);
        labels[i] = samples->labels[sample];
    }
}

gw_status gw_evaluate(struct gw_model *model, const struct gw_pass *pass, const struct gw_data *data, uint32_t begin,
                      uint32_t end, uint32_t *correct, double *loss)
{
    uint8_t labels[GW_EVAL_BATCH];
    for (uint32_t at = begin; at < end; at += GW_EVAL_BATCH) {
        uint32_t n = end - at < GW_EVAL_BATCH ? end - at : GW_EVAL_BATCH;
        gw_batch_load(&data->test, gw_data_sample_values(data), NULL, at, n, gw_model_input(model), labels);
        GW_TRY(gw_model_forward(model, pass));
        gw_model_loss(model, labels, n, 0, loss, correct);
    }
    return GW_OK;
}
