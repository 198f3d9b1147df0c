/* The inside of the client: its tickets, keys and servers. All of it belongs to the one thread that calls the
 * client. */
#ifndef GW_PSERVER_CLIENT_STATE_H
#define GW_PSERVER_CLIENT_STATE_H

#include "base/process.h"
#include "pserver/client/answer.h"
#include "pserver/protocol/message.h"
#include "pserver/protocol/names.h"
#include "net/address.h"
#include "net/connection.h"
#include "net/tls.h"

#include <stdatomic.h>

#define MOST_SERVERS 64
#define TICKET_BUCKETS 4096
#define RETRY_SECONDS 0.25

/* A part: the request of a ticket to one server. */
struct part {
    struct gw_ps_request request;
    const void *body; /* the value of a push */
    size_t n_bytes;
    bool waits; /* the connection has not sent all of the body yet */
    bool done;
    double again_at; /* an INIT that the server cannot do yet: the time when it is sent again; 0: it is under way */
    struct gw_ps_reply reply;
};

/* What a key is, and where it lives. */
struct place {
    gw_ps_type type; /* 0: not known */
    gw_ps_shape shape;
    uint64_t n_elems;
    uint32_t first, n_parts; /* servers */
};

struct key {
    struct place place;
    bool known;                 /* this client has initialised it */
    uint32_t n_inits, n_pushes; /* how many of them are under way, or were not waited for yet */
    uint64_t pushed;
    bool uncertain;          /* a push failed: only the server knows how many pushes it has */
    char *codec, *optimizer; /* the specifications with which it was initialised; NULL: none */
};

struct ticket {
    struct ticket *next, **link;       /* in the client's list of open tickets, or of answered ones */
    struct ticket *hash_next;          /* in its bucket */
    uint64_t id;                       /* the id of its first part; the ids of the others follow */
    const struct gw_ps_request *asked; /* the request of its first part */
    double deadline;
    uint32_t first, n_parts; /* servers */
    uint32_t n_left;         /* how many parts have no answer yet */
    uint64_t key;            /* the number of its key in the table; GW_PS_NO_NAME: it is not there */
    struct place place;      /* of the key */
    const void *body;        /* of an INIT: the first parameters; NULL: none */
    /* of a pull: the ticket for the maximum of its scale key, if that lives on another server. Of an INIT: the ticket
     * that brings the first parameters, once the key is made. 0: none */
    uint64_t second;
    bool averages;  /* with a scale: the servers give sums, and this client divides them */
    void *tag;      /* the exchange's */
    uint8_t *value; /* the value of a pull, of all parts one behind the other; NULL: nothing has come */
    size_t n_bytes;
    struct part parts[];
};

struct tickets {
    struct ticket *first, **end;
};

struct server {
    gw_ps_client *client;
    struct gw_net_host host;
    uint32_t n_dialled;
    struct gw_net_address address; /* the first one of the host, for sentences */
    struct gw_net_connection c;
    double dial_at; /* if there is no connection: when to make one */
    /* welcome: HELLO was answered on this connection. was_welcome: it was answered at some time, and the fields below
     * come from that answer */
    bool welcome, was_welcome;
    bool has_more; /* a whole answer may have been read, so poll does not know of it */
    uint32_t n_workers;
    gw_ps_mode mode;
    uint32_t staleness, backup, timeout_ms;
    double look_at; /* when to see whether its machine still answers */
    /* Of attempts since it was welcome. */
    bool is_reached;       /* somebody accepts connections there */
    uint32_t n_failed;     /* how many failed in a row */
    uint32_t n_ended;      /* how many of them the other end had accepted, and ended before it said who it is */
    uint32_t n_mismatched; /* how many ended because keys do not fit, or it does not speak as a server does */
    enum gw_net_refusal mismatch;
    bool met_tls;
    int error; /* the errno of the last one */
    double first_refused;
    gw_status refused; /* the server has refused for good. why: the rest of a sentence that begins with the server */
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
    struct tickets open, answered;          /* in the order in which they began, or were answered */
    struct ticket *buckets[TICKET_BUCKETS]; /* all of them, by their number */
    uint32_t n_again;                       /* how many parts wait to be sent again */
    struct gw_ps_names names;
    struct key *keys; /* by the number of their name */
    uint64_t capacity;
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

#endif
