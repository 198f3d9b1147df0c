/* Connections to servers: their addresses, and how the client finds out whether a server is there or gone. */
#ifndef GW_PSERVER_CLIENT_CONNECT_H
#define GW_PSERVER_CLIENT_CONNECT_H

#include "pserver/client/state.h"

/* Reads a list "HOST:PORT,...". */
gw_status gw_ps_client_name_servers(struct gw_ps_client *client, const char *text);

/* Begins to connect to server s. */
gw_status gw_ps_server_connect(struct gw_ps_client *client, uint32_t s);

/* Ends the connection and makes another one. Requests that are queued for the old one are not sent. */
void gw_ps_server_redial(const struct gw_ps_client *client, struct server *server);

/* Reads the events of a server's connections. True if there is a new connection: the server does not know this client
 * on it yet. */
bool gw_ps_server_news(struct server *server);

/* Does what is due after events and as time passes. Errors: no connection can be made, or not with these keys. */
gw_status gw_ps_server_look(struct gw_ps_client *client, struct server *server);

#endif
