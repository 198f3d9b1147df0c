/* The inside of the client: its tickets, keys and servers. All of it belongs to the one thread that calls the
 * client. */
#ifndef GW_PSERVER_CLIENT_STATE_H
#define GW_PSERVER_CLIENT_STATE_H

#include "pserver/client/answer.h"
#include "pserver/protocol/message.h"
#include "pserver/protocol/names.h"
#include "zmq/events.h"
#include "zmq/net.h"

#include <stdatomic.h>
#include <zmq.h>

#define MOST_SERVERS 64
#define RETRY_SECONDS 0.25
#define LOOK_MS 100 /* between looks for a new connection, where answers are waited for without a poll */

/* The bytes of a large push while ZeroMQ sends them from where they stand: one hold is the ticket's, one each
 * message's. */
struct loan {
    gw_context *context;
    atomic_uint holds;
};

/* What one server is asked for one ticket. */
struct part {
    struct gw_ps_request request;
    const void *body; /* of a push */
    size_t n_bytes;
    struct loan *loan; /* NULL: the body was copied, or is not sent yet */
    double sent_at;
    bool done;
    double again_at; /* of an INIT that the server cannot do yet: when it is sent again; 0: it is under way */
    gw_ps_type type; /* of the key, or of its part there; 0: not known, or the answer brings no value */
    gw_ps_shape shape;
    struct gw_ps_reply reply;
    zmq_msg_t value; /* of a pull, once done */
};

struct key {
    gw_ps_type type;
    gw_ps_shape shape;
    uint64_t n_elems;
    uint32_t first, n_parts; /* servers */
    uint64_t pushed;
    bool uncertain;          /* a push failed: only the server knows how many it has */
    char *codec, *optimizer; /* as it was initialised with; NULL: none */
};

struct ticket {
    struct ticket *next;
    uint64_t id; /* of its first part; those of the others follow */
    enum gw_ps_operation operation;
    double deadline;
    uint32_t first, n_parts; /* servers */
    struct key key;          /* of an INIT: where it is to live */
    uint64_t scale;          /* of a pull: the ticket of its scale key's maximum, if that lives elsewhere; 0: none */
    bool averages;           /* with `scale`: sums are pulled, and divided here */
    gw_ps_shape shape;       /* of the whole key, if that is known */
    struct part parts[];
};

struct server {
    char endpoint[GW_ZMQ_ENDPOINT_BYTES];
    void *socket, *events;
    bool welcome, was_welcome; /* HELLO was answered on this connection; ever, and then with what follows */
    uint32_t n_workers;
    gw_ps_mode mode;
    uint32_t staleness, backup, timeout_ms;
    double seconds_a_byte; /* of the last large push on this connection; 0: not known */
    bool sent_whole;       /* a large value on this connection, in one piece */
    double whole_after;    /* none before: one may have broken the connection */
    double hello_again;    /* 0: not */
    /* of the connection, before anybody has said HELLO on it: */
    bool is_reached;        /* somebody took it, and has not ended it since */
    uint32_t n_ended;       /* by the other end, before it said who it is */
    uint32_t n_turned_away; /* in a row, and how the last one was */
    struct gw_zmq_event turned_away_by;
    double dial_again; /* 0: not */
    double first_refused;
    gw_status refused; /* for good; why: a clause whose subject is the server */
    char why[GW_PS_SENTENCE];
};

struct gw_ps_client {
    gw_context *context;
    struct gw_zmq_net net;
    uint32_t rank, n_servers, timeout_ms;
    bool joins;
    bool has_met;               /* all servers have said welcome */
    double reach_by, meet_by;   /* until then a connection must be made to each; and a welcome be said */
    atomic_bool asked;          /* to admit a worker, since somebody looked */
    atomic_bool in_memory_only; /* a server could not write what it acknowledged, since somebody looked */
    uint64_t incarnation, next_id;
    struct server servers[MOST_SERVERS];
    struct ticket *tickets, **end;
    struct gw_ps_names names;
    struct key *keys; /* by their names' numbers */
    uint64_t capacity;
    uint64_t refusal;
    uint64_t most_bytes; /* of a value whose length is not known before */
    double rate;         /* of pushes */
};

#endif
