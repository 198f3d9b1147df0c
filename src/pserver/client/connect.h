/* Connections to servers: where these are, and how the client finds out that one is there or gone. */
#ifndef GW_PSERVER_CLIENT_CONNECT_H
#define GW_PSERVER_CLIENT_CONNECT_H

#include "pserver/client/state.h"

/* Takes "HOST:PORT,..." apart. */
gw_status gw_ps_client_name_servers(struct gw_ps_client *client, const char *text);

/* Begins to connect to server s. */
gw_status gw_ps_server_connect(struct gw_ps_client *client, uint32_t s);

/* Ends the connection, and what is queued for it is sent no more; another one is made. */
void gw_ps_server_redial(const struct gw_ps_client *client, struct server *server);

/* Reads what ZeroMQ tells of its connections. Whether there is a new one: then the server does not know us. */
bool gw_ps_server_news(struct server *server);

/* What is due after news and as time passes. Errors: no connection can be made, or not with these keys. */
gw_status gw_ps_server_look(struct gw_ps_client *client, struct server *server);

#endif
