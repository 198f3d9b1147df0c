/* What the files of the tcp link share: a group of links, and one rank's endpoint of one link.
 *
 * tcp.c opens and ends a group. meeting.c connects its members. send.c and receive.c move messages. An endpoint has one
 * connection to each other member, and no thread: what is to be read is read when its rank receives, and what the
 * kernel did not take at once is written then, or by flush and close. */
#ifndef GW_LINK_TCP_STATE_H
#define GW_LINK_TCP_STATE_H

#include "base/process.h"
#include "link/loan.h"
#include "link/scheme.h"
#include "link/tcp/wire.h"
#include "net/listener.h"

#include <pthread.h>
#include <stdatomic.h>

#define GW_TCP_THIS "this tcp link"
/* the most bytes of a message, so that a member that lies cannot make another one take more memory */
#define GW_TCP_MOST_BYTES ((uint64_t)8 << 30)

/* In an endpoint's epoll a peer has the number of its rank. These are of the eventfd, and of the rendezvous. */
#define GW_TCP_WAKE UINT32_MAX
#define GW_TCP_RENDEZVOUS (UINT32_MAX - 1)

struct gw_tcp_peer {
    struct gw_net_connection c;
    bool gone, told;                /* told: recv has reported that it is gone */
    bool stalled;                   /* there is more of it, of which epoll does not know */
    bool stands;                    /* it has said WELCOME, or was told so */
    double dial_at;                 /* while members meet: when to dial next; 0: it is dialled, or dials itself */
    char why[GW_TCP_TEXT_BYTES];    /* a sentence: how it went */
    TAILQ_HEAD(, gw_loan) expected; /* loans for messages that have not begun to come */
    void *coming;                   /* the long message that has begun to come; of one that fills a loan, the head */
};

struct gw_tcp_endpoint {
    struct gw_tcp_group *group;
    int epoll, wake; /* wake: an eventfd */
    atomic_bool sleeping;
    pthread_mutex_t lock;            /* protects what follows. Nobody waits while holding it */
    struct gw_tcp_peer *peers;       /* `size` of them; the one of this rank is not used */
    struct gw_message_queue arrived; /* messages of others, and of this rank to itself */
    uint32_t n_stalled, n_untold;    /* n_untold: peers that are gone, and recv has not said so */
    double look_at;                  /* when to look next whether a machine has fallen silent */
    bool closed;
};

struct gw_tcp_group {
    gw_context *context;
    gw_process made_in;
    uint32_t rank, size, n_links, timeout_ms, spin_us;
    struct gw_net_keys *keys;           /* NULL: in the clear */
    struct gw_net_log log, log_of_late; /* log_of_late: of those that come when the job is running */
    uint64_t session;
    struct gw_tcp_member *members;     /* `size` of them */
    struct gw_tcp_endpoint *endpoints; /* one for each link */
    atomic_uint holders;               /* endpoints not destroyed yet */
    /* Where this rank listens while members meet. Rank 0's is the rendezvous, and goes on listening as long as the
     * group exists: whoever comes late hears that from the endpoint that receives. */
    pthread_mutex_t lock; /* of the listener, once all have met */
    struct gw_net_listener listener;
    char place[GW_NET_PLACE_BYTES]; /* of the rendezvous */
    char since[32];                 /* when all had met */
};

/* ---- meeting.c ---- */

/* Connects all members of the group over all links. `own`: where this rank can be reached. Errors: as
 * gw_link_open. */
gw_status gw_tcp_meet(struct gw_tcp_group *group, const struct gw_link_request *request,
                      const struct gw_net_host *rendezvous, const struct gw_net_address *own);
/* GW_ERR_CLOSED: the program wants the meeting of this rank to end. request: the rank's struct gw_link_request. */
gw_status gw_tcp_go_on(const void *request);
/* The times at which the program is asked whether to stop are not farther apart. */
#define GW_TCP_ASK_SECONDS 0.25

/* ---- send.c; the functions of the link, without recv ---- */

/* Sends a loan to its peer. `release` is called with the loan when its body has left, also if this fails. */
gw_status gw_tcp_send_loan(struct gw_tcp_endpoint *me, struct gw_loan *loan, void (*release)(void *loan));
gw_status gw_tcp_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms);
gw_status gw_tcp_send_all(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms);
gw_status gw_tcp_flush(void *self, uint32_t timeout_ms);
void gw_tcp_close(void *self);

/* ---- loan.c ---- */

extern const struct gw_link_loans gw_tcp_loans;

/* ---- receive.c; recv of the link ---- */

/* Turns out who sent a message that is none of a member, or of none of this job. what: says so in the log. */
void gw_tcp_turn_out(struct gw_tcp_group *group, struct gw_net_newcomer *newcomer, const struct gw_net_message *message,
                     const char *what);
#define GW_TCP_NO_MESSAGE "this is no message of a member"
/* Turns a process out, tells it why, and logs that. */
void gw_tcp_refuse(struct gw_tcp_group *group, struct gw_net_log *log, struct gw_net_newcomer *newcomer,
                   const char *why);

/* gw_net_connection.place of a member: says where a long message of this peer goes. */
void *gw_tcp_place(void *peer, const struct gw_net_message *message);
/* What it took, when the message is whole; NULL: the message is to be dropped. *n_bytes: how many bytes of it there are
 * behind the header; 0 if they have filled a loan. */
void *gw_tcp_placed(struct gw_tcp_peer *peer, size_t *n_bytes);

gw_status gw_tcp_recv(void *self, uint32_t timeout_ms, gw_message *message);
/* Reads what has come from a peer. The lock is held. Errors: GW_ERR_MEMORY; a peer that is gone is none. */
gw_status gw_tcp_read_peer(struct gw_tcp_endpoint *me, uint32_t rank);
/* Notes that a peer is gone, if that is not known yet: c.error says how. The lock is held. */
void gw_tcp_lose(struct gw_tcp_endpoint *me, uint32_t rank);
/* Waits until something has come or can be written, at most `seconds`, and handles it. *n: how much it was. The lock is
 * held, and given away while it waits. */
gw_status gw_tcp_turn(struct gw_tcp_endpoint *me, double seconds, int *n);

#endif
