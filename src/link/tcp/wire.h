/* Bytes of the tcp link: the bodies of its messages (net/connection.h has their heads). docs/net-protocol.md, "Members
 * of a job", has their fields. These are pure functions on bytes. Everything that came from outside goes through a
 * decoder here. */
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
    GW_TCP_JOIN = 1, /* member to rank 0: it has come, and listens at an address */
    GW_TCP_WAIT,     /* rank 0 to those that have come: who is still missing; the answer: it waits, too */
    GW_TCP_REFUSE,   /* rank 0 to a member that may not take part, or either: the meeting failed */
    GW_TCP_TABLE,    /* rank 0 to everybody: all have come, and shall connect to each other */
    GW_TCP_READY,    /* member to rank 0: it is connected to all others */
    GW_TCP_GO,       /* rank 0 to everybody: all are */
    GW_TCP_HELLO,    /* on each link, from the member with the higher rank, which has dialled */
    GW_TCP_WELCOME,  /* the answer */
    GW_TCP_DATA      /* a message of the user; of a long one, the first GW_LOAN_HEAD bytes are the header (loan.h) */
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
