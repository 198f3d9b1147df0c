/* Moves messages over one TCP connection. What it reads is from outside: lengths are checked before memory is taken. */
#include "net/connection.h"
#include "base/error.h"
#include "base/memory.h"
#include "net/tls.h"
#include "wire/bytes.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAGIC 0x314E5747u /* "GWN1" */
/* the most bytes that one call reads, so that no connection keeps the thread for itself */
#define READ_ONCE ((size_t)1 << 20)

/* ---- from beginning to end ------------------------------------------------------------------------------ */

gw_status gw_net_init(struct gw_net_connection *c, gw_context *context)
{
    *c = (struct gw_net_connection){.context = context, .fd = -1, .most_bytes = GW_NET_SMALL};
    c->ahead = gw_alloc(context, GW_NET_AHEAD, 1);
    return c->ahead ? GW_OK : GW_ERR_MEMORY;
}

static void drop_parcel(struct gw_net_connection *c, struct gw_net_parcel *parcel)
{
    if (parcel->release)
        parcel->release((void *)(uintptr_t)parcel->bytes);
    if (parcel == &c->spare)
        c->spare_is_used = false;
    else if (parcel != &c->words)
        gw_free(c->context, parcel);
}

static void drop_parcels(struct gw_net_connection *c)
{
    while (c->first) {
        struct gw_net_parcel *parcel = c->first;
        c->first = parcel->next;
        drop_parcel(c, parcel);
    }
    c->last = NULL;
}

void gw_net_close(struct gw_net_connection *c)
{
    drop_parcels(c);
    gw_net_tls_free(c->tls);
    c->tls = NULL;
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
    c->connected = c->has_next = false;
    c->ahead_at = c->ahead_end = 0;
}

void gw_net_free(struct gw_net_connection *c)
{
    if (!c->ahead)
        return;
    gw_net_close(c);
    gw_free(c->context, c->ahead);
    c->ahead = NULL;
}

void gw_net_adopt(struct gw_net_connection *c, int fd, struct gw_net_tls *tls, bool dialled)
{
    gw_net_close(c);
    c->fd = fd;
    c->tls = tls;
    c->dialled = dialled;
    socklen_t bytes = sizeof c->peer;
    memset(&c->peer, 0, sizeof c->peer);
    if (!dialled)
        getpeername(fd, (struct sockaddr *)&c->peer, &bytes); /* if it fails, the connection has ended already */
    c->error = 0;
    c->body = NULL;
    c->has_last_words = c->cannot_send = c->wants_read = false;
}

void gw_net_end_sending(struct gw_net_connection *c)
{
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_WR);
}

/* The connection is over. Returns GW_ERR_PEER; the caller has set the sentence, or none is needed. */
static gw_status ended(struct gw_net_connection *c, int error)
{
    c->error = error;
    c->connected = false;
    return GW_ERR_PEER;
}

uint32_t gw_net_events(const struct gw_net_connection *c)
{
    const bool writes = c->connected ? c->first != NULL && !c->wants_read
                                     : (c->tls && gw_net_tls_wants_write(c->tls)) || (c->dialled && !c->tls);
    return EPOLLIN | (writes ? EPOLLOUT : 0);
}

/* If nobody listens at a port that the kernel also gives to connections, one may come to connect to itself. */
static bool is_own(const struct gw_net_connection *c, const struct sockaddr_storage *peer, socklen_t peer_bytes)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    return peer->ss_family != AF_UNIX && getsockname(c->fd, (struct sockaddr *)&own, &bytes) == 0 &&
           bytes == peer_bytes && memcmp(&own, peer, bytes) == 0;
}

gw_status gw_net_establish(struct gw_net_connection *c)
{
    if (c->connected)
        return GW_OK;
    int error = 0;
    socklen_t bytes = sizeof error;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        error = errno;
    if (error) {
        gw_fail(GW_ERR_PEER, "%s", strerror(error));
        return ended(c, error);
    }
    struct sockaddr_storage peer;
    bytes = sizeof peer;
    if (getpeername(c->fd, (struct sockaddr *)&peer, &bytes) != 0) /* still connecting */
        return GW_NOT_YET;
    if (c->dialled && is_own(c, &peer, bytes)) {
        gw_fail(GW_ERR_PEER, "nobody listens there");
        return ended(c, ECONNREFUSED);
    }
    if (c->tls) {
        gw_status status = gw_net_tls_handshake(c->tls, c->fd);
        if (status < 0) {
            ended(c, gw_net_tls_errno(c->tls));
            return status;
        }
        if (status == GW_NOT_YET)
            return status;
    }
    c->connected = true;
    return GW_OK;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

/* Reads some bytes. Returns their number; 0: none have come. Errors: GW_ERR_PEER. */
static gw_status read_some(struct gw_net_connection *c, void *to, size_t n_bytes, size_t *n_read)
{
    *n_read = 0;
    if (n_bytes > READ_ONCE)
        n_bytes = READ_ONCE;
    if (c->tls) {
        gw_status status = gw_net_tls_read(c->tls, to, n_bytes, n_read);
        if (status < 0)
            return ended(c, gw_net_tls_errno(c->tls));
    } else {
        ssize_t n;
        do
            n = recv(c->fd, to, n_bytes, 0);
        while (n < 0 && errno == EINTR);
        if (n == 0) {
            gw_fail(GW_ERR_PEER, "the connection has ended");
            return ended(c, 0);
        }
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
            const int error = errno;
            gw_fail(GW_ERR_PEER, "%s", strerror(error));
            return ended(c, error);
        }
        *n_read = n > 0 ? (size_t)n : 0;
    }
    return GW_OK;
}

/* Looks whether the bytes read ahead have a whole small message, or the head of a long one. */
static gw_status look_ahead(struct gw_net_connection *c, struct gw_net_message *message)
{
    const uint32_t n = c->ahead_end - c->ahead_at;
    const uint8_t *at = c->ahead + c->ahead_at;
    if (n < GW_NET_HEAD)
        return GW_NOT_YET;
    const uint64_t n_bytes = gw_get64(at);
    const uint16_t kind = gw_get16(at + 8);
    if (gw_get32(at + 12) != MAGIC || gw_get16(at + 10) != 0) {
        gw_fail(GW_ERR_PEER, "it does not speak as Gradwire does");
        return ended(c, EPROTO);
    }
    if (n_bytes > c->most_bytes) {
        gw_fail(GW_ERR_PEER, "it sent a message of %llu bytes; it may send %llu at most", (unsigned long long)n_bytes,
                (unsigned long long)c->most_bytes);
        return ended(c, EMSGSIZE);
    }
    if (n_bytes <= GW_NET_SMALL) {
        if (n - GW_NET_HEAD < n_bytes)
            return GW_NOT_YET;
        *message = (struct gw_net_message){kind, c->ahead + c->ahead_at + GW_NET_HEAD, (size_t)n_bytes, true};
        c->has_next = true;
        return GW_OK;
    }
    uint8_t *body = c->place ? c->place(c->place_user, n_bytes) : NULL;
    if (!body)
        return GW_ERR_MEMORY;
    const uint32_t have = n - GW_NET_HEAD; /* less than n_bytes: all of it fits into the bytes read ahead */
    memcpy(body, at + GW_NET_HEAD, have);
    c->ahead_at = c->ahead_end = 0;
    c->body = body;
    c->body_bytes = n_bytes;
    c->body_at = have;
    c->body_kind = kind;
    return GW_NOT_YET;
}

gw_status gw_net_next(struct gw_net_connection *c, struct gw_net_message *message)
{
    for (;;) {
        if (!c->body) {
            gw_status status = look_ahead(c, message);
            if (status != GW_NOT_YET)
                return status;
        }
        if (c->body && c->body_at == c->body_bytes) {
            *message = (struct gw_net_message){c->body_kind, c->body, (size_t)c->body_bytes, false};
            c->has_next = true;
            return GW_OK;
        }
        if (!c->connected)
            return GW_ERR_PEER;
        size_t n;
        if (c->body) {
            GW_TRY(read_some(c, c->body + c->body_at, (size_t)(c->body_bytes - c->body_at), &n));
            c->body_at += n;
        } else {
            if (c->ahead_at > 0) {
                memmove(c->ahead, c->ahead + c->ahead_at, c->ahead_end - c->ahead_at);
                c->ahead_end -= c->ahead_at;
                c->ahead_at = 0;
            }
            GW_TRY(read_some(c, c->ahead + c->ahead_end, GW_NET_AHEAD - c->ahead_end, &n));
            c->ahead_end += (uint32_t)n;
        }
        if (n == 0)
            return GW_NOT_YET;
    }
}

bool gw_net_has_more(const struct gw_net_connection *c)
{
    return c->ahead_end > c->ahead_at || (c->tls && c->connected && gw_net_tls_has_more(c->tls));
}

void gw_net_consume(struct gw_net_connection *c)
{
    if (!c->has_next)
        return;
    c->has_next = false;
    if (c->body)
        c->body = NULL;
    else
        c->ahead_at += GW_NET_HEAD + (uint32_t)gw_get64(c->ahead + c->ahead_at);
    if (c->ahead_at == c->ahead_end)
        c->ahead_at = c->ahead_end = 0;
}

/* ---- writing --------------------------------------------------------------------------------------------- */

/* Writes what is left of a parcel, as far as the kernel takes it. */
static gw_status write_some(struct gw_net_connection *c, struct gw_net_parcel *parcel)
{
    while (parcel->n_sent < GW_NET_HEAD + parcel->n_bytes) {
        size_t n_written = 0;
        if (c->tls) {
            gw_status status = gw_net_tls_write(c->tls, parcel->head, parcel->bytes, parcel->n_bytes, parcel->n_sent,
                                                &n_written, &c->wants_read);
            if (status < 0) {
                c->cannot_send = true;
                return status;
            }
        } else {
            struct iovec parts[2];
            int n_parts = 0;
            if (parcel->n_sent < GW_NET_HEAD)
                parts[n_parts++] = (struct iovec){parcel->head + parcel->n_sent, GW_NET_HEAD - parcel->n_sent};
            const size_t done = parcel->n_sent > GW_NET_HEAD ? parcel->n_sent - GW_NET_HEAD : 0;
            if (parcel->n_bytes > done)
                parts[n_parts++] = (struct iovec){(uint8_t *)(uintptr_t)parcel->bytes + done, parcel->n_bytes - done};
            const struct msghdr all = {.msg_iov = parts, .msg_iovlen = (size_t)n_parts};
            ssize_t n;
            do
                n = sendmsg(c->fd, &all, MSG_NOSIGNAL);
            while (n < 0 && errno == EINTR);
            if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
                c->cannot_send = true;
                return GW_ERR_PEER;
            }
            n_written = n > 0 ? (size_t)n : 0;
        }
        if (n_written == 0)
            return GW_NOT_YET;
        parcel->n_sent += n_written;
    }
    return GW_OK;
}

gw_status gw_net_flush(struct gw_net_connection *c)
{
    if (c->fd < 0 || c->cannot_send || (!c->connected && c->error))
        return GW_ERR_PEER;
    if (!c->connected)
        return GW_NOT_YET;
    c->wants_read = false;
    while (c->first) {
        struct gw_net_parcel *parcel = c->first;
        gw_status status = write_some(c, parcel);
        if (status < 0)
            drop_parcels(c);
        if (status != GW_OK)
            return status;
        c->first = parcel->next;
        if (!c->first)
            c->last = NULL;
        drop_parcel(c, parcel);
    }
    return GW_OK;
}

static void queue(struct gw_net_connection *c, struct gw_net_parcel *parcel)
{
    parcel->next = NULL;
    if (c->last)
        c->last->next = parcel;
    else
        c->first = parcel;
    c->last = parcel;
}

static struct gw_net_parcel parcel_of(uint16_t kind, const void *bytes, size_t n_bytes, void (*release)(void *))
{
    struct gw_net_parcel parcel = {.bytes = bytes, .n_bytes = n_bytes, .release = release};
    gw_put64(parcel.head, n_bytes);
    gw_put16(parcel.head + 8, kind);
    gw_put32(parcel.head + 12, MAGIC);
    return parcel;
}

gw_status gw_net_send(struct gw_net_connection *c, uint16_t kind, void *bytes, size_t n_bytes, void (*release)(void *))
{
    struct gw_net_parcel parcel = parcel_of(kind, bytes, n_bytes, release);
    gw_status status = GW_NOT_YET;
    if (c->fd < 0 || c->cannot_send || c->has_last_words || (!c->connected && c->error))
        status = GW_ERR_PEER;
    else if (!c->first && c->connected)
        status = write_some(c, &parcel);
    if (status != GW_NOT_YET) {
        if (release)
            release(bytes);
        return status;
    }
    /* If nothing waits, nothing has taken the spare parcel. So a message that is partly sent always finds room. */
    struct gw_net_parcel *kept = c->spare_is_used ? gw_alloc(c->context, 1, sizeof *kept) : &c->spare;
    if (!kept) {
        if (release)
            release(bytes);
        return GW_ERR_MEMORY;
    }
    c->spare_is_used = c->spare_is_used || kept == &c->spare;
    *kept = parcel;
    queue(c, kept);
    return GW_OK;
}

void gw_net_send_last(struct gw_net_connection *c, uint16_t kind, const void *bytes, size_t n_bytes)
{
    if (c->fd < 0 || c->cannot_send || c->has_last_words)
        return;
    c->has_last_words = true;
    c->words = parcel_of(kind, bytes, n_bytes, NULL);
    queue(c, &c->words);
    gw_ignore(gw_net_flush(c));
}

/* ---- what the kernel knows ------------------------------------------------------------------------------- */

bool gw_net_all_arrived(const struct gw_net_connection *c)
{
    int n_under_way;
    return c->fd < 0 || c->error || (!c->first && (ioctl(c->fd, TIOCOUTQ, &n_under_way) != 0 || n_under_way == 0));
}

bool gw_net_is_silent(const struct gw_net_connection *c, uint32_t ms)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (c->fd < 0 || getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return false;
    return info.tcpi_unacked > 0 && info.tcpi_last_ack_recv > ms && info.tcpi_last_data_recv > ms;
}

struct gw_net_peer_name gw_net_name_peer(const struct gw_net_connection *c)
{
    struct gw_net_peer_name place = {"unknown"};
    char host[48], port[8];
    if (getnameinfo((const struct sockaddr *)&c->peer, sizeof c->peer, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(place.text, sizeof place.text, c->peer.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
    return place;
}

static void set(int fd, int level, int name, int value)
{
    setsockopt(fd, level, name, &value, sizeof value);
}

void gw_net_tune(int fd, uint32_t ms)
{
    enum { PROBES = 4 };
    const int every = (int)(ms / 1000 / (PROBES + 1));
    set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(fd, IPPROTO_TCP, TCP_KEEPIDLE, every > 0 ? every : 1);
    set(fd, IPPROTO_TCP, TCP_KEEPINTVL, every > 0 ? every : 1);
    set(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
}
