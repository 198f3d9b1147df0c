/* Opens and ends groups of links: it checks the options, finds the addresses, lets the members meet, and says goodbye.
 */
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "link/tcp/state.h"

#include <gradwire/codec.h>

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define DEFAULT_TIMEOUT_MS 60000
#define LEAVE_SECONDS 2.0 /* the longest that the end waits until all that was sent has arrived */

/* ---- the end --------------------------------------------------------------------------------------------- */

/* Reads what a peer still sends, and drops it: a connection that is closed with bytes unread is reset. It returns now
 * and then, because a peer may send without end. false: the peer sends nothing more, because it ends as well, or has
 * died. */
static bool discard(int fd)
{
    enum { AT_ONCE = 256 };
    static _Thread_local uint8_t scrap[16384];
    ssize_t n = 1;
    for (int i = 0; i < AT_ONCE && n > 0; i++)
        n = recv(fd, scrap, sizeof scrap, MSG_DONTWAIT);
    return n > 0 || (n < 0 && errno == EAGAIN);
}

/* Waits until all that was sent has arrived. */
static void shut(struct gw_tcp_endpoint *me)
{
    const double end = gw_clock_seconds() + LEAVE_SECONDS;
    const uint32_t size = me->group->size;
    gw_tcp_close(me);
    for (bool waits = true; waits && gw_clock_seconds() < end;) {
        waits = false;
        for (uint32_t r = 0; r < size; r++) {
            struct gw_tcp_peer *peer = &me->peers[r];
            if (peer->c.fd < 0)
                continue;
            gw_ignore(gw_net_flush(&peer->c)); /* if that fails, nothing waits any more */
            if (!peer->c.first)
                gw_net_end_sending(&peer->c);
            waits = (discard(peer->c.fd) && !gw_net_all_arrived(&peer->c)) || waits;
        }
        if (waits)
            nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    }
}

static void free_endpoint(struct gw_tcp_endpoint *me)
{
    gw_context *context = me->group->context;
    for (uint32_t r = 0; me->peers && r < me->group->size; r++) {
        gw_message_free(me->peers[r].coming); /* it has not come whole */
        gw_net_close(&me->peers[r].c);
    }
    gw_message_queue_clear(&me->arrived);
    if (me->epoll >= 0)
        close(me->epoll);
    if (me->wake >= 0)
        close(me->wake);
    pthread_mutex_destroy(&me->lock);
    gw_free(context, me->peers);
}

/* Frees a group, also one that is not complete. */
static void free_group(struct gw_tcp_group *group)
{
    for (uint32_t l = 0; group->endpoints && l < group->n_links; l++)
        free_endpoint(&group->endpoints[l]);
    gw_net_listener_close(&group->listener);
    pthread_mutex_destroy(&group->lock);
    gw_net_keys_free(group->keys);
    gw_free(group->context, group->endpoints);
    gw_free(group->context, group->members);
    gw_free(group->context, group);
}

static void destroy(void *self)
{
    struct gw_tcp_endpoint *endpoint = self;
    struct gw_tcp_group *group = endpoint->group;
    if (!gw_process_is(group->made_in))
        return;
    const struct gw_kept_error kept = gw_error_keep();
    shut(endpoint);
    for (uint32_t r = 0; r < group->size; r++) /* the others see the end of this one now, not with the last link */
        gw_net_close(&endpoint->peers[r].c);
    if (atomic_fetch_sub_explicit(&group->holders, 1, memory_order_acq_rel) == 1)
        free_group(group);
    gw_error_put_back(&kept);
}

static const gw_link_ops ops = {
    .name = "tcp",
    .send = gw_tcp_send,
    .send_all = gw_tcp_send_all,
    .flush = gw_tcp_flush,
    .recv = gw_tcp_recv,
    .close = gw_tcp_close,
    .destroy = destroy,
};

const struct gw_link_loans *gw_link_loans_of(const gw_link *link)
{
    return link->ops == &ops ? &gw_tcp_loans : NULL;
}

/* ---- the beginning --------------------------------------------------------------------------------------- */

/* Finds the address where rank 0 listens. Containers start in any order and get their names when they start, and it
 * takes some time until all machines know a name. So an unknown name is looked up again until the deadline. A job of
 * one rank does not wait: nobody else will come. */
static gw_status find_rendezvous(const struct gw_link_request *options, uint32_t timeout_ms,
                                 struct gw_net_host *rendezvous)
{
    enum { PAUSES = 4 }; /* the pauses between two look-ups; before each one the program is asked whether to stop */
    const struct timespec pause = {.tv_nsec = (long)(GW_TCP_ASK_SECONDS * 1e9)};
    const double deadline = gw_clock_seconds() + timeout_ms / 1000.0;
    double left = timeout_ms / 1000.0;
    bool told = false;
    for (;;) {
        const struct gw_net_patience patience = {(uint32_t)(left * 1000), gw_tcp_go_on, options};
        const gw_status status = gw_net_host_parse("the rendezvous", options->rendezvous, false, &patience, rendezvous);
        if (!rendezvous->unknown || options->size == 1)
            return status;
        if (!told && options->log) {
            char line[GW_TCP_TEXT_BYTES];
            snprintf(line, sizeof line, "%s; asking again for %.0f s", gw_last_error(), timeout_ms / 1000.0);
            options->log(line, options->log_user);
        }
        told = true;
        /* The last pause lasts until the deadline: a look-up without time would say that, and not what is wrong. */
        for (int i = 0; i < PAUSES || left < GW_TCP_ASK_SECONDS; i++) {
            left = deadline - gw_clock_seconds();
            if (left <= 0)
                return status;
            GW_TRY(gw_tcp_go_on(options));
            nanosleep(&pause, NULL);
        }
    }
}

/* Finds the address where rank 0 listens for the meeting, and the one where this rank listens for the others. */
static gw_status find_addresses(const struct gw_link_request *options, uint32_t timeout_ms, struct gw_net_host *host,
                                struct gw_net_address *own)
{
    const struct gw_net_address *rendezvous = host->addresses;
    GW_TRY(find_rendezvous(options, timeout_ms, host));
    if (options->advertise)
        GW_TRY(gw_net_address_of_host(options->advertise, own));
    else
        GW_TRY(gw_net_address_towards(rendezvous, own));
    if (options->keys || options->insecure || (rendezvous->loopback && own->loopback))
        return GW_OK;
    const struct gw_net_address *open = rendezvous->loopback ? own : rendezvous;
    return gw_fail(GW_ERR_ARGUMENT,
                   "%s is not a loopback address, and there are no keys: anybody could read and send messages; give "
                   "keys (--keys DIR), or say that you trust the network (--insecure)",
                   open->place);
}

static gw_status open_endpoint(struct gw_tcp_group *group, struct gw_tcp_endpoint *me)
{
    me->epoll = epoll_create1(EPOLL_CLOEXEC);
    me->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (me->epoll < 0 || me->wake < 0)
        return gw_fail(GW_ERR_SYSTEM, "no epoll or eventfd for the tcp link: %s", strerror(errno));
    me->peers = gw_calloc(group->context, group->size, sizeof me->peers[0]);
    if (!me->peers)
        return GW_ERR_MEMORY;
    for (uint32_t r = 0; r < group->size; r++) {
        gw_net_init(&me->peers[r].c, group->context);
        TAILQ_INIT(&me->peers[r].expected);
        me->peers[r].dial_at = r < group->rank; /* at once, as soon as its address is known */
    }
    return GW_OK;
}

static gw_status set_up(struct gw_tcp_group *group, const struct gw_link_request *options)
{
    group->endpoints = gw_calloc(group->context, group->n_links, sizeof group->endpoints[0]);
    group->members = group->endpoints ? gw_calloc(group->context, group->size, sizeof group->members[0]) : NULL;
    for (uint32_t l = 0; group->endpoints && l < group->n_links; l++) {
        struct gw_tcp_endpoint *me = &group->endpoints[l];
        me->group = group;
        me->epoll = me->wake = -1;
        pthread_mutex_init(&me->lock, NULL);
    }
    if (!group->members)
        return GW_ERR_MEMORY;
    for (uint32_t l = 0; l < group->n_links; l++)
        GW_TRY(open_endpoint(group, &group->endpoints[l]));
    return options->keys ? gw_net_keys_load(group->context, options->keys, GW_NET_MEMBER, &group->log, &group->keys)
                         : GW_OK;
}

/* All have met: each endpoint watches its connections, and rank 0 goes on listening. */
static void begin(struct gw_tcp_group *group)
{
    const time_t now = time(NULL);
    struct tm utc;
    strftime(group->since, sizeof group->since, "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &utc));
    if (group->rank > 0)
        gw_net_listener_close(&group->listener);
    for (uint32_t l = 0; l < group->n_links; l++) {
        struct gw_tcp_endpoint *me = &group->endpoints[l];
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = GW_TCP_WAKE};
        epoll_ctl(me->epoll, EPOLL_CTL_ADD, me->wake, &event);
        event.data.u32 = GW_TCP_RENDEZVOUS;
        if (group->rank == 0)
            epoll_ctl(me->epoll, EPOLL_CTL_ADD, group->listener.epoll, &event);
        for (uint32_t r = 0; r < group->size; r++) {
            me->peers[r].c.watched = 0; /* the meeting's epoll did, and is no more */
            gw_net_watch(&me->peers[r].c, me->epoll, (epoll_data_t){.u32 = r});
        }
    }
}

gw_status gw_tcp_open(gw_context *context, const struct gw_link_request *options, uint32_t n_links, gw_link *links)
{
    struct gw_net_host rendezvous;
    struct gw_net_address own;
    if (options->size == 0 || options->size > GW_MAX_WORKERS)
        return gw_fail(GW_ERR_ARGUMENT, "a link of %u members asked for; 1 to %u are possible", options->size,
                       GW_MAX_WORKERS);
    const uint32_t timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    GW_TRY(find_addresses(options, timeout_ms, &rendezvous, &own));
    struct gw_tcp_group *group = gw_calloc(context, 1, sizeof *group);
    if (!group)
        return GW_ERR_MEMORY;
    *group = (struct gw_tcp_group){
        .context = context,
        .made_in = gw_process_now(),
        .rank = options->rank,
        .size = options->size,
        .n_links = n_links,
        .timeout_ms = timeout_ms,
        .spin_us = options->spin_us,
        .log = GW_NET_LOG_OF_NEWCOMERS(options->log, options->log_user),
        /* they come again and again, so one line in five seconds is enough */
        .log_of_late = {.line = options->log, .user = options->log_user, .most = 1, .a_second = 0.2}};
    atomic_init(&group->holders, n_links);
    pthread_mutex_init(&group->lock, NULL); /* with default attributes it cannot fail here */
    gw_status status = set_up(group, options);
    if (status == GW_OK)
        status = gw_tcp_meet(group, options, &rendezvous, &own);
    if (status < 0) {
        const struct gw_kept_error kept = gw_error_keep();
        free_group(group);
        gw_error_put_back(&kept);
        return status;
    }
    begin(group);
    for (uint32_t l = 0; l < n_links; l++)
        links[l] = (gw_link){.ops = &ops, .self = &group->endpoints[l], .rank = group->rank, .size = group->size};
    return GW_OK;
}

bool gw_tcp_version(char *text, size_t capacity)
{
    snprintf(text, capacity, "OpenSSL %s", OpenSSL_version(OPENSSL_VERSION_STRING));
    return true;
}
