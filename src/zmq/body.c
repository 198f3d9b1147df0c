/* Receives and sends the value of a message, in one piece or in several. If a value is longer than allowed, it is
 * dropped as it arrives. */
#include "zmq/body.h"
#include "base/error.h"
#include "base/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct gw_zmq_piece {
    struct gw_zmq_piece *next;
    zmq_msg_t message;
};

static void receive(zmq_msg_t *message, void *socket)
{
    zmq_msg_init(message);
    while (zmq_msg_recv(message, socket, 0) < 0 &&
           zmq_errno() == EINTR) /* the message has begun, so ZeroMQ has all of it */
        ;
}

static void drop_rest(void *socket, bool more, struct gw_zmq_body *body)
{
    while (more) {
        zmq_msg_t scrap;
        receive(&scrap, socket);
        more = zmq_msg_more(&scrap);
        body->n_came += zmq_msg_size(&scrap);
        body->n_parts++;
        zmq_msg_close(&scrap);
    }
}

gw_status gw_zmq_body_take(gw_context *context, void *socket, uint64_t most, struct gw_zmq_body *body)
{
    struct gw_zmq_piece **end = &body->first;
    *body = (struct gw_zmq_body){0};
    for (bool more = true; more;) {
        struct gw_zmq_piece *piece = gw_alloc(context, 1, sizeof *piece);
        gw_status status = piece ? GW_OK : GW_ERR_MEMORY;
        if (piece) {
            receive(&piece->message, socket);
            piece->next = NULL;
            *end = piece;
            end = &piece->next;
            more = zmq_msg_more(&piece->message);
            body->n_bytes += zmq_msg_size(&piece->message);
            body->n_came += zmq_msg_size(&piece->message);
            body->n_parts++;
            if (body->n_bytes > most || (more && zmq_msg_size(&piece->message) != GW_ZMQ_PIECE))
                status = gw_fail(GW_ERR_CAPACITY, "a value of more than %" PRIu64 " bytes, or in pieces that cannot be",
                                 most);
        }
        if (status < 0) {
            drop_rest(socket, more, body);
            gw_zmq_body_free(context, body);
            return status;
        }
    }
    body->only = body->first->next ? NULL : &body->first->message;
    return GW_OK;
}

/* Frees the first piece. */
static void let_go(gw_context *context, struct gw_zmq_body *body)
{
    struct gw_zmq_piece *piece = body->first;
    body->first = piece->next;
    zmq_msg_close(&piece->message);
    gw_free(context, piece);
}

void gw_zmq_body_copy(gw_context *context, struct gw_zmq_body *body, void *dst)
{
    for (char *at = dst; body->first; let_go(context, body)) {
        const size_t n = zmq_msg_size(&body->first->message);
        if (n)
            memcpy(at, zmq_msg_data(&body->first->message), n);
        at += n;
    }
    body->only = NULL;
}

void gw_zmq_body_free(gw_context *context, struct gw_zmq_body *body)
{
    while (body->first)
        let_go(context, body);
    *body = (struct gw_zmq_body){.n_came = body->n_came, .n_parts = body->n_parts};
}

bool gw_zmq_body_send(void *socket, void *bytes, size_t n_bytes, bool whole, void (*hold)(void *owner),
                      void (*give)(void *bytes, void *owner), void *owner)
{
    size_t sent = 0;
    do {
        const size_t n = whole || n_bytes - sent < GW_ZMQ_PIECE ? n_bytes - sent : GW_ZMQ_PIECE;
        zmq_msg_t piece;
        hold(owner);
        if (zmq_msg_init_data(&piece, (char *)bytes + sent, n, give, owner) != 0) {
            give(bytes, owner);
            return false;
        }
        sent += n;
        int done;
        do
            done = zmq_msg_send(&piece, socket, ZMQ_DONTWAIT | (sent < n_bytes ? ZMQ_SNDMORE : 0));
        while (done < 0 && zmq_errno() == EINTR);
        if (done < 0) {
            zmq_msg_close(&piece);
            return false;
        }
    } while (sent < n_bytes);
    return true;
}
