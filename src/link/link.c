/* What is the same for every link: the memory of messages, and the end of an endpoint. */
#include "base/context.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/message.h"

void *gw_message_alloc(gw_context *context, size_t n_bytes)
{
    size_t total;
    if (__builtin_add_overflow(n_bytes, GW_MESSAGE_HEAD, &total)) {
        gw_fail(GW_ERR_MEMORY, "no memory for a message of %zu bytes", n_bytes);
        return NULL;
    }
    char *front = gw_alloc(context, total, 1);
    if (!front)
        return NULL;
    void *bytes = front + GW_MESSAGE_HEAD;
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
    if (atomic_fetch_sub_explicit(&node->n_shared, 1, memory_order_acq_rel) > 0)
        return;
    gw_context origin = {.allocator = node->allocator};
    gw_free(&origin, (char *)bytes - GW_MESSAGE_HEAD);
}

void gw_link_destroy(gw_link *link)
{
    if (!link || !link->ops)
        return;
    link->ops->destroy(link->self);
    *link = (gw_link){.ops = NULL};
}
