/* A server for tests that answers one operation with a lie, or not at all, and all others as a server that agrees. It
 * speaks the protocol over real sockets, and keeps nothing. */
#ifndef GW_PSERVER_CLIENT_TEST_LIAR_H
#define GW_PSERVER_CLIENT_TEST_LIAR_H

#include "net/test_peer.h"
#include "pserver/protocol/message.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#define LIAR_TIMEOUT_MS 20000 /* what it tells clients of itself */
enum { LIAR_MOST = 16 };      /* connections in all */
enum { LIAR_HALF = 2 };
#define LIAR_GOES (1u << 31) /* among the operations that a server does not answer: it ends at the first of them */

/* What a server answers to one operation, in place of the truth. */
struct lie {
    enum gw_ps_operation to;
    const char *about; /* the key; NULL: any */
    struct gw_ps_answer answer;
    size_t n_bytes; /* of the body; 0: none */
    int raw;        /* 1: the body is all that is sent; LIAR_HALF: only the first bytes of a message are */
};

struct liar {
    int listening;
    atomic_bool ends;
    pthread_t thread;
    uint32_t n_workers;
    const struct lie *lie;
    atomic_int n_lies;  /* how often it still lies, before it is honest; below 0: always */
    uint32_t silent_to; /* operations that it does not answer at all: a mask of 1 << operation */
    bool goes;          /* LIAR_GOES was among them */
    char place[32];
};

static inline void liar_say(int fd, const struct gw_ps_answer *answer, size_t n_bytes, bool raw)
{
    uint8_t head[GW_PS_HEAD_BYTES], *body = calloc(n_bytes + 1, 1);
    assert_non_null(body);
    memset(body, 1, n_bytes);
    peer_send(fd, GW_PS_MESSAGE, head, raw ? 0 : gw_ps_answer_write(head, answer), body, n_bytes);
    free(body);
}

/* Answers a request: with the lie if it is about this operation and key, and else honestly. */
static inline void liar_answer(struct liar *liar, int fd, const struct gw_ps_request *request)
{
    const struct lie *lie = liar->lie;
    struct gw_ps_answer answer = {.operation = request->operation, .id = request->id, .number = request->number};
    if (liar->silent_to >> request->operation & 1) {
        liar->ends = liar->ends || liar->goes;
        return;
    }
    if (lie && liar->n_lies != 0 && lie->to == request->operation &&
        (!lie->about || strcmp(lie->about, request->key) == 0)) {
        liar->n_lies--;
        if (lie->raw == LIAR_HALF) {
            assert_int_equal(send(fd, "half a head", 4, MSG_NOSIGNAL), 4);
            return;
        }
        answer = lie->answer;
        answer.id = request->id;
        answer.operation = answer.operation ? answer.operation : request->operation;
        liar_say(fd, &answer, lie->n_bytes, lie->raw);
        return;
    }
    answer.n_workers = liar->n_workers;
    answer.timeout_ms = LIAR_TIMEOUT_MS;
    answer.number = request->operation == GW_PS_PUSH || request->operation == GW_PS_VERDICT ? request->number : 1;
    liar_say(fd, &answer, request->operation == GW_PS_MEMBERS ? liar->n_workers : 0, false);
}

static inline void *liar_run(void *user)
{
    struct liar *liar = user;
    struct pollfd fds[1 + LIAR_MOST] = {{.fd = liar->listening, .events = POLLIN}};
    nfds_t n = 1;
    while (!liar->ends) {
        poll(fds, n, 20);
        if (fds[0].revents && n <= LIAR_MOST) {
            fds[n++] = (struct pollfd){.fd = accept(liar->listening, NULL, NULL), .events = POLLIN};
            continue;
        }
        for (nfds_t i = 1; i < n; i++) {
            struct peer_message m;
            struct gw_ps_request request;
            if (!fds[i].revents)
                continue;
            if (!peer_hear(fds[i].fd, &m)) {
                close(fds[i].fd);
                fds[i].fd = -1;
            } else if (gw_ps_request_read(m.header, m.n_header, &request) == GW_OK) {
                liar_answer(liar, fds[i].fd, &request);
                /* As a server does it. A client that goes would wait a second for the end of its connection. */
                if (request.operation == GW_PS_BYE) {
                    close(fds[i].fd);
                    fds[i].fd = -1;
                }
            }
        }
    }
    for (nfds_t i = 0; i < n; i++)
        close(fds[i].fd);
    return NULL;
}

static inline void liar_begin_silent(struct liar *liar, const struct lie *lie, uint32_t silent_to)
{
    *liar = (struct liar){.n_workers = 2, .lie = lie, .n_lies = -1, .silent_to = silent_to & ~LIAR_GOES};
    liar->goes = silent_to & LIAR_GOES;
    strcpy(liar->place, "127.0.0.1:0");
    liar->listening = peer_listen(liar->place);
    assert_int_equal(pthread_create(&liar->thread, NULL, liar_run, liar), 0);
}

static inline void liar_begin(struct liar *liar, const struct lie *lie)
{
    liar_begin_silent(liar, lie, 0);
}

static inline void liar_end(struct liar *liar)
{
    liar->ends = true;
    pthread_join(liar->thread, NULL);
}

#endif
