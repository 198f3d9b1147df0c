/* Bytes of the tcp link: the bodies of its messages (net/connection.h has their heads). These are pure functions on
 * bytes. Everything that came from outside goes through a decoder here.
 *
 * At the rendezvous:
 *
 *     JOIN     version u16, keyed u8, zero u8, rank u32, size u32, n_links u32, address
 *              member to rank 0: it has come, and listens at that address
 *     WAIT     text
 *              rank 0 to those that have come, now and then: who is still missing, or after TABLE not READY
 *     REFUSE   status u32 (its absolute value), text
 *              rank 0 to a member: the meeting failed, or it is no member, or too late; or a member to rank 0: it fails
 *     TABLE    session u64, size u32, n_links u32, a contact for each rank
 *              rank 0 to everybody: all have come, and shall connect to each other
 *     READY    member to rank 0: it is connected to all others
 *     GO       rank 0 to everybody: all are
 *
 * Between two members, on each link; the one with the higher rank has dialled:
 *
 *     HELLO    session u64, rank u32, link u32
 *     WELCOME  the answer
 *     DATA     a message of the user; of a long one, the first GW_LOAN_HEAD bytes are the header (link/loan.h)
 *
 * An address has 20 bytes (net/address.h). A contact is an address, and 32 bytes: if the job has keys, the SHA-256 of
 * the member's certificate, else zeros. Numbers are little-endian. */
#ifndef GW_LINK_TCP_WIRE_H
#define GW_LINK_TCP_WIRE_H

#include "net/address.h"
#include "net/keys.h"

#include <stddef.h>

#define GW_TCP_VERSION 9
#define GW_TCP_TEXT_BYTES 320 /* room for a sentence and its end */
#define GW_TCP_JOIN_BYTES (16 + GW_NET_ADDRESS_BYTES)
#define GW_TCP_CONTACT_BYTES (GW_NET_ADDRESS_BYTES + 32)
#define GW_TCP_TABLE_HEAD 16
#define GW_TCP_HELLO_BYTES 16
#define GW_TCP_REFUSE_BYTES (4 + GW_TCP_TEXT_BYTES) /* the most */

enum gw_tcp_kind {
    GW_TCP_JOIN = 1,
    GW_TCP_WAIT,
    GW_TCP_REFUSE,
    GW_TCP_TABLE,
    GW_TCP_READY,
    GW_TCP_GO,
    GW_TCP_HELLO,
    GW_TCP_WELCOME,
    GW_TCP_DATA
};

struct gw_tcp_join {
    uint16_t version;
    bool keyed;
    uint32_t rank, size, n_links;
    struct gw_net_address address;
};
void gw_tcp_join_write(uint8_t out[GW_TCP_JOIN_BYTES], const struct gw_tcp_join *join);
/* false: it is no JOIN. Of a JOIN of another version only the version is read. */
bool gw_tcp_join_read(const void *bytes, size_t n_bytes, struct gw_tcp_join *join);

struct gw_tcp_member {
    struct gw_net_address address; /* where it listens */
    struct gw_net_identity identity;
};
void gw_tcp_table_write(uint8_t *out, uint64_t session, uint32_t size, uint32_t n_links,
                        const struct gw_tcp_member *members);
/* false: it is no table of so many members and links. */
bool gw_tcp_table_read(const void *bytes, size_t n_bytes, uint32_t size, uint32_t n_links, uint64_t *session,
                       struct gw_tcp_member *members);

struct gw_tcp_hello {
    uint64_t session;
    uint32_t rank, link;
};
void gw_tcp_hello_write(uint8_t out[GW_TCP_HELLO_BYTES], const struct gw_tcp_hello *hello);
bool gw_tcp_hello_read(const void *bytes, size_t n_bytes, struct gw_tcp_hello *hello);

/* The text of a WAIT. write returns the length. read: false: it is too long. Characters that cannot be printed become
 * '?'. */
size_t gw_tcp_text_write(uint8_t out[GW_TCP_TEXT_BYTES], const char *text);
bool gw_tcp_text_read(const void *bytes, size_t n_bytes, char text[GW_TCP_TEXT_BYTES]);

/* A REFUSE. Who reads it hears GW_ERR_TIMEOUT, or else GW_ERR_PEER. */
size_t gw_tcp_refuse_write(uint8_t out[GW_TCP_REFUSE_BYTES], gw_status status, const char *text);
bool gw_tcp_refuse_read(const void *bytes, size_t n_bytes, gw_status *status, char text[GW_TCP_TEXT_BYTES]);

#endif
