/* The messages between members' pipelines: a header of 16 bytes, and a body. Numbers are little-endian.
 *
 *     offset  bytes  field
 *     0       1      type
 *     1       1      flags: bit 0, not finite
 *     2       2      how many steps this exchange has begun, this one included: the low 16 bits
 *     4       4      group
 *     8       4      run: number of the run within the group; STATS, SHARED: 0
 *     12      4      step
 *
 * If a gradient is not finite, the body is 8 bytes: tensor and rank. Else the body is:
 *
 *     STATS       worker to coordinator: float32 of every shared number of the group, tensors in declared order
 *     SHARED      coordinator to every worker: the same numbers, each the largest of all workers
 *     PUSH        worker to owner: a frame for each slice of the run, back to back
 *     PULL        owner to every worker: an average for each slice of the run, back to back
 *     WAKE        a member to itself: look at what was submitted (no body)
 *     HELLO       a member to every other, before anything else: what must be the same on all, as lines "name = value".
 *                 It has the version of these messages at offset 2 (so it always will), and 0 in the fields after that
 *     LEAVE       a member to every other: it sends nothing more. The body is 8 bytes: the rank that left first, and
 *                 how many steps that one had begun (the low 16 bits). That rank is the sender, or the one whose
 *                 leaving has ended the sender's exchange. In the header, group, run and step are 0
 *     WAITING     a member to every other, each second: it owes nothing in this step, and waits for others (no body).
 *                 In the header, group and run are 0
 *
 * A group without shared numbers has no STATS and no SHARED. */
#ifndef GW_EXCHANGE_MESSAGE_H
#define GW_EXCHANGE_MESSAGE_H

#include "wire/bytes.h"

#include <stdbool.h>

enum message_type {
    MESSAGE_STATS = 1,
    MESSAGE_SHARED,
    MESSAGE_PUSH,
    MESSAGE_PULL,
    MESSAGE_WAKE,
    MESSAGE_HELLO,
    MESSAGE_LEAVE,
    MESSAGE_WAITING
};

#define MESSAGE_VERSION 8
#define MESSAGE_HEADER 16
#define HELLO_MOST 20480 /* bytes of all its lines, with a closing 0 */
#define MESSAGE_BAD_BYTES (MESSAGE_HEADER + 8)
#define MESSAGE_LEAVE_BYTES (MESSAGE_HEADER + 8)
#define MESSAGE_FLAG_BAD 1u

struct message_header {
    uint8_t type, flags;
    uint16_t nth_step; /* HELLO: the version */
    uint32_t group;
    uint32_t run;
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
