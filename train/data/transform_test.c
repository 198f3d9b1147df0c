/* Tests what is done to pictures, beside a plain calculation, and the order and shares of samples; and that CIFAR-10's
 * files are read as they are written. */
#define _GNU_SOURCE /* nftw */
#include "checks.h"
#include "data/data.h"
#include "data/order.h"
#include "own_folder.h"

#include <gradwire/status.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CHANNELS = 2, HEIGHT = 3, WIDTH = 4, PIXELS = CHANNELS * HEIGHT * WIDTH, MOST = 400 };

/* Two pictures. No two pixels are alike. */
static uint8_t pixels[2 * PIXELS];
static uint8_t labels[2];

static struct gw_data data_of(uint32_t n)
{
    for (int i = 0; i < 2 * PIXELS; i++)
        pixels[i] = (uint8_t)(40 + 4 * i);
    return (struct gw_data){.channels = CHANNELS,
                            .height = HEIGHT,
                            .width = WIDTH,
                            .classes = 2,
                            .train = {.n = n, .pixels = pixels, .labels = labels}};
}

static struct gw_transform fitted(const char *text)
{
    const struct gw_data data = data_of(2);
    struct gw_transform t;
    assert_int_equal(gw_transform_parse(text, &t), GW_OK);
    assert_int_equal(gw_transform_fit(&t, &data), GW_OK);
    return t;
}

/* The pixel of a picture that has black on all sides. */
static float padded(int c, int y, int x)
{
    return y >= 0 && y < HEIGHT && x >= 0 && x < WIDTH ? pixels[(c * HEIGHT + y) * WIDTH + x] : 0;
}

/* True if `out`, times `factor`, is the part of picture 0 that begins at (top, left) of the picture itself. */
static bool is_part(const struct gw_transform *t, const float *out, float factor, int top, int left, bool mirrored)
{
    for (int c = 0; c < CHANNELS; c++)
        for (int y = 0; y < (int)t->out_height; y++)
            for (int x = 0; x < (int)t->out_width; x++) {
                const int column = mirrored ? (int)t->out_width - 1 - x : x;
                const float value = out[(c * (int)t->out_height + y) * (int)t->out_width + x];
                if (value * factor != padded(c, top + y, left + column))
                    return false;
            }
    return true;
}

/* ---- specifications -------------------------------------------------------------------------------------- */

TEST(words_and_their_values)
{
    static const char *const good[] = {NULL,
                                       "scale",
                                       "crop=1",
                                       "crop=4096",
                                       "pad=64,crop=2",
                                       "pad=1,crop=2",
                                       "mirror",
                                       "brightness=0",
                                       "brightness=255",
                                       "contrast=0:1",
                                       "contrast=0.5:100",
                                       "contrast=2:2",
                                       "whiten",
                                       "normalize",
                                       "mirror,whiten",
                                       "contrast=0000000000000000000000000000001:1"};
    static const struct {
        const char *text, *words;
    } bad[] = {{"", ""},
               {"scale,mirror", "scale stands alone"},
               {"mirror,scale", "scale stands alone"},
               {"scale=1", ""},
               {"crop", ""},
               {"crop=0", ""},
               {"crop=32.5", "crop=32.5 is not legal"},
               {"crop=0x20", "crop=0x20 is not legal"},
               {"crop=4097", ""},
               {"pad=4", "needs a crop"},
               {"pad=0,crop=2", ""},
               {"pad=65,crop=2", ""},
               {"mirror=1", ""},
               {"mirror,mirror", "'mirror' is given twice"},
               {"mirror,", "an option is empty"},
               {"miror", "did you mean 'mirror'?"},
               {"brightness", ""},
               {"brightness=-1", ""},
               {"brightness=nan", "brightness=nan is not legal"},
               {"brightness=256", ""},
               {"contrast=1", ""},
               {"contrast=2:1", ""},
               {"contrast=0:0", ""},
               {"contrast=1:101", ""},
               {"contrast=:1", ""},
               {"whiten,normalize", "exclude"},
               {"blur", ""}};
    struct gw_transform t;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(gw_transform_parse(good[i], &t) == GW_OK, "%s: %s", good[i] ? good[i] : "NULL", gw_last_error());
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(gw_transform_parse(bad[i].text, &t) == GW_ERR_SPEC && strstr(gw_last_error(), bad[i].words), "\"%s\": %s",
              bad[i].text, gw_last_error());
    assert_int_equal(gw_transform_parse("pad=3,crop=5,mirror,brightness=7,contrast=0.5:2,whiten", &t), GW_OK);
    assert_true(t.pad == 3 && t.crop == 5 && t.mirror && t.brightness == 7 && t.contrast[0] == 0.5f &&
                t.contrast[1] == 2 && t.whiten && !t.normalize);
}

TEST(crops_that_do_not_fit)
{
    static const struct {
        const char *text;
        bool fits;
    } cases[] = {{"crop=3", true}, {"crop=4", false}, {"pad=1,crop=5", true}, {"pad=1,crop=6", false}};
    struct gw_data data = data_of(2);
    struct gw_transform t;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(gw_transform_parse(cases[i].text, &t), GW_OK);
        CHECK(gw_transform_fit(&t, &data) == (cases[i].fits ? GW_OK : GW_ERR_ARGUMENT), "%s", cases[i].text);
        if (cases[i].fits)
            assert_true(t.out_height == t.crop && t.out_width == t.crop);
    }
    assert_int_equal(gw_transform_parse("scale", &t), GW_OK);
    data.channels = GW_MAX_CHANNELS;
    assert_int_equal(gw_transform_fit(&t, &data), GW_OK);
    assert_true(t.out_height == HEIGHT && t.out_width == WIDTH);
    data.channels = GW_MAX_CHANNELS + 1;
    assert_int_equal(gw_transform_fit(&t, &data), GW_ERR_ARGUMENT);
    data.height = 4, data.width = 3, data.channels = 1; /* narrow pictures, too */
    assert_int_equal(gw_transform_parse("crop=4", &t), GW_OK);
    assert_int_equal(gw_transform_fit(&t, &data), GW_ERR_ARGUMENT);
    assert_int_equal(gw_data_transform(&(struct gw_data){.classes = 2}, "mirror"), GW_ERR_ARGUMENT); /* rows are no
                                                                                                      * pictures */
    assert_int_equal(gw_data_transform(&(struct gw_data){.classes = 2}, NULL), GW_OK);
}

/* ---- pictures -------------------------------------------------------------------------------------------- */

TEST(tests_take_the_middle)
{
    static const struct {
        const char *text;
        int top, left;
    } cases[] = {{"scale", 0, 0},          {"crop=1", 1, 1},       {"crop=2,mirror", 0, 1},
                 {"pad=2,crop=5", -1, -1}, {"pad=3,crop=1", 1, 1}, {"brightness=9,contrast=2:3", 0, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct gw_transform t = fitted(cases[i].text);
        float out[MOST] = {0};
        gw_transform_test(&t, pixels, out);
        CHECK(is_part(&t, out, 256, cases[i].top, cases[i].left, false), "%s", cases[i].text);
        assert_true(out[CHANNELS * t.out_height * t.out_width] == 0);
    }
}

/* Every place of the crop is drawn, mirrored and not. Nothing else is drawn. */
TEST(training_draws_every_part)
{
    const struct gw_transform t = fitted("pad=1,crop=4,mirror"), plain = fitted("pad=1,crop=4");
    enum { DOWN = HEIGHT + 2 - 4 + 1, ACROSS = WIDTH + 2 - 4 + 1 };
    int n_of[DOWN][ACROSS][2] = {{{0}}};
    for (uint32_t place = 0; place < 1200; place++) {
        float out[MOST];
        int found = 0;
        gw_transform_train(&t, 1, 7, place, pixels, out);
        for (int y = 0; y < DOWN; y++)
            for (int x = 0; x < ACROSS; x++)
                for (int m = 0; m < 2; m++)
                    if (is_part(&t, out, 256, y - 1, x - 1, m))
                        found++, n_of[y][x][m]++;
        CHECK(found == 1, "place %u is %d parts of the picture", place, found);
        gw_transform_train(&plain, 1, 7, place, pixels, out);
        found = 0;
        for (int y = 0; y < DOWN; y++)
            for (int x = 0; x < ACROSS; x++)
                found += is_part(&plain, out, 256, y - 1, x - 1, false);
        CHECK(found == 1, "place %u without mirror is %d parts", place, found);
    }
    for (int y = 0; y < DOWN; y++) /* 100 of each are expected; 5 standard deviations are 48 */
        for (int x = 0; x < ACROSS; x++)
            for (int m = 0; m < 2; m++)
                CHECK(n_of[y][x][m] > 52 && n_of[y][x][m] < 148, "(%d, %d), mirrored %d: %d", y, x, m, n_of[y][x][m]);
    /* A change of seed, step or place gives another draw. The same three give the same draw. */
    float a[MOST], b[MOST];
    const struct gw_transform bright = fitted("brightness=100");
    gw_transform_train(&bright, 1, 2, 3, pixels, a);
    const uint64_t others[][3] = {{1, 2, 3}, {2, 2, 3}, {1, 3, 3}, {1, 2, 4}};
    for (int i = 0; i < 4; i++) {
        gw_transform_train(&bright, others[i][0], others[i][1], (uint32_t)others[i][2], pixels, b);
        CHECK((memcmp(a, b, PIXELS * sizeof *a) == 0) == (i == 0), "case %d", i);
    }
}

TEST(brightness_and_contrast)
{
    const struct gw_transform bright = fitted("brightness=50"), contrast = fitted("contrast=0.5:2");
    float least = 1000, most = -1000, least_factor = 1000, most_factor = 0;
    for (uint32_t place = 0; place < 500; place++) {
        float out[MOST];
        gw_transform_train(&bright, 1, 1, place, pixels, out);
        const float more = out[0] * 256 - pixels[0];
        for (int i = 0; i < PIXELS; i++)
            CHECK(fabsf(out[i] * 256 - pixels[i] - more) < 1e-3f, "place %u, pixel %d", place, i);
        least = more < least ? more : least, most = more > most ? more : most;
        gw_transform_train(&contrast, 1, 1, place, pixels, out);
        float factor = 0;
        for (int c = 0; c < CHANNELS; c++) {
            const uint8_t *from = pixels + c * HEIGHT * WIDTH;
            float mean = 0;
            for (int i = 0; i < HEIGHT * WIDTH; i++)
                mean += (float)from[i] / (HEIGHT * WIDTH);
            for (int i = 0; i < HEIGHT * WIDTH; i++) {
                const float one = (out[c * HEIGHT * WIDTH + i] * 256 - mean) / (from[i] - mean);
                factor = factor == 0 ? one : factor;
                CHECK(fabsf(one - factor) < 1e-3f, "place %u, pixel %d: %g and %g", place, i, (double)one,
                      (double)factor);
            }
        }
        least_factor = factor < least_factor ? factor : least_factor;
        most_factor = factor > most_factor ? factor : most_factor;
    }
    /* 500 uniform draws come within a fiftieth of either end, except with probability 0.98^500. */
    CHECK(least > -50.01f && least < -48 && most < 50.01f && most > 48, "%g to %g", (double)least, (double)most);
    CHECK(least_factor > 0.499f && least_factor < 0.53f && most_factor < 2.001f && most_factor > 1.97f, "%g to %g",
          (double)least_factor, (double)most_factor);
}

TEST(sizes_that_networks_like)
{
    float out[MOST];
    struct gw_transform t = fitted("whiten");
    double sum = 0, squares = 0;
    gw_transform_test(&t, pixels, out);
    for (int i = 0; i < PIXELS; i++)
        sum += (double)out[i], squares += (double)out[i] * (double)out[i];
    assert_true(fabs(sum) < 1e-4 && fabs(squares / PIXELS - 1) < 1e-5);
    assert_true(out[1] > out[0]);
    uint8_t flat[PIXELS]; /* a picture of one colour: nothing is divided by 0 */
    memset(flat, 9, sizeof flat);
    gw_transform_test(&t, flat, out);
    for (int i = 0; i < PIXELS; i++)
        assert_true(out[i] == 0);
    flat[0] = 10; /* a deviation below 1 / sqrt(N) counts as 1 / sqrt(N) */
    gw_transform_test(&t, flat, out);
    CHECK(fabs((double)out[0] - (1 - 1.0 / PIXELS) * sqrt(PIXELS)) < 1e-4, "%g", (double)out[0]);

    /* Over all pictures of the training set, one channel at a time. */
    t = fitted("normalize");
    for (int c = 0; c < CHANNELS; c++) {
        sum = squares = 0;
        for (int p = 0; p < 2; p++) {
            gw_transform_test(&t, pixels + p * PIXELS, out);
            for (int i = c * HEIGHT * WIDTH; i < (c + 1) * HEIGHT * WIDTH; i++)
                sum += (double)out[i], squares += (double)out[i] * (double)out[i];
        }
        const double n = 2.0 * HEIGHT * WIDTH;
        CHECK(fabs(sum / n) < 1e-5 && fabs(squares / n - 1) < 1e-5, "channel %d: mean %g, mean square %g", c, sum / n,
              squares / n);
    }
    assert_true(out[1] > out[0]);
    struct gw_data data = data_of(1); /* pictures of one colour: only the mean is subtracted */
    memset(pixels, 9, sizeof pixels);
    assert_int_equal(gw_transform_fit(&t, &data), GW_OK);
    pixels[0] = 11;
    gw_transform_test(&t, pixels, out);
    assert_true(out[0] == 2 && out[1] == 0);
}

/* ---- order ----------------------------------------------------------------------------------------------- */

TEST(every_sample_once)
{
    enum { N = 1000 };
    uint32_t order[N], again[N];
    bool seen[N] = {false};
    gw_order_shuffle(3, 5, N, order);
    for (int i = 0; i < N; i++) {
        assert_true(order[i] < N && !seen[order[i]]);
        seen[order[i]] = true;
    }
    const uint64_t others[][2] = {{3, 5}, {4, 5}, {3, 6}, {3, 5 + (1ull << 32)}};
    for (int i = 0; i < 4; i++) {
        gw_order_shuffle(others[i][0], others[i][1], N, again);
        CHECK((memcmp(order, again, sizeof order) == 0) == (i == 0), "case %d", i);
    }
    uint32_t n_first[3] = {0}; /* each of three comes first equally often: 1000 are expected, 5 standard deviations
                                * are 129 */
    for (uint64_t epoch = 0; epoch < 3000; epoch++) {
        gw_order_shuffle(1, epoch, 3, order);
        n_first[order[0]]++;
    }
    for (int i = 0; i < 3; i++)
        CHECK_IN_RANGE(n_first[i], 871, 1129);
    for (uint32_t batch = 0; batch < 30; batch++)
        for (uint32_t workers = 1; workers < 8; workers++) {
            uint32_t at = 0;
            for (uint32_t r = 0; r < workers; r++) {
                uint32_t begin, count;
                gw_order_share(batch, workers, r, &begin, &count);
                CHECK(begin == at && (count == batch / workers || (count == batch / workers + 1 && batch % workers)),
                      "rank %u of %u, %u samples", r, workers, batch);
                at += count;
            }
            assert_int_equal(at, batch);
        }
}

/* ---- CIFAR-10 -------------------------------------------------------------------------------------------- */

enum { RECORD = 1 + 3 * 32 * 32 };

static const char *const files[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

static void put_batch(int nth, uint32_t n, uint8_t label, size_t n_more)
{
    static uint8_t bytes[4 * RECORD];
    for (uint32_t i = 0; i < n; i++) {
        memset(bytes + i * RECORD, 10 * nth + (int)i, RECORD);
        bytes[i * RECORD] = label;
        bytes[i * RECORD + 1] = 255;
        bytes[(i + 1) * RECORD - 1] = 254;
    }
    put(files[nth], bytes, n * RECORD + n_more);
}

TEST_BETWEEN(cifar_is_read_file_by_file, make_folder, clean_up)
{
    struct gw_data data = {.channels = 0};
    for (int f = 0; f < 6; f++)
        put_batch(f, 1 + (uint32_t)f % 3, (uint8_t)(f + 4), 0);
    assert_int_equal(gw_data_cifar(folder, NULL, &data), GW_OK);
    assert_true(data.channels == 3 && data.height == 32 && data.width == 32 && data.classes == 10);
    assert_int_equal(data.train.n, 1 + 2 + 3 + 1 + 2);
    assert_int_equal(data.test.n, 3);
    uint32_t at = 0;
    for (int f = 0; f < 6; f++)
        for (uint32_t i = 0; i < 1 + (uint32_t)f % 3; i++, at++) {
            at = f == 5 && i == 0 ? 0 : at;
            const struct gw_samples *s = f == 5 ? &data.test : &data.train;
            const uint8_t *picture = s->pixels + (size_t)at * (RECORD - 1);
            assert_int_equal(s->labels[at], f + 4);
            assert_true(picture[0] == 255 && picture[1] == 10 * f + (int)i && picture[RECORD - 2] == 254);
        }
    gw_data_free(&data);
    static const struct {
        uint32_t n;
        uint8_t label;
        size_t n_more;
        const char *words;
    } bad[] = {{2, 10, 0, "label 10 of picture 0 is out of range; labels must be 0 to 9"},
               {1, 1, 1, "has 3074 bytes, and a picture with its label takes 3073"},
               {0, 1, 0, "has 0 bytes"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_batch(2, bad[i].n, bad[i].label, bad[i].n_more);
        assert_int_equal(gw_data_cifar(folder, NULL, &data), GW_ERR_SYSTEM);
        CHECK(strstr(gw_last_error(), bad[i].words) && strstr(gw_last_error(), files[2]), "%s", gw_last_error());
        gw_data_free(&data);
    }
    for (int pipe = 0; pipe < 2; pipe++) {
        assert_int_equal(pipe ? mkfifo(in(files[2]), 0600) : unlink(in(files[2])), 0);
        assert_int_equal(gw_data_cifar(folder, NULL, &data), GW_ERR_SYSTEM);
        CHECK(strstr(gw_last_error(), pipe ? "a pipe" : "CIFAR-10") && strstr(gw_last_error(), files[2]), "%s",
              gw_last_error());
    }
}

RUN_TESTS("transform", NULL, NULL)
