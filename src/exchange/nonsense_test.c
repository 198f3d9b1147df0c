/* Tests an exchange among bare links that say what the test wants: first messages that differ, messages that cannot
 * be, runs in any order, twice, or not at all. Rank 0 is the exchange; rank 2, if there is one, hears what it tells
 * the others. */
#include "checks.h"
#include "exchange/state.h"
#include "link/message.h"
#include "shortage.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ELEMS 3000u
#define CUT 1024u /* three runs of each tensor */
#define RUNS 3u
#define STEP 7u

struct stage {
    uint32_t n;
    gw_link links[3];
    gw_codec *codec;
    gw_exchange *ex;
    gw_tensor tensors[2]; /* tensor t is group t, and rank t's */
    float gradients[2][ELEMS];
    char *hello; /* rank 0's, header and lines */
    size_t hello_bytes;
    atomic_bool breaks; /* a send of rank 0 to rank 1 fails. Rank 1's farewell waits to be received then */
};

static void say(struct stage *s, uint32_t from, const void *bytes, size_t n_bytes)
{
    void *copy = gw_message_alloc(NULL, n_bytes);
    memcpy(copy, bytes, n_bytes);
    s->links[from].ops->send(s->links[from].self, 0, copy, n_bytes, 1000); /* rank 0 may have ended */
}

/* A farewell of `from`. It tells who left first, after which step. */
static void say_leave(struct stage *s, uint32_t from, uint32_t first, uint32_t its_step)
{
    uint8_t bytes[MESSAGE_LEAVE_BYTES];
    message_header_write(bytes, &(struct message_header){.type = MESSAGE_LEAVE, .nth_step = (uint16_t)its_step});
    gw_put32(bytes + MESSAGE_HEADER, first);
    gw_put32(bytes + MESSAGE_HEADER + 4, its_step);
    say(s, from, bytes, sizeof bytes);
}

/* What rank 0 sends to `to` next, of a type; others are dropped. false: it has failed, and gw_last_error() says why. */
static bool hear(struct stage *s, uint32_t to, uint8_t type, gw_message *message)
{
    while (s->links[to].ops->recv(s->links[to].self, 10000, message) == GW_OK) {
        if (message_header_read(message->bytes).type == type)
            return true;
        gw_message_free(message->bytes);
    }
    return false;
}

/* ---- rank 0's link: a local one, whose connection to rank 1 may break ---- */

static gw_status stage_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct stage *s = self;
    if (to != 1 || !atomic_load(&s->breaks))
        return s->links[0].ops->send(s->links[0].self, to, bytes, n_bytes, timeout_ms);
    gw_message_free(bytes);
    say_leave(s, 1, 1, 0);
    return gw_fail(GW_ERR_PEER, "rank 1 is not there");
}

static gw_status stage_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    struct stage *s = self;
    return s->links[0].ops->recv(s->links[0].self, timeout_ms, message);
}

static void stage_fail(void *self, gw_status status, const char *why)
{
    struct stage *s = self;
    (s->links[0].ops->fail)(s->links[0].self, status, why); /* cmocka has a macro of this name */
}

static void stage_close(void *self)
{
    struct stage *s = self;
    s->links[0].ops->close(s->links[0].self);
}

static const gw_link_ops stage_ops = {
    .name = "stage", .send = stage_send, .recv = stage_recv, .fail = stage_fail, .close = stage_close};

/* Every bare link has heard rank 0's first message; none has said anything. */
static struct stage *stage_begin(const char *spec, uint32_t n, uint32_t timeout_ms, const uint32_t *machine_of)
{
    struct stage *s = calloc(1, sizeof *s);
    gw_message message;
    s->n = n;
    assert_int_equal(gw_link_local_create(NULL, n, s->links), GW_OK);
    assert_int_equal(gw_codec_parse(NULL, spec, &s->codec), GW_OK);
    s->tensors[0] = (gw_tensor){.name = "first", .id = 0, .n_elems = ELEMS};
    s->tensors[1] = (gw_tensor){.name = "second", .id = 1, .n_elems = ELEMS};
    for (uint32_t i = 0; i < 2 * ELEMS; i++)
        s->gradients[i / ELEMS][i % ELEMS] = (float)(i % 7) - 3;
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = s->codec,
                                   .tensors = s->tensors,
                                   .n_tensors = 2,
                                   .link = {.ops = &stage_ops, .self = s, .size = n},
                                   .seed = 9,
                                   .timeout_ms = timeout_ms,
                                   .machine_of = machine_of,
                                   .identity = "net = lenet\ndata = digits"};
    assert_int_equal(gw_exchange_create_cut(NULL, &options, CUT, &s->ex), GW_OK);
    for (uint32_t r = 1; r < n; r++) {
        assert_true(hear(s, r, MESSAGE_HELLO, &message));
        if (r == 1) {
            s->hello = malloc(message.n_bytes + 1);
            memcpy(s->hello, message.bytes, s->hello_bytes = message.n_bytes);
            s->hello[s->hello_bytes] = 0;
        }
        gw_message_free(message.bytes);
    }
    assert_int_equal(gw_exchange_begin(s->ex, STEP), GW_OK);
    return s;
}

static gw_status stage_submit(struct stage *s)
{
    gw_status status = gw_exchange_submit(s->ex, 1, s->gradients[1]);
    return status < 0 ? status : gw_exchange_submit(s->ex, 0, s->gradients[0]);
}

static void stage_end(struct stage *s)
{
    gw_exchange_destroy(s->ex);
    gw_codec_destroy(s->codec);
    for (uint32_t r = 0; r < s->n; r++)
        s->links[r].ops->destroy(s->links[r].self);
    free(s->hello);
    free(s);
}

/* The exchange ends with `want` (0: any error) and words in its sentence that name rank 1; rank 2 hears of ranks 0
 * and 1. */
static void stage_ends(struct stage *s, gw_status status, gw_status want, const char *words)
{
    char sentence[512];
    gw_message message;
    if (status == GW_OK)
        status = gw_exchange_wait(s->ex, NULL);
    snprintf(sentence, sizeof sentence, "%s", gw_last_error());
    if (status >= 0 || (want && status != want) || !strstr(sentence, words) ||
        !(strstr(sentence, "rank 1") || strstr(sentence, "ranks 1")))
        fail_msg("status %d, \"%s\" instead of \"%s\"", status, sentence, words);
    if (s->n == 3) {
        assert_false(hear(s, 2, 0, &message));
        const char *messenger = status == GW_ERR_TIMEOUT ? "rank 0 gave up: " : "rank 0 failed: ";
        if (!strstr(gw_last_error(), messenger) ||
            !(strstr(gw_last_error(), "rank 1") || strstr(gw_last_error(), "ranks 1")))
            fail_msg("rank 2 hears \"%s\" and not \"%s\"", gw_last_error(), sentence);
    }
    stage_end(s);
}

/* ---- the first message ------------------------------------------------------------------------------- */

static void every_line_must_be_the_same(void **state)
{
    (void)state;
    static const char *const lines[] = {"codec = none",         "seed = 9",
                                        "tensors = 2",          "elements = 6000",
                                        "names and sizes = ",   "groups = 2",
                                        "tensors of groups = ", "ranks of machines = ",
                                        "net = lenet",          "data = digits"};
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

static void a_first_message_is_checked(void **state)
{
    (void)state;
    static const struct {
        int at; /* of the byte that is altered; -1: none */
        uint8_t to;
        int cut, more; /* bytes at the end */
        const char *words;
    } cases[] = {
        {2, 9, 0, 0, "messages of version 9, and this rank of version 4"},
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

static void who_says_nothing_is_named(void **state)
{
    (void)state;
    struct stage *s = stage_begin("none", 3, 200, NULL);
    say(s, 2, s->hello, s->hello_bytes);
    stage_ends(s, stage_submit(s), GW_ERR_TIMEOUT, "nothing has come from rank 1 yet");
}

/* Nothing has to be sent, and still no step is done before all members were compared. */
static void a_step_waits_for_the_comparison(void **state)
{
    (void)state;
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
    links[0].ops->destroy(links[0].self);
    links[1].ops->destroy(links[1].self);
    gw_codec_destroy(codec);
}

/* Real members, of which the last one is another: all of them end, and hear which line it is. */
static void members_that_differ_end(void **state)
{
    (void)state;
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
            links[r].ops->destroy(links[r].self);
    }
    gw_codec_destroy(codecs[0]);
    gw_codec_destroy(codecs[1]);
}

static void an_identity_is_checked(void **state)
{
    (void)state;
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
    assert_non_null(strstr(gw_last_error(), "identity takes 16384 bytes"));
    options.identity = "bell = \a";
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "lines of text"));
    static const char *const nameless[] = {"lenet",    "net = lenet\ndigits", "= lenet",
                                           " = lenet", "net = lenet\n\n",     "\n"};
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
    link.ops->destroy(link.self);
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

static void nonsense_is_refused(void **state)
{
    (void)state;
    const uint32_t one = 0x3F800000, nan = 0x7FC00000, minus = 0xBF800000, tiny = 0;
    const struct nonsense cases[] = {
        {"none: 3 bytes", {MESSAGE_PUSH, 0, 1, 0, 0, 7}, 0, 0, 1, 3, 0},
        {"none: 0 bytes", {MESSAGE_PUSH, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: type 0", {0, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: type 9", {9, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: type 5", {MESSAGE_WAKE, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
        {"none: type 8", {8, 0, 1, 0, 0, 7}, 0, 0, 1, 0, 0},
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

/* What rank 1 does with its three pushes of tensor 0 and its three averages of tensor 1. */
struct conduct {
    uint32_t order[4]; /* of pushes: 9 is none */
    uint32_t pulls[4]; /* of averages: likewise */
    bool swapped;      /* push 1's frame in the message of run 2 */
    bool altered;      /* the last byte of push 1 and of average 1 */
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
            if (conduct->swapped && run == 1)
                gw_put32(bytes + 8, 2);
            bytes[n_bytes - 1] ^= (char)(conduct->altered && run == 1);
            say(s, 1, bytes, n_bytes);
        }
        run = conduct->pulls[i];
        if (run < RUNS) {
            size_t n_bytes = encode(s, encoders[1], 1, run, &pushes[run], bytes, sizeof bytes);
            bytes[n_bytes - 1] ^= (char)(conduct->altered && run == 1);
            say(s, 1, bytes, n_bytes);
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

static void runs_come_in_any_order_but_once(void **state)
{
    (void)state;
    static const struct conduct conducts[] = {
        {{0, 1, 2, 9}, {0, 1, 2, 9}, false, false, NULL},
        {{2, 0, 1, 9}, {1, 2, 0, 9}, false, false, NULL},
        {{2, 1, 0, 9}, {2, 1, 0, 9}, false, false, NULL},
        {{0, 1, 2, 9}, {9, 9, 9, 9}, false, true, "rank 1's push of tensor 0: the frame was altered"},
        {{9, 9, 9, 9}, {0, 1, 2, 9}, false, true, "rank 1's average of tensor 1: the frame was altered"},
        {{1, 1, 2, 0}, {9, 9, 9, 9}, false, false, "rank 1 pushed run 1 of group 0 out of turn"},
        {{9, 9, 9, 9}, {2, 2, 1, 0}, false, false, "rank 1 sent averages of run 2 of group 1 out of turn"},
        {{0, 2, 9, 9}, {0, 1, 2, 9}, false, false, "no gradients of group 0 came from rank 1 within 300 ms"},
        {{0, 1, 2, 9}, {0, 2, 9, 9}, false, false, "no averages of group 1 came from rank 1 within 300 ms"},
        {{0, 1, 9, 9},
         {9, 9, 9, 9},
         true,
         false,
         "rank 1's push of tensor 0: the frame holds tensor 0, 1024 elements from 1024"},
    };
    for (size_t c = 0; c < sizeof conducts / sizeof conducts[0]; c++)
        behave(&conducts[c]);
}

/* Ranks 1 and 2 are on one machine: what it sends of run 0 to rank 0 goes by way of rank 1, of run 1 by way of rank 2.
 */
static void relays_are_the_ones_in_turn(void **state)
{
    (void)state;
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
    /* A member that others wait for directly is named at the first deadline; a relay at the second. */
    struct stage *s = stage_begin("none", 3, 200, machines);
    for (uint32_t r = 1; r < 3; r++)
        say(s, r, s->hello, s->hello_bytes);
    stage_ends(s, stage_submit(s), GW_ERR_TIMEOUT, "no gradients of group 0 came from ranks 1 and 2 within 200 ms");
}

/* A member that leaves and stays on the link repeats nothing and sends nothing more. Links do not wait until a farewell
 * is received. */
static void a_farewell_is_the_last_word(void **state)
{
    (void)state;
    uint8_t push[MESSAGE_HEADER];
    gw_message message;
    struct stage *s = stage_begin("none", 3, 0, NULL);
    for (uint32_t r = 1; r < 3; r++)
        say(s, r, s->hello, s->hello_bytes);
    message_header_write(push, &(struct message_header){.type = MESSAGE_PUSH, .nth_step = 2, .step = STEP + 1});
    say_leave(s, 1, 1, 1);
    say(s, 1, push, sizeof push);
    stage_ends(s, stage_submit(s), GW_ERR_FRAME_FIELD, "rank 1 sent a message of type 3 after its farewell");

    gw_link links[2];
    gw_codec *codec;
    gw_exchange *ex;
    const gw_tensor tensor = {.id = 0};
    assert_int_equal(gw_codec_parse(NULL, "none", &codec), GW_OK);
    assert_int_equal(gw_link_local_create(NULL, 2, links), GW_OK);
    const gw_exchange_options options = {
        .struct_bytes = sizeof options, .codec = codec, .tensors = &tensor, .n_tensors = 1, .link = links[0]};
    assert_int_equal(gw_exchange_create(NULL, &options, &ex), GW_OK);
    assert_int_equal(gw_exchange_leave(ex), GW_OK);
    for (int nth = 0; nth < 2; nth++) { /* HELLO comes first */
        assert_int_equal(links[1].ops->recv(links[1].self, 10000, &message), GW_OK);
        CHECK(message_header_read(message.bytes).type == (nth ? MESSAGE_LEAVE : MESSAGE_HELLO), "message %d", nth);
        CHECK(gw_message_node_of(message.bytes)->farewell == (nth == 1), "message %d", nth);
        if (nth == 0) /* it says the same */
            assert_int_equal(links[1].ops->send(links[1].self, 0, message.bytes, message.n_bytes, 0), GW_OK);
        else
            gw_message_free(message.bytes);
    }
    void *answer = gw_message_alloc(NULL, MESSAGE_LEAVE_BYTES);
    message_header_write(answer, &(struct message_header){.type = MESSAGE_LEAVE, .nth_step = 1});
    memset(message_body(answer), 0, MESSAGE_LEAVE_BYTES - MESSAGE_HEADER); /* it leaves because rank 0 did */
    assert_int_equal(links[1].ops->send(links[1].self, 0, answer, MESSAGE_LEAVE_BYTES, 0), GW_OK);
    CHECK(links[1].ops->recv(links[1].self, 200, &message) == GW_ERR_TIMEOUT, "rank 1 hears: %s", gw_last_error());
    gw_exchange_destroy(ex);
    links[0].ops->destroy(links[0].self);
    links[1].ops->destroy(links[1].self);
    gw_codec_destroy(codec);
}

/* Rank 1 leaves before the step. So rank 0's exchange ends. Rank 2 may still be busy with the step before, so rank 0
 * does not tell it of a failure. Rank 0 leaves, too, and says that rank 1 was the first. If a farewell comes before
 * rank 1's first message (stale), it was meant for an earlier exchange, and rank 0 passes over it. */
static void a_farewell_is_passed_on_as_a_farewell(void **state)
{
    (void)state;
    for (int stale = 0; stale < 2; stale++) {
        gw_message message;
        gw_status status;
        uint32_t farewells = 0;
        struct stage *s = stage_begin("none", 3, 200, NULL);
        if (stale)
            say_leave(s, 1, 1, 0);
        say(s, 1, s->hello, s->hello_bytes);
        say(s, 2, s->hello, s->hello_bytes);
        if (!stale)
            say_leave(s, 1, 1, 0);
        status = stage_submit(s);
        status = status == GW_OK ? gw_exchange_wait(s->ex, NULL) : status;
        CHECK(status == (stale ? GW_ERR_TIMEOUT : GW_ERR_PEER), "stale %d: %d, %s", stale, status, gw_last_error());
        CHECK((strstr(gw_last_error(), "rank 1 has ended its exchange") != NULL) == !stale, "%s", gw_last_error());
        assert_int_equal(gw_exchange_leave(s->ex), status); /* the error that ended it */
        while ((status = s->links[2].ops->recv(s->links[2].self, 1, &message)) == GW_OK) {
            const struct message_header h = message_header_read(message.bytes);
            if (h.type == MESSAGE_LEAVE) {
                const uint8_t *body = message_body(message.bytes);
                farewells++;
                assert_int_equal(message.n_bytes, MESSAGE_LEAVE_BYTES);
                assert_int_equal(h.nth_step, 1);
                assert_int_equal(gw_get32(body), 1);
                assert_int_equal(gw_get32(body + 4), 0);
            }
            gw_message_free(message.bytes);
        }
        CHECK(status == (stale ? GW_ERR_PEER : GW_ERR_TIMEOUT), "rank 2 hears: %s", gw_last_error());
        assert_int_equal(farewells, stale ? 0 : 1);
        stage_end(s);
    }
}

/* Rank 2 heard of rank 1's end, and ended itself. Rank 0 hears of it from rank 2 first. */
static void a_farewell_names_who_left_first(void **state)
{
    (void)state;
    static const struct {
        uint32_t first, its_step;
        gw_status status;
        const char *words;
    } cases[] = {
        {1, 0, GW_ERR_PEER, "rank 1 has ended its exchange"},
        {1, 0xffff, GW_ERR_PEER,
         "rank 1 has ended its exchange"}, /* the number's low 16 bits; this is the step before 0 */
        {2, 0, GW_ERR_PEER, "rank 2 has ended its exchange"},
        {1, 1, GW_ERR_TIMEOUT, "came from ranks 1 and 2"}, /* it has made this step */
        {3, 0, GW_ERR_FRAME_FIELD, "rank 2 says that rank 3 left first, after step number 0, which cannot be"},
        {0, 0, GW_ERR_FRAME_FIELD, "rank 2 says that rank 0 left first"}, /* rank 0 knows better */
        {1, 0x10000, GW_ERR_FRAME_FIELD, "after step number 65536"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct stage *s = stage_begin("none", 3, 200, NULL);
        for (uint32_t r = 1; r < 3; r++)
            say(s, r, s->hello, s->hello_bytes);
        say_leave(s, 2, cases[c].first, cases[c].its_step);
        gw_status status = stage_submit(s);
        status = status == GW_OK ? gw_exchange_wait(s->ex, NULL) : status;
        CHECK(status == cases[c].status && strstr(gw_last_error(), cases[c].words), "case %zu: %d, %s", c, status,
              gw_last_error());
        stage_end(s);
    }
}

/* Rank 1's farewell has come, but rank 0 sends to it before it reads that. */
static void a_send_that_fails_finds_the_farewell(void **state)
{
    (void)state;
    gw_message message;
    struct stage *s = stage_begin("none", 3, 0, NULL);
    for (uint32_t r = 1; r < 3; r++)
        say(s, r, s->hello, s->hello_bytes);
    atomic_store(&s->breaks, true);
    gw_status status = stage_submit(s);
    status = status == GW_OK ? gw_exchange_wait(s->ex, NULL) : status;
    CHECK(status == GW_ERR_PEER && strstr(gw_last_error(), "rank 1 has ended its exchange"), "%d, %s", status,
          gw_last_error());
    assert_true(hear(s, 2, MESSAGE_LEAVE, &message)); /* not a failure */
    assert_int_equal(gw_get32(message_body(message.bytes)), 1);
    gw_message_free(message.bytes);
    stage_end(s);
}

/* A link says how many members it has. If they are too many, the exchange must refuse it before it takes memory. */
static void sizes_of_links_at_their_limits(void **state)
{
    (void)state;
    static const struct {
        uint32_t rank, size;
        bool good;
    } cases[] = {{0, 1, true},
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
        assert_int_equal(links[1].ops->recv(links[1].self, 1, &message) == GW_ERR_TIMEOUT, !cases[i].good);
        for (int r = 0; r < 2; r++)
            links[r].ops->destroy(links[r].self);
        gw_context_destroy(context);
        assert_int_equal(shortage.live, 0);
    }
    gw_codec_destroy(codec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_line_must_be_the_same),
        cmocka_unit_test(a_first_message_is_checked),
        cmocka_unit_test(who_says_nothing_is_named),
        cmocka_unit_test(a_step_waits_for_the_comparison),
        cmocka_unit_test(members_that_differ_end),
        cmocka_unit_test(an_identity_is_checked),
        cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(runs_come_in_any_order_but_once),
        cmocka_unit_test(a_farewell_is_passed_on_as_a_farewell),
        cmocka_unit_test(a_farewell_names_who_left_first),
        cmocka_unit_test(a_send_that_fails_finds_the_farewell),
        cmocka_unit_test(a_farewell_is_the_last_word),
        cmocka_unit_test(relays_are_the_ones_in_turn),
        cmocka_unit_test(sizes_of_links_at_their_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
