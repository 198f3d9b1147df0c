/* Memory of messages, the same for every link. */
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
    struct gw_message_node *node = gw_alloc(context, total, 1);
    if (!node)
        return NULL;
    node->capacity = n_bytes;
    node->allocator = context ? context->allocator : (gw_allocator){NULL, NULL, NULL};
    return gw_message_bytes_of(node);
}

void gw_message_free(void *bytes)
{
    if (!bytes)
        return;
    struct gw_message_node *node = gw_message_node_of(bytes);
    gw_context origin = {.allocator = node->allocator};
    gw_free(&origin, node);
}
