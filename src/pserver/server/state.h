/* The inside of the server: its sockets, who is connected, and requests that wait. All of it belongs to the one thread
 * that runs it. */
#ifndef GW_PSERVER_SERVER_STATE_H
#define GW_PSERVER_SERVER_STATE_H

#include "pserver/protocol/message.h"
#include "pserver/keep/keep.h"
#include "pserver/store/store.h"
#include "zmq/events.h"
#include "zmq/net.h"

#include <zmq.h>

#define GW_PS_MOST_AGREED 16384 /* bytes of what workers agree on */
#define GW_PS_MOST_WOKEN 64     /* keys */
#define GW_PS_SOMEBODY UINT64_MAX
#define GW_PS_ROUTE_BYTES 5 /* of a connection's id, as ZeroMQ's ROUTER gives them out: 0 and a number */

struct gw_ps_notes;
struct gw_ps_parked;

/* A connection that has said HELLO. */
struct gw_ps_member {
    struct gw_ps_member *next; /* in its bucket */
    uint32_t route;            /* the connection's number */
    int fd;                    /* that ZeroMQ knows it by */
    uint32_t rank;
    uint64_t incarnation;
    bool joins;    /* it says when it takes part */
    bool was_here; /* an earlier connection of this client was welcome, perhaps before this server was started again */
    bool lost;     /* it does not take its answers; swept by the loop */
    /* its last large value came in one piece: the connection is fast, and answers may go so, too */
    bool whole;
    struct gw_ps_joining { /* a JOIN that waits */
        bool waits;
        uint64_t id;
        uint32_t timeout_ms;
        double deadline;
    } joining;
    uint32_t n_parked;
    int64_t since;               /* seconds of Unix time */
    struct gw_ps_parked *parked; /* its requests that wait, in no order */
    char address[64];
    char key[GW_ZMQ_KEY_CHARS + 1]; /* that it came in with; "": the server has no keys */
};

/* A request that waits: for pushes of others, or for the same client's request before it. In the queue of its key, or
 * where it waits for its scale key in that one's. Queues are in the order in which requests came. */
struct gw_ps_parked {
    struct gw_ps_parked *next;                       /* in the key's queue */
    struct gw_ps_parked *member_next, **member_link; /* in its member's list */
    struct gw_ps_member *member;                     /* NULL: gone meanwhile */
    struct gw_ps_key *key;                           /* that it asks of */
    uint64_t nth;                                    /* of all that ever waited */
    struct gw_ps_request request;
    struct gw_ps_blob *value; /* of a push */
    double deadline;
};

/* What the server knows of a worker, connected or not. */
struct gw_ps_worker {
    struct gw_ps_member *member; /* NULL: not here */
    int64_t gone_at;             /* Unix time when its last connection ended; 0: none has */
    double away_since;           /* 0: it is here, or has left, or never came */
    uint64_t joined_as;          /* incarnation that takes part in the exchange by a JOIN; 0: none */
    uint64_t joined_from;        /* which round */
    uint64_t joined_by;          /* id of the JOIN; 0: not known */
    uint64_t agreed_as;          /* incarnation whose lines were the run's; 0: none yet */
    /* incarnation that takes part in the run of plain keys; 0: none; GW_PS_SOMEBODY: one that was here before this
       server was started again */
    uint64_t came_as;
};

struct gw_ps_server {
    gw_context *context;
    gw_ps_server_options options;
    struct gw_zmq_net net;
    void *socket; /* ROUTER */
    struct gw_zmq_door *door;
    int stop; /* eventfd */
    char endpoint[GW_ZMQ_ENDPOINT_BYTES];
    struct gw_ps_store *store;
    struct gw_ps_member **buckets; /* by route */
    uint32_t n_buckets, n_members;
    uint32_t n_lost;              /* of them */
    uint32_t place, n_servers;    /* of this server in its clients' list; n_servers 0: not known yet */
    struct gw_ps_member *gone;    /* that have left, until the loop frees them */
    struct gw_ps_worker *workers; /* by rank */
    uint32_t n_joining;           /* JOINs that wait */
    uint64_t first_round;         /* that the exchange's workers began with, or are to begin with */
    struct gw_zmq_ended ended;    /* connections */
    struct gw_zmq_callers callers;
    const char *unspoken; /* why the connection whose end is the next event said nothing; NULL: it did */
    struct {
        char address[GW_ZMQ_NUMERIC_BYTES];
        const char *why;
        double at;
    } told; /* the last such line of the log */
    struct gw_ps_key
        *woken[GW_PS_MOST_WOKEN]; /* keys whose queues are to be asked again; if they are more, all keys' are */
    uint32_t n_woken;
    char *agreed; /* what workers have agreed on; NULL: nothing yet */
    uint32_t agreed_by;
    uint64_t n_parked, n_ever_parked;
    atomic_uint_least64_t bytes; /* of all values: kept, waiting, or on their way out */
    double log_room, log_at;     /* lines that may be told now, as of when */
    uint64_t n_untold;
    uint64_t keys_nth; /* the list of allowed keys that clients were last compared with */
    double next_look;  /* for requests that have waited too long */
    struct {
        double started;
        uint64_t requests[GW_PS_OPERATIONS], refused, bytes_in, bytes_out; /* bytes: of messages, heads and bodies */
        struct gw_ps_times pushes, pulls; /* from a request's coming to its answer, of those that were done */
    } counts;
    struct gw_ps_keep *keep;   /* NULL: nothing outlives the process */
    struct gw_ps_notes *notes; /* of all this, for other threads (numbers.h); NULL: nobody asked */
};

#endif
