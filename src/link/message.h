/* What lies in memory before a message's bytes: room for a queue's node, so that sending takes no memory. */
#ifndef GW_LINK_MESSAGE_H
#define GW_LINK_MESSAGE_H

#include <gradwire/link.h>
#include <stdatomic.h>

struct gw_message_node {
    struct gw_message_node *next;
    size_t n_bytes;
    size_t capacity;        /* bytes that were taken */
    gw_allocator allocator; /* where the memory came from */
    struct gw_loan *loan;   /* the body is there (loan.h); NULL: it is not */
    uint32_t from;
    atomic_uint n_shared; /* how many more hold the same bytes. The last one's gw_message_free gives them back */
};

#define GW_MESSAGE_HEAD 64 /* bytes before the message's own; so the message begins on a cache line of its own */
_Static_assert(sizeof(struct gw_message_node) <= GW_MESSAGE_HEAD, "the node must fit in front of the message");

static inline struct gw_message_node *gw_message_node_of(void *bytes)
{
    return (struct gw_message_node *)((char *)bytes - GW_MESSAGE_HEAD);
}

/* Adds a holder to a message's bytes, which nobody may change from then on. Each holder calls gw_message_free. */
static inline void gw_message_share(void *bytes)
{
    atomic_fetch_add_explicit(&gw_message_node_of(bytes)->n_shared, 1, memory_order_relaxed);
}

/* For a send that fails, which owns the bytes all the same. Returns the status. */
static inline gw_status gw_message_refuse(void *bytes, gw_status status)
{
    gw_message_free(bytes);
    return status;
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
    *message = (gw_message){.from = node->from, .bytes = (char *)node + GW_MESSAGE_HEAD, .n_bytes = node->n_bytes};
    return true;
}

static inline void gw_message_queue_clear(struct gw_message_queue *queue)
{
    gw_message message;
    while (gw_message_queue_take(queue, &message))
        gw_message_free(message.bytes);
}

#endif
