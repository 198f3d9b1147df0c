/* The meeting: all members come to rank 0's address, say where they listen, and get the table of all addresses. host.c
 * is the side of rank 0. visitor.c is the side of the others. */
#ifndef GW_LINK_TCP_MEETING_H
#define GW_LINK_TCP_MEETING_H

#include "link/tcp/group.h"
#include "link/tcp/wire.h"

#include <zmq.h>

#define GW_TCP_JOIN_SECONDS 0.5 /* between two JOINs of a member; rank 0 answers each of them */

/* Writes where this rank can be reached. */
uint8_t *gw_tcp_write_contact(const struct gw_tcp_group *group, uint8_t *at, char (*endpoints)[GW_ZMQ_ENDPOINT_BYTES]);

/* Copies the contacts of a table, which must have been checked. */
void gw_tcp_adopt(struct gw_tcp_group *group, const struct gw_tcp_table *table);

/* Sleeps until there is a message at `socket`, until there is an event, until the time `until`, or until it is time to
 * ask whether to stop. Events come on the socket `events`; if that is NULL, on the descriptor events_fd. */
void gw_tcp_meeting_sleep(void *socket, void *events, int events_fd, double until);

/* Takes one message. *whole: it has exactly n parts. The caller must close the n parts in any case. false: there is no
 * message. */
bool gw_tcp_take_parts(void *socket, zmq_msg_t *parts, int n, bool *whole);

#endif
