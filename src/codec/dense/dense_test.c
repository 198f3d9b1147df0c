/* Tests none, bf16 and f16. Rounding is compared, over all 16-bit patterns, with a reference that searches the nearest
 * number. Averages are in rank order. Float frames that cannot be are refused. */
#include "base/float_env.h"
#include "checks.h"
#include "codec/codec.h"
#include "codecs.h"
#include "wire/frame.h"

#include <float.h>

static const char *const names[] = {"none", "bf16", "f16"};
static const uint8_t wire_ids[] = {GW_WIRE_NONE, GW_WIRE_BF16, GW_WIRE_F16};

/* ---- the reference ----------------------------------------------------------------------------------- */

/* The value of a pattern of 15 bits, by the definition of the format. */
static double value_of(int codec, uint32_t pattern)
{
    uint32_t fraction_bits = codec == 1 ? 7 : 10, exponent = pattern >> fraction_bits,
             fraction = pattern & ((1u << fraction_bits) - 1);
    int bias = codec == 1 ? 127 : 15;
    if (exponent == (codec == 1 ? 255u : 31u))
        return fraction ? NAN : INFINITY;
    return exponent ? ldexp(fraction + (1 << fraction_bits), (int)exponent - bias - (int)fraction_bits)
                    : ldexp(fraction, 1 - bias - (int)fraction_bits);
}

static double values[3][0x8000]; /* of bf16 and f16, in rising order */
static const uint32_t largest[] = {0, 0x7F7F, 0x7BFF};

static void make_values(void)
{
    for (int codec = 1; codec < 3; codec++)
        for (uint32_t pattern = 0; pattern < 0x8000; pattern++)
            values[codec][pattern] = value_of(codec, pattern);
}

/* The pattern whose value is nearest. Of two that are equally near it is the even one. Beyond the largest finite number
 * it is that number. */
static uint16_t nearest(int codec, float x)
{
    const double *v = values[codec], magnitude = fabs((double)x);
    uint32_t low = 0, high = largest[codec]; /* v[low] <= magnitude, unless the magnitude is beyond all values */
    if (magnitude >= v[high])
        low = high;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (v[middle] <= magnitude)
            low = middle;
        else
            high = middle;
    }
    if (low < high) {
        double below = magnitude - v[low], above = v[high] - magnitude; /* exact, because the values have few bits */
        low = above < below || (above == below && low % 2) ? high : low;
    }
    return (uint16_t)(low | (signbit(x) ? 0x8000u : 0));
}

static float reference_round(int codec, float x)
{
    if (codec == 0)
        return x;
    uint16_t pattern = nearest(codec, x);
    float value = (float)values[codec][pattern & 0x7FFF];
    return pattern & 0x8000 ? -value : value;
}

/* ---- one worker -------------------------------------------------------------------------------------- */

static void check_encoding(int codec, const float *g, uint64_t n)
{
    gw_encoder *encoder = encoder_of(NULL, names[codec], n);
    assert_int_equal(gw_encoder_traits_of(encoder).n_shared, 0);
    struct whole_frame frame = encode_whole(encoder, g, n, NULL, (gw_draw){.seed = 1, .rank = 4, .step = 5});
    float *out = room_for(n, sizeof *out);
    decode_into(NULL, frame, out, n);
    for (uint64_t i = 0; i < n; i++) {
        float expected = reference_round(codec, g[i]);
        CHECK(gw_float_bits(out[i]) == gw_float_bits(expected), "%s: %a becomes %a, not %a", names[codec], (double)g[i],
              (double)out[i], (double)expected);
        if (codec > 0)
            CHECK(gw_get16(frame.bytes + 56 + 2 * i) == nearest(codec, g[i]), "%s: %a is sent as %04x", names[codec],
                  (double)g[i], gw_get16(frame.bytes + 56 + 2 * i));
    }
    gw_frame_info info;
    assert_int_equal(gw_frame_parse(frame.bytes, frame.size, &info), GW_OK);
    assert_string_equal(info.codec, names[codec]);
    assert_int_equal(info.n_scalers, 0);
    assert_int_equal(info.payload_bytes, n * (codec ? 2 : 4));
    assert_int_equal(info.rank, 4);
    assert_int_equal(info.step, 5);
    assert_false(info.average);
    free(out);
    free(frame.bytes);
    gw_encoder_destroy(encoder);
}

/* Tests every number of the format, every middle between two, and the floats next to the middles. */
TEST(rounding_is_to_nearest_even)
{
    for (int codec = 1; codec < 3; codec++) {
        uint64_t n = 0;
        float *g = room_for(12 * 0x8000, sizeof *g);
        for (uint32_t pattern = 0; pattern <= largest[codec]; pattern++) {
            float low = (float)values[codec][pattern];
            float high = (float)(pattern < largest[codec] ? values[codec][pattern + 1]
                                                          : 2 * values[codec][pattern] - values[codec][pattern - 1]);
            float middle = isinf(high) ? low : (float)(((double)low + high) / 2);
            for (int sign = 1; sign >= -1; sign -= 2) {
                g[n++] = (float)sign * low;
                g[n++] = (float)sign * middle;
                g[n++] = (float)sign * nextafterf(middle, 0);
                g[n++] = (float)sign * nextafterf(middle, FLT_MAX);
            }
        }
        check_encoding(codec, g, n);
        free(g);
    }
}

TEST(any_float_comes_back_rounded)
{
    const uint64_t n = 300000;
    float *g = room_for(n, sizeof *g);
    struct numbers numbers = numbers_from(3);
    for (uint64_t i = 0; i < n; i++)
        do
            g[i] = gw_bits_float(numbers_word(&numbers)); /* any exponent, denormals among them */
        while (!isfinite(g[i]));
    const float ends[] = {0,          -0.0f,           FLT_MAX,     -FLT_MAX,     FLT_MIN,      0x1p-149f,
                          -0x1p-149f, 65504,           65519.996f,  65520,        1e6f,         0x1p-24f,
                          0x1p-25f,   0x1.000002p-25f, 0x1.8p-25f,  0x1.ffcp-15f, 0x1.ffep-15f, 0x1.fffp-15f,
                          0x1p-14f,   0x1.fffffep127f, 0x1.fep127f, 0x1.ffp127f};
    memcpy(g, ends, sizeof ends);
    for (int codec = 0; codec < 3; codec++) {
        check_encoding(codec, g, n);
        for (uint64_t few = 0; few < 40; few++)
            check_encoding(codec, g + few, few);
    }
    free(g);
}

/* Tests all 65,536 patterns, with infinities and NaNs. Another program may send them. */
TEST(all_patterns_are_decoded)
{
    static uint8_t bytes[56 + 2 * 65536];
    static float out[65536];
    for (int codec = 1; codec < 3; codec++) {
        for (uint32_t pattern = 0; pattern < 65536; pattern++)
            gw_put16(bytes + 56 + 2 * pattern, (uint16_t)pattern);
        struct gw_frame frame = {.codec = wire_ids[codec], .workers = 1, .count = 65536, .payload_bytes = 2 * 65536};
        gw_frame_seal(bytes, &frame);
        decode_into(NULL, (struct whole_frame){bytes, sizeof bytes}, out, 65536);
        for (uint32_t pattern = 0; pattern < 65536; pattern++) {
            double expected = values[codec][pattern & 0x7FFF];
            if (isnan(expected))
                CHECK(isnan(out[pattern]), "%s: %04x is %a", names[codec], pattern, (double)out[pattern]);
            else
                CHECK(out[pattern] == (float)(pattern & 0x8000 ? -expected : expected) &&
                          !signbit(out[pattern]) == !(pattern & 0x8000),
                      "%s: %04x is %a", names[codec], pattern, (double)out[pattern]);
        }
    }
}

TEST(slices_are_parts_of_the_whole)
{
    static float g[5000], out[5000], whole[5000];
    numbers_fill_bell(8, g, 5000);
    for (int codec = 0; codec < 3; codec++) {
        gw_encoder *encoder = encoder_of(NULL, names[codec], 5000);
        struct whole_frame frame = encode_whole(encoder, g, 5000, NULL, (gw_draw){.seed = 1});
        decode_into(NULL, frame, whole, 5000);
        free(frame.bytes);
        for (uint64_t begin = 0; begin < 5000; begin += 2048) {
            uint64_t count = 5000 - begin < 2048 ? 5000 - begin : 2048;
            frame = encode_slice(encoder, g, NULL, (gw_draw){.seed = 1}, begin, count);
            decode_into(NULL, frame, out + begin, count);
            free(frame.bytes);
        }
        assert_true(same_floats(out, whole, 5000));
        gw_encoder_destroy(encoder);
    }
}

/* ---- averages ---------------------------------------------------------------------------------------- */

TEST(averages_are_added_in_rank_order)
{
    const uint32_t workers[] = {1, 2, 3, 8, 50};
    const uint64_t lengths[] = {0, 1, 100, 4095, 4096, 4097, 20000};
    for (int codec = 0; codec < 3; codec++)
        for (size_t w = 0; w < 5; w++)
            for (size_t l = 0; l < 7; l++) {
                uint32_t n_workers = workers[w];
                uint64_t n = lengths[l];
                float *g = room_for(n, sizeof *g), *sum = room_for(n, sizeof *sum), *out = room_for(n, sizeof *out);
                struct whole_frame pushes[50];
                gw_encoder *encoder = encoder_of(NULL, names[codec], n);
                for (uint32_t r = 0; r < n_workers; r++) {
                    /* Scales differ, so that the order of adding changes the sum. */
                    numbers_fill_bell(100 * n + r, g, n);
                    for (uint64_t i = 0; i < n; i++)
                        g[i] *= (float)(1 + (r * 7 + i) % 13) * (codec == 2 && i % 11 == 0 ? 1e-7f : 0.37f);
                    /* The owner gets the ranks in reverse order. */
                    pushes[n_workers - 1 - r] = encode_whole(encoder, g, n, NULL, (gw_draw){.rank = r + 2});
                    for (uint64_t i = 0; i < n; i++) {
                        float sent = reference_round(codec, g[i]);
                        sum[i] = r ? sum[i] + sent : sent;
                    }
                }
                struct whole_frame average = reduce_frames(NULL, pushes, n_workers, l % 2 ? names[codec] : NULL);
                gw_frame_info info;
                assert_int_equal(gw_frame_parse(average.bytes, average.size, &info), GW_OK);
                assert_string_equal(info.codec, names[codec]);
                assert_true(info.average && info.workers == n_workers && info.rank == 0);
                decode_into(NULL, average, out, n);
                for (uint64_t i = 0; i < n; i++) {
                    float expected = reference_round(codec, n_workers > 1 ? sum[i] / (float)n_workers : sum[i]);
                    CHECK(gw_float_bits(out[i]) == gw_float_bits(expected),
                          "%s, %u workers, %llu elements: element %llu is %a, not %a", names[codec], n_workers,
                          (unsigned long long)n, (unsigned long long)i, (double)out[i], (double)expected);
                }
                if (n_workers == 1)
                    assert_memory_equal(average.bytes + 56, pushes[0].bytes + 56, average.size - 56);
                for (uint32_t r = 0; r < n_workers; r++)
                    free(pushes[r].bytes);
                free(average.bytes);
                free(g);
                free(sum);
                free(out);
                gw_encoder_destroy(encoder);
            }
}

/* An owner adds its own values without a frame of them. The average has the same bytes, and takes the place of these
 * values. */
TEST(an_owners_own_part_needs_no_frame)
{
    enum { WORKERS = 5 };
    const uint64_t lengths[] = {0, 1, 511, 513, 4097};
    for (int codec = 0; codec < 3; codec++)
        for (size_t l = 0; l < 5; l++)
            for (uint32_t mine = 0; mine < WORKERS; mine += 2) {
                uint64_t n = lengths[l];
                float *g = room_for(n, sizeof *g), *own = room_for(n, sizeof *own), *out = room_for(n, sizeof *out);
                struct whole_frame pushes[WORKERS];
                const void *others[WORKERS];
                size_t sizes[WORKERS], size;
                uint32_t n_others = 0;
                gw_encoder *encoder = encoder_of(NULL, names[codec], n);
                for (uint32_t r = 0; r < WORKERS; r++) {
                    numbers_fill_bell(10 * n + r, g, n);
                    pushes[r] = encode_whole(encoder, g, n, NULL, (gw_draw){.rank = r});
                    if (r == mine) {
                        memcpy(own, g, n * sizeof *g);
                        continue;
                    }
                    others[n_others] = pushes[r].bytes;
                    sizes[n_others++] = pushes[r].size;
                }
                struct whole_frame average = reduce_frames(NULL, pushes, WORKERS, NULL);
                uint8_t *dst = room_for(average.size, 1);
                struct gw_own part = {.wire = gw_encoder_wire(encoder), .rank = mine, .values = own};
                assert_int_equal(gw_reduce_with(NULL, others, sizes, n_others, &part, NULL, dst, average.size, &size),
                                 GW_OK);
                assert_int_equal(size, average.size);
                assert_memory_equal(dst, average.bytes, size);
                decode_into(NULL, average, out, n);
                assert_true(same_floats(own, out, n));

                pushes[mine ? 0 : 1].bytes[48] ^= 1; /* the frame of another worker */
                assert_int_equal(gw_reduce_with(NULL, others, sizes, n_others, &part, NULL, dst, average.size, &size),
                                 GW_ERR_FRAME_CHECKSUM);
                pushes[mine ? 0 : 1].bytes[48] ^= 1;
                part.wire = gw_wire_codec_by_id(wire_ids[(codec + 1) % 3]);
                assert_int_equal(gw_reduce_with(NULL, others, sizes, n_others, &part, NULL, dst, average.size, &size),
                                 GW_ERR_FRAME_MISMATCH);
                for (uint32_t r = 0; r < WORKERS; r++)
                    free(pushes[r].bytes);
                free(average.bytes);
                free(dst);
                free(g);
                free(own);
                free(out);
                gw_encoder_destroy(encoder);
            }
}

/* ---- counting, refusing ------------------------------------------------------------------------------ */

TEST(nonzeros_are_counted_whatever_the_hosts_float_modes)
{
    const float g[] = {0, -0.0f, 1, -1, 2, 0x1p-20f, -0x1p-24f, 0x1p-126f, 0x1p-130f};
    for (int hostile = 0; hostile < 2; hostile++)
        for (int codec = 0; codec < 3; codec++) {
            gw_encoder *encoder = encoder_of(NULL, names[codec], 9);
            struct whole_frame frame = encode_whole(encoder, g, 9, NULL, (gw_draw){.seed = 1});
            uint64_t counts[3], n_nonzero;
            double bits;
#if defined(__x86_64__)
            if (hostile)
                _mm_setcsr(0x9FC0); /* flush to zero, denormals are zero */
#endif
            gw_status status = gw_frame_symbols(NULL, frame.bytes, frame.size, counts, 3, &n_nonzero, &bits);
#if defined(__x86_64__)
            unsigned left = _mm_getcsr();
            _mm_setcsr(0x1F80);
            assert_true(!hostile || (left & 0xFFC0) == 0x9FC0);
#endif
            assert_int_equal(status, GW_OK);
            /* the last two are 0 in f16 */
            CHECK(counts[0] == 2 && counts[1] == (codec == 2 ? 4 : 2) && counts[2] == (codec == 2 ? 3 : 5),
                  "%s: %llu %llu %llu", names[codec], (unsigned long long)counts[0], (unsigned long long)counts[1],
                  (unsigned long long)counts[2]);
            assert_int_equal(n_nonzero, codec == 2 ? 5 : 7);
            assert_true(bits == 0);
            free(frame.bytes);
            gw_encoder_destroy(encoder);
        }
}

TEST(gradients_that_are_not_finite_are_refused)
{
    float g[100] = {0};
    static uint8_t bytes[1000];
    size_t size;
    g[37] = INFINITY;
    for (int codec = 0; codec < 3; codec++) {
        gw_encoder *encoder = encoder_of(NULL, names[codec], 100);
        gw_measure info;
        assert_int_equal(gw_encoder_measure(encoder, g, NULL, 0, &info), GW_OK);
        assert_true(!info.finite && info.bad_index == 37);
        const gw_draw draw = {.seed = 1};
        assert_int_equal(gw_encoder_encode(encoder, g, NULL, &draw, 0, 100, bytes, sizeof bytes, &size),
                         GW_ERR_NONFINITE);
        assert_int_equal(gw_encoder_measure_encode(encoder, g, NULL, &draw, bytes, sizeof bytes, &size, NULL),
                         GW_ERR_NONFINITE);
        gw_encoder_destroy(encoder);
    }
}

static gw_status parse(struct gw_frame frame)
{
    static uint8_t bytes[200];
    memset(bytes, 0, sizeof bytes);
    gw_frame_seal(bytes, &frame);
    gw_frame_info info;
    return gw_frame_parse(bytes, sizeof bytes, &info);
}

TEST(what_a_float_frame_must_not_be)
{
    for (int codec = 0; codec < 3; codec++) {
        const size_t width = codec ? 2 : 4;
        const struct gw_frame right = {.codec = wire_ids[codec],
                                       .workers = 1,
                                       .count = 10,
                                       .payload_bytes = 10 * width};
        struct gw_frame frame = right;
        assert_int_equal(parse(frame), GW_OK);
        frame.flags = GW_FLAG_AVERAGE;
        frame.workers = 9;
        assert_int_equal(parse(frame), GW_OK);
        frame.flags = GW_FLAG_PRIVATE;
        frame.workers = 1;
        assert_int_equal(parse(frame), GW_ERR_FRAME_FIELD);
        frame.flags = GW_FLAG_PRIVATE;
        assert_int_equal(parse(frame), GW_ERR_FRAME_FIELD);
        frame = right;
        frame.bucket = 64;
        assert_int_equal(parse(frame), GW_ERR_FRAME_FIELD);
        frame = right;
        frame.code = 1;
        assert_int_equal(parse(frame), GW_ERR_FRAME_FIELD);
        for (int off = -1; off <= 1; off += 2) {
            frame = right;
            frame.payload_bytes += (size_t)off;
            assert_int_equal(parse(frame), GW_ERR_FRAME_PAYLOAD);
        }
    }
}

/* One byte of a frame is altered on its way. Everything that reads the frame refuses it. */
TEST(altered_frames_are_refused)
{
    static const uint64_t lengths[] = {1, 300, 512, 1500};
    for (int codec = 0; codec < 3; codec++)
        for (size_t l = 0; l < 4; l++) {
            uint64_t n = lengths[l];
            gw_encoder *encoder = encoder_of(NULL, names[codec], n);
            float *g = room_for(n, sizeof *g), *out = room_for(n, sizeof *out);
            struct whole_frame pushes[3];
            const void *frames[3];
            size_t sizes[3], size;
            numbers_fill_bell(l, g, n);
            for (uint32_t r = 0; r < 3; r++) {
                pushes[r] = encode_whole(encoder, g, n, NULL, (gw_draw){.rank = r});
                frames[r] = pushes[r].bytes;
                sizes[r] = pushes[r].size;
            }
            size_t bound = gw_reduce_bound(frames, sizes, 3);
            uint8_t *average = room_for(bound, 1);
            for (uint32_t r = 0; r < 3; r++)
                for (size_t at = 0; at < sizes[r]; at += at < 80 ? 1 : 37) {
                    pushes[r].bytes[at] ^= (uint8_t)(1u << at % 8);
                    gw_status decoded = gw_decode(NULL, frames[r], sizes[r], out, n);
                    gw_status reduced = gw_reduce(NULL, frames, sizes, 3, NULL, average, bound, &size);
                    CHECK(decoded <= GW_ERR_FRAME_CUT && decoded >= GW_ERR_FRAME_FIELD && reduced <= GW_ERR_FRAME_CUT &&
                              reduced >= GW_ERR_FRAME_FIELD &&
                              (at < 48 || (decoded == GW_ERR_FRAME_CHECKSUM && reduced == decoded)),
                          "%s, %llu elements: byte %zu of rank %u's frame gives %d and %d", names[codec],
                          (unsigned long long)n, at, r, decoded, reduced);
                    pushes[r].bytes[at] ^= (uint8_t)(1u << at % 8);
                }
            assert_int_equal(gw_reduce(NULL, frames, sizes, 3, NULL, average, bound, &size), GW_OK);
            for (uint32_t r = 0; r < 3; r++)
                free(pushes[r].bytes);
            free(average);
            free(out);
            free(g);
            gw_encoder_destroy(encoder);
        }
}

int main(void)
{
    make_values();
    return run_noted_tests("dense", NULL, NULL);
}
