/* The inside of the server: its sockets, who is connected, and requests that wait. All of it belongs to the one thread
 * that runs it. */
#ifndef GW_PSERVER_SERVER_H
#define GW_PSERVER_SERVER_H

#include "pserver/message.h"
#include "pserver/persist.h"
#include "pserver/store.h"
#include "zmq/events.h"
#include "zmq/net.h"

#include <zmq.h>

#define GW_PS_MOST_AGREED 16384 /* bytes of what workers agree on */
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
    } told;                      /* the last such line of the log */
    struct gw_ps_key *woken[64]; /* keys whose queues are to be asked again; where they are more, all keys' are */
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
    struct gw_ps_persist *persist; /* NULL: nothing outlives the process */
    struct gw_ps_notes *notes;     /* of all this, for other threads (numbers.h); NULL: nobody asked */
};

/* One line for the log: "event key=value ...". */
void gw_ps_log(struct gw_ps_server *server, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- members.c: who is connected ------------------------------------------------------------------------- */

/* "rank=3" or "reader", for the log. */
struct gw_ps_rank_text {
    char text[16];
};
struct gw_ps_rank_text gw_ps_rank_text(uint32_t rank);

struct gw_ps_member *gw_ps_member_find(const struct gw_ps_server *server, uint32_t route);

/* A connection says who it is. key: its public key, NULL without keys. Errors: GW_ERR_PEER (that rank is here already),
 * GW_ERR_CAPACITY (too many), GW_ERR_ARGUMENT (no such rank, or the key is not allowed any more), GW_ERR_CLOSED (it has
 * ended), GW_ERR_MEMORY. */
gw_status gw_ps_member_join(struct gw_ps_server *server, uint32_t route, int fd, const char *address, const char *key,
                            const struct gw_ps_request *hello);

/* It takes no answers any more: it gets none from here on, and leaves at the next sweep. */
void gw_ps_member_lose(struct gw_ps_server *server, struct gw_ps_member *member);

/* Only here members are freed, and only the loop calls it, between two messages. So whoever handles a request may hold
 * on to a member, whatever its answers do. */
void gw_ps_members_sweep(struct gw_ps_server *server);

/* Forgets it, and what it asked for. The sweep frees it. */
void gw_ps_member_leave(struct gw_ps_server *server, struct gw_ps_member *member);

/* A connection has come, or ended. What a connection said is read after both may have been told. */
void gw_ps_connection_news(struct gw_ps_server *server, const struct gw_zmq_event *event);

/* Clients whose keys are not allowed any more are lost. */
void gw_ps_members_check_keys(struct gw_ps_server *server);

void gw_ps_members_free(struct gw_ps_server *server);

/* Whether a worker is here that takes part in the run of plain keys. */
bool gw_ps_run_goes_on(const struct gw_ps_server *server);

/* Forgets it, which has said that it leaves: rounds may go on without it. */
void gw_ps_member_goodbye(struct gw_ps_server *server, struct gw_ps_member *member);

/* Looks for workers that have been away too long. */
void gw_ps_members_look(struct gw_ps_server *server);

/* ---- joining.c: who takes part in the exchange ------------------------------------------------------------ */

/* These answer, now or later. Errors: left to the caller to answer. */
gw_status gw_ps_join_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request);
gw_status gw_ps_admit_do(struct gw_ps_server *server, const struct gw_ps_member *member,
                         const struct gw_ps_request *request);
gw_status gw_ps_members_do(struct gw_ps_server *server, const struct gw_ps_member *member,
                           const struct gw_ps_request *request);

/* A JOIN does not wait any more: its client has gone. */
void gw_ps_join_forget(struct gw_ps_server *server, struct gw_ps_member *member);

/* Answers JOINs whose time is over, and asks for the others. */
void gw_ps_joins_look(struct gw_ps_server *server);

gw_ps_presence gw_ps_presence_of(const struct gw_ps_server *server, uint32_t rank);

/* The run is over, its keys go, and another begins with round 1. */
gw_status gw_ps_run_end(struct gw_ps_server *server);

/* ---- restore.c: what outlives the process ------------------------------------------------------------------- */

/* Makes the new server what its folder holds, where it has one. Errors: those of gw_ps_persist_open. */
gw_status gw_ps_server_restore(struct gw_ps_server *server);

/* After a change of first_round or of what is agreed on; of what is known of a worker beside its connection. */
void gw_ps_note_run(struct gw_ps_server *server);
void gw_ps_note_worker(struct gw_ps_server *server, uint32_t rank);

/* ---- requests.c: what they ask for ----------------------------------------------------------------------- */

/* Does what a request asks for, and answers it, now or later. value: the body of a push (one hold, given up), else
 * NULL. */
void gw_ps_request_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                      struct gw_ps_blob *value);

/* The store says that requests that wait for a key may go on. */
void gw_ps_requests_wake(void *server, struct gw_ps_key *key);

/* Asks all requests of woken keys again. */
void gw_ps_requests_go_on(struct gw_ps_server *server);

/* Answers those whose time is over with an error that names who is waited for. */
void gw_ps_requests_expire(struct gw_ps_server *server);

/* Answers all that wait at keys which begin with the prefix, or for a worker of that rank: the last error says why. */
void gw_ps_requests_refuse(struct gw_ps_server *server, const char *prefix, gw_status status);
void gw_ps_requests_refuse_waiting_for(struct gw_ps_server *server, uint32_t rank, gw_status status);

void gw_ps_requests_free(struct gw_ps_server *server);

/* ---- server.c -------------------------------------------------------------------------------------------- */

/* Sends an answer, unless it is for a member that is lost. A member whose queue is full is lost from then on. value (no
 * hold is taken from the caller) is its body. */
void gw_ps_reply(struct gw_ps_server *server, uint32_t route, const struct gw_ps_reply *reply,
                 struct gw_ps_blob *value);

/* The answer to a request that failed with that status: gw_last_error() is its sentence. number: 0, or what the
 * operation says. */
void gw_ps_reply_error(struct gw_ps_server *server, uint32_t route, const struct gw_ps_request *request,
                       gw_status status, uint64_t number);

#endif
