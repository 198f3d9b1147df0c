/* The inside of the client: its requests, keys and servers. All of it belongs to the one thread that calls the
 * client. */
#ifndef GW_PSERVER_CLIENT_STATE_H
#define GW_PSERVER_CLIENT_STATE_H

#include "base/process.h"
#include "pserver/client/answer.h"
#include "pserver/protocol/message.h"
#include "pserver/protocol/names.h"
#include "net/connection.h"

#include <stdatomic.h>
#include <sys/queue.h>

#define MOST_SERVERS 64
#define REQUEST_BUCKETS 4096
#define RETRY_SECONDS 0.25

/* The part of a request that goes to one server, and the answer to it. */
struct part {
    struct gw_ps_request head;
    const void *body; /* the value of a push */
    size_t n_bytes;
    bool waits; /* the connection has not sent all of the body yet */
    bool done;
    double again_at; /* when it is sent again: an INIT or AGREE that the server could not do yet; 0: it is under way */
    struct gw_ps_answer answer;
};

/* What a key is, and where it lives. */
struct place {
    gw_ps_type type; /* 0: not known */
    gw_ps_shape shape;
    uint64_t n_elems;
    uint32_t first, n_parts; /* servers */
};

struct key {
    char *name;                 /* comes first, for the table of names */
    struct place place;         /* type 0: this client has not initialised it yet */
    uint32_t n_inits, n_pushes; /* how many of them are under way, or were not waited for yet */
    uint64_t pushed;
    bool uncertain;          /* a push failed: only the server knows how many pushes it has */
    char *codec, *optimizer; /* the specifications with which it was initialised; NULL: none */
};

struct request {
    TAILQ_ENTRY(request) link; /* in the client's list of open requests, or of answered ones */
    LIST_ENTRY(request) same_bucket;
    uint64_t id;                       /* the id of its first part; the ids of the others follow */
    const struct gw_ps_request *asked; /* the head of its first part */
    double deadline;
    uint32_t n_left;    /* how many parts have no answer yet */
    struct key *key;    /* NULL: it counts for none */
    struct place place; /* of the key, and the servers that are asked */
    const void *body;   /* of an INIT: the first parameters; NULL: none */
    /* of a pull: the request for the maximum of its scale key, if that lives on another server. Of an INIT: the request
     * that puts the first parameters, once the key is made. 0: none */
    uint64_t second;
    bool averages;  /* with a scale: the servers give sums, and this client divides them */
    void *tag;      /* the exchange's */
    uint8_t *value; /* the value of a pull, of all parts one behind the other; NULL: nothing has come */
    size_t n_bytes;
    struct part parts[];
};

TAILQ_HEAD(requests, request);

struct server {
    gw_ps_client *client;
    struct gw_net_host host;
    uint32_t n_dialled;
    struct gw_net_connection c;
    double dial_at; /* if there is no connection: when to make one */
    /* welcome: HELLO was answered on this connection. was_welcome: it was answered at some time, with `hello` */
    bool welcome, was_welcome;
    bool has_more; /* a whole answer may have been read, so poll does not know of it */
    struct gw_ps_answer hello;
    double look_at; /* when to see whether its machine still answers */
    /* Of attempts since it was welcome. */
    bool is_reached;       /* somebody accepts connections there */
    uint32_t n_failed;     /* how many failed in a row */
    uint32_t n_ended;      /* how many of them the other end had accepted, and ended before it said who it is */
    uint32_t n_mismatched; /* how many ended because keys do not fit, or it does not speak as a server does */
    int error;             /* the errno of the last one */
    double first_refused;
    bool refused; /* for good. why: the rest of a sentence that begins with the server */
    char why[GW_PS_SENTENCE];
};

struct gw_ps_client {
    gw_context *context;
    gw_process made_in;
    struct gw_net_keys *identity; /* NULL: in the clear */
    uint32_t rank, n_servers, timeout_ms;
    bool joins;
    bool has_met; /* all servers have said welcome */
    /* a connection to each server must be made by reach_by, and each must say welcome by meet_by */
    double reach_by, meet_by;
    atomic_bool in_memory, join; /* the notices that the program has not taken yet */
    uint64_t incarnation, next_id;
    struct server servers[MOST_SERVERS];
    struct requests open, answered;                      /* in the order in which they began, or were answered */
    LIST_HEAD(bucket, request) buckets[REQUEST_BUCKETS]; /* all of them, by their number */
    double again_at;                                     /* no part must be sent again before */
    struct gw_ps_names keys;
    uint64_t refusal;
    uint64_t most_bytes; /* the most bytes of a value whose length is not known before */
};

/* GW_OK, or an error: the client is NULL, or belongs to another process. */
static inline gw_status gw_ps_client_check(const gw_ps_client *client, const char *function)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "%s: client is NULL", function);
    return gw_process_check(client->made_in, "this client of the parameter server");
}

/* ---- keys.c ---- */

/* Where a key lives, and what is known of it; a key that this client has not initialised has the type 0. */
struct place gw_ps_key_find(const struct gw_ps_client *client, const char *name);

/* Takes a key that is to be made into the table, if it is not there. Errors: GW_ERR_MEMORY. */
gw_status gw_ps_key_add(struct gw_ps_client *client, const char *name, struct key **out);

/* Says where a key of that type and shape will live. */
gw_status gw_ps_key_place(const struct gw_ps_client *client, const char *name, gw_ps_type type,
                          const gw_ps_shape *shape, struct place *place);

/* The servers have made the key: this notes what it is, and how often this client has pushed to it. */
gw_status gw_ps_key_made(struct gw_ps_client *client, const struct request *request);

/* How many elements of a key are before its part p. */
uint64_t gw_ps_part_begin(const struct place *place, uint32_t p);

/* The shape of a part. If a key has several parts, each is a row. */
gw_ps_shape gw_ps_part_shape(const struct place *place, uint32_t p);

void gw_ps_keys_free(struct gw_ps_client *client);

/* ---- connect.c ---- */

/* Sends a request. part NULL: it has no body; else the part waits until its body has left, or never will. If the
 * connection ends before, the request is sent again on the next one. Errors: GW_ERR_MEMORY. */
gw_status gw_ps_server_send(struct server *server, const struct gw_ps_request *request, struct part *part);

/* Goes on connecting, if it is time. True: the connection stands. */
bool gw_ps_server_connect(struct server *server);

/* The connection has ended; c.error says how. Another one will be made. */
void gw_ps_server_lost(struct server *server);

/* Ends the connection, and makes another one at once. There requests without an answer are sent again. */
void gw_ps_server_redial(struct server *server);

/* GW_OK, or an error: no connection can be made, or the keys do not fit. The next call tries again. */
gw_status gw_ps_server_check(struct server *server);

/* HOST:PORT of a server, with the first of its host's addresses, for sentences. */
static inline const char *gw_ps_place(const struct server *server)
{
    return server->host.addresses[0].place;
}

/* ---- requests.c ---- */

/* Begins a request, and sends its parts. head: all but what belongs to a part (id, timeout, n_parts, the number of a
 * push). server: the one that is asked, or GW_PS_BY_KEY: those on which the key lives. body: of an INIT the first
 * parameters, which follow once the key is made; NULL: none. It stays the caller's, and must stay until the request is
 * freed. Errors: as gw_ps_begin. */
#define GW_PS_BY_KEY UINT32_MAX
gw_status gw_ps_request_begin(struct gw_ps_client *client, uint32_t server, const struct gw_ps_request *head,
                              const void *body, size_t n_bytes, struct request **out);

/* Sends all parts again, with what their heads say now. */
gw_status gw_ps_request_send(struct gw_ps_client *client, struct request *request);

/* Waits until all parts have an answer, or the deadline has passed. GW_NOT_YET: the time `until` came first. Returns
 * the first error of the parts. */
gw_status gw_ps_request_wait(struct gw_ps_client *client, const struct request *request, double until);

/* When a wait for a request that has no answer ends. */
double gw_ps_request_end(const struct gw_ps_client *client, const struct request *request);

/* Finds a request. NULL: there is none, or the caller has waited for it already. */
struct request *gw_ps_request_find(const struct gw_ps_client *client, uint64_t id);

/* A server may answer GW_ERR_ORDER, which says "not yet". This turns it into GW_ERR_TIMEOUT. The sentence says what the
 * client waited for, and why the server could not do it. Another status is returned as it is. */
gw_status gw_ps_too_late(const struct gw_ps_client *client, gw_status status, const char *what);

/* What the client knows about the answer to part p. */
struct gw_ps_asked gw_ps_asked_of(const struct gw_ps_client *client, const struct request *request, uint32_t p);

/* Frees a request, and its second one. From here on nothing reads the caller's bytes. If it is a push without a good
 * answer, the client asks the server before the next push how many pushes it has. */
void gw_ps_request_free(struct gw_ps_client *client, struct request *request);

#endif
