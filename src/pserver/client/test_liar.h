/* A server for tests that answers one operation with a lie, or not at all, and all others as a server that agrees. It
 * speaks the protocol over real sockets, and keeps nothing. */
#ifndef GW_PSERVER_CLIENT_TEST_LIAR_H
#define GW_PSERVER_CLIENT_TEST_LIAR_H

#include "pserver/protocol/message.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

#define LIAR_TIMEOUT_MS 20000 /* what it tells clients of itself */

/* What a server answers to one operation, in place of the truth. */
struct lie {
    enum gw_ps_operation to;
    const char *about; /* the key; NULL: any */
    struct gw_ps_reply reply;
    size_t n_bytes; /* of the body; 0: none */
    bool raw;       /* the body is all that is sent */
};

struct liar {
    void *zmq, *socket;
    pthread_t thread;
    uint32_t n_workers;
    const struct lie *lie;
    uint32_t silent_to; /* operations that it does not answer at all: a mask of 1 << operation */
    char place[64];
};

static inline void liar_say(const struct liar *liar, const void *route, size_t n_route, const struct gw_ps_reply *reply,
                            size_t n_bytes, bool raw)
{
    uint8_t head[GW_PS_HEAD_BYTES], *body = calloc(n_bytes + 1, 1);
    assert_non_null(body);
    memset(body, 1, n_bytes);
    zmq_send(liar->socket, route, n_route, ZMQ_SNDMORE);
    if (!raw)
        zmq_send(liar->socket, head, gw_ps_reply_write(head, reply), n_bytes ? ZMQ_SNDMORE : 0);
    if (n_bytes || raw)
        zmq_send(liar->socket, body, n_bytes, 0);
    free(body);
}

/* Answers a request: with the lie if it is about this operation and key, and else honestly. */
static inline void liar_answer(struct liar *liar, const void *route, size_t n_route,
                               const struct gw_ps_request *request)
{
    const struct lie *lie = liar->lie;
    struct gw_ps_reply reply = {.operation = request->operation, .id = request->id, .number = request->number};
    if (liar->silent_to >> request->operation & 1)
        return;
    if (lie && lie->to == request->operation && (!lie->about || strcmp(lie->about, request->key) == 0)) {
        reply = lie->reply;
        reply.id = request->id;
        reply.operation = reply.operation ? reply.operation : request->operation;
        liar_say(liar, route, n_route, &reply, lie->n_bytes, lie->raw);
        return;
    }
    reply.n_workers = liar->n_workers;
    reply.timeout_ms = LIAR_TIMEOUT_MS;
    reply.number = request->operation == GW_PS_PUSH || request->operation == GW_PS_VERDICT ? request->number : 1;
    liar_say(liar, route, n_route, &reply, request->operation == GW_PS_MEMBERS ? liar->n_workers : 0, false);
}

static inline void *liar_run(void *user)
{
    struct liar *liar = user;
    uint8_t route[64], bytes[GW_PS_HEAD_BYTES];
    for (;;) {
        struct gw_ps_request request;
        const int n_route = zmq_recv(liar->socket, route, sizeof route, 0);
        if (n_route < 0)
            break;
        const int n = zmq_recv(liar->socket, bytes, sizeof bytes, 0);
        int more = 0;
        size_t size = sizeof more;
        while (zmq_getsockopt(liar->socket, ZMQ_RCVMORE, &more, &size) == 0 && more) {
            zmq_msg_t scrap;
            zmq_msg_init(&scrap);
            zmq_msg_recv(&scrap, liar->socket, 0);
            zmq_msg_close(&scrap);
        }
        if (n >= 0 && gw_ps_request_read(bytes, (size_t)n, &request) == GW_OK)
            liar_answer(liar, route, (size_t)n_route, &request);
    }
    zmq_close(liar->socket);
    return NULL;
}

static inline void liar_begin_silent(struct liar *liar, const struct lie *lie, uint32_t silent_to)
{
    char endpoint[64];
    size_t n = sizeof endpoint;
    *liar = (struct liar){.zmq = zmq_ctx_new(), .n_workers = 2, .lie = lie, .silent_to = silent_to};
    const int linger = 0; /* answers that nobody has read must not keep the test from ending */
    liar->socket = zmq_socket(liar->zmq, ZMQ_ROUTER);
    assert_int_equal(zmq_setsockopt(liar->socket, ZMQ_LINGER, &linger, sizeof linger), 0);
    assert_int_equal(zmq_bind(liar->socket, "tcp://127.0.0.1:*"), 0);
    assert_int_equal(zmq_getsockopt(liar->socket, ZMQ_LAST_ENDPOINT, endpoint, &n), 0);
    snprintf(liar->place, sizeof liar->place, "%s", endpoint + strlen("tcp://"));
    assert_int_equal(pthread_create(&liar->thread, NULL, liar_run, liar), 0);
}

static inline void liar_begin(struct liar *liar, const struct lie *lie)
{
    liar_begin_silent(liar, lie, 0);
}

static inline void liar_end(struct liar *liar)
{
    zmq_ctx_shutdown(liar->zmq);
    pthread_join(liar->thread, NULL);
    zmq_ctx_term(liar->zmq);
}

#endif
