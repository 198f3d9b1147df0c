/* Turns the addresses that options name into numbers. */
#ifndef GW_ZMQ_ADDRESS_H
#define GW_ZMQ_ADDRESS_H

#include <gradwire/status.h>

#include <stdbool.h>
#include <sys/socket.h>

#define GW_ZMQ_ENDPOINT_BYTES 72 /* room for "tcp://[address%interface]:port" and its end */

struct gw_zmq_address {
    struct sockaddr_storage socket;
    socklen_t socket_bytes;
    bool loopback;
    char endpoint[GW_ZMQ_ENDPOINT_BYTES]; /* as ZeroMQ writes it: "tcp://1.2.3.4:5" or "tcp://[::1]:5" */
};

/* "HOST:PORT"; an IPv6 address in brackets. what: "the rendezvous" and the like, for sentences. any_port: 0 is legal.
 * unknown: whether it failed because nobody knows the name, or not yet; NULL: do not say. Errors: GW_ERR_ARGUMENT (not
 * of this form), GW_ERR_SYSTEM (no such host). */
gw_status gw_zmq_address_parse(const char *what, const char *text, bool any_port, bool *unknown,
                               struct gw_zmq_address *address);

/* A host or an address without a port; any port is meant. */
gw_status gw_zmq_address_of_host(const char *host, struct gw_zmq_address *address);

/* Makes a connection there and ends it: 0, or the errno why that cannot be; ETIMEDOUT: nobody answers within `ms`. */
int gw_zmq_address_try(const struct gw_zmq_address *there, int ms);

/* The address from which this machine reaches `there`, any port. */
gw_status gw_zmq_address_towards(const struct gw_zmq_address *there, struct gw_zmq_address *address);

/* The endpoint without "tcp://", for sentences. */
static inline const char *gw_zmq_place(const char *endpoint)
{
    return endpoint + sizeof "tcp://" - 1;
}

#endif
