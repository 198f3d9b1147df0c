/* Moves messages over one TCP connection. What it reads is from outside: lengths are checked before memory is taken. */
#include "net/connection.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/memory.h"
#include "wire/bytes.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define MAGIC 0x314E5747u /* "GWN1" */
/* the most bytes that one call reads, so that no connection keeps the thread for itself */
#define READ_ONCE ((size_t)1 << 20)
/* After so many bytes of a body gw_net_next returns, though more have come. A read counts as LEAST_READ at least, else
 * TLS records of a byte would keep the thread. */
#define READ_TURN ((uint64_t)8 << 20)
#define LEAST_READ 16384

static uint8_t nowhere;
void *const gw_net_nowhere = &nowhere;

/* ---- from beginning to end ------------------------------------------------------------------------------ */

void gw_net_init(struct gw_net_connection *c, gw_context *context)
{
    *c = (struct gw_net_connection){.context = context, .fd = -1, .most_bytes = GW_NET_SMALL};
}

static void drop_first(struct gw_net_connection *c)
{
    struct gw_net_parcel *parcel = c->first;
    c->first = parcel->next;
    if (!c->first)
        c->last = NULL;
    c->n_waiting--;
    if (parcel->release)
        parcel->release(parcel->owner);
    if (parcel != &c->spare)
        gw_free(c->context, parcel);
}

static void drop_all(struct gw_net_connection *c)
{
    while (c->first)
        drop_first(c);
}

void gw_net_close(struct gw_net_connection *c)
{
    drop_all(c);
    gw_net_tls_free(c->tls);
    c->tls = NULL;
    if (c->fd >= 0)
        gw_fd_drop(c->fd);
    c->fd = -1;
    c->watched = 0;
    c->connected = c->has_next = false;
    c->ahead_at = c->ahead_end = 0;
}

gw_status gw_net_adopt(struct gw_net_connection *c, int fd, struct gw_net_keys *keys, const char *host, bool dialled)
{
    gw_net_close(c);
    c->fd = fd;
    c->dialled = dialled;
    c->peer = (struct gw_net_address){.host = "unknown", .place = "unknown"};
    c->error = 0;
    c->body = NULL;
    c->cannot_send = false;
    c->refusal = GW_NET_NO_REFUSAL;
    if (keys && gw_net_tls_new(keys, fd, dialled, host, &c->tls) < 0) {
        gw_net_close(c);
        c->error = ENOMEM;
        return GW_ERR_MEMORY;
    }
    if (!dialled)
        gw_ignore(gw_net_address_of_socket(fd, true, &c->peer)); /* if it fails, the connection has ended already */
    return GW_OK;
}

gw_status gw_net_dial(struct gw_net_connection *c, const struct gw_net_address *address, struct gw_net_keys *keys,
                      const char *host, uint32_t ms)
{
    const int fd = gw_fd_socket(address->socket.any.sa_family);
    if (fd < 0 || (connect(fd, &address->socket.any, address->socket_bytes) != 0 && errno != EINPROGRESS)) {
        c->error = errno;
        c->refusal = GW_NET_NO_REFUSAL;
        if (fd >= 0)
            gw_fd_drop(fd);
        return GW_ERR_PEER;
    }
    gw_net_tune(fd, ms);
    return gw_net_adopt(c, fd, keys, host, true);
}

void gw_net_end_sending(struct gw_net_connection *c)
{
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_WR);
}

/* The connection is over. Returns GW_ERR_PEER; the caller has set the sentence, or none is needed. */
static gw_status ended(struct gw_net_connection *c, int error)
{
    if (c->gathers) /* what was said before still leaves */
        gw_ignore(gw_net_flush(c));
    c->error = error;
    c->refusal = c->tls ? c->tls->refusal : GW_NET_NO_REFUSAL;
    c->connected = false;
    return GW_ERR_PEER;
}

/* The same, with the sentence of an errno; 0: the other side has ended it in order. */
static gw_status broken(struct gw_net_connection *c, int error)
{
    gw_fail(GW_ERR_PEER, "%s", error ? strerror(error) : "the connection has ended");
    return ended(c, error);
}

uint32_t gw_net_events(const struct gw_net_connection *c)
{
    const bool writes = c->connected ? c->first != NULL : c->tls ? c->tls->wants_write : c->dialled;
    return EPOLLIN | (writes ? EPOLLOUT : 0);
}

void gw_net_watch(struct gw_net_connection *c, int epoll, epoll_data_t data)
{
    const uint32_t events = gw_net_events(c);
    if (events == c->watched || c->fd < 0)
        return;
    struct epoll_event event = {.events = events, .data = data};
    epoll_ctl(epoll, c->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &event);
    c->watched = events;
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
    if (error)
        return broken(c, error);
    struct sockaddr_storage peer;
    bytes = sizeof peer;
    if (getpeername(c->fd, (struct sockaddr *)&peer, &bytes) != 0) /* still connecting */
        return GW_NOT_YET;
    if (c->dialled && is_own(c, &peer, bytes)) {
        gw_fail(GW_ERR_PEER, "nobody listens there");
        return ended(c, ECONNREFUSED);
    }
    const gw_status status = c->tls ? gw_net_tls_handshake(c->tls) : GW_OK;
    if (status < 0)
        return ended(c, c->tls->error);
    c->connected = status == GW_OK;
    return status;
}

/* ---- reading --------------------------------------------------------------------------------------------- */

/* Reads some bytes. from_socket false: only those that TLS has received before. *n_read 0: none have come. Errors:
 * GW_ERR_PEER. */
static gw_status read_some(struct gw_net_connection *c, void *to, size_t n_bytes, bool from_socket, size_t *n_read)
{
    *n_read = 0;
    if (n_bytes > READ_ONCE)
        n_bytes = READ_ONCE;
    if (c->tls) {
        gw_status status = gw_net_tls_read(c->tls, to, n_bytes, from_socket, n_read);
        if (status < 0)
            return ended(c, c->tls->error);
    } else if (from_socket) {
        const ssize_t n = recv(c->fd, to, n_bytes, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return broken(c, n == 0 ? 0 : errno);
        *n_read = n > 0 ? (size_t)n : 0;
    }
    return GW_OK;
}

static struct gw_net_message message_at(struct gw_net_connection *c)
{
    uint8_t *at = c->ahead + c->ahead_at;
    const uint16_t n_header = gw_get16(at + 10);
    return (struct gw_net_message){.kind = gw_get16(at + 8),
                                   .header = at + GW_NET_HEAD,
                                   .n_header = n_header,
                                   .bytes = c->body ? c->body : at + GW_NET_HEAD + n_header,
                                   .n_bytes = (size_t)gw_get64(at) - n_header,
                                   .is_small = !c->body};
}

/* TLS begins with the type of a record, a handshake or an alert, and its version. */
static bool is_tls(const struct gw_net_connection *c)
{
    const uint8_t *at = c->ahead + c->ahead_at;
    return !c->tls && c->ahead_end - c->ahead_at >= 2 && (at[0] == 0x15 || at[0] == 0x16) && at[1] == 3;
}

/* The other side has sent what no head can be, or half of an alert. */
static gw_status not_ours(struct gw_net_connection *c)
{
    const bool met_tls = is_tls(c);
    ended(c, EPROTO);
    c->refusal = met_tls ? GW_NET_MET_TLS : GW_NET_NO_REFUSAL;
    return gw_fail(GW_ERR_PEER, met_tls ? "it speaks TLS" : "it does not speak as Gradwire does");
}

/* Looks whether the bytes read ahead have a whole small message, or the beginning of a long one. */
static gw_status look_ahead(struct gw_net_connection *c, struct gw_net_message *message)
{
    const uint32_t n = c->ahead_end - c->ahead_at;
    const uint8_t *at = c->ahead + c->ahead_at;
    if (n < GW_NET_HEAD)
        return GW_NOT_YET;
    const uint64_t n_bytes = gw_get64(at);
    const uint16_t n_header = gw_get16(at + 10);
    if (gw_get32(at + 12) != MAGIC || n_header > c->most_header || n_header > n_bytes)
        return not_ours(c);
    if (n_bytes > c->most_bytes) {
        gw_fail(GW_ERR_PEER, "it sent a message of %llu bytes; it may send %llu at most", (unsigned long long)n_bytes,
                (unsigned long long)c->most_bytes);
        return ended(c, EMSGSIZE);
    }
    if (n - GW_NET_HEAD < (n_bytes <= GW_NET_SMALL ? n_bytes : n_header))
        return GW_NOT_YET;
    *message = message_at(c);
    if (n_bytes <= GW_NET_SMALL) {
        c->has_next = true;
        return GW_OK;
    }
    message->bytes = NULL;
    message->is_small = false;
    uint8_t *body = c->place ? c->place(c->place_user, message) : NULL;
    if (!body)
        return GW_ERR_MEMORY;
    const uint32_t n_head = GW_NET_HEAD + n_header;
    c->body = body;
    c->body_bytes = n_bytes - n_header;
    c->body_at = n - n_head; /* less than all of it, because it is longer than what was read ahead */
    if (body != gw_net_nowhere)
        memcpy(body, at + n_head, c->body_at);
    c->ahead_end = c->ahead_at + n_head; /* the header stays */
    return GW_NOT_YET;
}

/* Reads on in a long body. */
static gw_status read_body(struct gw_net_connection *c, bool from_socket, size_t *n)
{
    static _Thread_local uint8_t scrap[16384];
    const uint64_t left = c->body_bytes - c->body_at;
    if (c->body != gw_net_nowhere)
        return read_some(c, c->body + c->body_at, (size_t)left, from_socket, n);
    return read_some(c, scrap, left < sizeof scrap ? (size_t)left : sizeof scrap, from_socket, n);
}

gw_status gw_net_next(struct gw_net_connection *c, struct gw_net_message *message)
{
    for (uint64_t n_read = 0;;) {
        if (!c->body) {
            gw_status status = look_ahead(c, message);
            if (status != GW_NOT_YET)
                return status;
        }
        if (c->body && c->body_at == c->body_bytes) {
            *message = message_at(c);
            c->has_next = true;
            return GW_OK;
        }
        if (!c->connected)
            return GW_ERR_PEER;
        size_t n;
        if (c->body) {
            /* what TLS has received must be read, because epoll does not know of it */
            GW_TRY(read_body(c, n_read < READ_TURN, &n));
            c->body_at += n;
            n_read += n > LEAST_READ ? n : LEAST_READ;
        } else {
            if (c->ahead_at > 0) {
                memmove(c->ahead, c->ahead + c->ahead_at, c->ahead_end - c->ahead_at);
                c->ahead_end -= c->ahead_at;
                c->ahead_at = 0;
            }
            const gw_status status = read_some(c, c->ahead + c->ahead_end, GW_NET_AHEAD - c->ahead_end, true, &n);
            if (status < 0)
                return c->error == 0 && is_tls(c) ? not_ours(c) : status;
            c->ahead_end += (uint32_t)n;
        }
        if (n == 0)
            return GW_NOT_YET;
    }
}

bool gw_net_has_more(const struct gw_net_connection *c)
{
    return (!c->body && c->ahead_end > c->ahead_at) || (c->tls && c->connected && gw_net_tls_has_more(c->tls));
}

void gw_net_consume(struct gw_net_connection *c)
{
    if (!c->has_next)
        return;
    c->has_next = false;
    if (c->body)
        c->ahead_at = c->ahead_end; /* only the header of this message was there */
    else
        c->ahead_at += GW_NET_HEAD + (uint32_t)gw_get64(c->ahead + c->ahead_at);
    c->body = NULL;
    if (c->ahead_at == c->ahead_end)
        c->ahead_at = c->ahead_end = 0;
}

/* ---- writing --------------------------------------------------------------------------------------------- */

/* Writes some of what is left of a parcel, in the clear. *n_written 0: the kernel takes nothing now. */
static gw_status write_clear(int fd, struct gw_net_parcel *parcel, size_t *n_written)
{
    const size_t of_head = parcel->n_sent < parcel->n_head ? parcel->n_sent : parcel->n_head;
    const size_t of_bytes = parcel->n_sent - of_head; /* so much was sent before of each */
    struct iovec parts[] = {{parcel->head + of_head, parcel->n_head - of_head},
                            {(void *)((uintptr_t)parcel->bytes + of_bytes), parcel->n_bytes - of_bytes}};
    const struct msghdr both = {.msg_iov = parts, .msg_iovlen = 2};
    const ssize_t n = sendmsg(fd, &both, MSG_NOSIGNAL);
    *n_written = n > 0 ? (size_t)n : 0;
    return n < 0 && errno != EAGAIN ? GW_ERR_PEER : GW_OK;
}

/* Writes what is left of a parcel, as far as the kernel takes it. */
static gw_status write_some(struct gw_net_connection *c, struct gw_net_parcel *parcel)
{
    while (parcel->n_sent < parcel->n_head + parcel->n_bytes) {
        size_t n_written;
        const gw_status status = c->tls ? gw_net_tls_write(c->tls, parcel->head, parcel->n_head, parcel->bytes,
                                                           parcel->n_bytes, parcel->n_sent, &n_written)
                                        : write_clear(c->fd, parcel, &n_written);
        c->cannot_send = status < 0;
        if (status < 0 || n_written == 0)
            return status < 0 ? status : GW_NOT_YET;
        parcel->n_sent += n_written;
    }
    return GW_OK;
}

/* True if the connection will send nothing more. */
static bool is_dead(const struct gw_net_connection *c)
{
    return c->fd < 0 || c->cannot_send || (!c->connected && c->error);
}

gw_status gw_net_flush(struct gw_net_connection *c)
{
    if (is_dead(c))
        return GW_ERR_PEER;
    if (!c->connected)
        return GW_NOT_YET;
    while (c->first) {
        const gw_status status = write_some(c, c->first);
        if (status < 0)
            drop_all(c);
        if (status != GW_OK)
            return status;
        drop_first(c);
    }
    return GW_OK;
}

/* A parcel at the end of those that wait. n_head: the room for its head. NULL: there is no memory. If nothing waits,
 * it is the spare one. So a message that goes out at once needs no memory. */
static struct gw_net_parcel *new_parcel(struct gw_net_connection *c, size_t n_head)
{
    struct gw_net_parcel *parcel =
        c->first ? gw_alloc(c->context, 1, offsetof(struct gw_net_parcel, head) + n_head) : &c->spare;
    if (!parcel)
        return NULL;
    parcel->next = NULL;
    parcel->bytes = NULL;
    parcel->n_bytes = parcel->n_head = parcel->n_sent = 0;
    parcel->release = NULL;
    *(c->last ? &c->last->next : &c->first) = parcel;
    c->last = parcel;
    c->n_waiting++;
    return parcel;
}

gw_status gw_net_send_with(struct gw_net_connection *c, uint16_t kind, const void *header, size_t n_header,
                           const void *bytes, size_t n_bytes, void (*release)(void *owner), void *owner)
{
    struct gw_net_parcel *parcel = &c->spare;
    const bool copies = (c->gathers || !release) && n_header + n_bytes <= GW_NET_MOST_HEADER;
    const size_t n_head = GW_NET_HEAD + n_header + (copies ? n_bytes : 0);
    gw_status status = GW_OK;
    /* Messages that gather lie in the head of the spare parcel. */
    const bool joins = c->gathers && copies && c->last == parcel && parcel->n_sent == 0 && parcel->n_bytes == 0 &&
                       n_head <= sizeof parcel->head - parcel->n_head;
    if (c->gathers && c->first && !joins)
        gw_ignore(gw_net_flush(c));
    if (is_dead(c))
        status = GW_ERR_PEER;
    else if (!joins && !(parcel = new_parcel(c, n_head)))
        status = GW_ERR_MEMORY;
    if (status < 0) {
        if (release)
            release(owner);
        return status;
    }
    uint8_t *at = parcel->head + parcel->n_head;
    gw_put64(at, n_header + n_bytes);
    gw_put16(at + 8, kind);
    gw_put16(at + 10, (uint16_t)n_header);
    gw_put32(at + 12, MAGIC);
    if (n_header)
        memcpy(at + GW_NET_HEAD, header, n_header);
    if (copies && n_bytes)
        memcpy(at + GW_NET_HEAD + n_header, bytes, n_bytes);
    parcel->n_head += n_head;
    if (copies && release) {
        release(owner);
    } else if (!copies) {
        parcel->bytes = bytes;
        parcel->n_bytes = n_bytes;
        parcel->release = release;
        parcel->owner = owner;
    }
    if (c->first == parcel && c->connected && !(c->gathers && copies))
        status = gw_net_flush(c);
    return status == GW_NOT_YET ? GW_OK : status;
}

gw_status gw_net_send(struct gw_net_connection *c, uint16_t kind, const void *bytes, size_t n_bytes)
{
    return gw_net_send_with(c, kind, NULL, 0, bytes, n_bytes, NULL, NULL);
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
