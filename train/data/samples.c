/* Takes and frees the memory of samples. */
#include "data/data.h"
#include "base/memory.h"

gw_status gw_samples_alloc_rows(uint32_t n, uint64_t n_values, struct gw_samples *samples)
{
    *samples = (struct gw_samples){.n = n, .labels = gw_alloc(NULL, n, 1)};
    struct gw_rows *rows = &samples->rows;
    rows->begin = gw_alloc(NULL, (size_t)n + 1, sizeof *rows->begin);
    rows->index = gw_alloc(NULL, n_values, sizeof *rows->index);
    rows->value = gw_alloc(NULL, n_values, sizeof *rows->value);
    if (samples->labels && rows->begin && rows->index && rows->value) {
        rows->begin[0] = 0;
        return GW_OK;
    }
    gw_samples_free(samples);
    return GW_ERR_MEMORY;
}

void gw_samples_free(struct gw_samples *samples)
{
    gw_free(NULL, samples->pixels);
    gw_free(NULL, samples->rows.begin);
    gw_free(NULL, samples->rows.index);
    gw_free(NULL, samples->rows.value);
    gw_free(NULL, samples->labels);
    *samples = (struct gw_samples){0};
}
