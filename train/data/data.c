/* Chooses where data come from, and checks that training and test samples fit together. */
#include "data/data.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The drawn digits are one fixed data set. The run's seed changes parameters and order, never the data. */
enum { DIGITS_TRAIN = 20000, DIGITS_TEST = 4000 };

/* ---- loading: `source` is as given, or the folder in which the files were found ------------------------------- */

static gw_status load_digits(const char *source, const char *test, struct gw_data *data)
{
    (void)source, (void)test;
    data->height = data->width = 28;
    GW_TRY(gw_data_digits(0, DIGITS_TRAIN, &data->train));
    return gw_data_digits(1, DIGITS_TEST, &data->test);
}

#define MNIST_FILE "train-images-idx3-ubyte"

static gw_status load_mnist(const char *folder, const char *test, struct gw_data *data)
{
    uint32_t height, width;
    (void)test;
    GW_TRY(gw_data_idx(folder, MNIST_FILE, "train-labels-idx1-ubyte", data->classes, &data->train, &data->height,
                       &data->width));
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

/* A test file may have fewer features (a9a), or more (a1a): one that training never saw keeps weight 0. */
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

static gw_status load_uneven(const char *source, const char *test, struct gw_data *data)
{
    (void)test;
    GW_TRY(gw_data_uneven(source[6] ? source + 7 : "", &data->train, &data->channels));
    test_on_training_set(data);
    return GW_OK;
}

/* ---- the table ------------------------------------------------------------------------------------------------ */

static bool is_digits(const char *source)
{
    return strcmp(source, "digits") == 0;
}

static bool is_uneven(const char *source)
{
    return strcmp(source, "uneven") == 0 || strncmp(source, "uneven:", 7) == 0;
}

static bool is_file(const char *source)
{
    struct stat st;
    return stat(source, &st) != 0 || !S_ISDIR(st.st_mode);
}

/* Where people have a data set's files: in the folder itself, or in folders that torchvision and the archives make. */
static const char *const places[] = {
    "", "/raw", "/MNIST/raw", "/FashionMNIST/raw", "/KMNIST/raw", "/cifar-10-batches-bin"};
enum { N_PLACES = sizeof places / sizeof *places };

/* Finds the folder that holds `file`. Returns in how many places it is; `folder` is the first of them. If the folder
 * itself holds it, the others do not matter. */
static int find_folder(const char *source, const char *file, char *folder, size_t capacity)
{
    int n = 0;
    struct stat st;
    if (stat(source, &st) != 0 || !S_ISDIR(st.st_mode))
        return 0;
    for (int i = 0; i < N_PLACES && !(i == 1 && n > 0); i++) {
        char path[4096];
        if (snprintf(path, sizeof path, "%s%s/%s", source, places[i], file) < (int)sizeof path &&
            gw_data_is_there(path) && n++ == 0)
            snprintf(folder, capacity, "%s%s", source, places[i]);
    }
    return n;
}

static const struct {
    const char *name, *about;
    bool drawn;
    bool has_test_file; /* another file may be named for tests */
    uint32_t classes;
    bool (*is)(const char *source);
    const char *file; /* in place of `is`: it is a folder that holds this file */
    gw_status (*load)(const char *source, const char *test, struct gw_data *data);
} sources[] = {
    {"digits", "drawn digits of 28x28", true, false, 10, is_digits, NULL, load_digits},
    {"uneven[:OPTIONS]", "drawn rows, GSpar's section 5.1", true, false, 2, is_uneven, NULL, load_uneven},
    {"DIR", "a folder with MNIST's four files", false, false, 10, NULL, MNIST_FILE, load_mnist},
    {"DIR", "a folder with CIFAR-10's six binary files", false, false, 10, NULL, "data_batch_1.bin", gw_data_cifar},
    {"FILE", "LIBSVM text, two classes", false, true, 2, is_file, NULL, load_libsvm}, /* last: any other file */
};
enum { N_SOURCES = sizeof sources / sizeof *sources };

bool gw_data_list(size_t n, const char **name, const char **about)
{
    if (n >= N_SOURCES)
        return false;
    *name = sources[n].name;
    *about = sources[n].about;
    return true;
}

bool gw_data_is_drawn(const char *source)
{
    for (int i = 0; i < N_SOURCES; i++)
        if (sources[i].drawn && sources[i].is(source))
            return true;
    return false;
}

static bool is_python_cifar(const char *source)
{
    char path[4096];
    static const char *const files[] = {"data_batch_1", "cifar-10-batches-py"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (snprintf(path, sizeof path, "%s/%s", source, files[i]) < (int)sizeof path && gw_data_is_there(path))
            return true;
    return false;
}

static gw_status load(const char *source, const char *test, struct gw_data *data)
{
    int found = -1, n_places = 0;
    char folder[4096];
    for (int i = 0; i < N_SOURCES; i++) {
        const int n = sources[i].file ? find_folder(source, sources[i].file, folder, sizeof folder) : 0;
        if (sources[i].file ? n == 0 : !sources[i].is(source))
            continue;
        if (found >= 0)
            return gw_fail(GW_ERR_ARGUMENT, "%s is %s, and also %s; it must hold one data set", source,
                           sources[found].about, sources[i].about);
        found = i, n_places = n;
        if (sources[i].drawn)
            break; /* a word means its data, even if a file has the same name */
    }
    if (found < 0 && is_python_cifar(source))
        return gw_fail(GW_ERR_SYSTEM,
                       "the folder %s holds CIFAR-10 in Python's form; the binary form is read "
                       "(cifar-10-binary.tar.gz, which unpacks into cifar-10-batches-bin)",
                       source);
    if (found < 0)
        return gw_fail(GW_ERR_SYSTEM,
                       "the folder %s holds neither MNIST's files (train-images-idx3-ubyte, ...) nor CIFAR-10's "
                       "(data_batch_1.bin, ...), plain, .gz, .xz or .bz2; --data digits needs no files",
                       source);
    if (test && !sources[found].has_test_file)
        return gw_fail(GW_ERR_ARGUMENT, "--test %s goes with a training file of LIBSVM text only, and --data is %s",
                       test, source);
    if (n_places > 1)
        return gw_fail(GW_ERR_ARGUMENT, "%s holds several data sets; name the folder of one of them, such as %s",
                       source, folder);
    *data = (struct gw_data){.channels = 1, .height = 1, .width = 1, .classes = sources[found].classes};
    return sources[found].load(n_places ? folder : source, test, data);
}

gw_status gw_data_transform(struct gw_data *data, const char *transform)
{
    if (!data->train.pixels)
        return transform
                   ? gw_fail(GW_ERR_ARGUMENT, "a transform (%s) is for pictures, and the data are rows", transform)
                   : GW_OK;
    GW_TRY(gw_transform_parse(transform, &data->transform));
    return gw_transform_fit(&data->transform, data);
}

gw_status gw_data_load(const char *source, const char *test, struct gw_data *data)
{
    *data = (struct gw_data){0};
    gw_status status = load(source, test, data);
    if (status != GW_OK)
        gw_data_free(data);
    return status;
}

void gw_data_free(struct gw_data *data)
{
    if (!data->test_is_train)
        gw_samples_free(&data->test);
    gw_samples_free(&data->train);
}
