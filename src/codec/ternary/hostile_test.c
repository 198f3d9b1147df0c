/* Tests ternary frames that no encoder has made. Each rule of docs/wire-format.md is broken once, and random bytes get
 * a right checksum. A frame is refused, or decodes to something; nothing is read or written outside it. */
#include "checks.h"
#include "codec/parts.h"
#include "codec/ternary/ternary.h"
#include "codecs.h"
#include "wire/frame.h"

#include <stdio.h>

/* ---- frames by hand ---------------------------------------------------------------------------------- */

struct craft {
    uint8_t code, flags;
    uint32_t workers, bucket;
    uint64_t count;
    float scalers[4];
    const void *payload;
    size_t payload_bytes;
};

static struct whole_frame craft(struct craft c)
{
    struct gw_frame frame = {.codec = GW_WIRE_TERNARY,
                             .code = c.code,
                             .flags = c.flags,
                             .workers = c.workers ? c.workers : 1,
                             .bucket = c.bucket,
                             .count = c.count,
                             .n_scalers = gw_frame_n_scalers(GW_WIRE_TERNARY, c.bucket, c.count),
                             .payload_bytes = c.payload_bytes};
    size_t n_scalers = (size_t)frame.n_scalers;
    struct whole_frame made = {room_for(56 + 4 * n_scalers + c.payload_bytes, 1), 0};
    if (!c.scalers[0])
        c.scalers[0] = 1;
    memcpy(made.bytes + 56, c.scalers, 4 * n_scalers);
    memcpy(made.bytes + 56 + 4 * n_scalers, c.payload, c.payload_bytes);
    gw_frame_seal(made.bytes, &frame);
    made.size = frame.frame_bytes;
    return made;
}

/* Calls all functions that read a frame. They must agree. */
static gw_status readers_say(gw_context *context, struct whole_frame frame, uint64_t count)
{
    float *out = room_for(count + 1, sizeof *out);
    out[count] = 77;
    gw_status decoded = gw_decode(context, frame.bytes, frame.size, out, count);
    assert_true(out[count] == 77);
    free(out);
    gw_status counted = gw_frame_symbols(context, frame.bytes, frame.size, NULL, 0, NULL, NULL);
    CHECK(decoded == counted, "decode says %d, symbols %d", decoded, counted);
    gw_frame_parts parts;
    gw_status read = gw_frame_read_parts(context, frame.bytes, frame.size, &parts);
    CHECK(decoded == read, "decode says %d, parts %d", decoded, read);
    gw_frame_info info;
    if (gw_frame_parse(frame.bytes, frame.size, &info) == GW_OK && !info.average) {
        const void *bytes = frame.bytes;
        size_t bound = gw_reduce_bound(&bytes, &frame.size, 1), size;
        uint8_t *average = room_for(bound, 1);
        gw_status reduced = gw_reduce(context, &bytes, &frame.size, 1, NULL, average, bound, &size);
        CHECK(decoded == reduced, "decode says %d, reduce %d", decoded, reduced);
        free(average);
    }
    return decoded;
}

static void reads(gw_status expected, int line, struct craft c)
{
    struct whole_frame frame = craft(c);
    gw_status status = readers_say(NULL, frame, c.count);
    CHECK(status == expected, "line %d: %d (%s)", line, status, gw_last_error());
    free(frame.bytes);
}

#define PAYLOAD(text) .payload = text, .payload_bytes = sizeof text - 1
#define ACCEPTED(...) reads(GW_OK, __LINE__, (struct craft){__VA_ARGS__})
#define REFUSED(...) reads(GW_ERR_FRAME_PAYLOAD, __LINE__, (struct craft){__VA_ARGS__})
#define NOT_A_FIELD(...) reads(GW_ERR_FRAME_FIELD, __LINE__, (struct craft){__VA_ARGS__})

/* Averages of two workers: digits 0..4 in three planes. */
#define TWO .flags = GW_FLAG_AVERAGE, .workers = 2

TEST(two_bit_codes)
{
    ACCEPTED(.code = CODE_2BIT, .count = 4, PAYLOAD("\x86")); /* +1, 0, -1, +1 */
    REFUSED(.code = CODE_2BIT, .count = 4, PAYLOAD("\x87"));  /* 11 */
    REFUSED(.code = CODE_2BIT, .count = 4, PAYLOAD("\xC6"));
    ACCEPTED(.code = CODE_2BIT, .count = 3, PAYLOAD("\x46"));
    REFUSED(.code = CODE_2BIT, .count = 3, PAYLOAD("\x06")); /* padding is not 01 */
    REFUSED(.code = CODE_2BIT, .count = 3, PAYLOAD("\x86"));
    REFUSED(.code = CODE_2BIT, .count = 3, PAYLOAD("\xC6"));
    REFUSED(.code = CODE_2BIT, .count = 4, PAYLOAD("\x86\x55")); /* too long, too short */
    REFUSED(.code = CODE_2BIT, .count = 5, PAYLOAD("\x86"));
    REFUSED(.code = CODE_2BIT, .count = 1, PAYLOAD(""));
    ACCEPTED(.code = CODE_2BIT, .count = 0, PAYLOAD(""));
    REFUSED(.code = CODE_2BIT, .count = 0, PAYLOAD("\x55"));
}

TEST(base_three_codes)
{
    ACCEPTED(.code = CODE_BASE3, .count = 5, PAYLOAD("\xF2"));
    REFUSED(.code = CODE_BASE3, .count = 5, PAYLOAD("\xF3"));
    REFUSED(.code = CODE_BASE3, .count = 5, PAYLOAD("\xFF"));
    REFUSED(.code = CODE_BASE3, .count = 10, PAYLOAD("\xF3y"));
    ACCEPTED(.code = CODE_BASE3, .count = 1, PAYLOAD("\x7A")); /* 2 + 3 + 9 + 27 + 81 */
    REFUSED(.code = CODE_BASE3, .count = 1, PAYLOAD("\x02"));  /* missing values are not 1 */
    REFUSED(.code = CODE_BASE3, .count = 1, PAYLOAD("\x7D"));
    REFUSED(.code = CODE_BASE3, .count = 4, PAYLOAD("\xCA"));
    /* 64 elements: the last byte's fifth value is past the last word. */
    ACCEPTED(.code = CODE_BASE3, .count = 64, PAYLOAD("yyyyyyyyyyyyy"));
    REFUSED(.code = CODE_BASE3, .count = 64, PAYLOAD("yyyyyyyyyyyy\xCA"));
    REFUSED(.code = CODE_BASE3, .count = 64, PAYLOAD("yyyyyyyyyyyy\x28"));
    REFUSED(.code = CODE_BASE3, .count = 5, PAYLOAD("yy"));
    REFUSED(.code = CODE_BASE3, .count = 6, PAYLOAD("y"));
}

TEST(masks)
{
    ACCEPTED(.code = CODE_MASK, .count = 5, PAYLOAD("\x13\x05"));
    REFUSED(.code = CODE_MASK, .count = 5, PAYLOAD("\x33\x05")); /* past the last element */
    REFUSED(.code = CODE_MASK, .count = 5, PAYLOAD("\x13\x0D")); /* signs' padding */
    REFUSED(.code = CODE_MASK, .count = 5, PAYLOAD("\x13"));     /* signs missing */
    REFUSED(.code = CODE_MASK, .count = 5, PAYLOAD("\x13\x05\0"));
    REFUSED(.code = CODE_MASK, .count = 9, PAYLOAD("\x13"));
    REFUSED(.code = CODE_MASK, .count = 5, PAYLOAD("\0\0\0\0"));
    ACCEPTED(.code = CODE_MASK, .count = 5, PAYLOAD("\0"));
}

/* Coded strings made by hand, without a lane: all values are nonzero, or none is. Section 6 of docs/wire-format.md has
 * more rules. src/wire/strings_test.c and tests/wire/hostile.py break those. */
TEST(coded_strings)
{
    ACCEPTED(.code = CODE_RANS, .count = 5, PAYLOAD("\0"));
    ACCEPTED(.code = CODE_RANS, .count = 5, PAYLOAD("\x14\x11"));  /* five nonzeros, two of them negative */
    ACCEPTED(.code = CODE_RANS, .count = 5, PAYLOAD("\xB4\x02"));  /* all negative, by a string */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD("\x18\x11"));   /* six of five */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD("\x04\x01"));   /* one of five, and no lane to read which */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD("\x14"));       /* signs are missing */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD("\x14\x11\0")); /* something is left */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD("\x94\x11"));   /* the head's padding */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD("\x54\x11"));   /* mixed signs, and only five */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD("\x74\x11"));   /* signs are sent in three ways */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD("\x14\x31"));   /* the raw bits' padding */
    REFUSED(.code = CODE_RANS, .count = 5, PAYLOAD(""));
    /* Of two workers. Five sums are 2 or -2 beside a center of 2; then they are 1 or -1; then the string that says
     * which is missing. */
    ACCEPTED(TWO, .code = CODE_RANS, .count = 5, PAYLOAD("\xA8\x14\x11"));
    ACCEPTED(TWO, .code = CODE_RANS, .count = 5, PAYLOAD("\xA8\x00\x11"));
    REFUSED(TWO, .code = CODE_RANS, .count = 5, PAYLOAD("\xA8\x00"));
    ACCEPTED(TWO, .code = CODE_RANS, .count = 5, PAYLOAD("\x08\0"));
    /* A center of 5. Then sums that are 2 away from a center of 4, once below it and once above. */
    REFUSED(TWO, .code = CODE_RANS, .count = 5, PAYLOAD("\x14\0"));
    ACCEPTED(TWO, .code = CODE_RANS, .count = 5, PAYLOAD("\xB0\x00\x1F"));
    REFUSED(TWO, .code = CODE_RANS, .count = 5, PAYLOAD("\xB0\x00\x1E"));
}

/* Two chunks: 65,536 elements that are all 0, and five. */
TEST(tables)
{
    static uint8_t masked[2 * 3 + 8192 + 2];
    const uint64_t n = GW_CHUNK + 5;
    struct craft c = {.code = CODE_MASK, .count = n, .payload = masked, .payload_bytes = sizeof masked};
    masked[1] = 0x20; /* 8,192 */
    masked[3] = 2;
    masked[sizeof masked - 2] = 0x13;
    masked[sizeof masked - 1] = 0x05;
    reads(GW_OK, __LINE__, c);
    for (uint32_t at = 0; at < 6; at++) /* sizes and payload differ; a code stands where the header has one already */
        for (uint32_t bit = 0; bit < 8; bit++) {
            masked[at] ^= (uint8_t)(1u << bit);
            reads(GW_ERR_FRAME_PAYLOAD, __LINE__, c);
            masked[at] ^= (uint8_t)(1u << bit);
        }
    c.payload_bytes = 5;
    reads(GW_ERR_FRAME_PAYLOAD, __LINE__, c);
    for (uint32_t code = 0; code < 16; code++) {
        uint8_t mixed[] = {3, 0, CODE_RANS << 4, 2, 0, (uint8_t)(code << 4), 0, 0, 0, 0x13, 0x05};
        c = (struct craft){.code = CODE_MIXED, .count = n, .payload = mixed, .payload_bytes = sizeof mixed};
        gw_status expected = code == CODE_MASK ? GW_OK : GW_ERR_FRAME_PAYLOAD;
        reads(expected, __LINE__, c);
        if (code == CODE_RANS) { /* all values are nonzero */
            mixed[9] = 0x14;
            mixed[10] = 0x11;
            reads(GW_OK, __LINE__, c);
        }
    }
    NOT_A_FIELD(.code = CODE_MIXED, .count = 5,
                PAYLOAD("\2\0\x20"
                        "\x13\x05")); /* one chunk is not mixed */
    NOT_A_FIELD(.code = CODE_MIXED, .count = 0, PAYLOAD(""));
}

TEST(fields)
{
    const float nan = NAN, inf = INFINITY;
    ACCEPTED(.code = CODE_2BIT, .count = 4, .bucket = 2, .scalers = {1, 0}, PAYLOAD("\x86"));
    REFUSED(.code = CODE_2BIT, .count = 4, .bucket = 2, .scalers = {1, -1}, PAYLOAD("\x86"));
    REFUSED(.code = CODE_2BIT, .count = 4, .bucket = 2, .scalers = {1, nan}, PAYLOAD("\x86"));
    REFUSED(.code = CODE_2BIT, .count = 4, .bucket = 2, .scalers = {1, inf}, PAYLOAD("\x86"));
    REFUSED(.code = CODE_2BIT, .count = 4, .scalers = {-0x1p-149f}, PAYLOAD("\x86"));
    ACCEPTED(.code = CODE_2BIT, .flags = GW_FLAG_PRIVATE, .count = 4, PAYLOAD("\x86"));
    NOT_A_FIELD(.code = CODE_PACKED, .count = 4, PAYLOAD("\x86"));
    NOT_A_FIELD(.code = CODE_2BIT, .flags = 1, .count = 4, PAYLOAD("\x86"));
    NOT_A_FIELD(.code = CODE_MIXED + 1, .count = 4, PAYLOAD("\x86"));
    NOT_A_FIELD(.code = 255, .count = 4, PAYLOAD("\x86"));
    NOT_A_FIELD(.code = CODE_2BIT, .flags = GW_FLAG_AVERAGE, .count = 4, PAYLOAD("\x86"));
    NOT_A_FIELD(.code = CODE_BASE3, .flags = GW_FLAG_AVERAGE, .count = 4, PAYLOAD("\x86"));
    NOT_A_FIELD(.code = CODE_MASK, .flags = GW_FLAG_AVERAGE, .count = 4, PAYLOAD("\1\0\0\0\0"));
    NOT_A_FIELD(.code = CODE_PACKED, .flags = GW_FLAG_AVERAGE | GW_FLAG_PRIVATE, .count = 4, PAYLOAD("\1\1"));
}

TEST(averages)
{
    ACCEPTED(TWO, .code = CODE_PACKED, .count = 3, PAYLOAD("\2\2\4")); /* 0, 3, 4 */
    REFUSED(TWO, .code = CODE_PACKED, .count = 3, PAYLOAD("\3\2\5"));  /* the first is 5 */
    REFUSED(TWO, .code = CODE_PACKED, .count = 3, PAYLOAD("\2\6\4"));  /* the third is 6 */
    assert_non_null(strstr(gw_last_error(), "a packed sum is 6 above its lowest; 2 workers reach 4"));
    REFUSED(TWO, .code = CODE_PACKED, .count = 3, PAYLOAD("\2\2\xC"));
    REFUSED(TWO, .code = CODE_PACKED, .count = 3, PAYLOAD("\xA\2\4")); /* padding */
    assert_non_null(strstr(gw_last_error(), "the padding after a chunk's 3 packed sums is not 0"));
    REFUSED(TWO, .code = CODE_PACKED, .count = 3, PAYLOAD("\2\2"));
    REFUSED(TWO, .code = CODE_PACKED, .count = 3, PAYLOAD("\2\2\4\0"));
    /* whole groups of 64 go through a kernel */
    static uint8_t packed[3 * 8 + 3];
    packed[16 + 5] = packed[5] = 0x10;
    reads(GW_ERR_FRAME_PAYLOAD, __LINE__,
          (struct craft){TWO, .code = CODE_PACKED, .count = 64, .payload = packed, .payload_bytes = 24});
    for (int top = 0; top < 3; top++) {
        memset(packed, 0, sizeof packed);
        packed[16 + 5] = 0x10;
        if (top == 1)
            packed[5] = 0x10; /* 5 */
        if (top == 2)
            packed[24] = packed[26] = 1; /* in the last, short group */
        struct craft c = {TWO, .code = CODE_PACKED, .count = 65, .payload = packed, .payload_bytes = 27};
        reads(top ? GW_ERR_FRAME_PAYLOAD : GW_OK, __LINE__, c);
        c.bucket = 64;
        c.scalers[1] = 2;
        reads(top ? GW_ERR_FRAME_PAYLOAD : GW_OK, __LINE__, c);
    }
}

TEST(strings_are_for_1024_workers)
{
    struct craft c = {.code = CODE_RANS,
                      .count = 5,
                      .payload = (const uint8_t *)"\0\x10\0",
                      .payload_bytes = 3,
                      .flags = GW_FLAG_AVERAGE,
                      .workers = 1024};
    reads(GW_OK, __LINE__, c);
    c.workers = 1025;
    reads(GW_ERR_FRAME_FIELD, __LINE__, c);
    c = (struct craft){.code = CODE_MIXED,
                       .count = GW_CHUNK + 5,
                       .payload = (const uint8_t *)"\5\0\x40\3\0\x40\0\x10\0\0\0\0\x10\0",
                       .payload_bytes = 14,
                       .flags = GW_FLAG_AVERAGE,
                       .workers = 1025};
    reads(GW_ERR_FRAME_PAYLOAD, __LINE__, c);
    c.workers = 1024;
    reads(GW_OK, __LINE__, c);
}

/* An average of so many workers, and one push more. The tensor has no elements, so any number of workers can have
 * averaged it. */
TEST(sums_of_too_many_workers)
{
    gw_encoder *encoder = encoder_of(NULL, "ternary", 0);
    struct whole_frame pushes[2];
    for (uint32_t r = 0; r < 2; r++)
        pushes[r] = encode_whole(encoder, NULL, 0, NULL, (gw_draw){.rank = r});
    struct whole_frame average = reduce_frames(NULL, &pushes[1], 1, "ternary:pull=packed");
    const void *frames[] = {average.bytes, pushes[0].bytes};
    const size_t sizes[] = {average.size, pushes[0].size};
    for (uint32_t workers = GW_MAX_WORKERS - 1; workers <= GW_MAX_WORKERS; workers++) {
        uint8_t out[256];
        size_t size;
        gw_put16(average.bytes + 6, (uint16_t)workers);
        gw_frame_reseal(average.bytes, average.size);
        const bool good = workers < GW_MAX_WORKERS;
        const size_t bound = gw_reduce_bound(frames, sizes, 2);
        CHECK((bound > 0) == good && bound <= sizeof out, "%u and one workers: bound %zu", workers, bound);
        const gw_status status = gw_reduce(NULL, frames, sizes, 2, NULL, out, sizeof out, &size);
        CHECK(status == (good ? GW_OK : GW_ERR_FRAME_MISMATCH), "%u and one workers: %d, %s", workers, status,
              gw_last_error());
        assert_true(good || strstr(gw_last_error(), "the frames hold 32768 workers; at most 32767"));
    }
    /* The owner looks at as many frames as there can be, one by one. Here all are rank 0's. One frame more is
     * refused. */
    const void **many = room_for(GW_MAX_WORKERS + 1, sizeof *many);
    size_t *many_sizes = room_for(GW_MAX_WORKERS + 1, sizeof *many_sizes), size;
    for (uint32_t i = 0; i <= GW_MAX_WORKERS; i++)
        many[i] = pushes[0].bytes, many_sizes[i] = pushes[0].size;
    for (uint32_t more = 0; more < 2; more++) {
        uint8_t out[256];
        CHECK(gw_reduce(NULL, many, many_sizes, GW_MAX_WORKERS + more, NULL, out, sizeof out, &size) ==
                  (more ? GW_ERR_ARGUMENT : GW_ERR_FRAME_MISMATCH),
              "%u frames: %s", GW_MAX_WORKERS + more, gw_last_error());
        assert_non_null(strstr(gw_last_error(), more ? "1 to 32767 frames" : "two frames come from the same rank, 0"));
    }
    free(many);
    free(many_sizes);
    free(average.bytes);
    for (uint32_t r = 0; r < 2; r++)
        free(pushes[r].bytes);
    gw_encoder_destroy(encoder);
}

/* ---- random bytes ------------------------------------------------------------------------------------ */

static void mutate(gw_context *context, struct whole_frame frame, uint64_t count, uint64_t seed, uint32_t tally[2])
{
    struct numbers numbers = numbers_from(seed);
    struct whole_frame altered = frame_of(frame.bytes, frame.size);
    for (uint32_t k = numbers_below(&numbers, 4) + 1; k && altered.size > 56; k--) {
        /* Half of the altered bytes are near the front, where tables and heads of chunks stand. */
        uint32_t span = (uint32_t)altered.size - 56, near = span < 24 ? span : 24;
        uint32_t at = 56 + (numbers_below(&numbers, 2) ? numbers_below(&numbers, near) : numbers_below(&numbers, span));
        altered.bytes[at] =
            (uint8_t)(numbers_below(&numbers, 2) ? numbers_word(&numbers)
                                                 : altered.bytes[at] ^ 1u << numbers_below(&numbers, 8));
    }
    if (seed % 5 == 0) { /* also another code, other flags, or more workers */
        altered.bytes[4] = (uint8_t)numbers_below(&numbers, 9);
        altered.bytes[5] ^= (uint8_t)(1u << numbers_below(&numbers, 3));
        if (altered.bytes[5] & GW_FLAG_AVERAGE)
            gw_put16(altered.bytes + 6, (uint16_t)(1 + numbers_below(&numbers, seed % 2 ? 5 : GW_MAX_WORKERS)));
    }
    gw_frame_reseal(altered.bytes, altered.size);
    gw_status status = readers_say(context, altered, count);
    CHECK(status == GW_OK || status == GW_ERR_FRAME_PAYLOAD || status == GW_ERR_FRAME_FIELD, "seed %llu: %d",
          (unsigned long long)seed, status);
    tally[status == GW_OK]++;
    free(altered.bytes);
}

TEST(random_bytes_do_no_harm)
{
    const char *pushes[] = {"code=2bit", "code=base3", "code=mask", "entropy=off",
                            "",          "bucket=128", "share=off", "entropy=on,bucket=100",
                            "entropy=on"};
    const char *pulls[] = {"pull=packed", "", "", "pull=packed,entropy=on", "", "entropy=off", "entropy=on"};
    const uint64_t lengths[] = {5, 300, 66000};
    gw_context *two = context_of(2);
    uint32_t tally[2] = {0, 0};
    for (size_t l = 0; l < 3; l++)
        for (size_t k = 0; k < 9; k++) {
            uint64_t n = lengths[l];
            char spec[80];
            snprintf(spec, sizeof spec, "ternary:clip=0%s%s", *pushes[k] ? "," : "", pushes[k]);
            gw_encoder *encoder = encoder_of(NULL, spec, n);
            float *g = room_for(n, sizeof *g), *shared = room_for(n, sizeof *shared);
            numbers_fill_bell(k, g, n);
            for (uint64_t i = 0; i < n; i++)
                shared[i] = k % 2 ? 90 : 6;
            struct whole_frame frames[3];
            for (uint32_t r = 0; r < 3; r++)
                frames[r] = encode_whole(encoder, g, n, shared, (gw_draw){.rank = r});
            snprintf(spec, sizeof spec, "ternary:%s", pulls[k % 7]);
            struct whole_frame average = reduce_frames(NULL, frames, 3, spec);
            for (uint64_t seed = 1; seed <= (n > 1000 ? 60 : 700); seed++) {
                mutate(seed % 3 ? NULL : two, frames[seed % 3], n, seed + 10000 * k, tally);
                mutate(seed % 3 ? NULL : two, average, n, seed + 10000 * k, tally);
            }
            for (uint32_t r = 0; r < 3; r++)
                free(frames[r].bytes);
            free(average.bytes);
            free(g);
            free(shared);
            gw_encoder_destroy(encoder);
        }
    gw_context_destroy(two);
    CHECK(tally[0] > 3000 && tally[1] > 3000, "%u refused, %u accepted", tally[0], tally[1]);
}

RUN_TESTS("hostile", NULL, NULL)
