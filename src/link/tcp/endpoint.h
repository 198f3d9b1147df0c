/* One rank's endpoint of one link. endpoint.c sends. inbox.c receives, and finds out which members are gone. lifetime.c
 * opens the endpoint, and ends it.
 *
 * The socket `in` is a bound DEALER: all that others send arrives there. The socket `out` is a ROUTER with a connection
 * to each of the others. A message travels as one frame. Its envelope lies in the room before its bytes. */
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
#define GW_TCP_THIS "this tcp link"
/* the most bytes of a message, so that a stranger cannot make a member take more memory */
#define GW_TCP_MOST_BYTES ((int64_t)8 << 30)

enum gw_tcp_peer_state {
    GW_TCP_AWAITED, /* its HELLO has not come yet */
    GW_TCP_PRESENT,
    GW_TCP_FAILED, /* it said FAIL; it still hears notices */
    GW_TCP_LEFT,   /* it said BYE */
    GW_TCP_LOST    /* its connection broke */
};

struct gw_tcp_peer {
    char endpoint[GW_ZMQ_ENDPOINT_BYTES]; /* where it listens */
    atomic_int state;                     /* enum gw_tcp_peer_state; changed under the lock */
    uint8_t attempt;                      /* how often `out` has connected to it; part of its routing id */
    bool reached;                         /* it has accepted the connection of `out` */
    bool left_because;                    /* it left, and said that another one's failure was the reason */
    uint64_t n_sent;                      /* messages of the user that were sent to it; under the lock */
    uint64_t n_owed;                      /* the same, up to the last one that is no farewell */
    atomic_uint_least64_t n_taken;        /* messages from it that the user has received */
    int in_fd;                            /* descriptor of the connection on which its messages come; -1: none yet */
    int in_kept; /* a copy of in_fd, which ZeroMQ does not close: it tells which side ended the connection; -1: none */
    /* a connection to it broke: it counts as lost at this time, unless its BYE comes before; 0: none broke */
    double lost_at;
    bool silent;      /* this side ended the connection, because the peer had not answered */
    double redial_at; /* when to connect again after an attempt that failed; 0: nothing to do */
    double stale_at;  /* when to try again if nothing has come of the attempt until then; 0: it has succeeded */
    uint8_t bye[GW_MESSAGE_ENVELOPE + GW_TCP_BYE_BYTES]; /* the farewell to it, so that the end takes no memory */
};

/* What the endpoint sends if it fails. It is made beforehand, so that a failure takes no memory. */
struct gw_tcp_notice {
    zmq_msg_t frame;
    bool ready;
    uint8_t bytes[GW_MESSAGE_ENVELOPE + GW_TCP_TEXT_BYTES];
};

struct gw_tcp_endpoint {
    struct gw_tcp_group *group;
    uint32_t nth, tag;

    /* Only the receiving thread uses these. */
    void *in, *out_events;      /* out_events: what ZeroMQ tells about the connections of `out` */
    int in_ready, events_ready; /* descriptors: readable if something may have come to `in`, or to out_events */
    struct gw_zmq_door *door;   /* the door of `in` (zmq/watch.h) */
    bool met;                   /* all have said HELLO, and nobody else can connect */
    struct gw_zmq_ended in_ended;
    zmq_msg_t held; /* a frame that was taken from `in`. It stays here if there was no memory to hand it on */
    bool holding, in_parts;
    struct gw_message_queue early; /* messages that came before all HELLOs */
    uint32_t n_awaited;            /* members whose HELLO is missing */
    uint32_t n_unreached;          /* members that have not accepted this endpoint's connection */
    double next_at;                /* the earliest of all lost_at, redial_at, stale_at and news_at; 0: none */

    /* Another member has told that it lost a member. Messages may still be on their way, so this holds only from
     * news_at on. */
    double news_at; /* 0: nobody has told anything */
    uint32_t news_of;
    char news[GW_TCP_TEXT_BYTES];

    /* Used under the lock. */
    pthread_mutex_t lock;
    void *out;
    struct gw_tcp_notice fail;
    struct gw_message_queue own;      /* messages of this rank to itself */
    uint32_t failed_peer;             /* the first peer that failed or was lost, or GW_TCP_NOBODY */
    char why[GW_TCP_TEXT_BYTES];      /* the sentence about it */
    char left_why[GW_TCP_TEXT_BYTES]; /* what the first peer that left because of a failure said about it */

    atomic_bool closed, sleeping;
    atomic_size_t n_outstanding; /* frames that ZeroMQ has got, and has not sent or dropped yet */
    int wake;                    /* eventfd */
    struct gw_tcp_peer *peers;   /* `size` of them; the one of this rank is not used */
};

/* Has the receiving thread look at its timers at this time, or before. */
static inline void gw_tcp_look_at(struct gw_tcp_endpoint *me, double at)
{
    if (at != 0 && (me->next_at == 0 || at < me->next_at))
        me->next_at = at;
}

/* Connects to a peer, perhaps again, or later if no descriptor is free. The lock must be held. */
gw_status gw_tcp_dial(struct gw_tcp_endpoint *me, uint32_t rank);

/* Notes that a peer is gone: nothing more is sent to it. recv reports the first peer that failed or was lost, with
 * `sentence`. If it was lost, the other members are told, because they may not find out by themselves. */
void gw_tcp_peer_gone(struct gw_tcp_endpoint *me, uint32_t rank, enum gw_tcp_peer_state state, const char *sentence);

/* Notes that another member has lost a peer. This rank may not have noticed that yet. recv reports `sentence`, unless
 * it has something to report already. */
void gw_tcp_peer_told_of(struct gw_tcp_endpoint *me, uint32_t rank, const char *sentence);

/* A peer said BYE, and how many messages of this rank it has received. If some are missing, that is a failure, and all
 * members hear of it. why: what the peer had heard of a failure, or empty. */
void gw_tcp_peer_left(struct gw_tcp_endpoint *me, uint32_t rank, uint64_t n_received, const char *why);

/* The functions of the link, without recv. */
gw_status gw_tcp_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms);
gw_status gw_tcp_send_all(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms);
void gw_tcp_fail(void *self, gw_status status, const char *why);
void gw_tcp_close(void *self);

/* Makes what fail sends. drop gives it back if it was not sent. */
gw_status gw_tcp_notice_make(struct gw_tcp_endpoint *me);
void gw_tcp_notice_drop(struct gw_tcp_endpoint *me);

#endif
