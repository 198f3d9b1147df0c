/* Keeps messages for reuse: a message that was received becomes one that is sent. Large blocks that go back to the
 * system and are taken again cost a page fault for every 4 KiB, more than averaging floats does. Small ones are left
 * to the allocator. */
#ifndef GW_EXCHANGE_BUFFERS_H
#define GW_EXCHANGE_BUFFERS_H

#include "link/message.h"

#define GW_BUFFERS_CLASSES 100 /* four sizes to every power of two from 16 KiB up */

/* One thread at a time. */
struct gw_buffers {
    gw_context *context;
    uint32_t most; /* kept of each size */
    struct {
        struct gw_message_queue kept;
        uint32_t n;
    } classes[GW_BUFFERS_CLASSES];
};

/* A message of at least n_bytes. NULL if there is no memory. It may go the way of all messages: through a link, or
 * to gw_message_free. */
void *gw_buffers_take(struct gw_buffers *buffers, size_t n_bytes);

/* Keeps a message for reuse, or frees it. NULL is allowed. */
void gw_buffers_give(struct gw_buffers *buffers, void *bytes);

/* Frees all that is kept. */
void gw_buffers_clear(struct gw_buffers *buffers);

#endif
