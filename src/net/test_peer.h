/* A raw TCP connection for tests: it sends and receives messages of net/connection.h by hand, and anything else. It
 * waits, for PEER_SECONDS at most. */
#ifndef GW_NET_TEST_PEER_H
#define GW_NET_TEST_PEER_H

#include "net/connection.h"
#include "outcome.h"
#include "wire/bytes.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define PEER_SECONDS 60

/* What came: the head of a message, its header, and its body. What is longer is dropped. */
struct peer_message {
    uint16_t kind;
    uint8_t header[GW_NET_MOST_HEADER];
    size_t n_header;
    uint64_t n_bytes; /* of the body */
    uint8_t body[GW_NET_SMALL];
};

static inline void peer_patience(int fd, int seconds)
{
    const struct timeval t = {.tv_sec = seconds};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
}

/* Two ends of one connection; the first has dialled `host`. keys: of each; NULL: in the clear. Returns what the
 * handshake came to. */
static inline gw_status peer_pair(struct gw_net_connection *const ends[2], struct gw_net_keys *const keys[2],
                                  const char *host)
{
    gw_status status[2] = {GW_NOT_YET, GW_NOT_YET};
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    for (int i = 0; i < 2; i++) {
        gw_net_init(ends[i], NULL);
        ok(gw_net_adopt(ends[i], fds[i], keys[i], i == 0 ? host : NULL, i == 0));
    }
    for (int turn = 0; turn < 20 && status[turn % 2] >= 0; turn++) {
        status[turn % 2] = gw_net_establish(ends[turn % 2]);
        if (status[turn % 2] < 0)
            return status[turn % 2];
    }
    return status[0] == GW_OK ? status[1] : status[0];
}

/* A place is "127.0.0.1:PORT". */
static inline struct sockaddr_in peer_address(const char *place)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)atoi(strrchr(place, ':') + 1)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* Listens at a place. If its port is 0, that becomes a free one. What it accepts is as patient. */
static inline int peer_listen(char place[32])
{
    struct sockaddr_in own = peer_address(place);
    socklen_t n = sizeof own;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    peer_patience(fd, PEER_SECONDS);
    assert_true(bind(fd, (const struct sockaddr *)&own, n) == 0 && listen(fd, 8) == 0 &&
                getsockname(fd, (struct sockaddr *)&own, &n) == 0);
    snprintf(place, 32, "127.0.0.1:%u", ntohs(own.sin_port));
    return fd;
}

/* Connects to a place from 127.0.0.host. Below 0: nobody listens there, or there is no descriptor. The kernel's buffer
 * keeps its size (128 KiB, if nobody reads). With one that is set before connect, the two sides count windows in
 * different units, and Linux 6.18 drops the segments that say there is room again: both wait until they give up. */
static inline int peer_try(const char *place, uint8_t host)
{
    const struct sockaddr_in to = peer_address(place);
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    peer_patience(fd, PEER_SECONDS);
    if (bind(fd, (const struct sockaddr *)&own, sizeof own) == 0 &&
        connect(fd, (const struct sockaddr *)&to, sizeof to) == 0)
        return fd;
    close(fd);
    return -1;
}

static inline int peer_connect(const char *place)
{
    const int fd = peer_try(place, 1);
    assert_true(fd >= 0);
    return fd;
}

/* Sends bytes. false: the other side has ended the connection. */
static inline bool peer_pour(int fd, const void *bytes, size_t n_bytes)
{
    for (size_t sent = 0; sent < n_bytes;) {
        const ssize_t n = send(fd, (const uint8_t *)bytes + sent, n_bytes - sent, MSG_NOSIGNAL);
        assert_true(n >= 0 || errno == ECONNRESET || errno == EPIPE); /* else nothing was taken in time */
        if (n < 0)
            return false;
        sent += (size_t)n;
    }
    return true;
}

/* Writes the 16 bytes before a message. */
static inline void peer_head(uint8_t head[GW_NET_HEAD], uint16_t kind, size_t n_header, uint64_t n_bytes)
{
    gw_put64(head, n_header + n_bytes);
    gw_put16(head + 8, kind);
    gw_put16(head + 10, (uint16_t)n_header);
    memcpy(head + 12, "GWN1", 4);
}

static inline bool peer_send(int fd, uint16_t kind, const void *header, size_t n_header, const void *body,
                             size_t n_bytes)
{
    uint8_t head[GW_NET_HEAD + GW_NET_MOST_HEADER];
    peer_head(head, kind, n_header, n_bytes);
    if (n_header)
        memcpy(head + GW_NET_HEAD, header, n_header);
    return peer_pour(fd, head, GW_NET_HEAD + n_header) && peer_pour(fd, body, n_bytes);
}

/* Reads so many bytes. false: the other side has ended the connection. bytes NULL: they are dropped. */
static inline bool peer_read(int fd, void *bytes, uint64_t n_bytes)
{
    uint8_t scrap[16384];
    for (uint64_t at = 0; at < n_bytes;) {
        const uint64_t left = n_bytes - at;
        const ssize_t n = bytes ? recv(fd, (uint8_t *)bytes + at, (size_t)left, 0)
                                : recv(fd, scrap, left < sizeof scrap ? (size_t)left : sizeof scrap, 0);
        assert_true(n >= 0 || errno == ECONNRESET || errno == EPIPE); /* else nothing came in time */
        if (n <= 0)
            return false;
        at += (uint64_t)n;
    }
    return true;
}

/* The next message. false: the other side has ended the connection. */
static inline bool peer_hear(int fd, struct peer_message *m)
{
    uint8_t head[GW_NET_HEAD];
    if (!peer_read(fd, head, sizeof head))
        return false;
    assert_memory_equal(head + 12, "GWN1", 4);
    m->kind = gw_get16(head + 8);
    m->n_header = gw_get16(head + 10);
    assert_true(m->n_header <= sizeof m->header);
    m->n_bytes = gw_get64(head) - m->n_header;
    const uint64_t first = m->n_bytes < sizeof m->body ? m->n_bytes : sizeof m->body;
    return peer_read(fd, m->header, m->n_header) && peer_read(fd, m->body, first) &&
           peer_read(fd, NULL, m->n_bytes - first);
}

/* From here on the kernel drops what comes to this socket, and acknowledges nothing: as if its machine were gone. */
static inline void peer_falls_silent(int fd)
{
    struct sock_filter nothing = {.code = BPF_RET | BPF_K, .k = 0};
    const struct sock_fprog filter = {1, &nothing};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter), 0);
}

/* True if the other side has ended the connection. What it still sends is dropped. */
static inline bool peer_is_out(int fd)
{
    return !peer_read(fd, NULL, UINT64_MAX);
}

#endif
