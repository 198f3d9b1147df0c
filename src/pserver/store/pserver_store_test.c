/* Tests the store without any network, beside a model that keeps every push ever made: rounds, results, bytes, limits,
 * and memory that runs out at every single allocation. */
#include "base/memory.h"
#include "pserver/store/test_store.h"
#include "wire/bytes.h"

#include <gradwire/codec.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_WORKERS = 5, MOST_PUSHES = 400, N = 3 };

/* ---- a store and who looks at it --------------------------------------------------------------------------- */

static void begin(struct world *world, uint32_t n_workers, gw_ps_mode mode, uint32_t staleness)
{
    begin_store(world, (struct gw_ps_store_options){.n_workers = n_workers, .mode = mode, .staleness = staleness});
}

static struct gw_ps_key *key_of(struct world *world, const char *name, gw_ps_type type, uint64_t n)
{
    struct gw_ps_key *key;
    const gw_ps_shape shape = {.n_dims = 1, .dims = {n}};
    gw_status status = gw_ps_store_init(world->store, name, type, &shape, "", "");
    CHECK(status == GW_OK, "%s: %s", name, gw_last_error());
    assert_int_equal(gw_ps_store_find(world->store, name, &key), GW_OK);
    return key;
}

static gw_status push(struct world *world, struct gw_ps_key *key, uint32_t rank, uint64_t nth, const void *bytes,
                      size_t n_bytes)
{
    return push_bytes(world, key, rank, nth, bytes, n_bytes, 0, false);
}

static gw_status pull(struct world *world, struct gw_ps_key *key, uint32_t rank, gw_ps_method method,
                      struct gw_ps_key *scale, struct gw_ps_pulled *pulled)
{
    struct gw_ps_key *waits_for;
    return gw_ps_store_pull(world->store, key, rank, method, scale, pulled, &waits_for);
}

/* One float32 of a pull that must succeed. */
static float first_of(struct world *world, struct gw_ps_key *key, uint32_t rank, gw_ps_method method,
                      struct gw_ps_key *scale)
{
    struct gw_ps_pulled pulled;
    float x;
    gw_status status = pull(world, key, rank, method, scale, &pulled);
    CHECK(status == GW_OK, "%d: %s", status, gw_last_error());
    memcpy(&x, pulled.value->bytes, sizeof x);
    gw_ps_blob_give(pulled.value);
    return x;
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

/* What max, min and sum are over the nth push of each worker (of[r]; 0: none of that one's). */
static uint32_t model_reduce(const struct model *model, const uint64_t of[MOST_WORKERS], gw_ps_method method,
                             int64_t out[N])
{
    uint32_t n = 0;
    for (uint32_t r = 0; r < model->n_workers; r++) {
        if (of[r] == 0)
            continue;
        for (int i = 0; i < N; i++) {
            int64_t x = model->values[r][of[r] - 1][i];
            if (n == 0)
                out[i] = x;
            else if (method == GW_PS_SUM)
                out[i] += x;
            else if (method == GW_PS_MAX ? x > out[i] : x < out[i])
                out[i] = x;
        }
        n++;
    }
    return n;
}

static void expect_answer(const struct model *model, const struct gw_ps_pulled *pulled, const uint64_t of[MOST_WORKERS],
                          gw_ps_method method, uint64_t round, const char *what)
{
    int64_t expected[N];
    uint32_t n = model_reduce(model, of, method, expected);
    CHECK(pulled->n_pushes == n && pulled->round == round, "%s: %u pushes of round %llu, expected %u of %llu", what,
          pulled->n_pushes, (unsigned long long)pulled->round, n, (unsigned long long)round);
    for (int i = 0; i < N; i++) {
        int64_t got = method == GW_PS_SUM ? (int64_t)gw_get64((uint8_t *)pulled->value->bytes + 8 * i)
                                          : (int32_t)gw_get32((uint8_t *)pulled->value->bytes + 4 * i);
        CHECK(got == expected[i], "%s: element %d is %lld, expected %lld", what, i, (long long)got,
              (long long)expected[i]);
    }
}

/* Anybody pushes or pulls at any time; what happens is what the model says, in every mode. */
static void walk(gw_ps_mode mode, uint32_t n_workers, uint32_t staleness, uint64_t seed)
{
    static struct model model;
    struct world world;
    struct numbers numbers = numbers_from(seed);
    char what[128];
    uint64_t whole = 0, changes = 0;
    uint32_t newest = 0;
    memset(&model, 0, sizeof model);
    model.n_workers = n_workers;
    begin(&world, n_workers, mode, staleness);
    struct gw_ps_key *key = key_of(&world, "x", GW_PS_INT32, N);
    const uint64_t empty = atomic_load(&world.total);
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
            gw_status status = push(&world, key, r, model.pushed[r] + 1, value, sizeof value);
            CHECK(status == (waits ? GW_PS_WAIT : GW_OK), "%s: %d", what, status);
            if (waits)
                continue;
            memcpy(model.values[r][model.pushed[r]++], value, sizeof value);
            newest = r;
            changes++;
            bool round = mode == GW_PS_SYNC && fewest(&model) > whole;
            whole += round;
            CHECK(world.n_woken == (mode != GW_PS_SYNC || round) && (!world.n_woken || world.woken[0] == key),
                  "%s: woken %d times", what, world.n_woken);
        } else if (choice == 3 && model.pushed[r] > 0) { /* taken before: it changes nothing */
            const int32_t other[N] = {1, 2, 3};
            uint64_t nth = 1 + numbers_below(&numbers, (uint32_t)model.pushed[r]);
            CHECK(push(&world, key, r, nth, other, sizeof other) == GW_OK && world.n_woken == 0, "%s", what);
        } else if (choice == 4) { /* too early, or of no number */
            const int32_t other[N] = {0};
            uint64_t nth = numbers_below(&numbers, 2) ? model.pushed[r] + 2 + numbers_below(&numbers, 9) : 0;
            refused(push(&world, key, r, nth, other, sizeof other), GW_ERR_ORDER,
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
        struct gw_ps_store_info info = gw_ps_store_info(world.store);
        struct gw_ps_key_info of_key = gw_ps_key_info(world.store, key);
        CHECK(info.bytes == of_key.bytes && info.bytes == atomic_load(&world.total) - empty,
              "%s: %llu bytes said, %llu of the key, %llu there", what, (unsigned long long)info.bytes,
              (unsigned long long)of_key.bytes, (unsigned long long)(atomic_load(&world.total) - empty));
        CHECK(info.rounds == whole && of_key.rounds == whole, "%s: %llu rounds, expected %llu", what,
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
    end(&world);
}

static void what_happens_is_what_the_model_says(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= MOST_WORKERS; n++)
        for (uint64_t seed = 1; seed <= 4; seed++) {
            walk(GW_PS_SYNC, n, 0, seed);
            walk(GW_PS_ASYNC, n, 0, seed);
            walk(GW_PS_STALE, n, (uint32_t)seed - 1, seed);
        }
}

/* ---- results ----------------------------------------------------------------------------------------------- */

/* All workers get the same bytes, made once; others push them out, and then they are made again. */
static void results_are_kept(void **state)
{
    (void)state;
    struct world world;
    const float x[2] = {1, 2};
    static const gw_ps_method methods[] = {GW_PS_MAX, GW_PS_MIN, GW_PS_SUM, GW_PS_MEAN};
    begin(&world, 2, GW_PS_SYNC, 0);
    struct gw_ps_key *key = key_of(&world, "x", GW_PS_FLOAT32, 1), *scale[5],
                     *codes = key_of(&world, "codes", GW_PS_UINT8, 1);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(push(&world, key, r, 1, &x[r], 4), GW_OK);
    const void *bytes[4];
    for (uint32_t r = 0; r < 3; r++)
        for (int m = 0; m < 4; m++) {
            struct gw_ps_pulled pulled;
            assert_int_equal(pull(&world, key, r < 2 ? r : GW_PS_READER, methods[m], NULL, &pulled), GW_OK);
            if (r == 0)
                bytes[m] = pulled.value->bytes;
            CHECK(pulled.value->bytes == bytes[m] && pulled.round == 1, "rank %u, method %d", r, m);
            gw_ps_blob_give(pulled.value);
        }
    assert_int_equal(gw_ps_key_info(world.store, key).bytes, 2 * 4 + 4 * 4);
    /* Five scales are one result more than are kept, each is its own. */
    const uint8_t plus_minus = 0x02;
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(push(&world, codes, r, 1, &plus_minus, 1), GW_OK);
    for (int s = 0; s < 5; s++) {
        char name[32];
        float value = (float)(s + 1);
        snprintf(name, sizeof name, "s%d", s);
        scale[s] = key_of(&world, name, GW_PS_FLOAT32, 1);
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(push(&world, scale[s], r, 1, &value, 4), GW_OK);
    }
    for (int again = 0; again < 3; again++)
        for (int s = 0; s < 5; s++) {
            assert_true(first_of(&world, codes, 0, GW_PS_DECODE_AVERAGE, scale[s]) == (float)(s + 1));
            assert_true(gw_ps_key_info(world.store, codes).bytes <= 2 + 4 * 16);
        }
    assert_int_equal(gw_ps_key_info(world.store, codes).bytes, 2 + 4 * 16);
    end(&world);
}

/* A result that is on its way stays as it is when its round, its key and the store are gone. */
static void answers_outlive_the_store(void **state)
{
    (void)state;
    struct world world;
    struct gw_ps_pulled pulled, latest;
    begin(&world, 1, GW_PS_SYNC, 0);
    struct gw_ps_key *key = key_of(&world, "x", GW_PS_FLOAT32, 1);
    for (uint64_t round = 1; round <= 2; round++) {
        float x = (float)round;
        assert_int_equal(push(&world, key, 0, round, &x, 4), GW_OK);
        if (round == 1) {
            assert_int_equal(pull(&world, key, 0, GW_PS_SUM, NULL, &pulled), GW_OK);
            assert_int_equal(pull(&world, key, 0, GW_PS_LATEST, NULL, &latest), GW_OK);
        }
    }
    gw_ps_store_destroy(world.store);
    assert_true(*(float *)pulled.value->bytes == 1 && *(float *)latest.value->bytes == 1);
    assert_int_equal(atomic_load(&world.total), 8);
    gw_ps_blob_give(pulled.value);
    gw_ps_blob_give(latest.value);
    world.store = NULL;
    end(&world);
}

/* ---- scale keys -------------------------------------------------------------------------------------------- */

static void scales_are_of_the_same_round(void **state)
{
    (void)state;
    struct world world;
    struct gw_ps_pulled pulled;
    struct gw_ps_key *waits_for;
    const uint8_t plus = 0x02; /* element 0 is +1 */
    const float scales[] = {10, 100, 1000};
    begin(&world, 2, GW_PS_SYNC, 0);
    struct gw_ps_key *codes = key_of(&world, "codes", GW_PS_UINT8, 1),
                     *scale = key_of(&world, "scale", GW_PS_FLOAT32, 1);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(push(&world, codes, r, 1, &plus, 1), GW_OK);
    /* The worker that asks has not pushed yet. */
    refused(pull(&world, codes, 0, GW_PS_DECODE_SUM, scale, &pulled), GW_ERR_ORDER,
            "has pushed 0 times to its scale_key \"scale\"");
    assert_int_equal(push(&world, scale, 0, 1, &scales[0], 4), GW_OK);
    assert_int_equal(gw_ps_store_pull(world.store, codes, 0, GW_PS_DECODE_SUM, scale, &pulled, &waits_for), GW_PS_WAIT);
    assert_ptr_equal(waits_for, scale);
    assert_int_equal(gw_ps_store_pull(world.store, codes, GW_PS_READER, GW_PS_DECODE_SUM, scale, &pulled, &waits_for),
                     GW_PS_WAIT);
    assert_ptr_equal(waits_for, scale);
    assert_int_equal(push(&world, scale, 1, 1, &scales[0], 4), GW_OK);
    assert_true(first_of(&world, codes, 0, GW_PS_DECODE_SUM, scale) == 20 &&
                first_of(&world, codes, GW_PS_READER, GW_PS_DECODE_SUM, scale) == 20);
    /* One worker's scale of the next round is in: the pull is still of the round of its codes. */
    assert_int_equal(push(&world, scale, 0, 2, &scales[1], 4), GW_OK);
    assert_true(first_of(&world, codes, 0, GW_PS_DECODE_SUM, scale) == 20 &&
                first_of(&world, codes, 1, GW_PS_DECODE_AVERAGE, scale) == 10);
    /* Both are in: round 1 of the scale is gone, and no other is taken in its place. */
    assert_int_equal(push(&world, scale, 1, 2, &scales[1], 4), GW_OK);
    refused(pull(&world, codes, 0, GW_PS_DECODE_SUM, scale, &pulled), GW_ERR_ORDER,
            "rank 0 pulls round 1 of \"codes\" and has pushed 2 times");
    assert_int_equal(gw_ps_store_pull(world.store, codes, GW_PS_READER, GW_PS_DECODE_SUM, scale, &pulled, &waits_for),
                     GW_PS_WAIT);
    assert_ptr_equal(waits_for, codes);
    /* The codes follow. A worker whose codes are ahead of its scale is told. */
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(push(&world, codes, r, 2, &plus, 1), GW_OK);
    assert_true(first_of(&world, codes, 1, GW_PS_DECODE_SUM, scale) == 200);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(push(&world, codes, r, 3, &plus, 1), GW_OK);
    refused(pull(&world, codes, 1, GW_PS_DECODE_SUM, scale, &pulled), GW_ERR_ORDER, "both take part in one round");
    end(&world);

    begin(&world, 2, GW_PS_ASYNC, 0);
    codes = key_of(&world, "codes", GW_PS_UINT8, 1), scale = key_of(&world, "scale", GW_PS_FLOAT32, 1);
    assert_int_equal(push(&world, codes, 0, 1, &plus, 1), GW_OK);
    assert_int_equal(push(&world, scale, 0, 1, &scales[0], 4), GW_OK);
    assert_true(first_of(&world, codes, 0, GW_PS_DECODE_SUM, scale) == 10);
    assert_int_equal(push(&world, scale, 1, 1, &scales[2], 4), GW_OK);
    assert_true(first_of(&world, codes, 0, GW_PS_DECODE_SUM, scale) == 1000);
    assert_int_equal(push(&world, scale, 1, 2, &scales[1], 4), GW_OK);
    assert_true(first_of(&world, codes, 0, GW_PS_DECODE_SUM, scale) == 100);
    end(&world);
}

/* A worker that joins again pushes anew what it had pushed: what comes a second time is looked at as the first time. */
static void a_second_time_is_no_excuse(void **state)
{
    (void)state;
    struct world world;
    const float x[3] = {1, 2, 3};
    begin(&world, 2, GW_PS_SYNC, 0);
    struct gw_ps_key *key = key_of(&world, "exchange/x", GW_PS_FLOAT32, 3);
    assert_int_equal(push(&world, key, 0, 1, x, sizeof x), GW_OK);
    refused(push(&world, key, 0, 1, x, 1), GW_ERR_ARGUMENT, "has 1 bytes");
    struct gw_ps_blob *cut = blob_of(&world, x, 1);
    const gw_status admitted = gw_ps_store_admit(world.store, key, 0, 1, cut);
    assert_int_equal(gw_ps_store_enter(world.store, 0, "exchange/", 1), GW_OK); /* its push is taken out again */
    if (admitted == GW_OK)
        assert_int_equal(gw_ps_store_push(world.store, key, 0, 1, cut, 0, false), GW_OK);
    gw_ps_blob_give(cut);
    assert_int_equal(push(&world, key, 0, 1, x, sizeof x), GW_OK);
    assert_int_equal(push(&world, key, 1, 1, x, sizeof x), GW_OK);
    assert_true(first_of(&world, key, 0, GW_PS_SUM, NULL) == 2);
    end(&world);
}

/* A straggler may pull the round before the newest: of its scale key too. */
static void a_late_worker_has_its_scale(void **state)
{
    (void)state;
    struct world world;
    const uint8_t plus = 0x02;
    const float scales[] = {10, 100};
    begin_store(&world, (struct gw_ps_store_options){.n_workers = 3, .backup = 1});
    struct gw_ps_key *codes = key_of(&world, "codes", GW_PS_UINT8, 1),
                     *scale = key_of(&world, "scale", GW_PS_FLOAT32, 1);
    for (uint64_t nth = 1; nth <= 2; nth++)
        for (uint32_t r = 0; r < 2; r++) {
            assert_int_equal(push(&world, scale, r, nth, &scales[nth - 1], 4), GW_OK);
            assert_int_equal(push(&world, codes, r, nth, &plus, 1), GW_OK);
        }
    /* dropped, and the others' second round is whole */
    assert_int_equal(push(&world, scale, 2, 1, &scales[1], 4), GW_OK);
    assert_int_equal(push(&world, codes, 2, 1, &plus, 1), GW_OK);
    assert_true(first_of(&world, codes, 2, GW_PS_DECODE_SUM, scale) == 20);
    assert_true(first_of(&world, codes, 0, GW_PS_DECODE_SUM, scale) == 200);
    end(&world);
}

static void scales_that_cannot_be(void **state)
{
    (void)state;
    struct world world;
    struct gw_ps_pulled pulled;
    begin(&world, 1, GW_PS_SYNC, 0);
    struct gw_ps_key *codes = key_of(&world, "codes", GW_PS_UINT8, 1), *two = key_of(&world, "two", GW_PS_FLOAT32, 2),
                     *half = key_of(&world, "half", GW_PS_FLOAT16, 1), *one = key_of(&world, "one", GW_PS_FLOAT32, 1);
    refused(pull(&world, codes, 0, GW_PS_DECODE_SUM, two, &pulled), GW_ERR_ARGUMENT, "must be one float32");
    refused(pull(&world, codes, 0, GW_PS_DECODE_SUM, half, &pulled), GW_ERR_ARGUMENT, "must be one float32");
    refused(pull(&world, codes, 0, GW_PS_SUM, one, &pulled), GW_ERR_ARGUMENT, "goes with decode_sum");
    refused(pull(&world, one, 0, GW_PS_LATEST, one, &pulled), GW_ERR_ARGUMENT, "goes with decode_sum");
    refused(pull(&world, codes, 0, GW_PS_DECODE_SUM, codes, &pulled), GW_ERR_ARGUMENT, "must be one float32");
    refused(pull(&world, codes, 0, (gw_ps_method)77, NULL, &pulled), GW_ERR_ARGUMENT, "a method of that number");
    end(&world);
}

/* ---- keys and limits --------------------------------------------------------------------------------------- */

static void names_and_shapes(void **state)
{
    (void)state;
    struct world world;
    struct gw_ps_key *key, *first;
    char longest[GW_PS_MOST_NAME + 2];
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}}, none = {0}, zero = {.n_dims = 2, .dims = {3, 0}},
                      wraps = {.n_dims = 2, .dims = {1ull << 40, 1ull << 40}}, deep = {.n_dims = 9},
                      eight = {.n_dims = 8, .dims = {1, 2, 1, 2, 1, 2, 1, 2}};
    memset(longest, 'n', sizeof longest);
    longest[GW_PS_MOST_NAME + 1] = 0;
    begin(&world, 1, GW_PS_SYNC, 0);
    struct gw_ps_store *store = world.store;
    refused(gw_ps_store_find(store, "x", &key), GW_ERR_ARGUMENT, "nor any other");
    refused(gw_ps_store_init(store, "", GW_PS_FLOAT32, &one, "", ""), GW_ERR_ARGUMENT, "has 0 bytes");
    refused(gw_ps_store_init(store, longest, GW_PS_FLOAT32, &one, "", ""), GW_ERR_ARGUMENT, "has 256 bytes");
    refused(gw_ps_store_init(store, "a\nb", GW_PS_FLOAT32, &one, "", ""), GW_ERR_ARGUMENT, "0x0a");
    refused(gw_ps_store_init(store, "a\x7f", GW_PS_FLOAT32, &one, "", ""), GW_ERR_ARGUMENT, "0x7f");
    refused(gw_ps_store_init(store, "x", (gw_ps_type)0, &one, "", ""), GW_ERR_ARGUMENT, "type number 0");
    refused(gw_ps_store_init(store, "x", (gw_ps_type)8, &one, "", ""), GW_ERR_ARGUMENT, "type number 8");
    refused(gw_ps_store_init(store, "x", GW_PS_FLOAT32, &zero, "", ""), GW_ERR_ARGUMENT, "[3, 0]");
    refused(gw_ps_store_init(store, "x", GW_PS_FLOAT32, &wraps, "", ""), GW_ERR_ARGUMENT, "2^48");
    refused(gw_ps_store_init(store, "x", GW_PS_FLOAT32, &deep, "", ""), GW_ERR_ARGUMENT, "every dimension");
    assert_int_equal(gw_ps_store_info(store).n_keys, 0);
    assert_int_equal(gw_ps_store_init(store, "scalar", GW_PS_FLOAT32, &none, "", ""), GW_OK);
    assert_int_equal(gw_ps_store_init(store, "gradient of layer 1", GW_PS_FLOAT32, &eight, "", ""), GW_OK);
    assert_int_equal(gw_ps_store_init(store,
                                      "Gr\xc3\xb6\xc3\x9f"
                                      "e",
                                      GW_PS_FLOAT32, &one, "", ""),
                     GW_OK);
    assert_int_equal(gw_ps_store_init(store, "gradient of layer 1", GW_PS_FLOAT32, &eight, "", ""), GW_OK);
    assert_int_equal(gw_ps_store_info(store).n_keys, 3);
    refused(gw_ps_store_init(store, "scalar", GW_PS_FLOAT32, &one, "", ""), GW_ERR_ARGUMENT,
            "is there as float32 of shape []");
    refused(gw_ps_store_init(store, "scalar", GW_PS_INT32, &none, "", ""), GW_ERR_ARGUMENT,
            "cannot be initialised as int32");
    refused(gw_ps_store_find(store, "gradient of layr 1", &key), GW_ERR_ARGUMENT, "is \"gradient of layer 1\"");
    refused(gw_ps_store_find(store, "scala", &key), GW_ERR_ARGUMENT, "is \"scalar\"");
    refused(gw_ps_store_find(store, "", &key), GW_ERR_ARGUMENT, "nearest");
    assert_int_equal(gw_ps_store_find(store, "scalar", &first), GW_OK);
    /* Keys stay where they are while the tables grow. */
    for (int k = 0; k < 97; k++) {
        char name[32];
        snprintf(name, sizeof name, "key %d", k);
        assert_int_equal(gw_ps_store_init(store, name, GW_PS_FLOAT32, &one, "", ""), GW_OK);
    }
    refused(gw_ps_store_init(store, "one more", GW_PS_FLOAT32, &one, "", ""), GW_ERR_CAPACITY,
            "keeps 100 (--max-keys)");
    assert_int_equal(gw_ps_store_init(store, "scalar", GW_PS_FLOAT32, &none, "", ""), GW_OK);
    assert_int_equal(gw_ps_store_find(store, "scalar", &key), GW_OK);
    assert_ptr_equal(key, first);
    for (uint64_t k = 0; k < 100; k++) {
        assert_int_equal(gw_ps_store_find(store, gw_ps_key_info(store, gw_ps_store_key(store, k)).name, &key), GW_OK);
        assert_ptr_equal(key, gw_ps_store_key(store, k));
    }
    assert_null(gw_ps_store_key(store, 100));
    end(&world);
}

static void lengths_and_limits(void **state)
{
    (void)state;
    struct world world;
    struct gw_ps_pulled pulled;
    static uint8_t bytes[1 << 20];
    memset(bytes, 0x15, sizeof bytes);
    begin(&world, 2, GW_PS_SYNC, 0);
    const gw_ps_shape large = {.n_dims = 1, .dims = {(1 << 18) + 1}};
    refused(gw_ps_store_init(world.store, "large", GW_PS_FLOAT32, &large, "", ""), GW_ERR_CAPACITY, "--max-key-bytes");
    refused(gw_ps_store_init(world.store, "large", GW_PS_FRAME, &large, "", ""), GW_ERR_CAPACITY, "--max-key-bytes");
    struct gw_ps_key *key = key_of(&world, "x", GW_PS_UINT8, 1 << 20), *frame = key_of(&world, "frame", GW_PS_FRAME, 5);
    refused(push(&world, key, 0, 1, bytes, 7), GW_ERR_ARGUMENT, "has 7 bytes; uint8 of shape [1048576] takes 1048576");
    refused(push(&world, key, 2, 1, bytes, 1 << 20), GW_ERR_ARGUMENT, "ranks 0 to 1");
    refused(push(&world, key, GW_PS_READER, 1, bytes, 1 << 20), GW_ERR_ARGUMENT, "comes from a reader");
    refused(push(&world, frame, 0, 1, bytes, 100), GW_ERR_FRAME_MAGIC, "rank 0's push to \"frame\"");
    refused(push(&world, frame, 0, 1, bytes, 0), GW_ERR_FRAME_MISMATCH,
            "rank 0's push to \"frame\" holds frames of fewer");
    assert_int_equal(gw_ps_key_info(world.store, key).bytes + gw_ps_key_info(world.store, frame).bytes, 0);
    assert_int_equal(push(&world, key, 0, 1, bytes, 1 << 20), GW_OK);
    assert_int_equal(push(&world, key, 1, 1, bytes, 1 << 20), GW_OK);
    /* 16 MiB are the limit, 2 are taken: a result of 16 does not fit, one of 1 does, and one of 8 may push others out.
     */
    refused(pull(&world, key, 0, GW_PS_DECODE_SUM, NULL, &pulled), GW_ERR_CAPACITY,
            "the decode_sum of \"x\" takes 16777216 bytes");
    for (int again = 0; again < 4; again++) {
        assert_int_equal(pull(&world, key, 0, GW_PS_SUM, NULL, &pulled), GW_OK);
        assert_int_equal(pulled.value->n_bytes, 8 << 20);
        gw_ps_blob_give(pulled.value);
        assert_int_equal(pull(&world, key, 0, GW_PS_MAX, NULL, &pulled), GW_OK);
        gw_ps_blob_give(pulled.value);
        assert_int_equal(pull(&world, key, 0, GW_PS_MEAN, NULL, &pulled), GW_OK);
        gw_ps_blob_give(pulled.value);
        assert_true(atomic_load(&world.total) <= 1 << 24);
    }
    /* An answer that nobody takes counts too: when it is not known where it went, nothing more is promised. */
    struct gw_ps_pulled held;
    assert_int_equal(pull(&world, key, 0, GW_PS_SUM, NULL, &held), GW_OK);
    assert_int_equal(push(&world, key, 0, 2, bytes, 1 << 20), GW_OK);
    assert_int_equal(push(&world, key, 1, 2, bytes, 1 << 20), GW_OK);
    refused(pull(&world, key, 0, GW_PS_SUM, NULL, &pulled), GW_ERR_CAPACITY, "--max-bytes");
    gw_ps_blob_give(held.value);
    assert_int_equal(pull(&world, key, 0, GW_PS_SUM, NULL, &pulled), GW_OK);
    gw_ps_blob_give(pulled.value);
    end(&world);
}

/* Pushes up to the limit and no further; what takes another one's place always fits; keys count without a push. */
static void no_more_than_max_bytes(void **state)
{
    (void)state;
    enum { KEYS = 10, LIMIT = 42000 };
    static const float value[256];
    for (gw_ps_mode mode = GW_PS_SYNC; mode <= GW_PS_ASYNC; mode++) {
        struct world world;
        struct gw_ps_key *keys[KEYS];
        begin_store(&world, (struct gw_ps_store_options){.n_workers = 2, .mode = mode, .max_bytes = LIMIT});
        for (int k = 0; k < KEYS; k++) {
            char name[32];
            snprintf(name, sizeof name, "x%d", k);
            keys[k] = key_of(&world, name, GW_PS_FLOAT32, 256);
        }
        CHECK_IN_RANGE(atomic_load(&world.total), 1000, LIMIT - 2 * KEYS * sizeof value);
        int n_refused = 0;
        for (uint64_t nth = 1; nth <= 2; nth++)
            for (uint32_t r = 0; r < 2; r++)
                for (int k = 0; k < KEYS; k++) {
                    gw_status status = push(&world, keys[k], r, nth, value, sizeof value);
                    n_refused += status == GW_ERR_CAPACITY;
                    assert_true(status == GW_OK || status == GW_ERR_CAPACITY);
                    assert_true(atomic_load(&world.total) <= LIMIT);
                }
        CHECK(mode == GW_PS_SYNC ? n_refused > 0 : n_refused == 0, "mode %d: %d pushes are refused", (int)mode,
              n_refused);
        gw_status status = GW_OK;
        for (int n = 0; n < 80 && status == GW_OK; n++) {
            char name[32];
            const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
            snprintf(name, sizeof name, "more %d", n);
            status = gw_ps_store_init(world.store, name, GW_PS_FLOAT32, &one, "", "");
            assert_true(atomic_load(&world.total) <= LIMIT);
        }
        refused(status, GW_ERR_CAPACITY, "(--max-bytes)");
        if (mode != GW_PS_SYNC)
            for (uint64_t nth = 3; nth <= 6; nth++)
                assert_int_equal(push(&world, keys[0], 0, nth, value, sizeof value), GW_OK);
        end(&world);
    }
}

/* ---- frames ------------------------------------------------------------------------------------------------ */

static size_t frame_of(gw_context *context, uint32_t rank, uint64_t n, uint8_t *out, size_t capacity)
{
    gw_codec *codec;
    gw_encoder *encoder;
    float gradient[100], shared[1] = {1};
    size_t bytes;
    const gw_tensor tensor = {.id = 0, .n_elems = n};
    const gw_draw draw = {.seed = 3, .rank = rank};
    struct numbers numbers = numbers_from(rank);
    for (uint64_t i = 0; i < n; i++)
        gradient[i] = 2 * numbers_unit(&numbers) - 1;
    assert_int_equal(gw_codec_parse(context, "ternary", &codec), GW_OK);
    assert_int_equal(gw_encoder_create(context, codec, &tensor, &encoder), GW_OK);
    assert_int_equal(gw_encoder_measure(encoder, gradient, shared, 1, NULL), GW_OK);
    shared[0] = 1;
    assert_int_equal(gw_encoder_encode(encoder, gradient, shared, &draw, 0, n, out, capacity, &bytes), GW_OK);
    gw_encoder_destroy(encoder);
    gw_codec_destroy(codec);
    return bytes;
}

static void frames_are_of_their_key_and_rank(void **state)
{
    (void)state;
    struct world world;
    uint8_t frame[2][4096];
    size_t n_bytes[2];
    begin(&world, 2, GW_PS_SYNC, 0);
    struct gw_ps_key *key = key_of(&world, "frame", GW_PS_FRAME, 100),
                     *other = key_of(&world, "other", GW_PS_FRAME, 99);
    for (uint32_t r = 0; r < 2; r++)
        n_bytes[r] = frame_of(world.context, r, 100, frame[r], sizeof frame[r]);
    refused(push(&world, other, 0, 1, frame[0], n_bytes[0]), GW_ERR_FRAME_MISMATCH,
            "holds frames of more than the key's 99 elements");
    refused(push(&world, key, 0, 1, frame[1], n_bytes[1]), GW_ERR_FRAME_MISMATCH, "holds a frame of rank 1");
    refused(push(&world, key, 0, 1, frame[0], n_bytes[0] - 1), GW_ERR_FRAME_CUT, "rank 0's push");
    refused(push(&world, key, 0, 1, frame[0], n_bytes[0] + 1), GW_ERR_FRAME_CUT, "rank 0's push");
    for (size_t i = 0; i < n_bytes[0]; i++) {
        frame[0][i] ^= 0x10;
        assert_true(push(&world, key, 0, 1, frame[0], n_bytes[0]) < 0);
        frame[0][i] ^= 0x10;
    }
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(push(&world, key, r, 1, frame[r], n_bytes[r]), GW_OK);
    for (gw_ps_method method = GW_PS_DECODE_SUM; method <= GW_PS_DECODE_AVERAGE; method++) {
        struct gw_ps_pulled pulled;
        assert_int_equal(pull(&world, key, 0, method, NULL, &pulled), GW_OK);
        assert_int_equal(pulled.type, method == GW_PS_DECODE_SUM ? GW_PS_FLOAT32 : GW_PS_FRAME);
        gw_ps_blob_give(pulled.value);
    }
    end(&world);
}

/* ---- memory that runs out ---------------------------------------------------------------------------------- */

/* Retries once after the failure that was asked for. */
#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        gw_status status_ = (call);                                                                                    \
        if (status_ == GW_ERR_MEMORY) {                                                                                \
            CHECK(!failed && world.shortage.calls >= world.shortage.fail_at, "%s fails without a cause", #call);       \
            CHECK(strstr(gw_last_error(), "no memory for"), "%s: \"%s\"", #call, gw_last_error());                     \
            failed = true;                                                                                             \
            status_ = (call);                                                                                          \
        }                                                                                                              \
        CHECK(status_ == GW_OK, "allocation %d: %s gives %d: %s", fail_at, #call, status_, gw_last_error());           \
    } while (0)

/* Returns the number of allocations. */
static int life_with_a_failure(int fail_at)
{
    struct world world;
    uint8_t frame[2][4096];
    size_t n_bytes[2];
    bool failed = fail_at == 0;
    begin(&world, 2, GW_PS_SYNC, 0);
    for (uint32_t r = 0; r < 2; r++)
        n_bytes[r] = frame_of(world.context, r, 100, frame[r], sizeof frame[r]);
    world.shortage.calls = 0;
    world.shortage.fail_at = fail_at;
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}}, hundred = {.n_dims = 1, .dims = {100}};
    struct gw_ps_key *scale, *codes, *frames;
    for (int k = 0; k < 17; k++) { /* beyond the first room for keys */
        char name[32];
        snprintf(name, sizeof name, "key %d", k);
        STEP(gw_ps_store_init(world.store, name, GW_PS_FLOAT32, &one, "", ""));
    }
    STEP(gw_ps_store_init(world.store, "scale", GW_PS_FLOAT32, &one, "", ""));
    STEP(gw_ps_store_init(world.store, "codes", GW_PS_UINT8, &one, "", ""));
    STEP(gw_ps_store_init(world.store, "frames", GW_PS_FRAME, &hundred, "", ""));
    assert_int_equal(gw_ps_store_info(world.store).n_keys, 20);
    STEP(gw_ps_store_find(world.store, "scale", &scale));
    STEP(gw_ps_store_find(world.store, "codes", &codes));
    STEP(gw_ps_store_find(world.store, "frames", &frames));
    for (uint64_t round = 1; round <= 2; round++) {
        struct gw_ps_pulled pulled;
        for (uint32_t r = 0; r < 2; r++) {
            const float x = (float)(r + round);
            const uint8_t plus = 0x02;
            STEP(push(&world, scale, r, round, &x, 4));
            STEP(push(&world, codes, r, round, &plus, 1));
            STEP(push(&world, frames, r, round, frame[r], n_bytes[r]));
        }
        STEP(pull(&world, scale, 0, GW_PS_SUM, NULL, &pulled));
        assert_true(*(float *)pulled.value->bytes == (float)(2 * round + 1));
        gw_ps_blob_give(pulled.value);
        STEP(pull(&world, codes, 1, GW_PS_DECODE_SUM, scale, &pulled));
        assert_true(*(float *)pulled.value->bytes == 2 * (float)(1 + round));
        gw_ps_blob_give(pulled.value);
        STEP(pull(&world, frames, 0, GW_PS_DECODE_AVERAGE, NULL, &pulled));
        gw_ps_blob_give(pulled.value);
        STEP(pull(&world, frames, 0, GW_PS_DECODE_SUM, NULL, &pulled));
        gw_ps_blob_give(pulled.value);
    }
    struct gw_ps_store_info info = gw_ps_store_info(world.store);
    uint64_t bytes = 0;
    for (uint64_t k = 0; k < info.n_keys; k++)
        bytes += gw_ps_key_info(world.store, gw_ps_store_key(world.store, k)).bytes;
    assert_int_equal(info.bytes, bytes);
    CHECK(failed, "allocation %d of %d was not asked for", fail_at, world.shortage.calls);
    int calls = world.shortage.calls;
    end(&world);
    return calls;
}

static void any_allocation_may_fail(void **state)
{
    (void)state;
    int n = life_with_a_failure(0);
    assert_true(n > 100);
    for (int at = 1; at <= n; at++)
        life_with_a_failure(at);
}

static void a_store_without_memory(void **state)
{
    (void)state;
    struct shortage shortage = {0};
    const gw_allocator allocator = {short_alloc, short_free, &shortage};
    const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator, .n_threads = 1};
    struct gw_ps_store_options o = {.n_workers = 0};
    gw_context *context;
    struct gw_ps_store *store = NULL;
    assert_int_equal(gw_context_create(&options, &context), GW_OK);
    refused(gw_ps_store_create(context, &o, &store), GW_ERR_ARGUMENT, "for 0 workers");
    o.n_workers = GW_MAX_WORKERS + 1;
    refused(gw_ps_store_create(context, &o, &store), GW_ERR_ARGUMENT, "workers");
    o.n_workers = GW_MAX_WORKERS;
    assert_int_equal(gw_ps_store_create(context, &o, &store), GW_OK);
    assert_int_equal(gw_ps_store_info(store).n_present, GW_MAX_WORKERS);
    gw_ps_store_destroy(store);
    o.n_workers = 1;
    shortage.fail_at = shortage.calls + 1;
    assert_int_equal(gw_ps_store_create(context, &o, &store), GW_ERR_MEMORY);
    gw_ps_store_destroy(NULL);
    gw_context_destroy(context);
    assert_int_equal(shortage.live, 0);
}

/* A round with an attacker in it, whoever comes first; and none without pushes. */
static void test_median(void **state)
{
    (void)state;
    static const float values[] = {2, 1e30f, 1};
    static const uint32_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};
    for (int o = 0; o < 3; o++) {
        struct world world;
        struct gw_ps_pulled pulled;
        begin(&world, 3, GW_PS_SYNC, 0);
        struct gw_ps_key *key = key_of(&world, "x", GW_PS_FLOAT32, 1);
        refused(pull(&world, key, 0, GW_PS_MEDIAN, NULL, &pulled), GW_ERR_ORDER, "before it has pushed");
        for (int i = 0; i < 3; i++)
            assert_int_equal(push(&world, key, orders[o][i], 1, &values[orders[o][i]], sizeof(float)), GW_OK);
        assert_true(first_of(&world, key, 0, GW_PS_MEDIAN, NULL) == 2);
        end(&world);
    }
}

/* A worker that is backup may be late by a round, and not by two: the second waits for its first. Whichever it is. */
static void backup_is_late_by_one_round(void **state)
{
    (void)state;
    for (uint32_t slow = 0; slow < 3; slow++) {
        struct world world;
        struct gw_ps_pulled pulled;
        static const float x = 1, late = 4;
        const uint32_t fast[] = {slow == 0, slow == 2 ? 1 : 2};
        begin_store(&world, (struct gw_ps_store_options){.n_workers = 3, .backup = 1});
        struct gw_ps_key *key = key_of(&world, "x", GW_PS_FLOAT32, 1);
        for (uint64_t nth = 1; nth <= 2; nth++)
            for (int i = 0; i < 2; i++)
                assert_int_equal(push(&world, key, fast[i], nth, &x, sizeof x), GW_OK);
        assert_int_equal(pull(&world, key, fast[0], GW_PS_SUM, NULL, &pulled), GW_PS_WAIT);
        assert_int_equal(push(&world, key, slow, 1, &late, sizeof late), GW_OK); /* of a round that is over */
        assert_true(first_of(&world, key, fast[0], GW_PS_SUM, NULL) == 2);
        end(&world);
    }
}

/* What is put is there for those that want this version, or an older one. */
static void puts_have_versions(void **state)
{
    (void)state;
    struct world world;
    struct gw_ps_pulled pulled;
    static const uint64_t versions[] = {3, 2, 3, 5}; /* only a higher one takes the place */
    static const float values[] = {30, 20, 31, 50};
    begin(&world, 2, GW_PS_SYNC, 0);
    struct gw_ps_key *key = key_of(&world, "x", GW_PS_FLOAT32, 1);
    assert_int_equal(gw_ps_store_get(key, 0, &pulled), GW_PS_WAIT);
    for (int i = 0; i < 4; i++) {
        const uint64_t there = i < 3 ? 3 : 5;
        struct gw_ps_blob *blob = blob_of(&world, &values[i], sizeof values[i]);
        assert_int_equal(gw_ps_store_put(world.store, key, versions[i], blob), GW_OK);
        gw_ps_blob_give(blob);
        for (uint64_t least = 0; least < 8; least++) {
            const gw_status status = gw_ps_store_get(key, least, &pulled);
            CHECK(status == (least <= there ? GW_OK : GW_PS_WAIT), "put %d, version %u: %d", i, (unsigned)least,
                  status);
            if (status != GW_OK)
                continue;
            CHECK(pulled.round == there && memcmp(pulled.value->bytes, &values[i < 3 ? 0 : 3], sizeof(float)) == 0,
                  "put %d", i);
            gw_ps_blob_give(pulled.value);
        }
    }
    struct gw_ps_blob *blob = blob_of(&world, &values[0], 3);
    refused(gw_ps_store_put(world.store, key, 9, blob), GW_ERR_ARGUMENT, "has 3 bytes");
    gw_ps_blob_give(blob);
    end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median),
        cmocka_unit_test(what_happens_is_what_the_model_says),
        cmocka_unit_test(results_are_kept),
        cmocka_unit_test(answers_outlive_the_store),
        cmocka_unit_test(scales_are_of_the_same_round),
        cmocka_unit_test(a_late_worker_has_its_scale),
        cmocka_unit_test(a_second_time_is_no_excuse),
        cmocka_unit_test(scales_that_cannot_be),
        cmocka_unit_test(names_and_shapes),
        cmocka_unit_test(lengths_and_limits),
        cmocka_unit_test(no_more_than_max_bytes),
        cmocka_unit_test(frames_are_of_their_key_and_rank),
        cmocka_unit_test(backup_is_late_by_one_round),
        cmocka_unit_test(puts_have_versions),
        cmocka_unit_test(any_allocation_may_fail),
        cmocka_unit_test(a_store_without_memory),
    };
    return cmocka_run_group_tests_name("pserver_store", tests, NULL, NULL);
}
