/* Bytes of the meeting: what members say to rank 0 at the rendezvous, what rank 0 answers, and the messages between
 * members that have fields. These are pure functions on bytes. Everything that came from outside goes through a decoder
 * here.
 *
 * All begin with a magic number of 4 bytes, the version in 2 and flags in 2 (bit 0: keyed). BYE, FAIL and NEWS have
 * neither magic nor version. Numbers are little-endian.
 *
 *     JOIN    rank u32, size u32, n_links u32, contact
 *             member to rank 0, again and again until it has the table
 *     WAIT    text
 *             rank 0 to a member: it is in the meeting; the text says who is still missing
 *     TABLE   session u64, size u32, n_links u32, size contacts
 *             rank 0 to everybody: the meeting is over
 *     REFUSE  status u32 (its absolute value), text
 *             rank 0 to everybody: the meeting failed; or to one: it is no member, or too late
 *     HELLO   session u64, link u32
 *             member to member, on each link (after an envelope)
 *     BYE     n_received u64: how many of the receiver's messages came;
 *             text, padded with zeros: the failure of a member of which the sender has heard, or nothing
 *             member to member (after an envelope)
 *     FAIL    text, padded with zeros: "rank 2 failed: ...", of the sender
 *             member to member (after an envelope)
 *     NEWS    rank u32, text, padded with zeros: how the sender has lost that rank
 *             member to member (after an envelope)
 *
 * A contact says how to reach a member. If the job is keyed, its public key (40 characters of Z85) comes first. Then,
 * for each link, come one byte with a length and the address at which the member listens. */
#ifndef GW_LINK_TCP_WIRE_H
#define GW_LINK_TCP_WIRE_H

#include "zmq/address.h"
#include "zmq/keys.h"

#include <gradwire/link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GW_TCP_VERSION 5
#define GW_TCP_MAX_LINKS 64u
#define GW_TCP_TEXT_BYTES 320 /* room for a sentence and its end */
#define GW_TCP_HEAD_BYTES 8
#define GW_TCP_JOIN_HEAD (GW_TCP_HEAD_BYTES + 12)
#define GW_TCP_TABLE_HEAD (GW_TCP_HEAD_BYTES + 16)
#define GW_TCP_HELLO_BYTES (GW_TCP_HEAD_BYTES + 12)
#define GW_TCP_BYE_BYTES (8 + GW_TCP_TEXT_BYTES)
#define GW_TCP_NEWS_BYTES (4 + GW_TCP_TEXT_BYTES)
#define GW_TCP_TEXT_MESSAGE_BYTES (GW_TCP_HEAD_BYTES + 4 + GW_TCP_TEXT_BYTES) /* the longest WAIT or REFUSE */

enum gw_tcp_kind { GW_TCP_STRANGE, GW_TCP_JOIN, GW_TCP_WAIT, GW_TCP_TABLE, GW_TCP_REFUSE };

/* The kind of a message, by its first bytes, and its version. */
enum gw_tcp_kind gw_tcp_kind_of(const void *bytes, size_t n_bytes, uint16_t *version);

/* The most bytes that a contact can have. */
size_t gw_tcp_contact_bound(uint32_t n_links, bool keyed);

/* A place in some bytes. Each read function moves it forward. If the bytes are not what the function reads, it returns
 * false and does not move. */
struct gw_tcp_reader {
    const uint8_t *at, *end;
};
bool gw_tcp_read_key(struct gw_tcp_reader *reader, char key[GW_ZMQ_KEY_CHARS + 1]);
bool gw_tcp_read_endpoint(struct gw_tcp_reader *reader, char endpoint[GW_ZMQ_ENDPOINT_BYTES]);

/* Write a key or an endpoint, and return the place behind it. */
uint8_t *gw_tcp_write_key(uint8_t *at, const char *key);
uint8_t *gw_tcp_write_endpoint(uint8_t *at, const char *endpoint);

struct gw_tcp_join {
    bool keyed;
    uint32_t rank, size, n_links;
    struct gw_tcp_reader contact; /* checked */
};

/* Writes the head of a JOIN, and returns the place where the contact follows. */
uint8_t *gw_tcp_join_write(uint8_t *at, const struct gw_tcp_join *join);

/* Reads a JOIN. false: it is no JOIN of this version. If it is one, the contact has n_links addresses; the other
 * numbers are not checked. */
bool gw_tcp_join_read(const void *bytes, size_t n_bytes, struct gw_tcp_join *join);

struct gw_tcp_table {
    bool keyed;
    uint64_t session;
    uint32_t size, n_links;
    struct gw_tcp_reader contacts; /* checked */
};
uint8_t *gw_tcp_table_write(uint8_t *at, const struct gw_tcp_table *table);
bool gw_tcp_table_read(const void *bytes, size_t n_bytes, struct gw_tcp_table *table);

/* Write WAIT and REFUSE, and return the length. `out` has room for GW_TCP_TEXT_MESSAGE_BYTES. */
size_t gw_tcp_wait_write(uint8_t *out, const char *text);
size_t gw_tcp_refuse_write(uint8_t *out, gw_status status, const char *text);
bool gw_tcp_wait_read(const void *bytes, size_t n_bytes, char text[GW_TCP_TEXT_BYTES]);
bool gw_tcp_refuse_read(const void *bytes, size_t n_bytes, gw_status *status, char text[GW_TCP_TEXT_BYTES]);

void gw_tcp_hello_write(uint8_t out[GW_TCP_HELLO_BYTES], uint64_t session, uint32_t nth_link);
bool gw_tcp_hello_read(const void *bytes, size_t n_bytes, uint64_t *session, uint32_t *nth_link);

/* Reads a text that came from outside. It ends at a zero or at the end of the bytes. Characters that cannot be printed
 * become '?'. */
void gw_tcp_text_read(const void *bytes, size_t n_bytes, char text[GW_TCP_TEXT_BYTES]);

#endif
