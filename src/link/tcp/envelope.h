/* What stands in front of every message between members: 8 bytes, in the room that gw_message_alloc leaves for it. A
 * large message has all of that room on the wire, with zeros after the envelope. So the receiver need not copy it.
 *
 *     offset  bytes  field
 *     0       4      tag of the job and the link: strangers and members of another job are told apart by it
 *     4       1      type
 *     5       3      rank of the sender
 *
 * Little-endian. The tag is computed from the session number, which rank 0 draws at random. HELLO, the first message of
 * every connection, carries the session number itself. */
#ifndef GW_LINK_TCP_ENVELOPE_H
#define GW_LINK_TCP_ENVELOPE_H

#include "link/message.h"
#include "wire/bytes.h"

enum gw_tcp_type {
    GW_TCP_DATA = 1, /* a message of the user */
    GW_TCP_HELLO,    /* the first message of a connection */
    GW_TCP_BYE,      /* the last message: the sender closed its endpoint */
    GW_TCP_FAIL,     /* the sender failed, and why */
    GW_TCP_NEWS,     /* the sender has lost another member, and how */
    GW_TCP_LARGE     /* as DATA, but the bytes begin GW_MESSAGE_ROOM bytes after the begin of the envelope */
};

struct gw_tcp_envelope {
    uint32_t tag, from;
    uint8_t type;
};

static inline void gw_tcp_envelope_write(void *at, const struct gw_tcp_envelope *envelope)
{
    gw_put32(at, envelope->tag);
    gw_put32((uint8_t *)at + 4, envelope->from << 8 | envelope->type);
}

static inline struct gw_tcp_envelope gw_tcp_envelope_read(const void *at)
{
    uint32_t word = gw_get32((const uint8_t *)at + 4);
    return (struct gw_tcp_envelope){.tag = gw_get32(at), .from = word >> 8, .type = (uint8_t)word};
}

/* The tag of a link. Each link of a job has another one. */
static inline uint32_t gw_tcp_tag(uint64_t session, uint32_t nth_link)
{
    return (uint32_t)(session >> 32) ^ (uint32_t)session ^ nth_link * 0x9E3779B9u;
}

#endif
