/* Tests keys with an optimizer, in the store without any network: many elements beside the same rules applied by hand,
 * and one element, whose values one can work out. */
#include "base/memory.h"
#include "optimizer/optimizer.h"
#include "pserver/store/parameters.h"
#include "pserver/store/reduce.h"
#include "pserver/store/test_frame.h"
#include "pserver/store/test_store.h"
#include "wire/bytes.h"
#include "wire/float16.h"

#include <gradwire/codec.h>

#include <stdio.h>
#include <stdlib.h>

enum { N = 1000, WORKERS = 3, MOST_BYTES = 3 * 4 * N + 4096 };

static struct gw_ps_key *key; /* of the test's store */

static gw_status put(const float *values, uint64_t n_bytes)
{
    struct gw_ps_blob *blob = blob_of(values, n_bytes);
    const gw_status status = blob ? gw_ps_store_put_first(world.store, key, blob) : GW_ERR_MEMORY;
    gw_ps_blob_give(blob);
    return status;
}

/* refusal UINT64_MAX: the push counts. */
static gw_status give_verdict(uint32_t rank, uint64_t nth, uint64_t refusal)
{
    return gw_ps_store_take_verdict(world.store, rank, nth, refusal);
}

static gw_status refuse(uint32_t rank, uint64_t nth, uint64_t number)
{
    return gw_ps_store_push(world.store, key, rank, nth, NULL, 0, number);
}

static gw_status pull_as(uint32_t rank, gw_ps_method method, struct gw_ps_pulled *pulled)
{
    struct gw_ps_key *waits_for = NULL;
    pulled->round = 0;
    const gw_status status = gw_ps_store_pull(world.store, key, rank, method, NULL, pulled, &waits_for);
    assert_true(status != GW_PS_WAIT || waits_for == key);
    return status;
}

static gw_status pull(uint32_t rank)
{
    struct gw_ps_pulled pulled;
    const gw_status status = pull_as(rank, GW_PS_PARAMETERS, &pulled);
    if (status == GW_OK)
        gw_ps_blob_give(pulled.value);
    return status;
}

/* The worker's last round or push was refused with this number. */
static void pull_is_refused(uint32_t rank, uint64_t number)
{
    struct gw_ps_pulled pulled;
    refused(pull_as(rank, GW_PS_PARAMETERS, &pulled), GW_ERR_NONFINITE, "could not be used");
    assert_int_equal(pulled.round, number);
}

/* ---- many elements, and what must become of them -------------------------------------------------------------- */

/* What a worker pushes. */
struct pushed {
    uint8_t bytes[MOST_BYTES];
    size_t n_bytes;
};

static const struct kind {
    gw_ps_type type;
    const char *codec, *optimizer;
    float own_rate;
} kinds[] = {
    {GW_PS_FLOAT32, "", "sgd:lr=0.25,weight-decay=0.01", 0.25f},
    {GW_PS_FLOAT32, "", "adam", 0.001f},
    {GW_PS_FLOAT16, "", "momentum:lr=0.5", 0.5f},
    {GW_PS_BFLOAT16, "", "momentum:lr=0.5,momentum=0.5", 0.5f},
    {GW_PS_FRAME, "ternary", "momentum:weight-decay=0.001,lr=0.1", 0.1f},
    {GW_PS_FRAME, "topk:ratio=0.1,scope=layer,over=0,value=bf16", "sgd:lr=0.1", 0.1f},
    {GW_PS_FRAME, "none", "adam:lr=0.01,epsilon=1e-4", 0.01f},
};

/* The kind of the key, and what its parameters must be. */
static struct {
    const struct kind *kind;
    float w[N], first[N], second[N];
} model;

static struct pushed pushes[WORKERS];

/* Begins a store with one key, and puts its first parameters. */
static void begin_key(gw_ps_mode mode, const struct kind *kind)
{
    begin_store((gw_ps_server_options){.n_workers = WORKERS, .mode = mode, .staleness = 1});
    memset(&model, 0, sizeof model);
    model.kind = kind;
    key = key_with(GW_PS_EXCHANGE "w", kind->type, N, kind->codec, kind->optimizer);
    for (int i = 0; i < N; i++)
        model.w[i] = 0.01f * (float)(i % 17 - 8);
    ok(put(model.w, sizeof model.w));
}

static gw_status push(uint32_t rank, uint64_t nth, const struct pushed *pushed, double rate, bool pending)
{
    return push_bytes(key, rank, nth, pushed->bytes, pushed->n_bytes, rate, pending);
}

static void check_pulled(uint32_t rank, const float *expected, uint64_t round)
{
    struct gw_ps_pulled pulled;
    ok(pull_as(rank, GW_PS_PARAMETERS, &pulled));
    assert_true(pulled.type == GW_PS_FLOAT32 && pulled.shape.n_dims == 1 && pulled.shape.dims[0] == N &&
                pulled.value->n_bytes == 4 * N);
    assert_int_equal(pulled.round, round);
    for (int i = 0; i < N; i++) {
        float x = gw_get_float((uint8_t *)pulled.value->bytes + 4 * i);
        CHECK(memcmp(&x, &expected[i], 4) == 0, "rank %u, round %llu, element %d: %.9g and not %.9g", rank,
              (unsigned long long)round, i, (double)x, (double)expected[i]);
    }
    gw_ps_blob_give(pulled.value);
}

/* Makes what a worker pushes in a step. If the type is frames, it is two frames, one after the other. */
static void make_push(uint32_t rank, uint32_t step, struct pushed *out)
{
    const gw_ps_type type = model.kind->type;
    float g[N];
    for (int i = 0; i < N; i++) {
        uint32_t x = (uint32_t)i * 2654435761u + rank * 40503u + step * 69069u;
        x ^= x >> 13;
        g[i] = (float)(int32_t)(x * 2246822519u) * 0x1p-33f;
        if (type == GW_PS_FLOAT32)
            gw_put_float(out->bytes + 4 * i, g[i]);
        else
            gw_put16(out->bytes + 2 * i, type == GW_PS_FLOAT16 ? gw_to_f16(g[i]) : gw_to_bf16(g[i]));
    }
    out->n_bytes = (type == GW_PS_FLOAT32 ? 4 : 2) * N;
    if (type != GW_PS_FRAME)
        return;
    out->n_bytes = 0;
    const uint64_t cut[] = {0, 400, N};
    for (uint32_t t = 0; t < 2; t++) /* no gradient is larger than 0.5 */
        out->n_bytes += frame_of(world.context, model.kind->codec, t, rank, step, g + cut[t], cut[t + 1] - cut[t], 0.5f,
                                 out->bytes + out->n_bytes, MOST_BYTES - out->n_bytes);
}

static void make_round(uint32_t step)
{
    for (uint32_t r = 0; r < WORKERS; r++)
        make_push(r, step, &pushes[r]);
}

/* Makes one update of the model with a mean of gradients. */
static void update_with(const void *bytes, size_t n_bytes, float rate, uint64_t step)
{
    const gw_ps_type type = model.kind->type;
    const uint8_t *at = bytes;
    float g[N], *const moments[] = {model.first, model.second};
    struct gw_optimizer rule;
    for (int i = 0; i < N && type != GW_PS_FRAME; i++)
        g[i] = type == GW_PS_FLOAT32   ? gw_get_float(at + 4 * i)
               : type == GW_PS_FLOAT16 ? gw_from_f16(gw_get16(at + 2 * i))
                                       : gw_from_bf16(gw_get16(at + 2 * i));
    for (uint64_t done = 0; type == GW_PS_FRAME && done < N;) {
        gw_frame_info info;
        ok(gw_frame_parse(at, n_bytes, &info));
        ok(gw_decode(world.context, at, info.frame_bytes, g + done, info.n_elems));
        done += info.n_elems, at += info.frame_bytes, n_bytes -= info.frame_bytes;
    }
    ok(gw_optimizer_parse(model.kind->optimizer, &rule));
    gw_optimizer_update(&rule, N, model.w, moments, g, rate, step);
}

/* What a round must do: it averages the pushes of all workers, and makes one update with the rule. */
static void update(float rate, uint64_t step)
{
    const gw_ps_shape row = {.n_dims = 1, .dims = {N}};
    struct gw_ps_push borrowed[WORKERS];
    struct gw_ps_result result;
    gw_codec *parsed = NULL;
    for (uint32_t r = 0; r < WORKERS; r++)
        borrowed[r] = (struct gw_ps_push){r, pushes[r].bytes, pushes[r].n_bytes};
    if (*model.kind->codec)
        ok(gw_codec_parse(world.context, model.kind->codec, &parsed));
    ok(gw_ps_reduce(world.context, model.kind->type == GW_PS_FRAME ? GW_PS_DECODE_AVERAGE : GW_PS_MEAN,
                    model.kind->type, &row, borrowed, WORKERS, parsed, NULL, &result));
    update_with(result.bytes, result.n_bytes, rate, step);
    gw_free(world.context, result.bytes);
    gw_codec_destroy(parsed);
}

#define FOR_KINDS(c) for (size_t c = 0; c < sizeof kinds / sizeof *kinds; c++)

/* In mode sync the parameters move once in a round, whoever is the last: to push, or if pushes are pending, to give its
 * verdict. The rate is that of rank 0's push, or the key's own if that is 0. What comes again, as if the answer was
 * lost, does not count again. */
TEST(whole_rounds_move_parameters)
{
    FOR_KINDS(c)
    for (int pending = 0; pending < 2; pending++) {
        begin_key(GW_PS_SYNC, &kinds[c]);
        for (uint32_t t = 1; t <= 5; t++) {
            const float rate = t == 3 ? 0 : 0.1f / (float)t;
            float before[N];
            memcpy(before, model.w, sizeof before);
            make_round(t);
            update(rate > 0 ? rate : kinds[c].own_rate, t);
            for (uint32_t r = 0; r < WORKERS && pending; r++)
                ok(push(r, t, &pushes[r], r == 0 ? (double)rate : 7, true));
            for (uint32_t i = 0; i < WORKERS; i++) {
                const uint32_t r = (i + t) % WORKERS;
                check_pulled(GW_PS_READER, before, t - 1);
                world.n_woken = 0;
                if (pending) {
                    waits(pull(r));
                    assert_true(gw_ps_key_misses(world.store, key, 0, r));
                    assert_int_equal(gw_ps_n_missing(world.store, key), WORKERS - i);
                    ok(give_verdict(r, t, UINT64_MAX)), ok(give_verdict(r, t, UINT64_MAX));
                } else {
                    ok(push(r, t, &pushes[r], r == 0 ? (double)rate : 7, false));
                    ok(push(r, t, &pushes[r], 0.9, false));
                }
                assert_int_equal(world.n_woken > 0, i + 1 == WORKERS);
                if (i + 1 < WORKERS)
                    waits(pull(r));
            }
            for (uint32_t r = 0; r < WORKERS; r++)
                check_pulled(r, model.w, t);
        }
        end();
    }
}

/* In mode async each push moves the parameters by itself, when it comes or when its verdict does. It moves them at a
 * third of its own rate, because there are three workers. A bad verdict counts as an update, too, which moves nothing.
 */
TEST(single_pushes_move_parameters)
{
    static const uint32_t order[] = {1, 1, 0, 2, 1, 0, 0, 2};
    FOR_KINDS(c)
    for (int pending = 0; pending < 2; pending++) {
        uint64_t n_pushed[WORKERS] = {0};
        begin_key(GW_PS_ASYNC, &kinds[c]);
        for (uint32_t i = 0; i < sizeof order / sizeof *order; i++) {
            const uint32_t r = order[i];
            const uint64_t nth = ++n_pushed[r];
            const double rate = i == 2 ? 0 : 0.1 / (i + 1);
            const bool bad = pending && i == 4;
            make_push(r, i, &pushes[r]);
            ok(push(r, nth, &pushes[r], rate, pending));
            if (pending) {
                waits(pull(r));
                refused(push(r, nth + 1, &pushes[r], rate, true), GW_ERR_ORDER, "before the verdict");
                check_pulled(GW_PS_READER, model.w, i + 1);
                ok(give_verdict(r, nth, bad ? 5 : UINT64_MAX));
            }
            if (bad) {
                pull_is_refused(r, 5);
                continue;
            }
            update_with(pushes[r].bytes, pushes[r].n_bytes,
                        (float)((rate > 0 ? rate : (double)kinds[c].own_rate) / WORKERS), i + 1);
            check_pulled(r, model.w, nth);
        }
        check_pulled(GW_PS_READER, model.w, sizeof order / sizeof *order + 1);
        end();
    }
}

/* If a worker refuses, or gives a bad verdict, the round moves nothing. Each worker does so once: as the first, in the
 * middle, as the last. In the first round of verdicts all do, and all workers get the smallest number. */
TEST(refused_rounds_change_nothing)
{
    static const struct kind plain = {GW_PS_FLOAT32, "", "adam", 0}, framed = {GW_PS_FRAME, "ternary", "adam", 0};
    for (int pending = 0; pending < 2; pending++) {
        begin_key(GW_PS_SYNC, pending ? &framed : &plain);
        for (uint32_t t = 1; t <= 4; t++) {
            make_round(t);
            for (uint32_t r = 0; r < WORKERS && pending; r++)
                ok(push(r, t, &pushes[r], 0.1, true));
            const uint64_t before = total_bytes();
            for (uint32_t r = 0; r < WORKERS; r++) {
                const bool bad = r == t - 1 || (pending && t == 1);
                if (pending)
                    ok(give_verdict(r, t, bad ? 70 + t + r : UINT64_MAX));
                else
                    ok(bad ? refuse(r, t, 70 + t + r) : push(r, t, &pushes[r], 0.1, false));
            }
            if (pending)
                assert_true(t == 4 || total_bytes() < before); /* a push with a bad verdict is not kept */
            if (t == 4)
                update(0.1f, 4);
            check_pulled(GW_PS_READER, model.w, t);
            for (uint32_t r = 0; r < WORKERS && t <= 3; r++)
                pull_is_refused(r, 70 + t + (t - 1));
        }
        for (uint32_t r = 0; r < WORKERS; r++)
            check_pulled(r, model.w, 4);
        end();
    }
}

/* A worker's frames do not fit those of the others, so the round has no average. Pulls say so, the parameters stay, and
 * the next round goes on. */
TEST(a_round_without_an_average_changes_nothing)
{
    static const struct kind frames = {GW_PS_FRAME, "none", "sgd", 0};
    static struct pushed other;
    begin_key(GW_PS_SYNC, &frames);
    for (uint32_t t = 1; t <= 2; t++) {
        make_round(t);
        make_push(1, t + 1, &other); /* a step ahead */
        for (uint32_t r = 0; r < WORKERS; r++)
            ok(push(r, t, t == 1 && r == 1 ? &other : &pushes[r], 0.5, false));
        if (t == 2)
            update(0.5f, t);
        for (uint32_t r = 0; r < WORKERS && t == 1; r++)
            refused(pull(r), GW_ERR_FRAME_MISMATCH, "have no average");
        check_pulled(GW_PS_READER, model.w, t);
    }
    check_pulled(2, model.w, 2);
    end();
}

TEST(a_nan_is_refused)
{
    static const struct {
        struct kind kind;
        uint32_t infinity, nan;
    } cases[] = {{{GW_PS_FLOAT32, "", "sgd", 0}, 0x7F800000, 0xFFC00000},
                 {{GW_PS_FLOAT16, "", "sgd", 0}, 0x7C00, 0xFE00},
                 {{GW_PS_BFLOAT16, "", "sgd", 0}, 0x7F80, 0xFFC0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int what = 0; what < 6; what++) {
            const int at = (const int[]){0, 77, N - 1}[what / 2];
            const uint32_t bits = what % 2 ? cases[c].nan : cases[c].infinity;
            char words[40];
            begin_key(GW_PS_SYNC, &cases[c].kind);
            make_push(0, 1, &pushes[0]);
            if (c == 0)
                gw_put32(pushes[0].bytes + 4 * at, bits);
            else
                gw_put16(pushes[0].bytes + 2 * at, (uint16_t)bits);
            snprintf(words, sizeof words, "at element %d;", at);
            refused(push(0, 1, &pushes[0], 0, false), GW_ERR_NONFINITE, words);
            assert_int_equal(gw_ps_store_pushed(world.store, key, 0), 0);
            end();
        }
}

/* ---- one element ------------------------------------------------------------------------------------------------- */

/* The parameter is 100. Worker r pushes at the rate r + 1. */
static void begin_one(gw_ps_server_options options)
{
    options.n_workers = WORKERS;
    begin_store(options);
    key = key_with(GW_PS_EXCHANGE "w", GW_PS_FLOAT32, 1, "", "sgd");
    ok(put(&(float){100}, sizeof(float)));
}

static gw_status pushes_x(uint32_t rank, uint64_t nth, float x)
{
    return push_bytes(key, rank, nth, &x, sizeof x, rank + 1, false);
}

static gw_status pends_x(uint32_t rank, uint64_t nth, float x)
{
    return push_bytes(key, rank, nth, &x, sizeof x, rank + 1, true);
}

static gw_status agrees(uint32_t rank, uint64_t nth)
{
    return give_verdict(rank, nth, UINT64_MAX);
}

/* The rank pulls this. */
static void expect_w(uint32_t rank, float w, uint64_t round)
{
    struct gw_ps_pulled pulled;
    ok(pull_as(rank, GW_PS_PARAMETERS, &pulled));
    const float x = gw_get_float(pulled.value->bytes);
    CHECK(x == w && pulled.round == round, "rank %u has %g of round %llu, and not %g of %llu", rank, (double)x,
          (unsigned long long)pulled.round, (double)w, (unsigned long long)round);
    gw_ps_blob_give(pulled.value);
}

TEST(stale_pulls_wait_for_the_slowest)
{
    begin_one((gw_ps_server_options){.mode = GW_PS_STALE, .staleness = 1});
    for (uint64_t nth = 1; nth <= 2; nth++)
        ok(pushes_x(0, nth, 3)), ok(pushes_x(1, nth, 3));
    waits(pull(0));
    ok(pull(2)); /* it has not pushed, so it gets the parameters of now */
    world.n_woken = 0;
    ok(pushes_x(2, 1, 3));
    assert_true(world.n_woken > 0);
    expect_w(0, 91, 2);
    end();
}

/* A worker leaves. The round is then made of the others' pushes, at the rate of the lowest rank among them. */
TEST(rounds_of_fewer_move_parameters)
{
    begin_one((gw_ps_server_options){0});
    ok(pushes_x(0, 1, 3)), ok(pushes_x(1, 1, 6)), ok(pushes_x(2, 1, 9));
    expect_w(1, 94, 1);
    ok(pushes_x(1, 2, 6)), ok(pushes_x(2, 2, 9));
    expect_w(GW_PS_READER, 94, 1);
    gw_ps_store_leave(world.store, 0);
    expect_w(1, 79, 2);
    end();
}

/* In mode async a worker refuses. Only its own pulls fail. The pulls of the others leave it out. */
TEST(refusals_are_ones_own_without_rounds)
{
    struct gw_ps_pulled pulled;
    begin_one((gw_ps_server_options){.mode = GW_PS_ASYNC});
    ok(pushes_x(0, 1, 3)), ok(refuse(1, 1, 9));
    expect_w(0, 99, 1), pull_is_refused(1, 9);
    ok(pull_as(0, GW_PS_MAX, &pulled));
    assert_true(gw_get_float(pulled.value->bytes) == 3 && pulled.n_pushes == 1);
    gw_ps_blob_give(pulled.value);
    refused(pull_as(1, GW_PS_MAX, &pulled), GW_ERR_NONFINITE, "could not be used");
    ok(pushes_x(1, 2, 3));
    expect_w(1, 97, 2);
    end();
}

/* Without rounds verdicts come in any order. */
TEST(single_verdicts_in_any_order)
{
    begin_one((gw_ps_server_options){.mode = GW_PS_ASYNC});
    ok(pends_x(0, 1, 3)), ok(pends_x(1, 1, 3)), ok(pends_x(2, 1, 3));
    ok(agrees(2, 1)), expect_w(2, 97, 1), waits(pull(0));
    ok(give_verdict(1, 1, 5)), pull_is_refused(1, 5);
    ok(agrees(0, 1)), expect_w(0, 96, 1);
    end();
}

/* A worker leaves between its push and its verdict. The round is then made of the others' pushes, also if the worker
 * comes back too late. If it comes back while the round is open, it pushes again. */
TEST(who_goes_before_its_verdict_does_not_count)
{
    begin_one((gw_ps_server_options){0});
    for (uint64_t t = 1; t <= 3; t++) {
        ok(pends_x(0, t, 3)), ok(pends_x(1, t, 6)), ok(pends_x(2, t, 9));
        if (t == 2)
            gw_ps_store_leave(world.store, 0);
        ok(agrees(1, t));
        expect_w(GW_PS_READER, (const float[]){100, 94, 79}[t - 1], t - 1);
        ok(agrees(2, t));
        if (t == 1) { /* the first round has the pushes of all */
            ok(agrees(0, t));
            continue;
        }
        if (t == 3) {
            expect_w(GW_PS_READER, 79, 2);
            gw_ps_store_leave(world.store, 0);
        }
        expect_w(1, t == 2 ? 79 : 64, t);
        refused(agrees(0, t), GW_ERR_PEER, "rank 0 was away too long");
        ok(gw_ps_store_enter(world.store, 0, t + 1));
        refused(agrees(0, t + 1), GW_ERR_ORDER, "its last one is number");
    }
    end();

    begin_one((gw_ps_server_options){0});
    ok(pends_x(0, 1, 3)), ok(pends_x(1, 1, 6)), ok(pends_x(2, 1, 9)), ok(agrees(1, 1));
    gw_ps_store_leave(world.store, 0);
    ok(gw_ps_store_enter(world.store, 0, 1));
    refused(agrees(0, 1), GW_ERR_ORDER, "its last one is number 0");
    ok(agrees(2, 1));
    expect_w(GW_PS_READER, 100, 0);
    ok(pends_x(0, 1, 3)), ok(agrees(0, 1));
    expect_w(0, 94, 1);
    end();
}

/* With a backup worker a round does not wait for the last verdict. If that comes later, it changes nothing. */
TEST(a_late_verdict_changes_nothing)
{
    begin_one((gw_ps_server_options){.backup = 1});
    ok(pends_x(0, 1, 3)), ok(pends_x(1, 1, 6)), ok(pends_x(2, 1, 9)), ok(agrees(2, 1));
    expect_w(GW_PS_READER, 100, 0);
    ok(agrees(1, 1)), expect_w(1, 85, 1);
    ok(give_verdict(0, 1, 7)), expect_w(0, 85, 1);
    end();
}

TEST(verdicts_out_of_place)
{
    begin_store((gw_ps_server_options){.n_workers = WORKERS});
    key_with("of_no_exchange", GW_PS_FLOAT32, 1, "", "sgd");
    key_with(GW_PS_EXCHANGE "without_optimizer", GW_PS_FLOAT32, 1, "", "");
    refused(agrees(0, 1), GW_ERR_ORDER, "no key with an optimizer");
    end();

    begin_one((gw_ps_server_options){0});
    struct gw_ps_key *const w = key, *const plain = key_with("plain", GW_PS_FLOAT32, 1, "", "");
    key = plain, refused(pends_x(0, 1, 1), GW_ERR_ARGUMENT, "must have an optimizer"), key = w;
    refused(agrees(0, 1), GW_ERR_ORDER, "its last one is number 0"); /* nothing was pushed */
    ok(pends_x(0, 1, 1)), ok(pends_x(0, 1, 1));                      /* sent again, as if the answer was lost */
    assert_int_equal(gw_ps_store_pushed(world.store, key, 0), 1);
    refused(agrees(0, 2), GW_ERR_ORDER, "its last one is number 1");
    refused(agrees(0, 0), GW_ERR_ORDER, "number 0");
    refused(agrees(GW_PS_READER, 1), GW_ERR_ARGUMENT, "reader");
    refused(agrees(1, 1), GW_ERR_ORDER, "its last one is number 0");
    waits(pends_x(0, 2, 1));                      /* its round is not whole */
    ok(agrees(0, 1)), ok(give_verdict(0, 1, 3));  /* the first verdict stands */
    ok(pushes_x(1, 1, 1)), ok(pushes_x(2, 1, 1)); /* without a verdict */
    expect_w(0, 99, 1);
    end();
}

/* ---- first parameters, and who holds them -------------------------------------------------------------------- */

TEST(nothing_goes_on_before_there_are_parameters)
{
    const float first = 100, other = 7;
    begin_store((gw_ps_server_options){.n_workers = WORKERS});
    key = key_with(GW_PS_EXCHANGE "w", GW_PS_FLOAT32, 1, "", "sgd");
    assert_true(gw_ps_is_unset(key));
    waits(pull(GW_PS_READER)), waits(pull(0));
    waits(pushes_x(0, 1, 1)), waits(pends_x(0, 1, 1)), waits(refuse(0, 1, 3));
    refused(put(&first, 3), GW_ERR_ARGUMENT, "have 3 bytes; float32 of shape [1] takes 4");
    world.n_woken = 0;
    ok(put(&first, sizeof first));
    assert_true(world.n_woken == 1 && !gw_ps_is_unset(key));
    ok(put(&other, sizeof other)); /* the first stand */
    expect_w(0, 100, 0);
    ok(pushes_x(0, 1, 1));
    end();
}

/* Parameters that are on their way to a client must not change. If nobody else holds them, the store moves them in
 * place. */
TEST(pulled_parameters_stay_as_they_are)
{
    struct gw_ps_pulled held, pulled;
    begin_one((gw_ps_server_options){.mode = GW_PS_ASYNC});
    ok(pull_as(0, GW_PS_PARAMETERS, &held));
    ok(pushes_x(0, 1, 3));
    assert_true(gw_get_float(held.value->bytes) == 100);
    ok(pull_as(0, GW_PS_PARAMETERS, &pulled));
    assert_true(pulled.value != held.value && gw_get_float(pulled.value->bytes) == 99);
    gw_ps_blob_give(held.value);
    const void *place = pulled.value->bytes;
    gw_ps_blob_give(pulled.value);
    ok(pushes_x(0, 2, 3)), ok(pull_as(0, GW_PS_PARAMETERS, &pulled));
    assert_ptr_equal(pulled.value->bytes, place);
    gw_ps_blob_give(pulled.value);
    end();
}

TEST(wrong_keys_are_refused)
{
    static const struct {
        const char *name;
        gw_ps_type type;
        const char *optimizer;
        gw_status status;
        const char *words;
    } cases[] = {
        {"i", GW_PS_INT32, "sgd", GW_ERR_ARGUMENT, "an optimizer is for float32"},
        {"i", GW_PS_UINT8, "sgd", GW_ERR_ARGUMENT, "an optimizer is for float32"},
        {"i", GW_PS_FLOAT32, "sgdd", GW_ERR_SPEC, "the key \"i\": the optimizer \"sgdd\" is unknown"},
        {"i", GW_PS_FLOAT32, "momentum:momentum=1", GW_ERR_SPEC, "below 1"},
        {"i", GW_PS_FLOAT32, "svrg", GW_ERR_SPEC, "only workers have"},
        {"w", GW_PS_FLOAT32, "sgd:lr=0.1", GW_OK, ""},
        {"w", GW_PS_FLOAT32, "sgd:weight-decay=0,lr=0.1000", GW_OK, ""},
        {"w", GW_PS_FLOAT32, "", GW_ERR_ARGUMENT,
         "is there with the optimizer \"sgd:lr=0.100000001,weight-decay=0\"; it cannot be initialised with \"none\""},
        {"w", GW_PS_FLOAT32, "adam", GW_ERR_ARGUMENT, "cannot be initialised with \"adam:"},
        {"plain", GW_PS_FLOAT32, "", GW_OK, ""},
        {"plain", GW_PS_FLOAT32, "sgd", GW_ERR_ARGUMENT, "is there with the optimizer \"none\""},
    };
    const gw_ps_shape one = {.n_dims = 1, .dims = {1}};
    begin_store((gw_ps_server_options){.n_workers = WORKERS});
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        refused(gw_ps_store_init(world.store, cases[c].name, cases[c].type, &one, 1, "", cases[c].optimizer),
                cases[c].status, cases[c].words);
    assert_int_equal(world.store->names.n, 2);
    ok(gw_ps_store_find(world.store, "plain", &key));
    refused(pull(0), GW_ERR_ARGUMENT, "\"plain\" has no optimizer");
    refused(put(&(float){1}, sizeof(float)), GW_ERR_ARGUMENT, "\"plain\" has no optimizer");
    end();
}

/* ---- limits ------------------------------------------------------------------------------------------------- */

TEST(parameters_count)
{
    const gw_ps_shape row = {.n_dims = 1, .dims = {N}};
    const float w[N] = {0};
    begin_store((gw_ps_server_options){.n_workers = WORKERS, .max_bytes = 11000});
    /* parameters and one moment take 8,000 */
    refused(gw_ps_store_init(world.store, "w", GW_PS_FLOAT32, &row, 1, "", "adam"), GW_ERR_CAPACITY, "of 12000 bytes");
    uint64_t before = total_bytes();
    key = key_with("w", GW_PS_FLOAT32, N, "", "momentum");
    assert_true(total_bytes() >= before + 4 * N && key->bytes >= 4 * N);
    refused(gw_ps_store_init(world.store, "v", GW_PS_FLOAT32, &row, 1, "", "momentum"), GW_ERR_CAPACITY,
            "(--max-bytes)");
    before = total_bytes();
    ok(put(w, sizeof w));
    assert_int_equal(total_bytes(), before + 4 * N);
    assert_true(key->bytes >= 8 * N);
    end();
    /* there is room for the parameters, but not for a second copy */
    begin_store((gw_ps_server_options){.n_workers = WORKERS, .max_bytes = before + 4 * N + 500});
    key = key_with("w", GW_PS_FLOAT32, N, "", "momentum");
    struct gw_ps_blob *large = blob_of(w, sizeof w);
    refused(put(w, sizeof w), GW_ERR_CAPACITY, "the parameters of \"w\" of 4000 bytes");
    gw_ps_blob_give(large);
    ok(put(w, sizeof w));
    end();
}

/* Makes two rounds, in which one allocation fails. The parameters go to `out`. Returns the number of allocations. */
static int life_with_a_failure(int fail_at, gw_ps_mode mode, float *out)
{
    static const struct kind ternary = {GW_PS_FRAME, "ternary", "adam:lr=0.1", 0.1f};
    const gw_ps_shape row = {.n_dims = 1, .dims = {N}};
    struct gw_ps_pulled held, pulled;
    begin_store((gw_ps_server_options){.n_workers = WORKERS, .mode = mode});
    memset(&model, 0, sizeof model);
    model.kind = &ternary;
    make_round(1);
    let_fail(fail_at);
    STEP(gw_ps_store_init(world.store, GW_PS_EXCHANGE "w", GW_PS_FRAME, &row, 1, "ternary", "adam:lr=0.1"));
    STEP(gw_ps_store_find(world.store, GW_PS_EXCHANGE "w", &key));
    STEP(put(model.w, sizeof model.w));
    for (uint64_t t = 1; t <= 2; t++) {
        STEP(pull_as(GW_PS_READER, GW_PS_PARAMETERS, &held)); /* so that the next update must copy */
        for (uint32_t r = 0; r < WORKERS; r++) {
            STEP(push(r, t, &pushes[r], 0, r == t - 1));
            if (r == t - 1)
                STEP(agrees(r, t));
        }
        gw_ps_blob_give(held.value);
    }
    STEP(pull_as(0, GW_PS_PARAMETERS, &pulled));
    memcpy(out, pulled.value->bytes, 4 * N);
    gw_ps_blob_give(pulled.value);
    const int calls = world.shortage.calls;
    end();
    /* if there was no memory to finish a round, the next pull finishes it */
    CHECK(calls >= fail_at, "allocation %d of %d did not fail", fail_at, calls);
    return calls;
}

TEST(every_allocation_may_fail)
{
    static const gw_ps_mode modes[] = {GW_PS_SYNC, GW_PS_ASYNC};
    for (int m = 0; m < 2; m++) {
        static float expected[N], got[N];
        const int n = life_with_a_failure(0, modes[m], expected);
        for (int fail_at = 1; fail_at <= n; fail_at++) {
            life_with_a_failure(fail_at, modes[m], got);
            CHECK(memcmp(got, expected, sizeof got) == 0, "mode %d, allocation %d: other parameters", m, fail_at);
        }
    }
}

RUN_TESTS("pserver_parameters", NULL, NULL)
