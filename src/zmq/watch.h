/* The watch over connections that others make to a socket of ours: it closes those that would take more than their
 * share of this process.
 *
 * ZeroMQ bounds one part of a message, and counts whole messages; a message of endless parts grows in its threads
 * without a limit, before any of it is handed on. So a thread compares what the kernel has received on
 * each connection with what its whole messages have brought to the application. A connection is a stranger until it is
 * admitted. All doors of a watch have one thread; it sleeps while nobody is there. */
#ifndef GW_ZMQ_WATCH_H
#define GW_ZMQ_WATCH_H

#include "zmq/events.h"

struct gw_zmq_door;
struct gw_zmq_watch;

/* Bytes are those that have come and that no whole message has brought yet. What strangers may hold is small: parts
 * without bytes take 2 bytes on the wire and 64 of memory. */
struct gw_zmq_limits {
    uint32_t most_strangers; /* connections; beyond, the oldest of the address that has most of them is closed */
    double silent_s;         /* that a stranger may take to say who it is, while somebody listens */
    uint64_t stranger_bytes; /* of one stranger */
    uint64_t member_bytes;   /* of a message of one that was admitted, while it is not whole; 0: no limit */
    uint64_t all_bytes;      /* of all that were admitted; 0: no limit */
    bool events;             /* lines of the log are "event key=value" */
};

#define GW_ZMQ_MOST_DOORS 65u /* of one watch */

/* What doors have in common: strangers beside those that are expected, and seconds for a first message. */
#define GW_ZMQ_SPARE_STRANGERS 64u
#define GW_ZMQ_SILENT_SECONDS 10.0

/* Strangers together may hold so much. */
#define GW_ZMQ_STRANGERS_BYTES ((uint64_t)1 << 20)

struct gw_zmq_watch_options {
    gw_context *context;
    void *zmq;
    uint32_t timeout_ms;                       /* from it follows how many bytes heartbeats are */
    void (*log)(const char *line, void *user); /* NULL: nobody listens */
    void *log_user;
};

/* Begins a watch: its thread, and no door yet. Errors: GW_ERR_SYSTEM, GW_ERR_MEMORY. */
gw_status gw_zmq_watch_begin(const struct gw_zmq_watch_options *options, struct gw_zmq_watch **out);

/* Watches a socket that is not bound yet. `name` is its own in the ZeroMQ context; news: ZMQ_EVENT_..., beside ACCEPTED
 * and DISCONNECTED. */
gw_status gw_zmq_door_open(struct gw_zmq_watch *watch, void *socket, const char *name, int news,
                           const struct gw_zmq_limits *limits, struct gw_zmq_door **out);

/* Closes the socket and its door and sets them NULL, each unless it is NULL already. */
void gw_zmq_door_close(void **socket, struct gw_zmq_door **door);

/* From here on the watch's thread uses the socket: it calls serve(user) whenever something may have come, until the
 * door is closed. serve takes a bounded number of messages, waits for nothing, and opens or closes no door; true: there
 * may be more. */
void gw_zmq_door_serve(struct gw_zmq_door *door, bool (*serve)(void *user), void *user);

/* The calls below are of the one thread that uses the socket. */

/* The next of the news; all that ZeroMQ has told by now come. false: there are none. */
bool gw_zmq_door_event(struct gw_zmq_door *door, struct gw_zmq_event *event);

/* Can be read when there may be news. */
int gw_zmq_door_fd(const struct gw_zmq_door *door);

/* A whole message came on the connection with that descriptor, of n_bytes in n_parts. */
void gw_zmq_door_took(struct gw_zmq_door *door, int fd, uint64_t n_bytes, uint32_t n_parts);

/* There was no message: all that were whole have been taken. */
void gw_zmq_door_empty(struct gw_zmq_door *door);

/* The connection has said who it is. After its news have been read. */
void gw_zmq_door_admit(struct gw_zmq_door *door, int fd);

/* It has left: it is a stranger again, from now on. */
void gw_zmq_door_dismiss(struct gw_zmq_door *door, int fd);

/* From here on members may send before they are admitted: a stranger is closed only once the socket was found empty. */
void gw_zmq_door_expect(struct gw_zmq_door *door);

/* Nobody else is to come: whoever tries gets no answer, and strangers are closed. */
void gw_zmq_door_shut(struct gw_zmq_door *door);

/* Ends the thread, after its doors. NULL is allowed. */
void gw_zmq_watch_end(struct gw_zmq_watch *watch);

#endif
