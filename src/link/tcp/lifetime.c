/* Opens, connects, shuts and frees one rank's endpoint of the tcp link. */
#include "link/tcp/lifetime.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/inbox.h"
#include "zmq/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define LEAVE_SECONDS 2.0                  /* how long destroy waits until all that was sent has left */
#define STRANGER_BYTES ((uint64_t)8 << 10) /* what one stranger may send; a handshake and a HELLO have less */

static gw_status descriptor(void *socket, int *fd)
{
    size_t bytes = sizeof *fd;
    if (zmq_getsockopt(socket, ZMQ_FD, fd, &bytes) == 0)
        return GW_OK;
    return gw_fail(GW_ERR_SYSTEM, "ZeroMQ gives no descriptor of a socket: %s", zmq_strerror(zmq_errno()));
}

static gw_status open_sockets(struct gw_tcp_endpoint *me, const struct gw_zmq_address *address,
                              char endpoint[GW_ZMQ_ENDPOINT_BYTES])
{
    char name[32];
    me->in = gw_zmq_socket_new(&me->group->net, ZMQ_DEALER, true);
    me->out = me->in ? gw_zmq_socket_new(&me->group->net, ZMQ_ROUTER, false) : NULL;
    if (!me->out)
        return GW_ERR_SYSTEM;
    const int64_t longest = GW_TCP_MOST_BYTES;
    if (zmq_setsockopt(me->in, ZMQ_MAXMSGSIZE, &longest, sizeof longest) != 0)
        return gw_fail(GW_ERR_SYSTEM, "ZeroMQ refuses a limit of messages: %s", zmq_strerror(zmq_errno()));
    GW_TRY(gw_zmq_set_int(me->out, ZMQ_ROUTER_MANDATORY, 1));
    /* A broken connection is not made again. Its first message said who speaks, and messages may be lost. */
    GW_TRY(gw_zmq_set_int(me->out, ZMQ_RECONNECT_IVL, -1));
    const struct gw_zmq_limits limits = {.most_strangers = me->group->size + GW_ZMQ_SPARE_STRANGERS,
                                         .silent_s = GW_ZMQ_SILENT_SECONDS,
                                         .stranger_bytes = STRANGER_BYTES};
    snprintf(name, sizeof name, "in-%u", me->nth);
    GW_TRY(gw_zmq_net_door(&me->group->net, me->in, name, 0, &limits, &me->door));
    const int news = ZMQ_EVENT_CONNECT_DELAYED | ZMQ_EVENT_CONNECTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                     ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_CLOSED | ZMQ_EVENT_DISCONNECTED;
    snprintf(name, sizeof name, "out-%u", me->nth);
    GW_TRY(gw_zmq_monitor(me->group->net.zmq, me->out, name, news, &me->out_events));
    GW_TRY(descriptor(me->in, &me->in_ready));
    GW_TRY(descriptor(me->out_events, &me->events_ready));
    return gw_zmq_bind(me->in, address, endpoint);
}

gw_status gw_tcp_endpoint_open(struct gw_tcp_group *group, uint32_t nth, const struct gw_zmq_address *address,
                               char endpoint[GW_ZMQ_ENDPOINT_BYTES], struct gw_tcp_endpoint **out)
{
    struct gw_tcp_endpoint *me = gw_calloc(group->context, 1, sizeof *me);
    if (!me)
        return GW_ERR_MEMORY;
    me->group = group;
    me->nth = nth;
    me->failed_peer = GW_TCP_NOBODY;
    me->n_awaited = me->n_unreached = group->size - 1;
    me->wake = -1;
    zmq_msg_init(&me->held);
    if (pthread_mutex_init(&me->lock, NULL)) {
        gw_free(group->context, me);
        return gw_fail(GW_ERR_SYSTEM, "no lock for the tcp link");
    }
    *out = me; /* from here on gw_tcp_endpoint_shut and gw_tcp_endpoint_free clean up */
    me->peers = gw_calloc(group->context, group->size, sizeof me->peers[0]);
    if (!me->peers)
        return GW_ERR_MEMORY;
    for (uint32_t r = 0; r < group->size; r++)
        me->peers[r].in_fd = me->peers[r].in_kept = -1;
    me->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (me->wake < 0)
        return gw_fail(GW_ERR_SYSTEM, "no eventfd for the tcp link: %s", strerror(errno));
    GW_TRY(gw_tcp_notice_make(me));
    return open_sockets(me, address, endpoint);
}

gw_status gw_tcp_endpoint_connect(struct gw_tcp_endpoint *me)
{
    me->tag = gw_tcp_tag(me->group->session, me->nth);
    /* a member that has heard from all may begin to send before the others have heard from all */
    gw_zmq_door_expect(me->door);
    gw_status status = GW_OK;
    pthread_mutex_lock(&me->lock);
    for (uint32_t i = 1; i < me->group->size && status == GW_OK; i++)
        /* begin after the own rank, so that not all members connect to rank 0 first */
        status = gw_tcp_dial(me, (me->group->rank + i) % me->group->size);
    pthread_mutex_unlock(&me->lock);
    return status;
}

void gw_tcp_endpoint_shut(struct gw_tcp_endpoint *me)
{
    if (!me->out) { /* it was not opened as far as this */
        gw_zmq_door_close(&me->in, &me->door);
        return;
    }
    const double end = gw_clock_seconds() + LEAVE_SECONDS;
    gw_tcp_notice_drop(me); /* what discard reads is no failure of this member: it leaves */
    if (me->door && me->out_events)
        gw_tcp_discard(me); /* a member that has left need not hear that this one leaves */
    gw_tcp_close(me);
    while (atomic_load(&me->n_outstanding) > 0 && gw_clock_seconds() < end && me->door && me->out_events) {
        /* No message comes to `out`. But ZeroMQ frees dropped frames only when somebody looks at the socket. */
        zmq_pollitem_t items[] = {{me->in, 0, ZMQ_POLLIN, 0},
                                  {me->out, 0, ZMQ_POLLIN, 0},
                                  {me->out_events, 0, ZMQ_POLLIN, 0}};
        zmq_poll(items, 3, 1);
        gw_tcp_discard(me);
    }
    /* ZeroMQ is done with all frames, but the last bytes may still be in its own buffers. */
    double left = end - gw_clock_seconds();
    gw_zmq_set_int(me->out, ZMQ_LINGER, left > 0.1 ? (int)(left * 1000) : 100);
    if (atomic_load(&me->n_outstanding) > 0)
        gw_zmq_set_int(me->out, ZMQ_LINGER, 0);
    gw_zmq_close_monitored(&me->out, &me->out_events);
    zmq_msg_close(&me->held);
    zmq_msg_init(&me->held);
    gw_zmq_door_close(&me->in, &me->door);
    for (uint32_t r = 0; r < me->group->size; r++)
        gw_tcp_let_go(&me->peers[r]);
    gw_message_queue_clear(&me->early);
    gw_message_queue_clear(&me->own);
}

void gw_tcp_endpoint_free(struct gw_tcp_endpoint *me)
{
    if (!me)
        return;
    gw_tcp_notice_drop(me);
    if (me->wake >= 0)
        close(me->wake);
    pthread_mutex_destroy(&me->lock);
    gw_zmq_ended_free(&me->in_ended, me->group->context);
    gw_free(me->group->context, me->peers);
    gw_free(me->group->context, me);
}
