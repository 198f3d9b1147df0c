/* Sends the messages of one rank's endpoint of the tcp link. receive.c receives. */
#include "base/append.h"
#include "base/clock.h"
#include "base/error.h"
#include "link/tcp/state.h"

#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

static void wake(struct gw_tcp_endpoint *me)
{
    if (atomic_exchange(&me->sleeping, false))
        eventfd_write(me->wake, 1);
}

/* Sends one message to one peer. `release` is called with `owner` when the body has left, also if this fails. The lock
 * is held. */
static gw_status send_parts(struct gw_tcp_endpoint *me, uint32_t to, const void *head, size_t n_head, const void *body,
                            size_t n_body, void (*release)(void *owner), void *owner)
{
    struct gw_tcp_peer *peer = &me->peers[to];
    gw_status status = GW_ERR_PEER;
    if (!peer->gone)
        status = gw_net_send_with(&peer->c, GW_TCP_DATA, head, n_head, body, n_body, release, owner);
    else
        release(owner);
    if (status == GW_ERR_PEER) {
        shutdown(peer->c.fd, SHUT_RDWR); /* so that what it has sent has an end */
        do                               /* recv returns it first: it may say why this failed */
            status = gw_tcp_read_peer(me, to);
        while (status == GW_OK && peer->c.fd >= 0);
        gw_tcp_lose(me, to);
        return gw_fail(GW_ERR_PEER, "%s", peer->why);
    }
    GW_TRY(status);
    if (peer->c.first)
        gw_net_watch(&peer->c, me->epoll, (epoll_data_t){.u32 = to});
    return GW_OK;
}

/* The same for bytes of gw_message_alloc, which it owns, also if it fails. The first bytes of a long message are its
 * header, so that the receiver knows where the rest belongs. */
static gw_status send_one(struct gw_tcp_endpoint *me, uint32_t to, void *bytes, size_t n_bytes)
{
    const size_t n_head = n_bytes > GW_NET_SMALL ? GW_LOAN_HEAD : 0;
    return send_parts(me, to, bytes, n_head, (char *)bytes + n_head, n_bytes - n_head, gw_message_free, bytes);
}

/* Takes the lock for a send. If there can be none, `release` is called with `owner`. */
static gw_status begin(struct gw_tcp_endpoint *me, size_t n_bytes, void (*release)(void *owner), void *owner)
{
    gw_status status = gw_process_check(me->group->made_in, GW_TCP_THIS);
    if (status < 0) {
        release(owner);
        return status;
    }
    pthread_mutex_lock(&me->lock);
    if (!me->closed && n_bytes <= GW_TCP_MOST_BYTES)
        return GW_OK;
    status = me->closed ? gw_fail(GW_ERR_CLOSED, "rank %u sent on a link that it has closed", me->group->rank)
                        : gw_fail(GW_ERR_ARGUMENT, "a message of %zu bytes; the tcp link takes 8 GiB at most", n_bytes);
    pthread_mutex_unlock(&me->lock);
    release(owner);
    return status;
}

gw_status gw_tcp_send_loan(struct gw_tcp_endpoint *me, struct gw_loan *loan, void (*release)(void *loan))
{
    GW_TRY(begin(me, GW_LOAN_HEAD + loan->n_bytes, release, loan));
    const gw_status status =
        send_parts(me, loan->peer, loan->head, GW_LOAN_HEAD, loan->body, loan->n_bytes, release, loan);
    pthread_mutex_unlock(&me->lock);
    return status;
}

/* The kernel takes the bytes, or they wait here. So this waits at most for another thread's call. */
gw_status gw_tcp_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct gw_tcp_endpoint *me = self;
    const struct gw_tcp_group *group = me->group;
    gw_status status = GW_OK;
    (void)timeout_ms;
    if (to >= group->size)
        return gw_message_refuse(bytes, gw_fail(GW_ERR_ARGUMENT, "rank %u was sent to; ranks are 0 to %u", to,
                                                group->size - 1));
    GW_TRY(begin(me, n_bytes, gw_message_free, bytes));
    if (to == group->rank) {
        gw_message_queue_put(&me->arrived, &(gw_message){.from = to, .bytes = bytes, .n_bytes = n_bytes});
        wake(me);
    } else {
        status = send_one(me, to, bytes, n_bytes);
    }
    pthread_mutex_unlock(&me->lock);
    return status;
}

/* All peers share the bytes. If one cannot be sent to, the others get the message all the same. */
gw_status gw_tcp_send_all(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct gw_tcp_endpoint *me = self;
    const struct gw_tcp_group *group = me->group;
    char sentence[GW_TCP_TEXT_BYTES];
    gw_status status = GW_OK;
    (void)timeout_ms;
    GW_TRY(begin(me, n_bytes, gw_message_free, bytes));
    /* Begin after the own rank, so that not all members send to rank 0 first. */
    for (uint32_t i = 1; i < group->size && (status == GW_OK || status == GW_ERR_PEER); i++) {
        gw_message_share(bytes);
        const gw_status one = send_one(me, (group->rank + i) % group->size, bytes, n_bytes);
        if (one < 0 && status == GW_OK) {
            status = one; /* GW_ERR_MEMORY ends the loop */
            snprintf(sentence, sizeof sentence, "%s", gw_last_error());
        }
    }
    pthread_mutex_unlock(&me->lock);
    gw_message_free(bytes); /* this call's own share */
    return status == GW_ERR_PEER ? gw_fail(status, "%s", sentence) : status;
}

static bool has_taken_all(const void *endpoint, uint32_t rank)
{
    return !((const struct gw_tcp_endpoint *)endpoint)->peers[rank].c.first;
}

gw_status gw_tcp_flush(void *self, uint32_t timeout_ms)
{
    struct gw_tcp_endpoint *me = self;
    GW_TRY(gw_process_check(me->group->made_in, GW_TCP_THIS));
    const double deadline = gw_clock_seconds() + timeout_ms / 1000.0;
    gw_status status = GW_OK;
    struct gw_missing behind;
    pthread_mutex_lock(&me->lock);
    while (status == GW_OK && (behind = gw_missing_ranks(me->group->size, has_taken_all, me)).text[0]) {
        const double left = deadline - gw_clock_seconds();
        int n;
        status = left > 0 ? gw_tcp_turn(me, left, &n)
                          : gw_fail(GW_ERR_TIMEOUT, "what was sent to %s has not left within %u ms", behind.text,
                                    timeout_ms);
    }
    pthread_mutex_unlock(&me->lock);
    return status;
}

/* ---- the end --------------------------------------------------------------------------------------------- */

void gw_tcp_close(void *self)
{
    struct gw_tcp_endpoint *me = self;
    if (!gw_process_is(me->group->made_in))
        return;
    pthread_mutex_lock(&me->lock);
    for (uint32_t r = 0; r < me->group->size && !me->closed; r++) {
        if (gw_net_flush(&me->peers[r].c) == GW_OK) /* else the end waits in destroy */
            gw_net_end_sending(&me->peers[r].c);
    }
    me->closed = true;
    wake(me);
    pthread_mutex_unlock(&me->lock);
}
