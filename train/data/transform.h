/* What is done to pictures before they come into a network: crops and the like for training, the middle of the picture
 * for tests. Values are scaled. */
#ifndef GW_TRAIN_TRANSFORM_H
#define GW_TRAIN_TRANSFORM_H

#include <gradwire/status.h>
#include <stdbool.h>
#include <stdint.h>

struct gw_data;

enum { GW_MAX_CHANNELS = 4 };

struct gw_transform {
    uint32_t pad;     /* black pixels around the picture, before the crop */
    uint32_t crop;    /* side of the part that is taken; 0: the whole picture */
    bool mirror;      /* half of the pictures are mirrored, left to right */
    float brightness; /* at most so much is added or subtracted, of 255 */
    /* distances from the mean of each channel are multiplied by a factor in this range; 0, 0: they are not */
    float contrast[2];
    bool whiten;    /* each picture gets mean 0 and variance 1, as TensorFlow's per_image_standardization */
    bool normalize; /* each channel gets mean 0 and variance 1 over the training set */
    uint32_t channels, height, width;                      /* the shape before, set by gw_transform_fit */
    uint32_t out_height, out_width;                        /* the shape after */
    float mean[GW_MAX_CHANNELS], inverse[GW_MAX_CHANNELS]; /* normalize: what to subtract, and what to multiply by */
};

/* Reads a text like "pad=4,crop=32,mirror,normalize"; each word may come once. "scale", or NULL: nothing is drawn, and
 * a pixel's byte is divided by 256, as in Caffe's LeNet. Errors say what would be right. */
gw_status gw_transform_parse(const char *text, struct gw_transform *transform);

/* Fits the transform to a data set of pictures, and sets the shape after it. Errors: a crop that is too large. */
gw_status gw_transform_fit(struct gw_transform *transform, const struct gw_data *data);

/* For training. Random numbers depend on seed, step, and the sample's place in the whole batch. pixels:
 * [channels][height][width]; out: [channels][out_height][out_width]. */
void gw_transform_train(const struct gw_transform *transform, uint64_t seed, uint64_t step, uint32_t place,
                        const uint8_t *pixels, float *out);

/* For a test: takes the middle, and draws nothing. */
void gw_transform_test(const struct gw_transform *transform, const uint8_t *pixels, float *out);

#endif
