/* One rank's endpoint of one link. endpoint.c opens, sends and ends; inbox.c receives and finds out who is gone.
 *
 * `in` is a bound DEALER on which everything that others send arrives; `out` is a ROUTER with a connection to each of
 * them. A message travels as one frame: the envelope stands in the room before its bytes. */
#ifndef GW_LINK_TCP_ENDPOINT_H
#define GW_LINK_TCP_ENDPOINT_H

#include "link/tcp/envelope.h"
#include "link/tcp/group.h"
#include "link/tcp/wire.h"
#include "zmq/events.h"

#include <pthread.h>
#include <stdatomic.h>
#include <zmq.h>

#define GW_TCP_NOBODY UINT32_MAX

enum gw_tcp_peer_state {
    GW_TCP_AWAITED, /* no HELLO yet */
    GW_TCP_PRESENT,
    GW_TCP_FAILED, /* said FAIL; hears notices still */
    GW_TCP_LEFT,   /* said BYE */
    GW_TCP_LOST    /* its connection broke */
};

struct gw_tcp_peer {
    char endpoint[GW_ZMQ_ENDPOINT_BYTES]; /* where it listens */
    atomic_int state;                     /* enum gw_tcp_peer_state; changed under the lock */
    uint8_t attempt;                      /* how often `out` has connected to it, part of its routing id */
    bool reached;                         /* `out` has a connection to it that it accepted */
    uint64_t n_sent;                      /* messages of the user's that went to it; under the lock */
    atomic_uint_least64_t n_taken;        /* messages of its that the user has received */
    int in_fd;                            /* of the connection on which its messages come; -1: none yet */
    int in_kept; /* the same connection, which ZeroMQ does not close: it tells who ended it; -1: none */
    /* when a connection that broke is final, unless BYE comes first; 0: none broke */
    double lost_at;
    bool silent;      /* this side has ended that connection: nothing was answered */
    double redial_at; /* when to try again what could not be connected; 0: nothing */
};

/* What the endpoint says if it fails: made beforehand, so that saying it takes no memory. */
struct gw_tcp_notice {
    zmq_msg_t frame;
    bool ready;
    uint8_t bytes[GW_MESSAGE_ENVELOPE + GW_TCP_TEXT_BYTES];
};

struct gw_tcp_endpoint {
    struct gw_tcp_group *group;
    uint32_t nth, tag;

    /* The receiving thread's own. */
    void *in, *out_events;      /* the latter: what ZeroMQ tells about connections of `out` */
    int in_ready, events_ready; /* readable if something may have come to `in`, or to out_events */
    struct gw_zmq_door *door;   /* of `in` */
    bool met;                   /* all have said HELLO, and nobody else comes */
    struct gw_zmq_ended in_ended;
    zmq_msg_t held; /* taken from `in`; kept if there was no memory to hand it on */
    bool holding, in_parts;
    struct gw_message_queue early; /* messages that came before all HELLOs */
    uint32_t n_awaited;            /* members whose HELLO is missing */
    uint32_t n_unreached;          /* members that have not accepted our connection */
    double next_at;                /* the least lost_at or redial_at, or news_at; 0: none */

    /* What another has told of a member that it lost; final when news_at has come, as messages may be underway. */
    double news_at; /* 0: nothing */
    uint32_t news_of;
    char news[GW_TCP_TEXT_BYTES];

    /* Under the lock. */
    pthread_mutex_t lock;
    void *out;
    struct gw_tcp_notice fail;
    struct gw_message_queue own; /* messages to oneself */
    uint32_t failed_peer;        /* the first that failed or was lost, or GW_TCP_NOBODY */
    char why[GW_TCP_TEXT_BYTES]; /* the sentence about it */

    atomic_bool closed, sleeping;
    atomic_size_t n_outstanding; /* frames given to ZeroMQ and not sent or dropped yet */
    int wake;                    /* eventfd */
    struct gw_tcp_peer *peers;   /* size of them; one's own is not used */
};

/* Makes the endpoint and listens at `address`; `endpoint` says where. */
gw_status gw_tcp_endpoint_open(struct gw_tcp_group *group, uint32_t nth, const struct gw_zmq_address *address,
                               char endpoint[GW_ZMQ_ENDPOINT_BYTES], struct gw_tcp_endpoint **out);

/* With the table at hand: connects to every peer and says HELLO. */
gw_status gw_tcp_endpoint_connect(struct gw_tcp_endpoint *me);

/* Waits until every peer has said HELLO and has accepted our connection. */
gw_status gw_tcp_endpoint_await(struct gw_tcp_endpoint *me, double deadline);

/* Waits until what was sent has left, 2 s at most, and closes the sockets. The memory stays until ZeroMQ's context is
 * gone. */
void gw_tcp_endpoint_shut(struct gw_tcp_endpoint *me);
void gw_tcp_endpoint_free(struct gw_tcp_endpoint *me);

/* Connects (again). Under the lock. */
gw_status gw_tcp_dial(struct gw_tcp_endpoint *me, uint32_t rank);

/* A peer is gone: nothing more is sent to it. The first that did not just leave is what recv reports, by the sentence.
 * If it is lost the others are told, who may not find out by themselves. */
void gw_tcp_peer_gone(struct gw_tcp_endpoint *me, uint32_t rank, enum gw_tcp_peer_state state, const char *sentence);

/* Others have lost a peer, and may say so before this rank finds out: `sentence` is what recv reports, unless it has
 * something to report already. */
void gw_tcp_peer_told_of(struct gw_tcp_endpoint *me, uint32_t rank, const char *sentence);

/* A peer said BYE, and how many messages of this rank's it has received: if some are lost, that is a failure for
 * all. */
void gw_tcp_peer_left(struct gw_tcp_endpoint *me, uint32_t rank, uint64_t n_received);

/* The link's functions, beside recv. */
gw_status gw_tcp_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms);
gw_status gw_tcp_send_all(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms);
void gw_tcp_fail(void *self, gw_status status, const char *why);
void gw_tcp_close(void *self);

/* inbox.c: link's recv, and one round of it for shutting: takes and throws away what has come, and learns who is gone.
 */
gw_status gw_tcp_recv(void *self, uint32_t timeout_ms, gw_message *message);
void gw_tcp_discard(struct gw_tcp_endpoint *me);

/* Ends the connection that was kept to tell how it ended. */
void gw_tcp_let_go(struct gw_tcp_peer *peer);

#endif
