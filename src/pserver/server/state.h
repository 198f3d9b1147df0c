/* The inside of the server: its sockets, the connected clients, and the requests that wait. All of it belongs to the
 * one thread that runs the server. */
#ifndef GW_PSERVER_SERVER_STATE_H
#define GW_PSERVER_SERVER_STATE_H

#include "base/process.h"
#include "pserver/protocol/message.h"
#include "pserver/folder/folder.h"
#include "pserver/server/numbers.h"
#include "pserver/store/store.h"
#include "net/listener.h"

#define GW_PS_MOST_AGREED 16384 /* bytes of what workers agree on */
#define GW_PS_SOMEBODY UINT64_MAX

struct gw_ps_waiting;

/* A member: a connection that has said HELLO. */
struct gw_ps_member {
    LIST_ENTRY(gw_ps_member) link; /* in the list of all members, or of those that have left */
    struct gw_ps_server *server;
    struct gw_net_connection c;
    bool has_more;      /* bytes were read that are still to be looked at */
    uint64_t receiving; /* bytes of the value that is under way */
    gw_status unfit;    /* why that value is dropped as it comes; GW_OK: it is not */
    uint32_t rank;
    uint64_t incarnation;
    bool joins;    /* the client says itself when it takes part (JOIN) */
    bool was_here; /* an earlier connection of this client was welcome, perhaps before this server was started again */
    bool lost;     /* it does not take its answers. The server's loop will free it */
    struct gw_ps_request join; /* a JOIN that waits */
    double join_by;            /* its deadline; 0: none waits */
    uint32_t n_waiting;
    int64_t since;                      /* seconds of Unix time */
    LIST_HEAD(, gw_ps_waiting) waiting; /* its requests that wait, the newest first */
};

/* A request that waits for pushes of other workers, or for an earlier request of the same client. It is in the
 * queue of its key; if it waits for its scale key, it is in the queue of that one. Queues are in the order in which
 * requests came. */
struct gw_ps_waiting {
    LIST_ENTRY(gw_ps_waiting) link;      /* in the queue of `queue` */
    LIST_ENTRY(gw_ps_waiting) of_member; /* in its member's list */
    struct gw_ps_member *member;
    struct gw_ps_key *key, *queue; /* the key of the request, and the one for which it waits */
    uint64_t nth;                  /* it was the nth of all requests that ever waited */
    struct gw_ps_request request;
    struct gw_ps_blob *value; /* the value of a push */
    double deadline;
};

/* An answer that waits for a commit. */
struct gw_ps_held {
    STAILQ_ENTRY(gw_ps_held) link;
    struct gw_ps_member *member;
    struct gw_ps_answer answer;
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
    int epoll;
    int stop;                  /* eventfd */
    struct gw_net_address own; /* where it listens */
    struct gw_ps_store *store;
    LIST_HEAD(, gw_ps_member) members, gone; /* gone: have left, until the server's loop frees them */
    uint32_t n_members;
    uint32_t n_lost;    /* how many of the members are lost */
    uint32_t n_more;    /* how many of them have_more */
    uint64_t receiving; /* bytes of values that are under way */
    /* this server's place in its clients' list, and the length of the list; n_servers 0: not known yet */
    uint32_t place, n_servers;
    struct gw_ps_worker *workers; /* by rank */
    bool stopped;                 /* GW_PS_MISSING_STOP: others have heard that a worker is gone */
    uint64_t first_round;         /* the round with which the exchange's workers began, or must begin */
    LIST_HEAD(, gw_ps_key) woken; /* the keys whose queues must be tried again */
    char *agreed;                 /* the lines on which workers have agreed; NULL: none yet */
    uint32_t agreed_by;
    uint64_t n_waiting, n_ever_waited;
    uint64_t bytes;        /* bytes of all values: kept, waiting, or on their way to clients */
    uint64_t keys_changes; /* of the list of allowed keys, when clients were last compared with it */
    double next_look;      /* for requests that have waited too long */
    double started;        /* when the server was made */
    struct gw_ps_counts counts;
    STAILQ_HEAD(, gw_ps_held) held;
    /* NULL: nothing outlives the process. gw_ps_folder_note is to be called after a change of what the server knows
     * beside its store: first_round, the agreed lines, or what it knows of a worker without its connection */
    struct gw_ps_folder *folder;
    struct gw_ps_numbers *numbers; /* a copy for other threads (numbers.h); NULL: nobody asked for one */
    pthread_mutex_t numbers_lock;
};

/* Writes one line, "event key=value ...", to the log. */
#define gw_ps_log(server, ...) gw_net_log(&(server)->log, __VA_ARGS__)

/* "rank=3 address=10.0.0.7" or "rank=reader address=...", for the log. */
struct gw_ps_member_text {
    char text[GW_NET_HOST_BYTES + 32];
};
struct gw_ps_member_text gw_ps_member_text(const struct gw_ps_member *member);

/* ---- connections.c ---- */

/* Waits for `seconds` at most, and handles what has come. Returns false if nothing had. *stop: gw_ps_server_stop was
 * called. */
bool gw_ps_connections_turn(struct gw_ps_server *server, double seconds, bool *stop);

/* Looks for members whose machine or network is gone. */
void gw_ps_connections_look(struct gw_ps_server *server);

/* ---- members.c ---- */

/* Makes a member of a connection that has said who it is. The caller moves the connection to it. Errors: GW_ERR_PEER
 * (that rank is here already), GW_ERR_CAPACITY (there are too many clients), GW_ERR_ARGUMENT (there is no such rank, or
 * the certificate is not allowed any more), GW_ERR_MEMORY. */
gw_status gw_ps_member_join(struct gw_ps_server *server, const struct gw_net_newcomer *newcomer,
                            const struct gw_ps_request *hello, struct gw_ps_member **out);

/* Frees members that have left or are lost. Members are freed only here. Only the server's loop calls it, between two
 * messages. So a function that handles a request may keep a pointer to a member, whatever its answers cause. */
void gw_ps_members_sweep(struct gw_ps_server *server);

/* Ends the connection of a member, and forgets its requests. The sweep frees it. */
void gw_ps_member_leave(struct gw_ps_server *server, struct gw_ps_member *member);

/* Ends the connections of clients that are not allowed any more. */
void gw_ps_members_check_keys(struct gw_ps_server *server);

/* Whether the run of plain keys is over, or that of the exchange (of_exchange): no client that takes part in it is
 * here. GW_ERR_ORDER: one may be back in a moment, as after a restart of this server; *is_over is true. */
gw_status gw_ps_run_look(const struct gw_ps_server *server, bool of_exchange, bool *is_over);

/* Forgets a member that has said that it leaves. Rounds may go on without it. */
void gw_ps_member_goodbye(struct gw_ps_server *server, struct gw_ps_member *member);

/* Looks for workers that have been away too long. */
void gw_ps_members_look(struct gw_ps_server *server);

/* ---- requests.c ---- */

/* Does what a request asks for, and answers it, now or later. value: the body of a push, else NULL. The function takes
 * over the caller's hold. */
void gw_ps_request_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                      struct gw_ps_blob *value);

/* Asks all requests of woken keys again. */
void gw_ps_requests_go_on(struct gw_ps_server *server);

/* ---- waiting.c ---- */

/* Puts a request for `key` into the queue of `waits_for`; takes a hold of its own on `value`. Errors: GW_ERR_CAPACITY
 * (too many of this client wait), GW_ERR_MEMORY. */
gw_status gw_ps_waiting_add(struct gw_ps_server *server, struct gw_ps_member *member,
                            const struct gw_ps_request *request, struct gw_ps_blob *value, struct gw_ps_key *key,
                            struct gw_ps_key *waits_for);

/* Puts a request into another queue, at its place in the order. */
void gw_ps_waiting_move(struct gw_ps_waiting *waiting, struct gw_ps_key *queue);

/* Frees a request that waits. */
void gw_ps_waiting_remove(struct gw_ps_server *server, struct gw_ps_waiting *waiting);

/* A few of the workers that is_named picks, for a sentence: "rank 2 (not connected), rank 5". "": it picks none. */
struct gw_ps_worker_names {
    char text[256];
};
typedef bool gw_ps_is_named(const struct gw_ps_server *server, uint32_t rank, const void *user);
struct gw_ps_worker_names gw_ps_name_workers(const struct gw_ps_server *server, gw_ps_is_named *is_named,
                                             const void *user);

/* Notes that requests that wait for a key may go on. The store calls this. */
void gw_ps_waiting_wake(void *server, struct gw_ps_key *key);

/* Answers requests whose deadline has passed with an error. It names the workers that they waited for. */
void gw_ps_waiting_expire(struct gw_ps_server *server);

/* refuse answers all requests that are for keys of exchanges, or wait for one. refuse_for answers all that wait for the
 * worker `rank`. The answers are `status`, with the sentence of the last error. */
void gw_ps_waiting_refuse(struct gw_ps_server *server, gw_status status);
void gw_ps_waiting_refuse_for(struct gw_ps_server *server, uint32_t rank, gw_status status);

/* ---- answers.c ---- */

/* Sends an answer, unless the member is lost. If changes wait for their commit, the answer waits, too, until
 * gw_ps_server_commit: it may tell of them. GW_PS_IN_MEMORY is taken off if the commit was good. If too many of its
 * answers wait to be sent, it is lost from then on, and the next sweep frees it. value: the body; the caller keeps its
 * hold. */
void gw_ps_answer_send(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_answer *answer,
                       struct gw_ps_blob *value);

/* Commits changes, and then sends the answers that tell of them. */
void gw_ps_server_commit(struct gw_ps_server *server);

/* Answers a request that failed with `status`. The sentence is that of gw_last_error(). number: 0, or the number that
 * the operation's answer has. */
void gw_ps_answer_error(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request,
                        gw_status status, uint64_t number);

/* The same to a connection that has not been let in. It ends when it has the answer. */
void gw_ps_refuse(struct gw_ps_server *server, struct gw_net_newcomer *newcomer, const struct gw_ps_request *request,
                  gw_status status);

/* To be called if there is no room for a request of `asker`. What the server sends counts for max_bytes until it has
 * left. If another client has more unread values than its share, this drops the one that has the most, and is true. A
 * share is half of max_bytes, divided by the number of clients. */
bool gw_ps_make_room(struct gw_ps_server *server, const struct gw_ps_member *asker);

/* ---- joining.c ---- */

/* These functions answer the request, now or later. If one returns an error, the caller answers. */
gw_status gw_ps_join_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request);
gw_status gw_ps_admit_do(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_ps_request *request);
gw_status gw_ps_members_do(struct gw_ps_server *server, struct gw_ps_member *member,
                           const struct gw_ps_request *request);

/* Answers all JOINs that wait with the last error. */
void gw_ps_joins_refuse(struct gw_ps_server *server, gw_status status);

/* Answers JOINs whose deadline has passed, and asks a worker to admit the others. */
void gw_ps_joins_look(struct gw_ps_server *server);

gw_ps_presence gw_ps_presence_of(const struct gw_ps_server *server, uint32_t rank);

/* Ends the run and drops its keys. The next run begins with round 1. */
void gw_ps_run_end(struct gw_ps_server *server);

/* ---- restore.c ---- */

/* Fills a new server with what its folder holds, if it has a folder. Errors: those of gw_ps_folder_open. */
gw_status gw_ps_server_restore(struct gw_ps_server *server);

#endif
