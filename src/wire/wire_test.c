/* Tests frames and bits: round trips, and what must be refused. */
#include "checks.h"
#include "shortage.h"
#include "wire/bits.h"
#include "codec/wire_codec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- fields and bits --------------------------------------------------------------------------------- */

TEST(fields_are_little_endian)
{
    uint8_t bytes[9] = {0};
    gw_put16(bytes + 1, 0x1122);
    assert_memory_equal(bytes, "\0\x22\x11\0", 4);
    gw_put32(bytes + 1, 0x11223344u);
    assert_memory_equal(bytes, "\0\x44\x33\x22\x11\0", 6);
    gw_put64(bytes + 1, 0x1122334455667788ull);
    assert_memory_equal(bytes, "\0\x88\x77\x66\x55\x44\x33\x22\x11", 9);
    assert_int_equal(gw_get16(bytes + 1), 0x7788);
    assert_int_equal(gw_get32(bytes + 1), 0x55667788);
    assert_true(gw_get64(bytes + 1) == 0x1122334455667788ull);
    gw_put_float(bytes + 1, -1.5f);
    assert_memory_equal(bytes, "\0\0\0\xC0\xBF", 5);
    assert_true(gw_get_float(bytes + 1) == -1.5f);
    assert_int_equal(gw_float_bits(1.0f), 0x3F800000);
    assert_true(gw_bits_float(0x40490000u) == 3.140625f);
    const uint8_t nine[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    assert_true(gw_get_partial(nine, 0) == 0);
    assert_true(gw_get_partial(nine, 3) == 0x030201);
    assert_true(gw_get_partial(nine, 8) == 0x0807060504030201ull);
    assert_true(gw_get_partial(nine, 9) == 0x0807060504030201ull);
    assert_true(gw_div_up(0, 8) == 0 && gw_div_up(1, 8) == 1 && gw_div_up(8, 8) == 1 && gw_div_up(9, 8) == 2);
    assert_true(gw_div_up(UINT64_MAX, 2) == 1ull << 63);
}

/* Writes random pieces of 0..56 bits, and compares with bits that are set one by one. */
TEST(bits_come_back)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct numbers numbers = numbers_from(seed);
        uint32_t n_pieces = numbers_below(&numbers, 60);
        uint64_t pieces[60], n_bits = 0;
        unsigned sizes[60];
        uint8_t plain[60 * 7 + 1] = {0};
        for (uint32_t i = 0; i < n_pieces; i++) {
            sizes[i] = numbers_below(&numbers, 57);
            pieces[i] = ((uint64_t)numbers_word(&numbers) << 32 | numbers_word(&numbers)) & ((1ull << sizes[i]) - 1);
            for (unsigned b = 0; b < sizes[i]; b++, n_bits++)
                plain[n_bits / 8] |= (uint8_t)((pieces[i] >> b & 1) << (n_bits % 8));
        }
        size_t n_bytes = (size_t)gw_div_up(n_bits, 8);
        uint8_t *written = malloc(n_bytes + 1); /* the block has just this size, so a sanitizer sees bytes past it */
        assert_non_null(written);
        struct gw_bit_writer writer = {.at = written, .end = written + n_bytes};
        for (uint32_t i = 0; i < n_pieces; i++)
            gw_bits_put(&writer, pieces[i], sizes[i]);
        CHECK(gw_bits_finish(&writer) == written + n_bytes, "seed %llu", (unsigned long long)seed);
        CHECK(memcmp(written, plain, n_bytes) == 0, "seed %llu", (unsigned long long)seed);

        struct gw_bit_reader reader = {.src = written, .n_bits = 8 * (uint64_t)n_bytes};
        for (uint32_t i = 0; i < n_pieces; i++) {
            CHECK((gw_bits_peek(&reader) & ((1ull << sizes[i]) - 1)) == pieces[i], "seed %llu, piece %u",
                  (unsigned long long)seed, i);
            reader.at += sizes[i];
        }
        reader.at = reader.n_bits;
        assert_true(gw_bits_peek(&reader) == 0);
        reader.at += 1000;
        assert_true(gw_bits_peek(&reader) == 0);
        free(written);
    }
}

TEST(a_full_writer_stops)
{
    uint8_t bytes[12];
    memset(bytes, 0xEE, sizeof bytes);
    struct gw_bit_writer writer = {.at = bytes, .end = bytes + 10};
    for (int i = 0; i < 40; i++)
        gw_bits_put(&writer, 0, 7);
    assert_ptr_equal(gw_bits_finish(&writer), bytes + 10);
    assert_int_equal(bytes[9], 0);
    assert_int_equal(bytes[10], 0xEE);
}

/* ---- frames ------------------------------------------------------------------------------------------ */

#define FRAME_BYTES (GW_HEADER_BYTES + 2 * 4 + 11)

/* A ternary frame of 90 elements in buckets of 64. Its payload means nothing; reading a header does not look at it. */
static void make_frame(uint8_t dst[FRAME_BYTES], struct gw_frame *frame)
{
    *frame = (struct gw_frame){.codec = GW_WIRE_TERNARY,
                               .code = 3,
                               .flags = GW_FLAG_PRIVATE,
                               .workers = 1,
                               .rank = 5,
                               .tensor_id = 0xA1B2C3D4u,
                               .step = 0x01020304u,
                               .bucket = 64,
                               .begin = 1024 * 64,
                               .count = 90,
                               .n_scalers = 2,
                               .payload_bytes = 11};
    for (int i = GW_HEADER_BYTES; i < FRAME_BYTES; i++)
        dst[i] = (uint8_t)(3 * i);
    gw_frame_seal(dst, frame);
    assert_int_equal(frame->frame_bytes, FRAME_BYTES);
}

TEST(a_header_comes_back)
{
    uint8_t bytes[FRAME_BYTES + 5] = {0};
    struct gw_frame frame, read;
    make_frame(bytes, &frame);
    assert_int_equal(gw_frame_read(bytes, FRAME_BYTES, &read), GW_OK);
    assert_int_equal(read.codec, GW_WIRE_TERNARY);
    assert_int_equal(read.code, 3);
    assert_int_equal(read.flags, GW_FLAG_PRIVATE);
    assert_int_equal(read.workers, 1);
    assert_int_equal(read.rank, 5);
    assert_int_equal(read.tensor_id, 0xA1B2C3D4u);
    assert_int_equal(read.step, 0x01020304u);
    assert_int_equal(read.bucket, 64);
    assert_int_equal(read.begin, 1024 * 64);
    assert_int_equal(read.count, 90);
    assert_int_equal(read.n_scalers, 2);
    assert_int_equal(read.payload_bytes, 11);
    assert_int_equal(read.frame_bytes, FRAME_BYTES);
    assert_ptr_equal(read.scalers, bytes + GW_HEADER_BYTES);
    assert_ptr_equal(read.payload, bytes + GW_HEADER_BYTES + 8);
    /* The bytes that follow do not belong to the frame. */
    assert_int_equal(gw_frame_read(bytes, FRAME_BYTES + 5, &read), GW_OK);
    assert_int_equal(read.frame_bytes, FRAME_BYTES);

    /* Fields stand where docs/wire-format.md says. */
    assert_true(gw_get64(bytes + 48) == (XXH3_64bits_withSeed(bytes, 48, 0) ^ XXH3_64bits_withSeed(bytes + 56, 19, 1)));
    assert_memory_equal(
        bytes,
        "GW\3\4\3\4\1\0\5\0\0\0\xD4\xC3\xB2\xA1\4\3\2\1\x40\0\0\0\0\0\1\0\0\0\0\0\x5A\0\0\0\0\0\0\0\x0B\0\0\0\0\0\0\0",
        48);
}

TEST(scalers_follow_from_other_fields)
{
    assert_int_equal(gw_frame_n_scalers(GW_WIRE_NONE, 0, 100), 0);
    assert_int_equal(gw_frame_n_scalers(GW_WIRE_F16, 10, 100), 0);
    assert_int_equal(gw_frame_n_scalers(GW_WIRE_TERNARY, 0, 0), 1);
    assert_int_equal(gw_frame_n_scalers(GW_WIRE_TERNARY, 0, 100), 1);
    assert_int_equal(gw_frame_n_scalers(GW_WIRE_TERNARY, 100, 0), 0);
    assert_int_equal(gw_frame_n_scalers(GW_WIRE_TERNARY, 100, 100), 1);
    assert_int_equal(gw_frame_n_scalers(GW_WIRE_TERNARY, 100, 101), 2);
    assert_true(gw_frame_n_scalers(GW_WIRE_TERNARY, 1, GW_MAX_ELEMENTS) == GW_MAX_ELEMENTS);
}

TEST(a_cut_frame_is_refused_at_every_length)
{
    uint8_t bytes[FRAME_BYTES];
    struct gw_frame frame;
    make_frame(bytes, &frame);
    for (size_t n = 0; n < FRAME_BYTES; n++) {
        uint8_t *cut = malloc(n + 1);
        assert_non_null(cut);
        memcpy(cut + 1, bytes, n); /* the frame ends where the block ends */
        CHECK(gw_frame_read(cut + 1, n, &frame) == GW_ERR_FRAME_CUT, "%zu of %d bytes", n, FRAME_BYTES);
        assert_non_null(strstr(gw_last_error(), "the frame is cut"));
        /* What is no frame, or of another version, is called so if there are bytes enough to see it. */
        for (size_t at = 1; at <= 2 && at < n; at++) {
            cut[1 + at]++;
            CHECK(gw_frame_read(cut + 1, n, &frame) == (at == 1 ? GW_ERR_FRAME_MAGIC : GW_ERR_FRAME_VERSION),
                  "%zu of %d bytes, byte %zu", n, FRAME_BYTES, at);
            cut[1 + at]--;
        }
        free(cut);
    }
}

TEST(every_altered_byte_is_refused)
{
    uint8_t bytes[FRAME_BYTES];
    struct gw_frame frame;
    for (size_t at = 0; at < FRAME_BYTES; at++)
        for (unsigned flip = 1; flip < 256; flip++) {
            make_frame(bytes, &frame);
            bytes[at] ^= (uint8_t)flip;
            gw_status status = gw_frame_read(bytes, FRAME_BYTES, &frame);
            gw_status expected = at < 2 ? GW_ERR_FRAME_MAGIC : at == 2 ? GW_ERR_FRAME_VERSION : GW_ERR_FRAME_CHECKSUM;
            /* In the header, the check of the field itself may fail first. */
            CHECK(status == expected ||
                      (at > 2 && at < 48 && (status == GW_ERR_FRAME_FIELD || status == GW_ERR_FRAME_CUT)),
                  "byte %zu xor %02x gives %d", at, flip, status);
        }
}

/* Seals `frame`, whatever it claims, over a buffer of n_bytes bytes, and reads it back. */
static gw_status claim(struct gw_frame frame, size_t n_bytes)
{
    uint8_t bytes[FRAME_BYTES + 64] = {0};
    struct gw_frame read;
    uint64_t payload = frame.payload_bytes;
    frame.payload_bytes = 0;
    frame.count = frame.count < 64 ? frame.count : 64; /* to seal it hashes what is there */
    struct gw_frame honest = frame;
    gw_frame_seal(bytes, &honest);
    gw_put64(bytes + 40, payload);
    gw_frame_reseal(bytes, n_bytes);
    return gw_frame_read(bytes, n_bytes, &read);
}

/* A float frame of eight bytes with these fields. */
#define WITH(...) claim((struct gw_frame){.codec = GW_WIRE_NONE, .payload_bytes = 8, __VA_ARGS__}, GW_HEADER_BYTES + 8)

TEST(fields_outside_their_limits_are_refused)
{
    assert_int_equal(WITH(.workers = 1), GW_OK);
    for (unsigned flags = 0; flags < 256; flags++)
        assert_int_equal(WITH(.workers = 1, .flags = (uint8_t)flags), (flags & ~14u) == 0 ? GW_OK : GW_ERR_FRAME_FIELD);
    assert_non_null(strstr(gw_last_error(), "unknown flags 0xff"));

    assert_int_equal(WITH(.flags = GW_FLAG_AVERAGE, .workers = 0), GW_ERR_FRAME_FIELD);
    assert_int_equal(WITH(.flags = GW_FLAG_AVERAGE, .workers = GW_MAX_WORKERS), GW_OK);
    assert_int_equal(WITH(.flags = GW_FLAG_AVERAGE, .workers = GW_MAX_WORKERS + 1), GW_ERR_FRAME_FIELD);
    assert_non_null(strstr(gw_last_error(), "32768 workers; 1 to 32767"));
    assert_int_equal(WITH(.workers = 2), GW_ERR_FRAME_FIELD);
    assert_non_null(strstr(gw_last_error(), "a push frame claims 2 workers"));

    assert_int_equal(WITH(.workers = 1, .rank = GW_MAX_WORKERS - 1), GW_OK);
    assert_int_equal(WITH(.workers = 1, .rank = GW_MAX_WORKERS), GW_ERR_FRAME_FIELD);
    assert_int_equal(WITH(.workers = 1, .rank = UINT32_MAX), GW_ERR_FRAME_FIELD);

    assert_int_equal(WITH(.workers = 1, .begin = 1024), GW_OK);
    assert_int_equal(WITH(.workers = 1, .begin = 1023), GW_ERR_FRAME_FIELD);
    assert_int_equal(WITH(.workers = 1, .begin = 1024 * 3, .bucket = 3), GW_OK);
    assert_int_equal(WITH(.workers = 1, .begin = 1024 * 4, .bucket = 3), GW_ERR_FRAME_FIELD);
    assert_int_equal(WITH(.workers = 1, .begin = GW_MAX_ELEMENTS), GW_OK);
    assert_int_equal(WITH(.workers = 1, .begin = GW_MAX_ELEMENTS, .count = 1), GW_ERR_FRAME_FIELD);
    assert_int_equal(WITH(.workers = 1, .begin = UINT64_MAX - 1023), GW_ERR_FRAME_FIELD);

    uint8_t bytes[FRAME_BYTES];
    struct gw_frame frame;
    for (unsigned version = 0; version < 256; version++) {
        make_frame(bytes, &frame);
        bytes[2] = (uint8_t)version;
        gw_frame_reseal(bytes, FRAME_BYTES);
        assert_int_equal(gw_frame_read(bytes, FRAME_BYTES, &frame),
                         version == GW_FRAME_VERSION ? GW_OK : GW_ERR_FRAME_VERSION);
    }
    assert_non_null(strstr(gw_last_error(), "version 255; this library reads version 3"));
}

/* A frame of a codec of the future. Its scalers must not make the reader say that it was altered. */
TEST(an_unknown_codec_is_named)
{
    uint8_t bytes[FRAME_BYTES];
    struct gw_frame frame;
    for (unsigned codec = 0; codec < 256; codec++) {
        if (gw_wire_codec_by_id((uint8_t)codec))
            continue;
        char says[64];
        snprintf(says, sizeof says, "codec number %u is not known", codec);
        make_frame(bytes, &frame);
        bytes[3] = (uint8_t)codec;
        gw_frame_reseal(bytes, FRAME_BYTES);
        const void *frames[] = {bytes};
        const size_t sizes[] = {FRAME_BYTES};
        uint8_t average[2 * FRAME_BYTES];
        size_t average_bytes;
        gw_frame_info info;
        gw_status read = gw_frame_read(bytes, FRAME_BYTES, &frame), parsed = gw_frame_parse(bytes, FRAME_BYTES, &info);
        assert_non_null(strstr(gw_last_error(), says));
        gw_status reduced = gw_reduce(NULL, frames, sizes, 1, NULL, average, sizeof average, &average_bytes);
        CHECK(read == GW_ERR_FRAME_FIELD && parsed == read && reduced == read, "%u: %d, %d, %d", codec, read, parsed,
              reduced);
        assert_non_null(strstr(gw_last_error(), says));
    }
}

/* Frames of 200 bytes that claim any number of elements, in every codec and code. They are refused before memory is
 * taken for the elements. (One chunk of a sparse codec may be as small as that.) */
TEST(claims_of_much_with_little_take_no_memory)
{
    struct shortage none = {0};
    gw_context *context = context_short_of(&none, 1);
    static float out[1];
    const uint64_t counts[] = {100000,     1 << 24,    1ull << 31, 1ull << 32,        (1ull << 34) - 1024,
                               1ull << 34, 1ull << 35, 1ull << 62, UINT64_MAX - 1024, UINT64_MAX};
    const uint64_t payloads[] = {
        0, 1, 100, 144, 1 << 24, 1ull << 33, 1ull << 63, UINT64_MAX - 59, UINT64_MAX - 55, UINT64_MAX};
    const uint32_t buckets[] = {0, 1, 1024, 1u << 30, UINT32_MAX};
    for (unsigned codec = 0; codec < 10; codec++) /* more codecs than there are */
        for (unsigned code = 0; code < 9; code++)
            for (unsigned flags = 0; flags < 16; flags++)
                for (size_t c = codec == GW_WIRE_SPARSE || codec == GW_WIRE_GSPAR; c < sizeof counts / sizeof *counts;
                     c++)
                    for (size_t p = 0; p < sizeof payloads / sizeof *payloads; p++)
                        for (size_t b = 0; b < sizeof buckets / sizeof *buckets; b++) {
                            uint8_t bytes[200] = {'G', 'W', 1, (uint8_t)codec, (uint8_t)code, (uint8_t)flags, 1};
                            gw_put32(bytes + 20, buckets[b]);
                            gw_put64(bytes + 32, counts[c]);
                            gw_put64(bytes + 40, payloads[p]);
                            gw_frame_reseal(bytes, 200);
                            gw_frame_info info;
                            gw_status status = gw_frame_parse(bytes, 200, &info);
                            CHECK(status < 0 && status != GW_ERR_MEMORY,
                                  "codec %u code %u flags %u: %llu elements, %llu bytes, bucket %u give %d", codec,
                                  code, flags, (unsigned long long)counts[c], (unsigned long long)payloads[p],
                                  buckets[b], status);
                            assert_true(gw_decode(context, bytes, 200, out, counts[c]) < 0);
                            const void *frames[] = {bytes};
                            const size_t sizes[] = {200};
                            assert_int_equal(gw_reduce_bound(frames, sizes, 1), 0);
                        }
    assert_int_equal(none.calls, 0);
    gw_context_destroy(context);
}

RUN_TESTS("wire", NULL, NULL)
