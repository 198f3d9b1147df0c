/* Chooses where data come from, and checks that training and test samples fit together. */
#include "data.h"
#include "base/error.h"
#include "base/memory.h"

#include <string.h>
#include <sys/stat.h>

/* The drawn digits are one fixed data set: the run's seed moves parameters and order, never the data. */
enum { DIGITS_SEED = 1, DIGITS_TRAIN = 20000, DIGITS_TEST = 4000 };

static gw_status load_digits(struct gw_data *data)
{
    data->height = data->width = 28;
    GW_TRY(gw_data_digits(DIGITS_SEED, 0, DIGITS_TRAIN, &data->train));
    return gw_data_digits(DIGITS_SEED, 1, DIGITS_TEST, &data->test);
}

static gw_status load_mnist(const char *folder, struct gw_data *data)
{
    uint32_t height, width;
    struct stat st;
    if (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))
        return gw_fail(GW_ERR_SYSTEM, "--data %s is no folder; give a folder with MNIST's files, or the word digits", folder);
    GW_TRY(gw_data_idx(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", data->classes, &data->train,
                       &data->height, &data->width));
    GW_TRY(gw_data_idx(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", data->classes, &data->test, &height,
                       &width));
    if (height != data->height || width != data->width)
        return gw_fail(GW_ERR_SYSTEM, "%s: the training images are %ux%u and the test images %ux%u; they must be alike",
                       folder, data->height, data->width, height, width);
    return GW_OK;
}

gw_status gw_data_load(const char *source, struct gw_data *data)
{
    *data = (struct gw_data){.channels = 1, .classes = 10};
    gw_status status = strcmp(source, "digits") == 0 ? load_digits(data) : load_mnist(source, data);
    if (status != GW_OK)
        gw_data_free(data);
    return status;
}

static void free_samples(struct gw_samples *samples)
{
    gw_free(NULL, samples->pixels);
    gw_free(NULL, samples->labels);
    *samples = (struct gw_samples){0};
}

void gw_data_free(struct gw_data *data)
{
    free_samples(&data->train);
    free_samples(&data->test);
}
