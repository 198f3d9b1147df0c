/* Receives messages, and finds out which members are gone.
 *
 * A peer that leaves says BYE and one that fails says FAIL, after all it has sent before. A peer that dies says
 * nothing: ZeroMQ tells that its connection broke, or that it answers no heartbeats. ZeroMQ tells this beside the
 * messages, so messages may still come. So the peer counts as lost only some time later, when `in` is empty and no BYE
 * has come. */
#include "link/tcp/inbox.h"
#include "base/clock.h"
#include "base/error.h"
#include "link/tcp/missing.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The connection on which a peer's messages come has ended. ZeroMQ has all that the peer had sent, with its BYE. The
 * endpoint gets it when ZeroMQ's thread has passed it on. The endpoint waits so long for that. */
#define IN_GRACE_SECONDS 0.25
/* The endpoint's own connection to a peer has ended. But messages of the peer may still be on their way, with a BYE
 * behind them. A peer that leaves waits 2 s for these. This is longer. */
#define OUT_GRACE_SECONDS 3.0
#define REDIAL_SECONDS 0.1
#define BEGUN_SECONDS 35.0 /* ZeroMQ ends a handshake within 30 s, and tells so */
/* Another member has told that it lost a member. Messages of the lost member may still be on their way to this
 * endpoint, and perhaps its own FAIL, which tells more. The endpoint waits so long for them. */
#define NEWS_GRACE_SECONDS 0.25
#define OTHERS_SECONDS 0.01 /* between two looks at other links while members meet */

/* ---- connections that others made ------------------------------------------------------------------ */

static void set_timer(struct gw_tcp_endpoint *me, double *timer, double seconds)
{
    double at = gw_clock_seconds() + seconds;
    if (*timer == 0 || at < *timer)
        *timer = at;
    gw_tcp_look_at(me, *timer);
}

/* Keeps a copy of the connection's descriptor, which stays open when ZeroMQ closes its own. The copy shows whether the
 * peer has closed the connection. If so, the peer died. Else the peer does not answer. Without a free descriptor there
 * is no copy, and the endpoint cannot tell. */
static void keep(struct gw_tcp_peer *peer)
{
    gw_tcp_let_go(peer);
    if (peer->in_fd >= 0)
        peer->in_kept = fcntl(peer->in_fd, F_DUPFD_CLOEXEC, 0);
}

void gw_tcp_let_go(struct gw_tcp_peer *peer)
{
    if (peer->in_kept >= 0)
        close(peer->in_kept);
    peer->in_kept = -1;
}

/* The connection on which a peer's messages come has ended. If only this side has ended it, the peer did not answer. */
static void in_ended(struct gw_tcp_endpoint *me, struct gw_tcp_peer *peer)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    peer->silent = peer->in_kept >= 0 && getsockopt(peer->in_kept, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 &&
                   info.tcpi_state == TCP_ESTABLISHED;
    set_timer(me, &peer->lost_at, IN_GRACE_SECONDS);
}

/* Reads the events of `in`. */
static void read_in_events(struct gw_tcp_endpoint *me)
{
    struct gw_zmq_event event;
    while (gw_zmq_door_event(me->door, &event)) {
        gw_zmq_ended_note(&me->in_ended, me->group->context, &event);
        for (uint32_t r = 0; event.what == ZMQ_EVENT_DISCONNECTED && r < me->group->size; r++)
            if (me->peers[r].in_fd >= 0 && (uint32_t)me->peers[r].in_fd == event.value)
                in_ended(me, &me->peers[r]);
    }
}

/* ---- messages ------------------------------------------------------------------------------------ */

static void garbage(struct gw_tcp_endpoint *me, const struct gw_tcp_envelope *envelope, size_t n_bytes)
{
    char sentence[GW_TCP_TEXT_BYTES];
    snprintf(sentence, sizeof sentence,
             "rank %u (%s) sent what this link does not know: a message of type %u and %zu bytes", envelope->from,
             gw_zmq_place(me->peers[envelope->from].endpoint), envelope->type, n_bytes);
    gw_tcp_peer_gone(me, envelope->from, GW_TCP_FAILED, sentence);
}

static void stranger(struct gw_tcp_endpoint *me, zmq_msg_t *frame)
{
    const char *address = zmq_msg_gets(frame, "Peer-Address");
    gw_zmq_log(&me->group->net.log, "dropped address=%s bytes=%zu reason=\"this is no message of the job\"",
               address ? address : "?", zmq_msg_size(frame));
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
    read_in_events(me); /* events of earlier connections that had the same descriptor */
    peer->in_fd = zmq_msg_get(&me->held, ZMQ_SRCFD);
    keep(peer);
    if (gw_zmq_has_ended(&me->in_ended, peer->in_fd))
        in_ended(me, peer);
    gw_zmq_door_admit(me->door, peer->in_fd);
    me->n_awaited--;
    pthread_mutex_lock(&me->lock);
    if (atomic_load(&peer->state) == GW_TCP_AWAITED)
        atomic_store(&peer->state, GW_TCP_PRESENT);
    pthread_mutex_unlock(&me->lock);
}

/* Another member tells that it lost a member. Only the first such news counts. */
static void take_news(struct gw_tcp_endpoint *me, const uint8_t *body)
{
    const uint32_t rank = gw_get32(body);
    if (me->news_at != 0 || rank >= me->group->size)
        return;
    me->news_of = rank;
    gw_tcp_text_read(body + 4, GW_TCP_TEXT_BYTES, me->news);
    set_timer(me, &me->news_at, NEWS_GRACE_SECONDS);
}

/* The news counts now. It must be reported before anything that follows from it. */
static void settle_news(struct gw_tcp_endpoint *me)
{
    if (me->news_at != 0)
        gw_tcp_peer_told_of(me, me->news_of, me->news);
    me->news_at = 0;
}

static void take_notice(struct gw_tcp_endpoint *me, const struct gw_tcp_envelope *envelope, const uint8_t *body,
                        size_t n_bytes)
{
    uint32_t from = envelope->from;
    char text[GW_TCP_TEXT_BYTES];
    switch (envelope->type) {
    case GW_TCP_HELLO:
        take_hello(me, from, body, n_bytes);
        return;
    case GW_TCP_BYE:
        if (n_bytes != GW_TCP_BYE_BYTES)
            break;
        settle_news(me);
        gw_tcp_text_read(body + 8, GW_TCP_TEXT_BYTES, text);
        gw_tcp_peer_left(me, from, gw_get64(body), text);
        return;
    case GW_TCP_FAIL:
        if (from != me->news_of)
            settle_news(me);
        gw_tcp_text_read(body, n_bytes, text);
        gw_tcp_peer_gone(me, from, GW_TCP_FAILED, text);
        return;
    case GW_TCP_NEWS:
        if (n_bytes != GW_TCP_NEWS_BYTES)
            break;
        take_news(me, body);
        return;
    }
    garbage(me, envelope, n_bytes);
}

/* Gives back the frame that a large message came in. */
static void release(void *room, void *user)
{
    (void)user;
    zmq_msg_t frame;
    zmq_msg_init(&frame);
    zmq_msg_move(&frame, room);
    zmq_msg_close(&frame);
}

/* Makes a message of the frame that is held. The frame itself moves into the room before the bytes, and lives until the
 * message is freed. */
static void *keep_large(struct gw_tcp_endpoint *me)
{
    _Static_assert(sizeof(zmq_msg_t) + GW_MESSAGE_HEAD <= GW_MESSAGE_ROOM, "the frame must fit before the node");
    uint8_t *room = zmq_msg_data(&me->held), *bytes = room + GW_MESSAGE_ROOM;
    zmq_msg_init((zmq_msg_t *)room);
    zmq_msg_move((zmq_msg_t *)room, &me->held);
    *gw_message_node_of(bytes) = (struct gw_message_node){.allocator = {.free = release}, .foreign = true};
    return bytes;
}

/* Takes what has come, until there is a message for the user. *got: there is one. */
static gw_status take(struct gw_tcp_endpoint *me, gw_message *message, bool *got)
{
    *got = false;
    for (;;) {
        if (!me->holding) {
            if (zmq_msg_recv(&me->held, me->in, ZMQ_DONTWAIT) < 0) {
                if (zmq_errno() == EINTR)
                    continue;
                if (!me->met)
                    gw_zmq_door_empty(me->door);
                return GW_OK;
            }
            if (!me->met)
                gw_zmq_door_took(me->door, zmq_msg_get(&me->held, ZMQ_SRCFD), zmq_msg_size(&me->held), 1);
            bool part = me->in_parts;
            me->in_parts = zmq_msg_more(&me->held);
            if (part || me->in_parts) { /* our messages have one part */
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
        const bool large = envelope.type == GW_TCP_LARGE && n_bytes >= GW_MESSAGE_ROOM;
        const size_t n_before = large ? GW_MESSAGE_ROOM : GW_MESSAGE_ENVELOPE;
        bytes += n_before;
        n_bytes -= n_before;
        if (large && (uintptr_t)bytes % 8 == 0) {
            *message = (gw_message){.from = envelope.from, .bytes = keep_large(me), .n_bytes = n_bytes};
            *got = true;
            return GW_OK;
        }
        if (!large && envelope.type != GW_TCP_DATA) {
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

/* A peer answered that our key is not allowed. */
static void turned_away(struct gw_tcp_endpoint *me, uint32_t rank)
{
    char sentence[GW_TCP_TEXT_BYTES];
    snprintf(sentence, sizeof sentence,
             "rank %u (%s) refused this machine, that of rank %u: its key is not among the allowed ones there", rank,
             gw_zmq_place(me->peers[rank].endpoint), me->group->rank);
    gw_tcp_peer_gone(me, rank, GW_TCP_LOST, sentence);
}

/* Reads the events of both sockets. shutting: this endpoint ends, so it drops what was to go to a peer whose connection
 * broke, or that could not be connected to. */
static void read_events(struct gw_tcp_endpoint *me, bool shutting)
{
    struct gw_zmq_event event;
    read_in_events(me);
    while (gw_zmq_next_event(me->out_events, &event)) {
        uint32_t r = rank_at(me, event.endpoint);
        if (r == GW_TCP_NOBODY)
            continue;
        if (event.what == ZMQ_EVENT_HANDSHAKE_SUCCEEDED && !me->peers[r].reached) {
            me->peers[r].reached = true;
            me->peers[r].stale_at = 0;
            me->n_unreached--;
        } else if (event.what == ZMQ_EVENT_CONNECT_DELAYED || event.what == ZMQ_EVENT_CONNECTED)
            me->peers[r].stale_at = me->peers[r].reached ? 0 : gw_clock_seconds() + BEGUN_SECONDS;
        else if (event.what == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH)
            turned_away(me, r);
        else if (event.what == ZMQ_EVENT_CLOSED && shutting)
            gw_tcp_peer_gone(me, r, GW_TCP_LEFT, "");
        else if (event.what == ZMQ_EVENT_CLOSED)
            set_timer(me, &me->peers[r].redial_at, REDIAL_SECONDS);
        else if (event.what == ZMQ_EVENT_DISCONNECTED && shutting)
            gw_tcp_peer_gone(me, r, GW_TCP_LEFT, "");
        else if (event.what == ZMQ_EVENT_DISCONNECTED && !me->peers[r].reached)
            set_timer(me, &me->peers[r].redial_at, REDIAL_SECONDS); /* strangers may have taken its room there */
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

/* Does what is due: declares peers lost, and connects again if an attempt failed. */
static void run_timers(struct gw_tcp_endpoint *me)
{
    const double now = gw_clock_seconds();
    if (me->next_at == 0 || now < me->next_at)
        return;
    me->next_at = 0;
    if (me->news_at != 0 && me->news_at <= now)
        settle_news(me);
    me->next_at = me->news_at;
    for (uint32_t r = 0; r < me->group->size; r++) {
        struct gw_tcp_peer *peer = &me->peers[r];
        if (peer->lost_at != 0 && peer->lost_at <= now) {
            char sentence[GW_TCP_TEXT_BYTES];
            snprintf(sentence, sizeof sentence,
                     peer->silent ? "rank %u (%s) is silent: it answers rank %u no more"
                                  : "rank %u (%s) died or lost its connection to rank %u",
                     r, gw_zmq_place(peer->endpoint), me->group->rank);
            gw_tcp_peer_gone(me, r, GW_TCP_LOST, sentence); /* does nothing if the peer has said BYE meanwhile */
            gw_tcp_let_go(peer);
            peer->lost_at = 0;
        }
        if ((peer->redial_at != 0 && peer->redial_at <= now) || (peer->stale_at != 0 && peer->stale_at <= now)) {
            peer->redial_at = peer->stale_at = 0;
            if (!peer->reached && atomic_load(&peer->state) <= GW_TCP_FAILED)
                redial(me, r);
        }
        gw_tcp_look_at(me, peer->lost_at);
        gw_tcp_look_at(me, peer->redial_at);
        gw_tcp_look_at(me, peer->stale_at);
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

/* Sleeps until something comes, the deadline passes, or a timer is due. It waits for ZeroMQ's descriptors of the
 * sockets. That is enough, because every socket was found empty after its descriptor was last readable. zmq_poll would
 * ask each socket twice more, with a system call each time. */
static void sleep_until(struct gw_tcp_endpoint *me, double deadline)
{
    if (me->next_at != 0 && me->next_at < deadline)
        deadline = me->next_at;
    double left = (deadline - gw_clock_seconds()) * 1000;
    int timeout = left <= 0 ? 0 : left < 3600e3 ? (int)left + 1 : 3600000;
    struct pollfd items[] = {{me->in_ready, POLLIN, 0},
                             {me->wake, POLLIN, 0},
                             {gw_zmq_door_fd(me->door), POLLIN, 0},
                             {me->events_ready, POLLIN, 0}};
    poll(items, 4, timeout);
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
    GW_TRY(gw_process_check(me->group->made_in, GW_TCP_THIS));
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
        if (!going_to_sleep) /* a thread that sleeps wakes for events anyway */
            read_events(me, false);
        run_timers(me);
        GW_TRY(failure(me));
        if (late)
            return gw_fail(GW_ERR_TIMEOUT, "rank %u got no message within %u ms", me->group->rank, timeout_ms);
        if (deadline == 0)
            deadline = gw_clock_seconds() + timeout_ms / 1000.0;
        /* A thread that sends to its own rank wakes the receiver only if that sleeps. So after the receiver has set the
         * mark that it sleeps, it looks at the queue once more. */
        if (going_to_sleep) {
            sleep_until(me, deadline);
            late = gw_clock_seconds() >= deadline; /* then the loop looks a last time */
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

/* Takes all messages that come before all members have said HELLO. */
static gw_status take_early(struct gw_tcp_endpoint *me)
{
    gw_message message;
    for (bool got = true; got;) {
        GW_TRY(take(me, &message, &got));
        if (got)
            gw_message_queue_put(&me->early, &message);
    }
    read_events(me, false);
    run_timers(me);
    return GW_OK;
}

gw_status gw_tcp_endpoint_await(struct gw_tcp_endpoint *me, double deadline)
{
    const struct gw_tcp_group *group = me->group;
    const double nap = me->nth + 1 < group->n_links ? OTHERS_SECONDS : GW_TCP_ASK_SECONDS;
    for (;;) {
        for (uint32_t l = me->nth; l < group->n_links; l++) /* meanwhile members also say HELLO on the later links */
            GW_TRY(take_early(group->endpoints[l]));
        GW_TRY(failure(me));
        if (me->n_awaited == 0 && me->n_unreached == 0) {
            gw_zmq_door_shut(me->door);
            me->met = true;
            return GW_OK;
        }
        if (gw_clock_seconds() >= deadline)
            return gw_fail(GW_ERR_TIMEOUT,
                           "%s came to the rendezvous, but rank %u and they did not connect to each other within %u ms",
                           gw_tcp_missing_ranks(me->group->size, is_met, me).text, me->group->rank,
                           me->group->timeout_ms);
        GW_TRY(gw_tcp_go_on(me->group));
        double ask = gw_clock_seconds() + nap;
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
    for (uint32_t r = 0; r < me->group->size; r++)
        if (me->peers[r].redial_at != 0) { /* the last attempt to connect was refused, and there is no other */
            me->peers[r].redial_at = 0;
            gw_tcp_peer_gone(me, r, GW_TCP_LEFT, "");
        }
}
