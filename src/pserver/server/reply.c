/* Sends answers. */
#include "pserver/server/reply.h"
#include "base/error.h"
#include "pserver/server/connected.h"
#include "zmq/body.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void hold_blob(void *blob)
{
    gw_ps_blob_hold(blob);
}

static void give_blob(void *bytes, void *blob)
{
    (void)bytes;
    gw_ps_blob_give(blob);
}

static bool send_part(struct gw_ps_server *server, const void *bytes, size_t n_bytes, int flags)
{
    int sent;
    do
        sent = zmq_send(server->socket, bytes, n_bytes, flags | ZMQ_DONTWAIT);
    while (sent < 0 && zmq_errno() == EINTR);
    return sent >= 0;
}

void gw_ps_reply(struct gw_ps_server *server, uint32_t route, const struct gw_ps_reply *reply, struct gw_ps_blob *value)
{
    uint8_t id[GW_PS_ROUTE_BYTES] = {0}, head[GW_PS_HEAD_BYTES];
    struct gw_ps_member *member = gw_ps_member_find(server, route);
    if (member && member->lost)
        return;
    memcpy(id + 1, &route, sizeof route);
    size_t n_bytes = gw_ps_reply_write(head, reply);
    server->counts.bytes_out += n_bytes + (value ? value->n_bytes : 0);
    bool sent = send_part(server, id, sizeof id, ZMQ_SNDMORE);
    if (!sent && zmq_errno() == EAGAIN && member)
        gw_ps_member_lose(server, member);
    /* Only the first part can fail for want of room. All parts are sent, or dropped, together. */
    sent = sent && send_part(server, head, n_bytes, value ? ZMQ_SNDMORE : 0);
    if (sent && value)
        gw_zmq_body_send(server->socket, value->bytes, value->n_bytes, member && member->whole, hold_blob, give_blob,
                         value);
}

void gw_ps_reply_error(struct gw_ps_server *server, uint32_t route, const struct gw_ps_request *request,
                       gw_status status, uint64_t number)
{
    struct gw_ps_reply reply = {.operation = request->operation, .id = request->id, .number = number, .status = status};
    snprintf(reply.sentence, sizeof reply.sentence, "%s", gw_last_error());
    server->counts.refused++;
    gw_ps_reply(server, route, &reply, NULL);
}
