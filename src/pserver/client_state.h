/* The inside of the client: its tickets, keys and servers. All of it belongs to the one thread that calls the
 * client. */
#ifndef GW_PSERVER_CLIENT_STATE_H
#define GW_PSERVER_CLIENT_STATE_H

#include "pserver/answer.h"
#include "pserver/client.h"
#include "pserver/message.h"
#include "pserver/names.h"
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
    uint64_t scale;          /* of a pull: the ticket of its scale key's maximum, where that lives elsewhere; 0: none */
    bool averages;           /* with `scale`: sums are pulled, and divided here */
    gw_ps_shape shape;       /* of the whole key, where that is known */
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

/* ---- client_meet.c: how it finds its servers ---------------------------------------------------------------- */

/* Takes "HOST:PORT,..." apart. */
gw_status gw_ps_client_name_servers(struct gw_ps_client *client, const char *text);

/* Begins to connect to server s. */
gw_status gw_ps_server_connect(struct gw_ps_client *client, uint32_t s);

/* Ends the connection, and what is queued for it is sent no more; another one is made. */
void gw_ps_server_redial(const struct gw_ps_client *client, struct server *server);

/* Reads what ZeroMQ tells of its connections. Whether there is a new one: then the server does not know us. */
bool gw_ps_server_news(struct server *server);

/* What is due after news and as time passes. Errors: no connection can be made, or not with these keys. */
gw_status gw_ps_server_look(struct gw_ps_client *client, struct server *server);

/* ---- tickets.c: requests on their way ---------------------------------------------------------------------- */

/* A ticket of parts first .. first+n-1; what each asks for is filled in by the caller, who then sends it. NULL: no
 * memory. */
struct ticket *gw_ps_ticket_new(struct gw_ps_client *client, enum gw_ps_operation operation, uint32_t first,
                                uint32_t n);

/* Sends all parts; after an error the ticket is gone. */
gw_status gw_ps_ticket_send(struct gw_ps_client *client, struct ticket *ticket);

/* Until all parts have an answer, or the deadline has passed: the first error of any. */
gw_status gw_ps_ticket_wait(struct gw_ps_client *client, const struct ticket *ticket);

/* NULL: there is none, or it has been waited for. */
struct ticket *gw_ps_ticket_find(const struct gw_ps_client *client, uint64_t id);

/* What is left of GW_ERR_ORDER, which says "not yet", once it has been asked for in vain until the deadline:
 * GW_ERR_TIMEOUT, and the sentence says for what, and why not yet. */
gw_status gw_ps_too_late(const struct gw_ps_client *client, gw_status status, const char *what);

/* What the client knows of the answer to a part. */
struct gw_ps_asked gw_ps_asked_of(const struct gw_ps_client *client, uint32_t server, const struct part *part);

/* Frees it; drop first takes back what was lent of the caller's bytes. */
void gw_ps_ticket_free(struct gw_ps_client *client, struct ticket *ticket);
void gw_ps_ticket_drop(struct gw_ps_client *client, struct ticket *ticket);

/* ---- client_values.c --------------------------------------------------------------------------------------- */

/* The value of a ticket whose parts have all come. */
gw_status gw_ps_take_value(struct gw_ps_client *client, struct ticket *ticket, gw_ps_value *out);

/* Multiplies what came by the scale that comes by the ticket's other one; the same bits as a server's that has both. */
gw_status gw_ps_scale_value(struct gw_ps_client *client, const struct ticket *ticket, gw_ps_value *out);

/* ----------------------------------------------------------------------------------------------------------- */

/* Where there is no connection it is not sent. part NULL: no body. A small body is copied; a large one is lent. */
gw_status gw_ps_send_request(struct server *server, const struct gw_ps_request *request, const struct part *part);

#endif
