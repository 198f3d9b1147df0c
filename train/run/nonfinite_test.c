/* Tests gradients that are not finite, at the trainer's level. Some samples of the training file are so large that the
 * activations overflow, and the gradient of whichever worker has them in its share becomes NaN. The shuffle decides
 * which steps and workers that hits, so it is known beforehand. */
#include "disk/checkpoint.h"
#include "disk/file.h"
#include "disk/folder.h"
#include "data/order.h"
#include "run/train.h"
#include "base/memory.h"
#include "codecs.h"
#include "checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SAMPLES = 200,
    FEATURES = 24,
    POISONED = 40,
    BATCH = 20,
    WORKERS = 4,
    PER_EPOCH = SAMPLES / BATCH,
    STEPS = 4 * PER_EPOCH
};

/* Every 40th sample of the training file, which makes 5 in an epoch of 10 steps. */
static bool poisoned(uint32_t sample)
{
    return sample % POISONED == 17;
}

struct place {
    char folder[512], data[600], test[600];
};

static void write_samples(const char *path, bool poison)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        fprintf(f, "%d", i % 2 ? 1 : -1);
        for (uint32_t k = 1; k <= FEATURES; k++)
            if (poison && poisoned(i))
                fprintf(f, " %u:3e38", k);
            else
                fprintf(f, " %u:%g", k, (i % 2 ? 0.5 : -0.5) + (double)((i * 7 + k * 13 + i * k) % 11) / 5 - 1);
        fputc('\n', f);
    }
    assert_int_equal(fclose(f), 0);
}

static struct place open_place(void)
{
    struct place p;
    snprintf(p.folder, sizeof p.folder, "%s/nonfinite_test.XXXXXX", GW_BINARY_DIR);
    assert_non_null(mkdtemp(p.folder));
    snprintf(p.data, sizeof p.data, "%s/samples", p.folder);
    snprintf(p.test, sizeof p.test, "%s/samples.t", p.folder);
    write_samples(p.data, true);
    write_samples(p.test, false);
    return p;
}

static void close_place(const struct place *p)
{
    DIR *lock;
    assert_int_equal(gw_folder_lock(p->folder, &lock), GW_OK);
    assert_int_equal(gw_folder_clear(p->folder, lock, false), GW_OK);
    closedir(lock);
    assert_int_equal(unlink(p->data) + unlink(p->test) + rmdir(p->folder), 0);
}

static struct gw_train_options options_of(const struct place *p, const char *codec, uint64_t seed)
{
    struct gw_train_options o = GW_TRAIN_DEFAULTS;
    o.net = "mlp:24-64-2", o.data = p->data, o.test = p->test, o.codec = codec;
    o.workers = WORKERS, o.batch = BATCH, o.steps = STEPS, o.lr = 0.05, o.seed = seed;
    if (strstr(codec, "output=velocity"))
        o.optimizer = "sgd";
    return o;
}

/* True if the codec keeps a residual. */
static bool feeds_back(const char *codec)
{
    gw_encoder *encoder = encoder_of(NULL, codec, 1);
    const bool keeps = gw_encoder_traits_of(encoder).state_bytes > 0;
    gw_encoder_destroy(encoder);
    return keeps;
}

/* Bit r: worker r's gradient is not finite in that step. */
static void find_hits(uint64_t seed, unsigned hits[STEPS])
{
    uint32_t order[SAMPLES];
    for (uint32_t t = 0; t < STEPS; t++) {
        if (t % PER_EPOCH == 0)
            gw_order_shuffle(seed, t / PER_EPOCH, SAMPLES, order);
        hits[t] = 0;
        for (uint32_t r = 0; r < WORKERS; r++) {
            uint32_t begin, count;
            gw_order_share(BATCH, WORKERS, r, &begin, &count);
            for (uint32_t i = begin; i < begin + count; i++)
                hits[t] |= (unsigned)poisoned(order[t % PER_EPOCH * BATCH + i]) << r;
        }
    }
}

TEST(every_worker_drops_the_same_steps)
{
    unsigned everybody = 0;
    for (size_t c = 0; example(c); c++) {
        struct place place = open_place();
        struct gw_train_options o = options_of(&place, example(c), c + 1);
        static struct gw_train_summary s;
        unsigned hits[STEPS], n_hit = 0, line = 0;
        find_hits(o.seed, hits);
        o.out = place.folder;
        if (gw_train_run(&o, NULL, &s) != GW_OK)
            fail_msg("%s: %s", example(c), gw_last_error());

        char path[600];
        snprintf(path, sizeof path, "%s/%s", place.folder, GW_METRICS_FILE);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        for (json_t *step; line < STEPS && (step = json_loadf(f, JSON_DISABLE_EOF_CHECK, NULL)); line++) {
            bool committed = json_is_true(json_object_get(step, "committed"));
            const json_t *norm = json_object_get(step, "residual_norm");
            if (committed != !hits[line])
                fail_msg("%s: step %u was %s", example(c), line, committed ? "not dropped" : "dropped");
            assert_int_equal(json_is_number(json_object_get(step, "loss")), committed);
            enum { COUNTED = STEPS / 10 }; /* so many steps, spread over the run; infinities are null */
            bool counted = line * COUNTED / STEPS != (line + 1) * COUNTED / STEPS;
            assert_int_equal(json_is_number(norm), committed && counted && feeds_back(example(c)));
            assert_int_equal(json_is_number(json_object_get(step, "nonzero_share")), committed && counted);
            n_hit += !committed, everybody |= hits[line];
            json_decref(step);
        }
        fclose(f);
        assert_int_equal(line, STEPS);
        CHECK_IN_RANGE(n_hit, STEPS / 5, STEPS / 2);
        assert_int_equal(s.skipped_steps, n_hit);
        assert_true(s.replicas_identical);
        assert_true(isfinite(s.train_loss) && s.test_accuracy > 0.8);
        close_place(&place);
    }
    assert_int_equal(everybody, (1u << WORKERS) - 1);
}

/* A file's bytes without those that tell which checkpoint it belongs to. */
static uint8_t *state_of(const struct place *p, unsigned long long step, uint32_t rank, size_t *n_bytes)
{
    char name[96], path[700];
    uint8_t *bytes;
    snprintf(name, sizeof name, GW_STATE_FILE, step, rank, (unsigned)WORKERS);
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    assert_int_equal(gw_file_read(path, SIZE_MAX, &bytes, n_bytes, &(uint64_t){0}), GW_OK);
    assert_true(*n_bytes > 48);
    memset(bytes, 0, 24);
    memset(bytes + *n_bytes - 8, 0, 8);
    return bytes;
}

static void checkpoint_of(const struct place *p, unsigned long long step, struct gw_checkpoint *c)
{
    char name[96], path[700];
    snprintf(name, sizeof name, GW_CHECKPOINT_FILE, step);
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    assert_int_equal(gw_checkpoint_read(path, c), GW_OK);
}

/* Checkpoints around a dropped step hold the same parameters, momentum, residuals and thresholds, on every worker;
 * others do not. */
TEST(a_dropped_step_leaves_no_trace)
{
    for (size_t k = 0; example(k); k++) {
        if (!feeds_back(example(k)))
            continue;
        struct place place = open_place();
        struct gw_train_options o = options_of(&place, example(k), 3);
        static struct gw_train_summary s;
        static struct gw_checkpoint before, after;
        unsigned hits[STEPS];
        find_hits(o.seed, hits);
        o.out = place.folder, o.checkpoint_every = 1, o.steps = PER_EPOCH;
        assert_int_equal(gw_train_run(&o, NULL, &s), GW_OK);
        assert_true(s.skipped_steps > 0);
        for (uint32_t t = 1; t < o.steps; t++) {
            checkpoint_of(&place, t, &before);
            checkpoint_of(&place, t + 1, &after);
            size_t n = before.network.n_storage * sizeof(float);
            bool same =
                memcmp(before.arrays[GW_PARAMS], after.arrays[GW_PARAMS], n) == 0 &&
                (!before.arrays[GW_MOMENTUM] || memcmp(before.arrays[GW_MOMENTUM], after.arrays[GW_MOMENTUM], n) == 0);
            for (uint32_t r = 0; r < WORKERS; r++) {
                size_t n_before, n_after;
                uint8_t *a = state_of(&place, t, r, &n_before), *b = state_of(&place, t + 1, r, &n_after);
                if (n_before != n_after || same != (memcmp(a, b, n_before) == 0) || same != (hits[t] != 0))
                    fail_msg("%s: step %u was %s: parameters are %s, worker %u's state is %s", example(k), t,
                             hits[t] ? "dropped" : "not dropped", same ? "the same" : "others", r,
                             n_before == n_after && memcmp(a, b, n_before) == 0 ? "the same" : "another");
                gw_free(NULL, a);
                gw_free(NULL, b);
            }
            gw_checkpoint_free(&before);
            gw_checkpoint_free(&after);
        }
        close_place(&place);
    }
}

TEST(stop_names_tensor_worker_and_step)
{
    unsigned workers_named = 0;
    for (size_t c = 0; example(c); c++) {
        struct place place = open_place();
        struct gw_train_options o = options_of(&place, example(c), 10 + c);
        static struct gw_train_summary s;
        unsigned hits[STEPS], first = 0, worker = 0;
        char sentence[160];
        find_hits(o.seed, hits);
        while (!hits[first])
            first++;
        while (!(hits[first] >> worker & 1))
            worker++;
        workers_named |= 1u << worker;
        snprintf(sentence, sizeof sentence, "after %u of %u steps: the gradient of fc1.weight on worker %u holds a NaN",
                 first, (unsigned)STEPS, worker);
        o.stop_at_nonfinite = true;
        assert_int_equal(gw_train_run(&o, NULL, &s), GW_ERR_NONFINITE);
        if (strncmp(gw_last_error(), sentence, strlen(sentence)) != 0)
            fail_msg("%s: \"%s\", and not \"%s ...\"", example(c), gw_last_error(), sentence);
        close_place(&place);
    }
    assert_true(workers_named & (workers_named - 1)); /* not always the same one */
}

RUN_TESTS("nonfinite", NULL, NULL)
