/* One TCP connection that carries messages in both directions, in the clear or over TLS. It never waits. Its holder
 * asks the kernel (epoll) when to call it, and calls it from one thread at a time.
 *
 * A message has a head of 16 bytes (docs/net-protocol.md), a header and a body. Either of these may be empty. If both
 * have up to GW_NET_SMALL bytes, they are handed over where they were read. A longer body is received where the holder
 * wants it, who has seen the header by then. In both cases the length is checked first, against what this connection
 * may send now. */
#ifndef GW_NET_CONNECTION_H
#define GW_NET_CONNECTION_H

#include "net/address.h"
#include "net/tls.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define GW_NET_HEAD 16
#define GW_NET_AHEAD 4096 /* a connection reads at most so many bytes before it knows where they belong */
#define GW_NET_SMALL (GW_NET_AHEAD - GW_NET_HEAD)
#define GW_NET_MOST_HEADER 1024

/* Bytes that the kernel has not taken yet. */
struct gw_net_parcel {
    struct gw_net_parcel *next;
    const void *bytes;
    size_t n_bytes, n_sent; /* n_sent counts the head, too */
    /* is called when the last byte has left, or the connection ends; NULL: nothing to do */
    void (*release)(void *owner);
    void *owner;
    size_t n_head;
    uint8_t head[GW_NET_HEAD + GW_NET_MOST_HEADER]; /* with the header. A parcel in memory of its own ends with these */
};

struct gw_net_message {
    uint16_t kind;         /* what the holder makes of it */
    const uint8_t *header; /* valid until gw_net_consume */
    size_t n_header;
    void *bytes; /* small: valid until gw_net_consume. Else what `place` said, and the holder's own */
    size_t n_bytes;
    bool is_small;
};

/* What `place` says of a body that is to be read and dropped. */
extern void *const gw_net_nowhere;

struct gw_net_connection {
    gw_context *context;
    int fd;                      /* -1: closed, or never opened */
    struct gw_net_tls *tls;      /* NULL: in the clear */
    struct gw_net_address peer;  /* where the other side is, if it has dialled */
    bool dialled;                /* this side has dialled */
    bool connected;              /* the kernel has a connection, and TLS has shaken hands */
    bool cannot_send;            /* the other side has closed it, or is gone. What it sent before can still be read */
    uint32_t watched;            /* what epoll watches; 0: it does not watch this connection */
    int error;                   /* after it ended: the errno, or 0 if the other side ended it in order */
    enum gw_net_refusal refusal; /* after it ended: which keys did not fit */

    uint64_t most_bytes;  /* a longer message is refused */
    uint16_t most_header; /* and so is a longer header */
    /* Says where a long body is to be received, or gw_net_nowhere. NULL: there is no memory now. The caller of
     * gw_net_next hears that, and may call again. */
    void *(*place)(void *user, const struct gw_net_message *message);
    void *place_user;
    uint32_t ahead_at, ahead_end; /* bytes in `ahead` that were read and not used yet */
    /* where the long body goes that is under way; NULL: none is. The holder may set it to gw_net_nowhere then */
    uint8_t *body;
    uint64_t body_bytes, body_at;
    bool has_next; /* gw_net_next has handed over a message that is not consumed yet */

    struct gw_net_parcel *first, *last; /* what waits to be sent */
    uint32_t n_waiting;
    struct gw_net_parcel spare; /* for what is left of a message if nothing waits before it */
    /* The holder sets it while it has several short messages to send. They wait for each other, until gw_net_flush, or
     * until there is room for no more. */
    bool gathers;
    uint8_t ahead[GW_NET_AHEAD];
};

/* Makes a connection that is not open yet. It has the memory that small messages need. */
void gw_net_init(struct gw_net_connection *c, gw_context *context);

/* Begins to connect to an address, over TLS if there are keys. host: as in gw_net_tls_new. ms: as in gw_net_tune.
 * Errors: GW_ERR_PEER (it cannot now), GW_ERR_MEMORY; c->error is the errno of both. */
gw_status gw_net_dial(struct gw_net_connection *c, const struct gw_net_address *address, struct gw_net_keys *keys,
                      const char *host, uint32_t ms);
/* Takes over a socket that does not block, and is connected or connecting. keys: NULL for none. host: as in
 * gw_net_tls_new. Errors: GW_ERR_MEMORY; then the socket is closed. */
gw_status gw_net_adopt(struct gw_net_connection *c, int fd, struct gw_net_keys *keys, const char *host, bool dialled);
/* Ends it at once, and drops what was not sent. It can be opened again. Its `error` stays. */
void gw_net_close(struct gw_net_connection *c);
/* Says that nothing more will be sent. The other side reads what is under way, and then the end. */
void gw_net_end_sending(struct gw_net_connection *c);

/* What epoll is to watch: EPOLLIN, and EPOLLOUT if something waits to be written. */
uint32_t gw_net_events(const struct gw_net_connection *c);
/* Tells epoll to watch that, and to say `data` when it comes. Call it after something was sent or read. One epoll at a
 * time watches a connection. */
void gw_net_watch(struct gw_net_connection *c, int epoll, epoll_data_t data);

/* Goes on connecting and shaking hands. GW_OK: the connection stands. GW_NOT_YET. GW_ERR_PEER: it failed; the sentence
 * says why. */
gw_status gw_net_establish(struct gw_net_connection *c);

/* The next whole message, if it has come. GW_NOT_YET: it has not, or so much of it has come that others get a turn;
 * epoll knows. Errors: GW_ERR_PEER (the connection has ended, or the other side sent what it may not; c->error and the
 * sentence say which), GW_ERR_MEMORY (from `place`; nothing is lost). The same message is handed over again until
 * gw_net_consume. */
gw_status gw_net_next(struct gw_net_connection *c, struct gw_net_message *message);
void gw_net_consume(struct gw_net_connection *c);
/* True if bytes were read that gw_net_next has not looked at. epoll does not know of them. */
bool gw_net_has_more(const struct gw_net_connection *c);

/* Sends a message with a header, of up to GW_NET_MOST_HEADER bytes, which is copied. What the kernel does not take now
 * waits for gw_net_flush. The bytes belong to the connection from here on, also if the call fails; `release` gives them
 * back, and gets the owner. If it is NULL, they are copied as far as GW_NET_MOST_HEADER bytes hold them and the header,
 * and must stay if they are more. Errors: GW_ERR_PEER (it says no sentence, because reading tells why), GW_ERR_MEMORY
 * (nothing was sent). */
gw_status gw_net_send_with(struct gw_net_connection *c, uint16_t kind, const void *header, size_t n_header,
                           const void *bytes, size_t n_bytes, void (*release)(void *owner), void *owner);
/* The same without header and `release`. */
gw_status gw_net_send(struct gw_net_connection *c, uint16_t kind, const void *bytes, size_t n_bytes);

/* Writes what waits. GW_OK: nothing waits any more. GW_NOT_YET. GW_ERR_PEER: the connection has ended. */
gw_status gw_net_flush(struct gw_net_connection *c);

/* True if the kernel of the other side has acknowledged all that was sent. */
bool gw_net_all_arrived(const struct gw_net_connection *c);

/* True if bytes are under way and the other machine has acknowledged none for so many milliseconds. A machine that is
 * alive and does not read acknowledges. So this finds a machine or a way that is gone. (The kernel's keepalive finds it
 * while nothing is under way.) */
bool gw_net_is_silent(const struct gw_net_connection *c, uint32_t ms);

/* Sets what every connection has: no delay of small messages, and keepalive, which ends it after `ms` of silence. */
void gw_net_tune(int fd, uint32_t ms);

#endif
