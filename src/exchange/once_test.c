/* Tests what is done in one call: a frame of an array, and the average of an array over all members of a link. */
#include "examples.h"
#include "checks.h"

#include <gradwire/gradwire.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5000, MEMBERS = 3 };

static void values_of(uint32_t rank, float *out)
{
    for (uint32_t i = 0; i < N; i++)
        out[i] = sinf((float)(i + 1) * 0.01f * (float)(rank + 1));
}

/* The same bytes as by the calls for many steps. */
TEST(a_frame_is_the_encoders)
{
    static float g[N], back[N];
    const gw_draw draw = {.seed = 3, .rank = 2, .step = 9};
    values_of(1, g);
    for (size_t s = 0; example(s); s++) {
        gw_codec *codec;
        gw_encoder *encoder;
        const gw_tensor tensor = {.n_elems = N};
        assert_int_equal(gw_codec_parse(NULL, example(s), &codec), GW_OK);
        assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_OK);
        const size_t capacity = gw_encode_bound(NULL, example(s), N);
        size_t n_one, n_other;
        assert_int_equal(capacity, gw_encoder_bound(encoder, N));
        uint8_t *one = malloc(capacity), *other = malloc(capacity);
        assert_int_equal(gw_encode_once(NULL, example(s), g, N, &draw, one, capacity, &n_one), GW_OK);
        assert_int_equal(gw_encoder_measure_encode(encoder, g, NULL, &draw, other, capacity, &n_other, NULL), GW_OK);
        assert_int_equal(n_one, n_other);
        assert_memory_equal(one, other, n_one);
        assert_int_equal(gw_decode(NULL, one, n_one, back, N), GW_OK);
        free(one);
        free(other);
        gw_encoder_destroy(encoder);
        gw_codec_destroy(codec);
    }
}

TEST(a_frame_is_refused)
{
    uint8_t frame[64];
    size_t n = 77;
    float g[4] = {1, 2, 3, NAN};
    assert_int_equal(gw_encode_bound(NULL, "ternari", 4), 0);
    assert_int_equal(gw_encode_bound(NULL, NULL, 4), 0);
    assert_int_equal(gw_encode_bound(NULL, "none", UINT64_MAX), 0);
    assert_int_equal(gw_encode_once(NULL, "ternari", g, 3, NULL, frame, sizeof frame, &n), GW_ERR_SPEC);
    assert_int_equal(gw_encode_once(NULL, "none", g, 3, NULL, frame, 10, &n), GW_ERR_CAPACITY);
    assert_int_equal(gw_encode_once(NULL, "ternary", g, 4, NULL, frame, 0, &n), GW_ERR_CAPACITY);
    uint8_t large[4096];
    assert_int_equal(gw_encode_once(NULL, "ternary", g, 4, NULL, large, sizeof large, &n), GW_ERR_NONFINITE);
    assert_int_equal(gw_encode_once(NULL, "ternary", NULL, 4, NULL, large, sizeof large, &n), GW_ERR_ARGUMENT);
    assert_int_equal(gw_encode_once(NULL, "none", NULL, 0, NULL, large, sizeof large, &n), GW_OK);
}

struct member {
    pthread_t thread;
    gw_link link;
    const char *spec;
    float values[N];
    uint64_t n;
    gw_step_result result;
    gw_status status;
    char why[300];
};

static void *average(void *argument)
{
    struct member *m = argument;
    m->status = gw_average_once(NULL, m->spec, &m->link, 5, m->values, m->n, &m->result);
    snprintf(m->why, sizeof m->why, "%s", m->status < 0 ? gw_last_error() : "");
    return NULL;
}

static void run(struct member *members)
{
    gw_link links[MEMBERS];
    assert_int_equal(gw_link_local_create(NULL, MEMBERS, links), GW_OK);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        members[r].link = links[r];
        assert_int_equal(pthread_create(&members[r].thread, NULL, average, &members[r]), 0);
    }
    for (uint32_t r = 0; r < MEMBERS; r++)
        pthread_join(members[r].thread, NULL);
    for (uint32_t r = 0; r < MEMBERS; r++)
        gw_link_destroy(&links[r]);
}

static void prepare(struct member *members, const char *spec)
{
    for (uint32_t r = 0; r < MEMBERS; r++) {
        members[r].spec = spec;
        members[r].n = N;
        values_of(r, members[r].values);
    }
}

TEST(an_average_is_everybodys)
{
    static struct member members[MEMBERS];
    prepare(members, "none");
    run(members);
    static float own[MEMBERS][N];
    for (uint32_t r = 0; r < MEMBERS; r++)
        values_of(r, own[r]);
    for (uint32_t i = 0; i < N; i++)
        assert_true(fabsf(members[0].values[i] - (own[0][i] + own[1][i] + own[2][i]) / MEMBERS) < 1e-6f);
    static const char *const specs[] = {"ternary", "gspar:density=0.1", "uniform:density=0.1"};
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        uint64_t up = 0, dense = 0;
        prepare(members, specs[s]);
        run(members);
        for (uint32_t r = 0; r < MEMBERS; r++) {
            assert_int_equal(members[r].status, GW_OK);
            assert_memory_equal(members[r].values, members[0].values, sizeof members[0].values);
            up += members[r].result.bytes_up, dense += members[r].result.dense_bytes;
        }
        assert_true(0 < up && 2 * up < dense);
    }
}

TEST(an_average_is_refused)
{
    static struct member members[MEMBERS];
    prepare(members, "ternary");
    members[2].values[17] = INFINITY;
    run(members);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        assert_int_equal(members[r].status, GW_ERR_NONFINITE);
        assert_string_equal(
            members[r].why,
            "the gradient of 'values' on rank 2 holds a NaN or an infinity, so this step has no averages");
    }
    prepare(members, "topk");
    run(members);
    for (uint32_t r = 0; r < MEMBERS; r++)
        assert_int_equal(members[r].status, GW_ERR_SPEC);
    prepare(members, "ternary");
    members[1].n = N - 1;
    run(members);
    for (uint32_t r = 0; r < MEMBERS; r++)
        assert_true(members[r].status == GW_ERR_ARGUMENT || members[r].status == GW_ERR_PEER);
    prepare(members, "ternary");
    members[1].spec = "bogus";
    run(members);
    assert_int_equal(members[1].status, GW_ERR_SPEC);
    assert_true(members[0].status == GW_ERR_PEER && members[2].status == GW_ERR_PEER);
    gw_link none = {0};
    assert_int_equal(gw_average_once(NULL, "none", &none, 0, members[0].values, 1, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_average_once(NULL, "none", NULL, 0, members[0].values, 1, NULL), GW_ERR_ARGUMENT);
}

RUN_TESTS("once", NULL, NULL)
