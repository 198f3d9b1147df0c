/* What both sides of the meeting share. host.c is rank 0's side, visitor.c is the side of the others. */
#include "link/tcp/meeting.h"
#include "base/clock.h"
#include "link/tcp/endpoint.h"

uint8_t *gw_tcp_write_contact(const struct gw_tcp_group *group, uint8_t *at, char (*endpoints)[GW_ZMQ_ENDPOINT_BYTES])
{
    if (group->net.keys)
        at = gw_tcp_write_key(at, group->net.keys->public_key);
    for (uint32_t l = 0; l < group->n_links; l++)
        at = gw_tcp_write_endpoint(at, endpoints[l]);
    return at;
}

void gw_tcp_adopt(struct gw_tcp_group *group, const struct gw_tcp_table *table)
{
    struct gw_tcp_reader reader = table->contacts;
    group->session = table->session;
    for (uint32_t r = 0; r < group->size; r++) {
        if (group->net.keys)
            gw_tcp_read_key(&reader, group->keys_of[r]);
        for (uint32_t l = 0; l < group->n_links; l++)
            gw_tcp_read_endpoint(&reader, group->endpoints[l]->peers[r].endpoint);
    }
}

void gw_tcp_meeting_sleep(void *socket, void *events, int events_fd, double until)
{
    double left = until - gw_clock_seconds();
    zmq_pollitem_t items[] = {{socket, 0, ZMQ_POLLIN, 0}, {events, events_fd, ZMQ_POLLIN, 0}};
    zmq_poll(items, 2, left <= 0 ? 0 : (long)((left < GW_TCP_ASK_SECONDS ? left : GW_TCP_ASK_SECONDS) * 1000) + 1);
}

bool gw_tcp_take_parts(void *socket, zmq_msg_t *parts, int n, bool *whole)
{
    int i = 0, more = 1;
    for (int p = 0; p < n; p++)
        zmq_msg_init(&parts[p]);
    while (more) {
        zmq_msg_t scrap;
        zmq_msg_init(&scrap);
        zmq_msg_t *to = i < n ? &parts[i] : &scrap;
        if (zmq_msg_recv(to, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&scrap);
            return false;
        }
        more = zmq_msg_more(to);
        i++;
        zmq_msg_close(&scrap);
    }
    *whole = i == n;
    return true;
}
