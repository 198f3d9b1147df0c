/* Tests the heads of requests and answers. What is written must read back. Heads that are cut, have an altered byte, or
 * a field that is not possible, must do no harm. Bytes are read from blocks that end where the message ends, so that
 * sanitizers see a read beyond the end. */
#include "checks.h"
#include "pserver/protocol/message.h"
#include "wire/bytes.h"

#include <gradwire/codec.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AT_VERSION = 4, AT_OPERATION = 5, AT_ZERO = 7, AT_STATUS = 24, FIXED = 28, N = 17 };

static gw_status read_request(const uint8_t *bytes, size_t n, struct gw_ps_request *out)
{
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    gw_status status = gw_ps_request_read(exact, n, out);
    free(exact);
    return status;
}

static gw_status read_answer(const uint8_t *bytes, size_t n, struct gw_ps_answer *out)
{
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    gw_status status = gw_ps_answer_read(exact, n, out);
    free(exact);
    return status;
}

/* ---- examples: the longest and the shortest of every kind --------------------------------------------------- */

static void fill_name(char *name, size_t length)
{
    memset(name, 'k', length);
    name[length] = 0;
}

#define DEEP                                                                                                           \
    {                                                                                                                  \
        .n_dims = 8, .dims = { 1, 2, 3, 4, 5, 6, 7, UINT64_MAX }                                                       \
    }

static size_t request_examples(struct gw_ps_request out[N])
{
    static const struct {
        struct gw_ps_request request;
        size_t key, scale_key, codec, optimizer; /* lengths of names */
    } rows[N] = {
        {{.operation = GW_PS_HELLO, .incarnation = UINT64_MAX - 5}, 0, 0, 0, 0},
        {{.operation = GW_PS_INIT, .type = GW_PS_FRAME, .shape = DEEP},
         GW_PS_MOST_NAME,
         0,
         GW_PS_MOST_NAME,
         GW_PS_MOST_NAME},
        {{.operation = GW_PS_INIT}, 1, 0, 0, 0},
        {{.operation = GW_PS_PUSH, .rate = 0.1}, 200, 0, 0, 0},
        {{.operation = GW_PS_PULL, .method = GW_PS_DECODE_AVERAGE}, GW_PS_MOST_NAME, GW_PS_MOST_NAME, 0, 0},
        {{.operation = GW_PS_PULL}, 3, 0, 0, 0},
        {{.operation = GW_PS_BYE}, 0, 0, 0, 0},
        {{.operation = GW_PS_PUSH}, 0, 0, 0, 0}, /* no name at all: the store refuses it */
        {{.operation = GW_PS_PUSH, .push_kind = GW_PS_PUSH_REFUSED, .refusal = UINT64_MAX - 1}, 2, 0, 0, 0},
        {{.operation = GW_PS_AGREE}, 0, 0, 0, 0},
        {{.operation = GW_PS_JOIN, .others_have_begun = 1}, 0, 0, 0, 0},
        {{.operation = GW_PS_ADMIT, .rank = 0x89ABCDEF}, 0, 0, 0, 0},
        {{.operation = GW_PS_MEMBERS}, 0, 0, 0, 0},
        {{.operation = GW_PS_PUT}, 7, 0, 0, 0},
        {{.operation = GW_PS_GET}, 0, 0, 0, 0},
        {{.operation = GW_PS_PUSH, .push_kind = GW_PS_PUSH_PENDING, .rate = 0.5}, 30, 0, 0, 0},
        {{.operation = GW_PS_VERDICT, .refusal = UINT64_MAX - 2}, 0, 0, 0, 0},
    };
    for (int i = 0; i < N; i++) {
        out[i] = rows[i].request;
        out[i].id = 0x0123456789ABCDEF, out[i].number = 0xFEDCBA9876543210, out[i].timeout_ms = 0xDEADBEEF;
        fill_name(out[i].key, rows[i].key), fill_name(out[i].scale_key, rows[i].scale_key);
        fill_name(out[i].codec, rows[i].codec), fill_name(out[i].optimizer, rows[i].optimizer);
    }
    return N;
}

static size_t answer_examples(struct gw_ps_answer out[N])
{
    static const struct gw_ps_answer rows[N] = {
        {.operation = GW_PS_HELLO,
         .n_workers = 32767,
         .max_key_bytes = UINT64_MAX,
         .mode = GW_PS_STALE,
         .staleness = UINT32_MAX,
         .backup = 77,
         .timeout_ms = 0x01020304},
        {.operation = GW_PS_INIT},
        {.operation = GW_PS_PUSH},
        {.operation = GW_PS_PULL, .type = GW_PS_INT64, .shape = DEEP, .n_pushes = 77},
        {.operation = GW_PS_PULL, .n_pushes = 1},
        {.operation = GW_PS_WHO},
        {.operation = GW_PS_PUSH, .status = GW_ERR_TIMEOUT}, /* with the longest sentence */
        {.operation = GW_PS_BYE, .status = GW_ERR_PEER},
        {.operation = GW_PS_PULL, .status = GW_ERR_NONFINITE},
        {.operation = GW_PS_AGREE},
        {.operation = GW_PS_JOIN},
        {.operation = GW_PS_ASK},
        {.operation = GW_PS_MEMBERS, .run_flags = GW_PS_HAS_BEGUN},
        {.operation = GW_PS_PUT},
        {.operation = GW_PS_GET},
        {.operation = GW_PS_VERDICT},
        {.operation = GW_PS_VERDICT, .status = GW_ERR_ORDER},
    };
    for (int i = 0; i < N; i++) {
        out[i] = rows[i];
        out[i].id = 0x0123456789ABCDEF, out[i].number = 0xFEDCBA9876543210;
    }
    memset(out[6].sentence, 's', GW_PS_SENTENCE - 1);
    return N;
}

static bool same_request(const struct gw_ps_request *a, const struct gw_ps_request *b)
{
    return a->operation == b->operation && a->code == b->code && a->id == b->id && a->number == b->number &&
           a->timeout_ms == b->timeout_ms && strcmp(a->key, b->key) == 0 && strcmp(a->scale_key, b->scale_key) == 0 &&
           strcmp(a->codec, b->codec) == 0 && strcmp(a->optimizer, b->optimizer) == 0 && a->rate == b->rate &&
           a->refusal == b->refusal && gw_ps_shapes_equal(&a->shape, &b->shape) && a->incarnation == b->incarnation &&
           a->rank == b->rank;
}

static bool same_answer(const struct gw_ps_answer *a, const struct gw_ps_answer *b)
{
    return a->operation == b->operation && a->code == b->code && a->id == b->id && a->number == b->number &&
           a->status == b->status && strcmp(a->sentence, b->sentence) == 0 &&
           gw_ps_shapes_equal(&a->shape, &b->shape) && a->n_pushes == b->n_pushes && a->n_workers == b->n_workers &&
           a->max_key_bytes == b->max_key_bytes && a->mode == b->mode && a->staleness == b->staleness &&
           a->backup == b->backup && a->timeout_ms == b->timeout_ms;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

static void heads_come_back(void **state)
{
    (void)state;
    struct gw_ps_request requests[N], request;
    struct gw_ps_answer answers[N], answer;
    uint8_t bytes[GW_PS_HEAD_BYTES];
    for (size_t i = 0, n = request_examples(requests); i < n; i++) {
        size_t size = gw_ps_request_write(bytes, &requests[i]);
        CHECK(size >= FIXED && size <= GW_PS_HEAD_BYTES && memcmp(bytes, "GWPQ\5", 5) == 0, "request %zu: %zu bytes", i,
              size);
        CHECK(read_request(bytes, size, &request) == GW_OK && same_request(&request, &requests[i]), "request %zu: %s",
              i, gw_last_error());
    }
    for (size_t i = 0, n = answer_examples(answers); i < n; i++) {
        size_t size = gw_ps_answer_write(bytes, &answers[i]);
        CHECK(size >= FIXED && size <= GW_PS_HEAD_BYTES && memcmp(bytes, "GWPA\5", 5) == 0, "answer %zu: %zu bytes", i,
              size);
        CHECK(read_answer(bytes, size, &answer) == GW_OK && same_answer(&answer, &answers[i]), "answer %zu: %s", i,
              gw_last_error());
    }
}

/* The bytes of one example of each, as docs/pserver-protocol.md has them. */
static void heads_are_as_documented(void **state)
{
    (void)state;
    uint8_t bytes[GW_PS_HEAD_BYTES];
    static const uint8_t pull[] = {'G', 'W', 'P', 'Q', 5, 4,    7, 0, 9, 0, 0,   0,   0, 0,   0, 0, 0, 0, 0,
                                   0,   0,   0,   0,   0, 0xE8, 3, 0, 0, 2, 'x', 'y', 1, 's', 3, 0, 0, 0};
    static const uint8_t pulled[] = {'G', 'W', 'P', 'A', 5, 4, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0,
                                     0,   0,   0,   0,   0, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0};
    static const uint8_t late[] = {'G', 'W', 'P', 'A', 5, 3, 0, 0, 9,    0,    0,    0,    0,   0,   0,   0,
                                   0,   0,   0,   0,   0, 0, 0, 0, 0xC4, 0xFF, 0xFF, 0xFF, 'l', 'a', 't', 'e'};
    const struct gw_ps_request request = {.operation = GW_PS_PULL,
                                          .method = GW_PS_DECODE_AVERAGE,
                                          .id = 9,
                                          .timeout_ms = 1000,
                                          .key = "xy",
                                          .scale_key = "s",
                                          .n_parts = 3};
    const struct gw_ps_answer value = {.operation = GW_PS_PULL,
                                       .code = GW_PS_FLOAT32,
                                       .id = 9,
                                       .number = 5,
                                       .shape = {.n_dims = 1, .dims = {8}},
                                       .n_pushes = 2},
                              error = {.operation = GW_PS_PUSH, .id = 9, .status = GW_ERR_TIMEOUT, .sentence = "late"};
    assert_int_equal(gw_ps_request_write(bytes, &request), sizeof pull);
    assert_memory_equal(bytes, pull, sizeof pull);
    assert_int_equal(gw_ps_answer_write(bytes, &value), sizeof pulled);
    assert_memory_equal(bytes, pulled, sizeof pulled);
    assert_int_equal(gw_ps_answer_write(bytes, &error), sizeof late);
    assert_memory_equal(bytes, late, sizeof late);
}

static bool is_error_of_messages(gw_status status)
{
    return status == GW_ERR_FRAME_CUT || status == GW_ERR_FRAME_MAGIC || status == GW_ERR_FRAME_VERSION ||
           status == GW_ERR_FRAME_FIELD;
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    struct gw_ps_request requests[N], request;
    struct gw_ps_answer answers[N], answer;
    uint8_t bytes[GW_PS_HEAD_BYTES + 1] = {0};
    for (size_t i = 0, n = request_examples(requests); i < n; i++) {
        size_t size = gw_ps_request_write(bytes, &requests[i]);
        for (size_t cut = 0; cut < size; cut++) {
            gw_status status = read_request(bytes, cut, &request);
            CHECK(is_error_of_messages(status), "request %zu cut to %zu of %zu bytes: %d", i, cut, size, status);
            CHECK(request.id == (cut < FIXED ? 0 : requests[i].id), "request %zu cut to %zu of %zu bytes: id %llx", i,
                  cut, size, (unsigned long long)request.id);
        }
        CHECK(read_request(bytes, size + 1, &request) == GW_ERR_FRAME_FIELD, "request %zu and a byte more", i);
    }
    for (size_t i = 0, n = answer_examples(answers); i < n; i++) {
        size_t size = gw_ps_answer_write(bytes, &answers[i]);
        for (size_t cut = 0; cut < size; cut++) {
            gw_status status = read_answer(bytes, cut, &answer);
            bool sentence = answers[i].status < 0 && cut >= FIXED; /* a sentence that was cut is a shorter sentence */
            CHECK(sentence ? status == GW_OK : is_error_of_messages(status), "answer %zu cut to %zu of %zu bytes: %d",
                  i, cut, size, status);
        }
        gw_status status = read_answer(bytes, size + 1, &answer);
        CHECK(status == GW_ERR_FRAME_FIELD || (answers[i].status < 0 && size < FIXED + GW_PS_SENTENCE - 1),
              "answer %zu and a byte more: %d", i, status);
    }
}

/* If an altered head is accepted, it must say the same after it was written and read again. */
static void every_altered_byte_is_harmless(void **state)
{
    (void)state;
    struct gw_ps_request requests[N], request;
    struct gw_ps_answer answers[N], answer;
    uint8_t bytes[GW_PS_HEAD_BYTES], again[GW_PS_HEAD_BYTES];
    for (size_t i = 0, n = request_examples(requests); i < n; i++) {
        size_t size = gw_ps_request_write(bytes, &requests[i]);
        for (size_t at = 0; at < size; at++)
            for (uint32_t change = 1; change < 256; change++) {
                bytes[at] ^= (uint8_t)change;
                gw_status status = read_request(bytes, size, &request);
                CHECK(status == GW_OK || is_error_of_messages(status), "request %zu, byte %zu ^ %u: %d", i, at, change,
                      status);
                CHECK(at >= 5 || status < 0, "request %zu, byte %zu ^ %u is taken", i, at, change);
                if (status == GW_OK)
                    CHECK(gw_ps_request_write(again, &request) == size && memcmp(again, bytes, size) == 0,
                          "request %zu, byte %zu ^ %u", i, at, change);
                bytes[at] ^= (uint8_t)change;
            }
    }
    for (size_t i = 0, n = answer_examples(answers); i < n; i++) {
        size_t size = gw_ps_answer_write(bytes, &answers[i]);
        for (size_t at = 0; at < size; at++)
            for (uint32_t change = 1; change < 256; change++) {
                bytes[at] ^= (uint8_t)change;
                gw_status status = read_answer(bytes, size, &answer);
                CHECK(status == GW_OK || is_error_of_messages(status), "answer %zu, byte %zu ^ %u: %d", i, at, change,
                      status);
                CHECK(at >= 5 || status < 0, "answer %zu, byte %zu ^ %u is taken", i, at, change);
                CHECK(strlen(answer.sentence) < GW_PS_SENTENCE && answer.shape.n_dims <= 255,
                      "answer %zu, byte %zu ^ %u", i, at, change);
                bytes[at] ^= (uint8_t)change;
            }
    }
}

static void fields_that_cannot_be(void **state)
{
    (void)state;
    uint8_t bytes[GW_PS_HEAD_BYTES];
    struct gw_ps_request request;
    struct gw_ps_answer answer;
    struct gw_ps_request init = {.operation = GW_PS_INIT, .type = 1, .id = 3, .key = "key", .shape = DEEP};
    size_t size = gw_ps_request_write(bytes, &init);
    bytes[AT_VERSION] = GW_PS_VERSION + 1;
    assert_int_equal(read_request(bytes, size, &request), GW_ERR_FRAME_VERSION);
    assert_non_null(strstr(gw_last_error(), "version 5"));
    assert_int_equal(request.id, 3); /* the id was read, so the server can answer */
    bytes[AT_VERSION] = GW_PS_VERSION;
    bytes[AT_ZERO] = 9;
    assert_int_equal(read_request(bytes, size, &request), GW_ERR_FRAME_FIELD);
    bytes[AT_ZERO] = 0;
    for (uint32_t operation = 0; operation < 256; operation++) {
        bytes[AT_OPERATION] = (uint8_t)operation;
        assert_int_equal(read_request(bytes, size, &request), operation == GW_PS_INIT ? GW_OK : GW_ERR_FRAME_FIELD);
        assert_true(request.operation >= GW_PS_HELLO && request.operation < GW_PS_OPERATIONS);
    }
    bytes[AT_OPERATION] = GW_PS_INIT;
    /* A rate is a finite float32 from 0 up. */
    static const double bad_rates[] = {-1, -0.0, 1e39, INFINITY, NAN};
    for (size_t i = 0; i < sizeof bad_rates / sizeof *bad_rates; i++) {
        uint8_t pushed[GW_PS_HEAD_BYTES];
        const struct gw_ps_request push = {.operation = GW_PS_PUSH, .key = "key", .rate = bad_rates[i]};
        size_t n = gw_ps_request_write(pushed, &push);
        CHECK(read_request(pushed, n, &request) == GW_ERR_FRAME_FIELD, "a rate of %g", bad_rates[i]);
    }
    /* The largest number that the byte for a code may have. */
    static const struct {
        enum gw_ps_operation operation;
        uint8_t most;
    } codes[] = {{GW_PS_PUT, 1}, {GW_PS_GET, 1}, {GW_PS_JOIN, 1}, {GW_PS_PUSH, GW_PS_PUSH_PENDING}, {GW_PS_VERDICT, 0}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        for (uint8_t code = 0; code <= codes[i].most + 1; code++) {
            uint8_t sent[GW_PS_HEAD_BYTES];
            const struct gw_ps_request one = {.operation = codes[i].operation, .code = code, .key = "key"};
            const size_t n = gw_ps_request_write(sent, &one);
            CHECK(read_request(sent, n, &request) == (code <= codes[i].most ? GW_OK : GW_ERR_FRAME_FIELD),
                  "operation %d, code %u", codes[i].operation, code);
        }
    /* A name that holds a zero byte, and a name that is longer than the rest of the message. */
    bytes[FIXED + 2] = 0;
    assert_int_equal(read_request(bytes, size, &request), GW_ERR_FRAME_FIELD);
    assert_string_equal(request.key, "");
    bytes[FIXED + 2] = 'e';
    bytes[FIXED] = 255;
    assert_int_equal(read_request(bytes, size, &request), GW_ERR_FRAME_FIELD);
    bytes[FIXED] = 3;
    /* A shape has more dimensions than are allowed, and the message has the bytes for them. */
    memset(bytes + size, 0, 8 * 9);
    bytes[FIXED + 4] = 9;
    assert_int_equal(read_request(bytes, size + 8, &request), GW_ERR_FRAME_FIELD);
    bytes[FIXED + 4] = 255;
    assert_int_equal(read_request(bytes, size + 8, &request), GW_ERR_FRAME_FIELD);
    bytes[FIXED + 4] = 8;
    assert_int_equal(read_request(bytes, size, &request), GW_OK);
    /* A request is read as an answer: its magic is another one. */
    assert_int_equal(read_answer(bytes, size, &answer), GW_ERR_FRAME_MAGIC);
    assert_int_equal(gw_ps_request_read("", 0, &request), GW_ERR_FRAME_CUT);
    size = gw_ps_answer_write(bytes, &(struct gw_ps_answer){.operation = GW_PS_PUSH});
    bytes[AT_STATUS] = 1; /* GW_PS_WAIT, which no server answers */
    assert_int_equal(read_answer(bytes, size, &answer), GW_ERR_FRAME_FIELD);
    /* Anybody can send a sentence, and it goes to a terminal. So control characters become question marks. */
    struct gw_ps_answer error = {.operation = GW_PS_PUSH,
                                 .status = GW_ERR_PEER,
                                 .sentence = "a\x1b[2Jb\nc\x7f \xc3\xa4"};
    size = gw_ps_answer_write(bytes, &error);
    assert_int_equal(read_answer(bytes, size, &answer), GW_OK);
    assert_string_equal(answer.sentence, "a?[2Jb?c? \xc3\xa4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_come_back),
        cmocka_unit_test(heads_are_as_documented),
        cmocka_unit_test(every_cut_is_refused),
        cmocka_unit_test(fields_that_cannot_be),
        cmocka_unit_test(every_altered_byte_is_harmless),
    };
    return cmocka_run_group_tests_name("pserver_message", tests, NULL, NULL);
}
