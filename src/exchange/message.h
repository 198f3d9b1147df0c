/* The messages between members' pipelines: a header of 16 bytes, and a body. docs/wire-format.md, section 10, has their
 * bytes. */
#ifndef GW_EXCHANGE_MESSAGE_H
#define GW_EXCHANGE_MESSAGE_H

#include "wire/bytes.h"

enum message_type {
    MESSAGE_STATS = 1, /* worker to coordinator: its shared numbers of a group */
    MESSAGE_SHARED,    /* coordinator to every worker: the largest of them */
    MESSAGE_PUSH,      /* worker to owner: its frames of a run */
    MESSAGE_PULL,      /* owner to every worker: their averages */
    MESSAGE_WAKE,      /* a member to itself: look at what was submitted */
    MESSAGE_HELLO,     /* a member to every other, before anything else: what must be the same on all */
    MESSAGE_LEAVE,     /* a member to every other: it sends nothing more */
    MESSAGE_WAITING    /* a member to every other, each second: it owes nothing in this step, and waits */
};

#define MESSAGE_VERSION 8
#define MESSAGE_HEADER 16
#define HELLO_MOST 20480 /* bytes of all its lines, with a closing 0 */
#define MESSAGE_BAD_BYTES (MESSAGE_HEADER + 8)
#define MESSAGE_LEAVE_BYTES (MESSAGE_HEADER + 8)
#define MESSAGE_FLAG_BAD 1u

struct message_header {
    uint8_t type, flags;
    uint16_t nth_step; /* how many steps this exchange has begun: the low 16 bits. HELLO: the version */
    uint32_t group;
    uint32_t run; /* within the group */
    uint32_t step;
};

static inline void message_header_write(void *bytes, const struct message_header *h)
{
    uint8_t *at = bytes;
    at[0] = h->type;
    at[1] = h->flags;
    gw_put16(at + 2, h->nth_step);
    gw_put32(at + 4, h->group);
    gw_put32(at + 8, h->run);
    gw_put32(at + 12, h->step);
}

static inline struct message_header message_header_read(const void *bytes)
{
    const uint8_t *at = bytes;
    return (
        struct message_header){at[0], at[1], gw_get16(at + 2), gw_get32(at + 4), gw_get32(at + 8), gw_get32(at + 12)};
}

static inline void *message_body(void *bytes)
{
    return (char *)bytes + MESSAGE_HEADER;
}

#endif
