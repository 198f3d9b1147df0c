/* Tests one connection: messages that come in parts, long ones, what may not be sent, the end; in the clear and over
 * TLS.
 */
#define _GNU_SOURCE /* nftw */
#include "base/clock.h"
#include "net/test_keys.h"
#include "net/test_peer.h"
#include "net/tls.h"

#include <openssl/ssl.h>
#include <poll.h>

static struct gw_net_keys *keys;

struct ends {
    struct gw_net_connection a, b;
    uint64_t placed; /* the length for which b was asked where it goes */
    void *place;     /* NULL: memory of its own */
};

static void *place(void *user, const struct gw_net_message *message)
{
    struct ends *e = user;
    e->placed = message->n_bytes;
    return e->place ? e->place : malloc(message->n_bytes);
}

/* Two connected ends; a has dialled. A small buffer of the kernel makes long messages leave in many parts. */
static void open_ends(struct ends *e, bool tls)
{
    const int small = 20000;
    memset(e, 0, sizeof *e);
    ok(peer_pair((struct gw_net_connection *const[]){&e->a, &e->b},
                 (struct gw_net_keys *const[]){tls ? keys : NULL, tls ? keys : NULL}, NULL));
    setsockopt(e->a.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    setsockopt(e->b.fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    e->b.place = place;
    e->b.place_user = e;
    e->b.most_bytes = 10 << 20;
}

static void close_ends(struct ends *e)
{
    gw_net_close(&e->a);
    gw_net_close(&e->b);
}

static uint8_t *pattern(size_t n, unsigned seed)
{
    uint8_t *bytes = malloc(n ? n : 1);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(i * 131 + i / 256 * 7 + seed);
    return bytes;
}

static int n_released;

static void release(void *bytes)
{
    n_released++;
    free(bytes);
}

/* Sends so many bytes, which the kind determines. */
static void say(struct gw_net_connection *c, unsigned kind, size_t n_bytes)
{
    void *bytes = pattern(n_bytes, kind);
    ok(gw_net_send_with(c, (uint16_t)kind, NULL, 0, bytes, n_bytes, release, bytes));
}

/* Consumes a message, which somebody has said. */
static void heard(struct gw_net_connection *c, const struct gw_net_message *m, unsigned kind, size_t n_bytes)
{
    uint8_t *want = pattern(n_bytes, kind);
    assert_true(m->kind == kind && m->n_bytes == n_bytes && m->is_small == (n_bytes <= GW_NET_SMALL));
    assert_memory_equal(m->bytes, want, n_bytes);
    gw_net_consume(c);
    if (!m->is_small)
        free(m->bytes);
    free(want);
}

/* Receives the next message at b while a goes on sending. */
static struct gw_net_message take(struct ends *e)
{
    struct gw_net_message message;
    gw_status status = GW_NOT_YET;
    for (int i = 0; i < 100000 && status == GW_NOT_YET; i++) {
        gw_net_flush(&e->a);
        status = gw_net_next(&e->b, &message);
    }
    ok(status);
    return message;
}

/* One end as its holder sees it: what it has heard and said, and whether gw_net_has_more. */
struct holder {
    struct gw_net_connection *c;
    unsigned n_said, n_heard;
    bool has_more;
};

/* Gives the holder of one end its turn, if the kernel or gw_net_has_more calls it. false: nothing does. */
static bool turn(struct holder *h, const size_t *sizes, unsigned n_sizes)
{
    struct gw_net_message m;
    const uint32_t events = gw_net_events(h->c);
    struct pollfd fd = {h->c->fd, (short)((events & EPOLLIN ? POLLIN : 0) | (events & EPOLLOUT ? POLLOUT : 0)), 0};
    if (!h->has_more && poll(&fd, 1, 0) == 0)
        return false;
    assert_true(gw_net_flush(h->c) >= 0);
    const gw_status status = gw_net_next(h->c, &m);
    assert_true(status >= 0);
    h->has_more = false;
    if (status == GW_NOT_YET)
        return true;
    heard(h->c, &m, h->n_heard, sizes[h->n_heard % n_sizes]);
    h->n_heard++;
    h->has_more = gw_net_has_more(h->c);
    return true;
}

/* After GW_NOT_YET a holder waits for the kernel; after a message it asks gw_net_has_more first. So nothing that TLS
 * has received ahead may be kept back, also if a long body is left before its end, so that others get a turn. (Only
 * root may make the kernel's buffer so large that this happens.) */
TEST(nothing_is_kept_back)
{
    enum { TURN = 8 << 20 };
    static const size_t sizes[] = {TURN + 9000, 5, TURN + 30000, 40000, 0, TURN + 50000, TURN + 16384, 100};
    enum { N = sizeof sizes / sizeof *sizes };
    for (int tls = 0; tls < 2; tls++) {
        struct ends e;
        struct holder b = {.c = &e.b};
        const int large = 16 << 20;
        open_ends(&e, tls);
        setsockopt(e.a.fd, SOL_SOCKET, SO_SNDBUFFORCE, &large, sizeof large);
        for (unsigned i = 0; i < N; i++)
            say(&e.a, i, sizes[i]);
        while (b.n_heard < N) {
            assert_true(gw_net_flush(&e.a) >= 0);
            CHECK(turn(&b, sizes, N), "message %u does not come: TLS %d", b.n_heard, tls);
        }
        close_ends(&e);
    }
}

static SSL *session_of(const struct gw_net_connection *c)
{
    SSL *ssl;
    memcpy(&ssl, c->tls, sizeof ssl); /* its first field */
    return ssl;
}

/* Counts the new keys of the other side. */
static void count_changes(int written, int version, int kind, const void *bytes, size_t n_bytes, SSL *ssl, void *count)
{
    (void)version, (void)n_bytes, (void)ssl;
    if (!written && kind == SSL3_RT_HANDSHAKE && *(const uint8_t *)bytes == SSL3_MT_KEY_UPDATE)
        ++*(unsigned *)count;
}

/* First one message at a time comes, with nothing behind it. Then both sides send more than the kernel takes at once,
 * as members do: neither waits for the other. Over TLS each side takes a new key after some records. */
TEST(both_ways)
{
    static const size_t sizes[] = {5, 300000, 0, 16384, 70000, 1, 4096, 1000000, 20, 17000};
    enum { N_SIZES = sizeof sizes / sizeof *sizes, N = 12 * N_SIZES, ONE_BY_ONE = 2 * N_SIZES, MOST_WAITING = 4 };
    const uint32_t records_a_key = gw_net_tls_records_a_key;
    for (int tls = 0; tls < 2; tls++) {
        struct ends e;
        open_ends(&e, tls);
        e.a.place = place;
        e.a.place_user = &e;
        e.a.most_bytes = e.b.most_bytes;
        struct holder holders[2] = {{.c = &e.a}, {.c = &e.b}};
        unsigned n_changes[2] = {0, 0};
        for (unsigned k = 0; tls && k < 2; k++) {
            SSL_set_msg_callback(session_of(holders[k].c), count_changes);
            SSL_set_msg_callback_arg(session_of(holders[k].c), &n_changes[k]);
        }
        gw_net_tls_records_a_key = 1;
        for (unsigned i = 0; i < ONE_BY_ONE; i++)
            for (unsigned k = 0; k < 2; k++) {
                say(holders[k].c, holders[k].n_said++, sizes[i % N_SIZES]);
                while (holders[!k].n_heard <= i) {
                    const bool said = turn(&holders[k], sizes, N_SIZES), heard = turn(&holders[!k], sizes, N_SIZES);
                    CHECK(said || heard, "message %u does not come", i);
                }
            }
        gw_net_tls_records_a_key = 7;
        while (holders[0].n_heard < N || holders[1].n_heard < N) {
            bool any = false;
            for (unsigned k = 0; k < 2; k++) {
                struct holder *h = &holders[k];
                for (; h->n_said < N && h->c->n_waiting < MOST_WAITING; any = true, h->n_said++)
                    say(h->c, h->n_said, sizes[h->n_said % N_SIZES]);
                any = turn(h, sizes, N_SIZES) || any;
            }
            CHECK(any, "nobody is called; %u and %u messages have come", holders[0].n_heard, holders[1].n_heard);
        }
        for (unsigned k = 0; tls && k < 2; k++)
            CHECK(n_changes[k] > N, "%u changes of keys", n_changes[k]);
        close_ends(&e);
    }
    gw_net_tls_records_a_key = records_a_key;
}

TEST(asking_for_new_keys_ends_it)
{
    struct ends e;
    struct gw_net_message m;
    open_ends(&e, true);
    assert_int_equal(SSL_key_update(session_of(&e.a), SSL_KEY_UPDATE_REQUESTED), 1);
    say(&e.a, 1, 5);
    refused(gw_net_next(&e.b, &m), GW_ERR_PEER, "it asks for new keys");
    close_ends(&e);
}

/* Short messages leave together, in order with long ones. What does not fit leaves before. */
TEST(gathered)
{
    static const size_t sizes[] = {0, 100, 0, 300, 400, 500, 5000, 7, 1100, 9};
    enum { N = sizeof sizes / sizeof *sizes };
    uint8_t bytes[2 * (GW_NET_HEAD + 100)];
    for (int tls = 0; tls < 2; tls++) {
        struct ends e;
        open_ends(&e, tls);
        e.a.gathers = true;
        n_released = 0;
        for (unsigned i = 0; i < 3; i++)
            say(&e.a, i, sizes[i]);
        assert_int_equal(n_released, 3);
        assert_int_equal(recv(e.b.fd, bytes, sizeof bytes, MSG_PEEK), -1); /* they wait */
        assert_true(e.a.n_waiting == 1 && gw_net_flush(&e.a) == GW_OK && e.a.n_waiting == 0);
        assert_true(tls || recv(e.b.fd, bytes, sizeof bytes, MSG_PEEK) == 3 * GW_NET_HEAD + 100);
        for (unsigned i = 3; i < N; i++)
            say(&e.a, i, sizes[i]);
        for (unsigned i = 0; i < N; i++) {
            const struct gw_net_message m = take(&e);
            heard(&e.b, &m, i, sizes[i]);
        }
        assert_int_equal(n_released, N);
        close_ends(&e);
    }
}

/* What was gathered leaves even if the other side then ends the connection. */
TEST(gathered_before_the_end)
{
    struct ends e;
    struct gw_net_message m;
    open_ends(&e, false);
    e.a.gathers = true;
    say(&e.a, 3, 5);
    gw_net_end_sending(&e.b);
    refused(gw_net_next(&e.a, &m), GW_ERR_PEER, "");
    ok(gw_net_next(&e.b, &m)), heard(&e.b, &m, 3, 5);
    close_ends(&e);
}

/* Bytes come one by one. */
TEST(byte_by_byte)
{
    struct ends e;
    struct gw_net_message m;
    uint8_t bytes[3 * GW_NET_HEAD + 11] = {0};
    open_ends(&e, false);
    for (unsigned i = 0; i < 3; i++) { /* bodies of 0, 4 and 7 bytes */
        uint8_t *at = bytes + i * GW_NET_HEAD + (i == 2 ? 4 : 0);
        peer_head(at, (uint16_t)(20 + i), 0, i == 0 ? 0 : i == 1 ? 4 : 7);
    }
    unsigned n = 0;
    for (size_t i = 0; i < sizeof bytes; i++) {
        assert_int_equal(send(e.a.fd, bytes + i, 1, 0), 1);
        while (gw_net_next(&e.b, &m) == GW_OK) {
            assert_int_equal(m.kind, 20 + n++);
            gw_net_consume(&e.b);
        }
    }
    assert_int_equal(n, 3);
    close_ends(&e);
}

/* A long body in records of a byte, which all have come. Others get a turn before the end of it. */
TEST(records_of_a_byte)
{
    enum { N_BYTES = 6000, LARGE = 200000 };
    struct ends e;
    struct gw_net_message m;
    char *sealed;
    const int large = LARGE;
    uint8_t *body = pattern(N_BYTES, 3), bytes[GW_NET_HEAD + N_BYTES] = {0};
    open_ends(&e, true);
    setsockopt(e.a.fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    peer_head(bytes, 0, 0, N_BYTES);
    memcpy(bytes + GW_NET_HEAD, body, N_BYTES);
    SSL *ssl = session_of(&e.a);
    SSL_set0_wbio(ssl, BIO_new(BIO_s_mem()));
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(SSL_write(ssl, bytes + i, 1), 1);
    const long n_sealed = BIO_get_mem_data(SSL_get_wbio(ssl), &sealed);
    assert_int_equal(send(e.a.fd, sealed, (size_t)n_sealed, 0), n_sealed);
    assert_int_equal(gw_net_next(&e.b, &m), GW_NOT_YET);
    m = take(&e);
    assert_memory_equal(m.bytes, body, N_BYTES);
    free(m.bytes);
    free(body);
    close_ends(&e);
}

/* What no Gradwire sends ends the connection before any memory is taken for it. */
TEST(what_may_not_be_sent)
{
    static const struct {
        uint64_t n_bytes;
        uint16_t zero;
        const char *magic, *words;
        int error;
    } cases[] = {{10 << 20 | 1, 0, "GWN1", "it may send 10485760 at most", EMSGSIZE},
                 {UINT64_MAX, 0, "GWN1", "it sent a message of 18446744073709551615 bytes", EMSGSIZE},
                 {5, 1, "GWN1", "it does not speak as Gradwire does", EPROTO},
                 {5, 0, "GWN2", "it does not speak as Gradwire does", EPROTO}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ends e;
        struct gw_net_message m;
        uint8_t head[GW_NET_HEAD] = {0};
        open_ends(&e, false);
        peer_head(head, 0, 0, cases[i].n_bytes);
        gw_put16(head + 10, cases[i].zero);
        memcpy(head + 12, cases[i].magic, 4);
        assert_int_equal(send(e.a.fd, head, sizeof head, 0), sizeof head);
        refused(gw_net_next(&e.b, &m), GW_ERR_PEER, cases[i].words);
        assert_int_equal(e.b.error, cases[i].error);
        assert_int_equal(e.placed, 0);
        close_ends(&e);
    }
}

static void *no_place(void *user, const struct gw_net_message *message)
{
    (void)user, (void)message;
    return NULL;
}

TEST(no_memory_loses_nothing)
{
    struct ends e;
    struct gw_net_message m;
    open_ends(&e, false);
    say(&e.a, 1, 6000);
    e.b.place = no_place;
    for (int i = 0; i < 3; i++)
        refused(gw_net_next(&e.b, &m), GW_ERR_MEMORY, "");
    e.b.place = place;
    m = take(&e);
    heard(&e.b, &m, 1, 6000);
    close_ends(&e);
}

/* A header comes whole before the question where the body goes. A body may be read and dropped. A message is handed
 * over until it is consumed. */
TEST(sizes_of_all_kinds)
{
    static const size_t bodies[] =
        {0,     1,     100,    GW_NET_SMALL - GW_NET_MOST_HEADER, GW_NET_SMALL - 1, GW_NET_SMALL, GW_NET_SMALL + 1,
         16384, 16385, 1 << 20},
                        lengths[] = {0, 1, 28, GW_NET_MOST_HEADER};
    for (int tls = 0; tls < 2; tls++)
        for (int drops = 0; drops < 2; drops++) {
            struct ends e;
            open_ends(&e, tls);
            e.b.most_header = GW_NET_MOST_HEADER;
            e.place = drops ? gw_net_nowhere : NULL;
            for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
                for (size_t h = 0; h < sizeof lengths / sizeof *lengths; h++) {
                    uint8_t *header = pattern(lengths[h], 9), *body = pattern(bodies[i], 5);
                    uint8_t *sent = pattern(bodies[i], 5);
                    ok(gw_net_send_with(&e.a, 8, header, lengths[h], sent, bodies[i], free, sent));
                    const struct gw_net_message m = take(&e);
                    struct gw_net_message again;
                    ok(gw_net_next(&e.b, &again));
                    assert_true(again.bytes == m.bytes && again.kind == m.kind);
                    assert_true(m.kind == 8 && m.n_header == lengths[h] && m.n_bytes == bodies[i]);
                    assert_memory_equal(m.header, header, lengths[h]);
                    assert_true(m.is_small == (lengths[h] + bodies[i] <= GW_NET_SMALL));
                    if (m.is_small || !drops)
                        assert_memory_equal(m.bytes, body, bodies[i]);
                    else
                        assert_ptr_equal(m.bytes, gw_net_nowhere);
                    gw_net_consume(&e.b);
                    gw_net_consume(&e.b); /* does nothing */
                    if (!m.is_small && !drops)
                        free(m.bytes);
                    free(header), free(body);
                }
            ok(gw_net_flush(&e.a));
            close_ends(&e);
        }
}

/* What was sent before the end is received before it, and nothing can be sent after it. */
TEST(the_end)
{
    for (int tls = 0; tls < 2; tls++) {
        struct ends e;
        struct gw_net_message m;
        open_ends(&e, tls);
        say(&e.a, 1, 400000);
        ok(gw_net_send(&e.a, 2, "bye", 3));
        m = take(&e);
        heard(&e.b, &m, 1, 400000);
        m = take(&e);
        assert_true(m.kind == 2 && m.n_bytes == 3 && memcmp(m.bytes, "bye", 3) == 0);
        gw_net_consume(&e.b);
        gw_net_close(&e.a);
        n_released = 0;
        void *unsent = pattern(5, 0);
        refused(gw_net_send_with(&e.a, 4, NULL, 0, unsent, 5, release, unsent), GW_ERR_PEER, "");
        assert_int_equal(n_released, 1);
        refused(gw_net_next(&e.b, &m), GW_ERR_PEER, "");
        assert_int_equal(e.b.error, 0);
        refused(gw_net_next(&e.b, &m), GW_ERR_PEER, "");
        gw_net_close(&e.b);
        assert_false(gw_net_is_silent(&e.b, 0)); /* it says nothing, but nothing is under way */
    }
}

/* The other side is gone: bytes that wait are released, and what it had sent can still be read. */
TEST(gone_while_sending)
{
    struct ends e;
    struct gw_net_message m;
    open_ends(&e, false);
    n_released = 0;
    say(&e.b, 1, 3);
    for (int i = 0; i < 3; i++)
        say(&e.a, 1, 200000);
    gw_net_close(&e.b);
    refused(gw_net_flush(&e.a), GW_ERR_PEER, "");
    assert_int_equal(n_released, 4);
    ok(gw_net_next(&e.a, &m)), heard(&e.a, &m, 1, 3);
    refused(gw_net_next(&e.a, &m), GW_ERR_PEER, "");
    gw_net_close(&e.a);
}

/* The other machine answers no more. That shows only while something is under way. */
TEST(a_machine_falls_silent)
{
    char place[32] = "127.0.0.1:0";
    const double end = gw_clock_seconds() + PEER_SECONDS;
    const int listening = peer_listen(place);
    struct gw_net_connection c = {0};
    struct gw_net_address address;
    ok(gw_net_address_parse("it", place, false, &address));
    gw_net_init(&c, NULL);
    ok(gw_net_dial(&c, &address, NULL, NULL, 60000));
    const int fd = accept(listening, NULL, NULL);
    ok(gw_net_establish(&c));
    usleep(20000);
    assert_false(gw_net_is_silent(&c, 0));
    peer_falls_silent(fd);
    ok(gw_net_send(&c, 1, "", 0));
    assert_false(gw_net_is_silent(&c, 1000 * PEER_SECONDS));
    while (!gw_net_is_silent(&c, 20)) {
        assert_true(gw_clock_seconds() < end);
        usleep(1000);
    }
    gw_net_close(&c);
    close(fd);
    close(listening);
}

static int begin_with_keys(void **state)
{
    return begin(state) || gw_net_keys_load(NULL, at("job"), GW_NET_MEMBER, NULL, &keys) < 0;
}

static int end_with_keys(void **state)
{
    gw_net_keys_free(keys);
    return end(state);
}

RUN_TESTS("net connection", begin_with_keys, end_with_keys)
