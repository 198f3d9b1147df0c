/* Cuts, mirrors, brightens and scales pictures. All that is drawn comes from one stream a sample and step. */
#include "data/transform.h"
#include "base/error.h"
#include "data/data.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- specification ---------------------------------------------------------------------------------------------- */

enum word { PAD, CROP, MIRROR, BRIGHTNESS, CONTRAST, WHITEN, NORMALIZE, SCALE, N_WORDS };

static const char *const words[N_WORDS] = {
    [PAD] = "pad",           [CROP] = "crop",     [MIRROR] = "mirror",       [BRIGHTNESS] = "brightness",
    [CONTRAST] = "contrast", [WHITEN] = "whiten", [NORMALIZE] = "normalize", [SCALE] = "scale",
};

static gw_status wrong(const char *text, const char *why)
{
    return gw_fail(GW_ERR_ARGUMENT,
                   "the transform \"%s\" is not valid: %s; right are scale, or some of pad=PIXELS, crop=SIDE, mirror, "
                   "brightness=0..255, contrast=LOW:HIGH, whiten, normalize, as in pad=4,crop=32,mirror,normalize",
                   text, why);
}

/* A number from `least` to `most` that ends at `end`. */
static bool get_number(const char *text, const char *end, double least, double most, double *value)
{
    char *stop;
    if (!text || text == end || strspn(text, "0123456789.") < (size_t)(end - text))
        return false;
    *value = strtod(text, &stop);
    return stop == end && *value >= least && *value <= most;
}

/* One word, with its value if it has one. */
static bool take(struct gw_transform *t, enum word word, const char *value, const char *end)
{
    double x = 0, y = 0;
    const char *middle = value ? memchr(value, ':', (size_t)(end - value)) : NULL;
    switch (word) {
    case PAD:
        if (!get_number(value, end, 1, 64, &x) || x != floor(x))
            return false;
        t->pad = (uint32_t)x;
        return true;
    case CROP:
        if (!get_number(value, end, 1, 4096, &x) || x != floor(x))
            return false;
        t->crop = (uint32_t)x;
        return true;
    case BRIGHTNESS:
        if (!get_number(value, end, 0, 255, &x))
            return false;
        t->brightness = (float)x;
        return true;
    case CONTRAST:
        if (!middle || !get_number(value, middle, 0, 100, &x) || !get_number(middle + 1, end, x, 100, &y) || y == 0)
            return false;
        t->contrast[0] = (float)x, t->contrast[1] = (float)y;
        return true;
    case MIRROR:
        t->mirror = true;
        return !value;
    case WHITEN:
        t->whiten = true;
        return !value;
    case NORMALIZE:
        t->normalize = true;
        return !value;
    default:
        return !value;
    }
}

gw_status gw_transform_parse(const char *text, struct gw_transform *t)
{
    bool seen[N_WORDS] = {false};
    *t = (struct gw_transform){0};
    for (const char *at = text ? text : "scale";; at++) {
        const char *end = at + strcspn(at, ","), *name_end = at + strcspn(at, ",=");
        int word = 0;
        while (word < N_WORDS &&
               (strlen(words[word]) != (size_t)(name_end - at) || strncmp(words[word], at, strlen(words[word])) != 0))
            word++;
        if (word == N_WORDS)
            return wrong(text, "a word of it is unknown");
        if (seen[word])
            return wrong(text, "a word of it is there twice");
        seen[word] = true;
        if (!take(t, (enum word)word, name_end < end ? name_end + 1 : NULL, end))
            return wrong(text, "a value of it is not right");
        at = end;
        if (!*at)
            break;
    }
    for (int word = 0; word < SCALE; word++)
        if (seen[SCALE] && seen[word])
            return wrong(text, "scale stands alone: it does nothing else to pictures");
    if (t->whiten && t->normalize)
        return wrong(text, "whiten and normalize exclude each other");
    if (t->pad && !t->crop)
        return wrong(text, "pad needs a crop");
    return GW_OK;
}

/* ---- fitting ---------------------------------------------------------------------------------------------------- */

gw_status gw_transform_fit(struct gw_transform *t, const struct gw_data *data)
{
    t->channels = data->channels, t->height = data->height, t->width = data->width;
    t->out_height = t->crop ? t->crop : t->height, t->out_width = t->crop ? t->crop : t->width;
    if (t->channels > GW_MAX_CHANNELS)
        return gw_fail(GW_ERR_ARGUMENT, "pictures have %u channels; at most %d are possible", t->channels,
                       GW_MAX_CHANNELS);
    if (t->crop > t->height + 2 * t->pad || t->crop > t->width + 2 * t->pad)
        return gw_fail(GW_ERR_ARGUMENT, "a crop of %u does not fit into %ux%u with %u pixels around it", t->crop,
                       t->height, t->width, t->pad);
    const size_t n = (size_t)t->height * t->width;
    for (uint32_t c = 0; t->normalize && c < t->channels; c++) {
        uint64_t sum = 0, squares = 0; /* whole numbers: the same on every machine */
        for (uint32_t i = 0; i < data->train.n; i++) {
            const uint8_t *plane = data->train.pixels + ((size_t)i * t->channels + c) * n;
            for (size_t k = 0; k < n; k++)
                sum += plane[k], squares += (uint64_t)plane[k] * plane[k];
        }
        const double count = (double)n * data->train.n, mean = (double)sum / count;
        const double variance = (double)squares / count - mean * mean;
        t->mean[c] = (float)mean;
        t->inverse[c] = variance > 1 ? (float)(1 / sqrt(variance)) : 1;
    }
    return GW_OK;
}

/* ---- pictures --------------------------------------------------------------------------------------------------- */

/* The part whose first pixel is (top, left) of the padded picture, as numbers from 0 to 255. */
static void cut(const struct gw_transform *t, const uint8_t *pixels, uint32_t top, uint32_t left, bool mirrored,
                float *out)
{
    for (uint32_t c = 0; c < t->channels; c++)
        for (uint32_t y = 0; y < t->out_height; y++, out += t->out_width) {
            const uint32_t row = top + y - t->pad; /* above the picture it wraps, and is out of it too */
            const uint8_t *from = pixels + ((size_t)c * t->height + row) * t->width;
            for (uint32_t x = 0; x < t->out_width; x++) {
                const uint32_t column = left + x - t->pad;
                const bool inside = row < t->height && column < t->width;
                out[mirrored ? t->out_width - 1 - x : x] = inside ? (float)from[column] : 0;
            }
        }
}

static double mean_of(const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)values[i];
    return sum / (double)n;
}

static void change_contrast(const struct gw_transform *t, float factor, float *out)
{
    const size_t n = (size_t)t->out_height * t->out_width;
    for (uint32_t c = 0; c < t->channels; c++, out += n) {
        const float mean = (float)mean_of(out, n);
        for (size_t i = 0; i < n; i++)
            out[i] = (out[i] - mean) * factor + mean;
    }
}

/* To the size that the network gets. */
static void bring_to_size(const struct gw_transform *t, float *out)
{
    const size_t n = (size_t)t->out_height * t->out_width, all = t->channels * n;
    if (t->whiten) {
        const double mean = mean_of(out, all);
        double squares = 0;
        for (size_t i = 0; i < all; i++)
            squares += ((double)out[i] - mean) * ((double)out[i] - mean);
        const double deviation = fmax(sqrt(squares / (double)all), 1 / sqrt((double)all));
        for (size_t i = 0; i < all; i++)
            out[i] = (float)(((double)out[i] - mean) / deviation);
    } else if (t->normalize) {
        for (uint32_t c = 0; c < t->channels; c++)
            for (size_t i = 0; i < n; i++)
                out[c * n + i] = (out[c * n + i] - t->mean[c]) * t->inverse[c];
    } else {
        for (size_t i = 0; i < all; i++)
            out[i] *= GW_PIXEL_SCALE;
    }
}

void gw_transform_train(const struct gw_transform *t, uint64_t seed, uint64_t step, uint32_t place,
                        const uint8_t *pixels, float *out)
{
    struct gw_random r = gw_random_open(seed, GW_PURPOSE_TRANSFORM, (uint32_t)step, place);
    const uint32_t top = gw_random_below(&r, t->height + 2 * t->pad - t->out_height + 1);
    const uint32_t left = gw_random_below(&r, t->width + 2 * t->pad - t->out_width + 1);
    const bool mirrored = t->mirror && gw_random_below(&r, 2);
    const float brighter = gw_random_between(&r, -t->brightness, t->brightness);
    const float contrast = gw_random_between(&r, t->contrast[0], t->contrast[1]);
    cut(t, pixels, top, left, mirrored, out);
    const size_t all = (size_t)t->channels * t->out_height * t->out_width;
    for (size_t i = 0; t->brightness > 0 && i < all; i++)
        out[i] += brighter;
    if (t->contrast[1] > 0)
        change_contrast(t, contrast, out);
    bring_to_size(t, out);
}

void gw_transform_test(const struct gw_transform *t, const uint8_t *pixels, float *out)
{
    cut(t, pixels, (t->height + 2 * t->pad - t->out_height) / 2, (t->width + 2 * t->pad - t->out_width) / 2, false,
        out);
    bring_to_size(t, out);
}
