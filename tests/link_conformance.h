/* Tests what every link must do, over a factory of endpoints that live in one process. A new link gets all of it with
 * one line:
 *
 *     static const struct link_factory factory = {.name = "local", .create = gw_link_local_create};
 *     int main(void) { return link_conformance(&factory); }
 */
#ifndef GW_TESTS_LINK_CONFORMANCE_H
#define GW_TESTS_LINK_CONFORMANCE_H

#include "base/error.h"
#include "forks.h"
#include "checks.h"
#include "shortage.h"

#include <gradwire/codec.h>
#include <gradwire/exchange.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <time.h>

struct link_factory {
    const char *name;
    gw_status (*create)(gw_context *context, uint32_t size, gw_link *endpoints);
    uint32_t max_ranks; /* the most ranks that a case may have; 0: there is no limit */
    /* if a message is sent or a member leaves, another member knows it only some time after the call */
    bool news_travel;
    bool of_python; /* its functions are Python's, which looks after forks itself */
};

#define LINK_LONG_MS 60000u /* a deadline that only a hang reaches */
#define LINK_MAX_RANKS 64u

/* ---- a context that counts ----------------------------------------------------------------------- */

static struct shortage link_test_memory; /* nothing fails; it counts */

static gw_context *link_test_context(void)
{
    return context_short_of(&link_test_memory, 1);
}

/* Destroys the endpoints and the context. Nothing may be left. */
static void link_test_end(gw_context *context, gw_link *links, uint32_t n)
{
    for (uint32_t r = 0; r < n; r++)
        gw_link_destroy(&links[r]);
    gw_context_destroy(context);
    assert_int_equal(link_test_memory.live, 0);
}

static const struct link_factory *link_test_factory;

static gw_context *link_test_begin(gw_link *links, uint32_t n)
{
    gw_context *context = link_test_context();
    if (link_test_factory->create(context, n, links) < 0)
        fail_msg("%u members cannot begin: %s", n, gw_last_error());
    for (uint32_t r = 0; r < n; r++) {
        assert_int_equal(links[r].rank, r);
        assert_int_equal(links[r].size, n);
        assert_string_equal(links[r].ops->name, link_test_factory->name);
    }
    return context;
}

/* Makes a message of n bytes. It starts with two numbers if there is room. The rest follows from these numbers. */
static void *link_test_message(gw_context *context, size_t n_bytes, uint32_t a, uint32_t b)
{
    uint32_t head[2] = {a, b};
    unsigned char *bytes = gw_message_alloc(context, n_bytes);
    if (!bytes)
        return NULL;
    for (size_t i = 0; i < n_bytes; i++)
        bytes[i] = i < sizeof head ? ((unsigned char *)head)[i] : (unsigned char)(a * 7 + b * 13 + i * 31);
    return bytes;
}

static bool link_test_message_is(const gw_message *message, size_t n_bytes, uint32_t a, uint32_t b)
{
    uint32_t head[2] = {a, b};
    const unsigned char *bytes = message->bytes;
    if (message->n_bytes != n_bytes || (uintptr_t)bytes % 8)
        return false;
    for (size_t i = 0; i < n_bytes; i++) {
        unsigned char want = i < sizeof head ? ((unsigned char *)head)[i] : (unsigned char)(a * 7 + b * 13 + i * 31);
        if (bytes[i] != want)
            return false;
    }
    return true;
}

static void link_test_send(gw_context *context, gw_link *link, uint32_t to, size_t n_bytes, uint32_t a, uint32_t b)
{
    void *bytes = link_test_message(context, n_bytes, a, b);
    assert_non_null(bytes);
    assert_int_equal(link->ops->send(link->self, to, bytes, n_bytes, LINK_LONG_MS), GW_OK);
}

static gw_status link_test_recv(const gw_link *link, uint32_t timeout_ms, gw_message *message)
{
    return link->ops->recv(link->self, timeout_ms, message);
}

/* Sends to somebody who may not be there. */
static gw_status link_test_send_some(gw_context *context, gw_link *link, uint32_t to)
{
    return link->ops->send(link->self, to, gw_message_alloc(context, 8), 8, LINK_LONG_MS);
}

static void link_test_expect(gw_link *link, uint32_t from, size_t n_bytes, uint32_t a, uint32_t b)
{
    gw_message message;
    assert_int_equal(link_test_recv(link, LINK_LONG_MS, &message), GW_OK);
    assert_int_equal(message.from, from);
    assert_true(link_test_message_is(&message, n_bytes, a, b));
    gw_message_free(message.bytes);
}

/* Sends to a member that is gone, until that is known here. Returns the status of the last send. */
static gw_status link_test_send_to_the_gone(gw_context *context, gw_link *link, uint32_t to)
{
    for (int i = 0;; i++) {
        const gw_status status = link_test_send_some(context, link, to);
        if (status < 0 || !link_test_factory->news_travel || i == 5000)
            return status;
        gw_message message; /* the link learns news while it receives; no test asks later for what comes here */
        if (link_test_recv(link, 1, &message) == GW_OK)
            gw_message_free(message.bytes);
    }
}

/* ---- the cases -------------------------------------------------------------------------------------- */

TEST(link_sizes_are_checked)
{
    gw_context *context = link_test_context();
    gw_link links[2];
    assert_int_equal(link_test_factory->create(context, 0, links), GW_ERR_ARGUMENT);
    assert_int_equal(link_test_factory->create(context, GW_MAX_WORKERS + 1, links), GW_ERR_ARGUMENT);
    assert_int_equal(link_test_factory->create(context, 2, NULL), GW_ERR_ARGUMENT);
    link_test_end(context, links, 0);
}

TEST(link_group_of_one)
{
    gw_link links[1];
    gw_context *context = link_test_begin(links, 1);
    gw_message message;
    assert_int_equal(link_test_recv(&links[0], 1, &message), GW_ERR_TIMEOUT);
    link_test_send(context, &links[0], 0, 64, 1, 2);
    gw_link_fail(&links[0], GW_ERR_MEMORY, "nobody is there to hear this");
    link_test_expect(&links[0], 0, 64, 1, 2);
    link_test_end(context, links, 1);
}

/* Sends what a link has kept (flush), on a thread of its own, because the receiver is a member of this thread. */
static void *link_test_flush(void *argument)
{
    const gw_link *link = argument;
    gw_ignore(link->ops->flush(link->self, LINK_LONG_MS));
    return NULL;
}

static gw_status link_test_recv_from(gw_link *from, gw_link *to, gw_message *message)
{
    pthread_t thread;
    if (!from->ops->flush)
        return link_test_recv(to, LINK_LONG_MS, message);
    assert_int_equal(pthread_create(&thread, NULL, link_test_flush, from), 0);
    const gw_status status = link_test_recv(to, LINK_LONG_MS, message);
    pthread_join(thread, NULL);
    return status;
}

TEST(link_any_size)
{
    gw_link links[2];
    gw_context *context = link_test_begin(links, 2);
    static const size_t sizes[] = {0, 1, 7, 8, 9, 63, 64, 65, 4096, 65537, 5u << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        link_test_send(context, &links[0], 1, sizes[i], (uint32_t)i, 3);
    pthread_t thread;
    if (links[0].ops->flush)
        assert_int_equal(pthread_create(&thread, NULL, link_test_flush, &links[0]), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        link_test_expect(&links[1], 0, sizes[i], (uint32_t)i, 3);
    if (links[0].ops->flush)
        pthread_join(thread, NULL);
    link_test_end(context, links, 2);
}

/* A message that was received may be sent on as it is. It outlives the link, however large it is. */
TEST(link_received_goes_on)
{
    enum { SIZES = 3 };
    static const size_t sizes[SIZES] = {100, 200000, 5u << 20};
    gw_link links[3];
    gw_message kept[SIZES];
    gw_context *context = link_test_begin(links, 3);
    for (uint32_t i = 0; i < SIZES; i++) {
        gw_message message;
        link_test_send(context, &links[0], 1, sizes[i], 7, i);
        assert_int_equal(link_test_recv_from(&links[0], &links[1], &message), GW_OK);
        assert_int_equal(links[1].ops->send(links[1].self, 2, message.bytes, message.n_bytes, LINK_LONG_MS), GW_OK);
        assert_int_equal(link_test_recv_from(&links[1], &links[2], &message), GW_OK);
        assert_true(message.from == 1 && link_test_message_is(&message, sizes[i], 7, i));
        gw_message_free(message.bytes);
        link_test_send(context, &links[0], 1, sizes[i], 8, i);
        assert_int_equal(link_test_recv_from(&links[0], &links[1], &message), GW_OK);
        assert_int_equal(links[1].ops->send(links[1].self, 1, message.bytes, message.n_bytes, LINK_LONG_MS), GW_OK);
        assert_int_equal(link_test_recv(&links[1], LINK_LONG_MS, &kept[i]), GW_OK);
    }
    for (uint32_t r = 0; r < 3; r++)
        gw_link_destroy(&links[r]);
    for (uint32_t i = 0; i < SIZES; i++) {
        assert_true(link_test_message_is(&kept[i], sizes[i], 8, i));
        gw_message_free(kept[i].bytes);
    }
    link_test_end(context, links, 0);
}

/* A link may have no send_all. send_all gives every other member a copy of its own, and gives none to the sender. */
TEST(link_send_to_all)
{
    gw_link links[4];
    gw_context *context = link_test_begin(links, 4);
    if (!links[2].ops->send_all) {
        link_test_end(context, links, 4);
        return;
    }
    for (uint32_t i = 0; i < 20; i++) {
        size_t n_bytes = i * i * i * 10;
        void *bytes = link_test_message(context, n_bytes, 2, i);
        assert_non_null(bytes);
        assert_int_equal(links[2].ops->send_all(links[2].self, bytes, n_bytes, LINK_LONG_MS), GW_OK);
        link_test_send(context, &links[2], 1, 8, 9, i); /* this message must stay behind it */
    }
    for (uint32_t r = 0; r < 4; r++) {
        for (uint32_t i = 0; i < 20 && r != 2; i++) {
            gw_message message;
            assert_int_equal(link_test_recv(&links[r], LINK_LONG_MS, &message), GW_OK);
            assert_int_equal(message.from, 2);
            assert_true(link_test_message_is(&message, i * i * i * 10, 2, i));
            memset(message.bytes, 0xEE, message.n_bytes); /* the other members' copies must not change */
            gw_message_free(message.bytes);
            if (r == 1)
                link_test_expect(&links[r], 2, 8, 9, i);
        }
    }
    gw_message message;
    assert_int_equal(link_test_recv(&links[2], 0, &message), GW_ERR_TIMEOUT);
    links[3].ops->close(links[3].self);
    void *bytes = gw_message_alloc(context, 8);
    assert_int_equal(links[3].ops->send_all(links[3].self, bytes, 8, LINK_LONG_MS), GW_ERR_CLOSED);
    assert_int_equal(link_test_send_to_the_gone(context, &links[2], 3), GW_ERR_PEER);
    bytes = link_test_message(context, 64, 3, 4);
    assert_int_equal(links[2].ops->send_all(links[2].self, bytes, 64, LINK_LONG_MS), GW_ERR_PEER);
    assert_non_null(strstr(gw_last_error(), "rank 3"));
    link_test_end(context, links, 4);
}

TEST(link_unknown_rank)
{
    gw_link links[2];
    gw_context *context = link_test_begin(links, 2);
    assert_int_equal(link_test_send_some(context, &links[0], 2), GW_ERR_ARGUMENT);
    assert_non_null(strstr(gw_last_error(), "rank 2"));
    link_test_end(context, links, 2);
}

TEST(link_timeout)
{
    gw_link links[2];
    gw_context *context = link_test_begin(links, 2);
    gw_message message;
    assert_int_equal(link_test_recv(&links[0], 0, &message), GW_ERR_TIMEOUT);
    assert_int_equal(link_test_recv(&links[0], 20, &message), GW_ERR_TIMEOUT);
    assert_string_not_equal(gw_last_error(), "");
    /* A timeout does not end the link. */
    link_test_send(context, &links[1], 0, 16, 8, 9);
    link_test_expect(&links[0], 1, 16, 8, 9);
    link_test_end(context, links, 2);
}

/* Who is gone is reported once, and after its last message. The others still hear each other. */
TEST(link_reports_who_is_gone)
{
    gw_link links[3];
    gw_context *context = link_test_begin(links, 3);
    gw_message message;
    link_test_send(context, &links[2], 0, 32, 1, 1);
    link_test_send(context, &links[2], 0, 5000, 2, 2);
    links[2].ops->close(links[2].self);
    link_test_expect(&links[0], 2, 32, 1, 1);
    link_test_expect(&links[0], 2, 5000, 2, 2);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(link_test_recv(&links[r], LINK_LONG_MS, &message), GW_ERR_PEER);
        assert_int_equal(message.from, 2);
        assert_non_null(strstr(gw_last_error(), "rank 2"));
        assert_int_equal(link_test_recv(&links[r], 50, &message), GW_ERR_TIMEOUT);
        assert_int_equal(link_test_send_to_the_gone(context, &links[r], 2), GW_ERR_PEER);
        assert_non_null(strstr(gw_last_error(), "rank 2"));
    }
    link_test_send(context, &links[1], 0, 8, 5, 6);
    link_test_expect(&links[0], 1, 8, 5, 6);
    links[2].ops->close(links[2].self);
    assert_int_equal(link_test_recv(&links[2], LINK_LONG_MS, &message), GW_ERR_CLOSED);
    assert_int_equal(link_test_send_some(context, &links[2], 0), GW_ERR_CLOSED);
    link_test_end(context, links, 3);
}

static char long_reason[5000];

/* A member that fails says why. If another one is the cause, it only passes that on, and is not named as the one that
 * failed. */
TEST(link_failures_are_told)
{
    static const struct {
        gw_status status;
        const char *why, *told;
    } cases[] = {
        {GW_ERR_MEMORY, "no memory for a walrus", "rank 0 failed: no memory for a walrus"},
        {GW_ERR_SYSTEM, "", "rank 0 failed: "},
        {GW_ERR_TIMEOUT, "nothing came from rank 1", "rank 0 gave up: nothing came from rank 1"},
        {GW_ERR_PEER, "rank 1 failed: 100 %s of\n it", "rank 1 failed: 100 %s of? it"},
        {GW_ERR_SYSTEM, long_reason, "rank 0 failed: xxxx"}, /* it is cut */
    };
    memset(long_reason, 'x', sizeof long_reason - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_link links[3];
        gw_context *context = link_test_begin(links, 3);
        gw_message message;
        link_test_send(context, &links[0], 1, 16, 1, 1);
        gw_fail(GW_ERR_ORDER, "this stays");
        gw_link_fail(&links[0], cases[i].status, cases[i].why);
        assert_string_equal(gw_last_error(), "this stays");
        link_test_send(context, &links[0], 1, 17, 2, 2);
        for (uint32_t r = 1; r < 3; r++) {
            if (r == 1)
                assert_int_equal(gw_link_recv(&links[r], LINK_LONG_MS, &message), GW_OK);
            if (r == 1)
                gw_message_free(message.bytes);
            assert_int_equal(gw_link_recv(&links[r], LINK_LONG_MS, &message), GW_ERR_PEER);
            assert_int_equal(message.from, 3);
            if (strncmp(gw_last_error(), cases[i].told, strlen(cases[i].told)) != 0)
                fail_msg("case %zu: \"%s\"", i, gw_last_error());
        }
        link_test_expect(&links[1], 0, 17, 2, 2);
        link_test_end(context, links, 3);
    }
}

/* ---- with threads; they hand what they saw to the main thread, which alone may assert ------------------ */

struct link_test_thread {
    pthread_t thread;
    gw_context *context;
    gw_link link;
    uint32_t n_messages;
    gw_status seen;
    char sentence[256]; /* empty: all went well */
};

static void link_test_pause(long milliseconds)
{
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static void *link_test_receiver(void *argument)
{
    struct link_test_thread *t = argument;
    gw_message message;
    t->seen = link_test_recv(&t->link, LINK_LONG_MS, &message);
    if (t->seen == GW_OK)
        gw_message_free(message.bytes);
    else
        snprintf(t->sentence, sizeof t->sentence, "%s", gw_last_error());
    return NULL;
}

TEST(link_wakes)
{
    /* These wake a receiver that already sleeps: a message, its own close, the close of another member. */
    for (int what = 0; what < 3; what++) {
        gw_link links[2];
        gw_context *context = link_test_begin(links, 2);
        struct link_test_thread t = {.link = links[0]};
        assert_int_equal(pthread_create(&t.thread, NULL, link_test_receiver, &t), 0);
        link_test_pause(20); /* it is most likely asleep by then; the test is right either way */
        if (what == 0)
            link_test_send(context, &links[1], 0, 8, 1, 1);
        else if (what == 1)
            links[0].ops->close(links[0].self);
        else
            links[1].ops->close(links[1].self);
        pthread_join(t.thread, NULL);
        assert_int_equal(t.seen, what == 0 ? GW_OK : what == 1 ? GW_ERR_CLOSED : GW_ERR_PEER);
        if (what == 2)
            assert_non_null(strstr(t.sentence, "rank 1"));
        link_test_end(context, links, 2);
    }
}

static void *link_test_chatter(void *argument)
{
    struct link_test_thread *t = argument;
    const uint32_t n = t->link.size, rank = t->link.rank;
    uint32_t next[LINK_MAX_RANKS] = {0};
    uint64_t to_come = (uint64_t)n * t->n_messages;
    for (uint32_t i = 0; i < t->n_messages; i++) {
        for (uint32_t j = 0; j < n; j++) {
            uint32_t to = (rank + j) % n;
            size_t n_bytes = 8 + (rank * 31 + i * 17) % 200;
            void *bytes = link_test_message(t->context, n_bytes, rank, i);
            if (!bytes || t->link.ops->send(t->link.self, to, bytes, n_bytes, LINK_LONG_MS) < 0) {
                snprintf(t->sentence, sizeof t->sentence, "rank %u sent message %u to rank %u: %s", rank, i, to,
                         gw_last_error());
                return NULL;
            }
        }
        /* Takes some of what has come, so that sends and receives mix. */
        gw_message message;
        while (to_come) {
            gw_status status = link_test_recv(&t->link, i + 1 == t->n_messages ? LINK_LONG_MS : 0, &message);
            if (status == GW_ERR_TIMEOUT && i + 1 < t->n_messages)
                break;
            if (status < 0) {
                snprintf(t->sentence, sizeof t->sentence, "rank %u received: %s", rank, gw_last_error());
                return NULL;
            }
            uint32_t k = next[message.from]++;
            bool right = link_test_message_is(&message, 8 + (message.from * 31 + k * 17) % 200, message.from, k);
            if (!right)
                snprintf(t->sentence, sizeof t->sentence,
                         "rank %u got %zu bytes from rank %u, which are not message %u", rank, message.n_bytes,
                         message.from, k);
            gw_message_free(message.bytes);
            if (!right)
                return NULL;
            to_come--;
        }
    }
    return NULL;
}

TEST(link_many_to_many)
{
    static const uint32_t sizes[] = {1, 2, 7, LINK_MAX_RANKS};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        uint32_t most = link_test_factory->max_ranks ? link_test_factory->max_ranks : LINK_MAX_RANKS;
        uint32_t n = sizes[s] < most ? sizes[s] : most;
        gw_link links[LINK_MAX_RANKS];
        struct link_test_thread threads[LINK_MAX_RANKS];
        gw_context *context = link_test_begin(links, n);
        for (uint32_t r = 0; r < n; r++) {
            /* 64 members send more than twice the 65,536 messages that Open MPI can count */
            threads[r] =
                (struct link_test_thread){.context = context, .link = links[r], .n_messages = n > 10 ? 40 : 300};
            assert_int_equal(pthread_create(&threads[r].thread, NULL, link_test_chatter, &threads[r]), 0);
        }
        for (uint32_t r = 0; r < n; r++)
            pthread_join(threads[r].thread, NULL);
        for (uint32_t r = 0; r < n; r++)
            assert_string_equal(threads[r].sentence, "");
        link_test_end(context, links, n);
    }
}

/* Endpoints are destroyed in any order, with messages that nobody took. Nothing leaks, and the others are not
 * disturbed. gw_last_error() stays as it is. */
TEST(link_destroy_in_any_order)
{
    static const uint32_t orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}};
    for (size_t o = 0; o < 3; o++) {
        gw_link links[3];
        gw_context *context = link_test_begin(links, 3);
        gw_message message;
        for (uint32_t from = 0; from < 3; from++)
            for (uint32_t to = 0; to < 3; to++)
                for (uint32_t i = 0; i < 3; i++)
                    link_test_send(context, &links[from], to, 50, from, i);
        /* One of rank 1's messages is taken. That may have taken the rest out of its inbox, too. */
        assert_int_equal(link_test_recv(&links[1], LINK_LONG_MS, &message), GW_OK);
        gw_message_free(message.bytes);
        gw_link_destroy(&links[orders[o][0]]);
        gw_link *left = &links[orders[o][1]];
        assert_int_equal(link_test_send_to_the_gone(context, left, orders[o][0]), GW_ERR_PEER);
        link_test_send(context, left, orders[o][2], 8, 0, 0);
        gw_fail(GW_ERR_PEER, "kept"); /* who destroys after an error still wants to say it */
        gw_link_destroy(&links[orders[o][1]]);
        gw_link_destroy(&links[orders[o][2]]);
        assert_string_equal(gw_last_error(), "kept");
        link_test_end(context, links, 0);
    }
}

struct link_pair {
    gw_context *context;
    gw_link *links;
};

static bool link_test_forked(void *argument)
{
    const struct link_pair *pair = argument;
    const gw_link *link = &pair->links[0];
    char object[32];
    gw_message message;
    snprintf(object, sizeof object, "this %s link", link->ops->name);
    void *bytes[2] = {gw_message_alloc(pair->context, 9), gw_message_alloc(pair->context, 9)};
    if (!bytes[0] || !bytes[1] ||
        !is_of_another_process(link->ops->send(link->self, 1, bytes[0], 9, LINK_LONG_MS), object) ||
        !is_of_another_process(link_test_recv(link, LINK_LONG_MS, &message), object) ||
        (link->ops->flush && !is_of_another_process(link->ops->flush(link->self, LINK_LONG_MS), object)))
        return false;
    if (!link->ops->send_all)
        gw_message_free(bytes[1]);
    else if (!is_of_another_process(link->ops->send_all(link->self, bytes[1], 9, LINK_LONG_MS), object))
        return false;
    const int live = link_test_memory.live;
    gw_link_fail(link, GW_ERR_SYSTEM, "a fork failed");
    link->ops->close(link->self);
    for (uint32_t r = 0; r < 2; r++)
        gw_link_destroy(&pair->links[r]);
    gw_context_destroy(pair->context);
    return link_test_memory.live == live;
}

/* In a forked process the link refuses every call, and its end does nothing. The process that forked goes on. */
TEST(link_in_a_fork)
{
    gw_link links[2];
    struct link_pair pair = {.context = link_test_begin(links, 2), .links = links};
    if (!link_test_factory->of_python)
        expect_in_a_fork(link_test_forked, &pair);
    link_test_send(pair.context, &links[0], 1, 50, 0, 1);
    link_test_expect(&links[1], 0, 50, 0, 1);
    link_test_end(pair.context, links, 2);
}

/* ---- who leaves an exchange ------------------------------------------------------------------------------ */

/* How rank 2 goes: after a step, with or without its link; in the middle of a step; for a reason of its own; before it
 * has made an exchange; or when all have made their last step. */
enum link_test_departure {
    LINK_GOES,
    LINK_GOES_WITH_LINK,
    LINK_GOES_IN_A_STEP,
    LINK_FAILS,
    LINK_NEVER_COMES,
    LINK_GOES_WELL
};

struct link_test_leaver {
    pthread_t thread;
    const gw_link *link;
    enum link_test_departure how;
    gw_status status;
    char sentence[400];
    float gradients[2][1000]; /* the exchange may read them until it is destroyed */
};

static void link_test_steps(struct link_test_leaver *m, gw_exchange *exchange)
{
    const bool stays = m->link->rank != 2 && m->how != LINK_GOES_WELL;
    for (uint32_t t = 0; m->status == GW_OK && (stays || t < 1 || m->how == LINK_GOES_IN_A_STEP); t++) {
        m->status = gw_exchange_begin(exchange, t);
        for (uint32_t i = 0; i < 2 && m->status == GW_OK; i++) {
            if (!stays && t == 1 && i == 1)
                return;
            m->status = gw_exchange_submit(exchange, i, m->gradients[i]);
        }
        if (m->status == GW_OK)
            m->status = gw_exchange_wait(exchange, NULL);
    }
}

static void *link_test_leave(void *argument)
{
    struct link_test_leaver *m = argument;
    const gw_tensor tensors[2] = {{.name = "a", .n_elems = 1000}, {.name = "b", .id = 1, .n_elems = 1000}};
    gw_codec *codec = NULL;
    gw_exchange *exchange = NULL;
    const bool comes = m->how != LINK_NEVER_COMES || m->link->rank != 2;
    m->status = gw_codec_parse(NULL, "ternary", &codec);
    const gw_exchange_options options = {.struct_bytes = sizeof options,
                                         .codec = codec,
                                         .tensors = tensors,
                                         .n_tensors = 2,
                                         .link = *m->link,
                                         .timeout_ms = LINK_LONG_MS};
    if (m->status == GW_OK && comes)
        m->status = gw_exchange_create(NULL, &options, &exchange);
    if (m->status == GW_OK && comes)
        link_test_steps(m, exchange);
    snprintf(m->sentence, sizeof m->sentence, "%s", m->status < 0 ? gw_last_error() : "");
    if (m->link->rank < 2 && m->how == LINK_GOES_WELL) {
        link_test_pause(100); /* rank 2 is most likely gone by then; the test is right either way */
        m->status = gw_exchange_leave(exchange);
    }
    if (m->link->rank == 2 && m->how == LINK_FAILS)
        gw_link_fail(m->link, GW_ERR_SYSTEM, "the dog ate it");
    gw_exchange_destroy(exchange);
    if (m->link->rank == 2 && m->how != LINK_GOES && m->how != LINK_FAILS)
        m->link->ops->close(m->link->self);
    gw_codec_destroy(codec);
    return NULL;
}

/* Whoever goes, and however: all others end and name the same member and cause, so none has waited until its timeout.
 * Who has made all its steps disturbs nobody. */
TEST(link_departures_are_told)
{
    static const char *const words[] = {"rank 2 has ended its exchange",
                                        "rank 2 has ended its exchange",
                                        "rank 2 failed: it gave up in the middle of a step",
                                        "rank 2 failed: the dog ate it",
                                        "rank 2",
                                        NULL};
    for (int how = LINK_GOES; how <= LINK_GOES_WELL; how++) {
        gw_link links[3];
        struct link_test_leaver members[3];
        gw_context *context = link_test_begin(links, 3);
        for (uint32_t r = 0; r < 3; r++) {
            members[r] = (struct link_test_leaver){.link = &links[r], .how = (enum link_test_departure)how};
            assert_int_equal(pthread_create(&members[r].thread, NULL, link_test_leave, &members[r]), 0);
        }
        for (uint32_t r = 0; r < 3; r++)
            pthread_join(members[r].thread, NULL);
        for (uint32_t r = 0; r < 3; r++)
            if (members[r].status != (r < 2 && words[how] ? GW_ERR_PEER : GW_OK) ||
                (r < 2 && words[how] && !strstr(members[r].sentence, words[how])))
                fail_msg("departure %d: rank %u: %d, \"%s\"", how, r, members[r].status, members[r].sentence);
        link_test_end(context, links, 3);
    }
}

static inline int link_conformance(const struct link_factory *factory)
{
    link_test_factory = factory;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(link_sizes_are_checked), cmocka_unit_test(link_group_of_one),
        cmocka_unit_test(link_any_size),          cmocka_unit_test(link_received_goes_on),
        cmocka_unit_test(link_send_to_all),       cmocka_unit_test(link_unknown_rank),
        cmocka_unit_test(link_timeout),           cmocka_unit_test(link_reports_who_is_gone),
        cmocka_unit_test(link_failures_are_told), cmocka_unit_test(link_wakes),
        cmocka_unit_test(link_many_to_many),      cmocka_unit_test(link_destroy_in_any_order),
        cmocka_unit_test(link_in_a_fork),         cmocka_unit_test(link_departures_are_told),
    };
    return cmocka_run_group_tests_name(factory->name, tests, NULL, NULL);
}

#endif
