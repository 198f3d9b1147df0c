/* Tests an exchange among bare links that say what the test wants: first messages that differ, messages that cannot
 * be, runs in any order, twice, or not at all. */
#include "codec/codec.h"
#include "exchange_stage.h"
#include "shortage.h"

/* ---- the first message ------------------------------------------------------------------------------- */

TEST(every_line_must_be_the_same)
{
    static const char *const lines[] = {"codec = none",         "seed = 9",
                                        "tensors = 2",          "elements = 6000",
                                        "names and sizes = ",   "groups = 2",
                                        "tensors of groups = ", "ranks of machines = ",
                                        "first owner = ",       "net = lenet",
                                        "data = digits"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        struct stage *s = stage_begin("none", 3, 0, NULL);
        char *line = strstr(s->hello + MESSAGE_HEADER, lines[i]), words[400], own[100];
        assert_non_null(line);
        size_t length = strcspn(line, "\n");
        snprintf(own, sizeof own, "%.*s", (int)length, line);
        line[length - 1] ^= 1;
        snprintf(words, sizeof words, "rank 1 has %.*s, and this rank %s; all", (int)length, line, own);
        say(s, 1, s->hello, s->hello_bytes);
        stage_ends(s, stage_submit(s), GW_ERR_ARGUMENT, words);
    }
}

TEST(a_first_message_is_checked)
{
    static const struct {
        int at; /* of the byte that is altered; -1: none */
        uint8_t to;
        int cut, more; /* bytes at the end */
        const char *words;
    } cases[] = {
        {2, 9, 0, 0, "messages of version 9, and this rank of version 8"},
        {1, 1, 0, 0, "is not lines of text"},
        {4, 1, 0, 0, "is not lines of text"},
        {8, 1, 0, 0, "is not lines of text"},
        {12, 1, 0, 0, "is not lines of text"},
        {MESSAGE_HEADER, 27, 0, 0, "is not lines of text"},
        {MESSAGE_HEADER, 127, 0, 0, "is not lines of text"},
        {-1, 0, 1, 0, "is not lines of text"},
        {-1, 0, 14, 0, "rank 1 has nothing in its place, and this rank data = digits"},
        {-1, 0, 0, 7, "rank 1 has more 6, and this rank nothing in its place"},
        {-1, 0, 0, 7 * HELLO_MOST, "is not lines of text"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct stage *s = stage_begin("none", 3, 0, NULL);
        size_t n_bytes = s->hello_bytes + (size_t)cases[c].more - (size_t)cases[c].cut;
        char *bytes = malloc(n_bytes + 8);
        memcpy(bytes, s->hello, cases[c].cut ? n_bytes : s->hello_bytes);
        for (int i = 0; i < cases[c].more; i += 7)
            memcpy(bytes + s->hello_bytes + i, "more 6\n", 7);
        if (cases[c].at >= 0)
            bytes[cases[c].at] = (char)cases[c].to;
        say(s, 1, bytes, n_bytes);
        free(bytes);
        stage_ends(s, stage_submit(s), 0, cases[c].words);
    }
    struct stage *s = stage_begin("none", 3, 0, NULL);
    say(s, 1, s->hello, s->hello_bytes);
    say(s, 1, s->hello, s->hello_bytes);
    stage_ends(s, stage_submit(s), GW_ERR_FRAME_FIELD, "out of turn");
}

TEST(who_says_nothing_is_named)
{
    struct stage *s = stage_begin("none", 3, 200, NULL);
    say(s, 2, s->hello, s->hello_bytes);
    stage_ends(s, stage_submit(s), GW_ERR_TIMEOUT, "nothing has come from rank 1 yet");
}

/* Nothing has to be sent, and still no step is done before all members were compared. */
TEST(a_step_waits_for_the_comparison)
{
    gw_link links[2];
    gw_codec *codec;
    gw_exchange *ex;
    gw_tensor tensor = {.id = 0};
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = codec,
                                   .tensors = &tensor,
                                   .n_tensors = 1,
                                   .link = links[0],
                                   .timeout_ms = 200};
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_OK);
    assert_int_equal(gw_exchange_begin(ex, 0), GW_OK);
    assert_int_equal(gw_exchange_submit(ex, 0, NULL), GW_OK);
    assert_int_equal(gw_exchange_wait(ex, NULL), GW_ERR_TIMEOUT);
    assert_non_null(strstr(gw_last_error(), "nothing has come from rank 1"));
    gw_exchange_destroy(ex);
    gw_link_destroy(&links[0]);
    gw_link_destroy(&links[1]);
    gw_codec_destroy(codec);
}

/* Real members, of which the last one is another: all of them end, and hear which line it is. */
TEST(members_that_differ_end)
{
    gw_codec *codecs[2];
    static const uint32_t together[] = {0, 0};
    gw_tensor tensors[] = {{.name = "a", .id = 0, .n_elems = 50}, {.name = "b", .id = 1, .n_elems = 60}}, other[2];
    assert_int_equal(gw_codec_parse(NULL, "ternary", &codecs[0]), GW_OK);
    assert_int_equal(gw_codec_parse(NULL, "ternary:clip=2", &codecs[1]), GW_OK);
    static const char *const words[] = {"codec = ternary:",    "seed = 4",        "tensors = 1",
                                        "elements = 111",      "names and sizes", "names and sizes",
                                        "names and sizes",     "groups = 1",      "net = vgg",
                                        "nothing in its place"};
    for (int c = 0; c < 10; c++) {
        gw_link links[3];
        gw_exchange *exchanges[3];
        float gradients[3][2][64] = {{{0}}};
        gw_status statuses[3];
        char sentences[3][512];
        bool found = false;
        assert_int_equal(gw_link_local_create(NULL, 3, links), GW_OK);
        for (uint32_t r = 0; r < 3; r++) {
            gw_exchange_options o = {.struct_bytes = sizeof o,
                                     .codec = codecs[0],
                                     .tensors = tensors,
                                     .n_tensors = 2,
                                     .link = links[r],
                                     .seed = 3,
                                     .identity = "net = lenet\n"};
            memcpy(other, tensors, sizeof other);
            if (r == 2) {
                o.tensors = other;
                o.codec = codecs[c == 0];
                o.seed += c == 1;
                o.n_tensors -= c == 2;
                other[1].n_elems += c == 3;
                other[0].name = c == 4 ? "c" : "a";
                other[1].last_layer = c == 5;
                other[0].n_elems += c == 6;
                other[1].n_elems -= c == 6;
                o.group_of = c == 7 ? together : NULL;
                o.identity = c == 8 ? "net = vgg" : c == 9 ? NULL : o.identity;
            }
            assert_int_equal(gw_exchange_create(NULL, &o, &exchanges[r]), GW_OK);
        }
        for (uint32_t r = 0; r < 3; r++) {
            statuses[r] = gw_exchange_begin(exchanges[r], 0);
            for (uint32_t t = 0; t < (r == 2 && c == 2 ? 1u : 2u) && statuses[r] == GW_OK; t++)
                statuses[r] = gw_exchange_submit(exchanges[r], t, gradients[r][t]);
        }
        for (uint32_t r = 0; r < 3; r++) {
            if (statuses[r] == GW_OK)
                statuses[r] = gw_exchange_wait(exchanges[r], NULL);
            assert_int_equal(statuses[r] < 0, 1);
            assert_int_equal(gw_exchange_begin(exchanges[r], 1), statuses[r]);
            snprintf(sentences[r], sizeof sentences[r], "%s", gw_last_error());
            found = found || statuses[r] == GW_ERR_ARGUMENT;
            if (!strstr(sentences[r], words[c]) || !strstr(sentences[r], "all members must have the same"))
                fail_msg("rank %u: \"%s\" instead of \"%s\"", r, sentences[r], words[c]);
        }
        assert_true(found);
        for (uint32_t r = 0; r < 3; r++)
            gw_exchange_destroy(exchanges[r]);
        for (uint32_t r = 0; r < 3; r++)
            gw_link_destroy(&links[r]);
    }
    gw_codec_destroy(codecs[0]);
    gw_codec_destroy(codecs[1]);
}

TEST(an_identity_is_checked)
{
    gw_link link;
    gw_codec *codec;
    gw_exchange *ex;
    gw_tensor tensor = {.id = 0, .n_elems = 5};
    char *longest = malloc(HELLO_MOST + 1);
    memset(longest, 'x', HELLO_MOST);
    longest[HELLO_MOST] = 0;
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 1, &link), GW_OK);
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = codec,
                                   .tensors = &tensor,
                                   .n_tensors = 1,
                                   .link = link,
                                   .identity = longest};
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "identity takes 20480 bytes"));
    options.identity = "bell = \a";
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "lines of text"));
    static const char *const nameless[] = {"lenet",           "x", "net = lenet\ndigits", "= lenet", " = lenet",
                                           "net = lenet\n\n", "\n"};
    for (size_t i = 0; i < sizeof nameless / sizeof *nameless; i++) {
        options.identity = nameless[i];
        assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_ERR_ARGUMENT);
        assert_non_null(strstr(gw_last_error(), "without \"=\""));
    }
    longest[1] = '=';
    longest[15000] = 0;
    options.identity = longest;
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_OK);
    gw_exchange_destroy(ex);
    gw_codec_destroy(codec); /* also with the longest specification */
    char spec[GW_OPTION_TEXT_BYTES + 16] = "ternary:skip=";
    memset(spec + strlen(spec), 'n', GW_OPTION_TEXT_BYTES - 1);
    assert_int_equal(gw_codec_parse(NULL, spec, &codec), GW_OK);
    options.codec = codec;
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_OK);
    gw_exchange_destroy(ex);
    gw_link_destroy(&link);
    gw_codec_destroy(codec);
    free(longest);
}

/* ---- messages that cannot be ------------------------------------------------------------------------- */

struct nonsense {
    const char *what; /* codec; and, after ": ", the words that must stand in the sentence */
    struct message_header header;
    uint32_t n_body;
    uint32_t fill; /* every word of the body */
    int copies;
    size_t cut;    /* send only that many bytes; 0: all */
    uint8_t after; /* once rank 0 has sent this type; 0: before it begins */
};

static void send_nonsense(struct stage *s, const struct nonsense *n)
{
    size_t n_bytes = MESSAGE_HEADER + n->n_body;
    char *bytes = malloc(n_bytes);
    message_header_write(bytes, &n->header);
    for (uint32_t i = 0; i + 4 <= n->n_body; i += 4)
        gw_put32(bytes + MESSAGE_HEADER + i, n->fill);
    for (int copy = 0; copy < n->copies; copy++)
        say(s, 1, bytes, n->cut ? n->cut : n_bytes);
    free(bytes);
}

static void meet_nonsense(const struct nonsense *n, bool hello)
{
    char spec[32];
    const char *words = strstr(n->what, ": ") + 2;
    snprintf(spec, sizeof spec, "%.*s", (int)(words - 2 - n->what), n->what);
    struct stage *s = stage_begin(spec, 3, 0, NULL);
    for (uint32_t r = 1; r < 3 && hello; r++)
        say(s, r, s->hello, s->hello_bytes);
    if (!n->after)
        send_nonsense(s, n);
    gw_status status = stage_submit(s);
    if (n->after) {
        gw_message message;
        assert_true(hear(s, 1, n->after, &message));
        gw_message_free(message.bytes);
        send_nonsense(s, n);
    }
    stage_ends(s, status, 0, words);
}

TEST(nonsense_is_refused)
{
    const uint32_t one = 0x3F800000, nan = 0x7FC00000, minus = 0xBF800000, tiny = 0;
    const struct nonsense cases[] = {
        {"none: 3 bytes", {MESSAGE_PUSH, 0, 1, 0, 0, 7}, 0, 0, 1, 3, 0},
        {"none: 0 bytes", {MESSAGE_PUSH, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: type 0", {0, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: type 9", {9, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: type 5", {MESSAGE_WAKE, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: farewell of 16 bytes", {MESSAGE_LEAVE, 1, 1, 0, 0, 0}, 0, 0, 1, 0, 0},
        {"none: farewell of 16 bytes", {MESSAGE_LEAVE, 0, 1, 1, 0, 0}, 0, 0, 1, 0, 0},
        {"none: farewell of 16 bytes", {MESSAGE_LEAVE, 0, 1, 0, 1, 0}, 0, 0, 1, 0, 0},
        {"none: farewell of 16 bytes", {MESSAGE_LEAVE, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: farewell of 16 bytes", {MESSAGE_LEAVE, 0, 1, 0, 0, 0}, 0, 0, 2, 0, 0},
        {"none: farewell of 20 bytes", {MESSAGE_LEAVE, 0, 1, 0, 0, 0}, 4, 0, 1, 0, 0},
        {"none: flags 2", {MESSAGE_PUSH, 2, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: run 3", {MESSAGE_PUSH, 0, 1, 0, 3, 7}, 0, 0, 1, 0, 0},
        {"none: run 4294967295", {MESSAGE_PULL, 0, 1, 0, UINT32_MAX, 7}, 0, 0, 1, 0, 0},
        {"ternary: run 1", {MESSAGE_STATS, 0, 1, 0, 1, 7}, 4, one, 1, 0, 0},
        {"ternary: run 1", {MESSAGE_SHARED, 0, 1, 1, 1, 7}, 4, one, 1, 0, 0},
        {"none: group 2", {MESSAGE_PUSH, 0, 1, 2, 0, 7}, 0, 0, 1, 0, 0},
        {"none: number 3 of the exchange", {MESSAGE_PUSH, 0, 3, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: number 0 of the exchange", {MESSAGE_PUSH, 0, 0, 0, 0, 7}, 0, 0, 1, 0, MESSAGE_PUSH},
        {"none: step 8", {MESSAGE_PUSH, 0, 1, 0, 0, 8}, 0, 0, 2, 0, 0},
        {"none: rank 1's push of tensor 0", {MESSAGE_PUSH, 0, 1, 0, 1, 7}, 0, 0, 1, 0, 0},
        {"none: rank 1's push of tensor 0", {MESSAGE_PUSH, 0, 1, 0, 2, 7}, 4096, 0x12345678, 1, 0, 0},
        {"none: verdict takes 16 bytes", {MESSAGE_PUSH, 1, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: tensor 9 of rank 9", {MESSAGE_PUSH, 1, 1, 0, 0, 7}, 8, 9, 1, 0, 0},
        {"none: pushed run 2 of group 0 out of turn", {MESSAGE_PUSH, 1, 1, 0, 2, 7}, 8, 0, 2, 0, 0},
        {"none: pushed run 0 of group 1 out of turn", {MESSAGE_PUSH, 1, 1, 1, 0, 7}, 8, 0, 1, 0, 0},
        {"none: says that it waits, in an invalid message of 16", {MESSAGE_WAITING, 1, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: says that it waits, in an invalid message of 16", {MESSAGE_WAITING, 0, 1, 1, 0, 7}, 0, 0, 1, 0, 0},
        {"none: says that it waits, in an invalid message of 16", {MESSAGE_WAITING, 0, 1, 0, 1, 7}, 0, 0, 1, 0, 0},
        {"none: says that it waits, in an invalid message of 20", {MESSAGE_WAITING, 0, 1, 0, 0, 7}, 4, 0, 1, 0, 0},
        {"none: statistics of group 0 out of turn", {MESSAGE_STATS, 0, 1, 0, 0, 7}, 4, one, 1, 0, 0},
        {"none: shared numbers of group 0 out of turn", {MESSAGE_SHARED, 0, 1, 0, 0, 7}, 4, one, 1, 0, 0},
        {"none: averages of run 0 of group 0 out of turn", {MESSAGE_PULL, 0, 1, 0, 0, 7}, 4, one, 1, 0, 0},
        {"none: averages of run 0 of group 0 out of turn", {MESSAGE_PULL, 0, 1, 0, 0, 7}, 4, one, 1, 0, MESSAGE_PUSH},
        {"none: averages of run 1 of group 1 out of turn", {MESSAGE_PULL, 0, 1, 1, 1, 7}, 4, one, 1, 0, 0},
        {"none: rank 1's average of tensor 1", {MESSAGE_PULL, 0, 1, 1, 0, 7}, 4096, 0x12345678, 1, 0, MESSAGE_PUSH},
        {"none: rank 1's average of tensor 1", {MESSAGE_PULL, 0, 1, 1, 0, 7}, 0, 0, 1, 0, MESSAGE_PUSH},
        {"none: verdict takes 20 bytes", {MESSAGE_PULL, 1, 1, 1, 0, 7}, 4, 0, 1, 0, MESSAGE_PUSH},
        {"ternary: take 24 bytes, and must take 20", {MESSAGE_STATS, 0, 1, 0, 0, 7}, 8, one, 1, 0, 0},
        {"ternary: take 16 bytes, and must take 20", {MESSAGE_STATS, 0, 1, 0, 0, 7}, 0, one, 1, 0, 0},
        {"ternary: hold nan", {MESSAGE_STATS, 0, 1, 0, 0, 7}, 4, nan, 1, 0, 0},
        {"ternary: hold -1", {MESSAGE_STATS, 0, 1, 0, 0, 7}, 4, minus, 1, 0, 0},
        {"ternary: statistics of group 0 out of turn", {MESSAGE_STATS, 0, 1, 0, 0, 7}, 4, one, 2, 0, 0},
        {"ternary: shared numbers of group 1 out of turn", {MESSAGE_SHARED, 0, 1, 1, 0, 7}, 4, one, 1, 0, 0},
        {"ternary: take 24 bytes, and must take 20", {MESSAGE_SHARED, 0, 1, 1, 0, 7}, 8, one, 1, 0, MESSAGE_STATS},
        {"ternary: hold nan", {MESSAGE_SHARED, 0, 1, 1, 0, 7}, 4, nan, 1, 0, MESSAGE_STATS},
        {"ternary: hold 0 where this rank has 3", {MESSAGE_SHARED, 0, 1, 1, 0, 7}, 4, tiny, 1, 0, MESSAGE_STATS},
        {"ternary: verdict takes 20 bytes", {MESSAGE_SHARED, 1, 1, 1, 0, 7}, 4, one, 1, 0, MESSAGE_STATS},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct nonsense n = cases[c];
        if (strstr(n.what, ": 0 bytes")) { /* rank 1 must still be named */
            struct stage *s = stage_begin("none", 3, 0, NULL);
            say(s, 1, "", 0);
            stage_ends(s, stage_submit(s), GW_ERR_FRAME_CUT, "0 bytes");
            continue;
        }
        meet_nonsense(&n, true);
    }
    meet_nonsense(
        &(struct nonsense){"none: before it said what it is part of", {MESSAGE_PUSH, 1, 1, 0, 0, 7}, 8, 0, 1, 0, 0},
        false);
}

/* ---- runs in any order, twice, not at all ------------------------------------------------------------ */

/* ALTERED: the last byte of push 1 and of average 1. LONGER: these have four bytes too many. SWAPPED: push 1's frame
 * comes in the message of run 2. */
enum trouble { GOOD, ALTERED, LONGER, SWAPPED };

/* What rank 1 does with its three pushes of tensor 0 and its three averages of tensor 1. */
struct conduct {
    uint32_t order[4]; /* of pushes: 9 is none */
    uint32_t pulls[4]; /* of averages: likewise */
    enum trouble trouble;
    const char *words; /* in the sentence that ends it; NULL: all is well */
};

/* One frame of rank 1 behind a header, and in `pull` its average with rank 0's push. */
static size_t encode(struct stage *s, gw_encoder *encoder, uint32_t tensor, uint32_t run, const gw_message *push,
                     char *out, size_t capacity)
{
    static char own[64 * 1024];
    float gradient[ELEMS];
    gw_draw draw = {.seed = 9, .rank = 1, .step = STEP};
    size_t n_bytes, begin = (size_t)run * CUT, count = run + 1 < RUNS ? CUT : ELEMS - begin;
    for (uint32_t i = 0; i < ELEMS; i++)
        gradient[i] = (float)(i % 5);
    assert_int_equal(gw_encoder_measure(encoder, gradient, NULL, 0, NULL), GW_OK);
    assert_int_equal(gw_encoder_encode(encoder, gradient, NULL, &draw, begin, count, own, sizeof own, &n_bytes), GW_OK);
    message_header_write(out, &(struct message_header){push ? MESSAGE_PULL : MESSAGE_PUSH, 0, 1, tensor, run, STEP});
    if (push) {
        const void *frames[] = {message_body(push->bytes), own};
        size_t sizes[] = {push->n_bytes - MESSAGE_HEADER, n_bytes};
        gw_reduce_options options = {.struct_bytes = sizeof options, .codec = s->codec};
        assert_int_equal(gw_reduce(NULL, frames, sizes, 2, &options, message_body(out), capacity - MESSAGE_HEADER,
                                   &n_bytes),
                         GW_OK);
    } else {
        memcpy(message_body(out), own, n_bytes);
    }
    return MESSAGE_HEADER + n_bytes;
}

static void behave(const struct conduct *conduct)
{
    static char bytes[64 * 1024];
    struct stage *s = stage_begin("none", 2, 300, NULL);
    gw_encoder *encoders[2];
    gw_message pushes[RUNS];
    for (int t = 0; t < 2; t++)
        assert_int_equal(gw_encoder_create(NULL, s->codec, &s->tensors[t], &encoders[t]), GW_OK);
    say(s, 1, s->hello, s->hello_bytes);
    gw_status status = stage_submit(s);
    for (uint32_t i = 0; i < RUNS; i++) { /* pushes of tensor 1 come in the order of elements */
        assert_true(hear(s, 1, MESSAGE_PUSH, &pushes[i]));
        struct message_header h = message_header_read(pushes[i].bytes);
        assert_true(h.group == 1 && h.run == i && h.nth_step == 1 && h.step == STEP);
    }
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t run = conduct->order[i];
        if (run < RUNS) {
            size_t n_bytes = encode(s, encoders[0], 0, run, NULL, bytes, sizeof bytes);
            if (conduct->trouble == SWAPPED && run == 1)
                gw_put32(bytes + 8, 2);
            bytes[n_bytes - 1] ^= (char)(conduct->trouble == ALTERED && run == 1);
            say(s, 1, bytes, n_bytes + (conduct->trouble == LONGER && run == 1 ? 4 : 0));
        }
        run = conduct->pulls[i];
        if (run < RUNS) {
            size_t n_bytes = encode(s, encoders[1], 1, run, &pushes[run], bytes, sizeof bytes);
            bytes[n_bytes - 1] ^= (char)(conduct->trouble == ALTERED && run == 1);
            say(s, 1, bytes, n_bytes + (conduct->trouble == LONGER && run == 1 ? 4 : 0));
        }
    }
    for (uint32_t i = 0; i < RUNS; i++)
        gw_message_free(pushes[i].bytes);
    for (int t = 0; t < 2; t++)
        gw_encoder_destroy(encoders[t]);
    if (conduct->words) {
        stage_ends(s, status, 0, conduct->words);
        return;
    }
    assert_int_equal(status, GW_OK);
    assert_int_equal(gw_exchange_wait(s->ex, NULL), GW_OK);
    for (uint32_t i = 0; i < 2 * ELEMS; i++) {
        float mine = (float)(i % 7) - 3, other = (float)(i % ELEMS % 5);
        assert_true(s->gradients[i / ELEMS][i % ELEMS] == (mine + other) / 2);
    }
    stage_end(s);
}

TEST(runs_come_in_any_order_but_once)
{
    static const struct conduct conducts[] = {
        {{0, 1, 2, 9}, {0, 1, 2, 9}, GOOD, NULL},
        {{2, 0, 1, 9}, {1, 2, 0, 9}, GOOD, NULL},
        {{2, 1, 0, 9}, {2, 1, 0, 9}, GOOD, NULL},
        {{0, 1, 2, 9}, {9, 9, 9, 9}, ALTERED, "rank 1's push of tensor 0: the frame was altered"},
        {{9, 9, 9, 9}, {0, 1, 2, 9}, ALTERED, "rank 1's average of tensor 1: the frame was altered"},
        {{0, 1, 2, 9}, {9, 9, 9, 9}, LONGER, "rank 1's push has 4 bytes after its last frame"},
        {{9, 9, 9, 9}, {0, 1, 2, 9}, LONGER, "rank 1's averages of group 1 have 4 bytes after the last frame"},
        {{1, 1, 2, 0}, {9, 9, 9, 9}, GOOD, "rank 1 pushed run 1 of group 0 out of turn"},
        {{9, 9, 9, 9}, {2, 2, 1, 0}, GOOD, "rank 1 sent averages of run 2 of group 1 out of turn"},
        {{0, 2, 9, 9}, {0, 1, 2, 9}, GOOD, "no gradients of group 0 came from rank 1 within 300 ms"},
        {{0, 1, 2, 9}, {0, 2, 9, 9}, GOOD, "no averages of group 1 came from rank 1 within 300 ms"},
        {{0, 1, 9, 9},
         {9, 9, 9, 9},
         SWAPPED,
         "rank 1's push of tensor 0: the frame holds tensor 0, 1024 elements from 1024"},
    };
    for (size_t c = 0; c < sizeof conducts / sizeof conducts[0]; c++)
        behave(&conducts[c]);
}

/* Ranks 1 and 2 are on one machine: what it sends of run 0 to rank 0 goes by way of rank 1, of run 1 by way of rank 2.
 */
TEST(relays_are_the_ones_in_turn)
{
    static const uint32_t machines[] = {0, 4, 4};
    static const struct nonsense cases[] = {
        {"none: pushed run 1 of group 0 out of turn", {MESSAGE_PUSH, 1, 1, 0, 1, 7}, 8, 0, 1, 0, 0},
        {"none: pushed run 0 of group 0 out of turn", {MESSAGE_PUSH, 1, 1, 0, 0, 7}, 8, 0, 2, 0, 0},
        {"none: rank 1's push of tensor 0", {MESSAGE_PUSH, 0, 1, 0, 2, 7}, 4096, 0x12345678, 1, 0, 0},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct stage *s = stage_begin("none", 3, 0, machines);
        for (uint32_t r = 1; r < 3; r++)
            say(s, r, s->hello, s->hello_bytes);
        send_nonsense(s, &cases[c]);
        stage_ends(s, stage_submit(s), 0, strstr(cases[c].what, ": ") + 2);
    }
    struct stage *s = stage_begin("none", 3, 200, machines);
    for (uint32_t r = 1; r < 3; r++)
        say(s, r, s->hello, s->hello_bytes);
    stage_ends(s, stage_submit(s), GW_ERR_TIMEOUT, "no gradients of group 0 came from ranks 1 and 2 within 200 ms");
}

/* A link says how many members it has. If they are too many, the exchange must refuse it before it takes memory. */
TEST(sizes_of_links_at_their_limits)
{
    static const struct {
        uint32_t rank, size;
        bool good;
    } cases[] = {{0, 2, true},
                 {1, 2, true},
                 {2, 2, false},
                 {0, 0, false},
                 {GW_MAX_WORKERS - 1, GW_MAX_WORKERS, true},
                 {0, GW_MAX_WORKERS + 1, false}};
    gw_codec *codec;
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct shortage shortage = {0};
        const gw_allocator allocator = {short_alloc, short_free, &shortage};
        const gw_context_options options = {.struct_bytes = sizeof options, .allocator = &allocator, .n_threads = 1};
        const gw_tensor tensor = {.name = "it", .n_elems = 5};
        gw_context *context;
        gw_exchange *ex;
        gw_link links[2];
        assert_int_equal(gw_context_create(&options, &context), GW_OK);
        assert_int_equal(gw_link_local_create(context, 2, links), GW_OK);
        gw_exchange_options chosen = {
            .struct_bytes = sizeof chosen, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[0]};
        chosen.link.rank = cases[i].rank;
        chosen.link.size = cases[i].size;
        shortage.fail_at = shortage.calls + 2; /* right after the size was looked at */
        const gw_status status = gw_exchange_create(context, &chosen, &ex);
        if (status != (cases[i].good ? GW_ERR_MEMORY : GW_ERR_ARGUMENT))
            fail_msg("rank %u of %u: %d, \"%s\"", cases[i].rank, cases[i].size, status, gw_last_error());
        /* What is wrong may be put right: the others hear nothing of it. Of a member without memory they do. */
        gw_message message;
        assert_int_equal(gw_link_recv(&links[cases[i].rank == 0], 1, &message) == GW_ERR_TIMEOUT, !cases[i].good);
        for (int r = 0; r < 2; r++)
            gw_link_destroy(&links[r]);
        gw_context_destroy(context);
        assert_int_equal(shortage.live, 0);
    }
    gw_codec_destroy(codec);
}

RUN_TESTS("nonsense", NULL, NULL)
