/* Tests that data are found and read in the forms in which people have them, and that other forms are refused with a
 * sentence that says what to do. */
#define _GNU_SOURCE /* nftw */
#include "base/memory.h"
#include "checks.h"
#include "data/data.h"
#include "own_folder.h"

#include <bzlib.h>
#include <lzma.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* Two pictures of one pixel, which `value` tells from those of other sets, and their labels. */
static void put_mnist(const char *place, char middle, uint8_t value)
{
    static const char *const sets[] = {"train", "t10k"};
    const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, value, value};
    const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 4};
    char name[200];
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s%s-images%cidx3-ubyte", place, sets[i], middle);
        put(name, images, sizeof images);
        snprintf(name, sizeof name, "%s%s-labels%cidx1-ubyte", place, sets[i], middle);
        put(name, labels, sizeof labels);
    }
}

static void put_cifar(const char *place)
{
    uint8_t picture[3073] = {7};
    char name[200];
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, i < 5 ? "%sdata_batch_%d.bin" : "%stest_batch.bin", place, i + 1);
        put(name, picture, sizeof picture);
    }
}

static void check_loads(const char *name, uint32_t channels, uint8_t value)
{
    struct gw_data data;
    const gw_status status = gw_data_load(in(name), NULL, &data);
    CHECK(status == GW_OK, "%s: %s", name, gw_last_error());
    CHECK(data.channels == channels && data.train.pixels[0] == value, "%s: %u, %u", name, data.channels,
          data.train.pixels[0]);
    gw_data_free(&data);
}

static void check_refused(const char *name, const char *says)
{
    struct gw_data data;
    CHECK(gw_data_load(in(name), NULL, &data) < 0, "%s was read", name);
    CHECK(strstr(gw_last_error(), says), "%s: \"%s\" does not say \"%s\"", name, gw_last_error(), says);
}

TEST_BETWEEN(pictures_are_found_where_people_have_them, make_folder, clean_up)
{
    put_mnist("plain/", '-', 1);
    check_loads("plain", 1, 1);
    put_mnist("pointed/", '.', 2);
    check_loads("pointed", 1, 2);
    put_mnist("torch/MNIST/raw/", '-', 3);
    check_loads("torch", 1, 3);
    check_loads("torch/MNIST", 1, 3);
    check_loads("torch/MNIST/raw", 1, 3);
    put_mnist("fashion/FashionMNIST/raw/", '-', 4);
    check_loads("fashion", 1, 4);
    put_cifar("cifar/cifar-10-batches-bin/");
    check_loads("cifar", 3, 0);
    check_loads("cifar/cifar-10-batches-bin", 3, 0);
    /* Some archives make a folder of each file's name beside the files. */
    put_mnist("both/", '.', 5);
    put("both/train-images-idx3-ubyte/train-images-idx3-ubyte", "", 0);
    check_loads("both", 1, 5);
}

TEST_BETWEEN(folders_of_several_or_of_none_are_refused, make_folder, clean_up)
{
    put_mnist("two/MNIST/raw/", '-', 1);
    put_mnist("two/FashionMNIST/raw/", '-', 2);
    check_refused("two", "holds several data sets; name the folder of one of them, such as");
    put_mnist("mixed/MNIST/raw/", '-', 1);
    put_cifar("mixed/cifar-10-batches-bin/");
    check_refused("mixed", "it must hold one data set");
    put_mnist("near/", '-', 6); /* what lies in the folder itself counts */
    put_mnist("near/MNIST/raw/", '-', 7);
    check_loads("near", 1, 6);
    put_text("python/cifar-10-batches-py/data_batch_1", "x");
    check_refused("python", "cifar-10-binary.tar.gz");
    check_refused("python/cifar-10-batches-py", "cifar-10-binary.tar.gz");
    put_text("none/readme", "x");
    check_refused("none", "holds neither MNIST's files");
    put_mnist("folders/", '-', 1);
    unlink(in("folders/train-images-idx3-ubyte"));
    mkdir(in("folders/train-images-idx3-ubyte"), 0700);
    check_refused("folders", "is a folder, and must be a file");
}

static const char text[] = "1 1:1 2:0.125\n-1 5:3\n";

static void check_text(const char *name)
{
    struct gw_data data;
    const gw_status status = gw_data_load(in(name), NULL, &data);
    CHECK(status == GW_OK, "%s: %s", name, gw_last_error());
    CHECK(data.train.n == 2 && data.channels == 5 && data.train.rows.value[2] == 3, "%s", name);
    gw_data_free(&data);
}

/* Packs the text into two streams, one behind the other, as some programs do. Returns the length. */
static size_t pack(bool bzip2, uint8_t *bytes, size_t capacity)
{
    size_t n = 0;
    for (int part = 0; part < 2; part++) {
        char *from = (char *)(uintptr_t)text + (part ? 9 : 0);
        const unsigned n_from = part ? sizeof text - 1 - 9 : 9;
        unsigned n_to = (unsigned)(capacity - n);
        if (bzip2) {
            assert_int_equal(BZ2_bzBuffToBuffCompress((char *)bytes + n, &n_to, from, n_from, 9, 0, 0), BZ_OK);
            n += n_to;
            continue;
        }
        z_stream z = {.next_in = (uint8_t *)from, .avail_in = n_from, .next_out = bytes + n, .avail_out = n_to};
        assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
        n += z.total_out;
        deflateEnd(&z);
    }
    return n;
}

TEST_BETWEEN(packed_files_are_read_whatever_their_name, make_folder, clean_up)
{
    for (int bzip2 = 0; bzip2 < 2; bzip2++) {
        uint8_t bytes[1024];
        char damaged[200];
        const size_t n = pack(bzip2, bytes, sizeof bytes);
        put(bzip2 ? "a.bz2" : "a.gz", bytes, n);
        check_text("a");
        check_text(bzip2 ? "a.bz2" : "a.gz");
        put("renamed", bytes, n);
        check_text("renamed");
        memset(bytes + n, 0, 32); /* zeros may fill up the file */
        put("renamed", bytes, n + 32);
        check_text("renamed");
        for (size_t cut = 4; cut < n; cut++) {
            put("renamed", bytes, cut);
            struct gw_data data;
            const gw_status status = gw_data_load(in("renamed"), NULL, &data);
            CHECK(status < 0, "cut to %zu bytes, it was read", cut);
            CHECK(strstr(gw_last_error(), "renamed"), "%s", gw_last_error());
        }
        bytes[n / 4] ^= 0x10;
        put("renamed", bytes, n);
        snprintf(damaged, sizeof damaged, "is damaged (%s error", bzip2 ? "bzip2" : "gzip");
        check_refused("renamed", damaged);
        unlink(in(bzip2 ? "a.bz2" : "a.gz"));
    }
}

/* More bytes than one look at the file brings, and than there is room for at first. */
TEST_BETWEEN(long_files_are_read_as_far_as_they_may, make_folder, clean_up)
{
    enum { N = 1200000, MORE = N + N / 50 };
    static const char *const names[] = {"long", "long.gz", "long.xz", "long.bz2"};
    static uint8_t plain[N], packed[MORE];
    struct numbers numbers = numbers_from(5);
    for (size_t i = 0; i < N; i++)
        plain[i] = (uint8_t)numbers_word(&numbers);
    for (int how = 0; how < 4; how++) {
        char path[4200];
        uint8_t *bytes;
        size_t n = MORE;
        unsigned n_bzip2 = MORE;
        z_stream z = {.next_in = plain, .avail_in = N, .next_out = packed, .avail_out = MORE};
        if (how == 0) {
            memcpy(packed, plain, n = N);
        } else if (how == 1) {
            assert_int_equal(deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY), Z_OK);
            assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
            n = z.total_out;
            deflateEnd(&z);
        } else if (how == 2) {
            n = 0;
            assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC64, NULL, plain, N, packed, &n, MORE), LZMA_OK);
        } else {
            assert_int_equal(BZ2_bzBuffToBuffCompress((char *)packed, &n_bzip2, (char *)plain, N, 1, 0, 0), BZ_OK);
            n = n_bzip2;
        }
        put(names[how], packed, n);
        gw_status status = gw_data_file(folder, "long", N, "", path, sizeof path, &bytes, &n);
        CHECK(status == GW_OK, "%s: %s", names[how], gw_last_error());
        CHECK(n == N && memcmp(bytes, plain, N) == 0 && bytes[N] == 0, "%s: %zu bytes", names[how], n);
        assert_string_equal(path, in(names[how]));
        gw_free(NULL, bytes);
        status = gw_data_file(folder, "long", N - 1, "", path, sizeof path, &bytes, &n);
        CHECK(status < 0 && strstr(gw_last_error(), "more than 1199999 bytes"), "%s: %s", names[how], gw_last_error());
        unlink(in(names[how]));
    }
    char path[10];
    uint8_t *bytes;
    size_t n;
    assert_int_equal(gw_data_file(folder, "long", N, "", path, sizeof path, &bytes, &n), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "is longer than 9 bytes"));
}

static bool asked_often(void *user)
{
    int *left = user;
    return (*left)-- == 0;
}

/* Whatever is loaded, somebody may ask for its end at any time. */
TEST_BETWEEN(loading_may_be_stopped, make_folder, clean_up)
{
    static const char *const sources[] = {"digits", "uneven:n=20,d=10", "rows", "packed", "pictures"};
    static const int most[] = {1000, 10, 4, 5, 4}; /* when to stop: they ask at least so often */
    uint8_t packed[4096];
    size_t n = 0;
    const char *rows = "1 1:1\n-1 2:1\n1 3:1\n-1 4:1\n";
    put_text("rows", rows);
    assert_int_equal(lzma_easy_buffer_encode(0, LZMA_CHECK_CRC64, NULL, (const uint8_t *)rows, strlen(rows), packed, &n,
                                             sizeof packed),
                     LZMA_OK);
    put("packed", packed, n);
    assert_int_equal(mkdir(in("pictures"), 0777), 0);
    put_mnist("pictures/", '-', 7);
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        for (int at = 0; at <= most[i]; at += i == 0 ? 500 : 1) {
            struct gw_data data;
            int left = at;
            gw_data_stop_if(asked_often, &left);
            const gw_status status = gw_data_load(i < 2 ? sources[i] : in(sources[i]), NULL, &data);
            gw_data_stop_if(NULL, NULL);
            CHECK(status == GW_ERR_CLOSED, "%s, %d: %d, %s", sources[i], at, status, gw_last_error());
            assert_non_null(strstr(gw_last_error(), "as asked"));
            assert_null(data.train.labels);
        }
    struct gw_data data;
    assert_int_equal(gw_data_load(in("rows"), NULL, &data), GW_OK);
    gw_data_free(&data);
}

TEST_BETWEEN(text_of_windows_is_read, make_folder, clean_up)
{
    put_text("w", "\xef\xbb\xbf"
                  "1 1:1 2:0.125\r\n-1 5:3\r\n");
    check_text("w");
    put_text("w", "\xef\xbb\xbf\r\n# what it is\r\n1 1:1\t2:0.125 \r\n-1 5:3");
    check_text("w");
    put("w",
        "\xff\xfe"
        "1\0 \0",
        6);
    check_refused("w", "UTF-16 text; save it as UTF-8");
    put_text("w", "1 1:1\n\xef\xbb\xbf"
                  "1 1:1\n"); /* a mark is one at the beginning only */
    check_refused("w", "line 2");
}

TEST_BETWEEN(other_forms_are_named, make_folder, clean_up)
{
    static const struct {
        const char *bytes, *says;
        size_t n;
    } cases[] = {
        {"PK\3\4xxxx", "is a zip archive; unpack it", 8},
        {"\x28\xb5\x2f\xfdxx", "unzstd", 6},
        {"\x93NUMPY\1\0", "is a NumPy array", 8},
        {"\0\0\x08\x03\0\0", "is one of MNIST's files; give the folder", 6},
        {"1;2;3\n", "is no label", 6},
        {"", "holds no samples", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put("f", cases[i].bytes, cases[i].n);
        check_refused("f", cases[i].says);
    }
    char tar[600] = "cifar-10-batches-bin/";
    memcpy(tar + 257, "ustar", 5);
    put("f", tar, sizeof tar);
    check_refused("f", "is a tar archive; unpack it (tar xf), and give the folder");
}

RUN_TESTS("forms of data", NULL, NULL)
