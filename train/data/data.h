/* Data sets in memory: pictures from MNIST's or CIFAR-10's files or drawn, sparse rows from LIBSVM text or drawn. */
#ifndef GW_TRAIN_DATA_H
#define GW_TRAIN_DATA_H

#include "data/transform.h"

#include <gradwire/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sparse rows: row i has value[k] at feature index[k], for k in [begin[i], begin[i+1]). Features ascend from 0. */
struct gw_rows {
    uint64_t *begin; /* [n + 1] */
    uint32_t *index;
    float *value;
};

/* n samples and their labels in [0, classes). A sample is bytes of pixels, or a row of `channels` features. */
struct gw_samples {
    uint32_t n;
    uint8_t *pixels; /* [n][channels][height][width]; NULL: the samples are rows */
    struct gw_rows rows;
    uint8_t *labels; /* [n] */
};

struct gw_data {
    uint32_t channels, height, width, classes;
    struct gw_samples train, test;
    bool test_is_train;            /* there is no test set: test borrows train's arrays */
    struct gw_transform transform; /* of pictures; set by gw_data_transform */
};

/* How many values a sample has as it was loaded. */
static inline size_t gw_data_raw_values(const struct gw_data *data)
{
    return (size_t)data->channels * data->height * data->width;
}

/* How many values a sample has when it comes into a network. */
static inline size_t gw_data_sample_values(const struct gw_data *data)
{
    return data->train.pixels ? (size_t)data->channels * data->transform.out_height * data->transform.out_width
                              : gw_data_raw_values(data);
}

/* Pixels become floats by this factor, as in Caffe's LeNet. */
#define GW_PIXEL_SCALE 0.00390625f

/* Loads `source`, one of the table in data.c. A folder may be the one above that torchvision or an archive made:
 * MNIST/raw, cifar-10-batches-bin. With LIBSVM text, `test` may name a test file; NULL: there is none. If a file is
 * missing, cut or contradictory, the error names it. Call gw_data_transform before pictures are used. */
gw_status gw_data_load(const char *source, const char *test, struct gw_data *data);

/* From here on whatever loads data in this thread asks `stop` many times a second. If it says true, loading ends with
 * GW_ERR_CLOSED. NULL: nobody is asked. */
void gw_data_stop_if(bool (*stop)(void *user), void *user);

/* GW_ERR_CLOSED if loading is to end. */
gw_status gw_data_go_on(void);

/* From here on samples are changed as `transform` says (transform.h; NULL: bytes are scaled). Errors: it is not valid,
 * does not fit the pictures, or the data are no pictures and it is not NULL. */
gw_status gw_data_transform(struct gw_data *data, const char *transform);

/* The nth source of the table: its name, and a sentence about it. False behind the last one. */
bool gw_data_list(size_t n, const char **name, const char **about);

/* True if `source` is drawn: "digits", "uneven" or "uneven:OPTIONS". Else it names a file or a folder. */
bool gw_data_is_drawn(const char *source);

/* True if `name` exists: a folder, or a file, plain or packed (NAME, NAME.gz, NAME.xz or NAME.bz2). */
bool gw_data_is_there(const char *name);

void gw_data_free(struct gw_data *data);
void gw_samples_free(struct gw_samples *samples);

/* Takes memory for n labels, and for n rows with n_values values together; all of it or none. */
gw_status gw_samples_alloc_rows(uint32_t n, uint64_t n_values, struct gw_samples *samples);

/* Reads a pair of IDX files: FOLDER/IMAGES and FOLDER/LABELS. Checks magic numbers, counts, lengths and labels. */
gw_status gw_data_idx(const char *folder, const char *images, const char *labels, uint32_t classes,
                      struct gw_samples *samples, uint32_t *height, uint32_t *width);

/* Reads CIFAR-10's binary files: FOLDER/data_batch_1.bin to 5 and FOLDER/test_batch.bin, of any length. test: NULL. */
gw_status gw_data_cifar(const char *folder, const char *test, struct gw_data *data);

/* Draws `n` digits of 28x28; `split` keeps training and test pictures apart. The same arguments give the same bytes. */
gw_status gw_data_digits(uint32_t split, uint32_t n, struct gw_samples *samples);

/* The values of the two classes in a LIBSVM file, as far as they were found. When a file has been read, values[0] <
 * values[1]: the smaller one is class 0, the larger one class 1. */
struct gw_label_values {
    double values[2];
    uint32_t n;
};

/* Reads LIBSVM text: a line for each sample, "LABEL INDEX:VALUE INDEX:VALUE ...". Indices begin at 1 and ascend; "#"
 * begins a comment. There must be exactly two labels, with any values. If `labels` has two already, from the training
 * file, a test file may have no others. *n_features is the largest index. */
gw_status gw_data_libsvm(const char *name, struct gw_label_values *labels, struct gw_samples *samples,
                         uint32_t *n_features);

/* Draws the data of GSpar's section 5.1, two classes and features of uneven magnitude. `options`: "" or
 * "n=1024,d=2048,c1=0.6,c2=0.25" or some of these. */
gw_status gw_data_uneven(const char *options, struct gw_samples *samples, uint32_t *n_features);

/* Reads a whole file of a folder; folder NULL: `name` is a path. The first of NAME, NAME.gz, NAME.xz and NAME.bz2 that
 * exists is read; its first bytes say how it is packed. If NAME is one of MNIST's, train-images.idx3-ubyte serves, too.
 * Memory grows with the bytes that are really there. A file with more than max_bytes is refused, and so is what is no
 * regular file. A zero byte follows the last byte. `path` (path_capacity bytes) gets the file's path, for error texts.
 * `hint` ends the sentence if there is no such file. The caller frees *bytes with gw_free(NULL, ...). */
gw_status gw_data_file(const char *folder, const char *name, size_t max_bytes, const char *hint, char *path,
                       size_t path_capacity, uint8_t **bytes, size_t *n_bytes);

#endif
