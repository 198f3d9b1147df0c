/* What lies in memory before a message's bytes. There is room for a queue's node, so that sending takes no memory.
 * There is also room for the receiver of a large message, so that it need not copy the message. */
#ifndef GW_LINK_MESSAGE_H
#define GW_LINK_MESSAGE_H

#include <gradwire/link.h>

struct gw_message_node {
    struct gw_message_node *next;
    size_t n_bytes;
    size_t capacity;        /* bytes that were taken */
    gw_allocator allocator; /* where the memory came from */
    uint32_t from;
    /* the memory does not come from gw_message_alloc: allocator.free(room, NULL) gives it back, and nobody may send it
     * on */
    bool foreign;
    /* a last word, which the receiver need not receive: it may leave before, and no message is lost then */
    bool farewell;
};

#define GW_MESSAGE_HEAD 64 /* bytes before the message's own; so the message begins on a cache line of its own */
/* the last of these bytes belong to the link. It writes its envelope there, so that envelope and message go out in one
 * piece */
#define GW_MESSAGE_ENVELOPE 8
_Static_assert(sizeof(struct gw_message_node) + GW_MESSAGE_ENVELOPE <= GW_MESSAGE_HEAD,
               "the node and a link's envelope must fit in front of the message");
/* A link may send this room along with the bytes. Then the message arrives with room before it: for the receiver's
 * node, and for what the receiver needs to give the memory back. The sender's own node lies before this room. */
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

/* A queue of messages, first in, first out. All zero is an empty queue. It has no lock of its own. */
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

/* Takes the first message. false: the queue is empty. */
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
