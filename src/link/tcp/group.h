/* What the links of one gw_link_tcp_create share: a ZeroMQ context, the members' addresses and keys, and how sockets
 * are made. */
#ifndef GW_LINK_TCP_GROUP_H
#define GW_LINK_TCP_GROUP_H

#include "link/tcp/address.h"

#include <stdatomic.h>

struct gw_tcp_endpoint;
struct gw_tcp_gate;
struct gw_tcp_host;
struct gw_tcp_keys;
struct gw_tcp_watch;

struct gw_tcp_group {
    gw_context *context;
    void *zmq;
    struct gw_tcp_keys *keys;   /* NULL: not encrypted */
    struct gw_tcp_gate *gate;   /* with keys: who may connect */
    struct gw_tcp_watch *watch; /* NULL: no door yet */
    struct gw_tcp_host *host;   /* rank 0's of a link: answers at the rendezvous as long as the group stands */
    void (*log)(const char *line, void *user);
    void *log_user;
    bool (*stop)(void *user);
    void *stop_user;
    atomic_uint n_logged;
    uint32_t rank, size, n_links, timeout_ms;
    uint64_t session;
    atomic_uint holders;                   /* endpoints not destroyed yet */
    char (*keys_of)[GW_TCP_KEY_CHARS + 1]; /* with keys: every rank's public key */
    struct gw_tcp_endpoint **endpoints;    /* one for each link */
};

/* Frees what there is; the endpoints must be gone from ZeroMQ's point of view (their sockets closed). */
void gw_tcp_group_free(struct gw_tcp_group *group);

/* A line for whoever set options.log; after some hundred of them no more: strangers shall not fill a disk. */
void gw_tcp_log(struct gw_tcp_group *group, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* While members meet nothing waits longer than this before it asks whether it is to stop. */
#define GW_TCP_ASK_SECONDS 0.25
gw_status gw_tcp_go_on(const struct gw_tcp_group *group);

/* A socket of the group with all options set: no limits on queues, nothing kept back on closing, heartbeats, keys. A
 * server's clients must hold an allowed key. NULL: gw_last_error() says why. */
void *gw_tcp_socket_new(struct gw_tcp_group *group, int type, bool server);

gw_status gw_tcp_set_int(void *socket, int option, int value);

/* Binds to the address (any port where it has none) and says where that is. On failure errno says why too. */
gw_status gw_tcp_bind(void *socket, const struct gw_tcp_address *address, char endpoint[GW_TCP_ENDPOINT_BYTES]);

/* Connects to an endpoint whose server has that public key (NULL without keys). */
gw_status gw_tcp_connect(void *socket, const char *endpoint, const char *server_key);

/* The endpoint without "tcp://", for sentences. */
static inline const char *gw_tcp_place(const char *endpoint)
{
    return endpoint + sizeof "tcp://" - 1;
}

#endif
