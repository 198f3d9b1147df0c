/* Sends the messages of one rank's endpoint of the tcp link, and tells the others when this member leaves or fails.
 * inbox.c receives. */
#include "link/tcp/endpoint.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/last_words.h"
#include "zmq/socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* from this size on, the room before the bytes is sent, too. It adds 0.2 %, and saves the receiver a copy */
#define LARGE_BYTES ((size_t)64 << 10)
/* ZeroMQ drops an attempt to connect without a word if no descriptor is free. So an attempt waits for a free one.
 * Another thread may still take that one. So if ZeroMQ has told nothing of an attempt for STALE_SECONDS, it is made
 * again. This is long, because a slow machine may not have begun the attempt yet. If both were made, the peer would
 * hear the first one, and see it end. */
#define NO_ROOM_SECONDS 0.1
#define STALE_SECONDS 10.0
#define ID_BYTES 6 /* a peer's routing id: 'r', attempt, rank. Ids that begin with 0 are ZeroMQ's own */

static void peer_id(const struct gw_tcp_endpoint *me, uint32_t rank, uint8_t id[ID_BYTES])
{
    id[0] = 'r';
    id[1] = me->peers[rank].attempt;
    gw_put32(id + 2, rank);
}

static void wake(struct gw_tcp_endpoint *me)
{
    const uint64_t one = 1;
    while (write(me->wake, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

/* ---- sending ------------------------------------------------------------------------------------- */

/* Is called when ZeroMQ is done with a frame. ZeroMQ's own threads call this. */
static void message_left(void *data, void *hint)
{
    struct gw_tcp_endpoint *me = hint;
    gw_message_free((uint8_t *)data + GW_MESSAGE_ENVELOPE);
    atomic_fetch_sub(&me->n_outstanding, 1);
}

static void large_left(void *data, void *hint)
{
    struct gw_tcp_endpoint *me = hint;
    uint8_t *room = data;
    memcpy(room + GW_MESSAGE_ROOM - GW_MESSAGE_HEAD, room - GW_MESSAGE_HEAD, sizeof(struct gw_message_node));
    gw_message_free(room + GW_MESSAGE_ROOM);
    atomic_fetch_sub(&me->n_outstanding, 1);
}

static void notice_left(void *data, void *hint)
{
    struct gw_tcp_endpoint *me = hint;
    (void)data;
    atomic_fetch_sub(&me->n_outstanding, 1);
}

/* Makes a frame of bytes that stay where they are. It counts as outstanding until ZeroMQ has sent or dropped it, and
 * then calls `left`. So shut waits for it, and drops it if its peer has ended meanwhile. false: there is no memory, and
 * `left` was called. */
static bool lend(struct gw_tcp_endpoint *me, void *bytes, size_t n_bytes, zmq_free_fn *left, zmq_msg_t *frame)
{
    atomic_fetch_add(&me->n_outstanding, 1);
    if (zmq_msg_init_data(frame, bytes, n_bytes, left, me) == 0)
        return true;
    left(bytes, me);
    return false;
}

/* Sends the frame to one peer, and leaves an empty frame. false: there is no connection to the peer any more. The lock
 * must be held. */
static bool put_frame(struct gw_tcp_endpoint *me, uint32_t rank, zmq_msg_t *frame)
{
    uint8_t id[ID_BYTES];
    peer_id(me, rank, id);
    int sent;
    do
        sent = zmq_send(me->out, id, ID_BYTES, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    while (sent < 0 && zmq_errno() == EINTR);
    if (sent < 0)
        return false;
    do
        sent = zmq_msg_send(frame, me->out, ZMQ_DONTWAIT);
    while (sent < 0 && zmq_errno() == EINTR);
    return sent >= 0;
}

/* Sends a frame that goes to several peers to one of them. The bytes are shared, not copied. The lock must be held. */
static bool put_shared(struct gw_tcp_endpoint *me, uint32_t rank, zmq_msg_t *frame)
{
    zmq_msg_t shared;
    zmq_msg_init(&shared);
    zmq_msg_copy(&shared, frame);
    bool sent = put_frame(me, rank, &shared);
    zmq_msg_close(&shared);
    return sent;
}

/* owed: the peer must not leave before it has received the message. */
static bool count_sent(struct gw_tcp_endpoint *me, uint32_t rank, bool sent, bool owed)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    peer->n_sent += sent;
    if (sent && owed)
        peer->n_owed = peer->n_sent;
    return sent;
}

/* Why this endpoint cannot send to a peer, as a status with its sentence. GW_OK: it can. The lock must be held. */
static gw_status why_not(const struct gw_tcp_endpoint *me, uint32_t rank)
{
    const struct gw_tcp_peer *peer = &me->peers[rank];
    switch (atomic_load(&peer->state)) {
    case GW_TCP_LEFT:
        if (peer->left_because)
            return gw_fail(GW_ERR_PEER, "%s", me->left_why);
        return gw_fail(GW_ERR_PEER, "rank %u left the link", rank);
    case GW_TCP_FAILED:
    case GW_TCP_LOST:
        if (me->failed_peer == rank)
            return gw_fail(GW_ERR_PEER, "%s", me->why);
        return gw_fail(GW_ERR_PEER, "rank %u (%s) failed or died", rank, gw_zmq_place(peer->endpoint));
    }
    return gw_fail(GW_ERR_PEER, "rank %u (%s) died, or lost its connection to rank %u, or left the link", rank,
                   gw_zmq_place(peer->endpoint), me->group->rank);
}

static bool is_there(const struct gw_tcp_endpoint *me, uint32_t rank)
{
    return atomic_load_explicit(&me->peers[rank].state, memory_order_relaxed) <= GW_TCP_PRESENT;
}

static gw_status refuse(void *bytes, gw_status status)
{
    gw_message_free(bytes);
    return status;
}

/* Writes the envelope, and makes a frame of a message. It owns the bytes, also if it fails. */
static gw_status make_frame(struct gw_tcp_endpoint *me, void *bytes, size_t n_bytes, zmq_msg_t *frame)
{
    if (n_bytes > (size_t)GW_TCP_MOST_BYTES - GW_MESSAGE_ROOM)
        return refuse(bytes,
                      gw_fail(GW_ERR_ARGUMENT, "a message of %zu bytes; the tcp link takes 8 GiB at most", n_bytes));
    const bool large = n_bytes >= LARGE_BYTES;
    const struct gw_tcp_envelope envelope = {.tag = me->tag,
                                             .from = me->group->rank,
                                             .type = large ? GW_TCP_LARGE : GW_TCP_DATA};
    const size_t n_before = large ? GW_MESSAGE_ROOM : GW_MESSAGE_ENVELOPE;
    if (large && gw_message_node_of(bytes)->foreign) {
        void *copy = gw_message_alloc(me->group->context, n_bytes);
        if (copy)
            memcpy(copy, bytes, n_bytes);
        gw_message_free(bytes);
        if (!(bytes = copy))
            return GW_ERR_MEMORY;
    }
    uint8_t *start = (uint8_t *)bytes - n_before;
    if (large) {
        memcpy(start - GW_MESSAGE_HEAD, gw_message_node_of(bytes), sizeof(struct gw_message_node));
        memset(start, 0, n_before);
    }
    gw_tcp_envelope_write(start, &envelope);
    if (lend(me, start, n_before + n_bytes, large ? large_left : message_left, frame))
        return GW_OK;
    return gw_fail(GW_ERR_MEMORY, "no memory for a message of %zu bytes", n_bytes);
}

static gw_status send_to_self(struct gw_tcp_endpoint *me, void *bytes, size_t n_bytes)
{
    const gw_message message = {.from = me->group->rank, .bytes = bytes, .n_bytes = n_bytes};
    pthread_mutex_lock(&me->lock);
    gw_message_queue_put(&me->own, &message);
    pthread_mutex_unlock(&me->lock);
    if (atomic_exchange(&me->sleeping, false))
        wake(me);
    return GW_OK;
}

static gw_status closed_here(const struct gw_tcp_endpoint *me)
{
    return gw_fail(GW_ERR_CLOSED, "rank %u sent on a link that it has closed", me->group->rank);
}

/* Queues are never full, so this waits at most for another thread's send. */
gw_status gw_tcp_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct gw_tcp_endpoint *me = self;
    const struct gw_tcp_group *group = me->group;
    (void)timeout_ms;
    if (!gw_process_is(group->made_in))
        return refuse(bytes, gw_process_check(group->made_in, GW_TCP_THIS));
    if (to >= group->size)
        return refuse(bytes, gw_fail(GW_ERR_ARGUMENT, "rank %u sent to rank %u; ranks are 0 to %u", group->rank, to,
                                     group->size - 1));
    if (atomic_load(&me->closed))
        return refuse(bytes, closed_here(me));
    if (to == group->rank)
        return send_to_self(me, bytes, n_bytes);
    zmq_msg_t frame;
    const bool owed = !gw_message_node_of(bytes)->farewell;
    GW_TRY(make_frame(me, bytes, n_bytes, &frame));
    gw_status status = GW_OK;
    pthread_mutex_lock(&me->lock);
    const bool sent = !atomic_load(&me->closed) && is_there(me, to) && put_frame(me, to, &frame);
    if (!count_sent(me, to, sent, owed)) /* if this endpoint is closed, its BYE has already been sent */
        status = atomic_load(&me->closed) ? closed_here(me) : why_not(me, to);
    pthread_mutex_unlock(&me->lock);
    zmq_msg_close(&frame);
    return status;
}

gw_status gw_tcp_send_all(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct gw_tcp_endpoint *me = self;
    const struct gw_tcp_group *group = me->group;
    (void)timeout_ms;
    if (!gw_process_is(group->made_in))
        return refuse(bytes, gw_process_check(group->made_in, GW_TCP_THIS));
    if (atomic_load(&me->closed))
        return refuse(bytes, closed_here(me));
    zmq_msg_t frame;
    GW_TRY(make_frame(me, bytes, n_bytes, &frame));
    gw_status status = GW_OK;
    pthread_mutex_lock(&me->lock);
    if (atomic_load(&me->closed))
        status = closed_here(me);
    for (uint32_t r = 0; r < group->size && status != GW_ERR_CLOSED; r++)
        if (r != group->rank && !(is_there(me, r) && count_sent(me, r, put_shared(me, r, &frame), true)))
            status = why_not(me, r);
    pthread_mutex_unlock(&me->lock);
    zmq_msg_close(&frame);
    return status;
}

/* ---- notices --------------------------------------------------------------------------------------- */

gw_status gw_tcp_notice_make(struct gw_tcp_endpoint *me)
{
    struct gw_tcp_notice *notice = &me->fail;
    notice->ready = lend(me, notice->bytes, sizeof notice->bytes, notice_left, &notice->frame);
    if (notice->ready)
        return GW_OK;
    return gw_fail(GW_ERR_MEMORY, "no memory for a notice of the tcp link");
}

void gw_tcp_notice_drop(struct gw_tcp_endpoint *me)
{
    if (me->fail.ready)
        zmq_msg_close(&me->fail.frame);
    me->fail.ready = false;
}

/* True if a peer is to hear a notice. The lock must be held. */
static bool hears(const struct gw_tcp_endpoint *me, uint32_t rank)
{
    const struct gw_tcp_peer *peer = &me->peers[rank];
    return rank != me->group->rank && peer->attempt && atomic_load(&peer->state) <= GW_TCP_FAILED;
}

/* Tells all peers that are still there that this member failed. It does so only once. The lock must be held. */
static void say_fail(struct gw_tcp_endpoint *me, gw_status status, const char *why)
{
    const struct gw_tcp_envelope envelope = {.tag = me->tag, .from = me->group->rank, .type = GW_TCP_FAIL};
    if (!me->fail.ready || atomic_load(&me->closed))
        return;
    gw_tcp_envelope_write(me->fail.bytes, &envelope);
    gw_link_tell_failure((char *)me->fail.bytes + GW_MESSAGE_ENVELOPE, GW_TCP_TEXT_BYTES, me->group->rank, status, why);
    for (uint32_t r = 0; r < me->group->size; r++)
        if (hears(me, r))
            put_shared(me, r, &me->fail.frame);
    gw_tcp_notice_drop(me);
}

/* Tells the other peers that this member has lost one of them, as far as there is memory. They may not see it
 * themselves, if only the connection between these two broke. The lock must be held. */
static void say_news(struct gw_tcp_endpoint *me, uint32_t lost, const char *sentence)
{
    const struct gw_tcp_envelope envelope = {.tag = me->tag, .from = me->group->rank, .type = GW_TCP_NEWS};
    for (uint32_t r = 0; r < me->group->size && !atomic_load(&me->closed); r++) {
        uint8_t *body = r != lost && hears(me, r) ? gw_message_alloc(me->group->context, GW_TCP_NEWS_BYTES) : NULL;
        if (!body)
            continue;
        uint8_t *start = body - GW_MESSAGE_ENVELOPE;
        zmq_msg_t frame;
        gw_tcp_envelope_write(start, &envelope);
        memset(body, 0, GW_TCP_NEWS_BYTES);
        gw_put32(body, lost);
        snprintf((char *)body + 4, GW_TCP_TEXT_BYTES, "%s", sentence);
        if (!lend(me, start, GW_MESSAGE_ENVELOPE + GW_TCP_NEWS_BYTES, message_left, &frame))
            continue;
        put_frame(me, r, &frame);
        zmq_msg_close(&frame);
    }
}

/* Tells each peer that is still there that this member leaves, how many of the peer's messages it has received, and
 * whose failure it has heard of. That member has told the peer, too, but on another connection. So the peer may learn
 * it here first. Takes no memory of the program: a farewell that is missing looks like a death. The lock must be held.
 */
static void say_bye(struct gw_tcp_endpoint *me)
{
    const struct gw_tcp_envelope envelope = {.tag = me->tag, .from = me->group->rank, .type = GW_TCP_BYE};
    for (uint32_t r = 0; r < me->group->size; r++) {
        struct gw_tcp_peer *peer = &me->peers[r];
        zmq_msg_t frame;
        if (!hears(me, r))
            continue;
        gw_tcp_envelope_write(peer->bye, &envelope);
        gw_put64(peer->bye + GW_MESSAGE_ENVELOPE, atomic_load(&peer->n_taken));
        snprintf((char *)peer->bye + GW_MESSAGE_ENVELOPE + 8, GW_TCP_TEXT_BYTES, "%s", me->why);
        if (!lend(me, peer->bye, sizeof peer->bye, notice_left, &frame))
            continue;
        put_frame(me, r, &frame);
        zmq_msg_close(&frame);
    }
}

void gw_tcp_fail(void *self, gw_status status, const char *why)
{
    struct gw_tcp_endpoint *me = self;
    if (!gw_process_is(me->group->made_in))
        return;
    pthread_mutex_lock(&me->lock);
    say_fail(me, status, why);
    pthread_mutex_unlock(&me->lock);
}

void gw_tcp_close(void *self)
{
    struct gw_tcp_endpoint *me = self;
    if (!gw_process_is(me->group->made_in))
        return;
    pthread_mutex_lock(&me->lock);
    if (!atomic_exchange(&me->closed, true))
        say_bye(me);
    pthread_mutex_unlock(&me->lock);
    wake(me);
}

/* ---- peers ------------------------------------------------------------------------------------------- */

gw_status gw_tcp_dial(struct gw_tcp_endpoint *me, uint32_t rank)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    const bool has_room = gw_zmq_free_descriptor() >= 0;
    peer->stale_at = gw_clock_seconds() + (has_room ? STALE_SECONDS : NO_ROOM_SECONDS);
    gw_tcp_look_at(me, peer->stale_at);
    if (!has_room)
        return GW_OK;
    if (peer->attempt == UINT8_MAX)
        return gw_fail(GW_ERR_PEER, "rank %u (%s) cannot be connected to", rank, gw_zmq_place(peer->endpoint));
    if (peer->attempt++)
        zmq_disconnect(me->out, peer->endpoint);
    uint8_t id[ID_BYTES];
    peer_id(me, rank, id);
    if (zmq_setsockopt(me->out, ZMQ_CONNECT_ROUTING_ID, id, ID_BYTES) != 0)
        return gw_fail(GW_ERR_SYSTEM, "ZeroMQ refuses a routing id: %s", zmq_strerror(zmq_errno()));
    GW_TRY(gw_zmq_connect(me->out, peer->endpoint, me->group->net.keys ? me->group->keys_of[rank] : NULL));
    uint8_t hello[GW_MESSAGE_ENVELOPE + GW_TCP_HELLO_BYTES];
    const struct gw_tcp_envelope envelope = {.tag = me->tag, .from = me->group->rank, .type = GW_TCP_HELLO};
    gw_tcp_envelope_write(hello, &envelope);
    gw_tcp_hello_write(hello + GW_MESSAGE_ENVELOPE, me->group->session, me->nth);
    zmq_msg_t frame;
    if (zmq_msg_init_size(&frame, sizeof hello) != 0)
        return gw_fail(GW_ERR_MEMORY, "no memory for a message of %zu bytes", sizeof hello);
    memcpy(zmq_msg_data(&frame), hello, sizeof hello);
    bool sent = put_frame(me, rank, &frame);
    zmq_msg_close(&frame);
    return sent ? GW_OK : why_not(me, rank);
}

/* Notes that a peer is gone. sentence NULL: it left in good order. The lock must be held. */
static void peer_gone(struct gw_tcp_endpoint *me, uint32_t rank, enum gw_tcp_peer_state state, const char *sentence)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    int before = atomic_load(&peer->state);
    if (before <= GW_TCP_PRESENT) {
        atomic_store(&peer->state, state);
        if (sentence && me->failed_peer == GW_TCP_NOBODY) {
            me->failed_peer = rank;
            snprintf(me->why, sizeof me->why, "%s", sentence);
        }
    }
    /* LINGER is 0, so frames that wait for this peer are dropped. */
    if (before <= GW_TCP_FAILED && state != GW_TCP_FAILED)
        zmq_disconnect(me->out, peer->endpoint);
}

/* ZeroMQ ends a connection that was given up only when somebody uses the socket again. If the peer is alive, it would
 * think until then that this member is silent. */
static void end_connection(struct gw_tcp_endpoint *me)
{
    enum { TIMES = 10, NAP_NS = 1000000 };
    for (int i = 0; i < TIMES; i++) {
        int events;
        size_t bytes = sizeof events;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        pthread_mutex_lock(&me->lock);
        zmq_getsockopt(me->out, ZMQ_EVENTS, &events, &bytes);
        pthread_mutex_unlock(&me->lock);
    }
}

void gw_tcp_peer_gone(struct gw_tcp_endpoint *me, uint32_t rank, enum gw_tcp_peer_state state, const char *sentence)
{
    pthread_mutex_lock(&me->lock);
    const bool was_there = is_there(me, rank);
    peer_gone(me, rank, state, state == GW_TCP_LEFT ? NULL : sentence);
    const bool is_news = was_there && state == GW_TCP_LOST;
    if (is_news)
        say_news(me, rank, sentence);
    pthread_mutex_unlock(&me->lock);
    if (is_news)
        end_connection(me);
}

void gw_tcp_peer_told_of(struct gw_tcp_endpoint *me, uint32_t rank, const char *sentence)
{
    pthread_mutex_lock(&me->lock);
    if (me->failed_peer == GW_TCP_NOBODY) {
        me->failed_peer = rank;
        snprintf(me->why, sizeof me->why, "%s", sentence);
    }
    pthread_mutex_unlock(&me->lock);
}

void gw_tcp_peer_left(struct gw_tcp_endpoint *me, uint32_t rank, uint64_t n_received, const char *why)
{
    char sentence[GW_TCP_TEXT_BYTES];
    pthread_mutex_lock(&me->lock);
    struct gw_tcp_peer *peer = &me->peers[rank];
    if (!*me->left_why)
        snprintf(me->left_why, sizeof me->left_why, "%s", why);
    peer->left_because |= *why && atomic_load(&peer->state) <= GW_TCP_FAILED;
    bool lost = atomic_load(&peer->state) <= GW_TCP_PRESENT && n_received < peer->n_owed && !atomic_load(&me->closed);
    if (*why)
        snprintf(sentence, sizeof sentence, "%s", why);
    else
        snprintf(sentence, sizeof sentence,
                 "rank %u (%s) left the link before it had received all that rank %u sent it", rank,
                 gw_zmq_place(peer->endpoint), me->group->rank);
    peer_gone(me, rank, GW_TCP_LEFT, lost ? sentence : NULL);
    if (lost) /* others may wait for this peer, or for this rank, and may have no reason to send it anything */
        say_fail(me, GW_ERR_PEER, sentence);
    pthread_mutex_unlock(&me->lock);
}
