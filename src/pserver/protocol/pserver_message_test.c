/* Tests the heads of requests and answers. What is written must read back. Heads that are cut, have an altered byte, or
 * a field that is not possible, must do no harm. Bytes are read from blocks that end where the message ends, so that
 * sanitizers see a read beyond the end. */
#include "outcome.h"
#include "pserver/protocol/message.h"

#include <math.h>
#include <stdlib.h>

enum { AT_VERSION = 4, AT_OPERATION = 5, AT_ZERO = 7, AT_STATUS = 24, FIXED = 28, N = 17, MOST = GW_PS_MOST_NAME };

/* ---- examples: the longest and the shortest of every kind --------------------------------------------------- */

/* A request or an answer. */
struct head {
    bool is_answer;
    struct gw_ps_request request;
    struct gw_ps_answer answer;
};

static struct head examples[2 * N];

#define FOR_EXAMPLES(h) for (const struct head *h = examples; h < examples + 2 * N; h++)

#define DEEP                                                                                                           \
    {                                                                                                                  \
        .n_dims = 8, .dims = { 1, 2, 3, 4, 5, 6, 7, UINT64_MAX }                                                       \
    }

static int make_examples(void **state)
{
    static const struct {
        struct gw_ps_request request;
        size_t key, scale_key, codec, optimizer; /* lengths of names */
    } requests[N] = {
        {{.operation = GW_PS_HELLO, .incarnation = UINT64_MAX - 5}, 0, 0, 0, 0},
        {{.operation = GW_PS_INIT, .type = GW_PS_FRAME, .shape = DEEP}, MOST, 0, MOST, MOST},
        {{.operation = GW_PS_INIT}, 1, 0, 0, 0},
        {{.operation = GW_PS_PUSH, .rate = 0.1}, 200, 0, 0, 0},
        {{.operation = GW_PS_PULL, .method = GW_PS_DECODE_AVERAGE}, MOST, MOST, 0, 0},
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
    static const struct gw_ps_answer answers[N] = {
        {.operation = GW_PS_HELLO,
         .n_workers = 32767,
         .max_key_bytes = UINT64_MAX,
         .mode = GW_PS_ASYNC,
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
    (void)state;
    for (int i = 0; i < N; i++) {
        struct gw_ps_request *request = &examples[i].request;
        struct gw_ps_answer *answer = &examples[N + i].answer;
        *request = requests[i].request, *answer = answers[i];
        examples[N + i].is_answer = true;
        request->id = answer->id = 0x0123456789ABCDEF, request->number = answer->number = 0x3EDCBA9876543210;
        request->timeout_ms = 0xDEADBEEF;
        memset(request->key, 'k', requests[i].key), memset(request->scale_key, 'k', requests[i].scale_key);
        memset(request->codec, 'k', requests[i].codec), memset(request->optimizer, 'k', requests[i].optimizer);
    }
    memset(examples[N + 6].answer.sentence, 's', GW_PS_SENTENCE - 1);
    return 0;
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

static size_t write_head(const struct head *head, uint8_t *at)
{
    return head->is_answer ? gw_ps_answer_write(at, &head->answer) : gw_ps_request_write(at, &head->request);
}

static gw_status read_head(const uint8_t *bytes, size_t n, bool is_answer, struct head *out)
{
    uint8_t *exact = malloc(n ? n : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, n);
    out->is_answer = is_answer;
    const gw_status status =
        is_answer ? gw_ps_answer_read(exact, n, &out->answer) : gw_ps_request_read(exact, n, &out->request);
    free(exact);
    return status;
}

static bool is_error_of_messages(gw_status status)
{
    return status == GW_ERR_FRAME_CUT || status == GW_ERR_FRAME_MAGIC || status == GW_ERR_FRAME_VERSION ||
           status == GW_ERR_FRAME_FIELD;
}

/* ---- tests -------------------------------------------------------------------------------------------------- */

TEST(heads_come_back)
{
    struct head back;
    uint8_t bytes[GW_PS_HEAD_BYTES];
    FOR_EXAMPLES(h)
    {
        const size_t n = write_head(h, bytes);
        CHECK(n >= FIXED && n <= GW_PS_HEAD_BYTES && memcmp(bytes, h->is_answer ? "GWPA\6" : "GWPQ\6", 5) == 0,
              "example %d: %zu bytes", (int)(h - examples), n);
        ok(read_head(bytes, n, h->is_answer, &back));
        CHECK(h->is_answer ? same_answer(&back.answer, &h->answer) : same_request(&back.request, &h->request),
              "example %d", (int)(h - examples));
    }
}

/* The bytes of one example of each, as docs/pserver-protocol.md has them, a field after the other. */
TEST(heads_are_as_documented)
{
    static const struct {
        struct head head;
        const char *bytes;
    } cases[] = {
        {{.request = {.operation = GW_PS_PULL,
                      .method = GW_PS_DECODE_AVERAGE,
                      .id = 9,
                      .timeout_ms = 1000,
                      .key = "xy",
                      .scale_key = "s",
                      .n_parts = 3}},
         "47575051 06 04 07 00 0900000000000000 0000000000000000 E8030000 027879 0173 03000000"},
        {{.is_answer = true,
          .answer =
              {.operation = GW_PS_PULL, .type = GW_PS_FLOAT32, .id = 9, .number = 5, .shape = {1, {8}}, .n_pushes = 2}},
         "47575041 06 04 01 00 0900000000000000 0500000000000000 00000000 010800000000000000 02000000"},
        {{.is_answer = true,
          .answer = {.operation = GW_PS_PUSH, .id = 9, .status = GW_ERR_TIMEOUT, .sentence = "late"}},
         "47575041 06 03 00 00 0900000000000000 0000000000000000 C4FFFFFF 6C617465"},
    };
    for (int i = 0; i < 3; i++) {
        uint8_t bytes[GW_PS_HEAD_BYTES];
        const size_t n = write_head(&cases[i].head, bytes);
        size_t at = 0;
        for (const char *c = cases[i].bytes; *c; c += 2, at++) {
            char digits[3] = "";
            c += *c == ' ';
            memcpy(digits, c, 2);
            CHECK(at < n && bytes[at] == strtoul(digits, NULL, 16), "case %d, byte %zu is %02X", i, at, bytes[at]);
        }
        assert_int_equal(at, n);
    }
}

TEST(every_cut_is_refused)
{
    struct head head;
    uint8_t bytes[GW_PS_HEAD_BYTES + 1] = {0};
    FOR_EXAMPLES(h)
    {
        const size_t n = write_head(h, bytes);
        const bool is_error = h->is_answer && h->answer.status < 0; /* a sentence that was cut is a shorter sentence */
        for (size_t cut = 0; cut < n; cut++) {
            const gw_status status = read_head(bytes, cut, h->is_answer, &head);
            CHECK(is_error && cut >= FIXED ? status == GW_OK : is_error_of_messages(status),
                  "example %d cut to %zu of %zu bytes: %d", (int)(h - examples), cut, n, status);
            CHECK(h->is_answer || head.request.id == (cut < FIXED ? 0 : h->request.id),
                  "example %d cut to %zu of %zu bytes: another id", (int)(h - examples), cut, n);
        }
        const gw_status status = read_head(bytes, n + 1, h->is_answer, &head);
        CHECK(status == GW_ERR_FRAME_FIELD || (is_error && n < FIXED + GW_PS_SENTENCE - 1),
              "example %d and a byte more: %d", (int)(h - examples), status);
    }
}

/* If an altered head is accepted, it must say the same after it was written and read again. */
TEST(every_altered_byte_is_harmless)
{
    struct head head;
    uint8_t bytes[GW_PS_HEAD_BYTES], again[GW_PS_HEAD_BYTES];
    FOR_EXAMPLES(h)
    {
        const size_t n = write_head(h, bytes);
        for (size_t i = 0; i < 255 * n; i++) {
            const size_t at = i / 255;
            const uint8_t change = (uint8_t)(1 + i % 255);
            bytes[at] ^= change;
            const gw_status status = read_head(bytes, n, h->is_answer, &head);
            CHECK(at >= 5 && status == GW_OK ? true : is_error_of_messages(status), "example %d, byte %zu ^ %u: %d",
                  (int)(h - examples), at, change, status);
            if (h->is_answer)
                CHECK(strlen(head.answer.sentence) < GW_PS_SENTENCE && head.answer.operation < GW_PS_OPERATIONS,
                      "example %d, byte %zu ^ %u", (int)(h - examples), at, change);
            else if (status == GW_OK)
                CHECK(write_head(&head, again) == n && memcmp(again, bytes, n) == 0, "example %d, byte %zu ^ %u",
                      (int)(h - examples), at, change);
            bytes[at] ^= change;
        }
    }
}

/* What becomes of a request as its fields say. */
static gw_status read_back(const struct gw_ps_request *request)
{
    uint8_t bytes[GW_PS_HEAD_BYTES];
    struct head head;
    return read_head(bytes, gw_ps_request_write(bytes, request), false, &head);
}

TEST(fields_that_cannot_be)
{
    /* Bytes of an INIT of "key", whose shape has 8 dimensions, that are changed to something else. */
    static const struct {
        size_t at;
        uint8_t value;
        size_t longer; /* the message is, by so many bytes that are 0 */
        gw_status status;
        const char *words;
    } rows[] = {
        {AT_VERSION, GW_PS_VERSION + 1, 0, GW_ERR_FRAME_VERSION, "version 6"},
        {AT_ZERO, 9, 0, GW_ERR_FRAME_FIELD, ""},
        {FIXED + 2, 0, 0, GW_ERR_FRAME_FIELD, ""}, /* a name with a zero byte */
        {FIXED, 255, 0, GW_ERR_FRAME_FIELD, ""},   /* one that is longer than the rest of the message */
        {FIXED + 4, 9, 8, GW_ERR_FRAME_FIELD, ""}, /* more dimensions than are allowed, with their bytes */
        {FIXED + 4, 255, 8, GW_ERR_FRAME_FIELD, ""},
        {FIXED + 4, 8, 0, GW_OK, ""},
    };
    const struct gw_ps_request init = {.operation = GW_PS_INIT, .type = 1, .id = 3, .key = "key", .shape = DEEP};
    uint8_t bytes[GW_PS_HEAD_BYTES] = {0};
    struct head head;
    size_t n = gw_ps_request_write(bytes, &init);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const uint8_t before = bytes[rows[i].at];
        bytes[rows[i].at] = rows[i].value;
        refused(read_head(bytes, n + rows[i].longer, false, &head), rows[i].status, rows[i].words);
        assert_int_equal(head.request.id, 3); /* the id was read, so the server can answer */
        if (rows[i].at == FIXED + 2)
            assert_string_equal(head.request.key, "");
        bytes[rows[i].at] = before;
    }
    for (uint32_t operation = 0; operation < 256; operation++) {
        bytes[AT_OPERATION] = (uint8_t)operation;
        refused(read_head(bytes, n, false, &head), operation == GW_PS_INIT ? GW_OK : GW_ERR_FRAME_FIELD, "");
        const bool is_request = operation && operation < GW_PS_OPERATIONS && operation != GW_PS_ASK;
        assert_int_equal(head.request.operation, is_request ? operation : GW_PS_WHO); /* that of the answer */
    }
    /* A rate is a finite float32 from 0 up. */
    static const double bad_rates[] = {-1, -0.0, 1e39, INFINITY, NAN};
    for (size_t i = 0; i < sizeof bad_rates / sizeof *bad_rates; i++)
        refused(read_back(&(struct gw_ps_request){.operation = GW_PS_PUSH, .key = "key", .rate = bad_rates[i]}),
                GW_ERR_FRAME_FIELD, "");
    /* The largest number that the byte for a code may have. */
    static const struct {
        enum gw_ps_operation operation;
        uint8_t most;
    } codes[] = {{GW_PS_PUT, 1},     {GW_PS_GET, 0},   {GW_PS_JOIN, 1}, {GW_PS_PUSH, GW_PS_PUSH_PENDING},
                 {GW_PS_VERDICT, 0}, {GW_PS_AGREE, 0}, {GW_PS_BYE, 0},  {GW_PS_MEMBERS, 0},
                 {GW_PS_ADMIT, 0}};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        for (uint8_t code = 0; code <= codes[i].most + 1; code++)
            refused(read_back(&(struct gw_ps_request){.operation = codes[i].operation, .code = code, .key = "key"}),
                    code <= codes[i].most ? GW_OK : GW_ERR_FRAME_FIELD, "");
    /* A request is read as an answer: its magic is another one. */
    bytes[AT_OPERATION] = GW_PS_INIT;
    refused(read_head(bytes, n, true, &head), GW_ERR_FRAME_MAGIC, "");
    n = gw_ps_answer_write(bytes, &(struct gw_ps_answer){.operation = GW_PS_PUSH});
    bytes[AT_STATUS] = 1; /* GW_PS_WAIT, which no server answers */
    refused(read_head(bytes, n, true, &head), GW_ERR_FRAME_FIELD, "");
    /* Anybody can send a sentence, and it goes to a terminal. So control characters become question marks. */
    n = gw_ps_answer_write(bytes, &(struct gw_ps_answer){.operation = GW_PS_PUSH,
                                                         .status = GW_ERR_PEER,
                                                         .sentence = "a\x1b[2Jb\nc\x7f \xc3\xa4"});
    ok(read_head(bytes, n, true, &head));
    assert_string_equal(head.answer.sentence, "a?[2Jb?c? \xc3\xa4");
}

RUN_TESTS("pserver_message", make_examples, NULL)
