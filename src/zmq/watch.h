/* The watch looks at the connections that others make to our sockets. It closes a connection that takes more than its
 * share of this process's memory.
 *
 * It is needed because ZeroMQ limits only the size of a message's parts, and the number of complete messages. A message
 * with parts without end would grow in ZeroMQ's threads without a limit, and the application would see nothing of it.
 * So the watch's thread compares two numbers for each connection: the bytes that the kernel has received, and the bytes
 * of the complete messages that the application has got. A connection is a stranger until it is admitted. All doors of
 * a watch share one thread. It sleeps while no connection is there. */
#ifndef GW_ZMQ_WATCH_H
#define GW_ZMQ_WATCH_H

#include "zmq/events.h"

struct gw_zmq_door;
struct gw_zmq_watch;

/* The limits of a door. Bytes here are bytes that have come and belong to no complete message yet. Limits of strangers
 * are small, because a part without bytes takes 2 bytes on the wire and 64 bytes of memory. */
struct gw_zmq_limits {
    /* how many strangers may be connected. If there are more, the watch closes the oldest one of the address with the
     * most strangers */
    uint32_t most_strangers;
    double silent_s;         /* how long a stranger may take to say who it is, while the application reads messages */
    uint64_t stranger_bytes; /* of one stranger */
    uint64_t member_bytes;   /* of an incomplete message of a connection that was admitted; 0: no limit */
    uint64_t all_bytes;      /* of all admitted connections together; 0: no limit */
};

#define GW_ZMQ_MOST_DOORS 65u /* of one watch */

/* Limits that all doors use: how many strangers may come besides those that are expected, and how many seconds a
 * stranger has for its first message. */
#define GW_ZMQ_SPARE_STRANGERS 64u
#define GW_ZMQ_SILENT_SECONDS 10.0

/* The most bytes of all strangers of a door together. */
#define GW_ZMQ_STRANGERS_BYTES ((uint64_t)1 << 20)

struct gw_zmq_watch_options {
    gw_context *context;
    void *zmq;
    uint32_t timeout_ms;                       /* the heartbeats' timeout; it tells how many bytes heartbeats take */
    void (*log)(const char *line, void *user); /* NULL: nobody listens */
    void *log_user;
};

/* Begins a watch: its thread, and no door yet. Errors: GW_ERR_SYSTEM, GW_ERR_MEMORY. */
gw_status gw_zmq_watch_begin(const struct gw_zmq_watch_options *options, struct gw_zmq_watch **out);

/* Opens a door: watches a socket that is not bound yet. No other door in the ZeroMQ context may have the same `name`.
 * news: ZMQ_EVENT_..., events that the application wants besides ACCEPTED and DISCONNECTED. */
gw_status gw_zmq_door_open(struct gw_zmq_watch *watch, void *socket, const char *name, int news,
                           const struct gw_zmq_limits *limits, struct gw_zmq_door **out);

/* Closes the socket and its door, and sets the pointers to NULL. Either may be NULL already. */
void gw_zmq_door_close(void **socket, struct gw_zmq_door **door);

/* From here on the watch's thread uses the socket, until the door is closed. It calls serve(user) whenever something
 * may have come. serve takes a limited number of messages. It must not wait, and must not open or close a door. It
 * returns true if there may be more messages. */
void gw_zmq_door_serve(struct gw_zmq_door *door, bool (*serve)(void *user), void *user);

/* Only the thread that uses the socket makes the calls below. */

/* Takes the next event. It has read all that ZeroMQ has told until now. false: there is none. */
bool gw_zmq_door_event(struct gw_zmq_door *door, struct gw_zmq_event *event);

/* A descriptor that can be read if there may be events. */
int gw_zmq_door_fd(const struct gw_zmq_door *door);

/* Tells the watch that a complete message came on the connection with that descriptor. It had n_bytes in n_parts. */
void gw_zmq_door_took(struct gw_zmq_door *door, int fd, uint64_t n_bytes, uint32_t n_parts);

/* Tells the watch that the socket was found empty: all complete messages have been taken. */
void gw_zmq_door_empty(struct gw_zmq_door *door);

/* Admits a connection, which has said who it is. Its events must have been read before. */
void gw_zmq_door_admit(struct gw_zmq_door *door, int fd);

/* The member of a connection has left. From now on the connection is a stranger again. */
void gw_zmq_door_dismiss(struct gw_zmq_door *door, int fd);

/* Ends the watch's thread. Its doors must be closed before. NULL is allowed. */
void gw_zmq_watch_end(struct gw_zmq_watch *watch);

#endif
