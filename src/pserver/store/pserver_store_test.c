/* Tests the store without any network, beside a model that keeps every push ever made: rounds, results, bytes, limits,
 * and memory that runs out at every single allocation. */
#include "pserver/store/test_frame.h"
#include "pserver/store/test_store.h"
#include "wire/bytes.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_WORKERS = 5, MOST_PUSHES = 400, N = 3 };

/* ---- who looks at a store ---------------------------------------------------------------------------------- */

static void begin(uint32_t n_workers, gw_ps_mode mode)
{
    begin_store((gw_ps_server_options){.n_workers = n_workers, .mode = mode});
}

static struct gw_ps_key *key_of(const char *name, gw_ps_type type, uint64_t n)
{
    return key_with(name, type, n, "", "");
}

static gw_status push(struct gw_ps_key *key, uint32_t rank, uint64_t nth, const void *bytes, size_t n_bytes)
{
    return push_bytes(key, rank, nth, bytes, n_bytes, 0, false);
}

static gw_status push_x(struct gw_ps_key *key, uint32_t rank, uint64_t nth, float x)
{
    return push(key, rank, nth, &x, sizeof x);
}

/* Codes whose first element is +1. */
static gw_status push_plus(struct gw_ps_key *key, uint32_t rank, uint64_t nth)
{
    return push(key, rank, nth, &(uint8_t){0x02}, 1);
}

/* out NULL: the answer is dropped. Else it is the caller's, if there is one. */
static gw_status pull(struct gw_ps_key *key, uint32_t rank, gw_ps_method method, struct gw_ps_key *scale,
                      struct gw_ps_pulled *out)
{
    struct gw_ps_key *waits_for;
    struct gw_ps_pulled pulled = {.value = NULL};
    const gw_status status = gw_ps_store_pull(world.store, key, rank, method, scale, &pulled, &waits_for);
    if (out)
        *out = pulled;
    else if (status == GW_OK)
        gw_ps_blob_give(pulled.value);
    return status;
}

/* The first float32 of a pull that must succeed. */
static void expect_x(struct gw_ps_key *key, uint32_t rank, gw_ps_method method, struct gw_ps_key *scale, float x)
{
    struct gw_ps_pulled pulled;
    ok(pull(key, rank, method, scale, &pulled));
    const float got = gw_get_float(pulled.value->bytes);
    CHECK(got == x, "rank %u, method %d: %g and not %g", rank, (int)method, (double)got, (double)x);
    gw_ps_blob_give(pulled.value);
}

/* ---- the model --------------------------------------------------------------------------------------------- */

/* All that was ever pushed to one key of N int32, by rank and number. */
struct model {
    uint32_t n_workers;
    uint64_t pushed[MOST_WORKERS];
    int32_t values[MOST_WORKERS][MOST_PUSHES][N];
};

static uint64_t fewest(const struct model *model)
{
    uint64_t least = model->pushed[0];
    for (uint32_t r = 1; r < model->n_workers; r++)
        least = model->pushed[r] < least ? model->pushed[r] : least;
    return least;
}

/* The answer is max, min or sum over the nth push of each worker (of[r]; 0: none of that one's). */
static void expect_answer(const struct model *model, const struct gw_ps_pulled *pulled, const uint64_t of[MOST_WORKERS],
                          gw_ps_method method, uint64_t round, const char *what)
{
    for (int i = 0; i < N; i++) {
        const uint8_t *at = (const uint8_t *)pulled->value->bytes + (method == GW_PS_SUM ? 8 : 4) * i;
        const int64_t got = method == GW_PS_SUM ? (int64_t)gw_get64(at) : (int32_t)gw_get32(at);
        int64_t expected = 0;
        uint32_t n = 0;
        for (uint32_t r = 0; r < model->n_workers; r++) {
            const int64_t x = of[r] ? model->values[r][of[r] - 1][i] : 0;
            if (of[r] && (n++ == 0 || (method == GW_PS_MAX && x > expected) || (method == GW_PS_MIN && x < expected)))
                expected = x;
            else if (of[r] && method == GW_PS_SUM)
                expected += x;
        }
        CHECK(got == expected && pulled->n_pushes == n && pulled->round == round,
              "%s: element %d is %lld of %u pushes of round %llu, expected %lld of %u of %llu", what, i, (long long)got,
              pulled->n_pushes, (unsigned long long)pulled->round, (long long)expected, n, (unsigned long long)round);
    }
}

/* Anybody pushes or pulls at any time; what happens is what the model says, in every mode. */
static void walk(gw_ps_mode mode, uint32_t n_workers, uint32_t staleness, uint64_t seed)
{
    static struct model model;
    struct numbers numbers = numbers_from(seed);
    char what[128];
    uint64_t whole = 0, changes = 0;
    uint32_t newest = 0;
    memset(&model, 0, sizeof model);
    model.n_workers = n_workers;
    begin_store((gw_ps_server_options){.n_workers = n_workers, .mode = mode, .staleness = staleness});
    struct gw_ps_key *key = key_of("x", GW_PS_INT32, N);
    const uint64_t empty = total_bytes();
    for (int step = 0; step < 1500; step++) {
        uint32_t r = numbers_below(&numbers, n_workers), choice = numbers_below(&numbers, 8);
        snprintf(what, sizeof what, "mode %d, %u workers, seed %llu, step %d, rank %u, choice %u", (int)mode, n_workers,
                 (unsigned long long)seed, step, r, choice);
        world.n_woken = 0;
        if (choice < 3 && model.pushed[r] < MOST_PUSHES) {
            int32_t value[N];
            for (int i = 0; i < N; i++)
                value[i] = (int32_t)numbers_word(&numbers);
            bool waits = mode == GW_PS_SYNC && model.pushed[r] > whole;
            gw_status status = push(key, r, model.pushed[r] + 1, value, sizeof value);
            CHECK(status == (waits ? GW_PS_WAIT : GW_OK), "%s: %d", what, status);
            if (waits)
                continue;
            memcpy(model.values[r][model.pushed[r]++], value, sizeof value);
            newest = r;
            changes++;
            bool round = mode == GW_PS_SYNC && fewest(&model) > whole;
            whole += round;
            CHECK(world.n_woken == (mode != GW_PS_SYNC || round) && (!world.n_woken || world.woken == key),
                  "%s: woken %d times", what, world.n_woken);
        } else if (choice == 3 && model.pushed[r] > 0) { /* taken before: it changes nothing */
            const int32_t other[N] = {1, 2, 3};
            uint64_t nth = 1 + numbers_below(&numbers, (uint32_t)model.pushed[r]);
            CHECK(push(key, r, nth, other, sizeof other) == GW_OK && world.n_woken == 0, "%s", what);
        } else if (choice == 4) { /* too early, or of no number */
            const int32_t other[N] = {0};
            uint64_t nth = numbers_below(&numbers, 2) ? model.pushed[r] + 2 + numbers_below(&numbers, 9) : 0;
            refused(push(key, r, nth, other, sizeof other), GW_ERR_ORDER,
                    nth ? "comes after its number" : "has not initialised");
        } else {
            static const gw_ps_method methods[] = {GW_PS_MAX, GW_PS_MIN, GW_PS_SUM, GW_PS_LATEST};
            gw_ps_method method = methods[numbers_below(&numbers, 4)];
            struct gw_ps_pulled pulled;
            struct gw_ps_key *waits_for = NULL;
            bool reader = choice == 7;
            uint64_t of[MOST_WORKERS] = {0};
            gw_status status =
                gw_ps_store_pull(world.store, key, reader ? GW_PS_READER : r, method, NULL, &pulled, &waits_for);
            gw_status expected = GW_OK;
            uint64_t round = reader ? 0 : model.pushed[r];
            if (method == GW_PS_LATEST) {
                expected = changes ? GW_OK : GW_ERR_ORDER;
                of[newest] = round = model.pushed[newest];
            } else if ((!reader && model.pushed[r] == 0) || (reader && (mode == GW_PS_SYNC ? whole : changes) == 0)) {
                expected = GW_ERR_ORDER;
            } else if (mode == GW_PS_SYNC) {
                round = reader ? whole : round;
                expected = round > whole ? GW_PS_WAIT : GW_OK;
                for (uint32_t w = 0; w < n_workers; w++)
                    of[w] = round;
            } else {
                if (mode == GW_PS_STALE && !reader && fewest(&model) + staleness < round)
                    expected = GW_PS_WAIT;
                memcpy(of, model.pushed, sizeof of);
            }
            CHECK(status == expected, "%s: %d, expected %d", what, status, expected);
            CHECK(status != GW_PS_WAIT || waits_for == key, "%s", what);
            if (status == GW_OK) {
                expect_answer(&model, &pulled, of, method == GW_PS_LATEST ? GW_PS_MAX : method, round, what);
                gw_ps_blob_give(pulled.value);
            }
        }
        /* What the store says that it keeps is what exists: nobody else has a hold on anything. */
        struct gw_ps_store_info info = world.store->info;
        CHECK(info.bytes == key->bytes && info.bytes == total_bytes() - empty,
              "%s: %llu bytes said, %llu of the key, %llu there", what, (unsigned long long)info.bytes,
              (unsigned long long)key->bytes, (unsigned long long)(total_bytes() - empty));
        CHECK(info.rounds == whole && key->whole.number == whole, "%s: %llu rounds, expected %llu", what,
              (unsigned long long)info.rounds, (unsigned long long)whole);
        for (uint32_t w = 0; w < n_workers; w++) {
            assert_int_equal(gw_ps_store_pushed(world.store, key, w), model.pushed[w]);
            bool misses = mode == GW_PS_SYNC ? changes % n_workers && model.pushed[w] == whole
                                             : mode == GW_PS_STALE && model.pushed[w] + staleness < model.pushed[r];
            if (mode != GW_PS_ASYNC)
                CHECK(gw_ps_key_misses(world.store, key, r, w) == misses, "%s: rank %u is %smissed", what, w,
                      misses ? "not " : "");
        }
    }
    end();
}

TEST(what_happens_is_what_the_model_says)
{
    for (uint32_t n = 1; n <= MOST_WORKERS; n++)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            walk(GW_PS_SYNC, n, 0, seed);
            walk(GW_PS_ASYNC, n, 0, seed);
            walk(GW_PS_STALE, n, (uint32_t)seed - 1, seed);
        }
}

/* ---- results ----------------------------------------------------------------------------------------------- */

/* All workers get the same bytes, made once; others push them out, and then they are made again. */
TEST(results_are_kept)
{
    static const gw_ps_method methods[] = {GW_PS_MAX, GW_PS_MEDIAN, GW_PS_SUM, GW_PS_MEAN};
    begin(2, GW_PS_SYNC);
    struct gw_ps_key *key = key_of("x", GW_PS_FLOAT32, 1), *codes = key_of("codes", GW_PS_UINT8, 1), *scale[5];
    ok(push_x(key, 0, 1, 1)), ok(push_x(key, 1, 1, 2));
    const void *bytes[4];
    for (uint32_t r = 0; r < 3; r++)
        for (int m = 0; m < 4; m++) {
            struct gw_ps_pulled pulled;
            ok(pull(key, r < 2 ? r : GW_PS_READER, methods[m], NULL, &pulled));
            if (r == 0)
                bytes[m] = pulled.value->bytes;
            CHECK(pulled.value->bytes == bytes[m] && pulled.round == 1, "rank %u, method %d", r, m);
            gw_ps_blob_give(pulled.value);
        }
    assert_int_equal(key->bytes, 2 * 4 + 4 * 4);
    /* Five scales are one result more than are kept, each is its own. */
    ok(push_plus(codes, 0, 1)), ok(push_plus(codes, 1, 1));
    for (int s = 0; s < 5; s++) {
        scale[s] = key_of((const char *[]){"a", "b", "c", "d", "e"}[s], GW_PS_FLOAT32, 1);
        ok(push_x(scale[s], 0, 1, (float)(s + 1))), ok(push_x(scale[s], 1, 1, (float)(s + 1)));
    }
    for (int i = 0; i < 15; i++) {
        expect_x(codes, 0, GW_PS_DECODE_AVERAGE, scale[i % 5], (float)(i % 5 + 1));
        assert_true(codes->bytes <= 2 + 4 * 16);
    }
    assert_int_equal(codes->bytes, 2 + 4 * 16);
    end();
}

/* A result that is on its way stays as it is when its round, its key and the store are gone. */
TEST(answers_outlive_the_store)
{
    struct gw_ps_pulled pulled, latest;
    begin(1, GW_PS_SYNC);
    struct gw_ps_key *key = key_of("x", GW_PS_FLOAT32, 1);
    ok(push_x(key, 0, 1, 1));
    ok(pull(key, 0, GW_PS_SUM, NULL, &pulled)), ok(pull(key, 0, GW_PS_LATEST, NULL, &latest));
    ok(push_x(key, 0, 2, 2));
    gw_ps_store_destroy(world.store);
    world.store = NULL;
    assert_true(gw_get_float(pulled.value->bytes) == 1 && gw_get_float(latest.value->bytes) == 1);
    assert_int_equal(total_bytes(), 8);
    gw_ps_blob_give(pulled.value), gw_ps_blob_give(latest.value);
    end();
}

/* ---- scale keys -------------------------------------------------------------------------------------------- */

static void waits_for(struct gw_ps_key *key, uint32_t rank, struct gw_ps_key *scale, const struct gw_ps_key *expected)
{
    struct gw_ps_pulled pulled;
    struct gw_ps_key *waits_for;
    waits(gw_ps_store_pull(world.store, key, rank, GW_PS_DECODE_SUM, scale, &pulled, &waits_for));
    assert_ptr_equal(waits_for, expected);
}

TEST(scales_are_of_the_same_round)
{
    begin(2, GW_PS_SYNC);
    struct gw_ps_key *codes = key_of("codes", GW_PS_UINT8, 1), *scale = key_of("scale", GW_PS_FLOAT32, 1);
    ok(push_plus(codes, 0, 1)), ok(push_plus(codes, 1, 1));
    /* The worker that asks has not pushed yet. */
    refused(pull(codes, 0, GW_PS_DECODE_SUM, scale, NULL), GW_ERR_ORDER,
            "has pushed 0 times to its scale_key \"scale\"");
    ok(push_x(scale, 0, 1, 10));
    waits_for(codes, 0, scale, scale), waits_for(codes, GW_PS_READER, scale, scale);
    ok(push_x(scale, 1, 1, 10));
    expect_x(codes, 0, GW_PS_DECODE_SUM, scale, 20), expect_x(codes, GW_PS_READER, GW_PS_DECODE_SUM, scale, 20);
    /* One worker's scale of the next round is in: the pull is still of the round of its codes. */
    ok(push_x(scale, 0, 2, 100));
    expect_x(codes, 0, GW_PS_DECODE_SUM, scale, 20), expect_x(codes, 1, GW_PS_DECODE_AVERAGE, scale, 10);
    /* Both are in: round 1 of the scale is gone, and no other is taken in its place. */
    ok(push_x(scale, 1, 2, 100));
    refused(pull(codes, 0, GW_PS_DECODE_SUM, scale, NULL), GW_ERR_ORDER,
            "rank 0 pulls round 1 of \"codes\" and has pushed 2 times");
    waits_for(codes, GW_PS_READER, scale, codes);
    /* The codes follow. A worker whose codes are ahead of its scale is told. */
    ok(push_plus(codes, 0, 2)), ok(push_plus(codes, 1, 2));
    expect_x(codes, 1, GW_PS_DECODE_SUM, scale, 200);
    ok(push_plus(codes, 0, 3)), ok(push_plus(codes, 1, 3));
    refused(pull(codes, 1, GW_PS_DECODE_SUM, scale, NULL), GW_ERR_ORDER, "both take part in one round");
    end();

    begin(2, GW_PS_ASYNC);
    codes = key_of("codes", GW_PS_UINT8, 1), scale = key_of("scale", GW_PS_FLOAT32, 1);
    ok(push_plus(codes, 0, 1));
    ok(push_x(scale, 0, 1, 10)), expect_x(codes, 0, GW_PS_DECODE_SUM, scale, 10);
    ok(push_x(scale, 1, 1, 1000)), expect_x(codes, 0, GW_PS_DECODE_SUM, scale, 1000);
    ok(push_x(scale, 1, 2, 100)), expect_x(codes, 0, GW_PS_DECODE_SUM, scale, 100);
    end();
}

/* A worker that joins again pushes anew what it had pushed: what comes a second time is looked at as the first time. */
TEST(a_second_time_is_no_excuse)
{
    const float x[3] = {1, 2, 3};
    begin(2, GW_PS_SYNC);
    struct gw_ps_key *key = key_of("exchange/x", GW_PS_FLOAT32, 3);
    ok(push(key, 0, 1, x, sizeof x));
    refused(push(key, 0, 1, x, 1), GW_ERR_ARGUMENT, "has 1 bytes");
    struct gw_ps_blob *cut = blob_of(x, 1);
    const gw_status admitted = gw_ps_store_admit(world.store, key, 0, 1, cut);
    ok(gw_ps_store_enter(world.store, 0, 1)); /* its push is taken out again */
    if (admitted == GW_OK)
        ok(gw_ps_store_push(world.store, key, 0, 1, cut, 0, GW_PS_NOT_REFUSED));
    gw_ps_blob_give(cut);
    ok(push(key, 0, 1, x, sizeof x)), ok(push(key, 1, 1, x, sizeof x));
    expect_x(key, 0, GW_PS_SUM, NULL, 2);
    end();
}

/* A straggler may pull the round before the newest: of its scale key too. */
TEST(a_late_worker_has_its_scale)
{
    begin_store((gw_ps_server_options){.n_workers = 3, .backup = 1});
    struct gw_ps_key *codes = key_of("codes", GW_PS_UINT8, 1), *scale = key_of("scale", GW_PS_FLOAT32, 1);
    for (uint64_t nth = 1; nth <= 2; nth++)
        for (uint32_t r = 0; r < 2; r++)
            ok(push_x(scale, r, nth, nth == 1 ? 10 : 100)), ok(push_plus(codes, r, nth));
    ok(push_x(scale, 2, 1, 100)), ok(push_plus(codes, 2, 1)); /* dropped, and the others' second round is whole */
    expect_x(codes, 2, GW_PS_DECODE_SUM, scale, 20), expect_x(codes, 0, GW_PS_DECODE_SUM, scale, 200);
    end();
}

TEST(scales_that_cannot_be)
{
    begin(1, GW_PS_SYNC);
    struct gw_ps_key *codes = key_of("codes", GW_PS_UINT8, 1), *two = key_of("two", GW_PS_FLOAT32, 2),
                     *half = key_of("half", GW_PS_FLOAT16, 1), *one = key_of("one", GW_PS_FLOAT32, 1),
                     *frames = key_of("frames", GW_PS_FRAME, 1);
    refused(pull(frames, 0, GW_PS_DECODE_SUM, one, NULL), GW_ERR_ARGUMENT, "goes with decode_sum");
    refused(pull(codes, 0, GW_PS_DECODE_SUM, two, NULL), GW_ERR_ARGUMENT, "must be one float32");
    refused(pull(codes, 0, GW_PS_DECODE_SUM, half, NULL), GW_ERR_ARGUMENT, "must be one float32");
    refused(pull(codes, 0, GW_PS_SUM, one, NULL), GW_ERR_ARGUMENT, "goes with decode_sum");
    refused(pull(one, 0, GW_PS_LATEST, one, NULL), GW_ERR_ARGUMENT, "goes with decode_sum");
    refused(pull(codes, 0, GW_PS_DECODE_SUM, codes, NULL), GW_ERR_ARGUMENT, "must be one float32");
    refused(pull(codes, 0, (gw_ps_method)77, NULL, NULL), GW_ERR_ARGUMENT, "a method of that number");
    /* one float32 without a shape is one, too */
    static const gw_ps_shape none = {.n_dims = 0};
    struct gw_ps_key *scalar;
    ok(gw_ps_store_init(world.store, "scalar", GW_PS_FLOAT32, &none, 1, "", ""));
    ok(gw_ps_store_find(world.store, "scalar", &scalar));
    ok(push_x(scalar, 0, 1, 10)), ok(push_plus(codes, 0, 1));
    expect_x(codes, 0, GW_PS_DECODE_SUM, scalar, 10);
    end();
}

/* ---- keys and limits --------------------------------------------------------------------------------------- */

TEST(names_and_shapes)
{
    static char longest[GW_PS_MOST_NAME + 2];
    memset(longest, 'n', sizeof longest - 1);
    static const gw_ps_shape one = {1, {1}}, none = {0, {0}}, zero = {2, {3, 0}}, deep = {9, {0}},
                             wraps = {2, {1ull << 40, 1ull << 40}}, eight = {8, {1, 2, 1, 2, 1, 2, 1, 2}};
    static const struct {
        const char *name;
        gw_ps_type type;
        const gw_ps_shape *shape;
        const char *words; /* of the refusal; NULL: there is none */
    } cases[] = {
        {"", GW_PS_FLOAT32, &one, "has 0 bytes"},
        {longest, GW_PS_FLOAT32, &one, "has 256 bytes"},
        {longest + 1, GW_PS_FLOAT32, &one, NULL},
        {"a\nb", GW_PS_FLOAT32, &one, "0x0a"},
        {"a\x7f", GW_PS_FLOAT32, &one, "0x7f"},
        {"x", (gw_ps_type)0, &one, "type number 0"},
        {"x", (gw_ps_type)8, &one, "type number 8"},
        {"x", GW_PS_FLOAT32, &zero, "[3, 0]"},
        {"x", GW_PS_FLOAT32, &wraps, "2^48"},
        {"x", GW_PS_FLOAT32, &deep, "every dimension"},
        {"scalar", GW_PS_FLOAT32, &none, NULL},
        {"gradient of layer 1", GW_PS_FLOAT32, &eight, NULL},
        {"gradient of layer 1", GW_PS_FLOAT32, &eight, NULL},
        {"Gr\xc3\xb6\xc3\x9f", GW_PS_FLOAT32, &one, NULL},
        {"scalar", GW_PS_FLOAT32, &one, "is there as float32 of shape []"},
        {"scalar", GW_PS_INT32, &none, "cannot be initialised as int32"},
    };
    struct gw_ps_key *key, *first;
    char name[32];
    begin(1, GW_PS_SYNC);
    struct gw_ps_store *store = world.store;
    refused(gw_ps_store_find(store, "x", &key), GW_ERR_ARGUMENT, "nor any other");
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        refused(gw_ps_store_init(store, cases[c].name, cases[c].type, cases[c].shape, 1, "", ""),
                cases[c].words ? GW_ERR_ARGUMENT : GW_OK, cases[c].words);
    assert_int_equal(store->names.n, 4);
    refused(gw_ps_store_find(store, "gradient of layr 1", &key), GW_ERR_ARGUMENT, "is \"gradient of layer 1\"");
    refused(gw_ps_store_find(store, "scala", &key), GW_ERR_ARGUMENT, "is \"scalar\"");
    refused(gw_ps_store_find(store, "", &key), GW_ERR_ARGUMENT, "nearest");
    ok(gw_ps_store_find(store, "scalar", &first));
    /* Keys stay where they are while the tables grow. */
    for (int k = 0; k < 96; k++) {
        snprintf(name, sizeof name, "key %d", k);
        key_of(name, GW_PS_FLOAT32, 1);
    }
    refused(gw_ps_store_init(store, "one more", GW_PS_FLOAT32, &one, 1, "", ""), GW_ERR_CAPACITY,
            "keeps 100 (--max-keys)");
    ok(gw_ps_store_init(store, "scalar", GW_PS_FLOAT32, &none, 1, "", ""));
    ok(gw_ps_store_find(store, "scalar", &key));
    assert_ptr_equal(key, first);
    for (uint64_t k = 0; k < 100; k++) {
        ok(gw_ps_store_find(store, gw_ps_store_key(store, k)->name, &key));
        assert_ptr_equal(key, gw_ps_store_key(store, k));
    }
    assert_null(gw_ps_store_key(store, 100));
    end();

    begin(1, GW_PS_SYNC);
    for (int c = 1; c < 128; c++) {
        const bool legal = c >= ' ' && c != 127;
        refused(gw_ps_store_init(world.store, (char[]){'a', (char)c, 0}, GW_PS_FLOAT32, &one, 1, "", ""),
                legal ? GW_OK : GW_ERR_ARGUMENT, "");
    }
    end();
}

TEST(lengths_and_limits)
{
    enum { MIB = 1 << 20 };
    static uint8_t bytes[MIB];
    memset(bytes, 0x15, sizeof bytes);
    begin(2, GW_PS_SYNC);
    const gw_ps_shape large = {.n_dims = 1, .dims = {(1 << 18) + 1}};
    refused(gw_ps_store_init(world.store, "large", GW_PS_FLOAT32, &large, 1, "", ""), GW_ERR_CAPACITY,
            "--max-key-bytes");
    refused(gw_ps_store_init(world.store, "large", GW_PS_FRAME, &large, 1, "", ""), GW_ERR_CAPACITY, "--max-key-bytes");
    struct gw_ps_key *key = key_of("x", GW_PS_UINT8, MIB), *frame = key_of("frame", GW_PS_FRAME, 5);
    refused(push(key, 0, 1, bytes, 7), GW_ERR_ARGUMENT, "has 7 bytes; uint8 of shape [1048576] takes 1048576");
    refused(push(key, GW_PS_READER, 1, bytes, MIB), GW_ERR_ARGUMENT, "comes from a reader");
    refused(push(frame, 0, 1, bytes, 100), GW_ERR_FRAME_MAGIC, "rank 0's push to \"frame\"");
    refused(push(frame, 0, 1, bytes, 0), GW_ERR_FRAME_MISMATCH, "rank 0's push to \"frame\" holds frames of fewer");
    assert_int_equal(key->bytes + frame->bytes, 0);
    ok(push(key, 0, 1, bytes, MIB)), ok(push(key, 1, 1, bytes, MIB));
    /* 16 MiB are the limit, 2 are taken: a result of 16 does not fit, one of 1 does, and one of 8 may push others out.
     */
    refused(pull(key, 0, GW_PS_DECODE_SUM, NULL, NULL), GW_ERR_CAPACITY, "a result of \"x\" of 16777216 bytes");
    struct gw_ps_pulled held;
    for (int again = 0; again < 4; again++) {
        ok(pull(key, 0, GW_PS_SUM, NULL, &held));
        assert_int_equal(held.value->n_bytes, 8 * MIB);
        gw_ps_blob_give(held.value);
        ok(pull(key, 0, GW_PS_MAX, NULL, NULL)), ok(pull(key, 0, GW_PS_MEAN, NULL, NULL));
        assert_true(total_bytes() <= 16 * MIB);
    }
    /* An answer that nobody takes counts too: when it is not known where it went, nothing more is promised. */
    ok(pull(key, 0, GW_PS_SUM, NULL, &held));
    ok(push(key, 0, 2, bytes, MIB)), ok(push(key, 1, 2, bytes, MIB));
    refused(pull(key, 0, GW_PS_SUM, NULL, NULL), GW_ERR_CAPACITY, "--max-bytes");
    gw_ps_blob_give(held.value);
    ok(pull(key, 0, GW_PS_SUM, NULL, NULL));
    end();
}

/* Pushes up to the limit and no further; what takes another one's place always fits; keys count without a push. */
TEST(no_more_than_max_bytes)
{
    enum { KEYS = 10, LIMIT = 42000 };
    static const float value[256];
    for (gw_ps_mode mode = GW_PS_SYNC; mode <= GW_PS_ASYNC; mode++) {
        struct gw_ps_key *keys[KEYS];
        char name[32];
        begin_store((gw_ps_server_options){.n_workers = 2, .mode = mode, .max_bytes = LIMIT});
        for (int k = 0; k < KEYS; k++) {
            snprintf(name, sizeof name, "x%d", k);
            keys[k] = key_of(name, GW_PS_FLOAT32, 256);
        }
        CHECK_IN_RANGE(total_bytes(), 1000, LIMIT - 2 * KEYS * sizeof value);
        int n_refused = 0;
        for (uint32_t i = 0; i < 4 * KEYS; i++) {
            const gw_status status = push(keys[i % KEYS], i / KEYS % 2, 1 + i / KEYS / 2, value, sizeof value);
            n_refused += status == GW_ERR_CAPACITY;
            assert_true((status == GW_OK || status == GW_ERR_CAPACITY) && total_bytes() <= LIMIT);
        }
        CHECK(mode == GW_PS_SYNC ? n_refused > 0 : n_refused == 0, "mode %d: %d pushes are refused", (int)mode,
              n_refused);
        gw_status status = GW_OK;
        for (int n = 0; n < 80 && status == GW_OK; n++) {
            snprintf(name, sizeof name, "more %d", n);
            status = gw_ps_store_init(world.store, name, GW_PS_FLOAT32, &(gw_ps_shape){1, {1}}, 1, "", "");
            assert_true(total_bytes() <= LIMIT);
        }
        refused(status, GW_ERR_CAPACITY, "(--max-bytes)");
        for (uint64_t nth = 3; nth <= 6 && mode != GW_PS_SYNC; nth++)
            ok(push(keys[0], 0, nth, value, sizeof value));
        end();
    }
}

/* ---- frames ------------------------------------------------------------------------------------------------ */

enum { FRAMED = 100 }; /* elements */

struct frame {
    uint8_t bytes[4096];
    size_t n_bytes;
};

static void make_frames(struct frame frames[2])
{
    float gradient[FRAMED];
    for (uint32_t r = 0; r < 2; r++) {
        struct numbers numbers = numbers_from(r);
        for (int i = 0; i < FRAMED; i++)
            gradient[i] = 2 * numbers_unit(&numbers) - 1;
        frames[r].n_bytes =
            frame_of(world.context, "ternary", 0, r, 0, gradient, FRAMED, 1, frames[r].bytes, sizeof frames[r].bytes);
    }
}

static gw_status push_frame(struct gw_ps_key *key, uint32_t rank, uint64_t nth, const struct frame *frame)
{
    return push(key, rank, nth, frame->bytes, frame->n_bytes);
}

TEST(frames_are_of_their_key_and_rank)
{
    struct frame frames[2], *const frame = &frames[0];
    begin(2, GW_PS_SYNC);
    struct gw_ps_key *key = key_of("frame", GW_PS_FRAME, FRAMED), *other = key_of("other", GW_PS_FRAME, FRAMED - 1);
    make_frames(frames);
    refused(push_frame(other, 0, 1, frame), GW_ERR_FRAME_MISMATCH, "holds frames of more than the key's 99 elements");
    refused(push_frame(key, 0, 1, &frames[1]), GW_ERR_FRAME_MISMATCH, "holds a frame of rank 1");
    refused(push(key, 0, 1, frame->bytes, frame->n_bytes - 1), GW_ERR_FRAME_CUT, "rank 0's push");
    refused(push(key, 0, 1, frame->bytes, frame->n_bytes + 1), GW_ERR_FRAME_CUT, "rank 0's push");
    for (size_t i = 0; i < frame->n_bytes; i++) {
        frame->bytes[i] ^= 0x10;
        assert_true(push_frame(key, 0, 1, frame) < 0);
        frame->bytes[i] ^= 0x10;
    }
    ok(push_frame(key, 0, 1, &frames[0])), ok(push_frame(key, 1, 1, &frames[1]));
    for (gw_ps_method method = GW_PS_DECODE_SUM; method <= GW_PS_DECODE_AVERAGE; method++) {
        struct gw_ps_pulled pulled;
        ok(pull(key, 0, method, NULL, &pulled));
        assert_int_equal(pulled.type, method == GW_PS_DECODE_SUM ? GW_PS_FLOAT32 : GW_PS_FRAME);
        gw_ps_blob_give(pulled.value);
    }
    end();
}

/* ---- memory that runs out ---------------------------------------------------------------------------------- */

/* Returns the number of allocations. */
static int life_with_a_failure(int fail_at)
{
    struct frame frame[2];
    begin(2, GW_PS_SYNC);
    make_frames(frame);
    let_fail(fail_at);
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}}, hundred = {.n_dims = 1, .dims = {FRAMED}};
    struct gw_ps_key *scale, *codes, *frames;
    for (int k = 0; k < 17; k++) { /* beyond the first room for keys */
        char name[32];
        snprintf(name, sizeof name, "key %d", k);
        STEP(gw_ps_store_init(world.store, name, GW_PS_FLOAT32, &one, 1, "", ""));
    }
    STEP(gw_ps_store_init(world.store, "scale", GW_PS_FLOAT32, &one, 1, "", ""));
    STEP(gw_ps_store_init(world.store, "codes", GW_PS_UINT8, &one, 1, "", ""));
    STEP(gw_ps_store_init(world.store, "frames", GW_PS_FRAME, &hundred, 1, "", ""));
    assert_int_equal(world.store->names.n, 20);
    STEP(gw_ps_store_find(world.store, "scale", &scale));
    STEP(gw_ps_store_find(world.store, "codes", &codes));
    STEP(gw_ps_store_find(world.store, "frames", &frames));
    for (uint64_t round = 1; round <= 2; round++) {
        for (uint32_t r = 0; r < 2; r++) {
            STEP(push_x(scale, r, round, (float)(r + round)));
            STEP(push_plus(codes, r, round));
            STEP(push_frame(frames, r, round, &frame[r]));
        }
        STEP(pull(scale, 0, GW_PS_SUM, NULL, NULL));
        STEP(pull(codes, 1, GW_PS_DECODE_SUM, scale, NULL));
        STEP(pull(frames, 0, GW_PS_DECODE_AVERAGE, NULL, NULL));
        STEP(pull(frames, 0, GW_PS_DECODE_SUM, NULL, NULL));
        /* The results are kept. */
        expect_x(scale, 0, GW_PS_SUM, NULL, (float)(2 * round + 1));
        expect_x(codes, 1, GW_PS_DECODE_SUM, scale, (float)(2 * round + 2));
    }
    struct gw_ps_store_info info = world.store->info;
    uint64_t bytes = 0;
    for (uint64_t k = 0; k < world.store->names.n; k++)
        bytes += gw_ps_store_key(world.store, k)->bytes;
    assert_int_equal(info.bytes, bytes);
    CHECK(world.failed, "allocation %d of %d was not asked for", fail_at, world.shortage.calls);
    const int calls = world.shortage.calls;
    end();
    return calls;
}

TEST(any_allocation_may_fail)
{
    const int n = life_with_a_failure(0);
    assert_true(n > 100);
    for (int at = 1; at <= n; at++)
        life_with_a_failure(at);
}

TEST(a_store_of_so_many_workers)
{
    static const uint32_t n_workers[] = {1, GW_MAX_WORKERS};
    for (size_t c = 0; c < sizeof n_workers / sizeof *n_workers; c++) {
        begin(n_workers[c], GW_PS_SYNC);
        assert_int_equal(world.store->info.n_present, n_workers[c]);
        end();
    }
    begin(1, GW_PS_SYNC);
    let_fail(1);
    struct gw_ps_store *none = NULL;
    refused(gw_ps_store_create(world.context, &(gw_ps_server_options){.n_workers = 1}, &world.total, on_woken, NULL,
                               &none),
            GW_ERR_MEMORY, "");
    end();
}

/* A worker that is backup may be late by a round, and not by two: the second waits for its first. Whichever it is. Its
 * late pushes are dropped, and it can pull the result of the others. Then it is in time, and another is late. */
TEST(backup_is_late_by_one_round)
{
    for (uint32_t slow = 0; slow < 3; slow++) {
        const uint32_t a = (slow + 1) % 3, b = (slow + 2) % 3;
        begin_store((gw_ps_server_options){.n_workers = 3, .backup = 1});
        struct gw_ps_key *key = key_of("x", GW_PS_FLOAT32, 1);
        ok(push_x(key, a, 1, 1)), ok(push_x(key, b, 1, 1)), ok(push_x(key, a, 2, 1)), ok(push_x(key, b, 2, 1));
        waits(pull(key, a, GW_PS_SUM, NULL, NULL));
        ok(push_x(key, slow, 1, 4)); /* of a round that is over */
        expect_x(key, slow, GW_PS_SUM, NULL, 2), expect_x(key, a, GW_PS_SUM, NULL, 2);
        ok(push_x(key, slow, 2, 4)), expect_x(key, slow, GW_PS_SUM, NULL, 2);
        ok(push_x(key, slow, 3, 4)), ok(push_x(key, b, 3, 1)), expect_x(key, slow, GW_PS_SUM, NULL, 5);
        end();
    }
}

/* What is put is there for those that want this version, or an older one. Only a higher one takes its place. */
TEST(puts_have_versions)
{
    static const struct {
        uint64_t version;
        float value;
        uint64_t there; /* after it was put */
        float value_there;
    } puts[] = {{3, 30, 3, 30}, {2, 20, 3, 30}, {3, 31, 3, 30}, {5, 50, 5, 50}};
    struct gw_ps_pulled pulled;
    begin(2, GW_PS_SYNC);
    struct gw_ps_key *key = key_of("x", GW_PS_FLOAT32, 1);
    waits(gw_ps_store_get(key, 0, &pulled));
    for (int i = 0; i < 4; i++) {
        struct gw_ps_blob *blob = blob_of(&puts[i].value, sizeof puts[i].value);
        ok(gw_ps_store_put(world.store, key, puts[i].version, blob));
        gw_ps_blob_give(blob);
        for (uint64_t least = 0; least < 8; least++) {
            const gw_status status = gw_ps_store_get(key, least, &pulled);
            refused(status, least <= puts[i].there ? GW_OK : GW_PS_WAIT, "");
            if (status != GW_OK)
                continue;
            CHECK(pulled.round == puts[i].there && gw_get_float(pulled.value->bytes) == puts[i].value_there, "put %d",
                  i);
            gw_ps_blob_give(pulled.value);
        }
    }
    struct gw_ps_blob *blob = blob_of(&puts[0].value, 3);
    refused(gw_ps_store_put(world.store, key, 9, blob), GW_ERR_ARGUMENT, "has 3 bytes");
    gw_ps_blob_give(blob);
    end();
}

/* A key that is dropped with its run gives back all bytes that it counted for. */
TEST(dropped_keys_count_no_more)
{
    begin(1, GW_PS_SYNC);
    key_with(GW_PS_EXCHANGE "x", GW_PS_FLOAT32, 1, "", "adam");
    assert_true(world.store->info.bytes > 0);
    gw_ps_store_drop(world.store);
    assert_true(world.store->names.n == 0 && world.store->info.bytes == 0);
    end();
}

RUN_TESTS("pserver_store", NULL, NULL)
