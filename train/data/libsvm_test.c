/* Tests LIBSVM text that is right and wrong in every way we thought of, and the drawn data of uneven magnitude. */
#define _GNU_SOURCE /* nftw */
#include "checks.h"
#include "own_folder.h"
#include "run/evaluate.h"

#include <lzma.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

static void check_row(const struct gw_samples *s, uint32_t row, int label, uint32_t n, const uint32_t *index,
                      const float *value)
{
    assert_int_equal(s->labels[row], label);
    assert_int_equal(s->rows.begin[row + 1] - s->rows.begin[row], n);
    for (uint32_t k = 0; k < n; k++) {
        assert_int_equal(s->rows.index[s->rows.begin[row] + k], index[k]);
        assert_true(s->rows.value[s->rows.begin[row] + k] == value[k]);
    }
}

/* Rows without features, comments, blank lines, tabs, CRLF, and no line end at the end. */
TEST_BETWEEN(reads_what_is_legal, make_folder, clean_up)
{
    struct gw_data data;
    put_text("a", "# made by hand\n"
                  "-1 1:0.5 3:-2e1 \r\n"
                  "\n"
                  "+1\n"
                  "  \t-1\t2:+1 # 7:7\n"
                  "1 #\n"
                  "-1.0 0004:.25");
    assert_int_equal(gw_data_load(in("a"), NULL, &data), GW_OK);
    assert_int_equal(data.train.n, 5);
    assert_int_equal(data.channels, 4);
    assert_int_equal(data.classes, 2);
    check_row(&data.train, 0, 0, 2, (uint32_t[]){0, 2}, (float[]){0.5f, -20});
    check_row(&data.train, 1, 1, 0, NULL, NULL);
    check_row(&data.train, 2, 0, 1, (uint32_t[]){1}, (float[]){1});
    check_row(&data.train, 3, 1, 0, NULL, NULL);
    check_row(&data.train, 4, 0, 1, (uint32_t[]){3}, (float[]){0.25f});
    assert_true(data.test_is_train && data.test.n == 5);
    gw_data_free(&data);
}

/* The values that a network of layers gets. */
TEST_BETWEEN(rows_are_spread_out, make_folder, clean_up)
{
    struct gw_data data;
    float input[2 * 4] = {9, 9, 9, 9, 9, 9, 9, 9};
    uint8_t labels[2];
    put_text("a", "-1 2:5\n1\n-1 1:3 4:7\n");
    assert_int_equal(gw_data_load(in("a"), NULL, &data), GW_OK);
    gw_batch_load(&data, &(struct gw_pass){0}, (uint32_t[]){2, 1}, 0, 2, input, labels);
    assert_memory_equal(input, ((float[]){3, 0, 0, 7, 0, 0, 0, 0}), sizeof input);
    assert_memory_equal(labels, ((uint8_t[]){0, 1}), 2);
    gw_data_free(&data);
}

/* The smaller label is class 0, whichever comes first. A test file has the labels of its training file. It may have
 * fewer features, or more. */
TEST_BETWEEN(labels_and_features_of_two_files_fit, make_folder, clean_up)
{
    static const char *const texts[] = {"2 1:1\n1 2:1\n2 3:1\n", "1 1:1\n0 2:1\n1 3:1\n", "1 1:1\n-1 2:1\n1 3:1\n",
                                        "-3 1:1\n-7.5 2:1\n-3 3:1\n"};
    struct gw_data data;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        put_text("a", texts[i]);
        assert_int_equal(gw_data_load(in("a"), NULL, &data), GW_OK);
        assert_memory_equal(data.train.labels, ((uint8_t[]){1, 0, 1}), 3);
        gw_data_free(&data);
    }
    put_text("a", texts[0]);
    put_text("a.t", "1 2:1\n");
    assert_int_equal(gw_data_load(in("a"), in("a.t"), &data), GW_OK);
    assert_int_equal(data.channels, 3);
    assert_int_equal(data.test.n, 1);
    assert_int_equal(data.test.labels[0], 0);
    assert_false(data.test_is_train);
    gw_data_free(&data);
    put_text("a.t", "2 2:1 9:1\n");
    assert_int_equal(gw_data_load(in("a"), in("a.t"), &data), GW_OK);
    assert_int_equal(data.channels, 9);
    assert_int_equal(data.test.labels[0], 1);
    gw_data_free(&data);
    put_text("a.t", "2 2:1\n-1 2:1\n");
    assert_int_equal(gw_data_load(in("a"), in("a.t"), &data), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "a.t, line 2: the label -1 is a third one, beside 1 and 2"));
}

TEST_BETWEEN(refuses_hostile_text, make_folder, clean_up)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "holds no samples"},
        {"\n# nothing\n \r\n", "holds no samples"},
        {"1 1:1\n1 2:1\n", "every sample has the label 1"},
        {"1 1:1\n2 1:1\n3 1:1\n", "line 3: the label 3 is a third one, beside 1 and 2"},
        {"1 1:1\nx 1:1\n", "line 2: \"x\" is no label"},
        {"1 1:1\nnan 1:1\n", "line 2: \"nan\" is no label"},
        {"1 1:1\n+inf 1:1\n", "line 2: \"+inf\" is no label"},
        {"1 1:1\n0x2 1:1\n", "line 2: \"0x2\" is no label"},
        {"1 1:0x10\n", "line 1: the value in \"1:0x10\" is no finite number"},
        {"1,2 1:1\n", "line 1: \"1,2\" is no label"},
        {"1:1 2:1\n", "line 1: \"1:1\" is no label"},
        {"1 1:1 0:5\n", "line 1: the index in \"0:5\" is 0; indices count from 1"},
        {"1 2:1 1:1\n", "line 1: index 1 follows index 2; indices of a line must ascend"},
        {"1 2:1 2:1\n", "line 1: index 2 follows index 2"},
        {"1 67108865:1\n", "line 1: the index in \"67108865:1\" is above 67108864"},
        {"1 99999999999999999999999:1\n", "is above 67108864"},
        {"1 -1:1\n", "line 1: \"-1:1\" is no INDEX:VALUE"},
        {"1 1\n", "line 1: \"1\" is no INDEX:VALUE"},
        {"1 1 :1\n", "line 1: \"1\" is no INDEX:VALUE"},
        {"1 qid:3 1:1\n", "line 1: \"qid:3\" is no INDEX:VALUE"},
        {"1 :1\n", "line 1: \":1\" is no INDEX:VALUE"},
        {"1 1:\n2 1:1\n", "line 1: the value in \"1:\" is no finite number"},
        {"1 1: 2\n", "line 1: the value in \"1:\" is no finite number"},
        {"1 1:nan\n", "line 1: the value in \"1:nan\" is no finite number"},
        {"1 1:-nan\n", "no finite number"},
        {"1 1:inf\n", "no finite number"},
        {"1 1:1e999\n", "no finite number"},
        {"1 1:1e39\n", "no finite number"}, /* too large for float32 */
        {"1 1:1x\n", "line 1: the value in \"1:1x\" is no finite number"},
        {"1 1:1:1\n", "no finite number"},
        {"1 1:1,2:1\n", "no finite number"},
        {"1 \x01\x7f\xff:1\n", "line 1: \"???:1\" is no INDEX:VALUE"},
    };
    struct gw_data data;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_text("a", cases[i].text);
        gw_status status = gw_data_load(in("a"), NULL, &data);
        if (status != GW_ERR_SYSTEM || !strstr(gw_last_error(), cases[i].says) || !strstr(gw_last_error(), in("a")))
            fail_msg("case %zu: status %d, \"%s\", not \"%s\"", i, (int)status, gw_last_error(), cases[i].says);
        assert_null(data.train.labels);
    }
    put("a", "1 1:1\n\0 1:1\n", 12);
    assert_int_equal(gw_data_load(in("a"), NULL, &data), GW_ERR_SYSTEM);
    put("a", "1 1:1\n2 1:1\0", 12);
    assert_int_equal(gw_data_load(in("a"), NULL, &data), GW_ERR_SYSTEM);
    assert_int_equal(gw_data_load("/nowhere/at/all", NULL, &data), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), "no file /nowhere/at/all"));
    assert_int_equal(gw_data_load("digits", in("a"), &data), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "--test"));
}

/* The file may be named with its ending or without. If it is cut at any place, it is refused by name. */
TEST_BETWEEN(reads_xz_and_refuses_it_cut, make_folder, clean_up)
{
    static const char text[] = "1 1:1 2:0.125\n-1 5:3\n";
    uint8_t packed[1024];
    size_t n = 0;
    struct gw_data data;
    assert_int_equal(lzma_easy_buffer_encode(6, LZMA_CHECK_CRC64, NULL, (const uint8_t *)text, strlen(text), packed, &n,
                                             sizeof packed),
                     LZMA_OK);
    put("a.xz", packed, n);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(gw_data_load(in(k ? "a.xz" : "a"), NULL, &data), GW_OK);
        assert_int_equal(data.train.n, 2);
        assert_int_equal(data.channels, 5);
        gw_data_free(&data);
    }
    for (size_t cut = 0; cut < n; cut++) {
        put("a.xz", packed, cut);
        assert_int_equal(gw_data_load(in("a.xz"), NULL, &data), GW_ERR_SYSTEM);
        assert_non_null(strstr(gw_last_error(), in("a.xz")));
    }
}

/* The public sets. Their makers publish these figures. */
TEST(reads_the_public_sets)
{
    static const struct {
        const char *name;
        uint32_t n, n_features, n_positive;
        uint64_t n_values;
    } sets[] = {{"a9a", 32561, 123, 7841, 451592},
                {"a9a.t", 16281, 122, 3846, 225731},
                {"w8a", 49749, 300, 1479, 579586},
                {"mushrooms", 8124, 112, 4208, 170604},
                {"heart_scale", 270, 13, 120, 3378}};
    const char *source = getenv("GRADWIRE_DATA");
    char path[4096];
    snprintf(path, sizeof path, "%s/libsvm", source ? source : GW_SOURCE_DIR "/../shared/data");
    if (access(path, R_OK) != 0) {
        print_message("skipped: no LIBSVM files in %s (GRADWIRE_DATA names the folder above it)\n", path);
        skip();
    }
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        struct gw_data data;
        snprintf(path, sizeof path, "%s/libsvm/%s", source ? source : GW_SOURCE_DIR "/../shared/data", sets[i].name);
        if (gw_data_load(path, NULL, &data) != GW_OK)
            fail_msg("%s", gw_last_error());
        uint32_t n_positive = 0;
        for (uint32_t k = 0; k < data.train.n; k++)
            n_positive += data.train.labels[k];
        assert_int_equal(data.train.n, sets[i].n);
        assert_int_equal(data.channels, sets[i].n_features);
        assert_int_equal(n_positive, sets[i].n_positive);
        assert_int_equal(data.train.rows.begin[data.train.n], sets[i].n_values);
        gw_data_free(&data);
    }
}

/* Feature k is B_k * N(0, 1). The test checks what follows from how B is drawn. */
TEST(uneven_data_have_uneven_magnitudes)
{
    enum { N = 400, D = 2000 };
    const double c1 = 0.6, c2 = 0.25;
    struct gw_data data, again;
    assert_int_equal(gw_data_load("uneven:n=400,d=2000", NULL, &data), GW_OK);
    assert_int_equal(gw_data_load("uneven:c2=0.25,d=2000,c1=0.6,n=400", NULL, &again), GW_OK);
    assert_int_equal(data.train.n, N);
    assert_int_equal(data.channels, D);
    assert_memory_equal(data.train.rows.value, again.train.rows.value, sizeof(float) * N * D);
    assert_memory_equal(data.train.labels, again.train.labels, N);
    /* If these change, runs with uneven data no longer repeat those of earlier versions. */
    const uint64_t hash = XXH3_64bits(data.train.labels, N);
    CHECK(hash == 0xf5079256099989cd, "the labels have the hash 0x%016llx", (unsigned long long)hash);
    assert_true(gw_data_is_drawn("digits") && gw_data_is_drawn("uneven:n=8") && !gw_data_is_drawn("a9a"));

    double sum = 0, sum2 = 0, small = 0;
    uint32_t n_positive = 0;
    for (uint32_t i = 0; i < N; i++)
        n_positive += data.train.labels[i];
    for (uint32_t k = 0; k < D; k++) {
        double b2 = 0;
        for (uint32_t i = 0; i < N; i++) {
            double x = data.train.rows.value[(size_t)i * D + k];
            sum += x, b2 += x * x / N;
        }
        sum2 += b2 / D;
        small += sqrt(b2) <= c1 * c2;
    }
    /* E B^2 = integral over [0, C2] of (C1 b)^2 and over [C2, 1] of b^2. Standard deviations: B^2 has 0.30, and the
     * mean over features 0.30/sqrt(D) = 0.0067; x has sqrt(1/3); labels are fair coins. The test allows six of each. */
    double expected = c1 * c1 * c2 * c2 * c2 / 3 + (1 - c2 * c2 * c2) / 3;
    assert_true(fabs(sum2 - expected) < 0.04);
    assert_true(fabs(sum / (N * (double)D)) < 6 * 0.58 / sqrt(N * (double)D));
    assert_true(abs((int)n_positive - N / 2) < 6 * sqrt(N) / 2);
    /* A quarter of all features is below C1*C2, within six binomial deviations. Between there and C2 there is only
     * noise. */
    assert_true(fabs(small - c2 * D) < 6 * sqrt(c2 * (1 - c2) * D));
    gw_data_free(&data);
    gw_data_free(&again);

    static const char *const wrong[] = {"uneven:n",        "uneven:n=",    "uneven:n=0",         "uneven:n=1.5",
                                        "uneven:n=-4",     "uneven:c1=2",  "uneven:n=10,",       "uneven:m=3",
                                        "uneven:n=10;d=3", "uneven:d=nan", "uneven:n=1e5,d=1e5", "uneven:n=1e300",
                                        "uneven:n=8,n=8"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (gw_data_load(wrong[i], NULL, &data) != GW_ERR_SPEC)
            fail_msg("%s was not refused", wrong[i]);
}

RUN_TESTS("libsvm", NULL, NULL)
