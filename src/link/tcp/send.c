/* Sends the messages of one rank's endpoint of the tcp link. receive.c receives. */
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

/* Sends one message to one peer. It owns the bytes, also if it fails. The lock is held. */
static gw_status send_one(struct gw_tcp_endpoint *me, uint32_t to, void *bytes, size_t n_bytes)
{
    struct gw_tcp_peer *peer = &me->peers[to];
    gw_status status = GW_ERR_PEER;
    if (!peer->gone)
        status = gw_net_send(&peer->c, GW_TCP_DATA, bytes, n_bytes, gw_message_free);
    else
        gw_message_free(bytes);
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

/* Takes the lock for a send. If there can be none, the bytes are freed. */
static gw_status begin(struct gw_tcp_endpoint *me, void *bytes, size_t n_bytes)
{
    if (!gw_process_is(me->group->made_in))
        return gw_message_refuse(bytes, gw_process_check(me->group->made_in, GW_TCP_THIS));
    pthread_mutex_lock(&me->lock);
    if (!me->closed && n_bytes <= GW_TCP_MOST_BYTES)
        return GW_OK;
    const gw_status status =
        me->closed ? gw_fail(GW_ERR_CLOSED, "rank %u sent on a link that it has closed", me->group->rank)
                   : gw_fail(GW_ERR_ARGUMENT, "a message of %zu bytes; the tcp link takes 8 GiB at most", n_bytes);
    pthread_mutex_unlock(&me->lock);
    return gw_message_refuse(bytes, status);
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
    GW_TRY(begin(me, bytes, n_bytes));
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
    GW_TRY(begin(me, bytes, n_bytes));
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

static bool anything_waits(const struct gw_tcp_endpoint *me)
{
    bool waits = false;
    for (uint32_t r = 0; r < me->group->size; r++)
        waits = waits || !has_taken_all(me, r);
    return waits;
}

gw_status gw_tcp_flush(void *self, uint32_t timeout_ms)
{
    struct gw_tcp_endpoint *me = self;
    GW_TRY(gw_process_check(me->group->made_in, GW_TCP_THIS));
    const double deadline = gw_clock_seconds() + timeout_ms / 1000.0;
    gw_status status = GW_OK;
    pthread_mutex_lock(&me->lock);
    while (status == GW_OK && anything_waits(me)) {
        const double left = deadline - gw_clock_seconds();
        int n;
        status = left > 0 ? gw_tcp_turn(me, left, &n)
                          : gw_fail(GW_ERR_TIMEOUT, "what was sent to %s has not left within %u ms",
                                    gw_tcp_missing_ranks(me->group->size, has_taken_all, me).text, timeout_ms);
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
