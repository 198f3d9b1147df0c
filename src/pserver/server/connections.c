/* Lets clients in, and reads their requests. A value is received into memory of its own, which is the store's from then
 * on. What cannot be taken is dropped as it comes, and refused when it is over. */
#include "pserver/server/state.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/quote.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

/* messages of one client that are handled before others get their turn */
#define MOST_IN_A_ROW 64

/* ---- requests -------------------------------------------------------------------------------------------- */

/* Where the value of a request is received. Values on their way may have as many bytes as the server may hold. */
static void *place(void *user, const struct gw_net_message *message)
{
    struct gw_ps_member *member = user;
    struct gw_ps_server *server = member->server;
    const uint64_t n_bytes = message->n_bytes;
    member->unfit = GW_ERR_CAPACITY;
    if (n_bytes > server->options.max_key_bytes + GW_PS_HEAD_BYTES ||
        n_bytes > server->options.max_bytes - server->receiving)
        return gw_net_nowhere;
    void *bytes = gw_alloc(server->context, (size_t)n_bytes, 1);
    member->unfit = bytes ? GW_OK : GW_ERR_MEMORY;
    if (!bytes)
        return gw_net_nowhere;
    member->receiving = n_bytes;
    server->receiving += n_bytes;
    return bytes;
}

/* Makes the value of a request of what has come. NULL: there is no memory. */
static struct gw_ps_blob *take_value(struct gw_ps_server *server, struct gw_ps_member *member,
                                     const struct gw_net_message *message)
{
    if (message->is_small)
        return gw_ps_blob_copy(server->context, &server->bytes, message->bytes, message->n_bytes);
    server->receiving -= member->receiving;
    member->receiving = 0;
    return gw_ps_blob_new(server->context, &server->bytes, message->bytes, message->n_bytes);
}

static gw_status why_unfit(const struct gw_ps_server *server, const struct gw_ps_member *member,
                           const struct gw_ps_request *request, uint64_t n_bytes)
{
    if (member->unfit == GW_ERR_MEMORY)
        return gw_fail(GW_ERR_MEMORY, "the server has no memory for the value for \"%s\"", request->key);
    return gw_fail(GW_ERR_CAPACITY,
                   "the value for \"%s\" has %llu bytes; one value may have %llu (--max-key-bytes), and those on their "
                   "way %llu together (--max-bytes)",
                   request->key, (unsigned long long)n_bytes, (unsigned long long)server->options.max_key_bytes,
                   (unsigned long long)server->options.max_bytes);
}

/* Reads the head of a message, and counts the message. */
static gw_status read_head(struct gw_ps_server *server, const struct gw_net_message *message,
                           struct gw_ps_request *request)
{
    *request = (struct gw_ps_request){.operation = GW_PS_WHO};
    const gw_status status =
        message->kind == GW_PS_MESSAGE
            ? gw_ps_request_read(message->header, message->n_header, request)
            : gw_fail(GW_ERR_FRAME_MAGIC, "a message of kind %u is unknown to the parameter server", message->kind);
    server->counts.bytes_in += GW_NET_HEAD + message->n_header + message->n_bytes;
    server->counts.requests[status < 0 ? 0 : request->operation]++;
    return status;
}

/* Handles one request of a member. */
static void serve(struct gw_ps_server *server, struct gw_ps_member *member, const struct gw_net_message *message)
{
    struct gw_ps_request request;
    gw_status status = read_head(server, message, &request);
    const bool dropped = message->bytes == gw_net_nowhere;
    if (status < 0)
        gw_ps_log(server, "refused address=%s reason=\"%s\"", member->c.peer.host, gw_quote(gw_last_error()).text);
    else if (request.operation == GW_PS_HELLO)
        status = gw_fail(GW_ERR_ORDER, "this connection has said HELLO before");
    else if (dropped)
        status = why_unfit(server, member, &request, message->n_bytes);
    struct gw_ps_blob *value = NULL;
    if (message->n_bytes && !dropped && !(value = take_value(server, member, message)) && status == GW_OK)
        status = GW_ERR_MEMORY;
    if (status < 0) {
        gw_ps_answer_error(server, member, &request, status, 0);
        gw_ps_blob_give(value);
    } else if (request.operation == GW_PS_BYE) {
        gw_ps_log(server, "left %s", gw_ps_member_text(member).text);
        gw_ps_server_commit(server); /* its last answers leave */
        gw_ignore(gw_net_flush(&member->c));
        gw_ps_blob_give(value);
        gw_ps_member_goodbye(server, member);
    } else {
        gw_ps_request_do(server, member, &request, value);
    }
}

/* Reads what a member has sent. Short answers to requests that came together leave together. */
static void read_member(struct gw_ps_server *server, struct gw_ps_member *member)
{
    struct gw_net_message message;
    gw_status status = GW_OK;
    bool has_more = member->c.fd >= 0 && !member->lost;
    int n = 0;
    member->c.gathers = true;
    while (has_more && n++ < MOST_IN_A_ROW && (status = gw_net_next(&member->c, &message)) == GW_OK) {
        serve(server, member, &message);
        gw_net_consume(&member->c);
        if (!LIST_EMPTY(&server->woken)) /* these may take long */
            gw_ignore(gw_net_flush(&member->c));
        gw_ps_requests_go_on(server);
        has_more = member->c.fd >= 0 && !member->lost && gw_net_has_more(&member->c); /* else epoll knows */
    }
    member->c.gathers = false;
    gw_ignore(gw_net_flush(&member->c));
    gw_net_watch(&member->c, server->epoll, (epoll_data_t){.ptr = member});
    has_more = has_more && status == GW_OK;
    server->n_more += has_more - member->has_more;
    member->has_more = has_more;
    if (status >= 0 || member->c.fd < 0)
        return;
    if (member->c.error == EPROTO || member->c.error == EMSGSIZE)
        gw_ps_log(server, "dropped %s reason=\"%s\"", gw_ps_member_text(member).text, gw_quote(gw_last_error()).text);
    else
        gw_ps_log(server, "lost %s", gw_ps_member_text(member).text);
    gw_ps_member_leave(server, member);
}

/* ---- those who come -------------------------------------------------------------------------------------- */

/* Handles the first message of a connection. */
static void greet(struct gw_ps_server *server, struct gw_net_newcomer *newcomer, const struct gw_net_message *message)
{
    struct gw_ps_request request;
    struct gw_ps_member *member;
    gw_status status = read_head(server, message, &request);
    if (status == GW_OK && request.operation != GW_PS_HELLO)
        status = gw_fail(GW_ERR_ORDER, "the first request of a connection must say who the client is (HELLO)");
    if (status == GW_OK)
        status = gw_ps_member_join(server, newcomer, &request, &member);
    if (status < 0) {
        gw_ps_log(server, "refused address=%s reason=\"%s\"", newcomer->c.peer.host, gw_quote(gw_last_error()).text);
        gw_ps_refuse(server, newcomer, &request, status);
        return;
    }
    gw_net_let_in(&server->listener, newcomer, &member->c);
    member->c.most_bytes = UINT64_MAX; /* what is too long is dropped as it comes */
    member->c.most_header = GW_PS_HEAD_BYTES;
    member->c.place = place;
    member->c.place_user = member;
    gw_ps_log(server, "joined %s", gw_ps_member_text(member).text);
    gw_ps_answer_send(server, member,
                      &(struct gw_ps_answer){.operation = GW_PS_HELLO,
                                             .id = request.id,
                                             .n_workers = server->options.n_workers,
                                             .max_key_bytes = server->options.max_key_bytes,
                                             .mode = (uint8_t)server->options.mode,
                                             .staleness =
                                                 server->options.mode == GW_PS_STALE ? server->options.staleness : 0,
                                             .backup = server->options.backup,
                                             .timeout_ms = server->options.timeout_ms},
                      NULL);
    read_member(server, member); /* it may have sent more already */
}

static void look_at_newcomers(struct gw_ps_server *server)
{
    struct gw_net_newcomer *newcomer;
    struct gw_net_message message;
    for (int i = 0; i < GW_NET_MOST_AT_ONCE && (newcomer = gw_net_listener_next(&server->listener, &message)); i++) {
        greet(server, newcomer, &message);
        gw_ps_requests_go_on(server);
    }
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

bool gw_ps_connections_turn(struct gw_ps_server *server, double seconds, bool *stop)
{
    enum { AT_ONCE = 64 };
    struct epoll_event events[AT_ONCE];
    const int ms = seconds > 0 && !server->n_more ? (int)(seconds * 1000) + 1 : 0;
    const int n = epoll_wait(server->epoll, events, AT_ONCE, ms);
    bool any = server->n_more > 0;
    for (struct gw_ps_member *m = LIST_FIRST(&server->members), *next; m && server->n_more; m = next) {
        next = LIST_NEXT(m, link);
        if (m->has_more)
            read_member(server, m);
    }
    for (int i = 0; i < n; i++) {
        struct gw_ps_member *member = events[i].data.ptr;
        if (events[i].data.ptr == &server->stop) {
            eventfd_t n_told;
            *stop = eventfd_read(server->stop, &n_told) == 0; /* else it would be told again and again */
        } else if (events[i].data.ptr == &server->listener) {
            look_at_newcomers(server);
            any = true;
        } else if (member->c.fd >= 0) { /* it has not left meanwhile */
            any = true;
            gw_ignore(gw_net_flush(&member->c)); /* if that fails, reading says why */
            read_member(server, member);
        }
    }
    gw_ps_server_commit(server);
    gw_ps_members_sweep(server);
    return any;
}

void gw_ps_connections_look(struct gw_ps_server *server)
{
    look_at_newcomers(server); /* it also sends away those who say nothing, and accepts again after a flood */
    for (struct gw_ps_member *m = LIST_FIRST(&server->members), *next; m; m = next) {
        next = LIST_NEXT(m, link);
        if (!gw_net_is_silent(&m->c, server->options.timeout_ms))
            continue;
        gw_ps_log(server, "lost %s reason=\"its machine does not answer\"", gw_ps_member_text(m).text);
        gw_ps_member_leave(server, m);
    }
}
