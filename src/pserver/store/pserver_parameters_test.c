/* Tests keys with an optimizer, in the store without any network, beside the same rules applied by hand: rounds and
 * single pushes, rates, refusals, first parameters, who holds them, limits, and memory that runs out. */
#include "base/memory.h"
#include "optimizer/optimizer.h"
#include "pserver/store/parameters.h"
#include "pserver/store/reduce.h"
#include "pserver/store/test_store.h"
#include "wire/bytes.h"
#include "wire/float16.h"

#include <gradwire/codec.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1000, WORKERS = 3, MOST_BYTES = 3 * 4 * N + 4096 };

/* ---- a store ------------------------------------------------------------------------------------------------ */

static void begin(struct world *world, gw_ps_mode mode, uint32_t staleness, uint64_t max_bytes)
{
    begin_store(world, (struct gw_ps_store_options){
                           .n_workers = WORKERS, .mode = mode, .staleness = staleness, .max_bytes = max_bytes});
}

/* What a worker pushes. */
struct pushed {
    uint8_t bytes[MOST_BYTES];
    size_t n_bytes;
};

static const gw_ps_shape row = {.n_dims = 1, .dims = {N}};

static struct gw_ps_key *key_of(struct world *world, gw_ps_type type, const char *codec, const char *optimizer)
{
    struct gw_ps_key *key;
    gw_status status = gw_ps_store_init(world->store, "w", type, &row, codec, optimizer);
    CHECK(status == GW_OK, "%s", gw_last_error());
    assert_int_equal(gw_ps_store_find(world->store, "w", &key), GW_OK);
    return key;
}

static gw_status put(struct world *world, struct gw_ps_key *key, const float *values, uint64_t n)
{
    struct gw_ps_blob *blob = blob_of(world, values, n * sizeof *values);
    gw_status status = blob ? gw_ps_store_put_first(world->store, key, blob) : GW_ERR_MEMORY;
    gw_ps_blob_give(blob);
    return status;
}

static gw_status push(struct world *world, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                      const struct pushed *pushed, double rate)
{
    return push_bytes(world, key, rank, nth, pushed->bytes, pushed->n_bytes, rate, false);
}

static gw_status push_pending(struct world *world, struct gw_ps_key *key, uint32_t rank, uint64_t nth,
                              const struct pushed *pushed, double rate)
{
    return push_bytes(world, key, rank, nth, pushed->bytes, pushed->n_bytes, rate, true);
}

static gw_status judge(struct world *world, struct gw_ps_key *key, uint32_t rank, uint64_t nth)
{
    return gw_ps_store_judge(world->store, key, rank, nth, UINT64_MAX);
}

static gw_status pull(struct world *world, struct gw_ps_key *key, uint32_t rank, struct gw_ps_pulled *pulled)
{
    struct gw_ps_key *waits_for = NULL;
    pulled->round = 0;
    gw_status status = gw_ps_store_pull(world->store, key, rank, GW_PS_PARAMETERS, NULL, pulled, &waits_for);
    assert_true(status != GW_PS_WAIT || waits_for == key);
    return status;
}

static void check_pulled(struct world *world, struct gw_ps_key *key, uint32_t rank, const float *expected,
                         uint64_t round)
{
    struct gw_ps_pulled pulled;
    gw_status status = pull(world, key, rank, &pulled);
    CHECK(status == GW_OK, "%d: %s", status, gw_last_error());
    assert_true(pulled.type == GW_PS_FLOAT32 && pulled.shape.n_dims == 1 && pulled.shape.dims[0] == N &&
                pulled.value->n_bytes == 4 * N);
    CHECK(pulled.round == round, "round %llu and not %llu", (unsigned long long)pulled.round,
          (unsigned long long)round);
    for (int i = 0; i < N; i++) {
        float x = gw_get_float((uint8_t *)pulled.value->bytes + 4 * i);
        CHECK(memcmp(&x, &expected[i], 4) == 0, "rank %u, round %llu, element %d: %.9g and not %.9g", rank,
              (unsigned long long)round, i, (double)x, (double)expected[i]);
    }
    gw_ps_blob_give(pulled.value);
}

/* ---- gradients ---------------------------------------------------------------------------------------------- */

static float gradient_element(uint32_t rank, uint32_t step, int i)
{
    uint32_t x = (uint32_t)i * 2654435761u + rank * 40503u + step * 69069u;
    x ^= x >> 13;
    return (float)(int32_t)(x * 2246822519u) * 0x1p-33f;
}

/* Makes what a worker pushes in a step. If the type is frames, it is two frames, one after the other. */
static void make_push(const struct world *world, gw_ps_type type, const char *codec, uint32_t rank, uint32_t step,
                      struct pushed *out)
{
    float g[N];
    for (int i = 0; i < N; i++)
        g[i] = gradient_element(rank, step, i);
    out->n_bytes = (type == GW_PS_FLOAT32 ? 4 : 2) * N;
    for (int i = 0; i < N && type == GW_PS_FLOAT32; i++)
        gw_put_float(out->bytes + 4 * i, g[i]);
    for (int i = 0; i < N && type == GW_PS_FLOAT16; i++)
        gw_put16(out->bytes + 2 * i, gw_to_f16(g[i]));
    for (int i = 0; i < N && type == GW_PS_BFLOAT16; i++)
        gw_put16(out->bytes + 2 * i, gw_to_bf16(g[i]));
    if (type != GW_PS_FRAME)
        return;
    out->n_bytes = 0;
    const uint64_t cut[] = {0, 400, N};
    gw_codec *parsed;
    assert_int_equal(gw_codec_parse(world->context, codec, &parsed), GW_OK);
    for (uint32_t t = 0; t < 2; t++) {
        const gw_tensor tensor = {.name = "t", .id = t, .n_elems = cut[t + 1] - cut[t]};
        const gw_draw draw = {.seed = 5, .rank = rank, .step = step};
        gw_encoder *encoder;
        float numbers[N];
        size_t n_bytes;
        assert_int_equal(gw_encoder_create(world->context, parsed, &tensor, &encoder), GW_OK);
        assert_int_equal(gw_encoder_measure(encoder, g + cut[t], numbers, N, NULL), GW_OK);
        for (uint64_t s = 0; s < gw_encoder_traits_of(encoder).n_shared; s++)
            numbers[s] = 0.5f; /* no gradient is larger */
        assert_int_equal(gw_encoder_encode(encoder, g + cut[t], gw_encoder_traits_of(encoder).n_shared ? numbers : NULL,
                                           &draw, 0, tensor.n_elems, out->bytes + out->n_bytes,
                                           MOST_BYTES - out->n_bytes, &n_bytes),
                         GW_OK);
        out->n_bytes += n_bytes;
        gw_encoder_destroy(encoder);
    }
    gw_codec_destroy(parsed);
}

static void widen(const struct world *world, gw_ps_type type, const void *bytes, size_t n_bytes, float *out)
{
    const uint8_t *at = bytes;
    for (int i = 0; i < N && type != GW_PS_FRAME; i++)
        out[i] = type == GW_PS_FLOAT32   ? gw_get_float(at + 4 * i)
                 : type == GW_PS_FLOAT16 ? gw_from_f16(gw_get16(at + 2 * i))
                                         : gw_from_bf16(gw_get16(at + 2 * i));
    for (uint64_t done = 0; type == GW_PS_FRAME && done < N;) {
        gw_frame_info info;
        assert_int_equal(gw_frame_parse(at, n_bytes, &info), GW_OK);
        assert_int_equal(gw_decode(world->context, at, info.frame_bytes, out + done, info.n_elems), GW_OK);
        done += info.n_elems, at += info.frame_bytes, n_bytes -= info.frame_bytes;
    }
}

/* What the store must compute: averages the pushes of a round, and makes one update with the rule. */
static void update(const struct world *world, gw_ps_type type, const char *codec, const char *optimizer,
                   const struct pushed *pushes, uint32_t n, float rate, uint64_t step, float *w,
                   float *const moments[2])
{
    struct gw_ps_push borrowed[WORKERS];
    struct gw_ps_result result;
    struct gw_optimizer rule;
    gw_codec *parsed = NULL;
    float g[N];
    for (uint32_t r = 0; r < n; r++)
        borrowed[r] = (struct gw_ps_push){r, pushes[r].bytes, pushes[r].n_bytes};
    if (*codec)
        assert_int_equal(gw_codec_parse(world->context, codec, &parsed), GW_OK);
    assert_int_equal(gw_ps_reduce(world->context, type == GW_PS_FRAME ? GW_PS_DECODE_AVERAGE : GW_PS_MEAN, type, &row,
                                  borrowed, n, parsed, NULL, &result),
                     GW_OK);
    widen(world, type, result.bytes, result.n_bytes, g);
    gw_free(world->context, result.bytes);
    gw_codec_destroy(parsed);
    assert_int_equal(gw_optimizer_parse(optimizer, &rule), GW_OK);
    gw_optimizer_update(&rule, N, w, moments, g, rate, step);
}

static void first_values(float *w)
{
    for (int i = 0; i < N; i++)
        w[i] = 0.01f * (float)(i % 17 - 8);
}

/* Begins a store with one key, and puts its first parameters, which are w from then on. */
static struct gw_ps_key *begin_key(struct world *world, gw_ps_mode mode, gw_ps_type type, const char *codec,
                                   const char *optimizer, float *w)
{
    begin(world, mode, 1, 0);
    struct gw_ps_key *key = key_of(world, type, codec, optimizer);
    first_values(w);
    assert_int_equal(put(world, key, w, N), GW_OK);
    return key;
}

/* Makes what all workers push in a step. */
static void make_round(const struct world *world, gw_ps_type type, const char *codec, uint32_t step,
                       struct pushed *pushes)
{
    for (uint32_t r = 0; r < WORKERS; r++)
        make_push(world, type, codec, r, step, &pushes[r]);
}

static const struct {
    gw_ps_type type;
    const char *codec, *optimizer;
    float own_rate;
} cases[] = {
    {GW_PS_FLOAT32, "", "sgd:lr=0.25,weight-decay=0.01", 0.25f},
    {GW_PS_FLOAT32, "", "adam", 0.001f},
    {GW_PS_FLOAT16, "", "momentum:lr=0.5", 0.5f},
    {GW_PS_BFLOAT16, "", "momentum:lr=0.5,momentum=0.5", 0.5f},
    {GW_PS_FRAME, "ternary", "momentum:weight-decay=0.001,lr=0.1", 0.1f},
    {GW_PS_FRAME, "topk:ratio=0.1,scope=layer,over=0,value=bf16", "sgd:lr=0.1", 0.1f},
    {GW_PS_FRAME, "none", "adam:lr=0.01,epsilon=1e-4", 0.01f},
};
enum { N_CASES = sizeof cases / sizeof *cases };

/* ---- the modes ---------------------------------------------------------------------------------------------- */

/* In mode sync the parameters move once in a round, whoever pushes first. The rate is that of rank 0's push, or the
 * key's own if that is 0. */
static void whole_rounds_move_parameters(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS];
    for (int c = 0; c < N_CASES; c++) {
        struct world world;
        float w[N], before[N], first[N] = {0}, second[N] = {0}, *const moments[] = {first, second};
        struct gw_ps_key *key = begin_key(&world, GW_PS_SYNC, cases[c].type, cases[c].codec, cases[c].optimizer, w);
        for (uint32_t t = 1; t <= 5; t++) {
            const float rate = t == 3 ? 0 : 0.1f / (float)t;
            memcpy(before, w, sizeof w);
            make_round(&world, cases[c].type, cases[c].codec, t, pushes);
            update(&world, cases[c].type, cases[c].codec, cases[c].optimizer, pushes, WORKERS,
                   rate > 0 ? rate : cases[c].own_rate, t, w, moments);
            for (uint32_t i = 0; i < WORKERS; i++) {
                uint32_t r = (i + t) % WORKERS;
                struct gw_ps_pulled pulled;
                check_pulled(&world, key, GW_PS_READER, before, t - 1);
                assert_int_equal(push(&world, key, r, t, &pushes[r], r == 0 ? (double)rate : 7), GW_OK);
                /* as if the answer was lost: the push must not count again */
                assert_int_equal(push(&world, key, r, t, &pushes[r], 0.9), GW_OK);
                if (i + 1 < WORKERS)
                    assert_int_equal(pull(&world, key, r, &pulled), GW_PS_WAIT);
            }
            for (uint32_t r = 0; r < WORKERS; r++)
                check_pulled(&world, key, r, w, t);
        }
        end(&world);
    }
}

/* In mode async each push moves the parameters by itself, at a third of its own rate, because there are three workers.
 */
static void single_pushes_move_parameters(void **state)
{
    (void)state;
    static const uint32_t order[] = {1, 1, 0, 2, 1, 0, 0, 2};
    static struct pushed one;
    for (int c = 0; c < N_CASES; c++) {
        struct world world;
        float w[N], first[N] = {0}, second[N] = {0}, *const moments[] = {first, second};
        uint64_t pushed[WORKERS] = {0};
        struct gw_ps_key *key = begin_key(&world, GW_PS_ASYNC, cases[c].type, cases[c].codec, cases[c].optimizer, w);
        for (uint32_t i = 0; i < sizeof order / sizeof *order; i++) {
            const uint32_t r = order[i];
            const double rate = i == 2 ? 0 : 0.1 / (i + 1);
            make_push(&world, cases[c].type, cases[c].codec, r, i, &one);
            struct gw_optimizer rule;
            float g[N];
            widen(&world, cases[c].type, one.bytes, one.n_bytes, g);
            assert_int_equal(gw_optimizer_parse(cases[c].optimizer, &rule), GW_OK);
            gw_optimizer_update(&rule, N, w, moments, g,
                                (float)((rate > 0 ? rate : (double)cases[c].own_rate) / WORKERS), i + 1);
            assert_int_equal(push(&world, key, r, ++pushed[r], &one, rate), GW_OK);
            check_pulled(&world, key, r, w, pushed[r]);
        }
        check_pulled(&world, key, GW_PS_READER, w, sizeof order / sizeof *order + 1);
        end(&world);
    }
}

static void stale_pulls_wait_for_the_slowest(void **state)
{
    (void)state;
    static struct pushed one;
    struct world world;
    struct gw_ps_pulled pulled;
    float w[N];
    struct gw_ps_key *key = begin_key(&world, GW_PS_STALE, GW_PS_FLOAT32, "", "sgd", w);
    make_push(&world, GW_PS_FLOAT32, "", 0, 0, &one);
    for (uint64_t nth = 1; nth <= 2; nth++)
        for (uint32_t r = 0; r < 2; r++)
            assert_int_equal(push(&world, key, r, nth, &one, 0), GW_OK);
    assert_int_equal(pull(&world, key, 0, &pulled), GW_PS_WAIT);
    assert_int_equal(pull(&world, key, 2, &pulled), GW_OK); /* it has not pushed, so it gets the parameters of now */
    gw_ps_blob_give(pulled.value);
    world.n_woken = 0;
    assert_int_equal(push(&world, key, 2, 1, &one, 0), GW_OK);
    assert_true(world.n_woken > 0);
    assert_int_equal(pull(&world, key, 0, &pulled), GW_OK);
    gw_ps_blob_give(pulled.value);
    end(&world);
}

/* ---- what changes nothing ----------------------------------------------------------------------------------- */

static void refused_rounds_change_nothing(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS];
    struct world world;
    struct gw_ps_pulled pulled;
    float w[N], first[N] = {0}, second[N] = {0}, *const moments[] = {first, second};
    struct gw_ps_key *key = begin_key(&world, GW_PS_SYNC, GW_PS_FLOAT32, "", "adam", w);
    for (uint32_t t = 1; t <= 4; t++) {
        make_round(&world, GW_PS_FLOAT32, "", t, pushes);
        if (t == 4)
            update(&world, GW_PS_FLOAT32, "", "adam", pushes, WORKERS, 0.1f, 4, w, moments);
        for (uint32_t r = 0; r < WORKERS; r++)
            if (r == t - 1) /* each worker refuses once: as the first, in the middle, as the last */
                assert_int_equal(gw_ps_store_refuse(world.store, key, r, t, 70 + t), GW_OK);
            else
                assert_int_equal(push(&world, key, r, t, &pushes[r], 0.1), GW_OK);
        check_pulled(&world, key, GW_PS_READER, w, t);
        for (uint32_t r = 0; r < WORKERS && t <= 3; r++) {
            refused(pull(&world, key, r, &pulled), GW_ERR_NONFINITE, "could not be used");
            assert_int_equal(pulled.round, 70 + t);
        }
    }
    for (uint32_t r = 0; r < WORKERS; r++)
        check_pulled(&world, key, r, w, 4);
    end(&world);
}

/* A worker leaves. The round is then made of the others' pushes, at the rate of the lowest rank among them. */
static void rounds_of_fewer_move_parameters(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS];
    struct world world;
    float w[N];
    struct gw_ps_key *key = begin_key(&world, GW_PS_SYNC, GW_PS_FLOAT32, "", "sgd", w);
    for (uint32_t t = 1; t <= 2; t++) {
        make_round(&world, GW_PS_FLOAT32, "", t, pushes);
        for (uint32_t r = t == 1 ? 0 : 1; r < WORKERS; r++)
            assert_int_equal(push(&world, key, r, t, &pushes[r], r + 0.5), GW_OK);
        if (t == 1) {
            update(&world, GW_PS_FLOAT32, "", "sgd", pushes, WORKERS, 0.5f, t, w, (float *[2]){NULL});
        } else {
            check_pulled(&world, key, GW_PS_READER, w, 1);
            gw_ps_store_leave(world.store, 0);
            update(&world, GW_PS_FLOAT32, "", "sgd", pushes + 1, WORKERS - 1, 1.5f, t, w, (float *[2]){NULL});
        }
        check_pulled(&world, key, 1, w, t);
    }
    end(&world);
}

/* A worker's frames do not fit those of the others, so the round has no average. Pulls say so, the parameters stay, and
 * the next round goes on. */
static void a_round_without_an_average_changes_nothing(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS], other;
    struct world world;
    struct gw_ps_pulled pulled;
    float w[N];
    struct gw_ps_key *key = begin_key(&world, GW_PS_SYNC, GW_PS_FRAME, "", "sgd", w);
    for (uint32_t t = 1; t <= 2; t++) {
        for (uint32_t r = 0; r < WORKERS; r++) {
            make_push(&world, GW_PS_FRAME, "none", r, t, &pushes[r]);
            make_push(&world, GW_PS_FRAME, "none", r, t + 1, &other); /* a step ahead */
            const struct pushed *it = t == 1 && r == 1 ? &other : &pushes[r];
            assert_int_equal(push(&world, key, r, t, it, 0.5), GW_OK);
        }
        if (t == 2)
            update(&world, GW_PS_FRAME, "", "sgd", pushes, WORKERS, 0.5f, t, w, (float *[2]){NULL});
        for (uint32_t r = 0; r < WORKERS && t == 1; r++)
            refused(pull(&world, key, r, &pulled), GW_ERR_FRAME_MISMATCH, "have no average");
        check_pulled(&world, key, GW_PS_READER, w, t);
    }
    check_pulled(&world, key, 2, w, 2);
    end(&world);
}

/* In mode async a worker refuses. Only its own pulls fail. The pulls of the others leave it out. */
static void refusals_are_ones_own_without_rounds(void **state)
{
    (void)state;
    static struct pushed one;
    struct world world;
    struct gw_ps_pulled pulled;
    struct gw_ps_key *waits_for;
    float w[N];
    struct gw_ps_key *key = begin_key(&world, GW_PS_ASYNC, GW_PS_FLOAT32, "", "sgd:lr=0", w);
    make_push(&world, GW_PS_FLOAT32, "", 0, 0, &one);
    assert_int_equal(push(&world, key, 0, 1, &one, 0), GW_OK);
    assert_int_equal(gw_ps_store_refuse(world.store, key, 1, 1, 9), GW_OK);
    check_pulled(&world, key, 0, w, 1);
    refused(pull(&world, key, 1, &pulled), GW_ERR_NONFINITE, "could not be used");
    assert_int_equal(pulled.round, 9);
    assert_int_equal(gw_ps_store_pull(world.store, key, 0, GW_PS_MAX, NULL, &pulled, &waits_for), GW_OK);
    assert_memory_equal(pulled.value->bytes, one.bytes, one.n_bytes);
    assert_int_equal(pulled.n_pushes, 1);
    gw_ps_blob_give(pulled.value);
    refused(gw_ps_store_pull(world.store, key, 1, GW_PS_MAX, NULL, &pulled, &waits_for), GW_ERR_NONFINITE,
            "could not be used");
    assert_int_equal(push(&world, key, 1, 2, &one, 0), GW_OK);
    check_pulled(&world, key, 1, w, 2);
    end(&world);
}

static void a_nan_is_refused(void **state)
{
    (void)state;
    static const gw_ps_type types[] = {GW_PS_FLOAT32, GW_PS_FLOAT16, GW_PS_BFLOAT16};
    for (int c = 0; c < 3; c++)
        for (int what = 0; what < 6; what++) {
            struct world world;
            static struct pushed one;
            const int sign = what % 2, at = (const int[]){0, 77, N - 1}[what / 2];
            char words[40];
            float w[N];
            struct gw_ps_key *key = begin_key(&world, GW_PS_SYNC, types[c], "", "sgd", w);
            make_push(&world, types[c], "", 0, 1, &one);
            static const uint32_t infinity[] = {0x7F800000, 0x7C00, 0x7F80}, nan[] = {0xFFC00000, 0xFE00, 0xFFC0};
            if (c == 0)
                gw_put32(one.bytes + 4 * at, sign ? nan[c] : infinity[c]);
            else
                gw_put16(one.bytes + 2 * at, (uint16_t)(sign ? nan[c] : infinity[c]));
            snprintf(words, sizeof words, "at element %d;", at);
            refused(push(&world, key, 0, 1, &one, 0), GW_ERR_NONFINITE, words);
            assert_int_equal(gw_ps_store_pushed(world.store, key, 0), 0);
            end(&world);
        }
}

/* ---- pushes that wait for a verdict --------------------------------------------------------------------------- */

/* A round of pending pushes moves the parameters as plain pushes do, but only when the last verdict is in. */
static void rounds_wait_for_verdicts(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS];
    for (int c = 0; c < N_CASES; c++) {
        struct world world;
        struct gw_ps_pulled pulled;
        float w[N], first[N] = {0}, second[N] = {0}, *const moments[] = {first, second};
        struct gw_ps_key *key = begin_key(&world, GW_PS_SYNC, cases[c].type, cases[c].codec, cases[c].optimizer, w);
        for (uint32_t t = 1; t <= 4; t++) {
            make_round(&world, cases[c].type, cases[c].codec, t, pushes);
            for (uint32_t r = 0; r < WORKERS; r++)
                assert_int_equal(push_pending(&world, key, r, t, &pushes[r], r == 0 ? 0.25 : 7), GW_OK);
            for (uint32_t r = 0; r < WORKERS; r++) {
                check_pulled(&world, key, GW_PS_READER, w, t - 1);
                assert_int_equal(pull(&world, key, r, &pulled), GW_PS_WAIT);
                assert_true(gw_ps_key_misses(world.store, key, 0, r));
                assert_int_equal(gw_ps_key_info(world.store, key).n_missing, WORKERS - r);
                world.n_woken = 0;
                if (r + 1 == WORKERS)
                    update(&world, cases[c].type, cases[c].codec, cases[c].optimizer, pushes, WORKERS, 0.25f, t, w,
                           moments);
                assert_int_equal(judge(&world, key, r, t), GW_OK);
                assert_int_equal(world.n_woken > 0, r + 1 == WORKERS);
                assert_int_equal(judge(&world, key, r, t), GW_OK); /* sent again, as if the answer was lost */
            }
            for (uint32_t r = 0; r < WORKERS; r++)
                check_pulled(&world, key, r, w, t);
        }
        end(&world);
    }
}

/* After one bad verdict the round moves nothing, whoever gives it. If several are bad, all workers get the smallest
 * number. */
static void a_bad_verdict_drops_the_round(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS];
    struct world world;
    struct gw_ps_pulled pulled;
    float w[N], first[N] = {0}, second[N] = {0}, *const moments[] = {first, second};
    struct gw_ps_key *key = begin_key(&world, GW_PS_SYNC, GW_PS_FRAME, "ternary", "adam", w);
    for (uint32_t t = 1; t <= 4; t++) {
        make_round(&world, GW_PS_FRAME, "ternary", t, pushes);
        for (uint32_t r = 0; r < WORKERS; r++)
            assert_int_equal(push_pending(&world, key, r, t, &pushes[r], 0.1), GW_OK);
        if (t == 4)
            update(&world, GW_PS_FRAME, "ternary", "adam", pushes, WORKERS, 0.1f, 4, w, moments);
        const uint64_t before = atomic_load(&world.total);
        for (uint32_t r = 0; r < WORKERS; r++)
            assert_int_equal(gw_ps_store_judge(world.store, key, r, t,
                                               r == t - 1 || (t == 1 && r > 0) ? 70 + t + r : UINT64_MAX),
                             GW_OK);
        assert_true(t == 4 || atomic_load(&world.total) < before); /* a push with a bad verdict is not kept */
        check_pulled(&world, key, GW_PS_READER, w, t);
        for (uint32_t r = 0; r < WORKERS && t <= 3; r++) {
            refused(pull(&world, key, r, &pulled), GW_ERR_NONFINITE, "could not be used");
            assert_int_equal(pulled.round, 70 + t + (t - 1));
        }
    }
    for (uint32_t r = 0; r < WORKERS; r++)
        check_pulled(&world, key, r, w, 4);
    end(&world);
}

/* In mode async each push moves the parameters when its own verdict comes. */
static void single_pushes_wait_for_verdicts(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS];
    for (int c = 0; c < N_CASES; c++) {
        struct world world;
        struct gw_ps_pulled pulled;
        struct gw_optimizer rule;
        float w[N], g[N], first[N] = {0}, second[N] = {0}, *const moments[] = {first, second};
        uint64_t n_updates = 0;
        struct gw_ps_key *key = begin_key(&world, GW_PS_ASYNC, cases[c].type, cases[c].codec, cases[c].optimizer, w);
        assert_int_equal(gw_optimizer_parse(cases[c].optimizer, &rule), GW_OK);
        for (uint32_t t = 1; t <= 3; t++) {
            for (uint32_t r = 0; r < WORKERS; r++) {
                make_push(&world, cases[c].type, cases[c].codec, r, t, &pushes[r]);
                assert_int_equal(push_pending(&world, key, r, t, &pushes[r], 0.3), GW_OK);
                assert_int_equal(pull(&world, key, r, &pulled), GW_PS_WAIT);
                refused(push_pending(&world, key, r, t + 1, &pushes[r], 0.3), GW_ERR_ORDER, "before the verdict");
            }
            for (uint32_t r = WORKERS; r-- > 0;) {
                check_pulled(&world, key, GW_PS_READER, w, n_updates + 1);
                const bool bad = t == 2 && r == 1;
                widen(&world, cases[c].type, pushes[r].bytes, pushes[r].n_bytes, g);
                n_updates++; /* a refusal counts as an update, too */
                if (!bad)
                    gw_optimizer_update(&rule, N, w, moments, g, (float)(0.3 / WORKERS), n_updates);
                assert_int_equal(gw_ps_store_judge(world.store, key, r, t, bad ? 5 : UINT64_MAX), GW_OK);
                if (!bad) {
                    check_pulled(&world, key, r, w, t);
                    continue;
                }
                refused(pull(&world, key, r, &pulled), GW_ERR_NONFINITE, "could not be used");
                assert_int_equal(pulled.round, 5);
            }
        }
        end(&world);
    }
}

/* A worker leaves between its push and its verdict. The round is then made of the others' pushes, also if the worker
 * comes back too late. If it comes back while the round is open, it pushes again. */
static void who_goes_before_its_verdict_does_not_count(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS];
    struct world world;
    float w[N];
    struct gw_ps_key *key = begin_key(&world, GW_PS_SYNC, GW_PS_FLOAT32, "", "sgd", w);
    for (uint32_t t = 1; t <= 3; t++) {
        const bool first_goes = t == 2; /* else it leaves after the others' verdicts */
        for (uint32_t r = 0; r < WORKERS; r++) {
            make_push(&world, GW_PS_FLOAT32, "", r, t, &pushes[r]);
            assert_int_equal(push_pending(&world, key, r, t, &pushes[r], r + 0.5), GW_OK);
        }
        if (first_goes)
            gw_ps_store_leave(world.store, 0);
        assert_int_equal(judge(&world, key, 1, t), GW_OK);
        check_pulled(&world, key, GW_PS_READER, w, t - 1);
        assert_int_equal(judge(&world, key, 2, t), GW_OK);
        if (t == 1) { /* the first round has the pushes of all */
            assert_int_equal(judge(&world, key, 0, t), GW_OK);
            update(&world, GW_PS_FLOAT32, "", "sgd", pushes, WORKERS, 0.5f, t, w, (float *[2]){NULL});
            continue;
        }
        if (!first_goes) {
            check_pulled(&world, key, GW_PS_READER, w, t - 1);
            gw_ps_store_leave(world.store, 0);
        }
        update(&world, GW_PS_FLOAT32, "", "sgd", pushes + 1, WORKERS - 1, 1.5f, t, w, (float *[2]){NULL});
        check_pulled(&world, key, 1, w, t);
        refused(judge(&world, key, 0, t), GW_ERR_PEER, "rank 0 was away too long");
        assert_int_equal(gw_ps_store_enter(world.store, 0, "w", t + 1), GW_OK);
        refused(judge(&world, key, 0, t + 1), GW_ERR_ORDER, "its last one is number");
    }
    end(&world);

    begin(&world, GW_PS_SYNC, 0, 0);
    key = key_of(&world, GW_PS_FLOAT32, "", "sgd");
    first_values(w);
    assert_int_equal(put(&world, key, w, N), GW_OK);
    for (uint32_t r = 0; r < WORKERS; r++) {
        make_push(&world, GW_PS_FLOAT32, "", r, 1, &pushes[r]);
        assert_int_equal(push_pending(&world, key, r, 1, &pushes[r], 0.5), GW_OK);
    }
    assert_int_equal(judge(&world, key, 1, 1), GW_OK);
    gw_ps_store_leave(world.store, 0);
    assert_int_equal(gw_ps_store_enter(world.store, 0, "w", 1), GW_OK);
    refused(judge(&world, key, 0, 1), GW_ERR_ORDER, "its last one is number 0");
    assert_int_equal(judge(&world, key, 2, 1), GW_OK);
    check_pulled(&world, key, GW_PS_READER, w, 0);
    assert_int_equal(push_pending(&world, key, 0, 1, &pushes[0], 0.5), GW_OK);
    update(&world, GW_PS_FLOAT32, "", "sgd", pushes, WORKERS, 0.5f, 1, w, (float *[2]){NULL});
    assert_int_equal(judge(&world, key, 0, 1), GW_OK);
    check_pulled(&world, key, 0, w, 1);
    end(&world);
}

/* With a backup worker a round does not wait for the last verdict. If that comes later, it changes nothing. */
static void a_late_verdict_changes_nothing(void **state)
{
    (void)state;
    static struct pushed pushes[WORKERS];
    struct world world;
    float w[N];
    begin_store(&world, (struct gw_ps_store_options){.n_workers = WORKERS, .backup = 1});
    struct gw_ps_key *key = key_of(&world, GW_PS_FLOAT32, "", "sgd");
    first_values(w);
    assert_int_equal(put(&world, key, w, N), GW_OK);
    for (uint32_t r = 0; r < WORKERS; r++) {
        make_push(&world, GW_PS_FLOAT32, "", r, 1, &pushes[r]);
        assert_int_equal(push_pending(&world, key, r, 1, &pushes[r], 0.5), GW_OK);
    }
    assert_int_equal(judge(&world, key, 2, 1), GW_OK);
    check_pulled(&world, key, GW_PS_READER, w, 0);
    assert_int_equal(judge(&world, key, 1, 1), GW_OK);
    update(&world, GW_PS_FLOAT32, "", "sgd", pushes + 1, 2, 0.5f, 1, w, (float *[2]){NULL});
    check_pulled(&world, key, 1, w, 1);
    assert_int_equal(gw_ps_store_judge(world.store, key, 0, 1, 7), GW_OK);
    check_pulled(&world, key, 0, w, 1);
    end(&world);
}

static void verdicts_out_of_place(void **state)
{
    (void)state;
    static struct pushed one;
    struct world world;
    float w[N];
    begin(&world, GW_PS_SYNC, 0, 0);
    struct gw_ps_key *key = key_of(&world, GW_PS_FLOAT32, "", "sgd"), *plain;
    assert_int_equal(gw_ps_store_init(world.store, "plain", GW_PS_FLOAT32, &row, "", ""), GW_OK);
    assert_int_equal(gw_ps_store_find(world.store, "plain", &plain), GW_OK);
    first_values(w);
    make_push(&world, GW_PS_FLOAT32, "", 0, 1, &one);
    refused(push_pending(&world, plain, 0, 1, &one, 0), GW_ERR_ARGUMENT, "has no optimizer");
    assert_int_equal(push_pending(&world, key, 0, 1, &one, 0), GW_PS_WAIT); /* for parameters */
    assert_int_equal(put(&world, key, w, N), GW_OK);
    refused(judge(&world, key, 0, 1), GW_ERR_ORDER, "its last one is number 0"); /* nothing was pushed */
    assert_int_equal(push_pending(&world, key, 0, 1, &one, 0), GW_OK);
    assert_int_equal(push_pending(&world, key, 0, 1, &one, 0), GW_OK); /* sent again, as if the answer was lost */
    assert_int_equal(gw_ps_store_pushed(world.store, key, 0), 1);
    refused(judge(&world, key, 0, 2), GW_ERR_ORDER, "its last one is number 1");
    refused(judge(&world, key, 0, 0), GW_ERR_ORDER, "number 0");
    refused(judge(&world, key, WORKERS, 1), GW_ERR_ARGUMENT, "rank 3");
    refused(judge(&world, key, GW_PS_READER, 1), GW_ERR_ARGUMENT, "reader");
    refused(gw_ps_store_may_judge(world.store, "x", 0, 1), GW_ERR_ORDER, "no key with an optimizer");
    assert_int_equal(gw_ps_store_may_judge(world.store, "w", 0, 1), GW_OK);
    refused(gw_ps_store_may_judge(world.store, "w", 1, 1), GW_ERR_ORDER, "its last one is number 0");
    assert_int_equal(push_pending(&world, key, 0, 2, &one, 0), GW_PS_WAIT); /* its round is not whole */
    assert_int_equal(judge(&world, key, 0, 1), GW_OK);
    assert_int_equal(gw_ps_store_judge(world.store, key, 0, 1, 3), GW_OK); /* the first verdict stands */
    for (uint32_t r = 1; r < WORKERS; r++) {
        make_push(&world, GW_PS_FLOAT32, "", r, 1, &one);
        assert_int_equal(push(&world, key, r, 1, &one, 0), GW_OK); /* without a verdict */
    }
    assert_int_equal(gw_ps_key_info(world.store, key).rounds, 1);
    end(&world);
}

/* ---- first parameters, and who holds them -------------------------------------------------------------------- */

static void nothing_goes_on_before_there_are_parameters(void **state)
{
    (void)state;
    static struct pushed one;
    struct world world;
    struct gw_ps_pulled pulled;
    float w[N], other[N] = {1};
    begin(&world, GW_PS_SYNC, 0, 0);
    struct gw_ps_key *key = key_of(&world, GW_PS_FLOAT32, "", "sgd:lr=0.1");
    first_values(w);
    make_push(&world, GW_PS_FLOAT32, "", 0, 0, &one);
    assert_true(gw_ps_key_info(world.store, key).unset);
    assert_int_equal(pull(&world, key, GW_PS_READER, &pulled), GW_PS_WAIT);
    assert_int_equal(pull(&world, key, 0, &pulled), GW_PS_WAIT);
    assert_int_equal(push(&world, key, 0, 1, &one, 0), GW_PS_WAIT);
    assert_int_equal(gw_ps_store_refuse(world.store, key, 0, 1, 3), GW_PS_WAIT);
    refused(put(&world, key, w, N - 1), GW_ERR_ARGUMENT, "have 3996 bytes; float32 of shape [1000] takes 4000");
    world.n_woken = 0;
    assert_int_equal(put(&world, key, w, N), GW_OK);
    assert_int_equal(world.n_woken, 1);
    assert_false(gw_ps_key_info(world.store, key).unset);
    assert_int_equal(put(&world, key, other, N), GW_OK); /* the first stand */
    check_pulled(&world, key, 0, w, 0);
    assert_int_equal(push(&world, key, 0, 1, &one, 0), GW_OK);
    end(&world);
}

/* Parameters that are on their way to a client must not change. If nobody else holds them, the store moves them in
 * place. */
static void pulled_parameters_stay_as_they_are(void **state)
{
    (void)state;
    static struct pushed one;
    struct world world;
    struct gw_ps_pulled held, pulled;
    float w[N];
    struct gw_ps_key *key = begin_key(&world, GW_PS_ASYNC, GW_PS_FLOAT32, "", "sgd:lr=0.1", w);
    make_push(&world, GW_PS_FLOAT32, "", 0, 0, &one);
    assert_int_equal(pull(&world, key, 0, &held), GW_OK);
    assert_int_equal(push(&world, key, 0, 1, &one, 0), GW_OK);
    assert_memory_equal(held.value->bytes, w, sizeof w);
    assert_int_equal(pull(&world, key, 0, &pulled), GW_OK);
    assert_true(pulled.value != held.value);
    assert_int_not_equal(memcmp(pulled.value->bytes, w, sizeof w), 0);
    gw_ps_blob_give(held.value);
    const void *place = pulled.value->bytes;
    gw_ps_blob_give(pulled.value);
    assert_int_equal(push(&world, key, 0, 2, &one, 0), GW_OK);
    assert_int_equal(pull(&world, key, 0, &pulled), GW_OK);
    assert_ptr_equal(pulled.value->bytes, place);
    gw_ps_blob_give(pulled.value);
    end(&world);
}

static void wrong_keys_are_refused(void **state)
{
    (void)state;
    struct world world;
    struct gw_ps_pulled pulled;
    struct gw_ps_key *key;
    float w[N] = {0};
    begin(&world, GW_PS_SYNC, 0, 0);
    struct gw_ps_store *store = world.store;
    refused(gw_ps_store_init(store, "i", GW_PS_INT32, &row, "", "sgd"), GW_ERR_ARGUMENT, "an optimizer is for float32");
    refused(gw_ps_store_init(store, "i", GW_PS_UINT8, &row, "", "sgd"), GW_ERR_ARGUMENT, "an optimizer is for float32");
    refused(gw_ps_store_init(store, "i", GW_PS_FLOAT32, &row, "", "sgdd"), GW_ERR_SPEC,
            "the key \"i\": the optimizer \"sgdd\" is unknown");
    refused(gw_ps_store_init(store, "i", GW_PS_FLOAT32, &row, "", "momentum:momentum=1"), GW_ERR_SPEC, "below 1");
    refused(gw_ps_store_init(store, "i", GW_PS_FLOAT32, &row, "", "svrg"), GW_ERR_SPEC, "only workers have");
    assert_int_equal(gw_ps_store_info(store).n_keys, 0);
    key = key_of(&world, GW_PS_FLOAT32, "", "sgd:lr=0.1");
    assert_int_equal(gw_ps_store_init(store, "w", GW_PS_FLOAT32, &row, "", "sgd:weight-decay=0,lr=0.1000"), GW_OK);
    refused(gw_ps_store_init(store, "w", GW_PS_FLOAT32, &row, "", ""), GW_ERR_ARGUMENT,
            "is there with the optimizer \"sgd:lr=0.1");
    refused(gw_ps_store_init(store, "w", GW_PS_FLOAT32, &row, "", "adam"), GW_ERR_ARGUMENT,
            "cannot be initialised with \"adam:");
    refused(gw_ps_store_init(store, "w", GW_PS_FLOAT32, &row, "", ""), GW_ERR_ARGUMENT,
            "cannot be initialised without one");
    assert_int_equal(gw_ps_store_init(store, "plain", GW_PS_FLOAT32, &row, "", ""), GW_OK);
    refused(gw_ps_store_init(store, "plain", GW_PS_FLOAT32, &row, "", "sgd"), GW_ERR_ARGUMENT,
            "is there without an optimizer");
    assert_int_equal(gw_ps_store_find(store, "plain", &key), GW_OK);
    refused(pull(&world, key, 0, &pulled), GW_ERR_ARGUMENT, "\"plain\" has no optimizer");
    refused(put(&world, key, w, N), GW_ERR_ARGUMENT, "\"plain\" has no optimizer");
    end(&world);
}

/* ---- limits ------------------------------------------------------------------------------------------------- */

static void parameters_count(void **state)
{
    (void)state;
    struct world world;
    float w[N] = {0};
    begin(&world, GW_PS_SYNC, 0, 11000); /* parameters and one moment take 8,000 */
    refused(gw_ps_store_init(world.store, "w", GW_PS_FLOAT32, &row, "", "adam"), GW_ERR_CAPACITY, "take 12000 bytes");
    uint64_t before = atomic_load(&world.total);
    struct gw_ps_key *key = key_of(&world, GW_PS_FLOAT32, "", "momentum");
    assert_true(atomic_load(&world.total) >= before + 4 * N);
    assert_true(gw_ps_key_info(world.store, key).bytes >= 4 * N);
    refused(gw_ps_store_init(world.store, "v", GW_PS_FLOAT32, &row, "", "momentum"), GW_ERR_CAPACITY, "(--max-bytes)");
    before = atomic_load(&world.total);
    assert_int_equal(put(&world, key, w, N), GW_OK);
    assert_int_equal(atomic_load(&world.total), before + 4 * N);
    assert_true(gw_ps_key_info(world.store, key).bytes >= 8 * N);
    end(&world);
    begin(&world, GW_PS_SYNC, 0,
          before + 4 * N + 500); /* there is room for the parameters, but not for a second copy */
    key = key_of(&world, GW_PS_FLOAT32, "", "momentum");
    struct gw_ps_blob *large = blob_of(&world, w, sizeof w);
    refused(put(&world, key, w, N), GW_ERR_CAPACITY, "the parameters of \"w\" have 4000 bytes");
    gw_ps_blob_give(large);
    assert_int_equal(put(&world, key, w, N), GW_OK);
    end(&world);
}

/* Makes a call. If it fails for want of memory, which may happen once, makes it again. */
#define STEP(call)                                                                                                     \
    do {                                                                                                               \
        gw_status status_ = (call);                                                                                    \
        if (status_ == GW_ERR_MEMORY) {                                                                                \
            CHECK(!failed && world.shortage.calls >= world.shortage.fail_at, "%s fails without a cause", #call);       \
            failed = true;                                                                                             \
            status_ = (call);                                                                                          \
        }                                                                                                              \
        CHECK(status_ == GW_OK, "allocation %d: %s gives %d: %s", fail_at, #call, status_, gw_last_error());           \
    } while (0)

/* Makes two rounds, in which one allocation fails. The parameters go to `out`. Returns the number of allocations. */
static int life_with_a_failure(int fail_at, gw_ps_mode mode, float *out)
{
    struct world world;
    static struct pushed pushes[WORKERS];
    struct gw_ps_pulled held, pulled;
    struct gw_ps_key *key;
    float w[N];
    bool failed = fail_at == 0;
    begin(&world, mode, 0, 0);
    make_round(&world, GW_PS_FRAME, "ternary", 1, pushes);
    first_values(w);
    world.shortage.calls = 0;
    world.shortage.fail_at = fail_at;
    STEP(gw_ps_store_init(world.store, "w", GW_PS_FRAME, &row, "ternary", "adam:lr=0.1"));
    STEP(gw_ps_store_find(world.store, "w", &key));
    STEP(put(&world, key, w, N));
    for (uint64_t t = 1; t <= 2; t++) {
        STEP(pull(&world, key, GW_PS_READER, &held)); /* so that the next update must copy */
        for (uint32_t r = 0; r < WORKERS; r++)
            if (r == t - 1) {
                STEP(push_pending(&world, key, r, t, &pushes[r], 0));
                STEP(judge(&world, key, r, t));
            } else {
                STEP(push(&world, key, r, t, &pushes[r], 0));
            }
        gw_ps_blob_give(held.value);
    }
    STEP(pull(&world, key, 0, &pulled));
    memcpy(out, pulled.value->bytes, 4 * N);
    gw_ps_blob_give(pulled.value);
    int calls = world.shortage.calls;
    end(&world);
    /* if there was no memory to finish a round, the next pull finishes it */
    CHECK(calls >= fail_at, "allocation %d of %d did not fail", fail_at, calls);
    return calls;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    for (int mode = 0; mode < 2; mode++) {
        static float expected[N], got[N];
        const gw_ps_mode of[] = {GW_PS_SYNC, GW_PS_ASYNC};
        const int n = life_with_a_failure(0, of[mode], expected);
        for (int fail_at = 1; fail_at <= n; fail_at++) {
            life_with_a_failure(fail_at, of[mode], got);
            CHECK(memcmp(got, expected, sizeof got) == 0, "mode %d, allocation %d: other parameters", mode, fail_at);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_rounds_move_parameters),
        cmocka_unit_test(single_pushes_move_parameters),
        cmocka_unit_test(stale_pulls_wait_for_the_slowest),
        cmocka_unit_test(refused_rounds_change_nothing),
        cmocka_unit_test(rounds_of_fewer_move_parameters),
        cmocka_unit_test(a_round_without_an_average_changes_nothing),
        cmocka_unit_test(refusals_are_ones_own_without_rounds),
        cmocka_unit_test(a_nan_is_refused),
        cmocka_unit_test(rounds_wait_for_verdicts),
        cmocka_unit_test(a_bad_verdict_drops_the_round),
        cmocka_unit_test(single_pushes_wait_for_verdicts),
        cmocka_unit_test(who_goes_before_its_verdict_does_not_count),
        cmocka_unit_test(a_late_verdict_changes_nothing),
        cmocka_unit_test(verdicts_out_of_place),
        cmocka_unit_test(nothing_goes_on_before_there_are_parameters),
        cmocka_unit_test(pulled_parameters_stay_as_they_are),
        cmocka_unit_test(wrong_keys_are_refused),
        cmocka_unit_test(parameters_count),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("pserver_parameters", tests, NULL, NULL);
}
