/* A stage for tests of the exchange: rank 0 is an exchange, and the other ranks are bare links, which say what the test
 * wants. Rank 2, if there is one, hears what rank 0 tells the others. */
#ifndef GW_TESTS_EXCHANGE_STAGE_H
#define GW_TESTS_EXCHANGE_STAGE_H

#include "checks.h"
#include "exchange/state.h"
#include "link/message.h"

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
    gw_link links[4];
    gw_codec *codec;
    gw_exchange *ex;
    gw_tensor tensors[2]; /* tensor t is group t, and rank t's */
    float gradients[2][ELEMS];
    char *hello; /* rank 0's, header and lines */
    size_t hello_bytes;
    /* a send of rank 0 to rank 1 fails; when it does, rank 1's first message and farewell wait to be received */
    atomic_bool breaks;
    atomic_bool is_strange; /* rank 2's messages seem to come from a rank that there is not */
};

static inline void say(struct stage *s, uint32_t from, const void *bytes, size_t n_bytes)
{
    void *copy = gw_message_alloc(NULL, n_bytes);
    memcpy(copy, bytes, n_bytes);
    s->links[from].ops->send(s->links[from].self, 0, copy, n_bytes, 1000); /* rank 0 may have ended */
}

/* A farewell of `from`. It tells who left first, after which step. */
static inline void say_leave(struct stage *s, uint32_t from, uint32_t first, uint32_t its_step)
{
    uint8_t bytes[MESSAGE_LEAVE_BYTES];
    message_header_write(bytes, &(struct message_header){.type = MESSAGE_LEAVE, .nth_step = (uint16_t)its_step});
    gw_put32(bytes + MESSAGE_HEADER, first);
    gw_put32(bytes + MESSAGE_HEADER + 4, its_step);
    say(s, from, bytes, sizeof bytes);
}

/* What rank 0 sends to `to` next, of a type; others are dropped. false: it has failed, and gw_last_error() says why. */
static inline bool hear(struct stage *s, uint32_t to, uint8_t type, gw_message *message)
{
    while (gw_link_recv(&s->links[to], 10000, message) == GW_OK) {
        if (message_header_read(message->bytes).type == type)
            return true;
        gw_message_free(message->bytes);
    }
    return false;
}

/* ---- rank 0's link: a local one, whose connection to rank 1 may break ---- */

static inline gw_status stage_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct stage *s = self;
    if (to != 1 || !atomic_load(&s->breaks))
        return s->links[0].ops->send(s->links[0].self, to, bytes, n_bytes, timeout_ms);
    gw_message_free(bytes);
    if (atomic_load(&s->is_strange))
        say_leave(s, 2, 1, 0);
    say(s, 1, s->hello, s->hello_bytes);
    say_leave(s, 1, 1, 0);
    return gw_fail(GW_ERR_PEER, "rank 1 is not there");
}

static inline gw_status stage_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    struct stage *s = self;
    const gw_status status = s->links[0].ops->recv(s->links[0].self, timeout_ms, message);
    if (status == GW_OK && atomic_load(&s->is_strange) && message->from == 2)
        message->from = 0x40000000;
    return status;
}

static inline void stage_close(void *self)
{
    struct stage *s = self;
    s->links[0].ops->close(s->links[0].self);
}

/* Nobody calls the last one: the stage destroys its links itself. */
static const gw_link_ops stage_ops = {
    .name = "stage", .send = stage_send, .recv = stage_recv, .close = stage_close, .destroy = stage_close};

static inline struct stage *stage_open(const char *spec, uint32_t n)
{
    struct stage *s = calloc(1, sizeof *s);
    s->n = n;
    assert_int_equal(gw_link_local_create(NULL, n, s->links), GW_OK);
    assert_int_equal(gw_codec_parse(NULL, spec, &s->codec), GW_OK);
    s->tensors[0] = (gw_tensor){.name = "first", .id = 0, .n_elems = ELEMS};
    s->tensors[1] = (gw_tensor){.name = "second", .id = 1, .n_elems = ELEMS};
    for (uint32_t i = 0; i < 2 * ELEMS; i++)
        s->gradients[i / ELEMS][i % ELEMS] = (float)(i % 7) - 3;
    return s;
}

static inline void stage_create(struct stage *s, uint32_t timeout_ms, const uint32_t *machine_of)
{
    gw_exchange_options options = {.struct_bytes = sizeof options,
                                   .codec = s->codec,
                                   .tensors = s->tensors,
                                   .n_tensors = 2,
                                   .link = {.ops = &stage_ops, .self = s, .size = s->n},
                                   .seed = 9,
                                   .timeout_ms = timeout_ms,
                                   .machine_of = machine_of,
                                   .identity = "net = lenet\ndata = digits"};
    assert_int_equal(gw_exchange_create_as(NULL, &options, CUT, false, &s->ex), GW_OK);
}

/* Every bare link hears rank 0's first message. */
static inline void stage_meet(struct stage *s)
{
    gw_message message;
    for (uint32_t r = 1; r < s->n; r++) {
        assert_true(hear(s, r, MESSAGE_HELLO, &message));
        if (r == 1) {
            s->hello = malloc(message.n_bytes + 1);
            memcpy(s->hello, message.bytes, s->hello_bytes = message.n_bytes);
            s->hello[s->hello_bytes] = 0;
        }
        gw_message_free(message.bytes);
    }
}

/* Every bare link has heard rank 0's first message; none has said anything. Rank 0 has begun its first step. */
static inline struct stage *stage_begin(const char *spec, uint32_t n, uint32_t timeout_ms, const uint32_t *machine_of)
{
    struct stage *s = stage_open(spec, n);
    stage_create(s, timeout_ms, machine_of);
    stage_meet(s);
    assert_int_equal(gw_exchange_begin(s->ex, STEP), GW_OK);
    return s;
}

static inline gw_status stage_submit(struct stage *s)
{
    gw_status status = gw_exchange_submit(s->ex, 1, s->gradients[1]);
    return status < 0 ? status : gw_exchange_submit(s->ex, 0, s->gradients[0]);
}

static inline gw_status stage_finish_step(struct stage *s)
{
    gw_status status = stage_submit(s);
    return status < 0 ? status : gw_exchange_wait(s->ex, NULL);
}

static inline void stage_end(struct stage *s)
{
    gw_exchange_destroy(s->ex);
    gw_codec_destroy(s->codec);
    for (uint32_t r = 0; r < s->n; r++)
        gw_link_destroy(&s->links[r]);
    free(s->hello);
    free(s);
}

/* The exchange ends with `want` (0: any error) and words in its sentence that name rank 1; rank 2 hears of ranks 0
 * and 1. */
static inline void stage_ends(struct stage *s, gw_status status, gw_status want, const char *words)
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

#endif
