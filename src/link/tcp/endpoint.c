/* What both ways of an endpoint of the tcp link need: what epoll watches, and where long messages go. */
#include "link/tcp/state.h"

#include <sys/epoll.h>

void gw_tcp_watch(struct gw_tcp_endpoint *me, uint32_t rank)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    const uint32_t events = gw_net_events(&peer->c);
    if (events == peer->events || peer->c.fd < 0)
        return;
    struct epoll_event event = {.events = events, .data.u32 = rank};
    epoll_ctl(me->epoll, peer->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, peer->c.fd, &event);
    peer->events = events;
}

void *gw_tcp_place(void *peer, const struct gw_net_message *message)
{
    const struct gw_tcp_peer *from = peer;
    return gw_message_alloc(from->endpoint->group->context, message->n_bytes);
}
