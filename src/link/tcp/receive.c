/* Receives the messages of one rank's endpoint of the tcp link, and finds out which members are gone. */
#include "base/clock.h"
#include "base/error.h"
#include "link/tcp/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LOOK_SECONDS 0.5 /* between two looks whether a machine has fallen silent, and at the rendezvous */
/* If another member has lost a rank, that rank's own last messages may still be on their way here, and say more. */
#define NEWS_SECONDS 0.5
/* A peer that sends without end gets its next turn when the user has taken what it sent. */
#define MOST_AT_ONCE 256

/* ---- who is gone ----------------------------------------------------------------------------------------- */

/* Tells all that are there how this rank has lost another one: they may not find out by themselves. If there is no
 * memory, they do not hear it. */
static void tell_others(struct gw_tcp_endpoint *me, uint32_t lost)
{
    const uint32_t size = me->group->size;
    uint8_t *bytes = gw_message_alloc(me->group->context, GW_TCP_MOST_TEXT);
    if (!bytes)
        return;
    const size_t n_bytes = gw_tcp_text_write(bytes, 4, lost, me->why);
    for (uint32_t r = 0; r < size; r++) {
        if (r == me->group->rank || me->peers[r].state != GW_TCP_PRESENT)
            continue;
        gw_message_share(bytes);
        gw_ignore(gw_net_send(&me->peers[r].c, GW_TCP_NEWS, bytes, n_bytes, gw_message_free));
        gw_tcp_watch(me, r);
    }
    gw_message_free(bytes);
}

/* recv reports the first failure that is heard of. What a rank says itself replaces what others said about it. */
static void note_failure(struct gw_tcp_endpoint *me, uint32_t rank, const char *sentence)
{
    const bool is_news = me->failed_peer == rank && me->news_at != 0;
    if (me->failed_peer != GW_TCP_NOBODY && !is_news)
        return;
    me->failed_peer = rank;
    me->news_at = 0;
    snprintf(me->why, sizeof me->why, "%s", sentence);
}

static void lose(struct gw_tcp_endpoint *me, uint32_t rank, const char *sentence)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    const bool first = me->failed_peer == GW_TCP_NOBODY;
    peer->state = GW_TCP_LOST;
    gw_net_close(&peer->c);
    note_failure(me, rank, sentence);
    if (first && !me->closed && !me->failed) /* who leaves has not failed */
        tell_others(me, rank);
}

/* A peer's connection is over. If it had said BYE or FAIL, that was all. */
static void end_of(struct gw_tcp_endpoint *me, uint32_t rank)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    char sentence[GW_TCP_TEXT_BYTES], reason[160];
    const char *place = gw_net_place(me->group->members[rank].address.endpoint);
    if (peer->state != GW_TCP_PRESENT) {
        gw_net_close(&peer->c);
        return;
    }
    snprintf(reason, sizeof reason, "%s", gw_last_error());
    if (peer->c.error == ETIMEDOUT)
        snprintf(sentence, sizeof sentence, "rank %u (%s) is silent: its machine has not answered for %u ms", rank,
                 place, me->group->timeout_ms);
    else if (peer->c.error == EPROTO || peer->c.error == EMSGSIZE)
        snprintf(sentence, sizeof sentence, "rank %u (%s) sent what no member sends: %s", rank, place, reason);
    else
        snprintf(sentence, sizeof sentence, "rank %u (%s) died or lost its connection to rank %u", rank, place,
                 me->group->rank);
    lose(me, rank, sentence);
}

/* A peer said how many messages of this rank it has received. If some are missing, that is a failure. */
static void take_bye(struct gw_tcp_endpoint *me, uint32_t rank, uint64_t n_received, const char *why)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    char sentence[GW_TCP_TEXT_BYTES];
    if (n_received >= peer->n_owed || me->closed) {
        peer->state = GW_TCP_LEFT;
        peer->left_because = why[0] != 0;
        if (why[0] && !me->left_why[0])
            snprintf(me->left_why, sizeof me->left_why, "%s", why);
        return;
    }
    snprintf(sentence, sizeof sentence, "rank %u (%s) left the link before it had received all that rank %u sent it",
             rank, gw_net_place(me->group->members[rank].address.endpoint), me->group->rank);
    lose(me, rank, why[0] ? why : sentence);
}

/* ---- what came ------------------------------------------------------------------------------------------- */

static gw_status take_data(struct gw_tcp_endpoint *me, uint32_t rank, const struct gw_net_message *m)
{
    void *bytes = m->bytes;
    if (m->is_small) {
        if (!(bytes = gw_message_alloc(me->group->context, m->n_bytes)))
            return GW_ERR_MEMORY;
        if (m->n_bytes)
            memcpy(bytes, m->bytes, m->n_bytes);
    }
    gw_message_queue_put(&me->arrived, &(gw_message){.from = rank, .bytes = bytes, .n_bytes = m->n_bytes});
    return GW_OK;
}

/* Takes one message of a peer. GW_ERR_MEMORY: it must be taken again. */
static gw_status take(struct gw_tcp_endpoint *me, uint32_t rank, const struct gw_net_message *m)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    char text[GW_TCP_TEXT_BYTES], sentence[GW_TCP_TEXT_BYTES];
    uint64_t number;
    const bool there = peer->state == GW_TCP_PRESENT;
    if (m->kind == GW_TCP_DATA && there)
        return take_data(me, rank, m);
    if (m->kind == GW_TCP_FAIL && m->is_small && there && gw_tcp_text_read(m->bytes, m->n_bytes, 0, NULL, text)) {
        peer->state = GW_TCP_FAILED;
        note_failure(me, rank, text);
        return GW_OK;
    }
    if (m->kind == GW_TCP_BYE && m->is_small && there && gw_tcp_text_read(m->bytes, m->n_bytes, 8, &number, text)) {
        take_bye(me, rank, number, text);
        return GW_OK;
    }
    if (m->kind == GW_TCP_NEWS && m->is_small && there && gw_tcp_text_read(m->bytes, m->n_bytes, 4, &number, text) &&
        number < me->group->size) {
        if (number == me->group->rank || me->failed_peer != GW_TCP_NOBODY)
            return GW_OK;
        note_failure(me, (uint32_t)number, text);
        if (me->peers[number].state == GW_TCP_PRESENT)
            me->news_at = gw_clock_seconds() + NEWS_SECONDS;
        return GW_OK;
    }
    if (!m->is_small) {
        gw_net_consume(&peer->c);
        gw_message_free(m->bytes);
    }
    snprintf(sentence, sizeof sentence, "rank %u (%s) sent a message of kind %u and %zu bytes, which no member sends",
             rank, gw_net_place(me->group->members[rank].address.endpoint), m->kind, m->n_bytes);
    lose(me, rank, sentence);
    return GW_ERR_PEER;
}

static void set_stalled(struct gw_tcp_endpoint *me, struct gw_tcp_peer *peer, bool stalled)
{
    me->n_stalled += stalled - peer->stalled;
    peer->stalled = stalled;
}

gw_status gw_tcp_read_peer(struct gw_tcp_endpoint *me, uint32_t rank)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    struct gw_net_message m;
    gw_status status = GW_OK;
    int n = 0;
    if (peer->c.fd < 0) {
        set_stalled(me, peer, false);
        return GW_OK;
    }
    do {
        status = gw_net_next(&peer->c, &m);
        if (status == GW_OK)
            status = take(me, rank, &m);
        if (status == GW_OK)
            gw_net_consume(&peer->c);
    } while (status == GW_OK && peer->c.fd >= 0 && gw_net_has_more(&peer->c) && ++n < MOST_AT_ONCE);
    set_stalled(me, peer, status == GW_ERR_MEMORY || n == MOST_AT_ONCE);
    if (status == GW_ERR_MEMORY)
        return status;
    if (status == GW_ERR_PEER && peer->c.fd >= 0)
        end_of(me, rank);
    return GW_OK;
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

static void look_around(struct gw_tcp_endpoint *me, double now)
{
    char sentence[GW_TCP_TEXT_BYTES];
    if (now < me->look_at)
        return;
    me->look_at = now + LOOK_SECONDS;
    if (me->group->listens)
        gw_tcp_answer_late(me->group); /* it also sends away those who say nothing, and accepts again after a flood */
    for (uint32_t r = 0; r < me->group->size; r++)
        if (r != me->group->rank && me->peers[r].state == GW_TCP_PRESENT &&
            gw_net_is_silent(&me->peers[r].c, me->group->timeout_ms)) {
            snprintf(sentence, sizeof sentence, "rank %u (%s) is silent: its machine has not answered for %u ms", r,
                     gw_net_place(me->group->members[r].address.endpoint), me->group->timeout_ms);
            lose(me, r, sentence);
        }
}

gw_status gw_tcp_turn(struct gw_tcp_endpoint *me, double seconds, int *n)
{
    enum { AT_ONCE = 32 };
    struct epoll_event events[AT_ONCE];
    gw_status status = GW_OK;
    uint64_t scrap;
    *n = 0;
    for (uint32_t r = 0; r < me->group->size && me->n_stalled; r++)
        if (me->peers[r].stalled) {
            seconds = 0; /* its messages may be what is waited for */
            GW_TRY(gw_tcp_read_peer(me, r));
            ++*n;
        }
    if (seconds > LOOK_SECONDS)
        seconds = LOOK_SECONDS;
    atomic_store(&me->sleeping, true);
    pthread_mutex_unlock(&me->lock);
    const int n_events = epoll_wait(me->epoll, events, AT_ONCE, seconds > 0 ? (int)(seconds * 1000) + 1 : 0);
    pthread_mutex_lock(&me->lock);
    atomic_store(&me->sleeping, false);
    for (int i = 0; i < n_events; i++) {
        const uint32_t rank = events[i].data.u32;
        if (rank == GW_TCP_WAKE) {
            while (read(me->wake, &scrap, sizeof scrap) < 0 && errno == EINTR)
                ;
        } else if (rank == GW_TCP_RENDEZVOUS) {
            gw_tcp_answer_late(me->group);
            continue; /* that is not what anybody waits for */
        } else {
            if (events[i].events & ~(uint32_t)EPOLLOUT && status == GW_OK)
                status = gw_tcp_read_peer(me, rank);
            if (me->peers[rank].c.fd >= 0) {
                gw_ignore(gw_net_flush(&me->peers[rank].c)); /* if that fails, reading says why */
                gw_tcp_watch(me, rank);
            }
        }
        ++*n;
    }
    look_around(me, gw_clock_seconds());
    return status;
}

gw_status gw_tcp_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    struct gw_tcp_endpoint *me = self;
    GW_TRY(gw_process_check(me->group->made_in, GW_TCP_THIS));
    const double deadline = gw_clock_seconds() + timeout_ms / 1000.0;
    bool looked = false; /* all that had come has been read */
    gw_status status = GW_OK;
    pthread_mutex_lock(&me->lock);
    while (status == GW_OK) {
        int n;
        if (me->closed) {
            status = gw_fail(GW_ERR_CLOSED, "rank %u has closed this link", me->group->rank);
            break;
        }
        if (gw_message_queue_take(&me->own, message))
            break;
        if (gw_message_queue_take(&me->arrived, message)) {
            me->peers[message->from].n_taken++;
            break;
        }
        const double now = gw_clock_seconds();
        double left = deadline - now;
        const bool failure = me->failed_peer != GW_TCP_NOBODY && now >= me->news_at;
        if (me->failed_peer != GW_TCP_NOBODY && !failure && me->news_at - now < left)
            left = me->news_at - now;
        if (looked && failure)
            status = gw_fail(GW_ERR_PEER, "%s", me->why);
        else if (looked && left <= 0)
            status = gw_fail(GW_ERR_TIMEOUT, "rank %u got no message within %u ms", me->group->rank, timeout_ms);
        if (status < 0)
            break;
        const double wait = failure || left <= 0 ? 0 : left;
        status = gw_tcp_turn(me, wait, &n);
        looked = n == 0 && wait == 0;
    }
    pthread_mutex_unlock(&me->lock);
    return status;
}
