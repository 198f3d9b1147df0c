/* Tests data files that are right and wrong in every way we thought of, and the drawn digits. */
#define _GNU_SOURCE /* nftw */
#include "base/memory.h"
#include "checks.h"
#include "data/data.h"
#include "own_folder.h"

#include <lzma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>
#include <zlib.h>

enum { N = 5, SIDE = 3 };

struct bytes {
    uint8_t data[256];
    size_t n;
};

static void put32(struct bytes *b, uint32_t v)
{
    for (int i = 3; i >= 0; i--)
        b->data[b->n++] = (uint8_t)(v >> 8 * i);
}

static struct bytes good_images(void)
{
    struct bytes b = {.n = 0};
    put32(&b, 0x803), put32(&b, N), put32(&b, SIDE), put32(&b, SIDE);
    for (int i = 0; i < N * SIDE * SIDE; i++)
        b.data[b.n++] = (uint8_t)(3 * i);
    return b;
}

static struct bytes good_labels(void)
{
    struct bytes b = {.n = 0};
    put32(&b, 0x801), put32(&b, N);
    for (int i = 0; i < N; i++)
        b.data[b.n++] = (uint8_t)(2 * i);
    return b;
}

static void put_gzip(const char *name, const void *data, size_t n)
{
    gzFile f = gzopen(in(name), "wb");
    assert_int_equal(gzwrite(f, data, (unsigned)n), n);
    assert_int_equal(gzclose(f), Z_OK);
}

static void put_xz(const char *name, const void *data, size_t n)
{
    uint8_t out[1024];
    size_t n_out = 0;
    assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, data, n, out, &n_out, sizeof out), LZMA_OK);
    put(name, out, n_out);
}

static gw_status load(struct gw_samples *s)
{
    uint32_t height = 0, width = 0;
    gw_status status = gw_data_idx(folder, "i", "l", 10, s, &height, &width);
    if (status == GW_OK) {
        assert_int_equal(height, SIDE);
        assert_int_equal(width, SIDE);
    }
    return status;
}

static void check_good(void)
{
    struct gw_samples s;
    assert_int_equal(load(&s), GW_OK);
    assert_int_equal(s.n, N);
    for (int i = 0; i < N * SIDE * SIDE; i++)
        assert_int_equal(s.pixels[i], (uint8_t)(3 * i));
    for (int i = 0; i < N; i++)
        assert_int_equal(s.labels[i], 2 * i);
    gw_free(NULL, s.pixels);
    gw_free(NULL, s.labels);
}

/* Checks that the files are refused, with a sentence that holds these words. */
static void check_refused(const struct bytes *images, const struct bytes *labels, const char *word, const char *other)
{
    struct gw_samples s;
    put("i", images->data, images->n);
    put("l", labels->data, labels->n);
    assert_int_equal(load(&s), GW_ERR_SYSTEM);
    assert_null(s.pixels);
    assert_null(s.labels);
    if (!strstr(gw_last_error(), word) || !strstr(gw_last_error(), other))
        fail_msg("\"%s\" names neither \"%s\" nor \"%s\"", gw_last_error(), word, other);
}

TEST_BETWEEN(reads_plain_gzip_and_xz, make_folder, clean_up)
{
    struct bytes images = good_images(), labels = good_labels();
    put("i", images.data, images.n);
    put("l", labels.data, labels.n);
    check_good();
    assert_true(gw_data_is_there(in("i")));
    unlink(in("i"));
    assert_false(gw_data_is_there(in("i")));
    put_gzip("i.gz", images.data, images.n);
    assert_true(gw_data_is_there(in("i")));
    check_good();
    unlink(in("l"));
    put_xz("l.xz", labels.data, labels.n);
    check_good();
}

TEST_BETWEEN(refuses_what_contradicts_itself, make_folder, clean_up)
{
    struct bytes images = good_images(), labels = good_labels(), bad;

    for (size_t n = 0; n < images.n; n++) {
        bad = images, bad.n = n;
        check_refused(&bad, &labels, "/i", "cut short");
    }
    for (size_t n = 0; n < labels.n; n++) {
        bad = labels, bad.n = n;
        check_refused(&images, &bad, "/l", "cut short");
    }
    bad = images, bad.data[bad.n++] = 0;
    check_refused(&bad, &labels, "/i", "too long");
    bad = images, bad.data[3] = 1;
    check_refused(&bad, &labels, "/i", "0x00000803");
    bad = images, bad.data[7] = 0;
    check_refused(&bad, &labels, "/i", "dimension of 0");
    bad = images, memset(bad.data + 4, 0xff, 12);
    check_refused(&bad, &labels, "/i", "sides 1 to 4096");
    bad = images, bad.data[4] = 0xff; /* four billion images in a hundred bytes */
    check_refused(&bad, &labels, "/i", "cut short");
    bad = labels, bad.data[bad.n - 1] = 10;
    check_refused(&images, &bad, "/l: label 10 of sample 4", "0 to 9");
    bad = labels, bad.data[7] = N - 1, bad.n--;
    check_refused(&images, &bad, "4 labels", "5 images");
}

TEST_BETWEEN(names_a_missing_file, make_folder, clean_up)
{
    struct gw_samples s;
    assert_true(load(&s) < 0);
    assert_non_null(strstr(gw_last_error(), "/i (nor"));
    struct gw_data data;
    assert_true(gw_data_load("/nowhere/at/all", NULL, &data) < 0);
    assert_non_null(strstr(gw_last_error(), "/nowhere/at/all"));
}

TEST_BETWEEN(refuses_damaged_compression, make_folder, clean_up)
{
    struct bytes images = good_images(), labels = good_labels();
    struct gw_samples s;
    put("l", labels.data, labels.n);
    for (int xz = 0; xz < 2; xz++) {
        const char *name = xz ? "i.xz" : "i.gz";
        unlink(in("i.gz"));
        (xz ? put_xz : put_gzip)(name, images.data, images.n);
        check_good();
        uint8_t whole[1024];
        const size_t n = get(name, whole, sizeof whole);
        for (size_t cut = 1; cut < n; cut++) { /* 0 bytes are an empty file, which is cut, too */
            put(name, whole, cut);
            assert_true(load(&s) < 0);
            assert_non_null(strstr(gw_last_error(), in(name)));
        }
        whole[n / 2] ^= 0x10;
        put(name, whole, n);
        assert_true(load(&s) < 0);
    }
}

TEST(digits_are_the_same_every_time)
{
    struct gw_samples a, b, other;
    uint32_t counts[10] = {0};
    assert_int_equal(gw_data_digits(0, 2000, &a), GW_OK);
    assert_int_equal(gw_data_digits(0, 100, &b), GW_OK);
    assert_int_equal(gw_data_digits(1, 100, &other), GW_OK);
    assert_memory_equal(a.pixels, b.pixels, 100 * 784);
    assert_memory_equal(a.labels, b.labels, 100);
    assert_int_not_equal(memcmp(a.pixels, other.pixels, 100 * 784), 0);
    /* If these change, runs with digits no longer repeat those of earlier versions. */
    const uint64_t hash = XXH3_64bits_withSeed(a.labels, 2000, XXH3_64bits(a.pixels, 2000 * 784));
    CHECK(hash == 0xd9af1a7e0aeb9ce1, "the digits have the hash 0x%016llx", (unsigned long long)hash);
    for (int i = 0; i < 2000; i++)
        counts[a.labels[i]]++;
    for (int k = 0; k < 10; k++) /* 200 expected, sigma 13.4 */
        CHECK_IN_RANGE(counts[k], 120, 280);
    struct gw_samples *all[] = {&a, &b, &other};
    for (int i = 0; i < 3; i++) {
        gw_free(NULL, all[i]->pixels);
        gw_free(NULL, all[i]->labels);
    }
}

TEST(reads_mnist)
{
    const char *source = getenv("GRADWIRE_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s%s", source ? source : GW_SOURCE_DIR "/../shared/data", "/mnist");
    if (access(path, R_OK) != 0) {
        print_message("skipped: no MNIST in %s (GRADWIRE_DATA names the folder above it)\n", path);
        skip();
    }
    struct gw_data data;
    assert_int_equal(gw_data_load(path, NULL, &data), GW_OK);
    assert_int_equal(data.train.n, 60000);
    assert_int_equal(data.test.n, 10000);
    assert_int_equal(data.height, 28);
    assert_int_equal(data.train.labels[0], 5); /* the first picture, which everyone knows */
    uint64_t sum = 0;
    for (size_t i = 0; i < (size_t)60000 * 784; i++)
        sum += data.train.pixels[i];
    CHECK_IN_RANGE(sum, 1567298545, 1567298545); /* mean 0.1307 */
    gw_data_free(&data);
}

RUN_TESTS("data", NULL, NULL)
