/* Cuts, mirrors, brightens and scales pictures. All that is drawn comes from one stream a sample and step. */
#include "data/transform.h"
#include "base/error.h"
#include "base/numbers.h"
#include "base/spec.h"
#include "data/data.h"
#include "random.h"

#include <math.h>
#include <string.h>

/* ---- specification ---------------------------------------------------------------------------------------------- */

enum word { PAD, CROP, MIRROR, BRIGHTNESS, CONTRAST, WHITEN, NORMALIZE, SCALE, N_WORDS };

static const char *const words[N_WORDS] = {
    [PAD] = "pad",           [CROP] = "crop",     [MIRROR] = "mirror",       [BRIGHTNESS] = "brightness",
    [CONTRAST] = "contrast", [WHITEN] = "whiten", [NORMALIZE] = "normalize", [SCALE] = "scale",
};

#define EXAMPLE                                                                                                        \
    "right are scale, or some of pad=PIXELS, crop=SIDE, mirror, brightness=0..255, contrast=LOW:HIGH, "                \
    "whiten, normalize, as in pad=4,crop=32,mirror,normalize"

/* A whole number from 1 to `most`. */
static bool get_whole(const char *value, double most, uint32_t *out)
{
    uint64_t n;
    if (!gw_spec_count(value, 1, most, &n))
        return false;
    *out = (uint32_t)n;
    return true;
}

static bool get_contrast(const char *value, float contrast[2])
{
    double x, y;
    if (!gw_read_decimal(&value, &x) || x < 0 || *value != ':' || !gw_spec_number(value + 1, x, 100, &y) || y == 0)
        return false;
    contrast[0] = (float)x, contrast[1] = (float)y;
    return true;
}

struct target {
    struct gw_transform *t;
    bool scales;
};

static gw_status take(void *user, size_t word, const char *value)
{
    struct target *to = user;
    struct gw_transform *t = to->t;
    bool *const flags[N_WORDS] = {
        [MIRROR] = &t->mirror, [WHITEN] = &t->whiten, [NORMALIZE] = &t->normalize, [SCALE] = &to->scales};
    bool good = (flags[word] == NULL) == (value != NULL);
    double x;
    if (good && flags[word])
        *flags[word] = true;
    else if (good && word == PAD)
        good = get_whole(value, 64, &t->pad);
    else if (good && word == CROP)
        good = get_whole(value, 4096, &t->crop);
    else if (good && word == CONTRAST)
        good = get_contrast(value, t->contrast);
    else if (good && (good = gw_spec_number(value, 0, 255, &x)))
        t->brightness = (float)x;
    return good ? GW_OK
                : gw_fail(GW_ERR_SPEC, "the transform: %s%s%s is not legal; " EXAMPLE, words[word], value ? "=" : "",
                          value ? value : "");
}

static gw_status wrong(const char *text, const char *why)
{
    return gw_fail(GW_ERR_SPEC, "the transform \"%s\" is not legal: %s; " EXAMPLE, text, why);
}

gw_status gw_transform_parse(const char *text, struct gw_transform *t)
{
    struct target to = {.t = t};
    const struct gw_spec spec = {
        .what = "the transform", .keys = words, .n_keys = N_WORDS, .has_words = true, .take = take, .user = &to};
    *t = (struct gw_transform){0};
    if (text && !*text)
        return wrong(text, "it is empty");
    GW_TRY(gw_spec_parse(&spec, text ? text : words[SCALE]));
    if (to.scales && strcmp(text ? text : words[SCALE], words[SCALE]) != 0)
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
        uint64_t sum = 0, squares = 0; /* whole numbers give the same sums on every machine */
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

/* Cuts out the part whose first pixel is (top, left) of the padded picture, as numbers from 0 to 255. */
static void cut(const struct gw_transform *t, const uint8_t *pixels, uint32_t top, uint32_t left, bool mirrored,
                float *out)
{
    for (uint32_t c = 0; c < t->channels; c++)
        for (uint32_t y = 0; y < t->out_height; y++, out += t->out_width) {
            const uint32_t row = top + y - t->pad; /* a row above the picture wraps around: it is outside, too */
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

/* Scales pixels to the size that the network gets. */
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
