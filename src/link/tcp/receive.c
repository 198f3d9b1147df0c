/* Receives the messages of one rank's endpoint of the tcp link, finds out which members are gone, and answers those who
 * come to the rendezvous when the job is running. */
#include "base/clock.h"
#include "base/error.h"
#include "base/quote.h"
#include "link/tcp/state.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#define LOOK_SECONDS 0.5 /* between two looks whether a machine has fallen silent, and at the rendezvous */
/* A peer that sends without end gets its next turn when the user has taken what it sent. */
#define MOST_AT_ONCE 256

/* ---- who is gone ----------------------------------------------------------------------------------------- */

/* gw_last_error() says how. */
static void lose(struct gw_tcp_endpoint *me, uint32_t rank)
{
    struct gw_tcp_peer *peer = &me->peers[rank];
    if (peer->gone)
        return;
    snprintf(peer->why, sizeof peer->why, "rank %u (%s) %s", rank, me->group->members[rank].address.place,
             gw_last_error());
    peer->gone = true;
    me->n_untold++;
    gw_net_close(&peer->c);
}

void gw_tcp_lose(struct gw_tcp_endpoint *me, uint32_t rank)
{
    const int error = me->peers[rank].c.error;
    if (error == ETIMEDOUT)
        gw_fail(GW_ERR_PEER, "is silent: its machine has not answered rank %u for %u ms", me->group->rank,
                me->group->timeout_ms);
    else if (error == EPROTO || error == EMSGSIZE)
        gw_fail(GW_ERR_PEER, "sent what no member sends: %s", gw_last_error());
    else
        gw_fail(GW_ERR_PEER, "died or lost its connection to rank %u", me->group->rank);
    lose(me, rank);
}

/* ---- where long messages go ------------------------------------------------------------------------------- */

static struct gw_loan *loan_of(const struct gw_tcp_peer *peer, const struct gw_net_message *m)
{
    struct gw_loan *loan = NULL;
    if (m->kind == GW_TCP_DATA && m->n_header == GW_LOAN_HEAD)
        TAILQ_FOREACH (loan, &peer->expected, link) /* mostly it is the first */
            if (m->n_bytes == loan->n_bytes && memcmp(m->header, loan->head, GW_LOAN_KEY) == 0)
                break;
    return loan;
}

void *gw_tcp_place(void *user, const struct gw_net_message *m)
{
    struct gw_tcp_peer *peer = user;
    struct gw_loan *loan = loan_of(peer, m);
    char *bytes = gw_message_alloc(peer->c.context, m->n_header + (loan ? 0 : m->n_bytes));
    if (!bytes)
        return NULL;
    memcpy(bytes, m->header, m->n_header);
    gw_message_node_of(bytes)->loan = loan;
    peer->coming = bytes;
    if (!loan)
        return bytes + m->n_header;
    TAILQ_REMOVE(&peer->expected, loan, link);
    return loan->body;
}

void *gw_tcp_placed(struct gw_tcp_peer *peer, size_t *n_bytes)
{
    void *bytes = peer->coming;
    struct gw_loan *loan = bytes ? gw_message_node_of(bytes)->loan : NULL;
    peer->coming = NULL;
    if (loan) {
        *n_bytes = 0;
        atomic_store(&loan->lent, false);
    }
    return bytes;
}

/* ---- what came ------------------------------------------------------------------------------------------- */

/* Takes one message of a peer. GW_ERR_MEMORY: it must be taken again. */
static gw_status take(struct gw_tcp_endpoint *me, uint32_t rank, const struct gw_net_message *m)
{
    size_t n_bytes = m->n_bytes;
    void *bytes = NULL;
    if (!m->is_small)
        bytes = gw_tcp_placed(&me->peers[rank], &n_bytes);
    if (m->kind == GW_TCP_DATA) {
        n_bytes += m->n_header;
        if (m->is_small && !(bytes = gw_message_alloc(me->group->context, n_bytes)))
            return GW_ERR_MEMORY;
        if (m->is_small && n_bytes)
            memcpy(bytes, m->header, n_bytes); /* the body stands behind it */
        if (bytes)
            gw_message_queue_put(&me->arrived, &(gw_message){.from = rank, .bytes = bytes, .n_bytes = n_bytes});
        return GW_OK;
    }
    gw_message_free(bytes);
    gw_fail(GW_ERR_PEER, "sent a message of kind %u and %zu bytes, which no member sends", m->kind, m->n_bytes);
    lose(me, rank);
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
    if (status == GW_ERR_PEER)
        gw_tcp_lose(me, rank);
    return GW_OK;
}

/* ---- who comes late ---------------------------------------------------------------------------------------- */

void gw_tcp_turn_out(struct gw_tcp_group *group, struct gw_net_newcomer *newcomer, const struct gw_net_message *message,
                     const char *what)
{
    gw_net_log(&group->log, "dropped address=%s bytes=%zu reason=\"%s\"", newcomer->c.peer.place, message->n_bytes,
               what);
    gw_net_turn_out(newcomer);
}

void gw_tcp_refuse(struct gw_tcp_group *group, struct gw_net_log *log, struct gw_net_newcomer *newcomer,
                   const char *why)
{
    uint8_t body[GW_TCP_REFUSE_BYTES];
    gw_net_log(log, "refused reason=\"%s\"", gw_quote(why).text);
    gw_net_refuse(&group->listener, newcomer, GW_TCP_REFUSE, NULL, 0, body,
                  gw_tcp_refuse_write(body, GW_ERR_PEER, why));
}

/* Tells those who come to the rendezvous now that they are late. */
static void answer_late(struct gw_tcp_group *group)
{
    struct gw_net_newcomer *newcomer;
    struct gw_net_message message;
    struct gw_tcp_join join;
    char refused[GW_TCP_TEXT_BYTES];
    if (pthread_mutex_trylock(&group->lock) != 0)
        return; /* another endpoint answers */
    for (int i = 0; i < GW_NET_MOST_AT_ONCE && (newcomer = gw_net_listener_next(&group->listener, &message)); i++) {
        if (message.kind != GW_TCP_JOIN || !gw_tcp_join_read(message.bytes, message.n_bytes, &join)) {
            gw_tcp_turn_out(group, newcomer, &message, GW_TCP_NO_MESSAGE);
            continue;
        }
        snprintf(
            refused, sizeof refused,
            "the job at %s is already running, with %u %s, since %s; rank %u (%s) came too late; wait until that job "
            "has ended, or give this one another port",
            group->place, group->size, group->size == 1 ? "worker" : "workers", group->since, join.rank,
            newcomer->c.peer.place);
        gw_tcp_refuse(group, &group->log_of_late, newcomer, refused);
    }
    pthread_mutex_unlock(&group->lock);
}

/* ---- waiting --------------------------------------------------------------------------------------------- */

static void look_around(struct gw_tcp_endpoint *me, double now)
{
    if (now < me->look_at)
        return;
    me->look_at = now + LOOK_SECONDS;
    if (me->group->rank == 0)
        answer_late(me->group); /* it also sends away those who say nothing, and accepts again after a flood */
    for (uint32_t r = 0; r < me->group->size; r++)
        if (gw_net_is_silent(&me->peers[r].c, me->group->timeout_ms)) {
            me->peers[r].c.error = ETIMEDOUT;
            gw_tcp_lose(me, r);
        }
}

gw_status gw_tcp_turn(struct gw_tcp_endpoint *me, double seconds, int *n)
{
    enum { AT_ONCE = 32 };
    struct epoll_event events[AT_ONCE];
    gw_status status = GW_OK;
    eventfd_t scrap;
    *n = 0;
    for (uint32_t r = 0; r < me->group->size && me->n_stalled; r++)
        if (me->peers[r].stalled) {
            seconds = 0; /* its messages may be what is waited for */
            GW_TRY(gw_tcp_read_peer(me, r));
            gw_net_watch(&me->peers[r].c, me->epoll, (epoll_data_t){.u32 = r}); /* TLS may have to write now */
            ++*n;
        }
    if (seconds > LOOK_SECONDS)
        seconds = LOOK_SECONDS;
    atomic_store(&me->sleeping, true);
    pthread_mutex_unlock(&me->lock);
    int n_events = 0;
    if (seconds > 0 && me->group->spin_us) {
        const double spin = me->group->spin_us / 1e6, end = gw_clock_seconds() + (spin < seconds ? spin : seconds);
        do
            n_events = epoll_wait(me->epoll, events, AT_ONCE, 0);
        while (n_events == 0 && gw_clock_seconds() < end);
    }
    if (n_events == 0)
        n_events = epoll_wait(me->epoll, events, AT_ONCE, seconds > 0 ? (int)(seconds * 1000) + 1 : 0);
    pthread_mutex_lock(&me->lock);
    atomic_store(&me->sleeping, false);
    for (int i = 0; i < n_events; i++) {
        const uint32_t rank = events[i].data.u32;
        if (rank == GW_TCP_WAKE) {
            eventfd_read(me->wake, &scrap);
        } else if (rank == GW_TCP_RENDEZVOUS) {
            answer_late(me->group);
            continue; /* that is not what anybody waits for */
        } else {
            if (status == GW_OK && events[i].events & ~(uint32_t)EPOLLOUT)
                status = gw_tcp_read_peer(me, rank);
            if (me->peers[rank].c.fd >= 0) {
                gw_ignore(gw_net_flush(&me->peers[rank].c)); /* if that fails, reading says why */
                gw_net_watch(&me->peers[rank].c, me->epoll, (epoll_data_t){.u32 = rank});
            }
        }
        ++*n;
    }
    look_around(me, gw_clock_seconds());
    return status;
}

/* Reports a peer that is gone. There is one. */
static gw_status tell_gone(struct gw_tcp_endpoint *me, gw_message *message)
{
    uint32_t r = 0;
    while (!me->peers[r].gone || me->peers[r].told)
        r++;
    me->peers[r].told = true;
    me->n_untold--;
    message->from = r;
    return gw_fail(GW_ERR_PEER, "%s", me->peers[r].why);
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
        if (gw_message_queue_take(&me->arrived, message))
            break;
        const double left = deadline - gw_clock_seconds();
        if (looked && me->n_untold)
            status = tell_gone(me, message);
        else if (looked && left <= 0)
            status = gw_fail(GW_ERR_TIMEOUT, "rank %u got no message within %u ms", me->group->rank, timeout_ms);
        if (status < 0)
            break;
        const double wait = me->n_untold || left <= 0 ? 0 : left;
        status = gw_tcp_turn(me, wait, &n);
        looked = n == 0 && wait == 0;
    }
    pthread_mutex_unlock(&me->lock);
    return status;
}
