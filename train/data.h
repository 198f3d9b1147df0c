/* Data sets: pictures and labels in memory, from IDX files or drawn. */
#ifndef GW_TRAIN_DATA_H
#define GW_TRAIN_DATA_H

#include <gradwire/status.h>
#include <stddef.h>
#include <stdint.h>

/* n samples, each channels * height * width bytes, and their labels in [0, classes). */
struct gw_samples {
    uint32_t n;
    uint8_t *pixels; /* [n][channels][height][width] */
    uint8_t *labels; /* [n] */
};

struct gw_data {
    uint32_t channels, height, width, classes;
    struct gw_samples train, test;
};

static inline size_t gw_data_sample_bytes(const struct gw_data *data)
{
    return (size_t)data->channels * data->height * data->width;
}

/* Pixels become floats by this factor, as in Caffe's LeNet. */
#define GW_PIXEL_SCALE 0.00390625f

/* Loads `source`: the word "digits", or a folder with MNIST's four files under their original names, plain, .gz or .xz.
 * What is missing, cut or contradictory is an error whose sentence names the file. */
gw_status gw_data_load(const char *source, struct gw_data *data);
void gw_data_free(struct gw_data *data);

/* One pair of IDX files: FOLDER/IMAGES and FOLDER/LABELS. Checks magic numbers, counts, lengths and labels. */
gw_status gw_data_idx(const char *folder, const char *images, const char *labels, uint32_t classes,
                      struct gw_samples *samples, uint32_t *height, uint32_t *width);

/* Draws `n` digits of 28x28; `split` keeps training and test pictures apart. The same arguments give the same bytes. */
gw_status gw_data_digits(uint64_t seed, uint32_t split, uint32_t n, struct gw_samples *samples);

/* The whole of a file that may be compressed: FOLDER/NAME, FOLDER/NAME.gz or FOLDER/NAME.xz, whichever is there first.
 * Memory grows with what is really there, never with what a header claims; more than max_bytes is refused.
 * `path` (of path_capacity bytes) receives the file's path for error texts. *bytes is freed with gw_free(NULL, ...). */
gw_status gw_data_file(const char *folder, const char *name, size_t max_bytes, char *path, size_t path_capacity,
                       uint8_t **bytes, size_t *n_bytes);

#endif
