/* Turns "HOST:PORT" into a numeric address. Also finds the address at which others reach this machine. */
#include "net/address.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/threads.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert(offsetof(struct sockaddr_in, sin_port) == offsetof(struct sockaddr_in6, sin6_port), "one port for both");

#define ASK_SECONDS 0.25 /* between two questions whether a look-up shall go on */

/* for a name that this machine should know: its own */
static const struct gw_net_patience for_own_name = {.ms = 10000};

/* Fills `loopback`, `host` and `place` from the socket's address. Port 0 stands for any port. */
static gw_status describe(struct gw_net_address *address)
{
    char host[GW_NET_HOST_BYTES - 2], port[6]; /* without the brackets */
    int error = getnameinfo(&address->socket.any, address->socket_bytes, host, sizeof host, port, sizeof port,
                            NI_NUMERICHOST | NI_NUMERICSERV);
    if (error)
        return gw_fail(GW_ERR_SYSTEM, "an address cannot be written as numbers: %s", gai_strerror(error));
    const bool v6 = address->socket.any.sa_family == AF_INET6;
    address->loopback = v6 ? IN6_IS_ADDR_LOOPBACK(&address->socket.v6.sin6_addr)
                           : ntohl(address->socket.v4.sin_addr.s_addr) >> 24 == 127;
    snprintf(address->host, sizeof address->host, v6 ? "[%s]" : "%s", host);
    snprintf(address->place, sizeof address->place, "%s:%s", address->host, strcmp(port, "0") == 0 ? "*" : port);
    return GW_OK;
}

/* Adds the addresses of one family. If the first of all is a loopback address, only such ones: nobody has said that
 * the network may be used. */
static gw_status add(const struct addrinfo *found, int family, struct gw_net_host *host)
{
    for (const struct addrinfo *a = found; a && host->n_addresses < GW_NET_MOST_ADDRESSES; a = a->ai_next) {
        struct gw_net_address *address = &host->addresses[host->n_addresses];
        if (a->ai_family != family)
            continue;
        memset(address, 0, sizeof *address);
        memcpy(&address->socket, a->ai_addr, a->ai_addrlen);
        address->socket_bytes = a->ai_addrlen;
        GW_TRY(describe(address));
        host->n_addresses += address->loopback == host->addresses[0].loopback;
    }
    return GW_OK;
}

/* A look-up in a thread of its own. The caller may give up first. Who lets go of it last frees it. */
struct look_up {
    char name[GW_HOST_BYTES], port[6];
    struct addrinfo *found;
    int error, number; /* number: errno */
    pthread_mutex_t lock;
    pthread_cond_t over;
    int n_holders; /* the caller, and the thread until it has an answer */
};

/* The lock is held, and given away. */
static void let_go(struct look_up *l)
{
    const bool last = --l->n_holders == 0;
    pthread_mutex_unlock(&l->lock);
    if (!last)
        return;
    if (l->found)
        freeaddrinfo(l->found);
    pthread_cond_destroy(&l->over);
    pthread_mutex_destroy(&l->lock);
    gw_free(NULL, l);
}

static void *look_up_main(void *argument)
{
    struct look_up *l = argument;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    l->error = getaddrinfo(l->name, l->port, &hints, &l->found);
    l->number = errno;
    pthread_mutex_lock(&l->lock);
    pthread_cond_signal(&l->over);
    let_go(l);
    return NULL;
}

/* getaddrinfo, which by itself may wait for minutes. */
static gw_status look_up(const char *port, const struct gw_net_patience *patience, struct gw_net_host *host,
                         struct addrinfo **found)
{
    const double deadline = gw_clock_seconds() + patience->ms / 1000.0;
    const struct addrinfo numeric = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    gw_status status = GW_OK;
    pthread_t thread;
    if (getaddrinfo(host->name, port, &numeric, found) == 0)
        return GW_OK;
    struct look_up *l = gw_alloc(NULL, 1, sizeof *l);
    if (!l)
        return GW_ERR_MEMORY;
    *l = (struct look_up){.error = EAI_MEMORY}; /* so it stays if there is no thread */
    snprintf(l->name, sizeof l->name, "%s", host->name);
    snprintf(l->port, sizeof l->port, "%s", port);
    pthread_mutex_init(&l->lock, NULL); /* with default attributes neither can fail here */
    gw_clock_condition_init(&l->over);
    pthread_mutex_lock(&l->lock);
    l->n_holders = gw_thread_start(&thread, look_up_main, l) == 0 ? 2 : 1;
    if (l->n_holders == 2)
        pthread_detach(thread);
    while (l->n_holders == 2 && status == GW_OK) {
        const double left = deadline - gw_clock_seconds();
        const struct timespec until = gw_clock_after(fmin(fmax(left, 0), ASK_SECONDS));
        pthread_cond_timedwait(&l->over, &l->lock, &until);
        host->unknown = l->n_holders == 2 && left <= 0;
        if (host->unknown)
            status = gw_fail(GW_ERR_SYSTEM, "the host %s is not found: no name server has answered within %u ms",
                             host->name, patience->ms);
        else if (l->n_holders == 2 && patience->go_on)
            status = patience->go_on(patience->user);
    }
    if (status == GW_OK && l->error) {
        host->unknown = l->error == EAI_NONAME || l->error == EAI_AGAIN;
        status = gw_fail(l->error == EAI_MEMORY ? GW_ERR_MEMORY : GW_ERR_SYSTEM, "the host %s is not found: %s",
                         host->name, l->error == EAI_SYSTEM ? strerror(l->number) : gai_strerror(l->error));
    }
    if (status == GW_OK) {
        *found = l->found;
        l->found = NULL; /* the caller has it */
    }
    let_go(l);
    return status;
}

/* The first address is an IPv4 one if there is any. So every rank chooses the same family. */
static gw_status resolve(const char *port, const struct gw_net_patience *patience, struct gw_net_host *host)
{
    struct addrinfo *found;
    GW_TRY(look_up(port, patience, host, &found));
    host->n_addresses = 0;
    gw_status status = add(found, AF_INET, host);
    if (status == GW_OK)
        status = add(found, AF_INET6, host);
    freeaddrinfo(found);
    if (status == GW_OK && host->n_addresses == 0)
        return gw_fail(GW_ERR_SYSTEM, "the host %s has no address for TCP", host->name);
    return status;
}

gw_status gw_net_host_parse(const char *what, const char *text, bool any_port, const struct gw_net_patience *patience,
                            struct gw_net_host *host)
{
    char service[6];
    uint32_t port;
    host->unknown = false;
    if (!gw_host_split(text, host->name, &port))
        return gw_fail(GW_ERR_ARGUMENT, "%s is \"%s\", and must be HOST:PORT, an IPv6 address in brackets", what, text);
    if (port < (any_port ? 0 : 1) || port > 65535)
        return gw_fail(GW_ERR_ARGUMENT, "%s \"%s\" has port %u; ports are 1 to 65535", what, text, port);
    snprintf(service, sizeof service, "%u", (uint16_t)port);
    return resolve(service, patience, host);
}

gw_status gw_net_address_parse(const char *what, const char *text, bool any_port, struct gw_net_address *address)
{
    struct gw_net_host host;
    GW_TRY(gw_net_host_parse(what, text, any_port, &for_own_name, &host));
    *address = host.addresses[0];
    return GW_OK;
}

gw_status gw_net_address_of_host(const char *host, struct gw_net_address *address)
{
    struct gw_net_host found;
    if (!gw_host_copy(host, strlen(host), found.name))
        return gw_fail(GW_ERR_ARGUMENT, "the address to advertise is \"%s\", and must be a host or an address", host);
    GW_TRY(resolve("0", &for_own_name, &found));
    *address = found.addresses[0];
    return GW_OK;
}

gw_status gw_net_address_of_socket(int fd, bool of_peer, struct gw_net_address *address)
{
    memset(&address->socket, 0, sizeof address->socket);
    address->socket_bytes = sizeof address->socket;
    if ((of_peer ? getpeername : getsockname)(fd, &address->socket.any, &address->socket_bytes) != 0)
        return gw_fail(GW_ERR_SYSTEM, "a socket has no address: %s", strerror(errno));
    return describe(address);
}

gw_status gw_net_address_towards(const struct gw_net_address *there, struct gw_net_address *address)
{
    /* To connect a datagram socket sends nothing. It only asks which way packets would go. */
    int fd = socket(there->socket.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool ok = fd >= 0 && connect(fd, &there->socket.any, there->socket_bytes) == 0 &&
              gw_net_address_of_socket(fd, false, address) == GW_OK;
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (!ok)
        return gw_fail(GW_ERR_SYSTEM, "no way from this machine to %s: %s", there->place, strerror(error));
    address->socket.v4.sin_port = 0; /* that of IPv6 stands in the same place */
    return describe(address);
}

void gw_net_address_write(const struct gw_net_address *address, uint8_t out[GW_NET_ADDRESS_BYTES])
{
    const union gw_net_socket *from = &address->socket;
    const bool v6 = from->any.sa_family == AF_INET6;
    memset(out, 0, GW_NET_ADDRESS_BYTES);
    out[0] = v6 ? 6 : 4;
    memcpy(out + 2, &from->v4.sin_port, 2);
    memcpy(out + 4, v6 ? (const void *)&from->v6.sin6_addr : &from->v4.sin_addr, v6 ? 16 : 4);
}

bool gw_net_address_read(const uint8_t bytes[GW_NET_ADDRESS_BYTES], struct gw_net_address *address)
{
    union gw_net_socket *to = &address->socket;
    memset(address, 0, sizeof *address);
    if ((bytes[0] != 4 && bytes[0] != 6) || bytes[1] != 0 || (bytes[2] == 0 && bytes[3] == 0))
        return false;
    const bool v6 = bytes[0] == 6;
    to->any.sa_family = v6 ? AF_INET6 : AF_INET;
    memcpy(&to->v4.sin_port, bytes + 2, 2);
    memcpy(v6 ? (void *)&to->v6.sin6_addr : &to->v4.sin_addr, bytes + 4, v6 ? 16 : 4);
    address->socket_bytes = v6 ? sizeof to->v6 : sizeof to->v4;
    return describe(address) == GW_OK;
}
