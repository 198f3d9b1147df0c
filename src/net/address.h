/* Turns the addresses that options name into numbers. */
#ifndef GW_NET_ADDRESS_H
#define GW_NET_ADDRESS_H

#include "base/host.h"

#include <gradwire/status.h>

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define GW_NET_HOST_BYTES 64  /* room for "[address%interface]" and its end */
#define GW_NET_PLACE_BYTES 70 /* the same with ":port" */

union gw_net_socket {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct gw_net_address {
    union gw_net_socket socket;
    socklen_t socket_bytes;
    bool loopback;
    char host[GW_NET_HOST_BYTES];   /* "1.2.3.4" or "[::1]" */
    char place[GW_NET_PLACE_BYTES]; /* "1.2.3.4:5" or "[::1]:5"; any port is "*" */
};

/* A host that an option names, with all its addresses that a process could dial. */
#define GW_NET_MOST_ADDRESSES 8
struct gw_net_host {
    char name[GW_HOST_BYTES];
    bool unknown; /* the look-up failed because the name is not known, or not yet */
    uint32_t n_addresses;
    struct gw_net_address addresses[GW_NET_MOST_ADDRESSES]; /* IPv4 first; else in the resolver's order */
};

/* Its addresses by turns. */
static inline const struct gw_net_address *gw_net_host_nth(const struct gw_net_host *host, uint32_t nth)
{
    return &host->addresses[nth % host->n_addresses];
}

/* How long a name is looked up. */
struct gw_net_patience {
    uint32_t ms; /* at most */
    /* is asked several times a second; its error ends the look-up, and is the look-up's. NULL: nobody is asked */
    gw_status (*go_on)(const void *user);
    const void *user;
};

/* Reads "HOST:PORT"; an IPv6 address is in brackets. what: the address's name in sentences, for example "the
 * rendezvous". any_port: port 0 is legal. An address in numbers asks nobody. Errors: GW_ERR_ARGUMENT (not of this
 * form), GW_ERR_SYSTEM (no such host; `unknown` says whether to ask again), GW_ERR_MEMORY, and those of go_on. */
gw_status gw_net_host_parse(const char *what, const char *text, bool any_port, const struct gw_net_patience *patience,
                            struct gw_net_host *host);

/* The same for an address of this machine, of which only the first is wanted. */
gw_status gw_net_address_parse(const char *what, const char *text, bool any_port, struct gw_net_address *address);

/* Reads a host or an address without a port. It stands for any port. */
gw_status gw_net_address_of_host(const char *host, struct gw_net_address *address);

/* Finds the address from which this machine reaches `there`. It stands for any port. */
gw_status gw_net_address_towards(const struct gw_net_address *there, struct gw_net_address *address);

/* The address of a socket, or of the other side's. Errors: GW_ERR_SYSTEM (it has none; errno says why); then `place`
 * stays. */
gw_status gw_net_address_of_socket(int fd, bool of_peer, struct gw_net_address *address);

/* An address in bytes, as members send it: 4 or 6, a zero, the port, and the address, in the network's order. read:
 * false: the bytes are none. It asks nobody. */
#define GW_NET_ADDRESS_BYTES 20
void gw_net_address_write(const struct gw_net_address *address, uint8_t out[GW_NET_ADDRESS_BYTES]);
bool gw_net_address_read(const uint8_t bytes[GW_NET_ADDRESS_BYTES], struct gw_net_address *address);

#endif
