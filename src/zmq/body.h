/* The value of a message, which travels beside its head. A large value goes in pieces: heartbeats count only what has
 * come whole, so one piece of hundreds of megabytes would keep the other side without news for longer than its
 * patience lasts. Putting pieces together takes a copy. So a value goes in one piece if the connection has been seen
 * to be fast enough. */
#ifndef GW_ZMQ_BODY_H
#define GW_ZMQ_BODY_H

#include <gradwire/context.h>
#include <gradwire/status.h>

#include <stdbool.h>
#include <zmq.h>

/* bytes; all but the last have so many */
#define GW_ZMQ_PIECE ((size_t)8 << 20)

struct gw_zmq_piece;

/* As it came. All zero: none. */
struct gw_zmq_body {
    zmq_msg_t *only;            /* of one piece: that, if it may stay; else NULL */
    struct gw_zmq_piece *first; /* in the order they came */
    size_t n_bytes;
    uint64_t n_came; /* bytes and parts that came, also if the body was refused */
    uint32_t n_parts;
};

/* Takes what is left of a message at the socket. Errors: GW_ERR_CAPACITY (more than `most` bytes), GW_ERR_MEMORY; all
 * of it is taken and dropped then. */
gw_status gw_zmq_body_take(gw_context *context, void *socket, uint64_t most, struct gw_zmq_body *body);

/* Copies it to room for n_bytes, and lets the pieces go one after the other. */
void gw_zmq_body_copy(gw_context *context, struct gw_zmq_body *body, void *dst);
void gw_zmq_body_free(gw_context *context, struct gw_zmq_body *body);

/* Sends bytes as the rest of a message, in one piece if `whole`, without a copy and without waiting. Each piece has
 * a hold on their owner, which `give` gives up, from any thread. false: errno says why, and the rest is not sent. */
bool gw_zmq_body_send(void *socket, void *bytes, size_t n_bytes, bool whole, void (*hold)(void *owner),
                      void (*give)(void *bytes, void *owner), void *owner);

#endif
