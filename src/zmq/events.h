/* Reads the events that ZeroMQ tells of a socket's connections. They come on a second socket, beside the messages.
 * Neither waits for the other. */
#ifndef GW_ZMQ_EVENTS_H
#define GW_ZMQ_EVENTS_H

#include "net/address.h"

#include <gradwire/context.h>

#include <stdint.h>

struct gw_zmq_event {
    uint16_t what;  /* ZMQ_EVENT_... */
    uint32_t value; /* what it means depends on `what`: mostly the connection's file descriptor */
    char endpoint[GW_NET_ENDPOINT_BYTES];
};

/* Makes the socket on which the events of `socket` come. No other one in the ZeroMQ context may have the same `name`.
 */
gw_status gw_zmq_monitor(void *zmq, void *socket, const char *name, int events, void **out);

/* Reads the next event. false: there is none. */
bool gw_zmq_next_event(void *events, struct gw_zmq_event *event);

/* Tells for each file descriptor whether its last connection has ended. All zero is empty. Only one thread at a time
 * may use it. It is needed because events and messages come separately, and the system uses a descriptor's number
 * again. A message tells the number of its connection. Before somebody keeps that number, he must read all events and
 * then ask here. */
struct gw_zmq_ended {
    uint8_t *of;
    size_t n;
};

/* Notes an event: ZMQ_EVENT_ACCEPTED (a connection came) or ZMQ_EVENT_DISCONNECTED (it ended). If there is no memory,
 * the end is forgotten. */
void gw_zmq_ended_note(struct gw_zmq_ended *ended, gw_context *context, const struct gw_zmq_event *event);
bool gw_zmq_has_ended(const struct gw_zmq_ended *ended, int fd);
void gw_zmq_ended_free(struct gw_zmq_ended *ended, gw_context *context);

/* The addresses of the last connections that were accepted. All zero is empty. */
#define GW_ZMQ_CALLERS 32
#define GW_ZMQ_NUMERIC_BYTES 64 /* room for an address in numbers, with its interface */
struct gw_zmq_callers {
    struct {
        int fd;
        char address[GW_ZMQ_NUMERIC_BYTES];
    } of[GW_ZMQ_CALLERS];
    uint32_t n;
};

/* Notes the address of a connection. Call it at once after ZMQ_EVENT_ACCEPTED: the connection may be gone soon. */
void gw_zmq_caller_note(struct gw_zmq_callers *callers, int fd);

/* The address of the last connection with that descriptor. "": the connection ended before its address could be read.
 */
const char *gw_zmq_caller(const struct gw_zmq_callers *callers, int fd);

/* Closes both sockets and sets the pointers to NULL. Either may be NULL already. */
void gw_zmq_close_monitored(void **socket, void **events);

#endif
