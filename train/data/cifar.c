/* Reads CIFAR-10's binary files: a byte of label, then 32x32 bytes each of red, green and blue. */
#include "base/error.h"
#include "base/memory.h"
#include "data/data.h"

#include <string.h>

enum { PIXELS = 3 * 32 * 32, RECORD = 1 + PIXELS, MAX_FILE_BYTES = 1 << 30 };

static const char *const train_files[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                          "data_batch_4.bin", "data_batch_5.bin"};
enum { N_TRAIN_FILES = sizeof train_files / sizeof *train_files };
static const char *const test_files[] = {"test_batch.bin"};

/* Reads the bytes of one file. *n: how many pictures they are. */
static gw_status read_file(const char *folder, const char *name, uint32_t classes, uint8_t **bytes, uint32_t *n)
{
    char path[4096];
    size_t n_bytes;
    GW_TRY(gw_data_file(folder, name, MAX_FILE_BYTES,
                        "the folder must hold CIFAR-10's binary files under their original names", path, sizeof path,
                        bytes, &n_bytes));
    if (n_bytes == 0 || n_bytes % RECORD)
        return gw_fail(GW_ERR_SYSTEM,
                       "%s has %zu bytes, and a picture with its label takes %d: it is cut short, or not of CIFAR-10",
                       path, n_bytes, RECORD);
    *n = (uint32_t)(n_bytes / RECORD);
    for (uint32_t i = 0; i < *n; i++)
        if ((*bytes)[(size_t)i * RECORD] >= classes)
            return gw_fail(GW_ERR_SYSTEM, "%s: label %u of picture %u is out of range; labels must be 0 to %u", path,
                           (*bytes)[(size_t)i * RECORD], i, classes - 1);
    return GW_OK;
}

static gw_status read_files(const char *folder, const char *const *names, int n_names, uint32_t classes,
                            struct gw_samples *samples)
{
    uint8_t *bytes[N_TRAIN_FILES] = {NULL};
    uint32_t counts[N_TRAIN_FILES] = {0}, n = 0;
    gw_status status = GW_OK;
    for (int f = 0; f < n_names && status == GW_OK; f++) {
        status = read_file(folder, names[f], classes, &bytes[f], &counts[f]);
        n += status == GW_OK ? counts[f] : 0;
    }
    if (status == GW_OK) {
        *samples = (struct gw_samples){.n = n, .pixels = gw_alloc(NULL, n, PIXELS), .labels = gw_alloc(NULL, n, 1)};
        status = samples->pixels && samples->labels ? GW_OK : GW_ERR_MEMORY;
    }
    for (uint32_t f = 0, at = 0; status == GW_OK && f < (uint32_t)n_names; f++)
        for (uint32_t i = 0; i < counts[f]; i++, at++) {
            const uint8_t *record = bytes[f] + (size_t)i * RECORD;
            samples->labels[at] = record[0];
            memcpy(samples->pixels + (size_t)at * PIXELS, record + 1, PIXELS);
        }
    for (int f = 0; f < n_names; f++)
        gw_free(NULL, bytes[f]);
    return status;
}

gw_status gw_data_cifar(const char *folder, const char *test, struct gw_data *data)
{
    (void)test;
    data->channels = 3;
    data->height = data->width = 32;
    data->classes = 10;
    GW_TRY(read_files(folder, train_files, N_TRAIN_FILES, data->classes, &data->train));
    return read_files(folder, test_files, 1, data->classes, &data->test);
}
