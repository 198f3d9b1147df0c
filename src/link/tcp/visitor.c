/* The meeting as the other ranks see it: they say JOIN to rank 0, again and again, until it has the table for them.
 * Rank 0 answers every JOIN. So the others notice that rank 0 is gone: its connection ends, or, if its machine fell
 * silent, no answer comes. */
#include "link/tcp/visitor.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/meeting.h"
#include "zmq/events.h"
#include "zmq/socket.h"

#include <stdio.h>

/* When the connection to rank 0 has ended, ZeroMQ may still hold messages that rank 0 sent before, perhaps the table.
 * The visitor waits this long for ZeroMQ's thread to hand them over. */
#define GRACE_SECONDS 0.25
/* If rank 0 has been silent for this long at the deadline, the sentence names rank 0. */
#define UNANSWERED_SECONDS (4 * GW_TCP_JOIN_SECONDS)
/* One side has keys and the other has none: after so many times the visitor gives up. Once may be an accident, because
 * another process may have been at the address for a moment. */
#define MOST_MISMATCHES 4

struct visitor {
    struct gw_tcp_group *group;
    void *socket, *events;
    const char *endpoint; /* of rank 0 */
    uint8_t *join;
    size_t join_bytes;
    char waiting_for[GW_TCP_TEXT_BYTES]; /* what rank 0 said last; "": it has not answered */
    double heard_at;                     /* when that was */
    double lost_at;                      /* when the end of the connection is final; 0: it has not ended */
    int n_mismatches;                    /* one side has keys, and the other has none */
    bool is_connected;                   /* ZeroMQ has a connection to rank 0, and both have said how they speak */
    bool dial_again, turned_away;
};

/* Handles a message of rank 0. *over: it was the table. */
static gw_status hear(struct visitor *visitor, const void *bytes, size_t n_bytes, bool *over)
{
    struct gw_tcp_group *group = visitor->group;
    uint16_t version;
    gw_status status;
    char text[GW_TCP_TEXT_BYTES];
    struct gw_tcp_table table;
    switch (gw_tcp_kind_of(bytes, n_bytes, &version)) {
    case GW_TCP_WAIT:
        if (gw_tcp_wait_read(bytes, n_bytes, visitor->waiting_for))
            visitor->heard_at = gw_clock_seconds();
        return GW_OK;
    case GW_TCP_REFUSE:
        if (gw_tcp_refuse_read(bytes, n_bytes, &status, text))
            return gw_fail(status, "%s", text);
        break;
    case GW_TCP_TABLE:
        if (gw_tcp_table_read(bytes, n_bytes, &table) && table.size == group->size && table.n_links == group->n_links &&
            table.keyed == (group->net.keys != NULL)) {
            gw_tcp_adopt(group, &table);
            *over = true;
            return GW_OK;
        }
        break;
    default:
        break;
    }
    gw_zmq_log(&group->net.log, "dropped address=%s bytes=%zu reason=\"rank 0 would not say this\"",
               gw_zmq_place(visitor->endpoint), n_bytes);
    return GW_OK;
}

static gw_status hear_all(struct visitor *visitor, bool *over)
{
    gw_status status = GW_OK;
    for (bool got = true; got && status == GW_OK && !*over;) {
        zmq_msg_t part;
        bool whole = false;
        got = gw_tcp_take_parts(visitor->socket, &part, 1, &whole);
        if (got && whole)
            status = hear(visitor, zmq_msg_data(&part), zmq_msg_size(&part), over);
        zmq_msg_close(&part);
    }
    return status;
}

static void read_events(struct visitor *visitor)
{
    struct gw_zmq_event event;
    while (gw_zmq_next_event(visitor->events, &event)) {
        if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
            visitor->turned_away = true;
        } else if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) {
            visitor->n_mismatches += event.value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH;
            visitor->dial_again = true; /* after this ZeroMQ does not connect again by itself */
        } else if (event.what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
            /* if nothing was heard on the connection before this one, that one was given up for its room */
            visitor->lost_at = visitor->waiting_for[0] ? visitor->lost_at : 0;
            visitor->is_connected = true;
        } else if (event.what == ZMQ_EVENT_DISCONNECTED) {
            /* nothing can have come on a connection that was not ready, and ZeroMQ tries again */
            if (visitor->is_connected && visitor->lost_at == 0)
                visitor->lost_at = gw_clock_seconds() + GRACE_SECONDS;
            visitor->is_connected = false;
        }
    }
}

static gw_status too_late(const struct visitor *visitor)
{
    const struct gw_tcp_group *group = visitor->group;
    if (visitor->waiting_for[0])
        return gw_fail(GW_ERR_TIMEOUT, "%s did not come to the rendezvous at %s within %u ms", visitor->waiting_for,
                       gw_zmq_place(visitor->endpoint), group->timeout_ms);
    if (group->net.keys)
        return gw_fail(GW_ERR_TIMEOUT,
                       "rank 0 did not answer at %s within %u ms; is it there, has it keys, and is its key that of "
                       "%s/rendezvous.key?",
                       gw_zmq_place(visitor->endpoint), group->timeout_ms, group->net.keys->folder);
    return gw_fail(GW_ERR_TIMEOUT,
                   "rank 0 did not answer at %s within %u ms; is it there, and without keys, as this rank is?",
                   gw_zmq_place(visitor->endpoint), group->timeout_ms);
}

/* Looks whether the meeting has failed, and returns the error. */
static gw_status look(struct visitor *visitor, double now, double deadline)
{
    const struct gw_tcp_group *group = visitor->group;
    const char *place = gw_zmq_place(visitor->endpoint);
    GW_TRY(gw_tcp_go_on(group));
    if (visitor->turned_away)
        return gw_fail(GW_ERR_PEER, "rank 0 (%s) refused this machine: its key %s is not among the allowed ones there",
                       place, group->net.keys ? group->net.keys->public_key : "");
    if (visitor->n_mismatches >= MOST_MISMATCHES || (visitor->n_mismatches > 0 && now >= deadline))
        return gw_fail(GW_ERR_PEER,
                       "rank %u has %skeys, and rank 0 (%s) has %s; give keys "
                       "(--keys DIR) to all members or to none",
                       group->rank, group->net.keys ? "" : "no ", place, group->net.keys ? "none" : "some");
    if (visitor->lost_at != 0 && now >= visitor->lost_at) {
        visitor->lost_at = 0; /* a peer that never answered was not rank 0, or rank 0 may be started again */
        if (visitor->waiting_for[0])
            return gw_fail(GW_ERR_PEER, "rank 0 (%s) died or lost its connection before all members had met", place);
    }
    double silence = visitor->waiting_for[0] ? now - visitor->heard_at : 0;
    if (silence >= group->timeout_ms / 2000.0 || (now >= deadline && silence >= UNANSWERED_SECONDS))
        return gw_fail(GW_ERR_PEER,
                       "rank 0 (%s) answers no more: it said nothing for %.1f s, and not all members had met", place,
                       silence);
    return now >= deadline ? too_late(visitor) : GW_OK;
}

static gw_status dial(struct visitor *visitor)
{
    return gw_zmq_connect(visitor->socket, visitor->endpoint,
                          visitor->group->net.keys ? visitor->group->net.keys->rendezvous : NULL);
}

static gw_status knock(struct visitor *visitor, double deadline)
{
    double again = 0;
    for (bool over = false; !over;) {
        double now = gw_clock_seconds();
        GW_TRY(look(visitor, now, deadline));
        if (now >= again && visitor->dial_again) {
            zmq_disconnect(visitor->socket, visitor->endpoint);
            GW_TRY(dial(visitor));
            visitor->dial_again = false;
        }
        if (now >= again) {
            zmq_send(visitor->socket, visitor->join, visitor->join_bytes, ZMQ_DONTWAIT);
            again = now + GW_TCP_JOIN_SECONDS;
        }
        double until = again < deadline ? again : deadline;
        gw_tcp_meeting_sleep(visitor->socket, visitor->events, -1,
                             visitor->lost_at != 0 && visitor->lost_at < until ? visitor->lost_at : until);
        read_events(visitor);
        GW_TRY(hear_all(visitor, &over));
    }
    return GW_OK;
}

static gw_status open_visit(struct visitor *visitor)
{
    struct gw_tcp_group *group = visitor->group;
    const int news = ZMQ_EVENT_HANDSHAKE_FAILED_AUTH | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                     ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;
    visitor->socket = gw_zmq_socket_new(&group->net, ZMQ_DEALER, false);
    if (!visitor->socket)
        return GW_ERR_SYSTEM;
    GW_TRY(gw_zmq_monitor(group->net.zmq, visitor->socket, "visit", news, &visitor->events));
    GW_TRY(gw_zmq_set_int(visitor->socket, ZMQ_RECONNECT_IVL, 50));
    GW_TRY(gw_zmq_set_int(visitor->socket, ZMQ_RECONNECT_IVL_MAX, 1000));
    const int64_t longest = (int64_t)(GW_TCP_TABLE_HEAD + group->size * gw_tcp_contact_bound(group->n_links, true));
    const int64_t least = GW_TCP_TEXT_MESSAGE_BYTES;
    zmq_setsockopt(visitor->socket, ZMQ_MAXMSGSIZE, longest > least ? &longest : &least, sizeof longest);
    return dial(visitor);
}

gw_status gw_tcp_visit(struct gw_tcp_group *group, const struct gw_zmq_address *rendezvous,
                       char (*endpoints)[GW_ZMQ_ENDPOINT_BYTES], double deadline)
{
    const struct gw_tcp_join join = {.keyed = group->net.keys != NULL,
                                     .rank = group->rank,
                                     .size = group->size,
                                     .n_links = group->n_links};
    struct visitor visitor = {.group = group, .endpoint = rendezvous->endpoint};
    visitor.join = gw_alloc(group->context, GW_TCP_JOIN_HEAD + gw_tcp_contact_bound(group->n_links, join.keyed), 1);
    if (!visitor.join)
        return GW_ERR_MEMORY;
    visitor.join_bytes =
        (size_t)(gw_tcp_write_contact(group, gw_tcp_join_write(visitor.join, &join), endpoints) - visitor.join);
    gw_status status = open_visit(&visitor);
    if (status == GW_OK)
        status = knock(&visitor, deadline);
    gw_zmq_close_monitored(&visitor.socket, &visitor.events);
    gw_free(group->context, visitor.join);
    return status;
}
