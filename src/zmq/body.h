/* The value of a message, which travels beside its head. A large value goes in pieces. Heartbeats take only a complete
 * piece as a sign of life. If one piece had hundreds of megabytes, it could take longer than the timeout, and the other
 * side would take this one for dead. But to put pieces together takes a copy. So a value goes in one piece if the
 * connection has proved to be fast enough. */
#ifndef GW_ZMQ_BODY_H
#define GW_ZMQ_BODY_H

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <stdbool.h>
#include <zmq.h>

/* bytes of a piece; the last one may have fewer */
#define GW_ZMQ_PIECE ((size_t)8 << 20)

struct gw_zmq_piece;

/* A body as it came. All zero: there is none. */
struct gw_zmq_body {
    zmq_msg_t *only;            /* the body if it came in one piece and may stay there; else NULL */
    struct gw_zmq_piece *first; /* in the order they came */
    size_t n_bytes;
    uint64_t n_came; /* how many bytes and parts came, also if the body was refused */
    uint32_t n_parts;
};

/* Takes the rest of a message from the socket. Errors: GW_ERR_CAPACITY (more than `most` bytes), GW_ERR_MEMORY. After
 * an error all of the message has been taken and dropped. */
gw_status gw_zmq_body_take(gw_context *context, void *socket, uint64_t most, struct gw_zmq_body *body);

/* copy copies the body to `dst`, which must have room for all of it, and frees each piece after its copy. free frees
 * the body. */
void gw_zmq_body_copy(gw_context *context, struct gw_zmq_body *body, void *dst);
void gw_zmq_body_free(gw_context *context, struct gw_zmq_body *body);

/* Sends bytes as the rest of a message, without a copy and without waiting. whole: in one piece. For each piece it
 * calls `hold` on the owner of the bytes. ZeroMQ calls `give` for each piece when it has sent it, from any thread.
 * false: errno says why, and the rest is not sent. */
bool gw_zmq_body_send(void *socket, void *bytes, size_t n_bytes, bool whole, void (*hold)(void *owner),
                      void (*give)(void *bytes, void *owner), void *owner);

#endif
