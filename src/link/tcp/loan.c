/* Loans of the tcp link: messages that are sent from where they stand, and received where they belong. */
#include "link/tcp/state.h"

#include <errno.h>
#include <string.h>

/* ---- sending --------------------------------------------------------------------------------------------- */

static void give_back(void *loan)
{
    atomic_store(&((struct gw_loan *)loan)->lent, false);
}

static gw_status loan_send(void *self, struct gw_loan *loan)
{
    atomic_store(&loan->lent, true);
    return gw_tcp_send_loan(self, loan, give_back);
}

/* Copies what is still to be sent of loans. false: there is no memory. */
static bool keep_copies(struct gw_net_connection *c)
{
    for (struct gw_net_parcel *parcel = c->first; parcel; parcel = parcel->next) {
        if (parcel->release != give_back)
            continue;
        void *copy = gw_message_alloc(c->context, parcel->n_bytes);
        if (!copy)
            return false;
        memcpy(copy, parcel->bytes, parcel->n_bytes);
        give_back(parcel->owner);
        parcel->bytes = parcel->owner = copy;
        parcel->release = gw_message_free;
    }
    return true;
}

/* ---- receiving (receive.c fills them) --------------------------------------------------------------------- */

static void loan_expect(void *self, struct gw_loan *loan)
{
    struct gw_tcp_endpoint *me = self;
    struct gw_tcp_peer *peer = &me->peers[loan->peer];
    pthread_mutex_lock(&me->lock);
    atomic_store(&loan->lent, true);
    TAILQ_INSERT_TAIL(&peer->expected, loan, link);
    pthread_mutex_unlock(&me->lock);
}

/* ---- the end --------------------------------------------------------------------------------------------- */

/* Takes this loan of a peer back, or all if it is NULL. Drops the rest of the message that fills one now. */
static void take_back(struct gw_tcp_peer *peer, const struct gw_loan *only)
{
    size_t unused;
    for (struct gw_loan *loan = TAILQ_FIRST(&peer->expected), *next; loan; loan = next) {
        next = TAILQ_NEXT(loan, link);
        if (only && loan != only)
            continue;
        TAILQ_REMOVE(&peer->expected, loan, link);
        give_back(loan);
    }
    const struct gw_loan *coming = peer->coming ? gw_message_node_of(peer->coming)->loan : NULL;
    if (coming && (!only || coming == only)) {
        gw_message_free(gw_tcp_placed(peer, &unused));
        peer->c.body = gw_net_nowhere;
    }
}

/* Drops messages that filled this loan, or any if it is NULL, and were not received yet. */
static void drop_filled(struct gw_message_queue *arrived, const struct gw_loan *loan)
{
    struct gw_message_queue all = *arrived;
    gw_message message;
    *arrived = (struct gw_message_queue){NULL, NULL};
    while (gw_message_queue_take(&all, &message)) {
        const struct gw_loan *filled = gw_message_loan(&message);
        if (filled && (!loan || filled == loan))
            gw_message_free(message.bytes);
        else
            gw_message_queue_put(arrived, &message);
    }
}

static void loan_forget(void *self, struct gw_loan *loan)
{
    struct gw_tcp_endpoint *me = self;
    pthread_mutex_lock(&me->lock);
    take_back(&me->peers[loan->peer], loan);
    drop_filled(&me->arrived, loan);
    pthread_mutex_unlock(&me->lock);
}

static void loan_take_back(void *self)
{
    struct gw_tcp_endpoint *me = self;
    pthread_mutex_lock(&me->lock);
    for (uint32_t r = 0; r < me->group->size; r++) {
        take_back(&me->peers[r], NULL);
        if (!keep_copies(&me->peers[r].c)) {
            me->peers[r].c.error = ENOMEM;
            gw_tcp_lose(me, r);
        }
    }
    drop_filled(&me->arrived, NULL);
    pthread_mutex_unlock(&me->lock);
}

const struct gw_link_loans gw_tcp_loans = {
    .send = loan_send,
    .expect = loan_expect,
    .forget = loan_forget,
    .take_back = loan_take_back,
};
