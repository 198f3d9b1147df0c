/* Keeps used messages by size class and hands them out again, so that a step takes no fresh pages from the system. */
#include "exchange/buffers.h"

#define SMALLEST ((size_t)16 << 10)

/* The size class of a message of this capacity. *rounded: the capacity of all messages of the class, which is at most a
 * quarter larger. GW_BUFFERS_CLASSES or more: the message is too small or too large to be kept. */
static uint32_t class_of(size_t capacity, size_t *rounded)
{
    *rounded = capacity;
    if (capacity < SMALLEST || capacity > SIZE_MAX / 2)
        return GW_BUFFERS_CLASSES;
    const uint32_t doubled = (uint32_t)(__builtin_clzl(SMALLEST) - __builtin_clzl(capacity));
    const size_t quarter = SMALLEST / 4 << doubled, n = (capacity + quarter - 1) / quarter; /* 4 to 8 quarters */
    *rounded = n * quarter;
    return 4 * doubled + (uint32_t)n - 4;
}

void *gw_buffers_take(struct gw_buffers *buffers, size_t n_bytes)
{
    size_t rounded;
    gw_message message;
    uint32_t class = class_of(n_bytes, &rounded);
    if (class < GW_BUFFERS_CLASSES && gw_message_queue_take(&buffers->classes[class].kept, &message)) {
        buffers->classes[class].n--;
        return message.bytes;
    }
    return gw_message_alloc(buffers->context, rounded);
}

void gw_buffers_give(struct gw_buffers *buffers, void *bytes)
{
    if (!bytes)
        return;
    size_t capacity = gw_message_node_of(bytes)->capacity, rounded; /* 0 if a link owns the memory */
    uint32_t class = class_of(capacity, &rounded);
    if (class >= GW_BUFFERS_CLASSES || capacity != rounded || buffers->classes[class].n == buffers->most) {
        gw_message_free(bytes);
        return;
    }
    gw_message_queue_put(&buffers->classes[class].kept, &(gw_message){.bytes = bytes});
    buffers->classes[class].n++;
}

void gw_buffers_clear(struct gw_buffers *buffers)
{
    for (uint32_t class = 0; class < GW_BUFFERS_CLASSES; class ++)
        gw_message_queue_clear(&buffers->classes[class].kept);
}
