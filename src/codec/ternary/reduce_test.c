/* Tests averages of ternary pushes: sums of integers, exact values, any order, any threads; floats if scalers are not
 * shared; and frames that do not belong together. */
#include "checks.h"
#include "codec/ternary/ternary.h"
#include "codecs.h"
#include "wire/frame.h"

#include <stdio.h>

static const char *const push_codes[] = {"auto", "2bit", "base3", "mask"};
static const char *const pull_codes[] = {"auto", "packed"};
static const char *const entropies[] = {"auto", "on", "off"};

/* Pushes of N workers of one tensor, and the sums of their ternary values. */
struct team {
    uint32_t n_workers;
    uint64_t n, bucket, n_scalers;
    float *scalers;
    struct whole_frame *pushes; /* by rank */
    int32_t *sums;
};

/* Ranks take codes in turn, because an owner adds any code. `room` says how far scalers are above all elements: the
 * larger it is, the fewer nonzeros there are. */
static struct team make_team(gw_context *context, uint64_t seed, uint32_t n_workers, uint64_t n, uint64_t bucket,
                             float room)
{
    struct team team = {n_workers, n,    bucket, gw_frame_n_scalers(GW_WIRE_TERNARY, (uint32_t)bucket, n),
                        NULL,      NULL, NULL};
    team.scalers = room_for(team.n_scalers, sizeof *team.scalers);
    team.pushes = room_for(n_workers, sizeof *team.pushes);
    team.sums = room_for(n, sizeof *team.sums);
    memset(team.sums, 0, n * sizeof *team.sums);
    float *g = room_for(n, sizeof *g);
    for (uint64_t b = 0; b < team.n_scalers; b++)
        team.scalers[b] = room * (3.0f + (float)(b % 5));
    for (uint32_t r = 0; r < n_workers; r++) {
        char spec[120];
        snprintf(spec, sizeof spec, "ternary:clip=0,bucket=%llu,code=%s,entropy=%s", (unsigned long long)bucket,
                 push_codes[(seed + r) % 4], entropies[(seed / 4 + r) % 3]);
        gw_encoder *encoder = encoder_of(context, spec, n);
        numbers_fill_bell(1000 * seed + r, g, n);
        for (uint64_t i = 0; i < n; i++)
            g[i] *= 0.6f; /* below 3 */
        team.pushes[r] = encode_whole(encoder, g, n, team.scalers,
                                      (gw_draw){.seed = seed, .rank = r + (uint32_t)seed % 3, .step = 9});
        gw_encoder_destroy(encoder);
        /* ternary_test.c checks that pushes decode rightly. */
        decode_into(NULL, team.pushes[r], g, n);
        for (uint64_t i = 0; i < n; i++)
            team.sums[i] += (g[i] > 0) - (g[i] < 0);
    }
    free(g);
    return team;
}

static void free_team(struct team team)
{
    for (uint32_t r = 0; r < team.n_workers; r++)
        free(team.pushes[r].bytes);
    free(team.pushes);
    free(team.scalers);
    free(team.sums);
}

/* Compares all that an average says with the plain sums. */
static void check_average(gw_context *context, const struct team *team, struct whole_frame average, const char *spec)
{
    gw_frame_info info;
    CHECK(gw_frame_parse(average.bytes, average.size, &info) == GW_OK, "%s: %s", spec, gw_last_error());
    assert_string_equal(info.codec, "ternary");
    assert_true(info.average);
    assert_int_equal(info.workers, team->n_workers);
    assert_int_equal(info.rank, 0);
    assert_int_equal(info.tensor_id, 7);
    assert_int_equal(info.step, 9);
    assert_int_equal(info.n_elems, team->n);
    assert_int_equal(info.bucket, team->bucket);
    assert_int_equal(info.n_scalers, team->n_scalers);
    assert_int_equal(info.frame_bytes, average.size);
    for (uint64_t b = 0; b < team->n_scalers; b++)
        assert_true(gw_frame_scaler(average.bytes, average.size, b) == team->scalers[b]);

    float *out = room_for(team->n, sizeof *out);
    decode_into(context, average, out, team->n);
    for (uint64_t i = 0; i < team->n; i++) {
        float expected =
            (float)team->sums[i] * (team->scalers[team->bucket ? i / team->bucket : 0] / (float)team->n_workers);
        CHECK(gw_float_bits(out[i]) == gw_float_bits(expected),
              "%s, %u workers, %llu elements: element %llu is %a, not %d times = %a", spec, team->n_workers,
              (unsigned long long)team->n, (unsigned long long)i, (double)out[i], team->sums[i], (double)expected);
    }
    free(out);

    size_t n_symbols = 2 * (size_t)team->n_workers + 1;
    uint64_t *counts = room_for(n_symbols, sizeof *counts), *expected = room_for(n_symbols, sizeof *expected),
             n_nonzero, nonzero = 0;
    double bits, entropy = 0;
    memset(expected, 0, n_symbols * sizeof *expected);
    for (uint64_t i = 0; i < team->n; i++) {
        expected[team->sums[i] + (int32_t)team->n_workers]++;
        nonzero += team->sums[i] != 0;
    }
    for (size_t k = 0; k < n_symbols; k++)
        entropy -=
            expected[k] ? (double)expected[k] / (double)team->n * log2((double)expected[k] / (double)team->n) : 0;
    counts[0] = 77; /* the frame says how many workers it has; the caller says how much room there is */
    assert_int_equal(gw_frame_symbols(context, average.bytes, average.size, counts, n_symbols - 1, &n_nonzero, &bits),
                     GW_ERR_CAPACITY);
    assert_non_null(strstr(gw_last_error(), "gw_frame_symbols: room for"));
    assert_int_equal(counts[0], 77);
    assert_int_equal(gw_frame_symbols(context, average.bytes, average.size, counts, n_symbols, &n_nonzero, &bits),
                     GW_OK);
    assert_memory_equal(counts, expected, n_symbols * sizeof *counts);
    assert_int_equal(n_nonzero, nonzero);
    assert_true(fabs(bits - entropy) < 1e-9);
    free(counts);
    free(expected);
}

static void check_team(gw_context *context, const struct team *team)
{
    size_t packed = 0;
    for (size_t p = 2; p-- > 0;)
        for (size_t e = 3; e-- > 0;) {
            char spec[64];
            snprintf(spec, sizeof spec, "ternary:pull=%s,entropy=%s", pull_codes[p], entropies[e]);
            struct whole_frame average = reduce_frames(context, team->pushes, team->n_workers, spec);
            gw_frame_info info;
            assert_int_equal(gw_frame_parse(average.bytes, average.size, &info), GW_OK);
            if (e == 2 || (p == 1 && e == 0)) {
                assert_string_equal(info.code, "packed");
                packed = info.payload_bytes;
            } else { /* auto is no larger, apart from a table */
                CHECK(info.payload_bytes <= packed + 4 * ((team->n + 65535) / 65536),
                      "%s, %u workers, %llu elements: %zu bytes, %zu are possible", spec, team->n_workers,
                      (unsigned long long)team->n, info.payload_bytes, packed);
            }
            check_average(context, team, average, spec);
            free(average.bytes);
        }
    struct whole_frame average = reduce_frames(context, team->pushes, team->n_workers, NULL);
    check_average(context, team, average, "defaults");
    struct whole_frame named = reduce_frames(context, team->pushes, team->n_workers, "ternary");
    assert_true(same_frame(average, named));
    free(named.bytes);
    /* Options of another codec are not those of ternary. */
    named = reduce_frames(context, team->pushes, team->n_workers, "none");
    assert_true(same_frame(average, named));
    free(named.bytes);
    free(average.bytes);
}

TEST(sums_are_exact)
{
    const uint32_t workers[] = {1, 2, 3, 4, 7, 8, 64, 200};
    const uint64_t lengths[] = {0, 1, 2, 63, 64, 65, 129, 1023, 5000, 65536, 65537, 140003};
    uint64_t seed = 1;
    for (size_t w = 0; w < 8; w++)
        for (size_t l = 0; l < (workers[w] < 9 ? 12 : workers[w] < 100 ? 11 : 9); l++, seed++) {
            gw_context *context = seed % 4 ? NULL : context_of(3);
            struct team team = make_team(context, seed, workers[w], lengths[l], 0, seed % 3 == 0 ? 40 : 1);
            check_team(context, &team);
            free_team(team);
            gw_context_destroy(context);
        }
}

/* Tests the sizes and buckets of pushes, with every pull code and entropy. */
TEST(every_size_and_bucket_is_averaged)
{
    const uint64_t lengths[] = {0, 1, 2, 5, 63, 64, 65, 127, 128, 129, 1000, 1023, 1025, 65535, 65536, 65537, 200003};
    const uint64_t buckets[] = {128, 512, 1000, 65536, 100000};
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++)
        for (size_t b = 0; b < sizeof buckets / sizeof *buckets; b++) {
            struct team team = make_team(NULL, l + 20 * b, 2 + (uint32_t)b, lengths[l], buckets[b], 1);
            check_team(NULL, &team);
            free_team(team);
        }
}

/* 32,767 workers have sums of 16 bits, in base 65,535. */
TEST(as_many_workers_as_there_can_be)
{
    const uint32_t n_workers = GW_MAX_WORKERS;
    struct team team = {
        n_workers, 70, 0, 1, room_for(1, 4), room_for(n_workers, sizeof *team.pushes), room_for(70, sizeof *team.sums)};
    *team.scalers = 1;
    memset(team.sums, 0, 70 * sizeof *team.sums);
    gw_encoder *encoder = encoder_of(NULL, "ternary:clip=0,code=2bit", 70);
    for (uint32_t r = 0; r < n_workers; r++) {
        float g[70] = {1, -1, 0};
        for (uint32_t i = 3; i < 70; i++)
            g[i] = r % i == 0 ? 1 : r % 64 > i ? -1 : 0;
        for (uint32_t i = 0; i < 70; i++)
            team.sums[i] += (int32_t)g[i];
        team.pushes[r] = encode_whole(encoder, g, 70, NULL, (gw_draw){.rank = r, .step = 9});
    }
    gw_encoder_destroy(encoder);
    assert_int_equal(team.sums[0], 32767);
    assert_int_equal(team.sums[1], -32767);
    for (size_t p = 0; p < 2; p++) {
        char spec[64];
        snprintf(spec, sizeof spec, "ternary:pull=%s,entropy=%s", pull_codes[p], entropies[p % 3]);
        struct whole_frame average = reduce_frames(NULL, team.pushes, n_workers, spec);
        check_average(NULL, &team, average, spec);
        free(average.bytes);
    }
    free_team(team);
}

TEST(order_and_threads_change_nothing)
{
    const char *specs[] = {"ternary", "ternary:entropy=on", "ternary:entropy=off", "ternary:pull=packed"};
    const uint64_t lengths[] = {1025, 65537, 200003};
    for (size_t l = 0; l < 3; l++)
        for (uint64_t bucket = 0; bucket <= 512; bucket += 512) {
            struct team team = make_team(NULL, 50 + l, 6, lengths[l], bucket, l == 1 ? 40 : 1);
            for (size_t k = 0; k < 4; k++) {
                struct whole_frame first = reduce_frames(NULL, team.pushes, 6, specs[k]);
                for (uint64_t seed = 1; seed <= 4; seed++) {
                    struct numbers numbers = numbers_from(seed);
                    struct whole_frame shuffled[6];
                    memcpy(shuffled, team.pushes, sizeof shuffled);
                    for (uint32_t i = 6; i > 1; i--) {
                        uint32_t j = numbers_below(&numbers, i);
                        struct whole_frame swap = shuffled[i - 1];
                        shuffled[i - 1] = shuffled[j];
                        shuffled[j] = swap;
                    }
                    gw_context *context = context_of((uint32_t)seed);
                    struct whole_frame average = reduce_frames(context, shuffled, 6, specs[k]);
                    CHECK(same_frame(first, average), "%s, %llu elements, seed %llu", specs[k],
                          (unsigned long long)lengths[l], (unsigned long long)seed);
                    free(average.bytes);
                    gw_context_destroy(context);
                }
                free(first.bytes);
            }
            free_team(team);
        }
}

/* share=off: float32 sums in rank order, divided once. */
TEST(own_scalers_are_averaged_in_float)
{
    const uint64_t lengths[] = {0, 1, 65, 4097, 65537};
    for (uint32_t n_workers = 1; n_workers <= 9; n_workers += 4)
        for (size_t l = 0; l < 5; l++)
            for (uint64_t bucket = 0; bucket <= 200; bucket += 100)
                for (uint32_t threads = 1; threads <= 2; threads++) {
                    uint64_t n = lengths[l];
                    gw_context *context = context_of(threads);
                    float *g = room_for(n, sizeof *g), *sum = room_for(n, sizeof *sum), *one = room_for(n, sizeof *one);
                    struct whole_frame pushes[9];
                    for (uint32_t r = 0; r < n_workers; r++) {
                        char spec[80];
                        snprintf(spec, sizeof spec, "ternary:share=off,bucket=%llu,code=%s", (unsigned long long)bucket,
                                 push_codes[r % 4]);
                        gw_encoder *encoder = encoder_of(context, spec, n);
                        numbers_fill_bell(r + 10 * n, g, n);
                        for (uint64_t i = 0; i < n; i++)
                            g[i] *= 1 + 0.37f * (float)r;
                        /* The owner gets the ranks in reverse order. */
                        pushes[n_workers - 1 - r] =
                            encode_whole(encoder, g, n, NULL, (gw_draw){.seed = 1, .rank = r, .step = 9});
                        gw_encoder_destroy(encoder);
                        decode_into(context, pushes[n_workers - 1 - r], one, n);
                        for (uint64_t i = 0; i < n; i++)
                            sum[i] = r ? sum[i] + one[i] : one[i];
                    }
                    for (uint64_t i = 0; i < n; i++)
                        sum[i] /= (float)n_workers;
                    struct whole_frame average = reduce_frames(context, pushes, n_workers, NULL);
                    gw_frame_info info;
                    assert_int_equal(gw_frame_parse(average.bytes, average.size, &info), GW_OK);
                    assert_string_equal(info.codec, "none");
                    assert_true(info.average && info.workers == n_workers && info.n_scalers == 0 && info.bucket == 0);
                    decode_into(context, average, one, n);
                    CHECK(same_floats(one, sum, n), "%u workers, %llu elements, bucket %llu", n_workers,
                          (unsigned long long)n, (unsigned long long)bucket);
                    free(average.bytes);
                    for (uint32_t r = 0; r < n_workers; r++)
                        free(pushes[r].bytes);
                    free(g);
                    free(sum);
                    free(one);
                    gw_context_destroy(context);
                }
}

/* ---- what does not belong together ------------------------------------------------------------------- */

static struct whole_frame push_of(const char *spec, uint32_t id, uint64_t n, uint64_t begin, float s, gw_draw draw)
{
    static float g[4096];
    gw_codec *codec = codec_of(NULL, spec);
    const gw_tensor tensor = {.name = "w", .id = id, .n_elems = n};
    gw_encoder *encoder;
    assert_int_equal(gw_encoder_create(NULL, codec, &tensor, &encoder), GW_OK);
    float *shared = room_for(gw_encoder_traits_of(encoder).n_shared, sizeof *shared);
    for (uint64_t i = 0; i < gw_encoder_traits_of(encoder).n_shared; i++)
        shared[i] = s;
    measure(encoder, g, NULL);
    struct whole_frame frame = encode_slice(encoder, g, shared, draw, begin, n - begin);
    free(shared);
    gw_encoder_destroy(encoder);
    gw_codec_destroy(codec);
    return frame;
}

static void refuse(gw_status expected, struct whole_frame a, struct whole_frame b, const char *words)
{
    const void *frames[] = {a.bytes, b.bytes};
    const size_t sizes[] = {a.size, b.size};
    static uint8_t out[50000];
    size_t size;
    CHECK(gw_reduce(NULL, frames, sizes, 2, NULL, out, sizeof out, &size) == expected, "%s: \"%s\"", words,
          gw_last_error());
    CHECK(strstr(gw_last_error(), words), "\"%s\" does not say \"%s\"", gw_last_error(), words);
}

/* Workers are added up in parts, in any codes. Then the parts are added to the other workers. The result has the same
 * bytes as if all were added at once. */
TEST(averages_add_up_like_pushes)
{
    static const uint64_t lengths[] = {0, 1, 63, 1000, 65536, 65536 + 1, 200000};
    for (uint32_t turn = 0; turn < 42; turn++) {
        gw_context_options options = {.struct_bytes = sizeof options, .n_threads = 1 + turn % 3};
        gw_context *context;
        assert_int_equal(gw_context_create(&options, &context), GW_OK);
        uint32_t n_workers = 2 + turn % 9 * 2, n_left = turn % 4 == 3 ? n_workers / 3 : 0;
        struct team team =
            make_team(context, turn, n_workers, lengths[turn % 7], turn % 3 == 1 ? 1000 : 0, turn % 2 ? 1 : 20);
        struct whole_frame parts[32];
        uint32_t n = 0;
        for (uint32_t r = 0; r < n_left; r++)
            parts[n++] = team.pushes[r];
        for (uint32_t r = n_left, k; r < n_workers; r += k) {
            char spec[96];
            k = 1 + (r + turn) % 5;
            k = k < n_workers - r ? k : n_workers - r;
            snprintf(spec, sizeof spec, "ternary:pull=%s,entropy=%s", pull_codes[(r + turn) % 2],
                     entropies[(r + turn / 3) % 3]);
            parts[n++] = reduce_frames(context, team.pushes + r, k, spec);
        }
        struct whole_frame flat = reduce_frames(context, team.pushes, n_workers, NULL),
                           sums = reduce_frames(context, parts, n, NULL);
        assert_int_equal(flat.size, sums.size);
        assert_memory_equal(flat.bytes, sums.bytes, flat.size);
        check_average(context, &team, sums, "averages");
        if (lengths[turn % 7]) { /* an altered part is found */
            parts[n - 1].bytes[parts[n - 1].size - 1] ^= 1;
            const void *frames[32];
            size_t sizes[32], size;
            for (uint32_t i = 0; i < n; i++) {
                frames[i] = parts[i].bytes;
                sizes[i] = parts[i].size;
            }
            size_t bound = flat.size + 2 * lengths[turn % 7] + 100000;
            void *out = room_for(bound, 1);
            assert_int_equal(gw_reduce(context, frames, sizes, n, NULL, out, bound, &size), GW_ERR_FRAME_CHECKSUM);
            free(out);
        }
        for (uint32_t i = n_left; i < n; i++)
            free(parts[i].bytes);
        free(flat.bytes);
        free(sums.bytes);
        free_team(team);
        gw_context_destroy(context);
    }
}

TEST(mismatches_name_both)
{
    const gw_draw five = {.rank = 5, .step = 2}, nine = {.rank = 9, .step = 2}, later = {.rank = 9, .step = 3};
    struct whole_frame a = push_of("ternary", 1, 2048, 0, 1, five);
    const struct {
        struct whole_frame frame;
        const char *words;
    } other[] = {
        {push_of("none", 1, 2048, 0, 1, nine), "the frames of ranks 5 and 9 disagree in codec: ternary and none"},
        {push_of("ternary", 2, 2048, 0, 1, nine), "the frames of ranks 5 and 9 disagree in tensor: 1 and 2"},
        {push_of("ternary", 1, 2048, 0, 1, later), "the frames of ranks 5 and 9 disagree in step: 2 and 3"},
        {push_of("ternary", 1, 2048, 1024, 1, nine),
         "the frames of ranks 5 and 9 disagree in the slice's begin: 0 and 1024"},
        {push_of("ternary", 1, 2047, 0, 1, nine),
         "the frames of ranks 5 and 9 disagree in the number of elements: 2048 and 2047"},
        {push_of("ternary:bucket=64", 1, 2048, 0, 1, nine), "the frames of ranks 5 and 9 disagree in bucket: 0 and 64"},
        {push_of("ternary:share=off", 1, 2048, 0, 1, nine),
         "of the frames of ranks 5 and 9 one has a shared scaler, the other its own"},
        {push_of("ternary", 1, 2048, 0, 1.5f, nine), "the frames of ranks 5 and 9 disagree in scaler 0: 1 and 1.5"},
        {push_of("ternary:entropy=on", 1, 2048, 0, 1, five), "two frames come from the same rank, 5"},
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        refuse(GW_ERR_FRAME_MISMATCH, a, other[i].frame, other[i].words);
        refuse(GW_ERR_FRAME_MISMATCH, other[i].frame, a, other[i].words); /* the order does not matter */
        free(other[i].frame.bytes);
    }
    struct whole_frame b = push_of("none", 1, 2048, 0, 1, five), average = reduce_frames(NULL, &b, 1, NULL);
    refuse(GW_ERR_FRAME_MISMATCH, b, average, "frame 2 of 2 is an average already");
    refuse(GW_ERR_FRAME_MISMATCH, average, b, "frame 1 of 2 is an average already");
    free(average.bytes);
    free(b.bytes);
    b = push_of("ternary", 2, 2048, 0, 1, five);
    average = reduce_frames(NULL, &b, 1, NULL);
    refuse(GW_ERR_FRAME_MISMATCH, average, a,
           "the frame of rank 5 and the average of 1 workers disagree in tensor: 1 and 2");
    free(average.bytes);
    free(b.bytes);
    free(a.bytes);
}

TEST(wrong_reductions_are_refused)
{
    struct whole_frame a = push_of("ternary", 1, 2048, 0, 1, (gw_draw){.rank = 0}),
                       b = push_of("ternary", 1, 2048, 0, 1, (gw_draw){.rank = 1});
    const void *frames[] = {a.bytes, b.bytes}, *with_null[] = {a.bytes, NULL};
    size_t sizes[] = {a.size, b.size}, size, bound = gw_reduce_bound(frames, sizes, 2);
    uint8_t *out = room_for(bound, 1);
    assert_int_equal(gw_reduce(NULL, frames, sizes, 2, NULL, out, bound, &size), GW_OK);
    assert_int_equal(gw_reduce(NULL, frames, sizes, 2, NULL, out, bound - 1, &size), GW_ERR_CAPACITY);
    assert_int_equal(gw_reduce(NULL, NULL, sizes, 2, NULL, out, bound, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_reduce(NULL, frames, NULL, 2, NULL, out, bound, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_reduce(NULL, frames, sizes, 0, NULL, out, bound, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_reduce(NULL, frames, sizes, GW_MAX_WORKERS + 1, NULL, out, bound, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_reduce(NULL, frames, sizes, 2, NULL, NULL, bound, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_reduce(NULL, frames, sizes, 2, NULL, out, bound, NULL), GW_ERR_ARGUMENT);
    assert_int_equal(gw_reduce(NULL, with_null, sizes, 2, NULL, out, bound, &size), GW_ERR_ARGUMENT);
    struct {
        gw_reduce_options options;
        size_t of_a_later_version;
    } longer = {{sizeof longer, NULL}, 1};
    assert_int_equal(gw_reduce(NULL, frames, sizes, 2, &longer.options, out, bound, &size), GW_ERR_ARGUMENT);
    assert_int_equal(gw_reduce_bound(frames, sizes, 0), 0);
    assert_int_equal(gw_reduce_bound(NULL, sizes, 2), 0);
    assert_int_equal(gw_reduce_bound(frames, NULL, 2), 0);
    sizes[1]--;
    assert_int_equal(gw_reduce(NULL, frames, sizes, 2, NULL, out, bound, &size), GW_ERR_FRAME_CUT);
    sizes[0] = 3;
    assert_int_equal(gw_reduce_bound(frames, sizes, 2), 0);
    free(out);
    free(a.bytes);
    free(b.bytes);
}

/* One byte of one frame is altered on its way. The owner refuses it, whatever it adds and on however many threads. */
TEST(altered_pushes_are_refused)
{
    const char *specs[] = {"ternary:clip=0",
                           "ternary:clip=0,code=2bit",
                           "ternary:clip=0,code=base3,entropy=on",
                           "ternary:clip=0,code=mask",
                           "ternary:clip=0,code=mask,entropy=on",
                           "ternary:clip=0,share=off",
                           "ternary:clip=0,bucket=100"};
    static const uint64_t lengths[] = {300, 66000};
    for (size_t k = 0; k < 7; k++)
        for (size_t l = 0; l < 2; l++)
            for (uint32_t threads = 1; threads <= 2; threads++) {
                uint64_t n = lengths[l];
                gw_context *context = context_of(threads);
                gw_encoder *encoder = encoder_of(context, specs[k], n);
                float *g = room_for(n, sizeof *g), *shared = room_for(n, sizeof *shared);
                numbers_fill_bell(k, g, n);
                for (uint64_t i = 0; i < n; i++)
                    shared[i] = 6;
                struct whole_frame pushes[3];
                const void *frames[3];
                size_t sizes[3], size;
                for (uint32_t r = 0; r < 3; r++) {
                    pushes[r] = encode_whole(encoder, g, n, shared, (gw_draw){.rank = r});
                    frames[r] = pushes[r].bytes;
                    sizes[r] = pushes[r].size;
                }
                size_t bound = gw_reduce_bound(frames, sizes, 3);
                uint8_t *out = room_for(bound, 1);
                assert_int_equal(gw_reduce(context, frames, sizes, 3, NULL, out, bound, &size), GW_OK);
                for (uint32_t r = 0; r < 3; r++)
                    for (size_t at = 0; at<sizes[r]; at += n> 1000 && at > 70 ? 997 : 1) {
                        pushes[r].bytes[at] ^= (uint8_t)(1u << at % 8);
                        gw_status status = gw_reduce(context, frames, sizes, 3, NULL, out, bound, &size);
                        CHECK(status <= GW_ERR_FRAME_CUT && status >= GW_ERR_FRAME_FIELD,
                              "%s, %llu elements, %u threads: byte %zu of rank %u's frame gives %d", specs[k],
                              (unsigned long long)n, threads, at, r, status);
                        CHECK(at < 48 || status == GW_ERR_FRAME_CHECKSUM,
                              "%s, %llu elements, %u threads: byte %zu of rank %u's frame gives %d", specs[k],
                              (unsigned long long)n, threads, at, r, status);
                        pushes[r].bytes[at] ^= (uint8_t)(1u << at % 8);
                    }
                assert_int_equal(gw_reduce(context, frames, sizes, 3, NULL, out, bound, &size), GW_OK);
                for (uint32_t r = 0; r < 3; r++)
                    free(pushes[r].bytes);
                free(out);
                free(g);
                free(shared);
                gw_encoder_destroy(encoder);
                gw_context_destroy(context);
            }
}

RUN_TESTS("reduce", NULL, NULL)
