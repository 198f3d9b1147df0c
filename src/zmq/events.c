/* Watches a ZeroMQ socket and reads what ZeroMQ tells about its connections. It also remembers which connections have
 * ended. */
#include "zmq/events.h"
#include "base/error.h"
#include "base/memory.h"
#include "zmq/socket.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#define MOST_DESCRIPTORS (1u << 24) /* a larger value from ZeroMQ is no descriptor */

gw_status gw_zmq_monitor(void *zmq, void *socket, const char *name, int events, void **out)
{
    char place[64];
    snprintf(place, sizeof place, "inproc://%s", name);
    *out = zmq_socket(zmq, ZMQ_PAIR);
    if (!*out)
        return gw_fail(GW_ERR_SYSTEM, "no socket: %s", zmq_strerror(zmq_errno()));
    GW_TRY(gw_zmq_set_int(*out, ZMQ_RCVHWM, 0)); /* else ZeroMQ's threads would wait for us */
    GW_TRY(gw_zmq_set_int(*out, ZMQ_LINGER, 0));
    if (zmq_socket_monitor(socket, place, events) != 0 || zmq_connect(*out, place) != 0)
        return gw_fail(GW_ERR_SYSTEM, "no news of connections: %s", zmq_strerror(zmq_errno()));
    return GW_OK;
}

bool gw_zmq_next_event(void *events, struct gw_zmq_event *event)
{
    uint8_t head[6];
    int n;
    do
        n = zmq_recv(events, head, sizeof head, ZMQ_DONTWAIT);
    while (n < 0 && zmq_errno() == EINTR);
    if (n < 0)
        return false;
    memcpy(&event->what, head, 2);
    memcpy(&event->value, head + 2, 4);
    n = zmq_recv(events, event->endpoint, sizeof event->endpoint - 1, ZMQ_DONTWAIT);
    event->endpoint[n < 0 ? 0 : n < (int)sizeof event->endpoint ? n : (int)sizeof event->endpoint - 1] = 0;
    return true;
}

void gw_zmq_ended_note(struct gw_zmq_ended *ended, gw_context *context, const struct gw_zmq_event *event)
{
    const size_t fd = event->value;
    if (event->what == ZMQ_EVENT_ACCEPTED && fd < ended->n)
        ended->of[fd] = 0;
    if (event->what != ZMQ_EVENT_DISCONNECTED || fd > MOST_DESCRIPTORS)
        return;
    if (fd >= ended->n) {
        const size_t n = 2 * fd + 64;
        uint8_t *of = gw_calloc(context, n, 1);
        if (!of)
            return;
        if (ended->n)
            memcpy(of, ended->of, ended->n);
        gw_free(context, ended->of);
        *ended = (struct gw_zmq_ended){.of = of, .n = n};
    }
    ended->of[fd] = 1;
}

bool gw_zmq_has_ended(const struct gw_zmq_ended *ended, int fd)
{
    return fd >= 0 && (size_t)fd < ended->n && ended->of[fd];
}

void gw_zmq_ended_free(struct gw_zmq_ended *ended, gw_context *context)
{
    gw_free(context, ended->of);
    *ended = (struct gw_zmq_ended){.of = NULL};
}

void gw_zmq_caller_note(struct gw_zmq_callers *callers, int fd)
{
    const uint32_t at = callers->n++ % GW_ZMQ_CALLERS;
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    callers->of[at].fd = fd;
    if (getpeername(fd, (struct sockaddr *)&address, &bytes) != 0 ||
        getnameinfo((struct sockaddr *)&address, bytes, callers->of[at].address, sizeof callers->of[at].address, NULL,
                    0, NI_NUMERICHOST) != 0)
        callers->of[at].address[0] = 0;
}

const char *gw_zmq_caller(const struct gw_zmq_callers *callers, int fd)
{
    for (uint32_t i = 1; i <= GW_ZMQ_CALLERS && i <= callers->n; i++)
        if (callers->of[(callers->n - i) % GW_ZMQ_CALLERS].fd == fd)
            return callers->of[(callers->n - i) % GW_ZMQ_CALLERS].address;
    return "";
}

void gw_zmq_close_monitored(void **socket, void **events)
{
    /* First stop the events. Else ZeroMQ's threads would wait for ever to send them to a socket that is closed. */
    if (*socket && *events)
        zmq_socket_monitor(*socket, NULL, 0);
    if (*socket)
        zmq_close(*socket);
    if (*events)
        zmq_close(*events);
    *socket = *events = NULL;
}
