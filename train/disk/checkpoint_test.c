/* Tests parameter files: what is written comes back, and nothing damaged does. */
#define _GNU_SOURCE /* nftw */
#include "base/memory.h"
#include "disk/checkpoint.h"
#include "descriptors.h"
#include "disk/file.h"
#include "disk/folder.h"
#include "disk/tensorboard.h"
#include "own_folder.h"
#include "wire/hash.h"
#include "checks.h"

#include <gradwire/codec.h>
#include <gradwire/status.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Fails if a .partial file was left. */
static int remove_checkpoint(void **state)
{
    unlink(in(GW_PARAMETER_FILE));
    return remove_empty_folder(state);
}

static float *numbers(const struct gw_network *net, float first)
{
    float *values = gw_calloc(NULL, net->n_storage, sizeof *values);
    for (uint32_t t = 0; t < net->n_tensors; t++)
        for (uint64_t i = 0; i < net->tensors[t].n_elems; i++)
            values[net->tensors[t].offset + i] = first++;
    return values;
}

/* present: bit k for array k. */
static void check_round_trip(unsigned present, bool of_a_run)
{
    static struct gw_checkpoint c, back;
    c = (struct gw_checkpoint){.step = 3456789012};
    if (of_a_run) {
        c.steps = 4056789012, c.workers = 5, c.n_state_files = 5, c.threads = 3;
        strcpy(c.options, "net mlp:5-3-2\nseed 1\n");
    }
    assert_int_equal(gw_network_create("mlp:5-3-2", &c.network), GW_OK);
    for (int k = 0; k < GW_ARRAYS; k++)
        c.arrays[k] = present >> k & 1 ? numbers(&c.network, 1 + 1000 * k) : NULL;
    assert_int_equal(gw_checkpoint_write(folder, GW_PARAMETER_FILE, &c), GW_OK);
    const char *from[] = {folder, in(GW_PARAMETER_FILE)};
    for (int i = 0; i < 2; i++) {
        size_t bytes = c.network.n_storage * sizeof(float);
        assert_int_equal(gw_checkpoint_read(from[i], &back), GW_OK);
        assert_string_equal(back.network.name, "mlp:5-3-2");
        assert_true(back.step == c.step && back.steps == c.steps);
        assert_string_equal(back.options, c.options);
        assert_int_equal(back.workers, c.workers);
        assert_int_equal(back.n_state_files, c.n_state_files);
        assert_int_equal(back.threads, c.threads);
        assert_true(gw_checkpoint_identity(&back) == gw_checkpoint_identity(&c));
        for (int k = 0; k < GW_ARRAYS; k++) {
            assert_int_equal(back.arrays[k] != NULL, present >> k & 1);
            if (back.arrays[k])
                assert_memory_equal(back.arrays[k], c.arrays[k], bytes);
        }
        gw_checkpoint_free(&back);
    }
    gw_checkpoint_free(&c);
}

TEST_BETWEEN(what_is_written_comes_back, make_folder, remove_checkpoint)
{
    for (unsigned i = 0; i < 2u << GW_ARRAYS; i++)
        check_round_trip(i >> 1 | 1u << GW_PARAMS, i & 1);
}

static void check_refused(void)
{
    static struct gw_checkpoint back;
    assert_int_equal(gw_checkpoint_read(in(GW_PARAMETER_FILE), &back), GW_ERR_SYSTEM);
    assert_non_null(strstr(gw_last_error(), in(GW_PARAMETER_FILE)));
    assert_null(back.arrays[GW_PARAMS]);
}

TEST_BETWEEN(damage_is_refused, make_folder, remove_checkpoint)
{
    check_round_trip(1u << GW_PARAMS | 1u << GW_MOMENTUM, true);
    static uint8_t whole[4096], bad[4097];
    const size_t n = get(GW_PARAMETER_FILE, whole, sizeof whole);
    for (size_t i = 0; i < n; i++) {
        memcpy(bad, whole, n);
        bad[i] ^= 0x40;
        put(GW_PARAMETER_FILE, bad, n);
        check_refused();
        put(GW_PARAMETER_FILE, whole, i);
        check_refused();
    }
    memcpy(bad, whole, n);
    bad[n] = 0;
    put(GW_PARAMETER_FILE, bad, n + 1);
    check_refused();
}

/* A file whose checksum is right, and whose numbers do not fit each other. */
TEST_BETWEEN(lengths_that_do_not_fit_are_refused, make_folder, remove_checkpoint)
{
    enum { AT_TENSORS = 16, N_TENSORS = 4 };
    static uint8_t whole[4096], bad[4200];
    check_round_trip(1u << GW_PARAMS, false);
    const size_t n = get(GW_PARAMETER_FILE, whole, sizeof whole) - 8; /* without the checksum */
    assert_int_equal(whole[AT_TENSORS], N_TENSORS);
    for (int what = 0; what < 4; what++) {
        size_t length = n - (what == 2 ? 4 : 0); /* one float less */
        memcpy(bad, whole, length);
        if (what == 1 || what == 3)
            bad[AT_TENSORS] = N_TENSORS + (what == 1 ? 1 : -1);
        const uint64_t hash = gw_hash_now()->whole(bad, length, 0);
        memcpy(bad + length, &hash, sizeof hash);
        put(GW_PARAMETER_FILE, bad, length + 8);
        if (what == 0) {
            static struct gw_checkpoint back;
            assert_int_equal(gw_checkpoint_read(in(GW_PARAMETER_FILE), &back), GW_OK);
            gw_checkpoint_free(&back);
        } else {
            check_refused();
            assert_true(what == 3 || strstr(gw_last_error(), "its length does not fit"));
        }
    }
}

/* A long file that does not have the length that its head tells: no memory is taken for it. */
TEST_BETWEEN(files_of_holes_are_refused, make_folder, remove_checkpoint)
{
    static const off_t huge = (off_t)1 << 43;
    static struct gw_checkpoint c;
    check_round_trip(1u << GW_PARAMS | 1u << GW_VARIANCE, true);
    for (int what = 0; what < 2; what++) {
        assert_int_equal(truncate(in(GW_PARAMETER_FILE), what == 0 ? huge : 0), 0);
        assert_int_equal(truncate(in(GW_PARAMETER_FILE), huge), 0);
        check_refused();
        assert_non_null(strstr(gw_last_error(), what == 0 ? "its length does not fit" : "is no parameter file"));
    }
    /* a whole file of more bytes than are read for its head */
    c = (struct gw_checkpoint){.step = 3, .steps = 5, .workers = 2, .threads = 1, .options = "seed 1\n"};
    assert_int_equal(gw_network_create("mlp:600-600-2", &c.network), GW_OK);
    c.arrays[GW_PARAMS] = numbers(&c.network, 1);
    assert_int_equal(gw_checkpoint_write(folder, GW_PARAMETER_FILE, &c), GW_OK);
    gw_checkpoint_free(&c);
    assert_int_equal(gw_checkpoint_read(in(GW_PARAMETER_FILE), &c), GW_OK);
    assert_true(c.workers == 2 && c.arrays[GW_PARAMS]);
    gw_checkpoint_free(&c);
    assert_int_equal(truncate(in(GW_PARAMETER_FILE), 1300000), 0);
    check_refused();
}

/* Of how many workers and steps a run can be, and how many state files it can have. */
TEST_BETWEEN(runs_that_cannot_be_are_refused, make_folder, remove_checkpoint)
{
    static const struct {
        uint32_t workers, n_state_files, threads;
        bool good;
        uint64_t step, steps;
    } cases[] = {{1, 0, 1, true, 3, 3},
                 {GW_MAX_WORKERS, GW_MAX_WORKERS, 1, true, 0, 3},
                 {1, 0, 1, true, GW_MAX_STEPS, GW_MAX_STEPS},
                 {GW_MAX_WORKERS + 1, 0, 1, false, 3, 3},
                 {0, 0, 1, false, 3, 3},
                 {3, 2, 1, false, 3, 3},
                 {1, 0, 0, false, 3, 3},
                 {1, 0, GW_MAX_TRAIN_THREADS, true, 3, 3},
                 {1, 0, GW_MAX_TRAIN_THREADS + 1, false, 3, 3},
                 {1, 0, 1, false, 3, 2},
                 {1, 0, 1, false, 3, UINT64_MAX},
                 {1, 0, 1, false, UINT64_MAX, UINT64_MAX},
                 {1, 0, 1, false, (uint64_t)GW_MAX_STEPS + 1, (uint64_t)GW_MAX_STEPS + 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct gw_checkpoint c, back;
        c = (struct gw_checkpoint){.step = cases[i].step,
                                   .steps = cases[i].steps,
                                   .workers = cases[i].workers,
                                   .n_state_files = cases[i].n_state_files,
                                   .threads = cases[i].threads};
        strcpy(c.options, "net mlp:5-3-2\n");
        assert_int_equal(gw_network_create("mlp:5-3-2", &c.network), GW_OK);
        c.arrays[GW_PARAMS] = numbers(&c.network, 1);
        assert_int_equal(gw_checkpoint_write(folder, GW_PARAMETER_FILE, &c), GW_OK);
        gw_checkpoint_free(&c);
        CHECK(gw_checkpoint_read(in(GW_PARAMETER_FILE), &back) == (cases[i].good ? GW_OK : GW_ERR_SYSTEM),
              "case %zu: %u workers, %u files, %llu steps", i, cases[i].workers, cases[i].n_state_files,
              (unsigned long long)cases[i].step);
        if (cases[i].good)
            gw_checkpoint_free(&back);
    }
}

/* Batch norm's statistics go with the parameters and with their average, and with nothing else. */
TEST_BETWEEN(statistics_come_back, make_folder, remove_checkpoint)
{
    static struct gw_checkpoint c, back;
    c = (struct gw_checkpoint){.step = 3};
    assert_int_equal(gw_network_create("resnet20", &c.network), GW_OK);
    const uint64_t n = c.network.n_storage;
    assert_true(c.network.n_statistics > 0);
    for (int k = 0; k < GW_ARRAYS; k++) {
        float *values = c.arrays[k] = gw_calloc(NULL, n, sizeof *values);
        for (uint64_t i = 0; i < n; i++)
            values[i] = (float)(i + 1 + (uint64_t)k * 1000000);
    }
    assert_int_equal(gw_checkpoint_write(folder, GW_PARAMETER_FILE, &c), GW_OK);
    assert_int_equal(gw_checkpoint_read(in(GW_PARAMETER_FILE), &back), GW_OK);
    for (int k = 0; k < GW_ARRAYS; k++)
        for (uint32_t t = 0; t < c.network.n_tensors + c.network.n_statistics; t++) {
            const bool statistic = t >= c.network.n_tensors;
            const struct gw_param *p =
                statistic ? &c.network.statistics[t - c.network.n_tensors] : &c.network.tensors[t];
            for (uint64_t i = p->offset; i < p->offset + p->n_elems; i++)
                CHECK(back.arrays[k][i] == (statistic && k % 2 ? 0 : c.arrays[k][i]), "array %d, element %llu", k,
                      (unsigned long long)i);
        }
    gw_checkpoint_free(&back);
    gw_checkpoint_free(&c);
}

/* State files belong to one step, options, workers, parameters and momentum. */
TEST(identities_differ)
{
    static struct gw_checkpoint c;
    c = (struct gw_checkpoint){.step = 7, .workers = 2, .options = "seed 1\n"};
    assert_int_equal(gw_network_create("mlp:5-3-2", &c.network), GW_OK);
    c.arrays[GW_PARAMS] = numbers(&c.network, 1), c.arrays[GW_MOMENTUM] = numbers(&c.network, 1000);
    uint64_t seen[7], n = 0;
    seen[n++] = gw_checkpoint_identity(&c);
    c.step++;
    seen[n++] = gw_checkpoint_identity(&c);
    c.workers++;
    seen[n++] = gw_checkpoint_identity(&c);
    c.options[5] = '2';
    seen[n++] = gw_checkpoint_identity(&c);
    c.arrays[GW_PARAMS][c.network.tensors[1].offset]++;
    seen[n++] = gw_checkpoint_identity(&c);
    c.arrays[GW_MOMENTUM][c.network.tensors[3].offset + 1]++;
    seen[n++] = gw_checkpoint_identity(&c);
    c.arrays[GW_VARIANCE] = numbers(&c.network, 3000);
    seen[n++] = gw_checkpoint_identity(&c);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    gw_checkpoint_free(&c);
}

TEST_BETWEEN(a_network_of_the_future_and_too_many_steps_are_named, make_folder, remove_checkpoint)
{
    static struct gw_checkpoint c;
    assert_int_equal(gw_network_create("mlp:5-3-2", &c.network), GW_OK);
    c.arrays[GW_PARAMS] = numbers(&c.network, 1);
    c.step = (uint64_t)-1; /* without a run's options, too */
    assert_int_equal(gw_checkpoint_write(folder, GW_PARAMETER_FILE, &c), GW_OK);
    check_refused();
    assert_non_null(strstr(gw_last_error(), "a run has at most 4294967295"));
    c.step = 0;
    strcpy(c.network.name, "vit:5-3-2");
    assert_int_equal(gw_checkpoint_write(folder, GW_PARAMETER_FILE, &c), GW_OK);
    gw_checkpoint_free(&c);
    check_refused();
    assert_non_null(strstr(gw_last_error(), "\"vit:5-3-2\", a network that this version does not know"));
}

TEST_BETWEEN(folders_that_cannot_be_written_are_named, make_folder, remove_checkpoint)
{
    static struct gw_checkpoint c;
    assert_int_equal(gw_network_create("mlp:5-3-2", &c.network), GW_OK);
    c.arrays[GW_PARAMS] = numbers(&c.network, 1);
    assert_true(gw_checkpoint_write("/nowhere/at/all", GW_PARAMETER_FILE, &c) < 0);
    assert_non_null(strstr(gw_last_error(), "/nowhere/at/all"));
    gw_checkpoint_free(&c);
    assert_true(gw_checkpoint_read(folder, &c) < 0);
    assert_non_null(strstr(gw_last_error(), GW_PARAMETER_FILE));
}

/* Connections may hold all descriptors for a moment: a checkpoint, lines of metrics and what is read wait for one. */
TEST_BETWEEN(files_wait_for_a_descriptor, make_folder, remove_checkpoint)
{
    static struct gw_checkpoint c;
    struct descriptors all;
    assert_int_equal(gw_network_create("mlp:5-3-2", &c.network), GW_OK);
    c.arrays[GW_PARAMS] = numbers(&c.network, 1);
    descriptors_take(&all);
    descriptors_give_soon(&all);
    gw_status status = gw_checkpoint_write(folder, GW_PARAMETER_FILE, &c);
    descriptors_end(&all);
    CHECK(status == GW_OK, "a checkpoint: %s", gw_last_error());
    gw_checkpoint_free(&c);

    descriptors_take(&all);
    descriptors_give_soon(&all);
    status = gw_checkpoint_read(folder, &c);
    descriptors_end(&all);
    CHECK(status == GW_OK, "reading it: %s", gw_last_error());
    gw_checkpoint_free(&c);

    for (int again = 0; again < 2; again++) {
        struct gw_file file;
        descriptors_take(&all);
        descriptors_give_soon(&all);
        status = gw_file_open(folder, "lines", again, &file);
        descriptors_end(&all);
        CHECK(status == GW_OK, "lines, again %d: %s", again, gw_last_error());
        assert_true(fputs("a line\n", file.stream) >= 0);
        assert_int_equal(gw_file_commit(&file), GW_OK);
        if (again)
            unlink(file.path);
    }
}

/* RFC 3720, B.4, and the usual "123456789". */
TEST(crc32c_has_its_known_answers)
{
    uint8_t zeros[32] = {0}, ones[32];
    memset(ones, 0xff, sizeof ones);
    assert_int_equal(gw_crc32c(zeros, 32), 0x8a9136aa);
    assert_int_equal(gw_crc32c(ones, 32), 0x62a8ab43);
    assert_int_equal(gw_crc32c("123456789", 9), 0xe3069283);
}

/* The first record of every event file TensorBoard ever wrote, but for the time. */
TEST(event_file_begins_as_tensorboards)
{
    uint8_t bytes[64];
    FILE *f = tmpfile();
    gw_tensorboard_begin(f, 0);
    rewind(f);
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), 8 + 4 + 24 + 4);
    fclose(f);
    static const uint8_t length[12] = {24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22};
    assert_memory_equal(bytes, length, 12); /* the masked checksum of 24 is in all those files */
    assert_int_equal(bytes[12], 0x09);
    assert_memory_equal(bytes + 21,
                        "\x1a\x0d"
                        "brain.Event:2",
                        15);
}

/* A scalar's event, byte by byte. */
TEST(a_scalar_is_an_event)
{
    static const uint8_t known[] = {
        0x09, 0,    0,    0, 0,   0,   0,   4,   0x40,                  /* wall_time 2.5 */
        0x10, 0xac, 2,                                                  /* step 300 */
        0x2a, 13,                                                       /* summary */
        0x0a, 11,   0x0a, 4, 'l', 'o', 's', 's', 0x15, 0, 0, 0x80, 0x3f /* value: tag, simple_value 1 */
    };
    uint8_t bytes[64];
    FILE *f = tmpfile();
    gw_tensorboard_scalar(f, 2.5, 300, "loss", 1);
    rewind(f);
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), 8 + 4 + sizeof known + 4);
    fclose(f);
    assert_int_equal(bytes[0], sizeof known);
    assert_memory_equal(bytes + 12, known, sizeof known);
}

/* Whole records of earlier steps are kept, wherever the file was cut. */
TEST(event_files_are_gone_on_with)
{
    static const uint64_t steps[] = {0, 0, 1, 1, 127, 128, 300}; /* a varint of one byte, of two */
    enum { N = sizeof steps / sizeof *steps };
    uint8_t bytes[1024];
    long ends[N + 1];
    FILE *f = tmpfile();
    gw_tensorboard_begin(f, 1.5);
    ends[0] = ftell(f);
    for (int i = 0; i < N; i++) {
        gw_tensorboard_scalar(f, 2.5 + i, steps[i], "loss", 1);
        ends[i + 1] = ftell(f);
    }
    rewind(f);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    assert_true((long)n == ends[N]);
    fclose(f);
    for (uint64_t before = 1; before < 310; before++)
        for (size_t cut = n; cut > n - 40; cut--) {
            f = tmpfile();
            fwrite(bytes, 1, cut, f);
            rewind(f);
            long want = ends[0];
            for (int i = 0; i < N && steps[i] < before && ends[i + 1] <= (long)cut; i++)
                want = ends[i + 1];
            uint64_t next, last = 0;
            for (int i = 0; i < N && steps[i] < before && ends[i + 1] <= (long)cut; i++)
                last = steps[i] + 1;
            assert_int_equal(gw_tensorboard_end_before(f, before, &next), want);
            assert_int_equal(next, last);
            fclose(f);
        }
    bytes[ends[2] + 13] ^= 1;
    f = tmpfile();
    uint64_t next;
    assert_int_equal(gw_tensorboard_end_before(f, 9, &next), 0);
    assert_int_equal(next, 0);
    fwrite(bytes, 1, n, f);
    rewind(f);
    assert_int_equal(gw_tensorboard_end_before(f, 9, &next), ends[2]);
    assert_int_equal(next, 1);
    fclose(f);
}

RUN_TESTS("checkpoint", NULL, NULL)
