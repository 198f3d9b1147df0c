/* The server's connections: what comes over them, and who is let in. */
#ifndef GW_PSERVER_SERVER_CONNECTIONS_H
#define GW_PSERVER_SERVER_CONNECTIONS_H

#include "pserver/server/state.h"

/* Waits for `seconds` at most, and handles what has come. Returns false if nothing had. *stop: gw_ps_server_stop was
 * called. */
bool gw_ps_connections_turn(struct gw_ps_server *server, double seconds, bool *stop);

/* Looks for members whose machine or network is gone. */
void gw_ps_connections_look(struct gw_ps_server *server);

#endif
