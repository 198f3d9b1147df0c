/* Keeps messages for reuse: a message that was received becomes one that is sent. If a large block goes back to the
 * system and is taken again, it costs a page fault for every 4 KiB. That is more than averaging its floats costs. Small
 * blocks are not kept here: they go back to the allocator. */
#ifndef GW_EXCHANGE_BUFFERS_H
#define GW_EXCHANGE_BUFFERS_H

#include "link/message.h"

#define GW_BUFFERS_CLASSES 100 /* four sizes to every power of two from 16 KiB up */

/* The messages that are kept. Only one thread at a time may use it. */
struct gw_buffers {
    gw_context *context;
    uint32_t most; /* how many messages of each size are kept at most */
    struct {
        struct gw_message_queue kept;
        uint32_t n;
    } classes[GW_BUFFERS_CLASSES];
};

/* A message of at least n_bytes. NULL if there is no memory. It is a message like all others: a link may send it, and
 * gw_message_free may free it. */
void *gw_buffers_take(struct gw_buffers *buffers, size_t n_bytes);

/* Keeps a message for reuse, or frees it. NULL is allowed. */
void gw_buffers_give(struct gw_buffers *buffers, void *bytes);

/* Frees all that is kept. */
void gw_buffers_clear(struct gw_buffers *buffers);

#endif
