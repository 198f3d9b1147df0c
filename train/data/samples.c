/* Takes and frees the memory of samples. Asks whether loading is to end. */
#include "data/data.h"
#include "base/error.h"
#include "base/memory.h"

static _Thread_local struct {
    bool (*stop)(void *user);
    void *user;
} asked;

void gw_data_stop_if(bool (*stop)(void *user), void *user)
{
    asked.stop = stop;
    asked.user = user;
}

gw_status gw_data_go_on(void)
{
    return asked.stop && asked.stop(asked.user)
               ? gw_fail(GW_ERR_CLOSED, "stopped while the data were loaded, as asked; no step was made")
               : GW_OK;
}

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
