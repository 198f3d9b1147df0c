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
    char endpoint[GW_ZMQ_ENDPOINT_BYTES]; /* in ZeroMQ's form: "tcp://1.2.3.4:5" or "tcp://[::1]:5" */
};

/* Reads "HOST:PORT"; an IPv6 address is in brackets. what: the address's name in sentences, for example "the
 * rendezvous". any_port: port 0 is legal. *unknown: true if it failed because the name is not known, or not yet;
 * unknown NULL: not wanted. Errors: GW_ERR_ARGUMENT (not of this form), GW_ERR_SYSTEM (no such host). */
gw_status gw_zmq_address_parse(const char *what, const char *text, bool any_port, bool *unknown,
                               struct gw_zmq_address *address);

/* Reads a host or an address without a port. It stands for any port. */
gw_status gw_zmq_address_of_host(const char *host, struct gw_zmq_address *address);

/* Tries to connect to `there`, and ends the connection. Returns 0, or the errno of the failure. ETIMEDOUT: nobody
 * answers within `ms`. */
int gw_zmq_address_try(const struct gw_zmq_address *there, int ms);

/* Finds the address from which this machine reaches `there`. It stands for any port. */
gw_status gw_zmq_address_towards(const struct gw_zmq_address *there, struct gw_zmq_address *address);

/* The endpoint without "tcp://", for sentences. */
static inline const char *gw_zmq_place(const char *endpoint)
{
    return endpoint + sizeof "tcp://" - 1;
}

#endif
