/* What the links of one gw_link_tcp_create share: sockets and keys, the members, and the session. */
#ifndef GW_LINK_TCP_GROUP_H
#define GW_LINK_TCP_GROUP_H

#include "base/process.h"
#include "zmq/net.h"

#include <stdatomic.h>

struct gw_tcp_endpoint;
struct gw_tcp_host;

struct gw_tcp_group {
    gw_context *context;
    gw_process made_in;
    struct gw_zmq_net net;
    struct gw_tcp_host *host; /* only on rank 0: answers at the rendezvous as long as the group exists */
    bool (*stop)(void *user);
    void *stop_user;
    uint32_t rank, size, n_links, timeout_ms;
    uint64_t session;
    atomic_uint holders;                   /* endpoints not destroyed yet */
    char (*keys_of)[GW_ZMQ_KEY_CHARS + 1]; /* every rank's public key; NULL without keys */
    struct gw_tcp_endpoint **endpoints;    /* one for each link */
};

/* While members meet, no wait is longer than this. After each wait gw_tcp_go_on asks the program whether to stop.
 * Error: GW_ERR_CLOSED (it said so). */
#define GW_TCP_ASK_SECONDS 0.25
gw_status gw_tcp_go_on(const struct gw_tcp_group *group);

#endif
