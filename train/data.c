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
    GW_TRY(gw_data_idx(folder, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", data->classes, &data->train,
                       &data->height, &data->width));
    GW_TRY(gw_data_idx(folder, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", data->classes, &data->test, &height,
                       &width));
    if (height != data->height || width != data->width)
        return gw_fail(GW_ERR_SYSTEM, "%s: the training images are %ux%u and the test images %ux%u; they must be alike",
                       folder, data->height, data->width, height, width);
    return GW_OK;
}

static void test_on_training_set(struct gw_data *data)
{
    data->test = data->train;
    data->test_is_train = true;
}

/* A test file may reach fewer features than its training file (a9a), or more (a1a): what training never saw keeps
 * weight 0. */
static gw_status load_libsvm(const char *source, const char *test, struct gw_data *data)
{
    struct gw_label_values labels = {.n = 0};
    uint32_t of_test = 0;
    GW_TRY(gw_data_libsvm(source, &labels, &data->train, &data->channels));
    if (data->channels == 0)
        return gw_fail(GW_ERR_SYSTEM,
                       "%s: no sample has a feature, so there is nothing to learn from; a line is LABEL INDEX:VALUE "
                       "INDEX:VALUE ...",
                       source);
    if (test)
        GW_TRY(gw_data_libsvm(test, &labels, &data->test, &of_test));
    else
        test_on_training_set(data);
    if (of_test > data->channels)
        data->channels = of_test;
    return GW_OK;
}

static gw_status load_uneven(const char *options, struct gw_data *data)
{
    GW_TRY(gw_data_uneven(options, &data->train, &data->channels));
    test_on_training_set(data);
    return GW_OK;
}

static bool is_uneven(const char *source)
{
    return strcmp(source, "uneven") == 0 || strncmp(source, "uneven:", 7) == 0;
}

bool gw_data_is_drawn(const char *source)
{
    return strcmp(source, "digits") == 0 || is_uneven(source);
}

static gw_status load(const char *source, const char *test, struct gw_data *data)
{
    struct stat st;
    bool digits = strcmp(source, "digits") == 0;
    bool uneven = is_uneven(source);
    bool folder = !digits && !uneven && stat(source, &st) == 0 && S_ISDIR(st.st_mode);
    if (test && (digits || uneven || folder))
        return gw_fail(GW_ERR_ARGUMENT, "--test %s goes with a training file of LIBSVM text only, and --data is %s",
                       test, source);
    *data = (struct gw_data){.channels = 1, .height = 1, .width = 1, .classes = digits || folder ? 10 : 2};
    return digits   ? load_digits(data)
           : uneven ? load_uneven(source[6] ? source + 7 : "", data)
           : folder ? load_mnist(source, data)
                    : load_libsvm(source, test, data);
}

gw_status gw_data_load(const char *source, const char *test, struct gw_data *data)
{
    *data = (struct gw_data){0};
    gw_status status = load(source, test, data);
    if (status != GW_OK)
        gw_data_free(data);
    return status;
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

void gw_data_free(struct gw_data *data)
{
    if (!data->test_is_train)
        gw_samples_free(&data->test);
    gw_samples_free(&data->train);
}
