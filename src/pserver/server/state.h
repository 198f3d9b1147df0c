/* The inside of the server: its sockets, the connected clients, and the requests that wait. All of it belongs to the
 * one thread that runs the server. */
#ifndef GW_PSERVER_SERVER_STATE_H
#define GW_PSERVER_SERVER_STATE_H

#include "base/process.h"
#include "pserver/protocol/message.h"
#include "pserver/keep/keep.h"
#include "pserver/store/store.h"
#include "net/listener.h"

#define GW_PS_MOST_AGREED 16384 /* bytes of what workers agree on */
#define GW_PS_MOST_WOKEN 64     /* keys */
#define GW_PS_SOMEBODY UINT64_MAX

struct gw_ps_notes;
struct gw_ps_parked;

/* A member: a connection that has said HELLO. */
struct gw_ps_member {
    struct gw_ps_member *next, **link; /* in the list of all members */
    struct gw_ps_server *server;
    struct gw_net_connection c;
    uint32_t events;    /* what epoll watches */
    bool has_more;      /* bytes were read that are still to be looked at */
    uint64_t receiving; /* bytes of the value that is under way */
    /* why that value is dropped as it comes; GW_OK: it is not */
    gw_status unfit;
    uint32_t rank;
    uint64_t incarnation;
    bool joins;    /* the client says itself when it takes part (JOIN) */
    bool was_here; /* an earlier connection of this client was welcome, perhaps before this server was started again */
    bool lost;     /* it does not take its answers. The server's loop will free it */
    struct gw_ps_joining { /* a JOIN that waits */
        bool waits;
        uint64_t id;
        uint32_t timeout_ms;
        double deadline;
    } joining;
    uint32_t n_parked;
    int64_t since;               /* seconds of Unix time */
    struct gw_ps_parked *parked; /* its requests that wait, in any order */
    struct gw_net_peer_name address;
};

/* A parked request. It waits for pushes of other workers, or for an earlier request of the same client. It is in the
 * queue of its key; if it waits for its scale key, it is in the queue of that one. Queues are in the order in which
 * requests came. */
struct gw_ps_parked {
    struct gw_ps_parked *next;                       /* the next one in the key's queue */
    struct gw_ps_parked *member_next, **member_link; /* in its member's list */
    struct gw_ps_member *member;                     /* NULL: the client has gone meanwhile */
    struct gw_ps_key *key;                           /* the key of the request */
    uint64_t nth;                                    /* it was the nth of all requests that ever waited */
    struct gw_ps_request request;
    struct gw_ps_blob *value; /* the value of a push */
    double deadline;
};

/* An answer that waits for a commit. */
struct gw_ps_held {
    struct gw_ps_held *next;
    struct gw_ps_member *member;
    struct gw_ps_reply reply;
    struct gw_ps_blob *value; /* NULL: none */
};

/* What the server knows of a worker, connected or not. */
struct gw_ps_worker {
    struct gw_ps_member *member; /* NULL: it is not here */
    int64_t gone_at;             /* Unix time when its last connection ended; 0: none has ended */
    double away_since;           /* when it went away; 0: it is here, or has left, or never came */
    uint64_t joined_as;          /* incarnation of the client that takes part in the exchange by a JOIN; 0: none */
    uint64_t joined_from;        /* the round from which on it takes part */
    uint64_t joined_by;          /* id of the JOIN; 0: not known */
    uint64_t agreed_as;          /* incarnation of the client that has agreed to the run's lines; 0: none yet */
    /* incarnation of the client that takes part in the run of plain keys; 0: none; GW_PS_SOMEBODY: a client that was
       here before a restart of this server */
    uint64_t came_as;
};

struct gw_ps_server {
    gw_context *context;
    gw_process made_in;
    gw_ps_server_options options;
    struct gw_net_log log, log_of_newcomers;
    struct gw_net_keys *keys; /* NULL: in the clear */
    struct gw_net_listener listener;
    bool listens;
    int epoll;
    int stop; /* eventfd */
    char endpoint[GW_NET_ENDPOINT_BYTES];
    struct gw_ps_store *store;
    struct gw_ps_member *members;
    uint32_t n_members;
    uint32_t n_lost;    /* how many of the members are lost */
    uint32_t n_more;    /* how many of them have_more */
    uint64_t receiving; /* bytes of values that are under way */
    /* this server's place in its clients' list, and the length of the list; n_servers 0: not known yet */
    uint32_t place, n_servers;
    struct gw_ps_member *gone;    /* members that have left, until the server's loop frees them */
    struct gw_ps_worker *workers; /* by rank */
    uint32_t n_joining;           /* how many JOINs wait */
    bool stopped;                 /* GW_PS_MISSING_STOP: others have heard that a worker is gone */
    uint64_t first_round;         /* the round with which the exchange's workers began, or must begin */
    /* The keys whose queues must be tried again. n_woken > GW_PS_MOST_WOKEN: the queues of all keys must. */
    struct gw_ps_key *woken[GW_PS_MOST_WOKEN];
    uint32_t n_woken;
    char *agreed; /* the lines on which workers have agreed; NULL: none yet */
    uint32_t agreed_by;
    uint64_t n_parked, n_ever_parked;
    atomic_uint_least64_t bytes; /* bytes of all values: kept, waiting, or on their way to clients */
    uint64_t keys_changes;       /* of the list of allowed keys, when clients were last compared with it */
    double next_look;            /* for requests that have waited too long */
    struct {
        double started;
        /* bytes_in and bytes_out count heads and bodies of messages */
        uint64_t requests[GW_PS_OPERATIONS], refused, bytes_in, bytes_out;
        struct gw_ps_times pushes, pulls; /* times from a request's coming to its answer, for requests that were done */
    } counts;
    struct gw_ps_held *held, *last_held; /* NULL: none */
    struct gw_ps_keep *keep;             /* NULL: nothing outlives the process */
    struct gw_ps_notes *notes; /* a copy of the numbers for other threads (numbers.h); NULL: nobody asked for one */
};

#endif
