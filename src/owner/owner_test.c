/* Tests who owns what, and an owner's round. */
#include "base/memory.h"
#include "codec/codec.h"
#include "owner/round.h"
#include "checks.h"
#include "shortage.h"

#include <stdlib.h>
#include <string.h>

/* ---- slices ------------------------------------------------------------------------------------------ */

#define MOST 64u

struct network {
    uint32_t n_tensors;
    uint64_t n_elems[MOST], align[MOST];
};

static const struct network lenet = {8,
                                     {500, 20, 25000, 50, 400000, 500, 5000, 10},
                                     {1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024}};

/* Makes a plan, and checks what must hold of every plan. `loads` gets the owners' loads. */
static void plan(const struct network *network, uint32_t n_owners, uint64_t most, uint64_t *loads)
{
    struct gw_slice *slices;
    size_t n, s = 0;
    assert_int_equal(gw_slices_plan(NULL, network->n_elems, network->align, network->n_tensors, n_owners, most, &slices,
                                    &n),
                     GW_OK);
    memset(loads, 0, n_owners * sizeof *loads);
    for (uint32_t t = 0; t < network->n_tensors; t++) {
        uint64_t covered = 0;
        for (; s < n && slices[s].tensor == t; s++) {
            assert_true(slices[s].owner < n_owners);
            /* Owners come in order. All slices of an owner but its last have the full length. */
            uint64_t longest = gw_slice_most(most, network->align[t]);
            assert_true(covered == 0 || slices[s].owner > slices[s - 1].owner ||
                        (slices[s].owner == slices[s - 1].owner && slices[s - 1].count == longest));
            assert_true(slices[s].count <= longest);
            assert_int_equal(slices[s].begin, covered);
            assert_int_equal(slices[s].begin % network->align[t], 0);
            assert_true(slices[s].count > 0);
            covered += slices[s].count;
            loads[slices[s].owner] += slices[s].count;
        }
        assert_int_equal(covered, network->n_elems[t]);
    }
    assert_int_equal(s, n);
    gw_free(NULL, slices);
}

static uint64_t spread(const uint64_t *loads, uint32_t n_owners)
{
    uint64_t least = loads[0], most = loads[0];
    for (uint32_t r = 1; r < n_owners; r++) {
        least = loads[r] < least ? loads[r] : least;
        most = loads[r] > most ? loads[r] : most;
    }
    return most - least;
}

/* If a long tensor comes last, the owners' loads differ by two blocks at most, whatever the short tensors did. One
 * block comes from rounding. One is cut short by the tensor's end. */
TEST(loads_are_level)
{
    uint64_t loads[MOST];
    for (uint32_t n = 1; n <= 40; n++) {
        plan(&lenet, n, n % 2 ? GW_SLICE_MAX : 4096, loads);
        assert_true(spread(loads, n) < 2 * 1024);
    }
    /* There are too many owners for a slice of fc1 each, so nobody has more than two of the shortest slices. */
    for (uint32_t n = 49; n <= MOST; n++) {
        plan(&lenet, n, GW_SLICE_MAX, loads);
        assert_true(spread(loads, n) <= 2 * (GW_SLICE_MIN + 1024));
    }
}

TEST(short_tensors_are_whole_and_dealt_in_order)
{
    const uint64_t n_elems[] = {100, 200, 50, 0, 1, GW_SLICE_MIN}, align[] = {1024, 1024, 1024, 1024, 1024, 1024};
    const uint32_t owners[] = {0, 1, 2, 2, 2}; /* the owner with the least goes next, the lowest if several are
                                                * equal: 100 | 200 | 50, then 51, ... */
    struct gw_slice *slices;
    size_t n;
    assert_int_equal(gw_slices_plan(NULL, n_elems, align, 6, 3, GW_SLICE_MAX, &slices, &n), GW_OK);
    assert_int_equal(n, 5);
    for (size_t s = 0; s < n; s++) {
        assert_int_equal(slices[s].owner, owners[s]);
        assert_int_equal(slices[s].count, n_elems[slices[s].tensor]);
    }
    gw_free(NULL, slices);
}

TEST(the_longest_slice_is_a_multiple_of_the_alignment)
{
    assert_int_equal(gw_slice_most(GW_SLICE_MAX, 1024), 1 << 20);
    assert_int_equal(gw_slice_most(GW_SLICE_MAX, 3072), 341 * 3072);
    assert_int_equal(gw_slice_most(GW_SLICE_MAX, 3 << 20), 3 << 20);
    /* Two owners have halves of 5 blocks and a rest. That is 3 blocks each, and two blocks make a slice. */
    const uint64_t n_elems[] = {5 * 8192 + 1}, align[] = {8192};
    const struct gw_slice want[] = {{0, 0, 0, 16384, false},
                                    {0, 0, 16384, 8192, false},
                                    {0, 1, 24576, 16384, false},
                                    {0, 1, 40960, 1, false}};
    struct gw_slice *slices;
    size_t n;
    assert_int_equal(gw_slices_plan(NULL, n_elems, align, 1, 2, 20000, &slices, &n), GW_OK);
    assert_int_equal(n, 4);
    for (size_t s = 0; s < n; s++)
        assert_true(slices[s].owner == want[s].owner && slices[s].begin == want[s].begin &&
                    slices[s].count == want[s].count);
    gw_free(NULL, slices);
}

TEST(medium_tensors_go_to_the_least_loaded)
{
    const uint64_t n_elems[] = {8000, 2 * GW_SLICE_MIN + 1}, align[] = {1024, 1024};
    struct gw_slice *slices;
    size_t n;
    assert_int_equal(gw_slices_plan(NULL, n_elems, align, 2, 4, GW_SLICE_MAX, &slices, &n), GW_OK);
    assert_int_equal(n, 3);
    assert_int_equal(slices[0].owner, 0);
    assert_int_equal(slices[1].owner, 1);
    assert_int_equal(slices[2].owner, 2);
    assert_true(slices[1].count >= GW_SLICE_MIN && slices[2].count >= GW_SLICE_MIN - 1024);
    gw_free(NULL, slices);
}

/* With any sizes and any alignments a plan keeps the rules of all plans. */
TEST(any_network)
{
    uint64_t x = 88172645463325252u; /* xorshift64, with its usual start */
    for (int turn = 0; turn < 400; turn++) {
        struct network network = {.n_tensors = 1 + turn % 20};
        uint64_t loads[MOST];
        for (uint32_t t = 0; t < network.n_tensors; t++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            network.n_elems[t] = x % (1u << (x >> 40) % 22);
            network.align[t] = 1024 * (1 + (x >> 50) % 3);
        }
        if (turn == 7)
            network.n_elems[0] = GW_MAX_ELEMENTS;
        plan(&network, 1 + (uint32_t)(x >> 32) % MOST, turn == 7 ? GW_SLICE_MAX : 1 + (x >> 9) % GW_SLICE_MAX, loads);
    }
}

/* Some owners have the same load. The block that is left over goes to the one with the lowest rank, whatever they had
 * before. */
TEST(a_tie_goes_to_the_lower_rank)
{
    enum { HALF = GW_SLICE_MIN };
    const uint64_t n_elems[] = {1, 2 * HALF}, align[] = {1, 1};
    const struct gw_slice want[] = {{0, 0, 0, 1, false}, {1, 0, 0, HALF, false}, {1, 1, HALF, HALF, false}};
    struct gw_slice *slices;
    size_t n;
    assert_int_equal(gw_slices_plan(NULL, n_elems, align, 2, 2, GW_SLICE_MAX, &slices, &n), GW_OK);
    assert_int_equal(n, 3);
    for (size_t s = 0; s < n; s++)
        assert_true(slices[s].tensor == want[s].tensor && slices[s].owner == want[s].owner &&
                    slices[s].begin == want[s].begin && slices[s].count == want[s].count);
    gw_free(NULL, slices);
}

/* ---- a round ----------------------------------------------------------------------------------------- */

#define WORKERS 3u
#define ELEMS 5000u

struct pushes {
    gw_codec *codec;
    struct gw_slice slices[2];
    char *bytes[WORKERS]; /* two frames */
    size_t n_bytes[WORKERS];
    float sum[ELEMS];
};

static int pushes_setup(void **state)
{
    struct pushes *p = calloc(1, sizeof *p);
    gw_tensor tensor = {.id = 4, .n_elems = ELEMS};
    p->slices[0] = (struct gw_slice){.tensor = 4, .begin = 0, .count = 2048};
    p->slices[1] = (struct gw_slice){.tensor = 4, .begin = 2048, .count = ELEMS - 2048};
    assert_int_equal(gw_codec_parse(NULL, "none", &p->codec), GW_OK);
    for (uint32_t r = 0; r < WORKERS; r++) {
        float g[ELEMS];
        gw_encoder *encoder;
        gw_draw draw = {.rank = r, .step = 6};
        for (uint32_t i = 0; i < ELEMS; i++)
            p->sum[i] += g[i] = (float)(i % 100 + r);
        assert_int_equal(gw_encoder_create(NULL, p->codec, &tensor, &encoder), GW_OK);
        size_t capacity = gw_encoder_bound(encoder, 2048) + gw_encoder_bound(encoder, ELEMS - 2048);
        p->bytes[r] = malloc(capacity);
        assert_int_equal(gw_encoder_measure(encoder, g, NULL, 0, NULL), GW_OK);
        for (int s = 0; s < 2; s++) {
            size_t frame_bytes;
            assert_int_equal(gw_encoder_encode(encoder, g, NULL, &draw, p->slices[s].begin, p->slices[s].count,
                                               p->bytes[r] + p->n_bytes[r], capacity - p->n_bytes[r], &frame_bytes),
                             GW_OK);
            p->n_bytes[r] += frame_bytes;
        }
        gw_encoder_destroy(encoder);
    }
    *state = p;
    return 0;
}

static int pushes_teardown(void **state)
{
    struct pushes *p = *state;
    for (uint32_t r = 0; r < WORKERS; r++)
        free(p->bytes[r]);
    gw_codec_destroy(p->codec);
    free(p);
    return 0;
}

TEST(a_round_averages_in_any_order)
{
    struct pushes *p = *state;
    struct gw_round *round;
    assert_int_equal(gw_round_create(NULL, p->codec, p->slices, 2, WORKERS, &round), GW_OK);
    for (uint32_t first = 0; first < WORKERS; first++) { /* one round after the other */
        char averages[64 * 1024];
        float out[ELEMS];
        size_t n_bytes, at = 0;
        for (uint32_t i = 0; i < WORKERS; i++) {
            uint32_t r = (first + i) % WORKERS;
            assert_int_equal(gw_round_put(round, r, &r, 1, 6, p->bytes[r], p->n_bytes[r]), GW_OK);
        }
        CHECK_IN_RANGE(gw_round_bound(round, false), 4 * ELEMS, sizeof averages);
        assert_int_equal(gw_round_reduce(round, false, averages, gw_round_bound(round, false), &n_bytes), GW_OK);
        for (int s = 0; s < 2; s++) {
            gw_frame_info info;
            assert_int_equal(gw_slice_check(&p->slices[s], 6, 0, WORKERS, averages + at, n_bytes - at, &info), GW_OK);
            assert_int_equal(gw_decode(NULL, averages + at, info.frame_bytes, out + p->slices[s].begin, info.n_elems),
                             GW_OK);
            at += info.frame_bytes;
        }
        assert_int_equal(at, n_bytes);
        for (uint32_t i = 0; i < ELEMS; i++)
            assert_float_equal(out[i], p->sum[i] / WORKERS, 1e-5f * p->sum[i]);
        gw_round_reset(round);
    }
    gw_round_destroy(round);
    gw_round_destroy(NULL);
}

/* The owner's own part has no frames. Its values are added to those of the others, and the average takes their
 * place. */
TEST(an_owner_adds_its_own)
{
    struct pushes *p = *state;
    struct gw_round *round;
    float values[ELEMS];
    gw_encoder *encoder;
    const gw_tensor tensor = {.id = 4, .n_elems = ELEMS};
    assert_int_equal(gw_encoder_create(NULL, p->codec, &tensor, &encoder), GW_OK);
    const struct gw_wire_codec *wire = gw_encoder_wire(encoder);
    const struct gw_own own[] = {{wire, 1, values}, {wire, 1, values + 2048}};
    assert_int_equal(gw_round_create(NULL, p->codec, p->slices, 2, WORKERS, &round), GW_OK);
    for (int turn = 0; turn < 2; turn++) {
        char averages[64 * 1024];
        size_t n_bytes;
        for (uint32_t i = 0; i < ELEMS; i++)
            values[i] = (float)(i % 100 + 1); /* those of rank 1 */
        for (uint32_t r = 0; r < WORKERS; r++) {
            if (r == 1)
                gw_round_put_own(round, own);
            else
                assert_int_equal(gw_round_put(round, r, &r, 1, 6, p->bytes[r], p->n_bytes[r]), GW_OK);
        }
        assert_int_equal(gw_round_reduce(round, false, averages, sizeof averages, &n_bytes), GW_OK);
        for (uint32_t i = 0; i < ELEMS; i++)
            assert_float_equal(values[i], p->sum[i] / WORKERS, 1e-5f * p->sum[i]);
        gw_round_reset(round);
    }
    gw_round_destroy(round);
    gw_encoder_destroy(encoder);
}

/* A round has two of the workers, and the next round has two others. It must forget the frames of the first two. */
TEST(a_round_forgets_the_one_before)
{
    struct pushes *p = *state;
    struct gw_round *round;
    assert_int_equal(gw_round_create(NULL, p->codec, p->slices, 2, WORKERS, &round), GW_OK);
    for (uint32_t first = 0; first + 1 < WORKERS; first++) {
        char averages[64 * 1024];
        size_t n_bytes;
        gw_frame_info info;
        for (uint32_t r = first; r < first + 2; r++)
            assert_int_equal(gw_round_put(round, r, &r, 1, 6, p->bytes[r], p->n_bytes[r]), GW_OK);
        assert_int_equal(gw_round_reduce(round, false, averages, sizeof averages, &n_bytes), GW_OK);
        assert_int_equal(gw_slice_check(&p->slices[0], 6, 0, 2, averages, n_bytes, &info), GW_OK);
        gw_round_reset(round);
    }
    gw_round_destroy(round);
}

static void a_round_refuses(void **state, uint32_t rank, uint32_t step, const void *bytes, size_t n_bytes,
                            gw_status want, const char *words)
{
    struct pushes *p = *state;
    struct gw_round *round;
    assert_int_equal(gw_round_create(NULL, p->codec, p->slices, 2, WORKERS, &round), GW_OK);
    assert_int_equal(gw_round_put(round, rank, &rank, 1, step, bytes, n_bytes), want);
    assert_non_null(strstr(gw_last_error(), "rank"));
    assert_non_null(strstr(gw_last_error(), words));
    gw_round_destroy(round);
}

TEST(a_round_checks_every_frame)
{
    struct pushes *p = *state;
    char *swapped = malloc(p->n_bytes[0]), *longer = calloc(1, p->n_bytes[0] + 1), *altered = malloc(p->n_bytes[0]);
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(p->bytes[0], p->n_bytes[0], &info), GW_OK);
    size_t first = info.frame_bytes, second = p->n_bytes[0] - first;
    memcpy(swapped, p->bytes[0] + first, second);
    memcpy(swapped + second, p->bytes[0], first);
    memcpy(longer, p->bytes[0], p->n_bytes[0]);
    memcpy(altered, p->bytes[0], p->n_bytes[0]);
    altered[8] ^= 1; /* changes the rank in the first frame */
    a_round_refuses(state, 1, 6, p->bytes[0], p->n_bytes[0], GW_ERR_FRAME_MISMATCH, "encoded by rank 0");
    a_round_refuses(state, 0, 7, p->bytes[0], p->n_bytes[0], GW_ERR_FRAME_MISMATCH, "step 6");
    a_round_refuses(state, 0, 6, swapped, p->n_bytes[0], GW_ERR_FRAME_MISMATCH, "elements from 2048");
    a_round_refuses(state, 0, 6, longer, p->n_bytes[0] + 1, GW_ERR_FRAME_FIELD, "1 bytes after");
    a_round_refuses(state, 0, 6, p->bytes[0], first, GW_ERR_FRAME_CUT, "tensor 4");
    a_round_refuses(state, 0, 6, altered, p->n_bytes[0], GW_ERR_FRAME_CHECKSUM, "tensor 4");
    altered[8] ^= 1;
    altered[first - 1] ^= 1;
    assert_int_equal(gw_frame_parse(altered, first, &info), GW_ERR_FRAME_CHECKSUM);
    struct gw_slice other = p->slices[0];
    assert_int_equal(gw_slice_check(&p->slices[0], 6, 0, WORKERS, p->bytes[0], first, &info), GW_ERR_FRAME_MISMATCH);
    assert_non_null(strstr(gw_last_error(), "not an average"));
    other.tensor = 5;
    assert_int_equal(gw_slice_check(&other, 6, 0, 0, p->bytes[0], first, &info), GW_ERR_FRAME_MISMATCH);
    assert_non_null(strstr(gw_last_error(), "not tensor 5"));
    free(altered);
    free(longer);
    free(swapped);
}

/* A payload is read only when the round is averaged or joined. Even then the error names the worker that sent it, or
 * its relay. */
TEST(an_altered_payload_is_found_in_time)
{
    struct pushes *p = *state;
    static const uint32_t two[] = {1, 2};
    char averages[64 * 1024], both[64 * 1024];
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(p->bytes[1], p->n_bytes[1], &info), GW_OK);
    size_t first = info.frame_bytes, n_bytes;
    for (int turn = 0; turn < 6; turn++) {
        bool join = turn % 2, relayed = turn / 2 == 1;
        size_t slice = turn / 2 == 2;
        struct gw_round *round;
        assert_int_equal(gw_round_create(NULL, p->codec, p->slices, 2, WORKERS, &round), GW_OK);
        p->bytes[1][slice ? p->n_bytes[1] - 1 : first - 1] ^= 1;
        for (uint32_t r = 0; r < WORKERS; r++)
            if (!relayed || (r != 1 && r != 2))
                assert_int_equal(gw_round_put(round, r, &r, 1, 6, p->bytes[r], p->n_bytes[r]), GW_OK);
        if (relayed) { /* in the order of slices, and then of ranks */
            memcpy(both, p->bytes[1], first);
            memcpy(both + first, p->bytes[2], first);
            memcpy(both + 2 * first, p->bytes[1] + first, p->n_bytes[1] - first);
            memcpy(both + first + p->n_bytes[1], p->bytes[2] + first, p->n_bytes[2] - first);
            assert_int_equal(gw_round_put(round, 2, two, 2, 6, both, p->n_bytes[1] + p->n_bytes[2]), GW_OK);
        }
        assert_int_equal(gw_round_reduce(round, join, averages, sizeof averages, &n_bytes), GW_ERR_FRAME_CHECKSUM);
        assert_non_null(strstr(gw_last_error(), relayed ? "rank 2's push of tensor 4" : "rank 1's push of tensor 4"));
        p->bytes[1][slice ? p->n_bytes[1] - 1 : first - 1] ^= 1;
        if (!relayed)
            assert_int_equal(gw_round_reduce(round, join, averages, sizeof averages, &n_bytes), GW_OK);
        gw_round_destroy(round);
    }
}

/* Slices that are not summed are joined: their frames lie slice by slice, in the order of the ranks. */
TEST(a_join_keeps_the_frames)
{
    struct pushes *p = *state;
    char expected[64 * 1024], joined[64 * 1024];
    size_t n_expected = 0, n_bytes;
    gw_frame_info info;
    struct gw_round *round;
    assert_int_equal(gw_round_create(NULL, p->codec, p->slices, 2, WORKERS, &round), GW_OK);
    for (uint32_t slice = 0; slice < 2; slice++)
        for (uint32_t r = 0; r < WORKERS; r++) {
            assert_int_equal(gw_frame_parse(p->bytes[r], p->n_bytes[r], &info), GW_OK);
            const size_t begin = slice ? info.frame_bytes : 0;
            const size_t n = slice ? p->n_bytes[r] - begin : info.frame_bytes;
            assert_true(!p->slices[slice].summed && n_expected + n <= sizeof expected);
            memcpy(expected + n_expected, p->bytes[r] + begin, n);
            n_expected += n;
        }
    for (uint32_t r = 0; r < WORKERS; r++)
        assert_int_equal(gw_round_put(round, r, &r, 1, 6, p->bytes[r], p->n_bytes[r]), GW_OK);
    assert_int_equal(gw_round_bound(round, true), n_expected);
    assert_true(gw_round_bound(round, false) < n_expected / 2); /* averages are shorter than all frames */
    assert_int_equal(gw_round_reduce(round, true, joined, n_expected, &n_bytes), GW_OK);
    assert_int_equal(n_bytes, n_expected);
    assert_memory_equal(joined, expected, n_expected);
    gw_round_destroy(round);
}

TEST(an_average_is_of_all_workers)
{
    struct pushes *p = *state;
    struct gw_round *round;
    char averages[64 * 1024];
    size_t n_bytes;
    gw_frame_info info;
    assert_int_equal(gw_round_create(NULL, p->codec, p->slices, 2, 2, &round), GW_OK);
    for (uint32_t r = 0; r < 2; r++)
        assert_int_equal(gw_round_put(round, r, &r, 1, 6, p->bytes[r], p->n_bytes[r]), GW_OK);
    assert_int_equal(gw_round_reduce(round, false, averages, sizeof averages, &n_bytes), GW_OK);
    assert_int_equal(gw_slice_check(&p->slices[0], 6, 0, 3, averages, n_bytes, &info), GW_ERR_FRAME_MISMATCH);
    assert_non_null(strstr(gw_last_error(), "2 workers"));
    assert_int_equal(gw_slice_check(&p->slices[0], 6, 0, 0, averages, n_bytes, &info), GW_ERR_FRAME_MISMATCH);
    assert_non_null(strstr(gw_last_error(), "an average"));
    gw_round_destroy(round);
}

/* ---- memory ------------------------------------------------------------------------------------------ */

TEST(slices_survive_want_of_memory)
{
    gw_status status = GW_ERR_MEMORY;
    for (int k = 1; status != GW_OK; k++) {
        struct shortage shortage = {0};
        gw_context *context = context_short_of(&shortage, 1);
        struct gw_slice *slices;
        size_t n;
        fail_nth(&shortage, k);
        status = gw_slices_plan(context, lenet.n_elems, lenet.align, lenet.n_tensors, 4, GW_SLICE_MAX, &slices, &n);
        if (status == GW_OK)
            gw_free(context, slices);
        else
            assert_int_equal(status, GW_ERR_MEMORY);
        gw_context_destroy(context);
        assert_int_equal(shortage.live, 0);
        assert_true(k < 100);
    }
}

RUN_TESTS("owner", pushes_setup, pushes_teardown)
