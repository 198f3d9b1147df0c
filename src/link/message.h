/* What stands in front of a message's bytes: the room that a queue needs, so that sending takes no memory, and the room
 * that the receiver of a large message needs, so that it need not be copied. */
#ifndef GW_LINK_MESSAGE_H
#define GW_LINK_MESSAGE_H

#include <gradwire/link.h>

struct gw_message_node {
    struct gw_message_node *next;
    size_t n_bytes;
    size_t capacity;        /* bytes that were taken */
    gw_allocator allocator; /* where the memory came from */
    uint32_t from;
    bool foreign; /* it came from nowhere here: allocator.free(room, NULL) gives it back, and nobody sends it on */
};

#define GW_MESSAGE_HEAD 64 /* bytes before the message's own; keeps those on a cache line of their own */
/* the last of them: a link's own, so that what it writes around a message goes out in one piece with it */
#define GW_MESSAGE_ENVELOPE 8
_Static_assert(sizeof(struct gw_message_node) + GW_MESSAGE_ENVELOPE <= GW_MESSAGE_HEAD,
               "the node and a link's envelope must fit in front of the message");
/* A link may send the head and as much before it along with the bytes: the receiver's node, and what it needs to give
 * the memory back, then have their place where the message has arrived. The sender's node waits in front of that. */
#define GW_MESSAGE_ROOM 128
#define GW_MESSAGE_FRONT (GW_MESSAGE_ROOM + GW_MESSAGE_HEAD)

static inline struct gw_message_node *gw_message_node_of(void *bytes)
{
    return (struct gw_message_node *)((char *)bytes - GW_MESSAGE_HEAD);
}

static inline void *gw_message_bytes_of(struct gw_message_node *node)
{
    return (char *)node + GW_MESSAGE_HEAD;
}

/* First in, first out. All zero is empty. No lock of its own. */
struct gw_message_queue {
    struct gw_message_node *head, *tail;
};

static inline void gw_message_queue_put(struct gw_message_queue *queue, const gw_message *message)
{
    struct gw_message_node *node = gw_message_node_of(message->bytes);
    node->next = NULL;
    node->n_bytes = message->n_bytes;
    node->from = message->from;
    if (queue->tail)
        queue->tail->next = node;
    else
        queue->head = node;
    queue->tail = node;
}

/* false if the queue is empty. */
static inline bool gw_message_queue_take(struct gw_message_queue *queue, gw_message *message)
{
    struct gw_message_node *node = queue->head;
    if (!node)
        return false;
    queue->head = node->next;
    if (!queue->head)
        queue->tail = NULL;
    *message = (gw_message){.from = node->from, .bytes = gw_message_bytes_of(node), .n_bytes = node->n_bytes};
    return true;
}

static inline void gw_message_queue_clear(struct gw_message_queue *queue)
{
    gw_message message;
    while (gw_message_queue_take(queue, &message))
        gw_message_free(message.bytes);
}

#endif
