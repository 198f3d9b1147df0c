/* The local link: ranks are threads of one process.
 *
 * A hub holds one endpoint for each rank; an endpoint is an inbox (a queue under a lock). Sending puts the message's
 * own memory into the receiver's inbox: it copies nothing and takes no memory. It wakes the receiver only if that
 * sleeps. The hub is freed with its last endpoint. A list in the hub says which members are gone; each receiver reports
 * them in that order. */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/process.h"
#include "link/message.h"
#include "link/scheme.h"

#include <gradwire/codec.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define THIS "this local link"

struct hub;

/* One rank. Aligned so that neighbours do not share a cache line. */
struct endpoint {
    _Alignas(64) struct hub *hub;
    uint32_t rank;
    atomic_bool closed; /* written under the lock */
    pthread_mutex_t lock;

    /* Used under the lock. */
    uint32_t n_told; /* of the members that are gone */
    pthread_cond_t arrived;
    struct gw_message_queue inbox;
    bool sleeping; /* recv waits on `arrived` and nobody has woken it yet */
};

struct hub {
    gw_context *context;
    gw_process made_in;
    uint32_t size;
    atomic_uint holders;    /* endpoints not destroyed yet */
    atomic_uint n_sleeping; /* endpoints whose recv sleeps. If there are none, who goes need not look for them */
    pthread_mutex_t lock;   /* is held while a member is added to `gone` */
    atomic_uint n_gone;
    uint32_t *gone; /* [size]: behind the endpoints */
    struct endpoint endpoints[];
};

static void wake(struct endpoint *endpoint)
{
    if (endpoint->sleeping) {
        endpoint->sleeping = false;
        pthread_cond_signal(&endpoint->arrived);
    }
}

static gw_status local_send(void *self, uint32_t to, void *bytes, size_t n_bytes, uint32_t timeout_ms)
{
    struct endpoint *me = self;
    struct hub *hub = me->hub;
    (void)timeout_ms; /* the inbox is never full */
    gw_status status = gw_process_check(hub->made_in, THIS);
    if (status < 0)
        return gw_message_refuse(bytes, status);
    if (to >= hub->size)
        return gw_message_refuse(bytes, gw_fail(GW_ERR_ARGUMENT, "rank %u sent to rank %u; ranks are 0 to %u", me->rank,
                                                to, hub->size - 1));
    if (atomic_load_explicit(&me->closed, memory_order_relaxed))
        return gw_message_refuse(bytes, gw_fail(GW_ERR_CLOSED, "rank %u sent on a link that it has closed", me->rank));
    struct endpoint *peer = &hub->endpoints[to];
    gw_message message = {.from = me->rank, .bytes = bytes, .n_bytes = n_bytes};
    pthread_mutex_lock(&peer->lock);
    if (atomic_load_explicit(&peer->closed, memory_order_relaxed)) {
        status = gw_fail(GW_ERR_PEER, "rank %u left the link", to);
    } else {
        gw_message_queue_put(&peer->inbox, &message);
        wake(peer);
    }
    pthread_mutex_unlock(&peer->lock);
    return status < 0 ? gw_message_refuse(bytes, status) : status;
}

/* Sleeps until there is a message, a member that is gone, or the deadline. */
static gw_status await(struct endpoint *me, uint32_t timeout_ms, gw_message *message)
{
    struct hub *hub = me->hub;
    struct timespec deadline;
    bool slept = false, late = timeout_ms == 0;
    for (;;) {
        const uint32_t n_gone = atomic_load(&hub->n_gone); /* before the inbox: they sent before they went */
        if (atomic_load_explicit(&me->closed, memory_order_relaxed))
            return GW_ERR_CLOSED;
        if (gw_message_queue_take(&me->inbox, message))
            return GW_OK;
        if (me->n_told < n_gone) {
            message->from = hub->gone[me->n_told++];
            return GW_ERR_PEER;
        }
        if (late)
            return GW_ERR_TIMEOUT;
        if (!slept)
            deadline = gw_clock_after(timeout_ms * 1e-3);
        slept = true;
        me->sleeping = true;
        atomic_fetch_add(&hub->n_sleeping, 1);
        /* then the loop looks a last time */
        late = atomic_load(&hub->n_gone) == n_gone &&
               pthread_cond_timedwait(&me->arrived, &me->lock, &deadline) == ETIMEDOUT;
        atomic_fetch_sub(&hub->n_sleeping, 1);
        me->sleeping = false;
    }
}

static gw_status local_recv(void *self, uint32_t timeout_ms, gw_message *message)
{
    struct endpoint *me = self;
    GW_TRY(gw_process_check(me->hub->made_in, THIS));
    pthread_mutex_lock(&me->lock);
    gw_status status = await(me, timeout_ms, message);
    pthread_mutex_unlock(&me->lock);
    if (status == GW_ERR_PEER)
        return gw_fail(status, "rank %u left the link", message->from);
    if (status == GW_ERR_TIMEOUT)
        return gw_fail(status, "rank %u got no message within %u ms", me->rank, timeout_ms);
    return status < 0 ? gw_fail(status, "rank %u received on a link that it has closed", me->rank) : GW_OK;
}

static void local_close(void *self)
{
    struct endpoint *me = self;
    struct hub *hub = me->hub;
    if (!gw_process_is(hub->made_in))
        return;
    pthread_mutex_lock(&me->lock);
    const bool first = !atomic_exchange_explicit(&me->closed, true, memory_order_relaxed);
    struct gw_message_queue undelivered = me->inbox;
    me->inbox = (struct gw_message_queue){NULL, NULL};
    wake(me);
    pthread_mutex_unlock(&me->lock);
    gw_message_queue_clear(&undelivered);
    if (!first)
        return;
    pthread_mutex_lock(&hub->lock);
    hub->gone[atomic_load(&hub->n_gone)] = me->rank;
    atomic_fetch_add(&hub->n_gone, 1);
    pthread_mutex_unlock(&hub->lock);
    for (uint32_t r = 0; r < hub->size && atomic_load(&hub->n_sleeping); r++) {
        struct endpoint *peer = &hub->endpoints[r];
        pthread_mutex_lock(&peer->lock);
        wake(peer);
        pthread_mutex_unlock(&peer->lock);
    }
}

static void hub_free(struct hub *hub)
{
    for (uint32_t r = 0; r < hub->size; r++) {
        pthread_cond_destroy(&hub->endpoints[r].arrived);
        pthread_mutex_destroy(&hub->endpoints[r].lock);
    }
    pthread_mutex_destroy(&hub->lock);
    gw_free(hub->context, hub);
}

static void local_destroy(void *self)
{
    struct endpoint *me = self;
    struct hub *hub = me->hub;
    if (!gw_process_is(hub->made_in))
        return;
    local_close(me);
    if (atomic_fetch_sub_explicit(&hub->holders, 1, memory_order_acq_rel) == 1)
        hub_free(hub);
}

static const gw_link_ops local_ops = {
    .name = "local",
    .send = local_send,
    .recv = local_recv,
    .close = local_close,
    .destroy = local_destroy,
};

gw_status gw_link_local_create(gw_context *context, uint32_t size, gw_link *endpoints)
{
    if (!endpoints)
        return gw_fail(GW_ERR_ARGUMENT, "gw_link_local_create: endpoints is NULL");
    if (size == 0 || size > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "a link of %u members asked for; 1 to %u are possible", size, GW_MAX_WORKERS);
    memset(endpoints, 0, (size_t)size * sizeof *endpoints);
    struct hub *hub =
        gw_calloc(context, 1, sizeof *hub + (size_t)size * (sizeof hub->endpoints[0] + sizeof hub->gone[0]));
    if (!hub)
        return GW_ERR_MEMORY;
    pthread_mutex_init(&hub->lock, NULL); /* with these attributes locks and conditions cannot fail here */
    hub->gone = (uint32_t *)&hub->endpoints[size];
    hub->context = context;
    hub->made_in = gw_process_now();
    hub->size = size;
    atomic_init(&hub->holders, size);
    for (uint32_t r = 0; r < size; r++) {
        struct endpoint *endpoint = &hub->endpoints[r];
        endpoint->hub = hub;
        endpoint->rank = r;
        atomic_init(&endpoint->closed, false);
        pthread_mutex_init(&endpoint->lock, NULL);
        gw_clock_condition_init(&endpoint->arrived);
        endpoints[r] = (gw_link){.ops = &local_ops, .self = endpoint, .rank = r, .size = size};
    }
    return GW_OK;
}

gw_status gw_local_open(gw_context *context, const struct gw_link_request *request, uint32_t n_links, gw_link *links)
{
    const uint32_t size = request->size ? request->size : 1;
    for (uint32_t l = 0; l < n_links; l++)
        GW_TRY(gw_link_local_create(context, size, links + (size_t)l * size));
    return GW_OK;
}
