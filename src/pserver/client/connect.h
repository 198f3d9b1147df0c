/* Connections to servers: their addresses, how they are made again, and why one cannot be made. */
#ifndef GW_PSERVER_CLIENT_CONNECT_H
#define GW_PSERVER_CLIENT_CONNECT_H

#include "pserver/client/state.h"

/* Reads a list "HOST:PORT,...". */
gw_status gw_ps_client_name_servers(struct gw_ps_client *client, const char *text);

/* Sends a request. part NULL: it has no body; else `sent` gets the part when its body has left, or never will. If the
 * connection ends before, the request is sent again on the next one. Errors: GW_ERR_MEMORY. */
gw_status gw_ps_server_send(struct server *server, const struct gw_ps_request *request, struct part *part,
                            void (*sent)(void *part));

/* Goes on connecting, if it is time. True: the connection stands. */
bool gw_ps_server_connect(struct server *server);

/* The connection has ended; c.error says how. Another one will be made. */
void gw_ps_server_lost(struct server *server);

/* Ends the connection, and makes another one at once. Requests that were sent and have no answer are sent again there.
 */
void gw_ps_server_redial(struct server *server);

/* GW_OK, or an error: no connection can be made, or the keys do not fit. The next call tries again. */
gw_status gw_ps_server_check(struct server *server);

/* HOST:PORT of a server. */
static inline const char *gw_ps_place(const struct server *server)
{
    return gw_net_place(server->address.endpoint);
}

#endif
