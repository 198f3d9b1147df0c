/* One rank's end of the mpi link, with the functions that every link must offer. */
#include "link/mpi/hub.h"

#include "base/clock.h"
#include "base/error.h"

/* MPI wakes no thread, so a thread that waits must look again and again. At first it looks without a pause: that is
 * enough for the answers of a step of a small model. Then it sleeps for an eighth of the time that it has waited so
 * far. So sleeping makes a wait longer by an eighth at most. It does not yield. If there are more threads than cores,
 * the kernel runs a thread that yields after all others, and a thread that wakes up before them. */
#define LOOK_SECONDS 200e-6
#define SHORTEST_NAP 50e-6
#define LONGEST_NAP 1e-3
#define WAITED_PER_NAP 8

#define LEAVE_SECONDS 2.0 /* how long the last endpoint of a process waits for the other members */
#define THIS "this mpi link"

/* How long to sleep now. 0: do not sleep. */
static double nap_after(double waited)
{
    double nap = waited / WAITED_PER_NAP;
    if (waited < LOOK_SECONDS)
        return 0;
    return nap < SHORTEST_NAP ? SHORTEST_NAP : nap > LONGEST_NAP ? LONGEST_NAP : nap;
}

/* ---- sending -------------------------------------------------------------------------------------------- */

/* GW_OK if `to` still listens; else an error with its sentence. The hub's lock must be held. */
static gw_status listens(const struct gw_mpi_endpoint *me, uint32_t to)
{
    return me->peers[to].left ? gw_fail(GW_ERR_PEER, "rank %u left the link", to) : GW_OK;
}

/* GW_OK if this endpoint may send to `to`, or to all (GW_MPI_NOBODY). The hub's lock must be held. */
static gw_status may_send(const struct gw_mpi_endpoint *me, uint32_t to)
{
    if (me->closed)
        return gw_fail(GW_ERR_CLOSED, "rank %u sent on a link that it has closed", me->rank);
    if (to != GW_MPI_NOBODY)
        return listens(me, to);
    for (uint32_t r = 0; r < me->hub->size; r++)
        GW_TRY(listens(me, r));
    return GW_OK;
}

/* Sends to other ranks through MPI. It owns `bytes`. */
static gw_status send_out(struct gw_mpi_endpoint *me, uint32_t to, void *bytes, size_t n_bytes)
{
    struct gw_mpi_hub *hub = me->hub;
    /* a member may have left meanwhile; this also moves messages that are under way */
    gw_status status = gw_mpi_move(hub, NULL);
    struct gw_mpi_outgoing *out = NULL;
    if (status == GW_OK || status == GW_ERR_MEMORY) { /* no memory for what comes in: recv will say so */
        out = gw_mpi_outgoing_new(hub->context, to == GW_MPI_NOBODY ? hub->size - 1 : 1);
        status = out ? GW_OK : GW_ERR_MEMORY;
    }
    if (status < 0)
        return gw_message_refuse(bytes, status);
    out->bytes = bytes;
    out->n_bytes = n_bytes;
    pthread_mutex_lock(&hub->sending);
    pthread_mutex_lock(&hub->lock);
    status = may_send(me, to);
    pthread_mutex_unlock(&hub->lock);
    if (status == GW_OK)
        status = gw_mpi_post(me, to, GW_MPI_DATA, out);
    else
        gw_mpi_outgoing_free(out);
    pthread_mutex_unlock(&hub->sending);
    return status;
}

static gw_status send_to_self(struct gw_mpi_endpoint *me, void *bytes, size_t n_bytes)
{
    struct gw_mpi_hub *hub = me->hub;
    gw_message message = {.from = me->rank, .bytes = bytes, .n_bytes = n_bytes};
    pthread_mutex_lock(&hub->lock);
    const gw_status status = may_send(me, me->rank);
    if (status == GW_OK) {
        gw_message_queue_put(&me->inbox, &message);
        pthread_cond_signal(&me->arrived);
    }
    pthread_mutex_unlock(&hub->lock);
    return status < 0 ? gw_message_refuse(bytes, status) : GW_OK;
}

static gw_status mpi_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct gw_mpi_endpoint *me = self;
    (void)timeout_ms; /* MPI takes a message without waiting */
    gw_status status = gw_process_check(me->hub->made_in, THIS);
    if (status == GW_OK && to >= me->hub->size)
        status =
            gw_fail(GW_ERR_ARGUMENT, "rank %u sent to rank %u; ranks are 0 to %u", me->rank, to, me->hub->size - 1);
    if (status < 0)
        return gw_message_refuse(bytes, status);
    return to == me->rank ? send_to_self(me, bytes, n_bytes) : send_out(me, to, bytes, n_bytes);
}

static gw_status mpi_send_all(void *self, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct gw_mpi_endpoint *me = self;
    (void)timeout_ms;
    const gw_status status = gw_process_check(me->hub->made_in, THIS);
    return status < 0 ? gw_message_refuse(bytes, status) : send_out(me, GW_MPI_NOBODY, bytes, n_bytes);
}

/* ---- receiving ------------------------------------------------------------------------------------------ */

/* Takes a message or an error for this endpoint. GW_ERR_TIMEOUT: there is nothing. The hub's lock must be held. */
static gw_status look(struct gw_mpi_endpoint *me, gw_message *message)
{
    if (me->closed)
        return gw_fail(GW_ERR_CLOSED, "rank %u received on a link that it has closed", me->rank);
    if (gw_message_queue_take(&me->inbox, message))
        return GW_OK;
    if (!me->n_untold)
        return GW_ERR_TIMEOUT;
    uint32_t r = 0;
    while (!me->peers[r].left || me->peers[r].told)
        r++;
    me->peers[r].told = true;
    me->n_untold--;
    message->from = r;
    return listens(me, r);
}

static gw_status mpi_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    struct gw_mpi_endpoint *me = self;
    struct gw_mpi_hub *hub = me->hub;
    const double begin = gw_clock_seconds();
    GW_TRY(gw_process_check(me->hub->made_in, THIS));
    pthread_mutex_lock(&hub->lock);
    gw_status status;
    while ((status = look(me, message)) == GW_ERR_TIMEOUT) {
        pthread_mutex_unlock(&hub->lock);
        status = gw_mpi_move(hub, me);
        if (status < 0)
            return status;
        pthread_mutex_lock(&hub->lock);
        status = look(me, message);
        if (status != GW_ERR_TIMEOUT)
            break;
        const double waited = gw_clock_seconds() - begin, left = timeout_ms * 1e-3 - waited, nap = nap_after(waited);
        if (left <= 0) {
            gw_fail(status, "rank %u got no message within %u ms", me->rank, timeout_ms);
            break;
        }
        if (nap > 0) {
            struct timespec at = gw_clock_after(nap < left ? nap : left);
            pthread_cond_timedwait(&me->arrived, &hub->lock, &at);
        }
    }
    pthread_mutex_unlock(&hub->lock);
    return status;
}

/* ---- leaving -------------------------------------------------------------------------------------------- */

static void mpi_close(void *self)
{
    struct gw_mpi_endpoint *me = self;
    struct gw_mpi_hub *hub = me->hub;
    if (!gw_process_is(hub->made_in))
        return;
    pthread_mutex_lock(&hub->sending);
    pthread_mutex_lock(&hub->lock);
    me->closed = true;
    struct gw_message_queue undelivered = me->inbox;
    me->inbox = (struct gw_message_queue){NULL, NULL};
    pthread_cond_signal(&me->arrived);
    struct gw_mpi_outgoing *farewell = me->farewell;
    me->farewell = NULL;
    pthread_mutex_unlock(&hub->lock);
    if (farewell && gw_mpi_runs())
        gw_mpi_post(me, GW_MPI_NOBODY, GW_MPI_BYE, farewell);
    else
        gw_mpi_outgoing_free(farewell);
    pthread_mutex_unlock(&hub->sending);
    gw_message_queue_clear(&undelivered);
}

/* Waits until all members have left, and drops what still comes. MPI uses the number of a communicator again for a
 * later one. So no message may be under way that could reach that later one. */
static void await_others(struct gw_mpi_hub *hub)
{
    double begin = gw_clock_seconds(), waited = 0;
    while (gw_mpi_runs() && waited < LEAVE_SECONDS) {
        gw_status status = gw_mpi_move(hub, NULL);
        if (gw_mpi_is_over(hub) || (status < 0 && status != GW_ERR_MEMORY))
            return;
        waited = gw_clock_seconds() - begin;
        struct timespec nap = {0, (long)(nap_after(waited) * 1e9)};
        nanosleep(&nap, NULL);
    }
}

static void mpi_destroy(void *self)
{
    struct gw_mpi_endpoint *me = self;
    struct gw_mpi_hub *hub = me->hub;
    if (!gw_process_is(hub->made_in))
        return;
    const struct gw_kept_error kept = gw_error_keep();
    mpi_close(me);
    pthread_mutex_lock(&hub->lock);
    bool last = --hub->holders == 0;
    pthread_mutex_unlock(&hub->lock);
    if (last) {
        await_others(hub);
        gw_mpi_hub_free(hub);
    }
    gw_error_put_back(&kept);
}

const gw_link_ops gw_mpi_ops = {
    .name = "mpi",
    .send = mpi_send,
    .send_all = mpi_send_all,
    .recv = mpi_recv,
    .close = mpi_close,
    .destroy = mpi_destroy,
};
