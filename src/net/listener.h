/* Listens at an address, and keeps the connections that have not said yet who they are. Anybody can make such
 * connections, so they are bounded: in all, by address (one has at most half of the room), in memory, and in time. If
 * there is room for no more, the one that has waited longest makes room. If none has waited long enough to have had its
 * chance, the listener stops accepting for a moment. So a flood costs no memory, and members get in behind it. It can
 * also leave some of the process's descriptors free for files.
 *
 * It has an epoll descriptor of its own. Whoever waits for it watches that. */
#ifndef GW_NET_LISTENER_H
#define GW_NET_LISTENER_H

#include "net/connection.h"

/* who has not said by then who it is, is sent away */
#define GW_NET_INTRODUCTION_SECONDS 10.0
/* Newcomers may come as fast as they are handled. So after this many of them its holder does something else first. */
#define GW_NET_MOST_AT_ONCE 64

/* A connection that has not said who it is. */
struct gw_net_newcomer {
    struct gw_net_connection c;
    double since; /* 0: the slot is free */
    bool leaves;  /* it is to be closed when what it was told has arrived */
};

struct gw_net_listener_options {
    gw_context *context;
    struct gw_net_keys *keys; /* NULL: in the clear */
    struct gw_net_log *log;
    const char *of;       /* what listens, for the log: "job", or "server" */
    uint32_t most;        /* unauthenticated connections at a time */
    uint32_t spare_files; /* descriptors that no connection gets */
    uint32_t timeout_ms;  /* for keepalive */
    uint16_t most_header; /* bytes of the header of a first message */
};

struct gw_net_listener {
    struct gw_net_listener_options o;
    int epoll, fd;    /* fd: it listens there; -1: not yet */
    double accept_at; /* when to accept again; 0: it accepts */
    struct gw_net_newcomer *newcomers;
    int no_room; /* the errno of the last accept, if this process or the system had no room for a connection; else 0 */
    uint64_t n_pushed_out; /* connections that had to make room, or found none, or said nothing in time */
    uint64_t n_told;       /* how many of them the log knows */
    double told_at;
    char refused[600]; /* whose handshake failed last, and why */
    double refused_at;
};

/* Makes a listener that does not listen yet. What the options point to must outlive it. Errors: GW_ERR_MEMORY,
 * GW_ERR_SYSTEM. gw_net_listener_close is legal after a failure, too, and of a listener that is all zeros. */
gw_status gw_net_listener_open(struct gw_net_listener *listener, const struct gw_net_listener_options *options);
void gw_net_listener_close(struct gw_net_listener *listener);

/* Listens at an address. own: gets where; the port is chosen if the address has none. Errors: GW_ERR_SYSTEM; errno says
 * why. */
gw_status gw_net_listen(struct gw_net_listener *listener, const struct gw_net_address *address,
                        struct gw_net_address *own);

/* Goes on with all that can go on: accepts, shakes hands, reads, sends away. Call it several times a second, also if
 * the kernel has no news: newcomers whose time is up go. The next newcomer that has sent its first message is handed
 * over with it; NULL: none has now. The caller must then let it in or turn it out. The log gets a line for handshakes
 * that failed, and for connections that were pushed out, but not for each of many. */
struct gw_net_newcomer *gw_net_listener_next(struct gw_net_listener *listener, struct gw_net_message *message);

/* Moves a newcomer's connection to `to`, which must not be open. */
void gw_net_let_in(struct gw_net_listener *listener, struct gw_net_newcomer *newcomer, struct gw_net_connection *to);
/* Closes a newcomer's connection: at once, or when it has received a short message. */
void gw_net_turn_out(struct gw_net_newcomer *newcomer);
void gw_net_refuse(struct gw_net_listener *listener, struct gw_net_newcomer *newcomer, uint16_t kind,
                   const void *header, size_t n_header, const void *bytes, size_t n_bytes);

#endif
