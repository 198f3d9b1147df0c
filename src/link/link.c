/* Takes and frees the memory of messages, in the same way for every link. */
#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/message.h"

void *gw_message_alloc(gw_context *context, size_t n_bytes)
{
    size_t total;
    if (__builtin_add_overflow(n_bytes, GW_MESSAGE_FRONT, &total)) {
        gw_fail(GW_ERR_MEMORY, "no memory for a message of %zu bytes", n_bytes);
        return NULL;
    }
    char *front = gw_alloc(context, total, 1);
    if (!front)
        return NULL;
    void *bytes = front + GW_MESSAGE_FRONT;
    *gw_message_node_of(bytes) =
        (struct gw_message_node){.capacity = n_bytes,
                                 .allocator = context ? context->allocator : (gw_allocator){NULL, NULL, NULL}};
    return bytes;
}

void gw_message_free(void *bytes)
{
    if (!bytes)
        return;
    struct gw_message_node *node = gw_message_node_of(bytes);
    gw_context origin = {.allocator = node->allocator};
    if (node->foreign)
        origin.allocator.free((char *)bytes - GW_MESSAGE_ROOM, NULL);
    else
        gw_free(&origin, (char *)bytes - GW_MESSAGE_FRONT);
}
