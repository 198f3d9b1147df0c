/* Accepts connections, and bounds what newcomers can take. */
#include "net/listener.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/memory.h"
#include "base/quote.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection that is younger stays, so that it has time to say who it is: in the clear that takes one way through the
 * network, with TLS three ways and two signatures. */
#define CHANCE_SECONDS 0.25
#define CHANCE_SECONDS_TLS 1.0
#define PAUSE_SECONDS 0.05 /* if there is no room, or no descriptor */
#define TELL_SECONDS 5.0   /* between two lines of the log about it */
#define REFUSED_SECONDS 10.0
#define LISTENING UINT32_MAX
#define BACKLOG 4096

/* ---- beginning and end ----------------------------------------------------------------------------------- */

gw_status gw_net_listener_open(struct gw_net_listener *listener, const struct gw_net_listener_options *options)
{
    *listener = (struct gw_net_listener){.o = *options, .epoll = -1, .fd = -1};
    listener->newcomers = gw_calloc(options->context, options->most, sizeof *listener->newcomers);
    if (!listener->newcomers)
        return GW_ERR_MEMORY;
    listener->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (listener->epoll < 0)
        return gw_fail(GW_ERR_SYSTEM, "no epoll for a listener: %s", strerror(errno));
    return GW_OK;
}

void gw_net_turn_out(struct gw_net_newcomer *newcomer)
{
    gw_net_close(&newcomer->c);
    newcomer->since = 0;
    newcomer->leaves = false;
}

void gw_net_listener_close(struct gw_net_listener *listener)
{
    for (uint32_t i = 0; listener->newcomers && i < listener->o.most; i++)
        if (listener->newcomers[i].since != 0)
            gw_net_turn_out(&listener->newcomers[i]);
    if (listener->newcomers && listener->fd >= 0)
        gw_fd_drop(listener->fd);
    if (listener->newcomers && listener->epoll >= 0)
        close(listener->epoll);
    listener->epoll = listener->fd = -1;
    gw_free(listener->o.context, listener->newcomers);
    listener->newcomers = NULL;
}

static void watch(struct gw_net_listener *listener, int operation, int fd, uint32_t events, uint32_t number)
{
    struct epoll_event event = {.events = events, .data.u32 = number};
    epoll_ctl(listener->epoll, operation, fd, &event);
}

static void watch_newcomer(const struct gw_net_listener *listener, struct gw_net_newcomer *newcomer)
{
    gw_net_watch(&newcomer->c, listener->epoll, (epoll_data_t){.u32 = (uint32_t)(newcomer - listener->newcomers)});
}

gw_status gw_net_listen(struct gw_net_listener *listener, const struct gw_net_address *address,
                        struct gw_net_address *own)
{
    const int yes = 1;
    const int fd = gw_fd_socket(address->socket.any.sa_family);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd >= 0 && address->socket.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (fd < 0 || bind(fd, &address->socket.any, address->socket_bytes) != 0 || listen(fd, BACKLOG) != 0 ||
        gw_net_address_of_socket(fd, false, own) < 0) {
        if (fd >= 0)
            gw_fd_drop(fd);
        return gw_fail(GW_ERR_SYSTEM, "this machine cannot listen at %s: %s", address->place, strerror(errno));
    }
    listener->fd = fd;
    watch(listener, EPOLL_CTL_ADD, fd, EPOLLIN, LISTENING);
    return GW_OK;
}

/* ---- room ------------------------------------------------------------------------------------------------ */

/* Stops accepting until then; 0: accepts again. */
static void pause_accepting(struct gw_net_listener *listener, double until)
{
    watch(listener, EPOLL_CTL_MOD, listener->fd, until == 0 ? EPOLLIN : 0, LISTENING);
    listener->accept_at = until;
}

static bool same_host(const union gw_net_socket *a, const union gw_net_socket *b)
{
    if (a->any.sa_family != b->any.sa_family)
        return false;
    return a->any.sa_family == AF_INET ? a->v4.sin_addr.s_addr == b->v4.sin_addr.s_addr
                                       : IN6_ARE_ADDR_EQUAL(&a->v6.sin6_addr, &b->v6.sin6_addr);
}

/* The newcomer that has waited longest, and long enough, of all or of one host. NULL: none has. *n: how many there are.
 */
static struct gw_net_newcomer *longest(struct gw_net_listener *listener, const union gw_net_socket *host, double now,
                                       uint32_t *n)
{
    struct gw_net_newcomer *oldest = NULL;
    *n = 0;
    for (uint32_t i = 0; i < listener->o.most; i++) {
        struct gw_net_newcomer *s = &listener->newcomers[i];
        if (s->since == 0 || (host && !same_host(&s->c.peer.socket, host)))
            continue;
        ++*n;
        if (!oldest || s->since < oldest->since)
            oldest = s;
    }
    const double chance = listener->o.keys ? CHANCE_SECONDS_TLS : CHANCE_SECONDS;
    return oldest && now >= oldest->since + chance ? oldest : NULL;
}

/* Room for a connection from a host. If the host has half of it already, or more, its own connections must make room.
 * is_full: there is room for no more than are there. NULL: none has waited long enough. */
static struct gw_net_newcomer *find_room(struct gw_net_listener *listener, const union gw_net_socket *host,
                                         bool is_full, double now)
{
    uint32_t n_own, n_all;
    struct gw_net_newcomer *own = longest(listener, host, now, &n_own);
    struct gw_net_newcomer *any = longest(listener, NULL, now, &n_all);
    const uint32_t most = is_full ? n_all : listener->o.most;
    const bool has_half = n_own >= (most + 1) / 2; /* if there is room for one, that is half */
    struct gw_net_newcomer *pushed_out = has_half ? own : any;
    if (!has_half && n_all < most)
        for (uint32_t i = 0; i < listener->o.most; i++)
            if (listener->newcomers[i].since == 0)
                return &listener->newcomers[i];
    if (pushed_out) {
        gw_net_turn_out(pushed_out);
        listener->n_pushed_out++;
    }
    return pushed_out;
}

/* True if the descriptor is one of those that connections are to leave free. The kernel gives the lowest free one. */
static bool is_spare(const struct gw_net_listener *listener, int fd)
{
    struct rlimit limit;
    if (listener->o.spare_files == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    const rlim_t spare = listener->o.spare_files < limit.rlim_cur / 2 ? listener->o.spare_files : limit.rlim_cur / 2;
    return (rlim_t)fd >= limit.rlim_cur - spare;
}

/* Accepts one connection. false: there is none, or no room. */
static bool accept_one(struct gw_net_listener *listener, double now)
{
    union gw_net_socket host;
    uint32_t n;
    if (!longest(listener, NULL, now, &n) && n == listener->o.most) {
        pause_accepting(listener, now + PAUSE_SECONDS);
        return false;
    }
    int fd = gw_fd_accept(listener->fd, &host.any, sizeof host);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            listener->no_room = errno;
            pause_accepting(listener, now + PAUSE_SECONDS);
        }
        return errno == ECONNABORTED || errno == EINTR;
    }
    listener->no_room = 0;
    const bool spare = is_spare(listener, fd);
    struct gw_net_newcomer *newcomer = find_room(listener, &host, spare, now);
    if (newcomer && spare) /* it gets the descriptor of the one that made room */
        fd = gw_fd_move(fd);
    if (!newcomer || fd < 0) { /* it may come again */
        listener->n_pushed_out++;
        if (fd >= 0)
            gw_fd_drop(fd);
        return true;
    }
    gw_net_init(&newcomer->c, listener->o.context);
    gw_net_tune(fd, listener->o.timeout_ms);
    if (gw_net_adopt(&newcomer->c, fd, listener->o.keys, NULL, false) < 0)
        return true;
    newcomer->c.most_header = listener->o.most_header;
    newcomer->since = now;
    watch_newcomer(listener, newcomer);
    return true;
}

/* ---- work ------------------------------------------------------------------------------------------------ */

/* Says that a handshake failed. Whoever it is comes again and again, so the same line is not written twice in a row. */
static void tell_refusal(struct gw_net_listener *listener, const struct gw_net_connection *c)
{
    const char *host = c->peer.host;
    const double now = gw_clock_seconds();
    const char *of = listener->o.of;
    char why[512], refused[sizeof listener->refused];
    if (c->refusal == GW_NET_NOT_LISTED)
        snprintf(why, sizeof why, "%s", gw_last_error());
    else
        snprintf(why, sizeof why,
                 "it does not speak as this %s does; this %s has %skeys, and one that has %s would look like this", of,
                 of, listener->o.keys ? "" : "no ",
                 listener->o.keys ? "none, or takes this process for another," : "some");
    snprintf(refused, sizeof refused, "%s %s", host, why);
    if (strcmp(refused, listener->refused) == 0 && now < listener->refused_at + REFUSED_SECONDS)
        return;
    memcpy(listener->refused, refused, sizeof refused);
    listener->refused_at = now;
    gw_net_log(listener->o.log, "refused address=%s reason=\"%s\"", host, gw_quote(why).text);
}

/* One side speaks TLS and the other does not. So that it hears why, it gets an alert of TLS: fatal, handshake_failure.
 * A socket that is closed with bytes unread is reset, and the alert would be lost. */
static void tell_mismatch(int fd)
{
    uint8_t scrap[GW_NET_AHEAD];
    gw_ignore(send(fd, "\x15\x03\x03\0\x02\x02\x28", 7, MSG_NOSIGNAL | MSG_DONTWAIT));
    gw_ignore(recv(fd, scrap, sizeof scrap, MSG_DONTWAIT));
}

/* Lets one newcomer go on. True: it has sent its first message. */
static bool go_on(struct gw_net_listener *listener, struct gw_net_newcomer *newcomer, struct gw_net_message *message)
{
    struct gw_net_connection *c = &newcomer->c;
    gw_status status = gw_net_establish(c);
    if (status == GW_OK && newcomer->leaves) {
        /* What it still says is dropped. It may say more without end. The end comes when it has heard us, or closes. */
        uint8_t scrap[GW_NET_AHEAD];
        const ssize_t n = recv(c->fd, scrap, sizeof scrap, 0);
        status = gw_net_flush(c);
        if (n == 0 || status < 0 || gw_net_all_arrived(c))
            gw_net_turn_out(newcomer);
        else
            watch_newcomer(listener, newcomer);
        return false;
    }
    if (status == GW_OK)
        status = gw_net_next(c, message);
    if (status == GW_OK)
        return true;
    if (status < 0) {
        if (c->refusal || c->error == EPROTO || c->error == EMSGSIZE)
            tell_refusal(listener, c);
        if (c->refusal == GW_NET_MET_TLS || c->refusal == GW_NET_WITHOUT_TLS)
            tell_mismatch(c->fd);
        gw_net_turn_out(newcomer);
    } else {
        watch_newcomer(listener, newcomer);
    }
    return false;
}

/* Says how many connections were pushed out since the last line, if that was some time ago. */
static void tell_pushed_out(struct gw_net_listener *listener)
{
    const double now = gw_clock_seconds();
    const uint64_t n = listener->n_pushed_out - listener->n_told;
    if (n == 0 || (listener->told_at != 0 && now < listener->told_at + TELL_SECONDS))
        return;
    gw_net_log(listener->o.log,
               "refused n=%llu reason=\"too many connections have not said who they are, or not in time\"",
               (unsigned long long)n);
    listener->n_told += n;
    listener->told_at = now;
}

struct gw_net_newcomer *gw_net_listener_next(struct gw_net_listener *listener, struct gw_net_message *message)
{
    enum { AT_ONCE = 64, ROUNDS = 64 };
    struct epoll_event events[AT_ONCE];
    for (int round = 0; round < ROUNDS; round++) {
        const double now = gw_clock_seconds();
        if (listener->accept_at != 0 && now >= listener->accept_at)
            pause_accepting(listener, 0);
        for (uint32_t i = 0; i < listener->o.most; i++) {
            struct gw_net_newcomer *s = &listener->newcomers[i];
            if (s->since != 0 && now >= s->since + GW_NET_INTRODUCTION_SECONDS) {
                listener->n_pushed_out += !s->leaves;
                gw_net_turn_out(s);
            }
        }
        const int n = epoll_wait(listener->epoll, events, AT_ONCE, 0);
        if (n <= 0)
            break;
        for (int i = 0; i < n; i++) { /* who is there comes before who comes */
            struct gw_net_newcomer *s = &listener->newcomers[events[i].data.u32 % listener->o.most];
            if (events[i].data.u32 != LISTENING && s->since != 0 && go_on(listener, s, message))
                return s;
        }
        for (int i = 0; i < n; i++)
            for (int k = 0; events[i].data.u32 == LISTENING && k < AT_ONCE && listener->accept_at == 0; k++)
                if (!accept_one(listener, now))
                    break;
    }
    tell_pushed_out(listener);
    return NULL;
}

void gw_net_let_in(struct gw_net_listener *listener, struct gw_net_newcomer *newcomer, struct gw_net_connection *to)
{
    watch(listener, EPOLL_CTL_DEL, newcomer->c.fd, 0, 0);
    gw_net_consume(&newcomer->c);
    *to = newcomer->c; /* nothing waits to be sent to it, so nothing points into it */
    to->watched = 0;
    newcomer->since = 0;
}

void gw_net_refuse(struct gw_net_listener *listener, struct gw_net_newcomer *newcomer, uint16_t kind,
                   const void *header, size_t n_header, const void *bytes, size_t n_bytes)
{
    /* A connection on which nothing was sent has room for a short message. */
    if (gw_net_send_with(&newcomer->c, kind, header, n_header, bytes, n_bytes, NULL, NULL) < 0 || newcomer->c.first) {
        gw_net_turn_out(newcomer);
        return;
    }
    gw_net_consume(&newcomer->c);
    gw_net_end_sending(&newcomer->c);
    newcomer->leaves = true;
    watch_newcomer(listener, newcomer);
}
