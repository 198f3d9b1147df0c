/* A client of a parameter server for tests that speaks by hand: over a raw connection (net/test_peer.h), a request and
 * an answer at a time. */
#ifndef GW_PSERVER_PROTOCOL_TEST_TALK_H
#define GW_PSERVER_PROTOCOL_TEST_TALK_H

#include "net/test_peer.h"
#include "outcome.h"
#include "pserver/client/for_exchange.h"
#include "pserver/protocol/message.h"

enum { TALK_MS = 600000 }; /* so long the server lets a push or a pull wait */

/* Writes a request's header: of a client that knows of one server, if the request does not say otherwise. */
static inline size_t talk_write(uint8_t header[GW_PS_HEAD_BYTES], const struct gw_ps_request *request)
{
    struct gw_ps_request whole = *request;
    whole.n_servers = whole.n_servers ? whole.n_servers : 1;
    whole.n_parts = whole.n_parts ? whole.n_parts : 1;
    return gw_ps_request_write(header, &whole);
}

/* Writes the head of a message, and of the request in it, whose value has n_bytes. Returns their length. */
static inline size_t talk_head(uint8_t at[GW_NET_HEAD + GW_PS_HEAD_BYTES], const struct gw_ps_request *request,
                               uint64_t n_bytes)
{
    const size_t n = talk_write(at + GW_NET_HEAD, request);
    peer_head(at, GW_PS_MESSAGE, n, n_bytes);
    return GW_NET_HEAD + n;
}

/* Sends a request. false: the server has ended the connection. */
static inline bool talk_send(int fd, const struct gw_ps_request *request, const void *value, size_t n_bytes)
{
    uint8_t header[GW_PS_HEAD_BYTES];
    const size_t n = talk_write(header, request);
    return peer_send(fd, GW_PS_MESSAGE, header, n, value, n_bytes);
}

/* The next answer; its value is dropped. false: the server has ended the connection. */
static inline bool talk_hear(int fd, struct gw_ps_answer *answer)
{
    struct peer_message message;
    if (!peer_hear(fd, &message))
        return false;
    assert_int_equal(message.kind, GW_PS_MESSAGE);
    assert_int_equal(gw_ps_answer_read(message.header, message.n_header, answer), GW_OK);
    return true;
}

static inline void send_request(int fd, struct gw_ps_request request, const void *value, size_t n_bytes)
{
    assert_true(talk_send(fd, &request, value, n_bytes));
}

static inline struct gw_ps_answer hear(int fd)
{
    struct gw_ps_answer answer;
    assert_true(talk_hear(fd, &answer));
    return answer;
}

static inline struct gw_ps_request push_of(const char *key, uint64_t nth)
{
    struct gw_ps_request push = gw_ps_request_of(GW_PS_PUSH, key);
    push.nth = nth, push.timeout_ms = TALK_MS;
    return push;
}

static inline struct gw_ps_request pull_of(const char *key, gw_ps_method method)
{
    struct gw_ps_request pull = gw_ps_request_of(GW_PS_PULL, key);
    pull.method = (uint8_t)method, pull.timeout_ms = TALK_MS;
    return pull;
}

/* A row of n elements. */
static inline struct gw_ps_request init_of(const char *key, gw_ps_type type, uint64_t n)
{
    struct gw_ps_request init = gw_ps_request_of(GW_PS_INIT, key);
    init.type = (uint8_t)type, init.shape = (gw_ps_shape){.n_dims = 1, .dims = {n}};
    return init;
}

static inline void expect(int fd, gw_status status, const char *words)
{
    struct gw_ps_answer answer = hear(fd);
    CHECK(answer.status == status && strstr(answer.sentence, words), "%d \"%s\" and not %d \"%s\"", answer.status,
          answer.sentence, status, words);
}

/* Sends a request, and hears this answer. */
static inline void ask(int fd, struct gw_ps_request request, const void *value, size_t n_bytes, gw_status status,
                       const char *words)
{
    send_request(fd, request, value, n_bytes);
    expect(fd, status, words);
}

/* The server ends the connection, and says no more. */
static inline void expect_end(int fd)
{
    struct gw_ps_answer answer;
    CHECK(!talk_hear(fd, &answer), "the connection goes on: %d \"%s\"", answer.status, answer.sentence);
    close(fd);
}

static inline void leave(int fd)
{
    send_request(fd, (struct gw_ps_request){.operation = GW_PS_BYE}, NULL, 0);
    expect_end(fd);
}

#endif
