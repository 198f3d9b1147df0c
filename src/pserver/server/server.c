/* The server: one thread, one ROUTER socket, the store. It does a request at once if it can. If a request must wait, it
 * goes to its key's queue. Nothing blocks. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"
#include "pserver/server/connected.h"
#include "pserver/server/joining.h"
#include "pserver/server/kept.h"
#include "pserver/server/log.h"
#include "pserver/server/members.h"
#include "pserver/server/numbers.h"
#include "pserver/server/reply.h"
#include "pserver/server/requests.h"
#include "pserver/server/waiting.h"
#include "zmq/body.h"
#include "zmq/socket.h"

#include <gradwire/codec.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 10000
#define DEFAULT_AWAY_MS 2000
#define DEFAULT_KEYS (1ull << 20)
#define DEFAULT_KEY_BYTES (1ull << 30)
#define DEFAULT_CLIENTS 1024
#define MOST_UNREAD 4096 /* the most answers that a client has not taken yet; with more, the client is dropped */
/* the most messages of a client that have come and wait to be handled; with more, its connection is not read */
#define MOST_WAITING 256
#define WAITING_BYTES ((uint64_t)1 << 20)   /* bytes that are counted for one such message, for the sum of all */
#define MOST_AT_ONCE 1024u                  /* the most connections that wait to be accepted */
#define MOST_STRANGERS 256u                 /* the most connections that have not said HELLO */
#define STRANGER_BYTES ((uint64_t)64 << 10) /* the most bytes of such a connection beyond its complete messages */
/* a value with up to so many bytes is copied; this is more than ZeroMQ's buffer */
#define MOST_COPIED 16384
/* messages that are handled before the server looks at the time and at connections */
#define AT_ONCE 256
/* how long the server still handles requests that have come, when it must end */
#define END_SECONDS 1.0
#define LOOK_SECONDS 0.25 /* between looks for requests whose deadline has passed */

/* ---- receiving ---------------------------------------------------------------------------------------------- */

/* The value of a push, in the message in which it came. */
struct received {
    struct gw_ps_blob blob;
    zmq_msg_t message;
};

static void release_received(struct gw_ps_blob *blob)
{
    struct received *received = (struct received *)blob;
    zmq_msg_close(&received->message);
    gw_free(blob->context, received);
}

/* Copies a small value. ZeroMQ keeps small messages together in a buffer, and the whole buffer would stay as long as
 * one of them. */
static struct gw_ps_blob *keep_copy(struct gw_ps_server *server, struct gw_zmq_body *body)
{
    const size_t n_bytes = body->n_bytes;
    void *bytes = gw_alloc(server->context, n_bytes, 1);
    if (!bytes)
        return NULL;
    gw_zmq_body_copy(server->context, body, bytes);
    return gw_ps_blob_new(server->context, &server->bytes, bytes, n_bytes);
}

static struct gw_ps_blob *keep(struct gw_ps_server *server, struct gw_zmq_body *body)
{
    zmq_msg_t *message = body->only;
    if (!message || body->n_bytes <= MOST_COPIED)
        return keep_copy(server, body);
    struct received *received = gw_alloc(server->context, 1, sizeof *received);
    if (!received)
        return NULL;
    zmq_msg_init(&received->message);
    zmq_msg_move(&received->message, message);
    received->blob = (struct gw_ps_blob){.bytes = zmq_msg_data(&received->message),
                                         .n_bytes = zmq_msg_size(&received->message),
                                         .release = release_received,
                                         .context = server->context,
                                         .total = &server->bytes};
    gw_ps_blob_begin(&received->blob);
    return &received->blob;
}

/* Reads the events: connections that came and ended. */
static void read_events(struct gw_ps_server *server)
{
    struct gw_zmq_event event;
    while (gw_zmq_door_event(server->door, &event))
        gw_ps_connection_news(server, &event);
}

static void hello(struct gw_ps_server *server, uint32_t route, zmq_msg_t *head, const struct gw_ps_request *request)
{
    const char *address = zmq_msg_gets(head, "Peer-Address");
    address = address ? address : "?";
    /* now the events of this connection are known, and those of all earlier ones with its number */
    read_events(server);
    const char *key = zmq_msg_gets(head, "User-Id"); /* the gate has told ZeroMQ this key */
    gw_status status = gw_ps_member_join(server, route, zmq_msg_get(head, ZMQ_SRCFD), address, key, request);
    if (status < 0) {
        gw_ps_log(server, "refused address=%s reason=\"%s\"", address, gw_quote(gw_last_error()).text);
        gw_ps_reply_error(server, route, request, status, 0);
        return;
    }
    gw_zmq_door_admit(server->door, zmq_msg_get(head, ZMQ_SRCFD));
    gw_ps_log(server, "joined %s address=%s", gw_ps_rank_text((uint32_t)request->hello_rank).text, address);
    gw_ps_reply(server, route,
                &(struct gw_ps_reply){.operation = GW_PS_HELLO,
                                      .id = request->id,
                                      .n_workers = server->options.n_workers,
                                      .max_key_bytes = server->options.max_key_bytes,
                                      .mode = (uint8_t)server->options.mode,
                                      .staleness = server->options.mode == GW_PS_STALE ? server->options.staleness : 0,
                                      .backup = server->options.backup,
                                      .timeout_ms = server->options.timeout_ms},
                NULL);
}

/* Handles one message. body NULL: it has no body. unfit: an error if the body could not be taken; the last error says
 * why. */
static void serve(struct gw_ps_server *server, uint32_t route, zmq_msg_t *head, struct gw_zmq_body *body,
                  gw_status unfit)
{
    char why[GW_PS_SENTENCE] = "";
    if (unfit < 0)
        snprintf(why, sizeof why, "%s", gw_last_error());
    struct gw_ps_request request;
    gw_status status = gw_ps_request_read(zmq_msg_data(head), zmq_msg_size(head), &request);
    struct gw_ps_member *member = gw_ps_member_find(server, route);
    server->counts.bytes_in += zmq_msg_size(head) + (body ? body->n_bytes : 0);
    server->counts.requests[status < 0 ? 0 : request.operation]++;
    if (status < 0) {
        const char *address = zmq_msg_gets(head, "Peer-Address");
        gw_ps_log(server, "refused address=%s reason=\"%s\"", address ? address : "?", gw_quote(gw_last_error()).text);
        gw_ps_reply_error(server, route, &request, status, 0);
    } else if (request.operation == GW_PS_HELLO) {
        hello(server, route, head, &request);
    } else if (!member) {
        gw_ps_reply(server, route, &(struct gw_ps_reply){.operation = GW_PS_WHO, .id = request.id}, NULL);
    } else if (request.operation == GW_PS_BYE) {
        gw_ps_log(server, "left %s address=%s", gw_ps_rank_text(member->rank).text, member->address);
        gw_ps_member_goodbye(server, member);
        gw_ps_reply(server, route, &(struct gw_ps_reply){.operation = GW_PS_BYE, .id = request.id}, NULL);
    } else if (unfit < 0) {
        gw_ps_reply_error(server, route, &request, gw_fail(unfit, "the value for \"%s\": %s", request.key, why), 0);
    } else {
        if (body && body->n_bytes > GW_ZMQ_PIECE)
            member->whole = body->only;
        struct gw_ps_blob *value = body ? keep(server, body) : NULL;
        if (body && !value)
            gw_ps_reply_error(server, route, &request, GW_ERR_MEMORY, 0);
        else
            gw_ps_request_do(server, member, &request, value);
    }
}

static bool receive_part(struct gw_ps_server *server, zmq_msg_t *part, int flags)
{
    int got;
    zmq_msg_init(part);
    do
        got = zmq_msg_recv(part, server->socket, flags);
    while (got < 0 && zmq_errno() == EINTR);
    if (got < 0)
        zmq_msg_close(part);
    return got >= 0;
}

/* Takes one complete message: [route, head] or [route, head, pieces of a body]. false: there is none. */
static bool receive(struct gw_ps_server *server)
{
    zmq_msg_t id, head;
    struct gw_zmq_body body = {0};
    gw_status unfit = GW_OK;
    if (!receive_part(server, &id, ZMQ_DONTWAIT)) {
        gw_zmq_door_empty(server->door);
        return false;
    }
    if (!zmq_msg_more(&id) || !receive_part(server, &head, 0)) {
        zmq_msg_close(&id);
        return true;
    }
    const int fd = zmq_msg_get(&head, ZMQ_SRCFD);
    const bool has_body = zmq_msg_more(&head);
    if (has_body)
        unfit =
            gw_zmq_body_take(server->context, server->socket, server->options.max_key_bytes + GW_PS_HEAD_BYTES, &body);
    gw_zmq_door_took(server->door, fd, zmq_msg_size(&head) + body.n_came, 1 + body.n_parts);
    const uint8_t *name = zmq_msg_data(&id);
    /* a peer that gave itself another name does not belong here */
    if (zmq_msg_size(&id) == GW_PS_ROUTE_BYTES && name[0] == 0) {
        uint32_t route;
        memcpy(&route, name + 1, sizeof route);
        serve(server, route, &head, has_body ? &body : NULL, unfit);
    }
    gw_zmq_body_free(server->context, &body);
    zmq_msg_close(&head);
    zmq_msg_close(&id);
    return true;
}

/* ---- running ------------------------------------------------------------------------------------------------ */

/* After each message: requests that waited may go on, and members that were lost are freed. */
static void settle(struct gw_ps_server *server)
{
    gw_ps_requests_go_on(server);
    gw_ps_members_sweep(server);
}

/* The end of the server: requests that have come are answered, and their changes are kept. */
static void end(struct gw_ps_server *server)
{
    const double deadline = gw_clock_seconds() + END_SECONDS;
    while (gw_clock_seconds() < deadline && receive(server))
        settle(server);
    if (server->keep)
        gw_ps_keep_finish(server->keep);
}

gw_status gw_ps_server_run(gw_ps_server *server)
{
    GW_TRY(gw_process_check(server->made_in, "this parameter server"));
    for (;;) {
        zmq_pollitem_t items[] = {{server->socket, 0, ZMQ_POLLIN, 0},
                                  {NULL, server->stop, ZMQ_POLLIN, 0},
                                  {NULL, gw_zmq_door_fd(server->door), ZMQ_POLLIN, 0}};
        if (zmq_poll(items, 3, (long)(LOOK_SECONDS * 1000)) < 0 && zmq_errno() != EINTR)
            return gw_fail(GW_ERR_SYSTEM, "the server cannot wait for its clients: %s", zmq_strerror(zmq_errno()));
        if (items[1].revents) {
            end(server);
            return GW_OK;
        }
        for (int i = 0; i < AT_ONCE && receive(server); i++)
            settle(server);
        read_events(server);
        double now = gw_clock_seconds();
        if (now >= server->next_look) {
            server->next_look = now + LOOK_SECONDS;
            gw_ps_members_check_keys(server);
            gw_ps_members_look(server);
            gw_ps_joins_look(server);
            gw_ps_requests_expire(server);
            settle(server);
            if (server->keep)
                gw_ps_keep_look(server->keep);
            gw_ps_numbers_note(server, server->notes);
        }
    }
}

void gw_ps_server_stop(gw_ps_server *server)
{
    const uint64_t one = 1;
    if (!gw_process_is(server->made_in)) /* both processes have the eventfd */
        return;
    while (write(server->stop, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- beginning and end -------------------------------------------------------------------------------------- */

static gw_status check_options(const gw_ps_server_options *options, const void *out)
{
    if (!options || !out)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_server_create: %s is NULL", options ? "out" : "options");
    if (options->struct_bytes != sizeof *options)
        return gw_fail(GW_ERR_ARGUMENT, "gw_ps_server_options.struct_bytes is %zu, and must be %zu",
                       options->struct_bytes, sizeof *options);
    if (!options->listen)
        return gw_fail(GW_ERR_ARGUMENT, "no address to listen at; it must be HOST:PORT");
    if (options->n_workers == 0 || options->n_workers > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "a server for %u workers; 1 to %u are possible", options->n_workers,
                       (unsigned)GW_MAX_WORKERS);
    if (options->mode > GW_PS_ASYNC)
        return gw_fail(GW_ERR_ARGUMENT, "the mode is %u, which is none", (unsigned)options->mode);
    if (options->missing > GW_PS_MISSING_STOP)
        return gw_fail(GW_ERR_ARGUMENT, "what to do without a worker is %u, which is none of the three",
                       (unsigned)options->missing);
    if (options->min_workers > options->n_workers ||
        (options->min_workers && options->missing != GW_PS_MISSING_CONTINUE))
        return gw_fail(
            GW_ERR_ARGUMENT,
            "the first round is to have %u of %u workers; that is for servers that continue without some of them",
            options->min_workers, options->n_workers);
    if (options->backup >= options->n_workers || (options->backup && options->mode != GW_PS_SYNC))
        return gw_fail(GW_ERR_ARGUMENT,
                       "%u of %u workers as backup; fewer than all can be, of a server whose rounds are synchronous",
                       options->backup, options->n_workers);
    return GW_OK;
}

static void fill_defaults(gw_ps_server_options *options)
{
    options->timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    options->away_ms = options->away_ms ? options->away_ms : DEFAULT_AWAY_MS;
    if (options->missing == GW_PS_MISSING_CONTINUE && options->min_workers == 0)
        options->min_workers = options->n_workers;
    options->max_keys = options->max_keys ? options->max_keys : DEFAULT_KEYS;
    options->max_key_bytes = options->max_key_bytes ? options->max_key_bytes : DEFAULT_KEY_BYTES;
    options->max_bytes = options->max_bytes ? options->max_bytes : gw_machine_bytes() / 4 * 3;
    options->max_clients = options->max_clients ? options->max_clients : DEFAULT_CLIENTS;
}

static gw_status open_socket(struct gw_ps_server *server, const struct gw_net_address *address)
{
    server->socket = gw_zmq_socket_new(&server->net, ZMQ_ROUTER, true);
    if (!server->socket)
        return GW_ERR_SYSTEM;
    const uint64_t value = server->options.max_key_bytes + GW_PS_HEAD_BYTES;
    /* the most bytes of a part of a message */
    const int64_t longest = value > GW_ZMQ_PIECE ? (int64_t)value : (int64_t)GW_ZMQ_PIECE;
    GW_TRY(gw_zmq_set_int(server->socket, ZMQ_ROUTER_MANDATORY, 1));
    GW_TRY(gw_zmq_set_int(server->socket, ZMQ_SNDHWM, MOST_UNREAD));
    GW_TRY(gw_zmq_set_int(server->socket, ZMQ_RCVHWM, MOST_WAITING));
    if (zmq_setsockopt(server->socket, ZMQ_MAXMSGSIZE, &longest, sizeof longest) != 0)
        return gw_fail(GW_ERR_SYSTEM, "no socket for the server: %s", zmq_strerror(zmq_errno()));
    const uint32_t most = server->options.max_clients + GW_ZMQ_SPARE_STRANGERS;
    const struct gw_zmq_limits limits = {
        .most_strangers = most < MOST_STRANGERS ? most : MOST_STRANGERS,
        .silent_s = GW_ZMQ_SILENT_SECONDS,
        .stranger_bytes = STRANGER_BYTES,
        .member_bytes = value,
        /* so many complete messages may wait unread. They are all answered, perhaps with a refusal */
        .all_bytes = server->options.max_bytes + MOST_WAITING * (value < WAITING_BYTES ? value : WAITING_BYTES)};
    GW_TRY(gw_zmq_net_door(&server->net, server->socket, "news",
                           ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL, &limits,
                           &server->door));
    return gw_zmq_bind(server->socket, address, server->endpoint);
}

static gw_status set_up(struct gw_ps_server *server, const struct gw_net_address *address)
{
    gw_context *context = server->context;
    const gw_ps_server_options *o = &server->options;
    struct gw_zmq_net *net = &server->net;
    *net = (struct gw_zmq_net){.context = context,
                               .timeout_ms = o->timeout_ms,
                               .most_at_once = o->max_clients < MOST_AT_ONCE ? o->max_clients : MOST_AT_ONCE,
                               .log = {o->log, o->log_user, 0}};
    GW_TRY(gw_zmq_net_open(net));
    if (o->keys) {
        GW_TRY(gw_zmq_keys_load(context, o->keys, &net->keys));
        gw_zmq_keys_leave_own_out(net->keys);
        GW_TRY(gw_zmq_gate_open(context, net->zmq, net->keys, &net->log, &net->gate));
    }
    server->n_buckets = 1024;
    server->buckets = gw_calloc(context, server->n_buckets, sizeof *server->buckets);
    server->workers = gw_calloc(context, o->n_workers, sizeof *server->workers);
    if (!server->buckets || !server->workers)
        return GW_ERR_MEMORY;
    const struct gw_ps_store_options store = {.n_workers = o->n_workers,
                                              .mode = o->mode,
                                              .staleness = o->staleness,
                                              .min_workers = o->min_workers,
                                              .backup = o->backup,
                                              .max_keys = o->max_keys,
                                              .max_key_bytes = o->max_key_bytes,
                                              .max_bytes = o->max_bytes,
                                              .total = &server->bytes,
                                              .woken = gw_ps_waiting_wake,
                                              .user = server};
    GW_TRY(gw_ps_store_create(context, &store, &server->store));
    GW_TRY(gw_ps_server_keep(server));
    server->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (server->stop < 0)
        return gw_fail(GW_ERR_SYSTEM, "no eventfd for the server: %s", strerror(errno));
    return open_socket(server, address);
}

gw_status gw_ps_server_create(gw_context *context, const gw_ps_server_options *options, gw_ps_server **out)
{
    struct gw_net_address address;
    if (out)
        *out = NULL;
    GW_TRY(check_options(options, out));
    GW_TRY(gw_net_address_parse("the address to listen at", options->listen, true, NULL, &address));
    if (!options->keys && !options->insecure && !address.loopback)
        return gw_fail(
            GW_ERR_ARGUMENT,
            "%s is not a loopback address, and clients need no identity: anybody could read and change what is kept; "
            "give the server one (--keys DIR), or say that you trust the network (--insecure)",
            gw_net_place(address.endpoint));
    struct gw_ps_server *server = gw_calloc(context, 1, sizeof *server);
    if (!server)
        return GW_ERR_MEMORY;
    server->context = context;
    server->made_in = gw_process_now();
    server->options = *options;
    server->stop = -1;
    server->first_round = 1;
    server->counts.started = gw_clock_seconds();
    fill_defaults(&server->options);
    gw_status status = set_up(server, &address);
    if (status < 0) {
        gw_ps_server_destroy(server);
        return status;
    }
    *out = server;
    return GW_OK;
}

const char *gw_ps_server_address(const gw_ps_server *server)
{
    return gw_net_place(server->endpoint);
}

void gw_ps_server_destroy(gw_ps_server *server)
{
    if (!server || !gw_process_is(server->made_in))
        return;
    gw_ps_waiting_free(server);
    gw_ps_members_free(server);
    gw_ps_keep_close(server->keep);
    gw_ps_store_destroy(server->store);
    gw_ps_notes_free(server->context, server->notes);
    gw_free(server->context, server->agreed);
    gw_zmq_door_close(&server->socket, &server->door);
    if (server->stop >= 0)
        close(server->stop);
    gw_zmq_net_close(&server->net); /* this gives back the values that were on their way to clients */
    gw_free(server->context, server);
}
