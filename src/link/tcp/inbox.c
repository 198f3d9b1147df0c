/* Receiving, and finding out who is gone.
 *
 * A peer that leaves says BYE and one that fails says FAIL, after all it has sent before. One that dies says nothing: ZeroMQ tells that
 * its connection broke, or that it answers no heartbeats. That news travels beside the messages, so it becomes final only some time
 * later, when `in` is empty and no BYE has come. */
#include "base/clock.h"
#include "base/error.h"
#include "link/tcp/endpoint.h"
#include "link/tcp/meeting.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The connection on which a peer's messages come has ended: what it had sent, BYE included, is in ZeroMQ's hands, and will be in ours
 * as soon as its thread gets on. */
#define IN_GRACE_SECONDS 0.25
/* Our connection to it has ended, but the other may have messages underway, BYE behind them; a peer that leaves waits 2 s for those. */
#define OUT_GRACE_SECONDS 3.0
#define REDIAL_SECONDS 0.1

/* ---- connections that others made ------------------------------------------------------------------ */

static void set_timer(struct gw_tcp_endpoint *me, double *timer, double seconds)
{
    double at = gw_clock_seconds() + seconds;
    if (*timer == 0 || at < *timer)
        *timer = at;
    if (me->next_at == 0 || at < me->next_at)
        me->next_at = at;
}

/* Reads the news of `in`. */
static void read_in_events(struct gw_tcp_endpoint *me)
{
    struct gw_tcp_event event;
    while (gw_tcp_next_event(me->in_events, &event)) {
        gw_tcp_ended_note(&me->in_ended, me->group->context, &event);
        for (uint32_t r = 0; event.what == ZMQ_EVENT_DISCONNECTED && r < me->group->size; r++)
            if (me->peers[r].in_fd >= 0 && (uint32_t)me->peers[r].in_fd == event.value)
                set_timer(me, &me->peers[r].lost_at, IN_GRACE_SECONDS);
    }
}

/* ---- messages ------------------------------------------------------------------------------------ */

static void garbage(struct gw_tcp_endpoint *me, const struct gw_tcp_envelope *envelope, size_t n_bytes)
{
    char sentence[GW_TCP_TEXT_BYTES];
    snprintf(sentence, sizeof sentence,
             "rank %u (%s) sent what this link does not know: a message of type %u and %zu bytes", envelope->from,
             gw_tcp_place(me->peers[envelope->from].endpoint), envelope->type, n_bytes);
    gw_tcp_peer_gone(me, envelope->from, GW_TCP_FAILED, sentence);
}

static void stranger(struct gw_tcp_endpoint *me, zmq_msg_t *frame)
{
    const char *address = zmq_msg_gets(frame, "Peer-Address");
    gw_tcp_log(me->group, "dropped %zu bytes from %s: no message of this job", zmq_msg_size(frame),
               address ? address : "an unknown address");
}

static void take_hello(struct gw_tcp_endpoint *me, uint32_t from, const uint8_t *body, size_t n_bytes)
{
    struct gw_tcp_peer *peer = &me->peers[from];
    uint64_t session;
    uint32_t nth;
    bool good = gw_tcp_hello_read(body, n_bytes, &session, &nth) && session == me->group->session && nth == me->nth;
    if (!good || (atomic_load(&peer->state) != GW_TCP_AWAITED && peer->in_fd >= 0)) {
        stranger(me, &me->held);
        return;
    }
    read_in_events(me); /* of connections that had its number before, and went */
    peer->in_fd = zmq_msg_get(&me->held, ZMQ_SRCFD);
    if (gw_tcp_has_ended(&me->in_ended, peer->in_fd))
        set_timer(me, &peer->lost_at, IN_GRACE_SECONDS);
    me->n_awaited--;
    pthread_mutex_lock(&me->lock);
    if (atomic_load(&peer->state) == GW_TCP_AWAITED)
        atomic_store(&peer->state, GW_TCP_PRESENT);
    pthread_mutex_unlock(&me->lock);
}

static void take_notice(struct gw_tcp_endpoint *me, const struct gw_tcp_envelope *envelope, const uint8_t *body,
                        size_t n_bytes)
{
    uint32_t from = envelope->from;
    char text[GW_TCP_TEXT_BYTES], sentence[GW_TCP_TEXT_BYTES + 32];
    switch (envelope->type) {
    case GW_TCP_HELLO:
        take_hello(me, from, body, n_bytes);
        return;
    case GW_TCP_BYE:
        if (n_bytes != GW_TCP_BYE_BYTES)
            break;
        gw_tcp_peer_left(me, from, gw_get64(body));
        return;
    case GW_TCP_FAIL:
        gw_tcp_text_read(body, n_bytes, text);
        snprintf(sentence, sizeof sentence, "rank %u failed: %s", from, text);
        gw_tcp_peer_gone(me, from, GW_TCP_FAILED, sentence);
        return;
    }
    garbage(me, envelope, n_bytes);
}

/* Takes what has come until there is a message for the user. *got: there is one. */
static gw_status take(struct gw_tcp_endpoint *me, gw_message *message, bool *got)
{
    *got = false;
    for (;;) {
        if (!me->holding) {
            if (zmq_msg_recv(&me->held, me->in, ZMQ_DONTWAIT) < 0) {
                if (zmq_errno() == EINTR)
                    continue;
                return GW_OK;
            }
            bool part = me->in_parts;
            me->in_parts = zmq_msg_more(&me->held);
            if (part || me->in_parts) { /* ours have one part */
                stranger(me, &me->held);
                continue;
            }
        }
        me->holding = false;
        const uint8_t *bytes = zmq_msg_data(&me->held);
        size_t n_bytes = zmq_msg_size(&me->held);
        struct gw_tcp_envelope envelope = {0};
        if (n_bytes >= GW_MESSAGE_ENVELOPE)
            envelope = gw_tcp_envelope_read(bytes);
        if (n_bytes < GW_MESSAGE_ENVELOPE || envelope.tag != me->tag || envelope.from >= me->group->size ||
            envelope.from == me->group->rank || (me->peers[envelope.from].in_fd < 0 && envelope.type != GW_TCP_HELLO)) {
            stranger(me, &me->held);
            continue;
        }
        bytes += GW_MESSAGE_ENVELOPE;
        n_bytes -= GW_MESSAGE_ENVELOPE;
        if (envelope.type != GW_TCP_DATA) {
            take_notice(me, &envelope, bytes, n_bytes);
            continue;
        }
        void *copy = gw_message_alloc(me->group->context, n_bytes);
        if (!copy) {
            me->holding = true;
            return GW_ERR_MEMORY;
        }
        memcpy(copy, bytes, n_bytes);
        *message = (gw_message){.from = envelope.from, .bytes = copy, .n_bytes = n_bytes};
        *got = true;
        return GW_OK;
    }
}

/* ---- all connections ------------------------------------------------------------------------------- */

static uint32_t rank_at(const struct gw_tcp_endpoint *me, const char *endpoint)
{
    for (uint32_t r = 0; r < me->group->size; r++)
        if (r != me->group->rank && strcmp(me->peers[r].endpoint, endpoint) == 0)
            return r;
    return GW_TCP_NOBODY;
}

/* Who answered that our key is not allowed. */
static void turned_away(struct gw_tcp_endpoint *me, uint32_t rank)
{
    char sentence[GW_TCP_TEXT_BYTES];
    snprintf(sentence, sizeof sentence,
             "rank %u (%s) refused this machine: its key is not among the allowed ones there", rank,
             gw_tcp_place(me->peers[rank].endpoint));
    gw_tcp_peer_gone(me, rank, GW_TCP_LOST, sentence);
}

/* Reads the news of both sockets. shutting: a peer whose connection broke need not get what is left for it. */
static void read_events(struct gw_tcp_endpoint *me, bool shutting)
{
    struct gw_tcp_event event;
    read_in_events(me);
    while (gw_tcp_next_event(me->out_events, &event)) {
        uint32_t r = rank_at(me, event.endpoint);
        if (r == GW_TCP_NOBODY)
            continue;
        if (event.what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED && !me->peers[r].reached) {
            me->peers[r].reached = true;
            me->n_unreached--;
        } else if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
            turned_away(me, r);
        else if (event.what == ZMQ_EVENT_CLOSED)
            set_timer(me, &me->peers[r].redial_at, REDIAL_SECONDS);
        else if (event.what == ZMQ_EVENT_DISCONNECTED && shutting)
            gw_tcp_peer_gone(me, r, GW_TCP_LEFT, "");
        else if (event.what == ZMQ_EVENT_DISCONNECTED)
            set_timer(me, &me->peers[r].lost_at, OUT_GRACE_SECONDS);
    }
}

static void redial(struct gw_tcp_endpoint *me, uint32_t rank)
{
    pthread_mutex_lock(&me->lock);
    gw_status status = atomic_load(&me->closed) ? GW_OK : gw_tcp_dial(me, rank);
    pthread_mutex_unlock(&me->lock);
    if (status < 0)
        gw_tcp_peer_gone(me, rank, GW_TCP_LOST, gw_last_error());
}

/* Does what is due: declares peers lost, and connects again where that failed. */
static void run_timers(struct gw_tcp_endpoint *me)
{
    const double now = gw_clock_seconds();
    if (me->next_at == 0 || now < me->next_at)
        return;
    me->next_at = 0;
    for (uint32_t r = 0; r < me->group->size; r++) {
        struct gw_tcp_peer *peer = &me->peers[r];
        if (peer->lost_at != 0 && peer->lost_at <= now) {
            char sentence[GW_TCP_TEXT_BYTES];
            snprintf(sentence, sizeof sentence, "rank %u (%s) died or lost its connection", r,
                     gw_tcp_place(peer->endpoint));
            gw_tcp_peer_gone(me, r, GW_TCP_LOST, sentence); /* nothing, where it said BYE meanwhile */
            peer->lost_at = 0;
        }
        if (peer->redial_at != 0 && peer->redial_at <= now) {
            peer->redial_at = 0;
            if (atomic_load(&peer->state) <= GW_TCP_FAILED)
                redial(me, r);
        }
        for (int i = 0; i < 2; i++) {
            double at = i ? peer->lost_at : peer->redial_at;
            if (at != 0 && (me->next_at == 0 || at < me->next_at))
                me->next_at = at;
        }
    }
}

/* ---- the user's side --------------------------------------------------------------------------------- */

static bool take_own(struct gw_tcp_endpoint *me, gw_message *message)
{
    pthread_mutex_lock(&me->lock);
    bool got = gw_message_queue_take(&me->own, message);
    pthread_mutex_unlock(&me->lock);
    return got;
}

static gw_status failure(struct gw_tcp_endpoint *me)
{
    gw_status status = GW_OK;
    pthread_mutex_lock(&me->lock);
    if (me->failed_peer != GW_TCP_NOBODY)
        status = gw_fail(GW_ERR_PEER, "%s", me->why);
    pthread_mutex_unlock(&me->lock);
    return status;
}

/* Sleeps until something comes or the time is over, or a timer is due. */
static void sleep_until(struct gw_tcp_endpoint *me, double deadline)
{
    if (me->next_at != 0 && me->next_at < deadline)
        deadline = me->next_at;
    double left = (deadline - gw_clock_seconds()) * 1000;
    long timeout = left <= 0 ? 0 : left < 3600e3 ? (long)left + 1 : 3600000;
    zmq_pollitem_t items[] = {{me->in, 0, ZMQ_POLLIN, 0},
                              {NULL, me->wake, ZMQ_POLLIN, 0},
                              {me->in_events, 0, ZMQ_POLLIN, 0},
                              {me->out_events, 0, ZMQ_POLLIN, 0}};
    zmq_poll(items, 4, timeout);
    uint64_t n;
    if (items[1].revents)
        while (read(me->wake, &n, sizeof n) < 0 && errno == EINTR)
            ;
}

gw_status gw_tcp_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    struct gw_tcp_endpoint *me = self;
    double deadline = 0;
    bool late = timeout_ms == 0, going_to_sleep = false;
    for (;;) {
        bool got;
        if (atomic_load(&me->closed))
            return gw_fail(GW_ERR_CLOSED, "rank %u received on a link that it has closed", me->group->rank);
        if (take_own(me, message))
            return GW_OK;
        got = gw_message_queue_take(&me->early, message);
        if (!got)
            GW_TRY(take(me, message, &got));
        if (got) {
            atomic_fetch_add(&me->peers[message->from].n_taken, 1);
            return GW_OK;
        }
        read_events(me, false);
        run_timers(me);
        GW_TRY(failure(me));
        if (late)
            return gw_fail(GW_ERR_TIMEOUT, "rank %u got no message within %u ms", me->group->rank, timeout_ms);
        if (deadline == 0)
            deadline = gw_clock_seconds() + timeout_ms / 1000.0;
        /* Senders to oneself wake only a sleeper, so the queue is looked at once more after saying that one sleeps. */
        if (going_to_sleep) {
            sleep_until(me, deadline);
            late = gw_clock_seconds() >= deadline; /* then look a last time */
        }
        going_to_sleep = !going_to_sleep;
        atomic_store(&me->sleeping, going_to_sleep);
    }
}

static bool is_met(const void *all, uint32_t rank)
{
    const struct gw_tcp_endpoint *me = all;
    return rank == me->group->rank || (me->peers[rank].in_fd >= 0 && me->peers[rank].reached);
}

gw_status gw_tcp_endpoint_await(struct gw_tcp_endpoint *me, double deadline)
{
    for (;;) {
        gw_message message;
        bool got;
        GW_TRY(take(me, &message, &got));
        if (got) {
            gw_message_queue_put(&me->early, &message);
            continue;
        }
        read_events(me, false);
        run_timers(me);
        GW_TRY(failure(me));
        if (me->n_awaited == 0 && me->n_unreached == 0)
            return GW_OK;
        if (gw_clock_seconds() >= deadline)
            return gw_fail(GW_ERR_TIMEOUT,
                           "%s came to the rendezvous, but rank %u and they did not connect to each other within %u ms",
                           gw_tcp_missing_ranks(me->group->size, is_met, me).text, me->group->rank,
                           me->group->timeout_ms);
        GW_TRY(gw_tcp_go_on(me->group));
        double ask = gw_clock_seconds() + GW_TCP_ASK_SECONDS;
        sleep_until(me, ask < deadline ? ask : deadline);
    }
}

void gw_tcp_discard(struct gw_tcp_endpoint *me)
{
    gw_message message;
    bool got = true;
    while (got && take(me, &message, &got) == GW_OK)
        if (got)
            gw_message_free(message.bytes);
    read_events(me, true);
}
