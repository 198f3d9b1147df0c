/* Reads what ZeroMQ tells of a socket's connections. The news comes on a second socket, beside the messages; neither
 * waits for the other. */
#ifndef GW_ZMQ_EVENTS_H
#define GW_ZMQ_EVENTS_H

#include "zmq/address.h"

#include <gradwire/context.h>

#include <stdint.h>

struct gw_zmq_event {
    uint16_t what;  /* ZMQ_EVENT_... */
    uint32_t value; /* what it means depends on `what`: mostly the connection's file descriptor */
    char endpoint[GW_ZMQ_ENDPOINT_BYTES];
};

/* Makes the socket on which the events of `socket` come. `name` is its own in the ZeroMQ context. */
gw_status gw_zmq_monitor(void *zmq, void *socket, const char *name, int events, void **out);

/* false: no news. */
bool gw_zmq_next_event(void *events, struct gw_zmq_event *event);

/* Of each connection's file descriptor: whether it has ended, and none with its number has come since. All zero is
 * empty; one thread at a time. News and messages come apart, and numbers are given again: who keeps the number of a
 * connection that something came on asks here first, after all news have been read. */
struct gw_zmq_ended {
    uint8_t *of;
    size_t n;
};

/* A connection came, or ended, as ZMQ_EVENT_ACCEPTED and ZMQ_EVENT_DISCONNECTED say. Where there is no memory the end
 * is forgotten. */
void gw_zmq_ended_note(struct gw_zmq_ended *ended, gw_context *context, const struct gw_zmq_event *event);
bool gw_zmq_has_ended(const struct gw_zmq_ended *ended, int fd);
void gw_zmq_ended_free(struct gw_zmq_ended *ended, gw_context *context);

/* From where the last connections came that were accepted. All zero is empty. */
#define GW_ZMQ_CALLERS 32
#define GW_ZMQ_NUMERIC_BYTES 64 /* room for an address in numbers, with its interface */
struct gw_zmq_callers {
    struct {
        int fd;
        char address[GW_ZMQ_NUMERIC_BYTES];
    } of[GW_ZMQ_CALLERS];
    uint32_t n;
};

/* At ZMQ_EVENT_ACCEPTED. It must be asked for at once: the connection may be gone soon. */
void gw_zmq_caller_note(struct gw_zmq_callers *callers, int fd);

/* The address of the last one with that number; "": it went before it could be asked for. */
const char *gw_zmq_caller(const struct gw_zmq_callers *callers, int fd);

/* Closes both and sets them NULL, each unless it is NULL already. */
void gw_zmq_close_monitored(void **socket, void **events);

#endif
