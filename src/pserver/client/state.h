/* The inside of the client: its tickets, keys and servers. All of it belongs to the one thread that calls the
 * client. */
#ifndef GW_PSERVER_CLIENT_STATE_H
#define GW_PSERVER_CLIENT_STATE_H

#include "base/process.h"
#include "pserver/client/answer.h"
#include "pserver/protocol/message.h"
#include "pserver/protocol/names.h"
#include "zmq/events.h"
#include "zmq/net.h"

#include <stdatomic.h>
#include <zmq.h>

#define MOST_SERVERS 64
#define RETRY_SECONDS 0.25
#define LOOK_MS 100 /* between looks for a new connection, while the client waits for answers without a poll */

/* A loan: ZeroMQ sends a large push directly from the caller's memory. The ticket has one hold on the bytes, and each
 * message of ZeroMQ has one. */
struct loan {
    gw_context *context;
    atomic_uint holds;
};

/* A part: the request of a ticket to one server. */
struct part {
    struct gw_ps_request request;
    const void *body; /* the value of a push */
    size_t n_bytes;
    struct loan *loan; /* NULL: the body was copied, or is not sent yet */
    double sent_at;
    bool done;
    double again_at; /* an INIT that the server cannot do yet: the time when it is sent again; 0: it is under way */
    /* type and shape of the key, or of its part there; type 0: not known, or the answer brings no value */
    gw_ps_type type;
    gw_ps_shape shape;
    struct gw_ps_reply reply;
    zmq_msg_t value; /* the value of a pull, once the part is done */
};

struct key {
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t n_elems;
    uint32_t first, n_parts; /* servers */
    uint64_t pushed;
    bool uncertain;          /* a push failed: only the server knows how many pushes it has */
    char *codec, *optimizer; /* the specifications with which it was initialised; NULL: none */
};

struct ticket {
    struct ticket *next;
    uint64_t id; /* the id of its first part; the ids of the others follow */
    enum gw_ps_operation operation;
    double deadline;
    uint32_t first, n_parts; /* servers */
    struct key key;          /* of an INIT: the key, and where it will live */
    /* of a pull: the ticket for the maximum of its scale key, if that lives on another server; 0: none */
    uint64_t scale;
    bool averages;     /* with `scale`: the servers give sums, and this client divides them */
    gw_ps_shape shape; /* of the whole key, if that is known */
    struct part parts[];
};

struct server {
    char endpoint[GW_NET_ENDPOINT_BYTES];
    void *socket, *events;
    /* welcome: HELLO was answered on this connection. was_welcome: it was answered at some time, and the fields below
     * come from that answer */
    bool welcome, was_welcome;
    uint32_t n_workers;
    gw_ps_mode mode;
    uint32_t staleness, backup, timeout_ms;
    double seconds_a_byte; /* speed of the last large push on this connection; 0: not known */
    bool sent_whole;       /* a large value was sent in one piece on this connection */
    /* before this time no value is sent in one piece: such a value may have broken the connection */
    double whole_after;
    double hello_again; /* 0: not */
    /* Of the connection, before HELLO was answered on it. */
    bool is_reached;  /* somebody accepted the connection, and has not ended it since */
    uint32_t n_ended; /* how often the other end has ended it, before it said who it is */
    /* how often in a row the keys did not match or were refused, and the event of the last time */
    uint32_t n_turned_away;
    struct gw_zmq_event turned_away_by;
    double dial_again; /* 0: not */
    double first_refused;
    gw_status refused; /* the server has refused for good. why: the rest of a sentence that begins with the server */
    char why[GW_PS_SENTENCE];
};

struct gw_ps_client {
    gw_context *context;
    gw_process made_in;
    struct gw_zmq_net net;
    uint32_t rank, n_servers, timeout_ms;
    bool joins;
    bool has_met; /* all servers have said welcome */
    /* a connection to each server must be made until reach_by, and each must say welcome until meet_by */
    double reach_by, meet_by;
    atomic_bool asked; /* the server has asked to admit a worker, since the program looked last */
    /* a server could not write to its folder what it acknowledged, since the program looked last */
    atomic_bool in_memory_only;
    uint64_t incarnation, next_id;
    struct server servers[MOST_SERVERS];
    struct ticket *tickets, **end;
    struct gw_ps_names names;
    struct key *keys; /* by the number of their name */
    uint64_t capacity;
    uint64_t refusal;
    uint64_t most_bytes; /* the most bytes of a value whose length is not known before */
    double rate;         /* the learning rate of pushes */
};

/* GW_OK, or an error: the client is NULL, or belongs to another process. */
static inline gw_status gw_ps_client_check(const gw_ps_client *client, const char *function)
{
    if (!client)
        return gw_fail(GW_ERR_ARGUMENT, "%s: client is NULL", function);
    return gw_process_check(client->made_in, "this client of the parameter server");
}

#endif
